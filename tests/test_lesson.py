"""Tests of what a lesson's cells lean on: predictions, waiting lines, failures on purpose, pictures with words."""

import re

import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

from utils import lesson, oracle
from utils.checks import EXERCISES

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def displayed(monkeypatch):
    """The bundles that were displayed."""
    bundles = []
    monkeypatch.setattr(lesson, "display", lambda bundle, raw: bundles.append(bundle))
    monkeypatch.setattr(lesson, "_chosen", {})
    return bundles


def define(source, **names):
    """Run notebook cells and return what they define."""
    namespace = {"nn": nn, "torch": torch, **names}
    exec(source, namespace)
    return namespace


STUBS = """
def sdpa(q, k, v, attn_mask=None):
    raise NotImplementedError()

class SelfAttention(nn.Module):
    def __init__(self, d_model, d_head, causal=False):
        super().__init__()
        raise NotImplementedError()

def drawing():
    raise NotImplementedError()
"""


# ---- predict and reveal


def test_predict_has_three_faces(displayed):
    """Does one output carry the live buttons, their HTML and their words?"""
    lesson.predict("q1", "Is `a < b`?", ["yes", "`no`"])
    (bundle,) = displayed
    assert set(bundle) == {WIDGET, "text/html", "text/plain"}
    assert "<code>a &lt; b</code>" in bundle["text/html"] and "<li><code>no</code></li>" in bundle["text/html"]
    assert bundle["text/plain"].splitlines() == ["Predict: Is a < b?", "  ( ) yes", "  ( ) no"]


def test_predict_is_plain_text_while_grading(displayed, monkeypatch):
    """Does the grader, where nobody clicks, get no widget?"""
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    lesson.predict("q1", "Which?", ["this", "that"])
    assert WIDGET not in displayed[0] and "this" in displayed[0]["text/plain"]


@pytest.mark.parametrize(
    ("choice", "line"),
    [
        (None, "It is: sharper. Look."),
        ("flatter", "You said: flatter. It is: sharper. Look."),
        ("sharper", "✓ As you predicted: sharper. Look."),
    ],
)
def test_reveal_says_what_you_chose(displayed, capsys, choice, line):
    """Is a choice kept until the answer is shown?"""
    box = lesson._radio("scale", "Without the root?", ["flatter", "sharper"])
    if choice is not None:
        box.children[1].value = choice
    lesson.reveal("scale", "sharper", "Look.")
    assert capsys.readouterr() == (line + "\n", "")


def test_predict_keeps_the_choice_when_run_again(displayed):
    """Does running the cell twice lose what you chose?"""
    lesson._radio("q", "?", ["a", "b"]).children[1].value = "b"
    assert lesson._radio("q", "?", ["a", "b"]).children[1].value == "b"
    assert lesson._radio("q", "?", ["c", "d"]).children[1].value is None


# ---- need


@pytest.mark.parametrize(
    ("cell", "waits_for"),
    [
        ("sdpa(1, 2, 3)", "sdpa"),
        ("SelfAttention(6, 4)", "SelfAttention"),
        ("[sdpa(1, 2, 3) for _ in range(3)]", "sdpa"),
        ("(lambda: sdpa(1, 2, 3))()", "sdpa"),
        ("leaks_future(sdpa)", "leaks_future"),  # its cell was not run
        ("masked_softmax", "masked_softmax"),  # not named in need(), but an exercise all the same
    ],
)
def test_need_turns_a_missing_part_into_one_line(capsys, cell, waits_for):
    """Does a stub, or a cell that was not run, give one line and nothing else?"""
    namespace = define(STUBS)
    with lesson.need("sdpa", "leaks_future"):
        exec(cell, namespace)
    section = EXERCISES[waits_for].section
    assert capsys.readouterr() == (f"… waiting for {waits_for}: build it in section {section}\n", "")


