"""The worked numbers of the notes: recomputed, judged again, and served in a form that a learner can read."""

import ast
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from tests import notes_ops_attention, notes_ops_blocks, notes_ops_decoding, notes_ops_positions
from tests.notes_ops import functions_for, plain, unused_patterns
from tests.notes_ops_chains import unrounded_results
from utils import notes, notes_table

RAW = json.loads(Path(notes.__file__).with_name("notes.json").read_text(encoding="utf-8"))
IDS = [record["id"] for record in RAW["examples"]]
RECOMPUTED = [record["id"] for record in RAW["examples"] if record["verdict"] != "cannot be recomputed"]
OPS = (notes_ops_attention, notes_ops_blocks, notes_ops_decoding, notes_ops_positions)
VERDICTS = ("right", "right to rounding", "wrong")


def entries(value):
    """Return every entry of nested lists and dicts with the path that leads to it."""
    if isinstance(value, (list, dict)):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        return {(key, *path): leaf for key, part in parts for path, leaf in entries(part).items()} or {(): "empty"}
    return {(): value}


def same(mine, theirs, allowed=1e-9):
    """Say whether two results have the same entries in the same places, numbers to within `allowed`."""
    mine, theirs = entries(mine), entries(theirs)
    return mine.keys() == theirs.keys() and all(
        mine[path] == theirs[path]
        or (isinstance(mine[path], (int, float)) and abs(mine[path] - theirs[path]) <= allowed)
        for path in mine
    )


def recompute(id):
    (function,) = functions_for(id)
    return plain(function(**notes.example(id).inputs))


@pytest.mark.parametrize("id", RECOMPUTED)
def test_worked_number_is_recomputed(id):
    """Does an independent computation from the inputs give what the data calls correct, to the last key?"""
    correct, found = notes.example(id).correct, recompute(id)
    assert correct.keys() == found.keys()
    for key, value in correct.items():
        sizes = [abs(leaf) for leaf in entries(value).values() if isinstance(leaf, float) and math.isfinite(leaf)]
        assert same(found[key], value, 1e-9 * max([1.0, *sizes])), f"{key}: {found[key]} came out, the data say {value}"


@pytest.mark.parametrize("id", RECOMPUTED)
def test_verdict_follows_from_what_comes_out(id):
    """Does the stored verdict follow from printed numbers, printed digits and a fresh computation?"""
    example, found = notes.example(id), recompute(id)
    worst = 0
    for key, printed in example.stated.items():
        half_a_digit = example.precision.get(key, 0.0) + 1e-9
        verdict = 0 if same(printed, found[key]) else 1 if same(printed, found[key], half_a_digit) else 2
        assert example.verdict_of(key) == VERDICTS[verdict], key
        worst = max(worst, verdict)
    assert example.verdict == VERDICTS[worst]


def test_every_number_is_claimed_by_exactly_one_computation():
    """Is there one independent computation for each number, none for the underivable ones, and no idle pattern?"""
    assert all(op.__doc__ for op in OPS)
    claimed = {id: len(functions_for(id)) for id in IDS}
    assert claimed == {id: int(id in RECOMPUTED) for id in IDS}
    assert unused_patterns(IDS) == []


def test_unrounded_results_come_from_the_first_inputs():
    """Do the results without rounding on the way come out again, and is none forgotten?"""
    found = unrounded_results()
    assert found.keys() == {record["id"] for record in RAW["examples"] if "unrounded" in record}
    for id, (key, value) in found.items():
        assert same(plain(value), notes.example(id).unrounded[key]), id


def test_numbers_without_inputs_say_so():
    """Does an example whose inputs are missing have no correct value and the verdict that says it?"""
    underivable = [notes.example(id) for id in IDS if id not in RECOMPUTED]
    assert len(underivable) == 9
    assert all(example.correct == {} and example.stated for example in underivable)
    assert {example.verdict_of(key) for example in underivable for key in example.stated} == {"cannot be recomputed"}


