"""Encoder, Decoder: wrong solutions and unusual right ones."""

import copy

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
