"""Phase 2 through real nbgrader, from the repository's own notebooks: one small class, graded once by the commands."""

import csv
import shutil

import nbformat
import pytest
from nbgrader.api import Gradebook
from nbgrader.validator import Validator
from typer.testing import CliRunner

from autograde.cli import app
from autograde.course import ROOT, load_config
from tests.sample_course import cell, make_root, read, submit
from utils.checks import EXERCISES

PHASE = "phase2_attention"
WRITTEN = {"why-scale", "why-masks", "self-and-cross"}
SOLVED = ["masked_softmax", "attention_weights", "score_variance", "causal_mask", "padding_mask", "softmax_jacobian",
          "attention_cost"]  # fmt: skip
REFUSES_NOTHING = """def sdpa(q, k, v, attn_mask=None):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return masked_softmax(scores, attn_mask) @ v
"""
ZEROS = {
    "masked_softmax": "def masked_softmax(scores, attn_mask=None, dim=-1):\n    return torch.zeros_like(scores)",
    "attention_weights": """def attention_weights(q, k, attn_mask=None):
    return torch.zeros(*q.shape[:-1], k.shape[-2], dtype=q.dtype)""",
    "sdpa": """def sdpa(q, k, v, attn_mask=None):
    return torch.zeros(*q.shape[:-1], v.shape[-1], dtype=q.dtype)""",
    "score_variance": "def score_variance(d_head, n_samples, generator):\n    return 0.0, 0.0",
    "causal_mask": """def causal_mask(q_len, kv_len=None):
    return torch.zeros(q_len, kv_len or q_len, dtype=torch.bool)""",
    "padding_mask": """def padding_mask(pad_mask):
    return torch.zeros(pad_mask.shape[0], 1, 1, pad_mask.shape[1], dtype=torch.bool)""",
    "combine_masks": """def combine_masks(*masks):
    masks = [mask for mask in masks if mask is not None]
    return torch.zeros(torch.broadcast_shapes(*(mask.shape for mask in masks)), dtype=torch.bool)""",
    "softmax_jacobian": "def softmax_jacobian(probs):\n    return np.zeros((len(probs), len(probs)))",
    "softmax_backward": "def softmax_backward(probs, grad):\n    return np.zeros_like(probs)",
    "sdpa_backward": """def sdpa_backward(grad_out, q, k, v, attn_mask=None):
    return np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)""",
    "SelfAttention": """class SelfAttention(nn.Module):
    def __init__(self, d_model, d_head, causal=False):
        super().__init__()
        self.w_q, self.w_k, self.w_v = (nn.Linear(d_model, d_head, bias=False) for _ in range(3))
        self.w_o = nn.Linear(d_head, d_model, bias=False)
    def forward(self, x, attn_mask=None):
        return torch.zeros_like(x)""",
    "leaks_future": "def leaks_future(attention):\n    return False",
    "attention_cost": """def attention_cost(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    return 0, 0""",
    "streaming_attention": """def streaming_attention(q, k, v, block_size, attn_mask=None):
    return torch.zeros(*q.shape[:-1], v.shape[-1], dtype=q.dtype)""",
}


def handed_in(root):
    """What the class hands in: a solution, nothing, a half, and zeros of the right shape."""
    solution, blank = read(root, "solutions", PHASE), read(root, phase=PHASE)
    half, zeros = read(root, phase=PHASE), read(root, phase=PHASE)
    for name in SOLVED:
        cell(half, f"{name}-build").source = cell(solution, f"{name}-build").source
    cell(half, "sdpa-build").source = REFUSES_NOTHING
    cell(half, "why-masks").source = "Masks hide padding and the future."
    for name, source in ZEROS.items():
        cell(zeros, f"{name}-build").source = source
    return {"full": solution, "blank": blank, "half": half, "zeros": zeros}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """The course directory after `autograde grade`, `feedback` and `export`."""
    root = make_root(tmp_path_factory.mktemp("round_trip"))
    for folder in ("solutions", "notebooks"):
        shutil.copytree(ROOT / folder, root / folder)
    for student, notebook in handed_in(root).items():
        submit(root, student, notebook, PHASE)
    for command in ("grade", "feedback", "export"):
        result = CliRunner(env={"COLUMNS": "160"}).invoke(app, [command, PHASE, "--course", str(root)])
        assert result.exit_code == 0, result.output
    return root


