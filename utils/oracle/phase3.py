"""Twins of phase 3. Masks: boolean, True = may attend; a row with nothing to see gives zeros and finite gradients."""

import torch
import torch.nn.functional as F
from torch import nn

from utils.observe.forbid import twin
from utils.oracle.phase2 import attention_weights, sdpa

__all__ = [
    "GroupedQueryAttention",
    "MultiHeadAttention",
    "alibi_bias",
    "attention_dropout",
    "head_entropy",
    "head_importance",
    "head_patterns",
    "merge_heads",
    "mha_parameters",
    "shape_trace",
    "split_heads",
    "sum_of_heads",
    "unpack_in_proj",
]


def _require_whole_heads(d_model, n_heads):
    if d_model % n_heads:
        raise ValueError(f"n_heads must divide d_model, and {n_heads} does not divide {d_model}")


@twin
def split_heads(x, n_heads):
    """Each head's own slice of features, stacked on a new axis before the tokens."""
    _require_whole_heads(x.shape[-1], n_heads)
    return torch.stack(x.chunk(n_heads, dim=-1), dim=-3)


@twin
def merge_heads(x):
    """The heads side by side: a concatenation along the features."""
    return torch.cat(x.unbind(-3), dim=-1)


@twin
class MultiHeadAttention(nn.Module):
    """torch's linear layers around torch's own attention kernel; w_o is called as a layer, so that hooks see it."""

    def __init__(self, d_model, n_heads, bias=True, dropout=0.0):
        super().__init__()
        _require_whole_heads(d_model, n_heads)
        self.n_heads, self.dropout = n_heads, dropout
        self.w_q = nn.Linear(d_model, d_model, bias=bias)
        self.w_k = nn.Linear(d_model, d_model, bias=bias)
        self.w_v = nn.Linear(d_model, d_model, bias=bias)
        self.w_o = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, x, memory=None, attn_mask=None):
        memory = x if memory is None else memory
        q, k, v = self._heads(self.w_q(x)), self._heads(self.w_k(memory)), self._heads(self.w_v(memory))
        return self.w_o(self._mixed(q, k, v, attn_mask).transpose(1, 2).flatten(2))

    def _heads(self, x):
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def _mixed(self, q, k, v, attn_mask):
        if not (self.training and self.dropout):
            return sdpa(q, k, v, attn_mask)
        return F.dropout(attention_weights(q, k, attn_mask), self.dropout) @ v


@twin
def unpack_in_proj(mha):
    packed = mha.in_proj_weight
    parts = (mha.q_proj_weight, mha.k_proj_weight, mha.v_proj_weight) if packed is None else packed.chunk(3)
    found = {f"w_{name}.weight": part for name, part in zip("qkvo", (*parts, mha.out_proj.weight), strict=True)}
    if mha.in_proj_bias is not None:
        biases = (*mha.in_proj_bias.chunk(3), mha.out_proj.bias)
        found |= {f"w_{name}.bias": part for name, part in zip("qkvo", biases, strict=True)}
    return {name: part.detach().clone() for name, part in found.items()}


@twin
def sum_of_heads(heads, w_o):
    """The layer itself gives the sum; the parts by one contraction over the features of each head."""
    n_heads, d_head = heads.shape[1], heads.shape[3]
    parts = torch.einsum("bhqd,mhd->bhqm", heads, w_o.weight.unflatten(1, (n_heads, d_head)))
    return w_o(merge_heads(heads)), parts


@twin
def attention_dropout(weights, p, generator):
    if not 0 <= p < 1:
        raise ValueError(f"p must be at least 0 and below 1, got {p}")
    return weights * torch.empty_like(weights).bernoulli_(1 - p, generator=generator) / (1 - p)


@twin
def head_entropy(weights):
    return torch.special.entr(weights).sum(-1)


@twin
@torch.no_grad()
def head_importance(mha, x, loss):
    """One forward pass; what goes into w_o is kept, and put through it again without each head in turn."""
    kept = []
    hook = mha.w_o.register_forward_pre_hook(lambda layer, args: kept.append(args[0]))
    try:
        whole = loss(mha(x))
    finally:
        hook.remove()
    parts = kept[0].unflatten(-1, (mha.n_heads, -1))  # (B, T, H, D)
    others = 1 - torch.eye(mha.n_heads, dtype=parts.dtype)[:, :, None]
    return torch.stack([loss(mha.w_o((parts * keep).flatten(-2))) - whole for keep in others])


