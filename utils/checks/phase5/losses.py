"""shift_targets, cross_entropy, perplexity."""

import math

import torch

from utils import oracle
from utils.checks.draw import given, normal
from utils.checks.exercise import Spotted, case, refusal, register
from utils.checks.phase5 import PHASE
from utils.checks.phase5 import rules_training as rules

# ---- shift_targets -------------------------------------------------------------------------------


def sentences(width, *lengths, pad=0):
    """Rows of so many words, 20 to 59, right-padded."""

    def draw(generator, others):
        words = torch.randint(20, 60, (len(lengths), width), generator=generator)
        return words.masked_fill(torch.arange(width) >= torch.tensor(lengths)[:, None], pad)

    return given(draw)


def ids(bos_id=1, eos_id=2, pad_id=0):
    return dict(bos_id=bos_id, eos_id=eos_id, pad_id=pad_id)


def shifted(change):
    """A wrong twin: change(inputs, targets, tokens, ids) makes both anew."""

    def shift_targets(tokens, bos_id, eos_id, pad_id):
        inputs, targets = oracle.shift_targets(tokens, bos_id, eos_id, pad_id)
        return change(inputs, targets, tokens, ids(bos_id, eos_id, pad_id))

    return shift_targets


def with_column(tokens, value, first=True):
    column = torch.full((len(tokens), 1), value)
    return torch.cat([column, tokens] if first else [tokens, column], -1)


def own_places(inputs, targets, tokens, i):
    """The targets are the inputs themselves."""
    return inputs, inputs.masked_fill(inputs == i["pad_id"], -100)


def without_eos(inputs, targets, tokens, i):
    ends = (targets != -100).sum(-1, keepdim=True) - 1
    return inputs, targets.scatter(1, ends, -100)


def eos_at_the_end(inputs, targets, tokens, i):
    return inputs, with_column(tokens.masked_fill(tokens == i["pad_id"], -100), i["eos_id"], first=False)


def full_rows_are_empty(inputs, targets, tokens, i):
    """The first padding is looked for; where there is none, argmax says 0."""
    lengths = (tokens == i["pad_id"]).int().argmax(1, keepdim=True)
    places = torch.arange(tokens.shape[1] + 1)
    longer = with_column(tokens, i["pad_id"], first=False)
    return inputs, longer.masked_fill(places > lengths, -100).masked_fill(places == lengths, i["eos_id"])


def by_two(inputs, targets, tokens, i):
    return inputs, torch.cat([targets[:, 1:], torch.full_like(targets[:, :1], -100)], -1)


def padded_targets(inputs, targets, tokens, i):
    return inputs, targets.masked_fill(targets == -100, i["pad_id"])


def hides_by_value(inputs, targets, tokens, i):
    return inputs, targets.masked_fill(targets == i["pad_id"], -100)


def without_bos(inputs, targets, tokens, i):
    return with_column(tokens, i["pad_id"], first=False), targets


def eos_in_the_inputs(inputs, targets, tokens, i):
    longer = with_column(inputs, i["pad_id"], first=False)
    ends = (targets != -100).sum(-1, keepdim=True)
    return longer.scatter(1, ends, i["eos_id"])[:, :-1], targets


