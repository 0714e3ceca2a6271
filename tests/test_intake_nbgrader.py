"""Plain nbgrader and formgrader grade staged submissions only: what is bad is named, and nothing else is opened."""

import os
import subprocess
import sys
import threading

import nbformat
import pytest
from nbgrader.apps.api import NbGraderAPI
from nbgrader.converters import Autograde

from autograde import grade as grading
from autograde import intake
from autograde.course import ROOT, course_directory, load_config, run_step
from autograde.intake import around
from tests import sample_course

ODD_NAME = "O'Neil, [x] {student_id} %s *"


def a_class(root):
    """A course with good submissions among bad ones."""
    sample_course.make_course(root)
    with (root / "nbgrader_config.py").open("a") as config:
        config.write('c.Autograde.autograde_preprocessors = ["nbgrader.preprocessors.SaveAutoGrades"]\n')
        config.write("from autograde.intake import install\ninstall()\ninstall()\n")
    grading.register_all(root, ["sample"])
    good = nbformat.writes(sample_course.read(root))
    submitted = root / "autograde" / "submitted"
    for student, name, data in (
        ("ada", "sample.ipynb", "\ufeff" + good),
        ("bob", "mine.ipynb", good),
        ("bad", "sample.ipynb", "{oops"),
        ("two\nlines", "sample.ipynb", good),
        ("zoe", "sample.ipynb", good),
        (ODD_NAME, "sample.ipynb", good),
    ):
        (submitted / student / "sample").mkdir(parents=True)
        (submitted / student / "sample" / name).write_text(data, encoding="utf-8")
    os.mkfifo(submitted / "ada" / "sample" / "helpers.py")  # nbgrader would copy it, and wait for ever
    (submitted / "bob" / "sample" / "secret.txt").symlink_to("/etc/passwd")
    (submitted / "zoe" / "sample" / "timestamp.txt").write_text("soon")
    (submitted / "link").symlink_to("ada")
    (submitted / "pipe" / "sample").mkdir(parents=True)
    os.mkfifo(submitted / "pipe" / "sample" / "sample.ipynb")
    return root


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return a_class(tmp_path_factory.mktemp("intake"))


SENTENCES = [
    "bad, sample: sample.ipynb is not valid JSON (line 1: ",
    "link, sample: the folder link is a link: nothing in it is looked at",
    "pipe, sample: sample.ipynb is a pipe, not a file",
    "'two\\nlines', sample: 'two\\nlines' cannot be the name of a student",
    "ada, sample: sample.ipynb began with a byte-order mark",
    "bob, sample: there is no sample.ipynb; mine.ipynb was taken for it",
    "zoe, sample: timestamp.txt holds no time that can be read: soon",
]


def graded(root):
    found = sorted((root / "autograde" / "autograded").glob("*/*/*"))
    return [str(path.relative_to(root / "autograde" / "autograded")) for path in found]


GRADED = [
    f"{ODD_NAME}/sample/sample.ipynb",
    "ada/sample/sample.ipynb",
    "bob/sample/sample.ipynb",
    "zoe/sample/sample.ipynb",
]


def run_python(course, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=course, env=environment, text=True, capture_output=True, timeout=600
    )


def test_plain_nbgrader_grades_the_good_and_names_the_bad(course):
    """Does plain `nbgrader autograde` grade what can be graded, name what cannot, and copy no file of a learner's?"""
    done = run_python(course, "-m", "nbgrader", "autograde", "sample", "--force")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr[-3000:]
    assert not [sentence for sentence in SENTENCES if sentence not in done.stderr], done.stderr
    assert graded(course) == GRADED


def test_formgrader_takes_the_same_way(course):
    """Does formgrader's Autograde stage first, too, and does its list neither fail at nor wait for an odd timestamp?"""
    os.mkfifo(course / "autograde" / "submitted" / "pipe" / "sample" / "timestamp.txt")
    config = load_config(course)
    answers = []

    def press():
        api = NbGraderAPI(coursedir=course_directory(config), config=config)
        answers.extend(api.autograde("sample", student) for student in ("zoe", "bad"))
        answers.append([(one["student"], one["timestamp"]) for one in api.get_submissions("sample")])

    worker = threading.Thread(target=press, daemon=True)
    worker.start()
    worker.join(120)
    good, bad, shown = answers
    assert good["success"] and not bad["success"]
    assert "bad, sample: sample.ipynb is not valid JSON" in bad["log"]
    assert {("pipe", None), ("zoe", None)} <= set(shown)


def test_around_stages_once(course):
    """Does the class that `around` gives stage, once however often it is applied, and not if it opts out?"""
    config = load_config(course)
    staging = around(Autograde)
    assert around(staging) is staging
    worked, log = run_step(staging, config, "sample", "bob")
    assert worked and log.count("mine.ipynb was taken for it") == 1
    plain = type("Plain", (staging,), {"stages_first": False})
    worked, log = run_step(plain, config, "sample", "bob")
    assert not worked and "was taken for it" not in log


def test_students_are_found_by_name_or_pattern(course):
    """Does a student's exact name find one folder, a pattern several, and a file or hidden folder none?"""
    directory = course_directory(load_config(course))
    directory.assignment_id = "sample"
    (course / "autograde" / "submitted" / "notes.txt").touch()
    (course / "autograde" / "submitted" / ".hidden" / "sample").mkdir(parents=True)

    def found(pattern):
        directory.student_id = pattern
        return [path.parent.name for path in intake._submitted(directory)]

    assert found("*") == [ODD_NAME, "ada", "bad", "bob", "link", "pipe", "two\nlines", "zoe"]
    assert (found("b*"), found("bob"), found("nobody")) == (["bad", "bob"], ["bob"], [])
    directory.student_id_exclude = "ada,bad"
    assert found("?a?") == []
    directory.assignment_id = "../submitted/ada/sample"
    assert found("*") == []
