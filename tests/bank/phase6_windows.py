"""sliding_window_mask, RollingKVCache: wrong solutions and unusual right ones."""

from collections import deque

import torch

from tests.bank import right, wrong

# ---------------------------------------------------------------- sliding_window_mask


def masker(name, visible, refuses=True, shift=lambda q_len, kv_len: kv_len - q_len):
    """A mask made entry by entry."""

    def sliding_window_mask(q_len, kv_len, window):
        if refuses and window < 1:
            raise ValueError("window must be at least 1")
        mask = torch.zeros(q_len, kv_len, dtype=torch.bool)
        for i in range(q_len):
            for j in range(kv_len):
                mask[i, j] = visible(i + shift(q_len, kv_len), j, window)
        return mask

    sliding_window_mask.__name__ = name
    return sliding_window_mask


for _name, _says, _visible in [
    ("one_more", "the window counts the token itself", lambda p, j, w: j <= p <= j + w),
    ("both_sides", "no token sees its future", lambda p, j, w: abs(p - j) < w),
    ("no_window", "the window was ignored", lambda p, j, w: j <= p),
    ("inverted", "True means may attend", lambda p, j, w: not (j <= p < j + w)),
    ("without_itself", None, lambda p, j, w: j < p < j + w),
    ("only_farther", None, lambda p, j, w: p - j >= w),
]:
    wrong("sliding_window_mask", says=_says)(masker(_name, _visible))

_right = masker("entry_by_entry", lambda p, j, w: j <= p < j + w)
wrong("sliding_window_mask", says="queries are the last of the keys: align to the end")(
    masker("at_the_start", lambda p, j, w: j <= p < j + w, shift=lambda q_len, kv_len: 0)
)
wrong("sliding_window_mask", says="a window below 1 must be refused")(
    masker("takes_any", lambda p, j, w: j <= p < j + w, refuses=False)
)


@wrong("sliding_window_mask")
def float_mask(q_len, kv_len, window):
    return _right(q_len, kv_len, window).float()


@wrong("sliding_window_mask")
def asserts(q_len, kv_len, window):
    assert window >= 1
    return _right(q_len, kv_len, window)


right("sliding_window_mask", why="entry by entry")(_right)


@right("sliding_window_mask", why="the difference of two triangles")
def two_triangles(q_len, kv_len, window):
    if window <= 0:
        raise ValueError("window")
    whole = torch.ones(q_len, kv_len)
    return (torch.tril(whole, kv_len - q_len) - torch.tril(whole, kv_len - q_len - window)).bool()


@right("sliding_window_mask", why="tril and triu")
def tril_triu(q_len, kv_len, window):
    if window < 1:
        raise ValueError("window")
    offset = kv_len - q_len
    return torch.ones(q_len, kv_len, dtype=torch.bool).tril(offset).triu(offset - window + 1)


@right("sliding_window_mask", why="cut out of a larger square")
def last_rows(q_len, kv_len, window):
    if window < 1:
        raise ValueError("window")
    n = max(q_len, kv_len)
    places = torch.arange(n)
    square = (places[:, None] >= places) & (places[:, None] - window < places)
    return square[n - q_len :, n - kv_len :]


# ---------------------------------------------------------------- RollingKVCache


class _Cache:
    """Index selection on what is kept; `chosen` says what stays."""

    def __init__(self, window, n_sinks=0):
        if window < 1 or n_sinks < 0:
            raise ValueError("window must be at least 1, n_sinks at least 0")
        self.window, self.n_sinks, self.seen = window, n_sinks, 0
        self.k = self.v = self.at = None

    def append(self, k, v):
        at = torch.arange(self.seen, self.seen + k.shape[2])
        self.seen += k.shape[2]
        if self.k is not None:
            k, v, at = torch.cat([self.k, k], 2), torch.cat([self.v, v], 2), torch.cat([self.at, at])
        keep = self.chosen(at)
        self.k, self.v, self.at = k[:, :, keep], v[:, :, keep], at[keep]
        return self.k, self.v, self.at

    def chosen(self, at):
        return ((at < self.n_sinks) | (at >= self.seen - self.window)).nonzero()[:, 0]

    @property
    def length(self):
        return self.seen

    @property
    def size(self):
        return 0 if self.at is None else len(self.at)


right("RollingKVCache", why="index selection")(_Cache)


@wrong("RollingKVCache", says="the sinks must stay")
class SinksPushedOut(_Cache):
    def chosen(self, at):
        return torch.arange(len(at))[-(self.window + self.n_sinks) :]


@wrong("RollingKVCache", says="the sinks must stay")
class NoSinks(_Cache):
    def chosen(self, at):
        return torch.arange(len(at))[-self.window :]


