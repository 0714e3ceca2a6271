"""MaskedSelfAttention: faults that the listing does not have but its repair may get."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.bank import wrong
from tests.bank.attention_parts import HIDDEN, causal
from tests.bank.phase2_listing import Masked


@wrong("MaskedSelfAttention")
class DropoutAlways(Masked):
    def drop(self, weights):
        return F.dropout(weights, self.p)


@wrong("MaskedSelfAttention")
class DropoutInEvalOnly(Masked):
    def drop(self, weights):
        return F.dropout(weights, self.p, not self.training)


@wrong("MaskedSelfAttention")
class DropoutKeeps(Masked):
    def drop(self, weights):
        return F.dropout(weights, 1 - self.p, self.training)


@wrong("MaskedSelfAttention")
class DropoutFixedRate(Masked):
    def drop(self, weights):
        return F.dropout(weights, 0.2, self.training)


@wrong("MaskedSelfAttention")
class DropoutNotRescaled(Masked):
    def drop(self, weights):
        return weights * (torch.rand_like(weights) >= self.p) if self.training else weights


@wrong("MaskedSelfAttention")
class DropoutOnOutput(Masked):
    def drop(self, weights):
        return weights

    def forward(self, x, pad_mask=None):
        return F.dropout(super().forward(x, pad_mask), self.p, self.training)


@wrong("MaskedSelfAttention")
class DropoutOnScores(Masked):
    def scores(self, q, k):
        return F.dropout(super().scores(q, k), self.p, self.training)

    def drop(self, weights):
        return weights


@wrong("MaskedSelfAttention")
class DropoutRenormalised(Masked):
    def drop(self, weights):
        kept = F.dropout(weights, self.p, self.training)
        return kept / kept.sum(-1, keepdim=True).clamp(min=1e-9) if self.training else kept


@wrong("MaskedSelfAttention")
class PaddingInverted(Masked):
    def mask(self, seq_len, pad_mask):
        return super().mask(seq_len, None if pad_mask is None else ~pad_mask)


@wrong("MaskedSelfAttention")
class PaddingHidesQueries(Masked):
    def mask(self, seq_len, pad_mask):
        mask = causal(seq_len, seq_len)
        return mask if pad_mask is None else mask & pad_mask[:, :, None]


@wrong("MaskedSelfAttention")
class PaddedQueriesZeroed(Masked):
    def forward(self, x, pad_mask=None):
        out = super().forward(x, pad_mask)
        return out if pad_mask is None else out * pad_mask[..., None]


@wrong("MaskedSelfAttention")
class PaddingReplacesCausal(Masked):
    def mask(self, seq_len, pad_mask):
        return causal(seq_len, seq_len) if pad_mask is None else pad_mask[:, None, :]


@wrong("MaskedSelfAttention")
class NanFirstRow(Masked):
    def weights(self, scores, mask):
        return scores.masked_fill(~mask, HIDDEN).softmax(-1)


@wrong("MaskedSelfAttention")
class AverageFirstRow(Masked):
    def weights(self, scores, mask):
        return scores.masked_fill(~mask, -1e9).softmax(-1)


@wrong("MaskedSelfAttention")
class MaskedAfterSoftmax(Masked):
    def weights(self, scores, mask):
        return scores.softmax(-1) * mask


@wrong("MaskedSelfAttention")
class StrictTriangle(Masked):
    def mask(self, seq_len, pad_mask):
        return super().mask(seq_len, pad_mask) & causal(seq_len, seq_len).tril(-1)


@wrong("MaskedSelfAttention")
class NotCausal(Masked):
    def mask(self, seq_len, pad_mask):
        return torch.ones(seq_len, seq_len, dtype=torch.bool) if pad_mask is None else pad_mask[:, None, :]


@wrong("MaskedSelfAttention")
class OrderKeyQueryValue(Masked):
    def project(self, x):
        k, q, v = super().project(x)
        return q, k, v


@wrong("MaskedSelfAttention")
class OrderValueFirst(Masked):
    def project(self, x):
        v, q, k = super().project(x)
        return q, k, v


@wrong("MaskedSelfAttention")
class InterleavedRows(Masked):
    def project(self, x):
        return self.c_attn(x).unflatten(-1, (self.d_model, 3)).unbind(-1)


@wrong("MaskedSelfAttention")
class BiasFlagIgnored(Masked):
    def make(self, d_model, bias):
        self.c_attn = nn.Linear(d_model, 3 * d_model)


@wrong("MaskedSelfAttention")
class BiasNever(Masked):
    def make(self, d_model, bias):
        self.c_attn = nn.Linear(d_model, 3 * d_model, bias=False)


@wrong("MaskedSelfAttention")
class BiasDefaultOn(Masked):
    def __init__(self, d_model, max_len, bias=True, dropout=0.2):
        super().__init__(d_model, max_len, bias, dropout)


@wrong("MaskedSelfAttention")
class OutputLayerAdded(Masked):
    def make(self, d_model, bias):
        super().make(d_model, bias)
        self.c_proj = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, x, pad_mask=None):
        return self.c_proj(super().forward(x, pad_mask))


@wrong("MaskedSelfAttention")
class MaskIsParameter(Masked):
    def make(self, d_model, bias):
        super().make(d_model, bias)
        self.tril = nn.Parameter(causal(self.max_len, self.max_len).to(self.c_attn.weight.dtype))

    def mask(self, seq_len, pad_mask):
        mask = self.tril[:seq_len, :seq_len] != 0
        return mask if pad_mask is None else mask & pad_mask[:, None, :]


@wrong("MaskedSelfAttention")
class LongSequencesAccepted(Masked):
    def refuse(self, seq_len):
        pass


@wrong("MaskedSelfAttention")
class LongSequencesCut(Masked):
    def refuse(self, seq_len):
        pass

    def forward(self, x, pad_mask=None):
        return super().forward(x[:, : self.max_len], None if pad_mask is None else pad_mask[:, : self.max_len])


@wrong("MaskedSelfAttention")
class FullLengthRefused(Masked):
    def refuse(self, seq_len):
        if seq_len >= self.max_len:
            raise ValueError("longer than max_len")
