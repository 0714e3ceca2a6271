"""What the checks of phase 6 look for by rule in families and efficient forms: judges, properties, signs.

A sign is rule(got, request) -> bool; a judge rule(got, settled) -> (expected, got) or None. None sees a twin or a case.
"""

from functools import partial

import torch


def said(got, index=0):
    """What a call returned."""
    return got["calls"][index]["value"]


def argument(request, name):
    call = request.calls[0]
    return {**call["args"], **call["options"]}[name]


# ---- modules -------------------------------------------------------------------------------------


def problem(got):
    return (got["problem"] or {"message": ""})["message"]


def missing(*names):
    """Does the module lack one of these parameters?"""
    return partial(lacks, names=list(names))


def lacks(got, request, names):
    return any(f"there is no parameter {name}" in problem(got) for name in names)


def narrower_expected(got, request):
    """Are keys and values as wide as queries where fewer heads were asked for?"""
    return any(f"{name}.weight has shape" in problem(got) for name in ("w_k", "w_v"))


def parameters_more(*names):
    """Are there as many parameters too many as these weights have?"""
    return partial(has_more, names=list(names))


def has_more(got, request, names):
    asked = sum(weight.numel() for weight in request.weights.values())
    more = sum(request.weights[name].numel() for name in names if name in request.weights)
    return not got["problem"] and got["parameters"] - asked == more > 0


def drops_in_eval(got, request):
    """Did it draw though it was not in training?"""
    return not request.train and "torch's random state" in got["disturbed"]


def bias_at_the_output(got, request):
    asked = sum(weight.numel() for weight in request.weights.values())
    return not got["problem"] and got["parameters"] - asked == len(request.weights["token_embedding.weight"])


def no_config(got, request):
    """Was the attribute asked for, and not there?"""
    raised = got["calls"][0]["raised"] or {"type": "", "message": ""}
    return raised["type"] == "AttributeError" and "'config'" in raised["message"]


# ---- spans and prefixes --------------------------------------------------------------------------


def not_refused(got):
    """Was there an answer, or another error than ValueError?"""
    return not (got["calls"] and (got["calls"][0]["raised"] or {}).get("type") == "ValueError")


def span_not_refused(got, request):
    """Of spans that make no sense."""
    spans, length = sorted(argument(request, "spans")), len(argument(request, "tokens"))
    sound = all(0 <= start < end <= length for start, end in spans)
    sound = sound and all(a[1] <= b[0] for a, b in zip(spans, spans[1:], strict=False))
    return not (sound and len(argument(request, "sentinel_ids")) > len(spans)) and not_refused(got)


def touching_refused(got, request):
    """Were spans refused of which one ends where the next begins?"""
    spans = sorted(argument(request, "spans"))
    touch = any(a[1] == b[0] for a, b in zip(spans, spans[1:], strict=False))
    return touch and not not_refused(got) and all(start < end for start, end in spans)


def prefix_not_refused(got, request):
    prefix_len = torch.as_tensor(argument(request, "prefix_len"))
    outside = bool((prefix_len < 0).any()) or bool((prefix_len > argument(request, "seq_len")).any())
    return outside and not_refused(got)


def not_bool(got, request):
    value = said(got)
    return isinstance(value, torch.Tensor) and value.dtype is not torch.bool


def no_head_axis(got, request):
    value, seq_len = said(got), argument(request, "seq_len")
    return isinstance(value, torch.Tensor) and value.dim() < 4 and value.shape[-2:] == (seq_len, seq_len)


# ---- patches, experts, tiles ---------------------------------------------------------------------


def patch_not_refused(got, request):
    size, sides = argument(request, "patch_size"), argument(request, "images").shape[2:]
    return (size < 1 or any(side % size for side in sides)) and not_refused(got)


def routing_not_refused(got, request):
    n_experts, capacity = argument(request, "logits").shape[1], argument_or_none(request, "capacity")
    wrong = not 1 <= argument(request, "k") <= n_experts or (capacity is not None and capacity < 1)
    return wrong and not_refused(got)


def judge_ties(got, settled, k):
    """Judge the weights of tokens whose logits are all alike: k experts each, with equal weights."""
    value = said(got)
    weights = value[0] if isinstance(value, (tuple, list)) and value else None
    if not isinstance(weights, torch.Tensor) or weights.shape != said(settled)[0].shape:
        return f"weights of shape {tuple(said(settled)[0].shape)}", "something else"
    counts = (weights > 0).sum(-1)
    if bool((counts != k).any()):
        return f"{k} experts for each token, though all score the same", f"{int(counts.max())} for one"
    if bool(((weights[weights > 0] - 1 / k).abs() > 1e-6).any()):
        return f"weights of 1/{k}", "others"
    return None


def too_many_chosen(got, request):
    """Has a token whose logits are alike more experts than k?"""
    logits = argument(request, "logits")
    alike = bool((logits == logits[:, :1]).all()) and logits.shape[1] > argument(request, "k")
    return alike and bool(((said(got)[0] > 0).sum(-1) > argument(request, "k")).any())


def argument_or_none(request, name):
    call = request.calls[0]
    return {**call["args"], **call["options"]}.get(name)


def nan_too_far(got, request):
    """Are there NaN in the outputs of queries that see no NaN among the values?"""
    v, out = argument(request, "v"), said(got)[0]
    clean = v.isnan().flatten(0, -3).any(-1).any(0).logical_not().sum().item() if v.dim() > 2 else v.shape[-2]
    return bool(v.isnan().any()) and bool(out[..., :clean, :].isnan().any())


def nan_far_below(got, request):
    """Scores far below 0: is the answer not finite, though every query sees something?"""
    low = bool((argument(request, "q") @ argument(request, "k").mT).amax() < -700)
    return low and not all(bool(part.isfinite().all()) for part in said(got))


def blind_rows(got, request):
    """Are the queries that see no key told otherwise than by 0 and −∞, while all others are finite?"""
    q_len, kv_len = argument(request, "q").shape[-2], argument(request, "k").shape[-2]
    blind = q_len - kv_len
    if not argument_or_none(request, "causal") or blind < 1 or len(got["calls"]) != 1:
        return False
    out, total = said(got)
    told = bool((out[..., :blind, :] == 0).all()) and bool((total[..., :blind] == -torch.inf).all())
    return not told and bool(out[..., blind:, :].isfinite().all())


def whole_table(got, request):
    """Was a table of q_len × kv_len floating numbers made?"""
    q_len, kv_len = argument(request, "q").shape[-2], argument(request, "k").shape[-2]
    return bool({(q_len, kv_len), (kv_len, q_len)} & set(got["shapes"]))


def nan_somewhere(got, request):
    parts = said(got)
    return any(bool(part.isnan().any()) for part in (parts if isinstance(parts, tuple) else (parts,)))


def in_tiles(got, case, request):
    """Property: no floating tensor holds more scores than a tile, nor a strip of tiles."""
    if not case.watch:
        return None
    args = request.calls[0]["args"]
    q_len, kv_len = args["q"].shape[-2], args["k"].shape[-2]
    tall, wide = {q_len, args["q_block"]}, {kv_len, args["kv_block"]}
    table = {(a, b) for a in tall for b in wide} - {(args["q_block"], args["kv_block"])}
    for a, b in sorted(table, reverse=True):
        if {(a, b), (b, a)} & set(got["shapes"]):
            return f"at most {args['q_block']} × {args['kv_block']} scores at once", f"{a} × {b}: more than one tile"
    return None
