"""The one language between observe and judge: arrays, numbers, strings, and containers of these.

A message is a JSON tree plus the numbers of its arrays, one stream for each dtype (safetensors); nothing is ever
unpickled. Whatever a learner returns that has no place in this language travels as `Other`, its type's name and a
short text. `decode` may be fed by a hostile process: it reads each byte once, so work and memory are bounded.
"""

import functools
import json
import math
import unicodedata
from dataclasses import dataclass, field

import numpy as np
import torch
from safetensors.numpy import load, save

MAX_BYTES = 64 * 2**20  # of a message, and of one array if every empty axis had an entry
MAX_SEEN = 16 * 2**20  # of an observation: the largest honest one is under 1 MiB
MAX_NODES = 20_000
MAX_DEPTH = 12
MAX_TEXT = 8_000_000  # characters of one string
MAX_TREE = 200 * MAX_NODES  # bytes
MAX_HEADER = 4096  # bytes: what safetensors says of ten streams takes 600
LONG = 100  # longer texts travel as numbers, so that the tree stays small
MAX_AXES = 64  # NumPy has no more
MAX_BITS = 4096  # of an int
MAX_COLLISIONS = 100  # keys of one dict with the hash of another one: more are made on purpose, to be slow

_DTYPES = {np.dtype(name): name for name in "float64 float32 float16 int64 int32 int16 int8 uint8 bool".split()}
_SIMPLE = {type(None), bool, float}
_LEAVES = _SIMPLE | {str}
_TOO_MANY = "the value is nested too deeply or has too many parts"


class CodecError(ValueError):
    """A message is too large, too deep, or not in this language."""


@dataclass(frozen=True)
class Other:
    """A value that cannot travel: its type's name and the first characters of its repr, each on one line."""

    type: str
    text: str


@dataclass(frozen=True)
class Generator:
    """Stands for a torch.Generator with this seed; equal ones in one request are the same object, copies are not."""

    seed: int
    copy: int = 0


@dataclass(frozen=True)
class Fixture:
    """Stands for an object that the observing side builds: `utils.observe.fixtures` knows the names."""

    name: str
    options: dict = field(default_factory=dict, hash=False)


def printable(text, keep=""):
    r"""`text` with every character that could hide, move or break what stands around it as an escape: \x1b, \u202e.

    keep: such characters that are wanted nevertheless, for example "\n".
    """
    return text if text.isprintable() else text.translate(_shown(keep))


class _Shown(dict):
    """A table for str.translate: code -> code, or the escape in its place; filled as characters are met."""

    def __init__(self, keep):
        super().__init__((ord(mark), mark) for mark in keep)

    def __missing__(self, code):
        mark = chr(code)
        plain = mark.isprintable() or unicodedata.category(mark) == "Zs"
        shown = mark if plain else mark.encode("unicode_escape").decode()
        if code < 0x3000:  # a hostile text may go through them all
            self[code] = shown
        return shown


_shown = functools.cache(_Shown)


def encode(value, limit=MAX_BYTES):
    """Bytes of `value`: 8 bytes of tree length, the JSON tree, then the arrays. Raises CodecError."""
    writer = _Writer(limit)
    tree = _small(json.dumps(writer.tree(value)).encode())
    message = b"".join((len(tree).to_bytes(8, "little"), tree, writer.numbers()))
    if len(message) > limit:
        raise CodecError(f"a message of {len(message)} bytes is over the limit of {limit}")
    return message


def decode(message, limit=MAX_BYTES):
    """The value that `encode` wrote, as fresh objects. Raises CodecError on anything else."""
    if len(message) > limit:
        raise CodecError(f"a message of {len(message)} bytes is over the limit of {limit}")
    try:
        return _read(message)
    except CodecError:
        raise
    except Exception as error:  # whatever goes wrong in here, the message is to blame; its words are not repeated
        raise CodecError(f"not a message of this course ({type(error).__name__})") from None


def _small(tree):
    """`tree`, unless parsing it would cost too much: a container takes 30 times the bytes that stand for it."""
    if len(tree) > MAX_TREE or tree.count(b"[") + tree.count(b"{") > 4 * MAX_NODES:
        raise CodecError("more beside the arrays than the limit allows")
    return tree


