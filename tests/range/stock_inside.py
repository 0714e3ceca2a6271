"""Stock nbgrader on some attacks, inside the throw-away sandbox of `stock`: process 1 there, so that no signal ends it.

python -m tests.range.stock_inside TEMPLATE ROOT NAME…      prints what became of them as JSON
"""

import contextlib
import json
import os
import resource
import shutil
import signal
import sys
import time
from pathlib import Path

from nbgrader.api import Gradebook
from nbgrader.converters import Autograde, GenerateFeedback
from nbgrader.plugins import CsvExportPlugin
from nbgrader.utils import capture_log

from autograde.course import course_directory, load_config
from tests.range.attack import PHASE, World
from tests.range.course import admit
from tests.range.listener import Listener
from tests.range.runs import environment, keep
from tests.range.verdict import plain, verdict

SECONDS = 400  # for one submission, all in all; nbgrader's own limit is 30 s for a cell, and a notebook has many
MEMORY, PROCESSES, FILE = 7 * 2**30, 300, 2**30
NOBODY = 65534


def main(template, root, *names):
    shutil.copytree(template, root, symlinks=True, dirs_exist_ok=True)
    with Listener() as listener:
        world = World.load(root)
        world.ports = listener.ports
        admit(world, names)
        _give_away(root)
        _run(world, "nbgrader autograde", Autograde, SECONDS * (1 + len(names)))
        found = verdict(root, listener.heard())  # before the rest is cleared away: what survived, and what is changed
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        _run(world, "nbgrader generate_feedback", GenerateFeedback, SECONDS)
        _run(world, "nbgrader export", CsvExportPlugin, SECONDS)
        later = verdict(root, listener.heard())
    for name, one in later.items():
        before = {what for what in found[name].harmed if not what.endswith("no feedback")}
        one.harmed = sorted({*one.harmed, *before})
    print(json.dumps(plain(later)))


def _run(world, what, converter, seconds):
    """One step of nbgrader for everybody, in a fork of this process: as the command would, without its start-up."""
    start = time.monotonic()
    with keep(world, [what]) as result, open(result["file"], "w") as output:
        pid = os.fork()
        if pid == 0:
            try:
                _step(world, converter, output)
            finally:
                os._exit(1)
        result["code"] = _wait(pid, start + seconds)


def _step(world, converter, output):
    os.setsid()
    for stream in (1, 2):
        os.dup2(output.fileno(), stream)
    _become_somebody()
    os.environ.clear()
    os.environ.update(environment(world))
    os.chdir(world.root)
    config = load_config(world.root)
    if converter is CsvExportPlugin:
        plugin = CsvExportPlugin(config=config, to="autograde/grades.csv", assignment=[PHASE])
        with Gradebook(config.CourseDirectory.db_url) as gradebook:
            plugin.export(gradebook)
        os._exit(0)
    directory = course_directory(config)
    directory.assignment_id = PHASE
    result = capture_log(converter(coursedir=directory, config=config))
    os.write(1, (result.get("log") or result.get("error", "")).encode("utf-8", "replace"))
    os._exit(0 if result["success"] else 1)


def _wait(pid, end):
    """The exit code, negative for a signal; None if it had to be killed."""
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None
        time.sleep(0.1)


def _give_away(root):
    if os.getuid() == 0:
        for place, folders, names in os.walk(root):
            for name in (".", *folders, *names):
                os.chown(Path(place, name), NOBODY, NOBODY, follow_symlinks=False)


def _become_somebody():
    """The instructor in here: not root, for whom no limit on processes holds; and no bomb harms what is outside."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    for what, limit in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_NPROC, PROCESSES),
        (resource.RLIMIT_FSIZE, FILE),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (limit, limit))


if __name__ == "__main__":
    main(*sys.argv[1:])
