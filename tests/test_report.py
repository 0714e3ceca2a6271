"""How a class is doing: what the csv, the table and the page say, from graded notebooks and the gradebook."""

import csv
import json

import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_output
from rich.console import Console

from autograde.report import Said, class_report, outcomes, read_check, summaries
from tests.sample_class import Work, record
from tests.sample_course import PHASE, make_course, read

LIKELY = "the mask is inverted: True means may attend"
BLANK = "✗ causal_mask · not implemented yet\n  hint      Section 1.1: fill in the cell above, run it, then this one."
WRONG = f"""✗ causal_mask · case "one hidden key" (2 of 5)
  expected  out[0] = [0.11]
  got       out[0] = [0.22]
  likely    {LIKELY}
  hint      Section 1.1: masks.
  so far    1/4 points · shape ✓ values ✗"""
HIDDEN = """✗ padding_mask · a hidden case
  differs   values, gradients
  hint      Section 1.1: masks.
  so far    0.5/2 points · shape ✓ values ✗ gradients ✗"""
GOOD = "✓ causal_mask · 4/4 · shape ✓ values ✓"
FINE = "✓ padding_mask · 2/2 · shape ✓ values ✓"


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """Six students: two finished, two on the same mistake, one blank, one whose name is a formula."""
    root = make_course(tmp_path_factory.mktemp("report"))
    done = {"causal_mask": 4, "padding_mask": 2, "why-masks": None}
    good, half = {"causal_mask": GOOD, "padding_mask": FINE}, {"causal_mask": WRONG, "padding_mask": FINE}
    works = {
        "ada": Work(read(root), done, good, handed_in="2026-01-02 12:00"),
        "bo": Work(read(root), done | {"why-masks": 3}, good),
        "cy": Work(read(root), {"causal_mask": 1}, {"causal_mask": WRONG, "padding_mask": HIDDEN}),
        "dee": Work(read(root), {"causal_mask": 1, "padding_mask": 2}, half),
        "eve": Work(read(root), {}, {"causal_mask": BLANK, "padding_mask": BLANK.replace("causal", "padding")}),
        "=1+1": Work(
            read(root), {"causal_mask": 4, "padding_mask": 0.5}, {"causal_mask": GOOD, "padding_mask": HIDDEN}
        ),
    }
    record(root, works, due="2026-01-01 12:00")
    events = [{"student": "cy", "phase": PHASE, "exercise": "causal_mask", "what": "<b>a claim</b>", "time": "12:00"}]
    lines = [json.dumps(event) for event in events] + ["{broken", json.dumps({"phase": "other"}), "[]"]
    (root / "autograde" / "audit.jsonl").write_text("\n".join(lines))
    return root


@pytest.fixture(scope="module")
def made(course):
    """(paths, tables) of the report."""
    return class_report(course, PHASE, course / "autograde" / "reports")


def table(path):
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_the_csv_has_a_row_per_student_and_exercise(made):
    """Does the csv hold points, maximum, aspects, mistake, lateness and what waits, in the order of the notebook?"""
    rows = table(made[0][0])
    assert len(rows) == 6 * 3
    assert list(dict.fromkeys(row["exercise"] for row in rows)) == ["causal_mask", "padding_mask", "why-masks"]
    row = next(row for row in rows if (row["student"], row["exercise"]) == ("cy", "causal_mask"))
    assert (row["points"], row["of"], row["status"], row["aspects"]) == ("1.0", "4.0", "partly", "shape ✓ values ✗")
    assert row["likely mistake"] == LIKELY and row["waiting"] == ""
    waiting = {row["student"] for row in rows if row["waiting"]}
    late = {row["student"]: row["hours late"] for row in rows}
    assert waiting == {"ada"} and late["ada"] == "24.0" and late["bo"] == "0.0"


def test_no_cell_of_the_csv_is_a_formula(made):
    """Does a student whose name is a formula not run in the instructor's spreadsheet?"""
    assert {row["student"] for row in table(made[0][0])} == {"ada", "bo", "cy", "dee", "eve", "'=1+1"}


