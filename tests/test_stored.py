"""An exam written down: the same verdict, word for word, as with the twin at hand."""

import functools
import operator
import zlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests import bank
from utils import oracle
from utils.checks import EXERCISES, CheckFailed, core, evaluate, stored
from utils.checks.exercise import Exercise, Replays, Spotted, case
from utils.checks.phase2 import rules
from utils.checks.verdict import Exam, judged
from utils.observe import codec, observe

SAMPLE = ["combine_masks", "softmax_jacobian", "score_variance", "attention_weights", "attention_cost", "causal_mask"]
SEED = 20_260_301


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch):
    """What is compared are verdicts: a busy machine must not end one of the two checks early."""
    monkeypatch.setattr("utils.checks.verdict.BUDGET", float("inf"))


@functools.cache
def both(name, seed=0, hidden=False):
    """The live exam and the same one, stored and loaded."""
    exercise = EXERCISES[name]
    exam = Exam(exercise, (*exercise.visible, *(core.hidden_cases(exercise) if hidden else ())), seed)
    return exam, stored.load(stored.store(exam))


def differing(name, objects, **options):
    """Labels of the objects on which the live and the stored exam say anything different of the same observations."""
    live, loaded = both(name, **options)
    found = []
    for label, obj in objects.items():
        seen = [observe(obj, replace(live.request(case), own_twin=True)) for case in live.cases]
        if judged(live, seen) != judged(loaded, seen):
            found.append(label)
    return found


def known_mistakes(name):
    """Every wrong twin of an exercise, and the twin itself, which is off while a learner's object is observed."""
    found = {"the twin": EXERCISES[name].expected}
    for says, mistake in EXERCISES[name].mistakes.items():
        twins = (mistake.twin, *mistake.twins) if isinstance(mistake, (Spotted, Replays)) else (mistake,)
        found |= {f"{says} ({number})": twin for number, twin in enumerate(twins)}
    return found


def bank_of(name, at_most=None):
    """The wrong and right solutions of the bank, or some of them from all over it."""
    entries = [*bank.WRONG.get(name, ()), *bank.RIGHT.get(name, ())]
    step = 1 if at_most is None else -(-len(entries) // at_most)
    return {entry.label: entry.obj for entry in entries[::step]}


# ---- the same verdict


@pytest.mark.parametrize("name", SAMPLE)
def test_the_verdict_is_the_live_one(name):
    """Are message, score and aspects those of the live check, for known mistakes and some of the bank?"""
    assert differing(name, known_mistakes(name) | bank_of(name, at_most=8)) == []


@pytest.mark.parametrize("name", SAMPLE[:4])
def test_hidden_cases_and_another_seed_are_stored_as_well(name):
    """Does an exam with hidden cases, drawn from another seed, judge as the live one does?"""
    assert differing(name, known_mistakes(name) | bank_of(name, at_most=4), seed=SEED, hidden=True) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"seed": SEED, "hidden": True}], ids=["visible", "hidden"])
@pytest.mark.parametrize("name", EXERCISES)
def test_every_verdict_is_the_live_one(name, options):
    """Does the whole bank of every exercise get the same report?"""
    assert differing(name, known_mistakes(name) | bank_of(name), **options) == []


@pytest.mark.parametrize("name", ["combine_masks", "score_variance"])
def test_what_is_stored_is_what_was_asked_and_answered(name):
    """Are requests, true answers and mistaken answers the live ones, to the last bit?"""
    live, loaded = both(name)
    for one, other in zip(live.cases, loaded.cases, strict=True):
        assert codec.encode(vars(loaded.request(other))) == codec.encode(vars(live.request(one)))
        assert codec.encode(loaded.truth(other)) == codec.encode(live.truth(one))
        for says, mistake in () if one.judge else live.exercise.mistakes.items():
            twin, way = mistake, loaded.exercise.mistakes[says]
            if isinstance(mistake, (Spotted, Replays)):
                twin, way = mistake.twin, way.twin
            assert codec.encode(loaded.mistaken(way, other)) == codec.encode(live.mistaken(twin, one))


# ---- how it is kept


