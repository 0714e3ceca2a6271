"""Layers and losses that a case hands to a learner's function; `fixtures.build` finds them here by name.

Their numbers come from a seed alone; torch's own random state stays as it is.
"""

import torch
from torch import nn

PROJECTIONS = ("w_q", "w_k", "w_v", "w_o")  # of an attention layer


def linear(d_in, d_out, bias=True, seed=0):
    """An nn.Linear with random weights and bias."""
    return _filled(nn.Linear(d_in, d_out, bias=bias, device="meta"), seed)


def packed(d_model, n_heads, seed=0, **options):
    """torch's own nn.MultiheadAttention with random weights and biases."""
    return _filled(nn.MultiheadAttention(d_model, n_heads, batch_first=True, device="meta", **options), seed)


def heads(d_model, n_heads, bias=True, training=False, seed=0):
    """A layer of several heads, without mask or memory: n_heads, w_q, w_k, w_v, w_o, all of them used."""

    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.n_heads = n_heads
            for name in PROJECTIONS:
                setattr(self, name, nn.Linear(d_model, d_model, bias=bias, device="meta"))

        def forward(self, x):
            parts = zip(*(layer(x).chunk(n_heads, -1) for layer in (self.w_q, self.w_k, self.w_v)), strict=True)
            mixed = [(q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v for q, k, v in parts]
            return self.w_o(torch.cat(mixed, -1))

    return _filled(Heads(), seed).train(training)


def loss(seed=0, raises_at=0):
    """A function from an output to a scalar: half the mean squared distance to something random, of any shape.

    raises_at: the number of the call at which it raises ValueError instead; 0 is never.
    """
    calls = []

    def distance(output):
        calls.append(None)
        if len(calls) == raises_at:
            raise ValueError("this loss refuses its output")
        generator = torch.Generator().manual_seed(seed)
        target = torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output.dtype)
        return (output - target).square().mean() / 2

    return distance


def turned(shape, seed=0):
    """Random numbers of this shape whose last two axes lie exchanged in memory: `view` cannot regroup them."""
    *first, rows, columns = shape
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*first, columns, rows, generator=generator, dtype=torch.float64).mT


def _filled(module, seed):
    """The module, off the meta device, with numbers that keep softmax soft; no bias is 0."""
    module, generator = module.to_empty(device="cpu").to(torch.float64), torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        fan_in = parameter.shape[-1] if parameter.dim() > 1 else 4
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * fan_in**-0.5
    return module


def once(values):
    """An iterator: what it has handed over, it has no longer."""
    return iter(values)


MAKERS = {"linear": linear, "packed": packed, "heads": heads, "loss": loss, "turned": turned, "once": once}
