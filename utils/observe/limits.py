"""What surrounds a call of learner code: a time limit, captured output, and global state put back."""

import contextlib
import ctypes
import functools
import io
import random
import signal
import threading
import warnings

import numpy as np
import torch

_start_thread = threading.Thread.start  # learner code may not start any (see forbid), we may
MAX_PRINTED = 4_000  # characters kept of what learner code prints


class TookTooLong(BaseException):
    """Learner code ran beyond its limit. A BaseException, so that `except Exception` does not swallow it."""


@contextlib.contextmanager
def time_limit(seconds):
    """Raise TookTooLong in this thread once `seconds` have passed, and every half second after that."""
    if hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread():
        with _alarm(seconds):
            yield
    else:  # Windows, or a kernel that runs cells outside the main thread
        with _watchdog(seconds):
            yield


@contextlib.contextmanager
def _alarm(seconds):
    def stop(signum, frame):
        raise TookTooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.5)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _watchdog(seconds):
    ended, thread = threading.Event(), ctypes.c_ulong(threading.get_ident())

    def watch():
        wait = seconds
        while not ended.wait(wait):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(TookTooLong))
            wait = 0.5

    watcher = threading.Thread(target=watch, daemon=True)
    _start_thread(watcher)
    try:
        yield
    finally:
        ended.set()
        watcher.join()


class Beginning(io.TextIOBase):
    """A stream that keeps the first `limit` characters of what is written to it: a flood of text fills no memory."""

    def __init__(self, limit):
        self._room, self._parts = limit, []

    def writable(self):
        return True

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if self._room and str.__len__(text):  # str's own: a subclass may answer anything
            kept = str.__getitem__(text, slice(self._room))
            self._room -= len(kept)
            self.keep(kept)
        return str.__len__(text)

    def keep(self, text):
        self._parts.append(text)

    def getvalue(self):
        return "".join(self._parts)


@contextlib.contextmanager
def captured(notes):
    """Keep stdout, stderr and warnings off the page; `notes["printed"]` gets the beginning of what was printed."""
    text = Beginning(MAX_PRINTED)
    with warnings.catch_warnings(), contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            notes["printed"] = text.getvalue()


@contextlib.contextmanager
def global_state(dtype, seed, notes, put_back=True):
    """Fix default dtype and random state; `notes["disturbed"]` names what the body left changed; all is put back.

    put_back: False spares that where nothing comes after.
    """
    before = _state() if put_back else None
    fresh = _marks_of(seed) | {"the default dtype": dtype, "the gradient switch": True}
    _seed(seed)
    torch.set_default_dtype(dtype)
    torch.set_grad_enabled(True)
    try:
        yield
    finally:
        notes["disturbed"] = [name for name, mark in _marks().items() if mark != fresh[name]]
        if put_back:
            _restore(before)


def _seed(seed):
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)  # torch.manual_seed keeps a note for each device that is not there


def _state():
    return {
        "Python's random state": random.getstate(),
        "NumPy's random state": np.random.get_state(),
        "torch's random state": torch.get_rng_state(),
        "torch's seed": torch.initial_seed(),
        "the default dtype": torch.get_default_dtype(),
        "the gradient switch": torch.is_grad_enabled(),
    }


def _restore(state):
    random.setstate(state["Python's random state"])
    np.random.set_state(state["NumPy's random state"])
    torch.set_rng_state(state["torch's random state"])
    torch.set_default_dtype(state["the default dtype"])
    torch.set_grad_enabled(state["the gradient switch"])


_draws = random.gauss, random.getrandbits, np.random.standard_normal, np.random.bytes  # learner code may replace them


def _marks():
    """By which a state is known, at a tenth of its price: the next numbers it gives. It is spoilt by that."""
    normal, bits, numpy_normal, numpy_bytes = _draws
    return {
        "Python's random state": (normal(0, 1), bits(128)),
        "NumPy's random state": (numpy_normal(), numpy_bytes(16)),
        "torch's random state": torch.get_rng_state().numpy().tobytes(),
        "torch's seed": torch.initial_seed(),
        "the default dtype": torch.get_default_dtype(),
        "the gradient switch": torch.is_grad_enabled(),
    }


@functools.lru_cache(maxsize=256)
def _marks_of(seed):
    """The marks after `_seed(seed)`."""
    _seed(seed)
    return _marks()
