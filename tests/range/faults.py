"""Faults: honest work in a broken file. It must keep every point, or be refused in words that name it."""

import base64
import copy
import json
import os
import random
import zipfile

from nbformat.v4 import new_code_cell, new_output, new_raw_cell

from tests.range.attack import PHASE, blank, code, edit, files, place, save, text_of
from tests.sample_course import cell

SOLVED = ("masked_softmax", "causal_mask", "padding_mask")
FILE = f"{PHASE}.ipynb"


def fault(name, goal, **options):
    """Decorator: `function(notebook)` changes the notebook, or returns it as text or bytes."""
    return edit("fault", name, goal, **({"solved": SOLVED} | options))


def upload(name, goal, **options):
    """Decorator: `function(folder, notebook, world, mark)` writes the folder."""
    return files("fault", name, goal, **({"solved": SOLVED} | options))


def unreadable(name, goal, **options):
    return upload(name, goal, solved=(), refused=True, **options)


# ---- how the text is written -----------------------------------------------------------------------------------------


@fault("byte-order-mark", "UTF-8 with a byte-order mark")
def _(notebook):
    return b"\xef\xbb\xbf" + text_of(notebook).encode()


@fault("windows-lines", "CRLF between the lines of the file and of the cells")
def _(notebook):
    for one in notebook.cells:
        one.source = one.source.replace("\n", "\r\n")
    return text_of(notebook).replace("\n", "\r\n")


@fault("utf-16", "UTF-16, as a Windows editor may save it")
def _(notebook):
    return text_of(notebook).encode("utf-16")


@fault("latin-1", "Latin-1, with accents in it")
def _(notebook):
    notebook.cells[0].source = "# Phase 2 · été à la française"
    return json.dumps(notebook, ensure_ascii=False).replace("√", "?").encode("latin-1", "replace")


@fault("not-a-number", "NaN, Infinity and lone surrogates in the JSON")
def _(notebook):
    notebook.metadata.update(width=float("nan"), height=float("-inf"))
    return text_of(notebook).replace("# Phase 2", "# \\ud83d Phase 2 \\u0000", 1)


@fault("lines-as-lists", "sources as lists of lines, and one as null")
def _(notebook):
    for one in notebook.cells:
        one.source = one.source.splitlines(keepends=True)
    notebook.cells.append(new_code_cell("x") | {"source": None})


@fault("nbformat-3", "the format of ten years ago")
def _(notebook):
    import nbformat

    old = nbformat.convert(copy.deepcopy(notebook), 3)
    return nbformat.v3.nbjson.writes(old)


@fault("nbformat-99", "a format of the future")
def _(notebook):
    notebook.nbformat, notebook.nbformat_minor = 99, 7


@fault("no-format", "no word about the format, no metadata")
def _(notebook):
    del notebook["nbformat"], notebook["nbformat_minor"], notebook["metadata"]


@fault("ids-missing-and-doubled", "cell ids missing, doubled, and of the wrong kind")
def _(notebook):
    for number, one in enumerate(notebook.cells):
        one.id = ["same", "not an id!", "x" * 500, ""][number % 4]
    del notebook.cells[3]["id"]


# ---- what is in the file ---------------------------------------------------------------------------------------------


@fault("ten-thousand-cells", "10,000 cells")
def _(notebook):
    notebook.cells += [new_code_cell(f"x{i} = {i}", id=f"more-{i}") for i in range(10_000 - len(notebook.cells))]


