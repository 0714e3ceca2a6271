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
DECK = """
from utils.drills import Card, Question

about = dict(answer="Because.\\n\\n" * 40, section="2.3", minutes=2, level="junior", phase=2)
deck = [
    Card("phase2/a", "choice", prompt="Which axis?", options=("keys", "queries"), right=0, because=("a", "b"), **about),
    Card("phase2/b", "numeric", prompt="", make=lambda rng: Question("Two and two?", 4.0, "", 0, {}, ""), **about),
    Card("phase2/c", "recall", prompt="Why divide?", rubric=({"points": 1, "for": "the variance"},), **about),
]
"""
CELL = f"""{DECK}
from utils.drills.notebook import _show
from utils.drills.session import Session
from utils.drills.store import Store

_show(Session(deck, Store(), seed=1))
"""
INTERVIEW = f"""{DECK}
from datetime import timedelta

import utils.drills.schedule

if "ahead" not in globals():
    true, ahead = utils.drills.schedule.now, [0]
    utils.drills.schedule.now = lambda: true() + timedelta(minutes=sum(ahead))
import utils.drills.notebook

utils.drills.notebook.load_cards = lambda: deck
utils.drills.notebook.interview()
"""


@pytest.fixture
def lab(tmp_path):
    """JupyterLab on a folder with one notebook, and a page of a browser that has opened it."""
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    cells = [CELL, "1 + 1", INTERVIEW, "ahead.append(36)", "ahead.append(10)"]
    lesson = new_notebook(cells=[new_code_cell(cell) for cell in cells], metadata=kernel)
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


class Hands:
    """On the keyboard of a notebook's cell, the first by default; a mouse there is none."""

    def __init__(self, notebook, cell=0):
        self.notebook, self.keyboard = notebook, notebook.page.keyboard
        self.place = notebook.cell(cell).locator(".jp-OutputArea").first

    def reads(self, text):
        self.notebook.until(lambda: text in self.place.inner_text(), f"{text!r} on the card")

    def arrives(self):
        """Wait until the focus is on the card: without a key pressed."""
        inside = "!!document.activeElement.closest('.jp-OutputArea')"
        self.notebook.until(lambda: self.notebook.page.evaluate(inside), "the focus on the card")

    def press(self, name):
        """Go with Tab to the control of this name, from where the focus is, and press Space."""
        self.arrives()
        for _ in range(12):
            active = self.notebook.page.evaluate("document.activeElement.innerText || document.activeElement.type")
            if active.strip() == name:
                return self.keyboard.press("Space")
            self.keyboard.press("Tab")
        raise AssertionError(f"Tab never came to {name}")

    def has_in_sight(self, text):
        """Wait until this stands on the screen, without anybody scrolling."""
        found = f"[...document.querySelectorAll('.jp-OutputArea p')].find(one => one.innerText.includes({text!r}))"
        below = "document.querySelector('.jp-NotebookPanel-toolbar').getBoundingClientRect().bottom"
        ask = f"(() => {{ const one = {found}; return !!one && one.getBoundingClientRect().top >= {below}; }})()"
        self.notebook.until(lambda: self.notebook.page.evaluate(ask), f"{text!r} in sight")

    def hears(self, role, text):
        """Wait until a screen reader is told to say this: politely (status), or at once (alert)."""
        told = self.place.get_by_role(role).filter(has_text=text)
        self.notebook.until(lambda: told.count() == 1, f"{text!r} as {role}")
        assert told.get_attribute("aria-live") == {"status": "polite", "alert": "assertive"}[role]

    def type(self, text):
        """Type into the field, once it has the focus: until then the last card's button may have it."""
        inside = "document.activeElement.matches('.jp-OutputArea input, .jp-OutputArea textarea')"
        self.notebook.until(lambda: self.notebook.page.evaluate(inside), "the focus on a field")
        self.keyboard.type(text)


def test_three_cards_by_keyboard(lab):
    """Without a mouse: a choice by its number, a number with Enter, a written answer with ticks, to the last page?"""
    notebook, home = lab
    notebook.run(0)
    hands = Hands(notebook)
    hands.reads("Which axis?")
    hands.arrives()
    hands.type("1")  # keys: the seed says where
    hands.keyboard.press("Enter")
    hands.reads("A model answer")
    hands.press("Next card")
    hands.has_in_sight("Two and two?")
    hands.type("2+2")
    hands.keyboard.press("Enter")
    hands.reads("Right: 4")
    hands.press("Next card")
    hands.has_in_sight("Why divide?")
    hands.type("because of the variance")
    hands.press("Answer")
    hands.reads("Tick what you said")
    hands.arrives()
    hands.press("checkbox")
    hands.press("Answer")
    hands.reads("1 of 1 points")
    notebook.screenshot("drill")
    hands.press("Next card")
    hands.reads("That is all for now")
    with Store(home / "workbook.db") as store:
        assert len(store.events("review")) == 3 and store.events(subject="phase2/b")[0].score == 1
        assert store.events(subject="phase2/c")[0].score == 1


def kept_of_interview(home):
    with Store(home / "workbook.db") as store:
        return store.interview()["asked"]


def test_an_interview_that_is_heard(lab):
    """Verdict, fault and last minutes told to a screen reader; labels; gone on with after a new run; a sheet?"""
    notebook, home = lab
    notebook.run(2)
    hands = Hands(notebook, 2)
    hands.press("Begin: junior")
    hands.has_in_sight("Why divide?")
    assert hands.place.get_by_label("Your answer").count() == 1
    hands.press("Answer")
    hands.reads("Tick what you said")
    hands.press("Answer")
    hands.hears("status", "0 of 1 points")
    hands.press("Next card")
    hands.has_in_sight("Two and two?")
    hands.type("many")
    hands.keyboard.press("Enter")
    hands.hears("alert", "is not read as a number")
    notebook.run(3)
    hands.hears("alert", "10 minutes left")
    notebook.until(lambda: kept_of_interview(home)["typed"] == "many", "the last letters kept")
    notebook.until(lambda: kept_of_interview(home)["seconds"] > 36 * 60, "the time kept, after a beat at most")
    notebook.run(2)
    hands.reads("broken off today: junior interview, 2 of 3")
    hands.press("Go on")
    hands.has_in_sight("Two and two?")
    kept = hands.place.get_by_label("Your answer")
    assert kept.input_value() == "many"
    notebook.run(4)
    hands.hears("alert", "The time is over")
    kept.focus()
    hands.keyboard.press("Control+A")
    hands.type("4")
    hands.keyboard.press("Enter")
    hands.hears("status", "Right: 4")
    hands.press("Next card")
    hands.reads("2 answered, 1 not reached")
    hands.reads("section 2.3")
    notebook.screenshot("interview")
    with Store(home / "workbook.db") as store:
        assert [event.score for event in store.events("review")] == [0, 1] and store.interview() is None
