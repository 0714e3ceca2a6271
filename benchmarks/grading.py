"""What does grading a class cost? `python -m benchmarks.grading --submissions N --out FILE` measures four ways.

stock   nbgrader's own `nbgrader autograde`, as it is after installing: a kernel for each submission, the checks in it
ours    `autograde grade`, full sandbox, one worker; `ours_2_workers` with two
floor   the same cells, checks included, each submission in a fork of one warm process: no walls, no gradebook

Submissions are synthetic and honest (benchmarks/synthetic.py); all ways but ours get only the first of them (FEW). The
other phases get a small class each, and ours one of --blank submissions in which nothing was done: what the grader
itself does for each is the same, so it shows whether a long run grows dearer (`more` in the json).

Scores are compared exercise by exercise, but for points that a file handed in earns, of which a synthetic student has
none (`not_compared`): stock gives them for what its kernel trains, until the 30 s it has for a cell are over.

CPU seconds are those of all processes, read from the kernel while they still live: the grader, its workers, the warm
process of each sandbox with all children it has waited for; what a child used that had to be killed is not known, and
honest ones end by themselves. Starting (imports, drawing the papers, the first WARM submissions, one of each kind) is
told apart as `start_s`; for stock, the numbers are the difference between two runs. `stretches` are the CPU seconds
per submission among the first and the last STRETCH: does it cost more as the gradebook fills? Memory is the sum of
the proportional set sizes of all processes, looked at every 0.2 s. All run with one thread each.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path

import nbformat
import psutil
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from autograde.course import ROOT
from benchmarks.kept import keep
from benchmarks.peak import Peak, alone, family
from benchmarks.synthetic import KINDS, PHASE, copy_of, hand_in, handed_in, is_check, scores
from utils.workspace import PHASES

WARM = len(KINDS)
FEW = {"stock": 8, "floor": 40, "ours_2_workers": 100}  # else it takes an hour; a submission costs the same each time
FEW_OF_OTHERS = {"stock": 4, "floor": 12}
OTHERS = 20  # submissions of each phase but PHASE
STRETCH = 20  # submissions; all kinds are in it equally often
console = Console(stderr=True)

# ---- what is measured, each in a process of its own ----------------------------------------------


def used():
    """(CPU seconds of this process and all below it that still live or were waited for, wall seconds)."""
    this, total = psutil.Process(), 0.0
    for process in (this, *this.children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])  # user, system, and the same of children it has waited for
        except psutil.Error:
            continue
    return total, time.monotonic()


def follow(results, count):
    """Count results as they come. Returns the numbers of all but the first WARM, which are part of starting."""
    stretch, looked = min(STRETCH, count - WARM), {}
    for done, _ in enumerate(results, 1):
        print(f"done {done}", flush=True)
        if done == WARM:
            start = time.time() - psutil.Process().create_time()
        if done in (WARM, WARM + stretch, count - stretch, count):
            looked[done] = used()  # the last time before what is still alive ends, and takes its times with it

    def each(begin, end, what):
        return (looked[end][what] - looked[begin][what]) / (end - begin)

    stretches = (each(WARM, WARM + stretch, 0), each(count - stretch, count, 0))
    return {
        "cpu_s_per_submission": each(WARM, count, 0),
        "wall_s_per_submission": each(WARM, count, 1),
        "start_s": start,
        "stretches": [round(cpu, 4) for cpu in stretches],
    }


def ours(root, phase, students, workers=1):
    """`autograde grade`, without its command line."""
    from autograde.grade import Run

    with Run(root, workers=workers) as run:
        return follow(run.grade([(student, phase) for student in students]), len(students))


def floor(root, phase, students):
    """Run all cells in a fork of this process, which has run one submission of each kind itself."""
    from autograde import cells, inside

    cells.prepare()
    inside.warm_up()
    shell, found = cells.shell(), {}

    def results():
        for student in students:
            notebook = nbformat.read(handed_in(root, student, phase), as_version=4)
            found[student] = (_bare if len(found) < WARM else _forked)(shell, notebook)
            yield student

    return follow(results(), len(students)) | {"scores": found}


def _bare(shell, notebook):
    """{exercise: points} after running the cells here."""
    from autograde import cells

    found = {}
    for cell in notebook.cells:
        if cell.cell_type == "code" and "demo" not in cell.metadata.get("tags", ()):
            outputs = cells.run(shell, cell.source, 600)["outputs"]
            if is_check(cell):
                values = [
                    output["data"]["text/plain"] for output in outputs if output["output_type"] == "execute_result"
                ]
                found[cell.metadata.nbgrader.grade_id] = float(values[-1]) if values else 0.0
    return found


def _forked(shell, notebook):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, json.dumps(_bare(shell, notebook)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def stock(root, phase, students):
    """`nbgrader autograde`, for the first student, then for all of them: the difference is what the others cost."""

    def graded(*options):
        before = used()
        command = [sys.executable, "-m", "nbgrader", "autograde", phase, "--force", *options]
        subprocess.run(command, cwd=root, check=True, capture_output=True)
        return [after - start for after, start in zip(used(), before, strict=True)]

    first = graded("--student", students[0])
    print("done 1", flush=True)
    whole = graded()
    print(f"done {len(students)}", flush=True)
    cpu, wall = ((whole[i] - first[i]) / (len(students) - 1) for i in (0, 1))
    return {"cpu_s_per_submission": cpu, "wall_s_per_submission": wall, "start_s": first[1] - wall}


WAYS = {
    "stock": stock,
    "ours": ours,
    "ours_2_workers": partial(ours, workers=2),
    "floor": floor,
}


# ---- the one who measures ------------------------------------------------------------------------


def measured(way, root, phase, students, bar=lambda done: None):
    """Run one way in a fresh process. Returns its numbers, with `peak_mib` and `scores`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.grading", "--way", way, str(root), phase, ",".join(students)],
        cwd=root,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with Peak(lambda: sum(map(_memory, family(process.pid)))) as peak, process:
        for line in process.stdout:
            if line.startswith("done "):
                bar(int(line.split()[1]))
            else:
                numbers = json.loads(line)
    if process.returncode:
        raise RuntimeError(f"{way} ended with status {process.returncode}")
    numbers = {key: round(value, 4) if isinstance(value, float) else value for key, value in numbers.items()}
    return {"scores": scores(root, phase)} | numbers | {"submissions": len(students), "peak_mib": round(peak.mib)}


