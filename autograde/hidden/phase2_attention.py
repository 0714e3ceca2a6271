"""Hidden cases of phase 2."""

from dataclasses import replace

from utils.checks.draw import mask, normal, probs
from utils.checks.exercise import case
from utils.checks.phase2.cost import sizes
from utils.checks.phase2.leaks import attention
from utils.checks.phase2.repair import padded
from utils.checks.phase2.variance import asked, variances
from utils.observe.codec import Generator

QKV = dict(q=(3, 2, 6, 5), k=(3, 2, 4, 5), v=(3, 2, 4, 8))
NARROW, NARROW_AGAIN = asked(7, 8_000, 9, 1)

_HIDDEN = {
    "masked_softmax": (
        case("h1", dict(scores=(3, 2, 4, 6), attn_mask=mask(3, 1, 4, 6, empty=[(2, 0, 3)])), kind="edge"),
        case("h2", dict(scores=normal(4, 9, shift=-3e4), attn_mask=mask(9))),
    ),
    "attention_weights": (
        case("h1", dict(q=(3, 2, 6, 5), k=(3, 2, 4, 5), attn_mask=mask(3, 2, 6, 4))),
        case("h2", dict(q=(3, 6, 7), k=(3, 2, 7), attn_mask=mask(3, 6, 2, empty=[(1, 2)])), kind="edge"),
    ),
    "sdpa": (
        case("h1", QKV | dict(attn_mask=mask(3, 1, 1, 4))),
        case("h2", QKV | dict(attn_mask=mask(2, 6, 4, empty=[(1, 5)])), kind="edge"),
        case("h3", dict(q=(2, 2, 3), k=(2, 9, 3), v=(2, 9, 2))),
    ),
    "causal_mask": (case("h1", dict(q_len=4, kv_len=11)), case("h2", dict(q_len=9, kv_len=8))),
    "padding_mask": (case("h1", dict(pad_mask=mask(6, 2))),),
    "combine_masks": (case("h1", dict(masks=[mask(3, 1, 1, 4), None, mask(6, 4), mask(1, 2, 6, 4)])),),
    "softmax_jacobian": (case("h1", dict(probs=probs(3, 2, 6))),),
    "softmax_backward": (case("h1", dict(probs=probs(3, 2, 6), grad=(3, 2, 6))),),
    "sdpa_backward": (
        case("h1", dict(grad_out=(3, 2, 6, 8)) | QKV | dict(attn_mask=mask(3, 2, 6, 4, empty=[(0, 1, 3)]))),
    ),
    "SelfAttention": (case("h1", dict(x=(3, 6, 4)), init=dict(d_model=4, d_head=6, causal=True)),),
    "CrossAttention": (
        case(
            "h1",
            dict(x=(3, 6, 4), memory=(3, 2, 5), attn_mask=mask(3, 1, 2)),
            init=dict(d_model=4, d_memory=5, d_head=3),
        ),
    ),
    "score_variance": (
        case(
            "h1",
            NARROW,
            then=(*NARROW_AGAIN, NARROW | dict(generator=Generator(9, copy=1))),
            kind="chance",
            judge=variances(7),
        ),
    ),
    "MaskedSelfAttention": (
        case(
            "h1",
            dict(x=(3, 6, 4), pad_mask=padded("..abcd", "abcdef", "a.....")),
            init=dict(d_model=4, max_len=7, bias=True),
            kind="edge",
        ),
    ),
    "leaks_future": (
        attention("h1", "causal", seed=101),
        attention("h2", "late_rows", seed=102),
        attention("h3", "far_token", seed=103),
        attention("h4", "causal", fill=-9.0, seed=104),
    ),
    "attention_cost": (case("h1", sizes(7, 5, 3, 2, 13, 1)),),
    "streaming_attention": (case("h1", QKV | dict(block_size=3, attn_mask=mask(3, 1, 6, 4))),),
}

HIDDEN = {name: tuple(replace(one, hidden=True) for one in cases) for name, cases in _HIDDEN.items()}
