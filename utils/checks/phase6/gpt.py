"""GPT: a decoder-only model from tokens to logits, with its two ends reachable on their own."""

import torch
import torch.nn.functional as F
from torch import nn

from utils import oracle
from utils.checks.draw import mask
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase4.rules import MADE, blocks_differ, blocks_start_alike, fewer_parameters
from utils.checks.phase6 import PHASE
from utils.checks.phase6 import rules_families as rules
from utils.checks.phase6.classifier import lengths, scattered, tokens
from utils.observe.codec import Fixture


def config(**options):
    sizes = dict(vocab_size=11, d_model=12, n_heads=4, n_layers=2, d_ff=20, max_len=9)
    return dict(config=Fixture("config", sizes | options))


class _Model(oracle.GPT):
    """A wrong twin in its parts; as it stands it is right."""

    def forward(self, tokens, pad_mask=None):
        x, seen = self.embed(tokens), self.seen(tokens, pad_mask)
        for block in self.blocks:
            x = block(x, attn_mask=seen)
        return self.head(x)

    def seen(self, tokens, pad_mask):
        hidden = None if pad_mask is None else oracle.padding_mask(pad_mask)
        return oracle.combine_masks(oracle.causal_mask(tokens.shape[1]), hidden)

    def embed(self, tokens, offset=0):
        x = self.positions(self.rows(tokens), offset)
        return F.dropout(x, self.config.dropout, self.training)

    def rows(self, tokens):
        return F.embedding(tokens, self.token_embedding.weight)

    def head(self, x):
        return F.linear(self.norm(x), self.out())

    def out(self):
        return self.output.weight


def wrong(**methods):
    return type("WrongGPT", (_Model,), methods)


def made(change):
    """A model that is changed once it is made: change(self, config)."""

    class Wrong(_Model):
        def __init__(self, config):
            super().__init__(config)
            change(self, config)

    return Wrong


def never_norm(model, config):
    model.norm = nn.Identity()


def always_norm(model, config):
    model.norm = oracle.LayerNorm(config.d_model)


def never_tied(model, config):
    model.output = nn.Linear(config.d_model, config.vocab_size, bias=False)


class _Reuse(nn.Module):
    """An output layer that has no matrix."""

    def __init__(self, table):
        super().__init__()
        self.table = (table,)

    @property
    def weight(self):
        return self.table[0].weight


def always_tied(model, config):
    model.output = _Reuse(model.token_embedding)


def with_bias(model, config):
    model.bias = nn.Parameter(torch.zeros(config.vocab_size))


def all_heads(model, config):
    for block in model.blocks:
        block.attention = oracle.MultiHeadAttention(config.d_model, config.n_heads)


def one_block(model, config):
    model.blocks = nn.ModuleList([model.blocks[0]] * config.n_layers)


def alike(model, config):
    for block in model.blocks:
        block.load_state_dict(model.blocks[0].state_dict())


def post_norm_blocks(model, config):
    for block in model.blocks:
        block.norm_first = False


def pre_norm_blocks(model, config):
    for block in model.blocks:
        block.norm_first = True


def blocks_without_dropout(model, config):
    for place, block in enumerate(model.blocks):
        bare = oracle.EncoderBlock(config.d_model, config.n_heads, config.d_ff, config.norm_first)
        if config.n_kv_heads not in (None, config.n_heads):
            bare.attention = block.attention
        model.blocks[place] = bare


def never_dropped(self, tokens, offset=0):
    return self.positions(self.rows(tokens), offset)


def always_dropped(self, tokens, offset=0):
    return F.dropout(never_dropped(self, tokens, offset), self.config.dropout)


def unnormed_forward(self, tokens, pad_mask=None):
    x, seen = self.embed(tokens), self.seen(tokens, pad_mask)
    for block in self.blocks:
        x = block(x, attn_mask=seen)
    return F.linear(x, self.out())


def normed_forward(self, tokens, pad_mask=None):
    x, seen = self.embed(tokens), self.seen(tokens, pad_mask)
    for block in self.blocks:
        x = block(x, attn_mask=seen)
    return F.linear(self.norm(x), self.out())


def causal_without_pads(self, tokens, pad_mask):
    return oracle.causal_mask(tokens.shape[1]) if pad_mask is None else oracle.padding_mask(pad_mask)


def from_place_0(self, tokens, offset=0):
    return _Model.embed(self, tokens)


def strictly_past(self, tokens, pad_mask):
    seen = _Model.seen(self, tokens, pad_mask)
    return seen & ~torch.eye(tokens.shape[1], dtype=torch.bool)


def pads_as_queries(self, tokens, pad_mask):
    seen = oracle.causal_mask(tokens.shape[1])
    return seen if pad_mask is None else seen & pad_mask[:, None, :, None]


ONE = config(n_layers=1)
SEVEN = dict(tokens=tokens(11, 2, 7))
PADS = SEVEN | dict(pad_mask=lengths(7, 7, 4))
X = dict(method="head", x=(2, 5, 12))
LATER = dict(method="embed", tokens=tokens(11, 2, 5), offset=4)

