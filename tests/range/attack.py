"""What an attack is, and how one is written: mostly a few lines of code put into the blank notebook."""

import copy
import functools
import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell

from autograde.course import ROOT
from tests.sample_course import cell, read

PHASE = "phase2_attention"
KINDS = ("score", "leak", "sabotage", "fault")
RANGE = {}  # name -> Attack, filled by the modules of this package


@dataclass(frozen=True)
class Attack:
    """One submission.

    name     a slug; also the end of the student's name
    kind     what it tries: "score", "leak", "sabotage", or "fault" (an honest one that is broken)
    goal     the attempt in words
    write    write(folder, world, mark): puts the files of the submission into the folder
    solved   exercises solved honestly in it: they must keep their points; every other one must get none
    free     exercises whose points are not judged, since the answer is half right
    read     exercises whose points only a reader can take back: torch itself answers, or what a function is to test is
             looked up in the process; `autograde report` must point at it
    refused  nothing can be read: the grader has to say so, by the student's name
    secrets  function that gives words which must not appear in anything of this student
    student  the folder's name, where that is part of the matter
    quick    in the normal test suite
    """

    name: str
    kind: str
    goal: str
    write: Callable
    solved: tuple = ()
    free: tuple = ()
    read: tuple = ()
    refused: bool = False
    secrets: Callable = tuple
    student: str = ""
    quick: bool = False

    @property
    def who(self):
        """The student's name: half of them sort before the honest student in the middle, half after."""
        letter = "bn"[int(hashlib.sha256(self.name.encode()).hexdigest(), 16) % 2]
        return self.student or f"{letter}-{self.name}"


@dataclass
class World:
    """Where a range stands, what must not leave it, and where the listeners wait."""

    root: str
    salt: str
    ports: dict = field(default_factory=dict)  # "tcp", "udp": numbers; "unix": the name of an abstract socket
    canaries: dict = field(default_factory=dict)  # what it stands for -> text
    students: dict = field(default_factory=dict)  # student -> name of the attack; "" for an honest one
    files: dict = field(default_factory=dict)  # path -> digest of every file that no grading may change

    def mark(self, attack):
        """A word of this attack alone: names of its processes and files, text on its pages. 12 characters."""
        return "rg" + hashlib.sha256(f"{self.salt} {attack.name}".encode()).hexdigest()[:10]

    def fill(self, text, mark):
        """The text with every @NAME@ replaced."""
        words = {"MARK": mark, "ROOT": self.root, "PHASE": PHASE, "REPOSITORY": str(ROOT)}
        words |= {name.upper(): value for name, value in self.ports.items()}
        for name, value in words.items():
            text = text.replace(f"@{name}@", str(value))
        return text

    def save(self):
        Path(self.root, "range.json").write_text(json.dumps(asdict(self)), "utf-8")

    @classmethod
    def load(cls, root):
        return cls(**json.loads(Path(root, "range.json").read_text("utf-8")))


# ---- notebooks -------------------------------------------------------------------------------------------------------


@functools.cache
def _read(kind):
    return read(ROOT, kind, PHASE)


def blank(solved=()):
    """The notebook as handed out, with these exercises solved."""
    notebook, solution = copy.deepcopy(_read("notebooks")), _read("solutions")
    for name in solved:
        cell(notebook, f"{name}-build").source = cell(solution, f"{name}-build").source
    return notebook


def solution():
    return copy.deepcopy(_read("solutions"))


def exercises():
    """Name -> points of every exercise that is graded by a check."""
    cells = [
        c.metadata.nbgrader for c in _read("notebooks").cells if "nbgrader" in c.metadata and c.cell_type == "code"
    ]
    return {marks.grade_id: marks.points for marks in cells if marks.grade}


def place(notebook, grade_id):
    """The position of the cell with that grade id."""
    return next(i for i, c in enumerate(notebook.cells) if c.metadata.get("nbgrader", {}).get("grade_id") == grade_id)


def save(folder, notebook, name=f"{PHASE}.ipynb"):
    """Write a notebook (a node, text or bytes) as it is, valid or not."""
    if not isinstance(notebook, str | bytes):
        notebook = json.dumps(notebook, ensure_ascii=False)
    data = notebook if isinstance(notebook, bytes) else notebook.encode("utf-8", "surrogatepass")
    (folder / name).write_bytes(data)


# ---- three ways to write an attack -----------------------------------------------------------------------------------


def _add(name, kind, goal, write, **options):
    assert name not in RANGE and kind in KINDS, name
    RANGE[name] = Attack(name, kind, goal, write, **options)


def code(kind, name, goal, after="", before="", last="", answers=None, then=None, text="", **options):
    """An attack that is code: cells before or after the set-up cell or at the end, answers in place of stubs.

    answers may be a function that gives them; then: {exercise: a cell right behind its check}; text: a cell at the top
    """

    def write(folder, world, mark):
        notebook = blank(options.get("solved", ()))
        for exercise, source in (answers() if callable(answers) else answers or {}).items():
            cell(notebook, f"{exercise}-build").source = world.fill(source, mark)
        for exercise, source in (then or {}).items():
            notebook.cells.insert(place(notebook, exercise) + 1, new_code_cell(world.fill(source, mark)))
        at = place(notebook, "setup")
        for position, source in ((at + 1, after), (at, before), (len(notebook.cells) + 2, last)):
            if source:
                notebook.cells.insert(position, new_code_cell(world.fill(source, mark)))
        if text:
            notebook.cells.insert(0, new_markdown_cell(world.fill(text, mark)))
        save(folder, notebook)

    _add(name, kind, goal, write, **options)


def edit(kind, name, goal, **options):
    """Decorator: `function(notebook)` or `function(notebook, world, mark)` changes the blank notebook."""

    def decorate(function):
        def write(folder, world, mark):
            notebook = blank(options.get("solved", ()))
            more = (world, mark)[: function.__code__.co_argcount - 1]
            changed = function(notebook, *more)
            save(folder, notebook if changed is None else changed)

        _add(name, kind, goal, write, **options)
        return function

    return decorate


def files(kind, name, goal, **options):
    """Decorator: `function(folder, notebook, world, mark)` writes the files of the submission itself."""

    def decorate(function):
        def write(folder, world, mark):
            function(folder, blank(options.get("solved", ())), world, mark)

        _add(name, kind, goal, write, **options)
        return function

    return decorate


def text_of(notebook):
    """A notebook as Jupyter writes it."""
    return nbformat.writes(notebook)
