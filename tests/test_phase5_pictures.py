"""Pictures and figures of training and decoding: labels, legibility, and that a control changes what is shown."""

import inspect
import math

import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.text import Text

from utils import oracle, plots
from utils.plots import phase5
from utils.widgets import phase5 as widgets

WORDS = ["<END>", "deep", "machine", "learning"]
SHARES = {(): (0.0, 0.6, 0.4, 0.0), (1,): (0.5, 0.2, 0.1, 0.2), (2,): (0.05, 0.0, 0.0, 0.95)}
FOUND = {n: {"teacher_forced": n / 100, "free_running": n / 200, "gap": n / 200} for n in (20, 60, 90)}


def follow(tokens):
    """Shares by the words so far; then <END>."""
    rows = [SHARES.get(tuple(row[1:]), (1.0, 0.0, 0.0, 0.0)) for row in tokens.tolist()]
    return torch.tensor(rows, dtype=torch.float64).log()


EDGES = [((), (1,), "deep", -0.5), ((), (2,), "machine", -0.9), ((1,), (1, 0), "<END>", -0.7)]
PICTURES = {
    "beam_branches": lambda: plots.beam_branches(EDGES, {(), (1,), (1, 0)}, {(1,), (1, 0)}, "one beam"),
    "descent_paths": lambda: plots.descent_paths({"a": torch.zeros(3, 2), "b": torch.ones(3, 2)}),
    "exposure": lambda: plots.exposure(FOUND),
    "kept_words": lambda: plots.kept_words(WORDS, torch.full((4,), 0.25), torch.tensor([0, 0.5, 0.5, 0]), "top-k 2"),
    "loss_curves": lambda: plots.loss_curves(torch.arange(3.0), {"ε = 0": [3, 2, 1], "ε = 0.1": [3, 1, 2]}),
    "schedules": lambda: plots.schedules(range(3), {"one": [0, 1, 2], "two": [2, 1, 0]}),
    "shift_table": lambda: plots.shift_table(torch.tensor([[1, 2]]), torch.tensor([[2, -100]]), WORDS),
    "training_curve": lambda: plots.training_curve([2.0, 1.5, 1.2], 7),
    "two_lives": plots.two_lives,
}


def texts(figure):
    figure.canvas.draw()
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def test_every_picture_of_training_and_decoding_is_tested():
    """Is there a picture nobody looks at here?"""
    assert {name for name in phase5.__all__ if inspect.isfunction(getattr(phase5, name))} == set(PICTURES)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_labelled_and_drawn_alike_twice(name):
    """Does each give a Figure on light paper, with labels, the same one each time?"""
    figure, again = PICTURES[name](), PICTURES[name]()
    assert isinstance(figure, Figure)
    assert figure.get_facecolor()[:3] == pytest.approx((0.984, 0.980, 0.965), abs=0.01)
    for axes in figure.axes:
        assert axes.get_title() or axes.get_xlabel()
        assert not axes.axison or axes.get_xlabel() or axes.get_xticklabels()
    assert sorted(texts(figure)) == sorted(texts(again))


def test_dropped_words_are_marked_by_a_sign():
    """Can a word that may not be drawn be told without colour?"""
    assert texts(PICTURES["kept_words"]()).count("✗") == 2


def test_the_dials_change_what_may_be_drawn():
    """Do temperature, k and p change words and picture, and does temperature 0 leave one word?"""
    figure = widgets.DecodingSampler(oracle.filter_logits)
    figure.widget()
    before = figure.canvas.value
    figure.k_control.value = 2
    assert figure.readout.value.startswith("<b>2 of 8 words may be drawn") and figure.canvas.value != before
    figure.p_control.value = 0.1
    assert "1 of 8 words" in figure.words() and set(figure.drawn()) == {"forest"}
    figure.k_control.value, figure.p_control.value, figure.temperature_control.value = 8, 1.0, 4.0
    assert "8 of 8 words" in figure.words()


def test_a_wider_beam_escapes_the_trap():
    """Does one beam follow the best first word, and two find the better sentence?"""
    figure = widgets.BeamTree(oracle.beam_search, follow, WORDS, 9, 0)
    figure.widget()
    figure.beams_control.value = 1
    assert "best is 'deep <END>' with probability 0.300" in figure.words()
    figure.beams_control.value = 2
    assert "best is 'machine learning <END>' with probability 0.380" in figure.words()
    edges, kept = figure.branches()
    assert (2, 3) in kept and all(parent in kept for parent, *_ in edges)
    assert all(math.isfinite(step) for *_, step in edges)
