"""sdpa: wrong solutions and unusual right ones."""

import math
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from tests.bank import right, wrong
from tests.bank.attention_parts import HIDDEN, blank_empty_slices, refuse, visible_softmax


def _scores(q, k, v, attn_mask):
    refuse(q, k, v, attn_mask)
    return q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))


# ---------------------------------------------------------------- wrong


@wrong("sdpa", says="the scale uses the width of the values")
def scaled_by_width_of_values(q, k, v, attn_mask=None):
    refuse(q, k, v, attn_mask)
    return visible_softmax(q @ k.mT / math.sqrt(v.size(-1)), attn_mask) @ v


@wrong("sdpa")
def unscaled(q, k, v, attn_mask=None):
    refuse(q, k, v, attn_mask)
    return visible_softmax(q @ k.mT, attn_mask) @ v


@wrong("sdpa")
def divided_by_d_head(q, k, v, attn_mask=None):
    refuse(q, k, v, attn_mask)
    return visible_softmax(q @ k.mT / q.size(-1), attn_mask) @ v


@wrong("sdpa")
def output_scaled(q, k, v, attn_mask=None):
    refuse(q, k, v, attn_mask)
    return visible_softmax(q @ k.mT, attn_mask) @ v / math.sqrt(q.size(-1))


@wrong("sdpa")
def softmax_over_queries(q, k, v, attn_mask=None):
    return visible_softmax(_scores(q, k, v, attn_mask), attn_mask, dim=-2) @ v


@wrong("sdpa")
def softmax_over_heads(q, k, v, attn_mask=None):
    return visible_softmax(_scores(q, k, v, attn_mask), attn_mask, dim=1) @ v


@wrong("sdpa")
def inverted(q, k, v, attn_mask=None):
    scores = _scores(q, k, v, attn_mask)
    return visible_softmax(scores, None if attn_mask is None else ~attn_mask) @ v


@wrong("sdpa", says="renormalise: mask before softmax")
def mask_after_softmax(q, k, v, attn_mask=None):
    weights = _scores(q, k, v, attn_mask).softmax(-1)
    if attn_mask is not None:
        weights = weights.masked_fill(~attn_mask, 0.0)
    return weights @ v


@wrong("sdpa", says="renormalise: mask before softmax")
def weights_times_mask(q, k, v, attn_mask=None):
    weights = _scores(q, k, v, attn_mask).softmax(-1)
    return (weights if attn_mask is None else weights * attn_mask) @ v


@wrong("sdpa")
def scores_times_mask(q, k, v, attn_mask=None):
    scores = _scores(q, k, v, attn_mask)
    if attn_mask is not None:
        scores = scores * attn_mask
    return blank_empty_slices(scores.softmax(-1), attn_mask) @ v


@wrong("sdpa")
def fill_minus_10(q, k, v, attn_mask=None):
    scores = _scores(q, k, v, attn_mask)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -10.0)
    return blank_empty_slices(scores.softmax(-1), attn_mask) @ v


@wrong("sdpa")
def adds_minus_10(q, k, v, attn_mask=None):
    scores = _scores(q, k, v, attn_mask)
    if attn_mask is not None:
        scores = scores - 10.0 * (~attn_mask)
    return blank_empty_slices(scores.softmax(-1), attn_mask) @ v


@wrong("sdpa", says="return the output only")
def output_and_weights(q, k, v, attn_mask=None):
    weights = visible_softmax(_scores(q, k, v, attn_mask), attn_mask)
    return weights @ v, weights


@wrong("sdpa", says="return the output only")
def output_in_a_tuple(q, k, v, attn_mask=None):
    return (visible_softmax(_scores(q, k, v, attn_mask), attn_mask) @ v,)


@wrong("sdpa")
def weights_only(q, k, v, attn_mask=None):
    return visible_softmax(_scores(q, k, v, attn_mask), attn_mask)


@wrong("sdpa")
def nan_row(q, k, v, attn_mask=None):
    scores = _scores(q, k, v, attn_mask)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    return scores.softmax(-1) @ v


