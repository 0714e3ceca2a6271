"""The check engine: scores, messages, and everything that may be handed to it."""

import os
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from autograde.hidden.phase2_attention import HIDDEN
from utils import oracle
from utils.checks import EXERCISES, CheckFailed, check, evaluate
from utils.checks.draw import mask
from utils.checks.exercise import case, refusal
from utils.checks.verdict import Exam, judged
from utils.observe import nothing_seen


def test_a_right_answer_earns_everything():
    """Does a passing report say so in one line?"""
    report = evaluate("sdpa", oracle.sdpa)
    assert report.passed and report.score == 1 and report.likely is None
    assert report.aspects == {"shape": True, "values": True, "gradients": True, "properties": True}
    assert report.text(4) == "✓ sdpa · 4/4 · shape ✓ values ✓ gradients ✓ properties ✓"


def test_a_wrong_answer_is_told_what_is_wrong():
    """Does a failed check give name, case, expected, got, likely and hint, in this order?"""
    report = evaluate("sdpa", EXERCISES["sdpa"].mistakes["scores were not divided by √d_head"])
    lines = report.message.splitlines()
    assert lines[0].startswith('✗ sdpa · case "two heads" (1 of ')
    assert [line.split()[0] for line in lines[1:]] == ["expected", "got", "likely", "hint"]
    assert "out[0, 0] = [" in lines[1] and lines[3].endswith("scores were not divided by √d_head")


def test_an_unknown_fault_is_not_guessed_at():
    """Is "likely" left out when no known mistake does what was observed?"""
    report = evaluate("sdpa", lambda q, k, v, attn_mask=None: oracle.sdpa(q, k, v, attn_mask) + 0.123)
    assert not report.passed and report.likely is None and "likely" not in report.message


def shape_only(q, k, v, attn_mask=None):
    return torch.zeros(*q.shape[:-1], v.shape[-1], dtype=q.dtype)


def no_gradient(q, k, v, attn_mask=None):
    return oracle.sdpa(q.detach(), k, v, attn_mask)


def no_gradient_for_q(q, k, v, attn_mask=None):
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ValueError("d_head, kv_len")
    return oracle.masked_softmax(q.detach() @ k.mT / q.shape[-1] ** 0.5, attn_mask) @ v


def no_refusal(q, k, v, attn_mask=None):
    return torch.zeros(1) if q.shape[-1] != k.shape[-1] else oracle.sdpa(q, k, v, attn_mask)


def mask_ignored(q, k, v, attn_mask=None):
    return oracle.sdpa(q, k, v)


@pytest.mark.parametrize(
    ("answer", "score"),
    [(shape_only, 0.0), (no_gradient, 0.7), (no_refusal, 0.8), (mask_ignored, 0.1)],
)
def test_partial_credit_is_by_aspect(answer, score):
    """Is nothing earned without the simplest values, and then each aspect whole?"""
    assert evaluate("sdpa", answer).score == pytest.approx(score)


def test_shares_are_renormalised_where_an_aspect_does_not_apply():
    """Without gradients, is shape worth 0.1 of 0.7?"""
    report = evaluate("causal_mask", lambda q_len, kv_len=None: oracle.causal_mask(q_len, kv_len).long())
    assert report.aspects["gradients"] is None
    assert report.score == pytest.approx((0.4 + 0.2) / 0.7)


def test_a_blank_stub_is_not_called_wrong():
    """Does NotImplementedError give "not implemented yet", and nothing about values?"""

    def stub(q, k, v, attn_mask=None):
        raise NotImplementedError

    class Stub(nn.Module):
        def __init__(self, d_model, d_head, causal=False):
            raise NotImplementedError

    for name, obj in (("sdpa", stub), ("SelfAttention", Stub)):
        report = evaluate(name, obj)
        assert report.score == 0 and "not implemented yet" in report.message and "expected" not in report.message


@pytest.mark.parametrize("obj", [3, None, "sdpa", torch.zeros(3), nn.Linear, print, {}, lambda: None])
@pytest.mark.parametrize("name", ["sdpa", "SelfAttention", "leaks_future", "softmax_jacobian"])
def test_the_wrong_kind_of_object_gives_a_plain_message(name, obj):
    """Is anything at all refused in words, without a traceback of ours?"""
    report = evaluate(name, obj)
    assert report.score == 0 and report.message.startswith(f"✗ {name}") and "utils/" not in report.message


class Odd:
    def __repr__(self):
        raise RuntimeError("no picture of me")


@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        2.5,
        "text",
        [1, 2],
        {"a": 1},
        Odd(),
        np.zeros(3),
        torch.zeros(0),
        float("nan"),
        [[[[[[[[[[[[[[1]]]]]]]]]]]]]],
        list(range(30_000)),
        torch.zeros(2, 2, dtype=torch.complex64),
        torch.eye(2).to_sparse(),
        (torch.zeros(1), Odd()),
    ],
)
def test_any_returned_value_is_judged(value):
    """Whatever a learner returns, is the verdict a message?"""
    report = evaluate("sdpa", lambda q, k, v, attn_mask=None: value)
    assert report.score == 0 and "got" in report.message


