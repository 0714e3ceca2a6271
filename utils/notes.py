"""Worked numbers of the notes: what they print, what comes out, and where they slip.

    from utils import notes
    notes.example("002-causal-softmax")                       a table: printed, recomputed, verdict, erratum
    notes.example("002-causal-softmax").compare(my_weights)   your own number beside both
    notes.examples(phase=2), notes.errata(phase=2)            lists to browse

Everything stands in notes.json. Nothing here computes a worked number: the tests recompute all of them.
"""

import itertools
import json
import math
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

from utils import notes_table

PHASES = range(1, 7)
SMALL = 1e-9  # two float64 ways to one number differ by less


class UnknownId(LookupError):
    """Nothing in the notes has this name; the message offers the nearest ones."""


@dataclass(frozen=True, repr=False)
class Erratum:
    """One slip of the notes: where it stands, what it says, what holds instead and how that is known.

    evidence: the id of a recomputed example, "literature", "page" (reading it shows it) or a true Python expression
    examples: ids of the worked numbers it concerns
    """

    id: str
    phase: int
    source: str
    where: str
    claim: str
    correction: str
    evidence: str
    lesson: str
    examples: tuple = ()

    def __repr__(self):
        return notes_table.erratum_text(self)

    def _repr_html_(self):
        return notes_table.erratum_html(self)


@dataclass(frozen=True, repr=False)
class Comparison:
    """How a learner's own number stands, in words.

    agrees: with the recomputation; None where that is impossible
    agrees_with_notes: with what they print, to the printed digits
    """

    agrees: bool | None
    agrees_with_notes: bool
    text: str

    def __repr__(self):
        return self.text


@dataclass(frozen=True, repr=False)
class Example:
    """One worked number: its inputs, what the notes state, what is correct, and the verdict.

    inputs, stated, correct: dicts of plain numbers, words and nested lists; a hidden score is float("-inf")
    verdict: "right", "right to rounding", "wrong" or "cannot be recomputed"; of the worst result if there are several
    kind: "number" (printed), "claim" (said in words) or "check" (follows from what they print)
    unrounded: a result when nothing was rounded or mistyped on the way, where the inputs are themselves results
    precision: per result, how far a right value may lie from the printed one: half of its last digit
    shapes: whether the results are shapes of tensors
    """

    id: str
    phase: int
    kind: str
    source: str
    topic: str
    inputs: dict
    stated: dict
    correct: dict
    verdict: str
    lesson: str
    errata: tuple = ()
    unrounded: dict = field(default_factory=dict)
    precision: dict = field(default_factory=dict)
    shapes: bool = False

    def compare(self, value, key=None):
        """Say how your own value stands against the printed one and the recomputed one.

        value: tensor, array, list, number or word; axes of length 1 do not matter
        key: which result is meant; without it, the one your value fits
        Returns a Comparison, which shows itself as text.
        Raises UnknownId if there is no result of that name.
        """
        return _compare(self, _plain(value), key)

    def verdict_of(self, key):
        """Return the verdict of one of the stated results."""
        printed, correct = self.stated[key], self.correct.get(key)
        if correct is None:
            return "cannot be recomputed"
        if _agree(printed, correct, lambda _: SMALL):
            return "right"
        return "right to rounding" if _agree(printed, correct, lambda _: self.slack(key)) else "wrong"

    def entries_off(self, key):
        """Return the places, counted flat, where a printed entry is off by more than rounding."""
        pairs = itertools.zip_longest(_leaves(self.stated[key]), _leaves(self.correct.get(key)))
        return {place for place, (printed, correct) in enumerate(pairs) if _apart(printed, correct) > self.slack(key)}

    def slack(self, key):
        """Return how far a right value may lie from the printed one."""
        return self.precision.get(key, 0.0) + SMALL

    def __repr__(self):
        return notes_table.example_text(self)

    def _repr_html_(self):
        return notes_table.example_html(self)


class Listing(tuple):
    """Examples or errata in a row: a notebook shows one line for each."""

    def __getitem__(self, place):
        found = super().__getitem__(place)
        return Listing(found) if isinstance(place, slice) else found

    def __repr__(self):
        return notes_table.listing_text(self)

    def _repr_html_(self):
        return notes_table.listing_html(self)


def example(id):
    """Return the worked number with this id, such as "002-causal-softmax".

    Returns an Example, a fresh copy each time.
    Raises UnknownId with the nearest ids if there is none of that name.
    """
    record = _find(id, "examples", "worked number")
    slips = tuple(erratum(slip) for slip, row in _stored()["errata"].items() if id in row["examples"])
    return Example(**_decoded(record), errata=slips)


def examples(phase=None):
    """Return all worked numbers, or those of one phase (1 to 6)."""
    return _listing("examples", example, phase)


def erratum(id):
    """Return the erratum with this id, such as "A18". Raises UnknownId with the nearest ids."""
    record = _find(id, "errata", "erratum")
    return Erratum(**{**record, "examples": tuple(record["examples"])})


