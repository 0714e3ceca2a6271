"""From whatever a learner handed in to a valid notebook and remarks, or to one sentence that says why not.

    take_in(folder, "phase2_attention")       # Intake, or Refused
    stage(folder, "phase2_attention", clean)  # the same, and writes what nbgrader may see into the folder `clean`

Nothing is opened but regular files, and no link is followed. Only the notebook and timestamp.txt are looked at.
`install` has nbgrader itself, and with it formgrader, read staged submissions only.
"""

import contextlib
import copy
import fnmatch
import hashlib
import json
import os
import re
import tempfile
import warnings
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from nbformat import NotebookNode
from nbgrader.converters import Autograde, NbGraderException
from nbgrader.utils import parse_utc
from sqlalchemy.exc import OperationalError

from autograde.course import ROOT
from autograde.mending import valid_notebook
from autograde.reading import Unreadable, read
from autograde.regular import FILE, kind_of, opened_file, opened_folder
from utils import handed_in

FILES = 1_000  # of a folder, that are looked at
CANDIDATES = 5  # notebooks of other names that are opened to find ours
NOTEBOOK = re.compile(r"\.ipynb(\.txt|\.json)?$", re.IGNORECASE)  # browsers add the last part
COPY = re.compile(r"([ _-]*\(\d+\)|[ _-]*copy[ _-]*\d*|[ _-]+\d+)+$")


TAKEN = {}  # (student, phase) -> HandedIn or None, while plain nbgrader grades it


class Refused(Exception):
    """What was handed in cannot be graded. The message is the sentence the instructor reads."""


@dataclass(frozen=True)
class HandedIn:
    """The one file that a phase may want beside its notebook: its bytes, or a sentence on why they were not taken."""

    raw: bytes = field(default=b"", repr=False)
    problem: str = ""


@dataclass(frozen=True)
class Intake:
    """What was handed in, made whole: `digest` is over the bytes of notebook, timestamp.txt and that file."""

    notebook: NotebookNode  # valid nbformat 4.5, without outputs
    remarks: tuple[str, ...]
    digest: str
    timestamp: str | None  # as nbgrader reads it, in UTC
    file: HandedIn | None = None


def take_in(folder, phase):
    """The Intake of a submitted folder. Raises Refused, and nothing else."""
    try:
        return _take_in(Path(os.path.abspath(folder)), phase)
    except Refused:
        raise
    except Exception as error:  # a disk that fails, or a mistake of ours, must not cost the others their grade
        raise Refused(f"it cannot be taken in ({shown(f'{type(error).__name__}: {error}')})") from error


def _take_in(folder, phase):
    for name, what in ((phase, "a phase"), (folder.parent.name, "a student")):
        if not _is_plain(name):
            raise Refused(f"{shown(name)} cannot be the name of {what}")
    with _entered(folder) as inside:
        name, reading, remarks = _choose(inside, phase, _released_ids(folder, phase))
        raw, timestamp, remark = read_timestamp(inside)
        file = read_file(inside, handed_in.PHASES[phase]) if phase in handed_in.PHASES else None
    remarks += [f"{shown(name)} {text}" for text in reading.remarks]
    notebook, mended = valid_notebook(reading)
    remarks += reading.notes + mended + ([remark] if remark else [])
    parts = [reading.digest, hashlib.sha256(raw).hexdigest()]
    parts += [hashlib.sha256(file.raw).hexdigest(), file.problem] if file else []
    digest = hashlib.sha256(" ".join(parts).encode()).hexdigest()
    return Intake(notebook, tuple(remarks), digest, timestamp, file)


def stage(folder, phase, destination):
    """Take in, and write the notebook and timestamp.txt into `destination`, each whole or not at all."""
    intake = take_in(folder, phase)
    destination = Path(destination)
    destination.mkdir(parents=True, exist_ok=True)
    if intake.timestamp:
        _write(destination / "timestamp.txt", intake.timestamp + "\n")
    else:
        (destination / "timestamp.txt").unlink(missing_ok=True)
    _write(destination / f"{phase}.ipynb", json.dumps(intake.notebook, ensure_ascii=False, indent=1) + "\n")
    return intake


def _write(path, text):
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def shown(name):
    """A name that a learner chose, safe to print in a line."""
    short = name if len(name) <= 80 else name[:77] + "…"
    return short if short.isprintable() and short else ascii(short)


def _is_plain(name):
    usable = 0 < len(name) <= 200 and name.isprintable() and not name.startswith(".")
    return usable and not set("/\\") & set(name)


@contextlib.contextmanager
def _entered(folder):
    """A descriptor of the folder; neither it nor the student's folder around it may be a link."""
    with contextlib.ExitStack() as stack:
        inside = None
        for name, path in ((folder.parent.name, folder.parent), (folder.name, folder.name)):
            try:
                inside = stack.enter_context(opened_folder(path, inside))
            except Unreadable as problem:
                raise Refused(f"the folder {shown(name)} {problem}") from None
        yield inside


