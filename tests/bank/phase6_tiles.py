"""tiled_attention: wrong solutions and unusual right ones."""

import math

import torch

from tests.bank import right, wrong

INFINITY = float("inf")


class Tiled:
    """Right as it stands; each wrong solution changes one step."""

    def __call__(self, q, k, v, q_block, kv_block, causal=False):
        self.refuse(q_block, kv_block)
        outs, totals = [], []
        for top in range(0, q.shape[-2], q_block):
            rows = self.scaled(q)[..., top : top + q_block, :]
            out, total = self.strip(rows, k, v, kv_block, self.last_keys(rows, top, q, k) if causal else None)
            outs.append(out)
            totals.append(total)
        return torch.cat(outs, -2), torch.cat(totals, -1)

    def refuse(self, q_block, kv_block):
        if q_block < 1 or kv_block < 1:
            raise ValueError("a block holds at least one row")

    def scaled(self, q):
        return q / math.sqrt(q.shape[-1])

    def last_keys(self, rows, top, q, k):
        """The last key that each query of a strip may see."""
        return torch.arange(top, top + rows.shape[-2])[:, None] + k.shape[-2] - q.shape[-2]

    def starts(self, kv_len, kv_block):
        return range(0, kv_len, kv_block)

    def skip(self, left, last):
        return last is not None and left > last.max()

    def strip(self, rows, k, v, kv_block, last):
        best = rows.new_full((*rows.shape[:-1], 1), -INFINITY)
        total, out = torch.zeros_like(best), rows.new_zeros(*rows.shape[:-1], v.shape[-1])
        for left in self.starts(k.shape[-2], kv_block):
            if self.skip(left, last):
                break
            keys = k[..., left : left + kv_block, :]
            scores = rows @ keys.mT
            if last is not None:
                scores = scores.masked_fill(torch.arange(left, left + keys.shape[-2]) > last, -INFINITY)
            new = torch.maximum(best, scores.detach().amax(-1, keepdim=True))
            best, total, out = self.update(best, new, total, out, scores, v[..., left : left + kv_block, :])
        return self.finish(best, total, out)

    def update(self, best, new, total, out, scores, values):
        safe = new.masked_fill(new == -INFINITY, 0.0)
        shrink, p = (best - safe).exp(), (scores - safe).exp()
        return new, total * shrink + p.sum(-1, keepdim=True), out * shrink + p @ values

    def finish(self, best, total, out):
        return out / total.masked_fill(total == 0, 1.0), (best + total.log())[..., 0]


def tiled(name, says=None):
    """Register the function that the decorated class makes."""

    def register(cls):
        def attend(q, k, v, q_block, kv_block, causal=False):
            return cls()(q, k, v, q_block, kv_block, causal)

        attend.__name__ = cls.__name__
        (wrong("tiled_attention", says=says) if name == "wrong" else right("tiled_attention", why=says))(attend)
        return cls

    return register


@tiled("wrong", "rescale what came before")
class OutputNotRescaled(Tiled):
    def update(self, best, new, total, out, scores, values):
        safe = new.masked_fill(new == -INFINITY, 0.0)
        shrink, p = (best - safe).exp(), (scores - safe).exp()
        return new, total * shrink + p.sum(-1, keepdim=True), out + p @ values


@tiled("wrong", "rescale what came before")
class NothingRescaled(Tiled):
    def update(self, best, new, total, out, scores, values):
        p = (scores - new.masked_fill(new == -INFINITY, 0.0)).exp()
        return new, total + p.sum(-1, keepdim=True), out + p @ values


@tiled("wrong", "scores were not divided by √d_head")
class Unscaled(Tiled):
    def scaled(self, q):
        return q


@tiled("wrong", "align the last query with the last key")
class FromTheStart(Tiled):
    def last_keys(self, rows, top, q, k):
        return torch.arange(top, top + rows.shape[-2])[:, None]


@tiled("wrong", "a query sees its own key")
class StrictlyBefore(Tiled):
    def last_keys(self, rows, top, q, k):
        return super().last_keys(rows, top, q, k) - 1


@tiled("wrong", "causal was ignored")
class NotCausal(Tiled):
    def __call__(self, q, k, v, q_block, kv_block, causal=False):
        return super().__call__(q, k, v, q_block, kv_block)


@tiled("wrong", "skip a tile that lies in the future: NaN times 0 is NaN")
class NothingSkipped(Tiled):
    def skip(self, left, last):
        return False


