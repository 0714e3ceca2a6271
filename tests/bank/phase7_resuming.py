"""training_state, restore_state: wrong solutions and unusual right ones."""

import copy
import io

import torch

from tests.bank import right, wrong

# ---------------------------------------------------------------- training_state


def state_of(model, optimizer, generator, step, /, **changes):
    """As it should be, but for `changes`."""
    state = {
        "model": copy.deepcopy(model.state_dict()),
        "optimizer": copy.deepcopy(optimizer.state_dict()),
        "generator": generator.get_state(),
        "random": torch.get_rng_state(),
        "step": step,
    }
    return {key: value for key, value in (state | changes).items() if value is not _GONE}


_GONE = object()


@wrong("training_state", says="state_dict() lends the model's own tensors: copy them")
def lent(model, optimizer, generator, step):
    return state_of(model, optimizer, generator, step, model=model.state_dict(), optimizer=optimizer.state_dict())


@wrong("training_state", says="state_dict() lends the model's own tensors: copy them")
def lent_in_a_new_dict(model, optimizer, generator, step):
    return state_of(model, optimizer, generator, step, model={k: v.detach() for k, v in model.state_dict().items()})


@wrong("training_state", says="the optimiser goes on writing into its state: copy all of it")
def copied_at_the_top(model, optimizer, generator, step):
    return state_of(model, optimizer, generator, step, optimizer=copy.copy(optimizer.state_dict()))


@wrong("training_state", says="buffers are part of a model")
def parameters_only(model, optimizer, generator, step):
    weights = {name: weight.data.clone() for name, weight in model.named_parameters()}
    return state_of(model, optimizer, generator, step, model=weights)


@wrong("training_state", says="keep every number in its own dtype")
def smaller_numbers(model, optimizer, generator, step):
    return state_of(model, optimizer, generator, step, model={k: v.float() for k, v in model.state_dict().items()})


@wrong("training_state", says="a seed says where it began, not where it is")
def seeds(model, optimizer, generator, step):
    return state_of(model, optimizer, generator, step, generator=torch.tensor(generator.initial_seed()))


@wrong("training_state", says="dropout draws from torch's own random state")
def without_dropout(model, optimizer, generator, step):
    return state_of(model, optimizer, generator, step, random=_GONE)


@wrong("training_state", says="batches are drawn from the generator")
def without_batches(model, optimizer, generator, step):
    return state_of(model, optimizer, generator, step, generator=_GONE)


@wrong("training_state", says="the optimiser has a memory")
def without_optimizer(model, optimizer, generator, step):
    return state_of(model, optimizer, generator, step, optimizer=_GONE)


@wrong("training_state", says="the step belongs to the state")
def the_next_step(model, optimizer, generator, step):
    return state_of(model, optimizer, generator, step + 1)


@wrong("training_state", says="a look at a run changes nothing in it")
def model_put_to_sleep(model, optimizer, generator, step):
    model.eval()
    return state_of(model, optimizer, generator, step)


@wrong("training_state", says="a look at a run changes nothing in it")
def drawn_from(model, optimizer, generator, step):
    torch.rand(1)
    return state_of(model, optimizer, generator, step)


@wrong("training_state")
def a_model_for_its_numbers(model, optimizer, generator, step):
    return state_of(model, optimizer, generator, step, model=copy.deepcopy(model))


@wrong("training_state")
def one_random_state_for_both(model, optimizer, generator, step):
    return state_of(model, optimizer, generator, step, generator=torch.get_rng_state())


@right("training_state", why="through torch.save and back, all in memory")
def through_bytes(model, optimizer, generator, step):
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    return torch.load(file, weights_only=True) | {
        "step": step,
        "generator": generator.get_state(),
        "random": torch.random.get_rng_state(),
    }


@right("training_state", why="copied by hand, however deep")
def by_hand(model, optimizer, generator, step):
    def copied(value):
        if torch.is_tensor(value):
            return value.detach().clone()
        if isinstance(value, dict):
            return {key: copied(part) for key, part in value.items()}
        return [copied(part) for part in value] if isinstance(value, list) else value

    return state_of(model, optimizer, generator, step, model=copied(model.state_dict()),
                    optimizer=copied(optimizer.state_dict()))  # fmt: skip


@right("training_state", why="more than was asked for")
def with_more(model, optimizer, generator, step):
    return state_of(model, optimizer, generator, step, version=1, flags=[part.training for part in model.modules()])


@right("training_state", why="a copy of everything at once")
def all_at_once(model, optimizer, generator, step):
    return copy.deepcopy({
        "step": step, "random": torch.get_rng_state(), "generator": generator.get_state(),
        "optimizer": optimizer.state_dict(), "model": model.state_dict(),
    })  # fmt: skip


