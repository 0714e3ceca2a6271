"""quantize, dequantize, QuantLinear."""

import torch
import torch.nn.functional as F
from torch import nn

from utils import oracle
from utils.checks.draw import given, normal
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase6 import PHASE, rules_systems
from utils.observe.codec import Fixture


def rounding(
    rounded=torch.round,
    size=lambda w, **over: w.abs().amax(**over),
    most=lambda bits: 2 ** (bits - 1) - 1,
    zero=1.0,
    over=lambda axis, dims: tuple(dim for dim in range(dims) if dim != axis % dims),
    stored=lambda q: q.to(torch.int8),
):
    """A wrong twin in its parts."""

    def quantize(w, bits, axis=None):
        if not 2 <= bits <= 8:
            raise ValueError("bits")
        dims = tuple(range(w.dim())) if axis is None else over(axis, w.dim())
        scale = size(w, dim=dims, keepdim=axis is not None) / most(bits)
        scale = torch.where(scale == 0, torch.full_like(scale, zero), scale)
        return stored(rounded(w / scale)), scale

    return quantize


def one_scale(w, bits, axis=None):
    q, scale = oracle.quantize(w, bits)
    if axis is None:
        return q, scale
    return q, scale.expand([w.shape[axis] if dim == axis % w.dim() else 1 for dim in range(w.dim())]).clone()


def any_bits(w, bits, axis=None):
    bits = max(2, min(bits, 8))
    return oracle.quantize(w, bits, axis)


def negative_axis(w, bits, axis=None):
    """No axis is equal to a negative one: all are gone over, and sizes stay."""
    if axis is None or axis >= 0:
        return oracle.quantize(w, bits, axis)
    q, scale = oracle.quantize(w, bits)
    return q, scale.reshape([1] * w.dim())


def bare_scale(w, bits, axis=None):
    q, scale = oracle.quantize(w, bits, axis)
    return q, scale.flatten() if axis is not None else scale


def float_scale(w, bits, axis=None):
    q, scale = oracle.quantize(w, bits, axis)
    return q, scale.float()


def wide(w, bits, axis=None):
    q, scale = oracle.quantize(w, bits, axis)
    return q.to(torch.int64), scale


def zero_point(w, bits, axis=None):
    """From the least to the largest entry, as asymmetric quantization has it."""
    q, scale = oracle.quantize(w - (w.amax() + w.amin()) / 2, bits, axis)
    return q, scale


def special(w=(3, 5), zero=None, negative=None):
    """Normal numbers with a row of zeros and a row of negative ones."""

    def draw(generator, others):
        table = torch.randn(w, generator=generator, dtype=torch.float64) * 1.3
        if negative is not None:
            table[negative] = -0.2 - table[negative].abs()
        if zero is not None:
            table[zero] = 0.0
        return table

    return given(draw)


def reduce(name, bits, axis=None, w=(3, 5), **options):
    args = dict(w=normal(*w) if isinstance(w, tuple) else w, bits=bits)
    return case(name, args if axis is None else args | dict(axis=axis), **options)


register(
    expected=oracle.quantize,
    phase=PHASE,
    section="6.14",
    hint="scale = largest |w| / (2^(bits−1) − 1), q = round(w / scale) as int8; with an axis, a scale for each index.",
    grad=False,
    cases=(
        reduce("8 bits, the whole tensor", 8),
        reduce("4 bits, a scale for each row", 4, axis=0),
        reduce("3 bits, a scale for each column", 3, axis=1),
        reduce("8 bits, the last axis", 8, axis=-1),
        reduce("5 bits, a middle axis", 5, axis=1, w=(2, 3, 4)),
        reduce("2 bits", 2, axis=0),
        reduce("a row of zeros and a negative one", 4, axis=0, w=special(zero=0, negative=1)),
        reduce("negative numbers only", 8, w=special(negative=slice(None))),
        reduce("8 bits, one axis", 8, w=(7,)),
        reduce("nothing but zeros", 4, w=special(zero=slice(None)), kind="edge"),
        refusal("1 bit", dict(w=(3, 5), bits=1)),
        refusal("9 bits", dict(w=(3, 5), bits=9)),
    ),
    mistakes={
        "round to nearest": Replays(rounding(torch.floor), rounding(torch.trunc), rounding(torch.ceil)),
        "negative weights count too": rounding(size=lambda w, **over: w.amax(**over)),
        "one scale for each index of the axis": one_scale,
        "axis 0 is an axis, too: `if axis is not None`": lambda w, bits, axis=None: oracle.quantize(
            w, bits, axis or None
        ),
        "w ≈ q · scale: the scale is one step, not how many": lambda w, bits, axis=None: (
            oracle.quantize(w, bits, axis)[0],
            1 / oracle.quantize(w, bits, axis)[1],
        ),
        "the axis is the one that keeps its scales": rounding(over=lambda axis, dims: (axis % dims,)),
        "a slice of zeros has scale 1": Replays(
            rounding(zero=0.0, stored=lambda q: q.nan_to_num(0.0).to(torch.int8)),
            rounding(zero=1e-8),
            rounding(zero=1e-12),
        ),
        "128 does not fit: the largest integer is 127": Replays(
            rounding(most=lambda bits: 2 ** (bits - 1), stored=lambda q: q.to(torch.int64).to(torch.int8)),
            rounding(most=lambda bits: 2 ** (bits - 1)),
            rounding(most=lambda bits: 2 ** (bits - 1), stored=lambda q: q.clamp(-128, 127).to(torch.int8)),
            rounding(most=lambda bits: 2 ** (bits - 1), stored=lambda q: q.clamp(max=127).to(torch.int8)),
            rounding(most=lambda bits: 2**bits - 1, stored=lambda q: q.to(torch.int64).to(torch.int8)),
        ),
        "the scale keeps size 1 on the other axes": bare_scale,
        "without an axis the scale has no axes": lambda w, bits, axis=None: (
            oracle.quantize(w, bits, axis)[0],
            oracle.quantize(w, bits, axis)[1].reshape([1] * w.dim())
            if axis is None
            else oracle.quantize(w, bits, axis)[1],
        ),
        "a negative axis counts from the end": negative_axis,
        "the scale has the dtype of w": float_scale,
        "q is int8": Replays(wide, rounding(stored=lambda q: q)),
        "symmetric: 0 stays 0": zero_point,
        "bits outside 2 to 8 must be refused": any_bits,
    },
)


