"""filter_logits, sample: wrong solutions and unusual right ones."""

import math

import torch

from tests.bank import right, wrong

# ---------------------------------------------------------------- filter_logits


def refuse(temperature, top_k, top_p):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and not 0 < top_p <= 1):
        raise ValueError("temperature, top_k or top_p")


def filters(name, divide=True, extra=0, before=True, scattered=True, nucleus=None, temperature_last=False):
    """A filter_logits; the options turn one thing each."""

    def filter_logits(logits, temperature=1.0, top_k=None, top_p=None):
        refuse(temperature, top_k, top_p)
        if temperature == 0:
            return logits.masked_fill(logits < logits.amax(-1, keepdim=True), -math.inf)
        out = logits / temperature if divide else logits * temperature
        if top_k is not None:
            k = min(max(top_k + extra, 1), logits.shape[-1])
            out = out.masked_fill(out < out.topk(k).values[..., -1:], -math.inf)
        if top_p is not None and top_p < 1:
            probs, order = (out * temperature if temperature_last else out).softmax(-1).sort(-1, descending=True)
            drop = nucleus(probs, top_p) if nucleus else probs.cumsum(-1) - (probs if before else 0) >= top_p
            drop[..., 0] = False
            out = out.masked_fill(drop.scatter(-1, order, drop.clone()) if scattered else drop, -math.inf)
        return out

    filter_logits.__name__ = name
    return filter_logits


for _name, _says, _parts in [
    ("multiplies", "divide by the temperature", dict(divide=False)),
    ("one_more", "keep exactly k", dict(extra=1)),
    ("one_fewer", "keep exactly k", dict(extra=-1)),
    ("without_the_crossing_one", "the token that reaches p stays", dict(before=False)),
    ("in_sorted_order", "the mask is still in sorted order", dict(scattered=False)),
    ("p_ignored", "top_p was ignored", dict(nucleus=lambda probs, p: torch.zeros_like(probs, dtype=torch.bool))),
    ("p_before_temperature", "top_p is about shares after the temperature", dict(temperature_last=True)),
    ("p_is_a_bound", None, dict(nucleus=lambda probs, p: probs < p)),
]:
    wrong("filter_logits", says=_says)(filters(_name, **_parts))


@wrong("filter_logits", says="after the k largest, shares are taken anew")
def p_first(logits, temperature=1.0, top_k=None, top_p=None):
    right_one = filters("right")
    cut = right_one(logits, temperature, None, top_p)
    return cut if top_k is None or temperature == 0 else cut.where(right_one(logits, 1.0, top_k) > -math.inf, -math.inf)


@wrong("filter_logits", says="kept entries hold logits / temperature")
def raw_values(logits, temperature=1.0, top_k=None, top_p=None):
    return logits.where(filters("right")(logits, temperature, top_k, top_p) > -math.inf, -math.inf)


@wrong("filter_logits", says="return logits, not shares")
def shares(logits, temperature=1.0, top_k=None, top_p=None):
    return filters("right")(logits, temperature, top_k, top_p).softmax(-1)


@wrong("filter_logits", says="temperature 0 keeps the best token and nothing else")
def divides_by_zero(logits, temperature=1.0, top_k=None, top_p=None):
    refuse(temperature, top_k, top_p)
    return logits / 0.0 if temperature == 0 else filters("right")(logits, temperature, top_k, top_p)


@wrong("filter_logits", says="k may be larger than the vocabulary")
def k_as_it_is(logits, temperature=1.0, top_k=None, top_p=None):
    refuse(temperature, top_k, top_p)
    logits.topk(top_k or 1)
    return filters("right")(logits, temperature, top_k, top_p)


@wrong("filter_logits", says="refuse a temperature below 0, k below 1 and p outside (0, 1]")
def k_0_is_off(logits, temperature=1.0, top_k=None, top_p=None):
    return filters("right")(logits, temperature, top_k or None, top_p)


@wrong("filter_logits")
def in_place(logits, temperature=1.0, top_k=None, top_p=None):
    out = filters("right")(logits, temperature, top_k, top_p)
    logits.copy_(out)
    return out


right("filter_logits", why="sort, cumulative sum minus the own share")(filters("sorted_once"))


@right("filter_logits", why="row by row in Python")
def by_row(logits, temperature=1.0, top_k=None, top_p=None):
    refuse(temperature, top_k, top_p)
    if temperature == 0:
        temperature, top_k, top_p = 1.0, 1, None
    out = torch.full_like(logits, -math.inf)
    for place, row in enumerate((logits / temperature).reshape(-1, logits.shape[-1])):
        kept = sorted(range(len(row)), key=lambda i, row=row: -row[i].item())[: top_k or len(row)]
        probs, mass = row[kept].softmax(-1).tolist(), 0.0
        for i, p in zip(kept, probs, strict=True):
            if top_p is None or top_p == 1 or mass < top_p:
                out.view(-1, logits.shape[-1])[place, i] = row[i]
            mass += p
    return out


