"""What the checks of phase 2 look for by rule: properties, judges of chance, and signs of a known mistake.

A rule sees observations and requests, never a twin or a case, so that a stored exam can name it and find it anywhere.
A property is rule(got, case, request) -> (expected, got) or None; a judge rule(got, settled) -> the same; a sign
rule(got, request) -> bool. A rule with a parameter is a `partial` of one of these functions.
"""

import math
from functools import partial

import torch

# ---- weights -------------------------------------------------------------------------------------


def _hidden_weights(call, answer):
    """(weights, which of them are hidden) of a call with a mask, or None."""
    attn_mask = call["options"].get("attn_mask")
    weights = answer["value"]
    if attn_mask is None or not isinstance(weights, torch.Tensor) or attn_mask.dtype is not torch.bool:
        return None
    try:
        return weights, (~attn_mask).expand(weights.shape)
    except RuntimeError:
        return None


def shares_are_whole(got, case, request):
    """Property: what is visible shares exactly 1 (to rounding), and an empty row shares 0."""
    for call, answer in zip(request.calls, got["calls"], strict=False):
        weights = answer["value"]
        if not isinstance(weights, torch.Tensor) or weights.dtype is not torch.float64:
            continue
        sums = weights.sum(call["options"].get("dim", -1))
        if sums.numel() and not bool((((sums - 1).abs() < 1e-12) | (sums == 0)).all()):
            worst = sums.flatten()[(sums.flatten() - 1).abs().argmax()].item()
            return "rows that sum to 1", f"a row that sums to {worst:.12g}"
    return None


def hidden_is_nothing(got, case, request):
    """Property: the weight of a hidden key is 0, not merely small."""
    for call, answer in zip(request.calls, got["calls"], strict=False):
        pair = _hidden_weights(call, answer)
        if pair and bool((pair[0][pair[1]] != 0).any()):
            return "weights of exactly 0 where hidden", f"up to {pair[0][pair[1]].abs().max().item():.2g}"
    return None


def still_weighted(got, request):
    """Do hidden places hold weight, in rows that nevertheless sum to 1?"""
    dim = request.calls[0]["options"].get("dim", -1)
    weights, hidden = _hidden_weights(request.calls[0], got["calls"][0])
    whole = torch.allclose(weights.double().sum(dim), torch.ones(()).double(), rtol=1e-3)
    return whole and bool((weights[hidden] > 0).any()) and not bool(hidden.all(dim).any())


# ---- what was returned ---------------------------------------------------------------------------


def said(got):
    """What the first call returned."""
    return got["calls"][0]["value"]


def several_values(got, request):
    return isinstance(said(got), (tuple, list))


def four_axes(got, request):
    return said(got).dim() == 4


def nan_somewhere(got, request):
    return bool(said(got).isnan().any())


def one_matrix_for_all_rows(got, request):
    return said(got).ndim == 2 < request.calls[0]["args"]["probs"].ndim + 1


def not_bool(got, request):
    value = said(got)
    return isinstance(value, torch.Tensor) and value.dtype is not torch.bool


def is_a_sum(got, request):
    """Were the masks added?"""
    kept = given_masks(request.calls[0]["args"]["*masks"])
    return not_bool(got, request) and torch.equal(said(got).double(), sum(one.double() for one in kept))


def given_masks(masks):
    return [one for one in masks if one is not None]


def score_table(got, case, request):
    """Property: no floating tensor was made whose last two axes are q_len and kv_len."""
    if not case.watch:
        return None
    args = request.calls[0]["args"]
    q_len, kv_len = args["q"].shape[-2], args["k"].shape[-2]
    if {(q_len, kv_len), (kv_len, q_len)} & set(got["shapes"]):
        return "no floating tensor of q_len × kv_len", f"one of {q_len} × {kv_len}: that is plain attention"
    return None


# ---- leaks_future --------------------------------------------------------------------------------

INNOCENT = ("causal", "strictly_past", "window", "itself", "here")


def pattern_of(request):
    """What the attention of this case does, if it hides properly; "" if it does not."""
    options = request.calls[0]["args"]["attention"].options
    leaky = "fill" in options or "late" in options
    return "" if leaky else options.get("pattern_name", options.get("upto", ""))


