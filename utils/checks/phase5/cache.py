"""KVCache and forward_cached: keys and values that are kept, and a model that uses them."""

import torch

from utils import oracle
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase5 import PHASE, rules_cache

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


def refuses(name, wrong, init=ONE_LAYER, first=2, **options):
    """A case in which the second call must be refused and the third one answered as if it had not been."""
    return calls(name, append(0, first, init), wrong, append(0, 1, init), init=init, make=refusal, **options)


# ---- wrong ways ----------------------------------------------------------------------------------

_right = oracle.KVCache.append


class AppendsCounted(oracle.KVCache):
    """length is the number of appends."""

    count = 0

    def append(self, layer, k, v):
        self.count += 1
        return _right(self, layer, k, v)

    @property
    def length(self):
        return self.count


class TokensOfAllLayers(oracle.KVCache):
    @property
    def length(self):
        return sum(0 if table is None else table.shape[-2] for table in self._tables)


class LengthOf(oracle.KVCache):
    """length is that of one layer, or of the fullest."""

    which = staticmethod(max)

    @property
    def length(self):
        return self.which([0 if table is None else table.shape[-2] for table in self._tables])


class OfLayer0(LengthOf):
    which = staticmethod(lambda lengths: lengths[0])


def giving(change):
    """A wrong twin: change(self, layer, k_all, v_all) is what append returns."""
    return type(
        "WrongCache",
        (oracle.KVCache,),
        {"append": lambda self, layer, k, v: change(self, layer, *_right(self, layer, k, v))},
    )


def padded(self, layer, k, v):
    return tuple(torch.nn.functional.pad(part, (0, 0, 0, self._max_len - part.shape[2])) for part in (k, v))


class Overwrites(oracle.KVCache):
    def append(self, layer, k, v):
        if k.shape[-2] <= self._max_len:
            self._tables[layer] = None
        return _right(self, layer, k, v)


class OtherPlace(oracle.KVCache):
    """The parts are joined otherwise."""

    def join(self, old, new):
        return torch.cat((new, old), -2)

    def append(self, layer, k, v):
        old = self._tables[layer]
        _right(self, layer, k, v)
        if old is not None:
            self._tables[layer] = self.join(old, torch.stack((k, v)))
        return tuple(self._tables[layer].clone())


class AlongHeads(OtherPlace):
    def join(self, old, new):
        return torch.cat((old, new), 2)


class AlongBatch(OtherPlace):
    def join(self, old, new):
        return torch.cat((old, new), 1)


class OneTable(oracle.KVCache):
    """All layers in one."""

    def append(self, layer, k, v):
        return _right(self, 0, k, v)


class NoLimit(oracle.KVCache):
    def append(self, layer, k, v):
        limit, self._max_len = self._max_len, 1000
        try:
            return _right(self, layer, k, v)
        finally:
            self._max_len = limit


class OneTooMany(NoLimit):
    def append(self, layer, k, v):
        if self.length + k.shape[-2] > self._max_len + 1:
            return _right(self, layer, k, v)
        return super().append(layer, k, v)


class OneTooFew(oracle.KVCache):
    def __init__(self, n_layers, batch, n_kv_heads, max_len, d_head):
        super().__init__(n_layers, batch, n_kv_heads, max_len - 1, d_head)


class DropsTheOldest(NoLimit):
    def append(self, layer, k, v):
        super().append(layer, k, v)
        self._tables[layer] = self._tables[layer][..., -self._max_len :, :]
        return tuple(self._tables[layer].clone())


class AnyShape(oracle.KVCache):
    """The sizes of what comes are taken as they are, if they can be joined at all."""

    def append(self, layer, k, v):
        self._batch, self._heads, self._width = k.shape[0], k.shape[1], k.shape[-1]
        old = self._tables[layer]
        if old is not None and old.shape[:3] + old.shape[4:] != (2, *k.shape[:2], *k.shape[-1:]):
            self._tables[layer] = None
        return _right(self, layer, k, v if v.shape == k.shape else k)


class FromTheEnd(oracle.KVCache):
    def append(self, layer, k, v):
        return _right(self, layer % len(self._tables) if layer < 0 else layer, k, v)


class HeardBeforeRefused(oracle.KVCache):
    """The new rows are kept first and looked at afterwards."""

    def append(self, layer, k, v):
        try:
            return _right(self, layer, k, v)
        except ValueError:
            if layer in range(len(self._tables)) and k.shape == v.shape:
                table, new = self._tables[layer], torch.stack((k, v))
                if table is None or table.shape[:3] == new.shape[:3] and table.shape[4] == new.shape[4]:
                    self._tables[layer] = new if table is None else torch.cat((table, new), -2)
            raise


