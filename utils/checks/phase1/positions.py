"""sinusoidal_positions, position_distances, LearnedPositions: where a token stands."""

import torch

from utils import oracle
from utils.checks.draw import given, normal
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase1 import PHASE, rules

FROM_INTEGERS = 1e-5  # a table made from integers in float32 is right, too

# ---- sinusoids -----------------------------------------------------------------------------------


def waves(seq_len, d_model, rate, base=10000.0, start=0, sine_first=True, degrees=False):
    """A wrong twin's table: rate(column, pair, d_model) is the exponent of 1/base for a column."""
    even_or_raise(d_model)
    places = torch.arange(start, start + seq_len, dtype=torch.float64)[:, None]
    exponents = torch.tensor([rate(n, n // 2, d_model) for n in range(d_model)], dtype=torch.float64)
    angles = places * float(base) ** -exponents
    angles = torch.rad2deg(angles) if degrees else angles
    even = torch.arange(d_model) % 2 == 0
    return torch.where(even == sine_first, angles.sin(), angles.cos()).to(torch.get_default_dtype())


def even_or_raise(d_model):
    if d_model % 2:
        raise ValueError("the width must be even")


def right_rate(column, pair, d_model):
    return 2 * pair / d_model


def wrong_waves(rate=right_rate, **options):
    return lambda seq_len, d_model, base=10000.0: waves(seq_len, d_model, rate, base, **options)


def halves(seq_len, d_model, base=10000.0, sine_first=True):
    table = oracle.sinusoidal_positions(seq_len, d_model, base)
    parts = [table[:, 0::2], table[:, 1::2]]
    return torch.cat(parts if sine_first else parts[::-1], -1)


def same_wave(seq_len, d_model, base, which):
    return oracle.sinusoidal_positions(seq_len, d_model, base)[:, which::2].repeat_interleave(2, -1)


def table(name, seq_len, d_model, **options):
    """A case without chance; `base` is off its default unless it is left out."""
    base = {"base": options.pop("base")} if "base" in options else {}
    return case(name, dict(seq_len=seq_len, d_model=d_model) | base, atol=FROM_INTEGERS, **options)


register(
    expected=oracle.sinusoidal_positions,
    phase=PHASE,
    section="1.9",
    hint="one angle per pair of columns: p · base^(−2i/d_model); its sine, then its cosine.",
    bans=(),
    grad=False,
    cases=(
        table("five places, width 6, base 37", 5, 6, base=37.0),
        table("width 8, the usual base", 7, 8),
        table("width 2", 5, 2, base=37.0),
        table("one place", 1, 6, base=37.0),
        table("many places", 60, 4),
        table("as many places as columns", 6, 6, base=500.0),
        table("base 100, an int", 9, 10, base=100),
        table("float32", 5, 6, base=37.0, dtype="float32"),
        table("float32, the usual base", 12, 8, dtype="float32"),
        refusal("width 5", dict(seq_len=4, d_model=5)),
        refusal("width 1", dict(seq_len=4, d_model=1, base=37.0)),
    ),
    mistakes={
        "halves instead of alternating columns": Replays(
            halves, lambda seq_len, d_model, base=10000.0: halves(seq_len, d_model, base, False)
        ),
        "the exponent is 2i/d, i counts pairs": wrong_waves(lambda column, pair, d: pair / d),
        "the exponent counts dimensions twice": Replays(
            wrong_waves(lambda column, pair, d: 2 * column / d if column % 2 == 0 else (2 * column - 1) / d),
            wrong_waves(lambda column, pair, d: 2 * column / d),
            wrong_waves(lambda column, pair, d: 4 * pair / d),
        ),
        "base was ignored": lambda seq_len, d_model, base=10000.0: oracle.sinusoidal_positions(seq_len, d_model),
        "sine stands in even columns, cosine in odd ones": wrong_waves(sine_first=False),
        "angles are in radians": wrong_waves(degrees=True),
        "positions start at 0": wrong_waves(start=1),
        "frequencies fall with i: the exponent is negative": wrong_waves(lambda column, pair, d: -2 * pair / d),
        "a row per place: the table is transposed": lambda seq_len, d_model, base=10000.0: oracle.sinusoidal_positions(
            seq_len, d_model, base
        ).T.contiguous(),
        "pairs are counted from 0": wrong_waves(lambda column, pair, d: 2 * (pair + 1) / d),
        "every pair has its own speed": wrong_waves(lambda column, pair, d: 0),
        "the table is not scaled": Replays(
            lambda seq_len, d_model, base=10000.0: oracle.sinusoidal_positions(seq_len, d_model, base) / d_model**0.5,
            lambda seq_len, d_model, base=10000.0: (
                oracle.sinusoidal_positions(seq_len, d_model, base) * (2 / d_model) ** 0.5
            ),
        ),
        "sine everywhere: the second of a pair is the cosine": Replays(
            lambda seq_len, d_model, base=10000.0: same_wave(seq_len, d_model, base, 0),
            lambda seq_len, d_model, base=10000.0: same_wave(seq_len, d_model, base, 1),
        ),
        "sine and cosine share one angle": wrong_waves(lambda column, pair, d: column / d),
        "the last frequency is base^(−(d−2)/d)": wrong_waves(lambda column, pair, d: pair / max(d // 2 - 1, 1)),
    },
)

# ---- distances -----------------------------------------------------------------------------------


SMALL = 1e-5  # a distance of 0 is the root of what rounding left


def far_from_zero(*shape):
    return given(lambda generator, others: normal(*shape).draw(generator, others) + 1000.0)


def one_hot(n):
    return given(lambda generator, others: torch.eye(n, dtype=torch.float64))


def sinusoids(n, d):
    return given(lambda generator, others: oracle.sinusoidal_positions(n, d, 37.0).double())


def by_squares(positions):
    """|a|² + |b|² − 2ab, without a floor at 0."""
    squares = (positions**2).sum(-1)
    return (squares[:, None] + squares - 2 * positions @ positions.T).sqrt()


def cosine(positions):
    return 1 - torch.cosine_similarity(positions[:, None], positions[None], dim=-1)


def steps_apart(positions):
    places = torch.arange(len(positions), dtype=positions.dtype)
    return (places[:, None] - places).abs()


register(
    expected=oracle.position_distances,
    phase=PHASE,
    section="1.11",
    hint="subtract every row from every row, square, sum over the features, take the root.",
    bans=(),
    grad=False,
    properties=(rules.distances_are_distances,),
    cases=(
        case("five places, width 3", dict(positions=(5, 3)), atol=SMALL),
        case("four places, width 7", dict(positions=(4, 7)), atol=SMALL),
        case("as many places as features", dict(positions=(4, 4)), atol=SMALL),
        case("twelve places", dict(positions=(12, 6)), atol=SMALL),
        case("one place", dict(positions=(1, 4)), atol=SMALL),
        case("one feature", dict(positions=(5, 1)), atol=SMALL),
        case("one-hot places", dict(positions=one_hot(5)), atol=SMALL),
        case("sinusoids", dict(positions=sinusoids(9, 8)), atol=SMALL),
        # what is asked for is 1e-6 in float64 and 1e-3 in float32; half of the digits are gone before anyone subtracts
        case("1000 added to every entry", dict(positions=far_from_zero(6, 5)), atol=1e-6),
        case("1000 added, float32", dict(positions=far_from_zero(6, 5)), dtype="float32", atol=1e-3),
        case("two places alike", dict(positions=given(lambda g, o: normal(1, 4).draw(g, o).repeat(3, 1))), atol=1e-6),
    ),
    mistakes={
        "take the root": lambda positions: oracle.position_distances(positions) ** 2,
        "that is the city-block distance": lambda positions: torch.cdist(positions, positions, p=1.0),
        "angle, not distance": Replays(cosine, lambda positions: 1 - cosine(positions)),
        "rounding made a square negative": Spotted(rules.nan_somewhere, by_squares),
        "the dtype follows the input": Spotted(
            rules.other_dtype("positions"),
            lambda positions: oracle.position_distances(positions.double()),
            certain=True,
        ),
        "subtract first, then square: large entries lose their digits": Spotted(
            rules.digits_lost, lambda positions: by_squares(positions).nan_to_num()
        ),
        "measure the encodings, not their places": steps_apart,
        "sum over the features, do not average": lambda positions: (
            oracle.position_distances(positions) / positions.shape[-1] ** 0.5
        ),
        "that is the largest difference": lambda positions: torch.cdist(positions, positions, p=float("inf")),
        "that is a table of products": lambda positions: positions @ positions.T,
        "every feature counts, in one sum": Replays(
            lambda positions: (positions[:, None] - positions[None]).sum(-1).abs(),
            lambda positions: (positions.norm(dim=-1)[:, None] - positions.norm(dim=-1)).abs(),
        ),
        "the table has a row for each place": lambda positions: oracle.position_distances(positions.T.contiguous()),
        "distances point nowhere: both triangles are filled": Replays(
            lambda positions: oracle.position_distances(positions).triu(),
            lambda positions: oracle.position_distances(positions).tril(),
        ),
        "nothing is added under the root": Replays(
            *(
                lambda positions, more=more: (oracle.position_distances(positions) ** 2 + more).sqrt()
                for more in (1e-6, 1e-8, 1e-12)
            )
        ),
    },
)

# ---- a learned table -----------------------------------------------------------------------------


class _Learned(oracle.LearnedPositions):
    """A wrong twin in one method: `rows(x, offset)` is the right one here."""

    def forward(self, x, offset=0):
        self.look(x, offset)
        return x + self.rows(x, offset)

    def look(self, x, offset):
        if offset < 0 or offset + x.shape[-2] > len(self.table):
            raise ValueError("max_len")

    def rows(self, x, offset):
        return self.table[offset : offset + x.shape[-2]]


class _Buffer(oracle.LearnedPositions):
    def __init__(self, max_len, d_model):
        super().__init__(max_len, d_model)
        table = self.table.data
        del self.table
        self.register_buffer("table", table)


def wrong_learned(**methods):
    return type("WrongLearnedPositions", (_Learned,), methods)


def nothing(self, x, offset):
    """Nothing is refused."""


def by_batch(self, x, offset):
    """A row for each example; for want of examples, the sentence."""
    batch = x.shape[0] if x.dim() > 2 else 1
    return self.table[offset : offset + batch].view(batch, *[1] * (x.dim() - 2), -1)


def wrapped(self, x, offset):
    return self.table[torch.arange(offset, offset + x.shape[-2]) % len(self.table)]


def clamped(self, x, offset):
    return self.table[torch.arange(offset, offset + x.shape[-2]).clamp(0, len(self.table) - 1)]


def into_x(self, x, offset=0):
    self.look(x, offset)
    x += self.rows(x, offset)
    return x


def learned(name, shape, max_len, offset=None, **options):
    args = dict(x=shape) | ({} if offset is None else dict(offset=offset))
    return case(name, args, init=dict(max_len=max_len, d_model=shape[-1]), **options)


register(
    expected=oracle.LearnedPositions,
    phase=PHASE,
    section="1.12",
    hint="slice the table from offset, add it to x; look at the end before you slice.",
    bans=(),
    cases=(
        learned("three sentences of five, offset 3", (3, 5, 4), 11, 3),
        learned("offset left out", (3, 5, 4), 11),
        learned("offset 0", (2, 6, 3), 9, 0),
        learned("batch as long as the sentence", (4, 4, 3), 9, 2),
        learned("the whole table", (2, 7, 4), 7),
        learned("up to the end", (2, 3, 4), 7, 4),
        learned("one token at the end", (2, 1, 4), 7, 6),
        learned("no batch axis", (5, 4), 11, 3),
        learned("two leading axes", (2, 3, 5, 4), 11, 3),
        learned("all sizes alike", (4, 4, 4), 4),
        case(
            "a sentence, then one token more",
            dict(x=(2, 5, 4)),
            then=(dict(x=(2, 1, 4), offset=5), dict(x=(2, 3, 4))),
            init=dict(max_len=9, d_model=4),
        ),
        learned("one row left", (2, 3, 4), 7, 6, kind="edge", grad=False),
        learned("one too many", (2, 5, 4), 7, 3, kind="edge", grad=False),
        learned("beyond the end", (2, 1, 4), 7, 7, kind="edge", grad=False),
        learned("far beyond the end", (2, 1, 4), 7, 30, kind="edge", grad=False),
        learned("longer than the table", (2, 8, 4), 7, kind="edge", grad=False),
        learned("offset -4", (2, 3, 4), 7, -4, kind="edge", grad=False),
        learned("offset -1", (2, 3, 4), 7, -1, kind="edge", grad=False),
    ),
    mistakes={
        "offset is needed once a cache is used": wrong_learned(rows=lambda self, x, offset: self.table[: x.shape[-2]]),
        "x was lost": wrong_learned(
            forward=lambda self, x, offset=0: (
                (self.rows(x, offset) if self.look(x, offset) is None else 0) + torch.zeros_like(x)
            )
        ),
        "positions run along the sequence": wrong_learned(rows=by_batch),
        "a negative offset is an error": wrong_learned(
            look=lambda self, x, offset: _Learned.look(self, x, max(offset, 0)),
        ),
        "positions wrapped round": wrong_learned(look=nothing, rows=wrapped),
        "beyond max_len is an error, not the last row": Replays(
            wrong_learned(look=nothing, rows=clamped),
            wrong_learned(look=nothing),
        ),
        "table itself must be the parameter (an nn.Embedding inside needs load_weights)": Spotted(
            rules.table_is_no_parameter, _Buffer, certain=True
        ),
        "the last row may be used": Spotted(
            rules.last_row_refused,
            wrong_learned(look=lambda self, x, offset: _Learned.look(self, x, offset + (offset >= 0))),
        ),
        "x was changed in place": wrong_learned(forward=into_x),
        "the table must get its gradient": wrong_learned(
            rows=lambda self, x, offset: _Learned.rows(self, x, offset).detach()
        ),
        "every place gets its own row": Replays(
            wrong_learned(rows=lambda self, x, offset: self.table[offset]),
            wrong_learned(rows=lambda self, x, offset: _Learned.rows(self, x, offset).mean(-1, keepdim=True)),
        ),
        "rows are added, not multiplied": wrong_learned(
            forward=lambda self, x, offset=0: x * self.rows(x, offset) if self.look(x, offset) is None else x
        ),
        "rows start at offset, not after it": wrong_learned(
            look=nothing, rows=lambda self, x, offset: wrapped(self, x, offset + 1)
        ),
        "no scaling here": wrong_learned(
            forward=lambda self, x, offset=0: (
                x * x.shape[-1] ** 0.5 + self.rows(x, offset) if self.look(x, offset) is None else x
            )
        ),
    },
)
