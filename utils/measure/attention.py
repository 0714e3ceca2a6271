"""From which length on does a fused attention pay? The same attention, by hand and fused, over several lengths."""

import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from utils.measure import ratios
from utils.measure.clock import alternating
from utils.measure.parts import YOURS, part

LENGTHS_ON_CPU = (64, 128, 256, 512, 1024, 2048)
LENGTHS_ON_GPU = (256, 512, 1024, 2048, 4096, 8192)
HEADS, WIDTH = 8, 64


@dataclass(frozen=True)
class Point:
    """One length. ratio: how many times as long the attention by hand took."""

    seq_len: int
    by_hand: float  # seconds
    fused: float
    scratch_bytes: int  # of the table of scores that only the one by hand writes
    share: ratios.Ratio | None  # of the peak, by the fused one
    whose: str  # "yours", or torch's own unfused one

    @property
    def ratio(self):
        return self.by_hand / self.fused


def crossover(device="cpu", lengths=None, dtype=None, peak=None, budget=8.0):
    """A list of Points for causal attention, forward; lengths that would take longer than `budget` s are left out.

    dtype: by default float32 on a CPU, bfloat16 on a GPU; peak: operations per second in that dtype
    """
    device = torch.device(device)
    dtype = dtype or (torch.bfloat16 if device.type == "cuda" else torch.float32)
    lengths = lengths or (LENGTHS_ON_GPU if device.type == "cuda" else LENGTHS_ON_CPU)
    by_hand, whose = _by_hand()
    points, began = [], time.perf_counter()
    for seq_len in lengths:
        spent = time.perf_counter() - began
        if points and spent + 4 * points[-1].by_hand * 6 > budget:  # twice as long, four times the table, six runs
            break
        points.append(_point(device, seq_len, dtype, peak, by_hand, whose))
    return points


@torch.no_grad()
def _point(device, seq_len, dtype, peak, by_hand, whose):
    generator = torch.Generator().manual_seed(seq_len)
    q, k, v = (torch.randn(1, HEADS, seq_len, WIDTH, generator=generator).to(device, dtype) for _ in range(3))
    mask = torch.ones(seq_len, seq_len, dtype=torch.bool, device=device).tril()
    found = alternating(
        {
            "by hand": lambda: by_hand(q, k, v, mask),
            "fused": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        },
        device,
    )
    share = peak and ratios.attention(1, HEADS, seq_len, WIDTH, found["fused"], peak)
    scratch = HEADS * seq_len**2 * q.element_size()
    return Point(seq_len, found["by hand"], found["fused"], scratch, share, whose)


def _by_hand():
    """(attention, whose): the learner's, else torch's own with its fused kernels switched off."""
    found, whose = part("sdpa")
    if found is not None and whose == YOURS:
        return found, whose

    def unfused(q, k, v, mask):
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return unfused, "torch's, unfused"
