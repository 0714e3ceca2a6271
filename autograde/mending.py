"""Plain cells -> a valid notebook of nbformat 4.5; what does not fit its schema is left out, cell by cell."""

import re
import warnings

import nbformat

from autograde.plaincells import OLD_KINDS, numbered

LEGAL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
PYTHON = {"name": "python3", "display_name": "Python 3", "language": "python"}


def valid_notebook(reading):
    """(notebook, remarks): valid, without outputs, each cell with an id of its own."""
    metadata, remarks = _known_metadata(reading.metadata)
    cells = [_cell(plain) for plain in _upgraded(reading)]
    remarks += _give_ids(cells)
    notebook = nbformat.from_dict({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells})
    if not _is_valid(notebook):
        remarks += _make_valid(notebook)
    return notebook, remarks


def _known_metadata(metadata):
    """The notebook's metadata with a kernel for Python."""
    kernel, language = metadata.get("kernelspec"), metadata.get("language_info")
    rest = {key: value for key, value in metadata.items() if key != "orig_nbformat"}
    named = [part.get(key) for part, key in ((kernel, "language"), (language, "name")) if isinstance(part, dict)]
    foreign = [name for name in named if isinstance(name, str) and "python" not in name.casefold()]
    if foreign:
        rest.pop("language_info", None)
        return {**rest, "kernelspec": PYTHON}, [f"it was saved for {ascii(foreign[0][:30])}; it is graded as Python"]
    if not isinstance(kernel, dict) or not all(isinstance(kernel.get(key), str) for key in ("name", "display_name")):
        return {**rest, "kernelspec": PYTHON}, []
    return rest, []


def _upgraded(reading):
    """The cells, those of an old format made new by nbformat."""
    old = [cell for cell in reading.cells if reading.nbformat < 4 or cell["cell_type"] in OLD_KINDS]
    sheet = {"cells": [_old_cell(plain) for plain in old], "metadata": {}}
    before = {
        "nbformat": min(reading.nbformat, 3),
        "nbformat_minor": 0,
        "metadata": {"name": ""},
        "worksheets": [sheet],
    }
    new = nbformat.convert(nbformat.from_dict(before), 4).cells if old else []
    for plain, cell in zip(old, new, strict=True):
        plain.update(cell_type=cell.cell_type, source=cell.source)
    return reading.cells


def _old_cell(plain):
    kind = plain["cell_type"]
    if kind == "code":
        return {"cell_type": kind, "metadata": {}, "input": plain["source"], "language": "python", "outputs": []}
    level = {"level": plain["level"]} if kind == "heading" else {}
    return {"cell_type": kind, "metadata": {}, "source": plain["source"], **level}


def _cell(plain):
    cell = {"id": plain.get("id"), **{key: plain[key] for key in ("cell_type", "metadata", "source")}}
    if plain["cell_type"] == "code":
        return {**cell, "execution_count": None, "outputs": []}
    return {**cell, "attachments": plain["attachments"]} if plain.get("attachments") else cell


def _give_ids(cells):
    """Keep the first of each legal id; other cells are called by their grade id or their place."""
    seen, changed, missing = set(), [], {None}
    for number, cell in enumerate(cells, 1):
        if isinstance(cell["id"], str) and LEGAL_ID.fullmatch(cell["id"]) and cell["id"] not in seen:
            seen.add(cell["id"])
            continue
        if cell["id"] not in missing:
            changed.append(number)
        cell["id"] = None
    for number, cell in enumerate(cells, 1):
        if cell["id"] is None:
            marks = cell["metadata"].get("nbgrader", {}).get("grade_id")
            wished = marks if isinstance(marks, str) and LEGAL_ID.fullmatch(marks) else f"cell-{number}"
            cell["id"] = next(name for name in _names(wished[:50]) if name not in seen)
            seen.add(cell["id"])
    return [f"{numbered(changed)}: an id that another cell has or none may have, given a new one"] if changed else []


def _names(wished):
    yield wished
    for number in range(2, 10**9):
        yield f"{wished}-{number}"


def _is_valid(notebook):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            nbformat.validate(notebook)
    except (nbformat.ValidationError, Warning):
        return False
    return True


def _make_valid(notebook):
    """Leave out whatever the schema does not allow; returns remarks."""
    changed, remarks = [], []
    for number, cell in enumerate(notebook.cells, 1):
        if not _is_valid_alone(notebook, [cell]):
            changed.append(number)
            cell.pop("attachments", None)
            cell.metadata = nbformat.from_dict(_core(cell.metadata))
    if changed:
        remarks.append(f"{numbered(changed)}: odd metadata, left out")
    if not _is_valid_alone(notebook, []):
        notebook.metadata = nbformat.from_dict({"kernelspec": PYTHON})
        remarks.append("odd metadata of the notebook, left out")
    return remarks


def _is_valid_alone(notebook, cells):
    metadata = {} if cells else notebook.metadata
    return _is_valid(nbformat.from_dict({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells}))


def _core(metadata):
    """What grading needs of a cell's metadata."""
    tags = metadata.get("tags")
    tags = (
        [tag for tag in tags if isinstance(tag, str) and tag.strip(",\n") == tag != ""]
        if isinstance(tags, list)
        else []
    )
    kept = {"tags": [tag for tag in dict.fromkeys(tags) if "," not in tag]} if tags else {}
    return {**kept, "nbgrader": metadata["nbgrader"]} if "nbgrader" in metadata else kept