@twin
def head_patterns(weights, tokens):
    """Each pattern is a table of targets and a table of counted queries; the mean is over what is counted."""
    batch, _, seq_len, _ = weights.shape
    earlier = torch.ones(seq_len, seq_len, dtype=torch.bool).tril(-1)
    repeated = (tokens[:, :, None] == tokens[:, None, :]) & earlier  # (B, query, place of the same token before)
    after = torch.zeros_like(repeated)
    after[..., 1:] = repeated[..., :-1]
    later = torch.arange(seq_len) > 0
    first = torch.zeros(seq_len, seq_len, dtype=torch.bool)
    first[1:, :1] = True
    targets = {
        "previous": (torch.eye(seq_len, dtype=torch.bool).roll(1, 0) & later[:, None], later),
        "self": (torch.eye(seq_len, dtype=torch.bool), torch.ones(seq_len, dtype=torch.bool)),
        "first": (first, later),
        "induction": (after, repeated.any(-1)),
    }
    scores = {}
    for name, (target, counted) in targets.items():
        target, counted = target.expand(batch, seq_len, seq_len), counted.expand(batch, seq_len)
        total = torch.einsum("bhqk,bqk->h", weights, target.to(weights.dtype))
        scores[name] = total / counted.sum().clamp(min=1)
    return scores


@twin
class GroupedQueryAttention(nn.Module):
    """Keys and values of each group are copied to its query heads, then torch's own kernel runs."""

    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        _require_groups(d_model, n_heads, n_kv_heads)
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads
        narrow = n_kv_heads * (d_model // n_heads)
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, narrow)
        self.w_v = nn.Linear(d_model, narrow)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x, attn_mask=None):
        q = self.w_q(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        k, v = (w(x).unflatten(-1, (self.n_kv_heads, -1)).transpose(1, 2) for w in (self.w_k, self.w_v))
        k, v = (part.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1) for part in (k, v))
        return self.w_o(sdpa(q, k, v, attn_mask).transpose(1, 2).flatten(2))


def _require_groups(d_model, n_heads, n_kv_heads):
    _require_whole_heads(d_model, n_heads)
    if n_heads % n_kv_heads:
        raise ValueError(f"n_kv_heads must divide n_heads, and {n_kv_heads} does not divide {n_heads}")


@twin
def shape_trace(batch, seq_len, d_model, n_heads):
    """The shapes of a real run, on torch's device that keeps shapes and no numbers."""
    _require_whole_heads(d_model, n_heads)
    x = torch.empty(batch, seq_len, d_model, device="meta")
    q = k = v = x @ torch.empty(d_model, d_model, device="meta")
    q_heads, k_heads, v_heads = (part.unflatten(-1, (n_heads, -1)).transpose(1, 2) for part in (q, k, v))
    scores = q_heads @ k_heads.mT
    heads = scores.softmax(-1) @ v_heads
    merged = heads.transpose(1, 2).flatten(2)
    run = dict(x=x, q=q, k=k, v=v, q_heads=q_heads, k_heads_transposed=k_heads.mT, v_heads=v_heads, scores=scores)
    run |= dict(attn_weights=scores, heads=heads, merged=merged, output=merged @ x.new_empty(d_model, d_model))
    return {name: tuple(tensor.shape) for name, tensor in run.items()}


@twin
def mha_parameters(d_model, n_heads, n_kv_heads, bias):
    """Counted on four layers that hold no numbers."""
    _require_groups(d_model, n_heads, n_kv_heads)
    narrow = d_model // n_heads * n_kv_heads
    layers = [nn.Linear(d_model, out, bool(bias), device="meta") for out in (d_model, narrow, narrow, d_model)]
    return sum(parameter.numel() for layer in layers for parameter in layer.parameters())


@twin
def alibi_bias(n_heads, q_len, kv_len):
    def slopes(n):
        return [2 ** (-8 * h / n) for h in range(1, n + 1)]

    lower = 1 << (n_heads.bit_length() - 1)
    steep = torch.tensor(slopes(lower) + slopes(2 * lower)[::2][: n_heads - lower])
    distance = torch.arange(kv_len - q_len, kv_len)[:, None] - torch.arange(kv_len)
    return -steep[:, None, None] * distance
