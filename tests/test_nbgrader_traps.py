"""Each way in which stock nbgrader was seen to go wrong, and that it does not here. One small class is graded once."""

import json
import re
import socket
import subprocess
import sys
import time
import urllib.request
from types import SimpleNamespace

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell
from nbgrader.api import Gradebook
from traitlets import Any
from traitlets.config import LoggingConfigurable
from typer.testing import CliRunner

from autograde import grade as grading
from autograde.cli import app
from autograde.course import load_config, run_step
from autograde.feedback import clean_html
from tests.sample_course import CAUSAL, PADDING, PHASE, cell, make_course, read, solve, submit


def drop(notebook, *ids):
    notebook.cells = [c for c in notebook.cells if c.id not in ids]
    return notebook


def solved(root, **answers):
    return solve(read(root), **({"causal_mask": CAUSAL, "padding_mask": PADDING} | answers))


HOSTILE = "**because** ![x](attachment:gone.png) <script>alert(1)</script> <img src=x onerror=1>"


def submit_the_class(root):
    """One submission for each trap, named after it."""
    submit(root, "blank", read(root))
    submit(root, "full", solved(root), timestamp="2026-01-02 12:00:00 UTC")

    twice = solved(root)
    for name in ("causal_mask-build", "causal_mask"):  # Lab's "duplicate cell" copies the metadata
        twice.cells.insert(2, cell(twice, name).copy())
        twice.cells[2].id = f"copy-of-{name}"
    submit(root, "duplicated_cells", twice)

    submit(root, "deleted_check", drop(solved(root), "causal_mask"))
    moved = drop(solved(root), "causal_mask", "causal_mask-build", "setup")
    moved.cells.insert(1, new_code_cell("import torch\ndef causal_mask(q_len, kv_len=None):\n" + CAUSAL))
    submit(root, "deleted_both", moved)

    submit(root, "stderr", solved(root, causal_mask="    import sys; print('warning', file=sys.stderr)\n" + CAUSAL))
    submit(root, "kills_kernel", solved(root, causal_mask="    import os; os._exit(1)"))
    broken = solved(root)
    del broken.cells[0]["metadata"]
    submit(root, "damaged", json.dumps(broken))
    submit(root, "slow_cell", solved(root, padding_mask="    import time; time.sleep(60)"))

    forged = read(root)
    check = cell(forged, "causal_mask")
    check.metadata["tags"] = ["demo"]  # a cell that is skipped has no output, which is full marks to nbgrader
    check.metadata.nbgrader.points = 400
    cell(forged, "padding_mask").metadata.nbgrader.grade = False
    cell(forged, "causal_mask-build").metadata.nbgrader.grade_id = "no-such-cell"
    submit(root, "edited_metadata", forged)

    submit_what_stock_stumbles_over(root)


def submit_what_stock_stumbles_over(root):
    """An old format, and text that is not what it seems."""
    old = solved(root)
    old.nbformat_minor = 4
    for c in old.cells:
        del c["id"]
        if "nbgrader" in c.metadata:
            c.metadata.nbgrader.schema_version = 1
    submit(root, "old_format", old)

    script = solved(root)
    cell(script, "why-masks").source = HOSTILE
    script.cells.append(new_markdown_cell("<iframe src='https://example.org'></iframe>"))
    script.cells.append(new_code_cell("from IPython.display import HTML\nHTML('<script>alert(2)</script><b>bold</b>')"))
    submit(root, "script", script)


def submit_what_cannot_be_graded(root):
    """Submissions that nbgrader cannot open, or cannot finish."""
    submit(root, "broken_json", "{oops")
    submit(root, "deep_json", "[" * 100_000)
    submit(root, "no_notebook", json.dumps([1, 2]))
    folder = root / "autograde" / "submitted" / "wrong_name" / PHASE
    folder.mkdir(parents=True)
    (folder / "mine.ipynb").write_text("{}")


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """A course whose class was graded by the command; with the command's output."""
    root = make_course(tmp_path_factory.mktemp("traps"))
    with (root / "nbgrader_config.py").open("a") as config:
        config.write("c.MarkInSandbox.cell_seconds = 4\n")
    (root / "solutions" / PHASE / "notes.md").write_text("the answers")
    submit_the_class(root)
    submit_what_cannot_be_graded(root)
    run = CliRunner(env={"COLUMNS": "200"}).invoke
    result = run(app, ["grade", "--due", "2026-01-01 12:00", "--course", str(root)])
    feedback = run(app, ["feedback", "--course", str(root)])
    run(app, ["export", "--course", str(root)])
    return SimpleNamespace(root=root, output=result.output, code=result.exit_code, feedback=feedback.output)


