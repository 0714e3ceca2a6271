"""A course directory with a class of three honest students and any number of attacks among them."""

import hashlib
import importlib
import os
import secrets
import shutil
import sys
from pathlib import Path

from nbgrader.api import Gradebook

from autograde.course import ROOT
from tests.range.attack import PHASE, RANGE, World, blank, exercises, save, solution
from tests.sample_course import cell, make_root

HALF = ("masked_softmax", "attention_weights", "score_variance", "causal_mask", "padding_mask", "softmax_jacobian",
        "attention_cost")  # fmt: skip
# before, between and after the attackers
HONEST = {"a-full": tuple(exercises()), "m-half": HALF, "y-blank": (), "z-full": tuple(exercises())}

# what grading may write, below the course's root
RESULTS = (
    "autograde/autograded", "autograde/feedback", "autograde/backups", "autograde/reports", "autograde/gradebook.db",
    "autograde/audit.jsonl", "autograde/journal.jsonl", "autograde/grades.csv", "autograde/.grading",
    "range.json", "runs", "home/.cache", "home/.config", "home/.ipython", "home/.jupyter", "home/.local",
)  # fmt: skip


def lay_out(root, names=(), ports=None, config=None, settings=""):
    """Make the course in the empty folder `root`; returns its World.

    names: of attacks; ports: of a Listener; config: text of nbgrader_config.py, instead of the course's own;
    settings: more lines of it
    """
    root = Path(root).resolve()
    world = World(str(root), secrets.token_hex(8), ports or {})
    make_root(root)
    path = root / "nbgrader_config.py"
    path.write_text((config or path.read_text()) + settings)
    for folder in ("solutions", "notebooks"):
        shutil.copytree(ROOT / folder, root / folder)
    _plant_canaries(root, world)
    for student, solved in HONEST.items():
        save(_folder(root, student), _honest(solved, world))
    world.students = dict.fromkeys(HONEST, "")
    return admit(world, names)


def admit(world, names):
    """Hand in these attacks, too."""
    for attack in map(RANGE.get, names):
        student = world.fill(attack.who, world.mark(attack))
        attack.write(_folder(world.root, student), world, world.mark(attack))
        world.students[student] = attack.name
    world.files = digests(world.root)
    world.save()
    return world


def deserved(solved):
    """Exercise -> points of who solved these."""
    return {name: points if name in solved else 0 for name, points in exercises().items()}


def _folder(root, student):
    folder = Path(root, "autograde", "submitted", student, PHASE)
    folder.mkdir(parents=True)
    return folder


def _honest(solved, world):
    notebook = solution() if len(solved) == len(exercises()) else blank(solved)
    if solved:
        cell(notebook, "why-masks").source = f"Masks hide padding and the future. {world.canaries['a classmate']}"
    return notebook


def _plant_canaries(root, world):
    made = ("the environment", "the home directory", "the solutions' folder", "a classmate", "the gradebook")
    world.canaries = {what: f"canary{secrets.token_hex(8)}" for what in made} | {
        "the secret key": secrets.token_hex(32)
    }
    hidden = importlib.import_module(f"autograde.hidden.{PHASE}").__file__
    world.canaries["hidden cases"] = _longest_line(Path(hidden).read_text("utf-8"))
    world.canaries["a solution"] = _longest_line(cell(solution(), "streaming_attention-build").source, blank())
    (root / "home").mkdir()
    for place, what in (
        ("home/.range-token", "the home directory"),
        (f"solutions/{PHASE}/for-graders.md", "the solutions' folder"),
        ("autograde/secret.key", "the secret key"),
    ):
        (root / place).write_text(world.canaries[what])
    os.environ["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ["PATH"]]
    )  # nbgrader runs alembic
    with Gradebook(f"sqlite:///{root}/autograde/gradebook.db") as gradebook:
        gradebook.add_student("z-full", last_name=world.canaries["the gradebook"])


def _longest_line(text, known=None):
    lines = {line.strip() for line in text.splitlines() if not line.strip().startswith("#")}
    lines -= {line.strip() for one in (known.cells if known else ()) for line in one.source.splitlines()}
    return max(lines, key=len)


def digests(root):
    """Path -> what it holds, of everything that no grading may change."""
    found = {}
    for place, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not _is_result(root, place, name)]
        for name in (*names, *(name for name in folders if os.path.islink(os.path.join(place, name)))):
            if not _is_result(root, place, name):
                found[os.path.relpath(os.path.join(place, name), root)] = _digest(os.path.join(place, name))
    return found


def _is_result(root, place, name):
    return os.path.relpath(os.path.join(place, name), root).startswith(RESULTS) or name == "__pycache__"


def _digest(path):
    kind = os.lstat(path).st_mode
    if os.path.islink(path):
        return f"{kind:o} {os.readlink(path)}"
    if not os.path.isfile(path):
        return f"{kind:o}"
    with open(path, "rb") as file:
        return f"{kind:o} {hashlib.file_digest(file, 'sha256').hexdigest()}"
