"""sliding_window_mask and RollingKVCache."""

import torch

from utils import oracle
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase6 import PHASE, rules_systems


def band(visible):
    """A wrong twin: visible(distance from query back to key, window) of places aligned to the end."""

    def sliding_window_mask(q_len, kv_len, window):
        if window < 1:
            raise ValueError("window")
        back = torch.arange(q_len)[:, None] + kv_len - q_len - torch.arange(kv_len)
        return visible(back, window)

    return sliding_window_mask


def from_the_start(q_len, kv_len, window):
    if window < 1:
        raise ValueError("window")
    back = torch.arange(q_len)[:, None] - torch.arange(kv_len)
    return (back >= 0) & (back < window)


def never_refuses(q_len, kv_len, window):
    back = torch.arange(q_len)[:, None] + kv_len - q_len - torch.arange(kv_len)
    return (back >= 0) & (back < window)


register(
    expected=oracle.sliding_window_mask,
    phase=PHASE,
    section="6.17",
    hint="back = position of the query − position of the key; visible where 0 ≤ back < window.",
    grad=False,
    cases=tuple(
        case(f"{q} queries, {k} keys, window {w}", dict(q_len=q, kv_len=k, window=w))
        for q, k, w in ((6, 6, 3), (3, 7, 2), (1, 9, 4), (5, 8, 1), (7, 3, 2), (4, 6, 10), (1, 1, 1))
    )
    + (
        refusal("window 0", dict(q_len=3, kv_len=4, window=0)),
        refusal("window −2", dict(q_len=3, kv_len=4, window=-2)),
    ),
    mistakes={
        "the window counts the token itself": Replays(
            band(lambda back, window: (back >= 0) & (back <= window)),
            band(lambda back, window: (back >= 0) & (back < max(window - 1, 1))),
        ),
        "no token sees its future": Replays(
            band(lambda back, window: back.abs() < window), band(lambda back, window: back < window)
        ),
        "queries are the last of the keys: align to the end": from_the_start,
        "the window was ignored": band(lambda back, window: back >= 0),
        "True means may attend": band(lambda back, window: ~((back >= 0) & (back < window))),
        "rows are queries, columns are keys": lambda q_len, kv_len, window: oracle.sliding_window_mask(
            q_len, kv_len, window
        ).mT.contiguous(),
        "masks are bool": Replays(
            *(
                lambda q_len, kv_len, window, kind=kind: oracle.sliding_window_mask(q_len, kv_len, window).to(kind)
                for kind in (torch.int64, torch.int32, torch.float32, torch.float64)
            )
        ),
        "a window below 1 must be refused": Replays(
            never_refuses, lambda q_len, kv_len, window: oracle.sliding_window_mask(q_len, kv_len, max(1, window))
        ),
    },
)


class _Hoard(oracle.RollingKVCache):
    """Everything ever seen is kept; each answer picks from it: right, but it grows."""

    def __init__(self, window, n_sinks=0):
        super().__init__(window, n_sinks)
        self.chunks = []

    def append(self, k, v):
        self.chunks.append((k, v))
        keys, values = (torch.cat(parts, dim=2) for parts in zip(*self.chunks, strict=True))
        kept = right(self)
        return keys[:, :, kept], values[:, :, kept], kept

    @property
    def length_seen(self):
        return sum(k.shape[2] for k, _ in self.chunks)

    @property
    def length(self):
        return self.length_seen


def keeping(places, renumber=False, length=None, size=None, values=None, told=lambda positions: positions):
    """A wrong twin: places(cache, old) are kept, `old` being there before the chunk; values: of other places; told:
    how positions are handed over."""

    class Wrong(_Hoard):
        def append(self, k, v):
            old = self.length_seen
            self.chunks.append((k, v))
            kept = self.kept = places(self, old)
            keys, rest = (torch.cat(parts, dim=2) for parts in zip(*self.chunks, strict=True))
            shown = torch.arange(len(kept)) if renumber else kept
            picked = kept if values is None else values(self, kept)
            return keys[:, :, kept], rest[:, :, picked], told(shown)

        @property
        def length(self):
            return length(self) if length else self.length_seen

        @property
        def size(self):
            return size(self) if size else len(self.kept)

    return Wrong


def here(cache):
    return torch.arange(cache.length_seen)


def right(cache, old=None):
    places = here(cache)
    return places[(places < cache.n_sinks) | (places >= len(places) - cache.window)]


def formula(cache):
    """A size that is right whatever is kept."""
    return min(cache.length_seen, cache.n_sinks + cache.window)


def twice(cache, old):
    places = here(cache)
    return torch.cat([places[: cache.n_sinks], places[-cache.window :]])


def late(cache, old):
    """What was too much before the chunk has gone; the chunk stays whole."""
    places = here(cache)
    return places[(places < cache.n_sinks) | (places >= min(old, max(0, old - cache.window + 1)))]


