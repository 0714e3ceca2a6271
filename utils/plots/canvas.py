"""What all pictures share: colours, the sheet they are drawn on, labels and numbers in cells."""

import numpy as np
import torch
from matplotlib.figure import Figure

# Okabe and Ito's colours: told apart by colour-blind readers, and of different lightness in grey.
BLUE, ORANGE, RED, GREEN, SKY = "#0072B2", "#E69F00", "#D55E00", "#009E73", "#56B4E9"
INK, PAPER, LINE = "#22262b", "#fbfaf6", "#c9c5ba"
SEEN, HIDDEN = "#cfe3f1", "#efece4"  # cells of a mask; the hidden ones are hatched as well
AMOUNT, SIGNED, PICTURE = "Blues", "PuOr_r", "cividis"  # maps: from nothing to much, about zero, a picture's greys


WIDEST = 10  # inches; JupyterLab shrinks a wider picture, letters and all


def canvas(width, height, columns=1):
    """A light sheet with `columns` places to draw on; light on purpose, so it reads the same in a dark theme."""
    figure = Figure(figsize=(min(width, WIDEST), height), facecolor=PAPER, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1)
    axes = figure.subplots(1, columns, squeeze=False)[0]
    for place in axes:
        place.set_facecolor(PAPER)
        place.tick_params(colors=INK)
        place.spines[["top", "right"]].set_visible(False)
    return figure, axes


def write_cells(axes, values, light_above, sign=""):
    """Write each number of a table into its cell, in white where the cell is dark."""
    for (row, column), value in np.ndenumerate(values):
        colour = "white" if value > light_above else INK
        text = f"{value:{sign}.2f}" if value or not sign else "0"
        axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=9)


def label_cells(axes, rows, columns):
    """Name the rows and columns of a table."""
    axes.set_xticks(range(len(columns)), [str(column) for column in columns])
    axes.set_yticks(range(len(rows)), [str(row) for row in rows])
    axes.tick_params(length=0)


def array(values):
    """A NumPy copy of a tensor, an array or nested lists."""
    return values.detach().double().numpy() if isinstance(values, torch.Tensor) else np.array(values, dtype=float)