class _Writer:
    """One value on its way into a tree. The numbers of its arrays are collected in `streams`, in the tree's order."""

    def __init__(self, limit):
        self.streams, self.nodes, self.room = {}, 0, limit

    def numbers(self):
        whole = {name: parts[0] if len(parts) == 1 else np.concatenate(parts) for name, parts in self.streams.items()}
        return save(whole) if whole else b""

    def tree(self, value, depth=0):
        """JSON-able tree of `value`. Types are compared exactly: a subclass may lie."""
        kind = type(value)
        if kind in _SIMPLE or (kind is str and len(value) <= LONG) or (kind is int and value.bit_length() < MAX_BITS):
            return value
        depth += 1
        if kind is dict:
            if all(type(key) is str for key in value):
                self._count(len(value), depth)
                named = {key: part if type(part) in _SIMPLE else self.tree(part, depth) for key, part in value.items()}
                return {"named": named}
            self._count(2 * len(value), depth)
            return {"dict": [[self.tree(key, depth), self.tree(part, depth)] for key, part in value.items()]}
        if kind is list:
            return self._list(value, depth)
        if isinstance(value, tuple):
            return {"tuple": self._list(list(tuple.__iter__(value)), depth)}
        if kind is str:
            return {"text": self._raw(value[:MAX_TEXT].encode("utf8", "surrogatepass"))}
        if kind is bytes:
            return {"bytes": self._raw(value)}
        return self._special(value, kind, depth)

    def _list(self, parts, depth):
        self._count(len(parts), depth)
        return [part if type(part) in _SIMPLE else self.tree(part, depth) for part in parts]

    def _count(self, parts, depth):
        self.nodes += parts
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise CodecError(_TOO_MANY)

    def _special(self, value, kind, depth):
        if kind is Generator and type(value.seed) is type(value.copy) is int:
            return {"generator": value.seed, "copy": value.copy}
        if kind is Fixture and type(value.name) is str and type(value.options) is dict:
            return {"fixture": value.name, "options": self.tree(value.options, depth)}
        if kind is Other and type(value.type) is type(value.text) is str:
            return {"other": value.type[:200], "text": value.text[:200]}
        array, library = _as_array(value)
        if array is None:
            return {"other": f"{kind.__module__}.{kind.__qualname__}"[:200], "text": _short_repr(value)}
        return {"array": self._stream(array), "shape": array.shape, "library": library}

    def _stream(self, array):
        """Put the numbers of an array into the stream of its dtype; the stream's name."""
        self.room -= _room_of(array.itemsize, array.shape)
        if self.room < 0:
            raise CodecError(f"arrays of shape {array.shape} and the like are over the limit")
        name = _DTYPES[array.dtype]
        self.streams.setdefault(name, []).append(array.ravel())
        return name

    def _raw(self, data):
        self._stream(np.frombuffer(data, dtype=np.uint8))
        return len(data)


def _room_of(itemsize, shape):
    """Bytes of an array; an axis without entries counts as one entry, or a sum over it could be made to be vast."""
    return itemsize * (math.prod(shape) or math.prod(size or 1 for size in shape))


def _as_array(value):
    """(NumPy array, library name) of an array-like value, or (None, None)."""
    array = None
    try:
        if isinstance(value, torch.Tensor):
            array, library = _numbers(value)
        elif isinstance(value, (np.ndarray, np.generic)):
            array, library = np.asarray(value), "numpy" if isinstance(value, np.ndarray) else "numpy scalar"
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        pass  # for example a sparse tensor, or an unwrapped functorch tensor: it travels as Other
    return (array, library) if type(array) is np.ndarray and array.dtype in _DTYPES else (None, None)


def _numbers(tensor):
    """(array, library) of a tensor of any device and subclass, without its history."""
    try:
        return tensor.numpy(force=True), "torch"
    except TypeError:
        if tensor.dtype is not torch.bfloat16:
            raise
        return tensor.detach().view(torch.int16).numpy(force=True), "torch bfloat16"  # NumPy has none: its bits travel


def _short_repr(value):
    try:
        return " ".join(repr(value)[:400].split())[:200]
    except Exception:  # a learner's __repr__ may fail in any way
        return ""


def _read(message):
    end = 8 + int.from_bytes(message[:8], "little")
    if len(message) < end:
        raise CodecError("the message is cut short")
    if int.from_bytes(message[end : end + 8], "little") > MAX_HEADER:
        raise CodecError("more beside the arrays than the limit allows")
    tree = json.loads(_small(message[8:end]).decode("ascii"))
    reader = _Reader(load(message[end:]) if len(message) > end else {})
    value = reader.value(tree)
    reader.close()
    return value


