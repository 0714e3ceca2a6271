"""The figure of phase 4: what reaches each block, by depth and order."""

import html

import torch

from utils import lesson, plots

__all__ = ["DepthExplorer", "depth_explorer"]

DEPTHS = (2, 4, 8, 12, 24, 48)
ORDERS = {"pre-norm": True, "post-norm": False}


def depth_explorer(block, gradient_norms):
    """Move the depth of a stack and watch what reaches its first block, pre-norm against post-norm.

    block: your EncoderBlock; gradient_norms: your function
    Shows the live figure or, without a front end and while grading, its picture. Returns the DepthExplorer.
    """
    explorer = DepthExplorer(block, gradient_norms)
    widget = None if lesson.grading() else explorer.widget()
    lesson.display_widget(widget, explorer.picture(), explorer.words())
    return explorer


class DepthExplorer:
    """The state of the figure and its three faces: `words`, `picture` and `widget`."""

    def __init__(self, block, gradient_norms, width=32):
        self.block, self.gradient_norms, self.width = block, gradient_norms, width
        self.depth, self.scale = 12, 1.0
        self.known = {}  # (order, depth, scale) -> one number per block

    def measured(self, order):
        """What reaches each block of a fresh stack; the same each time it is asked."""
        key = (order, self.depth, self.scale)
        if key not in self.known:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                x = torch.randn(2, 8, self.width)
                blocks = [self.block(self.width, 4, 2 * self.width, ORDERS[order]) for _ in range(self.depth)]
                for weight in (p for block in blocks for p in block.parameters() if p.dim() > 1):
                    torch.nn.init.normal_(weight, std=self.scale * weight.shape[1] ** -0.5)
                self.known[key] = self.gradient_norms(blocks, x)
        return self.known[key]

    def words(self):
        """The value the figure shows."""
        ratios = {order: self.measured(order)[0] / self.measured(order)[-1] for order in ORDERS}
        told = ", ".join(f"{order} {ratio:.3g}" for order, ratio in ratios.items())
        return f"{self.depth} blocks: gradient at the first block divided by that at the last: {told}"

    def picture(self):
        """The figure as an <img>, described for those who cannot see it."""
        figure = plots.gradient_curves({order: self.measured(order) for order in ORDERS}, f"{self.depth} blocks")
        return lesson.image(figure, f"Gradient of each block on a log axis. In words: {self.words()}.")

    def widget(self):
        """The live figure: two sliders (reached by Tab, moved by arrows), the value in words, the picture."""
        import ipywidgets as w

        look = {"style": {"description_width": "initial"}, "layout": {"width": "24em"}}
        self.depth_control = w.SelectionSlider(options=DEPTHS, value=self.depth, description="blocks", **look)
        self.scale_control = w.SelectionSlider(
            options=(0.3, 1.0, 2.0), value=self.scale, description="size of weights", **look
        )
        self.readout, self.canvas = w.HTML(), w.HTML()
        for control in (self.depth_control, self.scale_control):
            control.observe(self._refresh, names="value")
        self._refresh()
        return w.VBox([w.HBox([self.depth_control, self.scale_control]), self.readout, self.canvas])

    def _refresh(self, change=None):
        self.depth, self.scale = self.depth_control.value, self.scale_control.value
        self.readout.value = f"<b>{html.escape(self.words())}</b>"
        self.canvas.value = self.picture()
