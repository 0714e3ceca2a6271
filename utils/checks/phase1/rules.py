"""What the checks of phase 1 look for by rule: properties and signs of a known mistake.

A rule sees observations and requests, never a twin or a case. A property is rule(got, case, request) -> (expected,
got) or None; a sign rule(got, request) -> bool.
"""

from functools import partial

import numpy as np
import torch

# ---- what was returned ---------------------------------------------------------------------------


def said(got):
    """What the first call returned; None if it failed."""
    return got["calls"][0]["value"] if got["calls"] else None


def asked(request, name):
    """What the first call was given."""
    call = request.calls[0]
    return {**call["args"], **call["options"]}.get(name)


def failed(got):
    """The name of what the first call, or the making of the object, raised; "" if nothing."""
    raised = got["problem"] or (got["calls"][0]["raised"] if got["calls"] else None)
    return (raised or {}).get("type") or ""


def never(got, request):
    return False


def other_dtype(name):
    """The sign that the answer has another floating dtype than this argument."""
    return partial(has_other_dtype, name=name)


def has_other_dtype(got, request, name):
    given, value = asked(request, name), said(got)
    return hasattr(value, "dtype") and "float" in str(value.dtype) and value.dtype != given.dtype


def nan_somewhere(got, request):
    return bool(said(got).isnan().any())


# ---- recurrence ----------------------------------------------------------------------------------


def last_state_only(got, request):
    value = said(got)
    return isinstance(value, np.ndarray) and value.ndim == 2


def sentences_are_independent(got, case, request):
    """Property: states stay within (−1, 1), as tanh leaves them."""
    value = said(got)
    if isinstance(value, np.ndarray) and value.size and np.abs(value).max() > 1:
        return "states between -1 and 1", f"one of {np.abs(value).max():.3g}"
    return None


# ---- pairs ---------------------------------------------------------------------------------------


def _pieces(got):
    """All parts of the pairs that were returned."""
    value = said(got)
    if not isinstance(value, (list, tuple)):
        return []
    return [part for pair in value if isinstance(pair, (list, tuple)) for part in pair]


def pairs_as_lists(got, request):
    value = said(got)
    return isinstance(value, list) and bool(value) and all(type(pair) is list for pair in value)


def pairs_of_text(got, request):
    return any(isinstance(part, str) for part in _pieces(got))


def pairs_of_ints(got, request):
    return any(isinstance(part, (int, np.integer)) for part in _pieces(got))


def goes_on_without_pairs(got, request):
    """More merges were asked for than there can be: did it fail, or hand over as many as were asked for?"""
    counts, n_merges = asked(request, "word_counts"), asked(request, "n_merges")
    if n_merges < 1 or n_merges <= sum(len(word) - 1 for word in counts if word):
        return False
    value = said(got)
    return bool(failed(got)) or (isinstance(value, (list, tuple)) and len(value) == n_merges)


def pieces_of_other_kinds(got, request):
    value = said(got)
    return isinstance(value, (list, tuple)) and any(type(piece) is not bytes for piece in value)


def pieces_spell_the_word(got, case, request):
    """Property: the pieces joined are the word."""
    for call, answer in zip(request.calls, got["calls"], strict=False):
        value = answer["value"]
        if isinstance(value, list) and all(type(piece) is bytes for piece in value):
            word = {**call["args"], **call["options"]}["word"]
            if b"".join(value) != word:
                return f"pieces that spell {word!r}", repr(b"".join(value))
    return None


# ---- tokenizer -----------------------------------------------------------------------------------


def code_points(got, request):
    """Does the number of a character of several bytes stand among the ids?"""
    text = asked(request, "text")
    large = {ord(mark) for mark in text or "" if ord(mark) >= 0x800}
    return bool(large & set(said(got) or ()))


def patterns_in_specials(got, request):
    """Did it fail where a special holds a sign of the pattern language?"""
    signs = any(sign in special for special in request.init["args"]["specials"] for sign in ".+*?()[]|")
    return signs and failed(got) in ("AttributeError", "TypeError", "KeyError", "error", "PatternError")


def lookup_failed(got, request):
    return asked(request, "ids") is not None and failed(got) in ("KeyError", "IndexError", "TypeError", "OverflowError")


def bytes_refused(got, request):
    return asked(request, "ids") is not None and failed(got) == "UnicodeDecodeError"


def ids_of_other_kinds(got, request):
    value = said(got)
    if asked(request, "text") is None or value is None:
        return False
    return not isinstance(value, list) or any(type(n) is not int for n in value)


def not_int_and_bool(got, request):
    """Two tensors of the right shape and another dtype?"""
    value = said(got)
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        return False
    tokens, mask = value
    tensors = isinstance(tokens, torch.Tensor) and isinstance(mask, torch.Tensor) and tokens.shape == mask.shape
    both = (torch.int64, torch.bool)
    return tensors and (tokens.dtype, mask.dtype) != both and (mask.dtype, tokens.dtype) != both


def none_allowed(got, request):
    """Was a width of 0 asked for, and taken?"""
    return asked(request, "max_len") == 0 and not failed(got)


# ---- softmax and positions -----------------------------------------------------------------------


def shares_are_whole(got, case, request):
    """Property: in float64 each slice sums to 1 within 1e-12."""
    for call, answer in zip(request.calls, got["calls"], strict=False):
        weights = answer["value"]
        if not isinstance(weights, torch.Tensor) or weights.dtype is not torch.float64:
            continue
        sums = weights.sum({**call["args"], **call["options"]}["dim"]).flatten()
        if sums.numel() and not bool(((sums - 1).abs() < 1e-12).all()):
            return "slices that sum to 1", f"one that sums to {sums[(sums - 1).abs().argmax()].item():.12g}"
    return None


def sum_too_large(got, request):
    """Does every slice sum to a little less than 1: was something added to the sum?"""
    value = said(got)
    short = 1 - value.sum(asked(request, "dim"))
    return value.dtype is torch.float64 and bool(((short > 1e-11) & (short < 1e-2)).all())


def distances_are_distances(got, case, request):
    """Property: zero on the diagonal, the same both ways, no NaN."""
    table = said(got)
    if not isinstance(table, torch.Tensor) or table.dim() != 2 or table.shape[0] != table.shape[1]:
        return None
    slack = 1e-3 if table.dtype is torch.float32 else 1e-6
    if bool(table.isnan().any()):
        return "no NaN", "NaN"
    if bool((table.diagonal().abs() > slack).any()):
        return "a distance of 0 from itself", f"{table.diagonal().abs().max().item():.3g}"
    if not torch.allclose(table, table.mT, rtol=0, atol=slack):
        return "a table that mirrors itself", "one that does not"
    return None


def digits_lost(got, request):
    """Are encodings that lie far from zero, and near each other, measured wrongly?"""
    return bool((asked(request, "positions") > 500).all()) and not bool(said(got).isnan().any())


def last_row_refused(got, request):
    """Was a sentence refused that ends exactly where the table does?"""
    offset, seq_len = asked(request, "offset") or 0, asked(request, "x").shape[-2]
    return failed(got) == "ValueError" and offset + seq_len == request.init["args"]["max_len"]


def narrow_input(got, request):
    """Did it fail for bfloat16, and yet return that?"""
    value = said(got)
    return asked(request, "x").dtype is torch.bfloat16 and getattr(value, "dtype", None) is torch.bfloat16


def table_is_no_parameter(got, request):
    problem = got["problem"] or {"message": ""}
    return "there is no parameter table" in problem["message"]
