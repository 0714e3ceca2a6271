"""Functions of phase 2, written after reading the checks: faults that no case looked for, and right ones refused."""

import math

import numpy as np
import torch
from torch.nn.attention.bias import causal_lower_right

from tests.bank import right, wrong
from tests.bank.attention_parts import HIDDEN, refuse, visible_softmax


def _weights(q, k, attn_mask):
    return visible_softmax(q @ k.mT / math.sqrt(q.shape[-1]), attn_mask)


def _bool_or_byte(attn_mask):
    if attn_mask is None:
        return None
    if attn_mask.dtype not in (torch.bool, torch.uint8):
        raise ValueError("a mask must be bool")
    return attn_mask.bool()


def _no_float(attn_mask):
    if attn_mask is None:
        return None
    if attn_mask.is_floating_point():
        raise ValueError("a mask must be bool")
    return attn_mask.bool()


def _three_axes_are_per_example(attn_mask, axes):
    """What many models do: (batch, q_len, kv_len) gets a head axis. The course's masks line up from the right."""
    return attn_mask[:, None] if attn_mask is not None and axes == 4 and attn_mask.ndim == 3 else attn_mask


# masked_softmax -----------------------------------------------------------------------------------------------------


@wrong("masked_softmax", says=None)
def bytes_are_masks_too(scores, attn_mask=None, dim=-1):
    """Breaks "Non-bool raises": uint8, the mask type of old PyTorch, is taken."""
    return visible_softmax(scores, _bool_or_byte(attn_mask), dim)


@wrong("masked_softmax", says=None)
def a_billionth_in_the_denominator(scores, attn_mask=None, dim=-1):
    """Breaks "sums exactly 1 (rtol 1e-12)": 1e-9 against the division by 0, in float64 whatever comes in."""
    refuse(attn_mask=attn_mask)
    wide = scores.double()
    seen = torch.ones_like(wide, dtype=torch.bool) if attn_mask is None else attn_mask.expand(wide.shape)
    top = wide.masked_fill(~seen, -1e30).amax(dim, keepdim=True)
    exps = torch.where(seen, wide - top, 0.0).exp() * seen
    return (exps / (exps.sum(dim, keepdim=True) + 1e-9)).to(scores.dtype)


@wrong("masked_softmax", says=None)
def three_axes_are_batch_query_key(scores, attn_mask=None, dim=-1):
    """Breaks "broadcastable to scores": a mask (heads, q, k) of scores with four axes is lined up from the left."""
    refuse(attn_mask=attn_mask)
    return visible_softmax(scores, _three_axes_are_per_example(attn_mask, scores.dim()), dim)


@wrong("masked_softmax", says=None)
def gives_a_masked_tensor(scores, attn_mask=None, dim=-1):
    """Breaks "zeros where nothing is visible" and the type: torch.masked's own tensor comes back, without gradient."""
    refuse(attn_mask=attn_mask)
    if attn_mask is None:
        return scores.softmax(dim)
    return torch.masked.masked_tensor(scores, attn_mask.expand(scores.shape)).softmax(dim)


# attention_weights and sdpa -----------------------------------------------------------------------------------------


@wrong("attention_weights", says=None)
def whole_numbers_are_masks_too(q, k, attn_mask=None):
    """Breaks rule 7: integer masks are taken, only floats are refused."""
    refuse(q, k)
    return _weights(q, k, _no_float(attn_mask))


@wrong("sdpa", says=None)
def only_float_masks_are_refused(q, k, v, attn_mask=None):
    """Breaks rule 7: integer masks are taken, only floats are refused."""
    refuse(q, k, v)
    return _weights(q, k, _no_float(attn_mask)) @ v


@wrong("sdpa", says=None)
def three_axes_get_a_head_axis(q, k, v, attn_mask=None):
    """Breaks rule 7 (missing leading axes): a mask (heads, q_len, kv_len) is taken for (batch, q_len, kv_len)."""
    refuse(q, k, v, attn_mask)
    return _weights(q, k, _three_axes_are_per_example(attn_mask, q.dim())) @ v


@wrong("sdpa", says=None)
def example_by_example(q, k, v, attn_mask=None):
    """Breaks rule 7 (each axis alone as 1): indexes a mask (1, heads, q_len, kv_len) by the example."""
    refuse(q, k, v, attn_mask)
    if q.dim() < 4:
        return _weights(q, k, attn_mask) @ v
    own = [attn_mask[b] if attn_mask is not None and attn_mask.dim() == 4 else attn_mask for b in range(len(q))]
    return torch.stack([_weights(q[b], k[b], own[b]) @ v[b] for b in range(len(q))])