@wrong("sdpa")
def average_row(q, k, v, attn_mask=None):
    scores = _scores(q, k, v, attn_mask)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -1e9)
    return scores.softmax(-1) @ v


@wrong("sdpa")
def nan_gradient_nan_to_num(q, k, v, attn_mask=None):
    scores = _scores(q, k, v, attn_mask)
    if attn_mask is not None:
        scores = scores + torch.zeros(attn_mask.shape, dtype=q.dtype).masked_fill(~attn_mask, float("-inf"))
    return scores.softmax(-1).nan_to_num(0.0) @ v


@wrong("sdpa")
def nan_gradient_output_zeroed(q, k, v, attn_mask=None):
    scores = _scores(q, k, v, attn_mask)
    if attn_mask is None:
        return scores.softmax(-1) @ v
    out = scores.masked_fill(~attn_mask, float("-inf")).softmax(-1) @ v
    return out.masked_fill(out.isnan(), 0.0)


@wrong("sdpa", says="a bool mask adds 0 and 1, it hides nothing")
def mask_added(q, k, v, attn_mask=None):
    scores = _scores(q, k, v, attn_mask)
    if attn_mask is not None:
        scores = scores + attn_mask
    return blank_empty_slices(scores.softmax(-1), attn_mask) @ v


@wrong("sdpa")
def mask_subtracted(q, k, v, attn_mask=None):
    scores = _scores(q, k, v, attn_mask)
    if attn_mask is not None:
        scores = scores - (~attn_mask).to(scores.dtype)
    return blank_empty_slices(scores.softmax(-1), attn_mask) @ v


@wrong("sdpa")
def mask_ignored(q, k, v, attn_mask=None):
    return _scores(q, k, v, attn_mask).softmax(-1) @ v


@wrong("sdpa")
def mask_of_first_example(q, k, v, attn_mask=None):
    scores = _scores(q, k, v, attn_mask)
    if attn_mask is not None and attn_mask.dim() == 4:
        attn_mask = attn_mask[:1]
    return visible_softmax(scores, attn_mask) @ v


@wrong("sdpa")
def mask_of_first_head(q, k, v, attn_mask=None):
    scores = _scores(q, k, v, attn_mask)
    if attn_mask is not None and attn_mask.dim() == 4:
        attn_mask = attn_mask[:, :1]
    return visible_softmax(scores, attn_mask) @ v


@wrong("sdpa")
def always_float32(q, k, v, attn_mask=None):
    weights = visible_softmax(_scores(q, k, v, attn_mask).float(), attn_mask)
    return weights @ v.float()


@wrong("sdpa")
def no_gradient_for_weights(q, k, v, attn_mask=None):
    return visible_softmax(_scores(q, k, v, attn_mask), attn_mask).detach() @ v


@wrong("sdpa")
def no_gradient_for_v(q, k, v, attn_mask=None):
    return visible_softmax(_scores(q, k, v, attn_mask), attn_mask) @ v.data


@wrong("sdpa")
def widths_not_refused(q, k, v, attn_mask=None):
    refuse(k, k, v, attn_mask)
    return visible_softmax(q @ k.mT / math.sqrt(q.size(-1)), attn_mask) @ v


@wrong("sdpa")
def lengths_not_refused(q, k, v, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    return visible_softmax(q @ k.mT / math.sqrt(q.size(-1)), attn_mask) @ v


@wrong("sdpa")
def extra_keys_cut_off(q, k, v, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    weights = visible_softmax(q @ k.mT / math.sqrt(q.size(-1)), attn_mask)
    kv_len = min(k.size(-2), v.size(-2))
    return weights[..., :kv_len] @ v[..., :kv_len, :]


@wrong("sdpa")
def any_mask_accepted(q, k, v, attn_mask=None):
    scores = _scores(q, k, v, None)
    return visible_softmax(scores, None if attn_mask is None else attn_mask.bool()) @ v


@wrong("sdpa")
def four_axes_only(q, k, v, attn_mask=None):
    refuse(q, k, v, attn_mask)
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.size(-1))
    return torch.einsum("bhqk,bhkd->bhqd", visible_softmax(scores, attn_mask), v)


_FIRST_SIZES = {}


@wrong("sdpa")
def remembers_first_scale(q, k, v, attn_mask=None):
    refuse(q, k, v, attn_mask)
    scale = _FIRST_SIZES.setdefault("d_head", q.size(-1)) ** -0.5
    return visible_softmax(q @ k.mT * scale, attn_mask) @ v


@wrong("sdpa")
def torch_own(q, k, v, attn_mask=None):
    refuse(q, k, v, attn_mask)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)


