"""filter_logits and sample."""

import math

import torch

from utils import oracle
from utils.checks.draw import given
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase5 import PHASE
from utils.checks.phase5 import rules_decoding as rules
from utils.observe.codec import Generator

# ---- filter_logits -------------------------------------------------------------------------------

SHARES = (  # no sum of the largest lies near a boundary that the cases use
    (0.30, 0.22, 0.16, 0.12, 0.09, 0.06, 0.03, 0.02),
    (0.45, 0.20, 0.12, 0.08, 0.06, 0.04, 0.03, 0.02),
    (0.18, 0.17, 0.15, 0.13, 0.12, 0.10, 0.08, 0.07),
)


def shuffled(*rows):
    """Logits of these shares, each row in an order of its own, lifted by a constant of its own."""

    def draw(generator, others):
        table = torch.tensor(rows, dtype=torch.float64).log()
        order = torch.rand(table.shape, generator=generator).argsort(-1)
        return table.gather(-1, order) + torch.randn(len(rows), 1, generator=generator, dtype=torch.float64)

    return given(draw)


def one_axis(row):
    return given(lambda generator, others: shuffled(row).draw(generator, others)[0])


def stacked(*rows):
    """(1, rows, vocab)."""
    return given(lambda generator, others: shuffled(*rows).draw(generator, others)[None])


def kept_if(logits, kept):
    return logits.masked_fill(~kept, -math.inf)


def nucleus(probs, top_p, crossing=True):
    """The most probable tokens up to top_p; with the one that crosses it, or without."""
    shares, order = probs.sort(-1, descending=True)
    mass = shares.cumsum(-1)
    kept = (mass - shares < top_p) if crossing else (mass <= top_p)
    kept[..., 0] = True
    return kept, order


def in_place(kept, order):
    return torch.zeros_like(kept).scatter(-1, order, kept)


def largest(logits, k):
    k = min(k, logits.shape[-1])
    return logits >= logits.topk(k, -1).values[..., -1:]


def by_parts(
    scale=lambda logits, t: logits / t,
    top=lambda logits, k: largest(logits, k),
    p_of=lambda logits, scaled, cut: cut,
    core=lambda probs, p: in_place(*nucleus(probs, p)),
    shown=lambda scaled, raw: scaled,
    zero=None,
    fill=-math.inf,
    p_first=False,
):
    """A wrong twin from its parts; as it stands it is right."""

    def filter_logits(logits, temperature=1.0, top_k=None, top_p=None):
        oracle.filter_logits(logits, temperature, top_k, top_p)  # for its refusals
        if temperature == 0 and zero != "top_k 1":
            return zero(logits) if zero else oracle.filter_logits(logits, 0.0)
        if temperature == 0:
            temperature, top_k = 1.0, 1
        scaled = scale(logits, temperature)
        kept = torch.ones_like(logits, dtype=torch.bool)
        if top_k is not None and not p_first:
            kept = top(scaled, top_k)
        if top_p is not None and top_p < 1:
            probs = p_of(logits, scaled, kept_if(scaled, kept)).softmax(-1)
            kept = kept & core(probs, top_p)
        if top_k is not None and p_first:
            kept = kept & top(scaled, top_k)
        return shown(scaled, logits).masked_fill(~kept, fill)

    return filter_logits


def unsorted(probs, p):
    kept = probs.cumsum(-1) - probs < p
    return kept


def still_sorted(probs, p):
    return nucleus(probs, p)[0]


def scattered_twice(probs, p):
    kept, order = nucleus(probs, p)
    return kept.gather(-1, order)


def each_above(probs, p):
    kept = probs >= 1 - p
    return kept | (probs == probs.amax(-1, keepdim=True))


def as_probs(logits, temperature=1.0, top_k=None, top_p=None):
    return oracle.filter_logits(logits, temperature, top_k, top_p).softmax(-1)


def one_set_for_all(logits, temperature=1.0, top_k=None, top_p=None):
    """The kept places of the first row, everywhere."""
    out = oracle.filter_logits(logits, temperature, top_k, top_p)
    if out.dim() < 2 or temperature == 0:
        return out
    return kept_if(logits / temperature, out.flatten(0, -2)[0].isfinite())


