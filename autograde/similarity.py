"""Which submissions are closer to each other than the class makes likely: a reason to look, not a verdict.

Cells are compared twice, by rapidfuzz: by structure (own names, messages, comments and layout do not count) and by
wording (they do). What counts is not how alike two are, for short functions come out alike, but by how many tokens they
are more alike than each of them is with nearly everybody else. What was handed out does not count at all.
"""

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from markupsafe import Markup
from pygments.lexers import PythonLexer
from pygments.token import Comment, Literal, Name
from rapidfuzz.distance import Indel
from rapidfuzz.process import cdist
from rich.table import Table
from rich.text import Text

from autograde.canvas import write_csv
from autograde.page import fill, page, plain
from autograde.report import grade_id, notebooks, released, source
from utils.definitions import MAGIC

# Calibrated on made-up classes of 4 to 200 who work alone (tests/independent.py): their closest pairs stay below these.
NEIGHBOURS = 0.05  # "nearly everybody else": all but this share of the class, and at least one, from twelve on two
ORDINARY = 0.85  # so alike two answers to one exercise may always be
SAME_WORDS = 40  # tokens more in common, added up over exercises
SAME_STRUCTURE = 50  # tokens more in common, over the whole notebook …
SPREAD = 1.4  # … and so many times the class's own spread
VERBATIM, ENOUGH = 0.97, 600  # or word for word the same, in so many tokens, however many did it
SMALL = 8  # with fewer submissions nothing is usual, and structure tells nothing
LONGEST, MOST = 100_000, 5_000  # characters and tokens of one answer that are looked at
QUIET = set("(),;")  # what a formatter adds and removes
BLANK = ("code", "")
SHOWN = 100  # pairs in the page; the csv has all
HEADS = ("student", "other student", "exercise", "similarity in %", "lines", "lines of the other", "why")
VERDICT = "A reason to look, not a verdict: people who learn together, or from one page, come out alike too."

REPORT = """\
<h1>{{ phase }}: who wrote alike</h1>
<div class="wb-banner"><b>{{ verdict }}</b></div>
<p>{{ compared }} submissions were compared; {{ pairs|length }} pairs stand out. What was handed out does not count, and
neither does what nearly everybody else has in common with the two.
{% if small %}With fewer than eight submissions nothing is known to be usual: only much the same words are told.
{% endif %}</p>
{% if pairs %}
<div class="wb-wide"><table>
<thead><tr><th scope="col">students</th><th scope="col" class="wb-n">structure</th>
<th scope="col" class="wb-n">wording</th><th scope="col">why</th></tr></thead>
<tbody>{% for pair in pairs %}
<tr><td>{% if loop.index <= shown|length %}<a href="#pair-{{ loop.index }}">{{ pair.students|join(" · ") }}</a>
{% else %}{{ pair.students|join(" · ") }}{% endif %}</td>
<td class="wb-n">{{ "%.0f %%"|format(100 * pair.structure) }}</td>
<td class="wb-n">{{ "%.0f %%"|format(100 * pair.wording) }}</td><td>{{ pair.why }}</td></tr>
{% endfor %}</tbody></table></div>
{% endif %}
{% for pair, parts in shown %}
<h2 id="pair-{{ loop.index }}">{{ pair.students|join(" · ") }}</h2>
<p>{{ pair.why|capitalize }}.</p>
{% for part, sides in parts %}
<div class="wb-card"><h3>{{ part.exercise }} · {{ "%.0f %%"|format(100 * part.similarity) }}</h3>
<p class="wb-soft">lines {{ part.lines[0] }} and {{ part.lines[1] }}</p>
<div class="wb-two">
{% for side in sides %}<div><b>{{ pair.students[loop.index0] }}</b>{{ side }}</div>{% endfor %}
</div></div>
{% endfor %}
{% endfor %}
"""


@dataclass(frozen=True)
class Tokens:
    """A cell as compared: the tokens, and the line each stands in."""

    words: tuple = ()
    lines: tuple = ()


@dataclass
class Part:
    """One exercise of a pair: how alike, and which lines."""

    exercise: str
    similarity: float
    extra: float  # tokens more in common than with others
    lines: tuple  # ("3-7", "2-6")
    cells: tuple  # the two sources
    marked: tuple  # the two sets of line numbers


@dataclass
class Pair:
    """Two submissions worth a look."""

    students: tuple
    structure: float  # 0..1, over all exercises that both have worked on
    wording: float
    why: str
    extra: float
    parts: list = field(default_factory=list)


def similar_pairs(root, phase):
    """The Pairs of a phase, the most striking first, and how many submissions were compared."""
    boilerplate = frozenset(
        line.strip() for cell in released(root, phase)["cells"] for line in source(cell).splitlines()
    )
    work = {student: answers(notebook, boilerplate) for student, notebook in notebooks(root, phase)}
    return compare(work, boilerplate), len(work)


