"""A track's model and its training, made of what the learner built; each part says whose it is.

A part is the learner's where it passes its check (`mine`), else the course's own. Weights are drawn on the CPU from the
seed, so that every machine and every process begins alike.
"""

import contextlib
import io

import torch
from torch import nn

from utils import oracle
from utils.train.fused import fuse
from utils.train.nested import CannotStore, flatten
from utils.train.settings import gpt_config


def mine(name):
    """utils.mycode's, imported on use: reading notebooks takes seconds to import."""
    from utils.mycode import mine as found

    return found(name)


YOURS, OURS = "yours", "the course's"
MODEL = {"a": "Transformer", "b": "GPT"}


def take(name, quiet=False):
    """(object, "yours" or "the course's"); `mine` prints which and why, unless quiet."""
    with contextlib.redirect_stdout(io.StringIO()) if quiet else contextlib.nullcontext():
        found = mine(name)
    return found, OURS if found is getattr(oracle, name) else YOURS


def build(config, vocabulary, quiet=False):
    """(model on the CPU, {exercise: whose}) for a track's vocabulary: (source, target) sizes, or (size,).

    kernels="fused": torch's attention in the same modules, once it has been found equal; where a module does not allow
    it, that is said in the dict and the module stays as it is.
    """
    name = MODEL[config.track]
    made, whose = take(name, quiet)
    begin, whose_begin = take("init_weights", quiet)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(config.seed)
        if config.track == "a":
            sizes = (*vocabulary, config.d_model, config.n_heads, config.d_ff, config.n_layers)
            model = made(*sizes, dropout=config.dropout)
        else:
            model = made(gpt_config(config, *vocabulary))
        begin(model, config.init_std, config.n_layers)
    for module in model.modules():
        if type(module) is nn.LayerNorm:  # its scale is called weight, and a scale begins at 1
            nn.init.ones_(module.weight)
    parts = {name: whose, "init_weights": whose_begin}
    if config.kernels == "fused":
        parts["attention"] = fuse(model, config, vocabulary)
    return model, parts


# ---- what trains it ------------------------------------------------------------------------------


class Decayed:
    """Two AdamWs as one: matrices decay, vectors (norms, biases) do not. `make(params, …)` makes each."""

    def __init__(self, make, parameters, config):
        parameters = [p for p in parameters if p.requires_grad]
        options = dict(lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps)
        matrices, vectors = ([p for p in parameters if (p.dim() > 1) is wide] for wide in (True, False))
        self.parts = [make(matrices, weight_decay=config.weight_decay, **options)]
        if vectors:
            self.parts.append(make(vectors, weight_decay=0.0, **options))

    def set_lr(self, lr):
        for part in self.parts:
            if hasattr(part, "param_groups"):
                for group in part.param_groups:
                    group["lr"] = lr
            else:
                part.lr = lr

    def step(self):
        for part in self.parts:
            part.step()

    def zero_grad(self):
        for part in self.parts:
            part.zero_grad()

    def state_dict(self):
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, states):
        for part, state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)


def optimiser(config, model, sharded=False, quiet=False):
    """(Decayed, whose AdamW). kernels="own": the learner's; "fused", or weights that are sharded: torch's."""
    if config.kernels == "own" and not sharded:
        made, whose = take("AdamW", quiet)
        if whose == YOURS and (reason := _cannot_be_stored(made)):
            if not quiet:
                print(f"… using the course's AdamW, because {reason}")
            made, whose = oracle.AdamW, OURS
        return Decayed(made, model.parameters(), config), whose
    options = dict(foreach=True) if sharded else dict(fused=True)

    def make(parameters, **settings):
        return torch.optim.AdamW(parameters, **settings, **options)

    return Decayed(make, model.parameters(), config), "torch's" if sharded else "torch's fused"


def _cannot_be_stored(made):
    """Try the learner's AdamW on two numbers: its state must be plain values and tensors, and not yet used up."""
    parameter = nn.Parameter(torch.ones(2, 2))
    parameter.grad = torch.ones(2, 2)
    tried = made([parameter], lr=0.1)
    tried.step()
    try:
        flatten(tried.state_dict())
    except CannotStore as error:
        return f"the state of yours holds what cannot be stored in a checkpoint ({error})"
    return None


def trainer_parts(config, quiet=False):
    """({name: function}, {name: whose}): learning_rate, clip_grad_norm_, and train_step where it is the learner's.

    The learner's train_step is one process, one precision; with fp16, many processes or fused kernels the trainer's
    own step runs, which does the same and can do those, too.
    """
    found = {name: take(name, quiet) for name in ("learning_rate", "clip_grad_norm_")}
    if config.kernels == "fused":
        found["clip_grad_norm_"] = (nn.utils.clip_grad_norm_, "torch's")
    if config.kernels == "own":
        step, whose = take("train_step", quiet=True)  # where it is not yours, the trainer's runs
        if whose == YOURS:
            found["train_step"] = (step, whose)
    return {name: part for name, (part, _) in found.items()}, {name: whose for name, (_, whose) in found.items()}
