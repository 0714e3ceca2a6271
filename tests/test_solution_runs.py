"""The lesson of phase 2: its source keeps the rules of the house, it runs solved, and it runs blank without a scare."""

import ast
import os
import re
import statistics
import time
from pathlib import Path

import jupytext
import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from nbgrader.preprocessors import ClearSolutions

from autograde.source import solution_notebook
from utils import notes
from utils.checks import EXERCISES

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "solutions" / "phase2_attention" / "phase2_attention.py"
CELLS = jupytext.read(SOURCE).cells
TEXT = [cell.source for cell in CELLS if cell.cell_type == "markdown"]
CODE = [cell for cell in CELLS if cell.cell_type == "code"]
NAMES = [name for name, exercise in EXERCISES.items() if exercise.phase == "phase2_attention"]
LIMIT = 180  # seconds for the whole notebook


def is_demo(cell):
    return "demo" in cell.metadata.get("tags", [])


def words(text):
    """Words a reader reads: no tags, no hint that is still closed, and a formula counts as one."""
    text = re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "code", text)
    return len(re.findall(r"\w+", re.sub(r"<[^>]+>", "", text)))


def calls(name):
    """The calls of a function in all code cells, in order: (arguments that are constants, cell)."""
    for cell in CODE:
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == name:
                yield node, cell


# ---- the source


def test_every_exercise_stands_in_its_section_and_order():
    """Do the lesson and the checks agree on names, order and section numbers?"""
    section, found = None, {}
    for cell in CELLS:
        if heading := re.search(r"^## (2\.\d+) ", cell.source, re.MULTILINE):
            section = heading[1]
        if name := cell.metadata.get("exercise"):
            found[name] = section
    assert found == {name: EXERCISES[name].section for name in NAMES}
    order = sorted(found, key=lambda name: int(found[name].split(".")[1]))
    assert order == list(found), "sections run backwards"


def test_points_add_up():
    """Are 60 points earned by code and 12 by writing?"""
    points = [ast.literal_eval(node.keywords[0].value) for node, _ in calls("check")]
    written = [cell.metadata["points"] for cell in CELLS if "written" in cell.metadata]
    assert (sum(points), written) == (60, [4, 4, 4]) and len(points) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_exercise_has_all_its_steps(name):
    """Has it a task with minutes and three hints, a stub with docstring, a check, a look and a sentence to write?"""
    place = next(n for n, cell in enumerate(CELLS) if cell.metadata.get("exercise") == name)
    task, built, checked = CELLS[place - 1].source, CELLS[place], CELLS[place + 1]
    assert re.search(rf"### Exercise 2\.\d+[a-c]? · `{name}` · (core|more|stretch) · about \d+ min", task)
    assert "**Build**" in task and "**Done when**" in task
    hints = re.findall(r"<summary>Hint (\d · \w+)</summary>", task)
    assert hints == ["1 · where", "2 · what", "3 · how"]
    definition = next(node for node in ast.parse(built.source).body if getattr(node, "name", None) == name)
    assert ast.get_docstring(definition) and checked.metadata["check"] == name
    after = CELLS[place + 2 : next(n for n, cell in enumerate(CELLS) if cell.metadata.get("reflect") == name) + 1]
    assert any(is_demo(cell) for cell in after) and len(after) <= 6


def test_every_prediction_is_revealed_later():
    """Has every question an answer further down, and is the answer one of the options?"""
    asked = {node.args[0].value: ast.literal_eval(node.args[2]) for node, _ in calls("predict")}
    told = {node.args[0].value: node.args[1].value for node, _ in calls("reveal")}
    assert asked.keys() == told.keys() and len(asked) >= len(NAMES)
    assert all(told[name] in options for name, options in asked.items())
    position = {name: [n for n, cell in enumerate(CODE) if f'"{name}"' in cell.source] for name in asked}
    assert all(first < last for first, *_, last in position.values())


def test_cells_are_short():
    """Are cells small enough for a tired reader?"""
    lengths = [len(cell.source.splitlines()) for cell in CODE]
    assert max(lengths) <= 25 and statistics.median(lengths) <= 8
    long = [text[:50] for text in TEXT if words(text) > 120 and "SOLUTION" not in text and "| section |" not in text]
    assert not long
    assert len(TEXT) <= 2 * len(CODE)


def test_sections_can_be_left_and_the_core_fits_an_evening():
    """Is no section longer than 30 minutes, the core three hours at most, and are headings and contents alike?"""
    rows = re.findall(r"^\| \[(2\.\d+ [^\]]+)\]\(#([^)]+)\) \|.*\| (\d+) \| (\w+) \|$", TEXT[0], re.MULTILINE)
    headings = [
        (title, minutes, path)
        for text in TEXT
        for title, path, minutes in re.findall(
            r"^## (2\.\d+ .+)\n\*(core|more|stretch) · about (\d+) min", text, re.MULTILINE
        )
    ]
    assert [(title, minutes, path) for title, _, minutes, path in rows] == headings
    assert all(link == title.replace(" ", "-") for title, link, _, _ in rows)
    assert max(int(minutes) for _, _, minutes, _ in rows) <= 30
    assert sum(int(minutes) for _, _, minutes, path in rows if path == "core") <= 180


