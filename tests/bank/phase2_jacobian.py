"""softmax_jacobian and softmax_backward (NumPy): wrong solutions and unusual right ones."""

import numpy as np

from tests.bank import right, wrong


def _diagonals(entries):
    return entries[..., :, None] * np.eye(entries.shape[-1], dtype=entries.dtype)


# ---------------------------------------------------------------- softmax_jacobian, wrong


@wrong("softmax_jacobian", says="off-diagonal terms are missing")
def diagonal_only(probs):
    return _diagonals(probs * (1 - probs))


@wrong("softmax_jacobian", says="off-diagonal terms are missing")
def diagonal_only_by_loop(probs):
    jacobian = np.zeros((*probs.shape, probs.shape[-1]), dtype=probs.dtype)
    for i in range(probs.shape[-1]):
        jacobian[..., i, i] = probs[..., i] * (1 - probs[..., i])
    return jacobian


@wrong("softmax_jacobian")
def minus_outer_only(probs):
    return -probs[..., :, None] * probs[..., None, :]


@wrong("softmax_jacobian")
def outer_with_zero_diagonal(probs):
    size = probs.shape[-1]
    return -probs[..., :, None] * probs[..., None, :] * (1 - np.eye(size, dtype=probs.dtype))


@wrong("softmax_jacobian", says="one matrix per row")
def batch_flattened(probs):
    flat = probs.reshape(-1)
    return np.diag(flat) - np.outer(flat, flat)


@wrong("softmax_jacobian", says="one matrix per row")
def summed_over_rows(probs):
    rows = probs.reshape(-1, probs.shape[-1])
    return np.diag(rows.sum(0)) - rows.T @ rows


@wrong("softmax_jacobian")
def first_row_for_all(probs):
    first = probs.reshape(-1, probs.shape[-1])[0]
    return np.broadcast_to(np.diag(first) - np.outer(first, first), (*probs.shape, probs.shape[-1])).copy()


@wrong("softmax_jacobian")
def opposite_sign(probs):
    return probs[..., :, None] * probs[..., None, :] - _diagonals(probs)


@wrong("softmax_jacobian")
def plus_outer(probs):
    return _diagonals(probs) + probs[..., :, None] * probs[..., None, :]


@wrong("softmax_jacobian", says="the diagonal is p(1−p)")
def identity_minus_outer(probs):
    return np.eye(probs.shape[-1], dtype=probs.dtype) - probs[..., :, None] * probs[..., None, :]


@wrong("softmax_jacobian")
def rows_only_scaled(probs):
    return probs[..., :, None] * (np.eye(probs.shape[-1], dtype=probs.dtype) - probs[..., :, None])


@wrong("softmax_jacobian")
def always_float64(probs):
    wide = probs.astype(np.float64)
    return _diagonals(wide) - wide[..., :, None] * wide[..., None, :]


@wrong("softmax_jacobian")
def batch_of_rows_only(probs):
    return np.stack([np.diag(row) - np.outer(row, row) for row in np.atleast_2d(probs)])


@wrong("softmax_jacobian")
def probs_normalised_first(probs):
    exps = np.exp(probs - probs.max(-1, keepdims=True))
    probs = exps / exps.sum(-1, keepdims=True)
    return _diagonals(probs) - probs[..., :, None] * probs[..., None, :]


# ---------------------------------------------------------------- softmax_jacobian, right


@right("softmax_jacobian", why="p_i (δ_ij − p_j) by broadcasting")
def broadcast(probs):
    delta = np.eye(probs.shape[-1], dtype=probs.dtype)
    return probs[..., :, None] * (delta - probs[..., None, :])


@right("softmax_jacobian", why="einsum")
def einsum(probs):
    size = probs.shape[-1]
    delta = np.identity(size, dtype=probs.dtype)
    return np.einsum("...i,ij->...ij", probs, delta) - np.einsum("...i,...j->...ij", probs, probs)


@right("softmax_jacobian", why="diagflat per row, for any leading axes")
def diagflat_per_row(probs):
    size = probs.shape[-1]
    rows = [np.diagflat(row) - np.outer(row, row) for row in probs.reshape(-1, size)]
    return np.array(rows, dtype=probs.dtype).reshape(probs.shape + (size,))


@right("softmax_jacobian", why="writes p onto the diagonal of −p pᵀ in place")
def diagonal_in_place(probs):
    column = np.expand_dims(probs, -1)
    jacobian = -(column @ np.swapaxes(column, -1, -2))
    places = np.arange(probs.shape[-1])
    jacobian[..., places, places] += probs
    return jacobian


