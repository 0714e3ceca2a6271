"""evaluate: wrong solutions and unusual right ones."""

import contextlib
import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.bank import right, wrong


@contextlib.contextmanager
def quiet(model):
    flags = {part: part.training for part in model.modules()}
    model.eval()
    with torch.no_grad():
        yield
    for part, flag in flags.items():
        part.training = flag


def refuse(tokens, seq_len):
    if seq_len < 1 or tokens.numel() < 2:
        raise ValueError("nothing to predict")


def nats(model, inputs, targets):
    return F.cross_entropy(model(inputs[None]).squeeze(0), targets, reduction="sum").item()


# ---------------------------------------------------------------- wrong


@wrong("evaluate", says="the target at a seam is lost: windows share one token")
def pieces(model, tokens, seq_len):
    refuse(tokens, seq_len)
    total, count = 0.0, 0
    with quiet(model):
        for start in range(0, len(tokens), seq_len):
            piece = tokens[start : start + seq_len]
            if len(piece) > 1:
                total += nats(model, piece[:-1], piece[1:])
                count += len(piece) - 1
    return total, count


@wrong("evaluate", says="the last, shorter window counts, too")
def whole_windows(model, tokens, seq_len):
    refuse(tokens, seq_len)
    n = (len(tokens) - 1) // seq_len
    with quiet(model):
        total = sum(
            nats(model, tokens[i * seq_len : (i + 1) * seq_len], tokens[i * seq_len + 1 : (i + 1) * seq_len + 1])
            for i in range(n)
        )
    return total, n * seq_len


@wrong("evaluate", says="each target exactly once: windows do not overlap")
def moved_by_one(model, tokens, seq_len):
    refuse(tokens, seq_len)
    total, count = 0.0, 0
    with quiet(model):
        for start in range(max(1, len(tokens) - seq_len)):
            piece = tokens[start : start + seq_len + 1]
            total += nats(model, piece[:-1], piece[1:])
            count += len(piece) - 1
    return total, count


@wrong("evaluate", says="windows of seq_len inputs, not the whole text")
def in_one_go(model, tokens, seq_len):
    refuse(tokens, seq_len)
    with quiet(model):
        return nats(model, tokens[:-1], tokens[1:]), len(tokens) - 1


@wrong("evaluate", says="the sum of all losses, not a mean")
def mean_loss(model, tokens, seq_len):
    total, count = batched(model, tokens, seq_len)
    return total / count, count


@wrong("evaluate", says="means of windows do not weigh alike: the last is shorter")
def mean_of_means(model, tokens, seq_len):
    refuse(tokens, seq_len)
    means = []
    with quiet(model):
        for start in range(0, len(tokens) - 1, seq_len):
            targets = tokens[start + 1 : start + seq_len + 1]
            means.append(nats(model, tokens[start : start + len(targets)], targets) / len(targets))
    return sum(means) / len(means) * (len(tokens) - 1), len(tokens) - 1


@wrong("evaluate", says="in nats: the natural logarithm")
def bits(model, tokens, seq_len):
    total, count = batched(model, tokens, seq_len)
    return total / math.log(2), count


@wrong("evaluate", says="the first token is nobody's target")
def counts_tokens(model, tokens, seq_len):
    return batched(model, tokens, seq_len)[0], len(tokens)


def loop(model, tokens, seq_len):
    refuse(tokens, seq_len)
    total = 0.0
    for start in range(0, len(tokens) - 1, seq_len):
        targets = tokens[start + 1 : start + seq_len + 1]
        total += nats(model, tokens[start : start + len(targets)], targets)
    return total, len(tokens) - 1


@wrong("evaluate", says="dropout is off in eval mode")
@torch.no_grad()
def as_it_stands(model, tokens, seq_len):
    return loop(model, tokens, seq_len)


@wrong("evaluate", says="put every train and eval flag back, part by part")
@torch.no_grad()
def always_train_afterwards(model, tokens, seq_len):
    refuse(tokens, seq_len)
    model.eval()
    found = loop(model, tokens, seq_len)
    model.train()
    return found


