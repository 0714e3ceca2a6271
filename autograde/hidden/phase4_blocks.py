"""Hidden cases of phase 4."""

from dataclasses import replace

from utils.checks.draw import mask, normal
from utils.checks.exercise import case
from utils.checks.phase4.counts import BOTH, SMALL, sizes
from utils.checks.phase4.debugging import attention
from utils.checks.phase4.decoder_block import first_visible
from utils.checks.phase4.mending import dropout_case
from utils.checks.phase4.model import TABLES, padded, tokens
from utils.checks.phase4.norms import HALF, constant_rows
from utils.checks.phase4.start import stack, start
from utils.observe.codec import Fixture

BLOCK = dict(d_model=8, n_heads=2, d_ff=5)
STACK = BLOCK | dict(n_layers=2)
WORDS = dict(src=tokens(7, 3, 4), tgt=tokens(13, 3, 6))

_HIDDEN = {
    "layer_norm": (
        case("h1", dict(x=normal(3, 2, 4, 7, shift=-3.0), gamma=(7,), beta=(7,), eps=0.05)),
        case("h2", dict(x=normal(3, 9, std=300.0, shift=-900.0), gamma=(9,), beta=(9,), eps=1e-3), **HALF),
        case("h3", dict(x=constant_rows(2, 3), gamma=(3,), beta=(3,), eps=0.2)),
    ),
    "LayerNorm": (case("h1", dict(x=normal(3, 4, 7)), then=(dict(x=(2, 7)),), init=dict(d_model=7, eps=0.05)),),
    "layer_norm_backward": (case("h1", dict(grad_out=(3, 2, 7), x=normal(3, 2, 7, shift=-3.0), gamma=(7,), eps=0.05)),),
    "RMSNorm": (
        case("h1", dict(x=normal(3, 4, 7, shift=-2.0)), init=dict(d_model=7, eps=0.05)),
        case("h2", dict(x=normal(3, 9, std=50.0, shift=-500.0)), init=dict(d_model=9), **HALF),
    ),
    "gelu": (
        case("h1", dict(x=normal(4, 7, std=2.0))),
        case("h2", dict(x=normal(4, 7, std=2.0), approximate="tanh")),
    ),
    "FeedForward": (
        case("h1", dict(x=(3, 4, 7)), init=dict(d_model=7, d_ff=4, activation="relu")),
        case("h2", dict(x=(3, 4, 7)), init=dict(d_model=7, d_ff=9, activation="silu", dropout=1.0), train=True),
    ),
    "SwiGLU": (case("h1", dict(x=(3, 4, 7)), init=dict(d_model=7, d_ff=9)),),
    "Residual": (
        case(
            "h1",
            dict(x=(3, 4, 7), shift=0.4, args=[normal(3, 4, 7)]),
            init=dict(sublayer=Fixture("branch", dict(width=7, seed=9)), d_model=7, norm_first=False),
        ),
    ),
    "EncoderBlock": (
        case("h1", dict(x=(3, 6, 8), attn_mask=mask(3, 2, 6, 6)), init=BLOCK | dict(norm_first=False)),
        case("h2", dict(x=(3, 6, 8), attn_mask=mask(3, 1, 1, 6)), init=BLOCK),
    ),
    "DecoderBlock": (
        case(
            "h1",
            dict(x=(3, 6, 8), memory=(3, 4, 8), attn_mask=first_visible(3, 1, 6, 6), memory_mask=mask(3, 1, 6, 4)),
            init=BLOCK,
        ),
        case("h2", dict(x=(3, 4, 8), memory=(3, 6, 8)), init=BLOCK | dict(norm_first=False)),
    ),
    "Encoder": (case("h1", dict(x=(3, 6, 8), attn_mask=mask(3, 1, 1, 6)), init=STACK),),
    "Decoder": (case("h1", dict(x=(3, 6, 8), memory=(3, 4, 8), memory_mask=mask(3, 1, 1, 4)), init=STACK),),
    "Transformer": (
        case(
            "h1",
            WORDS | dict(src_pad_mask=padded(4, 2, 4, 1), tgt_pad_mask=padded(6, 6, 2, 4)),
            init=STACK | dict(src_vocab=7, tgt_vocab=13, norm_first=False),
            **TABLES,
        ),
    ),
    "init_weights": (start("h1", std=0.3, n_layers=5, width=40, seed=9),),
    "gradient_norms": (case("h1", stack(n_layers=4, width=6, norm_first=False, marked=True, seed=9)),),
    "count_parameters": (
        sizes("h1", SMALL | dict(d_model=30, d_ff=7), n_kv_heads=1),
        sizes("h2", BOTH | dict(vocab_size=5), norm_first=False),
        sizes("h3", BOTH | dict(n_layers=7), tied=False),
    ),
    "reads_hidden": (
        attention("h1", seed=101, n_heads=3),
        attention("h2", "first_row", seed=102),
        attention("h3", fill=-1e30, average=True, seed=103),
        attention("h4", "meets_heads", seed=104),
        attention("h5", "causal", seed=105),
    ),
    "FusedSelfAttention": (
        case(
            "h1",
            dict(x=(2, 6, 10), attn_mask=mask(2, 6, 6, empty=[(0, 3)])),
            init=dict(d_model=10, n_heads=2, d_head=3),
            kind="edge",
        ),
        case("h2", dict(x=(4, 3, 8), attn_mask=mask(4, 3, 3)), init=dict(d_model=8, n_heads=4)),
        dropout_case(0.25, "h3"),
    ),
    "residual_census": (case("h1", dict(n_encoder=11, n_decoder=2)),),
}

HIDDEN = {name: tuple(replace(one, hidden=True) for one in cases) for name, cases in _HIDDEN.items()}
