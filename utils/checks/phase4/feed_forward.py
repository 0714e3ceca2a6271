"""gelu, FeedForward, SwiGLU: what each token does by itself."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from utils import oracle
from utils.checks.draw import given, normal
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase4 import PHASE, rules
from utils.observe.codec import Fixture


def wrong_gelu(curve):
    """A wrong twin: curve(x) in both forms."""

    def gelu(x, approximate="none"):
        oracle.gelu(x, approximate)  # refuses what must be refused
        return curve(x)

    return gelu


def only_tanh(curve):
    return lambda x, approximate="none": curve(x) if approximate == "tanh" else oracle.gelu(x, approximate)


ROOT = math.sqrt(2 / math.pi)


def tanh_form(x, c=0.044715, root=ROOT):
    return 0.5 * x * (1 + torch.tanh(root * (x + c * x**3)))


def share(x, approximate="none"):
    """Φ(x) in both forms, without its factor x."""
    oracle.gelu(x, approximate)  # refuses what must be refused
    bent = torch.erf(x / 2**0.5) if approximate == "none" else torch.tanh(ROOT * (x + 0.044715 * x**3))
    return 0.5 * (1 + bent)


FAR = given(lambda g, o: torch.tensor([[-50.0, -10.0, -6.0, 0.0], [6.0, 10.0, 50.0, 0.5]], dtype=torch.float64))
POINTS = given(lambda g, o: 8 * torch.rand(3, 11, generator=g, dtype=torch.float64) - 4)

register(
    expected=oracle.gelu,
    phase=PHASE,
    section="4.5",
    hint="x times the share of a normal law below x; erf(x / √2) gives that share.",
    bans=("attention", "gelu"),
    cases=(
        case("the exact form", dict(x=POINTS)),
        case("the tanh form", dict(x=POINTS, approximate="tanh")),
        case("none, said aloud", dict(x=normal(2, 3, 5, std=2.0), approximate="none")),
        case("one number", dict(x=normal())),
        case("far out", dict(x=FAR)),
        case("far out, tanh", dict(x=FAR, approximate="tanh")),
        refusal("another form", dict(x=POINTS, approximate="sigmoid")),
        refusal("no form at all", dict(x=POINTS, approximate="")),
    ),
    mistakes={
        "the exact form differs in the fourth digit": wrong_gelu(tanh_form),
        "approximate was ignored": wrong_gelu(lambda x: 0.5 * x * (1 + torch.erf(x / 2**0.5))),
        "that is ReLU": wrong_gelu(F.relu),
        "the factor ½ is missing": Replays(
            lambda x, approximate="none": 2 * oracle.gelu(x, approximate),
            wrong_gelu(lambda x: x * (1 + torch.erf(x / math.sqrt(2)))),
        ),
        "that is a third approximation": wrong_gelu(lambda x: x * torch.sigmoid(1.702 * x)),
        "Φ needs x/√2 inside erf": Replays(
            wrong_gelu(lambda x: 0.5 * x * (1 + torch.erf(x))),
            lambda x, approximate="none": (
                0.5 * x * (1 + torch.erf(x)) if approximate == "none" else oracle.gelu(x, approximate)
            ),
        ),
        "that is silu": wrong_gelu(F.silu),
        "the share itself is not the answer: multiply by x": Replays(
            wrong_gelu(lambda x: 0.5 * (1 + torch.erf(x / 2**0.5))), share
        ),
        "the cubic term is missing": only_tanh(lambda x: tanh_form(x, c=0.0)),
        "the tanh form has √(2/π)": Replays(
            *(only_tanh(lambda x, root=root: tanh_form(x, root=root)) for root in (2 / math.pi, 2**0.5 / math.pi, 1.0))
        ),
        "the root multiplies the cubic term, too": only_tanh(
            lambda x: 0.5 * x * (1 + torch.tanh(ROOT * x + 0.044715 * x**3))
        ),
        "the cube is of x alone": only_tanh(lambda x: 0.5 * x * (1 + torch.tanh(ROOT * (x + (0.044715 * x) ** 3)))),
        "x is a factor once": only_tanh(lambda x: x * tanh_form(x)),
    },
)


class _FeedForward(oracle.FeedForward):
    """A wrong twin in its parts; as it stands it is the right one."""

    def forward(self, x):
        return self.w_2(self.drop(self.activation(self.w_1(x))))

    def drop(self, hidden):
        return F.dropout(hidden, self.dropout, self.training)


def wrong(base, **methods):
    return type("Wrong", (base,), methods)


class _AlwaysGelu(_FeedForward):
    def __init__(self, d_model, d_ff, activation="gelu", dropout=0.0):
        super().__init__(d_model, d_ff, activation, dropout)
        self.activation = F.gelu


class _FourTimes(_FeedForward):
    def __init__(self, d_model, d_ff, activation="gelu", dropout=0.0):
        super().__init__(d_model, 4 * d_model, activation, dropout)


class _NoBias(_FeedForward):
    def __init__(self, d_model, d_ff, activation="gelu", dropout=0.0):
        super().__init__(d_model, d_ff, activation, dropout)
        self.w_1, self.w_2 = nn.Linear(d_model, d_ff, bias=False), nn.Linear(d_ff, d_model, bias=False)


class _TakesAnyName(_FeedForward):
    def __init__(self, d_model, d_ff, activation="gelu", dropout=0.0):
        known = callable(activation) or activation in ("relu", "gelu", "silu")
        super().__init__(d_model, d_ff, activation if known else "gelu", dropout)


class _NamesOnly(_FeedForward):
    def __init__(self, d_model, d_ff, activation="gelu", dropout=0.0):
        super().__init__(d_model, d_ff, {"relu": "relu", "gelu": "gelu", "silu": "silu"}[activation], dropout)


class _TanhGelu(_FeedForward):
    def __init__(self, d_model, d_ff, activation="gelu", dropout=0.0):
        super().__init__(d_model, d_ff, activation, dropout)
        if activation == "gelu":
            self.activation = tanh_form


X = dict(x=(2, 5, 6))
SIZES = dict(d_model=6, d_ff=11)
FUNCTION = Fixture("activation")

register(
    expected=oracle.FeedForward,
    phase=PHASE,
    section="4.6",
    hint="out to d_ff, bend, drop, back to d_model: w_2(drop(act(w_1(x)))).",
    cases=(
        case("gelu by default", X, init=SIZES),
        case("relu", X, init=SIZES | dict(activation="relu")),
        case("silu", X, init=SIZES | dict(activation="silu")),
        case("gelu, said aloud", X, init=SIZES | dict(activation="gelu", dropout=0.5)),
        case("an activation of your own", X, init=SIZES | dict(activation=FUNCTION)),
        case("as many tokens as features", dict(x=(6, 6, 6)), init=SIZES),
        case("one token, no batch", dict(x=(6,)), init=SIZES),
        case("two calls", dict(x=(1, 3, 6)), then=(X,), init=SIZES),
        case("narrow inside", dict(x=(3, 4, 8)), init=dict(d_model=8, d_ff=3)),
        case("dropout 0.5 in eval", X, init=SIZES | dict(dropout=0.5)),
        case("dropout 1 in training leaves the bias of w_2", X, init=SIZES | dict(dropout=1.0), train=True),
        case("no dropout, training", X, init=SIZES, train=True),
        case(
            "dropout 1 in training, an activation that is not 0 at 0",
            X,
            init=SIZES | dict(activation=FUNCTION, dropout=1.0),
            train=True,
        ),
        refusal("an unknown activation", X, init=SIZES | dict(activation="selu")),
        refusal("an empty name", X, init=SIZES | dict(activation="")),
    ),
    mistakes={
        "the nonlinearity belongs between": wrong(
            _FeedForward, forward=lambda self, x: self.activation(self.w_2(self.drop(self.w_1(x))))
        ),
        "two linear maps in a row are one": wrong(
            _FeedForward, forward=lambda self, x: self.w_2(self.drop(self.w_1(x)))
        ),
        "a token saw another": Replays(
            wrong(_FeedForward, forward=lambda self, x: self.w_2(self.drop(self.activation(self.w_1(x)).cumsum(-2)))),
            wrong(
                _FeedForward,
                forward=lambda self, x: self.w_2(
                    self.drop(self.activation(self.w_1(x).mean(-2, keepdim=True).expand(*x.shape[:-1], -1)))
                ),
            ),
        ),
        "activation was ignored": _AlwaysGelu,
        "d_ff was ignored": Spotted(rules.wrong_width, _FourTimes),
        "both layers have a bias": Spotted(rules.missing("w_1.bias", "w_2.bias"), _NoBias),
        "that is the tanh form": _TanhGelu,
        "x is added in the residual, not here": wrong(
            _FeedForward, forward=lambda self, x: x + _FeedForward.forward(self, x)
        ),
        "dropout does nothing": wrong(_FeedForward, drop=lambda self, hidden: hidden),
        "dropout must be off in eval mode": Spotted(
            rules.dropped_in_eval, wrong(_FeedForward, drop=lambda self, hidden: F.dropout(hidden, self.dropout))
        ),
        "dropout sits on the hidden layer": wrong(
            _FeedForward,
            forward=lambda self, x: self.drop(self.w_2(self.activation(self.w_1(x)))),
        ),
        "dropout comes after the activation": wrong(
            _FeedForward, forward=lambda self, x: self.w_2(self.activation(self.drop(self.w_1(x))))
        ),
        "w_2 has the last word: no activation after it": wrong(
            _FeedForward, forward=lambda self, x: self.activation(self.w_2(self.drop(self.activation(self.w_1(x)))))
        ),
        "activation may be a function": Spotted(rules.function_refused, _NamesOnly),
        "an unknown activation must be refused": Spotted(rules.activation_not_refused, _TakesAnyName),
    },
)


class _SwiGLU(oracle.SwiGLU):
    def forward(self, x):
        return self.w_down(self.mix(self.w_gate(x), self.w_up(x)))


class _Biased(_SwiGLU):
    def __init__(self, d_model, d_ff):
        super().__init__(d_model, d_ff)
        for name, (a, b) in dict(w_gate=(d_model, d_ff), w_up=(d_model, d_ff), w_down=(d_ff, d_model)).items():
            setattr(self, name, nn.Linear(a, b))

    def mix(self, gate, up):
        return F.silu(gate) * up


def wrong_mix(mix):
    return wrong(_SwiGLU, mix=lambda self, gate, up: mix(gate, up))


register(
    expected=oracle.SwiGLU,
    phase=PHASE,
    section="4.6",
    hint="w_down(silu(w_gate(x)) · w_up(x)), three matrices without bias.",
    cases=(
        case("five tokens", X, init=SIZES),
        case("other sizes", dict(x=(3, 4, 5)), init=dict(d_model=5, d_ff=2)),
        case("one token, no batch", dict(x=(6,)), init=SIZES),
        case("as many tokens as features", dict(x=(6, 6, 6)), init=SIZES),
        case("training, two calls", X, then=(dict(x=(1, 3, 6)),), init=SIZES, train=True),
    ),
    mistakes={
        "the gate carries the activation": wrong_mix(lambda gate, up: gate * F.silu(up)),
        "silu(z) = z·sigmoid(z)": wrong_mix(lambda gate, up: gate.sigmoid() * up),
        "multiply gate and up, do not add": wrong_mix(lambda gate, up: F.silu(gate) + up),
        "three matrices, no biases": Spotted(rules.more_parameters, _Biased),
        "that is GELU: SwiGLU uses silu": wrong_mix(lambda gate, up: F.gelu(gate) * up),
        "that is ReLU: SwiGLU uses silu": wrong_mix(lambda gate, up: F.relu(gate) * up),
        "the gate is missing": Replays(
            wrong_mix(lambda gate, up: F.silu(up)),
            wrong_mix(lambda gate, up: F.silu(gate)),
            wrong_mix(lambda gate, up: up),
        ),
        "the activation is missing": wrong_mix(lambda gate, up: gate * up),
        "the gate alone goes through silu, not the product": wrong_mix(lambda gate, up: F.silu(gate * up)),
        "both halves were activated": wrong_mix(lambda gate, up: F.silu(gate) * F.silu(up)),
    },
)
