"""score_variance: wrong solutions and unusual right ones."""

import math

import numpy as np
import torch

from tests.bank import right, wrong


def _draw(d_head, n_samples, generator):
    q = torch.randn(n_samples, d_head, generator=generator, dtype=torch.float64)
    k = torch.randn(n_samples, d_head, generator=generator, dtype=torch.float64)
    return q, k


# ---------------------------------------------------------------- wrong


@wrong("score_variance", says="divide by the root")
def divided_by_d_head(d_head, n_samples, generator):
    q, k = _draw(d_head, n_samples, generator)
    dots = (q * k).sum(-1)
    return dots.var(), (dots / d_head).var()


@wrong("score_variance")
def never_divided(d_head, n_samples, generator):
    q, k = _draw(d_head, n_samples, generator)
    dots = (q * k).sum(-1)
    return dots.var(), dots.var()


@wrong("score_variance")
def variance_divided_by_root(d_head, n_samples, generator):
    q, k = _draw(d_head, n_samples, generator)
    raw = (q * k).sum(-1).var()
    return raw, raw / math.sqrt(d_head)


@wrong("score_variance", says="variance was asked")
def standard_deviations(d_head, n_samples, generator):
    q, k = _draw(d_head, n_samples, generator)
    dots = (q * k).sum(-1)
    return dots.std(), (dots / math.sqrt(d_head)).std()


@wrong("score_variance", says="variance was asked")
def roots_of_variances(d_head, n_samples, generator):
    q, k = _draw(d_head, n_samples, generator)
    dots = (q * k).sum(-1)
    return float(dots.var()) ** 0.5, float(dots.var()) ** 0.5 / d_head**0.5


@wrong("score_variance", says="use the generator you were given")
def global_generator(d_head, n_samples, generator):
    q, k = torch.randn(n_samples, d_head), torch.randn(n_samples, d_head)
    dots = (q.double() * k.double()).sum(-1)
    return dots.var(), (dots / math.sqrt(d_head)).var()


@wrong("score_variance", says="use the generator you were given")
def global_numpy(d_head, n_samples, generator):
    dots = (np.random.randn(n_samples, d_head) * np.random.randn(n_samples, d_head)).sum(-1)
    return float(dots.var()), float((dots / math.sqrt(d_head)).var())


@wrong("score_variance")
def global_generator_seeded_from_it(d_head, n_samples, generator):
    torch.manual_seed(generator.initial_seed())
    q, k = _draw(d_head, n_samples, None)
    dots = (q * k).sum(-1)
    return dots.var(), (dots / math.sqrt(d_head)).var()


@wrong("score_variance")
def global_generator_for_k(d_head, n_samples, generator):
    q = torch.randn(n_samples, d_head, dtype=torch.float64, generator=generator)
    dots = (q * torch.randn(n_samples, d_head, dtype=torch.float64)).sum(-1)
    return dots.var(), (dots / math.sqrt(d_head)).var()


@wrong("score_variance")
def same_draws_every_call(d_head, n_samples, generator):
    q, k = _draw(d_head, n_samples, torch.Generator().manual_seed(generator.initial_seed()))
    dots = (q * k).sum(-1)
    return dots.var(), (dots / math.sqrt(d_head)).var()


@wrong("score_variance")
def generator_reseeded(d_head, n_samples, generator):
    generator.manual_seed(0)
    q, k = _draw(d_head, n_samples, generator)
    dots = (q * k).sum(-1)
    return dots.var(), (dots / math.sqrt(d_head)).var()


@wrong("score_variance")
def generator_put_back(d_head, n_samples, generator):
    before = generator.get_state()
    q, k = _draw(d_head, n_samples, generator)
    generator.set_state(before)
    dots = (q * k).sum(-1)
    return dots.var(), (dots / math.sqrt(d_head)).var()


@wrong("score_variance")
def fresh_draws_for_scaled(d_head, n_samples, generator):
    q, k = _draw(d_head, n_samples, generator)
    raw = (q * k).sum(-1).var()
    q, k = _draw(d_head, n_samples, generator)
    return raw, ((q * k).sum(-1) / math.sqrt(d_head)).var()


@wrong("score_variance")
def variance_of_entries(d_head, n_samples, generator):
    q, _ = _draw(d_head, n_samples, generator)
    return q.var(), (q / math.sqrt(d_head)).var()


@wrong("score_variance")
def variance_of_products(d_head, n_samples, generator):
    q, k = _draw(d_head, n_samples, generator)
    return (q * k).var(), (q * k / math.sqrt(d_head)).var()


