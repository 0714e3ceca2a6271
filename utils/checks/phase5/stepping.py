"""forward_cached: a model that is fed only what is new."""

import torch

from utils import oracle
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase5 import PHASE, rules_cache
from utils.observe.codec import Fixture

WORDS = torch.tensor([[3, 7, 1, 1, 10, 4, 0, 8, 2], [5, 2, 9, 6, 3, 3, 8, 1, 4]])  # ids below 11, up to max_len
PAIRS = dict(d_model=20, n_heads=4, n_kv_heads=2)  # two query heads for each head of keys


def feed(*chunks, words=WORDS, cuts=(), start=0, cache="", **options):
    """One call per chunk, the words handed over in order; `cuts`: lengths the cache is cut to before its n-th call."""
    model = Fixture("small_model", options)
    heads = options.get("n_kv_heads") or options.get("n_heads", 3)
    sizes = dict(n_layers=options.get("n_layers", 3), n_kv_heads=heads)
    store = Fixture("cache", sizes | dict(cuts=list(cuts), name=cache))
    calls = []
    for size, cut in zip(chunks, [*cuts, *[None] * len(chunks)], strict=False):
        start = start if cut is None else cut
        calls.append(dict(model=model, tokens=words[:, start : start + size].clone(), cache=store))
        start += size
    return calls


def fed(name, *chunks, then=(), mutates="", dtype="float64", kind="plain", **how):
    first, *more = feed(*chunks, **how)
    return case(name, first, then=(*more, *then), grad=False, mutates=mutates, dtype=dtype, kind=kind)


# ---- wrong ways ----------------------------------------------------------------------------------


def seen_to_the_end(t, total):
    return torch.arange(total - t, total)[:, None] >= torch.arange(total)


def wrong(**ways):
    """A wrong twin, `ways` replacing steps of the right one."""
    way = {
        "offset": lambda start: start,
        "seen": seen_to_the_end,
        "source": lambda block, x, inside: inside,  # what keys and values are made of
        "kept": lambda cache, layer, k, v: cache.append(layer, k, v),
        "spread": lambda part, times: part.repeat_interleave(times, 1),
        "scale": lambda d_head: d_head**-0.5,
        "first": lambda config: config.norm_first,
        "head": lambda model, x: model.head(x),
        "ffn": lambda block, x: block.ffn(x),
        "add": lambda x, branch: x + branch,
        "out": lambda attention, mixed: attention.w_o(mixed),
        "heads": lambda part, d_head: part.unflatten(-1, (-1, d_head)).transpose(1, 2),
    } | ways

    def forward_cached(model, tokens, cache):
        x = model.embed(tokens, offset=way["offset"](cache.length))
        first = way["first"](model.config)
        for layer, block in enumerate(model.blocks):
            inside = block.norm1(x) if first else x
            branch = _attend(way, block.attention, inside, way["source"](block, x, inside), cache, layer)
            x = way["add"](x, branch) if first else block.norm1(way["add"](x, branch))
            branch = way["ffn"](block, block.norm2(x) if first else x)
            x = way["add"](x, branch) if first else block.norm2(way["add"](x, branch))
        return way["head"](model, x)

    return forward_cached


