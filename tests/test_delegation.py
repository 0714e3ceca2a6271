"""What the delegation report points at, and that honest work is left in peace."""

import ast
import inspect
import json
import sys
from functools import cache

import pytest
from bs4 import BeautifulSoup

from autograde.course import ROOT, phases
from autograde.delegation import delegation_report, given_by, look
from tests.bank import RIGHT, WRONG
from tests.sample_course import PHASE, cell, make_course, read

LESSON = json.loads((ROOT / "notebooks" / "phase2_attention" / "phase2_attention.ipynb").read_text(encoding="utf-8"))
GIVEN = given_by(LESSON)
COMMON = "import functools, operator, itertools\nfrom functools import partial, reduce"


def code(source, name=""):
    about = {"nbgrader": {"grade_id": f"{name}-build", "solution": True}} if name else {}
    return {"cell_type": "code", "source": source, "metadata": about}


def said(source, name=""):
    """The sentences about one cell."""
    return [finding.why for finding in look("ada", {"cells": [code(COMMON), code(source, name)]}, GIVEN)]


@pytest.mark.parametrize("phase", phases(ROOT))
def test_blank_and_solved_notebooks_are_left_in_peace(phase):
    """Is nothing found in the release, nor in the authors' own solution?"""
    blank, solved = (
        json.loads((ROOT / folder / phase / f"{phase}.ipynb").read_text(encoding="utf-8"))
        for folder in ("notebooks", "solutions")
    )
    assert look("blank", blank, given_by(blank)) == look("solved", solved, given_by(blank)) == []


@cache
def definitions(module):
    """(name -> where a module of the bank defines it, its imports)."""
    tree, defined, imports = ast.parse(inspect.getsource(sys.modules[module])), {}, []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.setdefault(node.name, node)
            kept = [one for one in node.decorator_list if not ast.unparse(one).startswith(("right(", "wrong("))]
            node.decorator_list = kept
        elif isinstance(node, ast.Assign) and node in tree.body:
            defined |= {target.id: node for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ImportFrom) and "tests" not in node.module:
            imports.append(ast.unparse(node))
    return defined, imports


def source_of(entry):
    """The code of an entry of the bank, with the helpers and constants of its module that it uses."""
    module, _, name = f"tests.bank.{entry.label}".rpartition(".")
    defined, imports = definitions(module)
    needed, wanted = {}, [name]
    while wanted:
        node = defined.get(wanted.pop())
        if node is not None and node not in needed:
            needed[node] = None
            wanted += [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]
    return "\n".join([*imports, *map(ast.unparse, needed)]) if needed else ""


def test_right_solutions_are_left_in_peace():
    """Do hardly any of the bank's right solutions, unusual as they are, ask for a look? (Its `oracle` is `mine`.)"""
    entries = [(name, entry) for name, entries in RIGHT.items() for entry in entries]
    noticed = {entry.label: said(source_of(entry), name) for name, entry in entries}
    noticed = {label: [why for why in whys if "utils.oracle" not in why] for label, whys in noticed.items()}
    noticed = {label: whys for label, whys in noticed.items() if whys}
    assert len(entries) > 340 and len(noticed) <= len(entries) // 50, noticed


def test_cheats_of_the_bank_are_seen():
    """Is every cheat with torch's own attention that the bank knows pointed at?"""
    cheats = [entry for entry in WRONG["sdpa"] if entry.label.startswith("unseen_phase2_cheats")]
    missed = [entry.label for entry in cheats if not said(source_of(entry), "sdpa")]
    assert len(cheats) > 5 and missed == []


