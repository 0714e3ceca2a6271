"""rope: what hurried students hand in, and what experts do differently."""

import torch

from tests.bank import right, wrong
from tests.bank.phase1_hurried_places import named


def turning(x, positions, base):
    if x.shape[-1] % 2:
        raise ValueError("d_head must be even")
    speeds = 1.0 / base ** (torch.arange(0, x.shape[-1], 2).float() / x.shape[-1])
    angles = positions.unsqueeze(-1).float() * speeds
    return *x.chunk(2, -1), angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def in_layout(x):
    return x.unflatten(-1, (-1, 2)).mT.flatten(-2)


def out_layout(x):
    return x.unflatten(-1, (2, -1)).mT.flatten(-2)


FORMULAS = {
    "swapped_waves": ("sine and cosine changed places", lambda a, b, c, s: (a * s - b * c, b * s + a * c)),
    "both_plus": ("one of the two sums has the wrong sign", lambda a, b, c, s: (a * c + b * s, b * c + a * s)),
    "other_way": ("the sign of the sine", lambda a, b, c, s: (a * c + b * s, b * c - a * s)),
    "already_new": (
        "both halves need the old a and b",
        lambda a, b, c, s: (a * c - b * s, b * c + (a * c - b * s) * s),
    ),
    "plus_waves": ("positions are added to embeddings; here they turn", lambda a, b, c, s: (a + s, b + c)),
}
for _name, (_says, _formula) in FORMULAS.items():
    wrong("rope", says=_says)(
        named(
            f"rope_{_name}",
            lambda x, positions, base=10000.0, formula=_formula: torch.cat(formula(*turning(x, positions, base)), -1),
        )
    )


@wrong("rope", says="pairs go out in the layout in which they came in")
def neighbours_in_halves_out(x, positions, base=10000.0):
    a, b, c, s = turning(in_layout(x), positions, base)
    return torch.cat([a * c - b * s, b * c + a * s], -1)


@wrong("rope", says="pairs go out in the layout in which they came in")
def halves_in_neighbours_out(x, positions, base=10000.0):
    a, b, c, s = turning(x, positions, base)
    return out_layout(torch.cat([a * c - b * s, b * c + a * s], -1))


@right("rope", "the page's own formula, leaning on torch's default dtype")
def by_the_page(x, positions, base=10000.0):
    if x.shape[-1] % 2:
        raise ValueError("even")
    speeds = base ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    angles = positions[..., None] * speeds
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


@right("rope", "x widened, turned and narrowed again, as Llama does")
def wide_inside(x, positions, base=10000.0):
    if x.shape[-1] % 2 != 0:
        raise ValueError("odd")
    a, b, c, s = turning(x.double(), positions, base)
    return torch.cat((a * c - b * s, a * s + b * c), dim=-1).type_as(x)


@right("rope", "stack of halves times a 2 by 2 turn")
def by_matrices(x, positions, base=10000.0):
    a, b, c, s = turning(x, positions, base)
    turn = torch.stack([torch.stack([c, -s], -1), torch.stack([s, c], -1)], -2)
    pairs = torch.stack([a, b], -1).unsqueeze(-1)
    return (turn @ pairs).squeeze(-1).mT.flatten(-2)
