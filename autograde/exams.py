"""The questions a class is asked: visible and hidden cases, drawn from the course's own secret."""

import hmac
import os
import secrets
from pathlib import Path

from utils.checks import EXERCISES, evaluate
from utils.checks.core import hidden_cases
from utils.checks.deliveries import DELIVERIES
from utils.checks.verdict import Exam, judged
from utils.observe import codec

TRIES = 20  # seeds drawn until the course's own answer passes: a case about chance may fail one in a thousand


def secret(root):
    """The course's secret, made at its first use; whoever has it can draw the same questions again."""
    path = Path(root, "autograde", "secret.key")
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
    except FileExistsError:
        pass
    return bytes.fromhex(path.read_text().strip())


def seed_of(key, exercise, student=""):
    """The seed of an exercise, for one student or for all: HMAC of the secret, 63 bits."""
    phase = (EXERCISES.get(exercise) or DELIVERIES[exercise]).phase
    what = "\x1f".join((phase, exercise, student)).encode()
    return int.from_bytes(hmac.digest(key, what, "sha256")[:8], "little") >> 1


class Paper:
    """An exam on one exercise, with its requests ready to be sent."""

    def __init__(self, exam):
        self.exam = exam
        self.requests = [codec.encode(vars(exam.request(case))) for case in exam.cases]

    def judged(self, observations):
        """The Report on what was claimed."""
        return judged(self.exam, observations)


def set_paper(name, seed):
    """The Paper that all cases of an exercise, drawn from `seed`, make up; or the one on a file that is handed in."""
    if name in DELIVERIES:
        return DELIVERIES[name].paper(seed)
    exercise = EXERCISES[name]
    cases = (*exercise.visible, *hidden_cases(exercise))
    for turn in range(TRIES):
        if evaluate(name, exercise.expected, cases=cases, seed=seed + turn).passed:
            return Paper(Exam(exercise, cases, seed + turn))
    raise RuntimeError(f"the course's own answer for {name} fails its check: run autograde kill-matrix")


class Papers:
    """The papers of a class, drawn from the course's secret when they are first used: for all, or for each student."""

    def __init__(self, key, own_seeds=False):
        self.key, self.own_seeds, self._drawn = key, own_seeds, {}

    def __getstate__(self):  # what is drawn stays here: another process draws the same
        return self.__dict__ | {"_drawn": {}}

    def on(self, name, student):
        """The Paper on an exercise for a student."""
        who = student if self.own_seeds else ""
        if (name, who) not in self._drawn:
            self._drawn = {place: paper for place, paper in self._drawn.items() if place[1] == who}
            self._drawn[name, who] = set_paper(name, seed_of(self.key, name, who))
        return self._drawn[name, who]
