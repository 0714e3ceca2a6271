"""Twins of phase 6, fewer bytes: distillation, shared weights, quantization, windows."""

import torch
import torch.nn.functional as F
from torch import nn

from utils.observe.forbid import twin

__all__ = [
    "QuantLinear",
    "RollingKVCache",
    "SharedStack",
    "dequantize",
    "distillation_loss",
    "pack_int4",
    "quantize",
    "sliding_window_mask",
    "unpack_int4",
]


@twin
def distillation_loss(student_logits, teacher_logits, targets, temperature, alpha, pad_mask):
    """torch's own divergence and cross-entropy, on the kept rows; the teacher's gradient is zeros, not missing."""
    student, teacher, labels = student_logits[pad_mask], teacher_logits.detach()[pad_mask], targets[pad_mask]
    soft = F.kl_div(
        F.log_softmax(student / temperature, -1),
        F.log_softmax(teacher / temperature, -1),
        reduction="sum",
        log_target=True,
    )
    hard = F.cross_entropy(student, labels, reduction="sum")
    total = alpha * temperature**2 * soft + (1 - alpha) * hard
    return total / max(int(pad_mask.sum()), 1) + 0 * (teacher_logits.sum() + student_logits.sum())


@twin
class SharedStack(nn.Module):
    def __init__(self, block, n_layers):
        super().__init__()
        self.block, self.n_layers = block, n_layers

    def forward(self, x, attn_mask=None):
        for layer in [self.block] * self.n_layers:
            x = layer(x, attn_mask=attn_mask)
        return x


@twin
def quantize(w, bits, axis=None):
    """The largest size as the infinity norm; floor(· + ½) rounds."""
    if bits not in range(2, 9):
        raise ValueError("bits must be 2 to 8")
    most = 2 ** (bits - 1) - 1
    if axis is None:
        scale = torch.linalg.vector_norm(w, float("inf")) / most
    else:
        others = [dim for dim in range(w.dim()) if dim != axis % w.dim()]
        scale = torch.linalg.vector_norm(w, float("inf"), dim=others, keepdim=True) / most if others else w.abs() / most
    scale = scale.masked_fill(scale == 0, 1.0)
    return (w / scale + 0.5).floor().clamp(-most, most).to(torch.int8), scale


@twin
def dequantize(q, scale):
    return torch.mul(q.to(scale.dtype), scale)


@twin
class QuantLinear(nn.Module):
    """The integers are used as they are; what comes out is scaled."""

    def __init__(self, linear, bits=8):
        super().__init__()
        q, scale = quantize(linear.weight.detach(), bits, axis=0)
        self.register_buffer("q", q)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().clone())

    def forward(self, x):
        out = F.linear(x, self.q.to(x.dtype)) * self.scale[:, 0].to(x.dtype)
        return out if self.bias is None else out + self.bias


@twin
def pack_int4(q):
    """Sixteen times the remainder of the right neighbour, plus the own one."""
    if q.numel() and (int(q.min()) < -8 or int(q.max()) > 7):
        raise ValueError("int4 holds -8 to 7")
    left, right = q[..., 0::2].long() % 16, F.pad(q, (0, q.shape[-1] % 2))[..., 1::2].long() % 16
    return (left + 16 * right).to(torch.uint8)


@twin
def unpack_int4(packed, n):
    """A table of sixteen values."""
    table = torch.tensor([*range(8), *range(-8, 0)], dtype=torch.int8)
    return table[torch.stack([packed.long() % 16, packed.long() // 16], -1)].flatten(-2)[..., :n]


@twin
def sliding_window_mask(q_len, kv_len, window):
    """A band: a lower triangle less the triangle `window` places further down."""
    if window < 1:
        raise ValueError("window must be at least 1")
    ones = torch.ones(q_len, kv_len, dtype=torch.bool)
    return ones.tril(kv_len - q_len) & ~ones.tril(kv_len - q_len - window)


@twin
class RollingKVCache:
    """Two stores: the first n_sinks tokens ever, and the last `window`."""

    def __init__(self, window, n_sinks=0):
        if window < 1 or n_sinks < 0:
            raise ValueError("window must be at least 1, n_sinks at least 0")
        self.window, self.n_sinks, self.seen, self.first, self.last = window, n_sinks, 0, None, None

    def append(self, k, v):
        self.seen += k.shape[2]
        first, last = ((k[:, :, :0], v[:, :, :0]) if one is None else one for one in (self.first, self.last))
        self.first = [torch.cat(pair, 2)[:, :, : self.n_sinks].clone() for pair in zip(first, (k, v), strict=True)]
        self.last = [torch.cat(pair, 2)[:, :, -self.window :].clone() for pair in zip(last, (k, v), strict=True)]
        begins = max(self.length - self.last[0].shape[2], 0)
        sinks = min(begins, self.first[0].shape[2])  # those that the window does not hold
        joined = [torch.cat([a[:, :, :sinks], b], 2) for a, b in zip(self.first, self.last, strict=True)]
        return *joined, torch.cat([torch.arange(sinks), torch.arange(begins, self.length)])

    @property
    def length(self):
        return self.seen

    @property
    def size(self):
        return min(self.length, self.n_sinks + self.window)
