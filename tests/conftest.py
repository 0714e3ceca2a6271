"""What holds for every test: one thread, no display, not inside nbgrader, nobody's own progress is touched.

And in CI nothing is skipped in silence.
"""

import os
import shutil
import tempfile

import pytest

# before torch, matplotlib and rich are imported; kernels inherit it
os.environ.update(OMP_NUM_THREADS="1", MPLBACKEND="Agg", COLUMNS="200")
os.environ.pop("NBGRADER_EXECUTION", None)
os.environ["TRANSFORMER_WORKBOOK_HOME"] = HOME = tempfile.mkdtemp(prefix="workbook-tests-")


def fail_if_skipped(report):
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was skipped, and in CI nothing may be: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return fail_if_skipped((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return fail_if_skipped((yield))


LONGEST = ["test_range.py", "test_solution_runs.py", "test_checks_bank.py", "test_browser.py", "test_nbgrader_traps.py"]


def pytest_collection_modifyitems(items):
    """The files that take longest go first, so that no worker is left alone with one at the end."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """One more than there are cores: a worker often waits, for a browser, a limit, a server."""
    return os.cpu_count() + 1


def pytest_unconfigure():
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course folder of its own with nothing in my_work/, the kernel running in the folder of phase 3."""
    from utils import mycode

    here = tmp_path / "my_work" / "phase3_multi_head"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setattr(mycode, "course_root", lambda: tmp_path)
    monkeypatch.setattr(mycode, "_cache", {})
    return tmp_path
