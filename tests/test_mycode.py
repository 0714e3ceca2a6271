"""mine("sdpa"): the learner's own part where it is right, the course's own where it is not, and which is said."""

import os
from types import SimpleNamespace

import pytest

from tests.own_work import BLANK, GOOD, UNSCALED, WEIGHTS, save
from utils import checks, mycode, oracle
from utils.checks import CheckFailed
from utils.checks.core import find
from utils.mycode import mine, notebook_of


def test_a_right_solution_is_used(course, capsys):
    """Finished and checked: is it the learner's own function, with one line that says so?"""
    path = save(course, "import torch", WEIGHTS, GOOD, "print('never')")
    sdpa = mine("sdpa")
    assert sdpa.__code__.co_filename == f"{path}[cell 3]"
    assert capsys.readouterr().out == "✓ using your own sdpa\n"


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (["import torch", WEIGHTS, BLANK], "yours is not finished in phase2_attention.ipynb as it was last saved"),
        (["import torch", WEIGHTS, UNSCALED], "yours does not pass its check yet"),
        ([GOOD], "yours does not pass its check yet"),
        (["def sdpa(q, k"], "cell 1 of phase2_attention.ipynb is not valid Python yet"),
        (["x = 1"], "phase2_attention.ipynb does not define it"),
        (["sdpa = 3"], "yours does not pass its check yet"),
    ],
)
def test_anything_less_gives_the_twin_and_the_reason(course, capsys, cells, reason):
    """Unfinished, wrong, broken or missing: the course's own, and one line that says why?"""
    save(course, *cells)
    assert mine("sdpa") is oracle.sdpa
    said = capsys.readouterr().out
    assert said.startswith(f"… using the course's sdpa, because {reason}") and said.count("\n") == 1


def test_the_likely_mistake_is_named(course, capsys):
    """A slip that the check knows: does the line name it?"""
    save(course, "import torch", WEIGHTS, UNSCALED)
    mine("sdpa")
    assert "(scores were not divided by" in capsys.readouterr().out


def test_no_notebook_is_no_accident(course, capsys):
    """Phase 2 was skipped: does phase 3 run?"""
    assert mine("sdpa") is oracle.sdpa
    assert "your phase2_attention.ipynb was not found" in capsys.readouterr().out


def test_a_damaged_notebook_is_no_accident(course, capsys):
    """Half a file: the twin, and a plain reason?"""
    save(course).write_text('{"cells": [')
    assert mine("sdpa") is oracle.sdpa
    assert "phase2_attention.ipynb is not a readable notebook" in capsys.readouterr().out


@pytest.mark.parametrize("mode", ["autograde", "validate"])
def test_while_grading_it_is_the_twin_and_nothing_is_read(course, capsys, monkeypatch, mode):
    """An old slip must not cost points twice: is the notebook not even opened?"""
    save(course, "import torch", WEIGHTS, GOOD)
    monkeypatch.setenv("NBGRADER_EXECUTION", mode)
    monkeypatch.setattr(mycode, "read_cells", lambda path: pytest.fail("the notebook was read"))
    monkeypatch.setattr(mycode, "notebook_of", lambda phase: pytest.fail("the notebook was looked for"))
    assert mine("sdpa") is oracle.sdpa
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("grading", [False, True])
def test_an_unknown_name_brings_the_nearest(course, monkeypatch, grading):
    """A slip of the pen: are near names offered, while grading as well?"""
    if grading:
        monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    with pytest.raises(CheckFailed, match="sdpb.*did you mean.*sdpa"):
        mine("sdpb")


def test_my_work_comes_first_then_the_neighbour_then_the_release(course):
    """Several notebooks of one phase: is it the learner's copy that counts?"""
    phase = "phase2_attention"
    assert notebook_of(phase) is None
    release = save(course, place="notebooks")
    assert notebook_of(phase) == release
    os.chdir(save(course, place="elsewhere", phase="phase3_multi_head").parent)
    neighbour = save(course, place="elsewhere")
    assert notebook_of(phase) == neighbour
    assert notebook_of(phase) != save(course) == notebook_of(phase)


def test_a_check_runs_once_until_the_file_changes(course, monkeypatch, capsys):
    """Is the answer kept until the notebook is saved again?"""
    runs = []
    evaluate = checks.evaluate
    monkeypatch.setattr(checks, "evaluate", lambda name, obj: runs.append(name) or evaluate(name, obj))
    path = save(course, "import torch", WEIGHTS, BLANK)
    assert mine("sdpa") is oracle.sdpa and mine("sdpa") is oracle.sdpa
    assert runs == ["sdpa"]
    save(course, "import torch", WEIGHTS, GOOD)
    os.utime(path, ns=(1, 1))
    first = mine("sdpa")
    assert first is mine("sdpa") is not oracle.sdpa and runs == ["sdpa", "sdpa"]
    assert capsys.readouterr().out.count("\n") == 4


def test_parts_that_lean_on_other_notebooks_are_renewed_with_them(course, monkeypatch, capsys):
    """Phase 3 is built on sdpa of phase 2: does saving phase 2 reach a part of phase 3, with one line printed?"""
    later, evaluate = "phase3_multi_head", checks.evaluate
    monkeypatch.setattr(mycode, "_find", lambda name: find(name) if name == "sdpa" else SimpleNamespace(phase=later))
    passed = SimpleNamespace(passed=True)
    monkeypatch.setattr(checks, "evaluate", lambda name, obj: evaluate(name, obj) if name == "sdpa" else passed)
    old = save(course, "import torch", WEIGHTS, GOOD)
    save(course, "from utils.mycode import mine\nsdpa = mine('sdpa')\ndef merge(x):\n    return sdpa", phase=later)
    assert mine("merge")(0).__code__.co_filename.startswith(str(old))
    assert capsys.readouterr().out == "✓ using your own merge\n"
    save(course, "import torch", WEIGHTS, BLANK)
    os.utime(old, ns=(1, 1))
    assert mine("merge")(0) is oracle.sdpa


def test_a_learners_output_stays_off_the_page(course, capsys):
    """A part that prints and warns while it is checked: is there still one line, and nothing on stderr?"""
    loud = GOOD.replace(
        "    return", "    import warnings\n    print('in sdpa')\n    warnings.warn('careful')\n    return"
    )
    save(course, "import torch", WEIGHTS, loud)
    mine("sdpa")
    said = capsys.readouterr()
    assert said.out == "✓ using your own sdpa\n" and said.err == ""


def test_a_class_arrives_whole(course, capsys):
    """A module with super() and parameters: does it pass its check, and can it be made?"""
    save(
        course,
        "import torch\nfrom torch import nn",
        WEIGHTS,
        GOOD,
        "def causal_mask(q_len, kv_len):\n    return torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)",
        """
class SelfAttention(nn.Module):
    def __init__(self, d_model, d_head, causal=False):
        super().__init__()
        self.w_q, self.w_k, self.w_v = (nn.Linear(d_model, d_head) for _ in range(3))
        self.causal = causal

    def forward(self, x, attn_mask=None):
        if self.causal:
            mask = causal_mask(x.shape[-2], x.shape[-2])
            attn_mask = mask if attn_mask is None else mask & attn_mask
        return sdpa(self.w_q(x), self.w_k(x), self.w_v(x), attn_mask)
""",
    )
    layer = mine("SelfAttention")(4, 3)
    assert capsys.readouterr().out == "✓ using your own SelfAttention\n"
    assert [name for name, _ in layer.named_children()] == ["w_q", "w_k", "w_v"]
