"""The half that runs learner code: its bans, its codec, what it writes down."""

import contextlib
import json
import math
import sys
import threading
import tracemalloc

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as bound_early

from tests.bank.unseen_phase2_disguises import DISGUISED, without_any_mode
from utils.checks import evaluate
from utils.observe import Request, codec, forbid, limits, observe

Q = torch.randn(2, 3, 5, 4)


@torch.jit.script
def scripted(q):
    return torch.nn.functional.scaled_dot_product_attention(q, q, q)


def in_a_thread(q):
    worker = threading.Thread(target=lambda: bound_early(q, q, q))
    worker.start()


WAYS = {
    "attribute": lambda q: F.scaled_dot_product_attention(q, q, q),
    "early import": lambda q: bound_early(q, q, q),
    "torch._C": lambda q: torch._C._nn.scaled_dot_product_attention(q, q, q),
    "aten packet": lambda q: torch.ops.aten.scaled_dot_product_attention(q, q, q),
    "aten overload": lambda q: torch.ops.aten.scaled_dot_product_attention.default(q, q, q),
    "aten kernel": lambda q: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, q, q),
    "aten by steps": lambda q: torch.ops.aten._scaled_dot_product_attention_math(q, q, q),
    "scripted": scripted,
    "a new module": lambda q: nn.MultiheadAttention(4, 2),
    "an encoder layer": lambda q: nn.TransformerEncoderLayer(4, 2, batch_first=True)(q[0]),
    "a thread": in_a_thread,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_banned_operation_is_off_by_every_way(way):
    """Does torch's own attention raise during a check, however it is reached, and come back afterwards?"""
    with forbid.bans(("attention",)) as rules, pytest.raises(RuntimeError):
        WAYS[way](Q)
    assert rules.caught, "it failed for another reason"
    WAYS[way](Q)


def test_a_module_made_before_the_check_is_off_as_well():
    """Does a finished nn.MultiheadAttention refuse to run?"""
    ready = nn.MultiheadAttention(4, 2, batch_first=True).eval()
    with forbid.bans(("attention",)), pytest.raises(forbid.Forbidden), torch.no_grad():
        ready(Q[0], Q[0], Q[0])
    assert ready(Q[0], Q[0], Q[0])[0].shape == Q[0].shape


def test_a_swallowed_refusal_is_still_seen():
    """If learner code catches the error and goes on, does the check know?"""

    def sly(q, k, v, attn_mask=None):
        try:
            return bound_early(q, k, v, attn_mask=attn_mask)
        except Exception:
            return q

    report = evaluate("sdpa", sly)
    assert report.score == 0 and "build this one yourself" in report.message


@pytest.mark.parametrize("answer", [answer for _, answer in DISGUISED if answer is not without_any_mode])
def test_delegation_in_disguise_earns_nothing(answer):
    """Are threads, compiled functions and the course's own twin refused by `check`'s rules?"""
    assert evaluate("sdpa", answer, own_twin_allowed=False).score == 0


@pytest.mark.parametrize(
    "way",
    [
        lambda x: torch.autograd.grad(x.sum(), x),
        lambda x: x.sum().backward(),
        lambda x: torch.autograd.functional.jacobian(torch.sin, x),
        lambda x: torch.func.grad(lambda y: y.sum())(x.detach()),
        lambda x: torch.func.vjp(torch.sin, x.detach())[1](x.detach()),
        lambda x: torch.func.jacrev(torch.sin)(x.detach()),
        lambda x: torch.func.jvp(torch.sin, (x.detach(),), (x.detach(),)),
        lambda x: torch.func.jacfwd(torch.sin)(x.detach()),
        lambda x: torch.ops.aten._softmax_backward_data(x.detach(), x.detach(), -1, x.dtype),
    ],
)
def test_no_automatic_differentiation_where_gradients_are_by_hand(way):
    """Is every door to autograd shut in the NumPy exercises?"""
    x = torch.randn(3, requires_grad=True)
    with forbid.bans(("autograd",)) as rules, pytest.raises(RuntimeError):
        way(x)
    assert rules.caught


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.sampled_from([torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool]).map(
        lambda dtype: torch.arange(6).reshape(2, 3).to(dtype)
    )
    | st.sampled_from([np.arange(6.0).reshape(2, 3).T, np.array(3), np.float32(2.5), np.zeros((0, 2))])
    | st.builds(codec.Generator, st.integers(0, 2**60)),
    lambda inner: (
        st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=12,
)


def alike(a, b):
    if isinstance(a, (torch.Tensor, np.ndarray)):
        return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    return type(a) is type(b) and (a == b or (isinstance(a, float) and math.isnan(a)))


@given(plain)
@settings(max_examples=150, deadline=None)
def test_what_goes_through_the_codec_comes_out_alike(value):
    """Do numbers, text, containers and arrays of any dtype survive the journey exactly?"""
    assert alike(codec.decode(codec.encode(value)), value)


def refuses_or_reads(message):
    try:
        codec.decode(message)
    except codec.CodecError:
        return True
    return True


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_read_or_refused(message):
    """Can a forged message do worse than raise CodecError?"""
    assert refuses_or_reads(message)


