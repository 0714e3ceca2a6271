"""`compare(mine, expected)`: are two tensors the same, and if not, in what way are they not?

Each reason is tried in turn; one is named only if it explains every entry. Nothing is guessed.
"""

import itertools
import math
from dataclasses import dataclass

import torch

SHOWN = 3  # entries that are printed


@dataclass(frozen=True)
class Comparison:
    """What compare() found. `same`: within the tolerance; `reason`: in a sentence; `where`: the first difference."""

    same: bool
    reason: str
    where: str = ""

    def __bool__(self):
        return self.same

    def __str__(self):
        return "\n".join(filter(None, [f"{'✓' if self.same else '✗'} {self.reason}", self.where]))

    __repr__ = __str__


def compare(mine, expected, rtol=1e-5, atol=1e-8):
    """Say whether `mine` equals `expected` and, if not, why: transposed, a constant factor, one place off, NaN, …

    mine, expected: tensors, arrays, or lists of numbers; NaN equals NaN
    Returns a Comparison: a notebook shows it as text, `if compare(a, b):` works.
    """
    a, b = _tensor(mine, "the first"), _tensor(expected, "the second")
    pair = _Pair(a, b, rtol, atol)
    if a.shape != b.shape:
        return Comparison(False, pair.shapes())
    if pair.equal(a, b):
        if a.dtype == b.dtype or not (hasattr(mine, "dtype") and hasattr(expected, "dtype")):  # lists have none
            return Comparison(True, "the same")
        return Comparison(False, f"the same numbers, but of dtype {_dtype(a)} instead of {_dtype(b)}")
    reason = next(filter(None, (reason(pair) for reason in REASONS)), None)
    return Comparison(False, reason or pair.plain(), pair.where())


def _tensor(value, which):
    try:
        tensor = value.detach() if isinstance(value, torch.Tensor) else torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{which} of the two is no tensor and no list of numbers: {type(value).__name__}") from None
    return tensor.cpu().resolve_conj()


def _dtype(tensor):
    return str(tensor.dtype).removeprefix("torch.")


class _Pair:
    """Two tensors, in float64, and the tolerance of their coarser type."""

    def __init__(self, a, b, rtol, atol):
        self.raw = a, b
        self.a, self.b = a.double(), b.double()
        steps = [torch.finfo(t.dtype).eps for t in (a, b) if t.dtype.is_floating_point]
        self.rtol = max([rtol, *(8 * step for step in steps)])
        scale = self.b[self.b.isfinite()].abs().max().item() if bool(self.b.isfinite().any()) else 1.0
        self.atol = max(atol, self.rtol * scale * 1e-2)

    def equal(self, a, b):
        return a.shape == b.shape and bool(
            torch.isclose(a.double(), b.double(), self.rtol, self.atol, equal_nan=True).all()
        )

    @property
    def wrong(self):
        return ~torch.isclose(self.a, self.b, self.rtol, self.atol, equal_nan=True)

    def shapes(self):
        """Why the shapes differ, as far as the numbers tell."""
        a, b = self.a, self.b
        head = f"shape {tuple(a.shape)} instead of {tuple(b.shape)}"
        if a.dim() == b.dim() and (order := self.permutation()):
            return f"{head}: {order}"
        if self.equal(a.squeeze(), b.squeeze()):
            return f"{head}: the same numbers, but for axes of size 1"
        if a.numel() == b.numel() and self.equal(a.reshape(-1), b.reshape(-1)):
            return f"{head}: the same numbers in the same order, cut into other axes (reshape)"
        if a.numel() == b.numel() and self.same_numbers():
            return f"{head}: the same numbers in another order"
        try:
            if self.equal(*torch.broadcast_tensors(a, b)):
                return f"{head}: the one is the other, repeated (broadcast)"
        except RuntimeError:
            pass
        return head

    def permutation(self):
        """The order of axes that turns `expected` into `mine`, in words, or None."""
        axes = range(self.b.dim())
        for order in itertools.permutations(axes):
            if list(order) != list(axes) and self.equal(self.a, self.b.permute(order)):
                moved = [axis for axis in axes if order[axis] != axis]
                if len(moved) == 2:
                    return "transposed" if self.b.dim() == 2 else f"axes {moved[0]} and {moved[1]} are swapped"
                return f"the axes are permuted: permute{tuple(order)} of the right one"
        return None

    def same_numbers(self):
        return self.equal(self.a.reshape(-1).sort().values, self.b.reshape(-1).sort().values)

    def where(self):
        """How many entries differ, and the first of them."""
        places = self.wrong.nonzero()
        lines = [f"  {len(places)} of {self.a.numel()} entries differ"]
        for place in places[:SHOWN].tolist():
            index = tuple(place)
            lines.append(f"  {place}: {_number(self.a[index])} instead of {_number(self.b[index])}")
        return "\n".join(lines)

    def plain(self):
        """Without a reason: how far apart."""
        finite = self.a.isfinite() & self.b.isfinite()
        far = (self.a - self.b)[finite].abs().max().item() if bool(finite.any()) else math.inf
        return f"they differ, by {far:.3g} at most, and for no reason that compare knows"


