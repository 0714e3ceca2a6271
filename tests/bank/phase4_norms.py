"""layer_norm, LayerNorm: wrong solutions and unusual right ones."""

import math

import torch
from torch import nn

from tests.bank import right, wrong


def refuse(x, gamma, beta):
    if gamma.shape != x.shape[-1:] or beta.shape != x.shape[-1:]:
        raise ValueError("gamma and beta need the width of a token")


def wide(x):
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def shared(normed):
    """A layer_norm from normed(x, eps), everything else right."""

    def layer_norm(x, gamma, beta, eps):
        refuse(x, gamma, beta)
        out = normed(wide(x), eps) * wide(gamma) + wide(beta)
        return out.to(x.dtype)

    return layer_norm


def named(function, name):
    function.__name__ = name
    return function


def parts(x, dim=-1, correction=0):
    return x - x.mean(dim, keepdim=True), x.var(dim, correction=correction, keepdim=True)


# ---------------------------------------------------------------- wrong: layer_norm

SLIPS = {
    "eps_outside": ("eps belongs under the root", lambda x, eps: parts(x)[0] / (parts(x)[1].sqrt() + eps)),
    "no_eps": ("eps was left out: a constant row must stay finite", lambda x, eps: parts(x)[0] / parts(x)[1].sqrt()),
    "unbiased": ("use the biased variance", lambda x, eps: parts(x)[0] / (x.var(-1, keepdim=True) + eps).sqrt()),
    "no_root": (
        "divide by the deviation, not by the variance",
        lambda x, eps: parts(x)[0] / (parts(x)[1] + eps),
    ),
    "whole_array": (
        "each token by itself",
        lambda x, eps: (x - x.mean()) / (x.var(correction=0) + eps).sqrt(),
    ),
    "first_axis": ("each token by itself", lambda x, eps: parts(x, 0)[0] / (parts(x, 0)[1] + eps).sqrt()),
    "not_centred": ("the mean was not subtracted", lambda x, eps: x / (parts(x)[1] + eps).sqrt()),
    "eps_fixed": (None, lambda x, eps: parts(x)[0] / (parts(x)[1] + 1e-5).sqrt()),
    "eps_squared": (None, lambda x, eps: parts(x)[0] / (parts(x)[1] + eps**2).sqrt()),
    "detached": (None, lambda x, eps: parts(x)[0] / (parts(x)[1] + eps).sqrt().detach()),
    "mean_detached": (
        None,
        lambda x, eps: (x - x.mean(-1, keepdim=True).detach()) / (parts(x)[1] + eps).sqrt(),
    ),
    "mean_absolute": (None, lambda x, eps: parts(x)[0] / (parts(x)[0].abs().mean(-1, keepdim=True) + eps)),
}
for _label, (_says, _normed) in SLIPS.items():
    wrong("layer_norm", says=_says)(named(shared(_normed), _label))


@wrong("layer_norm", says="scale first, then shift")
def shift_first(x, gamma, beta, eps):
    refuse(x, gamma, beta)
    centred, variance = parts(wide(x))
    return ((centred / (variance + eps).sqrt() + beta) * gamma).to(x.dtype)


@wrong("layer_norm", says="gamma and beta were left out")
def no_affine(x, gamma, beta, eps):
    refuse(x, gamma, beta)
    centred, variance = parts(wide(x))
    return (centred / (variance + eps).sqrt()).to(x.dtype)


@wrong("layer_norm", says="half precision overflowed: compute in float32")
def half_stays_half(x, gamma, beta, eps):
    refuse(x, gamma, beta)
    centred = x - x.mean(-1, keepdim=True)
    return centred / ((centred * centred).mean(-1, keepdim=True) + eps).sqrt() * gamma + beta


@wrong("layer_norm")
def returns_float32(x, gamma, beta, eps):
    refuse(x, gamma, beta)
    centred, variance = parts(wide(x))
    return centred / (variance + eps).sqrt() * wide(gamma) + wide(beta)


@wrong("layer_norm")
def always_float32(x, gamma, beta, eps):
    refuse(x, gamma, beta)
    centred, variance = parts(x.float())
    return (centred / (variance + eps).sqrt() * gamma + beta).to(x.dtype)


