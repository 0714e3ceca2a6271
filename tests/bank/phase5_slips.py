"""What a first reader tried in training and scaling: slips that went through or were called by a wrong name."""

import math

import torch
import torch.nn.functional as F

from tests.bank import right, wrong
from tests.bank.phase5_costs import line, on_a_grid
from tests.bank.phase5_losses import refuse
from tests.bank.phase5_optimiser import Plain

# ---------------------------------------------------------------- losses


@wrong("shift_targets", says="a full row has no padding: it is as long as the table is wide")
def first_padding_by_argmax(tokens, bos_id, eos_id, pad_id):
    edge = torch.full((len(tokens), 1), bos_id)
    lengths, targets = (tokens == pad_id).int().argmax(1), torch.cat([tokens, edge], 1)
    for row, length in enumerate(lengths.tolist()):
        targets[row, length], targets[row, length + 1 :] = eos_id, -100
    return torch.cat([edge, tokens], 1), targets


@wrong("cross_entropy", says="nothing kept: 0, but backward must still work")
def a_zero_of_its_own(logits, targets, ignore_index, label_smoothing=0.0):
    refuse(logits, targets, ignore_index)
    kept = targets != ignore_index
    if not kept.any():
        return torch.tensor(0.0)
    logs = logits[kept].log_softmax(-1)
    prices = -(1 - label_smoothing) * logs.gather(-1, targets[kept][:, None])[:, 0] - label_smoothing * logs.mean(-1)
    return prices.mean()


@wrong("cross_entropy", says="average over tokens, not over rows first")
def mean_of_row_means(logits, targets, ignore_index, label_smoothing=0.0):
    refuse(logits, targets, ignore_index)
    rows = []
    for logit, target in zip(logits.flatten(0, -3), targets.flatten(0, -2), strict=True) if targets.dim() > 1 else ():
        if (target != ignore_index).any():
            rows.append(one_list(logit, target, ignore_index, label_smoothing))
    if rows:
        return torch.stack(rows).mean()
    return one_list(logits, targets, ignore_index, label_smoothing)


def one_list(logits, targets, ignore_index, eps):
    kept = targets != ignore_index
    logs = logits[kept].log_softmax(-1)
    if not len(logs):
        return logs.sum()
    return (-(1 - eps) * logs.gather(-1, targets[kept][:, None])[:, 0] - eps * logs.mean(-1)).mean()


# ---------------------------------------------------------------- steps


@wrong("learning_rate", says="(1 + cos) / 2 runs from 1 to 0")
def no_half(now, peak, warmup, total, floor):
    if now < 0 or total <= warmup:
        raise ValueError("step or total")
    if now < warmup:
        return peak * now / warmup
    share = min(1, (now - warmup) / (total - warmup))
    return floor + (peak - floor) * (1 + math.cos(math.pi * share))


@wrong("learning_rate", says="warmup may be 0")
def up_to_and_with_warmup(now, peak, warmup, total, floor):
    if now < 0 or total <= warmup:
        raise ValueError("step or total")
    if now <= warmup:
        return peak * now / warmup
    return floor + (peak - floor) * (1 + math.cos(math.pi * min(1, (now - warmup) / (total - warmup)))) / 2


@wrong("AdamW", says="m and v belong into the state, keyed by place")
class LoadsOnlyTheSecond(Plain):
    def load_state_dict(self, state):
        self.v, self.t = state["v"], state["t"]


@wrong("AdamW", says="m and v belong into the state, keyed by place")
class KeyedByAddress(Plain):
    """What another object loads belongs to parameters that it does not have."""

    def __init__(self, params, **options):
        super().__init__(params, **options)
        self.state = {}

    def one(self, i, p, g):
        fresh = (torch.zeros_like(p), torch.zeros_like(p), 0)
        self.m[i], self.v[i], self.t[i] = self.state.get(id(p), fresh)
        super().one(i, p, g)
        self.state[id(p)] = self.m[i], self.v[i], self.t[i]

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


@wrong("clip_grad_norm_", says="change the gradients themselves: g.mul_(…)")
def names_only(parameters, max_norm):
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = torch.stack([g.norm() for g in grads]).norm()
    if norm > max_norm:
        for g in grads:
            g = g * max_norm / norm
    return norm


def summed(model, inputs, targets):
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum")


