"""Files as learners hand them in: damaged, of another kind, or made to harm. Each is a change to a good notebook."""

import io
import json
import os
import socket
import tempfile
import zipfile
from pathlib import Path

import nbformat
from nbformat.v3 import new_heading_cell


def as_bytes(notebook, **options):
    return json.dumps(notebook, ensure_ascii=False, **options).encode("utf-8", "surrogatepass")


def changed(change, **options):
    """A maker of files: a copy of the good notebook as plain data, changed, as bytes."""

    def make(good):
        notebook = json.loads(json.dumps(nbformat.reads(good, as_version=4)))  # each text in one piece
        return as_bytes(change(notebook) or notebook, **options)

    return make


def old_format(version):
    def make(good):
        notebook = nbformat.convert(nbformat.reads(good, as_version=4), 3)
        notebook.worksheets[0].cells.insert(0, new_heading_cell("A title", level=2))
        notebook.worksheets.append({"cells": notebook.worksheets[0].cells[5:], "metadata": {}})
        notebook.worksheets[0].cells = notebook.worksheets[0].cells[:5]
        notebook.nbformat = version
        return as_bytes(notebook)

    return make


def without_ids(notebook):
    notebook["nbformat_minor"] = 0
    for cell in notebook["cells"]:
        del cell["id"]


def with_every_id(value):
    def change(notebook):
        for cell in notebook["cells"]:
            cell["id"] = value

    return changed(change)


def with_cells(*cells):
    """Add these before the others."""

    def change(notebook):
        notebook["cells"] = [*cells, *notebook["cells"]]

    return changed(change)


def with_metadata(**metadata):
    return changed(lambda notebook: notebook["metadata"].update(metadata))


def with_cell_metadata(metadata):
    return with_cells({"cell_type": "code", "source": "x = 1", "metadata": metadata, "outputs": [], "id": "odd"})


def with_output(output):
    def change(notebook):
        next(c for c in notebook["cells"] if c["cell_type"] == "code")["outputs"] = [output]

    return changed(change)


def with_text(text):
    return changed(lambda notebook: notebook["cells"][0].update(source=notebook["cells"][0]["source"] + text))


def in_windows(notebook):
    for cell in notebook["cells"]:
        cell["source"] = cell["source"].replace("\n", "\r\n")


def in_lines(notebook):
    for cell in notebook["cells"]:
        cell["source"] = cell["source"].splitlines(keepends=True)


def newer(notebook):
    notebook.update(nbformat=6, nbformat_minor=1, something_new=True)
    for cell in notebook["cells"]:
        cell["something_new"] = [1]


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def zip_archive(good):
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        archive.writestr("work.ipynb", good)
    return memory.getvalue()


PICTURE = {"output_type": "display_data", "metadata": {}, "data": {"image/png": "A" * 6_000_000}}
PLAIN = {"cell_type": "code", "source": "x = 1", "metadata": {}, "outputs": [], "execution_count": None}
ODD_METADATA = {"tags": ["a,b", 3], "collapsed": "maybe", "name": "", "jupyter": 4}

