"""Sabotage: the grader, the machine and the others are to come to harm.

One exercise is solved. Where an honest learner might have made the mistake, it must keep its points.
"""

from tests.range.attack import code

SOLVED = ("causal_mask",)
MARKED = (
    "import ctypes\nctypes.CDLL(None).prctl(15, b'@MARK@', 0, 0, 0)\n"  # what this process and its forks are called
)


def harm(name, goal, after="", **options):
    code("sabotage", name, goal, after=after, **({"solved": SOLVED} | options))


def malice(name, goal, after="", **options):
    """Nothing that happens by mistake: what becomes of the points is the author's own affair."""
    harm(name, goal, after, free=SOLVED, **options)


# ---- without end -----------------------------------------------------------------------------------------------------

harm("endless-cell", "a cell that never ends", "while True:\n    pass", quick=True)
harm(
    "endless-answer",
    "two exercises that never end",
    answers={
        "padding_mask": "def padding_mask(pad_mask):\n    while True:\n        pass",
        "sdpa": "def sdpa(*args, **options):\n    while True:\n        pass",
    },
)
malice(
    "endless-and-deaf",
    "a cell that never ends, swallows every exception and ignores every signal",
    """
import signal
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
""",
)
harm("endless-in-c", "a cell that never comes back from C", "sum(range(10**15))")
harm(
    "endless-repr",
    "the repr of a cell's last value never ends",
    "class Endless:\n    def __repr__(self):\n        while True:\n            pass\nEndless()",
)
harm(
    "endless-answer-repr",
    "an answer, a parameter and an exception whose texts never end",
    """
class Endless(Exception):
    def __repr__(self):
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass
    __str__ = __repr__
""",
    answers={
        "padding_mask": "def padding_mask(pad_mask):\n    return Endless()",
        "softmax_jacobian": "def softmax_jacobian(probs):\n    raise Endless()",
    },
)
harm(
    "endless-del",
    "garbage that never lets itself be collected",
    "class Endless:\n    def __del__(self):\n        while True:\n            pass\nx = Endless()\ndel x",
)
harm(
    "endless-at-exit",
    "Python never ends: at exit, threads that are waited for",
    """
import atexit, threading, time
def wait():
    while True:
        time.sleep(1)
atexit.register(wait)
threading.Thread(target=wait).start()
""",
)
harm("endless-input", "a cell that waits for an answer from the keyboard", "name = input('Who are you?')\nprint(name)")

# ---- greed -----------------------------------------------------------------------------------------------------------

