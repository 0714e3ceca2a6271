"""Grades as csv: the merge into a download from Canvas, and nothing that a spreadsheet would run."""

import csv
import io
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nbgrader.api import Gradebook
from nbgrader.plugins import CsvExportPlugin
from nbgrader.utils import parse_utc

from autograde.canvas import CanvasError, SafeCsvExportPlugin, _cells, _value, merge, safe_cell, safe_row, write_csv
from autograde.course import ROOT, load_config

# As the exporter of Canvas writes it: four blanks before Points Possible, "Manual Posting" above it, numbers unquoted
HEADER = "Student,ID,SIS User ID,SIS Login ID,Section,Notes,Phase 1 (11),Phase 2 (22),Current Score"
POSTING = ",,,,,,,Manual Posting,"
POSSIBLE = "    Points Possible,,,,,,10,39,(read only)"
PEOPLE = [
    '"Lovelace, Ada",101,s-1,ada,"Mon, and Tue",,9.50,,91.2',
    '"Turing, Alan",102,s-2,alan@uni.example,Mon,"said ""hi""",8,12,80',
    '"Hopper, Grace",103,s-3,grace,Mon,,7,EX,70',
    '"Noether, Emmy",104,s-4,emmy,Mon,,,N/A,',
    '"Student, Test",199,,abc123def,Mon,,,,',
]


def download(path, lines=(HEADER, POSTING, POSSIBLE, *PEOPLE), end="\n", mark=""):
    path.write_bytes((mark + end.join(lines) + end).encode())
    return path


def cells(path, separator=","):
    return list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline=""), delimiter=separator))


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_only_the_cells_of_the_column_change(tmp_path, end, mark):
    """Does every other byte of the download stay, with byte-order mark, line ends and quotes as they were?"""
    source = download(tmp_path / "c.csv", end=end, mark=mark)
    merged = merge(source, {"ada": 38.125, "s-2": 0}, "Phase 2", tmp_path / "out.csv")
    expected = source.read_bytes().replace(b"9.50,,91.2", b"9.50,38.12,91.2").replace(b",8,12,80", b",8,0,80")
    assert (tmp_path / "out.csv").read_bytes() == expected
    assert merged.written == {"ada": "38.12", "s-2": "0"} and merged.column == "Phase 2 (22)"


@pytest.mark.parametrize("key", ["ALAN@uni.example", "alan", "s-2", "102", " alan@elsewhere.example "])
def test_a_student_is_found_by_any_name_canvas_knows(tmp_path, key):
    """Is a student matched by login, e-mail, SIS number or Canvas number?"""
    merged = merge(download(tmp_path / "c.csv"), {key: 30}, "22", tmp_path / "out.csv")
    assert cells(tmp_path / "out.csv")[4][7] == "30" and not merged.not_in_canvas


def test_the_address_in_our_gradebook_helps(tmp_path):
    """Is a student found by e-mail where the folder's name means nothing to Canvas?"""
    source = download(tmp_path / "c.csv")
    merged = merge(source, {"team-7": 5}, "Phase 1", tmp_path / "out.csv", emails={"team-7": "grace@uni.example"})
    assert merged.written == {"team-7": "5"} and cells(tmp_path / "out.csv")[5][6] == "5"


def test_whoever_is_missing_on_either_side_is_named(tmp_path):
    """Are students without a partner told for both sides, and left as they were, the test student aside?"""
    merged = merge(download(tmp_path / "c.csv"), {"ada": 1, "zoe": 2}, "Phase 1", tmp_path / "out.csv")
    assert merged.not_in_canvas == ["zoe"]
    assert merged.without_grade == ["Turing, Alan (alan@uni.example)", "Hopper, Grace (grace)", "Noether, Emmy (emmy)"]
    assert [row[6] for row in cells(tmp_path / "out.csv")[3:]] == ["1", "8", "7", "", ""]
    assert any("zoe" in line for line in merged.lines())


def test_excused_and_unassigned_stay(tmp_path):
    """Does no grade overwrite what Canvas marks as excused or not assigned?"""
    merged = merge(download(tmp_path / "c.csv"), {"grace": 1, "emmy": 2}, "Phase 2", tmp_path / "out.csv")
    assert merged.written == {} and [row[7] for row in cells(tmp_path / "out.csv")[5:7]] == ["EX", "N/A"]
    assert "excused" in merged.left_alone[0] and "not assigned" in merged.left_alone[1]


def test_whoever_could_be_two_people_gets_nothing(tmp_path):
    """Is a grade held back, and told, rather than given to the wrong one of two?"""
    source = download(tmp_path / "c.csv", (HEADER, POSSIBLE, "A,7,x-1,al@a,M,,,,", "B,8,7,al@b,M,,,,"))
    merged = merge(source, {"7": 1, "al": 2, "x-1": 3, "al@a": 4}, "Phase 1", tmp_path / "out.csv")
    assert merged.written == {} and len(merged.left_alone) == 3
    assert "7 could be A (al@a) and B (al@b)" in merged.left_alone[0] and "are both A" in merged.left_alone[2]