def grades(root, student):
    """Points by grade id, and whether a cell waits for a reader, as the gradebook has them."""
    with Gradebook(load_config(root).CourseDirectory.db_url) as gradebook:
        notebook = gradebook.find_submission_notebook(PHASE, PHASE, student)
        return {g.name: (g.auto_score, g.max_score, g.needs_manual_grade) for g in notebook.grades}


def autograded(root, student):
    return nbformat.read(root / "autograde" / "autograded" / student / PHASE / f"{PHASE}.ipynb", as_version=4)


def page(root, student):
    return (root / "autograde" / "feedback" / student / PHASE / f"{PHASE}.html").read_text(encoding="utf-8")


HONEST = ["full", "duplicated_cells", "deleted_check", "deleted_both", "stderr", "old_format", "damaged"]


@pytest.mark.parametrize("student", HONEST)
def test_honest_work_earns_its_points(graded, student):
    """Does an accident (a copied or deleted cell, a warning, an old format) cost an honest learner nothing?"""
    found = grades(graded.root, student)
    assert (found["causal_mask"][:2], found["padding_mask"][:2]) == ((4, 4), (2, 2))


@pytest.mark.parametrize("student", ["blank", "edited_metadata"])
def test_unsolved_work_earns_nothing(graded, student):
    """Is a blank notebook 0, also when tags, flags and points of its cells were edited?"""
    found = grades(graded.root, student)
    assert (found["causal_mask"], found["padding_mask"]) == ((0, 4, False), (0, 2, False))


def test_a_blank_written_answer_is_zero_and_a_given_one_waits(graded):
    """Does a written answer wait for a reader only if there is one?"""
    assert grades(graded.root, "blank")["why-masks"] == (0, 3, False)
    assert grades(graded.root, "script")["why-masks"] == (None, 3, True)


def test_restored_cells_have_ids_and_their_own_text(graded):
    """Is a restored check cell the one that was handed out, with an id, in a valid notebook?"""
    for student in ("deleted_check", "deleted_both", "old_format"):
        notebook = autograded(graded.root, student)
        nbformat.validate(notebook)
        ids = [c.id for c in notebook.cells]
        assert len(set(ids)) == len(ids)
        assert cell(notebook, "causal_mask").source == "check(causal_mask, points=4)"
    assert cell(notebook, "setup").metadata.nbgrader.locked


def test_a_lethal_cell_costs_one_exercise(graded):
    """Does code that ends its process lose the points of its own exercise, and no other?"""
    found = grades(graded.root, "kills_kernel")
    assert (found["causal_mask"][0], found["padding_mask"][0]) == (0, 2)
    assert "ended its own process" in str(cell(autograded(graded.root, "kills_kernel"), "causal_mask").outputs)


def test_one_slow_cell_costs_one_exercise(graded):
    """Does a cell that runs out of time lose its own points only, and say so?"""
    found = grades(graded.root, "slow_cell")
    assert (found["causal_mask"][0], found["padding_mask"][0]) == (4, 0)
    line = next(line for line in graded.output.splitlines() if line.startswith("slow_cell"))
    assert line == "slow_cell, sample: padding_mask: no answer within 4 s"


def test_demo_cells_do_not_run_while_grading(graded):
    """Are figures and training skipped, so that they can neither fail nor take time?"""
    demo = next(c for c in autograded(graded.root, "full").cells if "SystemExit" in c.source)
    assert demo.outputs == [] and demo.execution_count is None