register(
    expected=oracle.shift_targets,
    phase=PHASE,
    section="5.2",
    hint="inputs are bos and the row; targets are the row, eos right after its last word, then −100.",
    grad=False,
    bans=(),
    cases=(
        case("lengths 4, 2 and 0", dict(tokens=sentences(4, 4, 2, 0), **ids())),
        case("pad 11, six places", dict(tokens=sentences(6, 5, 6, 1, 3, pad=11), **ids(12, 13, 11))),
        case("pad_id is eos_id", dict(tokens=sentences(4, 4, 1, 3, pad=2), **ids(pad_id=2))),
        case("pad_id is bos_id", dict(tokens=sentences(5, 2, 5, pad=1), **ids(pad_id=1))),
        case("ids in another order", dict(tokens=sentences(3, 2, 3, pad=7), **ids(5, 0, 7))),
        case("one word", dict(tokens=sentences(1, 1), **ids())),
        case("three rows of three", dict(tokens=sentences(3, 3, 1, 2), **ids())),
    ),
    mistakes={
        "the model could copy its input": Spotted(rules.is_its_own_target, shifted(own_places)),
        "the target of a place is the very next token": shifted(by_two),
        "the model never learns to stop": shifted(without_eos),
        "eos comes right after the last word, before the padding": shifted(eos_at_the_end),
        "a full row has no padding: it is as long as the table is wide": shifted(full_rows_are_empty),
        "padding must be ignored": shifted(padded_targets),
        "the eos after the last word is a target, even if pad_id is eos_id": shifted(hides_by_value),
        "inputs begin with bos": shifted(without_bos),
        "inputs are bos and the row, without eos": shifted(eos_in_the_inputs),
    },
)

# ---- cross_entropy -------------------------------------------------------------------------------


def classes(vocab, ignore, *shape, kept=None, zeros=True):
    """Targets with `ignore` in some places; kept: how many stay in each row (last axis), all different."""

    def draw(generator, others):
        table = torch.randint(vocab, shape, generator=generator)
        table[table == ignore] = (ignore + 1) % vocab
        if zeros and table.dim():
            table[..., 0] = 0
        if kept is not None:
            hidden = torch.arange(shape[-1]) >= torch.tensor(kept)[:, None]
            table[hidden.expand(shape) if len(shape) > 1 else hidden[0]] = ignore
        return table

    return given(draw)


def loss_case(name, shape, ignore, kept=None, std=0.8, vocab=7, make=case, **options):
    smooth = {key: options.pop(key) for key in ("label_smoothing",) if key in options}
    args = dict(logits=normal(*shape, vocab, std=std), targets=classes(vocab, ignore, *shape, kept=kept))
    return make(name, args | dict(ignore_index=ignore) | smooth, **options)


def of_log_probs(reduce, logs=lambda logits: logits.log_softmax(-1)):
    """A wrong twin: reduce(log_probs, targets, kept, smoothing), targets being 0 where they are not kept."""

    def cross_entropy(logits, targets, ignore_index, label_smoothing=0.0):
        oracle.cross_entropy(logits, targets, ignore_index)  # for its refusals
        kept = targets != ignore_index
        if not kept.any() and reduce not in _MAY_BE_NAN:
            return (logits * 0).sum()
        return reduce(logs(logits), targets.masked_fill(~kept, 0), kept, label_smoothing)

    return cross_entropy


def each(logs, targets, smoothing):
    """The loss of each place."""
    right = logs.gather(-1, targets[..., None])[..., 0]
    return -(1 - smoothing) * right - smoothing * logs.mean(-1)


def over_all(logs, targets, kept, smoothing):
    return (each(logs, targets, smoothing) * kept).mean()


def summed(logs, targets, kept, smoothing):
    return (each(logs, targets, smoothing) * kept).sum()


def right_mean(logs, targets, kept, smoothing):
    return each(logs, targets, smoothing)[kept].mean()


def not_a_number(logs, targets, kept, smoothing):
    return each(logs, targets, smoothing)[kept].mean()


def no_class_0(logs, targets, kept, smoothing):
    return right_mean(logs, targets, kept & (targets != 0), smoothing)


def row_by_row(logs, targets, kept, smoothing):
    if kept.dim() < 2:
        return right_mean(logs, targets, kept, smoothing)
    losses = (each(logs, targets, smoothing) * kept).sum(-1)
    return (losses / kept.sum(-1).clamp(min=1)).mean()


def hard(logs, targets, kept, smoothing):
    return right_mean(logs, targets, kept, 0.0)