harm(
    "memory-cell",
    "64 GiB in one piece, then as many as there are",
    "x = bytearray(64 * 2**30)\ny = [bytes(2**28)] * 99",
)
harm(
    "memory-bomb",
    "memory in small pieces until there is none",
    "hoard = []\nwhile True:\n    hoard.append(bytearray(b'x') * 2**25)",
)
malice(
    "memory-bomb-of-many",
    "several processes, each with a gigabyte",
    MARKED
    + """
import os, time
for _ in range(12):
    if os.fork() == 0:
        hoard = bytearray(b"x") * 2**30
        time.sleep(20)
        os._exit(0)
time.sleep(5)
""",
)
malice(
    "memory-in-files",
    "memory in files that have no name, which no limit on address space counts",
    MARKED
    + """
import os, time
for _ in range(4):
    if os.fork() == 0:
        hoard = [os.memfd_create("@MARK@") for _ in range(200)]
        for file in hoard:
            os.write(file, bytes(15 * 2**20))
        time.sleep(20)
        os._exit(0)
time.sleep(5)
""",
)
harm(
    "memory-in-an-answer",
    "a huge tensor as the answer",
    answers={"padding_mask": "def padding_mask(pad_mask):\n    return torch.zeros(2, 1, 1, 2**27, dtype=torch.bool)"},
)
malice(
    "fork-bomb",
    "every process makes two more",
    MARKED + "import os, time\nend = time.time() + 10\nwhile time.time() < end:\n    try:\n        os.fork()\n"
    "    except OSError:\n        time.sleep(0.1)",
)
malice(
    "thread-bomb",
    "ten thousand threads",
    "import threading, time\nfor _ in range(10_000):\n    threading.Thread(target=time.sleep, args=(30,)).start()",
)
harm(
    "disk-bomb",
    "a file that fills the disk, in every place there is",
    """
import os
for folder in (".", "/tmp", "/dev/shm", "/var/tmp", "@ROOT@", os.path.expanduser("~")):
    try:
        with open(os.path.join(folder, "@MARK@-big"), "wb") as file:
            for _ in range(2_000):
                file.write(bytes(2**20))
    except OSError as error:
        print(folder, error)
""",
)
malice(
    "inode-bomb",
    "files without number",
    "import os\nfor i in range(300_000):\n    open(f'@MARK@-{i}', 'w').close()",
)
harm(
    "descriptor-bomb",
    "files are opened and never closed",
    "import os\nhoard = []\nwhile True:\n    hoard.append(os.open('/dev/null', 0))",
)
harm(
    "text-flood", "half a gigabyte of text", "line = 'x' * 99 + '\\n'\nfor _ in range(5_000):\n    print(line * 1_000)"
)
harm(
    "output-flood",
    "outputs without number",
    "for i in range(30_000):\n    display({'text/plain': str(i), 'text/html': '<b>x</b>' * 50}, raw=True)",
)
harm("picture-flood", "a picture of 100 MB", "display({'image/png': 'A' * 10**8}, raw=True)")
harm("repr-flood", "a value whose text has 300 MB", "class Big:\n    __repr__ = lambda self: 'x' * 3 * 10**8\nBig()")
harm(
    "report-flood",
    "names, messages and prints of megabytes inside the check",
    answers={
        "padding_mask": "def padding_mask(pad_mask):\n    print('x' * 10**7)\n"
        "    raise type('N' * 10**6, (ValueError,), {})('y' * 10**8)"
    },
)
harm(
    "deep-output",
    "a display nested a hundred thousand levels deep",
    "deep = []\nfor _ in range(100_000):\n    deep = [deep]\ndisplay({'application/json': deep}, raw=True)",
)

# ---- killing ---------------------------------------------------------------------------------------------------------

harm("exit-now", "Python ends at the first cell", "import os\nos._exit(0)")
harm(
    "exit-in-an-answer",
    "Python ends inside an exercise",
    answers={"sdpa": "import os\ndef sdpa(*a, **b):\n    os._exit(0)"},
)
harm("kill-itself", "SIGKILL, then whatever else ends a process", "import os\nos.kill(os.getpid(), 9)\nos.abort()")
harm("crash", "a segmentation fault", "import ctypes\nctypes.string_at(0)", quick=True)
harm(
    "stack-overflow",
    "recursion without a limit",
    "import sys, json\nsys.setrecursionlimit(10**9)\ndef f(x):\n    return [f(x), json.dumps(x)]\nf(0)",
)
malice("stop-itself", "the process is stopped, not ended", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)")
malice(
    "kill-everyone",
    "every process that may be signalled, the parent first",
    "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\nos.kill(-1, signal.SIGKILL)",
)
malice(
    "kill-the-grader",
    "the grader's processes, found by name",
    """
import os, signal
for pid in range(2, 5000):
    try:
        words = open(f"/proc/{pid}/cmdline").read()
    except OSError:
        words = "?"
    if pid != os.getpid() and ("nbgrader" in words or "autograde" in words or "?" in words):
        try:
            os.kill(pid, signal.SIGTERM)
        except OSError:
            pass
""",
)
malice("close-everything", "every file descriptor is closed", "import os\nos.closerange(0, 4096)")
malice(
    "limits-changed",
    "limits and priorities of the process and its parent",
    """
import os, resource
for name in [name for name in dir(resource) if name.startswith("RLIMIT_")]:
    for pid in (0, os.getppid()):
        try:
            resource.prlimit(pid, getattr(resource, name), (1, 1)) if pid else None
        except (OSError, ValueError):
            pass
os.nice(19)
os.chdir("/")
os.umask(0o777)
""",
)

