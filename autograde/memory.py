"""How much memory a submission's processes hold together, seen from outside; Linux only, elsewhere nobody looks.

A limit inside holds for one process, and a submission may have many. What a fork still shares with the warm process it
came from is not counted: that much is taken off for each.
"""

import contextlib
import os
import signal
import sys
import threading
from pathlib import Path

INTERVAL = 0.05  # seconds: a machine fills some gigabytes in a quarter of one


class Watch:
    """Ends a submission whose processes together hold more than `limit` bytes. A context manager.

    warm: the process that forks it; own: what that one held when it was ready; `exceeded` tells what happened.
    """

    def __init__(self, warm, own, limit):
        self.warm, self.own, self.limit, self.exceeded = warm, own, limit, False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self):
        if sys.platform == "linux":
            self._thread.start()
        return self

    def __exit__(self, *error):
        self._over.set()
        if sys.platform == "linux":
            self._thread.join()

    def _look(self):
        while not self._over.wait(INTERVAL):
            processes = below(self.warm)
            if sum(max(0, held(pid) - self.own) for pid in processes) > self.limit:
                self.exceeded = True
                for pid in processes:  # the first is the one that the others die with
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)


def below(pid):
    """The numbers of all processes that come from that one, elder ones first."""
    found = children(pid)
    for one in found:
        found += children(one)
    return found


def children(pid):
    """Those that it forked itself; none if it is gone."""
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


def held(pid):
    """Bytes of memory that stand for no file on a disk; 0 if the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:")))
