"""streaming_attention: wrong solutions and unusual right ones."""

import math
from functools import reduce

import torch
from torch.nn import functional as F

from tests.bank import right, wrong
from tests.bank.attention_parts import HIDDEN, refuse, visible_softmax


def _prepare(q, k, v, block_size, attn_mask):
    """Refuse what must be refused; scaled queries, the mask with all its axes, the slices of keys."""
    refuse(q, k, v, attn_mask)
    if block_size < 1:
        raise ValueError(f"block_size must be at least 1, not {block_size}")
    kv_len = k.shape[-2]
    if attn_mask is not None:
        attn_mask = attn_mask.broadcast_to(*q.shape[:-1], kv_len)
    slices = [slice(start, min(start + block_size, kv_len)) for start in range(0, kv_len, block_size)]
    return q / math.sqrt(q.shape[-1]), attn_mask, slices


def _block(q, k, mask, keys):
    scores = q @ k[..., keys, :].mT
    return scores if mask is None else scores.masked_fill(~mask[..., keys], HIDDEN)


def _divided(out, total):
    return out / total.masked_fill(total == 0, 1.0)


def _accumulated(q, k, v, mask, slices, shrink_total=True, shrink_out=True, start=HIDDEN, guard=True):
    """Numerator and denominator of online softmax; the options take one part of it away."""
    top = q.new_full((*q.shape[:-1], 1), start)
    total, out = torch.zeros_like(top), q.new_zeros(*q.shape[:-1], v.shape[-1])
    for keys in slices:
        scores = _block(q, k, mask, keys)
        higher = torch.maximum(top, scores.detach().amax(-1, keepdim=True))
        anchor = higher.nan_to_num(neginf=0.0) if guard else higher
        exps, shrink = (scores - anchor).exp(), (top - anchor).exp()
        total = total * (shrink if shrink_total else 1) + exps.sum(-1, keepdim=True)
        out = out * (shrink if shrink_out else 1) + exps @ v[..., keys, :]
        top = higher
    return out, total


def _stream(*arguments, **options):
    return _divided(*_accumulated(*arguments, **options))


# ---------------------------------------------------------------- wrong


@wrong("streaming_attention", says="rescale the accumulator")
def sum_not_shrunk(q, k, v, block_size, attn_mask=None):
    q, mask, slices = _prepare(q, k, v, block_size, attn_mask)
    return _stream(q, k, v, mask, slices, shrink_total=False)


@wrong("streaming_attention", says="rescale the accumulator")
def output_not_shrunk(q, k, v, block_size, attn_mask=None):
    q, mask, slices = _prepare(q, k, v, block_size, attn_mask)
    return _stream(q, k, v, mask, slices, shrink_out=False)


@wrong("streaming_attention", says="rescale the accumulator")
def neither_shrunk(q, k, v, block_size, attn_mask=None):
    q, mask, slices = _prepare(q, k, v, block_size, attn_mask)
    return _stream(q, k, v, mask, slices, shrink_total=False, shrink_out=False)


@wrong("streaming_attention")
def mean_of_blocks(q, k, v, block_size, attn_mask=None):
    q, mask, slices = _prepare(q, k, v, block_size, attn_mask)
    parts = []
    for keys in slices:
        weights = visible_softmax(q @ k[..., keys, :].mT, None if mask is None else mask[..., keys])
        parts.append(weights @ v[..., keys, :])
    return sum(parts) / len(parts)


@wrong("streaming_attention")
def mean_of_blocks_by_length(q, k, v, block_size, attn_mask=None):
    q, mask, slices = _prepare(q, k, v, block_size, attn_mask)
    out = 0
    for keys in slices:
        weights = visible_softmax(q @ k[..., keys, :].mT, None if mask is None else mask[..., keys])
        out = out + weights @ v[..., keys, :] * ((keys.stop - keys.start) / k.shape[-2])
    return out


@wrong("streaming_attention")
def sum_of_block_softmaxes(q, k, v, block_size, attn_mask=None):
    q, mask, slices = _prepare(q, k, v, block_size, attn_mask)
    out = 0
    for keys in slices:
        weights = visible_softmax(q @ k[..., keys, :].mT, None if mask is None else mask[..., keys])
        out = out + weights @ v[..., keys, :]
    return out


@wrong("streaming_attention")
def infinity_minus_infinity(q, k, v, block_size, attn_mask=None):
    q, mask, slices = _prepare(q, k, v, block_size, attn_mask)
    return _stream(q, k, v, mask, slices, guard=False)


@wrong("streaming_attention")
def nothing_divided_by_nothing(q, k, v, block_size, attn_mask=None):
    q, mask, slices = _prepare(q, k, v, block_size, attn_mask)
    out, total = _accumulated(q, k, v, mask, slices)
    return out / total


@wrong("streaming_attention", says="that is plain attention")
def plain_attention(q, k, v, block_size, attn_mask=None):
    q, mask, _ = _prepare(q, k, v, block_size, attn_mask)
    return visible_softmax(q @ k.mT, mask) @ v


