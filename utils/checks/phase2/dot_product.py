"""attention_weights, sdpa and score_variance: the dot product, its scale, and what it is for."""

import torch

from utils import oracle
from utils.checks.draw import given, mask, normal
from utils.checks.exercise import Spotted, case, refusal, register
from utils.checks.phase2 import PHASE
from utils.checks.phase2.softmax import as_numbers, hidden_is_nothing, still_weighted
from utils.observe.codec import Generator

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


def softly_masked(q, k, attn_mask, scale=True):
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
    properties=(hidden_is_nothing,),
    cases=(
        case("one sentence", dict(q=(5, 4), k=(7, 4))),
        case("batch and heads", HEADS),
        case("one leading axis and a mask", dict(q=(2, 5, 4), k=(2, 7, 4), attn_mask=mask(5, 7))),
        case("every axis of the mask differs", HEADS | dict(attn_mask=mask(2, 3, 5, 7))),
        case("a mask per batch row", HEADS | dict(attn_mask=mask(2, 1, 1, 7))),
        case("a mask per batch row and query", HEADS | dict(attn_mask=mask(2, 1, 5, 7))),
        case("a mask per head", HEADS | dict(attn_mask=mask(3, 1, 7))),
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
            still_weighted,
            lambda q, k, attn_mask=None: raw_weights(q, k, attn_mask, -10.0),
        ),
        "a fully masked row must be zeros": lambda q, k, attn_mask=None: raw_weights(q, k, attn_mask, float("-inf")),
        "a row with nothing to see became an average": lambda q, k, attn_mask=None: raw_weights(
            q, k, attn_mask, torch.finfo(q.dtype).min
        ),
        "zeros forward, but NaN backward": lambda q, k, attn_mask=None: added_bias(q, k, attn_mask),
    },
)

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
        case("every axis of the mask differs", FULL | dict(attn_mask=mask(2, 3, 5, 7))),
        case("a mask for one leading axis", dict(q=(2, 5, 4), k=(2, 7, 4), v=(2, 7, 3), attn_mask=mask(2, 5, 7))),
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
            lambda got, request: isinstance(got["calls"][0]["value"], (tuple, list)),
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


def _numbers(got):
    """[(raw, scaled), …] of all calls as floats, or None where something else was returned."""
    pairs = []
    for call in got["calls"]:
        value = call["value"]
        if not isinstance(value, (tuple, list)) or len(value) != 2:
            return None
        if any(getattr(part, "ndim", 0) for part in value):
            return None
        try:
            pairs.append(tuple(float(part) for part in value))
        except (TypeError, ValueError, RuntimeError):
            return None
    return pairs


def variances(d_head):
    """Judge three calls: a generator, the same one again, and a copy of its first state."""

    def judge(got, settled):
        pairs = _numbers(got)
        if pairs is None:
            return "raw, scaled: two numbers", "something else"
        for raw, scaled in pairs:
            if not abs(raw - d_head * scaled) <= 1e-6 * abs(raw):
                return "raw = d_head · scaled, from the same draws", f"raw {raw:.5g}, scaled {scaled:.5g}"
            if not 0.9 <= raw / d_head <= 1.1:
                return f"raw near {d_head}, scaled near 1", f"raw {raw:.4g}, scaled {scaled:.4g}"
            if abs(raw / d_head - 1) < 1e-9:
                return "numbers measured on draws", "the exact formula"
        if pairs[0] == pairs[1]:
            return "a second call that draws on", "the same numbers again"
        if pairs[0] != pairs[2]:
            return "the same generator state gives the same numbers", f"{pairs[0][0]:.6g}, then {pairs[2][0]:.6g}"
        return None

    return judge


