"""Pictures of the capstone: what a training step holds in memory, and the whole course on one page."""

import numpy as np
from matplotlib.patches import FancyBboxPatch

from utils.plots.canvas import BLUE, GREEN, INK, LINE, ORANGE, RED, SKY, canvas

__all__ = ["capstone_recap", "memory_bars"]

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
        axes.annotate(
            f"this machine: {limit / 1e9:g} GB",
            (0.01, limit / 1e9),
            xycoords=axes.get_yaxis_transform(),
            xytext=(0, 4),
            textcoords="offset points",
            fontsize=8.5,
            color=INK,
            bbox=dict(facecolor=figure.get_facecolor(), edgecolor="none", pad=0.8),  # it may lie over a bar
        )
    axes.set(xlabel=what, ylabel="GB", ylim=(0, 1.15 * max([*bottom, (limit or 0) / 1e9])))
    axes.set_title("What a training step holds in memory")
    handles, names = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], names[::-1], frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
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
