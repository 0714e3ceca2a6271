"""training_state, restore_state: a run that goes on as if nothing had happened."""

import copy
import random

import numpy as np
import torch

from utils import oracle
from utils.checks.draw import given
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase7 import PHASE
from utils.checks.phase7 import rules_training as rules
from utils.observe import scripts_capstone as plays

# ---- training_state ------------------------------------------------------------------------------


def kept(name, steps, later, **options):
    return case(name, dict(steps=steps, later=later, **options), grad=False)


def keeper(model=None, optimizer=None, generator=None, random=None, step=None, before=None, leave_out=""):
    """A wrong twin of training_state: other ways to make its parts."""

    def training_state(m, o, g, s):
        if before:
            before(m, o)
        state = {
            "model": (model or (lambda m: copy.deepcopy(m.state_dict())))(m),
            "optimizer": (optimizer or (lambda o: copy.deepcopy(o.state_dict())))(o),
            "generator": (generator or torch.Generator.get_state)(g),
            "random": (random or torch.get_rng_state)(),
            "step": (step or int)(s),
        }
        return {key: value for key, value in state.items() if key != leave_out}

    return training_state


def one_level(value):
    """Tensors at the top are copied, what lies deeper is shared."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    return {key: part.clone() if isinstance(part, torch.Tensor) else part for key, part in value.items()}


def weights_only(m):
    return {name: weight.detach().clone() for name, weight in m.named_parameters()}


def with_graph(m):
    """Copies that remember what they were made of."""
    return {name: tensor.detach() for name, tensor in m.state_dict().items()} | {
        name: weight.clone() for name, weight in m.named_parameters()
    }


def copied_graph(m):
    return {name: buffer.clone() for name, buffer in m.named_buffers()} | {
        name: weight.clone() for name, weight in m.named_parameters()
    }


def in_float32(m):
    return {name: tensor.detach().float() for name, tensor in m.state_dict().items()}


def seed_now():
    return torch.tensor(torch.initial_seed())


register(
    expected=oracle.training_state,
    phase=PHASE,
    section="7.8",
    hint="everything the next step depends on, under its five keys, and nothing in it that a later step writes into.",
    grad=False,
    bans=(),
    script="keeping",
    cases=(
        kept("after 3 steps", 3, 2),
        kept("AdamW", 3, 2, seed=1, optimizer="adamw"),
        kept("before the first step", 0, 2, seed=2),
        kept("nothing comes after", 2, 0, seed=3, optimizer="adamw"),
    ),
    mistakes={
        "state_dict() lends the model's own tensors: copy them": Replays(
            keeper(model=lambda m: m.state_dict()),
            keeper(model=lambda m: dict(m.state_dict())),
            keeper(model=lambda m: m.state_dict(), optimizer=lambda o: o.state_dict()),
        ),
        "the optimiser goes on writing into its state: copy all of it": Replays(
            keeper(optimizer=lambda o: o.state_dict()), keeper(optimizer=lambda o: one_level(o.state_dict()))
        ),
        "buffers are part of a model": keeper(model=weights_only),
        "keep every number in its own dtype": keeper(model=in_float32),
        "a seed says where it began, not where it is": Replays(
            keeper(generator=lambda g: torch.tensor(g.initial_seed())),
            keeper(random=seed_now),
            keeper(generator=lambda g: torch.tensor(g.initial_seed()), random=seed_now),
            keeper(generator=torch.Generator.initial_seed, random=torch.initial_seed),
            keeper(generator=torch.Generator.initial_seed),
        ),
        "a generator's state, not the generator: get_state()": Spotted(
            rules.generator_kept, keeper(generator=lambda g: g), certain=True
        ),
        "dropout draws from torch's own random state": Replays(keeper(leave_out="random"), keeper(random=lambda: None)),
        "torch's own random state, not another library's": Replays(
            keeper(random=random.getstate), keeper(random=np.random.get_state)
        ),
        "detach what you copy: a graph keeps all it was made of": Replays(
            keeper(model=copied_graph), keeper(model=with_graph)
        ),
        "batches are drawn from the generator": keeper(leave_out="generator"),
        "the optimiser has a memory": keeper(leave_out="optimizer"),
        "the step belongs to the state": Replays(keeper(leave_out="step"), keeper(step=lambda s: s + 1)),
        "a look at a run changes nothing in it": Replays(
            keeper(before=lambda m, o: m.eval()),
            keeper(before=lambda m, o: o.zero_grad()),
            keeper(before=lambda m, o: torch.rand(1)),
        ),
    },
)

# ---- restore_state -------------------------------------------------------------------------------


def resumed(name, steps, later, seed, stale=2, optimizer="wheel"):
    """A state of a run after so many steps, put into runs that have made `stale` steps of their own."""

    def draw(generator, others):
        with plays.chance(seed):
            run = plays.Run(seed, optimizer)
            run.train(steps)
            return plays.plain(oracle.training_state(run.model, run.optimizer, run.generator, steps))

    return case(
        name, dict(state=given(draw), later=later, seed=seed + 50, steps=stale, optimizer=optimizer), grad=False
    )


def to_model(state, model):
    model.load_state_dict(state["model"])


def to_optimizer(state, optimizer):
    optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))


def own_settings(*names):
    """Moments from the state, the learning rate as it is."""

    def load(state, optimizer):
        mine, kept = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(state["optimizer"])
        optimizer.load_state_dict(kept | {name: mine[name] for name in names if name in mine})

    return load


def restorer(model=to_model, optimizer=to_optimizer, generator=True, random=True, returns=lambda step: step):
    """A wrong twin of restore_state from its parts."""

    def restore_state(state, m, o, g):
        model(state, m)
        optimizer(state, o)
        if generator is True:
            g.set_state(state["generator"])
        elif generator:
            generator(g)
        if random:
            torch.set_rng_state(state["random"])
        return returns(state["step"])

    return restore_state


def nothing(state, part):
    """Left as it is: names were bound to other objects, say."""


def used_up(state, m, o, g):
    """What is put back is taken out of the state."""
    restorer()({key: state.pop(key) for key in tuple(state)}, m, o, g)
    return 3


def only_weights(state, model):
    for name, weight in model.named_parameters():
        weight.data.copy_(state["model"][name])


def assigned(state, model):
    model.load_state_dict(state["model"], assign=True)


def copies_assigned(state, model):
    model.load_state_dict(copy.deepcopy(state["model"]), assign=True)


def taken_in(state, model):
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        tensor.data = state["model"][name]


register(
    expected=oracle.restore_state,
    phase=PHASE,
    section="7.8",
    hint="put each of the five parts back into the object that was handed over; the state itself stays as it was.",
    grad=False,
    bans=(),
    draws=True,
    script="resuming",
    cases=(
        resumed("after 3 steps", 3, 2, seed=10),
        resumed("AdamW", 3, 2, seed=11, optimizer="adamw"),
        resumed("at the very beginning", 0, 2, seed=12),
        resumed("into a run that has not begun", 4, 1, seed=13, stale=0, optimizer="adamw"),
    ),
    mistakes={
        "the optimiser has a memory": restorer(optimizer=nothing),
        "batches go on where they were: the generator's state": Replays(
            restorer(generator=False), restorer(generator=lambda g: g.manual_seed(g.initial_seed()))
        ),
        "dropout goes on where it was: torch's own random state": restorer(random=False),
        "neither of the two random states was put back": restorer(generator=False, random=False),
        "buffers are part of a model": restorer(model=only_weights),
        "the weights were not put back": restorer(model=nothing),
        "nothing was put back": restorer(nothing, nothing, generator=False, random=False),
        "train and eval flags stay as they are": Replays(
            restorer(model=lambda state, m: to_model(state, m.eval())),
            restorer(model=lambda state, m: to_model(state, m.train())),
        ),
        "the optimiser's settings are part of its state": Replays(
            restorer(optimizer=own_settings("lr", "param_groups")), restorer(optimizer=own_settings("param_groups"))
        ),
        "return the step": Replays(
            restorer(returns=lambda step: None), restorer(returns=lambda step: step + 1), restorer(returns=lambda s: 0)
        ),
        "the optimiser must not write into the state: hand it a copy": restorer(
            optimizer=lambda state, o: o.load_state_dict(state["optimizer"])
        ),
        "the state is needed again: read from it, take nothing out": Spotted(
            rules.missing_a_second_time, used_up, certain=True
        ),
        "the optimiser holds the old weights: write into them, no assign=True": Replays(
            restorer(model=assigned), restorer(model=copies_assigned)
        ),
        "the model must not write into the state: copy the numbers": Replays(
            restorer(model=taken_in),
            restorer(model=taken_in, optimizer=lambda state, o: o.load_state_dict(state["optimizer"])),
        ),
    },
)
