"""The gradebook in PostgreSQL, in place of the file: a server of our own, for these tests."""

import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from nbgrader.api import Gradebook
from typer.testing import CliRunner

from autograde import grade
from autograde.cli import app
from autograde.course import load_config
from tests.ledger import copy_of, gradebook, graded, small_class
from tests.sample_course import PHASE

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
USER = "postgres" if os.getuid() == 0 else None  # a server refuses to run as root

pytestmark = pytest.mark.skipif(not PROGRAMS, reason="Debian's package postgresql is not installed")


class Server:
    """A PostgreSQL server with the one database `class`."""

    def __init__(self, folder):
        self.folder, self.programs = folder, PROGRAMS[-1].parent
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.port = free.getsockname()[1]
        self.url = f"postgresql+psycopg://owner@127.0.0.1:{self.port}/class"

    def __enter__(self):
        self.run("initdb", "--username=owner", "--auth=trust", "--no-sync", "--encoding=UTF8")
        self.start()
        self.run("createdb", "--username=owner", "--host=127.0.0.1", f"--port={self.port}", "class")
        return self

    def __exit__(self, *error):
        self.stop()

    def start(self):
        places = f"-c listen_addresses=127.0.0.1 -c port={self.port} -c unix_socket_directories= -c fsync=off"
        self.run("pg_ctl", "start", "--wait", "--silent", f"--log={self.folder}/log", f"--options={places}")

    def stop(self):
        self.run("pg_ctl", "stop", "--mode=immediate", "--silent")

    def run(self, name, *options):
        where = os.environ | {"PGDATA": f"{self.folder}/data"}
        command = [self.programs / name, *options]
        subprocess.run(command, check=True, env=where, user=USER, cwd="/", stdout=subprocess.DEVNULL, timeout=120)


@pytest.fixture(scope="module")
def server():
    folder = tempfile.mkdtemp(prefix="postgres-", dir="/tmp")  # pytest's own folders are closed to other users
    try:
        if USER:
            shutil.chown(folder, USER)
        with Server(folder) as running:
            yield running
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def both(server, tmp_path_factory):
    """The small class graded twice: with its gradebook in a file, and on the server."""
    file = small_class(tmp_path_factory.mktemp("file"))
    served = copy_of(file, tmp_path_factory.mktemp("served") / "course")
    (served / "autograde" / "gradebook.db").unlink()
    with open(served / "nbgrader_config.py", "a") as config:
        config.write(f"c.CourseDirectory.db_url = {server.url!r}\n")
    results = graded(file)
    typed = CliRunner().invoke(app, ["grade", "--course", str(served), "--due", "2026-03-01 18:00"])
    return file, served, results, typed


def test_the_gradebook_is_the_same_on_a_server(both):
    """Does `autograde grade` record there what it records in a file, and none of it in a file?"""
    file, served, results, typed = both
    assert typed.exit_code == 1 and f"{PHASE} was not in the gradebook yet" in typed.output  # 1: dan's cannot be read
    assert gradebook(served) == gradebook(file)
    assert not (served / "autograde" / "gradebook.db").exists()
    with Gradebook(load_config(served).CourseDirectory.db_url) as book:
        scores = {one.student.id: (one.score, one.total_seconds_late) for one in book.assignment_submissions(PHASE)}
    assert scores == {who: (one.points, one.seconds_late) for who, one in results.items() if one.points is not None}


def test_it_is_backed_up_with_pg_dump(both, server):
    """Is there a dump before each run from which all can be restored?"""
    _, served, _, typed = both
    assert "is kept in" in typed.output
    before = gradebook(served)
    dump = grade.back_up_gradebook(served)
    assert dump.suffix == ".dump" and dump.parent == served / "autograde" / "backups"
    with Gradebook(load_config(served).CourseDirectory.db_url) as book:
        book.remove_submission(PHASE, "ann")
    assert gradebook(served) != before
    restore = ["pg_restore", "--clean", f"--dbname={server.url.replace('+psycopg', '')}", dump]
    subprocess.run([server.programs / restore[0], *restore[1:]], check=True)
    assert gradebook(served) == before


def test_grading_again_and_resuming_work_there(both):
    """Is nothing recorded twice, and nothing graded again with --resume?"""
    _, served, results, _ = both
    before = gradebook(served)
    assert graded(served, resume=True) == results
    assert gradebook(served) == before
    graded(served)
    assert gradebook(served) == before


def test_a_server_that_does_not_answer_is_named(both, server):
    """Stopped, is there a sentence and exit status 3, and does all go on when it is back?"""
    _, served, results, _ = both
    server.stop()
    try:
        for option in ("--backup", "--no-backup"):
            typed = CliRunner().invoke(app, ["grade", "--course", str(served), "--resume", option])
            assert typed.exit_code == 3 and "Stopped: " in typed.output, typed.output
        assert "the gradebook's server does not answer" in typed.output
    finally:
        server.start()
    assert graded(served, resume=True) == results
