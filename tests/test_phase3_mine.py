"""Phase 3 on the learner's phase 2, phase 4 on their phase 3: parts that are there, and parts that are not."""

import json

import pytest

from tests.lessons import Lesson
from tests.own_work import BLANK, GOOD, UNSCALED, WEIGHTS
from utils import oracle
from utils.checks import evaluate
from utils.mycode import mine

LESSON = Lesson("phase3_multi_head")


def setup_of(lesson):
    return next(cell.source for cell in lesson.code if "setup" in cell.metadata.get("tags", []))


SETUP = setup_of(LESSON)
SOLVED = [cell.source for cell in LESSON.code if "exercise" in cell.metadata]


@pytest.fixture
def course(course, monkeypatch):
    """The same, the kernel running in the folder of phase 4."""
    here = course / "my_work" / "phase4_blocks"
    here.mkdir()
    monkeypatch.chdir(here)
    return course


def save(course, phase, *cells):
    path = course / "my_work" / phase / f"{phase}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells]}), encoding="utf8")


def test_half_of_phase_2_is_enough(course, capsys):
    """Are finished parts the learner's own, the others the course's, and does the layer on top of them pass?"""
    save(course, "phase2_attention", "import torch", WEIGHTS, BLANK)
    space = {}
    exec(SETUP, space)
    said = capsys.readouterr().out
    assert "✓ using your own attention_weights" in said
    assert "… using the course's sdpa, because yours is not finished" in said
    assert "… using the course's causal_mask, because" in said
    assert space["attention_weights"].__code__.co_filename.endswith("[cell 2]") and space["sdpa"] is oracle.sdpa
    for source in SOLVED[:4]:
        exec(source, space)
    assert evaluate("MultiHeadAttention", space["MultiHeadAttention"], own_twin_allowed=False).passed


def test_phase_4_takes_the_layer_and_what_it_leans_on(course, capsys):
    """Does mine("MultiHeadAttention") build the learner's class from phase 3, on the learner's phase 2?"""
    save(course, "phase2_attention", "import torch", WEIGHTS, GOOD)
    save(course, "phase3_multi_head", SETUP, *SOLVED)
    layer = mine("MultiHeadAttention")
    assert layer is not oracle.MultiHeadAttention
    assert capsys.readouterr().out == "✓ using your own MultiHeadAttention\n"


def test_an_unfinished_split_lends_the_course_layer(course, capsys):
    """Is a class that leans on a stub replaced, with the reason?"""
    stub = "def split_heads(x, n_heads):\n    raise NotImplementedError()"
    save(course, "phase3_multi_head", SETUP, stub, *SOLVED[1:])
    assert mine("MultiHeadAttention") is oracle.MultiHeadAttention
    assert "… using the course's MultiHeadAttention, because" in capsys.readouterr().out


def test_grading_never_reads_the_learner(course, monkeypatch):
    """While grading, is it always the course's own: an old slip must not cost points twice?"""
    save(course, "phase3_multi_head", "raise SystemExit('read')")
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    assert mine("MultiHeadAttention") is oracle.MultiHeadAttention


def test_a_layer_on_half_a_phase_2_is_still_the_learners(course, capsys):
    """Is the class their own in phase 4 although it leans, in its own notebook, on a part that the course lends?"""
    save(course, "phase2_attention", "import torch", BLANK)  # no attention_weights, which the layer needs
    save(course, "phase3_multi_head", SETUP, *SOLVED[:4])
    assert mine("MultiHeadAttention") is not oracle.MultiHeadAttention
    assert capsys.readouterr().out == "✓ using your own MultiHeadAttention\n"


def test_phase_4_starts_on_half_of_phases_2_and_3(course, capsys):
    """Does its setup cell run, take what is right, lend the rest, and say of each which it is?"""
    save(course, "phase2_attention", "import torch", WEIGHTS, UNSCALED)
    save(course, "phase3_multi_head", SETUP, *SOLVED[:2], "class MultiHeadAttention(nn.Module):\n    pass")
    space = {}
    exec(setup_of(Lesson("phase4_blocks")), space)
    said = [line for line in capsys.readouterr().out.splitlines() if line[:1] in "✓…"]
    assert len(said) >= 2 and all("using your own" in line or "because" in line for line in said)
    assert any("the course's MultiHeadAttention, because" in line for line in said)
    assert space["MultiHeadAttention"] is oracle.MultiHeadAttention


def test_an_old_slip_costs_nothing_in_the_next_phase(course, monkeypatch):
    """While grading, does a right layer earn everything though the learner's sdpa forgot to scale?"""
    save(course, "phase2_attention", "import torch", WEIGHTS, UNSCALED)
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    space = {}
    for source in (SETUP, *SOLVED[:4]):
        exec(source, space)
    assert space["sdpa"] is oracle.sdpa
    assert evaluate("MultiHeadAttention", space["MultiHeadAttention"], own_twin_allowed=False).score == 1
