"""One definition out of a notebook: as a run from top to bottom would leave it, without that run."""

import json
import linecache
import traceback

import pytest

from utils.definitions import Unfit, build, read_cells


@pytest.fixture
def built(tmp_path):
    """Write a notebook of these code cells and build `name` from it."""

    def make(*cells, name="part"):
        path = tmp_path / "lesson.ipynb"
        path.write_text(notebook(*cells), encoding="utf8")
        return build(name, read_cells(path), path)

    return make


def notebook(*cells):
    return json.dumps({"cells": [{"cell_type": "code", "source": source.splitlines(True)} for source in cells]})


def test_imports_constants_functions_and_classes_come_along(built):
    """Does a definition arrive with all it needs, however far up and by however many steps?"""
    part = built(
        "import math\nfrom math import floor as down",
        "ROOT = math.sqrt(16)\nTWICE = ROOT * 2",
        "def halved(x):\n    return down(x / 2)",
        "class Base:\n    size = TWICE",
        "class Model(Base):\n    def run(self, x):\n        return halved(x) + self.size",
        "def part(x):\n    return Model().run(x)",
    )
    assert part(7) == 3 + 8


def test_nothing_else_runs(built, tmp_path, capsys):
    """Prints, loops, files, assignments nobody needs: are they left alone?"""
    touched = tmp_path / "touched"
    part = built(
        f"print('hello')\nopen({str(touched)!r}, 'w')",
        "for _ in range(3):\n    print('loop')",
        "result = print('a training run')",
        "if __name__ == '__main__':\n    print('main')",
        "with open('x') as file:\n    pass",
        "def part(x):\n    result = x + 1\n    return result",
        "part(1)\nassert False",
    )
    assert part(1) == 2
    assert capsys.readouterr().out == "" and not touched.exists()


def test_names_of_arguments_and_locals_are_not_mistaken_for_globals(built):
    """`q = expensive()` in a demo cell, and a parameter called q: does the demo stay asleep?"""
    part = built(
        "q = 1 / 0",
        "def part(q, k=2):\n    q = q + k\n    return [q for q in range(q)][-1] + (lambda q: q)(1)",
    )
    assert part(3) == 5


def test_the_later_definition_wins(built):
    """Wrong first, repaired later: is it the repaired one, for what it calls as well?"""
    part = built(
        "def half(x):\n    return 0\ndef part(x):\n    return 'old'",
        "def part(x):\n    return half(x)",
        "def half(x):\n    return x / 2",
    )
    assert part(4) == 2


def test_what_is_needed_while_defining_is_the_one_above(built):
    """A base, a default and a constant that are redefined below: is each the one that stood above?"""
    part = built(
        "SIZE = 1",
        "class Base:\n    name = 'first'",
        "class part(Base):\n    def __init__(self, size=SIZE):\n        self.size = size",
        "def now(self):\n    return SIZE\npart.now = now",
        "SIZE = 2",
        "class Base:\n    name = 'second'",
    )
    assert (part().name, part().size, part().now()) == ("first", 1, 2)


def test_changes_made_in_steps_are_followed(built):
    """X += 1, a method put on a class later, an entry put into a table: are all steps taken?"""
    part = built(
        "STEPS = 1\nTABLE = {}",
        "STEPS += 1\nTABLE['a'] = STEPS",
        "class part:\n    def run(self):\n        return 'old'",
        "def run(self):\n    return TABLE['a'] * 10",
        "part.run = run",
    )
    assert part().run() == 20


def test_conditional_imports_and_constants_count_as_definitions(built):
    """try: import … except ImportError: is it understood?"""
    part = built(
        "try:\n    import no_such_module as fast\nexcept ImportError:\n    fast = None",
        "if fast is None:\n    KIND = 'plain'\nelse:\n    KIND = 'fast'",
        "def part():\n    return KIND",
    )
    assert part() == "plain"