def _number(entry):
    return f"{entry.item():.6g}"


# ---- reasons: each takes a _Pair of one shape and gives a sentence, or None ----------------------


def _inverted(pair):
    if all(t.dtype == torch.bool for t in pair.raw) and pair.equal(1 - pair.a, pair.b):
        return "inverted: True where False should be"


def _not_a_number(pair):
    bad = pair.a.isnan() & ~pair.b.isnan()
    if not bool(bad.any()):
        return None
    count = f"{int(bad.sum())} NaN"
    if bool((pair.b[bad] == 0).all()):
        rows = bad.all(-1) if bad.dim() else bad
        if bool((bad == rows.unsqueeze(-1)).all()) and bool((pair.b[rows] == 0).all()):
            return f"{count}, in the rows that should be all zero: softmax of a row in which everything is masked"
        return f"{count}, all where a masked 0 should be: −∞ − (−∞), or 0 · ∞"
    return f"{count} where there should be numbers"


def _infinite(pair):
    bad = ~pair.a.isfinite() & pair.b.isfinite()
    if bool(bad.any()):
        hidden = bool((pair.b[bad] == 0).all())
        return f"{int(bad.sum())} infinite" + (
            ": the mask was added, softmax is still to come" if hidden else " entries"
        )


def _permuted(pair):
    order = pair.permutation() if pair.a.dim() <= 5 else None
    return order and (order if order == "transposed" else f"transposed: {order}")


def _sign(pair):
    if pair.equal(-pair.a, pair.b):
        return "the sign is the other one"


def _factor(pair):
    if not bool(pair.a.isfinite().all() and pair.b.isfinite().all()) or not bool(pair.b.abs().max() > 0):
        return None
    biggest = pair.b.abs().argmax()
    factor = (pair.a.reshape(-1)[biggest] / pair.b.reshape(-1)[biggest]).item()
    if factor and pair.equal(pair.a, factor * pair.b):
        return f"a constant factor: {factor:.6g} times too large{_named(factor, pair.a.shape)}"


def _named(factor, shape):
    """ ", that is √16, the size of axis 1": where the factor is made of a size."""
    for axis, size in enumerate(shape):
        for value, text in ((size, "{}"), (size**0.5, "√{}"), (1 / size, "1/{}"), (size**-0.5, "1/√{}")):
            if size > 1 and math.isclose(abs(factor), value, rel_tol=1e-4):
                return f", that is {text.format(size)}; axis {axis} has size {size}"
    return ""


def _offset(pair):
    gap = (pair.a - pair.b).reshape(-1)
    if bool(gap.isfinite().all()) and pair.equal(pair.a, pair.b + gap[0]):
        return f"a constant was added: {gap[0].item():.6g}"


def _shifted(pair):
    for axis in range(pair.a.dim()):
        size = pair.a.shape[axis]
        for step in (1, -1):
            if size < 3:
                continue
            a = pair.a.narrow(axis, max(step, 0), size - 1)
            b = pair.b.narrow(axis, max(-step, 0), size - 1)
            if pair.equal(a, b):
                way = "later" if step > 0 else "earlier"
                return f"one place off along axis {axis}: everything stands one place {way} than it should"
    return None


