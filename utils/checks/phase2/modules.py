"""SelfAttention and CrossAttention: the same formula with weights of its own."""

import torch

from utils import oracle
from utils.checks.draw import given, mask
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase2 import PHASE, rules
from utils.checks.phase2.dot_product import LOUD, without_loud


class _Self(oracle.SelfAttention):
    """A wrong twin in one method: `mix(x, q, k, v, mask)` is the right one here."""

    def forward(self, x, attn_mask=None):
        return self.mix(x, self.w_q(x), self.w_k(x), self.w_v(x), self.visible(x, attn_mask))

    def visible(self, x, attn_mask):
        return oracle.combine_masks(attn_mask, oracle.causal_mask(x.shape[-2]) if self.causal else None)

    def mix(self, x, q, k, v, visible):
        return oracle.sdpa(q, k, v, visible)


def wrong_self(**methods):
    return type("WrongSelfAttention", (_Self,), methods)


class _NoBias(_Self):
    def __init__(self, d_model, d_head, causal=False):
        super().__init__(d_model, d_head, causal)
        self.w_q, self.w_k, self.w_v = (torch.nn.Linear(d_model, d_head, bias=False) for _ in range(3))


class _BiasNotAdded(_Self):
    def __init__(self, d_model, d_head, causal=False):
        super().__init__(d_model, d_head, causal)
        for layer in (self.w_q, self.w_k, self.w_v):
            layer.register_forward_hook(lambda layer, args, out: out - layer.bias)


class _StrictlyCausal(_Self):
    def visible(self, x, attn_mask):
        strict = oracle.causal_mask(x.shape[-2]).tril(-1)
        return oracle.combine_masks(attn_mask, strict if self.causal else None)


X = dict(x=(2, 5, 6))
SIZES = dict(d_model=6, d_head=4)
CAUSAL = SIZES | dict(causal=True)

