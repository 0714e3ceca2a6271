"""Numbers of phase 7: what a run costs, and what its numbers are worth."""

import math

from utils.drills.card import numeric_card
from utils.drills.numeric.asking import question, some


@numeric_card(
    "phase7/operations-per-token",
    section="7.3",
    exercise="flops_per_token",
    minutes=4,
    level="senior",
    source="course 7.3; Chowdhery et al. 2022, appendix B",
    answer="6 for each entry of a matrix that multiplies, the output layer among them, and 12 · L · d · T for "
    "attention over all keys.",
    follow_ups=["At which length is attention half of it?"],
)
def operations_per_token(rng):
    """How many operations does training take per token?"""
    layers, width, vocab = some(rng, 10, 12, 24), some(rng, 512, 640, 768), some(rng, 32_000, 50_304)
    length = some(rng, 2048, 4096)
    entries, products = 12 * width * width * layers + vocab * width, 12 * layers * width * length
    answer = 6 * entries + products
    return question(
        f"A decoder-only model: {layers} layers, d_model {width} (d_ff four times as wide), vocabulary {vocab:,}, "
        f"tied. How many **million** operations does training take per token at {length} tokens, counting all keys "
        "(PaLM's convention)?",
        answer / 1e6,
        "million",
        f"6 · (12 · {width}² · {layers} + {vocab:,} · {width}) + 12 · {layers} · {width} · {length} = "
        f"{answer / 1e6:,.1f}·10⁶",
        [
            ((6 * entries + products / 2) / 1e6, "That is the causal convention: half of the keys."),
            (6 * entries / 1e6, "Attention's products are missing."),
            ((answer - 6 * vocab * width) / 1e6, "A tied output layer multiplies, too."),
            ((answer + 6 * vocab * width) / 1e6, "The input table is looked up, not multiplied."),
            (answer / 3e6, "That is forward alone; backward takes twice as much."),
            (answer / 2e6, "A multiplication and an addition are two."),
        ],
        tolerance=0.004,
    )


@numeric_card(
    "phase7/state-in-memory",
    section="7.4",
    exercise="training_memory",
    minutes=2,
    level="junior",
    source="course 7.4",
    answer="Weights 4, gradients 4, AdamW's two moments 8: 16 bytes per parameter in float32.",
    follow_ups=["What do bfloat16 weights with float32 masters take?"],
)
def state_in_memory(rng):
    """How much memory does the state of a training run take?"""
    params = some(rng, 0.124, 0.35, 1.3, 3.0, 7.0)
    return question(
        f"{params:g}·10⁹ parameters, AdamW, everything in float32. How many GB (10⁹ bytes) do weights, gradients and "
        "the optimiser take, without activations?",
        16 * params,
        "GB",
        f"(4 + 4 + 8) · {params:g} = {16 * params:g} GB",
        [
            (12 * params, "Adam keeps two numbers per parameter; or the gradients are missing."),
            (4 * params, "Those are the weights alone."),
            (8 * params, "The optimiser's two moments are missing."),
            (4 * 8 * params, "Four numbers per parameter, of 4 bytes each."),
        ],
    )


@numeric_card(
    "phase7/logits-in-memory",
    section="7.4",
    exercise="training_memory",
    minutes=2,
    level="senior",
    source="course 7.4",
    answer="A logit and its gradient for each token and word, 4 bytes each.",
    follow_ups=["How can a loss avoid that table?"],
)
def logits_in_memory(rng):
    """How much memory do the logits take in training?"""
    batch, length, vocab = some(rng, 8, 16, 32), some(rng, 1024, 2048), some(rng, 32_000, 50_304, 128_256)
    numbers = batch * length * vocab
    return question(
        f"Batch {batch}, {length} tokens, vocabulary {vocab:,}. How many GB (10⁹ bytes) do the logits and their "
        "gradient take in float32?",
        8 * numbers / 1e9,
        "GB",
        f"2 · 4 · {batch} · {length} · {vocab:,} = {8 * numbers / 1e9:.2f} GB",
        [
            (4 * numbers / 1e9, "Logits and their gradient: two tables."),
            (2 * numbers / 1e9, "float32 takes 4 bytes, and there are two tables."),
            (8 * numbers / batch / 1e9, "Each sequence has its own."),
            (8 * numbers / length / 1e9, "Each token has its own, not only the last."),
        ],
    )


@numeric_card(
    "phase7/utilisation",
    section="7.16",
    exercise="mfu",
    minutes=2,
    level="junior",
    source="course 7.16",
    answer="Tokens per second · operations per token / peak.",
    follow_ups=["Where does the rest go?"],
)
def utilisation(rng):
    """Which share of the peak goes into the model?"""
    speed, flops, peak = some(rng, 40_000, 90_000, 150_000), some(rng, 0.8, 1.0, 1.4), some(rng, 300, 400, 750)
    share = speed * flops * 1e9 / (peak * 1e12)
    return question(
        f"{speed:,} tokens a second, {flops:g}·10⁹ operations per token (training included), a measured peak of "
        f"{peak}·10¹² a second. What is the utilisation, in per cent?",
        100 * share,
        "%",
        f"{speed:,} · {flops:g}·10⁹ / {peak}·10¹² = {100 * share:.2f} %",
        [
            (300 * share, "The operations are those of training already."),
            (100 / share, "What was used over what there is."),
            (share, "In per cent."),
            (600 * share, "The 6 is in the operations per token already."),
        ],
    )