def answers(notebook, boilerplate=frozenset()):
    """{exercise: (kind, source)} of a notebook: what stands in its solution cells, or in a cell added for it."""
    found, added = {}, []
    for cell in notebook["cells"]:
        name, text = grade_id(cell), source(cell)
        about = cell.get("metadata", {}).get("nbgrader", {})
        if about.get("solution"):
            found[name.removesuffix("-build")] = cell["cell_type"], text
        elif not name and cell["cell_type"] == "code":
            added.append(text)
    for name, (kind, text) in found.items():
        if kind == "code" and not any(tokens(kind, text, boilerplate)[0].words):  # the stub is untouched
            found[name] = kind, "\n".join(one for one in added if f"def {name}(" in one or f"class {name}" in one)
    return found


@lru_cache(maxsize=8192)
def tokens(kind, text, boilerplate=frozenset()):
    """(structure, wording) of a cell as Tokens."""
    text = text[:LONGEST]
    if kind != "code":
        lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip() not in boilerplate]
        return Tokens(), _joined([(word.casefold(), n) for n, line in lines for word in line.split()])
    text = "\n".join(MAGIC.sub(r"\1pass", line) if len(line) < 200 else line for line in text.splitlines())
    given, own = _syntax(text)
    known = {n for n, line in enumerate(text.splitlines(), 1) if line.strip() in boilerplate}
    structure, wording, line, before = [], [], 1, ""
    for at, sort, word in PythonLexer(stripnl=False).get_tokens_unprocessed(text):
        here, line = line, line + word.count("\n")
        if not word.strip() or here in known or given[at]:
            continue
        wording.append((word.strip(), here))
        if sort in Literal.String:
            structure += [("text", here)] if structure[-1:] != [("text", here)] else []
        elif sort not in Comment and word not in QUIET:
            mine = sort in Name and before != "." and (own is None or word in own)
            structure.append(("own" if mine else word, here))
        before = word
    return _joined(structure), _joined(wording)


def _joined(pairs):
    return Tokens(*zip(*pairs[:MOST], strict=True)) if pairs else Tokens()


def _syntax(text):
    """(1 at each character of a header or docstring, which are given; the names bound here, or None if unknown)."""
    given = bytearray(len(text))
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return given, None
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def at(line, column):
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode(errors="ignore"))

    own = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            body = node.body[0]
            start, end = at(node.lineno, node.col_offset), at(body.lineno, body.col_offset)
            if isinstance(body, ast.Expr) and isinstance(getattr(body.value, "value", None), str):
                end = at(body.end_lineno, body.end_col_offset)
            given[start:end] = b"\1" * (end - start)
            own.add(node.name)
        elif isinstance(node, ast.arg | ast.alias):
            own.add(node.arg if isinstance(node, ast.arg) else node.asname)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
    return given, own


class _View:
    """All submissions in one way of looking: how alike each two are, per exercise and over all."""

    def __init__(self, docs):
        size = len(next(iter(docs.values())))
        self.close = min(max(2 if size >= 12 else 1, math.ceil(NEIGHBOURS * size)), size - 1)
        self.similar, self.extra = {}, {}
        shared, total, spread = np.zeros((size, size)), np.zeros((size, size)), np.zeros((size, size))
        for name, ones in docs.items():
            similar, weight = _similarities(ones)
            self.similar[name] = similar
            self.extra[name] = (similar - self._usual(similar)) * weight
            shared += similar * weight
            total += weight
            both = weight[np.triu_indices(size, 1)] > 0
            seen = similar[np.triu_indices(size, 1)][both]
            spread += (weight * (seen.std() if len(seen) else 0)) ** 2
        self.total = total
        self.overall = np.divide(shared, total, out=np.zeros_like(total), where=total > 0)
        mine = total.max(1)
        fair = np.where(total >= np.minimum(mine[:, None], mine[None, :]) / 2, self.overall, 0)
        self.gap = (self.overall - self._usual(fair)) * total
        self.spreads = np.divide(self.gap, np.sqrt(spread), out=np.zeros_like(total), where=spread > 0)
        self.summed = sum(np.maximum(extra, 0) for extra in self.extra.values())

    def _usual(self, similar):
        """For each pair, what the closer-knit of the two has in common with nearly everybody else."""
        ranked = -np.sort(-similar, axis=1)[:, self.close]
        return np.maximum(np.maximum(ranked[:, None], ranked[None, :]), ORDINARY)


def _similarities(ones):
    """(similarity of each two, 0 on the diagonal; tokens per pair, 0 where one has not worked on it)."""
    letters = {}
    texts = ["".join(chr(256 + letters.setdefault(w, len(letters)) % 1_000_000) for w in one.words) for one in ones]
    different = {text: number for number, text in enumerate(dict.fromkeys(texts))}  # many write the same
    place = np.array([different[text] for text in texts])
    table = cdist(list(different), list(different), scorer=Indel.normalized_similarity, dtype=np.float32)
    similar = table[np.ix_(place, place)]
    size = np.array([len(text) for text in texts], dtype=np.float32)
    weight = np.where(np.minimum(size[:, None], size[None, :]) > 0, (size[:, None] + size[None, :]) / 2, 0)
    similar = np.where(weight > 0, similar, 0)
    np.fill_diagonal(similar, 0)
    np.fill_diagonal(weight, 0)
    return similar, weight


