"""`autograde release PHASE`: the zip that a class is handed, with all to learn with and nothing to copy from.

Notebooks up to that phase, blank; the twins and checks of the phases before it; for the phase itself, stored exams
instead of both (utils/checks/stored.py). What was put together is searched for anything it must not hold, and no zip
is written if there is a line of it.
"""

import hashlib
import io
import json
import re
import time
import tomllib
import zipfile
from pathlib import Path, PurePosixPath

import utils
from autograde.build import BuildError, render
from autograde.course import pages, phases
from utils.checks import EXERCISES, stored
from utils.checks.verdict import Exam
from utils.workspace import PHASES

FOLDER = "transformer-workbook"  # what the zip unpacks to; the next release goes over it
EXAMS = "utils/checks/exams"
FOR_LEARNERS = ("start_here", "drills", "figures")  # pages that a class is handed
FOR_AUTHORS = ("test:", "test-all:", "lint:", "build:", ".venv/dev.stamp:")  # targets of the Makefile
TOP = {"LICENSE", "Makefile", "README.md", "environment.yml", "pyproject.toml", "requirements.lock"}
KINDS = {"utils": {".py", ".json", ".exam"}, "notebooks": {".ipynb"}}  # what may lie in the two folders
LATE = {"data": 7, "train": 7, "measure": 7}  # folders of utils/ that belong to a phase without saying so
TELLING = 20  # characters, without spaces: a shorter line may stand anywhere by chance


class ReleaseError(BuildError):
    """No zip is written; the message tells the instructor why."""


def release(root, phase, out=None, track=iter):
    """Write the class zip of a phase; the same files give the same bytes. Returns its path.

    out: where to, by default build/ in the course; track: wraps the list of exercises, to show progress
    """
    root = Path(root)
    files = class_files(root, phase, track)
    if found := leaks(root, phase, files):
        shown = "\n".join(f"  {one}" for one in found[:20])
        raise ReleaseError(f"not released: {len(found)} thing(s) that a class must not see\n{shown}")
    path = Path(out or root / "build" / f"{FOLDER}-{phase}.zip")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_bytes(zipped(files))
    unfinished.replace(path)
    return path


def zipped(files):
    """The zip of {path: content}, always the same bytes."""
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).digest()
    # A date made of the content: Python takes compiled code for fresh if the source has its old date and size.
    date = time.gmtime(946_684_800 + int.from_bytes(digest[:4], "little") % (20 * 365 * 86_400))[:6]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted(files):
            member = zipfile.ZipInfo(f"{FOLDER}/{path}", date)
            member.create_system, member.external_attr = 3, 0o100644 << 16
            archive.writestr(member, files[path], zipfile.ZIP_DEFLATED, 9)
    return packed.getvalue()


# ---- what goes in --------------------------------------------------------------------------------


def class_files(root, phase, track=iter):
    """{path: content} of the release, in memory."""
    if Path(utils.__file__).resolve().parents[1] != root.resolve():
        raise ReleaseError(f"this is the autograde of another course: run that of {root}")
    exercises = [exercise for exercise in EXERCISES.values() if exercise.phase == phase]
    if phase not in phases(root) or not exercises:
        raise ReleaseError(f"no phase {phase} to release; there is {', '.join(phases(root))}")
    number = _number(phase)
    lessons = [name for name in phases(root) if _number(name) <= number]
    built = render(root, [*lessons, *(name for name in pages(root) if name in FOR_LEARNERS)]).files
    files = {path.as_posix(): content for path, content in built.items() if path.parts[0] == "notebooks"}
    for path in sorted((root / "utils").rglob("*")):
        inside = path.relative_to(root)
        if path.suffix in (".py", ".json") and "__pycache__" not in inside.parts and _is_for_class(inside, number):
            files[inside.as_posix()] = path.read_bytes()
    for place, exercise in enumerate(track(exercises), 1):
        content = stored.store(Exam(exercise, tuple(exercise.visible)))
        files[f"{EXAMS}/{phase}/{place:02}_{exercise.name}.exam"] = content
    return files | _top(root, phase)


def _is_for_class(path, number):
    """May this file of utils/ go to a class on phase `number`? Those that belong to a phase say so in their name."""
    its = next((_number(part) for part in path.parts if _number(part)), LATE.get(path.parts[1], 0))
    if path.parts[1] == "drills":
        return its == 0  # cards show answers, and listings that are nearly right: a class gets the machinery alone
    if path.parts[1] == "oracle":
        return its < number
    if path.parts[1] == "checks":
        return its < number or (its == number and re.fullmatch(r"__init__|rules(_\w+)?", path.stem) is not None)
    return its <= number


def _number(name):
    """Which phase a file or folder belongs to, or 0."""
    found = re.match(r"phase(\d+)", name)
    return int(found[1]) if found else 0


def _top(root, phase):
    """The files beside the folders, without what only authors and instructors need."""
    readme = Path(__file__).with_name("class_readme.md").read_text("utf-8")
    title = f"phase {_number(phase)}: {PHASES[phase]}" if phase in PHASES else phase
    texts = {
        "README.md": readme.format(phase=phase, title=title),
        "Makefile": _makefile((root / "Makefile").read_text("utf-8")),
        "pyproject.toml": _pyproject((root / "pyproject.toml").read_text("utf-8")),
        "environment.yml": re.sub(r"-e \.\[[\w,]+\]", "-e .", (root / "environment.yml").read_text("utf-8")),
    }
    as_they_are = {name: (root / name).read_bytes() for name in ("LICENSE", "requirements.lock")}
    return as_they_are | {name: text.encode() for name, text in texts.items()}


