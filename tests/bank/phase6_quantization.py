"""quantize, dequantize, pack_int4, unpack_int4: wrong solutions and unusual right ones."""

import numpy as np
import torch

from tests.bank import right, wrong

# ---------------------------------------------------------------- quantize


def quantizer(
    name, cut=torch.round, largest=lambda row: row.abs().max(), levels=lambda bits: 2 ** (bits - 1) - 1, zero=True
):
    """Row by row along the axis."""

    def quantize(w, bits, axis=None):
        if bits < 2 or bits > 8:
            raise ValueError("bits must be 2 to 8")
        if axis is None:
            scale = largest(w) / levels(bits)
            scale = scale if scale or not zero else torch.ones_like(scale)
            return cut(w / scale).to(torch.int8), scale
        q, scales = torch.empty(w.shape, dtype=torch.int8), []
        for index in range(w.shape[axis]):
            row = w.select(axis, index)
            scale = largest(row) / levels(bits)
            scale = torch.ones_like(scale) if zero and scale == 0 else scale
            q.select(axis, index).copy_(cut(row / scale).to(torch.int8))
            scales.append(scale)
        shape = [1] * w.dim()
        shape[axis] = -1
        return q, torch.stack(scales).view(shape)

    quantize.__name__ = name
    return quantize


for _name, _says, _parts in [
    ("floor", "round to nearest", dict(cut=torch.floor)),
    ("truncated", "round to nearest", dict(cut=torch.trunc)),
    ("positive_only", "negative weights count too", dict(largest=torch.max)),
    ("half_of_all", "128 does not fit: the largest integer is 127", dict(levels=lambda bits: 2 ** (bits - 1))),
    ("no_zero_rule", "a slice of zeros has scale 1", dict(zero=False, cut=lambda x: x.round().nan_to_num(0.0))),
    ("rms", None, dict(largest=lambda row: row.square().mean().sqrt(), cut=lambda x: x.round().clamp(-127, 127))),
    ("nan_rows", None, dict(zero=False)),
]:
    wrong("quantize", says=_says)(quantizer(_name, **_parts))

_right = quantizer("row_by_row")
right("quantize", why="a loop over the axis")(_right)


@wrong("quantize", says="one scale for each index of the axis")
def axis_ignored(w, bits, axis=None):
    q, scale = _right(w, bits)
    shape = [w.shape[d] if axis is not None and d == axis % w.dim() else 1 for d in range(w.dim())]
    return q, scale if axis is None else scale.repeat(shape)


@wrong("quantize", says="the axis is the one that keeps its scales")
def other_axis(w, bits, axis=None):
    if axis is None:
        return _right(w, bits)
    if not 2 <= bits <= 8:
        raise ValueError("bits")
    scale = w.abs().amax(dim=axis, keepdim=True) / (2 ** (bits - 1) - 1)
    scale = torch.where(scale == 0, 1.0, scale).to(w.dtype)
    return (w / scale).round().to(torch.int8), scale


@wrong("quantize", says="q is int8")
def stays_float(w, bits, axis=None):
    q, scale = _right(w, bits, axis)
    return q.to(w.dtype), scale


@wrong("quantize", says="bits outside 2 to 8 must be refused")
def any_bits(w, bits, axis=None):
    return _right(w, min(max(bits, 2), 8), axis)


@wrong("quantize")
def changes_w(w, bits, axis=None):
    q, scale = _right(w, bits, axis)
    w.copy_(q * scale)
    return q, scale


@wrong("quantize")
def scale_as_number(w, bits, axis=None):
    q, scale = _right(w, bits, axis)
    return q, scale.item() if axis is None else scale


@right("quantize", why="numpy inside")
def with_numpy(w, bits, axis=None):
    if bits not in (2, 3, 4, 5, 6, 7, 8):
        raise ValueError("bits")
    table = w.detach().numpy()
    over = None if axis is None else tuple(d for d in range(table.ndim) if d != axis % table.ndim)
    scale = np.abs(table).max(axis=over, keepdims=axis is not None) / np.array(2 ** (bits - 1) - 1, table.dtype)
    scale = np.where(scale == 0, np.array(1, table.dtype), scale)
    return torch.from_numpy(np.rint(table / scale).astype(np.int8)), torch.tensor(scale)


