"""The judging half of a check: cases, known mistakes, verdicts. `utils.observe` is the half that runs learner code."""

from utils.checks import phase2  # noqa: F401  its modules register their exercises
from utils.checks.core import CheckFailed, check, evaluate
from utils.checks.exercise import EXERCISES

__all__ = ["EXERCISES", "CheckFailed", "check", "evaluate"]
