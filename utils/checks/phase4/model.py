"""Transformer: text in one language to logits in another."""

import torch
import torch.nn.functional as F
from torch import nn

from utils import oracle
from utils.checks.draw import given
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase4 import PHASE, rules

SRC, TGT = 9, 11


def tokens(vocab_size, *shape):
    return given(lambda g, o: torch.randint(vocab_size, shape, generator=g))


def padded(length, *lengths):
    """A (batch, length) pad mask: so many real tokens in each row."""
    return given(lambda g, o: torch.arange(length) < torch.tensor(lengths)[:, None])


class _Model(oracle.Transformer):
    """A wrong twin in its parts; as it stands it is the right one."""

    def forward(self, src, tgt, src_pad_mask=None, tgt_pad_mask=None):
        src_seen, tgt_seen = self.masks(src_pad_mask, tgt_pad_mask)
        memory = self.encoder(self.embedded(src, self.src_embedding), attn_mask=src_seen)
        y = self.decoder(
            self.embedded(tgt, self.tgt_embedding),
            memory,
            attn_mask=tgt_seen,
            memory_mask=self.cross(src_seen, tgt_seen),
        )
        return self.logits(y)

    def masks(self, src_pad_mask, tgt_pad_mask):
        return tuple(None if mask is None else oracle.padding_mask(mask) for mask in (src_pad_mask, tgt_pad_mask))

    def cross(self, src_seen, tgt_seen):
        return src_seen

    def logits(self, y):
        return F.linear(y, self.tgt_embedding.weight)


def wrong(**methods):
    return type("WrongTransformer", (_Model,), methods)


def embedding(change):
    """change(model, table_rows, positions) makes the input of a stack."""

    def embedded(self, tokens, table):
        rows = F.embedding(tokens, table.weight)
        whole = oracle.Transformer.embedded(self.eval_twin(), tokens, table)
        return F.dropout(change(self, rows, whole - rows * rows.shape[-1] ** 0.5), self.dropout, self.training)

    return wrong(embedded=embedded, eval_twin=lambda self: _Silent)


class _Silent:
    dropout, training = 0.0, False


def swapped_masks(self, src_pad_mask, tgt_pad_mask):
    """From the other side; only where the lengths allow it is anything said at all."""
    return _Model.masks(self, tgt_pad_mask, src_pad_mask)


class _OwnOutput(_Model):
    def __init__(self, src_vocab, tgt_vocab, d_model, *args, **kwargs):
        super().__init__(src_vocab, tgt_vocab, d_model, *args, **kwargs)
        self.output = nn.Linear(d_model, tgt_vocab, bias=False)

    def logits(self, y):
        return self.output(y)


class _OutputBias(_Model):
    def __init__(self, src_vocab, tgt_vocab, d_model, *args, **kwargs):
        super().__init__(src_vocab, tgt_vocab, d_model, *args, **kwargs)
        self.output_bias = nn.Parameter(torch.zeros(tgt_vocab))

    def logits(self, y):
        return super().logits(y) + self.output_bias


def dropping(change):
    """A wrong twin: change(model, rows, positions) says what is dropped; rows have been scaled."""

    def embedded(self, tokens, table):
        rows = F.embedding(tokens, table.weight) * table.embedding_dim**0.5
        whole = oracle.Transformer.embedded(_Silent, tokens, table)
        return change(self, rows, whole - rows)

    return wrong(embedded=embedded)


class _LearnedPositions(_Model):
    def __init__(self, src_vocab, tgt_vocab, d_model, *args, **kwargs):
        super().__init__(src_vocab, tgt_vocab, d_model, *args, **kwargs)
        self.position_table = nn.Parameter(torch.zeros(64, d_model))


class _FixedPlaces(_Model):
    """A table of positions for 512 tokens."""

    def embedded(self, tokens, table):
        if tokens.shape[1] > 512:
            raise RuntimeError(f"The size of tensor a ({tokens.shape[1]}) must match the size of tensor b (512)")
        return super().embedded(tokens, table)


