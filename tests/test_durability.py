"""Nothing is lost: a grader that is killed, a locked gradebook, a full disk, two runs at once."""

import json
import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from nbgrader.api import Gradebook
from typer.testing import CliRunner

from autograde import grade, gradebook, grades, journal, pool, record
from autograde.cli import app
from autograde.course import ROOT, load_config
from autograde.journal import Journal, alone
from tests.ledger import copy_of, graded, journal_lines, left_behind, small_class, with_marks
from tests.sample_course import PHASE

FULL = OSError(28, "No space left on device")


@pytest.fixture(scope="module")
def class_(tmp_path_factory):
    """The class before it is graded, and what one undisturbed run makes of it, with the marks of that run."""
    base, marks = small_class(tmp_path_factory.mktemp("class")), {}
    copy = copy_of(base, tmp_path_factory.mktemp("undisturbed") / "course")
    with pytest.MonkeyPatch.context() as patch:
        real = pool.Here.mark
        patch.setattr(pool.Here, "mark", lambda self, task: marks.setdefault(task.student, real(self, task)))
        results = graded(copy)
    assert [results[name].points for name in ("ann", "bob", "cyd", "dan")] == [6, 4, 4, None]
    assert results["cyd"].suspicious and results["ann"].seconds_late == 86400
    return base, marks, left_behind(copy)


@pytest.fixture
def course(class_, tmp_path, monkeypatch):
    """A fresh copy of the class; grading it takes the marks of the undisturbed run."""
    with_marks(monkeypatch, class_[1])
    return copy_of(class_[0], tmp_path / "course")


def typed(course, *options):
    return CliRunner().invoke(app, ["grade", "--course", str(course), *options])


# ---- killed


MOMENTS = {
    "before anything is written": (record, "_lay_out", "before"),
    "before the gradebook's commit": (record, "_result", "after"),
    "after the commit, before the notebook is in its place": (record, "_move", "before"),
    "before the line of the journal": (Journal, "add", "before"),
    "within the line of the journal": (journal.os, "fsync", "half a line"),
    "after the line of the journal": (Journal, "add", "after"),
}


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at(moment, turn):
    """Have this process killed when it comes to that moment for the `turn`th time."""
    place, name, when = MOMENTS[moment]
    real, calls = getattr(place, name), []

    def deadly(*arguments):
        calls.append(arguments)
        if len(calls) == turn and when != "after":
            if when == "half a line":
                os.truncate(arguments[0], os.fstat(arguments[0]).st_size - 200)
            die()
        answer = real(*arguments)
        if len(calls) == turn:
            die()
        return answer

    setattr(place, name, deadly)


def in_a_killed_child(function):
    """Run the function in a fork of this process, which must be killed in it."""
    pid = os.fork()
    if pid == 0:
        try:
            function()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_run_goes_on_as_if_nothing_had_been(class_, course, moment):
    """Killed at the second submission, then resumed: the same gradebook, journal and notebooks, and no litter?"""

    def run():
        kill_at(moment, turn=2)
        graded(course)

    in_a_killed_child(run)
    assert len(journal_lines(course)) == (2 if moment == "after the line of the journal" else 1)
    results = graded(course, resume=True)
    assert left_behind(course) == class_[2]
    assert [results[name].points for name in ("ann", "bob", "cyd", "dan")] == [6, 4, 4, None]


def test_a_notebook_caught_between_two_places_is_not_lost(class_, course):
    """Killed while the new notebook replaces the old one: is it there after the next run, even one for others?"""
    graded(course)
    real = Path.rename

    def rename(self, target):
        if Path(target).name == PHASE and "bob" in str(target):
            die()
        return real(self, target)

    def run():
        Path.rename = rename
        graded(course)

    in_a_killed_child(run)
    place = course / "autograde" / "autograded" / "bob" / PHASE
    assert not place.exists()
    with grade.Run(course, resume=True) as again:
        list(again.grade([("ann", PHASE)]))
    assert (place / f"{PHASE}.ipynb").read_text() == class_[2]["notebooks"]["bob"]
    graded(course, resume=True)
    assert left_behind(course) == class_[2]


