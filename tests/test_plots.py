"""Tests of the pictures: labels, values, legibility, and that nothing is shown or kept."""

import inspect
import io
import subprocess
import sys

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.text import Text

from utils import plots

WEIGHTS = torch.tensor([[0.25, 0.59, 0.16], [0.11, 0.69, 0.20], [0.22, 0.27, 0.51]])
WORDS = ["The", "cat", "sat"]
CAUSAL = torch.ones(4, 4, dtype=torch.bool).tril()


def jacobian(probs):
    return probs[..., :, None] * (np.eye(3) - probs[..., None, :])


PICTURES = {
    "attention_map": lambda: plots.attention_map(WEIGHTS, WORDS, WORDS),
    "signed_map": lambda: plots.signed_map([[0.5, -0.5], [0.0, 1.0]], ["k0", "k1"], range(2), "slopes"),
    "mask_grids": lambda: plots.mask_grids({"causal": CAUSAL, "one step": CAUSAL[-1:]}),
    "row_of_weights": lambda: plots.row_of_weights(WEIGHTS[1], WORDS, "cat"),
    "mask_and_row": lambda: plots.mask_and_row(CAUSAL, torch.full((4,), 0.25), list("abcd"), 2, "what 'c' reads"),
    "saturation": lambda: plots.saturation([4, 64, 1024], [4.1, 63.0, 1020.0], [1.0, 0.99, 1.01]),
    "jacobian_triangle": lambda: plots.jacobian_triangle(jacobian, steps=12),
    "influence_maps": lambda: plots.influence_maps({"all": np.ones((3, 3)), "past": np.tri(3)}),
    "cost_curves": lambda: plots.cost_curves([128, 1024, 8192], [1e6, 1e8, 1e10], [1e8, 1e9, 1e10], 64),
    "recap": plots.recap,
}


def texts(figure):
    figure.canvas.draw()
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def panels(figure):
    return [axes for axes in figure.axes if axes.axison and axes.get_label() != "<colorbar>"]


def test_every_picture_is_tested():
    """Is there a picture nobody looks at here?"""
    items = vars(plots.phase2).items()  # the pictures of another phase are looked at beside its lesson
    public = {name for name, item in items if inspect.isfunction(item) and name in plots.phase2.__all__}
    assert public == set(PICTURES)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_a_labelled_figure(name):
    """Does each give a Figure that draws, on light paper, with every axis named?"""
    figure = PICTURES[name]()
    png = io.BytesIO()
    figure.savefig(png, format="png")
    assert isinstance(figure, Figure) and len(png.getvalue()) > 5000
    assert figure.get_facecolor()[:3] == pytest.approx((0.984, 0.980, 0.965), abs=0.01)
    for axes in panels(figure):
        assert axes.get_title() and axes.get_xlabel(), name
    assert all(axes.get_ylabel() for axes in panels(figure)) or name == "signed_map"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_drawn_alike_twice(name):
    """Is a plot a pure function, with no state and no chance?"""
    first, second = (np.asarray(drawn(PICTURES[name]())) for _ in range(2))
    assert np.array_equal(first, second)


def drawn(figure):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return canvas.buffer_rgba()


def test_no_pyplot_state_is_touched():
    """Can plots be used without pyplot, which would show figures by itself?"""
    code = "import sys; from utils import plots; plots.recap(); sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_attention_map_writes_every_weight_and_word():
    """Can the weights be read without guessing at blues?"""
    figure = PICTURES["attention_map"]()
    assert {f"{weight:.2f}" for weight in WEIGHTS.flatten()} <= set(texts(figure))
    (axes,) = figure.axes
    for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
        assert [label.get_text() for label in labels] == WORDS


def test_attention_map_leaves_its_weights_alone():
    """Is the caller's tensor, with its gradient, as it was?"""
    weights = WEIGHTS.clone().requires_grad_()
    plots.attention_map(weights, WORDS, WORDS)
    assert torch.equal(weights, WEIGHTS) and weights.requires_grad


def test_signed_map_tells_signs_without_colour():
    """Does every number carry its sign, and zero none?"""
    assert {"+0.50", "-0.50", "+1.00", "0"} <= set(texts(PICTURES["signed_map"]()))


def test_mask_grids_are_legible_in_grey():
    """Does a visible place have a dot and a hidden one hatching, so that no colour is needed?"""
    axes = PICTURES["mask_grids"]().axes[0]
    assert len(axes.lines) == int(CAUSAL.sum())
    assert sum(patch.get_hatch() == "////" for patch in axes.patches) == int((~CAUSAL).sum())


def test_mask_and_row_frames_the_query():
    """Is the row that the bars belong to framed in the mask?"""
    left, right = PICTURES["mask_and_row"]().axes
    assert [patch.get_xy() for patch in left.patches if not patch.get_fill()] == [(-0.5, 1.5)]
    assert [text.get_text() for text in right.texts] == ["0.250"] * 4


def test_saturation_grows_without_the_root():
    """Does the right panel show the largest weight rising for raw scores and flat for scaled ones?"""
    right = PICTURES["saturation"]().axes[1]
    raw, scaled = (np.asarray(line.get_ydata(), dtype=float) for line in right.lines[:2])
    assert np.all(np.diff(raw) > 0.05) and raw[-1] > 0.9
    assert np.ptp(scaled) < 0.01 and right.lines[0].get_linestyle() != right.lines[1].get_linestyle()


def test_jacobian_triangle_marks_the_tie_as_the_peak():
    """Does the picture say 0.50 for a tie of two, 0.47 for equal shares and 0 at a corner?"""
    shown = texts(PICTURES["jacobian_triangle"]())
    assert {"one key takes all: 0.00", "two-way tie: 0.50", "equal shares: 0.47"} <= set(shown)


def test_influence_maps_dot_only_what_moves():
    """Is an exact zero without a dot?"""
    everything, past = PICTURES["influence_maps"]().axes
    assert (len(everything.lines), len(past.lines)) == (9, 6)


def test_cost_curves_mark_the_crossing():
    """Does the dotted line stand at six times d_model?"""
    (axes,) = PICTURES["cost_curves"]().axes
    assert set(axes.lines[2].get_xdata()) == {384} and "n = 6 · d_model" in texts(axes.figure)


def test_recap_names_shapes_and_functions():
    """Does the last screen hold the whole phase?"""
    shown = " ".join(texts(plots.recap()))
    for word in ("masked_softmax", "combine_masks", "sdpa", "w_q", "memory", "(batch, n_heads, q_len, kv_len)"):
        assert word in shown
