"""The capstone's pictures and its planner."""

import pytest

from utils import plots, widgets
from utils.plots import phase7

PARTS = dict(weights=5e8, gradients=5e8, optimizer=1e9, activations=2e9, logits=1e9)
PICTURES = {
    "capstone_recap": plots.capstone_recap,
    "memory_bars": lambda: plots.memory_bars({4: PARTS, 8: PARTS}, "batch", 16e9),
}


def test_every_picture_of_the_capstone_is_tested():
    """Is there a line below for each?"""
    assert set(PICTURES) == set(phase7.__all__)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_of_the_capstone_draws(name):
    """Does it draw, with words on it?"""
    figure = PICTURES[name]()
    figure.draw_without_rendering()
    assert any(text.get_text() for axes in figure.axes for text in [axes.title, axes.xaxis.label, *axes.texts])


def memory(config, batch, seq_len, size, fused):
    return PARTS | {"activations": 1e8 * batch * size, "total": 3e9 + 1e8 * batch * size + (0 if fused else 1e9)}


def test_every_control_of_the_planner_redraws():
    """Do the words and the picture follow each control?"""
    figure = widgets.TrainingPlanner(memory, lambda config, seq_len: {"causal": 6e6 * config.d_model + 1e6 * seq_len})
    figure.widget()
    changes = dict(width=1024, layers=3, batch=32, seq_len=512, machine="H100: 80 GB", precision="32 bits", fused=False)
    assert set(changes) == set(figure.control_of)
    for name, value in changes.items():
        before, picture = figure.readout.value, figure.canvas.value
        figure.control_of[name].value = value
        assert figure.canvas.value != picture or figure.readout.value != before or name == "layers", name
    assert "fits (H100: 80 GB)" in figure.readout.value