@wrong("attention_weights", says=None)
def weights_example_by_example(q, k, attn_mask=None):
    """Breaks rule 7 (each axis alone as 1): indexes a mask (1, heads, q_len, kv_len) by the example."""
    refuse(q, k, None, attn_mask)
    if q.dim() < 4:
        return _weights(q, k, attn_mask)
    own = [attn_mask[b] if attn_mask is not None and attn_mask.dim() == 4 else attn_mask for b in range(len(q))]
    return torch.stack([_weights(q[b], k[b], own[b]) for b in range(len(q))])


def _numpy_bias(attn_mask):
    return torch.from_numpy(np.where(attn_mask.numpy(), 0.0, -1e9))


@wrong("attention_weights", says=None)
def weights_with_a_bias_from_numpy(q, k, attn_mask=None):
    """Breaks rule 4: with a mask, float32 goes in and float64 comes out."""
    refuse(q, k, None, attn_mask)
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return scores.softmax(-1) if attn_mask is None else (scores + _numpy_bias(attn_mask)).softmax(-1) * attn_mask


@wrong("sdpa", says=None)
def with_a_bias_from_numpy(q, k, v, attn_mask=None):
    """Breaks rule 4: with a mask, float32 goes in and float64 comes out."""
    refuse(q, k, v, attn_mask)
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if attn_mask is None:
        return scores.softmax(-1) @ v
    return ((scores + _numpy_bias(attn_mask)).softmax(-1) * attn_mask) @ v.double()


@wrong("sdpa", says=None)
def into_a_table_of_the_default_dtype(q, k, v, attn_mask=None):
    """Breaks rule 4: the dtype follows torch's default; float64 inputs come back as float32 in any notebook."""
    refuse(q, k, v, attn_mask)
    out = torch.zeros(*q.shape[:-1], v.shape[-1])
    out[...] = _weights(q, k, attn_mask) @ v
    return out


@wrong("attention_weights", says=None)
def weights_of_the_default_dtype(q, k, attn_mask=None):
    """Breaks rule 4: the dtype follows torch's default, not the input."""
    refuse(q, k, None, attn_mask)
    table = torch.zeros(*q.shape[:-1], k.shape[-2])
    table[...] = _weights(q, k, attn_mask)
    return table


@wrong("sdpa", says=None)
def fills_with_minus_30(q, k, v, attn_mask=None):
    """Breaks rules 5 and 7: hidden values get a gradient of e^-30, and all the weight once the scores are below -30."""
    refuse(q, k, v, attn_mask)
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if attn_mask is None:
        return scores.softmax(-1) @ v
    return (scores.masked_fill(~attn_mask, -30.0).softmax(-1) * attn_mask.any(-1, keepdim=True)) @ v


@wrong("attention_weights", says=None)
def fills_with_minus_30_then_multiplies(q, k, attn_mask=None):
    """Breaks rule 7: hidden scores of -30 sit in the sum; where the visible ones are near -60, nothing is left."""
    refuse(q, k, None, attn_mask)
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return scores.softmax(-1) if attn_mask is None else scores.masked_fill(~attn_mask, -30.0).softmax(-1) * attn_mask


# masks --------------------------------------------------------------------------------------------------------------


@wrong("padding_mask", says=None)
def a_pad_mask_of_bytes(pad_mask):
    """Breaks "Raises for non-bool": uint8 is taken."""
    if pad_mask.dim() != 2:
        raise ValueError("(batch, kv_len)")
    return _bool_or_byte(pad_mask)[:, None, None]


@right("causal_mask", why="torch's own bias object for the lower right triangle, written out")
def lower_right(q_len, kv_len=None):
    return causal_lower_right(q_len, q_len if kv_len is None else kv_len)._materialize(torch.device("cpu"))


# sdpa_backward (NumPy) ----------------------------------------------------------------------------------------------


def _by_hand(grad_out, q, k, v, attn_mask, hide):
    root = np.sqrt(q.shape[-1]).astype(q.dtype)
    scores = q @ k.swapaxes(-1, -2) / root
    scores = scores if attn_mask is None else hide(scores, attn_mask)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p = p if attn_mask is None else p * attn_mask
    total = p.sum(-1, keepdims=True)
    p = p / np.where(total == 0, np.ones_like(total), total)
    slope = grad_out @ v.swapaxes(-1, -2)
    slope = p * (slope - (p * slope).sum(-1, keepdims=True)) / root
    return slope @ k, slope.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ grad_out


def _refuse_array(attn_mask):
    if attn_mask is not None and attn_mask.dtype != bool:
        raise ValueError("attn_mask must be bool")


def _filled(scores, attn_mask):
    return np.where(attn_mask, scores, np.finfo(scores.dtype).min)


@wrong("sdpa_backward", says=None)
def the_mask_widens_the_dtype(grad_out, q, k, v, attn_mask=None):
    """Breaks rule 4: np.where(mask, 0.0, -1e9) is float64, so float32 with a mask comes back as float64."""
    _refuse_array(attn_mask)
    return _by_hand(grad_out, q, k, v, attn_mask, lambda scores, seen: scores + np.where(seen, 0.0, -1e9))