@right("softmax_jacobian", why="np.apply_along_axis, then a reshape")
def along_axis(probs):
    flat = np.apply_along_axis(lambda row: (np.diag(row) - np.multiply.outer(row, row)).ravel(), -1, probs)
    return flat.reshape(*probs.shape, probs.shape[-1])


@right("softmax_jacobian", why="two loops over ndindex; diagonal entries as minus the sum of the others")
def rows_sum_to_zero(probs):
    size = probs.shape[-1]
    jacobian = np.zeros((*probs.shape, size), dtype=probs.dtype)
    for place in np.ndindex(probs.shape):
        jacobian[place] = -probs[place] * probs[place[:-1]]
        jacobian[place][place[-1]] = probs[place] * (1 - probs[place])
    return jacobian


# ---------------------------------------------------------------- softmax_backward, wrong


@wrong("softmax_backward", says="the row sum is missing")
def probs_times_grad(probs, grad):
    return probs * grad


@wrong("softmax_backward", says="only the diagonal was used")
def diagonal_times_grad(probs, grad):
    return probs * (1 - probs) * grad


@wrong("softmax_backward")
def sum_over_first_axis(probs, grad):
    return probs * (grad - (probs * grad).sum(axis=0, keepdims=True))


@wrong("softmax_backward")
def sum_over_rows(probs, grad):
    axis = max(-2, -probs.ndim)
    return probs * (grad - (probs * grad).sum(axis=axis, keepdims=True))


@wrong("softmax_backward")
def sum_over_everything(probs, grad):
    return probs * (grad - (probs * grad).sum())


@wrong("softmax_backward", says="the row sum is weighted by p as well")
def unweighted_row_sum(probs, grad):
    weighted = probs * grad
    return weighted - weighted.sum(axis=-1, keepdims=True)


@wrong("softmax_backward")
def plain_sum_of_grad(probs, grad):
    return probs * (grad - grad.sum(axis=-1, keepdims=True))


@wrong("softmax_backward")
def mean_of_grad(probs, grad):
    return probs * (grad - grad.mean(axis=-1, keepdims=True))


@wrong("softmax_backward")
def keepdims_forgotten(probs, grad):
    return probs * (grad - (probs * grad).sum(axis=-1))


@wrong("softmax_backward")
def negative(probs, grad):
    return probs * ((probs * grad).sum(axis=-1, keepdims=True) - grad)


@wrong("softmax_backward")
def grad_overwritten(probs, grad):
    grad -= (probs * grad).sum(axis=-1, keepdims=True)
    grad *= probs
    return grad


@wrong("softmax_backward")
def wide_backward(probs, grad):
    probs, grad = probs.astype(np.float64), grad.astype(np.float64)
    return probs * (grad - (probs * grad).sum(axis=-1, keepdims=True))


@wrong("softmax_backward")
def empty_row_divided(probs, grad):
    total = probs.sum(axis=-1, keepdims=True)
    return probs * (grad - (probs * grad).sum(axis=-1, keepdims=True) / total)


# ---------------------------------------------------------------- softmax_backward, right


@right("softmax_backward", why="p ∘ (g − Σ p g)")
def centred(probs, grad):
    return probs * (grad - (probs * grad).sum(axis=-1, keepdims=True))


@right("softmax_backward", why="p g − p Σ p g")
def two_terms(probs, grad):
    weighted = probs * grad
    return weighted - probs * weighted.sum(-1)[..., None]


@right("softmax_backward", why="einsum for the row sum")
def einsum_row_sum(probs, grad):
    return probs * (grad - np.expand_dims(np.einsum("...i,...i", probs, grad), -1))


@right("softmax_backward", why="through the whole Jacobian")
def through_jacobian(probs, grad):
    jacobian = probs[..., :, None] * (np.eye(probs.shape[-1], dtype=probs.dtype) - probs[..., None, :])
    return (jacobian @ grad[..., None])[..., 0]


@right("softmax_backward", why="sums the differences to every other entry: Σ_j p_i p_j (g_i − g_j) + p_i (1 − Σ p) g_i")
def pairwise_differences(probs, grad):
    differences = grad[..., :, None] - grad[..., None, :]
    rest = 1 - probs.sum(axis=-1, keepdims=True)
    return probs * ((probs[..., None, :] * differences).sum(axis=-1) + rest * grad)


@right("softmax_backward", why="row by row into an own buffer, in place")
def own_buffer(probs, grad):
    out = np.empty_like(grad)
    for place in np.ndindex(probs.shape[:-1]):
        np.subtract(grad[place], np.dot(probs[place], grad[place]), out=out[place])
        out[place] *= probs[place]
    return out
