"""How a class is doing: every result as csv, and per exercise who is stuck where and on which mistake."""

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from nbgrader.api import (
    Assignment,
    BaseCell,
    Grade,
    Gradebook,
    GradeCell,
    SubmittedAssignment,
    SubmittedNotebook,
)
from rich.table import Table
from rich.text import Text

from autograde.canvas import write_csv
from autograde.course import load_config
from autograde.page import fill, page, plain

MARK = {"✓": True, "✗": False}
STATUS = ("solved", "partly", "not solved", "blank", "waiting")
HEADS = ("exercise", *STATUS, "median", "", "most common mistakes")
RESULTS = ("student", "exercise", "points", "of", "status", "aspects", "likely mistake", "hours late", "waiting")
EXERCISES = ("exercise", "of", *STATUS, "median", "stuck", "stopped here", "most common mistakes")
STOPPED = 0.2  # "stuck here" if this share of the class solved nothing from here on …
UNSOLVED = 0.5  # … or if more than this share of those who tried it did not get it done

REPORT = """\
<h1>{{ phase }}: how the class is doing</h1>
<p class="wb-soft">{{ students|length }} graded submissions{% if late %}, {{ late|length }} of them late:
{{ late|join(", ") }}{% endif %}.</p>
<div class="wb-wide"><table>
<thead><tr><th scope="col">exercise</th>{% for name in status %}<th scope="col" class="wb-n">{{ name }}</th>{% endfor %}
<th scope="col" class="wb-n">median</th><th scope="col">most common mistakes</th></tr></thead>
<tbody>
{% for one in found %}
<tr><td><a href="#{{ one.exercise }}">{{ one.exercise }}</a>
{% if one.stuck %}<br><span class="wb-bad">▲ stuck here</span>{% endif %}</td>
{% for name in status %}<td class="wb-n">{{ one.students[name]|length or "·" }}</td>{% endfor %}
<td class="wb-n">{% if one.median is not none %}{{ "%.3g of %g"|format(one.median, one.of) }}{% endif %}</td>
<td>{% for text, n in one.mistakes[:3] %}<div>{{ n }} × {{ text }}</div>{% endfor %}</td></tr>
{% endfor %}
</tbody></table></div>
<p class="wb-soft">“Stuck here”: a fifth of the class solved nothing from this exercise on, or more than half of those
who tried it did not get it done. A mistake is named only where it reproduces what the submission computed.</p>
{% if events %}
<h2>What the grader noticed</h2>
<table><tbody>{% for event in events %}
<tr><td>{{ event.student }}</td><td>{{ event.exercise }}</td><td>{{ event.what }}</td>
<td class="wb-soft">{{ event.time }}</td></tr>
{% endfor %}</tbody></table>
{% endif %}
<h2>Who is where</h2>
{% for one in found %}
<h3 id="{{ one.exercise }}">{{ one.exercise }}</h3>
{% if one.stopped %}<p><b>solved nothing from here on:</b> {{ one.stopped|join(", ") }}</p>{% endif %}
{% for name in status if one.students[name] and name != "solved" %}
<p><b>{{ name }}:</b> {{ one.students[name]|join(", ") }}</p>
{% endfor %}
{% if one.mistakes %}<ul>{% for text, n in one.mistakes %}<li>{{ n }} × {{ text }}</li>{% endfor %}</ul>{% endif %}
{% endfor %}
"""


@dataclass(frozen=True)
class Said:
    """What a check cell's output says."""

    aspects: dict = field(default_factory=dict)  # {"shape": True, "values": False}
    likely: str = ""  # the diagnosed mistake
    line: str = ""  # the one line that matters most; empty if all is well
    blank: bool = False  # a stub nobody has touched


@dataclass(frozen=True)
class Outcome:
    """One student's result in one exercise."""

    student: str
    exercise: str
    written: bool  # an answer in words, read by a person
    points: float
    of: float
    waiting: bool  # nobody has read it yet
    seconds_late: float
    said: Said

    @property
    def status(self):
        if self.waiting:
            return "waiting"
        if self.points >= self.of:
            return "solved"
        return "partly" if self.points > 0 else "blank" if self.said.blank else "not solved"


