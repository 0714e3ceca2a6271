"""How much memory a command takes at most: somebody who looks again and again while it runs."""

import threading
import time

import psutil

PAUSE = 0.2  # seconds between two looks, more where looking takes long


class Peak:
    """The largest of what `now()` gives while the block runs, bytes: `mib`. A context manager."""

    def __init__(self, now):
        self.now, self.mib, self._ended = now, 0.0, threading.Event()

    def __enter__(self):
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._ended.set()
        self._thread.join()

    def _watch(self):
        pause = PAUSE
        while not self._ended.wait(pause):
            start = time.thread_time()
            self.mib = max(self.mib, self.now() / 2**20)
            pause = max(PAUSE, 20 * (time.thread_time() - start))  # looking takes 5 % of a core at most


def family(pid):
    """A process and all that it started, as far as they live."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def alone(process):
    """The bytes that a process holds without others; 0 if it is gone."""
    try:
        memory = process.memory_info()
        return memory.rss - memory.shared
    except (psutil.Error, AttributeError):  # not every system tells what is shared
        return 0
