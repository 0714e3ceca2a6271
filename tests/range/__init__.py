"""The hostile range: submissions that attack, leak, sabotage or are broken, and a judge of what became of them.

python -m tests.range                      what there is
python -m tests.range ours [NAME…]         this course's grader, all attacks in one batch
python -m tests.range stock [NAME…]        stock nbgrader, in throw-away sandboxes; without names some of each class
python -m tests.range table STOCK OURS     what those two have printed, as benchmarks/results/range.json
"""

from tests.range import faults, leaks, lines, pages, sabotage, score, score_cells, score_theft  # noqa: F401
from tests.range.attack import KINDS, PHASE, RANGE, Attack, World

__all__ = ["KINDS", "PHASE", "RANGE", "Attack", "World"]
