"""One look for every page we write about a class: stands alone, prints well, fits a phone, runs and loads nothing."""

import unicodedata
from functools import cache

from jinja2 import Environment
from pygments.formatters import HtmlFormatter

# The page may show its own style and embedded pictures; it may run, load and send nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'"

STYLE = """
:root { --ink: #1d2733; --soft: #5b6775; --line: #d8dee6; --paper: #fff; --wash: #f4f6f9;
        --good: #1f5fa8; --bad: #b3480e; --warn: #fff3d6; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 56rem; color: var(--ink); background: var(--paper);
       font: 16px/1.55 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .6rem; }
h2 { font-size: 1.2rem; margin: 2rem 0 .6rem; }
h3, h4, h5, h6 { font-size: 1.05rem; margin: 1.2rem 0 .4rem; }
p, ul, ol { margin: .5rem 0; }
a { color: var(--good); }
code, pre { font: .86em/1.45 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
pre { margin: .4rem 0; padding: .6rem .8rem; background: var(--wash); border-radius: 6px; overflow-x: auto; }
pre span, pre code { font: inherit; }
img { max-width: 100%; height: auto; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem .35rem 0; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; }
table, details { margin: 1rem 0; }
details > summary { cursor: pointer; color: var(--soft); }
.anchor-link { display: none; }
.wb-wide { overflow-x: auto; }
.wb-wide table { min-width: 44rem; }
.wb-n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.wb-soft { color: var(--soft); }
.wb-good { color: var(--good); font-weight: 600; }
.wb-bad { color: var(--bad); font-weight: 600; }
.wb-aspect { white-space: nowrap; margin-right: .6em; font-weight: 400; }
.wb-banner { background: var(--warn); border: 1px solid #d9a441; border-radius: 6px; padding: .6rem .9rem;
             margin: 0 0 1rem; }
.wb-score { font-size: 2rem; font-weight: 700; margin: .4rem 0 0; font-variant-numeric: tabular-nums; }
.wb-bar { height: .5rem; border-radius: 4px; background: var(--line); margin: .5rem 0 1rem; overflow: clip; }
.wb-bar div { height: 100%; background: var(--good); }
.wb-card { border: 1px solid var(--line); border-radius: 8px; margin: 1rem 0; padding: .2rem .9rem .7rem; }
.wb-card > h3 { display: flex; flex-wrap: wrap; gap: .2rem 1rem; justify-content: space-between; margin: .6rem 0; }
.wb-card .wb-top { font-size: .8rem; font-weight: 400; margin-left: .8rem; }
.wb-report { border-left: 4px solid var(--bad); }
.wb-report.wb-full { border-color: var(--good); }
.wb-report pre { white-space: pre-wrap; border-radius: 0 6px 6px 0; }
.wb-comment { border-left: 4px solid #8a6d1c; background: var(--warn); padding: .3rem .8rem; margin: .6rem 0; }
.wb-rubric { background: var(--wash); border-radius: 6px; padding: .3rem .8rem; margin: .5rem 0; font-size: .93rem; }
.wb-two { display: grid; grid-template-columns: 1fr 1fr; gap: .8rem; }
.wb-two > div { min-width: 0; }
.wb-two pre { white-space: pre-wrap; }
mark { background: #ffe08a; }
@media (max-width: 40rem) {
  body { padding: 1rem .75rem 3rem; }
  .wb-two { grid-template-columns: 1fr; }
  .wb-stack thead { display: none; }
  .wb-stack tr { display: block; padding: .5rem 0; border-bottom: 1px solid var(--line); }
  .wb-stack td { display: inline; border: 0; padding: 0 .5rem 0 0; }
  .wb-stack td.wb-line { display: block; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  pre { white-space: pre-wrap; border: 1px solid var(--line); }
  .wb-card, .wb-banner, tr, img { break-inside: avoid; }
  .wb-card { break-inside: auto; }
  h1, h2, h3, h4 { break-after: avoid; }
  a { color: inherit; text-decoration: none; }
  details:not([open]) { display: none; }
  .wb-top { display: none; }
}
"""

LAYOUT = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{{ policy|safe }}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{{ title }}</title>
<style>{{ style|safe }}</style>
</head>
<body id="top">
{{ body|safe }}
</body>
</html>
"""
_jinja = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)


@cache
def _template(text):
    return _jinja.from_string(text)


@cache
def _code_style():
    return HtmlFormatter(style="friendly", nobackground=True).get_style_defs(".highlight")


def fill(template, **values):
    """A Jinja template with every value escaped, unless it is Markup."""
    return _template(template).render(**values)


def page(title, body):
    """A whole page around a body that is clean already."""
    return fill(LAYOUT, title=title, body=body, policy=POLICY, style=STYLE + _code_style())


def plain(text, most=200):
    """One line for a terminal, a table or a title: no control characters, not endless."""
    line = "".join(c if c.isprintable() else " " for c in unicodedata.normalize("NFC", str(text)))
    line = " ".join(line.split())
    return line if len(line) <= most else line[: most - 1] + "…"
