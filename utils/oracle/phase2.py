"""Twins of phase 2. Masks: boolean, True = may attend; a row with nothing to see gives zeros and finite gradients."""

import functools
import operator

import torch
import torch.nn.functional as F
from torch import nn

from utils.observe.forbid import twin

__all__ = [
    "CrossAttention",
    "MaskedSelfAttention",
    "SelfAttention",
    "attention_cost",
    "attention_weights",
    "causal_mask",
    "combine_masks",
    "leaks_future",
    "masked_softmax",
    "padding_mask",
    "score_variance",
    "sdpa",
    "sdpa_backward",
    "softmax_backward",
    "softmax_jacobian",
    "streaming_attention",
]


def _require_bool(mask):
    if mask is not None and mask.dtype is not torch.bool:
        raise ValueError("attn_mask must be bool: True = may attend")


@twin
def masked_softmax(scores, attn_mask=None, dim=-1):
    """torch's softmax with hidden scores at -inf; an empty slice is opened before and zeroed after."""
    _require_bool(attn_mask)
    if attn_mask is None:
        return scores.softmax(dim)
    attn_mask = attn_mask.expand(torch.broadcast_shapes(attn_mask.shape, scores.shape))
    hidden = ~attn_mask
    nothing = hidden.all(dim, keepdim=True)
    # an empty slice is computed as if all of it were visible, then dropped: no NaN is ever made
    open_scores = scores.masked_fill(hidden & ~nothing, float("-inf"))
    return open_scores.softmax(dim).masked_fill(hidden, 0.0)


@twin
def attention_weights(q, k, attn_mask=None):
    """Weights of the attention whose values are the unit vectors: the output is then the weight table itself."""
    if q.shape[-1] != k.shape[-1]:
        raise ValueError("q and k must have the same d_head")
    unit = torch.eye(k.shape[-2], dtype=q.dtype).expand(*k.shape[:-1], k.shape[-2])
    return sdpa(q, k, unit, attn_mask)


@twin
def sdpa(q, k, v, attn_mask=None):
    """torch's own scaled_dot_product_attention, with empty rows opened before and zeroed after."""
    if q.shape[-1] != k.shape[-1]:
        raise ValueError("q and k must have the same d_head")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError("k and v must have the same kv_len")
    _require_bool(attn_mask)
    if attn_mask is None:
        return F.scaled_dot_product_attention(q, k, v)
    full = torch.broadcast_to(attn_mask, (*q.shape[:-1], k.shape[-2]))
    nothing = ~full.any(-1, keepdim=True)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=full | nothing).masked_fill(nothing, 0.0)


@twin
def causal_mask(q_len, kv_len=None):
    """Lower triangle, shifted so that the last query is level with the last key."""
    kv_len = q_len if kv_len is None else kv_len
    return torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)


@twin
def padding_mask(pad_mask):
    if pad_mask.dim() != 2:
        raise ValueError("pad_mask must be (batch, kv_len)")
    if pad_mask.dtype is not torch.bool:
        raise ValueError("pad_mask must be bool: True = real token")
    return pad_mask[:, None, None, :]


@twin
def combine_masks(*masks):
    given = [mask for mask in masks if mask is not None]
    if any(mask.dtype is not torch.bool for mask in given):
        raise ValueError("masks must be bool: True = may attend")
    return functools.reduce(operator.and_, given) if given else None


@twin
def softmax_jacobian(probs):
    """diag(p) - p p^T, one matrix per row."""
    p = torch.from_numpy(probs)
    return (torch.diag_embed(p) - torch.einsum("...i,...j->...ij", p, p)).numpy()


@twin
def softmax_backward(probs, grad):
    """torch's own backward kernel of softmax."""
    p, g = torch.from_numpy(probs), torch.from_numpy(grad)
    return torch.ops.aten._softmax_backward_data(g, p, -1, p.dtype).numpy()


