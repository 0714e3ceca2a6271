"""The exercises as the release has them: section, minutes, points, path and blank cell of each, read from notebooks/.

Nothing is imported for it, so the list is there at once, without torch.
"""

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path

from utils.workspace import PHASES, WorkspaceError, course_root

TITLE = re.compile(r"^### Exercise (\d+\.\d+)\w* · `(\w+)` · (core|more|stretch) · about (\d+) min", re.MULTILINE)
HEADING = re.compile(r"^## (\d+\.\d+) (.+)$", re.MULTILINE)
POINTS = re.compile(r"\bpoints=([\d.]+)")


@dataclass(frozen=True)
class Task:
    """One exercise of the release, in the order of its notebook."""

    name: str
    phase: str  # the folder, "phase2_attention"
    section: str  # "2.3"
    path: str  # "core", "more" or "stretch"
    minutes: int
    points: float
    stub: str  # the blank cell

    @property
    def number(self):
        """The phase, 1 to 7."""
        return number_of(self.phase)


def number_of(phase):
    """phase2_attention -> 2"""
    return list(PHASES).index(phase) + 1


def syllabus(root=None):
    """{name: Task} of every exercise that the release holds, in the order of the course."""
    try:
        folder = Path(root or course_root()) / "notebooks"
    except WorkspaceError:
        return {}
    tasks = {}
    for phase in PHASES:
        path = folder / phase / f"{phase}.ipynb"
        if path.is_file():
            tasks |= _tasks(path, path.stat().st_mtime_ns)
    return tasks


def headings(phase, root=None):
    """{"2.3": the title of that section} of a phase, as its notebook in the release has it."""
    try:
        path = Path(root or course_root()) / "notebooks" / phase / f"{phase}.ipynb"
        cells = json.loads(path.read_text(encoding="utf8"))["cells"]
    except (WorkspaceError, OSError):
        return {}
    return {section: title for cell in cells for section, title in HEADING.findall("".join(cell["source"]))}


@functools.lru_cache(maxsize=32)
def _tasks(path, changed):
    cells = json.loads(path.read_text(encoding="utf8"))["cells"]
    text = {cell.get("metadata", {}).get("nbgrader", {}).get("grade_id"): "".join(cell["source"]) for cell in cells}
    found = {}
    for cell in cells:
        for section, name, track, minutes in TITLE.findall("".join(cell["source"])):
            points = POINTS.search(text.get(name, ""))
            worth = float(points[1]) if points else 1.0
            stub = text.get(f"{name}-build", "")
            found[name] = Task(name, path.stem, section, track, int(minutes), worth, stub)
    return found
