"""evaluate: the loss on a test text."""

import math

import torch
import torch.nn.functional as F

from utils import oracle
from utils.checks.draw import given
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase7 import PHASE
from utils.checks.phase7 import rules_training as rules
from utils.observe.codec import Fixture

VOCAB = 7


def reader(**options):
    return Fixture("reader", dict(vocab_size=VOCAB) | options)


def stream(length):
    return given(lambda generator, others: torch.randint(VOCAB, (length,), generator=generator))


def text(name, length, seq_len, make=case, **options):
    args = dict(model=reader(**options), tokens=stream(length), seq_len=seq_len)
    return make(name, args, **({"atol": 1e-3} if make is case else {}))  # logits may go through float32


def windows(tokens, seq_len):
    """(inputs, targets) of each window, the last one as long as it is."""
    for start in range(0, len(tokens) - 1, seq_len):
        piece = tokens[start : start + seq_len + 1]
        yield piece[:-1], piece[1:]


def evaluator(cut=windows, put_back=True, quiet=torch.no_grad, evals=True, price=None, answer=None, short=True):
    """A wrong twin of evaluate from its parts."""

    def evaluate(model, tokens, seq_len):
        if short and (len(tokens) < 2 or seq_len < 1):
            raise ValueError("nothing to predict")
        flags = [(part, part.training) for part in model.modules()]
        if evals:
            model.eval()
        with quiet():
            found = [(price or summed)(model(inputs[None])[0], targets) for inputs, targets in cut(tokens, seq_len)]
        if put_back is True:
            for part, training in flags:
                part.training = training
        elif put_back == "one":
            model.train(flags[0][1])
        elif put_back == "train":
            model.train()
        counts = [len(targets) for _, targets in cut(tokens, seq_len)]
        return (answer or total)([loss.item() for loss in found], counts)

    return evaluate


def summed(logits, targets):
    return F.cross_entropy(logits, targets, reduction="sum")


def meant(logits, targets):
    return F.cross_entropy(logits, targets)


def total(losses, counts):
    return sum(losses), sum(counts)


def chunks(tokens, seq_len):
    """Pieces side by side: the target at each seam is lost."""
    for piece in tokens.split(seq_len):
        if len(piece) > 1:
            yield piece[:-1], piece[1:]


def whole_ones(tokens, seq_len):
    return [pair for pair in windows(tokens, seq_len) if len(pair[0]) == seq_len] or list(windows(tokens, seq_len))[:0]


def sliding(tokens, seq_len):
    for start in range(max(1, len(tokens) - seq_len)):
        piece = tokens[start : start + seq_len + 1]
        yield piece[:-1], piece[1:]


def overlapping(tokens, seq_len):
    for start in range(0, len(tokens) - 1, max(1, seq_len - 1)):
        piece = tokens[start : start + seq_len + 1]
        yield piece[:-1], piece[1:]


def moved_back(tokens, seq_len):
    """Full windows: the last one begins earlier, and of it only the targets count that are new."""
    count = len(tokens) - 1
    for start in range(0, count, seq_len):
        end = min(start + seq_len, count)
        yield tokens[max(0, end - seq_len) : end], tokens[start + 1 : end + 1]


def of_the_last(logits, targets):
    return summed(logits[len(logits) - len(targets) :], targets)


def one_row(model, tokens, seq_len):
    return oracle.evaluate(model, tokens, seq_len), model(tokens)


def up_to_the_last_token(tokens, seq_len):
    """A window begins at the last token, too."""
    for start in range(0, len(tokens), seq_len):
        piece = tokens[start : start + seq_len + 1]
        yield piece[:-1], piece[1:]


def one_piece(tokens, seq_len):
    return [(tokens[:-1], tokens[1:])]


def shorter(tokens, seq_len):
    return windows(tokens, max(1, seq_len - 1))


def copied(tokens, seq_len):
    """Each token its own target."""
    return [(inputs, inputs) for inputs, _ in windows(tokens, seq_len)]


def up_to_the_end(tokens, seq_len):
    """As many windows at random places."""
    for _ in range(math.ceil((len(tokens) - 1) / seq_len)):
        start = int(torch.randint(max(1, len(tokens) - seq_len), ()))
        piece = tokens[start : start + seq_len + 1]
        yield piece[:-1], piece[1:]


def asleep_where_it_raises(model, tokens, seq_len):
    """Eval mode first, a look at the arguments afterwards."""
    if len(tokens) < 2 or seq_len < 1:
        model.eval()
    return oracle.evaluate(model, tokens, seq_len)


def also_does(something):
    """The right answer, and something that is done to the model."""

    def evaluate(model, tokens, seq_len):
        something(model)
        return oracle.evaluate(model, tokens, seq_len)

    return evaluate


