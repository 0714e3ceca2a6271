"""How a worked number of the notes looks: as text for a terminal, as a small table in a notebook.

Colours are left to the page, so that light and dark themes both work; every verdict has a symbol and words.
"""

import html
import math
import textwrap

SYMBOL = {"right": "✓", "right to rounding": "≈", "wrong": "✗", "cannot be recomputed": "?"}
THEY_SAY = {"number": "the notes print", "claim": "the notes say", "check": "the notes imply"}
EVIDENCE = {"literature": "the literature", "page": "the page itself"}
AGREEMENT = {
    "exactly": "the recomputation",
    "unrounded": "the recomputation from the first inputs on, with nothing rounded on the way",
    "rounded": "the recomputation to the printed digits",
}
MOST_ROWS, MOST_IN_A_ROW, MOST_INLINE = 12, 8, 16

QUIET = "opacity:.75;font-weight:normal"
RULE = "1px solid rgba(128,128,128,.4)"
TABLE = "border-collapse:collapse;table-layout:auto;border:0;margin:.3em 0;color:inherit;font-size:inherit"
CELL = "text-align:left;vertical-align:baseline;padding:.3em 1.3em .3em 0;background:transparent"
CELL += f";border:0;border-bottom:{RULE}"
NUMBERS = "margin:0;padding:0;background:transparent;color:inherit;white-space:pre;line-height:1.45"
NUMBERS += ";font-family:var(--jp-code-font-family,monospace);font-size:.95em"
SLIP = "border-left:.25em solid rgba(128,128,128,.6);padding:.1em 0 .1em .8em;margin:.5em 0"


def example_text(example):
    """Return the example as lines of plain text."""
    lines = [f"{example.id} · {example.topic} · {example.source}"]
    for key in example.stated:
        verdict = example.verdict_of(key)
        lines.append(f"  {words(key)}: {SYMBOL[verdict]} {verdict}")
        lines += _labelled(THEY_SAY[example.kind], _printed(example, key))
        lines += _labelled("what comes out", _recomputed(example, key))
    lines += _wrapped(example.lesson)
    for slip in example.errata:
        lines += _wrapped(f"erratum {slip.id}: {slip.correction}")
    return "\n".join(lines)


def example_html(example):
    """Return the example as a table: printed, recomputed, verdict; then the lesson, errata and inputs."""
    titles = ("", THEY_SAY[example.kind], "what comes out", "verdict")
    head = "".join(f'<th scope="col" style="{CELL};{QUIET}">{title}</th>' for title in titles)
    body = "".join(_result_row(example, key) for key in example.stated)
    place = f'<span style="{QUIET}">{html.escape(example.source)} · {example.id}</span>'
    also = {key: value for key, value in example.correct.items() if key not in example.stated}
    folded = _folded("inputs", example.inputs) + _folded("also computed", also)
    return (
        f'<div style="max-width:60em;overflow-x:auto"><table style="{TABLE}">'
        f'<caption style="text-align:left;caption-side:top;white-space:nowrap;color:inherit;padding:0 0 .3em">'
        f"<b>{html.escape(example.topic)}</b> {place}</caption>"
        f'<thead><tr style="background:transparent">{head}</tr></thead><tbody>{body}</tbody></table>'
        f'<div style="margin:.4em 0">{html.escape(example.lesson)}</div>'
        f"{''.join(map(erratum_html, example.errata))}{folded}</div>"
    )


def erratum_text(slip):
    """Return the erratum as lines of plain text."""
    return "\n".join(
        [
            f"erratum {slip.id} · {slip.source}, {slip.where}",
            f"  they say  {slip.claim}",
            f"  it holds  {slip.correction}",
            f"  evidence  {EVIDENCE.get(slip.evidence, slip.evidence)}",
            f"  lesson    {slip.lesson}",
        ]
    )


def erratum_html(slip):
    """Return the erratum as a short quoted block."""
    claim, correction, lesson = (html.escape(text) for text in (slip.claim, slip.correction, slip.lesson))
    place = html.escape(f"{slip.source}, {slip.where}")
    evidence = EVIDENCE.get(slip.evidence) or f"<code>{html.escape(slip.evidence)}</code>"
    return (
        f'<div style="{SLIP}"><b>✎ erratum {slip.id}</b> <span style="{QUIET}">{place}</span><br>'
        f"<b>They say</b> {claim}<br><b>It holds</b> {correction}<br>"
        f'<b>Keep</b> {lesson} <span style="{QUIET}">· evidence: {evidence}</span></div>'
    )


def listing_text(items):
    """Return one line for each example or erratum."""
    return "\n".join("  ".join(cells) for cells in map(_index_cells, items)) or "nothing of this kind"


def listing_html(items):
    """Return one table row for each example or erratum."""
    rows = (
        '<tr style="background:transparent">'
        + "".join(f'<td style="{CELL}">{html.escape(cell)}</td>' for cell in _index_cells(item))
        + "</tr>"
        for item in items
    )
    return f'<div style="overflow-x:auto"><table style="{TABLE}"><tbody>{"".join(rows)}</tbody></table></div>'


def misfit_text(example, key, yours, theirs):
    """Say that a value has another shape than the result it is compared with."""
    return f"your value is {_shape_words(yours)}, but {words(key)} of {example.id} is {_shape_words(theirs)}"


