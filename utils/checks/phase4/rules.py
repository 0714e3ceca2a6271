"""What the checks of phase 4 look for by rule: judges of chance and signs of a known mistake.

A sign is rule(got, request) -> bool; a judge rule(got, settled) -> (expected, got) or None. None sees a twin or a case.
"""

import math
from functools import partial

import torch
import torch.nn.functional as F


def said(got):
    """What the first call returned."""
    return got["calls"][0]["value"]


def argument(request, name):
    call = request.calls[0]
    return {**call["args"], **call["options"]}[name]


# ---- norms ---------------------------------------------------------------------------------------


def half_overflowed(got, request):
    """Of half-precision tokens that differ: is the answer not finite, or the same for all?"""
    out = said(got)
    if argument(request, "x").dtype is not torch.float16 or not isinstance(out, torch.Tensor):
        return False
    return not bool(out.isfinite().all()) or bool((out == out[:1]).all())


def digits_lost(got, request):
    """In float32 far from 0: is the answer not finite, or off by far more than rounding?"""
    x, out = argument(request, "x"), said(got)
    if x.dtype is not torch.float32 or x.abs().min() < 1000 or not isinstance(out, torch.Tensor):
        return False
    gamma, beta = argument(request, "gamma"), argument(request, "beta")
    right = F.layer_norm(x.double(), x.shape[-1:], gamma.double(), beta.double(), argument(request, "eps"))
    return not bool(out.isfinite().all()) or bool((out - right).abs().max() > 0.02)


def float64_narrowed(got, request):
    """Is a float64 answer right to seven digits, and no further?"""
    x, out = argument(request, "x"), said(got)
    if x.dtype is not torch.float64 or out.dtype is not torch.float64:
        return False
    right = F.layer_norm(
        x, x.shape[-1:], argument(request, "gamma"), argument(request, "beta"), argument(request, "eps")
    )
    return 1e-10 < (out - right).abs().max().item() < 1e-5


def written_into(got, request):
    raised = got["calls"][0]["raised"] or {"message": ""}
    return "inplace operation" in raised["message"] or "x" in got["calls"][0]["changed"]


def a_view(got, request):
    return "grad_out" in got["calls"][0]["shares"]


def no_refusal(got, request):
    """Was a gamma or beta of another shape taken without complaint?"""
    width = argument(request, "x").shape[-1:]
    fits = argument(request, "gamma").shape == width == argument(request, "beta").shape
    return not fits and (got["calls"][0]["raised"] or {}).get("type") != "ValueError"


def no_parameters(got, request):
    problem = got["problem"] or {"message": ""}
    return any(f"there is no parameter {name}" in problem["message"] for name in ("gamma", "beta"))


def too_many_parameters(got, request):
    return not got["problem"] and got["parameters"] == 2 * argument(request, "x").shape[-1]


def gradients_per_token(got, request):
    value, x = said(got), argument(request, "x")
    return isinstance(value, (tuple, list)) and x.dim() > 1 and value[1].shape == x.shape


# ---- modules -------------------------------------------------------------------------------------


def missing(*names):
    """Does the module lack these parameters?"""
    return partial(lacks, names=list(names))


def lacks(got, request, names):
    message = (got["problem"] or {"message": ""})["message"]
    return any(f"there is no parameter {name}" in message for name in names)


def parts_missing(got, request):
    """Does a part have another name, or lie elsewhere? That a whole part is missing shows in its first weight."""
    message = (got["problem"] or {"message": ""})["message"]
    first = {name.split(".")[0]: name for name in reversed(request.weights)}
    return any(f"there is no parameter {name}:" in message for name in first.values())


def mask_as_memory(got, request):
    """Was a table of booleans multiplied with weights?"""
    raised = (got["calls"][0]["raised"] if got["calls"] else None) or {"message": ""}
    return "Bool and" in raised["message"] or "must have the same dtype, but got Bool" in raised["message"]


def norm_missing(*names):
    """Does the module lack a norm, or use one twice?"""
    return partial(lacks_a_norm, names=list(names))


def lacks_a_norm(got, request, names):
    asked = sum(weight.numel() for weight in request.weights.values())
    width = request.weights[names[0]].numel()
    return lacks(got, request, names) or (not got["problem"] and asked - got["parameters"] == 2 * width)


def more_parameters(got, request):
    """Are there more parameters than weights to fill?"""
    asked = sum(weight.numel() for weight in request.weights.values())
    return not got["problem"] and got["parameters"] > asked


def fewer_parameters(got, request):
    asked = sum(weight.numel() for weight in request.weights.values())
    return not got["problem"] and got["parameters"] < asked


def activation_not_refused(got, request):
    name = request.init["options"].get("activation")
    return isinstance(name, str) and name not in ("relu", "gelu", "silu") and not got["problem"]


