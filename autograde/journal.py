"""What a grading run has done so far, one line per submission, so that the next run can go on where it stopped."""

import fcntl
import json
import os
from contextlib import contextmanager, suppress
from pathlib import Path


class Busy(Exception):
    """Another run is grading this course."""


class Journal:
    """Lines of {"student", "phase", "print", …}. `print` is a fingerprint of all that the result depends on."""

    def __init__(self, path):
        self.path = Path(path)
        self._done = {}

    def read(self):
        """Take what earlier runs have done as done. A line that was cut off by a crash does not count."""
        if self.path.exists():
            for line in self.path.read_bytes().splitlines():
                with suppress(ValueError, KeyError, TypeError):
                    entry = json.loads(line)
                    self._done[entry["student"], entry["phase"]] = {"print": "", **entry}
        return self

    def restart(self):
        """Forget what earlier runs have done."""
        self.path.unlink(missing_ok=True)
        return self

    def done(self, student, phase, fingerprint):
        """The entry of a submission that was recorded as it is now; None if it is still to be graded."""
        entry = self._done.get((student, phase))
        return entry if entry and entry["print"] == fingerprint else None

    def add(self, entry):
        """Write a line and have it on the disk before returning."""
        add_line(self.path, entry)


def add_line(path, entry):
    """Append an entry to a file of JSON lines, and have it on the disk before returning."""
    line = json.dumps(entry, ensure_ascii=False) + "\n"
    with open(path, "a+b") as file:
        if file.tell() and _last_byte(file) != b"\n":
            file.write(b"\n")  # a crash left half a line
        file.write(line.encode("utf-8", "replace"))
        file.flush()
        os.fsync(file.fileno())


def _last_byte(file):
    file.seek(-1, os.SEEK_END)
    return file.read(1)


@contextmanager
def alone(path):
    """Hold a lock file while grading. Raises Busy if another run holds it; the lock ends with the process."""
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Busy("another grading run is at work in this course: wait for it, or end it") from None
        yield
