"""When a card comes back: the FSRS model of the library fsrs, counted in days as a learner lives them.

A day begins at four in the morning, local time: what is due on a day is due from then on, at whatever hour the card was
seen last. Minutes count only for a card that was not known: it comes back in ten.
"""

from datetime import UTC, datetime, timedelta, timezone

import fsrs

from utils.drills.store import Event

RATINGS = {"again": fsrs.Rating.Again, "hard": fsrs.Rating.Hard, "good": fsrs.Rating.Good, "easy": fsrs.Rating.Easy}
SOON = timedelta(minutes=10)  # a card that was not known comes back after this
DAY_BEGINS = timedelta(hours=4)
KEPT = 0.9  # the share of cards one should still know when they come back


def now():
    """The clock: what time it is, with the offset of this place."""
    return datetime.now().astimezone()


def day_of(moment):
    """When the learner's day began that `moment` (with an offset) belongs to."""
    start = (moment - DAY_BEGINS).replace(hour=0, minute=0, second=0, microsecond=0)
    return start + DAY_BEGINS


class Schedule:
    """Reviews go into the store; when each card is due comes out.

    store: utils.drills.store.Store; clock: a function that gives an aware datetime. Promises: the memory it keeps is
    what replaying the events gives, fuzz is off, so that two machines agree.
    """

    def __init__(self, store, clock=now):
        self.store, self.clock = store, clock
        self._model = fsrs.Scheduler(
            desired_retention=KEPT, learning_steps=(SOON,), relearning_steps=(SOON,), enable_fuzzing=False
        )

    def review(self, card_id, rating, score=None, **data):
        """Record that a card was answered, and how well: "again", "hard", "good" or "easy". Returns when it is due."""
        moment = self.clock()
        minutes = int(moment.utcoffset().total_seconds() // 60)
        event = Event(moment.timestamp(), "review", card_id, score, {"rating": rating, "offset": minutes, **data})
        with self.store.transaction():
            self.store.append(event)
            return self._learn(event, self.store.memory(card_id))

    def replay(self, cards=None):
        """Make the memory again from the events: of these cards, or of all."""
        with self.store.transaction():
            if cards is None:
                self.store.forget_memory()
                events = self.store.events("review")
            else:
                events = [event for card in sorted(cards) for event in self.store.events("review", card)]
            memory = {}
            for event in events:
                memory[event.subject] = self._after(event, memory.get(event.subject))
            for card_id, state in memory.items():
                self.store.remember(card_id, datetime.fromisoformat(state["due"]).timestamp(), state)

    def take_in(self, exported):
        """Merge the export of another file; returns how many events were new."""
        events = self.store.take_in(exported)
        self.replay({event.subject for event in events if event.kind == "review"})
        return len(events)

    def _learn(self, event, before):
        state = self._after(event, before)
        due = datetime.fromisoformat(state["due"])
        self.store.remember(event.subject, due.timestamp(), state)
        return due

    def _after(self, event, before):
        """What the schedule knows of a card after an event, from what it knew before (dicts)."""
        place = timezone(timedelta(minutes=event.data.get("offset", 0)))
        moment = datetime.fromtimestamp(event.at, place)
        card = fsrs.Card.from_dict(before) if before else fsrs.Card(card_id=0, due=moment)
        today = day_of(moment).astimezone(UTC)
        if card.last_review and card.last_review > today:  # a clock that was put back, or another time zone
            card.last_review = today
        rating = RATINGS[event.data["rating"]]
        card, _ = self._model.review_card(card, rating, moment.astimezone(UTC))
        if card.due - card.last_review >= timedelta(days=1):
            card.due = day_of(card.due.astimezone(place)).astimezone(UTC)
        card.last_review = today  # so that days are counted from morning to morning
        return card.to_dict()
