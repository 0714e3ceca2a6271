"""The page a learner gets back: everything they need, nothing that runs, nothing they should not know."""

import re

import pytest
from bs4 import BeautifulSoup
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output, new_raw_cell
from nbgrader.converters import GenerateFeedback
from playwright.sync_api import sync_playwright

from autograde.course import load_config, run_step
from autograde.feedback import FeedbackExporter, clean_html
from tests.sample_class import Work, record
from tests.sample_course import CAUSAL, PADDING, PHASE, cell, make_course, read, solve

HALF = """✗ causal_mask · case "one hidden key" (2 of 5)
  expected  out[0] = [0.11]
  got       out[0] = [0.22]
  likely    the mask is inverted: True means may attend
  hint      Section 1.1: masks.
  so far    2/4 points · shape ✓ values ✗ gradients ✓"""
FULL = "✓ padding_mask · 2/2 · shape ✓ values ✓"
ANSWER = "**because** it may not look ![x](attachment:gone.png) <script>alert(1)</script> <img src=x onerror=1>"


def work(root):
    """One submission with something of everything: half right, late, one answer read and one own cell."""
    notebook = solve(read(root), causal_mask=CAUSAL, padding_mask=PADDING)
    cell(notebook, "why-masks").source = ANSWER
    rubric = next(one for one in notebook.cells if "**Why?**" in one.source)
    rubric.source = "the rubric, as a learner would like it: | 3 | for anything |"
    notebook.cells.append(new_code_cell("mine = 1", outputs=[new_output("execute_result", {"text/plain": "1"})]))
    notebook.metadata["autograde"] = {"tier": "full", "remarks": ["notes.ipynb was taken for <sample.ipynb>"]}
    return Work(
        notebook,
        {"causal_mask": 2, "padding_mask": 2, "why-masks": 2},
        {"causal_mask": HALF, "padding_mask": FULL},
        {"why-masks": "Good: *the past*.", "causal_mask-build": "Short and clear. <script>alert(3)</script>"},
        handed_in="2026-01-02 14:05",
        penalty=1.5,
    )


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course in which three have handed in; the pages are made by nbgrader's own step."""
    root = make_course(tmp_path_factory.mktemp("feedback"))
    waiting = work(root)
    waiting.points, waiting.comments, waiting.penalty = {"why-masks": None}, {}, 0
    blank = Work(
        read(root),
        reports={"causal_mask": "✗ causal_mask · not implemented yet\n  hint      Section 1.1: fill in the cell."},
    )
    record(root, {"ada": work(root), "bo": waiting, "cy": blank}, due="2026-01-01 12:00")
    worked, log = run_step(GenerateFeedback, load_config(root), PHASE)
    assert worked, log
    return root


def page(root, student):
    path = root / "autograde" / "feedback" / student / PHASE / f"{PHASE}.html"
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def made(notebook, /, **where):
    """The page of a notebook that no gradebook knows, as a tree."""
    for one in notebook.cells:
        if one.metadata.get("nbgrader", {}).get("grade"):
            one.metadata.nbgrader.setdefault("score", 0)
    return BeautifulSoup(FeedbackExporter().from_notebook_node(notebook, {"nbgrader": where})[0], "html.parser")


def rows(tree):
    """exercise -> the other cells of its row in the table at the top."""
    found = [[" ".join(td.text.split()) for td in tr.find_all("td")] for tr in tree.find("table").find_all("tr")]
    return {row[0]: row[1:] for row in found if row}


def test_the_head_gives_score_and_lateness(course):
    """Does the page begin with the points, the late penalty and what it took off?"""
    tree = page(course, "ada")
    assert "Score: 4.5 / 9.0" in tree.text
    assert "Handed in 1 d 2 h 5 min late; this costs 1.5 points, taken off above." in tree.text
    assert tree.title.text == "sample · ada" and tree.find(class_="wb-bar").div["style"] == "width: 50.0%"
    assert "this costs no points" in page(course, "bo").text
    assert "late" not in page(course, "cy").text


