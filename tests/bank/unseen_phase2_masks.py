"""Unseen answers to causal_mask, padding_mask, combine_masks and attention_cost."""

import functools
import itertools
import math

import numpy as np
import torch

from tests.bank import right, wrong

_TABLE = torch.ones(16, 16, dtype=torch.bool).tril()


def _is_bool(*masks):
    if any(mask is not None and mask.dtype is not torch.bool for mask in masks):
        raise ValueError("masks are bool")


# causal_mask, wrong -------------------------------------------------------------------------------------------------


@wrong("causal_mask", says=None)
def offset_without_its_sign(q_len, kv_len=None):
    """Breaks "also when q_len > kv_len": the offset loses its sign, right whenever kv_len >= q_len."""
    kv_len = q_len if kv_len is None else kv_len
    return torch.ones(q_len, kv_len, dtype=torch.bool).tril(abs(kv_len - q_len))


@wrong("causal_mask", says=None)
def offset_never_below_zero(q_len, kv_len=None):
    """Breaks "aligned to the end, also when q_len > kv_len": there it is aligned to the start."""
    kv_len = q_len if kv_len is None else kv_len
    keys = torch.arange(kv_len)
    return keys <= torch.arange(q_len).unsqueeze(-1) + max(kv_len - q_len, 0)


@wrong("causal_mask", says=None)
def cut_from_a_table(q_len, kv_len=None):
    """Breaks the shape when q_len > kv_len: the rows kv_len - q_len … of a ready table start at a negative number."""
    kv_len = q_len if kv_len is None else kv_len
    return _TABLE[kv_len - q_len : kv_len, :kv_len].clone()


@wrong("causal_mask", says=None)
def nobody_goes_empty(q_len, kv_len=None):
    """Breaks "then the first rows are empty": every query is given at least the first key."""
    kv_len = q_len if kv_len is None else kv_len
    mask = torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)
    mask[:, 0] = True
    return mask


@wrong("causal_mask", says=None)
def ready_for_four_axes(q_len, kv_len=None):
    """Breaks "bool (q_len, kv_len)": comes with the axes of batch and heads."""
    kv_len = q_len if kv_len is None else kv_len
    return torch.ones(1, 1, q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)


@wrong("causal_mask", says=None)
def bytes_for_bools(q_len, kv_len=None):
    """Breaks "dtype bool": 0 and 1 as uint8 compare equal to a bool mask."""
    kv_len = q_len if kv_len is None else kv_len
    return torch.ones(q_len, kv_len, dtype=torch.uint8).tril(kv_len - q_len)


@wrong("causal_mask", says=None)
def counts_its_calls(q_len, kv_len=None, _seen=[]):  # noqa: B006
    """Breaks rule 6 (no memory): remembers the offset of the first call."""
    kv_len = q_len if kv_len is None else kv_len
    _seen.append(kv_len - q_len)
    return torch.ones(q_len, kv_len, dtype=torch.bool).tril(_seen[0])


# causal_mask, right -------------------------------------------------------------------------------------------------


@right("causal_mask", why="a list of lists of Python bools")
def spelled_out(n_queries, kv_len=None):
    n_keys = n_queries if kv_len is None else kv_len
    rows = [[j - n_keys <= i - n_queries for j in range(n_keys)] for i in range(n_queries)]
    return torch.tensor(rows, dtype=torch.bool)


@right("causal_mask", why="NumPy's tri, turned into a tensor")
def by_way_of_numpy(q_len, kv_len=None):
    kv_len = q_len if kv_len is None else kv_len
    return torch.from_numpy(np.tri(q_len, kv_len, kv_len - q_len, dtype=bool))


@right("causal_mask", why="flipped, so that both ends meet in the corner: what is not above the diagonal there")
def seen_from_the_end(q_len, kv_len=None):
    kv_len = q_len if kv_len is None else kv_len
    future = torch.ones(q_len, kv_len).tril(-1)
    return ~future.flip(0, 1).bool()


# padding_mask, wrong ------------------------------------------------------------------------------------------------


@wrong("padding_mask", says=None)
def one_row_per_query(pad_mask):
    """Breaks "exactly (batch, 1, 1, kv_len)": expanded to (batch, 1, kv_len, kv_len)."""
    _is_bool(pad_mask)
    if pad_mask.ndim != 2:
        raise ValueError("(batch, kv_len)")
    return pad_mask[:, None, None].expand(-1, 1, pad_mask.shape[1], -1)


