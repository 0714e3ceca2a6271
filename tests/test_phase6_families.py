"""Phase 6, families: twins against torch's own layers, and a judge of chance that luck does not mislead."""

import pytest
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import nn

from tests.bank import phase6_masking
from utils import oracle, plots
from utils.checks import EXERCISES
from utils.checks.phase6.masking import asked
from utils.checks.phase6.rules_masking import judge_hidden
from utils.config import ModelConfig
from utils.plots import phase6_families

SIZES = ModelConfig(vocab_size=11, d_model=12, n_heads=3, n_layers=2, d_ff=20, max_len=9)


@pytest.mark.parametrize("seed", range(12))
def test_hidden_words_are_judged_rightly_whatever_the_luck(seed):
    """Does the judge of chance accept right answers from many generators?"""
    one = asked("luck", seed, 0.3)
    text = {name: one.args[name] for name in ("tokens", "pad_mask", "mask_id", "vocab_size", "p", "special_ids")}
    first, copy = (torch.Generator().manual_seed(seed) for _ in range(2))
    answers = [phase6_masking.two_draws(**text, generator=generator) for generator in (first, first, copy)]
    assert judge_hidden({"calls": [{"value": answer} for answer in answers]}, None, **text) is None


def test_gpt_is_torchs_encoder_under_a_causal_mask():
    """Do the twin's logits equal those of torch's own layers with the same weights?"""
    torch.manual_seed(0)
    model = oracle.GPT(SIZES).double()
    x = model.embed(torch.tensor([[3, 1, 4, 1, 5]]))
    for block in model.blocks:
        layer = nn.TransformerEncoderLayer(12, 3, 20, 0.0, F.gelu, batch_first=True, norm_first=True).double()
        own, parts = block.attention, layer.self_attn
        with torch.no_grad():
            parts.in_proj_weight.copy_(torch.cat([own.w_q.weight, own.w_k.weight, own.w_v.weight]))
            parts.in_proj_bias.copy_(torch.cat([own.w_q.bias, own.w_k.bias, own.w_v.bias]))
            parts.out_proj.load_state_dict(own.w_o.state_dict())
            layer.linear1.load_state_dict(block.ffn.w_1.state_dict())
            layer.linear2.load_state_dict(block.ffn.w_2.state_dict())
        x = layer(x, src_mask=nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64))
    logits = F.layer_norm(x, (12,)) @ model.token_embedding.weight.T
    assert torch.allclose(model(torch.tensor([[3, 1, 4, 1, 5]])), logits)


def test_the_tied_twin_owns_its_table_once():
    """Is the output's weight of the twin the table itself, counted once, so that phase 5 may read both names?"""
    model = oracle.GPT(SIZES)
    assert model.output.weight is model.token_embedding.weight
    assert sum(p.numel() for p in model.parameters()) == oracle.count_parameters(SIZES)["total"]


@pytest.mark.parametrize("causal", [False, True])
def test_tiles_give_what_the_whole_table_gives(causal):
    """Do the twin's tiles, of any size, equal sdpa and a plain logsumexp?"""
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 7, 4).double(), torch.randn(2, 9, 4).double(), torch.randn(2, 9, 5).double()
    seen = oracle.causal_mask(7, 9) if causal else torch.ones(7, 9, dtype=torch.bool)
    scores = (q @ k.mT / 2).masked_fill(~seen, -torch.inf)
    for q_block, kv_block in ((1, 1), (3, 2), (7, 9), (20, 4)):
        out, total = oracle.tiled_attention(q, k, v, q_block, kv_block, causal)
        assert torch.allclose(out, oracle.sdpa(q, k, v, seen)) and torch.allclose(total, scores.logsumexp(-1))


def test_patches_times_a_matrix_are_a_convolution():
    """Does the order inside a patch fit a convolution's weight?"""
    torch.manual_seed(0)
    images, layer = torch.randn(2, 3, 4, 10), nn.Conv2d(3, 5, 2, stride=2, bias=False)
    tokens = oracle.patchify(images, 2) @ layer.weight.flatten(1).T
    assert torch.allclose(tokens, layer(images).flatten(2).mT, atol=1e-6)


@pytest.mark.skipif("generate" not in EXERCISES, reason="phase 5 is not part of this release")
@pytest.mark.parametrize("options", [{}, {"n_kv_heads": 1}, {"norm_first": False, "tied": False}])
def test_a_gpt_generates_the_same_with_a_cache(options):
    """Does a GPT write the same with a cache and without, greedy and sampled?"""
    torch.manual_seed(0)
    model = oracle.GPT(ModelConfig(**{**vars(SIZES), **options})).double().eval()
    prompt = torch.tensor([[3, 1], [4, 9]])
    for temperature in (0.0, 1.3):
        written = [
            oracle.generate(
                model, prompt, 6, temperature=temperature, generator=torch.Generator().manual_seed(5), use_cache=cached
            )
            for cached in (True, False)
        ]
        assert torch.equal(*written)


EYE = torch.eye(4)
PICTURES = {
    "word_map": lambda: plots.word_map(torch.randn(4, 3), ["warm", "kind", "dull", "poor"], [True, True, False, False]),
    "label_curves": lambda: plots.label_curves({"scratch": [[0.5, 0.6], [0.8, 0.9]], "read": [[1.0], [1.0]]}, (4, 8)),
    "patch_row": lambda: plots.patch_row(EYE, oracle.patchify(EYE[None, None], 2)[0].view(-1, 2, 2)),
    "expert_load": lambda: plots.expert_load({"now": (torch.tensor([9, 1]), torch.tensor([4, 1]))}, 4),
    "tile_plan": lambda: plots.tile_plan(7, 9, 2, 4),
    "family_recap": plots.family_recap,
}


def test_every_picture_of_families_is_tested():
    """Is there a picture nobody looks at here?"""
    assert set(phase6_families.__all__) == set(PICTURES)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_of_families_draws_and_is_labelled(name):
    """Does each give a Figure on light paper, and has every sheet with axes a name for both?"""
    figure = PICTURES[name]()
    figure.canvas.draw()
    assert isinstance(figure, Figure) and sum(figure.get_facecolor()[:3]) > 2.7
    for axes in figure.axes:
        assert axes.get_xlabel() and axes.get_ylabel() if axes.axison else axes.get_title() or axes.texts


def test_the_plan_of_tiles_counts_what_is_computed():
    """Does the title say how many tiles a causal run touches, by brute force?"""
    seen = oracle.causal_mask(7, 9)
    tiles = [seen[top : top + 2, left : left + 4] for top in range(0, 7, 2) for left in range(0, 9, 4)]
    whole, skipped = sum(bool(tile.all()) for tile in tiles), sum(not tile.any() for tile in tiles)
    title = plots.tile_plan(7, 9, 2, 4).axes[0].get_title()
    assert title == f"{whole} whole, {len(tiles) - whole - skipped} in part, {skipped} skipped"
