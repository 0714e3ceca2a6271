"""The one writer of the gradebook: all of a submission or nothing, a backup first, and plain words when it cannot."""

import os
import shutil
import sqlite3
import subprocess
import time
from contextlib import closing, contextmanager
from pathlib import Path
from unittest.mock import patch

from nbgrader.api import Gradebook
from sqlalchemy import make_url, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session, scoped_session, sessionmaker

BACKUPS = 20  # the newest that are kept


class GradebookError(Exception):
    """The gradebook cannot be written to; the message says why and what to do. Nothing was lost."""


class _Held(Session):
    """A session that keeps its changes to itself until `release`: nbgrader commits after every cell."""

    def commit(self):
        self.flush()

    def release(self):
        super().commit()


class Writer:
    """An open gradebook. Within `transaction`, whatever nbgrader opens and commits is part of one transaction of it."""

    def __init__(self, db_url):
        self.db_url = db_url

    def __enter__(self):
        with in_plain_words():
            self._book = Gradebook(self.db_url)
        self._book.db.remove()
        self._book.db = scoped_session(sessionmaker(class_=_Held, autoflush=True, bind=self._book.engine, future=True))
        return self

    def __exit__(self, *error):
        self._book.close()

    @contextmanager
    def transaction(self):
        """All that is written meanwhile is kept, or, if the body raises, none of it. Yields the Gradebook."""
        session, shared = self._book.db, vars(self._book)
        views = {"__init__": lambda book, *args, **options: book.__dict__.update(shared), "close": lambda book: None}
        try:
            with in_plain_words():
                if self._book.engine.dialect.name == "sqlite":
                    session.execute(text("BEGIN IMMEDIATE"))  # fail now, not after the work, if it is locked
                with patch.multiple(Gradebook, **views):
                    yield self._book
                session().release()
        finally:
            session.rollback()
            session.remove()


@contextmanager
def in_plain_words():
    """Turn what databases and disks say into a GradebookError."""
    try:
        yield
    except (OperationalError, OSError) as error:
        problem = plain(str(error))
        if problem is None:
            raise
        raise GradebookError(problem) from None


def plain(words):
    """What an instructor should read instead of these words of a database or a disk; None if they mean neither."""
    if "database is locked" in words:
        return (
            "the gradebook is locked: another program is writing to it (formgrader, or a second grading run). "
            "Nothing is lost. Close it, then run again with --resume."
        )
    if any(said in words for said in ("disk is full", "No space left", "quota exceeded")):
        return "the disk is full. Nothing is lost. Make room, then run again with --resume."
    if "readonly database" in words or "unable to open database" in words:
        return "the gradebook cannot be written to: mend the rights of its file and folder, then run again."
    if any(
        said in words
        for said in (
            "could not connect",
            "Connection refused",
            "connection failed",
            "server closed",
            "terminating conn",
        )
    ):
        return "the gradebook's server does not answer: start it, or mend CourseDirectory.db_url. Nothing is lost."
    return None


def back_up(db_url, folder):
    """Copy the gradebook into `folder`. Returns the copy's path; None if there is nothing to copy yet.

    Raises GradebookError if there is something, and no copy could be made.
    """
    url, folder = make_url(db_url), Path(folder)
    stamp = time.strftime("%Y-%m-%d-%H%M%S")
    if url.get_backend_name() == "sqlite":
        return _copy_sqlite(Path(url.database), folder, f"gradebook-{stamp}.db")
    folder.mkdir(parents=True, exist_ok=True)
    if url.get_backend_name() == "postgresql" and shutil.which("pg_dump"):
        path = folder / f"gradebook-{stamp}.dump"
        address = f"--dbname={url.set(drivername='postgresql', password=None)}"
        secret = {"PGPASSWORD": url.password} if url.password else {}
        command = ["pg_dump", "--format=custom", f"--file={path}", address]
        if subprocess.run(command, capture_output=True, env=os.environ | secret).returncode == 0:
            _keep_the_newest(folder)
            return path
        path.unlink(missing_ok=True)
    raise GradebookError(
        "no backup of the gradebook could be made: install pg_dump of your server's version, or back it up yourself "
        "and run with --no-backup."
    )


def _copy_sqlite(source, folder, name):
    if not source.exists():
        return None
    with in_plain_words():
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{name}.part"
        try:
            address = f"{source.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(address, uri=True)) as book, closing(sqlite3.connect(part)) as copy:
                book.execute("BEGIN")
                book.execute("SELECT * FROM sqlite_master").fetchone()  # backup would wait for a lock without end
                book.backup(copy)
            part.replace(folder / name)
        except sqlite3.OperationalError as error:
            raise GradebookError(plain(str(error)) or f"the gradebook cannot be copied: {error}") from None
        finally:
            part.unlink(missing_ok=True)
        _keep_the_newest(folder)
    return folder / name


def _keep_the_newest(folder):
    for old in sorted([*folder.glob("gradebook-*.db"), *folder.glob("gradebook-*.dump")])[:-BACKUPS]:
        old.unlink()
