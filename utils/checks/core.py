"""`evaluate` judges an object; `check` is what a learner's cell calls."""

import ast
import contextlib
import difflib
import importlib
import linecache
import os
import sys
from dataclasses import replace

from utils.checks.deliveries import DELIVERIES, look
from utils.checks.exercise import EXERCISES, Replays, Spotted
from utils.checks.stored import STORED
from utils.checks.verdict import Exam, judged
from utils.observe import observe


class CheckFailed(Exception):
    """An exercise is not right yet. In a notebook its traceback is the report alone."""

    def _render_traceback_(self):
        return str(self).splitlines()


def evaluate(name, obj, cases=None, seed=0, own_twin_allowed=True):
    """Judge `obj` as the exercise `name`; returns a Report, prints nothing, never raises for what `obj` does.

    cases: other cases than the visible ones (hidden ones, a drill's twist); seed: another one draws other numbers.
    own_twin_allowed: `check` says False, so that the course's own answer does not pass for the learner's.
    Raises CheckFailed for an unknown exercise. Where only stored answers are at hand, the seed is theirs, and so must
    the cases be.
    """
    if name in DELIVERIES:
        return look(name, obj, seed)
    exam = _exam(find(name), cases, seed)
    obj = obj.twin if isinstance(obj, (Spotted, Replays)) else obj
    requests = (replace(exam.request(case), own_twin=not own_twin_allowed) for case in exam.cases)
    return judged(exam, (observe(obj, request) for request in requests))


def _exam(exercise, cases, seed):
    cases = tuple(exercise.visible if cases is None else cases)
    if exercise.name not in STORED:
        return Exam(exercise, cases, seed)
    try:
        return STORED[exercise.name].only(cases)
    except KeyError:
        raise CheckFailed(
            f"✗ {exercise.name} · this copy of the course does not know the answer to that case"
        ) from None


def find(name):
    """The Exercise of this name. Raises CheckFailed, with the nearest names, if there is none."""
    if name not in EXERCISES:
        near = difflib.get_close_matches(str(name), EXERCISES, n=3, cutoff=0.5)
        raise CheckFailed(
            f"✗ {name} · no exercise has this name" + (f"; did you mean {', '.join(near)}?" if near else "")
        )
    return EXERCISES[name]


def check(obj, points=1):
    """Check the exercise that `obj` is bound to in the calling cell, and say what is right and what is not.

    Prints one line when all is well and raises CheckFailed otherwise. While nbgrader grades, prints the report and
    returns the points earned as a float, which nbgrader records as partial credit.
    """
    name = _asked_for(sys._getframe(1), obj)
    grading = os.environ.get("NBGRADER_EXECUTION") == "autograde"
    cases = (*find(name).visible, *hidden_cases(find(name))) if grading and name not in DELIVERIES else None
    verdict = evaluate(name, obj, cases=cases, own_twin_allowed=False)
    if grading:
        print(verdict.text(points))
        return round(float(points * verdict.score), 4)
    _note(name, verdict, points)
    if not verdict.passed:
        raise CheckFailed(verdict.text(points)) from None
    print(verdict.text(points))
    return None


def _note(name, verdict, points):
    """Leave an event for `workbook progress`; where that part of the course is missing, there is none."""
    with contextlib.suppress(ImportError):
        from utils.progress.events import note_check

        note_check(name, verdict, points)


def _asked_for(frame, obj):
    """The exercise's name: as written in the call, else as the object is bound in that notebook, else its own name."""
    source = "".join(linecache.getlines(frame.f_code.co_filename))
    try:
        calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    except SyntaxError:
        calls = []
    for call in calls:
        if call.lineno <= frame.f_lineno <= call.end_lineno and getattr(call.func, "id", "") == "check" and call.args:
            written = getattr(call.args[0], "id", "")
            if written in EXERCISES or written in DELIVERIES:
                return written
    bound = [name for name, value in frame.f_globals.items() if value is obj and name in EXERCISES]
    return bound[0] if bound else getattr(obj, "__name__", type(obj).__name__)


def hidden_cases(exercise):
    """The hidden cases, where they are at hand: on the grading machine."""
    try:
        return importlib.import_module(f"autograde.hidden.{exercise.phase}").HIDDEN.get(exercise.name, ())
    except ModuleNotFoundError:
        return ()