# ---------------------------------------------------------------- right


@right("sdpa", why="additive -inf; rows with nothing to see get no bias and are zeroed at the end")
def additive_infinity(q, k, v, attn_mask=None):
    if q.shape[-1] != k.shape[-1]:
        raise ValueError("d_head differs")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError("kv_len differs")
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    if attn_mask is None:
        return torch.softmax(scores, dim=-1) @ v
    if attn_mask.dtype != torch.bool:
        raise ValueError("the mask must be bool")
    anything = attn_mask.any(-1, keepdim=True)
    bias = torch.zeros(attn_mask.shape, dtype=scores.dtype)
    bias[~attn_mask & anything] = float("-inf")
    return (torch.softmax(scores + bias, dim=-1) @ v) * anything


@right("sdpa", why="a loop over the flattened leading axes")
def head_by_head(q, k, v, attn_mask=None):
    scores_shape = (*q.shape[:-2], q.shape[-2], k.shape[-2])
    refuse(q, k, v, attn_mask)
    mask = torch.ones(scores_shape, dtype=torch.bool) if attn_mask is None else attn_mask.expand(scores_shape)
    heads = zip(*(part.reshape(-1, *part.shape[-2:]) for part in (q, k, v, mask)), strict=True)
    out = [
        visible_softmax(one_q @ one_k.T / math.sqrt(q.shape[-1]), seen) @ one_v for one_q, one_k, one_v, seen in heads
    ]
    return torch.stack(out).view(*q.shape[:-1], v.shape[-1])


@right("sdpa", why="baddbmm takes bias, product and scale at once")
def baddbmm(q, k, v, attn_mask=None):
    refuse(q, k, v, attn_mask)
    lead = q.shape[:-2]
    bias = torch.zeros(*lead, q.shape[-2], k.shape[-2], dtype=q.dtype)
    if attn_mask is not None:
        bias.masked_fill_(~attn_mask, torch.finfo(q.dtype).min)
    flat_q, flat_k, flat_v, flat_bias = (part.reshape(-1, *part.shape[-2:]) for part in (q, k, v, bias))
    scores = torch.baddbmm(flat_bias, flat_q, flat_k.transpose(1, 2), alpha=1 / math.sqrt(q.shape[-1]))
    weights = scores.softmax(-1) * (flat_bias == 0)
    return torch.bmm(weights, flat_v).reshape(*lead, q.shape[-2], v.shape[-1])


@right("sdpa", why="chunks of three keys, joined by a running sum under one common maximum")
def chunks_of_keys(q, k, v, attn_mask=None):
    refuse(q, k, v, attn_mask)
    q = q / q.shape[-1] ** 0.5
    top = (q @ k.mT).detach()
    mask = torch.ones_like(top, dtype=torch.bool) if attn_mask is None else attn_mask.expand_as(top)
    top = top.masked_fill(~mask, HIDDEN).amax(-1, keepdim=True).nan_to_num(neginf=0.0)
    total, out = 0.0, 0.0
    for keys, values, seen in zip(k.split(3, -2), v.split(3, -2), mask.split(3, -1), strict=True):
        exps = (q @ keys.mT - top).masked_fill(~seen, HIDDEN).exp()
        total = total + exps.sum(-1, keepdim=True)
        out = out + exps @ values
    return out / torch.where(total == 0, 1.0, total)


