"""my_work/: a new release comes in, and nothing that a learner wrote goes out."""

import copy
import json
import os

import nbformat
import pytest
from nbformat.v4 import new_notebook

from tests.two_releases import NAME, code, first_release, ids, put, second_release, solved, sources, text
from utils import workspace
from utils.merge import KEPT, fingerprints, merge
from utils.workspace import PHASES, WorkspaceError, course_root, phase_map, read_notebook, update


@pytest.fixture
def course(tmp_path):
    put(tmp_path / "notebooks" / NAME, first_release())
    put(tmp_path / "notebooks" / "start_here.ipynb", new_notebook(cells=[text("hello", "# Start here")]))
    return tmp_path


def brought_up_to_date(course, mine, release):
    """Release 1, the learner's work on it, then the update to `release`. Returns the merged notebook and its row."""
    update(course)
    put(course / "my_work" / NAME, mine)
    put(course / "notebooks" / NAME, release)
    row = next(row for row in update(course) if row.path == NAME)
    return read_notebook(course / "my_work" / NAME), row


# ---- the first copy --------------------------------------------------------------------------------


def test_the_first_copy_is_the_release_itself(course):
    """Does a learner begin with exactly what was released, pages and phases?"""
    rows = update(course)
    assert {row.path: row.what for row in rows} == {NAME: "new", "start_here.ipynb": "new"}
    for row in rows:
        assert (course / "my_work" / row.path).read_bytes() == (course / "notebooks" / row.path).read_bytes()


def test_saved_work_is_never_replaced_by_a_second_start(course):
    """`make learn` every morning: is the notebook, down to the byte, as the learner saved it?"""
    update(course)
    put(course / "my_work" / NAME, solved(first_release()))
    before = (course / "my_work" / NAME).read_bytes()
    assert {row.what for row in update(course)} == {"unchanged"}
    assert (course / "my_work" / NAME).read_bytes() == before
    assert not (course / "my_work" / "backups").exists()


def test_without_a_release_the_reader_is_told_what_to_do(tmp_path):
    """An unbuilt clone: is there a plain sentence?"""
    with pytest.raises(WorkspaceError, match="make build"):
        update(tmp_path)


# ---- a new release into a half-solved copy ------------------------------------------------------------


def test_a_new_release_brings_text_and_checks_and_keeps_the_work(course):
    """Is every answer still there, every old text gone, the order that of the lesson?"""
    merged, row = brought_up_to_date(course, solved(first_release()), second_release())
    now = sources(merged)
    assert now["sdpa-idea"] == "## Mixing values, better told" and now["sdpa"] == "check(sdpa, points=5)"
    assert now["sdpa-build"].endswith("# mine") and now["why-scale"] == "Because of the variance."
    assert now["reflect-sdpa"] == "It was sharper, as I said." and "NotImplementedError" in now["causal_mask-build"]
    lesson = ids(second_release())
    lesson.insert(4, "my-try")
    assert ids(merged) == [*lesson, KEPT, "old_mask-build"]
    assert ("replaced", "sdpa-idea") in row.changes and ("new", "causal_mask") in row.changes
    assert ("moved to the end", "old_mask-build") in row.changes and ("removed", "old_mask") in row.changes


def test_outputs_stay_with_the_code_that_made_them(course):
    """Does a learner find the pictures of yesterday?"""
    merged, _ = brought_up_to_date(course, solved(first_release()), second_release())
    cells = {cell.id: cell for cell in merged.cells}
    assert cells["look"].outputs[0].text == "a picture" and cells["sdpa-build"].execution_count == 7
    assert cells["sdpa"].outputs == []


def test_the_merged_notebook_is_valid_and_still_gradable(course):
    """Does nbgrader find the grade ids of this release, each once?"""
    merged, _ = brought_up_to_date(course, solved(first_release()), second_release())
    nbformat.validate(merged)
    grade_ids = [c.metadata["nbgrader"]["grade_id"] for c in merged.cells if "nbgrader" in c.metadata]
    assert grade_ids == [c.metadata["nbgrader"]["grade_id"] for c in second_release().cells if "nbgrader" in c.metadata]