def _picture(notebook, megabytes):
    noise = base64.b64encode(random.Random(0).randbytes(2**20 * 3 // 4)).decode()
    output = new_output("display_data", data={"image/png": noise * megabytes})
    notebook.cells.append(new_code_cell("1 + 1", outputs=[output]))


@fault("picture-of-20-mb", "a picture of 20 MB in an output")
def _(notebook):
    _picture(notebook, 20)


@fault("picture-of-200-mb", "a picture of 200 MB in an output")
def _(notebook):
    _picture(notebook, 200)


@fault("checks-deleted", "some check cells were deleted by accident", quick=True)
def _(notebook):
    for name in ("masked_softmax", "sdpa", "padding_mask"):
        del notebook.cells[place(notebook, name)]


@fault("section-deleted", "an exercise is missing, answer and check; a text that goes with it, too")
def _(notebook):
    del notebook.cells[place(notebook, "sdpa-build") : place(notebook, "sdpa") + 1]
    del notebook.cells[0]


@fault("answer-in-another-cell", "the answer stands in a cell of its own, its stub is deleted")
def _(notebook):
    at = place(notebook, "causal_mask-build")
    notebook.cells[at] = new_code_cell(notebook.cells[at].source)


@fault("cells-doubled", "cells were pasted twice, marks and all")
def _(notebook):
    for name in ("causal_mask", "causal_mask-build", "setup", "why-scale"):
        at = place(notebook, name)
        notebook.cells.insert(at + 1, copy.deepcopy(notebook.cells[at]))


@fault(
    "stub-pasted-below",
    "the blank cell was copied below the solved one, and its copy left blank",
    free=("causal_mask",),
)
def _(notebook):
    notebook.cells.append(cell(blank(), "causal_mask-build"))


@fault("cells-renamed", "a check cell and an answer got another grade id")
def _(notebook):
    for name in ("masked_softmax", "padding_mask-build"):
        cell(notebook, name).metadata.nbgrader.grade_id += "-copy1"


@fault("sections-reordered", "two sections changed places")
def _(notebook):
    start, end = place(notebook, "causal_mask-build"), place(notebook, "padding_mask") + 1
    section = notebook.cells[start:end]
    del notebook.cells[start:end]
    at = place(notebook, "setup") + 1
    notebook.cells[at:at] = section


@fault("check-above-the-answer", "a check cell was moved above the cell it checks")
def _(notebook):
    build, check = place(notebook, "causal_mask-build"), place(notebook, "causal_mask")
    notebook.cells.insert(build, notebook.cells.pop(check))


@fault("setup-edited", "the locked set-up cell was edited, its check as well")
def _(notebook):
    cell(notebook, "setup").source = "import torch, math\n" + cell(notebook, "setup").source + "\ntorch.manual_seed(1)"
    cell(notebook, "causal_mask").source = "# mine\ncheck(causal_mask)"


@fault("unknown-kernel", "a kernel that nobody has, of another Python", quick=True)
def _(notebook):
    notebook.metadata.kernelspec = {"name": "conda-env-my-env-py", "display_name": "my env", "language": "python"}
    notebook.metadata.language_info = {"name": "python", "version": "2.7.18"}


@fault("widget-state", "the saved state of widgets, and outputs that refer to it")
def _(notebook):
    state = {f"{i:032x}": {"model_name": "SliderModel", "model_module": "x", "state": {}} for i in range(500)}
    view = {"version_major": 2, "version_minor": 0, "state": state}
    notebook.metadata.widgets = {"application/vnd.jupyter.widget-state+json": view}
    data = {"application/vnd.jupyter.widget-view+json": {"model_id": f"{1:032x}", "version_major": 2}}
    notebook.cells[5].outputs = [new_output("display_data", data=data)]


@fault("outputs-from-colab", "metadata, outputs and raw cells as other services write them")
def _(notebook):
    notebook.metadata.colab = {"provenance": [], "toc_visible": True}
    for number, one in enumerate(notebook.cells):
        one.metadata.colab = {"base_uri": "https://localhost:8080/", "height": number}
        one.metadata.ExecuteTime = {"end_time": "2026-01-01T00:00:00", "start_time": None}
        if one.cell_type == "code":
            one.execution_count = "7"
            one.outputs = [{"output_type": "pyout", "text": ["x"]}, {"name": "stdout", "output_type": "stream"}]
    notebook.cells.append(new_raw_cell("notes to myself"))


@fault("marks-of-the-wrong-kind", "grading marks that are strings, lists and nothing")
def _(notebook):
    for number, one in enumerate(c for c in notebook.cells if "nbgrader" not in c.metadata):
        one.metadata.nbgrader = [{}, None, "x", [], {"grade_id": None}, {"grade": "yes"}][number % 6]


# ---- what the code does ----------------------------------------------------------------------------------------------


@fault("answers-of-the-wrong-kind", "answers with too few axes, too many, none, of other types, not finite")
def _(notebook):
    for name, answer in {
        "attention_weights": "torch.ones(())", "sdpa": "torch.ones(1)", "score_variance": "float('nan')",
        "combine_masks": "None", "softmax_jacobian": "np.ones(())", "softmax_backward": "'text'",
        "sdpa_backward": "(np.ones(2),) * 3", "attention_cost": "(1e400, -1)", "leaks_future": "torch.tensor(True)",
        "streaming_attention": "torch.full((2,) * 7, float('inf'))",
    }.items():  # fmt: skip
        build = cell(notebook, f"{name}-build")
        build.source = f"{name} = lambda *args, **options: {answer}"
    for name in ("SelfAttention", "CrossAttention", "MaskedSelfAttention"):
        layer = "nn.Linear(1, 1, bias=False)"
        inside = f"super().__init__(); self.w_q = self.w_k = self.w_v = self.w_o = {layer}; return None"
        cell(notebook, f"{name}-build").source = (
            f"class {name}(nn.Module):\n    def __init__(self, *args, **options):\n        {inside}\n"
            "    def load_weights(self, weights):\n        pass\n"
            "    def forward(self, *args, **options):\n        return torch.ones(1)"
        )


HONEST = {
    "words-on-stderr": "import sys, warnings\nwarnings.warn('careful')\nprint('working', file=sys.stderr)\n"
    "import logging; logging.warning('hm')\nfrom tqdm import tqdm\nfor _ in tqdm(range(3)): pass",
    "magics": "%matplotlib inline\n%config InlineBackend.figure_format = 'svg'\n%time x = 1\n!echo hello\n%pwd\n"
    "%load_ext autoreload\n%autoreload 2",
    "figures": "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nfigure = plt.figure()\nfigure",
    "await-at-top": "import asyncio\nawait asyncio.sleep(0.01)\nfor i in range(3): display(i)",
    "error-in-between": "1 / 0",
    "syntax-error-in-between": "def broken(:\n    pass",
    "check-elsewhere": "check(masked_softmax, points=5)\ncheck",
    "random-state": "torch.manual_seed(0); np.random.seed(0); torch.set_default_dtype(torch.float64)\n"
    "torch.set_grad_enabled(False)",
}
for name, source in HONEST.items():
    code("fault", name, f"an honest cell: {name.replace('-', ' ')}", after=source, solved=SOLVED)


@fault("answers-that-warn", "right answers that print, warn and write to stderr")
def _(notebook):
    for name in SOLVED:
        lines = cell(notebook, f"{name}-build").source
        loud = "import sys, warnings; print(1, file=sys.stderr); warnings.warn('x'); print(2); "
        cell(notebook, f"{name}-build").source = lines.replace("    return ", f"    {loud}return ")


# ---- which files -----------------------------------------------------------------------------------------------------


@upload("renamed-copy", "the browser called it “phase2_attention (1).ipynb”", solved=(), refused=True)
def _(folder, notebook, world, mark):
    save(folder, notebook, f"{PHASE} (1).ipynb")


@upload("two-notebooks", "the right one and an older copy")
def _(folder, notebook, world, mark):
    save(folder, notebook)
    save(folder, "{}", f"{PHASE}-old.ipynb")
    save(folder, notebook, "Untitled.ipynb")


@upload("odd-company", "folders, checkpoints, big files and a broken link beside the notebook")
def _(folder, notebook, world, mark):
    save(folder, notebook)
    (folder / ".ipynb_checkpoints").mkdir()
    save(folder / ".ipynb_checkpoints", notebook)
    (folder / "data").mkdir()
    (folder / "data" / "numbers.bin").write_bytes(bytes(2**22))
    (folder / "dead").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")


@upload("odd-timestamp", "a time of submission that is none")
def _(folder, notebook, world, mark):
    save(folder, notebook)
    (folder / "timestamp.txt").write_text("yesterday, I think\0")


@upload("odd-name", "a student with blanks, brackets, quotes and accents", student="m-Zoë O'Neill [1] & 2")
def _(folder, notebook, world, mark):
    save(folder, notebook)


@unreadable("nothing", "an empty folder")
def _(folder, notebook, world, mark):
    pass


@unreadable("not-json", "the file breaks off in the middle", quick=True)
def _(folder, notebook, world, mark):
    save(folder, text_of(notebook)[:20_000])


@unreadable("empty-file", "a file of no bytes")
def _(folder, notebook, world, mark):
    save(folder, b"")


@unreadable("zero-bytes", "a file of zero bytes, as a full disk leaves it")
def _(folder, notebook, world, mark):
    save(folder, bytes(50_000))


@unreadable("a-list", "JSON that is no notebook")
def _(folder, notebook, world, mark):
    save(folder, "[1, 2, 3]")


@unreadable("cells-are-none", "a notebook whose cells are no list")
def _(folder, notebook, world, mark):
    save(folder, json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": {"a": 1}}))


@unreadable("too-deep", "JSON nested a hundred thousand levels deep")
def _(folder, notebook, world, mark):
    save(folder, "[" * 100_000 + "]" * 100_000)


@unreadable("a-folder", "a folder with the name of the notebook")
def _(folder, notebook, world, mark):
    (folder / FILE).mkdir()


@unreadable("a-pipe", "a named pipe: opening it would wait for ever")
def _(folder, notebook, world, mark):
    os.mkfifo(folder / FILE)


@unreadable("a-dead-link", "a link to nowhere")
def _(folder, notebook, world, mark):
    (folder / FILE).symlink_to("nowhere.ipynb")


@unreadable("a-device", "a link to a device without end")
def _(folder, notebook, world, mark):
    (folder / FILE).symlink_to("/dev/zero")


@unreadable("an-archive", "a zip file with the name of a notebook")
def _(folder, notebook, world, mark):
    with zipfile.ZipFile(folder / FILE, "w") as archive:
        archive.writestr("notebook.ipynb", text_of(notebook))


@unreadable("merge-conflict", "the marks of a git merge in the file")
def _(folder, notebook, world, mark):
    text = text_of(notebook)
    save(folder, text[:3000] + "\n<<<<<<< HEAD\n" + text[3000:4000] + "\n=======\n>>>>>>> theirs\n" + text[4000:])
