"""The twins of the measuring exercises against the world: torch's own counters, what autograd keeps, sacrebleu."""

import sys

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from utils import oracle
from utils.checks import evaluate
from utils.config import ModelConfig

SIZES = dict(vocab_size=211, d_model=48, n_heads=4, n_layers=3, d_ff=130, max_len=64)
ROWS, LENGTH = 3, 40


def loss_of(config):
    torch.manual_seed(0)
    model = oracle.GPT(config)
    tokens, targets = torch.randint(config.vocab_size, (2, ROWS, LENGTH))
    return model, lambda: F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


@pytest.mark.parametrize("options", [dict(), dict(tied=False)])
def test_palm_is_what_torch_counts_forward_and_backward(options):
    """Does torch's own counter find the operations of flops_per_token in a step of the course's GPT?"""
    config = ModelConfig(**SIZES | options)
    _, loss = loss_of(config)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        loss().backward()
    assert counter.get_total_flops() / (ROWS * LENGTH) == oracle.flops_per_token(config, LENGTH)["palm"]


def test_flops_of_the_sizes_we_publish():
    """Are 10M, 50M and 124M at 77, 346 and 798 million operations a token, and 855 by PaLM's convention?"""
    sizes = {(384, 6, 4096, 256): 77, (640, 10, 8192, 512): 346, (768, 12, 50304, 1024): 798}
    for (width, layers, words, length), million in sizes.items():
        found = oracle.flops_per_token(ModelConfig(words, width, 6, layers, 4 * width, length), length)
        assert round(found["causal"] / 1e6) == million
    assert round(found["palm"] / 1e6) == 855


def test_memory_is_about_what_autograd_keeps():
    """Does the estimate of activations come within a sixth of the bytes that a forward pass really stores?"""
    config = ModelConfig(**SIZES)
    model, loss = loss_of(config)
    weights, kept, alive = {p.untyped_storage().data_ptr() for p in model.parameters()}, {}, []

    def pack(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        alive.append(tensor)  # or its address could be given away again
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss()
    stored = sum(size for place, size in kept.items() if place not in weights)
    # the course's attention is given a mask, and torch stores that as a table of numbers for each head
    found = oracle.training_memory(config, ROWS, LENGTH, 4, fused=False)
    assert 1 < (stored - found["logits"] / 2) / found["activations"] < 7 / 6


def with_sacrebleu(hypotheses, references):
    import sacrebleu

    score = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="none", smooth_method="none", force=True)
    return dict(precisions=score.precisions, brevity_penalty=score.bp, bleu=score.score)


@pytest.mark.parametrize("imported", [True, False])
def test_sacrebleu_is_off_however_it_is_reached(imported, monkeypatch):
    """Is sacrebleu refused in an answer, whether it was imported before or is imported there?"""
    if not imported:
        for name in [name for name in sys.modules if name.partition(".")[0] == "sacrebleu"]:
            monkeypatch.delitem(sys.modules, name)
    report = evaluate("bleu", with_sacrebleu)
    assert report.score == 0 and "sacrebleu: build this one yourself" in report.message


def test_sacrebleu_works_as_before_after_a_check():
    """Does checking bleu leave sacrebleu as it was?"""
    evaluate("bleu", with_sacrebleu)
    assert with_sacrebleu(["a b c d e"], ["a b c d e"])["bleu"] == pytest.approx(100)
