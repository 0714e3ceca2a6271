"""Twins of phase 7, training a whole model: the split, the test loss, exact resume, sanity tests, several ranks."""

import hashlib
import math

import torch
from torch.utils._pytree import tree_map

from utils.observe.forbid import twin

__all__ = [
    "average_gradients",
    "evaluate",
    "overfit_one_batch",
    "restore_state",
    "sees_targets",
    "split_corpus",
    "training_state",
]


@twin
def split_corpus(documents, val_share):
    """The first 8 bytes of SHA-256 against the share of all 2**64."""
    if not 0 <= val_share <= 1:
        raise ValueError(f"val_share is a share of all documents, 0 to 1, not {val_share}")
    sides = {False: [], True: []}
    for index, document in enumerate(documents):
        number = int.from_bytes(hashlib.sha256(document).digest()[:8], "big")
        sides[number < val_share * 2**64].append(index)
    return sides[False], sides[True]


# ---- flags and modes -----------------------------------------------------------------------------


class _EvalMode:
    """Every part of a model in eval mode, and each as it was afterwards."""

    def __init__(self, model):
        self.model, self.flags = model, [(part, part.training) for part in model.modules()]

    def __enter__(self):
        self.model.eval()

    def __exit__(self, *error):
        for part, training in self.flags:
            part.training = training


@twin
def evaluate(model, tokens, seq_len):
    """The log-probability of each target, picked out by hand: all whole windows at once, then what is left."""
    if seq_len < 1 or len(tokens) < 2:
        raise ValueError("there is nothing to predict: seq_len must be at least 1, and there must be two tokens")
    whole = (len(tokens) - 1) // seq_len * seq_len
    parts = [(tokens[:whole].view(-1, seq_len), tokens[1 : whole + 1].view(-1, seq_len))]
    parts += [(tokens[whole:-1][None], tokens[whole + 1 :][None])]
    total = 0.0
    with _EvalMode(model), torch.no_grad():
        for inputs, targets in parts:
            if targets.numel():
                logp = model(inputs).log_softmax(-1)
                total -= logp.gather(-1, targets[..., None]).sum().item()
    return total, len(tokens) - 1


# ---- exact resume --------------------------------------------------------------------------------


def _copied(whole):
    """The same, and nothing of it shared."""
    return tree_map(lambda leaf: leaf.detach().clone() if torch.is_tensor(leaf) else leaf, whole)


@twin
def training_state(model, optimizer, generator, step):
    whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    return _copied(whole | {"generator": generator.get_state(), "random": torch.random.get_rng_state()})


@twin
def restore_state(state, model, optimizer, generator):
    own = _copied(state)
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        tensor.data.copy_(own["model"][name])
    optimizer.load_state_dict(own["optimizer"])
    generator.set_state(own["generator"])
    torch.random.set_rng_state(own["random"])
    return own["step"]


# ---- sanity tests --------------------------------------------------------------------------------


@twin
def overfit_one_batch(model, optimizer, loss, steps):
    """Gradients by torch.autograd.grad, put in their places."""
    losses, weights = [], [weight for weight in model.parameters() if weight.requires_grad]
    with _EvalMode(model):
        for left in reversed(range(steps + 1)):
            now = loss(model)
            losses.append(now.item())
            if not math.isfinite(losses[-1]):
                raise ValueError(f"the loss is {losses[-1]} after {len(losses) - 1} steps")
            if left:
                found = torch.autograd.grad(now, weights, allow_unused=True)
                for weight, gradient in zip(weights, found, strict=True):
                    weight.grad = gradient
                optimizer.step()
    return losses


@twin
@torch.no_grad()
def sees_targets(model, tokens):
    """Two other tokens at each place in turn; whatever comes before must not notice."""
    with _EvalMode(model):
        logits = model(tokens)
        for place in reversed(range(1, tokens.shape[1])):
            for by in (1, 2):
                other = tokens.clone()
                other[:, place] = (tokens[:, place] + by) % logits.shape[-1]
                if not torch.allclose(model(other)[:, :place], logits[:, :place], rtol=0, atol=1e-6):
                    return True
    return False


# ---- several ranks -------------------------------------------------------------------------------


@twin
def average_gradients(gradients, counts):
    """Weights first, so that nothing overflows; what comes of no token at all weighs nothing."""
    if len(gradients) != len(counts) or not sum(counts) or len({len(row) for row in gradients}) != 1:
        raise ValueError("one list of gradients and one count for each rank, and at least one token in all")
    rows = [(row, count / sum(counts)) for row, count in zip(gradients, counts, strict=True) if count]
    means = []
    for place in range(len(gradients[0])):
        parts = [share * row[place] for row, share in rows if row[place] is not None]
        means.append(torch.stack(parts).sum(0) if parts else None)
    return means