register(
    expected=oracle.SelfAttention,
    phase=PHASE,
    section="2.8",
    hint="three linear layers with bias, then your sdpa; causal and attn_mask must both hold.",
    cases=(
        case("five tokens", X, init=SIZES),
        case("causal", X, init=CAUSAL),
        case("causal=False, said aloud", X, init=SIZES | dict(causal=False)),
        case("a mask", X | dict(attn_mask=mask(5, 5)), init=SIZES),
        case("a mask per batch row", X | dict(attn_mask=mask(2, 5, 5)), init=SIZES),
        case("hidden keys per batch row", X | dict(attn_mask=mask(2, 1, 5)), init=SIZES),
        case("hidden keys for all", X | dict(attn_mask=mask(1, 1, 5)), init=SIZES),
        case("one mask for all, with a batch axis", X | dict(attn_mask=mask(1, 5, 5)), init=SIZES),
        case("batch as long as the sentence, one mask", dict(x=(5, 5, 6), attn_mask=mask(5, 5)), init=SIZES),
        case("causal and a mask", dict(x=(2, 5, 6), attn_mask=given(lambda g, o: _with_first(g, 2, 5))), init=CAUSAL),
        case("one token", dict(x=(2, 1, 6)), init=CAUSAL),
        case("short, long, short", dict(x=(2, 3, 6)), then=(dict(x=(2, 7, 6)), dict(x=(1, 3, 6))), init=CAUSAL),
        case("other sizes", dict(x=(1, 4, 5)), init=dict(d_model=5, d_head=7, causal=True)),
        case(
            "another mask of the same size",
            X | dict(attn_mask=mask(5, 5)),
            then=(X | dict(attn_mask=mask(5, 5)),),
            init=SIZES,
        ),
        case(
            "mask, no mask, another mask",
            X | dict(attn_mask=mask(5, 5)),
            then=(X, X | dict(attn_mask=mask(5, 5))),
            init=CAUSAL,
            kind="edge",
        ),
        case("in train mode", X, init=CAUSAL, train=True),
        case("batch as long as the sentence", dict(x=(4, 4, 6), attn_mask=mask(4, 1, 4)), init=SIZES),
        case("one token, seen or hidden", dict(x=(4, 1, 6), attn_mask=mask(4, 1, 1)), init=SIZES, kind="edge"),
        case(
            "a row with nothing to see",
            X | dict(attn_mask=mask(2, 5, 5, empty=[(0, 2), (1, 0)])),
            init=SIZES,
            kind="edge",
        ),
        case(
            "causal and the first key hidden",
            X
            | dict(attn_mask=given(lambda g, o: torch.tensor([False, True, True, True, True]).expand(2, 1, 5).clone())),
            init=CAUSAL,
            kind="edge",
        ),
    ),
    mistakes={
        "scores were not divided by √d_head": wrong_self(
            mix=lambda self, x, q, k, v, visible: oracle.sdpa(q * q.shape[-1] ** 0.5, k, v, visible)
        ),
        "the scale is √d_head": wrong_self(
            mix=lambda self, x, q, k, v, visible: oracle.sdpa(q * (q.shape[-1] / x.shape[-1]) ** 0.5, k, v, visible)
        ),
        "queries and keys share a matrix": wrong_self(
            mix=lambda self, x, q, k, v, visible: oracle.sdpa(q, q, v, visible)
        ),
        "values were not projected": Replays(
            wrong_self(mix=lambda self, x, q, k, v, visible: oracle.sdpa(q, k, x, visible)),
            wrong_self(mix=lambda self, x, q, k, v, visible: oracle.sdpa(q, k, x[..., : q.shape[-1]], visible)),
        ),
        "keys were used as values": wrong_self(mix=lambda self, x, q, k, v, visible: oracle.sdpa(q, k, k, visible)),
        "the queries have no influence": wrong_self(
            mix=lambda self, x, q, k, v, visible: oracle.sdpa(torch.zeros_like(q), k, v, visible)
        ),
        "the bias is missing": Spotted(rules.no_bias, _NoBias, also=(_BiasNotAdded,)),
        "causal was ignored": wrong_self(visible=lambda self, x, attn_mask: attn_mask),
        "causal replaced attn_mask: both must hold": wrong_self(
            visible=lambda self, x, attn_mask: oracle.causal_mask(x.shape[-2]) if self.causal else attn_mask
        ),
        "attn_mask was ignored": wrong_self(
            visible=lambda self, x, attn_mask: oracle.causal_mask(x.shape[-2]) if self.causal else None
        ),
        "always causal": wrong_self(
            visible=lambda self, x, attn_mask: oracle.combine_masks(attn_mask, oracle.causal_mask(x.shape[-2]))
        ),
        "a token may see itself": _StrictlyCausal,
        "True means may attend": wrong_self(
            mix=lambda self, x, q, k, v, visible: oracle.sdpa(q, k, v, None if visible is None else ~visible)
        ),
    },
)


def _with_first(generator, batch, length):
    """A mask that always shows the first key, so that no causal row is empty."""
    table = mask(batch, length, length).draw(generator, {})
    table[..., 0] = True
    return table


class _Cross(oracle.CrossAttention):
    def forward(self, x, memory, attn_mask=None):
        return self.mix(x, memory, self.w_q(x), self.w_k(memory), self.w_v(memory), attn_mask)


def wrong_cross(mix):
    return type("WrongCrossAttention", (_Cross,), {"mix": mix})


def causal(q, k, seen):
    return oracle.combine_masks(seen, oracle.causal_mask(q.shape[-2], k.shape[-2]))


def loud_memory(*shape):
    """Memory with one enormous token, which `without_loud` hides."""

    def draw(generator, others):
        memory = torch.randn(shape, generator=generator, dtype=torch.float64) * 0.8
        memory[..., LOUD, :] *= 30
        return memory

    return given(draw)


PAIR = dict(x=(2, 5, 6), memory=(2, 7, 8))
WIDTHS = dict(d_model=6, d_memory=8, d_head=4)

