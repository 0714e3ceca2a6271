"""The rules that every picture and every figure to play with keeps, and the page on which all figures are."""

import importlib
import inspect
import itertools
import re
from base64 import b64decode
from io import BytesIO

import ipywidgets as w
import jupytext
import nbformat
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_notebook, new_output
from PIL import Image

from autograde import pictures
from autograde.course import ROOT
from utils import lesson, oracle, plots, widgets
from utils.plots import canvas
from utils.widgets import gallery
from utils.widgets.interactive import Interactive
from utils.workspace import PHASES

PAGE = jupytext.read(ROOT / "solutions" / "pages" / "figures.py").cells
MODULES = [module for name, module in vars(widgets).items() if name.startswith("phase") and inspect.ismodule(module)]
NAMES = [name for module in MODULES for name in module.__all__ if inspect.isfunction(getattr(module, name))]
DRAWN_IN = """plots phase1_pictures phase3_pictures phase5_pictures phase6_families phase6_systems
phase7_pictures""".split()
PICTURES = {
    f"{name} ({module})": draw
    for module in DRAWN_IN
    for name, draw in importlib.import_module(f"tests.test_{module}").PICTURES.items()
}
VIEW = "application/vnd.jupyter.widget-view+json"
CONTROLS = w.IntSlider, w.FloatSlider, w.FloatLogSlider, w.SelectionSlider, w.ToggleButtons, w.ToggleButton, w.Checkbox


@pytest.fixture(scope="module")
def made():
    """{name: (the figure, the output it made)} of every figure, with the course's own parts. Nothing is painted."""
    outputs, figures = [], {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lesson, "image", unpainted)
        patch.setattr(lesson, "display", lambda bundle, raw: outputs.append(bundle))
        patch.setattr(gallery, "mine", lambda name: getattr(oracle, name))
        for name in NAMES:
            figures[name] = gallery.shown(name), outputs.pop()
    return figures


@pytest.fixture
def shown(made, monkeypatch):
    """The same; what they show from now on is not painted either."""
    monkeypatch.setattr(lesson, "image", unpainted)
    return made


def unpainted(figure, alt):
    return f'<img src="data:image/png;base64," alt="{lesson.html.escape(alt)}">'


# ---- the page ------------------------------------------------------------------------------------


def lesson_section(phase, anchor):
    """The source of one section of a lesson, by the anchor of its heading."""
    text = (ROOT / "solutions" / phase / f"{phase}.py").read_text(encoding="utf8")
    heading = next(h for h in re.findall(r"(?m)^# ## (.+)$", text) if h.replace(" ", "-") == anchor)
    return text.partition(f"# ## {heading}\n")[2].partition("\n# ## ")[0]


def test_every_figure_is_on_the_page_once_in_order():
    """A new figure: is it on the page, under the heading of its phase, in the order of sections?"""
    text = "\n".join(cell.source for cell in PAGE)
    on_the_page = re.findall(r'^play\("(\w+)"\)$', text, re.MULTILINE)
    assert sorted(on_the_page) == sorted(NAMES) and len(NAMES) == len(set(NAMES)) >= 12
    sections = [[int(part) for part in found.split(".")] for found in re.findall(r"\[section ([\d.]+)\]", text)]
    assert len(sections) == len(NAMES) and sections == sorted(sections)
    headings = [f"Phase {number} · {title}" for number, title in enumerate(PHASES.values(), 1)]
    assert re.findall(r"(?m)^## (.+)$", text) == headings
    phases = {name: module.__name__[len("utils.widgets.phase")] for module in MODULES for name in module.__all__}
    for name in NAMES:
        assert text[: text.index(f'"{name}"')].rpartition("## Phase ")[2][0] == phases[name]


@pytest.mark.parametrize("name", NAMES)
def test_the_page_asks_something_and_leads_to_the_lesson(name):
    """Has the figure one question and one link, to the section in which the lesson shows it?"""
    place = next(n for n, cell in enumerate(PAGE) if f'"{name}"' in cell.source)
    words = PAGE[place - 1].source
    assert words.count("?") == 1 + words.count("it?") and "### " in words
    ((phase, anchor),) = re.findall(r"\]\(\w+/(\w+)\.ipynb#(.+)\)", words)
    assert f"widgets.{name}(" in lesson_section(phase, anchor)
    assert f"[section {anchor.split('-')[0]}]({phase}/" in words


