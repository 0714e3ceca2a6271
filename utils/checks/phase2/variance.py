"""score_variance: what the root of d_head is for, measured."""

import torch

from utils import oracle
from utils.checks.exercise import Spotted, case, register
from utils.checks.phase2 import PHASE, rules
from utils.checks.phase2.rules import variances
from utils.observe.codec import Generator


def sampler(draw=torch.randn, divide=0.5, measure=torch.var, fresh=False, scores=lambda q, k: (q * k).sum(-1)):
    """A faulty twin of score_variance."""

    def wrong(d_head, n_samples, generator):
        def pairs():
            return draw(2, n_samples, d_head, generator=generator, dtype=torch.float64)

        raw = scores(*pairs())
        scaled = scores(*pairs()) if fresh else raw
        return measure(raw).item(), measure(scaled / d_head**divide).item()

    return wrong


def careless(d_head, n_samples, generator):
    scores = (torch.randn(n_samples, d_head) * torch.randn(n_samples, d_head)).sum(-1)
    return scores.var().item(), (scores / d_head**0.5).var().item()


def asked(d_head, n_samples, seed, calls):
    first = dict(d_head=d_head, n_samples=n_samples, generator=Generator(seed))
    return first, (first,) * calls


WIDE, WIDE_AGAIN = asked(48, 8_000, 5, 1)
ODD, ODD_AGAIN = asked(11, 8_000, 6, 1)
FEW, FEW_AGAIN = asked(1, 64, 7, 299)
MANY, MANY_AGAIN = asked(1, 30_000, 8, 11)

register(
    expected=oracle.score_variance,
    phase=PHASE,
    section="2.4",
    hint="draw q and k from the generator once, take the dot products, measure them as they are and scaled.",
    grad=False,
    cases=(
        case(
            "d_head 48",
            WIDE,
            then=(*WIDE_AGAIN, WIDE | dict(generator=Generator(5, copy=1))),
            kind="chance",
            judge=variances(48),
        ),
        case(
            "d_head 11",
            ODD,
            then=(*ODD_AGAIN, ODD | dict(generator=Generator(6, copy=1))),
            kind="chance",
            judge=variances(11),
        ),
        case("30,000 samples, 12 times", MANY, then=MANY_AGAIN, kind="chance", judge=rules.steady),
        case("64 samples, 300 times", FEW, then=FEW_AGAIN, kind="chance", judge=rules.scattered),
    ),
    mistakes={
        "divide by the root": Spotted(
            rules.divided_by_width,
            sampler(divide=1.0),
        ),
        "variance was asked": Spotted(
            rules.standard_deviations,
            sampler(measure=torch.std),
        ),
        "use the generator you were given": Spotted(rules.another_generator, careless),
        "both numbers come from the same draws": Spotted(
            rules.two_draws,
            sampler(fresh=True),
        ),
        "the score is a sum over d_head, not one entry": Spotted(
            rules.one_entry,
            sampler(scores=lambda q, k: q),
        ),
        "draw standard normal numbers": Spotted(
            rules.uniform_numbers,
            sampler(draw=torch.rand),
        ),
    },
)
