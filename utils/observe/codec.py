"""The one language between observe and judge: arrays, numbers, strings, and containers of these.

A message is a JSON tree plus the raw bytes of its arrays (safetensors); nothing is ever unpickled. Whatever a
learner returns that has no place in this language travels as `Other`, its type's name and a short text.
"""

import json
from dataclasses import dataclass, field

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

MAX_BYTES = 64 * 2**20  # a check's largest honest reply is under 1 MiB
MAX_NODES = 20_000
MAX_DEPTH = 12
MAX_TEXT = 8_000_000  # characters of one string

_DTYPES = {
    getattr(torch, name) for name in "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split()
}


class CodecError(ValueError):
    """A message is too large, too deep, or not in this language."""


@dataclass(frozen=True)
class Other:
    """A value that cannot travel: its type's name and the first characters of its repr."""

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


def encode(value):
    """Bytes of `value`: 8 bytes of header length, the JSON tree, then the arrays. Raises CodecError."""
    arrays, count = {}, [0]
    tree = json.dumps(_tree(value, arrays, count, 0)).encode()
    message = len(tree).to_bytes(8, "little") + tree + (save(arrays) if arrays else b"")
    if len(message) > MAX_BYTES:
        raise CodecError(f"a message of {len(message)} bytes is over the limit of {MAX_BYTES}")
    return message


def decode(message):
    """The value that `encode` wrote, as fresh objects. Raises CodecError on anything else."""
    if len(message) > MAX_BYTES:
        raise CodecError(f"a message of {len(message)} bytes is over the limit of {MAX_BYTES}")
    length = int.from_bytes(message[:8], "little")
    if len(message) < 8 + length:
        raise CodecError("the message is cut short")
    try:
        tree = json.loads(message[8 : 8 + length])
        arrays = load(message[8 + length :]) if len(message) > 8 + length else {}
        return _value(tree, arrays, 0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, SafetensorError, RecursionError) as error:
        raise CodecError(f"not a message of this course: {error}") from None


def _tree(value, arrays, count, depth):
    """JSON-able tree of `value`; its arrays are put into `arrays`. Types are compared exactly: a subclass may lie."""
    count[0] += 1
    if depth > MAX_DEPTH or count[0] > MAX_NODES:
        raise CodecError("the value is nested too deeply or has too many parts")

    def inner(part):
        return _tree(part, arrays, count, depth + 1)

    kind = type(value)
    if value is None or kind in (bool, float) or (kind is int and value.bit_length() < 4096):
        return value
    if kind is str:
        return value[:MAX_TEXT]
    if kind is bytes:
        return {"bytes": value.hex()}
    if kind is list:
        return {"list": [inner(part) for part in value]}
    if isinstance(value, tuple):
        return {"tuple": [inner(part) for part in tuple.__iter__(value)]}
    if kind is dict:
        return {"dict": [[inner(key), inner(part)] for key, part in value.items()]}
    if kind is Generator:
        return {"generator": value.seed, "copy": value.copy}
    if kind is Fixture:
        return {"fixture": value.name, "options": inner(value.options)}
    array, library = _as_tensor(value)
    if array is not None:
        arrays[str(len(arrays))] = array
        return {"array": str(len(arrays) - 1), "library": library}
    return {"other": f"{kind.__module__}.{kind.__qualname__}"[:200], "text": _short_repr(value)}


def _as_tensor(value):
    """(plain tensor on the CPU, library name) of an array-like value, or (None, None)."""
    try:
        if isinstance(value, torch.Tensor):
            if value.layout is torch.strided and value.dtype in _DTYPES and value.device.type != "meta":
                return value.detach().as_subclass(torch.Tensor).cpu().clone(
                    memory_format=torch.contiguous_format
                ), "torch"
        elif isinstance(value, (np.ndarray, np.generic)):
            tensor = torch.from_numpy(np.array(value, order="C"))
            if tensor.dtype in _DTYPES:
                return tensor, "numpy" if isinstance(value, np.ndarray) else "numpy scalar"
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        pass  # for example an array of objects, or an unwrapped functorch tensor: it travels as Other
    return None, None


def _short_repr(value):
    try:
        return repr(value)[:200]
    except Exception:  # a learner's __repr__ may fail in any way
        return ""


def _value(tree, arrays, depth):
    if depth > MAX_DEPTH:
        raise CodecError("the message is nested too deeply")
    if not isinstance(tree, dict):
        if isinstance(tree, list):
            raise CodecError("a bare list in a message")
        return tree
    if "bytes" in tree:
        return bytes.fromhex(tree["bytes"])
    if "list" in tree:
        return [_value(part, arrays, depth + 1) for part in tree["list"]]
    if "tuple" in tree:
        return tuple(_value(part, arrays, depth + 1) for part in tree["tuple"])
    if "dict" in tree:
        return {_value(key, arrays, depth + 1): _value(part, arrays, depth + 1) for key, part in tree["dict"]}
    if "generator" in tree:
        return Generator(tree["generator"], tree["copy"])
    if "fixture" in tree:
        return Fixture(tree["fixture"], _value(tree["options"], arrays, depth + 1))
    if "array" in tree:
        tensor = arrays[tree["array"]]
        if tree["library"] == "torch":
            return tensor.clone()
        array = tensor.numpy().copy()
        return array if tree["library"] == "numpy" else array[()]
    return Other(str(tree["other"]), str(tree["text"]))
