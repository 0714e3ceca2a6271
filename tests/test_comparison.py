"""compare(): is the reason that it names the one that is true?"""

import math

import numpy as np
import pytest
import torch

from utils import compare, oracle

torch.manual_seed(0)
X = torch.randn(2, 3, 5, dtype=torch.float64)
M = torch.randn(4, 4, dtype=torch.float64)
SHARES = torch.randn(2, 3, 5, dtype=torch.float64).softmax(-1)
CAUSAL = oracle.masked_softmax(M, oracle.causal_mask(4))
EMPTY = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]])


def one(tensor, index, value):
    changed = tensor.clone()
    changed[index] = value
    return changed


@pytest.mark.parametrize(
    ("mine", "expected", "says"),
    [
        (M.T, M, "transposed"),
        (X.transpose(1, 2), X, "axes 1 and 2 are swapped"),
        (X.permute(2, 0, 1), X, "permute(2, 0, 1)"),
        (torch.randn(3, 3, 3).double().transpose(0, 2), None, "transposed: axes 0 and 2 are swapped"),
        (X * 5**0.5, X, "that is √5; axis 2 has size 5"),
        (X / 3, X, "that is 1/3; axis 1 has size 3"),
        (X * 7.25, X, "a constant factor: 7.25 times"),
        (X + 2, X, "a constant was added: 2"),
        (-X, X, "the sign is the other one"),
        (X.abs(), X, "the signs of some entries are not"),
        (X.roll(1, 2), X, "one place off along axis 2: everything stands one place later"),
        (X.roll(-1, 1), X, "one place off along axis 1: everything stands one place earlier"),
        (X.flip(2), X, "axis 2 runs backwards"),
        (SHARES.log(), SHARES, "the logarithm of what it should be"),
        (SHARES, SHARES.log(), "the logarithm is missing"),
        (X, X.softmax(-1), "the softmax over the last axis is missing"),
        (X.softmax(1), X.softmax(-1), "sums to 1 over axis 1, and should over axis 2: softmax over the wrong axis"),
        (SHARES * torch.rand(2, 3, 1), SHARES, "off by a factor of its own: its shares do not sum to 1"),
        (EMPTY.log().softmax(-1), EMPTY, "3 NaN, in the rows that should be all zero: softmax of a row in which"),
        (one(EMPTY, (0, 2), math.nan), EMPTY, "1 NaN, all where a masked 0 should be"),
        (one(X, (0, 0, 0), math.nan), X, "1 NaN where there should be numbers"),
        (EMPTY.log(), EMPTY, "the mask was added, softmax is still to come"),
        (M.softmax(-1).tril(), CAUSAL, "its shares do not sum to 1"),
        (one(CAUSAL, (0, 2), 0.3), CAUSAL, "only where 0 should be: what is masked was not hidden"),
        (one(X, (1, 2), 0.0), X, "something was hidden, or left out"),
        (M + torch.rand(4, 4).triu(1), M, "only above the diagonal: in the future"),
        (M + torch.rand(4, 4).tril(-1), M, "only below the diagonal: in the past"),
        (M + torch.rand(4).diag(), M, "only on the diagonal"),
        (one(X, (slice(None), 2), torch.rand(5).double()), X, "only at one index of axis 1: last"),
        (X.view(2, 5, 3).transpose(1, 2), X, "where transpose belongs"),
        (X.flatten()[torch.randperm(30)].view_as(X), X, "the same numbers in another order"),
        (X.half().double(), X, "rounding"),
        (X.float(), X, "the same numbers, but of dtype float32 instead of float64"),
        (~(M > 0), M > 0, "inverted: True where False should be"),
        (X[None], X, "the same numbers, but for axes of size 1"),
        (X.flatten(), X, "cut into other axes (reshape)"),
        (X.reshape(6, 5)[:1].expand(6, 5), X.reshape(6, 5)[0], "repeated (broadcast)"),
        (torch.zeros(2, 2), torch.zeros(3), "shape (2, 2) instead of (3,)"),
        (torch.randn(4).double(), torch.randn(4).double(), "for no reason that compare knows"),
    ],
)
def test_the_reason_is_named(mine, expected, says):
    """A slip of each sort: is it called by its name, with where it shows?"""
    expected = mine.transpose(0, 2) if expected is None else expected
    found = compare(mine, expected)
    assert not found and says in str(found)


def test_what_is_the_same_is_said():
    """Equal, or equal but for rounding, NaN in the same places: the same, and true?"""
    for other in (X, X.clone(), X + 1e-12, X.tolist(), X.numpy()):
        assert compare(X, other)
    assert compare(one(X, (0, 0, 0), math.nan), one(X, (0, 0, 0), math.nan)) and "✓ the same" in str(compare(X, X))
    assert compare(X.float(), (X * (1 + 1e-7)).float()) and compare(torch.zeros(3), torch.zeros(3))


def test_heads_cut_with_view_are_told():
    """view where transpose belongs: the slip of split_heads, is it named?"""
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    found = compare(x.view(2, 3, 5, 4), oracle.split_heads(x, 3))
    assert "view/reshape where transpose belongs" in str(found)


def test_the_first_differences_are_shown():
    """How many entries, and the first with both numbers?"""
    text = str(compare(one(X, (1, 2, 3), 9.0), X))
    assert "1 of 30 entries differ" in text and "[1, 2, 3]: 9 instead of" in text


def test_a_chance_match_names_nothing():
    """Two random tables, many times: is no reason made up?"""
    for seed in range(50):
        generator = torch.Generator().manual_seed(seed)
        a, b = (torch.randn(3, 4, generator=generator) for _ in range(2))
        assert "for no reason that compare knows" in str(compare(a, b))


def test_anything_that_is_no_tensor_is_said():
    """A string, None, a module: a TypeError that says which of the two?"""
    with pytest.raises(TypeError, match="the second of the two is no tensor"):
        compare(X, "x")
    with pytest.raises(TypeError, match="the first of the two"):
        compare(None, X)


@pytest.mark.parametrize("kind", [np.array([1, 2, 3]), [1, 2, 3], torch.tensor([1, 2, 3]), 3, torch.tensor(True)])
def test_numbers_of_every_kind_are_taken(kind):
    """Arrays, lists, whole numbers, one number: compared without a crash, wrong ones too?"""
    assert compare(kind, kind)
    assert not compare(torch.as_tensor(kind).double() + 0.5, torch.as_tensor(kind).double())


def test_gradients_and_devices_are_no_hindrance():
    """A tensor that requires a gradient: compared, and left as it is?"""
    x = X.clone().requires_grad_()
    assert compare(x * 1, X) and x.grad is None
