"""What the checks of the cache look for by rule: counts of tokens fed, frequencies, and signs of a known mistake.

A sign is rule(got, request) -> bool; a judge rule(got, settled) -> (expected, got) or None. None sees a twin or a case.
"""

import math
from functools import partial

import torch


def answers(got):
    return [call["value"] for call in got["calls"]]


def asked(request, call=0):
    """All arguments of a call by name."""
    parts = request.calls[call]
    return {**parts["args"], **parts["options"]}


# ---- KVCache -------------------------------------------------------------------------------------


def length_is_called(got, request):
    """Is `length` a method, where it is to be read like an attribute?"""
    read = [
        call["value"] for call, asked in zip(got["calls"], request.calls, strict=False) if asked["method"] == "length"
    ]
    return any("method" in getattr(value, "type", "") for value in read)


def refused_too_early(got, request):
    """Was an append refused that fits, with no refusal before it?"""
    wrong = _refused_wrongly(got, request)
    return wrong is not None and wrong == min(n for n, call in enumerate(got["calls"]) if call["raised"])


def refused_call_was_heard(got, request):
    """After a call that was rightly refused: is an append refused that fits, or are there more tokens than came in?"""
    if _refused_wrongly(got, request) is not None:
        return not refused_too_early(got, request)
    refused = [call["raised"] is not None for call in got["calls"]]
    counts = [_tokens(call["value"]) for call in got["calls"]]
    held, seen = 0, False
    for call, was, count in zip(request.calls, refused, counts, strict=False):
        if call["method"] != "append" or request.init["args"]["n_layers"] > 1:
            return False
        held += 0 if was else call["args"]["k"].shape[2]
        seen = seen or (not was and count > held)
    return seen and any(refused)


def truncated_below_zero(got, request):
    """Was a truncate to a length below 0 accepted?"""
    pairs = zip(request.calls, got["calls"], strict=False)
    return any(
        call["method"] == "truncate" and call["args"]["length"] < 0 and not said["raised"] for call, said in pairs
    )


def empty_not_reordered(got, request):
    """Is there an error where a cache that nothing came into is reordered?"""
    first = request.calls[0]["method"] == "reorder"
    return first and bool(got["calls"][0]["raised"])


def _tokens(value):
    return value[0].shape[2] if isinstance(value, tuple) else 0


def _refused_wrongly(got, request):
    """The number of the first append that fits and is refused with a ValueError, or None."""
    sizes, held = request.init["args"], {}
    for number, (call, said) in enumerate(zip(request.calls, got["calls"], strict=False)):
        if call["method"] == "truncate":
            held = {layer: min(count, call["args"]["length"]) for layer, count in held.items()}
        if call["method"] != "append":
            continue
        layer, k, v = (call["args"][name] for name in ("layer", "k", "v"))
        wanted = (sizes["batch"], sizes["n_kv_heads"], k.shape[2] if k.dim() == 4 else 0, sizes["d_head"])
        count = held.get(layer, 0) + wanted[2]
        fits = tuple(k.shape) == wanted == tuple(v.shape) and wanted[2] and count <= sizes["max_len"]
        if not fits or layer not in range(sizes["n_layers"]):
            continue
        if said["raised"] and "ValueError" in said["raised"]["is"]:
            return number
        held[layer] = count
    return None


# ---- forward_cached, generate --------------------------------------------------------------------


def fed(state):
    """How many tokens a model counted, from its state. Raises TypeError for anything else than a state."""
    if not isinstance(state, dict):
        raise TypeError("no state")
    return int(state["token_embedding.fed"])


def fed_in_all(*allowed):
    """Judge how many tokens entered the model in the one call: one of these numbers."""
    return partial(judge_fed, allowed=list(allowed))


def judge_fed(got, settled, allowed):
    found = fed(answers(got)[0])
    if found not in allowed:
        return f"{allowed[0]} tokens fed to the model in all", f"{found} tokens"
    return ("a model that runs without gradients", "gradients were on") if gradients_on(got, None) else None


def gradients_on(got, request):
    """Did a model that counts see tokens while gradients were on?"""
    return bool(answers(got)[0].get("token_embedding.followed", torch.zeros(())))


def flags_left_after_an_error(got, request):
    """Is a call refused as it should be, and the model changed by it?"""
    return any(call["raised"] and "model" in call["changed"] for call in got["calls"])


def _raised(got):
    """(number, name, message) of the first call that raised; (None, "", "") without one."""
    for number, call in enumerate(got["calls"]):
        if call["raised"]:
            return number, call["raised"]["type"], call["raised"]["message"]
    return None, "", ""


