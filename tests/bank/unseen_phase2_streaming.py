"""Unseen answers to streaming_attention: faults that a weak check lets pass, and odd ways that are right."""

import torch

from tests.bank import right, wrong

HIDDEN = float("-inf")


def _refuse(q, k, v, block_size, attn_mask):
    if block_size < 1:
        raise ValueError("block_size must be at least 1")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError("d_head of q and k differ")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError("kv_len of k and v differ")
    if attn_mask is not None and attn_mask.dtype is not torch.bool:
        raise ValueError("attn_mask must be bool")


def _block_scores(q, k, attn_mask, start, stop):
    scores = q @ k[..., start:stop, :].mT / q.shape[-1] ** 0.5
    if attn_mask is None:
        return scores
    part = attn_mask if attn_mask.shape[-1] == 1 else attn_mask[..., start:stop]
    return scores.masked_fill(~part, HIDDEN)


def _stream(q, k, v, block_size, attn_mask=None, first_top=HIDDEN, keep=lambda total: total, last=None):
    """The sound version that most answers below break in one place."""
    top = torch.full_like(q[..., :1], first_top)
    total, out = torch.zeros_like(top), torch.zeros_like(q[..., :1] * v[..., :1, :])
    for start in range(0, k.shape[-2] if last is None else last, block_size):
        scores = _block_scores(q, k, attn_mask, start, start + block_size)
        new = torch.maximum(top, scores.amax(-1, keepdim=True)).detach()
        safe = new.masked_fill(new.isneginf(), 0)
        exps, shrink = (scores - safe).exp(), (top - safe).exp()
        total = keep(total * shrink + exps.sum(-1, keepdim=True))
        out = out * shrink + exps @ v[..., start : start + block_size, :]
        top = new
    return out / total.masked_fill(total == 0, 1)


# streaming_attention, wrong -----------------------------------------------------------------------------------------


@wrong("streaming_attention", says=None)
def refuses_zero_alone(q, k, v, block_size, attn_mask=None):
    """Breaks "block_size < 1 raises": a negative one makes an empty loop and zeros."""
    _refuse(q, k, v, abs(block_size), attn_mask)
    return _stream(q, k, v, block_size, attn_mask)


@wrong("streaming_attention", says=None)
def refuses_large_blocks(q, k, v, block_size, attn_mask=None):
    """Breaks "blocks 1, 2, 3, 9 for 7 keys": more than kv_len is an error here."""
    _refuse(q, k, v, block_size, attn_mask)
    if block_size > k.shape[-2]:
        raise ValueError("block_size")
    return _stream(q, k, v, block_size, attn_mask)


@wrong("streaming_attention", says=None)
def sums_without_gradient(q, k, v, block_size, attn_mask=None):
    """Breaks "same gradients": the running sum is detached, the values are right."""
    _refuse(q, k, v, block_size, attn_mask)
    return _stream(q, k, v, block_size, attn_mask, keep=torch.detach)


@wrong("streaming_attention", says=None)
def collects_the_blocks(q, k, v, block_size, attn_mask=None):
    """Breaks "never makes a floating tensor (q_len, kv_len)": blocks of scores are joined before the softmax."""
    _refuse(q, k, v, block_size, attn_mask)
    starts = range(0, k.shape[-2], block_size)
    scores = torch.cat([_block_scores(q, k, attn_mask, start, start + block_size) for start in starts], -1)
    empty = scores.isneginf().all(-1, keepdim=True)
    return scores.masked_fill(empty, 0).softmax(-1).masked_fill(empty, 0) @ v


@wrong("streaming_attention", says=None)
def stands_on_its_head(q, k, v, block_size, attn_mask=None):
    """Breaks "in either order": plain attention with the table transposed, (kv_len, q_len)."""
    _refuse(q, k, v, block_size, attn_mask)
    scores = k @ q.mT / q.shape[-1] ** 0.5
    if attn_mask is None:
        return scores.softmax(-2).mT @ v
    attn_mask = attn_mask.expand(*q.shape[:-1], k.shape[-2])
    empty = ~attn_mask.any(-1, keepdim=True)
    return (scores.masked_fill(~(attn_mask | empty).mT, HIDDEN).softmax(-2) * attn_mask.mT).mT @ v


