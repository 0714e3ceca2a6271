"""attention_weights and sdpa: the dot product, its scale, and the mix of values."""

import torch

from utils import oracle
from utils.checks.draw import given, mask, normal
from utils.checks.exercise import Spotted, case, refusal, register
from utils.checks.phase2 import PHASE, rules
from utils.checks.phase2.softmax import as_numbers, with_a_row_of_zeros

LOUD = 3  # the key that scores +40 with every query, and is hidden


def loud_queries(*shape):
    """Queries whose first entry is near 1, so that one key can be made to score +40 with all of them."""

    def draw(generator, others):
        q = normal(*shape).draw(generator, others)
        q[..., 0] = 1 + 0.1 * q[..., 0]
        return q

    return given(draw)


def loud_key(*shape):
    def draw(generator, others):
        k = normal(*shape).draw(generator, others)
        k[..., LOUD, :] = 0.0
        k[..., LOUD, 0] = 40.0 * shape[-1] ** 0.5
        return k

    return given(draw)


def without_loud(*shape):
    """A mask that hides the loud key and at random some others."""

    def draw(generator, others):
        table = mask(*shape).draw(generator, others)
        table[..., 0] = True
        table[..., LOUD] = False
        return table

    return given(draw)


def softly_masked(q, k, attn_mask):
    """Weights in which hidden keys were multiplied away after the softmax."""
    weights = oracle.attention_weights(q, k)
    return weights if attn_mask is None else weights * attn_mask


def raw_weights(q, k, attn_mask, fill):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return (scores if attn_mask is None else scores.masked_fill(~attn_mask, fill)).softmax(-1)


def times_mask(q, k, attn_mask):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return (scores if attn_mask is None else scores * attn_mask).softmax(-1)


def plus_mask(q, k, attn_mask):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return (scores if attn_mask is None else scores + attn_mask).softmax(-1)


def added_bias(q, k, attn_mask):
    """Weights with -inf added to hidden scores, and NaN replaced afterwards: the gradient of an empty row is NaN."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if attn_mask is None:
        return scores.softmax(-1)
    bias = torch.zeros(attn_mask.shape, dtype=q.dtype).masked_fill(~attn_mask, float("-inf"))
    weights = (scores + bias).softmax(-1)
    return torch.where(weights.isnan(), 0.0, weights)


def over_queries(q, k, attn_mask):
    """Softmax over the axis of the queries."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return oracle.masked_softmax(scores, attn_mask, -2)


def scaled_by(factor):
    """Attention whose scores are multiplied by factor(q, k, v), v being None for the weights alone."""

    def weights(q, k, attn_mask=None):
        return oracle.attention_weights(q * factor(q, k, None), k, attn_mask)

    def mixed(q, k, v, attn_mask=None):
        return oracle.sdpa(q * factor(q, k, v), k, v, attn_mask)

    return weights, mixed


def mixing(weights):
    """sdpa made of faulty weights(q, k, attn_mask)."""
    return lambda q, k, v, attn_mask=None: weights(q, k, attn_mask) @ v


UNSCALED = scaled_by(lambda q, k, v: q.shape[-1] ** 0.5)
BY_WIDTH = scaled_by(lambda q, k, v: q.shape[-1] ** -0.5)
BY_KEYS = scaled_by(lambda q, k, v: (q.shape[-1] / k.shape[-2]) ** 0.5)
BY_VALUES = scaled_by(lambda q, k, v: (q.shape[-1] / (q if v is None else v).shape[-1]) ** 0.5)

HEADS = dict(q=(2, 3, 5, 4), k=(2, 3, 7, 4))

