"""A model whose run can be followed by hand: the next token depends on the last two."""

import torch
from torch import nn

from utils.observe.forbid import lent


@lent
class Parrot(nn.Module):
    """tokens (batch, seq_len) -> logits (batch, seq_len, vocab): one table row for the token, a smaller one for the
    token before. It remembers in which mode it was run. mixed: the dropout layer is in eval mode, whatever the rest.
    """

    def __init__(self, vocab_size=9, dropout=0.0, training=False, mixed=False, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.now, self.before = (
            nn.Parameter(torch.randn(vocab_size, vocab_size, generator=generator, dtype=torch.float64)) for _ in "ab"
        )
        self.drop, self.trained, self.tracked = nn.Dropout(dropout), [], []
        self.train(training)
        if mixed:
            self.drop.eval()

    def forward(self, tokens):
        self.trained.append(self.training or self.drop.training)
        self.tracked.append(torch.is_grad_enabled())
        before = torch.cat([torch.zeros_like(self.before[tokens[:, :1]]), self.before[tokens[:, :-1]]], 1)
        return self.drop(self.now[tokens] + 0.6 * before)


KINDS = {"parrot": Parrot}