@right("quantize", why="multiplied by the inverse scale, max of max and −min")
def inverse(w, bits, axis=None):
    if bits < 2 or bits > 8:
        raise ValueError("bits")
    if axis is None:
        most = torch.maximum(w.max(), -w.min())
    else:
        moved = w.movedim(axis, 0).flatten(1) if w.dim() > 1 else w[:, None]
        most = torch.maximum(moved.amax(1), -moved.amin(1))
        most = most.view([-1 if d == axis % w.dim() else 1 for d in range(w.dim())])
    scale = most / (2 ** (bits - 1) - 1)
    scale = scale + (scale == 0)
    return (w * (1 / scale)).round().clamp(-127, 127).to(torch.int8), scale


@right("quantize", why="the nearest mark found by comparing with all marks")
def nearest_mark(w, bits, axis=None):
    q, scale = _right(w, bits, axis)
    top = 2 ** (bits - 1) - 1
    marks = torch.arange(-top, top + 1)
    return marks[((w / scale)[..., None] - marks).abs().argmin(-1)].to(torch.int8), scale


# ---------------------------------------------------------------- dequantize

for _name, _says, _obj in [
    ("integers", "convert before multiplying", lambda q, scale: (q * scale.to(torch.int8)).to(scale.dtype)),
    ("float32", "the result has the dtype of scale", lambda q, scale: q.float() * scale.float()),
    ("float64", "the result has the dtype of scale", lambda q, scale: q.double() * scale.double()),
    ("divides", "multiply by the scale", lambda q, scale: q.to(scale.dtype) / scale),
    ("average", "one scale is not the average of all", lambda q, scale: q.to(scale.dtype) * scale.mean()),
    ("rounded", None, lambda q, scale: (q.to(scale.dtype) * scale).round()),
    ("flat", None, lambda q, scale: q.to(scale.dtype) * scale.flatten()),
]:
    _obj.__name__ = _name
    wrong("dequantize", says=_says)(_obj)

for _name, _why, _obj in [
    ("promoted", "torch promotes int8 by itself", lambda q, scale: q * scale),
    ("type_as", "type_as", lambda q, scale: q.type_as(scale).mul(scale)),
    ("expanded", "the scale is expanded first", lambda q, scale: scale.expand(q.shape) * q.to(scale.dtype)),
    ("from_zeros", "filled", lambda q, scale: torch.zeros(q.shape, dtype=scale.dtype).copy_(q).mul_(scale)),
]:
    _obj.__name__ = _name
    right("dequantize", why=_why)(_obj)


# ---------------------------------------------------------------- pack_int4, unpack_int4


def packer(name, nibble=lambda x: x % 16, low=0, fill=0, refuse=True, join=lambda a, b: a + 16 * b, dtype=torch.uint8):
    def pack_int4(q):
        numbers = q.tolist() if q.dim() == 1 else None
        if numbers is None:
            return torch.stack([pack_int4(row) for row in q])
        if refuse and any(x < -8 or x > 7 for x in numbers):
            raise ValueError("int4")
        numbers += [fill] * (len(numbers) % 2)
        pairs = [(numbers[i + low], numbers[i + 1 - low]) for i in range(0, len(numbers), 2)]
        return torch.tensor([join(nibble(a), nibble(b)) for a, b in pairs]).to(dtype)

    pack_int4.__name__ = name
    return pack_int4


for _name, _says, _parts in [
    ("halves_exchanged", "even places go into the low half", dict(low=1)),
    ("sign_spills", "mask to four bits", dict(nibble=lambda x: x, join=lambda a, b: (a | (b << 4)) % 256)),
    ("padded_with_minus_one", "an odd end is padded with 0", dict(fill=-1)),
    ("plus_eight", "two's complement, not plus 8", dict(nibble=lambda x: (x + 8) % 16)),
    ("int8_bytes", "bytes are uint8", dict(join=lambda a, b: (a + 16 * b + 128) % 256 - 128, dtype=torch.int8)),
    ("never_refuses", "outside −8 to 7 must be refused", dict(refuse=False)),
    ("adds_one_bit", None, dict(join=lambda a, b: (a + 8 * b) % 256)),
]:
    wrong("pack_int4", says=_says)(packer(_name, **_parts))


