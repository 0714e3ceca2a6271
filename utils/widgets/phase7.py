"""The figure of the capstone: what fits into a machine, and what a day on it buys."""

from utils import plots
from utils.config import ModelConfig
from utils.widgets.interactive import BUTTONS, SLIDER, Interactive

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
    return TrainingPlanner(training_memory, flops_per_token).show()


class TrainingPlanner(Interactive):
    """A model, a batch and a machine."""

    def __init__(self, training_memory, flops_per_token):
        self.training_memory, self.flops_per_token = training_memory, flops_per_token
        self.width, self.layers, self.batch, self.seq_len = 768, 12, 8, 1024
        self.machine, self.precision, self.fused = "T4: 16 GB", "16 bits", True

    def config(self):
        return ModelConfig(50_257, self.width, self.width // 64, self.layers, 4 * self.width, self.seq_len)

    def memory(self, batch=None):
        """The parts of training memory, in bytes; batch: by default the chosen one."""
        size = BYTES_PER_ELEMENT[self.precision]
        return self.training_memory(self.config(), batch or self.batch, self.seq_len, size, fused=self.fused)

    def words(self):
        """The values the figure shows."""
        parts, (room, power) = self.memory(), MACHINES[self.machine]
        tokens = 86_400 * power / self.flops_per_token(self.config(), self.seq_len)["causal"]
        verdict = "fits" if parts["total"] <= room else "does not fit"
        return (
            f"{parts['weights'] / 4e6:,.0f} million parameters need {parts['total'] / 1e9:.3g} GB: {verdict} "
            f"({self.machine}). A day there is about {tokens / 1e9:.3g} billion tokens"
        )

    def draw(self):
        sizes = sorted({max(1, self.batch // 2), self.batch})
        return plots.memory_bars({batch: self.memory(batch) for batch in sizes}, "batch", MACHINES[self.machine][0])

    def alt(self):
        parts = ", ".join(f"{name} {held / 1e9:.3g}" for name, held in self.memory().items() if name != "total")
        return f"Stacked bars of training memory against the machine's. In words: {self.words()}. Parts in GB: {parts}."

    def rows(self):
        import ipywidgets as w

        widths, batches, lengths = (128, 256, 512, 768, 1024, 2048), (1, 2, 4, 8, 16, 32, 64), (128, 512, 1024, 4096)
        self.control_of = {
            "width": w.SelectionSlider(options=widths, value=self.width, description="d_model", **SLIDER),
            "layers": w.IntSlider(value=self.layers, min=1, max=48, description="layers", **SLIDER),
            "batch": w.SelectionSlider(options=batches, value=self.batch, description="batch", **SLIDER),
            "seq_len": w.SelectionSlider(options=lengths, value=self.seq_len, description="tokens", **SLIDER),
            "machine": w.ToggleButtons(options=[*MACHINES], value=self.machine, description="machine", **BUTTONS),
            "precision": w.ToggleButtons(
                options=[*BYTES_PER_ELEMENT], value=self.precision, description="precision", **BUTTONS
            ),
            "fused": w.Checkbox(value=self.fused, description="fused attention", indent=False),
        }
        lines = ("width", "layers"), ("batch", "seq_len"), ("machine",), ("precision", "fused")
        return [[self.control_of[name] for name in line] for line in lines]

    def read_controls(self):
        for name, control in self.control_of.items():
            setattr(self, name, control.value)