def _read(inside, name):
    with opened_file(inside, name) as (file, size):
        return read(file, size)


def read_timestamp(inside):
    """(bytes, the time in UTC or None, what is wrong or None) of the folder's timestamp.txt."""
    name = "timestamp.txt"
    try:
        with opened_file(inside, name) as (file, _):
            raw = os.read(file, 1000)
    except Unreadable as problem:
        return b"", None, f"{name} {problem}; the time is unknown" if kind_of(name, inside) else None
    text = raw.decode("utf-8-sig", "replace").strip()
    text = re.sub(r" (?=[+-]\d\d:?\d\d$)", "", text)  # nbgrader reads a lone +0100 as 100 seconds
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # unknown names of time zones
            time = parse_utc(text) if len(text) < 100 and re.search(r"\d{4}", text) else None
    except Exception:  # the parser of dates is not careful with what it raises
        time = None
    if time is None:
        return raw, None, f"{name} holds no time that can be read: {shown(text)}"
    return raw, f"{time} UTC", None


def read_file(inside, name, most=handed_in.MOST):
    """The HandedIn of that name: a regular file of at most so many bytes, or why it was not taken."""
    if not kind_of(name, inside):
        return HandedIn(problem=f"there is no {name} beside the notebook")
    try:
        with opened_file(inside, name) as (file, size), os.fdopen(os.dup(file), "rb") as stream:
            raw = stream.read(most + 1) if size <= most else b""
    except Unreadable as problem:
        return HandedIn(problem=f"it {problem}")
    if size > most or len(raw) > most:
        return HandedIn(problem=f"it has {size / 1e6:.1f} MB, and at most {most / 1e6:.0f} MB are taken")
    return HandedIn(raw)


# ---------------------------------------------------------------------------------------------------------- choosing


def _choose(inside, phase, ours):
    """(name, Reading, remarks) of the notebook to grade."""
    right = f"{phase}.ipynb"
    with os.scandir(inside) as entries:
        names = {entry.name for entry in islice(entries, FILES) if not entry.name.startswith(".")}
    kinds = {name: kind_of(name, inside) for name in sorted({*names, right}) if NOTEBOOK.search(name)}
    files = [name for name, kind in kinds.items() if kind == FILE]
    near = [name for name in files if phase.casefold() in _bare(name)]
    found = [right] if right in files else near if len(near) == 1 else files
    if len(found) > 1:
        found = [name for name in found[:CANDIDATES] if _holds(inside, name, ours)] or found
    if len(found) != 1:
        raise Refused(_nothing(right, kinds[right], sorted(names), found))
    name = found[0]
    try:
        reading = _read(inside, name)
    except Unreadable as problem:
        raise Refused(f"{shown(name)} {problem}") from None
    remarks = [f"there is no {right}; {shown(name)} was taken for it"] if name != right else []
    remarks += [f"{shown(other)} was not graded" for other in files if other != name][:3]
    odd = [f"{shown(other)} is {kind}, not a file" for other, kind in kinds.items() if kind not in (None, FILE)]
    remarks += odd[:3]
    if ours and not _ids(reading) & ours:
        remarks.append(f"{shown(name)} holds no exercise of this phase")
    return name, reading, remarks


def _bare(name):
    """A name without its ending, and also without what browsers and file managers add to it."""
    stem = NOTEBOOK.sub("", name).casefold().strip()
    return stem, COPY.sub("", stem)


def _holds(inside, name, ours):
    try:
        ids = _ids(_read(inside, name))
    except Unreadable:
        return False
    return bool(ids & ours if ours else ids)


def _nothing(right, kind, names, found):
    """Why there is nothing to grade."""
    if found:
        return f"there is no {right}, but {_some(found)}: which one counts?"
    if kind:
        return f"{right} is {kind}, not a file"
    return f"there is no {right}" + (f", only {_some(names)}" if names else ": the folder is empty")


