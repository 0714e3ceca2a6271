"""What the cards say: listings run, answers are what running gives, faults are found by the checks."""

import math
import random
import re

import pytest

from utils.checks import EXERCISES, evaluate
from utils.drills import load_cards

CARDS = load_cards()


def of_kind(kind):
    return [pytest.param(card, id=card.id) for card in CARDS if card.kind == kind]


def run(card):
    """What the names of a card's listing are after it ran."""
    names = {"__name__": "listing"}
    exec(compile(card.code, card.id, "exec"), names)
    return names


@pytest.mark.parametrize("card", of_kind("shape"))
def test_shapes_are_what_the_listing_gives(card):
    """Does running the listing give exactly the shapes that the card calls right?"""
    names = run(card)
    assert [tuple(eval(ask, names).shape) for ask in card.asks] == list(card.answers)


@pytest.mark.parametrize("card", of_kind("bug"))
def test_the_check_finds_the_bug(card):
    """Does the faulty listing run, and does the check of its exercise refuse it by the name on the card?"""
    assert card.finds in EXERCISES[card.exercise].mistakes
    report = evaluate(card.exercise, run(card)[card.exercise])
    assert not report.passed and report.likely == card.finds, report.message


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
    assert len(prompts) > 3