def test_only_demo_cells_run_a_learners_part():
    """Would a stub break a cell that is neither its own, nor its check, nor a demo?"""
    for cell in CODE:
        used = {node.id for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Name)} & set(NAMES)
        own = {cell.metadata.get("exercise"), cell.metadata.get("check")} - {None}
        if is_demo(cell):
            (block,) = ast.parse(cell.source).body
            needed = {argument.value for argument in block.items[0].context_expr.args}
            assert used <= needed and needed <= set(NAMES), cell.source
        elif not own:
            assert not used, cell.source


def test_every_worked_number_of_the_phase_is_recomputed():
    """Does the learner meet each number of the notes that can be recomputed?"""
    source = SOURCE.read_text(encoding="utf-8")
    in_loops = tuple(re.findall(r'"(\d{3}-[\w-]+-row)\{', source))  # f"001-softmax-row{row + 1}"
    missing = {
        example.id
        for example in notes.examples(phase=2)
        if f'"{example.id}"' not in source and not example.id.startswith(in_loops)
    }
    without_inputs, of_phase_3 = {"000-score-matrix", "004-walkthrough-weights"}, {"004-mha-cost"}
    assert missing - of_phase_3 == without_inputs | {"001-expanded-arithmetic"}  # 76 small sums


def test_the_text_is_plain():
    """Does no cell belittle the reader or name our workplace?"""
    forbidden = r"\b(simply|just|obviously|trivial(ly)?|easy|easily|of course)\b|/work|/tmp"
    allowed = "Its meaning is easy to miss"
    assert not [m[0] for text in TEXT for m in re.finditer(forbidden, text.replace(allowed, ""), re.IGNORECASE)]


# ---- the runs


def execute(notebook, **options):
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(ROOT)}}, **options)
    client.execute(env={**os.environ, "OMP_NUM_THREADS": "2"})
    return notebook


def test_the_solved_lesson_runs_top_to_bottom():
    """Does a fresh kernel run all of it in time and in silence, every check full, every picture described?"""
    notebook, warnings = solution_notebook(SOURCE)
    began = time.monotonic()
    execute(notebook)  # raises at the first error
    assert time.monotonic() - began < LIMIT and not warnings
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    printed = "".join(output.get("text", "") for output in outputs)
    assert all(re.search(rf"✓ {name} · (\d+)/\1\b", printed) for name in NAMES)
    assert "waiting for" not in printed and "you ✗" not in printed
    html = [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    images = [alt for text in html for alt in re.findall(r'<img src="data:[^"]+" alt="([^"]*)"', text)]
    assert len(images) >= 10 and min(map(len, images)) > 40
    # Saved without the state of its widgets, as we commit it, a page shows their pictures.
    notebook.metadata.pop("widgets", None)
    page, _ = HTMLExporter().from_notebook_node(notebook)
    assert page.count("<img") == len(images) and "<b>Predict.</b>" in page


def test_the_blank_lesson_waits_instead_of_failing():
    """Does a learner who runs everything at once see waiting lines, and red only where something is to be built?"""
    notebook, _ = solution_notebook(SOURCE)
    notebook, _ = ClearSolutions().preprocess(notebook, {})
    demos = []
    for cell in notebook.cells:
        graded = cell.metadata.get("nbgrader", {}).get("grade")
        cell.metadata.tags = [*cell.metadata.get("tags", []), *(["raises-exception"] if graded else [])]
    execute(notebook)  # only checks may raise
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert not [output for output in cell.outputs if output.get("name") == "stderr"]
            if "demo" in cell.metadata.tags:
                demos.append("".join(output.get("text", "") for output in cell.outputs))
            if cell.metadata.get("nbgrader", {}).get("grade"):
                (output,) = cell.outputs
                assert "not implemented yet" in "".join(output.traceback)
    assert all(re.search(r"… waiting for \w+: build it in section 2\.\d+\n$", text) for text in demos)


def test_a_cell_that_was_not_run_is_named():
    """Does checking an exercise whose cell was skipped give one line, and another unknown name a traceback?"""
    cells = ["from utils.lesson import need", "print(sdpa)", "print(anything)"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    execute(notebook, allow_errors=True)
    friendly, ordinary = (cell.outputs[0] for cell in notebook.cells[1:])
    assert friendly.traceback == ["sdpa is not defined yet: run the cell that builds it, in section 2.3."]
    assert ordinary.ename == "NameError" and len(ordinary.traceback) > 1
