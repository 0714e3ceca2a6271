"""Replies of every kind: what is right, what is wrong and why, and what is no answer at all."""

from dataclasses import replace

import pytest

from tests.drill_cards import RIGHT, STUB, WRONG, bug, choice, code, numeric, recall, shapes
from utils.checks.core import find
from utils.drills import workbench
from utils.drills.card import Question, Twist
from utils.drills.replies import Unclear, ask, judge, number, shape, solved
from utils.drills.twists import spec, twist_case


@pytest.mark.parametrize(
    ("typed", "value"),
    [("1024", 1024), ("1,024", 1024), ("1 048 576", 2**20), ("2^20", 2**20), ("2**20", 2**20), ("3e9", 3e9),
     ("2*12*64", 1536), ("1/8", 0.125), (" ≈ 0.5 ", 0.5), ("-3", -3), ("−3", -3), ("4 Mi", 2**22), ("4MiB", 2**22),
     ("12 %", 0.12), ("7 M", 7e6), ("(1+2)*3", 9), ("2·3×4", 24), ("1_000", 1000)],
)  # fmt: skip
def test_a_number_is_read_as_people_write_it(typed, value):
    """Powers, thousands, products, sizes: is the number the one that was meant?"""
    assert number(typed) == pytest.approx(value)


@pytest.mark.parametrize(
    ("typed", "unit", "value"),
    [("512 MiB", "MiB", 512), ("0.5 GiB", "MiB", 512), ("512", "MiB", 512), ("12 %", "%", 12), ("3 bytes", "bytes", 3),
     ("2 KiB", "bytes", 2048), ("7 steps", "steps", 7)],
)  # fmt: skip
def test_the_unit_may_be_typed_or_left_out(typed, unit, value):
    """Asked in MiB: do 512, 512 MiB and 0.5 GiB say the same?"""
    assert number(typed, unit) == pytest.approx(value)


@pytest.mark.parametrize("typed", ["many", "1e", "__import__('os')", "9**9**9", "1/0", "[1]", "x", "1 2", "'a'*9"])
def test_what_is_no_number_is_said(typed):
    """A slip of the keyboard, or worse: a sentence, and nothing is computed?"""
    with pytest.raises(Unclear, match="is not read as a number"):
        number(typed)


@pytest.mark.parametrize("typed", ["(2, 5)", "2 5", "2x5", "[2,5]", "torch.Size([2, 5])", "2 × 5", "(2,5,)"])
def test_a_shape_is_read_as_people_write_it(typed):
    """With brackets or without: the same shape?"""
    assert shape(typed) == (2, 5)


def test_a_shape_of_nothing_is_a_scalar():
    """(), scalar, torch.Size([]): no axes; and words are refused?"""
    assert shape("()") == shape("Scalar") == shape("torch.Size([])") == ()
    with pytest.raises(Unclear, match="is not read as a shape"):
        shape("two by five")


def test_the_same_seed_asks_the_same():
    """After a crash: the same numbers, the same order of options; another seed, another question?"""
    for card in (numeric(), choice()):
        assert ask(card, 1).prompt == ask(card, 1).prompt and ask(card, 1).options == ask(card, 1).options
    assert len({ask(numeric(), seed).prompt for seed in range(9)}) > 3
    assert len({ask(choice(), seed).right for seed in range(9)}) > 1


def test_a_choice_says_why_each_is_right_or_wrong():
    """Right or wrong, does the learner read all three reasons, and is the shuffled place the right one?"""
    for seed in range(6):
        asked = ask(choice(), seed)
        assert asked.options[asked.right] == "keys"
        right, wrong = judge(asked, asked.right), judge(asked, (asked.right + 1) % 3)
        assert (right.score, wrong.score) == (1, 0)
        assert "**right** · keys: rows share 1" in wrong.text and "**wrong** · both: nothing would" in right.text


@pytest.mark.parametrize("reply", [3, -1, "a", None])
def test_a_choice_that_is_none_is_said(reply):
    """A fourth of three: nothing judged?"""
    with pytest.raises(Unclear, match="one of the 3"):
        judge(ask(choice(), 0), reply)


def test_a_wrong_number_brings_its_misconception():
    """Half of it: is the reader told that K and V are two tensors, and how the number comes about?"""
    asked = ask(numeric(), 3)
    size = int(asked.question.answer) // 2
    assert judge(asked, f"{2 * size} bytes").right and "Answer in bytes" in asked.prompt
    wrong = judge(asked, str(size))
    assert not wrong.right and "K and V are two tensors" in wrong.text and f"2 · {size}" in wrong.text
    assert "Likely" not in judge(asked, "3").text


