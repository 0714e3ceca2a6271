"""What became of every submission: told by the gradebook, the files and the processes, not by the grader."""

import csv
import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bs4 import BeautifulSoup
from nbgrader.api import Gradebook, MissingEntry

from tests.range.attack import PHASE, RANGE, World
from tests.range.course import HONEST, deserved, digests
from tests.range.runs import results, survivors

MARK = re.compile(r"rg[0-9a-f]{10}")
MEMORY = 9 * 2**10  # MiB that a grader and all that it runs may use: 6 GiB for a submission, and its own
FLOOD = 24 * 2**20  # bytes of one result; a solved notebook with its pictures has 1.5 MiB
LOADING = {
    "src",
    "srcset",
    "data",
    "action",
    "formaction",
    "background",
    "poster",
    "srcdoc",
    "ping",
    "style",
    "content",
}


@dataclass
class Verdict:
    """What became of one submission; every list is empty where all is well.

    points  exercise -> score in the gradebook, None where nothing was graded
    forged  points that it does not deserve
    flagged points that it does not deserve, and that the report on suspicious code tells a person to look at
    lost    points that it deserves and did not get; for an unreadable one, that the grader says nothing of it
    leaked  what of the course, the machine or others it learnt or carried away, and pages that act by themselves
    harmed  what it did to the grader, the machine and the others
    """

    kind: str
    points: dict | None = None
    forged: list = field(default_factory=list)
    flagged: list = field(default_factory=list)
    lost: list = field(default_factory=list)
    leaked: list = field(default_factory=list)
    harmed: list = field(default_factory=list)

    @property
    def clean(self):
        return not (self.forged or self.lost or self.leaked or self.harmed)


def verdict(root, heard=""):
    """Name of the attack -> Verdict; under "" what befell the honest students and cannot be laid at anyone's door.

    heard: what a Listener heard
    """
    world = World.load(root)
    marks = {world.mark(RANGE[name]): name for name in world.students.values() if name}
    found = {name: Verdict(RANGE[name].kind if name else "") for name in world.students.values()}
    for student, name in world.students.items():
        points = _points(world, student)
        _judge_points(found[name], RANGE[name] if name else None, student, points, _suspected(world, student))
        _judge_files(found, world, student, name, marks)
    for mark, name in marks.items():
        if mark in heard:
            found[name].leaked.append("it reached a listener")
    for mark in survivors(marks):
        found[marks[mark]].harmed.append("a process survived")
    _judge_places(found, world, marks)
    _judge_tables(found, world, marks)
    _judge_runs(found, world, marks)
    return found


def plain(found):
    """Verdicts as plain data."""
    return {name: asdict(one) for name, one in found.items()}


# ---- points ----------------------------------------------------------------------------------------------------------


def _points(world, student):
    """Every graded cell's score, or None where the submission was not graded."""
    with Gradebook(f"sqlite:///{world.root}/autograde/gradebook.db") as gradebook:
        try:
            submission = gradebook.find_submission(PHASE, student)
        except MissingEntry:
            return None
        scores = {grade.name: grade for notebook in submission.notebooks for grade in notebook.grades}
        if all(grade.auto_score is None for grade in scores.values()):
            return None
        return {name: grade.score for name, grade in scores.items()}


def _suspected(world, student):
    """Exercises in which the report found something of this student to look at; "" stands for cells of their own."""
    path = Path(world.root, "autograde", "reports", f"{PHASE}-delegation.csv")
    if not path.exists():
        return set()
    with path.open(newline="", encoding="utf-8-sig") as file:
        return {row["exercise"] for row in csv.DictReader(file) if row["student"] == student}


def _judge_points(one, attack, student, points, suspected):
    solved = attack.solved if attack else HONEST[student]
    right = deserved(solved)
    if attack:
        one.points = points
    for name, score in (points or {}).items():
        if name in (attack.free if attack else ()):
            continue
        if score > right.get(name, 0) + 1e-9:
            seen = name in (attack.read if attack else ()) and name in suspected
            (one.flagged if seen else one.forged).append(f"{name}: {score:g}")
        if score < right.get(name, 0) - 1e-9:
            one.lost.append(f"{name}: {score:g}")
    if points is None and (solved or not attack):
        one.lost.append("not graded")
    if not attack and (one.forged or one.lost):
        one.harmed += [f"{student}: {what}" for what in one.forged + one.lost]
        one.forged, one.lost = [], []


# ---- files -----------------------------------------------------------------------------------------------------------


