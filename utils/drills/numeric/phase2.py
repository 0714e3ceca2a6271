"""Numbers of phase 2: spread, shares, slopes, cost."""

import math

from utils.drills.card import numeric_card
from utils.drills.numeric.asking import listed, question, some


def shares(scores):
    exps = [math.exp(score) for score in scores]
    return [one / sum(exps) for one in exps]


@numeric_card(
    "phase2/spread-of-scores",
    section="2.4",
    exercise="score_variance",
    minutes=2,
    level="junior",
    source="notes 000 §4",
    answer="Each product has variance σ_q² σ_k²; d of them add up; the deviation is the root.",
    follow_ups=["Which scale would you choose for these q and k?"],
)
def spread_of_scores(rng):
    """How far from 0 is a typical score?"""
    width, sigma_q, sigma_k = some(rng, 32, 64, 128, 256), some(rng, 1.5, 2, 3), some(rng, 0.5, 0.8, 1.2)
    deviation = sigma_q * sigma_k * math.sqrt(width)
    return question(
        f"Entries of q are independent with mean 0 and standard deviation {sigma_q:g}, those of k with {sigma_k:g}; "
        f"d_head is {width}. What is the standard deviation of q·k, unscaled?",
        deviation,
        "",
        f"{sigma_q:g} · {sigma_k:g} · √{width} = {deviation:.3f}",
        [
            (deviation**2, "That is the variance; take the root."),
            (sigma_q * sigma_k * width, "Variances add up, deviations do not: the root of d."),
            (sigma_q * sigma_k, "That is what is left after dividing by √d_head."),
            (math.sqrt(width), "That would be so for entries of variance 1."),
        ],
    )


@numeric_card(
    "phase2/scaled-share",
    section="2.3",
    exercise="attention_weights",
    minutes=4,
    level="junior",
    source="notes 002 §2.3 (slip A17)",
    answer="Divide each dot product by √d_head, exponentiate, divide by the sum.",
    follow_ups=["What happens to it as the width goes to infinity, if the dot products stay?"],
)
def scaled_share(rng):
    """Which weight does the first key get?"""
    width = some(rng, 4, 16, 64)
    root = math.sqrt(width)
    dots = [root * part for part in rng.sample([0.5, 1, 1.5, 2, 2.5, 3], 3)]
    answer = shares([dot / root for dot in dots])[0]
    return question(
        f"A query has the dot products {listed(dots)} with three keys; d_head is {width}. Which weight does the first "
        "key get?",
        answer,
        "",
        f"scores {listed(dot / root for dot in dots)}, then softmax: {answer:.4f}",
        [
            (shares(dots)[0], "You forgot to divide by √d_head."),
            (shares([dot / width for dot in dots])[0], "Divide by the root of d_head, not by d_head."),
            (dots[0] / sum(dots), "Shares of the scores themselves: softmax exponentiates first."),
        ],
    )


@numeric_card(
    "phase2/share-beside-a-hidden-key",
    section="2.2",
    exercise="masked_softmax",
    minutes=3,
    level="junior",
    source="notes 002 §2.4 (slip A18)",
    answer="A hidden key is out of the sum: softmax over the visible ones alone.",
    follow_ups=["What would the share be if nothing were hidden?"],
)
def share_beside_a_hidden_key(rng):
    """Which weight does a visible key get when another one is hidden?"""
    scores = [float(one) for one in rng.sample([-1, 0, 1, 2, 3], 3)] + [rng.choice([1.5, 2.5])]
    answer = shares(scores[:3])[0]
    times_mask = shares([*scores[:3], 0.0])[0]
    return question(
        f"Scaled scores of one query: {listed(scores)}. The **last** key is hidden. Which weight does the first key "
        "get?",
        answer,
        "",
        f"softmax of {listed(scores[:3])}: {answer:.4f}",
        [
            (shares(scores)[0], "You hid it after softmax: the visible weights no longer sum to 1."),
            (times_mask, "A score of 0 still gets weight: exp(0) is 1. Hidden means −∞."),
            (shares([*scores[:3], scores[3] + 1])[0], "You added the mask as a number."),
        ],
    )


@numeric_card(
    "phase2/attention-gigaflops",
    section="2.12",
    exercise="attention_cost",
    minutes=3,
    level="junior",
    source="notes 004 Table 1 (slip D39)",
    answer="Two products, each of q_len · kv_len · d_head multiply-adds per head; a multiply-add is two operations: "
    "4·B·H·Q·K·D.",
    follow_ups=["How much of it does a causal mask make superfluous?"],
)
def attention_gigaflops(rng):
    """How many operations do scores and mixing take?"""
    batch, heads, width = some(rng, 2, 3, 8), some(rng, 8, 12, 16), some(rng, 64, 80, 128)
    length = some(rng, 512, 1024, 2048)
    flops = 4 * batch * heads * length * length * width
    return question(
        f"Batch {batch}, {heads} heads of width {width}, {length} queries and as many keys, no mask. How many GFLOP "
        "(10⁹) do Q Kᵀ and the mixing of values take together?",
        flops / 1e9,
        "GFLOP",
        f"4 · {batch} · {heads} · {length}² · {width} = {flops / 1e9:,.2f} · 10⁹",
        [
            (flops / 2e9, "A multiply-add is two operations, and there are two products: a factor of 4."),
            (flops / 4e9, "Those are multiply-adds of one product."),
            (flops / heads / 1e9, "Every head has its own table."),
            (flops * heads / 1e9, "Heads share d_model: you took the heads twice."),
            (flops / batch / 1e9, "Each sentence of the batch has its own scores."),
        ],
    )


