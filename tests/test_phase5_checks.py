"""Phase 5: scripts that play with learners' objects, bans that cannot be walked around, twins against brute force."""

import itertools
import math

import pytest
import torch
from torch import nn

from utils import oracle
from utils.checks import EXERCISES, evaluate
from utils.observe.scripts import SCRIPTS


def test_every_script_has_an_exercise():
    """Is each play asked for by an exercise, and each one that is asked for there?"""
    asked = {exercise.script for exercise in EXERCISES.values() if exercise.script}
    assert asked == set(SCRIPTS)


@pytest.mark.parametrize("way", ["class", "functional", "namesake"])
def test_torchs_own_optimiser_and_clipping_are_off(way):
    """Are torch's AdamW, its functional form and its clipping refused by whatever name they come?"""
    from tests.bank.phase5_optimiser import TorchsFunctional, torchs_own
    from tests.bank.phase5_schedule import torchs_own_by_another_name

    name, obj = {
        "class": ("AdamW", torchs_own),
        "functional": ("AdamW", TorchsFunctional),
        "namesake": ("clip_grad_norm_", torchs_own_by_another_name),
    }[way]
    report = evaluate(name, obj)
    assert report.score == 0 and "build this one yourself" in report.message
    assert torch.optim.AdamW([nn.Parameter(torch.ones(2))]) is not None, "the ban outlived the check"


def test_the_twin_of_beam_search_finds_what_enumeration_finds():
    """Is the best of all sentences found if nothing is pruned?"""
    vocab, depth, eos = 3, 3, 0
    table = torch.randn(13, vocab, generator=torch.Generator().manual_seed(3)).double().log_softmax(-1)
    model = SCRIPTS["beams"](lambda ask, *_: [ask])(table, 7, eos, 1, depth, 0.6)
    assert isinstance(model, list)
    (ask,) = model
    every = {}
    for words in itertools.product(range(vocab), repeat=depth):
        cut = words[: words.index(eos) + 1] if eos in words else words
        total = sum(ask(torch.tensor([[7, *cut[:n]]]))[0, word].item() for n, word in enumerate(cut))
        every[(7, *cut)] = total / len(cut) ** 0.6
    found = oracle.beam_search(ask, 7, eos, 40, depth, 0.6)
    assert {tuple(tokens): score for tokens, score in found} == pytest.approx(every)
    assert [score for _, score in found] == sorted(every.values(), reverse=True)


def test_greedy_rows_that_left_their_path_are_sent_elsewhere():
    """Does a decoder that fed wrong tokens get other words, so that the right ones cannot come by chance?"""
    play = SCRIPTS["greedy"]
    noise = torch.zeros(3, 1, 9)
    path, prompt = torch.tensor([[3], [4], [5]]), torch.tensor([[6, 7]])
    right = play(oracle.greedy_decode)(noise, path, prompt, 3, 2, 0)
    assert right["tokens"].tolist() == [[6, 7, 3, 4, 5]] and right["asked with"] == [[1, 2], [1, 3], [1, 4]]

    def forgetful(next_logits, prompt, *rest):
        return oracle.greedy_decode(lambda tokens: next_logits(tokens.flip(-1)), prompt, *rest)

    assert play(forgetful)(noise, path, prompt, 3, 2, 0)["tokens"][0, 2:].tolist() != [3, 4, 5]


def test_a_step_on_pieces_is_a_step_on_the_whole():
    """Do the twin's weights after micro-batches equal those after one padded batch, with torch's own loss?"""
    torch.manual_seed(0)
    pieces = [(torch.randint(7, shape), torch.randint(7, shape)) for shape in ((2, 3), (2, 3))]
    pieces[0][1][0, 1:] = -100
    weights = []
    for batches in (pieces, [tuple(torch.cat(part) for part in zip(*pieces, strict=True))]):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7)).double()
        oracle.train_step(model, torch.optim.SGD(model.parameters(), lr=0.5), batches, 0.3)
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(*weights)


def test_perplexity_of_a_fresh_model_is_its_vocabulary():
    """Do cross-entropy and perplexity of equal logits agree with ln V and V?"""
    loss = oracle.cross_entropy(torch.zeros(5, 37).double(), torch.arange(5), -100)
    assert loss.item() == pytest.approx(math.log(37)) and oracle.perplexity([loss.item()], [5]) == pytest.approx(37)
