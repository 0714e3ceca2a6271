"""Unseen answers to masked_softmax and attention_weights: faults a weak check lets pass, and odd right ways."""

import math

import torch

from tests.bank import right, wrong

HIDDEN = float("-inf")


def _refuse(attn_mask):
    if attn_mask is not None and attn_mask.dtype is not torch.bool:
        raise ValueError("attn_mask must be bool")


def _weights(scores, attn_mask, dim=-1):
    """The sound version that most answers below break in one place."""
    _refuse(attn_mask)
    if attn_mask is None:
        return scores.softmax(dim)
    empty = ~torch.broadcast_to(attn_mask, scores.shape).any(dim, keepdim=True)
    return scores.masked_fill(~(attn_mask | empty), HIDDEN).softmax(dim) * attn_mask


def _scores(q, k):
    if q.shape[-1] != k.shape[-1]:
        raise ValueError("d_head of q and k differ")
    return q @ k.mT / q.shape[-1] ** 0.5


# masked_softmax, wrong ----------------------------------------------------------------------------------------------


@wrong("masked_softmax", says=None)
def empty_only_along_the_last_axis(scores, attn_mask=None, dim=-1):
    """Breaks `dim=-2`: looks for empty slices along the last axis whatever dim is."""
    _refuse(attn_mask)
    if attn_mask is None:
        return scores.softmax(dim)
    empty = ~torch.broadcast_to(attn_mask, scores.shape).any(-1, keepdim=True)
    return scores.masked_fill(~(attn_mask | empty), HIDDEN).softmax(dim) * attn_mask


@wrong("masked_softmax", says=None)
def picks_by_the_mask(scores, attn_mask=None, dim=-1):
    """Breaks "broadcastable to scores": indexing by a bool tensor needs the full shape."""
    _refuse(attn_mask)
    if attn_mask is None:
        return scores.softmax(dim)
    empty = ~attn_mask.any(dim, keepdim=True)
    filled = scores.clone()
    filled[~(attn_mask | empty)] = HIDDEN
    return filled.softmax(dim) * attn_mask


@wrong("masked_softmax", says=None)
def a_little_more_in_the_denominator(scores, attn_mask=None, dim=-1):
    """Breaks "sums exactly 1 (rtol 1e-12)": 1e-10 stands in every denominator, too small for rtol 1e-7 to see."""
    _refuse(attn_mask)
    seen = torch.ones_like(scores, dtype=torch.bool) if attn_mask is None else attn_mask
    seen = torch.broadcast_to(seen, scores.shape)
    top = scores.masked_fill(~seen, HIDDEN).amax(dim, keepdim=True)
    top = torch.where(top.isinf(), torch.zeros_like(top), top)
    exps = torch.where(seen, scores - top, HIDDEN).exp()
    return exps / (exps.sum(dim, keepdim=True) + 1e-10)


@wrong("masked_softmax", says=None)
def always_in_single_precision(scores, attn_mask=None, dim=-1):
    """Breaks rule 4: float64 scores go through float32, and only the dtype comes back."""
    return _weights(scores.float(), attn_mask, dim).to(scores.dtype)


@wrong("masked_softmax", says=None)
def fills_twenty_below_the_smallest(scores, attn_mask=None, dim=-1):
    """Breaks "others exact" and the sums: hidden keys take about e^-20 of the weight before they are set to 0."""
    _refuse(attn_mask)
    if attn_mask is None:
        return scores.softmax(dim)
    seen = torch.broadcast_to(attn_mask, scores.shape)
    least = torch.where(seen, scores, float("inf")).amin(dim, keepdim=True).detach()
    least = torch.where(least.isinf(), torch.zeros_like(least), least)
    return torch.where(seen, scores, least - 20).softmax(dim) * seen


@wrong("masked_softmax", says=None)
def minus_1e9_in_half_precision(scores, attn_mask=None, dim=-1):
    """Breaks "float16": −1e9 is no float16 number, so the fill crashes there. All else is right."""
    _refuse(attn_mask)
    if attn_mask is None:
        return scores.softmax(dim)
    return scores.masked_fill(~attn_mask, -1e9).softmax(dim) * attn_mask


@wrong("masked_softmax", says=None)
def one_empty_slice_silences_all_gradients(scores, attn_mask=None, dim=-1):
    """Breaks rule 7 (neighbours stay exact): NaN gradients are avoided by having none at all."""
    out = _weights(scores, attn_mask, dim)
    if attn_mask is None or torch.broadcast_to(attn_mask, scores.shape).any(dim).all():
        return out
    return out.detach() + 0 * scores.masked_fill(~attn_mask, 0)


