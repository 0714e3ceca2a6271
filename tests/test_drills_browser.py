"""The drill in JupyterLab, in a real browser, by keyboard alone."""

import shutil
import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import sync_playwright

from autograde.course import ROOT
from tests.lab import CHROMIUM, VIEWPORT, Notebook, Server
from utils.drills.store import Store

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BROWSER, reason="no Chromium here (Debian: sudo apt install chromium)"),
]
CELL = """
from utils.drills import Card, Question
from utils.drills.notebook import _show
from utils.drills.session import Session
from utils.drills.store import Store

about = dict(answer="Because.", section="2.3", minutes=2, level="junior", phase=2)
deck = [
    Card("phase2/a", "choice", prompt="Which axis?", options=("keys", "queries"), right=0, because=("a", "b"), **about),
    Card("phase2/b", "numeric", prompt="", make=lambda rng: Question("Two and two?", 4.0, "", 0, {}, ""), **about),
    Card("phase2/c", "recall", prompt="Why divide?", rubric=({"points": 1, "for": "the variance"},), **about),
]
_show(Session(deck, Store(), seed=1))
"""


@pytest.fixture
def lab(tmp_path):
    """JupyterLab on a folder with one notebook, and a page of a browser that has opened it."""
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    lesson = new_notebook(cells=[new_code_cell(CELL), new_code_cell("1 + 1")], metadata=kernel)
    nbformat.write(lesson, tmp_path / "drill.ipynb")

    def command(port):
        options = {
            "ServerApp.root_dir": tmp_path,
            "ServerApp.port": port,
            "IdentityProvider.token": "t",
            "ServerApp.open_browser": False,
            "ServerApp.allow_root": True,
        }
        return [sys.executable, "-m", "jupyterlab", *(f"--{name}={value}" for name, value in options.items())]

    home = tmp_path / "progress"
    server = Server(command, tmp_path, tmp_path / "home", PYTHONPATH=ROOT, TRANSFORMER_WORKBOOK_HOME=home)
    try:
        server.answers("t")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=BROWSER, args=CHROMIUM)
            page = browser.new_page(viewport=VIEWPORT)
            yield Notebook(page, f"http://127.0.0.1:{server.port}/lab/tree/drill.ipynb?token=t", server.tail), home
            browser.close()
    finally:
        server.stop()


def test_three_cards_by_keyboard(lab):
    """Without a mouse: a choice with the arrows, a number with Enter, a written answer with ticks, to the last page?"""
    notebook, home = lab
    notebook.run(0)
    keyboard = notebook.page.keyboard
    place = notebook.cell(0)

    def reads(text):
        notebook.until(lambda: text in place.inner_text(), f"{text!r} on the card")

    def press(name, times=1):
        """Go to the control of this name with Tab, from where the focus is, and press Space."""
        for _ in range(12):
            active = notebook.page.evaluate("document.activeElement.innerText || document.activeElement.type")
            if name in active:
                return keyboard.press("Space")
            keyboard.press("Tab")
        raise AssertionError(f"Tab never came to {name}")

    reads("Which axis?")
    notebook.until(lambda: in_output(notebook), "the focus on the card")
    keyboard.press("Space")
    press("Answer")
    reads("A model answer")
    press("Next card")
    reads("Two and two?")
    notebook.until(lambda: in_output(notebook), "the focus on the card")
    keyboard.type("2+2")
    keyboard.press("Enter")
    reads("Right: 4")
    press("Next card")
    reads("Why divide?")
    notebook.until(lambda: in_output(notebook), "the focus on the card")
    keyboard.type("because of the variance")
    press("Answer")
    reads("Tick what you said")
    notebook.until(lambda: in_output(notebook), "the focus on the box")
    press("checkbox")
    press("Answer")
    reads("1 of 1 points")
    notebook.screenshot("drill")
    press("Next card")
    reads("That is all for now")
    with Store(home / "workbook.db") as store:
        assert len(store.events("review")) == 3 and store.events(subject="phase2/b")[0].score == 1
        assert store.events(subject="phase2/c")[0].score == 1


def in_output(notebook):
    return notebook.page.evaluate("!!document.activeElement.closest('.jp-OutputArea')")
