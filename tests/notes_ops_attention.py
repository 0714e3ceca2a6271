"""Recompute the numbers of phase 2: projections, scores, softmax, masks and what attention is a function of."""

import ast
import operator

import numpy as np
import torch

from tests.notes_ops import attention_of, exact, largest, recomputes


@recomputes("000-q-*", "001-[qkv]", "001-output")
def projected(A, B):
    return {"result": torch.einsum("ij,jk->ik", exact(A), exact(B))}


@recomputes("001-scores", "002-sdpa-scores")
def every_dot_product(A, B):
    return {"result": torch.einsum("qd,kd->qk", exact(A), exact(B))}


@recomputes("000-scaling", "001-scaled", "002-sdpa-scaled", "000-cross-attn-scaled", "002-sqrt-64")
def scaled(S, d_k):
    root = d_k**0.5
    return {"sqrt_dk": root, "result": exact(S).div(root)}


@recomputes("000-softmax-row-*", "000-output-softmax")
def softmax_by_hand(z):
    powers = exact(z).exp()
    return {"exp": powers, "sum": powers.sum(), "softmax": powers / powers.sum()}


@recomputes("001-shifted-row*", "001-exp-row*", "001-softmax-row*")
def softmax_below_its_peak(z):
    below = exact(z) - max(z)
    return {"shifted": below, "exp": below.exp(), "sum": below.exp().sum(), "softmax": exact(z).softmax(-1)}


@recomputes("001-sum-row*", "001-softmax-quotient-row*")
def quotients_as_printed(exp, sum):
    return {"sum": float(np.sum(exp)), "softmax": exact(exp) / sum}


@recomputes(
    "000-mask-row-el", "000-cross-attn-softmax*", "002-sdpa-softmax", "002-padding-softmax", "002-causal-softmax*"
)
def weights_of_scores(z):
    return {"softmax": exact(z).softmax(-1)}


@recomputes("000-attention-row-sums", "001-a-row-sums")
def sums_of_rows(rows):
    return {"row_sums": exact(rows).sum(-1)}


@recomputes("002-2.?-attention-weights", "000-output-softmax-sum", "002-sampling-sum")
def sum_of_shares(w):
    return {"sum": exact(w).sum()}


@recomputes("000-weighted-v-cat", "002-sdpa-output*")
def mixed_values(weights, V):
    return {"terms": torch.einsum("k,kd->kd", exact(weights), exact(V)), "result": exact(weights) @ exact(V)}


@recomputes("000-cross-attn-dots")
def one_query_against_memory(q, K, d_k):
    dots = exact(K) @ exact(q)
    weights = (dots / d_k**0.5).softmax(-1)
    return {
        "dots": dots,
        "scaled": dots / d_k**0.5,
        "softmax": weights,
        "softmax_unscaled": dots.softmax(-1),
        "argmax": int(weights.argmax()),
    }


@recomputes("002-2.1-attention-order")
def by_weight(weights):
    return {"order": [word for _, word in sorted((-share, word) for word, share in weights.items())]}


@recomputes("000-qkv-shapes")
def shapes_of_one_head(X, W):
    q = torch.empty(X) @ torch.empty(W)
    scores = q @ q.mT
    return {"Q": q.shape, "scores": scores.shape, "output": (scores @ q).shape}


@recomputes("000-cross-attn-shapes", "002-decoder-shapes")
def shapes_across(T_d, T_e, d_k):
    q, memory = torch.zeros(T_d, d_k), torch.zeros(T_e, d_k)
    out = torch.nn.functional.scaled_dot_product_attention(q, memory, memory)
    return {"scores": (q @ memory.mT).shape, "output": out.shape}


@recomputes("003-column-convention-shapes")
def tokens_as_columns(d, T, T_enc):
    h, memory = torch.zeros(d, T), torch.zeros(d, T_enc)
    table = h.mT @ h
    out = table.softmax(-1) @ h.mT
    inner = (h.shape[1], memory.mT.shape[0])  # what Q K^T would have to agree on, with tokens as columns
    return {
        "H": h.shape,
        "A": table.shape,
        "output": out.shape,
        "residual_add_possible": out.shape == h.shape,
        "cross_attention_product_defined": inner[0] == inner[1],
    }


@recomputes("000-mask-3x3", "001-mask-definition", "003-mask-5x5")
def additive_causal_mask(n):
    return {"mask": [[0.0 if key <= query else -np.inf for key in range(n)] for query in range(n)]}


@recomputes("003-mask-upper-triangular-prose")
def mask_with_its_diagonal(n):
    hidden = torch.ones(n, n, dtype=torch.bool).triu()
    weights = torch.zeros(n, n).masked_fill(hidden, -torch.inf).softmax(-1)
    return {"row0_is_nan": bool(weights[0].isnan().all()), "usable": not bool(weights.isnan().any())}


