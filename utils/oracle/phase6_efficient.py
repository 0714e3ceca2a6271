"""Twins of phase 6, efficient forms: patches, experts, tiles."""

import torch
import torch.nn.functional as F

from utils.observe.forbid import twin
from utils.oracle.phase2 import masked_softmax

__all__ = ["moe_route", "patchify", "tiled_attention"]


@twin
def patchify(images, patch_size):
    """torch's im2col; it wants floating numbers, and float64 holds every integer that an image may have."""
    height, width = images.shape[-2:]
    if patch_size < 1 or height % patch_size or width % patch_size:
        raise ValueError(f"patch_size must divide height and width, and {patch_size} does not: {height} × {width}")
    wide = images if images.is_floating_point() else images.double()
    return F.unfold(wide, patch_size, stride=patch_size).transpose(1, 2).to(images.dtype)


@twin
def moe_route(logits, k, capacity=None):
    """By ranks: how many experts of a token score higher, and how many tokens chose the expert before."""
    n_tokens, n_experts = logits.shape
    if not 1 <= k <= n_experts:
        raise ValueError(f"k must lie between 1 and {n_experts}, got {k}")
    if capacity is not None and capacity < 1:
        raise ValueError(f"capacity must be at least 1, got {capacity}")
    place = torch.arange(n_experts)
    ahead = (logits[:, None, :] > logits[:, :, None]) | (
        (logits[:, None, :] == logits[:, :, None]) & (place < place[:, None])
    )
    chosen = ahead.sum(-1) < k
    weights = masked_softmax(logits, chosen)
    if capacity is not None:
        weights = weights * (chosen.cumsum(0) <= capacity)
    share = chosen.to(logits.dtype).sum(0) / (n_tokens * k)
    return weights, n_experts * torch.dot(share, logits.softmax(-1).mean(0))


@twin
def tiled_attention(q, k, v, q_block, kv_block, causal=False):
    """Each tile's own output, weighed by the tile's share of the softmax: a softmax over log-sum-exps."""
    if q_block < 1 or kv_block < 1:
        raise ValueError("q_block and kv_block must be at least 1")
    q_len, kv_len = q.shape[-2], k.shape[-2]
    strips = []
    for top in range(0, q_len, q_block):
        rows = q[..., top : top + q_block, :]
        last = top + rows.shape[-2] - 1 + kv_len - q_len if causal else kv_len - 1
        starts = [left for left in range(0, kv_len, kv_block) if left <= last]
        tiles = [_tile(rows, k, v, slice(left, left + kv_block), top + kv_len - q_len, causal) for left in starts]
        strips.append(_joined(tiles) if tiles else _nothing(rows, v))
    return torch.cat([out for out, _ in strips], -2), torch.cat([total for _, total in strips], -1)


LOW = -1e30  # far below any score, yet finite: a row with nothing to see has no NaN gradient


def _tile(rows, k, v, block, first, causal):
    """(output, log-sum-exp) of one tile; `first` is the last key that its first query may see."""
    keys = k[..., block, :]
    scores = rows @ keys.mT / rows.shape[-1] ** 0.5
    if not causal:
        return scores.softmax(-1) @ v[..., block, :], scores.logsumexp(-1)
    places = torch.arange(block.start, block.start + keys.shape[-2])
    seen = places <= first + torch.arange(rows.shape[-2])[:, None]
    low = scores.new_full((), LOW)
    return masked_softmax(scores, seen) @ v[..., block, :], torch.where(seen, scores, low).logsumexp(-1)


def _joined(tiles):
    outputs, shares = (torch.stack(parts) for parts in zip(*tiles, strict=True))
    seen = shares > LOW / 10
    out = (masked_softmax(shares, seen, dim=0)[..., None] * outputs).sum(0)
    return out, torch.where(seen.any(0), shares.logsumexp(0), -torch.inf)


def _nothing(rows, v):
    return v.new_zeros(*rows.shape[:-1], v.shape[-1]), rows.new_full(rows.shape[:-1], -torch.inf)
