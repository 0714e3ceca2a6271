"""The walls: what is staged for the inside, the command of each tier, and the walls that need no namespaces."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from autograde import landlock, lower, walls
from autograde.course import ROOT
from autograde.probes import quick
from autograde.repair import SandboxError
from autograde.sandbox import Limits, Sandbox

LIMITS = Limits(cell=30.0, notebook=120.0)
TWINS = {
    "phase1.py": "__all__ = ['one']\ndef one():\n    return 'twin of one'\n",
    "phase2.py": "__all__ = ['two']\nfrom utils.oracle.phase1 import one\ndef two():\n    return one() + ' and two'\n",
    "phase2_tables.py": "__all__ = ['table']\ndef table():\n    return 'twin of table'\n",
    "phase3/__init__.py": "from utils.oracle.phase3.parts import three\n__all__ = ['three']\n",
    "phase3/parts.py": "def three():\n    return 'twin of three'\n",
    "phase10.py": "__all__ = ['ten']\ndef ten():\n    return 'twin of ten'\n",
    "fixtures.txt": "not a module",
}


@pytest.fixture
def course(tmp_path):
    """A course of which only utils/ matters, with twins of several phases."""
    root = tmp_path / "course"
    (root / "utils").mkdir(parents=True)
    for name in walls.STAGED:
        copy = shutil.copytree if (ROOT / "utils" / name).is_dir() else shutil.copy
        copy(ROOT / "utils" / name, root / "utils" / name)
    for name, text in TWINS.items():
        path = root / "utils" / "oracle" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def staged(tmp_path, phase, root):
    stage = tmp_path / "stage"
    stage.mkdir()
    walls.fill(stage, phase, root)
    return stage


# ---- what is staged ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "twins"),
    [
        (None, []),
        ("phase1_first", []),
        ("start_here", []),
        ("phase2_attention", ["phase1.py"]),
        ("phase3_multi_head", ["phase1.py", "phase2.py", "phase2_tables.py"]),
        ("phase4_blocks", ["phase1.py", "phase2.py", "phase2_tables.py", "phase3/__init__.py", "phase3/parts.py"]),
    ],
)
def test_only_twins_of_earlier_phases_are_staged(tmp_path, course, phase, twins):
    """Does a phase get the twins of the phases before it, however many files they have, and no other?"""
    oracle = staged(tmp_path, phase, course) / "utils" / "oracle"
    found = {str(path.relative_to(oracle)) for path in oracle.rglob("*.py")}
    assert found == ({"__init__.py", *twins} if twins else set())


def test_phases_are_ordered_by_number_not_by_letters(course):
    """Does phase 10 come after phase 2, and does phase 11 get it?"""
    assert "phase10.py" not in [path.name for path in walls.earlier_twins("phase3_x", course)]
    names = [path.name for path in walls.earlier_twins("phase11_x", course)]
    assert names == ["phase1.py", "phase2.py", "phase2_tables.py", "phase3", "phase10.py"]


def test_mine_gives_an_earlier_twin_and_no_other(tmp_path, course):
    """Does mine("…") work beside submitted code, for earlier phases alone?"""
    stage = staged(tmp_path, "phase3_multi_head", course)
    cell = "from utils.mycode import mine\nprint(mine('two')(), mine('table')())\nmine('three')"
    here = {"PYTHONPATH": str(stage), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", cell], env=here, cwd=stage, capture_output=True, text=True)
    assert done.stdout == "twin of one and two twin of table\n"
    assert "LookupError: the course's own three is not part of this release" in done.stderr


def test_what_is_staged_is_as_little_as_it_can_be(tmp_path):
    """Is nothing staged of the real course but what notebooks import: no checks, no workspace, no hidden cases?"""
    stage = staged(tmp_path, "phase2_attention", ROOT)
    expected = {"inside.py", "cells.py", "lower.py", "landlock.py", "utils/mycode.py", "utils/checks/__init__.py"}
    expected |= {"utils/oracle/__init__.py", "utils/oracle/phase1.py"}  # what an earlier phase has built
    for name in walls.STAGED:
        path = ROOT / "utils" / name
        files = [path] if path.is_file() else [one for one in path.rglob("*") if one.suffix == ".py"]
        expected |= {str(one.relative_to(ROOT)) for one in files}
    assert {str(path.relative_to(stage)) for path in stage.rglob("*") if path.is_file()} == expected


@pytest.mark.parametrize("line", ["from utils.checks.core import find", "import utils.oracle.phase3.parts"])
def test_a_twin_that_leans_on_what_is_not_staged_is_refused(tmp_path, course, line):
    """Does a twin that imports checks or a later phase give a clear message instead of points lost?"""
    with (course / "utils" / "oracle" / "phase1.py").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(SandboxError, match=r"utils/oracle/phase1\.py imports utils\."):
        staged(tmp_path, "phase2_attention", course)


# ---- the command ---------------------------------------------------------------------------------


@pytest.mark.parametrize("tier", walls.TIERS)
def test_no_variable_of_the_grader_gets_in(tmp_path, monkeypatch, tier):
    """Does every tier start from an empty environment, and the full one alone with bubblewrap?"""
    monkeypatch.setenv("SECRET_CANARY", "x")
    command = walls.command(tmp_path, 3, tier)
    assert command[:2] == ["/usr/bin/env", "-i"] and not any("CANARY" in word for word in command)
    assert any(word.endswith("bwrap") for word in command) == (tier == "full")


def test_an_unknown_tier_is_refused(tmp_path):
    """Is a slip in the name of a tier an error rather than a lower wall?"""
    with pytest.raises(ValueError, match="no tier 'ful'"):
        walls.command(tmp_path, 3, "ful")


@pytest.fixture
def shown_folder():
    """A course that lies below a folder which is shown inside: Python's own."""
    folder = Path(tempfile.mkdtemp(prefix="course-", dir=Path(sys.prefix) / "share"))
    (folder / "gradebook.db").write_text("secret")
    yield folder
    shutil.rmtree(folder)