def chunk_whole(cache, old):
    """What is new stays whole, whatever the window."""
    places = here(cache)
    return places[(places < cache.n_sinks) | (places >= len(places) - cache.window) | (places >= old)]


def sinks_of_first_chunk(cache, old):
    first = cache.chunks[0][0].shape[2]
    places = here(cache)
    return places[(places < min(cache.n_sinks, first)) | (places >= len(places) - cache.window)]


def inside(cache, old):
    """The sinks take places of the window."""
    places = here(cache)
    return places[(places < cache.n_sinks) | (places >= len(places) - max(1, cache.window - cache.n_sinks))]


class _Lax(oracle.RollingKVCache):
    """Takes any sizes."""

    def __init__(self, window, n_sinks=0):
        self.window, self.n_sinks, self.seen, self.first, self.last = max(window, 1), max(n_sinks, 0), 0, None, None


def chunk(length, heads=3, batch=2):
    return dict(method="append", k=(batch, heads, length, 4), v=(batch, heads, length, 5))


LONG, LIMIT = 40, 3000  # tokens fed one by one; bytes of 20 of them, at a window of 6 and 2 sinks
COUNTS = (dict(method="length"), dict(method="size"))


def rolling(name, window, n_sinks, *lengths, **options):
    """A cache that is fed chunks of these lengths; then it is asked what it saw and what it keeps."""
    first, *more = (chunk(length, **options) for length in lengths)
    init = dict(window=window) | ({"n_sinks": n_sinks} if n_sinks else {})
    return case(name, first, then=(*more[:1], *COUNTS, *more[1:], *COUNTS), init=init)


register(
    expected=oracle.RollingKVCache,
    phase=PHASE,
    section="6.18",
    hint="after each append keep places below n_sinks and the last `window` places; remember their positions.",
    grad=False,
    cases=(
        rolling("window 4, 2 sinks, one by one", 4, 2, *[1] * 9),
        rolling("window 3, no sinks", 3, 0, *[1] * 5),
        rolling("window 1, 1 sink", 1, 1, *[1] * 4),
        rolling("chunks of 2, 2, 3", 4, 2, 2, 2, 3, 1, batch=1),
        rolling("2 places, 3 sinks, chunks of 2", 2, 3, 2, 2, 2, 1),
        rolling("a chunk longer than everything", 3, 1, 9, 2, heads=1),
        case(
            "the bytes it keeps after 40 tokens",
            chunk(1, heads=2, batch=1),
            then=(chunk(1, heads=2, batch=1),) * (LONG - 1),
            init=dict(window=6, n_sinks=2),
            kind="chance",  # weighed by a rule: the twins of other mistakes need not be thrifty
            mutates="held",
            judge=rules_systems.at_most(LIMIT, call=-1),
        ),
        refusal("window 0", chunk(1), init=dict(window=0)),
        refusal("−1 sinks", chunk(1), init=dict(window=2, n_sinks=-1)),
    ),
    mistakes={
        "the sinks must stay": Replays(
            keeping(lambda cache, old: here(cache)[-cache.window - cache.n_sinks :]),
            keeping(lambda cache, old: here(cache)[-cache.window :]),
            keeping(lambda cache, old: here(cache)[-cache.window :], size=formula),
        ),
        "the newest token stays": keeping(lambda cache, old: here(cache)[: cache.window + cache.n_sinks]),
        "positions are absolute": keeping(right, renumber=True),
        "positions are an int64 tensor": Replays(
            *(keeping(right, told=told) for told in (torch.Tensor.int, torch.Tensor.tolist, torch.Tensor.double))
        ),
        "a token in both counts stands there once": Replays(keeping(twice), keeping(twice, size=formula)),
        "no more than window + n_sinks are kept": Replays(
            keeping(lambda cache, old: here(cache)),
            keeping(lambda cache, old: here(cache), size=formula),
            keeping(late),
            keeping(chunk_whole),
            keeping(chunk_whole, size=formula),
        ),
        "the first n_sinks tokens ever, in whatever chunk": keeping(sinks_of_first_chunk),
        "the sinks come on top of the window": keeping(inside),
        "keys and values are kept together": keeping(right, values=lambda cache, kept: here(cache)[-len(kept) :]),
        "length counts tokens, not appends": keeping(right, length=lambda cache: len(cache.chunks)),
        "length is what was seen, size what is kept": Replays(
            keeping(right, length=lambda cache: len(right(cache))),
            keeping(right, size=lambda cache: cache.length_seen),
            keeping(right, size=lambda cache: cache.window + cache.n_sinks),
        ),
        "forget what is no longer kept: the cache still grows": Spotted(
            rules_systems.cache_grows, _Hoard, certain=True
        ),
        "bad sizes must be refused": Spotted(rules_systems.sizes_not_refused, _Lax, certain=True),
    },
)
