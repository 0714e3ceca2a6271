"""Recompute the numbers of phases 3 and 4: heads, residuals, norms, feed-forward layers, and counting parameters."""

import numpy as np
import torch
from torch.nn import functional

from tests.notes_ops import exact, largest, recomputes, standardise


@recomputes("000-head-dim", "004-head-dim")
def shared_out(a, b):
    return {"result": a / b}


@recomputes("000-sublayers-12-layer", "002-concat-8x64")
def multiplied(factors):
    first, second = factors
    return {"result": first * second}


@recomputes("001-d-equals-h-dhead")
def head_widths_together(d, H, d_head):
    return {"H_times_d_head": H * d_head, "equals_d": H * d_head == d}


@recomputes("000-mha-shapes", "002-heads-4x512", "002-heads-3x12")
def shapes_of_heads(T, d_model, h):
    x = torch.zeros(T, d_model)
    projected = torch.nn.Linear(d_model, d_model)(x)
    split = projected.unflatten(-1, (h, -1))
    heads = split.movedim(-2, 0)
    mixed = functional.scaled_dot_product_attention(heads, heads, heads)
    joined = mixed.movedim(0, -2).flatten(-2)
    return {
        "d_head": split.shape[-1],
        "X": x.shape,
        "QKV": projected.shape,
        "split": split.shape,
        "scores_per_head": (heads[0] @ heads[0].mT).shape,
        "attention_per_head": mixed[0].shape,
        "concat": joined.shape,
        "output": torch.nn.Linear(d_model, d_model)(joined).shape,
    }


@recomputes("001-mask-broadcast")
def mask_without_head_axis(cases):
    results = []
    for batch, n_heads in cases:
        try:
            results.append(list(torch.broadcast_shapes((batch, n_heads, 5, 5), (batch, 5, 5))))
        except RuntimeError:
            results.append("error")
    return {"results": results, "always_works": all(result != "error" for result in results)}


def _multiply_adds(*products):
    """Return the cost of matrix products, each given as (rows, inner, columns)."""
    return sum(rows * inner * columns for rows, inner, columns in products)


@recomputes("002-cost-linear-in-heads", "004-mha-cost")
def cost_for_each_head_count(n, d, heads):
    costs = []
    for n_heads in heads:
        d_head = d // n_heads
        one_head = _multiply_adds(*[(n, d, d_head)] * 3, (n, d_head, n), (n, n, d_head))
        costs.append(n_heads * one_head + _multiply_adds((n, d, d)))
    return {"macs": costs, "same_for_all_h": min(costs) == max(costs)}


@recomputes("000-layernorm-z1", "000-vector-trace-final-ln")
def layer_norm_in_steps(x):
    x = exact(x)
    variance, mean = torch.var_mean(x, correction=0)
    return {
        "mean": mean,
        "deviations": x - mean,
        "variance": variance,
        "std": variance.sqrt(),
        "normalized": standardise(x),
    }


@recomputes("000-layernorm-z1-unit-variance", "000-vector-trace-final-ln-moments")
def moments(x):
    variance, mean = torch.var_mean(exact(x), correction=0)
    return {"mean": mean, "variance": variance}


@recomputes("002-layernorm-steps")
def layer_norm_with_eps(x, eps):
    out = standardise(x, eps)
    return {"normalized": out} | moments(out)


@recomputes("003-ln-restores", "000-ln-recovers")
def layer_norm_of_a_stretched_token(x, a, b):
    gap = largest(standardise(x) - standardise(a * exact(x) + b))
    return {"gap": gap, "scale_and_shift_recoverable": gap > 1e-9}


@recomputes("000-gelu-values")
def gelu_both_ways(x):
    return {"gelu": functional.gelu(exact(x)), "gelu_tanh": functional.gelu(exact(x), approximate="tanh")}


@recomputes("000-gelu-tanh-form")
def gelu_forms_apart(range):
    x = torch.linspace(*range, 120_001, dtype=torch.float64)
    curve = functional.gelu(x)
    gap = (curve - functional.gelu(x, approximate="tanh")).abs().max().item()
    return {
        "max_abs_diff": gap,
        "gelu_min": curve.min(),
        "argmin": x[curve.argmin()],
        "close": gap < 1e-3,
        "negative_left_of_zero": bool((curve[x < 0] < 0).all()),
    }


@recomputes("002-ffn-relu")
def rectified(x):
    return {"relu": functional.relu(exact(x))}


@recomputes("000-ffn-shapes", "002-ffn-shapes", "003-ffn-shapes", "004-ffn-shapes")
def shapes_of_feed_forward(d_model, d_ff):
    hidden = torch.nn.Linear(d_model, d_ff)(torch.zeros(d_model))
    out = torch.nn.Linear(d_ff, d_model)(hidden)
    return {"hidden": hidden.shape, "output": out.shape, "expansion": hidden.numel() / out.numel()}