def too_many_heads(got, request):
    """Did the lent cache refuse a number of heads?"""
    return "this cache is for" in _raised(got)[2]


def mask_off(by):
    """Was a mask built that is `by` times the new tokens wider than the scores?"""
    return partial(is_mask_off, by=by)


def is_mask_off(got, request, by):
    number, name, message = _raised(got)
    if name not in ("RuntimeError", "ValueError", "IndexError"):
        return False
    counts = [asked(request, n)["tokens"].shape[1] for n in range(number + 1)]
    wide, seen = sum(counts) + by * counts[-1], sum(counts)
    patterns = (
        f"tensor a ({wide}) must match the size of tensor b ({seen})",
        f"({seen}) must match the existing size ({wide})",
    )
    return any(pattern in message for pattern in patterns)


def fed_again(got, request):
    """Were more tokens fed than there are new ones?"""
    counts = [fed(state) for state in answers(got)]
    new = [asked(request, n)["tokens"].numel() for n in range(len(counts))]
    return any(count > sum(new[: n + 1]) for n, count in enumerate(counts))


def every_token_again(got, request):
    """With use_cache left on: was the whole sequence fed in each step?"""
    told = asked(request)
    (batch, length), steps = told["prompt"].shape, told["max_new_tokens"]
    return told.get("use_cache", True) and fed(answers(got)[0]) > batch * (length + steps)


def never_again(got, request):
    """With use_cache=False: was a token fed only once?"""
    told = asked(request)
    (batch, length), steps = told["prompt"].shape, told["max_new_tokens"]
    return not told.get("use_cache", True) and fed(answers(got)[0]) <= batch * (length + steps)


def same_text_twice(got, settled, how="with and without the cache"):
    """Judge two calls with equal seeds, one with the cache and one without: are the texts alike, and real draws?"""
    first, second = answers(got)
    wanted = answers(settled)[0]
    for text in (first, second):
        if not isinstance(text, torch.Tensor) or text.shape != wanted.shape or text.dtype != wanted.dtype:
            return f"tokens of shape {tuple(wanted.shape)}", "something else"
    if not torch.equal(first, second):
        return f"the same text {how}, from equal seeds", "another one"
    return None


def pairs_like(chances):
    """Judge the first two new tokens of many rows against {(first, second): probability}, six sigma each."""
    return partial(judge_pairs, chances=[[*pair, chance] for pair, chance in chances.items()])


def judge_pairs(got, settled, chances):
    text = answers(got)[0]
    if not isinstance(text, torch.Tensor) or text.shape != answers(settled)[0].shape:
        return f"tokens of shape {tuple(answers(settled)[0].shape)}", "something else"
    new, rows = text[:, -2:].tolist(), len(text)
    for first, second, chance in chances:
        share = sum(row == [first, second] for row in new) / rows
        if abs(share - chance) > 6 * math.sqrt(chance * (1 - chance) / rows):
            return f"tokens {first}, {second} in {chance:.1%} of {rows} texts", f"{share:.1%}"
    allowed = [[first, second] for first, second, _ in chances]
    odd = [row for row in new if row not in allowed]
    return ("tokens that the filter keeps", f"{odd[0]}, which it drops") if odd else None


def never_varies(got, request):
    """Do all rows of a sampled text end alike?"""
    new = answers(got)[0][:, -2:]
    return len(new) > 50 and bool((new == new[:1]).all())


def _new_rows(got, request):
    told = asked(request)
    return answers(got)[0][:, told["prompt"].shape[1] :], told


def _dropout_of(told):
    return told["model"].options.get("dropout", 0.0)


def dropout_was_on(got, request):
    """Did a model with dropout draw from torch's own random state?"""
    return bool(_dropout_of(asked(request))) and "torch's random state" in got["disturbed"]


def global_draws(got, request):
    """Did something else draw from torch's own random state, though a generator was handed over?"""
    return not _dropout_of(asked(request)) and "torch's random state" in got["disturbed"]


def rows_differ_at(option):
    return partial(equal_rows_differ, option=option)


def equal_rows_differ(got, request, option):
    """With equal prompts and one token to choose from by this option: do the rows differ?"""
    rows, told = _new_rows(got, request)
    alone = {"temperature": 0, "top_k": 1, "top_p": 1e-9}
    return told.get(option) == alone[option] and bool((rows != rows[:1]).any())


def went_past_max_len(got, request):
    """Was a text begun that is longer than the model can hold?"""
    told = asked(request)
    limit = {"max_len": 9, **told["model"].options}["max_len"]
    return told["prompt"].shape[1] + told["max_new_tokens"] > limit and not got["calls"][0]["raised"]