def not_to_the_target(logs, targets, kept, smoothing):
    """ε / (V − 1) to each of the others."""
    right, vocab = logs.gather(-1, targets[..., None])[..., 0], logs.shape[-1]
    others = (logs.sum(-1) - right) / (vocab - 1)
    return -((1 - smoothing) * right + smoothing * others)[kept].mean()


def on_top(logs, targets, kept, smoothing):
    """The one-hot keeps all of 1."""
    right = logs.gather(-1, targets[..., None])[..., 0]
    return -(right + smoothing * logs.mean(-1))[kept].mean()


def without_v(logs, targets, kept, smoothing):
    right = logs.gather(-1, targets[..., None])[..., 0]
    return -((1 - smoothing) * right + smoothing * logs.sum(-1))[kept].mean()


def positive(logs, targets, kept, smoothing):
    return -right_mean(logs, targets, kept, smoothing)


_MAY_BE_NAN = (not_a_number,)


def takes_all(logits, targets, ignore_index, label_smoothing=0.0):
    """Counts places with the ignored id where that is a class like any other."""
    inside = (targets >= 0) & (targets < logits.shape[-1])
    return oracle.cross_entropy(logits, targets.masked_fill(~inside, -5), -5, label_smoothing)


def takes_any_target(logits, targets, ignore_index, label_smoothing=0.0):
    kept = (targets != ignore_index) & (targets >= 0) & (targets < logits.shape[-1])
    return oracle.cross_entropy(logits, targets.masked_fill(~kept, -5), -5, label_smoothing)


def zero_of_its_own(logits, targets, ignore_index, label_smoothing=0.0):
    if (targets == ignore_index).all():
        return torch.zeros((), dtype=logits.dtype)
    return oracle.cross_entropy(logits, targets, ignore_index, label_smoothing)


def takes_any_shape(logits, targets, ignore_index, label_smoothing=0.0):
    if logits.shape[:-1] != targets.shape:
        return logits.sum()
    return oracle.cross_entropy(logits, targets, ignore_index, label_smoothing)


SMOOTH = dict(label_smoothing=0.3)

register(
    expected=oracle.cross_entropy,
    phase=PHASE,
    section="5.3",
    hint="log-softmax, pick the target's entry, average over kept targets only; smoothing mixes in the mean log.",
    bans=("attention", "losses"),
    properties=(rules.cut_off,),
    cases=(
        loss_case("ignored 9, four and two kept", (2, 5), 9, (4, 2)),
        loss_case("ignored −1, smoothing 0.3", (2, 5), -1, (1, 4), **SMOOTH),
        loss_case("ignored −100", (3, 4), -100, (4, 1, 0)),
        loss_case("an ignored id within the vocabulary", (2, 6), 3, (6, 2), **SMOOTH),
        loss_case("logits of ten thousand", (2, 5), 9, (3, 5), std=1e4),
        loss_case("one axis of places", (5,), 9, (4,), **SMOOTH),
        loss_case("three axes of places", (2, 3, 4), -100, (4, 1, 3), vocab=6),
        loss_case("one place", (), 9),
        loss_case("two classes", (1, 3), 9, (3,), vocab=2, **SMOOTH),
        loss_case("nothing kept", (2, 3), 9, (0, 0), kind="edge"),
        loss_case("nothing kept, smoothing 0.3", (2, 3), -100, (0, 0), kind="edge", **SMOOTH),
        refusal("other lengths", dict(logits=(2, 5, 7), targets=classes(7, 9, 2, 4), ignore_index=9)),
        refusal("an axis too few", dict(logits=(2, 5, 7), targets=classes(7, 9, 5), ignore_index=9)),
        refusal("a target beyond", dict(logits=(2, 3), targets=torch.tensor([1, 3]), ignore_index=9)),
        refusal("a negative target", dict(logits=(2, 3), targets=torch.tensor([1, -1]), ignore_index=-100)),
    ),
    mistakes={
        "divide by the kept targets": of_log_probs(over_all),
        "the mean, not the sum": of_log_probs(summed),
        "log(softmax) is −∞ where softmax rounds to 0": Spotted(
            rules.underflowed, of_log_probs(right_mean, lambda logits: logits.softmax(-1).log())
        ),
        "class 0 is a target like any other": of_log_probs(no_class_0),
        "average over tokens, not over rows first": of_log_probs(row_by_row),
        "label smoothing was ignored": of_log_probs(hard),
        "smoothing gives ε/V to every class, the target's too": of_log_probs(not_to_the_target),
        "smoothing takes ε from the target": of_log_probs(on_top),
        "smoothing divides ε by V": of_log_probs(without_v),
        "a loss is minus the log": of_log_probs(positive),
        "nothing kept: 0, but backward must still work": Spotted(rules.cut_off, zero_of_its_own, certain=True),
        "nothing kept: the loss is 0, not nan": of_log_probs(not_a_number),
        "the natural logarithm is meant": of_log_probs(right_mean, lambda logits: logits.log_softmax(-1) / math.log(2)),
        "softmax was taken twice": of_log_probs(right_mean, lambda logits: logits.softmax(-1).log_softmax(-1)),
        "these are logits: log-softmax comes first": of_log_probs(right_mean, lambda logits: logits),
        "ignore_index is an argument": takes_all,
        "a kept target outside the vocabulary is a mistake: refuse it": Spotted(
            rules.target_accepted, takes_any_target, certain=True
        ),
        "targets need the shape of the logits without the last axis": Spotted(
            rules.shape_accepted, takes_any_shape, certain=True
        ),
    },
)

