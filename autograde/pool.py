"""Who marks: this process, or several of this machine. A worker that dies costs no submission."""

import ctypes
import signal
import sys
from collections import deque
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.util import Finalize

from autograde import inside
from autograde.marking import Marker, MarkingError
from autograde.sandbox import Limits

DEATHS = 3  # workers that may die of a submission that is alone with them, before it is given up


@dataclass(frozen=True)
class Desk:
    """All that a worker needs to know before the first submission; travels to it."""

    papers: object  # .on(exercise, student) -> Paper
    limits: Limits
    tier: str


class Here:
    """Mark in this process, one after the other."""

    def __init__(self, desk):
        self._desk, self._markers = desk, {}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        while self._markers:
            self._markers.popitem()[1].__exit__(*error)

    def mark(self, task):
        """The Marking of one task."""
        if task.phase not in self._markers:
            self.__exit__()  # one sandbox at a time: work comes phase by phase
            self._markers[task.phase] = Marker(task.phase, *vars(self._desk).values()).__enter__()
        return self._markers[task.phase].mark(task.notebook, task.student, task.file)

    def marked(self, tasks):
        """Yield (task, its Marking, or the exception that its marking raised; None if it had a result)."""
        for task in tasks:
            yield task, None if task.result else _attempt(self.mark, task)


class Processes:
    """Mark in several processes of this machine."""

    def __init__(self, desk, workers):
        self._desk, self._workers, self._pool = desk, workers, None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def marked(self, tasks):
        """Yield (task, its Marking, or the exception that its marking raised; None if it had a result).

        When a worker dies, all that was under way is lost, and nobody knows whose fault it was: each of those is then
        marked alone.
        """
        tasks, suspects, flying = iter(tasks), deque(), {}
        while True:
            while not suspects and len(flying) < 2 * self._workers:
                task = next(tasks, None)
                if task is None:
                    break
                if task.result:
                    yield task, None
                else:
                    flying[self._submit(task)] = task, self._pool
            if not flying:
                if not suspects:
                    return
                task = suspects.popleft()
                yield task, _attempt(self._alone, task)
                continue
            for future in wait(flying, return_when="FIRST_COMPLETED").done:
                task, pool = flying.pop(future)
                error = future.exception()
                if not isinstance(error, BrokenProcessPool):
                    yield task, error or future.result()
                    continue
                if pool is self._pool:
                    self._pool = None
                suspects.append(task)

    def _alone(self, task):
        for _ in range(DEATHS):
            try:
                return self._submit(task).result()
            except BrokenProcessPool:
                self._pool = None
        raise MarkingError("the process that marked it died each time")

    def _submit(self, task):
        for _ in range(2):
            if self._pool is None:
                options = {"initializer": _sit_down, "initargs": (self._desk,)}
                self._pool = ProcessPoolExecutor(self._workers, get_context("spawn"), **options)
            try:
                return self._pool.submit(_mark, task)
            except BrokenProcessPool:
                self._pool = None
        raise RuntimeError("no worker process can be started")


_here = None  # a worker's own


def _sit_down(desk):
    global _here
    import torch

    if sys.platform == "linux":  # or a killed grader would leave its workers behind
        ctypes.CDLL(None).prctl(inside.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who records
    torch.set_num_threads(1)
    _here = Here(desk)
    Finalize(None, _here.__exit__, exitpriority=10)


def _mark(task):
    return _here.mark(task)


def _attempt(function, task):
    try:
        return function(task)
    except Exception as error:
        return error
