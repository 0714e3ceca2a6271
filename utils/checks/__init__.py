"""The judging half of a check: cases, known mistakes, verdicts. `utils.observe` is the half that runs learner code."""

import importlib
import importlib.util
import pkgutil
from pathlib import Path

from utils.checks import stored
from utils.checks.core import CheckFailed, check, evaluate
from utils.checks.exercise import EXERCISES

__all__ = ["EXERCISES", "CheckFailed", "check", "evaluate"]


def _register(package):
    """Make the exercises of a phase known: by its own modules or, in a class's copy without them, by stored exams."""
    modules = [f"{package.__name__}.{section}" for section in package.SECTIONS]
    if importlib.util.find_spec(modules[0]) is None:
        stored.register(Path(__file__).with_name("exams") / package.PHASE)
        return
    for module in modules:
        importlib.import_module(module)


for _name in sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name.startswith("phase")):
    _register(importlib.import_module(f"{__name__}.{_name}"))
