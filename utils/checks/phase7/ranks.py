"""average_gradients: what several ranks send each other after a step."""

import torch

from utils import oracle
from utils.checks.draw import given
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase7 import PHASE
from utils.checks.phase7 import rules_training as rules

SHAPES = ((2, 3), (4,))


def sent(n_ranks, shapes=SHAPES, unused=(), nothing=(), scale=1.0, broken=-1):
    """A list of gradients for each rank. unused: (rank, place) pairs without one; nothing: ranks of NaN; broken: a rank
    with one NaN."""

    def draw(generator, others):
        rows = []
        for rank in range(n_ranks):
            row = [scale * torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
            row = [torch.full_like(part, torch.nan) if rank in nothing else part for part in row]
            if rank == broken:
                row[0].view(-1)[1] = torch.nan
            rows.append([None if (rank, place) in unused else part for place, part in enumerate(row)])
        return rows

    return given(draw)


def shortened():
    """Two ranks, the second without its last gradient."""

    def draw(generator, others):
        first, second = sent(2).draw(generator, others)
        return [first, second[:-1]]

    return given(draw)


def step(name, counts, make=case, dtype="float64", **options):
    args = dict(gradients=sent(len(counts), **options), counts=list(counts))
    more = {"grad": False, "default_dtype": "float32"} if make is case else {}
    return make(name, args, dtype=dtype, **more)


def averager(weigh, combine=None, total=None, guard=True):
    """A wrong twin: weigh(count, counts) is a rank's factor; combine(parts) sums; total(result, counts) comes last."""

    def average_gradients(gradients, counts):
        if guard and (len(gradients) != len(counts) or not sum(counts) or len({len(row) for row in gradients}) != 1):
            raise ValueError("no tokens, or lists that do not fit")
        means = []
        for place in range(len(gradients[0])):
            parts = [
                weigh(count, counts) * row[place]
                for row, count in zip(gradients, counts, strict=False)
                if row[place] is not None and (count or weigh not in (by_share, by_count))
            ]
            mean = (combine or sum)(parts) if parts else None
            means.append(total(mean, counts) if total and mean is not None else mean)
        return means

    return average_gradients


def by_share(count, counts):
    return count / sum(counts)


def by_count(count, counts):
    return count


def zero_times_nan(gradients, counts):
    """Every rank is weighed, those without tokens by 0."""
    shares = [count / sum(counts) for count in counts]
    return [
        sum(share * part for share, part in zip(shares, column, strict=True) if part is not None)
        if any(part is not None for part in column)
        else None
        for column in zip(*gradients, strict=True)
    ]


def of_those_who_have_it(gradients, counts):
    """Where a rank has no gradient, its tokens are left out of the count, too."""
    means = []
    for column in zip(*gradients, strict=True):
        there = [(part, count) for part, count in zip(column, counts, strict=True) if part is not None and count]
        tokens = sum(count for _, count in there)
        means.append(sum(count / tokens * part for part, count in there) if there else None)
    return means


def from_zeros(parts):
    """Sums up in torch's usual dtype, or a wider one."""
    return sum(parts, torch.zeros(parts[0].shape))


def of_the_first(gradients, counts):
    """What the first rank did not use is None."""
    means = oracle.average_gradients(gradients, counts)
    return [None if own is None else mean for own, mean in zip(gradients[0], means, strict=True)]


def of_all_or_none(gradients, counts):
    """What any rank did not use is None."""
    means = oracle.average_gradients(gradients, counts)
    columns = zip(*gradients, strict=True)
    return [None if any(part is None for part in column) else mean for column, mean in zip(columns, means, strict=True)]


def without_nan(gradients, counts):
    means = oracle.average_gradients(gradients, counts)
    clean = [[None if part is None else part.nan_to_num() for part in row] for row in gradients]
    return oracle.average_gradients(clean, counts) if means else means


def zeros_for_none(gradients, counts):
    means = oracle.average_gradients(gradients, counts)
    shape = next(mean for mean in means if mean is not None)
    return [torch.zeros_like(shape) if mean is None else mean for mean in means]


def in_place(gradients, counts):
    """The sum is made in the first rank's own tensors."""
    means = oracle.average_gradients(gradients, counts)
    for own, mean in zip(gradients[0], means, strict=True):
        if own is not None and mean is not None:
            own.copy_(mean)
    return means


register(
    expected=oracle.average_gradients,
    phase=PHASE,
    section="7.18",
    hint="each rank's gradient is a mean over its own tokens: weigh it by its share of all tokens, then add.",
    grad=False,
    bans=(),
    script="ranks",
    cases=(
        step("two ranks, 30 and 10 tokens", (30, 10)),
        step("as many tokens on each, and one gradient is no number", (7, 7), broken=1),
        step("three ranks", (5, 1, 20), shapes=((3,), (2, 2), (1,))),
        step("one rank", (9,)),
        step("parts that one rank did not use", (6, 4), unused={(1, 0), (0, 1)}),
        step("a part that no rank used", (6, 4), unused={(0, 1), (1, 1)}),
        step("a rank without tokens has no mean", (8, 0, 3), nothing={1}),
        step("float32", (300, 500), dtype="float32"),
        step("half precision and many tokens", (4000, 1500), dtype="float16", scale=40.0),
        step("no token at all", (0, 0), refusal, nothing={0, 1}),
        refusal("three counts for two ranks", dict(gradients=sent(2), counts=[4, 4, 4])),
        refusal("two counts for three ranks", dict(gradients=sent(3), counts=[4, 4])),
        refusal("a rank with a part less", dict(gradients=shortened(), counts=[4, 4])),
    ),
    mistakes={
        "ranks do not weigh alike: count their tokens": averager(lambda count, counts: 1 / len(counts)),
        "a mean, not a sum": Replays(averager(lambda count, counts: 1.0), averager(by_count)),
        "the shares sum to 1: no second division": averager(by_share, total=lambda mean, counts: mean / len(counts)),
        "more tokens weigh more, not less": averager(lambda count, counts: (1 - count / sum(counts)) or 1.0),
        "a rank without tokens is left out: 0 · nan is nan": Spotted(rules.spoilt_by_nothing, zero_times_nan),
        "tokens of a rank that did not use a part count, too": of_those_who_have_it,
        "a part that no rank used has no gradient: None": zeros_for_none,
        "half precision ends at 65504: weigh first, then add": Spotted(
            rules.overflowed,
            averager(by_count, total=lambda mean, counts: mean / sum(counts)),
        ),
        "keep the dtype of the gradients": averager(by_share, combine=from_zeros),
        "it need not be the first rank that used a part": of_the_first,
        "a part that one rank did not use has a mean all the same": of_all_or_none,
        "a nan of a rank with tokens is news: do not hide it": without_nan,
        "the ranks' own gradients stay as they are": Spotted(rules.handed_gradients_changed, in_place, certain=True),
        "no token, or lists that do not fit: raise ValueError": Spotted(
            rules.misfit_accepted, averager(by_share, guard=False), certain=True
        ),
    },
)
