"""GPT: wrong solutions and unusual right ones."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.bank import right, wrong
from utils import oracle
from utils.observe.fixtures_model import SmallModel


class _GPT(nn.Module):
    """Right as it stands; each wrong solution changes one method."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = oracle.LearnedPositions(config.max_len, config.d_model)
        self.blocks = nn.ModuleList(self.block() for _ in range(config.n_layers))
        self.norm = oracle.LayerNorm(config.d_model) if config.norm_first else nn.Identity()
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        if config.tied:
            self.output.weight = self.token_embedding.weight
        self.drop = nn.Dropout(config.dropout)

    def block(self):
        sizes = self.config
        block = oracle.EncoderBlock(sizes.d_model, sizes.n_heads, sizes.d_ff, sizes.norm_first, sizes.dropout)
        if sizes.n_kv_heads not in (None, sizes.n_heads):
            block.attention = oracle.GroupedQueryAttention(sizes.d_model, sizes.n_heads, sizes.n_kv_heads)
        return block

    def mask(self, tokens, pad_mask):
        length = tokens.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        return causal if pad_mask is None else causal & pad_mask[:, None, None, :]

    def embed(self, tokens, offset=0):
        return self.drop(self.positions(self.token_embedding(tokens), offset=offset))

    def head(self, x):
        return self.output(self.norm(x))

    def forward(self, tokens, pad_mask=None):
        x, mask = self.embed(tokens), self.mask(tokens, pad_mask)
        for block in self.blocks:
            x = block(x, attn_mask=mask)
        return self.head(x)


@wrong("GPT", says="a token must not see its future")
class NotCausal(_GPT):
    def mask(self, tokens, pad_mask):
        return None if pad_mask is None else pad_mask[:, None, None, :]


@wrong("GPT", says="a token must not see its future")
class CausalWithoutPadsOnly(_GPT):
    """Causal, unless there is padding."""

    def mask(self, tokens, pad_mask):
        return super().mask(tokens, None) if pad_mask is None else pad_mask[:, None, None, :]


@wrong("GPT", says="no √d_model here")
class Scaled(_GPT):
    def embed(self, tokens, offset=0):
        return self.drop(self.positions(self.token_embedding(tokens) * self.config.d_model**0.5, offset=offset))


@wrong("GPT", says="the last norm belongs to head")
class NormForgotten(_GPT):
    def head(self, x):
        return self.output(x)


@wrong("GPT", says="the last norm belongs to head")
class NormInForward(_GPT):
    def head(self, x):
        return self.output(x)

    def forward(self, tokens, pad_mask=None):
        x, mask = self.embed(tokens), self.mask(tokens, pad_mask)
        for block in self.blocks:
            x = block(x, attn_mask=mask)
        return self.output(self.norm(x))


@wrong("GPT", says="a pre-norm stream needs one last norm")
class NoNorm(_GPT):
    def __init__(self, config):
        super().__init__(config)
        self.norm = nn.Identity()


@wrong("GPT", says="the output layer has no bias")
class OutputBias(_GPT):
    def __init__(self, config):
        super().__init__(config)
        self.output = nn.Linear(config.d_model, config.vocab_size)
        if config.tied:
            self.output.weight = self.token_embedding.weight


@wrong("GPT", says="the table learns through the output, too")
class TableDetached(_GPT):
    def head(self, x):
        weight = self.output.weight
        return F.linear(self.norm(x), weight.detach() if self.config.tied else weight)


@wrong("GPT", says="tied: the output's weight is the table itself")
class CopiedTable(_GPT):
    def __init__(self, config):
        super().__init__(config)
        self.output.weight = nn.Parameter(self.token_embedding.weight.detach().clone())


@wrong("GPT", says="untied: the output has a matrix of its own")
class TiedAlways(_GPT):
    def __init__(self, config):
        super().__init__(config)
        del self.output

    def head(self, x):
        return self.norm(x) @ self.token_embedding.weight.T


@wrong("GPT", says="n_kv_heads was ignored")
class AllHeads(_GPT):
    def block(self):
        sizes = self.config
        return oracle.EncoderBlock(sizes.d_model, sizes.n_heads, sizes.d_ff, sizes.norm_first, sizes.dropout)


