"""Where a course is and how it is configured: the root's nbgrader_config.py, read as nbgrader reads it."""

import logging
import os
from glob import escape, glob
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


class _OfOne:
    """A step of nbgrader for one student, who may be called [1]: nbgrader takes all names for patterns."""

    def init_notebooks(self):
        place = self._format_source(self.coursedir.assignment_id, self.coursedir.student_id)
        self.assignments, self.notebooks = {place: glob(os.path.join(escape(place), "*.ipynb"))}, []


def run_step(converter_class, config, assignment, student=None):
    """Run one step of nbgrader quietly, for one student or all. Returns (worked, log)."""
    directory = course_directory(config)
    directory.assignment_id = assignment
    if student is not None:
        directory.student_id = student
        converter_class = type(converter_class.__name__, (_OfOne, converter_class), {})
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
