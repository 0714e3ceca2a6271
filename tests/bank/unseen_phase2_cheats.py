"""Cheats with right numbers: torch's attention by back doors, and autograd in the NumPy exercises (rule 11)."""

import functools
import warnings

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention as bound_early

from tests.bank import wrong

with warnings.catch_warnings():
    warnings.simplefilter("ignore")

    @torch.jit.script
    def _scripted(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def _guarded(core):
    """Refuse what sdpa refuses, open empty rows for the core and zero them afterwards."""

    @functools.wraps(core)
    def attend(q, k, v, attn_mask=None):
        if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
            raise ValueError("d_head or kv_len differ")
        if attn_mask is not None and attn_mask.dtype is not torch.bool:
            raise ValueError("attn_mask must be bool")
        size = (*q.shape[:-1], k.shape[-2])
        seen = torch.ones(size, dtype=torch.bool) if attn_mask is None else attn_mask.expand(size)
        some = seen.any(-1, keepdim=True)
        return core(q, k, v, seen | ~some) * some

    return attend


def _four_axes(q, k, v, mask):
    """Flatten the leading axes to (batch, 1) and pad all three to one width, as the fused kernels ask."""
    width = max(q.shape[-1], v.shape[-1])
    parts = [F.pad(x.reshape(-1, 1, *x.shape[-2:]), (0, width - x.shape[-1])) for x in (q, k, v)]
    bias = torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, float("-inf"))
    return *parts, bias.reshape(-1, 1, *mask.shape[-2:])


# sdpa ---------------------------------------------------------------------------------------------------------------


@wrong("sdpa", says=None)
@_guarded
def imported_early(q, k, v, mask):
    """Breaks rule 11: F.scaled_dot_product_attention, bound at import."""
    return bound_early(q, k, v, attn_mask=mask)


@wrong("sdpa", says=None)
@_guarded
def from_the_c_module(q, k, v, mask):
    """Breaks rule 11: the same function under torch._C._nn."""
    return torch._C._nn.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@wrong("sdpa", says=None)
@_guarded
def as_an_aten_op(q, k, v, mask):
    """Breaks rule 11: the same operation as torch.ops.aten.scaled_dot_product_attention."""
    return torch.ops.aten.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@wrong("sdpa", says=None)
@_guarded
def what_math_backend_calls(q, k, v, mask):
    """Breaks rule 11: the decomposition that scaled_dot_product_attention itself calls."""
    bias = torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, float("-inf"))
    return torch.ops.aten._scaled_dot_product_attention_math(q, k, v, attn_mask=bias)[0]


@wrong("sdpa", says=None)
@_guarded
def the_kernel_for_cpu(q, k, v, mask):
    """Breaks rule 11: the fused CPU kernel behind scaled_dot_product_attention."""
    *parts, bias = _four_axes(q, k, v, mask)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out = kernel(*parts, attn_mask=bias, scale=q.shape[-1] ** -0.5)[0]
    return out[..., : v.shape[-1]].reshape(*q.shape[:-1], v.shape[-1])


@wrong("sdpa", says=None)
@_guarded
def scripted_before(q, k, v, mask):
    """Breaks rule 11: compiled by torch.jit.script at import."""
    return _scripted(q, k, v, mask)


@wrong("sdpa", says=None)
@_guarded
def modes_switched_off(q, k, v, mask):
    """Breaks rule 11: torch functions are called where function modes do not look."""
    with torch._C.DisableTorchFunction():
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@wrong("sdpa", says=None)
@_guarded
def heads_with_identities(q, k, v, mask):
    """Breaks rule 11: F.multi_head_attention_forward, all of its projections identities."""
    *parts, bias = _four_axes(q, k, v, mask)
    width = parts[0].shape[-1]
    q4, k4, v4 = (x.squeeze(1).transpose(0, 1) for x in parts)
    eye = torch.eye(width, dtype=q.dtype)
    out, _ = F.multi_head_attention_forward(
        q4 * (width / q.shape[-1]) ** 0.5, k4, v4, width, 1, eye.repeat(3, 1), None, None, None, False, 0.0, eye, None,
        need_weights=False, attn_mask=bias.squeeze(1),
    )  # fmt: skip
    return out.transpose(0, 1)[..., : v.shape[-1]].reshape(*q.shape[:-1], v.shape[-1])


# attention_weights, masked_softmax, streaming_attention --------------------------------------------------------------


@wrong("attention_weights", says=None)
def values_that_show_the_weights(q, k, attn_mask=None):
    """Breaks rule 11: scaled_dot_product_attention mixes the rows of an identity."""
    eye = torch.eye(k.shape[-2], dtype=k.dtype).expand(*k.shape[:-2], -1, -1)
    return imported_early(q, k, eye, attn_mask)


