"""Rules for the exercises on decoding: judges of chance, and signs of a known mistake.

A judge is rule(got, settled) -> (expected, got) or None; a sign rule(got, request) -> bool.
"""

import math
from functools import partial

import torch

from utils.checks.phase5.rules_training import argument, failed, said

# ---- greedy --------------------------------------------------------------------------------------


def last_token_alone(got, request):
    """Was the model asked with one token per row, where the prompt has more?"""
    asked = (said(got) or {}).get("asked with") or []
    return argument(request, "prompt").shape[1] > 1 and any(shape[-1:] == [1] for shape in asked)


def rows_left_out(got, request):
    asked = (said(got) or {}).get("asked with") or []
    return any(shape[0] != len(argument(request, "prompt")) for shape in asked)


def new_tokens_only(got, request):
    tokens, prompt = said(got)["tokens"], argument(request, "prompt")
    return tokens.shape == (len(prompt), len(said(got)["asked with"]))


# ---- filtering -----------------------------------------------------------------------------------


def option_accepted(got, request):
    temperature, top_k, top_p = (argument(request, name) for name in ("temperature", "top_k", "top_p"))
    bad = (temperature is not None and temperature < 0) or (top_k is not None and top_k < 1)
    return (bad or (top_p is not None and not 0 < top_p <= 1)) and failed(got) != "ValueError"


def stumbles_at_zero(got, request):
    """At temperature 0: an error, or a row that does not keep exactly one token?"""
    if argument(request, "temperature") != 0:
        return False
    return bool(failed(got)) or bool((said(got)["kept"].sum(-1) != 1).any())


def large_k_refused(got, request):
    top_k = argument(request, "top_k")
    return top_k is not None and top_k > argument(request, "logits").shape[-1] and bool(failed(got))


def zeros_for_dropped(got, request):
    """Are dropped tokens 0, which is a logit like any other?"""
    out = said(got)
    if argument(request, "temperature") == 0:
        return False
    return bool((out == 0).any()) and not bool(out.isneginf().any())


# ---- sampling ------------------------------------------------------------------------------------


def draws(forbidden=()):
    """Judge four calls: many rows, of two kinds in turn; a generator; the same again; a copy of its first state."""
    return partial(judge_draws, forbidden=list(forbidden))


def judge_draws(got, settled, forbidden):
    values, right = ([call["value"] for call in seen["calls"]] for seen in (got, settled))
    for value, wanted in zip(values, right, strict=True):
        if not isinstance(value, torch.Tensor) or value.shape != wanted.shape or value.dtype != torch.int64:
            kind = f"int64 of shape {tuple(wanted.shape)}"
            return kind, f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else "else"
    many = values[0]
    if bool(torch.isin(many, torch.tensor(forbidden, dtype=torch.int64)).any()):
        return "tokens whose logit is not −∞", "a forbidden one"
    if torch.equal(values[1], values[2]):
        return "a second call that draws on", "the same tokens again"
    if not torch.equal(values[1], values[3]):
        return "the same tokens from the same state of the generator", "others"
    return None


def frequencies(logits_even, logits_odd, forbidden=()):
    """draws, and the frequencies of both kinds of row, alone and together, at six sigma."""
    return partial(judge_frequencies, even=list(logits_even), odd=list(logits_odd), forbidden=list(forbidden))


def judge_frequencies(got, settled, even, odd, forbidden):
    if text := judge_draws(got, settled, forbidden):
        return text
    first, second = said(got)[0::2], said(got)[1::2]
    wanted = [torch.tensor(row, dtype=torch.float64).softmax(-1) for row in (even, odd)]
    for kind, (tokens, probs) in enumerate(zip((first, second), wanted, strict=True)):
        counts = torch.bincount(tokens, minlength=len(probs)).double()
        if text := _off(counts[: len(probs)], probs, len(tokens), f"row of kind {kind + 1}, token"):
            return text
    joint = torch.bincount(first * len(odd) + second, minlength=len(even) * len(odd)).double()
    return _off(joint, torch.outer(*wanted).flatten(), len(first), "both rows of a pair, tokens")


def _off(counts, probs, n, what):
    gap = (counts - n * probs).abs() - 6 * (n * probs * (1 - probs)).sqrt()
    worst = int(gap.argmax())
    if gap[worst] <= 0:
        return None
    return f"{what} {worst}: about {probs[worst]:.1%} of {n}", f"{counts[worst] / n:.1%}"


def _shares(got):
    """Frequencies of the tokens in rows of the first kind; None where something else was returned."""
    tokens = said(got)
    if not isinstance(tokens, torch.Tensor) or tokens.dim() != 1 or tokens.dtype != torch.int64:
        return None
    return tokens[0::2]


def close_to(tokens, probs):
    counts = torch.bincount(tokens, minlength=len(probs)).double()[: len(probs)] / len(tokens)
    return bool((counts - probs).abs().max() < 6 * 0.5 / math.sqrt(len(tokens)))


def never_varies(got, request):
    pairs = zip(got["calls"], request.calls, strict=True)
    return all(torch.equal(seen["value"], asked["args"]["logits"].argmax(-1)) for seen, asked in pairs)


def another_generator(got, request):
    _, second, third, copied, *_ = (call["value"] for call in got["calls"])
    return not torch.equal(second, copied) and not torch.equal(second, third)


def seed_used_again(got, request):
    _, second, third, copied, *_ = (call["value"] for call in got["calls"])
    return torch.equal(second, third) and torch.equal(second, copied) and not never_varies(got, request)


def logits_for_shares(got, request):
    """Are the frequencies those of the logits themselves, made positive and divided by their sum?"""
    logits = argument(request, "logits")[0].double()
    if not bool(logits.isfinite().all()):
        return False
    tokens = _shares(got)
    ways = (logits - logits.min() + 1e-9, logits.abs(), logits.clamp(min=0))
    right = close_to(tokens, logits.softmax(-1))
    return not right and any(close_to(tokens, way / way.sum()) for way in ways)


def forbidden_drawn(got, request):
    logits = argument(request, "logits")
    tokens = said(got)
    return bool(logits.gather(-1, tokens[..., None]).isneginf().any())


def one_draw_for_all(got, request):
    """Are rows of one kind all alike, or do the two rows of a pair go together?"""
    tokens, logits = said(got), argument(request, "logits")
    first, second = tokens[0::2], tokens[1::2]
    probs = [row.double().softmax(-1) for row in logits[:2]]
    if not close_to(first, probs[0]):
        return bool((first == first[0]).all()) and not never_varies(got, request)
    same = (first == second).double().mean().item()
    return abs(same - (probs[0] * probs[1]).sum().item()) > 6 * 0.5 / math.sqrt(len(first))


# ---- beams ---------------------------------------------------------------------------------------


def asks_about_nobody(got, request):
    """Was the function asked with an empty table of hypotheses?"""
    return "no hypothesis at all" in (got["calls"][0]["raised"] or {}).get("message", "")


def impossible_words(got, request):
    """Is there a sentence of log-probability −∞ in the answer?"""
    return any(score == -math.inf for score in said(got)["scores"])


def one_beam_copied(got, request):
    found = said(got)
    tokens = found["tokens"]
    return len(tokens) > 1 and len({str(row) for row in tokens}) < len(tokens)
