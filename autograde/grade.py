"""Grade a class: take in, sanitise, have marked, record. What cannot be graded is named and never stops the others."""

from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from nbformat import NotebookNode
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.utils import parse_utc

from autograde import intake, pool
from autograde.build import BuildError, release, render
from autograde.course import load_config, phases
from autograde.doctor import BANNERS
from autograde.gradebook import GradebookError, Writer, back_up, in_plain_words
from autograde.grades import chosen
from autograde.journal import Busy, Journal, alone
from autograde.preprocessors import MarkInSandbox
from autograde.record import NotRecorded, Result, record, sanitised, sweep
from autograde.sandbox import SandboxError

NOT_STARTED = (BuildError, Busy)
STOPPED = (GradebookError, SandboxError)


@dataclass
class Task:
    """A submission on its way through a run. `result` is set where there is nothing left to mark."""

    student: str
    phase: str
    fingerprint: str = ""
    notebook: NotebookNode | None = None
    timestamp: str | None = None
    remarks: tuple = ()
    file: intake.HandedIn | None = field(default=None, repr=False)
    result: Result | None = field(default=None, repr=False)


def submissions(root, names=(), students=()):
    """(student, phase) for every folder under autograde/submitted/<student>/<phase>."""
    folders = sorted(Path(root, "autograde", "submitted").glob("*/*"))
    found = [(path.parent.name, path.name) for path in folders if not path.name.startswith(".")]
    return sorted(chosen(found, names or phases(root), students), key=lambda one: one[1])  # phase by phase


def register_all(root, names, due=None):
    """Record phases in the gradebook that are not there yet, and the due date. Returns the new ones."""
    config, names = load_config(root), sorted(names)
    try:
        duedate = parse_utc(due) if due else None
    except ValueError as error:
        raise BuildError(f"{due!r} is no date: {error}") from None
    with in_plain_words(), Gradebook(config.CourseDirectory.db_url) as gradebook:
        new = [name for name in names if not _is_known(gradebook, name)]
    for name in new:
        solution = render(root, [name]).files[Path("solutions", name, f"{name}.ipynb")]
        release(root, name, solution, db_url=config.CourseDirectory.db_url)
    if duedate:
        with in_plain_words(), Gradebook(config.CourseDirectory.db_url) as gradebook:
            for name in names:
                gradebook.update_or_create_assignment(name, duedate=duedate)
    return new


def _is_known(gradebook, name):
    try:
        return bool(gradebook.find_assignment(name).notebooks)
    except MissingEntry:
        return False


def back_up_gradebook(root):
    """Copy the gradebook into autograde/backups. Returns the path of the copy; None if there is no gradebook yet."""
    return back_up(load_config(root).CourseDirectory.db_url, Path(root, "autograde", "backups"))


class Run:
    """One grading run. A context manager: alone in its course, with the gradebook open."""

    def __init__(self, root, resume=False, workers=1, scheduler=None, **settings):
        self.root, self.config, self.resume = Path(root), load_config(root), resume
        for name, value in settings.items():  # of MarkInSandbox: tier, trusted, own_seeds, …
            if value is not None:
                self.config.MarkInSandbox[name] = value
        self.workers, self.scheduler = workers, scheduler
        self.journal = Journal(self.root / "autograde" / "journal.jsonl")

    def __enter__(self):
        with ExitStack() as stack:
            stack.enter_context(alone(self.root / "autograde" / ".grading.lock"))
            sweep(self.root / "autograde")
            self.tier = MarkInSandbox(config=self.config).allowed_tier()
            self.banner = BANNERS.get(self.tier, "")
            self.writer = stack.enter_context(Writer(self.config.CourseDirectory.db_url))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error):
        self._stack.close()

    def grade(self, work):
        """Yield the Result of each (student, phase) of `work`, recorded, in the order in which they are done."""
        self.journal.read() if self.resume else self.journal.restart()
        with self._pool() as marks:
            for task, marking in marks.marked(self._task(*one) for one in work):
                yield task.result or self._recorded(task, marking)

    def _pool(self):
        settings = MarkInSandbox(config=self.config)
        desk = pool.Desk(settings.papers(), settings.limits(), self.tier)
        if self.scheduler:
            from autograde.cluster import Cluster

            return Cluster(desk, self.scheduler)
        return pool.Processes(desk, self.workers) if self.workers > 1 else pool.Here(desk)

    def _task(self, student, phase):
        """Take a submission in, as far as marking goes."""
        task = Task(student, phase)
        try:
            taken = intake.take_in(self.root / "autograde" / "submitted" / student / phase, phase)
        except intake.Refused as refused:
            task.result = Result(student, phase, notes=[f"not graded: {refused}"])
            return task
        task.fingerprint = f"{taken.digest} {self.tier} {self.config.MarkInSandbox.get('own_seeds', False)}"
        done = self.journal.done(student, phase, task.fingerprint)
        if done:
            task.result = Result(**done["result"])
            return task
        task.timestamp, task.remarks, task.file = taken.timestamp, taken.remarks, taken.file
        with self.writer.transaction():
            task.notebook = sanitised(self.config, taken.notebook, student, phase)
        task.notebook.metadata["autograde"] = {"remarks": list(taken.remarks)}
        return task

    def _recorded(self, task, marking):
        if isinstance(marking, Exception):
            return Result(task.student, task.phase, notes=[f"not graded: {marking}"])
        entry = {"student": task.student, "phase": task.phase, "print": task.fingerprint}
        try:
            with in_plain_words():
                result = record(self.config, self.writer, task, marking)
                self.journal.add(entry | {"result": asdict(result)})
        except NotRecorded as problem:
            return Result(task.student, task.phase, notes=[f"not graded: {problem}"])
        return result
