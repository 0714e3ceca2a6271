"""KVCache: wrong solutions and unusual right ones."""

import torch

from tests.bank import right, wrong


class Buffers:
    """Right as it stands, with buffers made at the first append; each wrong solution changes one part."""

    def __init__(self, n_layers, batch, n_kv_heads, max_len, d_head):
        self.shape, self.n_layers = (batch, n_kv_heads, max_len, d_head), n_layers
        self.k, self.v, self.filled = [None] * n_layers, [None] * n_layers, [0] * n_layers

    @property
    def length(self):
        return min(self.filled)

    def look(self, layer, k, v):
        if not 0 <= layer < self.n_layers:
            raise ValueError("no such layer")
        batch, heads, max_len, d_head = self.shape
        if k.ndim != 4 or k.shape != v.shape or k.shape[2] < 1:
            raise ValueError("shape")
        if (k.shape[0], k.shape[1], k.shape[3]) != (batch, heads, d_head):
            raise ValueError("shape")
        if self.filled[layer] + k.shape[2] > max_len:
            raise ValueError("max_len")

    def append(self, layer, k, v):
        self.look(layer, k, v)
        if self.k[layer] is None:
            self.k[layer], self.v[layer] = k.new_zeros(self.shape), v.new_zeros(self.shape)
        start, end = self.filled[layer], self.filled[layer] + k.shape[2]
        self.k[layer][:, :, start:end], self.v[layer][:, :, start:end] = k, v
        self.filled[layer] = end
        return self.answer(layer, end)

    def answer(self, layer, end):
        return self.k[layer][:, :, :end], self.v[layer][:, :, :end]

    def truncate(self, length):
        if length < 0 or length > self.length:
            raise ValueError("length")
        self.filled = [length] * self.n_layers

    def reorder(self, rows):
        self.k = [part if part is None else part[rows] for part in self.k]
        self.v = [part if part is None else part[rows] for part in self.v]


@wrong("KVCache", says="the padding is part of the answer")
class WholeBuffer(Buffers):
    def answer(self, layer, end):
        return self.k[layer], self.v[layer]


@wrong("KVCache", says="length counts tokens, not appends")
class Appends(Buffers):
    count = 0

    def append(self, layer, k, v):
        self.count += 1
        return super().append(layer, k, v)

    @property
    def length(self):
        return self.count


@wrong("KVCache", says="length is what every layer holds")
class MovesWithTheFirstLayer(Buffers):
    @property
    def length(self):
        return self.filled[0]

    def truncate(self, length):
        if length > min(self.filled):
            raise ValueError("length")
        self.filled = [length] * self.n_layers


@wrong("KVCache", says="length is read, not called: make it a property")
class LengthMethod(Buffers):
    def length(self):
        return min(self.filled)

    def truncate(self, length):
        if length > min(self.filled):
            raise ValueError("length")
        self.filled = [length] * self.n_layers


@wrong("KVCache", says="the new tokens replaced the old ones")
class FromTheStart(Buffers):
    def append(self, layer, k, v):
        self.filled[layer] = 0
        return super().append(layer, k, v)


@wrong("KVCache", says="a refused call changes nothing")
class LooksTooLate(Buffers):
    def append(self, layer, k, v):
        self.filled[layer] += k.shape[2]
        if self.filled[layer] > self.shape[2]:
            raise ValueError("full")
        self.filled[layer] -= k.shape[2]
        return super().append(layer, k, v)


@wrong("KVCache", says="layers are counted from 0, and there is no layer −1")
class LastLayerByMinusOne(Buffers):
    def append(self, layer, k, v):
        return super().append(layer % self.n_layers if layer < self.n_layers else layer, k, v)


@wrong("KVCache", says="max_len tokens do fit")
class OneShort(Buffers):
    def look(self, layer, k, v):
        super().look(layer, k, v)
        if self.filled[layer] + k.shape[2] == self.shape[2]:
            raise ValueError("max_len")


