"""masked_softmax: hidden keys get exactly nothing, however large their scores."""

import torch

from utils import oracle
from utils.checks.draw import given, mask, normal
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase2 import PHASE, rules


def columns(*shape, empty=()):
    """A mask with a visible and a hidden place along the last axis but one."""
    flipped = mask(*shape[:-2], shape[-1], shape[-2], empty=empty)
    return given(lambda generator, others: flipped.draw(generator, others).mT.contiguous())


def higher_where_hidden(*shape):
    """Scores that are 40 higher under the mask (drawn before them as `attn_mask`)."""

    def draw(generator, others):
        return normal(*shape).draw(generator, others) + 40.0 * ~others["attn_mask"]

    return given(draw)


def with_a_row_of_zeros(*shape):
    """Normal numbers, but for the last row, which is 0: a visible score of exactly 0 is a score like any other."""

    def draw(generator, others):
        table = normal(*shape).draw(generator, others)
        table[..., -1, :] = 0.0
        return table

    return given(draw)


def as_numbers(dtype, *shape):
    """A mask of zeros and ones that is not bool."""
    return given(lambda generator, others: mask(*shape).draw(generator, others).to(dtype))


def filled(value):
    """A wrong twin: hidden scores become `value` before the softmax."""

    def wrong(scores, attn_mask=None, dim=-1):
        if attn_mask is None:
            return scores.softmax(dim)
        fill = torch.finfo(scores.dtype).min if value == "min" else value
        hidden = ~oracle.combine_masks(attn_mask, torch.ones(scores.shape, dtype=torch.bool))
        return scores.masked_fill(hidden, fill).softmax(dim)

    return wrong


def added(scores, attn_mask=None, dim=-1):
    if attn_mask is None:
        return scores.softmax(dim)
    bias = torch.zeros(attn_mask.shape, dtype=scores.dtype).masked_fill(~attn_mask, float("-inf"))
    weights = (scores + bias).softmax(dim)
    return torch.where(weights.isnan(), 0.0, weights)


def without_maximum(guarded):
    """exp of the scores as they are; a sum of 0 or infinity gives NaN, or 0 where the division is guarded."""

    def wrong(scores, attn_mask=None, dim=-1):
        exps = scores.exp() if attn_mask is None else scores.exp() * attn_mask
        total = exps.sum(dim, keepdim=True)
        return exps / total.masked_fill(total == 0, 1.0) if guarded else exps / total

    return wrong


def overwriting(scores, attn_mask=None, dim=-1):
    weights = oracle.masked_softmax(scores.clone(), attn_mask, dim)
    if attn_mask is not None:
        scores.masked_fill_(~attn_mask, float("-inf"))
    return weights