@wrong("score_variance")
def q_with_itself(d_head, n_samples, generator):
    q, _ = _draw(d_head, n_samples, generator)
    dots = (q * q).sum(-1)
    return dots.var(), (dots / math.sqrt(d_head)).var()


@wrong("score_variance", says="draw standard normal numbers")
def uniform_numbers(d_head, n_samples, generator):
    q = torch.rand(n_samples, d_head, dtype=torch.float64, generator=generator)
    k = torch.rand(n_samples, d_head, dtype=torch.float64, generator=generator)
    dots = (q * k).sum(-1)
    return dots.var(), (dots / math.sqrt(d_head)).var()


@wrong("score_variance", says="draw standard normal numbers")
def uniform_around_zero(d_head, n_samples, generator):
    q = torch.rand(n_samples, d_head, dtype=torch.float64, generator=generator) * 2 - 1
    k = torch.rand(n_samples, d_head, dtype=torch.float64, generator=generator) * 2 - 1
    dots = (q * k).sum(-1)
    return dots.var(), (dots / math.sqrt(d_head)).var()


@wrong("score_variance")
def theory(d_head, n_samples, generator):
    _draw(d_head, n_samples, generator)
    return float(d_head), 1.0


@wrong("score_variance")
def scaled_by_theory(d_head, n_samples, generator):
    q, k = _draw(d_head, n_samples, generator)
    return (q * k).sum(-1).var(), torch.tensor(1.0)


@wrong("score_variance")
def scaled_first(d_head, n_samples, generator):
    q, k = _draw(d_head, n_samples, generator)
    dots = (q * k).sum(-1)
    return (dots / math.sqrt(d_head)).var(), dots.var()


@wrong("score_variance")
def one_variance_per_column(d_head, n_samples, generator):
    q, k = _draw(d_head, n_samples, generator)
    return (q * k).var(0), (q * k / math.sqrt(d_head)).var(0)


# ---------------------------------------------------------------- right


@right("score_variance", why="float64 tensors, unbiased")
def unbiased(d_head, n_samples, generator):
    q, k = _draw(d_head, n_samples, generator)
    dots = (q * k).sum(-1)
    return dots.var(), (dots / math.sqrt(d_head)).var()


@right("score_variance", why="float32 draws, k before q, biased, einsum; scaled by algebra")
def biased_in_float32(d_head, n_samples, generator):
    k = torch.randn(d_head, n_samples, generator=generator, dtype=torch.float32)
    q = torch.randn(d_head, n_samples, generator=generator, dtype=torch.float32)
    raw = torch.einsum("dn,dn->n", q, k).var(correction=0)
    return raw.item(), raw.item() / d_head


@right("score_variance", why="blocks of pairs with running sums, Python floats")
def blocks(d_head, n_samples, generator):
    total = squares = 0.0
    for start in range(0, n_samples, 1000):
        q, k = _draw(d_head, min(1000, n_samples - start), generator)
        dots = torch.linalg.vecdot(q, k)
        total += dots.sum().item()
        squares += dots.square().sum().item()
    mean = total / n_samples
    raw = squares / n_samples - mean**2
    return raw, raw / math.sqrt(d_head) ** 2


@right("score_variance", why="pairs interleaved in one tensor, filled in place by normal_")
def one_tensor(d_head, n_samples, generator):
    pairs = torch.empty(n_samples, 2, d_head, dtype=torch.float64).normal_(0, 1, generator=generator)
    dots = pairs.prod(dim=1).sum(dim=1)
    return torch.var(dots), torch.var(dots * d_head**-0.5)


@right("score_variance", why="normal numbers by Box and Muller from the generator's uniform ones")
def box_muller(d_head, n_samples, generator):
    radius, angle = torch.rand(2, n_samples, d_head, generator=generator, dtype=torch.float64)
    radius = (-2 * torch.log1p(-radius)).sqrt()
    q, k = radius * torch.cos(2 * math.pi * angle), radius * torch.sin(2 * math.pi * angle)
    dots = torch.sum(q * k, dim=-1).numpy()
    return np.var(dots), np.var(dots / np.sqrt(d_head))


@right("score_variance", why="torch.normal; covariance matrix of both columns at once")
def covariance(d_head, n_samples, generator):
    zeros = torch.zeros(2, n_samples, d_head, dtype=torch.float64)
    q, k = torch.normal(zeros, 1.0, generator=generator)
    dots = torch.bmm(q[:, None, :], k[:, :, None]).flatten()
    table = torch.cov(torch.stack([dots, dots / d_head**0.5]))
    return table[0, 0], table[1, 1]
