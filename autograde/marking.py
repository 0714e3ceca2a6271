"""Mark one notebook: its cells run in the sandbox, what they claim is judged out here, the scores are written here."""

import hashlib
import json
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field

from nbformat import from_dict
from nbgrader.utils import is_grade, is_solution

from autograde.claims import MAX_NOTEBOOK, BadClaim, size_of
from autograde.sandbox import Ended, Sandbox
from utils import handed_in
from utils.checks import EXERCISES
from utils.checks.deliveries import DELIVERIES
from utils.checks.verdict import ENDED
from utils.observe import codec, nothing_seen

STARTS = 5  # children that one notebook may use up: after each lethal cell the earlier ones are replayed
SKIPPED = "demo"  # the tag of figures and training: nothing graded depends on them


class MarkingError(Exception):
    """The course, not the submission, is at fault; the message says what to mend."""


@dataclass
class Marking:
    """What came of one notebook; plain enough to travel between processes.

    outputs   {cell number: list of nbformat outputs}
    reports   {exercise: Report}
    events    what an instructor should look at: {"exercise": name or "", "what": sentence}
    """

    digest: str
    tier: str
    outputs: dict = field(default_factory=dict)
    reports: dict = field(default_factory=dict)
    events: list = field(default_factory=list)
    cpu_seconds: float = 0.0

    def write_into(self, notebook):
        """Put the outputs where they belong. Raises MarkingError if this is not the notebook that was marked."""
        if digest_of(notebook) != self.digest:
            raise MarkingError("the notebook changed while it was graded: grade it again")
        for number, cell in enumerate(notebook.cells):
            if cell.cell_type == "code":
                cell.outputs = from_dict(self.outputs.get(number, []))
                cell.execution_count = None


