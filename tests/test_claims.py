"""What a child claims: only what has the form of an honest answer comes through, and its words stay words."""

import copy
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from autograde import claims
from autograde.claims import BadClaim
from tests.each import one_in
from tests.fuzz_codec import OUTPUTS, VALUES
from tests.test_codec import tensors, texts, values
from utils.checks import EXERCISES
from utils.checks.exercise import Replays, Spotted, request_for, truth
from utils.checks.verdict import Exam, judged
from utils.observe import Request, answer, codec, nothing_seen, observe

UNHURRIED = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
SEED = 5
PAINT = "\x1b[2J\x1b[1;1H\r✓ sdpa · 4/4\n  so far    4/4 points\u2028\u202e✓\x9b2J\b\b\ud800"


def said(seen, request=None):
    return claims.observation(codec.encode(seen), request)


def honest(name="sdpa", case=None):
    """(request, what the twin does) of a case."""
    exercise = EXERCISES[name]
    case = next((one for one in exercise.visible if one.name == case), exercise.visible[0])
    return request_for(exercise, case, SEED), copy.deepcopy(truth(exercise, case, SEED))


# ---- honest answers ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", one_in(4))
def test_what_honest_objects_do_comes_through_unchanged(name):
    """Do the twin's observation and that of each known mistake pass, to the last byte?"""
    exercise = EXERCISES[name]
    for case in exercise.visible:
        request = request_for(exercise, case, SEED)
        question = codec.encode(vars(request))
        for mistake in (None, *exercise.mistakes.values()):
            wrong = mistake.twin if isinstance(mistake, (Spotted, Replays)) else mistake
            message = answer(wrong or exercise.expected, question)
            assert codec.encode(claims.observation(message, question)) == message


class Restless(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, *more):
        self.calls += 1
        np.random.seed(3)
        print("tab\there\x1b[0m")
        x[0] = 0
        return x * self.scale, more[0]


def test_odd_but_honest_objects_come_through():
    """May an object change its argument and itself, share, print, have loose arguments, or nothing to say?"""
    x = torch.ones(2, 3, dtype=torch.float64)
    init = {"args": {}, "options": {}}
    call = {"args": {"x": x, "*more": [x.clone()]}, "options": {}}
    asked = Request("module", "", [call], init=init, cotangents=[[x, x]], watch=True)
    seen = said(observe(Restless, asked), asked)
    assert "x" in seen["calls"][0]["changed"] and seen["calls"][0]["changed"][-1] == claims._MODULE
    assert seen["disturbed"] == ["NumPy's random state"] and seen["printed"] == "tab\there\\x1b[0m\n"
    assert (2, 3) in seen["shapes"] and seen["parameters"] == 1 and seen["problem"] is None
    for obj in (3, nn.Linear, type("", (nn.Module,), {"__init__": lambda self: 1 / 0})):
        assert said(observe(obj, asked), asked)["problem"]["message"]
    loose = Request("function", "", [{"args": {}, "options": {}}] * 2)
    assert said(observe(lambda: None, loose), loose)["calls"][1]["value"] is None
    nameless = type("", (Exception,), {})
    for error in (nameless(), SystemExit(1), ValueError("two\nlines"), NotImplementedError()):
        raised = said(observe(raising(error), loose), loose)["calls"][0]["raised"]
        assert raised["type"].strip() and raised["message"] == str(error)


def raising(error):
    def fails():
        raise error

    return fails


def test_a_request_may_be_given_as_it_was_sent():
    """Is the request's encoding as good as the request, and is a claim checked without one, too?"""
    request, seen = honest()
    as_sent = codec.encode(vars(request))
    assert codec.encode(said(seen, as_sent)) == codec.encode(said(seen, request)) == codec.encode(said(seen))
    with pytest.raises(BadClaim):
        said(seen | {"calls": []})


# ---- forged answers ------------------------------------------------------------------------------


def call(**parts):
    return lambda seen: seen["calls"][0].update(parts)


def top(**parts):
    return lambda seen: seen.update(parts)


def raised(**parts):
    whole = {"type": "ValueError", "is": ["ValueError"], "message": "no", "where": ""} | parts
    return call(raised={key: part for key, part in whole.items() if part is not ...})


