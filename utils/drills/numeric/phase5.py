"""Numbers of phase 5: losses, steps, choices, caches, budgets."""

import math

from utils.drills.card import numeric_card
from utils.drills.numeric.asking import listed, question, some


@numeric_card(
    "phase5/price-of-a-guess",
    section="5.3",
    exercise="cross_entropy",
    minutes=2,
    level="junior",
    source="course 5.3",
    answer="Minus the natural logarithm of each right token's share; the mean over the kept ones.",
    follow_ups=["What is the perplexity of these three?"],
)
def price_of_a_guess(rng):
    """What is the loss of a few guesses?"""
    probs = rng.sample([0.05, 0.1, 0.2, 0.25, 0.4, 0.5, 0.8], 3)
    prices = [-math.log(p) for p in probs]
    mean = sum(prices) / 3
    return question(
        f"A model gave the right tokens the shares {listed(probs)}; a fourth place is padding and ignored. What is "
        "the loss in nats?",
        mean,
        "nats",
        f"({' + '.join(f'{price:.3f}' for price in prices)}) / 3 = {mean:.4f}",
        [
            (sum(prices) / 4, "Divide by the kept places: padding is not counted."),
            (sum(prices), "The mean, not the sum."),
            (mean / math.log(2), "Those are bits; the natural logarithm is meant."),
            (-math.log(sum(probs) / 3), "Logarithms first, then the mean."),
            (1 - sum(probs) / 3, "That is the missing share; the price is minus its logarithm."),
        ],
    )


@numeric_card(
    "phase5/perplexity-of-batches",
    section="5.3",
    exercise="perplexity",
    minutes=3,
    level="junior",
    source="course 5.3",
    answer="Weigh the losses by their tokens, then exp.",
    follow_ups=["Which perplexity has a model that is certain and right?"],
)
def perplexity_of_batches(rng):
    """What is the perplexity over two batches?"""
    one, two = some(rng, 2.0, 2.4, 2.8), some(rng, 3.5, 4.0, 4.4)
    many, few = some(rng, 800, 1200, 2000), some(rng, 100, 200, 300)
    mean = (one * many + two * few) / (many + few)
    return question(
        f"A batch of {many} kept tokens has loss {one:g}, another of {few} has {two:g} (nats). What is the perplexity "
        "of both together?",
        math.exp(mean),
        "",
        f"({one:g} · {many} + {two:g} · {few}) / {many + few} = {mean:.4f}; e to that is {math.exp(mean):.3f}",
        [
            (math.exp((one + two) / 2), "Weigh each batch by its tokens."),
            ((math.exp(one) * many + math.exp(two) * few) / (many + few), "Average first, then exp."),
            (2**mean, "Losses are in nats: the base is e."),
            (mean, "exp is missing."),
        ],
    )


@numeric_card(
    "phase5/smoothed-target",
    section="5.3",
    exercise="cross_entropy",
    minutes=2,
    level="senior",
    source="course 5.3; Szegedy et al. 2016, §7",
    answer="ε is shared by all V classes, the right one included: 1 − ε + ε/V.",
    follow_ups=["What is the smallest loss that is still possible?"],
)
def smoothed_target(rng):
    """Which share does the right class get under label smoothing?"""
    epsilon, classes = some(rng, 0.1, 0.2, 0.3), rng.randrange(4, 9)
    return question(
        f"Label smoothing ε = {epsilon:g} over {classes} classes, as in this course (and torch). Which target share "
        "does the right class get?",
        1 - epsilon + epsilon / classes,
        "",
        f"1 − {epsilon:g} + {epsilon:g}/{classes}",
        [
            (1 - epsilon, "Every class gets ε/V, the right one, too."),
            (1 - epsilon + epsilon / (classes - 1), "ε is divided by V, not by V − 1."),
            (epsilon / classes, "That is a wrong class's share."),
            (1 - epsilon / classes, "The right one loses ε and gets ε/V back."),
        ],
        tolerance=0.002,
    )