@pytest.mark.parametrize(
    ("student", "words"),
    [
        ("broken_json", "sample.ipynb is not valid JSON (line 1"),
        ("deep_json", "sample.ipynb is nested too deeply to be a notebook"),
        ("no_notebook", "sample.ipynb is JSON, but not a notebook"),
        ("wrong_name", "mine.ipynb is JSON, but not a notebook"),
    ],
)
def test_a_bad_submission_is_named_and_stops_nobody(graded, student, words):
    """Is a submission that cannot be opened named in a plain sentence, and the others graded?"""
    line = next(line for line in graded.output.splitlines() if line.startswith(f"│ {student} "))
    assert words in re.sub(r"\s+", " ", graded.output) and "–" in line
    assert graded.code == 1 and "Traceback" not in graded.output
    assert "full" in (graded.root / "autograde" / "grades.csv").read_text()


def test_grading_can_be_interrupted(graded):
    """Does Ctrl-C stop the batch, though nbgrader's log capture would swallow it?"""

    class Interrupted(LoggingConfigurable):
        coursedir = Any()

        def start(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_step(Interrupted, load_config(graded.root), PHASE)


def test_a_phase_or_date_that_is_none_is_a_sentence(graded):
    """Does a slip on the command line end with a sentence, too?"""
    (graded.root / "autograde" / "submitted" / "full" / "phase9").mkdir(exist_ok=True)
    run = CliRunner().invoke
    result = run(app, ["grade", "phase9", "--course", str(graded.root)])
    assert result.exit_code == 2 and "no source for phase9" in result.output
    result = run(app, ["grade", PHASE, "--due", "soon", "--course", str(graded.root)])
    assert result.exit_code == 2 and "soon" in result.output and isinstance(result.exception, SystemExit)


def test_the_final_table_says_who_is_late_and_what_waits(graded):
    """Does the table give points, lateness, and what is left for the instructor?"""
    line = next(line for line in graded.output.splitlines() if re.search(r"\bfull\b", line))
    assert [part.strip() for part in line.split("│")[1:-1]] == ["full", PHASE, "6", "9", "1 day, 0:00:00", ""]
    assert "1 answer waits for you in formgrader" in next(x for x in graded.output.splitlines() if " script " in x)


def test_lateness_costs_nothing_by_default(graded):
    """Is the late penalty zero until an instructor chooses one?"""
    rows = [line.split(",") for line in (graded.root / "autograde" / "grades.csv").read_text().splitlines()]
    row = dict(zip(rows[0], next(row for row in rows if row[3] == "full"), strict=True))
    assert (row["raw_score"], row["late_submission_penalty"], row["score"]) == ("6.0", "0.0", "6.0")


def test_grading_registers_the_assignment_and_leaves_the_release_alone(graded):
    """Does grading work on a machine where generate_assignment never ran?"""
    assert "was not in the gradebook yet" in graded.output
    assert [p.name for p in (graded.root / "notebooks" / PHASE).iterdir()] == [f"{PHASE}.ipynb"]
    assert grading.register_all(graded.root, [PHASE]) == []


def dangers(html):
    """The tags and attributes of a page that run or load something."""
    tags = BeautifulSoup(html, "html.parser").find_all(True)
    found = [tag.name for tag in tags if tag.name in {"script", "iframe", "link", "object", "embed", "form", "base"}]
    attributes = [(name, value) for tag in tags for name, value in tag.attrs.items()]
    found += [name for name, _ in attributes if name.startswith("on")]
    return found + [value for name, value in attributes if name == "src" and not value.startswith("data:image/")]


def test_feedback_runs_and_loads_nothing(graded):
    """Is a feedback page free of script, of frames, and of anything fetched from elsewhere?"""
    html = page(graded.root, "script")
    head = html[: html.index("<title>")]
    assert "Content-Security-Policy" in head and "default-src 'none'" in head
    assert dangers(html) == []
    assert "<strong>because</strong>" in html and "<b>bold</b>" in html
    assert "alert(1)" in html  # shown as text, so that the reader sees what was written


def test_feedback_holds_score_and_no_answer(graded):
    """Does a learner read the score, and neither solution nor hidden case?"""
    html = page(graded.root, "blank")
    assert "Score: 0.0 / 4.0" in html and "NotImplementedError" in html
    assert "return x + x" not in html and "hidden" not in re.sub(r"<style.*?</style>", "", html, flags=re.S).lower()


def test_pictures_survive_the_cleaning():
    """Is an embedded picture with its alt text kept, and a remote one dropped?"""
    kept = clean_html('<img src="data:image/png;base64,AA" alt="two heads">')
    assert kept == '<img src="data:image/png;base64,AA" alt="two heads">'
    assert clean_html('<img src="https://example.org/x.png">') == "<img>"
    assert "javascript" not in clean_html('<a href="javascript:alert(1)">x</a>')


def nbgrader(root, *arguments):
    """Plain nbgrader, as an instructor may call it from the root."""
    command = [sys.executable, "-m", "nbgrader", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True)


def test_plain_nbgrader_grades_the_same(graded):
    """Do nbgrader's own commands work from the root, with the same points and no word of SQLAlchemy's?"""
    submit(graded.root, "by_hand", solved(graded.root))
    steps = [("autograde", PHASE, "--student", "by_hand"), ("generate_feedback", PHASE, "--student", "by_hand"),
             ("export", "--to", str(graded.root / "by_hand.csv"))]  # fmt: skip
    done = [nbgrader(graded.root, *step) for step in steps]
    assert [step.returncode for step in done] == [0, 0, 0], done
    assert not any("Warning" in step.stderr for step in done)
    assert grades(graded.root, "by_hand") == grades(graded.root, "full")
    assert "Score: 6.0 / 9.0" in page(graded.root, "by_hand")
    assert "by_hand,,,,6.0,0.0,6.0,9.0" in (graded.root / "by_hand.csv").read_text()


def test_validate_runs_the_checks_of_a_learner(graded):
    """Does `nbgrader validate` name the failed cells, with NBGRADER_EXECUTION telling them who runs them?"""
    path = graded.root / "notebooks" / PHASE / f"{PHASE}.ipynb"
    done = nbgrader(graded.root, "validate", str(path))
    assert "VALIDATION FAILED ON 3 CELL(S)" in re.sub(r"\s+", " ", done.stdout)
    assert "not implemented yet" in done.stdout and "You did not provide a response" in done.stdout


def serve(root, log):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "jupyter", "server", "--no-browser", "--allow-root", "--ip=127.0.0.1",
               f"--port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token=t",
               f"--ServerApp.root_dir={root}"]  # fmt: skip
    server = subprocess.Popen(command, cwd=root, stdout=log, stderr=subprocess.STDOUT)
    return server, f"http://127.0.0.1:{port}"


