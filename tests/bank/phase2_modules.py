"""SelfAttention: wrong solutions and unusual right ones."""

import functools
import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bank import right, wrong
from tests.bank.attention_parts import HIDDEN, blank_empty_slices, causal, visible_softmax


class _SelfAttention(nn.Module):
    """Right as it stands; each wrong solution changes one method."""

    def __init__(self, d_model, d_head, causal=False):
        super().__init__()
        self.causal = causal
        self.make(d_model, d_head)

    def make(self, d_model, d_head):
        self.w_q = nn.Linear(d_model, d_head)
        self.w_k = nn.Linear(d_model, d_head)
        self.w_v = nn.Linear(d_model, d_head)

    def project(self, x):
        return self.w_q(x), self.w_k(x), self.w_v(x)

    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])

    def mask(self, seq_len, attn_mask):
        if not self.causal:
            return attn_mask
        triangle = causal(seq_len, seq_len)
        return triangle if attn_mask is None else triangle & attn_mask

    def weights(self, scores, mask):
        return visible_softmax(scores, mask)

    def forward(self, x, attn_mask=None):
        q, k, v = self.project(x)
        return self.weights(self.scores(q, k), self.mask(x.shape[-2], attn_mask)) @ v


# ---------------------------------------------------------------- wrong


@wrong("SelfAttention", says="queries and keys share a matrix")
class KeysFromQueries(_SelfAttention):
    def project(self, x):
        return self.w_q(x), self.w_q(x), self.w_v(x)


@wrong("SelfAttention")
class OneModuleForBoth(_SelfAttention):
    def make(self, d_model, d_head):
        self.w_q = nn.Linear(d_model, d_head)
        self.w_k = self.w_q
        self.w_v = nn.Linear(d_model, d_head)


@wrong("SelfAttention")
class ValuesFromKeys(_SelfAttention):
    def project(self, x):
        return self.w_q(x), self.w_k(x), self.w_k(x)


@wrong("SelfAttention", says="the bias is missing")
class BiasOff(_SelfAttention):
    def make(self, d_model, d_head):
        self.w_q = nn.Linear(d_model, d_head, bias=False)
        self.w_k = nn.Linear(d_model, d_head, bias=False)
        self.w_v = nn.Linear(d_model, d_head, bias=False)


@wrong("SelfAttention", says="the bias is missing")
class BiasNotAdded(_SelfAttention):
    def project(self, x):
        return x @ self.w_q.weight.T, x @ self.w_k.weight.T, x @ self.w_v.weight.T


@wrong("SelfAttention")
class BiasOfValuesOff(_SelfAttention):
    def make(self, d_model, d_head):
        super().make(d_model, d_head)
        self.w_v = nn.Linear(d_model, d_head, bias=False)


@wrong("SelfAttention")
class ResidualFirstFeatures(_SelfAttention):
    def forward(self, x, attn_mask=None):
        out = super().forward(x, attn_mask)
        return out + x[..., : out.shape[-1]]


@wrong("SelfAttention")
class ResidualOfValues(_SelfAttention):
    def forward(self, x, attn_mask=None):
        return super().forward(x, attn_mask) + self.w_v(x)


@wrong("SelfAttention")
class ResidualOfInput(_SelfAttention):
    def forward(self, x, attn_mask=None):
        return super().forward(x, attn_mask) + x


@wrong("SelfAttention")
class OutputLayer(_SelfAttention):
    def make(self, d_model, d_head):
        super().make(d_model, d_head)
        self.w_o = nn.Linear(d_head, d_head)

    def forward(self, x, attn_mask=None):
        return self.w_o(super().forward(x, attn_mask))


@wrong("SelfAttention", says="values were not projected")
class ValuesAreInputs(_SelfAttention):
    def project(self, x):
        return self.w_q(x), self.w_k(x), x


@wrong("SelfAttention", says="values were not projected")
class ValuesAreFirstFeatures(_SelfAttention):
    def project(self, x):
        return self.w_q(x), self.w_k(x), x[..., : self.w_v.out_features]


@wrong("SelfAttention")
class CausalIgnored(_SelfAttention):
    def mask(self, seq_len, attn_mask):
        return attn_mask


@wrong("SelfAttention")
class AlwaysCausal(_SelfAttention):
    def mask(self, seq_len, attn_mask):
        triangle = causal(seq_len, seq_len)
        return triangle if attn_mask is None else triangle & attn_mask