def test_ticked_points_earn_their_share():
    """Two of three points ticked: three quarters, and what was missing is named?"""
    verdict = judge(ask(recall(), 0), [0, 2])
    assert verdict.score == 0.75 and "saturation" in verdict.text and "variance" not in verdict.text
    with pytest.raises(Unclear, match="Tick some of the 3"):
        judge(ask(recall(), 0), [3])


def test_shapes_are_told_one_by_one():
    """One right, one wrong: half, and both shapes said?"""
    asked = ask(shapes(), 0)
    assert "torch.ones(2, 5)" in asked.prompt and judge(asked, "(2, 5)\n()").right
    verdict = judge(asked, "5 2\nscalar")
    assert verdict.score == 0.5 and "`x` is `(2, 5)`, and you said `(5, 2)`" in verdict.text
    with pytest.raises(Unclear, match="One shape for each of the 2"):
        judge(asked, "(2, 5)")


def test_a_bug_is_named():
    """The right sentence of four: right; another: the fault is told?"""
    asked = ask(bug(), 0)
    assert judge(asked, asked.right).right
    assert "aligned to the start" in judge(asked, (asked.right + 1) % 4).text


def test_a_bug_is_exposed_by_a_call():
    """A call on which it goes wrong: done; one on which it does well: try again?"""
    asked = ask(bug(), 0)
    same = judge(asked, "causal_mask(4)")
    assert not same.final and "exactly what it should" in same.text
    found = judge(asked, "causal_mask(1, kv_len=5)")
    assert found.right and found.final and "✗ causal_mask" in found.text


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("causal_mask(", "no call that Python reads"),
        ("sdpa(1)", "Write one call of causal_mask"),
        ("causal_mask()", "TypeError: missing a required argument"),
        ("causal_mask(1/0)", "ZeroDivisionError"),
        ("causal_mask('a')", "The right version stops with this call, too"),
    ],
)
def test_a_call_that_cannot_be_made_is_said(call, says):
    """Half a line, another function, no arguments, nonsense: a sentence, nothing judged?"""
    with pytest.raises(Unclear, match=says):
        judge(ask(bug(), 0), call)


def test_shapes_stand_for_random_tensors_in_a_call():
    """sdpa((1, 2, 4), …): does a tuple of sizes expose a forgotten division?"""
    listing = "def sdpa(q, k, v, attn_mask=None):\n    return masked_softmax(q @ k.transpose(-2, -1), attn_mask) @ v"
    unscaled = replace(bug(), exercise="sdpa", code=listing)
    verdict = judge(ask(unscaled, 0), "sdpa((1, 2, 4), (1, 3, 4), (1, 3, 4))")
    assert verdict.right and "not divided" in verdict.text


def test_a_module_is_made_and_called():
    """SelfAttention(8, 4)((2, 5, 8)): are both calls read, and a call of one only refused?"""
    listing = (
        "class SelfAttention(nn.Module):\n    def __init__(self, d_model, d_head, causal=False):\n"
        "        super().__init__()\n"
        "        self.w_q, self.w_k, self.w_v = (nn.Linear(d_model, d_head) for _ in range(3))\n"
        "    def forward(self, x, attn_mask=None):\n"
        "        return sdpa(self.w_q(x), self.w_k(x), self.w_v(x), attn_mask)\n"
    )
    never_causal = replace(bug(), exercise="SelfAttention", code=listing)
    asked = ask(never_causal, 0)
    assert not judge(asked, "SelfAttention(8, 4)((2, 5, 8))").final
    assert judge(asked, "SelfAttention(8, 4, causal=True)((2, 5, 8))").right
    with pytest.raises(Unclear, match="Make one and call it"):
        judge(asked, "SelfAttention(8, 4)")


def test_an_empty_reply_is_said_and_who_does_not_know_is_told():
    """Nothing typed: a sentence; "I do not know": the number, the shapes, the right option, where code is built?"""
    with pytest.raises(Unclear, match="Nothing is typed yet"):
        judge(ask(numeric(), 0), " ")
    question = ask(numeric(), 0).question
    assert solved(ask(numeric(), 0)).startswith(f"It is {question.answer:g} bytes. ")
    assert "`x` is `(2, 5)`" in solved(ask(shapes(), 0)) and solved(ask(choice(), 0)) == "**keys**: rows share 1"
    assert solved(ask(code(), 0)).startswith("Section 2.3")


