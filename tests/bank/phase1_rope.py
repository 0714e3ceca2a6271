"""rope: wrong solutions and unusual right ones."""

import math

import torch

from tests.bank import right, wrong


class _Rope:
    """Right as it stands; each wrong solution changes one method."""

    def rates(self, d, base):
        return base ** (-torch.arange(0, d, 2, dtype=torch.float32) / d)

    def places(self, x, positions):
        return positions

    def turn(self, a, b, c, s):
        return torch.cat([a * c - b * s, b * c + a * s], -1)

    def halves(self, x):
        return x.chunk(2, -1)

    def __call__(self, x, positions, base=10000.0):
        if x.shape[-1] % 2:
            raise ValueError("d_head must be even")
        angles = self.places(x, positions)[..., None].float() * self.rates(x.shape[-1], base)
        a, b = self.halves(x)
        return self.turn(a, b, angles.cos().to(x.dtype), angles.sin().to(x.dtype))


def rope(says=None):
    """Register the rope of a class."""

    def register(cls):
        function = cls().__call__

        def turned(x, positions, base=10000.0):
            return function(x, positions, base)

        turned.__name__, turned.__module__ = cls.__name__, __name__
        return wrong("rope", says=says)(turned)

    return register


# ---------------------------------------------------------------- wrong


@rope("this is the interleaved layout")
class Interleaved(_Rope):
    def halves(self, x):
        return x[..., 0::2], x[..., 1::2]

    def turn(self, a, b, c, s):
        return torch.stack([a * c - b * s, b * c + a * s], -1).flatten(-2)


@rope("positions were taken as 0, 1, 2…")
class InARow(_Rope):
    def places(self, x, positions):
        return torch.arange(x.shape[-2])


@rope("base was ignored")
class UsualBase(_Rope):
    def rates(self, d, base):
        return super().rates(d, 10000.0)


@rope("the sign of the sine")
class OtherWayRound(_Rope):
    def turn(self, a, b, c, s):
        return torch.cat([a * c + b * s, b * c - a * s], -1)


@rope("both halves turn")
class FirstHalf(_Rope):
    def turn(self, a, b, c, s):
        return torch.cat([a * c - b * s, b], -1)


@rope("both halves turn")
class SecondHalf(_Rope):
    def turn(self, a, b, c, s):
        return torch.cat([a, b * c + a * s], -1)


