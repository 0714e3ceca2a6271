"""position_distances and LearnedPositions: wrong solutions and unusual right ones."""

import torch
from torch import nn

from tests.bank import right, wrong

# ---------------------------------------------------------------- position_distances, wrong


@wrong("position_distances", says="take the root")
def squared(positions):
    return ((positions[:, None] - positions) ** 2).sum(-1)


@wrong("position_distances", says="that is the city-block distance")
def city_block(positions):
    return (positions[:, None] - positions).abs().sum(-1)


@wrong("position_distances", says="angle, not distance")
def cosine_distance(positions):
    unit = positions / positions.norm(dim=-1, keepdim=True)
    return 1 - unit @ unit.T


@wrong("position_distances", says="angle, not distance")
def cosine_similarity(positions):
    unit = torch.nn.functional.normalize(positions, dim=-1)
    return unit @ unit.T


@wrong("position_distances", says="rounding made a square negative")
def expanded(positions):
    squares = positions.square().sum(-1)
    return (squares[:, None] + squares[None] - 2 * (positions @ positions.T) - 1e-12).sqrt()


@wrong("position_distances", says="subtract first, then square: large entries lose their digits")
def expanded_and_clamped(positions):
    squares = positions.square().sum(-1)
    return (squares[:, None] + squares[None] - 2 * (positions @ positions.T)).clamp(min=0).sqrt()


@wrong("position_distances", says="subtract first, then square: large entries lose their digits")
def torchs_fast_way(positions):
    return torch.cdist(positions, positions, compute_mode="use_mm_for_euclid_dist")


@wrong("position_distances", says="measure the encodings, not their places")
def steps_apart(positions):
    n = torch.arange(len(positions)).to(positions.dtype)
    return (n - n[:, None]).abs()


@wrong("position_distances", says="sum over the features, do not average")
def root_mean_square(positions):
    return ((positions[:, None] - positions) ** 2).mean(-1).sqrt()


@wrong("position_distances", says="that is the largest difference")
def largest_difference(positions):
    return (positions[:, None] - positions).abs().amax(-1)


@wrong("position_distances", says="that is a table of products")
def products(positions):
    return positions @ positions.T


@wrong("position_distances")
def features_apart(positions):
    return torch.cdist(positions.T.contiguous(), positions.T.contiguous())


@wrong("position_distances")
def with_a_constant(positions):
    return (((positions[:, None] - positions) ** 2).sum(-1) + 1e-6).sqrt()


@wrong("position_distances")
def one_triangle(positions):
    return torch.cdist(positions, positions).triu()


@wrong("position_distances")
def always_double(positions):
    return torch.cdist(positions.double(), positions.double())


@wrong("position_distances")
def differences_of_lengths(positions):
    lengths = positions.norm(dim=-1)
    return (lengths[:, None] - lengths).abs()


# ---------------------------------------------------------------- position_distances, right


@right("position_distances", why="torch.cdist")
def by_cdist(positions):
    return torch.cdist(positions, positions)


@right("position_distances", why="broadcasting")
def by_broadcasting(positions):
    return (positions[:, None] - positions).square().sum(-1).sqrt()


@right("position_distances", why="two loops over rows")
def by_loops(positions):
    rows = [[torch.dist(a, b) for b in positions] for a in positions]
    return torch.stack([torch.stack(row) for row in rows])


@right("position_distances", why="products, after the mean was taken away, in float64")
def centred_products(positions):
    wide = positions.double()
    wide = wide - wide.mean(0)
    squares = (wide**2).sum(-1)
    table = (squares[:, None] + squares - 2 * wide @ wide.T).clamp(min=0).fill_diagonal_(0)
    return table.sqrt().to(positions.dtype)


@right("position_distances", why="vector_norm of differences")
def by_norm(positions):
    return torch.linalg.vector_norm(positions.unsqueeze(0) - positions.unsqueeze(1), dim=2)


# ---------------------------------------------------------------- LearnedPositions


class _Learned(nn.Module):
    """Right as it stands; each wrong solution changes one method."""

    def __init__(self, max_len, d_model):
        super().__init__()
        self.make(max_len, d_model)

    def make(self, max_len, d_model):
        self.table = nn.Parameter(torch.zeros(max_len, d_model))

    def look(self, offset, seq_len):
        if offset < 0 or offset + seq_len > len(self.table):
            raise ValueError(f"max_len is {len(self.table)}")

    def rows(self, x, offset):
        return self.table[offset : offset + x.shape[-2]]

    def forward(self, x, offset=0):
        self.look(offset, x.shape[-2])
        return x + self.rows(x, offset)


# ---------------------------------------------------------------- LearnedPositions, wrong


@wrong("LearnedPositions", says="offset is needed once a cache is used")
class OffsetIgnored(_Learned):
    def rows(self, x, offset):
        return self.table[: x.shape[-2]]


@wrong("LearnedPositions", says="x was lost")
class PositionsOnly(_Learned):
    def forward(self, x, offset=0):
        self.look(offset, x.shape[-2])
        return self.rows(x, offset).expand(x.shape).clone()


