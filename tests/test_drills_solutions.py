"""Every code drill can be done: the course's own solution, typed into the card, passes check and twist."""

import json

import pytest

from autograde.course import ROOT
from utils.drills import load_cards
from utils.drills.replies import Unclear, ask, judge
from utils.syllabus import syllabus

pytestmark = pytest.mark.slow
TASKS = syllabus()
CODE = {card.exercise: card for card in load_cards() if card.kind == "code"}


def solution(task):
    """The text of the cell that solves an exercise."""
    path = ROOT / "solutions" / task.phase / f"{task.phase}.ipynb"
    cells = json.loads(path.read_text(encoding="utf8"))["cells"]
    return next("".join(cell["source"]) for cell in cells if cell.get("id") == f"{task.name}-build")


@pytest.mark.parametrize("name", CODE)
def test_the_solution_passes_on_its_card(name):
    """Typed on the card, with nothing but its own cell: right, twist included; and the blank cell is no answer?"""
    asked = ask(CODE[name], 0)
    with pytest.raises(Unclear, match="blank cell"):
        judge(asked, TASKS[name].stub)
    verdict = judge(asked, solution(TASKS[name]))
    assert verdict.right, verdict.text
