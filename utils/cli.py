"""`workbook`: open the course, bring it up to date, drill, see how far you are."""

import os
import secrets
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from utils.drills.command import drill
from utils.workspace import WorkspaceError, course_root, update, write_atomically

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
out = Console(highlight=False, soft_wrap=True)

# Parts of nbgrader that need a course server; Validate stays.
FOR_INSTRUCTORS = ("formgrader", "assignment_list", "course_list")


@app.callback()
def workbook():
    """Build the Transformer from nothing: open the course, drill, see how far you are."""


@app.command()
def learn(
    browser: bool = typer.Option(True, "--browser/--no-browser", help="Open a browser (where there is a screen)."),
    port: int = typer.Option(8888, help="The first port to try."),
):
    """Copy the course to my_work/ (what you did there stays) and open it in JupyterLab."""
    root, _ = _bring_up_to_date(quiet=True)
    port, token = _free_port(port), secrets.token_hex(16)
    browser = browser and _has_screen()
    out.print(f"JupyterLab opens your copy of the course, {root / 'my_work'}, at this address:")
    out.print(f"\n  http://127.0.0.1:{port}/lab/tree/start_here.ipynb?token={token}\n")
    out.print("To stop it press Ctrl+C twice, here. Your work is in the files; save before you stop.")
    sys.stdout.flush()
    server = subprocess.Popen(_jupyter(root, port, browser), cwd=root, env=_environment(token))
    while True:
        try:
            raise typer.Exit(server.wait())
        except KeyboardInterrupt:
            continue  # Ctrl+C reaches JupyterLab, too: it asks, and stops at the second one


app.command()(drill)


@app.command(name="update")
def update_command():
    """Merge a new release into my_work/. Your solutions, answers and added cells stay; a backup is made first."""
    _, complete = _bring_up_to_date()
    raise typer.Exit(0 if complete else 1)


@app.command(name="progress")
def progress_command(
    details: bool = typer.Option(False, "--details", help="Every exercise in a line of its own."),
):
    """What is done, partly done and open; cards due; and what to do next."""
    from utils.progress.standing import standing
    from utils.progress.table import Table as Progress

    out.print(str(Progress(standing(_root()), details)), markup=False)


@app.command(name="reset")
def reset_command(name: str = typer.Argument(help="The exercise, for example sdpa.")):
    """Make the cell of one exercise blank again. The notebook as it was goes to my_work/backups/."""
    from utils.progress.reset import reset

    try:
        folder = reset(_root(), name)
    except (WorkspaceError, OSError) as error:
        out.print(str(error), markup=False)
        raise typer.Exit(1) from None
    if folder is None:
        out.print(f"The cell of {name} is blank already.")
        return
    out.print(f"The cell of {name} is blank again. Your notebook as it was: {folder}", markup=False)
    out.print("If it is open in JupyterLab: File > Reload Notebook from Disk.")


@app.command(name="export")
def export_command(
    file: Path = typer.Option(Path("my_transformer.py"), "--out", help="Where to write it."),  # noqa: B008
    force: bool = typer.Option(False, "--force", help="Write over a file that is there."),
):
    """Write your own Transformer as one file that trains without the course."""
    from utils.progress.export import CannotExport, export

    if file.exists() and not force:
        out.print(f"{file} is there already. Another name: --out FILE; write over it: --force", markup=False)
        raise typer.Exit(1)
    out.print("Checking your parts …")
    try:
        made = export()
        write_atomically(file.absolute(), made.text.encode())
    except (CannotExport, OSError) as error:
        out.print(str(error), markup=False)
        raise typer.Exit(1) from None
    out.print(f"{file}: {len(made.mine)} parts of your own, {len(made.courses)} of the course's.", markup=False)
    out.print(f"Try it anywhere: python {file}", markup=False)


def _root():
    try:
        return course_root()
    except WorkspaceError as error:
        out.print(str(error), markup=False)
        raise typer.Exit(1) from None


def _bring_up_to_date(quiet=False):
    """The course's folder, and whether every file could be merged."""
    try:
        root = course_root()
        rows = update(root)
    except WorkspaceError as error:
        out.print(str(error), markup=False)
        raise typer.Exit(1) from None
    except OSError as error:
        out.print(f"my_work/ could not be written, and your files are as they were: {error}", markup=False)
        raise typer.Exit(1) from None
    if not quiet or any(row.what != "unchanged" for row in rows):
        _show(rows)
    return root, all(row.what != "left alone" for row in rows)


def _show(rows):
    table = Table("file in my_work", "what happened", "cells", box=None, pad_edge=False)
    for row in rows:
        table.add_row(row.path, row.what, row.problem or _summary(row.changes))
    Console(highlight=False, markup=False).print(table)
    if any(row.what == "updated" for row in rows):
        out.print(
            "The files as they were: my_work/backups/. If one is open in JupyterLab: File > Reload Notebook from Disk."
        )
    if any(row.what == "left alone" for row in rows):
        out.print("What was left alone is as you left it. For a fresh copy give yours another name and run this again.")


def _summary(changes):
    """["replaced", …] in words: few cells by name, many by number."""
    groups = {kind: [name for k, name in changes if k == kind] for kind in Counter(k for k, _ in changes)}
    return "; ".join(
        f"{kind}: {', '.join(names) if len(names) <= 3 else f'{len(names)} cells'}" for kind, names in groups.items()
    )


def _environment(token):
    """The token goes here, since others can read a command line; and our settings stop JupyterLab asking for news."""
    settings = [str(Path(__file__).with_name("jupyter")), os.environ.get("JUPYTER_CONFIG_PATH", "")]
    return {**os.environ, "JUPYTER_TOKEN": token, "JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, settings))}


def _jupyter(root, port, browser):
    off = {f"nbgrader.server_extensions.{name}": False for name in FOR_INSTRUCTORS}
    options = {
        "ServerApp.root_dir": root / "my_work",
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.open_browser": browser,
        "ServerApp.jpserver_extensions": off,
        "Application.log_level": "ERROR",
        "LabApp.default_url": "/lab/tree/start_here.ipynb",
    }
    command = [sys.executable, "-m", "jupyterlab", *(f"--{name}={value}" for name, value in options.items())]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # inside a container; the token still guards it
    return command


def _has_screen():
    if sys.platform in ("win32", "darwin"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"))


def _free_port(first):
    """The first port from `first` on that nobody listens on."""
    for port in range(first, min(first + 100, 65536)):
        with socket.socket() as probe:
            if os.name != "nt":
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    out.print(f"No free port from {first} on. Name another one: workbook learn --port 9000")
    raise typer.Exit(1)


if __name__ == "__main__":
    app()
