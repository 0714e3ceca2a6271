"""shift_targets, cross_entropy, perplexity: wrong solutions and unusual right ones."""

import math

import numpy as np
import torch

from tests.bank import right, wrong

# ---------------------------------------------------------------- shift_targets


def columns(tokens, bos_id, eos_id, pad_id):
    """Parts to build from: bos column, lengths, targets as they should be."""
    bos = torch.full((len(tokens), 1), bos_id)
    lengths = (tokens != pad_id).sum(1)
    places = torch.arange(tokens.shape[1] + 1)
    targets = torch.cat([tokens, bos], 1)
    targets = torch.where(places == lengths[:, None], eos_id, targets)
    return bos, lengths, torch.where(places > lengths[:, None], -100, targets)


@wrong("shift_targets", says="the model could copy its input")
def nothing_shifted(tokens, bos_id, eos_id, pad_id):
    bos, *_ = columns(tokens, bos_id, eos_id, pad_id)
    inputs = torch.cat([bos, tokens], 1)
    targets = inputs.clone()
    targets[:, 1:][tokens == pad_id] = -100
    return inputs, targets


@wrong("shift_targets", says="the model never learns to stop")
def no_eos(tokens, bos_id, eos_id, pad_id):
    bos, *_ = columns(tokens, bos_id, eos_id, pad_id)
    targets = torch.cat([tokens, torch.full_like(bos, pad_id)], 1)
    return torch.cat([bos, tokens], 1), targets.masked_fill(targets == pad_id, -100)


@wrong("shift_targets", says="eos comes right after the last word, before the padding")
def eos_in_the_last_column(tokens, bos_id, eos_id, pad_id):
    bos, *_ = columns(tokens, bos_id, eos_id, pad_id)
    hidden = tokens.masked_fill(tokens == pad_id, -100)
    return torch.cat([bos, tokens], 1), torch.cat([hidden, torch.full_like(bos, eos_id)], 1)


@wrong("shift_targets", says="padding must be ignored")
def pads_stay(tokens, bos_id, eos_id, pad_id):
    bos, lengths, targets = columns(tokens, bos_id, eos_id, pad_id)
    return torch.cat([bos, tokens], 1), torch.where(targets == -100, pad_id, targets)


@wrong("shift_targets", says="the eos after the last word is a target, even if pad_id is eos_id")
def by_value(tokens, bos_id, eos_id, pad_id):
    bos, lengths, targets = columns(tokens, bos_id, eos_id, pad_id)
    targets = torch.where(targets == -100, pad_id, targets)
    return torch.cat([bos, tokens], 1), torch.where(targets == pad_id, -100, targets)


@wrong("shift_targets", says="the target of a place is the very next token")
def two_ahead(tokens, bos_id, eos_id, pad_id):
    bos, _, targets = columns(tokens, bos_id, eos_id, pad_id)
    return torch.cat([bos, tokens], 1), torch.cat([targets[:, 1:], torch.full_like(bos, -100)], 1)


@wrong("shift_targets")
def one_column_short(tokens, bos_id, eos_id, pad_id):
    bos, _, targets = columns(tokens, bos_id, eos_id, pad_id)
    return torch.cat([bos, tokens[:, :-1]], 1), targets[:, :-1]


@wrong("shift_targets")
def float_targets(tokens, bos_id, eos_id, pad_id):
    bos, _, targets = columns(tokens, bos_id, eos_id, pad_id)
    return torch.cat([bos, tokens], 1), targets.float()


@wrong("shift_targets")
def writes_into_tokens(tokens, bos_id, eos_id, pad_id):
    bos, _, targets = columns(tokens, bos_id, eos_id, pad_id)
    inputs = torch.cat([bos, tokens], 1)
    tokens[tokens == pad_id] = -100
    return inputs, targets


@right("shift_targets", why="loops over lists")
def with_loops(tokens, bos_id, eos_id, pad_id):
    inputs, targets = [], []
    for row in tokens.tolist():
        n = sum(token != pad_id for token in row)
        inputs.append([bos_id] + row)
        targets.append(row[:n] + [eos_id] + [-100] * (len(row) - n))
    return torch.tensor(inputs), torch.tensor(targets)


@right("shift_targets", why="scatter")
def with_scatter(tokens, bos_id, eos_id, pad_id):
    batch = tokens.shape[0]
    real = tokens != pad_id
    targets = torch.full((batch, tokens.shape[1] + 1), -100)
    targets[:, :-1][real] = tokens[real]
    targets.scatter_(1, real.sum(1, keepdim=True), eos_id)
    return torch.nn.functional.pad(tokens, (1, 0), value=bos_id), targets


@right("shift_targets", why="padding and where")
def with_where(tokens, bos_id, eos_id, pad_id):
    _, lengths, targets = columns(tokens, bos_id, eos_id, pad_id)
    return torch.nn.functional.pad(tokens, (1, 0), value=bos_id), targets


