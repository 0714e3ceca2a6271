"""What the checks of phase 3 look for by rule: properties, judges of chance, and signs of a known mistake.

See `utils.checks.phase2.rules` for what such a rule may look like. Parameters go by keyword, through `partial`.
"""

import itertools
import math
from functools import partial

import torch


def said(got, index=0):
    """What a call returned."""
    return got["calls"][index]["value"]


def _raised(got):
    return (got["calls"] and got["calls"][0]["raised"]) or {}


# ---- signs ---------------------------------------------------------------------------------------


def cannot_view(got, request):
    return _raised(got).get("type") == "RuntimeError" and "view size is not compatible" in _raised(got)["message"]


def not_refused(got, request):
    """Was something returned although the features do not fill the heads?"""
    n_heads, x = request.calls[0]["args"]["n_heads"], request.calls[0]["args"]["x"]
    return x.shape[-1] % n_heads != 0 and isinstance(said(got), torch.Tensor)


def _wrong_layout(got, name):
    problem = got["problem"] or {"message": ""}
    return name in problem["message"], problem["message"]


def no_bias(got, request):
    absent, message = _wrong_layout(got, ".bias")
    return absent and "there is no parameter" in message


def no_output_layer(got, request):
    absent, message = _wrong_layout(got, "w_o.")
    return absent and "there is no parameter w_o.weight" in message


def wide_keys(got, request):
    """Are keys or values as wide as the model?"""
    width = request.init["args"]["d_model"]
    return any(_wrong_layout(got, f"{name} has shape ({width}, {width})")[0] for name in ("w_k.weight", "w_v.weight"))


def bias_regardless(got, request):
    """Has the module more parameters than it was given, though no bias was asked for?"""
    given = sum(weight.numel() for weight in request.weights.values())
    return request.init["options"].get("bias") is False and (got["parameters"] or 0) > given


def several_values(got, request):
    return isinstance(said(got), (tuple, list))


def attached(got, case, request):
    """Property: what was copied does not hang on the graph of the module it was copied from."""
    for call in got["calls"]:
        if any(isinstance(grad, torch.Tensor) for grad in (call["weight_grads"] or {}).values()):
            return "detached copies", "tensors through which gradients reach the module"
    return None


def shapes_unpacked(got, request):
    """Did it fail at an unpacking such as `batch, seq_len, d_model = x.shape`?"""
    return _raised(got).get("type") == "ValueError" and "values to unpack" in _raised(got)["message"]


def default_dtype(got, request):
    """Is what came back in torch's default dtype where the arguments have another one?"""
    if request.default_dtype == request.dtype:
        return False
    value = said(got)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else (value,)
    return any(str(part.dtype) == f"torch.{request.default_dtype}" for part in parts)


def in_default_dtype(function):
    """A wrong twin: `function`, its results in torch's default dtype."""

    def wrong(*args):
        out, dtype = function(*args), torch.get_default_dtype()
        if isinstance(out, dict):
            return {key: part.to(dtype) for key, part in out.items()}
        return tuple(part.to(dtype) for part in out) if isinstance(out, tuple) else out.to(dtype)

    return wrong


def lacks(name):
    """Sign: the module was asked for an attribute that it has not."""
    return partial(is_absent, name=name)


def is_absent(got, request, name):
    return _raised(got).get("type") == "AttributeError" and f"attribute '{name}'" in _raised(got)["message"]


def unequal_heads(got, request):
    """Did attention fail without a mask, because keys have another number of heads than queries?"""
    masked = any("attn_mask" in call["options"] for call in request.calls)
    return (
        not masked and _raised(got).get("type") == "RuntimeError" and "must match the size" in _raised(got)["message"]
    )


# ---- chance: attention_dropout -------------------------------------------------------------------


def drops(p):
    """Judge four calls on one table of weights: a generator, the same again, a copy of its first state, and p = 0."""
    return partial(judge_drops, p=p)


def judge_drops(got, settled, p):
    weights = said(settled, 3)
    for index in range(4):
        out = said(got, index)
        if not isinstance(out, torch.Tensor) or (out.shape, out.dtype) != (weights.shape, weights.dtype):
            return f"a tensor of shape {tuple(weights.shape)}, {weights.dtype}", "something else"
    outs = [said(got, index) for index in range(3)]
    for out in outs:
        kept = torch.isclose(out, weights / (1 - p), rtol=1e-5 if out.dtype is torch.float32 else 1e-7, atol=0)
        if not bool((kept | (out == 0)).all()):
            return f"each weight divided by {1 - p:g}, or 0", "other numbers"
    return (
        _one_by_one(outs[0])
        or _share_dropped(outs[:2], p)
        or _same_again(outs, said(got, 3), weights)
        or _slopes(got["calls"][0], settled["calls"][0], outs[0], said(settled, 0))
    )


