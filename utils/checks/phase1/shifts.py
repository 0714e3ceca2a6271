"""shift_matrix: one matrix carries every position to a later one."""

import torch

from utils import oracle
from utils.checks.exercise import Replays, case, refusal, register
from utils.checks.phase1 import PHASE
from utils.checks.phase1.positions import FROM_INTEGERS


def shift(name, offset, d_model, **options):
    base = {"base": options.pop("base")} if "base" in options else {}
    return case(name, dict(offset=offset, d_model=d_model) | base, atol=FROM_INTEGERS, **options)


def pairs_half_apart(offset, d_model, base=10000.0):
    """The same turns, for columns i and i + d/2."""
    order = torch.arange(d_model).view(2, -1).T.flatten()
    matrix = torch.empty(d_model, d_model)
    matrix[order[:, None], order] = oracle.shift_matrix(offset, d_model, base)
    return matrix


def transposed(offset, d_model, base=10000.0):
    return oracle.shift_matrix(offset, d_model, base).T.contiguous()


def whole_circle(rate):
    """A wrong twin: pair i turns by offset · base^(−rate(i, d))."""

    def wrong(offset, d_model, base=10000.0):
        oracle.shift_matrix(0, d_model)
        turns = [oracle.shift_matrix(1, 2) * 0 + _turn(offset * base ** -rate(i, d_model)) for i in range(d_model // 2)]
        return torch.block_diag(*turns)

    return wrong


def with_signs(offset, d_model, base, upper, lower, last=1):
    """Blocks [[cos, upper · sin], [lower · sin, last · cos]]."""
    blocks = []
    for turn in _blocks(offset, d_model, base):
        c, s = turn[0, 0], turn[1, 0]
        blocks.append(torch.stack([torch.stack([c, upper * s]), torch.stack([lower * s, last * c])]))
    return torch.block_diag(*blocks)


def sine_on_the_diagonal(offset, d_model, base=10000.0):
    """Blocks [[sin, −cos], [cos, sin]]."""
    quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    return torch.block_diag(*(turn.T @ quarter for turn in _blocks(offset, d_model, base)))


def _blocks(offset, d_model, base):
    matrix = oracle.shift_matrix(offset, d_model, base)
    return [matrix[n : n + 2, n : n + 2] for n in range(0, d_model, 2)]


def _turn(angle):
    c, s = torch.tensor(float(angle)).cos(), torch.tensor(float(angle)).sin()
    return torch.stack([torch.stack([c, -s]), torch.stack([s, c])])


register(
    expected=oracle.shift_matrix,
    phase=PHASE,
    section="1.10",
    hint="a 2 × 2 turn on the diagonal for each pair of columns, by offset · base^(−2i/d_model).",
    bans=(),
    grad=False,
    cases=(
        shift("offset 3, width 6, base 37", 3, 6, base=37.0),
        shift("offset 1, the usual base", 1, 8),
        shift("offset 11", 11, 6, base=37.0),
        shift("offset -2", -2, 6, base=37.0),
        shift("offset 0", 0, 4, base=37.0),
        shift("width 2", 5, 2, base=37.0),
        shift("offset -21, the usual base", -21, 8),
        shift("base 100, an int", 2, 10, base=100),
        shift("float32", 3, 6, base=37.0, dtype="float32"),
        refusal("width 5", dict(offset=1, d_model=5)),
        refusal("width 3, offset 0", dict(offset=0, d_model=3, base=37.0)),
    ),
    mistakes={
        "this shifts backwards (columns convention)": transposed,
        "pairs are neighbouring columns": Replays(
            pairs_half_apart, lambda offset, d_model, base=10000.0: pairs_half_apart(-offset, d_model, base)
        ),
        "base was ignored": lambda offset, d_model, base=10000.0: oracle.shift_matrix(offset, d_model),
        "offset was ignored": Replays(
            lambda offset, d_model, base=10000.0: oracle.shift_matrix(0, d_model),
            lambda offset, d_model, base=10000.0: oracle.shift_matrix(1, d_model, base),
        ),
        "a negative offset shifts back": lambda offset, d_model, base=10000.0: oracle.shift_matrix(
            abs(offset), d_model, base
        ),
        "every pair has its own angle": whole_circle(lambda i, d: 0),
        "frequencies fall with i: the exponent is negative": whole_circle(lambda i, d: -2 * i / d),
        "this is no turn: one sine needs a minus": Replays(
            lambda offset, d_model, base=10000.0: with_signs(offset, d_model, base, 1, 1),
            lambda offset, d_model, base=10000.0: with_signs(offset, d_model, base, 1, 1, -1),
            lambda offset, d_model, base=10000.0: with_signs(offset, d_model, base, 1, -1, -1),
        ),
        "sine and cosine changed places": sine_on_the_diagonal,
        "angles are in radians": lambda offset, d_model, base=10000.0: oracle.shift_matrix(
            offset * 180 / torch.pi, d_model, base
        ),
        "the exponent is 2i/d, i counts pairs": whole_circle(lambda i, d: i / d),
    },
)