json_trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from("list tuple dict bytes array library generator copy fixture options other text".split()),
            inner,
        )
    ),
    max_leaves=20,
)


@pytest.mark.slow
@given(json_trees)
@settings(max_examples=5000, deadline=None)
def test_any_well_formed_tree_is_read_or_refused(tree):
    """Is a message whose frame is right and whose content is not refused, too?"""
    text = json.dumps(tree).encode()
    assert refuses_or_reads(len(text).to_bytes(8, "little") + text)


def test_a_message_has_its_limits():
    """Are size, depth and number of parts bounded, on both sides?"""
    deep = None
    for _ in range(codec.MAX_DEPTH + 2):
        deep = [deep]
    for value in (deep, list(range(codec.MAX_NODES + 1)), torch.zeros(codec.MAX_BYTES // 8 + 1, dtype=torch.float64)):
        with pytest.raises(codec.CodecError):
            codec.encode(value)
    with pytest.raises(codec.CodecError):
        codec.decode(b"\0" * (codec.MAX_BYTES + 1))


def test_a_type_that_lies_travels_as_its_name():
    """Is a subclass that calls itself equal to everything kept from the judge?"""

    class Yes(int):
        def __eq__(self, other):
            return True

        __hash__ = int.__hash__

    seen = codec.decode(codec.encode([Yes(3)]))
    assert isinstance(seen[0], codec.Other) and seen[0].type.endswith("Yes")


def test_an_observation_tells_what_was_changed():
    """Are a changed argument and a shared result written down?"""

    def careless(x):
        x[0] = 7.0
        return x

    request = Request("function", "sdpa", [{"args": {"x": torch.zeros(3)}, "options": {}}])
    call = observe(careless, request)["calls"][0]
    assert call["changed"] == ["x"] and call["shares"] == ["x"] and call["raised"] is None
    assert torch.equal(request.calls[0]["args"]["x"], torch.zeros(3)), "the request itself must stay as it was"


def test_of_a_flood_of_text_only_the_beginning_is_kept():
    """Of a hundred megabytes that a function prints, are the first lines shown, and is no memory taken by the rest?"""
    line = "x" * 10**6

    def chatty(q):
        print("first")
        for _ in range(100):
            print(line)
        return q

    tracemalloc.start()
    seen = observe(chatty, Request("function", "", [{"args": {"q": Q}, "options": {}}]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen["printed"].startswith("first\nxxx") and len(seen["printed"]) == limits.MAX_PRINTED
    assert seen["calls"][0]["raised"] is None and peak < 10 * len(line)


class Odd(str):
    def __getitem__(self, place):
        return 7


def test_what_is_no_text_is_refused_where_it_is_written():
    """Bytes, or text that lies about its parts, written to stdout: the learner's own error, and no crash of ours?"""
    request = Request("function", "", [{"args": {"q": Q}, "options": {}}])
    seen = observe(lambda q: sys.stdout.write(b"x"), request)
    assert seen["calls"][0]["raised"]["type"] == "TypeError" and seen["printed"] == ""
    assert observe(lambda q: sys.stdout.write(Odd("abc")), request)["printed"] == "abc"


def test_learner_code_is_stopped_outside_the_main_thread():
    """Where no alarm can be set (Windows, other threads), does the watchdog end an endless loop?"""

    def endless(x):
        while True:
            pass

    request = Request("function", "sdpa", [{"args": {"x": 1}, "options": {}}], seconds=0.3)
    found = []
    worker = threading.Thread(target=lambda: found.append(observe(endless, request)))
    worker.start()
    worker.join(10)
    assert found and found[0]["calls"][0]["raised"]["type"] == "TookTooLong"


def test_a_kernel_may_start_threads_meanwhile():
    """If another thread starts one while learner code runs, as Jupyter does, is nobody stopped or blamed?"""
    running, started = threading.Event(), threading.Event()

    def kernel():
        running.wait(10)
        threading.Thread(target=started.set).start()

    def patient(x):
        running.set()
        return x if started.wait(10) else None

    threading.Thread(target=kernel).start()
    calls = [{"args": {"x": torch.ones(2)}, "options": {}}]
    seen = observe(patient, Request("function", "", calls, bans=["attention"]))
    assert seen["caught"] is None and seen["calls"][0]["raised"] is None
    assert torch.equal(seen["calls"][0]["value"], torch.ones(2))


def test_the_nets_come_down_for_the_courses_own_parts_and_up_again():
    """Is a lent part run without the modes, and what the learner does after it, or after its error, under them?"""
    looked = []

    @forbid.lent
    class Part:
        def run(self, fail=False):
            looked.append(forbid._ours_on_top())
            if fail:
                raise ValueError

    with forbid.bans(["softmax"]) as rules:
        Part().run()
        with contextlib.suppress(ValueError):
            Part().run(fail=True)
        looked.append(forbid._ours_on_top())
        with pytest.raises(forbid.Forbidden):
            torch.ones(2).softmax(-1)
        with torch.overrides.BaseTorchFunctionMode():  # a mode of the learner's own stays where it is
            Part().run()
    assert looked == [False, False, True, False] and rules.caught == "softmax"