def _makefile(text):
    """The Makefile with the targets learn and clean alone."""
    blocks = [block for block in text.strip().split("\n\n")[1:] if not block.startswith(FOR_AUTHORS)]
    head = "# make learn   open the course\n# make clean   remove caches; .venv and my_work stay"
    made = re.sub(r"(?m)^\.PHONY:.*$", ".PHONY: learn clean", "\n\n".join([head, *blocks])) + "\n"
    if not re.search(r"(?m)^learn:", made) or re.search(r"autograde|dev\.stamp|\bpytest\b(?!_)", made):
        raise ReleaseError("the Makefile is not as autograde/release.py knows it: FOR_AUTHORS names what to leave out")
    return made


def _pyproject(text):
    """pyproject.toml with the package and the command of learners alone."""
    sections = re.split(r"(?m)^(?=\[)", text)
    kept = (one for one in sections if not re.match(r"\[(project\.optional-dependencies|tool\.(ruff|pytest))\b", one))
    made = "".join(kept).replace('autograde = "autograde.cli:app"\n', "")
    made = made.replace(', "autograde", "autograde.*"', "").replace(
        '["*.json", "*.toml"]', '["*.json", "exams/*/*.exam"]'
    )
    project = tomllib.loads(made)["project"]
    if "autograde" in made or project["name"] != utils.COURSE or list(project["scripts"]) != ["workbook"]:
        raise ReleaseError("pyproject.toml is not as autograde/release.py knows it: see _pyproject there")
    return made.rstrip() + "\n"


# ---- what must not be in it ----------------------------------------------------------------------


def leaks(root, phase, files):
    """Sentences on everything in {path: content} that a class on `phase` must not see; [] if there is nothing."""
    secret, found = telling_lines(Path(root), phase), []
    for path, content in files.items():
        place = PurePosixPath(path)
        if path not in TOP and place.suffix not in KINDS.get(place.parts[0], ()):
            found.append(f"{path}: nothing of this kind belongs into a release")
        elif place.parts[0] == "utils" and place.suffix != ".exam" and not _is_for_class(place, _number(phase)):
            found.append(f"{path}: answers or checks of {phase} or a later phase")
        texts = list(_texts_of(place, content))
        for line in (line for text in texts for line in text.splitlines()):
            if source := secret.get(_squeezed(line)):
                found.append(f"{path}: a line of {source}: {line.strip()}")
        if place.suffix == ".ipynb" and any(re.search(r"(BEGIN|END) SOLUTION|HIDDEN TESTS", text) for text in texts):
            found.append(f"{path}: a solution region or hidden tests")
        if place.suffix == ".exam":
            found += _strange_exam(path, content, phase)
    return found


def telling_lines(root, phase):
    """{line without spaces: the file it stands in} of all that is to be kept from a class on `phase`.

    The solutions of every phase, all hidden cases, twins and checks of this phase and later ones; but for lines that
    also stand in the lessons' open text or in what earlier phases hand out anyway.
    """
    secret, open_lines = {}, set()
    for path in [*root.glob("solutions/phase*/*.py"), *root.glob("autograde/hidden/*.py")]:
        inside = path.parent.name == "hidden"
        for line in path.read_text("utf-8").splitlines():
            if mark := re.search(r"### (BEGIN|END) SOLUTION", line):
                inside = mark[1] == "BEGIN"
            elif inside:
                secret[_squeezed(line)] = path.name if path.parent.name != "hidden" else "a hidden case"
            else:
                open_lines.add(_squeezed(line))
    engine = {
        _squeezed(line)
        for folder in ("observe", "debugging", "plots", "widgets")
        for file in root.glob(f"utils/{folder}/*.py")
        for line in file.read_text("utf-8").splitlines()
    }
    for path in [*root.glob("utils/oracle/phase*"), *root.glob("utils/checks/phase*")]:
        for file in [path] if path.is_file() else path.rglob("*.py"):
            lines = map(_squeezed, file.read_text("utf-8").splitlines())
            if _is_for_class(file.relative_to(root), _number(phase)):
                open_lines.update(lines)
            else:
                known = engine if "checks" in file.parts else ()  # a check is made of such lines, an answer is not
                secret |= dict.fromkeys(
                    (line for line in lines if line not in known), file.relative_to(root).as_posix()
                )
    # what any two files may have in common
    idle = re.compile(r"import|from[\w.]+import|(def|class|for|with)\w.*:$|@|-{4}")
    return {
        line: source
        for line, source in secret.items()
        if len(line) > TELLING and line not in open_lines and not idle.match(line)
    }


def _squeezed(line):
    """A line without spaces, comment and kind of quotes, so that it is known again however it was laid out."""
    return "".join(line.strip().lstrip("# ").split("#")[0].split()).replace("'", '"')


def _texts_of(path, content):
    """Everything in a file that could be read as text."""
    if path.suffix == ".exam":
        for sheet in stored.load(content).sheets.values():
            yield from _strings([vars(sheet.request), *sheet.answers()])
    elif path.suffix in (".ipynb", ".json"):
        yield from _strings(json.loads(content))
    else:
        yield content.decode("utf-8")


def _strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _strings([*value, *value.values()])
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _strings(part)


def _strange_exam(path, content, phase):
    """Sentences on an exam that is not the visible one of an exercise of this phase."""
    exam = stored.load(content)
    known = EXERCISES.get(exam.exercise.name)
    if known is None or not known.phase == exam.exercise.phase == phase:
        return [f"{path}: an exam of another phase"]
    names = [case.name for case in exam.cases]
    if exam.seed != 0 or any(case.hidden for case in exam.cases) or names != [case.name for case in known.visible]:
        return [f"{path}: not the visible cases as everybody draws them"]
    return []
