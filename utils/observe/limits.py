"""What surrounds a call of learner code: a time limit, captured output, and global state put back."""

import contextlib
import ctypes
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


@contextlib.contextmanager
def captured(notes):
    """Keep stdout, stderr and warnings off the page; `notes["printed"]` gets the beginning of what was printed."""
    text = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            notes["printed"] = text.getvalue()[:MAX_PRINTED]


@contextlib.contextmanager
def global_state(dtype, seed, notes):
    """Fix default dtype and random state; `notes["disturbed"]` names what the body left changed; all is put back."""
    before = _state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    torch.set_default_dtype(dtype)
    torch.set_grad_enabled(True)
    start = _state()
    try:
        yield
    finally:
        notes["disturbed"] = [name for name, value in _state().items() if value != start[name]]
        random.setstate(before["Python's random state"])
        np.random.set_state(_numpy_state(before["NumPy's random state"]))
        torch.set_rng_state(torch.tensor(list(before["torch's random state"]), dtype=torch.uint8))
        torch.set_default_dtype(before["the default dtype"])
        torch.set_grad_enabled(before["the gradient switch"])


def _state():
    kind, keys, *rest = np.random.get_state()
    return {
        "Python's random state": random.getstate(),
        "NumPy's random state": (kind, keys.tobytes(), *rest),
        "torch's random state": bytes(torch.get_rng_state().numpy()),
        "torch's seed": torch.initial_seed(),
        "the default dtype": torch.get_default_dtype(),
        "the gradient switch": torch.is_grad_enabled(),
    }


def _numpy_state(state):
    kind, keys, *rest = state
    return (kind, np.frombuffer(keys, dtype=np.uint32), *rest)