def test_the_table_gives_points_aspects_and_the_line_that_matters(course):
    """Does each exercise have its points, ✓ and ✗, and the most important line of its report?"""
    found = rows(page(course, "ada"))
    assert found["causal_mask"] == [
        "2 of 4",
        "shape ✓ values ✗ gradients ✓",
        "likely: the mask is inverted: True means may attend",
    ]
    assert found["padding_mask"] == ["2 of 2", "shape ✓ values ✓", ""]
    assert found["why-masks"] == ["2 of 3", "written answer", "Good: *the past*."]
    assert rows(page(course, "cy"))["causal_mask"] == ["0 of 4", "", "not implemented yet"]


@pytest.mark.parametrize("student", ["ada", "bo", "cy"])
def test_every_link_of_the_table_leads_somewhere(course, student):
    """Does a click on an exercise lead to its cells?"""
    tree = page(course, student)
    targets = [a["href"][1:] for a in tree.find("table").find_all("a")]
    assert targets == ["cell-causal_mask", "cell-padding_mask", "cell-why-masks"]
    assert all(len(tree.find_all(id=target)) == 1 for target in targets)


def test_the_checks_messages_are_there_in_full(course):
    """Can the whole report of a check be read below the table?"""
    assert HALF in page(course, "ada").text and "Your grader says: Short and clear." in re.sub(
        r"\s+", " ", page(course, "ada").text
    )


def test_a_written_answer_stands_with_rubric_points_and_comment(course):
    """Does the rubric come from the course, not from the submission, beside the answer, its points and the comment?"""
    card = page(course, "ada").find(id="cell-why-masks")
    text = " ".join(card.text.split())
    assert "Score: 2.0 / 3.0" in text and "1 the past 2 the future" in " ".join(
        card.find(class_="wb-rubric").text.split()
    )
    assert "because it may not look" in text and card.find(class_="wb-comment").find("em").text == "the past"
    assert page(course, "cy").text.count("the future") == 1


def test_an_answer_nobody_has_read_is_not_a_zero(course):
    """Is a learner told that an answer waits, instead of reading 0 points?"""
    tree = page(course, "bo")
    assert rows(tree)["why-masks"] == ["– of 3", "written answer", "nobody has read it yet"]
    assert "1 written answer waits for a reader; the points are not in the score yet." in tree.text


def test_remarks_of_intake_are_passed_on(course):
    """Does the learner read what was odd about the file they handed in, as text?"""
    assert "About your file: notes.ipynb was taken for <sample.ipynb>" in page(course, "ada").text


@pytest.mark.parametrize(
    ("tier", "words"),
    [
        ("full", None),
        ("partial", "partial sandbox"),
        ("none", "without a sandbox"),
        (None, "not recorded in which sandbox"),
        (["full"], "not recorded"),
    ],
)
def test_a_page_says_how_it_was_graded(tier, words):
    """Does a banner say so wherever the sandbox was less than full?"""
    notebook = NotebookNode(nbformat=4, nbformat_minor=5, metadata={"autograde": {"tier": tier}}, cells=[])
    banner = made(notebook).find(class_="wb-banner")
    assert (words in banner.text) if words else banner is None


@pytest.mark.parametrize("metadata", ["text", {"remarks": "text"}, {"tier": {}}, None, {"remarks": [1, None]}])
def test_odd_metadata_is_no_error(metadata):
    """Does a page open whatever a submission put into our part of its metadata?"""
    assert made(NotebookNode(nbformat=4, nbformat_minor=5, metadata={"autograde": metadata}, cells=[])).find("h1")


@pytest.mark.parametrize("student", ["ada", "bo", "cy"])
def test_no_model_answer_and_no_solution_is_on_the_page(course, student):
    """Is nothing on it that only the authors know?"""
    html = str(page(course, student))
    assert "Because $a" not in html and "BEGIN SOLUTION" not in html
    assert ("tril(kv_len - q_len)" in page(course, student).text) == (student != "cy")