@wrong("layer_norm", says="a gamma or beta of another shape must be refused")
def takes_anything(x, gamma, beta, eps):
    centred, variance = parts(wide(x))
    return (centred / (variance + eps).sqrt() * wide(gamma) + wide(beta)).to(x.dtype)


@wrong("layer_norm")
def in_place(x, gamma, beta, eps):
    refuse(x, gamma, beta)
    x -= x.mean(-1, keepdim=True)
    return (wide(x) / (wide(x).square().mean(-1, keepdim=True) + eps).sqrt() * gamma + beta).to(x.dtype)


@wrong("layer_norm")
def torchs_own(x, gamma, beta, eps):
    refuse(x, gamma, beta)
    return nn.functional.layer_norm(x, x.shape[-1:], gamma, beta, eps)


@wrong("layer_norm")
def batch_norm_in_disguise(x, gamma, beta, eps):
    refuse(x, gamma, beta)
    flat = wide(x).reshape(-1, x.shape[-1]).T
    normed = nn.functional.batch_norm(flat, None, None, training=True, eps=eps).T.reshape(x.shape)
    return (normed * wide(gamma) + wide(beta)).to(x.dtype)


# ---------------------------------------------------------------- right: layer_norm


@right("layer_norm", why="torch.var_mean and rsqrt")
def with_var_mean(x, gamma, beta, eps):
    refuse(x, gamma, beta)
    variance, mean = torch.var_mean(wide(x), dim=-1, correction=0, keepdim=True)
    return torch.addcmul(wide(beta), (wide(x) - mean) * (variance + eps).rsqrt(), wide(gamma)).to(x.dtype)


@right("layer_norm", why="mean of squares minus squared mean, in float64")
def by_moments(x, gamma, beta, eps):
    refuse(x, gamma, beta)
    x64 = x.double()
    mean = x64.mean(-1, keepdim=True)
    variance = (x64 * x64).mean(-1, keepdim=True) - mean * mean
    return ((x64 - mean) * torch.rsqrt(variance + eps) * gamma.double() + beta.double()).to(x.dtype)


@right("layer_norm", why="a matrix that centres, then a norm of each row")
def centring_matrix(x, gamma, beta, eps):
    refuse(x, gamma, beta)
    d_model, values = x.shape[-1], wide(x)
    centre = torch.eye(d_model, dtype=values.dtype) - 1 / d_model
    centred = values @ centre
    length = (torch.linalg.vecdot(centred, centred)[..., None] + d_model * eps).sqrt()
    return (math.sqrt(d_model) * centred / length * wide(gamma) + wide(beta)).to(x.dtype)


@right("layer_norm", why="row by row in a python loop")
def row_by_row(x, gamma, beta, eps):
    refuse(x, gamma, beta)
    made = []
    for row in wide(x).reshape(-1, x.shape[-1]).unbind(0):
        centred = row - row.sum() / len(row)
        made.append(centred / (centred.dot(centred) / len(row) + eps) ** 0.5 * wide(gamma) + wide(beta))
    return torch.stack(made).reshape(x.shape).to(x.dtype)


@right("layer_norm", why="torch.std with correction=0, squared again")
def by_std(x, gamma, beta, eps):
    refuse(x, gamma, beta)
    values = x.to(torch.promote_types(x.dtype, torch.float32))
    mean = torch.mean(values, -1, True)
    deviation = torch.hypot(spread(values), torch.tensor(eps).sqrt().to(values))
    return ((values - mean) / deviation * gamma + beta).to(x.dtype)


def spread(values):
    """The deviation of each row, with a slope of 0 where a row is constant."""
    return (values - values.mean(-1, keepdim=True)).norm(dim=-1, keepdim=True) / values.shape[-1] ** 0.5


# ---------------------------------------------------------------- LayerNorm and RMSNorm


