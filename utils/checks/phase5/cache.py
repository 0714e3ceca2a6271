"""KVCache and forward_cached: keys and values that are kept, and a model that uses them."""

import torch

from utils import oracle
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase5 import PHASE, rules_cache
from utils.checks.phase5 import cache_wrong as wrong

SIZES = dict(n_layers=3, batch=2, n_kv_heads=4, max_len=7, d_head=5)
ONE_LAYER = SIZES | dict(n_layers=1)
LENGTH = dict(method="length")


def append(layer, t, sizes=SIZES, **other):
    """One append of t tokens; `other`: shapes of k or v that differ."""
    shape = (sizes["batch"], sizes["n_kv_heads"], t, sizes["d_head"])
    return dict(method="append", layer=layer, k=other.get("k", shape), v=other.get("v", shape))


def step(t, sizes=SIZES):
    """t tokens for every layer."""
    return [append(layer, t, sizes) for layer in range(sizes["n_layers"])]


def truncate(length):
    return dict(method="truncate", length=length)


def reorder(*rows):
    return dict(method="reorder", rows=torch.tensor(rows))


def calls(name, first, *more, init=SIZES, make=case, **options):
    return make(name, first, then=more, init=init, **options)


def with_lengths(*chunks):
    """Calls that fill every layer chunk by chunk, and read the length after each."""
    return [call for t in chunks for one in step(t) for call in (one, LENGTH)]


def refuses(name, bad, init=ONE_LAYER, first=2, **options):
    """A case in which the second call must be refused and the third one answered as if it had not been."""
    return calls(name, append(0, first, init), bad, append(0, 1, init), init=init, make=refusal, **options)


