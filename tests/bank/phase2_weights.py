"""attention_weights: wrong solutions and unusual right ones."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bank import right, wrong
from tests.bank.attention_parts import HIDDEN, blank_empty_slices, refuse, visible_softmax

# ---------------------------------------------------------------- wrong


@wrong("attention_weights", says="scores were not divided by √d_head")
def unscaled(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    return visible_softmax(q @ k.transpose(-2, -1), attn_mask)


@wrong("attention_weights")
def divided_by_d_head(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    return visible_softmax(q @ k.transpose(-2, -1) / q.size(-1), attn_mask)


@wrong("attention_weights")
def multiplied_by_root(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    return visible_softmax(q @ k.transpose(-2, -1) * math.sqrt(q.size(-1)), attn_mask)


@wrong("attention_weights")
def root_of_kv_len(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    return visible_softmax(q @ k.transpose(-2, -1) / math.sqrt(k.size(-2)), attn_mask)


@wrong("attention_weights")
def root_of_q_len(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    return visible_softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-2)), attn_mask)


@wrong("attention_weights", says="softmax ran over the queries")
def softmax_over_queries(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    return visible_softmax(q @ k.mT / q.size(-1) ** 0.5, attn_mask, dim=-2)


@wrong("attention_weights")
def softmax_over_first_axis(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    return visible_softmax(q @ k.mT / q.size(-1) ** 0.5, attn_mask, dim=0)


@wrong("attention_weights")
def softmax_over_axis_1(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    return visible_softmax(q @ k.mT / q.size(-1) ** 0.5, attn_mask, dim=1)


@wrong("attention_weights")
def inverted(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    return visible_softmax(q @ k.mT / q.size(-1) ** 0.5, None if attn_mask is None else ~attn_mask)


@wrong("attention_weights")
def mask_after_softmax(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    weights = torch.softmax(q @ k.mT / q.size(-1) ** 0.5, dim=-1)
    return weights if attn_mask is None else weights.masked_fill(~attn_mask, 0.0)


@wrong("attention_weights")
def mask_ignored(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    return torch.softmax(q @ k.mT / q.size(-1) ** 0.5, dim=-1)


@wrong("attention_weights")
def no_gradient_for_q(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    return visible_softmax(q.detach() @ k.mT / q.size(-1) ** 0.5, attn_mask)


@wrong("attention_weights")
def q_through_data(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    scaled = q.data / math.sqrt(q.size(-1))
    return visible_softmax(scaled @ k.transpose(-2, -1), attn_mask)


@wrong("attention_weights")
def no_gradient_at_all(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    with torch.no_grad():
        return visible_softmax(q @ k.mT / q.size(-1) ** 0.5, attn_mask)


@wrong("attention_weights", says="scale the scores, not the weights")
def scaled_after_softmax(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    return visible_softmax(q @ k.mT, attn_mask) / q.size(-1) ** 0.5


@wrong("attention_weights")
def scores_without_softmax(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    scores = q @ k.mT / q.size(-1) ** 0.5
    return scores if attn_mask is None else scores.masked_fill(~attn_mask, 0.0)


@wrong("attention_weights")
def nan_row(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    scores = q @ k.mT / q.size(-1) ** 0.5
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    return scores.softmax(-1)


@wrong("attention_weights")
def average_row(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    scores = q @ k.mT / q.size(-1) ** 0.5
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -1e9)
    return scores.softmax(-1)


@wrong("attention_weights")
def fill_minus_10(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    scores = q @ k.mT / q.size(-1) ** 0.5
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -10.0)
    return blank_empty_slices(scores.softmax(-1), attn_mask)


@wrong("attention_weights")
def cosine_scores(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT
    return visible_softmax(scores / q.size(-1) ** 0.5, attn_mask)


@wrong("attention_weights")
def q_scaled_in_place(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    with torch.no_grad():
        q /= q.size(-1) ** 0.5
    return visible_softmax(q @ k.mT, attn_mask)


@wrong("attention_weights")
def width_not_refused(q, k, attn_mask=None):
    refuse(attn_mask=attn_mask)
    return visible_softmax(q @ k.mT / q.size(-1) ** 0.5, attn_mask)


@wrong("attention_weights")
def width_broadcast(q, k, attn_mask=None):
    refuse(attn_mask=attn_mask)
    scores = (q.unsqueeze(-2) * k.unsqueeze(-3)).sum(-1)
    return visible_softmax(scores / q.size(-1) ** 0.5, attn_mask)


@wrong("attention_weights")
def any_mask_accepted(q, k, attn_mask=None):
    refuse(q, k)
    return visible_softmax(q @ k.mT / q.size(-1) ** 0.5, None if attn_mask is None else attn_mask != 0)


@wrong("attention_weights")
def always_four_axes(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    return visible_softmax(torch.einsum("bhqd,bhkd->bhqk", q, k) / q.size(-1) ** 0.5, attn_mask)


# ---------------------------------------------------------------- right


@right("attention_weights", why="scales q first")
def scales_q_first(q, k, attn_mask=None):
    if q.shape[-1] != k.shape[-1]:
        raise ValueError("d_head of q and k must be equal")
    if attn_mask is not None and attn_mask.dtype is not torch.bool:
        raise ValueError("a mask is bool")
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if attn_mask is None:
        return scores.softmax(-1)
    return scores.masked_fill(~attn_mask, float("-inf")).softmax(-1).nan_to_num(0.0)


@right("attention_weights", why="einsum, half of the scale on either side")
def einsum_half_scales(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    half = q.shape[-1] ** -0.25
    return visible_softmax(torch.einsum("...qd,...kd->...qk", q * half, k * half), attn_mask)


@right("attention_weights", why="broadcasting and summing, no matrix product")
def broadcast_and_sum(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    scores = (q[..., :, None, :] * k[..., None, :, :]).sum(dim=-1).div(math.sqrt(q.shape[-1]))
    if attn_mask is None:
        return F.softmax(scores, dim=-1)
    exps = torch.where(attn_mask, scores, scores.detach().min())
    exps = (exps - exps.detach().amax(-1, keepdim=True)).exp() * attn_mask
    total = exps.sum(-1, keepdim=True)
    return exps / (total + (total == 0))


@right("attention_weights", why="one query row after the other")
def row_by_row(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    q_len, kv_len = q.shape[-2], k.shape[-2]
    if attn_mask is not None:
        attn_mask = attn_mask.broadcast_to((*q.shape[:-2], q_len, kv_len))
    rows = []
    for i in range(q_len):
        scores = (k @ q[..., i, :, None]).squeeze(-1) / q.shape[-1] ** 0.5
        rows.append(visible_softmax(scores, None if attn_mask is None else attn_mask[..., i, :]))
    return torch.stack(rows, dim=-2)


@right("attention_weights", why="pairs of features as complex numbers: the real part of q times conj(k)")
def complex_pairs(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    odd = q.shape[-1] % 2
    q_pairs = torch.view_as_complex(F.pad(q, (0, odd)).unflatten(-1, (-1, 2)).contiguous())
    k_pairs = torch.view_as_complex(F.pad(k, (0, odd)).unflatten(-1, (-1, 2)).contiguous())
    return visible_softmax((q_pairs @ k_pairs.mH).real / q.shape[-1] ** 0.5, attn_mask)


@right("attention_weights", why="keys as the weight of F.linear, mapped over the leading axes")
def mapped_linear(q, k, attn_mask=None):
    refuse(q, k, attn_mask=attn_mask)
    linear = F.linear
    for _ in q.shape[:-2]:
        linear = torch.vmap(linear)
    return visible_softmax(linear(q, k) * (1 / math.sqrt(q.shape[-1])), attn_mask)


class WeightsModule(nn.Module):
    """A module without parameters used as a function; softmax runs down the columns of keys times queries."""

    def __call__(self, q, k, attn_mask=None):
        return super().__call__(q, k, attn_mask)

    def forward(self, q, k, attn_mask):
        refuse(q, k, attn_mask=attn_mask)
        by_key = k @ q.mT / q.shape[-1] ** 0.5
        if attn_mask is None:
            return by_key.softmax(-2).mT
        attn_mask = attn_mask.expand(by_key.mT.shape).mT
        empty = attn_mask.logical_not().all(-2, keepdim=True)
        return by_key.masked_fill(~attn_mask & ~empty, HIDDEN).softmax(-2).masked_fill(~attn_mask, 0).mT


right("attention_weights", why="a module called as a function, working on the transposed table")(WeightsModule())
