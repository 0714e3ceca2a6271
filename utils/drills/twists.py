"""A twist's case: from what cards/*.toml says of it to the case of a check.

A twist stands alone (`args`, `init`, `then`) or begins with a case of the exercise (`from = "a mask"`) and says what is
different. A list of whole numbers is a shape; a table of one of the words below stands for what TOML cannot say.
"""

from dataclasses import replace

import torch

from utils.checks.draw import mask, normal, probs
from utils.checks.exercise import Case
from utils.observe.codec import Fixture, Generator


def twist_case(twist, exercise):
    """The Case of a Twist of this Exercise, as exact as the check's own: atol is that of its first case."""
    first = exercise.cases[0]
    start = Case(twist.name, {}, atol=first.atol)
    if twist.start:
        start = next(one for one in exercise.cases if one.name == twist.start)
    parts = dict(twist.options)
    for key in ("args", "init"):
        if key in twist.specs:
            before = getattr(start, key) or {}
            parts[key] = before | {name: spec(value, before.get(name)) for name, value in twist.specs[key].items()}
    if "then" in twist.specs:
        parts["then"] = tuple({key: spec(value) for key, value in call.items()} for call in twist.specs["then"])
    return replace(start, name=twist.name, repeats="", **parts)


def spec(value, before=None):
    """What a value in a twist's TOML stands for; `before`: what stands there in the case that it begins with."""
    if isinstance(value, list) and all(type(size) is int for size in value):
        return tuple(value)
    if not isinstance(value, dict):
        return value
    if set(value) == {"with"}:
        return _changed(before, value["with"])
    word, content = next(iter(value.items()), ("", None))
    if word in WORDS and value.keys() <= {word, *OPTIONS.get(word, ())}:
        return WORDS[word](content, **{key: value[key] for key in value if key != word})
    return value


def _changed(before, changes):
    """A Fixture or a dict with some of its entries changed."""
    if isinstance(before, Fixture):
        return replace(before, options=_changed(before.options, changes))
    return before | {name: spec(value, before.get(name)) for name, value in changes.items()}


def _pairs(rules):
    return [tuple(part.encode() for part in rule.split("|")) for rule in rules]


OPTIONS = {"normal": ("std", "shift"), "mask": ("empty",)}
WORDS = {
    "normal": lambda shape, **how: normal(*shape, **how),
    "mask": lambda shape, empty=(): mask(*shape, empty=[tuple(index) for index in empty]),
    "probs": lambda shape: probs(*shape),
    "ints": lambda rows: torch.tensor(rows, dtype=torch.int64),
    "floats": lambda rows: torch.tensor(rows, dtype=torch.float64),
    "bools": lambda rows: torch.tensor(rows, dtype=torch.bool),
    "int8": lambda rows: torch.tensor(rows, dtype=torch.int8),
    "uint8": lambda rows: torch.tensor(rows, dtype=torch.uint8),
    "list": lambda content: content,
    "each": lambda parts: [spec(part) for part in parts],
    "nothing": lambda said: None,
    "bytes": str.encode,
    "merges": _pairs,  # ["l|o", "lo|w"]
    "counts": lambda table: {word.encode(): count for word, count in table.items()},
    "fixture": lambda named: Fixture(named[0], dict(*named[1:])),
    "generator": Generator,
}
