"""attention_dropout: chance from a generator, weight by weight."""

import torch

from utils import oracle
from utils.checks.exercise import Spotted, case, refusal, register
from utils.checks.phase3 import PHASE, rules
from utils.observe.codec import Generator


def weights(seed, *shape):
    """Attention weights, none of them 0."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).softmax(-1)


TABLE = weights(31, 4, 6, 20, 30)


def asked(p, table, seed, **options):
    """A case of four calls: a generator, the same again, a copy of its first state, and p = 0."""
    first = dict(weights=table, p=p, generator=Generator(seed))
    again = dict(weights=table, p=p, generator=Generator(seed, copy=1))
    nothing = dict(weights=table, p=0.0, generator=Generator(seed + 1))
    return case(f"p = {p}", first, then=(first, again, nothing), kind="chance", judge=rules.drops(p), **options)


def refused(p):
    return refusal(f"p = {p}", dict(weights=(2, 3, 4), p=p, generator=Generator(9)))


def kept(weights, p, generator):
    return torch.rand(weights.shape, generator=generator) >= p


def of_another_axis(weights, p, generator):
    return torch.rand(weights.shape[1:], generator=generator) >= p


def whole_rows(weights, p, generator):
    return torch.rand((*weights.shape[:-1], 1), generator=generator) >= p


def exactly(weights, p, generator):
    """The smallest p of all random numbers, so that their count is never left to chance."""
    numbers = torch.rand(weights.shape, generator=generator)
    n = round(p * weights.numel())
    return numbers.flatten().argsort().argsort().view(weights.shape) >= n


def unrefused(weights, p, generator):
    return torch.where(kept(weights, p, generator), weights, 0.0) / (1 - p)


def wrong(keep=kept, scale=lambda p: 1 - p, renormalise=False):
    def faulty(weights, p, generator):
        if not 0 <= p < 1:
            raise ValueError("p must be at least 0 and below 1")
        out = weights * keep(weights, p, generator) / scale(p)
        return out / out.sum(-1, keepdim=True).clamp(min=1e-12) if renormalise else out

    return faulty


register(
    expected=oracle.attention_dropout,
    phase=PHASE,
    section="3.9",
    hint="one random number per weight, from the generator; what survives is divided by 1 − p.",
    cases=(
        asked(0.3, TABLE, 5),
        asked(0.8, TABLE, 6),
        asked(0.3, TABLE.float(), 7, dtype="float32"),
        refused(1.0),
        refused(-0.1),
        refused(1.5),
    ),
    mistakes={
        "keep the expectation: divide by 1−p": Spotted(rules.undivided, wrong(scale=lambda p: 1)),
        "rows need not sum to 1 in training": Spotted(rules.renormalised, wrong(renormalise=True)),
        "each example drops its own weights": Spotted(rules.one_for_the_batch, wrong(keep=of_another_axis)),
        "each weight is dropped on its own": Spotted(rules.dropped_together, wrong(keep=whole_rows)),
        "all chance comes from the generator": Spotted(
            rules.another_generator, wrong(keep=lambda weights, p, generator: torch.rand(weights.shape) >= p)
        ),
        "drop by chance, not an exact share": Spotted(rules.counts_exactly, wrong(keep=exactly)),
        "p is the share that is dropped": Spotted(
            rules.keeps_p, wrong(keep=lambda weights, p, generator: torch.rand(weights.shape, generator=generator) < p)
        ),
        "nothing was dropped": Spotted(
            rules.nothing_dropped, wrong(keep=lambda weights, p, generator: weights > -1, scale=lambda p: 1)
        ),
        "p = 1 leaves nothing to divide by, p below 0 means nothing: refuse both": Spotted(
            rules.p_not_refused, unrefused, certain=True
        ),
    },
)
