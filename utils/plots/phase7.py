"""Pictures of the capstone: what a run costs, how good the result is, where it looked, the whole course on one page."""

import numpy as np
from matplotlib.patches import FancyBboxPatch, Rectangle

from utils.plots.canvas import BLUE, GREEN, INK, LINE, ORANGE, RED, SKY, array, canvas

__all__ = ["alignment_map", "bits_ladder", "capstone_recap", "crossover_curve", "exact_match_bars", "memory_bars"]

PARTS = {  # of training memory, from the bottom of a bar to its top
    "weights": (BLUE, ""),
    "gradients": (SKY, "//"),
    "optimizer": (GREEN, ".."),
    "activations": (ORANGE, "\\\\"),
    "logits": (RED, "xx"),
}


def memory_bars(found, what, limit=None):
    """Training memory as stacked bars.

    found: {label: {"weights": bytes, "gradients": …, "optimizer": …, "activations": …, "logits": …}}
    what: what the labels count; limit: bytes of the machine, or None
    """
    figure, (axes,) = canvas(7.2, 3.6)
    labels, bottom = [str(label) for label in found], np.zeros(len(found))
    for name, (colour, hatch) in PARTS.items():
        heights = np.array([parts[name] for parts in found.values()]) / 1e9
        axes.bar(labels, heights, 0.55, bottom, color=colour, hatch=hatch, edgecolor="white", linewidth=0.6, label=name)
        bottom += heights
    for place, total in enumerate(bottom):
        axes.text(place, total, f"{total:.3g} GB", ha="center", va="bottom", fontsize=9, color=INK)
    if limit:
        axes.axhline(limit / 1e9, color=INK, linestyle="--", linewidth=1)
        axes.text(-0.45, limit / 1e9, f"this card: {limit / 1e9:g} GB", va="bottom", fontsize=8.5)
    axes.set(xlabel=what, ylabel="GB", ylim=(0, 1.15 * max([*bottom, (limit or 0) / 1e9])))
    axes.set_title("What a training step holds in memory")
    handles, names = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], names[::-1], frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def exact_match_bars(found):
    """Share of sentences that are right word for word, with bounds.

    found: {test: an object with share, low and high}
    """
    figure, (axes,) = canvas(6.4, 2.6)
    names = list(found)[::-1]
    for place, name in enumerate(names):
        share, low, high = (getattr(found[name], part) for part in ("share", "low", "high"))
        axes.barh(place, share, 0.55, color=BLUE)
        axes.plot([low, high], [place, place], color=INK, linewidth=2)
        axes.text(1.02, place, f"{share:.1%}  ({low:.1%} to {high:.1%})", va="center", fontsize=9.5, color=INK)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlim=(0, 1.45), xlabel="right word for word")
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1.0], ["0", "25 %", "50 %", "75 %", "100 %"])
    axes.set_title("Sentences it has never seen")
    return figure


def alignment_map(weights, source, target, gold):
    """Cross-attention as a table, the true pairs framed.

    weights (target words, source words); source, target: lists of words; gold: pairs (source word, target word)
    """
    weights = array(weights)[: len(target), : len(source)]
    figure, (axes,) = canvas(max(4.6, 1.6 + 0.75 * len(source)), 1.2 + 0.42 * len(target))
    axes.imshow(weights, cmap="Greys", vmin=0, vmax=max(1e-9, weights.max()), aspect="auto")
    for column, row in gold:
        axes.add_patch(Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, fill=False, edgecolor=RED, linewidth=2.2))
    axes.set_xticks(range(len(source)), source, rotation=35, ha="right")
    axes.set_yticks(range(len(target)), target)
    axes.tick_params(length=0)
    axes.set_title("Dark: looked at. Framed: what the grammar says", fontsize=10.5)
    return figure


def bits_ladder(found, own="your model"):
    """Bits per byte on one axis, less is better.

    found: {name: bits per byte}; own: the one to mark
    """
    order = sorted(found, key=found.get, reverse=True)
    figure, (axes,) = canvas(7.0, 0.9 + 0.36 * len(order))
    for place, name in enumerate(order):
        mine = name == own
        axes.barh(
            place, found[name], 0.6, color=ORANGE if mine else BLUE, hatch="//" if mine else "", edgecolor="white"
        )
        axes.text(found[name] + 0.03, place, f"{found[name]:.2f}", va="center", fontsize=9.5)
    axes.set_yticks(range(len(order)), order)
    axes.set(xlabel="bits per byte of held-out text; less is better", xlim=(0, 1.12 * max(found.values())))
    return figure


def crossover_curve(points):
    """How many times as long attention by hand takes as a fused kernel, against length.

    points: objects with seq_len, ratio and scratch_bytes, the size of the table that only the one by hand writes
    """
    figure, (axes,) = canvas(6.6, 3.2)
    lengths = [point.seq_len for point in points]
    axes.axhline(1, color=LINE, linewidth=1)
    axes.plot(lengths, [point.ratio for point in points], "o-", color=BLUE)
    for point in points:
        label = f"{point.scratch_bytes / 1e6:,.3g} MB"
        axes.annotate(
            label, (point.seq_len, point.ratio), (0, 7), textcoords="offset points", ha="center", fontsize=8.5
        )
    axes.set(xscale="log", xlabel="tokens", ylabel="time by hand / time fused", ylim=(0, None))
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
    axes.minorticks_off()
    axes.margins(x=0.08, y=0.18)
    axes.set_title("What the table of scores costs (its size beside each point)", fontsize=10.5)
    return figure


STATIONS = (
    ("1", "tokens and\nplaces"),
    ("2", "attention"),
    ("3", "many heads"),
    ("4", "blocks"),
    ("5", "training,\nwriting"),
    ("6", "families,\nsystems"),
    ("7", "a model,\ntrained and\nmeasured"),
)


def capstone_recap():
    """The course as a path of seven stations, each with what was built there."""
    built = (
        ("bpe_encode", "Tokenizer", "rope"),
        ("sdpa", "causal_mask", "by hand back"),
        ("MultiHead-\nAttention", "induction"),
        ("LayerNorm", "Transformer"),
        ("AdamW", "KVCache", "generate"),
        ("GPT", "quantize", "speculation"),
        ("split", "resume", "judge"),
    )
    figure, (axes,) = canvas(9.4, 2.4)
    axes.axis("off")
    axes.set(xlim=(-0.6, 6.6), ylim=(-0.85, 1.35))
    axes.plot([0, 6], [0.55, 0.55], color=LINE, linewidth=3, zorder=0)
    for place, ((number, name), parts) in enumerate(zip(STATIONS, built, strict=True)):
        last = place == len(STATIONS) - 1
        axes.plot(place, 0.55, "o", markersize=24, color=ORANGE if last else BLUE)
        axes.text(place, 0.55, number, ha="center", va="center", color="white", weight="bold", fontsize=12)
        axes.text(place, 1.02, name, ha="center", va="center", fontsize=9.5, color=INK)
        axes.add_patch(
            FancyBboxPatch(
                (place - 0.44, -0.75), 0.88, 0.8, boxstyle="round,pad=0.02", facecolor="white", edgecolor=LINE
            )
        )
        axes.text(place, -0.35, "\n".join(parts), ha="center", va="center", fontsize=8, color=INK, family="monospace")
    return figure