@rope("the exponent is 2i/d, i counts pairs")
class HalfTheExponent(_Rope):
    def rates(self, d, base):
        return base ** (-torch.arange(d // 2) / d)


@rope("frequencies fall with i: the exponent is negative")
class Growing(_Rope):
    def rates(self, d, base):
        return base ** (torch.arange(0, d, 2, dtype=torch.float64) / d)


@rope()
class Reflection(_Rope):
    def turn(self, a, b, c, s):
        return torch.cat([a * c - b * s, b * c - a * s], -1)


@rope()
class NoTurn(_Rope):
    def turn(self, a, b, c, s):
        return torch.cat([a * c, b * c], -1)


@rope()
class OneAngle(_Rope):
    def rates(self, d, base):
        return torch.ones(d // 2)


@rope()
class Degrees(_Rope):
    def rates(self, d, base):
        return super().rates(d, base) * 180 / math.pi


@rope()
class FromOne(_Rope):
    def places(self, x, positions):
        return positions + 1


@rope()
class SizeOfThePosition(_Rope):
    def places(self, x, positions):
        return positions.abs()


@rope()
class FirstSentencesPlaces(_Rope):
    def places(self, x, positions):
        return positions.reshape(-1, positions.shape[-1])[0]


@wrong("rope", says="x came back unrotated")
def nothing_done(x, positions, base=10000.0):
    return x.clone()


@wrong("rope", says="x was changed in place")
def into_x(x, positions, base=10000.0):
    half = x.shape[-1] // 2
    turned = _Rope()(x, positions, base)
    x[..., :half], x[..., half:] = turned[..., :half], turned[..., half:]
    return x


@wrong("rope", says="angles need float32, whatever x is")
def narrow_angles(x, positions, base=10000.0):
    if x.shape[-1] % 2:
        raise ValueError("odd")
    angles = positions[..., None].to(x.dtype) * (base ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])).to(x.dtype)
    a, b = x.chunk(2, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


@wrong("rope", says="halves are pairs, so angles repeat in halves too")
def rotate_half_of_neighbours(x, positions, base=10000.0):
    if x.shape[-1] % 2:
        raise ValueError("odd")
    angles = (positions[..., None] * _Rope().rates(x.shape[-1], base).double()).repeat_interleave(2, -1)
    a, b = x.chunk(2, -1)
    return (x * angles.cos() + torch.cat([-b, a], -1) * angles.sin()).to(x.dtype)


@wrong("rope")
def odd_widths(x, positions, base=10000.0):
    if x.shape[-1] % 2:
        return torch.cat([_Rope()(x[..., :-1], positions, base), x[..., -1:]], -1)
    return _Rope()(x, positions, base)


@wrong("rope")
def wide_result(x, positions, base=10000.0):
    return _Rope()(x.double(), positions, base)


@wrong("rope")
def without_gradient(x, positions, base=10000.0):
    return _Rope()(x.detach(), positions, base)


_tables = {}


@wrong("rope")
def table_kept_by_width(x, positions, base=10000.0):
    if x.shape[-1] not in _tables:
        _tables[x.shape[-1]] = base ** (-torch.arange(0, x.shape[-1], 2, dtype=torch.float32) / x.shape[-1])
    kept = _Rope()
    kept.rates = lambda d, base: _tables[d]
    return kept(x, positions, base)


@wrong("rope")
def added(x, positions, base=10000.0):
    angles = positions[..., None] * _Rope().rates(x.shape[-1], base)
    return x + torch.cat([angles.sin(), angles.cos()], -1).to(x.dtype)


# ---------------------------------------------------------------- right


@right("rope", why="angles in float32")
def in_float32(x, positions, base=10000.0):
    return _Rope()(x, positions, base)


@right("rope", why="rotate_half, with angles side by side")
def rotate_half(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("rope needs an even width")
    angles = positions.unsqueeze(-1) * torch.exp(torch.arange(0, d, 2, dtype=torch.float64) * -math.log(base) / d)
    angles = torch.cat([angles, angles], -1)
    partner = torch.cat([-x[..., d // 2 :], x[..., : d // 2]], -1)
    return x * angles.cos().to(x.dtype) + partner * angles.sin().to(x.dtype)


@right("rope", why="complex numbers")
def complex_numbers(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("an even d_head is needed")
    wide = x.to(torch.float64)
    points = torch.view_as_complex(torch.stack(wide.chunk(2, -1), -1).contiguous())
    turned = points * torch.exp(1j * positions[..., None] * base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d))
    return torch.cat([turned.real, turned.imag], -1).to(x.dtype)


_kept = {}


@right("rope", why="a table kept for later calls, by width, base and dtype")
def kept_table(x, positions, base=10000.0):
    key = (x.shape[-1], base, x.dtype)
    if x.shape[-1] % 2:
        raise ValueError("odd")
    if key not in _kept:
        rates = base ** (-torch.arange(0, x.shape[-1], 2).double() / x.shape[-1])
        places = torch.arange(-4096, 4096).double()[:, None]
        _kept[key] = torch.cos(places * rates).to(x.dtype), torch.sin(places * rates).to(x.dtype)
    c, s = (table[positions + 4096] for table in _kept[key])
    a, b = x.tensor_split(2, -1)
    return torch.cat((a * c - b * s, a * s + b * c), dim=-1)


@right("rope", why="a 2 × 2 turn for every pair, by einsum")
def by_einsum(x, positions, base=10000.0):
    if x.shape[-1] % 2 != 0:
        raise ValueError("even, please")
    pairs = x.unflatten(-1, (2, -1))
    angles = positions[..., None] * base ** (-torch.arange(x.shape[-1] // 2, dtype=torch.float64) * 2 / x.shape[-1])
    turn = torch.stack([torch.stack([angles.cos(), -angles.sin()]), torch.stack([angles.sin(), angles.cos()])])
    turn = turn.to(x.dtype).movedim((0, 1), (-3, -2)).expand(*x.shape[:-1], 2, 2, -1)
    return torch.einsum("...oih,...ih->...oh", turn, pairs).flatten(-2)
