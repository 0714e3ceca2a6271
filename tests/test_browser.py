"""The course as its readers meet it: JupyterLab in a real browser. What was seen lies in build/screens/."""

import math
import os
import re
import shutil
import sys

import nbformat
import pytest
from playwright.sync_api import sync_playwright

from autograde.course import ROOT
from tests.lab import CHROMIUM, VIEWPORT, Notebook, Server, wait_for
from utils.checks import EXERCISES
from utils.environment import report
from utils.widgets import phase2 as widgets

PHASE = "phase2_attention"
LESSON = f"{PHASE}/{PHASE}.ipynb"
SOLVED = f"solved/{PHASE}.ipynb"
NAMES = [name for name, exercise in EXERCISES.items() if exercise.phase == PHASE]
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
README_PICTURE = ROOT / "docs" / "phase2.png"

pytestmark = pytest.mark.skipif(not BROWSER, reason="no Chromium here (Debian: sudo apt install chromium)")


# ---- a course, its server, a browser -------------------------------------------------------------


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A copy of the course without a trace of work: what a clone holds, as far as it is used here."""
    root = tmp_path_factory.mktemp("browser") / "course"
    private = shutil.ignore_patterns("__pycache__", ".*", "*.db*", "submitted", "autograded", "feedback", "kept")
    for folder in ("autograde", "notebooks", "solutions", "utils"):
        shutil.copytree(ROOT / folder, root / folder, ignore=private)
    for file in ("nbgrader_config.py", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / file, root)
    return root


@pytest.fixture(scope="module")
def chromium():
    """A browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def learner(course, chromium):
    """`workbook learn` at work. A function that opens its address, or a notebook of my_work/, in a new window."""

    def command(port):
        return [sys.executable, "-m", "utils.cli", "learn", "--no-browser", "--port", str(port)]

    def open_notebook(path=None):
        page = chromium.new_page(viewport=VIEWPORT)  # in a profile of its own: two tabs would fight over the layout
        return Notebook(page, address[0], server.tail, path)

    server = Server(command, course, course.parent / "learner", PYTHONPATH=course)
    try:
        address = server.printed(r"http://127\S+token=(\w+)")
        server.answers(address[1])
        yield open_notebook
    finally:
        server.stop()


@pytest.fixture(scope="module")
def blank(learner):
    """Phase 2 as it was handed out, after Run All Cells."""
    notebook = learner(LESSON)
    notebook.run_all()
    return notebook


@pytest.fixture(scope="module")
def solved(course, learner):
    """Phase 2 with every answer filled in, after Run All Cells."""
    lesson = nbformat.read(course / "my_work" / LESSON, as_version=4)
    answers = {c.id: c.source for c in nbformat.read(course / "solutions" / LESSON, as_version=4).cells}
    for cell in lesson.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = answers[cell.id]
    (course / "my_work" / SOLVED).parent.mkdir()
    nbformat.write(lesson, course / "my_work" / SOLVED)
    notebook = learner(SOLVED)
    notebook.run_all()
    return notebook


# ---- arriving ------------------------------------------------------------------------------------


def test_a_learner_arrives_and_walks_to_phase_2(learner):
    """Does the printed address open start_here, do its cells run, and does its map lead to phase 2?"""
    notebook = learner()
    assert notebook.path == "start_here.ipynb"
    notebook.run_all()
    notebook.scroll_to(notebook.where("report()"))
    notebook.screenshot("start_here")
    shown = notebook.cell(notebook.where("report()")).inner_text()
    assert "torch" in shown and ("✓ everything is as the course expects" in shown) == (not report().problems)
    assert notebook.page.locator(".jp-Dialog, .Toastify__toast").count() == 0, "something asks before the lesson begins"
    notebook.page.locator(".jp-OutputArea a", has_text=re.compile("^Attention$")).click()
    notebook.arrive(LESSON)
    assert notebook.cell(0).locator("h1").inner_text().startswith("Phase 2 · Attention")
    notebook.screenshot("phase2_opened")
    notebook.page.close()


# ---- the solved lesson ---------------------------------------------------------------------------


