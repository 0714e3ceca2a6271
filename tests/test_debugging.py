"""The debugging checklist: each of the twelve finds the bug it is there for, and none accuses a right object."""

import functools
import math

import pytest
import torch
from torch import nn

from utils import oracle
from utils.checks import EXERCISES, evaluate
from utils.debugging import ASSERTIONS, checklist, examine

NAMES = list(ASSERTIONS)
KINDS = {}  # number of the assertion -> objects with exactly that bug, made anew: (object, options)


def bug(number, **options):
    def register(make):
        KINDS.setdefault(number, []).append((make, options))
        return make

    return register


def failed(obj, **options):
    """Numbers of the assertions that do not hold."""
    return [number for number, found in enumerate(examine(obj, **options), 1) if found.ok is False]


def heads(weigh):
    """An oracle.MultiHeadAttention(12, 3) with weights of its own: weigh(self, q, k, mask)."""

    class Changed(oracle.MultiHeadAttention):
        def _mixed(self, q, k, v, attn_mask):
            return weigh(self, q, k, attn_mask) @ v

    return Changed(12, 3)


def scores(q, k):
    return q @ k.mT / q.shape[-1] ** 0.5


def hiding(q, k, mask, fill):
    return scores(q, k) if mask is None else scores(q, k).masked_fill(~mask, fill)


def block(change, base=oracle.EncoderBlock):
    """An encoder block whose answer is changed: change(block, x, answer)."""

    class Changed(base):
        def forward(self, x, attn_mask=None):
            return change(self, x, super().forward(x, attn_mask))

    return Changed(12, 3, 20)


def model(base=oracle.Transformer, **options):
    torch.manual_seed(1)
    made = base(9, 11, 12, 3, 20, 1, **options)
    oracle.init_weights(made, 0.2, 1)
    return made


class _NoPositions(oracle.Transformer):
    def embedded(self, tokens, table):
        return table(tokens) * 12**0.5


class _FromTheRight(oracle.Transformer):
    def embedded(self, tokens, table):
        bare = table(tokens) * 12**0.5
        return bare + (oracle.Transformer.embedded(self, tokens, table) - bare).flip(1)


class _Softmaxed(oracle.Transformer):
    def forward(self, src, tgt, src_pad_mask=None, tgt_pad_mask=None):
        return oracle.Transformer.forward(self, src, tgt, src_pad_mask, tgt_pad_mask).softmax(-1)


class _Sure(oracle.Transformer):
    def forward(self, src, tgt, src_pad_mask=None, tgt_pad_mask=None):
        return oracle.Transformer.forward(self, src, tgt, src_pad_mask, tgt_pad_mask) * 30


def low_fill(self, q, k, mask):
    """30 off a hidden score, and zeros for an empty row: only a loud token is heard through that."""
    if mask is None:
        return scores(q, k).softmax(-1)
    return (scores(q, k) - 30.0 * ~mask).softmax(-1) * mask.any(-1, keepdim=True)


class _Unused(oracle.EncoderBlock):
    def __init__(self, *args):
        super().__init__(*args)
        self.norm3 = oracle.LayerNorm(12)


class _Triangle(oracle.SelfAttention):
    def forward(self, x, attn_mask=None):
        seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril(1)
        return oracle.SelfAttention.forward(self, x, seen if attn_mask is None else seen & attn_mask)


bug(1)(lambda: block(lambda self, x, out: nn.functional.dropout(out, 0.3)))
bug(1)(lambda: block(lambda self, x, out: out.float()))
bug(2)(lambda: block(lambda self, x, out: out + 0.1 * out.mean(0, keepdim=True)))
bug(2)(lambda: block(lambda self, x, out: out - out.mean((0, 1)) if self.training else out))
bug(3)(lambda: heads(lambda self, q, k, mask: hiding(q, k, mask, -math.inf).sigmoid()))
bug(4)(lambda: heads(lambda self, q, k, mask: oracle.attention_weights(q, k)))
bug(4)(lambda: heads(lambda self, q, k, mask: oracle.attention_weights(q, k, None if mask is None else ~mask)))
bug(4)(lambda: heads(low_fill))
bug(5, causal=True)(lambda: _Triangle(12, 4))
bug(6)(lambda: block(lambda self, x, out: out * x.shape[1] ** 0.5))
bug(6)(lambda: model(_FromTheRight))
bug(7)(lambda: heads(lambda self, q, k, mask: hiding(q, k, mask, -math.inf).softmax(-1)))
bug(7)(lambda: heads(lambda self, q, k, mask: hiding(q, k, mask, -1e30).softmax(-1)))
bug(8)(lambda: block(lambda self, x, out: out + torch.arange(x.shape[1])[:, None].to(x)))
bug(8)(lambda: model(_NoPositions))
bug(9)(lambda: heads(lambda self, q, k, mask: oracle.attention_weights(q * 2.0, k, mask)))
bug(9)(lambda: heads(lambda self, q, k, mask: oracle.attention_weights(q * self.n_heads**-0.5, k, mask)))
bug(10)(lambda: _Unused(12, 3, 20))
bug(10)(lambda: heads(lambda self, q, k, mask: oracle.attention_weights(q.detach(), k, mask)))
bug(11)(lambda: model(_Sure))
bug(12)(lambda: model(_Softmaxed))


@functools.cache
def failed_by(number, place):
    """What fails for one of the bugs above, examined once."""
    make, options = KINDS[number][place]
    return failed(make(), **options)


