"""`autograde`: the instructor's commands."""

from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TimeRemainingColumn, track
from rich.table import Table
from rich.text import Text

from autograde.course import here

app = typer.Typer(help="Build the notebooks, grade submissions, test the grader.", no_args_is_help=True)
console = Console()

Phases = Annotated[list[str] | None, typer.Argument(metavar="[PHASE]…", help="e.g. phase2_attention; none means all")]
Course = Annotated[
    Path | None,
    typer.Option(
        help="The course to work on.",
        show_default="the one you stand in, or this one",
        callback=lambda path: path or here(),
    ),
]
Students = Annotated[list[str] | None, typer.Option(help="Only these students: a,b or given several times.")]


@app.command()
def build(
    phase: Phases = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; tell what differs.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite changed notebooks, keeping a copy.")] = False,
    course: Course = None,
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
def draw(course: Course = None):
    """Paint the still pictures of the figures to play with, which GitHub shows. Then run build."""
    from autograde import pictures
    from autograde.source import solution_notebook

    page, _ = solution_notebook(course / "solutions" / "pages" / "figures.py", graded=False)
    for path in pictures.draw(course, pictures.names(page.cells), partial(track, description="Painting")):
        _say(f"painted {path}")


@app.command()
def address(
    repository: Annotated[str | None, typer.Argument(show_default="git's remote `origin`")] = None,
    course: Course = None,
):
    """Say where the course lies on GitHub, so that its notebooks open in Colab and Codespaces. Then run build."""
    from autograde.colab import AddressError, pages, remote, set_address

    try:
        page = set_address(course, repository or remote(course))
    except AddressError as error:
        _say(f"{error}")
        raise typer.Exit(1) from None
    _say(f"Repository = {page}, in pyproject.toml. Now: autograde build, commit, push.")
    _say(f"Colab: {pages(page)}\nCodespaces: {page.replace('github.com', 'codespaces.new')}")


@app.command()
def grade(
    phase: Phases = None,
    students: Students = None,
    due: Annotated[str | None, typer.Option(help='Due date in UTC, e.g. "2026-03-01 18:00".')] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes of this machine that mark.")] = 1,
    scheduler: Annotated[str | None, typer.Option(metavar="TCP://…", help="Mark on a dask cluster.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an earlier run was stopped.")] = False,
    seed_from: Annotated[
        str | None,
        typer.Option(help="course: the same inputs for all; student: own ones.", show_default="as configured: course"),
    ] = None,
    backup: Annotated[bool, typer.Option(help="Copy the gradebook first.")] = True,
    trusted: Annotated[
        bool, typer.Option("--i-trust-these-submissions", help="Allow grading without any sandbox.")
    ] = False,
    course: Course = None,
):
    """Grade every submission under autograde/submitted/<student>/<phase>/.

    Exit status: 0 all graded, 1 some could not be, 2 nothing to do or no such phase or date, 3 stopped early.
    """
    from autograde import grade as grading

    if seed_from not in (None, "course", "student"):
        raise typer.BadParameter("course or student", param_hint="--seed-from")
    work = grading.submissions(course, phase or (), _names(students))
    if not work:
        _say("Nothing to grade. Put notebooks into autograde/submitted/<student>/<phase>/<phase>.ipynb")
        raise typer.Exit(2)
    own_seeds = None if seed_from is None else seed_from == "student"
    options = {"resume": resume, "workers": workers, "scheduler": scheduler, "own_seeds": own_seeds}
    results = _graded_now(course, work, due, backup, options | {"trusted": trusted or None})
    console.print(_table(results))
    raise typer.Exit(int(any(result.points is None for result in results)))


def _graded_now(course, work, due, backup, options):
    """The results of a run over `work`."""
    from autograde import grade as grading

    with _stops():
        if backup and (copy := grading.back_up_gradebook(course)):
            _say(f"The gradebook as it was is kept in {copy}")
        new = grading.register_all(course, {name for _, name in work}, due)
        _say("\n".join(f"{name} was not in the gradebook yet: recorded." for name in new))
        with grading.Run(course, **options) as run:
            _say(run.banner)
            return _followed(run.grade(work), len(work))


@contextmanager
def _stops():
    """What ends a run early, in a sentence and an exit status."""
    from autograde import grade as grading

    try:
        yield
    except grading.NOT_STARTED as error:
        _say(f"{error}")
        raise typer.Exit(2) from None
    except grading.STOPPED as error:
        _say(f"Stopped: {error}")
        raise typer.Exit(3) from None
    except KeyboardInterrupt:
        _say("Stopped. What is graded is recorded; go on with --resume.")
        raise typer.Exit(3) from None


def _followed(results, total):
    """All results, with a progress bar, and a line for each that needs a look."""
    done = []
    columns = ("[progress.description]{task.description}", BarColumn(), MofNCompleteColumn(), RateColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        bar = progress.add_task("grading", total=total)
        for result in results:
            done.append(result)
            progress.advance(bar)
            if result.points is None or result.suspicious:
                _say(f"{result.student}, {result.phase}: {result.notes[0]}")
    return sorted(done, key=lambda result: (result.phase, result.student))


class RateColumn(ProgressColumn):
    """Submissions per minute."""

    def render(self, task):
        return Text(f"{60 * task.speed:.0f}/min" if task.speed else "", style="progress.data.speed")


@app.command()
def feedback(phase: Phases = None, students: Students = None, course: Course = None):
    """Write a feedback page for every graded submission."""
    from autograde import grades

    work = _graded(course, phase, students)
    problems = {one: grades.write_feedback(course, *one) for one in track(work, "feedback", console=console)}
    for (who, name), problem in problems.items():
        if problem:
            _say(f"no feedback for {who}, {name}: {problem}")
    good = sum(problem is None for problem in problems.values())
    _say(f"{good} page(s) in autograde/feedback/<student>/<phase>/")
    raise typer.Exit(good < len(work) or not work)


@app.command()
def report(
    phase: Phases = None,
    to: Annotated[Path | None, typer.Option(help="The folder to write.", show_default="autograde/reports")] = None,
    course: Course = None,
):
    """Who is stuck where, who wrote alike, who may have used a library: csv and html, for your eyes."""
    from autograde.delegation import delegation_report
    from autograde.report import class_report
    from autograde.similarity import similarity_report

    names = sorted({name for _, name in _graded(course, phase, ())})
    if not names:
        _say("Nothing is graded yet: run autograde grade.")
        raise typer.Exit(2)
    folder = to or course / "autograde" / "reports"
    makers = (class_report, similarity_report, delegation_report)
    work = list(product(names, makers))
    made = [make(course, name, folder) for name, make in track(work, "reports", console=console)]
    for paths, shown in made:
        for one in shown:
            console.print(one)
        _say("\n".join(f"wrote {path}" for path in paths))


@app.command()
def export(
    phase: Phases = None,
    to: Annotated[Path | None, typer.Option(help="The file to write.", show_default="autograde/grades.csv")] = None,
    canvas: Annotated[Path | None, typer.Option(help="A gradebook downloaded from Canvas, to be filled in.")] = None,
    column: Annotated[str | None, typer.Option(help="Its column: the assignment's name or number.")] = None,
    course: Course = None,
):
    """Write the grades as csv; with --canvas, into a copy of a gradebook that was downloaded from Canvas."""
    from autograde import grades
    from autograde.canvas import CanvasError

    if canvas is None:
        path = to or course / "autograde" / "grades.csv"
        grades.export(course, path, phase or ())
        _say(f"wrote {path}\n{grades.unread(course, phase or ())}".rstrip())
        return
    names = phase or sorted({name for _, name in _graded(course, phase, ())})
    if len(names) != 1:
        raise typer.BadParameter("name the one phase whose grades go into that column", param_hint="PHASE")
    path = to or course / "autograde" / f"canvas-{names[0]}.csv"
    try:
        merged = grades.export_to_canvas(course, names[0], canvas, column or names[0], path)
    except (CanvasError, OSError) as error:
        _say(f"{error}")
        raise typer.Exit(1) from None
    _say("\n".join(filter(None, [*merged.lines(), grades.unread(course, names)])))


@app.command()
def release(
    phase: Annotated[str, typer.Argument(help="The phase the class is at, e.g. phase2_attention")],
    to: Annotated[Path | None, typer.Option(help="The zip to write.", show_default="build/")] = None,
    course: Course = None,
):
    """Make the zip a class is handed: checks that work, without solutions, hidden cases or later answers."""
    from autograde.build import BuildError
    from autograde.release import release as make

    try:
        path = make(course, phase, to, partial(track, description="exams", console=console))
    except BuildError as error:
        _say(f"{error}")
        raise typer.Exit(1) from None
    _say(f"wrote {path}")


@app.command()
def doctor():
    """Try the sandbox of this machine: what holds, what does not, and the command that mends it."""
    from autograde.doctor import report as examine
    from autograde.doctor import tier

    with console.status("trying to get out of the sandbox"):
        found = tier()
    raise typer.Exit(examine(console, found))


@app.command("kill-matrix", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def kill_matrix(context: typer.Context):
    """Show which wrong solutions each check rejects."""
    from autograde.kill_matrix import main

    raise typer.Exit(main(context.args))


def _graded(course, phase, students):
    """(student, phase) of every graded submission that was asked for."""
    from autograde import grades

    return grades.autograded(course, phase or (), _names(students))


def _names(students):
    return [name.strip() for one in students or () for name in one.split(",") if name.strip()]


def _plain(text):
    """Without the codes by which the name of a folder could rewrite a terminal."""
    if text.replace("\n", "").isprintable():
        return text
    from utils.observe import codec  # brings torch

    return codec.printable(text, "\n")


def _say(text):
    if text:
        console.print(_plain(text), markup=False, highlight=False, soft_wrap=True)


def _table(results):
    table = Table("student", "phase", "points", "of", "late", "note")
    for result in results:
        graded = result.points is not None
        late = str(timedelta(seconds=round(result.seconds_late))) if result.seconds_late else ""
        numbers = (f"{round(result.points, 2):g}", f"{result.of:g}") if graded else ("–", "–")
        cells = (result.student, result.phase, *numbers, late, "\n".join(result.notes))
        table.add_row(*(escape(_plain(cell)) for cell in cells), style=None if graded else "red")
    return table
