"""Compare two observations of one case and say in which ways they differ. Never calls learner code."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from utils.observe import codec

ASPECTS = {"shape": 0.1, "values": 0.4, "gradients": 0.3, "properties": 0.2}  # and their share of the points

# (rtol, atol, atol of gradients): float64 as exact as different orders of summation allow
TOLERANCE = {
    torch.float64: (1e-7, 1e-9, 1e-9),
    torch.float32: (1e-4, 1e-6, 1e-5),
    torch.float16: (2e-3, 2e-3, 2e-2),
    torch.bfloat16: (2e-2, 2e-2, 1e-1),
}

# the order in which failures are told: the first one names the cause
RUNS, TYPE, SHAPE, DTYPE, VALUES, GRADIENTS, PURITY, EDGE = range(8)
_EDGE_COSTS = {GRADIENTS: "gradients at an edge"}  # properties, unless gradients are wrong everywhere anyway


@dataclass(frozen=True)
class Finding:
    """One way in which an object failed a case. `expected` and `got` are for the learner's eyes."""

    stage: int
    expected: str
    got: str
    spoils: tuple  # the aspects it costs


def findings(exercise, case, request, got, expected):
    """All Findings of observation `got` against `expected`, the most telling first; [] if they agree."""
    if got["caught"]:
        return [_broken(case, "your own steps", f"{got['caught']}: build this one yourself")]
    found = [*_answers(case, got, expected), *_impurities(exercise, case, got)]
    for rule in exercise.properties:
        text = _broken_property(rule, got, case, request, found)
        if text:
            found.append(Finding(PURITY, *text, ("properties",)))
    if case.kind == "edge":
        found = [Finding(EDGE, f.expected, f.got, (_EDGE_COSTS.get(f.stage, "properties"),)) for f in found]
    return sorted(found, key=lambda finding: finding.stage)


def _broken_property(rule, got, case, request, found):
    """What a rule says; None where it cannot read an answer that is `found` to be of another kind anyway."""
    try:
        return rule(got, case, request)
    except Exception:
        if not any(finding.stage < VALUES for finding in found):
            raise  # a right answer, and the rule cannot read it: the rule is wrong
        return None


def turn(finding):
    """When a finding is told: answers in the order of the cases, then gradients, purity, edges."""
    return max(finding.stage, VALUES)


def alike(exercise, case, request, got, wrong, expected):
    """Did the learner's object do what this mistake does: same answers, same side effects?

    Where the values are wrong, gradients are not asked: two ways to the same wrong values may differ in them.
    """
    values_right = all(finding.stage > VALUES for finding in _answers(case, got, expected))
    if any(finding.stage != GRADIENTS or values_right for finding in _answers(case, got, wrong)):
        return False

    def rest(seen):
        found = list(_answers(case, seen, expected))
        broken = [bool(_broken_property(rule, seen, case, request, found)) for rule in exercise.properties]
        return [finding.got for finding in _impurities(exercise, case, seen)], broken

    return rest(got) == rest(wrong)


def _answers(case, got, expected):
    """Findings on what was returned or refused."""
    if got["problem"] and not _same_refusal(got["problem"], expected["problem"]):
        yield _broken(case, _said(expected["problem"]) or "an answer", _said(got["problem"]))
        return
    if expected["problem"]:
        if not got["problem"]:
            yield _broken(case, _said(expected["problem"]), "an object, without complaint")
        return
    if got["parameters"] != expected["parameters"]:
        yield Finding(
            SHAPE, f"{expected['parameters']} parameters in all", str(got["parameters"]), ("shape", "properties")
        )
    if case.judge:
        raised = next((call["raised"] for call in got["calls"] if call["raised"]), None)
        text = ("an answer", _said(raised)) if raised else _own_verdict(case, got, expected)
        if text:
            yield Finding(RUNS if raised else VALUES, *text, ("values",))
        return
    for index, (call, right) in enumerate(zip(got["calls"], expected["calls"], strict=False)):
        place = f" in call {index + 1}" if len(expected["calls"]) > 1 else ""
        yield from _call(case, call, right, place)