@dataclass
class Summary:
    """One exercise, over the whole class."""

    exercise: str
    of: float
    students: dict  # status -> names
    median: float | None
    mistakes: list  # [(text, how many), …], the most common first
    stopped: list  # students who solved nothing from here on
    stuck: bool


def read_check(outputs):
    """What the outputs of a check cell say, as `Said`."""
    text = "\n".join(_text(output) for output in outputs)
    lines = [line for line in text.splitlines() if line.strip()]
    tail = next((line for line in reversed(lines) if re.match(r"✓ | {2}so far ", line)), "")
    aspects = {name: MARK[mark] for name, mark in re.findall(r"(\w+) ([✓✗])(?= |$)", tail.rpartition(" · ")[2])}
    told = {
        key: value for key, value in re.findall(r"^ {2}(expected|got|differs|likely|hint) +(.*)$", text, re.MULTILINE)
    }
    if tail.startswith("✓") and all(aspects.values()):
        return Said(aspects)
    first = lines[0].removeprefix("✗ ").partition(" · ")[2] or lines[0] if lines else "no result"
    blank = first.strip() == "not implemented yet" or "NotImplementedError" in first
    detail = told.get("got") or (f"{told['differs']} differ" if "differs" in told else "")
    line = told.get("likely") or (f"{first}: {detail}" if detail else first)
    return Said(aspects, plain(told.get("likely", "")), plain(line), blank)


def _text(output):
    if output.get("output_type") == "error":
        return f"{output.get('ename')}: {output.get('evalue')}"
    return "".join(output["text"]) if output.get("output_type") == "stream" else ""


def notebooks(root, phase):
    """(student, notebook as plain data) for every graded submission of a phase."""
    for path in sorted(Path(root, "autograde", "autograded").glob(f"*/{phase}/{phase}.ipynb")):
        yield path.parent.parent.name, json.loads(path.read_text(encoding="utf-8"))


def released(root, phase):
    """The notebook that was handed out, as plain data; without cells where there is none."""
    path = Path(root, "notebooks", phase, f"{phase}.ipynb")
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"cells": []}


def source(cell):
    return "".join(cell["source"])


def grade_id(cell):
    """The name a cell has for nbgrader, or an empty text."""
    return cell.get("metadata", {}).get("nbgrader", {}).get("grade_id", "")


def outcomes(root, phase):
    """Every Outcome of a phase: exercises in the order of the notebook, students in order of name."""
    outputs, order = {}, [grade_id(cell) for cell in released(root, phase)["cells"]]
    for student, notebook in notebooks(root, phase):
        outputs |= {(student, grade_id(cell)): cell.get("outputs", []) for cell in notebook["cells"]}
        order += [grade_id(cell) for cell in notebook["cells"] if grade_id(cell) not in order]
    with Gradebook(load_config(root).CourseDirectory.db_url) as gradebook:
        late = {one.student_id: one.total_seconds_late for one in gradebook.assignment_submissions(phase)}
        rows = _grades(gradebook, phase)
    found = []
    for student, name, kind, score, most, waits in rows:
        written, blank = kind == "markdown", not waits and not score
        said = Said(blank=blank) if written else read_check(outputs.get((student, name), []))
        seconds = late.get(student, 0)
        found.append(Outcome(student, name, written, score or 0.0, most, bool(waits), seconds, said))
    place = {name: number for number, name in enumerate(order)}
    return sorted(found, key=lambda one: (place.get(one.exercise, len(order)), one.student))


def _grades(gradebook, phase):
    """One row per student and graded cell, in one query."""
    return (
        gradebook.db.query(
            SubmittedAssignment.student_id,
            BaseCell.name,
            GradeCell.cell_type,
            Grade.score,
            GradeCell.max_score,
            Grade.needs_manual_grade,
        )
        .select_from(Grade)
        .join(SubmittedNotebook, Grade.notebook_id == SubmittedNotebook.id)
        .join(SubmittedAssignment, SubmittedNotebook.assignment_id == SubmittedAssignment.id)
        .join(Assignment, SubmittedAssignment.assignment_id == Assignment.id)
        .join(GradeCell, Grade.cell_id == GradeCell.id)
        .filter(Assignment.name == phase)
        .all()
    )


