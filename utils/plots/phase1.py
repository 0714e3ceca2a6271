"""Pictures of the way from text to tensors."""

import numpy as np
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from utils.plots.canvas import (
    BLUE,
    GREEN,
    HIDDEN,
    INK,
    LINE,
    ORANGE,
    RED,
    SEEN,
    SIGNED,
    SKY,
    array,
    canvas,
    label_cells,
)

__all__ = [
    "distance_curves",
    "influence_by_distance",
    "position_map",
    "position_row",
    "text_to_tensors",
    "token_table",
]

STYLES = [(BLUE, "-"), (ORANGE, "--"), (GREEN, "-."), (RED, ":"), (SKY, "-"), (INK, "--")]


def influence_by_distance(curves):
    """How much of a change of the first token is left, by distance; attention's path of length 1 for comparison.

    curves: dict name -> (n_places,) shares of the change, 1 at distance 0
    """
    figure, (axes,) = canvas(7.2, 3.3)
    for (name, curve), (colour, line) in zip(curves.items(), STYLES, strict=False):
        axes.plot(np.maximum(array(curve), 1e-12), line, color=colour, label=name)
    length = max(len(curve) for curve in curves.values())
    axes.plot(np.ones(length), ":", color=INK, linewidth=2.5, alpha=0.6, label="attention: one step from anywhere")
    axes.set(yscale="log", xlabel="distance from the first token", ylabel="share of the change left")
    axes.set_title("A change of the first word, seen from later words")
    axes.legend(fontsize=8, frameon=False)
    return figure


def token_table(tokens, real):
    """A batch of ids: real ones on blue, padding hatched.

    tokens (batch, seq_len) ints; real, same shape, bool
    """
    tokens, real = array(tokens).astype(int), array(real).astype(bool)
    figure, (axes,) = canvas(1.8 + 0.7 * tokens.shape[1], 1.5 + 0.5 * len(tokens))
    for (row, column), token in np.ndenumerate(tokens):
        seen = real[row, column]
        style = {"facecolor": SEEN} if seen else {"facecolor": HIDDEN, "hatch": "////"}
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, edgecolor=LINE, **style))
        axes.text(column, row, str(token), ha="center", va="center", color=INK, weight="bold" if seen else "normal")
    axes.set(xlim=(-0.5, tokens.shape[1] - 0.5), ylim=(len(tokens) - 0.5, -0.5), aspect="equal")
    axes.set(xlabel="place", ylabel="sentence", title="blue: real    hatched: padding")
    label_cells(axes, range(len(tokens)), range(tokens.shape[1]))
    return figure


def position_map(table, marked=None, axes=None):
    """A table of positions as colours: orange above zero, purple below. marked: a row to be framed."""
    table, figure = array(table), None
    if axes is None:
        figure, (axes,) = canvas(6.6, 3.9)
    picture = axes.imshow(table, cmap=SIGNED, vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    if marked is not None:
        axes.add_patch(Rectangle((-0.5, marked - 0.5), table.shape[1], 1, fill=False, edgecolor=INK, linewidth=2.5))
    axes.set(xlabel="feature", ylabel="place", title="orange +1    purple −1")
    axes.figure.colorbar(picture, ax=axes, label="value", ticks=[-1, 0, 1]).ax.set_label("<colorbar>")
    return figure


def position_row(table, place, distances):
    """A whole table with one place framed, and beside it the distance of every place from that one."""
    figure, (left, right) = canvas(8.8, 3.4, columns=2)
    position_map(table, place, left)
    right.plot(array(distances), color=BLUE)
    right.plot(place, 0, "o", color=RED, markersize=8)
    right.set(xlabel="place", ylabel="distance of the vectors", title=f"seen from place {place}")
    right.set_ylim(bottom=-0.1)
    return figure


def distance_curves(curves):
    """Distance from place 0 by offset, a line for each way to write positions.

    curves: dict name -> (n_places,)
    """
    figure, (axes,) = canvas(7.2, 3.6)
    for (name, curve), (colour, line) in zip(curves.items(), STYLES, strict=False):
        axes.plot(array(curve), line, color=colour, label=name)
    axes.set(xlabel="offset", ylabel="distance of the vectors", title="Is the encoding a ruler?")
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


STEPS = (
    ("text", "'The cat sat'", ""),
    ("bytes", "84 104 101 …", "str.encode"),
    ("pieces", "'The' ' cat' …", "bpe_encode"),
    ("ids", "(seq_len,) ints", "Tokenizer"),
    ("batch", "(batch, seq_len)\n+ mask, bool", "pad_batch"),
    ("vectors", "(batch, seq_len,\nd_model)", "embed"),
    ("with places", "(batch, seq_len,\nd_model)", "+ positions"),
)


def text_to_tensors():
    """The phase as a chain: what each thing is, its shape, and the function that makes it."""
    figure, (axes,) = canvas(10.4, 2.5)
    axes.set(xlim=(0, 7 * 2.2), ylim=(0, 3), title="From text to the tensor that enters the first block")
    axes.set_axis_off()
    for place, (name, shape, function) in enumerate(STEPS):
        x = 0.1 + 2.2 * place
        colour = BLUE if place < 4 else ORANGE if place == 4 else GREEN
        box = FancyBboxPatch((x, 0.5), 1.55, 1.3, boxstyle="round,pad=0.02,rounding_size=0.15")
        box.set(facecolor="white", edgecolor=colour, linewidth=2)
        axes.add_patch(box)
        axes.text(x + 0.78, 1.5, name, ha="center", va="center", fontsize=10, weight="bold")
        axes.text(x + 0.78, 0.92, shape, ha="center", va="center", fontsize=6.8, family="monospace")
        if place:
            arrow = FancyArrowPatch((x - 0.6, 1.15), (x - 0.03, 1.15), arrowstyle="-|>", mutation_scale=12, color=INK)
            axes.add_patch(arrow)
            axes.text(x - 0.32, 2.2, function, ha="center", fontsize=8.5, style="italic")
    return figure
