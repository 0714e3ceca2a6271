"""The grading sandbox: what submitted code can do in there, and what it cannot."""

import contextlib
import os
import platform
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from autograde.course import ROOT
from autograde.sandbox import Ended, Limits, Sandbox
from autograde.walls import SandboxError
from utils.checks import EXERCISES
from utils.checks.verdict import Exam, judged
from utils.observe import codec

LIMITS = Limits(cell=8.0, notebook=60.0)
GOOD = """
import torch

def causal_mask(q_len, kv_len=None):
    kv_len = q_len if kv_len is None else kv_len
    return torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)
"""


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(limits=LIMITS) as running:
        yield running


def passes(session, name="causal_mask"):
    """Judge, out here, what the child claims about the visible cases."""
    exam = Exam(EXERCISES[name], EXERCISES[name].visible, seed=7)
    requests = (codec.encode(vars(exam.request(case))) for case in exam.cases)
    return judged(exam, session.observe(name, requests)).passed


def printed(session, source):
    return "".join(output.get("text", "") for output in session.run(source))


def test_honest_work_is_judged_as_it_is_outside(sandbox):
    """Do cells run, show their outputs, and pass their check?"""
    with sandbox.session() as session:
        assert session.run(GOOD) == []
        kinds = [output.output_type for output in session.run("%time print('hello')\ncausal_mask(2)")]
        assert kinds == ["stream", "execute_result"]
        assert session.run("1/0")[0].ename == "ZeroDivisionError"
        assert session.run("def broken(:")[0].ename == "SyntaxError"
        assert passes(session)
    assert 0 < session.cpu_seconds < 30


def test_a_lesson_finds_what_it_imports(sandbox):
    """Are the course's own modules there, without the checks and the twins?"""
    with sandbox.session() as session:
        assert printed(session, "from utils import check, notes, plots, widgets\nprint(check(3, points=2))") == "None\n"
        assert session.run("import utils.oracle")[0].ename == "ModuleNotFoundError"
        assert session.run("import utils.checks.core")[0].ename == "ModuleNotFoundError"


