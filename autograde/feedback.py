"""What a learner (or an instructor in formgrader) sees of a graded notebook: cleaned, and inert."""

import base64
import re
from functools import lru_cache
from pathlib import Path

import bleach
import nbformat
from bleach.css_sanitizer import CSSSanitizer
from jinja2 import pass_context
from markupsafe import Markup
from nbconvert.exporters import HTMLExporter
from nbconvert.exporters.exporter import Exporter
from nbconvert.filters import ansi2html
from nbconvert.filters.highlight import Highlight2HTML
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbgrader.api import Assignment, Notebook, SubmittedAssignment, SubmittedNotebook
from nbgrader.utils import is_grade, is_solution
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from autograde.page import fill, page, plain
from autograde.report import Said, read_check

TAGS = bleach.ALLOWED_TAGS | {
    "br", "caption", "dd", "del", "details", "div", "dl", "dt", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "img", "p",
    "pre", "s", "span", "sub", "summary", "sup", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "u",
}  # fmt: skip
PICTURE = re.compile(r"data:image/(png|jpeg|gif|webp|svg\+xml);base64,[A-Za-z0-9+/=\s]*")
TIERS = {
    "full": None,
    "partial": "Graded in a partial sandbox: not every wall between submissions was up.",
    "none": "Graded without a sandbox: submissions were trusted.",
}

PAGE = """\
{% if banner %}<div class="wb-banner"><b>▲ {{ banner }}</b></div>{% endif %}
<h1>{{ title }}</h1>
<p class="wb-score">Score: {{ score|round(2) }} / {{ most|round(2) }}</p>
<div class="wb-bar"><div style="width: {{ share }}%"></div></div>
{% if late %}<p class="wb-bad">{{ late }}</p>{% endif %}
{% if waiting %}<p>{{ waiting }}</p>{% endif %}
{% for remark in remarks %}<div class="wb-banner">About your file: {{ remark }}</div>{% endfor %}
<table class="wb-stack">
<thead><tr><th scope="col">exercise</th><th scope="col" class="wb-n">points</th><th scope="col">what was looked at</th>
<th scope="col">to read first</th></tr></thead>
<tbody>
{% for one in graded %}
<tr><td><a href="#cell-{{ one.name }}">{{ one.name }}</a></td>
<td class="wb-n">{{ "–" if one.waits else "%g"|format(one.score) }} of {{ "%g"|format(one.most) }}</td>
<td>{% for name, ok in one.said.aspects.items() %}
<span class="wb-aspect {{ "wb-good" if ok else "wb-bad" }}">{{ name }} {{ "✓" if ok else "✗" }}</span>
{% endfor %}{{ "written answer" if one.written }}</td>
<td class="wb-line">{{ one.line }}</td></tr>
{% endfor %}
</tbody></table>
{% for part in parts %}{{ part }}
{% endfor %}
"""

CARD = """\
<div class="wb-card"{% if anchor %} id="cell-{{ anchor }}"{% endif %}>
<h3><span>{{ title }}</span>
{% if score %}<span>{{ score }} <a class="wb-top" href="#top">to the top</a></span>{% endif %}</h3>
{% if rubric %}<div class="wb-rubric">{{ rubric }}</div>{% endif %}
{{ inside }}
{% if comment %}<div class="wb-comment"><b>Your grader says:</b> {{ comment }}</div>{% endif %}
</div>
"""
LESSON = """\
<details><summary>lesson text, as you were given it ({{ count }} {{ "cell" if count == 1 else "cells" }})</summary>
{{ inside }}
</details>
"""


def _allowed(tag, name, value):
    if tag == "img" and name == "src":
        return bool(PICTURE.fullmatch(value))
    if tag == "a" and name == "href":
        return value.startswith(("http://", "https://", "#"))
    if name in ("class", "id"):  # what is written in a cell must not pass for what we say about it
        return not re.search(r"(^|\s)(wb-|cell-|top$)", value)
    return name in {"title", "style", "alt", "width", "height", "align", "colspan", "rowspan", "open"}


def clean_html(html):
    """Keep what text, tables and pictures need; show everything else as the characters it is made of."""
    text = html.decode() if isinstance(html, bytes) else str(html)
    return bleach.clean(
        text, tags=TAGS, attributes=_allowed, protocols=["http", "https", "data"], css_sanitizer=CSSSanitizer()
    )


@pass_context
def markdown2html(context, source):
    """Markdown to clean HTML. A pasted picture that is missing leaves its text, not an error page."""
    return _markdown(source, context.get("cell", {}).get("attachments", {}))


def _markdown(source, attachments=None):
    markdown = MarkdownWithMath(renderer=IPythonRenderer(escape=False, attachments=attachments or {}))
    try:
        html = markdown.render(source)
    except Exception:  # whatever a submitted cell holds, its page must open
        html = markdown.render(source.replace("attachment:", "#missing-"))
    return clean_html(html)


