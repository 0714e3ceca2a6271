"""The baseline: the same attacks on stock nbgrader, its own defaults and its own pages, checks run in the kernel.

Since most of them work, all of it happens in throw-away sandboxes: own users, processes, network and temporary disk.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from autograde.course import ROOT
from tests.range.attack import PHASE, RANGE
from tests.range.course import lay_out
from tests.range.runs import run
from tests.range.table import told

LATER = "y-blank"  # the honest student who is graded with, or after, the attackers; the others are graded already
SHARES = {"score": 26, "leak": 16, "sabotage": 14, "fault": 14}  # how many attacks it faces; all would take it hours
TOGETHER = 12  # attacks that share one sandbox, unless they mean harm: then each has its own
CONFIG = """\
c = get_config()
c.CourseDirectory.root = {root!r}
c.CourseDirectory.db_url = "sqlite:///{root}/autograde/gradebook.db"
c.CourseDirectory.source_directory, c.CourseDirectory.release_directory = "solutions", "notebooks"
for step in ("submitted", "autograded", "feedback", "solution", "source_with_tests"):
    c.CourseDirectory[step + "_directory"] = "autograde/" + step
c.CourseDirectory.ignore = [".ipynb_checkpoints", "*.pyc", "__pycache__", "feedback", "*.py", "*.md"]
c.Exchange.root = {root!r} + "/autograde"
c.Execute.iopub_timeout = 300  # with the default of 4 s honest work is lost on a busy machine
c.Execute.timeout = {cell}
"""


class Stock:
    """A course in which honest students are graded already, and sandboxes to attack copies of it. A context manager."""

    def __init__(self, cell=30):
        self.cell = cell  # seconds for one cell; nbgrader's own default

    def __enter__(self):
        self._folder = Path(tempfile.mkdtemp(prefix="stock-")).resolve()
        self.template, self.root = self._folder / "template", self._folder / "course"
        self.root.mkdir()
        world = lay_out(self.root, config=CONFIG.format(root=str(self.root), cell=600))
        after = self.root / "autograde" / "submitted" / LATER
        after.rename(self._folder / LATER)
        for command in (("generate_assignment", "--force"), ("autograde",), ("generate_feedback",)):
            done = run(world, "nbgrader", command[0], PHASE, *command[1:], seconds=3600)
            assert done["code"] == 0, done
        (self._folder / LATER).rename(after)
        (self.root / "nbgrader_config.py").write_text(CONFIG.format(root=str(self.root), cell=self.cell))
        shutil.rmtree(self.root / "runs")
        self.root.rename(self.template)
        self.root.mkdir()
        self._folder.chmod(0o755)
        return self

    def __exit__(self, *error):
        shutil.rmtree(self._folder)

    def attack(self, names, seconds=1500):
        """Name -> plain verdict of these attacks, which share one sandbox."""
        command = self._bwrap() + [sys.executable, "-m", "tests.range.stock_inside", str(self.template), str(self.root)]
        command = ["nice", *command, *names]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd="/")
        if done.returncode:
            raise RuntimeError(f"{names}: {done.stderr[-2000:]}")
        return json.loads(done.stdout.splitlines()[-1])

    def _bwrap(self):
        own = ["pid", "net", "ipc", "uts", "cgroup-try"] if os.getuid() == 0 else ["all"]
        arguments = ["/usr/bin/env", "-i", shutil.which("bwrap"), "--die-with-parent", "--as-pid-1"]
        arguments += [f"--unshare-{name}" for name in own]
        for path in ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives",
                     "/etc/passwd", "/etc/group", "/etc/hosts", "/etc/fonts"):  # fmt: skip
            arguments += ["--ro-bind-try", path, path]
        arguments += ["--proc", "/proc", "--dev", "/dev"]
        for place, size in (("/tmp", 2**30), ("/var/tmp", 2**26), ("/dev/shm", 2**28)):
            arguments += ["--perms", "1777", "--size", str(size), "--tmpfs", place]
        for path in (str(ROOT), sys.prefix, sys.base_prefix, str(self.template)):
            if path.startswith("/usr"):
                continue
            for parent in list(reversed(Path(path).parents))[1:]:  # made in here, and open to everybody
                arguments += ["--perms", "0755", "--dir", str(parent)]
            arguments += ["--ro-bind", path, path]
        arguments += ["--perms", "0755", "--dir", str(self.root), "--chdir", str(ROOT)]
        for name, value in {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "OMP_NUM_THREADS": "1", "LANG": "C.UTF-8"}.items():
            arguments += ["--setenv", name, value]
        return [*arguments, "--setenv", "PYTHONDONTWRITEBYTECODE", "1"]


def spread(shares):
    """Names of attacks: of each class as many as `shares` says, those of the normal suite first, the rest far apart."""
    names = []
    for kind, count in shares.items():
        mine = [name for name, attack in RANGE.items() if attack.kind == kind]
        first = [name for name in mine if RANGE[name].quick]
        rest = [name for name in mine if not RANGE[name].quick]
        more = max(0, count - len(first))
        names += first + [rest[number * len(rest) // more] for number in range(more)]
    return names


def baseline(names, tell=print, cell=30):
    """Yield (name, plain verdict), each when known. Those that mean harm, stop others or are stopped run alone."""
    alone = [name for name in names if RANGE[name].kind == "sabotage"]
    friendly = [name for name in names if name not in alone]
    with Stock(cell) as stock:
        for start in range(0, len(friendly), TOGETHER):
            batch = friendly[start : start + TOGETHER]
            seen = stock.attack(batch)
            spoilt = bool(seen[""]["harmed"])
            again = [name for name in batch if spoilt or seen[name]["points"] is None and not RANGE[name].refused]
            yield from ((name, seen[name]) for name in batch if name not in again)
            alone += again
            tell(f"stock: {start + len(batch)} of {len(friendly)} attacked together; {len(alone)} to be run alone")
        alone.sort(key=lambda name: names.index(name) % TOGETHER)  # all classes early, should one lose patience
        for number, name in enumerate(alone, 1):
            seen = stock.attack([name])
            for what in ("forged", "lost", "leaked", "harmed"):
                seen[name][what] += seen[""][what]
            yield name, seen[name]
            tell(f"stock: {number} of {len(alone)} alone: {name}: {told(seen[name])}")