def _some(names):
    return ", ".join(shown(name) for name in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _ids(reading):
    """The grade ids in a notebook."""
    marks = [cell["metadata"].get("nbgrader", {}).get("grade_id") for cell in reading.cells]
    return {name for name in marks if isinstance(name, str)}


def _released_ids(folder, phase):
    """The grade ids handed out, if the release is at hand."""
    for root in (*folder.parents[3:4], ROOT):
        try:
            cells = json.loads((root / "notebooks" / phase / f"{phase}.ipynb").read_text("utf-8"))["cells"]
        except (OSError, ValueError, KeyError):
            continue
        return {cell["metadata"]["nbgrader"]["grade_id"] for cell in cells if "nbgrader" in cell["metadata"]}
    return set()


# ---------------------------------------------------------------------------------------------------------- nbgrader


def around(converter_class):
    """A subclass of nbgrader's Autograde that stages every submission before it looks at it."""
    if getattr(converter_class, "stages_first", False):
        return converter_class
    return _stage_first(type(converter_class.__name__, (converter_class,), {"__doc__": around.__doc__}))


def install():
    """Have every Autograde of this process stage first, and no timestamp.txt be opened unseen. May be called twice."""
    from nbgrader.apps.api import NbGraderAPI
    from nbgrader.coursedir import CourseDirectory

    if "stages_first" in vars(Autograde):
        return
    _stage_first(Autograde)
    CourseDirectory.get_existing_timestamp = _existing_timestamp
    NbGraderAPI.get_submitted_timestamp = _submitted_timestamp


def _stage_first(cls):
    """Replace in this class the two methods through which nbgrader finds and reads submissions.

    A subclass for what was taken in already sets `stages_first = False`.
    """
    find, convert = cls.init_notebooks, cls.convert_notebooks

    def init_notebooks(self):
        if not self.stages_first:
            return find(self)
        self.notebooks, self.assignments = [], {str(folder): [] for folder in _submitted(self.coursedir)}
        if not self.assignments:
            course = self.coursedir
            sentence = f"No submission of {course.student_id!r} was found for {course.assignment_id!r}"
            self.log.error(sentence)
            raise NbGraderException(sentence)

    def convert_notebooks(self):
        if not self.stages_first:
            return convert(self)
        failed = [folder for folder in sorted(self.assignments) if not _convert_one(self, convert, Path(folder))]
        if failed:
            sentence = f"Not graded: {', '.join(shown(Path(folder).parent.name) for folder in failed)}. See above."
            self.log.error(sentence)
            raise NbGraderException(sentence)

    cls.init_notebooks, cls.convert_notebooks, cls.stages_first = init_notebooks, convert_notebooks, True
    return cls


def _submitted(course):
    """The folders handed in for the course directory's assignment by its student, which may be a pattern."""
    phase, wanted, left_out = course.assignment_id, course.student_id, course.student_id_exclude.split(",")
    base = Path(course.root, course.submitted_directory)
    if not (_is_plain(phase) and fnmatch.fnmatchcase(phase, course.notebook_id) and base.is_dir()):
        return []
    students = [name for name in sorted(os.listdir(base)) if not name.startswith(".") and name not in left_out]
    matching = [wanted] if wanted in students else [name for name in students if fnmatch.fnmatchcase(name, wanted)]
    return [base / name / phase for name in matching if _is_there(base / name / phase)]


def _is_there(folder):
    """Is there something of that name, or something else that should be told about?"""
    try:
        os.lstat(folder)
    except (FileNotFoundError, NotADirectoryError):
        return folder.parent.is_symlink()
    except OSError:
        return True
    return True


def _convert_one(converter, convert, folder):
    """Stage one submission and have nbgrader grade it; False if that failed."""
    student, phase = folder.parent.name, folder.name
    with tempfile.TemporaryDirectory(prefix="staged-") as tree:
        staged = Path(tree, student, phase)
        try:
            taken = stage(folder, phase, staged)
        except (Refused, OSError) as reason:
            converter.log.error("%s, %s: %s", shown(student), phase, reason)
            return False
        for remark in taken.remarks:
            converter.log.warning("%s, %s: %s", shown(student), phase, remark)
        TAKEN[student, phase] = taken.file
        converter.assignments = {str(staged): [str(staged / f"{phase}.ipynb")]}
        course, converter.coursedir = converter.coursedir, _reading_from(converter.coursedir, tree)
        try:
            convert(converter)
        except NbGraderException as error:
            if isinstance(error.__context__, OperationalError):  # the gradebook itself: every other would fail, too
                raise
            return False
        finally:
            converter.coursedir = course
            TAKEN.pop((student, phase), None)
    return True


def _reading_from(course, tree):
    """The same course directory, but with that folder in place of the submitted one."""
    staged, real = copy.copy(course), course.format_path

    def format_path(nbgrader_step, student_id, assignment_id, escape=False):
        if nbgrader_step != course.submitted_directory:
            return real(nbgrader_step, student_id, assignment_id, escape=escape)
        return os.path.join(re.escape(tree) if escape else tree, student_id, assignment_id)

    staged.format_path = format_path
    return staged


def _existing_timestamp(course, dest_path):
    """In place of CourseDirectory's: the time in UTC, without a zone, or None, whatever stands there."""
    try:
        with _entered(Path(os.path.abspath(dest_path))) as inside:
            _, time, problem = read_timestamp(inside)
    except Refused:
        return None
    if problem:
        course.log.warning("%s: %s", shown(str(dest_path)), problem)
    return parse_utc(time)


def _submitted_timestamp(api, assignment_id, student_id):
    """In place of NbGraderAPI's."""
    course = api.coursedir
    return course.get_existing_timestamp(course.format_path(course.submitted_directory, student_id, assignment_id))
