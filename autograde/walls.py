"""How the hostile process is walled in: what it may see, and the command that starts it, for each of three tiers.

full      bubblewrap, and for every submission namespaces of its own. The one to grade a class with.
partial   Linux without namespaces: Landlock and seccomp (autograde/landlock.py). macOS: sandbox-exec.
none      a plain process with limits. For submissions that you trust as you trust your own code.

What a lower tier lacks is listed in `autograde.doctor`, which tries it out.
"""

import os
import re
import shutil
import site
import sys
import sysconfig
from pathlib import Path

import matplotlib

from autograde import inside, lower
from autograde.course import ROOT
from autograde.repair import SandboxError, System, diagnose

TIERS = ("full", "partial", "none")

RUN_INSIDE = ("inside.py", "cells.py", "lower.py", "landlock.py")

# what a notebook may import of the course; checks and later twins stay outside
STAGED = (
    "__init__.py",
    "config.py",
    "debugging",
    "lesson.py",
    "notes.py",
    "notes.json",
    "notes_table.py",
    "plots",
    "widgets",
    "observe",
)

STAGED_LATE = {7: ("data", "train", "measure", "handed_in.py")}  # the first phase whose sandbox holds them

NO_CHECKS = '''"""Checks are made outside: in here `check` does nothing."""

EXERCISES = {}


def check(obj, points=1):
    return None
'''

MINE = '''"""While grading, `mine` is always the course's own: an old slip must not cost points twice."""


def mine(name):
    from utils import oracle

    if not hasattr(oracle, name):
        raise LookupError(f"the course's own {name} is not part of this release")
    return getattr(oracle, name)
'''


# ---- what may be seen ----------------------------------------------------------------------------


def fill(stage, phase=None, root=ROOT):
    """Copy what may be seen inside: what notebooks import, and the twins of the phases before `phase`."""
    stage.chmod(0o755)
    (stage / "utils" / "checks").mkdir(parents=True)
    late = [name for first, names in STAGED_LATE.items() if _number(phase) >= first for name in names]
    for name in (*STAGED, *late):
        if name in STAGED or (root / "utils" / name).exists():
            _copy(root / "utils" / name, stage / "utils")
    (stage / "utils" / "checks" / "__init__.py").write_text(NO_CHECKS, "utf-8")
    (stage / "utils" / "mycode.py").write_text(MINE, "utf-8")
    for name in RUN_INSIDE:
        shutil.copy(Path(__file__).with_name(name), stage)
    twins = earlier_twins(phase, root)
    if twins:
        _stage_twins(stage, twins)


def earlier_twins(phase, root=ROOT):
    """The files and folders of utils/oracle that hold twins of phases before this one, in order."""
    this, found = _number(phase), []
    for path in (root / "utils" / "oracle").iterdir():
        number = _number(path.name)
        if number and number < this and (path.suffix == ".py" or (path / "__init__.py").is_file()):
            found.append((number, path.name, path))
    return [path for _, _, path in sorted(found)]


def _number(name):
    """phase4_blocks, phase4.py, phase4_tables.py -> 4; anything else -> 0."""
    match = re.match(r"phase(\d+)(?!\d)", name or "")
    return int(match[1]) if match else 0


def _stage_twins(stage, twins):
    place = stage / "utils" / "oracle"
    place.mkdir()
    for path in twins:
        _copy(path, place)
    lines = [f"from utils.oracle.{path.stem} import *  # noqa: F403" for path in twins]
    (place / "__init__.py").write_text('"""The twins of earlier phases."""\n\n' + "\n".join(lines) + "\n", "utf-8")
    for path in sorted(place.rglob("*.py")):
        for module in re.findall(r"^\s*(?:from|import)\s+(utils[\w.]*)", path.read_text("utf-8"), re.MULTILINE):
            if not _is_there(stage, module):
                where = path.relative_to(stage)
                raise SandboxError(f"{where} imports {module}, which is not in the sandbox: a twin may lean on its own")


def _is_there(stage, module):
    path = stage.joinpath(*module.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def _copy(source, folder):
    if source.is_dir():
        shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, folder)


# ---- the command ---------------------------------------------------------------------------------


def command(stage, control, tier="full", courses=(ROOT,)):
    """The command line that starts the warm process with the control socket of that descriptor.

    courses: folders that must not be seen even if they lie below a folder that is shown. Raises SandboxError where
    the tier has no way to start, or cannot hide them.
    """
    if tier not in TIERS:
        raise ValueError(f"there is no tier {tier!r}: {', '.join(TIERS)}")
    _refuse_a_shown_home()
    hidden = _below_what_is_shown(courses)
    if tier == "full":
        return _bubblewrap(stage, control, hidden)
    if hidden and tier == "partial":
        raise SandboxError(f"{hidden[0]} lies in a folder that Python needs: move the course elsewhere")
    plain = [sys.executable, str(stage / "inside.py"), str(control), tier]
    if tier == "partial" and sys.platform == "darwin":
        plain = ["/usr/bin/sandbox-exec", "-p", profile(stage), *plain]
    variables = _variables(str(stage / lower.SCRATCH), str(stage))
    return ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in variables.items()), *plain]