@wrong("streaming_attention", says=None)
def a_table_of_minus_infinities(q, k, v, block_size, attn_mask=None):
    """Breaks the shape rule: the scores come in blocks, but the mask becomes a floating (q_len, kv_len) table."""
    _refuse(q, k, v, block_size, attn_mask)
    if attn_mask is None:
        return _stream(q, k, v, block_size)
    bias = torch.zeros(q.shape[-2], k.shape[-2], dtype=q.dtype).masked_fill(~attn_mask, HIDDEN)
    return _stream(q, k, v, block_size, bias == 0)


@wrong("streaming_attention", says=None)
def cuts_an_axis_of_one(q, k, v, block_size, attn_mask=None):
    """Breaks "masks with axes of 1": a mask of one column is cut into blocks, the second is empty."""
    _refuse(q, k, v, block_size, attn_mask)
    if attn_mask is not None and attn_mask.shape[-1] == 1:
        seen = torch.arange(k.shape[-2]) < block_size
        attn_mask = attn_mask & seen
    return _stream(q, k, v, block_size, attn_mask)


@wrong("streaming_attention", says=None)
def maximum_starts_at_zero(q, k, v, block_size, attn_mask=None):
    """Breaks "all scores far below −700": the running maximum starts at 0, and every exponential is 0."""
    _refuse(q, k, v, block_size, attn_mask)
    return _stream(q, k, v, block_size, attn_mask, first_top=0.0)


@wrong("streaming_attention", says=None)
def sums_in_single_precision(q, k, v, block_size, attn_mask=None):
    """Breaks rule 4: all sums run in float32, and only the dtype comes back."""
    _refuse(q, k, v, block_size, attn_mask)
    return _stream(q.float(), k.float(), v.float(), block_size, attn_mask).to(q.dtype)


@wrong("streaming_attention", says=None)
def as_many_keys_as_queries(q, k, v, block_size, attn_mask=None):
    """Breaks "same result as sdpa" for q_len < kv_len: the loop runs over q_len."""
    _refuse(q, k, v, block_size, attn_mask)
    return _stream(q, k, v, block_size, attn_mask, last=min(q.shape[-2], k.shape[-2]))


@wrong("streaming_attention", says=None)
def single_keys_are_always_seen(q, k, v, block_size, attn_mask=None):
    """Breaks "same result as sdpa" for block_size 1: a shortcut for single keys forgets the mask."""
    _refuse(q, k, v, block_size, attn_mask)
    return _stream(q, k, v, block_size, None if block_size == 1 else attn_mask)


# streaming_attention, right -----------------------------------------------------------------------------------------


@right("streaming_attention", why="blocks from the last to the first, merged by their log-sums; blocks of queries too")
def merged_by_log_sums(q, k, v, block_size, attn_mask=None):
    _refuse(q, k, v, block_size, attn_mask)
    rows = []
    for row in range(q.shape[-2]):
        query = q[..., row : row + 1, :]
        mask = attn_mask
        if mask is not None and mask.shape[-2:-1] == q.shape[-2:-1]:
            mask = mask[..., row : row + 1, :]
        parts, logs = [], []
        for start in reversed(range(0, k.shape[-2], block_size)):
            scores = _block_scores(query, k, mask, start, start + block_size)
            empty = scores.isneginf().all(-1, keepdim=True)
            log = torch.logsumexp(scores.masked_fill(empty, 0), -1, keepdim=True)
            weights = (scores - log).masked_fill(empty, HIDDEN).exp()
            parts.append(weights @ v[..., start : start + block_size, :])
            logs.append(log.masked_fill(empty, torch.finfo(q.dtype).min))
        shares = torch.stack(logs).softmax(0)
        rows.append((torch.stack(parts) * shares).sum(0))
    return torch.cat(rows, -2)


@right("streaming_attention", why="two passes: the log-sums first, then the values, weighted by finished weights")
def in_two_passes(q, k, v, block_size, attn_mask=None):
    _refuse(q, k, v, block_size, attn_mask)
    spans = [(start, start + block_size) for start in range(0, k.shape[-2], block_size)]
    tops = [_block_scores(q, k, attn_mask, *span).amax(-1, keepdim=True) for span in spans]
    top = torch.stack(tops).amax(0).detach()
    top = torch.where(top.isneginf(), torch.zeros_like(top), top)
    total = sum((_block_scores(q, k, attn_mask, *span) - top).exp().sum(-1, keepdim=True) for span in spans)
    total = torch.where(total == 0, torch.ones_like(total), total)
    out = 0
    for start, stop in spans:
        weights = (_block_scores(q, k, attn_mask, start, stop) - top).exp() / total
        out = out + weights @ v[..., start:stop, :]
    return out
