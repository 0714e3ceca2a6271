"""Modules of phase 2, written after reading the checks: dropout, memory between calls, masks, dtypes."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.bank import wrong
from tests.bank.attention_parts import causal, visible_softmax

# MaskedSelfAttention ------------------------------------------------------------------------------------------------


class _Masked(nn.Module):
    """Right in every part; each heir spoils one."""

    def __init__(self, d_model, max_len, bias=False, dropout=0.2):
        super().__init__()
        self.c_attn = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.max_len, self.p = max_len, dropout

    def visible(self, x, pad_mask):
        past = causal(x.shape[1], x.shape[1])
        return past if pad_mask is None else past & pad_mask[:, None, :]

    def drop(self, weights):
        return F.dropout(weights, self.p, self.training)

    def mix(self, weights, v):
        return self.drop(weights) @ v

    def scores(self, q, k):
        return q @ k.mT / math.sqrt(q.shape[-1])

    def forward(self, x, pad_mask=None):
        if x.shape[1] > self.max_len:
            raise ValueError("longer than max_len")
        q, k, v = self.c_attn(x).chunk(3, -1)
        return self.mix(visible_softmax(self.scores(q, k), self.visible(x, pad_mask)), v)


@wrong("MaskedSelfAttention", says=None)
class DropsWholeRows(_Masked):
    """Breaks "dropout on the weights": one draw per query drops all of its weights at once."""

    def mix(self, weights, v):
        return weights @ v * F.dropout(torch.ones_like(weights[..., :1]), self.p, self.training)


@wrong("MaskedSelfAttention", says=None)
class DropsTokensOfTheOutput(_Masked):
    """Breaks "dropout on the weights": nn.Dropout1d on the output blanks whole tokens."""

    def __init__(self, d_model, max_len, bias=False, dropout=0.2):
        super().__init__(d_model, max_len, bias, dropout)
        self.tokens = nn.Dropout1d(dropout)

    def mix(self, weights, v):
        return self.tokens(weights @ v)


@wrong("MaskedSelfAttention", says=None)
class DropsTheSameEveryTime(_Masked):
    """Breaks rule 10 (a different second call): the generator of the dropout is made anew in every call."""

    def drop(self, weights):
        if not self.training:
            return weights
        generator = torch.Generator().manual_seed(7)
        kept = torch.rand(weights.shape, generator=generator, dtype=weights.dtype) >= self.p
        return weights * kept / (1 - self.p)


@wrong("MaskedSelfAttention", says=None)
class KeepsItsFirstPattern(_Masked):
    """Breaks rule 6 (no memory): the first pattern of dropout stays for all later calls of that size."""

    pattern = None

    def drop(self, weights):
        if not self.training:
            return weights
        if self.pattern is None or self.pattern.shape != weights.shape:
            self.pattern = torch.rand_like(weights) >= self.p
        return weights * self.pattern / (1 - self.p)


@wrong("MaskedSelfAttention", says=None)
class SeedsTheWorldInTraining(_Masked):
    """Breaks rule 6: sets the global seed, so that every call drops the same and all later chance is fixed."""

    def drop(self, weights):
        if self.training:
            torch.manual_seed(0)
        return F.dropout(weights, self.p, self.training)


@wrong("MaskedSelfAttention", says=None)
class DropsInPlace(_Masked):
    """Breaks rule 5: in training softmax's own result is overwritten, and the backward pass raises."""

    def forward(self, x, pad_mask=None):
        if x.shape[1] > self.max_len:
            raise ValueError("longer than max_len")
        q, k, v = self.c_attn(x).chunk(3, -1)
        seen = self.visible(x, pad_mask)
        some = seen.any(-1, keepdim=True)
        weights = self.scores(q, k).masked_fill(~(seen | ~some), float("-inf")).softmax(-1)
        return F.dropout(weights, self.p, self.training, inplace=True) @ v * some


@wrong("MaskedSelfAttention", says=None)
class DropsOutsideTheGraph(_Masked):
    """Breaks rule 5: in training no gradient reaches queries and keys."""

    def drop(self, weights):
        if not self.training:
            return weights
        with torch.no_grad():
            return F.dropout(weights, self.p)


@wrong("MaskedSelfAttention", says=None)
class SeedsTheWorldWhenBuilt(_Masked):
    """Breaks rule 6: the constructor sets the global seed."""

    def __init__(self, d_model, max_len, bias=False, dropout=0.2):
        torch.manual_seed(0)
        super().__init__(d_model, max_len, bias, dropout)


# SelfAttention ------------------------------------------------------------------------------------------------------


class _Self(nn.Module):
    def __init__(self, d_model, d_head, causal=False):
        super().__init__()
        self.w_q, self.w_k, self.w_v = (nn.Linear(d_model, d_head) for _ in range(3))
        self.causal = causal

    def visible(self, x, attn_mask):
        if not self.causal:
            return attn_mask
        past = causal(x.shape[1], x.shape[1])
        return past if attn_mask is None else past & attn_mask

    def weights(self, scores, seen):
        return visible_softmax(scores, seen)

    def forward(self, x, attn_mask=None):
        scores = self.w_q(x) @ self.w_k(x).mT / math.sqrt(self.w_q.out_features)
        return self.weights(scores, self.visible(x, attn_mask)) @ self.w_v(x)


@wrong("SelfAttention", says=None)
class KeepsTheMaskIfCausal(_Self):
    """Breaks rule 6 (no memory): with causal=True the joined mask of the first call stays for that length."""

    seen = None

    def visible(self, x, attn_mask):
        if not self.causal:
            return attn_mask
        if self.seen is None or self.seen.shape[-1] != x.shape[1]:
            self.seen = super().visible(x, attn_mask)
        return self.seen


