"""What a person should look at in learners' code: ways to let a library, or the grader itself, do the work.

A look at the syntax, never a verdict: nothing runs, nothing is proven, and every finding can have an honest reason. The
banned operations themselves are refused while a submission is observed (utils.observe.forbid); this is about disguises.
"""

import ast
import builtins
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from IPython.core.inputtransformer2 import TransformerManager
from rich.table import Table
from rich.text import Text

from autograde.canvas import write_csv
from autograde.page import fill, page, plain
from autograde.report import grade_id, notebooks, released, source
from autograde.watched import (
    ATTENTION,
    BARE,
    GIVEN,
    GRADER,
    GRADIENTS,
    INSIDE,
    MAGICS,
    PASSES,
    PLACES,
    SOFTMAX,
    VALUES,
    WATCHED,
)
from utils.checks.deliveries import DELIVERIES

LONGEST = 100_000  # characters of a cell that are looked at
TABLE = 24  # so many numbers in one literal are a table
VERDICT = "A reason to look, not a verdict: each of these can have an honest explanation."
HEADS = ("student", "exercise", "cell", "line", "why", "code")

REPORT = """\
<h1>{{ phase }}: where to look</h1>
<div class="wb-banner"><b>{{ verdict }}</b></div>
<p>{{ looked_at }} submissions were looked at, without running anything; {{ count }} places in
{{ students|length }} of them are worth a minute.</p>
{% for student, found in students.items() %}
<h2>{{ student }}</h2>
<table class="wb-stack">
<thead><tr><th scope="col">where</th><th scope="col">why</th><th scope="col">line</th></tr></thead>
<tbody>{% for one in found %}
<tr><td>{{ one.exercise or "own cell" }}<br><span class="wb-soft">cell {{ one.cell }}, line {{ one.line }}</span></td>
<td class="wb-line">{{ one.why }}</td><td class="wb-line"><code>{{ one.code }}</code></td></tr>
{% endfor %}</tbody></table>
{% endfor %}
"""


@dataclass(frozen=True)
class Finding:
    """One place that is worth a look."""

    student: str
    exercise: str  # "" for a cell of the learner's own
    cell: int  # its place in the notebook, from 1
    line: int
    why: str
    code: str


@dataclass(frozen=True)
class Given:
    """What was handed out: its cells, its lines, and what its imports are called."""

    cells: frozenset
    lines: frozenset
    aliases: dict


def given_by(notebook):
    """What a released notebook gives."""
    cells = [source(cell).strip() for cell in notebook["cells"] if cell["cell_type"] == "code"]
    aliases = {}
    for text in cells:
        aliases |= _aliases(_parsed(text)[0])
    return Given(frozenset(cells), frozenset(line.strip() for text in cells for line in text.splitlines()), aliases)


def delegation(root, phase):
    """Every Finding of a phase, and how many submissions were looked at."""
    given, found, number = given_by(released(root, phase)), [], 0
    for student, notebook in notebooks(root, phase):
        found += look(student, notebook, given)
        number += 1
    return found, number


def look(student, notebook, given):
    """The Findings in one notebook. What was handed out, whole cells and single lines, is not looked at."""
    cells = [
        (number, grade_id(cell).removesuffix("-build"), source(cell)[:LONGEST])
        for number, cell in enumerate(notebook["cells"], 1)
        if cell["cell_type"] == "code" and source(cell).strip() not in given.cells
    ]
    aliases = dict(given.aliases)
    for *_, text in cells:
        aliases |= _aliases(_parsed(text)[0])
    found = []
    for number, exercise, text in cells:
        lines = text.split("\n")
        for line, why in _Look(text, aliases, exercise).findings():
            code = lines[line - 1].strip() if line <= len(lines) else ""
            if code not in given.lines and exercise not in DELIVERIES:  # nobody asks the function of one
                found.append(Finding(student, exercise, number, line, why, code))
    return found


@cache
def _bans(exercise):
    """What the exercise's check refuses; a cell of the learner's own is not held against softmax or gradients."""
    from utils.checks import EXERCISES

    return frozenset(EXERCISES[exercise].bans) if exercise in EXERCISES else frozenset({"attention"})


def _is_numpy(exercise):
    """Is it done without torch?"""
    from utils.checks import EXERCISES

    return exercise in EXERCISES and EXERCISES[exercise].library == "numpy"


@lru_cache(maxsize=64)
def _parsed(text):
    """(syntax tree, lines that IPython drops before it). Magics become calls, as when they run; no Python, no tree."""
    dropped = len(text) - len(text.lstrip("\n"))
    try:
        return ast.parse(_ipython().transform_cell(text)), dropped
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    try:
        return ast.parse(text), 0
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], []), 0


@cache
def _ipython():
    return TransformerManager()


