"""The cells of a notebook that may be damaged, as plain data: each mended or left out by itself, with a note.

Only the standard library: `autograde.reading` also runs this in a process with little memory.
"""

import re

MB = 10**6
CODE_CELL, TEXT_CELL = MB, 8 * MB  # characters; Colab writes pasted pictures into the text of a cell
PICTURE = 4 * MB  # a pasted picture (attachment)
ALL_TEXT = 32 * MB  # everything that is kept
METADATA, DEPTH = 50_000, 20  # of one cell: characters and items; levels

KINDS = {"code", "markdown", "raw"}
OLD_KINDS = {"heading", "html"}  # nbformat 3
SURROGATE = re.compile("[\ud800-\udfff]")
MENDED = (
    ("zero characters, left out", re.compile("\0"), ""),
    ("broken characters, each read as \ufffd", SURROGATE, "\ufffd"),
    ("Windows line endings, made plain", re.compile("\r\n?"), "\n"),
)


class TooMuch(Exception):
    """More than there is room for."""


class Room:
    """How much may still be kept, here and in the room around."""

    def __init__(self, size, around=None):
        self._left, self._around = size, around

    def take(self, size):
        self._left -= size
        if self._left < 0:
            raise TooMuch
        if self._around:
            self._around.take(size)


class Notes:
    """What was mended, and in which cells."""

    def __init__(self):
        self._found = {}

    def add(self, number, what):
        self._found.setdefault(what, []).append(number)

    def sentences(self):
        return [f"{numbered(numbers)}: {what}" for what, numbers in self._found.items()]


def numbered(numbers):
    """cell 3; cells 3 and 4; cells 1, 2, 3, 4 and 96 more."""
    if len(numbers) == 1:
        return f"cell {numbers[0]}"
    shown = [str(n) for n in numbers] if len(numbers) < 6 else [*map(str, numbers[:4]), f"{len(numbers) - 4} more"]
    return f"cells {', '.join(shown[:-1])} and {shown[-1]}"


def megabytes(size):
    """A size as people say it."""
    return f"{size / MB:,.0f} MB" if size >= MB else f"{size / 1000:,.0f} kB"


def tidy(value, room, depth=0):
    """The same value with nothing in it that UTF-8 cannot hold. Raises TooMuch."""
    room.take(1)
    if depth > DEPTH:
        raise TooMuch
    if isinstance(value, str):
        room.take(len(value))
        return SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [tidy(item, room, depth + 1) for item in value]
    if isinstance(value, dict):
        return {tidy(key, room, depth + 1): tidy(item, room, depth + 1) for key, item in value.items()}
    return value


def plain_cells(raw):
    """The cells, and what was mended. Raises TooMuch.

    Each cell has cell_type, source, metadata, and where there is one: id, attachments, level (of a heading).
    """
    kept, notes, room = [], Notes(), Room(ALL_TEXT)
    for number, cell in enumerate(raw, 1):
        if isinstance(cell, dict):
            kept.append(_plain(cell, number, notes, room))
        else:
            notes.add(number, "not a cell, left out")
    return kept, notes.sentences()


def plain_metadata(metadata, remarks):
    """The notebook's own metadata without the state of widgets."""
    if not isinstance(metadata, dict):
        remarks.append("has no metadata of its own")
        return {}
    try:
        return tidy({key: value for key, value in metadata.items() if key != "widgets"}, Room(4 * METADATA))
    except TooMuch:
        remarks.append("has metadata too large or too deep to keep")
        return {}


def _plain(cell, number, notes, room):
    kind = cell.get("cell_type")
    if not isinstance(kind, str) or kind not in KINDS | OLD_KINDS:
        kind = _likely_kind(cell)
        notes.add(number, f"of no known type, read as {kind}")
    source, metadata = _source(cell, kind, number, notes), _metadata(cell, number, notes, room)
    room.take(len(source))
    plain = {"cell_type": kind, "source": source, "metadata": metadata}
    if isinstance(cell.get("id"), str):
        plain["id"] = SURROGATE.sub("\ufffd", cell["id"][:100])
    if kind == "heading":
        level = cell.get("level")
        plain["level"] = level if type(level) is int and 1 <= level <= 6 else 1
    if kind != "code" and cell.get("attachments"):
        plain["attachments"] = _attachments(cell["attachments"], number, notes, room)
    return plain


def _likely_kind(cell):
    metadata = cell.get("metadata")
    marks = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    kind = marks.get("cell_type") if isinstance(marks, dict) else None
    if kind in ("code", "markdown"):
        return kind
    return "code" if {"outputs", "execution_count", "prompt_number", "input"} & cell.keys() else "raw"


def _source(cell, kind, number, notes):
    source = next((cell[key] for key in ("source", "input") if key in cell), None)
    if isinstance(source, list):
        if not all(isinstance(line, str) for line in source):
            notes.add(number, "lines that are no text, left out")
        source = "".join(line for line in source if isinstance(line, str))
    elif isinstance(source, int | float) and not isinstance(source, bool):
        notes.add(number, "a number in place of its text")
        source = str(source)
    elif not isinstance(source, str):
        notes.add(number, "no text")
        source = ""
    if len(source) > (CODE_CELL if kind == "code" else TEXT_CELL):
        notes.add(number, f"{megabytes(len(source))} of text, left out")
        return ""
    for what, pattern, instead in MENDED:
        source, count = pattern.subn(instead, source)
        if count:
            notes.add(number, what)
    return source


def _metadata(cell, number, notes, room):
    metadata = cell.get("metadata")
    if not isinstance(metadata, dict):
        notes.add(number, "no metadata")
        return {}
    if "nbgrader" in metadata and not isinstance(metadata["nbgrader"], dict):
        notes.add(number, "grading marks that are none, left out")
        metadata = {key: value for key, value in metadata.items() if key != "nbgrader"}
    for wanted in (metadata.keys(), {"nbgrader"}):
        try:
            kept = tidy({key: value for key, value in metadata.items() if key in wanted}, Room(METADATA, room))
        except TooMuch:
            continue
        break
    else:
        kept = {}
    if len(kept) < len(metadata):
        notes.add(number, "metadata too large or too deep, left out")
    return kept


def _attachments(attachments, number, notes, room):
    kept = {}
    for name, bundle in attachments.items() if isinstance(attachments, dict) else ():
        own = Room(PICTURE, room)
        try:
            lines = {key: [text] if isinstance(text, str) else list(text) for key, text in bundle.items()}
            kept[tidy(name, own)] = tidy({key: "".join(text) for key, text in lines.items()}, own)
        except (TooMuch, TypeError, AttributeError):
            notes.add(number, "a pasted picture too large or damaged, left out")
    return kept