@twin
def sdpa_backward(grad_out, q, k, v, attn_mask=None):
    """Autograd of the forward twin."""
    leaves = [torch.from_numpy(part.copy()).requires_grad_() for part in (q, k, v)]
    mask = None if attn_mask is None else torch.from_numpy(attn_mask)
    with torch.enable_grad():
        out = sdpa(*leaves, mask)
    return tuple(grad.numpy() for grad in torch.autograd.grad(out, leaves, torch.from_numpy(grad_out)))


@twin
class SelfAttention(nn.Module):
    def __init__(self, d_model, d_head, causal=False):
        super().__init__()
        self.w_q = nn.Linear(d_model, d_head)
        self.w_k = nn.Linear(d_model, d_head)
        self.w_v = nn.Linear(d_model, d_head)
        self.causal = causal

    def forward(self, x, attn_mask=None):
        mask = combine_masks(attn_mask, causal_mask(x.shape[-2]) if self.causal else None)
        return sdpa(self.w_q(x), self.w_k(x), self.w_v(x), mask)


@twin
class CrossAttention(nn.Module):
    def __init__(self, d_model, d_memory, d_head):
        super().__init__()
        self.w_q = nn.Linear(d_model, d_head)
        self.w_k = nn.Linear(d_memory, d_head)
        self.w_v = nn.Linear(d_memory, d_head)

    def forward(self, x, memory, attn_mask=None):
        return sdpa(self.w_q(x), self.w_k(memory), self.w_v(memory), attn_mask)


@twin
def score_variance(d_head, n_samples, generator):
    q, k = torch.randn(2, n_samples, d_head, generator=generator, dtype=torch.float64)
    scores = (q * k).sum(-1)
    return scores.var().item(), (scores / d_head**0.5).var().item()


@twin
class MaskedSelfAttention(nn.Module):
    def __init__(self, d_model, max_len, bias=False, dropout=0.2):
        super().__init__()
        self.c_attn = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.max_len, self.dropout = max_len, dropout

    def forward(self, x, pad_mask=None):
        if x.shape[-2] > self.max_len:
            raise ValueError(f"a sequence of {x.shape[-2]} tokens is longer than max_len = {self.max_len}")
        q, k, v = self.c_attn(x).chunk(3, -1)
        mask = combine_masks(causal_mask(x.shape[-2]), None if pad_mask is None else pad_mask[:, None, :])
        weights = attention_weights(q, k, mask)
        return F.dropout(weights, self.dropout, self.training) @ v


@twin
def leaks_future(attention):
    """By the derivative of every output with respect to every later input, at random sentences of 1 to 16 tokens."""
    generator = torch.Generator().manual_seed(0)
    for seq_len in (2, 3, 5, 16):
        x = torch.randn(1, seq_len, 8, generator=generator, dtype=torch.float64)
        with torch.enable_grad():
            slopes = torch.autograd.functional.jacobian(lambda x: attention(x)[0].sum(-1), x)[:, 0].abs().sum(-1)
        if (slopes.triu(1) > 1e-12).any():
            return True
    return False


@twin
def attention_cost(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    table = batch * n_heads * q_len * kv_len
    return 2 * table * d_head * 2, table * bytes_per_element  # two products, each multiply-add is two


@twin
def streaming_attention(q, k, v, block_size, attn_mask=None):
    """Each block's own output, weighed by the block's share of the softmax: a softmax over log-sum-exps."""
    if block_size < 1:
        raise ValueError("block_size must be at least 1")
    outputs, shares = [], []
    for start in range(0, k.shape[-2], block_size):
        block = slice(start, start + block_size)
        seen = attn_mask if attn_mask is None or attn_mask.shape[-1] == 1 else attn_mask[..., block]
        scores = q @ k[..., block, :].mT / q.shape[-1] ** 0.5
        outputs.append(masked_softmax(scores, seen) @ v[..., block, :])
        hidden = torch.zeros_like(scores, dtype=torch.bool) if seen is None else ~seen.expand(scores.shape)
        low = scores.new_full((), -1e30)  # far below any score, yet finite: an all-hidden block has no NaN gradient
        shares.append(torch.where(hidden, low, scores).logsumexp(-1))
    shares = masked_softmax(torch.stack(shares), torch.stack(shares) > -1e29, dim=0)
    return (shares[..., None] * torch.stack(outputs)).sum(0)
