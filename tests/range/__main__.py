"""`python -m tests.range`: see the package."""

import json
import sys
import tempfile

from tests.range import RANGE
from tests.range.table import told


def main(who="", *names):
    names = [name for name in RANGE if not names or name in names or RANGE[name].kind in names]
    if who == "stock":
        from tests.range.stock import baseline

        found = baseline(names, tell=lambda text: print(text, file=sys.stderr, flush=True))
    elif who == "ours":
        from tests.range.ours import graded
        from tests.range.verdict import plain

        with tempfile.TemporaryDirectory(prefix="range-") as folder:
            found = plain(graded(folder, names)[1])
    else:
        for name in names:
            print(f"{RANGE[name].kind:9} {name:32} {RANGE[name].goal}")
        return
    for name, one in found.items():
        print(f"{name or '(nobody)':32} {told(one)}", file=sys.stderr)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
