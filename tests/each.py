"""Which exercises a test that says the same of all of them asks on every run, and which only in `make test-all`."""

import pytest

from utils.checks import EXERCISES


def one_in(step):
    """Every exercise as a parameter; only every `step`th of them is not slow."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (index % step > 0)) for index, name in enumerate(EXERCISES)]