def _aliases(tree):
    """name -> the dotted name it was imported as."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one.asname or one.name.split(".")[0]: one.name if one.asname else one.name.split(".")[0]
                      for one in node.names}  # fmt: skip
        elif isinstance(node, ast.ImportFrom):
            found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    return found


class _Look:
    """One cell, looked at statement by statement. Nothing recurses: a submission may be as deep as it likes."""

    def __init__(self, text, aliases, exercise):
        self.tree, self.dropped = _parsed(text)
        self.aliases, self.exercise, self.bans = aliases, exercise, _bans(exercise)
        self.numpy = _is_numpy(exercise)
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}
        docs = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        owners = [node for node in ast.walk(self.tree) if isinstance(node, docs)]
        first = [node.body[0] for node in owners if node.body and isinstance(node.body[0], ast.Expr)]
        self.quiet = {node.value for node in first if isinstance(node.value, ast.Constant)} | {
            leaf for node in ast.walk(self.tree) if isinstance(node, ast.Raise | ast.Assert) for leaf in ast.walk(node)
        }  # docstrings and messages may name anything
        self.own = {node.name for node in owners if not isinstance(node, ast.Module)}

    def findings(self):
        """(line, why), each once, in order."""
        found = {}
        for node in ast.walk(self.tree):
            for why in self._about(node):
                found[getattr(node, "lineno", 1) + self.dropped, why] = None
        return sorted(found)

    def _about(self, node):
        if isinstance(node, ast.Name | ast.Attribute):
            yield from self._name(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from self._import(node)
        elif isinstance(node, ast.Call):
            yield from self._call(node)
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete | ast.For | ast.withitem):
            yield from self._change(node)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield from self._definition(node)
        elif isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict):
            yield from self._table(node)
        elif isinstance(node, ast.Constant | ast.BinOp | ast.JoinedStr):
            yield from self._text(node)

    def _path(self, node):
        """The dotted name of an expression, imports resolved; "" if it is none."""
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return "." + ".".join(reversed(parts)) if parts else ""
        return ".".join([self.aliases.get(node.id, node.id), *reversed(parts)])

    def _name(self, node):
        if isinstance(self.parents.get(node), ast.Attribute):
            return  # the whole dotted name is looked at, not its beginnings
        path = self._path(node)
        if isinstance(node, ast.Name) and (node.id in self.own or not isinstance(node.ctx, ast.Load)):
            return
        inside = INSIDE & set(path.split("."))
        if inside:
            yield f"looks inside Python's own objects ({', '.join(sorted(inside))})"
        if isinstance(node, ast.Attribute) or path != getattr(node, "id", ""):
            yield from self._watched(path)
            yield from self._banned(path, node)

    def _watched(self, path):
        for why, names in WATCHED.items():
            for name in names:
                if path == name or path.startswith(name + "."):
                    yield f"{why} ({name})"
        if GRADER.search(path):
            yield f"names a part of the grader ({path})"

    def _banned(self, path, node):
        if "attention" in self.bans and ATTENTION.search(path) and (self.exercise or self._in_definition(node)):
            yield f"uses torch's own attention ({path.lstrip('.')})"
        if "softmax" in self.bans and SOFTMAX.search(path):
            yield f"uses torch's own softmax ({path.lstrip('.')})"
        if "autograd" in self.bans and (self.numpy and path.startswith("torch.") or GRADIENTS.search(path)):
            yield f"uses torch in an exercise that is done by hand ({path.lstrip('.')})"

    def _in_definition(self, node):
        """In a function, or given another name: not merely called, to compare with."""
        called = isinstance(self.parents.get(node), ast.Call) and self.parents[node].func is node
        while node in self.parents:
            node = self.parents[node]
            if isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef | ast.AsyncFunctionDef):
                return True
        return not called

    def _import(self, node):
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name}" for name in names]
        for name in names:
            yield from self._watched(name)
            if name in ("utils.oracle", "utils.observe"):
                yield f"names a part of the grader ({name})"

    def _call(self, node):
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name and name not in self.own and name not in self.aliases:
            magic = name == "get_ipython" and self._magic(node)
            if name in BARE and magic is not True:
                yield magic or f"{BARE[name]} ({name})"
            if name in ("getattr", "setattr", "delattr", "vars"):
                yield from self._reaches(name, node.args)
        text = self._built(node)
        if text:
            yield from self._suspicious(text, "a text that is put together from pieces")

    def _magic(self, node):
        """True for a harmless magic, a sentence for another one, None for anything else said to the notebook."""
        attribute = self.parents.get(node)
        call = self.parents.get(attribute)
        if not (isinstance(attribute, ast.Attribute) and isinstance(call, ast.Call) and call.args):
            return None
        first = call.args[0].value if isinstance(call.args[0], ast.Constant) else ""
        if attribute.attr.startswith("run_") and str(first) in MAGICS:
            return True
        return f"runs something beside Python ({'!' if 'run_' not in attribute.attr else '%'}{str(first)[:30]})"

    def _reaches(self, name, arguments):
        """getattr and its like: with a name made at run time, or to change what was imported."""
        if not arguments:
            return
        root = self._path(arguments[0])
        if root.split(".")[0] in ("self", "cls", "super"):
            return
        constant = len(arguments) > 1 and isinstance(arguments[1], ast.Constant)
        if name in ("setattr", "delattr") and root.split(".")[0] in self.aliases.values():
            yield f"changes what was imported ({name} of {root})"
        elif name == "vars" or not constant:
            yield f"reaches a part of {root or 'an object'} by a name made at run time ({name})"
        else:
            path = f"{root}.{arguments[1].value}"
            inside = INSIDE & {str(arguments[1].value)}
            yield from (f"looks inside Python's own objects ({one})" for one in sorted(inside))
            yield from self._watched(path)
            yield from self._banned(path, arguments[0])

    def _change(self, node):
        targets = getattr(node, "targets", None) or [
            getattr(node, "target", None) or getattr(node, "optional_vars", None)
        ]
        for target in targets:
            for leaf in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
                path = self._path(leaf) if isinstance(leaf, ast.Attribute) else ""
                root = leaf
                while isinstance(root, ast.Attribute | ast.Subscript):
                    root = root.value
                imported = isinstance(root, ast.Name) and root.id in self.aliases and root is not leaf
                if path.endswith(".__class__"):
                    yield "makes an object pass for one of another class (__class__)"
                elif imported:
                    yield f"changes what was imported ({path or ast.unparse(leaf)[:60]})"
                elif isinstance(leaf, ast.Name) and leaf.id in GIVEN and node in self.tree.body:
                    yield f"replaces {leaf.id}, which the lesson gives"
                elif isinstance(leaf, ast.Name) and isinstance(getattr(node, "value", None), ast.Lambda):
                    yield from self._shadows(leaf.id, node)

    def _shadows(self, name, node):
        if node in self.tree.body and (hasattr(builtins, name) or name in GIVEN):
            yield f"replaces {name}, which {'the lesson gives' if name in GIVEN else 'Python gives'}"

    def _definition(self, node):
        yield from self._shadows(node.name, node)
        if isinstance(self.parents.get(node), ast.ClassDef) and node.name in PASSES:
            yield f"defines an object that may pass for something else ({node.name})"
        for base in getattr(node, "bases", []):
            if self._path(base) in VALUES:
                yield f"defines a {self._path(base)} of its own, which may pass for a plain one"

    def _table(self, node):
        if isinstance(self.parents.get(node), ast.List | ast.Tuple | ast.Set | ast.Dict):
            return
        numbers = [
            leaf for leaf in ast.walk(node) if isinstance(leaf, ast.Constant) and isinstance(leaf.value, int | float)
        ]
        if self.exercise and len(numbers) >= TABLE:
            yield f"holds a table of {len(numbers)} numbers: where do they come from?"

    def _text(self, node):
        if node in self.quiet or isinstance(self.parents.get(node), ast.BinOp | ast.JoinedStr):
            return
        built = not isinstance(node, ast.Constant)
        text = self._built(node)
        yield from self._suspicious(text, "a text that is put together from pieces" if built else "a text")

    def _built(self, node):
        """The text that constants, sums, joins, formatted strings and turned-round strings make; "" if it is none."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else ""
        leaves = [
            leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)
        ]
        if isinstance(node, ast.Call):
            made = isinstance(node.func, ast.Attribute) and node.func.attr in ("join", "format", "replace")
            return "".join(leaves[1:] if leaves[:1] == [""] else leaves) if made else ""
        return "".join(leaves)

    def _suspicious(self, text, what):
        if any(c.isspace() for c in text):
            return  # words for a reader
        for one in (text, text[::-1]):
            if PLACES.search(one):
                yield f"{what} names a place outside the lesson"
            if GRADER.search(one):
                yield f"{what} names a part of the grader"
            if "attention" in self.bans and ATTENTION.search(one):
                yield f"{what} names torch's own attention"


