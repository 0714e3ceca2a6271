"""The hostile range: submissions that attack, leak, sabotage or are broken, and a judge of what became of them.

python -m tests.range                      what there is
python -m tests.range stock NAME…          stock nbgrader, each attack by itself in a throw-away sandbox
python -m tests.range ours NAME…           this course's grader, all attacks in one batch
"""

from tests.range import faults, leaks, lines, pages, sabotage, score, score_cells, score_theft  # noqa: F401
from tests.range.attack import KINDS, PHASE, RANGE, Attack, World

__all__ = ["KINDS", "PHASE", "RANGE", "Attack", "World"]
