"""`autograde`: the instructor's commands."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from autograde.course import ROOT

app = typer.Typer(help="Build the notebooks, grade submissions, test the grader.", no_args_is_help=True)
console = Console()

Phases = Annotated[list[str] | None, typer.Argument(metavar="[PHASE]…", help="e.g. phase2_attention; none means all")]
Course = Annotated[Path, typer.Option(help="The course to work on.", show_default="this one")]
Student = Annotated[str | None, typer.Option(help="Only this student.")]


@app.command()
def build(
    phase: Phases = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; tell what differs.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite changed notebooks, keeping a copy.")] = False,
    course: Course = ROOT,
):
    """Turn the authored sources into solution notebooks and the release."""
    from autograde.build import BuildError, differences, render, write

    try:
        if check:
            found = differences(course, phase or ())
            _say("\n".join(found) or "Every notebook is what its source says.")
            raise typer.Exit(bool(found))
        built = render(course, phase or ())
        written, kept = write(course, built, force)
    except BuildError as error:
        _say(f"{error}")
        raise typer.Exit(1) from None
    _say("\n".join(f"warning: {text}" for text in built.warnings))
    _say("\n".join(f"wrote {path}" for path in written) or "Nothing to do: every notebook is up to date.")
    if kept:
        _say(f"The notebooks that were there before are kept in {kept}")


@app.command()
def grade(
    phase: Phases = None,
    student: Student = None,
    due: Annotated[str | None, typer.Option(help='Due date in UTC, e.g. "2026-03-01 18:00".')] = None,
    course: Course = ROOT,
):
    """Grade every submission under autograde/submitted/<student>/<phase>/."""
    from autograde import grade as grading
    from autograde.build import BuildError

    work = grading.submissions(course, phase or (), student)
    if not work:
        _say("Nothing to grade. Put notebooks into autograde/submitted/<student>/<phase>/<phase>.ipynb")
        raise typer.Exit(1)
    try:
        new = [name for name in sorted({name for _, name in work}) if grading.register(course, name, due)]
    except (BuildError, ValueError) as error:  # no such phase, or no such date
        _say(f"{error}")
        raise typer.Exit(1) from None
    _say("\n".join(f"{name} was not in the gradebook yet: recorded." for name in new))
    results = [grading.grade(course, *one) for one in track(work, "grading", console=console)]
    console.print(_table(results))
    raise typer.Exit(any(result.points is None for result in results))


@app.command()
def feedback(phase: Phases = None, student: Student = None, course: Course = ROOT):
    """Write a feedback page for every graded submission."""
    from autograde import grade as grading

    work = grading.autograded(course, phase or (), student)
    problems = {one: grading.write_feedback(course, *one) for one in track(work, "feedback", console=console)}
    for (who, name), problem in problems.items():
        if problem:
            _say(f"no feedback for {who}, {name}: {problem}")
    good = sum(problem is None for problem in problems.values())
    _say(f"{good} page(s) in autograde/feedback/<student>/<phase>/")
    raise typer.Exit(good < len(work) or not work)


@app.command()
def export(
    phase: Phases = None,
    to: Annotated[Path | None, typer.Option(help="The file to write.", show_default="autograde/grades.csv")] = None,
    course: Course = ROOT,
):
    """Write the grades as csv."""
    from autograde import grade as grading

    path = to or course / "autograde" / "grades.csv"
    grading.export(course, path, phase or ())
    _say(f"wrote {path}")


@app.command("kill-matrix", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def kill_matrix(context: typer.Context):
    """Show which wrong solutions each check rejects."""
    from autograde.kill_matrix import main

    raise typer.Exit(main(context.args))


def _say(text):
    if text:
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def _table(results):
    table = Table("student", "phase", "points", "of", "late", "note")
    for result in results:
        graded = result.points is not None
        late = str(timedelta(seconds=round(result.seconds_late))) if result.seconds_late else ""
        numbers = (f"{result.points:g}", f"{result.of:g}") if graded else ("–", "–")
        cells = (result.student, result.phase, *numbers, late, result.note)
        table.add_row(*map(escape, cells), style=None if graded else "red")
    return table
