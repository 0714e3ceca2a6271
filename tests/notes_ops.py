"""Compute the worked numbers of the notes again, independently of the data and of the course.

Each function below this file's siblings takes the inputs of an example by name and returns what comes out.
Which examples it serves stands in its decorator, so the data file needs to know nothing of the tests.
"""

import math
from fnmatch import fnmatchcase

import numpy as np
import torch

_CLAIMS = []


def recomputes(*patterns):
    """Say which examples a function serves: ids, or patterns such as "001-exp-row*"."""

    def claim(function):
        _CLAIMS.extend((pattern, function) for pattern in patterns)
        return function

    return claim


def functions_for(example_id):
    """Return every function that claims this example; exactly one is right."""
    return {function for pattern, function in _CLAIMS if fnmatchcase(example_id, pattern)}


def unused_patterns(ids):
    """Return the patterns that match no example: a renamed id or a slip of the pen."""
    return [pattern for pattern, _ in _CLAIMS if not any(fnmatchcase(known, pattern) for known in ids)]


def exact(values):
    """Return a float64 tensor, the only kind of number used for recomputing."""
    return torch.as_tensor(values, dtype=torch.float64)


def standardise(x, eps=0.0):
    """Return x with mean 0 and variance 1 along the last axis, from torch's own layer norm."""
    x = exact(x)
    return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=eps)


def sinusoids(positions, width):
    """Return the sine and cosine table as the imaginary and real parts of turning unit vectors."""
    speed = 10_000.0 ** (-np.arange(0, width, 2) / width)
    turned = np.exp(1j * np.outer(np.asarray(positions, dtype=float), speed))
    return np.stack([turned.imag, turned.real], axis=-1).reshape(len(turned), width)


def attention_of(x, w_q, w_k, w_v, hidden=None):
    """Return one head of self-attention by torch's own kernel; hidden (seq_len, seq_len) True = may not attend."""
    x, w_q, w_k, w_v = (exact(part) for part in (x, w_q, w_k, w_v))
    may_attend = None if hidden is None else ~torch.as_tensor(hidden)
    return torch.nn.functional.scaled_dot_product_attention(x @ w_q, x @ w_k, x @ w_v, attn_mask=may_attend)


def largest(difference):
    """Return the largest absolute entry as a float."""
    return float(np.abs(np.asarray(difference)).max())


def growth(count):
    """Return the power with which count(n) grows, read off by doubling a large n."""
    n = 4096
    return round(math.log2(count(2 * n) / count(n)))


def plain(value):
    """Return tensors, arrays and tuples as nested lists of Python values, so that they compare with the data."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value