def scattered(got, settled):
    """Are 300 variances of 64 products each as scattered as they must be?

    At d_head 1 a product of two normal numbers has heavy tails: such variances scatter by 0.35, those of 64 normal
    numbers by 0.18 only, and those of many more numbers hardly at all. 200 trials gave 0.30 to 0.42 and 0.16 to 0.20.
    """
    pairs = _numbers(got)
    if pairs is None:
        return "raw, scaled: two numbers", "something else"
    spread = torch.tensor(pairs, dtype=torch.float64)[:, 0].std().item()
    if spread < 0.25:
        return "variances of 64 dot products, which scatter widely", f"numbers that scatter by {spread:.2f} only"
    return None


def _first(got):
    pairs = _numbers(got)
    return pairs[0] if pairs else (float("nan"), float("nan"))


def sampler(draw=torch.randn, divide=0.5, measure=torch.var, fresh=False, scores=lambda q, k: (q * k).sum(-1)):
    """A faulty twin of score_variance."""

    def wrong(d_head, n_samples, generator):
        def pairs():
            return draw(2, n_samples, d_head, generator=generator, dtype=torch.float64)

        raw = scores(*pairs())
        scaled = scores(*pairs()) if fresh else raw
        return measure(raw).item(), measure(scaled / d_head**divide).item()

    return wrong


def careless(d_head, n_samples, generator):
    scores = (torch.randn(n_samples, d_head) * torch.randn(n_samples, d_head)).sum(-1)
    return scores.var().item(), (scores / d_head**0.5).var().item()


def asked(d_head, n_samples, seed, calls):
    first = dict(d_head=d_head, n_samples=n_samples, generator=Generator(seed))
    return first, (first,) * calls


def near(value, target):
    return 0.85 * target <= value <= 1.15 * target


def width(request):
    return request.calls[0]["args"]["d_head"]


def _linked(got, request):
    raw, scaled = _first(got)
    return abs(raw - width(request) * scaled) <= 1e-6 * raw


WIDE, WIDE_AGAIN = asked(48, 20_000, 5, 1)
ODD, ODD_AGAIN = asked(11, 20_000, 6, 1)
FEW, FEW_AGAIN = asked(1, 64, 7, 299)

register(
    expected=oracle.score_variance,
    phase=PHASE,
    section="2.4",
    hint="draw q and k from the generator once, take the dot products, measure them as they are and scaled.",
    grad=False,
    cases=(
        case(
            "d_head 48",
            WIDE,
            then=(*WIDE_AGAIN, WIDE | dict(generator=Generator(5, copy=1))),
            kind="chance",
            judge=variances(48),
        ),
        case(
            "d_head 11",
            ODD,
            then=(*ODD_AGAIN, ODD | dict(generator=Generator(6, copy=1))),
            kind="chance",
            judge=variances(11),
        ),
        case("64 samples, 300 times", FEW, then=FEW_AGAIN, kind="chance", judge=scattered),
    ),
    mistakes={
        "divide by the root": Spotted(
            lambda got, request: near(_first(got)[0], width(request)) and near(_first(got)[1], 1 / width(request)),
            sampler(divide=1.0),
        ),
        "variance was asked": Spotted(
            lambda got, request: near(_first(got)[0], width(request) ** 0.5) and near(_first(got)[1], 1),
            sampler(measure=torch.std),
        ),
        "use the generator you were given": Spotted(
            lambda got, request: near(_first(got)[1], 1) and _numbers(got)[0] != _numbers(got)[2], careless
        ),
        "both numbers come from the same draws": Spotted(
            lambda got, request: (
                near(_first(got)[0], width(request)) and near(_first(got)[1], 1) and not _linked(got, request)
            ),
            sampler(fresh=True),
        ),
        "the score is a sum over d_head, not one entry": Spotted(
            lambda got, request: near(_first(got)[0], 1) and near(_first(got)[1], 1 / width(request)),
            sampler(scores=lambda q, k: q),
        ),
        "draw standard normal numbers": Spotted(
            lambda got, request: any(
                near(_first(got)[0], width(request) * share) for share in (1 / 9 - 1 / 16, 1 / 9, 1 / 144)
            ),
            sampler(draw=torch.rand),
        ),
    },
)