@wrong("padding_mask", says=None)
def one_sentence_is_a_batch(pad_mask):
    """Breaks "Raises for another rank": (kv_len,) is taken for a batch of one."""
    _is_bool(pad_mask)
    if pad_mask.ndim > 2:
        raise ValueError("(batch, kv_len)")
    return torch.atleast_2d(pad_mask)[:, None, None]


@wrong("padding_mask", says=None)
def square_masks_are_for_queries(pad_mask):
    """Breaks the shape when batch equals kv_len: a square mask is read as (q_len, kv_len)."""
    _is_bool(pad_mask)
    if pad_mask.ndim != 2:
        raise ValueError("(batch, kv_len)")
    return pad_mask[None, None] if pad_mask.shape[0] == pad_mask.shape[1] else pad_mask[:, None, None]


@wrong("padding_mask", says=None)
def zeros_and_ones_will_do(pad_mask):
    """Breaks "Raises for non-bool": 0 and 1 as whole numbers are turned into bool."""
    if pad_mask.ndim != 2 or pad_mask.is_floating_point():
        raise ValueError("(batch, kv_len) bool")
    return pad_mask.bool()[:, None, None]


@wrong("padding_mask", says=None)
def reshapes_the_argument(pad_mask):
    """Breaks rule 6: the caller's mask itself gets two more axes."""
    _is_bool(pad_mask)
    if pad_mask.ndim != 2:
        raise ValueError("(batch, kv_len)")
    return pad_mask.unsqueeze_(1).unsqueeze_(1)


@wrong("padding_mask", says=None)
def asserts_the_rank(pad_mask):
    """Breaks rule 9: an AssertionError is no ValueError."""
    _is_bool(pad_mask)
    assert pad_mask.ndim == 2, "(batch, kv_len)"
    return pad_mask[:, None, None]


@wrong("padding_mask", says=None)
def an_empty_message(pad_mask):
    """Breaks rule 9 (a message that is not empty): raises a bare ValueError."""
    if pad_mask.dtype is not torch.bool or pad_mask.ndim != 2:
        raise ValueError
    return pad_mask[:, None, None]


# padding_mask, right ------------------------------------------------------------------------------------------------


@right("padding_mask", why="unpacking two sizes is itself a ValueError for another rank")
def unpacks_two_sizes(mask):
    batch, kv_len = mask.shape
    _is_bool(mask)
    return mask.reshape(batch, 1, 1, kv_len)


@right("padding_mask", why="twice negated, row by row, stacked")
def row_by_row(pad_mask):
    if pad_mask.dim() != 2 or pad_mask.dtype != torch.bool:
        raise ValueError(f"need (batch, kv_len) of bool, got {tuple(pad_mask.shape)} of {pad_mask.dtype}")
    return torch.stack([~(~row).view(1, 1, -1) for row in pad_mask])


# combine_masks, wrong -----------------------------------------------------------------------------------------------


@wrong("combine_masks", says=None)
def looks_from_the_second_on(*masks):
    """Breaks "Non-bool raises": a mask that stands alone is never looked at."""
    masks = [mask for mask in masks if mask is not None]
    if len(masks) > 1:
        _is_bool(*masks)
    return functools.reduce(torch.logical_and, masks) if masks else None


@wrong("combine_masks", says=None)
def looks_at_the_first_alone(*masks):
    """Breaks "Non-bool raises": only the first mask is looked at."""
    _is_bool(*masks[:1])
    masks = [mask for mask in masks if mask is not None]
    return functools.reduce(torch.logical_and, masks) if masks else None


@wrong("combine_masks", says=None)
def into_the_first(*masks):
    """Breaks "Arguments unchanged": where the shapes allow it the first mask takes the result."""
    _is_bool(*masks)
    masks = [mask for mask in masks if mask is not None]
    if not masks:
        return None
    out = masks[0]
    for mask in masks[1:]:
        if torch.broadcast_shapes(out.shape, mask.shape) == out.shape:
            out &= mask
        else:
            out = out & mask
    return out


@wrong("combine_masks", says=None)
def drops_what_hides_nothing(*masks):
    """Breaks "Broadcast AND": a mask that is True everywhere is dropped, and its shape with it."""
    _is_bool(*masks)
    masks = [mask for mask in masks if mask is not None and not mask.all()]
    return functools.reduce(torch.logical_and, masks) if masks else None


