"""init_weights, gradient_norms: wrong solutions and unusual right ones."""

import copy
import math

import torch
from torch import nn

from tests.bank import right, wrong

SMALL = ("w_o", "w_2", "w_down")


def initialiser(name, small=lambda std, n: std / math.sqrt(2 * n), large=lambda std, n: std, **skip):
    """An init_weights; skip: biases, gains, tables, positions may be left as they are."""

    def init_weights(model, std, n_layers):
        with torch.no_grad():
            for path, module in model.named_modules():
                is_small = path.split(".")[-1] in SMALL
                if isinstance(module, nn.Linear):
                    module.weight.normal_(0, (small if is_small else large)(std, n_layers))
                    if module.bias is not None and "biases" not in skip:
                        module.bias.zero_()
                elif isinstance(module, nn.Embedding) and "tables" not in skip:
                    module.weight.normal_(0, large(std, n_layers))
                if hasattr(module, "table") and "positions" not in skip:
                    module.table.normal_(0, large(std, n_layers))
                if hasattr(module, "gamma") and "gains" not in skip:
                    module.gamma.fill_(1.0)
                if hasattr(module, "beta") and "shifts" not in skip:
                    module.beta.fill_(0.0)

    init_weights.__name__ = name
    return init_weights


for _name, _says, _parts in [
    ("all_small", "only w_o, w_2 and w_down are made smaller", dict(large=lambda std, n: std / math.sqrt(2 * n))),
    ("root_of_layers", "two residual branches per layer", dict(small=lambda std, n: std / math.sqrt(n))),
    ("none_small", "w_o, w_2 and w_down start smaller", dict(small=lambda std, n: std)),
    ("no_root", "divide by the root", dict(small=lambda std, n: std / (2 * n))),
    ("biases_left", "biases and beta start at 0", dict(biases=True)),
    ("shifts_left", "biases and beta start at 0", dict(shifts=True)),
    ("gains_left", "gamma starts at 1", dict(gains=True)),
    ("positions_left", None, dict(positions=True)),
    ("variance_for_deviation", None, dict(large=lambda std, n: std**2)),
]:
    wrong("init_weights", says=_says)(initialiser(_name, **_parts))


@wrong("init_weights", says="the output layer is the embedding")
def output_drawn_again(model, std, n_layers):
    initialiser("whole")(model, std, n_layers)
    nn.init.normal_(model.output.weight, std=std / math.sqrt(2 * n_layers))


@wrong("init_weights", says="draw normal numbers")
def uniform_numbers(model, std, n_layers):
    initialiser("whole")(model, std, n_layers)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                reach = math.sqrt(3) * std / (math.sqrt(2 * n_layers) if name.split(".")[-2] in SMALL else 1)
                parameter.uniform_(-reach, reach)


@wrong("init_weights", says="the tie was cut")
def cuts_the_tie(model, std, n_layers):
    initialiser("whole")(model, std, n_layers)
    model.output.weight = nn.Parameter(torch.randn_like(model.output.weight) * std)


@wrong("init_weights")
def returns_a_copy(model, std, n_layers):
    model = copy.deepcopy(model)
    initialiser("whole")(model, std, n_layers)
    return model


@wrong("init_weights")
def reseeded(model, std, n_layers):
    with torch.no_grad():
        initialiser("whole")(model, std, n_layers)
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and name.split(".")[-2] not in SMALL:
                torch.manual_seed(0)
                parameter.normal_(0, std)


@wrong("init_weights")
def xavier(model, std, n_layers):
    initialiser("whole")(model, std, n_layers)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_normal_(parameter)


right("init_weights", why="by module")(initialiser("by_module"))


@right("init_weights", why="by name of the parameter, with nn.init")
def by_name(model, std, n_layers):
    for name, parameter in model.named_parameters():
        owner, _, kind = name.rpartition(".")
        if kind in ("bias", "beta"):
            nn.init.zeros_(parameter)
        elif kind == "gamma":
            nn.init.ones_(parameter)
        else:
            scale = (2 * n_layers) ** -0.5 if owner.endswith(SMALL) else 1.0
            nn.init.normal_(parameter, mean=0.0, std=std * scale)


@right("init_weights", why="arithmetic: all at std first, the small ones multiplied afterwards")
def scaled_afterwards(model, std, n_layers):
    for parameter in model.parameters():
        parameter.data = parameter.data * 0 + std * torch.randn_like(parameter)
    for path, module in model.named_modules():
        if path.split(".")[-1] in SMALL:
            module.weight.data /= math.sqrt(2 * n_layers)
        for name, value in (("bias", 0.0), ("beta", 0.0), ("gamma", 1.0)):
            if isinstance(getattr(module, name, None), nn.Parameter):
                getattr(module, name).data.fill_(value)