def get(base, path, tries=1):
    for left in reversed(range(tries)):
        try:
            request = urllib.request.Request(base + path, headers={"Authorization": "token t"})
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.read().decode()
        except (urllib.error.URLError, ConnectionError):
            if not left:
                raise
            time.sleep(0.3)


def test_formgrader_shows_every_submission(graded, tmp_path):
    """Do formgrader's pages open from the root: right points, no script of a learner's, a quiet log?"""
    with (tmp_path / "log").open("w") as log:
        server, base = serve(graded.root, log)
        try:
            get(base, "/formgrader/manage_assignments", tries=100)
            [assignment] = [a for a in json.loads(get(base, "/formgrader/api/assignments")) if a["name"] == PHASE]
            found = json.loads(get(base, f"/formgrader/api/submitted_notebooks/{PHASE}/{PHASE}"))
            pages = {s["student"]: get(base, f"/formgrader/submissions/{s['id']}/") for s in found}
        finally:
            server.terminate()
            server.wait(timeout=30)
    kinds = ("", "code_", "written_", "task_")
    assert {tuple(s[f"max_{kind}score"] for kind in kinds) for s in found} == {(9, 6, 3, 0)}
    points = {s["student"]: s["score"] for s in found}
    assert assignment["max_score"] == 9 and (points["full"], points["blank"]) == (6, 0)
    assert set(pages) >= {"full", "blank", "script"}
    cells = BeautifulSoup(pages["script"], "html.parser").find(id="notebook")
    assert "alert(1)" in cells.text and dangers(str(cells)) == []
    text = (tmp_path / "log").read_text()
    assert "CRITICAL" not in text and "SAWarning" not in text and "Traceback" not in text