@pytest.mark.parametrize(
    ("cell", "error"),
    [
        ("1 / 0", ZeroDivisionError),
        ("undefined_name", NameError),
        ("drawing()", NotImplementedError),  # no exercise
        ("raise NotImplementedError()", NotImplementedError),
        ("nn.Module()(1)", NotImplementedError),  # torch's own, with a message
        ("sdpa()", TypeError),
        ("raise NameError('by hand')", NameError),
    ],
)
def test_need_hides_no_other_error(capsys, cell, error):
    """Does a real mistake still show itself?"""
    with pytest.raises(error), lesson.need("sdpa"):
        exec(cell, define(STUBS))
    assert capsys.readouterr() == ("", "")


def test_need_is_silent_when_the_part_is_there(capsys):
    """Does a finished part run as if need were not there?"""
    with lesson.need("sdpa"):
        exec("print(sdpa(1, 2))", define("def sdpa(q, k): return q + k"))
    assert capsys.readouterr() == ("3\n", "")


# ---- names that were not run


class Shell:
    """Enough of IPython to see what is shown."""

    def showtraceback(self, exc_tuple, tb_offset=None):
        render = getattr(exc_tuple[1], "_render_traceback_", None)
        self.shown = render() if render else "an ordinary traceback"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("sdpa", ["sdpa is not defined yet: run the cell that builds it, in section 2.3."]),
        ("my_variable", "an ordinary traceback"),
    ],
)
def test_a_name_error_of_an_exercise_is_friendly(name, shown):
    """Does an exercise cell that was not run give one line naming it, and any other name a traceback?"""
    shell = Shell()
    try:
        exec(name, {})
    except NameError as error:
        lesson._explain_name_error(shell, NameError, error, error.__traceback__)
    assert shell.shown == shown


# ---- attempt


def test_attempt_prints_value_or_error_in_one_line(capsys):
    """Does the wrong way fail in one line, on stdout?"""
    lesson.attempt("fine", lambda: 3)
    lesson.attempt("broken", lambda: torch.ones(2) + torch.ones(3))
    lesson.attempt("silent", lambda: (_ for _ in ()).throw(ValueError()))
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == "fine: 3" and lines[2] == "silent: ✗ ValueError: " and err == ""
    assert lines[1].startswith("broken: ✗ RuntimeError: The size of tensor a (2) must match")


def test_attempt_leaves_a_stub_to_need(capsys):
    """Does an attempt at a part that is not built yet become a waiting line?"""
    namespace = define(STUBS)
    with lesson.need("sdpa"):
        lesson.attempt("try", lambda: namespace["sdpa"](1, 2, 3))
    assert capsys.readouterr().out.startswith("… waiting for sdpa")


# ---- show


def test_show_displays_an_image_with_its_words(displayed, capsys):
    """Is the picture an <img> with escaped alt text, twice as sharp as it is large, and quiet?"""
    figure = Figure(figsize=(3, 2))
    figure.subplots().plot([1, 2])
    lesson.show(figure, 'a "rising" line <up>')
    (bundle,) = displayed
    assert 'alt="a &quot;rising&quot; line &lt;up&gt;"' in bundle["text/html"] and 'width="300"' in bundle["text/html"]
    assert bundle["text/plain"] == '[picture] a "rising" line <up>'
    assert re.search(r'src="data:image/png;base64,iVBOR', bundle["text/html"])
    assert capsys.readouterr() == ("", "")


def test_show_draws_nothing_while_grading(displayed, monkeypatch):
    """Is a picture its words alone where nobody looks, and drawing it would cost more than all else in the cell?"""
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    monkeypatch.setattr(Figure, "savefig", None)
    lesson.show(Figure(), "two rising lines")
    assert displayed == [{"text/plain": "[picture] two rising lines"}]


def test_show_closes_a_pyplot_figure(displayed):
    """Is a figure made with pyplot shown once, not a second time at the end of the cell?"""
    import matplotlib.pyplot as plt

    figure, _ = plt.subplots()
    lesson.show(figure, "empty axes")
    assert not plt.fignum_exists(figure.number)


def test_a_part_is_finished_when_it_passes_its_check():
    """Is a right part handed on, and a stub or a wrong one kept back, without a word?"""

    def causal_mask(q_len, kv_len=None):
        raise NotImplementedError()

    assert lesson.finished(oracle.causal_mask) is oracle.causal_mask and lesson.finished(causal_mask) is None
