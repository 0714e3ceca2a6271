"""Transformer: wrong solutions and unusual right ones."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.bank import right, wrong
from utils import oracle

# ---------------------------------------------------------------- Transformer


def sinusoids(seq_len, d_model, dtype):
    position = torch.arange(seq_len, dtype=dtype)[:, None]
    rate = torch.exp(torch.arange(0, d_model, 2, dtype=dtype) * (-math.log(10000.0) / d_model))
    table = torch.zeros(seq_len, d_model, dtype=dtype)
    table[:, 0::2], table[:, 1::2] = torch.sin(position * rate), torch.cos(position * rate)
    return table


class _Transformer(nn.Module):
    """Right as it stands; each wrong solution changes one method."""

    def __init__(self, src_vocab, tgt_vocab, d_model, n_heads, d_ff, n_layers, norm_first=True, dropout=0.0):
        super().__init__()
        self.scale = math.sqrt(d_model)
        self.src_embedding, self.tgt_embedding = nn.Embedding(src_vocab, d_model), nn.Embedding(tgt_vocab, d_model)
        self.encoder = oracle.Encoder(n_layers, d_model, n_heads, d_ff, norm_first, dropout)
        self.decoder = oracle.Decoder(n_layers, d_model, n_heads, d_ff, norm_first, dropout)
        self.drop = nn.Dropout(dropout)

    def enter(self, tokens, table):
        x = table(tokens) * self.scale
        return self.drop(x + sinusoids(*x.shape[1:], x.dtype))

    def masks(self, src_pad_mask, tgt_pad_mask):
        """For the encoder, the decoder itself, and the decoder's reading."""
        src, tgt = (None if pad is None else pad[:, None, None, :] for pad in (src_pad_mask, tgt_pad_mask))
        return src, tgt, src

    def head(self, y):
        return y @ self.tgt_embedding.weight.T

    def forward(self, src, tgt, src_pad_mask=None, tgt_pad_mask=None):
        src_seen, tgt_seen, memory_seen = self.masks(src_pad_mask, tgt_pad_mask)
        memory = self.encoder(self.enter(src, self.src_embedding), attn_mask=src_seen)
        y = self.decoder(self.enter(tgt, self.tgt_embedding), memory, attn_mask=tgt_seen, memory_mask=memory_seen)
        return self.head(y)


@wrong("Transformer", says="return logits")
class Softmaxed(_Transformer):
    def head(self, y):
        return super().head(y).softmax(-1)


@wrong("Transformer", says="return logits")
class LogSoftmaxed(_Transformer):
    def head(self, y):
        return super().head(y).log_softmax(-1)


@wrong("Transformer", says="embeddings are scaled before positions are added")
class Unscaled(_Transformer):
    def enter(self, tokens, table):
        x = table(tokens)
        return self.drop(x + sinusoids(*x.shape[1:], x.dtype))


@wrong("Transformer", says="embeddings are scaled before positions are added")
class ScaledAfter(_Transformer):
    def enter(self, tokens, table):
        x = table(tokens)
        return self.drop(self.scale * (x + sinusoids(*x.shape[1:], x.dtype)))


@wrong("Transformer", says="positions are missing")
class NoPositions(_Transformer):
    def enter(self, tokens, table):
        return self.drop(table(tokens) * self.scale)


@wrong("Transformer")
class InputNotDropped(_Transformer):
    def enter(self, tokens, table):
        x = table(tokens) * self.scale
        return x + sinusoids(*x.shape[1:], x.dtype)


@wrong("Transformer", says="the masks are from the other side")
class MasksExchangedSides(_Transformer):
    def masks(self, src_pad_mask, tgt_pad_mask):
        return super().masks(tgt_pad_mask, src_pad_mask)


@wrong("Transformer", says="source pads must be hidden in cross-attention, too")
class PadsReadByDecoder(_Transformer):
    def masks(self, *pads):
        src, tgt, _ = super().masks(*pads)
        return src, tgt, None


@wrong("Transformer", says="the encoder must not read its pads either")
class PadsReadByEncoder(_Transformer):
    def masks(self, *pads):
        _, tgt, memory = super().masks(*pads)
        return None, tgt, memory