# name -> (bytes of the good notebook -> bytes handed in, words of the remark or "" if there need be none)
MENDED = {
    "as it is": (lambda good: good, ""),
    "byte-order mark": (lambda good: b"\xef\xbb\xbf" + good, "byte-order mark"),
    "utf-16": (lambda good: good.decode().encode("utf-16"), "saved as UTF-16"),
    "utf-16 big end first": (lambda good: "\ufeff".encode("utf-16-be") + good.decode().encode("utf-16-be"), "UTF-16"),
    "utf-16 without a mark": (lambda good: good.decode().encode("utf-16-le"), "UTF-16"),
    "utf-32": (lambda good: good.decode().encode("utf-32"), "UTF-32"),
    "zero bytes at the end": (lambda good: good + b"\0" * 4096, "ended in zero bytes"),
    "windows line ends in the file": (lambda good: good.replace(b"\n", b"\r\n"), ""),
    "windows line ends in cells": (changed(in_windows), "Windows line endings"),
    "lines in lists": (changed(in_lines), ""),
    "zero characters": (with_text("\0"), "cell 1: zero characters"),
    "raw zero bytes in a text": (lambda good: with_text("@")(good).replace(b"@", b"\0", 1), "zero characters"),
    "half a character": (with_text("\ud800"), "not UTF-8"),
    "half a character, escaped": (lambda good: with_text("@@")(good).replace(b"@@", b"\\udc00"), "broken characters"),
    "one byte wrong": (lambda good: with_text("@@")(good).replace(b"@@", b"\xff"), "not UTF-8"),
    "nbformat 4.0": (changed(without_ids), ""),
    "nbformat 2": (old_format(2), "nbformat 2, of an old Jupyter"),
    "nbformat 3": (old_format(3), "nbformat 3, of an old Jupyter"),
    "nbformat 6": (changed(newer), "nbformat 6, newer"),
    "no nbformat": (changed(lambda n: n.pop("nbformat") and None), "does not say which format"),
    "nbformat as text": (changed(lambda n: n.update(nbformat="four")), "does not say which format"),
    "the same id everywhere": (with_every_id("a"), "an id that another cell has"),
    "illegal ids": (with_every_id("a b/c" * 99), "an id that another cell has or none may have"),
    "ids that are no text": (with_every_id(7), ""),
    "no metadata": (changed(lambda n: n.pop("metadata") and None), "has no metadata"),
    "metadata as list": (changed(lambda n: n.update(metadata=[1])), "has no metadata"),
    "unknown kernel": (with_metadata(kernelspec={"name": "ir", "display_name": "R", "language": "R"}), "saved for 'R'"),
    "kernel that is none": (with_metadata(kernelspec=[1], language_info="?"), "odd metadata of the notebook"),
    "widget state": (with_metadata(widgets={"state": ["x" * 100_000]}), ""),
    "huge metadata": (with_metadata(junk=["x" * 10] * 100_000), "metadata too large"),
    "deep metadata": (with_metadata(junk=nested(300)), "metadata too large or too deep"),
    "nan": (with_metadata(junk=float("nan"), more=float("inf")), "NaN or Infinity"),
    "huge numbers": (lambda good: good.replace(b"{", b'{"n": ' + b"9" * 5000 + b",", 1), "numbers too large"),
    "an exponent too large": (lambda good: good.replace(b"{", b'{"n": 1e999,', 1), "numbers too large"),
    "a name twice": (lambda good: good.replace(b"{", b'{"cells": [], "metadata": 3, ', 1), "names something twice"),
    "not a cell": (with_cells(None, 3, "text", []), "cells 1, 2, 3 and 4: not a cell"),
    "cell without metadata": (with_cells({"cell_type": "code", "source": "x = 1"}), "cell 1: no metadata"),
    "cell without text": (with_cells({"cell_type": "code", "metadata": {}}), "cell 1: no text"),
    "cell with a number": (with_cells({**PLAIN, "source": 42}), "cell 1: a number in place"),
    "cell with odd lines": (with_cells({**PLAIN, "source": ["x = 1\n", None, 3]}), "cell 1: lines that are no text"),
    "cell of unknown type": (with_cells({**PLAIN, "cell_type": "magic"}), "cell 1: of no known type, read as code"),
    "cell without type": (with_cells({"source": "x", "metadata": {}}), "cell 1: of no known type, read as raw"),
    "heading in nbformat 4": (
        with_cells({"cell_type": "heading", "source": "a\nb", "metadata": {}, "level": 10**9}),
        "",
    ),
    "outputs that are none": (with_output("garbage"), ""),
    "a picture in an output": (with_output(PICTURE), ""),
    "a text of 2 MB in a cell": (with_cells({**PLAIN, "source": "#" * 2_000_000}), "2 MB of text, left out"),
    "grading marks that are none": (with_cell_metadata({"nbgrader": ["grade"]}), "grading marks that are none"),
    "odd grading marks": (with_cell_metadata({"nbgrader": {"grade_id": [1], "points": "many"}}), ""),
    "odd cell metadata": (with_cell_metadata(ODD_METADATA), "cell 1: odd metadata"),
    "huge cell metadata": (with_cell_metadata({"junk": ["x"] * 100_000}), "cell 1: metadata too large"),
    "10,000 cells": (changed(lambda n: n["cells"].extend([PLAIN] * 10_000)), "has 10,"),
}

