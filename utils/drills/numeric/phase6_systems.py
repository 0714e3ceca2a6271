"""Numbers of phase 6, systems: bits, windows, guesses, machines."""

import math

from utils.drills.card import numeric_card
from utils.drills.numeric.asking import question, some


@numeric_card(
    "phase6/quantised-size",
    section="6.14",
    exercise="quantize",
    minutes=2,
    level="junior",
    source="notes 002 §6.6, 7.2 (slip D49)",
    answer="Parameters · bits / 8, plus a scale for each group of weights.",
    follow_ups=["How many bits per weight is that?"],
)
def quantised_size(rng):
    """How large is a quantised model?"""
    params, bits, group = some(rng, 1.5, 3.0, 7.0, 13.0), some(rng, 4, 8), some(rng, 32, 64)
    plain, scales = params * bits / 8, params / group * 2
    return question(
        f"{params:g}·10⁹ weights at {bits} bits, with a 16-bit scale for each group of {group}. How many GB (10⁹ "
        "bytes)?",
        plain + scales,
        "GB",
        f"{params:g} · {bits}/8 + {params:g}/{group} · 2 = {plain:g} + {scales:.4g}",
        [
            (plain, "The scales take room, too."),
            (params * bits + scales, "A byte has 8 bits."),
            (params * 2, "That is float16."),
            (plain + params * 2, "One scale for a whole group, not for each weight."),
            (plain + scales / 2, "A scale of 16 bits takes 2 bytes."),
        ],
        tolerance=0.008,
    )


@numeric_card(
    "phase6/rounded-weight",
    section="6.14",
    exercise="quantize",
    minutes=3,
    level="junior",
    source="course 6.14",
    answer="scale = largest |w| / (2^(bits−1) − 1); round to nearest, times scale.",
    follow_ups=["How large can the error be at most?"],
)
def rounded_weight(rng):
    """What does a weight become when it is quantised and back?"""
    largest, weight = some(rng, 0.9, 1.1, 1.3, 1.7), some(rng, 0.36, 0.47, 0.56, -0.36, -0.56)  # no ties
    levels = 7
    scale = largest / levels
    steps = round(weight / scale)
    return question(
        f"A row whose largest weight is {-largest:g} is quantised symmetrically to 4 bits (integers −7 to 7). What "
        f"does its weight {weight:g} become?",
        steps * scale,
        "",
        f"scale {largest:g}/7 = {scale:.4f}; {weight:g}/{scale:.4f} = {weight / scale:.3f}, rounded {steps}; back "
        f"{steps * scale:.4f}",
        [
            (round(weight / (largest / 8)) * largest / 8, "The largest integer is 7, not 8."),
            (round(weight / (largest / 15)) * largest / 15, "Half of the 15 steps are negative numbers: divide by 7."),
            (math.floor(weight / scale) * scale, "Round to nearest, not down."),
            (math.trunc(weight / scale) * scale, "Round to nearest, do not cut off."),
            (float(steps), "That is the integer; multiply by the scale."),
            (weight, "Some of it is lost: there are only 15 values."),
        ],
        tolerance=0.004,
    )


@numeric_card(
    "phase6/packed-byte",
    section="6.16",
    exercise="pack_int4",
    minutes=3,
    level="staff",
    source="course 6.16",
    answer="Keep four bits of each (two's complement: add 16 to negative ones); the first in the low half.",
    follow_ups=["How do you get the first number back?"],
)
def packed_byte(rng):
    """Which byte holds two 4-bit numbers?"""
    low, high = rng.randrange(-8, 0), rng.randrange(1, 8)
    if rng.random() < 0.5:
        low, high = high, low
    byte = (low & 15) | (high & 15) << 4
    return question(
        f"The int4 numbers {low} and {high} are packed into one byte: two's complement, the first in the low half. "
        "Which number is the byte (0–255)?",
        byte,
        "",
        f"{low & 15} + 16 · {high & 15} = {byte}",
        [
            ((high & 15) | (low & 15) << 4, "The first one goes into the low half."),
            ((low + 8) | (high + 8) << 4, "Two's complement, not plus 8."),
            (abs(low) | abs(high) << 4, "The sign is lost."),
        ],
        tolerance=0,
    )


