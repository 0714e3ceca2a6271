"""`judged(exam, observations)`: from what an object was seen to do, to the Report on it. Never calls learner code."""

import functools
import time
from dataclasses import dataclass

from utils.checks import judge, report
from utils.checks.exercise import Exercise, Replays, Spotted, request_for, truth
from utils.observe import nothing_seen, observe

BUDGET = 40.0  # seconds for all cases of one check


@dataclass(frozen=True)
class Exam:
    """The questions of one exercise, drawn from a seed, with what the twin and the known mistakes answer.

    `utils.checks.stored` has the same thing without any twin at hand.
    """

    exercise: Exercise
    cases: tuple
    seed: int = 0

    def request(self, case):
        """The Request that puts this case to an object."""
        return request_for(self.exercise, case, self.seed)

    def truth(self, case):
        """What observing the twin gives."""
        return truth(self.exercise, case, self.seed)

    def mistaken(self, twin, case):
        """What observing a wrong twin gives."""
        return _mistaken(self.exercise, twin, case, self.seed)


def judged(exam, observations):
    """The Report on an object, from one observation per case of the exam, in order.

    Observations are drawn one by one, and no more than needed. Where they stop early, the process that made them ended.
    """
    exercise, runs, start = exam.exercise, [], time.monotonic()
    observations = iter(observations)
    for case in exam.cases:
        got = next(observations, None) or nothing_seen(ENDED)
        request, expected = exam.request(case), exam.truth(case)
        if not runs and _is_blank(got):
            message = report.blank(exercise.name, exercise.section)
            return report.Report(exercise.name, 0.0, dict.fromkeys(judge.ASPECTS), None, message)
        runs.append((case, request, got, expected, judge.findings(exercise, case, request, got, expected)))
        if _hangs(got) or time.monotonic() - start > BUDGET:
            break
    return _verdict(exam, runs, finished=len(runs) == len(exam.cases) and not _hangs(got))


ENDED = {"kind": "ended", "message": "no answer: the code ended its own process (a crash, or far too much memory)"}


def _verdict(exam, runs, finished):
    exercise = exam.exercise
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
    needed = [finding for *_, found in _simplest(exercise, runs) for finding in found]
    simplest = finished and not any("values" in finding.spoils for finding in needed)
    failing = [(judge.turn(found[0]), index) for index, (*_, found) in enumerate(runs) if found]
    if not failing:
        return report.Report(exercise.name, 1.0, aspects, None, f"✓ {exercise.name}")
    index = min(failing)[1]
    case, request, got, expected, found = runs[index]
    likely = None if got["caught"] else _likely(exam, runs, index)
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


def _simplest(exercise, runs):
    """The runs without which nothing is earned: the first, and a hidden one where a table would know the first."""
    hidden = [run for run in runs if run[0].hidden and run[0].kind == "plain"]
    return runs[:1] if exercise.drawn else runs[:1] + hidden[:1]


def _likely(exam, runs, index):
    """The known mistake that does on the first failing case what was observed; of several, the best match overall.

    None that would fail where the learner's object is right: a wrong guess is worse than none.
    """
    mistakes = exam.exercise.mistakes
    names = [name for name in mistakes if _fits(exam, mistakes[name], runs, index)]
    if len(names) < 2:
        return names[0] if names else None

    def matches(name):
        return sum(
            any(_reproduces(exam, twin, run) for twin in _ways(mistakes[name]))
            or _spotted(mistakes[name], run[2], run[1])
            for run in runs
        )

    return max(names, key=matches)


def _fits(exam, mistake, runs, index):
    """Could this mistake have been made? By its predicate, or by one of its twins, replayed."""
    run = runs[index]
    passed = [other for other in runs if not other[4] and other[0].kind == "plain"]
    if _spotted(mistake, run[2], run[1]):
        return mistake.certain or not any(_fails(exam, mistake.twin, case) for case, *_ in passed)
    return any(
        _reproduces(exam, twin, run)
        and _fails(exam, twin, run[0])
        and not any(_fails(exam, twin, case) for case, *_ in passed)
        for twin in _ways(mistake)
    )


def _ways(mistake):
    """The wrong twins that are replayed for a mistake."""
    return getattr(mistake, "twins", None) if isinstance(mistake, (Spotted, Replays)) else (mistake,)


def _reproduces(exam, twin, run):
    case, request, got, expected, _ = run
    if case.judge:  # by a rule: there are no numbers to replay
        return False
    wrong = exam.mistaken(twin, case)
    return not _refused(wrong) and judge.alike(exam.exercise, case, request, got, wrong, expected)


def _fails(exam, twin, case):
    wrong = exam.mistaken(twin, case)
    return bool(judge.findings(exam.exercise, case, exam.request(case), wrong, exam.truth(case)))


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
    return any(one.get("type") == "TookTooLong" or one.get("kind") == "ended" for one in raised)