def _own_verdict(case, got, expected):
    """What the case's own judge says: None or (expected, got). What it cannot read is refused."""
    try:
        texts = case.judge(got, expected)
        return texts and tuple(" ".join(text.split()) for text in texts)
    except Exception:
        calls = zip(got["calls"], expected["calls"], strict=False)
        found = (finding for mine, right in calls for finding in _call(case, mine, right, ""))
        unlike = next((finding for finding in found if finding.stage in (TYPE, SHAPE)), None)
        return (unlike.expected, unlike.got) if unlike else ("an answer that can be read", "one of another form")


def too_slow(seconds):
    """The Finding that ends a check which would go on for minutes."""
    spoils = tuple(ASPECTS)
    return Finding(RUNS, f"all cases within {seconds:g} s", "it goes on: the remaining cases were not tried", spoils)


def _impurities(exercise, case, got):
    """Findings on what was changed that should not be."""
    may_draw = (case.kind == "chance" or case.train) if exercise.is_module else bool(case.mutates) or exercise.draws
    drawing = {"torch's random state"} if may_draw else set()
    for name in got["disturbed"]:
        if name not in drawing:
            yield Finding(PURITY, f"{name} left alone", f"{name} was changed", ("properties",))
    for call in got["calls"]:
        for name in call["changed"]:
            yield Finding(PURITY, f"{name} as before the call", f"{name} was changed", ("properties",))
        if exercise.fresh and call["shares"]:
            yield Finding(PURITY, "a new array", f"a view of {call['shares'][0]}", ("properties",))


def _call(case, call, right, place):
    """Findings on one call: refusal, value, gradients."""
    if right["raised"]:
        if not call["raised"]:
            yield _broken(case, _said(right["raised"]), f"{_short(call['value'])}, without complaint")
        elif not _same_refusal(call["raised"], right["raised"]):
            mute = _same_kind(call["raised"], right["raised"])
            got = f"{call['raised']['type']} without a word: tell the caller what is wrong" if mute else None
            yield _broken(case, _said(right["raised"]), got or _said(call["raised"]))
        return
    if call["raised"]:
        yield _broken(case, "an answer" + place, _said(call["raised"]))
        return
    differences = list(_value("out", call["value"], right["value"], case, place))
    yield from differences
    if any(finding.stage in (TYPE, SHAPE) for finding in differences):
        if right["grads"]:
            yield Finding(GRADIENTS, "gradients", "none could be taken", ("gradients",))
        return
    for kind in ("grads", "weight_grads"):
        yield from _gradients(call[kind], right[kind], case, place)


def _broken(case, expected, got):
    return Finding(
        RUNS, expected, got, ("shape", "values", "gradients", *(("properties",) if case.kind == "edge" else ()))
    )


def _value(path, got, expected, case, place):
    """Findings on one returned value, of any type the codec knows."""
    several = isinstance(expected, tuple) and isinstance(got, (tuple, list))
    if several and len(got) == len(expected):
        for index, (part, right) in enumerate(zip(got, expected, strict=True)):
            yield from _value(f"{path}[{index}]", part, right, case, place)
        return
    if type(got) is type(expected) is dict and got.keys() != expected.keys():
        missing, more = (
            sorted(map(repr, one.keys() - other.keys())) for one, other in ((expected, got), (got, expected))
        )
        text = " and ".join(
            filter(None, (missing and f"no {', '.join(missing)}", more and f"{', '.join(more)} besides"))
        )
        yield Finding(TYPE, f"{path} with the keys {', '.join(map(repr, expected))}{place}", text, ("shape", "values"))
        return
    if type(got) is type(expected) is dict:
        for key, right in expected.items():
            yield from _value(f"{path}[{key!r}]", got[key], right, case, place)
        return
    if type(got) is type(expected) is list and len(got) == len(expected) and float in map(type, expected):
        for index, (part, right) in enumerate(zip(got, expected, strict=True)):
            yield from _value(f"{path}[{index}]", part, right, case, place)
        return
    if type(got) is int and type(expected) is float and abs(got) < 2**1000:
        got = float(got)  # a whole number is a number, too
    if several or type(got) is not type(expected):
        wanted = "None" if expected is None else _kind(expected)
        yield Finding(TYPE, f"{path} is {wanted}{place}", _kind(got), ("shape", "values"))
    elif isinstance(expected, (torch.Tensor, np.ndarray)):
        yield from _array(path, _tensor(got), _tensor(expected), case, place)
    elif isinstance(expected, float) and math.isclose(got, expected, rel_tol=TOLERANCE[getattr(torch, case.dtype)][0]):
        return
    elif not _same(got, expected):
        path, got, expected = _first_unlike(path, got, expected)
        texts = f"{path} = {_short(expected)}{place}", f"{path} = {_short(got)}"
        if isinstance(got, torch.Tensor) and isinstance(expected, torch.Tensor):  # their shapes would read alike
            texts = next(((one.expected, one.got) for one in _array(path, got, expected, case, place)), texts)
        yield Finding(VALUES, *texts, ("values",))


