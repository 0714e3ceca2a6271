"""Pictures of attention."""

import math

import numpy as np
import torch
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from matplotlib.tri import Triangulation

from utils.plots.canvas import (
    AMOUNT,
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
    WIDEST,
    array,
    canvas,
    label_cells,
    write_cells,
)

__all__ = [
    "attention_map",
    "signed_map",
    "mask_grids",
    "row_of_weights",
    "mask_and_row",
    "saturation",
    "jacobian_triangle",
    "influence_maps",
    "cost_curves",
    "recap",
]

# ---- attention and masks -------------------------------------------------------------------------


def attention_map(weights, queries, keys, title="Who looks at whom"):
    """One row per query, one column per key; the number is the weight, dark means much.

    weights (q_len, kv_len); queries, keys: list of str, the labels
    """
    weights = array(weights)
    figure, (axes,) = canvas(1.8 + 0.75 * len(keys), 1.5 + 0.5 * len(queries))
    axes.imshow(weights, cmap=AMOUNT, vmin=0, vmax=1, aspect="auto")
    write_cells(axes, weights, light_above=0.65)
    label_cells(axes, queries, keys)
    axes.set(xlabel="key: who is read", ylabel="query: who reads", title=title)
    return figure


def signed_map(values, rows, columns, title, xlabel="key", ylabel="query"):
    """A table of signed numbers: orange and + above zero, purple and − below."""
    values = array(values)
    figure, (axes,) = canvas(1.8 + 0.8 * len(columns), 1.5 + 0.5 * len(rows))
    limit = max(float(np.abs(values).max()), 1e-12)
    axes.imshow(values, cmap=SIGNED, vmin=-2.2 * limit, vmax=2.2 * limit, aspect="auto")
    write_cells(axes, values, light_above=math.inf, sign="+")
    label_cells(axes, rows, columns)
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title)
    return figure


def mask_grids(masks, queries=None, keys=None):
    """Masks side by side: a dot on blue may be seen, hatching is hidden (legible without colour).

    masks: dict title -> (q_len, kv_len) bool; queries, keys: labels, else positions
    """
    masks = {title: array(mask).astype(bool) for title, mask in masks.items()}
    height = max(mask.shape[0] for mask in masks.values())
    width, around = sum(mask.shape[1] for mask in masks.values()), 0.9 * len(masks)
    cell = min(0.4, (WIDEST - around) / width)  # inches
    figure, axes = canvas(around + cell * width, 1.1 + cell * height, columns=len(masks))
    for place, (title, mask) in zip(axes, masks.items(), strict=True):
        q_len, kv_len = mask.shape
        _draw_mask(place, mask, queries or _numbers(q_len), keys or _numbers(kv_len), size=15 * cell)
        place.set_title(title)
    return figure


def _numbers(count):
    """Labels of places, or of every third one where there are many."""
    return [place if count <= 9 or place % 3 == 0 else "" for place in range(count)]


def _draw_mask(axes, mask, queries, keys, row=None, size=6):
    """Draw one mask with dots of a size; frame the row of one query if it is given."""
    for (query, key), seen in np.ndenumerate(array(mask).astype(bool)):
        style = {"facecolor": SEEN} if seen else {"facecolor": HIDDEN, "hatch": "////"}
        axes.add_patch(Rectangle((key - 0.5, query - 0.5), 1, 1, edgecolor=LINE, **style))
        if seen:
            axes.plot(key, query, "o", color=BLUE, markersize=size)
    if row is not None:
        axes.add_patch(Rectangle((-0.5, row - 0.5), len(keys), 1, fill=False, edgecolor=RED, linewidth=2.5))
    axes.set(xlim=(-0.5, len(keys) - 0.5), ylim=(len(queries) - 0.5, -0.5), aspect="equal")
    axes.set(xlabel="key", ylabel="query")
    label_cells(axes, queries, keys)


def row_of_weights(weights, keys, query, title=None):
    """The weights of one query as bars, each with its number."""
    figure, (axes,) = canvas(2 + 0.8 * len(keys), 2.6)
    _draw_bars(axes, weights, keys)
    axes.set_title(title or f"what {query!r} reads")
    return figure


def _draw_bars(axes, weights, keys):
    """Draw weights as bars with the number above each."""
    weights = array(weights)
    axes.bar(range(len(keys)), weights, color=BLUE, width=0.65)
    for place, weight in enumerate(weights):
        axes.text(place, weight + 0.02, f"{weight:.3f}", ha="center", va="bottom", fontsize=8)
    axes.set(ylim=(0, 1.12), ylabel="weight", xlabel="key")
    axes.set_xticks(range(len(keys)), [str(key) for key in keys])


