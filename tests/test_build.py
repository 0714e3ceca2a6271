"""Does an authored lesson become the right notebooks, and does a slip become a sentence?"""

import json
import re
import subprocess
import sys

import nbformat
import pytest
from typer.testing import CliRunner

from autograde.build import BuildError, differences, render, write
from autograde.cli import app
from autograde.seal import is_sealed
from autograde.source import LessonError, solution_notebook
from tests.sample_course import LESSON, PADDING, PHASE, cell, make_course, read


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return make_course(tmp_path_factory.mktemp("course"))


@pytest.fixture
def own_course(tmp_path):
    return make_course(tmp_path)


def lesson_file(tmp_path, text):
    path = tmp_path / "solutions" / PHASE / f"{PHASE}.py"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return path


def notebook_of(tmp_path, text):
    return solution_notebook(lesson_file(tmp_path, text))[0]


def test_tags_become_nbgrader_metadata(course):
    """Does each tag give the kind of cell nbgrader needs, with the points of the call?"""
    release = read(course)
    kinds = {
        name: (meta["grade"], meta["solution"], meta["locked"], meta.get("points"))
        for name in ("setup", "causal_mask-build", "causal_mask", "padding_mask", "why-masks")
        for meta in [cell(release, name).metadata.nbgrader]
    }
    assert kinds == {
        "setup": (False, False, True, None),
        "causal_mask-build": (False, True, False, None),
        "causal_mask": (True, False, True, 4),
        "padding_mask": (True, False, True, 2),
        "why-masks": (True, True, False, 3),
    }
    assert cell(release, "causal_mask").metadata["editable"] is False
    demo = next(c for c in release.cells if "SystemExit" in c.source)
    assert demo.metadata == {"tags": ["demo"]}


def test_the_release_holds_stubs_and_no_answer(course):
    """Is each solution replaced by a stub that says it is not implemented, docstring kept?"""
    release = read(course)
    assert cell(release, "causal_mask-build").source == (
        'def causal_mask(q_len, kv_len=None):\n    """Who may look where."""\n'
        "    # YOUR CODE HERE\n    raise NotImplementedError()"
    )
    assert cell(release, "why-masks").source == "YOUR ANSWER HERE"
    assert ".tril(" not in nbformat.writes(release)


def test_cell_ids_say_what_the_cell_is(course):
    """Is a cell's id its grade id, else its heading, else a hash of what it says?"""
    ids = [c.id for c in read(course).cells]
    assert ids[:5] == ["a-lesson-in-two-exercises", "setup", "1-1-masks", "causal_mask-build", "causal_mask"]
    assert "reflect-padding_mask" in ids and "why-masks" in ids
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in ids)


def test_cells_that_read_the_same_get_ids_of_their_own(tmp_path):
    """Are ids unique where two headings or two cells are alike?"""
    twice = '# %% [markdown]\n# ## Same\n\n# %%\nprint(1)\n\n# %% tags=["setup"]\nimport os\n'
    ids = [c.id for c in notebook_of(tmp_path, twice * 3 + "# %% [markdown]\n# ## Setup 2\n").cells]
    assert len(set(ids)) == len(ids) and ids[0] == "same" and ids[3] == "same-2" and ids[5] == "setup-2"


def test_building_again_gives_the_same_bytes(course):
    """Is a second build byte-identical, so that a rebuild never shows up in git?"""
    assert render(course).files == render(course).files
    assert differences(course) == []
    assert write(course, render(course)) == ([], None)


