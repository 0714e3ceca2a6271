"""What a card is: one question of the drills, of any kind. Data alone; nothing here asks, grades or schedules."""

from collections.abc import Callable
from dataclasses import dataclass, field

KINDS = ("recall", "choice", "numeric", "code", "shape", "bug", "design")
LEVELS = ("junior", "senior", "staff")


@dataclass(frozen=True)
class Question:
    """What a numeric card asks this time, made from a random generator.

    answer     the number, in `unit` ("" for a bare number)
    tolerance  share of the answer that a reply may be off: 0.01 is one per cent; 0 asks for the very number
    slips      {wrong number: the misconception that leads to it, as said to the learner}
    working    how the answer comes about, in a line or two of Markdown
    """

    prompt: str
    answer: float
    unit: str
    tolerance: float
    slips: dict
    working: str

    def agrees(self, value, wanted=None):
        """Is `value` the answer (or the number `wanted`), within the tolerance?"""
        wanted = self.answer if wanted is None else wanted
        return abs(value - wanted) <= self.tolerance * abs(wanted) + 1e-9 * max(1.0, abs(wanted))

    def slip(self, value):
        """The misconception that leads to `value`, or None."""
        return next((said for wrong, said in self.slips.items() if self.agrees(value, wrong)), None)


@dataclass(frozen=True)
class Twist:
    """One more case for a code drill, with the question that it answers.

    specs: {"args": …, "init": …, "then": …} as the TOML says them; utils.drills.twists makes the case of a check of it.
    start: the name of the case of the exercise that it begins with, or ""; options: what else a Case has, by name
    """

    question: str
    name: str
    specs: dict
    start: str = ""
    options: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Card:
    """One question. What every kind has stands first; what a kind does not have is empty.

    id          stable for ever, "phase2/why-divide": the schedule hangs on it
    exercise    the exercise that unlocks it, or None: the first of its phase
    section     of the notebook, "2.3"
    minutes     to answer it, estimated; a code drill's clock
    prompt, answer   Markdown; the answer is a model answer
    source      where the question is from: "notes 002 §2.3", or ""
    """

    id: str
    kind: str
    phase: int
    prompt: str
    answer: str
    section: str
    minutes: float
    level: str
    exercise: str | None = None
    follow_ups: tuple = ()
    source: str = ""
    # choice: what to choose from, which is right (from 0), why each is right or wrong
    options: tuple = ()
    right: int | None = None
    because: tuple = ()
    # recall, design: ({"points": 2, "for": "…"}, …)
    rubric: tuple = ()
    # numeric: make(random.Random) -> Question
    make: Callable | None = None
    # shape, bug: a listing; code: the blank stub
    code: str = ""
    # shape: expressions, and their shapes as tuples
    asks: tuple = ()
    answers: tuple = ()
    # bug: the fault in one sentence, three others that it might be, what the check of the exercise says of the listing
    fault: str = ""
    others: tuple = ()
    finds: str = ""
    # code
    twist: Twist | None = None


NUMERIC = {}  # id -> Card, in the order of definition


def numeric_card(id, **about):
    """Make a numeric card of a function `make(rng) -> Question`: @numeric_card("phase5/kv-cache", section="5.5", …).

    about: section, minutes, level, answer (the method, in Markdown), and where there are any exercise, source,
    follow_ups; prompt, by default the function's docstring, says what it is about, without numbers.
    """
    from utils.drills.schema import checked

    def register(make):
        place = f"{make.__module__.rpartition('.')[2]}.py"
        parts = {"id": id, "kind": "numeric", "prompt": (make.__doc__ or "").strip(), "make": make, **about}
        if id in NUMERIC and NUMERIC[id].make.__qualname__ != make.__qualname__:
            raise ValueError(f"{place}, card {id}: this id is taken by another function")
        NUMERIC[id] = checked(parts, place)
        return make

    return register
