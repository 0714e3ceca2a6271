"""What a learner has done, from the events: per exercise and per phase, and what to do next."""

from collections import Counter
from dataclasses import dataclass

from utils.drills.schedule import now
from utils.drills.store import Store, StoreError
from utils.syllabus import Task, syllabus
from utils.workspace import PHASES

DONE, PARTLY, OPEN = "done", "partly", "open"
PATHS = ("core", "more", "stretch")


@dataclass(frozen=True)
class Exercise:
    """One exercise and how it stands: state "done", "partly" (checked, not right yet) or "open"."""

    task: Task
    state: str
    score: float
    tries: int

    @property
    def points(self):
        return round(self.score * self.task.points, 2)


@dataclass(frozen=True)
class Standing:
    """All there is to show. due: {phase number: cards due now}; said: sentences on the file, or why there is none."""

    exercises: tuple
    due: Counter
    minutes_due: float
    said: tuple = ()

    def of(self, phase):
        return [one for one in self.exercises if one.task.phase == phase]

    def next_exercise(self):
        """What to build next: core before the rest, from the last phase that was begun on, what was begun first."""
        left = [one for one in self.exercises if one.state != DONE]
        started = [one.task.number for one in self.exercises if one.state != OPEN]
        here = max(started, default=1)
        ranked = sorted(left, key=lambda one: (PATHS.index(one.task.path), one.task.number < here, one.state == OPEN))
        return ranked[0] if ranked else None


def standing(root=None, clock=now, cards=None):
    """Read syllabus and events; a file that cannot be read is said. `clock` and `cards` are for tests."""
    tasks = syllabus(root)
    try:
        with Store() as store:
            checks, due = _since_reset(store), store.due_times()
            said = tuple(store.said)
    except StoreError as error:
        checks, due, said = {}, {}, (str(error),)
    exercises = tuple(_exercise(task, *checks.get(task.name, (0, 0.0))) for task in tasks.values())
    waiting = [card for card in _cards(cards) if due.get(card.id, float("inf")) <= clock().timestamp()]
    return Standing(exercises, Counter(card.phase for card in waiting), sum(card.minutes for card in waiting), said)


def _exercise(task, tries, score):
    return Exercise(task, DONE if score == 1 else PARTLY if tries else OPEN, score, tries)


def _since_reset(store):
    """{exercise: (number of checks, best score)}, counted from its last reset."""
    checks = {name: (tries, best) for name, (tries, best, _) in store.tally("check").items()}
    for event in store.events("reset"):  # in order: the last one counts
        later = store.events("check", event.subject, since=event.at)
        checks[event.subject] = (len(later), max((one.score for one in later), default=0.0))
    return checks


def _cards(cards):
    if cards is not None:
        return cards
    from utils.drills import CardError, load_cards

    try:
        return load_cards()
    except CardError:
        return []


def phases_of(standing):
    """[(folder, title, its exercises)] of the phases that this copy of the course holds."""
    return [(name, title, rows) for name, title in PHASES.items() if (rows := standing.of(name))]
