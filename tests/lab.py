"""A small driver for JupyterLab in a real browser: start a server, open a notebook, run cells, read what they show."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from urllib.parse import urlsplit

from playwright.sync_api import Error

from autograde.course import ROOT

SCREENS = ROOT / "build" / "screens"
VIEWPORT = {"width": 1280, "height": 800}
CHROMIUM = """--disable-background-networking --disable-component-update --disable-dev-shm-usage --disable-gpu
--disable-quic --disable-sync --no-first-run --no-sandbox""".split()
PATIENCE = 120  # seconds for one thing to happen, on a busy machine

# What the page is asked. `jupyterapp` is there because Server sets expose_app_in_browser.
READY = """path => {
    const front = window.jupyterapp?.shell.currentWidget;
    return front?.context?.path === path && front.sessionContext?.session?.kernel?.status === "idle"
        && front.content?.widgets.length > 0 && front.content.widgets.every(cell => cell.isAttached);
}"""
CELLS = """() => jupyterapp.shell.currentWidget.content.widgets.map(({model, node}) => ({
    id: model.id, type: model.type, source: model.sharedModel.getSource(), count: model.executionCount ?? null,
    prompt: node.querySelector(".jp-InputPrompt")?.textContent, outputs: model.outputs?.toJSON() ?? [],
}))"""
SELECT = """place => {
    const notebook = jupyterapp.shell.currentWidget.content;
    notebook.activeCellIndex = place;
    notebook.deselectAll();
    notebook.mode = "command";
}"""
SCROLL = """async (node, above) => {
    const outer = node.closest(".jp-WindowedPanel-outer");
    for (let n = 0; n < 10; n++) {  // how high a cell is turns out only when it comes near
        outer.scrollTop += node.getBoundingClientRect().top - outer.getBoundingClientRect().top - above;
        await new Promise(requestAnimationFrame);
    }
}"""


def wait_for(look, what, tail=lambda: ""):
    """The first true answer of `look()`; if none comes, an AssertionError that says what did not happen.

    tail: function -> str, what the server wrote last
    """
    until = time.monotonic() + PATIENCE
    while not (answer := look()):
        assert time.monotonic() < until, f"waited {PATIENCE} s for {what}{tail()}"
        time.sleep(0.1)
    return answer


class Server:
    """A Jupyter server in a process group of its own; home, settings and caches are new.

    command: function from a free port to a command line
    folder: where it runs; home: a folder that is not there yet; changes: environment variables
    """

    def __init__(self, command, folder, home, **changes):
        home.mkdir(parents=True)
        (home / "config").mkdir()
        (home / "config" / "jupyter_lab_config.json").write_text('{"LabApp": {"expose_app_in_browser": true}}')
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "XDG_"))}
        fresh = {"HOME": home, "IPYTHONDIR": home / "ipython", "MPLCONFIGDIR": home / "matplotlib"}
        fresh |= {f"JUPYTER_{kind}_DIR": home / kind.lower() for kind in ("CONFIG", "DATA", "RUNTIME")}
        self.port, self.log = _free_port(), home / "server.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command(self.port),
                cwd=folder,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=kept | {name: str(value) for name, value in (fresh | changes).items()},
            )

    def printed(self, pattern):
        """The first match of a pattern in what the server prints."""
        return self._until(lambda: re.search(pattern, self._text()), f"{pattern!r} in its output")

    def answers(self, token):
        """Wait until the server answers to its token."""
        address = f"http://127.0.0.1:{self.port}/api/status?token={token}"
        self._until(lambda: _is_up(address), f"an answer at port {self.port}")

    def tail(self, lines=40):
        """The end of the server's log, for messages."""
        return "\n".join(["", "--- server log ---", *self._text().splitlines()[-lines:]])

    def stop(self):
        """End the server, which ends its kernels; what is left of its group after ten seconds is killed."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
            until = time.monotonic() + 10
            while time.monotonic() < until:
                self.process.poll()
                os.killpg(self.process.pid, 0)  # raises when nobody is left
                time.sleep(0.1)
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _text(self):
        return self.log.read_text(errors="replace")

    def _until(self, look, what):
        def alive_and_look():
            status = self.process.poll()
            assert status is None, f"the server ended with status {status}{self.tail()}"
            return look()

        return wait_for(alive_and_look, what, self.tail)


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _is_up(address):
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


class Notebook:
    """A notebook open in JupyterLab.

    page: a Playwright page; address: the one that JupyterLab was given, with its token
    path: of the notebook below the server's folder, or None for the one in the address
    """

    def __init__(self, page, address, tail, path=None):
        self.page, self.tail = page, tail
        parts = urlsplit(address)
        self.path = path or parts.path.partition("/lab/tree/")[2]
        page.set_default_timeout(PATIENCE * 1000)
        page.goto(parts._replace(path=f"/lab/tree/{self.path}", query=f"reset&{parts.query}").geturl())
        self.arrive()

    def arrive(self, path=None):
        """Wait until the notebook is in front, all its cells are there and its kernel listens."""
        self.path = path or self.path
        self.until(self._is_ready, f"{self.path} with an idle kernel")

    def until(self, look, what):
        """Wait for something in the page; failures show the screen and the server's log."""
        try:
            return wait_for(look, what, self.tail)
        except AssertionError:
            with contextlib.suppress(Error):  # the page itself may be gone
                self.screenshot("failure")
            raise

    def cells(self):
        """What the notebook holds now: id, type, source, count (None: not run), prompt, outputs of each cell."""
        return self.page.evaluate(CELLS)

    def where(self, text):
        """The place of the first code cell whose source has this text."""
        return next(n for n, cell in enumerate(self.cells()) if cell["type"] == "code" and text in cell["source"])

    def cell(self, place):
        """The cell at a place, as a Playwright locator."""
        return self.page.locator(f'.jp-Notebook:visible > * [data-windowed-list-index="{place}"]')

    def run_all(self):
        """Run > Run All Cells, until the last cell has run or one has failed. Returns the cells."""
        self.command("notebook:run-all-cells")
        return self.until(self._finished, "the end of the run")

    def run(self, place):
        """Run one cell. Returns it when its outputs are there."""
        before = self.cells()[place]["count"]
        self.select(place)
        self.command("notebook:run-cell")
        self.until(lambda: self.cells()[place]["count"] not in (None, before), f"the outputs of cell {place}")
        return self.cells()[place]

    def select(self, place):
        """Make a cell the active one, in command mode."""
        self.page.evaluate(SELECT, place)

    def _is_ready(self):
        try:
            return self.page.evaluate(READY, self.path)
        except Error:  # the page is on its way to another address
            return False

    def _finished(self):
        cells = [cell for cell in self.cells() if cell["type"] == "code" and cell["source"].strip()]
        failed = any(output["output_type"] == "error" for cell in cells for output in cell["outputs"])
        waiting = any("*" in cell["prompt"] for cell in cells)
        return cells if (failed and not waiting) or all(cell["count"] for cell in cells) else None

    def command(self, name):
        """Start a command of JupyterLab; its end is not waited for."""
        self.page.evaluate("name => { jupyterapp.commands.execute(name) }", name)

    def scroll_to(self, place, above=0):
        """Bring a cell to the top of the window, with that many pixels above it."""
        self.cell(place).evaluate(SCROLL, above)

    def validate(self):
        """Press Validate. Returns the dialog, a locator."""
        self.page.get_by_role("button", name="Validate").locator("visible=true").click()
        dialog = self.page.locator(".jp-Dialog-content")
        self.until(dialog.is_visible, "the dialog of Validate")
        return dialog

    def screenshot(self, name):
        """Write build/screens/<name>.png; returns its path."""
        self.page.screenshot(path=self.screen(name))
        return self.screen(name)

    @staticmethod
    def screen(name):
        """Where a screenshot of that name lies."""
        SCREENS.mkdir(parents=True, exist_ok=True)
        return SCREENS / f"{name}.png"
