"""The trusted side of the sandbox: start the warm process behind its walls, talk to one child per submission.

    with Sandbox() as sandbox:
        with sandbox.session() as session:
            session.run("def sdpa(q, k, v): …")      # outputs, all of them claims
            session.observe("sdpa", requests)         # observations, to be judged out here

Nothing of the course is visible inside but what `walls.STAGED` lists; no network, no home, no environment.
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

from autograde import claims, inside, memory, walls
from autograde.walls import SandboxError
from utils.observe import codec


class Ended(Exception):
    """The child is gone, or answered nothing in time: `reason` says which."""

    def __init__(self, reason):
        super().__init__(reason)
        self.reason = reason


START = 120  # seconds that the warm process may take to import everything
FINISH = 30  # seconds that it may take to end a child
GRACE = 5.0  # seconds on top of a limit, before a child that does not keep it is given up


@dataclass(frozen=True)
class Limits:
    """What one submission may use."""

    memory: int = 6 * 2**30  # bytes of address space for one process; torch alone maps about 3 GiB
    together: int = 4 * 2**30  # bytes that all its processes may hold
    processes: int = 32  # one for each check of a notebook, and what it starts itself
    file_size: int = 16 * 2**20
    files: int = 256
    cpu: int = 300  # seconds
    cell: float = 60.0  # seconds of wall time for one cell
    notebook: float = 600.0  # and for a whole notebook


class Sandbox:
    """One warm process for the submissions of one phase, one after the other; started anew should it have died."""

    def __init__(self, phase=None, limits=None, tier="full"):
        self.phase, self.limits, self.tier = phase, limits or Limits(), tier
        self._stage = self._process = self._control = None

    def __enter__(self):
        self._stage = Path(tempfile.mkdtemp(prefix="stage-"))
        try:
            walls.fill(self._stage, self.phase)
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error):
        self._stop()
        shutil.rmtree(self._stage, ignore_errors=True)

    def session(self, end=None):
        """A fresh child for one submission, as a context manager. `end`: a time.monotonic() that ends its time."""
        return Session(self, end or time.monotonic() + self.limits.notebook)

    def order(self, limits, line):
        """Have a child forked that talks over `line`, which is closed here."""
        with line:
            try:
                socket.send_fds(self._control, [limits], [line.fileno()])
            except OSError:  # the warm process has died
                self._stop()
                self._start()
                socket.send_fds(self._control, [limits], [line.fileno()])

    def finish(self):
        """End the child. Returns the CPU seconds it is known to have used."""
        try:
            self._control.settimeout(FINISH)
            self._control.send(b".")
            return struct.unpack("<d", self._control.recv(64))[0]
        except (OSError, struct.error):  # the warm process has died or hangs: the next order starts another
            self._stop()
            return 0.0

    def _start(self):
        kind = socket.SOCK_SEQPACKET if sys.platform == "linux" else socket.SOCK_STREAM
        self._control, theirs = socket.socketpair(socket.AF_UNIX, kind)
        with theirs:
            self._process = subprocess.Popen(
                walls.command(self._stage, theirs.fileno(), self.tier),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        self._control.settimeout(START)
        ready, silence = False, "no reason given"
        try:
            ready = self._control.recv(64) == b"ready"
        except TimeoutError:
            silence = f"no answer within {START} s; is this machine very busy?"
        except OSError:
            pass
        if not ready:
            self._control.close()  # what bubblewrap has started ends with this, should it be too early for its own ways
            self._process.kill()
            self._process.wait()
            os.set_blocking(self._process.stderr.fileno(), False)
            reason = (self._process.stderr.read() or b"").decode(errors="replace").strip()[-400:]
            raise SandboxError(f"the sandbox did not start: {reason or silence}")
        self._warm = (memory.below(self._process.pid) or [self._process.pid])[-1]
        self._own = memory.held(self._warm)

    def watch(self):
        """See to it that the child and all that it starts stay within their memory. A context manager."""
        return memory.Watch(self._warm, self._own, self.limits.together)

    def _stop(self):
        if self._process is not None:
            self._control.close()
            self._process.kill()
            self._process.wait()
            self._process.stderr.close()


class Session:
    """One child, with time until `end`. `ended` says why it is gone early; `cpu_seconds` is known after the end."""

    def __init__(self, sandbox, end):
        self._sandbox, self.end = sandbox, end
        self.cpu_seconds, self.ended = None, ""

    def __enter__(self):
        limits = self._sandbox.limits
        self._line, theirs = socket.socketpair()
        order = inside.LIMITS.pack(limits.memory, limits.processes, limits.file_size, limits.files, limits.cpu)
        self._sandbox.order(order, theirs)
        self._watch = self._sandbox.watch().__enter__()
        return self

    def __exit__(self, *error):
        self._watch.__exit__()
        self._line.close()
        self.cpu_seconds = self._sandbox.finish()

    def run(self, source, room=claims.MAX_NOTEBOOK):
        """The outputs of one cell, as nbformat has them; `room`: characters that they may take.

        Raises Ended if the child does not survive it, claims.BadClaim for an answer that is none.
        """
        seconds = min(self._sandbox.limits.cell, max(0.1, self.end - time.monotonic()))
        self._send(codec.encode({"do": "run", "source": source, "seconds": seconds}))
        return claims.cell_outputs(self._receive(seconds), room)

    def keep(self, name):
        """Have the object of that name, if there is one, observed later as it is now. Raises Ended."""
        self._send(codec.encode({"do": "keep", "name": name}))

    def observe(self, name, requests):
        """Yield what the child claims to have seen, one observation per encoded request; fewer if that fork died.

        Raises Ended if the whole child is gone, claims.BadClaim for an answer that is none.
        """
        self._send(codec.encode({"do": "observe", "name": name}))
        alive = True
        try:
            for request in requests:
                self._send(request)
                body = self._receive(self._sandbox.limits.cell)
                alive = bool(body)
                if not alive:  # the end mark
                    return
                yield claims.observation(body, request)
        finally:
            if alive and not self.ended:
                self._send(b"")
                if self._receive(GRACE):
                    self._gone("it answered what was not asked")

    def _send(self, body):
        if self.ended:
            raise Ended(self.ended)
        try:
            self._line.settimeout(GRACE)
            inside.send_bytes(self._line, body)
        except OSError:
            self._gone("its process has ended")

    def _receive(self, seconds):
        """The next message, all of it within `seconds` and a little."""
        try:
            body = inside.receive_bytes(self._line, min(time.monotonic() + seconds, self.end) + GRACE)
        except TimeoutError:
            self._gone(f"no answer within {seconds:g} s")
        except (OSError, codec.CodecError) as error:
            self._gone(f"its answer cannot be read: {error}")
        if body is None:
            self._gone("its process has ended")
        return body

    def _gone(self, reason):
        if self._watch.exceeded:
            reason = f"its processes held more than {self._sandbox.limits.together / 2**30:g} GiB of memory together"
        self.ended = reason
        raise Ended(reason) from None