@wrong("masked_softmax", says=None)
def scores_as_queries(scores, attn_mask=None, dim=-1):
    """Breaks rule 11: scaled_dot_product_attention with two identities and scale 1 is a masked softmax."""
    if attn_mask is not None and attn_mask.dtype is not torch.bool:
        raise ValueError("bool")
    seen = torch.ones_like(scores, dtype=torch.bool) if attn_mask is None else attn_mask.expand(scores.shape)
    moved, seen = scores.movedim(dim, -1).unsqueeze(-2), seen.movedim(dim, -1).unsqueeze(-2)
    some = seen.any(-1, keepdim=True)
    eye = torch.eye(moved.shape[-1], dtype=scores.dtype).expand(*moved.shape[:-2], -1, -1)
    visible = moved.masked_fill(~seen, 0)
    out = F.scaled_dot_product_attention(visible, eye, eye, attn_mask=seen | ~some, scale=1.0)
    return (out * some).squeeze(-2).movedim(-1, dim)


@wrong("streaming_attention", says=None)
def streams_inside_the_kernel(q, k, v, block_size, attn_mask=None):
    """Breaks rule 11: the fused CPU kernel streams by itself (its mask is a table, though)."""
    if block_size < 1:
        raise ValueError("block_size")
    if attn_mask is None:
        return imported_early(q, k, v)
    return the_kernel_for_cpu(q, k, v, attn_mask)


# modules ------------------------------------------------------------------------------------------------------------


class _Inherited(nn.MultiheadAttention):
    pass


def _mix(q, k, v, seen):
    """One head of nn.MultiheadAttention with identities for weights; empty rows are zeroed afterwards."""
    with torch.random.fork_rng():
        heads = _Inherited(q.shape[-1], 1, bias=False, batch_first=True, dtype=q.dtype)
    eye = torch.eye(q.shape[-1], dtype=q.dtype)
    heads.in_proj_weight.data.copy_(eye.repeat(3, 1))
    heads.out_proj.weight.data.copy_(eye)
    some = seen.any(-1, keepdim=True)
    return heads(q, k, v, attn_mask=~(seen | ~some), need_weights=False)[0] * some


@wrong("CrossAttention", says=None)
class HeirOfTorch(nn.Module):
    """Breaks rule 11: mixes with a subclass of nn.MultiheadAttention."""

    def __init__(self, d_model, d_memory, d_head):
        super().__init__()
        self.w_q = nn.Linear(d_model, d_head)
        self.w_k, self.w_v = nn.Linear(d_memory, d_head), nn.Linear(d_memory, d_head)

    def forward(self, x, memory, attn_mask=None):
        size = (*x.shape[:2], memory.shape[1])
        seen = torch.ones(size, dtype=torch.bool) if attn_mask is None else attn_mask.expand(size)
        return _mix(self.w_q(x), self.w_k(memory), self.w_v(memory), seen)


