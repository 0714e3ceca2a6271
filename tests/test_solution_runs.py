"""The lessons: their sources keep the rules of the house, they run solved, and they run blank without a scare."""

import ast
import re
import resource
import statistics

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from nbgrader.preprocessors import ClearSolutions

from autograde.course import ROOT
from autograde.source import solution_notebook
from tests.lessons import LESSONS, is_demo, words
from utils import notes
from utils.checks import EXERCISES

LIMIT = 180  # seconds for a whole notebook
POINTS = {  # by code, and by each written answer
    "phase1_text_to_tensors": (50, [4, 4, 4]),
    "phase2_attention": (60, [4, 4, 4]),
    "phase3_multi_head": (47, [4, 4, 4]),
    "phase4_blocks": (70, [4, 4, 4]),
    "phase5_training_and_inference": (71, [4, 4, 4, 4]),
    "phase6_families_and_systems": (92, [4] * 8),  # six of them design a system
    "phase7_capstone": (55, [4, 4]),  # ten of them for the weights that are handed in
}
PLAIN = ("Its meaning is easy to miss",)  # sentences that may say so
ELSEWHERE = {  # worked numbers that a phase does not recompute, and why
    "phase2_attention": {
        *("000-score-matrix", "004-walkthrough-weights"),  # the notes give no inputs
        "001-expanded-arithmetic",  # 76 small sums
    },
    "phase1_text_to_tensors": set(),
    "phase3_multi_head": set(),
    "phase4_blocks": {  # the notes give no inputs
        *("000-ffn-hidden", "000-ffn-output", "000-output-logits", "002-ffn-hidden", "002-ffn-output"),
    },
    "phase5_training_and_inference": set(),
    "phase6_families_and_systems": set(),
    "phase7_capstone": set(),
}

every_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=str)
every_exercise = pytest.mark.parametrize(
    ("lesson", "name"), [pytest.param(lesson, name, id=name) for lesson in LESSONS for name in lesson.names]
)


# ---- the source


@every_lesson
def test_every_exercise_stands_in_its_section_and_order(lesson):
    """Do the lesson and the checks agree on names, order and section numbers?"""
    section, found = None, {}
    for cell in lesson.cells:
        if heading := re.search(rf"^## ({lesson.number}\.\d+) ", cell.source, re.MULTILINE):
            section = heading[1]
        if name := cell.metadata.get("exercise"):
            found[name] = section
    assert found == lesson.sections
    order = sorted(found, key=lambda name: int(found[name].split(".")[1]))
    assert order == list(found), "sections run backwards"


@every_lesson
def test_points_add_up(lesson):
    """Is the sum of the points, by code and by writing, the one that is meant?"""
    points = [ast.literal_eval(node.keywords[0].value) for node, _ in lesson.calls("check")]
    written = [cell.metadata["points"] for cell in lesson.cells if "written" in cell.metadata]
    assert (sum(points), written) == POINTS[lesson.phase] and len(points) == len(lesson.sections)


def ends_a_look(cell, name):
    """Is it the sentence to write about this exercise, the next task, or the next section?"""
    return cell.metadata.get("reflect") == name or bool(re.search(r"^(### Exercise|## \d)", cell.source, re.MULTILINE))


@every_exercise
def test_an_exercise_has_all_its_steps(lesson, name):
    """Has it a task with minutes and three hints, a stub with docstring, a check, and a look before what comes next?"""
    place = next(n for n, cell in enumerate(lesson.cells) if cell.metadata.get("exercise") == name)
    task, built, checked = lesson.cells[place - 1].source, lesson.cells[place], lesson.cells[place + 1]
    assert re.search(rf"### Exercise {lesson.number}\.\d+[a-c]? · `{name}` · (core|more|stretch) · about \d+ min", task)
    assert "**Build**" in task and "**Done when**" in task
    hints = re.findall(r"<summary>Hint (\d · \w+)</summary>", task)
    assert hints == ["1 · where", "2 · what", "3 · how"]
    definition = next(node for node in ast.parse(built.source).body if getattr(node, "name", None) == name)
    assert ast.get_docstring(definition) and checked.metadata["check"] == name
    ends = [n for n, cell in enumerate(lesson.cells) if n > place and ends_a_look(cell, name)]
    after = lesson.cells[place + 2 : ends[0] + 1]
    assert any(is_demo(cell) for cell in after) and len(after) <= 6 + (lesson.cells[ends[0]] is after[-1])


