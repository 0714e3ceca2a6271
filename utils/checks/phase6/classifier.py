"""mean_pool and EncoderClassifier: one vector, then one verdict, for a whole sentence."""

import torch
import torch.nn.functional as F
from torch import nn

from utils import oracle
from utils.checks.draw import given, mask, normal
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase6 import PHASE
from utils.checks.phase6 import rules_families as rules
from utils.observe.codec import Fixture


def lengths(seq_len, *real):
    """A (batch, seq_len) pad mask: so many real tokens in each row."""
    return given(lambda generator, others: torch.arange(seq_len) < torch.tensor(real)[:, None])


def tokens(vocab_size, *shape):
    return given(lambda generator, others: torch.randint(vocab_size, shape, generator=generator))


def padded(*shape, at=40.0):
    """Random vectors; behind the first three of each row they are large: what is hidden has no influence."""

    def draw(generator, others):
        x = normal(*shape).draw(generator, others)
        x[:, 3:] += at
        return x

    return given(draw)


def scattered(*rows):
    return given(lambda generator, others: torch.tensor(rows, dtype=torch.bool))


def number(pad_mask, x):
    return pad_mask.to(x.dtype)[..., None]


register(
    expected=oracle.mean_pool,
    phase=PHASE,
    section="6.3",
    hint="sum the real tokens, divide by how many there are; none gives zeros.",
    fresh=True,
    cases=(
        case("4 and 7 real tokens", dict(x=(2, 7, 5), pad_mask=lengths(7, 4, 7))),
        case("3 and 2 real tokens, large pads", dict(x=padded(2, 6, 4), pad_mask=lengths(6, 3, 2))),
        case("real tokens here and there", dict(x=(2, 4, 3), pad_mask=scattered([0, 1, 0, 1], [1, 1, 1, 0]))),
        case("batch as long as the sentence", dict(x=(4, 4, 3), pad_mask=lengths(4, 1, 4, 2, 3))),
        case("all real", dict(x=(3, 5, 2), pad_mask=mask(3, 5, full=True))),
        case("one token", dict(x=(2, 1, 4), pad_mask=mask(2, 1, full=True))),
        case("3, 5 and 0 real tokens", dict(x=(3, 6, 4), pad_mask=lengths(6, 3, 5, 0)), kind="edge"),
        case("nothing real at all", dict(x=(2, 3, 4), pad_mask=lengths(3, 0, 0)), kind="edge"),
    ),
    mistakes={
        "nothing is added to the count: clamp it at 1": Replays(
            *(
                lambda x, pad_mask, eps=eps: (x * number(pad_mask, x)).sum(1) / (number(pad_mask, x).sum(1) + eps)
                for eps in (1e-5, 1e-6, 1e-4)
            )
        ),
        "nan_to_num hides a NaN, its gradient stays": lambda x, pad_mask: torch.nan_to_num(
            (x * number(pad_mask, x)).sum(1) / number(pad_mask, x).sum(1)
        ),
        "divide by the real tokens": lambda x, pad_mask: (x * number(pad_mask, x)).mean(1),
        "a sentence of padding gives zeros, not NaN": Spotted(
            rules.nan_somewhere, lambda x, pad_mask: (x * number(pad_mask, x)).sum(1) / number(pad_mask, x).sum(1)
        ),
        "pads are in the mean": lambda x, pad_mask: x.mean(1),
        "pads are in the sum": lambda x, pad_mask: x.sum(1) / number(pad_mask, x).sum(1).clamp(min=1),
        "that is the sum": lambda x, pad_mask: (x * number(pad_mask, x)).sum(1),
        "True means real token": lambda x, pad_mask: oracle.mean_pool(x, ~pad_mask),
        "each sentence has its own length": lambda x, pad_mask: (
            (x * number(pad_mask, x)).sum(1) / (pad_mask.sum(1).max().clamp(min=1))
        ),
    },
)


class _Classifier(oracle.EncoderClassifier):
    """A wrong twin in its parts; as it stands it is right."""

    def forward(self, tokens, pad_mask):
        y = self.encoder(self.entered(tokens), attn_mask=self.seen(pad_mask))
        return self.verdict(self.pooled(y, pad_mask))

    def entered(self, tokens):
        rows = F.embedding(tokens, self.token_embedding.weight)
        return F.dropout(self.placed(rows), self.config.dropout, self.training)

    def placed(self, rows):
        return self.positions(rows)

    def seen(self, pad_mask):
        return oracle.padding_mask(pad_mask)

    def pooled(self, y, pad_mask):
        return oracle.mean_pool(y, pad_mask)

    def verdict(self, pooled):
        return self.classifier(pooled)


def wrong(**methods):
    return type("WrongClassifier", (_Classifier,), methods)


class _Sinusoidal(_Classifier):
    """Positions without a parameter."""

    def __init__(self, config, n_classes):
        super().__init__(config, n_classes)
        self.positions = nn.Identity()

    def placed(self, rows):
        return rows + oracle.sinusoidal_positions(*rows.shape[1:]).to(rows.dtype)


