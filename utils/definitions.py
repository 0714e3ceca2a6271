"""Take one definition, with everything it needs, out of a notebook without running the notebook.

The result is what a run from top to bottom would leave under that name: later definitions win, and what is needed while
defining (bases, defaults, decorators, values of constants) is the one defined above. Nothing else runs.
"""

import __future__

import ast
import builtins
import json
import linecache
import re
import symtable
from dataclasses import dataclass

# %matplotlib inline   !ls   files = !ls   sdpa?
MAGIC = re.compile(r"^(\s*)(?:[%!?].*|[\w.\s,]*=\s*[%!].*|[\w.%]+\?\??\s*)$")
RUN_AT_ONCE = {"listcomp", "setcomp", "dictcomp", "genexpr"}  # scopes of their own that are not called later


class Unfit(Exception):
    """There is no such definition, or it cannot be made; the text says why."""


@dataclass(frozen=True)
class Cell:
    """One code cell: its place in the notebook (from 1), its text, its statements, the error if it does not parse."""

    number: int
    source: str
    body: tuple
    error: SyntaxError | None = None


@dataclass(frozen=True)
class Definition:
    """A statement that binds names: which ones, which it reads while it runs, and which when it is called later."""

    cell: Cell
    node: ast.stmt
    binds: frozenset
    now: frozenset
    later: frozenset


def read_cells(path):
    """The code cells of a notebook. Raises Unfit if the file is not a notebook."""
    try:
        cells = json.loads(path.read_bytes().decode("utf-8-sig"))["cells"]
        texts = [(n, "".join(cell["source"])) for n, cell in enumerate(cells, 1) if cell["cell_type"] == "code"]
    except (OSError, ValueError, KeyError, TypeError):
        raise Unfit(f"{path.name} is not a readable notebook") from None
    return [parsed(number, source) for number, source in texts]


def build(name, cells, path):
    """Execute the definition of `name` and what it needs. Raises Unfit, with the reason, if that is impossible."""
    definitions = definitions_of(cells, name)
    if not any(name in one.binds for one in definitions):
        raise Unfit(_why_missing(name, cells, path))
    space = {"__name__": f"my_{path.stem}", "__builtins__": builtins}
    flags = _future_flags(cells)
    for one in required(name, definitions):
        _execute(one, space, path, flags)
    return space[name]


def definitions_of(cells, name):
    """All definitions of these cells, in order, but for `name = mine("name")`."""
    found = [_definition(cell, node) for cell in cells for node in cell.body if _binds(node)]
    return [one for one in found if not _asks_for_itself(one.node, name)]


def parsed(number, source):
    """Parse a cell; lines that only IPython understands are blanked out, in their place, if Python does not."""
    text = source
    if source.lstrip().startswith("%%"):
        magic = source.split()[0]
        text = source.replace(source.strip().partition("\n")[0], "", 1) if magic in ("%%time", "%%capture") else ""
    try:
        return Cell(number, source, tuple(ast.parse(text).body))
    except (SyntaxError, ValueError):
        text = "\n".join(MAGIC.sub(r"\1pass", line) for line in text.splitlines())
    try:
        return Cell(number, source, tuple(ast.parse(text).body))
    except (SyntaxError, ValueError) as error:
        return Cell(number, source, (), error if isinstance(error, SyntaxError) else SyntaxError(str(error)))