def test_all_numbers_and_errata_are_there_once():
    """Are there 173 worked numbers and 118 errata, each id once, in the counts the audit found?"""
    rows = {"A": 30, "B": 12, "C": 19, "D": 57}
    assert len(IDS) == len(set(IDS)) == 173
    assert [slip["id"] for slip in RAW["errata"]] == [f"{table}{n + 1}" for table in rows for n in range(rows[table])]
    verdicts = [example.verdict for example in notes.examples()]
    assert [verdicts.count(name) for name in notes_table.SYMBOL] == [90, 23, 51, 9]


def test_records_are_complete():
    """Does every record say what it is about, in whole sentences, and name its phase and source?"""
    for example in notes.examples():
        assert example.phase in notes.PHASES and example.kind in notes_table.THEY_SAY
        assert example.topic and example.stated and example.source.startswith(source_of(example.id))
        assert example.lesson.endswith("."), example.id
        assert example.precision.keys() <= example.stated.keys()
    for slip in notes.errata():
        assert slip.phase in notes.PHASES and slip.source and slip.where
        assert slip.claim.endswith(".") and slip.correction.endswith("."), slip.id
        assert slip.lesson[-1] in ".?", slip.id


def source_of(id):
    names = {"000": "Master Notes", "001": "Zero-to-Hero", "002": "phase notes", "003": "Decoder Explained"}
    return names.get(id[:3], "Neuron-level")


def test_errata_and_examples_point_at_each_other():
    """Does every erratum name examples that exist, and does each of them serve that erratum?"""
    for slip in notes.errata():
        for id in slip.examples:
            assert slip in notes.example(id).errata
    linked = {(slip.id, example.id) for example in notes.examples() for slip in example.errata}
    assert linked == {(slip.id, id) for slip in notes.errata() for id in slip.examples}


def test_every_wrong_number_has_its_erratum():
    """Can a learner always read why a wrong number is wrong?"""
    assert [example.id for example in notes.examples() if example.verdict == "wrong" and not example.errata] == []


@pytest.mark.parametrize("slip", notes.errata(), ids=lambda slip: slip.id)
def test_evidence_of_an_erratum_holds(slip):
    """Is the evidence an example it names, a page, the literature, or an expression that is true?"""
    if slip.evidence in IDS:
        assert slip.evidence in slip.examples
    elif slip.evidence not in notes_table.EVIDENCE:
        assert bool(eval(slip.evidence, {"np": np, "torch": torch, "math": math}))
    else:
        assert not set(slip.examples) & set(RECOMPUTED) or slip.id in {"C10", "D12", "D56"}


CAUSAL = [0.03511902695933973, 0.2594964603424191, 0.7053845126982412, 0.0]


@pytest.mark.parametrize(
    "value",
    [
        CAUSAL,
        tuple(CAUSAL),
        [[CAUSAL]],
        np.array(CAUSAL),
        np.array([CAUSAL], dtype=np.float32),
        torch.tensor(CAUSAL, requires_grad=True),
        [torch.tensor(weight) for weight in CAUSAL],
    ],
    ids=["list", "tuple", "batch of one", "array", "float32 array", "tensor", "list of tensors"],
)
def test_compare_takes_what_a_learner_has(value):
    """Are lists, arrays and tensors of any float type compared alike, extra axes of length 1 included?"""
    found = notes.example("002-causal-softmax").compare(value)
    assert found.agrees and not found.agrees_with_notes
    assert repr(found) == found.text
    assert found.text.splitlines() == [
        "your 0.035 0.259 0.705 0 agrees with the recomputation; the notes print 0.09 0.24 0.67 0:",
        "erratum A18. The scores 1, 3, 4 give 0.035, 0.259, 0.705, 0. The printed row belongs to the scores 1, 2, 3.",
    ]


HIDDEN = "002-causal-softmax"


