"""pack_int4 and unpack_int4: two numbers in a byte."""

import torch
import torch.nn.functional as F

from utils import oracle
from utils.checks.draw import given
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase6 import PHASE, rules_systems
from utils.checks.phase6.quantization import integers

ALL = torch.arange(-8, 8, dtype=torch.int8)


def pairs(generator=None, others=None):
    """Every value in the low half and every value in the high half."""
    return torch.stack([ALL, ALL.roll(5)], -1).flatten()


def nibbles(*shape):
    return integers(*shape, low=-8, high=7)


def packing(low=0, high=1, mask=15, pad=0, check=True, dtype=torch.uint8, both=lambda a, b: a | (b << 4)):
    def pack_int4(q):
        if check and q.numel() and (int(q.min()) < -8 or int(q.max()) > 7):
            raise ValueError("int4")
        wide = F.pad(q.long(), (0, q.shape[-1] % 2), value=pad)
        parts = wide[..., low::2] & mask, wide[..., high::2] & mask
        return both(*parts).to(dtype)

    return pack_int4


def never_minus_8(q):
    if (q.abs() > 7).any() or (q == -8).any():
        raise ValueError("int4")
    return oracle.pack_int4(q)


def pairs_only(q):
    (q[..., 0::2] + q[..., 1::2]).sum()
    return oracle.pack_int4(q)


def halves(q):
    """The first half of the numbers low, the second half high."""
    wide = F.pad(q.long(), (0, q.shape[-1] % 2)) & 15
    low, high = wide.chunk(2, -1)
    return (low | (high << 4)).to(torch.uint8)


register(
    expected=oracle.pack_int4,
    phase=PHASE,
    section="6.16",
    hint="(q & 15) keeps four bits; even places low, odd places high: low | high << 4, as uint8.",
    grad=False,
    cases=(
        case("7 numbers", dict(q=nibbles(7))),
        case("3 rows of 6", dict(q=nibbles(3, 6))),
        case("three axes, odd", dict(q=nibbles(2, 3, 5))),
        case("all sixteen values in both halves", dict(q=given(pairs))),
        case("one number", dict(q=nibbles(1))),
        refusal("8 is too large", dict(q=torch.tensor([1, 8, -3], dtype=torch.int8))),
        refusal("−9 is too small", dict(q=torch.tensor([[1, 7], [-8, -9]], dtype=torch.int8))),
    ),
    mistakes={
        "even places go into the low half": packing(low=1, high=0),
        "mask to four bits": Replays(
            packing(mask=-1), packing(mask=-1, both=lambda a, b: a + 16 * b), packing(mask=255)
        ),
        "neighbours share a byte": halves,
        "an odd end is padded with 0": Replays(packing(pad=-1), packing(pad=8)),
        "two's complement, not plus 8": packing(both=lambda a, b: ((a + 8) & 15) | (((b + 8) & 15) << 4)),
        "bytes are uint8": Replays(packing(dtype=torch.int8), packing(dtype=torch.int64)),
        "outside −8 to 7 must be refused": packing(check=False),
        "−8 fits: there is no +8": Spotted(rules_systems.fitting_refused, never_minus_8),
        "an odd number: pad before the halves are put together": Spotted(rules_systems.odd_end_failed, pairs_only),
    },
)


def unpacking(low=lambda b: b & 15, high=lambda b: b >> 4, sign=True, order=(0, 1), cut=True, dtype=torch.int8):
    def unpack_int4(packed, n):
        wide = packed.long()
        parts = (low(wide), high(wide))
        found = torch.stack([parts[order[0]], parts[order[1]]], -1).flatten(-2)
        if sign:
            found = torch.where(found > 7, found - 16, found)
        return (found[..., :n] if cut else found).to(dtype)

    return unpack_int4


def side_by_side(packed, n):
    both = torch.cat([packed.long() & 15, packed.long() >> 4], -1)
    return torch.where(both > 7, both - 16, both)[..., :n].to(torch.int8)


def shifted(packed, n):
    both = torch.stack([packed.long() & 15, packed.long() >> 4], -1).flatten(-2)
    return (both - 8)[..., :n].to(torch.int8)


def raw_bytes(*shape):
    return given(lambda generator, others: torch.randint(256, shape, generator=generator, dtype=torch.uint8))


register(
    expected=oracle.unpack_int4,
    phase=PHASE,
    section="6.16",
    hint="low = packed & 15, high = packed >> 4; 8 to 15 stand for −8 to −1; weave them together, cut at n.",
    grad=False,
    cases=(
        case("7 numbers", dict(packed=raw_bytes(4), n=7)),
        case("3 rows of 6", dict(packed=raw_bytes(3, 3), n=6)),
        case("three axes, odd", dict(packed=raw_bytes(2, 3, 3), n=5)),
        case("all 256 bytes", dict(packed=torch.arange(256, dtype=torch.uint8), n=512)),
        case("one number", dict(packed=raw_bytes(1), n=1)),
    ),
    mistakes={
        "the low half comes first": unpacking(order=(1, 0)),
        "8 to 15 stand for negative numbers": unpacking(sign=False),
        "8 is negative, too": lambda packed, n: torch.where(
            unpacking(sign=False)(packed, n) > 8,
            unpacking(sign=False)(packed, n) - 16,
            unpacking(sign=False)(packed, n),
        ),
        "cut the padding off at n": unpacking(cut=False),
        "neighbours share a byte": side_by_side,
        "two's complement, not minus 8": shifted,
        "what is unpacked is int8": Replays(unpacking(dtype=torch.int64), unpacking(dtype=torch.float64)),
    },
)
