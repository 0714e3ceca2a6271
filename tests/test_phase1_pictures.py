"""The pictures of phase 1 and its position explorer."""

import pytest
import torch

from utils import lesson, oracle, plots
from utils.widgets import phase1 as widgets

PICTURES = {
    "influence_by_distance": lambda: plots.influence_by_distance({"a": [1, 0.1, 0.0], "b": [1, 2, 3]}),
    "token_table": lambda: plots.token_table(*oracle.pad_batch([[3, 4], [5]], 3)),
    "position_map": lambda: plots.position_map(oracle.sinusoidal_positions(6, 4), marked=2),
    "position_row": lambda: plots.position_row(oracle.sinusoidal_positions(6, 4), 2, [2, 1, 0, 1, 2, 3]),
    "distance_curves": lambda: plots.distance_curves({"a": [0, 1, 2], "b": torch.ones(3)}),
    "text_to_tensors": plots.text_to_tensors,
}


@pytest.mark.parametrize("name", plots.phase1.__all__)
def test_a_picture_is_a_labelled_figure(name):
    """Does each draw, with every axis named?"""
    figure = PICTURES[name]()
    figure.canvas.draw()
    for axes in figure.axes:
        if axes.axison and axes.get_label() != "<colorbar>":
            assert axes.get_title() and axes.get_xlabel() and axes.get_ylabel()


def test_the_explorer_shows_what_its_controls_say():
    """Does each control recompute words and picture, by the function that was handed over?"""
    explorer = widgets.PositionExplorer(oracle.sinusoidal_positions)
    explorer.widget()
    seen = {explorer.readout.value}
    for control, value in (
        (explorer.place_control, 9),
        (explorer.width_control, 4),
        (explorer.base_control, 10),
    ):
        control.value = value
        seen.add(explorer.readout.value)
        assert control.description and f"place {explorer.place}" in explorer.canvas.value
    assert len(seen) == 4 and (explorer.place, explorer.d_model, explorer.base) == (9, 4, 10)
    assert explorer.distances()[9] == 0
    assert torch.allclose(widgets.waves(9, 6, 37.0), oracle.sinusoidal_positions(9, 6, 37.0), atol=1e-6)


def test_no_widget_is_made_while_grading(monkeypatch):
    """Does the grader get the words alone?"""
    bundles = []
    monkeypatch.setattr(lesson, "display", lambda bundle, raw: bundles.append(bundle))
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    widgets.position_explorer()
    assert set(bundles[0]) == {"text/plain"} and "nearest" in bundles[0]["text/plain"]