def _share_dropped(outs, p):
    for out in outs:
        share = (out == 0).double().mean().item()
        if abs(share - p) > 6 * math.sqrt(p * (1 - p) / out.numel()):
            return f"about {p:.0%} of the weights dropped", f"{share:.1%}"
    counts = torch.stack([(out == 0).sum(-1).double() for out in outs])  # of each row: binomial, if by chance
    spread, n = counts.var().item(), outs[0].shape[-1]
    if not 0.7 <= spread / (n * p * (1 - p)) <= 1.3:
        return "each weight dropped on its own, so that rows differ in how many", "the same number in every row"
    if all((out == 0).sum().item() == round(p * out.numel()) for out in outs):
        return f"about {p:.0%} of the weights dropped, by chance", "exactly that many, every time"
    return None


AXES = (
    "each example drops its own weights",
    "each head drops its own weights",
    "each query drops its own weights",
    "each weight is dropped on its own",
)


def _one_by_one(out):
    dropped = out == 0
    if not bool(dropped.any()):
        return None
    for axis, says in enumerate(AXES):
        if bool((dropped == dropped.narrow(axis, 0, 1)).all()):
            return says, "one pattern for all of that axis"
    return None


def _same_again(outs, untouched, weights):
    if torch.equal(outs[0] == 0, outs[1] == 0):
        return "a second call that draws on", "the same pattern again"
    if not torch.equal(outs[0], outs[2]):
        return "the same generator state gives the same pattern", "another one: is all chance from the generator?"
    if not torch.allclose(untouched, weights, rtol=1e-6, atol=0):
        return "p = 0 returns the weights", "others"
    return None


def _slopes(call, right, out, right_out):
    """Gradients: 0 where dropped; where the twin kept a weight, too, exactly its gradient."""
    if right["grads"] is None:
        return None
    slope, twin = (call["grads"] or {}).get("weights"), right["grads"]["weights"]
    if not isinstance(slope, torch.Tensor):
        return "a gradient for weights", "none: something cuts it off"
    both = (out != 0) & (right_out != 0)
    exact = torch.allclose(slope[both], twin[both], rtol=1e-4 if out.dtype is torch.float32 else 1e-7)
    if not exact or bool((slope[out == 0] != 0).any()):
        return "a gradient divided by 1 − p where kept and 0 where dropped", "another one"
    return None


def _first(got, request):
    """(weights, p, what came back) of the first call; a sign looks at nothing else."""
    args = request.calls[0]["args"]
    if not 0 < args["p"] < 1:
        raise ValueError("nothing to tell")
    return args["weights"], args["p"], said(got)


def undivided(got, request):
    weights, p, out = _first(got, request)
    kept = out != 0
    return 0 < kept.double().mean() < 1 and torch.allclose(out[kept], weights[kept])


def renormalised(got, request):
    _, _, out = _first(got, request)
    sums = out.sum(-1)
    return bool((out == 0).any()) and torch.allclose(sums[sums != 0], torch.ones((), dtype=out.dtype))


def one_for_the_batch(got, request):
    weights, p, out = _first(got, request)
    kept = torch.isclose(out, weights / (1 - p)) | (out == 0)
    return bool(kept.all()) and bool(((out == 0) == (out == 0)[:1]).all())


def dropped_together(got, request):
    """Are weights of a head, a query or a row dropped together?"""
    weights, p, out = _first(got, request)
    dropped = out == 0
    alike = [bool((dropped == dropped.narrow(axis, 0, 1)).all()) for axis in range(dropped.dim())]
    return bool(dropped.any()) and not alike[0] and any(alike)


def another_generator(got, request):
    weights, p, out = _first(got, request)
    return 0 < (out == 0).double().mean() < 1 and not torch.equal(out, said(got, 2))


def keeps_p(got, request):
    weights, p, out = _first(got, request)
    share = (out == 0).double().mean().item()
    return abs(share - (1 - p)) < 0.02


def counts_exactly(got, request):
    weights, p, out = _first(got, request)
    counts = (out == 0).sum(-1)
    total = (out == 0).sum().item()
    if not total:
        return False
    return bool((counts == counts.flatten()[0]).all()) or total == round(p * out.numel()) == (said(got, 1) == 0).sum()


def nothing_dropped(got, request):
    weights, _, out = _first(got, request)
    return torch.equal(out, weights)


# ---- chance: dropout inside MultiHeadAttention ---------------------------------------------------


def whole_heads(p, n_heads):
    """Judge train mode where each query sees one key: a head of a row is kept and divided by 1 - p, or gone.

    Calls: two with all heads, one for each head alone (in eval mode these are the parts), one with none (the bias).
    """
    return partial(judge_whole_heads, p=p, n_heads=n_heads)


