"""utils.measure: ceilings, shares, compressors, sweeps: is each number what it says, and is nonsense refused?"""

import math

import pytest
import torch

from utils import measure, oracle
from utils.config import ModelConfig
from utils.data import python_source
from utils.measure import clock, costs, ratios, scaling

GPT2 = ModelConfig(50_304, 768, 12, 12, 3072, 1024)


# ---- shares of sentences -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "n", "low", "high"), [(1000, 1000, 0.9963, 1), (0, 10, 0, 0.3085), (5, 10, 0.1871, 0.8129)]
)
def test_a_share_knows_how_sure_it_is(right, n, low, high):
    """Are the bounds those of Clopper and Pearson's tables?"""
    found = measure.share_of(right, n)
    assert (found.low, found.high) == pytest.approx((low, high), abs=2e-4)
    assert found.low <= found.share <= found.high


def test_a_share_of_nothing_is_refused():
    """Is a share of no sentences, or of more than there are, refused?"""
    for right, n in ((0, 0), (3, 2), (-1, 2)):
        with pytest.raises(ValueError, match="no share"):
            measure.share_of(right, n)


# ---- ceilings ------------------------------------------------------------------------------------


def test_a_ratio_above_one_is_flagged_and_not_told():
    """Does nobody read 104 %: neither on a page nor in json?"""
    found = ratios.compute(speed=1040, flops=1e9, peak=1e12)
    assert found.wrong and "measured wrong" in str(found) and "1.04" not in str(found)
    assert found.told() == "the ceiling was measured wrong"
    assert str(ratios.compute(400, 1e9, 1e12)) == "R_compute 0.40"
    assert ratios.Ratio("R", math.nan).wrong


def test_ratios_follow_their_formulas():
    """Do the ratios of a GPT-2 on an H200 come out as published: limits of 0.99 and 0.59 million tokens a second?"""
    peak, bandwidth = 788e12, 4.3e12
    flops = oracle.flops_per_token(GPT2, 1024)["causal"]
    assert costs.matrix_entries(GPT2, oracle.flops_per_token) == pytest.approx(123.6e6, rel=1e-3)
    assert ratios.compute(0.99e6, flops, peak).value == pytest.approx(1, abs=0.01)
    traffic = costs.training_traffic(GPT2)
    assert ratios.roofline(0.59e6, flops, peak, traffic, bandwidth).value == pytest.approx(1, abs=0.02)
    moved = costs.decode_traffic(GPT2, 123.6e6, batch=1, seq_len=1024, weight_bytes=2, cache_bytes=2)
    assert moved == pytest.approx(285e6, rel=0.01)
    assert ratios.decode(moved, bandwidth, moved / bandwidth).value == pytest.approx(1)
    assert ratios.attention(2, 3, 64, 8, seconds=1, peak=2 * 2 * 3 * 64 * 64 * 8).value == 1


def test_ceilings_are_measured_with_random_numbers(monkeypatch):
    """Is the peak that of products of random numbers, and are both ceilings positive and finite?"""
    seen = []
    monkeypatch.setattr("utils.measure.device.SIZES_ON_CPU", (64,))
    monkeypatch.setattr("utils.measure.device.COPIED_ON_CPU", 2**16)
    times = torch.mm
    monkeypatch.setattr(torch, "mm", lambda left, right, out: seen.append((left, right)) or times(left, right, out=out))
    assert 0 < measure.peak_matmul(torch.float32, "cpu") < math.inf and 0 < measure.bandwidth("cpu") < math.inf
    assert all(table.std() > 0.5 for pair in seen for table in pair) and len(seen) == 6


def test_rivals_are_timed_in_turn():
    """Does each of two rivals run in every round, so that a slow spell hits both?"""
    order = []
    found = clock.alternating({name: lambda name=name: order.append(name) for name in "ab"}, torch.device("cpu"), 3)
    assert "".join(order) == "abababab" and set(found) == {"a", "b"}


def test_the_crossover_compares_equal_attentions():
    """Does each length give two times, their ratio and the size of the table of scores?"""
    points = measure.crossover("cpu", lengths=(16, 32), peak=1e15)
    assert [point.seq_len for point in points] == [16, 32]
    assert all(point.ratio == point.by_hand / point.fused > 0 and 0 < point.share.value < 1 for point in points)
    assert points[1].scratch_bytes == 4 * points[0].scratch_bytes


# ---- text ----------------------------------------------------------------------------------------


def test_a_compressor_that_has_read_the_training_text_does_better():
    """Are all rivals there, and does xz gain by what it read before?"""
    documents = [f"def f_{n % 40}(x):\n    return x + {n % 7} * {n}\n".encode() * 3 for n in range(300)]
    found = measure.compressors(python_source.from_documents(documents, "made here"))
    assert list(found) == ["zlib", "bz2", "xz", "xz, after the training text"]
    assert 0 < found["xz, after the training text"] < found["xz"] < 8


def test_a_long_training_text_is_cut_and_the_name_says_so():
    """Is the limit of what xz reads before told in its name?"""
    documents = [bytes(f"{n} " * 4000, "ascii") for n in range(100)]
    found = measure.compressors(python_source.from_documents(documents, "made here"), read_first=1_000_000)
    assert "xz, after 1 MB of the training text" in found


# ---- sweeps --------------------------------------------------------------------------------------

SIZES = [50_000, 120_000, 300_000, 800_000, 2_000_000]


def test_a_planted_law_is_found():
    """Does a sweep of a known law give its exponent, an interval around it, and no error of leaving one out?"""
    found = scaling.judge(SIZES, [4.5 * n**-0.05 for n in SIZES])
    assert found.law == pytest.approx((4.5, 0.05)) and found.interval == pytest.approx((0.05, 0.05))
    assert found.left_out < 1e-9 and "0.050" in found.verdict


def test_noise_widens_the_interval():
    """Does the interval hold the true exponent, and say 'might not help' if it holds 0?"""
    losses = [4.5 * n**-0.05 * wobble for n, wobble in zip(SIZES, (1.004, 0.995, 1.003, 0.996, 1.002), strict=True)]
    found = scaling.judge(SIZES, losses)
    assert found.interval[0] < 0.05 < found.interval[1] and found.left_out > 0
    steps = scaling.judge(SIZES[:3], [2.0, 1.999, 1.5])
    assert steps.interval[0] < steps.law[1] < steps.interval[1]


@pytest.mark.parametrize("losses", [[2.5, 2.4, 2.45, 2.3, 2.2], [2.5, 2.5, 2.4, 2.3, 2.2]])
def test_no_law_is_told_where_the_loss_does_not_fall(losses):
    """Is a law refused for a sweep that goes up, or stays, between two sizes?"""
    found = scaling.judge(SIZES, losses)
    assert found.law is None and "No law" in found.verdict and "N^" not in found.verdict


def test_two_models_are_no_sweep():
    """Is a line through two points refused?"""
    assert "three models" in scaling.judge(SIZES[:2], [2.5, 2.4]).verdict