@wrong("SelfAttention")
class CausalReplacedByMask(_SelfAttention):
    def mask(self, seq_len, attn_mask):
        return causal(seq_len, seq_len) if self.causal and attn_mask is None else attn_mask


@wrong("SelfAttention")
class MaskReplacedByCausal(_SelfAttention):
    def mask(self, seq_len, attn_mask):
        return causal(seq_len, seq_len) if self.causal else attn_mask


@wrong("SelfAttention")
class CausalOrMask(_SelfAttention):
    def mask(self, seq_len, attn_mask):
        both = self.causal and attn_mask is not None
        return causal(seq_len, seq_len) | attn_mask if both else super().mask(seq_len, attn_mask)


@wrong("SelfAttention")
class StrictMask(_SelfAttention):
    def mask(self, seq_len, attn_mask):
        mask = super().mask(seq_len, attn_mask)
        return mask & causal(seq_len, seq_len).tril(-1) if self.causal else mask


@wrong("SelfAttention")
class UpperTriangle(_SelfAttention):
    def mask(self, seq_len, attn_mask):
        if not self.causal:
            return attn_mask
        triangle = causal(seq_len, seq_len).T
        return triangle if attn_mask is None else triangle & attn_mask


@wrong("SelfAttention")
class MaskIgnored(_SelfAttention):
    def mask(self, seq_len, attn_mask):
        return super().mask(seq_len, None)


@wrong("SelfAttention")
class MaskInverted(_SelfAttention):
    def mask(self, seq_len, attn_mask):
        return super().mask(seq_len, None if attn_mask is None else ~attn_mask)


@wrong("SelfAttention")
class Unscaled(_SelfAttention):
    def scores(self, q, k):
        return q @ k.mT


@wrong("SelfAttention", says="the queries have no influence")
class RunningMean(_SelfAttention):
    def weights(self, scores, mask):
        return visible_softmax(scores * 0, mask)


@wrong("SelfAttention", says="the queries have no influence")
class MeanOfVisibleValues(_SelfAttention):
    def weights(self, scores, mask):
        visible = torch.ones_like(scores) if mask is None else mask.expand_as(scores).to(scores.dtype)
        return visible / visible.sum(-1, keepdim=True).clamp(min=1)


@wrong("SelfAttention", says="the scale is √d_head")
class RootOfModelWidth(_SelfAttention):
    def scores(self, q, k):
        return q @ k.mT / self.w_q.in_features**0.5


@wrong("SelfAttention")
class DividedByHeadWidth(_SelfAttention):
    def scores(self, q, k):
        return q @ k.mT / k.shape[-1]


@wrong("SelfAttention")
class SoftmaxOverQueries(_SelfAttention):
    def weights(self, scores, mask):
        return visible_softmax(scores, mask, dim=-2)


@wrong("SelfAttention")
class MaskAfterSoftmax(_SelfAttention):
    def weights(self, scores, mask):
        return scores.softmax(-1) if mask is None else scores.softmax(-1) * mask


@wrong("SelfAttention")
class FillMinusTen(_SelfAttention):
    def weights(self, scores, mask):
        return (
            scores.softmax(-1)
            if mask is None
            else blank_empty_slices(scores.masked_fill(~mask, -10.0).softmax(-1), mask)
        )


@wrong("SelfAttention")
class NanRow(_SelfAttention):
    def weights(self, scores, mask):
        return scores.softmax(-1) if mask is None else scores.masked_fill(~mask, HIDDEN).softmax(-1)


@wrong("SelfAttention")
class FirstMaskKept(_SelfAttention):
    triangle = None

    def mask(self, seq_len, attn_mask):
        if self.causal and self.triangle is None:
            self.triangle = causal(seq_len, seq_len)
        if not self.causal:
            return attn_mask
        return self.triangle if attn_mask is None else self.triangle & attn_mask


@wrong("SelfAttention")
class DetachedKeys(_SelfAttention):
    def project(self, x):
        return self.w_q(x), self.w_k(x.detach()), self.w_v(x)


@wrong("SelfAttention")
class OutputAndWeights(_SelfAttention):
    def forward(self, x, attn_mask=None):
        q, k, v = self.project(x)
        weights = self.weights(self.scores(q, k), self.mask(x.shape[-2], attn_mask))
        return weights @ v, weights