class _SharedTable(_Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.src_embedding = self.tgt_embedding


class _AlwaysPre(_Model):
    def __init__(self, src_vocab, tgt_vocab, d_model, n_heads, d_ff, n_layers, norm_first=True, dropout=0.0):
        super().__init__(src_vocab, tgt_vocab, d_model, n_heads, d_ff, n_layers, True, dropout)


class _SizesExchanged(_Model):
    def __init__(self, src_vocab, tgt_vocab, d_model, n_heads, d_ff, n_layers, norm_first=True, dropout=0.0):
        super().__init__(src_vocab, tgt_vocab, d_model, n_layers, d_ff, n_heads, norm_first, dropout)


class _OneTable(_Model):
    """Both languages read the target's table."""

    def embedded(self, tokens, table):
        return super().embedded(tokens, self.tgt_embedding)


SIZES = dict(src_vocab=SRC, tgt_vocab=TGT, d_model=12, n_heads=3, d_ff=20, n_layers=1)
POST = SIZES | dict(norm_first=False)
TWO = dict(n_layers=2)
PAIR = dict(src=tokens(SRC, 2, 7), tgt=tokens(TGT, 2, 5))
PADS = dict(src_pad_mask=padded(7, 7, 4))
BOTH = PAIR | PADS | dict(tgt_pad_mask=padded(5, 3, 5))
SAME = dict(src=tokens(SRC, 2, 5), tgt=tokens(TGT, 2, 5), src_pad_mask=padded(5, 5, 2), tgt_pad_mask=padded(5, 3, 5))
TABLES = dict(atol=1e-5)  # positions are a table made from integers, in whatever precision

register(
    expected=oracle.Transformer,
    phase=PHASE,
    section="4.11",
    hint="√d_model · embedding + positions, encoder, decoder, then the target's table as the output layer.",
    bans=("attention", "blocks"),
    cases=(
        case("seven words to five, pre-norm", PAIR, init=SIZES, **TABLES),
        case("seven words to five, post-norm", PAIR, init=POST | TWO, **TABLES),
        case("source pads", PAIR | PADS, init=SIZES, **TABLES),
        case("pads on both sides, two layers", BOTH, init=SIZES | TWO, **TABLES),
        case("pads on both sides, post-norm", BOTH, init=POST, grad=False, **TABLES),
        case("pads, both as long", SAME, init=SIZES, grad=False, **TABLES),
        case(
            "one token each, two calls",
            dict(src=tokens(SRC, 1, 1), tgt=tokens(TGT, 1, 1)),
            then=(PAIR,),
            init=SIZES,
            train=True,
            **TABLES,
        ),
        case(
            "tables of one size",
            dict(src=tokens(SRC, 2, 7), tgt=tokens(SRC, 2, 5)),
            init=SIZES | dict(tgt_vocab=SRC),
            **TABLES,
        ),
        case(
            "a long sentence",
            dict(src=tokens(SRC, 1, 1100), tgt=tokens(TGT, 1, 2)),
            init=SIZES | dict(n_heads=1, d_ff=4),
            grad=False,
            atol=2e-3,  # sines of numbers near 1100, in whatever precision
        ),
        case("dropout 0.5 in eval", PAIR, init=SIZES | dict(dropout=0.5), grad=False, **TABLES),
        case("dropout 1 in training", PAIR, init=SIZES | dict(dropout=1.0), train=True, grad=False, **TABLES),
        case("dropout 1 in training, post-norm", PAIR, init=POST | dict(dropout=1.0), train=True, grad=False, **TABLES),
    ),
    mistakes={
        "return logits": Replays(
            wrong(logits=lambda self, y: _Model.logits(self, y).softmax(-1)),
            wrong(logits=lambda self, y: _Model.logits(self, y).log_softmax(-1)),
        ),
        "embeddings are scaled before positions are added": Replays(
            embedding(lambda self, rows, places: rows + places),
            embedding(lambda self, rows, places: (rows + places) * rows.shape[-1] ** 0.5),
            embedding(lambda self, rows, places: rows / rows.shape[-1] ** 0.5 + places),
        ),
        "positions are missing": embedding(lambda self, rows, places: rows * rows.shape[-1] ** 0.5),
        "the masks are from the other side": Spotted(
            rules.mask_misfits,
            wrong(masks=swapped_masks),
            also=(wrong(masks=swapped_masks), wrong(cross=lambda self, src_seen, tgt_seen: tgt_seen)),
        ),
        "source pads must be hidden in cross-attention, too": wrong(cross=lambda self, src_seen, tgt_seen: None),
        "the source's pads were ignored": wrong(
            masks=lambda self, src_pad_mask, tgt_pad_mask: _Model.masks(self, None, tgt_pad_mask)
        ),
        "the encoder must not read its pads either": wrong(
            forward=lambda self, src, tgt, src_pad_mask=None, tgt_pad_mask=None: _late(
                self, src, tgt, src_pad_mask, tgt_pad_mask
            )
        ),
        "the target's pads were ignored": wrong(
            masks=lambda self, src_pad_mask, tgt_pad_mask: _Model.masks(self, src_pad_mask, None)
        ),
        "True means real token": wrong(
            masks=lambda self, *pads: _Model.masks(self, *(None if pad is None else ~pad for pad in pads))
        ),
        "input table and output are one": Spotted(rules.table_more, _OwnOutput),
        "the output layer has no bias": Spotted(rules.bias_more, _OutputBias),
        "the output is tied to the target's table": wrong(
            logits=lambda self, y: F.linear(y, self.src_embedding.weight)
        ),
        "two languages, two tables": Spotted(rules.table_less, _SharedTable, also=(_OneTable,)),
        "dropout acts on the embedded input, too": dropping(lambda self, rows, places: rows + places),
        "dropout acts on the sum, positions included": dropping(
            lambda self, rows, places: F.dropout(rows, self.dropout, self.training) + places
        ),
        "positions have no parameters": Spotted(rules.some_more, _LearnedPositions),
        "positions have no last row: any length must do": Spotted(rules.too_long, _FixedPlaces, certain=True),
        "norm_first was not handed on": Spotted(rules.norms_more, _AlwaysPre),
        "n_layers comes first in Encoder and Decoder": Spotted(rules.other_depth, _SizesExchanged),
        "logits are not divided by √d_model": wrong(logits=lambda self, y: _Model.logits(self, y) / y.shape[-1] ** 0.5),
    },
)


def _late(model, src, tgt, src_pad_mask, tgt_pad_mask):
    src_seen, tgt_seen = model.masks(src_pad_mask, tgt_pad_mask)
    memory = model.encoder(model.embedded(src, model.src_embedding))
    y = model.decoder(model.embedded(tgt, model.tgt_embedding), memory, attn_mask=tgt_seen, memory_mask=src_seen)
    return model.logits(y)
