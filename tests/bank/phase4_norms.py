"""layer_norm, LayerNorm, layer_norm_backward, RMSNorm: wrong solutions and unusual right ones."""

import math

import numpy as np
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
    "no_eps": ("a constant row must stay finite", lambda x, eps: parts(x)[0] / parts(x)[1].sqrt()),
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


class _Norm(nn.Module):
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
class EpsFixed(_Norm):
    def normed(self, x):
        return parts(x)[0] / (parts(x)[1] + 1e-5).sqrt()


@wrong("LayerNorm", says="eps belongs under the root")
class EpsOutside(_Norm):
    def normed(self, x):
        return parts(x)[0] / (parts(x)[1].sqrt() + self.eps)


@wrong("LayerNorm")
class OtherDefault(_Norm):
    default = 1e-6


@wrong("LayerNorm", says="use the biased variance")
class Unbiased(_Norm):
    def normed(self, x):
        return parts(x)[0] / (x.var(-1, keepdim=True) + self.eps).sqrt()


@wrong("LayerNorm", says="gamma and beta must be parameters")
class PlainTensors(_Norm):
    def make(self, d_model):
        self.gamma, self.beta = torch.ones(d_model), torch.zeros(d_model)


@wrong("LayerNorm", says="gamma and beta must be parameters")
class Buffers(_Norm):
    def make(self, d_model):
        self.register_buffer("gamma", torch.ones(d_model))
        self.register_buffer("beta", torch.zeros(d_model))


@wrong("LayerNorm", says="gamma starts at ones and beta at zeros")
class GammaFromZero(_Norm):
    def make(self, d_model):
        self.gamma, self.beta = nn.Parameter(torch.zeros(d_model)), nn.Parameter(torch.zeros(d_model))


@wrong("LayerNorm")
class GammaDrawn(_Norm):
    def make(self, d_model):
        self.gamma, self.beta = nn.Parameter(torch.randn(d_model)), nn.Parameter(torch.zeros(d_model))


@wrong("LayerNorm")
class Keepdim(_Norm):
    def normed(self, x):
        return (x - x.mean(-1)) / (x.var(-1, correction=0) + self.eps).sqrt()


@wrong("LayerNorm")
class RunningMean(_Norm):
    def make(self, d_model):
        super().make(d_model)
        self.register_buffer("running", torch.zeros(1))

    def normed(self, x):
        centred, variance = parts(x)
        if self.training:
            self.running.mul_(0.9).add_(0.1 * x.detach().mean())
        return (centred - (0 if self.training else self.running)) / (variance + self.eps).sqrt()


@wrong("LayerNorm")
class OneGamma(_Norm):
    def make(self, d_model):
        self.gamma, self.beta = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))


@wrong("LayerNorm")
class Inherited(nn.LayerNorm):
    pass


@right("LayerNorm", why="plain sums inside forward")
class PlainLayerNorm(_Norm):
    pass


@right("LayerNorm", why="register_parameter, and a function outside")
class Registered(_Norm):
    def make(self, d_model):
        self.register_parameter("gamma", nn.Parameter(torch.full((d_model,), 1.0)))
        self.register_parameter("beta", nn.Parameter(torch.full((d_model,), 0.0)))

    def forward(self, x):
        return with_var_mean(x, self.gamma, self.beta, self.eps)


@right("LayerNorm", why="gamma stored as an offset from 1, filled through load_weights")
class Offset(_Norm):
    def make(self, d_model):
        self.offset, self.beta = nn.Parameter(torch.zeros(d_model)), nn.Parameter(torch.zeros(d_model))

    def load_weights(self, weights):
        self.offset.copy_(weights["gamma"] - 1)
        self.beta.copy_(weights["beta"])

    @property
    def gamma(self):
        return 1 + self.offset


@right("LayerNorm", why="moments in float64")
class Float64(_Norm):
    def forward(self, x):
        return by_moments(x, self.gamma, self.beta, self.eps)


class _RMS(_Norm):
    default, with_beta = 1e-6, False

    def normed(self, x):
        return x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt()


@wrong("RMSNorm", says="no centring here")
class Centred(_RMS):
    normed = _Norm.normed