@numeric_card(
    "phase6/window-cache",
    section="6.18",
    exercise="RollingKVCache",
    minutes=2,
    level="senior",
    source="notes 002 §6.6, 7.3–7.4",
    answer="The window and the sinks, once each, as far as that many tokens were seen.",
    follow_ups=["What is lost, and what can no model answer then?"],
)
def window_cache(rng):
    """How many tokens does a rolling cache hold?"""
    window, sinks = some(rng, 128, 256, 512), some(rng, 4, 8, 16)
    seen = window + rng.randrange(2, 400) + sinks
    return question(
        f"A rolling cache with window {window} and {sinks} sinks has seen {seen} tokens. How many does it hold?",
        window + sinks,
        "tokens",
        f"the first {sinks} and the last {window}",
        [
            (window, "The sinks come on top of the window."),
            (seen, "It stops growing."),
            (window - sinks, "The window is not made smaller by the sinks."),
            (seen - window, "That is how many have left the window."),
        ],
        tolerance=0,
    )


@numeric_card(
    "phase6/guesses-that-stand",
    section="6.21",
    exercise="speculative_accept",
    minutes=4,
    level="staff",
    source="notes 002 §6.6, 7.5 (slip D50); Leviathan et al. 2023",
    answer="Guess i stands if all before it do: α^i. Add the one token that the target gives: 1 + α + … + α^γ.",
    follow_ups=["When is a longer draft no gain any more?"],
)
def guesses_that_stand(rng):
    """How many tokens does a pass of the target yield?"""
    alpha, guesses = some(rng, 0.6, 0.7, 0.8, 0.9), rng.randrange(3, 8)
    answer = (1 - alpha ** (guesses + 1)) / (1 - alpha)
    return question(
        f"Speculative decoding with {guesses} guesses a round, each accepted with probability {alpha:g}, "
        "independently. How many tokens does one pass of the target yield on average?",
        answer,
        "tokens",
        f"(1 − {alpha:g}^{guesses + 1}) / (1 − {alpha:g}) = {answer:.3f}",
        [
            (answer - 1, "The target adds one token of its own in every round."),
            (1 + alpha * guesses, "After the first failure nothing passes."),
            (alpha * guesses, "After the first failure nothing passes, and the target adds one token."),
            (guesses + 1.0, "That is the best case."),
            (1 / (1 - alpha), "That is for endless drafts."),
        ],
        tolerance=0.005,
    )


@numeric_card(
    "phase6/bound-by-bandwidth",
    section="6.11",
    exercise="serving_plan",
    minutes=2,
    level="junior",
    source="notes 002 §6.6, item 9 (slip D48)",
    answer="A single sequence reads all weights for each token: bandwidth / bytes.",
    follow_ups=["And for eight users at once?"],
)
def bound_by_bandwidth(rng):
    """How many tokens a second can one sequence get at most?"""
    params, bits, bandwidth = some(rng, 3, 7, 13), some(rng, 4, 8, 16), some(rng, 50, 60, 100)
    size = params * bits / 8
    return question(
        f"A model of {params}·10⁹ weights at {bits} bits on a device that reads {bandwidth} GB/s. At most how many "
        "tokens a second, for one user, cache left out?",
        bandwidth / size,
        "tokens/s",
        f"{bandwidth} / {size:g} = {bandwidth / size:.2f}",
        [
            (bandwidth / params, "A weight takes bits / 8 bytes."),
            (bandwidth / (params * bits), "A byte has 8 bits."),
            (bandwidth / (2 * size), "Two is the number of operations per weight; each weight is read once."),
            (size / bandwidth, "Those are seconds for one token."),
        ],
    )


@numeric_card(
    "phase6/users-that-fit",
    section="6.22",
    exercise="serving_plan",
    minutes=4,
    level="senior",
    source="course 6.22",
    answer="What the weights leave, divided by one sequence's cache, rounded down.",
    follow_ups=["What would an 8-bit cache change?"],
)
def users_that_fit(rng):
    """How many sequences fit beside the weights?"""
    params, layers, groups = some(rng, 7, 8, 13), some(rng, 32, 40), some(rng, 4, 8)
    length, d_head, memory = some(rng, 4000, 8000), 128, 80
    weights, cache = 2 * params, 2 * layers * groups * d_head * length * 2 / 1e9
    answer = math.floor((memory - weights) / cache)
    return question(
        f"{params}·10⁹ weights at 16 bits on a card of 80 GB. {layers} layers, {groups} key-value heads of width "
        f"{d_head}, cache at 16 bits, sequences of {length} tokens. How many whole sequences fit (GB = 10⁹ bytes)?",
        answer,
        "sequences",
        f"(80 − {weights}) GB / {cache:.4f} GB = {(memory - weights) / cache:.2f}, whole ones: {answer}",
        [
            (math.floor(memory / cache), "The weights take their share of the memory."),
            (math.floor(2 * (memory - weights) / cache), "Keys and values: two tensors; and 16 bits are two bytes."),
            (math.floor((memory - params) / cache), "16 bits are two bytes per weight."),
            (answer + 1, "Only whole ones fit: round down."),
        ],
        tolerance=0,
    )