class _Reader:
    """One tree on its way back to a value. The streams are read once, so no value is larger than its message."""

    def __init__(self, streams):
        if any(_DTYPES.get(numbers.dtype) != name or numbers.ndim != 1 for name, numbers in streams.items()):
            raise CodecError("a stream of numbers that is none")
        self.streams, self.nodes = streams, 0
        self.places = dict.fromkeys(streams, 0)

    def close(self):
        if any(len(numbers) != self.places[name] for name, numbers in self.streams.items()):
            raise CodecError("numbers that belong nowhere")

    def value(self, tree, depth=0):
        kind = type(tree)
        if kind is dict:
            return _READERS[tuple(tree)](self, *tree.values(), depth + 1)
        if kind is list:
            return self.a_list(tree, depth + 1)
        if kind is int and tree.bit_length() >= MAX_BITS:
            raise CodecError("an endless number")
        return tree

    def count(self, parts, depth):
        self.nodes += parts
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise CodecError(_TOO_MANY)

    def a_list(self, parts, depth):
        self.count(len(_exactly(list, parts)), depth)
        return [part if type(part) in _LEAVES else self.value(part, depth) for part in parts]

    def a_tuple(self, parts, depth):
        return tuple(self.a_list(parts, depth))

    def named(self, parts, depth):
        self.count(len(_exactly(dict, parts)), depth)
        return {key: part if type(part) in _LEAVES else self.value(part, depth) for key, part in parts.items()}

    def a_dict(self, pairs, depth):
        self.count(2 * len(_exactly(list, pairs)), depth)
        items = (_exactly(list, pair) for pair in pairs)
        found = [(self.value(key, depth), self.value(part, depth)) for key, part in items]
        if len(found) > MAX_COLLISIONS and len(found) - len({hash(key) for key, _ in found}) > MAX_COLLISIONS:
            raise CodecError("a dict made to be slow")
        return dict(found)

    def numbers(self, name, count):
        """The next `count` numbers of a stream."""
        start = self.places[name]
        self.places[name] = stop = start + count
        if not start <= stop <= len(self.streams[name]):
            raise CodecError("fewer numbers than the tree needs")
        return self.streams[name][start:stop]

    def an_array(self, name, shape, library, depth):
        if len(_exactly(list, shape)) > MAX_AXES or not {int}.issuperset(map(type, shape)):
            raise CodecError("a shape that is none")
        count = math.prod(shape)
        if not count and _room_of(8, shape) > MAX_BYTES:
            raise CodecError("an array of nothing that is too large")
        array = self.numbers(name, count).reshape(shape)
        if name == "bool":
            array = array.view(np.uint8).astype(bool)  # a forged byte may be neither 0 nor 1
        if library == "torch":
            return torch.from_numpy(array).clone()
        if library == "torch bfloat16" and name == "int16":
            return torch.from_numpy(array).clone().view(torch.bfloat16)
        if library == "numpy":
            return array.copy()
        if library == "numpy scalar" and not shape:
            return array[()]
        raise CodecError("an array of an unknown library")

    def some_bytes(self, count, depth):
        return self.numbers("uint8", _exactly(int, count)).tobytes()

    def a_text(self, count, depth):
        text = self.some_bytes(count, depth).decode("utf8", "surrogatepass")
        if len(text) > MAX_TEXT:
            raise CodecError(f"a text is over the limit of {MAX_TEXT} characters")
        return text

    def a_generator(self, seed, copy, depth):
        return Generator(_exactly(int, seed), _exactly(int, copy))

    def a_fixture(self, name, options, depth):
        self.count(0, depth)
        return Fixture(_exactly(str, name), _exactly(dict, self.value(options, depth)))

    def another(self, name, text, depth):
        return Other(*(printable(_exactly(str, part)[:200]) for part in (name, text)))


_READERS = {  # the keys of a tree's node, in the order in which `encode` writes them
    ("tuple",): _Reader.a_tuple,
    ("named",): _Reader.named,
    ("dict",): _Reader.a_dict,
    ("array", "shape", "library"): _Reader.an_array,
    ("text",): _Reader.a_text,
    ("bytes",): _Reader.some_bytes,
    ("generator", "copy"): _Reader.a_generator,
    ("fixture", "options"): _Reader.a_fixture,
    ("other", "text"): _Reader.another,
}


def _exactly(kind, value):
    if type(value) is not kind:
        raise TypeError
    return value