def takes_any(logits, temperature=1.0, top_k=None, top_p=None):
    good_p = None if top_p is None else min(max(top_p, 1e-9), 1.0)
    return oracle.filter_logits(logits, abs(temperature), None if top_k is None else max(top_k, 1), good_p)


def strict_k(logits, temperature=1.0, top_k=None, top_p=None):
    if top_k is not None:
        logits.topk(top_k, -1)  # fails where k is beyond the vocabulary
    return oracle.filter_logits(logits, temperature, top_k, top_p)


def p_one_drops(logits, temperature=1.0, top_k=None, top_p=None):
    out = oracle.filter_logits(logits, temperature, top_k, None if top_p == 1 else top_p)
    return kept_if(out, in_place(*nucleus(out.softmax(-1), top_p))) if top_p == 1 else out


def the_argument_itself(logits, temperature=1.0, top_k=None, top_p=None):
    idle = temperature == 1 and top_k is None and top_p is None
    return logits if idle else oracle.filter_logits(logits, temperature, top_k, top_p)


def filtering(name, logits=None, make=case, **options):
    kind = {"kind": options.pop("kind")} if "kind" in options else {}
    plain = {} if make is refusal else {"grad": False}
    return make(name, dict(logits=logits or shuffled(*SHARES)) | options, **plain, **kind)


register(
    expected=oracle.filter_logits,
    phase=PHASE,
    section="5.9",
    fresh=True,
    hint="divide by the temperature, keep the k largest, then the fewest whose shares reach top_p; −∞ elsewhere.",
    grad=False,
    script="filtered",
    cases=(
        filtering("temperature 0.5", temperature=0.5),
        filtering("temperature 2", temperature=2.0),
        filtering("top_k 3", top_k=3),
        filtering("top_p 0.74", top_p=0.74),
        filtering("top_p 0.48", top_p=0.48),
        filtering("top_k 4 and top_p 0.72", top_k=4, top_p=0.72),
        filtering("temperature 0.5 and top_p 0.72", temperature=0.5, top_p=0.72),
        filtering("temperature 2, top_k 5, top_p 0.6", temperature=2.0, top_k=5, top_p=0.6),
        filtering("top_k 1", top_k=1),
        filtering("one axis", one_axis(SHARES[0]), temperature=0.7, top_p=0.75),
        filtering("three axes", stacked(*SHARES), top_k=4),
        filtering("no option"),
        filtering("temperature 0", temperature=0.0),
        filtering("temperature 0 with the others", temperature=0.0, top_k=3, top_p=0.75),
        filtering("a tiny top_p", top_p=1e-6, kind="edge"),
        filtering("top_k beyond the vocabulary", top_k=50, kind="edge"),
        filtering("top_k of the vocabulary", top_k=8, kind="edge"),
        filtering("top_p 1", shuffled((0.6, 0.4, 1e-9, 1e-20)), top_p=1.0, kind="edge"),
        filtering("temperature below 0", temperature=-0.5, make=refusal),
        filtering("top_k 0", top_k=0, make=refusal),
        filtering("top_p 0", top_p=0.0, make=refusal),
        filtering("top_p above 1", top_p=1.2, make=refusal),
    ),
    mistakes={
        "the token that reaches p stays": by_parts(core=lambda probs, p: in_place(*nucleus(probs, p, crossing=False))),
        "sort before you add up shares": by_parts(core=unsorted),
        "the mask is still in sorted order": Replays(by_parts(core=still_sorted), by_parts(core=scattered_twice)),
        "divide by the temperature": by_parts(scale=lambda logits, t: logits * t),
        "the temperature was ignored": by_parts(scale=lambda logits, t: logits),
        "keep exactly k": Replays(
            by_parts(top=lambda logits, k: largest(logits, k + 1)),
            by_parts(top=lambda logits, k: largest(logits, k + 1), zero="top_k 1"),
            by_parts(top=lambda logits, k: largest(logits, max(k - 1, 1))),
        ),
        "top_k was ignored": by_parts(top=lambda logits, k: torch.ones_like(logits, dtype=torch.bool)),
        "top_p was ignored": by_parts(core=lambda probs, p: torch.ones_like(probs, dtype=torch.bool)),
        "after the k largest, shares are taken anew": Replays(
            by_parts(p_of=lambda logits, scaled, cut: scaled), by_parts(p_first=True)
        ),
        "top_p is about shares after the temperature": Replays(
            by_parts(p_of=lambda logits, scaled, cut: logits),
            by_parts(p_of=lambda logits, scaled, cut: kept_if(logits, cut.isfinite())),
        ),
        "top_p is a sum of shares, not a bound for each": by_parts(core=each_above),
        "kept entries hold logits / temperature": by_parts(shown=lambda scaled, raw: raw),
        "return logits, not shares": as_probs,
        "each row keeps tokens of its own": one_set_for_all,
        "dropped tokens get −∞: 0 is a logit like any other": Spotted(rules.zeros_for_dropped, by_parts(fill=0.0)),
        "temperature 0 keeps the best token and nothing else": Spotted(
            rules.stumbles_at_zero, by_parts(zero=lambda logits: logits / 0), certain=True
        ),
        "k may be larger than the vocabulary": Spotted(rules.large_k_refused, strict_k),
        "top_p 1 keeps everything": p_one_drops,
        "return a new tensor, also where nothing is to do": the_argument_itself,
        "refuse a temperature below 0, k below 1 and p outside (0, 1]": Spotted(
            rules.option_accepted, takes_any, certain=True
        ),
    },
)

