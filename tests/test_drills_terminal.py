"""`workbook drill` driven by keys alone, in textual's own harness."""

import asyncio
import re
from itertools import groupby

import pytest
from textual.widgets import Input, Markdown, SelectionList

from tests.drill_cards import RIGHT, Clock, bug, choice, code, numeric, recall, shapes
from utils.drills.interview import Interview
from utils.drills.session import Session
from utils.drills.store import Store
from utils.drills.terminal import DrillApp


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "workbook.db") as store:
        yield store


def play(session, *steps, size=(80, 24)):
    """Run the app and take the steps: a str is a key to press, a function is called with the app."""
    app = DrillApp(session)
    app.animation_level = "none"

    async def run():
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            for are_keys, group in groupby(steps, key=lambda step: isinstance(step, str)):
                if are_keys:
                    await pilot.press(*group)
                    await pilot.pause()
                else:
                    [await step(app, pilot) for step in group]
        return app

    return asyncio.run(run())


def reads(*words):
    """A step: are these words on the page?"""

    async def look(app, pilot):
        page = "\n".join(one.source for one in app.query(Markdown) if one.display)
        assert all(word in page for word in words), page

    return look


def keys(text):
    names = {
        " ": "space",
        "*": "asterisk",
        "(": "left_parenthesis",
        ")": "right_parenthesis",
        ",": "comma",
        "_": "underscore",
    }
    return [names.get(letter, letter) for letter in text]


def test_a_quarter_of_an_hour_by_keyboard(store, clock):
    """A digit, a number mended, a written answer ticked, shapes line by line, the last page, out: all recorded?"""
    session = Session([choice(), numeric(), recall(), shapes()], store, clock, seed=1)
    right = str(session.next().right + 1)

    async def number(app, pilot):
        await pilot.press(*keys(str(int(session.asked.question.answer))), "enter")

    async def is_kept(app, pilot):
        assert session.typed == "grows" and len(app.query(SelectionList)) == 0

    def two_ticked(app):
        return str(app.query_one("#ticked").content).endswith("Ticked: 1, 3")

    async def ticks(app, pilot):
        await pilot.press("space", "down", "down", "space")
        assert two_ticked(app), "what is ticked is said in words, too"

    play(
        session,
        *(reads("Why?"), right, reads("✓ Right", "rows share 1", "in 2 days"), "enter"),
        *("x", "enter", reads("is not read as a number"), "backspace", number, reads("✓ Right"), "enter"),
        *(*keys("grows"), is_kept, "ctrl+s", reads("A model answer", "Because."), ticks, "ctrl+s"),
        *(reads("3 of 4 points", "Still missing", "saturation"), "enter"),
        *(*keys("2 5"), "enter", *keys("()"), "enter", reads("2 of 2 right"), "enter"),
        *(reads("That is all for now", "3 of 4 right"), "enter"),
    )
    assert [event.score for event in store.events("review")] == [1, 1, 0.75, 1]


@pytest.mark.slow
def test_a_bug_and_code_are_run(store, clock):
    """A call that shows nothing, one that exposes; the blank cell, then the right code: judged as in the course?"""
    session = Session([bug(), code()], store, clock)

    async def write(app, pilot):
        assert "raise NotImplementedError" in app.focused.text
        app.focused.text = RIGHT

    play(
        session,
        *("tab", *keys("causal_mask(4)"), "enter", reads("exactly what it should")),
        *(*["backspace"] * 2, *keys("1,5)"), "enter", reads("That exposes it", "aligned to the start"), "enter"),
        *("ctrl+s", reads("still the blank cell"), write, "ctrl+s", reads("It passes its check", "Yours does that")),
    )
    assert [event.data["tries"] for event in store.events("review")] == [2, 1]