def _binds(node):
    """The names a statement binds; none if it is not a definition, and then it never runs."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if node.value else []
        return {name for target in targets for name in _roots(target)}
    if isinstance(node, ast.If | ast.Try):  # try: import x … except ImportError: x = None
        parts = [_binds(child) for child in _inside(node) if not isinstance(child, ast.Pass)]
        return set().union(*parts) if all(parts) else set()
    return set()


def _inside(node):
    handled = [child for handler in getattr(node, "handlers", []) for child in handler.body]
    return [*node.body, *handled, *node.orelse, *getattr(node, "finalbody", [])]


def _roots(target):
    """x -> x; a, b -> a and b; Model.forward and table[0] -> Model and table."""
    if isinstance(target, ast.Tuple | ast.List):
        return [root for element in target.elts for root in _roots(element)]
    while isinstance(target, ast.Attribute | ast.Subscript | ast.Starred):
        target = target.value
    return [target.id] if isinstance(target, ast.Name) else []


def _definition(cell, node):
    binds, (now, later) = _binds(node), _reads(node)
    if _adds_to(node):
        now |= binds
    return Definition(cell, node, frozenset(binds), frozenset(now), frozenset(later))


def _adds_to(node):
    """X += 1, Model.forward = …, import torch.nn: what was bound before is needed, too."""
    if isinstance(node, ast.Import):
        return any("." in alias.name and not alias.asname for alias in node.names)
    changed = (ast.Attribute, ast.Subscript)
    return isinstance(node, ast.AugAssign) or any(isinstance(one, changed) for one in getattr(node, "targets", []))


def _reads(node):
    """The global names that a statement reads: while it runs, and in the functions that it makes."""
    now, later = set(), set()

    def visit(scope, into):
        top = scope.get_type() == "module"
        into.update(s.get_name() for s in scope.get_symbols() if s.is_referenced() and (top or s.is_global()))
        for child in scope.get_children():
            waits = child.get_type() == "function" and child.get_name() not in RUN_AT_ONCE
            visit(child, later if waits else into)

    visit(symtable.symtable(ast.unparse(node), "cell", "exec"), now)
    return now, later


def _asks_for_itself(node, name):
    """sdpa = mine("sdpa"): not a definition of sdpa."""
    calls = [child for child in ast.walk(node) if isinstance(child, ast.Call)] if isinstance(node, ast.Assign) else []
    return any(ast.unparse(call) == f"mine({name!r})" for call in calls)


def required(name, definitions):
    """The definitions to run, in the notebook's order."""
    chosen, wanted = set(), [(name, len(definitions))]
    while wanted:
        read, above = wanted.pop()
        found = [i for i in range(above) if read in definitions[i].binds][-1:]
        if not found and not hasattr(builtins, read):
            found = [i for i in range(above) if "*" in definitions[i].binds]
        for i in set(found) - chosen:
            chosen.add(i)
            wanted += [(other, i) for other in definitions[i].now]
            wanted += [(other, len(definitions)) for other in definitions[i].later]
    return [definitions[i] for i in sorted(chosen)]


def _future_flags(cells):
    """from __future__ import annotations, wherever it stands, holds for all cells, as in IPython."""
    imports = [node for cell in cells for node in cell.body if isinstance(node, ast.ImportFrom)]
    names = {alias.name for node in imports if node.module == "__future__" for alias in node.names}
    return sum(getattr(__future__, name).compiler_flag for name in names & set(__future__.all_feature_names))


def _execute(definition, space, path, flags):
    """Run one definition so that a traceback through it shows the notebook, the cell and the line."""
    cell, node = definition.cell, definition.node
    filename = f"{path}[cell {cell.number}]"
    linecache.cache[filename] = (len(cell.source), None, cell.source.splitlines(keepends=True), filename)
    try:
        exec(compile(ast.Module([node], []), filename, "exec", flags=flags, dont_inherit=True), space)
    except (Exception, SystemExit) as error:
        stop = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise Unfit(f"cell {cell.number} of {path.name} stops in line {node.lineno} with {stop}") from error


def _why_missing(name, cells, path):
    pattern = re.compile(rf"^\s*(?:(?:async\s+)?def|class)\s+{re.escape(name)}\b|^{re.escape(name)}\s*=", re.MULTILINE)
    for cell in cells:
        if cell.error and pattern.search(cell.source):
            slip = f"line {cell.error.lineno}: {cell.error.msg}"
            return f"cell {cell.number} of {path.name} is not valid Python yet ({slip})"
    return f"{path.name} does not define it"
