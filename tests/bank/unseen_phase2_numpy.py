"""Unseen answers to the NumPy exercises softmax_jacobian, softmax_backward and sdpa_backward."""

import math

import numpy as np
import torch

from tests.bank import right, wrong

# softmax_jacobian, wrong --------------------------------------------------------------------------------------------


@wrong("softmax_jacobian", says=None)
def identity_in_double(probs):
    """Breaks "dtype of probs": np.eye is float64, and so is the answer to float32."""
    return probs[..., :, None] * (np.eye(probs.shape[-1]) - probs[..., None, :])


@wrong("softmax_jacobian", says=None)
def equal_numbers_are_the_same_place(probs):
    """Breaks J_ij = p_i (δ_ij − p_j) at (½, ½, 0): δ compares the probabilities, not the places."""
    row, column = probs[..., :, None], probs[..., None, :]
    return row * ((row == column).astype(probs.dtype) - column)


@wrong("softmax_jacobian", says=None)
def never_quite_zero(probs):
    """Breaks "zero at a one-hot": probabilities are kept at least 1e-6 away from 0 and 1."""
    probs = np.clip(probs, 1e-6, 1 - 1e-6)
    out = -probs[..., :, None] * probs[..., None, :]
    diagonal = np.arange(probs.shape[-1])
    out[..., diagonal, diagonal] += probs
    return out


@wrong("softmax_jacobian", says=None)
def by_forward_differences(probs):
    """Breaks rule 4 (rtol 1e-7): differences of the softmax of log p with a step of 1e-5 are good to 1e-6 only."""
    out = np.empty((*probs.shape, probs.shape[-1]), probs.dtype)
    start = np.log(np.maximum(probs, 1e-30)).astype(np.float64)
    for j in range(probs.shape[-1]):
        exps = np.exp(start + 1e-5 * (np.arange(probs.shape[-1]) == j))
        out[..., j] = (exps / exps.sum(-1, keepdims=True) - probs) / 1e-5
    return out


@wrong("softmax_jacobian", says=None)
def two_axes_at_most(probs):
    """Breaks "any leading axes": two of them come back as one."""
    rows = probs.reshape(-1, probs.shape[-1])
    tables = np.stack([np.diag(row) - np.outer(row, row) for row in rows])
    return tables[0] if probs.ndim == 1 else tables


@wrong("softmax_jacobian", says=None)
def gives_back_a_tensor(probs):
    """Breaks "(NumPy)": the numbers are right, but it is a torch tensor."""
    probs = torch.from_numpy(probs)
    return torch.diag_embed(probs) - probs.unsqueeze(-1) * probs.unsqueeze(-2)


@wrong("softmax_jacobian", says=None)
def works_in_the_argument(probs):
    """Breaks rule 6: the caller's probabilities are negated where they stand."""
    out = probs[..., :, None] * (np.eye(probs.shape[-1], dtype=probs.dtype) - probs[..., None, :])
    np.negative(probs, out=probs)
    return out


# softmax_jacobian, right --------------------------------------------------------------------------------------------


@right("softmax_jacobian", why="vectorised over rows by a signature; written into a float64 table first")
def one_table_per_row(p):
    def table(row):
        return np.array([[row[i] * ((i == j) - row[j]) for j in range(len(row))] for i in range(len(row))])

    return np.vectorize(table, signature="(n)->(n,n)", otypes=[float])(p).astype(p.dtype)


@right("softmax_jacobian", why="the diagonal is a strided view of the negative outer product")
def along_a_strided_diagonal(probs):
    n = probs.shape[-1]
    out = -np.einsum("...i,...j->...ij", probs, probs)
    flat = out.reshape(*probs.shape[:-1], n * n)
    flat[..., :: n + 1] += probs
    return flat.reshape(out.shape)


# softmax_backward, wrong --------------------------------------------------------------------------------------------


@wrong("softmax_backward", says=None)
def renormalises_first(probs, grad):
    """Breaks "Rows of zeros give zeros": rows are divided by their sums, 0 / 0 for an empty one."""
    with np.errstate(all="ignore"):
        probs = probs / probs.sum(-1, keepdims=True)
    return probs * (grad - (probs * grad).sum(-1, keepdims=True))


@wrong("softmax_backward", says=None)
def row_sums_meet_the_columns(probs, grad):
    """Breaks "Last axis": the row sums meet the columns; right for one row, silent for a square."""
    return probs * (grad - (probs * grad).sum(-1))


@wrong("softmax_backward", says=None)
def works_in_the_gradient(probs, grad):
    """Breaks "arguments unchanged": grad is the workspace and the result."""
    grad -= (probs * grad).sum(-1, keepdims=True)
    grad *= probs
    return grad


