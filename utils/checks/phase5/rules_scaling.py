"""What the checks of scaling look for by rule: is a fit near the planted law, is a split the cheapest, and why not?

A sign is rule(got, request) -> bool; a judge rule(got, settled) -> (expected, got) or None. None sees a twin or a case.
"""

import math
from functools import partial

import numpy as np

from utils.checks.phase5.rules_cache import answers, asked

KEYS = ("E", "A", "alpha")


def _fit(got):
    """The three numbers of an answer as floats, or None."""
    value = answers(got)[0]
    if not isinstance(value, dict) or sorted(map(str, value)) != sorted(KEYS):
        return None
    try:
        numbers = {key: float(value[key]) for key in KEYS}
    except (TypeError, ValueError):
        return None
    return numbers if all(map(math.isfinite, numbers.values())) else None


def _predicted(fit, sizes):
    return [fit["E"] + fit["A"] * size ** -fit["alpha"] for size in sizes]


def planted(**law):
    """Judge a fit of exact data: each number of the law within 2 %."""
    return partial(judge_planted, law=law)


def judge_planted(got, settled, law):
    fit = _fit(got)
    if fit is None:
        return "a dict with the finite numbers E, A and alpha", _short(answers(got)[0])
    for key, right in law.items():
        if abs(fit[key] / right - 1) > 0.02:
            return f"{key} = {right:g} within 2 %", f"{key} = {fit[key]:.4g}"
    return None


def predicts(sizes, losses):
    """Judge a fit of noisy data: each loss of the law without noise within 1 %."""
    return partial(judge_predictions, sizes=list(sizes), losses=list(losses))


def judge_predictions(got, settled, sizes, losses):
    fit = _fit(got)
    if fit is None:
        return "a dict with the finite numbers E, A and alpha", _short(answers(got)[0])
    for size, right, found in zip(sizes, losses, _predicted(fit, sizes), strict=True):
        if abs(found / right - 1) > 0.01:
            return f"a loss of {right:.4g} at size {size:.3g}, within 1 %", f"{found:.4g}"
    return None


def _short(value):
    return repr(value)[:60]


def no_floor(got, request):
    """Is E missing, 0 or next to nothing?"""
    return abs(_fit(got)["E"]) < 1e-3 * min(asked(request)["losses"])


def lowest_as_floor(got, request):
    """Is E the smallest loss itself, or nearly?"""
    return abs(_fit(got)["E"] / min(asked(request)["losses"]) - 1) < 1e-2


def rises(got, request):
    """Is alpha negative, so that the law would rise with size?"""
    return _fit(got)["alpha"] < 0


def bases_mixed(got, request):
    """Do the losses come out if A is taken out of one logarithm and put back into the other?"""
    fit, (sizes, losses) = _fit(got), (asked(request)[name] for name in ("sizes", "losses"))
    turned = [fit | {"A": a} for a in (10 ** math.log(fit["A"]), math.exp(math.log10(fit["A"])))]
    slopes = [fit | {"alpha": fit["alpha"] * ratio} for ratio in (math.log(10), 1 / math.log(10))]
    return any(np.allclose(_predicted(way, sizes), losses, rtol=5e-3) for way in turned + slopes)


def still_a_logarithm(got, request):
    """Do the losses come out if exp is taken of A?"""
    fit, (sizes, losses) = _fit(got), (asked(request)[name] for name in ("sizes", "losses"))
    return fit["A"] < 50 and np.allclose(_predicted(fit | {"A": math.exp(fit["A"])}, sizes), losses, rtol=5e-3)


def other_keys(got, request):
    value = answers(got)[0]
    return not isinstance(value, dict) or sorted(map(str, value)) != sorted(KEYS)


# ---- compute_optimal -----------------------------------------------------------------------------


def cheapest(flops, n_params, n_tokens):
    """Judge a split of a budget: within 1 % of the best one, and all of it spent."""
    return partial(judge_split, flops=flops, n_params=n_params, n_tokens=n_tokens)


def judge_split(got, settled, flops, n_params, n_tokens):
    split = _split(got)
    if split is None:
        return "two positive numbers, n_params and n_tokens", _short(answers(got)[0])
    if abs(6 * split[0] * split[1] / flops - 1) > 1e-6:
        return f"6 · n_params · n_tokens = {flops:.3g}", f"{6 * split[0] * split[1]:.3g}"
    for name, right, found in zip(("n_params", "n_tokens"), (n_params, n_tokens), split, strict=True):
        if abs(found / right - 1) > 0.01:
            return f"{name} = {right:.4g} within 1 %", f"{found:.4g}"
    return None


def _split(got):
    value = answers(got)[0]
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        return None
    try:
        split = [float(part) for part in value]
    except (TypeError, ValueError):
        return None
    return split if all(0 < part < math.inf for part in split) else None


def _best(flops, fit):
    """n_params by the closed form."""
    total = fit["alpha"] + fit["beta"]
    scale = (fit["alpha"] * fit["A"] / (fit["beta"] * fit["B"])) ** (1 / total)
    return scale * flops ** (fit["beta"] / total)


def split_is(way):
    """Is n_params what this mistake gives?"""
    return partial(is_split, way=way)


def is_split(got, request, way):
    found, flops, fit = _split(got)[0], asked(request)["flops"], asked(request)["fit"]
    turned = fit | {"alpha": fit["beta"], "beta": fit["alpha"]}
    half = math.sqrt(flops / 6)
    wanted = {
        "exchanged": {_best(flops / 6, turned), _scale(fit) * (flops / 6) ** (fit["alpha"] / _sum(fit))},
        "six": {_best(flops, fit)},
        "two": {_best(flops / 2, fit)},
        "half": {half, math.sqrt(flops)},
        "twenty": {math.sqrt(flops / 120)},
        "order": {flops / 6 / _best(flops / 6, fit)},
        "slopes": {(fit["A"] / fit["B"]) ** (1 / _sum(fit)) * (flops / 6) ** (fit["beta"] / _sum(fit))},
    }[way]
    return any(abs(found / right - 1) < 1e-2 for right in wanted)


def _sum(fit):
    return fit["alpha"] + fit["beta"]


def _scale(fit):
    return (fit["alpha"] * fit["A"] / (fit["beta"] * fit["B"])) ** (1 / _sum(fit))
