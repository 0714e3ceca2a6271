"""Attentions with a mask for `reads_hidden`: attention(x, attn_mask), x (batch, seq_len, 8), all from a seed.

Some of them read what the mask hides. `masked` returns a bare module that says nothing of what it does.
"""

import torch
from torch import nn

from utils.observe.forbid import lent

WIDTH, OUT = 8, 5
CHANGES = {}  # kind -> function(mask, n_heads) -> which keys (batch, heads or 1, q, k) are visible instead


def changes(function):
    CHANGES[function.__name__] = function
    return function


def _places(mask):
    n = mask.shape[-1]
    return torch.arange(n)[:, None], torch.arange(n)[None, :]


@changes
def right(mask, n_heads):
    return mask


@changes
def causal(mask, n_heads):
    i, j = _places(mask)
    return mask & (j <= i)


@changes
def itself(mask, n_heads):
    i, j = _places(mask)
    return mask & (i == j)


@changes
def ignored(mask, n_heads):
    return torch.ones_like(mask)


@changes
def transposed(mask, n_heads):
    return mask.mT


@changes
def inverted(mask, n_heads):
    return ~mask


@changes
def first_sentence(mask, n_heads):
    return mask[:1].expand_as(mask)


@changes
def first_row(mask, n_heads):
    return mask[:, :, :1].expand_as(mask)


@changes
def meets_heads(mask, n_heads):
    """(batch, q, k) added to (batch, heads, q, k): the mask of a sentence lands on a head, if there are as many."""
    return mask.squeeze(1)[None] if len(mask) == n_heads else mask


@changes
def far(mask, n_heads):
    i, j = _places(mask)
    return mask | (j - i >= 5)


@changes
def first_key(mask, n_heads):
    i, j = _places(mask)
    return mask | (j == 0)


@changes
def one_head(mask, n_heads):
    heads = mask.repeat(1, n_heads, 1, 1)
    heads[:, 1:] = True
    return heads


def masked(kind="right", fill=float("-inf"), average=False, late="", n_heads=2, seed=0, training=False):
    """fill: what a hidden score becomes; late: hidden after the softmax ("whole": and made to sum to 1 again).

    average: a row with nothing to see is no row of zeros
    """
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(WIDTH, 4 * n_heads, generator=generator).double() / WIDTH**0.5 for _ in range(3)]
    last = torch.randn(4 * n_heads, OUT, generator=generator).double()

    def heads(x, weight):
        return (x @ weight.to(x.dtype)).unflatten(-1, (n_heads, -1)).transpose(1, 2)

    @lent
    class Attention(nn.Module):
        def forward(self, x, attn_mask):
            q, k, v = (heads(x, weight) for weight in weights)
            scores = q @ k.mT / 2
            seen = CHANGES[kind](attn_mask, n_heads).expand(scores.shape)
            if late:
                shares = scores.softmax(-1) * seen
                shares = shares / shares.sum(-1, keepdim=True).clamp(min=1e-30) if late == "whole" else shares
            else:
                empty = ~seen.any(-1, keepdim=True) & (not average)
                shares = scores.masked_fill(~(seen | empty), fill).softmax(-1) * ~empty
            return (shares @ v).transpose(1, 2).flatten(2) @ last.to(x.dtype)

    return Attention().train(training)


KINDS = {"masked": masked}
