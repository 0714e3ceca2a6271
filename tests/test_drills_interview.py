"""The mock interview: its plan, its clock, its sheet."""

import random

import pytest

from tests.drill_cards import Clock, choice, numeric, one_of_each, recall
from utils.drills.card import LEVELS
from utils.drills.interview import Interview, planned
from utils.drills.session import Session
from utils.drills.store import Event, Store
from utils.syllabus import headings


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "workbook.db") as store:
        yield store


def deck():
    """Two hundred cards of all kinds, levels and phases."""
    draw, kinds = random.Random(0), (*["recall"] * 5, "numeric", "choice", "shape", "bug", "code", "design")
    made = []
    for number in range(200):
        phase, kind = 1 + number % 7, kinds[number % len(kinds)]
        minutes = {"code": 9, "bug": 6, "design": 12}.get(kind, draw.choice([2, 3, 4]))
        parts = dict(level=draw.choice(LEVELS), minutes=minutes)
        made.append(type(recall())(**{**vars(recall(f"phase{phase}/c{number}", **parts)), "kind": kind}))
    return made


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", range(5))
def test_a_plan_fills_the_time_with_a_mix(level, seed):
    """45 minutes at any level: full, not over; one long card of each kind at most, the long ones last?"""
    plan = planned(deck(), level, 45, random.Random(seed))
    kinds = [card.kind for card in plan]
    assert 40 <= sum(card.minutes for card in plan) <= 45 and len({card.id for card in plan}) == len(plan)
    assert {"recall", "code", "bug", "design"} <= set(kinds) and kinds.count("code") == kinds.count("design") == 1
    assert {card.level for card in plan} <= {level, LEVELS[max(0, LEVELS.index(level) - 1)]}
    assert level in {card.level for card in plan} and kinds[-1] in ("code", "bug", "design")
    assert len({card.phase for card in plan}) >= 4


def test_a_small_deck_is_no_accident():
    """Six cards, or none: is the plan what there is?"""
    assert len(planned(one_of_each(), "junior", 45, random.Random(0))) == 6
    assert planned([], "staff", 45, random.Random(0)) == []


def test_the_clock_ends_it(store, clock):
    """Forty-six minutes on the first card: is it the last one, and the rest counted as not reached?"""
    interview = Interview([choice(f"phase2/c{n}") for n in range(5)], store, "junior", clock, seed=1)
    interview.next()
    clock.turn(minutes=46)
    assert "time is over" in interview.status()
    interview.answer(interview.asked.right)
    assert interview.next() is None and "4 not reached" in interview.summary()


def test_reading_an_answer_costs_no_time(store, clock):
    """Ten minutes over a model answer: is the clock where it was?"""
    interview = Interview([choice("phase2/a"), choice("phase2/b")], store, "junior", clock)
    interview.next()
    clock.turn(minutes=3)
    interview.answer(interview.asked.right)
    clock.turn(minutes=10)
    interview.next()
    assert interview.seconds_left() == 42 * 60 and interview.status() == "42:00 left · 2 of 2"


def test_the_sheet_says_what_to_study(store, clock):
    """One right, one wrong, one skipped: points by kind and phase, and the sections that cost most, first?"""
    cards = [numeric("phase5/n", section="5.15"), choice("phase2/c"), recall("phase4/r", section="4.7", minutes=9)]
    interview = Interview(cards, store, "junior", clock, seed=3)
    while asked := interview.next():
        if asked.card.kind == "recall":
            interview.skip()
        elif asked.card.kind == "numeric":
            clock.turn(minutes=7)
            interview.answer("1")
        else:
            interview.answer(asked.right)
    text = interview.summary()
    assert "2 answered, 1 skipped. 50% of the points" in text and "| numbers | 1 | 0% | 7:00 | 2 min |" in text
    assert "| 2 Attention | 1 | 100% |" in text and text.index("| 2 Att") < text.index("| 5 Tr")
    study = text[text.index("Study next") : text.index("| kind")]
    assert study.index("section 4.7 · ") < study.index("section 5.15") and "section 2.3" not in study
    assert f"section 4.7 · {headings('phase4_blocks')['4.7']} (phase4_blocks)" in study
    assert "speed: 1 of 2" in study


def test_an_interview_counts_for_the_schedule_and_leaves_no_draft(store, clock):
    """Answers are reviews like any; a broken-off interview does not turn up in the next drill?"""
    interview = Interview([choice("phase2/a"), choice("phase2/b")], store, "junior", clock, seed=1)
    interview.next()
    interview.answer(interview.asked.right)
    interview.next()
    interview.keep("half", at_once=True)
    assert len(store.events("review")) == 1 and store.draft() is None
    assert Session([choice("phase2/a"), choice("phase2/b")], store, clock).waiting() == (0, 1)


