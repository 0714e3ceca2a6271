"""Try the walls for real: what no submission may be able to do is attempted from inside, and looked at from outside.

A probe never asks the inside whether it was stopped where the outside can see it: a listener knows who came.
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from autograde.course import ROOT
from autograde.sandbox import Ended, Limits, Sandbox, SandboxError

LIMITS = Limits(processes=16, cell=1.0, notebook=60.0)
PATIENT = Limits(processes=16, cell=20.0, notebook=60.0)  # a busy machine is slow, and that is no hole
TOO_MANY, TOO_MUCH = 200, 128 * 2**20  # where forking and writing stop if nothing stops them
NOBODY = 65534


@dataclass(frozen=True)
class Probe:
    """One attempt. `held`: the wall held. `detail`: what was seen."""

    name: str
    held: bool
    detail: str


class Host:
    """What stands outside to be reached, read, changed or killed: only things of our own."""

    def __enter__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="canary-"))
        self.folder.chmod(0o777)  # no luck by mere permissions: inside, we are another user if this one is root
        self.secret, self.file = secrets.token_hex(16), self.folder / "canary.txt"
        self.file.write_text(self.secret, "utf-8")
        self.file.chmod(0o666)
        self.before = self.looks()
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
        self.process = subprocess.Popen(
            [shutil.which("sleep"), "120"], stdin=subprocess.DEVNULL, env={"AUTOGRADE_CANARY": self.secret}, **user
        )
        self.listeners = {"TCP": _bound(socket.AF_INET, ("127.0.0.1", 0))}
        self.listeners["UDP"] = _bound(socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_DGRAM)
        self.listeners["a socket file"] = _bound(socket.AF_UNIX, str(self.folder / "socket"))
        os.chmod(self.folder / "socket", 0o777)
        if sys.platform == "linux":
            self.listeners["an abstract socket"] = _bound(socket.AF_UNIX, f"\0canary-{self.secret}")
        return self

    def __exit__(self, *error):
        for listener in self.listeners.values():
            listener.close()
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def looks(self):
        """What a change of the canary or beside it would change."""
        seen = self.file.stat()
        beside = {path.name for path in self.folder.iterdir()} - {"socket"}
        return self.file.read_text("utf-8"), oct(seen.st_mode), seen.st_mtime_ns, beside


def _bound(family, address, kind=socket.SOCK_STREAM):
    listener = socket.socket(family, kind)
    listener.bind(address)
    listener.setblocking(False)
    if kind == socket.SOCK_STREAM:
        listener.listen()
    return listener


# ---- what is tried by a cell ---------------------------------------------------------------------


def network(host, run):
    """Reach a listener of this machine."""
    cell = "import socket\n"
    for listener in host.listeners.values():
        cell += f"""
try:
    s = socket.socket({int(listener.family)}, {int(listener.type)}); s.settimeout(1)
    s.connect({listener.getsockname()!r}); s.send(b"x")
except OSError:
    pass
"""
    run(cell)
    reached = [name for name, listener in host.listeners.items() if _was_reached(listener)]
    return not reached, f"reached over {', '.join(reached)}" if reached else "no listener of this machine was reached"


def _was_reached(listener):
    with contextlib.suppress(OSError):
        if listener.type == socket.SOCK_DGRAM:
            return bool(listener.recv(1))
        listener.accept()[0].close()
        return True
    return False


def files(host, run):
    """Read a file of the host, the home and the course."""
    text = run(f"""
import os
try:
    print(open({str(host.file)!r}).read())
except OSError:
    pass
for place in {[str(Path.home()), str(ROOT / "autograde")]!r}:
    try:
        print(*(os.path.join(place, name) for name in os.listdir(place)), sep="\\n")
    except OSError:
        pass
""")
    if host.secret in text:
        return False, f"the canary {host.file} was read"
    way = {str(parent) for path in (sys.prefix, sys.base_prefix) for parent in (Path(path), *Path(path).parents)}
    listed = set(text.split("\n")) - way - {""}  # the way to Python itself is there, and empty besides
    return not listed, f"listed {min(listed)} …" if listed else "canary, home and course cannot be read"


def environment(host, run):
    """Find what stands in the environment of the grader or of any process."""
    text = run("""
import glob, os
print(dict(os.environ))
for name in glob.glob("/proc/[0-9]*/environ"):
    try:
        print(open(name).read())
    except OSError:
        pass
""")
    return host.secret not in text, "the canary was seen" if host.secret in text else "the canary was not seen"


def writing(host, run):
    """Change, empty, remove or add a file outside, or change its mode and times."""
    for attempt in (
        f"open({str(host.folder / 'new')!r}, 'w')",
        f"open({str(host.file)!r}, 'a').write('x')",
        f"os.truncate({str(host.file)!r}, 1)",
        f"os.chmod({str(host.file)!r}, 0o600)",
        f"os.utime({str(host.file)!r}, (1, 1))",
        f"os.remove({str(host.file)!r})",
    ):
        run(f"import os\n{attempt}")
        if not host.file.exists() or host.looks() != host.before:
            return False, f"this worked: {attempt.replace(str(host.folder), '…')}"
    return True, "nothing outside changed"


def processes(host, run):
    """See another process."""
    text = run(f"""
import os
try:
    print("all" if str({host.process.pid}) in os.listdir("/proc") else "")
    print(open("/proc/{host.process.pid}/cmdline").read())
except OSError:
    pass
""")
    seen = "all" in text or "sleep" in text
    return not seen, "other processes are listed" if seen else "no other process is listed"


def signals(host, run):
    """Kill another process of the same user, the one above included, or change its limits."""
    text = run(f"""