def _memory(process):
    """What a process holds, and its part of what it shares; if it may not be looked into, what it holds alone."""
    try:
        return process.memory_full_info().pss
    except psutil.Error:
        return alone(process)


def benchmark(count, phase=PHASE, few=FEW, ways=tuple(WAYS), kinds=KINDS):
    """All ways on one class. Returns their numbers."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder, _progress() as progress:
        template = Path(folder).resolve() / "template"
        students = hand_in(template, WARM + count, phase, kinds)
        for way in ways:
            chosen = students[: WARM + min(few.get(way, count), count)]
            if way == "stock":
                chosen = chosen[WARM:]
            bar = progress.add_task(f"{phase} {way}", total=len(chosen))
            root = copy_of(template, way, stock=way == "stock")
            _keep_only(root, chosen)
            found[way] = measured(way, root, phase, chosen, lambda done, bar=bar: progress.update(bar, completed=done))
    return found


def _keep_only(root, students):
    for folder in (root / "autograde" / "submitted").iterdir():
        if folder.name not in students:
            shutil.rmtree(folder)


def _progress():
    columns = ("[progress.description]{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console)


def report(found):
    """What is written down of one class: the ways' numbers, whether their scores agree, ratios."""
    from utils.checks.deliveries import DELIVERIES  # brings torch, which the process of a way must not hold

    given = {way: numbers["scores"] for way, numbers in found.items()}
    pairs = [(given["ours"], scores) for way, scores in given.items() if way != "ours" and "ours" in given]
    found = {way: {key: value for key, value in numbers.items() if key != "scores"} for way, numbers in found.items()}
    left_out = sorted({name for scores in given.values() for row in scores.values() for name in row} & set(DELIVERIES))
    compared = [
        [_points(scores[who], left_out) == _points(ours[who], left_out) for who in scores if who in ours]
        for ours, scores in pairs
    ]
    same = all(compared) and all(map(all, compared))
    return {
        **found,
        **({"identical_scores": same, "scores_compared": sum(map(len, compared))} if pairs else {}),
        **({"not_compared": left_out} if left_out else {}),
        "ratios": {what: round(value, 2) for what, value in _ratios(found)},
        **where(),
    }


