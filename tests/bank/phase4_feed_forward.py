"""gelu, FeedForward, SwiGLU: wrong solutions and unusual right ones."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.bank import right, wrong


def refuse(approximate):
    if approximate not in ("none", "tanh"):
        raise ValueError("approximate is none or tanh")


def exact(x):
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def by_tanh(x, cubic=0.044715, factor=None):
    factor = math.sqrt(2 / math.pi) if factor is None else factor
    return 0.5 * x * (1 + torch.tanh(factor * (x + cubic * x.pow(3))))


def two_forms(name, none=exact, tanh=by_tanh, refuses=True):
    def gelu(x, approximate="none"):
        if refuses:
            refuse(approximate)
        return none(x) if approximate == "none" else tanh(x)

    gelu.__name__ = name
    return gelu


SLIPS = [
    ("tanh_for_both", "the exact form differs in the fourth digit", dict(none=by_tanh)),
    ("erf_for_both", "approximate was ignored", dict(tanh=exact)),
    ("relu", "that is ReLU", dict(none=F.relu, tanh=F.relu)),
    ("no_half", "the factor ½ is missing", dict(none=lambda x: 2 * exact(x), tanh=lambda x: 2 * by_tanh(x))),
    (
        "sigmoid_form",
        "that is a third approximation",
        dict(none=lambda x: x * torch.sigmoid(1.702 * x), tanh=lambda x: x * torch.sigmoid(1.702 * x)),
    ),
    ("no_root_two", "Φ needs x/√2 inside erf", dict(none=lambda x: 0.5 * x * (1 + torch.erf(x)))),
    ("silu", "that is silu", dict(none=F.silu, tanh=F.silu)),
    ("no_cubic", "the cubic term is missing", dict(tanh=lambda x: by_tanh(x, cubic=0.0))),
    ("no_root", "the tanh form has √(2/π)", dict(tanh=lambda x: by_tanh(x, factor=2 / math.pi))),
    ("typo", None, dict(tanh=lambda x: by_tanh(x, cubic=0.44715))),
    ("cut_off", None, dict(none=lambda x: torch.where(x < -3, torch.zeros_like(x), exact(x)))),
    ("detached", None, dict(none=lambda x: x * (exact(x) / x).detach())),
    ("float32", None, dict(none=lambda x: exact(x.float()).to(x.dtype))),
    ("no_refusal", None, dict(refuses=False)),
]
for _name, _says, _parts in SLIPS:
    wrong("gelu", says=_says)(two_forms(_name, **_parts))


@wrong("gelu")
def torchs_gelu(x, approximate="none"):
    refuse(approximate)
    return nn.GELU(approximate)(x)


@wrong("gelu")
def default_is_tanh(x, approximate="tanh"):
    return two_forms("gelu")(x, approximate)


right("gelu", why="erf and tanh")(two_forms("plain"))
right("gelu", why="the normal law's own cdf")(
    two_forms("with_cdf", none=lambda x: x * torch.distributions.Normal(0.0, 1.0).cdf(x))
)
right("gelu", why="erfc keeps the digits far left")(
    two_forms("with_erfc", none=lambda x: 0.5 * x * torch.special.erfc(-x * math.sqrt(0.5)))
)
right("gelu", why="tanh as a sigmoid of twice the argument")(
    two_forms(
        "with_sigmoid",
        none=lambda x: x * torch.special.ndtr(x),
        tanh=lambda x: x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)),
    )
)

# ---------------------------------------------------------------- FeedForward


class _FeedForward(nn.Module):
    """Right as it stands; each wrong solution changes one method."""

    def __init__(self, d_model, d_ff, activation="gelu", dropout=0.0):
        super().__init__()
        self.bend = self.choose(activation)
        self.make(d_model, d_ff)
        self.dropout = nn.Dropout(dropout)

    def choose(self, activation):
        known = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}
        if callable(activation):
            return activation
        if activation not in known:
            raise ValueError(f"activation {activation!r} is unknown")
        return known[activation]

    def make(self, d_model, d_ff):
        self.w_1, self.w_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.w_2(self.dropout(self.bend(self.w_1(x))))


@wrong("FeedForward", says="the nonlinearity belongs between")
class BendsAtTheEnd(_FeedForward):
    def forward(self, x):
        return self.bend(self.w_2(self.dropout(self.w_1(x))))


@wrong("FeedForward", says="two linear maps in a row are one")
class NeverBends(_FeedForward):
    def forward(self, x):
        return self.w_2(self.dropout(self.w_1(x)))


@wrong("FeedForward")
class BendsTwice(_FeedForward):
    def forward(self, x):
        return self.bend(super().forward(x))


@wrong("FeedForward", says="activation was ignored")
class AlwaysGelu(_FeedForward):
    def choose(self, activation):
        super().choose(activation)
        return F.gelu


@wrong("FeedForward")
class AlwaysRelu(_FeedForward):
    def choose(self, activation):
        super().choose(activation)
        return F.relu


@wrong("FeedForward", says="that is the tanh form")
class TanhGelu(_FeedForward):
    def choose(self, activation):
        bend = super().choose(activation)
        return by_tanh if activation == "gelu" else bend


@wrong("FeedForward", says="d_ff was ignored")
class FourTimes(_FeedForward):
    def make(self, d_model, d_ff):
        super().make(d_model, 4 * d_model)


@wrong("FeedForward", says="both layers have a bias")
class NoBias(_FeedForward):
    def make(self, d_model, d_ff):
        self.w_1, self.w_2 = nn.Linear(d_model, d_ff, bias=False), nn.Linear(d_ff, d_model, bias=False)


@wrong("FeedForward", says="a token saw another")
class MeanOfHidden(_FeedForward):
    def forward(self, x):
        return self.w_2(self.dropout(self.bend(self.w_1(x).mean(-2, keepdim=True).expand(*x.shape[:-1], -1))))


@wrong("FeedForward", says="x is added in the residual, not here")
class AddsX(_FeedForward):
    def forward(self, x):
        return x + super().forward(x)


@wrong("FeedForward", says="dropout does nothing")
class NoDropout(_FeedForward):
    def forward(self, x):
        return self.w_2(self.bend(self.w_1(x)))


@wrong("FeedForward", says="dropout sits on the hidden layer")
class DropsTheEnd(_FeedForward):
    def forward(self, x):
        return self.dropout(self.w_2(self.bend(self.w_1(x))))


@wrong("FeedForward")
class DropsBeforeBending(_FeedForward):
    """With softplus this would show; with gelu(0) = 0 it does not, but p = 1 of a function of one's own does."""

    def forward(self, x):
        return self.w_2(self.bend(self.dropout(self.w_1(x))) * 1.0001)


