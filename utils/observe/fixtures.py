"""Objects that a case hands to a learner's function: built where the function runs, from a name and plain options.

The attentions below map x (batch, seq_len, 8) to (batch, seq_len, 5) for any seq_len from 1 to 16 and any floating
dtype. Half of them let a token see its future; which half is the judge's secret, so nothing here says it in a name
that a learner's function could read: `build` returns a bare module.
"""

import torch
from torch import nn

from utils.observe import (
    fixtures_blocks,
    fixtures_capstone,
    fixtures_masked,
    fixtures_model,
    fixtures_serving,
    fixtures_training,
    layers,
)
from utils.observe.forbid import lent

WIDTH = 8  # of the inputs of every attention here
OUT = 5

PATTERNS = {}  # name -> function(i, j, n) -> which keys j a query i of a sentence of n tokens may see


def pattern(function):
    PATTERNS[function.__name__] = function
    return function


@pattern
def causal(i, j, n):
    return j <= i


@pattern
def strictly_past(i, j, n):
    return (j < i) | ((i == 0) & (j == 0))


@pattern
def window(i, j, n):
    return (j <= i) & (j > i - 3)


@pattern
def itself(i, j, n):
    return i == j


@pattern
def everything(i, j, n):
    return (i == i) & (j == j)


@pattern
def one_ahead(i, j, n):
    return j <= i + 1


@pattern
def first_rows(i, j, n):
    return (j <= i) | ((i < 2) & (j < 2))


@pattern
def late_rows(i, j, n):
    return (j <= i) | ((i >= 9) & (j > i))


@pattern
def far_token(i, j, n):
    return (j <= i) | (j - i >= 11)


@pattern
def transposed(i, j, n):
    return j >= i


@pattern
def next_but_one(i, j, n):
    return (j <= i) | (j == i + 2)


@pattern
def last_place(i, j, n):
    return (j <= i) | ((j == 15) & (i == 14))


@pattern
def from_end_to_end(i, j, n):
    return (j <= i) | (j - i == 15)


@lent
class _Attention(nn.Module):
    """Single-head attention with a pattern; `fill` is what a hidden score becomes; `late` hides after the softmax."""

    def __init__(self, pattern_name="causal", fill=float("-inf"), late=False, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.pattern, self.fill, self.late = PATTERNS[pattern_name], fill, late
        for name, width in (("w_q", 4), ("w_k", 4), ("w_v", OUT)):
            weight = torch.randn(WIDTH, width, generator=generator, dtype=torch.float64) / WIDTH**0.5
            self.register_buffer(name, weight)

    def forward(self, x):
        q, k, v = (x @ weight.to(x.dtype) for weight in (self.w_q, self.w_k, self.w_v))
        places = torch.arange(x.shape[-2])
        visible = self.pattern(places[:, None], places[None, :], x.shape[-2])
        scores = q @ k.transpose(-2, -1) / 2
        if self.late:
            return (scores.softmax(-1) * visible) @ v
        return scores.masked_fill(~visible, self.fill).softmax(-1) @ v


@lent
class _Mean(nn.Module):
    """Average of the tokens so far (`upto` = "here") or of the whole sentence, added to each token's own projection."""

    def __init__(self, upto="here", seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.upto = upto
        self.register_buffer("weight", torch.randn(WIDTH, OUT, generator=generator, dtype=torch.float64))

    def forward(self, x):
        count = torch.arange(1, x.shape[-2] + 1, dtype=x.dtype)[:, None]
        mean = x.cumsum(-2) / count if self.upto == "here" else x.mean(-2, keepdim=True)
        return (x + mean) @ self.weight.to(x.dtype)


@lent
class _Whisper(nn.Module):
    """Position-wise, but for one input feature of the next token that reaches one output feature."""

    def __init__(self, hears=7, says=4, seed=0):
        super().__init__()
        self.hears, self.says = hears, says
        self.inner = _Mean("here", seed)

    def forward(self, x):
        out = self.inner(x)
        later = torch.cat([x[..., 1:, self.hears], torch.zeros_like(x[..., :1, self.hears])], -1)
        told = torch.zeros(OUT, dtype=x.dtype)
        told[self.says] = 0.3
        return out + later[..., None] * told


KINDS = {"attention": _Attention, "mean": _Mean, "whisper": _Whisper}
FAMILIES = (fixtures_blocks, fixtures_capstone, fixtures_masked, fixtures_model, fixtures_serving, fixtures_training)


def build(name, options):
    """The fixture of this name: a model, a layer or loss of `layers`, or an attention as a module that shows nothing
    of what it does. Raises KeyError for an unknown one.

    options may hold `training`: the flag it is handed over with.
    """
    for family in FAMILIES:
        if name in family.KINDS:
            return family.KINDS[name](**options)
    if name in layers.MAKERS:
        return layers.MAKERS[name](**options)
    options = dict(options)
    training = options.pop("training", False)
    inner = KINDS[name](**options).eval()

    class Attention(nn.Module):
        def forward(self, x):
            return inner(x)

    return Attention().train(training)
