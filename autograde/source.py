"""From an authored lesson (jupytext py:percent) to a solution notebook: tags become nbgrader metadata.

Slips are collected and told all at once, with the file and line where they stand.
"""

import ast
import re
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import jupytext
from nbformat import NotebookNode
from nbformat.v4 import new_notebook
from nbgrader.preprocessors import ClearSolutions

KERNEL = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
    },
}
GRADED_TAGS = {"exercise", "check", "written"}
KNOWN_TAGS = GRADED_TAGS | {"reflect", "points", "tags"}
OUR_LABELS = {"demo", "setup"}
JUPYTEXT_KEYS = {"title", "cell_depth", "lines_to_next_cell", "lines_to_end_of_cell_marker"}
LONGEST_CELL = 25  # lines of code a learner reads at one go


class LessonError(Exception):
    """An authored lesson cannot be built; the message lists every slip."""


@dataclass
class Lesson:
    """One authored file, its cells as nbformat nodes, and what is wrong with them."""

    path: Path
    graded: bool = True  # a flat page has no exercises
    cells: list[NotebookNode] = field(default_factory=list)
    tags: list[dict] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    ids: dict[int, str] = field(default_factory=dict)  # cell number -> the id its tag gives it

    def problem(self, number, text):
        self.problems.append(f"{self._place(number)}: {text}")

    def warn(self, number, text):
        self.warnings.append(f"{self._place(number)}: {text}")

    def _place(self, number):
        line = f":{self.lines[number]}" if self.lines else ""
        return f"{'/'.join(self.path.parts[-3:])}{line} (cell {number + 1})"


def solution_notebook(path, graded=True):
    """Read one authored file. Returns the notebook and a list of warnings; raises LessonError."""
    lesson = _read(Path(path), graded)
    for number, tags in enumerate(lesson.tags):
        _apply_tags(lesson, number, tags)
        _check_text(lesson, number, tags)
    _check_pairs(lesson)
    if lesson.problems:
        raise LessonError("\n".join(lesson.problems))
    _set_cell_ids(lesson)
    return new_notebook(cells=lesson.cells, metadata=dict(KERNEL)), lesson.warnings


def _read(path, graded):
    text = path.read_text(encoding="utf-8")
    notebook = jupytext.reads(text, fmt="py:percent")
    lesson = Lesson(path, graded, notebook.cells)
    markers = [n for n, line in enumerate(text.splitlines(), 1) if re.match(r"# %%(?!%)", line)]
    if len(markers) == len(notebook.cells):
        lesson.lines = markers
    for cell in lesson.cells:
        lesson.tags.append({key: value for key, value in cell.metadata.items() if key not in JUPYTEXT_KEYS})
        labels = cell.metadata.get("tags")
        cell.metadata = NotebookNode({"tags": labels} if labels else {})
    return lesson


def _apply_tags(lesson, number, tags):
    unknown = sorted(set(tags) - KNOWN_TAGS) + sorted(set(tags.get("tags", [])) - OUR_LABELS)
    if unknown:
        lesson.problem(number, f"unknown tag {', '.join(unknown)}; we know {', '.join(sorted(KNOWN_TAGS))}")
    kinds = sorted(GRADED_TAGS & set(tags))
    if len(kinds) > 1:
        lesson.problem(number, f"a cell cannot be {' and '.join(kinds)} at once")
    elif kinds and not lesson.graded:
        lesson.problem(number, f"{kinds[0]}= belongs in a phase; a flat page is not graded")
    elif kinds:
        {"exercise": _exercise, "check": _check, "written": _written}[kinds[0]](lesson, number, tags)
    elif "setup" in tags.get("tags", []):
        count = sum(re.fullmatch(r"setup(-\d+)?", name) is not None for name in lesson.ids.values())
        _mark(lesson, number, f"setup-{count + 1}" if count else "setup", locked=True)
    elif "reflect" in tags:
        _name(lesson, number, f"reflect-{tags['reflect']}")
    if "points" in tags and "written" not in tags:
        lesson.problem(number, "points stand in the check call (or in a written tag), nowhere else")


def _mark(lesson, number, grade_id, *, grade=False, solution=False, locked=False, points=None):
    """Give a cell nbgrader's metadata; our own tags of it are replaced."""
    nbgrader = {"grade": grade, "grade_id": grade_id, "locked": locked, "schema_version": 3, "solution": solution,
                "task": False}  # fmt: skip
    if points is not None:
        nbgrader["points"] = points
    lesson.cells[number].metadata["nbgrader"] = nbgrader
    _name(lesson, number, grade_id)


def _name(lesson, number, name):
    taken = next((n for n, other in lesson.ids.items() if other == name), None)
    if taken is not None:
        lesson.problem(number, f'the id "{name}" is already taken by cell {taken + 1}')
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        lesson.problem(number, f'"{name}" is not a valid id: letters, digits, _ and -, at most 64')
    lesson.ids[number] = name


