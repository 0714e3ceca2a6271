"""Pictures of blocks."""

from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.ticker import LogLocator, NullFormatter

from utils.plots.canvas import BLUE, GREEN, INK, LINE, ORANGE, RED, SKY, array, canvas

__all__ = ["activations", "block_diagram", "gradient_curves"]

STYLES = ((BLUE, "-"), (RED, "--"), (GREEN, ":"), (ORANGE, "-."))


def activations(points, curves, gap):
    """Left: activations over the same points. Right: by how much two forms of one of them differ.

    points (n,); curves: dict label -> values (n,); gap (n,)
    """
    figure, (left, right) = canvas(8.4, 3.2, columns=2)
    for (label, values), (colour, style) in zip(curves.items(), STYLES, strict=False):
        left.plot(array(points), array(values), style, color=colour, label=label)
    left.axhline(0, color=LINE, linewidth=1)
    left.set(xlabel="x", ylabel="activation", ylim=(-0.5, 3), title="Hard and soft switches")
    left.legend(frameon=False)
    right.plot(array(points), array(gap), color=BLUE)
    right.axhline(0, color=LINE, linewidth=1)
    right.set(xlabel="x", ylabel="tanh form − exact form", title="Two forms of GELU")
    return figure


def gradient_curves(norms, title="Gradient at each block's weights"):
    """How much of the loss reaches each block, on a log axis.

    norms: dict label -> one number per block, first block first
    """
    figure, (axes,) = canvas(7.2, 3.4)
    for (label, values), (colour, style) in zip(norms.items(), STYLES, strict=False):
        marker = "o" if len(values) <= 24 else ""
        axes.plot(range(1, len(values) + 1), values, style, marker=marker, markersize=4, color=colour, label=label)
    axes.set(yscale="log", xlabel="block, first to last", ylabel="norm of the gradient", title=title)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.legend(frameon=False)
    return figure


# ---- the two blocks ------------------------------------------------------------------------------

ENCODER = [("norm1", ORANGE), ("attention", BLUE), ("+", GREEN), ("norm2", ORANGE), ("ffn", SKY), ("+", GREEN)]
DECODER = [
    ("norm1", ORANGE),
    ("self_attention", BLUE),
    ("+", GREEN),
    ("norm2", ORANGE),
    ("cross_attention", BLUE),
    ("+", GREEN),
    ("norm3", ORANGE),
    ("ffn", SKY),
    ("+", GREEN),
]
STEP = 0.82


def block_diagram():
    """Both blocks in pre-norm, read from bottom to top; the line at the side is the way round."""
    figure, (axes,) = canvas(8.2, 6.0)
    axes.set(xlim=(0, 12), ylim=(-0.9, 8.0))
    axes.axis("off")
    _column(axes, 2.6, ENCODER, "EncoderBlock")
    _column(axes, 8.4, DECODER, "DecoderBlock")
    top = len(ENCODER) * STEP
    reads = 4 * STEP + 0.27
    axes.plot([2.6, 2.6, 5.4, 5.4], [top - 0.1, top + 0.35, top + 0.35, reads], color=INK, linewidth=1.4)
    _arrow(axes, (5.4, reads), (7.2, reads))
    axes.text(4.2, top + 0.5, "last norm, then memory: keys and values", ha="center", fontsize=8.5, style="italic")
    axes.text(9.75, STEP + 0.27, "causal", fontsize=8.5, style="italic", va="center")
    axes.set_title("One block of each kind (pre-norm, bottom to top)")
    return figure


def _column(axes, x, parts, title):
    """One block: its parts from bottom to top, and a way round each branch."""
    axes.text(x, -0.75, f"x  →  {title}", ha="center", fontsize=10, weight="bold")
    start = -0.35
    for place, (name, colour) in enumerate(parts):
        y = place * STEP
        _arrow(axes, (x, y - (STEP - 0.54)), (x, y))
        width = 0.6 if name == "+" else 2.4
        box = FancyBboxPatch(
            (x - width / 2, y), width, 0.54, boxstyle="round,pad=0.02,rounding_size=0.12", facecolor="white"
        )
        box.set(edgecolor=colour, linewidth=2)
        axes.add_patch(box)
        axes.text(x, y + 0.27, name, ha="center", va="center", fontsize=9, family="monospace")
        if name == "+":
            side = x - 1.75
            axes.plot([x, side, side], [start, start, y + 0.27], color=GREEN, linewidth=1.6)
            _arrow(axes, (side, y + 0.27), (x - 0.32, y + 0.27), GREEN)
            start = y + 0.54 + (STEP - 0.54) / 2
    _arrow(axes, (x, len(parts) * STEP - (STEP - 0.54)), (x, len(parts) * STEP))


def _arrow(axes, start, end, colour=INK):
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=10, color=colour, shrinkA=0, shrinkB=0))
