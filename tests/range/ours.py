"""The course's own grader on the range: one batch of everybody, by the commands that an instructor uses."""

import sys

from tests.range.attack import PHASE
from tests.range.course import lay_out
from tests.range.listener import Listener
from tests.range.runs import run
from tests.range.verdict import verdict

# as in autograde/nbgrader_config.py, but what never ends is ended sooner
LIMITS = "c.MarkInSandbox.cell_seconds = {cell}\nc.MarkInSandbox.notebook_seconds = {notebook}\n"


def graded(root, names, cell=20.0, notebook=300.0, seconds=7200):
    """Lay out, grade, write feedback and tables. Returns (world, name -> Verdict)."""
    with Listener() as listener:
        world = lay_out(root, names, listener.ports, settings=LIMITS.format(cell=cell, notebook=notebook))
        for command in (("grade", PHASE), ("feedback", PHASE), ("export", PHASE), ("report", PHASE)):
            run(world, sys.executable, "-m", "autograde", *command, "--course", world.root, seconds=seconds)
        return world, verdict(root, listener.heard())
