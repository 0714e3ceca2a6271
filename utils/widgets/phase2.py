"""The figure of phase 2: paint a mask."""

import torch

from utils import plots
from utils.widgets.interactive import BUTTONS, SLIDER, Interactive

__all__ = ["MaskPainter", "mask_painter"]

TOKENS = ["the", "cat", "sat", "as", "it", "<pad>"]
REAL = torch.tensor([True, True, True, True, True, False])
MASKS = ("none", "causal", "padding", "causal and padding")
SCORES = torch.tensor(  # made up: row = query, column = key; "it" looks for something that can sit
    [
        [1.6, 0.9, 0.2, 0.4, 0.3, 0.9],
        [1.2, 2.0, 1.5, 0.1, 0.8, 1.1],
        [0.2, 2.2, 1.4, 0.6, 0.9, 0.7],
        [0.1, 0.5, 1.7, 1.2, 1.0, 0.8],
        [0.3, 2.4, 1.1, 0.2, 1.5, 1.9],
        [0.5, 0.6, 0.4, 0.7, 0.3, 0.9],
    ]
)


def mask_of(kind):
    """The (6, 6) bool mask of that name for TOKENS."""
    causal = torch.ones(len(TOKENS), len(TOKENS), dtype=torch.bool).tril()
    padding = REAL.expand(len(TOKENS), -1)
    return {"none": torch.ones_like(causal), "causal": causal, "padding": padding, MASKS[3]: causal & padding}[kind]


def mask_painter(masked_softmax=None):
    """Paint a mask and watch the weights of one query.

    masked_softmax: your own function; without it, torch's softmax over what each query may see
    Controls: the kind of mask, the query, a temperature, and a button per key that hides it by hand.
    Shows the live figure or, without a front end and while grading, its picture. Returns the MaskPainter.
    """
    return MaskPainter(masked_softmax or row_by_row).show()


def row_by_row(scores, attn_mask):
    """The weights of a small table. A class learns on phase 2 without its twins, so none is asked."""
    weights = torch.zeros_like(scores)
    for row, visible in enumerate(attn_mask):
        weights[row, visible] = scores[row, visible].softmax(-1)
    return weights


class MaskPainter(Interactive):
    """A mask, and what one query reads under it."""

    def __init__(self, masked_softmax):
        self.masked_softmax = masked_softmax
        self.kind, self.query, self.temperature = "causal", TOKENS.index("it"), 1.0
        self.hidden = set()  # keys hidden by hand

    def mask(self):
        """The mask in use, (6, 6) bool: its kind, less the keys hidden by hand."""
        return mask_of(self.kind) & torch.tensor([key not in self.hidden for key in TOKENS])

    def weights(self):
        """What the chosen query reads, (6,)."""
        return self.masked_softmax(SCORES / self.temperature, self.mask())[self.query].detach()

    def words(self):
        """The value the figure shows."""
        weights, query = self.weights().tolist(), TOKENS[self.query]
        if not self.mask()[self.query].any():
            return f"query '{query}' may see no key: every weight is 0"
        best = max(range(len(TOKENS)), key=weights.__getitem__)
        return f"query '{query}' reads '{TOKENS[best]}' most: weight on '{TOKENS[best]}' = {weights[best]:.3f}"

    def draw(self):
        title = f"what '{TOKENS[self.query]}' reads at temperature {self.temperature:.2g}"
        return plots.mask_and_row(self.mask(), self.weights(), TOKENS, self.query, title)

    def alt(self):
        row = ", ".join(f"{key} {weight:.3f}" for key, weight in zip(TOKENS, self.weights().tolist(), strict=True))
        by_hand = f", {', '.join(key for key in TOKENS if key in self.hidden)} hidden by hand" if self.hidden else ""
        return (
            f"Left: mask '{self.kind}'{by_hand}, a dot where a query may see a key. Right: bars of "
            f"one row. In words: {self.words()}. The whole row: {row}."
        )

    def rows(self):
        import ipywidgets as w

        self.mask_control = w.ToggleButtons(options=MASKS, value=self.kind, description="mask", **BUTTONS)
        places = [(token, place) for place, token in enumerate(TOKENS)]
        self.query_control = w.SelectionSlider(options=places, value=self.query, description="query", **SLIDER)
        self.temperature_control = w.FloatLogSlider(
            value=1.0, base=2, min=-3, max=3, step=0.5, description="temperature", readout_format=".2f", **SLIDER
        )
        self.key_controls = [
            w.ToggleButton(value=True, description=key, tooltip=f"show or hide the key {key}", layout={"width": "auto"})
            for key in TOKENS
        ]
        keys = [w.Label("visible keys"), *self.key_controls]
        return [[self.mask_control], [self.query_control, self.temperature_control], keys]

    def read_controls(self):
        self.kind, self.query = self.mask_control.value, self.query_control.value
        self.temperature = self.temperature_control.value
        self.hidden = {control.description for control in self.key_controls if not control.value}
        for control in self.key_controls:
            control.icon = "eye" if control.value else "eye-slash"