def _code(source):
    return Markup(Highlight2HTML(pygments_lexer="ipython3")(source)) if source.strip() else Markup()


@lru_cache(maxsize=2048)
def _lesson(kind, source):
    """A cell as it was handed out: the same for every learner of a class."""
    return Markup(_markdown(source)) if kind == "markdown" else _code(source)


class FeedbackExporter(HTMLExporter):
    """Feedback pages stand alone and carry a content security policy: even what slips through cannot run.

    The page is made here, not by a template of nbconvert, which prints parts of a notebook that nobody has cleaned
    (frames, names of pictures). Formulas show as the TeX they were written in: MathJax would come from the web.
    """

    def from_notebook_node(self, nb, resources=None, **kwargs):
        nb, resources = Exporter.from_notebook_node(self, nb, resources, **kwargs)
        where = resources.get("nbgrader", {})
        waits, seconds = _recorded(where)
        sheet = _Sheet(_released(self._handed_out(where)), waits)
        parts = sheet.parts(nb.cells)
        title = f"{where.get('notebook', 'Feedback')} · {where.get('student', '')}".strip(" ·")
        body = fill(PAGE, title=title, parts=parts, graded=sheet.graded, **_head(nb, where, seconds, waits))
        return page(title, body), resources

    def _handed_out(self, where):
        course = self.config.CourseDirectory
        names = where.get("assignment", ""), f"{where.get('notebook', '')}.ipynb"
        return Path(str(course.get("root", "") or "."), course.get("release_directory", "notebooks"), *names)


def _recorded(where):
    """The written answers nobody has read yet, and how many seconds the submission was late."""
    if "db_url" not in where:
        return set(), 0
    engine = create_engine(where["db_url"])  # Gradebook would start a program each time, to look at the version
    try:
        with Session(engine) as db:
            found = (
                db.query(SubmittedNotebook)
                .join(Notebook)
                .join(SubmittedAssignment, SubmittedNotebook.assignment_id == SubmittedAssignment.id)
                .join(Assignment, SubmittedAssignment.assignment_id == Assignment.id)
                .filter(Assignment.name == where["assignment"], Notebook.name == where["notebook"])
                .filter(SubmittedAssignment.student_id == where["student"])
                .one()
            )
            waits = {grade.name for grade in found.grades if grade.needs_manual_grade}
            return waits, found.assignment.total_seconds_late
    finally:
        engine.dispose()


def _head(nb, where, seconds, waits):
    """What stands above the table: points, lateness, what waits, remarks and the banner."""
    ours = nb.metadata.get("autograde", {})
    ours = ours if isinstance(ours, dict) else {}
    most, penalty = float(where.get("max_score", 0)), float(where.get("late_penalty", 0))
    score = max(0.0, float(where.get("score", 0)))
    cost = f"this costs {penalty:g} points, taken off above" if penalty else "this costs no points"
    late = f"Handed in {_duration(seconds)} late; {cost}." if seconds or penalty else ""
    count = "1 written answer waits" if len(waits) == 1 else f"{len(waits)} written answers wait"
    banner = TIERS.get(str(ours.get("tier")), "It is not recorded in which sandbox this was graded.")
    remarks = ours.get("remarks", [])
    return {
        "score": score, "most": most, "late": late, "banner": banner,
        "share": round(100 * min(1, score / most), 1) if most else 0,
        "waiting": f"{count} for a reader; the points are not in the score yet." if waits else "",
        "remarks": [str(remark) for remark in remarks] if isinstance(remarks, list) else [],
    }  # fmt: skip


