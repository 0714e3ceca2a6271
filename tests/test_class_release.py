"""The class zip: does it check a learner's work word for word as we do, with no answer inside?"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path, PurePosixPath

import nbformat
import pytest
from nbclient import NotebookClient

from autograde import release as releasing
from autograde.course import ROOT
from autograde.hidden.phase2_attention import HIDDEN
from autograde.kill_matrix import solution_cells
from autograde.release import ReleaseError, class_files, leaks, release, telling_lines, zipped
from tests import bank
from utils.checks import EXERCISES, evaluate, stored
from utils.checks.verdict import Exam

PHASE = "phase2_attention"
NAMES = [name for name, exercise in EXERCISES.items() if exercise.phase == PHASE]
EARLIER = ["phase1_text_to_tensors"]
EXAMS = f"utils/checks/exams/{PHASE}"


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch):
    """What is compared are verdicts: a busy machine must not end one of the two checks early."""
    monkeypatch.setattr("utils.checks.verdict.BUDGET", float("inf"))


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The zip itself."""
    return release(ROOT, PHASE, tmp_path_factory.mktemp("zip") / "class.zip")


@pytest.fixture(scope="module")
def folder(package, tmp_path_factory):
    """The zip, unpacked far from the course."""
    place = tmp_path_factory.mktemp("learner")
    zipfile.ZipFile(package).extractall(place)
    return place / "transformer-workbook"


@pytest.fixture(scope="module")
def files(package):
    """{path: content} of the zip."""
    archive = zipfile.ZipFile(package)
    return {name.removeprefix("transformer-workbook/"): archive.read(name) for name in archive.namelist()}


