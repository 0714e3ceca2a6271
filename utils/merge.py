"""Merge a new release of a notebook into a learner's copy, cell by cell.

Pure: notebooks in, notebook and a list of changes out. The release gives the order and its own text and checks; the
learner's answers, edits and added cells stay. `base` holds the fingerprints of the release that the copy last saw, so
that a cell which the learner edited can be told from one that is merely old.
"""

import copy
import hashlib
from collections import defaultdict

from nbformat import from_dict
from nbformat.v4 import new_markdown_cell

KEPT = "kept-from-earlier"
KEPT_TEXT = "## Kept from earlier releases\nThe lesson no longer has these cells. They are yours: keep or delete them."
BESIDE_TEXT = "*The cell above is new in this release. This is your earlier version of it:*\n\n"
RELEASE_KEYS = ("nbgrader", "tags", "deletable", "editable")  # metadata that only a release sets


def fingerprint(cell):
    return hashlib.sha256(f"{cell.cell_type}\n{cell.source.strip()}".encode()).hexdigest()[:16]


def fingerprints(notebook):
    """What the next merge needs to know of this release: cell id -> fingerprint."""
    return {cell.id: fingerprint(cell) for cell in notebook.cells}


def merge(mine, release, base):
    """Bring a learner's notebook up to a release.

    mine, release: notebooks (nbformat 4); base: {cell id: fingerprint} of the release merged last, or {}
    Returns the merged notebook and its changes, a list of (kind, cell id). Merging again changes nothing.
    """
    return _Merge(mine, release, base).result()


def is_answer(cell):
    """A cell that the learner fills in: a solution, a written answer, a reflection (the build names it reflect-…)."""
    return bool(cell.metadata.get("nbgrader", {}).get("solution")) or cell.get("id", "").startswith("reflect-")


def is_locked(cell):
    grading = cell.metadata.get("nbgrader", {})
    return bool((grading.get("locked") or grading.get("grade")) and not grading.get("solution"))


