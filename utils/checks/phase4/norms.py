"""layer_norm, LayerNorm: a token brought to one scale."""

import torch

from utils import oracle
from utils.checks.draw import given, normal
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase4 import PHASE, rules


def constant_rows(*shape):
    """Rows that hold one number each: their variance is 0."""
    return given(lambda g, o: (1 + torch.rand(*shape[:-1], 1, generator=g, dtype=torch.float64)).repeat(1, shape[-1]))


def standard(x, eps=0.3, root=lambda variance, eps: (variance + eps).sqrt(), correction=0, axes=-1):
    """x normalised, in float32 at least; each option is a place to go wrong."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    mean, variance = x.mean(axes, keepdim=True), x.var(axes, correction=correction, keepdim=True)
    return (x - mean) / root(variance, eps)


def naive(x, eps):
    """x normalised with the variance as mean(x²) − mean², half precision widened."""
    x = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / (x.square().mean(-1, keepdim=True) - mean.square() + eps).sqrt()


def wrong(**options):
    def layer_norm(x, gamma, beta, eps):
        return (standard(x, eps, **options) * gamma + beta).to(x.dtype)

    return layer_norm


def refuse(x, gamma, beta):
    if gamma.shape != x.shape[-1:] or beta.shape != x.shape[-1:]:
        raise ValueError("gamma and beta must have shape (d_model,)")


def shifted_first(x, gamma, beta, eps):
    return ((standard(x, eps) + beta) * gamma).to(x.dtype)


def without_shape_check(x, gamma, beta, eps):
    return (standard(x, eps) * gamma + beta).to(x.dtype)


def digits_lost(x, gamma, beta, eps):
    refuse(x, gamma, beta)
    return (naive(x, eps) * gamma + beta).to(x.dtype)


def in_its_own_dtype(x, gamma, beta, eps, narrow=torch.bfloat16):
    """One of the two half precisions is forgotten."""
    return stays_half(x, gamma, beta, eps) if x.dtype is narrow else oracle.layer_norm(x, gamma, beta, eps)


def in_float32(x, gamma, beta, eps):
    """float32 also where float64 came in."""
    refuse(x, gamma, beta)
    return (standard(x.float(), eps) * gamma + beta).to(x.dtype)


def centred_in_place(x, gamma, beta, eps):
    x -= x.mean(-1, keepdim=True)
    return oracle.layer_norm(x, gamma, beta, eps)


def fixed_deviation(x, gamma, beta, eps):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt().detach() * gamma + beta


def stays_half(x, gamma, beta, eps):
    refuse(x, gamma, beta)
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt() * gamma + beta


HALF = dict(dtype="float16", default_dtype="float32", grad=False)
ROOTS = {
    "outside": lambda variance, eps: variance.sqrt() + eps,
    "none": lambda variance, eps: variance.sqrt(),
    "variance": lambda variance, eps: variance + eps,
}
SIX = dict(gamma=(6,), beta=(6,), eps=0.3)
X = dict(x=normal(2, 5, 6, shift=1.5))

register(
    expected=oracle.layer_norm,
    phase=PHASE,
    section="4.2",
    hint="centre each token, divide by the root of its variance plus eps, then scale and shift.",
    bans=("attention", "norms"),
    cases=(
        case("five tokens, eps 0.3", X | SIX),
        case("one token, no leading axis", dict(x=normal(6, shift=1.5)) | SIX),
        case("one leading axis", dict(x=normal(5, 6, shift=-2.0)) | SIX | dict(eps=1e-5)),
        case("as many tokens as features", dict(x=normal(6, 6, 6, shift=1.5)) | SIX),
        case("wide tokens, small eps", dict(x=normal(3, 40, shift=20.0), gamma=(40,), beta=(40,), eps=1e-6)),
        case("a constant row", dict(x=constant_rows(3, 4), gamma=(4,), beta=(4,), eps=1e-5), grad=False),
        case("one feature", dict(x=normal(3, 1), gamma=(1,), beta=(1,), eps=0.3)),
        case("tiny numbers", dict(x=normal(3, 6, std=1e-4)) | SIX | dict(eps=1e-8)),
        case(
            "half precision, numbers near 1000",
            dict(x=normal(4, 8, std=400.0, shift=1000.0), gamma=(8,), beta=(8,), eps=1e-5),
            **HALF,
        ),
        case(
            "bfloat16, numbers near 1000",
            dict(x=normal(4, 8, std=40.0, shift=1000.0), gamma=(8,), beta=(8,), eps=1e-5),
            **HALF | dict(dtype="bfloat16"),
        ),
        case(
            "float32, numbers near 3000",
            dict(x=normal(4, 8, shift=3000.0), gamma=(8,), beta=(8,), eps=1e-5),
            atol=1e-2,  # x itself has steps of 0.0002 there
            **HALF | dict(dtype="float32"),
        ),
        refusal("gamma of another width", X | dict(gamma=(5,), beta=(6,), eps=0.3)),
        refusal("beta of another width", X | dict(gamma=(6,), beta=(7,), eps=0.3)),
        refusal("gamma of width 1", X | dict(gamma=(1,), beta=(6,), eps=0.3)),
        refusal("beta for every token", X | dict(gamma=(6,), beta=(5, 6), eps=0.3)),
    ),
    mistakes={
        "eps belongs under the root": wrong(root=ROOTS["outside"]),
        "eps was left out: a constant row must stay finite": wrong(root=ROOTS["none"]),
        "mean(x²) − mean² loses its digits: centre first": Spotted(rules.digits_lost, digits_lost),
        "bfloat16 is half precision, too": in_its_own_dtype,
        "float64 stays float64: only half precision is widened": Spotted(rules.float64_narrowed, in_float32),
        "β is added, not multiplied": lambda x, gamma, beta, eps: (standard(x, eps) * (gamma + beta)).to(x.dtype),
        "the deviation depends on x, too: no detach": fixed_deviation,
        "x must stay as it was: no x -= …": Spotted(rules.written_into, centred_in_place),
        "use the biased variance": wrong(correction=1),
        "divide by the deviation, not by the variance": wrong(root=ROOTS["variance"]),
        "each token by itself": Replays(*(wrong(axes=axes) for axes in (-2, 0, 1, None))),
        "scale first, then shift": shifted_first,
        "gamma and beta were left out": lambda x, gamma, beta, eps: standard(x, eps).to(x.dtype),
        "beta was left out": lambda x, gamma, beta, eps: (standard(x, eps) * gamma).to(x.dtype),
        "the mean was not subtracted": lambda x, gamma, beta, eps: (
            x / (x.var(-1, correction=0, keepdim=True) + eps).sqrt() * gamma + beta
        ),
        "half precision overflowed: compute in float32": Spotted(rules.half_overflowed, stays_half),
        "a gamma or beta of another shape must be refused": Spotted(rules.no_refusal, without_shape_check),
    },
)


class _LayerNorm(oracle.LayerNorm):
    """A wrong twin in its parts; as it stands it is the right one."""

    def forward(self, x):
        return self.last(standard(x, self.used_eps(), axes=self.axes(x)))

    def used_eps(self):
        return self.eps

    def axes(self, x):
        return -1

    def last(self, normed):
        return normed * self.gamma + self.beta


def wrong_module(base, **methods):
    return type("Wrong", (base,), methods)


class _Running(_LayerNorm):
    """Keeps the mean and variance of the calls in training, as BatchNorm does."""

    def __init__(self, d_model, eps=1e-5):
        super().__init__(d_model, eps)
        self.seen = None

    def forward(self, x):
        mean, variance = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
        if self.seen is not None:
            mean, variance = 0.5 * mean + 0.5 * self.seen[0], 0.5 * variance + 0.5 * self.seen[1]
        self.seen = mean.mean().detach(), variance.mean().detach()
        return self.last((x - mean) / (variance + self.eps).sqrt())


class _Plain(_LayerNorm):
    """gamma and beta are buffers: they are filled, but never learn."""

    def __init__(self, d_model, eps=1e-5):
        super().__init__(d_model, eps)
        gamma, beta = self.gamma.data, self.beta.data
        del self.gamma, self.beta
        self.gamma, self.beta = gamma, beta


class _Fixed(_LayerNorm):
    def used_eps(self):
        return 1e-5


def starting_at(gamma, beta):
    class Wrong(_LayerNorm):
        def __init__(self, d_model, eps=1e-5):
            super().__init__(d_model, eps)
            self.gamma.data.fill_(gamma)
            self.beta.data.fill_(beta)

    return Wrong


def fresh(name, **init):
    """A module as it is made: its starting values are seen in what it returns."""
    return case(name, dict(x=normal(2, 5, init["d_model"], shift=0.8)), init=init, as_made=True)


NARROW, EPS = dict(d_model=6), dict(d_model=6, eps=0.3)

register(
    expected=oracle.LayerNorm,
    phase=PHASE,
    section="4.2",
    hint="gamma starts at ones and beta at zeros, both nn.Parameter; forward is your layer_norm.",
    bans=("attention", "norms"),
    cases=(
        case("eps 0.3", X, init=EPS),
        case("eps 1e-3", dict(x=normal(2, 5, 6, std=0.1)), init=dict(d_model=6, eps=1e-3)),
        case("the default eps", dict(x=normal(2, 5, 6, std=0.02)), init=NARROW),
        fresh("as it is made", d_model=6, eps=0.3),
        case("in train mode", X, init=EPS, train=True),
        case("long, short, long", X, then=(dict(x=normal(1, 3, 6, shift=-3.0)), X), init=EPS),
        case("long, short, long, training", X, then=(dict(x=normal(4, 3, 6, shift=-3.0)), X), init=EPS, train=True),
        case("one token, no batch", dict(x=normal(6, shift=1.5)), init=EPS),
        case("as many tokens as features", dict(x=normal(6, 6, 6)), init=EPS),
        case("a constant row", dict(x=constant_rows(3, 4)), init=dict(d_model=4), grad=False),
    ),
    mistakes={
        "there is no memory between calls": _Running,
        "gamma and beta must be parameters": Spotted(rules.no_parameters, _Plain),
        "eps was ignored": _Fixed,
        "eps belongs under the root": wrong_module(
            _LayerNorm, forward=lambda self, x: self.last(standard(x, self.eps, ROOTS["outside"]))
        ),
        "use the biased variance": wrong_module(
            _LayerNorm, forward=lambda self, x: self.last(standard(x, self.eps, correction=1))
        ),
        "each token by itself": wrong_module(_LayerNorm, axes=lambda self, x: (0, -1) if x.dim() > 2 else -1),
        "scale first, then shift": wrong_module(
            _LayerNorm, last=lambda self, normed: (normed + self.beta) * self.gamma
        ),
        "gamma starts at ones and beta at zeros": Replays(
            starting_at(0.0, 0.0), starting_at(1.0, 1.0), starting_at(0.0, 1.0)
        ),
    },
)
