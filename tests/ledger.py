"""What a grading run left behind, in a form in which two runs can be compared; and marks that were made before."""

import json
import re
import shutil
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import nbformat
from sqlalchemy import MetaData, create_engine, select

from autograde import grade, pool
from autograde.course import load_config
from autograde.preprocessors import MarkInSandbox
from tests.sample_course import CAUSAL, PADDING, PHASE, make_course, read, solve, submit

STUDENTS = ("ann", "bob", "cyd", "dan")
LEAVES = "import os\nos._exit(0)"


def small_class(root):
    """A course with one right, one half right, one sabotaging and one unreadable submission; nothing graded yet."""
    root = make_course(root)
    submit(root, "ann", solve(read(root), causal_mask=CAUSAL, padding_mask=PADDING), timestamp="2026-03-02 18:00")
    submit(root, "bob", solve(read(root), causal_mask=CAUSAL))
    notebook = solve(read(root), causal_mask=CAUSAL)
    notebook.cells.append(nbformat.v4.new_code_cell(LEAVES))
    submit(root, "cyd", notebook)
    submit(root, "dan", "{")
    grade.register_all(root, [PHASE], "2026-03-01 18:00")
    return root


def copy_of(root, place):
    """The same course elsewhere."""
    shutil.copytree(root, place)
    config = place / "nbgrader_config.py"
    config.write_text(config.read_text().replace(str(root), str(place)))
    return place


def graded(root, **options):
    """Grade all of it; {student: Result}."""
    with grade.Run(root, **options) as run:
        return {result.student: result for result in run.grade(grade.submissions(root))}


def with_marks(monkeypatch, marks, before=lambda student: None):
    """From here on nothing is run: the marks are these. `before` is called ahead of each."""

    def mark(self, task):
        before(task.student)
        return marks[task.student]

    monkeypatch.setattr(pool.Here, "mark", mark)
    monkeypatch.setattr(MarkInSandbox, "allowed_tier", lambda self: "full")


def gradebook(root):
    """All rows of all tables, without times; what a row refers to stands in place of its id."""
    engine, tables = create_engine(load_config(root).CourseDirectory.db_url), MetaData()
    tables.reflect(engine)
    with engine.connect() as connection:
        rows = {name: connection.execute(select(table)).mappings().all() for name, table in tables.tables.items()}
    engine.dispose()
    whole = {}
    for row in (row for found in rows.values() for row in found if "id" in row):
        whole.setdefault(row["id"], {}).update(row)

    def shown(row):
        return tuple((name, value(name, row[name])) for name in sorted(row) if not isinstance(row[name], datetime))

    def value(name, what):
        if name == "id":
            return None if re.fullmatch("[0-9a-f]{32}", str(what)) else what
        return shown(whole[what]) if name.endswith("_id") and what in whole else what

    return {name: sorted(map(repr, map(shown, found))) for name, found in rows.items()}


def left_behind(root):
    """What has to be equal, however often a run was stopped."""
    folder = Path(root, "autograde")
    return {
        "gradebook": gradebook(root),
        "journal": sorted(line["student"] for line in journal_lines(root)),
        "notebooks": {path.parent.parent.name: path.read_text() for path in folder.glob("autograded/*/*/*.ipynb")},
        "half done": [path.name for path in folder.glob(".recording-*")],
    }


def journal_lines(root):
    """The entries of the journal; lines that a crash has cut off are left out."""
    found = []
    for line in Path(root, "autograde", "journal.jsonl").read_bytes().splitlines():
        with suppress(ValueError):
            found.append(json.loads(line))
    return found