def _exercise(lesson, number, tags):
    name, cell = tags["exercise"], lesson.cells[number]
    _mark(lesson, number, f"{name}-build", solution=True)
    if not _has_solution_region(cell):
        lesson.problem(number, f'exercise "{name}" needs one ### BEGIN SOLUTION … ### END SOLUTION region or more')
        return
    solution = _parse(lesson, number, cell.source)
    stub = _parse(lesson, number, _stub(cell), "the stub of this cell (what is left without the solution)")
    if solution is None or stub is None:
        return
    definitions = [n.name for n in solution.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    if name not in definitions:
        found = ", ".join(definitions) or "nothing"
        lesson.problem(number, f'exercise "{name}" defines {found}; it must define {name}')
    if not any(raises_not_implemented(node) for node in stub.body if getattr(node, "name", None) == name):
        lesson.problem(number, f"the stub of {name} does not raise NotImplementedError: put the region inside the body")


def raises_not_implemented(tree):
    """Is there a `raise NotImplementedError` anywhere in this piece of syntax tree?"""
    names = (ast.unparse(node.exc) for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc)
    return any(name.startswith("NotImplementedError") for name in names)


def _check(lesson, number, tags):
    name = tags["check"]
    tree = _parse(lesson, number, lesson.cells[number].source)
    last = tree.body[-1] if tree and tree.body else None
    call = last.value if isinstance(last, ast.Expr) else None
    if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "check" and call.args):
        if tree is not None:
            lesson.problem(number, f"the last line of a check cell must be check({name}, points=…) and nothing else")
        return
    called = ast.unparse(call.args[0])
    if called != name:
        lesson.problem(number, f'tag and call disagree: check="{name}" over check({called}…)')
    points = next((keyword.value for keyword in call.keywords if keyword.arg == "points"), None)
    if not (isinstance(points, ast.Constant) and _is_points(points.value)):
        lesson.problem(number, f"check({called}…) has no points: write check({called}, points=4)")
    else:
        _mark(lesson, number, name, grade=True, locked=True, points=points.value)


def _written(lesson, number, tags):
    name, points = tags["written"], tags.get("points")
    above = lesson.cells[number - 1].source if number else ""
    shares = [float(share) for share in re.findall(r"^\|\s*([\d.]+)\s*\|", above, re.MULTILINE)]
    if lesson.cells[number].cell_type != "markdown":
        lesson.problem(number, f'written "{name}" must be a [markdown] cell')
    if not _is_points(points):
        lesson.problem(number, f'written "{name}" has no points: write written="{name}" points=3')
    if not _has_solution_region(lesson.cells[number]):
        lesson.problem(number, f'written "{name}" needs a model answer between ### BEGIN SOLUTION and ### END SOLUTION')
    if not re.search(r"rubric|^\|\s*points\s*\|", above, re.IGNORECASE | re.MULTILINE):
        lesson.problem(number, f'written "{name}" has no rubric in the text cell above it, such as a table of points')
    elif shares and sum(shares) != points:
        lesson.problem(number, f'the rubric of "{name}" adds up to {sum(shares):g} points, the tag says {points}')
    _mark(lesson, number, name, grade=True, solution=True, points=points)


def _is_points(value):
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _has_solution_region(cell):
    marks = re.findall(r"^\s*### (BEGIN|END) SOLUTION\s*$", cell.source, re.MULTILINE)
    return bool(marks) and marks == ["BEGIN", "END"] * (len(marks) // 2)


def _stub(cell):
    copy = NotebookNode(source=cell.source, cell_type=cell.cell_type, metadata=cell.metadata)
    return ClearSolutions(enforce_metadata=False).preprocess_cell(copy, {"language": "python"}, 0)[0].source


def _parse(lesson, number, source, what="this cell"):
    try:
        return ast.parse(source)
    except SyntaxError as error:
        lesson.problem(number, f"{what} is not valid Python: {error.msg} in its line {error.lineno}")
        return None


def _check_text(lesson, number, tags):
    """Rules for what may stand in any cell."""
    cell = lesson.cells[number]
    if cell.cell_type == "markdown":
        for link in re.findall(r"attachment:[^)\s\"'>]+", cell.source):
            lesson.problem(number, f"{link} points to nothing: an authored cell has no attachments")
    if not {"exercise", "written"} & set(tags) and re.search(r"(BEGIN|END) SOLUTION", cell.source):
        lesson.problem(number, "a solution region outside an exercise or written cell would reach the learner")
    if re.search(r"(BEGIN|END) HIDDEN TESTS|autograde\.hidden", cell.source):
        lesson.problem(number, "hidden cases stand in autograde/hidden/<phase>.py, never in a notebook")
    shown = len((_stub(cell) if "exercise" in tags and _has_solution_region(cell) else cell.source).splitlines())
    if cell.cell_type == "code" and shown > LONGEST_CELL:
        lesson.warn(number, f"{shown} lines of code; {LONGEST_CELL} is the most a learner should meet in one cell")


def _check_pairs(lesson):
    """Each exercise has one check below it, and the other way round."""
    built = {tags["exercise"]: number for number, tags in enumerate(lesson.tags) if "exercise" in tags}
    checked = {tags["check"]: number for number, tags in enumerate(lesson.tags) if "check" in tags}
    for name, number in built.items():
        if checked.get(name, -1) < number:
            lesson.problem(number, f'exercise "{name}" has no check cell below it')
    for name, number in checked.items():
        if name not in built:
            lesson.problem(number, f'check "{name}" has no exercise cell')


def _set_cell_ids(lesson):
    """The tag's id, else a slug of the heading, else a hash of the content: the same on every build."""
    seen = Counter(lesson.ids.values())
    for number, cell in enumerate(lesson.cells):
        name = lesson.ids.get(number)
        if name is None:
            base = name = _heading_slug(cell) or sha256(cell.source.encode()).hexdigest()[:12]
            while seen[name]:
                seen[base] += 1
                name = f"{base}-{seen[base]}"
            seen[name] += 1
        cell.id = name


def _heading_slug(cell):
    first = cell.source.lstrip().split("\n")[0]
    if cell.cell_type != "markdown" or not first.startswith("#"):
        return ""
    return re.sub(r"[^a-z0-9]+", "-", first.lower()).strip("-")[:48].strip("-")