def test_nan_is_shown_as_nan():
    """Does a NaN answer fail, and show itself?"""
    report = evaluate("sdpa", lambda q, k, v, attn_mask=None: oracle.sdpa(q, k, v, attn_mask) * float("nan"))
    assert report.score == 0 and "nan" in report.message


def too_small_to_see(x, dim):
    return oracle.softmax(x, dim) + 1e-6


def single_precision(x, dim):
    return oracle.softmax(x, dim).float()


def written_over(x, dim):
    shares = oracle.softmax(x, dim)
    shares *= shares
    return shares.exp_().sqrt_()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (too_small_to_see, ["expected  out[0, 0] = 0.1177", "got       out[0, 0] = 0.1177"]),
        (single_precision, ["float32, torch's usual one", "dtype=…"]),
        (written_over, ["the gradient needs a value that was written over"]),
    ],
)
def test_what_torch_and_numbers_leave_unsaid_is_said(answer, words):
    """Are rows that read alike shown with all digits, and torch's dtype and errors in plain words?"""
    message = evaluate("softmax", answer).message
    assert all(word in message for word in words), message
    expected, got = (line for line in message.splitlines() if line.lstrip().startswith(("expected", "got")))
    assert expected.split("  ")[-1] != got.split("  ")[-1]


def test_a_refusal_without_a_word_is_told_so():
    """Does a bare ValueError, which the course does not take, get words of its own?"""

    def sinusoidal_positions(seq_len, d_model, base=10000.0):
        if d_model % 2:
            raise ValueError
        return oracle.sinusoidal_positions(seq_len, d_model, base)

    assert "ValueError without a word" in evaluate("sinusoidal_positions", sinusoidal_positions).message


def test_printing_and_warning_stay_off_the_page_but_are_shown(capfd):
    """Is output of learner code captured, its first lines quoted, and nothing written to stderr?"""

    def chatty(q, k, v, attn_mask=None):
        import warnings

        print("q is", tuple(q.shape))
        print("on stderr", file=sys.stderr)
        warnings.warn("careful", stacklevel=1)
        return q

    report = evaluate("sdpa", chatty)
    assert "printed   q is (2, 5, 4)" in report.message
    assert capfd.readouterr() == ("", "")
    assert evaluate("sdpa", lambda *a, **o: [print("x"), oracle.sdpa(*a, **o)][1]).passed


@pytest.mark.parametrize("swallow", [False, True])
def test_an_endless_loop_ends(swallow, monkeypatch):
    """Is a function that never returns stopped, once, even if it catches every Exception?"""
    monkeypatch.setattr("utils.checks.exercise.SECONDS", 0.3)

    def endless(q_len, kv_len=None):
        while True:
            try:
                time.sleep(0.01)
            except Exception:
                assert swallow

    start = time.monotonic()
    report = evaluate("causal_mask", endless, cases=[case("its own", dict(q_len=2)), case("another", dict(q_len=3))])
    assert "no answer: stopped after 0.3 s" in report.message and report.score == 0
    assert time.monotonic() - start < 5


def test_a_slow_function_is_not_waited_for_case_by_case(monkeypatch):
    """Does a check end when all cases together take too long, and say so?"""
    monkeypatch.setattr("utils.checks.verdict.BUDGET", 0.05)

    def slow(q_len, kv_len=None):
        time.sleep(0.03)
        return oracle.causal_mask(q_len, kv_len)

    report = evaluate("causal_mask", slow)
    assert report.score == 0 and "all cases within 0.05 s" in report.message


def test_a_hidden_case_does_not_quote_what_was_printed():
    """Can a learner print hidden inputs into the feedback?"""

    def spy(q_len, kv_len=None):
        print("hidden sizes", q_len, kv_len)

    secret = [replace(case("secret", dict(q_len=4, kv_len=11)), hidden=True)]
    assert "hidden sizes" not in evaluate("causal_mask", spy, cases=secret).message


def test_a_learner_who_exits_does_not_end_the_kernel():
    """Are SystemExit and deep recursion errors like any other?"""

    def leaves(q_len, kv_len=None):
        sys.exit("bye")

    def falls(q_len, kv_len=None):
        return falls(q_len)

    assert "SystemExit: bye" in evaluate("causal_mask", leaves).message
    assert "RecursionError" in evaluate("causal_mask", falls).message


def test_the_failing_line_is_the_learners_own():
    """Does an exception show the learner's line, not ours?"""

    def broken(q, k, v, attn_mask=None):
        return q @ v

    assert "of broken: return q @ v" in evaluate("sdpa", broken).message


