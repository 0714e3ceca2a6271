"""Marking one notebook: what runs, what is replayed, what a score rests on, and who draws the questions."""

import os
import signal
from dataclasses import replace

import pytest
from nbformat.v4 import new_code_cell, new_notebook

from autograde.exams import Papers, secret, seed_of, set_paper
from autograde.marking import Marker, MarkingError, digest_of
from autograde.pool import Desk, Here, Processes
from autograde.sandbox import Limits
from tests.sample_course import CAUSAL, PADDING

KEY = b"k" * 32
GOOD = f"import torch\ndef causal_mask(q_len, kv_len=None):\n{CAUSAL}"
ALSO_GOOD = f"import torch\ndef padding_mask(pad_mask):\n{PADDING}"


def check_cell(name, points):
    cell = new_code_cell(f"check({name}, points={points})")
    cell.metadata["nbgrader"] = {"grade": True, "solution": False, "grade_id": name, "points": points}
    return cell


def notebook(*cells):
    """Sources in order, then a check of both masks."""
    code = [cell if not isinstance(cell, str) else new_code_cell(cell) for cell in cells]
    return new_notebook(cells=[*code, check_cell("causal_mask", 4), check_cell("padding_mask", 2)])


@pytest.fixture(scope="module")
def marker():
    with Marker("sample", Papers(KEY), Limits(cell=8.0, notebook=90.0)) as running:
        yield running


def scores(marking):
    return {name: report.score for name, report in marking.reports.items()}


def said(marking, number):
    return str(marking.outputs[number])


def test_scores_are_written_by_the_marker(marker):
    """Do the check cells hold the report, the number nbgrader reads, and nothing a learner said?"""
    work = notebook(GOOD, "print('hello')")
    marking = marker.mark(work, "ada")
    marking.write_into(work)
    text, number = work.cells[2].outputs
    assert text.text.startswith("✓ causal_mask · 4/4") and number.data["text/plain"] == "4.0"
    assert number.data["text/html"] == "4 of 4 points"
    assert "is not defined: no cell of this notebook built it" in work.cells[3].outputs[0].text
    assert scores(marking) == {"causal_mask": 1.0, "padding_mask": 0.0}
    assert work.cells[1].outputs[0].text == "hello\n"


def test_demo_and_empty_cells_are_not_run(marker):
    """Are figures and training skipped?"""
    demo = new_code_cell("1/0", metadata={"tags": ["demo"]})
    marking = marker.mark(notebook(demo, " \n"), "ada")
    assert set(marking.outputs) == {2, 3}


def test_after_a_lethal_cell_the_others_are_replayed(marker):
    """If a cell ends the process, do cells before and after it keep their points, and is it told which one it was?"""
    marking = marker.mark(notebook(GOOD, "import os; os._exit(0)", ALSO_GOOD), "ada")
    assert scores(marking) == {"causal_mask": 1.0, "padding_mask": 1.0}
    assert "This cell did not finish: its process has ended" in said(marking, 1)
    assert marking.events == [{"exercise": "", "what": "cell 2: its process has ended"}]


def test_endless_deaths_come_to_an_end(marker):
    """Is a notebook of nothing but lethal cells given up after a few children?"""
    marking = marker.mark(notebook(*["import os; os._exit(0)"] * 8, GOOD), "ada")
    assert scores(marking) == {"causal_mask": 0.0, "padding_mask": 0.0}
    assert "ended its process 5 times" in said(marking, 8)


def test_a_notebook_has_a_time_of_its_own():
    """Is a notebook of many slow cells stopped as a whole, and are its checks still told something?"""
    with Marker("sample", Papers(KEY), Limits(cell=5.0, notebook=2.0)) as hasty:
        marking = hasty.mark(notebook(*["import time; time.sleep(1.5)"] * 4), "ada")
    assert scores(marking) == {"causal_mask": 0.0, "padding_mask": 0.0}
    assert "stopped after" in said(marking, 2) and "stopped after" in said(marking, 3)


SPY = f"""
import torch, mmap, os
reading, writing = os.pipe()
shared = mmap.mmap(-1, 9)
def causal_mask(q_len, kv_len=None):
    shared[:4] = b"seen"
    os.write(writing, b"seen")
    open("seen", "w").write("seen")
{CAUSAL}"""
READ = "import os; os.set_blocking(reading, False)\nprint(shared[:4], os.path.exists('seen'))\nos.read(reading, 4)"


def test_no_cell_learns_what_was_asked(marker):
    """A function passes its inputs on, by file, pipe and memory: does a later cell find nothing, and the check pass?"""
    work = notebook(SPY)
    work.cells.append(new_code_cell(READ))
    marking = marker.mark(work, "ada")
    assert scores(marking)["causal_mask"] == 1.0
    printed, error = marking.outputs[3]
    assert printed["text"] == f"{bytes(4)} False\n" and error["ename"] == "BlockingIOError"


def test_what_counts_is_the_object_at_its_check(marker):
    """Do later cells that use the name again cost nothing, and is an answer below its check still found?"""
    work = notebook(GOOD)
    again = "causal_mask = causal_mask(3)\ntorch = None"
    work.cells += [new_code_cell(again), new_code_cell("import torch"), new_code_cell(ALSO_GOOD)]
    assert scores(marker.mark(work, "ada")) == {"causal_mask": 1.0, "padding_mask": 1.0}