@right("shift_targets", why="an index per row")
def with_indices(tokens, bos_id, eos_id, pad_id):
    bos = tokens.new_tensor([[bos_id]]).expand(len(tokens), 1)
    padded = torch.where(tokens == pad_id, -100, tokens)
    targets = torch.cat([padded, torch.full_like(bos, -100)], dim=-1)
    targets[torch.arange(len(tokens)), (tokens != pad_id).sum(-1)] = eos_id
    return torch.hstack([bos, tokens]), targets


# ---------------------------------------------------------------- cross_entropy


def refuse(logits, targets, ignore_index):
    if logits.shape[:-1] != targets.shape:
        raise ValueError("shape")
    kept = targets[targets != ignore_index]
    if kept.numel() and (kept.min() < 0 or kept.max() >= logits.shape[-1]):
        raise ValueError("vocab")


def places(logits, targets, ignore_index, eps):
    """(loss per place, kept) with 0 where nothing is kept."""
    refuse(logits, targets, ignore_index)
    kept = targets != ignore_index
    logs = logits.log_softmax(-1)
    right_one = logs.gather(-1, targets.masked_fill(~kept, 0).unsqueeze(-1)).squeeze(-1)
    return (-(1 - eps) * right_one - eps * logs.mean(-1)) * kept, kept


@wrong("cross_entropy", says="divide by the kept targets")
def mean_of_all(logits, targets, ignore_index, label_smoothing=0.0):
    return places(logits, targets, ignore_index, label_smoothing)[0].mean()


@wrong("cross_entropy", says="the mean, not the sum")
def sum_of_all(logits, targets, ignore_index, label_smoothing=0.0):
    return places(logits, targets, ignore_index, label_smoothing)[0].sum()


@wrong("cross_entropy", says="nothing kept: the loss is 0, not nan")
def nan_for_nothing(logits, targets, ignore_index, label_smoothing=0.0):
    losses, kept = places(logits, targets, ignore_index, label_smoothing)
    return losses.sum() / kept.sum()


@wrong("cross_entropy", says="label smoothing was ignored")
def hard_targets(logits, targets, ignore_index, label_smoothing=0.0):
    losses, kept = places(logits, targets, ignore_index, 0.0)
    return losses.sum() / kept.sum().clamp(min=1)


@wrong("cross_entropy", says="log(softmax) is −∞ where softmax rounds to 0")
def log_of_softmax(logits, targets, ignore_index, label_smoothing=0.0):
    refuse(logits, targets, ignore_index)
    kept = targets != ignore_index
    if not kept.any():
        return logits[kept].sum()
    logs = logits.softmax(-1).log()[kept]
    return -(
        (1 - label_smoothing) * logs.gather(-1, targets[kept][:, None])[:, 0] + label_smoothing * logs.mean(-1)
    ).mean()


@wrong("cross_entropy", says="class 0 is a target like any other")
def zero_is_padding(logits, targets, ignore_index, label_smoothing=0.0):
    losses, kept = places(logits, targets, ignore_index, label_smoothing)
    kept = kept & (targets != 0)
    return (losses * kept).sum() / kept.sum().clamp(min=1)


@wrong("cross_entropy", says="average over tokens, not over rows first")
def rows_first(logits, targets, ignore_index, label_smoothing=0.0):
    losses, kept = places(logits, targets, ignore_index, label_smoothing)
    return (losses.sum(-1) / kept.sum(-1).clamp(min=1)).mean()


@wrong("cross_entropy", says="a kept target outside the vocabulary is a mistake: refuse it")
def an_index_error(logits, targets, ignore_index, label_smoothing=0.0):
    if logits.shape[:-1] != targets.shape:
        raise ValueError("shape")
    kept = targets != ignore_index
    if not kept.any():
        return (logits * 0).sum()
    logs = logits.log_softmax(-1)[kept]
    return -(
        (1 - label_smoothing) * logs.gather(-1, targets[kept][:, None])[:, 0] + label_smoothing * logs.mean(-1)
    ).mean()


@wrong("cross_entropy")
def torchs_own(logits, targets, ignore_index, label_smoothing=0.0):
    refuse(logits, targets, ignore_index)
    if not (targets != ignore_index).any():
        return (logits * 0).sum()
    kept = targets != ignore_index
    return torch.nn.functional.cross_entropy(logits[kept], targets[kept], label_smoothing=label_smoothing)


@wrong("cross_entropy")
def detached(logits, targets, ignore_index, label_smoothing=0.0):
    losses, kept = places(logits.detach(), targets, ignore_index, label_smoothing)
    return losses.sum() / kept.sum().clamp(min=1)


