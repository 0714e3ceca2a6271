"""What every figure to play with shares: three faces of one state, live, as a picture and in words."""

import html

from utils import lesson

SLIDER = {"style": {"description_width": "initial"}, "layout": {"width": "24em", "margin": "2px 1.5em 2px 0"}}
BUTTONS = {
    "style": {"description_width": "initial", "button_width": "auto"},
    "layout": {"width": "max-content", "margin": "2px 1.5em 2px 0"},
}
LOOK = """<style>
.figure-to-play .widget-toggle-buttons { display: flex; flex-flow: row wrap; column-gap: 0.7em; }
.figure-to-play button.mod-active { font-weight: bold; text-decoration: underline; }  /* shades alone tell little */
</style>"""


class Interactive:
    """A figure to play with. All it shows is made of its state, so its faces agree. A subclass says

    words() -> str, the value that the figure shows; draw() -> a matplotlib Figure; alt() -> str, what is on it
    rows() -> lists of ipywidgets, one list for each line, at least two controls in all, each with a description:
      sliders and buttons. No Dropdown: JupyterLab takes the arrow keys away from a closed one.
    read_controls() takes the state from them.
    """

    def show(self):
        """Show it live or, without a front end, as a picture; while grading, in words alone. Returns itself."""
        grading = lesson.grading()
        lesson.display_widget(None if grading else self.widget(), None if grading else self.picture(), self.words())
        return self

    def picture(self):
        """The figure as an <img>, described for those who cannot see it."""
        return lesson.image(self.draw(), self.alt())

    def widget(self):
        """The live figure: controls (reached by Tab, moved by arrows or Space), the words, the picture."""
        import ipywidgets as w

        rows = self.rows()
        self.controls = [part for row in rows for part in row if not isinstance(part, w.Label)]
        self.readout, self.canvas = w.HTML(), w.HTML()
        self.readout.add_class("figure-readout")
        for control in self.controls:
            control.observe(self._refresh, names="value")
        self._refresh()
        lines = [w.HBox(row, layout={"flex_flow": "row wrap"}) for row in rows]
        look = w.HTML(LOOK, layout={"display": "none"})
        box = w.VBox([look, *lines, self.readout, self.canvas])
        box.add_class("figure-to-play")
        return box

    def _refresh(self, change=None):
        self.read_controls()
        self.readout.value = f"<b>{html.escape(self.words())}</b>"
        self.canvas.value = self.picture()