@numeric_card(
    "phase5/rate-of-a-step",
    section="5.5",
    exercise="learning_rate",
    minutes=4,
    level="senior",
    source="course 5.5",
    answer="floor + (peak − floor) · (1 + cos(π · share))/2, where the share counts from the end of the warm-up to "
    "total.",
    follow_ups=["At which step is the rate half-way between peak and floor?"],
)
def rate_of_a_step(rng):
    """Which learning rate does a step have?"""
    warmup, total = some(rng, 100, 200), some(rng, 1100, 2200, 4200)
    step = warmup + rng.randrange(2, 8) * (total - warmup) // 10
    if step - warmup == (total - warmup) // 2:
        step += (total - warmup) // 10
    share = (step - warmup) / (total - warmup)

    def rate(share, floor=0.1):
        return floor + (1 - floor) * (1 + math.cos(math.pi * share)) / 2

    return question(
        f"Warm-up of {warmup} steps to a peak of 1.0, then half a cosine down to 0.1 at step {total}. What is the "
        f"rate at step {step}?",
        rate(share),
        "",
        f"share {share:.3f}: 0.1 + 0.9 · (1 + cos(π · {share:.3f}))/2 = {rate(share):.4f}",
        [
            (rate(step / total), "The cosine begins when the warm-up ends."),
            (rate(share, floor=0.0), "The floor was ignored."),
            (1 - 0.9 * share, "Half a cosine, not a straight line."),
            (rate((step - warmup) / total), "The cosine ends at total, which counts the warm-up, too."),
        ],
        tolerance=0.003,
    )


@numeric_card(
    "phase5/first-adam-step",
    section="5.4",
    exercise="AdamW",
    minutes=3,
    level="senior",
    source="course 5.4; Kingma and Ba 2015, alg. 1",
    answer="After correction m̂ = g and v̂ = g², so the step is lr · sign(g): its size does not depend on g.",
    follow_ups=["And the second step, with the same gradient?"],
)
def first_adam_step(rng):
    """How far does Adam's first step go?"""
    rate, slope = some(rng, 0.001, 0.002, 0.003), some(rng, 0.02, 0.5, 4.0, 25.0)
    return question(
        f"A weight's first gradient is {slope:g}; lr {rate:g}, betas (0.9, 0.999), no decay, ε tiny. By how much does "
        "Adam lower the weight in its first step?",
        rate,
        "",
        f"m̂ = {slope:g}, √v̂ = {slope:g}: lr · 1 = {rate:g}",
        [
            (rate * slope, "That is plain gradient descent."),
            (rate * 0.1 / math.sqrt(0.001), "Without bias correction: 0.1 g / (√0.001 |g|)."),
            (rate / slope, "The root of v is divided by, not v."),
            (0.1 * rate, "m is corrected: divided by 1 − 0.9."),
        ],
    )


@numeric_card(
    "phase5/clipped-entry",
    section="5.6",
    exercise="clip_grad_norm_",
    minutes=2,
    level="junior",
    source="course 5.6",
    answer="One norm for all gradients together; each is multiplied by max_norm / norm.",
    follow_ups=["What is the second gradient?"],
)
def clipped_entry(rng):
    """What becomes of an entry when gradients are clipped?"""
    a, b = rng.choice([(3.0, 4.0), (6.0, 8.0), (5.0, 12.0), (8.0, 15.0)])
    limit = some(rng, 1.0, 2.0, 2.5)
    norm = math.hypot(a, b)
    return question(
        f"Two parameters, of one number each, have the gradients {a:g} and {b:g}. They are clipped together to norm "
        f"{limit:g}. What is the first gradient afterwards?",
        a * limit / norm,
        "",
        f"norm {norm:g}: {a:g} · {limit:g}/{norm:g} = {a * limit / norm:.4f}",
        [
            (limit, "That is clipping each by itself."),
            (a * limit / (a + b), "The norm is the root of the sum of squares."),
            (a * limit / b, "The norm is not the largest entry."),
            (a / norm, "That is norm 1; the limit is another."),
        ],
    )


