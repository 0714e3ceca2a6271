"""FusedSelfAttention: the second broken listing, mended."""

import torch
import torch.nn.functional as F

from utils import oracle
from utils.checks.draw import mask
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase4 import PHASE
from utils.checks.phase4 import rules_mending as rules


class _Fused(oracle.FusedSelfAttention):
    """A wrong twin in its parts; as it stands it is the right one."""

    def forward(self, x, attn_mask=None):
        q, k, v = self.parts(self.w_qkv(x))
        seen = None if attn_mask is None else self.seen(attn_mask)
        return self.last(self.merge(self.drop(self.weigh(q, k, seen)) @ v))

    def parts(self, fused):
        return tuple(oracle.split_heads(part, self.n_heads) for part in fused.chunk(3, -1))

    def seen(self, attn_mask):
        return attn_mask[:, None]

    def weigh(self, q, k, seen):
        return oracle.attention_weights(q, k, seen)

    def drop(self, weights):
        return F.dropout(weights, self.dropout, self.training)

    def merge(self, heads):
        return oracle.merge_heads(heads)

    def last(self, merged):
        return self.w_o(merged)


def wrong(**methods):
    return type("WrongFusedSelfAttention", (_Fused,), methods)


def scores_of(q, k):
    return q @ k.mT / q.shape[-1] ** 0.5


class _NoHeadAxis(_Fused):
    """A mask of (batch, query, key) on scores of (batch, heads, query, key)."""

    def weigh(self, q, k, seen):
        scores = scores_of(q, k)
        if seen is None:
            return scores.softmax(-1)
        empty = ~seen.any(-1, keepdim=True)
        return scores.masked_fill(~(seen | empty), float("-inf")).softmax(-1) * ~empty

    def seen(self, attn_mask):
        return attn_mask


class _SameNumber(_NoHeadAxis):
    """The same, where there are as many sentences as heads; else it is right."""

    def seen(self, attn_mask):
        return attn_mask if len(attn_mask) == self.n_heads else attn_mask[:, None]


class _Square(_Fused):
    """n_heads · d_head is taken to be d_model."""

    def __init__(self, d_model, n_heads, d_head=None, dropout=0.0):
        super().__init__(d_model, n_heads, None, dropout)


