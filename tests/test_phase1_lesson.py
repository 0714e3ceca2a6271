"""The lesson of phase 1: its source keeps the house rules, its pictures and figure work, it runs solved and blank."""

import ast
import os
import re
import statistics
import time
from pathlib import Path

import jupytext
import pytest
import torch
from nbclient import NotebookClient
from nbgrader.preprocessors import ClearSolutions

from autograde.source import solution_notebook
from utils import lesson, notes, oracle, plots
from utils.checks import EXERCISES
from utils.checks.phase1 import PHASE
from utils.widgets import phase1 as widgets

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "solutions" / PHASE / f"{PHASE}.py"
CELLS = jupytext.read(SOURCE).cells
TEXT = [cell.source for cell in CELLS if cell.cell_type == "markdown"]
CODE = [cell for cell in CELLS if cell.cell_type == "code"]
NAMES = [name for name, exercise in EXERCISES.items() if exercise.phase == PHASE]
LIMIT = 180  # seconds for the whole notebook


def is_demo(cell):
    return "demo" in cell.metadata.get("tags", [])


def words(text):
    """Words a reader reads: no tags, no hint that is still closed, and a formula counts as one."""
    text = re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)
    return len(re.findall(r"\w+", re.sub(r"<[^>]+>", "", re.sub(r"`[^`]*`", "code", text))))


def calls(name):
    return [
        node
        for cell in CODE
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == name
    ]


# ---- the source


def test_every_exercise_stands_in_its_section_and_order():
    """Do the lesson and the checks agree on names, sections and order?"""
    section, found = None, {}
    for cell in CELLS:
        if heading := re.search(r"^## (1\.\d+) ", cell.source, re.MULTILINE):
            section = heading[1]
        if name := cell.metadata.get("exercise"):
            found[name] = section
    assert found == {name: EXERCISES[name].section for name in NAMES}
    assert sorted(found, key=lambda name: int(found[name].split(".")[1])) == list(found)


@pytest.mark.parametrize("name", NAMES)
def test_an_exercise_has_all_its_steps(name):
    """Has it a task with minutes and three hints, a stub with docstring, a check, a look and a sentence to write?"""
    place = next(n for n, cell in enumerate(CELLS) if cell.metadata.get("exercise") == name)
    task, built, checked = CELLS[place - 1].source, CELLS[place], CELLS[place + 1]
    assert re.search(rf"### Exercise 1\.\d+[ab]? · `{name}` · (core|more) · about \d+ min", task)
    assert "**Build**" in task and "**Done when**" in task
    assert re.findall(r"<summary>Hint (\d · \w+)</summary>", task) == ["1 · where", "2 · what", "3 · how"]
    definition = next(node for node in ast.parse(built.source).body if getattr(node, "name", None) == name)
    assert ast.get_docstring(definition) and checked.metadata["check"] == name
    reflected = next(n for n, cell in enumerate(CELLS) if cell.metadata.get("reflect") == name)
    assert any(is_demo(cell) for cell in CELLS[place + 2 : reflected])


def test_every_prediction_is_revealed_later():
    """Has every question an answer further down, and is the answer one of the options?"""
    asked = {node.args[0].value: ast.literal_eval(node.args[2]) for node in calls("predict")}
    told = {node.args[0].value: node.args[1].value for node in calls("reveal")}
    assert asked.keys() == told.keys() and len(asked) >= len(NAMES)
    assert all(told[name] in options for name, options in asked.items())
    for name in asked:
        cells = [n for n, cell in enumerate(CODE) if f'"{name}"' in cell.source]
        assert cells[0] <= cells[-1] and len(cells) in (1, 2), name


def test_cells_are_short_and_sections_can_be_left():
    """Are cells and sections small enough for a tired reader, and does the core fit into three hours?"""
    lengths = [len(cell.source.splitlines()) for cell in CODE if not cell.metadata.get("exercise")]
    assert max(lengths) <= 25 and statistics.median(lengths) <= 8
    long = [text[:50] for text in TEXT if words(text) > 120 and "SOLUTION" not in text and "| section |" not in text]
    assert not long and len(TEXT) <= 2 * len(CODE)
    rows = re.findall(r"^\| \[(1\.\d+ [^\]]+)\]\(#([^)]+)\) \|.*\| (\d+) \| (\w+) \|$", TEXT[0], re.MULTILINE)
    pattern = r"^## (1\.\d+ .+)\n\*(core|more) · about (\d+) min"
    headings = [(t, m, p) for text in TEXT for t, p, m in re.findall(pattern, text, re.MULTILINE)]
    assert [(title, minutes, path) for title, _, minutes, path in rows] == headings
    assert all(link == title.replace(" ", "-") for title, link, _, _ in rows)
    assert max(int(minutes) for _, _, minutes, _ in rows) <= 30
    assert sum(int(minutes) for _, _, minutes, path in rows if path == "core") <= 180


