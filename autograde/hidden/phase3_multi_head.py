"""Hidden cases of phase 3."""

from dataclasses import replace

from utils.checks.draw import mask, probs
from utils.checks.exercise import case
from utils.checks.phase3.alibi import asked as biases_of
from utils.checks.phase3.dropout import asked as dropped
from utils.checks.phase3.dropout import weights
from utils.checks.phase3.grouped import counts
from utils.checks.phase3.looking import asked, causal_weights, looked_at, with_empty_rows, with_zeros
from utils.checks.phase3.multi_head import dropout_cases
from utils.checks.phase3.packed import layer, packed
from utils.checks.phase3.rules_alibi import judge_biases
from utils.checks.phase3.splitting import sizes

PAIR = dict(x=(3, 6, 20), memory=(3, 4, 20))

_HIDDEN = {
    "split_heads": (case("h1", dict(x=(3, 2, 6, 20), n_heads=4)), case("h2", dict(x=(9, 14), n_heads=7))),
    "merge_heads": (case("h1", dict(x=(3, 2, 4, 6, 5))), case("h2", dict(x=(7, 9, 2)))),
    "shape_trace": (case("h1", sizes(6, 10, 36, 4)), case("h2", sizes(4, 3, 21, 7))),
    "MultiHeadAttention": (
        case("h1", PAIR | dict(attn_mask=mask(3, 5, 6, 4)), init=dict(d_model=20, n_heads=5)),
        case("h2", dict(x=(2, 6, 20), attn_mask=mask(2, 1, 6, 6)), init=dict(d_model=20, n_heads=2, bias=False)),
        case(
            "h3",
            PAIR | dict(attn_mask=mask(3, 4, 6, 4, empty=[(2, 3, 1)])),
            init=dict(d_model=20, n_heads=4),
            kind="edge",
        ),
        *dropout_cases(0.6, second=0.25),
    ),
    "unpack_in_proj": (
        case("h1", packed(d_model=14, n_heads=2)),
        case("h2", packed(d_model=9, n_heads=3, kdim=4, vdim=11)),
    ),
    "sum_of_heads": (case("h1", dict(heads=(3, 4, 6, 5), w_o=layer(20, 9))),),
    "GroupedQueryAttention": (
        case("h1", dict(x=(3, 6, 16)), init=dict(d_model=16, n_heads=8, n_kv_heads=2)),
        case("h2", dict(x=(3, 6, 30), attn_mask=mask(3, 6, 6, 6)), init=dict(d_model=30, n_heads=6, n_kv_heads=3)),
    ),
    "mha_parameters": (case("h1", counts(40, 10, 5, True)), case("h2", counts(63, 9, 3, False))),
    "attention_dropout": (replace(dropped(0.55, weights(47, 3, 5, 18, 25), 12), name="h1"),),
    "head_entropy": (
        case("h1", dict(weights=with_zeros(3, 2, 4, 9))),
        case("h2", dict(weights=with_empty_rows(2, 5, 3)), kind="edge"),
    ),
    "head_patterns": (
        case("h1", looked_at(causal_weights(2, 5, 8, 8), "abcabcab", "aabbaabb")),
        case("h2", looked_at(probs(3, 2, 6, 6), "aaaaaa", "abcdef", "fedcbf")),
    ),
    "head_importance": (case("h1", asked(20, 5, 3, 6)), case("h2", asked(18, 3, 2, 4, training=True))),
    "alibi_bias": (
        case("h1", biases_of(10, 3, 5), judge=judge_biases),
        case("h2", biases_of(16, 2, 2), judge=judge_biases),
    ),
}

HIDDEN = {name: tuple(replace(one, hidden=True) for one in cases) for name, cases in _HIDDEN.items()}
