"""A drill, without any front: which card is next, what is asked, what is recorded. Two fronts draw it.

session = Session(deck, store)
while asked := session.next():
    session.answer(reply)
"""

import random
import time
from dataclasses import dataclass
from datetime import datetime, timedelta

from utils.drills.pages import closing, when
from utils.drills.replies import SELF_JUDGED, ask, judge, solved
from utils.drills.schedule import Schedule, day_of, now
from utils.drills.store import Event

NEW_PER_DAY = 20  # more than that come back all at once some days later
DUE_PER_NEW = 3  # cards that come back between two new ones
AHEAD = timedelta(minutes=20)  # with nothing else to do, what is due so soon is asked now
EVERY = 0.5  # seconds between two savings of a text that is being typed
BEAT = 15  # seconds between two savings of the time on a card


@dataclass(frozen=True)
class Feedback:
    """What a reply leads to.

    final      the card is done; otherwise it stays on the table for another try
    text       what is said to the reply; answer: the model answer, once the card is done. Markdown, both
    due        when the card comes back, once it is done
    """

    score: float
    text: str
    final: bool
    rating: str | None = None
    due: datetime | None = None
    answer: str = ""
    follow_ups: tuple = ()

    @property
    def right(self):
        return self.score == 1


class Session:
    """Asks the cards of a deck, due ones first, and records each answer the moment it is given.

    deck: the cards that may be asked, in the order in which new ones are taken; store: utils.drills.store.Store;
    clock: gives an aware datetime. What is on the table is kept, too: after a crash the same card is asked again, with
    the same numbers and what was typed.
    """

    LATER, ENDS = "Later", False  # what the key of skipping is called; may it be ended before the last card?

    def __init__(self, deck, store, clock=now, new_per_day=NEW_PER_DAY, seed=None):
        self.deck = {card.id: card for card in deck}
        self.store, self.clock, self.schedule = store, clock, Schedule(store, clock)
        self.asked, self.typed, self.tries, self.done = None, "", 0, []
        self._seeds = random.Random(seed)
        self._began, self._stopped, self._turn = clock(), None, 0
        self._kept, self._unkept, self._resumed, self._was_due = 0.0, False, None, None
        self._per_day = new_per_day
        self._read()

    # ---- asking ----

    def next(self):
        """Put the next card on the table; None if nothing is left for now. An unanswered one stays where it is."""
        if self.asked is None:
            self._resume() or self._deal()
        return self.asked

    def skip(self):
        """Take the card off the table without an answer; it comes later."""
        card = self.asked.card
        self.store.drop_draft(card.id)
        self.asked = None
        self._due_later(card.id)

    def waiting(self):
        """(cards that are due, new ones that may be begun today) at this moment, the one on the table included."""
        self._refresh()
        moment = self.clock().timestamp()
        due = sum(at <= moment for card, at in self._due.items())
        return due, max(0, min(self._allowed, len(self._new)))

    def status(self):
        """What else is waiting, in a few words."""
        due, new = self.waiting()
        return f"{due} due · {new} new"

    def summary(self):
        """The page at the end, Markdown."""
        return closing(self)

    def next_due(self):
        """When the next card comes back, or None."""
        self._refresh()
        first = min(self._due.values(), default=None)
        return None if first is None else datetime.fromtimestamp(first, self.clock().tzinfo)

    def keep(self, text, at_once=False):
        """Keep what is typed so far, at most twice a second; the last letters with the next beat."""
        self.typed, self._unkept = text, True
        if self.asked and (at_once or time.monotonic() - self._kept > EVERY):
            self._keep()

    def beat(self):
        """To be called every second or so: the last letters are kept, and the time on a card."""
        if self.asked and time.monotonic() - self._kept > (EVERY if self._unkept else BEAT):
            self._keep()

    def seconds(self):
        """How long the card has been on the table; while its model answer is read the clock stands still."""
        return ((self._stopped or self.clock()) - self._began).total_seconds()

    def moment(self):
        """What is to be said aloud at this moment; of a drill nothing."""
        return ""

    def comes_back(self, feedback):
        """When the card that was answered is asked again, a sentence."""
        return f"It comes back {when(feedback.due, self.clock())}."

    # ---- answering ----

    def model_answer(self):
        """The model answer, to tick the rubric by: of a recall or design card. From here on it is being read."""
        self._stopped = self._stopped or self.clock()
        return self.asked.card.answer

    def answer(self, reply):
        """Judge and record a reply (utils.drills.replies.judge says which). Returns Feedback; raises Unclear."""
        verdict = judge(self.asked, reply)
        if not verdict.final:
            self._note_try(verdict.score)
            return Feedback(verdict.score, verdict.text, final=False)
        return self._finish(verdict.score, verdict.text)

    def give_up(self):
        """ "I do not know": the answer is shown, and the card comes back soon."""
        return self._finish(0.0, solved(self.asked), rating="again")

    def _finish(self, score, text, rating=None):
        asked, card = self.asked, self.asked.card
        rating = rating or self._rating(score)
        first = card.id in self._new
        took = round(self.seconds(), 1)
        due = self.schedule.review(
            card.id, rating, score, seed=asked.seed, seconds=took, tries=self.tries + 1, card=card.kind
        )
        self.store.drop_draft(card.id)
        self._allowed -= first
        self._new.pop(card.id, None)
        self._due[card.id] = due.timestamp()
        self.asked, self._turn = None, self._turn + 1
        self.done.append((asked, score, took))
        return Feedback(score, text, True, rating, due, self._answer_of(asked), card.follow_ups)

    def _rating(self, score):
        """How well it went, in the words of the schedule. Slow, or not at the first try, is hard."""
        card = self.asked.card
        if card.kind in SELF_JUDGED:
            return "again" if score < 0.5 else "hard" if score < 0.75 else "good"
        if score < 0.75:
            return "again"
        slow = card.kind == "code" and self.seconds() > 60 * card.minutes
        return "hard" if score < 1 or self.tries or slow else "good"

    @staticmethod
    def _answer_of(asked):
        return "" if asked.card.kind == "code" else asked.card.answer  # of code the check has said what there is to say

    def _note_try(self, score):
        self.tries += 1
        self.store.append(Event(self.clock().timestamp(), "try", self.asked.card.id, score))
        self._keep()

    # ---- which one ----

    def _resume(self):
        """The card that was on the table when the last session broke off; once: later ones lie on another table."""
        card, kept = self._resumed or self.store.draft() or (None, None)
        self._resumed = (None, None)
        if card not in self.deck:
            return False
        self._put(self.deck[card], kept["seed"])
        self.typed, self.tries = kept.get("typed", ""), kept.get("tries", 0)
        self._began = self.clock() - timedelta(seconds=kept.get("seconds", 0))
        return True

    def _deal(self):
        self._refresh()
        card = self._choose(self.clock())
        if card is None:
            return
        self._put(self.deck[card], self._seeds.randrange(2**31))
        self._keep()

    def _put(self, card, seed):
        self.asked = ask(card, seed)
        self.typed, self.tries, self._began, self._stopped = "", 0, self.clock(), None
        self._was_due = self._due.get(card.id)

    def _keep(self):
        if self._due.get(self.asked.card.id) != self._was_due:
            return  # it was answered in another window meanwhile: not to be asked again
        kept = {"seed": self.asked.seed, "typed": self.typed, "tries": self.tries, "seconds": self.seconds()}
        self.store.keep_draft(self.asked.card.id, kept)
        self._kept, self._unkept = time.monotonic(), False

    def _choose(self, moment):
        """The id of the card to ask: the one due longest, now and then a new one; else one that is due soon."""
        new = next(iter(self._new), None) if self._allowed > 0 else None
        card = min(self._due, key=self._due.get, default=None)
        due = card is not None and self._due[card] <= moment.timestamp()
        if new is not None and (not due or self._turn % (DUE_PER_NEW + 1) == DUE_PER_NEW):
            return new
        if due or (card is not None and self._due[card] <= (moment + AHEAD).timestamp()):
            return card
        return None

    def _due_later(self, card):
        """Skipped: to the end of the new ones, or for ten minutes (here only: the schedule stays as it is)."""
        if card in self._new:
            self._new[card] = self._new.pop(card)
        else:
            self._due[card] = max(self._due.get(card, 0), self.clock().timestamp() + 600)

    def _refresh(self):
        """Read again what another notebook or terminal has recorded meanwhile; a new day brings new cards."""
        new_day = day_of(self.clock()) != self._day
        if new_day:
            self._began = self.clock()  # a card that lay on the table over night did not take all these hours
        if new_day or self.store.changed_elsewhere() != self._version:
            self._read()

    def _read(self):
        self._version, self._day = self.store.changed_elsewhere(), day_of(self.clock())
        self._allowed = self._per_day - self.store.begun_since(self._day.timestamp())
        known = self.store.due_times()
        self._due = {card: due for card, due in known.items() if card in self.deck}
        self._new = dict.fromkeys(card for card in self.deck if card not in known)
