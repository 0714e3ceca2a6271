"""Phase 6, systems: twins against torch and brute force, figures that move, and what the fixtures count."""

import collections
import inspect
import itertools
import types

import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

from utils import oracle, plots
from utils.checks import evaluate
from utils.checks.phase6 import drafts
from utils.observe import fixtures
from utils.observe.effects import bytes_held, learning_held
from utils.plots import phase6_systems
from utils.widgets import phase6_systems as widgets

MACHINE = dict(memory_bytes=80e9, bandwidth_bytes_per_s=2e12, flops_per_s=3e14)
HALF = torch.full((4, 3), 1 / 3)

PICTURES = {
    "loss_by_bits": lambda: plots.loss_by_bits({8: 1.0, 4: 1.1}, 1.0, 0.9),
    "quantized_rows": lambda: plots.quantized_rows(torch.randn(2, 5), torch.zeros(2, 5), "4 bits"),
    "roofline": lambda: plots.roofline([1, 8, 512], 1e10, 1e5, 1e10, MACHINE),
    "speculation_round": lambda: plots.speculation_round(HALF, HALF[:3], [0, 1, 2], [0.1, 0.9, 0.2], 1, list("abc")),
    "tokens_per_pass": lambda: plots.tokens_per_pass({1: 1.6, 4: 2.5}, 0.7, 0.1),
}


def test_every_picture_of_systems_is_tested():
    """Is there a picture nobody looks at here?"""
    assert {name for name in phase6_systems.__all__ if inspect.isfunction(getattr(phase6_systems, name))} == set(
        PICTURES
    )


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_of_systems_is_labelled(name):
    """Does each give a Figure on light paper, with titles and named axes?"""
    figure = PICTURES[name]()
    assert isinstance(figure, Figure)
    assert figure.get_facecolor()[:3] == pytest.approx((0.984, 0.980, 0.965), abs=0.01)
    for axes in figure.axes:
        assert axes.get_title() or figure.get_suptitle()
        assert axes.get_xlabel()


def test_the_quantization_explorer_follows_its_controls():
    """Does each control change the words and the picture, and does a scale for each row spare the second one?"""
    explorer = widgets.QuantizationExplorer(oracle.quantize, oracle.dequantize)
    explorer.widget()
    seen = [explorer.readout.value]
    for control, value in (
        (explorer.bits_control, 6),
        (explorer.outlier_control, 50.0),
        (explorer.scheme_control, "a scale for each row"),
    ):
        control.value = value
        seen.append(explorer.readout.value)
    assert len(set(seen)) == len(seen)
    w = explorer.weights()
    assert (w - explorer.kept())[1].abs().max() <= w[1].abs().max() / 31 / 2 * 1.0001


def test_the_stepper_tells_each_round_and_its_tokens_follow_each_other():
    """Do the rounds of the stepper continue one another, and does a control change what is shown?"""
    target, draft = (fixtures.build("speaker", dict(seed=4, wander=w)).float() for w in (0.0, 0.5))
    stepper = widgets.SpeculationStepper(oracle.speculative_accept, target, draft)
    stepper.widget()
    for one, after in itertools.pairwise(stepper.history()):
        before, guesses, _, _, _, n_accepted, last = one
        assert after[0] == [*before, *guesses[:n_accepted], last]
    words = stepper.readout.value
    stepper.round_control.value = 2
    assert stepper.readout.value != words and "round 2" in stepper.readout.value
    stepper.guesses_control.value = 1
    assert len(stepper.history()[1][1]) == 1


def test_speculation_has_the_targets_law_by_enumeration():
    """Over a grid of uniform numbers and every guess, does the twin's verdict add up to the target's law?"""
    p, q = torch.tensor([0.5, 0.3, 0.2, 0.0]).double(), torch.tensor([0.1, 0.3, 0.4, 0.2]).double()
    left, grid = (p - q).relu(), (torch.arange(120).double() + 0.5) / 120
    law = torch.zeros(4).double()
    for guess, u in itertools.product(range(4), grid):
        generator = torch.Generator().manual_seed(0)
        args = torch.stack([p, p]), q[None], torch.tensor([guess]), u[None], generator
        n_accepted, token = oracle.speculative_accept(*args)
        weight = q[guess] / len(grid)
        law += weight * (torch.eye(4).double()[guess] if n_accepted else left / left.sum())
        assert n_accepted or left[token] > 0
    assert torch.allclose(law, p, atol=1e-9)


def test_bytes_are_found_wherever_a_module_keeps_them():
    """Are parameters, buffers, plain tensors and what lies in containers weighed, each storage once?"""
    module = nn.Linear(4, 3)  # 15 numbers
    assert bytes_held(module) == 60
    module.register_buffer("table", torch.zeros(5))
    module.hidden = {"kept": [torch.zeros(2), module.weight]}
    assert bytes_held(module) == 60 + 20 + 8


def test_what_an_object_keeps_is_weighed_and_asked_whether_it_learns():
    """Are tensors of plain objects found, deques included, and those named that a gradient may reach?"""
    store = types.SimpleNamespace(old=collections.deque([torch.zeros(3)]), scale=torch.ones(2, requires_grad=True) * 2)
    assert bytes_held(store) == 12 + 8
    assert learning_held(store) == ["scale"] and learning_held(nn.Linear(1, 1)) == ["bias", "weight"]


@pytest.mark.parametrize("spoilt", [dict(guess=drafts.BEST), dict(all_pass=True), dict()])
def test_what_a_faulty_round_emits_is_known(spoilt):
    """Is the closed form a law, and the target's own where nothing is spoilt?"""
    found = torch.tensor(drafts.WARM.emitted(**spoilt))
    assert found.sum().item() == pytest.approx(1)
    assert torch.allclose(found, drafts.WARM.target.to(found.dtype), atol=1e-5) == (not spoilt)


def test_rows_and_calls_are_counted():
    """Do the fixtures count the rows of each block and the calls of a speaker, and stay silent otherwise?"""
    model, tokens = fixtures.build("exits", dict(counts=True)), torch.zeros(7, 4, dtype=torch.int64)
    oracle.early_exit_forward(model, tokens, 0.0)
    assert [int(block.rows) for block in model.blocks] == [7, 0, 0]
    speaker = fixtures.build("speaker", dict(counts=True))
    speaker(tokens[:1])
    assert int(speaker.calls) == 1 and not [*fixtures.build("exits", {}).buffers()]


def test_a_whole_number_may_stand_for_a_float_but_not_the_other_way_round():
    """Are 2 and 2.0 the same where a float is expected, while True and text are not?"""

    def change(**values):
        def plan(config, hardware):
            return oracle.serving_plan(config, hardware) | values

        return plan

    def ints(config, hardware):
        found = oracle.serving_plan(config, hardware)
        return {
            key: int(value) if type(value) is float and value == int(value) else value for key, value in found.items()
        }

    assert evaluate("serving_plan", ints).passed
    assert not evaluate("serving_plan", change(max_batch=True)).passed
    assert not evaluate("serving_plan", change(max_batch="3")).passed