def mask_and_row(mask, weights, tokens, row, title):
    """A whole mask with one query's row framed, and beside it the weights of that row."""
    figure, (left, right) = canvas(8.6, 3.15, columns=2)
    _draw_mask(left, mask, tokens, tokens, row=row)
    left.set_title("dot: may be seen    hatched: hidden")
    _draw_bars(right, weights, tokens)
    right.set_title(title)
    return figure


# ---- why the root of d_head ----------------------------------------------------------------------


def saturation(d_heads, raw, scaled, n_keys=8, seed=0):
    """Left: variance of the scores you measured. Right: what softmax makes of such scores.

    d_heads: list of int; raw, scaled: variances measured at each
    """
    figure, (left, right) = canvas(8.2, 3.2, columns=2)
    left.plot(d_heads, raw, "o-", color=RED, label="q · k")
    left.plot(d_heads, scaled, "s--", color=BLUE, label="q · k / √d_head")
    left.set(xscale="log", yscale="log", xlabel="d_head", ylabel="variance of the score", title="What you measured")
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(2000, n_keys, generator=generator)
    for variances, colour, style in ((raw, RED, "o-"), (scaled, BLUE, "s--")):
        largest = [(noise * variance**0.5).softmax(-1).amax(-1).mean() for variance in variances]
        right.plot(d_heads, largest, style, color=colour)
    right.axhline(1 / n_keys, color=INK, linewidth=1, linestyle=":")
    right.text(d_heads[-1], 1 / n_keys + 0.02, f"equal shares, 1/{n_keys}", ha="right", fontsize=8)
    right.set(xscale="log", xlabel="d_head", ylabel="largest of 8 weights, on average", ylim=(0, 1.03))
    right.set_title("What softmax does with it")
    for axes in (left, right):
        axes.set_xticks(d_heads, [str(width) for width in d_heads], minor=False)
        axes.minorticks_off()
    left.legend(frameon=False)
    return figure


# ---- gradients -----------------------------------------------------------------------------------


def jacobian_triangle(jacobian, steps=60):
    """Size of softmax's Jacobian for every way to share 1 among three keys.

    jacobian: function from probs (n, 3) to (n, 3, 3), NumPy
    """
    share = np.array([(a, b, steps - a - b) for a in range(steps + 1) for b in range(steps + 1 - a)]) / steps
    size = np.linalg.norm(jacobian(share), axis=(-2, -1))
    x, y = _corners(share)
    figure, (axes,) = canvas(7.2, 3.6)
    filled = axes.tricontourf(Triangulation(x, y), size, levels=np.linspace(0, 0.5, 21), cmap=AMOUNT)
    figure.colorbar(filled, ax=axes, label="Frobenius norm of the Jacobian", ticks=[0, 0.1, 0.2, 0.3, 0.4, 0.5])
    marks = {"one key takes all": (1, 0, 0), "equal shares": (1 / 3, 1 / 3, 1 / 3), "two-way tie": (0.5, 0.5, 0)}
    for height, (text, point) in zip((0.05, 0.29, 0.53), marks.items(), strict=True):
        (px,), (py,) = _corners(np.array([point]))
        value = np.linalg.norm(jacobian(np.array([point])))
        axes.plot(px, py, "o", color=ORANGE, markeredgecolor=INK)
        arrow = {"arrowstyle": "-", "color": ORANGE, "linewidth": 1.5}
        axes.annotate(f"{text}: {value:.2f}", (px, py), (1.08, height), fontsize=9, va="center", arrowprops=arrow)
    axes.set(title="Where softmax passes the most gradient", aspect="equal", xlim=(-0.1, 1.75), ylim=(-0.05, 0.95))
    axes.axis("off")
    return figure


def _corners(share):
    """Place shares of three on a triangle: key 0 right, key 1 top, key 2 left."""
    return share[:, 0] + share[:, 1] / 2, share[:, 1] * math.sqrt(3) / 2


# ---- leaks and costs -----------------------------------------------------------------------------


