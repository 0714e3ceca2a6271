"""tiled_attention: attention that never holds more than one tile of scores."""

import torch

from utils import oracle
from utils.checks.draw import given, normal
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase6 import PHASE
from utils.checks.phase6 import rules_families as rules


def refuse(q_block, kv_block):
    if min(q_block, kv_block) < 1:
        raise ValueError("q_block and kv_block must be at least 1")


def past(q_len, kv_len, shift=0):
    return torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len + shift)


def tiles(q, k, q_block, kv_block):
    """(rows, keys, scores) of every tile, future ones included."""
    q_len, kv_len = q.shape[-2], k.shape[-2]
    for top in range(0, q_len, q_block):
        for left in range(0, kv_len, kv_block):
            rows, keys = slice(top, min(top + q_block, q_len)), slice(left, min(left + kv_block, kv_len))
            yield rows, keys, q[..., rows, :] @ k[..., keys, :].mT / q.shape[-1] ** 0.5


def everything(q_len, kv_len):
    return torch.ones(q_len, kv_len, dtype=torch.bool)


def wrong(seen=past, skip=True, scale=1.0, whole_only=False, last=lambda total, best: total):
    """A wrong twin in its parts, tile by tile; as it stands it is right."""

    def faulty(q, k, v, q_block, kv_block, causal=False):
        refuse(q_block, kv_block)
        visible = (seen if causal else everything)(q.shape[-2], k.shape[-2])
        strips = {}
        for rows, keys, scores in tiles(q, k, q_block, kv_block):
            parts, look = strips.setdefault(rows.start, []), visible[rows, keys].expand(scores.shape)
            cut = whole_only and keys.start and keys.stop - keys.start < kv_block
            if parts and (cut or (skip and not look.any())):
                continue
            low = torch.where(look, scores * scale, -1e30)
            out = oracle.masked_softmax(scores * scale, look) @ v[..., keys, :]
            parts.append((out, low.logsumexp(-1), low.amax(-1)))
        strips = [joined(parts, last) for parts in strips.values()]
        return torch.cat([out for out, _ in strips], -2), torch.cat([total for _, total in strips], -1)

    return faulty


def joined(parts, last):
    """A strip from its tiles: weighed by their shares of the softmax."""
    outs, totals, tops = (torch.stack(one) for one in zip(*parts, strict=True))
    some = totals > -1e29
    out = (oracle.masked_softmax(totals, some, dim=0)[..., None] * outs).sum(0)
    return out, last(torch.where(some.any(0), totals.logsumexp(0), -torch.inf), tops.amax(0))


def running(rescale_out=True, rescale_sum=True):
    """A wrong twin with a running maximum, sum and output per query."""

    def faulty(q, k, v, q_block, kv_block, causal=False):
        refuse(q_block, kv_block)
        visible = (past if causal else everything)(q.shape[-2], k.shape[-2])
        strips = {}
        for rows, keys, scores in tiles(q, k, q_block, kv_block):
            best, total, out = strips.setdefault(rows.start, (torch.full_like(scores[..., :1], -1e30), 0.0, 0.0))
            if not visible[rows, keys].any():
                continue
            scores = scores.masked_fill(~visible[rows, keys], -torch.inf)
            new = torch.maximum(best, scores.amax(-1, keepdim=True))
            shrink, p = (best - new).exp(), (scores - new).exp()
            total = total * (shrink if rescale_sum else 1) + p.sum(-1, keepdim=True)
            out = out * (shrink if rescale_out else 1) + p @ v[..., keys, :]
            strips[rows.start] = new, total, out
        parts = [(out / total, (best + total.log())[..., 0]) for best, total, out in strips.values()]
        return torch.cat([out for out, _ in parts], -2), torch.cat([total for _, total in parts], -1)

    return faulty


