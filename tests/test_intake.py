"""Whatever is handed in becomes a valid notebook with remarks, or is refused in one sentence."""

import hashlib
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

import nbformat
import pytest
from nbgrader.utils import parse_utc

from autograde import reading
from autograde.course import ROOT
from autograde.intake import Refused, stage, take_in
from tests.hostile_files import MENDED, ODD_THINGS, REFUSED, changed, with_output

PHASE = "phase2_attention"
NAME = f"{PHASE}.ipynb"
GOOD = (ROOT / "solutions" / PHASE / NAME).read_bytes()
RELEASED = (ROOT / "notebooks" / PHASE / NAME).read_bytes()


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "submitted" / "ada" / PHASE
    path.mkdir(parents=True)
    return path


def hand_in(folder, data, name=NAME):
    (folder / name).write_bytes(data)
    return folder


def refusal(folder, phase=PHASE):
    with pytest.raises(Refused) as refused:
        take_in(folder, phase)
    return str(refused.value)


def answers(notebook):
    """Type and text of every cell that the course handed out, by grade id."""
    cells = [c for c in notebook.cells if isinstance(c.metadata.get("nbgrader", {}).get("grade_id"), str)]
    return {c.metadata.nbgrader.grade_id: (c.cell_type, c.source) for c in cells}


TRUE_ANSWERS = answers(nbformat.reads(GOOD, as_version=4))


def assert_usable(notebook):
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert len({c.id for c in notebook.cells}) == len(notebook.cells)
    assert not any(c.get("outputs") for c in notebook.cells) and "widgets" not in notebook.metadata
    text = json.dumps(notebook, allow_nan=False, ensure_ascii=False)
    assert json.loads(text.encode("utf-8")) == notebook


# --------------------------------------------------------------------------------------------- one file, many faults


@pytest.mark.parametrize("name", MENDED)
def test_a_damaged_file_keeps_its_answers(folder, name, caplog):
    """Is the notebook mended, the fault named, and every answer still there?"""
    make, words = MENDED[name]
    found = take_in(hand_in(folder, make(GOOD)), PHASE)
    assert_usable(found.notebook)
    assert answers(found.notebook) == TRUE_ANSWERS
    assert words in " / ".join(found.remarks) and bool(words) == bool(found.remarks)
    assert all(remark.isprintable() for remark in found.remarks)
    assert not caplog.records  # nbformat has nothing to complain of


@pytest.mark.parametrize("name", REFUSED)
def test_a_hopeless_file_is_refused_by_name(folder, name):
    """Is what cannot be read refused in one sentence that names the file and what is wrong?"""
    make, words = REFUSED[name]
    sentence = refusal(hand_in(folder, make(GOOD)))
    assert sentence.startswith(NAME) and words in sentence and sentence.isprintable()


def test_metadata_of_handed_out_cells_is_left_alone(folder):
    """Do handed-out cells keep their grading marks as they were submitted?"""
    found = take_in(hand_in(folder, RELEASED), PHASE)
    before = {c.id: c.metadata for c in nbformat.reads(RELEASED, as_version=4).cells}
    assert {c.id: c.metadata for c in found.notebook.cells} == before and found.remarks == ()


def test_pictures_in_an_answer_stay_but_not_huge_ones(folder):
    """Does a pasted picture stay with its answer, while one of insane size is left out and named?"""

    def paste(notebook):
        attachments = {"a.png": {"image/png": ["QUJD", "QUJD"]}, "b.png": {"image/png": "A" * 5_000_000}, "c": 3}
        notebook["cells"][0]["attachments"] = attachments

    found = take_in(hand_in(folder, changed(paste)(GOOD)), PHASE)
    assert found.notebook.cells[0].attachments == {"a.png": {"image/png": "QUJDQUJD"}}
    assert found.remarks == ("cells 1 and 1: a pasted picture too large or damaged, left out",)


@pytest.mark.parametrize("size", [7_000_000, pytest.param(200_000_000, marks=pytest.mark.slow)])
def test_a_big_picture_costs_nothing_but_itself(folder, size):
    """Is a notebook with a picture of 200 MB in an output read, in a process of its own?"""
    output = {"output_type": "display_data", "metadata": {}, "data": {"image/png": "A" * size}}
    found = take_in(hand_in(folder, with_output(output)(GOOD)), PHASE)
    assert answers(found.notebook) == TRUE_ANSWERS
    assert_usable(found.notebook)