@wrong("Transformer", says="the target's pads were ignored")
class TargetPads(_Transformer):
    def masks(self, *pads):
        src, _, memory = super().masks(*pads)
        return src, None, memory


@wrong("Transformer", says="input table and output are one")
class OutputOfItsOwn(_Transformer):
    def __init__(self, src_vocab, tgt_vocab, d_model, *rest, **options):
        super().__init__(src_vocab, tgt_vocab, d_model, *rest, **options)
        self.output = nn.Linear(d_model, tgt_vocab, bias=False)

    def head(self, y):
        return self.output(y)


@wrong("Transformer", says="the output layer has no bias")
class TiedWithBias(_Transformer):
    def __init__(self, src_vocab, tgt_vocab, d_model, *rest, **options):
        super().__init__(src_vocab, tgt_vocab, d_model, *rest, **options)
        self.output = nn.Linear(d_model, tgt_vocab)
        self.output.weight = self.tgt_embedding.weight

    def head(self, y):
        return self.output(y)


@wrong("Transformer")
class TableDetachedAtTheEnd(_Transformer):
    def head(self, y):
        return y @ self.tgt_embedding.weight.T.detach()


@wrong("Transformer")
class TiedToTheSource(_Transformer):
    def head(self, y):
        return y @ self.src_embedding.weight.T


@wrong("Transformer", says="two languages, two tables")
class OneTable(_Transformer):
    def enter(self, tokens, table):
        return super().enter(tokens, self.tgt_embedding)


@wrong("Transformer")
class ScaledAtTheEnd(_Transformer):
    def head(self, y):
        return super().head(y) / self.scale


@wrong("Transformer")
class HalvesForPositions(_Transformer):
    def enter(self, tokens, table):
        x = table(tokens) * self.scale
        places = sinusoids(*x.shape[1:], x.dtype)
        return self.drop(x + torch.cat([places[:, 0::2], places[:, 1::2]], -1))


@right("Transformer", why="the parts put together")
class PlainTransformer(_Transformer):
    pass


@right("Transformer", why="a tied nn.Linear, made before the table")
class TiedLinear(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, d_model, n_heads, d_ff, n_layers, norm_first=True, dropout=0.0):
        super().__init__()
        self.output = nn.Linear(d_model, tgt_vocab, bias=False)
        self.src_embedding, self.tgt_embedding = nn.Embedding(src_vocab, d_model), nn.Embedding(tgt_vocab, d_model)
        self.output.weight = self.tgt_embedding.weight
        self.encoder = oracle.Encoder(n_layers, d_model, n_heads, d_ff, norm_first, dropout)
        self.decoder = oracle.Decoder(n_layers, d_model, n_heads, d_ff, norm_first, dropout)
        self.drop = nn.Dropout(dropout)

    forward, masks, enter = _Transformer.forward, _Transformer.masks, _Transformer.enter

    @property
    def scale(self):
        return math.sqrt(self.output.in_features)

    def head(self, y):
        return self.output(y)


@right("Transformer", why="masks expanded to their full size")
class FullMasks(_Transformer):
    def forward(self, src, tgt, src_pad_mask=None, tgt_pad_mask=None):
        if src_pad_mask is None:
            src_pad_mask = torch.ones_like(src, dtype=torch.bool)
        if tgt_pad_mask is None:
            tgt_pad_mask = torch.ones_like(tgt, dtype=torch.bool)
        batch, (rows, columns) = len(src), (tgt.shape[1], src.shape[1])
        source = src_pad_mask.view(batch, 1, 1, columns).expand(batch, 1, columns, columns)
        reading = src_pad_mask.view(batch, 1, 1, columns).expand(batch, 1, rows, columns)
        target = tgt_pad_mask.view(batch, 1, 1, rows).expand(batch, 1, rows, rows)
        memory = self.encoder(self.enter(src, self.src_embedding), attn_mask=source)
        return self.head(self.decoder(self.enter(tgt, self.tgt_embedding), memory, target, reading))


@right("Transformer", why="one-hot rows times the table; positions made in float32")
class OneHot(_Transformer):
    def enter(self, tokens, table):
        weight = table.weight
        x = F.one_hot(tokens, len(weight)).to(weight.dtype) @ weight * self.scale
        return self.drop(x + sinusoids(*x.shape[1:], torch.float32).to(x.dtype))
