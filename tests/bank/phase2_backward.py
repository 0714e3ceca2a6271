"""sdpa_backward (NumPy): wrong solutions and unusual right ones."""

import math
from typing import NamedTuple

import numpy as np

from tests.bank import right, wrong


def _refuse(q, k, v, attn_mask):
    if q.shape[-1] != k.shape[-1]:
        raise ValueError("q and k differ in d_head")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError("k and v differ in kv_len")
    if attn_mask is not None and attn_mask.dtype != np.bool_:
        raise ValueError("attn_mask must be bool")


def _scores(q, k):
    return q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])


def _softmax(scores, attn_mask):
    """Visible softmax without NaN and without a warning."""
    if attn_mask is not None:
        scores = np.where(attn_mask, scores, -np.inf)
    highest = scores.max(axis=-1, keepdims=True)
    exps = np.exp(scores - np.where(np.isinf(highest), 0, highest).astype(scores.dtype))
    total = exps.sum(axis=-1, keepdims=True)
    return exps / np.where(total == 0, 1, total).astype(scores.dtype)


def _through_softmax(weights, d_weights):
    return weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))


def _parts(grad_out, q, k, v, attn_mask):
    """Weights and the gradient of the scaled scores."""
    _refuse(q, k, v, attn_mask)
    weights = _softmax(_scores(q, k), attn_mask)
    return weights, _through_softmax(weights, grad_out @ np.swapaxes(v, -1, -2))


# ---------------------------------------------------------------- wrong


