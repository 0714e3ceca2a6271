"""Tests of the mask painter: its value after a control moved, its static twin, and whose function it runs."""

import re

import pytest
import torch

from utils import lesson, oracle
from utils.widgets import phase2 as widgets

VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def painter():
    """A painter with live controls."""
    painter = widgets.MaskPainter(oracle.masked_softmax)
    painter.box = painter.widget()
    return painter


def alt_of(html):
    return re.search(r'alt="([^"]+)"', html)[1]


def test_the_painter_starts_with_it_reading_cat(painter):
    """Is the value that is shown the softmax of the visible scores?"""
    weight = widgets.SCORES[4, :5].softmax(-1)[1].item()
    assert painter.words() == f"query 'it' reads 'cat' most: weight on 'cat' = {weight:.3f}"
    assert painter.readout.value == f"<b>{lesson.html.escape(painter.words())}</b>"


def test_every_control_changes_the_value(painter):
    """Does moving mask, query, temperature or a key recompute what is shown, in words and in the picture?"""
    seen = [(painter.readout.value, painter.canvas.value)]
    moves = [
        (painter.mask_control, "none"),
        (painter.query_control, 2),
        (painter.temperature_control, 0.5),
        (painter.key_controls[1], False),
    ]
    for control, value in moves:
        control.value = value
        seen.append((painter.readout.value, painter.canvas.value))
    assert len({canvas for _, canvas in seen}) == len(seen)
    assert len({words for words, _ in seen}) >= 4  # the mask alone need not move the winner's third digit
    assert "reads 'sat' most" in seen[-1][0].replace("&#x27;", "'")


def test_the_temperature_sharpens(painter):
    """Does a quarter of the temperature give the weight that four times the scores give?"""
    painter.temperature_control.value = 0.25
    expected = (4 * widgets.SCORES[4, :5]).softmax(-1)[1].item()
    assert f"weight on 'cat' = {expected:.3f}" in painter.words() and expected > 0.9


def test_the_padding_mask_hides_the_pad(painter):
    """Is the weight on the pad positive without a mask and exactly 0 with it?"""
    painter.mask_control.value = "none"
    before = painter.weights()[-1].item()
    painter.mask_control.value = "padding"
    assert before > 0.1 and painter.weights()[-1].item() == 0


def test_hiding_every_key_is_said_in_words(painter):
    """Does an empty row give zeros and a sentence, no NaN?"""
    for control in painter.key_controls:
        control.value = False
    assert painter.words() == "query 'it' may see no key: every weight is 0"
    assert torch.equal(painter.weights(), torch.zeros(6))


def test_masks_are_what_their_names_say():
    """Is each kind of mask the right table?"""
    causal, padding = torch.ones(6, 6).tril().bool(), widgets.REAL.expand(6, 6)
    tables = [torch.ones(6, 6).bool(), causal, padding, causal & padding]
    for kind, table in zip(widgets.MASKS, tables, strict=True):
        assert torch.equal(widgets.mask_of(kind), table), kind


def test_the_painter_runs_the_function_it_is_given():
    """Is it the learner's own softmax that makes the numbers?"""
    calls = []

    def mine(scores, attn_mask):
        calls.append(attn_mask)
        return torch.full_like(scores, 0.125)

    assert "= 0.125" in widgets.MaskPainter(mine).words() and len(calls) == 1


def test_without_a_function_of_yours_the_numbers_are_the_twins():
    """Does the painter's own softmax, which needs no twin, agree with it on every mask, an empty row included?"""
    for kind in widgets.MASKS:
        mask = widgets.mask_of(kind) & (torch.arange(6)[:, None] != 3)
        mine, twin = (softmax(widgets.SCORES, mask) for softmax in (widgets.row_by_row, oracle.masked_softmax))
        assert torch.allclose(mine, twin) and (mine[3] == 0).all()


def test_the_figure_has_a_static_twin(monkeypatch, capsys):
    """Is one output widget, picture and words, so that nbconvert and nbviewer show something?"""
    bundles = []
    monkeypatch.setattr(lesson, "display", lambda bundle, raw: bundles.append(bundle))
    painter = widgets.mask_painter()
    (bundle,) = bundles
    assert set(bundle) == {VIEW, "text/html", "text/plain"} and bundle["text/plain"] == painter.words()
    alt = alt_of(bundle["text/html"])
    assert "Left: mask" in alt and "weight on &#x27;cat&#x27; = 0.523" in alt and "&lt;pad&gt; 0.000" in alt
    assert capsys.readouterr() == ("", "")