@wrong("RMSNorm", says="mean of squares, not sum")
class SumOfSquares(_RMS):
    def normed(self, x):
        return x / (x.square().sum(-1, keepdim=True) + self.eps).sqrt()


@wrong("RMSNorm", says="eps belongs under the root")
class RmsEpsOutside(_RMS):
    def normed(self, x):
        return x / (x.square().mean(-1, keepdim=True).sqrt() + self.eps)


@wrong("RMSNorm", says="half precision overflowed: compute in float32")
class HalfOverflows(_RMS):
    def forward(self, x):
        return self.normed(x) * self.gamma


@wrong("RMSNorm")
class ReturnsFloat32(_RMS):
    def forward(self, x):
        return self.normed(wide(x)) * wide(self.gamma)


@wrong("RMSNorm", says="RMSNorm has no beta")
class HasBeta(_RMS):
    with_beta = True


@wrong("RMSNorm", says="gamma was left out")
class GammaUnused(_RMS):
    def forward(self, x):
        return self.normed(wide(x)).to(x.dtype)


@wrong("RMSNorm")
class DefaultOfLayerNorm(_RMS):
    default = 1e-5


@wrong("RMSNorm")
class TorchsRms(_RMS):
    def forward(self, x):
        return nn.functional.rms_norm(x, x.shape[-1:], self.gamma, self.eps)


@wrong("RMSNorm")
class GammaAsOffset(_RMS):
    """1 + gamma, as some models have it."""

    def forward(self, x):
        return (self.normed(wide(x)) * (1 + wide(self.gamma))).to(x.dtype)


