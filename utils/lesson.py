"""What a lesson's cells lean on: predictions, waiting lines, failures on purpose, pictures with words."""

import base64
import contextlib
import html
import io
import os
import re
import sys

from IPython import get_ipython
from IPython.display import display

_chosen = {}  # question id -> the option the learner picked


# ---- predict, then see ---------------------------------------------------------------------------


def predict(name, question, options):
    """Ask for a guess before the answer is seen.

    name: the question's id, the same one `reveal` gets later
    options: list of str, one of which is right
    Shows radio buttons; without a front end, or while grading, the question as text. Promises to keep the choice.
    """
    plain = "\n".join([f"Predict: {_plain(question)}", *(f"  ( ) {_plain(option)}" for option in options)])
    items = "".join(f"<li>{_code(option)}</li>" for option in options)
    static = f"<p><b>Predict.</b> {_code(question)}</p><ul>{items}</ul>"
    display_widget(None if grading() else _radio(name, question, options), static, plain)


def reveal(name, answer, because=""):
    """Print what you chose and what it was."""
    chosen = _chosen.get(name)
    if chosen is None:
        verdict = f"It is: {answer}."
    elif chosen == answer:
        verdict = f"✓ As you predicted: {answer}."
    else:
        verdict = f"You said: {chosen}. It is: {answer}."
    print(f"{verdict} {because}".strip())


def _radio(name, question, options):
    import ipywidgets

    buttons = ipywidgets.RadioButtons(
        options=[(_plain(option), option) for option in options],
        value=_chosen.get(name) if _chosen.get(name) in options else None,
        layout={"width": "max-content"},
    )
    buttons.observe(lambda change: _chosen.__setitem__(name, change["new"]), names="value")
    return ipywidgets.VBox([ipywidgets.HTML(f"<b>Predict.</b> {_code(question)}"), buttons])


# ---- parts that are not there yet ----------------------------------------------------------------


@contextlib.contextmanager
def need(*names):
    """Run a cell that uses the exercises `names`; while one is a stub or was not run, print one waiting line.

    Promises: only a blank stub of an exercise, or the NameError of one, is turned into the line; other errors pass.
    """
    try:
        yield
    except (NotImplementedError, NameError) as error:
        missing = _missing_part(error, names)
        if missing is None:
            raise
        print(f"… waiting for {missing}: build it in section {_section(missing) or '?'}")


def finished(part):
    """`part`, an exercise of this notebook, if it passes its check; else None: what takes it uses the course's then."""
    from utils.checks import evaluate

    with contextlib.redirect_stdout(io.StringIO()):
        report = evaluate(part.__name__, part)
    return part if report.passed else None


def _missing_part(error, names):
    """The exercise whose blank stub, or whose missing cell, raised `error`; None if it is an error like any other."""
    culprit = getattr(error, "name", None)  # a NameError's
    if isinstance(error, NotImplementedError) and not error.args:  # a stub raises it without a word
        culprit = _owner(error.__traceback__)
    return culprit if culprit in names or _section(culprit) else None


def _owner(trace):
    """The function or class in whose own body the error was raised."""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_qualname.split(".")[0]


def _section(name):
    from utils.checks import EXERCISES

    return EXERCISES[name].section if name in EXERCISES else None


def _explain_name_error(shell, kind, error, trace, tb_offset=None):
    """IPython's handler: an exercise that was not run yet is one friendly line, any other name is as usual."""
    if section := _section(error.name):
        line = f"{error.name} is not defined yet: run the cell that builds it, in section {section}."
        error._render_traceback_ = lambda: [line]
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset)


# ---- the wrong way, on purpose -------------------------------------------------------------------


def attempt(label, action):
    """Run `action()` and print its value, or its error, in one line after `label`. A blank stub is left to `need`."""
    try:
        result = action()
    except Exception as error:
        if isinstance(error, (NotImplementedError, NameError)) and _missing_part(error, ()):
            raise
        reason = str(error).strip().splitlines() or [""]
        result = f"✗ {type(error).__name__}: {reason[0]}"
    print(f"{label}: {result}")


# ---- pictures ------------------------------------------------------------------------------------


def show(figure, alt):
    """Show a matplotlib Figure as an HTML image with a text for those who cannot see it; while grading, the text alone.

    alt: one or two sentences that say what the picture shows
    """
    # drawing costs more than all else in such a cell, and nobody looks
    display_widget(None, None if grading() else image(figure, alt), f"[picture] {alt}")
    if "matplotlib.pyplot" in sys.modules:  # else the inline backend shows a figure of pyplot a second time
        sys.modules["matplotlib.pyplot"].close(figure)


def image(figure, alt):
    """The figure as an <img> tag, twice as sharp as it is large.

    alt: what it shows, for those who cannot see it. Raises ValueError without one.
    """
    if not alt.strip():
        raise ValueError("a picture needs a text for those who cannot see it")
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=200, facecolor=figure.get_facecolor())
    width = round(figure.get_figwidth() * 100)
    data = base64.b64encode(png.getvalue()).decode()
    style = "max-width:100%;height:auto;border-radius:8px"
    return f'<img src="data:image/png;base64,{data}" alt="{html.escape(alt)}" width="{width}" style="{style}">'


def display_widget(widget, static_html, static_text):
    """One output with three faces, the first two perhaps None: the live widget, its picture, its words.

    A front end takes the best it knows.
    """
    bundle = {"text/plain": static_text}
    if static_html is not None:
        bundle["text/html"] = static_html
    if widget is not None:
        bundle.update(_view(widget))
    display(bundle, raw=True)


def _view(widget):
    """How a front end finds a widget; written out, since ipywidgets 7 (Colab's) has no method that says so."""
    about = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    return {"application/vnd.jupyter.widget-view+json": about}


def grading():
    """True while nbgrader, or our own grader, runs the notebook: nobody is there to click."""
    return "NBGRADER_EXECUTION" in os.environ


def _code(text):
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _plain(text):
    return text.replace("`", "")


if get_ipython() is not None:
    get_ipython().set_custom_exc((NameError,), _explain_name_error)
