"""The first page a learner runs."""

import re
from pathlib import Path

import jupytext
import pytest
from nbclient import NotebookClient

from utils.workspace import PHASES

ROOT = Path(__file__).resolve().parents[1]
PAGE = jupytext.read(ROOT / "solutions" / "pages" / "start_here.py")
READY = [name for name in PHASES if (ROOT / "solutions" / name / f"{name}.py").is_file()]


def outputs(folder):
    """Run the page in a folder, as Jupyter would. Returns the text, and HTML or Markdown, of each code cell."""
    page = jupytext.reads(jupytext.writes(PAGE, "py:percent"), "py:percent")
    NotebookClient(page, allow_errors=True, resources={"metadata": {"path": str(folder)}}).execute()
    return [
        "".join(str(out.get("text") or out.get("traceback") or dict(out.data)) for out in cell.outputs)
        for cell in page.cells
        if cell.cell_type == "code"
    ]


def test_every_link_of_the_text_leads_to_a_phase_that_is_there():
    """Does the page send nobody to a notebook that is not written, be it a phase or another page?"""
    links = re.findall(r"\]\(([^)#]+)\)", "".join(cell.source for cell in PAGE.cells))
    pages = {f"{path.stem}.ipynb" for path in (ROOT / "solutions" / "pages").glob("*.py")}
    assert links != [] and set(links) <= pages | {f"{name}/{name}.ipynb" for name in READY}


def test_the_page_shows_the_machine_and_the_map(tmp_path, monkeypatch):
    """Run from top to bottom by a new learner: device, versions, and links to exactly the phases beside the page?"""
    monkeypatch.setenv("TRANSFORMER_WORKBOOK_HOME", str(tmp_path / "home"))
    for name in READY:
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.ipynb").write_text("{}")
    machine, phases, progress = outputs(tmp_path)
    assert "everything is as the course expects" in machine and "2.13.0" in machine and "device" in machine
    assert re.findall(r"\((\w+)/\1\.ipynb\)", phases) == READY
    assert phases.count("not written yet") == len(PHASES) - len(READY)
    assert "○" in progress and "Next: build" in progress and "Traceback" not in progress


@pytest.mark.parametrize("file", ["utils.py", "utils/__init__.py"])
def test_a_utils_beside_the_page_is_named_and_not_a_riddle(tmp_path, file):
    """Python finds another utils first: does the first cell say where it is and what to do?"""
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("")
    said = outputs(tmp_path)[0]
    assert str(tmp_path / file) in said and "Rename" in said and "Traceback" not in said
