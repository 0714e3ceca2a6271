"""MultiHeadAttention and GroupedQueryAttention: what a hurried student writes, and what an expert would."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.bank import right, wrong
from tests.bank.attention_parts import visible_softmax
from tests.bank.phase3_grouped import _Grouped
from tests.bank.phase3_multi_head import _Multi

# ---------------------------------------------------------------- MultiHeadAttention

PROJECTED = "x is projected before it is cut: w_q, w_k, w_v"


@wrong("MultiHeadAttention", says="keep n_heads as an attribute: others ask the layer for it")
class CountUnderAnotherName(_Multi):
    def __init__(self, d_model, n_heads, bias=True, dropout=0.0):
        super().__init__(d_model, n_heads, bias, dropout)
        self.h = self.n_heads
        del self.n_heads

    def split(self, x):
        return x.view(*x.shape[:2], self.h, -1).transpose(1, 2)


@wrong("MultiHeadAttention", says=PROJECTED)
class NotProjected(_Multi):
    def project(self, x, memory):
        return x, memory, memory


@wrong("MultiHeadAttention", says=PROJECTED)
class OnlyValuesProjected(_Multi):
    def project(self, x, memory):
        return x, memory, self.w_v(memory)


@wrong("MultiHeadAttention", says="there is no layer of the name w_o")
class OutputLayerWithAnotherName(_Multi):
    def make(self, d_model, bias):
        super().make(d_model, bias)
        self.w_out = self.w_o
        del self.w_o

    def last(self, merged):
        return self.w_out(merged)


@wrong("MultiHeadAttention", says="no attention weight is ever dropped")
class DropoutOnTheQueries(_Multi):
    def project(self, x, memory):
        q, k, v = super().project(x, memory)
        return self.dropout(q), k, v

    def drop(self, weights):
        return weights


@wrong("MultiHeadAttention", says="dropout belongs on the weights, before they meet the values")
class DropoutOnTheValues(_Multi):
    def project(self, x, memory):
        q, k, v = super().project(x, memory)
        return q, k, self.dropout(v)

    def drop(self, weights):
        return weights


@wrong("MultiHeadAttention", says="True means may attend")
class MaskMeansForbidden(_Multi):
    def weights(self, scores, attn_mask):
        return visible_softmax(scores, None if attn_mask is None else ~attn_mask)


@wrong("MultiHeadAttention")
class MaskAdded(_Multi):
    """A bool mask is added as if it held numbers."""

    def weights(self, scores, attn_mask):
        return (scores if attn_mask is None else scores + attn_mask).softmax(-1)


@wrong("MultiHeadAttention")
class MemoryOnceForAll(_Multi):
    """The memory of the first call is kept."""

    def forward(self, x, memory=None, attn_mask=None):
        if memory is not None and not hasattr(self, "kept"):
            self.kept = memory.detach()
        return super().forward(x, memory if memory is None else self.kept, attn_mask)


@wrong("MultiHeadAttention")
class SmallHeadsOnly(_Multi):
    """One small matrix that all heads share."""

    def make(self, d_model, bias):
        d_head = d_model // self.n_heads
        for name in ("w_q", "w_k", "w_v"):
            setattr(self, name, nn.Linear(d_model, d_head, bias=bias))
        self.w_o = nn.Linear(d_model, d_model, bias=bias)

    def split(self, x):
        return x[:, None].expand(-1, self.n_heads, -1, -1)


@right("MultiHeadAttention", why="n_heads is a property, the layers a ModuleDict's by name")
class CountAsProperty(nn.Module):
    def __init__(self, d_model, n_heads, bias=True, dropout=0.0):
        super().__init__()
        if d_model % n_heads != 0:
            raise ValueError(f"{d_model=} {n_heads=}")
        self._count, self.p = n_heads, dropout
        for name in "qkvo":
            self.add_module(f"w_{name}", nn.Linear(d_model, d_model, bias))

    @property
    def n_heads(self):
        return self._count

    def forward(self, x, memory=None, attn_mask=None):
        memory = memory if memory is not None else x
        heads = [torch.stack(w(part).chunk(self._count, -1), 1)
                 for w, part in ((self.w_q, x), (self.w_k, memory), (self.w_v, memory))]  # fmt: skip
        q, k, v = heads
        weights = visible_softmax(torch.einsum("bhqd,bhkd->bhqk", q, k) / q.size(-1) ** 0.5, attn_mask)
        mixed = torch.einsum("bhqk,bhkd->bqhd", F.dropout(weights, self.p, self.training), v)
        return self.w_o(mixed.reshape(*x.shape[:2], -1))


@right("MultiHeadAttention", why="the output as a sum over heads, bias once")
class SumOfHeads(_Multi):
    def merge(self, heads):
        return heads

    def last(self, heads):
        blocks = self.w_o.weight.unflatten(1, (self.n_heads, -1))
        out = torch.einsum("bhqd,mhd->bqm", heads, blocks)
        return out if self.w_o.bias is None else out + self.w_o.bias


@right("MultiHeadAttention", why="the scale goes to q and k by halves, dropout by a mask of its own")
class ScaledByHalves(_Multi):
    def scores(self, q, k):
        root = q.shape[-1] ** -0.25
        return (q * root) @ (k * root).mT

    def drop(self, weights):
        p = self.dropout.p
        if not self.training or not p:
            return weights
        return weights * (torch.rand_like(weights) >= p) / (1 - p)


# ---------------------------------------------------------------- GroupedQueryAttention

REPEAT = "keys need as many heads as queries: repeat each n_heads / n_kv_heads times"


@wrong("GroupedQueryAttention", says=REPEAT)
class NotRepeated(_Grouped):
    def grow(self, x):
        return x


@wrong("GroupedQueryAttention", says=REPEAT)
class RepeatedByTheWrongNumber(_Grouped):
    def grow(self, x):
        return x.repeat_interleave(self.n_kv_heads, 1)


@wrong("GroupedQueryAttention", says=REPEAT)
class RepeatedInTheBatch(_Grouped):
    def grow(self, x):
        return x.repeat_interleave(self.n_heads // self.n_kv_heads, 0)


@wrong("GroupedQueryAttention", says="True means may attend")
class MaskMeansForbiddenHere(_Grouped):
    def weights(self, scores, attn_mask):
        return visible_softmax(scores, None if attn_mask is None else ~attn_mask)


@wrong("GroupedQueryAttention", says="w_o was not used")
class OutputForgotten(_Grouped):
    def forward(self, x, attn_mask=None):
        layer, self.w_o = self.w_o, nn.Identity()
        try:
            return super().forward(x, attn_mask)
        finally:
            self.w_o = layer


@wrong("GroupedQueryAttention")
class KeysNeighboursValuesNot(_Grouped):
    """Keys are repeated rightly, values with repeat."""

    def forward(self, x, attn_mask=None):
        q, k, v = (
            layer(x).unflatten(-1, (-1, self.d_head)).transpose(1, 2) for layer in (self.w_q, self.w_k, self.w_v)
        )
        out = self.weights(q @ self.grow(k).mT * self.scale(), attn_mask)
        return self.w_o((out @ v.repeat(1, q.shape[1] // v.shape[1], 1, 1)).transpose(1, 2).flatten(2))


@wrong("GroupedQueryAttention", says="keys and values have n_kv_heads")
class ValuesFullWidth(_Grouped):
    def make(self, d_model, narrow):
        super().make(d_model, narrow)
        self.w_v = nn.Linear(d_model, d_model)


@right("GroupedQueryAttention", why="indexing with h // group")
class Indexed(_Grouped):
    def grow(self, x):
        return x[:, torch.arange(self.n_heads) // (self.n_heads // self.n_kv_heads)]


@right("GroupedQueryAttention", why="a loop over query heads")
class HeadByHead(_Grouped):
    def grow(self, x):
        group = self.n_heads // self.n_kv_heads
        return torch.stack([x[:, head // group] for head in range(self.n_heads)], dim=1)


@right("GroupedQueryAttention", why="repeat, then the heads put in order")
class RepeatedAndSorted(_Grouped):
    def grow(self, x):
        group = self.n_heads // self.n_kv_heads
        return x.repeat(1, group, 1, 1).unflatten(1, (group, self.n_kv_heads)).transpose(1, 2).flatten(1, 2)
