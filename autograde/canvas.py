"""Grades as csv, for people and for Canvas: nothing in a file of ours makes a spreadsheet calculate."""

import csv
import math
import os
import re
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path

from nbgrader.plugins import CsvExportPlugin

FORMULA = "=+-@＝＋－＠"  # what spreadsheets take for the beginning of a formula, full-width forms too
NUMBER = re.compile(r"[-+]?\d[\d.,]*(?:[eE][-+]?\d+)?%?")
COLUMNS = ("assignment duedate timestamp student_id last_name first_name email raw_score late_submission_penalty "
           "score max_score").split()  # fmt: skip


def safe_row(row):
    """The cells of one row (a list, or a dict whose keys are ours) so that no spreadsheet runs any of them."""
    if isinstance(row, dict):
        return {key: safe_cell(value) for key, value in row.items()}
    return [safe_cell(value) for value in row]


def safe_cell(value):
    """Put an apostrophe before what would be a formula. Numbers stay numbers, also "-1.5" as text.

    A cell may be cut in two by a spreadsheet that expects another separator, so each of its parts is looked at.
    """
    if value is None or isinstance(value, int | float):
        return value
    text = str(value)
    if text == "-" or NUMBER.fullmatch(text.strip()):
        return value
    safe = "".join("'" + part if _is_formula(part) else part for part in re.split(r"([;,\t\r\n])", text))
    first = text[:1] in ("\t", "\r", "\n") or _is_formula(text)
    return "'" + safe if first and safe[0] != "'" else safe


def _is_formula(part):
    """Does it begin like one? Leading quotes, blanks, control and format characters do not count."""
    start = next((i for i, c in enumerate(part) if c != '"' and unicodedata.category(c)[0] not in "CZ"), len(part))
    return part[start : start + 1] in set(FORMULA) and not NUMBER.fullmatch(part[start:].rstrip())


