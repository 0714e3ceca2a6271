"""Pictures of systems: rounded weights, speculation, rooflines."""

import numpy as np
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from utils.plots.canvas import BLUE, GREEN, INK, LINE, ORANGE, RED, array, canvas

__all__ = ["loss_by_bits", "quantized_rows", "roofline", "speculation_round", "tokens_per_pass"]


def loss_by_bits(found, whole, best):
    """Loss of a model against the bits of its weights.

    found: {bits: loss}; whole: the loss in full precision; best: the lowest there can be
    """
    figure, (axes,) = canvas(6.6, 3.3)
    bits = sorted(found)
    axes.plot(bits, [found[b] for b in bits], "o-", color=BLUE, label="quantised")
    axes.axhline(whole, color=GREEN, linestyle="--", label="32 bits")
    axes.axhline(best, color=LINE, linestyle=":", label="best possible")
    axes.set(xlabel="bits per weight", ylabel="loss", title="What fewer bits cost", xticks=bits)
    axes.legend(frameon=False)
    return figure


def quantized_rows(w, back, title):
    """Weights and what is left of them, one panel for each row of a matrix.

    w, back (rows, n): before and after; points on the diagonal lost nothing
    """
    w, back = array(w), array(back)
    figure, places = canvas(3.6 * len(w), 3.3, columns=len(w))
    for row, axes in enumerate(places):
        reach = 1.1 * max(abs(w[row]).max(), 1e-9)
        axes.plot([-reach, reach], [-reach, reach], color=LINE, linewidth=1)
        axes.plot(w[row], back[row], "o", color=(BLUE, RED)[row % 2], markersize=5, alpha=0.8)
        for mark in np.unique(back[row]):
            axes.axhline(mark, color=LINE, linewidth=0.4)
        error = np.linalg.norm(w[row] - back[row]) / np.linalg.norm(w[row])
        axes.set(xlabel="weight", ylabel="what is kept", title=f"row {row}: {error:.1%} of it lost")
    figure.suptitle(title, color=INK)
    return figure


def tokens_per_pass(measured, alpha, cost):
    """Speculation: tokens for each pass of the target, and the speed-up once the draft is paid for.

    measured: {guesses: tokens per pass}; alpha: how often a guess passes; cost of a draft pass, the target's being 1
    """
    figure, (left, right) = canvas(8.4, 3.3, columns=2)
    guesses = np.arange(1, 13)
    formula = (1 - alpha ** (guesses + 1)) / (1 - alpha)
    left.plot(guesses, formula, color=BLUE, label=f"formula, α = {alpha:.2f}")
    left.plot(list(measured), list(measured.values()), "o", color=RED, label="counted")
    left.set(xlabel="guesses per round", ylabel="tokens per pass of the target", title="Fewer passes", ylim=(0, None))
    for share, style, colour in ((cost, "-", GREEN), (0.3, "--", ORANGE)):
        right.plot(
            guesses, formula / (1 + guesses * share), style, color=colour, label=f"a draft pass costs {share:.2f}"
        )
    right.axhline(1, color=LINE, linewidth=1)
    right.set(xlabel="guesses per round", ylabel="speed-up", title="After paying for the draft", ylim=(0, None))
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=8.5)
    return figure


def roofline(batches, weight_bytes, kv_bytes_per_token, flops_per_token, machine, contexts=(100, 2000)):
    """Tokens per second of decoding against the batch, for several lengths of context; faint where memory is full."""
    figure, (axes,) = canvas(7.2, 3.8)
    batch = np.array(batches, dtype=float)
    axes.axhline(machine["flops_per_s"] / flops_per_token, color=INK, linestyle=":", label="bound by computing")
    for context, colour, style in zip(contexts, (BLUE, RED), ("-", "--"), strict=True):
        read = (weight_bytes + batch * kv_bytes_per_token * context) / machine["bandwidth_bytes_per_s"]
        seconds = np.maximum(read, batch * flops_per_token / machine["flops_per_s"])
        most = (machine["memory_bytes"] - weight_bytes) / (kv_bytes_per_token * context)
        room = batch <= most
        axes.plot(batch, batch / seconds, style, color=colour, alpha=0.3)
        axes.plot(batch[room], (batch / seconds)[room], style, color=colour, label=f"context of {context:,} tokens")
        if room.any() and not room.all():
            edge = batch[room][-1], (batch / seconds)[room][-1]
            axes.plot(*edge, "s", color=colour)
            axes.annotate(
                f"memory is full: {int(most):,}", edge, (4, -14), textcoords="offset points", fontsize=8.5, color=INK
            )
    axes.set(xscale="log", yscale="log", xlabel="sequences in the batch", ylabel="tokens per second, all together")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axis.set_minor_formatter(NullFormatter())
    axes.set_title("One machine, more and more users")
    axes.legend(frameon=False, fontsize=8.5)
    return figure


def speculation_round(target, draft, guesses, uniforms, n_accepted, words):
    """One round: for each guess what both models thought, the number it had to beat, and the verdict.

    target (K + 1, V), draft (K, V): probabilities; guesses (K,), uniforms (K,); words: names of the V tokens
    """
    target, draft = array(target), array(draft)
    figure, places = canvas(2.5 * len(target), 3.1, columns=len(target))
    for i, axes in enumerate(places):
        width = 0.4 if i < len(draft) else 0.8
        axes.bar(np.arange(len(words)) - (0.2 if i < len(draft) else 0), target[i], width, color=BLUE, label="target p")
        if i < len(draft):
            axes.bar(
                np.arange(len(words)) + 0.2, draft[i], 0.4, color=ORANGE, label="draft q", hatch="//", edgecolor="white"
            )
            p, q = target[i, guesses[i]], draft[i, guesses[i]]
            verdict = "not looked at" if i > n_accepted else "stands" if i < n_accepted else "falls"
            axes.set_title(f"guess '{words[guesses[i]]}' {verdict}\nu {uniforms[i]:.2f}, p/q {p / q:.2f}", fontsize=9)
        else:
            axes.set_title("bonus row\n" + ("speaks" if n_accepted == len(draft) else "not needed"), fontsize=9)
        axes.set(ylim=(0, 1), yticks=[0, 0.5, 1], xlabel="token")
        axes.set_xticks(range(len(words)), words)
        if i > n_accepted:
            for bar in axes.patches:
                bar.set_alpha(0.25)
    places[0].set_ylabel("probability")
    places[0].legend(frameon=False, fontsize=8)
    return figure
