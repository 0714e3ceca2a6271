"""Grade every submission with nbgrader in one step; one that cannot be graded is named and never stops the others."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from nbgrader.api import Gradebook, MissingEntry
from nbgrader.converters import Autograde, GenerateFeedback
from nbgrader.plugins import CsvExportPlugin
from nbgrader.utils import parse_utc

from autograde.build import release, render
from autograde.course import load_config, phases, run_step

KNOWN_FAILURES = {
    "DeadKernelError": "its code ended the Python process (a crash, or too much memory)",
    "ValidationError": "the file is damaged: it is not a valid notebook",
}


@dataclass
class Result:
    """One line of the final table; points is None where nothing could be graded."""

    student: str
    phase: str
    points: float | None = None
    of: float | None = None
    seconds_late: float = 0
    note: str = ""


def submissions(root, names=(), student=None):
    """(student, phase) for every folder under autograde/submitted/<student>/<phase>."""
    folders = sorted(path for path in Path(root, "autograde", "submitted").glob("*/*") if path.is_dir())
    found = [(path.parent.name, path.name) for path in folders if not path.name.startswith(".")]
    return _chosen(found, names or phases(root), student)


def register(root, phase, due=None):
    """Record the assignment in the gradebook unless it is there already; set its due date if one is given."""
    config = load_config(root)
    with Gradebook(config.CourseDirectory.db_url) as gradebook:
        try:
            known = bool(gradebook.find_assignment(phase).notebooks)
        except MissingEntry:
            known = False
    if not known:
        solution = render(root, [phase]).files[Path("solutions", phase, f"{phase}.ipynb")]
        release(root, phase, solution, db_url=config.CourseDirectory.db_url)
    if due:
        with Gradebook(config.CourseDirectory.db_url) as gradebook:
            gradebook.update_or_create_assignment(phase, duedate=parse_utc(due))
    return not known


def grade(root, student, phase):
    """Grade one submission. Returns its Result, whatever state the submission is in."""
    problem = unreadable(root, student, phase)
    if problem:
        return Result(student, phase, note=f"not graded: {problem}")
    config = load_config(root)
    worked, log = run_step(Autograde, config, phase, student)
    if not worked:
        return Result(student, phase, note=f"not graded: {_reason(log)}")
    with Gradebook(config.CourseDirectory.db_url) as gradebook:
        submission = gradebook.find_submission(phase, student)
        waiting = sum(grade.needs_manual_grade for notebook in submission.notebooks for grade in notebook.grades)
        note = f"{waiting} {'answer waits' if waiting == 1 else 'answers wait'} for you in formgrader"
        points, of, late = submission.score, submission.max_score, submission.total_seconds_late
    return Result(student, phase, points, of, late, note if waiting else "")


def unreadable(root, student, phase):
    """Why a submission cannot even be opened, in one sentence; None if it can."""
    folder = Path(root, "autograde", "submitted", student, phase)
    path = folder / f"{phase}.ipynb"
    if not path.is_file():
        others = ", ".join(sorted(other.name for other in folder.glob("*.ipynb")))
        return f"there is no {path.name}" + (f", but {others}: rename the right one" if others else "")
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        return f"{path.name} is not text in UTF-8"
    except json.JSONDecodeError as error:
        return f"{path.name} is not valid JSON (line {error.lineno}: {error.msg})"
    except (OSError, ValueError, RecursionError) as error:  # no right to read it, or JSON made to choke on
        return f"{path.name} cannot be read: {error}"
    if not isinstance(notebook, dict) or not {"nbformat", "metadata"} <= set(notebook):
        return f"{path.name} is JSON, but not a notebook"
    return None


def _reason(log):
    """Why a step of nbgrader failed: our words for what is known, else the log's last error."""
    errors = re.findall(r"^\s+(?:\w+\.)*(\w+(?:Error|Exception|Interrupt)\b.*)$", log, re.MULTILINE)
    last = errors[-1] if errors else "nbgrader gave no reason"
    return KNOWN_FAILURES.get(last.split(":")[0], last)


def write_feedback(root, student, phase):
    """Write the feedback page of one graded submission. Returns a problem in one sentence, or None."""
    worked, log = run_step(GenerateFeedback, load_config(root), phase, student)
    return None if worked else _reason(log)


def autograded(root, names=(), student=None):
    """(student, phase) for every graded submission."""
    found = [(p.parent.parent.name, p.parent.name) for p in Path(root, "autograde", "autograded").glob("*/*/*.ipynb")]
    return _chosen(sorted(found), names or phases(root), student)


def _chosen(found, names, student):
    return [(who, phase) for who, phase in found if phase in names and student in (None, who)]


def export(root, path, names=()):
    """Write the gradebook as csv."""
    config = load_config(root)
    plugin = CsvExportPlugin(config=config)
    plugin.to, plugin.assignment = str(path), list(names)
    with Gradebook(config.CourseDirectory.db_url) as gradebook:
        plugin.export(gradebook)