@numeric_card(
    "phase7/bits-of-a-text",
    section="7.14",
    exercise="bits_per_byte",
    minutes=2,
    level="junior",
    source="course 7.14",
    answer="Nats per token / ln 2, divided by the bytes of a token.",
    follow_ups=["What does a compressor such as bz2 reach on code, roughly, and why compare?"],
)
def bits_of_a_text(rng):
    """How many bits per byte is a loss?"""
    loss, size = some(rng, 1.8, 2.2, 2.6, 3.1), some(rng, 2.6, 3.4, 3.9, 4.3)
    answer = loss / math.log(2) / size
    return question(
        f"A mean loss of {loss:g} nats per token; a token has {size:g} bytes on average. How many bits per byte?",
        answer,
        "bits/byte",
        f"{loss:g} / 0.6931 / {size:g} = {answer:.4f}",
        [
            (loss / size, "Those are nats: divide by ln 2."),
            (loss * math.log(2) / size, "Bits are smaller, so there are more: divide by ln 2."),
            (loss / math.log(2), "Those are bits per token."),
            (loss / math.log(2) * size, "Divide by the bytes of a token."),
        ],
    )


@numeric_card(
    "phase7/penalty-for-brevity",
    section="7.10",
    exercise="bleu",
    minutes=2,
    level="senior",
    source="course 7.10; Papineni et al. 2002",
    answer="exp(1 − r/h) if the outputs have fewer words than the references.",
    follow_ups=["Why is there no penalty for length?"],
)
def penalty_for_brevity(rng):
    """Which brevity penalty does BLEU give?"""
    wanted, share = some(rng, 800, 1000, 1200), some(rng, 0.6, 0.7, 0.8, 0.9)
    said = round(wanted * share)
    answer = math.exp(1 - wanted / said)
    return question(
        f"The references have {wanted} words, the outputs {said}. What is BLEU's brevity penalty?",
        answer,
        "",
        f"exp(1 − {wanted}/{said}) = {answer:.4f}",
        [
            (said / wanted, "The penalty is exp(1 − r/h), not the ratio."),
            (math.exp(1 - said / wanted), "Reference length over output length."),
            (1.0, "Too short must cost."),
            (math.exp(-wanted / said), "At equal length it must be 1: exp(1 − r/h)."),
        ],
        tolerance=0.004,
    )


@numeric_card(
    "phase7/joint-gradient",
    section="7.18",
    exercise="average_gradients",
    minutes=2,
    level="junior",
    source="course 7.18",
    answer="Weigh each rank's mean by its share of all tokens.",
    follow_ups=["And with a third rank that has no token?"],
)
def joint_gradient(rng):
    """Which gradient do two ranks agree on?"""
    one, two = some(rng, 0.2, 0.5, 0.8), some(rng, 1.4, 2.0, 2.6)
    many, few = some(rng, 600, 900, 1500), some(rng, 100, 200, 300)
    answer = (one * many + two * few) / (many + few)
    return question(
        f"Rank 0: mean gradient {one:g} over {many} tokens. Rank 1: {two:g} over {few}. What is the gradient of the "
        "mean over all tokens?",
        answer,
        "",
        f"({one:g} · {many} + {two:g} · {few}) / {many + few} = {answer:.4f}",
        [
            ((one + two) / 2, "Ranks do not weigh alike: count their tokens."),
            (one + two, "A mean, not a sum."),
            ((one * few + two * many) / (many + few), "More tokens weigh more, not less."),
        ],
    )


@numeric_card(
    "phase7/days-of-training",
    section="7.19",
    exercise="mfu",
    minutes=3,
    level="senior",
    source="course 7.3, 7.16, 7.19",
    answer="6 · N · D operations, divided by what the device really makes: peak · utilisation.",
    follow_ups=["What do eight such devices make of it, at best?"],
)
def days_of_training(rng):
    """How long does a run take?"""
    params, tokens = some(rng, 0.124, 0.35, 1.3), some(rng, 10, 30, 60)
    peak, share = some(rng, 300, 400, 750), some(rng, 0.3, 0.4, 0.45)
    hours = 6 * params * 1e9 * tokens * 1e9 / (peak * 1e12 * share) / 3600
    return question(
        f"{params:g}·10⁹ parameters on {tokens}·10⁹ tokens; a peak of {peak}·10¹² operations a second, used to "
        f"{100 * share:g} %. How many hours, with 6 operations per parameter and token?",
        hours,
        "h",
        f"6 · {params:g}·10⁹ · {tokens}·10⁹ / ({peak}·10¹² · {share:g}) / 3600 = {hours:,.2f} h",
        [
            (hours * share, "No device reaches its peak: divide by the utilisation."),
            (hours / 3, "Two operations are the forward pass; training takes six."),
            (hours * share**2, "Divide by the utilisation, do not multiply."),
            (hours * 60, "Those are minutes."),
            (hours / 24, "Those are days."),
        ],
    )


@numeric_card(
    "phase7/targets-of-a-text",
    section="7.7",
    exercise="evaluate",
    minutes=2,
    level="senior",
    source="course 7.7",
    answer="Every token but the first is a target once; windows begin every seq_len tokens.",
    follow_ups=["How many windows are there?"],
)
def targets_of_a_text(rng):
    """How many targets stand in the last window?"""
    length, windows = some(rng, 32, 64, 128), rng.randrange(4, 12)
    rest = rng.randrange(5, length - 4)
    tokens = windows * length + rest + 1
    return question(
        f"A text of {tokens} tokens is evaluated in windows of {length} inputs, each target exactly once. How many "
        "targets has the **last** window?",
        rest,
        "targets",
        f"{tokens} − 1 = {tokens - 1} targets, {windows} whole windows of {length}: {rest} are left",
        [
            (rest + 1, "The first token of the text is nobody's target."),
            (length, "It is shorter: what is left."),
            (rest - 1, "Neighbouring windows share a token; no target is lost at a seam."),
            (0, "The last, shorter window counts, too."),
        ],
        tolerance=0,
    )
