"""Pictures of training and decoding."""

import numpy as np
import torch
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from utils.plots.canvas import BLUE, GREEN, INK, LINE, ORANGE, RED, SKY, array, canvas

__all__ = [
    "beam_branches",
    "descent_paths",
    "exposure",
    "kept_words",
    "loss_curves",
    "schedules",
    "shift_table",
    "training_curve",
    "two_lives",
]

STYLES = ((BLUE, "-"), (RED, "--"), (GREEN, ":"), (ORANGE, "-."))

# ---- training ------------------------------------------------------------------------------------


def shift_table(inputs, targets, words):
    """Each sentence as two rows of boxes: what is read, and under it what should be said; −100 is crossed out.

    inputs, targets (batch, length); words: names by id
    """
    batch, length = inputs.shape
    figure, (axes,) = canvas(2 + 1.35 * length, 0.5 + 1.15 * batch)
    for row in range(batch):
        for place in range(length):
            top = -2.4 * row
            _box(axes, place, top, words[inputs[row, place]], SKY)
            target = int(targets[row, place])
            _box(axes, place, top - 1, "" if target < 0 else words[target], ORANGE if target >= 0 else LINE)
            if target < 0:
                axes.plot([place - 0.4, place + 0.4], [top - 1.35, top - 0.65], color=INK, linewidth=1)
    rows = [-2.4 * row - line for row in range(batch) for line in (0, 1)]
    axes.set_yticks(rows, ["reads", "should say"] * batch)
    axes.set_xticks(range(length), [str(place + 1) for place in range(length)])
    axes.set(xlim=(-0.6, length - 0.4), ylim=(-2.4 * batch + 0.9, 0.6), xlabel="place")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


def _box(axes, x, y, text, colour):
    axes.add_patch(Rectangle((x - 0.45, y - 0.4), 0.9, 0.8, facecolor="white", edgecolor=colour, linewidth=2))
    axes.text(x, y, text, ha="center", va="center", fontsize=8.5, color=INK)


def _lines(axes, x, curves):
    for (label, values), (colour, style) in zip(curves.items(), STYLES, strict=False):
        axes.plot(array(x), array(values), style, color=colour, label=label, linewidth=2)
    axes.legend(frameon=False)


def loss_curves(gaps, curves):
    """The loss against the lead of the right logit; the lowest point of each curve has a dot."""
    figure, (axes,) = canvas(7.0, 3.2)
    _lines(axes, gaps, curves)
    for values, (colour, _) in zip(curves.values(), STYLES, strict=False):
        lowest = int(np.argmin(values))
        if 0 < lowest < len(values) - 1 and values[-1] > 1.01 * values[lowest] + 1e-3:
            axes.plot(float(gaps[lowest]), values[lowest], "o", color=colour)
            axes.annotate(f"lead {float(gaps[lowest]):.1f}", (float(gaps[lowest]), values[lowest]), (0, 14),
                          textcoords="offset points", ha="center", fontsize=9)  # fmt: skip
    axes.set(xlabel="lead of the right logit over the others", ylabel="loss (nats)", ylim=(0, None))
    axes.set_title("Smoothing: too sure costs, too")
    return figure


def descent_paths(paths):
    """Steps down the valley 0.02·x² + y². paths: dict label -> (steps, 2)"""
    figure, axes = canvas(4.4 * len(paths), 2.9, columns=len(paths))
    x, y = np.meshgrid(np.linspace(-4.6, 1.2, 120), np.linspace(-1.9, 1.9, 90))
    for place, (label, path), (colour, _) in zip(axes, paths.items(), STYLES, strict=False):
        place.contour(x, y, 0.02 * x**2 + y**2, levels=[0.01, 0.05, 0.15, 0.4, 1, 2, 3], colors=LINE, linewidths=1)
        path = array(path)
        place.plot(path[:, 0], path[:, 1], "o-", color=colour, markersize=3, linewidth=1)
        place.plot(*path[-1], "s", color=INK, markersize=6)
        place.text(0.98, 0.04, f"after {len(path) - 1} steps: ({path[-1][0]:.2f}, {path[-1][1]:.2f})", fontsize=8.5,
                   ha="right", transform=place.transAxes)  # fmt: skip
        place.plot(0, 0, "+", color=INK, markersize=11)
        place.set(title=label, xlabel="flat direction", ylabel="steep direction")
    return figure


def schedules(steps, curves):
    """Learning rates over the steps of a run."""
    figure, (axes,) = canvas(7.2, 3.0)
    _lines(axes, torch.tensor(list(steps)), curves)
    axes.set(xlabel="step", ylabel="learning rate", ylim=(0, None), title="Up in a line, down in a curve")
    return figure


def training_curve(losses, vocab_size):
    """Loss of each step; a dotted line at ln(vocab_size), where a model begins that knows nothing."""
    figure, (axes,) = canvas(7.2, 3.0)
    axes.plot(range(1, len(losses) + 1), losses, color=BLUE)
    start = float(np.log(vocab_size))
    axes.axhline(start, color=INK, linestyle=":")
    axes.text(len(losses), start + 0.05, f"ln {vocab_size}: knows nothing", ha="right", va="bottom", fontsize=9)
    axes.set(xlabel="step", ylabel="loss (nats)", ylim=(0, None), title="A run with your own parts")
    return figure


