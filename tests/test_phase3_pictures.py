"""Pictures and figures of phase 3: labels, values, legibility, and that a control changes what is shown."""

import inspect
import math

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.text import Text

from utils import oracle, plots
from utils.plots import phase3
from utils.widgets import phase3 as widgets

WORDS = ["the", "cat", "sat", "as"]
WEIGHTS = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(0)).softmax(-1)
CUT = (torch.arange(4.0)[:, None] + torch.arange(3) / 100).repeat(2, 1, 1)  # two heads of token + feature / 100
ROWS = [(0, 3.2, 0.1, 0.0), (50, 2.0, 0.6, 0.1), (100, 0.1, 0.9, 0.8)]
HEADS = {
    "layer 0, head 0": {"previous": 0.9, "self": 0.1, "first": 0.2, "induction": 0.0, "loss rises by": 1.25},
    "layer 1, head 0": {"previous": 0.1, "self": 0.1, "first": 0.2, "induction": 0.75, "loss rises by": -0.02},
}

PICTURES = {
    "head_maps": lambda: plots.head_maps(WEIGHTS, WORDS),
    "head_map": lambda: plots.head_map(WEIGHTS[0], WORDS, [(3, 1)], "layer 0, head 0"),
    "split_tables": lambda: plots.split_tables(CUT, "two heads"),
    "parts_of_a_token": lambda: plots.parts_of_a_token(torch.ones(3, 5), torch.zeros(5), 3 * torch.ones(5)),
    "copy_curves": lambda: plots.copy_curves({"one layer": ROWS, "two layers": ROWS}, math.log(24)),
    "head_scores": lambda: plots.head_scores(HEADS),
    "reach_of_heads": lambda: plots.reach_of_heads(oracle.alibi_bias(8, 1, 32).softmax(-1)[:, 0]),
    "row_sums": lambda: plots.row_sums(WEIGHTS.sum((-1, -2)), 0.5),
    "multi_head_recap": plots.multi_head_recap,
}


def texts(figure):
    figure.canvas.draw()
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def test_every_picture_of_the_phase_is_tested():
    """Is there a picture nobody looks at here?"""
    assert {name for name in phase3.__all__ if inspect.isfunction(getattr(phase3, name))} == set(PICTURES)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_a_labelled_figure_and_drawn_alike_twice(name):
    """Does each give a Figure on light paper, with titles, the same one each time?"""
    figure, again = PICTURES[name](), PICTURES[name]()
    assert isinstance(figure, Figure)
    assert figure.get_facecolor()[:3] == pytest.approx((0.984, 0.980, 0.965), abs=0.01)
    for axes in figure.axes:
        assert axes.get_title() or figure.get_suptitle()
        assert not axes.axison or name == "split_tables" or axes.get_xlabel() or axes.get_xticklabels()
    assert sorted(texts(figure)) == sorted(texts(again))


def test_the_scores_of_heads_are_written_out():
    """Can a head's scores, and what its loss costs with its sign, be read without guessing at blues?"""
    shown = texts(plots.head_scores(HEADS))
    assert {"0.90", "0.75", "+1.25", "-0.02", "layer 1, head 0", "induction"} <= set(shown)


def test_a_ring_stands_on_each_target():
    """Are targets marked by shape, not by colour alone?"""
    (axes,) = PICTURES["head_map"]().axes
    assert [patch.center for patch in axes.patches] == [(1, 3)]


def test_the_recap_names_shapes_and_functions():
    """Does the last screen hold the whole phase?"""
    shown = " ".join(texts(plots.multi_head_recap()))
    for word in ("split_heads", "merge_heads", "sdpa", "w_o", "(B, H, T, D)", "(B, H, Q, K)"):
        assert word in shown


# ---- figures to play with


def test_the_split_visualiser_tells_reshape_from_transpose():
    """Does `view` alone show whole tokens in head 0, and the learner's function one slice of every token?"""
    figure = widgets.SplitVisualiser(oracle.split_heads)
    box = figure.widget()
    assert "features 0 to 3 of tokens [0, 1, 2, 3]" in figure.readout.value and box.children
    before = figure.canvas.value
    figure.way_control.value = "view alone"
    assert "view alone: head 0 holds features 0 to 11 of tokens [0, 1]" in figure.readout.value
    figure.count_control.value = 1
    same = figure.words().replace("view alone", "your function")
    figure.way_control.value = "your function"
    assert figure.words() == same and figure.canvas.value != before


def browser():
    """Two layers of two heads; head 1 of layer 1 is an induction head for "abcabc"."""
    tokens = torch.tensor([0, 1, 2, 0, 1, 2])
    weights = torch.full((2, 2, 6, 6), 1 / 6)
    weights[1, 1] = 0
    for query in range(6):
        weights[1, 1, query, query - 2 if query > 2 else 0] = 1
    return widgets.HeadBrowser(weights, tokens, oracle.head_entropy, oracle.head_patterns)


def test_the_browser_opens_at_the_strongest_induction_head():
    """Is the first head shown the one that copies, with its numbers in words?"""
    figure = browser()
    assert (figure.layer, figure.head) == (1, 1)
    assert "induction 1.00" in figure.words() and "entropy 0.00" in figure.words()
    assert figure.targets() == [(3, 1), (4, 2), (5, 3)]


def test_moving_the_sliders_shows_another_head():
    """Do both controls change words and picture?"""
    figure = browser()
    figure.widget()
    before = figure.readout.value, figure.canvas.value
    figure.head_control.value = 0
    assert figure.readout.value != before[0] and "layer 1, head 0" in figure.words()
    figure.layer_control.value = 0
    assert f"entropy {np.log(6):.2f}" in figure.readout.value and figure.canvas.value != before[1]