@wrong("GPT", says="embed begins at place offset")
class OffsetIgnored(_GPT):
    def embed(self, tokens, offset=0):
        return self.drop(self.positions(self.token_embedding(tokens)))


@wrong("GPT", says="padding was ignored")
class PadsIgnored(_GPT):
    def mask(self, tokens, pad_mask):
        return super().mask(tokens, None)


@wrong("GPT", says="the layers share their weights")
class OneBlock(_GPT):
    def __init__(self, config):
        super().__init__(config)
        self.blocks = nn.ModuleList([self.block()] * config.n_layers)


@wrong("GPT", says="return logits")
class Probabilities(_GPT):
    def head(self, x):
        return super().head(x).softmax(-1)


@wrong("GPT", says="post-norm ends normed: no norm more")
class NormAlways(_GPT):
    def __init__(self, config):
        super().__init__(config)
        self.norm = oracle.LayerNorm(config.d_model)


@wrong("GPT")
class InputNotDropped(_GPT):
    def embed(self, tokens, offset=0):
        return self.positions(self.token_embedding(tokens), offset=offset)


@wrong("GPT")
class NoRefusal(_GPT):
    """Places beyond the table share its last row."""

    def embed(self, tokens, offset=0):
        places = torch.arange(offset, offset + tokens.shape[1]).clamp(max=self.config.max_len - 1)
        return self.drop(self.token_embedding(tokens) + self.positions.table[places])


@wrong("GPT")
class ASmallModel(SmallModel):
    """The course's own small model, of the same layout."""

    def forward(self, tokens, pad_mask=None):
        return super().forward(tokens)


@wrong("GPT")
class PadsMovePositions(_GPT):
    """Places are counted over real tokens only."""

    def forward(self, tokens, pad_mask=None):
        if pad_mask is None:
            return super().forward(tokens)
        places = (pad_mask.long().cumsum(1) - 1).clamp(min=0)
        x, mask = self.drop(self.token_embedding(tokens) + self.positions.table[places]), self.mask(tokens, pad_mask)
        for block in self.blocks:
            x = block(x, attn_mask=mask)
        return self.head(x)


@wrong("GPT")
class LogitsAtTheEndOnly(_GPT):
    def forward(self, tokens, pad_mask=None):
        return super().forward(tokens, pad_mask)[:, -1]


@right("GPT", why="the parts put together")
class PlainGPT(_GPT):
    pass


@right("GPT", why="no output layer where the table does its work")
class TableAtTheEnd(_GPT):
    def __init__(self, config):
        super().__init__(config)
        if config.tied:
            del self.output

    def head(self, x):
        weight = self.token_embedding.weight if self.config.tied else self.output.weight
        return F.linear(self.norm(x), weight)


@right("GPT", why="tied the other way round")
class TiedTheOtherWay(_GPT):
    def __init__(self, config):
        super().__init__(config)
        if config.tied:
            self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
            self.token_embedding.weight = self.output.weight


@right("GPT", why="parts in a ModuleDict, filled through load_weights")
class InADict(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.parts, self.config = nn.ModuleDict({"whole": _GPT(config)}), config

    def load_weights(self, weights):
        own = dict(self.parts["whole"].named_parameters(remove_duplicate=False))
        for name, value in weights.items():
            own[name].copy_(value)

    def forward(self, tokens, pad_mask=None):
        return self.parts["whole"](tokens, pad_mask)

    def embed(self, tokens, offset=0):
        return self.parts["whole"].embed(tokens, offset)

    def head(self, x):
        return self.parts["whole"].head(x)


@right("GPT", why="torch's LayerNorm, a mask of full size, a refusal of its own")
class TorchNorm(_GPT):
    def __init__(self, config):
        super().__init__(config)
        if config.norm_first:
            self.norm = nn.LayerNorm(config.d_model)

    def mask(self, tokens, pad_mask):
        batch, length = tokens.shape
        return super().mask(tokens, pad_mask).expand(batch, self.config.n_heads, length, length)

    def embed(self, tokens, offset=0):
        if offset + tokens.shape[1] > self.config.max_len:
            raise ValueError("longer than max_len")
        places = self.positions.table[offset : offset + tokens.shape[1]]
        return self.drop(self.token_embedding(tokens) + places)
