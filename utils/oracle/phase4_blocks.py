"""Twins of phase 4, the whole: residual, blocks, stacks, the encoder-decoder model. tests/test_phase4_blocks.py
compares them with torch's own Transformer layers, weights copied.
"""

import torch
import torch.nn.functional as F
from torch import nn

from utils.observe.forbid import twin
from utils.oracle.phase2 import causal_mask, combine_masks, padding_mask
from utils.oracle.phase3 import MultiHeadAttention
from utils.oracle.phase4_parts import FeedForward, LayerNorm

__all__ = ["Decoder", "DecoderBlock", "Encoder", "EncoderBlock", "Residual", "Transformer"]


class _Wrapped(nn.Module):
    """One way to add a branch for all: `norm_first` and `dropout` are attributes."""

    def add(self, x, norm, branch):
        inside = norm(x) if self.norm_first else x
        total = x + F.dropout(branch(inside), self.dropout, self.training)
        return total if self.norm_first else norm(total)


@twin
class Residual(_Wrapped):
    def __init__(self, sublayer, d_model, norm_first=True, dropout=0.0):
        super().__init__()
        self.sublayer, self.norm = sublayer, LayerNorm(d_model)
        self.norm_first, self.dropout = norm_first, dropout

    def forward(self, x, *args, **kwargs):
        return self.add(x, self.norm, lambda inside: self.sublayer(inside, *args, **kwargs))


@twin
class EncoderBlock(_Wrapped):
    def __init__(self, d_model, n_heads, d_ff, norm_first=True, dropout=0.0):
        super().__init__()
        self.norm_first, self.dropout = norm_first, dropout
        self.norm1, self.attention = LayerNorm(d_model), MultiHeadAttention(d_model, n_heads, dropout=dropout)
        self.norm2, self.ffn = LayerNorm(d_model), FeedForward(d_model, d_ff, dropout=dropout)

    def forward(self, x, attn_mask=None):
        x = self.add(x, self.norm1, lambda inside: self.attention(inside, attn_mask=attn_mask))
        return self.add(x, self.norm2, self.ffn)


@twin
class DecoderBlock(_Wrapped):
    def __init__(self, d_model, n_heads, d_ff, norm_first=True, dropout=0.0):
        super().__init__()
        self.norm_first, self.dropout = norm_first, dropout
        self.norm1, self.self_attention = LayerNorm(d_model), MultiHeadAttention(d_model, n_heads, dropout=dropout)
        self.norm2, self.cross_attention = LayerNorm(d_model), MultiHeadAttention(d_model, n_heads, dropout=dropout)
        self.norm3, self.ffn = LayerNorm(d_model), FeedForward(d_model, d_ff, dropout=dropout)

    def forward(self, x, memory, attn_mask=None, memory_mask=None):
        seen = combine_masks(causal_mask(x.shape[1]), attn_mask)
        x = self.add(x, self.norm1, lambda inside: self.self_attention(inside, attn_mask=seen))
        x = self.add(x, self.norm2, lambda inside: self.cross_attention(inside, memory=memory, attn_mask=memory_mask))
        return self.add(x, self.norm3, self.ffn)


class _Stack(nn.Module):
    block = None

    def __init__(self, n_layers, d_model, n_heads, d_ff, norm_first=True, dropout=0.0):
        super().__init__()
        blocks = (self.block(d_model, n_heads, d_ff, norm_first, dropout) for _ in range(n_layers))
        self.blocks, self.norm = nn.ModuleList(blocks), LayerNorm(d_model) if norm_first else nn.Identity()


@twin
class Encoder(_Stack):
    block = EncoderBlock

    def __init__(self, n_layers, d_model, n_heads, d_ff, norm_first=True, dropout=0.0):
        super().__init__(n_layers, d_model, n_heads, d_ff, norm_first, dropout)

    def forward(self, x, attn_mask=None):
        for block in self.blocks:
            x = block(x, attn_mask=attn_mask)
        return self.norm(x)


@twin
class Decoder(_Stack):
    block = DecoderBlock

    def __init__(self, n_layers, d_model, n_heads, d_ff, norm_first=True, dropout=0.0):
        super().__init__(n_layers, d_model, n_heads, d_ff, norm_first, dropout)

    def forward(self, x, memory, attn_mask=None, memory_mask=None):
        for block in self.blocks:
            x = block(x, memory, attn_mask=attn_mask, memory_mask=memory_mask)
        return self.norm(x)


@twin
class Transformer(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, d_model, n_heads, d_ff, n_layers, norm_first=True, dropout=0.0):
        super().__init__()
        self.src_embedding, self.tgt_embedding = nn.Embedding(src_vocab, d_model), nn.Embedding(tgt_vocab, d_model)
        self.encoder = Encoder(n_layers, d_model, n_heads, d_ff, norm_first, dropout)
        self.decoder = Decoder(n_layers, d_model, n_heads, d_ff, norm_first, dropout)
        self.dropout = dropout

    def forward(self, src, tgt, src_pad_mask=None, tgt_pad_mask=None):
        src_seen, tgt_seen = (None if mask is None else padding_mask(mask) for mask in (src_pad_mask, tgt_pad_mask))
        memory = self.encoder(self.embedded(src, self.src_embedding), attn_mask=src_seen)
        y = self.decoder(self.embedded(tgt, self.tgt_embedding), memory, attn_mask=tgt_seen, memory_mask=src_seen)
        return F.linear(y, self.tgt_embedding.weight)

    def embedded(self, tokens, table):
        """Positions as the real and imaginary part of a turning pointer."""
        d_model, weight = table.embedding_dim, table.weight
        pairs = torch.arange(0, d_model, 2, dtype=torch.float64)
        angle = torch.arange(tokens.shape[1], dtype=torch.float64)[:, None] * 10000.0 ** (-pairs / d_model)
        turning = torch.view_as_real(torch.polar(torch.ones_like(angle), angle)).flip(-1).flatten(1)[:, :d_model]
        x = d_model**0.5 * F.embedding(tokens, weight) + turning.to(weight.dtype)
        return F.dropout(x, self.dropout, self.training)
