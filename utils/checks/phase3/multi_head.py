"""MultiHeadAttention: split, attend, merge, project."""

import torch
import torch.nn.functional as F
from torch import nn

from utils import oracle
from utils.checks.draw import mask
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase3 import PHASE, rules


class _Multi(oracle.MultiHeadAttention):
    """A wrong twin in one of its steps; as it stands it is right."""

    def forward(self, x, memory=None, attn_mask=None):
        q, k, v = self.project(x, x if memory is None else memory)
        return self.last(self.merge(self.mix(self.split(q), self.split(k), self.split(v), attn_mask)))

    def project(self, x, memory):
        return self.w_q(x), self.w_k(memory), self.w_v(memory)

    def split(self, x):
        return oracle.split_heads(x, self.n_heads)

    def mix(self, q, k, v, attn_mask):
        return self.drop(self.weigh(q, k, attn_mask)) @ v

    def weigh(self, q, k, attn_mask):
        return oracle.attention_weights(q, k, attn_mask)

    def drop(self, weights):
        return F.dropout(weights, self.dropout, self.training)

    def merge(self, heads):
        return oracle.merge_heads(heads)

    def last(self, merged):
        return self.w_o(merged)


def wrong(**methods):
    return type("WrongMultiHeadAttention", (_Multi,), methods)


def weighing(function):
    """A wrong twin whose weights are function(q, k, attn_mask)."""
    return wrong(weigh=lambda self, q, k, attn_mask: function(q, k, attn_mask))


class _NoBias(_Multi):
    def __init__(self, d_model, n_heads, bias=True, dropout=0.0):
        super().__init__(d_model, n_heads, False, dropout)


class _AlwaysBias(_Multi):
    def __init__(self, d_model, n_heads, bias=True, dropout=0.0):
        super().__init__(d_model, n_heads, True, dropout)


class _NoOutputLayer(_Multi):
    def __init__(self, d_model, n_heads, bias=True, dropout=0.0):
        super().__init__(d_model, n_heads, bias, dropout)
        self.w_o = nn.Identity()


class _CountKeptElsewhere(_Multi):
    """The number of heads under another name."""

    def __init__(self, d_model, n_heads, bias=True, dropout=0.0):
        super().__init__(d_model, n_heads, bias, dropout)
        self.heads = self.n_heads
        del self.n_heads

    def split(self, x):
        return oracle.split_heads(x, self.heads)


class _NoMemory(_Multi):
    def forward(self, x, memory=None, attn_mask=None):
        return super().forward(x, None, attn_mask)


class _AllFromMemory(_Multi):
    def forward(self, x, memory=None, attn_mask=None):
        return super().forward(x if memory is None else memory, memory, attn_mask)


class _Regrouped(_Multi):
    """Heads by view alone: right shape, wrong contents; merged back the same way, or properly."""

    def split(self, x):
        return x.reshape(len(x), self.n_heads, x.shape[1], -1)


def over(axis):
    return lambda q, k, attn_mask: oracle.masked_softmax(q @ k.mT / q.shape[-1] ** 0.5, attn_mask, axis)


def filled(fill):
    def weights(q, k, attn_mask):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        lowest = torch.finfo(scores.dtype).min if fill is None else fill
        return (scores if attn_mask is None else scores.masked_fill(~attn_mask, lowest)).softmax(-1)

    return weights


def regrouped(heads):
    """(B, H, Q, D) to (B, Q, H·D) without moving an axis."""
    return heads.reshape(len(heads), heads.shape[2], -1)


def averaged(heads):
    return heads.mean(1).repeat(1, 1, heads.shape[1])


X = dict(x=(2, 5, 12))
PAIR = dict(x=(2, 5, 12), memory=(2, 7, 12))
THREE, FOUR, ONE = (dict(d_model=12, n_heads=count) for count in (3, 4, 1))


def head_alone(head, n_heads, *shape):
    """A mask by which one head sees key 1 and the others nothing; "all" and "none" do what they say."""
    table = torch.zeros(shape[0], n_heads, shape[1], shape[2], dtype=torch.bool)
    if head == "all":
        table[..., 1] = True
    elif head != "none":
        table[:, head, :, 1] = True
    return table


FIXED = torch.randn(5, 24, 12, generator=torch.Generator().manual_seed(21), dtype=torch.float64)