DISGUISES = {
    "F.scaled_dot_product_attention(q, k, v)": "torch's own attention",
    "nn.MultiheadAttention(8, 2)": "torch's own attention",
    "from torch.nn.functional import scaled_dot_product_attention as dot\ndot(q, k, v)": "torch's own attention",
    "getattr(F, 'scaled_dot' + '_product_attention')(q, k, v)": "by a name made at run time",
    "getattr(F, 'scaled_dot_product_attention')": "torch's own attention",
    "getattr(torch, ''.join(chr(c) for c in codes))": "by a name made at run time",
    "vars(F)['x']": "by a name made at run time",
    "F.__dict__['x']": "Python's own objects (__dict__)",
    "f'{a}scaled_dot_product_{b}'": "torch's own attention",
    "name = 'noitnetta_tcudorp_tod_delacs'[::-1]": "torch's own attention",
    "import importlib\nimportlib.import_module('torch')": "imports by a name made at run time",
    "__import__('torch')": "imports by a name made at run time",
    "torch.ops.aten.bmm(q, k)": "below its Python names",
    "torch._C._nn": "below its Python names",
    "torch.jit.script(f)": "below its Python names",
    "import ctypes": "compiled code",
    "exec('x = 1')": "runs text as code",
    "eval(text)": "runs text as code",
    "compile(text, '', 'exec')": "runs text as code",
    "import sys\nsys._getframe(1)": "running interpreter",
    "import gc\ngc.get_objects()": "running interpreter",
    "from inspect import currentframe\ncurrentframe()": "running interpreter",
    "sdpa.__globals__": "__globals__",
    "attention.forward.__closure__[0].cell_contents": "__closure__",
    "check.__wrapped__": "__wrapped__",
    "().__class__.__bases__[0].__subclasses__()": "__subclasses__",
    "open('/proc/self/environ').read()": "opens a file",
    "from pathlib import Path\nPath('/proc/1/environ').read_text()": "a place outside the lesson",
    "import os\nos.environ['NBGRADER_EXECUTION']": "a part of the grader",
    "import os\nos._exit(0)": "asks the machine",
    "import socket": "the network",
    "import subprocess": "asks the machine",
    "import threading\nthreading.Thread(target=f).start()": "beside its own",
    "import torch\ntorch.allclose = lambda *a, **k: True": "changes what was imported (torch.allclose)",
    "nn.Linear.forward = f": "changes what was imported (torch.nn.Linear.forward)",
    "setattr(torch, 'allclose', f)": "changes what was imported",
    "import builtins\nbuiltins.print = f": "changes what was imported",
    "def check(*a, **k): return 4.0": "replaces check, which the lesson gives",
    "check = lambda *a, **k: 4.0": "replaces check, which the lesson gives",
    "def isinstance(a, b): return True": "replaces isinstance, which Python gives",
    "from unittest import mock": "replaces parts",
    "from unittest.mock import patch\nwith patch('torch.allclose'): pass": "replaces parts",
    "from utils import oracle\noracle.sdpa": "a part of the grader",
    "import utils.checks.phase2": "a part of the grader",
    "from autograde.hidden import phase2": "a part of the grader",
    "class T(torch.Tensor): pass": "a torch.Tensor of its own",
    "class Same(float):\n    def __eq__(self, other): return True": "pass for something else (__eq__)",
    "x.__class__ = y": "of another class",
    "%%bash\ncat /etc/passwd": "beside Python (%bash)",
    "!ls ..": "beside Python (!ls ..)",
    "files = !ls": "beside Python",
    "%run other.py": "beside Python (%run)",
    "\n\n>>> import socket": "the network",
    "get_ipython().events.register('pre_run_cell', f)": "the notebook's own machinery",
    "from IPython.display import HTML\nHTML('<script>')": "a place outside the lesson",
    "import base64\nbase64.b64decode(x)": "coded text",
    "import pickle": "coded text",
    f"ANSWERS = {[0.1 * n for n in range(24)]}": "a table of 24 numbers",
}  # fmt: skip


@pytest.mark.parametrize(("source", "words"), DISGUISES.items())
def test_a_disguise_is_pointed_at(source, words):
    """Does each way to delegate, or to reach the grader, get a plain sentence?"""
    assert any(words in why for why in said(source, "sdpa")), said(source, "sdpa")


