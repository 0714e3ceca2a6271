"""Grade the grader: does each check reject what is wrong, by name, and accept what is right?

For every exercise: the bank of wrong and unusual right solutions (`tests/bank`), the known mistakes of the check,
mutants of the model solution, the blank stub, the twin, and the solution itself. `autograde kill-matrix` prints the
table; the tests demand that nothing survives.
"""

import argparse
import json
import math
from dataclasses import dataclass, field

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from autograde.course import ROOT
from autograde.mutants import mutants
from autograde.source import solution_notebook
from utils.checks import EXERCISES, evaluate

EQUAL = ROOT / "tests" / "bank" / "equal_mutants.json"  # {exercise: {mutant: why it is no fault}}


@dataclass
class Row:
    """What became of one exercise's solutions: counts, and a line for each that was judged wrongly."""

    name: str
    wrong: int = 0
    named: int = 0
    to_name: int = 0
    right: int = 0
    mutants: int = 0
    equal: int = 0
    survivors: list = field(default_factory=list)


def solution_cells(phase):
    """{exercise: source of its solution cell}, in the order of the notebook."""
    notebook, _ = solution_notebook(ROOT / "solutions" / phase / f"{phase}.py")
    return {
        cell.metadata["nbgrader"]["grade_id"].removesuffix("-build"): cell.source
        for cell in notebook.cells
        if cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("solution")
    }


def namespace(cells, changed=None, source=None):
    """The definitions of all solution cells; `changed` is made from `source` instead of its own cell."""
    phase = EXERCISES[next(iter(cells))].phase
    names = {name: other.expected for name, other in EXERCISES.items() if other.phase != phase}  # mine("…"), as graded
    names |= {"torch": torch, "nn": torch.nn, "np": np, "math": math, "F": torch.nn.functional}
    for name, text in cells.items():
        exec(compile(source if name == changed else text, f"<{name}>", "exec"), names)
    return names


def blank_stub(name):
    """What a learner who has not begun hands in."""

    def raises(*args, **kwargs):
        raise NotImplementedError

    if EXERCISES[name].is_module:
        return type(name, (torch.nn.Module,), {"__init__": raises})
    return raises


def judge_bank(row, bank, most=None):
    """Fill in what the check says to its own list of mistakes and to the bank (or to some of each, spread evenly)."""

    def some(entries):
        return entries[:: -(-len(entries) // most) or 1] if most else entries

    for entry in some(bank.RIGHT.get(row.name, ())):
        report = evaluate(row.name, entry.obj, own_twin_allowed=False)
        row.right += report.passed
        if not report.passed:
            row.survivors.append(f"right, but refused: {entry.label} ({entry.why})\n{report.message}")
    own = [(f"mistake: {says}", wrong, says) for says, wrong in EXERCISES[row.name].mistakes.items()]
    for label, obj, says in [*((e.label, e.obj, e.says) for e in some(bank.WRONG.get(row.name, ()))), *some(own)]:
        report = evaluate(row.name, obj, own_twin_allowed=label.startswith("mistake: "))
        row.wrong += not report.passed
        row.to_name += says is not None
        row.named += says is not None and report.likely == says
        if report.passed:
            row.survivors.append(f"wrong, but accepted: {label}")
        elif says is not None and report.likely != says:
            row.survivors.append(f"wrong and refused, but not as {says!r}: {label} was called {report.likely!r}")


def judge_own(row, cells):
    """Twin and solution must pass, the blank stub must earn nothing and be told so."""
    for label, obj in (("the twin", EXERCISES[row.name].expected), ("the solution", namespace(cells)[row.name])):
        report = evaluate(row.name, obj)
        if report.score != 1:
            row.survivors.append(f"{label} is refused\n{report.message}")
    report = evaluate(row.name, blank_stub(row.name))
    if report.score != 0 or "not implemented yet" not in report.message:
        row.survivors.append(f"the blank stub earns {report.score}: {report.message}")


def judge_mutants(row, cells, argued):
    """Every mutant of the solution must be rejected, or be argued to be no fault."""
    for mutant in mutants(cells[row.name]):
        row.mutants += 1
        if not _killed(row.name, mutant, cells):
            if mutant.what in argued:
                row.equal += 1
            else:
                row.survivors.append(f"mutant survives: {mutant.what}")


def _killed(name, mutant, cells):
    try:
        obj = namespace(cells, name, mutant.source)[name]
    except Exception:
        return True  # it does not even run
    return any(not evaluate(name, obj, cases=[case]).passed for case in EXERCISES[name].visible)


def load_equal():
    """{exercise: {mutant: why it is no fault}}."""
    return json.loads(EQUAL.read_text("utf-8"))


def row_for(name, bank, with_mutants=True):
    """The Row of one exercise."""
    row, cells = Row(name), solution_cells(EXERCISES[name].phase)
    judge_own(row, cells)
    judge_bank(row, bank)
    if with_mutants:
        judge_mutants(row, cells, load_equal().get(name, {}))
    return row


def main(arguments=()):
    """Print the table for the exercises named (all by default). Returns the number of survivors, at most 1."""
    parser = argparse.ArgumentParser(prog="autograde kill-matrix", description=__doc__.splitlines()[0])
    parser.add_argument("exercise", nargs="*", help="only these")
    parser.add_argument("--no-mutants", action="store_true", help="the bank only: seconds instead of minutes")
    options = parser.parse_args(list(arguments))
    from tests import bank

    console, names = Console(), options.exercise or list(EXERCISES)
    rows = [row_for(name, bank, not options.no_mutants) for name in track(names, "judging", console=console)]
    console.print(_table(rows))
    for row in rows:
        for text in row.survivors:
            console.print(f"{row.name}: {text}", style="red", markup=False, highlight=False)
    return int(any(row.survivors for row in rows))


def _table(rows):
    table = Table("exercise", "wrong rejected", "of these named", "right accepted", "mutants killed", "survivors")
    for row in rows:
        killed = f"{row.mutants - row.equal - sum('mutant' in s for s in row.survivors)}/{row.mutants}"
        table.add_row(
            row.name,
            str(row.wrong),
            f"{row.named}/{row.to_name}",
            str(row.right),
            f"{killed}, {row.equal} equal" if row.equal else killed,
            str(len(row.survivors)) if row.survivors else "none",
        )
    return table
