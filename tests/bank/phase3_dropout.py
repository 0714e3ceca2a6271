"""attention_dropout: wrong solutions and unusual right ones."""

import numpy as np
import torch
from torch.nn import functional as F

from tests.bank import right, wrong


def refuse(p):
    if not 0 <= p < 1:
        raise ValueError("p must be in [0, 1)")


def drawn(weights, generator):
    return torch.rand(weights.shape, generator=generator, dtype=weights.dtype)


@wrong("attention_dropout", says="keep the expectation: divide by 1−p")
def undivided(weights, p, generator):
    refuse(p)
    return weights.masked_fill(drawn(weights, generator) < p, 0.0)


@wrong("attention_dropout", says="rows need not sum to 1 in training")
def renormalised(weights, p, generator):
    refuse(p)
    kept = weights * (drawn(weights, generator) >= p)
    return kept / kept.sum(-1, keepdim=True).clamp(min=1e-9)


@wrong("attention_dropout", says="each example drops its own weights")
def one_pattern_for_the_batch(weights, p, generator):
    refuse(p)
    return weights * (drawn(weights[0], generator) >= p) / (1 - p)


@wrong("attention_dropout", says="all chance comes from the generator")
def global_state(weights, p, generator):
    refuse(p)
    return F.dropout(weights, p)


@wrong("attention_dropout", says="p is the share that is dropped")
def keeps_p(weights, p, generator):
    refuse(p)
    return weights * (drawn(weights, generator) < p) / max(1 - p, p)


@wrong("attention_dropout", says="drop by chance, not an exact share")
def sorted_rows(weights, p, generator):
    refuse(p)
    count = round(p * weights.shape[-1])
    rank = drawn(weights, generator).argsort(-1).argsort(-1)
    return weights * (rank >= count) / (1 - p)


@wrong("attention_dropout", says="nothing was dropped")
def as_in_eval(weights, p, generator):
    refuse(p)
    return weights.clone()


@wrong("attention_dropout")
def one_pattern_for_all_heads(weights, p, generator):
    refuse(p)
    return weights * (drawn(weights[:, :1], generator) >= p) / (1 - p)


@wrong("attention_dropout")
def whole_rows(weights, p, generator):
    refuse(p)
    return weights * (drawn(weights[..., :1], generator) >= p) / (1 - p)


@wrong("attention_dropout")
def whole_keys(weights, p, generator):
    refuse(p)
    return weights * (drawn(weights[..., :1, :], generator) >= p) / (1 - p)


@wrong("attention_dropout")
def always_the_same(weights, p, generator):
    refuse(p)
    return weights * (drawn(weights, torch.Generator().manual_seed(generator.initial_seed())) >= p) / (1 - p)


@wrong("attention_dropout")
def reseeded(weights, p, generator):
    refuse(p)
    generator.manual_seed(0)
    return weights * (drawn(weights, generator) >= p) / (1 - p)


@wrong("attention_dropout")
def no_gradient(weights, p, generator):
    refuse(p)
    return weights.detach() * (drawn(weights, generator) >= p) / (1 - p)


@wrong("attention_dropout")
def gradient_not_divided(weights, p, generator):
    refuse(p)
    kept = weights * (drawn(weights, generator) >= p)
    return kept + (kept.detach() / (1 - p) - kept.detach())


@wrong("attention_dropout")
def in_place(weights, p, generator):
    refuse(p)
    with torch.no_grad():
        weights *= drawn(weights, generator) >= p
    return weights / (1 - p)


@wrong("attention_dropout")
def refuses_nothing(weights, p, generator):
    return weights * (drawn(weights, generator) >= p) / (1 - p if p < 1 else 1)


@right("attention_dropout", why="bernoulli_ in place of uniform numbers")
def by_bernoulli(weights, p, generator):
    refuse(p)
    return torch.zeros_like(weights).bernoulli_(1 - p, generator=generator).div(1 - p) * weights


@right("attention_dropout", why="masked_fill of what is dropped, divided after")
def filled(weights, p, generator):
    refuse(p)
    return weights.masked_fill(torch.rand(weights.shape, generator=generator) < p, 0.0) / (1 - p)


@right("attention_dropout", why="normal numbers and a quantile")
def by_normal_numbers(weights, p, generator):
    refuse(p)
    limit = torch.special.ndtri(torch.tensor(float(p), dtype=torch.float64))
    keep = torch.randn(weights.shape, generator=generator, dtype=torch.float64) > limit
    return torch.where(keep, weights / (1 - p), torch.zeros_like(weights))


@right("attention_dropout", why="bernoulli of a table of probabilities, multiplied in float")
def by_a_table(weights, p, generator):
    refuse(p)
    keep = torch.bernoulli(torch.full(weights.shape, 1.0 - p, dtype=weights.dtype), generator=generator)
    return weights * keep * (1.0 / (1.0 - p))


@right("attention_dropout", why="NumPy's numbers from a seed that the generator draws")
def through_numpy(weights, p, generator):
    refuse(p)
    seed = torch.randint(2**31, (), generator=generator).item()
    keep = torch.from_numpy(np.random.default_rng(seed).random(tuple(weights.shape)) >= p)
    return weights * keep / (1 - p)
