"""Blocks, stacks, the whole model: what hurried and blind readers wrote."""

from torch import nn

from tests.bank import blocks_parts as parts
from tests.bank import right, wrong
from utils import oracle


@wrong("EncoderBlock", says="the FFN's output was not added")
class FfnWithoutSkip(parts.EncoderBlock):
    def forward(self, x, attn_mask=None):
        if not self.norm_first:
            return super().forward(x, attn_mask)
        x = x + self.drop(self.attend(self.norm1(x), attn_mask))
        return self.drop(self.ffn(self.norm2(x)))


@wrong("EncoderBlock", says="the second skip starts after the first")
class StartsAgain(parts.EncoderBlock):
    def forward(self, x, attn_mask=None):
        if not self.norm_first:
            return super().forward(x, attn_mask)
        h = x + self.drop(self.attend(self.norm1(x), attn_mask))
        return x + self.drop(self.ffn(self.norm2(h)))


@wrong("EncoderBlock", says="norm1 belongs to attention, norm2 to the FFN")
class NormsExchanged(parts.EncoderBlock):
    def forward(self, x, attn_mask=None):
        x = self.wrap(x, self.norm2, lambda inside: self.attend(inside, attn_mask))
        return self.wrap(x, self.norm1, self.ffn)


@wrong("EncoderBlock", says="hand the mask on by keyword: the second place is memory")
class MaskInSecondPlace(parts.EncoderBlock):
    def attend(self, x, attn_mask):
        return self.attention(x, attn_mask)


@wrong("EncoderBlock", says="hand dropout on by keyword: the third place is bias")
class DropoutInThirdPlace(parts.EncoderBlock):
    def make(self, d_model, n_heads, d_ff, dropout):
        super().make(d_model, n_heads, d_ff, dropout)
        self.attention = oracle.MultiHeadAttention(d_model, n_heads, dropout)


@wrong("EncoderBlock", says="name the parts norm1, attention, norm2, ffn")
class OtherNames(parts.EncoderBlock):
    def make(self, d_model, n_heads, d_ff, dropout):
        super().make(d_model, n_heads, d_ff, dropout)
        self.attn = self.attention
        del self.attention

    def attend(self, x, attn_mask):
        return self.attn(x, attn_mask=attn_mask)


@wrong("DecoderBlock", says="in pre-norm cross-attention reads norm2(x)")
class QueryNotNormed(parts.DecoderBlock):
    def forward(self, x, memory, attn_mask=None, memory_mask=None):
        if not self.norm_first:
            return super().forward(x, memory, attn_mask, memory_mask)
        x = x + self.drop(self.look(self.norm1(x), attn_mask))
        x = x + self.drop(self.read(x, memory, memory_mask))
        return x + self.drop(self.ffn(self.norm3(x)))


@wrong("DecoderBlock", says="the FFN's output was not added")
class LastSumLeftOut(parts.DecoderBlock):
    def forward(self, x, memory, attn_mask=None, memory_mask=None):
        if not self.norm_first:
            return super().forward(x, memory, attn_mask, memory_mask)
        x = x + self.drop(self.look(self.norm1(x), attn_mask))
        x = x + self.drop(self.read(self.norm2(x), memory, memory_mask))
        return self.drop(self.ffn(self.norm3(x)))


@wrong("DecoderBlock", says="two attentions, each with weights of its own")
class OneAttention(parts.DecoderBlock):
    def make(self, d_model, n_heads, d_ff, dropout):
        super().make(d_model, n_heads, d_ff, dropout)
        self.cross_attention = self.self_attention


@wrong("DecoderBlock", says="both masks must hold: and, not or")
class EitherMask(parts.DecoderBlock):
    def look(self, x, attn_mask):
        causal = parts.triangle(x.shape[1])
        return self.self_attention(x, attn_mask=causal if attn_mask is None else causal | attn_mask)


@right("EncoderBlock", "both orders in one line each, parts in an order of their own")
class Terse(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, norm_first=True, dropout=0.0):
        super().__init__()
        self.ffn = oracle.FeedForward(d_model, d_ff, dropout=dropout)
        self.attention = oracle.MultiHeadAttention(d_model, n_heads, dropout=dropout)
        self.norm2, self.norm1 = oracle.LayerNorm(d_model), oracle.LayerNorm(d_model)
        self.pre, self.drop = norm_first, nn.Dropout(dropout)

    def forward(self, x, attn_mask=None):
        def attend(x):
            return self.attention(x, None, attn_mask)

        for norm, branch in ((self.norm1, attend), (self.norm2, self.ffn)):
            x = x + self.drop(branch(norm(x))) if self.pre else norm(x + self.drop(branch(x)))
        return x