def integers(*shape, low=-127, high=127):
    return given(lambda generator, others: torch.randint(low, high + 1, shape, generator=generator, dtype=torch.int8))


def scales(*shape):
    return given(lambda generator, others: 0.01 + torch.rand(shape, generator=generator, dtype=torch.float64))


def back(name, q, scale, **options):
    return case(name, dict(q=q, scale=scale), **options)


register(
    expected=oracle.dequantize,
    phase=PHASE,
    section="6.14",
    hint="q.to(scale.dtype) * scale",
    grad=False,
    cases=(
        back("one scale", integers(3, 5), scales()),
        back("a scale for each row", integers(3, 5), scales(3, 1)),
        back("a scale for each column, 4 bits", integers(3, 5, low=-7, high=7), scales(1, 5)),
        back("rows of a square", integers(4, 4), scales(4, 1)),
        back("three axes", integers(2, 3, 4), scales(1, 3, 1)),
        back("float32", integers(3, 5), scales(3, 1), dtype="float32"),
    ),
    mistakes={
        "convert before multiplying": Replays(
            lambda q, scale: (q * scale.to(torch.int8)).to(scale.dtype),
            lambda q, scale: q * scale.round().to(torch.int8),
            lambda q, scale: (q.to(scale.dtype) * scale).to(torch.int8),
        ),
        "the result has the dtype of scale": Replays(
            lambda q, scale: q.float() * scale.float(),
            lambda q, scale: q.double() * scale.double(),
            lambda q, scale: q.float() * scale,
            lambda q, scale: q.to(torch.get_default_dtype()) * scale,
        ),
        "multiply by the scale": lambda q, scale: q.to(scale.dtype) / scale,
        "each scale belongs to its own row": lambda q, scale: (
            oracle.dequantize(q, scale.reshape(scale.shape[::-1]))
            if q.dim() == 2 and scale.dim() == 2 and q.shape[0] == q.shape[1]
            else oracle.dequantize(q, scale)
        ),
        "one scale is not the average of all": lambda q, scale: q.to(scale.dtype) * scale.mean(),
    },
)


# ---- QuantLinear -----------------------------------------------------------------------------------


class _Linear(oracle.QuantLinear):
    """A wrong twin in its parts; as it stands it is the right one."""

    axis = 0

    def __init__(self, linear, bits=8):
        super().__init__(linear, bits)
        self.q, self.scale = oracle.quantize(linear.weight.detach(), bits, axis=self.axis)

    def forward(self, x):
        out = x @ oracle.dequantize(self.q, self.scale).T
        return out if self.bias is None else self.with_bias(out)

    def with_bias(self, out):
        return out + self.bias


def wrong(**parts):
    return type("Wrong", (_Linear,), parts)


class _Copy(_Linear):
    def __init__(self, linear, bits=8):
        super().__init__(linear, bits)
        self.dequantised = oracle.dequantize(self.q, self.scale)


class _Original(_Linear):
    def __init__(self, linear, bits=8):
        super().__init__(linear, bits)
        self.original = [linear]


class _Parameters(_Linear):
    def __init__(self, linear, bits=8):
        super().__init__(linear, bits)
        bias = self.bias
        del self.scale, self.bias
        self.scale = nn.Parameter(oracle.quantize(linear.weight.detach(), bits, axis=0)[1])
        self.bias = None if bias is None else nn.Parameter(bias)


class _Whole(_Linear):
    def __init__(self, linear, bits=8):
        super().__init__(linear, bits)
        self.weight = nn.Parameter(oracle.dequantize(self.q, self.scale))


