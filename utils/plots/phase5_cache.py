"""Pictures of the cache and of scaling."""

import numpy as np
from matplotlib.patches import Rectangle

from utils.plots.canvas import BLUE, GREEN, INK, LINE, ORANGE, RED, array, canvas

__all__ = ["budget_valley", "cache_filling", "cost_by_length", "loss_by_size"]


def cache_filling(prompt_len, n_tokens, max_len, fed, title):
    """Places of a cache: filled by the prompt, filled since, empty; and below, what this step feeds with and without.

    fed: dict name -> number of tokens fed in this step
    """
    figure, (axes,) = canvas(8.6, 2.9)
    for place in range(max_len):
        kind = "prompt" if place < prompt_len else "written" if place < n_tokens else "empty"
        style = {
            "prompt": dict(facecolor=BLUE),
            "written": dict(facecolor=ORANGE, hatch=".."),
            "empty": dict(facecolor="white", hatch="//"),
        }[kind]
        axes.add_patch(Rectangle((place, 2.1), 0.9, 0.8, edgecolor=LINE, **style))
    for row, (name, count) in enumerate(fed.items()):
        axes.add_patch(Rectangle((0, 1.1 - row), count, 0.55, facecolor=GREEN if row else RED, edgecolor=INK))
        axes.text(count + 0.4, 1.37 - row, f"{name}: {count} token{'s' * (count != 1)} fed in this step", va="center")
    axes.text(0, 3.05, "the cache: prompt (plain), written since (dotted), room left (striped)", fontsize=9)
    axes.set(xlim=(-0.2, max_len + 0.2), ylim=(-0.1, 3.5), title=title)
    axes.set_axis_off()
    return figure


def cost_by_length(lengths, curves, fits, ylabel):
    """Measured points on two log axes, each with the power of the length that fits it.

    curves: dict name -> one number per length; fits: dict name -> (factor, power)
    """
    figure, (axes,) = canvas(7.2, 3.6)
    styles = ((RED, "o", "-"), (BLUE, "s", "--"), (GREEN, "^", "-."))
    for (name, values), (colour, mark, line) in zip(curves.items(), styles, strict=False):
        factor, power = fits[name]
        axes.plot(lengths, array(values), mark, color=colour)
        fitted = factor * np.array(lengths, dtype=float) ** power
        axes.plot(lengths, fitted, line, color=colour, label=f"{name}: length to the power {power:.2f}")
    axes.set(xscale="log", yscale="log", xlabel="tokens so far", ylabel=ylabel, title="What one more token costs")
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.minorticks_off()
    axes.legend(fontsize=9, frameon=False)
    return figure


def loss_by_size(sizes, losses, laws, floor=None, title="Loss by size", xlabel="size", log_ticks=()):
    """Points and laws on a log axis of size. laws: dict name -> (sizes, losses); floor: a dotted line, (name, loss).

    log_ticks: losses to be marked on a log axis, where a power without a floor is a straight line
    """
    figure, (axes,) = canvas(7.2, 3.6)
    axes.plot(sizes, array(losses), "o", color=INK, markersize=7, label="given")
    for (name, (places, values)), colour, line in zip(
        laws.items(), (BLUE, RED, GREEN), ("-", "--", "-."), strict=False
    ):
        axes.plot(places, array(values), line, color=colour, label=name)
    if floor:
        axes.axhline(floor[1], color=ORANGE, linestyle=":", linewidth=2, label=floor[0])
    axes.set(xscale="log", xlabel=xlabel, ylabel="loss (nats per token)", title=title)
    if log_ticks:
        axes.set(yscale="log")
        axes.set_yticks(log_ticks, [f"{tick:g}" for tick in log_ticks])
        axes.tick_params(axis="y", which="minor", left=False, labelleft=False)
    axes.legend(fontsize=9, frameon=False)
    return figure


def budget_valley(shares, curves, marks, title):
    """Loss along one budget, by the number of parameters; a dot at the bottom of each valley.

    shares: numbers of parameters; curves: dict name -> losses; marks: dict name -> (n_params, loss)
    """
    figure, (axes,) = canvas(7.2, 3.6)
    styles = ((BLUE, "-"), (ORANGE, "--"), (GREEN, "-."))
    for (name, values), (colour, line) in zip(curves.items(), styles, strict=False):
        axes.plot(shares, array(values), line, color=colour, label=name)
        axes.plot(*marks[name], "o", color=colour, markeredgecolor=INK, markersize=9)
    axes.set(xscale="log", xlabel="parameters (the rest of the budget is tokens)", ylabel="loss", title=title)
    axes.legend(fontsize=9, frameon=False)
    return figure