# ---------------------------------------------------------------- right


@right("SelfAttention", why="three nn.Linear, the mask of both kinds joined with and")
class PlainSelfAttention(_SelfAttention):
    pass


@right("SelfAttention", why="one fused nn.Linear filled through load_weights")
class FusedSelfAttention(_SelfAttention):
    def make(self, d_model, d_head):
        self.w_qkv = nn.Linear(d_model, 3 * d_head)

    def load_weights(self, weights):
        with torch.no_grad():
            self.w_qkv.weight.copy_(torch.cat([weights[f"w_{part}.weight"] for part in "qkv"]))
            self.w_qkv.bias.copy_(torch.cat([weights[f"w_{part}.bias"] for part in "qkv"]))

    def project(self, x):
        return self.w_qkv(x).chunk(3, dim=-1)


@right("SelfAttention", why="F.linear on the weights of named layers; the biases are added by hand")
class LinearFunctions(_SelfAttention):
    def project(self, x):
        layers = (self.w_q, self.w_k, self.w_v)
        return [F.linear(x, layer.weight).add_(layer.bias) for layer in layers]


@right("SelfAttention", why="bare parameters stored transposed, x @ w + b, filled through load_weights")
class TransposedStorage(_SelfAttention):
    def make(self, d_model, d_head):
        for part in "qkv":
            self.register_parameter(part, nn.Parameter(torch.randn(d_model, d_head)))
            self.register_parameter(f"{part}_bias", nn.Parameter(torch.zeros(d_head)))

    def load_weights(self, weights):
        for part in "qkv":
            setattr(self, part, nn.Parameter(weights[f"w_{part}.weight"].detach().clone().t()))
            getattr(self, f"{part}_bias").data.copy_(weights[f"w_{part}.bias"])

    def project(self, x):
        return tuple(x @ getattr(self, part) + getattr(self, f"{part}_bias") for part in "qkv")


@right("SelfAttention", why="one array whose last row is the bias: a column of ones is added to x")
class BiasAsRow(_SelfAttention):
    def make(self, d_model, d_head):
        self.matrix = nn.Parameter(torch.randn(3, d_model + 1, d_head))

    def load_weights(self, weights):
        layers = [torch.cat([weights[f"w_{n}.weight"].T, weights[f"w_{n}.bias"][None]]) for n in "qkv"]
        self.matrix.data = torch.stack(layers).to(self.matrix.dtype).detach()

    def project(self, x):
        ones = x.new_ones(*x.shape[:-1], 1)
        return torch.einsum("btm,pmd->pbtd", torch.cat([x, ones], dim=-1), self.matrix).unbind(0)


@right("SelfAttention", why="1×1 convolutions over the transposed sentence")
class Convolutions(_SelfAttention):
    def make(self, d_model, d_head):
        self.layers = nn.ModuleDict({part: nn.Conv1d(d_model, d_head, kernel_size=1) for part in "qkv"})

    def load_weights(self, weights):
        for part, layer in self.layers.items():
            layer.load_state_dict(
                {"weight": weights[f"w_{part}.weight"].unsqueeze(-1), "bias": weights[f"w_{part}.bias"]}
            )

    def project(self, x):
        return [layer(x.mT).mT for layer in self.layers.values()]


@functools.lru_cache
def _triangle(seq_len):
    return torch.arange(seq_len)[:, None] >= torch.arange(seq_len)


@right("SelfAttention", why="query by query; the causal table is cached per length outside the module")
class QueryByQuery(_SelfAttention):
    def forward(self, x, attn_mask=None):
        seq_len = x.shape[1]
        mask = _triangle(seq_len) if self.causal else torch.ones(seq_len, seq_len, dtype=torch.bool)
        mask = (mask if attn_mask is None else mask & attn_mask).expand(len(x), -1, -1)
        keys, values = self.w_k(x), self.w_v(x)
        out = []
        for t in range(seq_len):
            query = self.w_q(x[:, t])
            scores = torch.bmm(keys, query[:, :, None]).squeeze(2) * query.shape[-1] ** -0.5
            weights = scores.masked_fill(~mask[:, t], HIDDEN).softmax(1).nan_to_num(0.0)
            out.append((weights[:, :, None] * values).sum(1))
        return torch.stack(out, dim=1)
