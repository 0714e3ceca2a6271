"""Residual, EncoderBlock: wrong solutions and unusual right ones."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.bank import blocks_parts as parts
from tests.bank import right, wrong
from tests.bank.blocks_parts import triangle
from utils import oracle

ALL = {"Residual": parts.Residual, "EncoderBlock": parts.EncoderBlock, "DecoderBlock": parts.DecoderBlock}


def in_all(says):
    """Register a mixin with another `wrap` as a wrong solution of all three."""

    def register(mixin):
        for name, base in ALL.items():
            wrong(name, says=says)(type(mixin.__name__, (mixin, base), {}))
        return mixin

    return register


# ---------------------------------------------------------------- wrong in all three


@in_all("the norm belongs before the sub-layer")
class NormOfBranch:
    def wrap(self, x, norm, branch):
        return x + self.drop(norm(branch(x))) if self.norm_first else norm(x + self.drop(branch(x)))


@in_all("the skip carries x itself")
class NormedSkip:
    def wrap(self, x, norm, branch):
        if not self.norm_first:
            return norm(x + self.drop(branch(x)))
        x = norm(x)
        return x + self.drop(branch(x))


@in_all("there is no norm")
class NeverNormed:
    def wrap(self, x, norm, branch):
        return x + self.drop(branch(x))


@in_all("pre and post gave the same")
class AlwaysPre:
    def wrap(self, x, norm, branch):
        return x + self.drop(branch(norm(x)))


@in_all("pre and post gave the same")
class AlwaysPost:
    def wrap(self, x, norm, branch):
        return norm(x + self.drop(branch(x)))


@in_all(None)
class FlagUpsideDown:
    def wrap(self, x, norm, branch):
        return norm(x + self.drop(branch(x))) if self.norm_first else x + self.drop(branch(norm(x)))


@in_all("there is no skip")
class NoSkip:
    def wrap(self, x, norm, branch):
        return self.drop(branch(norm(x))) if self.norm_first else norm(self.drop(branch(x)))


@in_all("dropout does nothing")
class NoDropout:
    def wrap(self, x, norm, branch):
        return x + branch(norm(x)) if self.norm_first else norm(x + branch(x))


@in_all("drop the branch, not the skip")
class DropsTheSum:
    def wrap(self, x, norm, branch):
        return self.drop(x + branch(norm(x))) if self.norm_first else norm(self.drop(x + branch(x)))


@in_all("dropout must be off in eval mode")
class AlwaysDrops:
    def wrap(self, x, norm, branch):
        p = self.drop.p
        return x + F.dropout(branch(norm(x)), p, True) if self.norm_first else norm(x + F.dropout(branch(x), p, True))


@in_all(None)
class DropsBeforeTheBranch:
    def wrap(self, x, norm, branch):
        return x + branch(self.drop(norm(x))) if self.norm_first else norm(x + branch(self.drop(x)))


@in_all(None)
class InPlace:
    def wrap(self, x, norm, branch):
        if self.norm_first:
            x += self.drop(branch(norm(x)))
            return x
        x += self.drop(branch(x))
        return norm(x)


@in_all(None)
class SkipDetached:
    def wrap(self, x, norm, branch):
        return x.detach() + self.drop(branch(norm(x))) if self.norm_first else norm(x + self.drop(branch(x)))


# ---------------------------------------------------------------- wrong: Residual


@wrong("Residual", says="the sub-layer's other arguments were lost")
class Deaf(parts.Residual):
    def forward(self, x, *args, **kwargs):
        return self.wrap(x, self.norm, self.sublayer)


@wrong("Residual", says="the sub-layer's other arguments were lost")
class NoOptions(parts.Residual):
    def forward(self, x, *args, **kwargs):
        return self.wrap(x, self.norm, lambda inside: self.sublayer(inside, *args))


@wrong("Residual")
class OneArgument(parts.Residual):
    def forward(self, x):
        return self.wrap(x, self.norm, self.sublayer)


# ---------------------------------------------------------------- right: Residual


@right("Residual", why="nn.LayerNorm stands in for LayerNorm")
class TorchNorm(parts.Residual):
    def make_norm(self, d_model):
        self.norm = nn.LayerNorm(d_model)


@right("Residual", why="the order is chosen once, in the constructor")
class ChosenOnce(nn.Module):
    def __init__(self, sublayer, d_model, norm_first=True, dropout=0.0):
        super().__init__()
        self.sublayer, self.norm, self.dropout = sublayer, oracle.LayerNorm(d_model), nn.Dropout(dropout)
        self.before, self.after = (self.norm, nn.Identity()) if norm_first else (nn.Identity(), self.norm)

    def forward(self, x, *args, **kwargs):
        return self.after(x + self.dropout(self.sublayer(self.before(x), *args, **kwargs)))


@right("Residual", why="functions and F.dropout")
class Functional(parts.Residual):
    def wrap(self, x, norm, branch):
        before, after = (norm, lambda total: total) if self.norm_first else ((lambda value: value), norm)
        return after(torch.add(x, F.dropout(branch(before(x)), p=self.drop.p, training=self.training)))


@right("Residual", why="norm parameters of its own, filled through load_weights")
class OwnNorm(parts.Residual):
    def make_norm(self, d_model):
        self.scale = nn.Parameter(torch.stack([torch.ones(d_model), torch.zeros(d_model)]))

    def norm(self, x):
        return F.layer_norm(x, x.shape[-1:], self.scale[0], self.scale[1], 1e-5)

    def load_weights(self, weights):
        self.scale.copy_(torch.stack([weights["norm.gamma"], weights["norm.beta"]]))
        self.sublayer.load_state_dict(
            {name.removeprefix("sublayer."): value for name, value in weights.items() if "sublayer." in name}
        )


# ---------------------------------------------------------------- wrong: EncoderBlock


@wrong("EncoderBlock", says="two norms")
class OneNorm(parts.EncoderBlock):
    def make(self, *sizes):
        super().make(*sizes)
        self.norm2 = self.norm1


@wrong("EncoderBlock", says="two norms")
class NormOneTwice(parts.EncoderBlock):
    def forward(self, x, attn_mask=None):
        x = self.wrap(x, self.norm1, lambda inside: self.attend(inside, attn_mask))
        return self.wrap(x, self.norm1, self.ffn)


@wrong("EncoderBlock", says="the second skip starts after the first")
class SkipFromTheStart(parts.EncoderBlock):
    def forward(self, x, attn_mask=None):
        middle = self.wrap(x, self.norm1, lambda inside: self.attend(inside, attn_mask))
        if self.norm_first:
            return x + self.drop(self.ffn(self.norm2(middle)))
        return self.norm2(x + self.drop(self.ffn(middle)))


@wrong("EncoderBlock", says="attention first, then the FFN")
class FeedForwardFirst(parts.EncoderBlock):
    def forward(self, x, attn_mask=None):
        x = self.wrap(x, self.norm1, self.ffn)
        return self.wrap(x, self.norm2, lambda inside: self.attend(inside, attn_mask))


@wrong("EncoderBlock", says="the mask hides keys, not queries")
class MasksQueries(parts.EncoderBlock):
    def attend(self, x, attn_mask):
        return self.attention(x, attn_mask=None if attn_mask is None else attn_mask.transpose(-2, -1))


@wrong("EncoderBlock", says="an encoder looks both ways")
class Causal(parts.EncoderBlock):
    def attend(self, x, attn_mask):
        seen = triangle(x.shape[1])
        return self.attention(x, attn_mask=seen if attn_mask is None else seen & attn_mask)


@wrong("EncoderBlock", says="attention's output was not added")
class AttentionReplaces(parts.EncoderBlock):
    def forward(self, x, attn_mask=None):
        if self.norm_first:
            x = self.drop(self.attend(self.norm1(x), attn_mask))
        else:
            x = self.norm1(self.drop(self.attend(x, attn_mask)))
        return self.wrap(x, self.norm2, self.ffn)


@wrong("EncoderBlock", says="the mask was ignored")
class NoMask(parts.EncoderBlock):
    def attend(self, x, attn_mask):
        return self.attention(x)


@wrong("EncoderBlock", says="True means may attend")
class Inverted(parts.EncoderBlock):
    def attend(self, x, attn_mask):
        return self.attention(x, attn_mask=None if attn_mask is None else ~attn_mask)


@wrong("EncoderBlock", says="blocks use gelu")
class Relu(parts.EncoderBlock):
    def make(self, d_model, n_heads, d_ff, dropout):
        super().make(d_model, n_heads, d_ff, dropout)
        self.ffn = oracle.FeedForward(d_model, d_ff, "relu", dropout)


@wrong("EncoderBlock")
class NoInnerDropout(parts.EncoderBlock):
    def make(self, d_model, n_heads, d_ff, dropout):
        super().make(d_model, n_heads, d_ff, 0.0)


@wrong("EncoderBlock")
class NoDropoutInAttention(parts.EncoderBlock):
    def make(self, d_model, n_heads, d_ff, dropout):
        super().make(d_model, n_heads, d_ff, dropout)
        self.attention = oracle.MultiHeadAttention(d_model, n_heads)


@wrong("EncoderBlock")
class NoDropoutInFeedForward(parts.EncoderBlock):
    def make(self, d_model, n_heads, d_ff, dropout):
        super().make(d_model, n_heads, d_ff, dropout)
        self.ffn = oracle.FeedForward(d_model, d_ff)


@wrong("EncoderBlock")
class TorchsLayer(parts.EncoderBlock):
    def make(self, d_model, n_heads, d_ff, dropout):
        self.inner = nn.TransformerEncoderLayer(d_model, n_heads, d_ff, dropout, F.gelu, batch_first=True)

    def load_weights(self, weights):
        pass

    def forward(self, x, attn_mask=None):
        return self.inner(x)


@wrong("EncoderBlock", says="the FFN is missing")
class AttentionOnly(parts.EncoderBlock):
    def forward(self, x, attn_mask=None):
        return self.wrap(x, self.norm1, lambda inside: self.attend(inside, attn_mask))


# ---------------------------------------------------------------- right: EncoderBlock


@right("EncoderBlock", why="one helper that adds a branch")
class PlainEncoderBlock(parts.EncoderBlock):
    pass


@right("EncoderBlock", why="nn.LayerNorm stands in for LayerNorm")
class TorchNorms(parts.EncoderBlock):
    norm_class = nn.LayerNorm


@right("EncoderBlock", why="two Residuals, filled through load_weights")
class TwoResiduals(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, norm_first=True, dropout=0.0):
        super().__init__()
        attention = oracle.MultiHeadAttention(d_model, n_heads, dropout=dropout)
        ffn = oracle.FeedForward(d_model, d_ff, dropout=dropout)
        self.first = oracle.Residual(attention, d_model, norm_first, dropout)
        self.second = oracle.Residual(ffn, d_model, norm_first, dropout)

    def load_weights(self, weights):
        places = {
            "attention": "first.sublayer",
            "norm1": "first.norm",
            "ffn": "second.sublayer",
            "norm2": "second.norm",
        }
        renamed = {}
        for name, value in weights.items():
            head, _, rest = name.partition(".")
            renamed[f"{places[head]}.{rest}"] = value
        self.load_state_dict(renamed)

    def forward(self, x, attn_mask=None):
        return self.second(self.first(x, attn_mask=attn_mask))


class FusedAttention(nn.Module):
    """One matrix for queries, keys and values: it fills itself."""

    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__()
        self.n_heads, self.w_qkv, self.out = n_heads, nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def load_weights(self, weights):
        self.w_qkv.weight.copy_(torch.cat([weights[f"w_{part}.weight"] for part in "qkv"]))
        self.w_qkv.bias.copy_(torch.cat([weights[f"w_{part}.bias"] for part in "qkv"]))
        self.out.weight.copy_(weights["w_o.weight"])
        self.out.bias.copy_(weights["w_o.bias"])

    def forward(self, x, memory=None, attn_mask=None):
        source = x if memory is None else memory
        width = x.shape[-1]
        w_q, b_q = self.w_qkv.weight[:width], self.w_qkv.bias[:width]
        w_kv, b_kv = self.w_qkv.weight[width:], self.w_qkv.bias[width:]
        q, (k, v) = F.linear(x, w_q, b_q), F.linear(source, w_kv, b_kv).chunk(2, -1)
        q, k, v = (part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for part in (q, k, v))
        mixed = self.dropout(oracle.attention_weights(q, k, attn_mask)) @ v
        return self.out(mixed.transpose(1, 2).flatten(-2))


@right("EncoderBlock", why="the attention inside is fused and has a load_weights of its own")
class FusedInside(parts.EncoderBlock):
    def make(self, d_model, n_heads, d_ff, dropout):
        super().make(d_model, n_heads, d_ff, dropout)
        self.attention = FusedAttention(d_model, n_heads, dropout)
