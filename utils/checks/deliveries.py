"""What is judged by a file that is handed in, and not by what a notebook defines or says: the trained translator.

The course's own model carries the weights and translates sentences that nobody has seen; whatever the notebook's own
functions, prints or reports say, nobody asks them. In the notebook the file is judged on sentences of seed 0; while a
class is graded, on sentences drawn from the course's secret, by a process that has never run a line of the submission.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from utils import handed_in
from utils.checks.report import Report, blank
from utils.observe import Request, observe

SENTENCES = 300
SECONDS = 45.0  # for all of them; a model of 20 MB takes about eight
SPARE = 3  # words that a translation may have above the longest right one


@dataclass(frozen=True)
class Delivery:
    """One thing that is handed in. ladder: (share of sentences translated exactly, share of the points)."""

    name: str
    phase: str
    section: str
    hint: str
    ladder: tuple

    def paper(self, seed):
        """The questions that a seed draws."""
        from utils.data import translation

        pairs, (english, spanish) = translation.fresh(seed, SENTENCES), translation.vocabularies()
        src, src_pad_mask = _padded([english.encode(pair.source) for pair in pairs])
        right = [[*spanish.encode(pair.target), handed_in.EOS] for pair in pairs]
        return Paper(self, src, src_pad_mask, right, (len(english), len(spanish)))

    def earned(self, share):
        """The share of the points for this share of exact translations."""
        return next((earned for least, earned in self.ladder if share >= least), 0.0)


@dataclass(frozen=True, eq=False)
class Paper:
    """Sentences to be translated, and their translations, which stay with the judge."""

    delivery: Delivery
    src: object
    src_pad_mask: object
    right: list = field(repr=False)
    words: tuple

    def weights(self, raw):
        """The Weights in a file's bytes, if the course's model can carry them. Raises NotAccepted."""
        try:
            weights = handed_in.read(raw)
            handed_in.fit_into_model(weights, *self.words)
        except handed_in.NotAccepted:
            raise
        except Exception as error:  # whatever goes wrong in here, the file is to blame; its words are not repeated
            raise handed_in.NotAccepted(f"it cannot be read ({type(error).__name__})") from None
        return weights

    def request(self, weights):
        """The Request to translate with them."""
        import torch

        args = {
            "numbers": {name: torch.from_numpy(array.copy()) for name, array in weights.numbers.items()},
            "sizes": weights.sizes,
            "src": self.src,
            "src_pad_mask": self.src_pad_mask,
            "steps": max(map(len, self.right)) + SPARE,
        }
        calls = [{"args": args, "options": {}}]
        return Request("function", self.delivery.name, calls, dtype="float32", seconds=SECONDS)

    def judged(self, seen):
        """The Report on what was observed."""
        if problem := _problem(seen, len(self.right), max(map(len, self.right)) + SPARE):
            return self.refused(problem)
        rows = seen["calls"][0]["value"].tolist()
        hits = sum(row[: len(right)] == right for row, right in zip(rows, self.right, strict=True))
        share, said = hits / len(rows), f"{hits} of {len(rows)} new sentences exactly right"
        earned = self.delivery.earned(share)
        return self.report(earned, said if earned == 1 else self._below(said, earned))

    def refused(self, why):
        """The Report on a file that cannot be used."""
        return self.report(0.0, f"✗ {self.delivery.name} · {handed_in.FILE}: {why}\n  hint      {self._hint()}")

    def report(self, score, message):
        return Report(self.delivery.name, score, {}, None, message)

    def _below(self, said, earned):
        least, more = min(step for step in self.delivery.ladder if step[1] > earned)
        lines = [f"✗ {self.delivery.name} · {said}", f"  expected  {least:.0%} or more for {more:.0%} of the points"]
        return "\n".join([*lines, f"  hint      {self._hint()}"])

    def _hint(self):
        return f"Section {self.delivery.section}: {self.delivery.hint}"


def _padded(rows):
    import torch

    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[handed_in.PAD] * (width - len(row))] for row in rows])
    return ids, torch.tensor([[place < len(row) for place in range(width)] for row in rows])


def _problem(seen, n_rows, steps):
    """Why there is no translation, in words; "" if there is one."""
    import torch

    if seen["problem"] or not seen["calls"] or seen["calls"][0]["raised"]:
        raised = seen["problem"] or (seen["calls"] and seen["calls"][0]["raised"]) or {}
        slow = raised.get("type") == "TookTooLong" or raised.get("kind") == "ended"
        return (
            "translating took too long, or too much memory" if slow else "the course's model cannot translate with it"
        )
    value = seen["calls"][0]["value"]
    fits = isinstance(value, torch.Tensor) and value.dtype == torch.int64 and value.shape == (n_rows, steps)
    return "" if fits else "the course's model cannot translate with it"


DELIVERIES = {
    one.name: one
    for one in (
        Delivery(
            name="trained_translator",
            phase="phase7_capstone",
            section="7.12",
            hint="the file that fit wrote on track A; more steps, or the settings of a larger tier, translate better.",
            ladder=((0.95, 1.0), (0.9, 0.9), (0.8, 0.75), (0.6, 0.5), (0.3, 0.25)),
        ),
    )
}


# ---- in the notebook -----------------------------------------------------------------------------


def look(name, obj, seed=0):
    """The Report on the file that a learner's function names, on sentences of this seed."""
    delivery = DELIVERIES[name]
    try:
        path = obj()
    except NotImplementedError:
        return Report(name, 0.0, {}, None, blank(name, delivery.section))
    except Exception as error:
        return delivery.paper(seed).refused(f"{name}() raised {type(error).__name__}: {error}")
    paper = delivery.paper(seed)
    try:
        weights = paper.weights(_bytes_of(path))
    except handed_in.NotAccepted as problem:
        return paper.refused(problem)
    return paper.judged(observe(handed_in.translate, paper.request(weights)))


def _bytes_of(path):
    """What stands in the file. Raises NotAccepted."""
    if not isinstance(path, (str, os.PathLike)):
        raise handed_in.NotAccepted(f"a path is expected, this is of type {type(path).__name__}")
    path = Path(os.path.abspath(path))
    if not path.is_file():
        what = "is a folder: the file in it is meant" if path.is_dir() else "is not there"
        raise handed_in.NotAccepted(f"{path} {what}")
    if path != Path(handed_in.FILE).absolute():
        raise handed_in.NotAccepted(
            f"{path} is not what is handed in: copy it to {handed_in.FILE}, beside this notebook"
        )
    if path.is_symlink():
        raise handed_in.NotAccepted("it is a link, and what it points to stays here: copy the file itself")
    if path.stat().st_size > handed_in.MOST:
        size = f"{path.stat().st_size / 1e6:.1f} MB, and at most {handed_in.MOST / 1e6:.0f} MB are taken"
        raise handed_in.NotAccepted(f"it has {size}")
    return path.read_bytes()
