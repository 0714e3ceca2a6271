"""Where the numbers of a benchmark are kept: one json for each in `results/`."""

import json
from pathlib import Path


def keep(found, path):
    """Write what was found as json; nothing without a path."""
    if path:
        Path(path).write_text(json.dumps(found, indent=1) + "\n", encoding="utf8")