def _duration(seconds):
    minutes = max(1, round(seconds / 60))
    parts = (minutes // 1440, "d"), (minutes // 60 % 24, "h"), (minutes % 60, "min")
    return " ".join(f"{number} {unit}" for number, unit in parts if number)


@lru_cache(maxsize=8)
def _released_at(path, changed):
    notebook = nbformat.read(path, as_version=4)
    rubrics = {}
    for above, cell in zip(notebook.cells, notebook.cells[1:], strict=False):
        if above.cell_type == cell.cell_type == "markdown" and is_grade(cell) and is_solution(cell):
            rubrics[cell.metadata.nbgrader.grade_id] = above.source
    return frozenset(cell.source.strip() for cell in notebook.cells), rubrics


def _released(path):
    """(sources of the cells as handed out, {written answer: rubric}); what a submission says of them is not asked."""
    return _released_at(path, path.stat().st_mtime_ns) if path.is_file() else (frozenset(), {})


class _Sheet:
    """The cells of one notebook as parts of a page; collects the rows of the table on the way."""

    def __init__(self, released, waits):
        self.lesson, self.rubrics = released
        self.waits, self.graded, self.anchors = waits, [], set()

    def parts(self, cells):
        """Cards for what is graded, the learner's own cells as they are, untouched lesson text folded away."""
        rubrics = {text.strip() for text in self.rubrics.values()}
        parts, folded = [], []
        for cell in cells:
            if not _is_graded(cell) and cell.source.strip() in rubrics:
                continue  # stands in the card of its answer
            if not _is_graded(cell) and cell.source.strip() in self.lesson:
                folded.append(_shown(cell, lesson=True))
                continue
            parts += self._fold(folded)
            folded = []
            parts.append(self._card(cell) if _is_graded(cell) else Markup(_shown(cell)))
        return parts + self._fold(folded)

    def _fold(self, folded):
        return [Markup(fill(LESSON, inside=Markup("\n").join(folded), count=len(folded)))] if folded else []

    def _card(self, cell):
        about = cell.metadata.nbgrader
        name = about.grade_id
        comment = Markup(_markdown(about["comment"])) if about.get("comment") else ""
        anchor = "" if name.removesuffix("-build") in self.anchors else name.removesuffix("-build")
        self.anchors.add(anchor)  # the first cell of an exercise is the one the table leads to
        if not is_grade(cell):
            title = f"Your {name.removesuffix('-build')}"
            return Markup(fill(CARD, anchor=anchor, title=title, inside=_shown(cell), comment=comment))
        score, most = float(about.get("score") or 0), float(about.get("points") or 0)
        written, waits = is_solution(cell), name in self.waits
        said = Said() if written else read_check(cell.get("outputs", []))
        line = ("nobody has read it yet" if waits else plain(about.get("comment") or "", 90)) if written else said.line
        line = f"likely: {line}" if said.likely else line
        self.graded.append(dict(name=name, score=score, most=most, written=written, waits=waits, said=said, line=line))
        told = f"Score: {round(score, 2)} / {round(most, 2)}"
        rubric = _lesson("markdown", self.rubrics[name]) if name in self.rubrics else ""
        inside = _shown(cell) if written else _check_report(cell, score == most)
        return Markup(
            fill(CARD, anchor=anchor, title=f"{'Your answer' if written else 'Check'} · {name}", inside=inside,
                 score="waits for a reader" if waits else told, rubric=rubric, comment=comment)
        )  # fmt: skip


def _is_graded(cell):
    return is_grade(cell) or is_solution(cell)


def _check_report(cell, full):
    """What the check said; its number stands in the heading."""
    kept = [output for output in cell.outputs if output.output_type in ("stream", "error")]
    reports = [
        Markup(f'<div class="wb-report wb-{"full" if full else "open"}">{_output(output)}</div>') for output in kept
    ]
    return Markup("").join(reports)


def _shown(cell, lesson=False):
    """A cell as clean HTML. Of the outputs of a lesson's cell only text and errors are kept."""
    if cell.cell_type == "markdown":
        return _lesson("markdown", cell.source) if lesson else Markup(_markdown(cell.source, cell.get("attachments")))
    if cell.cell_type != "code":
        return Markup("<pre>{}</pre>").format(cell.source)
    kept = [output for output in cell.outputs if not lesson or output.output_type in ("stream", "error")]
    return (_lesson("code", cell.source) if lesson else _code(cell.source)) + Markup("").join(map(_output, kept))


def _output(output):
    """One output as clean HTML: the richest form that text, a table or a picture can have."""
    if output.output_type == "stream":
        return Markup(f"<pre>{ansi2html(output.text)}</pre>")
    if output.output_type == "error":
        told = "\n".join(output.traceback) or f"{output.ename}: {output.evalue}"
        return Markup(f"<pre>{ansi2html(told)}</pre>")
    data = {kind: value for kind, value in output.data.items() if isinstance(value, str)}
    for kind in ("image/png", "image/jpeg", "image/svg+xml"):
        if kind in data:
            return _picture(kind, data[kind], output.get("metadata", {}).get(kind))
    if "text/html" in data:
        return Markup(f'<div class="wb-wide">{clean_html(data["text/html"])}</div>')
    if "text/markdown" in data:
        return Markup(_markdown(data["text/markdown"]))
    return Markup(f"<pre>{ansi2html(data.get('text/plain') or data.get('text/latex', ''))}</pre>")


def _picture(kind, data, about):
    if kind == "image/svg+xml":
        data = base64.b64encode(data.encode()).decode()
    alt = about.get("alt", "") if isinstance(about, dict) else ""
    if not re.fullmatch(r"[A-Za-z0-9+/=\s]*", data):
        return Markup("<p>(a picture that cannot be shown)</p>")
    return Markup('<img src="data:{};base64,{}" alt="{}">').format(kind, "".join(data.split()), alt)
