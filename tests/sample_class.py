"""A graded class without running anything: notebooks with outputs, and a gradebook that holds the same scores."""

from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat.v4 import new_output
from nbgrader.api import Gradebook
from nbgrader.utils import is_grade, is_solution, parse_utc

from autograde.course import load_config
from tests.sample_course import PHASE, cell, read


@dataclass
class Work:
    """One submission: the notebook, and what its graded cells earned."""

    notebook: nbformat.NotebookNode
    points: dict = field(default_factory=dict)  # check or written answer -> points; None waits for a reader
    reports: dict = field(default_factory=dict)  # check -> what it said
    comments: dict = field(default_factory=dict)  # cell -> what the grader says
    handed_in: str | None = None
    penalty: float = 0


def record(root, works, phase=PHASE, due=None):
    """Write {student: Work} as `autograde grade` leaves it: autograded notebooks and rows of the gradebook."""
    with Gradebook(load_config(root).CourseDirectory.db_url) as gradebook:
        _assignment(gradebook, read(root, phase=phase), phase, due)
        for student, work in works.items():
            _write(root, student, work, phase)
            gradebook.update_or_create_student(student)
            time = parse_utc(work.handed_in) if work.handed_in else None
            submission = gradebook.add_submission(phase, student, **({"timestamp": time} if time else {}))
            notebook = submission.notebooks[0]
            notebook.late_submission_penalty = work.penalty
            for grade in notebook.grades:
                points = work.points.get(grade.name, 0)
                grade.auto_score, grade.needs_manual_grade = points, points is None
            for comment in notebook.comments:
                comment.manual_comment = work.comments.get(comment.name)
        gradebook.db.commit()
    return root


def _assignment(gradebook, notebook, phase, due):
    gradebook.add_assignment(phase, **({"duedate": parse_utc(due)} if due else {}))
    gradebook.add_notebook(phase, phase)
    for one in notebook.cells:
        name = one.metadata.get("nbgrader", {}).get("grade_id")
        if is_grade(one):
            most = one.metadata.nbgrader.points
            gradebook.add_grade_cell(name, phase, phase, max_score=most, cell_type=one.cell_type)
        if is_solution(one):
            gradebook.add_solution_cell(name, phase, phase)
        if name:
            gradebook.add_source_cell(name, phase, phase, source=one.source, cell_type=one.cell_type)


def _write(root, student, work, phase):
    for name, text in work.reports.items():
        points = work.points.get(name, 0)
        data = {"text/plain": repr(float(points)), "text/html": f"{points:g} points"}
        cell(work.notebook, name).outputs = [
            new_output("stream", name="stdout", text=text + "\n"),
            new_output("execute_result", data=data),
        ]
    folder = Path(root, "autograde", "autograded", student, phase)
    folder.mkdir(parents=True)
    nbformat.write(work.notebook, folder / f"{phase}.ipynb")
