"""Marking on a dask cluster: the same gradebook, nothing lost with a worker, nothing on it that it need not know."""

import hashlib
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import nbformat
import pytest
from distributed import Client, LocalCluster
from typer.testing import CliRunner

from autograde import cluster, grade
from autograde.cli import app
from autograde.cluster import Cluster, ClusterError
from autograde.course import ROOT
from autograde.exams import Papers
from autograde.pool import Desk
from autograde.sandbox import Limits
from tests.ledger import copy_of, graded, left_behind, small_class
from tests.sample_course import CAUSAL, PADDING, PHASE, make_course, read, solve, submit
from utils.checks import EXERCISES, stored
from utils.checks.core import hidden_cases

KEY = hashlib.sha256(b"the secret of a course").digest()  # no table of consecutive bytes looks like it
QUIET = {"processes": True, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The small class and two slow submissions, not graded yet."""
    base = small_class(tmp_path_factory.mktemp("class"))
    for student in ("eve", "fay"):
        notebook = solve(read(base), causal_mask=CAUSAL, padding_mask=PADDING)
        notebook.cells.append(nbformat.v4.new_code_cell("import time\ntime.sleep(2)"))
        submit(base, student, notebook)
    (base / "autograde" / "secret.key").write_text(KEY.hex())
    return base


@pytest.fixture(scope="module")
def class_(base, tmp_path_factory):
    """That class, and what grading it here leaves behind."""
    copy = copy_of(base, tmp_path_factory.mktemp("here") / "course")
    graded(copy)
    return base, left_behind(copy)


# ---- two processes of this machine


@pytest.fixture(scope="module")
def local():
    with LocalCluster(n_workers=2, **QUIET) as running, Client(running) as client:
        yield client


@pytest.mark.slow
def test_the_gradebook_is_that_of_grading_here(class_, local, tmp_path):
    """Graded on two workers: all tables, notebooks and lines of the journal the same?"""
    course = copy_of(class_[0], tmp_path / "course")
    results = graded(course, scheduler=local.scheduler.address)
    assert left_behind(course) == class_[1]
    assert results["dan"].points is None and "not graded" in results["dan"].notes[0]
    wait_until(lambda: not any(local.run(lambda: len(__import__("autograde.cluster").cluster._stations)).values()), 20)
    assert not [key for keys in local.has_what().values() for key in keys if "unpacked" in key]
    assert graded(course, scheduler=local.scheduler.address, resume=True).keys() == results.keys()
    assert left_behind(course) == class_[1]


@pytest.mark.slow
def test_each_student_can_have_other_questions(class_, local, tmp_path):
    """With papers for each student, drawn here: the same points?"""
    course = copy_of(class_[0], tmp_path / "course")
    results = graded(course, scheduler=local.scheduler.address, own_seeds=True)
    points = {"ann": 6, "bob": 4, "cyd": 4, "dan": None, "eve": 6, "fay": 6}
    assert {who: result.points for who, result in results.items()} == points


@pytest.mark.slow
def test_a_worker_with_another_course_is_refused(local, monkeypatch):
    """Is it said which worker, and what differs, before anything is graded?"""
    monkeypatch.setattr(cluster, "fingerprint", lambda: "another")
    with pytest.raises(ClusterError, match=r"worker at tcp://\S+ cannot mark: its course, Python.* another version"):
        Cluster(Desk(None, Limits(), "full"), local.scheduler.address).__enter__()


@pytest.mark.slow
def test_a_worker_without_walls_is_refused(local):
    """No bubblewrap there: is the worker named, with what helps?"""
    desk = Desk(None, Limits(cell=7.0), "full")  # other limits: it has to try them first
    local.run(lambda: vars(__import__("shutil")).update(found=__import__("shutil").which, which=lambda name: None))
    try:
        with pytest.raises(ClusterError, match=r"(?s)worker at .* the full sandbox does not hold there.*doctor"):
            Cluster(desk, local.scheduler.address).__enter__()
    finally:
        local.run(lambda: vars(__import__("shutil")).update(which=__import__("shutil").found))


@pytest.mark.slow
def test_what_kills_every_worker_is_given_up(local, monkeypatch):
    """A notebook whose workers die each time: named in the end, instead of tried for ever?"""
    monkeypatch.setattr(local.cluster.scheduler, "allowed_failures", 0)
    monkeypatch.setattr(cluster, "DEATHS", 2)
    monkeypatch.setattr(cluster, "_mark", lambda *arguments: __import__("os")._exit(1))
    task = SimpleNamespace(phase=PHASE, student="ann", file=None, result=None, notebook=nbformat.v4.new_notebook())
    with Cluster(Desk(None, Limits(), "none"), local.scheduler.address) as marks:
        ((_, error),) = marks.marked([task])
    assert str(error) == "the workers that marked it died each time"


# ---- as an instructor starts them


class Real:
    """`dask scheduler` and two `dask worker` from a copy of the course without hidden cases."""

    def __init__(self, folder):
        self.course, self.file, self.running = folder / "course", folder / "scheduler.json", []
        pruned = shutil.ignore_patterns("hidden", "__pycache__", "submitted", "*.db", "*.key", "*.jsonl", "backups")
        for part in ("autograde", "utils"):
            shutil.copytree(ROOT / part, self.course / part, ignore=pruned)

    def __enter__(self):
        self.start("scheduler", "--port", "0", "--no-dashboard")
        for _ in range(2):
            self.start("worker", "--nthreads", "1", "--no-nanny", "--no-dashboard")
        self.client = Client(scheduler_file=str(self.file), timeout=120)
        self.client.wait_for_workers(2, timeout=240)
        return self

    def __exit__(self, *error):
        self.client.close()
        for process in self.running:
            process.kill()
            process.wait()

    def start(self, what, *options):
        command = [sys.executable, "-m", "dask", what, "--scheduler-file", str(self.file), "--host", "127.0.0.1"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        variables = os.environ | {"PYTHONPATH": str(self.course), "OMP_NUM_THREADS": "1"}
        self.running.append(subprocess.Popen([*command, *options], cwd=self.course, env=variables, **quiet))


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    with Real(tmp_path_factory.mktemp("real")) as running:
        yield running


@pytest.mark.slow
def test_a_worker_killed_in_mid_task_costs_nothing(class_, real, tmp_path):
    """One of two workers gets SIGKILL while it marks: all graded once, as here; and no secret in its memory?"""
    course = copy_of(class_[0], tmp_path / "course")
    pids = real.client.run(os.getpid)
    with grade.Run(course, scheduler=real.client.scheduler.address) as run:
        results = run.grade(grade.submissions(course))
        done = [next(results)]
        for pid in pids.values():
            holds = in_memory(pid, [KEY, KEY.hex().encode(), b"autograde.cluster"])
            assert holds == [False, False, True]
        busy = [at for at, keys in real.client.processing().items() if any("_mark" in key for key in keys)]
        os.kill(pids[busy[0]], signal.SIGKILL)
        done += results
    assert len(done) == 6 and left_behind(course) == class_[1]
    assert list(real.client.run(os.getpid)) == [at for at in pids if at != busy[0]]
    assert not any(real.client.run(lambda: "autograde.hidden" in __import__("sys").modules).values())
    assert not list(real.course.rglob("hidden*")) and not list(real.course.rglob("*.key"))


def in_memory(pid, wanted):
    """Which of these bytes stand in the writable memory of a process?"""
    found = [False] * len(wanted)
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for start, end in re.findall(r"^(\w+)-(\w+) rw", maps.read(), re.MULTILINE):
            memory.seek(int(start, 16))
            try:
                part = memory.read(int(end, 16) - int(start, 16))
            except OSError:  # not all of it can be read
                continue
            found = [there or one in part for there, one in zip(found, wanted, strict=True)]
    return found


@pytest.mark.slow
def test_a_scheduler_that_goes_away_stops_the_run(class_, real, tmp_path, monkeypatch):
    """Killed in mid-run: a sentence, and the rest with --resume?"""
    monkeypatch.setattr(cluster, "ANSWER", 3)
    course = copy_of(class_[0], tmp_path / "course")
    with grade.Run(course, scheduler=real.client.scheduler.address) as run:
        results = run.grade(grade.submissions(course))
        next(results)
        real.running[0].kill()
        with pytest.raises(ClusterError, match="--resume"):
            list(results)
    graded(course, resume=True)
    assert left_behind(course) == class_[1]


# ---- before anything is sent


@pytest.mark.parametrize(("address", "why"), [("tcp://127.0.0.1:1", "Connection refused"), ("nowhere://x", "scheme")])
def test_an_address_without_a_scheduler_is_named(base, tmp_path, monkeypatch, address, why):
    """Is there one sentence, exit status 3, and nothing graded?"""
    monkeypatch.setattr(cluster, "ANSWER", 1)
    course = copy_of(base, tmp_path / "course")
    result = CliRunner().invoke(app, ["grade", "--course", str(course), "--scheduler", address])
    assert result.exit_code == 3 and f"no dask scheduler answers at {address}" in result.output
    assert not (course / "autograde" / "journal.jsonl").exists()


def test_a_scheduler_without_workers_is_named(monkeypatch):
    """Is it said how to start one?"""
    monkeypatch.setattr(cluster, "ANSWER", 1)
    said = pytest.raises(ClusterError, match="has no workers: start `dask worker")
    with LocalCluster(n_workers=0, **QUIET) as empty, said:
        Cluster(Desk(None, Limits(), "full"), empty.scheduler_address).__enter__()


@pytest.mark.parametrize(("own_seeds", "exams"), [(False, 2), (True, 4)])
def test_a_task_is_what_is_needed_for_it_and_no_more(tmp_path, own_seeds, exams):
    """Is each exam sent once, complete, and neither the secret nor a student's name with it?"""
    course = make_course(tmp_path)
    marks, sent = Cluster(Desk(Papers(KEY, own_seeds), Limits(), "full"), "tcp://nowhere"), []
    marks._client = SimpleNamespace(submit=lambda *arguments, pure: sent.append(arguments) or object())
    for student in ("ann-of-cleves", "bob-the-builder"):
        marks._send(SimpleNamespace(phase=PHASE, student=student, notebook=read(course), file=None), 0)
    travels = pickle.dumps(sent)
    assert not any(secret in travels for secret in (KEY, KEY.hex().encode(), b"cleves", b"builder"))
    papers = [stored.load(data) for function, data in (one for one in sent if one[0] is cluster._unpacked)]
    assert len(papers) == exams
    for exam in papers:
        exercise = EXERCISES[exam.exercise.name]
        assert len(exam.cases) == len(exercise.visible) + len(hidden_cases(exercise))


def wait_until(true, seconds):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.1)
