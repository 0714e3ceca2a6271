"""Copies are found, also in disguise; people who work alone are not. The made-up classes: tests/independent.py."""

import json
import time

import pytest
from bs4 import BeautifulSoup

from autograde.similarity import answers, compare, similarity_report, tokens
from tests.independent import disguised, student
from tests.sample_course import CAUSAL, PADDING, PHASE, cell, make_course, read, solve

PARTS = ("sdpa_backward", "MaskedSelfAttention", "streaming_attention")


def made_class(size, start=0):
    """{name: {exercise: code}} of students who all work alone."""
    return {f"s{number}": student(start + number) for number in range(size)}


def found(work):
    """{pair of names: Pair}"""
    cells = {who: {name: ("code", code) for name, code in codes.items()} for who, codes in work.items()}
    return {frozenset(pair.students): pair for pair in compare(cells)}


@pytest.mark.parametrize(("size", "start"), [(4, 0), (9, 10), (20, 40), (60, 100), (60, 300)])
def test_people_who_work_alone_are_not_reported(size, start):
    """Are independent solutions left in peace, in a small class and in a large one?"""
    assert found(made_class(size, start)) == {}


@pytest.mark.parametrize("size", [5, 20, 60])
def test_a_copied_notebook_is_found(size):
    """Is a notebook handed in under two names found, and nobody else?"""
    work = made_class(size) | {"copy": student(2)}
    pairs = found(work)
    assert set(pairs) == {frozenset(("copy", "s2"))}
    assert pairs[frozenset(("copy", "s2"))].wording == 1


@pytest.mark.parametrize("source", [0, 2, 3])
def test_a_disguised_copy_is_found(source):
    """Is a copy found although names, messages, comments and layout are others?"""
    copy = {name: disguised(code, 7) for name, code in student(source).items()}
    pairs = found(made_class(60) | {"copy": copy})
    assert set(pairs) == {frozenset(("copy", f"s{source}"))}
    pair = pairs[frozenset(("copy", f"s{source}"))]
    assert pair.structure > 0.99 and pair.wording < 0.95 and "under other names" in pair.why


def test_three_copied_exercises_are_found():
    """Is it enough that the long exercises are copied, and are these the ones that are listed first?"""
    copy = student(900) | {name: student(7)[name] for name in PARTS}
    pair = found(made_class(60) | {"copy": copy})[frozenset(("copy", "s7"))]
    assert {part.exercise for part in pair.parts[:3]} == set(PARTS)
    assert [part.similarity for part in pair.parts[:3]] == [1, 1, 1]


def test_a_whole_group_is_found():
    """Are copies found although so many made them that they are no longer rare?"""
    work = made_class(30) | {f"copy{number}": student(3) for number in range(8)}
    assert len(found(work)) == 9 * 8 / 2


def test_matched_lines_are_told():
    """Does the report say which lines are common, in both?"""
    work = made_class(20)
    work["copy"] = work["s3"] | {"streaming_attention": "# all my own work\n\n" + work["s3"]["streaming_attention"]}
    pair = found(work)[frozenset(("copy", "s3"))]
    part = next(part for part in pair.parts if part.exercise == "streaming_attention")
    last = len(work["s3"]["streaming_attention"].splitlines())
    assert part.lines == (f"4-{last + 2}", f"2-{last}")


def test_structure_ignores_what_a_disguise_changes():
    """Do own names, messages, comments, brackets and headers not count, but the operations do?"""
    first = (
        'def f(a, b):\n    """Text."""\n    if b:\n        raise ValueError("no")\n    s = a.softmax(-1)\n    return s'
    )
    other = "def f(x, *, y: int):\n    if (y): # why\n        raise ValueError('not at all')\n"
    other += "    out = (x.softmax((-1)))\n    return (out)"
    assert tokens("code", first)[0].words == tokens("code", other)[0].words
    assert tokens("code", first.replace("softmax", "sigmoid"))[0].words != tokens("code", first)[0].words
    assert tokens("code", first)[1].words != tokens("code", other)[1].words


