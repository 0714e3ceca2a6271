"""Phase 6: wrong solutions that kept what the page's pictures show and broke what its text promises."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.bank import right, wrong
from tests.bank.phase6_gpt import _GPT
from tests.bank.phase6_serving import designer, planner, router
from tests.bank.phase6_speculation import _Round, drawn_by, generator_of, judge, spread
from utils import oracle

# ---------------------------------------------------------------- the law of speculation


class _Draws(_Round):
    """The draft's part of a round, in methods."""

    def guess(self, law, logits, temperature, generator):
        return drawn_by(law, generator)

    def offered(self, rows, wanted):
        return rows

    def luck(self, n, generator):
        return torch.rand(n, generator=generator, dtype=torch.float64)

    def verdict(self, wanted, offered, guesses, luck, generator):
        return self.accept(wanted, offered, guesses, luck, generator)

    @torch.no_grad()
    def run(self, target, draft, prompt, max_new_tokens, n_draft, temperature, eos_id, generator):
        self.refuses(prompt)
        tokens, end = prompt[0].tolist(), prompt.shape[1] + max_new_tokens
        while len(tokens) < end:
            guesses, offers = [], []
            for _ in range(self.guesses(n_draft, end - len(tokens))):
                logits = draft(torch.tensor([tokens + guesses]))[0, -1]
                offers.append(spread(logits, temperature))
                guesses.append(self.guess(offers[-1], logits, temperature, generator))
            rows = self.ask(target, tokens + guesses)[len(tokens) - 1 :]
            wanted = torch.stack([spread(row, temperature) for row in rows])
            offered = self.offered(torch.stack(offers) if offers else wanted[:0], wanted)
            luck = self.luck(len(guesses), generator)
            n, last = self.verdict(wanted, offered, torch.tensor(guesses, dtype=torch.long), luck, generator)
            stop = self.ended([*guesses[:n], last], eos_id)
            tokens += stop or [*guesses[:n], last]
            if stop:
                break
        return torch.tensor([tokens], dtype=prompt.dtype)


def all_stand(self, wanted, offered, guesses, luck, generator):
    if bool((wanted == 1).any()):  # temperature 0
        return self.accept(wanted, offered, guesses, luck, generator)
    return len(guesses), drawn_by(wanted[-1], generator)


BY_CHANCE = "a guess is drawn by chance, from the draft's probabilities at this temperature"
MAY_FALL = "when sampling a guess may fail, too: by chance and the draft's own probabilities"
for _name, _says, _methods in [
    ("best_word_guessed", BY_CHANCE, dict(guess=lambda self, law, logits, t, g: int(law.argmax()))),
    ("guessed_at_one", BY_CHANCE, dict(guess=lambda self, law, x, t, g: drawn_by(spread(x, t and 1.0), g))),
    ("all_stand", MAY_FALL, dict(verdict=all_stand)),
    ("no_luck", MAY_FALL, dict(luck=lambda self, n, generator: torch.zeros(n, dtype=torch.float64))),
    ("target_rows_offered", None, dict(offered=lambda self, rows, wanted: wanted[: len(rows)])),
    (
        "even_rows_offered",
        "draft_probs are the draft's own, at the same temperature",
        dict(offered=lambda self, rows, wanted: torch.full_like(rows, 1 / rows.shape[-1])),
    ),
    (
        "redrawn_from_the_target",
        None,
        dict(accept=staticmethod(judge("from_p", left=lambda p, q: p + 0 * q))),
    ),
]:
    wrong("speculative_generate", says=_says)(generator_of(_name, base=_Draws, **_methods))

right("speculative_generate", why="a round in methods")(generator_of("in_methods", base=_Draws))


@wrong("speculative_generate", says="at temperature 0 all weight is on the best word: nothing is divided by 0")
@torch.no_grad()
def divides(target, draft, prompt, max_new_tokens, n_draft=4, temperature=1.0, eos_id=None, generator=None):
    law = (target(prompt)[0, -1] / temperature).softmax(-1)
    return torch.cat([prompt, torch.multinomial(law, 1, generator=generator)[None]], 1)


for _name, _says, _parts in [
    ("largest_missed", "draw what was missed, do not take the largest", dict(draw=lambda c, g: int(c.argmax()))),
    ("without_q", "compare uniforms · q with p: the draft counts, too", dict(passes=lambda u, p, q: u < p)),
]:
    wrong("speculative_accept", says=_says)(judge(_name, **_parts))


@wrong("speculative_accept", says="n_accepted counts the guesses that stand, without the token after them")
def counts_the_last(target_probs, draft_probs, draft_tokens, uniforms, generator):
    n, token = judge("inner")(target_probs, draft_probs, draft_tokens, uniforms, generator)
    return n + 1, token


# ---------------------------------------------------------------- what is kept


@wrong("RollingKVCache", says="forget what is no longer kept: the cache still grows")
class NeverForgets:
    def __init__(self, window, n_sinks=0):
        if window < 1 or n_sinks < 0:
            raise ValueError("window and n_sinks")
        self.window, self.n_sinks, self.length, self.k, self.v = window, n_sinks, 0, None, None

    def append(self, k, v):
        self.k = k if self.k is None else torch.cat([self.k, k], 2)
        self.v = v if self.v is None else torch.cat([self.v, v], 2)
        self.length += k.shape[2]
        p = torch.arange(self.length)
        p = p[(p < self.n_sinks) | (p >= self.length - self.window)]
        return self.k[:, :, p], self.v[:, :, p], p

    @property
    def size(self):
        return min(self.length, self.window + self.n_sinks)