BUGS = [(number, place) for number, found in KINDS.items() for place in range(len(found))]


@pytest.mark.parametrize(("number", "place"), BUGS)
def test_each_assertion_finds_its_bug(number, place):
    """Does an object with one bug fail the assertion that is there for it?"""
    assert number in failed_by(number, place)


def test_every_assertion_is_the_only_one_to_find_something():
    """Is none of the twelve superfluous: has each a bug that no other finds?"""
    alone = {number: [failed_by(number, place) for place in range(len(made))] for number, made in KINDS.items()}
    assert sorted(alone) == list(range(1, 13))
    superfluous = {number: found for number, found in alone.items() if [number] not in found}
    assert not superfluous


RIGHT = {
    "one head": lambda: (oracle.SelfAttention(12, 5), {}),
    "one head, causal": lambda: (oracle.SelfAttention(12, 5, True), dict(causal=True)),
    "cross": lambda: (oracle.CrossAttention(12, 10, 4), {}),
    "repaired, short sentences": lambda: (oracle.MaskedSelfAttention(6, 5), dict(causal=True)),
    "several heads": lambda: (oracle.MultiHeadAttention(12, 3, dropout=0.4), {}),
    "grouped": lambda: (oracle.GroupedQueryAttention(12, 6, 2), {}),
    "torch's": lambda: (nn.MultiheadAttention(12, 3, batch_first=True), {}),
    "torch's, batch second": lambda: (nn.MultiheadAttention(12, 2), {}),
    "encoder block": lambda: (oracle.EncoderBlock(12, 3, 20, norm_first=False, dropout=0.2), {}),
    "encoder": lambda: (oracle.Encoder(2, 12, 3, 20), dict(causal=False)),
    "decoder block": lambda: (oracle.DecoderBlock(12, 3, 20), {}),
    "decoder": lambda: (oracle.Decoder(2, 12, 3, 20, norm_first=False), {}),
    "model": lambda: (model(), {}),
    "feed-forward": lambda: (oracle.FeedForward(12, 20), {}),
    "a function": lambda: (lambda x: oracle.sdpa(x, x, x), dict(width=8)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_one_is_not_accused(name):
    """Does every assertion hold, or say that it does not apply, for what is right?"""
    obj, options = RIGHT[name]()
    found = examine(obj, **options)
    assert [one.name for one in found] == NAMES and len(NAMES) == 12
    assert not [one.line for one in found if one.ok is False]
    assert all(one.says for one in found if one.ok is None)


def test_another_call_style_goes_through_an_adapter():
    """Is torch's encoder layer, whose masks mean the opposite, understood through `call`?"""
    layer = nn.TransformerEncoderLayer(12, 3, 20, batch_first=True)

    def call(x, mask):
        hidden = None if mask is None else (~mask).expand(-1, 3, -1, -1).flatten(0, 1)
        return layer(x, src_mask=hidden)

    assert not [one for one in failed(layer, call=call, width=12) if one != 7]
    inverted = failed(layer, call=lambda x, mask: call(x, None if mask is None else ~mask), width=12)
    assert 4 in inverted


def test_nothing_is_left_behind():
    """Are weights, gradients, flags, random state and default dtype what they were?"""
    made = model(dropout=0.1).train()
    made.src_embedding.weight.grad = torch.ones(9, 12)
    before = {name: part.clone() for name, part in made.state_dict().items()}
    marks = torch.get_rng_state(), torch.get_default_dtype(), torch.is_grad_enabled()
    examine(made)
    assert all(torch.equal(before[name], part) for name, part in made.state_dict().items())
    assert torch.equal(made.src_embedding.weight.grad, torch.ones(9, 12)) and made.decoder.norm.gamma.grad is None
    assert all(part.training for part in made.modules())
    state, *rest = torch.get_rng_state(), torch.get_default_dtype(), torch.is_grad_enabled()
    assert torch.equal(state, marks[0]) and tuple(rest) == marks[1:]


def test_it_says_what_it_did(capsys):
    """Does the table name object, marks and reasons, and does an object that cannot be run spoil nothing?"""
    checklist(oracle.MultiHeadAttention(12, 3))
    printed = capsys.readouterr().out
    assert printed.startswith("MultiHeadAttention · reads vectors of width 12 · masks by row · not causal\n")
    assert len(printed.splitlines()) == 13 and " 1 ✓ answers" in printed and "–" in printed
    checklist(nn.Bilinear(4, 4, 4), width=4)
    assert "it raised TypeError" in capsys.readouterr().out
    with pytest.raises(ValueError, match="width="):
        checklist(lambda x: x)


def test_the_checklist_is_no_answer_to_an_exercise():
    """Is it off while a learner's function is checked?"""
    report = evaluate("reads_hidden", lambda attention: failed(attention, call=attention, width=8) != [])
    assert not report.passed and "checklist" in report.message


def test_known_mistakes_of_several_heads_are_found():
    """Of the wrong twins that phase 3 names, does the checklist find those that break a property?"""
    mistakes = EXERCISES["MultiHeadAttention"].mistakes
    for says, number in {
        "softmax ran over the queries": 3,
        "the mask was ignored": 4,
        "True means may attend": 4,
        "a row with nothing to see became an average": 7,
        "dropout must be off in eval mode": 1,
    }.items():
        wrong = mistakes[says]
        made = getattr(wrong, "twin", wrong)(12, 3, dropout=0.3)
        assert number in failed(made), says