def update(model, optimizer, micro_batches, max_norm, total):
    """The one step, once the gradients are there."""
    if max_norm is not None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return total


@wrong("train_step", says="call backward for each micro-batch, or all their graphs stay in memory")
def one_backward_at_the_end(model, optimizer, micro_batches, max_norm):
    kept = sum(int((targets != -100).sum()) for _, targets in micro_batches)
    if not kept:
        return 0.0
    optimizer.zero_grad()
    total = 0.0
    for inputs, targets in micro_batches:
        total = total + summed(model, inputs, targets) / kept
    total.backward()
    return update(model, optimizer, micro_batches, max_norm, total.item())


@wrong("train_step", says="the mean over all kept tokens, not the sum")
def returns_the_sum(model, optimizer, micro_batches, max_norm):
    kept, total = sum(int((targets != -100).sum()) for _, targets in micro_batches), 0.0
    if not kept:
        return 0.0
    optimizer.zero_grad()
    for inputs, targets in micro_batches:
        loss = summed(model, inputs, targets)
        (loss / kept).backward()
        total += loss.item()
    return update(model, optimizer, micro_batches, max_norm, total)


@wrong("train_step", says="divide by the targets that are kept, not by all places")
def weighs_by_numel(model, optimizer, micro_batches, max_norm):
    if not any((targets != -100).any() for _, targets in micro_batches):
        return 0.0
    optimizer.zero_grad()
    places, total = sum(targets.numel() for _, targets in micro_batches), 0.0
    for inputs, targets in micro_batches:
        loss = summed(model, inputs, targets) / places
        loss.backward()
        total += loss.item()
    return update(model, optimizer, micro_batches, max_norm, total)


@right("train_step", why="looks at the loss first, without a graph, and learns from it in a second pass")
def looks_first(model, optimizer, micro_batches, max_norm):
    kept = sum(int((targets != -100).sum()) for _, targets in micro_batches)
    if not kept:
        return 0.0
    optimizer.zero_grad()
    with torch.no_grad():
        total = sum(summed(model, *pair).item() for pair in micro_batches) / kept
    for pair in micro_batches:
        (summed(model, *pair) / kept).backward()
    return update(model, optimizer, micro_batches, max_norm, total)


def exposed(model, batch, free, after):
    prompt, targets = batch
    flags, start = {part: part.training for part in model.modules()}, prompt.shape[1] - 1
    model.eval()
    with torch.no_grad():
        told = model(torch.cat([prompt, targets], 1))[:, start:-1].argmax(-1)
        said = free(model, prompt, targets.shape[1], told)
    after(model, flags)
    first, second = ((guess == targets).double().mean().item() for guess in (told, said))
    return {"teacher_forced": first, "free_running": second, "gap": first - second}


def alone(model, prompt, n, told):
    tokens = prompt
    for _ in range(n):
        tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(-1)], 1)
    return tokens[:, prompt.shape[1] :]


def put_back(model, flags):
    for part, flag in flags.items():
        part.training = flag


@wrong("exposure_gap", says="put every train and eval flag back, part by part")
def trains_afterwards(model, batch):
    return exposed(model, batch, alone, lambda model, flags: model.train())


@wrong("exposure_gap", says="what it reads on its own is what it said on its own, place by place")
def eats_the_forced_guesses(model, batch):
    def free(model, prompt, n, told):
        return model(torch.cat([prompt, told], 1))[:, prompt.shape[1] - 1 : -1].argmax(-1)

    return exposed(model, batch, free, put_back)


# ---------------------------------------------------------------- scaling


@wrong("fit_power_law", says="A is exp of the line's height at 0")
def without_exp(sizes, losses):
    fit = on_a_grid(sizes, losses)
    return fit | {"A": math.log(fit["A"])}


@wrong("fit_power_law", says="one base for all logarithms")
def ten_below_e_above(sizes, losses):
    fit = on_a_grid(sizes, losses)
    return fit | {"alpha": fit["alpha"] * math.log(10)}


@wrong("fit_power_law", says="the floor lies below the lowest loss")
def a_thousandth_below(sizes, losses):
    floor = 0.999 * min(losses)
    height, alpha, _ = line(sizes, [loss - floor for loss in losses])
    return {"E": floor, "A": height, "alpha": alpha}
