"""The figure of phase 4: what reaches each block, by depth and order."""

import torch

from utils import plots
from utils.widgets.interactive import SLIDER, Interactive

__all__ = ["DepthExplorer", "depth_explorer"]

DEPTHS = (2, 4, 8, 12, 24, 48)
ORDERS = {"pre-norm": True, "post-norm": False}


def depth_explorer(block, gradient_norms):
    """Move the depth of a stack and watch what reaches its first block, pre-norm against post-norm.

    block: your EncoderBlock; gradient_norms: your function
    Shows the live figure or, without a front end and while grading, its picture. Returns the DepthExplorer.
    """
    return DepthExplorer(block, gradient_norms).show()


class DepthExplorer(Interactive):
    """Gradients in two fresh stacks of blocks."""

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

    def draw(self):
        return plots.gradient_curves({order: self.measured(order) for order in ORDERS}, f"{self.depth} blocks")

    def alt(self):
        return f"Gradient of each block on a log axis, a curve for each order. In words: {self.words()}."

    def rows(self):
        import ipywidgets as w

        self.depth_control = w.SelectionSlider(options=DEPTHS, value=self.depth, description="blocks", **SLIDER)
        self.scale_control = w.SelectionSlider(
            options=(0.3, 1.0, 2.0), value=self.scale, description="size of weights", **SLIDER
        )
        return [[self.depth_control, self.scale_control]]

    def read_controls(self):
        self.depth, self.scale = self.depth_control.value, self.scale_control.value