def false_without_a_mask(got, request):
    return said(got) is False and pattern_of(request) == "everything"


def true_for_a_causal_one(got, request):
    return said(got) is True and pattern_of(request) in INNOCENT


# ---- score_variance ------------------------------------------------------------------------------


def _numbers(got):
    """[(raw, scaled), …] of all calls as floats, or None where something else was returned."""
    pairs = []
    for call in got["calls"]:
        value = call["value"]
        if not isinstance(value, (tuple, list)) or len(value) != 2:
            return None
        if any(getattr(part, "ndim", 0) for part in value):
            return None
        try:
            pairs.append(tuple(float(part) for part in value))
        except (TypeError, ValueError, RuntimeError, OverflowError):
            return None
    return pairs


def variances(d_head):
    """Judge three calls: a generator, the same one again, and a copy of its first state."""
    return partial(judge_variances, d_head=d_head)


def judge_variances(got, settled, d_head):
    pairs = _numbers(got)
    if pairs is None:
        return "raw, scaled: two numbers", "something else"
    for raw, scaled in pairs:
        if not abs(raw - d_head * scaled) <= 1e-6 * abs(raw):
            return "raw = d_head · scaled, from the same draws", f"raw {raw:.5g}, scaled {scaled:.5g}"
        if not 0.9 <= raw / d_head <= 1.1:
            return f"raw near {d_head}, scaled near 1", f"raw {raw:.4g}, scaled {scaled:.4g}"
        if abs(raw / d_head - 1) < 1e-9:
            return "numbers measured on draws", "the exact formula"
    if pairs[0] == pairs[1]:
        return "a second call that draws on", "the same numbers again"
    if pairs[0] != pairs[2]:
        return "the same generator state gives the same numbers", f"{pairs[0][0]:.6g}, then {pairs[2][0]:.6g}"
    return None


def scattered(got, settled):
    """Are 300 variances of 64 products each as scattered as they must be?

    At d_head 1 a product of two normal numbers has heavy tails: such variances scatter by 0.35, those of 64 normal
    numbers by 0.18 only, and those of many more numbers hardly at all. 200 trials gave 0.30 to 0.42 and 0.16 to 0.20.
    """
    pairs = _numbers(got)
    if pairs is None:
        return "raw, scaled: two numbers", "something else"
    spread = torch.tensor(pairs, dtype=torch.float64)[:, 0].std().item()
    if not 0.25 <= spread <= 0.45:
        return "variances of 64 dot products, which scatter by about 0.35", f"numbers that scatter by {spread:.2f}"
    return None


def steady(got, settled):
    """Are 12 variances of 30,000 products each as steady as they must be: 0.016, against 0.06 for 2,000?"""
    pairs = _numbers(got)
    if pairs is None:
        return "raw, scaled: two numbers", "something else"
    spread = torch.tensor(pairs, dtype=torch.float64)[:, 0].std().item()
    if not spread <= 0.038:
        return "variances of 30,000 dot products, steady to about 0.016", f"numbers that scatter by {spread:.3f}"
    return None


def divided_by_width(got, request):
    return _near(_first(got)[0], _width(request)) and _near(_first(got)[1], 1 / _width(request))


def standard_deviations(got, request):
    return _near(_first(got)[0], _width(request) ** 0.5) and _near(_first(got)[1], 1)


def another_generator(got, request):
    return _near(_first(got)[1], 1) and _numbers(got)[0] != _numbers(got)[2]


def two_draws(got, request):
    raw, scaled = _first(got)
    linked = abs(raw - _width(request) * scaled) <= 1e-6 * raw
    return _near(raw, _width(request)) and _near(scaled, 1) and not linked


def one_entry(got, request):
    return _near(_first(got)[0], 1) and _near(_first(got)[1], 1 / _width(request))


def uniform_numbers(got, request):
    return any(_near(_first(got)[0], _width(request) * share) for share in (1 / 9 - 1 / 16, 1 / 9, 1 / 144))


def _first(got):
    pairs = _numbers(got)
    return pairs[0] if pairs else (float("nan"), float("nan"))


def _near(value, target):
    return 0.85 * target <= value <= 1.15 * target