@pytest.mark.slow
def test_the_solved_lesson_runs_in_the_browser(solved):
    """Does every check pass, with no error, nothing on stderr and nothing left waiting?"""
    cells = [cell for cell in solved.cells() if cell["type"] == "code"]
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert [o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"] == []
    printed = "".join("".join(output.get("text", "")) for output in outputs)
    assert [name for name in NAMES if not re.search(rf"^✓ {name} · (\d+)/\1\b", printed, re.MULTILINE)] == []
    assert "waiting for" not in printed
    assert all(cell["count"] for cell in cells if cell["source"])


@pytest.mark.slow
def test_every_picture_is_there_and_described(solved):
    """Has each figure arrived in the page, with a sentence for those who cannot see it?"""
    pictures = solved.page.locator(".jp-Notebook:visible .jp-OutputArea img")
    assert pictures.count() >= 10
    for number, picture in enumerate(pictures.all(), 1):
        picture.scroll_into_view_if_needed()
        width, alt = picture.evaluate("image => [image.complete ? image.naturalWidth : 0, image.alt]")
        assert width > 400 and len(alt) > 40, f"picture {number}: {width} pixels wide, alt {alt!r}"
        picture.screenshot(path=solved.screen(f"figure{number:02}"))


@pytest.mark.slow
def test_the_readme_shows_this_screen(solved):
    """Do a check's report and the figure fit on one screen of 1280 by 800?"""
    figure, checked = solved.where("widgets.mask_painter("), solved.where("check(combine_masks")
    solved.select(checked)
    solved.command("docmanager:save")
    solved.command("toc:show-panel")
    solved.until(solved.page.locator(".jp-TableOfContents").is_visible, "the table of contents")
    solved.until(lambda: solved.page.locator(".lm-TabBar-tab.jp-mod-dirty").count() == 0, "the notebook to be saved")
    solved.scroll_to(checked)
    for place, part in ((checked, "text=✓ combine_masks · 2/2"), (figure, ".figure-readout"), (figure, "img")):
        box = solved.cell(place).locator(part).bounding_box()
        assert box["y"] > 90 and box["y"] + box["height"] < 775, f"{part} is outside the screen: {box}"
    picture = solved.screenshot("phase2")
    assert picture.stat().st_size < 300_000
    if os.environ.get("WORKBOOK_SCREENSHOT"):
        README_PICTURE.parent.mkdir(exist_ok=True)
        shutil.copy(picture, README_PICTURE)


# ---- the figure to play with, by keyboard --------------------------------------------------------


def expected(query, mask, temperature, hidden=()):
    """The value the figure should show, without torch: (key that is read most, its weight)."""
    place, scores = widgets.TOKENS.index(query), widgets.SCORES.tolist()
    visible = [key for key in range(len(widgets.TOKENS)) if widgets.TOKENS[key] not in hidden]
    if mask == "causal":
        visible = [key for key in visible if key <= place]
    powers = {key: math.exp(scores[place][key] / temperature) for key in visible}
    best = max(powers, key=powers.get)
    return widgets.TOKENS[best], powers[best] / sum(powers.values())


@pytest.mark.slow
def test_the_figure_is_moved_by_keyboard(solved):
    """Does each control, reached with Tab alone, change the value to the right number, in words and in the alt text?"""
    place = solved.where("widgets.mask_painter(")
    solved.run(place)
    solved.scroll_to(place)
    readout, picture = solved.cell(place).locator(".figure-readout"), solved.cell(place).locator("img")
    focused = """() => { const at = document.activeElement, row = at.closest(".widget-inline-hbox");
        return (row ? row.querySelector("label") : at).textContent.trim() }"""

    def press(control, *keys):
        before = readout.inner_text()
        for _ in range(20):
            solved.page.keyboard.press("Tab")
            if solved.page.evaluate(focused) == control:
                break
        else:
            raise AssertionError(f"twenty times Tab, and {control!r} was not reached")
        for key in keys:
            solved.page.keyboard.press(key)
        solved.until(lambda: readout.inner_text() != before, f"another value than {before!r} after {keys} on {control}")
        solved.until(lambda: readout.inner_text() in picture.get_attribute("alt"), "the picture of that value")

    def assert_shows(query, *state):
        best, weight = expected(query, *state)
        shown = readout.inner_text()
        words = re.fullmatch(rf"query '{query}' reads '{best}' most: weight on '{best}' = ([\d.]+)", shown)
        assert words, shown
        assert float(words[1]) == pytest.approx(weight, abs=6e-4)

    solved.page.evaluate("jupyterapp.shell.currentWidget.content.node.focus()")
    assert_shows("it", "causal", 1.0)
    press("none", "Space")
    assert_shows("it", "none", 1.0)
    press("query", "ArrowLeft")
    assert_shows("as", "none", 1.0)
    press("temperature", "ArrowLeft")
    assert_shows("as", "none", 2**-0.5)
    press("sat", "Space")
    assert_shows("as", "none", 2**-0.5, ["sat"])
    solved.screenshot("figure_by_keyboard")


AT_A_CONTROL = """cell => {
    const at = document.activeElement;
    if (!cell.contains(at)) return null;
    if (at.getAttribute("role") === "slider")
        return at.getAttribute("aria-valuenow") === at.getAttribute("aria-valuemin") ? "End" : "Home";
    return at.matches(".jp-OutputArea button:not(.mod-active)") ? "Space" : null;
}"""


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_every_figure_of_the_gallery_is_moved_by_keyboard(learner, theme):
    """On a new machine: does the page run, and do controls, reached with Tab alone, change the text of each picture?"""
    notebook = learner("figures.ipynb")
    notebook.page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', { theme })", theme)
    outputs = [output for cell in notebook.run_all() for output in cell["outputs"]]
    assert [o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"] == []
    places = [n for n, cell in enumerate(notebook.cells()) if cell["source"].startswith("play(")]
    for place in places:
        name, cell = notebook.cells()[place]["source"].split('"')[1], notebook.cell(place)
        notebook.select(place)
        notebook.scroll_to(place)
        picture, moved = cell.locator("img"), []
        cell.evaluate("cell => { cell.tabIndex = -1; cell.focus() }")
        for _ in range(40):
            notebook.page.keyboard.press("Tab")
            if not cell.evaluate("cell => cell.contains(document.activeElement)"):
                break
            key = cell.evaluate(AT_A_CONTROL)
            if key and (key != "Space" or key not in moved):  # one button of a row, every slider
                before = picture.get_attribute("alt")
                notebook.page.keyboard.press(key)
                what = f"another picture of {name} after {key}"
                notebook.until(lambda before=before, shown=picture: shown.get_attribute("alt") != before, what)
                moved.append(key)
                if len(moved) == 3:
                    break
        assert len(moved) >= 2, f"{name}: with Tab, {moved} alone"
        notebook.screenshot(f"gallery_{theme.split()[1].lower()}_{name}")
    notebook.page.close()


# ---- the blank lesson ----------------------------------------------------------------------------


def test_a_stub_gets_the_friendly_report_alone(blank):
    """Does the first check of a blank copy say what to do, in three lines, without a traceback?"""
    place = blank.where("check(masked_softmax")
    cells = blank.cells()
    failed = [n for n, cell in enumerate(cells) if any(o["output_type"] == "error" for o in cell["outputs"])]
    assert failed[0] == place  # what a busy browser sends after that is run by the kernel nevertheless
    blank.scroll_to(place, above=300)
    blank.screenshot("blank_check")
    lines = blank.cell(place).locator(".jp-OutputArea-output").inner_text().strip().splitlines()
    assert lines[0] == "✗ masked_softmax · not implemented yet" and len(lines) == 3
    assert lines[1].startswith("  hint      Section 2.2:") and lines[2].startswith("  so far    0/5 points")


def test_demos_wait_and_skipped_cells_are_named(blank):
    """Do the cells that need a missing part say so in one line each?"""
    waiting = "… waiting for masked_softmax: build it in section 2.2"
    for text in ("002-padding-softmax", "widgets.mask_painter("):
        place = blank.where(text)
        assert "".join(o.get("text", o["output_type"]) for o in blank.run(place)["outputs"]).strip() == waiting
    place = blank.where("check(sdpa,")
    blank.run(place)
    blank.scroll_to(place, above=300)
    blank.screenshot("blank_waiting")
    line = "sdpa is not defined yet: run the cell that builds it, in section 2.3."
    assert blank.cell(place).locator(".jp-OutputArea-output").inner_text().strip() == line


# ---- Validate ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_validate_praises_the_solved_copy(solved):
    """Does nbgrader's own button find nothing to complain about?"""
    dialog = solved.validate()
    solved.screenshot("validate_solved")
    said = dialog.inner_text()
    dialog.get_by_role("button", name="Ok").click()
    assert "Success! Your notebook passes all the tests." in said


def test_validate_lists_what_is_open_in_the_blank_copy(blank):
    """Does the button show each report alone, and each unanswered question, and nothing else?"""
    dialog = blank.validate()
    blank.screenshot("validate_blank")
    failed = dialog.locator("pre").all_inner_texts()
    dialog.get_by_role("button", name="Ok").click()
    cells, reasons = failed[::2], failed[1::2]
    assert [re.match(r"check\((\w+),|YOUR ANSWER HERE", cell)[1] for cell in cells] == [*NAMES, None, None, None]
    for name, reason in zip(NAMES, reasons, strict=False):
        assert reason.startswith(f"✗ {name} · not implemented yet\n  hint ") and len(reason.strip().splitlines()) == 3
    assert reasons[len(NAMES) :] == ["You did not provide a response."] * 3


# ---- formgrader ----------------------------------------------------------------------------------


def test_formgrader_opens_in_the_root(course, chromium):
    """Does an instructor who starts JupyterLab in the course's folder see the assignment in formgrader?"""

    def command(port):
        return [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1",
                f"--port={port}", "--ServerApp.port_retries=0"]  # fmt: skip

    server = Server(command, course, course.parent / "instructor", PYTHONPATH=course, JUPYTER_TOKEN="formgrader")
    try:
        server.answers("formgrader")
        page = chromium.new_page(viewport=VIEWPORT)
        page.goto(f"http://127.0.0.1:{server.port}/formgrader?token=formgrader")
        row = page.locator("tr", has_text=PHASE)
        wait_for(row.is_visible, "the assignment in formgrader's list", server.tail)
        page.screenshot(path=Notebook.screen("formgrader"))
        assert "Manage Assignments" in page.locator("h1").all_inner_texts() and "draft" in row.inner_text()
        page.close()
    finally:
        server.stop()
