"""A small language model with the layout that phases 5 and 6 call a model, for checks and lessons.

It is no GPT: its norms have no parameters and its activation is another one. What belongs to the layout is what its
classes say; functions that work with it work with any model of that layout, a learner's own included.
"""

import torch
import torch.nn.functional as F
from torch import nn

from utils.config import ModelConfig
from utils.observe.forbid import lent


@lent
class _RootMeanSquare(nn.Module):
    """A norm without parameters."""

    def forward(self, x):
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()


@lent
class _Table(nn.Embedding):
    """An embedding that may count, in a buffer `fed`, how many tokens pass through it; in `followed`, how many of them
    while gradients are on (counts="followed").
    """

    def __init__(self, vocab_size, width, counts):
        super().__init__(vocab_size, width)
        for name in ("fed", "followed")[: 1 + (counts == "followed") if counts else 0]:
            self.register_buffer(name, torch.zeros((), dtype=torch.int64))

    def forward(self, tokens):
        if "fed" in self._buffers:
            self.fed += tokens.numel()
        if "followed" in self._buffers and torch.is_grad_enabled():
            self.followed += tokens.numel()
        return super().forward(tokens)


@lent
class _Places(nn.Module):
    """Parameter table, handed over: adds its rows from `offset` on to x (…, seq_len, d_model)."""

    def __init__(self, rows):
        super().__init__()
        self.table = nn.Parameter(rows)

    def forward(self, x, offset=0):
        places = torch.arange(offset, offset + x.shape[-2])
        if not bool(((places >= 0) & (places < len(self.table))).all()):
            raise ValueError(f"places {places.tolist()} do not all fit into max_len {len(self.table)}")
        return x + F.embedding(places, self.table)


@lent
class _Attention(nn.Module):
    """w_q, w_k, w_v, w_o and n_heads; n_kv_heads only where it differs. Query heads share keys in neighbouring groups.

    forward(x, attn_mask): x (batch, seq_len, d_model); the mask is boolean, True = may attend.
    """

    def __init__(self, config):
        super().__init__()
        width, self.n_heads = config.d_model, config.n_heads
        kv_heads = config.n_kv_heads or config.n_heads
        if kv_heads != config.n_heads:
            self.n_kv_heads = kv_heads
        self.group = config.n_heads // kv_heads
        self.w_q, self.w_o = nn.Linear(width, width), nn.Linear(width, width)
        self.w_k, self.w_v = (nn.Linear(width, width // config.n_heads * kv_heads) for _ in range(2))

    def forward(self, x, attn_mask=None):
        d_head = x.shape[-1] // self.n_heads
        q, k, v = (w(x).unflatten(-1, (-1, d_head)).transpose(1, 2) for w in (self.w_q, self.w_k, self.w_v))
        k, v = k.repeat_interleave(self.group, 1), v.repeat_interleave(self.group, 1)
        scores = q @ k.mT * d_head**-0.5
        hidden = torch.zeros((), dtype=torch.bool) if attn_mask is None else ~attn_mask
        scores = scores.masked_fill(hidden, float("-inf"))
        return self.w_o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


@lent
class _FeedForward(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return self.w_2(F.silu(self.w_1(x)))


@lent
class _Block(nn.Module):
    """norm1, attention, norm2, ffn; pre-norm or post-norm as config.norm_first says."""

    def __init__(self, config):
        super().__init__()
        self.norm_first = config.norm_first
        self.norm1, self.attention = _RootMeanSquare(), _Attention(config)
        self.norm2, self.ffn = _RootMeanSquare(), _FeedForward(config.d_model, config.d_ff)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x, attn_mask=None):
        if self.norm_first:
            x = x + self.drop(self.attention(self.norm1(x), attn_mask=attn_mask))
            return x + self.drop(self.ffn(self.norm2(x)))
        x = self.norm1(x + self.drop(self.attention(x, attn_mask=attn_mask)))
        return self.norm2(x + self.drop(self.ffn(x)))


@lent
class SmallModel(nn.Module):
    """config, token_embedding, positions, blocks, norm, output; tokens (batch, seq_len) -> logits (…, vocab_size).

    config: a ModelConfig, or anything with its attributes; n_kv_heads, tied, norm_first and dropout count.
    counts: `token_embedding.fed` counts the tokens that enter; "followed": a second count, of those with gradients on.
    Its first numbers come from torch's random state.
    """

    def __init__(self, config, counts=False):
        super().__init__()
        self.config = config
        width, words = config.d_model, config.vocab_size
        table = self.token_embedding = _Table(words, width, counts)
        self.positions = _Places(0.1 * torch.randn(config.max_len, config.d_model))
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.n_layers))
        self.norm = _RootMeanSquare() if config.norm_first else nn.Identity()
        self.output = nn.Linear(width, words, bias=False)
        self.drop = nn.Dropout(config.dropout)
        # 0.1, not the usual 0.02: narrow tied models would stay at the frequencies of single words for long
        nn.init.normal_(self.token_embedding.weight, std=0.1)
        if config.tied:
            self.output.weight = table.weight

    def embed(self, tokens, offset=0):
        """tokens (batch, seq_len), the first at place `offset` -> (batch, seq_len, d_model). Raises past max_len."""
        return self.drop(self.positions(self.token_embedding(tokens), offset))

    def head(self, x):
        """(batch, seq_len, d_model) -> logits."""
        normed = self.norm(x)
        return self.output(normed)

    def forward(self, tokens):
        states, places = self.embed(tokens), torch.arange(tokens.shape[1])
        for block in self.blocks:
            states = block(states, attn_mask=places[:, None] >= places)
        return self.head(states)