def test_global_state_is_put_back_and_reported():
    """Is a changed default dtype, gradient switch or random state noticed and undone?"""

    def careless(q, k, v, attn_mask=None):
        torch.manual_seed(0)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        return oracle.sdpa(q, k, v, attn_mask)

    before = torch.get_rng_state()
    report = evaluate("sdpa", careless)
    assert not report.aspects["properties"]
    assert torch.get_default_dtype() is torch.float32 and torch.is_grad_enabled()
    assert torch.equal(before, torch.get_rng_state())


def test_unknown_exercise_names_the_nearest():
    """Is a typing slip answered with the right name?"""
    with pytest.raises(CheckFailed, match="did you mean causal_mask"):
        evaluate("casual_mask", oracle.sdpa)


def test_check_finds_the_exercise_by_the_name_in_the_call(capsys):
    """Is the exercise the one written in the call, whatever the function calls itself?"""

    def mine(q_len, kv_len=None):
        return oracle.causal_mask.__wrapped__(q_len, kv_len)

    causal_mask = mine
    assert check(causal_mask, points=2) is None
    assert capsys.readouterr().out.startswith("✓ causal_mask · 2/2")
    with pytest.raises(CheckFailed, match="no exercise has this name"):
        check(mine)


def test_check_shows_the_report_alone():
    """Is the traceback of a failed check the report, and nothing else?"""
    with pytest.raises(CheckFailed) as failed:
        sdpa = shape_only
        check(sdpa, points=5)
    lines = failed.value._render_traceback_()
    assert lines[0].startswith("✗ sdpa") and lines[-1].endswith(
        "0/5 points · shape ✓ values ✗ gradients ✗ properties ✗"
    )


def test_check_returns_points_only_while_nbgrader_grades(monkeypatch, capsys):
    """While grading, is the last value a plain float in [0, points], and the report printed?"""
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    sdpa = no_gradient_for_q
    earned = check(sdpa, points=5)
    assert type(earned) is float and earned == 3.5
    captured = capsys.readouterr()
    assert "✗ sdpa" in captured.out and captured.err == ""
    monkeypatch.setenv("NBGRADER_EXECUTION", "validate")
    with pytest.raises(CheckFailed):
        check(sdpa, points=5)


def test_hidden_cases_count_while_grading_and_tell_nothing(monkeypatch, capsys):
    """Is a fault that only a hidden case shows paid for, without a number or the case's name?"""

    def overfitted(q_len, kv_len=None):
        return oracle.causal_mask.__wrapped__(q_len, kv_len) if (kv_len or 0) < 8 else torch.ones(q_len, kv_len) > 0

    causal_mask = overfitted
    assert check(causal_mask) is None
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    assert check(causal_mask, points=1) < 1
    message = capsys.readouterr().out.split("✗")[1]
    assert "a hidden case" in message and "h1" not in message and "[" not in message and "expected" not in message


@pytest.mark.parametrize("name", ["causal_mask", "attention_cost"])
def test_the_visible_answers_by_heart_earn_nothing(name):
    """Where no numbers are drawn, is nothing paid to one who knows what was asked before, and no hidden answer?"""
    exercise = EXERCISES[name]
    exam = Exam(exercise, (*exercise.visible, *HIDDEN[name]))
    seen = [
        exam.truth(case) if not case.hidden else nothing_seen({"type": "KeyError", "message": ""})
        for case in exam.cases
    ]
    assert judged(exam, seen).score == 0


def test_the_own_twin_is_no_answer_for_check():
    """Does `check` refuse the course's own answer, which `evaluate` accepts?"""
    sdpa = oracle.sdpa
    with pytest.raises(CheckFailed, match="build this one yourself"):
        check(sdpa)
    assert evaluate("sdpa", oracle.sdpa).passed


def test_unreachable_twin_is_allowed_in_another_exercise():
    """May a learner lean on the twin of an earlier exercise?"""

    def attention_weights(q, k, attn_mask=None):
        if q.shape[-1] != k.shape[-1]:
            raise ValueError("d_head")
        return oracle.masked_softmax(q @ k.mT / q.shape[-1] ** 0.5, attn_mask)

    assert check(attention_weights, points=2) is None


def test_cases_of_ones_own_can_be_judged():
    """Do drills and hidden runs differ from visible ones only in the cases?"""
    cases = [case("twist", dict(q=(1, 2, 9, 3), k=(1, 2, 4, 3), v=(1, 2, 4, 5), attn_mask=mask(9, 4)))]
    assert evaluate("sdpa", oracle.sdpa, cases=cases).passed
    assert not evaluate("sdpa", mask_ignored, cases=cases).passed
    refused = [refusal("widths", dict(q=(2, 3), k=(2, 4), v=(2, 4)))]
    assert not evaluate("sdpa", no_refusal, cases=refused).passed


def test_observing_needs_no_answers():
    """Can the sandbox's half be imported without a twin, a case or a score coming along?"""
    code = (
        "import utils.observe, sys; print([m for m in sys.modules if m.startswith(('utils.oracle', 'utils.checks'))])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": "."}
    )
    assert run.stdout.strip() == "[]", run.stderr
