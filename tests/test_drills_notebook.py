"""The drill in a notebook, its widgets moved as a front end moves them."""

import asyncio
import threading

import ipywidgets as widgets
import pytest

from tests.drill_cards import RIGHT, STUB, Clock, bug, choice, code, numeric, recall, shapes
from utils import lesson
from utils.drills import notebook
from utils.drills.interview import Interview
from utils.drills.notebook import Panel, drills
from utils.drills.session import Session
from utils.drills.store import HOME, Event, Store, StoreError

VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "workbook.db") as store:
        yield store


def panel(store, *cards):
    return Panel(Session(cards, store, Clock(), seed=1))


def press_enter(field):
    field._handle_custom_msg({"event": "submit"}, [])


def shown(panel):
    """The words on the buttons that can be pressed."""
    return [button.description for button in panel.buttons if button.layout.display != "none"]


def test_a_choice_is_answered_and_the_next_card_comes(store):
    """Press its number: verdict and reasons; Next card: the page at the end?"""
    drill = panel(store, choice())
    assert shown(drill) == ["Answer", "I do not know", "Later"] and "Why?" in drill.prompt.value
    assert "<li>keys</li>" in drill.place.children[1].value and drill.options[0].tooltip in ("keys", "queries", "both")
    drill.options[drill.session.asked.right].click()
    assert "✓ Right" in drill.verdict.value and "rows share 1" in drill.said.value and shown(drill) == ["Next card"]
    assert all(button.disabled for button in drill.options) and store.events("review")[0].score == 1
    drill.next.click()
    assert "1 of 1 right" in drill.prompt.value and shown(drill) == ["Look again"]


def test_a_button_may_be_pressed_from_another_thread(store):
    """As JupyterLab does: is the answer recorded and the next card shown?"""
    drill = panel(store, choice("phase2/a"), choice("phase2/b", prompt="Second?"))
    for press in (drill.options[0].click, drill.next.click):
        thread = threading.Thread(target=press)
        thread.start()
        thread.join()
    assert "Second?" in drill.prompt.value and len(store.events("review")) == 1


def test_what_the_file_refuses_is_said_on_the_card(store, monkeypatch):
    """No room on the disk: a sentence, the card stays?"""

    def full(*review):
        raise StoreError("workbook.db could not be written: disk is full")

    drill = panel(store, choice())
    monkeypatch.setattr(drill.session.schedule, "review", lambda *review, **data: full())
    drill.options[0].click()
    assert 'role="alert"' in drill.verdict.value and "disk is full" in drill.verdict.value and drill.session.asked


def test_a_file_that_fails_does_not_stop_the_clock(store, monkeypatch):
    """What is written every second cannot be written once: is it said, and is it tried again?"""
    monkeypatch.setattr(notebook, "SHOWN", 0.0)
    beats = []

    def beat():
        beats.append(1)
        if len(beats) == 1:
            raise StoreError("workbook.db could not be written: disk is full")

    async def play():
        drill = panel(store, recall())
        drill.session.beat = beat
        for _ in range(1000):
            await asyncio.sleep(0.01)
            if len(beats) > 1:
                break
        Panel.latest = None
        return drill

    drill = asyncio.run(play())
    assert "disk is full" in drill.verdict.value and len(beats) == 2


def test_nothing_chosen_is_no_answer(store):
    """Answer without a choice or a call: a sentence, nothing recorded?"""
    drill = panel(store, bug())
    drill.answer.click()
    assert "Type the number of an option, 1 to 4, or a call" in drill.verdict.value and store.events() == []


def test_enter_answers_a_number(store):
    """Typed and Enter: nonsense is said, a number judged?"""
    drill = panel(store, numeric())
    drill.fields[0].value = "many"
    press_enter(drill.fields[0])
    assert "is not read as a number" in drill.verdict.value
    drill.fields[0].value = str(drill.session.asked.question.answer)
    press_enter(drill.fields[0])
    assert store.events("review")[0].score == 1
    press_enter(drill.fields[0])
    assert len(store.events("review")) == 1


def test_enter_waits_for_the_last_letters(store):
    """The front end sends Enter before the letters it still holds back: is the whole number judged, once?"""

    async def type_fast():
        drill = panel(store, numeric())
        answer = str(int(drill.session.asked.question.answer))
        drill.fields[0].value = answer[:1]
        press_enter(drill.fields[0])
        press_enter(drill.fields[0])
        await asyncio.sleep(notebook.SETTLED / 2)
        drill.fields[0].value = answer
        await asyncio.sleep(2 * notebook.SETTLED)
        notebook.Panel.latest = None

    asyncio.run(type_fast())
    assert [event.score for event in store.events()] == [1]


def test_the_hint_is_shown_as_it_is(store):
    """2*12*64 in the hint: stars, and no italics?"""
    assert "2*12*64" in panel(store, numeric()).place.children[0].value


def test_a_written_answer_is_ticked(store):
    """Write, Answer: model answer and boxes; tick, Answer: the points of the ticked ones?"""
    drill = panel(store, recall())
    drill.fields[0].value = "the variance grows"
    drill.answer.click()
    assert "A model answer" in drill.model.value and store.events() == []
    boxes = drill.ticks.children[1:]
    boxes[0].value = boxes[2].value = True
    drill.answer.click()
    assert store.events("review")[0].score == 0.75 and drill.ticks.children == ()


def test_shapes_have_a_line_each(store):
    """Two expressions, two fields: judged together?"""
    drill = panel(store, shapes())
    for field, text in zip(drill.fields, ("2 5", "()"), strict=True):
        field.value = text
    drill.answer.click()
    assert "2 of 2 right" in drill.verdict.value


