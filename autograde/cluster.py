"""Mark on a dask cluster. This course has to be installed on all its machines, in one version.

dask scheduler                                         on one machine
dask worker tcp://that-machine:8786 --nthreads 1       on each that marks, once per core
autograde grade --scheduler tcp://that-machine:8786    here

A worker has no gradebook, no secret and needs no hidden cases: an exam is drawn here and travels as plain data, and
dask drops it with the last notebook that needs it. Names of students do not travel, only what is in their notebooks.
Whoever reaches a scheduler can run code on every machine of it: keep it in a network of your own, or use tls://.
"""

import contextlib
import functools
import hashlib
import json
import sys
import threading
from collections import deque
from dataclasses import asdict
from importlib.metadata import version
from multiprocessing.util import Finalize
from pathlib import Path
from types import SimpleNamespace
from weakref import WeakKeyDictionary

from autograde.repair import SandboxError  # what imports torch is imported later: the scheduler loads this module

ANSWER = 10  # seconds for a scheduler to answer, and to have a worker
READY = 180  # seconds for a worker to import everything and try its sandbox
PATIENCE = 60  # seconds after which a cluster without any worker is given up
IN_HAND = 2  # notebooks for each worker: one that it marks, and the next
DEATHS = 3  # times that dask may give a notebook up because its workers died; it tries four of them each time


class ClusterError(SandboxError):
    """Nothing can be marked on this cluster; the message says why and what to do."""


class Misfit(SandboxError):
    """This worker must not mark; the message says why."""


class Cluster:
    """Mark on the workers of a dask scheduler. A context manager."""

    def __init__(self, desk, address):
        self._papers, self._address = desk.papers, address
        self._terms = (fingerprint(), tuple(asdict(desk.limits).items()), desk.tier)
        self._flying, self._sent = {}, WeakKeyDictionary()

    def __enter__(self):
        self._client = self._connected()
        try:
            self._look_over()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error):
        with contextlib.suppress(Exception):  # a cluster that is gone needs no goodbye
            self._client.cancel(list(self._flying))
            self._client.run(_leave, on_error="ignore")
        self._client.close(timeout=ANSWER)

    def marked(self, tasks):
        """Yield (task, its Marking, or the exception that its marking raised), in any order."""
        tasks, again = iter(tasks), deque()
        while True:
            while len(self._flying) < IN_HAND * max(1, len(self._workers())):
                task, deaths = again.popleft() if again else (next(tasks, None), 0)
                if task is None:
                    break
                if task.result:
                    yield task, None
                elif problem := self._send(task, deaths):
                    yield task, problem
            if not self._flying:
                return
            for future in self._landed():
                task, deaths = self._flying.pop(future)
                marking = self._outcome(future)
                if marking is not None:
                    yield task, marking
                elif deaths + 1 < DEATHS:
                    again.append((task, deaths + 1))
                else:
                    yield task, RuntimeError("the workers that marked it died each time")

    # ---- the scheduler ---------------------------------------------------------------------------

    def _connected(self):
        try:
            from distributed import Client
        except ImportError:
            raise ClusterError(
                "a cluster needs dask: python -m pip install -c requirements.lock -e '.[cluster]'"
            ) from None
        try:
            return Client(self._address, timeout=ANSWER, set_as_default=False, name="autograde")
        except (OSError, ValueError, ImportError) as error:
            raise ClusterError(
                f"no dask scheduler answers at {self._address}: start `dask scheduler`, or mend the address ({error})"
            ) from None

    def _look_over(self):
        """Have every worker try whether it can mark. Raises ClusterError unless all can."""
        try:
            self._client.wait_for_workers(1, timeout=ANSWER)
        except TimeoutError:
            raise ClusterError(
                f"the scheduler has no workers: start `dask worker {self._address} --nthreads 1`"
            ) from None
        tries = {
            address: self._client.submit(_ready, self._terms, workers=[address], pure=False)
            for address in self._workers()
        }
        for address, future in tries.items():
            try:
                future.result(timeout=READY)
            except Exception as error:
                raise ClusterError(f"the worker at {address} cannot mark: {error or type(error).__name__}") from None

    def _workers(self):
        with _connection():
            return self._client.nthreads()

    # ---- one task --------------------------------------------------------------------------------

    def _send(self, task, deaths):
        """Hand a task to the cluster. Returns the exception that kept it here, if any."""
        from autograde.marking import is_check
        from utils.checks import EXERCISES
        from utils.checks.deliveries import DELIVERIES

        names = [cell.metadata.nbgrader.grade_id for cell in task.notebook.cells if is_check(cell)]
        try:
            papers = {name: self._paper(name, task.student) for name in names if name in EXERCISES}
            papers |= {name: self._papers.on(name, task.student) for name in names if name in DELIVERIES}
        except (RuntimeError, ValueError) as problem:  # the course is at fault
            return problem
        arguments = self._terms, task.phase, json.dumps(task.notebook), papers, task.file
        self._flying[self._client.submit(_mark, *arguments, pure=False)] = task, deaths
        return None

    def _paper(self, name, student):
        """A paper that is on its way, sent once for all who are asked the same."""
        from utils.checks.stored import store

        paper = self._papers.on(name, student)
        if paper not in self._sent:  # as a task: should its worker die, the scheduler has another one unpack it
            self._sent[paper] = self._client.submit(_unpacked, store(paper.exam), pure=False)
        return self._sent[paper]

    def _landed(self):
        """The futures that are done. Waits for one."""
        from distributed import wait

        while True:
            with _connection(), contextlib.suppress(TimeoutError):
                return wait(list(self._flying), timeout=PATIENCE, return_when="FIRST_COMPLETED").done
            if not self._workers():
                raise ClusterError("the cluster has no workers any more. Start some, then run again with --resume.")

    def _outcome(self, future):
        """The Marking, or the exception that it raised; None if its workers died."""
        from distributed import KilledWorker

        try:
            with _connection():
                return future.result(timeout=PATIENCE)
        except Misfit as error:
            raise ClusterError(f"a worker that joined cannot mark: {error}") from None
        except ClusterError:
            raise
        except (KilledWorker, TimeoutError):  # the time: what it did is lost, and nobody is there to do it again
            return None
        except Exception as error:
            return error


