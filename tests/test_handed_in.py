"""The file beside the notebook: what is read of it, what it earns, and what is tried to earn more."""

import json
import os
from pathlib import Path

import pytest
import torch
from nbformat.v4 import new_code_cell, new_notebook

from autograde.exams import Papers, seed_of
from autograde.intake import HandedIn, take_in
from autograde.marking import Marker
from autograde.sandbox import Limits
from tests.test_marking import check_cell
from tests.weight_files import OPENED, UNREADABLE, model, packed
from utils import handed_in
from utils.checks import CheckFailed, check, evaluate
from utils.checks.deliveries import DELIVERIES, Paper, _padded
from utils.data import translation

PHASE, NAME = "phase7_capstone", "trained_translator"
RANKS = """
def average_gradients(gradients, counts):
    total = sum(counts)
    if not total or len(counts) != len(gradients) or len(set(map(len, gradients))) != 1:
        raise ValueError("they do not fit")
    means = []
    for column in zip(*gradients):
        parts = [part * (n / total) for part, n in zip(column, counts) if part is not None and n]
        means.append(sum(parts) if parts else None)
    return means
"""
FILE = handed_in.FILE
SENTENCES = ("The cat sat", "The truck falls", "That cow moved", "The cat falls")
SPANISH = ("El gato se sentó", "El camión cae", "Esa vaca se movió", "El gato cae")


@pytest.fixture(scope="module")
def learned():
    """A model that knows four sentences by heart, and the paper that asks for them."""
    english, spanish = translation.vocabularies()
    src, mask = _padded([english.encode(text) for text in SENTENCES])
    right = [[*spanish.encode(text), handed_in.EOS] for text in SPANISH]
    paper = Paper(DELIVERIES[NAME], src, mask, right, (len(english), len(spanish)))
    told, _ = _padded([[handed_in.BOS, *row] for row in right])
    made = model()
    optimizer = torch.optim.AdamW(made.parameters(), lr=0.01)
    for _ in range(60):
        logits = made(src, told[:, :-1], src_pad_mask=mask)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), told[:, 1:].flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return made, paper


# ---- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", UNREADABLE)
def test_a_file_that_is_none_is_refused_in_one_sentence(learned, how):
    """Is it refused, in words without a name of its own, before any model is built?"""
    make, words = UNREADABLE[how]
    with pytest.raises(handed_in.NotAccepted) as refused:
        learned[1].weights(make(packed(model())))
    assert words in str(refused.value) and str(refused.value).isprintable() and len(str(refused.value)) < 200
    assert not OPENED.exists()


def test_the_numbers_are_those_that_were_stored():
    """Is what the strict reader gives what safetensors itself gives?"""
    made = model()
    weights = handed_in.read(packed(made))
    assert weights.n_heads == 3 and weights.sizes["n_layers"] == 1
    for name, weight in made.named_parameters():
        torch.testing.assert_close(torch.from_numpy(weights.numbers[name].copy()), weight.detach(), rtol=0, atol=0)


def test_the_source_is_read_once_and_the_answer_is_the_same(learned):
    """Does the quick translation say what the whole model says, word by word?"""
    made, paper = learned
    weights = paper.weights(packed(made))
    numbers = {name: torch.from_numpy(array.copy()) for name, array in weights.numbers.items()}
    found = handed_in.translate(numbers, weights.sizes, paper.src, paper.src_pad_mask, 6)
    words = torch.full((len(paper.src), 1), handed_in.BOS)
    for _ in range(6):
        chosen = made(paper.src, words, src_pad_mask=paper.src_pad_mask)[:, -1:].argmax(-1)
        words = torch.cat([words, chosen.masked_fill((words == handed_in.EOS).any(1, keepdim=True), 0)], 1)
    assert torch.equal(found, words[:, 1:])


# ---- marking -------------------------------------------------------------------------------------


class Asked(Papers):
    """The course's papers, but for the translator's."""

    def __init__(self, paper):
        super().__init__(b"k" * 32)
        self.paper = paper

    def on(self, name, student):
        return self.paper if name == NAME else super().on(name, student)


@pytest.fixture(scope="module")
def marker(learned):
    with Marker(PHASE, Asked(learned[1]), Limits(cell=30.0, notebook=120.0)) as running:
        yield running


def notebook(*cells):
    code = [new_code_cell(source) for source in (RANKS, *cells)]
    return new_notebook(cells=[*code, check_cell("average_gradients", 3), check_cell(NAME, 10)])


def marked(marker, file, *cells):
    """(points of the translator, what its cell says, the whole Marking); the other exercise keeps its points."""
    work = notebook(*cells)
    marking = marker.mark(work, "ada", file)
    marking.write_into(work)
    text, number = work.cells[-1].outputs
    assert marking.reports["average_gradients"].score == 1
    return float(number.data["text/plain"]), text.text, marking


