"""forward_cached: wrong solutions and unusual right ones."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

from tests.bank import right, wrong


def heads(x, d_head):
    batch, t, _ = x.shape
    return x.view(batch, t, -1, d_head).transpose(1, 2)


class Steps:
    """Right as it stands, a function in the shape of an object; each wrong solution changes one step."""

    def __call__(self, model, tokens, cache):
        x = self.embedded(model, tokens, cache)
        for layer, block in enumerate(model.blocks):
            if model.config.norm_first:
                x = x + self.attended(block.attention, block.norm1(x), layer, cache)
                x = x + block.ffn(block.norm2(x))
            else:
                x = block.norm1(x + self.attended(block.attention, x, layer, cache))
                x = block.norm2(x + block.ffn(x))
        return self.logits(model, x)

    def embedded(self, model, tokens, cache):
        return model.embed(tokens, offset=cache.length)

    def logits(self, model, x):
        return model.head(x)

    def attended(self, attention, x, layer, cache):
        width = x.shape[-1] // attention.n_heads
        q, k, v = (heads(w(x), width) for w in (attention.w_q, attention.w_k, attention.w_v))
        k, v = self.kept(cache, layer, k, v)
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        return attention.w_o(self.mixed(q, k, v).transpose(1, 2).flatten(2))

    def kept(self, cache, layer, k, v):
        return cache.append(layer, k, v)

    def mask(self, q_len, kv_len):
        return torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)

    def mixed(self, q, k, v):
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return scores.masked_fill(~self.mask(q.shape[2], k.shape[2]), -torch.inf).softmax(-1) @ v


def given(cls):
    """The function that an object of this class is."""
    made = cls()

    def forward_cached(model, tokens, cache):
        return made(model, tokens, cache)

    forward_cached.__name__ = cls.__name__
    return forward_cached


def bad(says=None):
    return lambda cls: wrong("forward_cached", says=says)(given(cls)) and cls


@bad("a chunk must see the whole cache")
class MaskFromTheStart(Steps):
    def mask(self, q_len, kv_len):
        return torch.ones(q_len, kv_len, dtype=torch.bool).tril()


@bad("within a chunk, a token must not see what comes after it")
class NoMask(Steps):
    def mask(self, q_len, kv_len):
        return torch.ones(q_len, kv_len, dtype=torch.bool)


@bad("the offset was lost")
class PlacesFromZero(Steps):
    def embedded(self, model, tokens, cache):
        return model.embed(tokens)


@bad("the cache was filled, but not read")
class OwnKeysOnly(Steps):
    def kept(self, cache, layer, k, v):
        cache.append(layer, k, v)
        return k, v


@bad("each layer has its own place in the cache")
class AllInLayer0(Steps):
    def kept(self, cache, layer, k, v):
        return cache.append(0, k, v)


@bad("the last norm is part of the head")
class NoLastNorm(Steps):
    def logits(self, model, x):
        return model.output(x)


@bad("give logits for every new token")
class LastPlace(Steps):
    def logits(self, model, x):
        return model.head(x[:, -1:])


@bad("each token belongs into the cache once")
class AppendsAgain(Steps):
    def kept(self, cache, layer, k, v):
        cache.append(layer, k, v)
        return cache.append(layer, k, v)


@bad("tokens fed again")
class WithoutACache(Steps):
    """Keeps the tokens on the cache, feeds them all, and fills the cache besides."""

    def __call__(self, model, tokens, cache):
        logits = super().__call__(model, tokens, cache)
        cache.tokens = torch.cat([*([cache.tokens] if hasattr(cache, "tokens") else []), tokens], 1)
        whole = model(cache.tokens[:, -cache.length :])
        return logits + 0 * whole[:, -tokens.shape[1] :]


@bad("norm_first says where the norms stand")
class AlwaysPreNorm(Steps):
    def __call__(self, model, tokens, cache):
        x = self.embedded(model, tokens, cache)
        for layer, block in enumerate(model.blocks):
            x = x + self.attended(block.attention, block.norm1(x), layer, cache)
            x = x + block.ffn(block.norm2(x))
        return model.head(x)


@bad()
class Detours(Steps):
    """The whole model on the new tokens alone."""

    def __call__(self, model, tokens, cache):
        super().__call__(model, tokens, cache)
        return model(tokens)


right("forward_cached", why="block by block, heads repeated for their group")(given(Steps))


@right("forward_cached", why="swaps each attention for one that keeps, and calls the blocks themselves")
def swapped(model, tokens, cache):
    class Keeping(nn.Module):
        def __init__(self, layer, inner):
            super().__init__()
            self.layer, self.inner = layer, inner

        def forward(self, x, attn_mask=None):
            return Steps().attended(self.inner, x, self.layer, cache)

    x = model.embed(tokens, offset=cache.length)
    for layer, block in enumerate(model.blocks):
        inner = copy.copy(block)
        inner._modules = {**block._modules, "attention": Keeping(layer, block.attention)}
        x = inner(x)
    return model.head(x)


@right("forward_cached", why="matrix products by hand, one query after the other")
def query_by_query(model, tokens, cache):
    start, config = cache.length, model.config
    places = model.positions.table[start : start + tokens.shape[1]]
    x = model.token_embedding(tokens) + places
    for layer, block in enumerate(model.blocks):
        a, inside = block.attention, block.norm1(x) if config.norm_first else x
        width = config.d_model // config.n_heads
        q, k, v = (F.linear(inside, w.weight, w.bias).unflatten(-1, (-1, width)).movedim(2, 1)
                   for w in (a.w_q, a.w_k, a.w_v))  # fmt: skip
        k, v = cache.append(layer, k, v)
        group, rows = q.shape[1] // k.shape[1], []
        for place in range(tokens.shape[1]):
            visible = slice(0, start + place + 1)
            picks = [head // group for head in range(q.shape[1])]
            scores = (q[:, :, place, None] * k[:, picks, visible]).sum(-1) / width**0.5
            rows.append((scores.softmax(-1)[..., None] * v[:, picks, visible]).sum(2).flatten(1))
        branch = a.w_o(torch.stack(rows, 1))
        x = x + branch if config.norm_first else block.norm1(x + branch)
        x = x + block.ffn(block.norm2(x)) if config.norm_first else block.norm2(x + block.ffn(x))
    return model.head(x)


class Grouped(Steps):
    def attended(self, attention, x, layer, cache):
        width = x.shape[-1] // attention.n_heads
        k, v = cache.append(layer, heads(attention.w_k(x), width), heads(attention.w_v(x), width))
        q = heads(attention.w_q(x), width).unflatten(1, (k.shape[1], -1))
        scores = torch.einsum("bngqd,bnkd->bngqk", q, k) * width**-0.5
        mask = self.mask(q.shape[-2], k.shape[-2])
        mixed = scores.masked_fill(mask.logical_not(), -torch.inf).softmax(-1) @ v[:, :, None]
        return attention.w_o(mixed.flatten(1, 2).transpose(1, 2).flatten(2))


right("forward_cached", why="groups as an axis of their own, in one einsum")(given(Grouped))


@right("forward_cached", why="one token of the chunk after the other")
def token_by_token(model, tokens, cache):
    return torch.cat([given(Steps)(model, tokens[:, n : n + 1], cache) for n in range(tokens.shape[1])], 1)