@contextlib.contextmanager
def _connection():
    """Say what it means if the scheduler is gone."""
    from distributed import CancelledError
    from distributed.comm import CommClosedError

    try:
        yield
    except (CancelledError, CommClosedError):
        raise ClusterError("the scheduler is gone. Nothing is lost: start it, then run again with --resume.") from None


# ---- on a worker ---------------------------------------------------------------------------------

_stations = {}  # terms -> Here: the sandboxes of this worker
_in_use = threading.Lock()  # one notebook at a time, however many threads the worker has


class _Given:
    """The papers that came with a task."""

    def __init__(self):
        self.papers = {}

    def on(self, name, student):
        return self.papers[name]


_given = _Given()


def _mark(terms, phase, text, papers, file):
    """The Marking of a notebook, given as JSON. papers: name -> Paper; file: what was handed in beside it."""
    from nbformat import from_dict

    with _in_use:
        station = _station(terms)
        _given.papers = papers
        try:
            notebook = from_dict(json.loads(text))
            return station.mark(SimpleNamespace(phase=phase, notebook=notebook, student="", file=file))
        finally:
            _given.papers = {}


def _unpacked(data):
    """The Paper that an exam's bytes make."""
    from autograde.exams import Paper
    from utils.checks.stored import load

    return Paper(load(data))


def _ready(terms):
    """Raise Misfit unless this worker can mark on these terms."""
    with _in_use:
        _station(terms)


def _station(terms):
    """What marks here: tried out at its first use, and warm until `_leave`."""
    course, limits, tier = terms
    if terms not in _stations:
        if course != fingerprint():
            raise Misfit("its course, Python, NumPy, torch or IPython is of another version than the grader's")
        import torch

        from autograde.doctor import confirm
        from autograde.pool import Desk, Here
        from autograde.sandbox import Limits, Sandbox

        limits = Limits(**dict(limits))
        torch.set_num_threads(1)
        try:
            with Sandbox(None, limits, tier) as sandbox:
                confirm(sandbox)
        except SandboxError as error:
            raise Misfit(f"the {tier} sandbox does not hold there; run `autograde doctor` there ({error})") from None
        _stations[terms] = Here(Desk(_given, limits, tier))
    return _stations[terms]


def _leave():
    """Close the sandboxes, as soon as nothing is being marked."""
    threading.Thread(target=_close).start()


def _close(seconds=-1):
    if _in_use.acquire(timeout=seconds):
        while _stations:
            _stations.popitem()[1].__exit__()
        _in_use.release()


Finalize(None, _close, args=(ANSWER,), exitpriority=10)  # a worker that is told to stop


@functools.cache
def fingerprint():
    """A digest of all code that a marking depends on. Hidden cases are no part of it."""
    root = Path(__file__).resolve().parents[1]
    packages = [version(name).partition("+")[0] for name in ("numpy", "torch", "ipython")]
    digest = hashlib.sha256(repr((sys.version_info[:2], packages)).encode())
    files = [*root.glob("autograde/*.py"), *root.glob("utils/**/*.py"), *root.glob("utils/**/*.json")]
    for path in sorted(files):
        digest.update(f"{path.relative_to(root)}".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