@pytest.fixture(scope="module")
def grades(graded):
    """student -> grade id -> (points, of, waits for a reader)."""
    found = {}
    with Gradebook(load_config(graded).CourseDirectory.db_url) as gradebook:
        for submission in gradebook.assignment_submissions(PHASE):
            [notebook] = submission.notebooks
            rows = {g.name: (g.auto_score, g.max_score, g.needs_manual_grade) for g in notebook.grades}
            found[submission.student.id] = rows
    return found


def by_machine(grades, student):
    return {name: (points, of) for name, (points, of, _) in grades[student].items() if name not in WRITTEN}


def test_the_solution_earns_everything(grades):
    """Does our own solution get full marks for every exercise?"""
    assert set(by_machine(grades, "full")) == {name for name, e in EXERCISES.items() if e.phase == PHASE}
    assert {name: row for name, row in by_machine(grades, "full").items() if row[0] != row[1]} == {}


@pytest.mark.parametrize("student", ["blank", "zeros"])
def test_nothing_earns_nothing(grades, student):
    """Do a blank notebook, and zeros of the right shape, get 0 for every exercise?"""
    assert {name: row for name, row in by_machine(grades, student).items() if row[0] != 0} == {}


def test_half_the_work_earns_exactly_its_share(grades):
    """Does each solved exercise count in full, each other one not at all, and the total add up?"""
    rows = by_machine(grades, "half")
    points = {name: got for name, (got, _) in rows.items() if name != "sdpa"}
    assert points == {name: (of if name in SOLVED else 0) for name, (_, of) in rows.items() if name != "sdpa"}


def test_partial_credit_is_a_fraction(grades):
    """Does an sdpa that is right, but refuses no bad sizes, get its 8 tenths: shape 1, values 4, gradients 3?"""
    points, of = by_machine(grades, "half")["sdpa"]
    assert points == pytest.approx(0.8 * of)


def test_written_answers_wait_for_a_person(grades):
    """Does an answer wait to be read, and an untouched one count 0 at once?"""
    assert {name for name in WRITTEN if grades["full"][name] == (None, 4, True)} == WRITTEN
    assert grades["half"]["why-masks"] == (None, 4, True)
    assert {grades["blank"][name] for name in WRITTEN} == {(0, 4, False)}


def test_the_export_adds_up(graded, grades):
    """Does the csv hold each student's total, and the sum of all points as the maximum?"""
    with (graded / "autograde" / "grades.csv").open(newline="") as file:
        rows = {row["student_id"]: row for row in csv.DictReader(file)}
    for student, cells in grades.items():
        assert float(rows[student]["score"]) == pytest.approx(sum(points or 0 for points, _, _ in cells.values()))
        assert float(rows[student]["max_score"]) == sum(of for _, of, _ in cells.values())


def test_feedback_says_what_the_checks_said(graded):
    """Does each learner get a page with the reports of their checks and no model answer?"""
    folder = graded / "autograde" / "feedback"
    pages = {s: (folder / s / PHASE / f"{PHASE}.html").read_text(encoding="utf-8") for s in ("full", "blank", "half")}
    assert "✓ masked_softmax" in pages["full"] and "✗ masked_softmax · not implemented yet" in pages["blank"]
    assert "✓ masked_softmax" in pages["half"] and "Masks hide padding" in pages["half"]
    assert "scores.masked_fill(~attn_mask, lowest)" not in pages["blank"]


def test_no_cell_of_ours_fails_in_a_solved_notebook(graded):
    """Does the whole solved notebook run without an error or a word on stderr, demos left out?"""
    path = graded / "autograde" / "autograded" / "full" / PHASE / f"{PHASE}.ipynb"
    outputs = [(c.id, o) for c in nbformat.read(path, as_version=4).cells for o in c.get("outputs", [])]
    assert [(name, o) for name, o in outputs if o.output_type == "error" or o.get("name") == "stderr"] == []


def test_validate_shows_the_report_and_nothing_else(graded):
    """Does the Validate button name what is open, each with our report alone, and count unanswered questions?"""
    config = load_config(graded)
    path = graded / "autograde" / "submitted" / "half" / PHASE / f"{PHASE}.ipynb"
    failed = {cell["source"]: cell["raw_error"] for cell in Validator(config=config).validate(str(path))["failed"]}
    open_checks = {source.split("(")[1].split(",")[0]: error for source, error in failed.items() if "check(" in source}
    assert set(open_checks) == {name for name, one in EXERCISES.items() if one.phase == PHASE and name not in SOLVED}
    for name, error in open_checks.items():
        assert error.startswith(f"✗ {name} ·") and "Traceback" not in error and "---" not in error
    assert failed["YOUR ANSWER HERE"] == "You did not provide a response."