def test_updating_twice_changes_nothing(course):
    """Is the second update a no-op: no change, no backup?"""
    brought_up_to_date(course, solved(first_release()), second_release())
    before = (course / "my_work" / NAME).read_bytes()
    backups = list((course / "my_work" / "backups").iterdir())
    assert {row.what for row in update(course)} == {"unchanged"}
    assert (course / "my_work" / NAME).read_bytes() == before
    assert list((course / "my_work" / "backups").iterdir()) == backups


def test_the_files_as_they_were_are_in_a_backup(course):
    """Can a learner go back?"""
    mine = solved(first_release())
    brought_up_to_date(course, mine, second_release())
    (folder,) = (course / "my_work" / "backups").iterdir()
    assert read_notebook(folder / NAME) == mine
    assert [path.name for path in folder.rglob("*.ipynb")] == ["phase2_attention.ipynb"]


def test_an_untouched_stub_follows_the_release(course):
    """A stub nobody has worked on: does its new text arrive?"""
    release = second_release()
    release.cells[2].source = "def sdpa(x, mask=None):\n    raise NotImplementedError()"
    merged, _ = brought_up_to_date(course, first_release(), release)
    assert sources(merged)["sdpa-build"].startswith("def sdpa(x, mask=None)")


def test_a_solution_stays_although_its_stub_changed(course):
    """The learner's code or the new stub: is it the learner's, and is that told?"""
    release = second_release()
    release.cells[2].source = "def sdpa(x, mask=None):\n    raise NotImplementedError()"
    merged, row = brought_up_to_date(course, solved(first_release()), release)
    assert sources(merged)["sdpa-build"].endswith("# mine") and ("yours kept", "sdpa-build") in row.changes


def test_a_deleted_check_comes_back(course):
    """A check cell deleted by accident: is it there again, in its place?"""
    mine = solved(first_release())
    mine.cells = [cell for cell in mine.cells if cell.id != "sdpa"]
    merged, row = brought_up_to_date(course, mine, first_release())
    assert ids(merged)[2:5] == ["sdpa-build", "my-try", "sdpa"]
    assert row.changes == [("put back", "sdpa")]


def test_moved_cells_return_to_the_lessons_order(course):
    """Cells in another order: nothing lost, the lesson's order restored, added cells beside the cell they followed?"""
    mine = solved(first_release())
    mine.cells.reverse()
    merged, row = brought_up_to_date(course, mine, first_release())
    order = [name for name in ids(merged) if name != "my-try"]
    assert order == ids(first_release()) and ("back in order", "cells") in row.changes
    assert ids(merged)[ids(merged).index("my-try") - 1] == "look"
    assert sources(merged)["sdpa-build"].endswith("# mine")


def test_a_learners_note_in_a_text_cell_stays_while_the_release_is_the_same(course):
    """Notes typed into the lesson's own text: are they still there tomorrow?"""
    mine = solved(first_release())
    mine.cells[1].source = "## Mixing values\nMy note."
    merged, row = brought_up_to_date(course, mine, first_release())
    assert sources(merged)["sdpa-idea"].endswith("My note.") and row.what == "unchanged"


def test_an_edited_text_that_the_release_changed_is_kept_below_the_new_one(course):
    """Both sides changed a text: new text in place, the learner's directly under it, once?"""
    mine = solved(first_release())
    mine.cells[1].source = "## Mixing values\nMy note."
    mine.cells[5].source = "plots.show(sdpa, 2)"
    release = second_release()
    release.cells[4].source = "plots.show(sdpa, wide=True)"
    merged, _ = brought_up_to_date(course, mine, release)
    at = ids(merged).index("sdpa-idea")
    assert merged.cells[at].source.endswith("better told") and merged.cells[at + 1].source.endswith("My note.")
    at = ids(merged).index("look")
    assert (
        merged.cells[at + 1].cell_type == "markdown" and "```python\nplots.show(sdpa, 2)" in merged.cells[at + 1].source
    )
    assert {row.what for row in update(course)} == {"unchanged"}


