"""Record one marked submission through nbgrader's own Autograde: gradebook and file change together, or not at all."""

import re
import shutil
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbgrader.converters import Autograde
from nbgrader.converters.base import BaseConverter
from traitlets.utils.importstring import import_item

from autograde import preprocessors
from autograde.course import run_step
from autograde.gradebook import GradebookError, plain

RECORDING = ".recording-"  # begins the name of the folder in which a submission is being recorded


class _Recording(Autograde):
    """nbgrader's Autograde for a notebook that is taken in and sanitised already."""

    stages_first = False

    def convert_single_notebook(self, notebook_filename):
        self.exporter._preprocessors = []
        for step in self.autograde_preprocessors:
            self.exporter.register_preprocessor(step)
        BaseConverter.convert_single_notebook(self, notebook_filename)


class NotRecorded(Exception):
    """nbgrader could not record this submission; the message says why."""


@dataclass
class Result:
    """One line of the final table; points is None where nothing could be graded."""

    student: str
    phase: str
    points: float | None = None
    of: float | None = None
    seconds_late: float = 0
    notes: list = field(default_factory=list)
    suspicious: bool = False  # the audit log has a line on it


def sanitised(config, notebook, student, phase):
    """A copy of the notebook after the configured sanitize_preprocessors of nbgrader, as it is to be marked."""
    notebook = deepcopy(notebook)
    where = {"student": student, "assignment": phase, "notebook": phase, "db_url": config.CourseDirectory.db_url}
    resources = {"nbgrader": where, "unique_key": phase}
    for step in config.Autograde.sanitize_preprocessors:
        notebook, resources = import_item(step)(config=config)(notebook, resources)
    return notebook


def record(config, writer, task, marking):
    """Write gradebook and autograded notebook of one submission. Returns its Result.

    Raises NotRecorded, and GradebookError where no submission could be recorded at present.
    """
    root = Path(config.CourseDirectory.root)
    with TemporaryDirectory(dir=root / "autograde", prefix=RECORDING) as folder:
        folder = Path(folder)
        _lay_out(folder / "submitted" / task.student / task.phase, task)
        own = deepcopy(config)
        own.CourseDirectory.submitted_directory = str(folder / "submitted")
        own.CourseDirectory.autograded_directory = str(folder / "autograded")
        preprocessors.MARKED[task.student, task.phase] = marking
        try:
            with writer.transaction() as book:
                worked, log = run_step(_Recording, own, task.phase, task.student)
                if not worked:
                    raise _failure(log)
                result = _result(book, task, marking)
        finally:
            preprocessors.MARKED.pop((task.student, task.phase), None)
        _move(folder / "autograded" / task.student / task.phase, root / "autograde" / "autograded" / task.student)
    return result


def _lay_out(folder, task):
    folder.mkdir(parents=True)
    nbformat.write(task.notebook, folder / f"{task.phase}.ipynb")
    if task.timestamp:
        (folder / "timestamp.txt").write_text(task.timestamp, "utf-8")


def _result(book, task, marking):
    submission = book.find_submission(task.phase, task.student)
    waiting = sum(grade.needs_manual_grade for notebook in submission.notebooks for grade in notebook.grades)
    notes = list(task.remarks)
    if waiting:
        notes.append(f"{waiting} {'answer waits' if waiting == 1 else 'answers wait'} for you in formgrader")
    if marking.events:
        more = f" (and {len(marking.events) - 1} more in audit.jsonl)" if marking.events[1:] else ""
        notes.insert(0, marking.events[0]["what"] + more)
    points, of, late = submission.score, submission.max_score, submission.total_seconds_late
    return Result(task.student, task.phase, points, of, late, notes, bool(marking.events))


def _move(new, parent):
    """Put a folder in the place of the one of its name."""
    parent.mkdir(parents=True, exist_ok=True)
    place = parent / new.name
    old = new.with_name("old")
    if place.exists():
        place.rename(old)
    new.rename(place)
    shutil.rmtree(old, ignore_errors=True)


def sweep(folder):
    """Clear away what a killed run left in the folder; a notebook that was on its way to its place is put there."""
    for left in folder.glob(f"{RECORDING}*"):
        for new in left.glob("autograded/*/*"):
            place = folder / "autograded" / new.parent.name / new.name
            if not place.exists() and new.with_name("old").exists() and new.name != "old":
                new.rename(place)
        shutil.rmtree(left, ignore_errors=True)


def _failure(log):
    """Why a step of nbgrader failed: our words for what is known, else the log's last error."""
    problem = plain(log)
    if problem:
        return GradebookError(problem)
    return NotRecorded(reason(log))


def reason(log):
    """The last error that a log of nbgrader tells of."""
    errors = re.findall(r"^\s*(?:\w+\.)*(\w+(?:Error|Exception|Interrupt|Entry)\b.*)$", log, re.MULTILINE)
    return errors[-1] if errors else "nbgrader gave no reason"
