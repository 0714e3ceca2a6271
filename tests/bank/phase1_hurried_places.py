"""Phase 1, shares and places: what hurried students hand in, and what experts do differently."""

import math

import numpy as np
import torch
from torch import nn

from tests.bank import right, wrong


def named(name, function):
    function.__name__, function.__module__ = name, __name__
    return function


# ---------------------------------------------------------------- softmax


def exps(x, dim):
    return (x - x.amax(dim, keepdim=True)).exp()


@wrong("softmax", says="nothing is added to the sum")
def small_eps(x, dim):
    return exps(x, dim) / (exps(x, dim).sum(dim, keepdim=True) + 1e-8)


@wrong("softmax", says="each slice has its own sum")
def sum_of_all(x, dim):
    return exps(x, dim) / exps(x, dim).sum()


@wrong("softmax", says="clamping changes the shares: subtract the maximum")
def clamped_at_80(x, dim):
    e = x.clamp(-80, 80).exp()
    return e / e.sum(dim, keepdim=True)


@wrong("softmax", says="divide by the sum, not by the largest")
def forgot_to_divide(x, dim):
    return exps(x, dim)


@wrong("softmax", says="subtract the maximum, do not divide by it")
def divided_by_the_largest(x, dim):
    e = (x / x.amax(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)


@wrong("softmax", says="dim was ignored")
def always_minus_one(x, dim):
    return exps(x, -1) / exps(x, -1).sum(-1, keepdim=True)


@right("softmax", "unbind, stack and a Python sum")
def by_unbinding(x, dim):
    parts = [(part - x.amax(dim)).exp() for part in x.unbind(dim)]
    return torch.stack([part / sum(parts) for part in parts], dim)


@right("softmax", "two dimensions inside")
def flattened_inside(x, dim):
    moved = x.movedim(dim, -1)
    flat = moved.reshape(-1, moved.shape[-1])
    e = torch.exp(flat - flat.max(dim=1, keepdim=True).values)
    return (e / e.sum(1).unsqueeze(1)).reshape(moved.shape).movedim(-1, dim)


@right("softmax", "as the gradient of logsumexp would have it, by einsum-free reciprocal")
def by_reciprocal(x, dim):
    e = exps(x, dim)
    return e * e.sum(dim, keepdim=True).reciprocal()


# ---------------------------------------------------------------- sinusoidal_positions


def waves(seq_len, d_model, base, exponents=None, dtype=torch.float64):
    if d_model % 2:
        raise ValueError("d_model must be even")
    pairs = torch.arange(0, d_model, 2, dtype=dtype) / d_model if exponents is None else exponents
    angles = torch.arange(seq_len, dtype=dtype)[:, None] * float(base) ** -pairs
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1).to(torch.get_default_dtype())


@wrong("sinusoidal_positions", says="the exponent is 2i/d, i counts pairs")
def i_over_d(seq_len, d_model, base=10000.0):
    waves(1, d_model, base)
    return waves(seq_len, d_model, base, torch.arange(d_model // 2, dtype=torch.float64) / d_model)


@wrong("sinusoidal_positions", says="pairs are counted from 0")
def pairs_from_one(seq_len, d_model, base=10000.0):
    waves(1, d_model, base)
    return waves(seq_len, d_model, base, torch.arange(2, d_model + 1, 2, dtype=torch.float64) / d_model)


@wrong("sinusoidal_positions", says="a row per place: the table is transposed")
def columns_are_places(seq_len, d_model, base=10000.0):
    return waves(seq_len, d_model, base).T.contiguous()


@wrong("sinusoidal_positions", says="sine everywhere: the second of a pair is the cosine")
def only_sines(seq_len, d_model, base=10000.0):
    return waves(seq_len, d_model, base)[:, 0::2].repeat_interleave(2, 1)


@wrong("sinusoidal_positions", says="frequencies fall with i: the exponent is negative")
def growing(seq_len, d_model, base=10000.0):
    waves(1, d_model, base)
    return waves(seq_len, d_model, base, -torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)


@wrong("sinusoidal_positions", says="the table is not scaled")
def made_unit_length(seq_len, d_model, base=10000.0):
    table = waves(seq_len, d_model, base)
    return table / table.norm(dim=-1, keepdim=True)


@right("sinusoidal_positions", "log-space frequencies in float32 with math.log")
def log_space(seq_len, d_model, base=10000.0):
    if d_model % 2 == 1:
        raise ValueError("even widths only")
    div = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(base) / d_model))
    pe = torch.zeros(seq_len, d_model)
    position = torch.arange(0, seq_len, dtype=torch.float).unsqueeze(1)
    pe[:, 0::2] = torch.sin(position * div)
    pe[:, 1::2] = torch.cos(position * div)
    return pe