# ---- perplexity ----------------------------------------------------------------------------------


def taken(change):
    """A wrong twin: change(losses, counts) in place of the answer."""

    def perplexity(losses, counts):
        oracle.perplexity(losses, counts)  # for its refusals
        return float(change(losses, counts))

    return perplexity


def weighted(values, counts):
    return sum(value * count for value, count in zip(values, counts, strict=True)) / sum(counts)


def takes_any_counts(losses, counts):
    pairs = list(zip(losses, counts, strict=False))
    total = sum(count for _, count in pairs) or 1
    return math.exp(sum(loss * count for loss, count in pairs) / total)


def asked(name, losses, counts, make=case):
    return make(name, dict(losses=losses, counts=counts))


register(
    expected=oracle.perplexity,
    phase=PHASE,
    section="5.3",
    hint="average the losses with their counts as weights, then exp.",
    grad=False,
    bans=(),
    script="perplexity",
    cases=(
        asked("three batches", [1.2, 3.1, 0.4], [7, 2, 40]),
        asked("two batches", [0.9, 2.3], [3, 11]),
        asked("one batch", [2.7], [13]),
        asked("a batch without tokens", [1.7, 250.0, 2.2], [4, 0, 9]),
        asked("other lengths", [1.0, 2.0], [3], refusal),
        asked("more counts than losses", [1.0], [3, 4], refusal),
        asked("no tokens at all", [1.0, 2.0], [0, 0], refusal),
        asked("nothing", [], [], refusal),
    ),
    mistakes={
        "weight each batch by its tokens": taken(lambda losses, counts: math.exp(sum(losses) / len(losses))),
        "average before exp": taken(lambda losses, counts: weighted([math.exp(one) for one in losses], counts)),
        "losses are in nats: the base is e": taken(lambda losses, counts: 2 ** weighted(losses, counts)),
        "exp is missing": taken(weighted),
        "divide by the number of tokens, not of batches": taken(
            lambda losses, counts: (
                math.exp(weighted(losses, counts) * sum(counts) / len(losses))
                if weighted(losses, counts) * sum(counts) < 700
                else math.inf
            )
        ),
        "counts must fit the losses and not all be 0": Spotted(rules.counts_accepted, takes_any_counts, certain=True),
    },
)