# ---- staying ---------------------------------------------------------------------------------------------------------

malice(
    "daemon",
    "a process that detaches itself and stays",
    "import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
    "        os.execv('/bin/sh', ['sh', '-c', 'trap \"\" TERM HUP INT; sleep 120; : @MARK@'])\n    os._exit(0)",
    quick=True,
)
malice(
    "listener",
    "a server that stays open",
    MARKED
    + """
import os, socket
if os.fork() == 0:
    os.setsid()
    door = socket.create_server(("127.0.0.1", 0))
    door.settimeout(120)
    try:
        door.accept()
    finally:
        os._exit(0)
""",
)
malice(
    "poisoned-startup",
    "start-up files that break what is run after it",
    """
import os
poison = "import builtins\\nbuiltins.round = lambda *args: 0.0  # @MARK@\\n"
for home in {os.path.expanduser("~"), "@ROOT@/home"}:
    for path in (".ipython/profile_default/startup/00.py", ".local/lib/python3.11/site-packages/usercustomize.py",
                 ".jupyter/jupyter_config.py", ".config/matplotlib/matplotlibrc", ".bashrc", ".pythonrc.py"):
        try:
            os.makedirs(os.path.dirname(os.path.join(home, path)), exist_ok=True)
            open(os.path.join(home, path), "a").write(poison)
        except OSError as error:
            print(error)
""",
)
malice(
    "everything-deleted",
    "whatever can be deleted is",
    "import shutil, os\nfor place in ('@ROOT@', os.path.expanduser('~'), '/tmp', '/dev/shm', '/var/tmp', '/learner'):\n"
    "    shutil.rmtree(place, ignore_errors=True)",
)
malice(
    "doors-closed",
    "every file is made unreadable",
    """
import os
for place, _, names in os.walk("@ROOT@", topdown=False):
    for path in (*(os.path.join(place, name) for name in names), place):
        try:
            os.chmod(path, 0)
        except OSError:
            pass
""",
)
malice(
    "classmates-altered",
    "the others' submissions, grades and feedback are overwritten",
    """
import glob, os
for path in glob.glob("@ROOT@/autograde/*/[amz]-*/*/*.*"):
    try:
        text = open(path).read()
        open(path, "w").write(text.replace("return", "raise ValueError  #").replace("points", "@MARK@ points"))
    except OSError as error:
        print(error)
""",
    quick=True,
)
BOOK = """
import sqlite3
book = sqlite3.connect("@ROOT@/autograde/gradebook.db", timeout=10)
mine = ("select n.id from submitted_notebook n join submitted_assignment a on n.assignment_id = a.id "
        "where a.student_id = ?")
book.execute("update grade set manual_score = {score}, needs_manual_grade = 0 where notebook_id {whose} (" + mine + ")",
             [os.getcwd().split(os.sep)[-2]])
book.commit()
"""
malice(
    "gradebook-of-others",
    "everybody else gets nothing",
    "import os\n" + BOOK.format(score=0, whose="not in"),
)
malice(
    "gradebook-locked",
    "the gradebook is locked for as long as possible",
    "import os, sqlite3, time\nif os.fork() == 0:\n    os.setsid()\n    " + MARKED.replace("\n", "\n    ")
    + "book = sqlite3.connect('@ROOT@/autograde/gradebook.db', isolation_level=None)\n"
    "    book.execute('begin exclusive')\n    time.sleep(120)",
)  # fmt: skip
code(
    "score",
    "gradebook-afterwards",
    "a process waits until the grader is done and then gives itself points",
    after="import os, time\nif os.fork() == 0:\n    os.setsid()\n    " + MARKED.replace("\n", "\n    ")
    + "for _ in range(40):\n        time.sleep(1)\n        try:\n            "
    + BOOK.format(score=2, whose="in").replace("\n", "\n            ")
    + "\n        except Exception:\n            pass\n    os._exit(0)",
)  # fmt: skip