def grads(**parts):
    return lambda seen: seen["calls"][0]["grads"].update(parts)


FORGED = {
    "a part is missing": lambda seen: seen.pop("caught"),
    "a part too many": top(score=1.0),
    "no calls": top(calls=[]),
    "calls that are a dict": top(calls={}),
    "twice as many calls": lambda seen: seen["calls"].extend(seen["calls"] * 2),
    "a call that is a list": top(calls=[[]]),
    "a call without a part": lambda seen: seen["calls"][0].pop("shares"),
    "a call with a part too many": call(passed=True),
    "a problem that is a text": top(problem="none"),
    "a problem that ended": top(problem={"kind": "ended", "message": ""}),
    "a problem of a list": top(problem={"kind": [], "message": ""}),
    "a problem with a part too many": top(problem={"kind": "type", "message": "", "where": ""}),
    "a problem without words": top(problem={"kind": "type", "message": 4}),
    "a problem that raised nothing": top(problem={"kind": "raised", "message": ""}),
    "parameters by halves": top(parameters=0.5),
    "parameters that are True": top(parameters=True),
    "parameters below zero": top(parameters=-1),
    "parameters that are an array": top(parameters=torch.tensor(3)),
    "print that is bytes": top(printed=b"x"),
    "more print than is kept": top(printed="x" * 4001),
    "an unknown disturbance": top(disturbed=["the grade"]),
    "a disturbance twice": top(disturbed=["torch's seed", "torch's seed"]),
    "disturbances that are a text": top(disturbed="torch's seed"),
    "caught True": top(caught=True),
    "caught nothing": top(caught=""),
    "shapes that nobody asked for": top(shapes=[(2, 3)]),
    "raised True": call(raised=True),
    "an exception without a class": raised(**{"is": ...}),
    "an exception of classes in a text": raised(**{"is": "ValueError"}),
    "an exception of numbers": raised(**{"is": [1]}),
    "an exception of endless classes": raised(**{"is": ["ValueError"] * 999}),
    "an exception that says a number": raised(message=4),
    "an exception nowhere": raised(where=None),
    "gradients that are a list": call(grads=[]),
    "a gradient too few": lambda seen: seen["calls"][0]["grads"].pop("k"),
    "a gradient too many": grads(attn_mask=None),
    "every gradient at once": call(grads={"every parameter": True}),
    "a gradient of another shape": grads(q=torch.zeros((), dtype=torch.float64)),
    "a gradient of another dtype": lambda seen: grads(q=seen["calls"][0]["grads"]["q"].float())(seen),
    "a gradient in NumPy": lambda seen: grads(q=seen["calls"][0]["grads"]["q"].numpy())(seen),
    "a gradient that is True": grads(q=True),
    "gradients of weights of a function": call(weight_grads={"w": None}),
    "changed what is not there": call(changed=["grade"]),
    "changed twice": call(changed=["q", "q"]),
    "shares the module": call(shares=[claims._MODULE]),
    "shares numbers": call(shares=[1]),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_observation_is_refused(what):
    """Is a claim that no honest process makes refused, in words that are ours?"""
    request, seen = honest()
    FORGED[what](seen)
    with pytest.raises(BadClaim, match="^[a-z -]+$"):
        said(seen, request)


@pytest.mark.parametrize("value", [None, 3, "", [], (), {}, [1, 2], VALUES[0], torch.zeros(3), OUTPUTS])
def test_another_value_is_no_observation(value):
    """Is anything but an observation refused?"""
    with pytest.raises(BadClaim):
        said(value)


@pytest.mark.parametrize(
    "weights",
    [
        {"every parameter": 1},
        {"every parameter": torch.ones(2)},
        {"w_q.weight": np.zeros(2)},
        {7: None},
        [],
        True,
    ],
    ids=str,
)
def test_forged_gradients_of_weights_are_refused(weights):
    """May "every parameter" be nothing but a plain yes or no, and a gradient nothing but one?"""
    request, seen = honest("SelfAttention")
    assert said(seen, request)
    call(weight_grads=weights)(seen)
    with pytest.raises(BadClaim):
        said(seen, request)


def test_shapes_are_pairs_in_order():
    """Where shapes are watched, is a list of anything else refused?"""
    request, seen = honest("streaming_attention")
    request = replace(request, watch=True)
    assert said(seen | {"shapes": [(1, 2), (1, 3)]}, request)["shapes"] == [(1, 2), (1, 3)]
    for shapes in ([(1, 3), (1, 2)], [(1, 2), (1, 2)], [[1, 2]], [(1,)], [(1, -2)], [(1, 2.0)], [(True, 2)], ((1, 2),)):
        with pytest.raises(BadClaim):
            said(seen | {"shapes": shapes}, request)


def test_calls_may_be_fewer_only_after_one_that_failed():
    """Is what was not called told from what was called and failed?"""
    request, seen = honest("score_variance")
    fails = seen["calls"][0] | {"raised": {"type": "ValueError", "is": [], "message": "", "where": ""}}
    assert len(said(seen | {"calls": [fails]}, request)["calls"]) == 1
    for calls in (seen["calls"][:2], [fails, *seen["calls"][1:]]):
        with pytest.raises(BadClaim):
            said(seen | {"calls": calls}, request)


def test_an_answer_may_not_be_endless():
    """Is an observation far larger than any honest one refused?"""
    request, seen = honest()
    call(value=torch.zeros(codec.MAX_SEEN // 8, dtype=torch.float64))(seen)
    with pytest.raises(BadClaim, match="limit"):
        said(seen, request)


@given(seen=values | st.fixed_dictionaries(dict.fromkeys(nothing_seen(), values)))
@UNHURRIED
def test_any_value_is_an_observation_or_refused(seen):
    """Does no value at all raise anything but BadClaim?"""
    message = codec.encode(seen)
    for read in (claims.observation, claims.cell_outputs):
        with pytest.raises(BadClaim):
            read(message)
    with pytest.raises(BadClaim):
        claims.observation(message[:-1])


# ---- what claims lets through, judged ------------------------------------------------------------

LINES = ("✗ ", "  expected  ", "  got       ", "  differs   ", "  likely    ", "  hint      ")
LINES += ("  printed   ", "            … ", "  so far    ")
words = texts | st.sampled_from([PAINT, "", ":", "\n", "ValueError", "NotImplementedError", "TookTooLong", "size"])
exceptions = st.fixed_dictionaries(
    {"type": words, "is": st.lists(words | st.just("ValueError"), max_size=3), "message": words, "where": words}
)
problems = exceptions.map(lambda one: {"kind": "raised", **one}) | st.builds(
    lambda kind, message: {"kind": kind, "message": message}, st.sampled_from(["type", "weights", "too much"]), words
)


@st.composite
def close_to(draw, value):
    """The value, or one of another dtype, shape or library, or with another number in it."""
    if isinstance(value, tuple) and draw(st.booleans()):
        parts = [draw(close_to(part)) for part in value]
        return draw(st.sampled_from([tuple(parts), parts, parts[:1], (*parts, None)]))
    if isinstance(value, np.ndarray):
        near = draw(close_to(torch.from_numpy(value)))
        return near.numpy() if isinstance(near, torch.Tensor) else near
    if not isinstance(value, torch.Tensor) or draw(st.integers(0, 5)) == 0:
        return draw(st.just(value) | values)
    dtype = draw(
        st.sampled_from([value.dtype] * 3 + [torch.float32, torch.float16, torch.int64, torch.int8, torch.bool])
    )
    way = draw(
        st.sampled_from(
            [torch.clone, torch.flatten, torch.atleast_2d, lambda x: x[None], lambda x: x[..., :1] if x.dim() else x]
        )
    )
    odd = draw(st.sampled_from([0.0, 0.0, 1.0, float("nan"), float("inf")]))
    return (way(value) + (odd if value.is_floating_point() else int(odd == 1.0))).to(dtype)


@st.composite
def calls(draw, asked, true, index, may_raise):
    gradients = weights = None
    if asked.gradients and draw(st.integers(0, 5)):
        gradients = {}
        for name, (shape, dtype) in asked.leaves[index].items():
            noise = torch.full(shape, draw(st.sampled_from([0.0, 1.0, float("nan")])), dtype=dtype)
            options = [(true["grads"] or {}).get(name), noise, None, codec.Other("torch.Tensor", "sparse")]
            gradients[name] = draw(st.sampled_from(options))
    if gradients is not None and asked.module:
        every = st.booleans().map(lambda whole: {"every parameter": whole})
        names = st.sampled_from([*(true["weight_grads"] or {}), "another.weight"])
        gradient = tensors | st.none() | st.just(codec.Other("torch.Tensor", "sparse"))
        weights = draw(every | st.dictionaries(names, gradient, max_size=4).map((true["weight_grads"] or {}).__or__))
    names = sorted(asked.names[index])
    return {
        "raised": draw(st.none() | exceptions) if may_raise else None,
        "value": draw(st.just(true["value"]) | close_to(true["value"]) | values),
        "grads": gradients,
        "weight_grads": weights,
        "changed": draw(
            st.lists(st.sampled_from([name.lstrip("*") for name in names] + [claims._MODULE]), unique=True)
        ),
        "shares": draw(st.lists(st.sampled_from(names), unique=True)) if names else [],
    }


@st.composite
def claimed(draw, request, true):
    """An observation of the right form, with anything at all in it."""
    asked = claims._asked(request)
    count = len(asked.names)
    last = draw(st.sampled_from([count, count, draw(st.integers(1, count))]))
    blank = dict.fromkeys(("grads", "weight_grads", "value"))
    told = [true["calls"][index] if index < len(true["calls"]) else blank for index in range(last)]
    many = [draw(calls(asked, one, index, index + 1 == last)) for index, one in enumerate(told[:6])] + told[6:]
    problem = draw(st.none() | problems) if draw(st.integers(0, 4)) == 0 else None
    if problem is None and last < count:
        many[-1] = many[-1] | {"raised": draw(exceptions)}
    return {
        "calls": many,
        "problem": problem,
        "parameters": draw(st.sampled_from([true["parameters"]] * 3 + [None, 0, 2**62])),
        "printed": draw(words)[:4000],
        "disturbed": draw(st.lists(st.sampled_from(sorted(claims._DISTURBED)), unique=True, max_size=2)),
        "caught": draw(st.sampled_from([None] * 6 + [PAINT])),
        "shapes": sorted({(2, 5), *draw(st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9))))})
        if asked.watch
        else [],
    }


