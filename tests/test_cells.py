"""Tests of autograde.cells: does a cell do in the sandbox what it does in a kernel?"""

import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from autograde.cells import MAX_TEXT
from autograde.sandbox import Sandbox

CELLS = [
    "%matplotlib inline\nimport matplotlib.pyplot as plt\nfirst = 1",
    "%config InlineBackend.figure_format = 'retina'\nsecond = first + 1",
    "plt.plot([1, 2]);",
    "plt.plot([1, 2])",
    "print('before')\nplt.plot([1, 2])\nplt.show()\nprint('after')",
    "drawing, place = plt.subplots()\nplace.plot([1, 2])\ndrawing",
    "%pylab inline\nthird = 3",
    "%load_ext autoreload\n%autoreload 2\nfourth = 4",
    "%%time\nfifth = 5",
    "%%capture\nprint(3)\nsixth = 6",
    "%timeit -n 1 -r 1 first",
    "listing = !echo there\nlisting",
    "!echo there",
    "%precision 3\n3.14159",
    "value = 3; value",
    "value = 3\nvalue;",
    "_",
    "Out[max(Out)], In[-1]",
    "for i in range(2):\n    i",
    "async def answer():\n    return 3\nawait answer()",
    "from IPython.display import HTML, Markdown, clear_output, display\ndisplay(HTML('<b>3</b>'), 4)",
    "clear_output()\nMarkdown('*a*')",
    "%%html\n<b>here</b>",
    "%%writefile notes.txt\nhello",
    "1 / 0",
    "print(first, second, third, fourth, fifth, sixth)",
]
TIMED = ("%%time", "%timeit")


@pytest.fixture(scope="module")
def kernels_outputs(tmp_path_factory):
    """{cell: outputs} in a Jupyter kernel."""
    folder = tmp_path_factory.mktemp("kernel")
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in CELLS])
    NotebookClient(notebook, allow_errors=True, resources={"metadata": {"path": folder}}).execute()
    return {cell.source: cell.outputs for cell in notebook.cells}


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def our_outputs(sandbox):
    """{cell: outputs} in the sandbox."""
    with sandbox.session() as session:
        return {cell: session.run(cell) for cell in CELLS}


def told(cell, outputs):
    """What outputs say, in order, without addresses and times."""
    found = []
    for output in outputs:
        if output.output_type == "stream":
            text = "(a time)" if cell.startswith(TIMED) else output.text.replace("\r\n", "\n")
            if found and found[-1][:2] == ("stream", output.name):  # a kernel may send one line in two parts
                text = found.pop()[2] + text
            found.append(("stream", output.name, text))
        elif output.output_type == "error":
            found.append(("error", output.ename, output.evalue))
        else:
            text = output.data.get("text/plain", "")
            found.append((output.output_type, sorted(output.data), text if " at 0x" not in text else "(an address)"))
    return found


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_shows_what_it_shows_in_a_kernel(cell, our_outputs, kernels_outputs):
    """Are text, pictures, values and errors the same ones, in the same order?"""
    assert told(cell, our_outputs[cell]) == told(cell, kernels_outputs[cell])


@pytest.mark.parametrize("backend", ["", "notebook", "widget", "qt"])
def test_every_backend_of_matplotlib_is_the_inline_one(sandbox, backend):
    """Does a magic for a backend that is not there cost nothing, neither the exercise below it nor a picture?"""
    with sandbox.session() as session:
        outputs = session.run(f"%matplotlib {backend}\nimport matplotlib.pyplot as plt\nplt.plot([1, 2]);\nleft = 3")
        assert session.run("left")[0].data["text/plain"] == "3"
    assert "image/png" in outputs[-1].data


def test_what_is_printed_keeps_its_place(sandbox):
    """Are lines of both streams, pictures and values in the order in which they came?"""
    cell = "import sys\nprint(1)\nprint(2, file=sys.stderr)\ndisplay(3)\nprint(4)\nprint(5)\n6"
    with sandbox.session() as session:
        outputs = session.run(cell)
    shown = [output.text if output.output_type == "stream" else output.data["text/plain"] for output in outputs]
    assert shown == ["1\n", "2\n", "3", "4\n5\n", "6"]


@pytest.mark.parametrize(
    ("cell", "kind"), [("def broken(:\n    pass", "SyntaxError"), ("%no_such_magic", "UsageError")]
)
def test_what_cannot_run_is_an_error(sandbox, cell, kind):
    """Is a cell that Python or IPython cannot read reported like one that raises?"""
    with sandbox.session() as session:
        assert [output.ename for output in session.run(cell)] == [kind]


def test_an_error_says_where_it_came_from(sandbox):
    """Are the lines of the cell that failed shown, and is a recursion without end told in a line?"""
    with sandbox.session() as session:
        (failed,) = session.run("def halve(x):\n    return x / 0\n\nhalve(3)")
        (endless,) = session.run("def again(n):\n    return again(n + 1)\n\nagain(0)")
    shown = "\n".join(failed.traceback)
    assert "----> 4 halve(3)" in shown and "----> 2     return x / 0" in shown and "interactiveshell" not in shown
    assert endless.traceback == ["RecursionError: maximum recursion depth exceeded"]


def test_what_was_printed_is_not_kept(sandbox):
    """Does a flood of text, or of what is shown, leave the memory of its process as it was?"""
    cell = "for _ in range(200):\n    print('x' * 10**6)\n    display({'text/plain': 'y' * 5 * 10**6}, raw=True)"
    used = "import resource\nresource.getrusage(resource.RUSAGE_SELF).ru_maxrss"
    with sandbox.session() as session:
        before = int(session.run(used)[-1].data["text/plain"])
        session.run(cell)
        assert int(session.run(used)[-1].data["text/plain"]) - before < 100_000  # kB, of 1,200,000


def test_many_pictures_are_cut_and_told(sandbox):
    """Does a cell that shows more than a notebook keeps go on, its end said to be left out?"""
    cell = "for _ in range(40):\n    display({'image/png': 'A' * 10**6}, raw=True)\ndone = 1"
    with sandbox.session() as session:
        outputs = session.run(cell)
        assert session.run("done")[0].data["text/plain"] == "1"
    assert 10 < len(outputs) < 30 and "left out" in outputs[-1].text


def test_text_is_cut_for_each_stream(sandbox):
    """Does a flood on one stream leave room for the other, and for what is shown?"""
    with sandbox.session() as session:
        outputs = session.run("import sys\nprint('x' * 10**6)\nprint('why', file=sys.stderr)\n7")
    assert [output.output_type for output in outputs] == ["stream", "stream", "execute_result"]
    assert len(outputs[0].text) == MAX_TEXT and outputs[1].text == "why\n" and outputs[2].data["text/plain"] == "7"
