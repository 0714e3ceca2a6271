"""layer_norm_backward, RMSNorm: the norm backwards, and the one without centring."""

import torch
from torch import nn

from utils import oracle
from utils.checks.draw import given, normal
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase4 import PHASE, rules
from utils.checks.phase4.norms import EPS, HALF, NARROW, ROOTS, constant_rows, fresh, standard, wrong_module


class _Backward:
    """The backward pass in its parts: change(g, normed, scale) with g = grad_out · gamma."""

    def __init__(self, change=None, dgamma=None, dbeta=None):
        self.change, self.dgamma, self.dbeta = change, dgamma, dbeta

    def __call__(self, grad_out, x, gamma, eps):
        right = oracle.layer_norm_backward(grad_out, x, gamma, eps)
        scale = (x.var(-1, correction=0, keepdim=True) + eps).rsqrt()
        centred = x - x.mean(-1, keepdim=True)
        parts = grad_out, gamma, centred * scale, scale, centred
        ways = self.change, self.dgamma, self.dbeta
        return tuple(old if way is None else way(*parts) for way, old in zip(ways, right, strict=True))


def dgamma_of_x(grad_out, x, gamma, eps):
    dx, _, dbeta = oracle.layer_norm_backward(grad_out, x, gamma, eps)
    return dx, summed(grad_out * x), dbeta


def summed(values):
    return values.flatten(0, -2).sum(0) if values.dim() > 1 else values


def total(values):
    return values.sum(-1, keepdim=True)


def mean(values):
    return values.mean(-1, keepdim=True)


def rows(*shape):
    return dict(grad_out=normal(*shape), x=normal(*shape, shift=1.5), gamma=(shape[-1],))


def other_deviation(root=lambda variance, eps: (variance + eps).sqrt(), correction=0):
    """The backward pass with another deviation, of the same form."""

    def layer_norm_backward(grad_out, x, gamma, eps):
        s = root(x.var(-1, correction=correction, keepdim=True), eps)
        z, g = (x - mean(x)) / s, grad_out * gamma
        return (g - mean(g) - z * mean(g * z)) / s, summed(grad_out * z), summed(grad_out)

    return layer_norm_backward


def exchanged(grad_out, x, gamma, eps):
    dx, dgamma, dbeta = oracle.layer_norm_backward(grad_out, x, gamma, eps)
    return dx, dbeta, dgamma


def its_own_argument(grad_out, x, gamma, eps):
    return *oracle.layer_norm_backward(grad_out, x, gamma, eps)[:2], summed(grad_out)


register(
    expected=oracle.layer_norm_backward,
    phase=PHASE,
    section="4.3",
    hint="with g = grad_out · gamma: dx = (g − mean(g) − normed · mean(g · normed)) / deviation.",
    bans=("attention", "norms", "autograd"),
    grad=False,
    fresh=True,
    cases=(
        case("five tokens, eps 0.3", rows(2, 5, 6) | dict(eps=0.3)),
        case("one token", rows(6) | dict(eps=0.3)),
        case("one leading axis", rows(5, 6) | dict(eps=1e-5)),
        case("three leading axes", rows(2, 3, 4, 6) | dict(eps=0.3)),
        case("all sizes alike", rows(4, 4, 4) | dict(eps=0.3)),
        case("wide", rows(3, 40) | dict(eps=1e-6)),
        case("one feature", rows(3, 1) | dict(eps=0.3)),
        case("a constant row", dict(grad_out=(3, 4), x=constant_rows(3, 4), gamma=(4,), eps=0.3)),
    ),
    mistakes={
        "the mean depends on x too": _Backward(lambda up, gamma, z, s, c: s * (up * gamma - z * mean(up * gamma * z))),
        "the variance depends on x too": _Backward(lambda up, gamma, z, s, c: s * (up * gamma - mean(up * gamma))),
        "mean and variance depend on x too": _Backward(lambda up, gamma, z, s, c: s * up * gamma),
        "gamma was ignored": _Backward(lambda up, gamma, z, s, c: s * (up - mean(up) - z * mean(up * z))),
        "dx must be divided by the deviation": _Backward(
            lambda up, gamma, z, s, c: up * gamma - mean(up * gamma) - z * mean(up * gamma * z)
        ),
        "shape: dgamma and dbeta are summed over all tokens": Spotted(
            rules.gradients_per_token,
            _Backward(dgamma=lambda up, gamma, z, s, c: up * z, dbeta=lambda up, gamma, z, s, c: up.clone()),
        ),
        "dgamma needs the normalised x": Replays(
            _Backward(dgamma=lambda up, gamma, z, s, c: summed(up * c)), dgamma_of_x
        ),
        "dgamma and dbeta are sums, not means": _Backward(
            dgamma=lambda up, gamma, z, s, c: summed(up * z) / max(1, up[..., 0].numel()),
            dbeta=lambda up, gamma, z, s, c: summed(up) / max(1, up[..., 0].numel()),
        ),
        "dgamma and dbeta start from grad_out, not from g": Replays(
            _Backward(dgamma=lambda up, gamma, z, s, c: summed(up * gamma * z)),
            _Backward(dbeta=lambda up, gamma, z, s, c: summed(up * gamma)),
            _Backward(
                dgamma=lambda up, gamma, z, s, c: summed(up * gamma * z),
                dbeta=lambda up, gamma, z, s, c: summed(up * gamma),
            ),
        ),
        "means over the features, not sums": Replays(
            _Backward(lambda up, gamma, z, s, c: s * (up * gamma - total(up * gamma) - z * total(up * gamma * z))),
            _Backward(lambda up, gamma, z, s, c: s * (up * gamma - mean(up * gamma) - z * total(up * gamma * z))),
        ),
        "z is centred and divided by s": _Backward(
            lambda up, gamma, z, s, c: s * (up * gamma - mean(up * gamma) - c * mean(up * gamma * c))
        ),
        "use the biased variance": Replays(
            other_deviation(correction=1), other_deviation(lambda variance, eps: variance.sqrt() + eps, correction=1)
        ),
        "eps belongs under the root": other_deviation(ROOTS["outside"]),
        "eps was left out": other_deviation(ROOTS["none"]),
        "the order is dx, dgamma, dbeta": exchanged,
        "dbeta is grad_out itself: clone it": Spotted(rules.a_view, its_own_argument),
    },
)