@pytest.mark.parametrize(
    ("id", "value", "agrees", "with_notes", "text"),
    [
        (HIDDEN, [0.09, 0.24, 0.67, 0.0], False, True, "agrees with the notes, but 0.035 0.259 0.705 0 comes out"),
        (HIDDEN, [0.035, 0.259, 0.705, 0], True, False, "agrees with the recomputation to the printed digits; "),
        (HIDDEN, [0.2, 0.3, 0.5, 0.0], False, False, "differs from the recomputation, which gives 0.035"),
        (HIDDEN, [0.2, 0.3, 0.5, 0.0], False, False, "(largest difference 0.205)"),
        (HIDDEN, [math.nan] * 4, False, False, "your NaN NaN NaN NaN differs"),
        (HIDDEN, [0.3, 0.7], False, False, "your value is of shape 2, but softmax of 002-causal-softmax is of shape 4"),
        (HIDDEN, [[0.3], [0.7, 0.1]], False, False, "rows of different lengths"),
        (HIDDEN, None, False, False, "nothing to compare"),
        (HIDDEN, "soon", False, False, "your value is a single entry"),
        ("000-softmax-row-the", torch.tensor([1.05, 1.9, 0.6]).softmax(-1), True, True, "recomputation and with the"),
        ("000-softmax-row-the", [0.25, 0.59, 0.16], True, True, "to the printed digits and with the notes"),
        ("002-sdpa-output", [1.1697631, 1.1697631], True, False, "nothing rounded on the way; the notes print 1.2"),
        ("001-sum-row1", 1.134242786, True, False, "erratum A14"),
        ("000-score-matrix", [[0.0] * 3] * 3, None, False, "cannot be checked"),
        ("002-attention-mostly-linear", False, True, False, "the notes say True:\nerratum D5"),
        ("000-mask-3x3", np.triu(np.full((3, 3), -np.inf), 1), True, True, "with the recomputation and with the notes"),
        ("003-mask-5x5", torch.zeros(5, 5), False, False, "your result of 5 rows differs from the recomputation"),
        ("002-topk3", ["deep", "machine", "learning"], True, True, "your deep, machine, learning agrees"),
        ("002-topk3", ["deep", "pizza", "learning"], False, False, "which gives deep, machine, learning; the notes"),
        ("000-mha-shapes", torch.zeros(3, 512).shape, True, True, "your 3 × 512 agrees"),
    ],
)
def test_compare_says_where_a_value_stands(id, value, agrees, with_notes, text):
    """Does each kind of value get the right judgement, in words, and never a traceback?"""
    found = notes.example(id).compare(value)
    assert (found.agrees, found.agrees_with_notes) == (agrees, with_notes)
    assert text in found.text


@pytest.mark.parametrize("id", IDS)
def test_compare_knows_the_right_and_the_printed_answer(id):
    """Does the correct value always agree, and the printed one agree with the notes?"""
    example = notes.example(id)
    for key in example.stated:
        assert example.compare(example.stated[key], key).agrees_with_notes
    for key in example.correct:
        found = example.compare(example.correct[key], key)
        assert found.agrees, found
        assert found.agrees_with_notes == (key in example.stated and example.verdict_of(key) != "wrong")


def test_compare_finds_the_result_that_is_meant():
    """Without a key, is the value compared with the result it fits, and else with the last of its shape?"""
    example = notes.example("000-layernorm-z1")
    assert example.compare(example.correct["deviations"]).agrees
    assert "which gives 0.788 0.068 -1.654 0.798" in example.compare([1.0, 0.0, -1.0, 0.0]).text
    assert "which gives 0.999" in example.compare(3.0).text
    assert "norm at one hot" in notes.example("000-softmax-jacobian-largest").compare([0.0, 0.0]).text
    assert notes.example("000-softmax-jacobian-largest").compare(0.0).agrees_with_notes  # not taken for False
    assert example.compare(0.9978687, key="variance").agrees
    with pytest.raises(notes.UnknownId, match="no result called 'sigma'; it has mean, deviations"):
        example.compare(1.0, key="sigma")