@wrong("softmax_backward", says=None)
def always_float64(probs, grad):
    """Breaks rule 4: float32 arguments give a float64 result."""
    probs, grad = probs.astype(np.float64), grad.astype(np.float64)
    return probs * (grad - (probs * grad).sum(-1, keepdims=True))


@wrong("softmax_backward", says=None)
def one_sum_per_example(probs, grad):
    """Breaks "Last axis" with two leading axes: the sum runs over everything behind the first."""
    axes = tuple(range(1, probs.ndim)) or (0,)
    return probs * (grad - (probs * grad).sum(axis=axes, keepdims=True))


@wrong("softmax_backward", says=None)
def through_single_precision(probs, grad):
    """Breaks rule 4 (rtol 1e-7): float64 is rounded to float32 on the way."""
    small, slope = probs.astype(np.float32), grad.astype(np.float32)
    return (small * (slope - (small * slope).sum(-1, keepdims=True))).astype(probs.dtype)


# softmax_backward, right --------------------------------------------------------------------------------------------


@right("softmax_backward", why="pairs: p_i Σ_j p_j (g_i − g_j) plus what a row's sum lacks to 1")
def pair_by_pair(probs, slopes):
    gaps = slopes[..., :, None] - slopes[..., None, :]
    mixed = np.einsum("...i,...j,...ij->...i", probs, probs, gaps)
    rest = 1 - probs.sum(-1, keepdims=True)
    return mixed + probs * slopes * rest


@right("softmax_backward", why="row by row with a fused dot product, gathered by apply_along_axis")
def row_by_row(probs, grad):
    n = probs.shape[-1]

    def one(both):
        p, g = both[:n], both[n:]
        return p * g - p * np.dot(p, g)

    return np.apply_along_axis(one, -1, np.concatenate([probs, grad], -1))


# sdpa_backward ------------------------------------------------------------------------------------------------------


def _weights(q, k, attn_mask, scale):
    scores = q @ np.swapaxes(k, -1, -2) * scale
    if attn_mask is not None:
        if attn_mask.dtype != bool:
            raise ValueError("attn_mask must be bool")
        scores = np.where(attn_mask, scores, scores.dtype.type(-np.inf))
    top = scores.max(-1, keepdims=True)
    exps = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = exps.sum(-1, keepdims=True)
    return exps / np.where(total == 0, 1, total)


def _backward(grad_out, q, k, v, attn_mask=None, scale=None):
    """The sound version that most answers below break in one place."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    weights = _weights(q, k, attn_mask, scale)
    slope = grad_out @ np.swapaxes(v, -1, -2)
    slope = weights * (slope - (weights * slope).sum(-1, keepdims=True)) * scale
    return slope @ k, np.swapaxes(slope, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ grad_out


@wrong("sdpa_backward", says=None)
def a_root_of_numpy(grad_out, q, k, v, attn_mask=None):
    """Breaks rule 4: np.sqrt gives a float64 number, and NumPy 2 then answers float32 with float64."""
    return _backward(grad_out, q, k, v, attn_mask, 1 / np.sqrt(q.shape[-1]))


@wrong("sdpa_backward", says=None)
def root_in_whole_numbers(grad_out, q, k, v, attn_mask=None):
    """Breaks the scale 1/√d_head: right for widths 1, 4, 9 and 16 only."""
    return _backward(grad_out, q, k, v, attn_mask, 1 / math.isqrt(q.shape[-1]))


@wrong("sdpa_backward", says=None)
def width_of_the_values(grad_out, q, k, v, attn_mask=None):
    """Breaks the scale 1/√d_head where d_v ≠ d_head."""
    return _backward(grad_out, q, k, v, attn_mask, v.shape[-1] ** -0.5)


@wrong("sdpa_backward", says=None)
def an_empty_row_reaches_the_values(grad_out, q, k, v, attn_mask=None):
    """Breaks rule 7: dq and dk are right, but an empty row gives its average weight to dv."""
    dq, dk, dv = _backward(grad_out, q, k, v, attn_mask)
    if attn_mask is not None:
        empty = np.broadcast_to(~attn_mask.any(-1, keepdims=True), (*q.shape[:-1], k.shape[-2]))
        dv = dv + np.swapaxes(empty / k.shape[-2], -1, -2).astype(q.dtype) @ grad_out
    return dq, dk, dv


@wrong("sdpa_backward", says=None)
def picks_by_the_mask(grad_out, q, k, v, attn_mask=None):
    """Breaks "possibly a smaller mask": indexing by a bool array needs the full shape."""
    if attn_mask is not None:
        np.zeros((*q.shape[:-1], k.shape[-2]))[~attn_mask] = 1
    return _backward(grad_out, q, k, v, attn_mask)


@wrong("sdpa_backward", says=None)
def all_axes_turned_round(grad_out, q, k, v, attn_mask=None):
    """Breaks "Shapes as in sdpa": `.T` turns the leading axes round too, so it serves two axes only."""
    scale = q.shape[-1] ** -0.5
    weights = _weights(q, k, attn_mask, scale)
    slope = grad_out @ v.T
    slope = weights * (slope - (weights * slope).sum(-1, keepdims=True)) * scale
    return slope @ k, slope.T @ q, weights.T @ grad_out


@wrong("sdpa_backward", says=None)
def mask_of_the_first_example(grad_out, q, k, v, attn_mask=None):
    """Breaks rule 7 (masks differ between batch rows): the first example's mask serves all."""
    if attn_mask is not None and attn_mask.ndim > 2:
        attn_mask = attn_mask[:1]
    return _backward(grad_out, q, k, v, attn_mask)


