"""Phase 6, systems, by hurried hands: a mean over too much, a sum in place of the slower, what is lost when saved."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.bank import right, wrong
from utils import oracle

# ---------------------------------------------------------------- distillation


def mean(rows, mask):
    return (rows * mask).sum() / mask.sum().clamp(min=1)


def divergence(log_s, log_t):
    return (log_t.exp() * (log_t - log_s)).sum(-1)


def lesson(
    soft_at=lambda T: (T, T), soft=divergence, soft_mean=mean, hard_mean=mean, times=lambda a, T: (a * T**2, 1 - a)
):
    def distillation_loss(student_logits, teacher_logits, targets, temperature, alpha, pad_mask):
        own, others = soft_at(temperature)
        mask, teacher = pad_mask.to(student_logits.dtype), teacher_logits.detach()
        far = soft((student_logits / own).log_softmax(-1), (teacher / others).log_softmax(-1))
        words = targets.clamp(min=0)[..., None]
        hard = -student_logits.log_softmax(-1).gather(-1, words)[..., 0]
        first, second = times(alpha, temperature)
        return first * soft_mean(far, mask) + second * hard_mean(hard, mask)

    return distillation_loss


def kl_div(log_s, other):
    return F.kl_div(log_s, other, reduction="none").sum(-1)


for _name, _says, _ways in [
    ("student_alone", "student and teacher are both softened", dict(soft_at=lambda T: (T, 1))),
    ("teacher_alone", "student and teacher are both softened", dict(soft_at=lambda T: (1, T))),
    ("neither", "student and teacher are both softened", dict(soft_at=lambda T: (1, 1))),
    (
        "all_by_t",
        "T² belongs to the teacher's part alone",
        dict(times=lambda a, T: (a * T**2, (1 - a) * T**2)),
    ),
    ("soft_pads", "pads were counted", dict(soft_mean=lambda rows, mask: rows.mean())),
    ("hard_over_all", "pads were counted", dict(hard_mean=lambda rows, mask: (rows * mask).mean())),
    (
        "batchmean",
        "divide by the kept tokens, not by the sentences",
        dict(soft_mean=lambda rows, mask: (rows * mask).sum() / len(rows)),
    ),
    ("soft_summed", "the mean, not the sum", dict(soft_mean=lambda rows, mask: (rows * mask).sum())),
    (
        "two_logs",
        "kl_div wants the student's log-probabilities and the teacher's probabilities",
        dict(soft=lambda s, t: kl_div(s, t)),
    ),
    (
        "no_log",
        "kl_div wants the student's log-probabilities and the teacher's probabilities",
        dict(soft=lambda s, t: kl_div(s.exp(), t.exp())),
    ),
    (
        "hard_unweighted",
        "both parts have a weight: alpha and 1 − alpha",
        dict(times=lambda a, T: (a * T**2, 1)),
    ),
    (
        "nothing_is_nan",
        "nothing kept gives 0, not NaN",
        dict(
            soft_mean=lambda rows, mask: (rows * mask).sum() / mask.sum(),
            hard_mean=lambda rows, mask: (rows * mask).sum() / mask.sum(),
        ),
    ),
]:
    _loss = lesson(**_ways)
    _loss.__name__ = _name
    wrong("distillation_loss", says=_says)(_loss)
right("distillation_loss", why="all rows, weighed by the mask")(lesson())


@wrong("distillation_loss", says="pad_mask says what counts, not the targets")
def targets_say_it(student_logits, teacher_logits, targets, temperature, alpha, pad_mask):
    soft = lesson()(student_logits, teacher_logits, targets, temperature, 1.0, pad_mask)
    hard = F.cross_entropy(student_logits.flatten(0, 1), targets.flatten(), reduction="sum")
    return alpha * soft + (1 - alpha) * hard / pad_mask.sum().clamp(min=1)


@wrong("distillation_loss", says="a target at a masked place may be −100: take the kept rows first")
def gathers_first(student_logits, teacher_logits, targets, temperature, alpha, pad_mask):
    hard = -student_logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    soft = lesson()(student_logits, teacher_logits, targets, temperature, 1.0, pad_mask)
    return alpha * soft + (1 - alpha) * mean(hard, pad_mask.to(hard.dtype))


class _Passes(nn.Module):
    def __init__(self, block, n_layers):
        super().__init__()
        self.block, self.n_layers = block, n_layers


@wrong("SharedStack", says="the block has a residual of its own")
class ResidualAgain(_Passes):
    def forward(self, x, attn_mask=None):
        for _ in range(self.n_layers):
            x = x + self.block(x, attn_mask=attn_mask)
        return x


@wrong("SharedStack", says="a second call makes as many passes: count in a variable of your own")
class CountsDown(_Passes):
    def forward(self, x, attn_mask=None):
        while self.n_layers:
            x = self.block(x, attn_mask=attn_mask)
            self.n_layers -= 1
        return x


@right("SharedStack", why="calls itself, one pass less")
class Recursive(_Passes):
    def forward(self, x, attn_mask=None, left=None):
        left = self.n_layers if left is None else left
        return self(self.block(x, attn_mask=attn_mask), attn_mask, left - 1) if left else x


# ---------------------------------------------------------------- bytes


def whole_numbers(w, bits, axis=None, told=lambda scale: scale, chosen=lambda axis: axis):
    if bits not in range(2, 9):
        raise ValueError("bits")
    axis, dims = chosen(axis), range(w.dim())
    others = [dim for dim in dims if axis is None or dim != axis % w.dim()]
    size = w.abs().amax(others, keepdim=axis is not None) if others else w.abs()
    scale = size / (2 ** (bits - 1) - 1)
    scale = scale.masked_fill(scale == 0, 1.0)
    return (w / scale).round().to(torch.int8), told(scale)


@wrong("quantize", says="w ≈ q · scale: the scale is one step, not how many")
def steps_in_one(w, bits, axis=None):
    return whole_numbers(w, bits, axis, told=lambda scale: 1 / scale)


@wrong("quantize", says="axis 0 is an axis, too: `if axis is not None`")
def no_axis_0(w, bits, axis=None):
    return whole_numbers(w, bits, axis, chosen=lambda axis: axis or None)


@wrong("dequantize", says="the result has the dtype of scale")
def by_way_of_float32(q, scale):
    return q.float() * scale


@wrong("dequantize", says="the result has the dtype of scale")
def usual_dtype(q, scale):
    return q.to(torch.get_default_dtype()) * scale


class _Reduced(nn.Module):
    def __init__(self, linear, bits=8):
        super().__init__()
        q, scale = whole_numbers(linear.weight.detach(), bits, 0)
        self.keep(q, scale, None if linear.bias is None else linear.bias.detach().clone())

    def keep(self, q, scale, bias, **options):
        for name, tensor in (("q", q), ("scale", scale), ("bias", bias)):
            self.register_buffer(name, tensor, **options)

    def forward(self, x):
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return F.linear(x, self.q.to(x.dtype) * self.scale.reshape(-1, 1).to(x.dtype), bias)


@wrong("QuantLinear", says="register_buffer, under these three names")
class PlainAttributes(_Reduced):
    def keep(self, q, scale, bias):
        self.q, self.scale, self.bias = q, scale, bias


@wrong("QuantLinear", says="register_buffer, under these three names")
class NotSaved(_Reduced):
    def keep(self, q, scale, bias):
        super().keep(q, scale, bias, persistent=False)


@wrong("QuantLinear", says="register_buffer, under these three names")
class FlatScale(_Reduced):
    def keep(self, q, scale, bias):
        super().keep(q, scale.flatten(), bias)


right("QuantLinear", why="buffers made in a loop")(_Reduced)


@wrong("pack_int4", says="−8 fits: there is no +8")
def refuses_minus_8(q):
    if (q < -7).any() or (q > 7).any():
        raise ValueError("int4")
    wide = F.pad(q.long(), (0, q.shape[-1] % 2)) & 15
    return (wide[..., 0::2] | wide[..., 1::2] << 4).to(torch.uint8)


@wrong("pack_int4", says="an odd number: pad before the halves are put together")
def pairs_alone(q):
    if q.min() < -8 or q.max() > 7:
        raise ValueError("int4")
    wide = q.long() & 15
    return (wide[..., 0::2] | wide[..., 1::2] << 4).to(torch.uint8)


@right("unpack_int4", why="signed shifts spread the sign")
def by_signed_shifts(packed, n):
    low, high = (packed << 4).view(torch.int8) >> 4, packed.view(torch.int8) >> 4
    return torch.stack([low, high], -1).flatten(-2)[..., :n]


# ---------------------------------------------------------------- windows and caches


def seen(q_len, kv_len, window, kind=torch.bool):
    back = torch.arange(kv_len - q_len, kv_len)[:, None] - torch.arange(kv_len)
    return ((back >= 0) & (back < window)).to(kind)


@wrong("sliding_window_mask", says="a window below 1 must be refused")
def at_least_1(q_len, kv_len, window):
    return seen(q_len, kv_len, max(window, 1))


@wrong("sliding_window_mask", says="masks are bool")
def ones_and_zeros(q_len, kv_len, window):
    if window < 1:
        raise ValueError("window")
    return seen(q_len, kv_len, window, torch.int64)


class _Rolling:
    def __init__(self, window, n_sinks=0):
        if window < 1 or n_sinks < 0:
            raise ValueError("window")
        self.window, self.n_sinks, self.length, self.kept = window, n_sinks, 0, []

    def append(self, k, v):
        for place in range(k.shape[2]):
            self.kept.append((self.length, k[:, :, place].clone(), v[:, :, place].clone()))
            self.length += 1
            border = self.length - self.window
            self.kept = [one for one in self.kept if one[0] < self.n_sinks or one[0] >= border]
        places, keys, values = zip(*self.kept, strict=True)
        return torch.stack(keys, 2), torch.stack(values, 2), self.told(list(places))

    told = staticmethod(torch.tensor)

    @property
    def size(self):
        return len(self.kept)


right("RollingKVCache", why="token by token, in a list")(_Rolling)
wrong("RollingKVCache", says="positions are an int64 tensor")(
    type("ListOfPlaces", (_Rolling,), {"told": staticmethod(list)})
)
wrong("RollingKVCache", says="positions are an int64 tensor")(
    type("SmallPlaces", (_Rolling,), {"told": staticmethod(lambda places: torch.tensor(places, dtype=torch.int32))})
)


def leaving(told):
    @torch.no_grad()
    def early_exit_forward(model, tokens, threshold):
        mask = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
        answers = []
        for row in tokens:
            x = model.embed(row[None])
            used, sure = 0, False
            while used < len(model.blocks) and not sure:
                x, used = model.blocks[used](x, attn_mask=mask), used + 1
                logits = model.head(x[:, -1:])[0, 0]
                sure = bool(logits.softmax(-1).amax() >= threshold)
            answers.append((logits, used))
        logits, used = zip(*answers, strict=True)
        return told(torch.stack(logits), torch.tensor(used))

    return early_exit_forward


for _name, _says, _told in [
    ("probabilities", "return logits, not probabilities", lambda logits, used: (logits.softmax(-1), used)),
    ("usual_zeros", "logits keep their dtype", lambda logits, used: (torch.zeros(logits.shape) + logits.float(), used)),
    ("used_as_a_list", "layers_used is an int64 tensor", lambda logits, used: (logits, used.tolist())),
]:
    _exit = leaving(_told)
    _exit.__name__ = _name
    wrong("early_exit_forward", says=_says)(_exit)
right("early_exit_forward", why="row by row, each to its own depth")(leaving(lambda logits, used: (logits, used)))


# ---------------------------------------------------------------- speculation


def accepts(draft_row=lambda i: i, missed=lambda p, q: (p - q).clamp(min=0)):
    def speculative_accept(target_probs, draft_probs, draft_tokens, uniforms, generator):
        for i, word in enumerate(draft_tokens.tolist()):
            if not uniforms[i] * draft_probs[i, word] < target_probs[i, word]:
                left = missed(target_probs[i], draft_probs[draft_row(i)])
                return i, int(torch.multinomial(left, 1, generator=generator))
        return len(draft_tokens), int(torch.multinomial(target_probs[-1], 1, generator=generator))

    return speculative_accept


_first = accepts(draft_row=lambda i: 0)
_first.__name__ = "always_the_first_row"
wrong("speculative_accept", says="the row that failed: guess i, target and draft alike")(_first)
right("speculative_accept", why="multinomial divides by the sum itself")(accepts())


# ---------------------------------------------------------------- arithmetic


def planned(first=max, step=max, length=lambda h: h["seq_len"], bound="memory", empty=(None, None, 0.0)):
    def serving_plan(config, hardware):
        h, n = hardware, oracle.count_parameters(config)["total"]
        weights, flops = n * h["weight_bits"] / 8, 2 * n
        width = (config.n_kv_heads or config.n_heads) * config.d_model / config.n_heads
        token = 2 * config.n_layers * width * h["kv_bits"] / 8
        batch = max(0, math.floor((h["memory_bytes"] - weights) / (token * length(h))))
        prompt = flops * h["prompt_len"] / h["flops_per_s"], weights / h["bandwidth_bytes_per_s"]
        reads = (weights + batch * token * length(h)) / h["bandwidth_bytes_per_s"]
        both = batch * flops / h["flops_per_s"], reads
        names = [("compute" if pair[0] > pair[1] else bound) for pair in (prompt, both)]
        last = (step(both), names[1], batch / step(both)) if batch else empty
        return dict(
            parameters=n, weight_bytes=weights, kv_bytes_per_token=token, kv_bytes_per_sequence=token * length(h),
            max_batch=batch, flops_per_token=flops, prefill_seconds=first(prompt), prefill_bound=names[0],
            decode_step_seconds=last[0], decode_bound=last[1], tokens_per_second=last[2],
        )  # fmt: skip

    return serving_plan


for _name, _says, _ways in [
    ("prefill_summed", "the slower of the two counts", dict(first=sum)),
    ("step_summed", "the slower of the two counts", dict(step=sum)),
    ("reads_alone", "the slower of the two counts", dict(step=lambda pair: pair[1])),
    (
        "prompt_on_top",
        "seq_len is the whole length, prompt included",
        dict(length=lambda h: h["seq_len"] + h["prompt_len"]),
    ),
    ("bandwidth", 'a bound is "compute" or "memory"', dict(bound="bandwidth")),
    ("never_ends", "without a sequence there is no step", dict(empty=(math.inf, None, 0.0))),
]:
    _plan = planned(**_ways)
    _plan.__name__ = _name
    wrong("serving_plan", says=_says)(_plan)
right("serving_plan", why="tuples of two times")(planned())