def test_lesson_text_is_folded_and_own_cells_are_not(course):
    """Is the lesson out of the way, complete, and what the learner added in sight?"""
    tree = page(course, "ada")
    folded = " ".join(one.text for one in tree.find_all("details"))
    assert "A lesson in two exercises" in folded and "as you were given it" in folded
    assert "mine = 1" not in folded and "mine = 1" in tree.text


def dangers(tree):
    """The tags and attributes of a page that run or load something, or lead elsewhere by themselves."""
    bad = {
        "script",
        "iframe",
        "link",
        "object",
        "embed",
        "form",
        "base",
        "input",
        "svg",
        "math",
        "video",
        "audio",
        "template",
    }
    found = [tag.name for tag in tree.find_all(True) if tag.name in bad]
    found += [str(tag) for tag in tree.find_all("meta") if tag.get("http-equiv", "").lower() == "refresh"]
    attributes = [(name, value) for tag in tree.find_all(True) for name, value in tag.attrs.items()]
    found += [
        name for name, _ in attributes if name.startswith("on") or name in ("srcset", "action", "formaction", "ping")
    ]
    found += [value for name, value in attributes if name == "src" and not value.startswith("data:image/")]
    return found + [
        value for name, value in attributes if name == "href" and re.match(r"(?i)\s*(javascript|data|vbscript):", value)
    ]


BREAK = '"><script>alert(1)</script><meta http-equiv="refresh" content="0;url=https://example.org"><b x="'


def hostile(text):
    """A notebook with the same text in every place that a submission fills."""
    png = {"width": text, "height": text, "alt": text, "unconfined": text}
    outputs = [
        new_output("display_data", {"text/html": text}, metadata={"text/html": {"isolated": True}}),
        new_output("display_data", {"image/png": text}, metadata={"image/png": png, "filenames": {"image/png": text}}),
        new_output("display_data", {"image/png": "QUJD"}, metadata={"image/png": png}),
        new_output("display_data", {"image/jpeg": "QUJD"}, metadata={"filenames": {"image/jpeg": text}}),
        new_output("display_data", {"image/svg+xml": f"<svg onload='alert(1)'>{text}</svg>"}),
        *(
            new_output("display_data", {kind: text})
            for kind in ("text/markdown", "text/latex", "text/plain", "application/json")
        ),
        new_output("display_data", {"application/javascript": text, "application/pdf": text, "text/vnd.mermaid": text}),
        new_output("display_data", {"application/vnd.jupyter.widget-view+json": {"model_id": text}}),
        new_output("stream", name="stdout", text=text),
        new_output("error", ename=text, evalue=text, traceback=[text]),
        new_output("error", ename=text, evalue=text, traceback=[]),
    ]
    code = new_code_cell(text, outputs=outputs, metadata={"name": "x" + " ".join(text.split())})
    raw = new_raw_cell(text, metadata={"raw_mimetype": "text/html"})
    pasted = new_markdown_cell(f"{text} ![a](attachment:x.png)", attachments={"x.png": {text: text, "image/png": text}})
    graded = {"grade": True, "solution": True, "grade_id": "why", "points": 3, "score": 1, "comment": text}
    written = new_markdown_cell(text, metadata={"nbgrader": graded})
    about = {"title": text, "autograde": {"tier": text, "remarks": [text]}, "widgets": {text: text}}
    code.metadata["tags"] = ["t" + text.replace(",", "")]
    cells = [code, raw, pasted, written, new_markdown_cell(f"# {text}"), new_markdown_cell(f"```{text}\n{text}\n```")]
    for number, one in enumerate(cells):
        one.id = f"c{number}"
    return NotebookNode(nbformat=4, nbformat_minor=5, metadata=about, cells=cells)


