"""Wrong twins of KVCache: each is right but for one thing."""

import torch

from utils import oracle

_right = oracle.KVCache.append


def _filled(table):
    return table is not None


def _held(table):
    return 0 if table is None else table.shape[-2]


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


class TruncatesBelow(oracle.KVCache):
    def truncate(self, length):
        if length >= 0:
            return super().truncate(length)
        self._tables = [table if table is None else table[..., : max(_held(table) + length, 0), :]
                        for table in self._tables]  # fmt: skip


class OneCount(oracle.KVCache):
    """One count of tokens for all layers: each append writes behind what came last, in whichever layer."""

    def append(self, layer, k, v):
        before = self._tables[layer]
        _right(self, layer, k, v)
        rows = torch.stack((k, v))
        start = max(map(_held, [*self._tables[:layer], before, *self._tables[layer + 1 :]]))
        room = rows.new_zeros(*rows.shape[:3], start, rows.shape[4])
        if before is not None:
            room[..., : _held(before), :] = before
        self._tables[layer] = torch.cat((room, rows), -2)
        return tuple(self._tables[layer].clone())


class ReordersOverItself(oracle.KVCache):
    def reorder(self, rows):
        for table in filter(_filled, self._tables):
            for place, row in enumerate(rows.tolist()):
                table[:, place] = table[:, row].clone()


class Reorders(oracle.KVCache):
    places = (0,)  # 0: keys, 1: values

    def reorder(self, rows):
        for table in filter(_filled, self._tables):
            for place in self.places:
                table[place] = table[place][rows].clone()


class ReordersValues(Reorders):
    places = (1,)


class ReordersNothingEmpty(oracle.KVCache):
    def reorder(self, rows):
        self._tables = [table[:, rows] for table in self._tables]


class ReordersOneLayer(oracle.KVCache):
    def reorder(self, rows):
        if _filled(self._tables[0]):
            self._tables[0] = self._tables[0][:, rows]


class ReordersBack(oracle.KVCache):
    def reorder(self, rows):
        for number, table in enumerate(self._tables):
            if _filled(table):
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