def test_each_exercise_is_summed_up(course):
    """Does the summary count solved, partly, not and blank, and the mistakes, most common first?"""
    first, second, written = summaries(outcomes(course, PHASE))
    count = {status: len(names) for status, names in first.students.items()}
    assert count == {"solved": 3, "partly": 2, "not solved": 0, "blank": 1, "waiting": 0}
    assert (first.median, first.mistakes) == (2.5, [(LIKELY, 2)])
    assert second.students["not solved"] == ["cy"] and second.students["partly"] == ["=1+1"]
    assert written.students["waiting"] == ["ada"] and written.median == 0 and not written.stuck


def test_the_place_where_people_stop_is_marked(course):
    """Is an exercise marked from which on many solved nothing, and are they named?"""
    first, second, written = summaries(outcomes(course, PHASE))
    assert first.stopped == ["cy", "eve"] and first.stuck
    assert second.stopped == ["=1+1"] and not second.stuck
    assert written.stopped == []


def test_the_terminal_shows_the_table(made):
    """Does the table name the exercise, the counts, the mark and the mistake?"""
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(*made[1])
    line = next(line for line in console.export_text().splitlines() if "causal_mask" in line)
    assert [part.strip() for part in line.split("│")[1:4]] == ["causal_mask", "3", "2"]
    assert "stuck here: 2 stopped" in line and f"2 × {LIKELY}" in line


def test_the_page_is_clean_and_complete(made):
    """Does the page hold the table, who is stuck where and what the grader noticed, with every text as text?"""
    tree = BeautifulSoup(made[0][2].read_text(encoding="utf-8"), "html.parser")
    text = " ".join(tree.text.split())
    assert "6 graded submissions, 1 of them late: ada" in text and "solved nothing from here on: cy, eve" in text
    assert "<b>a claim</b>" in text and tree.find("script") is None
    assert "default-src 'none'" in tree.find("meta", {"http-equiv": "Content-Security-Policy"})["content"]
    targets = [a["href"][1:] for a in tree.find("table").find_all("a")]
    assert targets and all(tree.find(id=target) for target in targets)


def test_the_exercises_are_a_csv_too(made):
    """Can the table per exercise be opened in a spreadsheet?"""
    first = table(made[0][1])[0]
    assert (first["exercise"], first["solved"], first["stuck"]) == ("causal_mask", "3", "stuck here")
    assert first["most common mistakes"] == f"{LIKELY} (2)" and first["stopped here"] == "cy eve"


def test_an_empty_class_has_an_empty_report(tmp_path):
    """Is a report before anybody was graded a page, not an error?"""
    root = record(make_course(tmp_path), {})
    paths, _ = class_report(root, PHASE, tmp_path / "out")
    assert "0 graded submissions" in paths[2].read_text()


def said(text, **kwargs):
    return read_check([new_output("stream", name="stdout", text=text, **kwargs)])


def test_a_report_is_read_line_by_line():
    """Are aspects, mistake and the line that matters found in what a check says?"""
    assert said(GOOD) == Said({"shape": True, "values": True})
    assert said(BLANK) == Said({}, "", "not implemented yet", blank=True)
    assert said(WRONG) == Said({"shape": True, "values": False}, LIKELY, LIKELY)
    assert said(HIDDEN).line == "a hidden case: values, gradients differ"
    without = "\n".join(line for line in WRONG.splitlines() if "likely" not in line)
    assert said(without).line == 'case "one hidden key" (2 of 5): out[0] = [0.22]'


def test_what_is_no_report_is_read_without_error():
    """Is an error, an odd line or no output at all a line, too?"""
    error = new_output("error", ename="Ended", evalue="This cell did not finish: 10 s are over.", traceback=[])
    assert read_check([error]).line == "Ended: This cell did not finish: 10 s are over."
    assert read_check([]) == Said({}, "", "no result") == said("\n  \n")
    assert said("causal_mask 0.5").line == "causal_mask 0.5"
    assert read_check([new_output("error", ename="NotImplementedError", evalue="", traceback=[])]).blank


def test_a_learners_text_stays_one_short_plain_line():
    """Is what a submission can put into a report bounded, and free of what moves a terminal's cursor?"""
    line = said("✗ x · case\n  got       " + "\x1b[31m\u202e" + "y" * 1000 + "\n  so far    0/2 points").line
    assert len(line) == 200 and line.isprintable()
