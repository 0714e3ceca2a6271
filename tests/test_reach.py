"""Colab, Codespaces and VS Code: the same pins from one definition, and nothing that only JupyterLab has."""

import json
import re
import subprocess
import sys
import tomllib
import types

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from typer.testing import CliRunner

from autograde import colab
from autograde.build import BuildError, render
from autograde.cli import app
from autograde.course import ROOT
from autograde.release import _pyproject
from utils import cli
from utils import colab as on_colab

PAGE = "https://github.com/somebody/transformer-workbook"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"]
INSTALL = "pip install -c requirements.lock -e ."


# ---- Codespaces and VS Code ----------------------------------------------------------------------


def test_codespaces_install_what_make_installs():
    """Does the container hold the Python of environment.yml, the pins of the Makefile, the port of `workbook learn`?"""
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text("utf8"))
    python = re.search(r"python=([\d.]+)", (ROOT / "environment.yml").read_text("utf8"))[1]
    assert container["image"] == f"mcr.microsoft.com/devcontainers/python:{python}"
    assert PROJECT["requires-python"] == f">={python}"
    assert container["postCreateCommand"] == f"{INSTALL} && workbook update"
    assert "--constraint requirements.lock" in (makefile := (ROOT / "Makefile").read_text("utf8"))
    assert "--editable ." in makefile and INSTALL in (ROOT / "README.md").read_text("utf8")
    assert PROJECT["scripts"]["workbook"] == "utils.cli:app" and callable(cli.update_command)
    port = re.search(r"port: int = typer.Option\((\d+)", (ROOT / "utils" / "cli.py").read_text("utf8"))[1]
    assert container["forwardPorts"] == [int(port)]
    opened = container["customizations"]["codespaces"]["openFiles"]
    assert [(ROOT / "notebooks" / path.removeprefix("my_work/")).is_file() for path in opened] == [True]
    assert set(container) <= {"name", "image", "postCreateCommand", "forwardPorts", "customizations"}


ONLY_IN_LAB = re.compile(
    r"\bJavascript\(|Jupyter\.notebook|IPython\.notebook|jupyterapp|labextension|%matplotlib (widget|notebook)|"
    r"%%(javascript|js)|\bipympl\b|application/javascript|<script",
)


def test_nothing_a_learner_runs_is_only_in_jupyterlab():
    """Can every lesson, page and module also run in VS Code and Colab, without a script or an extension of Lab's?"""
    files = [*(ROOT / "utils").rglob("*.py"), *(ROOT / "solutions").glob("*/*.py")]
    found = {path.relative_to(ROOT).as_posix() for path in files if ONLY_IN_LAB.search(path.read_text("utf8"))}
    assert found == set() and len(files) > 100
    assert not [line for line in PROJECT["dependencies"] if re.match(r"jupyterlab[-_]|ipympl|nbclassic", line)]


# ---- the address of the course -------------------------------------------------------------------


@pytest.fixture
def course(tmp_path):
    """A folder with our pyproject.toml, without an address."""
    text = re.sub(r"(?m)^Repository = .*\n", "", (ROOT / "pyproject.toml").read_text("utf8"))
    (tmp_path / "pyproject.toml").write_text(text)
    return tmp_path


@pytest.mark.parametrize("given", [PAGE, f"{PAGE}.git", f"{PAGE}/", "git@github.com:somebody/transformer-workbook.git"])
def test_the_address_is_written_once(course, given):
    """Is it in pyproject.toml in the form everybody can clone, once, and is the file still the project's?"""
    assert colab.address(course) is None
    for _ in range(2):
        assert colab.set_address(course, given) == colab.address(course) == PAGE
    assert colab.set_address(course, PAGE.replace("somebody", "else")) == colab.address(course)
    text = (course / "pyproject.toml").read_text()
    assert text.count("Repository = ") == text.count("[project.urls]") == 1
    assert {**tomllib.loads(text)["project"], "urls": 0} == {**PROJECT, "urls": 0}
    assert "urls" in tomllib.loads(_pyproject(text))["project"], "a class's copy knows it, too"


def test_the_command_takes_the_remote_or_says_what_is_missing(course):
    """`autograde address`: from git's origin or an argument; elsewhere than GitHub, or nowhere, a sentence?"""

    def run(*words):
        result = CliRunner().invoke(app, ["address", "--course", str(course), *words])
        return result.exit_code, " ".join(result.output.split())

    assert run()[0] == 1 and "git knows no remote" in run()[1]
    subprocess.run(["git", "init", "--quiet", str(course)], check=True)
    for where, code, said in ((course, 1, "is not on GitHub"), (PAGE, 0, "google.com/github/somebody/transformer-w")):
        subprocess.run(["git", "-C", str(course), "remote", "remove", "origin"], capture_output=True)
        subprocess.run(["git", "-C", str(course), "remote", "add", "origin", str(where)], check=True)
        assert (answer := run())[0] == code and said in answer[1]
    assert run("https://example.org/x")[0] == 1 and colab.address(course) == PAGE


