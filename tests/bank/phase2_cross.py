"""CrossAttention: wrong solutions and unusual right ones."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bank import right, wrong
from tests.bank.attention_parts import HIDDEN, causal, visible_softmax


class _CrossAttention(nn.Module):
    """Right as it stands; each wrong solution changes one method."""

    def __init__(self, d_model, d_memory, d_head):
        super().__init__()
        self.make(d_model, d_memory, d_head)

    def make(self, d_model, d_memory, d_head):
        self.w_q = nn.Linear(d_model, d_head)
        self.w_k = nn.Linear(d_memory, d_head)
        self.w_v = nn.Linear(d_memory, d_head)

    def project(self, x, memory):
        return self.w_q(x), self.w_k(memory), self.w_v(memory)

    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])

    def weights(self, scores, attn_mask):
        return visible_softmax(scores, attn_mask)

    def forward(self, x, memory, attn_mask=None):
        q, k, v = self.project(x, memory)
        return self.weights(self.scores(q, k), attn_mask) @ v


# ---------------------------------------------------------------- wrong


@wrong("CrossAttention", says="attention weights are missing")
class MeanOfMemory(_CrossAttention):
    def weights(self, scores, attn_mask):
        return visible_softmax(torch.zeros_like(scores), attn_mask)


@wrong("CrossAttention", says="attention weights are missing")
class MeanBeforeProjection(_CrossAttention):
    def forward(self, x, memory, attn_mask=None):
        shape = (len(x), x.shape[1], memory.shape[1])
        visible = torch.ones(shape) if attn_mask is None else attn_mask.expand(shape)
        visible = visible.to(memory.dtype)
        count = visible.sum(-1, keepdim=True)
        return self.w_v(visible @ memory / count.clamp(min=1)) * (count > 0)


@wrong("CrossAttention")
class MeanOfWholeMemory(_CrossAttention):
    def forward(self, x, memory, attn_mask=None):
        return self.w_v(memory.mean(1, keepdim=True)).expand(-1, x.shape[1], -1)


@wrong("CrossAttention")
class SumOfMemory(_CrossAttention):
    def weights(self, scores, attn_mask):
        return torch.ones_like(scores) if attn_mask is None else attn_mask.expand_as(scores).to(scores.dtype)


@wrong("CrossAttention", says="the memory may be seen whole")
class CausalFromTheStart(_CrossAttention):
    def weights(self, scores, attn_mask):
        triangle = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        return visible_softmax(scores, triangle if attn_mask is None else triangle & attn_mask)


@wrong("CrossAttention", says="the memory may be seen whole")
class CausalToTheEnd(_CrossAttention):
    def weights(self, scores, attn_mask):
        triangle = causal(*scores.shape[-2:])
        return visible_softmax(scores, triangle if attn_mask is None else triangle & attn_mask)


@wrong("CrossAttention")
class CausalUnlessMasked(_CrossAttention):
    def weights(self, scores, attn_mask):
        return visible_softmax(scores, causal(*scores.shape[-2:]) if attn_mask is None else attn_mask)


@wrong("CrossAttention")
class CrossUnscaled(_CrossAttention):
    def scores(self, q, k):
        return q @ k.mT


@wrong("CrossAttention")
class RootOfMemoryWidth(_CrossAttention):
    def scores(self, q, k):
        return q @ k.mT / math.sqrt(self.w_k.in_features)


@wrong("CrossAttention")
class CrossMaskInverted(_CrossAttention):
    def weights(self, scores, attn_mask):
        return visible_softmax(scores, None if attn_mask is None else ~attn_mask)


@wrong("CrossAttention")
class CrossMaskIgnored(_CrossAttention):
    def weights(self, scores, attn_mask):
        return scores.softmax(-1)


@wrong("CrossAttention")
class CrossMaskAfterSoftmax(_CrossAttention):
    def weights(self, scores, attn_mask):
        return scores.softmax(-1) if attn_mask is None else scores.softmax(-1).masked_fill(~attn_mask, 0.0)


@wrong("CrossAttention")
class CrossSoftmaxOverQueries(_CrossAttention):
    def weights(self, scores, attn_mask):
        return visible_softmax(scores, attn_mask, dim=-2)


@wrong("CrossAttention")
class CrossNanRow(_CrossAttention):
    def weights(self, scores, attn_mask):
        return scores.softmax(-1) if attn_mask is None else scores.masked_fill(~attn_mask, HIDDEN).softmax(-1)


@wrong("CrossAttention")
class QueryAdded(_CrossAttention):
    def forward(self, x, memory, attn_mask=None):
        return super().forward(x, memory, attn_mask) + self.w_q(x)


@wrong("CrossAttention")
class FirstFeaturesAdded(_CrossAttention):
    def forward(self, x, memory, attn_mask=None):
        out = super().forward(x, memory, attn_mask)
        return out + x[..., : out.shape[-1]]


@wrong("CrossAttention")
class InputAdded(_CrossAttention):
    def forward(self, x, memory, attn_mask=None):
        return x + super().forward(x, memory, attn_mask)


@wrong("CrossAttention", says="w_v was not used")
class KeysAsValues(_CrossAttention):
    def project(self, x, memory):
        keys = self.w_k(memory)
        return self.w_q(x), keys, keys


@wrong("CrossAttention")
class MemoryAsValues(_CrossAttention):
    def project(self, x, memory):
        return self.w_q(x), self.w_k(memory), memory


@wrong("CrossAttention")
class QueriesFromMemory(_CrossAttention):
    def make(self, d_model, d_memory, d_head):
        self.w_q = nn.Linear(d_memory, d_head)
        self.w_k = nn.Linear(d_model, d_head)
        self.w_v = nn.Linear(d_model, d_head)

    def project(self, x, memory):
        return self.w_q(memory), self.w_k(x), self.w_v(x)


@wrong("CrossAttention")
class MemoryWidthIgnored(_CrossAttention):
    def make(self, d_model, d_memory, d_head):
        super().make(d_model, d_model, d_head)


@wrong("CrossAttention")
class CrossBiasOff(_CrossAttention):
    def make(self, d_model, d_memory, d_head):
        self.w_q = nn.Linear(d_model, d_head, bias=False)
        self.w_k = nn.Linear(d_memory, d_head, bias=False)
        self.w_v = nn.Linear(d_memory, d_head, bias=False)


@wrong("CrossAttention")
class MemoryDetached(_CrossAttention):
    def project(self, x, memory):
        return super().project(x, memory.detach())


@wrong("CrossAttention")
class KeysOfFirstMemory(_CrossAttention):
    """Keeps the projected memory, as a decoder would between steps, and never renews it."""

    kept = None

    def project(self, x, memory):
        if self.kept is None:
            self.kept = self.w_k(memory), self.w_v(memory)
        return self.w_q(x), *self.kept


# ---------------------------------------------------------------- right


@right("CrossAttention", why="three nn.Linear")
class PlainCrossAttention(_CrossAttention):
    pass


@right("CrossAttention", why="fused key-value matrix, filled through load_weights")
class FusedKeyValue(_CrossAttention):
    def make(self, d_model, d_memory, d_head):
        self.w_q = nn.Linear(d_model, d_head)
        self.w_kv = nn.Linear(d_memory, 2 * d_head)

    def load_weights(self, weights):
        fused = {name: torch.cat([weights[f"w_k.{name}"], weights[f"w_v.{name}"]]) for name in ("weight", "bias")}
        self.w_kv.load_state_dict(fused)
        self.w_q.load_state_dict({name: weights[f"w_q.{name}"] for name in ("weight", "bias")})

    def project(self, x, memory):
        return self.w_q(x), *self.w_kv(memory).tensor_split(2, dim=-1)


@right("CrossAttention", why="projected memory computed first, example by example")
class MemoryFirst(_CrossAttention):
    def forward(self, x, memory, attn_mask=None):
        keys, values = self.w_k(memory), self.w_v(memory)
        mask = torch.ones((), dtype=torch.bool) if attn_mask is None else attn_mask
        mask = mask.broadcast_to(len(x), x.shape[1], memory.shape[1])
        out = []
        for query, key, value, seen in zip(self.w_q(x), keys, values, mask, strict=True):
            scores = torch.addmm(key.new_zeros(()), query, key.T, alpha=1 / math.sqrt(key.shape[-1]))
            weights = scores.masked_fill(seen.logical_not(), HIDDEN).softmax(-1).nan_to_num(0.0)
            out.append(weights.mm(value))
        return torch.stack(out)


@right("CrossAttention", why="the memory is never projected: keys fold into the query, values into the output")
class FoldedProjections(_CrossAttention):
    def forward(self, x, memory, attn_mask=None):
        q = self.w_q(x)
        scores = (q @ self.w_k.weight) @ memory.mT + (q @ self.w_k.bias)[..., None]
        weights = visible_softmax(scores / math.sqrt(q.shape[-1]), attn_mask)
        return F.linear(weights @ memory, self.w_v.weight) + weights.sum(-1, keepdim=True) * self.w_v.bias


@right("CrossAttention", why="bare parameters under other names and transposed, einsum, load_weights")
class EinsumCross(_CrossAttention):
    def make(self, d_model, d_memory, d_head):
        self.query = nn.Parameter(torch.randn(d_model, d_head))
        self.memory = nn.Parameter(torch.randn(2, d_memory, d_head))
        self.offsets = nn.Parameter(torch.zeros(3, d_head))

    @torch.no_grad()
    def load_weights(self, weights):
        self.query.copy_(weights["w_q.weight"].T)
        self.memory.copy_(torch.stack([weights["w_k.weight"].T, weights["w_v.weight"].T]))
        self.offsets.copy_(torch.stack([weights[f"w_{part}.bias"] for part in "qkv"]))

    def project(self, x, memory):
        q = torch.einsum("btm,md->btd", x, self.query) + self.offsets[0]
        k, v = torch.einsum("bsm,pmd->pbsd", memory, self.memory) + self.offsets[1:, None, None]
        return q, k, v


@right("CrossAttention", why="keys in two halves, the weights normalised at the very end")
class HalvesOfMemory(_CrossAttention):
    def forward(self, x, memory, attn_mask=None):
        q = self.w_q(x) * self.w_q.out_features**-0.5
        shape = (len(x), x.shape[1], memory.shape[1])
        hidden = torch.zeros(shape, dtype=torch.bool) if attn_mask is None else ~attn_mask.expand(shape)
        scores = (q @ self.w_k(memory).mT).masked_fill(hidden, HIDDEN)
        exps = (scores - scores.detach().amax(-1, keepdim=True).nan_to_num(neginf=0.0)).exp()
        half = (memory.shape[1] + 1) // 2
        out = exps[..., :half] @ self.w_v(memory[:, :half]) + exps[..., half:] @ self.w_v(memory[:, half:])
        total = exps.sum(-1, keepdim=True)
        return out / total.masked_fill(total == 0, 1.0)
