"""Where a course is and how it is configured: the root's nbgrader_config.py, read as nbgrader reads it."""

import logging
from pathlib import Path

from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import capture_log
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

ROOT = Path(__file__).resolve().parents[1]


def here():
    """The course that the current folder lies in; this checkout if there is none."""
    around = (Path.cwd(), *Path.cwd().parents)
    return next((folder for folder in around if (folder / "nbgrader_config.py").is_file()), ROOT)


def load_config(course, **changes):
    """The configuration of a course directory. Keywords replace fields of CourseDirectory."""
    config = Config(PyFileConfigLoader("nbgrader_config.py", path=str(course)).load_config())
    for name, value in changes.items():
        config.CourseDirectory[name] = str(value)
    return config


def course_directory(config):
    """nbgrader's own idea of where everything lies."""
    return CourseDirectory(config=config)


def run_step(converter_class, config, assignment, student="*"):
    """Run one step of nbgrader quietly. Returns (worked, log)."""
    directory = course_directory(config)
    directory.assignment_id, directory.student_id = assignment, student
    converter = converter_class(coursedir=directory, config=config)
    converter.force = True
    converter.log.setLevel(logging.INFO)
    result = capture_log(converter)
    if result.get("error", "").rstrip().endswith("KeyboardInterrupt"):  # capture_log keeps even that to itself
        raise KeyboardInterrupt
    return result["success"], result.get("log") or result.get("error", "")


def phases(root):
    """Every graded phase that has an authored source, in order."""
    return sorted(path.parent.name for path in Path(root).glob("solutions/*/*.py") if path.stem == path.parent.name)


def pages(root):
    """Every flat notebook that has an authored source, in order."""
    return sorted(path.stem for path in Path(root).glob("solutions/pages/*.py"))