def padding_counts(keep):
    """All windows in one batch, the last one filled up with token 0; keep(targets, place): what counts."""

    def evaluate(model, tokens, seq_len):
        right = oracle.evaluate(model, tokens, seq_len)  # for its refusals
        rows = -(-(len(tokens) - 1) // seq_len)
        inputs, targets = (F.pad(part, (0, rows * seq_len - len(part))) for part in (tokens[:-1], tokens[1:]))
        flags = [(part, part.training) for part in model.modules()]
        model.eval()
        with torch.no_grad():
            logits = model(inputs.view(rows, seq_len)).flatten(0, 1)
            losses = F.cross_entropy(logits, targets, reduction="none")
        for part, training in flags:
            part.training = training
        return losses[keep(targets, right[1])].sum().item(), right[1]

    return evaluate


register(
    expected=oracle.evaluate,
    phase=PHASE,
    section="7.7",
    hint="windows of seq_len inputs side by side; the targets of one end where those of the next begin.",
    grad=False,
    bans=(),
    script="evaluation",
    cases=(
        text("24 tokens by fives", 24, 5),
        text("21 tokens by fives: nothing is left over", 21, 5, seed=1),
        text("one target is left over", 22, 5, seed=2),
        text("dropout on entry", 17, 4, dropout=0.5, training=True, seed=3),
        text("parts in different modes", 17, 6, dropout=0.5, training=True, frozen=True, seed=4),
        text("a window longer than the text", 9, 30, seed=5),
        text("one target in each window", 6, 1, seed=6),
        text("two tokens", 2, 3, seed=7),
        text("one token", 1, 3, refusal, training=True),
        text("no token", 0, 3, refusal),
        text("windows of nothing", 9, 0, refusal, training=True),
        text("windows of less than nothing", 9, -1, refusal),
    ),
    mistakes={
        "the target at a seam is lost: windows share one token": evaluator(cut=chunks),
        "the last, shorter window counts, too": evaluator(cut=whole_ones),
        "each target exactly once: windows do not overlap": Replays(evaluator(cut=sliding), evaluator(cut=overlapping)),
        "the last window is shorter: it begins where the one before it ends": evaluator(
            cut=moved_back, price=of_the_last
        ),
        "a model takes a batch: tokens[None], and [0] of what comes back": Spotted(
            rules.one_row_alone, one_row, certain=True
        ),
        "no window begins at the last token: range(0, len(tokens) - 1, seq_len)": Spotted(
            rules.window_of_nothing, evaluator(cut=up_to_the_last_token), certain=True
        ),
        "windows of seq_len inputs, not the whole text": evaluator(cut=one_piece),
        "padding is no target": padding_counts(lambda targets, n: slice(None)),
        "0 is a token like any other: padding is told by its place": padding_counts(lambda targets, n: targets != 0),
        "a window has seq_len inputs and as many targets": evaluator(cut=shorter),
        "the logits at one place are about the next": evaluator(cut=copied),
        "the sum of all losses, not a mean": Replays(
            evaluator(answer=lambda losses, counts: (sum(losses) / sum(counts), sum(counts))),
            evaluator(price=meant),
            evaluator(price=meant, answer=lambda losses, counts: (sum(losses) / len(losses), sum(counts))),
        ),
        "means of windows do not weigh alike: the last is shorter": evaluator(
            price=meant, answer=lambda losses, counts: (sum(losses) / len(losses) * sum(counts), sum(counts))
        ),
        "the first token is nobody's target": evaluator(answer=lambda losses, counts: (sum(losses), sum(counts) + 1)),
        "n_tokens counts targets, not windows": evaluator(answer=lambda losses, counts: (sum(losses), len(losses))),
        "in nats: the natural logarithm": evaluator(
            answer=lambda losses, counts: (sum(losses) / math.log(2), sum(counts))
        ),
        "put every train and eval flag back, part by part": Replays(
            evaluator(put_back=False), evaluator(put_back="one"), evaluator(put_back="train")
        ),
        "look at the arguments before eval mode, or put it back": Spotted(
            rules.asleep_where_it_raised, asleep_where_it_raises, certain=True
        ),
        "the weights belong to a training that goes on: leave their gradients alone": Replays(
            also_does(lambda model: model.zero_grad()),
            also_does(lambda model: model.requires_grad_(False)),
            also_does(lambda model: (model.zero_grad(), model.requires_grad_(False))),
        ),
        "dropout is off in eval mode": Spotted(rules.ran_in_training_mode, evaluator(evals=False), certain=True),
        "nothing is learned here: torch.no_grad()": Spotted(
            rules.kept_gradients, evaluator(quiet=torch.enable_grad), certain=True
        ),
        "a test draws nothing: the windows are fixed": Spotted(
            rules.drew_numbers, evaluator(cut=up_to_the_end), certain=True
        ),
        "fewer than two tokens, or no window: raise ValueError": Spotted(
            rules.nothing_accepted, evaluator(short=False), certain=True
        ),
    },
)
