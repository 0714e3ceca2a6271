"""What the cards say: listings run, answers are what running gives, faults are found by the checks."""

import math
import random
import re
from collections import Counter

import pytest

from utils.checks import EXERCISES, evaluate
from utils.checks.exercise import truth
from utils.drills import load_cards
from utils.drills.twists import twist_case
from utils.drills.workbench import build_code

CARDS = load_cards()
# Where the interview questions of the notes stand: 000 has eight, 002 one for each of 24 sections, 003 ten.
INTERVIEW = [
    *(f"notes 000 §14, question {n}" for n in range(1, 9)),
    *(f"notes 002 §1.{n}" for n in (2, 3, 4)),
    *(f"notes 002 §2.{n}" for n in (1, 2, 3, 4, 5)),
    *(f"notes 002 §3.{n}" for n in (1, 3, 4)),
    *(f"notes 002 §4.{n}" for n in (1, 2, 3, 4, 5)),
    *(f"notes 002 §5.{n}" for n in (1, 3, 5, 6)),
    *(f"notes 002 §6.{n}" for n in (1, 2, 3, 6)),
    *(f"notes 003, review question {n}" for n in range(1, 11)),
]


def of_kind(kind, wanted=lambda card: True):
    return [pytest.param(card, id=card.id) for card in CARDS if card.kind == kind and wanted(card)]


def run(card):
    """What a listing leaves behind when it is run by itself."""
    names = {"__name__": "listing"}
    exec(compile(card.code, card.id, "exec"), names)
    return names


def test_every_interview_question_has_a_card():
    """Is each of the 42 questions of the notes a recall card, with a model answer, a rubric and its place?"""
    places = Counter(re.sub(r" \(slips?.*", "", card.source) for card in CARDS if card.kind == "recall")
    assert len(INTERVIEW) == 42 and [place for place in INTERVIEW if places[place] != 1] == []


def test_there_is_enough_of_everything():
    """Are there as many cards as were promised, and has each a source?"""
    kinds = Counter(card.kind for card in CARDS)
    assert len(CARDS) >= 230 and kinds["numeric"] >= 30 and kinds["bug"] >= 30 and kinds["design"] >= 6
    assert {card.exercise for card in CARDS if card.kind == "code"} >= EXERCISES.keys()
    assert [card.id for card in CARDS if card.kind != "code" and not card.source] == []


def test_the_right_answer_does_not_stick_out():
    """Is the longest of the things to choose from not, as a rule, the right one?"""
    bugs = [card for card in CARDS if card.kind == "bug"]
    choices = [card for card in CARDS if card.kind == "choice"]
    longest = sum(len(card.fault) > max(map(len, card.others)) for card in bugs)
    assert longest < len(bugs) / 3
    longest = sum(len(card.options[card.right]) == max(map(len, card.options)) for card in choices)
    assert longest < len(choices) / 2


@pytest.mark.parametrize("card", of_kind("shape"))
def test_shapes_are_what_the_listing_gives(card):
    """Does running the listing give exactly the shapes that the card calls right?"""
    names = run(card)
    assert [tuple(eval(ask, names).shape) for ask in card.asks] == list(card.answers)


BUGS = of_kind("bug", lambda card: card.exercise in EXERCISES)
QUICK = ("pad-mask", "causal-aligned", "bug-entropy", "census", "perplexity", "window")


def names_the_bug(card):
    report = evaluate(card.exercise, build_code(card.exercise, card.code))
    assert not report.passed and report.likely == card.finds, report.message


@pytest.mark.parametrize("card", BUGS)
def test_a_listing_can_be_made(card):
    """Does the listing define its exercise by itself, and is what the check should say among its known mistakes?"""
    exercise = EXERCISES[card.exercise]
    assert callable(run(card)[card.exercise])
    assert card.finds in exercise.mistakes and card.section == exercise.section


@pytest.mark.parametrize("card", [one for one in BUGS if one.id.endswith(QUICK)])
def test_the_check_names_the_bug(card):
    """Does the check call the fault by the name on the card?"""
    names_the_bug(card)


@pytest.mark.slow
@pytest.mark.parametrize("card", [one for one in BUGS if not one.id.endswith(QUICK)])
def test_the_check_names_this_bug_too(card):
    """Does the check call the fault by the name on the card, where checking takes longer?"""
    names_the_bug(card)


WITHOUT_TWIST = {"score_variance": "a measurement by chance: what is judged are its few sizes, many times over"}
MAY_RAISE = {"head_importance"}  # the loss that it is given raises


def test_every_code_drill_goes_on():
    """Has each a twist, but for those named above, and something that an interviewer asks next?"""
    drills = [card for card in CARDS if card.kind == "code"]
    assert {card.exercise for card in drills if card.twist is None} == WITHOUT_TWIST.keys()
    assert [card.exercise for card in drills if not card.follow_ups] == []
    questions = [card.twist.question for card in drills if card.twist]
    assert len(set(questions)) == len(questions) and all(len(one) <= 140 for one in questions)


@pytest.mark.parametrize("card", of_kind("code", lambda card: card.twist))
def test_a_twist_can_be_solved(card):
    """Is the twist a case of its own, which the right answer passes, and where it does not stop?"""
    exercise = EXERCISES[card.exercise]
    case = twist_case(card.twist, exercise)
    assert case.name not in [one.name for one in exercise.cases]
    assert evaluate(card.exercise, exercise.expected, cases=(case,)).passed
    calls = truth(exercise, case, 0)["calls"]
    assert card.exercise in MAY_RAISE or calls and not any(call["raised"] for call in calls)


@pytest.mark.parametrize("card", of_kind("numeric"))
def test_every_draw_is_a_fair_question(card):
    """Over 200 seeds: a finite answer, and slips that can be told from it and from one another?"""
    prompts = set()
    for seed in range(200):
        question = card.make(random.Random(seed))
        numbers = [question.answer, *question.slips]
        prompts.add(question.prompt)
        assert all(math.isfinite(number) for number in numbers)
        assert question.agrees(question.answer) and question.slips
        for place, one in enumerate(numbers):
            for other in numbers[place + 1 :]:
                gap = question.tolerance * (abs(one) + abs(other)) + 1e-9
                assert abs(one - other) > gap, (seed, question)
        assert all(question.slip(wrong) == said for wrong, said in question.slips.items())
    assert len(prompts) > 4