def some_of_the_bank(name):
    """Up to 6 wrong and 2 right solutions from all over the bank."""
    wrong, right = bank.WRONG.get(name, []), bank.RIGHT.get(name, [])
    chosen = [*wrong[:: -(-len(wrong) // 6)], *right[:: -(-len(right) // 2)]]
    return {entry.label: entry.obj for entry in chosen}


@pytest.fixture(scope="module")
def seen(folder, tmp_path_factory):
    """What a Python that finds nothing else of the course sees in the unpacked release (tests/class_probe.py)."""
    place = tmp_path_factory.mktemp("bank")
    others = shutil.ignore_patterns("__pycache__", "*phase[13-7]*", "blocks_parts.py")
    shutil.copytree(ROOT / "tests" / "bank", place / "tests" / "bank", ignore=others)
    probe = shutil.copy(ROOT / "tests" / "class_probe.py", place)
    asked = {"cells": solution_cells(PHASE), "labels": {name: list(some_of_the_bank(name)) for name in NAMES}}
    command = [sys.executable, "-I", probe, str(folder), str(place)]
    run = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, cwd=place)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


# ---- it checks as the course does


def test_it_is_the_release_that_was_asked(seen, folder):
    """Did the answers come from the unpacked package, without a twin, a live check or anything of the instructor's?"""
    assert Path(seen["utils"]) == folder / "utils" / "__init__.py"
    pattern = r"^(autograde|solutions)|(oracle|checks)\.phase[2-7]"
    telling = [name for name in seen["modules"] if re.search(pattern, name)]
    assert sorted(telling) == ["utils.checks.phase2", "utils.checks.phase2.rules"]


def test_exercises_keep_names_sections_and_order(seen):
    """Do messages, `need` and the map find every exercise where it was?"""
    here = {name: where for name, where in seen["exercises"].items() if where[1] == PHASE}
    assert list(here) == NAMES and here == {name: [EXERCISES[name].section, PHASE] for name in NAMES}
    assert {phase for _, phase in seen["exercises"].values()} == {PHASE, *EARLIER}


def test_a_blank_stub_is_not_implemented_yet(seen):
    """Does each of the released notebook's blank cells get the friendly line?"""
    assert [name for name in seen["blank"] if name in NAMES] == NAMES
    assert all(seen["blank"][name].startswith(f"✗ {name} · not implemented yet") for name in NAMES)


def test_the_solution_passes(seen):
    """Do all 16 solved cells get every point?"""
    assert (
        all(text.startswith(f"✓ {name} · 3/3") for name, text in seen["solved"].items()) and len(seen["solved"]) == 16
    )


@pytest.mark.slow
def test_wrong_and_unusual_answers_are_judged_as_by_us(seen):
    """Do score, likely mistake and message agree with the live check, for a sample of the bank?"""
    for name in NAMES:
        for label, obj in some_of_the_bank(name).items():
            live = evaluate(name, obj, own_twin_allowed=False)
            assert seen["bank"][name][label] == [live.score, live.likely, live.message], label


def test_what_needed_the_twins_does_without(seen):
    """Does `mine` say in a sentence that there is no stand-in, and does the figure of the lesson work?"""
    assert seen["without"] == {
        "mine": "the course's own sdpa is not part of this release",
        "painter": "query 'it' reads 'cat' most: weight on 'cat' = 0.523",
        "sdpa": False,
    }


# ---- it is a course to learn with


def test_it_holds_what_a_learner_needs(files):
    """Are notebooks, commands, pins and words of welcome there, and is it small?"""
    lessons = {
        "notebooks/start_here.ipynb",
        "notebooks/drills.ipynb",
        "notebooks/figures.ipynb",
        *(f"notebooks/{phase}/{phase}.ipynb" for phase in (PHASE, *EARLIER)),
    }
    assert {path for path in files if path.startswith("notebooks/")} == lessons
    assert all(files[path] == (ROOT / path).read_bytes() for path in lessons)
    assert files.keys() >= {"README.md", "LICENSE", "requirements.lock", "environment.yml", "utils/cli.py"}
    assert sum(len(content) for path, content in files.items() if path.endswith(".exam")) < 5_000_000
    readme = files["README.md"].decode()
    assert "make learn" in readme and f"my_work/{PHASE}/{PHASE}.ipynb" in readme and "{" not in readme
    assert "-e .\n" in files["environment.yml"].decode()


def test_its_project_is_that_of_learners(files, folder):
    """Does `make learn` install this package with the one command `workbook`, and are authors' targets gone?"""
    project = tomllib.loads(files["pyproject.toml"].decode())
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["project"]["dependencies"] == ours["dependencies"]
    assert project["project"]["scripts"] == {"workbook": "utils.cli:app"}
    assert project["tool"]["setuptools"]["packages"]["find"]["include"] == ["utils", "utils.*"]
    outside = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    dry = subprocess.run(["make", "-n", "learn"], cwd=folder, env=outside, capture_output=True, text=True)
    assert dry.returncode == 0 and "--editable ." in dry.stdout and dry.stdout.endswith(".venv/bin/workbook learn\n")
    assert subprocess.run(["make", "-n", "test"], cwd=folder, env=outside, capture_output=True).returncode != 0


def test_workbook_update_fills_my_work(folder):
    """Does the learner's command find its own folder and copy the notebooks?"""
    command = [sys.executable, "-c", "import utils.cli; utils.cli.app(['update'])"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    run = subprocess.run(command, cwd=folder.parent, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert (folder / "my_work" / PHASE / f"{PHASE}.ipynb").is_file()


@pytest.mark.slow
def test_the_solved_notebook_runs_in_it(folder):
    """Does the whole solved lesson run there from a fresh kernel, figures and all, every check full?"""
    notebook = nbformat.read(ROOT / "solutions" / PHASE / f"{PHASE}.ipynb", as_version=4)
    where = nbformat.v4.new_code_cell("import utils; print(utils.__file__)")
    notebook.cells.insert(0, where)
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "2"}
    place = folder / "notebooks" / PHASE
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(place)}}).execute(env=environment)
    printed = "".join(o.get("text", "") for cell in notebook.cells if "outputs" in cell for o in cell.outputs)
    assert printed.startswith(str(folder / "utils"))
    assert all(re.search(rf"✓ {name} · (\d+)/\1\b", printed) for name in NAMES)


DRILL = """
import json, sys
sys.path.insert(0, sys.argv[1])
from utils.drills import load_cards
from utils.drills.replies import Unclear, ask, judge
cards = {card.exercise: card for card in load_cards()}
said = {"kinds": sorted({card.kind for card in cards.values()}), "twists": [n for n, c in cards.items() if c.twist]}
for name, source in json.load(sys.stdin).items():
    try:
        verdict = judge(ask(cards[name], 0), source)
        said[name] = [verdict.score, verdict.text]
    except Unclear as error:
        said[name] = ["unclear", str(error)]
print(json.dumps(said))
"""