def _same(got, expected):
    """Are two plain values equal, types and all? Of a dict the order does not count."""
    if type(got) is type(expected) is dict:
        return got.keys() == expected.keys() and all(_same(got[key], expected[key]) for key in expected)
    return codec.encode(got) == codec.encode(expected)


def _first_unlike(path, got, expected):
    """(path, got, expected) of the first entry in which two long lists differ; short ones are shown whole."""
    if not type(got) is type(expected) is list or not (_short(expected) + _short(got)).count("…"):
        return path, got, expected
    pairs = zip(got, expected, strict=False)
    index = next((n for n, pair in enumerate(pairs) if not _same(*pair)), None)
    if index is None:
        return f"len({path})", len(got), len(expected)
    return f"{path}[{index}]", got[index], expected[index]


def _array(path, got, expected, case, place):
    if got.shape != expected.shape:
        shapes = (f"{path} of shape {tuple(expected.shape)}{place}", f"shape {tuple(got.shape)}")
        yield Finding(SHAPE, *shapes, ("shape", "values"))
        return
    if got.dtype != expected.dtype:
        usual = got.dtype == torch.float32 and expected.dtype.is_floating_point
        why = ", torch's usual one (something was made without dtype=…)" if usual else ""
        yield Finding(DTYPE, f"{path} of dtype {_dtype(expected)}{place}", f"{_dtype(got)}{why}", ("shape",))
    rtol, atol = _tolerance(expected.dtype, case, gradient=False)
    index = first_difference(got, expected, rtol, atol)
    if index is not None:
        right, mine = _rows(expected, got, index)
        yield Finding(VALUES, f"{path}{right}{place}", f"{path}{mine}", ("values",))


def _gradients(got, expected, case, place):
    for name, right in (expected or {}).items():
        if not isinstance(right, torch.Tensor):
            continue  # the twin has no gradient here: nothing to compare
        if got is not None and "every parameter" in got and name not in got:  # filled through load_weights: own names
            if not got["every parameter"]:
                yield Finding(GRADIENTS, "a gradient for every parameter", "none for some", ("gradients",))
                return
            continue
        rtol, atol = _tolerance(right.dtype, case, gradient=True)
        mine = (got or {}).get(name)
        if mine is None and bool((right.abs() <= atol).all()):
            continue  # no gradient and a gradient of zeros are the same
        if mine is None:
            yield Finding(GRADIENTS, f"a gradient for {name}{place}", "none: something cuts it off", ("gradients",))
            continue
        if not isinstance(mine, torch.Tensor) or mine.shape != right.shape:
            texts = (f"a gradient for {name} of shape {tuple(right.shape)}{place}", _short(mine))
            yield Finding(GRADIENTS, *texts, ("gradients",))
            continue
        index = first_difference(mine, right, rtol, atol)
        if index is not None:
            right, mine = _rows(right, mine, index)
            yield Finding(GRADIENTS, f"grad of {name}{right}{place}", f"grad of {name}{mine}", ("gradients",))


