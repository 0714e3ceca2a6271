"""The figure of the capstone: what fits into a machine, and what a day on it buys."""

import html

from utils import lesson, plots
from utils.config import ModelConfig

__all__ = ["TrainingPlanner", "training_planner"]

MACHINES = {  # bytes of memory, operations a second that a good run may hope for (about 40 % of the peak)
    "laptop, no GPU: 8 GB": (8e9, 1e11),
    "T4: 16 GB": (16e9, 2.6e13),
    "H100: 80 GB": (80e9, 4e14),
}
BYTES_PER_ELEMENT = {"32 bits": 4, "16 bits": 2}


def training_planner(training_memory, flops_per_token):
    """Choose a model, a batch and a machine; see what fills the memory and how many tokens a day buys.

    training_memory, flops_per_token: your functions
    Shows the live figure or, without a front end and while grading, its picture. Returns the TrainingPlanner.
    """
    figure = TrainingPlanner(training_memory, flops_per_token)
    widget = None if lesson.grading() else figure.widget()
    lesson.display_widget(widget, figure.picture(), figure.words())
    return figure


class TrainingPlanner:
    """The state of the figure and its three faces: `words`, `picture` and `widget`."""

    def __init__(self, training_memory, flops_per_token):
        self.training_memory, self.flops_per_token = training_memory, flops_per_token
        self.width, self.layers, self.batch, self.seq_len = 768, 12, 8, 1024
        self.machine, self.precision, self.fused = "T4: 16 GB", "16 bits", True

    def config(self):
        return ModelConfig(50_257, self.width, self.width // 64, self.layers, 4 * self.width, self.seq_len)

    def memory(self):
        """The parts of training memory, in bytes."""
        size = BYTES_PER_ELEMENT[self.precision]
        return self.training_memory(self.config(), self.batch, self.seq_len, size, fused=self.fused)

    def words(self):
        """The values the figure shows."""
        parts, (room, power) = self.memory(), MACHINES[self.machine]
        tokens = 86_400 * power / self.flops_per_token(self.config(), self.seq_len)["causal"]
        verdict = "fits" if parts["total"] <= room else "does not fit"
        return (
            f"{parts['weights'] / 4e6:,.0f} million parameters need {parts['total'] / 1e9:.3g} GB: {verdict} "
            f"({self.machine}). A day there is about {tokens / 1e9:.3g} billion tokens"
        )

    def picture(self):
        """The figure as an <img>, described for those who cannot see it."""
        whole, half = self.memory(), None
        if self.batch > 1:
            size = BYTES_PER_ELEMENT[self.precision]
            half = self.training_memory(self.config(), self.batch // 2, self.seq_len, size, fused=self.fused)
        found = {self.batch: whole} if half is None else {self.batch // 2: half, self.batch: whole}
        figure = plots.memory_bars(found, "batch", MACHINES[self.machine][0])
        return lesson.image(figure, f"Stacked bars of training memory against the machine's. In words: {self.words()}.")

    def widget(self):
        """The live figure: controls (reached by Tab, moved by arrows), the values in words, the picture."""
        import ipywidgets as w

        look = {"style": {"description_width": "initial"}, "layout": {"width": "19em"}}
        self.controls = {
            "width": w.SelectionSlider(
                options=(128, 256, 512, 768, 1024, 2048), value=self.width, description="d_model", **look
            ),
            "layers": w.IntSlider(value=self.layers, min=1, max=48, description="layers", **look),
            "batch": w.SelectionSlider(options=(1, 2, 4, 8, 16, 32, 64), value=self.batch, description="batch", **look),
            "seq_len": w.SelectionSlider(
                options=(128, 512, 1024, 4096), value=self.seq_len, description="tokens", **look
            ),
            "machine": w.Dropdown(options=list(MACHINES), value=self.machine, description="machine", **look),
            "precision": w.ToggleButtons(options=list(BYTES_PER_ELEMENT), value=self.precision),
            "fused": w.Checkbox(value=self.fused, description="fused attention", indent=False),
        }
        self.readout, self.canvas = w.HTML(), w.HTML()
        for control in self.controls.values():
            control.observe(self._refresh, names="value")
        self._refresh()
        rows = ("width", "layers"), ("batch", "seq_len"), ("machine", "precision", "fused")
        boxes = [w.HBox([self.controls[name] for name in row]) for row in rows]
        return w.VBox([*boxes, self.readout, self.canvas])

    def _refresh(self, change=None):
        for name, control in self.controls.items():
            setattr(self, name, control.value)
        self.readout.value = f"<b>{html.escape(self.words())}</b>"
        self.canvas.value = self.picture()