def test_only_demo_cells_run_a_learners_part():
    """Would a stub break a cell that is neither its own, nor its check, nor a demo?"""
    for cell in CODE:
        used = {node.id for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Name)} & set(NAMES)
        if is_demo(cell):
            (block,) = ast.parse(cell.source).body
            needed = {argument.value for argument in block.items[0].context_expr.args}
            assert used <= needed and needed <= set(NAMES), cell.source
        elif not {cell.metadata.get("exercise"), cell.metadata.get("check")} - {None}:
            assert not used, cell.source


def test_every_worked_number_of_the_phase_is_recomputed():
    """Does the learner meet each number of the notes about this phase, and each of its slips by name?"""
    source = SOURCE.read_text(encoding="utf-8")
    in_a_loop = {f"000-x-enc-{word}" for word in ("the", "cat", "sat")}
    assert not {one.id for one in notes.examples(phase=1) if f'"{one.id}"' not in source} - in_a_loop
    assert not {slip.id for slip in notes.errata(phase=1) if not re.search(rf"\b{slip.id}\b", source)}


def test_the_text_is_plain():
    """Does no cell belittle the reader or name our workplace?"""
    forbidden = r"\b(simply|just|obviously|trivial(ly)?|easy|easily|of course)\b|/work|/tmp"
    assert not [m[0] for text in TEXT for m in re.finditer(forbidden, text, re.IGNORECASE)]


# ---- pictures and the figure

PICTURES = {
    "influence_by_distance": lambda: plots.influence_by_distance({"a": [1, 0.1, 0.0], "b": [1, 2, 3]}),
    "token_table": lambda: plots.token_table(*oracle.pad_batch([[3, 4], [5]], 3)),
    "position_map": lambda: plots.position_map(oracle.sinusoidal_positions(6, 4), marked=2),
    "position_row": lambda: plots.position_row(oracle.sinusoidal_positions(6, 4), 2, [2, 1, 0, 1, 2, 3]),
    "distance_curves": lambda: plots.distance_curves({"a": [0, 1, 2], "b": torch.ones(3)}),
    "text_to_tensors": plots.text_to_tensors,
}


@pytest.mark.parametrize("name", plots.phase1.__all__)
def test_a_picture_is_a_labelled_figure(name):
    """Does each draw, with every axis named?"""
    figure = PICTURES[name]()
    figure.canvas.draw()
    for axes in figure.axes:
        if axes.axison and axes.get_label() != "<colorbar>":
            assert axes.get_title() and axes.get_xlabel() and axes.get_ylabel()


def test_the_explorer_shows_what_its_controls_say():
    """Does each control recompute words and picture, by the function that was handed over?"""
    explorer = widgets.PositionExplorer(oracle.sinusoidal_positions)
    explorer.widget()
    seen = {explorer.readout.value}
    for control, value in (
        (explorer.place_control, 9),
        (explorer.width_control, 4),
        (explorer.base_control, 10),
    ):
        control.value = value
        seen.add(explorer.readout.value)
        assert control.description and f"place {explorer.place}" in explorer.canvas.value
    assert len(seen) == 4 and (explorer.place, explorer.d_model, explorer.base) == (9, 4, 10)
    assert explorer.distances()[9] == 0
    assert torch.allclose(widgets.waves(9, 6, 37.0), oracle.sinusoidal_positions(9, 6, 37.0), atol=1e-6)


def test_no_widget_is_made_while_grading(monkeypatch):
    """Does the grader get the picture and the words alone?"""
    bundles = []
    monkeypatch.setattr(lesson, "display", lambda bundle, raw: bundles.append(bundle))
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    widgets.position_explorer()
    assert set(bundles[0]) == {"text/html", "text/plain"} and "nearest" in bundles[0]["text/plain"]


# ---- the runs


def execute(notebook):
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(ROOT)}})
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
    assert "waiting for" not in printed and "came back: False" not in printed
    html = [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    images = [alt for text in html for alt in re.findall(r'<img src="data:[^"]+" alt="([^"]*)"', text)]
    assert len(images) >= 6 and min(map(len, images)) > 40


def test_the_blank_lesson_waits_instead_of_failing():
    """Does a learner who runs everything at once see waiting lines, and red only where something is to be built?"""
    notebook, _ = ClearSolutions().preprocess(solution_notebook(SOURCE)[0], {})
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade"):
            cell.metadata.tags = [*cell.metadata.get("tags", []), "raises-exception"]
    execute(notebook)  # only checks may raise
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        assert not [output for output in cell.outputs if output.get("name") == "stderr"]
        if is_demo(cell):
            text = "".join(output.get("text", "") for output in cell.outputs)
            assert re.search(r"… waiting for \w+: build it in section 1\.\d+\n$", text), cell.source
        if cell.metadata.get("nbgrader", {}).get("grade"):
            (output,) = cell.outputs
            assert "not implemented yet" in "".join(output.traceback)
