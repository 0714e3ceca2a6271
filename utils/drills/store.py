"""What is remembered of one learner: a SQLite file of events that are only ever added.

`events` holds what happened (reviews, results of checks) and can neither be changed nor deleted; `memory`, when each
card is due, follows from the events and can be made again from them; `drafts` keeps a half-written answer. Several
processes may use the file at once: every write is one transaction, and whoever comes second waits.
"""

import contextlib
import json
import os
import sqlite3
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from utils import COURSE

HOME = "TRANSFORMER_WORKBOOK_HOME"
PATIENCE = 30.0  # seconds to wait for another process that writes
MIGRATIONS = (  # the first makes version 1 of version 0, and so on; one that was released is never changed
    """
    CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        uid TEXT NOT NULL UNIQUE,      -- the same event in two files has the same
        at REAL NOT NULL,              -- seconds since 1970, UTC
        kind TEXT NOT NULL,            -- "review", "check"
        subject TEXT NOT NULL,         -- the card or the exercise
        score REAL,                    -- 0 to 1
        data TEXT NOT NULL             -- json
    );
    CREATE INDEX events_by_subject ON events (kind, subject, at, score);
    CREATE INDEX events_by_time ON events (kind, at);
    CREATE TRIGGER events_stay BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events are never deleted'); END;
    CREATE TRIGGER events_hold BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;
    """,
    """
    CREATE TABLE memory (card TEXT PRIMARY KEY, due REAL NOT NULL, data TEXT NOT NULL);
    CREATE INDEX memory_by_due ON memory (due);
    CREATE TABLE drafts (card TEXT PRIMARY KEY, at REAL NOT NULL, data TEXT NOT NULL);
    """,
)
INTERVIEW = "interview"  # among the drafts: no card, but the interview that goes on
FORMAT = f"{COURSE} events 1"  # the first line of an export


class StoreError(Exception):
    """The file cannot be used; the text says why and what to do."""


@dataclass(frozen=True)
class Event:
    """Something that happened: at (seconds since 1970), kind, subject, score (0 to 1 or None), data (a dict)."""

    at: float
    kind: str
    subject: str
    score: float | None = None
    data: dict = field(default_factory=dict)
    uid: str = field(default_factory=lambda: uuid.uuid4().hex)


def home():
    """The folder of this learner's files: TRANSFORMER_WORKBOOK_HOME, else where the system keeps such things."""
    return Path(os.environ.get(HOME) or platformdirs.user_data_dir(COURSE, appauthor=False))


class Store:
    """The open file. `said` holds sentences the reader should see, such as that a damaged file was set aside.

    path: another file, or ":memory:" for one that is forgotten. Raises StoreError if no file can be had.
    """

    def __init__(self, path=None):
        self.path, self.said = path or home() / "workbook.db", []
        self._turn = threading.RLock()  # in JupyterLab a widget's callbacks run in another thread than its cell
        if self.path != ":memory:":
            self.path = Path(self.path)
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(f"{self.path.parent} cannot be made: {error.strerror}") from None
        try:
            self._connection = _opened(self.path)
        except sqlite3.OperationalError as error:
            raise StoreError(f"{self.path} cannot be opened: {error}") from None
        except sqlite3.DatabaseError:
            self._connection = self._set_aside()

    def close(self):
        self._connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def _set_aside(self):
        """Give a damaged file another name and begin a new one; of several processes that see it, one does so."""
        with _guarded(self.path):
            with contextlib.suppress(sqlite3.DatabaseError):
                return _opened(self.path)  # another process was faster
            aside = _free_name(self.path, time.strftime("damaged-%Y-%m-%d_%H-%M-%S"))
            try:
                for end in ("-wal", "-shm", ""):
                    with contextlib.suppress(FileNotFoundError):
                        os.replace(f"{self.path}{end}", f"{aside}{end}")
            except OSError as error:
                raise StoreError(f"{self.path} is damaged and cannot be moved away: {error.strerror}") from None
            connection = _opened(self.path)
        self.said.append(f"The file with your progress was damaged. It is kept as {aside}, and a new one is begun.")
        return connection

    @contextlib.contextmanager
    def transaction(self):
        """All that is written inside is written, or nothing; others wait meanwhile."""
        with self._turn:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    yield
                except BaseException:
                    self._connection.execute("ROLLBACK")
                    raise
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise StoreError(f"{self.path} could not be written: {error}") from error

    def _rows(self, sql, *values):
        with self._turn:
            try:
                return self._connection.execute(sql, values).fetchall()
            except sqlite3.Error as error:
                raise StoreError(f"{self.path} could not be used: {error}") from error

    # ---- events ----

    def append(self, event):
        """Add an event; one whose uid is known is left out. Returns whether it is new."""
        values = (event.uid, event.at, event.kind, event.subject, event.score, json.dumps(event.data))
        sql = "INSERT INTO events (uid, at, kind, subject, score, data) VALUES (?,?,?,?,?,?) ON CONFLICT DO NOTHING"
        return bool(self._rows(f"{sql} RETURNING id", *values))

    def events(self, kind=None, subject=None, since=0.0):
        """The events (of a kind, on a subject, from a time on), in the order in which they happened."""
        wanted = {"kind = ?": kind, "subject = ?": subject, "at >= ?": since}
        wanted = {test: value for test, value in wanted.items() if value is not None}
        sql = f"SELECT at, kind, subject, score, data, uid FROM events WHERE {' AND '.join(wanted)} ORDER BY at, id"
        rows = self._rows(sql, *wanted.values())
        return [Event(*row[:4], json.loads(row[4]), row[5]) for row in rows]

    def tally(self, kind):
        """{subject: (number of events, best score, last score)} of a kind."""
        best = self._rows("SELECT subject, COUNT(*), MAX(score) FROM events WHERE kind = ? GROUP BY subject", kind)
        last = self._rows("SELECT subject, MAX(at), score FROM events WHERE kind = ? GROUP BY subject", kind)
        last = {subject: score for subject, _, score in last}
        return {subject: (count, score, last[subject]) for subject, count, score in best}

    # ---- memory: when each card is due ----

    def memory(self, card):
        """What the schedule keeps of a card (a dict), or None if it was never reviewed."""
        rows = self._rows("SELECT data FROM memory WHERE card = ?", card)
        return json.loads(rows[0][0]) if rows else None

    def remember(self, card, due, data):
        self._rows("INSERT OR REPLACE INTO memory (card, due, data) VALUES (?,?,?)", card, due, json.dumps(data))

    def forget_memory(self):
        """Drop what follows from the events, to make it again."""
        self._rows("DELETE FROM memory")

    def due_times(self):
        """{card: when it is due} of every card that was reviewed, the earliest first."""
        return dict(self._rows("SELECT card, due FROM memory ORDER BY due, card"))

    def changed_elsewhere(self):
        """A number that is another one as soon as another process has written."""
        return self._rows("PRAGMA data_version")[0][0]

    def begun_since(self, at):
        """How many cards had their first review at that time or later."""
        sql = "SELECT subject FROM events WHERE kind = 'review' GROUP BY subject HAVING MIN(at) >= ?"
        return self._rows(f"SELECT COUNT(*) FROM ({sql})", at)[0][0]

    # ---- drafts: an answer half written ----

    def draft(self):
        """(card, what was kept) of the card that was on the table last, or None."""
        rows = self._rows("SELECT card, data FROM drafts WHERE card != ? ORDER BY at DESC LIMIT 1", INTERVIEW)
        return (rows[0][0], json.loads(rows[0][1])) if rows else None

    def interview(self):
        """What was kept of the interview that goes on, or None."""
        rows = self._rows("SELECT data FROM drafts WHERE card = ?", INTERVIEW)
        return json.loads(rows[0][0]) if rows else None

    def keep_draft(self, card, data):
        self._rows("INSERT OR REPLACE INTO drafts (card, at, data) VALUES (?,?,?)", card, time.time(), json.dumps(data))

    def drop_draft(self, card):
        self._rows("DELETE FROM drafts WHERE card = ?", card)

    # ---- in and out ----

    def exported(self):
        """All events as a dict that json can hold."""
        return {"format": FORMAT, "events": [vars(event) for event in self.events()]}

    def take_in(self, exported):
        """Add the events of another file's export that are not here yet. Returns the new ones. Raises StoreError."""
        events = _read_export(exported)
        with self.transaction():
            return [event for event in events if self.append(event)]


