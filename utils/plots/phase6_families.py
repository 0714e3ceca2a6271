"""Pictures of model families: words on a plane, labels against verdicts, patches, experts, tiles."""

import numpy as np
import torch
from matplotlib.patches import Rectangle

from utils.plots.canvas import BLUE, GREEN, INK, LINE, ORANGE, PAPER, PICTURE, RED, SKY, array, canvas

__all__ = ["expert_load", "family_recap", "label_curves", "patch_row", "tile_plan", "word_map"]


def word_map(rows, words, first):
    """Word vectors on the plane in which they differ most.

    rows (n, d_model); words: n labels; first: n bools, which of two kinds a word is of
    """
    rows = rows.double() - rows.double().mean(0)
    points = array(rows @ torch.linalg.svd(rows, full_matrices=False).Vh[:2].T)
    figure, (axes,) = canvas(7.6, 4.0)
    kind = np.array(first)
    for mask, colour, marker, label in ((kind, BLUE, "o", "nice"), (~kind, RED, "^", "nasty")):
        axes.scatter(*points[mask].T, color=colour, marker=marker, s=26, label=label)
    width, height, written = *np.ptp(points, axis=0), []
    for (x, y), word in zip(points, words, strict=True):
        if any(abs(x - a) < width / 9 and abs(y - b) < height / 18 for a, b in written):
            continue  # it would lie on another word
        written.append((x, y))
        axes.annotate(word, (x, y), xytext=(5, 3), textcoords="offset points", fontsize=8, color=INK)
    axes.set(xlabel="first direction", ylabel="second direction", title="Embeddings after guessing hidden words")
    axes.margins(x=0.12)
    axes.legend(frameon=False)
    return figure


def label_curves(curves, sizes):
    """Share of right verdicts by the number of labels: a line through the means, a dot for each run.

    curves: dict label -> one list of shares per size
    """
    figure, (axes,) = canvas(7.0, 3.4)
    looks = ((RED, "--", "^"), (BLUE, "-", "o"))
    for (label, rows), (colour, style, marker) in zip(curves.items(), looks, strict=False):
        for size, shares in zip(sizes, rows, strict=True):
            axes.plot([size] * len(shares), shares, marker, color=colour, alpha=0.35, markersize=5)
        axes.plot(sizes, [sum(shares) / len(shares) for shares in rows], style, color=colour, label=label, linewidth=2)
    axes.axhline(0.5, color=LINE, linewidth=1)
    axes.text(sizes[0], 0.47, "a guess", fontsize=8.5, style="italic")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set(
        xlabel="labelled sentences", ylabel="right verdicts", ylim=(0.4, 1.03), title="What reading first is worth"
    )
    axes.legend(loc="lower right", facecolor=PAPER, edgecolor="none", framealpha=1)  # on top of the line of a guess
    return figure


