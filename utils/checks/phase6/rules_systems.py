"""What the checks of phase 6 on systems look for by rule: judges of chance and counts, signs of a known mistake.

A sign is rule(got, request) -> bool; a judge rule(got, settled) -> (expected, got) or None. None sees a twin or a case.
"""

import math
from functools import partial


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


def nan_of_nothing(got, request):
    """Is the loss no number where nothing is kept?"""
    return not bool(argument(request, "pad_mask").any()) and bool(said(got).isnan())


def target_out_of_range(got, request):
    """Did it fail on a target that is no word?"""
    raised = got["calls"][0]["raised"] or {"message": ""}
    low = bool((argument(request, "targets") < 0).any())
    return low and any(part in raised["message"] for part in ("out of bounds", "out of range"))


def fitting_refused(got, request):
    """Was −8 refused, and all others fit?"""
    q, raised = argument(request, "q"), got["calls"][0]["raised"] or {}
    return raised.get("type") == "ValueError" and int(q.min()) == -8 and int(q.max()) <= 7


def odd_end_failed(got, request):
    """Did halves of different lengths not go together?"""
    raised = got["calls"][0]["raised"] or {}
    return raised.get("type") == "RuntimeError" and argument(request, "q").shape[-1] % 2 == 1


def block_copied(got, request):
    return "the block was copied" in (got["problem"] or {"message": ""})["message"]


def block_not_named(got, request):
    return "there is no parameter block." in (got["problem"] or {"message": ""})["message"]


def at_most(n_bytes, call=0):
    """Judge the bytes that an object keeps after this call."""
    return partial(judge_bytes, n_bytes=n_bytes, call=call)


def judge_bytes(got, settled, n_bytes, call):
    held = said(got, call)
    return None if type(held) is int and held <= n_bytes else (f"at most {n_bytes} bytes kept", f"{held} bytes")


def too_many_bytes(got, request):
    """Is more kept than a byte for every weight and a few numbers for each row?"""
    layer = request.init["args"]["linear"].options
    rows, columns = layer["d_out"], layer["d_in"]
    return request.mutates == "held" and type(said(got)) is int and said(got) >= rows * columns * 3


def cache_grows(got, request):
    """Are the bytes of many more tokens held than of the first twenty?"""
    return request.mutates == "held" and said(got, -1) > 1.5 * said(got, 19)


def sizes_not_refused(got, request):
    sizes = {**request.init["args"], **request.init["options"]}
    bad = sizes["window"] < 1 or sizes.get("n_sinks", 0) < 0
    return bad and (got["problem"] or {}).get("type") != "ValueError"


def judge_learning(got, settled):
    """Judge which kept tensors a gradient may still reach: none."""
    names = said(got)
    if names == []:
        return None
    return "buffers that no gradient reaches: detach() what you keep", f"gradients reach {', '.join(map(str, names))}"


def learning_kept(got, request):
    return request.mutates == "learning" and bool(said(got))


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
    draws = _drawn(got, part)
    for token, chance in enumerate(law):
        share = draws.count(token) / len(draws)
        if abs(share - chance) > 6 * math.sqrt(chance * (1 - chance) / len(draws)) + 1e-12:
            return f"token {token} in about {chance:.0%} of {len(draws)} draws", f"in {share:.0%}"
    if not all(0 <= draw < len(law) for draw in draws):
        return f"tokens below {len(law)}", f"{max(draws)}"
    return None