@right("sinusoidal_positions", "NumPy's where on all columns")
def by_where(seq_len, d_model, base=10000.0):
    if d_model & 1:
        raise ValueError("d_model is odd, must be even")
    column = np.arange(d_model)
    angles = np.arange(seq_len)[:, None] / np.power(base, (column - column % 2) / d_model)
    return torch.tensor(np.where(column % 2 == 0, np.sin(angles), np.cos(angles)), dtype=torch.get_default_dtype())


@right("sinusoidal_positions", "row after row by turning the one before")
def row_by_row(seq_len, d_model, base=10000.0):
    first, one = waves(1, d_model, base)[0].double(), waves(2, d_model, base)[1].double()
    s, c, rows = one[0::2], one[1::2], [first]
    for _ in range(seq_len - 1):
        a, b = rows[-1][0::2], rows[-1][1::2]
        rows.append(torch.stack([a * c + b * s, b * c - a * s], -1).flatten())
    return torch.stack(rows).to(torch.get_default_dtype())


# ---------------------------------------------------------------- shift_matrix


def blocks(offset, d_model, base, upper=-1.0, lower=1.0, corner=1.0, exponent=2):
    if d_model % 2:
        raise ValueError("d_model must be even")
    out = torch.zeros(d_model, d_model)
    for i in range(d_model // 2):
        t = offset * base ** (-exponent * i / d_model)
        c, s = math.cos(t), math.sin(t)
        out[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor([[c, upper * s], [lower * s, corner * c]])
    return out


SHIFTS = {
    "textbook_rotation": ("this shifts backwards (columns convention)", dict(upper=1.0, lower=-1.0)),
    "no_minus": ("this is no turn: one sine needs a minus", dict(upper=1.0, lower=1.0)),
    "mirror": ("this is no turn: one sine needs a minus", dict(upper=1.0, lower=1.0, corner=-1.0)),
    "i_not_2i": ("the exponent is 2i/d, i counts pairs", dict(exponent=1)),
    "growing_speeds": ("frequencies fall with i: the exponent is negative", dict(exponent=-2)),
}
for _name, (_says, _options) in SHIFTS.items():
    wrong("shift_matrix", says=_says)(
        named(
            f"shift_{_name}",
            lambda offset, d_model, base=10000.0, options=_options: blocks(offset, d_model, base, **options),
        )
    )


@wrong("shift_matrix", says="a negative offset shifts back")
def modulus(offset, d_model, base=10000.0):
    return blocks(abs(offset), d_model, base)


@right("shift_matrix", "torch.matrix_exp of a skew matrix")
def by_exponential(offset, d_model, base=10000.0):
    if d_model % 2 != 0:
        raise ValueError("must be even")
    skew, even = torch.zeros(d_model, d_model), torch.arange(0, d_model, 2)
    skew[even + 1, even] = offset * base ** (-even / d_model)
    return torch.matrix_exp(skew - skew.T)


@right("shift_matrix", "diagonals with torch.diag")
def by_diagonals(offset, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("d_model has to be even")
    t = (offset * base ** (-torch.arange(0, d_model, 2) / d_model)).repeat_interleave(2)
    side = t.sin()[:-1] * (torch.arange(d_model - 1) % 2 == 0)
    return torch.diag(t.cos()) + torch.diag(side, -1) - torch.diag(side, 1)


@right("shift_matrix", "a Kronecker-like sum of blocks")
def by_kron(offset, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("even")
    t = offset * base ** (-2 * torch.arange(d_model // 2) / d_model)
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    return torch.kron(t.cos().diag(), torch.eye(2)) + torch.kron(t.sin().diag(), turn)


# ---------------------------------------------------------------- position_distances


def gaps(positions):
    return positions.unsqueeze(1) - positions.unsqueeze(0)


DISTANCES = {
    "forgot_the_root": ("take the root", lambda p: gaps(p).square().sum(-1)),
    "mean_not_sum": ("sum over the features, do not average", lambda p: gaps(p).square().mean(-1).sqrt()),
    "absolute": ("that is the city-block distance", lambda p: gaps(p).abs().sum(-1)),
    "root_of_the_sum": ("every feature counts, in one sum", lambda p: gaps(p).sum(-1).square().sqrt()),
    "with_eps": ("nothing is added under the root", lambda p: (gaps(p).square().sum(-1) + 1e-8).sqrt()),
    "over_features": ("the table has a row for each place", lambda p: gaps(p.T).square().sum(-1).sqrt()),
}
for _name, (_says, _formula) in DISTANCES.items():
    wrong("position_distances", says=_says)(named(_name, lambda positions, formula=_formula: formula(positions)))


@right("position_distances", "hypot, feature by feature")
def by_hypot(positions):
    table = torch.zeros(len(positions), len(positions), dtype=positions.dtype)
    for column in positions.T:
        table = torch.hypot(table, column[:, None] - column)
    return table


@right("position_distances", "vector_norm over the last axis")
def by_vector_norm(positions):
    return torch.linalg.vector_norm(positions[:, None, :] - positions, dim=-1)


@right("position_distances", "pdist fills one triangle, mirrored")
def by_pdist(positions):
    n = len(positions)
    table = positions.new_zeros(n, n)
    row, column = torch.triu_indices(n, n, 1)
    table[row, column] = torch.pdist(positions) if n > 1 else positions.new_zeros(0)
    return table + table.T


# ---------------------------------------------------------------- LearnedPositions


class _Table(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.max_len, self.table = max_len, nn.Parameter(torch.randn(max_len, d_model))

    def look(self, x, offset):
        if offset < 0 or offset + x.size(-2) > self.max_len:
            raise ValueError("beyond max_len")

    def forward(self, x, offset=0):
        self.look(x, offset)
        return x + self.table[offset : offset + x.size(-2)]


@wrong("LearnedPositions", says="x was changed in place")
class PlusEquals(_Table):
    def forward(self, x, offset=0):
        self.look(x, offset)
        x += self.table[offset : offset + x.shape[-2]]
        return x


@wrong("LearnedPositions", says="table itself must be the parameter (an nn.Embedding inside needs load_weights)")
class EmbeddingCalledTable(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.max_len, self.table = max_len, nn.Embedding(max_len, d_model)

    def forward(self, x, offset=0):
        if offset < 0 or offset + x.shape[-2] > self.max_len:
            raise ValueError("max_len")
        return x + self.table(torch.arange(offset, offset + x.shape[-2]))


@wrong("LearnedPositions", says="the last row may be used")
class OneTooStrict(_Table):
    def look(self, x, offset):
        if offset < 0 or offset + x.size(-2) >= self.max_len:
            raise ValueError("beyond max_len")


@wrong("LearnedPositions", says="a negative offset is an error")
class AnyOffset(_Table):
    def look(self, x, offset):
        if offset + x.size(-2) > self.max_len:
            raise ValueError("beyond max_len")


@wrong("LearnedPositions", says="the table must get its gradient")
class WithData(_Table):
    def forward(self, x, offset=0):
        self.look(x, offset)
        return x + self.table.data[offset : offset + x.shape[-2]]


@wrong("LearnedPositions", says="rows are added, not multiplied")
class Times(_Table):
    def forward(self, x, offset=0):
        self.look(x, offset)
        return x * self.table[offset : offset + x.shape[-2]]


@right("LearnedPositions", "an error of its own kind, F.embedding")
class Functional(_Table):
    class TooLong(ValueError):
        """Its own name."""

    def forward(self, x, offset=0):
        places = torch.arange(x.shape[-2]) + offset
        if int(places[0]) < 0 or int(places[-1]) >= len(self.table):
            raise self.TooLong("the table ends before this place")
        return nn.functional.embedding(places, self.table).expand_as(x) + x


@right("LearnedPositions", "index_select, and assertions turned into ValueError")
class Selected(_Table):
    def forward(self, x, offset=0):
        n = x.shape[-2]
        if not 0 <= offset <= self.max_len - n:
            raise ValueError(f"offset {offset} and {n} tokens: too long")
        return torch.add(x, self.table.index_select(0, torch.arange(offset, offset + n)))


@right("LearnedPositions", "a ParameterDict-free table made with empty and initialised")
class Initialised(_Table):
    def __init__(self, max_len, d_model):
        super().__init__(max_len, d_model)
        nn.init.trunc_normal_(self.table, std=0.01)
