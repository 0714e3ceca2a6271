"""The two commands of the README, and what surrounds them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def clone(tmp_path):
    """The files that the set-up reads, and nothing else."""
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def make(clone, *words, path=None):
    env = {**os.environ, "PATH": path or os.environ["PATH"], "MAKEFLAGS": ""}
    return subprocess.run([shutil.which("make"), *words], cwd=clone, env=env, capture_output=True, text=True)


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_the_set_up_runs_again_only_when_the_pins_change(clone):
    """A second `make learn` installs nothing; a new lock does. The tools of authors include a learner's packages?"""
    log = clone / "log"
    python = script(clone / ".venv" / "bin" / "python", f'echo "$@" >> {log}')

    def installs(goal):
        log.write_text("")
        assert make(clone, goal).returncode == 0
        return log.read_text()

    assert "install --constraint requirements.lock --editable .\n" in installs(".venv/learn.stamp")
    assert installs(".venv/learn.stamp") == ""
    assert "--editable .[dev,grading,cluster,postgres,corpora,anki]\n" in installs(".venv/dev.stamp")
    later = (clone / ".venv" / "dev.stamp").stat().st_mtime + 5
    os.utime(clone / "requirements.lock", (later, later))
    assert installs(".venv/learn.stamp").count("install") == 1
    assert python.exists()


def test_a_failed_install_is_tried_again(clone):
    """The network broke off: is no stamp left that says all is well?"""
    script(clone / ".venv" / "bin" / "python", "exit 3")
    assert make(clone, ".venv/learn.stamp").returncode != 0
    assert not (clone / ".venv" / "learn.stamp").exists()


def test_an_old_python_is_passed_over(clone, tmp_path):
    """python3 is too old, but a newer one is there: is the newer one taken?"""
    script(tmp_path / "bin" / "python3", "exit 1")
    script(tmp_path / "bin" / "python3.13", "exit 1")
    (tmp_path / "bin" / "python3.12").symlink_to(sys.executable)
    plan = make(clone, "-n", "learn", path=f"{tmp_path / 'bin'}:/usr/bin:/bin").stdout
    assert "python3.12 -m venv .venv" in plan


def test_no_python_at_all_is_said_plainly(clone):
    """Nothing new enough: does the reader learn what to install?"""
    result = make(clone, "learn", "PYTHON=")
    assert result.returncode != 0 and "No Python 3.11 or newer" in result.stdout
    assert "Traceback" not in result.stdout + result.stderr


def test_make_test_checks_style_before_it_tests(clone):
    """Does `make test` run ruff twice (rules, layout) and then everything that is not slow?"""
    plan = make(clone, "-n", "test").stdout
    steps = [plan.index(step) for step in ("ruff check", "ruff format --check", 'pytest -m "not slow"')]
    assert steps == sorted(steps)


def test_clean_keeps_what_a_learner_wrote(clone):
    """Does `make clean` remove caches and leave my_work/ and .venv/ alone?"""
    kept = [script(clone / name, "") for name in ("my_work/a.ipynb", ".venv/lib/__pycache__/a.pyc")]
    gone = [script(clone / name, "") for name in ("utils/__pycache__/a.pyc", ".ruff_cache/a", "build/a")]
    assert make(clone, "clean").returncode == 0
    assert all(path.exists() for path in kept) and not any(path.parent.exists() for path in gone)


def test_ci_installs_what_it_needs_and_then_tests():
    """Is .ci/run a valid, executable script that ends in `make test`, in CI mode?"""
    path = ROOT / ".ci" / "run"
    assert os.access(path, os.X_OK)
    assert subprocess.run(["bash", "-n", str(path)]).returncode == 0
    text = path.read_text()
    assert all(package in text for package in ("chromium", "bubblewrap", "fonts-dejavu-core", "make", "python3-venv"))
    assert text.index("apt-get update") < text.index("apt-get install")
    assert text.rstrip().endswith("export CI=true\nmake test")


@pytest.mark.parametrize(("ci", "passes"), [("true", False), ("", True)])
@pytest.mark.parametrize(
    "source",
    [
        'import pytest\ndef test_one():\n    pytest.skip("no browser")',
        'import pytest\npytest.importorskip("no_such_module")\ndef test_one():\n    pass',
    ],
)
def test_a_skipped_test_fails_in_ci(tmp_path, ci, passes, source):
    """Nothing is skipped in silence: does a skip turn into a failure where CI=true, and only there?"""
    (tmp_path / "test_it.py").write_text(source + "\n\ndef test_two():\n    assert True\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "--rootdir", tmp_path]
    env = {**os.environ, "CI": ci, "PYTHONPATH": str(ROOT)}
    result = subprocess.run([*command, tmp_path / "test_it.py"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (result.returncode in (0, 5)) == passes, result.stdout
    assert ("and in CI nothing may be" in result.stdout) != passes


def test_hooks_need_no_network():
    """Does pre-commit run only what the set-up has installed?"""
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    assert text.count("repo: local") == text.count("repo:") == 1
    assert text.count("language: system") == text.count("- id:") == 2
