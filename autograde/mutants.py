"""Small faults put into a model solution, one at a time: what a slip of the pen would make of it."""

import ast
import copy
from dataclasses import dataclass

_SWAPS = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div, ast.Add),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}


@dataclass(frozen=True)
class Mutant:
    """One changed solution: `what` says "before -> after, in the line as it is now"; `source` is the whole cell."""

    what: str
    source: str


def mutants(source):
    """Every Mutant of a cell's source, each differing from it in one place; no two alike."""
    tree = ast.parse(source)
    seen, found = {ast.unparse(tree)}, []
    for path, node in list(_walk(tree)):
        for replacement in _changes(node):
            changed = copy.deepcopy(tree)
            _put(changed, path, replacement)
            text = ast.unparse(ast.fix_missing_locations(changed))
            if text not in seen:
                seen.add(text)
                found.append(Mutant(_told(node, replacement, changed, path), text))
    return found


def _told(node, replacement, changed, path):
    """The change in words, with the changed line around it."""
    if replacement is None:
        return f"{ast.unparse(node).splitlines()[0]} -> (gone)"
    here = line = changed
    for name, index in path:
        here = getattr(here, name) if index is None else getattr(here, name)[index]
        line = here if isinstance(here, ast.stmt) else line
    before, after, line = (ast.unparse(part).splitlines()[0] for part in (node, replacement, line))
    return f"{before} -> {after}, in: {line}"


def _walk(node, path=()):
    """(path, node) of every expression and statement below, docstrings and annotations left out."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases"):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else ((None, value),):
            if not isinstance(child, ast.AST):
                continue
            is_docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            if not is_docstring:
                here = (*path, (name, index))
                if isinstance(child, (ast.expr, ast.stmt)):
                    yield here, child
                if not isinstance(child, ast.Raise):  # what a refusal says is the author's own affair
                    yield from _walk(child, here)


def _put(tree, path, replacement):
    for name, index in path[:-1]:
        tree = getattr(tree, name) if index is None else getattr(tree, name)[index]
    name, index = path[-1]
    if replacement is None:
        replacement = ast.Pass()
    if index is None:
        setattr(tree, name, replacement)
    else:
        getattr(tree, name)[index] = replacement


def _changes(node):
    """What may stand in a node's place; None removes a statement."""
    if isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.BinOp):
        for other in _SWAPS.get(type(node.op), ()):
            yield ast.BinOp(node.left, other(), node.right)
        yield node.left
        if not isinstance(node.op, ast.Pow):
            yield node.right
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        for other in _SWAPS.get(type(node.ops[0]), ()):
            yield ast.Compare(node.left, [other()], node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(_SWAPS[type(node.op)][0](), node.values)
        yield from node.values
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield node.body
        yield node.orelse
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        yield node.value
    elif isinstance(node, (ast.Assign, ast.AugAssign, ast.If, ast.For)) or _is_call_statement(node):
        yield None
    elif isinstance(node, ast.Raise):
        yield None
        yield ast.Raise(ast.Call(ast.Name("TypeError", ast.Load()), [ast.Constant("no")], []))


def _constants(node):
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, (int, float)):
        for other in {value + 1, value - 1, -value, value * 2}:
            yield ast.Constant(other)


def _calls(node):
    for index in range(len(node.keywords)):
        yield ast.Call(node.func, node.args, node.keywords[:index] + node.keywords[index + 1 :])
    if len(node.args) > 1 and not any(isinstance(arg, ast.Starred) for arg in node.args):
        yield ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], node.keywords)
        yield ast.Call(node.func, node.args[:-1], node.keywords)
    if isinstance(node.func, ast.Attribute) and not isinstance(node.func.value, ast.Name):
        yield node.func.value  # x.f().g() -> x.f()
    elif isinstance(node.func, ast.Attribute) and node.func.value.id not in ("torch", "nn", "F", "np", "math", "super"):
        yield node.func.value


def _is_call_statement(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and "super()" not in ast.unparse(node)