def compare(work, boilerplate=frozenset()):
    """The Pairs among {student: {exercise: (kind, source)}}."""
    students, names = sorted(work), list(dict.fromkeys(name for one in work.values() for name in one))
    if len(students) < 2 or not names:
        return []
    docs = {name: [tokens(*work[who].get(name, BLANK), boilerplate) for who in students] for name in names}
    views = [_View({name: [one[kind] for one in ones] for name, ones in docs.items()}) for kind in (0, 1)]
    structure, wording = views
    same_words = (wording.summed >= SAME_WORDS) | ((wording.overall >= VERBATIM) & (wording.total >= ENOUGH))
    same_build = (structure.gap >= SAME_STRUCTURE) & (structure.spreads >= SPREAD) & (len(students) >= SMALL)
    pairs = []
    for a, b in np.argwhere(np.triu(same_words | same_build, 1)):
        kind = int(same_words[a, b])
        extra = float((wording.summed if kind else structure.gap)[a, b])
        overall = [float(view.overall[a, b]) for view in views]
        pair = Pair((students[a], students[b]), *overall, _why(kind, extra), extra)
        for name in names:
            cells = tuple(work[students[one]].get(name, BLANK)[1] for one in (a, b))
            part = _part(name, views[kind], (a, b), [docs[name][one][kind] for one in (a, b)], cells)
            pair.parts += [part] if part else []
        pair.parts.sort(key=lambda part: -part.extra)
        pairs.append(pair)
    return sorted(pairs, key=lambda pair: -pair.extra)


def _why(same_words, extra):
    what = "the same words" if same_words else "the same code under other names"
    if extra < SAME_WORDS:
        return f"{what}: nearly all is word for word the same, as it is with others"
    return f"{what}: {extra:.0f} tokens more in common than with nearly everybody else"


def _part(name, view, places, docs, cells):
    """One exercise of a pair, or None if there is nothing to show."""
    similar, extra = float(view.similar[name][places]), float(view.extra[name][places])
    if similar < 0.8 or min(len(one.words) for one in docs) < 8:
        return None
    marked = _matched_lines(*docs)
    return Part(name, similar, extra, tuple(map(_ranges, marked)), cells, marked)


def _matched_lines(a, b):
    """The lines of each of which most tokens are found in the other, in order."""
    found = ([], [])
    for step in Indel.opcodes(a.words, b.words):
        if step.tag == "equal":
            found[0].extend(range(step.src_start, step.src_end))
            found[1].extend(range(step.dest_start, step.dest_end))
    result = []
    for one, hits in zip((a, b), found, strict=True):
        lines = [one.lines[hit] for hit in hits]
        result.append({line for line in set(lines) if lines.count(line) >= 0.6 * one.lines.count(line)})
    return tuple(result)


def _ranges(numbers: Sequence):
    """{1, 2, 3, 7} -> "1-3, 7"."""
    runs = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def similarity_report(root, phase, out_dir):
    """Write <phase>-similarity.csv and .html. Returns (paths, renderables)."""
    pairs, compared = similar_pairs(root, phase)
    out_dir = Path(out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    rows = [
        (*pair.students, part.exercise, round(100 * part.similarity), *part.lines, pair.why)
        for pair in pairs
        for part in pair.parts
    ]
    table = write_csv(out_dir / f"{phase}-similarity.csv", HEADS, rows)
    html = out_dir / f"{phase}-similarity.html"
    shown = [(pair, [(part, _side_by_side(part)) for part in pair.parts[:6]]) for pair in pairs[:SHOWN]]
    body = fill(
        REPORT, phase=phase, pairs=pairs, shown=shown, compared=compared, small=compared < SMALL, verdict=VERDICT
    )
    html.write_text(page(f"{phase}: who wrote alike", body), encoding="utf-8")
    return [table, html], [_table(phase, pairs, compared)]


def _side_by_side(part):
    """The two sources, the common lines marked."""
    for text, marked in zip(part.cells, part.marked, strict=True):
        lines = [
            Markup("<mark>{}</mark>" if n in marked else "{}").format(line)
            for n, line in enumerate(text.splitlines(), 1)
        ]
        yield Markup("<pre>{}</pre>").format(Markup("\n").join(lines))


def _table(phase, pairs, compared):
    """The pairs for a terminal."""
    table = Table(
        "students", "structure", "wording", "most alike in", "why", title=f"{phase}: who wrote alike", caption=VERDICT
    )
    for pair in pairs[:SHOWN]:
        parts = ", ".join(part.exercise for part in pair.parts[:4])
        shares = f"{pair.structure:.0%}", f"{pair.wording:.0%}"
        table.add_row(*map(Text, (plain(" · ".join(pair.students)), *shares, plain(parts), pair.why)))
    if not pairs:
        table.add_row(Text(f"nobody, among {compared} submissions"), "", "", "", "")
    return table