@recomputes("000-exp-minus-inf", "001-minus-1e9-fp16", "002-softmax-minus-inf")
def hidden_rows(row, scores, partly_masked):
    in_half = torch.tensor(-1e9).half()
    return {
        "all_minus_inf_is_nan": bool(exact(row).softmax(-1).isnan().all()),
        "all_minus_1e9_fp32": (torch.tensor(scores, dtype=torch.float32) - 1e9).double().softmax(-1),
        "fp16_of_minus_1e9": float(in_half),
        "partly_masked": exact(partly_masked).softmax(-1),
        "minus_1e9_is_finite_in_fp16": bool(in_half.isfinite()),
        "exp_minus_inf": float(torch.tensor(-torch.inf).exp()),
    }


@recomputes("002-padding-batch-length")
def row_lengths(rows):
    lengths = [len(row) for row in rows]
    return {"lengths": lengths, "equal": min(lengths) == max(lengths)}


@recomputes("002-code-plus-vs-times")
def constant_added_to_scores(scores, d):
    raw = exact(scores)
    as_printed, right = (raw + 1 / d).softmax(-1), (raw / d**0.5).softmax(-1)
    return {
        "as_printed_plus": as_printed,
        "unscaled": raw.softmax(-1),
        "correct": right,
        "plus_equals_scaling": largest(as_printed - right) < 1e-9,
    }


@recomputes("000-variance-dk64")
def spread_of_scores(d_k):
    variance = sum(1.0 * 1.0 for _ in range(d_k))  # d_k independent products, each of variance 1 * 1
    return {"std": variance**0.5, "variance": variance}


@recomputes("000-std8-near-onehot")
def peak_of_wide_scores(std, n, seed, recipe):
    scores = exact(np.random.default_rng(seed).normal(size=(20_000, n)))
    wide, narrow = ((scores * spread).softmax(-1).amax(-1).mean().item() for spread in (std, 1.0))
    return {"mean_max_prob": wide, "mean_max_prob_std1": narrow, "near_one_hot": wide > 0.8}


def _softmax_jacobian(probs):
    probs = exact(probs)
    return torch.diag(probs) - torch.outer(probs, probs)


@recomputes("000-softmax-jacobian-formula")
def jacobian_against_autograd(z):
    by_autograd = torch.autograd.functional.jacobian(lambda scores: scores.softmax(-1), exact(z))
    gap = largest(by_autograd - _softmax_jacobian(exact(z).softmax(-1)))
    return {"max_diff": gap, "formula_holds": gap < 1e-12}


@recomputes("000-softmax-jacobian-largest", "000-jacobian-vanishes-one-hot")
def jacobian_sizes(n):
    flat = _softmax_jacobian([1 / n] * n)
    tie = _softmax_jacobian([0.5, 0.5] + [0.0] * (n - 2))
    measures = {"spectral": lambda j: torch.linalg.eigvalsh(j).max(), "frobenius": torch.norm, "trace": torch.trace}
    sizes = {}
    for name, measure in measures.items():
        sizes |= {f"{name}_uniform": measure(flat).item(), f"{name}_two_way_tie": measure(tie).item()}
    one_hot = torch.norm(_softmax_jacobian([1.0] + [0.0] * (n - 1))).item()
    return sizes | {
        "largest_at_uniform_in_norm": sizes["spectral_uniform"] >= sizes["spectral_two_way_tie"],
        "norm_at_one_hot": one_hot,
    }


@recomputes("000-v-linear", "000-no-ffn-is-linear", "002-attention-mostly-linear")
def linear_in_what(seed, recipe):
    draw = np.random.default_rng(seed)
    weights = [draw.normal(size=(4, 4)) for _ in range(3)]
    x, y = draw.normal(size=(3, 4)), draw.normal(size=(3, 4))
    mixing = exact(draw.normal(size=(3, 3))).softmax(-1)
    of_x, of_y, of_sum, of_double = (attention_of(part, *weights) for part in (x, y, x + y, 2 * x))
    in_x = largest(of_sum - of_x - of_y)
    in_v = largest(mixing @ exact(x + y) - mixing @ exact(x) - mixing @ exact(y))
    return {
        "additivity_gap_in_X": in_x,
        "homogeneity_gap_in_X": largest(of_double - 2 * of_x),
        "additivity_gap_in_V": in_v,
        "linear_in_X": in_x < 1e-9,
        "linear_in_V": in_v < 1e-9,
    }


_ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
_ARITHMETIC |= {ast.Div: operator.truediv, ast.Pow: operator.pow}


def _worth(node):
    """Return the value of a piece of school arithmetic, read as a syntax tree."""
    if isinstance(node, ast.BinOp):
        return _ARITHMETIC[type(node.op)](_worth(node.left), _worth(node.right))
    return float(node.value)


@recomputes("001-expanded-arithmetic")
def every_printed_step(steps):
    return {"values": [_worth(ast.parse(step, mode="eval").body) for step in steps]}