def test_example_is_a_copy():
    """Can a learner overwrite an input without spoiling it for the next cell?"""
    first = notes.example("002-causal-softmax")
    assert first.inputs["z"] == [1, 3, 4, -math.inf]
    first.inputs["z"][0] = 99
    assert notes.example("002-causal-softmax").inputs["z"] == [1, 3, 4, -math.inf]
    with pytest.raises(AttributeError):
        first.verdict = "right"


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: notes.example("002-casual-softmax"), "called '002-casual-softmax'. Nearest: 002-causal-softmax,"),
        (lambda: notes.example(17), "no worked number called 17. See them all: notes.examples"),
        (lambda: notes.erratum("a18"), "no erratum called 'a18'. Nearest: A18"),
        (lambda: notes.examples(0), "phase is a number from 1 to 6"),
        (lambda: notes.errata("two"), "phase is a number from 1 to 6"),
    ],
)
def test_unknown_names_are_answered_kindly(ask, message):
    """Does a slip in an id or a phase get one clear line, with the nearest names?"""
    with pytest.raises((notes.UnknownId, ValueError), match=message.replace(".", r"\.")):
        ask()


def test_lists_split_by_phase():
    """Do the six phases together hold every example and every erratum once?"""
    for everything in (notes.examples, notes.errata):
        by_phase = [item.id for phase in notes.PHASES for item in everything(phase)]
        assert sorted(by_phase) == sorted(item.id for item in everything())
        assert {item.phase for item in everything(2)} == {2}


SHOWN = {item.id: item for item in (*notes.examples(), *notes.errata())}
SHOWN |= {"examples": notes.examples(2), "errata": notes.errata(2)}


@pytest.mark.parametrize("item", SHOWN.values(), ids=SHOWN)
def test_views_are_readable(item):
    """Is the table well-formed, escaped, free of fixed colours, and does the text say the same in words?"""
    page, text = item._repr_html_(), repr(item)
    assert page.count("<div") == page.count("</div>") and page.count("<td") == page.count("</td>")
    assert "<SOS>" not in page and "<s>" not in page and "<PAD>" not in page
    assert set(re.findall(r"(?:color|background):([^;\"]*)", page)) <= {"inherit", "transparent"}
    if isinstance(item, notes.Example):
        assert f"{notes_table.SYMBOL[item.verdict]}</b>&nbsp;{item.verdict}" in page
        assert f"{notes_table.SYMBOL[item.verdict]} {item.verdict}" in text
        assert all(f"erratum {slip.id}" in page and f"erratum {slip.id}" in text for slip in item.errata)
        assert max(map(len, text.splitlines())) <= 160


def test_wrong_entries_are_marked_without_colour():
    """Are the wrong printed entries, and only those, underlined?"""
    page = notes.example("000-layernorm-z1")._repr_html_()
    marked = [part.split("<")[0] for part in page.split("<u>")[1:]]
    assert marked == ["1.08", "1.04", "0.76", "-1.59", "0.77"]
    assert "<u>" not in notes.example("000-softmax-row-the")._repr_html_()


def test_lists_show_one_line_each():
    """Does a list of a phase, or a slice of it, show one line per item?"""
    few = notes.examples(2)[:3]
    assert len(repr(few).splitlines()) == few._repr_html_().count("<tr") == 3
    assert repr(few).startswith("000-q-the  ✗ wrong  query of The  Master Notes §3")
    assert few[0].id == "000-q-the"


def test_notes_load_without_torch():
    """Can the notes be read where torch takes long to import or is absent?"""
    for module in (notes, notes_table):
        tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
        named = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
        named += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        assert named and not any(name.split(".")[0] in {"torch", "numpy"} for name in named)