def errata(phase=None):
    """Return all errata, or those of one phase (1 to 6)."""
    return _listing("errata", erratum, phase)


@lru_cache(maxsize=1)
def _stored():
    kinds = json.loads(Path(__file__).with_name("notes.json").read_text(encoding="utf-8"))
    return {kind: {row["id"]: row for row in rows} for kind, rows in kinds.items()}


def _find(id, kind, what):
    rows = _stored()[kind]
    if isinstance(id, str) and id in rows:
        return rows[id]
    lower = {known.lower(): known for known in rows}
    near = [lower[name] for name in get_close_matches(str(id).lower(), lower, n=3, cutoff=0.5)]
    hint = f"Nearest: {', '.join(near)}. " if near else ""
    raise UnknownId(f"the notes have no {what} called {id!r}. {hint}See them all: notes.{kind}()")


def _listing(kind, build, phase):
    if phase is not None and phase not in PHASES:
        raise ValueError(f"phase is a number from 1 to 6, or left out for all of them; it was {phase!r}")
    return Listing(build(id) for id, row in _stored()[kind].items() if phase in (None, row["phase"]))


def _decoded(value):
    """Return a copy of stored data with "-inf" as a number; a copy, so that nobody changes the store."""
    if isinstance(value, dict):
        return {key: _decoded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_decoded(part) for part in value]
    return -math.inf if value == "-inf" else value


def _plain(value):
    """Return tensors, arrays, tuples and ranges as nested lists, without importing torch for it."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, (list, tuple, range)) else value


def _leaves(value):
    """Return the entries of nested lists and dicts, flat; keys of a dict count as entries."""
    if isinstance(value, dict):
        return [leaf for key in sorted(value, key=str) for leaf in (key, *_leaves(value[key]))]
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, list) else [value]


def _shape(value):
    """Return the lengths of nested lists without axes of length 1, or None where rows differ in length."""
    if not isinstance(value, list):
        return ()
    inner = {_shape(part) for part in value} or {()}
    if len(inner) > 1 or None in inner:
        return None
    return ((len(value),) if len(value) != 1 else ()) + inner.pop()


def _apart(mine, theirs):
    """Return how far two entries lie apart: inf between words, kinds, or a number and NaN."""
    if not all(isinstance(entry, (int, float)) and not isinstance(entry, bool) for entry in (mine, theirs)):
        return 0.0 if type(mine) is type(theirs) and mine == theirs else math.inf
    gap = 0.0 if mine == theirs else abs(mine - theirs)
    return math.inf if math.isnan(gap) else gap


def _agree(mine, theirs, allowed):
    """Say whether two results have one shape and no entry of theirs is missed by more than allowed(entry)."""
    if _shape(mine) != _shape(theirs):
        return False
    pairs = itertools.zip_longest(_leaves(mine), _leaves(theirs))
    return all(_apart(a, b) <= allowed(b) for a, b in pairs)


def _as_computed(entry):
    """Return how far a learner's float32 result may lie from ours."""
    finite = isinstance(entry, (int, float)) and math.isfinite(entry)
    return 1e-6 + 1e-5 * abs(entry) if finite else 0.0


def _fitting_key(example, value):
    """Return the result a value is meant for: one it agrees with, else the last of its shape, else the last."""
    like = [key for key, printed in example.stated.items() if _shape(printed) == _shape(value)]
    for results in (example.correct, example.unrounded, example.stated):
        for key in like:
            if key in results and _agree(value, results[key], _as_computed):
                return key
    return (like or list(example.stated))[-1]


def _compare(example, value, key):
    if value is None:
        return Comparison(False, False, "your value is None: there is nothing to compare yet")
    key = _fitting_key(example, value) if key is None else key
    results = {**example.stated, **example.correct}
    if key not in results:
        raise UnknownId(f"{example.id} has no result called {key!r}; it has {', '.join(results)}")
    if _shape(value) != _shape(results[key]):
        text = notes_table.misfit_text(example, key, _shape(value), _shape(results[key]))
        return Comparison(False, False, text)
    printed = example.stated.get(key)
    with_notes = _agree(value, printed, lambda entry: max(example.slack(key), _as_computed(entry)))
    how = _how_it_agrees(example, key, value)
    text = notes_table.comparison_text(example, key, value, how, with_notes, _largest_gap(value, results[key]))
    return Comparison(bool(how) if key in example.correct else None, with_notes, text)


def _how_it_agrees(example, key, value):
    """Return in which sense a value agrees with what comes out: "", "exactly", "unrounded" or "rounded"."""
    ways = (
        ("exactly", example.correct, _as_computed),
        ("unrounded", example.unrounded, _as_computed),
        ("rounded", example.correct, lambda _: example.slack(key)),
    )
    return next((way for way, part, allowed in ways if key in part and _agree(value, part[key], allowed)), "")


def _largest_gap(mine, theirs):
    return max(map(_apart, _leaves(mine), _leaves(theirs)), default=0.0)
