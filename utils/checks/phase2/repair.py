"""MaskedSelfAttention: the broken listing, mended."""

import math

import torch
import torch.nn.functional as F

from utils import oracle
from utils.checks.draw import given
from utils.checks.exercise import Spotted, case, refusal, register
from utils.checks.phase2 import PHASE


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


def mask_too_large(got, request):
    raised = got["calls"][0]["raised"] if got["calls"] else None
    return bool(raised) and raised["type"] in ("RuntimeError", "IndexError") and "size" in raised["message"]


def keeps_whole_rows(p):
    """Judge train mode where each query sees one key: its output is v/(1-p), or nothing, by chance."""

    def judge(got, settled):
        out, full = got["calls"][0]["value"], settled["calls"][0]["value"]
        if not isinstance(out, torch.Tensor) or out.shape != full.shape:
            return f"out of shape {tuple(full.shape)}", "something else"
        dropped = (out == 0).all(-1)
        kept = torch.isclose(out, full / (1 - p), rtol=1e-7, atol=1e-9).all(-1)
        if not bool((dropped | kept).all()):
            return (
                f"in training each weight is kept and divided by {1 - p:g}, or dropped: here v/{1 - p:g} or 0",
                "other rows",
            )
        share, n = dropped.double().mean().item(), dropped.numel()
        if abs(share - p) > 6 * math.sqrt(p * (1 - p) / n):
            return f"about {p:.0%} of the weights dropped", f"{share:.1%}"
        if bool((dropped == dropped[:1]).all()):
            return "each example drops its own weights", "one pattern for the whole batch"
        return None

    return judge


def _same_pattern(first, second):
    return torch.equal(first == 0, second == 0)


def _reaches_queries_and_keys(grads, d_model):
    weight = grads.get("c_attn.weight")
    if weight is None:  # another layout
        return grads.get("every parameter", False)
    return bool((weight[:d_model] != 0).any()) and bool((weight[d_model : 2 * d_model] != 0).any())


def single_weights(p):
    """Judge four calls in train mode on one x: key 0 alone is seen, key 1 alone, both, both again.

    Where both are seen, a row must be one of four: nothing, one of the two parts, or both, each divided by 1 - p.
    """

    def judge(got, settled):
        outs = [call["value"] for call in got["calls"]]
        first, second, both, _ = (call["value"][:, 1:] for call in settled["calls"])  # row 0 does not see key 1
        if any(not isinstance(out, torch.Tensor) or out.shape != settled["calls"][0]["value"].shape for out in outs):
            return "a tensor of the same shape as in eval mode", "something else"
        # both = w·first + (1 - w)·second, row by row
        share = ((both - second) * (first - second)).sum(-1) / (first - second).square().sum(-1)
        parts = (torch.zeros_like(both), share[..., None] * first, (1 - share)[..., None] * second, both)
        matches = [torch.isclose(outs[2][:, 1:], part / (1 - p), rtol=1e-6, atol=1e-9).all(-1) for part in parts]
        if not bool(torch.stack(matches).any(0).all()):
            return "each weight kept and scaled, or dropped, by itself", "rows that are none of the four"
        if not all(bool(match.any()) for match in matches):
            return "weights that are dropped one by one", "rows that are kept or dropped as a whole"
        if not _reaches_queries_and_keys(got["calls"][2]["weight_grads"] or {}, outs[2].shape[-1]):
            return "gradients for queries and keys in training, too", "none"
        if _same_pattern(outs[2], outs[3]):
            return "another pattern in the next call", "the same one"
        return None

    return judge


def nothing_dropped(got, request):
    """In training, with p > 0, is every row simply there?"""
    out = got["calls"][0]["value"] if request.train and got["calls"] else None
    return isinstance(out, torch.Tensor) and not bool((out == 0).any())


def single_values_dropped(got, request):
    out = got["calls"][0]["value"] if request.train and got["calls"] else None
    return isinstance(out, torch.Tensor) and bool(((out == 0).any(-1) & ~(out == 0).all(-1)).any())


def dropped_in_eval(got, request):
    if request.train or not got["calls"]:
        return False
    return "torch's random state" in got["disturbed"]


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
            judge=keeps_whole_rows(0.2),
            grad=False,
        ),
        case(
            "training, two keys seen",
            only(0),
            then=(only(1), only(0, 1), only(0, 1)),
            init=dict(d_model=6, max_len=40, dropout=0.5),
            kind="chance",
            judge=single_weights(0.5),
        ),
        case(
            "training, p = 0.6",
            ONE_KEY,
            init=dict(d_model=6, max_len=70, bias=True, dropout=0.6),
            kind="chance",
            judge=keeps_whole_rows(0.6),
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
        "mask must be cut to the length": Spotted(mask_too_large, _WholeMask),
        "padding is ignored": wrong(visible=lambda self, x, pad_mask: oracle.causal_mask(x.shape[-2])),
        "no heads here: pad_mask needs one axis more, (batch, 1, seq_len)": Spotted(
            lambda got, request: got["calls"][0]["value"].dim() == 4,
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
        "dropout does nothing": Spotted(nothing_dropped, wrong(drop=lambda self, weights: weights)),
        "dropout belongs on the weights": Spotted(
            single_values_dropped,
            wrong(
                drop=lambda self, weights: weights, last=lambda self, out: F.dropout(out, self.dropout, self.training)
            ),
        ),
        "dropout must be off in eval mode": Spotted(
            dropped_in_eval, wrong(drop=lambda self, weights: F.dropout(weights, self.dropout, True))
        ),
        "rows come as q, k, v": wrong(weights=lambda self, q, k, visible: oracle.attention_weights(k, q, visible)),
        "a fully masked row must be zeros": wrong(
            weights=lambda self, q, k, visible: (
                (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~visible, float("-inf")).softmax(-1)
            )
        ),
    },
)