def judge_whole_heads(got, settled, p, n_heads):
    settled_outs = [call["value"] for call in settled["calls"]]
    if any(not _is_like(call["value"], right) for call, right in zip(got["calls"], settled_outs, strict=True)):
        return f"a tensor of shape {tuple(settled_outs[0].shape)}, {settled_outs[0].dtype}", "something else"
    bias, parts = settled_outs[-1], torch.stack(settled_outs[2 : 2 + n_heads]) - settled_outs[-1]
    subsets = torch.tensor(list(itertools.product((0.0, 1.0), repeat=n_heads)), dtype=bias.dtype)
    sums = bias + torch.einsum("sh,hbqm->sbqm", subsets, parts) / (1 - p)  # what every choice of heads would give
    kept = []
    for index in (0, 1):
        same = torch.isclose(said(got, index), sums, rtol=1e-6, atol=1e-9).all(-1)  # (S, B, Q)
        if not bool(same.any(0).all()):
            return f"each head of a row kept and divided by {1 - p:g}, or dropped", "rows that are no such sum"
        kept.append(subsets[same.double().argmax(0)])  # (B, Q, H)
    share, n = 1 - torch.stack(kept).mean().item(), 2 * kept[0].numel()
    if abs(share - p) > 6 * math.sqrt(p * (1 - p) / n):
        return f"about {p:.0%} of the weights dropped", f"{share:.1%}"
    if torch.equal(*kept):
        return "another pattern in the next call", "the same one"
    for axis, says in enumerate(("each example", "each query", "each head")):
        if bool((kept[0] == kept[0].narrow(axis, 0, 1)).all()):
            return f"{says} drops its own weights", "one pattern for all"
    return None


def single_weights(p):
    """Judge train mode of one head where two keys are seen: calls with key 0 alone, key 1 alone, both, both, none."""
    return partial(judge_single_weights, p=p)


def judge_single_weights(got, settled, p):
    first, second, both, _, bias = (call["value"] for call in settled["calls"])
    outs = [call["value"] for call in got["calls"]]
    if not all(_is_like(out, both) for out in outs):
        return f"a tensor of shape {tuple(both.shape)}, {both.dtype}", "something else"
    first, second, both = first - bias, second - bias, both - bias
    share = ((both - second) * (first - second)).sum(-1, keepdim=True) / (first - second).square().sum(-1, keepdim=True)
    parts = (torch.zeros_like(both), share * first, (1 - share) * second, both)
    matches = [torch.isclose(outs[2] - bias, part / (1 - p), rtol=1e-6, atol=1e-9).all(-1) for part in parts]
    if not bool(torch.stack(matches).any(0).all()):
        return "each weight kept and scaled, or dropped, by itself", "rows that are none of the four"
    if not all(bool(match.any()) for match in matches):
        return "weights that are dropped one by one", "rows that are kept or dropped as a whole"
    grads = got["calls"][2]["weight_grads"] or {}
    reached = [grads.get(name) for name in ("w_q.weight", "w_k.weight", "w_v.weight")]
    if not grads.get("every parameter", all(g is not None and bool((g != 0).any()) for g in reached)):
        return "gradients for queries, keys and values in training, too", "none"
    return None


def _is_like(out, settled):
    return isinstance(out, torch.Tensor) and (out.shape, out.dtype) == (settled.shape, settled.dtype)


def never_drops(got, request):
    """In training, with p > 0, is the second call what the first one was?"""
    return bool(request.train) and len(got["calls"]) > 1 and torch.equal(said(got, 0), said(got, 1))


def drops_features(got, request):
    """Are single numbers of the output 0, as a dropped weight never makes them?"""
    out = said(got) if request.train else None
    return isinstance(out, torch.Tensor) and bool((out == 0).any())


def drops_parts_of_heads(got, request):
    """Where each query sees one key, a head is its value: were single features of it dropped, before w_o?"""
    if not request.train or len(got["calls"]) != 6:
        return False
    weights, x = request.weights, request.calls[0]["args"]["x"]
    value = x[:, 1:2] @ weights["w_v.weight"].T + weights["w_v.bias"]  # what every query reads
    merged = torch.linalg.solve(weights["w_o.weight"], (said(got) - weights["w_o.bias"]).mT).mT
    share = (merged / value).unflatten(-1, (request.init["args"]["n_heads"], -1))
    kept = share > 0.5
    whole = torch.isclose(share, share.new_zeros(()), atol=1e-6) | torch.isclose(share, share.max(), rtol=1e-6)
    return bool(whole.all()) and bool((kept != kept[..., :1]).any())


def dropped_in_eval(got, request):
    return not request.train and bool(got["calls"]) and "torch's random state" in got["disturbed"]


# ---- mha_parameters ------------------------------------------------------------------------------


def counted_anyway(got, request):
    args = request.calls[0]["args"]
    whole = args["d_model"] % args["n_heads"] == 0 and args["n_heads"] % args["n_kv_heads"] == 0
    return not whole and isinstance(said(got), int)


def p_not_refused(got, request):
    p = request.calls[0]["args"].get("p")
    return p is not None and not 0 <= p < 1 and isinstance(said(got), torch.Tensor)


# ---- head_importance -----------------------------------------------------------------------------


def left_changed(got, request):
    return any("mha" in call["changed"] for call in got["calls"])


def left_when_raised(got, request):
    return any("mha" in call["changed"] and call["raised"] for call in got["calls"])