def storing(store):
    """The right layer, its three tensors kept by store(self, q, scale, bias)."""

    class Wrong(nn.Module):
        def __init__(self, linear, bits=8):
            super().__init__()
            right = oracle.QuantLinear(linear, bits)
            self.kept = lambda: (self.q, self.scale, self.bias)
            store(self, right.q, right.scale, right.bias)

        def forward(self, x):
            q, scale, bias = self.kept()
            return F.linear(
                x, q.to(x.dtype) * scale.reshape(-1, 1).to(x.dtype), None if bias is None else bias.to(x.dtype)
            )

    return Wrong


def as_attributes(self, q, scale, bias):
    self.q, self.scale, self.bias = q, scale, bias


def under_other_names(self, q, scale, bias):
    self.kept = lambda: (self.weight, self.s, self.b)
    for name, tensor in (("weight", q), ("s", scale), ("b", bias)):
        self.register_buffer(name, tensor)


def registered(self, q, scale, bias, **options):
    for name, tensor in (("q", q), ("scale", scale), ("bias", bias)):
        self.register_buffer(name, tensor, **options)


_Attributes, _OtherNames = storing(as_attributes), storing(under_other_names)
_Forgotten = storing(lambda self, q, scale, bias: registered(self, q, scale, bias, persistent=False))
_Flat = storing(lambda self, q, scale, bias: registered(self, q, scale.flatten(), bias))


class _EightBits(_Linear):
    def __init__(self, linear, bits=8):
        super().__init__(linear, 8)


class _Overwrites(_Linear):
    def __init__(self, linear, bits=8):
        super().__init__(linear, bits)
        linear.weight.data.copy_(oracle.dequantize(self.q, self.scale))


class _InTheGraph(_Linear):
    """The weights of the layer stay alive behind the scale, and the bias is its parameter."""

    def __init__(self, linear, bits=8):
        super().__init__(linear, bits)
        self.q, self.scale = oracle.quantize(linear.weight, bits, axis=0)
        self.register_buffer("bias", linear.bias)


def rounds_x(self, x):
    q, scale = oracle.quantize(x.detach(), 8)
    return F.linear(oracle.dequantize(q, scale), oracle.dequantize(self.q, self.scale), self.bias)


def small(name, d_in=72, d_out=40, bits=8, bias=True, x=None, seed=0, **options):
    layer = Fixture("uneven_linear", dict(d_in=d_in, d_out=d_out, bias=bias, seed=seed))
    init = dict(linear=layer) | ({} if bits == 8 else {"bits": bits})
    return case(name, dict(x=x or (2, 5, d_in)), init=init, **options)


HELD = dict(kind="plain", dtype="float32", mutates="held", grad=False)
LIMIT = int(0.3 * 4 * (72 * 40 + 40))  # 30 % of the layer in float32

register(
    expected=oracle.QuantLinear,
    phase=PHASE,
    section="6.15",
    hint="keep quantize(linear.weight.detach(), bits, axis=0) as buffers; x @ dequantize(q, scale).T + bias.",
    cases=(
        small("8 bits"),
        small("4 bits", bits=4, seed=1),
        small("5 bits, no bias", bits=5, bias=False, seed=2),
        small("one token, no leading axes", d_in=6, d_out=4, x=(6,), seed=3),
        small("two calls", d_in=6, d_out=4, x=(3, 6), then=(dict(x=(1, 2, 6)),), seed=4),
        small("the bytes it keeps", judge=rules_systems.at_most(LIMIT), seed=5, **HELD),
        small(
            "what is still trained", 6, 4, judge=rules_systems.judge_learning, seed=7, mutates="learning", grad=False
        ),
        small("what its state_dict() holds", 6, 4, bits=5, seed=8, mutates="self", grad=False),
        small("the bytes it keeps, 4 bits", bits=4, judge=rules_systems.at_most(LIMIT), seed=6, **HELD),
    ),
    mistakes={
        "detach the weights and the bias: they are still being trained": Spotted(
            rules_systems.learning_kept, _InTheGraph, certain=True
        ),
        "memory was not saved": Spotted(rules_systems.too_many_bytes, _Copy, certain=True),
        "register_buffer, under these three names": Replays(_Attributes, _Forgotten, _OtherNames, _Flat),
        "no parameters: buffers": Spotted(rules_systems.more_parameters, _Parameters, also=(_Whole,)),
        "the bias is not scaled": Replays(
            wrong(
                forward=lambda self, x: (
                    (x @ self.q.to(x.dtype).T + (0 if self.bias is None else self.bias)) * self.scale[:, 0]
                )
            ),
        ),
        "the bias was lost": wrong(with_bias=lambda self, out: out),
        "one scale for each output row": wrong(axis=None),
        "one scale for each row, not for each column": wrong(axis=1),
        "the scale was forgotten": wrong(forward=lambda self, x: F.linear(x, self.q.to(x.dtype), self.bias)),
        "bits was ignored": _EightBits,
        "the layer that was handed over was changed": _Overwrites,
        "only the weights are rounded": wrong(forward=rounds_x),
    },
)
