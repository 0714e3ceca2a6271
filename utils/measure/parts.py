"""A part that somebody built: the learner's, else the course's, else None, as in a class's copy without answers."""

import contextlib
import io

from utils import oracle
from utils.mycode import mine

YOURS, OURS = "yours", "the course's"


def part(name):
    """(function, "yours" or "the course's"), or (None, why not); prints nothing."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            found = mine(name)
    except (LookupError, ImportError):
        return None, f"{name} is not finished, and this copy of the course has none of its own"
    return found, OURS if found is getattr(oracle, name, None) else YOURS