@right("RMSNorm", why="rsqrt of the mean of squares")
class Rsqrt(_RMS):
    def normed(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


@right("RMSNorm", why="the length of the vector")
class VectorNorm(_RMS):
    def normed(self, x):
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x / (length.square() / x.shape[-1] + self.eps).sqrt()


@right("RMSNorm", why="always a float64 copy and back")
class DoubleCopy(_RMS):
    def forward(self, x):
        return (self.normed(x.double()) * self.gamma.double()).type_as(x)


@right("RMSNorm", why="in half precision the result is narrowed before gamma")
class NarrowedEarly(_RMS):
    def forward(self, x):
        return self.normed(wide(x)).type_as(x) * self.gamma


# ---------------------------------------------------------------- layer_norm_backward


def backward(dx=None, dgamma=None, dbeta=None):
    """A solution whose three parts may be replaced: functions of (grad_out, gamma, normed, deviation)."""

    def layer_norm_backward(grad_out, x, gamma, eps):
        centred, variance = parts(x)
        deviation = (variance + eps).sqrt()
        normed = centred / deviation
        axes = tuple(range(x.dim() - 1))
        g = grad_out * gamma
        found = [
            (g - g.mean(-1, keepdim=True) - normed * (g * normed).mean(-1, keepdim=True)) / deviation,
            (grad_out * normed).sum(axes) if axes else grad_out * normed,
            grad_out.sum(axes) if axes else grad_out.clone(),
        ]
        for place, change in enumerate((dx, dgamma, dbeta)):
            found[place] = change(grad_out, gamma, normed, deviation) if change else found[place]
        return tuple(found)

    return layer_norm_backward


def over_tokens(values):
    return values.sum(tuple(range(values.dim() - 1))) if values.dim() > 1 else values.clone()


def rowmean(values):
    return values.mean(-1, keepdim=True)


BACKWARD_SLIPS = {
    "no_variance_term": ("the variance depends on x too", dict(dx=lambda u, g, z, s: (u * g - rowmean(u * g)) / s)),
    "no_mean_term": ("the mean depends on x too", dict(dx=lambda u, g, z, s: (u * g - z * rowmean(u * g * z)) / s)),
    "only_the_scale": ("mean and variance depend on x too", dict(dx=lambda u, g, z, s: u * g / s)),
    "no_gamma": ("gamma was ignored", dict(dx=lambda u, g, z, s: (u - rowmean(u) - z * rowmean(u * z)) / s)),
    "not_divided": (
        "dx must be divided by the deviation",
        dict(dx=lambda u, g, z, s: u * g - rowmean(u * g) - z * rowmean(u * g * z)),
    ),
    "per_token": (
        "shape: dgamma and dbeta are summed over all tokens",
        dict(dgamma=lambda u, g, z, s: u * z, dbeta=lambda u, g, z, s: u.clone()),
    ),
    "from_centred": ("dgamma needs the normalised x", dict(dgamma=lambda u, g, z, s: over_tokens(u * z * s))),
    "only_the_batch": (None, dict(dbeta=lambda u, g, z, s: u.sum(0), dgamma=lambda u, g, z, s: (u * z).sum(0))),
    "batch_mean": (
        "dgamma and dbeta are sums, not means",
        dict(
            dgamma=lambda u, g, z, s: over_tokens(u * z) / max(1, u[..., 0].numel()),
            dbeta=lambda u, g, z, s: over_tokens(u) / max(1, u[..., 0].numel()),
        ),
    ),
    "dgamma_and_dbeta_exchanged": (
        None,
        dict(dgamma=lambda u, g, z, s: over_tokens(u), dbeta=lambda u, g, z, s: over_tokens(u * z)),
    ),
    "sign": (None, dict(dx=lambda u, g, z, s: -(u * g - rowmean(u * g) - z * rowmean(u * g * z)) / s)),
}
for _label, (_says, _parts) in BACKWARD_SLIPS.items():
    wrong("layer_norm_backward", says=_says)(named(backward(**_parts), _label))


@wrong("layer_norm_backward")
def asks_autograd(grad_out, x, gamma, eps):
    x, gamma = x.detach().requires_grad_(), gamma.detach().requires_grad_()
    beta = torch.zeros_like(gamma, requires_grad=True)
    centred, variance = parts(x)
    out = centred / (variance + eps).sqrt() * gamma + beta
    return torch.autograd.grad(out, (x, gamma, beta), grad_out)


@wrong("layer_norm_backward")
def changes_its_argument(grad_out, x, gamma, eps):
    grad_out *= gamma
    return backward()(grad_out, x, torch.ones_like(gamma), eps)


@right("layer_norm_backward", why="the three terms, as in the book")
def three_terms(grad_out, x, gamma, eps):
    return backward()(grad_out, x, gamma, eps)


@right("layer_norm_backward", why="1/d factored out")
def factored(grad_out, x, gamma, eps):
    d, g = x.shape[-1], grad_out * gamma
    centred, variance = parts(x)
    inverse = torch.rsqrt(variance + eps)
    z = centred * inverse
    dx = inverse / d * (d * g - g.sum(-1, keepdim=True) - z * (g * z).sum(-1, keepdim=True))
    return dx, over_tokens(grad_out * z), over_tokens(grad_out)


@right("layer_norm_backward", why="one row's Jacobian, row by row")
def by_jacobians(grad_out, x, gamma, eps):
    d, eye, made = x.shape[-1], torch.eye(x.shape[-1], dtype=x.dtype), []
    rows, ups = x.reshape(-1, d), grad_out.reshape(-1, d)
    dgamma, dbeta = torch.zeros_like(gamma), torch.zeros_like(gamma)
    for row, up in zip(rows, ups, strict=True):
        centred, variance = parts(row)
        z = centred / (variance + eps).sqrt()
        jacobian = (eye - 1 / d - torch.outer(z, z) / d) / (variance + eps).sqrt()
        made.append(jacobian @ (up * gamma))
        dgamma, dbeta = dgamma + up * z, dbeta + up
    return torch.stack(made).reshape(x.shape), dgamma, dbeta


@right("layer_norm_backward", why="numpy inside, torch outside; a list is returned")
def in_numpy(grad_out, x, gamma, eps):
    u, v, g = (part.numpy() for part in (grad_out, x, gamma))
    z = (v - v.mean(-1, keepdims=True)) / np.sqrt(v.var(-1, keepdims=True) + eps)
    h = u * g
    dx = h - h.mean(-1, keepdims=True) - z * (h * z).mean(-1, keepdims=True)
    dx = dx / np.sqrt(v.var(-1, keepdims=True) + eps)
    flat = (-1, v.shape[-1])
    return [torch.from_numpy(part) for part in (dx, (u * z).reshape(flat).sum(0), u.reshape(flat).sum(0))]
