"""What was graded, handed on: feedback pages, csv, Canvas."""

from pathlib import Path

from nbgrader.api import Gradebook
from nbgrader.converters import GenerateFeedback

from autograde.canvas import SafeCsvExportPlugin, merge
from autograde.course import load_config, phases, run_step
from autograde.record import reason


def autograded(root, names=(), students=()):
    """(student, phase) for every graded submission."""
    found = [(p.parent.parent.name, p.parent.name) for p in Path(root, "autograde", "autograded").glob("*/*/*.ipynb")]
    return chosen(sorted(found), names or phases(root), students)


def chosen(found, names, students):
    """Those of the pairs (student, phase) whose phase is among names, and whose student among students, if any."""
    return [(who, phase) for who, phase in found if phase in names and (not students or who in students)]


def write_feedback(root, student, phase):
    """Write the feedback page of one graded submission. Returns a problem in one sentence, or None."""
    worked, log = run_step(GenerateFeedback, load_config(root), phase, student)
    return None if worked else reason(log)


def export(root, path, names=()):
    """Write the gradebook as csv."""
    config = load_config(root)
    plugin = SafeCsvExportPlugin(config=config)
    plugin.to, plugin.assignment = str(path), list(names)
    with Gradebook(config.CourseDirectory.db_url) as gradebook:
        plugin.export(gradebook)


def unread(root, names=()):
    """One sentence on submissions with written answers that wait for a person; "" if there are none."""
    with Gradebook(load_config(root).CourseDirectory.db_url) as gradebook:
        chosen_ones = [one for one in gradebook.assignments if not names or one.name in names]
        waiting = sum(one.needs_manual_grade for each in chosen_ones for one in each.submissions)
    return f"{waiting} of them wait for you in formgrader: points for written answers are missing" if waiting else ""


def export_to_canvas(root, phase, downloaded, column, path):
    """Fill one column of a gradebook downloaded from Canvas. Returns what was merged; raises CanvasError."""
    with Gradebook(load_config(root).CourseDirectory.db_url) as gradebook:
        submissions = gradebook.assignment_submissions(phase)
        points = {one.student.id: max(0.0, one.score - one.late_submission_penalty) for one in submissions}
        emails = {one.student.id: one.student.email for one in submissions if one.student.email}
        most = gradebook.find_assignment(phase).max_score
    return merge(downloaded, points, column, path, of=most, emails=emails)
