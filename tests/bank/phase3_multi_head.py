"""MultiHeadAttention: wrong solutions and unusual right ones."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bank import right, wrong
from tests.bank.attention_parts import HIDDEN, visible_softmax


class _Multi(nn.Module):
    """Right as it stands; each wrong solution changes one method."""

    def __init__(self, d_model, n_heads, bias=True, dropout=0.0):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        self.n_heads = n_heads
        self.make(d_model, bias)
        self.dropout = nn.Dropout(dropout)

    def make(self, d_model, bias):
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Linear(d_model, d_model, bias=bias))

    def project(self, x, memory):
        return self.w_q(x), self.w_k(memory), self.w_v(memory)

    def split(self, x):
        return x.view(*x.shape[:2], self.n_heads, -1).transpose(1, 2)

    def scores(self, q, k):
        return q @ k.mT / math.sqrt(q.shape[-1])

    def weights(self, scores, attn_mask):
        return visible_softmax(scores, attn_mask)

    def drop(self, weights):
        return self.dropout(weights)

    def merge(self, heads):
        return heads.transpose(1, 2).flatten(2)

    def last(self, merged):
        return self.w_o(merged)

    def forward(self, x, memory=None, attn_mask=None):
        q, k, v = map(self.split, self.project(x, x if memory is None else memory))
        return self.last(self.merge(self.drop(self.weights(self.scores(q, k), attn_mask)) @ v))


# ---------------------------------------------------------------- wrong


@wrong("MultiHeadAttention", says="the scale uses d_model, heads are d_head wide")
class RootOfTheModel(_Multi):
    def scores(self, q, k):
        return q @ k.mT / math.sqrt(self.n_heads * q.shape[-1])


@wrong("MultiHeadAttention", says="scores were not divided by √d_head")
class NoRoot(_Multi):
    def scores(self, q, k):
        return q @ k.mT


@wrong("MultiHeadAttention", says="there is no layer of the name w_o")
class NoOutputLayer(_Multi):
    def make(self, d_model, bias):
        super().make(d_model, bias)
        del self.w_o

    def last(self, merged):
        return merged


@wrong("MultiHeadAttention", says="w_o was not used")
class OutputLayerForgotten(_Multi):
    def last(self, merged):
        return merged


@wrong("MultiHeadAttention", says="concatenate, do not average")
class HeadsAveraged(_Multi):
    def merge(self, heads):
        return heads.mean(1).repeat(1, 1, self.n_heads)


@wrong("MultiHeadAttention", says="tokens and heads were mixed: transpose before you merge")
class MergedAsItLies(_Multi):
    def merge(self, heads):
        return heads.reshape(len(heads), heads.shape[2], -1)


@wrong("MultiHeadAttention", says="tokens and heads were mixed: transpose after you cut the features")
class SplitByView(_Multi):
    def split(self, x):
        return x.reshape(len(x), self.n_heads, x.shape[1], -1)


@wrong("MultiHeadAttention", says="tokens and heads were mixed: transpose after you cut the features")
class ViewBothWays(SplitByView):
    def merge(self, heads):
        return heads.reshape(len(heads), heads.shape[2], -1)


@wrong("MultiHeadAttention", says="softmax ran over the heads")
class SoftmaxOverHeads(_Multi):
    def weights(self, scores, attn_mask):
        return visible_softmax(scores, attn_mask, dim=1)


@wrong("MultiHeadAttention", says="n_heads was ignored")
class OneHead(_Multi):
    def split(self, x):
        return x.unsqueeze(1)


@wrong("MultiHeadAttention", says="memory gives keys and values")
class SelfAttentionOnly(_Multi):
    def forward(self, x, memory=None, attn_mask=None):
        return super().forward(x, None, attn_mask)


@wrong("MultiHeadAttention")
class ValuesFromX(_Multi):
    def forward(self, x, memory=None, attn_mask=None):
        self.x = x
        return super().forward(x, memory, attn_mask)

    def project(self, x, memory):
        return self.w_q(x), self.w_k(memory), self.w_v(x if x.shape == memory.shape else memory)


@wrong("MultiHeadAttention", says="the bias is missing")
class NeverBias(_Multi):
    def make(self, d_model, bias):
        super().make(d_model, False)


@wrong("MultiHeadAttention", says="the bias flag was ignored")
class AlwaysBias(_Multi):
    def make(self, d_model, bias):
        super().make(d_model, True)


@wrong("MultiHeadAttention")
class OutputAlwaysBias(_Multi):
    def make(self, d_model, bias):
        super().make(d_model, bias)
        self.w_o = nn.Linear(d_model, d_model)


@wrong("MultiHeadAttention", says="dropout belongs on the weights, not on the output")
class DropoutOnTheOutput(_Multi):
    def drop(self, weights):
        return weights

    def last(self, merged):
        return self.dropout(self.w_o(merged))


@wrong("MultiHeadAttention", says="dropout belongs on the weights, before they meet the values")
class DropoutOnTheHeads(_Multi):
    def drop(self, weights):
        return weights

    def merge(self, heads):
        return self.dropout(super().merge(heads))


@wrong("MultiHeadAttention")
class WholeRowsDropped(_Multi):
    def drop(self, weights):
        return weights * self.dropout(torch.ones_like(weights[..., :1]))


@wrong("MultiHeadAttention", says="no attention weight is ever dropped")
class DropoutForgotten(_Multi):
    def drop(self, weights):
        return weights


@wrong("MultiHeadAttention", says="dropout must be off in eval mode")
class DropoutAlways(_Multi):
    def drop(self, weights):
        return F.dropout(weights, self.dropout.p)


@wrong("MultiHeadAttention", says="no attention weight is ever dropped")
class DropoutOnScores(_Multi):
    def scores(self, q, k):
        return self.dropout(super().scores(q, k))

    def drop(self, weights):
        return weights


@wrong("MultiHeadAttention")
class Renormalised(_Multi):
    def drop(self, weights):
        kept = self.dropout(weights)
        return kept / kept.sum(-1, keepdim=True).clamp(min=1e-12) if self.training else weights


@wrong("MultiHeadAttention", says="a fully masked row must be zeros")
class NanRows(_Multi):
    def weights(self, scores, attn_mask):
        return scores.softmax(-1) if attn_mask is None else scores.masked_fill(~attn_mask, HIDDEN).softmax(-1)


@wrong("MultiHeadAttention", says="True means may attend")
class MaskInverted(_Multi):
    def weights(self, scores, attn_mask):
        return visible_softmax(scores, None if attn_mask is None else ~attn_mask)


@wrong("MultiHeadAttention")
class MaskOfTheFirstHead(_Multi):
    def weights(self, scores, attn_mask):
        if attn_mask is not None and attn_mask.dim() == 4:
            attn_mask = attn_mask[:, :1]
        return visible_softmax(scores, attn_mask)


@wrong("MultiHeadAttention")
class HeadAxisAdded(_Multi):
    """Takes every mask for one without an axis for heads."""

    def weights(self, scores, attn_mask):
        return visible_softmax(
            scores,
            attn_mask[:, None]
            if attn_mask is not None and attn_mask.dim() == 3
            else attn_mask[0, 0]
            if attn_mask is not None and attn_mask.dim() == 4
            else attn_mask,
        )


@wrong("MultiHeadAttention")
class SlicedInput(_Multi):
    """Each head reads its own slice of x instead of the whole of it."""

    def project(self, x, memory):
        def sliced(layer, x):
            block = torch.block_diag(
                *[torch.ones(x.shape[-1] // self.n_heads, x.shape[-1] // self.n_heads)] * self.n_heads
            )
            return F.linear(x, layer.weight * block, layer.bias)

        return sliced(self.w_q, x), sliced(self.w_k, memory), sliced(self.w_v, memory)


@wrong("MultiHeadAttention")
class RefusesNothing(_Multi):
    def __init__(self, d_model, n_heads, bias=True, dropout=0.0):
        super().__init__(d_model, n_heads if d_model % n_heads == 0 else 1, bias, dropout)


@wrong("MultiHeadAttention", says="return the output only")
class OutputAndWeights(_Multi):
    def forward(self, x, memory=None, attn_mask=None):
        return super().forward(x, memory, attn_mask), None


@wrong("MultiHeadAttention")
class Residual(_Multi):
    def forward(self, x, memory=None, attn_mask=None):
        return x + super().forward(x, memory, attn_mask)


@wrong("MultiHeadAttention")
class MemoryDetached(_Multi):
    def project(self, x, memory):
        return self.w_q(x), self.w_k(memory.detach()), self.w_v(memory)


# ---------------------------------------------------------------- right


@right("MultiHeadAttention", why="view, transpose, flatten")
class Plain(_Multi):
    pass


@right("MultiHeadAttention", why="one packed matrix, filled through load_weights")
class Packed(_Multi):
    def make(self, d_model, bias):
        self.w_qkv = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.w_o = nn.Linear(d_model, d_model, bias=bias)

    def load_weights(self, weights):
        for part in ("weight", "bias"):
            if f"w_q.{part}" in weights:
                packed = torch.cat([weights[f"w_{name}.{part}"] for name in "qkv"])
                getattr(self.w_qkv, part).copy_(packed)
                getattr(self.w_o, part).copy_(weights[f"w_o.{part}"])

    def project(self, x, memory):
        if memory is x:
            return self.w_qkv(x).chunk(3, -1)
        width = x.shape[-1]
        return self.w_qkv(x)[..., :width], *self.w_qkv(memory)[..., width:].chunk(2, -1)


@right("MultiHeadAttention", why="a loop over heads, each with its rows and its columns of the matrices")
class HeadByHead(_Multi):
    def forward(self, x, memory=None, attn_mask=None):
        memory = x if memory is None else memory
        width = x.shape[-1] // self.n_heads
        mask = torch.ones((), dtype=torch.bool) if attn_mask is None else attn_mask
        mask = mask.expand(len(x), self.n_heads, x.shape[1], memory.shape[1])
        out = 0 if self.w_o.bias is None else self.w_o.bias
        for h in range(self.n_heads):
            rows = slice(h * width, (h + 1) * width)
            q, k, v = (
                F.linear(tokens, layer.weight[rows], None if layer.bias is None else layer.bias[rows])
                for layer, tokens in ((self.w_q, x), (self.w_k, memory), (self.w_v, memory))
            )
            weights = self.dropout(visible_softmax(q @ k.mT * width**-0.5, mask[:, h]))
            out = out + weights @ v @ self.w_o.weight[:, rows].T
        return out


@right("MultiHeadAttention", why="einsum over four-axis parameters, load_weights")
class Einsum(_Multi):
    def make(self, d_model, bias):
        heads, width = self.n_heads, d_model // self.n_heads
        self.inward = nn.Parameter(torch.zeros(3, heads, width, d_model))
        self.outward = nn.Parameter(torch.zeros(d_model, heads, width))
        self.offsets = nn.Parameter(torch.zeros(3, heads, width)) if bias else None
        self.offset = nn.Parameter(torch.zeros(d_model)) if bias else 0.0

    def load_weights(self, weights):
        self.inward.copy_(torch.stack([weights[f"w_{n}.weight"] for n in "qkv"]).view_as(self.inward))
        self.outward.copy_(weights["w_o.weight"].view_as(self.outward))
        if self.offsets is not None:
            self.offsets.copy_(torch.stack([weights[f"w_{n}.bias"] for n in "qkv"]).view_as(self.offsets))
            self.offset.copy_(weights["w_o.bias"])

    def forward(self, x, memory=None, attn_mask=None):
        q, k, v = (
            torch.einsum("btm,hdm->bhtd", tokens, matrix)
            for tokens, matrix in zip((x, *[x if memory is None else memory] * 2), self.inward, strict=True)
        )
        if self.offsets is not None:
            q, k, v = (part + offset[:, None] for part, offset in zip((q, k, v), self.offsets, strict=True))
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / q.shape[-1] ** 0.5
        weights = self.dropout(visible_softmax(scores, attn_mask))
        return torch.einsum("bhqk,bhkd,mhd->bqm", weights, v, self.outward) + self.offset


@right("MultiHeadAttention", why="heads in the batch axis, baddbmm")
class HeadsInTheBatch(_Multi):
    def forward(self, x, memory=None, attn_mask=None):
        batch, heads = len(x), self.n_heads
        q, k, v = (self.split(part).flatten(0, 1) for part in self.project(x, x if memory is None else memory))
        empty = q.new_zeros(1, 1, 1).expand(len(q), q.shape[1], k.shape[1])
        scores = torch.baddbmm(empty, q, k.mT, beta=0, alpha=q.shape[-1] ** -0.5)
        mask = None if attn_mask is None else attn_mask.expand(batch, heads, *scores.shape[1:]).flatten(0, 1)
        out = self.dropout(visible_softmax(scores, mask)).bmm(v)
        return self.w_o(self.merge(out.unflatten(0, (batch, heads))))
