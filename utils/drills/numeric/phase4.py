"""Numbers of phase 4: norms by hand, weights of blocks, first losses."""

import math

from utils.drills.card import numeric_card
from utils.drills.numeric.asking import listed, question, some


def spread(token):
    mean = sum(token) / len(token)
    return mean, sum((one - mean) ** 2 for one in token) / len(token)


def a_token(rng):
    """Four numbers that are not alike, with a mean off 0, the first off the mean."""
    while True:
        token = [float(rng.randrange(-3, 9)) for _ in range(4)]
        mean, variance = spread(token)
        if variance > 1.5 and abs(mean) > 0.8 and abs(token[0] - mean) > 0.7 and abs(token[0]) > 0.5:
            return token


@numeric_card(
    "phase4/norm-by-hand",
    section="4.2",
    exercise="layer_norm",
    minutes=4,
    level="junior",
    source="notes 000 §6 (slip A2)",
    answer="Subtract the token's mean, divide by the root of its variance; the variance is the mean of squares "
    "(divided by n).",
    follow_ups=["What do all four entries add up to, and their squares?"],
)
def norm_by_hand(rng):
    """What does layer norm make of an entry?"""
    token = a_token(rng)
    mean, variance = spread(token)
    answer = (token[0] - mean) / math.sqrt(variance)
    return question(
        f"Layer norm without scale and shift, ε = 0, of the token [{listed(token)}]. What becomes of the first entry?",
        answer,
        "",
        f"mean {mean:g}, variance {variance:.4f}: ({token[0]:g} − {mean:g}) / {math.sqrt(variance):.4f} = {answer:.4f}",
        [
            (answer * math.sqrt(3 / 4), "You divided by n − 1: layer norm uses the biased variance."),
            ((token[0] - mean) / variance, "Divide by the deviation, not by the variance."),
            (token[0] / math.sqrt(sum(one**2 for one in token) / 4), "That is RMSNorm: no mean was subtracted."),
            (token[0] / math.sqrt(variance), "The mean was not subtracted."),
        ],
    )


@numeric_card(
    "phase4/rms-by-hand",
    section="4.4",
    exercise="RMSNorm",
    minutes=3,
    level="junior",
    source="course 4.4; Zhang and Sennrich 2019, §4",
    answer="Divide by the root of the mean of squares. Nothing is subtracted.",
    follow_ups=["For which tokens do both norms agree?"],
)
def rms_by_hand(rng):
    """What does RMSNorm make of an entry?"""
    token = a_token(rng)
    mean, variance = spread(token)
    square = sum(one**2 for one in token)
    return question(
        f"RMSNorm without scale, ε = 0, of the token [{listed(token)}]. What becomes of the first entry?",
        token[0] / math.sqrt(square / 4),
        "",
        f"mean of squares {square / 4:g}: {token[0]:g} / {math.sqrt(square / 4):.4f}",
        [
            (token[0] / math.sqrt(square), "The mean of squares, not their sum: length 1 is something else."),
            ((token[0] - mean) / math.sqrt(variance), "That is layer norm; nothing is centred here."),
            (token[0] / (square / 4), "Take the root."),
        ],
    )


@numeric_card(
    "phase4/ffn-parameters",
    section="4.6",
    exercise="FeedForward",
    minutes=2,
    level="junior",
    source="notes 003, parameters (slip A24)",
    answer="d · d_ff + d_ff out, d_ff · d + d back.",
    follow_ups=["Which share of a block is that?"],
)
def ffn_parameters(rng):
    """How many parameters has a feed-forward layer?"""
    width, times = some(rng, 128, 256, 512, 768, 1024), some(rng, 2, 3, 4)
    hidden = times * width
    return question(
        f"A feed-forward layer (two matrices, with biases), d_model {width}, d_ff {hidden}. How many parameters?",
        2 * width * hidden + hidden + width,
        "",
        f"2 · {width} · {hidden} + {hidden} + {width}",
        [
            (2 * width * hidden, "You left out the biases."),
            (2 * width * hidden + 2 * width, "A bias is as wide as its layer's output: d_ff and d."),
            (width * hidden + hidden, "There is a way back: two matrices."),
            (2 * width * hidden + 2 * hidden, "The second layer's bias is d_model wide."),
            (3 * width * hidden, "Three matrices are SwiGLU's."),
        ],
        tolerance=0,
    )


