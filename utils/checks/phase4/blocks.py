"""EncoderBlock."""

import torch.nn.functional as F

from utils import oracle
from utils.checks.draw import mask
from utils.checks.exercise import Spotted, case, register
from utils.checks.phase4 import PHASE, rules
from utils.checks.phase4.residual import Parts, also_in_one_order, mistakes_of, zeros

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


class _NormsExchanged(_Encoder):
    def forward(self, x, attn_mask=None):
        middle = self.add(x, self.norm2, lambda inside: self.attend(inside, attn_mask))
        return self.add(middle, self.norm1, self.ffn)


class _NotAddedFfn(_Encoder):
    def second(self, x, middle):
        left = self.drop(self.ffn(self.norm2(middle) if self.norm_first else middle))
        return left if self.norm_first else self.norm2(left)


class _DropsAttentionOnly(_Encoder):
    def second(self, x, middle):
        inside = self.norm2(middle) if self.norm_first else middle
        total = middle + self.ffn(inside)
        return total if self.norm_first else self.norm2(total)


class _DropsFfnOnly(_Encoder):
    def forward(self, x, attn_mask=None):
        total = x + self.attend(self.norm1(x) if self.norm_first else x, attn_mask)
        return self.second(x, total if self.norm_first else self.norm1(total))


class _MaskInSecondPlace(_Encoder):
    def attend(self, inside, attn_mask):
        return self.attention(inside, attn_mask)


class _DropoutInThirdPlace(_Encoder):
    def __init__(self, d_model, n_heads, d_ff, norm_first=True, dropout=0.0):
        super().__init__(d_model, n_heads, d_ff, norm_first, dropout)
        self.attention = oracle.MultiHeadAttention(d_model, n_heads, dropout)


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


class _OtherNames(_Encoder):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.attn = self.attention
        del self.attention


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
        "the second skip starts after the first": also_in_one_order(_Encoder, wrong(_Encoder, second=own_skip)),
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
        "attention's output was not added": also_in_one_order(_Encoder, _NotAdded),
        "the FFN's output was not added": also_in_one_order(_Encoder, _NotAddedFfn),
        "norm1 belongs to attention, norm2 to the FFN": also_in_one_order(_Encoder, _NormsExchanged),
        "dropout on both branches": also_in_one_order(_Encoder, _DropsAttentionOnly, _DropsFfnOnly),
        "hand the mask on by keyword: the second place is memory": Spotted(
            rules.mask_as_memory, _MaskInSecondPlace, certain=True
        ),
        "hand dropout on by keyword: the third place is bias": Spotted(
            rules.missing("attention.w_q.bias"), _DropoutInThirdPlace
        ),
        "name the parts norm1, attention, norm2, ffn": Spotted(rules.parts_missing, _OtherNames),
        "the mask was ignored": wrong(_Encoder, attend=lambda self, inside, attn_mask: self.attention(inside)),
        "True means may attend": wrong(
            _Encoder,
            attend=lambda self, inside, attn_mask: self.attention(
                inside, attn_mask=None if attn_mask is None else ~attn_mask
            ),
        ),
        "blocks use gelu": _Relu,
        "the FFN is missing": also_in_one_order(_Encoder, wrong(_Encoder, second=lambda self, x, middle: middle)),
    },
)
