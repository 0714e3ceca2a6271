"""attention_cost and streaming_attention: what the score table costs, and how to do without it."""

import torch

from utils import oracle
from utils.checks.draw import given, mask, normal
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase2 import PHASE, rules
from utils.checks.phase2.dot_product import FAR_BELOW


def sizes(*values):
    names = ("batch", "n_heads", "q_len", "kv_len", "d_head", "bytes_per_element")
    return dict(zip(names, values, strict=True))


def counted(flops, score_bytes):
    """A wrong twin from two formulas over b, h, q, k, d and the bytes of a number."""

    def wrong(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
        numbers = (batch, n_heads, q_len, kv_len, d_head)
        return flops(*numbers), score_bytes(*numbers, bytes_per_element)

    return wrong


def right_flops(b, h, q, k, d):
    return 4 * b * h * q * k * d


def right_bytes(b, h, q, k, d, size):
    return b * h * q * k * size


register(
    expected=oracle.attention_cost,
    phase=PHASE,
    section="2.12",
    hint="two products of the size of the score table times d_head; a multiply-add is two operations.",
    grad=False,
    cases=(
        case("small sizes", sizes(3, 5, 7, 11, 13, 4)),
        case("one step of decoding", sizes(3, 4, 1, 9, 16, 2)),
        case("a long sentence", sizes(1, 32, 4096, 8192, 128, 2)),
        case("odd factors, a product above 2^58", sizes(1023, 129, 8191, 65537, 255, 1)),
        case("one of everything", sizes(1, 1, 1, 1, 1, 1)),
    ),
    mistakes={
        "a multiply-add is two operations": counted(lambda b, h, q, k, d: 2 * b * h * q * k * d, right_bytes),
        "keys have their own length": Replays(
            counted(lambda b, h, q, k, d: 4 * b * h * q * q * d, lambda b, h, q, k, d, size: b * h * q * q * size),
            counted(lambda b, h, q, k, d: 4 * b * h * k * k * d, lambda b, h, q, k, d, size: b * h * k * k * size),
            counted(lambda b, h, q, k, d: 4 * b * h * q * q * d, right_bytes),
            counted(lambda b, h, q, k, d: 4 * b * h * k * k * d, right_bytes),
        ),
        "every head has its own score table": counted(
            lambda b, h, q, k, d: 4 * b * q * k * d, lambda b, h, q, k, d, size: b * q * k * size
        ),
        "a head is d_head wide: do not multiply by n_heads again": counted(
            lambda b, h, q, k, d: 4 * b * h * q * k * d * h, right_bytes
        ),
        "the batch is missing from score_bytes": counted(right_flops, lambda b, h, q, k, d, size: h * q * k * size),
        "bytes_per_element was ignored": counted(right_flops, lambda b, h, q, k, d, size: b * h * q * k),
        "return exact ints": counted(lambda *n: float(right_flops(*n)), lambda *n: float(right_bytes(*n))),
    },
)


def growing(*shape):
    """Keys of which the later score higher, so that every block raises the maximum."""

    def draw(generator, others):
        k = normal(*shape).draw(generator, others)
        k[..., 0] += torch.arange(shape[-2]) * 0.6
        return k

    return given(draw)


def first_block_hidden(*shape):
    """A mask that hides keys 0 and 1 from query 2."""

    def draw(generator, others):
        table = mask(*shape).draw(generator, others)
        table[..., 2, :2], table[..., 2, 2:4] = False, True
        return table

    return given(draw)


def by_blocks(k, v, attn_mask, block_size, q):
    """(keys, values, mask) of each block."""
    full = None if attn_mask is None else attn_mask.expand(*q.shape[:-1], k.shape[-2])
    for start in range(0, k.shape[-2], block_size):
        part = slice(start, start + block_size)
        yield k[..., part, :], v[..., part, :], None if full is None else full[..., part]


def mean_of_blocks(q, k, v, block_size, attn_mask=None):
    parts = [oracle.sdpa(q, *block) for block in by_blocks(k, v, attn_mask, block_size, q)]
    return sum(parts) / len(parts)


def without_rescaling(shrink_total, shrink_out):
    """When a block raises the maximum, the running sum or the running output is kept as it was."""

    def wrong(q, k, v, block_size, attn_mask=None):
        top, total, out = q.new_full((), -1e30), 0.0, 0.0
        for keys, values, visible in by_blocks(k, v, attn_mask, block_size, q):
            scores = q @ keys.mT / q.shape[-1] ** 0.5
            if visible is not None:
                scores = scores.masked_fill(~visible, -1e30)
            raised = torch.maximum(top, scores.amax(-1, keepdim=True))
            terms, shrink = (scores - raised).exp(), (top - raised).exp()
            total = total * (shrink if shrink_total else 1) + terms.sum(-1, keepdim=True)
            out = out * (shrink if shrink_out else 1) + terms @ values
            top = raised
        return out / total

    return wrong


def with_minus_infinity(q, k, v, block_size, attn_mask=None):
    """Right, but that the maximum starts at -inf: a first block that is hidden whole gives NaN."""
    top, total, out = q.new_full((*q.shape[:-1], 1), float("-inf")), 0.0, 0.0
    for keys, values, visible in by_blocks(k, v, attn_mask, block_size, q):
        scores = q @ keys.mT / q.shape[-1] ** 0.5
        scores = scores if visible is None else scores.masked_fill(~visible, float("-inf"))
        raised = torch.maximum(top, scores.amax(-1, keepdim=True))
        terms, shrink = (scores - raised).exp(), (top - raised).exp()
        total, out, top = total * shrink + terms.sum(-1, keepdim=True), out * shrink + terms @ values, raised
    return out / total


Q, K, V = (2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)
ALL = dict(q=Q, k=K, v=V)
# watched for a table of 11 × 19, which no other tensor resembles, not even with a column more
LONG = dict(q=(2, 3, 11, 4), k=(2, 3, 19, 4), v=(2, 3, 19, 6))

register(
    expected=oracle.streaming_attention,
    phase=PHASE,
    section="2.13",
    hint="keep a running maximum, sum and output per query; shrink both when a block raises the maximum.",
    properties=(rules.score_table,),
    cases=(
        case("blocks of 2", LONG | dict(block_size=2), watch=True),
        case("blocks of 3", LONG | dict(block_size=3), watch=True),
        case("blocks of 9, a mask", LONG | dict(block_size=9, attn_mask=mask(2, 1, 11, 19)), watch=True),
        case("blocks of 3 for 7 keys", ALL | dict(block_size=3)),
        case("blocks of 1", ALL | dict(block_size=1)),
        case("one block of 9", ALL | dict(block_size=9)),
        case("no leading axes", dict(q=(5, 3), k=(7, 3), v=(7, 6), block_size=2)),
        case(
            "largest scores last",
            dict(
                q=given(lambda g, o: normal(2, 5, 4, shift=0.6).draw(g, o)),
                k=growing(2, 7, 4),
                v=(2, 7, 6),
                block_size=2,
            ),
        ),
        case("a mask per head", ALL | dict(block_size=3, attn_mask=mask(2, 3, 5, 7))),
        case("a mask per head, no batch axis", ALL | dict(block_size=3, attn_mask=mask(3, 5, 7))),
        case("all scores near -60", FAR_BELOW | dict(block_size=3, attn_mask=mask(5, 7))),
        case("blocks of 1, a mask per head", ALL | dict(block_size=1, attn_mask=mask(2, 3, 5, 7))),
        case("one mask for all", ALL | dict(block_size=2, attn_mask=mask(5, 7))),
        case("a mask per batch row", ALL | dict(block_size=2, attn_mask=mask(2, 1, 1, 7))),
        case("the first block hidden for a row", ALL | dict(block_size=2, attn_mask=first_block_hidden(5, 7))),
        case(
            "all scores below -700",
            dict(
                q=normal(2, 5, 4, std=0.02, shift=20), k=normal(2, 7, 4, std=0.02, shift=-20), v=(2, 7, 6), block_size=3
            ),
        ),
        case("one key", dict(q=(2, 5, 4), k=(2, 1, 4), v=(2, 1, 6), block_size=2)),
        case(
            "a row with nothing to see",
            ALL | dict(block_size=3, attn_mask=mask(2, 3, 5, 7, empty=[(0, 0, 2), (1, 2, 4)])),
            kind="edge",
        ),
        case(
            "whole rows hidden by a mask of width 1", ALL | dict(block_size=2, attn_mask=mask(2, 1, 5, 1)), kind="edge"
        ),
        refusal("block_size 0", ALL | dict(block_size=0)),
        refusal("block_size -1", ALL | dict(block_size=-1)),
    ),
    mistakes={
        "rescale the accumulator": Replays(
            without_rescaling(False, False), without_rescaling(True, False), without_rescaling(False, True)
        ),
        "−∞ − −∞ is NaN: a block may hide every key": Spotted(rules.nan_somewhere, with_minus_infinity),
        "each block was normalised by itself": mean_of_blocks,
        "that is plain attention": lambda q, k, v, block_size, attn_mask=None: _plain(q, k, v, block_size, attn_mask),
        "the mask was ignored": lambda q, k, v, block_size, attn_mask=None: oracle.streaming_attention(
            q, k, v, block_size
        ),
        "the last, shorter block was left out": lambda q, k, v, block_size, attn_mask=None: _whole_blocks(
            q, k, v, block_size, attn_mask
        ),
        "True means may attend": lambda q, k, v, block_size, attn_mask=None: oracle.streaming_attention(
            q, k, v, block_size, None if attn_mask is None else ~attn_mask
        ),
        "scores were not divided by √d_head": lambda q, k, v, block_size, attn_mask=None: oracle.streaming_attention(
            q * q.shape[-1] ** 0.5, k, v, block_size, attn_mask
        ),
    },
)


def _plain(q, k, v, block_size, attn_mask):
    if block_size < 1:
        raise ValueError("block_size must be at least 1")
    return oracle.masked_softmax(q @ k.mT / q.shape[-1] ** 0.5, attn_mask) @ v


def _whole_blocks(q, k, v, block_size, attn_mask):
    kept = max(k.shape[-2] // block_size, 1) * block_size
    seen = None if attn_mask is None or attn_mask.shape[-1] == 1 else attn_mask[..., :kept]
    return oracle.sdpa(q, k[..., :kept, :], v[..., :kept, :], seen)
