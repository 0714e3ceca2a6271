"""What a learner has done, and what is next: from checks to the table."""

import nbformat
import pytest
from typer.testing import CliRunner

from tests.drill_cards import Clock, recall
from tests.two_releases import NAME, first_release, put, solved
from utils import check, cli, oracle
from utils.checks import CheckFailed
from utils.drills import store as stores
from utils.drills.store import HOME, Event, Store
from utils.progress import progress
from utils.progress.standing import standing
from utils.progress.table import Table

run = CliRunner(env={"COLUMNS": "200"}).invoke
RIGHT = "✓ done"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv(HOME, str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course of one small phase, partly solved in my_work/."""
    release = first_release()
    title = "### Exercise 2.{} · `{}` · {} · about {} min".format
    cells = {cell.id: cell for cell in release.cells}
    cells["sdpa-idea"].source = title("3b", "sdpa", "core", 15)
    cells["reflect-sdpa"].source = title(9, "old_mask", "stretch", 30)
    put(tmp_path / "notebooks" / NAME, release)
    put(tmp_path / "my_work" / NAME, solved(release))
    monkeypatch.setattr(cli, "course_root", lambda: tmp_path)
    return tmp_path


def record(*events):
    with Store() as store:
        for at, (kind, subject, score) in enumerate(events):
            store.append(Event(float(at), kind, subject, score))


def causal_mask(q_len, kv_len=None):
    import torch

    return torch.ones(q_len, q_len if kv_len is None else kv_len, dtype=torch.bool).tril()


def test_every_check_is_an_event(capsys):
    """A failing check: is there an event with its score, points and likely mistake?"""
    with pytest.raises(CheckFailed):
        check(causal_mask, points=4)
    with Store() as store:
        (event,) = store.events("check")
    assert event.subject == "causal_mask" and event.score < 1 and event.data["points"] == 4
    assert event.data["aspects"]["values"] is False


def test_a_blank_cell_is_no_event():
    """Run All on a fresh notebook: does a stub that was not touched stay open?"""

    def causal_mask(q_len, kv_len=None):
        raise NotImplementedError()

    with pytest.raises(CheckFailed, match="not implemented"):
        check(causal_mask)
    with Store() as store:
        assert store.events() == []


@pytest.mark.parametrize("mode", ["autograde", "validate"])
def test_while_grading_nothing_is_written(monkeypatch, home, mode):
    """A grader runs a class's notebooks: is nobody's progress touched, and no file made?"""
    monkeypatch.setenv("NBGRADER_EXECUTION", mode)
    try:
        check(causal_mask)
    except CheckFailed:
        assert mode == "validate"
    assert not home.exists()


@pytest.mark.parametrize("fault", ["no right to write", "a bug of ours"])
def test_a_check_never_fails_for_its_event(monkeypatch, capsys, home, fault):
    """No place to write, or worse: is the report the same, and nothing on stderr?"""
    if fault == "a bug of ours":
        monkeypatch.setattr(stores.Store, "append", lambda *event: 1 / 0)
    else:
        home.write_text("a file where the folder should be")
    with pytest.raises(CheckFailed, match="✗ causal_mask"):
        check(causal_mask)
    assert capsys.readouterr() == ("", "")


def test_a_damaged_file_is_said_by_the_check_that_meets_it(capsys, home):
    """The file is broken and a check is the first to see it: is the reader told where it is kept?"""
    home.mkdir()
    (home / "workbook.db").write_bytes(b"nonsense " * 99)
    with pytest.raises(CheckFailed):
        check(causal_mask)
    assert "was damaged. It is kept as" in capsys.readouterr().out


def test_done_partly_and_open_are_told_apart(course):
    """Passed once; checked and not right; never checked: three states, with points and tries?"""
    assert [one.state for one in standing(course).exercises] == ["open", "open"]
    record(("check", "sdpa", 0.4), ("check", "sdpa", 0.2))
    sdpa, old_mask = standing(course).exercises
    assert (sdpa.state, sdpa.points, sdpa.tries) == ("partly", 1.6, 2) and old_mask.state == "open"
    record(("check", "sdpa", 1.0), ("check", "sdpa", 0.0))
    assert standing(course).exercises[0].state == "done"


def test_the_next_thing_is_what_was_begun(course):
    """Begun and not right before new, core before stretch, and at the end that all is done?"""
    assert standing(course).next_exercise().task.name == "sdpa"
    record(("check", "old_mask", 0.5))
    assert standing(course).next_exercise().task.name == "sdpa"
    record(("check", "sdpa", 1.0))
    assert standing(course).next_exercise().task.name == "old_mask"
    record(("check", "old_mask", 1.0))
    assert standing(course).next_exercise() is None
    assert "Every exercise is done." in str(Table(standing(course)))


def test_due_cards_are_counted(course):
    """Two due today, one next week, one that the course no longer has: two, with their minutes?"""
    clock = Clock()
    with Store() as store:
        for name, due in (("a", -5), ("b", -1), ("c", 7e5), ("gone", -9)):
            store.remember(f"phase2/{name}", clock().timestamp() + due, {})
    cards = [recall(f"phase2/{name}") for name in "abc"]
    now = standing(course, clock=clock, cards=cards)
    assert now.due == {2: 2} and now.minutes_due == 4
    assert "Next: 2 cards due, about 4 min: workbook drill" in str(Table(now))


def test_the_table_says_it_with_marks_words_and_numbers(course):
    """In a terminal and in a notebook: marks, points, minutes left, and the next thing to do?"""
    record(("check", "sdpa", 0.4))
    text, html = str(progress(course)), progress(course)._repr_html_()
    assert "2 Attention" in text and "◐○" in text and "1.6/8" in text and "15 min" in text
    assert "Next: go on with sdpa, section 2.3, about 15 min: phase2_attention/phase2_attention.ipynb" in text
    assert "◐ 1 partly · ○ 1 open" in html and "<code>sdpa</code> 2.3 · partly · 1.6/4 points" in html
    assert "✓ done   ◐ partly   ○ open" in text and "color" not in html
    assert "old_mask" in run(cli.app, ["progress", "--details"]).output and "◐○" in run(cli.app, ["progress"]).output


def test_a_file_that_cannot_be_read_is_said_and_the_table_shown(course, home):
    """A folder where the file should be: the table, all open, and a sentence?"""
    (home / "workbook.db").mkdir(parents=True)
    text = str(progress(course))
    assert "○○" in text and "cannot be opened" in text


def test_reset_makes_one_cell_blank_and_keeps_a_copy(course):
    """One exercise again: its cell blank, everything else as it was, the old notebook in backups/?"""
    path = course / "my_work" / NAME
    before, record_before = path.read_bytes(), nbformat.read(path, 4)
    record(("check", "sdpa", 1.0))
    result = run(cli.app, ["reset", "sdpa"])
    after = nbformat.read(path, 4)
    assert result.exit_code == 0 and "blank again" in result.output
    changed = [b.id for a, b in zip(record_before.cells, after.cells, strict=True) if a.source != b.source]
    (cell,) = [cell for cell in after.cells if cell.id in changed]
    assert changed == ["sdpa-build"] and "NotImplementedError" in cell.source and cell.execution_count is None
    (copy,) = (course / "my_work" / "backups").glob(f"20*/{NAME}")
    assert copy.read_bytes() == before and str(copy.parents[1]) in result.output
    assert standing(course).exercises[0].state == "open"
    assert "blank already" in run(cli.app, ["reset", "sdpa"]).output


def test_an_exercise_can_be_done_again_after_a_reset(course):
    """Reset, then checked again: do only the later checks count?"""
    record(("check", "sdpa", 1.0), ("reset", "sdpa", None), ("check", "sdpa", 0.5))
    sdpa = standing(course).exercises[0]
    assert (sdpa.state, sdpa.score, sdpa.tries) == ("partly", 0.5, 1)


@pytest.mark.parametrize(
    ("name", "spoil", "says"),
    [
        ("sdqa", None, "No exercise is called sdqa. Did you mean sdpa?"),
        ("sdpa", "gone", "is not there yet: workbook learn"),
        ("sdpa", "half", "is not a readable notebook"),
        ("sdpa", "cell", "has no cell for sdpa any more"),
    ],
)
def test_what_cannot_be_reset_is_said_and_left_alone(course, name, spoil, says):
    """No such exercise, no copy, half a file, no cell: a sentence, and no file changed?"""
    path = course / "my_work" / NAME
    if spoil == "gone":
        path.unlink()
    elif spoil == "half":
        path.write_text("{")
    elif spoil == "cell":
        notebook = nbformat.read(path, 4)
        notebook.cells = [cell for cell in notebook.cells if cell.id != "sdpa-build"]
        put(path, notebook)
    before = path.read_bytes() if path.exists() else None
    result = run(cli.app, ["reset", name])
    assert result.exit_code == 1 and says in result.output and "Traceback" not in result.output
    assert (path.read_bytes() if path.exists() else None) == before
    assert not (course / "my_work" / "backups").exists()


def test_the_courses_own_answer_earns_no_event_that_says_done():
    """check(oracle.sdpa): not the learner's; is it no "done"?"""
    sdpa = oracle.sdpa
    with pytest.raises(CheckFailed):
        check(sdpa)
    with Store() as store:
        assert [event.score for event in store.events("check")] != [1.0]