class _RMSNorm(oracle.RMSNorm):
    def forward(self, x):
        values = x.to(torch.promote_types(x.dtype, torch.float32))
        return (values / self.size(values) * self.gamma).to(x.dtype)

    def size(self, x):
        return (x.square().mean(-1, keepdim=True) + self.eps).sqrt()


class _WithBeta(_RMSNorm):
    def __init__(self, d_model, eps=1e-6):
        super().__init__(d_model, eps)
        self.beta = nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        return super().forward(x) + self.beta


RMS_X = dict(x=normal(2, 5, 6, shift=0.8))

register(
    expected=oracle.RMSNorm,
    phase=PHASE,
    section="4.4",
    hint="divide by the root of the mean of squares plus eps; one gamma, no beta, no centring.",
    bans=("attention", "norms"),
    cases=(
        case("eps 0.3", RMS_X, init=EPS),
        case("the default eps", dict(x=normal(2, 5, 6, std=0.003)), init=NARROW),
        fresh("as it is made", d_model=6, eps=0.3),
        case("one token", dict(x=normal(6, shift=0.8)), init=EPS),
        case("two calls", RMS_X, then=(dict(x=(1, 3, 6)), RMS_X), init=EPS, train=True),
        case("as many tokens as features", dict(x=normal(6, 6, 6)), init=EPS),
        case("zeros", dict(x=given(lambda g, o: torch.zeros(3, 6, dtype=torch.float64))), init=EPS, grad=False),
        case(
            "half precision, numbers near 400",
            dict(x=normal(4, 8, std=60.0, shift=400.0)),
            init=dict(d_model=8),
            **HALF,
        ),
    ),
    mistakes={
        "no centring here": Replays(
            wrong_module(_RMSNorm, forward=lambda self, x: standard(x, self.eps) * self.gamma),
            wrong_module(_RMSNorm, forward=lambda self, x: (x - mean(x)) / self.size(x) * self.gamma),
            wrong_module(_RMSNorm, size=lambda self, x: (x.var(-1, correction=0, keepdim=True) + self.eps).sqrt()),
        ),
        "mean of squares, not sum": Replays(
            wrong_module(_RMSNorm, size=lambda self, x: (x.square().sum(-1, keepdim=True) + self.eps).sqrt()),
            wrong_module(_RMSNorm, size=lambda self, x: x.norm(dim=-1, keepdim=True) + self.eps),
            wrong_module(_RMSNorm, size=lambda self, x: x.norm(dim=-1, keepdim=True)),
        ),
        "eps belongs under the root": wrong_module(
            _RMSNorm, size=lambda self, x: x.square().mean(-1, keepdim=True).sqrt() + self.eps
        ),
        "eps was ignored": wrong_module(
            _RMSNorm, size=lambda self, x: (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        ),
        "divide by the root": wrong_module(_RMSNorm, size=lambda self, x: x.square().mean(-1, keepdim=True) + self.eps),
        "half precision overflowed: compute in float32": Spotted(
            rules.half_overflowed,
            wrong_module(_RMSNorm, forward=lambda self, x: x / self.size(x) * self.gamma),
        ),
        "RMSNorm has no beta": Spotted(rules.too_many_parameters, _WithBeta),
        "gamma was left out": wrong_module(_RMSNorm, forward=lambda self, x: x / self.size(x)),
        "each token by itself": wrong_module(_RMSNorm, size=lambda self, x: (x.square().mean() + self.eps).sqrt()),
    },
)