@pytest.mark.parametrize(
    "text", ["def f(:\n  x = 1", "%%bash\nls", "!ls\nx = 1", "x = ?", "\x00", "((((", "é = 'ü'\n# ñ", "-" * 5000]
)
def test_any_text_can_be_compared(text):
    """Is a cell that is not Python compared as far as it goes?"""
    structure, wording = tokens("code", text)
    assert len(structure.words) == len(structure.lines) and len(wording.words) == len(wording.lines)


def test_what_was_handed_out_does_not_count(tmp_path):
    """Do blank notebooks, and lines of the lesson, have nothing in common that would count?"""
    root = make_course(tmp_path)
    notebook = json.loads(json.dumps(read(root)))
    given = frozenset(line.strip() for one in notebook["cells"] for line in one["source"].splitlines())
    blank = answers(notebook, given)
    assert set(blank) == {"causal_mask", "padding_mask", "why-masks"}
    assert not any(words.words for kind, text in blank.values() for words in tokens(kind, text, given))


def hand_in(root, who, added="", **work):
    notebook = solve(read(root), **work)
    if added:
        cell(notebook, "setup").source += "\n" + added
        cell(notebook, "setup").metadata.pop("nbgrader")
    folder = root / "autograde" / "autograded" / who / PHASE
    folder.mkdir(parents=True)
    (folder / f"{PHASE}.ipynb").write_text(json.dumps(notebook))


def test_a_solution_in_another_cell_is_looked_at(tmp_path):
    """Is a function compared that a learner wrote into a cell of their own, the stub left as it was?"""
    root = make_course(tmp_path)
    hand_in(root, "ada", added="def causal_mask(q_len, kv_len=None):\n" + CAUSAL)
    notebook = json.loads((root / "autograde" / "autograded" / "ada" / PHASE / f"{PHASE}.ipynb").read_text())
    given = frozenset(line.strip() for one in read(root).cells for line in one["source"].splitlines())
    assert "tril" in answers(notebook, given)["causal_mask"][1]


LONG = "\n".join(f"    a{n} = torch.ones({n}).roll({n * n}).sum() + {n}" for n in range(40)) + "\n    return <b>" * 0
LONGER = LONG + "\n    return a1 if '<b>bold</b>' else a2"


def test_the_report_shows_both_sides_and_no_markup_of_theirs(tmp_path):
    """Do csv and page name the pair, the exercise and the lines, as text, with the plain word that it is no verdict?"""
    root = make_course(tmp_path)
    for who in ("ada", "=bo"):
        hand_in(root, who, causal_mask=LONGER, padding_mask=PADDING)
    hand_in(root, "cy", causal_mask=CAUSAL, padding_mask=PADDING)
    paths, tables = similarity_report(root, PHASE, tmp_path / "out")
    assert "'=bo,ada,causal_mask,100,3-43,3-43" in paths[0].read_text(encoding="utf-8-sig").replace(", ", ",")
    tree = BeautifulSoup(paths[1].read_text(encoding="utf-8"), "html.parser")
    assert (
        "A reason to look, not a verdict" in tree.text
        and "'<b>bold</b>'" in tree.text
        and not tree.find("b", string="bold")
    )
    assert len(tree.find(class_="wb-two").find_all("mark")) == 82 and "cy" not in tree.text
    assert tables[0].row_count == 1


def test_one_submission_alone_is_no_error(tmp_path):
    """Is there a report of a class of one, and of nobody?"""
    root = make_course(tmp_path)
    assert similarity_report(root, PHASE, tmp_path / "out")[1][0].row_count == 1
    hand_in(root, "ada", causal_mask=CAUSAL)
    assert "1 submissions were compared; 0 pairs" in similarity_report(root, PHASE, tmp_path / "out")[0][1].read_text()


@pytest.mark.slow
def test_two_hundred_students_take_less_than_a_minute():
    """Is a large class compared in under a minute of one core, and without a false pair?"""
    work = made_class(200) | {"copy": student(3)}
    start = time.process_time()
    assert set(found(work)) == {frozenset(("copy", "s3"))}
    assert time.process_time() - start < 60
