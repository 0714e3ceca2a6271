"""Twins of phase 5, the cache: keys and values kept from step to step, and text made with them."""

import contextlib
import math

import torch
import torch.nn.functional as F

from utils.observe.forbid import twin

__all__ = ["KVCache", "forward_cached", "generate"]


@twin
class KVCache:
    """A table (2, batch, n_kv_heads, length, d_head) per layer, made anew by every append."""

    def __init__(self, n_layers, batch, n_kv_heads, max_len, d_head):
        self._tables, self._max_len = [None] * n_layers, max_len
        self._batch, self._heads, self._width = batch, n_kv_heads, d_head

    @property
    def length(self):
        return min(map(_held, self._tables))

    def append(self, layer, k, v):
        if layer not in range(len(self._tables)):
            raise ValueError(f"layer must be in 0 … {len(self._tables) - 1}, got {layer}")
        wanted = (self._batch, self._heads, max(k.shape[-2], 1) if k.dim() == 4 else 1, self._width)
        if tuple(k.shape) != wanted or k.shape != v.shape:
            raise ValueError(f"k and v must have the shape (batch, n_kv_heads, t, d_head), here {wanted}")
        table = self._tables[layer]
        if _held(table) + k.shape[2] > self._max_len:
            raise ValueError(f"max_len = {self._max_len} is full")
        new = torch.stack((k, v)).detach()
        self._tables[layer] = new if table is None else torch.cat((table, new.to(table)), -2)
        return tuple(self._tables[layer].clone())

    def truncate(self, length):
        if not 0 <= length <= self.length:
            raise ValueError(f"length must be in 0 … {self.length}, got {length}")
        self._tables = [table if table is None else table[..., :length, :] for table in self._tables]

    def reorder(self, rows):
        self._tables = [table if table is None else table[:, rows] for table in self._tables]


def _held(table):
    return 0 if table is None else table.shape[-2]


@twin
def forward_cached(model, tokens, cache):
    """Contractions over groups of heads; a key is seen by the places that are not before it."""
    start = cache.length
    x = model.embed(tokens, offset=start)
    places = torch.arange(start, start + tokens.shape[1])
    seen = places[:, None] >= torch.arange(start + tokens.shape[1])
    for layer, block in enumerate(model.blocks):
        branch = _attended(block.attention, block.norm1(x) if model.config.norm_first else x, layer, cache, seen)
        if model.config.norm_first:
            x = x + branch
            x = x + block.ffn(block.norm2(x))
        else:
            x = block.norm1(x + branch)
            x = block.norm2(x + block.ffn(x))
    return model.head(x)


def _attended(attention, x, layer, cache, seen):
    """Query heads as (batch, heads of keys, queries per head of keys, t, width)."""
    width = x.shape[-1] // attention.n_heads
    q, k, v = (w(x).unflatten(-1, (-1, width)) for w in (attention.w_q, attention.w_k, attention.w_v))
    k, v = cache.append(layer, k.transpose(1, 2), v.transpose(1, 2))
    q = q.unflatten(2, (k.shape[1], -1))
    scores = torch.einsum("btkgd,bksd->bkgts", q, k) / width**0.5
    weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
    return attention.w_o(torch.einsum("bkgts,bksd->btkgd", weights, v).flatten(2))


@twin
def generate(
    model,
    prompt,
    max_new_tokens,
    temperature=1.0,
    top_k=None,
    top_p=None,
    eos_id=None,
    pad_id=0,
    generator=None,
    use_cache=True,
):
    config, (batch, length) = model.config, prompt.shape
    if length + max_new_tokens > config.max_len:
        raise ValueError(f"{length} + {max_new_tokens} tokens do not fit into max_len = {config.max_len}")
    heads = config.n_kv_heads or config.n_heads
    cache = KVCache(config.n_layers, batch, heads, config.max_len, config.d_model // config.n_heads)
    columns, ended = [prompt], torch.zeros(batch, dtype=torch.bool)
    with torch.no_grad(), _in_eval(model):
        for _ in range(max_new_tokens):
            logits = forward_cached(model, columns[-1], cache) if use_cache else model(torch.cat(columns, 1))
            probs = chances(logits[:, -1], temperature, top_k, top_p)
            new = torch.multinomial(probs, 1, generator=generator)[:, 0].masked_fill(ended, pad_id)
            columns.append(new[:, None])
            ended = ended | (new == eos_id if eos_id is not None else False)
            if ended.all():
                break
    return torch.cat(columns, 1)


@contextlib.contextmanager
def _in_eval(model):
    flags = {part: part.training for part in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for part, flag in flags.items():
            part.training = flag


def chances(logits, temperature, top_k, top_p):
    """Rows of probabilities after temperature, top_k, top_p, in that order, by rank."""
    if top_k is not None and top_k < 1:
        raise ValueError("top_k must be at least 1")
    if temperature == 0:
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)
    probs, places = (logits / temperature).softmax(-1).sort(-1, descending=True)
    if top_k is not None:
        probs[:, top_k:] = 0
    probs /= probs.sum(-1, keepdim=True)
    if top_p is not None:
        probs[probs.cumsum(-1) - probs >= top_p] = 0
    return torch.zeros_like(probs).scatter_(-1, places, probs)
