"""What cases of phase 6 on systems hand to a learner's function: a model that counts the rows of each block, a block, a
layer with uneven rows, and speakers: functions from tokens to logits that count how often they are asked.
"""

import torch
from torch import nn

from utils.config import ModelConfig
from utils.observe import fixtures_model, layers
from utils.observe.forbid import lent


@lent
class _Counted(nn.Module):
    """A block, and what went through it: rows of all calls, calls in all, calls that a gradient could follow."""

    def __init__(self, block):
        super().__init__()
        self.inner = block
        for name in ("rows", "calls", "followed"):
            self.register_buffer(name, torch.zeros((), dtype=torch.int64))

    def forward(self, x, attn_mask=None):
        self.rows += x.shape[0]
        self.calls += 1
        self.followed += torch.is_grad_enabled()
        return self.inner(x, attn_mask=attn_mask)


@lent
class _Single(nn.Module):
    """A block that may not be copied."""

    def __init__(self, block):
        super().__init__()
        self.inner = block

    def __deepcopy__(self, memo):
        raise RuntimeError("the block was copied: use the one that was handed over")

    def forward(self, x, attn_mask=None):
        return self.inner(x, attn_mask=attn_mask)


def exits(counts=False, sharp=6.0, seed=0, **sizes):
    """A small model, sure of itself at different depths; counts: blocks.0.rows and the like are in its state."""
    model = fixtures_model.small_model(seed=seed, tied=False, **sizes)
    model.output.weight.data *= sharp
    if counts:
        model.blocks = nn.ModuleList(map(_Counted, model.blocks))
    return model


def block(counts=False, training=False, seed=0, single=False, **sizes):
    """One block of such a model, with a mask; single: it may not be copied."""
    found = fixtures_model.small_model(seed=seed, **sizes).blocks[0]
    wrap = _Counted if counts else _Single if single else lambda block: block
    return wrap(found).train(training)


@lent
class _Speaker(nn.Module):
    """Tokens (1, n) to logits (1, n, vocab_size), from all tokens so far, the last ones most."""

    def __init__(self, vocab_size, sharp, wander, counts, seed):
        super().__init__()
        self.sharp, self.wander = sharp, wander
        for name, number in (("common", seed), ("own", seed + 100)):
            generator = torch.Generator().manual_seed(number)
            for part, shape in (("table", (vocab_size, 8)), ("out", (8, vocab_size))):
                drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
                self.register_buffer(f"{name}_{part}", drawn)
        if counts:
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
            self.register_buffer("longest", torch.zeros((), dtype=torch.int64))

    def forward(self, tokens):
        if "calls" in self._buffers:
            self.calls += 1
            self.longest.clamp_(min=tokens.shape[1])
        logits = self.said(tokens, self.common_table, self.common_out)
        return logits + self.wander * self.said(tokens, self.own_table, self.own_out) if self.wander else logits

    def said(self, tokens, table, out):
        places = torch.arange(tokens.shape[1])
        fading = (0.6 ** (places[:, None] - places).to(table.dtype)).tril()
        return self.sharp * torch.tanh(fading @ table[tokens]) @ out / 8**0.5


def uneven_linear(d_in, d_out, bias=True, seed=0):
    """An nn.Linear whose rows differ in size by up to a thousand."""
    layer = layers.linear(d_in, d_out, bias, seed)
    layer.weight.data *= torch.logspace(-2, 1, d_out, dtype=torch.float64)[:, None]
    return layer


def speaker(vocab_size=7, sharp=2.0, wander=0.0, counts=False, seed=0, name=""):
    """wander: how much a voice of its own is mixed in, so that a draft differs from the target; name: only a label."""
    return _Speaker(vocab_size, sharp, wander, counts, seed).eval()


@lent
class _Dice(nn.Module):
    """Tokens (1, n) to logits (1, n, vocab_size): the same chances everywhere, whatever was said."""

    def __init__(self, chances, warmth):
        super().__init__()
        self.register_buffer("logits", warmth * torch.tensor(chances, dtype=torch.float64).log())

    def forward(self, tokens):
        return self.logits.expand(*tokens.shape, -1)


def dice(chances, warmth=1.0, name=""):
    """A speaker whose chances at this temperature are the ones given; name: only a label."""
    return _Dice(chances, warmth).eval()


def load(config, **numbers):
    """A design case: a dict of a ModelConfig of these sizes, and numbers."""
    return dict(config=ModelConfig(**config), **numbers)


KINDS = {
    "load": load,
    "exits": exits,
    "counted_block": block,
    "uneven_linear": uneven_linear,
    "speaker": speaker,
    "dice": dice,
}