def test_a_semicolon_locale_keeps_its_comma(tmp_path):
    """Is a file of another locale (semicolons, decimal comma) read and continued in its own way?"""
    people = ["Ada;1;s-1;ada;Mon;;9,5;;91,2", "Bo;2;s-2;bo;Mon;;8;1,25;80"]
    lines = (HEADER.replace(",", ";"), POSSIBLE.replace(",", ";"), *people)
    merge(download(tmp_path / "c.csv", lines, mark="\ufeff"), {"ada": 7.75}, "Phase 2", tmp_path / "out.csv")
    assert cells(tmp_path / "out.csv", ";")[2] == ["Ada", "1", "s-1", "ada", "Mon", "", "9,5", "7,75", "91,2"]


def test_names_in_two_columns_and_short_lines_are_read(tmp_path):
    """Is the layout with LastName and FirstName understood, and a line without its last cells filled up?"""
    lines = (
        HEADER.replace("Student", "LastName,FirstName"),
        "    Points Possible,,,,,,,10,39,(read only)",
        "L,A,1,s-1,ada,M",
    )
    merge(download(tmp_path / "c.csv", lines), {"ada": 3}, "Phase 2", tmp_path / "out.csv")
    assert cells(tmp_path / "out.csv")[2] == ["L", "A", "1", "s-1", "ada", "M", "", "", "3"]


@pytest.mark.parametrize(
    ("lines", "column", "words"),
    [
        ((HEADER, POSSIBLE), "Phase 9", "it has Phase 1 (11), Phase 2 (22)"),
        ((HEADER, POSSIBLE), "Current Score", "Canvas has no assignment Current Score that can be changed"),
        ((HEADER, POSSIBLE), "Section", "Canvas has no assignment Section"),
        ((HEADER.replace("Phase 1", "Phase 2"), POSSIBLE), "Phase 2", "give the number Canvas puts behind"),
        ((HEADER,), "Phase 1", "no line “Points Possible”"),
        (("name,points", "ada,3"), "points", "not a gradebook of Canvas"),
        ((HEADER, POSSIBLE, '"Lovelace, Ada,1'), "Phase 1", "broken in line 3: a quotation mark stands alone"),
    ],
)
def test_a_file_or_column_that_cannot_be_right_is_a_sentence(tmp_path, lines, column, words):
    """Does every slip with the file end in a plain sentence, with nothing written?"""
    with pytest.raises(CanvasError, match=".") as error:
        merge(download(tmp_path / "c.csv", lines), {"ada": 1}, column, tmp_path / "out.csv")
    assert words in str(error.value) and not (tmp_path / "out.csv").exists()


def test_the_download_is_never_overwritten_and_other_encodings_are_refused(tmp_path):
    """Is the instructor's download safe, and a file that was saved in between recognised?"""
    source = download(tmp_path / "c.csv")
    with pytest.raises(CanvasError, match="choose another name"):
        merge(source, {"ada": 1}, "Phase 1", source)
    source.write_bytes("Müller".encode("cp1252"))
    with pytest.raises(CanvasError, match="not UTF-8"):
        merge(source, {"ada": 1}, "Phase 1", tmp_path / "out.csv")


def test_another_maximum_is_told(tmp_path):
    """Does the instructor learn that Canvas counts another number of points than the course?"""
    merged = merge(download(tmp_path / "c.csv"), {}, "Phase 1", tmp_path / "out.csv", of=39)
    assert merged.remarks == ["Canvas counts 10 points for Phase 1 (11), we count 39"]
    assert merge(download(tmp_path / "c.csv"), {}, "Phase 2", tmp_path / "out.csv", of=39.0).remarks == []


def test_no_points_are_no_grade(tmp_path):
    """Is nothing written for points that are missing or not a number?"""
    merged = merge(download(tmp_path / "c.csv"), {"ada": None, "alan": float("nan")}, "Phase 1", tmp_path / "out.csv")
    assert merged.written == {} and len(merged.left_alone) == 2


def test_a_formula_in_the_download_is_disarmed(tmp_path):
    """Does a student who calls themselves a formula not run in the instructor's spreadsheet?"""
    source = download(tmp_path / "c.csv", (HEADER, POSSIBLE, '"=HYPERLINK(""http://x"")",1,s-1,ada,@Mon,,-1,-2.50,3'))
    merged = merge(source, {"ada": 4}, "Phase 2", tmp_path / "out.csv")
    assert cells(tmp_path / "out.csv")[2] == [
        '\'=HYPERLINK("http://x")',
        "1",
        "s-1",
        "ada",
        "'@Mon",
        "",
        "-1",
        "4",
        "3",
    ]
    assert "2 cell(s) of the download looked like a formula" in merged.remarks[0]