def digest_of(notebook):
    """What a marking depends on: kinds, sources and metadata of the cells."""
    cells = [(cell.cell_type, cell.source, cell.metadata) for cell in notebook.cells]
    return hashlib.sha256(json.dumps(cells, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


class Marker:
    """A sandbox for one phase, and the papers to put: marks one notebook after the other. A context manager."""

    def __init__(self, phase, papers, limits=None, tier="full"):
        self.papers, self.sandbox = papers, Sandbox(phase, limits, tier)

    def __enter__(self):
        self.sandbox.__enter__()
        return self

    def __exit__(self, *error):
        self.sandbox.__exit__(*error)

    def mark(self, notebook, student, file=None):
        """The Marking of a sanitised notebook, whatever its cells do. Raises MarkingError.

        file: what was handed in beside it, an intake.HandedIn
        """
        marking = Marking(digest_of(notebook), self.sandbox.tier)
        names = [cell.metadata.nbgrader.grade_id for cell in notebook.cells if is_check(cell)]
        papers = {name: self._paper(name, student) for name in names}
        sitting = _Sitting(self.sandbox, marking)
        try:
            checks = {number: cell.metadata.nbgrader for number, cell in enumerate(notebook.cells) if is_check(cell)}
            for number, cell in enumerate(notebook.cells):
                if number in checks:
                    sitting.keep(checks[number].grade_id)
                elif cell.cell_type == "code" and SKIPPED not in cell.metadata.get("tags", ()):
                    sitting.run(number, cell.source)
            sitting.hand_in()
            for number, check in checks.items():
                if check.grade_id not in DELIVERIES:
                    sitting.ask(number, check.grade_id, papers[check.grade_id], check.points)
        finally:
            sitting.close()
        for number, check in checks.items():
            if check.grade_id in DELIVERIES:
                sitting.weigh(number, check.grade_id, papers[check.grade_id], check.points, file)
        return marking

    def _paper(self, name, student):
        if name not in EXERCISES and name not in DELIVERIES:
            raise MarkingError(f"{name} has no check in utils/checks, so it cannot be graded")
        return self.papers.on(name, student)


def is_check(cell):
    """Is this a cell that is graded by a check, rather than by a person?"""
    return cell.cell_type == "code" and is_grade(cell) and not is_solution(cell)


class _Spent(Ended):
    """The notebook has used up its share: whatever comes now is not run."""


class _Sitting:
    """One notebook being marked: a child of the sandbox, and another one with the same past when it is lost."""

    def __init__(self, sandbox, marking):
        self.sandbox, self.marking = sandbox, marking
        self.session, self.starts, self.past, self.room, self.spent = None, 0, [], MAX_NOTEBOOK, False
        self.end = time.monotonic() + sandbox.limits.notebook

    def run(self, number, source):
        """Run a cell; one that ends its process is reported, and never run again."""
        if not source.strip():
            return
        try:
            outputs = self._child().run(source, self.room)
            self.room -= size_of(outputs)
            self.past.append(("run", source))
        except Ended as ended:
            self._note("", f"cell {number + 1}", ended)
            outputs = [_sentence("Ended", f"This cell did not finish: {ended.reason}.")]
        except BadClaim as bad:
            self._note("", f"cell {number + 1}", bad)
            outputs = [_sentence("Ended", "What this cell showed cannot be read.")]
        self.marking.outputs[number] = outputs

    def keep(self, name):
        """Let the object of that name stay as it is at this place, to be asked when all cells have run."""
        with suppress(Ended):
            self._child().keep(name)
        self.past.append(("keep", name))

    def hand_in(self):
        """No cell runs any more, so nothing that a question tells can reach an output. Answers have their own time."""
        self.starts, self.end = 0, time.monotonic() + self.sandbox.limits.notebook
        if self.session is not None:
            self.session.end = self.end

    def ask(self, number, name, paper, points):
        """Put a paper to the notebook's object, and write the score into the check's cell."""
        with closing(self._claims(name, paper)) as observations:
            self._write(number, name, paper.judged(observations), points)

    def weigh(self, number, name, paper, points, file):
        """Judge what was handed in beside the notebook, in a child that never ran a cell of it."""
        problem = f"there is no {handed_in.FILE} beside the notebook" if file is None else file.problem
        report = paper.refused(problem) if problem else self._weighed(name, paper, file.raw)
        self._write(number, name, report, points)

    def _weighed(self, name, paper, raw):
        try:
            request = codec.encode(vars(paper.request(paper.weights(raw))))
            with self.sandbox.session() as session:
                session.run(f"from utils.handed_in import translate as {name}")
                seen = next(iter(list(session.observe(name, [request]))), None)
            self.marking.cpu_seconds += session.cpu_seconds
        except handed_in.NotAccepted as problem:
            return paper.refused(problem)
        except (Ended, BadClaim) as problem:
            self._note(name, name, problem)
            seen = None
        return paper.judged(seen or nothing_seen(ENDED))

    def _write(self, number, name, report, points):
        """The report and the score, as the outputs of the check's cell."""
        score = round(float(points * report.score), 4)
        self.marking.reports[name] = report
        self.marking.outputs[number] = [
            {"output_type": "stream", "name": "stdout", "text": report.text(points) + "\n"},
            {
                "output_type": "execute_result",
                "data": {"text/plain": repr(score), "text/html": f"{score:g} of {points:g} points"},
                "metadata": {},
                "execution_count": None,
            },
        ]

    def close(self):
        """End the child, if there is one."""
        if self.session is not None:
            self.session.__exit__(None, None, None)
            self.marking.cpu_seconds += self.session.cpu_seconds
            self.session = None

    def _claims(self, name, paper):
        """Observations, as long as they come: a paper that is not answered to its end earns nothing."""
        try:
            yield from self._child().observe(name, paper.requests)
        except Ended as ended:
            self._note(name, name, ended)
        except BadClaim as bad:
            self._note(name, name, bad)

    def _child(self):
        """The child that has run all cells so far. Raises Ended when this notebook has used up its share."""
        while self.session is None or self.session.ended:
            self.close()
            if self.starts == STARTS:
                raise _Spent(f"the notebook ended its process {STARTS} times")
            if time.monotonic() > self.end:
                raise _Spent(f"the notebook used up its {self.sandbox.limits.notebook:g} s")
            self.starts += 1
            self.session = self.sandbox.session(self.end).__enter__()
            self._replay()
        return self.session

    def _replay(self):
        for step in list(self.past):
            do, text = step
            try:
                getattr(self.session, do)(text)
            except (Ended, BadClaim):
                self.past.remove(step)
                return

    def _note(self, exercise, place, problem):
        """An event for the instructor; that the notebook is spent is told once."""
        if isinstance(problem, _Spent) and self.spent:
            return
        self.spent = isinstance(problem, _Spent)
        said = problem.reason if isinstance(problem, Ended) else f"an answer that no honest process gives: {problem}"
        self.marking.events.append({"exercise": exercise, "what": f"{place}: {said}"})


def _sentence(kind, text):
    return {"output_type": "error", "ename": kind, "evalue": text, "traceback": [text]}
