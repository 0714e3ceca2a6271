"""Cards as data: what is loaded, and what is refused in which words."""

import random
from dataclasses import FrozenInstanceError

import pytest

from utils.drills import CardError, Question, load_cards
from utils.drills.card import KINDS, LEVELS
from utils.drills.coding import code_cards
from utils.drills.schema import checked
from utils.syllabus import Task, syllabus
from utils.workspace import PHASES

RECALL = {
    "id": "phase2/why-divide",
    "kind": "recall",
    "prompt": "Why divide?",
    "answer": "So that the variance stays 1.",
    "section": "2.4",
    "minutes": 2,
    "level": "junior",
    "rubric": [{"points": 2, "for": "the variance grows with d_head"}],
}
BUG = {**RECALL, "id": "phase2/bug", "kind": "bug", "code": "def sdpa(): ...", "exercise": "sdpa", "fault": "A.",
       "others": ["B.", "C.", "D."], "finds": "scores"}  # fmt: skip
CHOICE = {**RECALL, "kind": "choice", "options": ["a", "b"], "right": 1, "because": ["no", "yes"]}
SHAPE = {**RECALL, "kind": "shape", "code": "x = 1", "asks": ["x"], "answers": [[]]}
for one in (BUG, CHOICE, SHAPE):
    del one["rubric"]
TASK = Task("sdpa", "phase2_attention", "2.3", "core", 15, 4, "def sdpa(q, k, v):\n    raise NotImplementedError()")


def toml(folder, text, name="phase2.toml"):
    (folder / name).write_text(text, encoding="utf8")
    return folder


@pytest.mark.parametrize("parts", [RECALL, BUG, CHOICE, SHAPE], ids=lambda parts: parts["kind"])
def test_a_card_of_each_kind_is_made(parts):
    """Does a table with all that its kind needs become a frozen card, with its phase read off the id?"""
    card = checked(parts, "phase2.toml")
    assert (card.id, card.kind, card.phase, card.follow_ups) == (parts["id"], parts["kind"], 2, ())
    with pytest.raises(FrozenInstanceError):
        card.id = "other"


@pytest.mark.parametrize(
    ("base", "change", "says"),
    [
        (RECALL, {"prompt": " "}, "prompt must be a text"),
        (RECALL, {"minutes": True}, "minutes must be a number above 0"),
        (RECALL, {"kind": "riddle"}, "kind is 'riddle'; we know recall, choice"),
        (RECALL, {"level": "boss"}, "level is 'boss'; we know junior, senior, staff"),
        (RECALL, {"section": "3.1"}, "section '3.1' is none of phase 2: write 2.3"),
        (RECALL, {"id": "why"}, "an id reads phase2/why-divide"),
        (RECALL, {"id": "phase3/why"}, "its id belongs into phase3, not into phase2.toml"),
        (RECALL, {"rubric": [{"points": 2}]}, "rubric must be a list of {points, for}"),
        (RECALL, {"rubric": None}, "rubric must be"),
        (RECALL, {"colour": "red"}, "colour is nothing that a recall card has"),
        (RECALL, {"options": ["a"]}, "options is nothing that a recall card has"),
        (CHOICE, {"right": 2}, "right is 2, and there are 2 options, counted from 0"),
        (CHOICE, {"options": ["a", "a"]}, "options must be two or more, all different"),
        (CHOICE, {"because": ["no"]}, "2 options, but 1 reasons in because"),
        (SHAPE, {"asks": ["x", "y"]}, "2 asks, but 1 answers"),
        (SHAPE, {"answers": [["2"]]}, "answers must be a list of shapes"),
        (BUG, {"exercise": None}, "exercise must be a text"),
        (BUG, {"others": ["A.", "B.", "C."]}, "others must be three faults that it is not"),
    ],
)
def test_what_is_not_right_is_said_with_file_and_card(base, change, says):
    """Which file, which card, what: does an author read all three?"""
    with pytest.raises(CardError) as refused:
        checked(base | change, "phase2.toml")
    assert says in str(refused.value)
    assert str(refused.value).startswith("phase2.toml, card ")


@pytest.mark.parametrize("key", sorted(RECALL.keys() - {"id", "kind"}))
def test_what_is_missing_is_named(key):
    """Is each field that a card needs asked for?"""
    with pytest.raises(CardError, match=f"card phase2/why-divide: {key} is missing"):
        checked({name: value for name, value in RECALL.items() if name != key}, "phase2.toml")


