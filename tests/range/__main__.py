"""`python -m tests.range`: see the package."""

import json
import sys
import tempfile
from pathlib import Path

from autograde.course import ROOT
from tests.range import RANGE
from tests.range.table import save, shown, table, told


def main(who="", *names):
    if who == "table":
        stock, ours = (_read(name) for name in names)
        result = table(stock, ours)
        save(result, ROOT / "benchmarks" / "results" / "range.json")
        print(shown(result))
        return
    chosen = [name for name in RANGE if not names or name in names or RANGE[name].kind in names]
    if who == "stock":
        from tests.range.stock import SHARES, baseline, spread

        found = baseline(chosen if names else spread(SHARES), tell=_tell)
    elif who == "ours":
        from tests.range.ours import graded
        from tests.range.verdict import plain

        with tempfile.TemporaryDirectory(prefix="range-") as folder:
            found = plain(graded(folder, chosen)[1]).items()
    else:
        for name in chosen:
            print(f"{RANGE[name].kind:9} {name:32} {RANGE[name].goal}")
        return
    for name, one in found:
        print(json.dumps({name: one}), flush=True)
        _tell(f"{name or '(nobody)':32} {told(one)}")


def _tell(text):
    print(text, file=sys.stderr, flush=True)


def _read(path):
    """Name -> plain verdict, from lines of JSON; of two the later one."""
    return {name: one for line in Path(path).read_text().splitlines() for name, one in json.loads(line).items()}


if __name__ == "__main__":
    main(*sys.argv[1:])
