"""Wrong solutions every check must reject and unusual right ones it must accept.

WRONG and RIGHT map an exercise to its entries; importing this package fills both.
`says` is the message the learner must read, or None where the exercise states none.
"""

import importlib
import pkgutil
from dataclasses import dataclass


@dataclass(frozen=True)
class Wrong:
    """A solution with one fault."""

    obj: object
    label: str
    says: str | None


@dataclass(frozen=True)
class Right:
    """A solution without a fault, in a style that a narrow check might refuse."""

    obj: object
    label: str
    why: str


WRONG: dict[str, list[Wrong]] = {}
RIGHT: dict[str, list[Right]] = {}


def wrong(name, says=None):
    """Register the decorated solution as one that `name` must reject, saying `says`."""

    def register(obj):
        WRONG.setdefault(name, []).append(Wrong(obj, _new_label(name, obj), says))
        return obj

    return register


def right(name, why):
    """Register the decorated solution as one that `name` must accept."""

    def register(obj):
        RIGHT.setdefault(name, []).append(Right(obj, _new_label(name, obj), why))
        return obj

    return register


def _new_label(name, obj):
    """The object's own name, behind its module's: two authors may choose the same one."""
    label = getattr(obj, "__name__", None) or type(obj).__name__
    label = f"{obj.__module__.removeprefix('tests.bank.')}.{label}"
    if any(entry.label == label for entry in [*WRONG.get(name, []), *RIGHT.get(name, [])]):
        raise ValueError(f"{name} has two entries called {label}")
    return label


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
