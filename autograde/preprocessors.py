"""Small steps that nbgrader runs while grading, each against one way of losing or gaining points by accident."""

import math

from nbformat.v4 import new_code_cell, new_markdown_cell, new_output
from nbgrader.api import Gradebook
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade, is_solution


class RestoreCells(NbGraderPreprocessor):
    """Give a submission's cells back the metadata they were handed out with, and put deleted ones back.

    nbgrader alone stops the whole batch at one duplicated cell, stops at a cell it does not know, trusts a cell's own
    tags and flags, and cannot restore a check whose exercise cell was deleted too.
    """

    def preprocess(self, nb, resources):
        where = resources["nbgrader"]
        with Gradebook(where["db_url"]) as gradebook:
            handed_out = _handed_out_cells(gradebook.find_notebook(where["notebook"], where["assignment"]))
        present = set()
        for cell in reversed(nb.cells):  # of two copies the last one counts, as in nbgrader
            nbgrader = cell.metadata.pop("nbgrader", None)
            name = nbgrader.get("grade_id") if isinstance(nbgrader, dict) else None
            if isinstance(name, str) and name in handed_out.keys() - present:
                cell.metadata = handed_out[name].metadata.copy()
                present.add(name)
        _put_back(nb, handed_out, present)
        _complete_ids(nb)
        return nb, resources


def _handed_out_cells(notebook):
    """Name -> cell as released, from the gradebook's record of a notebook, in its order."""
    points = {cell.name: cell.max_score for cell in notebook.grade_cells}
    solutions = {cell.name for cell in notebook.solution_cells}
    cells = {}
    for source in notebook.source_cells:
        new_cell = new_code_cell if source.cell_type == "code" else new_markdown_cell
        cell = new_cell(source.source, id=source.name, metadata={"deletable": False})
        cell.metadata.nbgrader = {
            "cell_type": source.cell_type, "checksum": source.checksum, "grade": source.name in points,
            "grade_id": source.name, "locked": source.locked, "schema_version": 3,
            "solution": source.name in solutions, "task": False,
        }  # fmt: skip
        if source.name in points:
            cell.metadata.nbgrader["points"] = points[source.name]
        if source.locked:
            cell.metadata["editable"] = False
        cells[source.name] = cell
    return cells


def _put_back(nb, handed_out, present):
    """Insert deleted cells, but no deleted stub: the learner's own version may stand in another cell."""
    order = list(handed_out)
    for position, name in enumerate(order):
        cell = handed_out[name]
        if name in present or (is_solution(cell) and not is_grade(cell)):
            continue
        places = {c.metadata.nbgrader["grade_id"]: i for i, c in enumerate(nb.cells) if "nbgrader" in c.metadata}
        before = order[position - 1] if position else None
        following = [places[later] for later in order[position:] if later in places]
        if position == 0:
            nb.cells.insert(0, cell)
        elif before in places:
            nb.cells.insert(places[before] + 1, cell)
        else:  # the end of its section: whatever the learner built stands above
            nb.cells.insert(following[0] if following else len(nb.cells), cell)


def _complete_ids(nb):
    """Every cell needs an id of its own since nbformat 4.5; older notebooks and restored cells may lack one."""
    nb.nbformat_minor = max(5, nb.nbformat_minor)
    seen = set()
    for number, cell in enumerate(nb.cells):
        if cell.get("id") in seen | {None}:
            cell.id = f"restored-{number}"
        seen.add(cell.id)


class OnlyNumbersScore(NbGraderPreprocessor):
    """A check cell earns what its one number says, and nothing otherwise.

    nbgrader alone gives full marks for no output, for nan or for a tensor, and 0 for a harmless warning on stderr.
    """

    def preprocess_cell(self, cell, resources, index):
        if cell.cell_type != "code" or not is_grade(cell) or is_solution(cell):
            return cell, resources
        for output in cell.outputs:
            if output.output_type == "stream":
                output.name = "stdout"
        failed = any(output.output_type == "error" for output in cell.outputs)
        results = [output for output in cell.outputs if output.output_type == "execute_result"]
        if failed or len(results) != 1 or not _is_score(results[0], cell.metadata.nbgrader["points"]):
            cell.outputs = [output for output in cell.outputs if output.output_type != "execute_result"]
            if not failed:
                cell.outputs.append(_no_score())
        return cell, resources


def _is_score(output, points):
    text = output.data.get("text/plain", "")
    try:
        score = float(text)
    except ValueError:
        return False
    return math.isfinite(score) and 0 <= score <= points


def _no_score():
    line = "This cell did not end with the score of its check, so it earns no points."
    return new_output("error", ename="NoScore", evalue=line, traceback=[line])