def patch_row(picture, patches):
    """A picture with its grid, and beside it the patches in the order in which they are read.

    picture (height, width); patches (n, size, size)
    """
    picture, patches = array(picture), array(patches)
    size, per_row = patches.shape[-1], 8
    figure, (left, right) = canvas(8.8, 3.4, columns=2)
    low, high = picture.min(), picture.max()
    left.imshow(picture, cmap=PICTURE, vmin=low, vmax=high)
    for place in range(size, picture.shape[0], size):
        left.axhline(place - 0.5, color="white", linewidth=1.5)
    for place in range(size, picture.shape[1], size):
        left.axvline(place - 0.5, color="white", linewidth=1.5)
    n_rows, step = -(-len(patches) // per_row), size + 3
    for number, patch in enumerate(patches):
        row, column = divmod(number, per_row)
        x, y = column * step, row * (step + 5)
        right.imshow(patch, cmap=PICTURE, vmin=low, vmax=high, extent=(x, x + size, y + size, y))
        right.text(x + size / 2, y + size + 3, str(number), ha="center", va="center", fontsize=8)
    right.set(xlim=(-2, per_row * step), ylim=(n_rows * (step + 5), -3), aspect="equal")
    left.set_title("One picture")
    right.set_title("The same as tokens, in reading order")
    for axes in (left, right):
        axes.axis("off")
    return figure


def expert_load(served, capacity):
    """How many choices each expert got, and how many it served.

    served: dict title -> (asked (n_experts,), kept (n_experts,)); capacity: the line above which a choice is dropped
    """
    figure, axes = canvas(8.6, 3.2, columns=len(served))
    top = max(array(asked).max() for asked, _ in served.values()) * 1.1
    for place, (title, (asked, kept)) in zip(axes, served.items(), strict=True):
        asked, kept = array(asked), array(kept)
        experts = range(len(asked))
        place.bar(experts, kept, color=BLUE, label="served")
        place.bar(experts, asked - kept, bottom=kept, color="white", edgecolor=RED, hatch="///", label="dropped")
        place.axhline(capacity, color=INK, linestyle="--", linewidth=1.2)
        place.set(xlabel="expert", ylabel="choices", ylim=(0, max(top, capacity * 1.2)), title=title)
        place.set_xticks(experts)
    axes[0].legend(frameon=False)
    return figure


def tile_plan(q_len, kv_len, q_block, kv_block):
    """Which tiles of a causal table are computed whole, computed in part, or skipped."""
    figure, (axes,) = canvas(6.4, 4.4)
    counts = dict.fromkeys(("whole", "in part", "skipped"), 0)
    looks = {"whole": (BLUE, ""), "in part": (SKY, "..."), "skipped": ("white", "///")}
    for top in range(0, q_len, q_block):
        height = min(q_block, q_len - top)
        for left in range(0, kv_len, kv_block):
            width = min(kv_block, kv_len - left)
            first, last = top + kv_len - q_len, top + height - 1 + kv_len - q_len
            kind = "skipped" if left > last else "whole" if left + width - 1 <= first else "in part"
            colour, hatch = looks[kind]
            label = kind if not counts[kind] else None
            counts[kind] += 1
            axes.add_patch(
                Rectangle((left, top), width, height, facecolor=colour, hatch=hatch, edgecolor=INK, lw=0.7, label=label)
            )
    axes.set(xlim=(0, kv_len), ylim=(q_len, 0), xlabel="keys", ylabel="queries")
    axes.set_title(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    return figure


# ---- recap ---------------------------------------------------------------------------------------

FAMILIES = (
    ("encoder-only", "BERT", BLUE, "guesses hidden words", "one pass", "verdicts, search, tags"),
    ("decoder-only", "GPT", ORANGE, "predicts the next word", "one pass per token", "writing, conversation"),
    ("encoder-decoder", "T5", GREEN, "fills in spans", "read once, then one per token", "text from a text"),
)


def family_recap():
    """The three families side by side: mask, objective, cost, use."""
    figure, axes = canvas(9.0, 4.4, columns=3)
    for place, (name, example, colour, *lines) in zip(axes, FAMILIES, strict=True):
        place.set(xlim=(-1.2, 7.2), ylim=(10.6, -1.6))
        place.axis("off")
        place.text(3, -1.0, name, ha="center", fontsize=12, weight="bold", color=INK)
        place.text(3, -0.25, f"for example {example}", ha="center", fontsize=9, style="italic")
        for i in range(6):
            for j in range(6):
                seen = {"encoder-only": True, "decoder-only": j <= i, "encoder-decoder": j < 3 or 3 <= j <= i}[name]
                seen = seen and not (name == "encoder-decoder" and i < 3 <= j)
                look = dict(facecolor=colour, alpha=0.85) if seen else dict(facecolor="white", hatch="///")
                place.add_patch(Rectangle((j, i + 0.4), 0.92, 0.92, edgecolor=LINE, linewidth=0.6, **look))
        for row, line in enumerate(lines):
            place.text(3, 7.4 + row, line, ha="center", fontsize=9.5)
    return figure