@wrong("sdpa_backward")
def no_row_sum(grad_out, q, k, v, attn_mask=None):
    weights, _ = _parts(grad_out, q, k, v, attn_mask)
    d_scores = weights * (grad_out @ np.swapaxes(v, -1, -2)) / math.sqrt(q.shape[-1])
    return d_scores @ k, np.swapaxes(d_scores, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ grad_out


@wrong("sdpa_backward")
def diagonal_of_jacobian(grad_out, q, k, v, attn_mask=None):
    weights, _ = _parts(grad_out, q, k, v, attn_mask)
    d_scores = weights * (1 - weights) * (grad_out @ np.swapaxes(v, -1, -2)) / math.sqrt(q.shape[-1])
    return d_scores @ k, np.swapaxes(d_scores, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ grad_out


@wrong("sdpa_backward", says="dq lacks 1/√d_head")
def no_scale_in_dq(grad_out, q, k, v, attn_mask=None):
    weights, d_scores = _parts(grad_out, q, k, v, attn_mask)
    dk = np.swapaxes(d_scores, -1, -2) @ q / math.sqrt(q.shape[-1])
    return d_scores @ k, dk, np.swapaxes(weights, -1, -2) @ grad_out


@wrong("sdpa_backward", says="dk lacks 1/√d_head")
def no_scale_in_dk(grad_out, q, k, v, attn_mask=None):
    weights, d_scores = _parts(grad_out, q, k, v, attn_mask)
    dq = d_scores @ k / math.sqrt(q.shape[-1])
    return dq, np.swapaxes(d_scores, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ grad_out


@wrong("sdpa_backward")
def no_scale_in_either(grad_out, q, k, v, attn_mask=None):
    weights, d_scores = _parts(grad_out, q, k, v, attn_mask)
    return d_scores @ k, np.swapaxes(d_scores, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ grad_out


@wrong("sdpa_backward")
def unscaled_throughout(grad_out, q, k, v, attn_mask=None):
    _refuse(q, k, v, attn_mask)
    weights = _softmax(q @ np.swapaxes(k, -1, -2), attn_mask)
    d_scores = _through_softmax(weights, grad_out @ np.swapaxes(v, -1, -2))
    return d_scores @ k, np.swapaxes(d_scores, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ grad_out


@wrong("sdpa_backward", says="1/√d_head belongs there once")
def scale_twice(grad_out, q, k, v, attn_mask=None):
    weights, d_scores = _parts(grad_out, q, k, v, attn_mask)
    d_scores = d_scores / q.shape[-1]
    return d_scores @ k, np.swapaxes(d_scores, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ grad_out


@wrong("sdpa_backward")
def scale_twice_in_dq(grad_out, q, k, v, attn_mask=None):
    weights, d_scores = _parts(grad_out, q, k, v, attn_mask)
    d_scores = d_scores / math.sqrt(q.shape[-1])
    dq = d_scores @ k / math.sqrt(q.shape[-1])
    return dq, np.swapaxes(d_scores, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ grad_out


@wrong("sdpa_backward")
def dk_not_transposed(grad_out, q, k, v, attn_mask=None):
    weights, d_scores = _parts(grad_out, q, k, v, attn_mask)
    d_scores = d_scores / math.sqrt(q.shape[-1])
    return d_scores @ k, d_scores @ q, np.swapaxes(weights, -1, -2) @ grad_out


@wrong("sdpa_backward")
def dk_from_keys(grad_out, q, k, v, attn_mask=None):
    weights, d_scores = _parts(grad_out, q, k, v, attn_mask)
    d_scores = d_scores / math.sqrt(q.shape[-1])
    dk = d_scores.sum(axis=-2)[..., None] * k
    return d_scores @ k, dk, np.swapaxes(weights, -1, -2) @ grad_out


@wrong("sdpa_backward", says="dv uses the weights")
def dv_from_scores(grad_out, q, k, v, attn_mask=None):
    _, d_scores = _parts(grad_out, q, k, v, attn_mask)
    d_scores = d_scores / math.sqrt(q.shape[-1])
    scores = _scores(q, k)
    if attn_mask is not None:
        scores = scores * attn_mask
    return d_scores @ k, np.swapaxes(d_scores, -1, -2) @ q, np.swapaxes(scores, -1, -2) @ grad_out


@wrong("sdpa_backward", says="dv uses the weights")
def dv_from_unmasked_scores(grad_out, q, k, v, attn_mask=None):
    _, d_scores = _parts(grad_out, q, k, v, attn_mask)
    d_scores = d_scores / math.sqrt(q.shape[-1])
    return d_scores @ k, np.swapaxes(d_scores, -1, -2) @ q, np.swapaxes(_scores(q, k), -1, -2) @ grad_out


@wrong("sdpa_backward")
def dv_from_gradient_of_scores(grad_out, q, k, v, attn_mask=None):
    _, d_scores = _parts(grad_out, q, k, v, attn_mask)
    d_scores = d_scores / math.sqrt(q.shape[-1])
    return d_scores @ k, np.swapaxes(d_scores, -1, -2) @ q, np.swapaxes(d_scores, -1, -2) @ grad_out


@wrong("sdpa_backward")
def order_dk_dq(grad_out, q, k, v, attn_mask=None):
    weights, d_scores = _parts(grad_out, q, k, v, attn_mask)
    d_scores = d_scores / math.sqrt(q.shape[-1])
    return np.swapaxes(d_scores, -1, -2) @ q, d_scores @ k, np.swapaxes(weights, -1, -2) @ grad_out


@wrong("sdpa_backward")
def order_dv_first(grad_out, q, k, v, attn_mask=None):
    weights, d_scores = _parts(grad_out, q, k, v, attn_mask)
    d_scores = d_scores / math.sqrt(q.shape[-1])
    return np.swapaxes(weights, -1, -2) @ grad_out, d_scores @ k, np.swapaxes(d_scores, -1, -2) @ q


@wrong("sdpa_backward")
def mask_ignored(grad_out, q, k, v, attn_mask=None):
    _refuse(q, k, v, attn_mask)
    weights, d_scores = _parts(grad_out, q, k, v, None)
    d_scores = d_scores / math.sqrt(q.shape[-1])
    return d_scores @ k, np.swapaxes(d_scores, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ grad_out


@wrong("sdpa_backward")
def mask_on_gradient_only(grad_out, q, k, v, attn_mask=None):
    _refuse(q, k, v, attn_mask)
    weights, d_scores = _parts(grad_out, q, k, v, None)
    if attn_mask is not None:
        d_scores = np.where(attn_mask, d_scores, 0).astype(q.dtype)
    d_scores = d_scores / math.sqrt(q.shape[-1])
    return d_scores @ k, np.swapaxes(d_scores, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ grad_out


@wrong("sdpa_backward")
def inverted(grad_out, q, k, v, attn_mask=None):
    _refuse(q, k, v, attn_mask)
    weights, d_scores = _parts(grad_out, q, k, v, None if attn_mask is None else ~attn_mask)
    d_scores = d_scores / math.sqrt(q.shape[-1])
    return d_scores @ k, np.swapaxes(d_scores, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ grad_out


@wrong("sdpa_backward")
def nan_for_empty_row(grad_out, q, k, v, attn_mask=None):
    _refuse(q, k, v, attn_mask)
    scores = _scores(q, k)
    if attn_mask is not None:
        scores = np.where(attn_mask, scores, -np.inf)
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exps / exps.sum(axis=-1, keepdims=True)
    d_scores = _through_softmax(weights, grad_out @ np.swapaxes(v, -1, -2)) / math.sqrt(q.shape[-1])
    return d_scores @ k, np.swapaxes(d_scores, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ grad_out


@wrong("sdpa_backward")
def average_for_empty_row(grad_out, q, k, v, attn_mask=None):
    _refuse(q, k, v, attn_mask)
    scores = _scores(q, k)
    if attn_mask is not None:
        scores = np.where(attn_mask, scores, -1e9).astype(q.dtype)
    weights = _softmax(scores, None)
    d_scores = _through_softmax(weights, grad_out @ np.swapaxes(v, -1, -2)) / math.sqrt(q.shape[-1])
    return d_scores @ k, np.swapaxes(d_scores, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ grad_out


@wrong("sdpa_backward")
def always_float64(grad_out, q, k, v, attn_mask=None):
    weights, d_scores = _parts(*(part.astype(np.float64) for part in (grad_out, q, k, v)), attn_mask)
    d_scores = d_scores / math.sqrt(q.shape[-1])
    return d_scores @ k, np.swapaxes(d_scores, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ grad_out


@wrong("sdpa_backward")
def heads_summed(grad_out, q, k, v, attn_mask=None):
    weights, d_scores = _parts(grad_out, q, k, v, attn_mask)
    d_scores = d_scores / math.sqrt(q.shape[-1])
    dk = np.einsum("...qk,...qd->kd", d_scores, q)
    return d_scores @ k, dk, np.swapaxes(weights, -1, -2) @ grad_out


# ---------------------------------------------------------------- right


@right("sdpa_backward", why="the plain way, scale folded into the gradient of the scores")
def plain(grad_out, q, k, v, attn_mask=None):
    weights, d_scores = _parts(grad_out, q, k, v, attn_mask)
    d_scores = d_scores / math.sqrt(q.shape[-1])
    return d_scores @ k, np.swapaxes(d_scores, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ grad_out


@right("sdpa_backward", why="the row sum taken as grad_out · out; einsum throughout")
def row_sum_from_output(grad_out, q, k, v, attn_mask=None):
    _refuse(q, k, v, attn_mask)
    scale = q.shape[-1] ** -0.5
    weights = _softmax(np.einsum("...qd,...kd->...qk", q, k) * scale, attn_mask)
    out = np.einsum("...qk,...kv->...qv", weights, v)
    delta = np.einsum("...qv,...qv->...q", grad_out, out)[..., None]
    d_scores = weights * (np.einsum("...qv,...kv->...qk", grad_out, v) - delta)
    dq = np.einsum("...qk,...kd->...qd", d_scores, k) * scale
    dk = np.einsum("...qk,...qd->...kd", d_scores, q) * scale
    return dq, dk, np.einsum("...qk,...qv->...kv", weights, grad_out)


@right("sdpa_backward", why="a loop per row, adding into zeros, over visible keys only")
def row_by_row(grad_out, q, k, v, attn_mask=None):
    _refuse(q, k, v, attn_mask)
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    scale = 1 / math.sqrt(q.shape[-1])
    shape = (*q.shape[:-1], k.shape[-2])
    mask = np.ones(shape, dtype=bool) if attn_mask is None else np.broadcast_to(attn_mask, shape)
    for *lead, i in np.ndindex(q.shape[:-1]):
        lead = tuple(lead)
        seen = np.flatnonzero(mask[lead][i])
        if not len(seen):
            continue
        keys, values = k[lead][seen], v[lead][seen]
        weights = np.exp(keys @ q[lead][i] * scale - (keys @ q[lead][i] * scale).max())
        weights /= weights.sum()
        dv[lead][seen] += np.outer(weights, grad_out[lead][i])
        d_weights = values @ grad_out[lead][i]
        d_scores = weights * (d_weights - weights @ d_weights) * scale
        dq[lead][i] = d_scores @ keys
        dk[lead][seen] += np.outer(d_scores, q[lead][i])
    return dq, dk, dv


@right("sdpa_backward", why="explicit Jacobians of every softmax row")
def explicit_jacobians(grad_out, q, k, v, attn_mask=None):
    _refuse(q, k, v, attn_mask)
    weights = _softmax(_scores(q, k), attn_mask)
    identity = np.eye(k.shape[-2], dtype=q.dtype)
    jacobians = weights[..., :, None] * (identity - weights[..., None, :])
    d_weights = grad_out @ np.swapaxes(v, -1, -2)
    d_scores = np.matmul(jacobians, d_weights[..., None]).squeeze(-1)
    root = np.sqrt(q.shape[-1]).astype(q.dtype)
    return d_scores @ (k / root), d_scores.swapaxes(-1, -2) @ (q / root), weights.swapaxes(-1, -2) @ grad_out


@right("sdpa_backward", why="weights recomputed in blocks of two keys from a stored log-sum-exp")
def recomputed_in_blocks(grad_out, q, k, v, attn_mask=None):
    _refuse(q, k, v, attn_mask)
    weights = _softmax(_scores(q, k), attn_mask)
    delta = (grad_out * (weights @ v)).sum(axis=-1, keepdims=True)
    scores = _scores(q, k) if attn_mask is None else np.where(attn_mask, _scores(q, k), -np.inf)
    top = np.maximum(scores.max(axis=-1, keepdims=True), np.finfo(q.dtype).min)
    total = np.exp(scores - top).sum(axis=-1, keepdims=True)
    lse = top + np.log(np.where(total == 0, np.ones_like(total), total))
    dq, dk, dv = np.zeros_like(q), np.empty_like(k), np.empty_like(v)
    for start in range(0, k.shape[-2], 2):
        keys = slice(start, start + 2)
        block = np.exp(scores[..., keys] - lse)
        d_block = block * (grad_out @ np.swapaxes(v[..., keys, :], -1, -2) - delta) / math.sqrt(q.shape[-1])
        dq += d_block @ k[..., keys, :]
        dk[..., keys, :] = np.swapaxes(d_block, -1, -2) @ q
        dv[..., keys, :] = np.swapaxes(block, -1, -2) @ grad_out
    return dq, dk, dv


class Gradients(NamedTuple):
    """A named tuple is a tuple."""

    dq: np.ndarray
    dk: np.ndarray
    dv: np.ndarray


@right("sdpa_backward", why="recursion over the leading axes, the result as a named tuple")
def named_gradients(grad_out, q, k, v, attn_mask=None):
    _refuse(q, k, v, attn_mask)
    if attn_mask is not None:
        attn_mask = np.broadcast_to(attn_mask, (*q.shape[:-1], k.shape[-2]))
    if q.ndim > 2:
        masks = [None] * len(q) if attn_mask is None else attn_mask
        parts = [named_gradients(*each) for each in zip(grad_out, q, k, v, masks, strict=True)]
        return Gradients(*(np.stack(part) for part in zip(*parts, strict=True)))
    weights = _softmax(_scores(q, k), attn_mask)
    centred = v[None, :, :] - (weights @ v)[:, None, :]
    d_scores = weights * (grad_out[:, None, :] * centred).sum(-1) / math.sqrt(q.shape[-1])
    return Gradients(dq=d_scores.dot(k), dk=d_scores.T.dot(q), dv=weights.T.dot(grad_out))
