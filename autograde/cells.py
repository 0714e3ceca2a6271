"""Run cells as a Jupyter kernel would, without one: magics, pictures, the last value; outputs in the order they came.

Works inside the sandbox, in the process of a submission: whatever it says is a claim.
"""

import contextlib
import os
from itertools import islice
from traceback import walk_tb

import matplotlib
from IPython.core import completer  # noqa: F401  a shell imports it when it is made
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets import Type
from traitlets.config import Config

from utils.observe.limits import Beginning, TookTooLong, time_limit

MAX_TEXT = 100_000  # characters of text, MAX_SHOWN of a picture, kept of each output
MAX_SHOWN = 4_000_000
MAX_CELL = 16_000_000  # of all that one cell shows
LEFT_OUT = "(More output than is kept of a cell: the rest is left out.)\n"
MAX_FRAMES = 50  # of an error, whose lines are shown


class _Value(DisplayHook):
    """What a cell's last line is worth, unless a semicolon ends it."""

    def write_output_prompt(self):
        pass

    def write_format_data(self, format_dict, md_dict=None):
        self.shell.show("execute_result", format_dict, execution_count=None)

    def log_output(self, format_dict):
        """Keep no copy: IPython's history would hold all that was ever shown."""

    def finish_displayhook(self):
        self._is_active = False


class _Shown(DisplayPublisher):
    """What a cell shows by `display`, figures of pyplot included."""

    def publish(self, data, metadata=None, *args, **options):
        self.shell.show("display_data", data)

    def clear_output(self, wait=False):
        pass


class _Printed(Beginning):
    """What a cell prints to one stream: added to the last output, if that is text of this stream."""

    def __init__(self, name, outputs):
        super().__init__(MAX_TEXT)
        self._name, self._outputs = name, outputs

    def keep(self, text):
        if not self._outputs or self._outputs[-1].get("name") != self._name:
            self._outputs.append({"output_type": "stream", "name": self._name, "text": []})
        self._outputs[-1]["text"].append(text)


class Shell(InteractiveShell):
    """IPython without anyone before it: every backend of matplotlib is the inline one, errors are left to `run`."""

    displayhook_class = Type(_Value)
    display_pub_class = Type(_Shown)
    outputs, room = (), 0

    def show(self, kind, data, **more):
        """Add an output, as long as there is room."""
        small = {str(of): text for of, text in data.items() if isinstance(text, str) and len(text) <= MAX_SHOWN}
        size = sum(map(len, small.values()))
        if size <= self.room:
            self.outputs.append({"output_type": kind, "data": small, "metadata": {}, **more})
        elif self.room >= 0:
            self.outputs.append({"output_type": "stream", "name": "stdout", "text": [LEFT_OUT]})
            size = self.room + 1
        self.room -= size

    def _tee(self, channel):
        """Keep no copy: IPython's history would hold all that was ever printed."""
        return contextlib.nullcontext()

    def enable_gui(self, gui=None):
        pass

    def enable_matplotlib(self, gui=None):
        return super().enable_matplotlib("inline")

    def showtraceback(self, *args, **options):
        pass

    showsyntaxerror = showtraceback


def prepare():
    """What the shells of this process and of its forks share: pyplot shows what it draws where it is drawn."""
    matplotlib.use("module://matplotlib_inline.backend_inline")


def shell():
    """The one Shell of this process, at home in its working directory. `prepare` comes before."""
    home = os.getcwd()
    os.environ.update(NBGRADER_EXECUTION="autograde", HOME=home, TMPDIR=home, IPYTHONDIR=home)
    return Shell.instance(colors="nocolor", config=Config(HistoryManager={"enabled": False}))  # no file, no thread


def run(shell, source, seconds):
    """One cell's outputs, as nbformat has them: stream, display_data, execute_result, error."""
    outputs, shell.room = [], MAX_CELL
    shell.outputs = outputs
    printed, warned = _Printed("stdout", outputs), _Printed("stderr", outputs)
    shell.history_manager.store_inputs(shell.execution_count, source)  # for In, and to see a semicolon at the end
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(warned):
        try:
            with time_limit(seconds):
                result = shell.run_cell(source, store_history=False)
            error = result.error_before_exec or result.error_in_exec
        except TookTooLong as late:
            error = late
    shell.execution_count += 1
    for output in outputs:
        if output["output_type"] == "stream":
            output["text"] = "".join(output["text"])
    if error is not None:
        outputs.append(_error_output(shell, error, seconds))
    return {"outputs": outputs}


def _error_output(shell, error, seconds):
    if isinstance(error, TookTooLong):
        lines = [f"This cell was stopped after {seconds:g} s."]
    elif hasattr(error, "_render_traceback_"):
        lines = error._render_traceback_()
    elif len(list(islice(walk_tb(error.__traceback__), MAX_FRAMES + 1))) > MAX_FRAMES:  # it would take seconds
        lines = [f"{type(error).__name__}: {error}"]
    else:
        lines = shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__, tb_offset=1)
    return {
        "output_type": "error",
        "ename": type(error).__name__,
        "evalue": str(error)[:MAX_TEXT],
        "traceback": [str(text)[:MAX_TEXT] for text in lines][:50],
    }
