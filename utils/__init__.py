"""The Transformer Workbook: what a learner's notebook imports.

`from utils import check` is the one name every exercise needs, and `compare` says why two tensors differ. They are
loaded on first use, so that `utils.observe` (which runs inside the grading sandbox) can be imported without any answer
coming along.
"""

COURSE = "transformer-workbook"  # start_here looks for this name: other projects call their package utils, too


def __getattr__(name):
    if name == "check":
        from utils.checks import check

        return check
    if name == "compare":
        from utils.comparison import compare

        return compare
    raise AttributeError(f"module 'utils' has no attribute {name!r}")