def test_everything_right_names_the_next_level(store, clock):
    """Nothing lost: is something said all the same?"""
    interview = Interview([choice()], store, "junior", clock)
    interview.next()
    interview.answer(interview.asked.right)
    assert "try the next level" in interview.summary()


def test_reading_before_the_ticks_costs_no_time(store, clock):
    """A written answer, ten minutes over its model answer, then the ticks: is only the writing counted?"""
    interview = Interview([recall()], store, "junior", clock)
    interview.next()
    clock.turn(minutes=2)
    interview.model_answer()
    clock.turn(minutes=10)
    interview.answer([0])
    assert interview.seconds_left() == 43 * 60 and interview.done[0][2] == 120


def test_the_last_minutes_are_said_once(store, clock):
    """36, 39, 41 and 50 minutes gone: ten, nothing, five, then over; and nothing of what lies between?"""
    interview = Interview([choice()], store, "junior", clock)
    interview.next()
    said = [interview.moment()]
    for minutes in (36, 3, 2, 9, 1):
        clock.turn(minutes=minutes)
        said.append(interview.moment())
    assert said == ["", "10 minutes left.", "", "5 minutes left.", "The time is over: finish this card.", ""]


@pytest.fixture
def broken_off(store, clock):
    """An interview of four cards in its third: one answered after a minute, one skipped after two, one half typed."""
    cards = [choice("phase2/a"), recall("phase3/b"), numeric("phase5/c"), choice("phase6/d")]
    interview = Interview(cards, store, "junior", clock, seed=1)
    for minutes, act in ((1, interview.give_up), (2, interview.skip)):
        interview.next()
        clock.turn(minutes=minutes)
        act()
    interview.next()
    clock.turn(minutes=3)
    interview.keep("2*", at_once=True)
    return cards, interview


def test_a_broken_off_interview_goes_on_where_it_was(store, clock, broken_off):
    """The kernel is gone for an hour: the same card, what was typed, the clock, the points; then on to the same end?"""
    cards, before = broken_off
    clock.turn(hours=1)
    after = Interview.broken_off(cards[::-1], store, clock)
    assert after.described() == "junior interview, 3 of 4, 39:00 left"
    assert after.next() == before.asked and after.typed == "2*" and after.seconds_left() == 39 * 60
    assert (after.plan, after.done, after.skipped) == (before.plan, before.done, before.skipped)
    after.give_up()
    assert after.next().card == before.plan[3]
    after.give_up()
    assert after.next() is None and "3 answered, 1 skipped" in after.summary()
    assert Interview.broken_off(cards, store, clock) is None and len(store.events("review")) == 3


def test_an_interview_that_is_over_is_not_offered(store, clock, broken_off):
    """The next day, after the learner's own end, or when a card is no more: none to go on with?"""
    cards, interview = broken_off
    assert Interview.broken_off(cards[:2], store, clock) is None
    clock.turn(hours=8)
    assert Interview.broken_off(cards, store, clock) is None
    interview.end()
    assert interview.next() is None and "1 answered, 1 skipped, 2 not reached" in interview.summary()
    assert store.interview() is None


def test_two_windows_of_one_interview_lose_no_answer(store, clock, broken_off):
    """Gone on with in a second window, and in the first, too: all answers recorded, the second's place kept?"""
    cards, first = broken_off
    second = Interview.broken_off(cards, store, clock)
    second.next()
    second.give_up()
    second.next()
    first.give_up()
    assert len(store.events("review")) == 3
    assert Interview.broken_off(cards, store, clock).described().startswith("junior interview, 4 of 4")


def test_an_interview_leaves_the_drill_its_card(store, clock):
    """Half an answer in the drill, then an interview that skips this very card: is it still there?"""
    drill = Session([numeric()], store, clock, seed=1)
    drill.next()
    drill.keep("2*", at_once=True)
    interview = Interview([numeric()], store, "junior", clock)
    interview.next()
    interview.skip()
    again = Session([numeric()], store, clock)
    assert again.next() == drill.asked and again.typed == "2*"


def test_an_interview_does_not_promise_a_closed_card(store, clock):
    """The exercise of one card has passed, of the other not: does each say truly when the drill asks it?"""
    cards = [choice("phase2/a", exercise="sdpa"), choice("phase2/b", exercise="causal_mask")]
    store.append(Event(1.0, "check", "sdpa", 1.0))
    interview = Interview(cards, store, "junior", clock)
    said = {}
    for _ in cards:
        card = interview.next().card
        said[card.exercise] = interview.comes_back(interview.give_up())
    assert said["sdpa"] == "In the drill it comes back in 10 minutes."
    assert said["causal_mask"] == "It comes to the drill once its exercise has passed."