def comparison_text(example, key, value, how, with_notes, gap):
    """Say in one or two lines how a learner's value stands; how: "exactly", "unrounded", "rounded" or "" for not."""
    large = sum(map(len, _rows(value))) > MOST_INLINE
    yours = f"your result of {len(_rows(value))} rows" if large else f"your {_said(example, key, value, 1)}"
    slip = f":\nerratum {example.errata[0].id}. {example.errata[0].correction}" if example.errata else ""
    if key not in example.stated:
        says, slip = "the notes do not give this one", ""
    else:
        says = f"{THEY_SAY[example.kind]} {'it' if large else _said(example, key, example.stated[key])}"
        says += " otherwise" if large else ""
    if key not in example.correct:
        return f"{yours} cannot be checked: {says}, but not what it was made from{slip}"
    if how:
        agreement = f"{yours} agrees with {AGREEMENT[how]}"
        return f"{agreement} and with the notes" if with_notes else f"{agreement}; {says}{slip}"
    ours = "something else" if large else _said(example, key, example.correct[key], 1)
    if with_notes:
        return f"{yours} agrees with the notes, but {ours} comes out{slip}"
    far = f" (largest difference {gap:.3g})" if math.isfinite(gap) else ""
    return f"{yours} differs from the recomputation, which gives {ours}{far}; {says}"


def _said(example, key, value, more=0):
    """Return a result within a sentence."""
    rows = _rows(value)
    worded = any(isinstance(entry, str) for row in rows for entry in row)
    between = " × " if example.shapes else ", " if worded else " "
    return "; ".join(between.join(number(entry, _places(example, key, more)) for entry in row) for row in rows)


def words(key):
    """Return the name of a result as a reader would say it."""
    return str(key).replace("_", " ")


def number(value, places=None):
    """Return one entry as text: with at most `places` decimals, or 6 significant digits."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return "—" if value is None else str(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
    if value == int(value) or abs(value) >= 1e5:
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.0f}"
    text = f"{value:.6g}" if places is None else f"{value:.{places}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _places(example, key, more=0):
    """Return how many decimals the notes print for this result, and some more; None where they are exact."""
    half_a_digit = example.precision.get(key)
    return None if half_a_digit is None else max(0, math.ceil(-math.log10(2 * half_a_digit) - 1e-9)) + more


def _rows(value):
    """Return a result as rows of entries."""
    if isinstance(value, dict):
        return [[key, *(entry for row in _rows(part) for entry in row)] for key, part in value.items()]
    if not isinstance(value, list):
        return [[value]]
    if not any(isinstance(part, (list, dict)) for part in value):
        return [value]
    return [row for part in value for row in ([_pair(part)] if _is_pair(part) else _rows(part))]


def _is_pair(part):
    return isinstance(part, list) and len(part) == 2 and isinstance(part[0], list) and isinstance(part[1], str)


def _pair(part):
    return [*part[0], "→", part[1]]


def _cells(value, places, shapes=False):
    """Return a result as rows of text, long rows folded and columns of one width."""
    rows = [[number(entry, places) for entry in row] for row in _rows(value)]
    if shapes:
        return [[" × ".join(row)] for row in rows]
    rows = [row[start : start + MOST_IN_A_ROW] for row in rows for start in range(0, len(row), MOST_IN_A_ROW)]
    if len({len(row) for row in rows}) > 1:
        return rows
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]


def _printed(example, key):
    return _cells(example.stated[key], _places(example, key), example.shapes)


def _recomputed(example, key):
    return _cells(example.correct.get(key), _places(example, key, 1), example.shapes)


def _lines(rows):
    shown = ["  ".join(row) for row in rows[:MOST_ROWS]]
    return shown if len(rows) <= MOST_ROWS else [*shown, f"… and {len(rows) - MOST_ROWS} more rows"]


def _labelled(label, rows):
    return [f"    {'' if number else label:<15}  {row}" for number, row in enumerate(_lines(rows))]


def _wrapped(text):
    return textwrap.wrap(text, 100, initial_indent="  ", subsequent_indent="    ")


def _block(rows, off=()):
    """Return rows of text for a notebook, the entries counted in `off` bold and underlined."""
    entry = iter(range(sum(map(len, rows))))
    marked = [[_marked(cell, next(entry) in off) for cell in row] for row in rows]
    return f'<pre style="{NUMBERS}">' + "\n".join(_lines(marked)) + "</pre>"


def _marked(cell, is_off):
    text = html.escape(cell)
    bare = text.lstrip()
    return f"{' ' * (len(text) - len(bare))}<b><u>{bare}</u></b>" if is_off else text


def _result_row(example, key):
    verdict = example.verdict_of(key)
    off = example.entries_off(key) if verdict == "wrong" else ()
    numbers = _block(_printed(example, key), off), _block(_recomputed(example, key))
    cells = (*numbers, f"<b>{SYMBOL[verdict]}</b>&nbsp;{verdict}")
    row = "".join(f'<td style="{CELL}">{cell}</td>' for cell in cells)
    return f'<tr style="background:transparent"><th scope="row" style="{CELL}">{html.escape(words(key))}</th>{row}</tr>'


def _folded(title, results):
    parts = (f"<div>{html.escape(words(key))}</div>{_block(_cells(part, None))}" for key, part in results.items())
    summary = f'<summary style="{QUIET}">{title}</summary>'
    return f'<details style="margin:.3em 0">{summary}{"".join(parts)}</details>' if results else ""


def _index_cells(item):
    if hasattr(item, "verdict"):
        return item.id, f"{SYMBOL[item.verdict]} {item.verdict}", item.topic, item.source
    return item.id, f"{item.source}, {item.where}", item.correction


def _shape_words(shape):
    if shape is None:
        return "a list of rows of different lengths"
    return "of shape " + " × ".join(map(str, shape)) if shape else "a single entry"