def test_a_number_says_how_exact_it_must_be():
    """The unit, and the share that a reply may be off, or that it may not?"""
    assert ask(numeric(), 0).prompt.endswith("\n\nAnswer in bytes: up to 1 % off is right.")
    whole = replace(numeric(), make=lambda rng: Question("How many?", 3.0, "", 0, {}, ""))
    assert ask(whole, 0).prompt == "How many?\n\nAnswer with a number: it must be exact."


def test_code_is_judged_by_the_check_of_the_course():
    """Right: passes, and the twist with it; wrong: the report, and another try?"""
    asked = ask(code(), 0)
    assert asked.card.code == STUB and "NotImplementedError" not in asked.prompt
    right = judge(asked, RIGHT)
    assert right.right and "Yours does that, too" in right.text and "longer than the queries" in right.text
    wrong = judge(asked, WRONG)
    assert not wrong.final and wrong.score < 1 and "✗ causal_mask" in wrong.text


def test_a_twist_alone_may_fail():
    """The check passes, one case more does not: three quarters, and the case is shown?"""
    odd = RIGHT.replace("    return", "    if q_len == 61:\n        return None\n    return")
    twisted = replace(code(), twist=Twist("And 61?", "61", {"args": {"q_len": 61}}))
    verdict = judge(ask(twisted, 0), odd)
    assert verdict.score == 0.75 and not verdict.final and 'case "61"' in verdict.text


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (STUB, "still the blank cell"),
        ("  ", "still the blank cell"),
        (STUB.replace("True", "yes"), "still raises NotImplementedError"),
        ("def causal_mask(:", "not valid Python yet"),
        ("x = 1", "does not define causal_mask"),
        ("causal_mask = 1 / 0", "your code stops in line 1 with ZeroDivisionError"),
    ],
)
def test_code_that_is_none_is_said_and_not_judged(typed, says):
    """Blank, unfinished, broken: is it a sentence and no failure?"""
    with pytest.raises(Unclear, match=says):
        judge(ask(code(), 0), typed)


def test_the_twin_does_not_pass_for_an_answer():
    """`from utils.oracle import causal_mask`: is the course's own answer told from the learner's?"""
    verdict = judge(ask(code(), 0), "from utils.oracle import causal_mask")
    assert not verdict.right


def test_code_may_lean_on_earlier_exercises_and_imports():
    """`masked_softmax`, `math`, `nn` are at hand as in the notebook, though nobody typed them?"""
    source = "def attention_weights(q, k, attn_mask=None):\n    return masked_softmax(q, attn_mask), math.pi, nn, F, np"
    made = workbench.build_code("attention_weights", source)
    assert len(made(workbench.torch.ones(2, 2), None)) == 5


def test_a_twist_is_made_of_plain_data():
    """Sizes, masks, ints, lists: does the TOML become what a case of a check is made of?"""
    args = {"q": [2, 3], "attn_mask": {"mask": [2, 3]}, "ids": {"ints": [[1, 2]]}, "sizes": {"list": [1, 2]}, "p": 0.5}
    case = twist_case(Twist("?", "odd", {"args": args, "init": {"d_model": 4}}), find("causal_mask"))
    assert case.args["q"] == (2, 3) and case.args["sizes"] == [1, 2] and case.args["p"] == 0.5
    assert case.args["ids"].tolist() == [[1, 2]] and hasattr(case.args["attn_mask"], "draw")
    assert case.init == {"d_model": 4} and case.name == "odd"


def test_a_twist_may_begin_with_a_case_of_its_exercise():
    """Does it keep what is not named, inside of a configuration, too?"""
    changes = {"args": {"config": {"with": {"n_kv_heads": 2}}}}
    start = next(one for one in find("count_parameters").cases if one.name == "decoder-only")
    case = twist_case(Twist("?", "grouped", changes, "decoder-only"), find("count_parameters"))
    before, after = (one.args["config"].options for one in (start, case))
    assert after == before | {"n_kv_heads": 2} and "n_kv_heads" not in before
    words = spec({"merges": ["l|o"]}), spec({"counts": {"lo": 2}}), spec({"each": [[2, 3], {"nothing": True}]})
    assert words == ([(b"l", b"o")], {b"lo": 2}, [(2, 3), None])
    assert spec({"E": 1.5, "alpha": 0.3}) == {"E": 1.5, "alpha": 0.3}