def is_judged(name, data):
    """A claim of the right form gets a score from 0 to 1, and a report none of whose lines is the learner's."""
    exercise = EXERCISES[name]
    case = data.draw(st.sampled_from(exercise.visible))
    request = request_for(exercise, case, SEED)
    seen = said(data.draw(claimed(request, truth(exercise, case, SEED))), request)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, on the spread of one number
        report = judged(Exam(exercise, (case,), SEED), [seen])
    text = report.text(4)
    assert 0 <= report.score <= 1 and text == codec.printable(text, "\n\t")
    assert report.passed or all(line.startswith(LINES) for line in text.split("\n")), text
    assert sum(line.startswith("  so far") for line in text.split("\n")) == (not report.passed)


@pytest.mark.parametrize("name", [name for name, one in EXERCISES.items() if any(case.judge for case in one.visible)])
@pytest.mark.filterwarnings("ignore")
def test_a_case_with_its_own_judge_refuses_what_it_cannot_read(name):
    """Where a case judges by its own rule: is an answer of another form refused, and no error of ours?"""
    exercise = EXERCISES[name]
    case = next(case for case in exercise.visible if case.judge)
    exam, right = Exam(exercise, (case,), SEED), truth(exercise, case, SEED)
    for odd in (None, {1: 2}, "text", torch.ones(2, 3, 4)):
        report = judged(exam, [right | {"calls": [call | {"value": odd} for call in right["calls"]]}])
        assert not report.passed and report.aspects["values"] is False


@pytest.mark.parametrize("name", one_in(4))
@given(data=st.data())
@settings(UNHURRIED, max_examples=4)
def test_whatever_comes_through_can_be_judged(name, data):
    """Does any claim of the right form get a score from 0 to 1, and a report none of whose lines is the learner's?"""
    is_judged(name, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXERCISES)
@given(data=st.data())
@settings(UNHURRIED, max_examples=200)
def test_whatever_comes_through_can_be_judged_often(name, data):
    """Does it, 200 times for each exercise?"""
    is_judged(name, data)
