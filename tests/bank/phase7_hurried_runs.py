"""Phase 7, running a model, by hurried hands: slips that only a second call or a closer look shows."""

import copy
import math
import random

import numpy as np
import torch
import torch.nn.functional as F

from tests.bank import right, wrong
from tests.bank.phase7_evaluating import loop
from tests.bank.phase7_evaluating import refuse as refuse_text
from tests.bank.phase7_overfitting import changed, moved, number_of, quietly, vocab_of

# ---------------------------------------------------------------- one batch


@wrong("overfit_one_batch", says="a loss that is no number: raise ValueError")
def nan_alone(model, optimizer, loss, steps):
    losses = []
    with quietly(model):
        for step in range(steps + 1):
            now = loss(model)
            losses.append(now.item())
            if losses[-1] != losses[-1]:
                raise ValueError("nan")
            if step < steps:
                optimizer.zero_grad()
                now.backward()
                optimizer.step()
    return losses


def learned(model, optimizer, loss, steps, between=lambda model: None, enough=lambda now: False):
    losses = [number_of(loss(model))]
    for _ in range(steps):
        if enough(losses[-1]):
            break
        optimizer.zero_grad()
        loss(model).backward()
        between(model)
        optimizer.step()
        losses.append(number_of(loss(model)))
    return losses


@wrong("overfit_one_batch", says="steps + 1 losses, however small they are")
def small_enough(model, optimizer, loss, steps):
    with quietly(model):
        return learned(model, optimizer, loss, steps, enough=lambda now: now < 1e-4)


@wrong("overfit_one_batch")
def clipped_gradients(model, optimizer, loss, steps):
    with quietly(model):
        return learned(model, optimizer, loss, steps, lambda m: torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0))


@wrong("overfit_one_batch", says="flags go back even where it raises")
def back_before_its_own_error(model, optimizer, loss, steps):
    """What the loss itself raises goes by."""
    flags, losses = [(part, part.training) for part in model.modules()], []
    model.eval()
    for step in range(steps + 1):
        now = loss(model)
        losses.append(now.item())
        if step < steps and math.isfinite(losses[-1]):
            optimizer.zero_grad()
            now.backward()
            optimizer.step()
        elif step < steps or not math.isfinite(losses[-1]):
            break
    for part, flag in flags:
        part.training = flag
    if not math.isfinite(losses[-1]):
        raise ValueError("no number")
    return losses


@right("overfit_one_batch", why="asks for the loss twice: once to learn from it, once to note it down")
def asked_twice(model, optimizer, loss, steps):
    with quietly(model):
        return learned(model, optimizer, loss, steps)


@right("overfit_one_batch", why="hands the optimizer a closure")
def by_closure(model, optimizer, loss, steps):
    losses = []

    def again():
        optimizer.zero_grad()
        now = loss(model)
        losses.append(number_of(now))
        now.backward()
        return now

    with quietly(model):
        for _ in range(steps):
            optimizer.step(again)
        return [*losses, number_of(loss(model))]


# ---------------------------------------------------------------- sees_targets


def leaks(model, tokens, limit=1e-6, rows=slice(None), by=1):
    vocab = vocab_of(model, tokens)
    for place in range(1, tokens.shape[1]):
        other = changed(tokens, place, vocab) if by else tokens + (torch.arange(tokens.shape[1]) == place)
        if moved(model, tokens[rows], other[rows], limit)[:place].any():
            return True
    return False


@wrong("sees_targets", says="all rows count, not the first alone")
def one_row_is_enough(model, tokens):
    with quietly(model):
        return leaks(model, tokens, rows=slice(0, 1))


@wrong("sees_targets", says="all rows count, not the first alone")
def the_last_row(model, tokens):
    with quietly(model):
        return leaks(model, tokens, rows=slice(-1, None))


@wrong("sees_targets", says="a small leak is one, too")
def a_thousandth(model, tokens):
    with quietly(model):
        return leaks(model, tokens, limit=1e-3)


@wrong("sees_targets", says="put every train and eval flag back, part by part")
def one_flag(model, tokens):
    training = model.training
    model.eval()
    found = leaks(model, tokens)
    model.train(training)
    return found


@wrong("sees_targets", says="a token must be below vocab_size: go round with %")
def beyond_the_last(model, tokens):
    with quietly(model):
        return leaks(model, tokens, by=0)


@right("sees_targets", why="inference mode; the vocabulary walked through by threes")
def by_threes(model, tokens):
    flags = [part.training for part in model.modules()]
    model.train(False)
    try:
        with torch.inference_mode():
            whole, n = model(tokens), tokens.size(1)
            tails = [torch.cat([tokens[:, :p], (tokens[:, p:] + 3) % whole.size(-1)], 1) for p in range(1, n)]
            return any((model(t)[:, :p] - whole[:, :p]).abs().max().item() > 1e-6 for p, t in enumerate(tails, 1))
    finally:
        for part, flag in zip(model.modules(), flags, strict=True):
            part.training = flag


