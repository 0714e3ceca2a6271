"""Numbers of phase 1: tables, waves, padding, bytes."""

import math

from utils.drills.card import numeric_card
from utils.drills.numeric.asking import listed, question, some


@numeric_card(
    "phase1/table-megabytes",
    section="1.7",
    exercise="embed",
    minutes=2,
    level="junior",
    source="notes 004 §2.1",
    answer="Rows times width times bytes: one row for each id. A MB is 10⁶ bytes.",
    follow_ups=["Which share of a model of 100 million weights is that?"],
)
def table_megabytes(rng):
    """How many megabytes does an embedding table take?"""
    vocab, width = some(rng, 32_000, 50_257, 128_256), some(rng, 512, 768, 2048, 4096)
    size = some(rng, 2, 4)
    numbers = vocab * width
    return question(
        f"A table of {vocab:,} tokens and width {width} is kept in float{8 * size}. How many MB (10⁶ bytes)?",
        numbers * size / 1e6,
        "MB",
        f"{vocab:,} · {width} · {size} bytes = {numbers * size / 1e6:,.1f} MB",
        [
            (numbers / 1e6, f"You counted numbers; each of them takes {size} bytes."),
            (numbers * size * 8 / 1e6, "These are megabits: a byte has 8 bits."),
            (numbers * size / 2**20, "These are MiB of 2²⁰ bytes; a MB has 10⁶."),
        ],
    )