@wrong("RollingKVCache", says="the newest token stays")
class NewestEvicted(_Cache):
    def chosen(self, at):
        return torch.arange(len(at))[: self.window + self.n_sinks]


@wrong("RollingKVCache", says="positions are absolute")
class Renumbered(_Cache):
    def append(self, k, v):
        k, v, at = super().append(k, v)
        return k, v, torch.arange(len(at))


@wrong("RollingKVCache", says="no more than window + n_sinks are kept")
class KeepsAll(_Cache):
    def chosen(self, at):
        return torch.arange(len(at))


@wrong("RollingKVCache", says="length counts tokens, not appends")
class CountsAppends(_Cache):
    appends = 0

    def append(self, k, v):
        self.appends += 1
        return super().append(k, v)

    @property
    def length(self):
        return self.appends


@wrong("RollingKVCache", says="length is what was seen, size what is kept")
class LengthIsSize(_Cache):
    @property
    def length(self):
        return self.size


@wrong("RollingKVCache", says="bad sizes must be refused")
class TakesAnything(_Cache):
    def __init__(self, window, n_sinks=0):
        self.window, self.n_sinks, self.seen = window, n_sinks, 0
        self.k = self.v = self.at = None


@wrong("RollingKVCache", says="a token in both counts stands there once")
class Twice(_Cache):
    def __init__(self, window, n_sinks=0):
        super().__init__(window, n_sinks)
        self.all_k, self.all_v = [], []

    def append(self, k, v):
        self.all_k.append(k)
        self.all_v.append(v)
        self.seen += k.shape[2]
        at = torch.arange(self.seen)
        at = torch.cat([at[: self.n_sinks], at[-self.window :]])
        self.at = at.unique()
        return torch.cat(self.all_k, 2)[:, :, at], torch.cat(self.all_v, 2)[:, :, at], at


@wrong("RollingKVCache")
class FloatPositions(_Cache):
    def append(self, k, v):
        k, v, at = super().append(k, v)
        return k, v, at.float()


@wrong("RollingKVCache")
class Transposed(_Cache):
    def append(self, k, v):
        return super().append(k.transpose(1, 2), v.transpose(1, 2))


@right("RollingKVCache", why="two deques of single tokens")
class Deques:
    def __init__(self, window, n_sinks=0):
        if window < 1 or n_sinks < 0:
            raise ValueError("window")
        self.sinks, self.n_sinks, self.recent, self.length = [], n_sinks, deque(maxlen=window), 0

    def append(self, k, v):
        for key, value in zip(k.unbind(2), v.unbind(2), strict=True):
            token = (self.length, key, value)
            if self.length < self.n_sinks:
                self.sinks.append(token)
            self.recent.append(token)
            self.length += 1
        at, keys, values = zip(*self.kept(), strict=True)
        return torch.stack(keys, 2), torch.stack(values, 2), torch.tensor(at)

    def kept(self):
        first = self.recent[0][0] if self.recent else 0
        return [token for token in self.sinks if token[0] < first] + list(self.recent)

    @property
    def size(self):
        return len(self.kept())


@wrong("RollingKVCache", says="forget what is no longer kept: the cache still grows")
class CutOnTheWayOut:
    def __init__(self, window, n_sinks=0):
        if not (window >= 1 and n_sinks >= 0):
            raise ValueError("bad window")
        self.window, self.n_sinks, self.k, self.v = window, n_sinks, [], []

    def append(self, k, v):
        self.k += list(k.unbind(2))
        self.v += list(v.unbind(2))
        n = len(self.k)
        at = [i for i in range(n) if i < self.n_sinks or i >= n - self.window]
        return torch.stack([self.k[i] for i in at], 2), torch.stack([self.v[i] for i in at], 2), torch.tensor(at)

    @property
    def length(self):
        return len(self.k)

    @property
    def size(self):
        return min(self.length, self.window + self.n_sinks)


@right("RollingKVCache", why="a ring buffer, put in order")
class Ring:
    def __init__(self, window, n_sinks=0):
        if window < 1 or n_sinks < 0:
            raise ValueError("window")
        self.window, self.n_sinks, self.length, self.store = window, n_sinks, 0, {}

    def append(self, k, v):
        for t in range(k.shape[2]):
            place = self.length if self.length < self.n_sinks else (self.length - self.n_sinks) % self.window
            slot = ("sink", place) if self.length < self.n_sinks else ("ring", place)
            self.store[slot] = (self.length, k[:, :, t : t + 1], v[:, :, t : t + 1])
            self.length += 1
        at, keys, values = zip(*sorted(self.store.values(), key=lambda token: token[0]), strict=True)
        return torch.cat(keys, 2), torch.cat(values, 2), torch.tensor(at)

    size = property(lambda self: len(self.store))
