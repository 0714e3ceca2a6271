"""What runs inside the sandbox: a warm process that only forks, and for each submission a child on its own.

Everything a child says is a claim. The warm process imports what lessons need and never runs submitted code; the child
lives in namespaces of its own, without network, home or capabilities, and dies with all that it started. In the tiers
below "full" (autograde/walls.py) there are no namespaces: lower.py is what stands in for them.
Started by `autograde.sandbox` as a plain script; imports nothing of the course but `utils.observe`
and what lessons show things with.
"""

import contextlib
import ctypes
import gc
import io
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from dataclasses import replace

from utils.observe import Request, answer, codec, forbid, observe
from utils.observe.run import first_optimiser

NOBODY = 65534
HOME = "/learner"  # the one place a child can write to
LIMITS = struct.Struct("<5Q")  # memory, processes, file size, open files, CPU seconds
PATIENCE = 0.2  # seconds that a child has to end by itself

_libc = ctypes.CDLL(None, use_errno=True)
_prctl = getattr(_libc, "prctl", lambda *arguments: 0)  # macOS has none
_NEW = {
    "mount": 0x00020000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
_MS_PRIVATE_ALL, _MS_NOSUID_NODEV = 0x4000 | 0x40000, 0x2 | 0x4
_MADV_COLLAPSE, _LARGE_PAGE = 25, 2**21
PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38


def main(descriptor, tier="full"):
    """Import, then serve: one order at a time, until the control socket of that descriptor closes."""
    import cells  # beside this file, where it runs; so are lower and landlock

    if tier != "full":
        import lower

        lower.prepare(NOBODY)
    else:
        import landlock

        if os.getuid() == 0:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        with contextlib.suppress(OSError):  # no libseccomp: should memory run out, the kernel still ends this first
            landlock.count_memory()
    cells.prepare()
    warm_up()
    _prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    control = socket.socket(fileno=int(descriptor))
    control.send(b"ready")
    while True:
        order, fds, _, _ = socket.recv_fds(control, LIMITS.size, 1)
        if not order:
            return
        if tier != "full":
            lower.fresh()
        pid = os.fork()
        if pid == 0:
            control.close()
            _first_child(socket.socket(fileno=fds[0]), LIMITS.unpack(order), tier)
        os.close(fds[0])
        control.recv(1)  # "that is enough": whatever still runs is ended
        _end(pid)
        _, _, used = os.wait4(pid, 0)
        if tier != "full":
            lower.finish(pid)
        control.send(struct.pack("<d", used.ru_utime + used.ru_stime))


def _end(pid):
    """Kill a child and all that it started, unless it ends by itself at once: only then is its CPU time known."""
    if sys.platform != "linux":
        time.sleep(PATIENCE)
        return os.kill(pid, signal.SIGKILL)
    ended = os.pidfd_open(pid)
    if not select.select([ended], [], [], PATIENCE)[0]:
        os.kill(pid, signal.SIGKILL)
    os.close(ended)


def warm_up():
    """Import what notebooks use, once, in one thread, and take one gradient: torch loads parts of itself lazily."""
    import torch
    from matplotlib.figure import Figure

    from utils import lesson, notes, plots, widgets  # noqa: F401

    torch.set_num_threads(1)
    figure = Figure()  # the first picture of a process loads fonts
    figure.add_subplot(title="$x$ y").plot([0, 1])
    figure.savefig(io.BytesIO(), format="png")
    calls, ups = [{"args": {"x": torch.ones(2, 3)}, "options": {}}], [[torch.ones(2, 3)]]
    for watch in (False, True):  # the bans import much at their first use
        request = Request("function", "", calls, cotangents=ups, bans=list(forbid.BANS), watch=watch)
        observe(lambda x: (x @ x.mT).softmax(-1) @ x, replace(request, bans=[]))
        observe(lambda x: x * x.sum(), request)
    first_optimiser()
    if sys.platform == "linux" and len(os.listdir("/proc/self/task")) > 1:
        raise RuntimeError("a second thread is running: what is forked from here could hang")
    gc.collect()
    gc.freeze()  # a child that collects garbage need not copy what it shares with this process
    _in_large_pages()


def _in_large_pages():
    """Gather this process's memory in pages of 2 MiB, where the kernel can (Linux 6.1): a fork then costs half."""
    if sys.platform != "linux":
        return
    with open("/proc/self/maps") as file:
        lines = file.read().splitlines()
    for line in lines:
        place, rights, _, _, inode, *_ = line.split()
        begin, end = (int(address, 16) for address in place.split("-"))
        begin += -begin % _LARGE_PAGE
        if rights == "rw-p" and inode == "0" and end - begin >= _LARGE_PAGE:
            _libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_COLLAPSE)  # it may refuse


# ---- the walls -----------------------------------------------------------------------------------


