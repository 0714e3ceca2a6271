"""init_weights and gradient_norms: how a stack begins, and what reaches its first block."""

import torch
from torch import nn

from utils import oracle
from utils.checks.draw import normal
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase4 import PHASE, rules
from utils.observe.codec import Fixture


def wrong_init(
    smaller=lambda n: (2 * n) ** -0.5,
    other=lambda n: 1.0,
    zero_bias=True,
    one_gamma=True,
    tied=None,
    draw=nn.init.normal_,
    within=False,
    table=True,
):
    """A wrong twin: factors of std for the two kinds of matrix; tied: the output layer is drawn again, by this.

    within: names are looked for anywhere in a path; table: the table of positions is drawn.
    """

    @torch.no_grad()
    def init_weights(model, std, n_layers):
        for name, parameter in model.named_parameters():
            kind = rules.kind_of(name)
            if within and kind == "normal" and any(short in name for short in rules.SMALLER):
                kind = "smaller"
            if name.endswith("table") and not table:
                continue
            if kind in ("ones", "zeros"):
                if one_gamma if kind == "ones" else zero_bias:
                    parameter.fill_(1.0 if kind == "ones" else 0.0)
            else:
                draw(parameter, std=std * (smaller if kind == "smaller" else other)(n_layers))
        if tied:
            draw(model.output.weight, std=std * tied(n_layers))

    return init_weights


def uniform(parameter, std):
    nn.init.uniform_(parameter, -std * 3**0.5, std * 3**0.5)


def split_tie(model, std, n_layers):
    oracle.init_weights(model, std, n_layers)
    model.output.weight = nn.Parameter(std * torch.randn_like(model.output.weight))


def start(name, std=0.05, n_layers=9, **options):
    judge = rules.initialised(std, n_layers)
    args = dict(model=Fixture("model", options), std=std, n_layers=n_layers)
    return case(name, args, kind="chance", judge=judge, mutates="model", grad=False)


register(
    expected=oracle.init_weights,
    phase=PHASE,
    section="4.12",
    hint="std for all matrices, std/√(2·n_layers) for w_o, w_2, w_down; biases and beta 0, gamma 1.",
    grad=False,
    cases=(
        start("std 0.05, nine layers"),
        start("std 0.02, two layers", std=0.02, n_layers=2, seed=1),
        start("an output layer of its own", tied=False, seed=2),
        start("one layer", std=1.0, n_layers=1, seed=3),
        start("layers called w_outer and w_2_first", outer=True, seed=4),
    ),
    mistakes={
        "only w_o, w_2 and w_down are made smaller": Spotted(
            rules.scaled_like(normal="2n", smaller="2n"), wrong_init(other=lambda n: (2 * n) ** -0.5)
        ),
        "two residual branches per layer": Spotted(
            rules.scaled_like(normal="1", smaller="n"), wrong_init(smaller=lambda n: n**-0.5)
        ),
        "w_o, w_2 and w_down start smaller": Spotted(
            rules.scaled_like(normal="1", smaller="1"), wrong_init(smaller=lambda n: 1.0)
        ),
        "divide by the root": Spotted(
            rules.scaled_like(normal="1", smaller="half"), wrong_init(smaller=lambda n: 0.5 / n)
        ),
        "look at the last piece of the name, and at the whole of it": Spotted(
            rules.longer_names, wrong_init(within=True)
        ),
        "table is a matrix, too": Spotted(rules.table_left, wrong_init(table=False)),
        "biases and beta start at 0": Spotted(rules.biases_left, wrong_init(zero_bias=False)),
        "gamma starts at 1": Spotted(rules.gains_left, wrong_init(one_gamma=False)),
        "the output layer is the embedding": Spotted(
            rules.scaled_like(normal="1", smaller="2n", tied="2n"), wrong_init(tied=lambda n: (2 * n) ** -0.5)
        ),
        "the tie was cut": Spotted(rules.tie_cut, split_tie),
        "draw normal numbers": Spotted(rules.not_normal, wrong_init(draw=uniform)),
    },
)


def norms(measure, loss=lambda out: out[..., 0].sum()):
    """A wrong twin: measure(list of gradients) for each block."""

    def gradient_norms(blocks, x):
        with torch.enable_grad():
            out = x
            for block in blocks:
                out = block(out)
            found = [torch.autograd.grad(loss(out), list(block.parameters()), retain_graph=True) for block in blocks]
        return [float(measure(grads)) for grads in found]

    return gradient_norms


def whole(grads):
    return torch.cat([grad.flatten() for grad in grads]).norm()


def activations(blocks, x):
    sizes = []
    with torch.no_grad():
        for block in blocks:
            x = block(x)
            sizes.append(x.norm().item())
    return sizes


def leaves_grads(blocks, x):
    answer = oracle.gradient_norms(blocks, x)
    for block in blocks:
        for parameter in block.parameters():
            parameter.grad = torch.ones_like(parameter)
    return answer


def clears_grads(blocks, x):
    answer = oracle.gradient_norms(blocks, x)
    for block in blocks:
        for parameter in block.parameters():
            parameter.grad = None
    return answer


def accumulates(blocks, x):
    """backward() on top of what stands in .grad, and the sum is measured."""
    out = x
    for block in blocks:
        out = block(out)
    out[..., 0].sum().backward()
    return [whole([p.grad for p in block.parameters()]).item() for block in blocks]


def weights_moved(blocks, x):
    answer = oracle.gradient_norms(blocks, x)
    with torch.no_grad():
        for block in blocks:
            for parameter in block.parameters():
                parameter -= 0.01
    return answer


def stack(**options):
    return dict(blocks=Fixture("stack", options), x=normal(2, 5, options.get("width", 12)))


register(
    expected=oracle.gradient_norms,
    phase=PHASE,
    section="4.13",
    hint="run x through the blocks, torch.autograd.grad of out[..., 0].sum(), one norm per block.",
    grad=False,
    cases=(
        case("three pre-norm blocks", stack()),
        case("three post-norm blocks", stack(norm_first=False, seed=1)),
        case("numbers in .grad that must stay", stack(marked=True, seed=2)),
        case("asked twice", stack(seed=3), then=(stack(seed=3),)),
        case("one block", stack(n_layers=1, width=5, seed=4)),
        case("two blocks, training mode", stack(n_layers=2, training=True, seed=5)),
    ),
    mistakes={
        ".grad was changed": Replays(leaves_grads, clears_grads, accumulates),
        "the weights were changed": Spotted(rules.second_call_differs, weights_moved),
        "that is the size of the activations": activations,
        "first block first": lambda blocks, x: oracle.gradient_norms(blocks, x)[::-1],
        "one norm over all parameters of a block": Replays(
            norms(lambda grads: sum(grad.norm() for grad in grads)),
            norms(lambda grads: sum(grad.norm() for grad in grads) / len(grads)),
            norms(lambda grads: max(grad.norm() for grad in grads)),
        ),
        "the root of the sum of squares": Replays(
            norms(lambda grads: whole(grads) ** 2), norms(lambda grads: sum(grad.abs().sum() for grad in grads))
        ),
        "the loss is the sum of out[..., 0]": Replays(
            norms(whole, loss=lambda out: out.sum()),
            norms(whole, loss=lambda out: out[..., 0].mean()),
            norms(whole, loss=lambda out: out[0].sum()),
        ),
    },
)
