"""How far do the scores of an attention spread? Watched where they enter a softmax."""

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from utils.debugging.subject import LENGTHS, borrowed, orthonormal

PLACES = 37  # tokens in the sentence: no other axis is likely to be as long


class _Watch(TorchDispatchMode):
    """Keeps the first table of scores that goes into a softmax, an exponential or torch's own attention."""

    def __init__(self, n):
        super().__init__()
        self.n, self.scores = n, None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, str(func)
        if self.scores is None and "scaled_dot_product" in name:
            q, k = args[:2]
            self.scores = q @ k.transpose(-2, -1) * (kwargs.get("scale") or q.shape[-1] ** -0.5)
        elif self.scores is None and ("softmax" in name or name.startswith("aten.exp.")):
            table = args[0]
            self.scores = table.detach().clone() if table.shape[-2:] == (self.n, self.n) else None
        return func(*args, **kwargs)


def spread_of_scores(subject):
    """Standard deviation of the scores within a row, for unit queries and keys; None where none were seen."""
    n = PLACES if subject.length == LENGTHS[0] else subject.length  # some take short sentences only
    x = torch.randn(240 // n, n, subject.width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with borrowed(subject.module), torch.enable_grad(), _Watch(n) as watch:
        if subject.module is not None:
            orthonormal(subject.module)
        subject(F.layer_norm(x, x.shape[-1:]))  # with gradients: torch's shortcut for inference shows no scores
    if watch.scores is None:
        return None
    scores = watch.scores.detach()
    shown = scores.isfinite() & (scores > -1e4)
    count = shown.sum(-1).clamp(min=1)
    table = scores.masked_fill(~shown, 0.0)
    mean = table.sum(-1) / count
    square = table.square().sum(-1) / count - mean.square()
    enough = count > n // 2
    return (square[enough] * (count / (count - 1))[enough]).mean().sqrt().item()
