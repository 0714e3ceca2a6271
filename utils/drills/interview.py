"""A mock interview: 45 minutes, cards of every kind for a level, a clock, and a sheet that says what to study next.

The clock stands still while a model answer is read. What is answered counts for the schedule like any drill. An
interview that was broken off can be gone on with on the same day: its plan, clock and points are kept.
"""

import random
import time
import uuid
from collections import defaultdict
from datetime import datetime, timedelta

from utils.drills.card import LEVELS
from utils.drills.deck import open_cards, passed_in
from utils.drills.pages import clock
from utils.drills.replies import ask
from utils.drills.schedule import day_of, now
from utils.drills.session import Session
from utils.drills.sheet import sheet
from utils.drills.store import INTERVIEW

MINUTES = 45
MIX = {"junior": {"junior": 1.0}, "senior": {"senior": 0.65, "junior": 0.35}, "staff": {"staff": 0.5, "senior": 0.5}}
LONG = {"code": 15, "bug": 10, "design": 20}  # one of each, if it fits: minutes at most
SHORT = ("recall", "numeric", "choice", "shape")  # taken in turn, until the time is full
ORDER = (*SHORT, "bug", "code", "design")  # warm up, then the long ones
MARKS = (10, 5, 1)  # minutes left that are said aloud


class Interview(Session):
    """A session over a plan that is drawn once. level: "junior", "senior" or "staff"."""

    LATER, ENDS = "Skip", True

    def __init__(self, cards, store, level, clock=now, minutes=MINUTES, seed=None):
        self._begin(level, planned(cards, level, minutes, random.Random(seed)), 60 * minutes)
        super().__init__(self.plan, store, clock, seed=seed)

    def _begin(self, level, plan, limit):
        self.level, self.plan, self.limit, self._used = level, plan, limit, 0.0
        self.skipped, self._queue = [], [card.id for card in plan]
        self._marks = [60 * mark for mark in MARKS if 60 * mark < limit] + [0]
        self._holder, self._saved = uuid.uuid4().hex, None

    @classmethod
    def broken_off(cls, cards, store, clock=now):
        """The interview that was broken off today, where it was; or None."""
        saved, known = store.interview(), {card.id: card for card in cards}
        if saved is None or day_of(datetime.fromtimestamp(saved["at"], clock().tzinfo)) != day_of(clock()):
            return None
        if not set(saved["plan"]) <= known.keys():
            return None  # of another version of the course
        interview = cls.__new__(cls)
        interview._begin(saved["level"], [known[one] for one in saved["plan"]], saved["limit"])
        super().__init__(interview, interview.plan, store, clock)
        interview._take_up(saved, known)
        return interview

    def _take_up(self, saved, known):
        self._used, self._queue, self._saved = saved["used"], saved["queue"], saved["asked"]
        self.skipped = [known[one] for one in saved["skipped"]]
        self.done = [(ask(known[one], seed), score, seconds) for one, seed, score, seconds in saved["done"]]
        left = self.limit - self._used - (self._saved["seconds"] if self._saved else 0)
        self._marks = [mark for mark in self._marks if mark < left]

    # ---- what is done ----

    def next(self):
        asked = super().next()
        if asked is None:
            self.store.drop_draft(INTERVIEW)
        return asked

    def skip(self):
        """Not answered, and not asked again; the time is gone."""
        self._used += self.seconds()
        self.skipped.append(self.asked.card)
        self.asked = None
        self._keep()

    def end(self):
        """No more cards: what is on the table and in the plan is not reached."""
        if self.asked:
            self._used += self.seconds()
        self.asked, self._queue = None, []

    def _finish(self, score, text, rating=None):
        took = self.seconds()
        feedback = super()._finish(score, text, rating)
        self._used += took
        self._keep()
        return feedback

    # ---- what is said ----

    def seconds_left(self):
        """What is left of the time; the card on the table counts, reading an answer does not."""
        return max(0.0, self.limit - self._used - (self.seconds() if self.asked else 0.0))

    def status(self):
        number = min(len(self.plan), len(self.done) + len(self.skipped) + (self.asked is not None))
        left = self.seconds_left()
        return f"{f'{clock(left)} left' if left else 'time is over'} · {number} of {len(self.plan)}"

    def moment(self):
        """A sentence when few minutes are left, or none: once each; otherwise nothing."""
        left, passed = self.seconds_left(), []
        while self._marks and left <= self._marks[0]:
            passed.append(self._marks.pop(0))
        if not passed or self.asked is None:
            return ""
        minutes = passed[-1] // 60
        return f"{minutes} minute{'s' * (minutes > 1)} left." if minutes else "The time is over: finish this card."

    def described(self):
        """Where it is, for somebody who may go on with it."""
        at = len(self.done) + len(self.skipped) + (self._saved is not None)
        left = self.limit - self._used - (self._saved["seconds"] if self._saved else 0)
        return f"{self.level} interview, {at} of {len(self.plan)}, {clock(max(0, left))} left"

    def comes_back(self, feedback):
        if open_cards([self.done[-1][0].card], passed_in(self.store)):
            return super().comes_back(feedback).replace("It comes", "In the drill it comes", 1)
        return "It comes to the drill once its exercise has passed."

    def summary(self):
        return sheet(self)

    # ---- what is kept ----

    def _keep(self):
        """The whole interview, in one row; unless it was taken up, or another begun, in another window."""
        saved, asked = self.store.interview(), None
        if saved and saved["holder"] != self._holder and self._kept:
            return
        if self.asked:
            asked = {"id": self.asked.card.id, "seed": self.asked.seed, "typed": self.typed}
            asked |= {"tries": self.tries, "seconds": self.seconds()}
        self.store.keep_draft(
            INTERVIEW,
            {
                "holder": self._holder,
                "at": self.clock().timestamp(),
                "level": self.level,
                "limit": self.limit,
                "used": self._used,
                "plan": [card.id for card in self.plan],
                "queue": self._queue,
                "done": [(one.card.id, one.seed, score, seconds) for one, score, seconds in self.done],
                "skipped": [card.id for card in self.skipped],
                "asked": asked,
            },
        )
        self._kept, self._unkept = time.monotonic(), False

    def _resume(self):
        """The card that was on the table when it was broken off."""
        if self._saved is None:
            return False
        kept, self._saved = self._saved, None
        self._put(self.deck[kept["id"]], kept["seed"])
        self.typed, self.tries = kept["typed"], kept["tries"]
        self._began = self.clock() - timedelta(seconds=kept["seconds"])
        self._keep()
        return True

    def _choose(self, moment):
        return self._queue.pop(0) if self._queue and self.seconds_left() > 0 else None


def planned(cards, level, minutes, draw):
    """Cards for an interview at a level: mixed in kind and phase, at most so many minutes together, easy ones first."""
    shares = MIX[level]
    pool = defaultdict(list)
    for card in draw.sample(list(cards), len(cards)):
        if card.level in shares:
            pool[card.kind].append(card)
    for kind in pool:  # of the level's own cards more come early than of the level below
        pool[kind].sort(key=lambda card: draw.random() / shares[card.level])
    plan, left = [], minutes
    for kind, most in LONG.items():
        card = next((one for one in pool[kind] if one.minutes <= min(most, left)), None)
        if card:
            plan.append(card)
            left -= card.minutes
    phases = defaultdict(int)
    while fitting := [kind for kind in SHORT if any(card.minutes <= left for card in pool[kind])]:
        for kind in fitting:
            cards_left = [card for card in pool[kind] if card.minutes <= left]
            if cards_left:
                card = min(cards_left, key=lambda one: phases[one.phase])
                pool[kind].remove(card)
                phases[card.phase] += 1
                plan.append(card)
                left -= card.minutes
    return sorted(plan, key=lambda card: (ORDER.index(card.kind) >= len(SHORT), LEVELS.index(card.level)))