HONEST = [
    "print(torch.allclose(sdpa(q, k, v), F.scaled_dot_product_attention(q, k, v)))  # is mine right?",
    "reference = nn.MultiheadAttention(8, 2)(q, k, v)",
    "print('torch has MultiheadAttention, too')",
    "# oracle, exec(, os._exit",
    "'''Like F.scaled_dot_product_attention, but mine.'''",
    "raise ValueError('see scaled_dot_product_attention')",
    "%timeit sdpa(q, k, v)",
    "%matplotlib inline\nimport matplotlib.pyplot as plt",
    "%%time\nsdpa(q, k, v)",
    "getattr(self, 'w_q')",
    "layer = getattr(nn, 'Linear')",
    "getattr(self, f'w_{name}')",
    "x = scores.softmax(-1)",
    "loss.backward()",
    "model.eval()",
    "import re, math, time, random, collections\nre.compile('a')",
    "sdpa?",
    "self.w_q.weight.data[0] = 1\nmasks[0] = True",
    "from IPython.display import display\ndisplay(x)",
    "sum = 0\nfor input in range(3): sum += input",
    "import torch\nfrom utils import check\nfrom utils.mycode import mine",
    "values = [1, 2, 3]",
    "def f(:",
]


@pytest.mark.parametrize("source", HONEST)
def test_ordinary_work_is_left_in_peace(source):
    """Is what curious honest people write in their own cells not pointed at?"""
    assert said(source) == []


def test_gradients_count_only_where_they_are_done_by_hand():
    """Is torch pointed at in an exercise that asks for NumPy, and nowhere else?"""
    text = "def f(x):\n    return torch.autograd.grad(x.sum(), x)"
    assert any("done by hand" in why for why in said(text, "sdpa_backward")) and said(text, "sdpa") == []


def test_a_finding_says_where():
    """Are student, exercise, cell, line and the line's text right, also below magics and blank lines?"""
    notebook = {
        "cells": [*LESSON["cells"], code("\n\nx = 1\n%matplotlib inline\nimport os  # why"), code("exec('1')", "sdpa")]
    }
    first, second = look("ada", notebook, GIVEN)
    count = len(LESSON["cells"])
    assert (first.student, first.exercise, first.cell, first.line, first.code) == (
        "ada",
        "",
        count + 1,
        5,
        "import os  # why",
    )
    assert (second.exercise, second.cell, second.line) == ("sdpa", count + 2, 1)


def test_lines_of_the_lesson_are_not_held_against_a_learner():
    """Is a demo cell with torch's own attention, changed a little, left in peace?"""
    demo = next(one for one in LESSON["cells"] if "F.scaled_dot_product_attention" in "".join(one["source"]))
    assert said("print('my change')\n" + "".join(demo["source"])) == []


@pytest.mark.parametrize(
    "text", ["x" + ".a" * 20_000, "-" * 50_000 + "1", "(" * 5_000, "x = " + "[" * 90 + "]" * 90, "\x00", "\ud800"]
)
def test_no_cell_is_too_odd_to_look_at(text):
    """Does a cell made to choke on end the look neither with an error nor never?"""
    assert all(isinstance(why, str) for why in said(text, "sdpa"))


def test_the_report_is_for_people(tmp_path):
    """Do csv and page hold each finding as text, with the word that it is no verdict?"""
    root = make_course(tmp_path)
    notebook = read(root)
    cell(notebook, "causal_mask-build").source = "exec('<b>bold</b>')\n=1+1"
    cell(notebook, "padding_mask-build").source = "exec('<b>bold</b>')"
    folder = root / "autograde" / "autograded" / "=bo" / PHASE
    folder.mkdir(parents=True)
    (folder / f"{PHASE}.ipynb").write_text(json.dumps(notebook))
    paths, tables = delegation_report(root, PHASE, tmp_path / "out")
    [line] = paths[0].read_text(encoding="utf-8-sig").splitlines()[1:]
    assert line.startswith("'=bo,padding_mask,") and "runs text as code (exec)" in line
    tree = BeautifulSoup(paths[1].read_text(encoding="utf-8"), "html.parser")
    assert (
        "A reason to look, not a verdict" in tree.text
        and "exec('<b>bold</b>')" in tree.text
        and not tree.find("b", string="bold")
    )
    assert tables[0].row_count == 1