def test_arrows_later_and_not_knowing(store, clock):
    """Ctrl+N: another card; down and Enter: the second option; keys after the verdict: nothing; Ctrl+G: the answer?"""
    deck = [choice(f"phase2/{name}", prompt=f"Card {name}?") for name in "abc"]
    session = Session(deck, store, clock, seed=1)
    steps = [
        reads("Card a?"),
        "ctrl+n",
        reads("Card b?"),
        "down",
        "enter",
        reads("A model answer"),
        "2",
        "ctrl+g",
        "ctrl+n",
    ]
    play(session, *steps, "enter", reads("Card c?"), "ctrl+g", reads("Because.", "in 10 minutes"))
    first, second = store.events()
    assert first.subject == "phase2/b" and first.score == (session.done[0][0].right == 1)
    assert (second.subject, second.data["rating"]) == ("phase2/c", "again")


def test_stopping_in_the_middle_keeps_what_was_typed(store, clock):
    """Ctrl+Q while typing: next time the same card and the same words?"""
    session = Session([numeric()], store, clock)
    play(session, *keys("2*3"), "ctrl+q")
    again = Session([numeric()], store, clock)

    async def look(app, pilot):
        assert app.query_one(Input).value == "2*3"

    play(again, look)


def test_an_empty_deck_says_how_to_open_cards(store, clock):
    """Nothing has passed yet: is the reader told what opens cards?"""
    play(Session([], store, clock), reads("No card is open yet", "--unlock-all"), "enter")


def test_the_last_line_names_the_keys_that_work_now(store, clock):
    """While a card is open: answer, not known, later; after it: go on; and an answer sent twice is one answer?"""
    session = Session([numeric(), choice()], store, clock, seed=1)

    def shown(app):
        return {one.binding.description for one in app.screen.active_bindings.values() if one.enabled}

    async def asked(app, pilot):
        assert shown(app) >= {"Answer", "I do not know", "Later", "Stop"} and "Go on" not in shown(app)

    async def sent_twice(app, pilot):
        await app._judge()
        await app._judge()
        await pilot.pause()
        assert shown(app) >= {"Go on", "Stop"} and not shown(app) & {"Answer", "I do not know", "Later"}

    play(session, asked, "1", sent_twice, "ctrl+g", "enter", asked)
    assert len(store.events("review")) == 1


def test_a_small_terminal_and_text_that_looks_like_markup(store, clock):
    """60 columns, 15 rows, a long question, [brackets] and <angles>: answered all the same, and shown as they are?"""
    odd = choice(options=("[0, 1]", "[bold]x[/bold]", "[/]"), prompt="A long question about [/] and `<pad>`. " * 12)
    rubric = ({"points": 1, "for": "says [0, 1] and [/]"},)
    session = Session([odd, recall(rubric=rubric)], store, clock)
    steps = ["1", reads("[bold]x[/bold]"), "pagedown", "enter", "ctrl+s", "space", "ctrl+s", reads("1 of 1 points")]
    play(session, *steps, size=(60, 15))


def test_a_long_card_is_read_from_its_top(store, clock):
    """Longer than 24 lines: its first line is in sight, and how much is below; at the end, nothing?"""
    long = bug(prompt="First line.\n\n" + "More.\n\n" * 20)

    def below(app):
        more = app.query_one("#more")
        return str(more.content) if more.visible else ""

    async def at_the_top(app, pilot):
        await pilot.pause()
        assert app.query_one("#page").scroll_y == 0 and re.search(r"PgDn: \d\d more lines below", below(app))

    async def at_the_end(app, pilot):
        await pilot.press("pagedown", "pagedown", "pagedown", "pagedown")
        await pilot.pause()
        assert below(app) == "" and app.query_one("#page").scroll_y > 20

    play(Session([long], store, clock, seed=1), at_the_top, at_the_end)


def test_an_interview_may_be_ended_or_left(store, clock):
    """Ctrl+T: the sheet, and it is over; Ctrl+Q instead: out, and what was typed can be gone on with?"""
    cards = [numeric(), recall(), choice()]
    play(Interview(cards, store, "junior", clock, seed=1), *keys("2*"), "ctrl+q")
    again = Interview.broken_off(cards, store, clock)

    async def typed(app, pilot):
        assert app.session.typed == "2*" or app.session.asked.card.kind == "choice"

    play(again, typed, "ctrl+n", "ctrl+t", reads("Score sheet", "1 skipped, 2 not reached"), "enter")
    assert Interview.broken_off(cards, store, clock) is None and not store.events("review")