register(
    expected=oracle.KVCache,
    phase=PHASE,
    section="5.12",
    hint="one buffer per layer and kind: write behind what the layer holds, give the filled part, length is the least.",
    grad=False,
    bans=(),
    cases=(
        calls("the first tokens", append(0, 3)),
        calls("two layers", append(0, 3), append(1, 3)),
        calls("a second chunk of the same size", append(0, 2), append(0, 2), init=ONE_LAYER),
        calls("chunks of 3, 1 and 2 in three layers, length after each call", *with_lengths(3, 1, 2)),
        calls("length of an empty cache", LENGTH),
        calls("full to the last place", *step(4, ONE_LAYER), *step(3, ONE_LAYER), LENGTH, init=ONE_LAYER),
        calls("truncate, then append", *step(5), truncate(2), LENGTH, *step(1), LENGTH),
        calls("truncate to what is there, then to nothing", *step(2), truncate(2), truncate(0), LENGTH, *step(3)),
        calls(
            "truncate when one layer is ahead", *step(3), append(0, 2), LENGTH, truncate(2), append(0, 1), append(2, 3)
        ),
        calls("reorder, then append", *step(3), reorder(1, 0), *step(1)),
        calls("one row taken twice", *step(2), reorder(1, 1), *step(1)),
        calls(
            "reorder a batch of three",
            *step(3, SIZES | dict(batch=3)),
            reorder(2, 0, 1),
            *step(1, SIZES | dict(batch=3)),
            init=SIZES | dict(batch=3),
        ),
        calls("reorder before anything came", reorder(1, 0), *step(1), LENGTH),
        calls("earlier answers keep their values", *step(2), *step(1), *step(2), after="keep"),
        calls("the caller overwrites k and v afterwards", *step(2), *step(1), *step(2), after="spoil"),
        calls("float32 where the default is float64", *step(2), *step(1), dtype="float32", default_dtype="float64"),
        refuses("more than max_len", append(0, 6, ONE_LAYER)),
        refuses("one token too many", append(0, 1, ONE_LAYER), first=7),
        refuses("another batch", append(0, 1, ONE_LAYER, k=(3, 4, 1, 5), v=(3, 4, 1, 5))),
        refuses("another number of heads", append(0, 1, ONE_LAYER, k=(2, 3, 1, 5), v=(2, 3, 1, 5))),
        refuses("another d_head", append(0, 1, ONE_LAYER, k=(2, 4, 1, 6), v=(2, 4, 1, 6))),
        refuses("fewer values than keys", append(0, 1, ONE_LAYER, k=(2, 4, 2, 5))),
        refuses("tokens before heads", append(0, 1, ONE_LAYER, k=(2, 3, 4, 5), v=(2, 3, 4, 5))),
        refuses("no tokens", append(0, 0, ONE_LAYER)),
        refuses("three axes", append(0, 1, ONE_LAYER, k=(2, 4, 5), v=(2, 4, 5))),
        refuses("a layer too many", append(3, 1), SIZES),
        refuses("layer −1", append(-1, 1), SIZES),
        calls("truncate beyond the length", *step(2), truncate(3), *step(1), make=refusal),
        calls("truncate to −1", *step(2), truncate(-1), *step(1), make=refusal),
        calls("truncate beyond what all layers hold", *step(2), append(0, 2), truncate(3), make=refusal),
    ),
    mistakes={
        "length counts tokens, not appends": wrong.AppendsCounted,
        "length counts the tokens of one layer, not of all together": wrong.TokensOfAllLayers,
        "length is what every layer holds": Replays(wrong.LengthOf, wrong.OfLayer0),
        "length is read, not called: make it a property": Spotted(
            rules_cache.length_is_called, wrong.LengthIsCalled, certain=True
        ),
        "the padding is part of the answer": wrong.giving(wrong.padded),
        "the new tokens replaced the old ones": wrong.Overwrites,
        "oldest first": wrong.OtherPlace,
        "tokens are axis 2": Replays(wrong.AlongHeads, wrong.AlongBatch),
        "give all that this layer holds, not the new tokens alone": wrong.giving(
            lambda self, layer, k, v: (k[:, :, -1:], v[:, :, -1:])
        ),
        "keys first, then values": wrong.giving(lambda self, layer, k, v: (v, k)),
        "each layer has keys of its own": wrong.OneTable,
        "what does not fit into max_len is refused": Replays(wrong.NoLimit, wrong.DropsTheOldest, wrong.OneTooMany),
        "max_len tokens do fit": Spotted(rules_cache.refused_too_early, wrong.OneTooFew),
        "k and v of another shape are refused": wrong.AnyShape,
        "layers are counted from 0, and there is no layer −1": wrong.FromTheEnd,
        "a refused call changes nothing": Spotted(rules_cache.refused_call_was_heard, wrong.HeardBeforeRefused),
        "keep a copy: the caller may overwrite k and v": wrong.KeepsReferences,
        "an answer changed when more came in": wrong.Shifting,
        "truncate shortens every layer": wrong.Truncates,
        "truncate keeps the oldest tokens": wrong.DropsTheFirst,
        "truncate(length) says how many stay": wrong.TakesAway,
        "truncate left the tokens there": wrong.NotTruncated,
        "truncate: the length is not below 0": Spotted(
            rules_cache.truncated_below_zero, wrong.TruncatesBelow, also=(wrong.TruncatesBelow,), certain=True
        ),
        "truncate cannot make the cache longer": wrong.TruncatesAnyway,
        "each layer has a count of its own": wrong.OneCount,
        "reorder must not read rows that it has written over": wrong.ReordersOverItself,
        "reorder picks rows of keys and values": Replays(wrong.Reorders, wrong.ReordersValues),
        "reorder picks rows in every layer": wrong.ReordersOneLayer,
        "an empty cache, or layer, can be reordered, too": Spotted(
            rules_cache.empty_not_reordered, wrong.ReordersNothingEmpty, certain=True
        ),
        "row n is to be what row rows[n] was": Replays(wrong.ReordersBack, wrong.NotReordered),
        "the cache takes the dtype of what comes first": wrong.DefaultDtype,
    },
)
