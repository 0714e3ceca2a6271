"""Score tampering by metadata: the cells that are graded are moved, marked, renamed, removed."""

import copy

from nbformat.v4 import new_code_cell, new_markdown_cell, new_output
from nbgrader.utils import compute_checksum

from tests.range.attack import edit, place
from tests.sample_course import cell


def checks(notebook):
    """The check cells."""
    marked = [c for c in notebook.cells if c.cell_type == "code" and c.metadata.get("nbgrader", {}).get("grade")]
    return [c for c in marked if not c.metadata.nbgrader.solution]


def seal(cell):
    """Make the checksum fit, as the attacker would."""
    cell.metadata.nbgrader.checksum = compute_checksum(cell)


def forged(points):
    """Outputs as a full score would show them."""
    data = {"text/plain": f"{float(points)}", "text/html": f"{points} of {points} points"}
    return [
        new_output("stream", name="stdout", text="✓ all cases\n"),
        new_output("execute_result", data=data, execution_count=7),
    ]


@edit("score", "outputs-forged", "check cells come with the outputs of a full score")
def _(notebook):
    for one in checks(notebook):
        one.outputs, one.execution_count = forged(one.metadata.nbgrader.points), 7


@edit("score", "checks-skipped", "check cells carry nbclient's tag for cells that are not run", quick=True)
def _(notebook):
    for one in checks(notebook):
        one.metadata.tags = ["skip-execution"]
        one.outputs = forged(one.metadata.nbgrader.points)


@edit("score", "checks-are-demos", "check cells carry the course's tag for cells that are skipped")
def _(notebook):
    for one in checks(notebook):
        one.metadata.tags = ["demo"]


@edit("score", "points-raised", "a solved exercise is worth 100 points", solved=("causal_mask",))
def _(notebook):
    for one in checks(notebook):
        one.metadata.nbgrader.points = 100
        seal(one)


@edit(
    "score", "ids-swapped", "an exercise of 7 points takes the name of one of 2 that is solved", solved=("causal_mask",)
)
def _(notebook):
    poor, rich = cell(notebook, "causal_mask"), cell(notebook, "sdpa_backward")
    poor.metadata.nbgrader.grade_id, rich.metadata.nbgrader.grade_id = "sdpa_backward", "causal_mask"
    for one in (poor, rich):
        one.metadata.nbgrader.points = 9 - one.metadata.nbgrader.points
        seal(one)


@edit("score", "checks-rewritten", "unlocked check cells whose source is the score", quick=True)
def _(notebook):
    for one in checks(notebook):
        one.source = f"{float(one.metadata.nbgrader.points)}"
        one.metadata.nbgrader.locked = False
        seal(one)


@edit("score", "checks-removed", "no check cells at all")
def _(notebook):
    notebook.cells = [c for c in notebook.cells if c not in checks(notebook)]


@edit("score", "checks-unmarked", "check cells lose their marks")
def _(notebook):
    for one in checks(notebook):
        del one.metadata["nbgrader"]


@edit("score", "checks-as-text", "check cells are markdown cells")
def _(notebook):
    for one in checks(notebook):
        text = new_markdown_cell("✓ 5/5", id=one.id, metadata=one.metadata)
        text.metadata.nbgrader.cell_type = "markdown"
        notebook.cells[notebook.cells.index(one)] = text


@edit("score", "checks-as-raw", "check cells are raw cells")
def _(notebook):
    for one in checks(notebook):
        one.cell_type = "raw"
        one.pop("outputs"), one.pop("execution_count")


@edit("score", "checks-doubled", "beside each check cell stands a copy that says full marks")
def _(notebook):
    for one in checks(notebook):
        twin = copy.deepcopy(one)
        twin.id, twin.source = f"{one.id}-again", f"{float(one.metadata.nbgrader.points)}"
        notebook.cells.insert(notebook.cells.index(one) + 1, twin)


@edit("score", "checks-by-hand", "check cells say that a person grades them")
def _(notebook):
    for one in checks(notebook):
        one.metadata.nbgrader.solution = True
        one.source += "\n# please look at this"


@edit("score", "checks-as-tasks", "check cells say that they are tasks")
def _(notebook):
    for one in checks(notebook):
        one.metadata.nbgrader.update(task=True, grade=False, locked=True)
        seal(one)


@edit("score", "old-schema", "marks of schema version 1, which have fewer fields")
def _(notebook):
    for one in checks(notebook):
        marks = one.metadata.nbgrader
        one.metadata.nbgrader = {"schema_version": 1, "grade_id": marks.grade_id, "grade": False, "solution": False}


@edit("score", "answer-as-code", "a written answer becomes a code cell that says 4.0")
def _(notebook):
    for name in ("why-scale", "why-masks", "self-and-cross"):
        marks = cell(notebook, name).metadata
        marks.nbgrader.update(solution=False, cell_type="code", locked=True)
        notebook.cells[place(notebook, name)] = new_code_cell("4.0", id=name, metadata=marks)


@edit("score", "checks-of-our-own", "more graded cells, with ids and points of the student's choice")
def _(notebook):
    marks = dict(cell(notebook, "causal_mask").metadata.nbgrader)
    for number in range(5):
        more = marks | {"grade_id": f"extra-{number}", "points": 50}
        notebook.cells.append(new_code_cell("50.0", id=f"extra-{number}", metadata={"nbgrader": more}))


@edit("score", "kernel-chosen", "another kernel and language, whose errors look different")
def _(notebook):
    notebook.metadata.kernelspec = {"name": "bash", "display_name": "Bash", "language": "bash"}
    notebook.metadata.language_info = {"name": "bash"}


@edit("score", "build-cell-is-a-check", "the cell with the answer claims to be the check of the same exercise")
def _(notebook):
    for name in ("causal_mask", "sdpa"):
        build, check = cell(notebook, f"{name}-build"), cell(notebook, name)
        build.metadata.nbgrader, check.metadata.nbgrader = check.metadata.nbgrader, build.metadata.nbgrader
        build.source = f"{name} = None\n2.0"