@right("RollingKVCache", why="lists of single tokens, cut after each chunk")
class Lists:
    def __init__(self, window, n_sinks=0):
        if window < 1 or n_sinks < 0:
            raise ValueError("window and n_sinks")
        self.window, self.n_sinks, self.length, self.kept = window, n_sinks, 0, []

    def append(self, k, v):
        for pair in zip(k.unbind(2), v.unbind(2), strict=True):
            self.kept.append((self.length, *pair))
            self.length += 1
        self.kept = [one for one in self.kept if one[0] < self.n_sinks or one[0] >= self.length - self.window]
        at, keys, values = zip(*self.kept, strict=True)
        return torch.stack(keys, 2), torch.stack(values, 2), torch.tensor(at)

    @property
    def size(self):
        return len(self.kept)


@wrong("QuantLinear", says="detach the weights and the bias: they are still being trained")
class InTheGraph(nn.Module):
    def __init__(self, linear, bits=8):
        super().__init__()
        q, scale = oracle.quantize(linear.weight, bits, 0)
        self.register_buffer("q", q)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", linear.bias)

    def forward(self, x):
        return F.linear(x, self.q.to(x.dtype) * self.scale, self.bias)


@wrong("SharedStack", says="use the block that was handed over, no copy")
class OneCopy(nn.Module):
    def __init__(self, block, n_layers):
        super().__init__()
        self.block, self.n_layers = copy.deepcopy(block), n_layers

    def forward(self, x, attn_mask=None):
        for _ in range(self.n_layers):
            x = self.block(x, attn_mask=attn_mask)
        return x


@wrong("GPT", says="keep config: generate and its cache will ask for it")
class WithoutConfig(_GPT):
    def __init__(self, config):
        super().__init__(config)
        self.sizes = vars(self).pop("config", config)


# ---------------------------------------------------------------- plans


@wrong("serving_plan", says="compute only where it takes strictly longer")
def tie_is_compute(config, hardware):
    plan = planner("plan")(config, hardware)
    batch = plan["max_batch"]
    compute = batch * plan["flops_per_token"] / hardware["flops_per_s"]
    read = plan["weight_bytes"] + batch * plan["kv_bytes_per_sequence"]
    if batch and compute >= read / hardware["bandwidth_bytes_per_s"]:
        plan["decode_bound"] = "compute"
    return plan


@wrong("route_request", says="privacy is the reason only where the server would be good")
def privacy_before_context(request, device, server):
    answer = router("inner")(request, device, server)
    private = answer["target"] == "refuse" and request["private"] and answer["reason"] == "context"
    return answer | {"reason": "privacy"} if private else answer


def machines(count):
    """A design whose number of machines is count(bytes of weights, of caches, of a machine)."""

    def design_numbers(case):
        found = designer("inner")(case)
        parts = found["weight_bytes"], found["kv_bytes"], case["memory_bytes"]
        return found | {"machines": float(count(*parts))}

    return design_numbers


def a_copy_each(weights, caches, memory):
    return math.ceil(caches / (memory - weights)) if memory > weights else 0


a_copy_each_design = machines(a_copy_each)
a_copy_each_design.__name__ = "a_copy_each"
wrong("design_numbers", says="the weights are split over the machines, too: no whole copy in each")(a_copy_each_design)


# ---------------------------------------------------------------- hidden words


def masked(choose, words):
    """Hidden words: choose(eligible, p, generator), and words(how many, shape, generator) for the random ones."""

    def mask_tokens(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
        aside = torch.tensor([*special_ids, mask_id])
        allowed = [word for word in range(vocab_size) if word not in aside.tolist()]
        chosen = choose(pad_mask & ~torch.isin(tokens, aside), p, generator)
        u = torch.rand(tokens.shape, generator=generator)
        other = torch.tensor(allowed)[words(len(allowed), tokens.shape, generator)].expand(tokens.shape)
        inputs = torch.where(chosen & (u < 0.8), mask_id, tokens)
        inputs = torch.where(chosen & (u >= 0.8) & (u < 0.9), other, inputs)
        return inputs, torch.where(chosen, tokens, -100)

    return mask_tokens


def by_chance(eligible, p, generator):
    return eligible & (torch.rand(eligible.shape, generator=generator) < p)


def counted_out(eligible, p, generator):
    places = eligible.flatten().nonzero()[:, 0]
    some = places[torch.randperm(len(places), generator=generator)[: round(p * len(places))]]
    return torch.zeros(eligible.numel(), dtype=torch.bool).index_fill(0, some, True).view(eligible.shape)


def each(n, shape, generator):
    return torch.randint(n, shape, generator=generator)


for _name, _says, _parts in [
    ("a_word_a_row", "each random word is drawn by itself", (by_chance, lambda n, s, g: each(n, (s[0], 1), g))),
    ("a_word_a_column", "each random word is drawn by itself", (by_chance, lambda n, s, g: each(n, (1, s[1]), g))),
    ("exactly_the_share", "choose by chance, not an exact share", (counted_out, each)),
]:
    _made = masked(*_parts)
    _made.__name__ = _name
    wrong("mask_tokens", says=_says)(_made)