def encoded(post_norm=True, dropout=True):
    """A wrong twin whose encoder is not told of one of the two."""

    class Wrong(_Classifier):
        def __init__(self, config, n_classes):
            super().__init__(config, n_classes)
            c = config
            sizes = (c.n_layers, c.d_model, c.n_heads, c.d_ff)
            told = dict(norm_first=c.norm_first) if post_norm else {}
            self.encoder = oracle.Encoder(*sizes, **told, **({"dropout": c.dropout} if dropout else {}))

    return Wrong


def never_dropped(self, tokens):
    return self.placed(F.embedding(tokens, self.token_embedding.weight))


def always_dropped(self, tokens):
    return F.dropout(never_dropped(self, tokens), self.config.dropout)


def dropped_at_the_end(self, pooled):
    return self.classifier(F.dropout(pooled, self.config.dropout, self.training))


def at_last_real(self, y, pad_mask):
    last = (pad_mask * torch.arange(pad_mask.shape[1])).argmax(1)
    return y[torch.arange(len(y)), last]


def config(**options):
    sizes = dict(vocab_size=11, d_model=12, n_heads=3, n_layers=2, d_ff=20, max_len=9)
    return dict(config=Fixture("config", sizes | options), n_classes=5)


PAIR = dict(tokens=tokens(11, 2, 7), pad_mask=lengths(7, 7, 4))
FIRST = given(lambda generator, others: torch.tensor([[3, 8, 1, 6, 2, 2, 2], [5, 1, 9, 0, 2, 7, 4]]))
ALONE = given(lambda generator, others: torch.tensor([[3, 8, 1, 6]]))

register(
    expected=oracle.EncoderClassifier,
    phase=PHASE,
    section="6.3",
    hint="table + positions, encoder with the padding hidden, mean over real tokens, one linear layer.",
    bans=("attention", "blocks"),
    cases=(
        case("two sentences, one padded", PAIR, init=config()),
        case("post-norm", PAIR, init=config(norm_first=False)),
        case(
            "padded, then alone",
            dict(tokens=FIRST, pad_mask=lengths(7, 4, 7)),
            then=(dict(tokens=ALONE, pad_mask=lengths(4, 4)),),
            init=config(),
        ),
        case("no padding", dict(tokens=tokens(11, 3, 5), pad_mask=lengths(5, 5, 5, 5)), init=config(n_layers=1)),
        case("one token", dict(tokens=tokens(11, 2, 1), pad_mask=lengths(1, 1, 1)), then=(PAIR,), init=config()),
        case("a row of padding", dict(tokens=tokens(11, 2, 4), pad_mask=lengths(4, 0, 3)), init=config(), kind="edge"),
        case("dropout 0.5 in eval", PAIR, init=config(dropout=0.5), grad=False),
        case("dropout 1 in training", PAIR, init=config(dropout=1.0), train=True, grad=False),
        case("dropout 1, post-norm", PAIR, init=config(dropout=1.0, norm_first=False), train=True, grad=False),
    ),
    mistakes={
        "average the real tokens": Replays(
            wrong(pooled=lambda self, y, pad_mask: y[:, 0]),
            wrong(pooled=lambda self, y, pad_mask: y[:, -1]),
            wrong(pooled=at_last_real),
        ),
        "pads are in the mean": wrong(pooled=lambda self, y, pad_mask: y.mean(1)),
        "attention must not read pads": wrong(seen=lambda self, pad_mask: None),
        "an encoder looks both ways": wrong(
            seen=lambda self, pad_mask: oracle.padding_mask(pad_mask) & oracle.causal_mask(pad_mask.shape[1])
        ),
        "True means real token": wrong(seen=lambda self, pad_mask: oracle.padding_mask(~pad_mask)),
        "return logits": Replays(
            wrong(verdict=lambda self, pooled: self.classifier(pooled).softmax(-1)),
            wrong(verdict=lambda self, pooled: self.classifier(pooled).log_softmax(-1)),
        ),
        "norm_first was not handed on": Replays(encoded(post_norm=False), encoded(post_norm=False, dropout=False)),
        "dropout was not handed on to the encoder": encoded(dropout=False),
        "dropout follows the positions": Replays(
            wrong(entered=never_dropped), type("Wrong", (encoded(dropout=False),), dict(entered=never_dropped))
        ),
        "dropout is for training: nn.Dropout, or training=self.training": Spotted(
            rules.drops_in_eval, wrong(entered=always_dropped)
        ),
        "no dropout before the verdict": wrong(verdict=dropped_at_the_end),
        "the mean, not the largest": wrong(
            pooled=lambda self, y, pad_mask: y.masked_fill(~pad_mask[..., None], -1e9).amax(1)
        ),
        "no √d_model here": wrong(placed=lambda self, rows: self.positions(rows * rows.shape[-1] ** 0.5)),
        "positions are missing": wrong(placed=lambda self, rows: rows),
        "positions are learned here: positions.table": Spotted(rules.missing("positions.table"), _Sinusoidal),
    },
)