def function_refused(got, request):
    """Was an activation that is a function refused, or not found in a dict of names?"""
    activation = request.init["options"].get("activation", "gelu")
    return not isinstance(activation, str) and bool(got["problem"])


def dropped_in_eval(got, request):
    return not request.train and bool(got["calls"]) and "torch's random state" in got["disturbed"]


# ---- dropout -------------------------------------------------------------------------------------


def branch_dropout(p, inner):
    """Judge x + drop(branch) at dropout p; `inner`: something inside the branch is dropped as well."""
    return partial(judge_branch_dropout, p=p, inner=inner)


def judge_branch_dropout(got, settled, p, inner):
    """Two calls on an x of zeros, so that what comes out is one branch, the only one that is not silent.

    Where something inside the branch is dropped as well, the entries that are left differ from branch / (1 - p).
    """
    outs = [call["value"] for call in got["calls"]]
    whole = said(settled)
    if not all(isinstance(out, torch.Tensor) and out.shape == whole.shape for out in outs):
        return f"a tensor of shape {tuple(whole.shape)}", "something else"
    added = outs[0]
    gone = added.abs() < 1e-12
    share, n = gone.double().mean().item(), gone.numel()
    if abs(share - p) > 6 * math.sqrt(p * (1 - p) / n):
        return f"about {p:.0%} of a branch's entries dropped just before it is added", f"{share:.1%}"
    as_it_is = torch.isclose(added[~gone], whole[~gone] / (1 - p), rtol=1e-6, atol=1e-9)
    if inner and bool(as_it_is.all()):
        return f"dropout inside the branch, too ({inner})", "none: only the branch as a whole is dropped"
    if not inner and not bool(as_it_is.all()):
        return f"entries that are dropped or divided by {1 - p:g}", "others"
    if torch.equal(outs[0], outs[1]):
        return "another pattern in the next call", "the same one"
    return None


# ---- stacks --------------------------------------------------------------------------------------

MADE = dict(as_made=True, mutates="self", grad=False)  # a case that looks at the weights a module starts with


def blocks_differ(got, settled):
    """Judge a stack as it is made: does each block start with numbers of its own?"""
    state = said(got)
    if not isinstance(state, dict):
        return "a module with its parameters", "something else"
    for name, value in state.items():
        other = state.get(name.replace("blocks.0.", "blocks.1."))
        if name.startswith("blocks.0.") and other is not None and value.dim() > 1 and torch.equal(value, other):
            return "blocks that start with different weights", f"{name} is the same in block 1"
    return None


def blocks_start_alike(got, request):
    return request.mutates == "self" and blocks_differ(got, got) is not None


# ---- init_weights --------------------------------------------------------------------------------

SMALLER = ("w_o", "w_2", "w_down")


def kind_of(name):
    """What a parameter of the model is set to: "ones", "zeros", "smaller" or "normal"."""
    *_, owner, last = ("", *name.split("."))
    if last == "gamma":
        return "ones"
    if last in ("bias", "beta"):
        return "zeros"
    return "smaller" if owner in SMALLER else "normal"


def initialised(std, n_layers):
    """Judge the parameters of a model after init_weights(model, std, n_layers)."""
    return partial(judge_initialised, std=std, n_layers=n_layers)


def judge_initialised(got, settled, std, n_layers):
    values, right = said(got), said(settled)
    if not isinstance(values, dict) or values.keys() != right.keys():
        return "the model, with its own parameters", "other parameters"
    for name, value in values.items():
        if text := _badly_drawn(name, value, std, n_layers):
            return text
    tied = torch.equal(right["output.weight"], right["token_embedding.weight"])
    if tied and not torch.equal(values["output.weight"], values["token_embedding.weight"]):
        return "one table at both ends, as before", "two tables"
    drawn = [value for name, value in values.items() if kind_of(name) in ("normal", "smaller")]
    heads = [tuple(round(entry / value.std().item(), 6) for entry in value.flatten()[:4].tolist()) for value in drawn]
    if len(set(heads)) < len(drawn) - (values.get("output.weight") is not None):
        return "numbers of its own for every matrix", "the same ones in several"
    return None


def _badly_drawn(name, value, std, n_layers):
    kind = kind_of(name)
    if kind in ("ones", "zeros"):
        fill = 1.0 if kind == "ones" else 0.0
        return None if bool((value == fill).all()) else (f"{name} all {fill:g}", f"{value.flatten()[0].item():.3g}, …")
    wanted, n = std / math.sqrt(2 * n_layers) if kind == "smaller" else std, value.numel()
    if abs(value.std().item() / wanted - 1) > 6 / math.sqrt(2 * n):
        return f"{name} with standard deviation {wanted:.4g}", f"{value.std().item():.4g}"
    if abs(value.mean().item()) > 6 * wanted / math.sqrt(n):
        return f"{name} with mean 0", f"{value.mean().item():.3g}"
    kurtosis = ((value - value.mean()) / value.std()).pow(4).mean().item()
    if abs(kurtosis - 3) > 6 * math.sqrt(24 / n):
        return f"{name} normal (kurtosis 3)", f"kurtosis {kurtosis:.2f}: another kind of numbers"
    return None


