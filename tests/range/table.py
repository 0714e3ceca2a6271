"""The table of the range: per class, how many submissions forged, leaked, harmed or lost; stock nbgrader and ours."""

import datetime
import json
import platform
from importlib.metadata import version

from tests.range.attack import KINDS, RANGE

WHO = ("stock", "ours")
BAD = ("forged", "leaked", "harmed", "lost")
COLUMNS = (*BAD, "flagged")
MEANING = {
    "forged": "scored points that it does not deserve",
    "flagged": "scored such points, and the report tells a person where to look",
    "leaked": "learnt or carried away a secret, or made a page that acts by itself",
    "harmed": "did harm to the grader, the machine or another student",
    "lost": "lost points that it deserves, or was not named",
}


def counts(found, kind):
    """Column -> number of submissions of that class. `found`: name -> plain verdict."""
    rows = [one for name, one in found.items() if name and RANGE[name].kind == kind]
    return {"submissions": len(rows), **{column: sum(bool(one.get(column)) for one in rows) for column in COLUMNS}}


def told(one):
    """A plain verdict in one line; empty if all is well."""
    return "; ".join(f"{column}: {', '.join(one[column])[:300]}" for column in BAD if one[column])


def table(stock, ours):
    """What goes into benchmarks/results/range.json."""
    return {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "nbgrader": version("nbgrader"),
        "meaning": MEANING,
        "classes": {kind: {"stock": counts(stock, kind), "ours": counts(ours, kind)} for kind in KINDS},
        "attacks": {
            name: {"class": attack.kind, "goal": attack.goal, "stock": _said(stock, name), "ours": _said(ours, name)}
            for name, attack in RANGE.items()
            if name in stock or name in ours
        },
    }


def _said(found, name):
    return told(found[name]) if name in found else None


def shown(result):
    """The table as lines of text."""
    lines = [f"{'class':10}" + "".join(f"{who:>8}{''.join(f'{name:>8}' for name in COLUMNS)}" for who in WHO)]
    for kind, row in result["classes"].items():
        lines.append(f"{kind:10}" + "".join(f"{row[who][name]:8}" for who in WHO for name in ("submissions", *COLUMNS)))
    return "\n".join(lines)


def save(result, path):
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", "utf-8")