def first_difference(got, expected, rtol, atol):
    """Index tuple of the first entry outside rtol/atol (NaN equals NaN), or None. Shapes must agree."""
    if not expected.dtype.is_floating_point or not got.dtype.is_floating_point:
        same = got.to(torch.float64) == expected.to(torch.float64)
    else:
        same = torch.isclose(got.double(), expected.double(), rtol=rtol, atol=atol, equal_nan=True)
    wrong = (~same).nonzero()
    return tuple(wrong[0].tolist()) if len(wrong) else None


def _tolerance(dtype, case, gradient):
    rtol, atol, grad_atol = TOLERANCE.get(dtype, (0.0, 0.0, 0.0))
    return (0.0, case.atol) if case.atol is not None else (rtol, grad_atol if gradient else atol)


def _same_refusal(got, expected):
    """Is this the refusal that was asked for: a ValueError, or a kind of it, that says something?"""
    return _same_kind(got, expected) and bool(got["message"].strip())


def _same_kind(got, expected):
    return expected is not None and expected.get("type") is not None and expected["type"] in (got.get("is") or ())


PLAIN = {  # what torch says: what it means
    "modified by an inplace operation": "the gradient needs a value that was written over (by +=, exp_() or the like)",
    "a view of a leaf Variable that requires grad is being used in an in-place": "a parameter was written over",
    "a leaf Variable that requires grad is being used in an in-place": "a parameter was written over",
    "Can't call numpy() on Tensor that requires grad": "NumPy cannot carry a gradient: stay in torch",
}


def _said(problem):
    """One line for a problem or an exception."""
    if not problem:
        return ""
    if problem.get("type") == "TookTooLong":
        return f"no answer: {problem['message']}"
    if problem.get("type") is None:
        return problem["message"]
    said = next((plain for part, plain in PLAIN.items() if part in problem["message"]), problem["message"])
    text = f"{problem['type']}: {said}".rstrip(": ").splitlines()[0][:160]
    return f"{text} ({problem['where']})" if problem.get("where") else text


def _kind(value):
    if isinstance(value, torch.Tensor):
        return "a torch.Tensor"
    if isinstance(value, np.ndarray):
        return "a numpy.ndarray"
    name = getattr(value, "type", None) or type(value).__name__
    if isinstance(value, (tuple, list)):
        return f"a {name} of {len(value)}"
    return (
        "None (is a return missing?)" if value is None else f"a {name}" + (f" ({value!r})" if name == "float" else "")
    )


def _tensor(value):
    return value if isinstance(value, torch.Tensor) else torch.from_numpy(value)


def _dtype(tensor):
    return str(tensor.dtype).removeprefix("torch.")


def _rows(expected, got, index):
    """Both rows of the first difference; the entry itself, with all digits, where the rows read alike."""
    texts = [_row(tensor, index) for tensor in (expected, got)]
    if texts[0] != texts[1]:
        return texts
    place = f"[{', '.join(map(str, index))}]" if index else ""
    return [f"{place} = {tensor[index].item()!r}" for tensor in (expected, got)]


def _row(tensor, index):
    """The row (last axis) of the first difference: "[0, 0, 2] = [0.11, -0.24]"; at most 8 numbers of it."""
    if tensor.dim() == 0:
        return f" = {_number(tensor)}"
    start = max(0, index[-1] - 6) if tensor.shape[-1] > 8 else 0
    row = tensor[index[:-1]][start : start + 8]
    numbers = ("… " if start else "") + ", ".join(map(_number, row)) + (", …" if start + 8 < tensor.shape[-1] else "")
    place = f"[{', '.join(map(str, index[:-1]))}]" if len(index) > 1 else ""
    return f"{place} = [{numbers}]"


def _number(entry):
    if entry.dtype.is_floating_point:
        size = abs(entry.item())
        return (
            f"{entry.item():.3g}"
            if size and (size < 0.01 or size >= 1e4)
            else f"{entry.item():.3f}".rstrip("0").rstrip(".")
        )
    return str(entry.item())


def _short(value):
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return f"an array of shape {tuple(value.shape)}"
    text = " ".join((value.text if hasattr(value, "text") else repr(value)).split())
    return text if len(text) <= 80 else f"{text[:77]}…"
