"""causal_mask: wrong solutions and unusual right ones."""

import numpy as np
import torch

from tests.bank import right, wrong


def _offset(q_len, kv_len):
    kv_len = q_len if kv_len is None else kv_len
    return kv_len, kv_len - q_len


# ---------------------------------------------------------------- wrong


@wrong("causal_mask", says="this hides the past")
def upper_triangle(q_len, kv_len=None):
    kv_len, offset = _offset(q_len, kv_len)
    return torch.triu(torch.ones(q_len, kv_len, dtype=torch.bool), diagonal=offset)


@wrong("causal_mask", says="this hides the past")
def upper_triangle_true_means_blocked(q_len, kv_len=None):
    kv_len, offset = _offset(q_len, kv_len)
    return torch.triu(torch.ones(q_len, kv_len, dtype=torch.bool), diagonal=offset + 1)


@wrong("causal_mask", says="a token may see itself")
def strict_triangle(q_len, kv_len=None):
    kv_len, offset = _offset(q_len, kv_len)
    return torch.tril(torch.ones(q_len, kv_len, dtype=torch.bool), diagonal=offset - 1)


@wrong("causal_mask")
def one_step_ahead(q_len, kv_len=None):
    kv_len, offset = _offset(q_len, kv_len)
    return torch.tril(torch.ones(q_len, kv_len, dtype=torch.bool), diagonal=offset + 1)


@wrong("causal_mask", says="align the last query with the last key")
def start_aligned(q_len, kv_len=None):
    kv_len, _ = _offset(q_len, kv_len)
    return torch.tril(torch.ones(q_len, kv_len, dtype=torch.bool))


@wrong("causal_mask", says="align the last query with the last key")
def start_aligned_ranges(q_len, kv_len=None):
    kv_len, _ = _offset(q_len, kv_len)
    return torch.arange(kv_len) <= torch.arange(q_len)[:, None]


@wrong("causal_mask")
def offset_never_negative(q_len, kv_len=None):
    kv_len, offset = _offset(q_len, kv_len)
    return torch.tril(torch.ones(q_len, kv_len, dtype=torch.bool), diagonal=max(0, offset))


@wrong("causal_mask")
def offset_reversed(q_len, kv_len=None):
    kv_len, offset = _offset(q_len, kv_len)
    return torch.tril(torch.ones(q_len, kv_len, dtype=torch.bool), diagonal=-offset)


@wrong("causal_mask", says="masks are bool")
def floats(q_len, kv_len=None):
    kv_len, offset = _offset(q_len, kv_len)
    return torch.tril(torch.ones(q_len, kv_len), diagonal=offset)


@wrong("causal_mask", says="masks are bool")
def zeros_and_infinities(q_len, kv_len=None):
    kv_len, offset = _offset(q_len, kv_len)
    return torch.full((q_len, kv_len), float("-inf")).triu(offset + 1)


@wrong("causal_mask", says="masks are bool")
def integers(q_len, kv_len=None):
    kv_len, offset = _offset(q_len, kv_len)
    return torch.ones(q_len, kv_len, dtype=torch.int64).tril(offset)


@wrong("causal_mask")
def transposed(q_len, kv_len=None):
    kv_len, offset = _offset(q_len, kv_len)
    return torch.tril(torch.ones(q_len, kv_len, dtype=torch.bool), diagonal=offset).T


@wrong("causal_mask")
def sizes_exchanged(q_len, kv_len=None):
    kv_len, offset = _offset(q_len, kv_len)
    return torch.tril(torch.ones(kv_len, q_len, dtype=torch.bool), diagonal=offset)


@wrong("causal_mask", says="kv_len was ignored")
def square_only(q_len, kv_len=None):
    return torch.tril(torch.ones(q_len, q_len, dtype=torch.bool))


@wrong("causal_mask")
def with_leading_axes(q_len, kv_len=None):
    kv_len, offset = _offset(q_len, kv_len)
    return torch.ones(1, 1, q_len, kv_len, dtype=torch.bool).tril(offset)


@wrong("causal_mask")
def numpy_array(q_len, kv_len=None):
    kv_len, offset = _offset(q_len, kv_len)
    return np.tri(q_len, kv_len, offset, dtype=bool)


# ---------------------------------------------------------------- right


@right("causal_mask", why="tril with a diagonal")
def lower_triangle(q_len, kv_len=None):
    if kv_len is None:
        kv_len = q_len
    return torch.ones(q_len, kv_len).tril(diagonal=kv_len - q_len).bool()


@right("causal_mask", why="compares two ranges counted from the end")
def ranges_from_the_end(q_len, kv_len=None):
    own = torch.arange(-q_len, 0).unsqueeze(1)
    return own >= torch.arange(-(kv_len or q_len), 0).unsqueeze(0)


@right("causal_mask", why="cumulative sums of a single diagonal: before it 0, from it on 1")
def cumulative_sums(q_len, kv_len=None):
    kv_len, offset = _offset(q_len, kv_len)
    edges = torch.ones(q_len, kv_len).triu(offset + 1)
    return edges.cumsum(dim=1) == 0


@right("causal_mask", why="one vector read with stride -1 through as_strided, as a copy")
def strided(q_len, kv_len=None):
    kv_len, _ = _offset(q_len, kv_len)
    line = torch.arange(q_len + kv_len - 1) < kv_len
    return line.as_strided((q_len, kv_len), (1, 1)).flip(0).clone()


@right("causal_mask", why="a list of lists of Python bools")
def nested_lists(q_len, kv_len=None):
    kv_len, offset = _offset(q_len, kv_len)
    return torch.tensor([[j <= i + offset for j in range(kv_len)] for i in range(q_len)], dtype=torch.bool)


@right("causal_mask", why="from NumPy's tri, sharing its memory")
def from_numpy(q_len, kv_len=None):
    kv_len, offset = _offset(q_len, kv_len)
    return torch.from_numpy(np.tri(q_len, kv_len, offset, dtype=bool))


@right("causal_mask", why="the lower right corner of a large enough square")
def cut_from_square(q_len, kv_len=None):
    kv_len, _ = _offset(q_len, kv_len)
    size = max(q_len, kv_len)
    square = ~torch.triu(torch.ones(size, size, dtype=torch.bool), diagonal=1)
    return square[size - q_len :, size - kv_len :]