def test_answers_have_a_time_and_children_of_their_own():
    """If cells use up the notebook's time or its children, does what worked before keep its points?"""
    with Marker("sample", Papers(KEY), Limits(cell=4.0, notebook=3.0)) as hasty:
        slow = hasty.mark(notebook(GOOD, *["import time; time.sleep(2)"] * 3), "ada")
        deadly = hasty.mark(notebook(GOOD, *["import os; os._exit(0)"] * 6), "bob")
    assert scores(slow)["causal_mask"] == scores(deadly)["causal_mask"] == 1.0


FORGED = {
    "a check of one's own": "import utils, builtins\nutils.check = builtins.check = check = lambda *a, **k: 4.0",
    "answers of another kind": """
import utils.observe.run as run, inside, sys
def answer(obj, message):
    from utils.observe import codec, nothing_seen
    return codec.encode(nothing_seen())
run.answer = sys.modules['utils.observe'].answer = sys.modules['__main__'].answer = inside.answer = answer
""",
    "garbage": """
import sys
sys.modules['__main__'].answer = lambda obj, message: b'x' * 100
""",
}


@pytest.mark.parametrize("how", FORGED)
def test_forged_answers_earn_nothing(marker, how):
    """Whatever the child is made to claim, does it earn nothing without the right numbers?"""
    assert scores(marker.mark(notebook(FORGED[how]), "ada")) == {"causal_mask": 0.0, "padding_mask": 0.0}


def test_a_marking_belongs_to_one_notebook(marker):
    """Is a marking refused by any other notebook than the one that was marked?"""
    work = notebook(GOOD)
    marking = marker.mark(work, "ada")
    work.cells[0].source += "\n"
    assert digest_of(work) != marking.digest
    with pytest.raises(MarkingError, match="changed while it was graded"):
        marking.write_into(work)


def test_a_check_that_nobody_wrote_is_the_courses_fault(marker):
    """Does a grade cell without an exercise stop with a sentence, instead of giving everybody 0?"""
    with pytest.raises(MarkingError, match="no_such has no check in utils/checks"):
        marker.mark(new_notebook(cells=[check_cell("no_such", 1)]), "ada")


def test_the_secret_is_made_once_and_for_the_owner_alone(tmp_path):
    """Is the secret kept, and readable by its owner only?"""
    (tmp_path / "autograde").mkdir()
    assert len(secret(tmp_path)) == 32 and secret(tmp_path) == secret(tmp_path)
    assert (tmp_path / "autograde" / "secret.key").stat().st_mode & 0o077 == 0


def test_seeds_differ_by_secret_exercise_and_student():
    """Can nobody who lacks the secret, or is someone else, know the numbers?"""
    seeds = {seed_of(KEY, "sdpa"), seed_of(b"l" * 32, "sdpa"), seed_of(KEY, "causal_mask"), seed_of(KEY, "sdpa", "ada")}
    assert len(seeds) == 4 and all(0 <= seed < 2**63 for seed in seeds)


def test_each_student_can_have_questions_of_their_own():
    """With own seeds, do two students get other inputs, and each the same ones again?"""
    shared, own = Papers(KEY), Papers(KEY, own_seeds=True)
    assert shared.on("padding_mask", "ada") is shared.on("padding_mask", "bob")
    ada, bob = (own.on("padding_mask", who).requests for who in ("ada", "bob"))
    assert ada != bob and ada == Papers(KEY, own_seeds=True).on("padding_mask", "ada").requests
    assert len(ada) == len(shared.on("padding_mask", "ada").requests)


def test_hidden_cases_are_among_the_questions():
    """Does a paper hold the hidden cases, too?"""
    assert any(case.hidden for case in set_paper("causal_mask", 1).exam.cases)


class Job:
    """What a pool needs to know of a submission."""

    def __init__(self, student, work):
        self.student, self.phase, self.notebook, self.result, self.file = student, "sample", work, None, None


class Lethal(Papers):
    """Papers whose drawing kills the process that marks: a fault of ours, not of a submission."""

    def on(self, name, student):
        if student == "victim":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().on(name, student)


@pytest.mark.slow
def test_a_worker_that_dies_costs_no_other_submission():
    """If a worker process is killed while marking, is every other submission marked, and the victim named?"""
    desk = Desk(Lethal(KEY), Limits(cell=8.0), "full")
    jobs = [Job(name, notebook(GOOD)) for name in ("ada", "victim", "bob")]
    with Processes(desk, 2) as pool:
        found = {job.student: result for job, result in pool.marked(jobs)}
    assert [scores(found[name])["causal_mask"] for name in ("ada", "bob")] == [1.0, 1.0]
    assert "died each time" in str(found["victim"])


@pytest.mark.slow
def test_here_and_elsewhere_mark_alike():
    """Do one process and a pool give the same marking?"""
    desk = Desk(Papers(KEY), Limits(cell=8.0), "full")
    job = Job("ada", notebook(GOOD, ALSO_GOOD))
    with Here(desk) as here:
        [(_, mine)] = here.marked([job])
    with Processes(desk, 1) as pool:
        [(_, theirs)] = pool.marked([job])
    assert replace(mine, cpu_seconds=0) == replace(theirs, cpu_seconds=0)
