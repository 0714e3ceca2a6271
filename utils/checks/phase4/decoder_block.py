"""DecoderBlock."""

import torch

from utils import oracle
from utils.checks.draw import given, mask
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase4 import PHASE, rules
from utils.checks.phase4.blocks import POST, SIZES, X, causal, dropped, wrong
from utils.checks.phase4.residual import Parts, also_in_one_order, mistakes_of, zeros


class _Decoder(Parts, oracle.DecoderBlock):
    def forward(self, x, memory, attn_mask=None, memory_mask=None):
        x = self.own(x, attn_mask)
        x = self.cross(x, memory, memory_mask)
        return self.add(x, self.norm3, self.ffn)

    def own(self, x, attn_mask):
        seen = self.visible(x, attn_mask)
        return self.add(x, self.norm1, lambda inside: self.self_attention(inside, attn_mask=seen))

    def visible(self, x, attn_mask):
        return causal(x, attn_mask)

    def cross(self, x, memory, memory_mask):
        return self.add(x, self.norm2, lambda inside: self.read(inside, memory, memory_mask))

    def read(self, inside, memory, memory_mask):
        return self.cross_attention(inside, memory=memory, attn_mask=memory_mask)


def swapped(self, x, memory, attn_mask=None, memory_mask=None):
    """Cross-attention first, each sub-layer with the norm of its name."""
    x = self.cross(x, memory, memory_mask)
    return self.add(self.own(x, attn_mask), self.norm3, self.ffn)


def swapped_norms_in_order(self, x, memory, attn_mask=None, memory_mask=None):
    seen = self.visible(x, attn_mask)
    x = self.add(x, self.norm1, lambda inside: self.read(inside, memory, memory_mask))
    x = self.add(x, self.norm2, lambda inside: self.self_attention(inside, attn_mask=seen))
    return self.add(x, self.norm3, self.ffn)


def ffn_in_the_middle(self, x, memory, attn_mask=None, memory_mask=None):
    x = self.add(self.own(x, attn_mask), self.norm3, self.ffn)
    return self.cross(x, memory, memory_mask)


class _Sums(_Decoder):
    """Each sub-layer's sum by its number; as it stands it is the right one."""

    def forward(self, x, memory, attn_mask=None, memory_mask=None):
        seen = self.visible(x, attn_mask)
        x = self.step(0, x, self.norm1, lambda inside: self.self_attention(inside, attn_mask=seen))
        x = self.step(1, x, self.norm2, lambda inside: self.read(inside, memory, memory_mask))
        return self.step(2, x, self.norm3, self.ffn)

    def step(self, number, x, norm, branch):
        return self.add(x, norm, branch)


def at(number, change):
    """A wrong twin: at one sum, change(self, x, norm, branch) takes its place."""

    def step(self, place, x, norm, branch):
        return change(self, x, norm, branch) if place == number else self.add(x, norm, branch)

    return wrong(_Sums, step=step)


def not_added(self, x, norm, branch):
    return self.drop(branch(norm(x))) if self.norm_first else norm(self.drop(branch(x)))


def not_normed(self, x, norm, branch):
    return x + self.drop(branch(x)) if self.norm_first else self.add(x, norm, branch)


def not_dropped(self, x, norm, branch):
    return x + branch(norm(x)) if self.norm_first else norm(x + branch(x))


class _OneAttention(_Decoder):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.cross_attention = self.self_attention


class _DecoderBias(_Decoder):
    def __init__(self, d_model, n_heads, d_ff, norm_first=True, dropout=0.0):
        super().__init__(d_model, n_heads, d_ff, norm_first, dropout)
        self.self_attention = oracle.MultiHeadAttention(d_model, n_heads, dropout)


class _DecoderNames(_Decoder):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.attention = self.self_attention
        del self.self_attention


class _TwoNorms(_Decoder):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        del self.norm3

    def forward(self, x, memory, attn_mask=None, memory_mask=None):
        x = self.cross(self.own(x, attn_mask), memory, memory_mask)
        return self.add(x, self.norm2, self.ffn)


def shared_norm(self, x, memory, attn_mask=None, memory_mask=None):
    return _TwoNorms.forward(self, x, memory, attn_mask, memory_mask)


def first_visible(*shape):
    """A mask that always shows the first key: with the triangle, no row is empty."""

    def draw(generator, others):
        table = mask(*shape).draw(generator, others)
        table[..., 0] = True
        return table

    return given(draw)


PAIR = X | dict(memory=(2, 7, 12))
BOTH = PAIR | dict(attn_mask=first_visible(2, 1, 1, 5), memory_mask=mask(2, 1, 1, 7))