ATTACKS = [
    *("=1+1", "+1+1", "-1+1", "@SUM(A1)", "=", "@", "-x", "＝1+1", "＋1+1", "－1+1", "＠A1"),
    *("\t=1", "\r=1", "\tx", "\rx", "  =1", '"=1', "\ufeff=1", "\x00=1", "\xa0=1", "\u200b=1", "-;x"),
    *("a;=cmd|' /C calc'!A0;b", "a,=1+1", "a\n=1+1", "a\t@x"),
]
HARMLESS = [
    *("-1.5", "-1,5", "+3", "-1e-5", "-50%", "12", "", "-", "a-b", "x=1", "ada@uni.example", "'=1", "shape ✓ values ✗"),
    *(-1.5, 0, None, True),
]


@pytest.mark.parametrize("text", ATTACKS)
def test_what_a_spreadsheet_would_run_gets_an_apostrophe(text):
    """Is every beginning of a formula disarmed, also behind blanks, in full width, or behind another separator?"""
    assert safe_cell(text) != text and safe_cell(text).replace("'", "") == text.replace("'", "")
    if text[0] != "a":
        assert safe_cell(text)[0] == "'"


@pytest.mark.parametrize("value", HARMLESS)
def test_numbers_and_words_stay(value):
    """Do negative numbers stay numbers, and ordinary words as they are?"""
    assert safe_cell(value) == value and type(safe_cell(value)) is type(value)


@given(st.text(alphabet="=+-@＝ \t\r\n;,\"'a1.\u200b"))
def test_a_safe_cell_is_safe_wherever_it_is_cut(text):
    """Is no part of a cell a formula, whichever separator a spreadsheet cuts at, and is twice no more than once?"""
    safe = safe_cell(text)
    assert safe_cell(safe) == safe
    for part in [safe, *re.split("[,;\\t\\n]", safe)]:
        start = part.strip(' "\t\r\n\u200b')
        assert start[:1] not in set("=+-@＝") or safe == "-" or re.fullmatch(r"[+-]1[1.,]*", start)


WRITTEN = [("\r\n", csv.QUOTE_MINIMAL), ("\r\n", csv.QUOTE_ALL), ("\n", csv.QUOTE_ALL)]


@settings(max_examples=200)
@given(
    st.lists(st.lists(st.text(alphabet='ab",;\n\r '), min_size=1, max_size=4), min_size=1, max_size=4),
    st.sampled_from(WRITTEN),
)
@example([['"', "a\n"], [""]], WRITTEN[0])
def test_cells_are_read_as_csv_reads_them_and_kept_as_written(rows, written):
    """Does our reader agree with Python's, while keeping every character?"""
    file = io.StringIO()
    csv.writer(file, lineterminator=written[0], quoting=written[1]).writerows(rows)
    text = file.getvalue()
    raw, ends = _cells(text, ",", "x.csv")
    assert "".join(",".join(row) + end for row, end in zip(raw, ends, strict=True)) == text
    assert [[_value(cell) for cell in row] for row in raw] == rows


def test_a_csv_of_ours_is_safe_and_opens_in_excel(tmp_path):
    """Does what we write carry the mark Excel needs, and a row no formula?"""
    path = write_csv(tmp_path / "x.csv", ["who", "n"], [["=1", -2.0], ["Zoë, the 2nd", None]])
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    assert cells(path) == [["who", "n"], ["'=1", "-2.0"], ["Zoë, the 2nd", ""]]
    assert safe_row({"who": "@x", "n": 1}) == {"who": "'@x", "n": 1}


@pytest.mark.filterwarnings("ignore:Object of type")
def test_nbgraders_export_is_the_same_but_safe(tmp_path):
    """Does the export equal nbgrader's own, column for column, except that no name runs or breaks a row?"""
    load_config(ROOT)  # finds the program that makes a gradebook
    with Gradebook(f"sqlite:///{tmp_path}/g.db") as gradebook:
        gradebook.add_assignment("phase", duedate=parse_utc("2026-01-01 12:00"))
        gradebook.add_notebook("phase", "phase")
        gradebook.add_grade_cell("sdpa", "phase", "phase", max_score=4, cell_type="code")
        gradebook.add_student("ada", last_name="Lovelace")
        gradebook.add_student("bo")
        submission = gradebook.add_submission("phase", "ada", timestamp=parse_utc("2026-01-02 12:00"))
        submission.notebooks[0].grades[0].auto_score = 3
        submission.notebooks[0].late_submission_penalty = 0.5
        gradebook.db.commit()
        for plugin, name in ((CsvExportPlugin(), "theirs"), (SafeCsvExportPlugin(), "ours")):
            plugin.to = str(tmp_path / name)
            plugin.export(gradebook)
        assert (tmp_path / "ours").read_text() == (tmp_path / "theirs").read_text()
        gradebook.update_or_create_student("ada", last_name='=HYPERLINK("http://x","y")', first_name="-Ada")
        plugin.assignment, plugin.student = ["phase"], ["ada"]
        plugin.export(gradebook)
    row = cells(tmp_path / "ours")[1]
    assert row[3:6] == ["ada", '\'=HYPERLINK("http://x","y")', "'-Ada"] and row[7:] == ["3.0", "0.5", "2.5", "4.0"]
    assert len(cells(tmp_path / "ours")) == 2
