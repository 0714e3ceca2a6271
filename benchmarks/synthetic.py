"""A synthetic class for benchmarks: honest submissions, the same ones each time.

All right, half of it done, some slips (mutants of the solutions, by which the checks are tested, too), and blank, in
turn. The course around them is a copy: its gradebook and its folders are its own.
"""

import shutil

import nbformat
from nbgrader.api import Gradebook
from nbgrader.utils import is_grade, is_solution

from autograde.course import ROOT

PHASE = "phase2_attention"
KINDS = ("full", "half", "slips", "blank")
SLIPS = 4  # exercises with a slip in each such submission

CONFIG = """\
c = get_config()
{load}
c.CourseDirectory.root = {root!r}
c.CourseDirectory.db_url = "sqlite:///{root}/autograde/gradebook.db"
c.Exchange.root = {root!r} + "/autograde"
"""
STOCK = """\
c.CourseDirectory.source_directory, c.CourseDirectory.release_directory = "solutions", "notebooks"
for step in ("submitted", "autograded", "feedback", "solution", "source_with_tests"):
    c.CourseDirectory[step + "_directory"] = "autograde/" + step
c.CourseDirectory.ignore = [".ipynb_checkpoints", "*.pyc", "__pycache__", "feedback", "*.py", "*.md"]
c.Execute.iopub_timeout = 30  # with the default of 4 s honest work is lost on a busy machine
"""


def notebook_of(kind, number, phase=PHASE):
    """The notebook that student `number` hands in."""
    from autograde.mutants import mutants

    solved = nbformat.read(ROOT / "solutions" / phase / f"{phase}.ipynb", as_version=4)
    answers = {cell.metadata.nbgrader.grade_id: cell.source for cell in solved.cells if is_solution(cell)}
    notebook = nbformat.read(ROOT / "notebooks" / phase / f"{phase}.ipynb", as_version=4)
    names = [cell.metadata.nbgrader.grade_id for cell in notebook.cells if is_solution(cell)]
    chosen = {"full": names, "slips": names, "half": names[number % 2 :: 2], "blank": []}[kind]
    code = [name for name in names if name.endswith("-build")]
    slips = [code[(number + step * 3) % len(code)] for step in range(SLIPS)] if kind == "slips" else ()
    for cell in notebook.cells:
        if not is_solution(cell) or cell.metadata.nbgrader.grade_id not in chosen:
            continue
        cell.source = answers[cell.metadata.nbgrader.grade_id]
        if cell.metadata.nbgrader.grade_id in slips:
            wrong = mutants(cell.source)
            cell.source = wrong[7 * number % len(wrong)].source
    return notebook


def is_check(cell):
    """Is this a cell whose points a check decides?"""
    return cell.cell_type == "code" and is_grade(cell) and not is_solution(cell)


def hand_in(root, count, phase=PHASE, kinds=KINDS):
    """Lay out a course with `count` submissions, recorded in a gradebook. Returns the students' names, in order."""
    from autograde.grade import register_all

    (root / "autograde").mkdir(parents=True)
    shutil.copytree(ROOT / "solutions" / phase, root / "solutions" / phase)
    configure(root)
    register_all(root, [phase])
    students = [f"student-{number:04}" for number in range(count)]
    for number, student in enumerate(students):
        path = handed_in(root, student, phase)
        path.parent.mkdir(parents=True)
        nbformat.write(notebook_of(kinds[number % len(kinds)], number, phase), path)
    return students


def handed_in(root, student, phase=PHASE):
    """Where a student's notebook lies."""
    return root / "autograde" / "submitted" / student / phase / f"{phase}.ipynb"


def configure(root, stock=False):
    """Write the course's configuration: ours, or nbgrader's defaults."""
    load = STOCK if stock else f"load_subconfig({str(ROOT / 'autograde' / 'nbgrader_config.py')!r})"
    (root / "nbgrader_config.py").write_text(CONFIG.format(load=load, root=str(root)))


def copy_of(template, name, stock=False):
    """A course like the template, with a gradebook of its own."""
    root = template.with_name(name)
    shutil.copytree(template, root)
    configure(root, stock)
    return root


def scores(root, phase=PHASE):
    """{student: {exercise: points}} of all checks that the gradebook knows of."""
    with Gradebook(f"sqlite:///{root}/autograde/gradebook.db") as book:
        found = {}
        for submission in book.assignment_submissions(phase):
            grades = submission.notebooks[0].grades
            checks = {grade.name: grade.auto_score for grade in grades if grade.cell.cell_type == "code"}
            found[submission.student.id] = checks
        return found
