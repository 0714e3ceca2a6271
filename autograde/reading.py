"""Bytes that claim to be a notebook -> its cells as plain data, whatever they are, in bounded memory and time.

Only the standard library, since a big file is read by this module in a process of its own, with a limit on its
memory. Outputs, the state of widgets and whatever else a grader does not need end here.
"""

import hashlib
import json
import math
import re
import subprocess
import sys
from codecs import BOM_UTF8
from dataclasses import asdict, dataclass
from pathlib import Path

from autograde.plaincells import ALL_TEXT, MB, TooMuch, megabytes, plain_cells, plain_metadata

FILE = 256 * MB  # a larger file is refused
IN_PROCESS = 4 * MB  # up to here we read it ourselves
MEMORY, SECONDS = 2_000 * MB, 30  # what the process of its own may use
CELLS, MANY_CELLS = 20_000, 1_000  # refused, remarked upon; a phase hands out about 200

MAGIC = {
    b"PK\x03\x04": "a zip archive",
    b"PK\x05\x06": "a zip archive",
    b"\x1f\x8b": "a gzip archive",
    b"Rar!": "a rar archive",
    b"7z\xbc\xaf": "a 7z archive",
    b"%PDF": "a PDF",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"SQLite format 3": "a database",
    b"\x7fELF": "a program",
    b"\xd0\xcf\x11\xe0": "an Office document",
}
PYTHON = re.compile(r"#|(import|from|def|class) \w|%%?\w|\"\"\"|'''|@\w|\w+ *=[^=]")
CONFLICT = re.compile(r"^(<{7} |={7}$|>{7} )", re.MULTILINE)
BEGUN = re.compile(r"t|tr|tru|f|fa|fal|fals|n|nu|nul|-?")  # a word of JSON, not ended


class Unreadable(Exception):
    """It cannot be read. The message goes on after the file's name: "is empty"."""


@dataclass
class Reading:
    """What a file holds: `cells` as plaincells has them; `nbformat` 2, 3 or 4."""

    cells: list
    metadata: dict
    nbformat: int
    digest: str
    remarks: list  # about the file; each goes on after its name
    notes: list  # about cells


def read(descriptor, size):
    """Read an open regular file of that size. Raises Unreadable."""
    if size > FILE:
        raise Unreadable(f"is {megabytes(size)} large; at most {megabytes(FILE)} are read")
    if size > IN_PROCESS:
        return _read_apart(descriptor)
    with open(descriptor, "rb", closefd=False) as file:
        return understand([_at_most(file, IN_PROCESS)])


def _at_most(file, size):
    data = file.read(size + 1)
    if len(data) > size:
        raise Unreadable("grew while it was read")
    return data


def _read_apart(descriptor):
    """Read a big file in a process of its own, which may end without harm."""
    order = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
    order += f"import {__name__}; {__name__}.main({MEMORY}, {SECONDS})"
    command = [sys.executable, "-I", "-S", "-c", order]
    try:
        done = subprocess.run(command, stdin=descriptor, capture_output=True, timeout=SECONDS, env={})
    except subprocess.TimeoutExpired:
        raise Unreadable(f"takes longer than {SECONDS} s to read") from None
    last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    if done.returncode < 0 or last == "MemoryError":
        raise Unreadable(f"takes more than {megabytes(MEMORY)} of memory or {SECONDS} s to read")
    if done.returncode:
        raise RuntimeError(f"the process that reads big files failed: {last}")
    reply = json.loads(done.stdout)
    if "unreadable" in reply:
        raise Unreadable(reply["unreadable"])
    return Reading(**reply)


def main(memory, seconds):
    """The process of its own: the file is stdin, the answer is JSON on stdout."""
    import resource

    for name, value in (("RLIMIT_AS", memory), ("RLIMIT_CPU", seconds), ("RLIMIT_CORE", 0)):
        try:
            resource.setrlimit(getattr(resource, name), (value, value))
        except (ValueError, OSError):  # macOS limits no memory: there the size of the file has to do
            continue
    try:
        data = [_at_most(sys.stdin.buffer, FILE)]
        size = len(data[0])
        reply = asdict(understand(data))
        if size > 20 * MB:
            reply["remarks"].append(f"is {megabytes(size)} large; its outputs were left out")
    except Unreadable as problem:
        reply = {"unreadable": str(problem)}
    sys.stdout.buffer.write(json.dumps(reply, ensure_ascii=False).encode())


def understand(holder):
    """The Reading of the bytes in this list of one; it is emptied, so that they can go before their text is parsed."""
    remarks, digest = [], hashlib.sha256(holder[0]).hexdigest()
    notebook = _parse(_decode(holder.pop(), remarks), remarks)
    raw, version = _raw_cells(notebook, remarks)
    metadata = plain_metadata(notebook.get("metadata"), remarks)
    try:
        cells, notes = plain_cells(raw)
    except TooMuch:
        raise Unreadable(f"holds more than {megabytes(ALL_TEXT)} of text, outputs not counted") from None
    return Reading(cells, metadata, version, digest, remarks, notes)