def test_a_course_below_what_is_shown_is_covered(tmp_path, shown_folder):
    """Is a course that lies below Python's own folder empty inside, and read-only?"""
    command = walls.command(tmp_path, 3, "full", [shown_folder])
    look = f"ls -A {shown_folder.parent} | grep -c course-; ls -A {shown_folder}; touch {shown_folder}/x"
    start = command.index(sys.executable)
    done = subprocess.run([*command[:start], "/bin/sh", "-c", look], capture_output=True, text=True)
    assert done.stdout == "1\n" and "Read-only file system" in done.stderr


def test_a_course_of_its_own_must_lie_elsewhere(tmp_path, shown_folder):
    """Is grading refused in a course folder that submissions could read, and in no other?"""
    with pytest.raises(SandboxError, match=f"submissions could read {shown_folder}.*move it elsewhere"):
        walls.keep_apart(shown_folder)
    walls.keep_apart(tmp_path)
    walls.keep_apart(ROOT)


def test_python_below_a_covered_course_is_shown_again(monkeypatch):
    """Does a course in /usr keep the environment that stands in it?"""
    monkeypatch.setattr(sys, "prefix", "/usr/local/course/.venv")
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    where = "/usr/local/course"
    assert walls._cover([where]) == (
        ["--tmpfs", where, "--ro-bind", f"{where}/.venv", f"{where}/.venv", "--remount-ro", where]
    )


def test_what_cannot_be_covered_is_refused(tmp_path, monkeypatch, shown_folder):
    """Are the partial tier, a course in Python's own folder, and a home inside Python's refused aloud?"""
    with pytest.raises(SandboxError, match="move the course elsewhere"):
        walls.command(tmp_path, 3, "partial", [shown_folder])
    with pytest.raises(SandboxError, match="give Python a folder of its own"):
        walls.command(tmp_path, 3, "full", [sys.prefix])
    monkeypatch.setattr(Path, "home", lambda: Path(sys.prefix) / "home")
    with pytest.raises(SandboxError, match="holds your home"):
        walls.command(tmp_path, 3, "full")


def test_the_profile_for_macos_opens_no_more_than_is_needed(tmp_path):
    """Does it deny by default, write to the scratch place alone, and have its brackets in order?"""
    lines = walls.profile(tmp_path).splitlines()
    assert lines[1] == "(deny default)" and lines[-1] == "(deny network*)"
    (writable,) = [line for line in lines if "file-write" in line]
    assert writable == f'(allow file-write* (subpath "{tmp_path.resolve() / lower.SCRATCH}") (literal "/dev/null"))'
    assert all(line.count("(") == line.count(")") for line in lines)


# ---- without namespaces --------------------------------------------------------------------------

landlocked = pytest.mark.skipif(landlock.version() < landlock.OLDEST, reason="this kernel has no Landlock")

ATTEMPTS = {
    "read": "open('/etc/passwd').read()",
    "list": "os.listdir('/')",
    "write": f"open({str(ROOT / 'README.md')!r}, 'a')",
    "empty": f"os.open({str(ROOT / 'README.md')!r}, os.O_RDONLY | os.O_TRUNC)",
    "truncate": f"os.truncate({str(ROOT / 'README.md')!r}, 10**9)",
    "a socket": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "a local socket": "socket.socket(socket.AF_UNIX)",
    "owner": "os.chown('own', 0, 0)",
    "attribute": "os.setxattr('own', 'user.x', b'1')",
    "signal": "os.kill(os.getppid(), 0)",
    "limits": "resource.prlimit(os.getppid(), resource.RLIMIT_CPU)",
    "priority": "os.setpriority(os.PRIO_USER, 0, 19)",
    "a namespace": "failed(libc.unshare(0x10000000))",
    "shared memory": "failed(libc.shmget(0, 4096, 0o1600))",
    "an old program": "failed(libc.syscall(101, 16, os.getppid(), 0, 0))",  # ptrace, on x86-64
}
ALLOWED = {
    "its own file": "open('own', 'w').write('x'); os.rename('own', 'own2'); os.rename('own2', 'own')",
    "Python": "import tomllib",
    "a program": "subprocess.run(['ls', '/usr'], check=True, stdout=subprocess.DEVNULL)",
    "copying": "shutil.copy('own', 'copy')",
    "a pair": "socket.socketpair()",
    "null": "open('/dev/null', 'w').write('x')",
    "chance": "open('/dev/urandom', 'rb').read(8)",
}