def test_the_page_has_a_still_picture_of_every_figure(made):
    """Where nothing runs, on GitHub and in nbconvert: is each figure there as it now starts, with its description?"""
    page = nbformat.read(ROOT / "notebooks" / "figures.ipynb", as_version=4)
    outputs = {name: cell.outputs for cell in page.cells for name in pictures.names([cell])}
    assert list(outputs) == pictures.names(PAGE) and set(outputs) == set(NAMES)
    for name, (output, text) in outputs.items():
        figure, _ = made[name]
        assert output.data["text/plain"] == figure.words()
        assert output.metadata["image/png"]["alt"] == " ".join(text.text.split()) == figure.alt()
        width, height = Image.open(BytesIO(b64decode(output.data["image/png"]))).size
        assert 400 <= width <= 1000 and height >= 200


def test_the_page_says_what_is_not_in_this_copy(monkeypatch, capsys):
    """A class's copy: is a figure of a later phase, or one without its part, a line and not an error?"""
    gallery.play("a_figure_of_phase_9")
    monkeypatch.delattr(oracle, "masked_softmax")
    monkeypatch.setattr("utils.mycode._mine", lambda *_: (None, "yours is not finished"))
    gallery.play("mask_painter")
    said = capsys.readouterr().out
    assert all(line.startswith("…") for line in said.splitlines())
    assert (
        said.count("\n") == 2
        and "comes with a later phase" in said
        and "masked_softmax is not part of this release" in said
    )


# ---- figures to play with ------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_has_two_named_controls_for_the_keyboard(name, shown):
    """Are there two controls or more, each a slider or a button with a name of its own?"""
    figure, _ = shown[name]
    assert isinstance(figure, Interactive) and len(figure.controls) >= 2
    assert all(isinstance(control, CONTROLS) for control in figure.controls)
    said = [control.description.strip() for control in figure.controls]
    assert all(said) and len(set(said)) == len(said)
    assert not any(getattr(control, "disabled", False) for control in figure.controls)


@pytest.mark.parametrize("name", NAMES)
def test_every_control_of_a_figure_changes_it(name, shown):
    """Does each control, as far as it goes, change the picture's text, and do picture and words keep in step?"""
    figure, _ = shown[name]
    for control in figure.controls:
        before, start = figure.canvas.value, control.value
        for value in moves(control):
            control.value = value
            if figure.canvas.value != before:
                break
        else:
            raise AssertionError(f"{control.description} changes nothing that a screen reader could tell")
        assert lesson.html.escape(figure.words()) in figure.readout.value
        assert figure.words() in figure.alt()
        control.value = start


def moves(control):
    """Other values of a control."""
    if hasattr(control, "options"):
        values = [value[1] if isinstance(value, tuple) and len(value) == 2 else value for value in control.options]
    elif isinstance(control.value, bool):
        values = [False, True]
    else:
        values = [control.min, control.max] if not isinstance(control, w.FloatLogSlider) else [0.25, 4.0]
    return [value for value in reversed(values) if value != control.value]


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_is_a_picture_where_nothing_moves(name, shown, monkeypatch):
    """Has its output a described picture and words beside the widget, and are there words alone while grading?"""
    figure, bundle = shown[name]
    assert set(bundle) == {VIEW, "text/html", "text/plain"} and len(figure.alt()) > 60
    graded = []
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    monkeypatch.setattr(lesson, "display", lambda bundle, raw: graded.append(bundle))
    figure.show()
    assert set(graded[0]) == {"text/plain"}


def test_nbconvert_shows_the_pictures(shown):
    """As a web page without a kernel: is each figure there, with its description?"""
    bundles = [bundle for _, bundle in shown.values()]
    page = new_notebook(cells=[new_code_cell("", outputs=[new_output("display_data", data=one) for one in bundles])])
    body, _ = HTMLExporter().from_notebook_node(page)
    described = re.findall(r'<img [^>]*alt="([^"]+)"', body)  # which is written anew, with other entities
    assert [lesson.html.unescape(alt) for alt in described] == [figure.alt() for figure, _ in shown.values()]


