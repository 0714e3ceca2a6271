"""RMSNorm, layer_norm_backward: wrong solutions and unusual right ones."""

import numpy as np
import torch
from torch import nn

from tests.bank import right, wrong
from tests.bank.phase4_norms import Norm, named, parts, wide


class _RMS(Norm):
    default, with_beta = 1e-6, False

    def normed(self, x):
        return x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt()


@wrong("RMSNorm", says="no centring here")
class Centred(_RMS):
    normed = Norm.normed


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
