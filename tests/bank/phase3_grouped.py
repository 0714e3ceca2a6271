"""GroupedQueryAttention: wrong solutions and unusual right ones."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.bank import right, wrong
from tests.bank.attention_parts import HIDDEN, visible_softmax


class _Grouped(nn.Module):
    """Right as it stands; each wrong solution changes one method."""

    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        if n_heads % n_kv_heads:
            raise ValueError("n_kv_heads must divide n_heads")
        self.n_heads, self.n_kv_heads, self.d_head = n_heads, n_kv_heads, d_model // n_heads
        self.make(d_model, n_kv_heads * self.d_head)

    def make(self, d_model, narrow):
        self.w_q, self.w_k = nn.Linear(d_model, d_model), nn.Linear(d_model, narrow)
        self.w_v, self.w_o = nn.Linear(d_model, narrow), nn.Linear(d_model, d_model)

    def grow(self, x):
        return x.repeat_interleave(self.n_heads // self.n_kv_heads, 1)

    def scale(self):
        return self.d_head**-0.5

    def weights(self, scores, attn_mask):
        return visible_softmax(scores, attn_mask)

    def forward(self, x, attn_mask=None):
        q, k, v = (
            layer(x).unflatten(-1, (-1, self.d_head)).transpose(1, 2) for layer in (self.w_q, self.w_k, self.w_v)
        )
        k, v = self.grow(k), self.grow(v)
        out = self.weights(q @ k.mT * self.scale(), attn_mask) @ v
        return self.w_o(out.transpose(1, 2).flatten(2))


@wrong("GroupedQueryAttention", says="heads of a group must be neighbours")
class Repeated(_Grouped):
    def grow(self, x):
        return x.repeat(1, self.n_heads // self.n_kv_heads, 1, 1)


@wrong("GroupedQueryAttention", says="one key head for all: each group has its own")
class FirstForAll(_Grouped):
    def grow(self, x):
        return x[:, :1].repeat(1, self.n_heads, 1, 1)


@wrong("GroupedQueryAttention", says="key-value heads were averaged")
class Averaged(_Grouped):
    def grow(self, x):
        return x.mean(1, keepdim=True)


@wrong("GroupedQueryAttention", says="keys and values have n_kv_heads")
class FullWidth(_Grouped):
    def make(self, d_model, narrow):
        super().make(d_model, d_model)


@wrong("GroupedQueryAttention", says="the scale is √d_head")
class RootOfTheGroups(_Grouped):
    def scale(self):
        return (self.n_kv_heads * self.d_head) ** -0.5


@wrong("GroupedQueryAttention", says="the scale is √d_head")
class RootOfTheModel(_Grouped):
    def scale(self):
        return (self.n_heads * self.d_head) ** -0.5


@wrong("GroupedQueryAttention", says="the bias is missing")
class NoBias(_Grouped):
    def make(self, d_model, narrow):
        self.w_q, self.w_k = nn.Linear(d_model, d_model, bias=False), nn.Linear(d_model, narrow, bias=False)
        self.w_v, self.w_o = nn.Linear(d_model, narrow, bias=False), nn.Linear(d_model, d_model, bias=False)


@wrong("GroupedQueryAttention", says="the mask was ignored")
class NoMask(_Grouped):
    def weights(self, scores, attn_mask):
        return scores.softmax(-1)


@wrong("GroupedQueryAttention", says="a fully masked row must be zeros")
class NanRows(_Grouped):
    def weights(self, scores, attn_mask):
        return scores.softmax(-1) if attn_mask is None else scores.masked_fill(~attn_mask, HIDDEN).softmax(-1)


@wrong("GroupedQueryAttention")
class Backwards(_Grouped):
    def grow(self, x):
        return super().grow(x.flip(1))


@wrong("GroupedQueryAttention")
class AllHeadsKept(_Grouped):
    """Full keys are made and thrown away: the sizes of the layers are right, what they are used for is not."""

    def grow(self, x):
        return x[:, torch.arange(self.n_heads) % self.n_kv_heads]


@wrong("GroupedQueryAttention")
class RefusesHalf(_Grouped):
    def __init__(self, d_model, n_heads, n_kv_heads):
        nn.Module.__init__(self)
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        self.n_heads, self.n_kv_heads, self.d_head = n_heads, n_kv_heads, d_model // n_heads
        self.make(d_model, n_kv_heads * self.d_head)


@wrong("GroupedQueryAttention")
class RepeatedWithGradientOfOne(_Grouped):
    """Only the first copy of each key passes a gradient."""

    def grow(self, x):
        copies = super().grow(x.detach())
        copies[:, :: self.n_heads // self.n_kv_heads] = x
        return copies


@right("GroupedQueryAttention", why="repeat_interleave")
class Plain(_Grouped):
    pass


@right("GroupedQueryAttention", why="expand and reshape")
class Expanded(_Grouped):
    def grow(self, x):
        return x[:, :, None].expand(-1, -1, self.n_heads // self.n_kv_heads, -1, -1).flatten(1, 2)


@right("GroupedQueryAttention", why="no copies: groups of queries share an axis with one key")
class NoCopies(_Grouped):
    def forward(self, x, attn_mask=None):
        batch, seq_len, _ = x.shape
        groups = (self.n_kv_heads, self.n_heads // self.n_kv_heads)
        q = self.w_q(x).view(batch, seq_len, *groups, self.d_head)
        k, v = (layer(x).view(batch, seq_len, self.n_kv_heads, self.d_head) for layer in (self.w_k, self.w_v))
        scores = torch.einsum("bqgnd,bkgd->bgnqk", q, k) * self.d_head**-0.5
        weights = visible_softmax(scores.flatten(1, 2), attn_mask).unflatten(1, groups)
        return self.w_o(torch.einsum("bgnqk,bkgd->bqgnd", weights, v).flatten(2))


@right("GroupedQueryAttention", why="a loop over groups")
class GroupByGroup(_Grouped):
    def forward(self, x, attn_mask=None):
        size, width = self.n_heads // self.n_kv_heads, self.d_head
        mask = torch.ones((), dtype=torch.bool) if attn_mask is None else attn_mask
        mask = mask.expand(len(x), self.n_heads, x.shape[1], x.shape[1])
        q, k, v, found = self.w_q(x), self.w_k(x), self.w_v(x), []
        for head in range(self.n_heads):
            own, shared = (
                slice(head * width, (head + 1) * width),
                slice(head // size * width, (head // size + 1) * width),
            )
            scores = q[..., own] @ k[..., shared].mT / width**0.5
            found.append(visible_softmax(scores, mask[:, head]) @ v[..., shared])
        return self.w_o(torch.cat(found, -1))


@right("GroupedQueryAttention", why="one packed matrix, load_weights")
class Packed(_Grouped):
    def make(self, d_model, narrow):
        self.sizes = [d_model, narrow, narrow]
        self.inward, self.outward = nn.Linear(d_model, d_model + 2 * narrow), nn.Linear(d_model, d_model)

    def load_weights(self, weights):
        for part in ("weight", "bias"):
            getattr(self.inward, part).copy_(torch.cat([weights[f"w_{name}.{part}"] for name in "qkv"]))
            getattr(self.outward, part).copy_(weights[f"w_o.{part}"])

    def forward(self, x, attn_mask=None):
        parts = self.inward(x).split(self.sizes, -1)
        q, k, v = (part.unflatten(-1, (-1, self.d_head)).transpose(1, 2) for part in parts)
        weights = visible_softmax(q @ self.grow(k).mT / self.d_head**0.5, attn_mask)
        return F.linear((weights @ self.grow(v)).transpose(1, 2).flatten(2), self.outward.weight, self.outward.bias)
