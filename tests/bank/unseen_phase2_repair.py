"""Unseen answers to score_variance and MaskedSelfAttention: faults that a weak check lets pass, and odd right ways."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.bank import right, wrong

HIDDEN = float("-inf")


def _pairs(d_head, n_samples, generator):
    return torch.randn(2, n_samples, d_head, generator=generator)


def _both(products, d_head):
    return products.var(), (products / d_head**0.5).var()


# score_variance, wrong ----------------------------------------------------------------------------------------------


@wrong("score_variance", says=None)
def seeds_the_generator(d_head, n_samples, generator):
    """Breaks rule 6: a passed generator's seed is set, so every call draws the same."""
    q, k = _pairs(d_head, n_samples, generator.manual_seed(0))
    return _both((q * k).sum(-1), d_head)


@wrong("score_variance", says=None)
def puts_the_generator_back(d_head, n_samples, generator):
    """Breaks "a second call with the same generator differs": its state is restored afterwards."""
    state = generator.get_state()
    q, k = _pairs(d_head, n_samples, generator)
    generator.set_state(state)
    return _both((q * k).sum(-1), d_head)


@wrong("score_variance", says=None)
def a_fork_with_its_seed(d_head, n_samples, generator):
    """Breaks "from the generator": its seed alone is used, under fork_rng, so a second call draws the same."""
    with torch.random.fork_rng():
        torch.manual_seed(generator.initial_seed())
        q, k = _pairs(d_head, n_samples, None)
    return _both((q * k).sum(-1), d_head)


@wrong("score_variance", says=None)
def keys_from_elsewhere(d_head, n_samples, generator):
    """Breaks "from the generator": q comes from it, k from the global one, whose state moves."""
    q = torch.randn(n_samples, d_head, generator=generator)
    return _both((q * torch.randn(n_samples, d_head)).sum(-1), d_head)


@wrong("score_variance", says=None)
def every_query_meets_itself(d_head, n_samples, generator):
    """Breaks "pairs": q·q in place of q·k, of twice the variance."""
    q, _ = _pairs(d_head, n_samples, generator)
    return _both((q * q).sum(-1), d_head)


@wrong("score_variance", says=None)
def what_theory_says(d_head, n_samples, generator):
    """Breaks "within 10 % of 1, not exactly": d_head and 1 are returned, the draws are for show."""
    _pairs(d_head, n_samples, generator)
    return float(d_head), 1.0


@wrong("score_variance", says=None)
def the_other_way_round(d_head, n_samples, generator):
    """Breaks "→ raw, scaled": the pair is exchanged."""
    q, k = _pairs(d_head, n_samples, generator)
    return _both((q * k).sum(-1), d_head)[::-1]


@wrong("score_variance", says=None)
def keeps_an_axis(d_head, n_samples, generator):
    """Breaks "Floats or 0-d tensors": tensors of shape (1,)."""
    q, k = _pairs(d_head, n_samples, generator)
    return tuple(part.reshape(1) for part in _both((q * k).sum(-1), d_head))


@wrong("score_variance", says=None)
def seeds_the_world(d_head, n_samples, generator):
    """Breaks "global random state unchanged": it is set, though nothing is drawn from it."""
    torch.manual_seed(7321)
    q, k = _pairs(d_head, n_samples, generator)
    return _both((q * k).sum(-1), d_head)


# score_variance, right ----------------------------------------------------------------------------------------------


@right("score_variance", why="Box-Muller on uniform draws of the generator, float64, plain floats, biased")
def from_uniform_numbers(d_head, n_samples, generator):
    radius, angle = torch.rand(2, n_samples, d_head, generator=generator, dtype=torch.float64)
    radius, angle = (-2 * torch.log1p(-radius)).sqrt(), 2 * math.pi * angle
    scores = (radius * angle.cos() * radius * angle.sin()).sum(-1)
    raw = float(scores.var(correction=0))
    return raw, raw / d_head


@right("score_variance", why="blocks of 1000 pairs, interleaved draws, running sums")
def block_by_block(d_head, n_samples, generator):
    total = squares = 0.0
    for start in range(0, n_samples, 1000):
        pairs = torch.empty(min(1000, n_samples - start), d_head, 2, dtype=torch.float64).normal_(generator=generator)
        scores = pairs.prod(-1).sum(-1)
        total, squares = total + scores.sum(), squares + scores.square().sum()
    raw = (squares - total**2 / n_samples) / (n_samples - 1)
    return raw, raw / math.sqrt(d_head) ** 2


