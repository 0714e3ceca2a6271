"""The benchmarks of training and decoding, in small: do they compare equal things, and say what is missing?"""

import json

import pytest
import torch

from benchmarks import decoding, quality, training
from benchmarks.rivals import NotThere, Transformers
from benchmarks.static_decoder import Int8Linear, StaticDecoder, kernels_of, to_int8
from tests import train_toys as toys
from utils import oracle
from utils.config import ModelConfig
from utils.data.python_source import SourceText
from utils.train import settings

SMALL = dict(vocab_size=29, d_model=16, n_heads=4, n_layers=2, d_ff=64, max_len=32)

# A checkout in miniature: the names that nanoGPT's model.py has, around something that learns.
CHECKOUT = """
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class GPTConfig:
    block_size: int
    vocab_size: int
    n_layer: int
    n_head: int
    n_embd: int
    dropout: float
    bias: bool


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        print("number of parameters")
        self.table = nn.Embedding(config.vocab_size, config.n_embd)
        self.out = nn.Linear(config.n_embd, config.vocab_size)

    def forward(self, tokens, targets=None):
        logits = self.out(self.table(tokens))
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def configure_optimizers(self, weight_decay, learning_rate, betas, device_type):
        return torch.optim.AdamW(self.parameters(), lr=learning_rate, betas=betas, weight_decay=weight_decay)
"""


@pytest.mark.parametrize("options", [dict(), dict(n_kv_heads=2), dict(tied=False)])
def test_the_static_decoder_says_what_the_model_says(options):
    """Token by token in fixed buffers: are the logits those of the whole text at once, twice in a row?"""
    torch.manual_seed(0)
    model = oracle.GPT(ModelConfig(**SMALL | options)).eval()
    tokens = torch.randint(29, (3, 9))
    decoder = StaticDecoder(model, 3, 12)
    with torch.no_grad():
        for _ in range(2):
            decoder.restart()
            said = torch.stack([decoder(tokens[:, n : n + 1]) for n in range(9)], 1)
            assert torch.allclose(said, model(tokens), atol=1e-5)


def test_greedy_text_is_the_same_in_every_way():
    """Do cache, no cache and static buffers write the same text?"""
    assert decoding.same_tokens(decoding.made(ModelConfig(**SMALL | dict(max_len=64))))


def test_int8_is_close_and_a_quarter():
    """Are INT8 weights near the original's, and is the output layer left alone?"""
    model = decoding.made(ModelConfig(**SMALL))
    tokens, before = torch.randint(29, (1, 8)), model.token_embedding.weight.clone()
    with torch.no_grad():
        right = model(tokens)
        small = to_int8(model)
        assert isinstance(small.blocks[0].ffn.w_1, Int8Linear) and small.blocks[0].ffn.w_1.q.dtype == torch.int8
        assert torch.allclose(small(tokens), right, atol=0.02 * right.abs().max()) and torch.equal(
            before, small.token_embedding.weight
        )


def test_a_text_costs_the_area_under_its_steps():
    """Is the price of a whole text the sum of its steps, also between measured lengths?"""
    steps = [{"length": 2, "ms": 4.0}, {"length": 4, "ms": 8.0}]
    assert decoding.whole(steps, "ms") == 2 * 4.0 + 2 * 6.0


def test_operations_are_counted_and_views_are_not():
    """Does the count of kernels leave out what only looks at memory in another way?"""
    x = torch.ones(2, 3)
    assert kernels_of(lambda: (x + 1).t().view(-1, 2).mul(2)) == 2


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """benchmarks.training on a toy text with ceilings that need not be measured; the folder of a checkout."""
    monkeypatch.setitem(training.ROWS, "char", (None, dict(d_model=16, n_layers=1, n_heads=2, d_ff=24, seq_len=12,
                                                           vocab_size=12, lr=1e-2)))  # fmt: skip
    stream = toys.Stream()
    stream.source_fingerprint, stream.to = "toy", lambda device: stream
    monkeypatch.setattr(training, "byte_stream", lambda source, vocab_size: stream)
    monkeypatch.setattr(training.measure, "peak_matmul", lambda dtype, device: 1e12)
    monkeypatch.setattr(training.measure, "bandwidth", lambda device: 1e11)
    (tmp_path / "model.py").write_text(CHECKOUT)
    return tmp_path


def test_both_are_trained_on_the_same_batches(tiny, capsys):
    """Do two rivals take turns, and is everything that a reader needs in the json?"""
    out = tiny / "found.json"
    arguments = ["--steps", "2", "--rounds", "3", "--batch_size", "4", "--device", "cpu", "--out", str(out)]
    training.main([*arguments, "--against-nanogpt", str(tiny)])
    found = json.loads(out.read_text())
    row = found["rows"][0]
    assert {"date", "device", "torch", "threads"} <= found.keys() and row["sizes"]["batch_size"] == 4
    assert 0 < row["ours"]["R_compute_causal"] < row["ours"]["R_compute_palm"] < 1
    low, high = row["ours_over_nanogpt"]["quartiles"]
    assert low <= row["ours_over_nanogpt"]["median"] <= high and row["ours_over_nanogpt"]["by"] == "CPU time"
    assert 0 < row["nanoGPT"]["loss"] < 5 and 0 < row["ours"]["loss"] < 5
    assert "ours / nanoGPT" in capsys.readouterr().out


def test_a_missing_checkout_is_said_in_a_sentence(tiny):
    """Is a folder without nanoGPT a sentence, not a traceback?"""
    with pytest.raises(SystemExit, match="give the folder of a nanoGPT checkout"):
        training.main(["--against-nanogpt", str(tiny / "nothing"), "--device", "cpu", "--steps", "1", "--rounds", "1"])


def test_a_missing_package_leaves_its_row_out(monkeypatch, capsys):
    """Without transformers: do our rows come all the same, with a sentence about the other?"""
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(NotThere, match="not installed"):
        Transformers(ModelConfig(**SMALL), "cpu", torch.float32)
    monkeypatch.setattr(decoding, "CPU_MODEL", ModelConfig(**SMALL | dict(max_len=64)))
    monkeypatch.setattr(decoding, "LENGTHS", (4, 8, 16))
    found = decoding.main(["--device", "cpu", "--rounds", "2", "--small", "--against-transformers"])
    assert found["rows"][0]["same_tokens"] and "not installed" in found["left_out"]
    assert "the same tokens: True" in capsys.readouterr().out


def test_the_twin_of_bytes_sees_as_many_tokens_of_the_same_files(capsys):
    """Are both models of one size and one number of tokens, and both judged by the bytes of the held-out text?"""
    text = b"def f(x):\n    return x + 1\n\n\n"
    source = SourceText([text * 30] * 3, [text * 20], "toy", "")
    small = dict(d_model=16, n_layers=1, n_heads=2, d_ff=24, seq_len=12, steps=3, vocab_size=300, device="cpu")
    row = quality.language(settings("b", "smoke", **small), source)
    assert row["tokens"] == 3 * 8 * 12 and row["train_cpu_seconds"] > 0
    assert 0 < row["bits per byte"] < 9 and 0 < row["bits per byte, reading bytes"] < 9.5
    told = quality.summary([row, row | {"tokens": 0}])["tokens"]
    assert told == {"mean": 144.0, "from": 0, "to": 288} and "Parts" not in capsys.readouterr().out
