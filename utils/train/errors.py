"""What goes wrong in a run and can be put right by the reader."""


class TrainError(Exception):
    """Its text is the whole message; a notebook shows it without a traceback."""

    def _render_traceback_(self):
        return [f"✗ {self}"]
