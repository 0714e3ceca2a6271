"""Weights on their whole way: handed in, taken in, judged, recorded, by both graders; and those of a real model."""

import functools
import os
import tempfile
from pathlib import Path

import nbformat
import pytest
from nbgrader.converters import Autograde

from autograde import grade
from autograde.build import render, write
from autograde.course import load_config, run_step
from autograde.exams import Papers
from autograde.intake import HandedIn, around
from autograde.marking import Marker
from autograde.sandbox import Limits
from tests import sample_course
from tests.test_handed_in import NAME, PHASE, RANKS, marked
from tests.weight_files import model, packed
from utils.data import translation
from utils.handed_in import FILE
from utils.train import Translation, fit, settings

pytestmark = pytest.mark.slow
LESSON = f'''\
# %% [markdown]
# # What is handed in

# %% tags=["setup"]
from utils import check

# %% exercise="average_gradients"
def average_gradients(gradients, counts):
    """What ranks agree on."""
    ### BEGIN SOLUTION
{RANKS.partition("counts):")[2].strip(chr(10))}
    ### END SOLUTION

# %% check="average_gradients"
check(average_gradients, points=3)

# %% exercise="{NAME}"
def {NAME}():
    """Where the weights lie."""
    ### BEGIN SOLUTION
    return "weights.safetensors"
    ### END SOLUTION

# %% check="{NAME}"
check({NAME}, points=10)
'''


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course of this one lesson; four have handed in the solution, each with another file."""
    root = sample_course.make_root(tmp_path_factory.mktemp("capstone"))
    (root / "solutions" / PHASE).mkdir(parents=True)
    (root / "solutions" / PHASE / f"{PHASE}.py").write_text(LESSON, encoding="utf-8")
    write(root, render(root))
    files = {"ada": trained(), "bob": packed(model()), "eve": b"\x80\x04 a pickle", "zoe": None}
    for student, raw in files.items():
        sample_course.submit(root, student, sample_course.read(root, "solutions", PHASE), PHASE)
        if raw is not None:
            (root / "autograde" / "submitted" / student / PHASE / "weights.safetensors").write_bytes(raw)
    return root


@functools.cache
def trained():
    """The bytes that the notebook's own run hands in: about a minute of one core."""
    config = settings("a", "smoke", device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        task = Translation(translation.corpus(n_pairs=config.n_pairs), config)
        run = fit(config, task, out=Path(folder), resume=False, watch=False)
        return (run.out / FILE).read_bytes()


def points(results):
    return {one.student: one.points for one in results}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_class_is_graded_with_its_weights(course, workers):
    """Do honest weights earn all points, the others none for them, and everybody those of the other exercise?"""
    grade.register_all(course, [PHASE])
    with grade.Run(course, workers=workers) as run:
        results = list(run.grade(grade.submissions(course)))
    assert points(results) == {"ada": 13, "bob": 3, "eve": 3, "zoe": 3}
    place = course / "autograde" / "autograded" / "zoe" / PHASE
    assert [path.name for path in place.glob("*")] == [f"{PHASE}.ipynb"]
    told = nbformat.read(place / f"{PHASE}.ipynb", as_version=4).cells[-1].outputs[0].text
    assert "there is no weights.safetensors beside the notebook" in told


def test_only_new_weights_are_graded_again(course):
    """Does --resume leave all alone but the one whose file changed?"""
    place = course / "autograde" / "submitted" / "zoe" / PHASE / "weights.safetensors"
    place.write_bytes((course / "autograde" / "submitted" / "ada" / PHASE / "weights.safetensors").read_bytes())
    try:
        journal = course / "autograde" / "journal.jsonl"
        before = journal.read_text().splitlines()
        with grade.Run(course, resume=True) as run:
            results = list(run.grade(grade.submissions(course)))
        assert points(results) == {"ada": 13, "bob": 3, "eve": 3, "zoe": 13}
        (line,) = journal.read_text().splitlines()[len(before) :]
        assert '"zoe"' in line
    finally:
        os.remove(place)


def test_plain_nbgrader_weighs_them_too(course):
    """Does nbgrader's own command, with our steps, find the file that lay beside the notebook?"""
    worked, log = run_step(around(Autograde), load_config(course), PHASE, "ada")
    assert worked, log
    place = Path(course, "autograde", "autograded", "ada", PHASE)
    told = nbformat.read(place / f"{PHASE}.ipynb", as_version=4).cells[-1].outputs[0].text
    assert told.startswith(f"✓ {NAME} · 10/10")


def test_a_real_model_earns_its_points_from_other_secrets():
    """Does one trained model earn everything, whatever secret draws the sentences?"""
    raw = trained()
    for key in (b"a" * 32, b"b" * 32):
        with Marker(PHASE, Papers(key), Limits(cell=60.0, notebook=300.0)) as marker:
            assert marked(marker, HandedIn(raw))[0] == 10
