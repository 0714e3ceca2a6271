"""`mine("sdpa")`: a part you built in an earlier notebook, or the course's own where yours is not there yet.

Your saved notebook is read, not run: only the definition that was asked for is executed, with what it needs
(utils/definitions.py). Then it has to pass its check.
"""

import contextlib
import io
import os
from pathlib import Path

from utils.definitions import Unfit, build, read_cells
from utils.workspace import WorkspaceError, course_root

_cache = {}  # (path, time of its last change, name) -> (object or None, why not, notebooks it leans on: their times)
_building = []  # (name, notebooks it leans on) of each call under way: the notebook that is read may itself call mine


def mine(name):
    """Your own version of an exercise from your saved notebook, if it passes its check; else the course's own.

    Prints one line that says which. While nbgrader grades it is always the course's own and nothing is read: an old
    slip must not cost points twice. Raises CheckFailed, with the nearest names, for an unknown exercise.
    """
    if "NBGRADER_EXECUTION" in os.environ:
        return _twin(name)
    exercise = _find(name)
    if name in (other for other, _ in _building):
        return _twin(name)
    obj, reason = _mine(name, exercise.phase)
    used = obj if reason is None else _twin(name)
    if not _building:
        print(f"✓ using your own {name}" if reason is None else f"… using the course's {name}, because {reason}")
    return used


def notebook_of(phase):
    """The learner's notebook of a phase: in my_work/, else beside the running one, else the release; or None."""
    places = [Path.cwd().parent]
    with contextlib.suppress(WorkspaceError):
        places = [course_root() / "my_work", *places, course_root() / "notebooks"]
    return next((path for place in places if (path := place / phase / f"{phase}.ipynb").is_file()), None)


def own(name):
    """(your own version, None) if it passes its check, else (None, why not). Nothing is printed."""
    return _mine(name, _find(name).phase)


def _mine(name, phase):
    """(object, None) or (None, why not)."""
    path = notebook_of(phase)
    if path is None:
        return None, f"your {phase}.ipynb was not found"
    changed = _time_of(path)
    known = _cache.get((path, changed, name))
    if known is None or any(_time_of(other) != time for other, time in known[2].items()):
        _building.append((name, {}))
        try:
            obj, reason = _built_and_checked(name, path)
        finally:
            _, leans_on = _building.pop()
        known = _cache[path, changed, name] = (obj, reason, leans_on)
    if _building:
        _building[-1][1].update({path: changed, **known[2]})
    return known[:2]


def _time_of(path):
    return path.stat().st_mtime_ns if path.is_file() else None


def _built_and_checked(name, path):
    from utils import checks

    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            obj = build(name, read_cells(path), path)
            report = checks.evaluate(name, obj)
    except Unfit as error:
        return None, str(error)
    if report.passed:
        return obj, None
    if "not implemented yet" in report.message:
        return None, f"yours is not finished in {path.name} as it was last saved"
    likely = f" ({report.likely})" if report.likely else ""
    return None, f"yours does not pass its check yet{likely}"


# Imported on use: where a class is graded, the checks are not there beside the learner's code.
def _find(name):
    from utils.checks.core import find

    return find(name)


def _twin(name):
    from utils import oracle

    if not hasattr(oracle, name):
        _find(name)
        raise LookupError(f"the course's own {name} is not part of this release")
    return getattr(oracle, name)