def _decode(data, remarks):
    for magic, what in MAGIC.items():
        if data.startswith(magic):
            raise Unreadable(f"is {what} with the name of a notebook")
    if data.startswith(BOM_UTF8):
        remarks.append("began with a byte-order mark")
        data = data[len(BOM_UTF8) :]
    if not data.strip(b"\0 \t\r\n"):
        raise Unreadable("holds nothing but zero bytes" if b"\0" in data else "is empty")
    encoding = json.detect_encoding(data[:4])
    if encoding != "utf-8":
        remarks.append(f"was saved as {encoding[:6].upper()}")
        return data.decode(encoding, "replace").lstrip("\ufeff")
    if data.endswith(b"\0"):
        remarks.append("ended in zero bytes, which were left out")
        data = data.rstrip(b"\0")
    try:
        return data.decode("utf-8").lstrip("\ufeff")
    except UnicodeDecodeError:
        return _decode_broken(data, remarks)


def _decode_broken(data, remarks):
    """Almost UTF-8, or the Latin-1 of an old editor?"""
    text = data.decode("utf-8", "replace")
    if len(re.findall(r"[^\x00-\x7f\ufffd]", text)) >= text.count("\ufffd"):
        remarks.append("has characters that are not UTF-8; each was read as \ufffd")
        return text
    remarks.append("was not saved as UTF-8; it was read as Latin-1")
    try:
        return data.decode("cp1252")  # what Windows means by it
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _parse(text, remarks):
    """JSON, read more patiently than the standard asks; its oddities go into the remarks."""
    odd = set()

    def members(pairs):
        found = dict(pairs)
        if len(found) < len(pairs):
            odd.add("names something twice; the last one counts, as in Jupyter")
        return found

    def integer(digits):
        return int(digits) if len(digits) < 19 else odd.add("holds numbers too large to use")

    def number(digits):
        value = float(digits) if len(digits) < 400 else math.inf
        return value if math.isfinite(value) else odd.add("holds numbers too large to use")

    def constant(_):
        return odd.add("holds NaN or Infinity, which JSON does not know")

    hooks = {"object_pairs_hook": members, "parse_int": integer, "parse_float": number, "parse_constant": constant}
    try:
        notebook = json.loads(text, strict=False, **hooks)
    except json.JSONDecodeError as error:
        raise Unreadable(_why_no_json(text, error)) from None
    except RecursionError:
        raise Unreadable("is nested too deeply to be a notebook") from None
    remarks.extend(sorted(odd))
    return notebook


def _why_no_json(text, error):
    head = text[:2000].lstrip()
    conflict = CONFLICT.search(text)
    if conflict:
        line = text.count("\n", 0, conflict.start()) + 1
        return f"holds the marks of an unresolved git merge (line {line})"
    if head.startswith("<"):
        return "is a web page (HTML) with the name of a notebook"
    if PYTHON.match(head):
        return "is a Python script with the name of a notebook"
    if "\0" in text:
        return f"is damaged: it holds zero bytes (line {error.lineno})"
    if BEGUN.fullmatch(text[error.pos : error.pos + 100].rstrip()) or error.msg.startswith("Unterminated"):
        return f"is cut off (line {error.lineno}): its end is missing"
    return f"is not valid JSON (line {error.lineno}: {error.msg})"


def _raw_cells(notebook, remarks):
    """The list of cells, unread, and the number of the format they are in."""
    if not isinstance(notebook, dict):
        raise Unreadable("is JSON, but not a notebook")
    cells, sheets, version = notebook.get("cells"), notebook.get("worksheets"), notebook.get("nbformat")
    if not isinstance(cells, list) and isinstance(sheets, list):
        pages = [sheet.get("cells") for sheet in sheets if isinstance(sheet, dict)]
        cells = [cell for page in pages if isinstance(page, list) for cell in page]
        version = version if version in (2, 3) else 3
    if not isinstance(cells, list):
        raise Unreadable("is JSON, but not a notebook: it has no list of cells")
    if len(cells) > CELLS:
        raise Unreadable(f"has {len(cells):,} cells; at most {CELLS:,} are read")
    if len(cells) > MANY_CELLS:
        remarks.append(f"has {len(cells):,} cells")
    return cells, _version(version, cells, remarks)


def _version(version, cells, remarks):
    if type(version) is not int or version < 1:
        remarks.append("does not say which format it is in; it was read as nbformat 4")
    elif version == 1:
        raise Unreadable("is in nbformat 1, which no Jupyter reads")
    elif version < 4:
        remarks.append(f"is in nbformat {version}, of an old Jupyter; it was upgraded")
        return version
    elif version > 4:
        if not any(isinstance(cell, dict) and {"cell_type", "source"} <= cell.keys() for cell in cells):
            raise Unreadable(f"is in nbformat {version}, newer than this grader can read")
        remarks.append(f"is in nbformat {version}, newer than this grader; it was read as nbformat 4")
    return 4
