"""EncoderBlock and DecoderBlock."""

import torch
import torch.nn.functional as F

from utils import oracle
from utils.checks.draw import given, mask
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase4 import PHASE, rules
from utils.checks.phase4.residual import Parts, mistakes_of, zeros

SIZES = dict(d_model=12, n_heads=3, d_ff=20)
POST = SIZES | dict(norm_first=False)
X = dict(x=(2, 5, 12))


def dropped(name, args, inner, *silent, p=0.5):
    """A case in which all branches but one are silent: how much of that one is dropped?"""
    init = SIZES | dict(dropout=p)
    judge = rules.branch_dropout(p, inner)
    return case(name, args, then=(args,), init=init, kind="chance", judge=judge, grad=False, zero=silent)


class _Encoder(Parts, oracle.EncoderBlock):
    """A wrong twin in its parts; as it stands it is the right one."""

    def forward(self, x, attn_mask=None):
        middle = self.add(x, self.norm1, lambda inside: self.attend(inside, attn_mask))
        return self.second(x, middle)

    def attend(self, inside, attn_mask):
        return self.attention(inside, attn_mask=attn_mask)

    def second(self, x, middle):
        return self.add(middle, self.norm2, self.ffn)


def wrong(base, **methods):
    return type("Wrong", (base,), methods)


def own_skip(self, x, middle):
    """The second sum starts at the block's input."""
    inside = self.norm2(middle) if self.norm_first else middle
    total = x + self.drop(self.ffn(inside))
    return total if self.norm_first else self.norm2(total)


def ffn_first(self, x, attn_mask=None):
    x = self.add(x, self.norm1, self.ffn)
    return self.add(x, self.norm2, lambda inside: self.attend(inside, attn_mask))


def side_by_side(self, x, attn_mask=None):
    """Both branches read x."""
    if not self.norm_first:
        return self.norm2(x + self.drop(self.attend(x, attn_mask)) + self.drop(self.ffn(x)))
    return x + self.drop(self.attend(self.norm1(x), attn_mask)) + self.drop(self.ffn(self.norm2(x)))


class _NotAdded(_Encoder):
    def forward(self, x, attn_mask=None):
        middle = self.drop(self.attend(self.norm1(x) if self.norm_first else x, attn_mask))
        return self.second(x, middle if self.norm_first else self.norm1(middle))


class _OneNorm(_Encoder):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        del self.norm2

    def second(self, x, middle):
        return self.add(middle, self.norm1, self.ffn)


class _Relu(_Encoder):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.ffn.activation = F.relu


def causal(x, attn_mask):
    return oracle.combine_masks(oracle.causal_mask(x.shape[1]), attn_mask)


MASKED = X | dict(attn_mask=mask(2, 1, 5, 5))

register(
    expected=oracle.EncoderBlock,
    phase=PHASE,
    section="4.8",
    hint="attention branch, then FFN branch, each with its own norm and its own skip; nothing is causal.",
    bans=("attention", "blocks"),
    cases=(
        case("pre-norm", X, init=SIZES),
        case("post-norm", X, init=POST),
        case("padded keys", X | dict(attn_mask=mask(2, 1, 1, 5)), init=SIZES),
        case("padded keys, post-norm", X | dict(attn_mask=mask(2, 1, 1, 5)), init=POST, grad=False),
        case("a mask for each sentence", MASKED, init=SIZES),
        case("one mask for all", X | dict(attn_mask=mask(5, 5)), init=SIZES, grad=False),
        case("a mask for each head", X | dict(attn_mask=mask(2, 3, 5, 5)), init=POST, grad=False),
        case("one head, other sizes", dict(x=(3, 4, 6)), init=dict(d_model=6, n_heads=1, d_ff=5)),
        case("two calls, training", dict(x=(1, 3, 12)), then=(MASKED,), init=SIZES, train=True),
        case("dropout 0.5 in eval", X, init=SIZES | dict(dropout=0.5), grad=False),
        case("dropout 1 in training", X, init=SIZES | dict(dropout=1.0), train=True, grad=False),
        case("dropout 1 in training, post-norm", X, init=POST | dict(dropout=1.0), train=True, grad=False),
        dropped("dropout in the attention branch", dict(x=zeros(8, 20, 12)), "on the attention weights", "ffn.w_2"),
        dropped("dropout in the FFN branch", dict(x=zeros(8, 20, 12)), "on the hidden layer", "attention.w_o"),
        case(
            "a row with nothing to see",
            X | dict(attn_mask=mask(2, 1, 5, 5, empty=[(1, 0, 2)])),
            init=SIZES,
            kind="edge",
        ),
    ),
    mistakes=mistakes_of(oracle.EncoderBlock)
    | {
        "two norms": Spotted(
            rules.norm_missing("norm2.gamma", "norm2.beta"),
            _OneNorm,
            also=(wrong(_Encoder, second=lambda self, x, middle: self.add(middle, self.norm1, self.ffn)),),
        ),
        "the second skip starts after the first": wrong(_Encoder, second=own_skip),
        "attention first, then the FFN": wrong(_Encoder, forward=ffn_first),
        "the FFN reads what attention left": wrong(_Encoder, forward=side_by_side),
        "the mask hides keys, not queries": wrong(
            _Encoder,
            attend=lambda self, inside, attn_mask: self.attention(
                inside, attn_mask=None if attn_mask is None else attn_mask.mT
            ),
        ),
        "an encoder looks both ways": wrong(
            _Encoder, attend=lambda self, inside, attn_mask: self.attention(inside, attn_mask=causal(inside, attn_mask))
        ),
        "attention's output was not added": _NotAdded,
        "the mask was ignored": wrong(_Encoder, attend=lambda self, inside, attn_mask: self.attention(inside)),
        "True means may attend": wrong(
            _Encoder,
            attend=lambda self, inside, attn_mask: self.attention(
                inside, attn_mask=None if attn_mask is None else ~attn_mask
            ),
        ),
        "blocks use gelu": _Relu,
        "the FFN is missing": wrong(_Encoder, second=lambda self, x, middle: middle),
    },
)


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
    },
)
