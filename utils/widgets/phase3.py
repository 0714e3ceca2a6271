"""The figures of phase 3: cut features into heads, and browse the heads of a trained model."""

import html

import torch

from utils import lesson, plots

__all__ = ["HeadBrowser", "SplitVisualiser", "head_browser", "split_visualiser"]

WAYS = ("your function", "view alone")
COUNTS = (1, 2, 3, 4, 6)  # heads for 12 features


def split_visualiser(split_heads):
    """Cut 4 tokens of 12 features into heads, by your own function or by `view` alone.

    Shows the live figure or, without a front end and while grading, its picture. Returns the SplitVisualiser.
    """
    figure = SplitVisualiser(split_heads)
    lesson.display_widget(None if lesson.grading() else figure.widget(), figure.picture(), figure.words())
    return figure


def head_browser(weights, tokens, head_entropy, head_patterns):
    """Look at one head after the other.

    weights (n_layers, n_heads, seq_len, seq_len); tokens (seq_len,) ints
    head_entropy, head_patterns: your own functions, which put numbers to each head
    Shows the live figure or, without a front end and while grading, its picture. Returns the HeadBrowser.
    """
    figure = HeadBrowser(weights.detach(), tokens, head_entropy, head_patterns)
    lesson.display_widget(None if lesson.grading() else figure.widget(), figure.picture(), figure.words())
    return figure


class _Figure:
    """What both have: a picture, its words, and a widget whose controls redraw both."""

    def assemble(self, *controls):
        """The live figure: controls (reached by Tab, moved by arrows), the words, the picture."""
        import ipywidgets as w

        self.readout, self.canvas = w.HTML(), w.HTML()
        self.readout.add_class("attention-readout")
        for control in controls:
            control.observe(self._refresh, names="value")
        self._refresh()
        return w.VBox([w.HBox(controls, layout={"flex_flow": "row wrap"}), self.readout, self.canvas])

    def _refresh(self, change=None):
        self.read_controls()
        self.readout.value = f"<b>{html.escape(self.words())}</b>"
        self.canvas.value = self.picture()


class SplitVisualiser(_Figure):
    """The state of the figure and its three faces: `words`, `picture` and `widget`."""

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

    def picture(self):
        """The figure as an <img>, described for those who cannot see it."""
        title = f"{self.way}, heads: {self.n_heads}"
        return lesson.image(plots.split_tables(self.heads(), title), self.words())

    def widget(self):
        import ipywidgets as w

        self.way_control = w.ToggleButtons(options=WAYS, value=self.way, description="cut by")
        self.count_control = w.SelectionSlider(options=COUNTS, value=self.n_heads, description="n_heads")
        return self.assemble(self.way_control, self.count_control)

    def read_controls(self):
        self.way, self.n_heads = self.way_control.value, self.count_control.value


class HeadBrowser(_Figure):
    """The state of the figure and its three faces: `words`, `picture` and `widget`."""

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

    def picture(self):
        """The figure as an <img>, described for those who cannot see it."""
        letters = [chr(97 + token) for token in self.tokens.tolist()]
        title = f"layer {self.layer}, head {self.head}: rings mark what followed last time"
        figure = plots.head_map(self.weights[self.layer, self.head], letters, self.targets(), title)
        return lesson.image(figure, f"Attention map of {len(letters)} letters. {self.words()}.")

    def widget(self):
        import ipywidgets as w

        names = [(f"{layer} · {head}", (layer, head)) for layer in range(len(self.weights))
                 for head in range(self.weights.shape[1])]  # fmt: skip
        self.head_control = w.SelectionSlider(
            options=names,
            value=(self.layer, self.head),
            description="layer · head",
            style={"description_width": "initial"},
        )
        return self.assemble(self.head_control)

    def read_controls(self):
        self.layer, self.head = self.head_control.value