@wrong("FeedForward", says="dropout must be off in eval mode")
class AlwaysDrops(_FeedForward):
    def forward(self, x):
        return self.w_2(F.dropout(self.bend(self.w_1(x)), self.dropout.p, True))


@wrong("FeedForward", says="an unknown activation must be refused")
class TakesAnything(_FeedForward):
    def choose(self, activation):
        return activation if callable(activation) else getattr(F, activation or "gelu")


@wrong("FeedForward")
class NoFunctions(_FeedForward):
    def choose(self, activation):
        return {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}[activation]


@wrong("FeedForward")
class WeightsTied(_FeedForward):
    def forward(self, x):
        return F.linear(self.dropout(self.bend(self.w_1(x))), self.w_1.weight.T, self.w_2.bias)


@right("FeedForward", why="two layers and a table of functions")
class PlainFeedForward(_FeedForward):
    pass


@right("FeedForward", why="1×1 convolutions, filled through load_weights")
class Convolutions(_FeedForward):
    def make(self, d_model, d_ff):
        self.out, self.back = nn.Conv1d(d_model, d_ff, 1), nn.Conv1d(d_ff, d_model, 1)

    def load_weights(self, weights):
        for layer, name in ((self.out, "w_1"), (self.back, "w_2")):
            layer.weight.copy_(weights[f"{name}.weight"][..., None])
            layer.bias.copy_(weights[f"{name}.bias"])

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1]).T
        return self.back(self.dropout(self.bend(self.out(tokens)))).T.reshape(x.shape)