@wrong("LearnedPositions", says="positions run along the sequence")
class RowByExample(_Learned):
    def rows(self, x, offset):
        if x.dim() < 3:
            return self.table[offset : offset + 1]
        return self.table[offset : offset + len(x)].reshape(len(x), *[1] * (x.dim() - 2), -1)


@wrong("LearnedPositions", says="positions wrapped round")
class Wrapped(_Learned):
    def look(self, offset, seq_len):
        pass

    def rows(self, x, offset):
        return self.table[torch.arange(offset, offset + x.shape[-2]) % len(self.table)]


@wrong("LearnedPositions", says="beyond max_len is an error, not the last row")
class Clamped(_Learned):
    def look(self, offset, seq_len):
        pass

    def rows(self, x, offset):
        return self.table[torch.arange(offset, offset + x.shape[-2]).clamp(0, len(self.table) - 1)]


@wrong("LearnedPositions", says="beyond max_len is an error, not the last row")
class OneRowBroadcasts(_Learned):
    def look(self, offset, seq_len):
        pass


@wrong("LearnedPositions", says="a negative offset is an error")
class NegativeOffsets(_Learned):
    def look(self, offset, seq_len):
        if offset + seq_len > len(self.table):
            raise ValueError("max_len")


@wrong("LearnedPositions", says="table itself must be the parameter (an nn.Embedding inside needs load_weights)")
class Buffer(_Learned):
    def make(self, max_len, d_model):
        self.register_buffer("table", torch.zeros(max_len, d_model))


@wrong("LearnedPositions", says="the last row may be used")
class LastRowRefused(_Learned):
    def look(self, offset, seq_len):
        if offset < 0 or offset + seq_len >= len(self.table):
            raise ValueError("max_len")


@wrong("LearnedPositions", says="no scaling here")
class Scaled(_Learned):
    def forward(self, x, offset=0):
        self.look(offset, x.shape[-2])
        return x * x.shape[-1] ** 0.5 + self.rows(x, offset)


@wrong("LearnedPositions")
class Detached(_Learned):
    def rows(self, x, offset):
        return self.table[offset : offset + x.shape[-2]].detach()


@wrong("LearnedPositions")
class WrittenIntoX(_Learned):
    def forward(self, x, offset=0):
        self.look(offset, x.shape[-2])
        x += self.rows(x, offset)
        return x


@wrong("LearnedPositions")
class OneNumberPerPlace(_Learned):
    def make(self, max_len, d_model):
        self.table = nn.Parameter(torch.zeros(max_len, 1))


@wrong("LearnedPositions")
class OneTableTooMany(_Learned):
    def make(self, max_len, d_model):
        super().make(max_len, d_model)
        self.scale = nn.Parameter(torch.ones(d_model))


@wrong("LearnedPositions")
class OnlyTheFirstExample(_Learned):
    def forward(self, x, offset=0):
        self.look(offset, x.shape[-2])
        if x.dim() < 3:
            return x + self.rows(x, offset)
        return torch.cat([x[:1] + self.rows(x, offset), x[1:] + self.rows(x, offset).detach()])


@wrong("LearnedPositions")
class CountsOnByItself(_Learned):
    seen = 0

    def forward(self, x, offset=0):
        self.look(offset, x.shape[-2])
        start = max(offset, self.seen)
        self.seen = start + x.shape[-2]
        return x + self.table[start : start + x.shape[-2]]


@wrong("LearnedPositions")
class IndexErrors(_Learned):
    def look(self, offset, seq_len):
        if offset < 0 or offset + seq_len > len(self.table):
            raise IndexError("beyond max_len")


# ---------------------------------------------------------------- LearnedPositions, right


@right("LearnedPositions", why="slices the table")
class Sliced(_Learned):
    pass


@right("LearnedPositions", why="an nn.Embedding inside, filled through load_weights")
class Embedded(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.rows = nn.Embedding(max_len, d_model)

    def load_weights(self, weights):
        self.rows.weight.copy_(weights["table"])

    def forward(self, x, offset=0):
        places = torch.arange(offset, offset + x.shape[-2])
        if places.min() < 0 or places.max() >= self.rows.num_embeddings:
            raise ValueError("beyond max_len")
        return x + self.rows(places)


@right("LearnedPositions", why="index tensors")
class Indexed(_Learned):
    def rows(self, x, offset):
        return self.table.index_select(0, torch.arange(x.shape[-2]) + offset)


@right("LearnedPositions", why="narrow, large initial values")
class Narrowed(_Learned):
    def make(self, max_len, d_model):
        self.table = nn.Parameter(torch.empty(max_len, d_model).uniform_(-5, 5))

    def rows(self, x, offset):
        return self.table.narrow(0, offset, x.shape[-2])


@right("LearnedPositions", why="torch.add, and narrow's own error turned into ValueError")
class Caught(_Learned):
    def forward(self, x, offset=0):
        try:
            if offset < 0:
                raise IndexError("negative")
            return torch.add(self.table.narrow(0, offset, x.shape[-2]), x)
        except (IndexError, RuntimeError) as error:
            raise ValueError(f"max_len: {error}") from None