def test_an_honest_file_earns_all_points(marker, learned):
    """Does a model that translates rightly earn everything, whatever the notebook's own function does?"""
    points, text, marking = marked(marker, HandedIn(packed(learned[0])), f"def {NAME}():\n    raise OSError")
    assert points == 10 and text.startswith(f"✓ {NAME} · 10/10 · 4 of 4 new sentences exactly right")
    assert not marking.events and marking.cpu_seconds > 0


FORGED = {
    "prints its score": f"print('✓ {NAME} · 10/10'); 10.0",
    "translates by itself": f"def {NAME}(*args, **kwargs):\n    return {list(SPANISH)!r}",
    "patches the course": """
import builtins, torch
import utils.handed_in
from utils import oracle
def right(*args, **kwargs):
    return torch.tensor([[7] * 9] * 4)
utils.handed_in.translate = oracle.Transformer.forward = right
trained_translator = translate = right
torch.Tensor.argmax = lambda *args, **kwargs: right()
""",
    "writes a file of its own": "open('weights.safetensors', 'wb').write(b'x' * 1000)",
    "writes over the course": """
import pathlib, utils
for path in pathlib.Path(utils.__file__).parent.rglob('*.py'):
    try:
        path.write_text('raise SystemExit')
    except OSError:
        pass
""",
    "ends its process": "import os; os._exit(0)",
}


@pytest.mark.parametrize("how", FORGED)
def test_a_notebook_cannot_speak_for_its_weights(marker, how):
    """Do weights that translate nothing earn nothing, whatever the notebook prints, defines, patches or breaks?"""
    points, text, _ = marked(marker, HandedIn(packed(model(seed=5))), FORGED[how])
    assert points == 0 and "0 of 4 new sentences exactly right" in text and "30% or more" in text


@pytest.mark.parametrize("how", ["a pickle that runs something", "nan", "another vocabulary", "too large"])
def test_what_cannot_be_read_costs_its_own_points_only(marker, how):
    """Does a bad file get 0 and its sentence, and the rest of the notebook its points?"""
    points, text, _ = marked(marker, HandedIn(UNREADABLE[how][0](packed(model()))))
    assert points == 0 and UNREADABLE[how][1] in text and f"✗ {NAME} · weights.safetensors: " in text


@pytest.mark.parametrize("file", [None, HandedIn(problem="it is a link, not a file")], ids=["nothing", "a link"])
def test_no_file_is_no_points(marker, file):
    """Is what intake did not take told in the report?"""
    points, text, _ = marked(marker, file)
    assert points == 0 and ("there is no weights.safetensors" in text or "it is a link" in text)


def test_a_slow_model_is_stopped(marker, monkeypatch):
    """Is translating stopped when its time is up, in plain words, and the next file judged as ever?"""
    monkeypatch.setattr("utils.checks.deliveries.SECONDS", 0.01)
    points, text, _ = marked(marker, HandedIn(packed(model(n_layers=30))))
    assert points == 0 and "translating took too long" in text


SETUP = """
from utils import check, measure
from utils.data import python_source, token_stream, translation
from utils.train import Language, Translation, build, fit, settings
print(len(translation.fresh(1, 3)), settings("a").track)
"""
STEAL = """
from utils import oracle
print([name for name in ("split_corpus", "evaluate", "restore_state") if hasattr(oracle, name)])
import utils.oracle.phase7_training
"""


def test_the_trainer_is_there_inside_and_its_answers_are_not(marker):
    """Can a lesson's setup cell run while a class is graded, and find no twin of its own phase?"""
    with marker.sandbox.session() as session:
        assert [output["text"] for output in session.run(SETUP)] == ["3 a\n"]
        printed, error = session.run(STEAL)
    assert printed["text"] == "[]\n" and error["ename"] == "ModuleNotFoundError"


# ---- the questions -------------------------------------------------------------------------------


def test_questions_are_drawn_from_the_secret():
    """Do other secrets and students ask for other sentences, the same ones for the same, and none of seed 0?"""
    papers = [Papers(key, own).on(NAME, who) for key, own, who in
              ((b"a" * 32, False, "ada"), (b"a" * 32, False, "bob"), (b"b" * 32, False, "ada"),
               (b"a" * 32, True, "ada"), (b"a" * 32, True, "bob"))]  # fmt: skip
    rows = [{tuple(row) for row in paper.right} for paper in papers]
    assert rows[0] == rows[1] and len({frozenset(row) for row in rows}) == 4
    assert seed_of(b"a" * 32, NAME) != seed_of(b"b" * 32, NAME)
    visible = DELIVERIES[NAME].paper(0)
    assert {tuple(row) for row in visible.right} != rows[0] and len(visible.right) == 300