def test_dotted_imports_add_up(built):
    """import a.b and, later, import a.c: are both there?"""
    part = built("import xml.dom", "import xml.sax", "def part():\n    return xml.dom.Node.__name__ + xml.sax.__name__")
    assert part() == "Nodexml.sax"


def test_star_imports_are_a_last_resort(built):
    """from math import *: are names found that no cell defines?"""
    assert built("from math import *", "def part():\n    return floor(2.5)")() == 2


def test_future_annotations_hold_for_all_cells(built):
    """from __future__ import annotations on top: does a later cell with an unknown annotation still define?"""
    assert built("from __future__ import annotations", "def part(x: Unknown) -> Missing:\n    return x")(3) == 3


def test_a_lambda_and_an_alias_are_definitions(built):
    """part = lambda …, or another name for a function: accepted?"""
    assert built("part = lambda x: x + 1")(1) == 2
    assert built("def other(x):\n    return x * 3\npart = other")(2) == 6


@pytest.mark.parametrize(
    "cell",
    [
        "%matplotlib inline\ndef part():\n    return 5",
        "!pip list\nfiles = !ls\ndef part():\n    return 5",
        "%%time\ndef part():\n    return 5",
        "\n%%capture out\ndef part():\n    return 5",
        "part?\ndef part():\n    %time x = 3\n    return 5",
        "def part():\n    return 11 \\\n    % 6",
    ],
)
def test_magics_are_stepped_over(built, cell):
    """Lines that only IPython understands: is the rest of the cell read?"""
    assert built(cell)() == 5


@pytest.mark.parametrize("cell", ["%%bash\ndef part", "def broken(:", "%%html\n<b>", "\x00", "return", ""])
def test_a_cell_that_is_not_python_does_no_harm(built, cell):
    """A half-written cell elsewhere in the notebook: is the definition found all the same?"""
    assert built(cell, "def part():\n    return 5", cell)() == 5


def test_its_own_mine_call_is_not_a_definition(built):
    """part = mine("part") below the solution: is the solution meant, and not a circle?"""
    part = built("def part():\n    return 'mine'", "from utils.mycode import mine\npart = mine('part')")
    assert part() == "mine"


def test_a_traceback_shows_notebook_cell_and_line(built, tmp_path):
    """An error in the learner's earlier code: can they find the line?"""
    part = built("import math", "def part(x):\n    y = x + 1\n    return y / 0")
    with pytest.raises(ZeroDivisionError) as caught:
        part(1)
    frame = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert frame.filename == f"{tmp_path / 'lesson.ipynb'}[cell 2]"
    assert (frame.lineno, frame.line, frame.name) == (3, "return y / 0", "part")
    linecache.checkcache()
    assert linecache.getline(frame.filename, 3) == "    return y / 0"


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (["x = 1"], "lesson.ipynb does not define it"),
        (["x = 1", "def part(:\n    pass"], r"cell 2 of lesson.ipynb is not valid Python yet \(line 1: .+\)"),
        (["\nclass part(Missing):\n    pass"], "cell 1 of lesson.ipynb stops in line 2 with NameError: name 'Missing'"),
        (
            ["SIZE = 1 / 0", "def part(x=SIZE):\n    pass"],
            "cell 1 of lesson.ipynb stops in line 1 with ZeroDivisionError",
        ),
        (["raise SystemExit", "import sys\nX = sys.exit('a\\nb')\npart = X"], "line 2 with SystemExit: a b$"),
    ],
)
def test_the_reason_is_said_when_there_is_none(built, cells, reason):
    """Missing, unfinished or failing: is it one plain line that says where?"""
    with pytest.raises(Unfit, match=reason) as caught:
        built(*cells)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"cells": 3}', b'{"cells": [3]}', b"\xff"])
def test_a_file_that_is_no_notebook_is_named(tmp_path, content):
    """A damaged file: a plain reason?"""
    path = tmp_path / "lesson.ipynb"
    path.write_bytes(content)
    with pytest.raises(Unfit, match="lesson.ipynb is not a readable notebook"):
        read_cells(path)
