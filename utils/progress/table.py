"""The standing as a table: HTML in a notebook, text in a terminal. A mark, a word, never a colour alone."""

import html
import io
from collections import Counter

from rich.console import Console
from rich.table import Table as RichTable

from utils.progress.standing import DONE, OPEN, PARTLY, phases_of

MARKS = {DONE: "✓", PARTLY: "◐", OPEN: "○"}


class Table:
    """What progress() returns. Printing it, or leaving it as a cell's last value, shows it."""

    def __init__(self, standing, details=False):
        self.standing, self.details = standing, details

    def __str__(self):
        console = Console(file=io.StringIO(), width=110, highlight=False, markup=False)
        console.print(self._phases())
        if self.details:
            for _, title, rows in phases_of(self.standing):
                console.print(f"\n{title}")
                console.print(self._exercises(rows))
        console.print("\n" + "\n".join([LEGEND, *self.next_lines()]))
        return console.file.getvalue().rstrip()

    __repr__ = __str__

    def _phases(self):
        table = RichTable("phase", "exercises", "points", "core left", "cards due", box=None, pad_edge=False)
        for _, title, rows in phases_of(self.standing):
            number = rows[0].task.number
            marks = "".join(MARKS[row.state] for row in rows)
            due = self.standing.due.get(number, 0)
            table.add_row(f"{number} {title}", marks, points(rows), minutes_left(rows), str(due or "–"))
        return table

    def _exercises(self, rows):
        table = RichTable("", "section", "exercise", "path", "points", "minutes", "checks", box=None, pad_edge=False)
        for row in rows:
            task = row.task
            worth = f"{row.points:g}/{task.points:g}"
            table.add_row(
                f"{MARKS[row.state]} {row.state}",
                *(task.section, task.name, task.path, worth, str(task.minutes), str(row.tries or "–")),
            )
        return table

    def next_lines(self):
        """What to do next, in a sentence or two."""
        lines, due = list(self.standing.said), sum(self.standing.due.values())
        if due:
            minutes = max(1, round(self.standing.minutes_due))
            lines.append(f"Next: {due} card{'s' * (due > 1)} due, about {minutes} min: workbook drill")
        row = self.standing.next_exercise()
        if row is None:
            lines.append("Every exercise is done.")
        else:
            again = "go on with" if row.state == PARTLY else "build"
            lines.append(
                f"{'Then' if due else 'Next'}: {again} {row.task.name}, section {row.task.section},"
                f" about {row.task.minutes} min: {row.task.phase}/{row.task.phase}.ipynb"
            )
        return lines

    def _repr_html_(self):
        head = "".join(f"<th>{name}</th>" for name in ("phase", "exercises", "points", "core left", "cards due"))
        rows = "".join(self._html_row(title, rows) for _, title, rows in phases_of(self.standing))
        lines = "".join(f"<p>{html.escape(line)}</p>" for line in self.next_lines())
        table = f"<caption>{LEGEND}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
        return f"<table style='text-align:left'>{table}</table>{lines}"

    def _html_row(self, title, rows):
        number = rows[0].task.number
        counts = Counter(row.state for row in rows)
        summary = " · ".join(f"{MARKS[state]} {counts[state]} {state}" for state in MARKS if counts[state])
        items = "".join(
            f"<li>{MARKS[row.state]} <code>{row.task.name}</code> {row.task.section} · {row.state} · "
            f"{row.points:g}/{row.task.points:g} points · {row.task.minutes} min · {row.task.path}</li>"
            for row in rows
        )
        details = f"<details><summary>{summary}</summary><ul style='list-style:none'>{items}</ul></details>"
        cells = (
            f"{number} {html.escape(title)}",
            details,
            points(rows),
            minutes_left(rows),
            str(self.standing.due.get(number, 0) or "–"),
        )
        return (
            "<tr>" + "".join(f"<td style='text-align:left;vertical-align:top'>{cell}</td>" for cell in cells) + "</tr>"
        )


LEGEND = f"{MARKS[DONE]} done   {MARKS[PARTLY]} partly   {MARKS[OPEN]} open"


def points(rows):
    return f"{sum(row.points for row in rows):g}/{sum(row.task.points for row in rows):g}"


def minutes_left(rows):
    """Minutes of the core path that are still to do; estimates."""
    left = sum(row.task.minutes for row in rows if row.task.path == "core" and row.state != DONE)
    return f"{left} min" if left else "–"
