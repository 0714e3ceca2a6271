"""softmax: any numbers become shares of 1."""

import torch

from utils import oracle
from utils.checks.draw import given, normal
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase1 import PHASE, rules


def around(*centres, width=5, dim=-1):
    """One slice of normal numbers about each centre."""

    def draw(generator, others):
        rows = normal(len(centres), width).draw(generator, others) + torch.tensor(centres, dtype=torch.float64)[:, None]
        return rows.movedim(-1, dim).contiguous()

    return given(draw)


def with_minus_infinity(*shape):
    """Normal numbers with −∞ here and there, in no slice (last axis) alone."""

    def draw(generator, others):
        table = normal(*shape).draw(generator, others)
        table[..., 1], table[..., 0, -1] = float("-inf"), float("-inf")
        return table

    return given(draw)


def with_far_below(*shape):
    """Normal numbers with −60,000 here and there: near the end of float16."""

    def draw(generator, others):
        table = normal(*shape).draw(generator, others)
        table[..., 1], table[..., 0, -1] = -6e4, -6e4
        return table

    return given(draw)


def divided(x, dim, top, keep_sum=True):
    exps = (x - top).exp()
    return exps / exps.sum(dim, keepdim=keep_sum)


CUBE = (3, 4, 5)

register(
    expected=oracle.softmax,
    phase=PHASE,
    section="1.8",
    hint="subtract the maximum of each slice (keepdim), exponentiate, divide by the sum of each slice (keepdim).",
    bans=("attention", "softmax"),
    fresh=True,
    properties=(rules.shares_are_whole,),
    cases=(
        case("four rows of four", dict(x=(4, 4), dim=1)),
        case("the middle of three axes", dict(x=CUBE, dim=1)),
        case("the first of three axes", dict(x=CUBE, dim=0)),
        case("the last of three axes", dict(x=CUBE, dim=2)),
        case("dim=-2", dict(x=CUBE, dim=-2)),
        case("one row", dict(x=(7,), dim=0)),
        case("five axes", dict(x=(2, 3, 1, 4, 2), dim=3)),
        case("one entry", dict(x=(3, 1), dim=1)),
        case("numbers about 10,000 and -10,000", dict(x=around(1e4, -1e4), dim=1)),
        case("columns of very different size", dict(x=around(900.0, 0.0, -900.0, dim=0), dim=0)),
        case("entries of minus infinity", dict(x=with_minus_infinity(3, 4), dim=1)),
        case("float16, entries of -60,000", dict(x=with_far_below(3, 4), dim=1), dtype="float16", kind="edge"),
        case("float16", dict(x=CUBE, dim=1), dtype="float16", kind="edge"),
    ),
    mistakes={
        "dim was ignored": Replays(
            lambda x, dim: oracle.softmax(x, -1), lambda x, dim: oracle.softmax(x, 0), lambda x, dim: divided_by_all(x)
        ),
        "subtract the maximum of each slice": lambda x, dim: divided(x, dim, x.max()),
        "overflow: subtract the maximum first": lambda x, dim: divided(x, dim, 0),
        "the maximum met the wrong axis": Spotted(
            rules.never,
            lambda x, dim: divided(x, dim, x.amax(dim)),
            also=(
                lambda x, dim: divided(x, dim, x.amax(dim)),
                lambda x, dim: divided(x, dim, x.amax(dim), keep_sum=False),
            ),
        ),
        "each slice has its own sum": Replays(
            lambda x, dim: (x - x.amax(dim, keepdim=True)).exp() / (x - x.amax(dim, keepdim=True)).exp().sum(),
            lambda x, dim: (x - x.max()).exp() / (x - x.max()).exp().sum(),
        ),
        "nothing is added to the sum": Spotted(
            rules.sum_too_large,
            lambda x, dim: (
                (x - x.amax(dim, keepdim=True)).exp()
                / ((x - x.amax(dim, keepdim=True)).exp().sum(dim, keepdim=True) + 1e-6)
            ),
        ),
        "clamping changes the shares: subtract the maximum": Replays(
            *(lambda x, dim, most=most: oracle.softmax(x.clamp(-most, most), dim) for most in (80, 50, 100, 20))
        ),
        "divide by the sum, not by the largest": lambda x, dim: (x - x.amax(dim, keepdim=True)).exp(),
        "subtract the maximum, do not divide by it": Replays(
            lambda x, dim: oracle.softmax(x / x.amax(dim, keepdim=True), dim),
            lambda x, dim: oracle.softmax(x / x.abs().amax(dim, keepdim=True), dim),
        ),
        "the sum met the wrong axis": lambda x, dim: divided(x, dim, x.amax(dim, keepdim=True), keep_sum=False),
        "the base is e": Replays(
            lambda x, dim: oracle.softmax(x * torch.log(torch.tensor(2.0, dtype=torch.float64)).item(), dim),
            lambda x, dim: oracle.softmax(x * torch.log(torch.tensor(10.0, dtype=torch.float64)).item(), dim),
        ),
        "that is the logarithm": lambda x, dim: x - x.logsumexp(dim, keepdim=True),
        "the dtype follows the input": lambda x, dim: oracle.softmax(x.float(), dim),
        "small numbers should get small shares": lambda x, dim: oracle.softmax(-x, dim),
        "exponentiate before you divide": lambda x, dim: x / x.sum(dim, keepdim=True),
    },
)


def divided_by_all(x):
    return oracle.softmax(x.flatten(), 0).view(x.shape)