def test_the_ladder_falls_with_the_share():
    """Are the shares of the points those that the text names?"""
    earned = DELIVERIES[NAME].earned
    assert [earned(share) for share in (1, 0.95, 0.949, 0.85, 0.6, 0.3, 0.299)] == [1, 1, 0.9, 0.75, 0.5, 0.25, 0]


# ---- in the notebook -----------------------------------------------------------------------------


def test_in_the_notebook_the_file_is_named_by_the_function(tmp_path, monkeypatch, learned):
    """Does the check read the file that the function names, and say what is wrong with anything else?"""
    monkeypatch.setattr(type(DELIVERIES[NAME]), "paper", lambda self, seed: learned[1])
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    for place in (FILE, f"runs/{FILE}"):
        Path(place).write_bytes(packed(learned[0]))
    for spelt in (FILE, tmp_path / FILE, f"runs/../{FILE}"):
        assert evaluate(NAME, lambda spelt=spelt: spelt).passed

    def stub():
        raise NotImplementedError

    for obj, words in (
        (stub, "not implemented yet"),
        (lambda: 3, "a path is expected, this is of type int"),
        (lambda: tmp_path / "none", "is not there"),
        (lambda: tmp_path, "is a folder"),
        (lambda: f"runs/{FILE}", f"is not what is handed in: copy it to {FILE}"),
        (lambda: run_a.out, "raised NameError"),  # noqa: F821
    ):
        report = evaluate(NAME, obj)
        assert report.score == 0 and words in report.message
    os.remove(FILE)
    os.symlink(f"runs/{FILE}", FILE)
    assert "it is a link" in evaluate(NAME, lambda: FILE).message


def test_check_says_how_many_were_right(tmp_path, monkeypatch, capsys, learned):
    """Does a learner's cell print the points, and raise with the number of right sentences where it is too low?"""
    monkeypatch.setattr(type(DELIVERIES[NAME]), "paper", lambda self, seed: learned[1])
    monkeypatch.chdir(tmp_path)
    Path(FILE).write_bytes(packed(learned[0]))

    def trained_translator():
        return FILE

    check(trained_translator, points=10)
    assert capsys.readouterr().out.startswith(f"✓ {NAME} · 10/10 · 4 of 4 new sentences")
    Path(FILE).write_bytes(packed(model(seed=5)))
    with pytest.raises(CheckFailed, match="0 of 4 new sentences exactly right"):
        check(trained_translator, points=10)


# ---- taken in ------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "autograde" / "submitted" / "ada" / PHASE
    path.mkdir(parents=True)
    cells = new_notebook(cells=[new_code_cell("1")])
    (path / f"{PHASE}.ipynb").write_text(json.dumps(cells))
    return path


def linked(path):
    (path.parent / "elsewhere").write_bytes(b"x")
    path.symlink_to(path.parent / "elsewhere")


TAKEN = {
    "nothing": (lambda path: None, "there is no weights.safetensors beside the notebook"),
    "a link": (linked, "it is a link, not a file"),
    "a folder": (lambda path: path.mkdir(), "it is a folder, not a file"),
    "a pipe": (os.mkfifo, "it is a pipe, not a file"),
    "too large": (lambda path: os.truncate(path, 21 * 10**6) if path.touch() is None else None, "it has 21.0 MB"),
    "a file": (lambda path: path.write_bytes(b"abc"), ""),
}


@pytest.mark.parametrize("how", TAKEN)
def test_one_regular_file_is_taken_in(folder, how):
    """Is a file of its one name taken, everything else named, and the notebook graded all the same?"""
    make, words = TAKEN[how]
    make(folder / "weights.safetensors")
    (folder / "weights2.safetensors").write_bytes(b"other")
    taken = take_in(folder, PHASE)
    assert taken.notebook.cells and words in taken.file.problem and bool(words) == bool(taken.file.problem)
    assert taken.file.raw == (b"" if words else b"abc")


def test_another_file_is_another_submission(folder):
    """Is a notebook graded again when only its weights are new?"""
    digests = set()
    for data in (b"one", b"two"):
        (folder / "weights.safetensors").write_bytes(data)
        digests.add(take_in(folder, PHASE).digest)
    assert len(digests) == 2


def test_other_phases_take_no_file(tmp_path):
    """Is a file of that name left alone beside any other notebook?"""
    folder = tmp_path / "autograde" / "submitted" / "ada" / "phase2_attention"
    folder.mkdir(parents=True)
    (folder / "phase2_attention.ipynb").write_text(json.dumps(new_notebook(cells=[new_code_cell("1")])))
    os.mkfifo(folder / "weights.safetensors")
    assert take_in(folder, "phase2_attention").file is None