@tiled("wrong", "the last, shorter tile was left out")
class WholeTilesOnly(Tiled):
    def starts(self, kv_len, kv_block):
        return range(0, max(kv_len // kv_block, 1) * kv_block, kv_block)


@tiled("wrong", "logsumexp is maximum + log(sum)")
class LogOfTheSum(Tiled):
    def finish(self, best, total, out):
        return super().finish(best, total, out)[0], total.log()[..., 0]


@tiled("wrong", "logsumexp is maximum + log(sum)")
class MaximumOnly(Tiled):
    def finish(self, best, total, out):
        return super().finish(best, total, out)[0], best[..., 0]


@tiled("wrong", "that is plain attention")
class WholeTable(Tiled):
    def __call__(self, q, k, v, q_block, kv_block, causal=False):
        self.refuse(q_block, kv_block)
        return super().__call__(q, k, v, q.shape[-2], k.shape[-2], causal)


@tiled("wrong")
class StripsOfKeys(Tiled):
    """Tiles of queries only."""

    def __call__(self, q, k, v, q_block, kv_block, causal=False):
        self.refuse(q_block, kv_block)
        return super().__call__(q, k, v, q_block, k.shape[-2], causal)


@tiled("wrong")
class StripsOfQueries(Tiled):
    """Tiles of keys only."""

    def __call__(self, q, k, v, q_block, kv_block, causal=False):
        self.refuse(q_block, kv_block)
        return super().__call__(q, k, v, q.shape[-2], kv_block, causal)


@tiled("wrong")
class NaNForNothing(Tiled):
    def update(self, best, new, total, out, scores, values):
        shrink, p = (best - new).exp(), (scores - new).exp()
        return new, total * shrink + p.sum(-1, keepdim=True), out * shrink + p @ values

    def finish(self, best, total, out):
        return out / total, (best + total.log())[..., 0]


@tiled("wrong")
class NotDividedAtTheEnd(Tiled):
    def finish(self, best, total, out):
        return out, (best + total.log())[..., 0]


@tiled("wrong")
class NoRefusal(Tiled):
    def refuse(self, q_block, kv_block):
        pass

    def __call__(self, q, k, v, q_block, kv_block, causal=False):
        return super().__call__(q, k, v, max(q_block, 1), max(kv_block, 1), causal)


@tiled("wrong")
class ScoresCutOff(Tiled):
    def scaled(self, q):
        return super().scaled(q.detach())


@tiled("right", "a maximum, a sum and an output per query")
class Plain(Tiled):
    pass


@tiled("right", "the maximum is differentiated, too")
class MaximumWithGradient(Tiled):
    def update(self, best, new, total, out, scores, values):
        new = torch.maximum(best, scores.amax(-1, keepdim=True))
        return super().update(best, new, total, out, scores, values)


@tiled("right", "normalised outputs, joined by their log-sum-exps")
class ByLogSumExp(Tiled):
    def strip(self, rows, k, v, kv_block, last):
        out, total = rows.new_zeros(*rows.shape[:-1], v.shape[-1]), rows.new_full(rows.shape[:-1], -INFINITY)
        for left in range(0, k.shape[-2], kv_block):
            if last is not None and left > last.max():
                break
            keys, values = (part[..., left : left + kv_block, :] for part in (k, v))
            scores = rows @ keys.mT
            if last is not None:
                later = torch.arange(left, left + keys.shape[-2]) > last
                scores = scores.masked_fill(later, -1e30)
            more = scores.logsumexp(-1)
            more = torch.where(more < -1e29, -INFINITY, more)
            new = torch.logaddexp(total, more)
            seen = new > -INFINITY
            safe = torch.where(seen, new, 0.0)
            p = (scores - safe[..., None]).exp()
            out = out * (total - safe).exp()[..., None] + p @ values
            total = new
        return out, total


@tiled("right", "tiles of queries from the last to the first")
class FromTheBottom(Tiled):
    def __call__(self, q, k, v, q_block, kv_block, causal=False):
        self.refuse(q_block, kv_block)
        parts = []
        for top in reversed(range(0, q.shape[-2], q_block)):
            rows = self.scaled(q)[..., top : top + q_block, :]
            parts.insert(0, self.strip(rows, k, v, kv_block, self.last_keys(rows, top, q, k) if causal else None))
        outs, totals = zip(*parts, strict=True)
        return torch.cat(outs, -2), torch.cat(totals, -1)