@every_lesson
def test_every_other_exercise_ends_in_a_sentence_to_write(lesson):
    """Does a learner say in words what at least half of the exercises, or nearly, were about?"""
    asked = [cell.metadata["reflect"] for cell in lesson.cells if "reflect" in cell.metadata]
    assert len(set(asked)) == len(asked) >= len(lesson.names) // 2 and set(asked) <= set(lesson.names)


@every_lesson
def test_every_prediction_is_revealed_later(lesson):
    """Has every question an answer further down, and is the answer one of the options?"""
    asked = {node.args[0].value: ast.literal_eval(node.args[2]) for node, _ in lesson.calls("predict")}
    told = {node.args[0].value: node.args[1].value for node, _ in lesson.calls("reveal")}
    assert asked.keys() == told.keys() and len(asked) >= 12
    assert all(told[name] in options for name, options in asked.items())
    position = {name: [n for n, cell in enumerate(lesson.code) if f'"{name}"' in cell.source] for name in asked}
    assert all(first < last for first, *_, last in position.values())


@every_lesson
def test_cells_are_short(lesson):
    """Are cells small enough for a tired reader?"""
    lengths = [len(cell.source.splitlines()) for cell in lesson.code]
    shown = [len(cell.source.splitlines()) for cell in lesson.code if "exercise" not in cell.metadata]
    assert max(shown) <= 25 and max(lengths) <= 50 and statistics.median(lengths) <= 8
    long = [text for text in lesson.text if words(text) > 120 and not re.search("SOLUTION|[|] section [|]", text)]
    assert not [text[:50] for text in long]
    assert len(lesson.text) <= 2 * len(lesson.code)


@every_lesson
def test_sections_can_be_left_and_the_core_fits_an_evening(lesson):
    """Is no section longer than 30 minutes (a stretch: 50), the core three hours, are headings and contents alike?"""
    n = lesson.number
    rows = re.findall(rf"^\| \[({n}\.\d+ [^\]]+)\]\(#([^)]+)\) \|.*\| (\d+) \| (\w+) \|$", lesson.text[0], re.MULTILINE)
    headings = [
        (title, minutes, path)
        for text in lesson.text
        for title, path, minutes in re.findall(
            rf"^## ({n}\.\d+ .+)\n\*(core|more|stretch) · about (\d+) min", text, re.MULTILINE
        )
    ]
    assert [(title, minutes, path) for title, _, minutes, path in rows] == headings
    assert all(link == title.replace(" ", "-") for title, link, _, _ in rows)
    assert all(int(minutes) <= (50 if path == "stretch" else 30) for _, _, minutes, path in rows)
    assert sum(int(minutes) for _, _, minutes, path in rows if path == "core") <= 180


def called(cell, name):
    """The calls of a function in a cell."""
    nodes = ast.walk(ast.parse(cell.source))
    return [node for node in nodes if isinstance(node, ast.Call) and getattr(node.func, "id", None) == name]


@every_lesson
def test_only_demo_cells_run_a_learners_part(lesson):
    """Would a stub break a cell that is neither its own, nor its check, nor a demo?"""
    for cell in lesson.code:
        used = {node.id for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Name)} & set(lesson.names)
        own = {cell.metadata.get("exercise"), cell.metadata.get("check")} - {None}
        if is_demo(cell):
            needed = {argument.value for call in called(cell, "need") for argument in call.args}
            finished = {argument.id for call in called(cell, "finished") for argument in call.args}
            assert used <= needed | finished and needed <= set(EXERCISES), cell.source
        elif not own:
            assert not used, cell.source


@every_lesson
def test_every_worked_number_of_the_phase_is_recomputed(lesson):
    """Does the learner meet each number of the notes that can be recomputed?"""
    source = lesson.source.read_text(encoding="utf-8")
    in_loops = tuple(re.findall(r'"(\d{3}-[\w-]+)\{', source))  # f"001-softmax-row{row + 1}"
    missing = {
        example.id
        for example in (notes.examples(phase=lesson.number) if lesson.number in notes.PHASES else ())
        if not re.search(rf"""["']{example.id}["']""", source) and not example.id.startswith(in_loops)
    }
    assert missing == ELSEWHERE[lesson.phase]