def odd_exam(*mistakes):
    """An exam on causal_mask whose wrong twins return anything at all."""
    exercise = Exercise(
        name="causal_mask",
        phase="phase2_attention",
        section="2.5",
        expected=oracle.causal_mask,
        cases=(case("five", dict(q_len=5)),),
        hint="",
        grad=False,
        mistakes={str(number): mistake for number, mistake in enumerate(mistakes)},
    )
    return Exam(exercise, exercise.cases)


@pytest.mark.parametrize(
    "value",
    [
        operator,
        {"a": [1, (2.5, None)], 3: b"bytes"},
        np.float32(2.5),
        np.arange(6).reshape(2, 3),
        torch.tensor(float("nan")),
        torch.zeros(0, 3, dtype=torch.bfloat16),
        codec.Fixture("attention", {"seed": 1}),
        "text " * 100,
    ],
)
def test_any_answer_is_kept_as_it_was(value):
    """Whatever a wrong twin returns, is it the same after storing?"""
    exam = odd_exam(lambda q_len, kv_len=None: value)
    loaded = stored.load(stored.store(exam))
    right = exam.mistaken(exam.exercise.mistakes["0"], exam.cases[0])
    kept = loaded.mistaken(loaded.exercise.mistakes["0"], loaded.cases[0])
    assert repr(kept) == repr(right) and type(kept["calls"][0]["value"]) is type(right["calls"][0]["value"])


def test_equal_answers_are_kept_once():
    """Does a mistake that does on a case what is right, or what another mistake does, take no room?"""
    exam = odd_exam(oracle.causal_mask, lambda q_len: 3, lambda q_len, kv_len=None: 3, lambda q_len: q_len)
    (sheet,) = stored.load(stored.store(exam)).sheets.values()
    assert sheet.ways == [0, 1, 1, 2] and len(sheet.messages) == 5  # arrays, request, three answers


def test_the_bytes_are_the_same_each_time():
    """Does storing an exam twice give the same bytes, so that a release can be compared?"""
    exam = both("combine_masks")[0]
    assert stored.store(exam) == stored.store(exam)


# ---- what is refused


@pytest.mark.parametrize(
    "rule", [lambda got, request: True, operator.is_, functools.partial(rules.judge_variances, 48)]
)
def test_a_rule_that_cannot_be_named_is_refused(rule):
    """Is code that a stored exam could not find again refused when it is stored?"""
    exam = odd_exam(Spotted(rule, oracle.causal_mask))
    with pytest.raises(ValueError, match="rules module|by keyword"):
        stored.store(exam)


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "utils.checks.phase2.rules:torch.load",
        "utils.checks.phase2.rules:partial",
        "utils.checks.phase2.rules:math",
        "utils.checks.phase2.masks:triangle",
        "utils.checks.phase2.rules",
        "xutils.checks.phase2.rules:said",
    ],
)
def test_a_stored_exam_can_name_nothing_but_rules(name):
    """Does a forged exam get at no code besides the functions of the rules modules?"""
    packed, *sheets = stored._parts(stored.store(odd_exam()))
    head = codec.decode(zlib.decompress(packed))
    head["properties"] = [(name, {})]
    with pytest.raises(ValueError, match="no function of a rules module"):
        stored.load(stored._joined([zlib.compress(codec.encode(head)), *sheets]))


def test_damaged_bytes_are_refused():
    """Is an exam that is cut short, empty or overwritten refused in words?"""
    data = stored.store(odd_exam())
    for broken in (b"", data[:-1], data[:100], data[:3], b"\0" * 64, data + b"x", data + data, b"PK" + data):
        with pytest.raises(ValueError, match="not a stored exam"):
            stored.load(broken)


def test_a_case_that_is_not_stored_is_refused_in_words(monkeypatch):
    """Where only stored answers are at hand, do its own cases work, in any choice, and another one not?"""
    loaded = both("causal_mask")[1]
    monkeypatch.setitem(stored.STORED, "causal_mask", loaded)
    monkeypatch.setitem(EXERCISES, "causal_mask", loaded.exercise)
    assert evaluate("causal_mask", oracle.causal_mask, seed=5).passed
    assert evaluate("causal_mask", oracle.causal_mask, cases=loaded.exercise.visible[2:4]).passed
    assert core.find("causal_mask").section == "2.5"
    with pytest.raises(CheckFailed, match="does not know the answer"):
        evaluate("causal_mask", oracle.causal_mask, cases=[case("another", dict(q_len=4))])