@pytest.mark.parametrize(("memory", "seconds"), [(150, 30), (2000, 1)])
def test_reading_stays_within_its_limits(folder, monkeypatch, memory, seconds):
    """Does a file that swells in memory, or takes long, end only the process that reads it?"""
    monkeypatch.setattr(reading, "MEMORY", memory * reading.MB)
    monkeypatch.setattr(reading, "SECONDS", seconds)
    sentence = refusal(hand_in(folder, b'{"cells": [' + b"{}," * 10_000_000 + b"{}]}"))
    assert f"{memory:,} MB of memory or {seconds} s" in sentence or f"longer than {seconds} s" in sentence


def test_a_file_without_end_is_refused_unread(folder):
    """Is a file too large refused by its size alone?"""
    with (folder / NAME).open("wb") as file:
        file.truncate(10**13)
    started = time.monotonic()
    assert refusal(folder) == f"{NAME} is 10,000,000 MB large; at most 256 MB are read"
    assert time.monotonic() - started < 5


# ------------------------------------------------------------------------------------------------- not a file at all


@pytest.mark.parametrize("kind", ODD_THINGS)
def test_only_files_are_opened(folder, kind):
    """Is a folder, pipe, socket or device of the right name refused at once, and a real file beside it taken?"""
    ODD_THINGS[kind](folder / NAME)
    assert refusal(folder) == f"{NAME} is {kind}, not a file"
    found = take_in(hand_in(folder, GOOD, "mine.ipynb"), PHASE)
    assert answers(found.notebook) == TRUE_ANSWERS
    assert found.remarks == (f"there is no {NAME}; mine.ipynb was taken for it", f"{NAME} is {kind}, not a file")


@pytest.mark.parametrize("target", [ROOT / "solutions" / PHASE / NAME, "/dev/zero", "nowhere"])
def test_links_are_not_followed(folder, target):
    """Is a link refused wherever it leads?"""
    (folder / NAME).symlink_to(target)
    assert refusal(folder) == f"{NAME} is a link, not a file"


@pytest.mark.parametrize("linked", ["student", "phase", "dangling"])
def test_linked_folders_are_not_entered(folder, tmp_path, linked):
    """Is a student's or a phase's folder that is a link to another's work refused?"""
    hand_in(folder, GOOD)
    eve = tmp_path / "submitted" / "eve"
    if linked == "student":
        eve.symlink_to(folder.parent)
    else:
        eve.mkdir()
        (eve / PHASE).symlink_to(folder if linked == "phase" else "nowhere")
    name = "eve" if linked == "student" else PHASE
    assert refusal(eve / PHASE) == f"the folder {name} is a link: nothing in it is looked at"


def test_a_hard_link_is_a_file(folder):
    """Is a hard link, which is as good as its file, taken?"""
    os.link(hand_in(folder, GOOD) / NAME, folder / "kept.txt")
    assert take_in(folder, PHASE).remarks == ()


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (os.mkfifo, "is not a file"),
        (lambda path: path.symlink_to(ROOT / "README.md"), "cannot be opened: Too many levels of symbolic links"),
        (lambda path: None, "cannot be opened: it is not there"),
    ],
)
def test_a_file_exchanged_while_it_is_opened_is_not_read(folder, monkeypatch, other, words):
    """Is a pipe or link put in place of the file after the first look neither waited for nor followed?"""
    hand_in(folder, GOOD)
    open_really = os.open

    def exchange(path, flags, *arguments, **options):
        if path == NAME:
            (folder / NAME).unlink()
            other(folder / NAME)
        return open_really(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", exchange)
    assert refusal(folder) == f"{NAME} {words}"


@pytest.mark.parametrize("closed", [NAME, "."])
def test_what_may_not_be_read_is_named(closed):
    """Is a file or folder that this account may not read refused as such, also when tests run as root?"""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    folder = place / "ada" / PHASE
    folder.mkdir(parents=True)
    (hand_in(folder, GOOD) / closed).chmod(0)
    reader, writer = os.pipe()
    if os.fork() == 0:  # as nobody, whom the permissions hold for
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            take_in(folder, PHASE)
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        sentence = answer.read()
    os.wait()
    (folder / closed).chmod(0o755)
    shutil.rmtree(place)
    name = NAME if closed == NAME else f"the folder {PHASE}"
    assert sentence == f"Refused: {name} cannot be opened: this account may not read it"


def test_an_unforeseen_failure_is_refused_too(folder, monkeypatch):
    """Does a mistake of ours, or a failing disk, cost one submission and not the batch?"""
    monkeypatch.setattr("autograde.intake.valid_notebook", lambda reading: 1 / 0)
    assert refusal(hand_in(folder, GOOD)) == "it cannot be taken in (ZeroDivisionError: division by zero)"


# ----------------------------------------------------------------------------------------------------- which file?


@pytest.mark.parametrize(
    "name",
    ["mine.ipynb", NAME.upper(), f"{PHASE} (1).ipynb", f"{PHASE}-Copy1.ipynb", f"{NAME}.txt", "Ünïcode 😀.ipynb"],
)
def test_the_only_notebook_is_taken_under_any_name(folder, name):
    """Is one notebook of a wrong name graded, and the name remarked upon?"""
    found = take_in(hand_in(folder, GOOD, name), PHASE)
    assert answers(found.notebook) == TRUE_ANSWERS
    assert found.remarks == (f"there is no {NAME}; {name} was taken for it",)


def test_of_two_notebooks_the_right_name_counts(folder):
    """Does the notebook of the right name count, and the other get a remark?"""
    hand_in(hand_in(folder, b"{}", "draft.ipynb"), GOOD)
    assert take_in(folder, PHASE).remarks == ("draft.ipynb was not graded",)


def test_of_wrong_names_the_near_one_counts(folder):
    """Does a copy with a browser's number in its name count before one of a strange name?"""
    hand_in(hand_in(folder, GOOD, "alpha.ipynb"), GOOD, "Phase2_Attention(2).ipynb")
    assert "Phase2_Attention(2).ipynb was taken for it" in take_in(folder, PHASE).remarks[0]


def test_of_strange_names_the_one_with_our_exercises_counts(folder):
    """Is the notebook with this phase's exercises found among others, also damaged ones?"""
    foreign = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}
    hand_in(hand_in(folder, json.dumps(foreign).encode(), "a.ipynb"), b"{oops", "b.ipynb")
    assert refusal(folder) == f"there is no {NAME}, but a.ipynb, b.ipynb: which one counts?"
    found = take_in(hand_in(folder, GOOD, "c.ipynb"), PHASE)
    assert answers(found.notebook) == TRUE_ANSWERS
    assert found.remarks[1:] == ("a.ipynb was not graded", "b.ipynb was not graded")
    hand_in(folder, GOOD, "d.ipynb")
    assert refusal(folder) == f"there is no {NAME}, but c.ipynb, d.ipynb: which one counts?"