def _width(request):
    return request.calls[0]["args"]["d_head"]


# ---- modules -------------------------------------------------------------------------------------


def no_bias(got, request):
    problem = got["problem"] or {"message": ""}
    return "there is no parameter" in problem["message"] and ".bias" in problem["message"]


def mask_too_large(got, request):
    raised = got["calls"][0]["raised"] if got["calls"] else None
    return bool(raised) and raised["type"] in ("RuntimeError", "IndexError") and "size" in raised["message"]


def keeps_whole_rows(p):
    """Judge train mode where each query sees one key: its output is v/(1-p), or nothing, by chance."""
    return partial(judge_whole_rows, p=p)


def judge_whole_rows(got, settled, p):
    out, full = said(got), said(settled)
    if not _is_like(out, full):
        return f"a tensor of shape {tuple(full.shape)}, and {full.dtype}", "something else"
    dropped = (out == 0).all(-1)
    kept = torch.isclose(out, full / (1 - p), rtol=1e-7, atol=1e-9).all(-1)
    if not bool((dropped | kept).all()):
        return (
            f"in training each weight is kept and divided by {1 - p:g}, or dropped: here v/{1 - p:g} or 0",
            "other rows",
        )
    share, n = dropped.double().mean().item(), dropped.numel()
    if abs(share - p) > 6 * math.sqrt(p * (1 - p) / n):
        return f"about {p:.0%} of the weights dropped", f"{share:.1%}"
    if bool((dropped == dropped[:1]).all()):
        return "each example drops its own weights", "one pattern for the whole batch"
    return None


def single_weights(p):
    """Judge four calls in train mode on one x: key 0 alone is seen, key 1 alone, both, both again.

    Where both are seen, a row must be one of four: nothing, one of the two parts, or both, each divided by 1 - p.
    """
    return partial(judge_single_weights, p=p)


def judge_single_weights(got, settled, p):
    outs = [call["value"] for call in got["calls"]]
    first, second, both, _ = (call["value"][:, 1:] for call in settled["calls"])  # row 0 does not see key 1
    if not all(_is_like(out, said(settled)) for out in outs):
        return "a tensor of the same shape and dtype as in eval mode", "something else"
    # both = w·first + (1 - w)·second, row by row
    share = ((both - second) * (first - second)).sum(-1) / (first - second).square().sum(-1)
    parts = (torch.zeros_like(both), share[..., None] * first, (1 - share)[..., None] * second, both)
    matches = [torch.isclose(outs[2][:, 1:], part / (1 - p), rtol=1e-6, atol=1e-9).all(-1) for part in parts]
    if not bool(torch.stack(matches).any(0).all()):
        return "each weight kept and scaled, or dropped, by itself", "rows that are none of the four"
    if not all(bool(match.any()) for match in matches):
        return "weights that are dropped one by one", "rows that are kept or dropped as a whole"
    if not _reaches_queries_and_keys(got["calls"][2]["weight_grads"] or {}, outs[2].shape[-1]):
        return "gradients for queries and keys in training, too", "none"
    if _same_pattern(outs[2], outs[3]):
        return "another pattern in the next call", "the same one"
    return None


def _is_like(out, settled):
    return isinstance(out, torch.Tensor) and (out.shape, out.dtype) == (settled.shape, settled.dtype)


def _same_pattern(first, second):
    return torch.equal(first == 0, second == 0)


def _reaches_queries_and_keys(grads, d_model):
    weight = grads.get("c_attn.weight")
    if weight is None:  # another layout
        return grads.get("every parameter", False)
    return bool((weight[:d_model] != 0).any()) and bool((weight[d_model : 2 * d_model] != 0).any())


def nothing_dropped(got, request):
    """In training, with p > 0, is every row simply there?"""
    out = said(got) if request.train and got["calls"] else None
    return isinstance(out, torch.Tensor) and not bool((out == 0).any())


def single_values_dropped(got, request):
    out = said(got) if request.train and got["calls"] else None
    return isinstance(out, torch.Tensor) and bool(((out == 0).any(-1) & ~(out == 0).all(-1)).any())


def dropped_in_eval(got, request):
    if request.train or not got["calls"]:
        return False
    return "torch's random state" in got["disturbed"]
