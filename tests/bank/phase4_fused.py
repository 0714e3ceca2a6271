"""FusedSelfAttention: the faults of the notes' second listing and unusual right solutions."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.bank import right, wrong
from tests.bank.attention_parts import HIDDEN, visible_softmax


class Fused(nn.Module):
    """Right as it stands; a wrong solution changes one method."""

    def __init__(self, d_model, n_heads, d_head=None, dropout=0.0):
        super().__init__()
        self.sizes(d_model, n_heads, d_head)
        self.n_heads, self.p = n_heads, dropout
        self.make(d_model)

    def sizes(self, d_model, n_heads, d_head):
        if d_head is None and d_model % n_heads:
            raise ValueError("n_heads must divide d_model, unless d_head is given")
        self.d_head = d_model // n_heads if d_head is None else d_head

    def make(self, d_model):
        self.w_qkv = nn.Linear(d_model, 3 * self.n_heads * self.d_head)
        self.w_o = nn.Linear(self.n_heads * self.d_head, d_model)

    def split(self, fused):
        batch, seq_len, _ = fused.shape
        return fused.view(batch, seq_len, 3, self.n_heads, self.d_head).permute(2, 0, 3, 1, 4)

    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / math.sqrt(self.d_head)

    def mask(self, attn_mask):
        return None if attn_mask is None else attn_mask.unsqueeze(1)

    def weights(self, scores, mask):
        return visible_softmax(scores, mask)

    def drop(self, weights):
        return F.dropout(weights, self.p, self.training)

    def merge(self, mixed):
        return mixed.transpose(1, 2).flatten(2)

    def forward(self, x, attn_mask=None):
        q, k, v = self.split(self.w_qkv(x))
        weights = self.weights(self.scores(q, k), self.mask(attn_mask))
        return self.w_o(self.merge(self.drop(weights) @ v))


# ---------------------------------------------------------------- wrong

AXIS = "the mask needs an axis for heads: attn_mask[:, None]"
EMPTY = "a row with nothing to see must be zeros"
SIZES = "n_heads · d_head need not be d_model"


@wrong("FusedSelfAttention")
class Listing(nn.Module):
    """The listing of the notes with its names filled in: all faults together."""

    def __init__(self, d_model, n_heads, d_head=None, dropout=0.0):
        super().__init__()
        self.n_heads, self.d_head = n_heads, d_head or d_model // n_heads
        self.w_qkv, self.w_o = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x, attn_mask=None):
        batch, seq_len, d_model = x.shape
        heads = self.w_qkv(x).view(batch, seq_len, 3, self.n_heads, self.d_head)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.d_head)
        if attn_mask is not None:
            scores = scores + torch.zeros(attn_mask.shape).masked_fill(~attn_mask, -1e9)
        mixed = torch.matmul(torch.softmax(scores, dim=-1), v)
        return self.w_o(mixed.permute(0, 2, 1, 3).contiguous().view(batch, seq_len, d_model))


@wrong("FusedSelfAttention", says=AXIS)
class MaskWithoutHeads(Fused):
    def mask(self, attn_mask):
        return attn_mask

    def weights(self, scores, mask):
        if mask is None:
            return scores.softmax(-1)
        return scores.masked_fill(~mask, HIDDEN).softmax(-1).nan_to_num(0.0)


@wrong("FusedSelfAttention", says=AXIS)
class MaskOnHeadsWhenItFits(Fused):
    def mask(self, attn_mask):
        if attn_mask is None or len(attn_mask) in (1, self.n_heads):
            return attn_mask
        return attn_mask[:, None]


@wrong("FusedSelfAttention")
class FirstSentencesMask(Fused):
    def mask(self, attn_mask):
        return None if attn_mask is None else attn_mask[0]


@wrong("FusedSelfAttention", says=SIZES)
class SquareMatrices(Fused):
    def make(self, d_model):
        self.w_qkv, self.w_o = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)


@wrong("FusedSelfAttention", says=SIZES)
class WidthIgnored(Fused):
    def sizes(self, d_model, n_heads, d_head):
        super().sizes(d_model, n_heads, None)


@wrong("FusedSelfAttention", says="without d_head, n_heads must divide d_model")
class NeverRefuses(Fused):
    def sizes(self, d_model, n_heads, d_head):
        self.d_head = d_head or d_model // n_heads


@wrong("FusedSelfAttention")
class RefusesTooMuch(Fused):
    def sizes(self, d_model, n_heads, d_head):
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        super().sizes(d_model, n_heads, d_head)


@wrong("FusedSelfAttention", says=EMPTY)
class LargeNegativeAdded(Fused):
    def weights(self, scores, mask):
        return (scores if mask is None else scores + (~mask) * -1e9).softmax(-1)


@wrong("FusedSelfAttention", says=EMPTY)
class LowestNumber(Fused):
    def weights(self, scores, mask):
        return (scores if mask is None else scores.masked_fill(~mask, torch.finfo(scores.dtype).min)).softmax(-1)


@wrong("FusedSelfAttention", says=EMPTY)
class NotANumber(Fused):
    def weights(self, scores, mask):
        return (scores if mask is None else scores.masked_fill(~mask, HIDDEN)).softmax(-1)


@wrong("FusedSelfAttention", says="a boolean mask cannot be added: True is 1")
class BooleanAdded(Fused):
    def weights(self, scores, mask):
        return (scores if mask is None else scores + mask).softmax(-1)


@wrong("FusedSelfAttention", says="True means may attend")
class Inverted(Fused):
    def mask(self, attn_mask):
        return None if attn_mask is None else ~attn_mask[:, None]


@wrong("FusedSelfAttention", says="dropout does nothing")
class Undropped(Fused):
    def drop(self, weights):
        return weights


@wrong("FusedSelfAttention", says="dropout must be off in eval mode")
class AlwaysDropped(Fused):
    def drop(self, weights):
        return F.dropout(weights, self.p)


@wrong("FusedSelfAttention")
class DroppedOutput(Fused):
    def drop(self, weights):
        return weights

    def merge(self, mixed):
        return F.dropout(super().merge(mixed), self.p, self.training)


@wrong("FusedSelfAttention")
class DroppedScores(Fused):
    def drop(self, weights):
        return weights

    def weights(self, scores, mask):
        return super().weights(F.dropout(scores, self.p, self.training), mask)


@wrong("FusedSelfAttention", says="rows of w_qkv come as q, k, v, and in each head after head")
class HeadsFirst(Fused):
    def split(self, fused):
        return fused.unflatten(-1, (self.n_heads, 3, self.d_head)).permute(3, 0, 2, 1, 4)


@wrong("FusedSelfAttention", says="tokens and heads were mixed: bring heads beside their width, then merge")
class MergedInPlace(Fused):
    def merge(self, mixed):
        return mixed.reshape(len(mixed), mixed.shape[2], -1)


@wrong("FusedSelfAttention", says="the scale is √d_head")
class WholeWidthScale(Fused):
    def scores(self, q, k):
        return q @ k.mT / math.sqrt(self.n_heads * self.d_head)


@wrong("FusedSelfAttention", says="the scale is √d_head")
class ModelWidthScale(Fused):
    def scores(self, q, k):
        return q @ k.mT / math.sqrt(self.w_o.out_features)


@wrong("FusedSelfAttention")
class Detached(Fused):
    def weights(self, scores, mask):
        return super().weights(scores, mask).detach()


# ---------------------------------------------------------------- right


@right("FusedSelfAttention", why="einsum and three chunks")
class Einsum(Fused):
    def forward(self, x, attn_mask=None):
        q, k, v = (part.unflatten(-1, (self.n_heads, -1)) for part in self.w_qkv(x).chunk(3, -1))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / self.d_head**0.5
        weights = self.drop(self.weights(scores, self.mask(attn_mask)))
        return self.w_o(torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2))


@right("FusedSelfAttention", why="one head after the other")
class HeadByHead(Fused):
    def forward(self, x, attn_mask=None):
        q, k, v = self.w_qkv(x).chunk(3, -1)
        mixed = []
        for head in range(self.n_heads):
            part = slice(head * self.d_head, (head + 1) * self.d_head)
            weights = self.weights(q[..., part] @ k[..., part].mT / self.d_head**0.5, attn_mask)
            mixed.append(self.drop(weights) @ v[..., part])
        return self.w_o(torch.cat(mixed, -1))


@right("FusedSelfAttention", why="heads beside the batch, the mask repeated")
class HeadsInTheBatch(Fused):
    def forward(self, x, attn_mask=None):
        q, k, v = (part.flatten(0, 1) for part in self.split(self.w_qkv(x)))
        mask = None if attn_mask is None else attn_mask.repeat_interleave(self.n_heads, 0)
        mixed = self.drop(self.weights(self.scores(q, k), mask)) @ v
        return self.w_o(self.merge(mixed.unflatten(0, (len(x), self.n_heads))))


@right("FusedSelfAttention", why="three matrices, filled by load_weights; nn.Dropout")
class Apart(Fused):
    def make(self, d_model):
        inner = self.n_heads * self.d_head
        self.q, self.k, self.v = (nn.Linear(d_model, inner) for _ in range(3))
        self.out, self.dropout = nn.Linear(inner, d_model), nn.Dropout(self.p)

    def load_weights(self, weights):
        for index, layer in enumerate((self.q, self.k, self.v)):
            layer.weight.copy_(weights["w_qkv.weight"].chunk(3)[index])
            layer.bias.copy_(weights["w_qkv.bias"].chunk(3)[index])
        self.out.weight.copy_(weights["w_o.weight"])
        self.out.bias.copy_(weights["w_o.bias"])

    def forward(self, x, attn_mask=None):
        q, k, v = (layer(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        weights = self.weights(self.scores(q, k), self.mask(attn_mask))
        return self.out(self.merge(self.dropout(weights) @ v))


@right("FusedSelfAttention", why="the sums of exponentials by hand, masked by multiplication")
class ByHand(Fused):
    def weights(self, scores, mask):
        exps = (scores - scores.amax(-1, keepdim=True).detach()).exp()
        exps = exps if mask is None else exps * mask
        total = exps.sum(-1, keepdim=True)
        return exps / torch.where(total == 0, torch.ones_like(total), total)