register(
    expected=oracle.masked_softmax,
    phase=PHASE,
    section="2.2",
    hint="hide scores before the exponential, and decide what a row with nothing to see should be.",
    properties=(rules.hidden_is_nothing, rules.shares_are_whole),
    cases=(
        case("some keys hidden", dict(scores=(3, 5), attn_mask=mask(3, 5))),
        case("no mask", dict(scores=(2, 3, 5, 7))),
        case("one row", dict(scores=(7,), attn_mask=mask(7))),
        case("a mask per batch row", dict(scores=(2, 3, 5, 7), attn_mask=mask(2, 1, 1, 7))),
        case("a mask per head", dict(scores=(2, 3, 5, 7), attn_mask=mask(1, 3, 5, 7))),
        case("one mask for all", dict(scores=(2, 3, 5, 7), attn_mask=mask(5, 7))),
        case("a mask per head, no batch axis", dict(scores=(2, 3, 5, 7), attn_mask=mask(3, 5, 7))),
        case("every axis of the mask differs", dict(scores=(2, 3, 5, 7), attn_mask=mask(2, 3, 5, 7))),
        case("batch as long as the sentence", dict(scores=(4, 4, 4), attn_mask=mask(4, 1, 4))),
        case("batch as long as the sentence, one mask", dict(scores=(4, 3, 4, 5), attn_mask=mask(4, 5))),
        case("dim=-2", dict(scores=(2, 3, 5, 7), attn_mask=columns(2, 3, 5, 7), dim=-2)),
        case("dim=1, one mask for all", dict(scores=(3, 5, 7), attn_mask=columns(5, 7), dim=1)),
        case("dim=0", dict(scores=(5, 3), attn_mask=columns(5, 3), dim=0)),
        case("dim=1, no mask", dict(scores=(2, 5, 3), dim=1)),
        case("visible scores of exactly 0", dict(scores=with_a_row_of_zeros(2, 3, 5), attn_mask=mask(2, 3, 5))),
        case("hidden scores 40 higher", dict(attn_mask=mask(2, 5, 7), scores=higher_where_hidden(2, 5, 7))),
        case("all scores near -20000", dict(scores=normal(3, 5, shift=-2e4), attn_mask=mask(3, 5))),
        case("all scores near 20000", dict(scores=normal(3, 5, shift=2e4), attn_mask=mask(3, 5))),
        case("a row with nothing to see", dict(scores=(2, 3, 5), attn_mask=mask(2, 3, 5, empty=[(0, 1)])), kind="edge"),
        case("nothing to see at all", dict(scores=(3, 5), attn_mask=mask(3, 5, empty=[()])), kind="edge"),
        case(
            "empty rows and one mask for all heads",
            dict(scores=(2, 3, 5, 7), attn_mask=mask(2, 1, 5, 7, empty=[(0, 0, 2), (1, 0, 0)])),
            kind="edge",
        ),
        case(
            "empty column, dim=-2",
            dict(scores=(4, 5, 3), attn_mask=columns(4, 5, 3, empty=[(1, 2)]), dim=-2),
            kind="edge",
        ),
        case(
            "empty column, dim=1, one mask for all",
            dict(scores=(3, 5, 5), attn_mask=columns(5, 5, empty=[(1,)]), dim=1),
            kind="edge",
        ),
        case("whole rows hidden by a mask of width 1", dict(scores=(2, 5, 7), attn_mask=mask(2, 5, 1)), kind="edge"),
        case("one key, seen or hidden", dict(scores=(6, 1), attn_mask=mask(6, 1)), kind="edge"),
        case("float16", dict(scores=(2, 3, 5), attn_mask=mask(3, 5)), dtype="float16", kind="edge"),
        case(
            "an empty row in float16",
            dict(scores=(4, 5), attn_mask=mask(4, 5, empty=[(2,)])),
            dtype="float16",
            kind="edge",
        ),
        refusal("a mask of floats", dict(scores=(3, 5), attn_mask=as_numbers(torch.float64, 3, 5))),
        refusal("a mask of integers", dict(scores=(3, 5), attn_mask=as_numbers(torch.int64, 3, 5))),
        refusal("a mask of bytes", dict(scores=(3, 5), attn_mask=as_numbers(torch.uint8, 3, 5))),
    ),
    mistakes={
        "True means may attend": lambda scores, attn_mask=None, dim=-1: oracle.masked_softmax(
            scores, None if attn_mask is None else ~attn_mask, dim
        ),
        "weights no longer sum to 1": lambda scores, attn_mask=None, dim=-1: (
            scores.softmax(dim) * (1 if attn_mask is None else attn_mask)
        ),
        "dim was ignored": lambda scores, attn_mask=None, dim=-1: oracle.masked_softmax(scores, attn_mask),
        "hidden keys still get weight": Spotted(rules.still_weighted, filled(-10.0)),
        "overflow: subtract the maximum first": Replays(without_maximum(False), without_maximum(True)),
        "a fully masked row must be zeros": filled(float("-inf")),
        "a row with nothing to see became an average": filled("min"),
        "zeros forward, but NaN backward": added,
        "scores were overwritten": overwriting,
    },
)
