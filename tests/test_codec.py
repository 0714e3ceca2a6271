"""The codec: whatever may travel arrives as it was, and no bytes do worse than be refused."""

import json
import math
import struct
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from tests.fuzz_codec import MUTATIONS, joined, papers
from utils.observe import codec

UNHURRIED = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
DTYPES = "float64 float32 float16 int64 int32 int16 int8 uint8 bool".split()
SPECIAL = np.array([0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 5e-324, 1e-40, 1 / 3, 65504.0, 1e308, -1.0])


@st.composite
def arrays(draw):
    """NumPy arrays of every dtype: 0-dim, empty, transposed, backwards, spread out."""
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    numbers = np.random.default_rng(draw(st.integers(0, 99))).choice(SPECIAL, shape)
    with np.errstate(all="ignore"):
        array = np.asarray(numbers).astype(draw(st.sampled_from(DTYPES)))
    way = draw(st.sampled_from(["as it is", "transposed", "backwards", "every other", "spread out"]))
    if way == "transposed":
        return array.T
    if way == "backwards" and array.ndim:
        return array[::-1]
    if way == "every other" and array.ndim:
        return array[..., ::2]
    return np.broadcast_to(array, (3, *shape)) if way == "spread out" else array


def as_tensor(array):
    return (
        torch.from_numpy(array.copy()) if array.ndim == 0 else torch.from_numpy(array[...].copy()).expand(array.shape)
    )


tensors = arrays().map(as_tensor) | arrays().map(lambda array: as_tensor(array).to(torch.bfloat16))
texts = st.text(st.characters(exclude_categories=()), max_size=8) | st.sampled_from(["long " * 60, "é\ud800" * 90])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**4000), 2**4000)
    | st.floats()
    | texts
    | st.binary(max_size=300)
    | st.builds(codec.Generator, st.integers(0, 2**62), st.integers(0, 3))
    | st.builds(codec.Other, st.text(max_size=9).map(codec.printable), st.text(max_size=9).map(codec.printable))
    | arrays().filter(lambda array: array.size).map(lambda array: array.flat[0])
)
keys = st.text(max_size=5) | st.integers() | st.none() | st.tuples(st.integers(), st.binary(max_size=3))
values = st.recursive(
    scalars | arrays() | tensors,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
        | st.builds(codec.Fixture, st.text(max_size=5), st.dictionaries(st.text(max_size=3), inner, max_size=2))
    ),
    max_leaves=12,
)


def bits(array):
    return array.dtype, array.shape, array.tobytes()


def same(a, b):
    """Equal to the last bit, the sign of zero and the kind of NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        whole = [one.contiguous().view(torch.int16) if one.dtype is torch.bfloat16 else one for one in (a, b)]
        return a.dtype == b.dtype and bits(whole[0].numpy()) == bits(whole[1].numpy())
    if isinstance(a, (np.ndarray, np.generic)):
        return bits(a) == bits(b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, codec.Fixture):
        return a.name == b.name and same(a.options, b.options)
    if isinstance(a, float):
        return math.isnan(a) and math.isnan(b) or struct.pack("d", a) == struct.pack("d", b)
    return a == b


def whole(text):
    """Text in which no two halves of a character stand side by side by accident: JSON would join them."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass") == text


@UNHURRIED
@given(values)
def test_every_value_arrives_as_it_was(value):
    """Do arrays of every dtype and layout, odd numbers, texts and containers come out bit by bit as they went in?"""
    assert same(codec.decode(codec.encode(value)), value)


@given(values)
@settings(UNHURRIED, max_examples=50)
def test_the_same_value_gives_the_same_bytes(value):
    """May encodings be compared instead of values, also after a journey?"""
    message = codec.encode(value)
    assert codec.encode(value) == message == codec.encode(codec.decode(message))


def test_what_arrives_is_fresh_and_whole():
    """Does every array own its numbers, so that writing into one changes no other?"""
    shared = torch.zeros(3)
    first, second, third = codec.decode(codec.encode([shared, shared, np.zeros(3)]))
    first += 1
    third += 2
    assert second.sum() == 0 and first.resize_(2).sum() == 2 and third.flags.owndata
    assert codec.decode(codec.encode(torch.complex(shared, shared + 1).conj().imag)).tolist() == [-1.0] * 3


