"""GroupedQueryAttention and mha_parameters: fewer keys and values, and what that saves."""

from torch import nn

from utils import oracle
from utils.checks.draw import mask
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase3 import PHASE, rules


class _Grouped(oracle.GroupedQueryAttention):
    """A wrong twin in one of its steps; as it stands it is right."""

    def forward(self, x, attn_mask=None):
        q = oracle.split_heads(self.w_q(x), self.n_heads)
        k, v = (self.grow(oracle.split_heads(layer(x), self.n_kv_heads)) for layer in (self.w_k, self.w_v))
        return self.w_o(oracle.merge_heads(self.mix(q, k, v, attn_mask)))

    def grow(self, x):
        return x.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1)

    def mix(self, q, k, v, attn_mask):
        return oracle.sdpa(q, k, v, attn_mask)


def wrong(**methods):
    return type("WrongGroupedQueryAttention", (_Grouped,), methods)


class _Wide(_Grouped):
    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__(d_model, n_heads, n_kv_heads)
        self.w_k, self.w_v = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)


class _NoBias(_Grouped):
    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__(d_model, n_heads, n_kv_heads)
        narrow = n_kv_heads * (d_model // n_heads)
        self.w_q, self.w_k, self.w_v, self.w_o = (
            nn.Linear(d_model, width, bias=False) for width in (d_model, narrow, narrow, d_model)
        )


class _NotProjected(_Grouped):
    def forward(self, x, attn_mask=None):
        mine = self.w_o
        try:
            self.w_o = nn.Identity()
            return super().forward(x, attn_mask)
        finally:
            self.w_o = mine


def infinite(q, k, v, attn_mask):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return (scores if attn_mask is None else scores.masked_fill(~attn_mask, float("-inf"))).softmax(-1) @ v


def sizes(n_heads, n_kv_heads):
    return dict(d_model=24, n_heads=n_heads, n_kv_heads=n_kv_heads)


X = dict(x=(2, 5, 24))
GROUPED = sizes(6, 3)

register(
    expected=oracle.GroupedQueryAttention,
    phase=PHASE,
    section="3.7",
    hint="each key-value head serves n_heads / n_kv_heads query heads that stand next to one another.",
    cases=(
        case("two queries per key", X, init=GROUPED),
        case("three queries per key", X, init=sizes(6, 2)),
        case("one key for all", X, init=sizes(6, 1)),
        case("a key for each", X, init=sizes(4, 4)),
        case("a mask", X | dict(attn_mask=mask(5, 5)), init=GROUPED),
        case("hidden keys per example", X | dict(attn_mask=mask(2, 1, 1, 5)), init=GROUPED),
        case("a mask per head", X | dict(attn_mask=mask(1, 6, 5, 5)), init=GROUPED),
        case("every axis of the mask differs", X | dict(attn_mask=mask(2, 6, 5, 5)), init=sizes(6, 2)),
        case("batch, heads and tokens alike", dict(x=(6, 6, 24), attn_mask=mask(6, 1, 6, 6)), init=sizes(6, 6)),
        case("one token", dict(x=(3, 1, 24)), init=GROUPED),
        case("long, then short", dict(x=(1, 7, 24)), then=(dict(x=(2, 3, 24)),), init=GROUPED),
        case("other sizes", dict(x=(3, 4, 20)), init=dict(d_model=20, n_heads=4, n_kv_heads=2)),
        case(
            "one head of a row sees nothing",
            X | dict(attn_mask=mask(2, 6, 5, 5, empty=[(0, 1, 2), (1, 4, 0)])),
            init=GROUPED,
            kind="edge",
        ),
        refusal("five heads for 24 features", X, init=dict(d_model=24, n_heads=5, n_kv_heads=5)),
        refusal("six heads in groups of four", X, init=sizes(6, 4)),
        refusal("more keys than queries", X, init=sizes(3, 6)),
    ),
    mistakes={
        "heads of a group must be neighbours": wrong(
            grow=lambda self, x: x.repeat(1, self.n_heads // self.n_kv_heads, 1, 1)
        ),
        "one key head for all: each group has its own": wrong(
            grow=lambda self, x: x[:, :1].expand(-1, self.n_heads, -1, -1)
        ),
        "keys need as many heads as queries: repeat each n_heads / n_kv_heads times": Spotted(
            rules.unequal_heads, wrong(grow=lambda self, x: x), certain=True
        ),
        "key-value heads were averaged": wrong(
            grow=lambda self, x: x.mean(1, keepdim=True).expand(-1, self.n_heads, -1, -1)
        ),
        "keys and values have n_kv_heads": Spotted(rules.wide_keys, _Wide),
        "the scale is √d_head": Replays(
            wrong(mix=lambda self, q, k, v, m: oracle.sdpa(q * self.n_kv_heads**-0.5, k, v, m)),
            wrong(mix=lambda self, q, k, v, m: oracle.sdpa(q * self.n_heads**-0.5, k, v, m)),
            wrong(mix=lambda self, q, k, v, m: oracle.sdpa(q * q.shape[-1] ** 0.5, k, v, m)),
        ),
        "w_o was not used": _NotProjected,
        "the bias is missing": Spotted(rules.no_bias, _NoBias),
        "the mask was ignored": wrong(mix=lambda self, q, k, v, m: oracle.sdpa(q, k, v)),
        "True means may attend": wrong(mix=lambda self, q, k, v, m: oracle.sdpa(q, k, v, None if m is None else ~m)),
        "a fully masked row must be zeros": wrong(mix=lambda self, q, k, v, m: infinite(q, k, v, m)),
    },
)

# ---- mha_parameters ------------------------------------------------------------------------------


def counts(d_model, n_heads, n_kv_heads, bias):
    return dict(d_model=d_model, n_heads=n_heads, n_kv_heads=n_kv_heads, bias=bias)


def counted(formula):
    """A wrong twin from formula(width, width of keys, heads, bias as 0 or 1)."""

    def wrong(d_model, n_heads, n_kv_heads, bias):
        oracle.mha_parameters(d_model, n_heads, n_kv_heads, bias)  # refuses what must be refused
        return formula(d_model, d_model // n_heads * n_kv_heads, n_heads, int(bias))

    return wrong


def unrefused(d_model, n_heads, n_kv_heads, bias):
    narrow = d_model // n_heads * n_kv_heads
    return 2 * d_model * (d_model + narrow) + bool(bias) * 2 * (d_model + narrow)


register(
    expected=oracle.mha_parameters,
    phase=PHASE,
    section="3.8",
    hint="four layers: w_q and w_o are square, w_k and w_v are d_model by n_kv_heads · d_head.",
    grad=False,
    draws=True,
    cases=(
        case("two keys for six queries", counts(24, 6, 2, True)),
        case("no bias", counts(24, 6, 2, False)),
        case("the base Transformer", counts(512, 8, 8, True)),
        case("one key for all", counts(24, 6, 1, True)),
        case("a key for each, three heads", counts(12, 3, 3, True)),
        case("a key for each, four heads", counts(12, 4, 4, True)),
        case("bias as a number", counts(20, 4, 2, 1)),
        case("no bias as a number", counts(20, 4, 2, 0)),
        case("a large model", counts(1024, 64, 8, False)),
        refusal("five heads for 24 features", counts(24, 5, 5, True)),
        refusal("six heads in groups of four", counts(24, 6, 4, True)),
        refusal("more keys than queries", counts(24, 3, 6, False)),
    ),
    mistakes={
        "w_o was left out": Replays(
            counted(lambda m, n, h, b: m * m + 2 * m * n + b * (m + 2 * n)),
            counted(lambda m, n, h, b: m * m + 2 * m * n + b * (2 * m + 2 * n)),
        ),
        "bias was ignored": Replays(
            counted(lambda m, n, h, b: 2 * m * m + 2 * m * n), counted(lambda m, n, h, b: 2 * (m + 1) * (m + n))
        ),
        "keys and values have n_kv_heads": Replays(
            counted(lambda m, n, h, b: 4 * m * m + b * 4 * m), counted(lambda m, n, h, b: 4 * m * m + b * 2 * (m + n))
        ),
        "heads share d_model: do not multiply by n_heads": Replays(
            counted(lambda m, n, h, b: h * (2 * m * m + 2 * m * n + b * 2 * (m + n))),
            counted(lambda m, n, h, b: h * (m * m + 2 * m * n) + m * m + b * (h * (m + 2 * n) + m)),
        ),
        "w_o has a bias too": counted(lambda m, n, h, b: 2 * m * m + 2 * m * n + b * (m + 2 * n)),
        "a bias is as wide as its layer's output": Replays(
            counted(lambda m, n, h, b: 2 * m * m + 2 * m * n + b * 4 * m),
            counted(lambda m, n, h, b: 2 * m * m + 2 * m * n + b * 4),
        ),
        "return an int": counted(lambda m, n, h, b: float(2 * (m + b) * (m + n))),
        "d_model must hold whole heads, n_heads whole groups: refuse the rest": Spotted(
            rules.counted_anyway, unrefused
        ),
    },
)