def shown():
    """The folders of the host that can be read inside, besides the system's /bin and /lib."""
    return ["/usr", "/etc/ld.so.cache", "/etc/alternatives", *_prefixes()]


def _prefixes():
    """Where this Python stands."""
    places = {sys.prefix, sys.base_prefix}
    return sorted(path for path in places if not Path(path).is_relative_to("/usr"))


def keep_apart(course):
    """Raise SandboxError if a course beside this checkout lies where submissions could read it."""
    if Path(course).resolve() != ROOT and _below_what_is_shown([course]):
        raise SandboxError(f"submissions could read {course}, since it lies among Python's files: move it elsewhere")


def _below_what_is_shown(courses):
    """The courses that would be seen inside. Raises SandboxError if Python itself stands among a course's files."""
    needed = {Path(path).resolve() for path in (sys.prefix, sys.base_prefix, *site.getsitepackages())}
    needed |= {Path(sysconfig.get_path("stdlib")).resolve()}
    found = set()
    for course in map(Path, courses):
        real = course.resolve()
        if real in needed:
            raise SandboxError(
                f"the course stands in Python's own folder {real}: give Python a folder of its own "
                "(python -m venv .venv) and install the course with pip install -e ."
            )
        if any(real.is_relative_to(Path(path).resolve()) for path in shown()):
            found.add(real)
    return sorted(map(str, found))


def _refuse_a_shown_home():
    home = Path.home().resolve()
    for path in _prefixes():
        if home.is_relative_to(Path(path).resolve()):
            raise SandboxError(f"Python stands in {path}, which holds your home: make it an environment of its own")


def _bubblewrap(stage, control, hidden):
    """A read-only system, the Python of this process, the stage, nothing else."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SandboxError(str(diagnose("", System.here())))
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
    for known in Path(matplotlib.get_cachedir()).glob("fontlist-*.json"):  # or each start would look for all fonts
        arguments += ["--ro-bind", str(known), f"{inside.HOME}/{known.name}"]
    for path in _prefixes():
        for parent in list(reversed(Path(path).parents))[1:]:  # made here, and open to nobody, too
            arguments += ["--perms", "0755", "--dir", str(parent)]
        arguments += ["--ro-bind", path, path]
    arguments += [*_cover(hidden), "--ro-bind", str(stage), "/course", "--chdir", inside.HOME]
    arguments += ["--remount-ro", "/tmp", "--remount-ro", "/"]
    for name, value in _variables(inside.HOME, "/course").items():
        arguments += ["--setenv", name, value]
    # the parent of bwrap has no environment either: pid 1 inside would show it
    return ["/usr/bin/env", "-i", bwrap, *arguments, sys.executable, "/course/inside.py", str(control)]


def _cover(hidden):
    """Lay an empty folder over each course, and show again what of Python stands in it."""
    arguments = []
    for course in hidden:
        arguments += ["--tmpfs", course]
        for path in sorted({sys.prefix, sys.base_prefix}):
            if Path(path).resolve().is_relative_to(course):
                arguments += ["--ro-bind", path, path]
        arguments += ["--remount-ro", course]
    return arguments


def _variables(home, course):
    """The whole environment inside."""
    return {
        "PATH": f"{sys.prefix}/bin:/usr/bin:/bin",
        "PYTHONPATH": course,
        "PYTHONDONTWRITEBYTECODE": "1",
        "MPLCONFIGDIR": home,
        "MPLBACKEND": "Agg",
        "OMP_NUM_THREADS": "1",
        "HOME": home,
        "USER": "learner",
        "LANG": "C.UTF-8",
    }


def profile(stage):
    """macOS: read the system, Python and the stage; write to the scratch place; no network. (Never run by us.)"""
    system = ["/usr", "/bin", "/sbin", "/System", "/Library/Frameworks", "/private/var/db/dyld", *_prefixes()]
    read = " ".join(f'(subpath "{Path(path).resolve()}")' for path in [*system, stage])
    return f"""(version 1)
(deny default)
(import "bsd.sb")
(allow process-fork process-exec)
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow file-read-metadata)
(allow file-read* (literal "/") {read})
(allow file-write* (subpath "{Path(stage, lower.SCRATCH).resolve()}") (literal "/dev/null"))
(deny network*)
"""