@wrong("sdpa_backward", says=None)
def backward_example_by_example(grad_out, q, k, v, attn_mask=None):
    """Breaks "possibly a smaller mask": indexes a mask (1, heads, q_len, kv_len) by the example."""
    _refuse_array(attn_mask)
    if q.ndim < 4:
        return _by_hand(grad_out, q, k, v, attn_mask, _filled)
    own = [attn_mask[b] if attn_mask is not None and attn_mask.ndim == 4 else attn_mask for b in range(len(q))]
    parts = [_by_hand(grad_out[b], q[b], k[b], v[b], own[b], _filled) for b in range(len(q))]
    return tuple(np.stack(part) for part in zip(*parts, strict=True))


@wrong("sdpa_backward", says=None)
def backward_gives_three_axes_a_head_axis(grad_out, q, k, v, attn_mask=None):
    """Breaks "possibly a smaller mask": a mask (heads, q_len, kv_len) is taken for (batch, q_len, kv_len)."""
    _refuse_array(attn_mask)
    return _by_hand(grad_out, q, k, v, _three_axes_are_per_example(attn_mask, q.ndim), _filled)


# streaming_attention ------------------------------------------------------------------------------------------------


def _stream(q, k, v, block_size, attn_mask, hide=HIDDEN):
    """Online softmax over an accumulator that holds the output and, as its last column, the sum."""
    if block_size < 1:
        raise ValueError("block_size")
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*q.shape[:-1], k.shape[-2])
    v = torch.cat([v, torch.ones_like(v[..., :1])], -1)
    top, out = q.new_full((*q.shape[:-1], 1), -1e30), q.new_zeros(*q.shape[:-1], v.shape[-1])
    for start in range(0, k.shape[-2], block_size):
        block = slice(start, start + block_size)
        scores = q @ k[..., block, :].mT / math.sqrt(q.shape[-1])
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask[..., block], hide)
        raised = torch.maximum(top, scores.amax(-1, keepdim=True)).detach()
        out, top = out * (top - raised).exp() + (scores - raised).exp() @ v[..., block, :], raised
    total = out[..., -1:]
    out = out[..., :-1] / total.masked_fill(total == 0, 1.0)
    return out if attn_mask is None else out.masked_fill(~attn_mask.any(-1, keepdim=True), 0.0)


@right("streaming_attention", why="the sum is the last column of the accumulator: values with a column of ones")
def sum_as_a_column_of_ones(q, k, v, block_size, attn_mask=None):
    refuse(q, k, v, attn_mask)
    return _stream(q, k, v, block_size, attn_mask)


def _apart(q, k, v, block_size, attn_mask, hide=HIDDEN):
    """The same in thirds of the values, so that no accumulator happens to be kv_len wide."""
    return torch.cat([_stream(q, k, part, block_size, attn_mask, hide) for part in v.split(2, -1)], -1)


@wrong("streaming_attention", says=None)
def streams_with_three_axes_per_example(q, k, v, block_size, attn_mask=None):
    """Breaks "same result as sdpa": a mask (heads, q_len, kv_len) is taken for (batch, q_len, kv_len)."""
    refuse(q, k, v, attn_mask)
    return _apart(q, k, v, block_size, _three_axes_are_per_example(attn_mask, q.dim()))


@wrong("streaming_attention", says=None)
def streams_over_a_fill_of_minus_30(q, k, v, block_size, attn_mask=None):
    """Breaks rules 5 and 7: hidden scores become -30, so hidden values keep a little weight and gradient."""
    refuse(q, k, v, attn_mask)
    return _apart(q, k, v, block_size, attn_mask, hide=-30.0)


@wrong("streaming_attention", says=None)
def streams_into_float64(q, k, v, block_size, attn_mask=None):
    """Breaks rule 4: with a mask, float32 goes in and float64 comes out."""
    refuse(q, k, v, attn_mask)
    out = _apart(q, k, v, block_size, attn_mask)
    return out if attn_mask is None else out + torch.from_numpy(np.zeros(1))


@wrong("sdpa", says=None)
def hides_every_score_of_zero(q, k, v, attn_mask=None):
    """Breaks the result for a visible score of exactly 0 (a query of zeros): it is taken for a hidden one."""
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ValueError("d_head or kv_len differ")
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if attn_mask is None:
        return scores.softmax(-1) @ v
    if attn_mask.dtype is not torch.bool:
        raise ValueError("attn_mask must be bool")
    scores = scores * attn_mask
    return torch.nan_to_num(scores.masked_fill(scores == 0, float("-inf")).softmax(-1)) @ v
