"""The grader is graded: every wrong solution is rejected and named, every right one accepted."""

import pytest

from autograde.kill_matrix import Row, judge_bank, judge_mutants, judge_own, load_equal, solution_cells
from tests import bank
from tests.each import one_in
from utils.checks import EXERCISES, evaluate


@pytest.mark.parametrize("name", EXERCISES)
@pytest.mark.parametrize("most", [3, pytest.param(None, marks=pytest.mark.slow)], ids=["some", "all"])
def test_bank_is_judged_rightly(name, most):
    """Is every wrong solution refused (by its name, where it has one) and every unusual right one accepted?"""
    row = Row(name)
    judge_bank(row, bank, most)
    assert not row.survivors, "\n".join(row.survivors)
    assert len(bank.WRONG[name]) >= 6 and len(bank.RIGHT[name]) >= 4, "this bank is too small to prove anything"


@pytest.mark.parametrize("name", EXERCISES)
def test_twin_and_solution_pass_and_the_blank_stub_does_not(name):
    """Do the twin and the model solution score 1, and the blank stub 0 with "not implemented yet"?"""
    row = Row(name)
    judge_own(row, solution_cells(EXERCISES[name].phase))
    assert not row.survivors, "\n".join(row.survivors)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXERCISES)
def test_no_mutant_of_the_solution_survives(name):
    """Is every small fault put into the model solution noticed, or argued to be none?"""
    row = Row(name)
    judge_mutants(row, solution_cells(EXERCISES[name].phase), load_equal().get(name, {}))
    assert not row.survivors, "\n".join(row.survivors)
    assert row.mutants >= 5, "hardly any mutant was made: is the solution's source being read?"


@pytest.mark.slow
def test_every_argued_mutant_still_exists():
    """Does the list of harmless mutants hold only mutants that the solutions still have?"""
    from autograde.mutants import mutants

    for name, argued in load_equal().items():
        made = {mutant.what for mutant in mutants(solution_cells(EXERCISES[name].phase)[name])}
        assert set(argued) <= made, f"{name}: {sorted(set(argued) - made)}"


@pytest.mark.parametrize("name", one_in(13))
def test_verdicts_do_not_depend_on_the_seed(name):
    """Does another draw of the numbers accept the twin and still name each known mistake?"""
    for seed in (1, 2):
        assert evaluate(name, EXERCISES[name].expected, seed=seed).score == 1
        for says, mistake in EXERCISES[name].mistakes.items():
            report = evaluate(name, mistake, seed=seed)
            assert not report.passed and report.likely == says