register(
    expected=oracle.DecoderBlock,
    phase=PHASE,
    section="4.9",
    hint="three branches: causal self-attention, cross-attention over memory, FFN; each with its own norm and skip.",
    bans=("attention", "blocks"),
    cases=(
        case("pre-norm", PAIR, init=SIZES),
        case("post-norm", PAIR, init=POST),
        case("both masks", BOTH, init=SIZES),
        case("both masks, post-norm", BOTH, init=POST),
        case("attn_mask alone, a row each", PAIR | dict(attn_mask=first_visible(2, 1, 5, 5)), init=SIZES),
        case("attn_mask for all", PAIR | dict(attn_mask=first_visible(5, 5)), init=SIZES, grad=False),
        case("memory_mask alone", PAIR | dict(memory_mask=mask(2, 1, 1, 7)), init=SIZES, grad=False),
        case("memory_mask for each query", PAIR | dict(memory_mask=mask(2, 1, 5, 7)), init=SIZES),
        case("memory as long as x", X | dict(memory=(2, 5, 12)), init=SIZES, grad=False),
        case("one token, one memory", dict(x=(2, 1, 12), memory=(2, 1, 12)), init=SIZES, grad=False),
        case("one head, other sizes", dict(x=(3, 4, 6), memory=(3, 2, 6)), init=dict(d_model=6, n_heads=1, d_ff=5)),
        case("two calls, training", dict(x=(1, 3, 12), memory=(1, 2, 12)), then=(BOTH,), init=SIZES, train=True),
        case("dropout 0.5 in eval", PAIR, init=SIZES | dict(dropout=0.5), grad=False),
        case("dropout 1 in training", PAIR, init=SIZES | dict(dropout=1.0), train=True, grad=False),
        case("dropout 1 in training, post-norm", PAIR, init=POST | dict(dropout=1.0), train=True, grad=False),
        *(
            dropped(f"dropout in the {name}", dict(x=zeros(8, 20, 12), memory=(8, 7, 12)), inner, *silent)
            for name, inner, silent in (
                ("self-attention branch", "on the attention weights", ("ffn.w_2", "cross_attention.w_o")),
                ("cross-attention branch", "on the attention weights", ("ffn.w_2", "self_attention.w_o")),
                ("FFN branch", "on the hidden layer", ("self_attention.w_o", "cross_attention.w_o")),
            )
        ),
        case(
            "memory that is all hidden",
            PAIR | dict(memory_mask=mask(2, 1, 1, 7, empty=[(1,)])),
            init=SIZES,
            kind="edge",
        ),
    ),
    mistakes=mistakes_of(oracle.DecoderBlock)
    | {
        "self, cross, feed-forward": Replays(
            *(wrong(_Decoder, forward=order) for order in (swapped, swapped_norms_in_order, ffn_in_the_middle))
        ),
        "no causal mask on cross-attention": wrong(
            _Decoder,
            read=lambda self, inside, memory, memory_mask: self.cross_attention(
                inside,
                memory=memory,
                attn_mask=oracle.combine_masks(
                    torch.ones(inside.shape[1], memory.shape[1], dtype=torch.bool).tril(), memory_mask
                ),
            ),
        ),
        "keys and values come from memory": wrong(
            _Decoder, read=lambda self, inside, memory, memory_mask: self.cross_attention(inside)
        ),
        "the encoder has normed it": wrong(
            _Decoder,
            read=lambda self, inside, memory, memory_mask: self.cross_attention(
                inside, memory=self.norm2(memory), attn_mask=memory_mask
            ),
        ),
        "memory_mask was ignored": wrong(
            _Decoder, read=lambda self, inside, memory, memory_mask: self.cross_attention(inside, memory=memory)
        ),
        "cross-attention was left out": wrong(_Decoder, cross=lambda self, x, memory, memory_mask: x),
        "three norms": Spotted(
            rules.norm_missing("norm3.gamma", "norm3.beta"), _TwoNorms, also=(wrong(_Decoder, forward=shared_norm),)
        ),
        "a decoder does not see the future": wrong(_Decoder, visible=lambda self, x, attn_mask: attn_mask),
        "causal also when attn_mask is given: both must hold": wrong(
            _Decoder,
            visible=lambda self, x, attn_mask: oracle.causal_mask(x.shape[1]) if attn_mask is None else attn_mask,
        ),
        "attn_mask was ignored": wrong(_Decoder, visible=lambda self, x, attn_mask: oracle.causal_mask(x.shape[1])),
        "both masks must hold: and, not or": wrong(
            _Decoder,
            visible=lambda self, x, attn_mask: (
                oracle.causal_mask(x.shape[1]) if attn_mask is None else oracle.causal_mask(x.shape[1]) | attn_mask
            ),
        ),
        "in pre-norm cross-attention reads norm2(x)": at(1, not_normed),
        "self-attention's output was not added": also_in_one_order(_Decoder, at(0, not_added)),
        "cross-attention's output was not added": also_in_one_order(_Decoder, at(1, not_added)),
        "the FFN's output was not added": also_in_one_order(_Decoder, at(2, not_added)),
        "dropout on all three branches": Replays(*(at(number, not_dropped) for number in range(3))),
        "two attentions, each with weights of its own": Spotted(rules.fewer_parameters, _OneAttention),
        "hand the mask on by keyword: the second place is memory": Spotted(
            rules.mask_as_memory,
            wrong(
                _Decoder,
                own=lambda self, x, attn_mask: self.add(
                    x, self.norm1, lambda inside: self.self_attention(inside, self.visible(x, attn_mask))
                ),
            ),
            certain=True,
        ),
        "hand dropout on by keyword: the third place is bias": Spotted(
            rules.missing("self_attention.w_q.bias", "cross_attention.w_q.bias"), _DecoderBias
        ),
        "name the parts norm1, self_attention, norm2, cross_attention, norm3, ffn": Spotted(
            rules.parts_missing, _DecoderNames
        ),
    },
)