@wrong("KVCache")
class AssertsShapes(Buffers):
    def look(self, layer, k, v):
        assert 0 <= layer < self.n_layers and k.shape == v.shape
        assert k.shape[:2] == self.shape[:2] and k.shape[3] == self.shape[3]
        assert 0 < k.shape[2] <= self.shape[2] - self.filled[layer]


@wrong("KVCache", says="reorder picks rows of keys and values")
class KeysOnly(Buffers):
    def reorder(self, rows):
        self.k = [part if part is None else part[rows] for part in self.k]


@wrong("KVCache", says="truncate cannot make the cache longer")
class TruncatesUpwards(Buffers):
    def truncate(self, length):
        self.filled = [min(length, filled) for filled in self.filled]


@wrong("KVCache")
class DefaultFloats(Buffers):
    def append(self, layer, k, v):
        self.look(layer, k, v)
        if self.k[layer] is None:
            self.k[layer], self.v[layer] = torch.zeros(self.shape), torch.zeros(self.shape)
        return super().append(layer, k, v)


@wrong("KVCache", says="what does not fit into max_len is refused")
class Forgets(Buffers):
    """The oldest tokens make room."""

    def append(self, layer, k, v):
        room, t = self.shape[2], k.shape[2]
        if k.ndim == 4 and k.shape == v.shape and t <= room < self.filled[layer] + t:
            gone = self.filled[layer] + t - room
            for part in (self.k, self.v):
                part[layer] = part[layer].roll(-gone, 2)
            self.filled[layer] -= gone
        return super().append(layer, k, v)


right("KVCache", why="buffers made at the first append, views given out")(Buffers)


@right("KVCache", why="a list of chunks per layer, joined on every call")
class Chunks(Buffers):
    def __init__(self, n_layers, batch, n_kv_heads, max_len, d_head):
        super().__init__(n_layers, batch, n_kv_heads, max_len, d_head)
        self.chunks = [[] for _ in range(n_layers)]

    def append(self, layer, k, v):
        self.look(layer, k, v)
        self.chunks[layer].append((k.clone(), v.clone()))
        self.filled[layer] += k.shape[2]
        return tuple(torch.cat(parts, 2) for parts in zip(*self.chunks[layer], strict=True))

    def truncate(self, length):
        super().truncate(length)
        for number, chunks in enumerate(self.chunks):
            if chunks:
                joined = (torch.cat(parts, 2)[:, :, :length] for parts in zip(*chunks, strict=True))
                self.chunks[number] = [tuple(joined)]

    def reorder(self, rows):
        self.chunks = [[(k[rows], v[rows]) for k, v in chunks] for chunks in self.chunks]


@right("KVCache", why="one tensor for all layers, keys and values")
class OneTensor(Buffers):
    table = None

    def append(self, layer, k, v):
        self.look(layer, k, v)
        if self.table is None:
            self.table = torch.empty((self.n_layers, 2, *self.shape), dtype=k.dtype, device=k.device)
        start = self.filled[layer]
        self.filled[layer] += k.shape[2]
        self.table[layer, :, :, :, start : self.filled[layer]] = torch.stack((k, v))
        return self.table[layer, :, :, :, : self.filled[layer]].unbind(0)

    def reorder(self, rows):
        if self.table is not None:
            self.table = self.table.index_select(2, rows)


@right("KVCache", why="token by token, tokens first; the length is kept and moves with the last layer")
class TokenByToken(Buffers):
    def __init__(self, n_layers, batch, n_kv_heads, max_len, d_head):
        super().__init__(n_layers, batch, n_kv_heads, max_len, d_head)
        self.rows = {layer: [] for layer in range(n_layers)}

    def append(self, layer, k, v):
        self.look(layer, k, v)
        for place in range(k.shape[2]):
            self.rows[layer].append(torch.stack((k[:, :, place], v[:, :, place])))
        self.filled[layer] = len(self.rows[layer])
        both = torch.stack(self.rows[layer], 3)
        return both[0], both[1]

    def truncate(self, length):
        super().truncate(length)
        for rows in self.rows.values():
            del rows[length:]

    def reorder(self, rows):
        order = rows.tolist()
        self.rows = {layer: [part[:, order] for part in parts] for layer, parts in self.rows.items()}
