"""rope: queries and keys are turned by their place, in the half-split layout."""

import torch

from utils import oracle
from utils.checks.draw import given
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase1 import PHASE, rules
from utils.checks.phase1.positions import FROM_INTEGERS


def places(*values):
    return given(lambda generator, others: torch.tensor(values[0] if len(values) == 1 else values))


def turned(name, shape, positions, **options):
    base = {"base": options.pop("base")} if "base" in options else {}
    return case(name, dict(x=shape, positions=positions) | base, **({"atol": FROM_INTEGERS} | options))


def interleaved(x, positions, base=10000.0):
    """Neighbours are pairs."""
    order = torch.cat([torch.arange(0, x.shape[-1], 2), torch.arange(1, x.shape[-1], 2)])
    return oracle.rope(x[..., order], positions, base)[..., order.argsort()]


def half_interleaved(x, positions, base=10000.0):
    """Halves are pairs, but the angles stand as for neighbours: each twice in a row."""
    d = x.shape[-1]
    angles = positions[..., None].double() * (float(base) ** -(torch.arange(0, d, 2) / d)).repeat_interleave(2)
    partner = torch.cat([-x[..., d // 2 :], x[..., : d // 2]], -1)
    return (x * angles.cos() + partner * angles.sin()).to(x.dtype)


def first_half_only(x, positions, base=10000.0):
    half = x.shape[-1] // 2
    return torch.cat([oracle.rope(x, positions, base)[..., :half], x[..., half:]], -1)


def in_its_own_dtype(x, positions, base=10000.0):
    """Angles in the dtype of x: in bfloat16, 3001 and 3008 are one number."""
    return oracle.rope(x, positions.to(x.dtype).double(), base)


def wrong_rate(rate, dtype=torch.float64):
    """A wrong twin: entry i turns by position · base^(−rate(i, d)), computed in `dtype`."""

    def wrong(x, positions, base=10000.0):
        d = x.shape[-1]
        rates = torch.tensor([float(base) ** -rate(i, d) for i in range(d // 2)], dtype=dtype)
        angles = positions[..., None].to(dtype) * rates
        c, s = angles.cos(), angles.sin()
        a, b = x[..., : d // 2], x[..., d // 2 :]
        return torch.cat([a * c - b * s, b * c + a * s], -1).to(x.dtype)

    return wrong


def neighbours_to_halves(x):
    return x.unflatten(-1, (-1, 2)).mT.flatten(-2)


def halves_to_neighbours(x):
    return x.unflatten(-1, (2, -1)).mT.flatten(-2)


def parts(x, positions, base):
    """a, b, cos and sin, as asked for."""
    waves = oracle.rope(torch.cat([torch.ones_like(x[..., ::2]), torch.zeros_like(x[..., ::2])], -1), positions, base)
    return *x.chunk(2, -1), *waves.chunk(2, -1)


def other_sum(formula):
    """A wrong twin: formula(a, b, cos, sin) -> the two halves."""
    return lambda x, positions, base=10000.0: torch.cat(formula(*parts(x, positions, base)), -1)


def changed_in_place(x, positions, base=10000.0):
    x.copy_(oracle.rope(x.clone(), positions, base))
    return x


def in_a_row(x):
    return torch.arange(x.shape[-2])


UNSORTED = places([4, 0, 7, 2, 11])
EACH_ROW = given(lambda generator, others: torch.tensor([[[3, 0, 9, 2, 5]], [[1, 8, 2, 2, 20]]]))

register(
    expected=oracle.rope,
    phase=PHASE,
    section="1.13",
    hint="a = first half, b = second half; (a cos − b sin, b cos + a sin), one angle per pair and position.",
    bans=(),
    fresh=True,
    cases=(
        turned("five tokens, unsorted positions, base 37", (5, 6), UNSORTED, base=37.0),
        turned("the usual base", (5, 8), places([0, 1, 2, 3, 4])),
        turned("batch and heads", (2, 3, 5, 6), UNSORTED, base=37.0),
        turned("positions per sentence", (2, 3, 5, 6), EACH_ROW, base=37.0),
        turned("one leading axis", (3, 5, 4), UNSORTED, base=37.0),
        turned("batch as long as the sentence", (5, 5, 4), UNSORTED),
        turned("positions for every row", (2, 3, 4), places([1, 5, 2], [7, 0, 3]), base=37.0),
        turned("negative positions", (5, 6), places([-4, 0, -7, 2, -11]), base=37.0),
        turned("one token", (2, 1, 4), places([6]), base=37.0),
        turned("width 2", (5, 2), UNSORTED, base=37.0),
        turned("as wide as long", (2, 6, 6), places([5, 1, 0, 2, 9, 4]), base=37.0),
        turned("position 0", (3, 4), places([0, 0, 0]), base=37.0),
        turned("far away", (3, 6), places([100, 2000, 3001]), base=37.0, atol=2e-3),  # float32 has 2e-4 left of 3001
        case(
            "two tables after another",
            dict(x=(5, 6), positions=UNSORTED, base=37.0),
            then=(dict(x=(5, 6), positions=UNSORTED), dict(x=(3, 4), positions=places([1, 2, 3]), base=37.0)),
            atol=FROM_INTEGERS,
        ),
        turned(
            "bfloat16 near position 3000",
            (4, 6),
            places([3000, 3001, 3005, 3007]),
            base=37.0,
            dtype="bfloat16",
            default_dtype="float32",  # as in a learner's notebook: an arange divided is float32 there
            atol=0.1,
            kind="edge",
        ),
        refusal("width 5", dict(x=(3, 5), positions=places([0, 1, 2]))),
        refusal("width 1", dict(x=(3, 1), positions=places([0, 1, 2]))),
    ),
    mistakes={
        "this is the interleaved layout": interleaved,
        "positions were taken as 0, 1, 2…": lambda x, positions, base=10000.0: oracle.rope(x, in_a_row(x), base),
        "base was ignored": lambda x, positions, base=10000.0: oracle.rope(x, positions),
        "the sign of the sine": lambda x, positions, base=10000.0: oracle.rope(x, -positions, base),
        "x came back unrotated": lambda x, positions, base=10000.0: x * 1,
        "both halves turn": Replays(
            first_half_only,
            lambda x, positions, base=10000.0: torch.cat(
                [x[..., : x.shape[-1] // 2], oracle.rope(x, positions, base)[..., x.shape[-1] // 2 :]], -1
            ),
        ),
        "x was changed in place": changed_in_place,
        "pairs go out in the layout in which they came in": Replays(
            lambda x, positions, base=10000.0: oracle.rope(neighbours_to_halves(x), positions, base),
            lambda x, positions, base=10000.0: halves_to_neighbours(oracle.rope(x, positions, base)),
        ),
        "both halves need the old a and b": Replays(
            other_sum(lambda a, b, c, s: (a * c - b * s, b * c + (a * c - b * s) * s)),
            other_sum(lambda a, b, c, s: (a * c - (b * c + a * s) * s, b * c + a * s)),
        ),
        "sine and cosine changed places": Replays(
            other_sum(lambda a, b, c, s: (a * s - b * c, b * s + a * c)),
            other_sum(lambda a, b, c, s: (a * s - b * c, a * c + b * s)),
        ),
        "one of the two sums has the wrong sign": Replays(
            other_sum(lambda a, b, c, s: (a * c + b * s, b * c + a * s)),
            other_sum(lambda a, b, c, s: (a * c - b * s, b * c - a * s)),
            other_sum(lambda a, b, c, s: (a * c - b * s, a * s - b * c)),
        ),
        "a and b changed places": Replays(
            other_sum(lambda a, b, c, s: (b * c - a * s, a * c + b * s)),
            other_sum(lambda a, b, c, s: (b * c + a * s, a * c - b * s)),
        ),
        "a turn keeps lengths: no scaling": lambda x, positions, base=10000.0: (
            oracle.rope(x, positions, base) * x.shape[-1] ** 0.5
        ),
        "the dtype follows the input": Spotted(
            rules.other_dtype("x"), lambda x, positions, base=10000.0: oracle.rope(x.double(), positions, base)
        ),
        "angles are in radians": lambda x, positions, base=10000.0: oracle.rope(
            x.double(), positions.double() * 180 / torch.pi, base
        ).to(x.dtype),
        "every pair has its own speed": wrong_rate(lambda i, d: 0),
        "positions count from 0, add nothing to them": lambda x, positions, base=10000.0: oracle.rope(
            x, positions + 1, base
        ),
        "halves are pairs, so angles repeat in halves too": half_interleaved,
        "angles need float32, whatever x is": Spotted(rules.narrow_input, in_its_own_dtype),
        "the exponent is 2i/d, i counts pairs": wrong_rate(lambda i, d: i / d),
        "frequencies fall with i: the exponent is negative": Replays(
            wrong_rate(lambda i, d: -2 * i / d), wrong_rate(lambda i, d: -2 * i / d, torch.float32)
        ),
        "positions are added to embeddings; here they turn": Replays(
            other_sum(lambda a, b, c, s: (a - s, b + c)),
            other_sum(lambda a, b, c, s: (a + s, b + c)),
            other_sum(lambda a, b, c, s: (a + c, b + s)),
        ),
    },
)