def _judge_files(found, world, student, name, marks):
    """The student's own results: nothing foreign in them, nothing active, nothing huge."""
    one = found[name]
    own = {what: text for what, text in world.canaries.items() if name or what not in ("a classmate", "a solution")}
    if name:
        own |= {f"a hidden input: {text}": text for text in RANGE[name].secrets()}
    pages = 0
    for step in ("autograded", "feedback"):
        for path in _all_files(Path(world.root, "autograde", step, student)):
            text = path.read_text("utf-8", "replace")
            one.leaked += [f"{what} in {step}" for what, secret in own.items() if secret in text]
            for mark in set(MARK.findall(text)) - ({world.mark(RANGE[name])} if name else set()):
                if mark in marks:
                    found[marks[mark]].harmed.append(f"{step} of {student} carries its mark")
            if path.suffix == ".html":
                pages += 1
                one.leaked += sorted({f"an active page: {what}" for what in active(text)})
            if one.kind in ("sabotage", "") and len(text) > FLOOD:
                one.harmed.append(f"{path.name} has {len(text) >> 20} MiB")
    if not name and not pages:
        one.harmed.append(f"{student}: no feedback")


def _all_files(folder):
    return [Path(place, name) for place, _, names in os.walk(folder) for name in names if Path(place, name).is_file()]


def active(html):
    """What of a page carries an attack's mark and would act: scripts, and everything that loads or sends."""
    for tag in BeautifulSoup(html, "html.parser").find_all(True):
        words = {key: " ".join(value) if isinstance(value, list) else str(value) for key, value in tag.attrs.items()}
        if tag.name in ("script", "style") and MARK.search(tag.text) and not words.get("type", "").endswith("json"):
            yield f"<{tag.name}>"
        for key, value in words.items():
            if MARK.search(value) and _acts(tag.name, key, value):
                yield f"<{tag.name} {key}>"


def _acts(tag, key, value):
    if key == "href" and tag == "a":
        return not re.match(r"\s*(https?:|#|mailto:)", value, re.IGNORECASE)
    return key.startswith("on") or key in LOADING or "href" in key


# ---- the machine and the others --------------------------------------------------------------------------------------


def _judge_places(found, world, marks):
    """Files that should not be there, and files that should be as they were."""
    for place in ("/tmp", "/dev/shm", "/var/tmp"):
        for name in os.listdir(place):
            for mark in MARK.findall(name):
                if mark in marks:
                    found[marks[mark]].harmed.append(f"a file in {place}")
    for path in _all_files(Path(world.root, "home")):
        for mark in MARK.findall(f"{path} {path.read_bytes()[:65536].decode('latin-1')}"):
            if mark in marks:
                found[marks[mark]].harmed.append(f"{path.name} in the home directory")
    after = digests(world.root)
    for path in sorted(set(after) | set(world.files)):
        if after.get(path) != world.files.get(path):
            what = "changed" if path in after and path in world.files else "gone" if path in world.files else "new"
            guilty = [marks[mark] for mark in MARK.findall(path) if mark in marks]
            guilty += [name for student, name in world.students.items() if name and f"/{student}/" in path]
            found[guilty[0] if guilty else ""].harmed.append(f"{path} is {what}")


def _judge_tables(found, world, marks):
    for path in Path(world.root, "autograde").rglob("*.csv"):
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            cells = [text for row in csv.reader(file) for text in row]
        for text in cells:
            guilty = [marks[mark] for mark in MARK.findall(text) if mark in marks] or [""]
            if re.match(r"[=+\-@\t\r]", text) and not re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?", text):
                found[guilty[0]].leaked.append(f"a formula in {path.name}")
    for path in (*Path(world.root, "autograde").glob("*.jsonl"), *Path(world.root, "autograde").rglob("*.csv")):
        text = path.read_text("utf-8", "replace")
        for what, secret in world.canaries.items():
            if secret in text and not (what == "the gradebook" and path.suffix == ".csv"):
                found[""].leaked.append(f"{what} in {path.name}")


def _judge_runs(found, world, marks):
    everything = results(world.root)
    for run in everything:
        what = run["command"]
        if run["code"] is None:
            found[""].harmed.append(f"{what}: not done after {run['seconds']:g} s")
        elif run["code"] < 0 or "Traceback (most recent call last)" in run["output"]:
            found[""].harmed.append(f"{what}: ended with {run['code']}, or a traceback")
        if run.get("mib", 0) > MEMORY:
            found[""].harmed.append(f"{what}: used {run['mib']} MiB at once")
        for line in run["output"].splitlines():
            for mark in MARK.findall(line) if re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", line) else ():
                if mark in marks:
                    found[marks[mark]].harmed.append("control codes in the grader's output")
    said = "\n".join(run["output"] for run in everything)
    for student, name in world.students.items():
        if name and RANGE[name].refused and student not in said:
            found[name].lost.append("the grader says nothing of it")
