"""What a learner (or an instructor in formgrader) sees of a graded notebook: cleaned, and inert."""

import re

import bleach
from bleach.css_sanitizer import CSSSanitizer
from jinja2 import pass_context
from nbconvert.exporters import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

# The page may show its own style and embedded pictures; it may run, load and send nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'"
TAGS = bleach.ALLOWED_TAGS | {
    "br", "caption", "dd", "del", "details", "div", "dl", "dt", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "img", "p",
    "pre", "s", "span", "sub", "summary", "sup", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "u",
}  # fmt: skip


def _allowed(tag, name, value):
    if tag == "img" and name == "src":
        return value.startswith("data:image/")
    if tag == "a" and name == "href":
        return value.startswith(("http://", "https://", "#"))
    return name in {"class", "id", "title", "style", "alt", "width", "height", "align", "colspan", "rowspan", "open"}


def clean_html(html):
    """Keep what text, tables and pictures need; show everything else as the characters it is made of."""
    text = html.decode() if isinstance(html, bytes) else str(html)
    return bleach.clean(
        text, tags=TAGS, attributes=_allowed, protocols=["http", "https", "data"], css_sanitizer=CSSSanitizer()
    )


@pass_context
def markdown2html(context, source):
    """Markdown to clean HTML. A pasted picture that is missing leaves its text, not an error page."""
    attachments = context.get("cell", {}).get("attachments", {})
    markdown = MarkdownWithMath(renderer=IPythonRenderer(escape=False, attachments=attachments))
    try:
        html = markdown.render(source)
    except Exception:  # whatever a submitted cell holds, its page must open
        html = markdown.render(source.replace("attachment:", "#missing-"))
    return clean_html(html)


class FeedbackExporter(HTMLExporter):
    """Feedback pages stand alone and carry a content security policy: even what slips through cannot run.

    The template would load MathJax from the web; without it formulas show as the TeX they were written in.
    """

    def from_notebook_node(self, nb, resources=None, **kwargs):
        html, resources = super().from_notebook_node(nb, resources, **kwargs)
        html = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
        policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"/>'
        return re.sub(r"<head[^>]*>", lambda head: head[0] + policy, html, count=1), resources
