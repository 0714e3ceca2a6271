"""An exam as plain data: judged as the live one is, word for word, where no twin is at hand.

`store(exam)` asks the twin and every known mistake once and writes down what they did; `load(data)` gives it back. A
class is handed the checks of its own phase like this, and a cluster the exams of a grading run. Rules (properties,
judges of chance, signs of a mistake) are code: they go by name, and only functions of a `rules` module are found.

The bytes: the length-prefixed, zlib-packed parts of one head and one sheet per case, each made of codec messages.
"""

import functools
import importlib
import re
import types
import zlib
from dataclasses import dataclass, replace

import numpy as np
import torch

from utils.checks.exercise import EXERCISES, Case, Replays, Spotted
from utils.observe import Request, codec

STORED = {}  # name -> StoredExam, for the exercises whose twins are not at hand
_CASE = ("name", "kind", "dtype", "grad", "atol", "default_dtype", "train", "watch", "hidden", "repeats", "mutates")
_EXERCISE = ("name", "phase", "section", "hint", "fresh", "whole", "draws", "drawn", "is_module")
_RULES = re.compile(r"utils\.checks(\.\w+)*\.rules(_\w+)?")
_ARRAY, _OTHER = "a stored array", "a stored other"  # stand in a message for what is kept elsewhere


@dataclass(frozen=True)
class Way:
    """Stands for one wrong twin."""

    number: int


@dataclass(frozen=True, eq=False)
class StoredExercise:
    """What judging needs to know of an exercise; `visible` are the cases of its exam."""

    name: str
    phase: str
    section: str
    hint: str
    fresh: bool
    whole: bool
    draws: bool
    drawn: bool
    is_module: bool
    properties: tuple
    mistakes: dict
    visible: tuple


@dataclass(frozen=True, eq=False)
class StoredExam:
    """Answers the questions of a `verdict.Exam` from what was written down."""

    exercise: StoredExercise
    cases: tuple
    seed: int
    sheets: dict  # case -> _Sheet

    def request(self, case):
        return self.sheets[case].request

    def truth(self, case):
        return self.sheets[case].answer(0)

    def mistaken(self, twin, case):
        return self.sheets[case].answer(self.sheets[case].ways[twin.number])

    def only(self, cases):
        """The same exam with some of its cases. Raises KeyError for a case whose answer is not stored."""
        for case in cases:
            self.sheets[case]
        return replace(self, cases=tuple(cases))


# ---- writing -------------------------------------------------------------------------------------


def store(exam):
    """The exam as bytes, all its answers included. Raises ValueError where a rule is not one of a rules module."""
    exercise, ways = exam.exercise, {}
    mistakes = [_mistake(says, mistake, ways) for says, mistake in exercise.mistakes.items()]
    head = {
        "exercise": {name: getattr(exercise, name) for name in _EXERCISE},
        "properties": [_named(rule) for rule in exercise.properties],
        "mistakes": mistakes,
        "cases": [{name: getattr(case, name) for name in _CASE} | {"judge": _named(case.judge)} for case in exam.cases],
        "seed": exam.seed,
    }
    sheets = (_joined(_sheet(exam, case, list(ways))) for case in exam.cases)
    return _joined(zlib.compress(part, 9) for part in (codec.encode(head), *sheets))


def _mistake(says, mistake, ways):
    """Plain data on one known mistake; its wrong twins are numbered in `ways`."""

    def number(twin):
        return ways.setdefault(twin, len(ways))

    if isinstance(mistake, Replays):
        return {"says": says, "replays": [number(twin) for twin in mistake.twins]}
    if isinstance(mistake, Spotted):
        sees, also = _named(mistake.sees), [number(twin) for twin in mistake.also]
        return {"says": says, "sees": sees, "twin": number(mistake.twin), "also": also, "certain": mistake.certain}
    return {"says": says, "twin": number(mistake)}


def _sheet(exam, case, twins):
    """Messages: the arrays and which answer each way gives, the request, then the answers, the true one first.

    Equal arrays and equal answers are kept once. Where chance is judged by a rule, verdict.py replays no mistake, and
    none is kept: they would be half of all bytes.
    """
    arrays, answers = {}, {}
    request = codec.encode(_without_arrays(vars(exam.request(case)), arrays))
    seen = [
        exam.truth(case),
        *(() if case.kind == "chance" and case.judge else (exam.mistaken(twin, case) for twin in twins)),
    ]
    numbers = [answers.setdefault(codec.encode(_without_arrays(one, arrays)), len(answers)) for one in seen]
    first = {"arrays": [array for _, array in arrays.values()], "ways": numbers[1:]}
    return codec.encode(first), request, *answers