def write_csv(path, header, rows):
    """Write a csv of ours: UTF-8 that Excel recognises, every cell safe."""
    with open(path, "w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(safe_row(row) for row in rows)
    return Path(path)


class SafeCsvExportPlugin(CsvExportPlugin):
    """nbgrader's csv, column for column, with quoted cells that no spreadsheet runs.

    nbgrader's own writes a name such as `=HYPERLINK(…)`, or one with a comma, as it is.
    """

    def export(self, gradebook):
        path = self.to or "grades.csv"
        self.log.info("Exporting grades to %s", path)
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            for assignment in gradebook.assignments:
                if not self.assignment or assignment.name in map(str, self.assignment):
                    writer.writerows(safe_row(row) for row in self._rows(gradebook, assignment))

    def _rows(self, gradebook, assignment):
        submitted = {submission.student_id: submission for submission in assignment.submissions}
        for student in gradebook.students:
            if self.student and student.id not in map(str, self.student):
                continue
            submission, scores = submitted.get(student.id), (None, 0.0, 0.0, 0.0)
            if submission:
                raw, penalty = submission.score, submission.late_submission_penalty
                scores = (submission.timestamp, raw, penalty, max(0.0, raw - (penalty or 0.0)))
            yield (assignment.name, assignment.duedate, scores[0], student.id, student.last_name, student.first_name,
                   student.email, *scores[1:], assignment.max_score)  # fmt: skip


class CanvasError(ValueError):
    """The downloaded file, or the wanted column, is not what we need; the message says what to do."""


@dataclass
class Merged:
    """What a merge did. The last four say what it left alone."""

    path: Path
    column: str
    written: dict = field(default_factory=dict)  # student -> what now stands in the cell
    not_in_canvas: list = field(default_factory=list)  # students of ours whom Canvas does not list
    without_grade: list = field(default_factory=list)  # people of Canvas for whom we have none
    left_alone: list = field(default_factory=list)  # sentences: excused, not assigned, or not to be told apart
    remarks: list = field(default_factory=list)

    def lines(self):
        """What an instructor should read, one sentence each."""
        yield f"{len(self.written)} grades written to {self.path}, column {self.column}"
        if self.not_in_canvas:
            yield f"graded by us, but not in Canvas: {', '.join(self.not_in_canvas)}"
        if self.without_grade:
            yield f"in Canvas, but without a grade of ours: {', '.join(self.without_grade)}"
        yield from self.left_alone
        yield from self.remarks


def merge(downloaded, grades, column, out, of=None, emails=None):
    """Put grades {student: points} into one column of a gradebook downloaded from Canvas.

    downloaded: the csv of "Export Entire Gradebook"; column: its header, the assignment's name, or its Canvas number;
    of: our maximum, compared with Canvas' own; emails: {student: address}, where names of folders say too little.
    Every other cell keeps its bytes, unless a spreadsheet would run it.
    """
    downloaded, out = Path(downloaded), Path(out)
    if out.exists() and out.resolve() == downloaded.resolve():
        raise CanvasError(f"{out.name} is the downloaded file itself: choose another name for the result")
    sheet = _Sheet(downloaded)
    place = sheet.find(column)
    merged = Merged(out, sheet.header[place])
    rows = _matched(sheet, grades, emails or {}, merged)
    for student, row in rows.items():
        _put(sheet, row, place, student, grades[student], merged)
    merged.without_grade = [sheet.person(row) for row in sheet.people if row not in rows.values()]
    if of is not None:
        _compare_maximum(sheet.value(sheet.possible, place), of, merged)
    changed = sheet.neutralise()
    if changed:
        merged.remarks.append(
            f"{changed} cell(s) of the download looked like a formula: an apostrophe now stands first"
        )
    part = out.with_name(out.name + ".part")
    part.write_bytes(sheet.text().encode("utf-8"))
    os.replace(part, out)
    return merged


class _Sheet:
    """A csv whose cells are kept as they were written: quotes, line ends, byte-order mark and all."""

    def __init__(self, path):
        try:
            text = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            raise CanvasError(f"{path.name} is not UTF-8: download it again, and do not save it in between") from None
        self.mark = "\ufeff" if text.startswith("\ufeff") else ""
        text = text.removeprefix("\ufeff")
        for self.separator in ",;":
            self.rows, self.ends = _cells(text, self.separator, path.name)
            self.header = [_value(raw) for raw in self.rows[0]] if self.rows else []
            if {"ID", "Section"} <= set(self.header):
                break
        else:
            raise CanvasError(
                f"{path.name} is not a gradebook of Canvas: its first line needs the columns ID and Section"
            )
        self.possible = next((i for i in range(len(self.rows)) if "Points Possible" in self.value(i, 0)), None)
        if self.possible is None:
            raise CanvasError(f"{path.name} has no line “Points Possible”: export the entire gradebook from Canvas")
        after = range(self.possible + 1, len(self.rows))
        self.people = [row for row in after if self._is_person(row)]
        self.decimal = "," if any(self._has_comma(row) for row in range(self.possible, len(self.rows))) else "."

    def _is_person(self, row):
        note = re.compile(r"(Muted|Manual Posting.*)?")  # Canvas' own line about assignments whose grades are not shown
        told = any(not note.fullmatch(self.value(row, place)) for place in range(len(self.header)))
        return told and not self.person(row).startswith("Student, Test")

    def _has_comma(self, row):
        scores = range(self.header.index("Section") + 1, len(self.header))
        return any(re.fullmatch(r"\d+,\d{1,2}", self.value(row, place)) for place in scores)

    def value(self, row, place):
        return _value(self.rows[row][place]).strip() if place < len(self.rows[row]) else ""

    def named(self, row, *names):
        """The first of these columns that is filled in this row."""
        values = (self.value(row, self.header.index(name)) for name in names if name in self.header)
        return next(filter(None, values), "")

    def person(self, row):
        name = self.named(row, "Student") or f"{self.named(row, 'LastName')}, {self.named(row, 'FirstName')}"
        login = self.named(row, "SIS Login ID", "SIS User ID", "ID")
        return f"{name} ({login})" if login else name

    def find(self, column):
        """The place of an assignment's column."""
        first = self.header.index("Section") + 1
        titles = {place: re.fullmatch(r"(.*?)\s*\((\d+)\)", self.header[place], re.DOTALL)
                  for place in range(first, len(self.header))}  # fmt: skip
        open_ = [place for place in titles if self.value(self.possible, place) != "(read only)"]
        wanted = str(column).strip().casefold()
        tests = (
            lambda place: self.header[place].strip().casefold() == wanted,
            lambda place: titles[place] and titles[place][2] == wanted,
            lambda place: titles[place] and titles[place][1].casefold() == wanted,
        )
        for test in tests:
            found = [place for place in open_ if test(place)]
            if len(found) == 1:
                return found[0]
            if found:
                raise CanvasError(
                    f"{len(found)} columns are called {column}: give the number Canvas puts behind the name"
                )
        names = ", ".join(self.header[place] for place in open_ if titles[place])
        raise CanvasError(f"Canvas has no assignment {column} that can be changed; it has {names or 'none'}")

    def put(self, row, place, value):
        cells = self.rows[row]
        cells += [""] * (place + 1 - len(cells))  # a line that was cut short
        quote = self.separator in value or cells[place].startswith('"')
        cells[place] = f'"{value}"' if quote else value

    def neutralise(self):
        """Make the students' cells safe; returns how many had to change."""
        changed = 0
        for row in range(self.possible + 1, len(self.rows)):
            for place, raw in enumerate(self.rows[row]):
                value = _value(raw)
                if safe_cell(value) != value:
                    self.rows[row][place] = '"' + safe_cell(value).replace('"', '""') + '"'
                    changed += 1
        return changed

    def text(self):
        lines = (self.separator.join(row) + end for row, end in zip(self.rows, self.ends, strict=True))
        return self.mark + "".join(lines)


def _cells(text, separator, name):
    """Rows of raw cells, and the line end of each."""
    cell = re.compile(
        rf'((?:"(?:[^"]|"")*+")?[^"{separator}\r\n][^{separator}\r\n]*+|"(?:[^"]|"")*+"|)({separator}|\r?\n|\r|\Z)'
    )
    rows, ends, row, at = [], [], [], 0
    while at < len(text) or row:
        found = cell.match(text, at)
        if not found:
            line = text.count("\n", 0, at) + 1
            raise CanvasError(f"{name} is broken in line {line}: a quotation mark stands alone")
        row.append(found[1])
        at = found.end()
        if found[2] != separator:
            rows.append(row)
            ends.append(found[2])
            row = []
    return rows, ends


def _value(raw):
    quoted = re.match(r'"((?:[^"]|"")*+)"', raw)
    return quoted[1].replace('""', '"') + raw[quoted.end() :] if quoted else raw


def _matched(sheet, grades, emails, merged):
    """student -> row. Whoever could be two people is left alone, and named."""
    exact, short = {}, {}  # a login, number or e-mail -> rows; the same without what follows the @
    for row in sheet.people:
        for name in ("SIS Login ID", "SIS User ID", "ID", "Integration ID"):
            value = sheet.named(row, name).casefold()
            exact.setdefault(value, set()).add(row)
            short.setdefault(value.partition("@")[0], set()).add(row)
    exact.pop("", None), short.pop("", None)
    rows = {}
    for student in grades:
        keys = [str(key).strip().casefold() for key in (student, emails.get(student)) if key]
        tries = [exact.get(key) for key in keys] + [short.get(key.partition("@")[0]) for key in keys]
        found = next(filter(None, tries), set())
        if not found:
            merged.not_in_canvas.append(str(student))
        elif len(found) > 1:
            people = " and ".join(sheet.person(row) for row in sorted(found))
            merged.left_alone.append(f"{student} could be {people}: no grade written")
        else:
            rows[student] = min(found)
    for row in {row for row in rows.values() if list(rows.values()).count(row) > 1}:
        double = [student for student in rows if rows[student] == row]
        merged.left_alone.append(f"{' and '.join(map(str, double))} are both {sheet.person(row)}: no grade written")
        rows = {student: at for student, at in rows.items() if at != row}
    return rows


def _put(sheet, row, place, student, points, merged):
    before = sheet.value(row, place)
    if before.upper() in ("EX", "N/A"):
        why = "excused" if before.upper() == "EX" else "not assigned"
        merged.left_alone.append(f"{sheet.person(row)} is {why} in Canvas: cell left as it was")
        return
    if points is None or not math.isfinite(points):
        merged.left_alone.append(f"{student} has no points that are a number: no grade written")
        return
    text = f"{round(points, 2) + 0.0:.2f}".rstrip("0").rstrip(".").replace(".", sheet.decimal)
    sheet.put(row, place, text)
    merged.written[student] = text


def _compare_maximum(possible, of, merged):
    try:
        differs = not math.isclose(float(possible.replace(",", ".")), of)
    except ValueError:
        differs = True
    if differs:
        merged.remarks.append(f"Canvas counts {possible or 'no'} points for {merged.column}, we count {of:g}")