@numeric_card(
    "phase5/kept-by-top-p",
    section="5.9",
    exercise="filter_logits",
    minutes=2,
    level="junior",
    source="course 5.9; Holtzman et al. 2020, §3.1",
    answer="Sort, add up until p is reached; the token that reaches it stays.",
    follow_ups=["How does a higher temperature change it?"],
)
def kept_by_top_p(rng):
    """How many tokens does top-p keep?"""
    parts = sorted((rng.randrange(3, 30) for _ in range(7)), reverse=True)
    parts = [*parts, 2]
    probs = [part / sum(parts) for part in parts]
    p = some(rng, 0.6, 0.7, 0.8)
    kept = next(n for n in range(1, 9) if sum(probs[:n]) >= p)
    return question(
        f"Shares, sorted: {', '.join(f'{one:.3f}' for one in probs)}. How many tokens does top_p = {p:g} keep?",
        kept,
        "tokens",
        f"sums {', '.join(f'{sum(probs[:n]):.3f}' for n in range(1, kept + 1))}: {p:g} is reached with {kept}",
        [
            (kept - 1, "The token that reaches p stays."),
            (kept + 1, "Once p is reached, no further one is kept."),
            (sum(one >= 1 - p for one in probs), "p is a sum of shares, not a bound for each."),
        ],
        tolerance=0,
    )


@numeric_card(
    "phase5/temperature-ratio",
    section="5.9",
    exercise="filter_logits",
    minutes=2,
    level="junior",
    source="notes 002 §5.3",
    answer="The ratio of two shares is exp of the difference of their logits / temperature.",
    follow_ups=["Which temperature makes it e times?"],
)
def temperature_ratio(rng):
    """How much likelier is one token than another at a temperature?"""
    gap, heat = some(rng, 1.0, 1.5, 2.0, 3.0), some(rng, 0.5, 0.7, 1.5, 2.0)
    return question(
        f"Token a has a logit {gap:g} above token b. At temperature {heat:g}, how many times as likely is a?",
        math.exp(gap / heat),
        "times",
        f"exp({gap:g}/{heat:g}) = {math.exp(gap / heat):.3f}",
        [
            (math.exp(gap * heat), "Divide by the temperature, do not multiply."),
            (math.exp(gap), "The temperature was ignored."),
            (math.exp(gap) / heat, "Logits are divided, not shares."),
            (gap / heat, "exp is missing."),
        ],
    )


@numeric_card(
    "phase5/beam-score",
    section="5.11",
    exercise="beam_search",
    minutes=3,
    level="senior",
    source="notes 002 §5.3; course 5.11",
    answer="Add the logarithms, divide by length^α; bos is not counted.",
    follow_ups=["Which other beam of two tokens would beat it?"],
)
def beam_score(rng):
    """What is the score of a finished beam?"""
    probs, alpha = rng.sample([0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 0.9], 3), some(rng, 0.6, 0.7, 0.8)
    total = sum(math.log(p) for p in probs)
    return question(
        f"A beam: bos, then three tokens (the last is eos) with shares {listed(probs)}. Length penalty {alpha:g}, as "
        "in this course. Its score?",
        total / 3**alpha,
        "",
        f"ln {listed(probs)} add up to {total:.4f}; / 3^{alpha:g} = {total / 3**alpha:.4f}",
        [
            (total, "The length penalty was ignored."),
            (total / 3, "That is α = 1."),
            (total / 4**alpha, "bos is given, not generated: length 3."),
            (math.prod(probs) / 3**alpha, "Add log-probabilities; you multiplied shares."),
            (total * 3**alpha, "Divide, do not multiply."),
        ],
    )


@numeric_card(
    "phase5/cache-gigabytes",
    section="5.15",
    exercise="kv_cache_bytes",
    minutes=3,
    level="junior",
    source="notes 001 §8, 002 §5.5",
    answer="2 tensors · layers · batch · key-value heads · d_head · tokens · bytes.",
    follow_ups=["What do 8 bits make of it?"],
)
def cache_gigabytes(rng):
    """How large is a KV cache?"""
    layers, heads, d_head = some(rng, 24, 32, 40), some(rng, 32, 40, 64), some(rng, 64, 128)
    groups, batch, length = some(rng, 4, 8), some(rng, 8, 16, 24), some(rng, 4096, 8192)
    size = 2 * layers * batch * groups * d_head * length * 2
    return question(
        f"{layers} layers, {heads} query heads and {groups} key-value heads of width {d_head}; {batch} sequences of "
        f"{length} tokens, float16. How many GB (10⁹ bytes) is the KV cache?",
        size / 1e9,
        "GB",
        f"2 · {layers} · {batch} · {groups} · {d_head} · {length} · 2 bytes = {size / 1e9:.3f} GB",
        [
            (size / 2e9, "You forgot that K and V are two tensors, or that float16 takes 2 bytes."),
            (size * heads / groups / 1e9, "Query heads share keys: count key-value heads."),
            (size / batch / 1e9, "Each sequence has its own."),
            (size / layers / 1e9, "Each layer has its own."),
            (size * 8 / 1e9, "Those are gigabits."),
            (size / 2**30, "Those are GiB of 2³⁰ bytes; GB was asked."),
        ],
    )