@wrong("streaming_attention", says="that is plain attention")
def table_first_then_blocks(q, k, v, block_size, attn_mask=None):
    q, mask, slices = _prepare(q, k, v, block_size, attn_mask)
    weights = visible_softmax(q @ k.mT, mask)
    return sum(weights[..., keys] @ v[..., keys, :] for keys in slices)


@wrong("streaming_attention", says="that is plain attention")
def transposed_table(q, k, v, block_size, attn_mask=None):
    q, mask, _ = _prepare(q, k, v, block_size, attn_mask)
    by_key = visible_softmax(k @ q.mT, None if mask is None else mask.mT, dim=-2)
    return by_key.mT @ v


@wrong("streaming_attention")
def blocks_joined_to_a_table(q, k, v, block_size, attn_mask=None):
    q, mask, slices = _prepare(q, k, v, block_size, attn_mask)
    scores = torch.cat([q @ k[..., keys, :].mT for keys in slices], dim=-1)
    return visible_softmax(scores, mask) @ v


@wrong("streaming_attention")
def float_mask_of_full_size(q, k, v, block_size, attn_mask=None):
    q, mask, slices = _prepare(q, k, v, block_size, attn_mask)
    if mask is not None:
        mask = torch.where(mask, q.new_ones(()), q.new_zeros(())) > 0
    else:
        mask = q.new_ones(*q.shape[:-1], k.shape[-2]) > 0
    return _stream(q, k, v, mask, slices)


@wrong("streaming_attention")
def block_size_ignored(q, k, v, block_size, attn_mask=None):
    q, mask, _ = _prepare(q, k, v, block_size, attn_mask)
    return _stream(q, k, v, mask, [slice(0, k.shape[-2])])


@wrong("streaming_attention")
def mask_ignored(q, k, v, block_size, attn_mask=None):
    q, _, slices = _prepare(q, k, v, block_size, attn_mask)
    return _stream(q, k, v, None, slices)


@wrong("streaming_attention")
def mask_inverted(q, k, v, block_size, attn_mask=None):
    q, mask, slices = _prepare(q, k, v, block_size, attn_mask)
    return _stream(q, k, v, None if mask is None else ~mask, slices)


@wrong("streaming_attention")
def short_mask_sliced(q, k, v, block_size, attn_mask=None):
    q, _, slices = _prepare(q, k, v, block_size, attn_mask)
    return _stream(q, k, v, attn_mask, slices)


