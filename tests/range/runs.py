"""Run a grader's commands on a range, in time, and keep what they said."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from autograde.course import ROOT
from benchmarks.peak import Peak, alone, family


def run(world, *command, seconds=600):
    """Run a command in the course's folder."""
    with keep(world, command) as result, open(result["file"], "wb") as output:
        process = subprocess.Popen(
            command, cwd=world.root, env=environment(world), stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        with Peak(memory_of(process.pid)) as peak:
            try:
                result["code"] = process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        result["mib"] = round(peak.mib)
    return result


@contextlib.contextmanager
def keep(world, command):
    """Keep what comes of a command in runs/: fill in `code`, None if it had to be ended, and write to `file`."""
    folder = Path(world.root, "runs")
    folder.mkdir(exist_ok=True)
    number, start = len(list(folder.glob("*.json"))), time.monotonic()
    result = {"command": " ".join(command), "code": None, "file": str(folder / f"{number}.txt")}
    yield result
    result["seconds"] = round(time.monotonic() - start, 1)
    (folder / f"{number}.json").write_text(json.dumps(result))


def environment(world):
    """The grader's environment: as small as it can be, with a canary in it."""
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "HOME": f"{world.root}/home",
        "RANGE_TOKEN": world.canaries["the environment"],
        "LANG": "C.UTF-8",
        "COLUMNS": "400",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def results(root):
    """What came of every command, in order, with its output."""
    found = []
    for path in sorted(Path(root, "runs").glob("*.json"), key=lambda path: int(path.stem)):
        text = path.with_suffix(".txt").read_text("utf-8", "replace")
        found.append(json.loads(path.read_text()) | {"output": text})
    return found


def memory_of(pid):
    """What a process and all that it started hold, and what shared memory has grown by: a function -> bytes."""
    before = psutil.virtual_memory().shared

    def now():
        return max(0, psutil.virtual_memory().shared - before) + sum(map(alone, family(pid)))

    return now


def survivors(marks, seconds=5):
    """The marks that a running process still carries in its name or command line, once it had time to end."""
    end = time.monotonic() + seconds
    while True:
        words = " ".join(_words(process) for process in psutil.process_iter(["pid", "name", "cmdline", "status"]))
        found = [mark for mark in marks if mark in words]
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.2)


def _words(process):
    if process.pid == os.getpid() or process.info["status"] == psutil.STATUS_ZOMBIE:
        return ""
    return " ".join([process.info["name"] or "", *(process.info["cmdline"] or ())])