import os, resource
if os.getppid():
    try:
        os.kill(os.getppid(), 0); print("parent")
    except OSError:
        pass
try:
    resource.prlimit({host.process.pid}, resource.RLIMIT_CPU, (60, 60)); print("limits")
except (OSError, AttributeError):
    pass
os.kill({host.process.pid}, {int(signal.SIGKILL)})
""")
    with contextlib.suppress(subprocess.TimeoutExpired):
        host.process.wait(0.2)
        return False, "a process outside was killed"
    if "parent" in text or "limits" in text:
        return False, "the process above can be killed" if "parent" in text else "limits of others can be changed"
    return True, "no process outside can be killed"


def forks(host, run):
    """Fork past the limit."""
    text = run(f"""
import os, time
count = 0
try:
    while count < {TOO_MANY}:
        if os.fork() == 0:
            time.sleep(20); os._exit(0)
        count += 1
except OSError:
    pass
print(count)
""")
    count = int(text) if text.strip().isdigit() else TOO_MANY
    return count < TOO_MANY, f"stopped after {count}" if count < TOO_MANY else "no limit was met"


def memory(host, run):
    """Ask for more memory than the limit."""
    text = run(f"try:\n    bytearray({PATIENT.memory + 2**30})\nexcept MemoryError:\n    print('refused')")
    return "refused" in text, "refused" if "refused" in text else f"{PATIENT.memory / 2**30 + 1:g} GiB were given"


def disk(host, run):
    """Fill the disk."""
    text = run(f"""
size, block = 0, bytes(2**22)
try:
    while size < {TOO_MUCH}:
        with open(f"f{{size}}", "wb") as file:
            file.write(block)
        size += len(block)
except OSError:
    pass
print(size)
""")
    size = int(text) if text.strip().isdigit() else TOO_MUCH
    return size < TOO_MUCH, f"{size / 2**20:g} MiB could be written" + (" and more" if size >= TOO_MUCH else "")


FROM_INSIDE = (network, files, environment, writing, processes, signals, forks, memory, disk)
QUICK = (network, files, writing, processes)


# ---- what needs a whole session ------------------------------------------------------------------


def survivors(host, sandbox):
    """Outlive the session: every process that is left holds the line open."""
    with sandbox.session() as session:
        line = session._line.dup()
        session.run(f"""
import ctypes, os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if {sys.platform == "linux"}:
        ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
    time.sleep(20)
    os._exit(0)
""")
    with line:
        line.settimeout(3)
        try:
            while line.recv(1 << 16):
                pass
        except TimeoutError:
            return False, "a process that detached itself outlives its session"
        except OSError:
            pass
    return True, "nothing outlives its session"


def clock(host, sandbox):
    """Compute for ever, deaf to alarms; then the next submission has to find all in order."""
    start = time.monotonic()
    try:
        with sandbox.session() as session:
            session.run("import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: pass")
        return False, "an endless loop came to an end by itself"
    except Ended:
        seconds = time.monotonic() - start
    sandbox.limits = PATIENT
    with sandbox.session() as session:
        if _printed(session.run("print('well')")) != "well\n":
            return False, "the next submission does not run"
    return True, f"an endless loop was ended after {seconds:.1f} s, and the next submission runs"


# ---- all of them ---------------------------------------------------------------------------------


def probe(tier):
    """Start a sandbox of that tier and try everything. One probe named "start" if it does not start."""
    with Host() as host, contextlib.ExitStack() as stack:
        os.environ["AUTOGRADE_CANARY"] = host.secret
        try:
            sandbox = stack.enter_context(Sandbox(limits=PATIENT, tier=tier))
            with sandbox.session() as session:
                session.run("1")
        except (SandboxError, Ended) as error:
            return [Probe("start", False, complaint(sandbox) or str(error) if isinstance(error, Ended) else str(error))]
        finally:
            del os.environ["AUTOGRADE_CANARY"]
        found = [Probe("start", True, "a sandbox starts")]
        for attempt in FROM_INSIDE:
            found += _from_inside([attempt], host, sandbox)
        found.append(_whole(survivors, host, sandbox))
        sandbox.limits = LIMITS
        return [*found, _whole(clock, host, sandbox)]


def quick(sandbox):
    """The few that are tried before every grading, in a sandbox that has started."""
    with Host() as host:
        return _from_inside(QUICK, host, sandbox)


def _from_inside(attempts, host, sandbox):
    """These attempts, one after the other in one session."""
    found = []
    with sandbox.session() as session:
        for attempt in attempts:
            try:
                held, detail = attempt(host, lambda cell: _printed(session.run(cell)))
            except Ended as error:
                held, detail = False, complaint(sandbox) or f"the attempt did not come to its end: {error}"
            found.append(Probe(attempt.__name__, held, detail))
    return found


def _whole(attempt, host, sandbox):
    try:
        return Probe(attempt.__name__, *attempt(host, sandbox))
    except Ended as error:
        return Probe(attempt.__name__, False, f"the attempt did not come to its end: {error}")


def _printed(outputs):
    return "".join(output.get("text", "") for output in outputs if output.output_type == "stream")


def complaint(sandbox):
    """What the warm process or a child that got no walls wrote about it."""
    stream = sandbox._process.stderr
    if stream.closed:
        return ""
    os.set_blocking(stream.fileno(), False)
    text = (stream.read() or b"").decode(errors="replace").strip()
    return text.splitlines()[-1][-400:] if text else ""
