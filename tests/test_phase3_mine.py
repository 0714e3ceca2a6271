"""Phase 3 on the learner's phase 2, phase 4 on their phase 3: parts that are there, and parts that are not."""

import json

import pytest

from tests.lessons import Lesson
from tests.test_mycode import BLANK, GOOD, WEIGHTS
from utils import mycode, oracle
from utils.checks import evaluate
from utils.mycode import mine

LESSON = Lesson("phase3_multi_head")
SETUP = next(cell.source for cell in LESSON.code if "setup" in cell.metadata.get("tags", []))
SOLVED = [cell.source for cell in LESSON.code if "exercise" in cell.metadata]


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course folder of its own, the kernel running in the folder of phase 4."""
    here = tmp_path / "my_work" / "phase4_blocks"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setattr(mycode, "course_root", lambda: tmp_path)
    monkeypatch.setattr(mycode, "_cache", {})
    return tmp_path


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