def exposure(found):
    """Share of right words by training steps. found: dict steps -> what exposure_gap returns"""
    figure, (axes,) = canvas(7.2, 3.2)
    steps = list(found)
    told, own = ([100 * gap[key] for gap in found.values()] for key in ("teacher_forced", "free_running"))
    axes.fill_between(steps, own, told, color=LINE, alpha=0.6, linewidth=0)
    axes.plot(steps, told, "o-", color=BLUE, label="after the true prefix")
    axes.plot(steps, own, "s--", color=RED, label="after its own words")
    widest = max(range(len(steps)), key=lambda n: told[n] - own[n])
    middle = (told[widest] + own[widest]) / 2
    axes.text(steps[widest], middle, " the gap", va="center", fontsize=9)
    axes.set(xlabel="training steps", ylabel="right words, %", ylim=(0, 104), title="Exposure bias, measured")
    axes.legend(frameon=False, loc="lower right")
    return figure


# ---- decoding ------------------------------------------------------------------------------------


def kept_words(words, before, after, title):
    """Shares of words, the most probable first: as the model gives them (hatched), and after the dials (solid)."""
    before, after = array(before), array(after)
    order = np.argsort(-before)
    figure, (axes,) = canvas(1.6 + 0.78 * len(words), 3.3)
    places = np.arange(len(words))
    axes.bar(places - 0.2, before[order], width=0.4, facecolor="white", edgecolor=INK, hatch="////", label="model")
    axes.bar(places + 0.2, after[order], width=0.4, color=BLUE, label="after the dials")
    for place, word in enumerate(order):
        text = f"{after[word]:.2f}" if after[word] > 0 else "✗"
        axes.text(
            place + 0.2, after[word] + 0.015, text, ha="center", fontsize=8, color=INK if after[word] > 0 else RED
        )
    axes.set_xticks(places, [words[word] for word in order], rotation=20)
    axes.set(ylabel="share", ylim=(0, max(before.max(), after.max()) * 1.15 + 0.02), title=title)
    axes.legend(frameon=False)
    return figure


def beam_branches(edges, kept, best, title):
    """A tree from left to right: grey branches fell, blue ones are in the beam, the best is thick.

    edges: list of (parent, node, word, log-probability of the step), nodes are tuples of ids, () the root
    kept, best: sets of nodes
    """
    depth = max(len(node) for _, node, *_ in edges)
    heights = _heights(edges)
    figure, (axes,) = canvas(2.6 + 2.0 * depth, 1.2 + 0.36 * len({n for _, n, *_ in edges if len(n) == depth} | {0, 1}))
    axes.plot(0, heights[()], "o", color=INK, markersize=7)
    axes.text(-0.06, heights[()], "start", ha="right", va="center", fontsize=9)
    for parent, node, word, step in edges:
        alive = node in kept
        colour, width = (BLUE, 3.2 if node in best else 1.6) if alive else (LINE, 1.2)
        x, y = len(node), heights[node]
        axes.plot([x - 1, x], [heights[parent], y], "-" if alive else "--", color=colour, linewidth=width, zorder=1)
        axes.plot(x, y, "o" if alive else "x", color=BLUE if alive else INK, markersize=6)
        weight = "bold" if node in best else "normal"
        inner = any(parent == node for parent, *_ in edges)
        offset, side = ((0, 7), "center") if inner else ((5, 3), "left")
        axes.annotate(f"{word} {np.exp(step):.2f}", (x, y), offset, textcoords="offset points", va="bottom", ha=side,
                      fontsize=9, weight=weight)  # fmt: skip
    axes.set(xlim=(-0.5, depth + 0.9), ylim=(min(heights.values()) - 0.5, max(heights.values()) + 1), title=title)
    axes.axis("off")
    return figure


def _heights(edges):
    """A height for each node: leaves one under the other, a parent in the middle of its children."""
    children = {}
    for parent, node, *_ in edges:
        children.setdefault(parent, []).append(node)
    heights = {}

    def place(node):
        if node in children:
            for child in children[node]:
                place(child)
            below = [heights[child] for child in children[node]]
            heights[node] = (min(below) + max(below)) / 2
        else:
            heights[node] = -sum(other not in children for other in heights)

    place(())
    return heights


# ---- recap ---------------------------------------------------------------------------------------

TRAINING = ("shift_targets\nbos + words | words + eos", "one pass\nall places", "cross_entropy\nkept targets only",
            "clip_grad_norm_\none norm for all", "AdamW\nat learning_rate")  # fmt: skip
USE = ("prompt", "one pass\nper token", "filter_logits\nT, top-k, top-p", "sample\nor argmax", "append\nuntil eos")


def two_lives():
    """Training and use as two rows of boxes, each a loop."""
    figure, (axes,) = canvas(9.4, 3.6)
    axes.set(xlim=(-1.1, 9.1), ylim=(-2.2, 1.5))
    axes.axis("off")
    for y, parts, colour, name, back in ((0.7, TRAINING, BLUE, "training", "next batch"),
                                         (-1.0, USE, ORANGE, "use", "next token")):  # fmt: skip
        axes.text(-1.05, y + 0.55, name, weight="bold", fontsize=10)
        for place, text in enumerate(parts):
            box = FancyBboxPatch((2 * place - 0.8, y - 0.32), 1.6, 0.64, boxstyle="round,pad=0.02,rounding_size=0.1")
            box.set(facecolor="white", edgecolor=colour, linewidth=2)
            axes.add_patch(box)
            axes.text(2 * place, y, text, ha="center", va="center", fontsize=7.5)
            if place:
                _arrow(axes, (2 * place - 1.2, y), (2 * place - 0.82, y))
        first = 0 if parts is TRAINING else 2
        axes.plot([8, 8, first], [y - 0.34, y - 0.6, y - 0.6], color=INK, linewidth=1.2)
        _arrow(axes, (first, y - 0.6), (first, y - 0.34))
        axes.text(5, y - 0.57, back, ha="center", va="bottom", fontsize=8, style="italic")
    axes.set_title("One network, two lives")
    return figure


def _arrow(axes, start, end):
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=10, color=INK, shrinkA=0, shrinkB=0))