@wrong("evaluate", says="put every train and eval flag back, part by part")
@torch.no_grad()
def left_in_eval(model, tokens, seq_len):
    refuse(tokens, seq_len)
    model.eval()
    return loop(model, tokens, seq_len)


@wrong("evaluate", says="nothing is learned here: torch.no_grad()")
def with_gradients(model, tokens, seq_len):
    flags = {part: part.training for part in model.modules()}
    model.eval()
    try:
        return loop(model, tokens, seq_len)
    finally:
        for part, flag in flags.items():
            part.training = flag


@wrong("evaluate", says="a test draws nothing: the windows are fixed")
def at_random(model, tokens, seq_len):
    refuse(tokens, seq_len)
    total, count = 0.0, 0
    with quiet(model):
        while count < len(tokens) - 1:
            start = int(torch.randint(max(1, len(tokens) - seq_len), ()))
            targets = tokens[start + 1 : start + seq_len + 1]
            total += nats(model, tokens[start : start + len(targets)], targets)
            count += len(targets)
    return total, count


@wrong("evaluate")
def seeded_first(model, tokens, seq_len):
    """Every test from the same seed: whoever trains on gets the same batches again."""
    torch.manual_seed(0)
    return batched(model, tokens, seq_len)


@wrong("evaluate", says="fewer than two tokens, or no window: raise ValueError")
def nothing_is_zero(model, tokens, seq_len):
    if len(tokens) < 2 or seq_len < 1:
        return 0.0, 0
    return batched(model, tokens, seq_len)


@wrong("evaluate")
def a_perplexity(model, tokens, seq_len):
    total, count = batched(model, tokens, seq_len)
    return math.exp(total / count), count


# ---------------------------------------------------------------- right


@right("evaluate", why="all windows in one batch, the last one padded and its padding ignored")
def batched(model, tokens, seq_len):
    refuse(tokens, seq_len)
    n = -(-(len(tokens) - 1) // seq_len)
    inputs, targets = tokens.new_zeros(n * seq_len), tokens.new_full((n * seq_len,), -100)
    inputs[: len(tokens) - 1], targets[: len(tokens) - 1] = tokens[:-1], tokens[1:]
    with quiet(model):
        logits = model(inputs.view(n, seq_len))
        total = F.cross_entropy(logits.flatten(0, 1), targets, reduction="sum", ignore_index=-100)
    return total.item(), len(tokens) - 1


@right("evaluate", why="inference mode, a loss module, a count kept along the way")
def in_inference_mode(model, tokens, seq_len):
    refuse(tokens, seq_len)
    price, total, count = nn.CrossEntropyLoss(reduction="none"), 0.0, 0
    with quiet(model), torch.inference_mode():
        for inputs, targets in zip(tokens[:-1].split(seq_len), tokens[1:].split(seq_len), strict=True):
            losses = price(model(inputs.unsqueeze(0))[0], targets)
            total, count = total + float(losses.sum()), count + losses.numel()
    return total, count


@right("evaluate", why="two tensors without axes are two numbers")
def as_tensors(model, tokens, seq_len):
    refuse(tokens, seq_len)
    with quiet(model):
        parts = [
            model(inputs[None])[0].log_softmax(-1)[torch.arange(len(inputs)), targets]
            for inputs, targets in zip(tokens[:-1].split(seq_len), tokens[1:].split(seq_len), strict=True)
        ]
    return -torch.cat(parts).sum(), torch.tensor(len(tokens) - 1)


@right("evaluate", why="logits through float32, as a trainer in half precision has it")
def in_float32(model, tokens, seq_len):
    refuse(tokens, seq_len)
    total = 0.0
    with quiet(model):
        for start in range(0, len(tokens) - 1, seq_len):
            targets = tokens[start + 1 : start + seq_len + 1]
            logits = model(tokens[start : start + len(targets)][None])[0].float()
            total += (logits.logsumexp(-1) - logits.gather(-1, targets[:, None])[:, 0]).sum().item()
    return total, len(tokens) - 1