def seeing(head, n_heads=3):
    return dict(x=FIXED, attn_mask=head_alone(head, n_heads, 5, 24, 24))


def keys_seen(*keys):
    table = torch.zeros(24, 24, dtype=torch.bool)
    table[:, list(keys)] = True
    return dict(x=FIXED, attn_mask=table)


def dropout_cases(p, second=0.4):
    """The two cases about train mode, for the visible and the hidden ones."""
    return (
        case(
            f"training, one key seen, p = {p}",
            seeing("all"),
            then=(seeing("all"), *(seeing(head) for head in range(3)), seeing("none")),
            init=THREE | dict(dropout=p),
            kind="chance",
            judge=rules.whole_heads(p, 3),
            grad=False,
        ),
        case(
            f"training, two keys seen, p = {second}",
            keys_seen(0),
            then=(keys_seen(1), keys_seen(0, 1), keys_seen(0, 1), keys_seen()),
            init=ONE | dict(dropout=second),
            kind="chance",
            judge=rules.single_weights(second),
        ),
    )


register(
    expected=oracle.MultiHeadAttention,
    phase=PHASE,
    section="3.4",
    hint="project, split, attend, merge, project: the heads are an axis, sdpa does not mind.",
    cases=(
        case("three heads", X, init=THREE),
        case("four heads", X, init=FOUR),
        case("one head", X, init=ONE),
        case("memory as long as x", dict(x=(2, 5, 12), memory=(2, 5, 12)), init=FOUR),
        case("memory", PAIR, init=THREE),
        case("a mask", X | dict(attn_mask=mask(5, 5)), init=THREE),
        case("a mask for memory", PAIR | dict(attn_mask=mask(5, 7)), init=THREE),
        case("hidden keys per example", PAIR | dict(attn_mask=mask(2, 1, 1, 7)), init=THREE),
        case("a mask per head", PAIR | dict(attn_mask=mask(1, 3, 5, 7)), init=THREE),
        case("every axis of the mask differs", PAIR | dict(attn_mask=mask(2, 3, 5, 7)), init=THREE),
        case(
            "as many examples as heads",
            dict(x=(3, 5, 12), attn_mask=mask(3, 1, 5, 5)),
            init=THREE,
        ),
        case("batch, heads and tokens alike", dict(x=(4, 4, 12), attn_mask=mask(4, 1, 4, 4)), init=FOUR),
        case("bias=False", X, init=THREE | dict(bias=False)),
        case("bias=True and dropout, said aloud", X, init=THREE | dict(bias=True, dropout=0.7)),
        case("one token", dict(x=(3, 1, 12)), init=FOUR),
        case("one token reads seven", dict(x=(2, 1, 12), memory=(2, 7, 12)), init=THREE),
        case("more queries than keys", dict(x=(2, 6, 12), memory=(2, 2, 12)), init=THREE),
        case("other sizes", dict(x=(1, 4, 10)), init=dict(d_model=10, n_heads=5)),
        case("long, memory, short", X, then=(PAIR, dict(x=(1, 3, 12))), init=THREE),
        case(
            "masks, then none",
            PAIR | dict(attn_mask=mask(5, 7)),
            then=(PAIR | dict(attn_mask=mask(2, 1, 1, 7)), PAIR),
            init=FOUR,
        ),
        case("in train mode, p = 0", X, init=THREE, train=True),
        *dropout_cases(0.3),
        case(
            "one head of a row sees nothing",
            PAIR | dict(attn_mask=mask(2, 3, 5, 7, empty=[(0, 1, 2), (1, 0, 4)])),
            init=THREE,
            kind="edge",
        ),
        case("an example sees nothing", PAIR | dict(attn_mask=mask(2, 1, 1, 7, empty=[(1,)])), init=THREE, kind="edge"),
        case("its attribute n_heads", dict(method="n_heads"), init=FOUR, kind="edge", grad=False),
        refusal("five heads for twelve features", X, init=dict(d_model=12, n_heads=5)),
        refusal("more heads than features", X, init=dict(d_model=12, n_heads=24)),
    ),
    mistakes={
        "the scale uses d_model, heads are d_head wide": wrong(
            weigh=lambda self, q, k, m: oracle.attention_weights(q * self.n_heads**-0.5, k, m)
        ),
        "scores were not divided by √d_head": weighing(
            lambda q, k, m: oracle.attention_weights(q * q.shape[-1] ** 0.5, k, m)
        ),
        "w_o was not used": wrong(last=lambda self, merged: merged),
        "there is no layer of the name w_o": Spotted(rules.no_output_layer, _NoOutputLayer),
        "keep n_heads as an attribute: others ask the layer for it": Spotted(
            rules.lacks("n_heads"), _CountKeptElsewhere
        ),
        "concatenate, do not average": Replays(
            wrong(merge=lambda self, heads: averaged(heads)),
            wrong(last=lambda self, merged: self.w_o(merged / self.n_heads)),
            wrong(
                merge=lambda self, heads: heads.mean(1),
                last=lambda self, mean: F.linear(mean, self.w_o.weight[:, : mean.shape[-1]], self.w_o.bias),
            ),
        ),
        "tokens and heads were mixed: transpose before you merge": wrong(merge=lambda self, heads: regrouped(heads)),
        "tokens and heads were mixed: transpose after you cut the features": Replays(
            _Regrouped, type("BothWays", (_Regrouped,), {"merge": lambda self, heads: regrouped(heads)})
        ),
        "softmax ran over the heads": weighing(over(1)),
        "softmax ran over the queries": weighing(over(2)),
        "n_heads was ignored": wrong(split=lambda self, x: x[:, None]),
        "memory gives keys and values": Replays(
            _NoMemory,
            _AllFromMemory,
            wrong(project=lambda self, x, memory: (self.w_q(memory), self.w_k(x), self.w_v(x))),
            wrong(project=lambda self, x, memory: (self.w_q(x), self.w_k(memory), self.w_v(x))),
            wrong(project=lambda self, x, memory: (self.w_q(x), self.w_k(x), self.w_v(memory))),
        ),
        "queries and keys share a matrix": wrong(
            project=lambda self, x, memory: (self.w_q(x), self.w_q(memory), self.w_v(memory))
        ),
        "w_v was not used": Replays(
            wrong(project=lambda self, x, memory: (self.w_q(x), self.w_k(memory), self.w_k(memory))),
            wrong(project=lambda self, x, memory: (self.w_q(x), self.w_k(memory), memory)),
        ),
        "x is projected before it is cut: w_q, w_k, w_v": Replays(
            wrong(project=lambda self, x, memory: (x, memory, memory)),
            wrong(project=lambda self, x, memory: (x, memory, self.w_v(memory))),
            wrong(project=lambda self, x, memory: (x, self.w_k(memory), self.w_v(memory))),
            wrong(project=lambda self, x, memory: (self.w_q(x), memory, self.w_v(memory))),
        ),
        "the mask was ignored": weighing(lambda q, k, m: oracle.attention_weights(q, k)),
        "True means may attend": weighing(lambda q, k, m: oracle.attention_weights(q, k, None if m is None else ~m)),
        "a fully masked row must be zeros": weighing(filled(float("-inf"))),
        "a row with nothing to see became an average": weighing(filled(None)),
        "the bias is missing": Spotted(rules.no_bias, _NoBias),
        "the bias flag was ignored": Spotted(rules.bias_regardless, _AlwaysBias),
        "return the output only": Spotted(
            rules.several_values,
            type("WithWeights", (_Multi,), {"last": lambda self, merged: (self.w_o(merged), None)}),
        ),
        "dropout must be off in eval mode": Spotted(
            rules.dropped_in_eval, wrong(drop=lambda self, weights: F.dropout(weights, self.dropout, True))
        ),
        "no attention weight is ever dropped": Spotted(
            rules.never_drops, wrong(drop=lambda self, weights: weights), certain=True
        ),
        "dropout belongs on the weights, before they meet the values": Spotted(
            rules.drops_parts_of_heads,
            wrong(
                drop=lambda self, weights: weights,
                merge=lambda self, heads: oracle.merge_heads(F.dropout(heads, self.dropout, self.training)),
            ),
            certain=True,
        ),
        "dropout belongs on the weights, not on the output": Spotted(
            rules.drops_features,
            wrong(
                drop=lambda self, weights: weights,
                last=lambda self, merged: F.dropout(self.w_o(merged), self.dropout, self.training),
            ),
            certain=True,
        ),
    },
)
