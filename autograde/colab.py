"""The way to Colab: where the course's repository is, and the cell with which a notebook fetches the course from there.

Its one definition is `Repository` under `[project.urls]` in pyproject.toml. Without it no notebook has the cell.
"""

import re
import subprocess
import tomllib
from pathlib import Path

from nbformat.v4 import new_code_cell

OPEN = "https://colab.research.google.com/github/"
GITHUB = re.compile(r"(?:https://|ssh://git@|git@)github\.com[/:]([\w.-]+)/([\w.-]+?)(?:\.git)?/?")
CELL = """# On Colab this fetches the course. Anywhere else it does nothing.
import sys

if "google.colab" in sys.modules:
    import pathlib
    import subprocess

    course, repository = pathlib.Path("/content/transformer-workbook"), "{address}"
    if not course.is_dir() and subprocess.run(["git", "clone", "--quiet", "--depth=1", repository, course]).returncode:
        print("The course could not be fetched from", repository)
        print("Is there a network? Is the repository open to you? Then run this cell again.")
    else:
        sys.path.insert(0, str(course))
        from utils.colab import set_up

        set_up(course, "{pages}")"""


class AddressError(Exception):
    """There is no address, or none that Colab can open; its text is the whole message."""


def address(root):
    """Where the course's repository is, or None."""
    path = Path(root, "pyproject.toml")
    if not path.is_file():
        return None
    return tomllib.loads(path.read_text(encoding="utf8")).get("project", {}).get("urls", {}).get("Repository")


def pages(repository):
    """Where Colab lists the notebooks of a repository on GitHub."""
    found = GITHUB.fullmatch(repository)
    if not found:
        raise AddressError(f"{repository} is not on GitHub, and Colab opens notebooks from there only.")
    return f"{OPEN}{found[1]}/{found[2]}"


def add_cell(notebook, repository):
    """Put the cell before the first code cell of a notebook; nothing if there is no address."""
    if repository:
        first = next((n for n, cell in enumerate(notebook.cells) if cell.cell_type == "code"), len(notebook.cells))
        folded = {"cellView": "form", "jupyter": {"source_hidden": True}}  # in Colab, in JupyterLab
        source = CELL.replace("{address}", repository).replace("{pages}", pages(repository))
        notebook.cells.insert(first, new_code_cell(source, id="on-colab", metadata=folded))
    return notebook


def remote(root):
    """The address of the git remote `origin`, as a page of GitHub."""
    git = subprocess.run(["git", "-C", str(root), "remote", "get-url", "origin"], capture_output=True, text=True)
    if git.returncode:
        raise AddressError("git knows no remote `origin` here: give the address of the course on GitHub.")
    return git.stdout.strip()


def set_address(root, repository):
    """Write the address into pyproject.toml. Returns it in the form in which everybody can clone it."""
    page = "https://github.com/" + pages(repository).removeprefix(OPEN)
    path, line = Path(root, "pyproject.toml"), f'Repository = "{page}"\n'
    text = path.read_text(encoding="utf8")
    if address(root) is not None:
        text = re.sub(r"(?m)^Repository = .*\n", lambda _: line, text, count=1)
    elif "[project.urls]\n" in text:
        text = text.replace("[project.urls]\n", f"[project.urls]\n{line}", 1)
    else:
        text = text.replace("[project.scripts]\n", f"[project.urls]\n{line}\n[project.scripts]\n", 1)
    path.write_text(text, encoding="utf8")
    return page
