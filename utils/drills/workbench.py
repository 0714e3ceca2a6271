"""Code on a card, run as in its notebook: what a learner types in a drill, and the listings of bug hunts."""

import ast
import contextlib
import inspect
import io
from dataclasses import replace
from pathlib import Path

import numpy
import torch

from utils import oracle
from utils.checks.core import evaluate, find
from utils.checks.draw import mask, probs
from utils.checks.exercise import case, truth
from utils.checks.stored import STORED
from utils.definitions import Unfit, build, parsed, read_cells
from utils.drills.replies import Unclear
from utils.drills.twists import twist_case
from utils.mycode import own
from utils.syllabus import syllabus
from utils.workspace import course_root

OURS = "from utils.oracle import {name}"
YOURS = "from utils.drills.workbench import own_version\n{name} = own_version({name!r})"

# ---- code that is written ------------------------------------------------------------------------


def build_code(name, source):
    """The object that `source` defines under the exercise's name, made among the definitions of its notebook.

    Other exercises are the course's own versions; where a class has not been handed them, the learner's. Raises Unclear
    in a sentence if it cannot be made.
    """
    path = notebook_of(find(name).phase)
    cells = [_replaced(cell, name) for cell in (read_cells(path) if path.is_file() else [])]
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return build(name, [*cells, parsed(len(cells) + 1, source)], Path("your answer"))
    except Unfit as error:
        if isinstance(error.__cause__, Unclear):
            raise error.__cause__ from None
        said = str(error).replace(f"cell {len(cells) + 1} of your answer", "your code")
        raise Unclear(said.replace("your answer does not define it", f"your code does not define {name}")) from None


def own_version(name):
    """The learner's own exercise, from my_work/. Raises Unclear if it does not pass its check yet."""
    obj, reason = own(name)
    if reason:
        raise Unclear(f"Your code needs {name}. This copy of the course has yours alone, and {reason}.")
    return obj


def notebook_of(phase):
    """The released notebook of a phase: its imports and small helpers are at hand in a drill, too."""
    return course_root() / "notebooks" / phase / f"{phase}.ipynb"


def _replaced(cell, name):
    """A cell of the release, with other versions for the blank exercises; this one's is left out."""
    tasks, body = syllabus(), []
    for node in cell.body:
        if getattr(node, "name", None) not in tasks:
            body.append(node)
        elif node.name != name:
            here = OURS if hasattr(oracle, node.name) else YOURS
            body += ast.parse(here.format(name=node.name)).body
    return replace(cell, body=tuple(body))


def judge_code(card, source):
    """(Report on the visible cases, Report on the twist or None) of code typed for a drill. Raises Unclear."""
    if not source.strip() or source.strip() == card.code.strip():
        raise Unclear("That is still the blank cell.")
    obj = build_code(card.exercise, source)
    report = evaluate(card.exercise, obj, own_twin_allowed=False)
    if "not implemented yet" in report.message:
        raise Unclear("It still raises NotImplementedError.")
    if not report.passed or card.twist is None:
        return report, None
    if card.exercise in STORED:  # a class copy: no twin is there to answer another case
        return report, None
    twist = twist_case(card.twist, find(card.exercise))
    return report, evaluate(card.exercise, obj, cases=(twist,), own_twin_allowed=False)


# ---- an input that exposes a fault ---------------------------------------------------------------


def expose(card, call):
    """The Report on a bug card's listing for one call, such as "sdpa((1, 2, 4), (1, 3, 4), (1, 3, 4))".

    A tuple of sizes stands for random numbers of that shape; torch, np, mask and probs are at hand. A module is made
    and called: "SelfAttention(8, 4)((2, 5, 8))". Raises Unclear if that is no such call, or one that asks too much.
    """
    exercise = find(card.exercise)
    if card.exercise in STORED:
        raise Unclear("This copy of the course does not know the answer to any call: name the fault instead.")
    if exercise.script:
        raise Unclear("This one is judged by a whole play of calls: name its fault instead.")
    asked = _case_of(exercise, call)
    try:
        expected = truth(exercise, asked, 0)
    except Exception as error:
        raise Unclear(f"With this call not even the right version can be run: {error}") from None
    problems = [expected["problem"], *(one["raised"] for one in expected["calls"])]
    for raised in filter(None, problems):
        if raised.get("type") != "ValueError":
            raise Unclear(f"The right version stops with this call, too: {raised.get('type')}: {raised['message']}")
    return evaluate(card.exercise, build_code(card.exercise, card.code), cases=(asked,))


def can_be_exposed(exercise):
    """May a call be typed to expose a fault of this exercise? Not where it is judged by a whole play."""
    return not find(exercise).script


def _case_of(exercise, call):
    try:
        node = ast.parse(call.strip(), mode="eval").body
    except SyntaxError as error:
        raise Unclear(f"This is no call that Python reads: {error.msg}.") from None
    parts = {}
    if exercise.kind == "function":
        parts["args"] = _arguments(node, exercise.name, exercise.expected, exercise.name)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Call):
        parts["init"] = _arguments(node.func, exercise.name, exercise.expected.__init__, exercise.name)
        parts["args"] = _arguments(node, None, exercise.expected.forward, exercise.name)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        method, made = node.func.attr, node.func.value
        target = getattr(exercise.expected, method, None)
        if target is None:
            raise Unclear(f"{exercise.name} has no {method}.")
        parts["init"] = _arguments(made, exercise.name, exercise.expected.__init__, exercise.name)
        parts["args"] = {"method": method, **_arguments(node, None, target, exercise.name)}
    else:
        raise Unclear(f"Make one and call it, in one line: {exercise.name}(…)(…)")
    return case("your call", **parts)


def _arguments(node, name, target, shown):
    """{argument: value} of one call, names taken from the signature of `target`."""
    if not isinstance(node, ast.Call) or (name and getattr(node.func, "id", None) != name):
        raise Unclear(f"Write one call of {shown}: {shown}(…)")
    space = {"torch": torch, "np": numpy, "mask": mask, "probs": probs}
    try:
        values = [_value(one, space) for one in node.args]
        options = {one.arg: _value(one.value, space) for one in node.keywords}
        method = [None] if next(iter(inspect.signature(target).parameters), "") == "self" else []
        bound = inspect.signature(target).bind(*method, *values, **options).arguments
    except Unclear:
        raise
    except Exception as error:
        raise Unclear(f"{type(error).__name__}: {error}") from None
    return {key: value for key, value in bound.items() if key != "self"}


def _value(node, space):
    value = eval(compile(ast.Expression(node), "your call", "eval"), dict(space))
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return value
