"""Pictures of heads."""

import numpy as np
from matplotlib.patches import Circle, FancyArrowPatch

from utils.plots.canvas import (
    AMOUNT,
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PAPER,
    RED,
    SIGNED,
    SKY,
    array,
    canvas,
    label_cells,
    write_cells,
)
from utils.plots.phase2 import _box

__all__ = [
    "copy_curves",
    "head_map",
    "head_maps",
    "head_scores",
    "multi_head_recap",
    "parts_of_a_token",
    "reach_of_heads",
    "row_sums",
    "split_tables",
]

TOKENS = (BLUE, ORANGE, GREEN, RED, SKY)  # one for each token of a split
PATTERNS = ("previous", "self", "first", "induction")


def head_maps(weights, tokens, titles=None):
    """Attention weights of several heads side by side; dark means much.

    weights (n_heads, seq_len, seq_len); tokens: labels; titles: else "head 0" and so on
    """
    weights = array(weights)
    figure, axes = canvas(2.4 * len(weights), 2.7, columns=len(weights))
    for head, (place, table) in enumerate(zip(axes, weights, strict=True)):
        place.imshow(table, cmap=AMOUNT, vmin=0, vmax=1.1 * weights.max())
        label_cells(place, tokens if head == 0 else [""] * len(tokens), tokens)
        title = titles[head] if titles else f"head {head}"
        place.set(title=title, xlabel="key", ylabel="query" if head == 0 else "")
    return figure


def head_map(weights, tokens, targets, title):
    """Weights of one head, large; a ring around its cell marks each target.

    weights (seq_len, seq_len); tokens: labels; targets: list of (query, key)
    """
    weights = array(weights)
    figure, (axes,) = canvas(5.6, 5.2)
    axes.imshow(weights, cmap=AMOUNT, vmin=0, vmax=1)
    for query, key in targets:
        axes.add_patch(Circle((key, query), 0.68, fill=False, edgecolor=RED, linewidth=1.6))
    label_cells(axes, tokens, tokens)
    axes.set(xlabel="key: who is read", ylabel="query: who reads", title=title)
    return figure


def split_tables(heads, title):
    """What each head holds: cells are features, colours and the numbers before the point are tokens.

    heads (n_heads, rows, d_head) of numbers token + feature / 100
    """
    heads = array(heads)
    figure, axes = canvas(max(5.0, 1.5 * len(heads)), 1.0 + 0.42 * heads.shape[1], columns=len(heads))
    for number, (place, table) in enumerate(zip(axes, heads, strict=True)):
        for (row, column), value in np.ndenumerate(table):
            token = int(value + 1e-6)
            place.barh(row, 0.94, left=column - 0.47, height=0.88, color=TOKENS[token % len(TOKENS)], alpha=0.55)
            text = f"{token}·{round((value - token) * 100)}"
            place.text(column, row, text, ha="center", va="center", fontsize=8 if table.shape[1] < 7 else 6)
        place.set(xlim=(-0.6, table.shape[1] - 0.4), ylim=(len(table) - 0.4, -0.6), title=f"head {number}")
        place.set(xticks=[], yticks=[])
        place.spines[:].set_visible(False)
    figure.suptitle(title)
    return figure


def parts_of_a_token(parts, bias, output):
    """What each head and the bias add to one token, and their sum.

    parts (n_heads, d_out); bias, output (d_out,)
    """
    rows = [f"head {head}" for head in range(len(parts))] + ["bias", "output"]
    table = np.vstack([array(parts), array(bias), array(output)])
    figure, (axes,) = canvas(1.8 + 0.62 * table.shape[1], 1.2 + 0.46 * len(rows))
    limit = float(np.abs(table).max())
    axes.imshow(table, cmap=SIGNED, vmin=-2.2 * limit, vmax=2.2 * limit, aspect="auto")
    write_cells(axes, table, light_above=np.inf, sign="+")
    axes.axhline(len(rows) - 1.5, color=INK, linewidth=1.5)
    label_cells(axes, rows, range(table.shape[1]))
    axes.set(xlabel="feature of the token", title="Each head adds a vector of its own")
    return figure


def row_sums(sums, p):
    """How far the sums of rows spread after dropout with probability p."""
    sums = array(sums)
    figure, (axes,) = canvas(6.2, 2.6)
    axes.hist(sums, bins=40, color=BLUE, edgecolor=PAPER)
    axes.set_ylim(0, 1.2 * axes.get_ylim()[1])  # room for the words
    axes.axvline(sums.mean(), color=RED, linestyle="--")
    axes.text(sums.mean(), axes.get_ylim()[1], f" mean {sums.mean():.3f}", color=INK, va="top", fontsize=9)
    axes.set(xlabel="sum of a row of weights", ylabel="rows", title=f"After dropout, p = {p}")
    return figure