SIZES = dict(vocab_size=11, d_model=12, n_heads=3, n_layers=3, d_ff=10, max_len=9)


def small_model(counts=False, training=False, seed=0, **sizes):
    """A SmallModel of SIZES, or of others, whose numbers come from the seed; softmax stays soft, no bias is 0.

    training: the flag it is handed over with; "mixed": True but for the first block.
    """
    state = torch.get_rng_state()
    model = SmallModel(ModelConfig(**SIZES | sizes), counts).to(torch.float64)
    torch.set_rng_state(state)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        spread = 0.4 if name.startswith(("token_embedding", "positions")) else parameter.shape[-1] ** -0.5
        parameter.data = spread * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    model.train(bool(training)).blocks[0].train(training is True)
    return model


class _Store:
    """Keys and values of each layer as a list of what was appended; `cuts[n]`: its length when it is lent once more.

    Like a KVCache it wants n_kv_heads heads. It keeps no other limits: a learner's cache does more than this one.
    """

    def __init__(self, n_layers=3, cuts=(), name="", n_kv_heads=None):
        self.held = [[] for _ in range(n_layers)]
        self.cuts, self.n_kv_heads = list(cuts), n_kv_heads

    @property
    def length(self):
        return min(sum(k.shape[2] for k, v in layer) for layer in self.held)

    def append(self, layer, k, v):
        if self.n_kv_heads not in (None, k.shape[1], v.shape[1]):
            raise ValueError(f"this cache is for {self.n_kv_heads} heads of keys, not for {k.shape[1]}")
        self.held[layer].append((k.detach().clone(), v.detach().clone()))
        return tuple(torch.cat(parts, 2) for parts in zip(*self.held[layer], strict=True))

    def state_dict(self):
        joined = [[torch.cat(part, 2) for part in zip(*layer, strict=True)] for layer in self.held]
        return {
            f"{kind} of layer {n}": part for n, pair in enumerate(joined) for kind, part in zip("kv", pair, strict=True)
        }

    def handed_over(self):
        cut = self.cuts.pop(0) if self.cuts else None
        if cut is not None:
            whole = [(torch.cat(part, 2)[:, :, :cut] for part in zip(*layer, strict=True)) for layer in self.held]
            self.held = [[tuple(parts)] for parts in whole]


KINDS = {"small_model": small_model, "cache": _Store}