def test_cards_are_read_from_files_and_made_of_exercises(tmp_path):
    """One written card and one exercise with a twist: are both there, the twist with its case?"""
    lines = [f"{key} = {value!r}" for key, value in RECALL.items() if key != "rubric"]
    text = "\n".join(["[[card]]", *lines, 'rubric = [{points = 2, for = "it"}]', "[[code]]", 'exercise = "sdpa"'])
    text += (
        '\nfollow_ups = ["And in fp16?"]\n[code.twist]\nquestion = "One query?"\nname = "one"\nargs = {q = [1, 4]}\n'
    )
    found = {card.id: card for card in load_cards(toml(tmp_path, text), syllabus() | {"sdpa": TASK})}
    code, recall = found["phase2/sdpa"], found[RECALL["id"]]
    assert (code.id, code.kind, code.minutes, code.level) == ("phase2/sdpa", "code", 7, "junior")
    assert code.twist.question == "One query?" and code.twist.specs == {"args": {"q": [1, 4]}}
    assert recall.rubric == ({"points": 2, "for": "it"},) and code.follow_ups == ("And in fp16?",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[card]", "phase2.toml is not valid TOML"),
        ("[[cart]]", "[[card]] and [[code]] are all there is, not cart"),
        ("[[card]]\nprompt = 'Why so?'", "phase2.toml, card without an id ('Why so?'): kind is None"),
        ("[[code]]\nexercise = 'sdqa'", "phase2.toml, code drill sdqa: no exercise has this name"),
        ("[[code]]\nexercise = 'sdpa'\ncolour = 1", "code drill sdpa: colour is nothing that a code drill has"),
        ("[[code]]\nexercise = 'sdpa'\ntwist = {name = 'x'}", "a twist has question, name, args"),
    ],
)
def test_a_file_that_is_not_right_is_said_plainly(tmp_path, text, says):
    """Half a file, a wrong word, an exercise that is none: one sentence?"""
    with pytest.raises(CardError) as refused:
        load_cards(toml(tmp_path, text), {"sdpa": TASK})
    assert says in str(refused.value)


def test_two_cards_cannot_share_an_id(tmp_path):
    """The schedule hangs on the id: is the second one refused?"""
    lines = "\n".join(f"{key} = {value!r}" for key, value in RECALL.items() if key != "rubric")
    card = f"[[card]]\n{lines}\nrubric = [{{points = 1, for = 'x'}}]\n"
    with pytest.raises(CardError, match="two cards have this id"):
        load_cards(toml(tmp_path, card * 2), {})


def test_an_exercise_that_is_none_is_found_where_its_phase_is_there(tmp_path):
    """A slip in `exercise`: refused here, and let pass in a copy that does not hold the phase?"""
    lines = "\n".join(f"{key} = {value!r}" for key, value in RECALL.items() if key != "rubric")
    toml(tmp_path, f"[[card]]\n{lines}\nexercise = 'sdqa'\nrubric = [{{points = 1, for = 'x'}}]\n")
    assert load_cards(tmp_path, {})
    with pytest.raises(CardError, match="no exercise is called sdqa"):
        load_cards(tmp_path, {"sdpa": TASK})


def test_an_answer_is_told_from_a_slip():
    """Within one per cent: right; the number of a known misconception: named; anything else: neither?"""
    question = Question("?", 200.0, "bytes", 0.01, {100.0: "K and V are two tensors"}, "2 · 100")
    assert question.agrees(201) and not question.agrees(203)
    assert question.slip(100.5) == "K and V are two tensors" and question.slip(150) is None


def test_the_course_has_cards_and_each_is_whole():
    """All that is written today: loaded without a complaint, ids taken once, every numeric one a function that asks?"""
    cards = load_cards()
    assert len({card.id for card in cards}) == len(cards)
    assert {card.kind for card in cards} <= set(KINDS) and {card.level for card in cards} <= set(LEVELS)
    for card in (one for one in cards if one.make):
        assert isinstance(card.make(random.Random(0)), Question), card.id


def test_every_exercise_is_a_code_drill():
    """One each, under its own name, with the blank cell, and in the order of the course?"""
    from utils.checks import EXERCISES
    from utils.checks.deliveries import DELIVERIES

    tasks = syllabus()
    assert [card.exercise for card in code_cards(tasks, {})] == [name for name in tasks if name not in DELIVERIES]
    assert set(tasks) == set(EXERCISES) | set(DELIVERIES)
    for name, task in ((name, task) for name, task in tasks.items() if name in EXERCISES):
        assert (task.phase, task.section) == (EXERCISES[name].phase, EXERCISES[name].section)
        assert "raise NotImplementedError" in task.stub and task.points > 0 and task.phase in PHASES
