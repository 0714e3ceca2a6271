"""The figures of phase 3: cut features into heads, and browse the heads of a trained model."""

import torch

from utils import plots
from utils.widgets.interactive import BUTTONS, SLIDER, Interactive

__all__ = ["HeadBrowser", "SplitVisualiser", "head_browser", "split_visualiser"]

WAYS = ("your function", "view alone")
COUNTS = (1, 2, 3, 4, 6)  # heads for 12 features


def split_visualiser(split_heads):
    """Cut 4 tokens of 12 features into heads, by your own function or by `view` alone.

    Shows the live figure or, without a front end and while grading, its picture. Returns the SplitVisualiser.
    """
    return SplitVisualiser(split_heads).show()


def head_browser(weights, tokens, head_entropy, head_patterns):
    """Look at one head after the other.

    weights (n_layers, n_heads, seq_len, seq_len); tokens (seq_len,) ints
    head_entropy, head_patterns: your own functions, which put numbers to each head
    Shows the live figure or, without a front end and while grading, its picture. Returns the HeadBrowser.
    """
    return HeadBrowser(weights.detach(), tokens, head_entropy, head_patterns).show()


class SplitVisualiser(Interactive):
    """Four tokens, cut into heads in one of two ways."""

    def __init__(self, split_heads):
        self.split_heads = split_heads
        self.way, self.n_heads = WAYS[0], 3

    def heads(self):
        """(n_heads, 4, d_head) of numbers token + feature / 100."""
        x = torch.arange(4.0)[:, None] + torch.arange(12) / 100
        if self.way == WAYS[0]:
            return self.split_heads(x, self.n_heads)
        return x.reshape(self.n_heads, 4, 12 // self.n_heads)

    def words(self):
        """What head 0 holds."""
        first = self.heads()[0]
        tokens = sorted({int(value + 1e-6) for value in first.flatten().tolist()})
        features = sorted({round(value % 1 * 100) for value in first.flatten().tolist()})
        return f"{self.way}: head 0 holds features {features[0]} to {features[-1]} of tokens {tokens}"

    def draw(self):
        return plots.split_tables(self.heads(), f"{self.way}, heads: {self.n_heads}")

    def alt(self):
        table = "One table" if self.n_heads == 1 else f"{self.n_heads} tables side by side"
        return f"{table} of what each head holds, one cell for each feature of a token. In words: {self.words()}."

    def rows(self):
        import ipywidgets as w

        self.way_control = w.ToggleButtons(options=WAYS, value=self.way, description="cut by", **BUTTONS)
        self.count_control = w.SelectionSlider(options=COUNTS, value=self.n_heads, description="n_heads", **SLIDER)
        return [[self.way_control, self.count_control]]

    def read_controls(self):
        self.way, self.n_heads = self.way_control.value, self.count_control.value


class HeadBrowser(Interactive):
    """The map of one head out of all."""

    def __init__(self, weights, tokens, head_entropy, head_patterns):
        self.weights, self.tokens = weights, tokens
        self.entropy = [head_entropy(layer).mean(-1).tolist() for layer in weights]
        self.scores = [head_patterns(layer[None], tokens[None]) for layer in weights]
        strongest = torch.stack([layer["induction"] for layer in self.scores]).flatten().argmax().item()
        self.layer, self.head = divmod(strongest, weights.shape[1])

    def targets(self):
        """(query, key) of each place that an induction head would read."""
        row = self.tokens.tolist()
        return [(i, j + 1) for i in range(len(row)) for j in range(i) if row[j] == row[i]]

    def words(self):
        """Where this head looks, in numbers."""
        scores = {name: values[self.head].item() for name, values in self.scores[self.layer].items()}
        parts = ", ".join(f"{name} {value:.2f}" for name, value in scores.items())
        return f"layer {self.layer}, head {self.head}: {parts}; entropy {self.entropy[self.layer][self.head]:.2f}"

    def draw(self):
        letters = [chr(97 + token) for token in self.tokens.tolist()]
        title = f"layer {self.layer}, head {self.head}: rings mark what followed last time"
        return plots.head_map(self.weights[self.layer, self.head], letters, self.targets(), title)

    def alt(self):
        return f"Attention map of {len(self.tokens)} letters. In words: {self.words()}."

    def rows(self):
        import ipywidgets as w

        layers, heads = map(range, self.weights.shape[:2])
        self.layer_control = w.SelectionSlider(options=layers, value=self.layer, description="layer", **SLIDER)
        self.head_control = w.SelectionSlider(options=heads, value=self.head, description="head", **SLIDER)
        return [[self.layer_control, self.head_control]]

    def read_controls(self):
        self.layer, self.head = self.layer_control.value, self.head_control.value