def copy_curves(curves, chance):
    """Left: loss against steps, of each model. Right: the best pattern scores of the last one.

    curves: dict title -> list of (step, loss, previous, induction); chance: the loss of guessing
    """
    figure, (left, right) = canvas(8.6, 3.2, columns=2)
    for (title, rows), (colour, style) in zip(curves.items(), ((RED, "s--"), (BLUE, "o-")), strict=False):
        left.plot([row[0] for row in rows], [row[1] for row in rows], style, color=colour, label=title, markersize=4)
    left.axhline(chance, color=INK, linewidth=1, linestyle=":")
    left.text(rows[-1][0], chance + 0.05, "guessing", fontsize=8, ha="right")
    left.set(xlabel="step", ylabel="loss where it can be foretold", title="who learns to copy")
    left.set_ylim(0, 1.08 * max(chance, *(row[1] for rows in curves.values() for row in rows)))
    steps, _, previous, induction = zip(*rows, strict=True)
    right.plot(steps, previous, "^--", color=ORANGE, label="previous token", markersize=4)
    right.plot(steps, induction, "o-", color=BLUE, label="induction", markersize=4)
    right.set(xlabel="step", ylabel="best head's score", ylim=(0, 1.03), title="two layers: who looks where")
    for axes in (left, right):
        axes.legend(frameon=False)
    return figure


def head_scores(rows):
    """A table of pattern scores of each head, and bars of how much the loss rises without it.

    rows: dict name of a head -> {"previous", "self", "first", "induction", "loss rises by"}
    """
    table = np.array([[row[key] for key in PATTERNS] for row in rows.values()])
    harm = [row["loss rises by"] for row in rows.values()]
    figure, (left, right) = canvas(8.6, 1.2 + 0.36 * len(rows), columns=2)
    left.imshow(table, cmap=AMOUNT, vmin=0, vmax=1, aspect="auto")
    write_cells(left, table, light_above=0.65)
    label_cells(left, list(rows), PATTERNS)
    left.set_title("where it looks: mean weight on the target")
    right.barh(range(len(rows)), harm, color=BLUE, height=0.6)
    for place, value in enumerate(harm):
        right.text(max(value, 0) + 0.02 * max(harm), place, f"{value:+.2f}", va="center", fontsize=9)
    right.set(ylim=(len(rows) - 0.5, -0.5), yticks=[], xlim=(min(0, *harm), 1.2 * max(harm)))
    right.set(xlabel="the loss rises by", title="does it matter: switched off")
    return figure


def reach_of_heads(weights):
    """Weights of one query at the end against the distance of the key, a curve for each head.

    weights (n_heads, kv_len)
    """
    weights = array(weights)[:, ::-1]
    figure, (axes,) = canvas(6.2, 3.2)
    for head, row in enumerate(weights):
        axes.plot(row, ("-", "--", "-.", ":")[head % 4], color=BLUE, linewidth=2)
        axes.text(-1.2 - 1.9 * (head % 3), row[0], f"{head}", fontsize=8, va="center")
    axes.set(xlabel="distance of the key", ylabel="weight", yscale="log", ylim=(1e-4, 1), xlim=(-7, len(row)))
    axes.set_title("Equal scores, ALiBi: how far each head reads")
    return figure


def multi_head_recap():
    """Multi-head attention from left to right, with shapes above and your functions below."""
    figure, (axes,) = canvas(9.6, 3.4)
    axes.set(xlim=(0, 15.4), ylim=(0, 5.0))
    axes.axis("off")
    boxes = [
        (0.1, 2.0, 1.6, "x", "(B, T, M)", SKY),
        (2.4, 3.5, 1.6, "q", "w_q", BLUE),
        (2.4, 2.0, 1.6, "k", "w_k", BLUE),
        (2.4, 0.5, 1.6, "v", "w_v", BLUE),
        (4.8, 2.0, 2.2, "cut in heads", "split_heads", ORANGE),
        (7.8, 2.0, 2.2, "each attends", "sdpa", ORANGE),
        (10.8, 2.0, 1.9, "side by side", "merge_heads", ORANGE),
        (13.3, 2.0, 2.0, "sum of heads", "w_o", GREEN),
    ]
    for x, y, width, text, below, colour in boxes:
        _box(axes, x, y, width, text, below, colour)
    arrows = [((1.7, 2.5 + lift / 4), (2.4, 2.5 + lift)) for lift in (1.5, 0, -1.5)]
    arrows += [((4.0, 2.5 + lift), (4.8, 2.5 + lift / 4)) for lift in (1.5, 0, -1.5)]
    arrows += [((7.0, 2.5), (7.8, 2.5)), ((10.0, 2.5), (10.8, 2.5)), ((12.7, 2.5), (13.3, 2.5))]
    for start, end in arrows:
        axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=12, color=INK))
    for x, y, text in (
        (5.9, 3.3, "(B, H, T, D)"),
        (8.9, 3.7, "weights (B, H, Q, K)"),
        (8.9, 3.3, "scaled by √D, masked per head"),
        (11.75, 3.3, "(B, T, H·D)"),
        (14.3, 3.3, "(B, T, M)"),
    ):
        axes.text(x, y, text, ha="center", fontsize=8.5, style="italic")
    axes.set_title("Multi-head attention: cut, attend, join")
    return figure
