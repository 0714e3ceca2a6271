"""softmax_jacobian, softmax_backward, sdpa_backward: gradients by hand, in NumPy."""

import numpy as np
import torch

from utils import oracle
from utils.checks.draw import given, mask, probs
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase2 import PHASE, rules


def rows(*values):
    return given(lambda generator, others: torch.tensor(values, dtype=torch.float64))


def some_zero_rows(*shape):
    def draw(generator, others):
        table = probs(*shape).draw(generator, others)
        table[..., 1, :] = 0.0
        return table

    return given(draw)


def outer(p):
    return p[..., :, None] * p[..., None, :]


def diagonal(values):
    return values[..., None] * np.eye(values.shape[-1], dtype=values.dtype)


BY_HAND = dict(phase=PHASE, library="numpy", grad=False, bans=("attention", "autograd"), fresh=True)

register(
    expected=oracle.softmax_jacobian,
    section="2.6",
    hint="row i, column j: p_i (δ_ij - p_j); one matrix for each row of probabilities.",
    cases=(
        case("five probabilities", dict(probs=probs(5))),
        case("three rows", dict(probs=probs(3, 5))),
        case("two leading axes", dict(probs=probs(2, 3, 4))),
        case("as many rows as probabilities", dict(probs=probs(4, 4))),
        case("one probability", dict(probs=rows(1.0)), kind="edge"),
        case("one-hot", dict(probs=rows(0.0, 1.0, 0.0)), kind="edge"),
        case("a two-way tie", dict(probs=rows(0.5, 0.5, 0.0)), kind="edge"),
        case("an empty row", dict(probs=some_zero_rows(3, 4)), kind="edge"),
    ),
    mistakes={
        "off-diagonal terms are missing": lambda probs: diagonal(probs * (1 - probs)),
        "the diagonal is missing: p_i (1 - p_i)": lambda probs: -outer(probs),
        "one matrix per row": Spotted(
            rules.one_matrix_for_all_rows,
            lambda probs: oracle.softmax_jacobian(probs.reshape(-1)),
        ),
        "the sign is turned round": lambda probs: -oracle.softmax_jacobian(probs),
        "the diagonal is p(1−p)": lambda probs: np.eye(probs.shape[-1], dtype=probs.dtype) - outer(probs),
    },
    **BY_HAND,
)

register(
    expected=oracle.softmax_backward,
    section="2.6",
    hint="p times (g minus the row's sum of p·g).",
    cases=(
        case("three rows", dict(probs=probs(3, 5), grad=(3, 5))),
        case("one row", dict(probs=probs(6), grad=(6,))),
        case("two leading axes", dict(probs=probs(2, 3, 4), grad=(2, 3, 4))),
        case("as many rows as probabilities", dict(probs=probs(4, 4), grad=(4, 4))),
        case("three leading axes", dict(probs=probs(2, 3, 5, 7), grad=(2, 3, 5, 7))),
        case("rows of zeros", dict(probs=some_zero_rows(3, 5), grad=(3, 5)), kind="edge"),
        case("one probability", dict(probs=rows(1.0), grad=(1,)), kind="edge"),
        case("one-hot", dict(probs=rows(0.0, 1.0, 0.0), grad=(3,)), kind="edge"),
    ),
    mistakes={
        "the row sum is missing": lambda probs, grad: probs * grad,
        "only the diagonal was used": lambda probs, grad: probs * (1 - probs) * grad,
        "the sum runs over the last axis, one per row": lambda probs, grad: (
            probs * (grad - (probs * grad).sum(0, keepdims=True))
        ),
        "the row sum is weighted by p as well": lambda probs, grad: (
            probs * grad - (probs * grad).sum(-1, keepdims=True)
        ),
        "the sum is of p·g, not of g": lambda probs, grad: probs * (grad - grad.sum(-1, keepdims=True)),
    },
    **BY_HAND,
)


def root(q):
    return np.sqrt(q.shape[-1]).astype(q.dtype)


def changed(change):
    """A wrong twin: change(dq, dk, dv, q) on the right answer."""
    return lambda grad_out, q, k, v, attn_mask=None: change(*oracle.sdpa_backward(grad_out, q, k, v, attn_mask), q)


def weights_of(q, k, attn_mask):
    masked = None if attn_mask is None else torch.from_numpy(attn_mask)
    return oracle.attention_weights(torch.from_numpy(q), torch.from_numpy(k), masked).numpy()


def no_row_sum(grad_out, q, k, v, attn_mask=None):
    p = weights_of(q, k, attn_mask)
    slope = p * (grad_out @ v.swapaxes(-1, -2)) / root(q)
    return slope @ k, slope.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ grad_out


def values_from(table):
    """dv from another table than the weights: table(q, k, attn_mask)."""

    def wrong(grad_out, q, k, v, attn_mask=None):
        dq, dk, _ = oracle.sdpa_backward(grad_out, q, k, v, attn_mask)
        return dq, dk, table(q, k, attn_mask).astype(q.dtype).swapaxes(-1, -2) @ grad_out

    return wrong