def influence_maps(maps, inputs="input place"):
    """How much each output moves with each input, side by side; 0 is white and has no dot.

    maps: dict title -> (outputs, inputs), row = output place, column = input place
    inputs: what the columns are called
    """
    maps = {title: array(sizes) for title, sizes in maps.items()}
    figure, axes = canvas(3.3 * len(maps), 3.3, columns=len(maps))
    for place, (title, sizes) in zip(axes, maps.items(), strict=True):
        place.imshow(sizes, cmap=AMOUNT, vmin=0, vmax=1.3 * max(float(sizes.max()), 1e-12))
        for (row, column), size in np.ndenumerate(sizes):
            if size > 0:
                place.plot(column, row, "o", color=INK, markersize=3)
        label_cells(place, range(sizes.shape[0]), range(sizes.shape[1]))
        place.set(xlabel=inputs, ylabel="output place", title=title)
    return figure


def cost_curves(seq_lens, attention, rest, d_model):
    """Operations of attention's two products against the rest of a block, on log axes, with the crossing marked."""
    figure, (axes,) = canvas(6.2, 3.4)
    axes.plot(seq_lens, attention, "o-", color=RED, label="attention: both products")
    axes.plot(seq_lens, rest, "s--", color=BLUE, label="rest of the block: 24 · n · d_model²")
    axes.axvline(6 * d_model, color=INK, linewidth=1, linestyle=":")
    axes.text(6 * d_model * 0.92, min(attention) * 3, "n = 6 · d_model", ha="right", fontsize=9)
    axes.set(xscale="log", yscale="log", xlabel="tokens n", ylabel="operations")
    axes.set_title(f"One block, d_model = {d_model}")
    axes.set_xticks(seq_lens, [f"{count:,}" for count in seq_lens], fontsize=8)
    axes.minorticks_off()
    axes.legend(frameon=False)
    return figure


# ---- the whole phase on one screen ---------------------------------------------------------------


def recap():
    """Attention from left to right, with shapes above the arrows and your functions below the boxes."""
    figure, (axes,) = canvas(9.6, 3.9)
    axes.set(xlim=(0, 15.4), ylim=(0, 5.4))
    axes.axis("off")
    boxes = [
        (0.2, 3.9, "x", "rows are tokens", SKY),
        (0.2, 1.2, "memory", "or x itself", SKY),
        (3.0, 3.9, "q", "w_q", BLUE),
        (3.0, 1.9, "k", "w_k", BLUE),
        (3.0, 0.3, "v", "w_v", BLUE),
        (5.9, 3.0, "q kᵀ / √d_head", "score_variance", ORANGE),
        (8.7, 3.0, "hide", "combine_masks", ORANGE),
        (11.0, 3.0, "softmax", "masked_softmax", ORANGE),
        (13.2, 1.4, "mix v", "sdpa", GREEN),
    ]
    for x, y, text, below, colour in boxes:
        _box(axes, x, y, 2.3 if "√" in text else 1.75, text, below, colour)
    arrows = [
        ((1.95, 4.4), (3.0, 4.4)),
        ((1.95, 1.9), (3.0, 2.4)),
        ((1.95, 1.5), (3.0, 0.8)),
        ((4.75, 4.3), (5.9, 3.8)),
        ((4.75, 2.5), (5.9, 3.2)),
        ((8.2, 3.5), (8.7, 3.5)),
        ((10.45, 3.5), (11.0, 3.5)),
        ((12.75, 3.3), (13.6, 2.4)),
        ((4.75, 0.8), (13.2, 1.7)),
    ]
    for start, end in arrows:
        axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=12, color=INK))
    for x, y, text in (
        (8.45, 4.75, "(batch, n_heads, q_len, kv_len): scores, mask and weights"),
        (8.9, 0.55, "(batch, n_heads, kv_len, d_v)"),
        (14.1, 0.75, "(…, q_len, d_v)"),
    ):
        axes.text(x, y, text, ha="center", fontsize=8.5, style="italic")
    axes.set_title("Attention: compare, scale, hide, share out, mix")
    return figure


def _box(axes, x, y, width, text, below, colour):
    axes.add_patch(
        FancyBboxPatch(
            (x, y),
            width,
            1.0,
            boxstyle="round,pad=0.02,rounding_size=0.15",
            facecolor="white",
            edgecolor=colour,
            linewidth=2,
        )
    )
    axes.text(x + width / 2, y + 0.62, text, ha="center", va="center", fontsize=10.5, weight="bold")
    axes.text(x + width / 2, y + 0.24, below, ha="center", va="center", fontsize=7.5, family="monospace")