def _flipped(pair):
    for axis in range(pair.a.dim()):
        if pair.equal(pair.a.flip(axis), pair.b):
            return f"axis {axis} runs backwards"
    return None


def _other_axis(pair):
    """Shares that add up to 1 over the wrong axis, or rows that were not divided by their sum."""
    ones = [axis for axis in range(pair.b.dim()) if pair.equal(pair.b.sum(axis), torch.ones_like(pair.b.sum(axis)))]
    if not ones or pair.b.shape[ones[-1]] < 2:
        return None
    axis = ones[-1]
    mine = [one for one in range(pair.a.dim()) if pair.equal(pair.a.sum(one), torch.ones_like(pair.a.sum(one)))]
    if mine and axis not in mine:
        return f"it sums to 1 over axis {mine[-1]}, and should over axis {axis}: softmax over the wrong axis"
    total = pair.a.sum(axis, keepdim=True)
    if bool((total != 0).all()) and pair.equal(pair.a / total, pair.b):
        return f"each row along axis {axis} is off by a factor of its own: its shares do not sum to 1"
    return None


def _logarithm(pair):
    a, b = pair.a, pair.b
    if bool((b > 0).all()) and pair.equal(a, b.log()):
        return "it is the logarithm of what it should be"
    if bool((a > 0).all()) and pair.equal(a.log(), b):
        return "the logarithm is missing: exp of what it should be"
    if a.dim() and pair.equal(a.softmax(-1), b):
        return "the softmax over the last axis is missing"


def _relaid(pair):
    """view where transpose belongs, or the other way round: the right numbers, laid out wrongly."""
    if not pair.same_numbers():
        return None
    for i, j in itertools.combinations(range(pair.b.dim()), 2):
        for source, target in ((pair.b, pair.a), (pair.a, pair.b)):
            swapped = source.transpose(i, j).reshape(-1)
            if pair.equal(swapped, target.reshape(-1)):
                return f"laid out wrongly: axes {i} and {j} were cut with view/reshape where transpose belongs"
    return "the same numbers in another order"


def _somewhere(pair):
    """All is right but one region that has a name."""
    wrong = pair.wrong
    if pair.b.dtype.is_floating_point and bool((pair.b[wrong] == 0).all()):
        return "it differs only where 0 should be: what is masked was not hidden"
    if bool((pair.a[wrong] == 0).all()):
        return "it differs only where it is 0: something was hidden, or left out, that belongs there"
    if wrong.dim() >= 2:
        ones = torch.ones_like(wrong)
        for region, name in (
            (ones.triu(1), "above the diagonal: in the future"),
            (ones.tril(-1), "below the diagonal: in the past"),
            (ones.triu() & ones.tril(), "on the diagonal: each place with itself"),
        ):
            if bool((~wrong | region).all()):
                return f"it differs only {name}"
    for axis, size in enumerate(wrong.shape):
        others = [one for one in range(wrong.dim()) if one != axis]
        hit = (wrong.any(dim=others) if others else wrong).nonzero().flatten().tolist()
        if size > 1 and len(hit) == 1:
            place = {0: "first", size - 1: "last"}.get(hit[0], f"index {hit[0]}")
            return f"it differs only at one index of axis {axis}: {place}"
    return None


def _signs(pair):
    if pair.equal(pair.a.abs(), pair.b.abs()):
        return "the sizes are right, the signs of some entries are not"


def _rounded(pair):
    far = (pair.a - pair.b).abs() / pair.b.abs().clamp(min=pair.atol)
    if bool(far.isfinite().all()) and far.max().item() < 5e-3:
        return f"rounding: off by {far.max().item():.1g} of the value at most; computed in a coarser type?"


REASONS = (
    _inverted,
    _not_a_number,
    _infinite,
    _permuted,
    _sign,
    _factor,
    _rounded,
    _offset,
    _shifted,
    _flipped,
    _other_axis,
    _logarithm,
    _somewhere,
    _relaid,
    _signs,
)