class Bend(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@right("FeedForward", why="nn.Sequential with names, nn.Dropout inside")
class Sequential(_FeedForward):
    def make(self, d_model, d_ff):
        self.w_1, self.w_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x):
        return nn.Sequential(self.w_1, Bend(self.bend), self.dropout, self.w_2)(x)


@right("FeedForward", why="matrix products with the layers' weights")
class Products(_FeedForward):
    def forward(self, x):
        hidden = self.bend(torch.einsum("...m,fm->...f", x, self.w_1.weight) + self.w_1.bias)
        return self.dropout(hidden) @ self.w_2.weight.T + self.w_2.bias


# ---------------------------------------------------------------- SwiGLU


class _SwiGLU(nn.Module):
    bias = False

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.make(d_model, d_ff)

    def make(self, d_model, d_ff):
        self.w_gate = nn.Linear(d_model, d_ff, bias=self.bias)
        self.w_up = nn.Linear(d_model, d_ff, bias=self.bias)
        self.w_down = nn.Linear(d_ff, d_model, bias=self.bias)

    def mix(self, gate, up):
        return F.silu(gate) * up

    def forward(self, x):
        return self.w_down(self.mix(self.w_gate(x), self.w_up(x)))


GATES = [
    ("silu_on_up", "the gate carries the activation", lambda gate, up: gate * F.silu(up)),
    ("sigmoid_gate", "silu(z) = z·sigmoid(z)", lambda gate, up: torch.sigmoid(gate) * up),
    ("added", "multiply gate and up, do not add", lambda gate, up: F.silu(gate) + up),
    ("geglu", "that is GELU: SwiGLU uses silu", lambda gate, up: F.gelu(gate) * up),
    ("reglu", "that is ReLU: SwiGLU uses silu", lambda gate, up: F.relu(gate) * up),
    ("no_gate", "the gate is missing", lambda gate, up: F.silu(up)),
    ("bilinear", "the activation is missing", lambda gate, up: gate * up),
    ("both_bent", "both halves were activated", lambda gate, up: F.silu(gate) * F.silu(up)),
    ("hardswish", None, lambda gate, up: F.hardswish(gate) * up),
    ("swish_two", None, lambda gate, up: gate * torch.sigmoid(2 * gate) * up),
]
for _name, _says, _mix in GATES:
    wrong("SwiGLU", says=_says)(type(_name, (_SwiGLU,), {"mix": lambda self, gate, up, mix=_mix: mix(gate, up)}))


@wrong("SwiGLU", says="three matrices, no biases")
class Biased(_SwiGLU):
    bias = True


@wrong("SwiGLU", says="three matrices, no biases")
class BiasedInside(_SwiGLU):
    def make(self, d_model, d_ff):
        super().make(d_model, d_ff)
        self.w_gate, self.w_up = nn.Linear(d_model, d_ff), nn.Linear(d_model, d_ff)


@wrong("SwiGLU")
class TwoThirds(_SwiGLU):
    def make(self, d_model, d_ff):
        super().make(d_model, max(1, 2 * d_ff // 3))


@right("SwiGLU", why="three layers")
class PlainSwiGLU(_SwiGLU):
    pass


@right("SwiGLU", why="gate and up fused, filled through load_weights")
class Fused(_SwiGLU):
    def make(self, d_model, d_ff):
        self.both, self.w_down = nn.Linear(d_model, 2 * d_ff, bias=False), nn.Linear(d_ff, d_model, bias=False)

    def load_weights(self, weights):
        self.both.weight.copy_(torch.cat([weights["w_gate.weight"], weights["w_up.weight"]]))
        self.w_down.weight.copy_(weights["w_down.weight"])

    def forward(self, x):
        gate, up = self.both(x).chunk(2, -1)
        return self.w_down(F.silu(gate) * up)


@right("SwiGLU", why="a silu of one's own")
class OwnSilu(_SwiGLU):
    def mix(self, gate, up):
        return gate / (1 + torch.exp(-gate)) * up


@right("SwiGLU", why="matrix products with the weights")
class Einsum(_SwiGLU):
    def forward(self, x):
        gate, up = x @ self.w_gate.weight.mT, x @ self.w_up.weight.mT
        return (gate * gate.sigmoid()).mul(up) @ self.w_down.weight.T
