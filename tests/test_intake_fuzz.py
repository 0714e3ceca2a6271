"""Whatever bytes or JSON are handed in: taken or refused, never anything else."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autograde.intake import Refused, take_in
from tests.hostile_files import nested
from tests.test_intake import PHASE, RELEASED, assert_usable, hand_in

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)
KEYS = ["cell_type", "source", "metadata", "id", "outputs", "attachments", "input", "level", "nbgrader", "tags"]
WORDS = st.sampled_from(["code", "markdown", "raw", "heading", "html", "sdpa", "a,b", "", "x = 1\r\n\0"])
CELL = JSON | st.dictionaries(
    st.sampled_from(KEYS),
    JSON | WORDS | st.dictionaries(st.sampled_from([*KEYS, "name", "collapsed", "a"]), JSON | WORDS),
)
NOTEBOOK = st.fixed_dictionaries(
    {},
    optional={
        "nbformat": st.sampled_from([1, 2, 3, 4, 4, 4, 5, 10**30]) | JSON,
        "nbformat_minor": JSON,
        "metadata": JSON | st.dictionaries(st.sampled_from(["kernelspec", "language_info", "title", "widgets"]), JSON),
        "cells": JSON | st.lists(CELL, max_size=6),
        "worksheets": JSON | st.lists(st.fixed_dictionaries({"cells": st.lists(CELL, max_size=4)}), max_size=3),
    },
)
UNHURRIED = settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    path = tmp_path_factory.mktemp("submitted") / "ada" / PHASE
    path.mkdir(parents=True)
    return path


def assert_taken_or_refused(place, data):
    try:
        found = take_in(hand_in(place, data), PHASE)
    except Refused as reason:
        assert str(reason).isprintable() and len(str(reason)) > 10 and "cannot be taken in" not in str(reason)
    else:
        assert_usable(found.notebook)
        assert all(remark.isprintable() and len(remark) < 300 for remark in found.remarks)


@UNHURRIED
@given(
    data=st.binary()
    | st.builds(lambda start, rest: start + rest, st.sampled_from([b"{", b"\xff\xfe", b"[{"]), st.binary())
)
def test_any_bytes_are_taken_or_refused(place, data):
    """Do no bytes at all make intake fail in any other way?"""
    assert_taken_or_refused(place, data)


@UNHURRIED
@given(value=JSON | NOTEBOOK)
def test_any_json_is_taken_or_refused(place, value):
    """Does no JSON, however like a notebook, make intake fail in any other way?"""
    assert_taken_or_refused(place, json.dumps(value).encode())


@UNHURRIED
@given(data=st.data())
def test_a_real_notebook_changed_anywhere_is_taken_or_refused(place, data):
    """Does no change to one place of a real notebook make intake fail in any other way?"""
    notebook = json.loads(RELEASED)
    notebook["cells"] = notebook["cells"][:12]
    part = notebook
    while isinstance(part, dict | list) and part:
        key = data.draw(st.sampled_from(sorted(part)) if isinstance(part, dict) else st.integers(0, len(part) - 1))
        if not isinstance(part[key], dict | list) or not part[key] or data.draw(st.booleans()):
            part[key] = data.draw(JSON | WORDS | st.just(nested(50)))
            break
        part = part[key]
    assert_taken_or_refused(place, json.dumps(notebook).encode())


@UNHURRIED
@given(at=st.integers(0, len(RELEASED)), length=st.integers(0, 50), insert=st.binary(max_size=20))
def test_a_real_file_damaged_anywhere_is_taken_or_refused(place, at, length, insert):
    """Does no damage to the bytes of a real file make intake fail in any other way?"""
    assert_taken_or_refused(place, RELEASED[:at] + insert + RELEASED[at + length :])