@pytest.mark.slow
def test_killed_from_outside_it_leaves_no_process(class_, tmp_path, monkeypatch):
    """`autograde grade --workers 2`, SIGKILL after the first line of the journal: all gone, and resumable?"""
    course = copy_of(class_[0], tmp_path / "course")
    lines = course / "autograde" / "journal.jsonl"
    command = [sys.executable, "-m", "autograde", "grade", "--workers", "2", "--no-backup", "--course", str(course)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as grader:
        wait_until(lambda: lines.exists() and lines.read_bytes().count(b"\n"), 240)
        family = psutil.Process(grader.pid).children(recursive=True)
        commands = [" ".join(command_of(one)) for one in family]  # the dead tell none
        grader.kill()
    assert any("inside.py" in one for one in commands) or len(journal_lines(course)) == 3
    wait_until(lambda: not any(one.is_running() and one.status() != "zombie" for one in family), 20)
    with_marks(monkeypatch, class_[1])
    graded(course, resume=True)
    assert left_behind(course) == class_[2]


def command_of(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def wait_until(true, seconds):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.02)


# ---- what cannot be written


@pytest.mark.parametrize("when", ["from the start", "in mid-run"])
def test_a_locked_gradebook_stops_the_run_and_loses_nothing(class_, course, monkeypatch, when):
    """Another program writes to it: a sentence, exit status 3, and the rest at the next run?"""
    with closing(sqlite3.connect(course / "autograde" / "gradebook.db", isolation_level=None)) as other:
        if when == "from the start":
            other.execute("BEGIN EXCLUSIVE")
        else:
            with_marks(monkeypatch, class_[1], lambda who: who == "bob" and other.execute("BEGIN IMMEDIATE"))
        result = typed(course)
    assert result.exit_code == 3 and "the gradebook is locked" in result.output and "--resume" in result.output
    with_marks(monkeypatch, class_[1])
    assert typed(course, "--resume").exit_code == 1  # dan
    assert left_behind(course) == class_[2]


@pytest.mark.parametrize(
    ("place", "name"),
    [(record, "_lay_out"), (record.nbformat, "write"), (Journal, "add"), (record, "TemporaryDirectory"),
     (gradebook._Held, "release")],
)  # fmt: skip
def test_no_space_anywhere_stops_the_run_and_loses_nothing(class_, course, monkeypatch, place, name):
    """The disk fills up: a sentence, exit status 3, and the rest at the next run?"""

    def fails(*arguments, **options):
        raise FULL

    with_marks(monkeypatch, class_[1], lambda who: who == "bob" and full.setattr(place, name, fails))
    with pytest.MonkeyPatch.context() as full:
        result = typed(course)
    assert result.exit_code == 3 and "the disk is full. Nothing is lost." in result.output
    with_marks(monkeypatch, class_[1])
    assert typed(course, "--resume").exit_code == 1
    assert left_behind(course) == class_[2]


ON_A_SMALL_DISK = """
import json, pickle, sys
from pathlib import Path
from unittest.mock import patch
from pytest import MonkeyPatch
from typer.testing import CliRunner
from autograde.cli import app
from tests.ledger import copy_of, left_behind, with_marks

base, disk, marks = map(Path, sys.argv[1:])
course = copy_of(base, disk / "course")
with_marks(MonkeyPatch(), pickle.loads(marks.read_bytes()))
said = []
for room in (0, 40_000, 120_000, 300_000, 500_000, None):
    with open(disk / "filler", "wb", buffering=0) as file:
        try:
            while room is not None and file.write(bytes(4096)):
                pass
        except OSError:
            file.truncate(max(0, file.tell() - room))
    done = CliRunner().invoke(app, ["grade", "--resume", "--course", str(course)])
    said.append((done.exit_code, "the disk is full" in done.output))
    (disk / "filler").unlink()
print(json.dumps([said, left_behind(course)]))
"""


@pytest.mark.skipif(not shutil.which("bwrap"), reason="a disk of its own needs bubblewrap")
def test_a_disk_that_is_really_full(class_, tmp_path):
    """On a small disk with less and less on it: never more than a sentence, and in the end the same gradebook?"""
    (tmp_path / "marks").write_bytes(pickle.dumps(class_[1]))
    (tmp_path / "disk").mkdir()
    walls = ["bwrap", "--dev-bind", "/", "/", "--size", "4000000", "--tmpfs", str(tmp_path / "disk")]
    child = [sys.executable, "-c", ON_A_SMALL_DISK, str(class_[0]), str(tmp_path / "disk"), str(tmp_path / "marks")]
    done = subprocess.run([*walls, *child], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said, left = json.loads(done.stdout)
    assert said[0] == [3, True] and said[-1] == [1, False] and all(one in ([3, True], [1, False]) for one in said)
    assert left == json.loads(json.dumps(class_[2]))


# ---- backups, locks, the journal, grades given by hand


def test_a_backup_is_made_first_and_can_be_restored(class_, course, monkeypatch):
    """Is the gradebook as it was kept before each run, the newest 20, and does it work in the old one's place?"""
    book, backups = course / "autograde" / "gradebook.db", course / "autograde" / "backups"
    for number in range(25):
        monkeypatch.setattr(gradebook.time, "strftime", lambda _, number=number: f"2026-03-01-{number:06}")
        assert grade.back_up_gradebook(course)
    monkeypatch.undo()
    assert [path.name[-9:-3] for path in sorted(backups.iterdir())] == [f"{n:06}" for n in range(5, 25)]
    with_marks(monkeypatch, class_[1])
    assert "is kept in" in typed(course).output and len(list(backups.iterdir())) == 20
    book.write_bytes(max(backups.iterdir()).read_bytes())
    typed(course)
    assert left_behind(course) == class_[2]


def test_two_runs_at_once_are_one_too_many(course):
    """Does the second one say so, and leave the first alone?"""
    with alone(course / "autograde" / ".grading.lock"):
        result = typed(course)
    assert result.exit_code == 2 and "another grading run is at work" in result.output


def test_a_damaged_journal_costs_only_time(class_, course):
    """Lines cut off, of another kind, not text: is what they told of graded again, and the rest not?"""
    lines = course / "autograde" / "journal.jsonl"
    graded(course)
    good = lines.read_bytes().splitlines(keepends=True)
    lines.write_bytes(
        b'[1]\n\xff\xfe\n{"student": "bob"}\n{"student": "bob", "phase": "sample"}\n' + good[0] + good[1][:-9]
    )
    assert [who for who, _ in Journal(lines).read()._done] == ["bob", "ann"]
    graded(course, resume=True)
    lines.write_bytes(b"".join(good))
    assert left_behind(course) == class_[2]


def test_grades_given_by_hand_survive_grading_again(course):
    """Points and words that a person gave in formgrader: still there, and counted?"""
    graded(course)
    db_url = load_config(course).CourseDirectory.db_url
    with Gradebook(db_url) as book:
        book.find_grade("why-masks", PHASE, PHASE, "ann").manual_score = 2.5
        book.find_comment("why-masks", PHASE, PHASE, "ann").manual_comment = "well said"
        book.find_grade("padding_mask", PHASE, PHASE, "bob").extra_credit = 0.5
        book.db.commit()
    again = graded(course)
    assert (again["ann"].points, again["bob"].points) == (8.5, 4.5)
    with Gradebook(db_url) as book:
        assert book.find_comment("why-masks", PHASE, PHASE, "ann").comment == "well said"


def test_any_name_a_folder_can_have_is_a_student(class_, course, monkeypatch):
    """Is one with brackets, quotes, spaces and letters of all kinds graded and given a page like all others?"""
    name = "Zoë O'Neill [1] & 2"
    (course / "autograde" / "submitted" / "ann").rename(course / "autograde" / "submitted" / name)
    with_marks(monkeypatch, class_[1] | {name: class_[1]["ann"]})
    assert graded(course)[name].points == 6
    assert grades.write_feedback(course, name, PHASE) is None
    assert list((course / "autograde" / "feedback" / name / PHASE).glob("*.html"))