@wrong("combine_masks", says=None)
def lines_up_the_first_axes(*masks):
    """Breaks "Broadcast": ranks are made equal by axes at the end, not at the front."""
    _is_bool(*masks)
    masks = [mask for mask in masks if mask is not None]
    rank = max((mask.ndim for mask in masks), default=0)
    masks = [mask[(..., *[None] * (rank - mask.ndim))] for mask in masks]
    return functools.reduce(torch.logical_and, masks) if masks else None


@wrong("combine_masks", says=None)
def stops_at_two(*masks):
    """Breaks "any number": the third mask is never used."""
    _is_bool(*masks)
    masks = [mask for mask in masks if mask is not None][:2]
    return functools.reduce(torch.logical_and, masks) if masks else None


@wrong("combine_masks", says=None)
def raises_another_error(*masks):
    """Breaks rule 9: a TypeError is no ValueError."""
    masks = [mask for mask in masks if mask is not None]
    if any(mask.dtype is not torch.bool for mask in masks):
        raise TypeError("masks are bool")
    return functools.reduce(torch.logical_and, masks) if masks else None


# combine_masks, right -----------------------------------------------------------------------------------------------


@right("combine_masks", why="De Morgan: hidden where any of them hides")
def hidden_by_any(*tables):
    _is_bool(*tables)
    hidden = [~table for table in tables if table is not None]
    return ~torch.stack(torch.broadcast_tensors(*hidden)).any(0) if hidden else None


@right("combine_masks", why="recursion, None is the neutral element, and one mask alone comes back as it is")
def one_after_the_other(first=None, *others):
    _is_bool(first)
    rest = one_after_the_other(*others) if others else None
    if first is None or rest is None:
        return rest if first is None else first
    return torch.where(first, rest, False)


@right("combine_masks", why="NumPy's minimum over broadcast arrays")
def the_smallest(*masks):
    _is_bool(*masks)
    arrays = [mask.numpy() for mask in masks if mask is not None]
    return torch.from_numpy(np.array(functools.reduce(np.minimum, arrays))) if arrays else None


# attention_cost, wrong ----------------------------------------------------------------------------------------------


@wrong("attention_cost", says=None)
def rounded_on_the_way(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    """Breaks "exact beyond 2^53": a float product turned back into int."""
    tables = batch * n_heads * q_len * kv_len
    return int(4.0 * tables * d_head), tables * bytes_per_element


@wrong("attention_cost", says=None)
def numbers_of_numpy(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    """Breaks rule 14 (Python ints): NumPy's int64."""
    tables = np.prod([batch, n_heads, q_len, kv_len], dtype=np.int64)
    return 4 * tables * d_head, tables * bytes_per_element


@wrong("attention_cost", says=None)
def with_the_softmax(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    """Breaks "both matrix products, nothing else": five operations per score for scale and softmax."""
    tables = batch * n_heads * q_len * kv_len
    return 4 * tables * d_head + 5 * tables, tables * bytes_per_element


@wrong("attention_cost", says=None)
def scores_and_weights(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    """Breaks "Score table once": scores and weights are both counted."""
    tables = batch * n_heads * q_len * kv_len
    return 4 * tables * d_head, 2 * tables * bytes_per_element


@wrong("attention_cost", says=None)
def always_four_bytes(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    """Breaks "B·H·Q·K·bytes": the size of an element is fixed at float32."""
    tables = batch * n_heads * q_len * kv_len
    return 4 * tables * d_head, tables * 4


@wrong("attention_cost", says=None)
def half_of_it_is_hidden(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    """Breaks 4·B·H·Q·K·D for q_len > 1: counts the lower triangle alone, as if causal."""
    seen = sum(max(0, kv_len - later) for later in range(q_len))
    return 4 * batch * n_heads * seen * d_head, batch * n_heads * q_len * kv_len * bytes_per_element


# attention_cost, right ----------------------------------------------------------------------------------------------


@right("attention_cost", why="math.prod and shifts, other argument names")
def shifted_by_two_bits(b, h, q, k, d, width):
    return math.prod((b, h, q, k, d)) << 2, math.prod((b, h, q, k, width))


@right("attention_cost", why="product by product: what each of the two matmuls costs, head by head")
def matmul_by_matmul(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    def matmul(rows, inner, columns):
        return rows * columns * (inner + inner)

    once = matmul(q_len, d_head, kv_len) + matmul(q_len, kv_len, d_head)
    *_, tables = itertools.accumulate([batch, n_heads, q_len, kv_len], int.__mul__)
    return n_heads * (batch * once), bytes_per_element * tables
