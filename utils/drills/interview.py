"""A mock interview: 45 minutes, cards of every kind for a level, a clock, and a sheet that says what to study next.

The clock stands still while a model answer is read. What is answered counts for the schedule like any drill.
"""

import random
from collections import defaultdict

from utils.drills.card import LEVELS
from utils.drills.pages import KIND, clock
from utils.drills.schedule import now
from utils.drills.session import Session
from utils.workspace import PHASES

MINUTES = 45
MIX = {"junior": {"junior": 1.0}, "senior": {"senior": 0.65, "junior": 0.35}, "staff": {"staff": 0.5, "senior": 0.5}}
LONG = {"code": 15, "bug": 10, "design": 20}  # one of each, if it fits: minutes at most
SHORT = ("recall", "numeric", "choice", "shape")  # taken in turn, until the time is full
ORDER = (*SHORT, "bug", "code", "design")  # warm up, then the long ones
SHOWN = 5  # sections named on the sheet


class Interview(Session):
    """A session over a plan that is drawn once. level: "junior", "senior" or "staff"."""

    def __init__(self, cards, store, level, clock=now, minutes=MINUTES, seed=None):
        self.level, self.limit, self._used = level, 60 * minutes, 0.0
        self.plan = planned(cards, level, minutes, random.Random(seed))
        self.skipped, self._queue = [], [card.id for card in self.plan]
        super().__init__(self.plan, store, clock, seed=seed)

    def skip(self):
        """Not answered, and not asked again; the time is gone."""
        self._used += self.seconds()
        self.skipped.append(self.asked.card)
        super().skip()

    def seconds_left(self):
        """What is left of the time; the card on the table counts, reading an answer does not."""
        return max(0.0, self.limit - self._used - (self.seconds() if self.asked else 0.0))

    def status(self):
        left = self.seconds_left()
        time = f"{clock(left)} left" if left else "time is over: finish this one"
        number = len(self.done) + len(self.skipped) + (self.asked is not None)
        return f"{self.level} interview · {number} of {len(self.plan)} · {time}"

    def summary(self):
        return sheet(self)

    def _finish(self, score, text, rating=None):
        self._used += self.seconds()
        return super()._finish(score, text, rating)

    def _resume(self):
        return False  # an interview begins anew

    def _choose(self, moment):
        return self._queue.pop(0) if self._queue and self.seconds_left() > 0 else None

    def _keep(self):
        """Nothing is kept of a card on the table: it would turn up in the next drill."""

    def _due_later(self, card):
        """A skipped card of an interview stays as the schedule has it."""


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


def sheet(interview):
    """The score sheet, as Markdown: per kind and phase, and what to study next."""
    answered = [(asked.card, score, seconds) for asked, score, seconds in interview.done]
    if not answered:
        return "# Score sheet\n\nNothing was answered."
    total = sum(score for _, score, _ in answered) / len(answered)
    missed = len(interview.plan) - len(answered)
    lines = ["# Score sheet", "", f"{interview.level} · {len(answered)} answered · {total:.0%} of the points"]
    if missed:
        lines.append(f"\n{missed} not reached or skipped.")
    lines += _table("kind", answered, lambda card: KIND[card.kind])
    lines += _table("phase", answered, lambda card: f"{card.phase} {list(PHASES.values())[card.phase - 1]}")
    return "\n".join([*lines, "", "## Study next", "", *study_next(interview)])


def _table(head, answered, name):
    rows = defaultdict(list)
    for card, score, seconds in answered:
        rows[name(card)].append((card, score, seconds))
    lines = ["", f"| {head} | cards | points | time | planned |", "|---|---|---|---|---|"]
    for key, group in rows.items():
        share = sum(score for _, score, _ in group) / len(group)
        planned_minutes = sum(card.minutes for card, *_ in group)
        time = clock(sum(seconds for *_, seconds in group))
        lines.append(f"| {key} | {len(group)} | {share:.0%} | {time} | {planned_minutes:g} min |")
    return lines


def study_next(interview):
    """Lines on the sections where most was lost, skipped cards included; on being too slow, if nothing else."""
    lost = defaultdict(float)
    slow = []
    for asked, score, seconds in interview.done:
        lost[asked.card.phase, asked.card.section] += (1 - score) * asked.card.minutes
        if seconds > 90 * asked.card.minutes:
            slow.append(asked.card)
    for card in interview.skipped:
        lost[card.phase, card.section] += card.minutes
    worst = sorted((one for one in lost if lost[one]), key=lambda one: -lost[one])[:SHOWN]
    lines = [f"- section {section} ({list(PHASES)[phase - 1]})" for phase, section in worst]
    if slow:
        lines.append(f"- speed: {len(slow)} of {len(interview.done)} cards took half again their time or more")
    return lines or ["- nothing in particular: try the next level"]
