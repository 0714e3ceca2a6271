"""Phase 4: the twins against torch's own Transformer layers, other people's layouts, and the lesson's source."""

import ast
import re
from pathlib import Path

import jupytext
import pytest
import torch
from torch import nn

from utils import notes, oracle
from utils.checks import EXERCISES, evaluate
from utils.config import ModelConfig

SOURCE = Path(__file__).parents[1] / "solutions" / "phase4_blocks" / "phase4_blocks.py"
NAMES = [name for name, exercise in EXERCISES.items() if exercise.phase == "phase4_blocks"]
SIZES = dict(d_model=12, n_heads=3, d_ff=20)


def copy_attention(ours, theirs):
    theirs.in_proj_weight.copy_(torch.cat([ours.w_q.weight, ours.w_k.weight, ours.w_v.weight]))
    theirs.in_proj_bias.copy_(torch.cat([ours.w_q.bias, ours.w_k.bias, ours.w_v.bias]))
    theirs.out_proj.load_state_dict(ours.w_o.state_dict())


def copy_rest(ours, theirs, norms):
    theirs.linear1.load_state_dict(ours.ffn.w_1.state_dict())
    theirs.linear2.load_state_dict(ours.ffn.w_2.state_dict())
    for name in norms:
        getattr(theirs, name).weight.copy_(getattr(ours, name).gamma)
        getattr(theirs, name).bias.copy_(getattr(ours, name).beta)


def drawn(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.4)
    return module.double().eval()


def torchs(kind, norm_first):
    options = dict(activation="gelu", batch_first=True, norm_first=norm_first, dropout=0.0)
    return kind(12, 3, 20, **options).double().eval()


@pytest.mark.parametrize("norm_first", [True, False])
def test_encoder_block_is_torchs(norm_first):
    """Does the twin give what nn.TransformerEncoderLayer gives with the same weights, padding hidden?"""
    torch.manual_seed(0)
    ours, theirs = (
        drawn(oracle.EncoderBlock(**SIZES, norm_first=norm_first)),
        torchs(nn.TransformerEncoderLayer, norm_first),
    )
    with torch.no_grad():
        copy_attention(ours.attention, theirs.self_attn)
        copy_rest(ours, theirs, ("norm1", "norm2"))
    x, real = torch.randn(2, 5, 12).double(), torch.tensor([[True] * 5, [True, True, True, False, False]])
    expected = theirs(x, src_key_padding_mask=~real)
    torch.testing.assert_close(ours(x, attn_mask=real[:, None, None])[real], expected[real])


@pytest.mark.parametrize("norm_first", [True, False])
def test_decoder_block_is_torchs(norm_first):
    """Does the twin give what nn.TransformerDecoderLayer gives with the same weights, memory padding hidden?"""
    torch.manual_seed(0)
    ours, theirs = (
        drawn(oracle.DecoderBlock(**SIZES, norm_first=norm_first)),
        torchs(nn.TransformerDecoderLayer, norm_first),
    )
    with torch.no_grad():
        copy_attention(ours.self_attention, theirs.self_attn)
        copy_attention(ours.cross_attention, theirs.multihead_attn)
        copy_rest(ours, theirs, ("norm1", "norm2", "norm3"))
    x, memory = torch.randn(2, 5, 12).double(), torch.randn(2, 7, 12).double()
    real = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    causal = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    expected = theirs(x, memory, tgt_mask=causal, memory_key_padding_mask=~real)
    torch.testing.assert_close(ours(x, memory, memory_mask=real[:, None, None]), expected)


@pytest.mark.parametrize("options", [dict(), dict(tied=False), dict(n_kv_heads=2), dict(norm_first=False)])
def test_count_of_both_stacks_is_that_of_the_built_model(options):
    """Does the count of an encoder-decoder config equal the parameters of the Transformer, where it can be built?"""
    sizes = dict(vocab_size=11, src_vocab_size=9, d_model=12, n_heads=6, n_layers=2, d_ff=20, max_len=7)
    config = ModelConfig(**sizes, **options)
    model = oracle.Transformer(9, 11, 12, 6, 20, 2, norm_first=config.norm_first)
    built = sum(p.numel() for p in model.parameters()) + (0 if config.tied else 11 * 12)
    if config.n_kv_heads:
        built -= 2 * 3 * 2 * (12 + 1) * (12 - 4)  # layers, attentions, w_k and w_v, inputs and bias, features saved
    assert oracle.count_parameters(config)["total"] == built