def test_cells_added_at_the_very_top_and_bottom_stay_there(course):
    """Is an added cell kept where it has no neighbour, too?"""
    mine = solved(first_release())
    mine.cells = [code("top", "import this"), *mine.cells, code("bottom", "bye")]
    merged, _ = brought_up_to_date(course, mine, second_release())
    assert ids(merged)[0] == "top"
    assert ids(merged).index("bottom") == ids(merged).index("recap") + 1


def test_a_pasted_copy_of_a_solution_cell_becomes_the_learners_own(course):
    """nbgrader stumbles over two cells with one grade id: is the copy kept, without its grading data?"""
    mine = solved(first_release())
    twin = copy.deepcopy(mine.cells[2])
    twin.id = "pasted"
    mine.cells.insert(3, twin)
    merged, _ = brought_up_to_date(course, mine, second_release())
    cell = merged.cells[ids(merged).index("pasted")]
    assert cell.source.endswith("# mine") and "nbgrader" not in cell.metadata


def test_a_removed_exercise_that_comes_again_finds_its_solution(course):
    """Set aside by one release, asked for by the next: is the work back in its place?"""
    brought_up_to_date(course, solved(first_release()), second_release())
    put(course / "notebooks" / NAME, first_release())
    update(course)
    merged = read_notebook(course / "my_work" / NAME)
    assert sources(merged)["old_mask-build"].endswith("# mine as well")
    assert ids(merged).index("old_mask-build") == ids(merged).index("old_mask") - 1


def test_pictures_pasted_into_an_answer_stay(course):
    """A written answer with an attachment: is the picture kept with it?"""
    mine = solved(first_release())
    mine.cells[6].attachments = {"proof.png": {"image/png": "aGk="}}
    merged, _ = brought_up_to_date(course, mine, second_release())
    assert merged.cells[ids(merged).index("why-scale")].attachments == {"proof.png": {"image/png": "aGk="}}


# ---- copies that lost something -----------------------------------------------------------------------


def test_ids_that_an_editor_dropped_are_found_again(course):
    """Colab and old editors drop cell ids: are cells recognised by grade id, Colab's id and text?"""
    mine = solved(first_release())
    for cell in mine.cells:
        if cell.id == "reflect-sdpa":
            cell.metadata["id"] = cell.id
        del cell["id"]
    mine.nbformat_minor = 0
    merged, _ = brought_up_to_date(course, mine, second_release())
    answers = sources(merged)
    assert answers["sdpa-build"].endswith("# mine") and answers["why-scale"].startswith("Because")
    assert answers["reflect-sdpa"].startswith("It was sharper")
    assert sum("Mixing values" in cell.source for cell in merged.cells) == 1
    assert sum(cell.source == "sdpa(3)" for cell in merged.cells) == 1
    assert {row.what for row in update(course)} == {"unchanged"}


@pytest.mark.parametrize("damage", [None, "{", "[]", '{"phase2_attention/phase2_attention.ipynb": 3}'])
def test_no_answer_is_lost_without_the_memory_of_the_last_release(course, damage):
    """The fingerprints are gone or damaged: are answers and added cells kept all the same?"""
    update(course)
    put(course / "my_work" / NAME, solved(first_release()))
    put(course / "notebooks" / NAME, second_release())
    seen = course / "my_work" / workspace.SEEN
    seen.unlink() if damage is None else seen.write_text(damage)
    update(course)
    now = sources(read_notebook(course / "my_work" / NAME))
    assert now["sdpa-build"].endswith("# mine") and now["old_mask-build"].endswith("# mine as well")
    assert now["why-scale"].startswith("Because") and now["reflect-sdpa"].startswith("It was") and "my-try" in now
    assert "old_mask" not in now and now["sdpa-idea"].endswith("better told")
    assert {row.what for row in update(course)} == {"unchanged"}


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[1, 2]", b"\xff\xfe\x00", b'{"cells": 3}', b'{"nbformat": 4, "cells": [1]}']
)
def test_an_unreadable_notebook_is_left_alone_and_the_others_go_on(course, damage):
    """A damaged file: a plain message, not one byte written to it, and the rest is updated?"""
    update(course)
    (course / "my_work" / NAME).write_bytes(damage)
    put(course / "notebooks" / NAME, second_release())
    put(course / "notebooks" / "start_here.ipynb", new_notebook(cells=[text("hello", "# Start here, again")]))
    rows = {row.path: row for row in update(course)}
    assert rows[NAME].what == "left alone" and "not a readable notebook" in rows[NAME].problem
    assert (course / "my_work" / NAME).read_bytes() == damage
    assert rows["start_here.ipynb"].what == "updated"