@wrong("streaming_attention", says="the last, shorter block was left out")
def last_keys_lost(q, k, v, block_size, attn_mask=None):
    q, mask, slices = _prepare(q, k, v, block_size, attn_mask)
    return _stream(q, k, v, mask, slices[: k.shape[-2] // block_size])


@wrong("streaming_attention", says="the last, shorter block was left out")
def only_whole_blocks(q, k, v, block_size, attn_mask=None):
    q, mask, _ = _prepare(q, k, v, block_size, attn_mask)
    starts = range(0, k.shape[-2] - block_size + 1, block_size)
    return _stream(q, k, v, mask, [slice(start, start + block_size) for start in starts])


@wrong("streaming_attention")
def maximum_starts_at_0(q, k, v, block_size, attn_mask=None):
    q, mask, slices = _prepare(q, k, v, block_size, attn_mask)
    return _stream(q, k, v, mask, slices, start=0.0)


@wrong("streaming_attention")
def no_maximum(q, k, v, block_size, attn_mask=None):
    q, mask, slices = _prepare(q, k, v, block_size, attn_mask)
    exps = [_block(q, k, mask, keys).exp() for keys in slices]
    out = sum(part @ v[..., keys, :] for part, keys in zip(exps, slices, strict=True))
    return _divided(out, sum(part.sum(-1, keepdim=True) for part in exps))


@wrong("streaming_attention")
def unscaled(q, k, v, block_size, attn_mask=None):
    _, mask, slices = _prepare(q, k, v, block_size, attn_mask)
    return _stream(q, k, v, mask, slices)


@wrong("streaming_attention")
def sum_without_gradient(q, k, v, block_size, attn_mask=None):
    scaled, mask, slices = _prepare(q, k, v, block_size, attn_mask)
    tops = [_block(scaled, k, mask, keys).detach().amax(-1, keepdim=True) for keys in slices]
    top = reduce(torch.maximum, tops).nan_to_num(neginf=0.0)
    exps = [(_block(scaled, k, mask, keys) - top).exp() for keys in slices]
    out = sum(part @ v[..., keys, :] for part, keys in zip(exps, slices, strict=True))
    return _divided(out, sum(part.sum(-1, keepdim=True) for part in exps).detach())


@wrong("streaming_attention")
def block_size_not_refused(q, k, v, block_size, attn_mask=None):
    q, mask, slices = _prepare(q, k, v, max(1, block_size), attn_mask)
    return _stream(q, k, v, mask, slices)


@wrong("streaming_attention")
def torch_own(q, k, v, block_size, attn_mask=None):
    _, mask, _ = _prepare(q, k, v, block_size, attn_mask)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


# ---------------------------------------------------------------- right


@right("streaming_attention", why="online softmax, accumulators rescaled whenever the maximum grows")
def online_softmax(q, k, v, block_size, attn_mask=None):
    q, mask, slices = _prepare(q, k, v, block_size, attn_mask)
    return _stream(q, k, v, mask, slices)


@right("streaming_attention", why="blocks in reverse order, maximum with its gradient")
def reversed_blocks(q, k, v, block_size, attn_mask=None):
    q, mask, slices = _prepare(q, k, v, block_size, attn_mask)
    lowest = torch.finfo(q.dtype).min
    top = q.new_full(q.shape[:-1], lowest).unsqueeze(-1)
    total = out = torch.zeros_like(top)
    for keys in slices[::-1]:
        scores = _block(q, k, mask, keys)
        higher = torch.maximum(top, scores.amax(-1, keepdim=True))
        shrink, exps = (top - higher).exp(), (scores - higher).exp()
        total, out = total * shrink + exps.sum(-1, keepdim=True), out * shrink + exps @ v[..., keys, :]
        top = higher
    return _divided(out, total)


def _merge(left, right_part):
    (left_lse, left_out), (right_lse, right_out) = left, right_part
    lse = torch.logaddexp(left_lse, right_lse)
    base = torch.where(lse == HIDDEN, 0.0, lse)
    return lse, left_out * (left_lse - base).exp() + right_out * (right_lse - base).exp()


@right("streaming_attention", why="every block finished on its own, merged by log-sum-exp")
def merged_by_log_sum_exp(q, k, v, block_size, attn_mask=None):
    q, mask, slices = _prepare(q, k, v, block_size, attn_mask)
    floor = torch.finfo(q.dtype).min / 4
    parts = []
    for keys in slices:
        scores = q @ k[..., keys, :].mT
        seen = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask[..., keys]
        empty = ~seen.any(-1, keepdim=True)
        lse = scores.masked_fill(~(seen | empty), HIDDEN).logsumexp(-1, keepdim=True).masked_fill(empty, floor)
        parts.append((lse, visible_softmax(scores, seen) @ v[..., keys, :]))
    return reduce(_merge, parts)[1]


@right("streaming_attention", why="two passes: the log-sum-exp first, then the values")
def two_passes(q, k, v, block_size, attn_mask=None):
    q, mask, slices = _prepare(q, k, v, block_size, attn_mask)
    top = reduce(torch.maximum, [_block(q, k, mask, keys).detach().amax(-1, keepdim=True) for keys in slices])
    top = torch.where(top == HIDDEN, torch.zeros_like(top), top)
    total = sum((_block(q, k, mask, keys) - top).exp().sum(-1, keepdim=True) for keys in slices)
    log_total = torch.where(total > 0, total, 1.0).log()
    return sum((_block(q, k, mask, keys) - top - log_total).exp() @ v[..., keys, :] for keys in slices)


@right("streaming_attention", why="blocks of two queries as well, written into an own buffer")
def blocks_of_queries(q, k, v, block_size, attn_mask=None):
    scaled, mask, slices = _prepare(q, k, v, block_size, attn_mask)
    out = q.new_empty(*q.shape[:-1], v.shape[-1])
    for start in range(0, q.shape[-2], 2):
        rows = slice(start, start + 2)
        seen = None if mask is None else mask[..., rows, :]
        out[..., rows, :] = _stream(scaled[..., rows, :], k, v, seen, slices)
    return out


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, mask, slices):
        tops = [_block(q, k, mask, keys).amax(-1, keepdim=True) for keys in slices]
        top = reduce(torch.maximum, tops).nan_to_num(neginf=0.0)
        total = sum((_block(q, k, mask, keys) - top).exp().sum(-1, keepdim=True) for keys in slices)
        lse = top + total.masked_fill(total == 0, 1.0).log()
        out = sum((_block(q, k, mask, keys) - lse).exp() @ v[..., keys, :] for keys in slices)
        ctx.save_for_backward(q, k, v, lse, out)
        ctx.mask, ctx.slices = mask, slices
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, lse, out = ctx.saved_tensors
        delta = (grad * out).sum(-1, keepdim=True)
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for keys in ctx.slices:
            weights = (_block(q, k, ctx.mask, keys) - lse).exp()
            d_scores = weights * (grad @ v[..., keys, :].mT - delta)
            dq += d_scores @ k[..., keys, :]
            dk[..., keys, :] = d_scores.mT @ q
            dv[..., keys, :] = weights.mT @ grad
        return dq, dk, dv, None, None


@right("streaming_attention", why="an autograd.Function that recomputes the blocks on the way back")
def recomputed_backward(q, k, v, block_size, attn_mask=None):
    q, mask, slices = _prepare(q, k, v, block_size, attn_mask)
    return _Recomputed.apply(q, k, v, mask, slices)
