"""split_heads, merge_heads and shape_trace: where the axis of the heads comes from, and where it goes."""

import torch

from utils import oracle
from utils.checks.draw import given, seed_of
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase3 import PHASE, rules
from utils.observe.codec import Fixture


def fixture(name, **options):
    """A fixture whose numbers are drawn: its seed comes from the case's own."""
    return given(lambda generator, others: Fixture(name, options | {"seed": seed_of(generator.initial_seed())}))


def turned(*shape):
    """A tensor of this shape that `view` cannot regroup."""
    return fixture("turned", shape=list(shape))


def counted_up(*shape):
    """0, 0.01, 0.02, …: every entry tells its place."""
    return given(lambda generator, others: torch.arange(torch.Size(shape).numel()).double().view(shape) / 100)


OWN_DTYPE = "new tensors need the dtype of their input: x.new_zeros(…), or dtype=x.dtype"


def one_batch_axis(others):
    """A wrong twin that unpacks its shape into one batch axis and this many others; right where there are no more."""

    def wrong(x, n_heads=None):
        batch, *rest = x.shape
        if len(rest) != others:
            raise ValueError(f"not enough values to unpack (expected {others + 1}, got {x.dim()})")
        return oracle.merge_heads(x) if n_heads is None else oracle.split_heads(x, n_heads)

    return wrong


# ---- split_heads ---------------------------------------------------------------------------------


