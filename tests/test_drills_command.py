"""`workbook drill`, as typed, and the Anki deck."""

import sqlite3
import zipfile

import pytest
from typer.testing import CliRunner

from tests.drill_cards import choice, one_of_each
from utils import cli
from utils.drills import anki, terminal
from utils.drills.interview import Interview
from utils.drills.loading import load_cards
from utils.drills.store import HOME, Event, Store

run = CliRunner(env={"COLUMNS": "200"}).invoke


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv(HOME, str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def shown(monkeypatch):
    """Keep the app from starting; the sessions it would have shown."""
    sessions = []
    monkeypatch.setattr(terminal.DrillApp, "run", lambda app: sessions.append(app.session))
    return sessions


def test_a_drill_asks_what_is_open(home, shown):
    """Nothing passed: no card; one exercise passed: its cards; --unlock-all: all?"""
    run(cli.app, ["drill"])
    with Store() as store:
        store.append(Event(1.0, "check", "sdpa", 1.0))
    result = run(cli.app, ["drill", "--kind", "code"])
    run(cli.app, ["drill", "--unlock-all", "--phase", "2", "--kind", "code"])
    assert result.exit_code == 0 and "0 cards answered" in result.output
    assert [len(session.deck) for session in shown] == [0, 1, 16] and list(shown[1].deck) == ["phase2/sdpa"]


def test_an_interview_is_asked_for_by_level(home, shown):
    """--interview senior: is it one, and a level that is none refused?"""
    run(cli.app, ["drill", "--interview", "senior"])
    assert shown[0].level == "senior"
    result = run(cli.app, ["drill", "--interview", "boss"])
    assert result.exit_code == 1 and "There is no level boss; there is junior, senior, staff." in result.output
    assert "no kind riddle" in run(cli.app, ["drill", "--kind", "riddle"]).output


def test_an_interview_is_gone_on_with_or_not(home, shown):
    """One was broken off today: asked for again, is it offered, and a new one begun for a no?"""
    with Store() as store:
        before = Interview(load_cards(), store, "junior")
        before.next()
    assert "junior interview, 1 of" in run(cli.app, ["drill", "--interview", "senior"], input="\n").output
    run(cli.app, ["drill", "--interview", "senior"], input="n\n")
    assert shown[0].plan == before.plan and shown[1].level == "senior"


def test_what_was_done_goes_from_one_machine_to_another(home, tmp_path, monkeypatch):
    """--export here, --import there, twice: all events, once?"""
    with Store() as store:
        store.append(Event(1.0, "review", "phase2/sdpa", 1.0, {"rating": "good"}))
    file = tmp_path / "events.json"
    assert "1 events written" in run(cli.app, ["drill", "--export", str(file)]).output
    monkeypatch.setenv(HOME, str(tmp_path / "other"))
    assert "1 new events" in run(cli.app, ["drill", "--import", str(file)]).output
    assert "0 new events" in run(cli.app, ["drill", "--import", str(file)]).output
    with Store() as store:
        assert list(store.due_times()) == ["phase2/sdpa"]


@pytest.mark.parametrize("text", ["", "[]", '{"format": "x"}'])
def test_an_import_that_is_none_is_said(home, tmp_path, text):
    """Another file: a sentence, exit status 1?"""
    (tmp_path / "x.json").write_text(text)
    result = run(cli.app, ["drill", "--import", str(tmp_path / "x.json")])
    assert result.exit_code == 1 and ("cannot be read" in result.output or "no export" in result.output)
    assert run(cli.app, ["drill", "--import", str(tmp_path / "none.json")]).exit_code == 1


def test_a_damaged_file_is_said_before_the_drill(home, shown):
    """Is the sentence about the file that was set aside printed?"""
    home.mkdir()
    (home / "workbook.db").write_bytes(b"nonsense " * 99)
    assert "was damaged. It is kept as" in run(cli.app, ["drill"]).output


def notes_in(path):
    """The notes of an .apkg: [fields]."""
    with zipfile.ZipFile(path) as package:
        (path.parent / "collection.anki2").write_bytes(package.read("collection.anki2"))
    with sqlite3.connect(path.parent / "collection.anki2") as connection:
        rows = connection.execute("SELECT guid, flds, tags FROM notes").fetchall()
    connection.close()
    return [(guid, *fields.split("\x1f"), tags) for guid, fields, tags in rows]


def test_the_anki_deck_holds_every_card_but_code(tmp_path):
    """One note each with question and answer, known again when written a second time?"""
    path = tmp_path / "deck.apkg"
    assert anki.write(one_of_each(), path) == 5
    first = notes_in(path)
    assert anki.write(one_of_each(), path) == 5 and notes_in(path) == first
    fields = {name: (front, back, tags) for _, name, front, back, _, tags in first}
    assert set(fields) == {card.id for card in one_of_each() if card.kind != "code"}
    assert "two tensors" not in fields["phase5/cache"][0] and "2 ·" in fields["phase5/cache"][1]
    assert "keys" in fields["phase2/axis"][0] and "rows share 1" in fields["phase2/axis"][1]
    assert "<pre>" in fields["phase2/bug-mask"][0] and " bug " in fields["phase2/bug-mask"][2]


def test_html_in_a_card_is_shown_and_not_obeyed(tmp_path):
    """A card that speaks of <pad> or <script>: escaped?"""
    front, _ = anki.faces(choice(prompt="What is <pad>? <script>alert(1)</script>"))
    assert "&lt;pad&gt;" in front and "<script>" not in front


def test_the_deck_is_written_from_the_command_line(home, tmp_path):
    """--export-anki FILE --phase 2: a file, and how many cards?"""
    result = run(cli.app, ["drill", "--export-anki", str(tmp_path / "x.apkg"), "--phase", "2"])
    assert result.exit_code == 0 and "cards written to" in result.output and (tmp_path / "x.apkg").is_file()


def test_without_the_library_it_is_said_how_to_get_it(tmp_path, monkeypatch):
    """genanki is an extra: is the command that installs it named?"""
    monkeypatch.setitem(__import__("sys").modules, "genanki", None)
    with pytest.raises(anki.NoAnki, match="pip install genanki"):
        anki.write(one_of_each(), tmp_path / "x.apkg")
