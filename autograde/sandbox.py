"""The trusted side of the sandbox: start the warm process behind bubblewrap, talk to one child per submission.

    with Sandbox() as sandbox:
        with sandbox.session() as session:
            session.run("def sdpa(q, k, v): …")      # outputs, all of them claims
            session.observe("sdpa", request)          # an observation, to be judged out here

Nothing of the course is visible inside but what `STAGED` lists; no network, no home, no environment.
"""

import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from autograde import inside
from autograde.course import ROOT
from utils.observe import codec

# what a notebook may import of the course; checks and oracle stay outside
STAGED = ("__init__.py", "lesson.py", "notes.py", "notes.json", "notes_table.py", "plots.py", "widgets.py", "observe")

NO_CHECKS = '''"""Checks are made outside: in here `check` does nothing."""

EXERCISES = {}


def check(obj, points=1):
    return None
'''


class SandboxError(Exception):
    """The sandbox cannot be started here; the message says why and what to do."""


class Ended(Exception):
    """The child is gone, or answered nothing in time: `reason` says which."""

    def __init__(self, reason):
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Limits:
    """What one submission may use."""

    memory: int = 6 * 2**30  # bytes of address space; torch alone maps about 3 GiB
    processes: int = 64
    file_size: int = 16 * 2**20
    files: int = 256
    cpu: int = 300  # seconds
    cell: float = 60.0  # seconds of wall time for one cell
    notebook: float = 600.0  # and for a whole notebook


class Sandbox:
    """One warm process. Not to be shared between threads."""

    def __init__(self, limits=None):
        self.limits = limits or Limits()
        self._stage = None

    def __enter__(self):
        if shutil.which("bwrap") is None:
            raise SandboxError("bubblewrap is not installed: sudo apt install bubblewrap")
        self._stage = Path(tempfile.mkdtemp(prefix="stage-"))
        _fill(self._stage)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # the parent of bwrap has no environment either: pid 1 inside would show it
        self._process = subprocess.Popen(
            ["/usr/bin/env", "-i", shutil.which("bwrap"), *_walls(self._stage, theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        theirs.close()
        self._control = ours
        self._control.settimeout(120)
        if self._receive_order() != b"ready":
            self._process.kill()
            reason = self._process.stderr.read().decode(errors="replace").strip()[-400:]
            self.__exit__(None, None, None)
            raise SandboxError(f"the sandbox did not start: {reason or 'no reason given'}")
        return self

    def __exit__(self, *error):
        self._control.close()
        self._process.kill()
        self._process.wait()
        self._process.stderr.close()
        shutil.rmtree(self._stage, ignore_errors=True)

    def _receive_order(self):
        try:
            return self._control.recv(64)
        except OSError:
            return b""

    def session(self):
        """A fresh child for one submission, as a context manager."""
        return Session(self)


class Session:
    """One child. `cpu_seconds` is known after the end."""

    def __init__(self, sandbox):
        self._sandbox, self.cpu_seconds = sandbox, None

    def __enter__(self):
        limits = self._sandbox.limits
        self._line, theirs = socket.socketpair()
        order = inside.LIMITS.pack(limits.memory, limits.processes, limits.file_size, limits.files, limits.cpu)
        socket.send_fds(self._sandbox._control, [order], [theirs.fileno()])
        theirs.close()
        self._end = time.monotonic() + limits.notebook
        return self

    def __exit__(self, *error):
        self._line.close()
        self._sandbox._control.send(b".")
        (self.cpu_seconds,) = struct.unpack("<d", self._sandbox._receive_order())

    def run(self, source):
        """The outputs of one cell, as nbformat has them. Raises Ended if the child does not survive it."""
        return _outputs(self._ask({"do": "run", "source": source}))

    def observe(self, name, request):
        """What the child claims to have seen: the observation of `utils.observe`, or None if that fork died."""
        reply = self._ask({"do": "observe", "name": name, "request": vars(request)})
        if reply.get("end"):
            return None
        self._receive()  # the end mark
        return reply.get("seen")

    def _ask(self, question):
        try:
            self._line.settimeout(self._patience())
            inside.send(self._line, question)
        except OSError:
            raise Ended("its process has ended") from None
        return self._receive()

    def _receive(self):
        try:
            self._line.settimeout(self._patience())
            reply = inside.receive(self._line)
        except TimeoutError:
            raise Ended(f"no answer within {self._sandbox.limits.cell:g} s") from None
        except (OSError, codec.CodecError) as error:
            raise Ended(f"its answer cannot be read: {error}") from None
        if not isinstance(reply, dict):
            raise Ended("its process has ended" if reply is None else "its answer is not one")
        return reply

    def _patience(self):
        return max(0.01, min(self._sandbox.limits.cell, self._end - time.monotonic()))


def _outputs(reply):
    """The outputs of a reply, in the shapes nbformat allows; whatever else was sent is dropped."""
    from nbformat.v4 import new_output

    kept = []
    for output in reply.get("outputs", ())[:200]:
        try:
            kept.append(new_output(**output))
        except Exception:  # a forged reply may hold anything
            continue
    return kept


def _fill(stage):
    """Copy what may be seen inside."""
    stage.chmod(0o755)
    (stage / "utils" / "checks").mkdir(parents=True)
    for name in STAGED:
        source = ROOT / "utils" / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, stage / "utils" / name)
    (stage / "utils" / "checks" / "__init__.py").write_text(NO_CHECKS, "utf-8")
    shutil.copy(inside.__file__, stage / "inside.py")


def _walls(stage, control):
    """bwrap's arguments: a read-only system, the Python of this process, the stage, nothing else."""
    # root needs no user namespace of bwrap's: inside.py becomes nobody, since no limit on processes holds for root
    own = ["pid", "net", "ipc", "uts", "cgroup-try"] if os.getuid() == 0 else ["all"]
    arguments = [f"--unshare-{name}" for name in own]
    arguments += ["--die-with-parent", "--new-session", "--hostname", "sandbox"]
    for path in ("/usr", "/etc/ld.so.cache", "/etc/alternatives"):
        arguments += ["--ro-bind-try", path, path]
    for path in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            arguments += ["--ro-bind", path, path]
    arguments += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--perms", "1777", "--tmpfs", inside.HOME]
    for path in sorted({sys.prefix, sys.base_prefix}):
        if not path.startswith("/usr"):
            for parent in list(reversed(Path(path).parents))[1:]:  # made here, and open to nobody, too
                arguments += ["--perms", "0755", "--dir", str(parent)]
            arguments += ["--ro-bind", path, path]
    arguments += [
        "--ro-bind",
        str(stage),
        "/course",
        "--chdir",
        inside.HOME,
        "--remount-ro",
        "/tmp",
        "--remount-ro",
        "/",
    ]
    for name, value in _variables().items():
        arguments += ["--setenv", name, value]
    return [*arguments, sys.executable, "/course/inside.py", str(control)]


def _variables():
    """The whole environment inside."""
    return {
        "PATH": f"{sys.prefix}/bin:/usr/bin:/bin",
        "PYTHONPATH": "/course",
        "PYTHONDONTWRITEBYTECODE": "1",
        "MPLCONFIGDIR": inside.HOME,
        "MPLBACKEND": "Agg",
        "OMP_NUM_THREADS": "1",
        "HOME": inside.HOME,
        "USER": "learner",
        "LANG": "C.UTF-8",
    }