@right("sdpa", why="chunks of queries written into an own buffer")
def chunks_of_queries(q, k, v, attn_mask=None):
    refuse(q, k, v, attn_mask)
    out = q.new_zeros(*q.shape[:-1], v.shape[-1])
    if attn_mask is not None:
        attn_mask = attn_mask.broadcast_to(*q.shape[:-1], k.shape[-2])
    for start in range(0, q.shape[-2], 2):
        rows = slice(start, start + 2)
        scores = q[..., rows, :] @ k.mT / q.shape[-1] ** 0.5
        out[..., rows, :] = visible_softmax(scores, None if attn_mask is None else attn_mask[..., rows, :]) @ v
    return out


@right("sdpa", why="einsum throughout, returns a tensor that is not contiguous")
def einsum_transposed(q, k, v, attn_mask=None):
    refuse(q, k, v, attn_mask)
    weights = visible_softmax(torch.einsum("...qd,...kd->...qk", q, k).mul(q.shape[-1] ** -0.5), attn_mask)
    return torch.einsum("...kv,...qk->...vq", v, weights).transpose(-1, -2)


@right("sdpa", why="each query gathers the keys it may see; rows that see none stay at zero")
def gathers_visible_keys(q, k, v, attn_mask=None):
    refuse(q, k, v, attn_mask)
    shape = (*q.shape[:-1], k.shape[-2])
    mask = torch.ones(shape, dtype=torch.bool) if attn_mask is None else attn_mask.broadcast_to(shape)
    flat_q, flat_k, flat_v, mask = (part.reshape(-1, *part.shape[-2:]) for part in (q, k, v, mask))
    rows = []
    for one_q, one_k, one_v, seen in zip(flat_q, flat_k, flat_v, mask, strict=True):
        for query, places in zip(one_q, seen, strict=True):
            weights = F.softmax(one_k[places] @ query / math.sqrt(q.shape[-1]), dim=0)
            rows.append(weights @ one_v[places])
    return torch.stack(rows).reshape(*q.shape[:-1], v.shape[-1])


def _one_head(q, k, v, attn_mask, scale):
    return visible_softmax(torch.mm(q, k.t()) * scale, attn_mask).mm(v)


@right("sdpa", why="torch.vmap over the leading axes of a function for one head")
def mapped_over_heads(q, k, v, attn_mask=None):
    refuse(q, k, v, attn_mask)
    attend = partial(_one_head, scale=q.shape[-1] ** -0.5)
    if attn_mask is None:
        attn_mask = torch.ones((), dtype=torch.bool)
    for _ in q.shape[:-2]:
        attend = torch.func.vmap(attend)
    return attend(q, k, v, attn_mask.broadcast_to(*q.shape[:-1], k.shape[-2]))


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, attn_mask):
        weights = visible_softmax(q @ k.mT / math.sqrt(q.shape[-1]), attn_mask)
        ctx.save_for_backward(q, k, v, weights)
        return weights @ v

    @staticmethod
    def backward(ctx, grad):
        q, k, v, weights = ctx.saved_tensors
        d_weights = grad @ v.mT
        d_scores = weights * (d_weights - (d_weights * weights).sum(-1, keepdim=True)) / math.sqrt(q.shape[-1])
        return d_scores @ k, d_scores.mT @ q, weights.mT @ grad, None


class Kernels:
    """A namespace of static methods."""

    @staticmethod
    @right("sdpa", why="a static method around an autograd.Function with its own backward")
    def own_backward(q, k, v, attn_mask=None):
        refuse(q, k, v, attn_mask)
        return _Attention.apply(q, k, v, attn_mask)


class AttentionModule(nn.Module):
    """A module without parameters used as a function."""

    def __call__(self, q, k, v, attn_mask=None):
        return super().__call__(q, k, v, attn_mask=attn_mask)

    def forward(self, q, k, v, attn_mask=None):
        scores = _scores(q, k, v, attn_mask)
        if attn_mask is None:
            return nn.Softmax(-1)(scores) @ v
        return nn.Softmax(-1)(scores.masked_fill(~attn_mask, HIDDEN)).nan_to_num(nan=0) @ v


right("sdpa", why="a module called as a function")(AttentionModule())