# ---------------------------------------------------------------- restore_state


def put_back(state, model=None, optimizer=None, generator=None, random=True):
    """What is given is put back, as it should be."""
    if model is not None:
        model.load_state_dict(state["model"])
    if optimizer is not None:
        optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
    if generator is not None:
        generator.set_state(state["generator"])
    if random:
        torch.set_rng_state(state["random"])
    return state["step"]


@wrong("restore_state", says="the optimiser has a memory")
def fresh_momentum(state, model, optimizer, generator):
    return put_back(state, model, None, generator)


@wrong("restore_state", says="batches go on where they were: the generator's state")
def other_batches(state, model, optimizer, generator):
    return put_back(state, model, optimizer)


@wrong("restore_state", says="batches go on where they were: the generator's state")
def batches_from_the_start(state, model, optimizer, generator):
    generator.manual_seed(generator.initial_seed())
    return put_back(state, model, optimizer)


@wrong("restore_state", says="dropout goes on where it was: torch's own random state")
def other_dropout(state, model, optimizer, generator):
    return put_back(state, model, optimizer, generator, random=False)


@wrong("restore_state", says="neither of the two random states was put back")
def weights_and_momentum_alone(state, model, optimizer, generator):
    return put_back(state, model, optimizer, random=False)


@wrong("restore_state", says="buffers are part of a model")
def no_buffers(state, model, optimizer, generator):
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(state["model"][name])
    return put_back(state, None, optimizer, generator)


@wrong("restore_state", says="return the step")
def silent(state, model, optimizer, generator):
    put_back(state, model, optimizer, generator)


@wrong("restore_state", says="return the step")
def one_too_far(state, model, optimizer, generator):
    return put_back(state, model, optimizer, generator) + 1


@wrong("restore_state", says="the optimiser must not write into the state: hand it a copy")
def no_copy(state, model, optimizer, generator):
    optimizer.load_state_dict(state["optimizer"])
    return put_back(state, model, None, generator)


@wrong("restore_state", says="the optimiser must not write into the state: hand it a copy")
def a_shallow_copy(state, model, optimizer, generator):
    optimizer.load_state_dict(dict(state["optimizer"]))
    return put_back(state, model, None, generator)


@wrong("restore_state", says="the model must not write into the state: copy the numbers")
def the_states_own_tensors(state, model, optimizer, generator):
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        tensor.data = state["model"][name]
    return put_back(state, None, optimizer, generator)


@wrong("restore_state", says="the optimiser holds the old weights: write into them, no assign=True")
def assigned(state, model, optimizer, generator):
    model.load_state_dict(state["model"], assign=True)
    return put_back(state, None, optimizer, generator)


@wrong("restore_state")
def other_objects(state, model, optimizer, generator):
    """Names are bound anew; what was handed over stays as it was."""
    model = copy.deepcopy(model)
    optimizer, generator = copy.deepcopy(optimizer), torch.Generator()
    return put_back(state, model, optimizer, generator)


@wrong("restore_state", says="the state is needed again: read from it, take nothing out")
def taken_out(state, model, optimizer, generator):
    """The state is used up: a second time it is empty."""
    model.load_state_dict(state.pop("model"))
    optimizer.load_state_dict(state.pop("optimizer"))
    generator.set_state(state.pop("generator"))
    torch.set_rng_state(state.pop("random"))
    return state.pop("step")


@wrong("restore_state")
def seeded_anew(state, model, optimizer, generator):
    """Drawing begins where it is, then a seed spoils it."""
    step = put_back(state, model, optimizer, generator)
    torch.manual_seed(step)
    return step


@right("restore_state", why="a copy of the whole state first, then load everything")
def copied_first(state, model, optimizer, generator):
    return put_back(copy.deepcopy(state), model, optimizer, generator)


@right("restore_state", why="weights and buffers one by one, in place")
def one_by_one(state, model, optimizer, generator):
    own = model.state_dict()
    for name, tensor in state["model"].items():
        own[name].copy_(tensor)
    return put_back(state, None, optimizer, generator)


@right("restore_state", why="clones that the model keeps as its own")
def clones_for_keeps(state, model, optimizer, generator):
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        tensor.data = state["model"][name].clone()
    return put_back(state, None, optimizer, generator)


@right("restore_state", why="in another order, random state first, and torch.random by name")
def random_first(state, model, optimizer, generator):
    torch.random.set_rng_state(state["random"].clone())
    generator.set_state(state["generator"].clone())
    optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
    missing = model.load_state_dict(state["model"], strict=True)
    assert not missing.missing_keys
    return int(state["step"])