@wrong("pack_int4", says="neighbours share a byte")
def first_and_second_half(q):
    if q.min() < -8 or q.max() > 7:
        raise ValueError("int4")
    q = torch.nn.functional.pad(q, (0, q.shape[-1] % 2)).int() & 15
    a, b = q.chunk(2, -1)
    return (a | b << 4).to(torch.uint8)


right("pack_int4", why="remainders, number by number")(packer("remainders"))
right("pack_int4", why="negative ones plus 16")(packer("plus_16", nibble=lambda x: x + 16 if x < 0 else x))


@right("pack_int4", why="numpy bytes")
def numpy_bytes(q):
    table = q.numpy()
    if table.min() < -8 or table.max() > 7:
        raise ValueError("int4")
    table = np.concatenate([table, np.zeros((*table.shape[:-1], table.shape[-1] % 2), np.int8)], -1)
    table = table.view(np.uint8) & 0x0F
    return torch.from_numpy((table[..., ::2] | (table[..., 1::2] << 4)).copy())


@right("pack_int4", why="a dot product with (1, 16)")
def dot(q):
    if not bool(((q >= -8) & (q <= 7)).all()):
        raise ValueError("int4")
    wide = torch.nn.functional.pad(q, (0, q.shape[-1] % 2)).long().remainder(16).unflatten(-1, (-1, 2))
    return (wide * torch.tensor([1, 16])).sum(-1).byte()


def unpacker(
    name,
    sign=lambda x: x - 16 if x >= 8 else x,
    first=lambda b: b % 16,
    second=lambda b: b // 16,
    cut=True,
    dtype=torch.int8,
):
    def unpack_int4(packed, n):
        if packed.dim() > 1:
            return torch.stack([unpack_int4(row, n) for row in packed])
        numbers = [sign(half(byte)) for byte in packed.tolist() for half in (first, second)]
        return torch.tensor(numbers[:n] if cut else numbers, dtype=dtype)

    unpack_int4.__name__ = name
    return unpack_int4


for _name, _says, _parts in [
    ("high_first", "the low half comes first", dict(first=lambda b: b // 16, second=lambda b: b % 16)),
    ("unsigned", "8 to 15 stand for negative numbers", dict(sign=lambda x: x)),
    ("eight_positive", "8 is negative, too", dict(sign=lambda x: x - 16 if x > 8 else x)),
    ("padding_left", "cut the padding off at n", dict(cut=False)),
    ("minus_eight", "two's complement, not minus 8", dict(sign=lambda x: x - 8)),
    ("int64", "what is unpacked is int8", dict(dtype=torch.int64)),
    ("low_twice", None, dict(second=lambda b: b % 16)),
]:
    wrong("unpack_int4", says=_says)(unpacker(_name, **_parts))


@wrong("unpack_int4", says="neighbours share a byte")
def lows_then_highs(packed, n):
    both = torch.cat([packed & 15, packed >> 4], -1).to(torch.int8)
    return (both - 16 * (both > 7).to(torch.int8))[..., :n]


right("unpack_int4", why="number by number")(unpacker("by_number"))
right("unpack_int4", why="xor 8, minus 8")(unpacker("xor", sign=lambda x: (x ^ 8) - 8))


@right("unpack_int4", why="a table of all 256 bytes")
def table_of_bytes(packed, n):
    table = torch.tensor([[(b % 16 ^ 8) - 8, (b // 16 ^ 8) - 8] for b in range(256)], dtype=torch.int8)
    return table[packed.long()].flatten(-2)[..., :n]


@right("unpack_int4", why="xor and a filled array")
def filled(packed, n):
    signed = packed.to(torch.int16)
    low = ((signed & 15) ^ 8) - 8
    high = ((signed >> 4) ^ 8) - 8
    out = torch.empty(*packed.shape[:-1], 2 * packed.shape[-1], dtype=torch.int8)
    out[..., 0::2], out[..., 1::2] = low, high
    return out[..., :n]