class _Masked(nn.Module):
    """The sound version; the answers below break it in one place."""

    def __init__(self, d_model, max_len, bias=False, dropout=0.2):
        super().__init__()
        self.max_len, self.dropout = max_len, dropout
        self.c_attn = nn.Linear(d_model, 3 * d_model, bias=bias)

    def refuse(self, x):
        if x.shape[1] > self.max_len:
            raise ValueError("the sequence is longer than max_len")

    def seen(self, x, pad_mask):
        past = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        return past if pad_mask is None else past & pad_mask[:, None, :]

    def drop(self, weights):
        return F.dropout(weights, self.dropout, self.training)

    def forward(self, x, pad_mask=None):
        self.refuse(x)
        q, k, v = self.c_attn(x).chunk(3, -1)
        seen = self.seen(x, pad_mask)
        scores = q @ k.mT / k.shape[-1] ** 0.5
        weights = scores.masked_fill(~(seen | ~seen.any(-1, keepdim=True)), HIDDEN).softmax(-1) * seen
        return self.drop(weights) @ v


# MaskedSelfAttention, wrong -----------------------------------------------------------------------------------------


@wrong("MaskedSelfAttention", says=None)
class HidesQueriesToo(_Masked):
    """Breaks "hides keys": the outputs of padded queries are zeros as well."""

    def seen(self, x, pad_mask):
        seen = super().seen(x, pad_mask)
        return seen if pad_mask is None else seen & pad_mask[:, :, None]


@wrong("MaskedSelfAttention", says=None)
class CountsFromTheLeft(_Masked):
    """Breaks "a left-padded row": only the number of real tokens is used, right for padding on the right."""

    def seen(self, x, pad_mask):
        if pad_mask is not None:
            pad_mask = torch.arange(x.shape[1]) < pad_mask.sum(-1, keepdim=True)
        return super().seen(x, pad_mask)


@wrong("MaskedSelfAttention", says=None)
class PaddingOfTheFirst(_Masked):
    """Breaks rule 7 (masks differ between batch rows): the first sentence's padding serves all."""

    def seen(self, x, pad_mask):
        return super().seen(x, None if pad_mask is None else pad_mask[:1])


@wrong("MaskedSelfAttention", says=None)
class DropsOutputs(_Masked):
    """Breaks "dropout on the weights": entries of the output are dropped, so a row goes in parts."""

    def drop(self, weights):
        return weights

    def forward(self, x, pad_mask=None):
        return F.dropout(super().forward(x, pad_mask), self.dropout, self.training)


@wrong("MaskedSelfAttention", says=None)
class RowsSumToOneAgain(_Masked):
    """Breaks "v/(1−p) or 0": what survives dropout is renormalised."""

    def drop(self, weights):
        kept = super().drop(weights)
        total = kept.sum(-1, keepdim=True)
        return kept / total.masked_fill(total == 0, 1)


@wrong("MaskedSelfAttention", says=None)
class DropsInEval(_Masked):
    """Breaks "in training only": F.dropout without the flag is always on."""

    def drop(self, weights):
        return F.dropout(weights, self.dropout)


@wrong("MaskedSelfAttention", says=None)
class BiasUnlessRefused(_Masked):
    """Breaks "default flags": nn.Linear's own default, bias=True."""

    def __init__(self, d_model, max_len, bias=True, dropout=0.2):
        super().__init__(d_model, max_len, bias, dropout)


@wrong("MaskedSelfAttention", says=None)
class AnotherDefaultDropout(_Masked):
    """Breaks "default flags": drops a tenth where a fifth is the default."""

    def __init__(self, d_model, max_len, bias=False, dropout=0.1):
        super().__init__(d_model, max_len, bias, dropout)


@wrong("MaskedSelfAttention", says=None)
class KeysComeFirst(_Masked):
    """Breaks "rows in order q, k, v": reads k, q, v."""

    def forward(self, x, pad_mask=None):
        self.refuse(x)
        k, q, v = self.c_attn(x).chunk(3, -1)
        seen = self.seen(x, pad_mask)
        scores = (q @ k.mT / k.shape[-1] ** 0.5).masked_fill(~(seen | ~seen.any(-1, keepdim=True)), HIDDEN)
        return self.drop(scores.softmax(-1) * seen) @ v


