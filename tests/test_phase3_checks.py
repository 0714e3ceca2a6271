"""What is special about the checks of phase 3: dicts, layers lent to a function, chance, and the way to a class."""

import pytest
import torch

from autograde import claims
from autograde.hidden.phase3_multi_head import HIDDEN
from utils import observe, oracle
from utils.checks import EXERCISES, evaluate, stored
from utils.checks.judge import findings
from utils.checks.verdict import Exam, judged
from utils.observe import codec, layers

NAMES = [name for name, exercise in EXERCISES.items() if exercise.phase == "phase3_multi_head"]


def exam_of(name):
    exercise = EXERCISES[name]
    return Exam(exercise, (*exercise.visible, *HIDDEN[name]))


def test_every_exercise_has_hidden_cases_and_passes_them():
    """Is each exercise asked at other sizes, too, and does the twin answer rightly?"""
    assert list(HIDDEN) == NAMES
    for name in NAMES:
        assert evaluate(name, EXERCISES[name].expected, cases=HIDDEN[name]).score == 1


@pytest.mark.parametrize("name", NAMES)
def test_what_a_sandbox_says_of_a_right_answer_is_believed(name):
    """Does an honest observation pass the form check of the grader, slopes of lent layers included?"""
    exam = exam_of(name)
    for case in exam.cases:
        request = exam.request(case)
        message = observe.answer(EXERCISES[name].expected, codec.encode(vars(request)))
        seen = claims.observation(message, request)
        assert findings(EXERCISES[name], case, request, seen, exam.truth(case)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_stored_exam_judges_alike(name):
    """Can a class be handed the checks without the twins: same verdict on the twin and on each known mistake?"""
    exam = exam_of(name)
    copy = stored.load(stored.store(exam))
    for obj in (EXERCISES[name].expected, *list(EXERCISES[name].mistakes.values())[:3]):
        obj = getattr(obj, "twin", obj)
        reports = [judged(one, (observe.observe(obj, one.request(case)) for case in one.cases)) for one in (exam, copy)]
        assert reports[0] == reports[1]


def test_a_missing_key_is_named():
    """Does a dict with other keys say which ones are missing and which are too many?"""

    def shape_trace(batch, seq_len, d_model, n_heads):
        found = oracle.shape_trace(batch, seq_len, d_model, n_heads)
        found["k_heads"] = found.pop("merged")
        return found

    message = evaluate("shape_trace", shape_trace).message
    assert "no 'merged' and 'k_heads' besides" in message


def test_the_order_of_keys_is_free():
    """Is a dict judged by its keys, gradients included, however they are ordered?"""

    def unpack_in_proj(mha):
        return dict(reversed(oracle.unpack_in_proj(mha).items()))

    assert evaluate("unpack_in_proj", unpack_in_proj).score == 1


def test_lent_layers_leave_torchs_random_state_alone():
    """Are layers and losses that a case lends made from their own seed, the same each time?"""
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, two = (layers.heads(12, 3, seed=7) for _ in range(2))
    x = torch.ones(1, 2, 12, dtype=torch.float64)
    assert torch.equal(one(x), two(x)) and torch.equal(before, torch.get_rng_state())
    assert not torch.equal(layers.heads(12, 3, seed=8)(x), one(x))
    assert torch.equal(layers.loss(seed=1)(x), layers.loss(seed=1)(x))


def test_a_lent_layer_is_what_multi_head_attention_computes():
    """Is the layer that head_importance is asked about the real thing?"""
    lent = layers.heads(12, 3, seed=7)
    ours = oracle.MultiHeadAttention(12, 3).double()
    ours.load_state_dict(lent.state_dict())
    x = torch.randn(2, 5, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(lent(x), ours(x))


def test_the_twin_equals_torchs_own_layer():
    """With unpacked weights, does multi-head attention compute what nn.MultiheadAttention does, with masks as well?"""
    theirs = layers.packed(12, 3, seed=3)
    ours = oracle.MultiHeadAttention(12, 3).double()
    ours.load_state_dict(oracle.unpack_in_proj(theirs))
    x = torch.randn(2, 5, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    visible = oracle.causal_mask(5)
    assert torch.allclose(ours(x, attn_mask=visible), theirs(x, x, x, attn_mask=~visible)[0])


@pytest.mark.parametrize("seed", range(3))
def test_chance_does_not_refuse_a_right_answer(seed):
    """Whatever the draw, is dropout that is right accepted, in the layer and by itself?"""
    for name in ("attention_dropout", "MultiHeadAttention"):
        exercise = EXERCISES[name]
        chance = [case for case in (*exercise.visible, *HIDDEN[name]) if case.kind == "chance"]
        assert evaluate(name, exercise.expected, cases=chance, seed=seed).score == 1
