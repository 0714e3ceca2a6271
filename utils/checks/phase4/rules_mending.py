"""What the checks of reads_hidden and FusedSelfAttention look for by rule; see `utils.checks.phase4.rules`."""

import math
from functools import partial

import torch

from utils.checks.phase3 import rules as heads

# ---- reads_hidden --------------------------------------------------------------------------------

RIGHT = ("right", "causal", "itself")


def _said(got):
    return got["calls"][0]["value"]


def _is_right(request):
    """Does the attention of this case hide what its mask hides?"""
    options = request.calls[0]["args"]["attention"].options
    hides = "fill" not in options and options.get("late", "whole") == "whole"
    return hides and options.get("kind", "right") in RIGHT


def false_where_ignored(got, request):
    return _said(got) is False and request.calls[0]["args"]["attention"].options.get("kind") == "ignored"


def true_where_right(got, request):
    return _said(got) is True and _is_right(request)


# ---- FusedSelfAttention --------------------------------------------------------------------------


def _raised(got):
    return (got["calls"] and got["calls"][0]["raised"]) or {"type": "", "message": ""}


def _problem(got):
    return (got["problem"] or {"message": ""})["message"]


def mask_without_head_axis(got, request):
    """Did a mask of (batch, query, key) meet scores with heads, and not fit?"""
    masked = any(call["options"].get("attn_mask") is not None for call in request.calls)
    return masked and _raised(got)["type"] in ("RuntimeError", "IndexError") and "size" in _raised(got)["message"]


def square(got, request):
    """Were the matrices made for n_heads · d_head = d_model, though a d_head was given?"""
    if request.init["options"].get("d_head") is None:
        return False
    shaped = any(f"{name}.weight has shape" in _problem(got) for name in ("w_qkv", "w_o"))
    return shaped or (_raised(got)["type"] == "RuntimeError" and "invalid for input of size" in _raised(got)["message"])


def no_refusal(got, request):
    args, options = request.init["args"], request.init["options"]
    return options.get("d_head") is None and args["d_model"] % args["n_heads"] != 0


def dropped_in_eval(got, request):
    return not request.train and "torch's random state" in got["disturbed"]


def never_drops(got, request):
    """In training, with p > 0, are two calls the same?"""
    if not (request.train and request.init["options"].get("dropout") and len(got["calls"]) == 5):
        return False
    return torch.equal(got["calls"][2]["value"], got["calls"][3]["value"])


def drops_features(got, request):
    """In training, are single entries 0, where a row is a sum over heads that no weight can bring to 0?"""
    if not request.train or not got["calls"]:
        return False
    gone = _said(got) == 0
    return bool((gone.any(-1) & ~gone.all(-1)).any())


def one_head(p):
    """Judge train mode of one head; calls with key 0 alone, key 1 alone, both, both again, and none (the bias)."""
    return partial(judge_one_head, p=p)


def judge_one_head(got, settled, p):
    grads = got["calls"][2]["weight_grads"] or {}
    fused = grads.get("w_qkv.weight")
    reached = grads.get("every parameter", fused is not None and all(bool(part.any()) for part in fused.chunk(3)))
    calls = [call | {"weight_grads": {"every parameter": reached}} for call in got["calls"]]
    if text := heads.judge_single_weights(got | {"calls": calls}, settled, p):
        return text
    bias = settled["calls"][4]["value"]
    gone = torch.isclose(_said(got), bias, rtol=1e-6, atol=1e-9).all(-1)
    share, n = gone.double().mean().item(), gone.numel()
    if abs(share - p) > 6 * math.sqrt(p * (1 - p) / n):
        return f"about {p:.0%} of the weights dropped", f"{share:.1%}"
    if bool((gone == gone[:1]).all()):
        return "each example drops its own weights", "one pattern for the whole batch"
    if torch.equal(got["calls"][2]["value"], got["calls"][3]["value"]):
        return "another pattern in the next call", "the same one"
    return None