@numeric_card(
    "phase2/score-table",
    section="2.12",
    exercise="attention_cost",
    minutes=2,
    level="junior",
    source="course 2.12",
    answer="batch · heads · q_len · kv_len numbers.",
    follow_ups=["Why does a fused kernel not need it?"],
)
def score_table(rng):
    """How much memory does the table of scores take?"""
    batch, heads, size = some(rng, 4, 6, 10), some(rng, 12, 20, 32), some(rng, 2, 4)
    length = some(rng, 1024, 2048, 4096)
    numbers = batch * heads * length * length
    return question(
        f"Batch {batch}, {heads} heads, {length} tokens, float{8 * size}. How many GB (10⁹ bytes) does one layer's "
        "table of scores take?",
        numbers * size / 1e9,
        "GB",
        f"{batch} · {heads} · {length}² · {size} bytes = {numbers * size / 1e9:.3f} GB",
        [
            (numbers * size / heads / 1e9, "Every head has its own table."),
            (numbers * size / batch / 1e9, "Every sentence has its own table."),
            (numbers / 1e9, f"You counted numbers; each takes {size} bytes."),
            (numbers * size * 8 / 1e9, "Those are bits."),
        ],
    )


@numeric_card(
    "phase2/visible-pairs",
    section="2.5",
    exercise="causal_mask",
    minutes=2,
    level="junior",
    source="notes 003, masked attention (slip D29)",
    answer="Row i sees i + 1 keys: 1 + 2 + … + T = T(T + 1)/2.",
    follow_ups=["Which share of the square is that for long sentences?"],
)
def visible_pairs(rng):
    """How many entries of a causal mask are True?"""
    length = rng.randrange(5, 60)
    return question(
        f"A causal mask for {length} tokens. How many of its entries are True (may attend)?",
        length * (length + 1) // 2,
        "",
        f"{length} · {length + 1} / 2",
        [
            (length * (length - 1) // 2, "You left out the diagonal: a token sees itself."),
            (length * length, "That is the whole square."),
            (length * length / 2, "Half the square, but the diagonal belongs to it whole."),
        ],
        tolerance=0,
    )


@numeric_card(
    "phase2/visible-in-a-chunk",
    section="2.5",
    exercise="causal_mask",
    minutes=3,
    level="senior",
    source="course 2.5",
    answer="Aligned to the end: query i sees i + kv_len − q_len + 1 keys. Sum over the queries.",
    follow_ups=["What is it for a chunk of one?"],
)
def visible_in_a_chunk(rng):
    """How many entries are True when a chunk meets a cache?"""
    queries, cached = rng.randrange(3, 9), rng.randrange(4, 30)
    keys = queries + cached
    answer = sum(cached + i + 1 for i in range(queries))
    return question(
        f"{queries} new tokens meet a cache of {cached}: causal_mask({queries}, {keys}). How many entries are True?",
        answer,
        "",
        f"each query sees the {cached} cached keys, and 1 to {queries} of the new ones: "
        f"{queries} · {cached} + {queries} · {queries + 1} / 2 = {answer}",
        [
            (queries * (queries + 1) // 2, "You aligned to the start: the last query belongs to the last key."),
            (queries * keys, "Within the chunk, later tokens stay hidden."),
            (queries * cached, "The new tokens see themselves and one another's past, too."),
            (answer - queries, "A token sees itself."),
        ],
        tolerance=0,
    )


@numeric_card(
    "phase2/when-attention-dominates",
    section="2.12",
    exercise="attention_cost",
    minutes=4,
    level="staff",
    source="notes 004 Table 1 (slip D39)",
    answer="Per token the matrices take 2 · 12 d² operations (4 d² in attention, 8 d² in the FFN), scores and mixing "
    "4 T d. Equal at T = 6 d.",
    follow_ups=["And under a causal mask that is exploited?"],
)
def when_attention_dominates(rng):
    """At which length do scores and mixing cost as much as all matrices of a block?"""
    width = some(rng, 256, 512, 768, 1024, 2048, 4096)
    return question(
        f"A block of width {width} with a feed-forward layer four times as wide, no mask. At how many tokens do Q Kᵀ "
        "and the mixing of values take as many operations as all the block's matrices?",
        6 * width,
        "tokens",
        f"24 d² = 4 T d gives T = 6 d = {6 * width}",
        [
            (width, "n²d against nd² compares with one matrix; a block has 12 d² weights."),
            (2 * width, "You left out the feed-forward layer: 8 d² more."),
            (12 * width, "There are two products over the keys, scores and mixing."),
            (3 * width, "12 d² are weights, and each makes two operations, as each product does."),
        ],
    )


@numeric_card(
    "phase2/jacobian-entry",
    section="2.6",
    exercise="softmax_jacobian",
    minutes=2,
    level="senior",
    source="notes 000 §4",
    answer="p_i (δ_ij − p_j).",
    follow_ups=["What do the entries of a column add up to?"],
)
def jacobian_entry(rng):
    """What is one entry of softmax's Jacobian?"""
    a, b = some(rng, 0.1, 0.2, 0.3, 0.4), some(rng, 0.15, 0.25, 0.35, 0.45)
    rest = round(1 - a - b, 2)
    return question(
        f"Weights {listed([a, b, rest])}. What is the slope of the **first** weight along the **second** score?",
        -a * b,
        "",
        f"−{a:g} · {b:g} = {-a * b:.4f}",
        [
            (a * b, "The sign: raising another score takes weight away."),
            (a * (1 - a), "That is the diagonal: along its own score."),
            (a * (1 - b), "δ is 0 off the diagonal: p_i (0 − p_j)."),
            (-b, "The weight itself is a factor, too."),
        ],
    )