def tried_inside(home, able):
    """The names of what was refused to a fork behind Landlock as a kernel of that version has it."""
    code = f"""
import ctypes, os, resource, shutil, socket, subprocess, sys
from autograde import landlock, lower
landlock.version = lambda: {able}
libc = ctypes.CDLL(None, use_errno=True)
def failed(result):
    if result < 0: raise OSError
os.chdir({str(home)!r}); open('own', 'w').close()
landlock.confine(lower.readable(), {str(home)!r})
for name, attempt in {ALLOWED | ATTEMPTS!r}.items():
    try:
        exec(attempt)
    except OSError:
        print(name)
"""
    here = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=here, timeout=60)
    assert not done.stderr
    return done.stdout.splitlines()


@landlocked
@pytest.mark.parametrize("able", [3, 4, 5, landlock.version()])
def test_landlock_and_seccomp_refuse_what_is_outside(tmp_path, able):
    """Behind kernels old and new, is every attempt on the outside refused, and is honest work let through?"""
    if os.getuid() == 0:
        tmp_path.chmod(0o777)
    assert tried_inside(tmp_path, able) == list(ATTEMPTS)


def test_a_kernel_with_too_old_a_landlock_is_refused(tmp_path, monkeypatch):
    """Is nothing started behind a Landlock that lets files be emptied?"""
    monkeypatch.setattr(landlock, "version", lambda: 2)
    with pytest.raises(OSError, match="needs Linux 6.2"):
        landlock.confine([], tmp_path)


def test_a_mode_is_not_changed_though_copying_works(tmp_path):
    """Is a change of mode answered with yes, and not made? (shutil.copy gives up on a no.)"""
    outside = tmp_path / "outside"
    outside.write_text("x")
    outside.chmod(0o644)
    (tmp_path / "home").mkdir()
    code = f"""
import ctypes, os
from autograde import landlock, lower
landlock.confine(lower.readable(), {str(tmp_path / "home")!r})
os.chmod({str(outside)!r}, 0o600); os.utime({str(outside)!r}, (1, 1))
ctypes.CDLL(None).syscall(452, -100, {str(outside).encode()!r}, 0o600, 0)
"""
    here = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], check=True, env=here, timeout=60)
    assert outside.stat().st_mode & 0o777 == 0o644 and outside.stat().st_mtime > 1


def text_of(session, cell):
    return "".join(output.get("text", output.get("evalue", "")) for output in session.run(cell))


BOMB = """
import os
while True:
    try:
        if os.fork() == 0: os.setsid()
    except OSError: pass
"""


@landlocked
def test_the_partial_tier_grades_and_holds():
    """Without namespaces: does honest work run, do the quick probes hold, is a home left behind gone?"""
    with Sandbox("phase3_multi_head", LIMITS, "partial") as sandbox:
        with sandbox.session() as session:
            cell = "import os, torch\nos.makedirs('a/b', 0)\nprint(torch.ones(2).softmax(-1), os.listdir('.'))"
            assert "0.5000" in text_of(session, cell)
            cell = "from utils import plots\nfrom utils.mycode import mine\nprint(mine('causal_mask')(2, 2).sum())"
            assert text_of(session, cell) == "tensor(3)\n"
        with sandbox.session() as session:
            assert "'a'" not in text_of(session, "import os; print(os.listdir('.'))")
        assert [one.name for one in quick(sandbox) if not one.held] == []


@landlocked
@pytest.mark.slow
@pytest.mark.parametrize("tier", ["partial", "none"])
def test_without_namespaces_a_fork_bomb_ends_with_its_session(tier):
    """Is every process of a bomb gone when the next submission starts?"""
    with Sandbox(None, Limits(cell=5.0, notebook=120.0, processes=24), tier) as sandbox:
        where = str(sandbox._stage)
        with sandbox.session() as session:
            session.run("import os")
            try:
                session.run(BOMB)
            except Exception as error:
                assert type(error).__name__ == "Ended"
        running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
        assert sum(where in line for line in running.splitlines()) == 1  # the warm process
        with sandbox.session() as session:
            assert text_of(session, "print(1)") == "1\n"
        sandbox._process.kill()
        sandbox._process.wait()
        with sandbox.session() as session:  # another warm process has been started, in the same place
            assert text_of(session, "print(2)") == "2\n"