GATHERED = """
from autograde.inside import _in_large_pages
def large():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("AnonHugePages"))
kept = list(range(10**6))
before = large()
_in_large_pages()
print(sum(kept) == 499999500000, large() - before)
"""


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="no large pages in this kernel")
def test_memory_is_gathered_for_cheap_forks():
    """Does the warm process hold the same things in large pages, of which a fork copies few entries?"""
    told = subprocess.run([sys.executable, "-c", GATHERED], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    same, gathered = told.split()
    since = tuple(int(part) for part in platform.release().split(".")[:2])
    assert same == "True" and (int(gathered) > 10_000 or since < (6, 1))  # kB; 10**6 ints take 40 MB


def test_figures_and_text_are_captured(sandbox):
    """Do a learner's pictures come out as display data, and of a lesson's, which cost time, their words?"""
    lessons = "from utils import plots\nfrom utils.lesson import show\nimport torch\n"
    lessons += "show(plots.row_of_weights(torch.ones(2) / 2, ['a', 'b'], 'a'), 'two bars')"
    with sandbox.session() as session:
        outputs = session.run(lessons) + session.run("import matplotlib.pyplot as plt\nplt.plot([1, 2]);")
    assert [output.output_type for output in outputs] == ["display_data"] * 2
    assert outputs[0].data == {"text/plain": "[picture] two bars"} and "image/png" in outputs[1].data


LEAKS = {
    "the course": f"import os; print(os.path.exists({os.path.abspath('solutions')!r}))",
    "hidden cases": f"import os; print(os.path.exists({os.path.abspath('autograde')!r}))",
    "other processes": "import os; print(bool(os.listdir('/proc')))",
    "users": "import os; print(os.path.exists('/etc/passwd') or os.path.exists('/home'))",
    "the environment": "import os; print('SECRET_CANARY' in os.environ)",
    "another submission's files": "import os; print(os.path.exists('left_behind'))",
}


@pytest.mark.parametrize("what", LEAKS)
def test_nothing_is_to_be_seen(sandbox, what):
    """Is none of these visible inside?"""
    with sandbox.session() as session:
        session.run("open('left_behind', 'w').write('x')")
    with sandbox.session() as session:
        assert printed(session, LEAKS[what]) == "False\n"


def test_there_is_no_network(sandbox):
    """Can a child reach a listener on this very machine?"""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with sandbox.session() as session:
            outputs = session.run(f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=2)")
        assert outputs[0].output_type == "error"


@pytest.mark.parametrize("place", ["/usr/bad", "/course/utils/lesson.py", "/course/inside.py", "/tmp/bad", "/bad"])
def test_nothing_can_be_written_elsewhere(sandbox, place):
    """Is every place but the child's own read-only, also after mounting over it?"""
    with sandbox.session() as session:
        assert session.run(f"open({place!r}, 'a').write('x')")[0].output_type == "error"
        mount = f"import ctypes; print(ctypes.CDLL(None).mount(None, {place.encode()!r}, b'tmpfs', 0, None))"
        assert printed(session, mount) == "-1\n"


LETHAL = {
    "an endless loop": "import signal; signal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: pass",
    "os._exit": "import os; os._exit(0)",
    "killing everyone": "import os\ntry: os.kill(-1, 9)\nfinally: os._exit(1)",
    "a segmentation fault": "import ctypes; ctypes.string_at(0)",
    "closing every descriptor": "import os; os.closerange(3, 200)",
    "garbage on the line": """
import os
for fd in range(3, 50):
    try:
        os.write(fd, b"x" * 64)
    except OSError:
        pass
""",
}


@pytest.mark.parametrize("what", LETHAL)
def test_a_lethal_cell_ends_its_own_child_only(sandbox, what):
    """Is the end noticed in bounded time, and is the next submission graded as if nothing had been?"""
    start = time.monotonic()
    with sandbox.session() as session:
        session.run(GOOD)
        with pytest.raises(Ended):
            session.run(LETHAL[what])
            session.run("print(1)")
    assert time.monotonic() - start < 3 * LIMITS.cell
    with sandbox.session() as session:
        session.run(GOOD)
        assert passes(session)


STOPS = {
    "its group": "os.kill(0, signal.SIGSTOP)",
    "all it sees": "os.kill(-1, signal.SIGSTOP)",
    "its parent": "os.kill(os.getppid(), signal.SIGSTOP)",
}


@pytest.mark.parametrize("what", STOPS)
def test_no_signal_reaches_the_warm_process(sandbox, what):
    """Does SIGSTOP, to whatever a cell can name, leave the process alone that all submissions come from?"""
    process = sandbox._process
    with sandbox.session() as session:
        session.run("import os, signal")
        with contextlib.suppress(Ended):
            session.run(STOPS[what])
    with sandbox.session() as session:
        session.run(GOOD)
        assert passes(session)
    assert sandbox._process is process


def test_a_start_that_takes_too_long_is_called_so(monkeypatch):
    """Is a machine that is merely too busy not told that its sandbox is broken?"""
    monkeypatch.setattr("autograde.sandbox.START", 0.01)
    with pytest.raises(SandboxError, match="no answer within 0.01 s; is this machine very busy?"):
        Sandbox().__enter__()


def test_a_warm_process_that_hangs_is_replaced(monkeypatch):
    """If it answers no more, whatever the reason, does the next submission get another one?"""
    monkeypatch.setattr("autograde.sandbox.FINISH", 1)
    with Sandbox(limits=Limits(cell=1)) as own:
        with own.session() as session:
            inside = psutil.Process(own._process.pid).children(recursive=True)
            min((process for process in inside if "python" in process.name()), key=lambda one: one.pid).suspend()
        with own.session() as session:
            session.run(GOOD)
            assert passes(session)


def test_a_slow_cell_is_stopped_and_the_rest_goes_on(sandbox):
    """Does a cell over its time lose nothing but itself?"""
    with Sandbox(limits=Limits(cell=0.5)) as quick, quick.session() as session:
        session.run(GOOD)
        assert session.run("while True: pass")[0].traceback == ["This cell was stopped after 0.5 s."]
        assert printed(session, "print(causal_mask(1).item())") == "True\n"


HUNGRY = {
    "memory": "x = bytearray(64 * 2**30)",
    "disk": "open('big', 'wb').write(bytes(200 * 2**20))",
    "nameless files": "import os\nos.memfd_create('x')",
    "processes": "import os, time\nfor _ in range(500):\n    if os.fork() == 0: time.sleep(60); os._exit(0)",
}


@pytest.mark.parametrize("what", HUNGRY)
def test_greed_meets_its_limit(sandbox, what):
    """Does asking for too much give an error, and nothing worse?"""
    with sandbox.session() as session:
        assert session.run(HUNGRY[what])[0].output_type == "error"


MANY = """
import os, time
for _ in range(6):
    if os.fork() == 0:
        hoard = bytearray(b"x") * 2**28
        time.sleep(20)
        os._exit(0)
time.sleep(20)
"""


def test_many_processes_share_one_limit_on_memory():
    """Is a submission whose processes together take too much ended and told so, and the next one served?"""
    with Sandbox(limits=Limits(together=2**30)) as small:
        with small.session() as session, pytest.raises(Ended, match="more than 1 GiB of memory together"):
            session.run(MANY)
        with small.session() as session:
            session.run(GOOD)
            assert passes(session)


def test_forks_that_share_their_memory_are_not_greedy():
    """Do twenty objects that are kept count but little, though each has a process of its own?"""
    with Sandbox(limits=Limits(together=2**28)) as small, small.session() as session:
        session.run(GOOD)
        for _ in range(20):
            session.keep("causal_mask")
        assert passes(session) and not session.run("import time; time.sleep(1)")


def all_processes():
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout


def becomes(true):
    """Is it so within five seconds?"""
    end = time.monotonic() + 5
    while not true() and time.monotonic() < end:
        time.sleep(0.05)
    return true()


def test_nothing_outlives_the_session(sandbox):
    """Is a process that detached itself gone when the session ends?"""
    cell = "import os\nif os.fork() == 0:\n    os.setsid()\n    os.execv('/bin/sh', ['sh', '-c', 'sleep 97531; true'])"
    with sandbox.session() as session:
        session.run(cell)
        assert becomes(lambda: "97531" in all_processes())
    assert becomes(lambda: "97531" not in all_processes())


def test_a_flood_of_output_is_cut(sandbox):
    """Does printing without end cost bounded memory out here?"""
    with sandbox.session() as session:
        text = printed(session, "print('x' * 30_000_000)")
    assert 0 < len(text) <= 200_000


def test_a_lethal_answer_costs_one_exercise(sandbox):
    """If observing one exercise kills its fork, does the next one still get its points?"""
    with sandbox.session() as session:
        session.run(GOOD + "\ndef padding_mask(pad_mask):\n    import os\n    os._exit(3)\n")
        assert not passes(session, "padding_mask")
        assert passes(session)


def test_a_name_that_is_not_there_is_an_answer_like_any_other(sandbox):
    """Is an exercise that was never defined judged as wrong, without an end?"""
    with sandbox.session() as session:
        assert not passes(session, "causal_mask")
