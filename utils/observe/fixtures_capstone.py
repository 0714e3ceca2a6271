"""Models for tests of training: what one answers depends on how it is fed, and it remembers in which mode it was run.

Chance comes from torch.rand alone, whose numbers are the same on every machine.
"""

import torch
import torch.nn.functional as F
from torch import nn


class RandDropout(nn.Module):
    """Dropout by torch.rand, from torch's own random state."""

    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training or not self.p:
            return x
        return x * (torch.rand(x.shape, dtype=torch.float64) >= self.p).to(x.dtype) / (1 - self.p)


def _weights(generator, *shape):
    return (2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1) * 1.5


class Reader(nn.Module):
    """tokens (batch, seq_len) -> logits (batch, seq_len, vocab): by the token, those before it, and its place.

    frozen: one part is in eval mode, whatever the rest.
    """

    def __init__(self, vocab_size=7, dropout=0.0, training=False, frozen=False, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.now, self.past = (nn.Parameter(_weights(generator, vocab_size, vocab_size)) for _ in "ab")
        self.place = nn.Parameter(_weights(generator, vocab_size))
        for weight in self.parameters():
            weight.grad = torch.ones_like(weight)  # of a training that goes on
        self.drop, self.still = RandDropout(dropout), nn.Identity()
        self.trained, self.tracked = [], []
        self.train(training)
        if frozen:
            self.still.eval()

    def forward(self, tokens):
        if tokens.dim() != 2:
            raise RuntimeError(f"a model takes tokens (batch, seq_len), got {tuple(tokens.shape)}")
        self.trained.append(self.training or self.drop.training)
        self.tracked.append(torch.is_grad_enabled())
        if not tokens.shape[1]:
            raise RuntimeError("a window without a token")
        places = torch.arange(1, tokens.shape[1] + 1, dtype=self.now.dtype)[:, None]
        past = F.embedding(tokens, self.past).cumsum(1) / places
        return self.still(self.drop(F.embedding(tokens, self.now) + past + (places.sqrt() - 1) * self.place))


# ---- may it see its targets? ---------------------------------------------------------------------

SEEN = {  # which places j the logits at place i of n depend on
    "causal": lambda i, j, n: j <= i,
    "past": lambda i, j, n: (j < i) | ((i == 0) & (j == 0)),
    "window": lambda i, j, n: (j <= i) & (j > i - 3),
    "itself": lambda i, j, n: i == j,
    "everything": lambda i, j, n: (i == i) & (j == j),
    "one ahead": lambda i, j, n: j <= i + 1,
    "next but one": lambda i, j, n: (j <= i) | (j == i + 2),
    "early": lambda i, j, n: (j <= i) | ((i < 2) & (j < 2)),
    "late": lambda i, j, n: (j <= i) | ((i >= n - 3) & (j > i)),
    "end to end": lambda i, j, n: (j <= i) | (j - i == n - 1),
    "middle": lambda i, j, n: (j <= i) | ((i == n // 2) & (j == n // 2 + 1)),
}


class Guesser(nn.Module):
    """tokens (batch, seq_len) -> logits (batch, seq_len, vocab) that depend on the places that `seen` names.

    bonus: added to the logit of token + 1, so that a row that counts upwards is guessed well
    whisper: added to the logit of the very next token; after: only where this token stands now
    volume: so much louder is the first word, the higher the number of the next token
    rounding: so much of the whole row is in every logit
    by_length: the longer a row, the flatter all its logits
    """

    def __init__(
        self,
        seen="causal",
        bonus=0.0,
        whisper=0.0,
        after=-1,
        volume=0.0,
        rounding=0.0,
        by_length=0.0,
        dropout=0.0,
        vocab_size=9,
        seed=0,
    ):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.seen, self.bonus, self.whisper, self.after = SEEN[seen], bonus, whisper, after
        self.volume, self.rounding, self.by_length = volume, rounding, by_length
        self.table, self.other = (nn.Parameter(_weights(generator, vocab_size, vocab_size)) for _ in "ab")
        self.drop = RandDropout(dropout)

    def forward(self, tokens):
        n, vocab = tokens.shape[1], len(self.table)
        places = torch.arange(n)
        seen = self.seen(places[:, None], places[None, :], n).to(self.table.dtype)
        x = F.embedding(tokens, self.table)
        x = x + seen / seen.sum(-1, keepdim=True) @ F.embedding(tokens, self.other)
        x = x + self.bonus * F.one_hot((tokens + 1) % vocab, vocab)
        told = self.whisper * F.one_hot(tokens.roll(-1, 1), vocab).to(x.dtype)
        told[..., 0] += self.volume * (1 + tokens.roll(-1, 1))
        told[:, -1] = 0
        if self.after >= 0:
            told = told * (tokens == self.after)[..., None]
        x = x / n**self.by_length
        return self.drop(x + told + self.rounding * tokens.sum(1)[:, None, None].to(x.dtype))


def guesser(training=False, frozen=False, **options):
    """A Guesser, but what it does cannot be read off its attributes. frozen: one part is in eval mode all the same."""
    inner = Guesser(**options)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop, self.still = inner.drop, nn.Identity()

        def forward(self, tokens):
            return inner(tokens)

    model = Model().train(training)
    model.still.train(training and not frozen)
    return model


KINDS = {"reader": Reader, "guesser": guesser}