class Norm(nn.Module):
    """Right as it stands, for LayerNorm; each wrong solution changes one method."""

    default, with_beta = 1e-5, True

    def __init__(self, d_model, eps=None):
        super().__init__()
        self.eps = self.default if eps is None else eps
        self.make(d_model)

    def make(self, d_model):
        self.gamma = nn.Parameter(torch.ones(d_model))
        if self.with_beta:
            self.beta = nn.Parameter(torch.zeros(d_model))

    def normed(self, x):
        centred, variance = parts(x)
        return centred / (variance + self.eps).sqrt()

    def forward(self, x):
        out = self.normed(wide(x)) * wide(self.gamma)
        return (out + wide(self.beta) if self.with_beta else out).to(x.dtype)


@wrong("LayerNorm", says="eps was ignored")
class EpsFixed(Norm):
    def normed(self, x):
        return parts(x)[0] / (parts(x)[1] + 1e-5).sqrt()


@wrong("LayerNorm", says="eps belongs under the root")
class EpsOutside(Norm):
    def normed(self, x):
        return parts(x)[0] / (parts(x)[1].sqrt() + self.eps)


@wrong("LayerNorm")
class OtherDefault(Norm):
    default = 1e-6


@wrong("LayerNorm", says="use the biased variance")
class Unbiased(Norm):
    def normed(self, x):
        return parts(x)[0] / (x.var(-1, keepdim=True) + self.eps).sqrt()


@wrong("LayerNorm", says="gamma and beta must be parameters")
class PlainTensors(Norm):
    def make(self, d_model):
        self.gamma, self.beta = torch.ones(d_model), torch.zeros(d_model)


@wrong("LayerNorm", says="gamma and beta must be parameters")
class Buffers(Norm):
    def make(self, d_model):
        self.register_buffer("gamma", torch.ones(d_model))
        self.register_buffer("beta", torch.zeros(d_model))


@wrong("LayerNorm", says="gamma starts at ones and beta at zeros")
class GammaFromZero(Norm):
    def make(self, d_model):
        self.gamma, self.beta = nn.Parameter(torch.zeros(d_model)), nn.Parameter(torch.zeros(d_model))


@wrong("LayerNorm")
class GammaDrawn(Norm):
    def make(self, d_model):
        self.gamma, self.beta = nn.Parameter(torch.randn(d_model)), nn.Parameter(torch.zeros(d_model))


@wrong("LayerNorm")
class Keepdim(Norm):
    def normed(self, x):
        return (x - x.mean(-1)) / (x.var(-1, correction=0) + self.eps).sqrt()


@wrong("LayerNorm")
class RunningMean(Norm):
    def make(self, d_model):
        super().make(d_model)
        self.register_buffer("running", torch.zeros(1))

    def normed(self, x):
        centred, variance = parts(x)
        if self.training:
            self.running.mul_(0.9).add_(0.1 * x.detach().mean())
        return (centred - (0 if self.training else self.running)) / (variance + self.eps).sqrt()


@wrong("LayerNorm")
class OneGamma(Norm):
    def make(self, d_model):
        self.gamma, self.beta = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))


@wrong("LayerNorm")
class Inherited(nn.LayerNorm):
    pass


@right("LayerNorm", why="plain sums inside forward")
class PlainLayerNorm(Norm):
    pass


@right("LayerNorm", why="register_parameter, and a function outside")
class Registered(Norm):
    def make(self, d_model):
        self.register_parameter("gamma", nn.Parameter(torch.full((d_model,), 1.0)))
        self.register_parameter("beta", nn.Parameter(torch.full((d_model,), 0.0)))

    def forward(self, x):
        return with_var_mean(x, self.gamma, self.beta, self.eps)


@right("LayerNorm", why="gamma stored as an offset from 1, filled through load_weights")
class Offset(Norm):
    def make(self, d_model):
        self.offset, self.beta = nn.Parameter(torch.zeros(d_model)), nn.Parameter(torch.zeros(d_model))

    def load_weights(self, weights):
        self.offset.copy_(weights["gamma"] - 1)
        self.beta.copy_(weights["beta"])

    @property
    def gamma(self):
        return 1 + self.offset


@right("LayerNorm", why="moments in float64")
class Float64(Norm):
    def forward(self, x):
        return by_moments(x, self.gamma, self.beta, self.eps)
