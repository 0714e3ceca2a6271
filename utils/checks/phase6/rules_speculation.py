"""What the checks of speculation look for by rule: the law of many tokens, signs of a known mistake.

A sign is rule(got, request) -> bool; a judge rule(got, settled) -> (expected, got) or None. None sees a twin or a case.
"""

import math
from functools import partial

import torch

from utils.checks.phase6.rules_systems import argument, said

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


def one_too_many(got, request):
    """Was the token behind the guesses counted, too?"""
    return _answer(got)[0] == _round(request)[-1] + 1


def without_the_draft(got, request):
    """Was a guess judged by the target's probability alone?"""
    p, _, uniforms, *_, right = _round(request)
    n = _prefix(uniforms < p)
    return n != right and _answer(got)[0] == n


def always_the_best(got, request):
    """Is the token after a failure the same in every one of many draws, the one missed most?"""
    if len(got["calls"]) < 50:
        return False
    *_, target, draft, right = _round(request)
    left = target[right] - draft[right] if right < len(draft) else target[right]
    return {int(call["value"][1]) for call in got["calls"]} == {int(left.argmax())}


# ---- whole texts -------------------------------------------------------------------------------------
# The target of the counted texts says each word with the same chances everywhere: all new tokens follow one law.


def text_follows(law, start, sigmas=5.0):
    """Judge the tokens of one long text, from place `start` on."""
    return partial(judge_text, law=list(law), start=start, sigmas=sigmas)


def judge_text(got, settled, law, start, sigmas):
    value = said(got)
    if not isinstance(value, torch.Tensor) or value.dim() != 2 or value.is_floating_point():
        return "tokens (1, n)", "something else"
    tokens, n = value[0, start:], said(settled).shape[1] - start
    if value.shape[0] != 1 or len(tokens) != n:
        return f"a text of shape {tuple(said(settled).shape)}", f"shape {tuple(value.shape)}"
    if text := _off(tokens, law, sigmas):
        word, share = text
        return f"word {word} in about {law[word]:.0%} of {n} tokens", f"in {share:.0%}"
    return None


def _off(tokens, law, sigmas):
    """(word, its share) of the first word that comes too often or too rarely, or None."""
    for word, chance in enumerate(law):
        share = (tokens == word).double().mean().item()
        if abs(share - chance) > sigmas * math.sqrt(max(chance * (1 - chance), 1e-3) / len(tokens)):
            return word, share
    return None


def text_like(laws, start):
    """Do the tokens of the counted text follow one of these other laws?"""
    return partial(is_like, laws=list(laws), start=start)


def is_like(got, request, laws, start):
    tokens = said(got)[0, start:]
    return argument(request, "target").name == "dice" and any(_off(tokens, law, 4.5) is None for law in laws)


def always_one(got, request):
    """Are all new tokens of the counted text the same?"""
    new = said(got)[0, argument(request, "prompt").shape[1] :]
    return argument(request, "target").name == "dice" and len(new) > 50 and len(new.unique()) == 1


def divided_by_zero(got, request):
    """Did it fail at temperature 0, on numbers that are no probabilities?"""
    raised = got["calls"][0]["raised"] or {"message": ""}
    cold = _option(request, "temperature") == 0
    return cold and ("probability tensor" in raised["message"] or raised.get("type") == "ZeroDivisionError")


def no_guess_used(got, request):
    """Was the target asked for every single token although the draft agrees with it?"""
    agrees = argument(request, "draft").options | {"counts": True, "name": ""}
    target = argument(request, "target").options | {"counts": True, "name": ""}
    alike = request.mutates == "target" and agrees == target
    return alike and int(said(got)["calls"]) == argument(request, "max_new_tokens")


def batch_not_refused(got, request):
    raised = got["calls"][0]["raised"] or {}
    return argument(request, "prompt").shape[0] > 1 and raised.get("type") != "ValueError"


def _option(request, name):
    call = request.calls[0]
    return {**call["args"], **call["options"]}.get(name)
