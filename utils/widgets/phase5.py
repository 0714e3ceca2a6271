"""The figures of phase 5: a sampler with dials, and a tree of beams."""

import math

import torch

from utils import plots
from utils.widgets.interactive import SLIDER, Interactive

__all__ = ["BeamTree", "DecodingSampler", "beam_tree", "decoding_sampler"]

NEXT = {"forest": 2.6, "lake": 2.1, "city": 1.9, "kingdom": 1.5, "fox": 1.0, "engine": 0.2, "tax": -0.6, "zzz": -2.0}


def decoding_sampler(filter_logits):
    """Three dials over the words that may follow "once upon a time, near a quiet …".

    Shows the live figure or, without a front end and while grading, its picture. Returns the DecodingSampler.
    """
    return DecodingSampler(filter_logits).show()


def beam_tree(beam_search, next_log_probs, words, bos_id, eos_id=0):
    """Watch which beginnings stay in the beam. next_log_probs: as beam_search takes it; words: names by id

    Shows the live figure or, without a front end and while grading, its picture. Returns the BeamTree.
    """
    return BeamTree(beam_search, next_log_probs, words, bos_id, eos_id).show()


class DecodingSampler(Interactive):
    """What may follow, and what the dials leave of it."""

    def __init__(self, filter_logits):
        self.filter_logits = filter_logits
        self.temperature, self.top_k, self.top_p, self.seed = 1.0, len(NEXT), 0.9, 0

    def shares(self):
        """(before, after): shares of the model, and after the dials."""
        logits = torch.tensor([*NEXT.values()], dtype=torch.float64)
        kept = self.filter_logits(logits, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)
        return logits.softmax(-1), kept.softmax(-1)

    def drawn(self):
        """Twelve words by these shares, the same for the same seed."""
        generator = torch.Generator().manual_seed(self.seed)
        picks = torch.multinomial(self.shares()[1], 12, replacement=True, generator=generator)
        return [[*NEXT][pick] for pick in picks.tolist()]

    def words(self):
        """The value the figure shows."""
        after = self.shares()[1]
        entropy = -(after[after > 0] * after[after > 0].log()).sum().item()
        return (
            f"{int((after > 0).sum())} of {len(NEXT)} words may be drawn, as unsure as {math.exp(entropy):.1f} equal "
            f"ones; twelve draws: {', '.join(self.drawn())}"
        )

    def dials(self):
        return f"temperature {self.temperature:.2g}, top-k {self.top_k}, top-p {self.top_p:.2g}"

    def draw(self):
        return plots.kept_words([*NEXT], *self.shares(), self.dials())

    def alt(self):
        row = ", ".join(f"{word} {share:.2f}" for word, share in zip(NEXT, self.shares()[1].tolist(), strict=True))
        return f"Bars of shares before and after {self.dials()}. In words: {self.words()}. Shares: {row}."

    def rows(self):
        import ipywidgets as w

        self.temperature_control = w.SelectionSlider(
            options=(0.0, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 4.0), value=1.0, description="temperature", **SLIDER
        )
        self.k_control = w.IntSlider(value=self.top_k, min=1, max=len(NEXT), description="top-k", **SLIDER)
        self.p_control = w.SelectionSlider(
            options=(0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0), value=0.9, description="top-p", **SLIDER
        )
        self.seed_control = w.IntSlider(value=0, min=0, max=20, description="seed", **SLIDER)
        return [[self.temperature_control, self.k_control], [self.p_control, self.seed_control]]

    def read_controls(self):
        self.temperature, self.top_k = self.temperature_control.value, self.k_control.value
        self.top_p, self.seed = self.p_control.value, self.seed_control.value


class BeamTree(Interactive):
    """A tree of beginnings, and which of them stay in the beam."""

    def __init__(self, beam_search, next_log_probs, words, bos_id, eos_id):
        self.beam_search, self.next_log_probs = beam_search, next_log_probs
        self.names, self.bos_id, self.eos_id = words, bos_id, eos_id
        self.n_beams, self.steps = 2, 3

    def found(self, steps):
        """What the search holds after so many steps, without a penalty."""
        return self.beam_search(self.next_log_probs, self.bos_id, self.eos_id, self.n_beams, steps, 0.0)

    def branches(self):
        """(edges, kept): what was looked at, and the beginnings that stayed in the beam."""
        kept, edges, alive = {()}, [], [()]
        for step in range(1, self.steps + 1):
            for parent in alive:
                row = self.next_log_probs(torch.tensor([[self.bos_id, *parent]]))[0].tolist()
                edges += [(parent, (*parent, token), self.names[token], value) for token, value in enumerate(row)
                          if value > -math.inf]  # fmt: skip
            stayed = {tuple(tokens[1:]) for tokens, _ in self.found(step)}
            kept |= stayed
            alive = sorted(node for node in stayed if len(node) == step and node[-1] != self.eos_id)
        return edges, kept

    def words(self):
        """The best sentence so far and its probability."""
        (tokens, score), *others = self.found(self.steps)
        said = " ".join(self.names[token] for token in tokens[1:])
        return f"{self.n_beams} beam(s), {self.steps} step(s): best is '{said}' with probability {math.exp(score):.3f}"

    def draw(self):
        edges, kept = self.branches()
        tokens = self.found(self.steps)[0][0][1:]
        best = {tuple(tokens[:n]) for n in range(1, len(tokens) + 1)}
        return plots.beam_branches(edges, kept, best, f"{self.n_beams} beam(s): dashed branches fell out")

    def alt(self):
        stayed = "; ".join(" ".join(self.names[token] for token in tokens[1:]) for tokens, _ in self.found(self.steps))
        return f"A tree of continuations. In words: {self.words()}. In the beam at the end: {stayed}."

    def rows(self):
        import ipywidgets as w

        self.beams_control = w.IntSlider(value=self.n_beams, min=1, max=5, description="beams", **SLIDER)
        self.steps_control = w.IntSlider(value=self.steps, min=1, max=3, description="steps", **SLIDER)
        return [[self.beams_control, self.steps_control]]

    def read_controls(self):
        self.n_beams, self.steps = self.beams_control.value, self.steps_control.value
