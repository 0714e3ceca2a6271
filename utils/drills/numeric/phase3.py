"""Numbers of phase 3: what heads weigh, where they look."""

import math

from utils.drills.card import numeric_card
from utils.drills.numeric.asking import question, some


@numeric_card(
    "phase3/mha-weights",
    section="3.8",
    exercise="mha_parameters",
    minutes=2,
    level="junior",
    source="notes 003, parameters (slip A24)",
    answer="Four square matrices, each with a bias as wide as its output: 4 d² + 4 d, whatever the number of heads.",
    follow_ups=["And with 2 key-value heads?"],
)
def mha_weights(rng):
    """How many parameters has multi-head attention?"""
    heads, width = some(rng, 4, 8, 16), some(rng, 128, 256, 512, 768, 1024)
    return question(
        f"Multi-head attention, d_model {width}, {heads} heads, with biases. How many parameters?",
        4 * width * width + 4 * width,
        "",
        f"4 · {width}² + 4 · {width}",
        [
            (3 * width * width + 3 * width, "You left out the output projection."),
            (4 * width * width, "You left out the biases."),
            (heads * (4 * width * width + 4 * width), "Heads share d_model: do not multiply."),
            (4 * width * width + 3 * width, "The output projection has a bias, too."),
            (
                4 * width * width // heads + 4 * width,
                "Each head reads the whole token; together the matrices are square.",
            ),
        ],
        tolerance=0,
    )


@numeric_card(
    "phase3/grouped-weights",
    section="3.8",
    exercise="GroupedQueryAttention",
    minutes=3,
    level="senior",
    source="course 3.7",
    answer="w_q and w_o stay d × d; w_k and w_v are d × (n_kv_heads · d_head).",
    follow_ups=["Which share of a multi-head layer is that?"],
)
def grouped_weights(rng):
    """How many weights has grouped-query attention?"""
    heads, d_head = some(rng, 16, 32, 64), some(rng, 64, 128)
    groups, width = some(rng, 2, 4, 8), heads * d_head
    narrow = groups * d_head
    answer = 2 * width * width + 2 * width * narrow
    return question(
        f"Grouped-query attention: d_model {width}, {heads} query heads, {groups} key-value heads, no biases. How "
        "many million weights?",
        answer / 1e6,
        "million",
        f"2 · {width}² + 2 · {width} · {narrow} = {answer:,}",
        [
            (4 * width * width / 1e6, "Keys and values are narrower: n_kv_heads · d_head wide."),
            (
                (width * width + 3 * width * narrow) / 1e6,
                "The output projection stays square: it reads all query heads.",
            ),
            ((2 * width * width + width * narrow) / 1e6, "Keys and values have a matrix each."),
            ((2 * width * width + 2 * width * d_head) / 1e6, "That is multi-query: one key-value head."),
        ],
        tolerance=0.002,
    )


@numeric_card(
    "phase3/cache-of-a-token",
    section="3.7",
    exercise="GroupedQueryAttention",
    minutes=3,
    level="senior",
    source="course 3.7, 5.15",
    answer="Two tensors, n_kv_heads of d_head numbers each, in every layer.",
    follow_ups=["How many tokens fit into 10 GB?"],
)
def cache_of_a_token(rng):
    """How much cache does one token leave behind?"""
    layers, heads, d_head = some(rng, 24, 32, 48), some(rng, 16, 32, 64), some(rng, 64, 128)
    groups = some(rng, 1, 4, 8)
    answer = 2 * layers * groups * d_head * 2
    return question(
        f"{layers} layers, {heads} query heads of width {d_head}, {groups} key-value heads, float16. How many bytes "
        "does **one token** take in the cache?",
        answer,
        "bytes",
        f"2 tensors · {layers} · {groups} · {d_head} · 2 bytes",
        [
            (answer // 2, "You forgot that K and V are two tensors, or that a float16 takes two bytes."),
            (answer * heads // groups, "Query heads share keys and values: count the key-value heads."),
            (answer // layers, "Every layer has its own cache."),
            (answer * 8, "Those are bits."),
        ],
        tolerance=0,
    )


@numeric_card(
    "phase3/even-entropy",
    section="3.10",
    exercise="head_entropy",
    minutes=2,
    level="junior",
    source="course 3.10",
    answer="Minus the sum of w ln w; for n equal weights ln n.",
    follow_ups=["For which first share is it largest?"],
)
def even_entropy(rng):
    """What is the entropy of a row of attention?"""
    first, keys = some(rng, 0.25, 0.4, 0.5, 0.6), rng.randrange(3, 12)
    rest = (1 - first) / keys
    answer = -first * math.log(first) - (1 - first) * math.log(rest)
    return question(
        f"A query gives {first:g} to one key and shares the rest evenly among {keys} others. What is the entropy in "
        "nats?",
        answer,
        "nats",
        f"−{first:g} ln {first:g} − {1 - first:g} ln({1 - first:g}/{keys}) = {answer:.4f}",
        [
            (answer / math.log(2), "Those are bits: nats use the natural logarithm."),
            (-answer, "The sign: entropy is never negative."),
            (math.log(keys + 1), "That would be so if all shared evenly."),
            (answer / (keys + 1), "Sum over the keys, do not average."),
            (-first * math.log(first) - rest * math.log(rest), f"There are {keys} of the small weights."),
        ],
    )


@numeric_card(
    "phase3/alibi-handicap",
    section="3.13",
    exercise="alibi_bias",
    minutes=3,
    level="staff",
    source="course 3.13; Press et al. 2022, §3",
    answer="Slopes are 2^(−8h/n) for h = 1 … n; the bias is minus slope times distance.",
    follow_ups=["By which factor does it lower the weight?"],
)
def alibi_handicap(rng):
    """How large is ALiBi's bias?"""
    heads = some(rng, 4, 8, 16)
    head, far = rng.randrange(0, heads - 1), rng.randrange(3, 60)
    answer = -(2 ** (-8 * (head + 1) / heads)) * far
    return question(
        f"ALiBi with {heads} heads. Which bias does head {head} (counted from 0) add to the score of a key {far} "
        "places back?",
        answer,
        "",
        f"−2^(−8 · {head + 1}/{heads}) · {far} = {answer:.4f}",
        [
            (-answer, "The sign: far keys must lose."),
            (-(2 ** (-8 * head / heads)) * far, "h starts at 1: the first slope is 2^(−8/n)."),
            (-(2 ** (-(head + 1))) * far, "That is right for 8 heads only: the exponent is 8h/n."),
            (-(2 ** (-8 * (heads - head) / heads)) * far, "Slopes reversed: the first head is the steepest."),
        ],
    )


@numeric_card(
    "phase3/surviving-weight",
    section="3.9",
    exercise="attention_dropout",
    minutes=1,
    level="junior",
    source="course 3.9",
    answer="What survives is divided by 1 − p, so that the expectation stays.",
    follow_ups=["What is the variance of the weight after dropout?"],
)
def surviving_weight(rng):
    """What becomes of a weight that survives dropout?"""
    weight, p = some(rng, 0.12, 0.24, 0.36), some(rng, 0.1, 0.2, 0.25, 0.4)
    return question(
        f"An attention weight of {weight:g} survives dropout with p = {p:g} in training. What is it afterwards?",
        weight / (1 - p),
        "",
        f"{weight:g} / {1 - p:g} = {weight / (1 - p):.4f}",
        [
            (weight, "Then the expectation would shrink: divide by 1 − p."),
            (weight * (1 - p), "That is turned round: divide, do not multiply."),
            (weight / p, "p is the share that is dropped; divide by what is kept."),
        ],
    )