class KeepsReferences(oracle.KVCache):
    """What came in is kept itself."""

    def __init__(self, n_layers, batch, n_kv_heads, max_len, d_head):
        super().__init__(n_layers, batch, n_kv_heads, max_len, d_head)
        self.parts = [[] for _ in range(n_layers)]

    def append(self, layer, k, v):
        _right(self, layer, k, v)
        self.parts[layer].append((k, v))
        return tuple(torch.cat(part, 2) for part in zip(*self.parts[layer], strict=True))


class Shifting(oracle.KVCache):
    """One buffer for all answers, whose rows move when new ones come: the newest end at its end."""

    def append(self, layer, k, v):
        k_all, v_all = _right(self, layer, k, v)
        room = self.__dict__.setdefault("room", {})
        for name, part in (("k", k_all), ("v", v_all)):
            buffer = room.setdefault((layer, name), part.new_zeros(*part.shape[:2], self._max_len, part.shape[3]))
            buffer[:, :, -part.shape[2] :] = part
        return tuple(room[layer, name][:, :, -k_all.shape[2] :] for name in "kv")


class Truncates(oracle.KVCache):
    def truncate(self, length):
        if not 0 <= length <= self.length:
            raise ValueError("beyond the length")
        self.cut(length)

    def cut(self, length):
        """Only the first layer."""
        self._tables[0] = self._tables[0][..., :length, :]


class DropsTheFirst(Truncates):
    def cut(self, length):
        self._tables = [table[..., table.shape[-2] - length :, :] for table in self._tables]


class TakesAway(Truncates):
    def cut(self, length):
        """The argument is taken for the number of tokens to be taken away."""
        self._tables = [table[..., : max(table.shape[-2] - length, 0), :] for table in self._tables]


class NotTruncated(Truncates):
    def cut(self, length):
        pass


class TruncatesAnyway(oracle.KVCache):
    def truncate(self, length):
        self._tables = [table if table is None else table[..., :length, :] for table in self._tables]


class Reorders(oracle.KVCache):
    places = (0,)  # 0: keys, 1: values

    def reorder(self, rows):
        for table in self._tables:
            for place in self.places:
                table[place] = table[place][rows].clone()


class ReordersValues(Reorders):
    places = (1,)


class ReordersOneLayer(oracle.KVCache):
    def reorder(self, rows):
        self._tables[0] = self._tables[0][:, rows]


class ReordersBack(oracle.KVCache):
    def reorder(self, rows):
        for number, table in enumerate(self._tables):
            self._tables[number] = table.clone().index_copy_(1, rows, table)


class NotReordered(oracle.KVCache):
    def reorder(self, rows):
        pass


class DefaultDtype(oracle.KVCache):
    def append(self, layer, k, v):
        return tuple(part.to(torch.get_default_dtype()) for part in _right(self, layer, k, v))


class LengthIsCalled(oracle.KVCache):
    def length(self):
        return min(0 if table is None else table.shape[-2] for table in self._tables)

    def truncate(self, length):
        self._tables = [table if table is None else table[..., :length, :] for table in self._tables]


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
        calls("truncate beyond what all layers hold", *step(2), append(0, 2), truncate(3), make=refusal),
    ),
    mistakes={
        "length counts tokens, not appends": AppendsCounted,
        "length counts the tokens of one layer, not of all together": TokensOfAllLayers,
        "length is what every layer holds": Replays(LengthOf, OfLayer0),
        "length is read, not called: make it a property": Spotted(
            rules_cache.length_is_called, LengthIsCalled, certain=True
        ),
        "the padding is part of the answer": giving(padded),
        "the new tokens replaced the old ones": Overwrites,
        "oldest first": OtherPlace,
        "tokens are axis 2": Replays(AlongHeads, AlongBatch),
        "give all that this layer holds, not the new tokens alone": giving(
            lambda self, layer, k, v: (k[:, :, -1:], v[:, :, -1:])
        ),
        "keys first, then values": giving(lambda self, layer, k, v: (v, k)),
        "each layer has keys of its own": OneTable,
        "what does not fit into max_len is refused": Replays(NoLimit, DropsTheOldest, OneTooMany),
        "max_len tokens do fit": Spotted(rules_cache.refused_too_early, OneTooFew),
        "k and v of another shape are refused": AnyShape,
        "layers are counted from 0, and there is no layer −1": FromTheEnd,
        "a refused call changes nothing": Spotted(rules_cache.refused_call_was_heard, HeardBeforeRefused),
        "keep a copy: the caller may overwrite k and v": KeepsReferences,
        "an answer changed when more came in": Shifting,
        "truncate shortens every layer": Truncates,
        "truncate keeps the oldest tokens": DropsTheFirst,
        "truncate(length) says how many stay": TakesAway,
        "truncate left the tokens there": NotTruncated,
        "truncate cannot make the cache longer": TruncatesAnyway,
        "reorder picks rows of keys and values": Replays(Reorders, ReordersValues),
        "reorder picks rows in every layer": ReordersOneLayer,
        "row n is to be what row rows[n] was": Replays(ReordersBack, NotReordered),
        "the cache takes the dtype of what comes first": DefaultDtype,
    },
)
