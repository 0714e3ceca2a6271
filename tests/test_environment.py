"""One set of pins rules pip, conda and the report of start_here."""

import re
import tomllib
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from packaging.requirements import Requirement

from utils import environment
from utils.environment import normal, read_pins, report, shadows, version_problems

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf8")
PINS = read_pins(ROOT / "requirements.lock")
ASKED = [
    Requirement(line) for line in [*PROJECT["dependencies"], *(line for extra in EXTRAS.values() for line in extra)]
]
OF_CUDA = re.compile(r"nvidia-|cuda-|triton")  # torch brings those that fit its build


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_every_dependency_is_pinned_to_a_version_it_allows(asked):
    """Does the lock hold this dependency, in a version that pyproject accepts?"""
    assert normal(asked.name) in PINS
    assert asked.specifier.contains(PINS[normal(asked.name)])


def test_the_lock_is_complete():
    """Is everything pinned that our dependencies bring along, so that nothing floats?"""
    seen, open_ = set(), [(normal(asked.name), frozenset(asked.extras)) for asked in ASKED]
    while open_:
        name, extras = open_.pop()
        if (name, extras) in seen or OF_CUDA.match(name):
            continue
        seen.add((name, extras))
        for need in map(Requirement, metadata.requires(name) or []):
            marker = need.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ["", *extras]):
                open_.append((normal(need.name), frozenset(need.extras)))
    assert {name for name, _ in seen} - set(PINS) == set()


def test_each_line_of_the_lock_is_a_plain_pin():
    """Can the lock be used with -r and -c on any machine: no address, hash, local tag, or package of one GPU vendor?"""
    lines = [line for line in LOCK.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line) for line in lines)
    assert not any(OF_CUDA.match(normal(line)) for line in lines)
    assert len(lines) == len({line.split("==")[0].lower() for line in lines})


def test_torch_is_the_version_the_course_was_written_for():
    """Is torch pinned to 2.13.0, in the project and in the lock?"""
    assert PINS["torch"] == "2.13.0"
    assert "torch==2.13.0" in PROJECT["dependencies"]


def test_the_gradebook_is_pinned_to_a_quiet_version():
    """SQLAlchemy 2.1 prints a warning for each query of nbgrader: is it kept at 2.0?"""
    assert PINS["sqlalchemy"].startswith("2.0.")


def test_conda_installs_the_same_pins():
    """Does environment.yml add nothing of its own: Python, pip, and pip reading our lock and our project?"""
    file = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf8"))
    python, pip, block = file["dependencies"]
    assert pip == "pip" and list(block) == ["pip"]
    version = re.fullmatch(r"python=(3\.\d+)", python).group(1)
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(version)
    constraint, editable = block["pip"]
    assert constraint == "-c requirements.lock"
    extras = re.fullmatch(r"-e \.\[([\w,]+)\]", editable).group(1).split(",")
    assert set(extras) == set(EXTRAS)


@pytest.mark.parametrize("name", ["pyproject.toml", "requirements.lock", "environment.yml"])
def test_no_address_is_written_into_the_pins(name):
    """Can everybody install from the registry of their choice?"""
    text = (ROOT / name).read_text(encoding="utf8")
    assert not re.search(r"https?://|git\+|file:|index-url|find-links|pypi\.org|pytorch\.org| @ ", text)


# ---- what start_here shows -------------------------------------------------------------------------


def test_a_set_up_that_followed_the_lock_has_no_problem():
    """Does the report find this very environment, made by `make test`, in order?"""
    found = report()
    assert found.problems == []
    assert found.facts["torch"].startswith("2.13.0")
    assert "everything is as the course expects" in str(found) and "everything is" in found._repr_html_()


@pytest.mark.parametrize(
    ("name", "there", "said"),
    [
        ("numpy", "1.26.4", f"numpy is 1.26.4, the course was tested with {PINS['numpy']}"),
        ("nbgrader", None, f"nbgrader is missing (the course was tested with {PINS['nbgrader']})"),
        ("torch", "2.11.0+cu126", "torch is 2.11.0+cu126, the course was tested with 2.13.0"),
    ],
)
def test_a_wrong_version_comes_with_its_repair(name, there, said):
    """Is a package that differs named, with a command that can be pasted?"""
    problems = version_problems(PINS, ROOT, lambda other: there if other == name else PINS[other])
    assert [problem.what for problem in problems] == [said]
    assert problems[0].repair.endswith("-m pip install -c requirements.lock -e .")
    assert str(ROOT) in problems[0].repair


@pytest.mark.parametrize(("name", "there"), [("torch", "2.13.0+cpu"), ("torch", "2.13.0+cu130"), ("ruff", None)])
def test_what_does_not_matter_is_not_reported(name, there):
    """Are local tags of torch, and tools that only authors need, left in peace?"""
    assert version_problems(PINS, ROOT, lambda other: there if other == name else PINS[other]) == []


def test_a_course_that_is_not_installed_is_reported(monkeypatch):
    """Is it said when only the folder is there, and not the package?"""
    monkeypatch.setattr(environment, "COURSE", "no-such-package")
    (problem,) = version_problems(PINS, ROOT)
    assert "not installed" in problem.what and "pip install" in problem.repair


def test_a_foreign_utils_is_recognised(tmp_path):
    """The name utils is common: is another package of that name noticed?"""
    foreign = SimpleNamespace(__file__=str(tmp_path / "utils" / "__init__.py"))
    (problem,) = shadows(ROOT, foreign)
    assert str(tmp_path / "utils") in problem.what and "restart the kernel" in problem.repair


def test_another_copy_of_the_course_is_recognised(tmp_path):
    """Two clones: is it said that the code comes from the other one?"""
    other = SimpleNamespace(__file__=str(tmp_path / "utils" / "__init__.py"), COURSE="transformer-workbook")
    (problem,) = shadows(ROOT, other)
    assert "another copy" in problem.what and "make learn" in problem.repair


@pytest.mark.parametrize("file", ["utils.py", "utils/__init__.py"])
def test_a_file_that_would_hide_ours_is_found(tmp_path, file):
    """A learner saved utils.py beside a notebook: does start_here say so before the import fails there?"""
    path = tmp_path / "my_work" / "phase2_attention" / file
    path.parent.mkdir(parents=True)
    path.write_text("")
    module = SimpleNamespace(__file__=str(tmp_path / "utils" / "__init__.py"), COURSE="transformer-workbook")
    (problem,) = shadows(tmp_path, module)
    assert f"phase2_attention/{file}" in problem.what and "another name" in problem.repair


def test_a_rival_package_is_found(monkeypatch):
    """Did some other installed package bring a top-level utils?"""
    monkeypatch.setattr(metadata, "packages_distributions", lambda: {"utils": ["Python_Utils", "transformer-workbook"]})
    (problem,) = shadows(ROOT)
    assert "python-utils" in problem.what and problem.repair.endswith("pip uninstall --yes python-utils")


def test_the_report_survives_outside_the_course(monkeypatch, tmp_path):
    """Is there a plain answer where the lock cannot be found?"""
    monkeypatch.setattr(environment, "course_root", lambda: tmp_path)
    (problem,) = report().problems
    assert "requirements.lock" in problem.what
