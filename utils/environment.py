"""What start_here shows: the machine, the versions, and the exact command for whatever is not as it should be."""

import html
import os
import platform
import re
import shlex
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from utils import COURSE
from utils.workspace import WorkspaceError, course_root

ALL_WELL = "✓ everything is as the course expects"
SHOWN = ("torch", "numpy", "jupyterlab", "nbgrader", "ipywidgets", "matplotlib")


@dataclass(frozen=True)
class Problem:
    """One thing that is not as the course expects, and how to put it right."""

    what: str
    repair: str


@dataclass(frozen=True)
class Environment:
    """The report. A notebook shows it as HTML, a terminal as text."""

    facts: dict
    problems: list

    def __str__(self):
        lines = [f"{name:<11} {value}" for name, value in self.facts.items()]
        for problem in self.problems:
            lines += ["", f"✗ {problem.what}", f"  repair: {problem.repair}"]
        return "\n".join(lines if self.problems else [*lines, "", ALL_WELL])

    __repr__ = __str__

    def _repr_html_(self):
        cell = "<td style='text-align:left'>{}</td>".format
        rows = (f"<tr>{cell(html.escape(name))}{cell(html.escape(value))}</tr>" for name, value in self.facts.items())
        problems = "".join(
            f"<li>✗ {html.escape(problem.what)}<br>Repair: <code>{html.escape(problem.repair)}</code></li>"
            for problem in self.problems
        )
        end = f"<ul>{problems}</ul>" if problems else f"<p>{ALL_WELL}</p>"
        return f"<table>{''.join(rows)}</table>{end}"


def report():
    """Look at this machine. Returns an Environment; nothing is changed and nothing is sent anywhere."""
    facts = {"device": device(), "python": platform.python_version()}
    try:
        root = course_root()
        pins = read_pins(root / "requirements.lock")
    except (WorkspaceError, OSError):
        problems = [Problem("The course's folder (with requirements.lock) was not found.", "start there: make learn")]
    else:
        problems = [*version_problems(pins, root), *shadows(root)]
    facts |= {name: _installed(name) or "missing" for name in SHOWN}
    return Environment(facts, problems)


def device():
    """What torch computes on, in words."""
    import torch

    if torch.cuda.is_available():
        return f"CUDA: {torch.cuda.get_device_name()}"
    if torch.backends.mps.is_available():
        return f"MPS: {platform.processor() or 'Apple'} GPU"
    return f"CPU, {os.cpu_count()} cores"


def read_pins(path):
    """requirements.lock as {name: version}, names in the one spelling that pip uses."""
    lines = (line.split("#")[0].strip() for line in path.read_text(encoding="utf8").splitlines())
    return {normal(name): version for name, _, version in (line.partition("==") for line in lines if line)}


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def version_problems(pins, root, installed=None):
    """Packages whose version is not the pinned one, and packages the course needs that are missing.

    installed: function name -> version or None; by default what is installed here
    """
    installed = installed or _installed
    repair = f"cd {shlex.quote(str(root))} && {shlex.quote(sys.executable)} -m pip install -c requirements.lock -e ."
    needed = _needed()
    if not needed:
        return [Problem(f"The course's package ({COURSE}) is not installed in this Python.", repair)]
    wrong = []
    for name, wanted in pins.items():
        there = installed(name)
        if there is None and name in needed:
            wrong.append(f"{name} is missing (the course was tested with {wanted})")
        elif there is not None and there.split("+")[0] != wanted:  # torch 2.13.0+cpu is torch 2.13.0
            wrong.append(f"{name} is {there}, the course was tested with {wanted}")
    return [Problem(what, repair) for what in wrong]


def shadows(root, module=None):
    """Is `utils` ours, here and in every folder of notebooks? The name is common, and Python takes the first."""
    if module is None:
        import utils as module
    problems = []
    ours, there = root / "utils", Path(getattr(module, "__file__", None) or "(no file)").parent
    if getattr(module, "COURSE", None) != COURSE:
        problems.append(
            Problem(f"`utils` in {there} is not the course's.", f"take {there} away and restart the kernel")
        )
    elif there.resolve() != ours.resolve():
        repair = f"start JupyterLab from this course: cd {shlex.quote(str(root))} && make learn"
        problems.append(Problem(f"`utils` comes from another copy of the course, {there}.", repair))
    for file in sorted([*root.glob("my_work/**/utils.py"), *root.glob("my_work/**/utils/__init__.py")]):
        what = f"{file.relative_to(root)} hides the course's own `utils` from the notebooks beside it."
        problems.append(Problem(what, f"give {file.relative_to(root)} another name"))
    return problems + _rivals()


def _rivals():
    """Other installed packages that bring a `utils` of their own."""
    found = {normal(name) for name in metadata.packages_distributions().get("utils", [])} - {COURSE}
    repair = f"{shlex.quote(sys.executable)} -m pip uninstall --yes"
    return [Problem(f"The package {name} brings another `utils`.", f"{repair} {name}") for name in sorted(found)]


def _needed():
    """Names of the packages that the course itself asks for (extras aside); none if it is not installed."""
    try:
        asked = metadata.requires(COURSE) or []
    except metadata.PackageNotFoundError:
        return set()
    return {normal(re.match(r"[\w.-]+", line).group()) for line in asked if "extra ==" not in line}


def _installed(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