# ---------------------------------------------------------------- evaluate


@wrong("evaluate", says="look at the arguments before eval mode, or put it back")
def asleep_before_it_looks(model, tokens, seq_len):
    flags = [(part, part.training) for part in model.modules()]
    model.eval()
    refuse_text(tokens, seq_len)
    with torch.no_grad():
        found = loop(model, tokens, seq_len)
    for part, flag in flags:
        part.training = flag
    return found


@wrong("evaluate", says="the weights belong to a training that goes on: leave their gradients alone")
def frozen_for_good(model, tokens, seq_len):
    refuse_text(tokens, seq_len)
    for weight in model.parameters():
        weight.requires_grad_(False)
    with quietly(model), torch.no_grad():
        return loop(model, tokens, seq_len)


@wrong("evaluate", says="the weights belong to a training that goes on: leave their gradients alone")
def gradients_cleared(model, tokens, seq_len):
    refuse_text(tokens, seq_len)
    model.zero_grad()
    with quietly(model), torch.no_grad():
        return loop(model, tokens, seq_len)


def padded(ignore):
    def evaluate(model, tokens, seq_len):
        refuse_text(tokens, seq_len)
        n = -(-(len(tokens) - 1) // seq_len)
        x, y = (F.pad(part, (0, n * seq_len - len(part))) for part in (tokens[:-1], tokens[1:]))
        with quietly(model), torch.no_grad():
            logits = model(x.view(n, seq_len)).flatten(0, 1)
        return F.cross_entropy(logits, y, reduction="sum", ignore_index=ignore).item(), len(tokens) - 1

    evaluate.__name__ = f"padded_{abs(ignore)}"
    return evaluate


wrong("evaluate", says="padding is no target")(padded(-100))
wrong("evaluate", says="0 is a token like any other: padding is told by its place")(padded(0))


@right("evaluate", why="NumPy all the way, its ints and floats included")
def in_numpy(model, tokens, seq_len):
    refuse_text(tokens, seq_len)
    total, count = np.float64(0), np.int64(0)
    with quietly(model), torch.no_grad():
        for x, y in zip(tokens[:-1].split(seq_len), tokens[1:].split(seq_len), strict=True):
            logits = model(x[None])[0].double().numpy()
            logits = logits - logits.max(1, keepdims=True)
            logp = logits - np.log(np.exp(logits).sum(1, keepdims=True))
            total, count = total - logp[np.arange(len(y)), y.numpy()].sum(), count + len(y)
    return total, count


# ---------------------------------------------------------------- exact resume


def state_of(model, optimizer, generator, step, /, **other):
    found = {"model": copy.deepcopy(model.state_dict()), "optimizer": copy.deepcopy(optimizer.state_dict())}
    return found | {"generator": generator.get_state(), "random": torch.get_rng_state(), "step": step} | other


@wrong("training_state", says="detach what you copy: a graph keeps all it was made of")
def not_detached(model, optimizer, generator, step):
    named = (*model.named_parameters(), *model.named_buffers())
    return state_of(model, optimizer, generator, step, model={name: tensor.clone() for name, tensor in named})


@wrong("training_state", says="torch's own random state, not another library's")
def pythons_random(model, optimizer, generator, step):
    return state_of(model, optimizer, generator, step, random=random.getstate())


ONE = {}


@wrong("training_state")
def one_dict_for_all(model, optimizer, generator, step):
    ONE.update(state_of(model, optimizer, generator, step))
    return ONE


@wrong("training_state")
def sixteen_bits(model, optimizer, generator, step):
    small = {name: tensor.half() for name, tensor in model.state_dict().items()}
    return state_of(model, optimizer, generator, step, model=small)


@wrong("restore_state", says="train and eval flags stay as they are")
def wakes_everybody(state, model, optimizer, generator):
    model.train()
    return restored(state, model, optimizer, generator)


@wrong("restore_state", says="train and eval flags stay as they are")
def sends_to_sleep(state, model, optimizer, generator):
    model.eval()
    return restored(state, model, optimizer, generator)


@wrong("restore_state", says="the optimiser's settings are part of its state")
def moments_alone(state, model, optimizer, generator):
    own = copy.deepcopy(state["optimizer"])
    own |= {key: part for key, part in optimizer.state_dict().items() if key in ("param_groups", "lr")}
    return restored(state | {"optimizer": own}, model, optimizer, generator)


def restored(state, model, optimizer, generator):
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
    generator.set_state(state["generator"])
    torch.set_rng_state(state["random"])
    return state["step"]