def test_a_notebook_with_a_byte_order_mark_is_read(course):
    """Windows editors put three bytes in front: is the work still recognised?"""
    update(course)
    path = course / "my_work" / NAME
    path.write_bytes(b"\xef\xbb\xbf" + nbformat.writes(solved(first_release())).encode())
    assert {row.what for row in update(course)} == {"unchanged"}


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(course, monkeypatch, step):
    """The disk fills up while writing: is the learner's file whole, and no half file left behind?"""
    update(course)
    path = course / "my_work" / NAME
    put(path, solved(first_release()))
    put(course / "notebooks" / NAME, second_release())
    before = path.read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="No space"):
        update(course)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["phase2_attention.ipynb"]


def test_other_files_follow_the_release_until_the_learner_changes_them(course):
    """A picture or data file: new version in, unless the learner worked on it?"""
    data, mine = course / "notebooks" / "corpus.txt", course / "my_work" / "corpus.txt"
    data.write_text("one")
    update(course)
    data.write_text("two")
    assert {row.path: row.what for row in update(course)}["corpus.txt"] == "updated" and mine.read_text() == "two"
    mine.write_text("my own")
    data.write_text("three")
    assert {row.path: row.what for row in update(course)}["corpus.txt"] == "left alone" and mine.read_text() == "my own"


def test_merging_any_order_of_cells_loses_nothing():
    """Pure merge, shuffled and thinned copies: answers and added cells are all there, and a second merge is a no-op?"""
    import random

    draw = random.Random(0)
    base = fingerprints(first_release())
    for _ in range(50):
        mine = solved(first_release())
        mine.cells = [cell for cell in mine.cells if draw.random() < 0.8]
        draw.shuffle(mine.cells)
        merged, _ = merge(mine, second_release(), base)
        want = {c.source for c in mine.cells if "mine" in c.source or c.id in ("why-scale", "reflect-sdpa", "my-try")}
        assert want <= {cell.source for cell in merged.cells}
        again, changes = merge(merged, second_release(), fingerprints(second_release()))
        assert json.dumps(again, sort_keys=True) == json.dumps(merged, sort_keys=True) and changes == []


# ---- the map and the root -------------------------------------------------------------------------------


def test_the_map_links_what_is_there_and_nothing_else(course):
    """Does start_here promise only phases that exist?"""
    lines = phase_map(course / "notebooks").splitlines()
    assert len(lines) == 2 + len(PHASES) == 9
    assert [line for line in lines if "](" in line] == [f"| 2 | [Attention]({NAME}) | ready |"]
    assert sum("not written yet" in line for line in lines) == 6


def test_the_course_is_found_from_any_folder(monkeypatch, tmp_path):
    """Started from somewhere else: is it still the folder with our pyproject?"""
    monkeypatch.chdir(tmp_path)
    assert (course_root() / "utils" / "workspace.py").is_file()


def test_a_package_away_from_its_course_looks_upwards(monkeypatch, tmp_path):
    """Installed without the folder: is the course above the working folder found, or said to be missing?"""
    monkeypatch.setattr(workspace, "__file__", str(tmp_path / "site-packages" / "utils" / "workspace.py"))
    inside = tmp_path / "course" / "my_work"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    with pytest.raises(WorkspaceError, match="not found"):
        course_root()
    (tmp_path / "course" / "pyproject.toml").write_text('[project]\nname = "transformer-workbook"\n')
    assert course_root() == tmp_path / "course"
