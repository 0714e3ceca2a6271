"""Twins of phase 4, the last sections: a test for masks, and the mended listing."""

import torch
import torch.nn.functional as F
from torch import nn

from utils.observe.forbid import twin
from utils.oracle.phase2 import attention_weights
from utils.oracle.phase3 import merge_heads, split_heads

__all__ = ["FusedSelfAttention", "reads_hidden"]


@twin
def reads_hidden(attention):
    """By derivatives: of every row with respect to every other token of its sentence that the mask hides from it."""
    generator = torch.Generator().manual_seed(0)
    for batch, seq_len in ((2, 8), (3, 8), (1, 3), (4, 8)):
        x = torch.randn(batch, seq_len, 8, generator=generator, dtype=torch.float64)
        seen = torch.rand(batch, seq_len, seq_len, generator=generator) < 0.4
        seen[-1, 1] = False
        seen[-1, :, 0] = False

        def total(x, seen=seen[:, None]):
            return attention(x, seen).sum((0, 2))  # (T,): a sentence has the slopes of its own rows

        with torch.enable_grad():
            slopes = torch.autograd.functional.jacobian(total, x, vectorize=True)  # (T, B, T, 8)
        reads = (slopes.abs().amax(-1) > 1e-12).transpose(0, 1)  # (B, T, T)
        others = ~torch.eye(seq_len, dtype=torch.bool)
        if bool((reads & ~seen & others).any()):
            return True
    return False


@twin
class FusedSelfAttention(nn.Module):
    def __init__(self, d_model, n_heads, d_head=None, dropout=0.0):
        super().__init__()
        if d_head is None and d_model % n_heads:
            raise ValueError(f"n_heads must divide d_model, or d_head be given: {n_heads} does not divide {d_model}")
        self.n_heads, self.dropout = n_heads, dropout
        inner = n_heads * (d_head or d_model // n_heads)
        self.w_qkv, self.w_o = nn.Linear(d_model, 3 * inner), nn.Linear(inner, d_model)

    def forward(self, x, attn_mask=None):
        q, k, v = (split_heads(part, self.n_heads) for part in self.w_qkv(x).chunk(3, -1))
        weights = attention_weights(q, k, None if attn_mask is None else attn_mask.unsqueeze(1))
        return self.w_o(merge_heads(F.dropout(weights, self.dropout, self.training) @ v))