@numeric_card(
    "phase4/swiglu-width",
    section="4.6",
    exercise="SwiGLU",
    minutes=2,
    level="senior",
    source="notes 001 §6 (slip C14); Shazeer 2020",
    answer="Three matrices against two: 3 · d · h = 2 · d · d_ff, so h = 2/3 of d_ff.",
    follow_ups=["Why do published widths not fit exactly?"],
)
def swiglu_width(rng):
    """How wide may a gated layer be at the same price?"""
    width, times = some(rng, 384, 768, 1536, 3072, 4608), some(rng, 2, 4)
    return question(
        f"A feed-forward layer of two matrices goes from {width} to {times * width} and back. How wide may SwiGLU "
        "(three matrices) be to have as many weights? No biases.",
        2 * times * width // 3,
        "",
        f"2 · {times * width} / 3",
        [
            (times * width, "Then it has half as many weights again: three matrices, not two."),
            (times * width // 2, "The third matrix makes 3 of 2, not 4 of 2."),
            (times * width // 3, "Two matrices are there already: two thirds, not one third."),
            (3 * times * width // 2, "The other way round: it must be narrower."),
        ],
        tolerance=0,
    )


@numeric_card(
    "phase4/weights-of-a-stack",
    section="4.14",
    exercise="count_parameters",
    minutes=3,
    level="junior",
    source="notes 003 (slip A24)",
    answer="4 d² in attention and 8 d² in a feed-forward layer four times as wide: 12 d² per encoder block; a decoder "
    "block with cross-attention has 16 d².",
    follow_ups=["How many in attention, how many in feed-forward layers?"],
)
def weights_of_a_stack(rng):
    """How many weights do the matrices of a stack have?"""
    width, layers, reads = some(rng, 256, 512, 768, 1024), rng.randrange(4, 25), rng.random() < 0.5
    per_block, kind = (16, "decoder blocks with cross-attention") if reads else (12, "encoder blocks")
    return question(
        f"{layers} {kind}, d_model {width}, d_ff 4 · {width}. How many million weights do their matrices have? (No "
        "biases, norms, embeddings.)",
        per_block * width * width * layers / 1e6,
        "million",
        f"{per_block} · {width}² · {layers} = {per_block * width * width * layers:,}",
        [
            (
                (28 - per_block) * width * width * layers / 1e6,
                "12 d² is an encoder block; with cross-attention it is 16 d².",
            ),
            ((per_block - 8) * width * width * layers / 1e6, "You left out the feed-forward layers: 8 d² each."),
            (
                (per_block - 4) * width * width * layers / 1e6,
                "Going out and back are two matrices of 4 d²; attention has four of d².",
            ),
            (per_block * width * width / 1e6, "That is one block."),
        ],
    )


@numeric_card(
    "phase4/gpt-total",
    section="4.14",
    exercise="count_parameters",
    minutes=4,
    level="senior",
    source="course 4.14",
    answer="V·d for the tokens, max_len·d for learned positions, 12 d² per block; a tied output adds nothing.",
    follow_ups=["At which depth does the table fall below ten per cent?"],
)
def gpt_total(rng):
    """How large is a decoder-only model?"""
    vocab, places = some(rng, 16_000, 32_000, 50_257), some(rng, 1024, 2048, 4096)
    width, layers = some(rng, 512, 768, 1024), some(rng, 6, 12, 24)
    blocks, table, learned = 12 * width * width * layers, vocab * width, places * width
    answer = table + learned + blocks
    return question(
        f"Decoder-only, vocabulary {vocab:,}, learned positions up to {places}, d_model {width}, {layers} blocks "
        "(d_ff four times as wide), output tied. How many million parameters, without biases and norms?",
        answer / 1e6,
        "million",
        f"{vocab:,} · {width} + {places} · {width} + 12 · {width}² · {layers} = {answer:,}",
        [
            ((answer + table) / 1e6, "Tied: the output layer is the table itself, counted once."),
            ((answer - learned) / 1e6, "Learned positions are parameters, too."),
            (blocks / 1e6, "That is the blocks alone."),
            ((answer + blocks / 3) / 1e6, "A decoder-only block has no cross-attention: 12 d², not 16."),
        ],
        tolerance=0.001,
    )


@numeric_card(
    "phase4/sums-on-the-way",
    section="4.14",
    exercise="residual_census",
    minutes=1,
    level="junior",
    source="notes 000 §13",
    answer="Two in an encoder block, three in a decoder block.",
    follow_ups=["How many norms does the model have, pre-norm?"],
)
def sums_on_the_way(rng):
    """How many residual additions does a model make?"""
    encoder, decoder = rng.randrange(3, 13), rng.randrange(3, 13)
    return question(
        f"An encoder-decoder with {encoder} encoder and {decoder} decoder blocks. How many residual additions are "
        "there?",
        2 * encoder + 3 * decoder,
        "",
        f"2 · {encoder} + 3 · {decoder}",
        [
            (2 * encoder + 2 * decoder, "A decoder block has three: cross-attention is added, too."),
            (3 * encoder + 2 * decoder, "Encoder and decoder are mixed up."),
            (encoder + decoder, "One for each sub-layer, not for each block."),
        ],
        tolerance=0,
    )


@numeric_card(
    "phase4/first-loss",
    section="4.15",
    exercise="init_weights",
    minutes=2,
    level="junior",
    source="notes 001, debugging list; course 4.15",
    answer="A model that knows nothing gives every token about 1/V: the loss is ln V.",
    follow_ups=["What is that in bits?"],
)
def first_loss(rng):
    """What is the loss of an untrained model?"""
    vocab = some(rng, 5_000, 16_000, 32_000, 50_257, 100_000, 128_256)
    return question(
        f"A fresh, well initialised language model with {vocab:,} tokens. Which loss (in nats) do you expect before "
        "the first step?",
        math.log(vocab),
        "nats",
        f"ln {vocab:,} = {math.log(vocab):.3f}",
        [
            (math.log2(vocab), "Those are bits; the loss uses the natural logarithm."),
            (math.log10(vocab), "The natural logarithm, not that to base 10."),
            (float(vocab), "That is the perplexity."),
        ],
    )


@numeric_card(
    "phase4/quiet-start",
    section="4.12",
    exercise="init_weights",
    minutes=2,
    level="senior",
    source="course 4.12; Radford et al. 2019, §2.3",
    answer="Two branches per block write into the stream, so 2·L of them add up: divide by √(2L).",
    follow_ups=["Which matrices are meant, by name?"],
)
def quiet_start(rng):
    """With which deviation do the matrices start that write into the stream?"""
    std, layers = some(rng, 0.01, 0.02, 0.04), some(rng, 6, 12, 24, 36, 48)
    return question(
        f"Matrices start with standard deviation {std:g}; those that write into the residual stream are scaled for "
        f"{layers} blocks as in GPT-2. With which deviation do they start?",
        std / math.sqrt(2 * layers),
        "",
        f"{std:g} / √(2 · {layers}) = {std / math.sqrt(2 * layers):.5f}",
        [
            (std / math.sqrt(layers), "Two branches per block write: 2·L."),
            (std / (2 * layers), "Variances add up: divide by the root."),
            (std, "That is for all the others."),
        ],
    )


@numeric_card(
    "phase4/growing-stream",
    section="4.13",
    exercise="gradient_norms",
    minutes=3,
    level="senior",
    source="notes 002 §4.2 (slips C11, D3)",
    answer="Independent variances add up: one, and one more for each branch.",
    follow_ups=["How much does block 24 then change the stream, relatively?"],
)
def growing_stream(rng):
    """How large does a pre-norm stream become?"""
    layers, branch = some(rng, 6, 12, 24, 32), some(rng, 0.25, 0.5, 2.0)
    answer = 1 + 2 * layers * branch
    return question(
        f"A pre-norm stream starts with variance 1. Each of {layers} blocks adds two branches, independent of it, "
        f"with variance {branch:g} each. What is its variance at the end?",
        answer,
        "",
        f"1 + 2 · {layers} · {branch:g} = {answer:g}: that is why a last norm is needed",
        [
            (1 + layers * branch, "A block adds two branches."),
            (math.sqrt(answer), "That is the standard deviation."),
            (1.0, "Only post-norm keeps it at 1."),
            (2 * layers * branch, "What came in is still there: the residual."),
        ],
    )


@numeric_card(
    "phase4/gelu-value",
    section="4.5",
    exercise="gelu",
    minutes=3,
    level="senior",
    source="notes 000 §7 (slips A3, A4)",
    answer="x times the share of a standard normal law below x: x/2 · (1 + erf(x/√2)).",
    follow_ups=["Where is GELU's minimum, roughly?"],
)
def gelu_value(rng):
    """What is GELU at a point?"""
    x = some(rng, -1.5, -1.2, -0.7, -0.4, 0.3, 0.6, 0.8, 1.2)
    share = 0.5 * (1 + math.erf(x / math.sqrt(2)))
    return question(
        f"What is GELU({x:g}), in its exact form? A standard normal variable is below {x:g} with probability "
        f"{share:.4f}.",
        x * share,
        "",
        f"{x:g} · {share:.4f} = {x * share:.4f}",
        [
            (max(x, 0.0), "That is ReLU; GELU lets small negative numbers through."),
            (x / (1 + math.exp(-x)), "That is SiLU: x · sigmoid(x)."),
            (share, "The share itself is not the answer: multiply by x."),
        ],
        tolerance=0.004,
    )