register(
    expected=oracle.GPT,
    phase=PHASE,
    section="6.5",
    hint="embed: table + positions; every block under one causal mask; head: last norm, then the table once more.",
    bans=("attention", "blocks"),
    cases=(
        case("two sentences of seven", SEVEN, init=config()),
        case("post-norm", SEVEN, init=config(norm_first=False)),
        case("an output of its own", SEVEN, init=config(tied=False, n_layers=1)),
        case("two heads for keys and values", SEVEN, init=config(n_kv_heads=2)),
        case("as many heads for keys and values", SEVEN, init=config(n_kv_heads=4, n_layers=1)),
        case("padding on the right", PADS, init=config()),
        case("padding here and there", SEVEN | dict(pad_mask=scattered([1, 1, 0, 1, 1, 0, 1], [1] * 7)), init=ONE),
        case("grouped and padded, post-norm", PADS, init=config(n_kv_heads=1, norm_first=False, n_layers=1)),
        case("as long as the sentence may be", dict(tokens=tokens(11, 3, 9)), init=config(n_layers=1)),
        case("one token, then seven", dict(tokens=tokens(11, 1, 1)), then=(SEVEN,), init=ONE, train=True),
        case(
            "embed, at 0 and at 4", dict(method="embed", tokens=tokens(11, 2, 5)), then=(LATER,), init=ONE, grad=False
        ),
        case("head", X, then=(X | dict(x=(1, 3, 12)),), init=ONE, grad=False),
        case("config is kept", dict(method="config"), init=ONE, grad=False),
        case("head of its own, post-norm", X, init=config(tied=False, norm_first=False, n_layers=1), grad=False),
        case("as it is made", SEVEN, init=config(), kind="chance", judge=blocks_differ, **MADE),
        case("dropout 0.5 in eval", SEVEN, init=config(dropout=0.5, n_layers=1), grad=False),
        case("dropout 1 in training", SEVEN, init=config(dropout=1.0), train=True, grad=False),
        case(
            "dropout 1 in training, post-norm",
            SEVEN,
            init=config(dropout=1.0, norm_first=False),
            train=True,
            grad=False,
        ),
        case("padding in front", SEVEN | dict(pad_mask=mask(2, 7, empty=[(0, 0), (0, 1)])), init=ONE, kind="edge"),
        case("longer than max_len", dict(tokens=tokens(11, 2, 10)), init=ONE, kind="edge", grad=False),
        case("embed past max_len", LATER | dict(offset=5), init=ONE, kind="edge", grad=False),
    ),
    mistakes={
        "a token must not see its future": Replays(
            wrong(seen=lambda self, tokens, pad_mask: None if pad_mask is None else oracle.padding_mask(pad_mask)),
            wrong(seen=causal_without_pads),
        ),
        "a token sees itself": wrong(seen=strictly_past),
        "no √d_model here": wrong(rows=lambda self, tokens: _Model.rows(self, tokens) * self.config.d_model**0.5),
        "positions are missing": wrong(
            embed=lambda self, tokens, offset=0: F.dropout(self.rows(tokens), self.config.dropout, self.training)
        ),
        "embed begins at place offset": wrong(embed=from_place_0),
        "a pre-norm stream needs one last norm": Spotted(rules.missing("norm.gamma", "norm.beta"), made(never_norm)),
        "the last norm belongs to head": Replays(
            wrong(head=lambda self, x: F.linear(x, self.out())),
            wrong(forward=unnormed_forward),
            wrong(forward=normed_forward, head=lambda self, x: F.linear(x, self.out())),
        ),
        "post-norm ends normed: no norm more": Spotted(
            rules.parameters_more("blocks.0.norm1.gamma", "blocks.0.norm1.beta"), made(always_norm)
        ),
        "norm_first was not handed on": Replays(made(post_norm_blocks), made(pre_norm_blocks)),
        "dropout was not handed on to the blocks": made(blocks_without_dropout),
        "dropout follows the positions": Replays(
            wrong(embed=never_dropped), type("Wrong", (made(blocks_without_dropout),), dict(embed=never_dropped))
        ),
        "dropout is for training: nn.Dropout, or training=self.training": Spotted(
            rules.drops_in_eval, wrong(embed=always_dropped)
        ),
        "no dropout in the head": wrong(
            head=lambda self, x: F.linear(F.dropout(self.norm(x), self.config.dropout, self.training), self.out())
        ),
        "tied: the output's weight is the table itself": Spotted(
            rules.parameters_more("token_embedding.weight"), made(never_tied)
        ),
        "the table learns through the output, too": Replays(
            wrong(out=lambda self: self.output.weight.detach()),
            wrong(out=lambda self: self.output.weight.detach() if self.config.tied else self.output.weight),
        ),
        "untied: the output has a matrix of its own": Spotted(rules.missing("output.weight"), made(always_tied)),
        "the output layer has no bias": Spotted(rules.bias_at_the_output, made(with_bias)),
        "n_kv_heads was ignored": Spotted(rules.narrower_expected, made(all_heads)),
        "return logits": Replays(
            wrong(head=lambda self, x: _Model.head(self, x).softmax(-1)),
            wrong(head=lambda self, x: _Model.head(self, x).log_softmax(-1)),
        ),
        "padding was ignored": wrong(seen=lambda self, tokens, pad_mask: _Model.seen(self, tokens, None)),
        "padding hides keys": wrong(seen=pads_as_queries),
        "True means real token": wrong(
            seen=lambda self, tokens, pad_mask: _Model.seen(self, tokens, None if pad_mask is None else ~pad_mask)
        ),
        "keep config: generate and its cache will ask for it": Spotted(
            rules.no_config, made(lambda model, config: vars(model).pop("config")), certain=True
        ),
        "the layers share their weights": Spotted(fewer_parameters, made(one_block)),
        "the layers start alike: draw each anew": Spotted(blocks_start_alike, made(alike)),
    },
)
