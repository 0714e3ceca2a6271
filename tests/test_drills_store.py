"""The file of what a learner did: nothing that was answered is ever lost."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from utils.drills import store as module
from utils.drills.store import HOME, MIGRATIONS, Event, Store, StoreError, home

ROOT = Path(__file__).resolve().parents[1]
WRITER = """
import sys
from utils.drills.store import Event, Store
with Store(sys.argv[1]) as store:
    print("open", flush=True)
    sys.stdin.readline()
    for number in range(int(sys.argv[3])):
        store.append(Event(float(number), "review", sys.argv[2], 1.0))
"""
KILLED = """
import sys
from utils.drills.store import Event, Store
store = Store(sys.argv[1])
for number in range(20):
    store.append(Event(float(number), "review", "whole", 1.0))
store.keep_draft("half", {"text": "because the var"})
with store.transaction():
    store.append(Event(99.0, "review", "half", 0.0))
    print("half", flush=True)
    sys.stdin.readline()
"""


def python(code, *words):
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "workbook.db"


def fill(path, number=50):
    with Store(path) as store:
        for at in range(number):
            store.append(Event(float(at), "review", f"phase2/card{at % 7}", 0.5, {"text": "x" * 200}))


def test_what_was_added_is_there_after_closing(path):
    """Close, open: every event, in order, with all it said?"""
    events = [Event(2.0, "review", "a", 0.5, {"rating": "good"}), Event(1.0, "check", "sdpa", 1.0)]
    with Store(path) as store:
        assert [store.append(event) for event in events] == [True, True]
    with Store(path) as store:
        assert store.events() == events[::-1] and store.events("check") == events[1:]
        assert store.events(subject="a") == store.events(since=1.5) == events[:1]
        assert store.said == []


@pytest.mark.parametrize("order", ["DELETE FROM events", "UPDATE events SET score = 1"])
def test_an_event_can_neither_be_changed_nor_deleted(path, order):
    """Append-only: does the file itself refuse?"""
    fill(path, 1)
    with sqlite3.connect(path) as connection, pytest.raises(sqlite3.IntegrityError, match="events are never"):
        connection.execute(order)


def test_the_same_event_counts_once(path):
    """Taken in twice: is the second one left out?"""
    with Store(path) as store:
        event = Event(1.0, "review", "a")
        assert store.append(event) and not store.append(event) and len(store.events()) == 1


def test_the_tally_knows_number_best_and_last(path):
    """Three checks of one exercise: how many, the best, the last?"""
    with Store(path) as store:
        for at, score in enumerate((0.2, 1.0, 0.6)):
            store.append(Event(float(at), "check", "sdpa", score))
        store.append(Event(9.0, "review", "sdpa", 0.0))
        assert store.tally("check") == {"sdpa": (3, 1.0, 0.6)}


def test_the_home_can_be_named(monkeypatch, tmp_path):
    """TRANSFORMER_WORKBOOK_HOME wins; without it, is it the system's place for such files?"""
    monkeypatch.setenv(HOME, str(tmp_path / "here"))
    assert home() == tmp_path / "here"
    with Store() as store:
        assert store.path == tmp_path / "here" / "workbook.db" and store.path.is_file()
    monkeypatch.delenv(HOME)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert home().name == "transformer-workbook"


def test_two_processes_at_once_lose_nothing(path):
    """Two notebooks are open and both record at once: is every event of both there?"""
    fill(path, 0)
    writers = [python(WRITER, path, name, 150) for name in ("a", "b")]
    assert [writer.stdout.readline() for writer in writers] == ["open\n"] * 2
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    assert [writer.wait(60) for writer in writers] == [0, 0]
    with Store(path) as store:
        assert {name: number for name, (number, *_) in store.tally("review").items()} == {"a": 150, "b": 150}


def test_one_store_serves_several_threads(path):
    """JupyterLab runs a widget's callbacks in threads of their own: can the same store be used from four at once?"""
    errors = []

    def write(store, name):
        try:
            for at in range(25):
                with store.transaction():
                    store.append(Event(float(at), "review", name))
        except Exception as error:
            errors.append(error)

    with Store(path) as store:
        threads = [threading.Thread(target=write, args=(store, name)) for name in "abcd"]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert errors == [] and len(store.events()) == 100


def test_many_may_open_a_new_file_at_the_same_moment(path):
    """Four at once on the first start: one version of the tables, no complaint?"""
    errors = []

    def begin():
        try:
            with Store(path) as store:
                store.append(Event(1.0, "review", "a"))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=begin) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    with Store(path) as store:
        assert errors == [] and len(store.events()) == 4


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 here")
def test_a_killed_process_loses_nothing_that_was_answered(path):
    """kill -9 in the middle of a review: earlier answers and the draft there, the half-written one not at all?"""
    writer = python(KILLED, path)
    assert writer.stdout.readline() == "half\n"
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait(30)
    with Store(path) as store:
        assert store.tally("review") == {"whole": (20, 1.0, 1.0)} and store.said == []
        assert store.draft() == ("half", {"text": "because the var"})


