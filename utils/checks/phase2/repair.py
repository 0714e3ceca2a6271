"""MaskedSelfAttention: the broken listing, mended."""

import torch
import torch.nn.functional as F

from utils import oracle
from utils.checks.draw import given
from utils.checks.exercise import Spotted, case, refusal, register
from utils.checks.phase2 import PHASE, rules


def padded(*rows):
    """A (batch, seq_len) pad mask from strings: "..ab" is two places of padding, then two tokens."""
    return given(lambda generator, others: torch.tensor([[mark != "." for mark in row] for row in rows]))


class _Repair(oracle.MaskedSelfAttention):
    """A wrong twin in its parts; as it stands it is the right one."""

    def forward(self, x, pad_mask=None):
        if x.shape[-2] > self.max_len:
            raise ValueError("longer than max_len")
        q, k, v = self.c_attn(x).chunk(3, -1)
        weights = self.weights(q, k, self.visible(x, pad_mask))
        return self.last(self.drop(weights) @ v)

    def visible(self, x, pad_mask):
        causal = oracle.causal_mask(x.shape[-2])
        return causal if pad_mask is None else causal & pad_mask[:, None, :]

    def weights(self, q, k, visible):
        return oracle.attention_weights(q, k, visible)

    def drop(self, weights):
        return F.dropout(weights, self.dropout, self.training)

    def last(self, out):
        return out


def wrong(**methods):
    return type("WrongMaskedSelfAttention", (_Repair,), methods)


class _HeadAxis(_Repair):
    """The mask of a multi-head layer: scores (batch, q, k) meet (batch, 1, q, k), and everything broadcasts."""

    def visible(self, x, pad_mask):
        causal = oracle.causal_mask(x.shape[-2])
        return causal if pad_mask is None else causal & pad_mask[:, None, None, :]

    def weights(self, q, k, visible):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        return oracle.masked_softmax(scores + torch.zeros(visible.shape), visible)


class _WholeMask(_Repair):
    """The mask as large as max_len, whatever the length of the sentence."""

    def visible(self, x, pad_mask):
        causal = oracle.causal_mask(self.max_len)
        return causal if pad_mask is None else causal & pad_mask[:, None, :]

    def weights(self, q, k, visible):
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~visible, float("-inf"))
        return scores.softmax(-1).nan_to_num(0.0)


FIXED = torch.randn(8, 40, 6, generator=torch.Generator().manual_seed(11), dtype=torch.float64)


def only(*keys):
    """The arguments of a call on FIXED in which these keys alone are real."""
    real = torch.zeros(8, 40, dtype=torch.bool)
    real[:, list(keys)] = True
    return dict(x=FIXED, pad_mask=real)


ONE_KEY = dict(x=(8, 64, 6), pad_mask=given(lambda g, o: (torch.arange(64) == 0).expand(8, 64).clone()))
SIZES = dict(d_model=6, max_len=9)
X = dict(x=(2, 5, 6))

register(
    expected=oracle.MaskedSelfAttention,
    phase=PHASE,
    section="2.10",
    hint="go through the listing line by line: names, scale, mask to the length, padding, dropout on the weights.",
    cases=(
        case("shorter than max_len", X, init=SIZES),
        case("as long as max_len", dict(x=(2, 9, 6)), init=SIZES),
        case("with bias", X, init=SIZES | dict(bias=True)),
        case("bias=False and dropout said aloud", X, init=SIZES | dict(bias=False, dropout=0.7)),
        case("padding on the right", X | dict(pad_mask=padded("abcde", "abc..")), init=SIZES),
        case(
            "padding as long as the batch",
            dict(x=(4, 4, 6), pad_mask=padded("abcd", "abc.", "ab..", "a...")),
            init=SIZES,
        ),
        case("short, long, short", dict(x=(2, 3, 6)), then=(dict(x=(1, 8, 6)), dict(x=(2, 4, 6))), init=SIZES),
        case("one token", dict(x=(2, 1, 6)), init=SIZES | dict(bias=True)),
        case("other sizes", dict(x=(3, 4, 5)), init=dict(d_model=5, max_len=4, bias=True, dropout=0.1)),
        case(
            "training, p = 0.2",
            ONE_KEY,
            init=dict(d_model=6, max_len=64),
            kind="chance",
            judge=rules.keeps_whole_rows(0.2),
            grad=False,
        ),
        case(
            "training, two keys seen",
            only(0),
            then=(only(1), only(0, 1), only(0, 1)),
            init=dict(d_model=6, max_len=40, dropout=0.5),
            kind="chance",
            judge=rules.single_weights(0.5),
        ),
        case(
            "training, p = 0.6",
            ONE_KEY,
            init=dict(d_model=6, max_len=70, bias=True, dropout=0.6),
            kind="chance",
            judge=rules.keeps_whole_rows(0.6),
            grad=False,
        ),
        case(
            "padding on the left: an empty first row",
            X | dict(pad_mask=padded("..abc", "abcde")),
            init=SIZES,
            kind="edge",
        ),
        case("nothing but padding", X | dict(pad_mask=padded(".....", "abcde")), init=SIZES, kind="edge"),
        refusal("one token too many", dict(x=(2, 10, 6)), init=SIZES),
        refusal("far too many tokens", dict(x=(1, 25, 6)), init=SIZES),
    ),
    mistakes={
        "the scale was added, and softmax ignores a constant": wrong(
            weights=lambda self, q, k, visible: oracle.attention_weights(q * q.shape[-1] ** 0.5, k, visible)
        ),
        "divided by d instead of √d": wrong(
            weights=lambda self, q, k, visible: oracle.attention_weights(q / q.shape[-1] ** 0.5, k, visible)
        ),
        "mask must be cut to the length": Spotted(rules.mask_too_large, _WholeMask),
        "padding is ignored": wrong(visible=lambda self, x, pad_mask: oracle.causal_mask(x.shape[-2])),
        "no heads here: pad_mask needs one axis more, (batch, 1, seq_len)": Spotted(
            rules.four_axes,
            _HeadAxis,
        ),
        "not causal: later tokens are seen": wrong(
            visible=lambda self, x, pad_mask: (
                None if pad_mask is None else pad_mask[:, None, :].expand(-1, x.shape[-2], -1)
            )
        ),
        "True means real token": wrong(
            visible=lambda self, x, pad_mask: _Repair.visible(self, x, None if pad_mask is None else ~pad_mask)
        ),
        "dropout does nothing": Spotted(rules.nothing_dropped, wrong(drop=lambda self, weights: weights)),
        "dropout belongs on the weights": Spotted(
            rules.single_values_dropped,
            wrong(
                drop=lambda self, weights: weights, last=lambda self, out: F.dropout(out, self.dropout, self.training)
            ),
        ),
        "dropout must be off in eval mode": Spotted(
            rules.dropped_in_eval, wrong(drop=lambda self, weights: F.dropout(weights, self.dropout, True))
        ),
        "rows come as q, k, v": wrong(weights=lambda self, q, k, visible: oracle.attention_weights(k, q, visible)),
        "a fully masked row must be zeros": wrong(
            weights=lambda self, q, k, visible: (
                (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~visible, float("-inf")).softmax(-1)
            )
        ),
    },
)
