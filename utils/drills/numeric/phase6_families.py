"""Numbers of phase 6, families of models: words, patches, prefixes, experts."""

from utils.drills.card import numeric_card
from utils.drills.numeric.asking import listed, question, some


@numeric_card(
    "phase6/hidden-words",
    section="6.2",
    exercise="mask_tokens",
    minutes=2,
    level="junior",
    source="course 6.2; Devlin et al. 2018, §3.1",
    answer="Of the real, ordinary tokens a share p is chosen; 80 % of those become the mask token.",
    follow_ups=["How many become a random word?"],
)
def hidden_words(rng):
    """How many tokens become the mask token?"""
    real, special, p = rng.randrange(40, 120) * 100, rng.randrange(2, 9) * 100, some(rng, 0.15, 0.2, 0.3)
    return question(
        f"A batch of {real + special:,} real tokens, {special} of them special. Masked language modelling with p = "
        f"{p:g} and the usual 80/10/10. How many tokens become the mask token, on average?",
        0.8 * p * real,
        "tokens",
        f"{real:,} · {p:g} · 0.8 = {0.8 * p * real:g}",
        [
            (p * real, "That is how many are predicted; one in ten becomes another word, one in ten stays."),
            (0.8 * p * (real + special), "Special tokens are never chosen."),
            (0.9 * p * real, "One in ten becomes a random word, one in ten stays: 80 %."),
            (0.8 * real, "Only a share p is chosen at all."),
        ],
        tolerance=0.004,
    )


@numeric_card(
    "phase6/patches",
    section="6.8",
    exercise="patchify",
    minutes=1,
    level="junior",
    source="course 6.8; Dosovitskiy et al. 2020",
    answer="(height / patch) · (width / patch).",
    follow_ups=["How do attention's costs change with half the patch size?"],
)
def patches(rng):
    """How many tokens does a picture become?"""
    size, down, across = some(rng, 8, 14, 16), rng.randrange(6, 20), rng.randrange(21, 40)
    return question(
        f"A picture of {size * down} × {size * across} pixels, 3 colours, patches of {size} × {size}. How many "
        "patches?",
        down * across,
        "patches",
        f"{down} · {across}",
        [
            (3 * down * across, "A patch holds all colours."),
            (size * down * across, "Both sides are divided by the patch size."),
            (down + across, "Rows times columns."),
            (3 * size * size, "That is how many numbers a patch holds."),
        ],
        tolerance=0,
    )


@numeric_card(
    "phase6/prefix-sees",
    section="6.6",
    exercise="prefix_lm_mask",
    minutes=3,
    level="senior",
    source="course 6.6; Raffel et al. 2020, §3.2.1",
    answer="The causal triangle T(T+1)/2, and above it the prefix's own upper triangle P(P−1)/2.",
    follow_ups=["For which prefix is it the whole square?"],
)
def prefix_sees(rng):
    """How many entries of a prefix mask are True?"""
    prefix, rest = rng.randrange(4, 15), rng.randrange(5, 20)
    length = prefix + rest
    answer = length * (length + 1) // 2 + prefix * (prefix - 1) // 2
    return question(
        f"A prefix of {prefix} tokens that sees all of itself, then {rest} causal ones. How many entries of the "
        f"({length}, {length}) mask are True?",
        answer,
        "",
        f"{length} · {length + 1}/2 + {prefix} · {prefix - 1}/2 = {answer}",
        [
            (length * (length + 1) // 2, "That is the causal mask alone."),
            (answer + prefix, "The prefix's diagonal was counted already."),
            (prefix * prefix + rest * (rest + 1) // 2, "The answer sees the prefix, too."),
            (answer + prefix * rest, "The prefix does not see the answer."),
        ],
        tolerance=0,
    )


@numeric_card(
    "phase6/experts-at-work",
    section="6.9",
    exercise="moe_route",
    minutes=3,
    level="senior",
    source="course 6.9; Fedus et al. 2021",
    answer="All experts are held; per token attention and k of the experts work.",
    follow_ups=["How many must be held in memory?"],
)
def experts_at_work(rng):
    """How many of a mixture's weights work for a token?"""
    width, experts = some(rng, 1024, 2048, 4096), some(rng, 8, 16, 32)
    k, layers = some(rng, 1, 2), some(rng, 16, 24, 32)
    attention, ffn = 4 * width * width, 8 * width * width
    active = layers * (attention + k * ffn)
    return question(
        f"{layers} blocks, d_model {width}: attention 4 d², and {experts} experts of 8 d² each, {k} of them per "
        "token. How many billion weights work on a token (router and tables left out)?",
        active / 1e9,
        "billion",
        f"{layers} · (4 + {k} · 8) · {width}² = {active / 1e9:.3f}·10⁹",
        [
            (layers * (attention + experts * ffn) / 1e9, "That is what must be held in memory; k experts are at work."),
            (layers * k * ffn / 1e9, "Attention works for every token, too."),
            (layers * k * (attention + ffn) / 1e9, "Attention is there once, not k times."),
            (active / layers / 1e9, "That is one block."),
        ],
    )


@numeric_card(
    "phase6/average-of-real",
    section="6.3",
    exercise="mean_pool",
    minutes=1,
    level="junior",
    source="course 6.3",
    answer="The sum over real tokens, divided by how many there are.",
    follow_ups=["And for a sentence of padding only?"],
)
def average_of_real(rng):
    """What is the mean over real tokens?"""
    real, pad, length = [float(rng.randrange(1, 12)) for _ in range(3)], float(rng.randrange(13, 20)), 5
    return question(
        f"One feature of five places: {listed(real)}, and {pad:g} at each of two padded places. What is the mean over "
        "real tokens?",
        sum(real) / 3,
        "",
        f"({listed(real)}) add up to {sum(real):g}; / 3",
        [
            (sum(real) / length, "Divide by the real tokens."),
            ((sum(real) + 2 * pad) / length, "Pads are in the mean."),
            (sum(real), "That is the sum."),
            ((sum(real) + 2 * pad) / 3, "Pads are in the sum."),
        ],
    )