# name -> (bytes of the good notebook -> bytes handed in, words of the refusal)
REFUSED = {
    "empty": (lambda good: b"", "is empty"),
    "blank": (lambda good: b" \n\n", "is empty"),
    "only a mark": (lambda good: b"\xef\xbb\xbf", "is empty"),
    "zero bytes": (lambda good: b"\0" * 50_000, "nothing but zero bytes"),
    "cut off": (lambda good: good[: len(good) // 2], "is cut off (line"),
    "cut off in utf-16": (lambda good: good.decode().encode("utf-16")[:20_001], "is cut off (line"),
    "a comma too many": (lambda good: b'{"cells": [],\n "metadata": {},,}', "is not valid JSON (line 2: "),
    "scrap": (lambda good: b"{oops", "is not valid JSON (line 1: "),
    "zero bytes within": (lambda good: good[:100] + b"\0" * 500 + good[600:], "zero bytes"),
    "noise": (lambda good: bytes(range(1, 256)) * 9, "is not valid JSON"),
    "100,000 brackets": (lambda good: b"[" * 100_000, "nested too deeply"),
    "100,000 pairs of brackets": (lambda good: b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
    "a merge": (lambda good: b'{\n<<<<<<< HEAD\n "a": 1\n=======\n>>>>>>> b\n', "unresolved git merge (line 2)"),
    "a list": (lambda good: b"[1, 2]", "is JSON, but not a notebook"),
    "a number": (lambda good: b"3", "is JSON, but not a notebook"),
    "no cells": (lambda good: b'{"nbformat": 4}', "no list of cells"),
    "cells that are no list": (lambda good: b'{"nbformat": 4, "cells": {"0": 1}}', "no list of cells"),
    "worksheets of scrap": (lambda good: b'{"nbformat": 3, "worksheets": 3}', "no list of cells"),
    "nbformat 1": (lambda good: b'{"nbformat": 1, "cells": []}', "nbformat 1"),
    "nbformat 9, all new": (lambda good: b'{"nbformat": 9, "cells": [{"kind": "?"}]}', "nbformat 9, newer"),
    "30,000 cells": (lambda good: as_bytes({"nbformat": 4, "cells": [{}] * 30_000}), "has 30,000 cells"),
    "zip": (zip_archive, "is a zip archive"),
    "pdf": (lambda good: b"%PDF-1.7 ...", "is a PDF"),
    "picture": (lambda good: b"\x89PNG\r\n\x1a\n", "is a picture"),
    "html": (lambda good: b"<!DOCTYPE html>\n<html></html>", "is a web page"),
    "script": (lambda good: b"import torch\n\nx = 1\n", "is a Python script"),
    "jupytext": (lambda good: b"# ---\n# jupyter: 1\n# ---\n\n# %%\nx = 1\n", "is a Python script"),
}


def make_socket(path):
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket must be short
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(here)


def make_device(path):
    os.mknod(path, 0o020666, os.makedev(1, 5))  # /dev/zero, without end


def _may_make_devices():
    with tempfile.TemporaryDirectory() as folder:
        try:
            make_device(Path(folder, "zero"))
        except OSError:
            return False
    return True


# what it is called -> how to make it
ODD_THINGS = {"a folder": Path.mkdir, "a pipe": os.mkfifo, "a socket": make_socket}
if _may_make_devices():  # only root may
    ODD_THINGS["a device"] = make_device