def test_a_notebook_of_another_phase_is_remarked_upon(folder):
    """Is the instructor told when a notebook holds nothing of this phase?"""
    found = take_in(hand_in(folder, b'{"nbformat": 4, "metadata": {}, "cells": []}'), PHASE)
    assert found.remarks == (f"{NAME} holds no exercise of this phase",)


def test_without_a_notebook_the_other_files_are_named(folder):
    """Does the refusal say what is there instead?"""
    assert refusal(folder) == f"there is no {NAME}: the folder is empty"
    (folder / ".ipynb_checkpoints").mkdir()
    hand_in(folder / ".ipynb_checkpoints", GOOD)
    assert refusal(folder) == f"there is no {NAME}: the folder is empty"
    hand_in(hand_in(folder, b"PK", "work.zip"), b"x", "two\nlines\ud800.txt".encode("utf-8", "replace").decode())
    assert refusal(folder) == f"there is no {NAME}, only 'two\\nlines?.txt', work.zip"


def test_a_missing_folder_is_refused(folder):
    """Is a phase that was not handed in refused, or handed in as a file?"""
    assert refusal(folder.parent / "phase9") == "the folder phase9 cannot be opened: it is not there"
    hand_in(folder.parent, GOOD, "phase8")
    assert refusal(folder.parent / "phase8") == "the folder phase8 is a file: nothing in it is looked at"


@pytest.mark.parametrize(
    "phase", ["../ada/secret", "", ".", "..", "a/b", "a\0b", "a\nb", ".hidden", "x" * 300, "\ud800"]
)
def test_the_name_of_a_phase_is_no_path(folder, phase):
    """Is a phase refused whose name could lead elsewhere?"""
    assert "cannot be the name of a phase" in refusal(hand_in(folder, GOOD), phase)


@pytest.mark.parametrize(
    "student", ["two\nlines", "\x1b[31mred", ".hidden", b"\xff".decode("utf-8", "surrogateescape")]
)
def test_the_name_of_a_student_can_be_printed(tmp_path, student):
    """Is a student refused whose name would harm a log, a page or the gradebook?"""
    folder = tmp_path / student / PHASE
    folder.mkdir(parents=True)
    sentence = refusal(hand_in(folder, GOOD))
    assert "cannot be the name of a student" in sentence and sentence.isprintable()


@pytest.mark.parametrize("student", ["O'Neil, Ada", "[x]", "*", "{student_id}", "-rf", "%s", "a+b@c.de", "李"])
def test_unusual_student_names_are_taken(tmp_path, student):
    """Are names that only look dangerous taken as they are?"""
    folder = tmp_path / student / PHASE
    folder.mkdir(parents=True)
    assert take_in(hand_in(folder, GOOD), PHASE).remarks == ()