def test_a_bug_is_named_or_exposed(store):
    """A call that shows nothing leaves the card on the table; one that does ends it?"""
    drill = panel(store, bug())
    drill.fields[0].value = "causal_mask(4)"
    drill.answer.click()
    assert "exactly what it should" in drill.verdict.value and "Answer" in shown(drill)
    drill.fields[0].value = "causal_mask(1, 5)"
    drill.answer.click()
    assert "That exposes it" in drill.verdict.value and store.events("review")[0].score == 1


def test_code_starts_from_the_blank_cell(store):
    """The stub in a field of fixed width; the right code passes?"""
    drill = panel(store, code())
    assert drill.fields[0].value == STUB and "workbook-code" in drill.fields[0]._dom_classes
    drill.fields[0].value = RIGHT
    drill.answer.click()
    assert "It passes its check" in drill.verdict.value


def test_not_knowing_and_later_are_buttons(store):
    """I do not know: the answer; Later: another card?"""
    drill = panel(store, choice("phase2/a", prompt="First?"), choice("phase2/b", prompt="Second?"))
    drill.later.click()
    assert "Second?" in drill.prompt.value and store.events() == []
    drill.pass_.click()
    assert "Because." in drill.said.value and store.events("review")[0].data["rating"] == "again"


def test_what_is_typed_outlives_the_kernel(store):
    """Half an answer, then the kernel is gone: is it in the field of the next panel?"""
    drill = panel(store, numeric())
    drill.session._kept = -10
    drill.fields[0].value = "2*3"
    assert panel(store, numeric()).fields[0].value == "2*3"


def test_a_new_card_is_scrolled_into_sight_from_its_top(store, monkeypatch):
    """What has the focus is scrolled to: is it the card's head first, then the field, also after an answer?"""
    went = []
    monkeypatch.setattr(widgets.DOMWidget, "focus", lambda widget: went.append(widget))
    drill = panel(store, numeric(), recall())
    assert went[-2:] == [drill.top, drill.fields[0]] and drill.top in drill.box.children[:2]
    drill.pass_.click()
    drill.next.click()
    assert went[-2:] == [drill.top, drill.fields[0]] and drill.top.tabbable is False


def test_every_control_has_a_name(store):
    """For a screen reader: has each button, box and field a description?"""
    drill = panel(store, recall())
    drill.answer.click()
    assert all(box.description for box in drill.ticks.children[1:])
    assert all(button.description for button in drill.buttons) and drill.fields[0].description == "Your answer"
    drill = panel(store, numeric("phase5/other"))
    assert drill.fields[0].description == "Your answer, in bytes"
    assert [field.description for field in panel(store, shapes()).fields] == ["x", "x.sum()"]


def test_text_of_cards_is_never_html(store):
    """A card about <pad>, an option with <b>: shown as they are?"""
    drill = panel(store, choice(prompt="What is <pad>?"))
    assert "&lt;pad&gt;" in drill.prompt.value


def test_an_interview_is_drawn_by_the_same_panel(store):
    """The heading has its clock, the end its sheet?"""
    drill = Panel(Interview([choice()], store, "junior", Clock(), seed=1))
    assert "45:00 left · 1 of 1" in drill.head.value
    drill.options[drill.session.asked.right].click()
    drill.next.click()
    assert "Score sheet" in drill.prompt.value


@pytest.fixture
def shows(monkeypatch, tmp_path):
    bundles = []
    monkeypatch.setenv(HOME, str(tmp_path / "home"))
    monkeypatch.setattr(lesson, "display", lambda bundle, raw: bundles.append(bundle))
    monkeypatch.setattr(notebook, "load_cards", lambda: [choice(exercise="sdpa")])
    return bundles


def test_without_a_front_end_it_says_what_is_waiting(shows, capsys):
    """On GitHub or in nbconvert: words in place of widgets, and how cards open?"""
    drills()
    assert set(shows[0]) == {VIEW, "text/html", "text/plain"} and "no card is open yet" in shows[0]["text/plain"]
    with Store() as store:
        store.append(Event(1.0, "check", "sdpa", 1.0))
    drills()
    assert "0 due · 1 new" in shows[1]["text/plain"] and capsys.readouterr() == ("", "")


def test_while_grading_there_is_no_widget(shows, monkeypatch):
    """A grader runs the page: words alone?"""
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    drills(unlock_all=True)
    assert set(shows[0]) == {"text/html", "text/plain"}


def test_an_interview_begins_with_a_press(shows, capsys):
    """No level: a button each; pressed: the clock; run again: it is offered to go on with, first?"""
    start = notebook.Start(notebook.load_cards(), Store(), ("junior", "senior"), None)
    start.buttons[0].click()
    assert "left · 1 of 1" in start.box.children[0].children[2].value
    notebook.interview("junior")
    assert "junior interview, 1 of 1" in shows[0]["text/plain"]
    notebook.interview("boss")
    assert "There is no level boss" in capsys.readouterr().out and len(shows) == 1


def test_what_matters_is_said_aloud(store):
    """For a screen reader: a verdict politely, a fault and the last minutes at once, the seconds never?"""
    clock = Clock()
    drill = Panel(Interview([choice()], store, "junior", clock, seed=1))
    drill.answer.click()
    assert 'role="alert"' in drill.verdict.value and "1 to 3" in drill.verdict.value and not drill.alarm.value
    clock.turn(minutes=40)
    drill._refresh()
    assert 'role="alert"' in drill.alarm.value and "5 minutes left" in drill.alarm.value
    assert "4:00 of" not in drill.alarm.value and "aria" not in drill.head.value
    drill.fields[0].value = str(drill.session.asked.right + 1)
    press_enter(drill.fields[0])
    assert 'role="status" aria-live="polite"' in drill.verdict.value and "✓ Right" in drill.verdict.value
