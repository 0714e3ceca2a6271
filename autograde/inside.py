"""What runs inside the sandbox: a warm process that only forks, and for each submission a child on its own.

Everything a child says is a claim. The warm process imports what lessons need and never runs submitted code; the child
lives in namespaces of its own, without network, home or capabilities, and dies with all that it started.
Started by `autograde.sandbox` as a plain script; imports nothing of the course but `utils.observe`.
"""

import ctypes
import os
import resource
import signal
import socket
import struct
import sys

from utils.observe import Request, codec, observe

NOBODY = 65534
HOME = "/learner"  # the one place a child can write to
LIMITS = struct.Struct("<5Q")  # memory, processes, file size, open files, CPU seconds

_libc = ctypes.CDLL(None, use_errno=True)
_NEW = {
    "mount": 0x00020000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
_MS_PRIVATE_ALL, _MS_NOSUID_NODEV = 0x4000 | 0x40000, 0x2 | 0x4
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38


def main(descriptor):
    """Import, then serve: one order at a time, until the control socket of that descriptor closes."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    warm_up()
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    control = socket.socket(fileno=int(descriptor))
    control.send(b"ready")
    while True:
        order, fds, _, _ = socket.recv_fds(control, LIMITS.size, 1)
        if not order:
            return
        pid = os.fork()
        if pid == 0:
            control.close()
            _first_child(socket.socket(fileno=fds[0]), LIMITS.unpack(order))
        os.close(fds[0])
        control.recv(1)  # "that is enough": whatever still runs is ended
        os.kill(pid, signal.SIGKILL)
        _, _, used = os.wait4(pid, 0)
        control.send(struct.pack("<d", used.ru_utime + used.ru_stime))


def warm_up():
    """Import what notebooks use, once, in one thread, and take one gradient: torch loads parts of itself lazily."""
    import matplotlib
    import torch

    matplotlib.use("Agg")
    import matplotlib.figure  # noqa: F401
    from IPython.core.interactiveshell import InteractiveShell  # noqa: F401

    torch.set_num_threads(1)
    x = torch.ones(2, 2, dtype=torch.float64, requires_grad=True)
    torch.autograd.grad((x @ x).softmax(-1).sum(), x)
    observe(lambda x: x * 2, Request("function", "", [{"args": {"x": torch.ones(2)}, "options": {}}]))


# ---- the walls -----------------------------------------------------------------------------------


def _first_child(line, limits):
    """Enter new namespaces, then fork the one process that is number 1 in them; when this one dies, all die."""
    try:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # or its own uid_map would belong to root
        uid, gid = os.getuid(), os.getgid()
        _must(_libc.unshare(sum(_NEW.values())), "unshare")
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        pid = os.fork()
        if pid == 0:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            _wall_off(limits)
            serve(line)
        line.close()
        os.waitpid(pid, 0)
    finally:
        os._exit(0)


def _wall_off(limits):
    memory, processes, file_size, files, cpu = limits
    _must(_libc.mount(None, b"/", None, _MS_PRIVATE_ALL, None), "private mounts")
    for place, size in (
        (HOME.encode(), b"size=64m"),
        (b"/proc", b"size=4k"),
        (b"/dev/shm", b"size=16m"),
    ):
        _must(_libc.mount(b"tmpfs", place, b"tmpfs", _MS_NOSUID_NODEV, size), f"tmpfs on {place.decode()}")
    os.chdir(HOME)
    for what, limit in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_FSIZE, file_size),
        (resource.RLIMIT_NOFILE, files),
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (limit, limit))
    for capability in range(64):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    header, data = struct.pack("<Ii", 0x20080522, 0), bytes(24)
    _must(_libc.capset(header, data), "capset")
    _must(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")


def _must(result, what):
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


# ---- a submission's own process ------------------------------------------------------------------


def serve(line):
    """Run cells and observe objects as asked, until the line closes. From here on, nothing is to be trusted."""
    shell = _shell()
    while True:
        asked = receive(line)
        if asked is None:
            os._exit(0)
        if asked["do"] == "run":
            send(line, _run(shell, asked["source"]))
        else:
            _in_a_fork(
                line,
                lambda asked=asked: observe(shell.user_ns.get(asked["name"], Missing), Request(**asked["request"])),
            )


class Missing:
    """Stands for a name that the notebook never defined."""


def _in_a_fork(line, work):
    """Let a fork answer, so that what one observation breaks or learns stays there."""
    pid = os.fork()
    if pid == 0:
        try:
            send(line, {"seen": work()})
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    send(line, {"end": True})


def _shell():
    from IPython.core.interactiveshell import InteractiveShell

    os.environ.update(NBGRADER_EXECUTION="autograde", HOME=HOME, TMPDIR=HOME, IPYTHONDIR=HOME)
    shell = InteractiveShell.instance(colors="nocolor")
    shell.history_manager.enabled = False
    shell.showtraceback = shell.showsyntaxerror = lambda *args, **options: None  # _run reports errors itself
    return shell


def _run(shell, source):
    """One cell's outputs, as nbformat has them: stream, display_data, execute_result, error."""
    from IPython.utils.capture import capture_output

    outputs, values = [], []
    shell.display_trap.hook = values.append  # the cell's last value
    with capture_output() as page:
        result = shell.run_cell(source, store_history=False)
    for name, text in (("stdout", page.stdout), ("stderr", page.stderr)):
        if text:
            outputs.append({"output_type": "stream", "name": name, "text": text[:MAX_TEXT]})
    for shown in page.outputs:
        outputs.append({"output_type": "display_data", "data": _small(shown.data), "metadata": {}})
    for value in values:
        if value is not None:
            data = _small(shell.display_formatter.format(value)[0])
            outputs.append({"output_type": "execute_result", "data": data, "metadata": {}, "execution_count": None})
    error = result.error_before_exec or result.error_in_exec
    if error is not None:
        lines = getattr(error, "_render_traceback_", lambda: [f"{type(error).__name__}: {error}"])()
        outputs.append(
            {
                "output_type": "error",
                "ename": type(error).__name__,
                "evalue": str(error)[:MAX_TEXT],
                "traceback": [str(text)[:MAX_TEXT] for text in lines][:50],
            }
        )
    return {"outputs": outputs}


MAX_TEXT = 100_000  # characters of text, MAX_SHOWN of a picture, kept of each output
MAX_SHOWN = 4_000_000


def _small(data):
    return {str(kind): text for kind, text in data.items() if isinstance(text, str) and len(text) <= MAX_SHOWN}


# ---- the line ------------------------------------------------------------------------------------


def send(line, value):
    """One message: its length, then the codec's bytes."""
    message = codec.encode(value)
    line.sendall(len(message).to_bytes(8, "little") + message)


def receive(line):
    """The next message, or None when the line is closed. Raises codec.CodecError for what is none."""
    head = _exactly(line, 8)
    if head is None:
        return None
    length = int.from_bytes(head, "little")
    if length > codec.MAX_BYTES:
        raise codec.CodecError(f"a message of {length} bytes is over the limit")
    body = _exactly(line, length)
    return None if body is None else codec.decode(body)


def _exactly(line, count):
    parts = []
    while count:
        part = line.recv(min(count, 1 << 20))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
