"""What wrong solutions of phase 4's blocks get right, so that each one shows a single fault."""

import torch
from torch import nn

from utils import oracle


def triangle(seq_len):
    return torch.ones(seq_len, seq_len, dtype=torch.bool).tril()


class Base(nn.Module):
    """norm_first and dropout, and one way to add a branch: `wrap(x, norm, branch)`."""

    def __init__(self, norm_first, dropout):
        super().__init__()
        self.norm_first, self.drop = norm_first, nn.Dropout(dropout)

    def wrap(self, x, norm, branch):
        if self.norm_first:
            return x + self.drop(branch(norm(x)))
        return norm(x + self.drop(branch(x)))


class Residual(Base):
    """Right as it stands."""

    def __init__(self, sublayer, d_model, norm_first=True, dropout=0.0):
        super().__init__(norm_first, dropout)
        self.sublayer = sublayer
        self.make_norm(d_model)

    def make_norm(self, d_model):
        self.norm = oracle.LayerNorm(d_model)

    def forward(self, x, *args, **kwargs):
        return self.wrap(x, self.norm, lambda inside: self.sublayer(inside, *args, **kwargs))


class EncoderBlock(Base):
    """Right as it stands."""

    norm_class = oracle.LayerNorm

    def __init__(self, d_model, n_heads, d_ff, norm_first=True, dropout=0.0):
        super().__init__(norm_first, dropout)
        self.make(d_model, n_heads, d_ff, dropout)

    def make(self, d_model, n_heads, d_ff, dropout):
        self.norm1, self.norm2 = self.norm_class(d_model), self.norm_class(d_model)
        self.attention = oracle.MultiHeadAttention(d_model, n_heads, dropout=dropout)
        self.ffn = oracle.FeedForward(d_model, d_ff, dropout=dropout)

    def attend(self, x, attn_mask):
        return self.attention(x, attn_mask=attn_mask)

    def forward(self, x, attn_mask=None):
        x = self.wrap(x, self.norm1, lambda inside: self.attend(inside, attn_mask))
        return self.wrap(x, self.norm2, self.ffn)


class DecoderBlock(Base):
    """Right as it stands."""

    def __init__(self, d_model, n_heads, d_ff, norm_first=True, dropout=0.0):
        super().__init__(norm_first, dropout)
        self.make(d_model, n_heads, d_ff, dropout)

    def make(self, d_model, n_heads, d_ff, dropout):
        self.norm1, self.norm2, self.norm3 = (oracle.LayerNorm(d_model) for _ in range(3))
        self.self_attention = oracle.MultiHeadAttention(d_model, n_heads, dropout=dropout)
        self.cross_attention = oracle.MultiHeadAttention(d_model, n_heads, dropout=dropout)
        self.ffn = oracle.FeedForward(d_model, d_ff, dropout=dropout)

    def look(self, x, attn_mask):
        causal = triangle(x.shape[1])
        return self.self_attention(x, attn_mask=causal if attn_mask is None else causal & attn_mask)

    def read(self, x, memory, memory_mask):
        return self.cross_attention(x, memory=memory, attn_mask=memory_mask)

    def branches(self, memory, attn_mask, memory_mask):
        return [
            (self.norm1, lambda inside: self.look(inside, attn_mask)),
            (self.norm2, lambda inside: self.read(inside, memory, memory_mask)),
            (self.norm3, self.ffn),
        ]

    def forward(self, x, memory, attn_mask=None, memory_mask=None):
        for norm, branch in self.branches(memory, attn_mask, memory_mask):
            x = self.wrap(x, norm, branch)
        return x