@recomputes("000-gradient-at-least-1", "004-residual-derivative-1")
def slope_of_a_residual_block(F_prime):
    slopes = []
    for slope in F_prime:
        x = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
        slopes.append(torch.autograd.grad(x + slope * x, x)[0].item())
    return {
        "derivative_x_plus_F": slopes,
        "always_at_least_1": min(slopes) >= 1,
        "always_exactly_1": set(slopes) == {1},
    }


@recomputes("002-residual-prevents-explosion")
def deep_residual_stack(layers, width, seed, recipe):
    draw = np.random.default_rng(seed)
    stream = draw.normal(size=(512, width))
    normed, grad = stream, draw.normal(size=(512, width))
    for _ in range(layers):
        w = draw.normal(size=(width, width)) / width**0.5
        block = np.eye(width) + w
        stream, grad = stream @ block, grad @ block.T
        normed = normed + standardise(normed).numpy() @ w
    growth = np.square(grad).mean()
    return {
        "plain_residual_variance": stream.var(),
        "pre_ln_variance": normed.var(),
        "gradient_growth_plain": growth,
        "explosion_prevented": growth < 100,
    }


@recomputes("000-census")
def residual_census(enc_sublayers, dec_sublayers, N):
    enc, dec = enc_sublayers * N, dec_sublayers * N
    return {"enc": enc, "dec": dec, "total": enc + dec}


@recomputes("003-42-layers", "003-42-layers-paper")
def layers_by_what_you_count(N, enc_per_layer, dec_per_layer):
    attention_maps, feed_forward_maps = 2, 2  # value and output matrix; two feed-forward matrices
    return {
        "own_count": N * enc_per_layer + N * dec_per_layer,
        "paper_layers": N + N,
        "linear_depth": N * (attention_maps + feed_forward_maps) + N * (2 * attention_maps + feed_forward_maps),
    }


def _size(module):
    return sum(parameter.numel() for parameter in module.parameters())


@recomputes("003-attention-params")
def attention_parameters(d):
    total = _size(torch.nn.MultiheadAttention(d, 8))
    return {"weights": total - 4 * d, "with_biases": total, "millions": total / 1e6}


@recomputes("003-ffn-params")
def feed_forward_parameters(d, d_ff):
    total = _size(torch.nn.Sequential(torch.nn.Linear(d, d_ff), torch.nn.Linear(d_ff, d)))
    return {"exact": total, "rearranged": 2 * d * d_ff + d_ff + d, "millions": total / 1e6}


@recomputes("003-decoder-layer-params")
def decoder_layer_parameters(d, d_ff):
    layer = torch.nn.TransformerDecoderLayer(d, 8, d_ff)
    with_norms = _size(layer)
    total = with_norms - sum(_size(norm) for norm in (layer.norm1, layer.norm2, layer.norm3))
    return {
        "attention_each": _size(layer.self_attn),
        "sum": total,
        "with_layernorm": with_norms,
        "millions": total / 1e6,
    }


@recomputes("003-logit-shapes", "004-walkthrough-shape")
def shape_of_a_product(A, B):
    return {"shape": (torch.empty(A) @ torch.empty(B)).shape}


@recomputes("003-vocab-params")
def output_layer_parameters(d, V):
    counts = [torch.empty(d, words, device="meta").numel() for words in V]
    return {"counts": counts, "tens_of_millions": all(len(str(count)) == 8 for count in counts)}


@recomputes("004-weight-tying")
def saved_by_tying(V, d):
    separate, shared = 2 * V * d, V * d
    return {"saved": separate - shared, "reduces": shared < separate}


@recomputes("004-table2-shapes")
def shapes_of_a_block(B, N, D, H, F, V):
    table, positions = torch.zeros(V, D), torch.zeros(N, D)
    embedded = table[torch.zeros(B, N, dtype=torch.long)]
    x = embedded + positions
    q = torch.nn.Linear(D, D)(x)
    heads = q.unflatten(-1, (H, -1)).movedim(-2, 1)
    scores = heads @ heads.mT
    mixed = scores.softmax(-1) @ heads
    joined = mixed.movedim(1, -2).flatten(-2)
    hidden = torch.nn.Linear(D, F)(joined)
    out = torch.nn.Linear(F, D)(hidden)
    logits = functional.linear(out, table)
    made = {"token_embeddings": embedded, "positional": positions, "encoder_input": x, "qkv": q, "qkv_split": heads}
    made |= {"scores": scores, "weights": scores.softmax(-1), "attention_output": mixed, "concatenated": joined}
    made |= {"ffn_hidden": hidden, "ffn_output": out, "logits": logits, "probabilities": logits.softmax(-1)}
    return {name: part.shape for name, part in made.items()}
