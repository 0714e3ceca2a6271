"""How nbgrader runs this course. Each setting that departs from the default says why."""

import os
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # the preprocessors below are named by module
    sys.path.insert(0, str(ROOT))

# nbgrader starts the program `alembic` by name to make a gradebook: find it although .venv is not activated.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])

c = get_config()  # noqa: F821

# Where things lie. A release is always notebooks/<phase>/<phase>.ipynb.
c.CourseDirectory.root = str(ROOT)
c.CourseDirectory.db_url = f"sqlite:///{ROOT / 'autograde' / 'gradebook.db'}"
c.CourseDirectory.course_id = "default_course"  # a course's row that exists: PostgreSQL insists, nbgrader's "" has none
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "notebooks"
for step in ("submitted", "autograded", "feedback", "solution", "source_with_tests"):
    c.CourseDirectory[f"{step}_directory"] = f"autograde/{step}"

# nbgrader copies every other file of an assignment to the learner: the .py source holds the solutions.
c.CourseDirectory.ignore = [".*", "__pycache__", "feedback", "*.py", "*.pyc", "*.md", "*.part"]

# SQLAlchemy warns of the order in which nbgrader 0.9.6 records a new submission; what is recorded is right.
warnings.filterwarnings("ignore", message="Object of type <Submitted", module="nbgrader.api")

# We hand work out and in through folders. A place that exists keeps Lab from logging CRITICAL about the exchange.
c.Exchange.root = str(ROOT / "autograde")

# Building: nbgrader's own steps, then our seal, by which `autograde build` knows its own output again.
c.GenerateAssignment.preprocessors = [
    "nbgrader.preprocessors.LockCells",
    "nbgrader.preprocessors.ClearSolutions",
    "nbgrader.preprocessors.ClearOutput",
    "nbgrader.preprocessors.CheckCellMetadata",
    "nbgrader.preprocessors.ComputeChecksums",
    "nbgrader.preprocessors.SaveCells",
    "autograde.seal.PutSeal",
]

# Grading, before anything runs: cells get back the metadata, place and text they were handed out with. (Checking that
# metadata for its form, as nbgrader does, has nothing left to find, and took a third of our time.)
c.Autograde.sanitize_preprocessors = [
    "nbgrader.preprocessors.ClearOutput",
    "autograde.preprocessors.RestoreCells",
    "nbgrader.preprocessors.OverwriteKernelspec",
    "nbgrader.preprocessors.OverwriteCells",
]
c.OverwriteCells.add_missing_cells = True

# Grading itself: cells run in a sandbox, and what they claim is judged outside of it.
c.Autograde.autograde_preprocessors = [
    "autograde.preprocessors.MarkInSandbox",
    "nbgrader.preprocessors.SaveAutoGrades",
    "nbgrader.preprocessors.AssignLatePenalties",
]
c.MarkInSandbox.tier = "full"  # a lower one ("partial", "none") has to be asked for: see `autograde doctor`
c.MarkInSandbox.cell_seconds = 60.0  # ours take under 10
c.MarkInSandbox.notebook_seconds = 600.0

# Late work is shown as late and costs nothing. "zero" takes all points; a class of your own can do something between:
# https://nbgrader.readthedocs.io/en/stable/plugins/late-plugin.html
c.LateSubmissionPlugin.penalty_method = "none"

# Feedback and formgrader show what others wrote: no script, no page of theirs, no broken picture may do harm.
c.GenerateFeedback.exporter_class = "autograde.feedback.FeedbackExporter"
c.HTMLExporter.sanitize_html = True
c.HTMLExporter.filters = {
    "clean_html": "autograde.feedback.clean_html",
    "markdown2html": "autograde.feedback.markdown2html",
}

# Grades may hold what learners wrote, such as names: no cell of a csv may make a spreadsheet calculate.
c.ExportApp.plugin_class = "autograde.canvas.SafeCsvExportPlugin"

# What is handed in is looked at before nbgrader opens or copies anything: only regular files, only what is a notebook.
from autograde.intake import install  # noqa: E402  needs the path that is set above

install()