def summaries(results):
    """One Summary per exercise, in the order of the results."""
    stopped, per = _stopped(results), {}
    for result in results:
        per.setdefault(result.exercise, []).append(result)
    return [_summary(name, ones, stopped[name]) for name, ones in per.items()]


def _summary(name, ones, stopped):
    students = {status: [one.student for one in ones if one.status == status] for status in STATUS}
    tried = [one for one in ones if one.status in ("solved", "partly", "not solved")]
    unsolved = len(tried) >= 3 and len(students["solved"]) < len(tried) * (1 - UNSOLVED)
    stuck = not ones[0].written and (unsolved or len(stopped) >= max(2, STOPPED * len(ones)))
    points = [one.points for one in ones if not one.waiting]
    mistakes = Counter(one.said.likely for one in ones if one.said.likely).most_common()
    return Summary(name, ones[0].of, students, median(points) if points else None, mistakes, stopped, stuck)


def _stopped(results):
    """exercise -> students for whom it is the first one after the last that they solved; written answers aside."""
    stopped = {result.exercise: [] for result in results}
    coded = [result for result in results if not result.written]
    last = {result.student: place for place, result in enumerate(coded) if result.status == "solved"}
    seen = set()
    for place, result in enumerate(coded):
        if place > last.get(result.student, -1) and result.student not in seen:
            seen.add(result.student)
            stopped[result.exercise].append(result.student)
    return stopped


def audit(root, phase):
    """What the grader found suspicious in this phase: the lines of audit.jsonl, those that can be read."""
    path = Path(root, "autograde", "audit.jsonl")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    events = []
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("phase") == phase:
            events.append({key: plain(event.get(key) or "") for key in ("time", "student", "exercise", "what")})
    return events


def class_report(root, phase, out_dir):
    """Write <phase>-results.csv, <phase>-exercises.csv and <phase>-report.html.

    Returns (paths, renderables): what was written, and what to show in a terminal.
    """
    results = outcomes(root, phase)
    found = summaries(results)
    out_dir = Path(out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    paths = [
        write_csv(out_dir / f"{phase}-results.csv", RESULTS, map(_result_row, results)),
        write_csv(out_dir / f"{phase}-exercises.csv", EXERCISES, map(_exercise_row, found)),
        out_dir / f"{phase}-report.html",
    ]
    late = sorted({one.student for one in results if one.seconds_late})
    body = fill(
        REPORT, phase=phase, found=found, late=late, events=audit(root, phase), status=STATUS,
        students=sorted({one.student for one in results}),
    )  # fmt: skip
    paths[-1].write_text(page(f"{phase}: how the class is doing", body), encoding="utf-8")
    return paths, [_table(phase, found)]


def _result_row(one):
    aspects = " ".join(f"{name} {'✓' if ok else '✗'}" for name, ok in one.said.aspects.items())
    hours, waiting = round(one.seconds_late / 3600, 2), "yes" if one.waiting else ""
    return one.student, one.exercise, one.points, one.of, one.status, aspects, one.said.likely, hours, waiting


def _exercise_row(one):
    counts = [len(one.students[status]) for status in STATUS]
    mistakes = " / ".join(f"{text} ({n})" for text, n in one.mistakes[:3])
    stuck = "stuck here" if one.stuck else ""
    return one.exercise, one.of, *counts, one.median, stuck, " ".join(one.stopped), mistakes


def _table(phase, found):
    """The per-exercise table for a terminal."""
    table = Table(*HEADS, title=f"{phase}: who is stuck where")
    for one in found:
        counts = [str(len(one.students[status]) or "") for status in STATUS]
        middle = "" if one.median is None else f"{one.median:.3g} of {one.of:g}"
        stuck = f"▲ stuck here{f': {len(one.stopped)} stopped' if one.stopped else ''}" if one.stuck else ""
        mistakes = "\n".join(f"{n} × {text}" for text, n in one.mistakes[:3])
        cells = (plain(one.exercise), *counts, middle, stuck, mistakes)
        table.add_row(*map(Text, cells), style="bold" if one.stuck else None)
    return table
