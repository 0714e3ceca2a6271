"""What the check of alibi_bias looks for by rule: see `utils.checks.phase3.rules`."""

from functools import partial

import torch

from utils.checks.phase3.rules import said


def past(q_len, kv_len):
    """Bool (q_len, kv_len): the keys that are looked at."""
    return torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)


def judge_biases(got, settled):
    """Like the twin where a key is no later than its query; what stands at later keys is free."""
    out, right = said(got), said(settled)
    if not isinstance(out, torch.Tensor):
        return "a torch.Tensor", "something else"
    if out.shape != right.shape:
        return f"shape {tuple(right.shape)}", f"shape {tuple(out.shape)}"
    if out.dtype != right.dtype:
        return f"dtype {right.dtype}, torch's default", f"{out.dtype}"
    seen = past(*right.shape[1:])
    wrong = ~torch.isclose(out, right, rtol=0, atol=1e-5) & seen
    if bool(wrong.any()):
        head, query, key = wrong.nonzero()[0].tolist()
        place = f"out[{head}, {query}, {key}]"
        return f"{place} = {right[head, query, key]:.5g}", f"{place} = {out[head, query, key]:.5g}"
    return None


def slopes(n_heads, fault=""):
    """The slopes, right or with a known fault."""
    lower = 1 << (n_heads.bit_length() - 1)
    if fault == "plain formula":
        return [2 ** (-8 * h / n_heads) for h in range(1, n_heads + 1)]
    if fault == "from 0":
        return [2 ** (-8 * h / lower) for h in range(lower)]
    steep = [2 ** (-8 * h / lower) for h in range(1, lower + 1)]
    more = [2 ** (-8 * h / (2 * lower)) for h in range(1, 2 * lower + 1)]
    rest = more[1::2] if fault == "even ones" else more if fault == "all of them" else more[::2]
    found = steep + rest[: n_heads - lower]
    if fault == "sorted":
        return sorted(found, reverse=True)
    return found[::-1] if fault == "reversed" else found


def biases(n_heads, q_len, kv_len, fault=""):
    """The table, right or with a known fault; None where the fault makes none."""
    steep = torch.tensor(slopes(n_heads, fault))
    if len(steep) != n_heads:
        return None
    start = 0 if fault == "from the start" else kv_len - q_len
    distance = start + torch.arange(q_len)[:, None] - torch.arange(kv_len)
    sign = 1.0 if fault == "sign" else -1.0
    return sign * steep[:, None, None] * distance


def biased(fault):
    return partial(sees_biases, fault=fault)


def sees_biases(got, request, fault):
    args = request.calls[0]["args"]
    wrong, out = biases(**args, fault=fault), said(got)
    right = biases(**args)
    if wrong is None or not isinstance(out, torch.Tensor) or out.shape != wrong.shape:
        return False
    seen = past(args["q_len"], args["kv_len"])
    same = torch.isclose(out.double(), wrong.double(), atol=1e-5)[:, seen].all()
    return bool(same) and not torch.allclose(wrong[:, seen], right[:, seen], atol=1e-5)