@wrong("cross_entropy", says="smoothing gives ε/V to every class, the target's too")
def others_only(logits, targets, ignore_index, label_smoothing=0.0):
    refuse(logits, targets, ignore_index)
    kept = targets != ignore_index
    if not kept.any():
        return (logits * 0).sum()
    logs, vocab = logits[kept].log_softmax(-1), logits.shape[-1]
    soft = torch.full_like(logs, label_smoothing / (vocab - 1))
    soft.scatter_(-1, targets[kept][:, None], 1 - label_smoothing)
    return -(soft * logs).sum(-1).mean()


@right("cross_entropy", why="masked everywhere, divided by the clamped count")
def masked(logits, targets, ignore_index, label_smoothing=0.0):
    losses, kept = places(logits, targets, ignore_index, label_smoothing)
    return losses.sum() / kept.sum().clamp(min=1)


@right("cross_entropy", why="the whole distribution q, spelled out")
def soft_targets(logits, targets, ignore_index, label_smoothing=0.0):
    refuse(logits, targets, ignore_index)
    vocab, kept = logits.shape[-1], (targets != ignore_index).flatten()
    if not kept.any():
        return 0.0 * logits.sum()
    logs = logits.reshape(-1, vocab)[kept].log_softmax(-1)
    hot = torch.nn.functional.one_hot(targets.flatten()[kept], vocab).to(logits.dtype)
    return -((hot * (1 - label_smoothing) + label_smoothing / vocab) * logs).sum() / len(logs)


@right("cross_entropy", why="a loop over kept rows")
def looped(logits, targets, ignore_index, label_smoothing=0.0):
    refuse(logits, targets, ignore_index)
    total, count = logits.new_zeros(()) + 0 * logits.sum(), 0
    for row, target in zip(logits.reshape(-1, logits.shape[-1]), targets.flatten().tolist(), strict=True):
        if target != ignore_index:
            logs = row - torch.logsumexp(row, 0)
            total = total - (1 - label_smoothing) * logs[target] - label_smoothing * logs.mean()
            count += 1
    return total / max(count, 1)


@right("cross_entropy", why="logsumexp minus gather, no log-softmax anywhere")
def with_logsumexp(logits, targets, ignore_index, label_smoothing=0.0):
    refuse(logits, targets, ignore_index)
    kept = targets != ignore_index
    picked = logits.gather(-1, targets.where(kept, torch.zeros_like(targets))[..., None])[..., 0]
    mixed = (1 - label_smoothing) * picked + label_smoothing * logits.mean(-1)
    losses = torch.where(kept, logits.logsumexp(-1) - mixed, 0.0)
    return losses.sum() / max(int(kept.sum()), 1)


# ---------------------------------------------------------------- perplexity


def good_counts(losses, counts):
    if len(losses) != len(counts) or not sum(counts):
        raise ValueError("counts")


@wrong("perplexity", says="weight each batch by its tokens")
def mean_of_means(losses, counts):
    good_counts(losses, counts)
    return math.exp(sum(losses) / len(losses))


@wrong("perplexity", says="average before exp")
def exp_first(losses, counts):
    good_counts(losses, counts)
    return sum(math.exp(loss) * count for loss, count in zip(losses, counts, strict=True)) / sum(counts)


@wrong("perplexity", says="losses are in nats: the base is e")
def base_2(losses, counts):
    good_counts(losses, counts)
    return 2 ** (np.dot(losses, counts).item() / sum(counts))


@wrong("perplexity", says="exp is missing")
def no_exp(losses, counts):
    good_counts(losses, counts)
    return float(np.average(losses, weights=counts))


@wrong("perplexity", says="counts must fit the losses and not all be 0")
def shorter_of_both(losses, counts):
    total = sum(loss * count for loss, count in zip(losses, counts, strict=False))
    return math.exp(total / max(sum(counts), 1))


@wrong("perplexity")
def a_tensor(losses, counts):
    good_counts(losses, counts)
    losses, counts = torch.tensor(losses), torch.tensor(counts)
    return (losses * counts).sum().div(counts.sum()).exp()


@wrong("perplexity")
def largest_batch(losses, counts):
    good_counts(losses, counts)
    return math.exp(losses[counts.index(max(counts))])


@right("perplexity", why="numpy's float is a float")
def with_numpy(losses, counts):
    good_counts(losses, counts)
    return np.exp(np.average(losses, weights=counts))


@right("perplexity", why="torch scalars turned into a float")
def with_torch(losses, counts):
    good_counts(losses, counts)
    losses, counts = torch.tensor(losses, dtype=torch.float64), torch.tensor(counts, dtype=torch.float64)
    return (losses @ counts / counts.sum()).exp().item()


@right("perplexity", why="a product of roots")
def as_a_product(losses, counts):
    good_counts(losses, counts)
    return math.prod(math.exp(loss * count / sum(counts)) for loss, count in zip(losses, counts, strict=True))


@right("perplexity", why="each loss repeated as often as it counts")
def repeated(losses, counts):
    good_counts(losses, counts)
    every = [loss for loss, count in zip(losses, counts, strict=True) for _ in range(count)]
    return math.e ** (math.fsum(every) / len(every))
