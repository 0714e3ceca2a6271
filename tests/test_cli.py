"""`workbook learn` and `workbook update`, as typed."""

import os
import re
import socket
import subprocess
import time
from contextlib import closing
from types import SimpleNamespace
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from tests.two_releases import NAME, first_release, put, second_release, solved
from utils import cli
from utils.workspace import WorkspaceError

run = CliRunner(env={"COLUMNS": "200"}).invoke


@pytest.fixture
def course(tmp_path, monkeypatch):
    for name in (NAME, "start_here.ipynb"):
        put(tmp_path / "notebooks" / name, first_release())
    monkeypatch.setattr(cli, "course_root", lambda: tmp_path)
    return tmp_path


@pytest.fixture
def started(monkeypatch):
    """Keep JupyterLab from starting; what would have been started is kept in this list."""
    calls = []

    def popen(command, cwd, env):
        calls.append(SimpleNamespace(command=command, cwd=cwd, env=env))
        return SimpleNamespace(wait=lambda: 0)

    monkeypatch.setattr(subprocess, "Popen", popen)
    return calls


def test_learn_copies_the_course_and_prints_where_it_is(course, started):
    """A first start without a screen: copy made, one address to open, the server told the same?"""
    result = run(cli.app, ["learn", "--no-browser"])
    assert result.exit_code == 0 and (course / "my_work" / NAME).is_file()
    port, token = re.search(
        r"http://127\.0\.0\.1:(\d+)/lab/tree/start_here\.ipynb\?token=(\w{32})", result.output
    ).groups()
    (server,) = started
    assert server.env["JUPYTER_TOKEN"] == token and token not in " ".join(server.command)
    assert f"--ServerApp.port={port}" in server.command and "--ServerApp.open_browser=False" in server.command
    assert f"--ServerApp.root_dir={course / 'my_work'}" in server.command


def test_a_second_learn_says_nothing_about_files_and_changes_none(course, started):
    """The next morning: work untouched, no table?"""
    run(cli.app, ["learn", "--no-browser"])
    put(course / "my_work" / NAME, solved(first_release()))
    before = (course / "my_work" / NAME).read_bytes()
    result = run(cli.app, ["learn", "--no-browser"])
    assert (course / "my_work" / NAME).read_bytes() == before and "unchanged" not in result.output


@pytest.mark.parametrize(
    ("screen", "opens"), [({"DISPLAY": ":0"}, True), ({"WSL_DISTRO_NAME": "Ubuntu"}, True), ({}, False)]
)
def test_a_browser_opens_where_there_is_a_screen(course, started, monkeypatch, screen, opens):
    """On a server without a display: is no browser tried?"""
    monkeypatch.setattr(cli.sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in screen.items():
        monkeypatch.setenv(name, value)
    run(cli.app, ["learn"])
    assert f"--ServerApp.open_browser={opens}" in started[0].command


def test_a_busy_port_is_passed_over(course, started):
    """Another JupyterLab is running: is the next free port taken, and printed?"""
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        busy = other.getsockname()[1]
        result = run(cli.app, ["learn", "--no-browser", "--port", str(busy)])
    port = int(re.search(r"127\.0\.0\.1:(\d+)", result.output).group(1))
    assert port > busy and f"--ServerApp.port={port}" in started[0].command


def test_update_prints_what_changed(course):
    """Does a learner read which cells are new, replaced, kept?"""
    run(cli.app, ["update"])
    put(course / "my_work" / NAME, solved(first_release()))
    put(course / "notebooks" / NAME, second_release())
    result = run(cli.app, ["update"])
    assert result.exit_code == 0
    assert re.search(
        rf"{NAME}\s+updated\s+replaced: sdpa-idea, sdpa; new: causal_mask-build, causal_mask;", result.output
    )
    assert "moved to the end: old_mask-build" in result.output and "my_work/backups/" in result.output
    assert re.search(r"start_here\.ipynb\s+unchanged", result.output)
    assert "updated" not in run(cli.app, ["update"]).output


def test_update_says_which_file_it_left_alone(course):
    """A damaged notebook: a plain sentence, no traceback, and an exit status that scripts can see?"""
    run(cli.app, ["update"])
    (course / "my_work" / NAME).write_text("{")
    result = run(cli.app, ["update"])
    assert result.exit_code == 1 and "Traceback" not in result.output
    assert re.search(r"left alone\s+phase2_attention\.ipynb is not a readable notebook", result.output)
    assert "is as you left it" in result.output


@pytest.mark.parametrize(
    "error", [WorkspaceError("The course's folder was not found."), PermissionError(13, "no", "my_work")]
)
def test_what_cannot_be_done_is_said_in_a_sentence(monkeypatch, error):
    """No course here, or no right to write: is there a message and no traceback?"""

    def fail():
        raise error

    monkeypatch.setattr(cli, "course_root", fail)
    result = run(cli.app, ["update"])
    assert result.exit_code == 1 and str(error) in result.output and isinstance(result.exception, SystemExit)


def test_the_address_that_is_printed_really_opens(course, started, monkeypatch):
    """Started for real: does JupyterLab serve start_here at that address, quietly, and not without the token?"""
    monkeypatch.setenv("HOME", str(course / "home"))
    result = run(cli.app, ["learn", "--no-browser"])
    monkeypatch.undo()
    address = re.search(r"http://\S+", result.output).group()
    server = subprocess.Popen(started[0].command, cwd=course, env=started[0].env, stderr=subprocess.PIPE, text=True)
    try:
        page = wait_for(address, server)
        assert '"/lab/tree/start_here.ipynb"' in page or "jupyter-config-data" in page
        contents = address.replace("/lab/tree/", "/api/contents/")
        assert '"phase2_attention"' in urlopen(contents.replace("start_here.ipynb", "")).read().decode()
        with pytest.raises(URLError, match="403|Forbidden"):
            urlopen(contents.partition("?")[0])
    finally:
        server.terminate()
        said = server.communicate(timeout=30)[1]
    assert "ERROR" not in said and "Traceback" not in said


def wait_for(address, server, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end and server.poll() is None:
        try:
            return urlopen(address).read().decode()
        except OSError:
            time.sleep(0.3)
    raise AssertionError(f"JupyterLab did not answer within {seconds} s (exit status {server.poll()})")


def test_jupyterlab_is_told_not_to_ask_for_news(course, started):
    """No pop-up and no network on the first start: is our setting on JupyterLab's path?"""
    run(cli.app, ["learn", "--no-browser"])
    folder = started[0].env["JUPYTER_CONFIG_PATH"].split(os.pathsep)[0]
    with open(os.path.join(folder, "labconfig", "default_setting_overrides.json")) as file:
        assert '"fetchNews": "false"' in file.read()
