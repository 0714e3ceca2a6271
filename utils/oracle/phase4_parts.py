"""Twins of phase 4, the parts: norms, activations, feed-forward layers. torch's own kernels do the work."""

import torch
import torch.nn.functional as F
from torch import nn

from utils.observe.forbid import twin

__all__ = ["FeedForward", "LayerNorm", "RMSNorm", "SwiGLU", "gelu", "layer_norm", "layer_norm_backward"]

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


def _wide(x):
    """At least float32."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


@twin
def layer_norm(x, gamma, beta, eps):
    """torch's kernel, in float32 where x is narrower."""
    width = x.shape[-1:]
    if gamma.shape != width or beta.shape != width:
        raise ValueError(f"gamma and beta must have shape ({width[0]},)")
    return F.layer_norm(_wide(x), width, _wide(gamma), _wide(beta), eps).to(x.dtype)


@twin
class LayerNorm(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.gamma, self.beta, self.eps = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model)), eps

    def forward(self, x):
        return F.layer_norm(_wide(x), self.gamma.shape, _wide(self.gamma), _wide(self.beta), self.eps).to(x.dtype)


@twin
def layer_norm_backward(grad_out, x, gamma, eps):
    """torch's own backward kernel."""
    width = x.shape[-1:]
    mean = x.mean(-1, keepdim=True)
    rstd = (x.var(-1, correction=0, keepdim=True) + eps).rsqrt()
    grads = torch.ops.aten.native_layer_norm_backward(
        grad_out.contiguous(), x.contiguous(), list(width), mean, rstd, gamma, torch.zeros_like(gamma), [True] * 3
    )
    return tuple(grads)


@twin
class RMSNorm(nn.Module):
    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.gamma, self.eps = nn.Parameter(torch.ones(d_model)), eps

    def forward(self, x):
        return F.rms_norm(_wide(x), self.gamma.shape, _wide(self.gamma), self.eps).to(x.dtype)


@twin
def gelu(x, approximate="none"):
    if approximate not in ("none", "tanh"):
        raise ValueError('approximate must be "none" or "tanh"')
    return F.gelu(x, approximate=approximate)


@twin
class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, activation="gelu", dropout=0.0):
        super().__init__()
        if not callable(activation) and activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)} or a function")
        self.activation = activation if callable(activation) else ACTIVATIONS[activation]
        self.w_1, self.w_2, self.dropout = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model), dropout

    def forward(self, x):
        return self.w_2(F.dropout(self.activation(self.w_1(x)), self.dropout, self.training))


@twin
class SwiGLU(nn.Module):
    """torch's glu gates with a sigmoid; the missing factor z makes it a silu."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w_gate = nn.Linear(d_model, d_ff, bias=False)
        self.w_up = nn.Linear(d_model, d_ff, bias=False)
        self.w_down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x):
        gate = self.w_gate(x)
        return self.w_down(F.glu(torch.cat([gate * self.w_up(x), gate], -1), -1))