def scaled_like(**factors):
    """Is the spread of each kind of matrix the given multiple of std? Kinds: smaller, normal, tied."""
    return partial(is_scaled, factors=factors)


def is_scaled(got, request, factors):
    std, n_layers = argument(request, "std"), argument(request, "n_layers")
    multiple = {"1": 1.0, "2n": (2 * n_layers) ** -0.5, "n": n_layers**-0.5, "half": 0.5 / n_layers}
    for name, value in said(got).items():
        kind = "tied" if name.startswith(("token_embedding", "output")) else kind_of(name)
        wanted = factors.get(kind, factors.get("normal") if kind == "tied" else None)
        if wanted and abs(value.std().item() / std / multiple[wanted] - 1) > 0.12:
            return False
    return n_layers > 2


def tie_cut(got, request):
    value = said(got)
    return argument(request, "model").options.get("tied", True) and not torch.equal(
        value["output.weight"], value["token_embedding.weight"]
    )


def longer_names(got, request):
    """Are layers made smaller because their paths contain w_o or w_2?"""
    factor = argument(request, "std") * (2 * argument(request, "n_layers")) ** -0.5
    return any(
        abs(value.std().item() / factor - 1) < 0.12
        for name, value in said(got).items()
        if name in ("w_outer.weight", "w_2_first.weight")
    )


def table_left(got, request):
    table = said(got)["positions.table"]
    return abs(table.mean().item() - 0.3) < 0.1 and abs(table.std().item() - 0.7) < 0.1


def biases_left(got, request):
    """Are biases still what they were?"""
    values = said(got)
    return any(kind_of(name) == "zeros" and bool((value != 0).any()) for name, value in values.items())


def gains_left(got, request):
    values = said(got)
    return any(kind_of(name) == "ones" and bool((value != 1).any()) for name, value in values.items())


def not_normal(got, request):
    """Uniform numbers instead of normal ones?"""
    for name, value in said(got).items():
        if kind_of(name) == "normal":
            kurtosis = ((value - value.mean()) / value.std()).pow(4).mean().item()
            return kurtosis < 2.2
    return False


def second_call_differs(got, request):
    """Does the same question get another answer the second time?"""
    first, *more = (call["value"] for call in got["calls"])
    return bool(more) and first != more[0]


def wrong_width(got, request):
    """Does a matrix of the feed-forward layer have another d_ff?"""
    message = (got["problem"] or {"message": ""})["message"]
    return "w_1.weight has shape" in message or "w_2.weight has shape" in message


def table_more(got, request):
    """Are there as many parameters too many as one of the tables has?"""
    weights = request.weights
    extra, table = (got["parameters"] or 0) - sum(map(torch.numel, weights.values())), weights["tgt_embedding.weight"]
    return extra in (table.numel(), table.numel() + len(table))


def bias_more(got, request):
    weights = request.weights
    return (got["parameters"] or 0) - sum(map(torch.numel, weights.values())) == weights["tgt_embedding.weight"].shape[
        0
    ]


def extra(got, request):
    """By how many are there more parameters than weights to fill?"""
    return (got["parameters"] or 0) - sum(map(torch.numel, request.weights.values()))


def table_less(got, request):
    if got["problem"]:
        return "src_embedding.weight has shape" in got["problem"]["message"]
    return extra(got, request) == -request.weights["src_embedding.weight"].numel()


def some_more(got, request):
    """More parameters, and neither an output layer nor one norm for each stack: a table of positions, say."""
    return extra(got, request) > 0 and not (
        table_more(got, request) or bias_more(got, request) or norms_more(got, request)
    )


def norms_more(got, request):
    """In post-norm: as many parameters too many as two norms have; in pre-norm, none for the last norms."""
    width = request.weights["tgt_embedding.weight"].shape[1]
    return not request.init["options"].get("norm_first", True) and extra(got, request) == 4 * width


def other_depth(got, request):
    """Are there more blocks than asked for, or fewer?"""
    message = (got["problem"] or {"message": ""})["message"]
    return extra(got, request) > 500 or "there is no parameter encoder.blocks.1" in message


def too_long(got, request):
    raised = (got["calls"][0]["raised"] if got["calls"] else None) or {"type": ""}
    return argument(request, "src").shape[1] > 1000 and raised["type"] in ("RuntimeError", "IndexError", "ValueError")


def mask_misfits(got, request):
    """Did a mask of one length meet scores of another?"""
    raised = got["calls"][0]["raised"] if got["calls"] else None
    return bool(raised) and raised["type"] in ("RuntimeError", "IndexError") and "size" in raised["message"]