class _Merge:
    def __init__(self, mine, release, base):
        self.mine, self.release, self.base = mine, release, base
        self.current = {cell.id: cell for cell in release.cells}
        self.by_grade = {_grade_id(cell): cell.id for cell in release.cells if _grade_id(cell)}
        self.changes = []
        self.claimed = self._claim()  # position in mine -> cell id of this release or an earlier one
        self.theirs = {name: mine.cells[at] for at, name in self.claimed.items() if name in self.current}
        self.used = set(self.current)  # ids that are taken

    def result(self):
        added, retired = self._sort_out_the_rest()
        cells = added[None]
        for cell in self.release.cells:
            cells += self._merged(cell) + added[cell.id]
        cells += self._kept(retired, cells)
        if [name for name in self.claimed.values() if name in self.current] != [
            cell.id for cell in self.release.cells if cell.id in self.theirs
        ]:
            self.changes.append(("back in order", "cells"))
        merged = copy.copy(self.mine)
        merged.cells = cells
        kernel = {key: self.mine.metadata[key] for key in ("kernelspec", "language_info") if key in self.mine.metadata}
        merged.metadata = {**self.mine.metadata, **self.release.metadata, **kernel}
        merged.nbformat_minor = max(self.mine.nbformat_minor, self.release.nbformat_minor)
        return from_dict(merged), self.changes

    def _claim(self):
        """Which cell of a release each of the learner's cells is: by id first, then by grade id, then by its text."""
        by_text = {fingerprint(cell): cell.id for cell in self.release.cells if cell.source.strip()}
        by_text = {**{text: name for name, text in self.base.items()}, **by_text}
        tests = (
            lambda cell: cell.get("id"),
            lambda cell: self.by_grade.get(_grade_id(cell), _grade_id(cell)),
            lambda cell: cell.metadata.get("id"),  # where Colab keeps it
            lambda cell: by_text.get(fingerprint(cell)),
        )
        claimed = {}
        for test in tests:
            for at, cell in enumerate(self.mine.cells):
                name = test(cell)
                if at not in claimed and (name in self.current or name in self.base) and name not in claimed.values():
                    claimed[at] = name
        return dict(sorted(claimed.items()))

    def _sort_out_the_rest(self):
        """Cells the learner added, by the cell they stand under; and cells that this release no longer has."""
        added, retired, above = defaultdict(list), [], None
        for at, cell in enumerate(self.mine.cells):
            name = self.claimed.get(at)
            if name in self.current:
                above = name
            elif name is not None or self._of_an_unknown_release(cell):
                retired.append((name or _grade_id(cell), cell))
            else:
                added[above].append(self._own(cell))
        return added, retired

    def _of_an_unknown_release(self, cell):
        """An nbgrader cell that is neither in a known release nor a pasted copy of a cell that is."""
        name = self.by_grade.get(_grade_id(cell), _grade_id(cell))
        return name is not None and name not in self.claimed.values()

    def _edited(self, name, cell):
        """Did the learner change it? None if that cannot be known."""
        return self.base[name] != fingerprint(cell) if name in self.base else None

    def _merged(self, new):
        """The cells that stand in the place of one cell of the release."""
        old = self.theirs.get(new.id)
        if old is None:
            self.changes.append(("put back" if new.id in self.base else "new", new.id))
            return [copy.deepcopy(new)]
        if fingerprint(old) == fingerprint(new):
            return [_combined(new, old)]
        edited, news = self._edited(new.id, old), self._edited(new.id, new)
        if is_answer(new) and edited is not False:
            if news:
                self.changes.append(("yours kept", new.id))
            return [_combined(new, old)]
        if edited and not news and not is_locked(new):
            return [_combined(new, old)]
        self.changes.append(("replaced", new.id))
        if edited and not is_locked(new):
            return [copy.deepcopy(new), self._beside(old)]
        return [copy.deepcopy(new)]

    def _kept(self, retired, cells):
        """Work on what this release no longer has: kept at the end, under a heading."""
        kept = []
        for name, cell in retired:
            edited = self._edited(name, cell)
            if (is_answer(cell) and edited is not False) or (edited and not is_locked(cell)):
                self.changes.append(("moved to the end", name))
                kept.append(self._own(cell))
            else:
                self.changes.append(("removed", name))
        if kept and not any(cell.id == KEPT for cell in cells):
            self.used.add(KEPT)
            kept.insert(0, new_markdown_cell(KEPT_TEXT, id=KEPT))
        return kept

    def _own(self, cell):
        """A cell that from now on belongs to the learner alone: no grading data, and an id of its own."""
        cell = copy.deepcopy(cell)
        for key in RELEASE_KEYS:
            cell.metadata.pop(key, None)
        cell.id = self._free_id(cell.get("id") or fingerprint(cell))
        return cell

    def _beside(self, old):
        text = old.source if old.cell_type == "markdown" else f"```python\n{old.source}\n```"
        cell = new_markdown_cell(BESIDE_TEXT + text, id=self._free_id(f"mine-{fingerprint(old)}"))
        if "attachments" in old:
            cell.attachments = old.attachments
        return cell

    def _free_id(self, wanted):
        name, number = wanted, 2
        while name in self.used:
            name, number = f"{wanted[:56]}-{number}", number + 1
        self.used.add(name)
        return name


def _grade_id(cell):
    return cell.metadata.get("nbgrader", {}).get("grade_id")


def _combined(new, old):
    """The release's cell with the learner's text, outputs and view settings."""
    cell = copy.deepcopy(new)
    cell.source = old.source if fingerprint(old) != fingerprint(new) else new.source
    theirs = {key: value for key, value in old.metadata.items() if key not in RELEASE_KEYS}
    cell.metadata = {**theirs, **cell.metadata}
    if cell.cell_type == old.cell_type == "code":
        cell.outputs, cell.execution_count = old.outputs, old.execution_count
    if "attachments" in old:
        cell.attachments = old.attachments
    return cell
