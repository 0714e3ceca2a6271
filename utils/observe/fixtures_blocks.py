"""What cases of phase 4 hand to a learner's object: a sub-layer, a list of blocks, a model to initialise, sizes.

Their numbers come from a seed and have torch's default dtype.
"""

import torch
import torch.nn.functional as F
from torch import nn

from utils.config import ModelConfig
from utils.observe.layers import PROJECTIONS


def _drawn(generator, *shape, std=0.5):
    return (std * torch.randn(shape, generator=generator, dtype=torch.float64)).to(torch.get_default_dtype())


class Branch(nn.Module):
    """A sub-layer that is not linear, depends on a second argument and on an option; gain 0 makes it silent."""

    def __init__(self, width=6, gain=1.0, seed=0):
        super().__init__()
        self.gain = gain
        self.weight = nn.Parameter(_drawn(torch.Generator().manual_seed(seed), width, width))

    def forward(self, x, memory=None, shift=0.0):
        mixed = torch.tanh(x @ self.weight + shift)
        if memory is not None:
            mixed = mixed * (1 + memory)
        return self.gain * mixed


class Block(nn.Module):
    """A residual block of two matrices, two biases and a norm; norm_first as everywhere."""

    def __init__(self, width, norm_first, generator):
        super().__init__()
        self.first = norm_first
        self.gamma, self.beta = nn.Parameter(_drawn(generator, width)), nn.Parameter(_drawn(generator, width))
        self.w_1 = nn.Parameter(_drawn(generator, width, 2 * width))
        self.w_2 = nn.Parameter(_drawn(generator, 2 * width, width))
        self.b_1 = nn.Parameter(_drawn(generator, 2 * width))

    def norm(self, x):
        spread, middle = torch.var_mean(x, -1, correction=0, keepdim=True)
        return (x - middle) * (spread + 1e-5).rsqrt() * self.gamma + self.beta

    def forward(self, x):
        inside = self.norm(x) if self.first else x
        out = x + torch.tanh(inside @ self.w_1 + self.b_1) @ self.w_2
        return out if self.first else self.norm(out)


def stack(n_layers=3, width=12, norm_first=True, marked=False, training=False, seed=0):
    """A list of blocks; `marked`: with numbers in .grad that have to stay."""
    generator = torch.Generator().manual_seed(seed)
    blocks = [Block(width, norm_first, generator).train(training) for _ in range(n_layers)]
    for number, parameter in enumerate(p for block in blocks for p in block.parameters()):
        if marked and number % 2:
            parameter.grad = torch.full_like(parameter, 3.0 + number)
    return blocks


class _Norm(nn.Module):
    def __init__(self, width, with_beta=True):
        super().__init__()
        self.gamma = nn.Parameter(torch.empty(width))
        if with_beta:
            self.beta = nn.Parameter(torch.empty(width))


class _Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        for name in PROJECTIONS:
            setattr(self, name, nn.Linear(width, width))


class _FeedForward(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(width, hidden), nn.Linear(hidden, width)


class _Gated(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.w_gate = nn.Linear(width, hidden, bias=False)
        self.w_up = nn.Linear(width, hidden, bias=False)
        self.w_down = nn.Linear(hidden, width, bias=False)


class _Positions(nn.Module):
    def __init__(self, places, width):
        super().__init__()
        self.table = nn.Parameter(torch.empty(places, width))


class _Layer(nn.Module):
    def __init__(self, width, hidden, gated):
        super().__init__()
        self.norm1, self.norm2 = _Norm(width), _Norm(width, with_beta=not gated)
        self.attention = _Attention(width)
        self.ffn = (_Gated if gated else _FeedForward)(width, hidden)


class _Model(nn.Module):
    """A model with every kind of parameter; it is initialised, never run."""

    def __init__(self, width, hidden, vocab_size, tied, outer):
        super().__init__()
        table = self.token_embedding = nn.Embedding(vocab_size, width)
        self.positions = _Positions(hidden, width)
        self.blocks = nn.ModuleList([_Layer(width, hidden, gated=False), _Layer(width, hidden, gated=True)])
        self.norm = _Norm(width)
        if outer:
            self.w_outer = nn.Linear(width, hidden)
            self.w_2_first = nn.Linear(width, hidden)
        self.output = nn.Linear(width, vocab_size, bias=False)
        if tied:
            self.output.weight = table.weight


def model(width=48, hidden=160, vocab_size=160, tied=True, outer=False, seed=0):
    """A model in which every parameter holds numbers of its own, none of them right; `outer`: with layers whose
    names contain others.
    """
    built, generator = _Model(width, hidden, vocab_size, tied, outer), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.copy_(0.3 + _drawn(generator, *parameter.shape, std=0.7))
    return built


def bend(x):
    """An activation given as a function."""
    return F.softplus(x) - 0.5


KINDS = {"branch": Branch, "stack": stack, "model": model, "config": ModelConfig, "activation": lambda: bend}