@right("filter_logits", why="topk with scatter, the smallest kept share as a threshold")
def with_thresholds(logits, temperature=1.0, top_k=None, top_p=None):
    refuse(temperature, top_k, top_p)
    if temperature == 0:
        best = logits.argmax(-1, keepdim=True)
        return torch.full_like(logits, -math.inf).scatter(-1, best, 0.0)
    out = logits.div(temperature)
    if top_k:
        values, places = out.topk(min(top_k, out.shape[-1]), dim=-1)
        out = torch.full_like(out, -math.inf).scatter(-1, places, values)
    if top_p is not None and top_p < 1:
        probs = out.softmax(-1)
        ranked = probs.sort(-1, descending=True).values
        count = (ranked.cumsum(-1) < top_p).sum(-1, keepdim=True)
        out = torch.where(probs >= ranked.gather(-1, count), out, -math.inf)
    return out


@right("filter_logits", why="float64 shares, sorted upwards, strict comparison from the other end")
def from_the_tail(logits, temperature=1.0, top_k=None, top_p=None):
    refuse(temperature, top_k, top_p)
    if temperature == 0:
        temperature, top_k = 1, 1
    out = logits / temperature
    if top_k is not None and top_k < logits.shape[-1]:
        out = torch.where(out >= out.sort(-1).values[..., -top_k, None], out, -math.inf)
    if top_p is not None and top_p != 1.0:
        probs, order = out.double().softmax(-1).sort(-1)
        drop = probs.cumsum(-1) <= 1 - top_p
        drop[..., -1] = False
        out = out.masked_fill(torch.zeros_like(drop).scatter_(-1, order, drop), -math.inf)
    return out


# ---------------------------------------------------------------- sample


def drawn(probs, generator, shape):
    return torch.multinomial(probs.reshape(-1, probs.shape[-1]), 1, generator=generator).view(shape)


@wrong("sample", says="this never varies")
def the_best(logits, generator):
    return logits.argmax(-1)


@wrong("sample", says="use the generator you were given")
def global_state(logits, generator):
    return drawn(logits.softmax(-1), None, logits.shape[:-1])


@wrong("sample", says="a second call draws on: do not seed anew")
def seeds_anew(logits, generator):
    generator.manual_seed(0)
    return drawn(logits.softmax(-1), generator, logits.shape[:-1])


@wrong("sample", says="shares come from softmax")
def of_the_logits(logits, generator):
    return drawn(logits / logits.sum(-1, keepdim=True), generator, logits.shape[:-1])


@wrong("sample", says="each row draws by itself")
def one_number(logits, generator):
    u = torch.rand(1, generator=generator).double()
    return (logits.softmax(-1).double().cumsum(-1) < u).sum(-1)


@wrong("sample", says="a forbidden token was drawn")
def large_negative_instead(logits, generator):
    return drawn(logits.clamp(min=-4).softmax(-1), generator, logits.shape[:-1])


@wrong("sample")
def one_place_on(logits, generator):
    u = torch.rand(logits.shape[:-1], generator=generator).double()[..., None]
    return ((logits.softmax(-1).double().cumsum(-1) < u).sum(-1) + 1) % logits.shape[-1]


@wrong("sample")
def keeps_the_axis(logits, generator):
    return drawn(logits.softmax(-1), generator, (*logits.shape[:-1], 1))


@wrong("sample")
def two_kinds_only(logits, generator):
    """Rows share the distribution of the first."""
    probs = logits.reshape(-1, logits.shape[-1])[0].softmax(-1)
    count = logits[..., 0].numel()
    return torch.multinomial(probs, count, replacement=True, generator=generator).view(logits.shape[:-1])


@wrong("sample")
def colder(logits, generator):
    return drawn((logits / 0.8).softmax(-1), generator, logits.shape[:-1])


@right("sample", why="multinomial")
def multinomial(logits, generator):
    return drawn(logits.softmax(-1), generator, logits.shape[:-1])


@right("sample", why="Gumbel noise")
def gumbel(logits, generator):
    u = torch.rand(logits.shape, generator=generator, dtype=torch.float64).clamp(min=1e-300)
    return (logits - torch.log(-torch.log(u))).argmax(-1)


@right("sample", why="the inverse of the distribution function")
def inverse(logits, generator):
    mass = logits.double().softmax(-1).cumsum(-1)
    u = torch.rand(logits.shape[:-1], generator=generator, dtype=torch.float64) * mass[..., -1]
    return torch.searchsorted(mass, u[..., None], right=True)[..., 0]


@right("sample", why="a race of exponentials")
def race(logits, generator):
    times = torch.empty(logits.shape, dtype=torch.float64).exponential_(generator=generator)
    return (times / logits.double().softmax(-1)).argmin(-1)


# what a tired reader types: softmax, flatten, draw, view
@right("sample", why="flatten from the left, squeeze, view")
def flattened(logits, generator):
    probs = torch.softmax(logits, dim=-1)
    flat = probs.flatten(0, -2) if probs.dim() > 1 else probs[None]
    return (
        torch.multinomial(flat, num_samples=1, replacement=True, generator=generator).squeeze(-1).view(probs.shape[:-1])
    )
