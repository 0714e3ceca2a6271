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
import torch

from utils import check

# %% [markdown]
# ## 1.1 Masks
# Build `causal_mask`.

# %% exercise="causal_mask"
def causal_mask(q_len, kv_len=None):
    """Who may look where."""
    ### BEGIN SOLUTION
    kv_len = q_len if kv_len is None else kv_len
    return torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)
    ### END SOLUTION

# %% check="causal_mask"
check(causal_mask, points=4)

# %% tags=["demo"]
raise SystemExit("a demo ran while grading")

# %% exercise="padding_mask"
def padding_mask(pad_mask):
    """Which keys are words."""
    ### BEGIN SOLUTION
    if pad_mask.dim() != 2 or pad_mask.dtype != torch.bool:
        raise ValueError("pad_mask must be (batch, kv_len), bool")
    return pad_mask[:, None, None, :]
    ### END SOLUTION

# %% check="padding_mask"
check(padding_mask, points=2)

# %% [markdown] reflect="padding_mask"
# What did you learn?

# %% [markdown]
# **Why?**
#
# | points | for |
# |---|---|
# | 1 | the past |
# | 2 | the future |

# %% [markdown] written="why-masks" points=3
# ### BEGIN SOLUTION
# Because $a < b$.
# ### END SOLUTION
'''
CAUSAL = """\
    kv_len = q_len if kv_len is None else kv_len
    return torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)"""
PADDING = """\
    if pad_mask.dim() != 2 or pad_mask.dtype != torch.bool:
        raise ValueError("pad_mask must be (batch, kv_len), bool")
    return pad_mask[:, None, None, :]"""


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
