"""MaskedSelfAttention: the faults of the notes' listing and unusual right solutions."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bank import right, wrong
from tests.bank.attention_parts import HIDDEN, causal, visible_softmax


class Masked(nn.Module):
    """Right as it stands; a wrong solution changes one method."""

    def __init__(self, d_model, max_len, bias=False, dropout=0.2):
        super().__init__()
        self.d_model, self.max_len, self.p = d_model, max_len, dropout
        self.make(d_model, bias)

    def make(self, d_model, bias):
        self.c_attn = nn.Linear(d_model, 3 * d_model, bias=bias)

    def refuse(self, seq_len):
        if seq_len > self.max_len:
            raise ValueError(f"a sequence of {seq_len} tokens is longer than max_len {self.max_len}")

    def project(self, x):
        return self.c_attn(x).split(self.d_model, dim=2)  # three times (B, T, M)

    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))  # (B, T, T)

    def mask(self, seq_len, pad_mask):
        mask = causal(seq_len, seq_len)
        return mask if pad_mask is None else mask & pad_mask[:, None, :]

    def weights(self, scores, mask):
        return visible_softmax(scores, mask)

    def drop(self, weights):
        return F.dropout(weights, self.p, self.training)

    def forward(self, x, pad_mask=None):
        self.refuse(x.size(1))
        q, k, v = self.project(x)
        weights = self.weights(self.scores(q, k), self.mask(x.size(1), pad_mask))
        return self.drop(weights) @ v


# ---------------------------------------------------------------- wrong


@wrong("MaskedSelfAttention")
class Listing(nn.Module):
    """As printed in the notes, with imports and the new argument, all faults together."""

    def __init__(self, d_model, max_len, bias=False, dropout=0.2):
        super().__init__()
        self.d = d_model
        self.c_attn = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.register_buffer("mask", torch.tril(torch.ones(max_len, max_len)).view(1, max_len, max_len))

    def forward(self, x, pad_mask=None):
        q, k, v = self.c_attn(x).split(d, dim=2)  # noqa: F821
        att = (q @ k.transpose(-2, -1)) + (1.0 / math.sqrt(d * size(-1)))  # noqa: F821
        att = att.masked_fill((self.mask == 0), float("-inf"))
        return F.softmax(att, dim=-1) @ v


@wrong("MaskedSelfAttention")
class UndefinedWidth(Masked):
    def project(self, x):
        return self.c_attn(x).split(d, dim=2)  # noqa: F821


@wrong("MaskedSelfAttention")
class UndefinedSize(Masked):
    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / math.sqrt(size(-1))  # noqa: F821


@wrong("MaskedSelfAttention", says="the scale was added, and softmax ignores a constant")
class ScaleAdded(Masked):
    def scores(self, q, k):
        return (q @ k.transpose(-2, -1)) + (1.0 / math.sqrt(k.size(-1)))


@wrong("MaskedSelfAttention")
class ScaleAbsent(Masked):
    def scores(self, q, k):
        return q @ k.transpose(-2, -1)


@wrong("MaskedSelfAttention", says="divided by d instead of √d")
class RootOfSquare(Masked):
    def scores(self, q, k):
        return (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(self.d_model * k.size(-1)))


@wrong("MaskedSelfAttention", says="divided by d instead of √d")
class DividedByWidth(Masked):
    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / self.d_model


@wrong("MaskedSelfAttention", says="mask must be cut to the length")
class MaskUsedWhole(Masked):
    def make(self, d_model, bias):
        super().make(d_model, bias)
        self.register_buffer("tril", causal(self.max_len, self.max_len))

    def mask(self, seq_len, pad_mask):
        return self.tril if pad_mask is None else self.tril & pad_mask[:, None, :]


@wrong("MaskedSelfAttention", says="mask must be cut to the length")
class MaskRowsCutOnly(MaskUsedWhole):
    def mask(self, seq_len, pad_mask):
        mask = self.tril[:seq_len]
        return mask if pad_mask is None else mask & pad_mask[:, None, :]


@wrong("MaskedSelfAttention")
class MaskCutFromLastRows(MaskUsedWhole):
    def mask(self, seq_len, pad_mask):
        mask = self.tril[self.max_len - seq_len :, :seq_len]
        return mask if pad_mask is None else mask & pad_mask[:, None, :]


@wrong("MaskedSelfAttention", says="dropout does nothing")
class DropoutUnused(Masked):
    def drop(self, weights):
        return weights


@wrong("MaskedSelfAttention", says="dropout does nothing")
class DropoutMadeNeverCalled(Masked):
    def make(self, d_model, bias):
        super().make(d_model, bias)
        self.dropout = nn.Dropout(self.p)

    def drop(self, weights):
        return weights


@wrong("MaskedSelfAttention", says="dropout does nothing")
class DropoutResultThrownAway(Masked):
    def drop(self, weights):
        F.dropout(weights, self.p, self.training)
        return weights


@wrong("MaskedSelfAttention", says="padding is ignored")
class PaddingIgnored(Masked):
    def mask(self, seq_len, pad_mask):
        return causal(seq_len, seq_len)


# ---------------------------------------------------------------- right


@right("MaskedSelfAttention", why="mask built in forward, F.dropout")
class MaskInForward(Masked):
    pass


@right("MaskedSelfAttention", why="the listing repaired: float buffer, nn.Dropout module")
class RepairedListing(nn.Module):
    def __init__(self, d_model, max_len, bias=False, dropout=0.2):
        super().__init__()
        self.d = d_model
        self.c_attn = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.tril(torch.ones(max_len, max_len)).view(1, max_len, max_len))

    def forward(self, x, pad_mask=None):
        T = x.size(1)
        if self.mask.size(1) < T:
            raise ValueError("max_len")
        q, k, v = self.c_attn(x).split(self.d, dim=2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        hidden = self.mask[:, :T, :T] == 0
        if pad_mask is not None:
            hidden = hidden | ~pad_mask.unsqueeze(1)
        att = F.softmax(att.masked_fill(hidden, float("-inf")), dim=-1)
        return self.dropout(torch.nan_to_num(att)) @ v


@right("MaskedSelfAttention", why="a plain tensor for the mask, no buffer; dropout by hand")
class PlainTensorMask(Masked):
    def __init__(self, d_model, max_len, bias=False, dropout=0.2):
        super().__init__(d_model, max_len, bias=bias, dropout=dropout)
        self.visible = torch.arange(max_len)[None, :] <= torch.arange(max_len)[:, None]

    def mask(self, seq_len, pad_mask):
        mask = self.visible.narrow(0, 0, seq_len).narrow(1, 0, seq_len)
        return mask if pad_mask is None else torch.logical_and(mask, pad_mask.unsqueeze(1))

    def drop(self, weights):
        if not self.training or self.p == 0:
            return weights
        return weights * torch.empty_like(weights).bernoulli_(1 - self.p) / (1 - self.p)


@right("MaskedSelfAttention", why="three separate layers, filled through load_weights")
class SeparateLayers(Masked):
    def make(self, d_model, bias):
        self.q = nn.Linear(d_model, d_model, bias=bias)
        self.k = nn.Linear(d_model, d_model, bias=bias)
        self.v = nn.Linear(d_model, d_model, bias=bias)

    def load_weights(self, weights):
        for name in {"weight", "bias"} & {key.removeprefix("c_attn.") for key in weights}:
            for layer, part in zip((self.q, self.k, self.v), weights[f"c_attn.{name}"].chunk(3), strict=True):
                getattr(layer, name).data.copy_(part)

    def project(self, x):
        return self.q(x), self.k(x), self.v(x)


@right("MaskedSelfAttention", why="one bare parameter (d_model, 3, d_model) and an optional bias, einsum, load_weights")
class EinsumMasked(Masked):
    def make(self, d_model, bias):
        self.w = nn.Parameter(torch.randn(d_model, 3, d_model))
        self.b = nn.Parameter(torch.zeros(3, d_model)) if bias else None

    def load_weights(self, weights):
        with torch.no_grad():
            self.w.copy_(weights["c_attn.weight"].view(3, self.d_model, self.d_model).permute(2, 0, 1))
            if self.b is not None:
                self.b.copy_(weights["c_attn.bias"].view(3, self.d_model))

    def project(self, x):
        qkv = torch.einsum("btm,mpd->btpd", x, self.w)
        return (qkv if self.b is None else qkv + self.b).unbind(2)


@right("MaskedSelfAttention", why="nn.Softmax and nn.Dropout in one nn.Sequential, queries scaled first")
class SoftmaxThenDropout(Masked):
    def make(self, d_model, bias):
        super().make(d_model, bias)
        self.tail = nn.Sequential(nn.Softmax(dim=-1), nn.Dropout(self.p, inplace=False))
        self.register_buffer("hidden", torch.ones(self.max_len, self.max_len).triu(1).bool(), persistent=False)

    def forward(self, x, pad_mask=None):
        self.refuse(x.shape[1])
        q, k, v = torch.tensor_split(self.c_attn(x), 3, dim=-1)
        hidden = self.hidden[: x.shape[1], : x.shape[1]]
        hidden = hidden if pad_mask is None else hidden | pad_mask.logical_not()[:, None]
        nothing = hidden.all(-1, keepdim=True)
        scores = torch.bmm(q * self.d_model**-0.5, k.mT).masked_fill(hidden & ~nothing, HIDDEN)
        return torch.bmm(self.tail(scores).masked_fill(nothing, 0.0), v)
