"""Twins of phase 5, costs: bytes and operations of decoding, how loss falls with size, what a budget buys."""

import math

import numpy as np
import torch
from torch import nn

from utils.observe.forbid import twin

__all__ = ["compute_optimal", "decode_flops", "fit_power_law", "kv_cache_bytes"]


@twin
def kv_cache_bytes(config, batch, seq_len, bytes_per_element):
    """By the shape of the thing."""
    d_head = config.d_model // config.n_heads
    heads = config.n_heads if config.n_kv_heads is None else config.n_kv_heads
    shape = (2, config.n_layers, batch, heads, seq_len, d_head)
    return torch.empty(shape, device="meta").numel() * bytes_per_element


@twin
def decode_flops(config, n_tokens, use_cache):
    """Step by step: rows through the block's matrices, then rows times keys."""
    d_model, heads = config.d_model, config.n_kv_heads or config.n_heads
    narrow = d_model // config.n_heads * heads
    with torch.device("meta"):
        sizes = [(d_model, d_model), (d_model, narrow), (d_model, narrow), (d_model, d_model)]
        sizes += [(d_model, config.d_ff), (config.d_ff, d_model)]
        weights = sum(nn.Linear(*size, bias=False).weight.numel() for size in sizes)
    steps = range(1, n_tokens + 1)
    rows = [1 if use_cache else t for t in steps]
    products = sum(2 * row * t * d_model for row, t in zip(rows, steps, strict=True))
    return 2 * config.n_layers * (sum(rows) * weights + products)


@twin
def fit_power_law(sizes, losses):
    """The floor is searched, ever more finely, such that the rest is a straight line in logarithms."""
    x, y = np.log(np.asarray(sizes, dtype=float)), np.asarray(losses, dtype=float)
    center = x.mean()
    low, high = -10.0, math.log(1 - 1e-12)  # of log((min - E) / min), turned round: E = min · (1 - exp(…))

    def line(place):
        floor = y.min() * (1 - math.exp(place))
        slope, level = np.polyfit(x - center, np.log(y - floor), 1)
        guess = floor + np.exp(level + slope * (x - center))
        return ((guess / y - 1) ** 2).sum(), floor, level - slope * center, -slope

    for _ in range(6):
        tried = [line(place) for place in np.linspace(low, high, 41)]
        best = min(range(41), key=lambda n: tried[n][0])
        step = (high - low) / 40
        low, high = low + (best - 1) * step, min(low + (best + 1) * step, math.log(1 - 1e-12))
    _, floor, level, alpha = tried[best]
    return {"E": float(floor), "A": float(math.exp(level)), "alpha": float(alpha)}


@twin
def compute_optimal(flops, fit):
    """Golden section over log N; the loss on the budget's line has one valley."""
    ratio = (math.sqrt(5) - 1) / 2
    budget = math.log(flops / 6)

    def loss(place):
        return fit["A"] * math.exp(-fit["alpha"] * place) + fit["B"] * math.exp(-fit["beta"] * (budget - place))

    low, high = 0.0, budget
    for _ in range(200):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if loss(left) < loss(right) else (left, high)
    return math.exp((low + high) / 2), math.exp(budget - (low + high) / 2)
