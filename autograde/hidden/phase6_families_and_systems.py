"""Hidden cases of phase 6."""

from dataclasses import replace

from utils.checks.draw import normal
from utils.checks.exercise import case, refusal
from utils.checks.phase6 import classifier, gpt
from utils.checks.phase6.classifier import lengths, tokens
from utils.checks.phase6.experts import crowded
from utils.checks.phase6.masking import asked
from utils.checks.phase6.patches import numbered
from utils.checks.phase6.spans import lengths as prefixes

SMALL = dict(vocab_size=7, d_model=8, n_heads=2, n_layers=1, d_ff=5, max_len=11)
TEXT = [5, 5, 9, 2, 7, 1, 1, 8, 3, 6]

_HIDDEN = {
    "mask_tokens": (asked("h1", 9, 0.4, vocab_size=37, special_ids=(1, 2, 36), mask_id=20, shape=(75, 70)),),
    "mean_pool": (
        case("h1", dict(x=(4, 3, 6), pad_mask=lengths(3, 2, 1, 3, 2))),
        case("h2", dict(x=normal(2, 9, 3, shift=2.0), pad_mask=lengths(9, 8, 0)), kind="edge"),
    ),
    "EncoderClassifier": (
        case(
            "h1",
            dict(tokens=tokens(7, 3, 6), pad_mask=lengths(6, 6, 1, 4)),
            init=classifier.config(**SMALL) | dict(n_classes=3),
        ),
    ),
    "GPT": (
        case(
            "h1",
            dict(tokens=tokens(7, 3, 6), pad_mask=lengths(6, 6, 1, 4)),
            init=gpt.config(**SMALL | dict(n_kv_heads=1, tied=False)),
        ),
        case("h2", dict(method="embed", tokens=tokens(7, 3, 4), offset=7), init=gpt.config(**SMALL)),
        case("h3", dict(tokens=tokens(7, 2, 5)), init=gpt.config(**SMALL | dict(norm_first=False, n_layers=2))),
    ),
    "span_corrupt": (
        case("h1", dict(tokens=TEXT, spans=[(8, 10), (0, 3), (3, 4)], sentinel_ids=[40, 30, 50, 20, 60])),
        refusal("h2", dict(tokens=TEXT, spans=[(8, 11)], sentinel_ids=[40, 30])),
        refusal("h3", dict(tokens=TEXT, spans=[(4, 6), (5, 7)], sentinel_ids=[40, 30, 20])),
    ),
    "prefix_lm_mask": (
        case("h1", dict(prefix_len=prefixes(5, 0, 7), seq_len=7)),
        refusal("h2", dict(prefix_len=prefixes(1, 4), seq_len=3)),
    ),
    "patchify": (
        case("h1", dict(images=(3, 4, 6, 15), patch_size=3)),
        case("h2", dict(images=numbered(1, 4, 10, 5), patch_size=5), grad=False),
        refusal("h3", dict(images=(3, 4, 6, 15), patch_size=2)),
    ),
    "moe_route": (
        case("h1", dict(logits=crowded(11, 6, 0), k=3, capacity=4)),
        case("h2", dict(logits=(6, 3), k=2, capacity=2)),
    ),
    "tiled_attention": (
        case("h1", dict(q=(2, 9, 5), k=(2, 13, 5), v=(2, 13, 7), q_block=4, kv_block=6, causal=True)),
        case("h2", dict(q=(3, 6, 4), k=(3, 4, 4), v=(3, 4, 5), q_block=4, kv_block=3)),
        case(
            "h3",
            dict(q=(9, 4), k=(6, 4), v=(6, 5), q_block=2, kv_block=4, causal=True),
            kind="edge",
            grad=False,
        ),
    ),
}

HIDDEN = {name: tuple(replace(one, hidden=True) for one in cases) for name, cases in _HIDDEN.items()}
