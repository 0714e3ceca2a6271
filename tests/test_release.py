"""Is what lies in notebooks/ exactly what the sources say, and does it give nothing away?"""

import ast
import re

import nbformat
import pytest

from autograde.build import differences, released_files
from autograde.course import ROOT, phases
from autograde.source import raises_not_implemented
from utils.checks import EXERCISES
from utils.checks.deliveries import DELIVERIES

RELEASED = [ROOT / path for path in released_files(ROOT)]
NOTEBOOKS = {path.stem: nbformat.read(path, as_version=4) for path in RELEASED if path.suffix == ".ipynb"}


def graded_cells(kind):
    """(phase, grade id, cell) for every exercise cell ("solution") or check cell ("grade") of the release."""
    for phase in phases(ROOT):
        for cell in NOTEBOOKS[phase].cells:
            meta = cell.metadata.get("nbgrader", {})
            if meta.get(kind) and cell.cell_type == "code":
                yield phase, meta["grade_id"], cell


def authored_lines(phase):
    """The code lines of a phase's source: those inside solution regions, and all others."""
    inside, outside, hidden = set(), set(), False
    for line in (ROOT / "solutions" / phase / f"{phase}.py").read_text(encoding="utf-8").splitlines():
        if "BEGIN SOLUTION" in line or "END SOLUTION" in line:
            hidden = "BEGIN" in line
        else:
            (inside if hidden else outside).add(line.removeprefix("# ").strip())
    return inside, outside


def test_every_phase_and_page_is_built():
    """Would a rebuild change nothing, and is there no file without a source?"""
    assert differences(ROOT) == []


def test_only_notebooks_are_released():
    """Is there no source, gradebook or other stray file in the release?"""
    assert {path.suffix for path in RELEASED} == {".ipynb"}
    assert {path.stem for path in RELEASED} >= {"start_here", *phases(ROOT)}


@pytest.mark.parametrize("phase", phases(ROOT))
def test_no_line_of_a_solution_is_released(phase):
    """Is every line that stands only inside a solution region absent from the release?

    Whole lines: a hint may quote a part of one on purpose.
    """
    inside, _ = authored_lines(phase)
    outside = set().union(*(authored_lines(one)[1] for one in phases(ROOT)))
    secret = {line for line in inside - outside if len(line) > 12}
    released = {line.strip() for nb in NOTEBOOKS.values() for cell in nb.cells for line in cell.source.splitlines()}
    assert len(secret) > 20 and secret & released == set()


def test_no_hidden_case_is_released():
    """Is neither a hidden case's name nor the hidden module mentioned in the release?"""
    text = "\n".join(path.read_text(encoding="utf-8") for path in RELEASED)
    assert not re.search(r"BEGIN SOLUTION|END SOLUTION|HIDDEN TESTS|autograde\.hidden|autograde/hidden", text)
    names = set()
    for path in (ROOT / "autograde" / "hidden").glob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        calls = [call for call in calls if getattr(call.func, "id", "") == "case" and call.args]
        names |= {call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant)}
    assert [name for name in names if isinstance(name, str) and len(name) > 8 and name in text] == []


def test_no_outputs_and_no_widget_state():
    """Do the notebooks come clean, without saved widgets that would show blank, or outputs but the still pictures?"""
    for path, notebook in NOTEBOOKS.items():
        assert "widgets" not in notebook.metadata
        outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
        if "figures" in str(path):
            outputs = [one for one in outputs if one.output_type != "stream" and "image/png" not in one.data]
        assert outputs == []


@pytest.mark.parametrize(("phase", "name", "cell"), [pytest.param(*row, id=row[1]) for row in graded_cells("solution")])
def test_a_stub_keeps_its_docstring_and_says_it_is_not_implemented(phase, name, cell):
    """Does every exercise cell come as a definition of its own name, with a docstring, that raises?"""
    name = name.removesuffix("-build")
    [definition] = [node for node in ast.parse(cell.source).body if getattr(node, "name", None) == name]
    assert ast.get_docstring(definition) and raises_not_implemented(definition)
    assert "# YOUR CODE HERE\n" in cell.source


@pytest.mark.parametrize("phase", phases(ROOT))
def test_every_exercise_of_a_phase_is_in_its_notebook(phase):
    """Does each exercise that has a check stand in the lesson once, and each one of the lesson have a check?"""
    checks = [grade_id for where, grade_id, _ in graded_cells("grade") if where == phase]
    known = {**EXERCISES, **DELIVERIES}
    assert sorted(checks) == sorted(name for name, exercise in known.items() if exercise.phase == phase)


@pytest.mark.parametrize("phase", phases(ROOT))
def test_the_section_a_check_names_is_where_its_exercise_stands(phase):
    """Does "section 2.3" in a message lead to the section with that number?"""
    section, stands = None, {}
    for cell in NOTEBOOKS[phase].cells:
        section = (re.findall(r"^## (\d+\.\d+)", cell.source, re.MULTILINE) or [section])[-1]
        name = cell.metadata.get("nbgrader", {}).get("grade_id", "")
        if name in EXERCISES:
            stands[name] = section
    assert stands == {name: EXERCISES[name].section for name in stands}