def grouped(x, n_heads):
    """(…, T, H, D): the features cut into heads, and nothing moved. As hurried code does, without a look at n_heads."""
    return x.reshape(*x.shape[:-1], n_heads, x.shape[-1] // n_heads)


register(
    expected=oracle.split_heads,
    phase=PHASE,
    section="3.2",
    hint="cut the last axis into (n_heads, d_head), then move the heads in front of the tokens.",
    cases=(
        case("three heads", dict(x=(2, 5, 12), n_heads=3)),
        case("one head", dict(x=(2, 5, 12), n_heads=1)),
        case("no leading axis", dict(x=(5, 12), n_heads=4)),
        case("two leading axes", dict(x=(2, 3, 7, 10), n_heads=5)),
        case("as many heads as tokens", dict(x=(2, 4, 12), n_heads=4)),
        case("heads one wide", dict(x=(3, 5, 6), n_heads=6)),
        case("one token", dict(x=(3, 1, 12), n_heads=2)),
        case("a transposed tensor", dict(x=turned(2, 5, 12), n_heads=3), grad=False),
        refusal("five heads for twelve features", dict(x=(2, 5, 12), n_heads=5)),
        refusal("more heads than features", dict(x=(2, 5, 12), n_heads=24)),
        refusal("eight heads for twelve features, eight tokens", dict(x=(2, 8, 12), n_heads=8)),
    ),
    mistakes={
        "right shape, wrong contents: transpose": Replays(
            lambda x, n_heads: x.reshape(*x.shape[:-2], n_heads, x.shape[-2], x.shape[-1] // n_heads),
            lambda x, n_heads: x.mT.reshape(*x.shape[:-2], n_heads, x.shape[-2], x.shape[-1] // n_heads),
        ),
        "heads come before tokens": grouped,
        "a head holds neighbouring features": lambda x, n_heads: x.reshape(
            *x.shape[:-1], x.shape[-1] // n_heads, n_heads
        ).movedim(-1, -3),
        "n_heads is the number of heads, not their width": lambda x, n_heads: x.reshape(
            *x.shape[:-1], x.shape[-1] // n_heads, n_heads
        ).transpose(-3, -2),
        "features left over must be refused": Spotted(
            rules.not_refused,
            lambda x, n_heads: grouped(x[..., : x.shape[-1] // n_heads * n_heads], n_heads).transpose(-3, -2),
        ),
        "any leading axes: count axes from the right": Spotted(rules.shapes_unpacked, one_batch_axis(2)),
        OWN_DTYPE: Spotted(rules.default_dtype, rules.in_default_dtype(oracle.split_heads)),
    },
)

# ---- merge_heads ---------------------------------------------------------------------------------

register(
    expected=oracle.merge_heads,
    phase=PHASE,
    section="3.2",
    hint="move the heads back behind the tokens, then flatten the last two axes.",
    cases=(
        case("three heads", dict(x=(2, 3, 5, 4))),
        case("counted up", dict(x=counted_up(2, 3, 5, 4))),
        case("no leading axis", dict(x=(3, 5, 4))),
        case("two leading axes", dict(x=(2, 6, 3, 5, 4))),
        case("one head", dict(x=(2, 1, 5, 4))),
        case("as many heads as tokens", dict(x=(2, 4, 4, 3))),
        case("one token", dict(x=(2, 3, 1, 4))),
        case("heads one wide", dict(x=(2, 6, 5, 1))),
        case("a transposed tensor", dict(x=turned(2, 3, 5, 4)), grad=False),
    ),
    mistakes={
        "tokens and heads were mixed": lambda x: x.reshape(*x.shape[:-3], x.shape[-2], x.shape[-3] * x.shape[-1]),
        "make it contiguous": Spotted(
            rules.cannot_view, lambda x: x.transpose(-3, -2).view(*x.shape[:-3], x.shape[-2], x.shape[-3] * x.shape[-1])
        ),
        "concatenate": Replays(lambda x: x.sum(-3), lambda x: x.mean(-3)),
        "the features of a head stay together": lambda x: x.movedim(-3, -1).flatten(-2),
        "the last two axes must become one": lambda x: x.transpose(-3, -2),
        "out is (…, seq_len, n_heads · d_head)": Replays(
            lambda x: x.flatten(-3, -2), lambda x: x.flatten(-2), lambda x: x.transpose(-3, -2).flatten(-3, -2)
        ),
        "any leading axes: count axes from the right": Spotted(rules.shapes_unpacked, one_batch_axis(3)),
        OWN_DTYPE: Spotted(rules.default_dtype, rules.in_default_dtype(oracle.merge_heads)),
    },
)

# ---- shape_trace ---------------------------------------------------------------------------------


def sizes(*values):
    return dict(zip(("batch", "seq_len", "d_model", "n_heads"), values, strict=True))


def traced(keys, shape):
    """A trace in which these keys have another shape, from batch, length, width, heads and width of a head."""

    def wrong(batch, seq_len, d_model, n_heads):
        right = oracle.shape_trace(batch, seq_len, d_model, n_heads)
        return right | dict.fromkeys(keys.split(), shape(batch, seq_len, d_model, n_heads, d_model // n_heads))

    return wrong


def with_fractions(batch, seq_len, d_model, n_heads):
    right = oracle.shape_trace(batch, seq_len, d_model, n_heads)
    width = d_model / n_heads
    return right | {
        "q_heads": (batch, n_heads, seq_len, width),
        "k_heads_transposed": (batch, n_heads, width, seq_len),
        "v_heads": (batch, n_heads, seq_len, width),
        "heads": (batch, n_heads, seq_len, width),
    }


register(
    expected=oracle.shape_trace,
    phase=PHASE,
    section="3.3",
    hint="follow one tensor through the layer; the scores are the only place with two lengths.",
    grad=False,
    draws=True,
    cases=(
        case("three heads", sizes(2, 5, 12, 3)),
        case("one of everything", sizes(1, 1, 8, 8)),
        case("the base Transformer", sizes(7, 4, 512, 8)),
        case("one head", sizes(3, 6, 10, 1)),
        refusal("five heads for twelve features", sizes(2, 5, 12, 5)),
    ),
    mistakes={
        "every head has its own scores": Replays(
            traced("scores attn_weights", lambda b, t, m, h, d: (b, t, t)),
            traced("scores", lambda b, t, m, h, d: (b, t, t)),
        ),
        "scores are query by key: (…, seq_len, seq_len)": Replays(
            traced("scores attn_weights", lambda b, t, m, h, d: (b, h, d, d)),
            traced("scores attn_weights", lambda b, t, m, h, d: (b, h, t, d)),
            traced("scores attn_weights", lambda b, t, m, h, d: (b, t, h, h)),
            traced("attn_weights", lambda b, t, m, h, d: (b, h, t, d)),
        ),
        "a head is d_model / n_heads wide": Replays(
            traced("q_heads", lambda b, t, m, h, d: (b, h, t, m)),
            traced("q_heads v_heads", lambda b, t, m, h, d: (b, h, t, m)),
            traced("q_heads v_heads heads", lambda b, t, m, h, d: (b, h, t, m)),
            traced("heads", lambda b, t, m, h, d: (b, h, t, m)),
        ),
        "heads come before tokens": Replays(
            traced("q_heads", lambda b, t, m, h, d: (b, t, h, d)),
            traced("q_heads v_heads", lambda b, t, m, h, d: (b, t, h, d)),
            traced("q_heads v_heads heads", lambda b, t, m, h, d: (b, t, h, d)),
            traced("heads", lambda b, t, m, h, d: (b, t, h, d)),
        ),
        "transposed keys end in seq_len": Replays(
            traced("k_heads_transposed", lambda b, t, m, h, d: (b, h, t, d)),
            traced("k_heads_transposed", lambda b, t, m, h, d: (b, t, d, h)),
        ),
        "seq_len and d_head were exchanged": Replays(
            traced("q_heads v_heads", lambda b, t, m, h, d: (b, h, d, t)),
            traced("q_heads v_heads heads", lambda b, t, m, h, d: (b, h, d, t)),
        ),
        "q, k and v are before the split": Replays(
            traced("q k v", lambda b, t, m, h, d: (b, h, t, d)), traced("q k v", lambda b, t, m, h, d: (b, t, d))
        ),
        "merging fills d_model again": Replays(
            traced("merged", lambda b, t, m, h, d: (b, t, h, d)),
            traced("merged output", lambda b, t, m, h, d: (b, t, d)),
            traced("merged", lambda b, t, m, h, d: (b, t, d)),
            traced("merged", lambda b, t, m, h, d: (b, t, h)),
        ),
        "sizes are whole: divide with //": with_fractions,
    },
)
