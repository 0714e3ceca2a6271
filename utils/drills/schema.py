"""What a card must have. A card that has it not is refused in a sentence: which file, which card, what."""

import re

from utils.drills.card import KINDS, LEVELS, Card


class CardError(ValueError):
    """A card is not as it must be; the text says which and why."""


TEXT, NUMBER, TEXTS = "a text", "a number above 0", "a list of texts"
ALWAYS = {"id": TEXT, "kind": TEXT, "prompt": TEXT, "answer": TEXT, "section": TEXT, "minutes": NUMBER, "level": TEXT}
MAYBE = {"exercise": TEXT, "follow_ups": TEXTS, "source": TEXT}
OF_KIND = {
    "recall": {"rubric": "a list of {points, for}"},
    "design": {"rubric": "a list of {points, for}"},
    "choice": {"options": TEXTS, "right": "a place in options, from 0", "because": TEXTS},
    "numeric": {"make": "a function"},
    "shape": {"code": TEXT, "asks": TEXTS, "answers": "a list of shapes, each a list of whole numbers"},
    "bug": {"code": TEXT, "fault": TEXT, "others": TEXTS, "finds": TEXT},
    "code": {"code": TEXT},
}
ID = re.compile(r"phase([1-7])/[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)?")


def checked(parts, place):
    """The Card made of `parts`, a dict as it stands in a TOML file. Raises CardError, naming `place` and the card."""
    name = parts.get("id") or f"without an id ({str(parts.get('prompt', '?'))[:40]!r})"

    def refuse(text):
        raise CardError(f"{place}, card {name}: {text}")

    kind = parts.get("kind")
    if kind not in KINDS:
        refuse(f"kind is {kind!r}; we know {', '.join(KINDS)}")
    wanted = ALWAYS | OF_KIND[kind]
    for key, what in (wanted | MAYBE | {"twist": "a twist"}).items():
        if key in parts and not _is(what, parts[key]):
            refuse(f"{key} must be {what}, and is {parts[key]!r}")
        if key in wanted and key not in parts:
            refuse(f"{key} is missing: {what}")
    if unknown := sorted(parts.keys() - wanted.keys() - MAYBE.keys() - ({"twist"} if kind == "code" else set())):
        refuse(f"{', '.join(unknown)} is nothing that a {kind} card has")
    if problem := _values(parts, place) or _by_kind(kind, parts):
        refuse(problem)
    lists = {key: _frozen(value) for key, value in parts.items() if isinstance(value, (list, tuple))}
    return Card(**{**parts, **lists, "phase": int(ID.fullmatch(parts["id"])[1])})


def _frozen(value):
    return tuple(tuple(one) if isinstance(one, list) else one for one in value)


def _is(what, value):
    if what is TEXT:
        return isinstance(value, str) and bool(value.strip())
    if what is NUMBER:
        return type(value) in (int, float) and value > 0
    if what is TEXTS:
        return isinstance(value, (list, tuple)) and all(_is(TEXT, one) for one in value)
    if what.startswith("a place"):
        return type(value) is int and value >= 0
    if what.startswith("a function"):
        return callable(value)
    if what.startswith("a list of {"):
        return isinstance(value, list) and bool(value) and all(map(_is_point, value))
    if what.startswith("a list of shapes"):
        return isinstance(value, list) and all(
            isinstance(one, list) and all(type(n) is int and n >= 0 for n in one) for one in value
        )
    return True


def _is_point(value):
    return (
        isinstance(value, dict)
        and set(value) == {"points", "for"}
        and _is(NUMBER, value["points"])
        and _is(TEXT, value["for"])
    )


def _values(parts, place):
    """What is wrong with the values that every card has, or None."""
    phase = ID.fullmatch(parts["id"])
    if phase is None:
        return "an id reads phase2/why-divide: the phase, a stroke, letters, digits, - and _"
    if not re.match(rf"phase{phase[1]}[._]", place):  # phase6.toml, phase6_systems.py
        return f"its id belongs into phase{phase[1]}, not into {place}"
    if parts["level"] not in LEVELS:
        return f"level is {parts['level']!r}; we know {', '.join(LEVELS)}"
    if not re.fullmatch(rf"{phase[1]}\.\d+", parts["section"]):
        return f"section {parts['section']!r} is none of phase {phase[1]}: write {phase[1]}.3"
    return None


def _by_kind(kind, parts):
    """What does not go together in a card of this kind, or None."""
    if kind == "choice":
        options = parts["options"]
        if len(options) < 2 or len(set(options)) < len(options):
            return "options must be two or more, all different"
        if parts["right"] >= len(options):
            return f"right is {parts['right']}, and there are {len(options)} options, counted from 0"
        if len(parts["because"]) != len(options):
            return f"{len(options)} options, but {len(parts['because'])} reasons in because"
    if kind == "shape" and not len(parts["asks"]) == len(parts["answers"]) > 0:
        return f"{len(parts['asks'])} asks, but {len(parts['answers'])} answers"
    if kind == "bug":
        if not parts.get("exercise"):
            return "a bug belongs to an exercise, whose check must find it"
        if len({*parts["others"], parts["fault"]}) != 4:
            return "others must be three faults that it is not, all different"
    return None