def _ratios(found):
    cpu = {way: numbers["cpu_s_per_submission"] for way, numbers in found.items()}
    if {"stock", "ours"} <= cpu.keys():
        yield "stock / ours, CPU", cpu["stock"] / cpu["ours"]
    if {"ours", "floor"} <= cpu.keys():
        yield "ours / floor, CPU", cpu["ours"] / cpu["floor"]
    if {"ours", "ours_2_workers"} <= cpu.keys():
        one, two = (found[way]["wall_s_per_submission"] for way in ("ours", "ours_2_workers"))
        yield "1 worker / 2 workers, wall", one / two
    if "stretches" in found.get("ours", {}):
        first, last = found["ours"]["stretches"]
        yield "last / first stretch, CPU", last / first


def _points(exercises, left_out):
    return {name: round(points or 0.0, 4) for name, points in exercises.items() if name not in left_out}


def where():
    """Machine, versions, date."""
    return {
        "date": datetime.date.today().isoformat(),
        "device": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "nbgrader", "ipykernel")},
    }


def table(found):
    """Numbers as a Markdown table."""
    lines = ["| | CPU s per submission | wall s per submission | start s | peak MiB |", "|---|---|---|---|---|"]
    for way, numbers in found.items():
        if isinstance(numbers, dict) and "peak_mib" in numbers:
            cells = [numbers[key] for key in ("cpu_s_per_submission", "wall_s_per_submission", "start_s")]
            cells = [f"{value:.3f}" for value in cells[:2]] + [f"{cells[2]:.1f}", str(numbers["peak_mib"])]
            lines.append(f"| {way.replace('_', ' ')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def parts(options):
    """(name, how to measure it) of the json's parts: the class, a small one of each other phase, many blank ones."""
    if options.submissions:
        yield "", partial(benchmark, options.submissions)
    for phase in options.phases if options.others else ():
        if phase != PHASE and (ROOT / "solutions" / phase).is_dir():
            yield phase, partial(benchmark, options.others, phase, FEW_OF_OTHERS, ("stock", "ours", "floor"))
    if options.blank:
        yield "blank", partial(benchmark, options.blank, ways=("ours",), kinds=("blank",))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--submissions", type=int, default=200, metavar="N", help="of the class; 0 leaves it out")
    parser.add_argument("--others", type=int, default=OTHERS, metavar="N", help="of each other phase")
    parser.add_argument(
        "--phases", nargs="+", choices=PHASES, default=PHASES, metavar="PHASE", help="these others only"
    )
    parser.add_argument("--blank", type=int, default=1000, metavar="N", help="with nothing done")
    parser.add_argument(
        "--out", type=Path, help="also write there, as json; parts that are not measured stay as they are"
    )
    parser.add_argument("--way", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.way:
        way, root, phase, students = options.way
        print(json.dumps(WAYS[way](Path(root), phase, students.split(","))))
        return
    kept = json.loads(options.out.read_text("utf-8")) if options.out and options.out.exists() else {}
    for name, measure in parts(options):
        found = report(measure())
        print(f"{name or PHASE}\n{table(found)}\nidentical scores: {found.get('identical_scores')}; {found['ratios']}")
        if name:
            kept.setdefault("more", {})[name] = found
        else:
            kept |= found
        keep(kept, options.out)


if __name__ == "__main__":
    main()