@numeric_card(
    "phase1/wavelength",
    section="1.9",
    exercise="sinusoidal_positions",
    minutes=3,
    level="senior",
    source="notes 000 §2 (slip A13)",
    answer="Pair i turns by base^(−2i/d) per place, so it comes round after 2π · base^(2i/d) places.",
    follow_ups=["Which pair hardly moves within 1,000 places?"],
)
def wavelength(rng):
    """After how many places does a pair of columns come round?"""
    width = some(rng, 8, 16, 32, 64)
    pair = rng.randrange(1, width // 2)
    answer = 2 * math.pi * 10000 ** (2 * pair / width)
    return question(
        f"Sinusoidal positions, width {width}, base 10000. After how many places does pair number {pair} (counted "
        f"from 0: columns {2 * pair} and {2 * pair + 1}) come round?",
        answer,
        "places",
        f"2π · 10000^({2 * pair}/{width}) = {answer:,.2f}",
        [
            (answer / (2 * math.pi), "A full turn is 2π, not 1."),
            (2 * math.pi * 10000 ** (pair / width), "The exponent is 2i/d, where i counts pairs."),
            (2 * math.pi * 10000 ** (4 * pair / width), "You doubled twice: 2i is the column already."),
            (2 * math.pi * 10000 ** (-2 * pair / width), "That is the way round: slow pairs have long waves."),
        ],
    )


@numeric_card(
    "phase1/no-ruler",
    section="1.11",
    exercise="position_distances",
    minutes=4,
    level="senior",
    source="notes 003, distance matrix (slip D10)",
    answer="A pair that turns by ω·k in k places adds 2 − 2·cos(ω k) to the squared distance. Sum over pairs, take "
    "the root.",
    follow_ups=["Why does it not matter where one starts?"],
)
def no_ruler(rng):
    """How far apart are the encodings of two places?"""
    start, steps = rng.randrange(0, 20), rng.randrange(2, 9)
    square = sum(2 - 2 * math.cos(steps * speed) for speed in (1.0, 0.01))
    return question(
        "Sinusoidal positions of width 4 (speeds 1 and 0.01, angles in radians). What is the Euclidean distance "
        f"between the rows of places {start} and {start + steps}?",
        math.sqrt(square),
        "",
        f"√((2 − 2 cos {steps}) + (2 − 2 cos {steps / 100:g})) = {math.sqrt(square):.4f}; where you start does not "
        "matter",
        [
            (square, "Take the root."),
            (float(steps), "That is the number of steps; the encodings are no ruler."),
            (math.sqrt(2), "√2 is the distance of any two one-hot vectors."),
            (math.sqrt(square / 2), "Sine and cosine both differ: a pair adds 2 − 2 cos, not 1 − cos."),
        ],
    )


@numeric_card(
    "phase1/padding-share",
    section="1.6",
    exercise="pad_batch",
    minutes=2,
    level="junior",
    source="course 1.6",
    answer="The rectangle is as wide as the longest sentence. Padding is what is left of it, as a share of the whole.",
    follow_ups=["How would sorting by length change it?"],
)
def padding_share(rng):
    """Which share of a batch is padding?"""
    lengths = [rng.randrange(4, 40) for _ in range(4)] + [rng.randrange(45, 90)]
    whole, real = len(lengths) * max(lengths), sum(lengths)
    return question(
        f"Sentences of {listed(lengths)} tokens become one batch. Which share of its places is padding, in per cent?",
        100 * (whole - real) / whole,
        "%",
        f"{len(lengths)} · {max(lengths)} = {whole} places, {real} real: {100 * (whole - real) / whole:.1f} %",
        [
            (100 * real / whole, "That is the share that is real."),
            (100 * (whole - real) / real, "You divided by the real tokens; the whole rectangle is asked."),
        ],
    )


@numeric_card(
    "phase1/vocabulary",
    section="1.5",
    exercise="Tokenizer",
    minutes=1,
    level="junior",
    source="course 1.5",
    answer="256 bytes, one token per merge, one id per special.",
    follow_ups=["What does doubling the vocabulary cost, and what does it save?"],
)
def vocabulary(rng):
    """How many ids does a byte-level tokenizer have?"""
    merges, specials = rng.randrange(1000, 60_000), rng.randrange(2, 9)
    return question(
        f"A byte-level BPE tokenizer has learned {merges:,} merges and has {specials} specials. How many ids are "
        "there?",
        256 + merges + specials,
        "ids",
        f"256 + {merges:,} + {specials}",
        [
            (merges + specials, "The 256 bytes are tokens, too."),
            (256 + merges, "Each special has an id of its own."),
            (256 + 2 * merges + specials, "A merge makes one new token; its parts were there before."),
            (255 + merges + specials, "A byte has 256 values, 0 to 255."),
        ],
        tolerance=0,
    )


@numeric_card(
    "phase1/utf8-bytes",
    section="1.3",
    exercise="bpe_train",
    minutes=2,
    level="junior",
    source="course 1.3",
    answer="UTF-8: ASCII takes 1 byte, é and ü take 2, 日 takes 3, 🙂 takes 4. Without merges each byte is a token.",
    follow_ups=["What does such a text cost a Japanese reader, compared with an English one?"],
)
def utf8_bytes(rng):
    """How many tokens is a text before any merge?"""
    plain, accents, signs, faces = (rng.randrange(3, 12), *(rng.randrange(1, 5) for _ in range(3)))
    text = "a" * plain + "é" * accents + "日" * signs + "🙂" * faces
    size = len(text.encode())
    return question(
        f"A text has {plain} plain letters, {accents} times é, {signs} times 日 and {faces} times 🙂. How many tokens "
        "does a byte-level tokenizer without merges make of it?",
        size,
        "tokens",
        f"{plain} · 1 + {accents} · 2 + {signs} · 3 + {faces} · 4 = {size}",
        [
            (len(text), "You counted characters; tokens start from bytes."),
            (len(text.encode("utf-16-le")), "That is UTF-16."),
            (4 * len(text), "That is UTF-32: UTF-8 takes 1 to 4 bytes."),
        ],
        tolerance=0,
    )


@numeric_card(
    "phase1/fading",
    section="1.2",
    exercise="rnn_forward",
    minutes=2,
    level="junior",
    source="notes 004 §1.1",
    answer="The same factor at every step: factor to the power of the number of steps.",
    follow_ups=["At which factor is half left after 40 steps?"],
)
def fading(rng):
    """How much of an influence is left after some steps?"""
    factor, steps = some(rng, 0.8, 0.85, 0.9, 0.95), rng.randrange(8, 40)
    return question(
        f"At each step of a recurrent network {factor:g} of an influence is left. Which share of it is left after "
        f"{steps} steps?",
        factor**steps,
        "",
        f"{factor:g}^{steps} = {factor**steps:.4g}",
        [
            (factor * steps, "Factors multiply; you multiplied by the number of steps once."),
            (factor / steps, "It does not fall like 1/n, it falls by a factor each time."),
            (1 - factor**steps, "That is what is gone."),
            (factor ** (steps + 1), "One step too many."),
        ],
    )