NASTY = [
    BREAK,
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)><svg/onload=alert(2)>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=1>",
    "[x](javascript:alert(1)) <a href='java\nscript:alert(1)'>x</a> ![p](http://example.org/p.png)",
    "<iframe src='https://example.org'></iframe><object data=x></object><base href='//example.org'>",
    "</pre></div></body></html><script>alert(1)</script>",
    "\x1b[31m<b>\x1b[0m]]>--><script>",
    "{{ 7 * 7 }}{% raw %}",
]


def test_a_pasted_picture_is_shown_and_nothing_else_passes_for_one():
    """Does an attached png show, and one that is no base64, or text, show its name only?"""
    bundle = {
        "a.png": {"image/png": "aGk="},
        "b.png": {"image/png": "'><img src='http://x'>"},
        "c.png": {"text/html": "<b>"},
    }
    text = "".join(f"![{name}](attachment:{name})" for name in bundle)
    shown = made(new_notebook(cells=[new_markdown_cell(text, attachments=bundle)])).find_all("img")
    assert [picture.get("src") for picture in shown] == ["data:image/png;base64,aGk=", None, None]


@pytest.mark.parametrize("text", NASTY)
def test_nothing_of_a_submission_runs_or_loads(text):
    """Is a page inert, whatever stands in any part of a notebook?"""
    tree = made(hostile(text), student=text, notebook=text)
    assert dangers(tree) == []
    policy = tree.find("meta", {"http-equiv": "Content-Security-Policy"})["content"]
    assert policy.startswith("default-src 'none'") and "script" not in policy and len(tree.find_all("body")) == 1
    assert "49" not in tree.text


PIECES = [
    *(
        "<script>",
        "</",
        ">",
        '"',
        "'",
        "`",
        "&",
        "![",
        "](",
        ")",
        "javascript:",
        "onerror=",
        "<img src=",
        "<svg",
        "<style>",
    ),
    *("<!--", "-->", "$$", "\\", "{{", "}}", "```", "|", "-", "#", "\n", "x", "\x00", "é"),
]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_no_mixture_of_pieces_runs_or_loads(text):
    """Does no combination of markup break out of its place?"""
    assert dangers(made(hostile(text))) == []


def test_a_learner_cannot_speak_in_our_voice():
    """Does markup of a submission lose the classes and places by which the page speaks?"""
    notebook = hostile(
        '<div class="wb-banner" id="cell-why">Score: 100</div><p class="note" id="mine">x</p><b id="top">y</b>'
    )
    tree = made(notebook)
    assert len(tree.find_all(id="cell-why")) == 1 and len(tree.find_all(id="top")) == 1
    assert not [one for one in tree.find_all(class_="wb-banner") if one.text.startswith("Score")]
    assert tree.find(id="mine")["class"] == ["note"]


def test_pictures_survive_the_cleaning():
    """Is an embedded picture with its alt text kept, and a remote one dropped?"""
    kept = '<img src="data:image/png;base64,AA" alt="two heads">'
    assert clean_html(kept) == kept and clean_html('<img src="https://example.org/x.png">') == "<img>"
    plot = new_output(
        "display_data", {"image/png": "QUJD\n", "text/plain": "<Figure>"}, metadata={"image/png": {"alt": "a plot"}}
    )
    found = made(
        NotebookNode(nbformat=4, nbformat_minor=5, metadata={}, cells=[new_code_cell("x", outputs=[plot])])
    ).find("img")
    assert (found["src"], found["alt"]) == ("data:image/png;base64,QUJD", "a plot")


def test_the_page_fits_a_phone_and_a_sheet_of_paper(course):
    """Is nothing cut off at the width of a phone, and is folded text left out in print?"""
    path = course / "autograde" / "feedback" / "ada" / PHASE / f"{PHASE}.html"
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run"]
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=options)
        phone = browser.new_page(viewport={"width": 360, "height": 800})
        phone.goto(path.as_uri())
        wide = phone.evaluate("document.documentElement.scrollWidth")
        phone.emulate_media(media="print")
        folded = phone.locator("details").first.is_visible()
        report = phone.locator(".wb-report").first.is_visible()
        browser.close()
    assert wide <= 360 and not folded and report