def test_plain_nbgrader_gives_the_same_bytes(course):
    """Does `nbgrader generate_assignment` write what `autograde build` wrote, without a warning of its database?"""
    path = course / "notebooks" / PHASE / f"{PHASE}.ipynb"
    ours = path.read_bytes()
    command = [sys.executable, "-m", "nbgrader", "generate_assignment", PHASE, "--force"]
    done = subprocess.run(command, cwd=course, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert path.read_bytes() == ours
    assert "SAWarning" not in done.stderr


def test_notebooks_hold_no_outputs_and_a_fixed_kernel(course):
    """Do both notebooks come without outputs, counts or the kernel of the author's machine?"""
    for notebook in (read(course), read(course, "solutions")):
        assert all(not c.outputs and c.execution_count is None for c in notebook.cells if c.cell_type == "code")
        assert notebook.metadata.kernelspec == {"display_name": "Python 3", "language": "python", "name": "python3"}
        assert "version" not in notebook.metadata.language_info and is_sealed(notebook)
        nbformat.validate(notebook)


def test_building_leaves_the_gradebook_alone(own_course):
    """Can one build without touching the class's gradebook?"""
    assert not list(own_course.rglob("gradebook.db"))


def test_other_files_travel_but_sources_do_not(own_course):
    """Is a picture released with its phase, and the .py with the solutions kept back?"""
    folder = own_course / "solutions" / PHASE
    (folder / "picture.png").write_bytes(b"png")
    (folder / "plan.md").write_text("the answers")
    write(own_course, render(own_course))
    released = sorted(p.name for p in (own_course / "notebooks").rglob("*") if p.is_file())
    assert released == ["picture.png", f"{PHASE}.ipynb"]


def test_a_flat_page_is_built_beside_the_phases(own_course):
    """Does solutions/pages/x.py become notebooks/x.ipynb, and may it hold no exercise?"""
    page = own_course / "solutions" / "pages" / "start.py"
    page.parent.mkdir()
    page.write_text("# %% [markdown]\n# # Start\n\n# %%\nprint('hello')\n")
    write(own_course, render(own_course, ["start"]))
    notebook = nbformat.read(own_course / "notebooks" / "start.ipynb", as_version=4)
    assert [c.id for c in notebook.cells][0] == "start" and is_sealed(notebook)
    page.write_text(LESSON)
    with pytest.raises(BuildError, match="a flat page is not graded"):
        render(own_course, ["start"])


REGION = f"    ### BEGIN SOLUTION\n{PADDING}\n    ### END SOLUTION"
HIDDEN = "### BEGIN HIDDEN TESTS\n1\n### END HIDDEN TESTS\n"
RAISES_ELSEWHERE = (
    "### BEGIN SOLUTION\ny = 1\n### END SOLUTION\ndef causal_mask(q_len, kv_len=None):\n    return 1\n\ndef other(x):"
)
SLIPS = {
    "tag and call disagree": (
        '"\ncheck(causal_mask',
        '"\ncheck(padding_mask',
        r'check="causal_mask" over check\(padding_mask',
    ),
    "check without points": ("check(causal_mask, points=4)", "check(causal_mask)", "no points: write check"),
    "points of zero": ("check(causal_mask, points=4)", "check(causal_mask, points=0)", "no points"),
    "check is not last": (
        "check(causal_mask, points=4)",
        "check(causal_mask, points=4)\n2.5",
        "last line of a check cell",
    ),
    "points in the tag": ('check="causal_mask"', 'check="causal_mask" points=4', "points stand in the check call"),
    "check without exercise": ('exercise="causal_mask"', 'tags=["demo"]', 'check "causal_mask" has no exercise'),
    "exercise without check": (
        '# %% check="causal_mask"\ncheck(causal_mask, points=4)',
        "",
        'exercise "causal_mask" has no check',
    ),
    "duplicate id": ('written="why-masks"', 'written="causal_mask"', 'the id "causal_mask" is already taken'),
    "no solution region": (REGION, "    return x", "needs one ### BEGIN SOLUTION"),
    "region never ends": ("None, :]\n    ### END SOLUTION", "None, :]", "END SOLUTION"),
    "stub that does not raise": (
        "def causal_mask(q_len, kv_len=None):",
        RAISES_ELSEWHERE,
        "stub of causal_mask does not raise NotImplemented",
    ),
    "other name in the cell": (
        "def causal_mask(q_len, kv_len=None):",
        "def twice(q_len, kv_len=None):",
        "defines twice; it must define causal_mask",
    ),
    "cell is not Python": ("pad_mask[:, None", "pad_mask[:, None +", "not valid Python"),
    "solution in a plain cell": ("raise SystemExit", REGION + "\nraise SystemExit", "outside an exercise"),
    "hidden region": ("check(causal_mask,", HIDDEN + "check(causal_mask,", "hidden cases stand in"),
    "hidden module": ("import torch", "import autograde.hidden.x", "hidden cases stand in"),
    "written without points": (" points=3", "", 'written "why-masks" has no points'),
    "written without rubric": ("| points |", "| sum |", "no rubric in the text cell above"),
    "rubric of other points": ("| 2 | the future", "| 3 | the future", "adds up to 4 points, the tag says 3"),
    "written without model answer": ("# ### BEGIN SOLUTION\n", "", "needs a model answer"),
    "dangling attachment": (
        "Build `causal_mask`.",
        "![x](attachment:gone.png)",
        "attachment:gone.png points to nothing",
    ),
    "misspelt tag": ('exercise="causal_mask"', 'excercise="causal_mask"', "unknown tag excercise"),
    "misspelt label": ('tags=["demo"]', 'tags=["dem"]', "unknown tag dem"),
    "two kinds in one cell": (
        'check="causal_mask"',
        'check="causal_mask" exercise="causal_mask"',
        "cannot be check and exercise",
    ),
    "id with a blank": ('written="why-masks"', 'written="why twice"', "not a valid id"),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_of_the_author_becomes_a_sentence(tmp_path, slip):
    """Does the build say what is wrong, in words, with the file, the line and the cell?"""
    right, wrong, message = SLIPS[slip]
    assert right in LESSON
    with pytest.raises(LessonError, match=message) as told:
        notebook_of(tmp_path, LESSON.replace(right, wrong))
    assert re.search(rf"solutions/{PHASE}/{PHASE}\.py:\d+ \(cell \d+\): ", str(told.value))


def test_the_line_of_a_slip_is_the_line_of_its_cell(tmp_path):
    """Does the line number lead to the cell's own marker?"""
    text = LESSON.replace("check(padding_mask, points=2)", "check(padding_mask)")
    with pytest.raises(LessonError) as told:
        notebook_of(tmp_path, text)
    line = int(re.search(r"\.py:(\d+)", str(told.value))[1])
    assert text.splitlines()[line - 1] == '# %% check="padding_mask"'


def test_every_slip_is_told_at_once(tmp_path):
    """Does an author see all slips in one go?"""
    text = LESSON.replace(", points=2)", ")").replace(", points=4)", ")")
    with pytest.raises(LessonError) as told:
        notebook_of(tmp_path, text)
    assert len(str(told.value).splitlines()) == 2


def test_a_long_cell_warns_but_a_long_solution_does_not(tmp_path):
    """Is an author warned of more than 25 lines, except where the learner never sees them?"""
    long_solution = LESSON.replace("return pad_mask", "y = 0\n" + "    y += 1\n" * 30 + "    return pad_mask")
    assert solution_notebook(lesson_file(tmp_path / "a", long_solution))[1] == []
    long_cell = LESSON.replace("raise SystemExit", "x = 1\n" * 30 + "raise SystemExit")
    [warning] = solution_notebook(lesson_file(tmp_path / "b", long_cell))[1]
    assert "31 lines of code" in warning


@pytest.mark.parametrize("kind", ["notebooks", "solutions"])
def test_a_changed_notebook_is_never_overwritten(own_course, kind):
    """Is somebody's work left alone when they edited a built notebook, and can it be forced with a copy kept?"""
    path = own_course / kind / PHASE / f"{PHASE}.ipynb"
    edited = path.read_text().replace("two exercises", "three exercises")
    path.write_text(edited)
    with pytest.raises(BuildError, match=rf"{kind}/{PHASE}/{PHASE}.ipynb"):
        write(own_course, render(own_course))
    assert path.read_text() == edited
    written, kept = write(own_course, render(own_course), force=True)
    assert [str(p) for p in written] == [f"{kind}/{PHASE}/{PHASE}.ipynb"]
    assert (kept / kind / PHASE / f"{PHASE}.ipynb").read_text() == edited
    assert differences(own_course) == []


def test_a_file_that_is_no_notebook_is_not_overwritten(own_course):
    """Is a half-merged notebook, which is no JSON any more, left alone too?"""
    path = own_course / "notebooks" / PHASE / f"{PHASE}.ipynb"
    path.write_text("<<<<<<< HEAD")
    with pytest.raises(BuildError, match="left alone"):
        write(own_course, render(own_course))


def test_our_own_old_output_is_replaced(own_course):
    """Does an ordinary edit of the source go through without asking?"""
    source = own_course / "solutions" / PHASE / f"{PHASE}.py"
    source.write_text(source.read_text().replace("Build `causal_mask`.", "Build **causal_mask**."))
    assert len(differences(own_course)) == 2
    write(own_course, render(own_course))
    assert "Build **causal_mask**." in nbformat.writes(read(own_course))


def test_check_tells_what_differs(own_course):
    """Does --check name missing, changed and left-over files, and say so by its exit code?"""
    run = CliRunner().invoke
    assert run(app, ["build", "--check", "--course", str(own_course)]).exit_code == 0
    (own_course / "notebooks" / "old.ipynb").write_text("{}")
    (own_course / "notebooks" / PHASE / f"{PHASE}.ipynb").write_text("{}")
    (own_course / "solutions" / PHASE / f"{PHASE}.ipynb").unlink()
    result = run(app, ["build", "--check", "--course", str(own_course)])
    assert result.exit_code == 1
    for words in ("sample.ipynb is missing", "sample.ipynb differs from its source", "old.ipynb has no source"):
        assert words in result.output


def test_the_command_says_what_went_wrong(own_course):
    """Does `autograde build` end with a sentence, not a traceback?"""
    run = CliRunner().invoke
    result = run(app, ["build", "phase9", "--course", str(own_course)])
    assert result.exit_code == 1 and "no source for phase9; there is sample" in result.output
    (own_course / "notebooks" / PHASE / f"{PHASE}.ipynb").write_text(json.dumps({"cells": []}))
    result = run(app, ["build", "--course", str(own_course)])
    assert result.exit_code == 1 and "left alone" in result.output and "Traceback" not in result.output


def test_python_m_autograde_is_the_same_command():
    """Does `python -m autograde` offer the instructor's commands?"""
    done = subprocess.run([sys.executable, "-m", "autograde", "--help"], capture_output=True, text=True)
    assert all(name in done.stdout for name in ("build", "grade", "feedback", "export", "kill-matrix"))


def test_kill_matrix_hands_its_arguments_on(monkeypatch):
    """Does `autograde kill-matrix sdpa --no-mutants` reach the matrix, and its verdict the shell?"""
    seen = []
    monkeypatch.setattr("autograde.kill_matrix.main", lambda arguments: seen.extend(arguments) or 1)
    result = CliRunner().invoke(app, ["kill-matrix", "sdpa", "--no-mutants"])
    assert (seen, result.exit_code) == (["sdpa", "--no-mutants"], 1)