@wrong("SelfAttention", says=None)
class InsideAnEncoderLayer(nn.Module):
    """Breaks rule 11: the attention block inside nn.TransformerEncoderLayer, with the weights copied in."""

    def __init__(self, d_model, d_head, causal=False):
        super().__init__()
        self.causal = causal
        self.w_q, self.w_k, self.w_v = (nn.Linear(d_model, d_head) for _ in range(3))

    def forward(self, x, attn_mask=None):
        size = (*x.shape[:2], x.shape[1])
        seen = torch.ones(size, dtype=torch.bool) if attn_mask is None else attn_mask.expand(size)
        seen = seen.tril() if self.causal else seen
        width = 3 * self.w_q.out_features
        with torch.random.fork_rng():
            layer = nn.TransformerEncoderLayer(width, 1, 1, 0.0, batch_first=True, bias=False, dtype=x.dtype)
        third = torch.eye(width // 3, width, dtype=x.dtype)
        layer.self_attn.out_proj.weight.data.copy_(torch.eye(width, dtype=x.dtype))
        rows = [F.pad(third.roll(i * width // 3, 1), (0, 0, 0, width - width // 3)) for i in range(3)]
        rows[0] = rows[0] * 3**0.5
        layer.self_attn.in_proj_weight.data.copy_(torch.cat(rows))
        both = torch.cat([self.w_q(x), self.w_k(x), self.w_v(x)], -1)
        some = seen.any(-1, keepdim=True)
        return (layer._sa_block(both, ~(seen | ~some), None) * some)[..., : width // 3]


@wrong("MaskedSelfAttention", says=None)
class AskedForDropoutToo(nn.Module):
    """Breaks rule 11: scaled_dot_product_attention, which also drops weights."""

    def __init__(self, d_model, max_len, bias=False, dropout=0.2):
        super().__init__()
        self.c_attn, self.max_len, self.p = nn.Linear(d_model, 3 * d_model, bias=bias), max_len, dropout

    def forward(self, x, pad_mask=None):
        if x.shape[1] > self.max_len:
            raise ValueError("max_len")
        seen = torch.ones(x.shape[0], x.shape[1], x.shape[1], dtype=torch.bool).tril()
        seen = seen if pad_mask is None else seen & pad_mask[:, None]
        some = seen.any(-1, keepdim=True)
        q, k, v = self.c_attn(x).chunk(3, -1)
        return some * F.scaled_dot_product_attention(q, k, v, seen | ~some, self.p if self.training else 0.0)


# the NumPy exercises ------------------------------------------------------------------------------------------------


def _logits(probs):
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.maximum(np.log(probs), -700).astype(probs.dtype))


def _plain(q, k, v, mask):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    some = mask.any(-1, keepdim=True)
    return (scores.masked_fill(~(mask | ~some), float("-inf")).softmax(-1) * some) @ v


def _tensors(q, k, v, attn_mask):
    mask = np.ones((q.shape[-2], k.shape[-2]), bool) if attn_mask is None else attn_mask
    if mask.dtype != bool:
        raise ValueError("bool")
    return *(torch.from_numpy(x) for x in (q, k, v)), torch.from_numpy(mask)


@wrong("softmax_jacobian", says=None)
def by_jacrev(probs):
    """Breaks rule 11: torch.func.jacrev."""
    rows = _logits(probs).reshape(-1, probs.shape[-1])
    tables = [torch.func.jacrev(lambda row: row.softmax(0))(row) for row in rows]
    return torch.stack(tables).reshape(*probs.shape, -1).numpy()


@wrong("softmax_jacobian", says=None)
def by_forward_mode(probs):
    """Breaks rule 11: torch.func.jacfwd, derivatives without a backward pass."""
    rows = _logits(probs).reshape(-1, probs.shape[-1])
    tables = [torch.func.jacfwd(lambda row: row.softmax(0))(row) for row in rows]
    return torch.stack(tables).reshape(*probs.shape, -1).numpy()


@wrong("softmax_jacobian", says=None)
def by_the_functional_interface(probs):
    """Breaks rule 11: torch.autograd.functional.jacobian."""
    rows = _logits(probs).reshape(-1, probs.shape[-1])
    tables = [torch.autograd.functional.jacobian(lambda row: row.softmax(0), row) for row in rows]
    return torch.stack(tables).reshape(*probs.shape, -1).numpy()


@wrong("softmax_backward", says=None)
def by_the_kernel(probs, grad):
    """Breaks rule 11: aten's own backward op of softmax."""
    p, g = torch.from_numpy(probs), torch.from_numpy(grad)
    return torch.ops.aten._softmax_backward_data(g, p, -1, p.dtype).numpy()


@wrong("softmax_backward", says=None)
def by_vjp(probs, grad):
    """Breaks rule 11: torch.func.vjp."""
    _, pull = torch.func.vjp(lambda row: row.softmax(-1), _logits(probs))
    return pull(torch.from_numpy(grad))[0].numpy() * (probs.sum(-1, keepdims=True) > 0)


@wrong("sdpa_backward", says=None)
def by_backward(grad_out, q, k, v, attn_mask=None):
    """Breaks rule 11: tensors, backward(), and their .grad."""
    *parts, mask = _tensors(q, k, v, attn_mask)
    parts = [part.clone().requires_grad_() for part in parts]
    _plain(*parts, mask).backward(torch.from_numpy(grad_out))
    return tuple(part.grad.numpy() for part in parts)


@wrong("sdpa_backward", says=None)
def by_autograd_grad(grad_out, q, k, v, attn_mask=None):
    """Breaks rule 11: torch.autograd.grad, with gradients switched on whatever the surroundings say."""
    *parts, mask = _tensors(q, k, v, attn_mask)
    with torch.inference_mode(False), torch.enable_grad():
        parts = [part.clone().requires_grad_() for part in parts]
        slopes = torch.autograd.grad(_plain(*parts, mask), parts, torch.from_numpy(grad_out).clone())
    return tuple(slope.numpy() for slope in slopes)


@wrong("sdpa_backward", says=None)
def by_func_vjp(grad_out, q, k, v, attn_mask=None):
    """Breaks rule 11: torch.func.vjp."""
    *parts, mask = _tensors(q, k, v, attn_mask)
    _, pull = torch.func.vjp(lambda *tensors: _plain(*tensors, mask), *parts)
    return tuple(slope.numpy() for slope in pull(torch.from_numpy(grad_out)))


@wrong("sdpa_backward", says=None)
def by_the_fused_backward(grad_out, q, k, v, attn_mask=None):
    """Breaks rule 11: aten's backward op of the fused CPU kernel."""
    *parts, mask = _tensors(q, k, v, attn_mask)
    mask = mask.expand(*q.shape[:-1], k.shape[-2])
    some = mask.any(-1, keepdim=True)
    *four, bias = _four_axes(*parts, mask | ~some)
    grad = (torch.from_numpy(grad_out) * some).reshape(-1, 1, *grad_out.shape[-2:])
    grad = F.pad(grad, (0, four[2].shape[-1] - grad.shape[-1]))
    options = dict(attn_mask=bias, scale=q.shape[-1] ** -0.5)
    out, log = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*four, **options)
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    slopes = backward(grad, *four, out, log, 0.0, False, **options)
    return tuple(slope[..., : x.shape[-1]].reshape(x.shape).numpy() for slope, x in zip(slopes, (q, k, v), strict=True))
