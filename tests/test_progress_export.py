"""my_transformer.py: does it hold the learner's own parts, and does it run without the course?"""

import ast
import shutil
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from autograde.course import ROOT, phases
from tests.own_work import BLANK, GOOD, WEIGHTS, save
from utils import cli
from utils.progress import export as module
from utils.progress.export import CannotExport, export

run = CliRunner(env={"COLUMNS": "200"}).invoke
HELPED = WEIGHTS.replace("scores = q @", "scores = scaled(q, k) if SCALED else q @") + "\nSCALED = True\n"
HELPER = "def scaled(q, k):\n    # mine, with a comment\n    return q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5\n"


def without_the_course(path, *words):
    """Run the file where no `utils` of ours can be found."""
    block = f"import sys; sys.modules['utils'] = None; sys.argv = ['x', *{words!r}]; import runpy; "
    code = block + f"runpy.run_path({str(path)!r}, run_name='__main__')"
    return subprocess.run([sys.executable, "-I", "-c", code], cwd=path.parent, capture_output=True, text=True)


def test_your_own_parts_come_with_what_they_need(course):
    """Own function, own helper, own constant, the import: there, as written, comments and all; the rest is marked?"""
    save(course, "import torch\nimport math", HELPER, HELPED, GOOD, "print('never')")
    made = export(("sdpa",))
    assert made.mine == ("attention_weights", "sdpa") and made.courses == ()
    assert HELPER.strip() in made.text and "SCALED = True" in made.text and "never" not in made.text
    assert "# sdpa · yours, from phase2_attention.ipynb" in made.text and "utils" not in names_in(made.text)
    space = {}
    exec(made.text.replace('if __name__ == "__main__"', "if False"), space)
    ones = space["torch"].ones(2, 3)
    assert space["sdpa"](ones, ones, ones).shape == (2, 3)


def names_in(text):
    tree = ast.parse(text)
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.id for name in ast.walk(tree) if isinstance(name, ast.Name)} | {str(m).split(".")[0] for m in modules}


def test_what_is_not_finished_is_the_courses_and_marked(course):
    """Half done: own where it passes, the course's where not, with the reason above it and in the head?"""
    save(course, "import torch", WEIGHTS, BLANK)
    made = export(("sdpa", "attention_weights"))
    assert made.mine == ("attention_weights",) and made.courses == ("sdpa",)
    assert "# sdpa · the course's own, because yours is not finished" in made.text
    assert "The course's own (1), until mine pass: sdpa." in made.text and "@twin" not in made.text


def test_helpers_of_one_name_do_not_meet(course):
    """Two notebooks, each with a helper of the same name: are both there, under names of their own?"""
    other = "def scaled(q):\n    return q * 2\n\ndef split_heads(x, n_heads):\n    " + (
        "if n_heads < 1 or x.shape[-1] % n_heads:\n        raise ValueError('n_heads must divide d_model')\n    "
        "return x.view(*x.shape[:-1], n_heads, -1).transpose(-3, -2) + 0 * scaled(q=x).sum()\n"
    )
    save(course, "import torch", HELPER, HELPED)
    save(course, "import torch", other, phase="phase3_multi_head")
    made = export(("attention_weights", "split_heads"))
    assert made.mine == ("attention_weights", "split_heads")
    assert "def scaled(q, k):" in made.text and "def scaled_of_split_heads(q):" in made.text
    assert "scaled_of_split_heads(q=x)" in made.text


def test_a_name_is_replaced_and_nothing_else():
    """Attributes, keywords, strings, comments: left as they are?"""
    text = "y = f(x, f=f, *[f])  # f\nz = a.f + f('f')"
    assert module._rename(text, {"f": "g"}) == "y = g(x, f=g, *[g])  # f\nz = a.f + g('f')"


def test_a_part_that_leans_on_the_course_is_refused(course):
    """A solution that uses the plots of the course cannot stand alone: is that said, with its name?"""
    source = "from utils import plots\n" + GOOD.replace("    if k.", "    assert plots\n    if k.", 1)
    save(course, "import torch", WEIGHTS, source)
    with pytest.raises(CannotExport, match="sdpa uses plots of the course"):
        export(("sdpa",))


@pytest.fixture
def courses_alone(monkeypatch):
    """The file of somebody who has built nothing yet."""
    monkeypatch.setattr(module, "own", lambda name: (None, "yours is not finished"))
    return export()


def test_the_courses_parts_alone_train_without_the_course(courses_alone, monkeypatch):
    """Nothing built yet: does the file run where no `utils` can be imported, and does the loss fall?"""
    assert courses_alone.mine == () and len(courses_alone.courses) > 25
    monkeypatch.setitem(sys.modules, "utils", None)
    space = {"__name__": "my_transformer"}
    monkeypatch.setitem(sys.modules, "my_transformer", type(sys)("my_transformer"))  # dataclass looks for it
    exec(courses_alone.text, space)
    losses = space["main"](12)
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.slow
def test_the_file_is_a_script_of_its_own(courses_alone, tmp_path):
    """Started in another folder, in a Python without the course: does it train and write?"""
    (tmp_path / "my_transformer.py").write_text(courses_alone.text, encoding="utf8")
    result = without_the_course(tmp_path / "my_transformer.py", "21")
    assert result.returncode == 0, result.stderr
    losses = [float(line.split()[-1]) for line in result.stdout.splitlines() if line.startswith("step")]
    assert losses[-1] < losses[0] and result.stdout.count("→") == 3


@pytest.mark.slow
def test_your_own_parts_train_without_the_course(course):
    """Everything solved: is every part the learner's, and does the model learn its rule?"""
    for phase in phases(ROOT):
        (course / "my_work" / phase).mkdir(exist_ok=True)
        shutil.copy(ROOT / "solutions" / phase / f"{phase}.ipynb", course / "my_work" / phase)
    made = export()
    assert made.courses == () and "BEGIN SOLUTION" not in made.text
    (course / "my_transformer.py").write_text(made.text, encoding="utf8")
    result = without_the_course(course / "my_transformer.py", "60")
    assert result.returncode == 0, result.stderr
    losses = [float(line.split()[-1]) for line in result.stdout.splitlines() if line.startswith("step")]
    assert losses[-1] < 0.3 * losses[0]


def test_the_command_writes_the_file_and_asks_before_it_writes_over_one(course, monkeypatch):
    """workbook export: how many parts are whose; a second time: refused, unless --force?"""
    monkeypatch.setattr(module, "ROOTS", ("sdpa",))
    monkeypatch.setattr(module, "own", lambda name: (None, "yours is not finished"))
    monkeypatch.setattr(module.export, "__defaults__", (("sdpa",),))
    result = run(cli.app, ["export", "--out", "mine.py"])
    assert result.exit_code == 0 and "0 parts of your own, " in result.output
    again = run(cli.app, ["export", "--out", "mine.py"])
    assert again.exit_code == 1 and "is there already" in again.output
    assert run(cli.app, ["export", "--out", "mine.py", "--force"]).exit_code == 0
