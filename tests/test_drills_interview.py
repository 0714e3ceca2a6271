"""The mock interview: its plan, its clock, its sheet."""

import random

import pytest

from tests.drill_cards import Clock, choice, numeric, one_of_each, recall
from utils.drills.card import LEVELS
from utils.drills.interview import Interview, planned
from utils.drills.session import Session
from utils.drills.store import Store


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
    assert interview.seconds_left() == 42 * 60 and interview.status() == "junior interview · 2 of 2 · 42:00 left"


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
    assert "2 answered · 50% of the points" in text and "| numbers | 1 | 0% | 7:00 | 2 min |" in text
    assert "| 2 Attention | 1 | 100% |" in text and "1 not reached or skipped" in text
    study = text[text.index("Study next") :]
    assert study.index("section 4.7 (phase4_blocks)") < study.index("section 5.15") and "section 2.3" not in study
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