def _without_arrays(value, arrays):
    """`value` with a number in place of each array, which goes to `arrays`."""
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
        number, _ = arrays.setdefault(codec.encode(value), (len(arrays), value))
        return codec.Fixture(_ARRAY, {"number": number})
    if type(value) is codec.Other:  # read once more it would be an Other of an Other
        return codec.Fixture(_OTHER, vars(value))
    if isinstance(value, dict):
        return {key: _without_arrays(part, arrays) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_without_arrays(part, arrays) for part in value)
    return value


def _named(rule):
    """("module:function", parameters) of a rule, or None."""
    if rule is None:
        return None
    function, parameters = (rule.func, rule.keywords) if isinstance(rule, functools.partial) else (rule, {})
    name = f"{function.__module__}:{function.__qualname__}"
    if getattr(rule, "args", ()) or _found(name) is not function:
        raise ValueError(f"{name} cannot be stored: its parameters must go by keyword")
    return name, parameters


# ---- reading -------------------------------------------------------------------------------------


def load(data):
    """The StoredExam that `store` wrote. Raises ValueError if it is damaged."""
    try:
        packed, *sheets = _parts(data)
        head = codec.decode(zlib.decompress(packed))
        cases = tuple(Case(args={}, judge=_rule(one.pop("judge")), **one) for one in head["cases"])
        exercise = StoredExercise(
            **head["exercise"],
            properties=tuple(map(_rule, head["properties"])),
            mistakes={one["says"]: _known(one) for one in head["mistakes"]},
            visible=cases,
        )
        return StoredExam(exercise, cases, head["seed"], dict(zip(cases, map(_Sheet, sheets), strict=True)))
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        raise ValueError(f"not a stored exam, or a damaged one: {error}") from None


def register(folder):
    """Put the exams that lie in a folder among the exercises, in the order of their file names."""
    for path in sorted(folder.glob("*.exam")):
        try:
            exam = load(path.read_bytes())
        except ValueError as error:
            raise ImportError(f"{path} cannot be read; unpack the course once more ({error})") from None
        STORED[exam.exercise.name] = exam
        EXERCISES[exam.exercise.name] = exam.exercise


class _Sheet:
    """One case: its request and what was answered, unpacked when first asked for."""

    def __init__(self, packed):
        self.packed, self.read = packed, {}

    @functools.cached_property
    def messages(self):
        return _parts(zlib.decompress(self.packed))

    @functools.cached_property
    def first(self):
        return codec.decode(self.messages[0])

    @property
    def ways(self):
        return self.first["ways"]

    @functools.cached_property
    def request(self):
        return Request(**self._message(1))

    def answer(self, number):
        if number not in self.read:
            self.read[number] = self._message(2 + number)
        return self.read[number]

    def answers(self):
        """All that was answered, each once, the true answer first."""
        return map(self.answer, range(len(self.messages) - 2))

    def _message(self, place):
        return _with_arrays(codec.decode(self.messages[place]), self.first["arrays"])


def _with_arrays(value, arrays):
    """The opposite of `_without_arrays`."""
    if isinstance(value, codec.Fixture) and value.name == _ARRAY:
        return arrays[value.options["number"]]
    if isinstance(value, codec.Fixture) and value.name == _OTHER:
        return codec.Other(**value.options)
    if isinstance(value, dict):
        return {key: _with_arrays(part, arrays) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_with_arrays(part, arrays) for part in value)
    return value


def _known(one):
    """The known mistake that `_mistake` wrote."""
    if "replays" in one:
        return Replays(*map(Way, one["replays"]))
    if "sees" in one:
        return Spotted(_rule(one["sees"]), Way(one["twin"]), tuple(map(Way, one["also"])), one["certain"])
    return Way(one["twin"])


def _rule(named):
    """The rule of a name and parameters. Raises ValueError unless it is a function of a rules module."""
    if named is None:
        return None
    name, parameters = named
    return functools.partial(_found(name), **parameters) if parameters else _found(name)


def _found(name):
    module, _, function = name.partition(":")
    if _RULES.fullmatch(module):
        found = getattr(importlib.import_module(module), function, None)
        if isinstance(found, types.FunctionType) and found.__module__ == module:
            return found
    raise ValueError(f"{name} is no function of a rules module")


def _joined(parts):
    """Byte strings as one, each behind its length."""
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def _parts(data):
    """The opposite of `_joined`. Raises ValueError if the data is cut short."""
    parts, place = [], 0
    while place < len(data):
        start = place + 8
        place = start + int.from_bytes(data[place:start], "little")
        if place > len(data) or start > len(data):
            raise ValueError("it is cut short")
        parts.append(data[start:place])
    return parts
