"""`evaluate` judges an object; `check` is what a learner's cell calls."""

import ast
import difflib
import functools
import importlib
import linecache
import os
import sys
import time
from dataclasses import replace

from utils.checks import judge, report
from utils.checks.exercise import EXERCISES, Replays, Spotted, request_for, truth
from utils.observe import observe

BUDGET = 40.0  # seconds for all cases of one check


class CheckFailed(Exception):
    """An exercise is not right yet. In a notebook its traceback is the report alone."""

    def _render_traceback_(self):
        return str(self).splitlines()


def evaluate(name, obj, cases=None, seed=0, own_twin_allowed=True):
    """Judge `obj` as the exercise `name`; returns a Report, prints nothing, never raises for what `obj` does.

    cases: other cases than the visible ones (hidden ones, a drill's twist); seed: another one draws other numbers.
    own_twin_allowed: `check` says False, so that the course's own answer does not pass for the learner's.
    Raises CheckFailed for an unknown exercise.
    """
    exercise = find(name)
    obj = obj.twin if isinstance(obj, (Spotted, Replays)) else obj
    cases = exercise.visible if cases is None else cases
    runs, start = [], time.monotonic()
    for case in cases:
        request = replace(request_for(exercise, case, seed), own_twin=not own_twin_allowed)
        got, expected = observe(obj, request), truth(exercise, case, seed)
        if not runs and _is_blank(got):
            return report.Report(name, 0.0, dict.fromkeys(judge.ASPECTS), None, report.blank(name, exercise.section))
        runs.append((case, request, got, expected, judge.findings(exercise, case, request, got, expected)))
        if _hangs(got) or time.monotonic() - start > BUDGET:
            break
    return _verdict(exercise, runs, seed, finished=len(runs) == len(cases) and not _hangs(got))


def find(name):
    """The Exercise of this name. Raises CheckFailed, with the nearest names, if there is none."""
    if name not in EXERCISES:
        near = difflib.get_close_matches(str(name), EXERCISES, n=3, cutoff=0.5)
        raise CheckFailed(
            f"✗ {name} · no exercise has this name" + (f"; did you mean {', '.join(near)}?" if near else "")
        )
    return EXERCISES[name]


def _verdict(exercise, runs, seed, finished):
    spoilt = {aspect for *_, found in runs for finding in found for aspect in finding.spoils}
    if "gradients at an edge" in spoilt and "gradients" not in spoilt:
        spoilt.add("properties")
    graded = any(request.cotangents is not None for _, request, *_ in runs)
    aspects = {name: name not in spoilt for name in judge.ASPECTS}
    if not graded:
        aspects["gradients"] = None
    if not finished:  # what was not run is not known to be right
        aspects = {name: False if ok else ok for name, ok in aspects.items()}
        runs[-1][4].append(judge.too_slow(BUDGET))
    simplest = not any("values" in finding.spoils for finding in runs[0][4]) and finished
    failing = [(judge.turn(found[0]), index) for index, (*_, found) in enumerate(runs) if found]
    if not failing:
        return report.Report(exercise.name, 1.0, aspects, None, f"✓ {exercise.name}")
    index = min(failing)[1]
    case, request, got, expected, found = runs[index]
    likely = None if got["caught"] else _likely(exercise, runs, index, seed)
    where = "a hidden case" if case.hidden else f'case "{case.name}" ({index + 1} of {len(runs)})'
    message = report.failure(
        exercise.name,
        where,
        found[0],
        likely,
        f"Section {exercise.section}: {exercise.hint}",
        case.hidden,
        "" if case.hidden else got["printed"],
    )
    score = report.score_of(aspects, simplest, exercise.whole)
    return report.Report(exercise.name, score, aspects, likely, message)


