"""causal_mask, padding_mask, combine_masks: who may look at whom."""

import functools
import operator

import torch

from utils import oracle
from utils.checks.draw import mask
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase2 import PHASE, rules
from utils.checks.phase2.rules import given_masks
from utils.checks.phase2.softmax import as_numbers


def triangle(q_len, kv_len, offset):
    return torch.ones(q_len, kv_len, dtype=torch.bool).tril(offset)


register(
    expected=oracle.causal_mask,
    phase=PHASE,
    bans=(),
    section="2.5",
    hint="query i is level with key i + kv_len - q_len; it sees that key and all before it.",
    grad=False,
    cases=(
        case("five tokens", dict(q_len=5)),
        case("three queries, seven keys", dict(q_len=3, kv_len=7)),
        case("one query, six keys", dict(q_len=1, kv_len=6)),
        case("one token", dict(q_len=1)),
        case("two queries, three keys", dict(q_len=2, kv_len=3)),
        case("as many keys as queries, said aloud", dict(q_len=4, kv_len=4)),
        case("more queries than keys", dict(q_len=7, kv_len=3)),
        case("four queries, one key", dict(q_len=4, kv_len=1)),
    ),
    mistakes={
        "this hides the past": Replays(
            lambda q_len, kv_len=None: ~triangle(q_len, kv_len or q_len, (kv_len or q_len) - q_len - 1),
            lambda q_len, kv_len=None: ~oracle.causal_mask(q_len, kv_len),
        ),
        "a token may see itself": lambda q_len, kv_len=None: triangle(
            q_len, kv_len or q_len, (kv_len or q_len) - q_len - 1
        ),
        "align the last query with the last key": lambda q_len, kv_len=None: triangle(q_len, kv_len or q_len, 0),
        "masks are bool": Spotted(
            rules.not_bool, lambda q_len, kv_len=None: oracle.causal_mask(q_len, kv_len).double()
        ),
        "queries are rows, keys are columns": lambda q_len, kv_len=None: oracle.causal_mask(q_len, kv_len).T,
        "kv_len was ignored": lambda q_len, kv_len=None: oracle.causal_mask(q_len),
    },
)

register(
    expected=oracle.padding_mask,
    phase=PHASE,
    bans=(),
    section="2.5",
    hint="(batch, kv_len) becomes (batch, 1, 1, kv_len): the same for every head and every query.",
    grad=False,
    cases=(
        case("three sentences", dict(pad_mask=mask(3, 5))),
        case("batch as long as the sentence", dict(pad_mask=mask(4, 4))),
        case("one sentence", dict(pad_mask=mask(1, 6))),
        case("one token each", dict(pad_mask=mask(3, 1))),
        case("a sentence of padding", dict(pad_mask=mask(2, 5, empty=[(1,)])), kind="edge"),
        refusal("one axis", dict(pad_mask=mask(5))),
        refusal("three axes", dict(pad_mask=mask(2, 3, 5))),
        refusal("four axes", dict(pad_mask=mask(2, 1, 1, 5))),
        refusal("integers", dict(pad_mask=as_numbers(torch.int64, 3, 5))),
        refusal("floats", dict(pad_mask=as_numbers(torch.float64, 3, 5))),
        refusal("bytes", dict(pad_mask=as_numbers(torch.uint8, 3, 5))),
    ),
    mistakes={
        "add the head and query axes": lambda pad_mask: pad_mask,
        "True means may attend": lambda pad_mask: ~oracle.padding_mask(pad_mask),
        "padding hides keys": lambda pad_mask: pad_mask[:, None, :, None],
        "one axis is missing: head and query": lambda pad_mask: pad_mask[:, None, :],
        "masks are bool": Spotted(
            rules.not_bool,
            lambda pad_mask: torch.zeros(pad_mask[:, None, None].shape).masked_fill(
                ~pad_mask[:, None, None], float("-inf")
            ),
        ),
    },
)


def any_of(*masks):
    kept = given_masks(masks)
    return ~oracle.combine_masks(*(~one for one in kept)) if kept else None


def multiplied(*masks):
    kept = given_masks(masks)
    return functools.reduce(operator.mul, (one.long() for one in kept)) if kept else None


def summed(*masks):
    kept = given_masks(masks)
    return sum(kept[1:], kept[0].long()) if kept else None


def everything(*masks):
    kept = given_masks(masks)
    return oracle.combine_masks(*kept) if kept else torch.ones((), dtype=torch.bool)


def nothing_if_any_none(*masks):
    return None if any(one is None for one in masks) else oracle.combine_masks(*masks)


def stops_at_none(*masks):
    return oracle.combine_masks(*masks[: masks.index(None)]) if None in masks else oracle.combine_masks(*masks)


def first_overwritten(*masks):
    result = oracle.combine_masks(*masks)
    kept = given_masks(masks)
    if len(kept) > 1 and result.shape == kept[0].shape:
        kept[0].copy_(result)
    return result


A, B, C = mask(2, 3, 5, 7), mask(5, 7), mask(2, 1, 1, 7)
D = mask(3, 1, 7)

register(
    expected=oracle.combine_masks,
    phase=PHASE,
    bans=(),
    section="2.5",
    hint="a key is visible where every mask agrees; None says nothing.",
    grad=False,
    cases=(
        case("two masks", dict(masks=[mask(5, 7), mask(5, 7)])),
        case("causal and padding shapes", dict(masks=[B, C])),
        case("three masks", dict(masks=[A, B, C])),
        case("small before large", dict(masks=[C, D, A])),
        case("four masks", dict(masks=[B, D, C, A])),
        case("one mask", dict(masks=[B])),
        case("a larger mask that hides nothing", dict(masks=[B, mask(2, 1, 5, 7, full=True)])),
        case("None first", dict(masks=[None, B, C])),
        case("None between", dict(masks=[B, None, C])),
        case("None last", dict(masks=[B, C, None])),
        case("one mask and None", dict(masks=[None, C])),
        case("no masks", {}, kind="edge"),
        case("only None", dict(masks=[None, None]), kind="edge"),
        refusal("a mask of floats", dict(masks=[B, as_numbers(torch.float64, 5, 7)])),
        refusal("a mask of integers first", dict(masks=[as_numbers(torch.int64, 5, 7), B])),
        refusal("one mask, of floats", dict(masks=[as_numbers(torch.float32, 5, 7)])),
        refusal("integers after None", dict(masks=[None, as_numbers(torch.uint8, 5, 7)])),
    ),
    mistakes={
        "every mask must agree": any_of,
        "combine with and, not +": Spotted(rules.is_a_sum, summed),
        "masks are bool": Spotted(rules.not_bool, multiplied),
        "nothing left gives None": everything,
        "None means no restriction: go on with the others": Replays(nothing_if_any_none, stops_at_none),
        "a mask you were given was overwritten": first_overwritten,
        "only the first two masks were used": lambda *masks: oracle.combine_masks(*masks[:2]),
    },
)
