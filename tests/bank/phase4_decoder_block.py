"""DecoderBlock: wrong solutions and unusual right ones."""

import torch
from torch import nn

from tests.bank import blocks_parts as parts
from tests.bank import right, wrong
from tests.bank.blocks_parts import triangle
from tests.bank.phase4_blocks import FusedAttention
from utils import oracle

# ---------------------------------------------------------------- wrong: DecoderBlock


@wrong("DecoderBlock", says="self, cross, feed-forward")
class CrossFirst(parts.DecoderBlock):
    def branches(self, *args):
        first, second, third = super().branches(*args)
        return [second, first, third]


@wrong("DecoderBlock", says="self, cross, feed-forward")
class FeedForwardInTheMiddle(parts.DecoderBlock):
    def branches(self, *args):
        first, second, third = super().branches(*args)
        return [first, third, second]


@wrong("DecoderBlock", says="no causal mask on cross-attention")
class CausalCross(parts.DecoderBlock):
    def read(self, x, memory, memory_mask):
        seen = torch.ones(x.shape[1], memory.shape[1], dtype=torch.bool).tril()
        return self.cross_attention(x, memory=memory, attn_mask=seen if memory_mask is None else seen & memory_mask)


@wrong("DecoderBlock", says="keys and values come from memory")
class ReadsItself(parts.DecoderBlock):
    def read(self, x, memory, memory_mask):
        return self.cross_attention(x)


@wrong("DecoderBlock", says="the encoder has normed it")
class NormsMemory(parts.DecoderBlock):
    def read(self, x, memory, memory_mask):
        return self.cross_attention(x, memory=self.norm2(memory), attn_mask=memory_mask)


@wrong("DecoderBlock", says="memory_mask was ignored")
class MemoryMaskIgnored(parts.DecoderBlock):
    def read(self, x, memory, memory_mask):
        return self.cross_attention(x, memory=memory)


@wrong("DecoderBlock", says="cross-attention was left out")
class NoCross(parts.DecoderBlock):
    def branches(self, *args):
        first, _, third = super().branches(*args)
        return [first, third]


@wrong("DecoderBlock", says="three norms")
class TwoNorms(parts.DecoderBlock):
    def branches(self, *args):
        first, second, (_, ffn) = super().branches(*args)
        return [first, second, (self.norm2, ffn)]


@wrong("DecoderBlock", says="three norms")
class TwoNormsMade(TwoNorms):
    def make(self, *sizes):
        super().make(*sizes)
        del self.norm3

    def branches(self, memory, attn_mask, memory_mask):
        self.norm3 = self.norm2
        return super().branches(memory, attn_mask, memory_mask)


@wrong("DecoderBlock", says="a decoder does not see the future")
class SeesTheFuture(parts.DecoderBlock):
    def look(self, x, attn_mask):
        return self.self_attention(x, attn_mask=attn_mask)


@wrong("DecoderBlock", says="causal also when attn_mask is given: both must hold")
class MaskReplacesCausal(parts.DecoderBlock):
    def look(self, x, attn_mask):
        return self.self_attention(x, attn_mask=triangle(x.shape[1]) if attn_mask is None else attn_mask)


@wrong("DecoderBlock", says="attn_mask was ignored")
class OwnMaskIgnored(parts.DecoderBlock):
    def look(self, x, attn_mask):
        return self.self_attention(x, attn_mask=triangle(x.shape[1]))


@wrong("DecoderBlock")
class CrossWithOwnMask(parts.DecoderBlock):
    def branches(self, memory, attn_mask, memory_mask):
        return super().branches(memory, attn_mask, memory_mask if attn_mask is None else None)


@wrong("DecoderBlock")
class MemoryDetached(parts.DecoderBlock):
    def read(self, x, memory, memory_mask):
        return self.cross_attention(x, memory=memory.detach(), attn_mask=memory_mask)


@wrong("DecoderBlock")
class NoDropoutInCross(parts.DecoderBlock):
    def make(self, d_model, n_heads, d_ff, dropout):
        super().make(d_model, n_heads, d_ff, dropout)
        self.cross_attention = oracle.MultiHeadAttention(d_model, n_heads)


@wrong("DecoderBlock")
class OneAttention(parts.DecoderBlock):
    def make(self, *sizes):
        super().make(*sizes)
        self.cross_attention = self.self_attention


# ---------------------------------------------------------------- right: DecoderBlock


@right("DecoderBlock", why="a loop over three branches")
class PlainDecoderBlock(parts.DecoderBlock):
    pass


@right("DecoderBlock", why="written out, with the mask made by a comparison")
class WrittenOut(parts.DecoderBlock):
    def forward(self, x, memory, attn_mask=None, memory_mask=None):
        places = torch.arange(x.shape[1])
        seen = (places[:, None] >= places) & (True if attn_mask is None else attn_mask)
        if not self.norm_first:
            x = self.norm1(x + self.drop(self.self_attention(x, attn_mask=seen)))
            x = self.norm2(x + self.drop(self.cross_attention(x, memory, memory_mask)))
            return self.norm3(x + self.drop(self.ffn(x)))
        x = x + self.drop(self.self_attention(self.norm1(x), attn_mask=seen))
        x = x + self.drop(self.cross_attention(self.norm2(x), memory, memory_mask))
        return x + self.drop(self.ffn(self.norm3(x)))


@right("DecoderBlock", why="three Residuals, filled through load_weights")
class ThreeResiduals(nn.Module):
    names = ("self_attention", "cross_attention", "ffn")

    def __init__(self, d_model, n_heads, d_ff, norm_first=True, dropout=0.0):
        super().__init__()
        inner = [oracle.MultiHeadAttention(d_model, n_heads, dropout=dropout) for _ in range(2)]
        inner.append(oracle.FeedForward(d_model, d_ff, dropout=dropout))
        self.steps = nn.ModuleList(oracle.Residual(part, d_model, norm_first, dropout) for part in inner)

    def load_weights(self, weights):
        for number, name in enumerate(self.names):
            for old, new in ((f"norm{number + 1}.", "norm."), (f"{name}.", "sublayer.")):
                found = {new + key[len(old) :]: value for key, value in weights.items() if key.startswith(old)}
                self.steps[number].load_state_dict(found, strict=False)

    def forward(self, x, memory, attn_mask=None, memory_mask=None):
        seen = oracle.combine_masks(triangle(x.shape[1]), attn_mask)
        x = self.steps[0](x, attn_mask=seen)
        return self.steps[2](self.steps[1](x, memory=memory, attn_mask=memory_mask))


@right("DecoderBlock", why="both attentions are fused and fill themselves")
class FusedDecoder(parts.DecoderBlock):
    def make(self, d_model, n_heads, d_ff, dropout):
        super().make(d_model, n_heads, d_ff, dropout)
        self.self_attention = FusedAttention(d_model, n_heads, dropout)
        self.cross_attention = FusedAttention(d_model, n_heads, dropout)
