"""The steps of ours that nbgrader runs while grading."""

import atexit
import time
from contextlib import ExitStack
from copy import deepcopy
from pathlib import Path

from nbformat import NotebookNode, from_dict
from nbgrader.api import Gradebook
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade, is_solution
from traitlets import Bool, Enum, Float

from autograde.doctor import walled
from autograde.exams import Papers, secret
from autograde.intake import TAKEN
from autograde.journal import add_line
from autograde.marking import Marker
from autograde.sandbox import Limits
from autograde.walls import keep_apart


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
                cell.metadata = deepcopy(handed_out[name].metadata)
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
        cell = from_dict({"cell_type": source.cell_type, "id": source.name, "source": source.source})
        cell.metadata = NotebookNode(deletable=False)
        if source.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        cell.metadata.nbgrader = NotebookNode({
            "cell_type": source.cell_type, "checksum": source.checksum, "grade": source.name in points,
            "grade_id": source.name, "locked": source.locked, "schema_version": 3,
            "solution": source.name in solutions, "task": False,
        })  # fmt: skip
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


class MarkInSandbox(NbGraderPreprocessor):
    """Run the cells in the sandbox and judge outside; in place of nbgrader's Execute.

    nbgrader alone runs submissions as you, beside tests and answers, and believes what their kernel says.
    """

    tier = Enum(["full", "partial", "none"], "full", help="the sandbox that is asked for: see autograde doctor").tag(
        config=True
    )
    trusted = Bool(False, help="grade without any sandbox: these submissions are yours").tag(config=True)
    own_seeds = Bool(False, help="draw the inputs of the checks for each student alone").tag(config=True)
    cell_seconds = Float(60.0, help="wall time of one cell").tag(config=True)
    notebook_seconds = Float(600.0, help="wall time of one notebook").tag(config=True)
    memory_gib = Float(6.0, help="address space; torch alone maps about 3").tag(config=True)

    def preprocess(self, nb, resources):
        where = resources["nbgrader"]
        student, phase = where["student"], where["assignment"]
        marking = MARKED.pop((student, phase), None)
        if marking is None:
            nb.metadata.pop("autograde", None)  # whatever stands there is the learner's
            marking = self._marker(phase).mark(nb, student, TAKEN.get((student, phase)))
        marking.write_into(nb)
        nb.metadata.setdefault("autograde", {})["tier"] = marking.tier
        for event in marking.events:
            entry = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "student": student, "phase": phase, **event}
            add_line(self.root / "autograde" / "audit.jsonl", entry)
        return nb, resources

    @property
    def root(self):
        """The course directory."""
        return Path(self.config.CourseDirectory.root)

    def limits(self):
        """What one submission may use."""
        memory = int(self.memory_gib * 2**30)
        return Limits(memory=memory, cell=self.cell_seconds, notebook=self.notebook_seconds)

    def papers(self):
        """The questions of this course."""
        return Papers(secret(self.root), self.own_seeds)

    def allowed_tier(self):
        """The highest tier that holds on this machine. Raises SandboxError if it is lower than the one asked for."""
        keep_apart(self.root)
        with walled(None, self.limits(), self.tier, self.trusted) as (sandbox, _):
            return sandbox.tier

    def _marker(self, phase):
        if (self.root, phase) not in _markers:
            marker = Marker(phase, self.papers(), self.limits(), self.allowed_tier())
            _markers[self.root, phase] = _open.enter_context(marker)
        return _markers[self.root, phase]


MARKED = {}  # (student, phase) -> Marking that a worker has made, for `autograde grade`
_markers = {}  # (course, phase) -> Marker, for plain nbgrader
_open = ExitStack()
atexit.register(_open.close)
