"""What wrong solutions get right, so that each one shows a single fault."""

import torch

HIDDEN = float("-inf")


def visible_softmax(scores, attn_mask=None, dim=-1):
    """Softmax over the visible entries; hidden ones and slices with nothing visible are 0, without NaN either way."""
    if attn_mask is None:
        return scores.softmax(dim)
    attn_mask = torch.broadcast_to(attn_mask, scores.shape)
    empty = ~attn_mask.any(dim, keepdim=True)
    weights = scores.masked_fill(~(attn_mask | empty), HIDDEN).softmax(dim)
    return weights.masked_fill(~attn_mask, 0.0)


def blank_empty_slices(weights, attn_mask, dim=-1):
    """Set the slices with nothing visible to 0 and leave all else, hidden entries too."""
    if attn_mask is None:
        return weights
    attn_mask = torch.broadcast_to(attn_mask, weights.shape)
    return weights.masked_fill(~attn_mask.any(dim, keepdim=True), 0.0)


def refuse(q=None, k=None, v=None, attn_mask=None):
    """Raise what the exercises ask for: unequal widths, unequal numbers of keys and values, masks that are not bool."""
    if q is not None and q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q and k differ in d_head: {q.shape[-1]} and {k.shape[-1]}")
    if v is not None and k.shape[-2] != v.shape[-2]:
        raise ValueError(f"k and v differ in kv_len: {k.shape[-2]} and {v.shape[-2]}")
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        raise ValueError(f"attn_mask must be bool, not {attn_mask.dtype}")


def causal(q_len, kv_len):
    """True where query i may see key j, aligned to the end."""
    return torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)