register(
    expected=oracle.attention_weights,
    phase=PHASE,
    section="2.3",
    hint="scores are q times k transposed, divided by the root of d_head; the softmax runs over the keys.",
    properties=(rules.hidden_is_nothing, rules.shares_are_whole),
    cases=(
        case("one sentence", dict(q=(5, 4), k=(7, 4))),
        case("batch and heads", HEADS),
        case("one leading axis and a mask", dict(q=(2, 5, 4), k=(2, 7, 4), attn_mask=mask(5, 7))),
        case("every axis of the mask differs", HEADS | dict(attn_mask=mask(2, 3, 5, 7))),
        case("a mask per batch row", HEADS | dict(attn_mask=mask(2, 1, 1, 7))),
        case("a mask per batch row and query", HEADS | dict(attn_mask=mask(2, 1, 5, 7))),
        case("a mask per head", HEADS | dict(attn_mask=mask(3, 1, 7))),
        case("a mask per head and query", HEADS | dict(attn_mask=mask(1, 3, 5, 7))),
        case(
            "all scores near -60",
            dict(q=normal(5, 4, std=0.05, shift=5.5), k=normal(7, 4, std=0.05, shift=-5.5), attn_mask=mask(5, 7)),
        ),
        case("a query of zeros", dict(q=with_a_row_of_zeros(5, 4), k=(7, 4), attn_mask=mask(5, 7))),
        case("d_head 1", dict(q=(2, 3, 5, 1), k=(2, 3, 7, 1))),
        case("more queries than keys", dict(q=(7, 4), k=(3, 4), attn_mask=mask(7, 3))),
        case("one query, one key", dict(q=(2, 1, 4), k=(2, 1, 4))),
        case("batch as long as the sentence", dict(q=(4, 4, 3), k=(4, 4, 3), attn_mask=mask(4, 1, 4))),
        case("batch as long as the queries, one mask", dict(q=(5, 3, 5, 4), k=(5, 3, 7, 4), attn_mask=mask(5, 7))),
        case(
            "a hidden key scores +40", dict(q=loud_queries(2, 5, 4), k=loud_key(2, 7, 4), attn_mask=without_loud(5, 7))
        ),
        case(
            "a row with nothing to see",
            HEADS | dict(attn_mask=mask(2, 3, 5, 7, empty=[(0, 0, 2), (1, 2, 4)])),
            kind="edge",
        ),
        case("whole rows hidden by a mask of width 1", HEADS | dict(attn_mask=mask(2, 1, 5, 1)), kind="edge"),
        case("one key, seen or hidden", dict(q=(6, 4), k=(1, 4), attn_mask=mask(6, 1)), kind="edge"),
        refusal("q and k of different widths", dict(q=(5, 4), k=(7, 6))),
        refusal("k of width 1", dict(q=(5, 4), k=(7, 1))),
        refusal("a mask of floats", dict(q=(5, 4), k=(7, 4), attn_mask=as_numbers(torch.float64, 5, 7))),
        refusal("a mask of integers", dict(q=(5, 4), k=(7, 4), attn_mask=as_numbers(torch.int64, 5, 7))),
    ),
    mistakes={
        "scores were not divided by √d_head": UNSCALED[0],
        "divided by d_head, not by its root": BY_WIDTH[0],
        "divided by √kv_len: the scale is √d_head": BY_KEYS[0],
        "softmax ran over the queries": lambda q, k, attn_mask=None: over_queries(q, k, attn_mask),
        "True means may attend": lambda q, k, attn_mask=None: oracle.attention_weights(
            q, k, None if attn_mask is None else ~attn_mask
        ),
        "mask before softmax, or rows no longer sum to 1": lambda q, k, attn_mask=None: softly_masked(q, k, attn_mask),
        "no gradient reaches q": lambda q, k, attn_mask=None: oracle.attention_weights(q.detach(), k, attn_mask),
        "no gradient reaches k": lambda q, k, attn_mask=None: oracle.attention_weights(q, k.detach(), attn_mask),
        "scale the scores, not the weights": lambda q, k, attn_mask=None: (
            UNSCALED[0](q, k, attn_mask) / q.shape[-1] ** 0.5
        ),
        "hidden keys still get weight": Spotted(
            rules.still_weighted,
            lambda q, k, attn_mask=None: raw_weights(q, k, attn_mask, -10.0),
        ),
        "a fully masked row must be zeros": lambda q, k, attn_mask=None: raw_weights(q, k, attn_mask, float("-inf")),
        "a row with nothing to see became an average": lambda q, k, attn_mask=None: raw_weights(
            q, k, attn_mask, torch.finfo(q.dtype).min
        ),
        "zeros forward, but NaN backward": lambda q, k, attn_mask=None: added_bias(q, k, attn_mask),
    },
)

FAR_BELOW = dict(q=normal(5, 4, std=0.05, shift=5.5), k=normal(7, 4, std=0.05, shift=-5.5), v=(7, 6))
FULL = dict(q=(2, 3, 5, 4), k=(2, 3, 7, 4), v=(2, 3, 7, 6))

