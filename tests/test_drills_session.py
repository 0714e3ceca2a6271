"""A drill from card to card: what is asked when, what is recorded, and what a crash leaves."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.drill_cards import Clock, bug, choice, code, numeric, one_of_each, recall, shapes
from utils.drills import load_cards, replies
from utils.drills.deck import chosen, open_cards, passed_in
from utils.drills.replies import Unclear
from utils.drills.session import AHEAD, DUE_PER_NEW, Session
from utils.drills.store import Event, Store
from utils.syllabus import Task, syllabus

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "workbook.db") as store:
        yield store


def known(asked):
    """The right reply to a card."""
    kind = asked.card.kind
    if kind == "numeric":
        return str(asked.question.answer)
    if kind == "shape":
        return "(2, 5)\n()"
    return asked.right if kind in ("choice", "bug") else range(len(asked.rubric))


def test_fifteen_minutes_and_the_next_day(store, clock):
    """Three known, one not; closed; the next day: is the one that was not known asked, and later the others?"""
    deck = [recall(), choice(), numeric(), shapes()]
    session = Session(deck, store, clock)
    for _ in range(3):
        assert session.answer(known(session.next())).right
        clock.turn(minutes=2)
    session.next()
    assert session.give_up().rating == "again"
    clock.turn(minutes=10)
    assert session.next().card.kind == "shape" and session.answer("(2, 5)\n()").right
    assert session.next() is None and session.next_due().date().isoformat() == "2026-11-23"
    clock.turn(hours=12)
    tomorrow = Session(deck, store, clock)
    assert tomorrow.next().card.kind == "shape"
    tomorrow.answer("(2, 5)\n()")
    clock.turn(days=1)
    assert {ask.card.kind for ask in rest(Session(deck, store, clock))} >= {"recall", "choice", "numeric"}


def rest(session):
    """Answer what is left, rightly; the cards asked."""
    asked = []
    while (one := session.next()) is not None:
        asked.append(one)
        session.answer(known(one))
    return asked


def test_each_answer_is_an_event(store, clock):
    """Is what is recorded enough to know later what was asked and how it went?"""
    session = Session([numeric()], store, clock)
    asked = session.next()
    clock.turn(seconds=42)
    feedback = session.answer(str(asked.question.answer / 2))
    (event,) = store.events("review")
    assert (event.subject, event.score, event.at) == ("phase5/cache", 0, clock().timestamp())
    assert event.data["seed"] == asked.seed and event.data["seconds"] == 42 and event.data["rating"] == "again"
    assert not feedback.right and "two tensors" in feedback.text and feedback.answer == "Because."


def test_a_rubric_decides_how_well_it_was_known(store, clock):
    """All, three quarters, half, less: good, good, hard, again?"""
    ratings = []
    for number, ticks in enumerate(([0, 1, 2], [0, 1], [0], [1])):
        session = Session([recall(f"phase2/card{number}")], store, clock)
        session.next()
        ratings.append(session.answer(ticks).rating)
    assert ratings == ["good", "good", "hard", "again"]


def test_follow_ups_come_with_the_answer(store, clock):
    """After the model answer: what an interviewer would ask next?"""
    session = Session([choice(follow_ups=("And in fp16?",))], store, clock)
    assert session.answer(known(session.next())).follow_ups == ("And in fp16?",)


def test_an_unclear_reply_leaves_the_card_on_the_table(store, clock):
    """A typing slip: nothing recorded, the same card again?"""
    session = Session([numeric()], store, clock)
    asked = session.next()
    with pytest.raises(Unclear):
        session.answer("many")
    assert session.next() is asked and store.events("review") == []


def test_a_failing_try_stays_on_the_table_and_counts_as_hard(store, clock, monkeypatch):
    """Code that fails first and passes then: is the card kept, each try noted, and the rating "hard"?"""
    verdicts = iter([replies.Verdict(0.2, "✗", final=False), replies.Verdict(1.0, "✓")])
    monkeypatch.setitem(replies.JUDGES, "code", lambda asked, reply: next(verdicts))
    session = Session([code()], store, clock)
    asked = session.next()
    assert not session.answer("def f").final and session.next() is asked
    feedback = session.answer("def g")
    assert feedback.final and feedback.rating == "hard"
    assert [event.kind for event in store.events()] == ["try", "review"]


@pytest.mark.parametrize(("minutes", "rating"), [(4, "good"), (6, "hard")])
def test_the_clock_of_a_code_drill_counts(store, clock, monkeypatch, minutes, rating):
    """Passed within its five minutes: good; after that: hard?"""
    monkeypatch.setitem(replies.JUDGES, "code", lambda asked, reply: replies.Verdict(1.0, "✓"))
    session = Session([code()], store, clock)
    session.next()
    clock.turn(minutes=minutes)
    assert session.answer("def f").rating == rating


def test_due_cards_come_first_and_new_ones_between(store, clock):
    """Eight due, some new: the longest due first, a new one after every three?"""
    old = [choice(f"phase2/old{n}") for n in range(8)]
    first = Session(old, store, clock)
    while first.next():
        first.answer(known(first.asked))
        clock.turn(seconds=1)
    clock.turn(days=30)
    session = Session([choice("phase1/new0"), choice("phase1/new1"), *old], store, clock)
    order = [asked.card.id[7:] for asked in rest(session)]
    assert order == ["old0", "old1", "old2", "new0", "old3", "old4", "old5", "new1", "old6", "old7"]
    assert DUE_PER_NEW == 3


def test_a_day_has_so_many_new_cards(store, clock):
    """Five a day: five, in a second session of that day none, the next day five more?"""
    deck = [choice(f"phase2/c{n}") for n in range(12)]
    assert len(rest(Session(deck, store, clock, new_per_day=5))) == 5
    clock.turn(hours=3)
    assert rest(Session(deck, store, clock, new_per_day=5)) == []
    clock.turn(hours=8)
    assert Session(deck, store, clock, new_per_day=5).waiting() == (0, 5)


def test_what_is_due_soon_is_asked_when_nothing_else_is_left(store, clock):
    """A card that was not known comes in ten minutes; alone in the deck, is it asked at once rather than waited for?"""
    session = Session([choice()], store, clock)
    session.next()
    session.give_up()
    assert AHEAD.total_seconds() == 1200 and session.next().card.kind == "choice"


def test_a_skipped_card_comes_later(store, clock):
    """Not now: another card, and the first one at the end, with nothing recorded?"""
    session = Session([choice("phase2/a"), choice("phase2/b")], store, clock)
    session.next()
    session.skip()
    assert session.next().card.id == "phase2/b" and store.events() == []
    session.answer(session.asked.right)
    assert session.next().card.id == "phase2/a"


def test_another_window_is_seen(store, clock, tmp_path):
    """Answered in a second notebook meanwhile: is it not asked again here?"""
    deck = [choice("phase2/a"), choice("phase2/b")]
    here = Session(deck, store, clock)
    with Store(tmp_path / "workbook.db") as other:
        there = Session(deck, other, clock)
        there.answer(known(there.next()))
    assert here.waiting() == (0, 1) and here.next().card.id == "phase2/b"


def test_what_is_on_the_table_survives_a_crash(store, clock, tmp_path):
    """The kernel died while typing: the same card, the same numbers, the text and the time so far?"""
    deck = [numeric(f"phase5/n{n}") for n in range(5)]
    session = Session(deck, store, clock)
    asked = session.next()
    clock.turn(seconds=30)
    session.keep("2 * 3", at_once=True)
    clock.turn(days=1)
    again = Session(deck, store, clock)
    assert again.next().prompt == asked.prompt and again.typed == "2 * 3" and again.seconds() == 30


def test_kill_9_in_mid_review_loses_nothing(tmp_path):
    """Two answered, the third half typed, then kill -9: the answers are there, and the third card with its text?"""
    script = (
        "import sys\nfrom tests.drill_cards import *\nfrom utils.drills.session import Session\n"
        "from utils.drills.store import Store\nsession = Session([numeric(f'phase5/n{n}') for n in range(3)], "
        "Store(sys.argv[1]))\nfor _ in range(2):\n    session.answer(str(session.next().question.answer))\n"
        "print(session.next().prompt.splitlines()[0], flush=True)\nsession.keep('2 * ', at_once=True)\n"
        "print('typed', flush=True)\nsys.stdin.read()\n"
    )
    path = tmp_path / "killed.db"
    command = [sys.executable, "-c", script, str(path)]
    run = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    prompt, typed = run.stdout.readline(), run.stdout.readline()
    os.kill(run.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
    run.wait(30)
    assert typed == "typed\n"
    with Store(path) as store:
        assert len(store.events("review")) == 2 and store.said == []
        session = Session([numeric(f"phase5/n{n}") for n in range(3)], store)
        assert session.next().prompt.splitlines()[0] == prompt.strip() and session.typed == "2 * "


def test_typing_is_kept_twice_a_second_at_most(store, clock, monkeypatch):
    """A hundred keys in a moment: a handful of writes?"""
    session = Session([numeric()], store, clock)
    session.next()
    writes = []
    monkeypatch.setattr(store, "keep_draft", lambda *kept: writes.append(kept))
    for number in range(100):
        session.keep("x" * number)
    assert len(writes) <= 2


def test_cards_open_with_their_exercise(store):
    """Locked until the check passes; without an exercise, with the first of the phase; all with "unlock all"?"""
    tasks = {
        name: Task(name, "phase2_attention", "2.3", "core", 9, 4, "") for name in ("masked_softmax", "causal_mask")
    }
    deck = [recall(), bug()]
    assert open_cards(deck, passed_in(store), tasks=tasks) == []
    store.append(Event(1.0, "check", "causal_mask", 0.9))
    store.append(Event(2.0, "check", "masked_softmax", 1.0))
    store.append(Event(3.0, "check", "masked_softmax", 0.0))
    assert open_cards(deck, passed_in(store), tasks=tasks) == [deck[0]]
    store.append(Event(4.0, "check", "causal_mask", 1.0))
    assert open_cards(deck, passed_in(store), tasks=tasks) == deck == open_cards(deck, set(), True, tasks)


PASSED = {"phase 2": (2,), "everything": tuple(range(1, 8))}


@pytest.mark.parametrize("phases", PASSED.values(), ids=PASSED.keys())
def test_the_first_day_is_mixed(phases):
    """Somebody who has passed one phase, or all: twenty cards of several kinds, from each open phase alike?"""
    passed = {task.name for task in syllabus().values() if task.number in phases}
    first = open_cards(load_cards(), passed)[:20]
    kinds, shares = Counter(card.kind for card in first), Counter(card.phase for card in first)
    assert len(kinds) >= 4 and max(kinds.values()) <= 12, kinds
    assert shares.keys() == set(phases) and max(shares.values()) - min(shares.values()) <= 1


def test_a_deck_can_be_narrowed():
    """Phase, kind, level: are only those cards left, and without a word all?"""
    deck = one_of_each()
    assert chosen(deck) == deck
    assert [card.kind for card in chosen(deck, phases=(2,), kinds=("choice", "numeric"))] == ["choice"]
    assert chosen(deck, levels=("staff",)) == []


def steps_per_review(path, clock, n_cards, n_events):
    """How many instructions SQLite runs for one answer and the next card, and how many statements that takes."""
    with Store(path) as store:
        with store.transaction():
            for number in range(n_events):
                name = f"phase2/c{number % n_cards}"
                store.append(Event(1e9 + number, "review", name, 1.0, {"rating": "good"}))
            for number in range(n_cards):
                store.remember(f"phase2/c{number}", 2e9, {})
        deck = [choice(f"phase2/c{number}") for number in range(n_cards)] + [choice(f"phase1/n{n}") for n in range(9)]
        session = Session(deck, store, clock)
        session.next()
        counted = {"steps": 0, "statements": 0}
        store._connection.set_progress_handler(lambda: counted.update(steps=counted["steps"] + 1), 1)
        store._connection.set_trace_callback(lambda sql: counted.update(statements=counted["statements"] + 1))
        session.answer(known(session.asked))
        session.next()
        store._connection.set_progress_handler(None, 1)
        return counted


def test_a_review_costs_the_same_with_forty_times_the_cards(tmp_path, clock):
    """Of 20 cards and 200 events, or 800 and 8,000: the same statements, and hardly more work in the file?"""
    small = steps_per_review(tmp_path / "small.db", clock, 20, 200)
    large = steps_per_review(tmp_path / "large.db", clock, 800, 8_000)
    assert small["statements"] == large["statements"] < 20
    assert large["steps"] < 1.5 * small["steps"]


def test_a_page_left_open_over_night_has_the_new_day(store, clock):
    """Two new cards a day, done; the page stays open, and at four in the morning: two more, without a new start?"""
    session = Session([choice(f"phase2/c{n}") for n in range(5)], store, clock, new_per_day=2)
    for _ in range(2):
        session.answer(session.next().right)
    assert session.waiting()[1] == 0 and session.next() is None
    clock.turn(hours=7)
    assert session.waiting()[1] == 2 and session.next().card.id == "phase2/c2"
    clock.turn(hours=24, minutes=1)
    assert session.status() == "2 due · 2 new" and session.seconds() == 0


def test_two_fronts_share_the_new_cards_of_a_day(tmp_path, clock):
    """A notebook and a terminal side by side, three new cards a day: three together, none twice?"""
    cards, path = [choice(f"phase2/c{n}") for n in range(9)], tmp_path / "workbook.db"
    with Store(path) as here, Store(path) as there:
        notebook, terminal = (Session(cards, one, clock, new_per_day=3) for one in (here, there))
        for session in (notebook, terminal, notebook):
            session.answer(session.next().right)
        assert notebook.waiting() == terminal.waiting() == (0, 0)
        assert notebook.next() is None and terminal.next() is None
        assert len({event.subject for event in here.events("review")}) == 3


def test_the_last_letters_are_kept_with_the_next_beat(store, clock):
    """Typed in one burst, then nothing more: is the whole of it kept a second later?"""
    session = Session([numeric()], store, clock)
    session.next()
    for typed in ("2", "2*", "2*3"):
        session.keep(typed)
    session._kept -= 1
    session.beat()
    assert Session([numeric()], store, clock).next() and store.draft()[1]["typed"] == "2*3"


def test_a_card_on_two_tables_is_asked_once_more_at_most(tmp_path, clock):
    """Answered in one window, typed at in another: is it not asked again in the first, or later?"""
    cards, path = [numeric(f"phase5/c{n}") for n in range(3)], tmp_path / "workbook.db"
    with Store(path) as here, Store(path) as there:
        notebook, terminal = (Session(cards, one, clock, seed=1) for one in (here, there))
        assert notebook.next() == terminal.next()
        terminal.give_up()
        notebook.status()
        notebook.keep("2*", at_once=True)
        assert terminal.next().card.id == "phase5/c1"
        terminal.keep("3*", at_once=True)
        assert Session(cards, here, clock).next().card.id == "phase5/c1"
        notebook.answer("1")
        assert len(here.events("review", "phase5/c0")) == 2