def _first_child(line, limits, tier):
    """Enter new namespaces, then fork the one process that is number 1 in them; when this one dies, all die."""
    try:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if tier != "full":
            _wall_off_without_namespaces(limits, tier)
            serve(line)
        os.setsid()  # a signal to one's own group crosses the border of a pid namespace
        _prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # or its own uid_map would belong to root
        _first_to_go()
        uid, gid = os.getuid(), os.getgid()
        _must(_libc.unshare(sum(_NEW.values())), "unshare")
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        pid = os.fork()
        if pid == 0:
            _prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            os.setsid()
            _wall_off(limits)
            serve(line)
        line.close()
        os.waitpid(pid, 0)
    except Exception as error:
        os.write(2, f"no walls: {error}\n".encode())  # `autograde doctor` reads it
    finally:
        os._exit(0)


def _wall_off(limits):
    _must(_libc.mount(None, b"/", None, _MS_PRIVATE_ALL, None), "private mounts")
    for place, size in (
        (HOME.encode(), b"size=64m"),
        (b"/proc", b"size=4k"),
        (b"/dev/shm", b"size=16m"),
    ):
        _must(_libc.mount(b"tmpfs", place, b"tmpfs", _MS_NOSUID_NODEV, size), f"tmpfs on {place.decode()}")
    os.chdir(HOME)
    _limit(limits)
    for capability in range(64):
        _prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    header, data = struct.pack("<Ii", 0x20080522, 0), bytes(24)
    _must(_libc.capset(header, data), "capset")
    _must(_prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")


def _wall_off_without_namespaces(limits, tier):
    import lower

    _limit(limits, lower.running())
    lower.wall_off(tier)


def _fall_silent():
    """Close the warm process's own streams: nobody reads them."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def _first_to_go():
    """Should memory run out, let the kernel end this process, and no other of this machine."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _limit(limits, running=0):
    """running: processes that count, too, though they are not the child's."""
    memory, processes, file_size, files, cpu = limits
    os.nice(10)  # whoever judges, or serves other people on this machine, goes first
    for what, limit in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_NPROC, processes + running),
        (resource.RLIMIT_FSIZE, file_size),
        (resource.RLIMIT_NOFILE, files),
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_CORE, 0),
    ):
        if sys.platform == "linux" or what not in (resource.RLIMIT_AS, resource.RLIMIT_NPROC):  # macOS cannot
            resource.setrlimit(what, (limit, limit))


def _must(result, what):
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


# ---- a submission's own process ------------------------------------------------------------------


def serve(line):
    """Run cells, keep objects, have them observed, as asked, until the line closes. Nothing here is to be trusted."""
    import cells

    shell, kept = cells.shell(), {}
    _fall_silent()
    while True:
        body = receive_bytes(line)
        if body is None:
            os._exit(0)
        asked = codec.decode(body) if body else {}
        name = asked.get("name")
        if asked.get("do") == "run":
            send(line, cells.run(shell, asked["source"], asked["seconds"]))
        elif asked.get("do") == "keep" and name in shell.user_ns:
            with contextlib.suppress(OSError):  # no room for one more process: then it is asked as it is in the end
                kept[name] = _keep(line, shell.user_ns[name])
        elif asked.get("do") == "observe":
            _let_answer(line, kept.pop(name, None) or _keep(line, shell.user_ns.get(name, _missing(name))))
        # anything else was meant for a fork that died before it came


def _missing(name):
    """Stands for a name that the notebook never defined."""

    def missing(*args, **options):
        raise NameError(f"{name} is not defined: no cell of this notebook built it")

    return missing


def _keep(line, obj):
    """Fork a process that waits with the notebook as it is now. Returns its number; SIGUSR1 wakes it.

    What it breaks or learns stays there, and no cell that runs later can be told of it. It needs no descriptor: a
    notebook may have used up its own.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    pid = os.fork()
    if pid == 0:
        try:
            signal.sigwait({signal.SIGUSR1})
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            while message := receive_bytes(line):
                send_bytes(line, answer(obj, message))
        finally:
            os._exit(0)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def _let_answer(line, pid):
    """Let that process answer requests until it gets an empty one."""
    with contextlib.suppress(OSError):  # a cell has ended it, or waited for it
        os.kill(pid, signal.SIGUSR1)
        os.waitpid(pid, 0)
    send_bytes(line, b"")


# ---- the line ------------------------------------------------------------------------------------


def send(line, value):
    """One message in the codec's language."""
    send_bytes(line, codec.encode(value))


def send_bytes(line, body):
    """One message as it is: its length, then its bytes."""
    line.sendall(len(body).to_bytes(8, "little") + body)


def receive_bytes(line, until=None):
    """The next message's bytes, or None when the line is closed. `until`: a time.monotonic() that ends the waiting.

    Raises TimeoutError, and codec.CodecError for a message that is too long to be one.
    """
    head = _exactly(line, 8, until)
    if head is None:
        return None
    length = int.from_bytes(head, "little")
    if length > codec.MAX_BYTES:
        raise codec.CodecError(f"a message of {length} bytes is over the limit")
    return _exactly(line, length, until)


def _exactly(line, count, until):
    parts = []
    while count:
        if until is not None:
            line.settimeout(max(0.001, until - time.monotonic()))
        part = line.recv(min(count, 1 << 20))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
