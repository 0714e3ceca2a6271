"""The trusted side of the sandbox: start the warm process behind bubblewrap, talk to one child per submission.

    with Sandbox() as sandbox:
        with sandbox.session() as session:
            session.run("def sdpa(q, k, v): …")      # outputs, all of them claims
            session.observe("sdpa", request)          # an observation, to be judged out here

Nothing of the course is visible inside but what `walls.STAGED` lists; no network, no home, no environment.
"""

import shutil
import socket
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from autograde import inside, walls
from utils.observe import codec


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
        walls.fill(self._stage)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            walls.command(self._stage, theirs.fileno()),
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