def test_notebooks_have_the_cell_if_there_is_an_address():
    """Is the cell before the first code cell, folded; and is there none in a course without an address?"""
    cells = [new_markdown_cell("# Title"), new_code_cell("import math")]
    notebook = colab.add_cell(new_notebook(cells=[*cells]), PAGE)
    assert [cell.id for cell in notebook.cells] == [cells[0].id, "on-colab", cells[1].id]
    assert PAGE in notebook.cells[1].source and notebook.cells[1].metadata.jupyter.source_hidden
    assert len(notebook.cells[1].source.splitlines()) <= 25
    nbformat.validate(notebook)
    assert colab.add_cell(new_notebook(cells=[*cells]), None).cells == cells
    here = colab.address(ROOT)
    for path in (ROOT / "notebooks").rglob("*.ipynb"):
        ours = [cell for cell in nbformat.read(path, as_version=4).cells if cell.id == "on-colab"]
        assert [cell.source for cell in ours] == [add.source for add in _cell(here)]


def test_a_build_puts_the_cell_into_what_it_builds(course):
    """With an address, does the built page fetch the course; with one that Colab cannot open, is there a sentence?"""
    page = course / "solutions" / "pages" / "hello.py"
    page.parent.mkdir(parents=True)
    page.write_text("# %% [markdown]\n# # Hello\n\n# %%\n1 + 1\n")

    def built():
        (content,) = render(course, ["hello"]).files.values()
        return [cell["source"] for cell in json.loads(content)["cells"]]

    assert len(built()) == 2
    colab.set_address(course, PAGE)
    assert PAGE in "".join(built()[1]) and len(built()) == 3
    pins = course / "pyproject.toml"
    pins.write_text(pins.read_text().replace(PAGE, "https://example.org/course"))
    with pytest.raises(BuildError, match="not on GitHub"):
        built()


def _cell(repository):
    return colab.add_cell(new_notebook(), repository).cells


# ---- on Colab, without Colab and without a network -----------------------------------------------


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Runs the cell as Colab would: a fake google.colab, a repository on disk, and a pip that only writes down."""
    origin, asked = tmp_path / "origin", []
    (origin / "notebooks").mkdir(parents=True)
    (origin / "notebooks" / "page.ipynb").write_text("{}")
    for name in ("pyproject.toml", "requirements.lock"):
        (origin / name).write_bytes((ROOT / name).read_bytes())
    git = ["git", "-C", str(origin), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "course"]):
        subprocess.run([*git, *words], check=True)
    real = subprocess.run

    def run(command, **options):
        asked.append([str(word) for word in command])
        return real(command, **options) if command[0] == "git" else types.SimpleNamespace(returncode=machine.pip)

    def machine(colab_is_there=True, repository=f"file://{origin}"):
        (cell,) = _cell(PAGE)
        source = cell.source.replace(PAGE, str(repository)).replace("/content", str(tmp_path / "content"))
        if colab_is_there:
            monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
        exec(compile(source, "cell", "exec"), {})
        return asked

    machine.pip, machine.clone = 0, tmp_path / "content" / "transformer-workbook"
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    return machine


def test_anywhere_else_the_cell_does_nothing(machine, capsys):
    """Without google.colab: is nothing fetched, installed or said?"""
    assert machine(colab_is_there=False) == [] and capsys.readouterr() == ("", "")


def test_on_colab_the_course_is_fetched_and_installed_with_its_pins(machine, capsys):
    """Clone, pip with the lock, notebooks at hand; a second run installs nothing again?"""
    clone, packages, package = machine()
    assert clone[:2] == ["git", "clone"] and sys.path[0] == str(machine.clone)
    assert packages[1:7] == ["-m", "pip", "install", "--quiet", "-c", str(machine.clone / "requirements.lock")]
    asked, kept = set(packages[7:]), on_colab.FRONT_END
    assert asked < set(PROJECT["dependencies"]) and {"torch==2.13.0", "numpy>=2"} <= asked
    assert {re.match(r"[\w-]+", line).group() for line in set(PROJECT["dependencies"]) - asked} == kept
    assert package[-3:] == ["--no-deps", "-e", str(machine.clone)]
    said = capsys.readouterr().out
    assert "The course is ready" in said and "colab.research.google.com/github/somebody" in said
    assert len(machine()) == 3


def test_without_a_network_the_cell_says_so(machine, capsys):
    """No repository, then no packages: a plain sentence each, no traceback, and a later run makes good?"""
    machine(repository="file:///nowhere/at/all")
    assert "could not be fetched from file:///nowhere" in capsys.readouterr().out
    machine.pip = 1
    machine()
    assert "could not be installed. Is there a network?" in capsys.readouterr().out
    machine.pip = 0
    machine()
    assert "The course is ready" in capsys.readouterr().out


def test_a_module_that_is_too_old_asks_for_a_restart(machine, capsys, monkeypatch):
    """numpy was imported before the pinned one came: is the learner told what to do?"""
    monkeypatch.setitem(sys.modules, "numpy", types.SimpleNamespace(__version__="1.26.4"))
    machine()
    assert "In use in another version: numpy. Choose Runtime > Restart session" in capsys.readouterr().out