@wrong("MaskedSelfAttention", says=None)
class LeavesTheLengthToTorch(_Masked):
    """Breaks rule 9: a sequence beyond max_len ends in torch's RuntimeError."""

    def refuse(self, x):
        torch.ones(self.max_len).narrow(0, 0, x.shape[1])


@wrong("MaskedSelfAttention", says=None)
class RefusesTheLastPlace(_Masked):
    """Breaks "a sequence beyond max_len raises": one of exactly max_len does too."""

    def refuse(self, x):
        if x.shape[1] >= self.max_len:
            raise ValueError("max_len")


@wrong("MaskedSelfAttention", says=None)
class CutsWhatIsTooLong(_Masked):
    """Breaks "a sequence beyond max_len raises": it is cut, and the output is shorter."""

    def forward(self, x, pad_mask=None):
        return super().forward(x[:, : self.max_len], None if pad_mask is None else pad_mask[:, : self.max_len])


@wrong("MaskedSelfAttention", says=None)
class MaskAsAParameter(_Masked):
    """Breaks "no parameters besides": the mask is an nn.Parameter without gradient."""

    def __init__(self, d_model, max_len, bias=False, dropout=0.2):
        super().__init__(d_model, max_len, bias, dropout)
        self.mask = nn.Parameter(torch.ones(max_len, max_len).tril(), requires_grad=False)


@wrong("MaskedSelfAttention", says=None)
class WidthOfAllThree(_Masked):
    """Breaks "scale 1/√d_model (the width of k)": divides by the root of c_attn's output width."""

    def forward(self, x, pad_mask=None):
        self.refuse(x)
        q, k, v = self.c_attn(x).chunk(3, -1)
        seen = self.seen(x, pad_mask)
        scores = q @ k.mT / self.c_attn.out_features**0.5
        weights = scores.masked_fill(~(seen | ~seen.any(-1, keepdim=True)), HIDDEN).softmax(-1) * seen
        return self.drop(weights) @ v


# MaskedSelfAttention, right -----------------------------------------------------------------------------------------


@right("MaskedSelfAttention", why="three layers filled by load_weights, dropout by comparing uniform numbers")
class ThreeLayers(nn.Module):
    def __init__(self, d_model, max_len, bias=False, dropout=0.2):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(d_model, d_model, bias=bias) for _ in range(3))
        self.max_len, self.p = max_len, dropout

    def load_weights(self, weights):
        for key, value in weights.items():
            kind = key.removeprefix("c_attn.")
            for layer, part in zip(self.layers, value.chunk(3), strict=True):
                getattr(layer, kind).data.copy_(part)

    def forward(self, x, pad_mask=None):
        batch, seq_len, d_model = x.shape
        if seq_len > self.max_len:
            raise ValueError(f"{seq_len} tokens are more than max_len {self.max_len}")
        q, k, v = (layer(x) for layer in self.layers)
        places = torch.arange(seq_len)
        seen = (places[:, None] >= places).expand(batch, -1, -1)
        if pad_mask is not None:
            seen = seen & pad_mask.reshape(batch, 1, seq_len)
        logits = torch.where(seen, q @ k.transpose(1, 2) / math.sqrt(d_model), torch.finfo(x.dtype).min)
        weights = logits.softmax(-1) * seen
        if self.training:
            weights = weights * (torch.rand_like(weights) >= self.p) / (1 - self.p)
        return weights @ v


@right("MaskedSelfAttention", why="a float buffer, cut to the length, is added; nn.Dropout; zeros written by where")
class WithABuffer(nn.Module):
    def __init__(self, d_model, max_len, bias=False, dropout=0.2):
        super().__init__()
        self.c_attn = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.attn_dropout = nn.Dropout(dropout)
        self.register_buffer("past", torch.full((max_len, max_len), HIDDEN).triu(1), persistent=False)

    def forward(self, x, pad_mask=None):
        length = x.size(1)
        if length > self.past.size(0):
            raise ValueError("max_len")
        q, k, v = self.c_attn(x).split(x.size(2), dim=2)
        scores = (q * x.size(2) ** -0.5) @ k.mT + self.past[:length, :length]
        if pad_mask is not None:
            scores = torch.where(pad_mask.unsqueeze(1), scores, HIDDEN)
        empty = scores.isneginf().all(-1, keepdim=True)
        weights = torch.where(empty, 0.0, scores).softmax(-1)
        return self.attn_dropout(torch.where(empty, 0.0, weights)) @ v