@wrong("sdpa_backward", says=None)
def inverts_the_mask_in_place(grad_out, q, k, v, attn_mask=None):
    """Breaks rule 6: the caller's mask comes back inverted."""
    out = _backward(grad_out, q, k, v, attn_mask)
    if attn_mask is not None:
        np.logical_not(attn_mask, out=attn_mask)
    return out


@wrong("sdpa_backward", says=None)
def writes_dq_over_q(grad_out, q, k, v, attn_mask=None):
    """Breaks "three new arrays": dq is written into q."""
    dq, dk, dv = _backward(grad_out, q, k, v, attn_mask)
    np.copyto(q, dq)
    return q, dk, dv


@wrong("sdpa_backward", says=None)
def gives_back_tensors(grad_out, q, k, v, attn_mask=None):
    """Breaks "arrays in, three new arrays out": the numbers are right, but they are torch tensors."""
    return tuple(torch.from_numpy(part) for part in _backward(grad_out, q, k, v, attn_mask))


@wrong("sdpa_backward", says=None)
def mask_for_the_scores_alone(grad_out, q, k, v, attn_mask=None):
    """Breaks dv and the row sums: the mask is applied to the gradient of the scores, not to the weights."""
    scale = q.shape[-1] ** -0.5
    weights = _weights(q, k, None, scale)
    slope = grad_out @ np.swapaxes(v, -1, -2)
    slope = weights * (slope - (weights * slope).sum(-1, keepdims=True)) * scale
    if attn_mask is not None:
        slope = np.where(attn_mask, slope, slope.dtype.type(0))
    return slope @ k, np.swapaxes(slope, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ grad_out


@right("sdpa_backward", why="every query handles the keys it may see and no others; float64 inside")
def one_query_at_a_time(grad_out, q, k, v, attn_mask=None):
    if attn_mask is not None and attn_mask.dtype != bool:
        raise ValueError("attn_mask must be bool")
    size = (*q.shape[:-1], k.shape[-2])
    seen = np.ones(size, bool) if attn_mask is None else np.broadcast_to(attn_mask, size)
    dq, dk, dv = (np.zeros(x.shape) for x in (q, k, v))
    for place in np.ndindex(q.shape[:-1]):
        lead, open_ = place[:-1], np.flatnonzero(seen[place])
        if not open_.size:
            continue
        query, keys, values = q[place].astype(float), k[lead][open_].astype(float), v[lead][open_]
        logits = keys @ query / math.sqrt(q.shape[-1])
        weights = np.exp(logits - logits.max())
        weights /= weights.sum()
        slope = values @ grad_out[place]
        slope = weights * (slope - weights @ slope) / math.sqrt(q.shape[-1])
        dq[place] = slope @ keys
        dk[lead][open_] += np.outer(slope, query)
        dv[lead][open_] += np.outer(weights, grad_out[place])
    return dq.astype(q.dtype), dk.astype(k.dtype), dv.astype(v.dtype)


@right("sdpa_backward", why="einsum throughout, and the row sum is taken as Σ grad_out · out")
def row_sum_from_the_output(grad, queries, keys, values, attn_mask=None):
    scale = 1 / math.sqrt(queries.shape[-1])
    weights = _weights(queries, keys, attn_mask, scale)
    out = np.einsum("...qk,...kv->...qv", weights, values)
    row = np.einsum("...qv,...qv->...q", grad, out)[..., None]
    slope = weights * (np.einsum("...qv,...kv->...qk", grad, values) - row) * scale
    dq = np.einsum("...qk,...kd->...qd", slope, keys)
    dk = np.einsum("...qk,...qd->...kd", slope, queries)
    return dq, dk, np.einsum("...qk,...qv->...kv", weights, grad)
