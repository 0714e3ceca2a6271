"""The authored lessons as data, for the tests that read them: cells, calls, sections, exercises."""

import ast
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import jupytext

from autograde.course import ROOT, phases
from utils.checks import EXERCISES
from utils.checks.deliveries import DELIVERIES


@dataclass(frozen=True)
class Lesson:
    """One phase as its author wrote it."""

    phase: str

    @property
    def number(self):
        return int(re.match(r"phase(\d+)_", self.phase)[1])

    @property
    def source(self):
        return Path(ROOT, "solutions", self.phase, f"{self.phase}.py")

    @cached_property
    def cells(self):
        return jupytext.read(self.source).cells

    @property
    def text(self):
        """The Markdown cells' sources."""
        return [cell.source for cell in self.cells if cell.cell_type == "markdown"]

    @property
    def code(self):
        return [cell for cell in self.cells if cell.cell_type == "code"]

    @property
    def names(self):
        """Its exercises, in the order of their checks."""
        return [name for name, exercise in EXERCISES.items() if exercise.phase == self.phase]

    @property
    def sections(self):
        """{name: section} of all that is checked: its exercises, and what is handed in beside it."""
        handed_in = {name: one.section for name, one in DELIVERIES.items() if one.phase == self.phase}
        return {name: EXERCISES[name].section for name in self.names} | handed_in

    def calls(self, name):
        """The calls of a function in all code cells, in order: (the call, its cell)."""
        for cell in self.code:
            for node in ast.walk(ast.parse(cell.source)):
                if isinstance(node, ast.Call) and getattr(node.func, "id", None) == name:
                    yield node, cell

    def __str__(self):
        return self.phase


LESSONS = [Lesson(phase) for phase in phases(ROOT)]


def is_demo(cell):
    """Is it skipped while grading?"""
    return "demo" in cell.metadata.get("tags", [])


def words(text):
    """Words a reader reads: no tags, no hint that is still closed, and a formula counts as one."""
    text = re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "code", text)
    return len(re.findall(r"\w+", re.sub(r"<[^>]+>", "", text)))