register(
    expected=oracle.CrossAttention,
    phase=PHASE,
    section="2.9",
    hint="queries come from x, keys and values from memory; nothing here is causal.",
    cases=(
        case("five queries, seven keys", PAIR, init=WIDTHS),
        case("five queries, three keys", dict(x=(2, 5, 6), memory=(2, 3, 8)), init=WIDTHS),
        case("one query", dict(x=(2, 1, 6), memory=(2, 7, 8)), init=WIDTHS),
        case("as many queries as keys", dict(x=(2, 5, 6), memory=(2, 5, 8)), init=WIDTHS),
        case("a mask", PAIR | dict(attn_mask=mask(5, 7)), init=WIDTHS),
        case("a mask per batch row", PAIR | dict(attn_mask=mask(2, 5, 7)), init=WIDTHS),
        case("one mask, with a batch axis", PAIR | dict(attn_mask=mask(1, 5, 7)), init=WIDTHS),
        case(
            "batch as long as the queries, one mask",
            dict(x=(5, 5, 6), memory=(5, 7, 8), attn_mask=mask(5, 7)),
            init=WIDTHS,
        ),
        case("a mask, then none", PAIR | dict(attn_mask=mask(5, 7)), then=(PAIR,), init=WIDTHS),
        case("hidden memory per batch row", PAIR | dict(attn_mask=mask(2, 1, 7)), init=WIDTHS),
        case(
            "hidden memory is loud",
            dict(x=(2, 5, 6), memory=loud_memory(2, 7, 8), attn_mask=without_loud(2, 5, 7)),
            init=WIDTHS,
        ),
        case("batch as long as the memory", dict(x=(4, 3, 6), memory=(4, 4, 8), attn_mask=mask(4, 1, 4)), init=WIDTHS),
        case("one kind of width", dict(x=(1, 3, 5), memory=(1, 4, 5)), init=dict(d_model=5, d_memory=5, d_head=7)),
        case(
            "another memory of the same size",
            PAIR | dict(attn_mask=mask(5, 7)),
            then=(PAIR | dict(attn_mask=mask(5, 7)),),
            init=WIDTHS,
        ),
        case("in train mode", PAIR, init=WIDTHS, train=True),
        case("long, then short", PAIR, then=(dict(x=(1, 2, 6), memory=(1, 3, 8)),), init=WIDTHS),
        case(
            "one token of memory, seen or hidden",
            dict(x=(4, 3, 6), memory=(4, 1, 8), attn_mask=mask(4, 1, 1)),
            init=WIDTHS,
            kind="edge",
        ),
        case(
            "a row with nothing to see",
            PAIR | dict(attn_mask=mask(2, 5, 7, empty=[(0, 2), (1, 4)])),
            init=WIDTHS,
            kind="edge",
        ),
        case("memory that is all hidden", PAIR | dict(attn_mask=mask(2, 1, 7, empty=[(1,)])), init=WIDTHS, kind="edge"),
    ),
    mistakes={
        "scores were not divided by √d_head": wrong_cross(
            lambda self, x, memory, q, k, v, seen: oracle.sdpa(q * q.shape[-1] ** 0.5, k, v, seen)
        ),
        "the scale is √d_head": wrong_cross(
            lambda self, x, memory, q, k, v, seen: oracle.sdpa(q * (q.shape[-1] / x.shape[-1]) ** 0.5, k, v, seen)
        ),
        "attention weights are missing": wrong_cross(
            lambda self, x, memory, q, k, v, seen: v.mean(-2, keepdim=True).expand(*q.shape)
        ),
        "the memory may be seen whole": Replays(
            wrong_cross(lambda self, x, memory, q, k, v, seen: oracle.sdpa(q, k, v, causal(q, k, seen).tril())),
            wrong_cross(lambda self, x, memory, q, k, v, seen: oracle.sdpa(q, k, v, causal(q, k, seen))),
        ),
        "True means may attend": wrong_cross(
            lambda self, x, memory, q, k, v, seen: oracle.sdpa(q, k, v, None if seen is None else ~seen)
        ),
        "attn_mask was ignored": wrong_cross(lambda self, x, memory, q, k, v, seen: oracle.sdpa(q, k, v)),
        "softmax ran over the queries": wrong_cross(
            lambda self, x, memory, q, k, v, seen: oracle.masked_softmax(q @ k.mT / q.shape[-1] ** 0.5, seen, -2) @ v
        ),
        "w_v was not used": wrong_cross(lambda self, x, memory, q, k, v, seen: oracle.sdpa(q, k, k, seen)),
    },
)
