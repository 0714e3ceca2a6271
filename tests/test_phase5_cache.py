"""What is special about the cache and scaling: twins against the whole model, counts, figures, the plan of a case."""

import pytest
import torch

from utils import oracle
from utils.checks import evaluate
from utils.config import ModelConfig
from utils.observe import Request, fixtures, observe
from utils.observe.fixtures_model import SmallModel
from utils.widgets import phase5_cache as widgets

LAYOUTS = [{}, {"norm_first": False}, {"n_kv_heads": 1}, {"tied": False, "norm_first": False, "n_kv_heads": 1}]
LARGE = ModelConfig(32_000, 4096, 32, 32, 11_008, 4096)
LAW = {"E": 1.69, "A": 406.4, "alpha": 0.34, "B": 410.7, "beta": 0.28}


@pytest.mark.parametrize("options", LAYOUTS, ids=str)
@pytest.mark.parametrize("cut", [[8], [5, 1, 1, 1], [3, 3, 2]], ids=str)
def test_the_twin_gives_the_logits_of_the_whole_model(options, cut):
    """Is feeding only what is new the same as feeding everything, however the tokens are cut?"""
    model, tokens = fixtures.build("small_model", options), torch.arange(16).view(2, 8) % 11
    cache = oracle.KVCache(3, 2, options.get("n_kv_heads", 3), 9, 4)
    parts = [oracle.forward_cached(model, part, cache) for part in tokens.split(cut, 1)]
    assert torch.allclose(torch.cat(parts, 1), model(tokens), rtol=1e-10, atol=1e-12) and cache.length == 8


def test_the_small_model_is_no_gpt():
    """Does the lent model have the layout of a GPT, and nothing that a GPT has to be built from?"""
    model = SmallModel(ModelConfig(11, 12, 3, 2, 10, 9))
    names = dict(model.named_parameters())
    assert {"token_embedding.weight", "positions.table", "blocks.1.ffn.w_2.weight"} <= names.keys()
    assert not [name for name in names if "norm" in name], "its norms have no parameters"
    assert model.output.weight is model.token_embedding.weight
    with pytest.raises(ValueError, match="max_len"):
        model(torch.zeros(1, 10, dtype=torch.int64))


def test_a_fixture_model_leaves_the_random_state_alone():
    """Does building a model for a case disturb torch's own random numbers?"""
    before = torch.get_rng_state()
    fixtures.build("small_model", {"seed": 3})
    assert torch.equal(before, torch.get_rng_state())


def test_the_course_can_lend_a_cache_but_not_the_answer():
    """Is the cache that cases hand over refused as a solution of KVCache?"""
    store = type(fixtures.build("cache", {}))
    assert not evaluate("KVCache", store).passed


OBJECT = dict(kind="object", name="KVCache", init=dict(args=dict(limit=2), options={}))


class Remembering:
    """An object for the tests of the observer: it hands out its own list and refuses what is too much."""

    def __init__(self, limit):
        self.limit, self.kept = limit, []

    def add(self, x):
        if len(self.kept) == self.limit:
            raise ValueError("full")
        self.kept.append(x)
        return x if len(self.kept) == 1 else self.kept[0].mul_(2)


def adding(**options):
    calls = [dict(method="add", args=dict(x=torch.ones(2)), options={}) for _ in range(3)]
    return observe(Remembering, Request(**OBJECT, calls=calls, dtype="float32", **options))["calls"]


def test_an_object_goes_on_after_a_refusal():
    """Are the calls after a ValueError made, so that it can be seen that nothing was changed?"""
    first, second, third = adding()
    assert first["raised"] is None and second["raised"] is None and third["raised"]["type"] == "ValueError"


def test_what_is_kept_of_the_caller_shows():
    """Does "spoil" reach an object that keeps its caller's tensor, and "keep" an answer that changes later?"""
    assert adding(after="spoil")[1]["value"].isnan().all()
    assert adding(after="keep")[1]["changed"] == ["an earlier answer"]


def test_the_animator_counts_what_is_fed():
    """Does a step feed one token with a cache and all of them without, and does the meter follow heads and users?"""
    animator = widgets.CacheAnimator(LARGE, oracle.kv_cache_bytes)
    animator.step = 0
    assert animator.fed() == {"without a cache": 6, "with a cache": 6}
    animator.step, animator.n_kv_heads, animator.users = 10, 8, 8
    assert animator.fed() == {"without a cache": 16, "with a cache": 1}
    assert f"{2 * 32 * 8 * 8 * 128 * 16_000 * 2 / 1e9:.2f} GB" in animator.words()
    assert "16 of them filled" in animator.picture()


def test_the_explorer_finds_the_bottom_of_the_valley():
    """Is every other split of the budget worse than the one that the learner's function names?"""
    explorer = widgets.ScalingExplorer(LAW, oracle.compute_optimal)
    best = explorer.chosen()[2]
    for times in (0.3, 3.0):
        explorer.times = times
        assert explorer.chosen()[2] > best
    assert f"{best:.3f}" in explorer.words() and "A valley" in explorer.picture()
