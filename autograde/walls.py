"""How the hostile process is walled in: what it may see, and the command that starts it."""

import os
import shutil
import sys
from pathlib import Path

from autograde import inside
from autograde.course import ROOT

# what a notebook may import of the course; checks and oracle stay outside
STAGED = ("__init__.py", "lesson.py", "notes.py", "notes.json", "notes_table.py", "plots.py", "widgets.py", "observe")

NO_CHECKS = '''"""Checks are made outside: in here `check` does nothing."""

EXERCISES = {}


def check(obj, points=1):
    return None
'''


def fill(stage, phase=None):
    """Copy what may be seen inside."""
    stage.chmod(0o755)
    (stage / "utils" / "checks").mkdir(parents=True)
    for name in STAGED:
        source = ROOT / "utils" / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, stage / "utils" / name)
    (stage / "utils" / "checks" / "__init__.py").write_text(NO_CHECKS, "utf-8")
    shutil.copy(inside.__file__, stage / "inside.py")


def command(stage, control, tier="full"):
    """bwrap's command line: a read-only system, the Python of this process, the stage, nothing else."""
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
    arguments += ["--ro-bind", str(stage), "/course", "--chdir", inside.HOME]
    arguments += ["--remount-ro", "/tmp", "--remount-ro", "/"]
    for name, value in _variables().items():
        arguments += ["--setenv", name, value]
    # the parent of bwrap has no environment either: pid 1 inside would show it
    return ["/usr/bin/env", "-i", shutil.which("bwrap"), *arguments, sys.executable, "/course/inside.py", str(control)]


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
