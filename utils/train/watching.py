"""What can be seen of a run: a bar, lines of text, a live picture of the loss, log.jsonl, TensorBoard if wanted."""

import json
import os
import sys
import time
from pathlib import Path

from tqdm.auto import tqdm

from utils.train.checkpoint import replace
from utils.train.errors import TrainError

EVERY = 3.0  # seconds between pictures: drawing must not cost what it shows


class Watcher:
    """Follows a run. quiet: says nothing (other processes than the first); only the first writes the log."""

    def __init__(self, config, out, start, watch, first=True):
        self.path, self.rows, self.first = Path(out) / "log.jsonl", [], first
        self.quiet = not watch or not first
        self.config, self.start, self.bar = config, start, None
        self.picture = _Picture(config.track) if watch and first and _in_notebook() else None
        self.board = _board(out, self.say) if config.tensorboard and first else None

    def begin(self, start):
        """Keep the log's rows up to `start`, so that a resumed run's log is one run's log."""
        if not self.first:
            return
        rows = [row for row in _rows(self.path) if row["step"] <= start] if start else []
        self.rows = rows
        try:
            replace(self.path, "".join(json.dumps(row) + "\n" for row in rows).encode())
            self.file = open(self.path, "a", encoding="utf8")  # noqa: SIM115
        except OSError as error:
            raise TrainError(f"{self.path} cannot be written: {error.strerror or error}") from error

    def say(self, text):
        if not self.quiet:
            tqdm.write(text, file=sys.stdout) if self.bar else print(text, flush=True)

    def step(self, step, loss):
        """Move the bar; where there is none (a file, a scheduler's log), a line each tenth of the run."""
        total = self.config.steps
        if self.bar is None:
            hidden = self.quiet or "NBGRADER_EXECUTION" in os.environ
            hidden = hidden or not (self.picture is not None or sys.stdout.isatty())
            self.bar = tqdm(total=total, initial=step - 1, disable=hidden, file=sys.stdout, unit="step")
        self.bar.update(1)
        self.bar.set_postfix_str(f"loss {loss:.3f}", refresh=False)
        if self.bar.disable and step * 10 // total > (step - 1) * 10 // total:
            self.say(f"step {step} of {total}: loss {loss:.3f}")

    def log(self, row):
        """Keep a row: on disk at once, on the board, in the picture."""
        self.rows.append(row)
        if not self.first:
            return
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()
        if self.board is not None:
            for name, value in row.items():
                if isinstance(value, int | float) and name != "step":
                    self.board.add_scalar(name, value, row["step"])
        if self.picture is not None:
            self.picture.draw(self.rows)

    def close(self):
        if self.bar is not None:
            self.bar.close()
        if self.picture is not None:
            self.picture.draw(self.rows, last=True)
        if self.board is not None:
            self.board.close()
        if getattr(self, "file", None) is not None:
            self.file.close()


def _rows(path):
    """The rows of an earlier log; a last line that a crash cut short is left out."""
    rows = []
    if path.is_file():
        for line in path.read_text(encoding="utf8").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
    return rows


def _in_notebook():
    if "NBGRADER_EXECUTION" in os.environ or "IPython" not in sys.modules:
        return False
    shell = sys.modules["IPython"].get_ipython()
    return shell is not None and hasattr(shell, "kernel")


class _Picture:
    """The loss so far, one picture that is drawn anew in its place."""

    def __init__(self, track):
        self.track, self.handle, self.drawn = track, None, 0.0

    def draw(self, rows, last=False):
        if len(rows) < 2 or (not last and time.monotonic() - self.drawn < EVERY):
            return
        from IPython.display import HTML, display

        from utils.lesson import image
        from utils.plots.phase7_training import loss_curve

        losses = [row["loss"] for row in rows if "loss" in row]
        alt = f"The training loss of track {self.track} against the step"
        alt += f": it began at {losses[0]:.3f} and is now {losses[-1]:.3f}." if losses else ", not measured yet."
        page = HTML(image(loss_curve(rows), alt))
        if self.handle is None:
            self.handle = display(page, display_id=True)
        else:
            self.handle.update(page)
        self.drawn = time.monotonic()


def _board(out, say):
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        say("… no TensorBoard here (pip install tensorboard); log.jsonl has the same numbers")
        return None
    return SummaryWriter(str(Path(out) / "tensorboard"))
