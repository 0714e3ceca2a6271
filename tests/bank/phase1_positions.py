"""sinusoidal_positions and shift_matrix: wrong solutions and unusual right ones."""

import math

import numpy as np
import torch

from tests.bank import right, wrong


def refuse_odd(d_model):
    if d_model % 2 == 1:
        raise ValueError("d_model must be even")


def angles_of(seq_len, d_model, base, start=0):
    refuse_odd(d_model)
    pair = torch.arange(d_model // 2)
    return torch.arange(start, start + seq_len)[:, None] * base ** (-2 * pair / d_model)


def alternating(even, odd):
    return torch.stack([even, odd], -1).flatten(-2)


# ---------------------------------------------------------------- sinusoidal_positions, wrong


@wrong("sinusoidal_positions", says="halves instead of alternating columns")
def halves(seq_len, d_model, base=10000.0):
    angles = angles_of(seq_len, d_model, base)
    return torch.cat([angles.sin(), angles.cos()], -1)


@wrong("sinusoidal_positions", says="the exponent is 2i/d, i counts pairs")
def half_the_exponent(seq_len, d_model, base=10000.0):
    refuse_odd(d_model)
    angles = torch.arange(seq_len)[:, None] * base ** (-torch.arange(d_model // 2) / d_model)
    return alternating(angles.sin(), angles.cos())


@wrong("sinusoidal_positions", says="the exponent counts dimensions twice")
def formula_of_the_notes(seq_len, d_model, base=10000.0):
    refuse_odd(d_model)
    table = torch.zeros(seq_len, d_model)
    for p in range(seq_len):
        for i in range(d_model):
            table[p, i] = (
                math.cos(p / base ** ((2 * i - 1) / d_model)) if i % 2 else math.sin(p / base ** (2 * i / d_model))
            )
    return table


@wrong("sinusoidal_positions", says="the exponent counts dimensions twice")
def even_columns_doubled(seq_len, d_model, base=10000.0):
    refuse_odd(d_model)
    angles = torch.arange(seq_len)[:, None] * base ** (-2 * torch.arange(0, d_model, 2) / d_model)
    return alternating(angles.sin(), angles.cos())


@wrong("sinusoidal_positions", says="sine and cosine share one angle")
def every_column_its_angle(seq_len, d_model, base=10000.0):
    refuse_odd(d_model)
    angles = torch.arange(seq_len)[:, None] * base ** (-torch.arange(d_model) / d_model)
    return torch.where(torch.arange(d_model) % 2 == 0, angles.sin(), angles.cos())


@wrong("sinusoidal_positions", says="base was ignored")
def base_fixed(seq_len, d_model, base=10000.0):
    angles = angles_of(seq_len, d_model, 10000.0)
    return alternating(angles.sin(), angles.cos())


@wrong("sinusoidal_positions", says="sine stands in even columns, cosine in odd ones")
def cosine_first(seq_len, d_model, base=10000.0):
    angles = angles_of(seq_len, d_model, base)
    return alternating(angles.cos(), angles.sin())


@wrong("sinusoidal_positions", says="angles are in radians")
def degrees(seq_len, d_model, base=10000.0):
    angles = torch.rad2deg(angles_of(seq_len, d_model, base))
    return alternating(angles.sin(), angles.cos())


@wrong("sinusoidal_positions", says="positions start at 0")
def from_one(seq_len, d_model, base=10000.0):
    angles = angles_of(seq_len, d_model, base, start=1)
    return alternating(angles.sin(), angles.cos())


@wrong("sinusoidal_positions", says="frequencies fall with i: the exponent is negative")
def multiplied(seq_len, d_model, base=10000.0):
    refuse_odd(d_model)
    angles = torch.arange(seq_len)[:, None] * base ** (torch.arange(0, d_model, 2) / d_model)
    return alternating(angles.sin(), angles.cos())


@wrong("sinusoidal_positions", says="the last frequency is base^(−(d−2)/d)")
def from_end_to_end(seq_len, d_model, base=10000.0):
    refuse_odd(d_model)
    half = d_model // 2
    angles = torch.arange(seq_len)[:, None] * base ** (-torch.arange(half) / max(half - 1, 1))
    return alternating(angles.sin(), angles.cos())


@wrong("sinusoidal_positions")
def odd_allowed(seq_len, d_model, base=10000.0):
    angles = torch.arange(seq_len)[:, None] * base ** (-torch.arange(0, d_model, 2) / d_model)
    return alternating(angles.sin(), angles.cos())[:, :d_model]


@wrong("sinusoidal_positions")
def always_single(seq_len, d_model, base=10000.0):
    angles = angles_of(seq_len, d_model, base)
    return alternating(angles.sin(), angles.cos()).float()


@wrong("sinusoidal_positions")
def always_double(seq_len, d_model, base=10000.0):
    angles = angles_of(seq_len, d_model, base)
    return alternating(angles.sin(), angles.cos()).double()


@wrong("sinusoidal_positions")
def with_a_batch_axis(seq_len, d_model, base=10000.0):
    angles = angles_of(seq_len, d_model, base)
    return alternating(angles.sin(), angles.cos())[None]


@wrong("sinusoidal_positions")
def turns_not_radians(seq_len, d_model, base=10000.0):
    angles = 2 * math.pi * angles_of(seq_len, d_model, base)
    return alternating(angles.sin(), angles.cos())


@wrong("sinusoidal_positions")
def relative_to_the_length(seq_len, d_model, base=10000.0):
    angles = angles_of(seq_len, d_model, base) / seq_len
    return alternating(angles.sin(), angles.cos())


# ---------------------------------------------------------------- sinusoidal_positions, right


@right("sinusoidal_positions", why="exp(−log) form, strided assignment")
def by_logarithm(seq_len, d_model, base=10000.0):
    refuse_odd(d_model)
    table = torch.zeros(seq_len, d_model)
    rates = torch.exp(torch.arange(0, d_model, 2) * (-math.log(base) / d_model))
    table[:, 0::2] = torch.sin(torch.arange(seq_len)[:, None] * rates)
    table[:, 1::2] = torch.cos(torch.arange(seq_len)[:, None] * rates)
    return table


@right("sinusoidal_positions", why="complex numbers: powers of one turn")
def by_powers(seq_len, d_model, base=10000.0):
    refuse_odd(d_model)
    turn = torch.exp(1j * base ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model))
    points = torch.stack([turn**p for p in range(seq_len)])
    return alternating(points.imag, points.real).to(torch.get_default_dtype())


@right("sinusoidal_positions", why="two loops")
def by_loops(seq_len, d_model, base=10000.0):
    refuse_odd(d_model)
    rows = []
    for p in range(seq_len):
        row = []
        for i in range(0, d_model, 2):
            angle = p / base ** (i / d_model)
            row += [math.sin(angle), math.cos(angle)]
        rows.append(row)
    return torch.tensor(rows)


@right("sinusoidal_positions", why="NumPy inside")
def with_numpy(seq_len, d_model, base=10000.0):
    refuse_odd(d_model)
    column = np.arange(d_model)
    angles = np.arange(seq_len)[:, None] / np.power(base, 2 * (column // 2) / d_model)
    table = np.where(column % 2, np.cos(angles), np.sin(angles))
    return torch.from_numpy(table).to(torch.get_default_dtype())


@right("sinusoidal_positions", why="float32 inside, sine of a shifted angle")
def shifted_sine(seq_len, d_model, base=10000.0):
    refuse_odd(d_model)
    column = torch.arange(d_model, dtype=torch.float32)
    angles = torch.arange(seq_len, dtype=torch.float32)[:, None] * base ** (-(column - column % 2) / d_model)
    return torch.sin(angles + column % 2 * math.pi / 2).to(torch.get_default_dtype())


# ---------------------------------------------------------------- shift_matrix, wrong


def turns(offset, d_model, base):
    refuse_odd(d_model)
    return offset * base ** (-torch.arange(0, d_model, 2) / d_model)


def blocks(angles, sign=1):
    c, s = angles.cos(), sign * angles.sin()
    return torch.block_diag(*(torch.tensor([[c[i], -s[i]], [s[i], c[i]]]) for i in range(len(angles))))


@wrong("shift_matrix", says="this shifts backwards (columns convention)")
def for_columns(offset, d_model, base=10000.0):
    return blocks(turns(offset, d_model, base), -1)


@wrong("shift_matrix", says="pairs are neighbouring columns")
def pairs_half_apart(offset, d_model, base=10000.0):
    angles = turns(offset, d_model, base)
    c, s = torch.diag(angles.cos()), torch.diag(angles.sin())
    return torch.cat([torch.cat([c, -s], 1), torch.cat([s, c], 1)])


@wrong("shift_matrix", says="pairs are neighbouring columns")
def pairs_half_apart_backwards(offset, d_model, base=10000.0):
    angles = turns(offset, d_model, base)
    c, s = torch.diag(angles.cos()), torch.diag(angles.sin())
    return torch.cat([torch.cat([c, s], 1), torch.cat([-s, c], 1)])


@wrong("shift_matrix", says="base was ignored")
def usual_base(offset, d_model, base=10000.0):
    return blocks(turns(offset, d_model, 10000.0))


@wrong("shift_matrix", says="offset was ignored")
def identity(offset, d_model, base=10000.0):
    refuse_odd(d_model)
    return torch.eye(d_model)


@wrong("shift_matrix", says="offset was ignored")
def one_step(offset, d_model, base=10000.0):
    return blocks(turns(1, d_model, base))


@wrong("shift_matrix", says="a negative offset shifts back")
def size_of_the_offset(offset, d_model, base=10000.0):
    return blocks(turns(abs(offset), d_model, base))


@wrong("shift_matrix", says="every pair has its own angle")
def one_angle(offset, d_model, base=10000.0):
    return blocks(torch.full_like(turns(offset, d_model, base), offset))


@wrong("shift_matrix", says="the exponent is 2i/d, i counts pairs")
def half_the_rate(offset, d_model, base=10000.0):
    refuse_odd(d_model)
    return blocks(offset * base ** (-torch.arange(d_model // 2) / d_model))


@wrong("shift_matrix")
def cosine_row_first(offset, d_model, base=10000.0):
    angles = turns(offset, d_model, base)
    return blocks(math.pi / 2 - angles)


@wrong("shift_matrix")
def reflection(offset, d_model, base=10000.0):
    matrix = blocks(turns(offset, d_model, base))
    matrix[:, 1::2] *= -1
    return matrix


@wrong("shift_matrix")
def odd_widths_too(offset, d_model, base=10000.0):
    angles = offset * base ** (-torch.arange(0, d_model, 2) / d_model)
    return blocks(angles)[:d_model, :d_model]


@wrong("shift_matrix")
def single_always(offset, d_model, base=10000.0):
    return blocks(turns(offset, d_model, base)).float()


@wrong("shift_matrix")
def rank_one_fit(offset, d_model, base=10000.0):
    table = by_logarithm(abs(offset) + 2, d_model, base)
    return torch.linalg.pinv(table[:1]) @ table[offset : offset + 1]


# ---------------------------------------------------------------- shift_matrix, right


@right("shift_matrix", why="blocks on the diagonal")
def on_the_diagonal(offset, d_model, base=10000.0):
    return blocks(turns(offset, d_model, base))


@right("shift_matrix", why="written into a table of zeros by places")
def by_places(offset, d_model, base=10000.0):
    angles, matrix = turns(offset, d_model, base), torch.zeros(d_model, d_model)
    even = torch.arange(0, d_model, 2)
    matrix[even, even] = matrix[even + 1, even + 1] = angles.cos()
    matrix[even + 1, even], matrix[even, even + 1] = angles.sin(), -angles.sin()
    return matrix


@right("shift_matrix", why="a power of the one-step matrix")
def by_power(offset, d_model, base=10000.0):
    step = blocks(turns(1, d_model, base).double())
    step = torch.linalg.matrix_power(step, abs(offset))
    return (step.T if offset < 0 else step).to(torch.get_default_dtype())


@right("shift_matrix", why="complex numbers")
def by_complex_numbers(offset, d_model, base=10000.0):
    turn = torch.exp(1j * turns(offset, d_model, base).double())
    # row (s, c) stands for c + i s; the unit rows are i and 1
    rows = [point for point in (1j * turn, turn)]
    matrix = torch.zeros(d_model, d_model)
    for place, row in enumerate(rows):
        matrix[torch.arange(place, d_model, 2), torch.arange(0, d_model, 2)] = row.imag.to(matrix.dtype)
        matrix[torch.arange(place, d_model, 2), torch.arange(1, d_model, 2)] = row.real.to(matrix.dtype)
    return matrix


@right("shift_matrix", why="a least-squares fit over many positions")
def fitted(offset, d_model, base=10000.0):
    p = torch.arange(4 * d_model + 50, dtype=torch.float64)[:, None] * 3.7
    rates = turns(1, d_model, base).double()
    here = alternating((p * rates).sin(), (p * rates).cos())
    there = alternating(((p + offset) * rates).sin(), ((p + offset) * rates).cos())
    return torch.linalg.lstsq(here, there).solution.to(torch.get_default_dtype())