register(
    expected=oracle.sdpa,
    phase=PHASE,
    section="2.3",
    hint="scale, mask, softmax, mix: the values are weighted by what the keys decided.",
    cases=(
        case("two heads", dict(q=(2, 5, 4), k=(2, 7, 4), v=(2, 7, 6))),
        case("no leading axes", dict(q=(5, 4), k=(7, 4), v=(7, 6))),
        case("batch and heads", FULL),
        case("one mask for all", FULL | dict(attn_mask=mask(5, 7))),
        case("a mask per batch row", FULL | dict(attn_mask=mask(2, 1, 1, 7))),
        case("a mask per batch row and query", FULL | dict(attn_mask=mask(2, 1, 5, 7))),
        case("a mask per head, no batch axis", FULL | dict(attn_mask=mask(3, 5, 7))),
        case("a mask per head and query", FULL | dict(attn_mask=mask(1, 3, 5, 7))),
        case("all scores near -60", FAR_BELOW | dict(attn_mask=mask(5, 7))),
        case("every axis of the mask differs", FULL | dict(attn_mask=mask(2, 3, 5, 7))),
        case("a mask for one leading axis", dict(q=(2, 5, 4), k=(2, 7, 4), v=(2, 7, 3), attn_mask=mask(2, 5, 7))),
        case("a query of zeros", dict(q=with_a_row_of_zeros(5, 4), k=(7, 4), v=(7, 6), attn_mask=mask(5, 7))),
        case("values one wide, one query", dict(q=(3, 1, 4), k=(3, 6, 4), v=(3, 6, 1))),
        case("one key", dict(q=(2, 5, 4), k=(2, 1, 4), v=(2, 1, 6))),
        case("more queries than keys", dict(q=(2, 3, 9, 4), k=(2, 3, 5, 4), v=(2, 3, 5, 6), attn_mask=mask(9, 5))),
        case("batch as long as the sentence", dict(q=(4, 4, 3), k=(4, 4, 3), v=(4, 4, 5), attn_mask=mask(4, 1, 4))),
        case(
            "batch as long as the queries, one mask",
            dict(q=(5, 3, 5, 4), k=(5, 3, 7, 4), v=(5, 3, 7, 6), attn_mask=mask(5, 7)),
        ),
        case(
            "a hidden key scores +40",
            dict(
                q=loud_queries(2, 3, 5, 4), k=loud_key(2, 3, 7, 4), v=(2, 3, 7, 6), attn_mask=without_loud(2, 1, 5, 7)
            ),
        ),
        case(
            "a row with nothing to see",
            FULL | dict(attn_mask=mask(2, 3, 5, 7, empty=[(0, 0, 2), (1, 2, 4)])),
            kind="edge",
        ),
        case("an example with nothing to see", FULL | dict(attn_mask=mask(2, 1, 1, 7, empty=[(1,)])), kind="edge"),
        case("whole rows hidden by a mask of width 1", FULL | dict(attn_mask=mask(2, 1, 5, 1)), kind="edge"),
        case("one key, seen or hidden", dict(q=(6, 4), k=(1, 4), v=(1, 3), attn_mask=mask(6, 1)), kind="edge"),
        refusal("q and k of different widths", dict(q=(5, 4), k=(7, 3), v=(7, 6))),
        refusal("k of width 1", dict(q=(5, 4), k=(7, 1), v=(7, 6))),
        refusal("more values than keys", dict(q=(5, 4), k=(7, 4), v=(8, 6))),
        refusal("one value for many keys", dict(q=(2, 5, 4), k=(2, 7, 4), v=(2, 1, 6))),
        refusal("a mask of floats", dict(q=(5, 4), k=(7, 4), v=(7, 6), attn_mask=as_numbers(torch.float64, 5, 7))),
        refusal("a mask of integers", dict(q=(5, 4), k=(7, 4), v=(7, 6), attn_mask=as_numbers(torch.int64, 5, 7))),
    ),
    mistakes={
        "scores were not divided by √d_head": UNSCALED[1],
        "divided by d_head, not by its root": BY_WIDTH[1],
        "the scale uses the width of the values": BY_VALUES[1],
        "divided by √kv_len: the scale is √d_head": BY_KEYS[1],
        "softmax ran over the queries": mixing(over_queries),
        "True means may attend": lambda q, k, v, attn_mask=None: oracle.sdpa(
            q, k, v, None if attn_mask is None else ~attn_mask
        ),
        "the mask was ignored": lambda q, k, v, attn_mask=None: oracle.sdpa(q, k, v),
        "renormalise: mask before softmax": mixing(softly_masked),
        "scores times mask: a hidden score of 0 still gets weight": mixing(times_mask),
        "hidden keys still get weight": mixing(lambda q, k, attn_mask: raw_weights(q, k, attn_mask, -10.0)),
        "a bool mask adds 0 and 1, it hides nothing": mixing(plus_mask),
        "return the output only": Spotted(
            rules.several_values,
            lambda q, k, v, attn_mask=None: (
                oracle.sdpa(q, k, v, attn_mask),
                oracle.attention_weights(q, k, attn_mask),
            ),
        ),
        "a fully masked row must be zeros": mixing(lambda q, k, attn_mask: raw_weights(q, k, attn_mask, float("-inf"))),
        "a row with nothing to see became an average": mixing(
            lambda q, k, attn_mask: raw_weights(q, k, attn_mask, torch.finfo(q.dtype).min)
        ),
        "zeros forward, but NaN backward": mixing(added_bias),
    },
)
