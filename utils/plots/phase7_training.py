"""Pictures of a training run."""

from utils.plots.canvas import BLUE, INK, ORANGE, canvas

__all__ = ["loss_curve"]

MEASURES = {"exact_match": "exact match", "bits_per_byte": "bits per byte"}


def loss_curve(rows):
    """Loss by step, and beside it what was evaluated on the way; a single evaluation is told in words.

    rows: dicts with "step" and "loss", as in log.jsonl; some have "exact_match" or "bits_per_byte" as well
    """
    trained = [row for row in rows if "loss" in row]
    measured = [(row["step"], row[name], name) for row in rows for name in MEASURES if row.get(name) is not None]
    curve = len(measured) > 1
    figure, places = canvas(8.6 if curve else 7.2, 3.2, columns=2 if curve else 1)
    places[0].plot([row["step"] for row in trained], [row["loss"] for row in trained], color=BLUE, linewidth=1.5)
    places[0].set(xlabel="step", ylabel="loss (nats per token)", title="Training loss")
    places[0].set_ylim(bottom=0)
    if measured and not curve:
        step, value, name = measured[0]
        text = f"step {step}, on text it never saw:\n{MEASURES[name]} {value:.3f}"
        places[0].text(0.98, 0.95, text, transform=places[0].transAxes, ha="right", va="top", fontsize=9.5, color=INK)
    if curve:
        steps, values, names = zip(*measured, strict=True)
        places[1].plot(steps, values, "o--", color=ORANGE)
        places[1].set(xlabel="step", title=f"On text it never saw: {MEASURES[names[0]]}")
    return figure