@wrong("masked_softmax", says=None)
def flips_the_mask_and_forgets(scores, attn_mask=None, dim=-1):
    """Breaks "scores and mask unchanged": the caller's mask comes back inverted."""
    out = _weights(scores, attn_mask, dim)
    if attn_mask is not None:
        attn_mask.logical_not_()
    return out


@wrong("masked_softmax", says=None)
def takes_whole_numbers_for_a_mask(scores, attn_mask=None, dim=-1):
    """Breaks "Non-bool raises": floats are refused, but 0 and 1 as int64 or uint8 pass."""
    if attn_mask is not None and attn_mask.is_floating_point():
        raise ValueError("attn_mask must be bool")
    return _weights(scores, None if attn_mask is None else attn_mask.bool(), dim)


@wrong("masked_softmax", says=None)
def raises_another_error(scores, attn_mask=None, dim=-1):
    """Breaks rule 9: a TypeError is no ValueError."""
    if attn_mask is not None and attn_mask.dtype is not torch.bool:
        raise TypeError("attn_mask must be bool")
    return _weights(scores, attn_mask, dim)


# masked_softmax, right ----------------------------------------------------------------------------------------------


@right("masked_softmax", why="an extra place with the smallest finite score catches the weight of empty slices")
def with_a_place_for_nothing(scores, attn_mask=None, dim=-1):
    _refuse(attn_mask)
    if attn_mask is None:
        return scores.softmax(dim)
    nothing = torch.full_like(scores.narrow(dim, 0, 1), torch.finfo(scores.dtype).min)
    filled = scores.masked_fill(~attn_mask, HIDDEN)
    return torch.cat([filled, nothing], dim).softmax(dim).narrow(dim, 0, scores.shape[dim])


@right("masked_softmax", why="softmax of the visible entries alone, one slice at a time, put back by masked_scatter")
def only_what_is_visible(scores, attn_mask=None, dim=-1):
    _refuse(attn_mask)
    seen = torch.ones_like(scores, dtype=torch.bool) if attn_mask is None else attn_mask
    seen = torch.broadcast_to(seen, scores.shape).movedim(dim, -1)
    moved = scores.movedim(dim, -1)
    rows = [
        torch.zeros_like(row).masked_scatter(open_, row[open_].softmax(0))
        for row, open_ in zip(moved.reshape(-1, moved.shape[-1]), seen.reshape(-1, moved.shape[-1]), strict=True)
    ]
    return torch.stack(rows).reshape(moved.shape).movedim(-1, dim)


@right("masked_softmax", why="shifted scores minus their logsumexp; hidden places become −inf a second time")
def in_the_log_domain(scores, attn_mask=None, dim=-1):
    _refuse(attn_mask)
    seen = torch.ones_like(scores, dtype=torch.bool) if attn_mask is None else attn_mask
    opened = seen | ~torch.broadcast_to(seen, scores.shape).any(dim, keepdim=True)
    top = scores.masked_fill(~opened, HIDDEN).amax(dim, keepdim=True).detach()
    shifted = (scores - top).masked_fill(~opened, HIDDEN)
    logs = shifted - torch.logsumexp(shifted, dim, keepdim=True)
    sums = logs.masked_fill(~seen, HIDDEN).exp()
    total = sums.sum(dim, keepdim=True)
    return sums / torch.where(total == 0, torch.ones_like(total), total)


# attention_weights, wrong -------------------------------------------------------------------------------------------


@wrong("attention_weights", says=None)
def root_in_whole_numbers(q, k, attn_mask=None):
    """Breaks "Scale 1/√d_head": right for widths 1, 4, 9 and 16 only."""
    return _weights(_scores(q, k) * q.shape[-1] ** 0.5 / math.isqrt(q.shape[-1]), attn_mask)


@wrong("attention_weights", says=None)
def half_the_width(q, k, attn_mask=None):
    """Breaks "Scale 1/√d_head": divides by d_head / 2, the same number for width 4."""
    return _weights(_scores(q, k) * q.shape[-1] ** 0.5 / (q.shape[-1] / 2), attn_mask)