@pytest.mark.slow
def test_code_drills_work_in_it(folder, tmp_path):
    """On a code card: a verdict; what it leans on is the learner's own, or a sentence says what is missing?"""
    place = shutil.copytree(folder, tmp_path / "class", ignore=shutil.ignore_patterns("my_work"))
    cells = solution_cells(PHASE)
    asked = {name: cells[name] for name in ("masked_softmax", "attention_weights")}

    def drilled():
        home = {**os.environ, "TRANSFORMER_WORKBOOK_HOME": str(tmp_path / "home")}
        command = [sys.executable, "-I", "-c", DRILL, str(place)]
        run = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, env=home, cwd=tmp_path)
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout)

    said = drilled()
    assert said["kinds"] == ["code"] and said["twists"] == []
    assert said["masked_softmax"] == [1.0, "It passes its check."]
    assert said["attention_weights"][0] == "unclear" and "needs masked_softmax" in said["attention_weights"][1]
    mine = place / "my_work" / PHASE / f"{PHASE}.ipynb"
    mine.parent.mkdir(parents=True)
    shutil.copy(ROOT / "solutions" / PHASE / f"{PHASE}.ipynb", mine)
    assert drilled()["attention_weights"] == [1.0, "It passes its check."]


# ---- it gives nothing away


def test_nothing_of_the_answers_can_be_found_in_it(folder):
    """Does a plain search of the unpacked files find no line of a solution, a twin, a check or a hidden case?"""
    paths = [path for path in folder.rglob("*") if path.is_file() and "my_work" not in path.parts]
    text = "\n".join(path.read_bytes().decode("latin-1") for path in paths)
    secret = (
        "_softmax_backward_data",  # a twin
        "open_scores",
        "scores were not divided by √d_head",  # a known mistake
        "a mask per batch row and query",  # a case
        "QKV = dict",  # a hidden case
        "autograde.hidden.phase2",
        "BEGIN SOLUTION",
    )
    assert [line for line in secret if line in text or line.encode().decode("latin-1") in text] == []
    lines = {line.strip() for line in text.splitlines()}
    earlier = {line.strip() for line in (ROOT / "utils/oracle/phase1.py").read_text("utf-8").splitlines()}
    twins = {line.strip() for line in (ROOT / "utils/oracle/phase2.py").read_text("utf-8").splitlines()}
    assert not lines & twins - earlier - {
        "",
        "__all__ = [",
        '"""',
        ")",
        "]",
        "import torch",
        "from torch import nn",
        "import functools",
        "import operator",
        "super().__init__()",
        "return True",
        "return False",
        "def forward(self, x, attn_mask=None):",
        "with torch.enable_grad():",
    }
    assert not [path for path in folder.rglob("*") if path.name in ("autograde", "tests", "solutions", ".git")]


def planted(files, path, content):
    """What is found when this content is added to a file of the release, or to a new one."""
    content = content.encode() if isinstance(content, str) else content
    return leaks(ROOT, PHASE, {path: files.get(path, b"") + content})


@pytest.mark.parametrize(
    ("path", "content", "says"),
    [
        ("utils/oracle/phase2.py", "", "answers or checks"),
        ("utils/oracle/phase3_heads.py", "", "answers or checks"),
        ("utils/checks/phase2/masks.py", "", "answers or checks"),
        ("utils/checks/phase3/rules.py", "", "answers or checks"),
        ("autograde/hidden/phase2_attention.py", "", "nothing of this kind"),
        ("solutions/phase2_attention/phase2_attention.py", "", "nothing of this kind"),
        ("tests/bank/phase2_sdpa.py", "", "nothing of this kind"),
        (".git/config", "", "nothing of this kind"),
        ("utils/__pycache__/plots.cpython-311.pyc", "", "nothing of this kind"),
        ("notebooks/phase2_attention/phase2_attention.py", "", "nothing of this kind"),
        (
            "utils/plots/canvas.py",
            "\nopen_scores=scores.masked_fill(hidden&~nothing,float('-inf'))",
            "oracle/phase2.py",
        ),
        ("README.md", "\n# QKV = dict(q=(3, 2, 6, 5), k=(3, 2, 4, 5), v=(3, 2, 4, 8))", "a hidden case"),
        ("README.md", '\n"scores were not divided by √d_head": UNSCALED[0],', "phase2/dot_product.py"),
    ],
)
def test_what_must_not_be_in_it_is_found(files, path, content, says):
    """Is each kind of leak found, by the file's place or by a single line, however it is laid out?"""
    found = planted(files, path, content)
    assert says in "\n".join(found)


