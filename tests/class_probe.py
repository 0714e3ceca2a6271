"""Runs inside an unpacked class release, with nothing else of the course to be found: says what its checks say.

python -I class_probe.py FOLDER BANK: FOLDER is the release, BANK a folder with a copy of tests/bank. Reads
{"cells": {exercise: source of a solved cell}, "labels": {exercise: [labels of the bank]}} and writes what was seen, as
json.
"""

import contextlib
import io
import json
import os
import sys
from pathlib import Path


def alone(folder, bank):
    """Make the release the only course that Python finds, and the bank importable."""
    others = {Path(path).resolve() for path in sys.path if (Path(path or ".") / "autograde").is_dir()}
    here = Path(__file__).resolve().parent
    kept = [path for path in sys.path if Path(path or ".").resolve() not in {*others, here}]
    sys.path[:] = [folder, *kept, bank]


def said(name, namespace):
    """What `check` says in a learner's cell."""
    from utils.checks import CheckFailed

    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            exec(f"check({name}, points=3)", namespace)
        except CheckFailed as failed:
            return str(failed)
    return out.getvalue()


def blank_cells(folder):
    """{exercise: source of its blank cell} of the released notebook."""
    cells = {}
    for path in Path(folder, "notebooks").glob("phase*/*.ipynb"):
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            grade_id = cell["metadata"].get("nbgrader", {}).get("grade_id", "")
            if cell["cell_type"] == "code" and grade_id.endswith("-build"):
                cells[grade_id.removesuffix("-build")] = "".join(cell["source"])
    return cells


def fresh():
    import math

    import numpy as np
    import torch

    from utils import check

    return {"check": check, "math": math, "np": np, "torch": torch, "nn": torch.nn, "F": torch.nn.functional}


def verdicts(cells):
    """{exercise: what its check says} after all these cells were run."""
    namespace = fresh()
    for source in cells.values():
        exec(source, namespace)
    return {name: said(name, namespace) for name in cells}


def bank_reports(labels):
    """{exercise: {label: [score, likely, message]}} for entries of the bank of wrong and right solutions."""
    from tests import bank
    from utils.checks import evaluate, verdict

    verdict.BUDGET = float("inf")  # a busy machine must not end a check early
    found = {}
    for name, wanted in labels.items():
        entries = {entry.label: entry.obj for entry in (*bank.WRONG.get(name, ()), *bank.RIGHT.get(name, ()))}
        reports = {label: evaluate(name, entries[label], own_twin_allowed=False) for label in wanted}
        found[name] = {label: [one.score, one.likely, one.message] for label, one in reports.items()}
    return found


def without_twin():
    """What `mine` and the figure do where the twins of this phase are not there."""
    from utils import oracle, widgets
    from utils.mycode import mine

    os.environ["NBGRADER_EXECUTION"] = "autograde"
    try:
        mine("sdpa")
    except LookupError as error:
        refusal = error.args[0]
    with contextlib.redirect_stdout(io.StringIO()):
        words = widgets.mask_painter().words()
    del os.environ["NBGRADER_EXECUTION"]
    return {"mine": refusal, "painter": words, "sdpa": hasattr(oracle, "sdpa")}


def main(folder, bank):
    alone(folder, bank)
    asked = json.load(sys.stdin)
    import utils
    from utils.checks import EXERCISES

    seen = {
        "utils": utils.__file__,
        "exercises": {name: [one.section, one.phase] for name, one in EXERCISES.items()},
        "blank": verdicts(blank_cells(folder)),
        "solved": verdicts(asked["cells"]),
        "bank": bank_reports(asked["labels"]),
        "without": without_twin(),
    }
    seen["modules"] = [name for name in sys.modules if name.split(".")[0] in ("utils", "autograde", "solutions")]
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
