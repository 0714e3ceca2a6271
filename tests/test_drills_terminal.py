"""`workbook drill` driven by keys alone, in textual's own harness."""

import asyncio

import pytest
from textual.widgets import Input, Markdown, SelectionList

from tests.drill_cards import RIGHT, Clock, bug, choice, code, numeric, recall, shapes
from utils.drills import replies
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


def play(session, *steps, size=(100, 40)):
    """Run the app and take the steps: a str is a key to press, a function is called with the app."""
    app = DrillApp(session)

    async def run():
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            for step in steps:
                await (pilot.press(step) if isinstance(step, str) else step(app, pilot))
                await pilot.pause()
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


def test_a_choice_is_answered_with_a_digit(store, clock):
    """Press the digit: verdict, reasons, when it comes back; Enter: the closing page; Enter: out?"""
    session = Session([choice()], store, clock, seed=1)
    session.next()
    right = str(session.asked.right + 1)
    play(
        session,
        reads("Why?"),
        right,
        reads("✓ Right", "rows share 1", "in 2 days"),
        "enter",
        reads("1 of 1 right"),
        "enter",
    )
    assert [event.score for event in store.events("review")] == [1]


def test_a_choice_is_answered_with_the_arrows(store, clock):
    """Down and Enter: is the second option taken?"""
    session = Session([choice()], store, clock, seed=1)
    session.next()
    play(session, "down", "enter")
    (event,) = store.events("review")
    assert event.score == (session.done[0][0].right == 1)


def test_a_number_is_typed(store, clock):
    """Nonsense is said and may be mended; then the number is judged?"""
    session = Session([numeric()], store, clock)
    session.next()
    answer = str(int(session.asked.question.answer))
    steps = [
        *keys("x"),
        "enter",
        reads("is not read as a number"),
        "backspace",
        *keys(answer),
        "enter",
        reads("✓ Right"),
    ]
    play(session, *steps)
    assert store.events("review")[0].score == 1


def test_a_written_answer_is_ticked_by_its_rubric(store, clock):
    """Write, look at the model answer, tick two of three with Space: are the points those ticked?"""
    session = Session([recall()], store, clock)

    async def is_kept(app, pilot):
        assert session.typed == "grows" and len(app.query(SelectionList)) == 0

    steps = [*keys("grows"), is_kept, "ctrl+s", reads("A model answer", "Because."), "space", "down", "space", "ctrl+s"]
    play(session, *steps, reads("3 of 4 points", "Still missing", "√d"))
    assert store.events("review")[0].score == 0.75


def test_shapes_are_typed_line_by_line(store, clock):
    """Enter goes from one expression to the next and answers after the last?"""
    session = Session([shapes()], store, clock)
    play(session, *keys("2 5"), "enter", *keys("()"), "enter", reads("2 of 2 right"))


def test_a_bug_is_named_or_exposed(store, clock):
    """A call in the field under the options: one that shows nothing, then one that does?"""
    session = Session([bug()], store, clock)
    tries = ["tab", *keys("causal_mask(4)"), "enter", reads("exactly what it should")]
    more = [*["backspace"] * 2, *keys("1,5)"), "enter", reads("That exposes it", "aligned to the start")]
    play(session, *tries, *more)
    assert store.events("review")[0].data["tries"] == 2


def test_code_is_written_and_checked(store, clock):
    """The stub is there to write over; Ctrl+S runs the check; right: done?"""
    session = Session([code()], store, clock)

    async def write(app, pilot):
        area = app.focused
        assert "raise NotImplementedError" in area.text
        area.text = RIGHT

    play(
        session,
        "ctrl+s",
        reads("still the blank cell"),
        write,
        "ctrl+s",
        reads("It passes its check", "Yours does that"),
    )
    assert store.events("review")[0].score == 1


def test_not_knowing_is_one_key(store, clock):
    """Ctrl+G: the answer, and the card in ten minutes?"""
    session = Session([recall()], store, clock)
    play(session, "ctrl+g", reads("Because.", "in 10 minutes"))
    assert store.events("review")[0].data["rating"] == "again"


def test_later_takes_the_next_card(store, clock):
    """Ctrl+N: another card on the table, nothing recorded?"""
    session = Session([choice("phase2/a", prompt="First?"), choice("phase2/b", prompt="Second?")], store, clock)
    play(session, reads("First?"), "ctrl+n", reads("Second?"))
    assert store.events() == []


def test_stopping_in_the_middle_keeps_what_was_typed(store, clock):
    """Ctrl+Q while typing: next time the same card and the same words?"""
    session = Session([numeric()], store, clock)
    play(session, *keys("2*3"), "ctrl+q")
    again = Session([numeric()], store, clock)

    async def look(app, pilot):
        assert app.query_one(Input).value == "2*3"

    play(again, look)


def test_an_answered_card_cannot_be_answered_twice(store, clock):
    """More keys after the verdict: is there one event?"""
    session = Session([choice()], store, clock)
    play(session, "1", "2", "ctrl+g", "ctrl+n")
    assert len(store.events()) == 1


def test_an_empty_deck_says_how_to_open_cards(store, clock):
    """Nothing has passed yet: is the reader told what opens cards?"""
    play(Session([], store, clock), reads("open when their exercise passes", "--unlock-all"), "enter")


def test_a_small_terminal_is_enough(store, clock, monkeypatch):
    """60 columns, 15 rows, a long question: can it be answered all the same?"""
    monkeypatch.setitem(replies.JUDGES, "choice", lambda asked, reply: replies.Verdict(1.0, "word " * 200))
    session = Session([choice(prompt="A long question. " * 40)], store, clock)
    play(session, "1", "enter", reads("1 of 1 right"), size=(60, 15))


def test_text_of_cards_is_never_markup(store, clock):
    """Brackets in an option or a rubric, as in [0, 1] or [bold]: shown as they are?"""
    odd = choice(options=("[0, 1]", "[bold]x[/bold]", "[/]"))
    play(Session([odd], store, clock), "1", reads("[bold]x[/bold]"))
    rubric = ({"points": 1, "for": "says [0, 1] and [/]"},)
    play(Session([recall(rubric=rubric)], store, clock), "ctrl+s", "space", "ctrl+s", reads("1 of 1 points"))