def test_a_solution_in_a_notebook_is_found(files):
    """Is a line of a solution found in a cell, in an output, and behind a comment sign?"""
    path = f"notebooks/{PHASE}/{PHASE}.ipynb"
    line = next(line for line, source in _solution_lines() if source == f"{PHASE}.py")
    for put in (
        lambda cell: cell.update(source=f"x = 1\n# {line}"),
        lambda cell: cell.update(outputs=[{"text": line}]),
    ):
        notebook = json.loads(files[path])
        put(notebook["cells"][5])
        assert f"a line of {PHASE}.py" in "\n".join(leaks(ROOT, PHASE, {path: json.dumps(notebook).encode()}))
    marked = files[path].replace(b"# YOUR CODE HERE", b"### BEGIN SOLUTION", 1)
    assert leaks(ROOT, PHASE, {path: marked}) == [f"{path}: a solution region or hidden tests"]


def _solution_lines():
    return [(line, source) for line, source in telling_lines(ROOT, PHASE).items()]


def test_every_solution_hidden_case_twin_and_check_has_telling_lines():
    """Is there enough of each kind to be recognised by, and does none of it stand in what is handed out anyway?"""
    sources = list(telling_lines(ROOT, PHASE).values())
    for source, least in ((f"{PHASE}.py", 50), ("a hidden case", 20), ("utils/oracle/phase2.py", 60)):
        assert sources.count(source) >= least, source
    assert sum(source.startswith("utils/checks/phase2/") for source in sources) > 400


@pytest.mark.parametrize("options", [{"hidden": True}, {"seed": 7}], ids=["hidden", "seed"])
def test_an_exam_of_a_grading_run_is_found(options):
    """Is a stored exam with hidden cases, or drawn from another seed than everybody's, refused?"""
    exercise = EXERCISES["causal_mask"]
    cases = (*exercise.visible, *(HIDDEN["causal_mask"] if "hidden" in options else ()))
    data = stored.store(Exam(exercise, cases, options.get("seed", 0)))
    found = leaks(ROOT, PHASE, {f"{EXAMS}/05_causal_mask.exam": data})
    assert found == [f"{EXAMS}/05_causal_mask.exam: not the visible cases as everybody draws them"]


def test_a_release_with_a_leak_is_not_written(monkeypatch, tmp_path, files):
    """Does `release` refuse, name the file, and leave nothing behind?"""
    twin = (ROOT / "utils/oracle/phase2.py").read_bytes()
    monkeypatch.setattr(releasing, "class_files", lambda *_: files | {"utils/answers.py": twin})
    with pytest.raises(ReleaseError, match=r"utils/answers\.py: a line of utils/oracle/phase2\.py"):
        release(ROOT, PHASE, tmp_path / "class.zip")
    assert list(tmp_path.iterdir()) == []


# ---- odds and ends


def test_the_zip_is_the_same_each_time(files, package):
    """Do the same files give the same bytes, in whatever order, and another content another date?"""
    assert zipped(dict(reversed(files.items()))) == package.read_bytes()
    other = zipfile.ZipFile(_written(package.with_name("other.zip"), zipped(files | {"LICENSE": b"another"})))
    dates = {info.date_time for archive in (zipfile.ZipFile(package), other) for info in archive.infolist()}
    assert len(dates) == 2  # one per zip: compiled files of the old release are never taken for fresh


def _written(path, content):
    path.write_bytes(content)
    return path


def test_what_cannot_be_released_is_refused_in_words(tmp_path):
    """Are an unknown phase, one without checks, and another course named?"""
    for phase in ("phase9_beyond", "start_here", "../phase2_attention"):
        with pytest.raises(ReleaseError, match="there is phase1_text_to_tensors"):
            release(ROOT, phase, tmp_path / "class.zip")
    with pytest.raises(ReleaseError, match="another course"):
        class_files(tmp_path, PHASE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "first"),
    [
        ("utils/plots/canvas.py", 0),
        ("utils/oracle/__init__.py", 0),
        ("utils/oracle/phase2.py", 3),
        ("utils/oracle/phase4/norms.py", 5),
        ("utils/checks/verdict.py", 0),
        ("utils/checks/phase2/__init__.py", 2),
        ("utils/checks/phase2/rules.py", 2),
        ("utils/checks/phase2/rules_masks.py", 2),
        ("utils/checks/phase2/masks.py", 3),
        ("utils/plots/phase5.py", 5),
        ("utils/widgets/phase.py", 0),
    ],
)
def test_a_later_class_gets_what_an_earlier_one_may_not_see(path, first):
    """From which phase on is a file handed out: twins and checks one phase late, rules and pictures in time?"""
    handed = [number for number in range(1, 8) if releasing._is_for_class(PurePosixPath(path), number)]
    assert handed == list(range(max(first, 1), 8))