# ---- sample --------------------------------------------------------------------------------------

EVEN, ODD = (0.9, 0.2, 1.6, 0.5), (0.3, 1.4, 0.1, 1.0)
HOLES = (-math.inf, 0.4, 1.2, -math.inf, 0.7, -math.inf), (0.2, -math.inf, 1.1, 0.3, -math.inf, -math.inf)
MANY = 20_000


def rows_of(even, odd, n):
    return torch.tensor([even, odd], dtype=torch.float64).repeat(n // 2, 1)


def asked(name, even, odd, seed, judge, **options):
    """Many rows; then some, again some from the same generator, and some from a copy of its first state; (2, 3, V)."""
    some = rows_of(even, odd, 200)
    again = dict(logits=some, generator=Generator(seed + 1))
    then = (
        again,
        again,
        again | dict(generator=Generator(seed + 1, copy=1)),
        dict(logits=some[:6].reshape(2, 3, -1), generator=Generator(seed + 2)),
    )
    first = dict(logits=rows_of(even, odd, MANY), generator=Generator(seed))
    return case(name, first, then=then, kind="chance", judge=judge, **options)


def drawn(tokens=None, shares=lambda logits: logits.softmax(-1), generator=lambda given, logits: given):
    """A wrong twin: shares(logits), drawn by multinomial with generator(given, logits)."""

    def sample(logits, generator_):
        flat = logits.reshape(-1, logits.shape[-1])
        found = torch.multinomial(shares(flat), 1, generator=generator(generator_, flat))
        return (tokens or (lambda found, flat: found))(found, flat).view(logits.shape[:-1])

    return lambda logits, generator: sample(logits, generator)


def one_number(logits, generator):
    """One uniform number for all rows."""
    number = torch.rand((), generator=generator, dtype=torch.float64)
    return (logits.softmax(-1).cumsum(-1) < number).sum(-1).clamp(max=logits.shape[-1] - 1)


def seeded_again(logits, generator):
    return oracle.sample(logits, torch.Generator().manual_seed(generator.initial_seed()))


register(
    expected=oracle.sample,
    phase=PHASE,
    section="5.10",
    hint="softmax, then one draw for each row from the generator: torch.multinomial wants two axes.",
    grad=False,
    cases=(
        asked("two kinds of rows", EVEN, ODD, 5, rules.frequencies(EVEN, ODD)),
        asked("forbidden tokens", *HOLES, 15, rules.frequencies(*HOLES, forbidden=(5,))),
    ),
    mistakes={
        "this never varies": Spotted(rules.never_varies, lambda logits, generator: logits.argmax(-1)),
        "use the generator you were given": Spotted(
            rules.another_generator, drawn(generator=lambda given, logits: None)
        ),
        "a second call draws on: do not seed anew": Spotted(rules.seed_used_again, seeded_again),
        "shares come from softmax": Spotted(rules.logits_for_shares, drawn(shares=lambda flat: flat.abs())),
        "a forbidden token was drawn": Spotted(
            rules.forbidden_drawn, drawn(shares=lambda flat: flat.clamp(min=-5).softmax(-1))
        ),
        "each row draws by itself": Spotted(rules.one_draw_for_all, one_number),
    },
)
