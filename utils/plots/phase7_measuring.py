"""Pictures of what a trained model can do and what it cost: for the lesson and for the report card."""

import numpy as np
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator

from utils.plots.canvas import AMOUNT, BLUE, GREEN, INK, LINE, ORANGE, RED, array, canvas, label_cells

__all__ = ["alignment_map", "bits_ladder", "crossover", "exact_match_bars", "run_curve", "sweep"]


def run_curve(rows, start=None):
    """The loss over the steps of a run. rows: dicts with step and loss; start: the loss of who knows nothing."""
    rows = [row for row in rows if row.get("loss") is not None]
    figure, (axes,) = canvas(6.4, 2.8)
    axes.plot([row["step"] for row in rows], [row["loss"] for row in rows], color=BLUE, linewidth=1.6)
    skipped = [row for row in rows if row.get("skipped")]
    axes.plot([row["step"] for row in skipped], [row["loss"] for row in skipped], "x", color=RED, label="left out")
    if start:
        axes.axhline(start, color=INK, linestyle=":", linewidth=1)
        axes.text(0.99, start, "knows nothing", ha="right", va="bottom", fontsize=8.5, color=INK,
                  transform=axes.get_yaxis_transform())  # fmt: skip
    if skipped:
        axes.legend(frameon=False)
    axes.set(xlabel="step", ylabel="loss (nats a token)", ylim=(0, None))
    return figure


def exact_match_bars(scores):
    """One bar for each test, with the range its number of sentences leaves open. scores: name -> Share"""
    figure, (axes,) = canvas(6.4, 0.9 + 0.55 * len(scores))
    for place, found in enumerate(scores.values()):
        axes.barh(place, 100 * found.share, color=BLUE, height=0.55)
        axes.plot([100 * found.low, 100 * found.high], [place, place], color=ORANGE, linewidth=2.5,
                  solid_capstyle="butt", marker="|", markersize=9)  # fmt: skip
        text = f"{100 * found.share:.1f} %  ({100 * found.low:.1f} to {100 * found.high:.1f})"
        inside = found.share > 0.5
        x = 100 * (found.low if inside else found.high) + (-1.5 if inside else 1.5)
        axes.text(x, place, text, ha="right" if inside else "left", va="center", fontsize=9,
                  color="white" if inside else INK)  # fmt: skip
    axes.set_yticks(range(len(scores)), list(scores))
    axes.set(xlim=(0, 101), xlabel="sentences right word for word, per cent", ylim=(len(scores) - 0.4, -0.6))
    axes.tick_params(axis="y", length=0)
    return figure


def alignment_map(weights, pair):
    """Cross-attention of one sentence, a row for each word that was written; gold pairs are framed.

    weights (target words, source words); pair: source, target, alignment
    """
    source, target, weights = pair.source.split(), pair.target.split(), array(weights)
    figure, (axes,) = canvas(1.6 + 0.62 * len(source), 1.1 + 0.36 * len(target))
    axes.imshow(weights, cmap=AMOUNT, vmin=0, vmax=1, aspect="auto")
    for i, j in pair.alignment:
        axes.add_patch(Rectangle((i - 0.5, j - 0.5), 1, 1, fill=False, edgecolor=RED, linewidth=2))
    label_cells(axes, target, source)
    axes.xaxis.tick_top()
    axes.tick_params(axis="x", rotation=40)
    for label in axes.get_xticklabels():
        label.set_ha("left")
    axes.spines[:].set_visible(False)
    return figure


def bits_ladder(levels):
    """Bits per byte, best at the top. levels: name -> bits per byte; names that begin with "your" are marked."""
    order = sorted(levels, key=levels.get)
    figure, (axes,) = canvas(6.4, 0.9 + 0.42 * len(order))
    most = max(levels.values())
    for place, name in enumerate(order):
        colour = RED if name.startswith("your") else BLUE
        axes.plot([0, levels[name]], [place, place], color=LINE, linewidth=1.5, zorder=1)
        axes.plot(levels[name], place, "D" if colour == RED else "o", color=colour, markersize=8)
        axes.text(levels[name] + 0.025 * most, place, f"{levels[name]:.2f}", va="center", fontsize=9, color=INK)
    axes.set_yticks(range(len(order)), order)
    axes.set(
        xlim=(0, 1.12 * most), ylim=(len(order) - 0.4, -0.6), xlabel="bits per byte of held-out text (less is better)"
    )
    axes.tick_params(axis="y", length=0)
    return figure


def crossover(points):
    """How many times as long attention by hand takes as the fused one, over the length of the text."""
    figure, (axes,) = canvas(6.4, 3.0)
    lengths, ratios = [point.seq_len for point in points], [point.ratio for point in points]
    axes.axhline(1, color=INK, linestyle=":", linewidth=1)
    axes.text(lengths[-1], 0.94, "as fast as the fused one", ha="right", va="top", fontsize=8.5, color=INK)
    axes.plot(lengths, ratios, "o-", color=BLUE)
    for point in points:
        axes.annotate(f"{point.ratio:.1f}", (point.seq_len, point.ratio), (0, 7), textcoords="offset points",
                      ha="center", fontsize=9)  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [f"{n}\n{_size(point.scratch_bytes)}" for n, point in zip(lengths, points, strict=True)])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel="tokens, and the table of scores that only the one by hand writes", ylabel="times as long",
             ylim=(0, 1.18 * max(*ratios, 1)))  # fmt: skip
    axes.set_title(f"Attention by hand ({points[0].whose}) over the fused kernel, forward", fontsize=10)
    return figure


def _size(n_bytes):
    return f"{n_bytes / 1e6:.0f} MB" if n_bytes >= 1e6 else f"{n_bytes / 1e3:.0f} kB"


def sweep(found):
    """Bits per byte against parameters, both on log axes; a line only where there is one to draw."""
    figure, (axes,) = canvas(6.4, 3.2)
    if found.law:
        factor, exponent = found.law
        x = np.geomspace(0.8 * min(found.parameters), 1.25 * max(found.parameters), 60)
        middle = np.exp(np.log(found.parameters).mean())
        low, high = found.interval
        height = factor * middle**-exponent
        axes.fill_between(x, height * (x / middle) ** -low, height * (x / middle) ** -high, color=LINE, alpha=0.6,
                          linewidth=0, label="95 % of redrawn lines")  # fmt: skip
        axes.plot(x, factor * x**-exponent, color=GREEN, label=f"N^−{exponent:.3f}")
        axes.legend(frameon=False)
    axes.plot(found.parameters, found.losses, "o", color=BLUE, markersize=8)
    for n, loss in zip(found.parameters, found.losses, strict=True):
        axes.annotate(f"{loss:.2f}", (n, loss), (0, 9), textcoords="offset points", ha="center", fontsize=9)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(found.parameters, [f"{n / 1000:.0f}k" for n in found.parameters])
    low, high = 0.97 * min(found.losses), 1.05 * max(found.losses)
    ticks = np.linspace(low, high, 4).round(2)
    axes.set_yticks(ticks, [f"{tick:.2f}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set(xlabel="parameters", ylabel="bits per byte", ylim=(low, high))
    return figure
