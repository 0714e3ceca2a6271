"""padding_mask and combine_masks: wrong solutions and unusual right ones."""

import functools
import operator

import torch

from tests.bank import right, wrong

# ---------------------------------------------------------------- padding_mask, wrong


def _refuse_pad_mask(pad_mask):
    if pad_mask.dtype != torch.bool:
        raise ValueError("pad_mask must be bool")
    if pad_mask.dim() != 2:
        raise ValueError("pad_mask must be (batch, kv_len)")


@wrong("padding_mask", says="add the head and query axes")
def as_it_came(pad_mask):
    _refuse_pad_mask(pad_mask)
    return pad_mask


@wrong("padding_mask")
def one_axis_added(pad_mask):
    _refuse_pad_mask(pad_mask)
    return pad_mask[:, None, :]


@wrong("padding_mask")
def axes_in_front(pad_mask):
    _refuse_pad_mask(pad_mask)
    return pad_mask[None, None]


@wrong("padding_mask")
def inverted(pad_mask):
    _refuse_pad_mask(pad_mask)
    return ~pad_mask[:, None, None, :]


@wrong("padding_mask", says="padding hides keys")
def hides_queries(pad_mask):
    _refuse_pad_mask(pad_mask)
    return pad_mask[:, None, :, None]


@wrong("padding_mask")
def hides_keys_and_queries(pad_mask):
    _refuse_pad_mask(pad_mask)
    return pad_mask[:, None, None, :] & pad_mask[:, None, :, None]


@wrong("padding_mask")
def any_rank_accepted(pad_mask):
    if pad_mask.dtype != torch.bool:
        raise ValueError("pad_mask must be bool")
    return pad_mask[..., None, None, :]


@wrong("padding_mask")
def any_rank_reshaped(pad_mask):
    if pad_mask.dtype != torch.bool:
        raise ValueError("pad_mask must be bool")
    return pad_mask.reshape(pad_mask.shape[0], 1, 1, -1)


@wrong("padding_mask")
def any_dtype_accepted(pad_mask):
    if pad_mask.dim() != 2:
        raise ValueError("pad_mask must be (batch, kv_len)")
    return pad_mask.bool().view(pad_mask.shape[0], 1, 1, -1)


@wrong("padding_mask", says="masks are bool")
def zeros_and_infinities_for_keys(pad_mask):
    _refuse_pad_mask(pad_mask)
    bias = torch.zeros(pad_mask.shape).masked_fill(~pad_mask, float("-inf"))
    return bias[:, None, None, :]


@wrong("padding_mask", says="masks are bool")
def ones_and_zeros(pad_mask):
    _refuse_pad_mask(pad_mask)
    return pad_mask[:, None, None, :].float()


@wrong("padding_mask")
def every_query_written_out(pad_mask):
    _refuse_pad_mask(pad_mask)
    batch, kv_len = pad_mask.shape
    return pad_mask.view(batch, 1, 1, kv_len).expand(batch, 1, kv_len, kv_len)


# ---------------------------------------------------------------- padding_mask, right


@right("padding_mask", why="view")
def viewed(pad_mask):
    if pad_mask.dtype != torch.bool or pad_mask.ndim != 2:
        raise ValueError("expected a bool tensor of shape (batch, kv_len)")
    return pad_mask.view(pad_mask.size(0), 1, 1, pad_mask.size(1))


@right("padding_mask", why="unsqueeze twice")
def unsqueezed(pad_mask):
    _refuse_pad_mask(pad_mask)
    return pad_mask.unsqueeze(1).unsqueeze(1)


@right("padding_mask", why="indexing with None, then a copy")
def indexed_copy(pad_mask):
    _refuse_pad_mask(pad_mask)
    return pad_mask[:, None, None].clone()


@right("padding_mask", why="stacks the rows of the batch one by one")
def stacked_rows(pad_mask):
    _refuse_pad_mask(pad_mask)
    return torch.stack([row.expand(1, 1, -1) for row in pad_mask.unbind(0)])


@right("padding_mask", why="einsum on integers, turned back into bool")
def through_integers(pad_mask):
    _refuse_pad_mask(pad_mask)
    ones = torch.ones(1, 1, dtype=torch.int64)
    return torch.einsum("bk,hq->bhqk", pad_mask.long(), ones) > 0


# ---------------------------------------------------------------- combine_masks, wrong


def _given(masks):
    for mask in masks:
        if mask is not None and mask.dtype != torch.bool:
            raise ValueError("combine_masks takes bool masks or None")
    return [mask for mask in masks if mask is not None]


