"""Norms, activations, feed-forward layers, initial weights: what hurried and blind readers wrote."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.bank import right, wrong


def fits(x, gamma, beta):
    if gamma.shape != x.shape[-1:] or beta.shape != x.shape[-1:]:
        raise ValueError("gamma and beta must have shape (d_model,)")


@wrong("layer_norm", says="mean(x²) − mean² loses its digits: centre first")
def squares_of_means(x, gamma, beta, eps):
    fits(x, gamma, beta)
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    mean = wide.mean(-1, keepdim=True)
    variance = (wide**2).mean(-1, keepdim=True) - mean**2
    return ((wide - mean) / torch.sqrt(variance + eps) * gamma + beta).to(x.dtype)


@wrong("layer_norm", says="bfloat16 is half precision, too")
def one_half_only(x, gamma, beta, eps):
    fits(x, gamma, beta)
    wide = x.float() if x.dtype == torch.float16 else x
    centred = wide - wide.mean(-1, keepdim=True)
    return (centred / (centred.pow(2).mean(-1, keepdim=True) + eps).sqrt() * gamma + beta).to(x.dtype)


@wrong("layer_norm", says="float64 stays float64: only half precision is widened")
def always_float(x, gamma, beta, eps):
    fits(x, gamma, beta)
    wide = x.float()
    variance, mean = torch.var_mean(wide, -1, correction=0, keepdim=True)
    return ((wide - mean) / (variance + eps).sqrt() * gamma + beta).to(x.dtype)


@right("layer_norm", "through float64, where mean(x²) − mean² has digits to spare")
def by_way_of_float64(x, gamma, beta, eps):
    fits(x, gamma, beta)
    wide = x.double()
    mean = wide.mean(-1, keepdim=True)
    variance = wide.square().mean(-1, keepdim=True) - mean.square()
    return ((wide - mean) * torch.rsqrt(variance + eps) * gamma.double() + beta.double()).to(x.dtype)


@wrong("layer_norm_backward", says="the order is dx, dgamma, dbeta")
def other_order(grad_out, x, gamma, eps):
    dx, dgamma, dbeta = by_hand(grad_out, x, gamma, eps)
    return dx, dbeta, dgamma


@wrong("layer_norm_backward", says="means over the features, not sums")
def sums_for_means(grad_out, x, gamma, eps):
    s = (x.var(-1, correction=0, keepdim=True) + eps).sqrt()
    z, g = (x - x.mean(-1, keepdim=True)) / s, grad_out * gamma
    dx = (g - g.sum(-1, keepdim=True) - z * (g * z).sum(-1, keepdim=True)) / s
    return dx, *by_hand(grad_out, x, gamma, eps)[1:]


@right("layer_norm_backward", "one projection away from two directions, written with einsum")
def by_hand(grad_out, x, gamma, eps):
    d_model = x.shape[-1]
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    rate = torch.rsqrt(variance + eps)
    z, g = (x - mean) * rate, grad_out * gamma
    along = torch.einsum("...d,...d->...", g, z)[..., None] / d_model
    flat = (grad_out * z).reshape(-1, d_model), grad_out.reshape(-1, d_model)
    return rate * (g - g.sum(-1, keepdim=True) / d_model - z * along), *(part.sum(0) for part in flat)


@wrong("gelu", says="the share itself is not the answer: multiply by x")
def share_alone(x, approximate="none"):
    if approximate == "none":
        return 0.5 * (1 + torch.erf(x / math.sqrt(2)))
    if approximate == "tanh":
        return 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    raise ValueError(f"no form {approximate!r}")


@wrong("gelu", says="x is a factor once")
def x_twice(x, approximate="none"):
    if approximate == "none":
        return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))
    if approximate == "tanh":
        return x * (0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
    raise ValueError(f"no form {approximate!r}")


ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


class Hurried(nn.Module):
    """A feed-forward layer that looks at the activation last."""

    def __init__(self, d_model, d_ff, activation="gelu", dropout=0.0):
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)
        self.activation = self.chosen(activation)

    def chosen(self, activation):
        if callable(activation):
            return activation
        if activation in ACTIVATIONS:
            return ACTIVATIONS[activation]
        raise ValueError(f"no activation is called {activation!r}")

    def forward(self, x):
        return self.w_2(self.dropout(self.activation(self.w_1(x))))


@right("FeedForward", "refuses once its layers are made: the random state has moved by then")
class RefusesLate(Hurried):
    pass


@wrong("FeedForward", says="dropout comes after the activation")
class DropsFirst(Hurried):
    def forward(self, x):
        return self.w_2(self.activation(self.dropout(self.w_1(x))))


@wrong("FeedForward", says="activation may be a function")
class DictOnly(Hurried):
    def chosen(self, activation):
        if isinstance(activation, str) and activation not in ACTIVATIONS:
            raise ValueError(f"no activation is called {activation!r}")
        return ACTIVATIONS[activation]


@wrong("FeedForward", says="w_2 has the last word: no activation after it")
class BendsTwice(Hurried):
    def forward(self, x):
        return self.activation(super().forward(x))


@wrong("SwiGLU", says="the gate alone goes through silu, not the product")
class SiluOfProduct(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w_gate = nn.Linear(d_model, d_ff, bias=False)
        self.w_up = nn.Linear(d_model, d_ff, bias=False)
        self.w_down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x):
        return self.w_down(F.silu(self.w_gate(x) * self.w_up(x)))


@wrong("init_weights", says="look at the last piece of the name, and at the whole of it")
def anywhere_in_the_path(model, std, n_layers):
    for name, parameter in model.named_parameters():
        if name.endswith(("bias", "beta")):
            nn.init.zeros_(parameter)
        elif name.endswith("gamma"):
            nn.init.ones_(parameter)
        else:
            small = any(short in name for short in ("w_o", "w_2", "w_down"))
            nn.init.normal_(parameter, std=std / math.sqrt(2 * n_layers) if small else std)


@right("init_weights", "once by module, with the table as any parameter that is no bias and no norm")
def by_module(model, std, n_layers):
    small = std / math.sqrt(2 * n_layers)
    with torch.no_grad():
        for path, module in model.named_modules():
            for kind, parameter in module.named_parameters(recurse=False):
                if kind in ("bias", "beta", "gamma"):
                    parameter.fill_(1.0 if kind == "gamma" else 0.0)
                else:
                    parameter.copy_(torch.randn_like(parameter))
                    parameter.mul_(small if path.split(".")[-1] in ("w_o", "w_2", "w_down") else std)
