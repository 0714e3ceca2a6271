"""A course of one small lesson, built by the real build code, for the tests that drive nbgrader."""

import re
from pathlib import Path

import nbformat

from autograde.build import render, write
from autograde.course import ROOT

PHASE = "sample"
LESSON = '''\
# %% [markdown]
# # A lesson in two exercises

# %% tags=["setup"]
import os

def check(thing, points):
    """A stand-in for utils.check: half the points for each of two cases."""
    name = thing.__name__
    share = sum(thing(x) == y for x, y in {"double": [(1, 2), (3, 6)], "square": [(2, 4), (3, 9)]}[name]) / 2
    print(name, share)
    if os.environ.get("NBGRADER_EXECUTION") == "autograde":
        return float(share * points)
    assert share == 1

# %% [markdown]
# ## 1.1 Twice
# Build `double`.

# %% exercise="double"
def double(x):
    """Twice x."""
    ### BEGIN SOLUTION
    return x + x
    ### END SOLUTION

# %% check="double"
check(double, points=4)

# %% tags=["demo"]
raise SystemExit("a demo ran while grading")

# %% exercise="square"
def square(x):
    """x times x."""
    ### BEGIN SOLUTION
    return x * x
    ### END SOLUTION

# %% check="square"
check(square, points=2)

# %% [markdown] reflect="square"
# What did you learn?

# %% [markdown]
# **Why?**
#
# | points | for |
# |---|---|
# | 1 | the sum |
# | 2 | the product |

# %% [markdown] written="why-twice" points=3
# ### BEGIN SOLUTION
# Because $x + x = 2x$.
# ### END SOLUTION
'''
TWICE = "    return x + x"


def make_root(root):
    """An empty course with the real configuration and a gradebook of its own."""
    root = Path(root).resolve()
    (root / "autograde").mkdir()
    (root / "nbgrader_config.py").write_text(
        "c = get_config()\n"
        f"load_subconfig({str(ROOT / 'autograde' / 'nbgrader_config.py')!r})\n"
        f"c.CourseDirectory.root = {str(root)!r}\n"
        f"c.CourseDirectory.db_url = {'sqlite:///' + str(root / 'autograde' / 'gradebook.db')!r}\n"
        f"c.Exchange.root = {str(root / 'autograde')!r}\n"
    )
    return root


def make_course(root):
    """A course with the lesson above as its one phase, built."""
    root = make_root(root)
    (root / "solutions" / PHASE).mkdir(parents=True)
    (root / "solutions" / PHASE / f"{PHASE}.py").write_text(LESSON, encoding="utf-8")
    write(root, render(root))
    return root


def read(root, kind="notebooks", phase=PHASE):
    """The built notebook: the release, or with kind="solutions" the solution."""
    return nbformat.read(Path(root, kind, phase, f"{phase}.ipynb"), as_version=4)


def cell(notebook, grade_id):
    """The cell of that grade id."""
    return next(c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") == grade_id)


def solve(notebook, **answers):
    """Put code in place of the stub of each named exercise; returns the notebook."""
    for name, code in answers.items():
        stub = cell(notebook, f"{name}-build")
        stub.source = re.sub(r"^    # YOUR CODE HERE\n    raise NotImplementedError\(\)", code, stub.source, flags=re.M)
        assert code in stub.source
    return notebook


def submit(root, student, notebook, phase=PHASE, timestamp=None):
    """Hand a notebook (or raw text) in for a student."""
    folder = Path(root, "autograde", "submitted", student, phase)
    folder.mkdir(parents=True)
    text = notebook if isinstance(notebook, str) else nbformat.writes(notebook)
    (folder / f"{phase}.ipynb").write_text(text, encoding="utf-8")
    if timestamp:
        (folder / "timestamp.txt").write_text(timestamp)