@wrong("combine_masks", says="every mask must agree")
def any_mask_is_enough(*masks):
    given = _given(masks)
    return functools.reduce(torch.logical_or, given) if given else None


@wrong("combine_masks")
def bool_plus_bool(*masks):
    given = _given(masks)
    return functools.reduce(operator.add, given) if given else None


@wrong("combine_masks", says="combine with and, not +")
def python_sum(*masks):
    given = _given(masks)
    return sum(given) if given else None


@wrong("combine_masks", says="combine with and, not +")
def sum_of_floats(*masks):
    given = _given(masks)
    return sum(mask.float() for mask in given) if given else None


@wrong("combine_masks")
def exclusive_or(*masks):
    given = _given(masks)
    return functools.reduce(operator.xor, given) if given else None


@wrong("combine_masks")
def product_of_integers(*masks):
    given = _given(masks)
    return functools.reduce(operator.mul, [mask.long() for mask in given]) if given else None


@wrong("combine_masks")
def crashes_on_none(*masks):
    if not masks:
        return None
    combined = masks[0]
    for mask in masks:
        if mask.dtype != torch.bool:
            raise ValueError("masks must be bool")
        combined = combined & mask
    return combined


@wrong("combine_masks")
def crashes_on_nothing(*masks):
    return functools.reduce(torch.logical_and, _given(masks))


@wrong("combine_masks")
def true_for_nothing(*masks):
    combined = torch.tensor(True)
    for mask in _given(masks):
        combined = combined & mask
    return combined


@wrong("combine_masks")
def python_true_for_nothing(*masks):
    combined = True
    for mask in _given(masks):
        combined = mask & combined
    return combined


@wrong("combine_masks", says="None means no restriction: go on with the others")
def none_for_any_none(*masks):
    _given(masks)
    if not masks or any(mask is None for mask in masks):
        return None
    return functools.reduce(torch.logical_and, masks)


@wrong("combine_masks", says="None means no restriction: go on with the others")
def stops_at_none(*masks):
    _given(masks)
    combined = None
    for mask in masks:
        if mask is None:
            break
        combined = mask if combined is None else combined & mask
    return combined


@wrong("combine_masks")
def first_two_only(*masks):
    given = _given(masks)[:2]
    return functools.reduce(torch.logical_and, given) if given else None


@wrong("combine_masks")
def first_mask_overwritten(*masks):
    given = _given(masks)
    if not given:
        return None
    combined = given[0]
    for mask in given[1:]:
        if torch.broadcast_shapes(combined.shape, mask.shape) == combined.shape:
            combined &= mask
        else:
            combined = combined & mask
    return combined


@wrong("combine_masks")
def any_dtype_combined(*masks):
    given = [mask.bool() for mask in masks if mask is not None]
    return functools.reduce(torch.logical_and, given) if given else None


# ---------------------------------------------------------------- combine_masks, right


@right("combine_masks", why="reduce")
def reduced(*masks):
    given = [mask for mask in masks if mask is not None]
    if any(mask.dtype != torch.bool for mask in given):
        raise ValueError("masks must be bool")
    return functools.reduce(torch.logical_and, given) if given else None


@right("combine_masks", why="stack and all")
def stacked_and_all(*masks):
    given = _given(masks)
    return torch.stack(torch.broadcast_tensors(*given)).all(dim=0) if given else None


@right("combine_masks", why="a product, turned back into bool")
def product_as_bool(*masks):
    given = _given(masks)
    if not given:
        return None
    combined = torch.ones((), dtype=torch.int8)
    for mask in given:
        combined = combined * mask
    return combined.bool()


@right("combine_masks", why="counts who agrees: a sum is right when compared with the number of masks")
def all_agree(*masks):
    given = _given(masks)
    return None if not given else sum(mask.int() for mask in given) == len(given)


@right("combine_masks", why="not (any hidden), filled into an own copy in place")
def hidden_anywhere(*masks):
    given = _given(masks)
    if len(given) == 0:
        return None
    shape = torch.broadcast_shapes(*(mask.shape for mask in given))
    combined = torch.ones(shape, dtype=torch.bool)
    for mask in given:
        combined.masked_fill_(mask.logical_not(), False)
    return combined


@right("combine_masks", why="recursion: the first mask and whatever the others make")
def recursive(*masks):
    if not masks:
        return None
    first, rest = masks[0], recursive(*masks[1:])
    if first is None:
        return rest
    if first.dtype != torch.bool:
        raise ValueError("bool masks only")
    return first if rest is None else torch.where(first, rest, False)
