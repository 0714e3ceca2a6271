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


def plain(seen=past, scale=0.5, total=lambda scores: scores.logsumexp(-1), kept=lambda kv_len, block: kv_len):
    """A wrong twin with the whole table of scores."""

    def faulty(q, k, v, q_block, kv_block, causal=False):
        refuse(q_block, kv_block)
        n_keys = kept(k.shape[-2], kv_block)
        k, v = k[..., :n_keys, :], v[..., :n_keys, :]
        scores = q @ k.mT / q.shape[-1] ** scale
        visible = seen(*scores.shape[-2:]) if causal else torch.ones(scores.shape[-2:], dtype=torch.bool)
        out = oracle.masked_softmax(scores, visible.expand(scores.shape)) @ v
        return out, total(scores.masked_fill(~visible, -torch.inf))

    return faulty


def tiles(q, k, q_block, kv_block, causal):
    """(rows, keys, scores, hidden) of every tile, future ones included."""
    q_len, kv_len = q.shape[-2], k.shape[-2]
    for top in range(0, q_len, q_block):
        for left in range(0, kv_len, kv_block):
            rows, keys = slice(top, min(top + q_block, q_len)), slice(left, min(left + kv_block, kv_len))
            scores = q[..., rows, :] @ k[..., keys, :].mT / q.shape[-1] ** 0.5
            yield rows, keys, scores, ~past(q_len, kv_len)[rows, keys] if causal else torch.tensor(False)


def running(rescale_out=True, rescale_sum=True):
    """A wrong twin with a running maximum, sum and output per query."""

    def faulty(q, k, v, q_block, kv_block, causal=False):
        refuse(q_block, kv_block)
        best = [torch.full(q.shape[:-2], -1e30, dtype=q.dtype) for _ in range(q.shape[-2])]
        sums, outs = [0.0] * q.shape[-2], [0.0] * q.shape[-2]
        for rows, keys, scores, hidden in tiles(q, k, q_block, kv_block, causal):
            scores = scores.masked_fill(hidden, -torch.inf)
            for place, row in enumerate(range(rows.start, rows.stop)):
                new = torch.maximum(best[row], scores[..., place, :].amax(-1))
                shrink, p = (best[row] - new).exp(), (scores[..., place, :] - new[..., None]).exp()
                sums[row] = sums[row] * (shrink if rescale_sum else 1) + p.sum(-1)
                part = (p[..., None, :] @ v[..., keys, :])[..., 0, :]
                outs[row] = outs[row] * (shrink[..., None] if rescale_out else 1) + part
                best[row] = new
        out = torch.stack([o / s[..., None] for o, s in zip(outs, sums, strict=True)], -2)
        return out, torch.stack([b + s.log() for b, s in zip(best, sums, strict=True)], -1)

    return faulty


def each_by_itself(q, k, v, q_block, kv_block, causal=False):
    """The mean of the tiles' own outputs."""
    refuse(q_block, kv_block)
    n_tiles = -(-k.shape[-2] // kv_block)
    out = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=q.dtype)
    for rows, keys, scores, hidden in tiles(q, k, q_block, kv_block, causal):
        part = oracle.masked_softmax(scores, (~hidden).expand(scores.shape)) @ v[..., keys, :]
        out = torch.cat([out[..., : rows.start, :], out[..., rows, :] + part, out[..., rows.stop :, :]], -2)
    return out / n_tiles, oracle.tiled_attention(q, k, v, q_block, kv_block, causal)[1]


def infinite(q, k, v, q_block, kv_block, causal=False):
    """Exponentials without their maximum taken off: one row of −∞, or one of large scores, is NaN."""
    refuse(q_block, kv_block)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(~past(*scores.shape[-2:]), -torch.inf)
    exp = scores.exp()
    return exp @ v / exp.sum(-1, keepdim=True), exp.sum(-1).log()


def times_zero(q, k, v, q_block, kv_block, causal=False):
    """Right but for NaN: every tile is multiplied, the future ones by 0."""
    refuse(q_block, kv_block)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    seen = past(*scores.shape[-2:]) if causal else torch.ones(scores.shape[-2:], dtype=torch.bool)
    low = scores.masked_fill(~seen, -1e30)
    weights = oracle.masked_softmax(scores, seen.expand(scores.shape))
    return weights @ v, torch.where(seen.any(-1), low.logsumexp(-1), -torch.inf)


def maximum(scores):
    return scores.amax(-1)


def sum_of_exponentials(scores):
    return scores.exp().sum(-1)


def log_of_the_rest(scores):
    """Without the maximum put back."""
    return (scores - scores.amax(-1, keepdim=True).nan_to_num(neginf=0.0)).exp().sum(-1).log()


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
    hint="for each tile of queries go over the tiles of keys; keep a maximum, a sum and an output per query, and rescale.",
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
        case("one query, seven keys, causal", dict(q=(2, 1, 4), k=(2, 7, 4), v=(2, 7, 6), q_block=2, kv_block=3, causal=True)),
        case("one key", dict(q=(2, 5, 4), k=(2, 1, 4), v=(2, 1, 6), q_block=2, kv_block=3)),
        case("all scores below -700", FAR | dict(q_block=2, kv_block=3)),
        case("all scores below -700, causal", FAR | dict(q_block=2, kv_block=3, causal=True)),
        case(
            "values that are NaN in the last tile",
            EIGHT | dict(v=broken_end(3, 8, 6, last=2), q_block=2, kv_block=2, causal=True),
            grad=False,
        ),
        case(
            "queries with nothing to see",
            dict(q=(2, 7, 4), k=(2, 3, 4), v=(2, 3, 6), q_block=3, kv_block=2, causal=True),
            kind="edge",
            grad=False,
        ),
        refusal("q_block 0", EIGHT | dict(q_block=0, kv_block=2)),
        refusal("kv_block 0", EIGHT | dict(q_block=2, kv_block=0)),
        refusal("kv_block -1", EIGHT | dict(q_block=2, kv_block=-1)),
    ),
    mistakes={
        "rescale what came before": Replays(
            running(rescale_out=False), running(rescale_sum=False), running(rescale_out=False, rescale_sum=False)
        ),
        "each tile was normalised by itself": each_by_itself,
        "scores were not divided by √d_head": plain(scale=0),
        "causal was ignored": plain(seen=lambda q_len, kv_len: torch.ones(q_len, kv_len, dtype=torch.bool)),
        "align the last query with the last key": plain(seen=lambda q_len, kv_len: past(q_len, kv_len, q_len - kv_len)),
        "a query sees its own key": plain(seen=lambda q_len, kv_len: past(q_len, kv_len, -1)),
        "the last, shorter tile was left out": plain(kept=lambda kv_len, block: max(kv_len // block, 1) * block),
        "logsumexp is maximum + log(sum)": Replays(
            plain(total=maximum), plain(total=sum_of_exponentials), plain(total=log_of_the_rest)
        ),
        "take the maximum off before exp": infinite,
        "skip a tile that lies in the future: NaN times 0 is NaN": Spotted(rules.nan_too_far, times_zero),
        "that is plain attention": Spotted(rules.whole_table, times_zero),
    },
)