def test_a_row_alone_is_the_row_in_its_batch():
    """Does the twin give a padded sentence in a batch what it gives that sentence alone?"""
    torch.manual_seed(0)
    model = drawn(oracle.Transformer(9, 11, 12, 3, 20, 2))
    src, tgt = torch.randint(9, (2, 7)), torch.randint(11, (2, 5))
    pads = torch.arange(7) < torch.tensor([[7], [4]])
    together = model(src, tgt, src_pad_mask=pads)
    torch.testing.assert_close(model(src[1:, :4], tgt[1:]), together[1:])


def test_a_part_that_fills_itself_is_filled_and_graded():
    """Is a block with a fused attention accepted, and refused when that attention's gradients are cut?"""
    from tests.bank.phase4_blocks import FusedAttention, FusedInside

    class Cut(FusedAttention):
        def forward(self, x, memory=None, attn_mask=None):
            return super().forward(x, memory, attn_mask).detach()

    class CutInside(FusedInside):
        def make(self, d_model, n_heads, d_ff, dropout):
            super().make(d_model, n_heads, d_ff, dropout)
            self.attention = Cut(d_model, n_heads, dropout)

    assert evaluate("EncoderBlock", FusedInside).passed
    report = evaluate("EncoderBlock", CutInside)
    assert not report.passed and report.aspects["gradients"] is False


def test_gradients_lent_in_a_list_are_watched():
    """Is a .grad that was changed in a list of modules seen?"""

    def careless(blocks, x):
        answer = oracle.gradient_norms(blocks, x)
        next(blocks[0].parameters()).grad = torch.zeros_like(next(blocks[0].parameters()))
        return answer

    report = evaluate("gradient_norms", careless)
    assert report.aspects["values"] and report.aspects["properties"] is False


# ---- the lesson's source -------------------------------------------------------------------------

CELLS = jupytext.read(SOURCE).cells


def calls(name):
    for cell in CELLS:
        if cell.cell_type == "code":
            for node in ast.walk(ast.parse(cell.source)):
                if isinstance(node, ast.Call) and getattr(node.func, "id", None) == name:
                    yield node


def test_the_lesson_and_the_checks_agree():
    """Has every exercise its section, three hints, a check and a sentence to write, and do points add up to 70?"""
    section, found = None, {}
    for place, cell in enumerate(CELLS):
        if heading := re.search(r"^## (4\.\d+) ", cell.source, re.MULTILINE):
            section = heading[1]
        if name := cell.metadata.get("exercise"):
            found[name] = section
            hints = re.findall(r"<summary>Hint (\d · \w+)</summary>", CELLS[place - 1].source)
            assert hints == ["1 · where", "2 · what", "3 · how"] and CELLS[place + 1].metadata["check"] == name
    assert found == {name: EXERCISES[name].section for name in NAMES}
    assert {cell.metadata["reflect"] for cell in CELLS if "reflect" in cell.metadata} == set(NAMES)
    points = [ast.literal_eval(node.keywords[0].value) for node in calls("check")]
    assert (sum(points), len(points)) == (70, 19)


def test_every_prediction_is_revealed():
    """Has every question an answer further down that is one of its options?"""
    asked = {node.args[0].value: ast.literal_eval(node.args[2]) for node in calls("predict")}
    told = {node.args[0].value: node.args[1].value for node in calls("reveal")}
    assert asked.keys() == told.keys() and all(told[name] in asked[name] for name in told)


def test_every_worked_number_is_met():
    """Does the learner meet every worked number of the phase?"""
    source = SOURCE.read_text(encoding="utf-8")
    missing = {ex.id for ex in notes.examples(phase=4) if f'"{ex.id}"' not in source and f"`{ex.id}`" not in source}
    assert missing <= {"004-table2-shapes"}  # named inside a print


def test_sections_fit_an_evening():
    """Are contents and headings alike, no section above 30 minutes and the core at most three hours?"""
    rows = re.findall(r"^\| \[(4\.\d+ [^\]]+)\]\(#([^)]+)\) \|.*\| (\d+) \| (\w+) \|$", CELLS[0].source, re.MULTILINE)
    pattern = r"^## (4\.\d+ .+)\n\*(core|more|stretch) · about (\d+) min"
    headings = [found for cell in CELLS for found in re.findall(pattern, cell.source, re.MULTILINE)]
    assert [(title, path, minutes) for title, _, minutes, path in rows] == headings
    assert all(link == title.replace(" ", "-") for title, link, _, _ in rows)
    assert max(int(row[2]) for row in rows) <= 30
    assert sum(int(minutes) for _, _, minutes, path in rows if path == "core") <= 180