@wrong("attention_weights", says=None)
def asserts_the_width(q, k, attn_mask=None):
    """Breaks rule 9: an AssertionError is no ValueError."""
    assert q.shape[-1] == k.shape[-1], "d_head"
    return _weights(_scores(q, k), attn_mask)


@wrong("attention_weights", says=None)
def broadcasts_a_width_of_one(q, k, attn_mask=None):
    """Breaks "Raises if widths differ": width 1 against any other broadcasts and is let through."""
    if q.shape[-1] != k.shape[-1] and 1 not in (q.shape[-1], k.shape[-1]):
        raise ValueError("d_head of q and k differ")
    products = q.unsqueeze(-2) * k.unsqueeze(-3)
    return _weights(products.sum(-1) / q.shape[-1] ** 0.5, attn_mask)


@wrong("attention_weights", says=None)
def four_axes_only(q, k, attn_mask=None):
    """Breaks rule 2: with no or one leading axis the unpacking fails."""
    if q.shape[-1] != k.shape[-1]:
        raise ValueError("d_head of q and k differ")
    batch, n_heads, _, d_head = q.shape
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / d_head**0.5
    return _weights(scores.reshape(batch, n_heads, *scores.shape[2:]), attn_mask)


@wrong("attention_weights", says=None)
def masks_all_like_the_first_example(q, k, attn_mask=None):
    """Breaks rule 7 (masks differ between batch rows): the first example's mask serves all."""
    _refuse(attn_mask)
    if attn_mask is not None and attn_mask.ndim > 2:
        attn_mask = attn_mask[:1]
    return _weights(_scores(q, k), attn_mask)


@wrong("attention_weights", says=None)
def keys_get_no_gradient(q, k, attn_mask=None):
    """Breaks "both gradients": a gradient reaches q, but k is detached."""
    return _weights(_scores(q, k.detach()), attn_mask)


@wrong("attention_weights", says=None)
def scales_only_without_a_mask(q, k, attn_mask=None):
    """Breaks "Scale 1/√d_head": the masked branch forgot it."""
    if attn_mask is None:
        return _weights(_scores(q, k), None)
    return _weights(_scores(q, k) * q.shape[-1] ** 0.5, attn_mask)


@wrong("attention_weights", says=None)
def turns_the_mask_when_it_does_not_fit(q, k, attn_mask=None):
    """Breaks rule 7 (each axis alone as 1): a mask with an axis of 1 is transposed "to make it fit"."""
    scores = _scores(q, k)
    if attn_mask is not None and attn_mask.shape[-2:] != scores.shape[-2:]:
        attn_mask = torch.broadcast_to(attn_mask.mT, attn_mask.shape[:-2] + scores.shape[-2:])
    return _weights(scores, attn_mask)


@wrong("attention_weights", says=None)
def a_mask_may_be_a_float(q, k, attn_mask=None):
    """Breaks rule 7 (functions refuse other dtypes): any mask is turned into bool."""
    return _weights(_scores(q, k), None if attn_mask is None else attn_mask.bool())


# attention_weights, right -------------------------------------------------------------------------------------------


@right("attention_weights", why="each side takes the fourth root of the width, arguments have other names")
def a_fourth_root_on_each_side(queries, keys, attn_mask=None):
    if queries.size(-1) != keys.size(-1):
        raise ValueError("q and k need one d_head")
    root = queries.size(-1) ** 0.25
    return _weights((queries / root) @ (keys / root).transpose(-1, -2), attn_mask)


@right("attention_weights", why="float64 inside, bmm over flattened leading axes, and the dtype of q comes back")
def in_double_precision(q, k, attn_mask=None):
    if q.shape[-1] != k.shape[-1]:
        raise ValueError("d_head")
    left, right_side = q.double().reshape(-1, *q.shape[-2:]), k.double().reshape(-1, *k.shape[-2:])
    scores = torch.bmm(left, right_side.mT).div(math.sqrt(q.shape[-1]))
    return _weights(scores.reshape(*q.shape[:-1], k.shape[-2]), attn_mask).to(q.dtype)


@right("attention_weights", why="one key at a time: a list of columns of scores is stacked")
def column_by_column(q, k, attn_mask=None):
    if q.shape[-1] != k.shape[-1]:
        raise ValueError("d_head")
    columns = [(q * key.unsqueeze(-2)).sum(-1) for key in k.unbind(-2)]
    return _weights(torch.stack(columns, -1) * q.shape[-1] ** -0.5, attn_mask)