@numeric_card(
    "phase5/scores-saved",
    section="5.15",
    exercise="decode_flops",
    minutes=4,
    level="staff",
    source="notes 002 §5.5 (slip D18)",
    answer="Without a cache step t computes t² scores, with one t. Σt² / Σt = (2T + 1)/3.",
    follow_ups=["Why is the measured gain of a cache smaller?"],
)
def scores_saved(rng):
    """How many times fewer scores does a cache leave?"""
    length = rng.randrange(10, 2000)
    return question(
        f"{length} tokens are written, the first from nothing; no masked entry is skipped. How many times as many "
        "**scores** are computed without a cache as with one?",
        (2 * length + 1) / 3,
        "times",
        f"T(T+1)(2T+1)/6 over T(T+1)/2 = (2T + 1)/3 = {(2 * length + 1) / 3:.2f}",
        [
            (float(length), "That is the last step alone; early steps save less."),
            ((length + 1) / 2, "That is the factor of the projections; of scores late steps have more to save."),
            (float(length**2), "With a cache there are still t scores in step t."),
        ],
        tolerance=0.005,
    )


@numeric_card(
    "phase5/tokens-for-a-budget",
    section="5.17",
    exercise="compute_optimal",
    minutes=2,
    level="senior",
    source="course 5.17; Hoffmann et al. 2022",
    answer="C ≈ 6 · N · D: two operations per weight forward, four backward.",
    follow_ups=["Is that near twenty per parameter?"],
)
def tokens_for_a_budget(rng):
    """How many tokens can a budget train on?"""
    params, budget = some(rng, 0.4, 1.3, 3.0, 7.0), some(rng, 1e20, 1e21, 5e21)
    tokens = budget / (6 * params * 1e9)
    return question(
        f"A model of {params:g}·10⁹ parameters and a budget of {budget:.0e} operations. On how many billion tokens "
        "can it train (attention's products left out)?",
        tokens / 1e9,
        "billion",
        f"{budget:.0e} / (6 · {params:g}·10⁹) = {tokens / 1e9:,.2f}·10⁹",
        [
            (3 * tokens / 1e9, "Two operations are the forward pass; training takes six."),
            (6 * tokens / 1e9, "Each weight and token takes six operations."),
            (1.5 * tokens / 1e9, "Forward two, backward four: six together."),
            (20 * params, "That is the rule of twenty tokens per parameter; the budget was given."),
        ],
    )


@numeric_card(
    "phase5/exposure",
    section="5.7",
    exercise="exposure_gap",
    minutes=2,
    level="senior",
    source="notes 003, teacher forcing (slip D27)",
    answer="If each word is right with probability p as long as all before were, and an error ruins the rest: p^k at "
    "word k.",
    follow_ups=["What does that say about long answers?"],
)
def exposure(rng):
    """How often is a whole answer right?"""
    p, words = some(rng, 0.9, 0.95, 0.98, 0.99), rng.randrange(8, 40)
    return question(
        f"After a true prefix the next word is right with probability {p:g}, each time anew. A free-running model is "
        f"right on **all** of {words} words with which probability?",
        p**words,
        "",
        f"{p:g}^{words} = {p**words:.4g}",
        [
            (p, "That is one word."),
            (1 - p**words, "That is the probability of at least one error."),
            (p ** (words - 1), f"All {words} must be right."),
            (p / words, "Probabilities of independent words multiply."),
        ],
        tolerance=0.003,
    )
