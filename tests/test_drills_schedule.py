"""When a card comes back, on a clock that the test turns."""

from datetime import datetime, timedelta

import pytest

from tests.drill_cards import PLACE, Clock
from utils.drills.schedule import Schedule, day_of
from utils.drills.store import Event, Store


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def schedule(tmp_path, clock):
    with Store(tmp_path / "workbook.db") as store:
        yield Schedule(store, clock)


def days(schedule, due):
    return (day_of(due.astimezone(PLACE)) - day_of(schedule.clock())).days


def test_an_unknown_card_comes_back_in_ten_minutes(schedule, clock):
    """Not known: soon; known then: not the same evening?"""
    due = schedule.review("a", "again")
    assert due - clock() == timedelta(minutes=10)
    clock.turn(minutes=10)
    assert days(schedule, schedule.review("a", "good")) >= 1


def test_a_better_answer_waits_longer(schedule):
    """Not known, hard, good, easy on first sight: does each come back later than the one before, hard the same day?"""
    dues = [schedule.review(name, name) for name in ("again", "hard", "good", "easy")]
    assert dues == sorted(dues) and len(set(dues)) == 4
    waits = [days(schedule, due) for due in dues]
    assert waits[:2] == [0, 0] and 1 <= waits[2] < waits[3]


def test_waits_grow_with_every_good_answer(schedule, clock):
    """Answered well each time it is due: do the gaps grow?"""
    waits = []
    for _ in range(5):
        due = schedule.review("a", "good")
        waits.append(days(schedule, due))
        clock.time = due.astimezone(PLACE)
    assert waits == sorted(waits) and len(set(waits)) == 5 and waits[-1] > 60


def test_a_card_is_due_in_the_morning_whatever_the_hour_it_was_seen(schedule, clock):
    """Seen at 22:00, and the learner sits down at 8: is what is due that day there?"""
    schedule.review("a", "again")
    clock.turn(minutes=10)
    due = schedule.review("a", "good")
    assert due.astimezone(PLACE) == datetime(2026, 11, 23, 4, 0, tzinfo=PLACE)


def test_after_midnight_is_still_the_evening(schedule, clock):
    """A review at half past one belongs to the day before: is "tomorrow" the coming morning?"""
    clock.turn(hours=3, minutes=30)
    schedule.review("a", "again")
    assert schedule.review("a", "good").astimezone(PLACE) == datetime(2026, 11, 23, 4, 0, tzinfo=PLACE)
    assert day_of(clock()) == datetime(2026, 11, 22, 4, 0, tzinfo=PLACE)


def test_the_hour_of_a_review_does_not_shorten_a_day(schedule, clock):
    """Seen at 22:00 or at 10:00, and again on the next day but one: do both count as two days?"""
    schedule.review("evening", "good")
    clock.turn(hours=-12)
    schedule.review("morning", "good")
    clock.turn(days=2)
    schedule.review("evening", "good")  # 36 hours later
    schedule.review("morning", "good")  # 48 hours later
    first, second = (schedule.store.memory(name) for name in ("evening", "morning"))
    assert first["stability"] == second["stability"]


def test_forgetting_shortens_the_wait(schedule, clock):
    """Known for months, then not: back in ten minutes, then sooner than before?"""
    for _ in range(4):
        clock.time = schedule.review("a", "good").astimezone(PLACE)
    before = schedule.store.memory("a")["stability"]
    assert schedule.review("a", "again") - clock() == timedelta(minutes=10)
    assert schedule.store.memory("a")["stability"] < before / 2


def test_the_memory_is_what_the_events_say(schedule, clock):
    """Thrown away and made again: the very same?"""
    for step in range(30):
        schedule.review(f"card{step % 4}", ("good", "again", "hard", "easy", "good")[step % 5])
        clock.turn(hours=7 * step)
    before = {name: schedule.store.memory(name) for name in map("card{}".format, range(4))}
    schedule.replay()
    assert {name: schedule.store.memory(name) for name in before} == before


def test_two_machines_agree_after_an_exchange(schedule, clock, tmp_path):
    """Reviews on two machines in turn, merged: is the memory that of one machine that saw them all?"""
    with Store(tmp_path / "other.db") as store, Store(tmp_path / "one.db") as one:
        both, alone = [schedule, Schedule(store, clock)], Schedule(one, clock)
        for step in range(8):
            both[step % 2].review("a", "good")
            alone.review("a", "good")
            clock.turn(days=step)
        assert schedule.take_in(store_export := both[1].store.exported()) == 4 and schedule.take_in(store_export) == 0
        assert both[1].take_in(schedule.store.exported()) == 4
        assert schedule.store.memory("a") == store.memory("a") == one.memory("a")


def test_a_clock_that_was_put_back_breaks_nothing(schedule, clock):
    """Travel, or a wrong clock: is the review kept and a due time given?"""
    schedule.review("a", "good")
    clock.turn(days=-40)
    assert schedule.review("a", "good") > clock()
    assert len(schedule.store.events("review")) == 2


def test_an_event_without_an_offset_is_read_as_utc(schedule):
    """Written by another tool: is it replayed all the same?"""
    schedule.store.append(Event(1e9, "review", "a", 1.0, {"rating": "good"}))
    schedule.replay({"a"})
    assert schedule.store.memory("a")["stability"] > 2
