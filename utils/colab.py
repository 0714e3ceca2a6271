"""On Colab: install the course as it was cloned, at the pinned versions. The cell that calls it: autograde/colab.py.

Only the standard library is imported: nothing else is sure to be there yet.
"""

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

FRONT_END = {"ipython", "ipywidgets", "jupyterlab", "jupytext", "nbgrader", "textual"}  # Colab has its own
READY = ".colab-is-ready"  # in the clone, once all is installed


def set_up(course, pages):
    """Install what the course's code needs, and go to its notebooks. Returns True if the course can be used at once.

    course: folder of the clone; pages: where its notebooks are listed. Says in a sentence what is left to do.
    """
    course = Path(course)
    if not (course / READY).is_file():
        print("Installing the course at its pinned versions. This takes some minutes, once for each runtime.")
        for words in (["-c", str(course / "requirements.lock"), *needed(course)], ["--no-deps", "-e", str(course)]):
            command = [sys.executable, "-m", "pip", "install", "--quiet", *words]
            if subprocess.run(command).returncode:
                print("The packages could not be installed. Is there a network? Then run this cell again.")
                return False
        (course / READY).touch()
    os.chdir(course / "notebooks")
    if stale := outdated():
        print(f"In use in another version: {', '.join(stale)}. Choose Runtime > Restart session, then run all cells.")
        return False
    print(f"The course is ready. Save a copy in Drive to keep what you write. Other pages: {pages}")
    return True


def needed(course):
    """The packages that the course asks for, as in pyproject.toml, without those of the front end."""
    asked = tomllib.loads((course / "pyproject.toml").read_text(encoding="utf8"))["project"]["dependencies"]
    return [line for line in asked if re.match(r"[\w-]+", line).group() not in FRONT_END]


def outdated():
    """Modules that were imported before another version of them was installed: the kernel still runs the old one."""
    used = [name for name in ("matplotlib", "numpy", "torch") if name in sys.modules]
    return [name for name in used if _public(sys.modules[name].__version__) != _public(metadata.version(name))]


def _public(version):
    return version.split("+")[0]
