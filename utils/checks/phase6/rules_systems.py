"""What the checks of phase 6 on systems look for by rule: judges of chance and counts, signs of a known mistake.

A sign is rule(got, request) -> bool; a judge rule(got, settled) -> (expected, got) or None. None sees a twin or a case.
"""

import math
from functools import partial

import torch


def said(got, index=0):
    """What a call returned."""
    return got["calls"][index]["value"]


def argument(request, name):
    call = request.calls[0]
    return {**call["args"], **call["options"]}[name]


# ---- what a module keeps ---------------------------------------------------------------------------


def more_parameters(got, request):
    """Are there more parameters than weights to fill?"""
    return not got["problem"] and (got["parameters"] or 0) > sum(weight.numel() for weight in request.weights.values())


def at_most(n_bytes):
    """Judge the bytes that a module keeps."""
    return partial(judge_bytes, n_bytes=n_bytes)


def judge_bytes(got, settled, n_bytes):
    held = said(got)
    return None if type(held) is int and held <= n_bytes else (f"at most {n_bytes} bytes kept", f"{held} bytes")


def too_many_bytes(got, request):
    """Is more kept than a byte for every weight and a few numbers for each row?"""
    layer = request.init["args"]["linear"].options
    rows, columns = layer["d_out"], layer["d_in"]
    return request.mutates == "held" and type(said(got)) is int and said(got) >= rows * columns * 3


# ---- calls that were counted -----------------------------------------------------------------------


def _total(state, name):
    """The sum of a counter over all blocks of a model."""
    return [int(value) for key, value in sorted(state.items()) if key.endswith(f".{name}")]


def same_rows(got, settled):
    """Judge how many rows went through each block; no gradient may follow."""
    state, right = said(got), said(settled)
    if not isinstance(state, dict):
        return "a model", "something else"
    if _total(state, "rows") != _total(right, "rows"):
        return f"rows that went through each block: {_total(right, 'rows')}", f"{_total(state, 'rows')}"
    if any(_total(state, "followed")):
        return "no gradient is needed: run under torch.no_grad()", "blocks were run with gradients on"
    return None


def all_rows_everywhere(got, request):
    """Did every row go through every block although some could leave?"""
    if request.mutates != "model" or argument(request, "threshold") > 1:
        return False
    n_rows = argument(request, "tokens").shape[0]
    return all(count >= n_rows for count in _total(said(got), "rows"))


def gradients_followed(got, request):
    return request.mutates == "model" and any(_total(said(got), "followed"))


def asked(most, least=0):
    """Judge how often a speaker was asked."""
    return partial(judge_asked, most=most, least=least)


def judge_asked(got, settled, most, least):
    state = said(got)
    calls = int(state["calls"]) if isinstance(state, dict) and "calls" in state else None
    if calls is not None and least <= calls <= most:
        return None
    wanted = f"{most}" if least == most else f"at most {most}"
    return f"asked {wanted} times", f"{calls} times"


def asked_more(name, times):
    """Was this speaker asked more than so many times?"""
    return partial(was_asked_more, name=name, times=times)


def was_asked_more(got, request, name, times):
    return request.mutates == name and int(said(got)["calls"]) > times


# ---- draws -----------------------------------------------------------------------------------------


def follows(law, part):
    """Judge the law of many draws, six sigma wide; part: which entry of an answer is the draw (a tuple of places)."""
    return partial(judge_law, law=list(law), part=list(part))


def _drawn(got, part):
    found = []
    for call in got["calls"]:
        value = call["value"]
        for place in part:
            value = value[place]
        found.append(int(value))
    return found


def judge_law(got, settled, law, part):
    try:
        draws = _drawn(got, part)
    except (TypeError, IndexError, ValueError):
        return "an answer of another form", "something that holds no draw"
    for token, chance in enumerate(law):
        share = draws.count(token) / len(draws)
        if abs(share - chance) > 6 * math.sqrt(chance * (1 - chance) / len(draws)) + 1e-12:
            return f"token {token} in about {chance:.0%} of {len(draws)} draws", f"in {share:.0%}"
    if not all(0 <= draw < len(law) for draw in draws):
        return f"tokens below {len(law)}", f"{max(draws)}"
    return None


def nearer_to(law, other, part):
    """Do the draws follow `other` better than the law they should?"""
    return partial(is_nearer, law=list(law), other=list(other), part=list(part))


def is_nearer(got, request, law, other, part):
    draws = _drawn(got, part)
    if len(draws) < 50 or judge_law(got, None, law, part) is None:
        return False
    return judge_law(got, None, other, part) is None


def is_tokens(got):
    return all(isinstance(call["value"], torch.Tensor) for call in got["calls"])


def always_one(got, request):
    """Is the first new token the same in every draw, though it should not be?"""
    draws = _drawn(got, [0, 3])
    return len(draws) >= 50 and len(set(draws)) == 1


# ---- one round of speculation ------------------------------------------------------------------------


def _round(request):
    """(p, q, uniforms) of the guesses, the tables, and how many really pass."""
    target, draft, guess, uniforms = (
        argument(request, name) for name in ("target_probs", "draft_probs", "draft_tokens", "uniforms")
    )
    p, q = target[: len(guess)].gather(-1, guess[:, None])[:, 0], draft.gather(-1, guess[:, None])[:, 0]
    return p, q, uniforms, target, draft, _prefix(uniforms * q < p)


def _prefix(passes):
    return int(passes.long().cumprod(0).sum())


def _answer(got):
    n_accepted, token = said(got)
    return int(n_accepted), int(token)


def upside_down(got, request):
    p, q, uniforms, *_, right = _round(request)
    n = _prefix(uniforms * p < q)
    return n != right and _answer(got)[0] == n


def goes_on(got, request):
    """Was counted what passes anywhere?"""
    p, q, uniforms, *_, right = _round(request)
    n = int((uniforms * q < p).sum())
    return n != right and _answer(got)[0] == n


def all_pass(got, request):
    p, *_, right = _round(request)
    return right < len(p) and _answer(got)[0] == len(p)


def no_chance(got, request):
    """Was a guess refused wherever the target likes it less?"""
    p, q, *_, right = _round(request)
    n = _prefix(p >= q)
    return n != right and _answer(got)[0] == n


def not_missed(got, request):
    """Is the token, after a failure, one of which the draft offered enough?"""
    p, _, _, target, draft, right = _round(request)
    n, token = _answer(got)
    return (
        n == right < len(p)
        and bool(target[n, token] + draft[n, token] > 0)
        and bool(target[n, token] <= draft[n, token])
    )


def impossible_word(got, request):
    """Is the token, after a failure, one that neither of the two could say?"""
    p, _, _, target, draft, right = _round(request)
    n, token = _answer(got)
    return n == right < len(p) and 0 <= token < target.shape[-1] and not bool(target[n, token] + draft[n, token])


def other_last_row(got, request):
    """Did all pass, and the token is impossible in the last row?"""
    p, *_, target, _, right = _round(request)
    n, token = _answer(got)
    return n == right == len(p) > 0 and not bool(target[-1, token])