@right("init_weights", why="model.apply for the plain part, a second pass for the small matrices; returns the model")
def with_apply(model, std, n_layers):
    def plain(module):
        for name, parameter in module.named_parameters(recurse=False):
            if name in ("weight", "table"):
                torch.nn.init.normal_(parameter, 0.0, std)
            else:
                torch.nn.init.constant_(parameter, float(name == "gamma"))

    model.apply(plain)
    for name, module in model.named_modules():
        if name.endswith(SMALL):
            torch.nn.init.normal_(module.weight, 0.0, std / math.sqrt(2 * n_layers))
    return model


# ---------------------------------------------------------------- gradient_norms


def run(blocks, x):
    for block in blocks:
        x = block(x)
    return x


def slopes(blocks, x, loss=lambda out: out[..., 0].sum()):
    value = loss(run(blocks, x))
    return [torch.autograd.grad(value, list(block.parameters()), retain_graph=True) for block in blocks]


def length(grads):
    return math.sqrt(sum(grad.square().sum().item() for grad in grads))


@wrong("gradient_norms", says=".grad was changed")
def left_behind(blocks, x):
    for block in blocks:
        block.zero_grad()
    run(blocks, x)[..., 0].sum().backward()
    return [length([p.grad for p in block.parameters()]) for block in blocks]


@wrong("gradient_norms", says=".grad was changed")
def added_up(blocks, x):
    run(blocks, x)[..., 0].sum().backward()
    return [length([p.grad for p in block.parameters()]) for block in blocks]


@wrong("gradient_norms", says=".grad was changed")
def cleared(blocks, x):
    answer = [length(grads) for grads in slopes(blocks, x)]
    for block in blocks:
        block.zero_grad()
    return answer


@wrong("gradient_norms", says="the weights were changed")
def takes_a_step(blocks, x):
    found = slopes(blocks, x)
    with torch.no_grad():
        for block, grads in zip(blocks, found, strict=True):
            for parameter, grad in zip(block.parameters(), grads, strict=True):
                parameter -= 0.1 * grad
    return [length(grads) for grads in found]


@wrong("gradient_norms", says="that is the size of the activations")
def sizes_of_outputs(blocks, x):
    sizes = []
    for block in blocks:
        x = block(x)
        sizes.append(x.norm().item())
    return sizes


@wrong("gradient_norms", says="first block first")
def last_first(blocks, x):
    return [length(grads) for grads in slopes(blocks, x)][::-1]


@wrong("gradient_norms", says="one norm over all parameters of a block")
def sum_of_norms(blocks, x):
    return [sum(grad.norm().item() for grad in grads) for grads in slopes(blocks, x)]


@wrong("gradient_norms", says="the root of the sum of squares")
def squares(blocks, x):
    return [length(grads) ** 2 for grads in slopes(blocks, x)]


@wrong("gradient_norms", says="the loss is the sum of out[..., 0]")
def sum_of_everything(blocks, x):
    return [length(grads) for grads in slopes(blocks, x, loss=lambda out: out.sum())]


@wrong("gradient_norms")
def tensors(blocks, x):
    return [torch.tensor(length(grads)) for grads in slopes(blocks, x)]


@wrong("gradient_norms")
def each_block_alone(blocks, x):
    found = []
    for block in blocks:
        found.append(length(torch.autograd.grad(block(x)[..., 0].sum(), list(block.parameters()))))
        x = block(x).detach()
    return found


@wrong("gradient_norms")
def switches_to_training(blocks, x):
    for block in blocks:
        block.train()
    return [length(grads) for grads in slopes(blocks, x)]


@right("gradient_norms", why="autograd.grad block by block")
def by_block(blocks, x):
    return [length(grads) for grads in slopes(blocks, x)]


@right("gradient_norms", why="backward on copies")
def on_copies(blocks, x):
    copies = [copy.deepcopy(block) for block in blocks]
    for block in copies:
        for parameter in block.parameters():
            parameter.grad = None
    run(copies, x)[..., 0].sum().backward()
    return [torch.stack([p.grad.norm() for p in block.parameters()]).norm().item() for block in copies]


@right("gradient_norms", why="backward, then everything put back")
def put_back(blocks, x):
    every = [p for block in blocks for p in block.parameters()]
    kept = [p.grad for p in every]
    for parameter in every:
        parameter.grad = None
    run(blocks, x)[..., 0].sum().backward()
    answer = [length([p.grad for p in block.parameters()]) for block in blocks]
    for parameter, grad in zip(every, kept, strict=True):
        parameter.grad = grad
    return answer


@right("gradient_norms", why="one call for all parameters, dealt out afterwards")
def dealt_out(blocks, x):
    counts = [len(list(block.parameters())) for block in blocks]
    every = [p for block in blocks for p in block.parameters()]
    found = list(torch.autograd.grad(run(blocks, x)[..., 0].sum(), every))
    answer = []
    for count in counts:
        mine, found = found[:count], found[count:]
        answer.append(float(torch.cat([grad.reshape(-1) for grad in mine]).norm()))
    return answer