@numeric_card(
    "phase6/first-token",
    section="6.24",
    exercise="design_numbers",
    minutes=3,
    level="senior",
    source="notes 002 §6.6, item 9 (slip D48)",
    answer="2 · parameters · tokens for the matrices, 2 · layers · d_model · n² for causal attention; divide by the "
    "speed.",
    follow_ups=["What would a cached prefix of half the prompt save?"],
)
def first_token(rng):
    """How long does a prompt take?"""
    params, layers, width = rng.choice([(3.0, 28, 3072), (7.0, 32, 4096)])
    tokens, power = some(rng, 4000, 8000, 16_000), some(rng, 2, 5, 10)
    matrices, attention = 2 * params * 1e9 * tokens, 2 * layers * width * tokens**2
    seconds = (matrices + attention) / (power * 1e12)
    return question(
        f"{params:g}·10⁹ weights, {layers} layers, d_model {width}. A prompt of {tokens:,} tokens on a chip that "
        f"really makes {power}·10¹² operations a second. How many seconds until the first token, causal attention "
        "included?",
        seconds,
        "s",
        f"(2 · {params:g}·10⁹ · {tokens} + 2 · {layers} · {width} · {tokens}²) / {power}·10¹² = {seconds:.2f}",
        [
            (matrices / (power * 1e12), "Attention grows with the square of the prompt: it is missing."),
            (seconds / 2, "A multiply-add is two operations."),
            ((matrices + 2 * attention) / (power * 1e12), "Causal: a token meets half of the others on average."),
            ((3 * matrices + 3 * attention) / (power * 1e12), "Six per weight is training; reading takes two."),
        ],
    )


@numeric_card(
    "phase6/soft-gradients",
    section="6.12",
    exercise="distillation_loss",
    minutes=2,
    level="senior",
    source="course 6.12; Hinton et al. 2015, §2",
    answer="Both sides are softened by T, so the soft part's gradient shrinks by about T²; the loss is multiplied by "
    "T².",
    follow_ups=["At which T do both parts weigh the same here?"],
)
def soft_gradients(rng):
    """What is a distillation loss, from its two parts?"""
    heat, alpha = some(rng, 2.0, 3.0, 4.0), some(rng, 0.3, 0.6, 0.7)
    soft, hard = some(rng, 0.12, 0.2, 0.35), some(rng, 1.4, 2.2, 2.9)
    answer = alpha * heat**2 * soft + (1 - alpha) * hard
    return question(
        f"At temperature {heat:g} the divergence from teacher to student is {soft:g}; the cross-entropy with the text "
        f"is {hard:g}. α = {alpha:g} is the teacher's share. What is the loss, as in this course?",
        answer,
        "",
        f"{alpha:g} · {heat:g}² · {soft:g} + {1 - alpha:.1f} · {hard:g} = {answer:.4f}",
        [
            (alpha * soft + (1 - alpha) * hard, "The soft part is multiplied by T²."),
            (alpha * heat * soft + (1 - alpha) * hard, "T², not T."),
            ((1 - alpha) * heat**2 * soft + alpha * hard, "α is the teacher's share."),
            (alpha * heat**2 * soft + hard, "The text gets the rest, 1 − α."),
            (
                heat**2 * (alpha * soft + (1 - alpha) * hard),
                "Only the soft part is multiplied; the text is met at temperature 1.",
            ),
        ],
    )


@numeric_card(
    "phase6/reading-window",
    section="6.17",
    exercise="sliding_window_mask",
    minutes=3,
    level="senior",
    source="notes 002 §6.6, 7.3",
    answer="Row i sees min(i + 1, window) keys.",
    follow_ups=["Of which order is that for long texts?"],
)
def reading_window(rng):
    """How many entries of a sliding-window mask are True?"""
    window, length = rng.randrange(3, 9), rng.randrange(12, 40)
    answer = sum(min(i + 1, window) for i in range(length))
    return question(
        f"A causal sliding window of {window} over {length} tokens. How many entries of the mask are True? (The "
        "window counts the token itself.)",
        answer,
        "",
        f"{length} · {window} − {window} · {window - 1}/2 = {answer}",
        [
            (length * window, "The first rows have fewer tokens before them."),
            (sum(min(i + 1, window + 1) for i in range(length)), "The window counts the token itself."),
            (length * (length + 1) // 2, "That is the whole causal mask."),
            (sum(min(i, window - 1) for i in range(length)), "A token sees itself."),
        ],
        tolerance=0,
    )