@every_lesson
def test_the_text_is_plain(lesson):
    """Does no cell belittle the reader or name our workplace?"""
    forbidden = r"\b(simply|just|obviously|trivial(ly)?|easy|easily|of course)\b|/work|/tmp"
    text = "\n".join(lesson.text)
    for allowed in PLAIN:
        text = text.replace(allowed, "")
    assert not [found[0] for found in re.finditer(forbidden, text, re.IGNORECASE)]


# ---- the runs


def execute(notebook, **options):
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(ROOT)}}, **options)
    client.execute()
    return notebook


SMALL = """
import functools, utils.data.python_source, utils.data.translation, utils.measure, utils.train
utils.data.python_source.find = functools.partial(utils.data.python_source.find, limit_bytes=1_000_000)
utils.data.translation.corpus = functools.partial(utils.data.translation.corpus, n_test=40)
utils.train.settings = functools.partial(utils.train.settings, steps=12)
utils.measure.sweep = functools.partial(utils.measure.sweep, steps=4)
"""  # the capstone trains for minutes; whether it learns is asked where it is solved


def elsewhere(notebook, folder, small=False):
    """The notebook with what it writes in another folder, and short runs if they are to be small."""
    for cell in notebook.cells:
        if 'RUNS = Path("runs")' in cell.source:
            cell.source = f"import os\nos.chdir({str(folder)!r})\n" + SMALL * small + cell.source
    return notebook


def cpu_of_kernels():
    """Seconds of all kernels that have ended: unlike a clock on the wall, other work on this machine counts little."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize(
    "lesson",
    [pytest.param(one, id=str(one), marks=[pytest.mark.slow] * (one.number == 7)) for one in LESSONS],
)
def test_the_solved_lesson_runs_top_to_bottom(lesson, tmp_path):
    """Does a fresh kernel run all of it in time and in silence, every check full, every picture described?"""
    notebook, warnings = solution_notebook(lesson.source)
    elsewhere(notebook, tmp_path)
    began = cpu_of_kernels()
    execute(notebook)  # raises at the first error
    assert 0 < cpu_of_kernels() - began < LIMIT + 60 * (lesson.number == 7) and not warnings
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    printed = "".join(output.get("text", "") for output in outputs)
    assert all(re.search(rf"✓ {name} · (\d+)/\1\b", printed) for name in lesson.sections)
    assert not [line for line in ("waiting for", "you ✗", "came back: False") if line in printed]
    html = [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    images = [alt for text in html for alt in re.findall(r'<img src="data:[^"]+" alt="([^"]*)"', text)]
    assert len(images) >= 6 and min(map(len, images)) > 40
    # Saved without the state of its widgets, as we commit it, a page shows their pictures.
    notebook.metadata.pop("widgets", None)
    page, _ = HTMLExporter().from_notebook_node(notebook)
    assert page.count("<img") == len(images) and "<b>Predict.</b>" in page


@every_lesson
def test_the_blank_lesson_waits_instead_of_failing(lesson, tmp_path):
    """Does a learner who runs everything at once see waiting lines, and red only where something is to be built?"""
    notebook, _ = solution_notebook(lesson.source)
    notebook, _ = ClearSolutions().preprocess(notebook, {})
    elsewhere(notebook, tmp_path, small=True)
    demos = []
    for cell in notebook.cells:
        graded = cell.metadata.get("nbgrader", {}).get("grade")
        cell.metadata.tags = [*cell.metadata.get("tags", []), *(["raises-exception"] if graded else [])]
    execute(notebook)  # only checks may raise
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert not [output for output in cell.outputs if output.get("name") == "stderr"]
            if "demo" in cell.metadata.tags and "with need(" in cell.source:
                demos.append("".join(output.get("text", "") for output in cell.outputs))
            if cell.metadata.get("nbgrader", {}).get("grade"):
                (output,) = cell.outputs
                assert "not implemented yet" in "".join(output.traceback)
    assert all(re.search(rf"… waiting for \w+: build it in section {lesson.number}\.\d+\n$", text) for text in demos)


def test_a_cell_that_was_not_run_is_named():
    """Does checking an exercise whose cell was skipped give one line, and another unknown name a traceback?"""
    cells = ["from utils.lesson import need", "print(sdpa)", "print(anything)"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    execute(notebook, allow_errors=True)
    friendly, ordinary = (cell.outputs[0] for cell in notebook.cells[1:])
    assert friendly.traceback == ["sdpa is not defined yet: run the cell that builds it, in section 2.3."]
    assert ordinary.ename == "NameError" and len(ordinary.traceback) > 1