def _attend(way, attention, x, source, cache, layer):
    d_head, n_heads = x.shape[-1] // attention.n_heads, attention.n_heads
    pairs = ((attention.w_q, x), (attention.w_k, source), (attention.w_v, source))
    q, k, v = (way["heads"](w(part), d_head) for w, part in pairs)
    k, v = (way["spread"](part, n_heads // part.shape[1]) for part in way["kept"](cache, layer, k, v))
    scores = (q @ k.mT * way["scale"](d_head)).masked_fill(~way["seen"](q.shape[2], k.shape[2]), float("-inf"))
    return way["out"](attention, (scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def copied_first(cache, layer, k, v):
    """As many heads of keys as of queries go into the cache: to the model's own there is one head too many."""
    return cache.append(layer, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1))


def length_after_append(model, tokens, cache):
    """The mask is asked for when the last layer's keys are in: cache.length has grown by then."""
    way = dict(seen=lambda t, total: seen_to_the_end(t, cache.length + t))
    return wrong(**way)(model, tokens, cache)


def new_only(cache, layer, k, v):
    cache.append(layer, k, v)
    return k, v


def twice(cache, layer, k, v):
    cache.append(layer, k, v)
    return cache.append(layer, k, v)


def everything_again(model, tokens, cache):
    """Right logits, but the tokens are remembered and all of them embedded."""
    known = cache.__dict__.setdefault("known", [])
    known.append(tokens)
    model.embed(torch.cat(known[:-1], 1)) if known[1:] else None
    return oracle.forward_cached(model, tokens, cache)


def last_only(model, tokens, cache):
    return oracle.forward_cached(model, tokens, cache)[:, -1:]


register(
    expected=oracle.forward_cached,
    phase=PHASE,
    section="5.13",
    hint="embed at offset cache.length; append k and v in each block; a new query sees all keys up to its own place.",
    grad=False,
    cases=(
        fed("eight tokens at once", 8),
        fed("five tokens, then one by one", 5, 1, 1, n_layers=2),
        fed("chunks of 3, 3 and 2", 3, 3, 2, n_layers=2),
        fed("post-norm, chunks of 3, 3 and 2", 3, 3, 2, norm_first=False, seed=1, n_layers=2),
        fed("one head of keys for all queries", 3, 3, 2, n_kv_heads=1, seed=2, n_layers=2),
        fed("grouped heads, post-norm", 3, 3, 2, norm_first=False, seed=3, n_layers=2, **PAIRS),
        fed("an output layer of its own", 4, 2, tied=False, seed=4, n_layers=2),
        fed("one token, one sentence", 1, 1, words=WORDS[:1]),
        fed("up to max_len", 8, 1, n_layers=1),
        fed("a fresh cache begins at 0", 5, n_layers=2, then=feed(3, 2, n_layers=2, cache="another")),
        fed("cut back to 4, then other words", 5, 2, 2, words=WORDS.flip(1), cuts=(None, None, 4), n_layers=2),
        fed("what is in the cache afterwards", 3, 2, n_layers=2, mutates="cache"),
        fed("tokens fed to the model", 3, 3, 2, n_layers=1, counts=True, mutates="model"),
        fed("float32", 3, 2, n_layers=2, dtype="float32"),
    ),
    mistakes={
        "a chunk must see the whole cache": wrong(
            seen=lambda t, total: torch.arange(t)[:, None] >= torch.arange(total)
        ),
        "the cache was filled, but not read": wrong(kept=new_only, seen=seen_to_the_end),
        "within a chunk, a token must not see what comes after it": wrong(
            seen=lambda t, total: torch.ones(t, total, dtype=torch.bool)
        ),
        "the offset was lost": Replays(wrong(offset=lambda start: 0), wrong(offset=lambda start: max(start - 1, 0))),
        "keys and values are made of the normed x": wrong(source=lambda block, x, inside: x),
        "each layer has its own place in the cache": wrong(kept=lambda cache, layer, k, v: cache.append(0, k, v)),
        "each token belongs into the cache once": wrong(kept=twice),
        "give logits for every new token": last_only,
        "norm_first says where the norms stand": Replays(
            wrong(first=lambda config: True), wrong(first=lambda config: False)
        ),
        "query heads side by side share their keys": wrong(spread=lambda part, times: part.repeat(1, times, 1, 1)),
        "scores are divided by the root of d_head": wrong(scale=lambda d_head: 1.0),
        "the last norm is part of the head": wrong(head=lambda model, x: model.output(x)),
        "the feed-forward layer is missing": wrong(ffn=lambda block, x: 0 * x),
        "keys and values go into the cache before they are copied for their query heads": Spotted(
            rules_cache.too_many_heads, wrong(kept=copied_first), certain=True
        ),
        "read cache.length once, before the first append": Spotted(
            rules_cache.mask_off(1), length_after_append, certain=True
        ),
        "the mask has a column for each key, the old and the new ones": Spotted(
            rules_cache.mask_off(-1), wrong(seen=lambda t, total: seen_to_the_end(t, total - t)), certain=True
        ),
        "what attention and the feed-forward layer give is added to x": wrong(add=lambda x, branch: branch),
        "w_o comes after the heads": wrong(out=lambda attention, mixed: mixed),
        "to split heads, cut the last axis, then move it forward": wrong(
            heads=lambda part, d_head: part.reshape(len(part), -1, part.shape[1], d_head)
        ),
        "tokens fed again": Spotted(rules_cache.fed_again, everything_again, certain=True),
    },
)