def each_by_itself(q, k, v, q_block, kv_block, causal=False):
    """The mean of the tiles' own outputs."""
    refuse(q_block, kv_block)
    visible = (past if causal else everything)(q.shape[-2], k.shape[-2])
    strips = {}
    for rows, keys, scores in tiles(q, k, q_block, kv_block):
        if visible[rows, keys].any():
            look = visible[rows, keys].expand(scores.shape)
            strips.setdefault(rows.start, []).append(oracle.masked_softmax(scores, look) @ v[..., keys, :])
    outs = [torch.stack(parts).mean(0) for parts in strips.values()]
    return torch.cat(outs, -2), oracle.tiled_attention(q, k, v, q_block, kv_block, causal)[1]


def without_maximum(q, k, v, q_block, kv_block, causal=False):
    """Exponentials of the scores as they are: of scores far below 0 the sum is 0."""
    refuse(q_block, kv_block)
    visible = (past if causal else everything)(q.shape[-2], k.shape[-2])
    strips = {}
    for rows, keys, scores in tiles(q, k, q_block, kv_block):
        total, out = strips.setdefault(rows.start, (0.0, 0.0))
        if visible[rows, keys].any():
            p = scores.masked_fill(~visible[rows, keys], -torch.inf).exp()
            strips[rows.start] = total + p.sum(-1, keepdim=True), out + p @ v[..., keys, :]
    parts = [(out / total, total.log()[..., 0]) for total, out in strips.values()]
    return torch.cat([out for out, _ in parts], -2), torch.cat([total for _, total in parts], -1)


def whole_table_besides(q, k, v, q_block, kv_block, causal=False):
    refuse(q_block, kv_block)
    (q @ k.mT).softmax(-1)
    return oracle.tiled_attention(q, k, v, q_block, kv_block, causal)


def low_instead_of_nothing(q, k, v, q_block, kv_block, causal=False):
    out, total = oracle.tiled_attention(q, k, v, q_block, kv_block, causal)
    return out, total.clamp(min=-1e9)


def padded_sum(eps):
    """A sum that should never be 0, relative to the largest."""

    def faulty(q, k, v, q_block, kv_block, causal=False):
        out, total = oracle.tiled_attention(q, k, v, q_block, kv_block, causal)
        best = torch.full_like(total, -torch.inf)
        for place in range(k.shape[-2]):  # key by key: no table of scores
            scores = (q * k[..., place : place + 1, :]).sum(-1) / q.shape[-1] ** 0.5
            seen = past(q.shape[-2], k.shape[-2])[:, place] | (not causal)
            best = torch.maximum(best, scores.masked_fill(~seen, -torch.inf))
        share = (total - best).exp()[..., None]
        return out * (share / (share + eps)), total

    return faulty


def cut_off_total(q, k, v, q_block, kv_block, causal=False):
    out, total = oracle.tiled_attention(q, k, v, q_block, kv_block, causal)
    return out, total.detach()


def far_below(*shape, shift):
    return normal(*shape, std=0.02, shift=shift)


def broken_end(*shape, last):
    """Values of which the last ones are NaN."""

    def draw(generator, others):
        v = normal(*shape).draw(generator, others)
        v[..., -last:, :] = torch.nan
        return v

    return given(draw)


LONG = dict(q=(1, 2, 11, 4), k=(1, 2, 19, 4), v=(1, 2, 19, 6))
EIGHT = dict(q=(3, 8, 4), k=(3, 8, 4), v=(3, 8, 6))
FAR = dict(q=far_below(2, 5, 4, shift=20), k=far_below(2, 7, 4, shift=-20), v=(2, 7, 6))

