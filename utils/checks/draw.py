"""How a case says what its inputs are, and how they are drawn: sizes and kinds here, numbers from a seed.

In `case(args=dict(q=(2, 3, 5, 4), …))` a tuple of ints is the shape of a random floating array; the functions below
say everything else. Plain numbers, strings, lists and arrays stand for themselves.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class Drawn:
    """An input still to be drawn: `draw(generator, others)` makes it; `others` are the arguments drawn before it."""

    draw: Any


def normal(*shape, std=0.8, shift=0.0):
    """Normal numbers. std 0.8 keeps every softmax weight of a small table below 0.8."""
    return Drawn(lambda generator, others: shift + std * _randn(shape, generator))


def mask(*shape, empty=(), full=False):
    """Bool mask with a visible and a hidden key in every row (last axis), but for the index tuples in `empty`.

    full: nothing is hidden at all.
    """

    def draw(generator, others):
        table = torch.rand(shape, generator=generator) < 0.6
        if full:
            return torch.ones(shape, dtype=torch.bool)
        if shape[-1] > 1:
            first = torch.rand(shape, generator=generator).argsort(-1)
            table.scatter_(-1, first[..., :1], True).scatter_(-1, first[..., 1:2], False)
        for index in empty:
            table[index] = False
        return table

    return Drawn(draw)


def probs(*shape):
    """Rows (last axis) of positive numbers that sum to 1."""
    return Drawn(lambda generator, others: _randn(shape, generator).softmax(-1))


def given(draw):
    """Whatever `draw(generator, others)` returns."""
    return Drawn(draw)


def seed_of(*parts):
    """A 63-bit seed from any printable parts: the same everywhere, unlike hash()."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def draw_all(specs, seed, dtype, library):
    """{name: value} of {name: spec}: floating arrays in `dtype`, as torch tensors or NumPy arrays."""
    drawn = {}
    for name, spec in specs.items():
        generator = torch.Generator().manual_seed(seed_of(seed, name))
        if _is_shape(spec):
            spec = normal(*spec)
        drawn[name] = _cast(_drawn(spec, generator, drawn), dtype)
    return {name: _to_library(value, library) for name, value in drawn.items()}


def cotangent(shape, seed, index):
    """The random direction in which an output is differentiated."""
    return _randn(shape, torch.Generator().manual_seed(seed_of(seed, "cotangent", index)))


def _drawn(spec, generator, others):
    if isinstance(spec, list):
        return [_drawn(part, generator, others) for part in spec]
    return spec.draw(generator, others) if isinstance(spec, Drawn) else spec


def _is_shape(spec):
    return isinstance(spec, tuple) and all(type(size) is int for size in spec)


def _randn(shape, generator):
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _cast(value, dtype):
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.to(dtype)
    if isinstance(value, list):
        return [_cast(part, dtype) for part in value]
    return value


def _to_library(value, library):
    if library == "numpy" and isinstance(value, torch.Tensor):
        return np.array(value.numpy())
    return value