@pytest.mark.parametrize("alt", ["", "  "])
def test_a_picture_without_words_is_refused(alt):
    """Is there no way to show a picture that a screen reader cannot read?"""
    with pytest.raises(ValueError, match="cannot see it"):
        lesson.image(plots.capstone_recap(), alt)


# ---- every picture -------------------------------------------------------------------------------

OURS = {to_hex(value) for name, value in vars(canvas).items() if name.isupper() and str(value).startswith("#")}
PLAIN = {to_hex("white"), to_hex("black")}


def drawn(name, shown):
    return shown[name][0].draw() if name in NAMES else PICTURES[name]()


def colours(artist):
    """What an artist is painted with, without what is transparent."""
    if isinstance(artist, Text):
        return [artist.get_color()]
    if isinstance(artist, Line2D):
        return [artist.get_color(), artist.get_markeredgecolor(), artist.get_markerfacecolor()]
    if isinstance(artist, Patch):
        return [colour for colour in (artist.get_facecolor(), artist.get_edgecolor()) if colour[3] > 0]
    return []


def contrast(one, two):
    """How well one colour is read on another, 1 to 21 (WCAG 2.2)."""
    light = [
        sum(
            share * (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
            for share, part in zip((0.2126, 0.7152, 0.0722), to_rgb(colour), strict=True)
        )
        for colour in (one, two)
    ]
    return (max(light) + 0.05) / (min(light) + 0.05)


@pytest.mark.parametrize("name", [*NAMES, *PICTURES])
def test_a_picture_is_painted_with_the_palette(name, shown):
    """Is every colour one of those that colour-blind readers tell apart, on paper of its own in any theme?"""
    figure = drawn(name, shown)
    artists = [artist for artist in figure.findobj() if artist.get_visible()]
    used = {to_hex(colour) for artist in artists for colour in colours(artist) if str(colour) != "none"}
    assert used <= OURS | PLAIN
    maps = [artist.get_cmap() for artist in artists if getattr(artist, "get_array", lambda: None)() is not None]
    for one in maps:
        listed = {to_hex(colour) for colour in getattr(one, "colors", [])}  # contours in given colours
        assert one.name in (canvas.AMOUNT, canvas.SIGNED, canvas.PICTURE) or (listed and listed <= OURS)
    assert to_hex(figure.get_facecolor()) == canvas.PAPER and figure.get_facecolor()[3] == 1
    assert figure.get_figwidth() <= canvas.WIDEST


@pytest.mark.parametrize("name", [*NAMES, *PICTURES])
def test_a_picture_is_told_without_its_colours(name, shown):
    """Do any two entries of a legend differ in line, mark or hatching, and is text dark enough for its paper?"""
    figure = drawn(name, shown)
    for axes in figure.axes:
        looks = [look_of(handle) for handle in axes.get_legend_handles_labels()[0]]
        assert all(one != two for one, two in itertools.combinations(looks, 2)), looks
        words = [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.get_xticklabels(), *axes.get_yticklabels()]
        words += axes.get_legend().get_texts() if axes.get_legend() else []
        assert all(contrast(text.get_color(), canvas.PAPER) >= 4.5 for text in words)


def look_of(handle):
    """What is left of a legend's entry in grey: kind, line, mark, hatching."""
    if not hasattr(handle, "get_linestyle"):
        handle = handle[0]  # a group of bars
    mark = getattr(handle, "get_marker", lambda: None)()
    if hasattr(handle, "get_paths"):  # of a scatter
        mark = handle.get_paths()[0].vertices.tolist()
    return type(handle).__name__, str(handle.get_linestyle()), mark, getattr(handle, "get_hatch", lambda: None)()


def test_no_colour_is_defined_twice():
    """Is the palette the one place in which a colour has a number or a name?"""
    named = re.compile(r"""#[0-9a-fA-F]{6}\b|(?:color|colour|cmap)=["'](?!white["']|none["'])""")
    files = [*(ROOT / "utils" / "plots").glob("phase*.py"), *(ROOT / "utils" / "widgets").glob("*.py")]
    files += (ROOT / "solutions").glob("*/*.py")
    assert [(path.name, found) for path in files for found in named.findall(path.read_text(encoding="utf8"))] == []