@pytest.mark.parametrize("damage", ["head", "middle", "cut", "text"])
def test_a_damaged_file_is_set_aside_and_said(path, damage):
    """Disk trouble: is the file kept under another name, with its time, and the reader told where?"""
    fill(path)
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2 + 100]
    elif damage == "text":
        content = bytearray(b"dear diary, " * 100)
    else:
        start = 0 if damage == "head" else 4096
        content[start : start + 4096] = os.urandom(4096)
    path.write_bytes(content)
    with Store(path) as store:
        store.append(Event(1.0, "review", "new"))
        (aside,) = path.parent.glob("workbook.damaged-20*.db")
        assert aside.read_bytes() == content and str(aside) in store.said[0]
    with Store(path) as again:
        assert again.said == [] and len(again.events()) == 1


def test_two_that_see_the_damage_set_it_aside_once(path, monkeypatch):
    """The other process was faster: is its new file left alone?"""
    path.write_bytes(b"nonsense " * 1000)
    guarded = module._guarded

    def later(place):
        monkeypatch.setattr(module, "_guarded", guarded)
        with Store(path) as other:  # comes first, sets it aside
            other.append(Event(1.0, "review", "kept"))
        return guarded(place)

    monkeypatch.setattr(module, "_guarded", later)
    with Store(path) as store:
        assert [event.subject for event in store.events()] == ["kept"]
    assert len(list(path.parent.glob("workbook.damaged-*.db"))) == 1


def test_a_file_of_version_1_is_brought_up(path):
    """Written by the first release: are its events there, and the newer tables too?"""
    with sqlite3.connect(path) as connection:
        connection.executescript(MIGRATIONS[0])
        connection.execute("INSERT INTO events VALUES (1, 'u', 1.0, 'review', 'a', 0.5, '{}')")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    with Store(path) as store:
        store.remember("a", 3.0, {})
        assert store.events() == [Event(1.0, "review", "a", 0.5, {}, "u")] and store.due_times() == {"a": 3.0}


def test_a_migration_that_breaks_off_leaves_the_file_as_it_was(path, monkeypatch):
    """A crash halfway through new tables: is the old version still there, and does the next start do it whole?"""
    with monkeypatch.context() as patch:
        patch.setattr(module, "MIGRATIONS", MIGRATIONS[:1])
        fill(path, 3)
        patch.setattr(module, "MIGRATIONS", (MIGRATIONS[0], "CREATE TABLE memory (card TEXT);\nCREATE TABEL x;"))
        with pytest.raises(StoreError):
            Store(path)
    with Store(path) as store:
        assert len(store.events()) == 3 and store.due_times() == {}


def test_a_newer_file_is_left_alone(path):
    """The course went back to an older release: is the file kept as it is, and the reader told?"""
    fill(path)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match="written by a newer release"):
        Store(path)
    assert len(list(path.parent.glob("*damaged*"))) == 0


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    """A file where the folder should be, a folder where the file should be: a sentence?"""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be made"):
        Store(tmp_path / "file" / "workbook.db")
    (tmp_path / "workbook.db").mkdir()
    with pytest.raises(StoreError, match="cannot be opened"):
        Store(tmp_path / "workbook.db")


def test_an_export_is_taken_in_once(path, tmp_path):
    """From the laptop to the desk: all events, and taken in a second time none?"""
    fill(path, 20)
    with Store(path) as store:
        text = json.dumps(store.exported())
    with Store(tmp_path / "other.db") as other:
        other.append(Event(5.5, "check", "sdpa", 1.0))
        assert len(other.take_in(json.loads(text))) == 20 and other.take_in(json.loads(text)) == []
        assert len(other.events()) == 21


@pytest.mark.parametrize("spoil", [lambda e: e.pop("at"), lambda e: e.update(score="much"), lambda e: e.update(x=1)])
def test_an_export_with_a_fault_is_not_taken_in_at_all(path, spoil):
    """One event of twenty is no event: is nothing taken in, and which one said?"""
    fill(path, 5)
    with Store(path) as store:
        exported = json.loads(json.dumps(store.exported()))
        spoil(exported["events"][3])
        exported["events"][0]["uid"] = "new"
        with pytest.raises(StoreError, match="event 4|Event 4"):
            store.take_in(exported)
        with pytest.raises(StoreError, match="no export of the workbook"):
            store.take_in({"format": "anki"})
        assert len(store.events()) == 5


def test_a_transaction_that_fails_leaves_nothing(path):
    """An error between two writes: is neither there?"""
    with Store(path) as store:
        with pytest.raises(KeyError), store.transaction():
            store.append(Event(1.0, "review", "a"))
            raise KeyError
        assert store.events() == []