@pytest.mark.parametrize(
    "value",
    [
        torch.ones(2, dtype=torch.complex64),
        torch.ones(2, dtype=torch.uint16),
        torch.ones(2).to(torch.float8_e5m2),
        torch.eye(2).to_sparse(),
        torch.ones(2, device="meta"),
        torch.ones([1] * 65),
        np.ones(2, dtype=">f8"),
        np.ones(2, dtype="datetime64[s]"),
        np.array([None]),
        np.longdouble(1),
        object(),
        codec.Generator("1"),
        codec.Fixture(1),
        type("Odd\n✓ 4/4", (), {"__repr__": lambda self: "\x1b[2J\n✓ 4/4"})(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_travel_goes_as_one_plain_line(value):
    """Does anything else arrive as `Other`, in words that stay on their line?"""
    seen = codec.decode(codec.encode([value]))[0]
    assert type(seen) is codec.Other and seen.type.isprintable() and seen.text.isprintable()
    assert codec.decode(codec.encode(seen)) == seen


# ---- hostile bytes -------------------------------------------------------------------------------


def message(tree, streams=b"", **numbers):
    text = tree if isinstance(tree, bytes) else json.dumps(tree).encode()
    return joined(text, streams or (save(numbers) if numbers else b""))


def header(text, numbers=b""):
    return joined(text if isinstance(text, bytes) else json.dumps(text).encode(), numbers)


def array(shape, name="float64", library="torch"):
    return {"array": name, "shape": shape, "library": library}


def of(dtype, *shape, offsets=(0, 8)):
    return {"float64": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


ONE, BYTES = np.zeros(1), np.zeros(4, dtype=np.uint8)
PRIME = 2**61 - 1  # of Python's hash
NODES = codec.MAX_TREE // 4
HOSTILE = {
    "nothing": b"",
    "a length alone": (5).to_bytes(8, "little"),
    "a huge length": b"\xff" * 8 + b"null",
    "64 MiB of nested lists": message(b"[" * (codec.MAX_BYTES - 8)),
    "64 MiB of empty dicts": message(b"[" + b"{}," * (codec.MAX_BYTES // 3 - 8) + b"0]"),
    "lists as deep as a tree may be long": message(b"[" * codec.MAX_TREE),
    "as many lists as a tree has room for": message(b"[" + b"[]," * (NODES - 8) + b"0]"),
    "as many numbers": message(b"[" + b"0.5," * (NODES - 8) + b"0]"),
    "as many names": message(json.dumps({"named": {str(name): 0 for name in range(codec.MAX_NODES + 1)}}).encode()),
    "an int of a million digits": message(b"1" * 1_000_000),
    "an int of 5000 bits": message(str(2**5000).encode()),
    "a header of two-byte characters": message("null".encode("utf-16")),
    "a header that is not ASCII": message('"é"'.encode()),
    "two values": message(b"1 2"),
    "an unknown node": message({"pickle": "gASVAAAA"}),
    "too many keys in a node": message({"tuple": [], "named": {}}),
    "a tuple of a text": message({"tuple": "abc"}),
    "a dict of texts": message({"dict": ["ab", "cd"]}),
    "a dict of three": message({"dict": [[1, 2, 3]]}),
    "a key that has no hash": message({"dict": [[[], 1]]}),
    "keys of one hash": message({"dict": [[number * PRIME, 0] for number in range(1, 9_000)]}),
    "bytes in words": message({"bytes": "ff"}),
    "bytes before the beginning": message({"bytes": -1}, uint8=BYTES),
    "more bytes than there are": message({"bytes": 5}, uint8=BYTES),
    "bytes of other numbers": message({"bytes": 1}, float64=ONE),
    "a text that is no UTF-8": message({"text": 4}, uint8=BYTES + 255),
    "a generator of True": message({"generator": True, "copy": 0}),
    "a fixture of numbers": message({"fixture": 1, "options": {"named": {}}}),
    "a fixture without options": message({"fixture": "mean", "options": []}),
    "fixtures in fixtures": message(b'{"fixture": "mean", "options": ' * 400 + b"0" + b"}" * 400),
    "another that is a list": message({"other": [], "text": ""}),
    "numbers that nobody uses": message(None, float64=ONE),
    "numbers used twice": message([array([1]), array([1])], float64=ONE),
    "numbers used a million times": message([array([1])] * 19_000, float64=np.zeros(100_000)),
    "numbers of no stream": message(array([1]), float32=ONE.astype("f4")),
    "a negative size": message(array([-1]), float64=ONE),
    "two negative sizes": message(array([-1, -1]), float64=ONE),
    "a size of half": message(array([0.5, 2]), float64=ONE),
    "a size that is a list": message(array([[0], 10**9]), float64=ONE),
    "a size that is a text": message(array(["a", 10**9]), float64=ONE),
    "a shape that is a number": message(array(1), float64=ONE),
    "a million axes": message(array([1] * 1_000_000), float64=ONE),
    "65 axes": message(array([1] * 65), float64=ONE),
    "nothing, 10**18 times": message(array([0, 10**18]), float64=ONE[:0]),
    "nothing, 10**7 times in two axes": message(array([10**7, 0, 10**7]), float64=ONE[:0]),
    "a scalar of two": message(array([2], library="numpy scalar"), float64=np.zeros(2)),
    "half precision of whole ones": message(array([1], library="torch bfloat16"), float64=ONE),
    "an unknown library": message(array([1], library="jax"), float64=ONE),
    "a stream of two axes": message(array([1]), float64=np.zeros((1, 1))),
    "a stream under another name": message(array([1]), float64=ONE.astype("f4")),
    "a stream of complex numbers": message(array([1], "complex64"), complex64=ONE.astype("c8")),
    "a stream of unsigned numbers": message(array([1], "uint16"), uint16=ONE.astype("u2")),
    "8-bit floats": message(array([8]), header(of("F8_E5M2", 8), bytes(8))),
    "numbers that overlap": message(array([1]), header(of("F64", 1) | {"int64": of("I64", 1)["float64"]}, bytes(8))),
    "numbers with a hole": message(array([1]), header(of("F64", 1, offsets=(8, 16)), bytes(16))),
    "numbers beyond the end": message(array([1]), header(of("F64", 1, offsets=(0, 2**63)), bytes(8))),
    "numbers that end before they begin": message(array([1]), header(of("F64", 1, offsets=(8, 0)), bytes(8))),
    "a stream of 2**64 numbers": message(array([1]), header(of("F64", 2**32, 2**32), bytes(8))),
    "a stream of -1 numbers": message(array([1]), header(of("F64", -1), bytes(8))),
    "a list of streams that is too long": message(array([1]), header(b" " * codec.MAX_TREE, bytes(8))),
    "a list of streams that is none": message(array([1]), header(b"[" * 4000, bytes(8))),
    "more than may be sent": bytes(codec.MAX_BYTES + 1),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_message_is_refused_and_costs_little(what):
    """Is it refused with CodecError, in plain words, and with less than 100 MiB of memory?"""
    tracemalloc.start()
    try:
        with pytest.raises(codec.CodecError) as refusal:
            codec.decode(HOSTILE[what])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(str(refusal.value)) < 120 and str(refusal.value).isprintable()
    assert peak < 100 * 2**20, f"{peak / 2**20:.0f} MiB"


@pytest.mark.parametrize("what", ["as many lists as a tree has room for", "as many numbers", "a million axes"])
def test_refusing_takes_few_steps(what):
    """Are hardly more functions called than a value may have parts?"""
    steps = 0

    def count(frame, event, argument):
        nonlocal steps
        steps += event == "call"

    sys.setprofile(count)
    try:
        with pytest.raises(codec.CodecError):
            codec.decode(HOSTILE[what])
    finally:
        sys.setprofile(None)
    assert steps < 3 * codec.MAX_NODES


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_a_bool_is_true_or_false(library):
    """Are bytes that are neither 0 nor 1 in an array of bools told as True, as `!= 0` would?"""
    numbers = np.array([0, 1, 2, 255], dtype=np.uint8).view(bool)
    seen = codec.decode(message(array([4], "bool", library), bool=numbers))
    assert bytes(memoryview(np.asarray(seen).view(np.uint8))) == b"\0\1\1\1" and int(seen.sum()) == 3
    assert codec.decode(message(array([], "bool", library), bool=numbers[3:])).tobytes() if library == "numpy" else True


def read_or_refused(data):
    try:
        value = codec.decode(data)
    except codec.CodecError:
        return
    again = codec.encode(value)
    assert codec.encode(codec.decode(again)) == again


@UNHURRIED
@given(
    st.binary(max_size=300)
    | st.builds(joined, st.binary(max_size=100), st.binary(max_size=100))
    | st.builds(lambda tree: joined(tree, save({"float64": ONE})), st.binary(max_size=60))
)
def test_any_bytes_are_read_or_refused(data):
    """Do no bytes at all raise anything but CodecError?"""
    read_or_refused(data)


@pytest.fixture(scope="module")
def messages():
    asked, loose = papers()
    return [one for *_, one in asked] + loose


@UNHURRIED
@given(rng=st.randoms(use_true_random=False), way=st.sampled_from(MUTATIONS))
def test_a_spoilt_message_is_read_or_refused(messages, rng, way):
    """Is an honest message with anything changed in it read, and then said again alike, or refused?"""
    read_or_refused(way(rng.choice(messages), rng, messages))


def test_a_message_may_have_a_smaller_limit():
    """Do both sides keep to a limit of the caller's, for numbers, texts and trees?"""
    for value in (torch.zeros(200), "x" * 2000, list(range(1000))):
        with pytest.raises(codec.CodecError):
            codec.encode(value, 500)
        with pytest.raises(codec.CodecError):
            codec.decode(codec.encode(value), 500)


def test_nothing_vast_is_written_out():
    """Is a tensor that repeats one number a billion times refused before its numbers are?"""
    with pytest.raises(codec.CodecError):
        codec.encode(torch.zeros(1).expand(10**12))
    with pytest.raises(codec.CodecError):
        codec.encode(["x" * 99] * (codec.MAX_NODES - 1) + [torch.zeros(0, 2**40)])


# ---- words ---------------------------------------------------------------------------------------


@UNHURRIED
@given(st.text(st.characters(exclude_categories=())))
def test_words_are_shown_as_they_are_or_as_escapes(text):
    """Is every character either plain or named, and what is kept kept?"""
    shown = codec.printable(text)
    assert shown == codec.printable(shown) and shown.encode().decode() == shown
    assert all(mark.isprintable() or mark.isspace() for mark in shown) and not set(shown) & set(
        "\n\r\t\v\f\x1b\x85\u2028"
    )
    assert codec.printable(text, "\n").count("\n") == text.count("\n")


@pytest.mark.parametrize(
    "mark", ["\x1b", "\r", "\b", "\0", "\x7f", "\x9b", "\u202e", "\u2066", "\u200f", "\u2028", "\ufeff"]
)
def test_marks_that_paint_are_named(mark):
    """Can no escape sequence, control or direction character come through?"""
    assert mark not in codec.printable(f"a{mark}b") and codec.printable(f"a{mark}b").startswith("a\\")


# ---- a hundred thousand --------------------------------------------------------------------------


@pytest.mark.slow
def test_a_hundred_thousand_mutated_messages_do_no_harm():
    """Do decode, claims and the judge stand 100,000 spoilt messages, within 200 MiB?"""
    command = [sys.executable, "-m", "tests.fuzz_codec", "100000", "1"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    grown, _ = found.pop("grown_mib"), found.pop("cpu_seconds")
    assert sum(found.values()) == 100_000 and grown < 200
    assert min(found[door] for door in ("refused", "decoded", "observation")) > 1_000