@wrong("SelfAttention", says=None)
class UsesTheLastMaskAgain(_Self):
    """Breaks rule 6 (no memory): a call without a mask takes that of the call before."""

    last = None

    def visible(self, x, attn_mask):
        if attn_mask is None and self.last is not None and self.last.shape[-1] == x.shape[1]:
            attn_mask = self.last
        self.last = attn_mask
        return super().visible(x, attn_mask)


@wrong("SelfAttention", says=None)
class BiasFromNumpy(_Self):
    """Breaks rule 4: with any mask, causal too, float32 scores turn into float64, and the product with v raises."""

    def weights(self, scores, seen):
        if seen is None:
            return scores.softmax(-1)
        return (scores + torch.from_numpy(np.where(seen.numpy(), 0.0, -1e9))).softmax(-1) * seen


@wrong("SelfAttention", says=None)
class TakesASquareMaskForPadding(_Self):
    """Breaks "the mask broadcasts to (batch, seq_len, seq_len)": if batch = seq_len, one table hides per example."""

    def visible(self, x, attn_mask):
        if attn_mask is not None and attn_mask.shape == x.shape[:2]:
            attn_mask = attn_mask[:, None, :]
        return super().visible(x, attn_mask)


@wrong("SelfAttention", says=None)
class IndexesTheMaskByExample(_Self):
    """Breaks rule 7 (each axis alone as 1): a mask (1, seq_len, seq_len) has no second example to index."""

    def forward(self, x, attn_mask=None):
        return torch.cat([self.one(x[b : b + 1], b, attn_mask) for b in range(len(x))])

    def one(self, x, b, attn_mask):
        if attn_mask is not None and attn_mask.dim() == 3 and attn_mask.shape[:2] != (1, 1):
            attn_mask = attn_mask[b]
        return super().forward(x, attn_mask)


@wrong("SelfAttention", says=None)
class SetsTheSeed(_Self):
    """Breaks rule 6: the constructor sets the global seed."""

    def __init__(self, d_model, d_head, causal=False):
        torch.manual_seed(42)
        super().__init__(d_model, d_head, causal)


@wrong("SelfAttention", says=None)
class TrainsItself(_Self):
    """Breaks "in train mode": the learner's own train(data, epochs) hides the one of nn.Module."""

    def train(self, data, epochs):
        return [self(data) for _ in range(epochs)]


@wrong("SelfAttention", says=None)
class ParametersAreADict(_Self):
    """Breaks nn.Module: an attribute hides parameters(), so nothing could ever train it."""

    def __init__(self, d_model, d_head, causal=False):
        super().__init__(d_model, d_head, causal)
        self.parameters = {"d_model": d_model, "d_head": d_head}


@wrong("SelfAttention", says=None)
class LazyAndNeverFilled(_Self):
    """Breaks "weights are set through load_weights": nothing is loaded, and lazy layers have no size yet."""

    def __init__(self, d_model, d_head, causal=False):
        nn.Module.__init__(self)
        self.w_q, self.w_k, self.w_v = (nn.LazyLinear(d_head) for _ in range(3))
        self.causal = causal

    def load_weights(self, weights):
        self.wanted = weights


# CrossAttention -----------------------------------------------------------------------------------------------------


class _Cross(nn.Module):
    def __init__(self, d_model, d_memory, d_head):
        super().__init__()
        self.w_q = nn.Linear(d_model, d_head)
        self.w_k, self.w_v = nn.Linear(d_memory, d_head), nn.Linear(d_memory, d_head)

    def visible(self, x, memory, attn_mask):
        return attn_mask

    def weights(self, scores, seen):
        return visible_softmax(scores, seen)

    def forward(self, x, memory, attn_mask=None):
        scores = self.w_q(x) @ self.w_k(memory).mT / math.sqrt(self.w_q.out_features)
        return self.weights(scores, self.visible(x, memory, attn_mask)) @ self.w_v(memory)


@wrong("CrossAttention", says=None)
class TakesATableForPadding(_Cross):
    """Breaks "mask to (batch, q_len, kv_len)": if batch = q_len, one table for all hides per example."""

    def visible(self, x, memory, attn_mask):
        return attn_mask[:, None] if attn_mask is not None and attn_mask.shape == memory.shape[:2] else attn_mask


@wrong("CrossAttention", says=None)
class UsesTheLastMemoryMaskAgain(_Cross):
    """Breaks rule 6 (no memory): a call without a mask takes that of the call before."""

    last = None

    def visible(self, x, memory, attn_mask):
        if attn_mask is None and self.last is not None and self.last.shape[-1] == memory.shape[1]:
            attn_mask = self.last
        self.last = attn_mask
        return attn_mask


@wrong("CrossAttention", says=None)
class MemoryBiasFromNumpy(_Cross):
    """Breaks rule 4: with a mask, float32 scores turn into float64, and the product with v raises."""

    def weights(self, scores, seen):
        if seen is None:
            return scores.softmax(-1)
        return (scores + torch.from_numpy(np.where(seen.numpy(), 0.0, -1e9))).softmax(-1) * seen


@wrong("CrossAttention", says=None)
class IndexesTheMemoryMaskByExample(_Cross):
    """Breaks rule 7 (each axis alone as 1): a mask (1, q_len, kv_len) has no second example to index."""

    def forward(self, x, memory, attn_mask=None):
        own = [attn_mask[b] if attn_mask is not None and attn_mask.dim() == 3 else attn_mask for b in range(len(x))]
        rows = [_Cross.forward(self, x[b : b + 1], memory[b : b + 1], own[b]) for b in range(len(x))]
        return torch.cat(rows)
