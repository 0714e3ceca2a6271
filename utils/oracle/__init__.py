"""The trusted twins: one per exercise, made of torch's built-ins or of an independent formula.

`oracle.sdpa` is the answer that the check of `sdpa` compares with, and what `mine("sdpa")` falls back to.
"""

from utils.oracle.phase2 import *  # noqa: F403  one name per exercise; phase2.__all__ lists them