def averaged_rows(grad_out, q, k, v, attn_mask=None):
    """Empty rows see everything, but hidden scores pass no gradient: what a fill of -1e9 does."""
    if attn_mask is None:
        return oracle.sdpa_backward(grad_out, q, k, v)
    empty = np.broadcast_to(~attn_mask.any(-1, keepdims=True), grad_out.shape[:-1] + (1,))
    dq, dk, dv = oracle.sdpa_backward(grad_out, q, k, v, attn_mask)
    return (
        dq,
        dk,
        dv + (np.broadcast_to(empty / k.shape[-2], grad_out.shape[:-1] + (k.shape[-2],))).swapaxes(-1, -2) @ grad_out,
    )


def nan_rows(grad_out, q, k, v, attn_mask=None):
    scores = q @ k.swapaxes(-1, -2) / root(q)
    if attn_mask is not None:
        scores = np.where(attn_mask, scores, -np.inf)
    with np.errstate(invalid="ignore"):
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p = p / p.sum(-1, keepdims=True)
        slope = p * (grad_out @ v.swapaxes(-1, -2))
        slope = (slope - p * slope.sum(-1, keepdims=True)) / root(q)
    return slope @ k, slope.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ grad_out


HEADS = dict(grad_out=(2, 3, 5, 6), q=(2, 3, 5, 4), k=(2, 3, 7, 4), v=(2, 3, 7, 6))
SQUARE = dict(grad_out=(2, 4, 4), q=(2, 4, 4), k=(2, 4, 4), v=(2, 4, 4))

register(
    expected=oracle.sdpa_backward,
    section="2.7",
    hint="walk back: out = P V, then the softmax, then scores = Q Kᵀ/√d_head.",
    cases=(
        case("one sentence", dict(grad_out=(5, 6), q=(5, 4), k=(7, 4), v=(7, 6))),
        case("batch and heads", HEADS),
        case("a mask", HEADS | dict(attn_mask=mask(2, 3, 5, 7))),
        case(
            "one leading axis, one mask",
            dict(grad_out=(3, 5, 2), q=(3, 5, 4), k=(3, 7, 4), v=(3, 7, 2), attn_mask=mask(5, 7)),
        ),
        case("a mask per head, no batch axis", HEADS | dict(attn_mask=mask(3, 5, 7))),
        case("a mask per head and query", HEADS | dict(attn_mask=mask(1, 3, 5, 7))),
        case("a mask per batch row", HEADS | dict(attn_mask=mask(2, 1, 1, 7))),
        case("all sizes alike", SQUARE | dict(attn_mask=mask(2, 4, 4))),
        case("one query", dict(grad_out=(2, 1, 6), q=(2, 1, 4), k=(2, 7, 4), v=(2, 7, 6))),
        case("one key", dict(grad_out=(2, 5, 6), q=(2, 5, 4), k=(2, 1, 4), v=(2, 1, 6))),
        case("more queries than keys", dict(grad_out=(7, 6), q=(7, 5), k=(3, 5), v=(3, 6), attn_mask=mask(7, 3))),
        case("d_head 1", dict(grad_out=(5, 6), q=(5, 1), k=(7, 1), v=(7, 6))),
        case(
            "a row with nothing to see",
            HEADS | dict(attn_mask=mask(2, 3, 5, 7, empty=[(0, 0, 2), (1, 2, 4)])),
            kind="edge",
        ),
        case("whole rows hidden by a mask of width 1", HEADS | dict(attn_mask=mask(2, 1, 5, 1)), kind="edge"),
    ),
    mistakes={
        "the row sum of the softmax is missing": no_row_sum,
        "dq lacks 1/√d_head": changed(lambda dq, dk, dv, q: (dq * root(q), dk, dv)),
        "dk lacks 1/√d_head": changed(lambda dq, dk, dv, q: (dq, dk * root(q), dv)),
        "dq and dk lack 1/√d_head": changed(lambda dq, dk, dv, q: (dq * root(q), dk * root(q), dv)),
        "1/√d_head belongs there once": changed(lambda dq, dk, dv, q: (dq / root(q), dk / root(q), dv)),
        "dv uses the weights": Replays(
            values_from(lambda q, k, seen: q @ k.swapaxes(-1, -2) / root(q)),
            values_from(lambda q, k, seen: q @ k.swapaxes(-1, -2)),
            values_from(
                lambda q, k, seen: np.where(True if seen is None else seen, q @ k.swapaxes(-1, -2) / root(q), 0)
            ),
        ),
        "the order is dq, dk, dv": changed(lambda dq, dk, dv, q: (dk, dq, dv)),
        "the mask was ignored": lambda grad_out, q, k, v, attn_mask=None: oracle.sdpa_backward(grad_out, q, k, v),
        "True means may attend": lambda grad_out, q, k, v, attn_mask=None: oracle.sdpa_backward(
            grad_out, q, k, v, None if attn_mask is None else ~attn_mask
        ),
        "a fully masked row must give zeros": nan_rows,
        "a row with nothing to see became an average": averaged_rows,
    },
    **BY_HAND,
)
