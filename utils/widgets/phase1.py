"""The figure of phase 1: walk through a table of positions."""

import torch

from utils import plots
from utils.widgets.interactive import SLIDER, Interactive

__all__ = ["PositionExplorer", "position_explorer"]

N_PLACES = 48
WIDTHS, BASES = (4, 8, 16, 32, 64), (10, 100, 1000, 10_000)


def position_explorer(sinusoidal_positions=None):
    """Mark a place and see which others look alike.

    sinusoidal_positions: your own function; without it, sines and cosines made here
    Controls: the place, the width, the base.
    Shows the live figure or, without a front end and while grading, its picture. Returns the PositionExplorer.
    """
    return PositionExplorer(sinusoidal_positions or waves).show()


def waves(seq_len, d_model, base=10000.0):
    """The table by whole columns. A class learns on phase 1 without its twins, so none is asked."""
    column = torch.arange(d_model)
    angles = torch.arange(seq_len)[:, None] / base ** ((column - column % 2) / d_model)
    return torch.where(column % 2 == 0, angles.sin(), angles.cos())


class PositionExplorer(Interactive):
    """A table of positions, one of which is marked."""

    def __init__(self, sinusoidal_positions):
        self.sinusoidal_positions = sinusoidal_positions
        self.place, self.d_model, self.base = 3, 32, 10_000

    def table(self):
        """The positions in use, (48, d_model)."""
        return self.sinusoidal_positions(N_PLACES, self.d_model, float(self.base)).detach()

    def distances(self):
        """How far each place lies from the chosen one, (48,)."""
        table = self.table()
        return torch.linalg.vector_norm(table - table[self.place], dim=-1)

    def words(self):
        """The value the figure shows."""
        distances = self.distances()
        others = distances.clone()
        others[self.place] = torch.inf
        near = int(others.argmin())
        later = distances[self.place :].diff()
        falls = (later < 0).nonzero()
        fall = f"first falls at offset {int(falls[0]) + 1}" if len(falls) else "never falls in this window"
        return f"place {self.place} lies nearest to place {near}: distance {others[near]:.3f}; the distance {fall}"

    def draw(self):
        return plots.position_row(self.table(), self.place, self.distances())

    def alt(self):
        return (
            f"Left: sinusoidal positions of width {self.d_model} and base {self.base} as colours, place {self.place} "
            f"framed. Right: the distance of every place from it. In words: {self.words()}."
        )

    def rows(self):
        import ipywidgets as w

        self.place_control = w.IntSlider(value=self.place, min=0, max=N_PLACES - 1, description="place", **SLIDER)
        self.width_control = w.SelectionSlider(options=WIDTHS, value=self.d_model, description="width", **SLIDER)
        self.base_control = w.SelectionSlider(options=BASES, value=self.base, description="base", **SLIDER)
        return [[self.place_control, self.width_control, self.base_control]]

    def read_controls(self):
        self.place, self.d_model = self.place_control.value, self.width_control.value
        self.base = self.base_control.value
