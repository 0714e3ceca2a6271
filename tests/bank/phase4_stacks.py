"""Encoder, Decoder, Transformer: wrong solutions and unusual right ones."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.bank import right, wrong
from utils import oracle


class _Stack(nn.Module):
    """Right as it stands; each wrong solution changes one method."""

    block = None

    def __init__(self, n_layers, d_model, n_heads, d_ff, norm_first=True, dropout=0.0):
        super().__init__()
        self.blocks = self.make(n_layers, (d_model, n_heads, d_ff, norm_first, dropout))
        self.norm = self.last(d_model, norm_first)

    def make(self, n_layers, sizes):
        return nn.ModuleList([self.block(*sizes) for _ in range(n_layers)])

    def last(self, d_model, norm_first):
        return oracle.LayerNorm(d_model) if norm_first else nn.Identity()


class _Encoder(_Stack):
    block = oracle.EncoderBlock

    def forward(self, x, attn_mask=None):
        for block in self.blocks:
            x = block(x, attn_mask=attn_mask)
        return self.norm(x)


class _Decoder(_Stack):
    block = oracle.DecoderBlock

    def step(self, block, x, memory, attn_mask, memory_mask):
        return block(x, memory, attn_mask=attn_mask, memory_mask=memory_mask)

    def forward(self, x, memory, attn_mask=None, memory_mask=None):
        for block in self.blocks:
            x = self.step(block, x, memory, attn_mask, memory_mask)
        return self.norm(x)


def in_both(says):
    def register(mixin):
        for name, base in (("Encoder", _Encoder), ("Decoder", _Decoder)):
            wrong(name, says=says)(type(mixin.__name__, (mixin, base), {}))
        return mixin

    return register


@in_both("the layers share their weights")
class OneBlockRepeated:
    def make(self, n_layers, sizes):
        return nn.ModuleList([self.block(*sizes)] * n_layers)


@in_both("the layers start alike: draw each anew")
class Clones:
    def make(self, n_layers, sizes):
        first = self.block(*sizes)
        return nn.ModuleList(copy.deepcopy(first) for _ in range(n_layers))


@in_both("post-norm ends normalised")
class NormAlways:
    def last(self, d_model, norm_first):
        return oracle.LayerNorm(d_model)


@in_both("a pre-norm stream needs one last norm")
class NormNever:
    def last(self, d_model, norm_first):
        return nn.Identity()


@in_both(None)
class NormInPostOnly:
    def last(self, d_model, norm_first):
        return nn.Identity() if norm_first else oracle.LayerNorm(d_model)


@in_both("norm_first was not handed on")
class OrderForgotten:
    def make(self, n_layers, sizes):
        d_model, n_heads, d_ff, _, dropout = sizes
        return super().make(n_layers, (d_model, n_heads, d_ff, True, dropout))


@in_both(None)
class DropoutForgotten:
    def make(self, n_layers, sizes):
        return super().make(n_layers, (*sizes[:4], 0.0))


@in_both(None)
class PlainList:
    """A python list: torch does not know the blocks."""

    def make(self, n_layers, sizes):
        return [self.block(*sizes) for _ in range(n_layers)]


@in_both(None)
class OneLayerLess:
    def make(self, n_layers, sizes):
        return super().make(max(1, n_layers - 1), sizes)


@in_both(None)
class LastBlockUnused:
    def forward(self, x, *args, **kwargs):
        for block in self.blocks[:-1] or self.blocks:
            x = block(x, *args, **kwargs)
        return self.norm(x)


@in_both(None)
class SkipAroundAll:
    def forward(self, x, *args, **kwargs):
        out = x
        for block in self.blocks:
            out = block(out, *args, **kwargs)
        return self.norm(out + x)


@wrong("Encoder", says="the norm belongs after the last block only")
class NormEverywhere(_Encoder):
    def forward(self, x, attn_mask=None):
        for block in self.blocks:
            x = self.norm(block(x, attn_mask=attn_mask))
        return x


@wrong("Encoder", says="the mask was ignored")
class EncoderMaskIgnored(_Encoder):
    def forward(self, x, attn_mask=None):
        return super().forward(x)


@wrong("Encoder", says="every block needs the mask")
class MaskOnce(_Encoder):
    def forward(self, x, attn_mask=None):
        for block in self.blocks:
            x, attn_mask = block(x, attn_mask=attn_mask), None
        return self.norm(x)


@wrong("Decoder", says="memory stays the encoder's output")
class MemoryFollows(_Decoder):
    def forward(self, x, memory, attn_mask=None, memory_mask=None):
        for block in self.blocks:
            x = block(x, memory, attn_mask=attn_mask, memory_mask=memory_mask)
            memory, memory_mask = x, None
        return self.norm(x)


@wrong("Decoder")
class MemoryNormedOnce(_Decoder):
    def forward(self, x, memory, attn_mask=None, memory_mask=None):
        return super().forward(x, self.norm(memory), attn_mask, memory_mask)


@wrong("Decoder", says="memory_mask was ignored")
class MemoryMaskIgnored(_Decoder):
    def step(self, block, x, memory, attn_mask, memory_mask):
        return block(x, memory, attn_mask=attn_mask)


@wrong("Decoder", says="attn_mask was ignored")
class AttnMaskIgnored(_Decoder):
    def step(self, block, x, memory, attn_mask, memory_mask):
        return block(x, memory, memory_mask=memory_mask)


@wrong("Decoder")
class MasksExchanged(_Decoder):
    def step(self, block, x, memory, attn_mask, memory_mask):
        return block(x, memory, attn_mask=memory_mask, memory_mask=attn_mask)


@right("Encoder", why="a comprehension and a loop")
class PlainEncoder(_Encoder):
    pass


@right("Encoder", why="clones that are drawn again")
class DrawnAgain(_Encoder):
    def make(self, n_layers, sizes):
        blocks = nn.ModuleList(copy.deepcopy(self.block(*sizes)) for _ in range(n_layers))
        for module in blocks.modules():
            if isinstance(module, nn.Linear):
                module.reset_parameters()
        return blocks


@right("Encoder", why="a loop by index")
class ByIndex(_Encoder):
    def forward(self, x, attn_mask=None):
        for number in range(len(self.blocks)):
            x = self.blocks[number](x, attn_mask)
        return self.norm(x)


@right("Encoder", why="blocks registered one by one under a ModuleDict, filled through load_weights")
class ByName(_Encoder):
    def make(self, n_layers, sizes):
        return nn.ModuleDict({f"layer{n}": self.block(*sizes) for n in range(n_layers)})

    def load_weights(self, weights):
        self.load_state_dict({name.replace("blocks.", "blocks.layer"): value for name, value in weights.items()})

    def forward(self, x, attn_mask=None):
        for block in self.blocks.values():
            x = block(x, attn_mask=attn_mask)
        return self.norm(x)


@right("Decoder", why="a comprehension and a loop")
class PlainDecoder(_Decoder):
    pass


@right("Decoder", why="positional arguments, a loop by index")
class DecoderByIndex(_Decoder):
    def forward(self, x, memory, attn_mask=None, memory_mask=None):
        for number in range(len(self.blocks)):
            x = self.blocks[number](x, memory, attn_mask, memory_mask)
        return self.norm(x)


@right("Decoder", why="nn.LayerNorm at the end")
class TorchNormAtTheEnd(_Decoder):
    def last(self, d_model, norm_first):
        return nn.LayerNorm(d_model) if norm_first else nn.Identity()


@right("Decoder", why="the last norm is a function of its own")
class NoIdentity(_Decoder):
    def last(self, d_model, norm_first):
        return oracle.LayerNorm(d_model) if norm_first else None

    def forward(self, x, memory, attn_mask=None, memory_mask=None):
        for block in self.blocks:
            x = self.step(block, x, memory, attn_mask, memory_mask)
        return x if self.norm is None else self.norm(x)


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