class _Anything(_Fused):
    """What does not divide is cut off."""

    def __init__(self, d_model, n_heads, d_head=None, dropout=0.0):
        super().__init__(d_model, n_heads, d_head or max(1, d_model // n_heads), dropout)


def grouped(order):
    """A wrong twin that reads the features of w_qkv in another order: axes named as in "hcd" for head, part, width."""

    def parts(self, fused):
        sizes = dict(h=self.n_heads, c=3, d=fused.shape[-1] // self.n_heads // 3)
        cut = fused.unflatten(-1, [sizes[axis] for axis in order])
        where = [2 + order.index(axis) for axis in "chd"]
        return cut.permute(where[0], 0, where[1], 1, where[2]).unbind(0)

    return wrong(parts=parts)


def filled(fill, add):
    def weigh(self, q, k, seen):
        scores = scores_of(q, k)
        if seen is None:
            return scores.softmax(-1)
        if add:
            return (scores + torch.zeros(seen.shape).masked_fill(~seen, fill)).softmax(-1)
        return scores.masked_fill(~seen, torch.finfo(scores.dtype).min if fill is None else fill).softmax(-1)

    return wrong(weigh=weigh)


def scaled(factor):
    return wrong(weigh=lambda self, q, k, seen: oracle.attention_weights(q * factor(self, q), k, seen))


X = dict(x=(2, 7, 12))
THREE = dict(d_model=12, n_heads=3)
FIXED = torch.randn(8, 16, 6, generator=torch.Generator().manual_seed(31), dtype=torch.float64)


def keys_seen(*keys):
    table = torch.zeros(8, 16, 16, dtype=torch.bool)
    table[..., list(keys)] = True
    return dict(x=FIXED, attn_mask=table)


def dropout_case(p, name):
    calls = keys_seen(0), keys_seen(1), keys_seen(0, 1), keys_seen(0, 1), keys_seen()
    init = dict(d_model=6, n_heads=1, dropout=p)
    return case(name, calls[0], then=calls[1:], init=init, kind="chance", judge=rules.one_head(p))


register(
    expected=oracle.FusedSelfAttention,
    phase=PHASE,
    section="4.16",
    hint="sizes from n_heads · d_head; attn_mask[:, None]; a boolean mask and empty rows of zeros; dropout on weights.",
    cases=(
        case("three heads", X, init=THREE),
        case("a d_head of its own", X, init=THREE | dict(d_head=5)),
        case("d_head, though 4 does not divide 6", dict(x=(2, 3, 6)), init=dict(d_model=6, n_heads=4, d_head=2)),
        case("a mask for each sentence", X | dict(attn_mask=mask(2, 7, 7)), init=THREE),
        case("as many sentences as heads", dict(x=(3, 5, 12), attn_mask=mask(3, 5, 5)), init=THREE),
        case(
            "masks, then none, in training without dropout",
            dict(x=(1, 4, 12), attn_mask=mask(1, 4, 4)),
            then=(X, dict(x=(2, 2, 12), attn_mask=mask(2, 2, 2))),
            init=dict(d_model=12, n_heads=2, d_head=3),
            train=True,
        ),
        case("dropout 0.7 in eval", X, init=THREE | dict(dropout=0.7)),
        dropout_case(0.4, "training, p = 0.4"),
        case(
            "a row with nothing to see",
            X | dict(attn_mask=mask(2, 7, 7, empty=[(1, 2)])),
            init=THREE,
            kind="edge",
        ),
        case(
            "a sentence of padding, as many sentences as heads",
            dict(x=(3, 4, 12), attn_mask=mask(3, 4, 4, empty=[(1,)])),
            init=THREE,
            kind="edge",
        ),
        refusal("five heads for twelve features", X, init=dict(d_model=12, n_heads=5)),
    ),
    mistakes={
        "the mask needs an axis for heads: attn_mask[:, None]": Spotted(
            rules.mask_without_head_axis, _NoHeadAxis, also=(_SameNumber,)
        ),
        "n_heads · d_head need not be d_model": Spotted(rules.square, _Square),
        "without d_head, n_heads must divide d_model": Spotted(rules.no_refusal, _Anything),
        "a row with nothing to see must be zeros": Replays(
            filled(-1e9, add=True), filled(-1e9, add=False), filled(None, add=False), filled(float("-inf"), add=False)
        ),
        "a boolean mask cannot be added: True is 1": wrong(
            weigh=lambda self, q, k, seen: (scores_of(q, k) + (0 if seen is None else seen.to(q.dtype))).softmax(-1)
        ),
        "True means may attend": wrong(seen=lambda self, attn_mask: ~attn_mask[:, None]),
        "the mask hides keys, not queries": wrong(seen=lambda self, attn_mask: attn_mask.mT[:, None]),
        "the mask was ignored": wrong(seen=lambda self, attn_mask: None),
        "rows of w_qkv come as q, k, v, and in each head after head": Replays(
            *map(grouped, ("hcd", "dhc", "hdc", "cdh", "dch")),
        ),
        "rows of w_qkv come as q, k, v": wrong(weigh=lambda self, q, k, seen: oracle.attention_weights(k, q, seen)),
        "the scale is √d_head": Replays(
            scaled(lambda self, q: q.shape[-1] ** 0.5),
            scaled(lambda self, q: q.shape[-1] ** -0.5),
            scaled(lambda self, q: self.n_heads**-0.5),
            scaled(lambda self, q: (q.shape[-1] / self.w_o.out_features) ** 0.5),
        ),
        "tokens and heads were mixed: bring heads beside their width, then merge": wrong(
            merge=lambda self, heads: heads.reshape(len(heads), heads.shape[2], -1)
        ),
        "w_o was not used": wrong(last=lambda self, merged: merged),
        "softmax runs over keys": wrong(
            weigh=lambda self, q, k, seen: oracle.masked_softmax(scores_of(q, k), seen, dim=-2)
        ),
        "dropout must be off in eval mode": Spotted(
            rules.dropped_in_eval, wrong(drop=lambda self, weights: F.dropout(weights, self.dropout, True))
        ),
        "dropout does nothing": Spotted(rules.never_drops, wrong(drop=lambda self, weights: weights)),
        "dropout belongs on the weights": Spotted(
            rules.drops_features,
            wrong(
                drop=lambda self, weights: weights,
                last=lambda self, merged: F.dropout(self.w_o(merged), self.dropout, self.training),
            ),
        ),
    },
)
