"""Phase 1: objects that are no modules, the twins against slow and plain ways, and text of every kind."""

import random
import re

import pytest

from autograde import claims
from autograde.kill_matrix import namespace, solution_cells
from tests.bank.phase1_encode import loop
from tests.bank.phase1_pairs import plain
from tests.bank.phase1_tokenizer import ByPattern
from utils import oracle
from utils.checks import EXERCISES, evaluate, stored
from utils.checks.core import hidden_cases
from utils.checks.exercise import case, request_for
from utils.checks.phase1 import PHASE
from utils.checks.phase1.tokenizer import MERGES, SPECIALS
from utils.checks.verdict import Exam
from utils.observe import codec, observe
from utils.observe.run import answer

NAMES = [name for name, exercise in EXERCISES.items() if exercise.phase == PHASE]
TEXTS = ["", "naïve e\u0301", "日本語 🙂👩‍👩‍👧", "a\r\n\x00\x1b\u2028 ", "<s", "  x  ", "\ud7ff\ue000\U0010ffff"]


def asked(*calls, specials=SPECIALS):
    """A request to a Tokenizer: calls are dicts with "method"."""
    made = dict(merges=MERGES, specials=list(specials))
    return request_for(EXERCISES["Tokenizer"], case("t", calls[0], then=calls[1:], init=made), 0)


# ---- objects


def test_an_object_is_made_once_and_asked_several_times():
    """Are methods called and attributes read on one object, in order?"""
    seen = observe(oracle.Tokenizer, asked(dict(method="encode", text="the<s>"), dict(method="vocab_size")))
    assert [call["value"] for call in seen["calls"]] == [[257, 268], 270] and seen["problem"] is None


def test_an_object_that_changes_what_it_was_made_from_is_told():
    """Is a list of the constructor that is changed, at once or later, found by name?"""

    class Late(ByPattern):
        def encode(self, text):
            self.given.append("<late>")
            return super().encode(text)

        def __init__(self, merges, specials):
            self.given = specials
            super().__init__(merges, specials)

    class AtOnce(ByPattern):
        def __init__(self, merges, specials):
            super().__init__(merges, specials)
            merges.clear()

    request = asked(dict(method="encode", text="x"))
    assert observe(Late, request)["calls"][0]["changed"] == ["specials"]
    assert observe(AtOnce, request)["calls"][0]["changed"] == ["merges"]


def test_what_an_object_is_seen_to_do_passes_the_form_check():
    """Does the trusted side accept an honest observation of an object, changes of its arguments included?"""

    class Greedy(ByPattern):
        def __init__(self, merges, specials):
            super().__init__(merges, specials)
            specials.clear()

    request = asked(dict(method="encode", text="x<s>"), dict(method="special_ids"))
    message = codec.encode(vars(request))
    for cls in (ByPattern, Greedy):
        claims.observation(answer(cls, message), message)


@pytest.mark.parametrize("obj", [5, None, lambda merges, specials: 3, type("Empty", (), {})])
def test_something_else_than_a_tokenizer_is_refused_in_words(obj):
    """Does a number, a function or a class without methods fail with a sentence, not with an error of ours?"""
    report = evaluate("Tokenizer", obj)
    assert report.score == 0 and "✗ Tokenizer" in report.message


def test_the_own_twin_is_off_in_every_method():
    """Is a class that only inherits the course's answer found out?"""
    assert not evaluate("Tokenizer", type("Mine", (oracle.Tokenizer,), {}), own_twin_allowed=False).passed
    assert evaluate("Tokenizer", type("Mine", (oracle.Tokenizer,), {})).passed


def test_the_order_of_a_dict_does_not_count_and_long_lists_show_their_first_difference():
    """Is special_ids compared as a dict, and does a long list point at the entry that differs?"""

    class Turned(ByPattern):
        def number(self, specials):
            return dict(reversed(super().number(specials).items()))

    class OneOff(ByPattern):
        def encode(self, text):
            ids = super().encode(text)
            return [*ids[:-1], ids[-1] + 1] if len(ids) > 30 else ids

    assert evaluate("Tokenizer", Turned).passed
    assert re.search(r"expected  out\[\d+\] = \d+ in call 1\n", evaluate("Tokenizer", OneOff).message)


# ---- twins and solutions


@pytest.mark.parametrize("seed", range(20))
def test_the_twin_trains_and_encodes_like_the_plain_way(seed):
    """Do heap and chains give what counting everything anew gives, on random small vocabularies?"""
    draw = random.Random(seed)
    alphabet = bytes(draw.sample(range(256), draw.randint(1, 4)))
    words = {bytes(draw.choices(alphabet, k=draw.randint(1, 9))): draw.randint(1, 4) for _ in range(draw.randint(1, 9))}
    merges = oracle.bpe_train(words, 25)
    assert merges == plain(words, 25)
    for _ in range(10):
        word = bytes(draw.choices(alphabet, k=draw.randint(0, 12)))
        assert oracle.bpe_encode(word, merges) == loop(word, merges)


@pytest.mark.parametrize("source", ["twin", "solution"])
def test_any_text_comes_back(source):
    """Does text of every kind, with specials in it or nearly, survive the way to ids and back?"""
    solution = namespace(solution_cells(PHASE))["Tokenizer"]
    tokenizer = (oracle.Tokenizer if source == "twin" else solution)(MERGES, ["<s>", "<s>x", "é"])
    draw = random.Random(3)
    marks = [chr(n) for n in (*range(0, 0x300, 7), 0x65E5, 0x1F642, 0x200D, 0x301)] + ["<s>", "<s", "x", "th", "e"]
    for text in TEXTS + ["".join(draw.choices(marks, k=draw.randint(0, 30))) for _ in range(200)]:
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("name", NAMES)
def test_an_exam_can_be_stored(name):
    """Can the exam be written down without its twins, all rules named, and does it still accept the twin's answers?"""
    exercise = EXERCISES[name]
    exam = Exam(exercise, (*exercise.visible[:4], *hidden_cases(exercise)))
    loaded = stored.load(stored.store(exam))
    for ours, theirs in zip(exam.cases, loaded.cases, strict=True):
        assert codec.encode(loaded.truth(theirs)) == codec.encode(exam.truth(ours))
    assert list(loaded.exercise.mistakes) == list(exercise.mistakes)


@pytest.mark.parametrize("name", NAMES)
def test_hidden_cases_are_hidden_and_accept_the_solution(name):
    """Has each exercise hidden cases, under names that say nothing, and does the model solution pass them?"""
    cases = hidden_cases(EXERCISES[name])
    assert cases and all(one.hidden and one.name.startswith("h") for one in cases)
    assert evaluate(name, namespace(solution_cells(PHASE))[name], cases=cases).passed