# ------------------------------------------------------------------------------------------------ time and staging


@pytest.mark.parametrize(
    ("text", "time"),
    [
        (b"2026-01-02 12:00:00 UTC", "2026-01-02 12:00:00"),
        (b"2015-02-02 15:58:23.948203 America/Los_Angeles\r\n", "2015-02-02 23:58:23.948203"),
        (b"\xef\xbb\xbf2026-01-02 12:00:00 +0100", "2026-01-02 11:00:00"),
        (b"", None),
        (b"18:00", None),
        (b"yesterday", None),
        (b"9" * 99, None),
        (b"0001-01-01 00:00:00 +1400", None),
        (b"\xff\xfe\0\0" * 200, None),
        (b"2026-01-02 12:00 " + b"x" * 10_000, None),
    ],
)
def test_the_time_is_read_or_left_out(folder, tmp_path, text, time):
    """Does a timestamp reach nbgrader only if nbgrader can read it?"""
    found = stage(hand_in(hand_in(folder, GOOD), text, "timestamp.txt"), PHASE, tmp_path / "clean")
    if time:
        assert str(parse_utc((tmp_path / "clean" / "timestamp.txt").read_text().strip())) == time
        assert found.remarks == () and found.timestamp == f"{time} UTC"
    else:
        assert not (tmp_path / "clean" / "timestamp.txt").exists() and found.timestamp is None
        assert "timestamp.txt holds no time" in found.remarks[0] and found.remarks[0].isprintable()


@pytest.mark.parametrize("kind", ODD_THINGS)
def test_a_timestamp_that_is_no_file_is_left_out(folder, kind):
    """Is a pipe called timestamp.txt left alone, and the work still graded?"""
    ODD_THINGS[kind](hand_in(folder, GOOD) / "timestamp.txt")
    found = take_in(folder, PHASE)
    assert found.timestamp is None
    assert found.remarks == (f"timestamp.txt is {kind}, not a file; the time is unknown",)


def test_the_digest_follows_what_was_handed_in(folder):
    """Does the digest change with the notebook and the time, and with nothing else?"""
    digests = [take_in(hand_in(folder, GOOD), PHASE).digest]
    digests.append(take_in(hand_in(folder, b"2026-01-01", "timestamp.txt"), PHASE).digest)
    digests.append(take_in(hand_in(folder, GOOD + b"\n"), PHASE).digest)
    assert len(set(digests)) == 3
    assert take_in(hand_in(folder, b"import os", "helpers.py"), PHASE).digest == digests[-1]
    big = GOOD.rstrip() + b" " * 5_000_000  # read in a process of its own
    assert take_in(hand_in(folder, big), PHASE).digest not in digests
    (folder / "timestamp.txt").unlink()
    empty = hashlib.sha256().hexdigest()
    whole = hashlib.sha256(f"{hashlib.sha256(big).hexdigest()} {empty}".encode()).hexdigest()
    assert take_in(folder, PHASE).digest == whole


def test_only_notebook_and_time_are_staged(folder, tmp_path):
    """Do helper files, checkpoints and other notebooks stay outside, and is the staged notebook what was taken in?"""
    for name in ("helpers.py", "other.ipynb", NAME, "data.csv"):
        hand_in(folder, GOOD, name)
    hand_in(folder, b"2026-01-02 12:00:00 UTC", "timestamp.txt")
    clean = tmp_path / "a" / "b"
    found = stage(folder, PHASE, clean)
    assert sorted(path.name for path in clean.iterdir()) == [NAME, "timestamp.txt"]
    assert nbformat.read(clean / NAME, as_version=4) == found.notebook


def test_staging_leaves_nothing_half_written(folder, tmp_path, monkeypatch):
    """Does a full disk leave the old file whole and no part of the new one, and a refusal nothing at all?"""
    clean = tmp_path / "clean"
    hand_in(folder, b"{oops")
    with pytest.raises(Refused):
        stage(folder, PHASE, clean)
    assert not clean.exists()
    stage(hand_in(folder, RELEASED), PHASE, clean)
    before = (clean / NAME).read_bytes()
    write = Path.write_text

    def fill_the_disk(path, text, **options):
        write(path, text[:1000], **options)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fill_the_disk)
    with pytest.raises(OSError, match="No space"):
        stage(hand_in(folder, GOOD), PHASE, clean)
    assert [path.name for path in clean.iterdir()] == [NAME] and (clean / NAME).read_bytes() == before