def _read_export(exported):
    if not isinstance(exported, dict) or exported.get("format") != FORMAT:
        raise StoreError(f"This is no export of the workbook: its format is not {FORMAT!r}.")
    types = {"at": (int, float), "kind": str, "subject": str, "data": dict, "uid": str}
    events = []
    for number, row in enumerate(exported.get("events", ()), 1):
        fits = isinstance(row, dict) and row.keys() == types.keys() | {"score"}
        if not fits or not all(isinstance(row[key], kind) for key, kind in types.items()):
            raise StoreError(f"Event {number} of this export is not one; nothing was taken in.")
        if not isinstance(row["score"], (int, float, type(None))):
            raise StoreError(f"The score of event {number} of this export is not a number; nothing was taken in.")
        events.append(Event(**row))
    return events


def _opened(path):
    """A connection to a sound file of the newest version. Raises sqlite3.DatabaseError for a damaged one."""
    connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("damaged")
        _to_wal(connection)
        connection.execute("PRAGMA synchronous = FULL")  # a power cut costs nothing that was answered
        _migrate(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _to_wal(connection):
    """Readers and one writer side by side. A file system that cannot do it keeps the older journal: still safe."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:  # SQLite does not wait here by itself
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.05)


def _migrate(connection, path):
    """Bring the file up to the newest version, in one step: a crash leaves the old version or the new one."""
    if connection.execute("PRAGMA user_version").fetchone()[0] == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(MIGRATIONS):
        connection.execute("ROLLBACK")
        raise StoreError(f"{path} was written by a newer release of the course. Update the course: git pull.")
    for script in MIGRATIONS[version:]:
        for statement in _statements(script):
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    connection.execute("COMMIT")


def _statements(script):
    """The statements of a script one by one: executescript would commit in between."""
    text = ""
    for line in script.splitlines():
        text += line.split("--")[0] + "\n"
        if text.strip() and sqlite3.complete_statement(text):
            yield text
            text = ""


@contextlib.contextmanager
def _guarded(path):
    """One process at a time: SQLite's own lock, on a file beside."""
    guard = sqlite3.connect(f"{path}-guard", timeout=PATIENCE, isolation_level=None)
    try:
        guard.execute("BEGIN EXCLUSIVE")
        yield
    finally:
        guard.close()


def _free_name(path, mark):
    """workbook.damaged-2026-11-22_13-40-00.db, with a number if that is taken."""
    names = (path.with_name(f"{path.stem}.{mark}{number}{path.suffix}") for number in ("", *range(2, 1000)))
    return next(name for name in names if not name.exists())
