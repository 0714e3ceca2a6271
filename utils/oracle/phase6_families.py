"""Twins of phase 6, the three families: hidden words, pooled sentences, next words, spans and prefixes."""

import itertools

import torch
import torch.nn.functional as F
from torch import nn

from utils.observe.forbid import twin
from utils.oracle.phase1 import LearnedPositions
from utils.oracle.phase2 import causal_mask, combine_masks, padding_mask
from utils.oracle.phase3 import GroupedQueryAttention
from utils.oracle.phase4_blocks import Encoder, EncoderBlock
from utils.oracle.phase4_parts import LayerNorm

__all__ = ["GPT", "EncoderClassifier", "mask_tokens", "mean_pool", "prefix_lm_mask", "span_corrupt"]

IGNORED = -100  # a target that costs nothing


@twin
def mask_tokens(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    """A kind for each place, drawn from four: left alone, hidden, another word, shown as it is."""
    aside = torch.tensor([*special_ids, mask_id])
    words = torch.tensor([word for word in range(vocab_size) if word not in aside.tolist()])
    law = torch.tensor([1 - p, 0.8 * p, 0.1 * p, 0.1 * p], dtype=torch.float64)
    kind = law.expand(tokens.numel(), 4).multinomial(1, generator=generator).view(tokens.shape)
    kind = kind * (pad_mask & ~torch.isin(tokens, aside))
    other = words[torch.randint(len(words), tokens.shape, generator=generator)]
    inputs = torch.where(kind == 1, mask_id, torch.where(kind == 2, other, tokens))
    return inputs, torch.where(kind > 0, tokens, IGNORED)


@twin
def mean_pool(x, pad_mask):
    """A product with a row of shares: one over the number of real tokens, or 0."""
    share = pad_mask.to(x.dtype) / pad_mask.sum(1, keepdim=True).clamp(min=1)
    return (share[:, None, :] @ x).squeeze(1)


@twin
class EncoderClassifier(nn.Module):
    def __init__(self, config, n_classes):
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = LearnedPositions(config.max_len, config.d_model)
        sizes = (config.n_layers, config.d_model, config.n_heads, config.d_ff, config.norm_first, config.dropout)
        self.encoder, self.classifier = Encoder(*sizes), nn.Linear(config.d_model, n_classes)

    def forward(self, tokens, pad_mask):
        x = F.dropout(self.positions(self.token_embedding(tokens)), self.config.dropout, self.training)
        return self.classifier(mean_pool(self.encoder(x, attn_mask=padding_mask(pad_mask)), pad_mask))


class _Tied(nn.Module):
    """An output layer without a parameter of its own: it holds the table without owning it."""

    def __init__(self, table):
        super().__init__()
        self._table = (table,)

    @property
    def weight(self):
        return self._table[0].weight

    def forward(self, x):
        return F.linear(x, self.weight)


@twin
class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, d_model = config, config.d_model
        self.token_embedding = nn.Embedding(config.vocab_size, d_model)
        self.positions = LearnedPositions(config.max_len, d_model)
        sizes = (d_model, config.n_heads, config.d_ff, config.norm_first, config.dropout)
        self.blocks = nn.ModuleList([EncoderBlock(*sizes) for _ in range(config.n_layers)])
        if config.n_kv_heads and config.n_kv_heads != config.n_heads:
            for block in self.blocks:
                block.attention = GroupedQueryAttention(d_model, config.n_heads, config.n_kv_heads)
        self.norm = LayerNorm(d_model) if config.norm_first else nn.Identity()
        own = nn.Linear(d_model, config.vocab_size, bias=False)
        self.output = _Tied(self.token_embedding) if config.tied else own

    def forward(self, tokens, pad_mask=None):
        x = self.embed(tokens)
        seen = combine_masks(causal_mask(tokens.shape[1]), None if pad_mask is None else padding_mask(pad_mask))
        for block in self.blocks:
            x = block(x, attn_mask=seen)
        return self.head(x)

    def embed(self, tokens, offset=0):
        x = self.positions(self.token_embedding(tokens), offset)
        return F.dropout(x, self.config.dropout, self.training)

    def head(self, x):
        return self.output(self.norm(x))


@twin
def span_corrupt(tokens, spans, sentinel_ids):
    """Each token is labelled with the number of its span, or none; runs of one label are then written out."""
    label = [None] * len(tokens)
    for number, (start, end) in enumerate(sorted(spans)):
        if not 0 <= start < end <= len(tokens) or any(one is not None for one in label[start:end]):
            raise ValueError(f"span ({start}, {end}) is empty, overlaps another or lies outside the text")
        label[start:end] = [number] * (end - start)
    if len(sentinel_ids) <= len(spans):
        raise ValueError(f"{len(spans)} spans need {len(spans) + 1} sentinels, one more than spans")
    inputs, targets = [], []
    for number, run in itertools.groupby(zip(label, tokens, strict=True), key=lambda pair: pair[0]):
        words = [token for _, token in run]
        inputs += words if number is None else [sentinel_ids[number]]
        targets += [] if number is None else [sentinel_ids[number], *words]
    return inputs, [*targets, sentinel_ids[len(spans)]]


@twin
def prefix_lm_mask(prefix_len, seq_len):
    """Every row's last visible place: its own, or the prefix's last if that comes later."""
    length = torch.as_tensor(prefix_len).reshape(-1, 1, 1, 1)
    if bool((length < 0).any()) or bool((length > seq_len).any()):
        raise ValueError(f"prefix_len must lie between 0 and {seq_len}")
    place = torch.arange(seq_len)
    return place <= torch.maximum(place[:, None], length - 1)
