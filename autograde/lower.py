"""Inside, in the lower tiers: what stands in for namespaces. Staged beside inside.py and imported by it alone.

No namespace means: a submission is a process among the user's others. It gets a folder of its own, limits, and in the
partial tier walls around files, network and signals; when it ends, what it started is hunted down as far as possible.
"""

import contextlib
import ctypes
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STAGE = Path(__file__).resolve().parent
SCRATCH = "scratch"  # below the stage: the warm process's home, and in it the child's
HOME = STAGE / SCRATCH / "learner"

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_KEEPCAPS, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 8, 36, 38
_CAP_DAC_READ_SEARCH = 1 << 2


def prepare(nobody):
    """Once, in the warm process: make the scratch place, stop being root, become the parent of orphans."""
    _remove(HOME.parent)  # of a warm process that died
    HOME.parent.mkdir(mode=0o700)
    if os.getuid() == 0:
        os.chown(HOME.parent, nobody, nobody)
        _become(nobody)
    os.chdir(HOME.parent)
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _become(nobody):
    """Another user who may still read what root's Python needs; Landlock says which folders those are."""
    _libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(nobody, nobody, nobody)
    os.setresuid(nobody, nobody, nobody)
    header = struct.pack("<Ii", 0x20080522, 0)
    kept = struct.pack("<6I", _CAP_DAC_READ_SEARCH, _CAP_DAC_READ_SEARCH, 0, 0, 0, 0)
    if _libc.capset(header, kept) != 0:
        raise OSError(ctypes.get_errno(), "giving up root's powers")


def fresh():
    """Before a child is forked: an empty home for it."""
    HOME.mkdir(mode=0o700)


def wall_off(tier):
    """In the child, before it hears anything: its home, and in the partial tier its walls."""
    os.setsid()
    os.chdir(HOME)
    os.environ.update(MPLCONFIGDIR=str(HOME))
    tempfile.tempdir = None  # found again, from the child's own environment
    if sys.platform != "linux":
        return  # sandbox-exec has done it for the warm process and all its children
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no new privileges")
    if tier == "partial":
        import landlock

        landlock.confine(readable(), HOME)


def readable():
    """What the system, Python and the stage need."""
    system = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives"]
    return [*system, sys.prefix, sys.base_prefix, str(STAGE / "utils")]


def running():
    """How many tasks this user runs now: a limit on processes counts them, too."""
    count = 0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if entry.stat().st_uid == os.getuid():
                count += len(os.listdir(entry / "task"))
        except OSError:
            continue  # it has ended
    return count


def finish(child, seconds=60):
    """End whatever the child left, and empty its home. Raises RuntimeError if something will not die."""
    if sys.platform == "linux":
        _end_orphans(time.monotonic() + seconds)
    else:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
    _remove(HOME)


def _remove(folder):
    """However deep it is and whatever its modes are: Python's own rmtree gives up on both."""
    for tidy in (["chmod", "-R", "u+rwX", str(folder)], ["rm", "-rf", str(folder)]):
        subprocess.run(tidy, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)


def _end_orphans(end):
    """End all that is below us, for orphans are ours. A fork bomb is faster than we are: first it is frozen."""
    before = set()
    while found := _descendants():
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGSTOP)
                resource.prlimit(pid, resource.RLIMIT_NPROC, (0, 0))  # it can fork no more, and cannot change that
                if found <= before:
                    os.kill(pid, signal.SIGKILL)
        before = found
        _reap()
        if time.monotonic() > end:
            raise RuntimeError("what a submission started does not end")
    _reap()


def _reap():
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _descendants():
    """The processes below this one that are not over yet."""
    children = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = entry.read_text(errors="replace").rpartition(")")[2].split()[:2]
        except (OSError, ValueError):
            continue  # it has ended
        if state != "Z":
            children.setdefault(int(parent), []).append(int(entry.parent.name))
    found, above = set(), [os.getpid()]
    while above:
        below = children.get(above.pop(), [])
        found.update(below)
        above += below
    return found