def _likely(exercise, runs, index, seed):
    """The known mistake that does on the first failing case what was observed; of several, the best match overall.

    None that would fail where the learner's object is right: a wrong guess is worse than none.
    """
    names = [name for name in exercise.mistakes if _fits(exercise, name, runs, index, seed)]
    if len(names) < 2:
        return names[0] if names else None

    def matches(name):
        return sum(
            any(_reproduces(exercise, twin, run, seed) for twin in _ways(exercise.mistakes[name]))
            or _spotted(exercise.mistakes[name], run[2], run[1])
            for run in runs
        )

    return max(names, key=matches)


def _fits(exercise, name, runs, index, seed):
    """Could this mistake have been made? By its predicate, or by one of its twins, replayed."""
    mistake, run = exercise.mistakes[name], runs[index]
    passed = [other for other in runs if not other[4] and other[0].kind == "plain"]
    if _spotted(mistake, run[2], run[1]):
        return mistake.certain or not any(_fails(exercise, mistake.twin, case, seed) for case, *_ in passed)
    return any(
        _fails(exercise, twin, run[0], seed)
        and _reproduces(exercise, twin, run, seed)
        and not any(_fails(exercise, twin, case, seed) for case, *_ in passed)
        for twin in _ways(mistake)
    )


def _ways(mistake):
    """The wrong twins that are replayed for a mistake."""
    return getattr(mistake, "twins", None) if isinstance(mistake, (Spotted, Replays)) else (mistake,)


def _reproduces(exercise, twin, run, seed):
    case, request, got, expected, _ = run
    wrong = _mistaken(exercise, twin, case, seed)
    return not _refused(wrong) and judge.alike(exercise, case, request, got, wrong, expected)


def _fails(exercise, twin, case, seed):
    wrong = _mistaken(exercise, twin, case, seed)
    return bool(judge.findings(exercise, case, request_for(exercise, case, seed), wrong, truth(exercise, case, seed)))


def _spotted(mistake, got, request):
    try:
        return isinstance(mistake, Spotted) and bool(mistake.sees(got, request))
    except Exception:  # what was observed may be of any type: then this is not the mistake
        return False


@functools.lru_cache(maxsize=16384)
def _mistaken(exercise, twin, case, seed):
    """What observing a wrong twin on this case gives."""
    return observe(twin, request_for(exercise, case, seed))


def _refused(got):
    """Did it raise? Then there are no numbers to replay, and another crash is no evidence."""
    return bool(got["problem"]) or any(call["raised"] for call in got["calls"])


def _is_blank(got):
    raised = got["problem"] or (got["calls"] and got["calls"][0]["raised"])
    return bool(raised) and raised.get("type") == "NotImplementedError"


def _hangs(got):
    raised = [got["problem"] or {}, *(call["raised"] or {} for call in got["calls"])]
    return any(one.get("type") == "TookTooLong" for one in raised)


def check(obj, points=1):
    """Check the exercise that `obj` is bound to in the calling cell, and say what is right and what is not.

    Prints one line when all is well and raises CheckFailed otherwise. While nbgrader grades, prints the report and
    returns the points earned as a float, which nbgrader records as partial credit.
    """
    name = _asked_for(sys._getframe(1), obj)
    grading = os.environ.get("NBGRADER_EXECUTION") == "autograde"
    exercise = find(name)
    cases = (*exercise.visible, *_hidden_cases(exercise)) if grading else None
    verdict = evaluate(name, obj, cases=cases, own_twin_allowed=False)
    if grading:
        print(verdict.text(points))
        return round(float(points * verdict.score), 4)
    if not verdict.passed:
        raise CheckFailed(verdict.text(points)) from None
    print(verdict.text(points))
    return None


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
            if written in EXERCISES:
                return written
    bound = [name for name, value in frame.f_globals.items() if value is obj and name in EXERCISES]
    return bound[0] if bound else getattr(obj, "__name__", type(obj).__name__)


def _hidden_cases(exercise):
    """The hidden cases, where they are at hand: on the grading machine."""
    try:
        return importlib.import_module(f"autograde.hidden.{exercise.phase}").HIDDEN.get(exercise.name, ())
    except ModuleNotFoundError:
        return ()
