"""A learner who has finished everything: a model built of their own parts alone, phase after phase, through mine()."""

import json

import pytest
import torch

from tests.lessons import LESSONS
from utils import mycode, oracle
from utils.config import ModelConfig
from utils.mycode import mine


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A course folder in which every exercise of every phase is solved, as its author solved it."""
    root = tmp_path_factory.mktemp("finished")
    for lesson in LESSONS:
        path = root / "my_work" / lesson.phase / f"{lesson.phase}.ipynb"
        path.parent.mkdir(parents=True)
        cells = [{"cell_type": "code", "source": cell.source} for cell in lesson.code]
        path.write_text(json.dumps({"cells": cells}), encoding="utf8")
    return root


def test_a_gpt_of_the_learners_own_parts_writes_the_same_with_a_cache(finished, monkeypatch, capsys):
    """Does GPT, every part of it the learner's, write the same with cache and without, greedy and sampled?"""
    monkeypatch.setattr(mycode, "course_root", lambda: finished)
    monkeypatch.setattr(mycode, "_cache", {})
    model_class, generate = mine("GPT"), mine("generate")
    said = capsys.readouterr().out
    assert "using the course's" not in said and model_class is not oracle.GPT and generate is not oracle.generate
    torch.manual_seed(0)
    model = model_class(ModelConfig(11, 12, 3, 2, 20, 16, n_kv_heads=1)).double()
    prompt = torch.randint(11, (3, 4), generator=torch.Generator().manual_seed(1))
    for options in ({"temperature": 0.0}, {"temperature": 1.3, "top_k": 7}):
        written = [
            generate(model, prompt, 9, generator=torch.Generator().manual_seed(5), use_cache=cached, **options)
            for cached in (True, False)
        ]
        assert torch.equal(*written)
    modules = {type(part).__module__ + type(part).__name__ for part in model.modules()}
    assert not any("oracle" in name for name in modules)