register(
    expected=oracle.tiled_attention,
    phase=PHASE,
    section="6.10",
    hint="per tile of queries, go over tiles of keys; keep a maximum, a sum and an output per query, and rescale.",
    properties=(rules.in_tiles,),
    cases=(
        case("tiles of 5 × 3", LONG | dict(q_block=5, kv_block=3), watch=True),
        case("tiles of 5 × 3, causal", LONG | dict(q_block=5, kv_block=3, causal=True), watch=True),
        case("tiles of 7 × 7, causal", LONG | dict(q_block=7, kv_block=7, causal=True), watch=True),
        case("tiles of 1 × 1", dict(q=(2, 3, 4), k=(2, 5, 4), v=(2, 5, 6), q_block=1, kv_block=1)),
        case("one tile for all", EIGHT | dict(q_block=50, kv_block=60, causal=True)),
        case("wide tiles", EIGHT | dict(q_block=2, kv_block=8, causal=True)),
        case("tall tiles", EIGHT | dict(q_block=8, kv_block=2, causal=True)),
        case("no leading axes", dict(q=(5, 3), k=(7, 3), v=(7, 6), q_block=2, kv_block=3)),
        case(
            "one query, seven keys, causal",
            dict(q=(2, 1, 4), k=(2, 7, 4), v=(2, 7, 6), q_block=2, kv_block=3, causal=True),
        ),
        case("one key", dict(q=(2, 5, 4), k=(2, 1, 4), v=(2, 1, 6), q_block=2, kv_block=3)),
        case("all scores below -700", FAR | dict(q_block=2, kv_block=3)),
        case("all scores below -700, causal", FAR | dict(q_block=2, kv_block=3, causal=True)),
        case(
            "values that are NaN in the last tile",
            EIGHT | dict(v=broken_end(3, 8, 6, last=2), q_block=2, kv_block=2, causal=True),
            grad=False,
            watch=True,
        ),
        case(
            "queries with nothing to see",
            dict(q=(2, 7, 4), k=(2, 3, 4), v=(2, 3, 6), q_block=3, kv_block=2, causal=True),
            kind="edge",
            grad=False,
        ),
        refusal("q_block 0", EIGHT | dict(q_block=0, kv_block=2)),
        refusal("q_block -1", EIGHT | dict(q_block=-1, kv_block=2)),
        refusal("kv_block 0", EIGHT | dict(q_block=2, kv_block=0)),
        refusal("kv_block -1", EIGHT | dict(q_block=2, kv_block=-1)),
    ),
    mistakes={
        "rescale what came before": Replays(
            running(rescale_out=False), running(rescale_sum=False), running(rescale_out=False, rescale_sum=False)
        ),
        "each tile was normalised by itself": each_by_itself,
        "d_head is the width of queries, not of values": lambda q, k, v, q_block, kv_block, causal=False: (
            oracle.tiled_attention(q * (q.shape[-1] / v.shape[-1]) ** 0.5, k, v, q_block, kv_block, causal)
        ),
        "nothing is added to the sum": Replays(*(padded_sum(eps) for eps in (1e-6, 1e-5, 1e-4))),
        "logsumexp has a gradient, too": cut_off_total,
        "scores were not divided by √d_head": lambda q, k, v, q_block, kv_block, causal=False: oracle.tiled_attention(
            q * q.shape[-1] ** 0.5, k, v, q_block, kv_block, causal
        ),
        "causal was ignored": wrong(seen=everything),
        "align the last query with the last key": wrong(seen=lambda q_len, kv_len: past(q_len, kv_len, q_len - kv_len)),
        "a query sees its own key": wrong(seen=lambda q_len, kv_len: past(q_len, kv_len, -1)),
        "the last, shorter tile was left out": wrong(whole_only=True),
        "logsumexp is maximum + log(sum)": Replays(
            wrong(last=lambda total, best: best),
            wrong(last=lambda total, best: total - best),
            wrong(last=lambda total, best: total.exp()),
        ),
        "take the maximum off before exp": Spotted(rules.nan_far_below, without_maximum),
        "skip a tile that lies in the future: NaN times 0 is NaN": Spotted(rules.nan_too_far, wrong(skip=False)),
        "a query that sees nothing: out 0, logsumexp −∞": Spotted(
            rules.blind_rows, low_instead_of_nothing, certain=True
        ),
        "that is plain attention": Spotted(rules.whole_table, whole_table_besides),
    },
)
