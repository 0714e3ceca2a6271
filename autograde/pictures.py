"""Still pictures of the figures to play with: what GitHub and nbconvert show of `notebooks/figures.ipynb`.

`draw` paints them into docs/figures/, each with its description inside; a build hands them to the page as outputs.
"""

import base64
import re
import textwrap
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from nbformat.v4 import new_output
from PIL import Image

FOLDER = Path("docs", "figures")
SHOWN = re.compile(r'(?m)^play\("(\w+)"\)$')  # how the page shows a figure
DPI = 100
LINE = 100  # characters


def draw(root, names, track=iter):
    """Paint these figures as they first appear. Returns the paths written, relative to the root."""
    from utils.widgets import gallery

    written = []
    (Path(root) / FOLDER).mkdir(parents=True, exist_ok=True)
    for name in track(names):
        with redirect_stdout(StringIO()):  # what it shows at once is for a notebook
            figure = gallery.shown(name)
        picture = figure.draw()
        about = {"Title": figure.words(), "Description": figure.alt()}
        written.append(FOLDER / f"{name}.png")
        picture.savefig(Path(root) / written[-1], dpi=DPI, facecolor=picture.get_facecolor(), metadata=about)
    return written


def names(cells):
    """The figures that these cells show, in order."""
    return [name for cell in cells if cell.cell_type == "code" for name in SHOWN.findall(cell.source)]


def add(page, root):
    """Put each figure's picture, if there is one, into the page as what the cell that shows it has put out."""
    for cell in page.cells:
        if cell.cell_type == "code":
            found = (Path(root) / FOLDER / f"{name}.png" for name in names([cell]))
            cell.outputs = [output for path in found if path.exists() for output in _outputs(path)]
    return page


def _outputs(path):
    """The picture, and its description as text: neither GitHub nor nbconvert's page has it in the picture's alt."""
    with Image.open(path) as picture:
        width, about = picture.width, picture.text
    data = {"image/png": base64.b64encode(path.read_bytes()).decode(), "text/plain": about["Title"]}
    alt = about["Description"]
    return (
        new_output("display_data", data, metadata={"image/png": {"alt": alt, "width": width}}),
        new_output("stream", text=textwrap.fill(alt, LINE) + "\n"),
    )
