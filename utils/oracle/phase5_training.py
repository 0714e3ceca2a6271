"""Twins of phase 5, training: torch's own losses and optimisers, or another road to the same numbers."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from utils.observe.forbid import twin

__all__ = [
    "AdamW",
    "clip_grad_norm_",
    "cross_entropy",
    "exposure_gap",
    "learning_rate",
    "perplexity",
    "shift_targets",
    "train_step",
]


@twin
def shift_targets(tokens, bos_id, eos_id, pad_id):
    """Row by row, in lists."""
    width = tokens.shape[1] + 1
    inputs, targets = [], []
    for row in tokens.tolist():
        real = [token for token in row if token != pad_id]
        inputs.append([bos_id, *row])
        targets.append([*real, eos_id] + [-100] * (width - len(real) - 1))
    shape = (len(inputs), width)
    return tuple(torch.tensor(rows, dtype=torch.int64).reshape(shape) for rows in (inputs, targets))


@twin
def cross_entropy(logits, targets, ignore_index, label_smoothing=0.0):
    """torch's loss over the kept rows."""
    if logits.shape[:-1] != targets.shape:
        raise ValueError(f"shape {tuple(targets.shape)} of targets does not fit {tuple(logits.shape)}")
    kept = targets != ignore_index
    chosen = targets[kept]
    if chosen.numel() and (chosen.min() < 0 or chosen.max() >= logits.shape[-1]):
        raise ValueError("a target is outside the vocabulary")
    if not chosen.numel():
        return (logits * 0).sum()
    return F.cross_entropy(logits[kept], chosen, label_smoothing=label_smoothing)


@twin
def perplexity(losses, counts):
    if len(losses) != len(counts) or sum(counts) == 0:
        raise ValueError("counts: one for each loss, and not all 0")
    return float(np.exp(np.average(np.array(losses, dtype=float), weights=np.array(counts, dtype=float))))


@twin
class AdamW:
    """torch's own, behind the course's interface."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        self.torchs = torch.optim.AdamW(list(params), lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    @property
    def lr(self):
        return self.torchs.param_groups[0]["lr"]

    @lr.setter
    def lr(self, value):
        self.torchs.param_groups[0]["lr"] = value

    def step(self):
        self.torchs.step()

    def zero_grad(self):
        self.torchs.zero_grad()

    def state_dict(self):
        return self.torchs.state_dict()

    def load_state_dict(self, state):
        self.torchs.load_state_dict(state)


@twin
def learning_rate(step, peak, warmup, total, floor):
    """cos² of the half angle is (1 + cos) / 2."""
    if step < 0 or total <= warmup:
        raise ValueError("step must not be negative, and total must lie beyond warmup")
    if step < warmup:
        return peak * step / warmup
    angle = math.pi / 2 * min((step - warmup) / (total - warmup), 1.0)
    return floor + (peak - floor) * math.cos(angle) ** 2


@twin
def clip_grad_norm_(parameters, max_norm):
    return nn.utils.clip_grad_norm_(list(parameters), max_norm)


@twin
def train_step(model, optimizer, micro_batches, max_norm):
    """torch's sums of losses, divided by the number of all kept tokens."""
    kept = sum(int((targets != -100).sum()) for _, targets in micro_batches)
    if not kept:
        return 0.0
    model.zero_grad()
    total = 0.0
    for inputs, targets in micro_batches:
        logits = model(inputs).flatten(0, -2)
        loss = F.cross_entropy(logits, targets.flatten(), reduction="sum", ignore_index=-100) / kept
        loss.backward()
        total += loss.item()
    if max_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return total


@twin
@torch.no_grad()
def exposure_gap(model, batch):
    """Prefix by prefix, both ways side by side."""
    prompt, targets = batch
    flags = [(part, part.training) for part in model.modules()]
    model.eval()
    told, own = prompt, prompt
    hits = {"teacher_forced": 0, "free_running": 0}
    for place in range(targets.shape[1]):
        truth = targets[:, place : place + 1]
        guesses = {"teacher_forced": model(told)[:, -1:].argmax(-1), "free_running": model(own)[:, -1:].argmax(-1)}
        for name, guess in guesses.items():
            hits[name] += int((guess == truth).sum())
        told, own = torch.cat([told, truth], 1), torch.cat([own, guesses["free_running"]], 1)
    for part, training in flags:
        part.training = training
    shares = {name: count / targets.numel() for name, count in hits.items()}
    return shares | {"gap": shares["teacher_forced"] - shares["free_running"]}