def delegation_report(root, phase, out_dir):
    """Write <phase>-delegation.csv and .html. Returns (paths, renderables)."""
    found, looked_at = delegation(root, phase)
    out_dir = Path(out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    rows = [(one.student, one.exercise, one.cell, one.line, one.why, plain(one.code)) for one in found]
    table = write_csv(out_dir / f"{phase}-delegation.csv", HEADS, rows)
    html = out_dir / f"{phase}-delegation.html"
    students = {}
    for one in found:
        students.setdefault(one.student, []).append(one)
    body = fill(REPORT, phase=phase, students=students, looked_at=looked_at, count=len(found), verdict=VERDICT)
    html.write_text(page(f"{phase}: where to look", body), encoding="utf-8")
    return [table, html], [_rich(phase, found, looked_at)]


def _rich(phase, found, looked_at):
    """The findings for a terminal."""
    table = Table(
        "student", "exercise", "cell", "line", "why", "code", title=f"{phase}: where to look", caption=VERDICT
    )
    for one in found:
        cells = (one.student, one.exercise or "own cell", one.cell, one.line, one.why, one.code)
        table.add_row(*(Text(plain(cell, 70)) for cell in cells))
    if not found:
        table.add_row(Text(f"nothing, in {looked_at} submissions"))
    return table
