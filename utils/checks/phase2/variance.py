"""score_variance: what the root of d_head is for, measured."""

import torch

from utils import oracle
from utils.checks.exercise import Spotted, case, register
from utils.checks.phase2 import PHASE
from utils.observe.codec import Generator


def _numbers(got):
    """[(raw, scaled), …] of all calls as floats, or None where something else was returned."""
    pairs = []
    for call in got["calls"]:
        value = call["value"]
        if not isinstance(value, (tuple, list)) or len(value) != 2:
            return None
        if any(getattr(part, "ndim", 0) for part in value):
            return None
        try:
            pairs.append(tuple(float(part) for part in value))
        except (TypeError, ValueError, RuntimeError, OverflowError):
            return None
    return pairs


def variances(d_head):
    """Judge three calls: a generator, the same one again, and a copy of its first state."""

    def judge(got, settled):
        pairs = _numbers(got)
        if pairs is None:
            return "raw, scaled: two numbers", "something else"
        for raw, scaled in pairs:
            if not abs(raw - d_head * scaled) <= 1e-6 * abs(raw):
                return "raw = d_head · scaled, from the same draws", f"raw {raw:.5g}, scaled {scaled:.5g}"
            if not 0.9 <= raw / d_head <= 1.1:
                return f"raw near {d_head}, scaled near 1", f"raw {raw:.4g}, scaled {scaled:.4g}"
            if abs(raw / d_head - 1) < 1e-9:
                return "numbers measured on draws", "the exact formula"
        if pairs[0] == pairs[1]:
            return "a second call that draws on", "the same numbers again"
        if pairs[0] != pairs[2]:
            return "the same generator state gives the same numbers", f"{pairs[0][0]:.6g}, then {pairs[2][0]:.6g}"
        return None

    return judge


def scattered(got, settled):
    """Are 300 variances of 64 products each as scattered as they must be?

    At d_head 1 a product of two normal numbers has heavy tails: such variances scatter by 0.35, those of 64 normal
    numbers by 0.18 only, and those of many more numbers hardly at all. 200 trials gave 0.30 to 0.42 and 0.16 to 0.20.
    """
    pairs = _numbers(got)
    if pairs is None:
        return "raw, scaled: two numbers", "something else"
    spread = torch.tensor(pairs, dtype=torch.float64)[:, 0].std().item()
    if not 0.25 <= spread <= 0.45:
        return "variances of 64 dot products, which scatter by about 0.35", f"numbers that scatter by {spread:.2f}"
    return None


def steady(got, settled):
    """Are 12 variances of 30,000 products each as steady as they must be: 0.016, against 0.06 for 2,000?"""
    pairs = _numbers(got)
    if pairs is None:
        return "raw, scaled: two numbers", "something else"
    spread = torch.tensor(pairs, dtype=torch.float64)[:, 0].std().item()
    if spread > 0.038:
        return "variances of 30,000 dot products, steady to about 0.016", f"numbers that scatter by {spread:.3f}"
    return None


def _first(got):
    pairs = _numbers(got)
    return pairs[0] if pairs else (float("nan"), float("nan"))


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


def near(value, target):
    return 0.85 * target <= value <= 1.15 * target


def width(request):
    return request.calls[0]["args"]["d_head"]


def _linked(got, request):
    raw, scaled = _first(got)
    return abs(raw - width(request) * scaled) <= 1e-6 * raw


WIDE, WIDE_AGAIN = asked(48, 20_000, 5, 1)
ODD, ODD_AGAIN = asked(11, 20_000, 6, 1)
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
        case("30,000 samples, 12 times", MANY, then=MANY_AGAIN, kind="chance", judge=steady),
        case("64 samples, 300 times", FEW, then=FEW_AGAIN, kind="chance", judge=scattered),
    ),
    mistakes={
        "divide by the root": Spotted(
            lambda got, request: near(_first(got)[0], width(request)) and near(_first(got)[1], 1 / width(request)),
            sampler(divide=1.0),
        ),
        "variance was asked": Spotted(
            lambda got, request: near(_first(got)[0], width(request) ** 0.5) and near(_first(got)[1], 1),
            sampler(measure=torch.std),
        ),
        "use the generator you were given": Spotted(
            lambda got, request: near(_first(got)[1], 1) and _numbers(got)[0] != _numbers(got)[2], careless
        ),
        "both numbers come from the same draws": Spotted(
            lambda got, request: (
                near(_first(got)[0], width(request)) and near(_first(got)[1], 1) and not _linked(got, request)
            ),
            sampler(fresh=True),
        ),
        "the score is a sum over d_head, not one entry": Spotted(
            lambda got, request: near(_first(got)[0], 1) and near(_first(got)[1], 1 / width(request)),
            sampler(scores=lambda q, k: q),
        ),
        "draw standard normal numbers": Spotted(
            lambda got, request: any(
                near(_first(got)[0], width(request) * share) for share in (1 / 9 - 1 / 16, 1 / 9, 1 / 144)
            ),
            sampler(draw=torch.rand),
        ),
    },
)
