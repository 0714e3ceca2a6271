"""The figures of phase 6 on systems: what rounding loses, and speculation step by step."""

import torch

from utils import plots
from utils.widgets.interactive import BUTTONS, SLIDER, Interactive

__all__ = ["QuantizationExplorer", "SpeculationStepper", "quantization_explorer", "speculation_stepper"]

AXES = {"one scale for all": None, "a scale for each row": 0}


def quantization_explorer(quantize, dequantize):
    """Take bits away and let one weight grow; see what both rows lose.

    quantize, dequantize: your functions
    Shows the live figure or, without a front end and while grading, its picture. Returns the QuantizationExplorer.
    """
    return QuantizationExplorer(quantize, dequantize).show()


def speculation_stepper(speculative_accept, target, draft):
    """Step through the rounds of speculative decoding.

    speculative_accept: your function; target, draft: models from tokens (1, n) to logits (1, n, V)
    Shows the live figure or, without a front end and while grading, its picture. Returns the SpeculationStepper.
    """
    return SpeculationStepper(speculative_accept, target, draft).show()


class QuantizationExplorer(Interactive):
    """Two rows of weights, and what few bits leave of them."""

    def __init__(self, quantize, dequantize, width=24):
        self.quantize, self.dequantize = quantize, dequantize
        self.bits, self.outlier, self.scheme = 4, 20.0, "one scale for all"
        self.base = torch.randn(2, width, generator=torch.Generator().manual_seed(0))

    def weights(self):
        """Two rows of weights; the first one's first weight is `outlier` times as large."""
        w = self.base.clone()
        w[0, 0] = self.outlier * 0.8
        return w

    def kept(self):
        """What is left of them."""
        return self.dequantize(*self.quantize(self.weights(), self.bits, AXES[self.scheme]))

    def words(self):
        """The value the figure shows."""
        w, back = self.weights(), self.kept()
        lost = [((w - back)[row].norm() / w[row].norm()).item() for row in range(2)]
        zeros = [int((back[row] == 0).sum()) for row in range(2)]
        return (
            f"{self.bits} bits, {self.scheme}, outlier {self.outlier:g}: row 0 loses {lost[0]:.1%} ({zeros[0]} zeros), "
            f"row 1 {lost[1]:.1%} ({zeros[1]} zeros)"
        )

    def draw(self):
        return plots.quantized_rows(self.weights(), self.kept(), f"{self.bits} bits, {self.scheme}")

    def alt(self):
        return f"Kept against true weights, a panel for each row. In words: {self.words()}."

    def rows(self):
        import ipywidgets as w

        self.bits_control = w.IntSlider(value=self.bits, min=2, max=8, description="bits", **SLIDER)
        self.outlier_control = w.SelectionSlider(
            options=(1.0, 3.0, 10.0, 20.0, 50.0), value=self.outlier, description="outlier", **SLIDER
        )
        self.scheme_control = w.ToggleButtons(options=list(AXES), value=self.scheme, description="scales", **BUTTONS)
        return [[self.bits_control, self.outlier_control], [self.scheme_control]]

    def read_controls(self):
        self.bits, self.outlier = self.bits_control.value, self.outlier_control.value
        self.scheme = self.scheme_control.value


class SpeculationStepper(Interactive):
    """Rounds of speculation, made once for each setting, and the one that is looked at."""

    n_rounds = 6

    def __init__(self, speculative_accept, target, draft, n_draft=3):
        self.accept, self.target, self.draft = speculative_accept, target, draft
        self.n_draft, self.place, self.known = n_draft, 0, {}

    def history(self):
        """A list of rounds: what was there, the guesses, both laws, the uniform numbers, the verdict."""
        if self.n_draft not in self.known:
            self.known[self.n_draft] = self._played()
        return self.known[self.n_draft]

    @torch.no_grad()
    def _played(self):
        generator, tokens, found = torch.Generator().manual_seed(3), torch.tensor([[1, 2]]), []
        for _ in range(self.n_rounds):
            start, guess, offered = tokens.shape[1], tokens, []
            for _ in range(self.n_draft):
                offered.append(self.draft(guess)[0, -1].softmax(-1))
                token = torch.multinomial(offered[-1], 1, generator=generator)
                guess = torch.cat([guess, token[None]], 1)
            wanted, offered = self.target(guess)[0, start - 1 :].softmax(-1), torch.stack(offered)
            uniforms = torch.rand(self.n_draft, generator=generator)
            n_accepted, last = self.accept(wanted, offered, guess[0, start:], uniforms, generator)
            found.append((tokens[0].tolist(), guess[0, start:].tolist(), wanted, offered, uniforms, n_accepted, last))
            tokens = torch.cat([guess[:, : start + n_accepted], torch.tensor([[last]])], 1)
        return found

    def words(self):
        """The value the figure shows."""
        before, guesses, _, _, _, n_accepted, last = self.history()[self.place]
        made = sum(one[5] + 1 for one in self.history()[: self.place + 1])
        source = "bonus" if n_accepted == len(guesses) else "redrawn"
        passes = f"{self.place + 1} pass{'es' * (self.place > 0)}"
        return (
            f"round {self.place + 1}: after {before[-4:]} the draft guesses {guesses}, {n_accepted} stand, then {last} "
            f"({source}); {made} tokens in {passes} of the target"
        )

    def draw(self):
        _, guesses, wanted, offered, uniforms, n_accepted, _ = self.history()[self.place]
        words = [str(word) for word in range(wanted.shape[-1])]
        return plots.speculation_round(wanted, offered, guesses, uniforms.tolist(), n_accepted, words)

    def alt(self):
        return f"For each guess the target's and the draft's probabilities. In words: {self.words()}."

    def rows(self):
        import ipywidgets as w

        self.round_control = w.IntSlider(value=1, min=1, max=self.n_rounds, description="round", **SLIDER)
        self.guesses_control = w.IntSlider(value=self.n_draft, min=1, max=4, description="guesses", **SLIDER)
        return [[self.round_control, self.guesses_control]]

    def read_controls(self):
        self.place, self.n_draft = self.round_control.value - 1, self.guesses_control.value
