# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Phase 2 · Attention
#
# *The cat sat as it was tired.* Alone, "it" means nothing. Attention lets "it" read "cat". You will write every line of
# that, forwards and backwards, and then catch the bugs that hide in it.
#
# | section | you build | minutes | path |
# |---|---|---|---|
# | [2.1 A lookup that is soft](#2.1-A-lookup-that-is-soft) | – | 8 | core |
# | [2.2 Softmax with hidden places](#2.2-Softmax-with-hidden-places) | `masked_softmax` | 22 | core |
# | [2.3 Attention in four steps](#2.3-Attention-in-four-steps) | `attention_weights` `sdpa` | 30 | core |
# | [2.4 Why the root](#2.4-Why-the-root) | `score_variance` | 13 | core |
# | [2.5 Two reasons to hide](#2.5-Two-reasons-to-hide) | `causal_mask` `padding_mask` `combine_masks` | 30 | core |
# | [2.6 The slope of softmax](#2.6-The-slope-of-softmax) | `softmax_jacobian` `softmax_backward` | 28 | more |
# | [2.7 Attention backwards](#2.7-Attention-backwards) | `sdpa_backward` | 30 | more |
# | [2.8 Self-attention](#2.8-Self-attention) | `SelfAttention` | 24 | core |
# | [2.9 Cross-attention](#2.9-Cross-attention) | `CrossAttention` | 18 | core |
# | [2.10 Repair a broken layer](#2.10-Repair-a-broken-layer) | `MaskedSelfAttention` | 28 | more |
# | [2.11 Catch the leak](#2.11-Catch-the-leak) | `leaks_future` | 22 | core |
# | [2.12 What it costs](#2.12-What-it-costs) | `attention_cost` | 13 | more |
# | [2.13 One block of keys at a time](#2.13-One-block-of-keys-at-a-time) | `streaming_attention` | 30 | stretch |
# | [2.14 Every number of the notes](#2.14-Every-number-of-the-notes) | – | 6 | more |
# | [2.15 Say it aloud](#2.15-Say-it-aloud) | three answers, recap | 13 | core |
#
# The core path is about three hours; minutes are estimates until learners have been timed. You can stop after any
# section. To come back, run the setup cell and the cells you have solved.

# %% [markdown]
# Each exercise goes the same way: guess, build, check, look, say it in a sentence. Guess before you run; a wrong guess
# teaches more than a right one. Three hints wait under each task. Open one at a time.
#
# Two rules hold everywhere: **rows are tokens**, and **a mask is `True` where looking is allowed**. Where a cell ends in
# "Your sentence:", double-click it and write below; nobody grades it.

# %% tags=["setup"]
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from utils import check, notes, plots, widgets
from utils.lesson import attempt, need, predict, reveal, show

torch.set_printoptions(precision=3, sci_mode=False)
np.set_printoptions(precision=3, suppress=True)

# %% [markdown]
# ---
# ## 2.1 A lookup that is soft
# *core · about 8 min*
#
# A dictionary answers only if the key matches exactly. A word's question never does.

# %%
meaning = {"the": 0.5, "cat": 0.9, "sat": -0.2}
attempt("what 'it' refers to", lambda: meaning["it"])

# %% [markdown]
# So let things match *by degree*. Give each token three vectors:
#
# - a **query**: what it looks for,
# - a **key**: what it offers to others,
# - a **value**: what it hands over when read.
#
# The score of a pair is the dot product `query · key`. Softmax turns scores into shares of 1, and the answer is the
# mix of values: `Σ share · value`. Keys decide how much; values decide what.

# %%
#                     animal action
keys = torch.tensor([[0.1, 0.0],  # the
                     [2.0, 0.3],  # cat
                     [0.4, 1.9]])  # sat
values = torch.tensor([0.5, 0.9, -0.2])
it = torch.tensor([1.5, 0.2])  # looks for an animal
weights = (keys @ it).softmax(-1)
show(plots.row_of_weights(weights, ["the", "cat", "sat"], "it"),
     "Bars: 'it' puts weight 0.848 on cat, 0.106 on sat, 0.046 on the.")

# %% [markdown]
# The answer to "it" is 85 % of the value of *cat*, with a little of the rest. A blend has a slope, so the vectors can be
# learned.

# %%
predict("dot-or-angle", "The query is `[1, 1]`. Which key gets the higher score: "
        "`[1, 1]`, which points the same way, or `[10, 0]`, which is 45° off?",
        ["[1, 1]", "[10, 0]", "a tie"])

# %%
query = torch.tensor([1.0, 1.0])
pair = torch.tensor([[1.0, 1.0], [10.0, 0.0]])
print("scores ", query @ pair.T)
print("cosines", torch.cosine_similarity(query, pair))
reveal("dot-or-angle", "[10, 0]", "A score measures length as well as direction.")

# %% [markdown]
# "A large score means the vectors are alike" is half the truth: a long key wins from many directions. And −5 is not
# "unrelated". It pushes a key away harder than 0 does.
#
# Why three vectors, when one embedding `x` might do? With `x` as both query and key, `x_i · x_j` equals `x_j · x_i`.
# "it" would score "cat" exactly as "cat" scores "it". Two learned matrices break the tie:

# %%
torch.manual_seed(0)
x, w_q, w_k = torch.randn(3, 4), torch.randn(4, 4), torch.randn(4, 4)
print("x with itself\n", x @ x.T)
print("queries with keys\n", (x @ w_q) @ (x @ w_k).T)

# %% [markdown]
# The first table mirrors itself across the diagonal, the second does not.
#
# **Recompute before you trust.** Our notes print a query for *cat*, the product of a row and a matrix. What do you get?

# %%
ex = notes.example("000-q-cat")
print(ex.compare(np.array(ex.inputs["A"]) @ np.array(ex.inputs["B"])))

# %% [markdown]
# Not one of the four numbers survives, and the printed row looked plausible: nobody *sees* a wrong matrix product. You
# will meet every number of the notes again, with your own functions.

# %% [markdown]
# ---
# ## 2.2 Softmax with hidden places
# *core · about 22 min*
#
# Some keys must not be read: padding, or words that come later. A hidden key should get weight **exactly 0**, and the
# visible ones should share **exactly 1**. What about a query that may see nothing at all? Before you run three
# tempting ways, guess:

# %%
predict("empty-row", "A row in which every key is hidden. "
        "Its float32 scores are all filled with −1e9. Softmax gives…",
        ["zeros", "equal shares", "NaN"])

# %%
scores = torch.tensor([[1.0, 2.0, 9.0], [1.0, 2.0, 9.0]])
visible = torch.tensor([[True, True, False], [False, False, False]])

print("1. mask after softmax\n", scores.softmax(-1) * visible)
print("2. fill with -1e9\n", scores.masked_fill(~visible, -1e9).softmax(-1))
print("3. fill with -inf\n", scores.masked_fill(~visible, -math.inf).softmax(-1))
reveal("empty-row", "equal shares",
       "Next to −1e9 the scores 1, 2 and 9 vanish: all three are equal.")

# %% [markdown]
# Read row by row. Way 1 leaves the first row almost empty: the hidden 9 took the share and threw it away. Way 2 lets
# the empty row read three keys it may not see, and says nothing. Way 3 is right for row one; in row two every
# score is −∞, and softmax subtracts the largest first: −∞ − (−∞) is NaN. One NaN spoils every parameter at the next step.
#
# And −1e9 has a second problem in half precision, where numbers end at 65,504:

# %%
attempt("-1e9 in float16", lambda: scores.half().masked_fill(~visible, -1e9))

# %% [markdown]
# ### Exercise 2.2 · `masked_softmax` · core · about 20 min
# - **Build** softmax over `dim` in which hidden places get exactly 0 and an empty slice gets all zeros.
# - **Allowed** `softmax`, `masked_fill`, `where`, `exp`. **Not allowed** changing `scores` in place.
# - **Done when** the check below passes. It also looks at gradients: a zero whose slope is NaN does not count
#   (`where(total > 0, exps / total, 0)` is such a zero).
#
# <details><summary>Hint 1 · where</summary>Two places: what goes into softmax, and what comes out of it.</details>
# <details><summary>Hint 2 · what</summary>Way 3 fails because nothing finite is left. Which finite number is smaller than any
# score of the same dtype? And what is wrong with the equal shares it leaves in an empty row?</details>
# <details><summary>Hint 3 · how</summary>Fill hidden scores with <code>torch.finfo(scores.dtype).min</code>, take
# softmax, fill the hidden weights with 0. Refuse a mask that is not bool first.</details>

# %% exercise="masked_softmax"
def masked_softmax(scores, attn_mask=None, dim=-1):
    """Share 1 among the visible places along `dim`.

    scores (…) floating; attn_mask bool, True = may attend, broadcasts to scores, or None
    Returns weights, shape and dtype of scores. Hidden places are exactly 0.
    Promises: a slice with nothing visible is all zeros, and so is its gradient;
    scores stay as they were.
    Raises ValueError if attn_mask is not bool.
    """
    ### BEGIN SOLUTION
    if attn_mask is None:
        return scores.softmax(dim)
    if attn_mask.dtype != torch.bool:
        raise ValueError("attn_mask must be bool: True = may attend")
    lowest = torch.finfo(scores.dtype).min  # finite, so an empty slice stays free of NaN
    weights = scores.masked_fill(~attn_mask, lowest).softmax(dim)
    return weights.masked_fill(~attn_mask, 0.0)
    ### END SOLUTION

# %% check="masked_softmax"
check(masked_softmax, points=5)

# %% [markdown]
# **Look.** Two masked rows of the notes, through your function: one hides padding, one hides the future.

# %% tags=["demo"]
with need("masked_softmax"):
    for name in ("002-padding-softmax", "002-causal-softmax"):
        ex = notes.example(name)
        scores = torch.tensor(ex.inputs["z"], dtype=torch.float64)
        print(ex.compare(masked_softmax(scores, scores > -math.inf)))

# %% [markdown] reflect="masked_softmax"
# The second row was printed wrongly. Its scores are 1, 3, 4; which scores give the printed row? (Adding the same number
# to all scores changes nothing, so only the *gaps* count.) Your sentence:

# %% [markdown]
# ---
# ## 2.3 Attention in four steps
# *core · about 30 min*
#
# > **attention(q, k, v) = softmax( q kᵀ / √d_head ) v**
#
# 1. **Compare** every query with every key: scores, `(q_len, kv_len)`.
# 2. **Scale** by `1/√d_head`; section 2.4 shows why.
# 3. **Share out**: softmax, with hidden keys left out. These are the attention weights.
# 4. **Mix** the values with them: `(q_len, d_v)`.
#
# `d_head` is the width of one query or key. A *head* is one such attention; phase 3 runs several side by side.
#
# One query's scores stand in one row. So which way must softmax run?

# %%
predict("softmax-axis",
        "Softmax over the wrong axis makes every *column* sum to 1. What does that mean?",
        ["each query reads 100 %", "each key is read 100 % in total", "each value has length 1"])

# %%
scores = torch.tensor([[1.05, 1.90, 0.60], [0.75, 2.60, 1.40], [0.95, 1.20, 1.80]])
show(plots.attention_map(scores.softmax(-2), ["The", "cat", "sat"], ["The", "cat", "sat"],
                         "softmax over axis −2"),
     "Heat map of three queries and three keys; columns sum to 1, the row of The sums to 0.82.")
reveal("softmax-axis", "each key is read 100 % in total",
       "Queries would compete for keys. Look along a row: The reads 0.82 in total, cat 1.19.")

# %% [markdown]
# ### Exercise 2.3a · `attention_weights` · core · about 12 min
# - **Build** steps 1 to 3 for any number of leading axes.
# - **Allowed** your `masked_softmax`, `@`, `transpose`. **Not allowed** torch's own attention.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Keys stand on axis −2 of <code>k</code>. In the scores they must stand on
# the last one.</details>
# <details><summary>Hint 2 · what</summary><code>k.T</code> would turn all axes round. Exchange the last two
# only.</details>
# <details><summary>Hint 3 · how</summary><code>q @ k.transpose(-2, -1)</code>, divided by the root of
# <code>q.shape[-1]</code>, then <code>masked_softmax</code>.</details>

# %% exercise="attention_weights"
def attention_weights(q, k, attn_mask=None):
    """How much each query reads of each key.

    q (…, q_len, d_head); k (…, kv_len, d_head)
    attn_mask bool, broadcasts to (…, q_len, kv_len), True = may attend, or None
    Returns (…, q_len, kv_len); rows sum to 1, rows with nothing visible are zeros.
    Raises ValueError if d_head of q and k differ.
    Paper: Vaswani et al. 2017, §3.2.1.
    """
    ### BEGIN SOLUTION
    d_head = q.shape[-1]
    if k.shape[-1] != d_head:
        raise ValueError(f"q and k need one d_head, got {d_head} and {k.shape[-1]}")
    scores = q @ k.transpose(-2, -1) / math.sqrt(d_head)  # (…, Q, K)
    return masked_softmax(scores, attn_mask)
    ### END SOLUTION

# %% check="attention_weights"
check(attention_weights, points=3)

# %% [markdown]
# **Look.** A worked example of the notes with small whole numbers: `X`, `W_Q` and `W_K` are given, so the weights
# follow. Are the printed ones right? And are the exponentials on the way there right too?

# %% tags=["demo"]
with need("attention_weights"):
    q, k = (torch.tensor(notes.example(name).correct["result"], dtype=torch.float64)
            for name in ("001-q", "001-k"))
    weights = attention_weights(q, k)
    for row in range(3):
        print(notes.example(f"001-softmax-row{row + 1}").compare(weights[row]))
    scaled = q[0] @ k.T / math.sqrt(2)
    print(notes.example("001-exp-row1").compare((scaled - scaled.max()).exp()))

# %% [markdown] reflect="attention_weights"
# The weights are right to eight digits while the exponentials that lead to them differ from the fourth digit on. What does a
# right final answer prove about the steps before it? Your sentence:

# %% [markdown]
# The last step is one product. Its meaning is easy to miss: the output is an average *over a set*. Guess:

# %%
predict("shuffled-pairs",
        "You shuffle the keys and shuffle the values in the same way. The output of attention…",
        ["stays the same", "is shuffled too", "changes altogether"])

# %% [markdown]
# ### Exercise 2.3b · `sdpa` · core · about 15 min
# - **Build** all four steps: scaled dot-product attention. `d_v` may differ from `d_head`.
# - **Allowed** everything you have built. **Not allowed** torch's own attention.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>The weights are <code>(…, Q, K)</code>, the values
# <code>(…, K, d_v)</code>. Which axis must vanish?</details>
# <details><summary>Hint 2 · what</summary>A matrix product is a weighted sum for all queries at once. Before it,
# compare the numbers of keys and values.</details>
# <details><summary>Hint 3 · how</summary><code>attention_weights(q, k, attn_mask) @ v</code>, after a ValueError for
# unequal <code>kv_len</code>.</details>

# %% exercise="sdpa"
def sdpa(q, k, v, attn_mask=None):
    """Mix values by how well each query matches each key.

    q (…, q_len, d_head); k (…, kv_len, d_head); v (…, kv_len, d_v)
    attn_mask bool, broadcasts to (…, q_len, kv_len), True = may attend, or None
    Returns (…, q_len, d_v), same dtype as q.
    Raises ValueError if d_head of q and k, or kv_len of k and v, differ.
    Paper: Vaswani et al. 2017, §3.2.1, eq. 1. Differs: mask is an argument.
    """
    ### BEGIN SOLUTION
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"k and v need one kv_len, got {k.shape[-2]} and {v.shape[-2]}")
    return attention_weights(q, k, attn_mask) @ v  # (…, Q, Dv)
    ### END SOLUTION

# %% check="sdpa"
check(sdpa, points=4)

# %% [markdown]
# **Look.** The prediction first, then torch's own kernel beside yours.

# %% tags=["demo"]
with need("sdpa"):
    torch.manual_seed(0)
    q, k, v = torch.randn(5, 8), torch.randn(7, 8), torch.randn(7, 6)
    order = torch.randperm(7)
    out, torchs = sdpa(q, k, v), F.scaled_dot_product_attention(q, k, v)
    print(f"shuffled pairs change the output by "
          f"{(sdpa(q, k[order], v[order]) - out).abs().max():.0e}")
    print(f"torch's kernel differs by           {(torchs - out).abs().max():.0e}")
    reveal("shuffled-pairs", "stays the same",
           "Attention sees a set of pairs; order must come from the vectors.")

# %% [markdown]
# **The notes, recomputed.** "learning" reads "I love deep learning" with `q = [1, 1]`. The printed weights are called
# approximate. Then the output for *cat*, which the notes computed from weights they had already rounded.

# %% tags=["demo"]
with need("attention_weights", "sdpa"):
    ex = notes.example("002-sdpa-output-full-chain")
    q = torch.ones(1, 2, dtype=torch.float64)
    k = torch.tensor(notes.example("002-sdpa-scores").inputs["B"], dtype=torch.float64)
    print(notes.example("002-sdpa-softmax").compare(attention_weights(q, k)[0]))
    print(ex.compare(sdpa(q, k, torch.tensor(ex.inputs["V"], dtype=torch.float64))[0]))

# %% tags=["demo"]
with need("sdpa"):
    scores = torch.tensor(notes.example("000-scaling").inputs["S"], dtype=torch.float64)
    # so that q @ k.T is `scores`
    q, k = F.pad(scores, (0, 1)), torch.eye(3, 4, dtype=torch.float64)
    ex = notes.example("000-weighted-v-cat")
    print(ex.compare(sdpa(q, k, torch.tensor(ex.inputs["V"], dtype=torch.float64))[1]))

# %% [markdown] reflect="sdpa"
# The notes never give K; the cell above made one up that yields the printed scores, and any scores can be had that way.
# So is a printed score table evidence of anything? And where did the second entry 0.55 come from? Your sentence:

# %% [markdown]
# ---
# ## 2.4 Why the root
# *core · about 13 min*
#
# `q · k` is a sum of `d_head` products. If the entries are independent with mean 0 and variance 1, each product has
# variance 1, and variances of independent terms add up:
#
# > **Var(q · k) = d_head**
#
# So a typical score is about `√d_head` away from 0. What does softmax make of that?

# %%
predict("scale", "Without `1/√d_head`, growing `d_head` makes the weights…",
        ["flatter", "the same", "sharper"])

# %%
generator = torch.Generator().manual_seed(0)
for d_head in (4, 64, 1024):
    scores = (torch.randn(500, d_head, generator=generator)
              @ torch.randn(8, d_head, generator=generator).T)
    print(f"d_head {d_head:4}: largest of 8 weights, "
          f"on average {scores.softmax(-1).amax(-1).mean():.2f}")
reveal("scale", "sharper", "At 1024 one key takes nearly everything, before anything was learned.")

# %% [markdown]
# ### Exercise 2.4 · `score_variance` · core · about 10 min
# - **Build** an experiment: draw pairs of standard normal `q` and `k`, return the variance of `q · k` and of
#   `q · k / √d_head`, both over the **same** draws.
# - **Allowed** `torch.randn`, `var`. **Not allowed** the global random state: every draw comes from `generator`.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>One row per pair; the score sums over the last axis.</details>
# <details><summary>Hint 2 · what</summary>Compute the scores once. Divide by the root <em>before</em> taking the
# second variance.</details>
# <details><summary>Hint 3 · how</summary><code>(q * k).sum(-1)</code> with both drawn by <code>torch.randn(n_samples,
# d_head, generator=generator)</code>; then <code>.var()</code> twice.</details>

# %% exercise="score_variance"
def score_variance(d_head, n_samples, generator):
    """Measure how far scores spread, with and without the root.

    Returns raw, scaled: variance of q·k and of q·k/√d_head over the same n_samples random pairs
    Promises: all chance comes from `generator`.
    Paper: Vaswani et al. 2017, §3.2.1, footnote 4.
    """
    ### BEGIN SOLUTION
    q, k = torch.randn(2, n_samples, d_head, generator=generator, dtype=torch.float64)
    scores = (q * k).sum(-1)  # (n_samples,)
    return scores.var().item(), (scores / math.sqrt(d_head)).var().item()
    ### END SOLUTION

# %% check="score_variance"
check(score_variance, points=2)

# %% tags=["demo"]
with need("score_variance"):
    d_heads = [4, 16, 64, 256, 1024]
    generator = torch.Generator().manual_seed(0)
    raw, scaled = zip(*(score_variance(d_head, 2000, generator) for d_head in d_heads), strict=True)
    show(plots.saturation(d_heads, raw, scaled),
         "Left: variance of raw scores grows along with d_head, scaled scores stay at 1. "
         "Right: the largest weight climbs towards 1 without the root and stays near 0.36 with it.")

# %% [markdown]
# The solid line saturates: one weight near 1, the rest near 0, and there softmax has almost no slope (section 2.6).
# Nothing overflowed on the way. Against overflow there is another trick, which torch's softmax has built in:

# %%
big = torch.tensor([1000.0, 999.0])
print("exp, then divide         ", big.exp() / big.exp().sum())
print("subtract the maximum first", big.softmax(-1))

# %% [markdown] reflect="score_variance"
# "The root is there for numerical stability": which half of that is true? And with 8 heads of width 64, what would go
# wrong if you divided by √512 instead? Your sentence:

# %% [markdown]
# ---
# ## 2.5 Two reasons to hide
# *core · about 30 min*
#
# A model that predicts the next token is trained on whole sentences at once. In "I love deep learning" the place that
# holds *love* must predict *deep*, so it may see neither *deep* nor anything after it. No place looks to its right:
# that is the **causal mask**. May it look at itself? Some texts say "only at tokens before it".

# %%
predict("first-row",
        "Every token may see only tokens strictly before it. The first row of weights is then…",
        ["1 on itself", "zeros or NaN", "equal shares"])

# %%
strictly_before = torch.ones(4, 4).tril(-1).bool()
print(torch.zeros(4, 4).masked_fill(~strictly_before, -math.inf).softmax(-1))
reveal("first-row", "zeros or NaN",
       "The first token has nothing before it. A token may see itself.")

# %% [markdown]
# ### Exercise 2.5a · `causal_mask` · core · about 10 min
# - **Build** the bool mask in which no query sees a later key. When keys outnumber queries, the **last query stands at
#   the last key**: a new token with five earlier keys and its own sees all six.
# - **Allowed** `tril`, `arange`, comparisons.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Query <code>i</code> stands at place <code>i + kv_len − q_len</code> among
# the keys.</details>
# <details><summary>Hint 2 · what</summary>Every key up to and including that place is visible.</details>
# <details><summary>Hint 3 · how</summary><code>tril</code> of a table of ones takes a diagonal:
# <code>kv_len − q_len</code>. With equal lengths it is 0.</details>

# %% exercise="causal_mask"
def causal_mask(q_len, kv_len=None):
    """Which key each query may see when the future is hidden.

    Returns (q_len, kv_len) bool, True = may attend; kv_len=None means q_len
    Promises: aligned to the end, so a one-token decode step sees its whole cache.
    """
    ### BEGIN SOLUTION
    kv_len = q_len if kv_len is None else kv_len
    return torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)
    ### END SOLUTION

# %% check="causal_mask"
check(causal_mask, points=2)

# %% tags=["demo"]
with need("causal_mask"):
    masks = {"a sentence": causal_mask(5),
             "two more tokens": causal_mask(2, 5),
             "one step": causal_mask(1, 5)}
    show(plots.mask_grids(masks),
         "Three grids of dots and hatching. A sentence of five: a triangle with its diagonal. "
         "Two queries, five keys: the last two rows of that triangle. "
         "One query: every key is visible.")

# %% [markdown] reflect="causal_mask"
# Look at the last row of the first grid. Someone tells you "a decoder does not read its whole input". Your answer:

# %% [markdown]
# **Padding.** Sentences in a batch differ in length, so the short ones are filled up. Filler must not be read: hide
# those **keys**. Here is the mask with one axis forgotten, on two sentences and two heads. Sentence 1 ends in a pad.

# %%
predict("lost-axis",
        "Scores are (batch 2, heads 2, 3, 3), the mask is (batch 2, 3, 3). Together they…",
        ["raise an error", "work as meant", "run, and hide the wrong keys"])

# %%
scores = torch.zeros(2, 2, 3, 3)  # (B, H, Q, K)
real = torch.tensor([[True, True, True], [True, True, False]])
mask = real[:, None, :].expand(2, 3, 3)  # (B, Q, K): no axis for heads
weights = scores.masked_fill(~mask, -math.inf).softmax(-1)
print("sentence 0, head 1 hides a real word:", weights[0, 1, 0])
print("sentence 1, head 0 reads the pad:    ", weights[1, 0, 0])
reveal("lost-axis", "run, and hide the wrong keys",
       "Axes are matched from the right: the batch met the heads.")

# %% [markdown]
# With 3 heads it would have crashed; with batch = heads it trains, slightly worse, for weeks. The worst bugs are the
# ones that broadcast. So a padding mask carries all four axes from birth.
#
# ### Exercise 2.5b · `padding_mask` · core · about 8 min
# - **Build** `(batch, 1, 1, kv_len)` from `(batch, kv_len)`: each key hidden for every head and every query.
# - **Allowed** indexing with `None`, `unsqueeze`, `view`.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>The two new axes stand between batch and keys.</details>
# <details><summary>Hint 2 · what</summary>Rank and dtype are refused first, each with its own ValueError.</details>
# <details><summary>Hint 3 · how</summary><code>pad_mask[:, None, None, :]</code></details>

# %% exercise="padding_mask"
def padding_mask(pad_mask):
    """Hide padded keys from every head and every query.

    pad_mask (batch, kv_len) bool, True = real token
    Returns (batch, 1, 1, kv_len) bool, True = may attend.
    Raises ValueError if pad_mask is not (batch, kv_len) or not bool.
    """
    ### BEGIN SOLUTION
    if pad_mask.dim() != 2:
        raise ValueError(f"pad_mask must be (batch, kv_len), got {pad_mask.dim()} axes")
    if pad_mask.dtype != torch.bool:
        raise ValueError("pad_mask must be bool: True = real token")
    return pad_mask[:, None, None, :]  # (B, 1, 1, K)
    ### END SOLUTION

# %% check="padding_mask"
check(padding_mask, points=2)

# %% tags=["demo"]
with need("sdpa", "padding_mask"):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 2, 5, 4)  # each (B, H, T, D)
    real = torch.tensor([[True] * 5, [True, True, True, False, False]])
    before = sdpa(q, k, v, padding_mask(real))
    k[1, :, 3:], v[1, :, 3:] = 50.0, 50.0  # something loud in the pads
    after = sdpa(q, k, v, padding_mask(real))
    print("largest change of any output:", (after - before).abs().max().item())
    print("a padded query still answers:", after[1, 0, 4])

# %% [markdown] reflect="padding_mask"
# Padded queries still produce output, since only keys are hidden. Where must that output be ignored later? Your sentence:

# %% [markdown]
# **Both at once.** Which mask goes where?
#
# | attention | padding | causal |
# |---|---|---|
# | encoder, over itself | yes | no |
# | decoder, over itself | yes | yes |
# | decoder, over the encoder's output | yes, the encoder's | no |
#
# "No mask in an encoder" means no *causal* mask. A key is visible when **every** mask allows it.

# %%
predict("mask-plus", "`a + b` for two bool masks is True where…",
        ["both are True", "at least one is True", "it raises"])

# %%
causal, padding = torch.ones(4, 4, dtype=torch.bool).tril(), torch.tensor([True, True, True, False])
show(plots.mask_grids({"causal": causal, "padding": padding.expand(4, 4),
                       "causal + padding": causal + padding}),
     "Three grids. The sum shows dots where either mask has one: nearly everything is visible.")
reveal("mask-plus", "at least one is True", "Two masks in a sum hide almost nothing.")

# %% [markdown]
# ### Exercise 2.5c · `combine_masks` · core · about 8 min
# - **Build** the AND of any number of masks. `None` means "no restriction": skip it. Nothing left gives `None`.
# - **Allowed** `&` and broadcasting. **Not allowed** changing a mask in place.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Walk through the masks and keep what you have so far.</details>
# <details><summary>Hint 2 · what</summary>At the start you have <code>None</code>; the first real mask replaces
# it.</details>
# <details><summary>Hint 3 · how</summary><code>combined = mask if combined is None else combined & mask</code>, after
# refusing a mask that is not bool.</details>

# %% exercise="combine_masks"
def combine_masks(*masks):
    """Allow only what every mask allows.

    masks: bool tensors that broadcast together, or None for "no restriction"
    Returns their AND, bool; None if there is no mask at all.
    Raises ValueError if a mask is not bool.
    """
    ### BEGIN SOLUTION
    combined = None
    for mask in masks:
        if mask is None:
            continue
        if mask.dtype != torch.bool:
            raise ValueError("masks must be bool: True = may attend")
        combined = mask if combined is None else combined & mask
    return combined
    ### END SOLUTION

# %% check="combine_masks"
check(combine_masks, points=2)

# %% [markdown]
# **Play.** Your `masked_softmax` runs under these controls; Tab, Space and the arrow keys work too. Try to answer
# by moving them: which mask makes "it" read "&lt;pad&gt;"? Which temperature makes it read "cat" with more than 0.9? Hide "cat"
# by hand: who gains most? Last, hide every key the row may see.

# %% tags=["demo"]
with need("masked_softmax"):
    widgets.mask_painter(masked_softmax)

# %% [markdown] reflect="combine_masks"
# Dividing scores by a temperature below 1 did what forgetting `1/√d_head` does. Say why in one sentence:

# %% [markdown]
# ---
# ## 2.6 The slope of softmax
# *more · about 28 min · NumPy*
#
# To learn, attention must say how each weight moves when a score moves. Tempting: each weight depends on its own
# score, so the slope is `p (1 − p)`, as for a sigmoid. Nudge each score of the row *cat* and measure:

# %%
def softmax_1d(scores):
    exps = np.exp(scores - scores.max())
    return exps / exps.sum()


cat_scores = np.array([0.75, 2.6, 1.4])
probs = softmax_1d(cat_scores)
nudges = 1e-6 * np.eye(3)
measured = np.stack([(softmax_1d(cat_scores + n) - softmax_1d(cat_scores - n)) / 2e-6
                     for n in nudges], axis=-1)
print("p (1 - p)\n", np.diag(probs * (1 - probs)))
print("measured\n", measured)

# %% [markdown]
# The diagonal is right and everything else is missing. A raised score takes weight away from all others, since the sum
# stays 1: entry `(i, j)` is `p_i (δ_ij − p_j)`, with `δ_ij` = 1 on the diagonal and 0 elsewhere. Such a table of
# slopes is a Jacobian. Where is it largest?

# %%
predict("jacobian-peak", "Three keys. By overall size (root of the sum of squares), "
        "the Jacobian is largest at…",
        ["⅓, ⅓, ⅓", "½, ½, 0", "1, 0, 0"])

# %% [markdown]
# ### Exercise 2.6a · `softmax_jacobian` · more · about 12 min
# - **Build** one `n × n` matrix per row, in NumPy.
# - **Allowed** broadcasting, `np.eye`, `einsum`.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Two new axes from one: <code>p_i</code> runs down, <code>p_j</code> runs
# across.</details>
# <details><summary>Hint 2 · what</summary><code>p[..., :, None]</code> is the column, <code>p[..., None, :]</code> the
# row; δ is the identity matrix.</details>
# <details><summary>Hint 3 · how</summary>column · (identity − row). Give the identity the dtype of
# <code>probs</code>.</details>

# %% exercise="softmax_jacobian"
def softmax_jacobian(probs):
    """How every weight moves with every score.

    probs (…, n) NumPy, rows sum to 1
    Returns (…, n, n), dtype of probs: entry i, j is the slope of weight i along score j.
    """
    ### BEGIN SOLUTION
    identity = np.eye(probs.shape[-1], dtype=probs.dtype)
    return probs[..., :, None] * (identity - probs[..., None, :])  # (…, i, j)
    ### END SOLUTION

# %% check="softmax_jacobian"
check(softmax_jacobian, points=3)

# %% tags=["demo"]
with need("softmax_jacobian"):
    show(plots.jacobian_triangle(softmax_jacobian),
         "A triangle whose corners are one-hot rows. The size of the Jacobian is 0 at the corners, "
         "0.47 in the middle and largest, 0.50, at the middle of each edge, where two keys tie.")
    reveal("jacobian-peak", "½, ½, 0",
           "A two-way tie: 0.50, against 0.47 for equal shares and 0 at a corner.")

# %% [markdown] reflect="softmax_jacobian"
# The notes say the slope is largest at equal shares. True for the trace `Σ p (1 − p)`, true for two keys, false here.
# The corner is what matters: how does `√d_head` keep you away from it? Your sentence:

# %% [markdown]
# Backwards, you are given `g`, the slope of the loss along each weight, and want it along each score. That is `J g`,
# but 4,096 keys would need a Jacobian of 128 MiB for *each* query. Multiply it out once and the matrix disappears:
# `Σ_j p_i (δ_ij − p_j) g_j = p_i (g_i − Σ_j p_j g_j)`. In words: how much better than average is it to read this key?

# %%
predict("same-grad",
        "The loss pulls on every weight alike: `g = [7, 7, 7]`. What reaches the scores?",
        ["7 · p", "7 each", "nothing"])

# %% [markdown]
# ### Exercise 2.6b · `softmax_backward` · more · about 12 min
# - **Build** `p (g − Σ p g)` along the last axis, in NumPy, for any leading axes.
# - **Not allowed** building an `n × n` matrix.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>The sum runs over the last axis and must stay there as a length of
# 1.</details>
# <details><summary>Hint 2 · what</summary><code>keepdims=True</code>.</details>
# <details><summary>Hint 3 · how</summary><code>average = (probs * grad).sum(-1, keepdims=True)</code>; then the formula
# as it stands.</details>

# %% exercise="softmax_backward"
def softmax_backward(probs, grad):
    """Carry a gradient from softmax's weights back to its scores.

    probs, grad (…, n) NumPy: the weights, and the slope of the loss along each
    Returns (…, n): the slope along each score. Rows of zeros give zeros.
    """
    ### BEGIN SOLUTION
    average = (probs * grad).sum(-1, keepdims=True)  # (…, 1)
    return probs * (grad - average)
    ### END SOLUTION

# %% check="softmax_backward"
check(softmax_backward, points=3)

# %% tags=["demo"]
with need("softmax_jacobian", "softmax_backward"):
    probs, grad = np.array([0.1, 0.7, 0.2]), np.array([1.0, -2.0, 3.0])
    print("through the matrix", softmax_jacobian(probs) @ grad)
    print("without it        ", softmax_backward(probs, grad))
    print("g = [7, 7, 7]     ", softmax_backward(probs, np.full(3, 7.0)))
    reveal("same-grad", "nothing",
           "Raising all scores alike changes no weight, so nothing can be gained that way.")

# %% [markdown] reflect="softmax_backward"
# Why does every row of the result sum to 0? (What happens to softmax when all scores rise together?) Your sentence:

# %% [markdown]
# ---
# ## 2.7 Attention backwards
# *more · about 30 min · NumPy*
#
# Write `c` for `1/√d_head`. The left column runs from the bottom up, the right one from the top down:
#
# | forwards ↑ | backwards ↓ |
# |---|---|
# | `out = weights @ v` | `d_weights = d_out @ vᵀ`, `dv = weightsᵀ @ d_out` |
# | `weights = softmax(scores)` | `d_scores = softmax_backward(weights, d_weights)` |
# | `scores = c · q @ kᵀ` | `dq = c · d_scores @ k`, `dk = c · d_scoresᵀ @ q` |
#
# No need to memorise: a gradient has the shape of its tensor, and only one product fits. What a slope *means* you can
# always measure:

# %%
rng = np.random.default_rng(0)
q, k, v, grad_out = (rng.normal(size=shape) for shape in ((2, 4), (3, 4), (3, 5), (2, 5)))


def loss(q):
    weights = np.stack([softmax_1d(row) for row in q @ k.T / 2])
    return (weights @ v * grad_out).sum()


nudge = np.zeros_like(q)
nudge[1, 0] = 1e-6
print(f"slope of the loss along q[1, 0]: {(loss(q + nudge) - loss(q - nudge)) / 2e-6:.6f}")

# %%
predict("hidden-slope", "Key 2 is hidden from every query. Its gradients `dk[2]` and `dv[2]` are…",
        ["exactly 0", "small", "like any other"])

# %% [markdown]
# ### Exercise 2.7 · `sdpa_backward` · more · about 30 min
# - **Build** the gradients of `q`, `k`, `v` by hand, in NumPy, any leading axes, with mask. An empty row gives zeros.
# - **Allowed** your `softmax_backward`, `@`, `np.swapaxes`, `np.where`. **Not allowed** autograd.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>You need the weights first: run the forward pass again in NumPy, as
# carefully as <code>masked_softmax</code> does.</details>
# <details><summary>Hint 2 · what</summary>Hidden scores become the smallest finite number, hidden exponentials 0. Guard
# the division: in an empty row the sum is 0. Then read the right column of the table, top to bottom.</details>
# <details><summary>Hint 3 · how</summary><code>exps = np.exp(scores - scores.max(-1, keepdims=True)) * visible</code>;
# divide by <code>np.where(total > 0, total, 1)</code>. Transposes are <code>np.swapaxes(a, -2, -1)</code>.</details>

# %% exercise="sdpa_backward"
def sdpa_backward(grad_out, q, k, v, attn_mask=None):
    """The gradients of scaled dot-product attention, by hand.

    NumPy arrays: grad_out (…, q_len, d_v); q (…, q_len, d_head);
    k (…, kv_len, d_head); v (…, kv_len, d_v)
    attn_mask bool, broadcasts to (…, q_len, kv_len), True = may attend, or None
    Returns dq, dk, dv, new arrays with shape and dtype of q, k, v. Hidden keys and empty rows get 0.
    """
    ### BEGIN SOLUTION
    scale = 1 / math.sqrt(q.shape[-1])
    visible = True if attn_mask is None else attn_mask
    scores = np.where(visible, q @ np.swapaxes(k, -2, -1) * scale,
                      np.finfo(q.dtype).min)  # (…, Q, K)
    exps = np.exp(scores - scores.max(-1, keepdims=True)) * visible
    total = exps.sum(-1, keepdims=True)
    weights = exps / np.where(total > 0, total, 1)

    d_weights = grad_out @ np.swapaxes(v, -2, -1)  # (…, Q, K)
    d_scores = softmax_backward(weights, d_weights) * scale
    return d_scores @ k, np.swapaxes(d_scores, -2, -1) @ q, np.swapaxes(weights, -2, -1) @ grad_out
    ### END SOLUTION

# %% check="sdpa_backward"
check(sdpa_backward, points=7)

# %% tags=["demo"]
with need("sdpa_backward"):
    print(f"dq[1, 0] = {sdpa_backward(grad_out, q, k, v)[0][1, 0]:.6f}, as measured?")
    mask = np.array([[True, True, False], [True, True, False]])
    dq, dk, dv = sdpa_backward(grad_out, q, k, v, mask)
    show(plots.signed_map(dk, ["key 0", "key 1", "key 2"], range(4), "dk, with key 2 hidden",
                          "feature", ""),
         "A table of signed numbers: rows of keys 0 and 1 mirror each other, "
         "the row of key 2 is exactly zero.")
    reveal("hidden-slope", "exactly 0", "A hidden key has no influence, so no slope.")

# %% [markdown] reflect="sdpa_backward"
# With two visible keys the two rows of `dk` are exact opposites. Which earlier result explains that? Your sentence:

# %% [markdown]
# ---
# ## 2.8 Self-attention
# *core · about 24 min*
#
# So far `q`, `k`, `v` fell from the sky. In a layer they are three learned projections of the tokens: `q = x W_q + b_q`
# and so on. *Self*-attention: all three from the same `x`. Tokens are **rows**. Notes that stack tokens as columns and
# then borrow the row formula end up here:

# %%
d_model, seq_len = 6, 4
x = torch.randn(d_model, seq_len)  # tokens as columns
out = (x.T @ x).softmax(-1) @ x.T
print("input", tuple(x.shape), "output", tuple(out.shape))
attempt("add the input back", lambda: (x + out).shape)

# %% [markdown]
# In columns the product would be `x @ weights.T`. Write the shape under each symbol and such mixtures show
# themselves. Now a question about order:

# %%
predict("permute", "No mask, no positions. You shuffle the tokens of a sentence. "
        "The outputs of self-attention are…",
        ["the same as before", "the same, shuffled along", "new"])

# %% [markdown]
# ### Exercise 2.8 · `SelfAttention` · core · about 20 min
# - **Build** a layer of one head: `w_q`, `w_k`, `w_v`, each `nn.Linear(d_model, d_head)` **with** bias. No output layer.
# - With `causal=True` the causal mask *and* `attn_mask` both apply. There is no axis for heads here: padding comes in as
#   `pad_mask[:, None, :]`.
# - **Allowed** everything above. **Not allowed** torch's own attention.
# - **Done when** the check below passes. (Layers of other names, or one fused layer? Add
#   `load_weights(self, weights)`: it gets `{"w_q.weight": …, "w_q.bias": …}` and so on, `(out, in)`, to copy from.)
#
# <details><summary>Hint 1 · where</summary><code>__init__</code> makes the three layers and remembers
# <code>causal</code>; <code>forward</code> does the rest.</details>
# <details><summary>Hint 2 · what</summary>The length is only known in <code>forward</code>: make the causal mask
# there.</details>
# <details><summary>Hint 3 · how</summary><code>combine_masks(causal_mask(seq_len), attn_mask)</code>, then
# <code>sdpa</code> of the three projections.</details>

# %% exercise="SelfAttention"
class SelfAttention(nn.Module):
    """One head that lets every token read its own sentence.

    x (batch, seq_len, d_model); attn_mask bool, broadcasts to (batch, seq_len, seq_len), or None
    Returns (batch, seq_len, d_head). causal=True hides the future on top of attn_mask.
    Weights: w_q, w_k, w_v, each nn.Linear(d_model, d_head) with bias.
    Paper: Vaswani et al. 2017, §3.2.3. Differs: one head, no output layer.
    """

    def __init__(self, d_model, d_head, causal=False):
        super().__init__()
        ### BEGIN SOLUTION
        self.causal = causal
        self.w_q = nn.Linear(d_model, d_head)
        self.w_k = nn.Linear(d_model, d_head)
        self.w_v = nn.Linear(d_model, d_head)
        ### END SOLUTION

    def forward(self, x, attn_mask=None):
        ### BEGIN SOLUTION
        if self.causal:
            attn_mask = combine_masks(causal_mask(x.shape[1]).to(x.device), attn_mask)
        return sdpa(self.w_q(x), self.w_k(x), self.w_v(x), attn_mask)
        ### END SOLUTION

# %% check="SelfAttention"
check(SelfAttention, points=5)

# %% [markdown]
# **Look.** Move one input a little: which outputs move? A dot marks every place that does.

# %% tags=["demo"]
with need("SelfAttention"):
    torch.manual_seed(0)
    x, maps = torch.randn(1, 5, 6), {}
    for causal in (False, True):
        slopes = torch.autograd.functional.jacobian(
            SelfAttention(6, 4, causal), x)  # (1, T, D, 1, T, M)
        maps[f"causal={causal}"] = slopes.square().sum((0, 2, 3, 5)).sqrt()
    show(plots.influence_maps(maps),
         "Two grids of input against output places. Without the mask every output moves "
         "with every input; with it, dots fill only the lower triangle and the diagonal.")

# %% tags=["demo"]
with need("SelfAttention"):
    order = torch.tensor([3, 0, 4, 1, 2])
    for causal in (False, True):
        layer = SelfAttention(6, 4, causal)
        out, shuffled = layer(x), layer(x[:, order])
        print(f"causal={causal}: against the same rows {(shuffled - out).abs().max():.3f}, "
              f"against shuffled rows {(shuffled - out[:, order]).abs().max():.3f}")
    reveal("permute", "the same, shuffled along",
           "That is equivariant; only a sum or mean over tokens is invariant.")

# %% [markdown] reflect="SelfAttention"
# With `causal=True` neither number is 0. So a decoder gets some sense of order even without positions. Where does it
# come from? Your sentence:

# %% [markdown]
# **The notes' full example, through your layer.** They set d = 4, H = 1, d_head = 2 after defining d = H · d_head. That
# does not hold (2 ≠ 4); as a lone head without output layer it is legal, and it is exactly what you built.

# %% tags=["demo"]
with need("SelfAttention"):
    layer, weights = SelfAttention(4, 2).double(), {}
    for name in ("q", "k", "v"):
        weights[f"w_{name}.weight"] = torch.tensor(
            notes.example(f"001-{name}").inputs["B"]).double().T  # (out, in)
        weights[f"w_{name}.bias"] = torch.zeros(2).double()
    getattr(layer, "load_weights", layer.load_state_dict)(weights)
    x = torch.tensor([notes.example("001-q").inputs["A"]]).double()
    print(notes.example("001-output").compare(layer(x)[0]))

# %% [markdown]
# ---
# ## 2.9 Cross-attention
# *core · about 18 min*
#
# Translating "The cat sat", a decoder holds *El* and must consult the English. **Queries come from the decoder's `x`,
# keys and values from the encoder's output, the `memory`.** Nothing else changes. The memory may be seen whole: no
# causal mask. The notes work out what *El* reads. Use your function, and watch the second line:

# %% tags=["demo"]
with need("attention_weights"):
    ex = notes.example("000-cross-attn-dots")
    q, k = torch.tensor([ex.inputs["q"]]).double(), torch.tensor(ex.inputs["K"]).double()
    print(ex.compare((q @ k.T)[0]))
    print(notes.example("000-cross-attn-softmax").compare(attention_weights(q, k)[0]))
    print("their dots, without the root:", torch.tensor(ex.stated["dots"]).softmax(-1))

# %% [markdown]
# The printed weights are those of *unscaled* scores: someone forgot `√4`. *cat* wins either way, so nobody noticed.
# A check that looks only at the winner cannot see a missing scale.

# %%
predict("cross-shape", "5 decoder tokens read 3 encoder tokens. The table of weights is…",
        ["(5, 3)", "(3, 5)", "(5, 5)"])

# %% [markdown]
# ### Exercise 2.9 · `CrossAttention` · core · about 15 min
# - **Build** one head: `w_q` from `d_model`, `w_k` and `w_v` from `d_memory`, all to `d_head`, with bias.
# - **Allowed** your `sdpa`. **Not allowed** torch's own attention.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Start from your SelfAttention. Which lines read <code>x</code>?</details>
# <details><summary>Hint 2 · what</summary>Two of the three projections read <code>memory</code>; their input is
# <code>d_memory</code> wide.</details>
# <details><summary>Hint 3 · how</summary><code>sdpa(self.w_q(x), self.w_k(memory), self.w_v(memory),
# attn_mask)</code></details>

# %% exercise="CrossAttention"
class CrossAttention(nn.Module):
    """One head that lets one sequence read another.

    x (batch, q_len, d_model); memory (batch, kv_len, d_memory)
    attn_mask bool, broadcasts to (batch, q_len, kv_len), or None
    Returns (batch, q_len, d_head).
    Weights: w_q nn.Linear(d_model, d_head); w_k, w_v nn.Linear(d_memory, d_head), all with bias.
    Paper: Vaswani et al. 2017, §3.2.3. Differs: one head, no output layer.
    """

    def __init__(self, d_model, d_memory, d_head):
        super().__init__()
        ### BEGIN SOLUTION
        self.w_q = nn.Linear(d_model, d_head)
        self.w_k = nn.Linear(d_memory, d_head)
        self.w_v = nn.Linear(d_memory, d_head)
        ### END SOLUTION

    def forward(self, x, memory, attn_mask=None):
        ### BEGIN SOLUTION
        return sdpa(self.w_q(x), self.w_k(memory), self.w_v(memory), attn_mask)
        ### END SOLUTION

# %% check="CrossAttention"
check(CrossAttention, points=4)

# %% tags=["demo"]
with need("CrossAttention"):
    torch.manual_seed(0)
    layer, x, memory, maps = CrossAttention(6, 8, 4), torch.randn(1, 5, 6), torch.randn(1, 3, 8), {}
    for title, mask in {"memory seen whole": None,
                        "place 2 hidden": torch.tensor([True, True, False])}.items():
        slopes = torch.autograd.functional.jacobian(lambda m, mask=mask: layer(x, m, mask), memory)
        maps[title] = slopes.square().sum((0, 2, 3, 5)).sqrt()
    show(plots.influence_maps(maps, inputs="memory place"),
         "Two grids, five outputs by three memory places. Seen "
         "whole, every output moves with every place. With place 2 hidden, its column is empty.")
    reveal("cross-shape", "(5, 3)",
           "One row per query, one column per key, and nothing causal about it.")

# %% [markdown] reflect="CrossAttention"
# Six decoder layers read one memory. "Keys and values are computed once and shared by all of them": which part of that
# is true? (Whose `w_k` is used?) Your sentence:

# %% [markdown]
# ---
# ## 2.10 Repair a broken layer
# *more · about 28 min*
#
# Here is a masked self-attention layer as you may find it online, with the same kinds of fault as the listing in the
# notes. It reads well. Find what you can **before** running on.

# %%
class BrokenAttention(nn.Module):
    def __init__(self, width, max_len, bias=False, dropout=0.2):
        super().__init__()
        self.width = width
        # queries, keys and values of all heads in one go
        self.c_attn = nn.Linear(width, 3 * width, bias=bias)
        # each place sees itself and what stands to its left
        self.register_buffer("seen", torch.ones(1, max_len, max_len).tril())

    def forward(self, x):
        q, k, v = self.c_attn(x).split(width, dim=2)  # each (B, T, T)
        # scaled scores, then dropout
        scores = q @ k.transpose(1, 2) + 1 / math.sqrt(self.width * size(-1))
        scores = scores.masked_fill(self.seen == 0, -math.inf)
        return scores.softmax(-1) @ v


torch.manual_seed(0)
attempt("run it", lambda: BrokenAttention(6, max_len=5)(torch.randn(2, 5, 6)))

# %% [markdown]
# A crash is the friendly kind. Give the two undefined names a meaning and it runs. Is it right? Three probes: a
# full-length sentence against torch's kernel, a short sentence, and dropout.

# %%
predict("plus-for-times", "`scores + c` stands where `scores * c` should. "
        "Compared with no scaling at all, softmax gives…",
        ["sharper weights", "flatter weights", "the very same weights"])

# %%
layer, x = BrokenAttention(6, max_len=5), 2 * torch.randn(2, 5, 6)
width, size = 6, x.size  # the two missing names
q, k, v = layer.c_attn(x).chunk(3, dim=-1)
for scale in (1 / math.sqrt(6), 1.0):
    reference = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    print(f"scale {scale:.2f}: differs from torch by {(layer(x) - reference).abs().max():.3f}")
attempt("a sentence of 3", lambda: layer(x[:, :3]).shape)
attempt("train and eval agree", lambda: bool((layer.train()(x) == layer.eval()(x)).all()))
reveal("plus-for-times", "the very same weights", "A constant shifts every score of a row alike.")

# %% [markdown]
# Its outputs are torch's **without** scaling: the `+` silently switched it off. A short sentence crashes on a mask of
# full size. Dropout, promised twice, does not exist. The shape comment is false, "all heads" is one head, and padding
# was forgotten. And mending the `+` alone would divide by √(6 · 6) = 6 where √6 is meant.

# %% [markdown]
# ### Exercise 2.10 · `MaskedSelfAttention` · more · about 25 min
# - **Build** the repaired layer: one `c_attn = nn.Linear(d_model, 3 * d_model, bias=bias)` whose rows are q, then k,
#   then v; one head, causal, scale `1/√d_model`, no output layer.
# - Dropout acts **on the weights**, in training only. `pad_mask` hides keys: `pad_mask[:, None, :]` here,
#   since one head has no head axis. More than `max_len` tokens: ValueError.
# - **Allowed** your functions, `nn.Dropout`. **Not allowed** torch's own attention.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Eight faults: two names, <code>+</code>, the root, the size of the mask,
# dropout, comments, padding.</details>
# <details><summary>Hint 2 · what</summary>Your <code>attention_weights</code> already scales and survives empty rows.
# Make the mask in <code>forward</code>, where the length is known; <code>pad_mask</code> needs an axis for
# queries.</details>
# <details><summary>Hint 3 · how</summary><code>combine_masks(causal_mask(seq_len), pad_mask[:, None, :])</code> →
# <code>attention_weights</code> → <code>self.dropout</code> → <code>@ v</code>.</details>

# %% exercise="MaskedSelfAttention"
class MaskedSelfAttention(nn.Module):
    """Causal self-attention of one head, with padding and dropout.

    x (batch, seq_len, d_model); pad_mask (batch, seq_len) bool, True = real token, or None
    Returns (batch, seq_len, d_model). Weights: c_attn nn.Linear(d_model, 3 * d_model),
    rows in order q, k, v. Raises ValueError if seq_len > max_len.
    """

    def __init__(self, d_model, max_len, bias=False, dropout=0.2):
        super().__init__()
        ### BEGIN SOLUTION
        self.max_len = max_len
        self.c_attn = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.dropout = nn.Dropout(dropout)
        ### END SOLUTION

    def forward(self, x, pad_mask=None):
        ### BEGIN SOLUTION
        if (seq_len := x.shape[1]) > self.max_len:
            raise ValueError(f"{seq_len} tokens, but max_len is {self.max_len}")
        q, k, v = self.c_attn(x).chunk(3, dim=-1)  # each (B, T, M)
        real_keys = None if pad_mask is None else pad_mask[:, None, :]  # (B, 1, T)
        visible = combine_masks(causal_mask(seq_len).to(x.device), real_keys)
        return self.dropout(attention_weights(q, k, visible)) @ v
        ### END SOLUTION

# %% check="MaskedSelfAttention"
check(MaskedSelfAttention, points=6)

# %% tags=["demo"]
with need("MaskedSelfAttention"):
    repaired = MaskedSelfAttention(6, max_len=5)
    repaired.load_state_dict({"c_attn.weight": layer.c_attn.weight}, strict=False)
    reference = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    print(f"differs from torch by {(repaired.eval()(x) - reference).abs().max():.7f}")
    attempt("a sentence of 3", lambda: repaired(x[:, :3]).shape)
    left_padded = torch.tensor([[False, True, True, True, True]] * 2)
    attempt("an empty first row", lambda: repaired(x, left_padded)[0, 0].tolist())

# %% [markdown] reflect="MaskedSelfAttention"
# Which of these faults would a linter find, which a shape test, and which only a comparison with a reference? Your
# sentence:

# %% [markdown]
# ---
# ## 2.11 Catch the leak
# *core · about 22 min*
#
# A decoder that sees the future trains beautifully and generates rubbish. Its shapes are right, its rows sum to 1. How
# do you *catch* it? Ask what causal means: **what comes later changes nothing that came before.**
# Here are five suspects in bare torch, one of them innocent, and a test someone wrote in a hurry.

# %%
def suspect(mask):
    """An attention (batch, seq_len, 8) -> the same,
    that applies `mask(i, j)` to query places i and key places j."""
    def attention(x):
        i, j = torch.arange(x.shape[1])[:, None], torch.arange(x.shape[1])
        return (x @ x.transpose(1, 2) / 3).masked_fill(~mask(i, j), -1e4).softmax(-1) @ x
    return attention


suspects = {"causal": suspect(lambda i, j: j <= i),
            "no mask": suspect(lambda i, j: j < 99),
            "one step ahead": suspect(lambda i, j: j <= i + 1),
            "leaks from place 6 on": suspect(lambda i, j: (j <= i) | (i > 5)),
            "only a far word": suspect(lambda i, j: (j <= i) | (j == i + 9))}

# %%
predict("hasty-test", "The hasty test changes the last token of four and watches output 0. "
        "Of the four guilty suspects it catches…", ["all four", "two", "one"])

# %%
def hasty_test(attention):
    x = torch.randn(1, 4, 8, generator=torch.Generator().manual_seed(0))
    changed = x.clone()
    changed[:, -1] += 1
    return not torch.allclose(attention(x)[:, 0], attention(changed)[:, 0])


for name, attention in suspects.items():
    print(f"{name:22} leaks: {hasty_test(attention)}")
reveal("hasty-test", "one",
       "Near leaks, late leaks and far ones escape: one place and four tokens are too few.")

# %% [markdown]
# ### Exercise 2.11 · `leaks_future` · core · about 20 min
# - **Build** the test that catches every leak and accuses nobody wrongly. `attention` maps `(batch, seq_len, 8)` to
#   `(batch, seq_len, d_out)` for any `seq_len` from 1 to 16 and any float dtype, without chance.
# - **Allowed** any number of calls, perturbation or gradients. **Not allowed** changing the attention.
# - **Done when** the check below passes: it runs your test on right and wrong attentions you have not seen.
#
# <details><summary>Hint 1 · where</summary>A leak may need a long sentence, a late place, or exactly one distance. Look
# at every place, at length 16.</details>
# <details><summary>Hint 2 · what</summary>Cut the sentence after each place in turn. A causal attention gives the
# beginning the same outputs, whether the rest is there or not.</details>
# <details><summary>Hint 3 · how</summary>float64 and <code>torch.no_grad()</code>;
# <code>torch.allclose(attention(x[:, :cut]), attention(x)[:, :cut])</code> for every cut from 1 to 15. Small leaks need
# a small tolerance.</details>

# %% exercise="leaks_future"
def leaks_future(attention):
    """Does any output depend on a later input?

    attention: maps (batch, seq_len, 8) to (batch, seq_len, d_out),
    seq_len 1 to 16, any float dtype, no chance
    Returns bool, True = it leaks.
    Promises: attention and the global random state stay as they were.
    """
    ### BEGIN SOLUTION
    x = torch.randn(4, 16, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole = attention(x)
        for cut in range(1, 16):
            if not torch.allclose(attention(x[:, :cut]), whole[:, :cut], rtol=1e-7, atol=1e-9):
                return True
    return False
    ### END SOLUTION

# %% check="leaks_future"
check(leaks_future, points=5)

# %% tags=["demo"]
with need("leaks_future", "SelfAttention"):
    for name, attention in suspects.items():
        print(f"{name:22} leaks: {leaks_future(attention)}")
    for causal in (True, False):
        layer = SelfAttention(8, 4, causal)
        leaks = leaks_future(lambda x, layer=layer: layer.to(x.dtype)(x))
        print(f"{f'yours, causal={causal}':22} leaks: {leaks}")

# %% [markdown] reflect="leaks_future"
# Keep this function: it tests any decoder you will ever write. In one sentence, how could a model with a leak show
# itself in the training loss?

# %% [markdown]
# ---
# ## 2.12 What it costs
# *more · about 13 min*
#
# Two matrix products do the work: `q @ kᵀ` and `weights @ v`. Each takes `q_len · kv_len · d_head` multiply-adds per
# head and example, and a multiply-add counts as two operations. Between them stands the score table, one number per
# pair.

# %%
predict("double", "Twice as many tokens (queries and keys). The score table takes…",
        ["2 times the memory", "4 times the memory", "8 times the memory"])

# %% [markdown]
# ### Exercise 2.12 · `attention_cost` · more · about 8 min
# - **Build** both counts as exact Python ints. Count the two products and nothing else.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Count pairs first: batch, heads, queries, keys.</details>
# <details><summary>Hint 2 · what</summary>2 products · 2 operations for each pair and each feature.</details>
# <details><summary>Hint 3 · how</summary><code>4 * pairs * d_head</code> and
# <code>pairs * bytes_per_element</code>.</details>

# %% exercise="attention_cost"
def attention_cost(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    """Count the work of attention and the size of its score table.

    Returns flops, score_bytes: exact ints;
    a multiply-add is 2 operations, both products, nothing else
    """
    ### BEGIN SOLUTION
    pairs = batch * n_heads * q_len * kv_len
    return 4 * pairs * d_head, pairs * bytes_per_element
    ### END SOLUTION

# %% check="attention_cost"
check(attention_cost, points=2)

# %% tags=["demo"]
with need("attention_cost"):
    lengths, d_model = [128, 512, 2048, 8192, 32768], 512
    attention = [attention_cost(1, 8, n, n, d_model // 8, 2)[0] for n in lengths]
    rest = [24 * n * d_model**2 for n in lengths]
    show(plots.cost_curves(lengths, attention, rest, d_model),
         "Log-log curves: attention rises twice as steeply "
         "and overtakes the rest of the block at 6 · d_model tokens.")
    table = attention_cost(1, 8, 32768, 32768, 64, 2)[1]
    reveal("double", "4 times the memory",
           f"At 32,768 tokens and 8 heads: {table / 2**30:.0f} GiB in half precision.")

# %% [markdown] reflect="attention_cost"
# A cache keeps old keys and values, so a decode step has `q_len` 1. Per new token, the projections fall from `n` rows
# to 1, the scores from `n²` to `n`. The notes attach the second drop to the projections. Say both in your own words:

# %% [markdown]
# ---
# ## 2.13 One block of keys at a time
# *stretch · about 30 min*
#
# Gigabytes of scores, though each row is needed only once. Can softmax run without ever holding a row? Keep three things
# while reading keys block by block: the largest score so far (`top`), the sum of `exp(score − top)` (`total`), and the
# mix of values with those same factors (`mixed`). At the end the answer is `mixed / total`. One thing goes wrong:

# %%
scores, values = torch.tensor([1.0, 2.0, 0.5, 4.0]), torch.tensor([10.0, 20.0, 30.0, 40.0])
total = mixed = 0.0
for block in (slice(0, 2), slice(2, 4)):
    exps = (scores[block] - scores[block].max()).exp()  # each block subtracts its own maximum
    total, mixed = total + exps.sum(), mixed + exps @ values[block]
print(f"block by block {mixed / total:.3f}, all at once {scores.softmax(-1) @ values:.3f}")

# %% [markdown]
# The blocks used different units: the first measured from 2, the second from 4. When the maximum grows, everything kept
# so far must be converted to the new unit. One factor does it, and FlashAttention rests on it. Which?

# %%
predict("shrink", "`top` grows from 2 to 4. What was kept so far is multiplied by…",
        ["exp(2)", "exp(−2)", "½"])

# %% [markdown]
# ### Exercise 2.13 · `streaming_attention` · stretch · about 30 min
# - **Build** attention that reads `block_size` keys at a time. Same result and same gradients as `sdpa`.
# - **Not allowed** any floating tensor of shape `(…, q_len, kv_len)`, in either order. (The bool mask is fine.)
# - **Done when** the check below passes. It hides first blocks and whole rows.
#
# <details><summary>Hint 1 · where</summary>Outside the loop: <code>top</code>, <code>total</code> of shape
# <code>(…, Q, 1)</code> and <code>mixed</code> of shape <code>(…, Q, d_v)</code>. Inside: one block of scores.</details>
# <details><summary>Hint 2 · what</summary>Let <code>top</code> start at the smallest finite number; then a hidden block
# makes no NaN. A mask whose last axis is 1 cannot be sliced: expand it first.</details>
# <details><summary>Hint 3 · how</summary>per block: <code>new_top = maximum(top, scores.amax(-1))</code>,
# <code>shrink = exp(top − new_top)</code>, <code>exps = exp(scores − new_top)</code> with hidden ones 0, then
# <code>total = total * shrink + exps.sum</code> and <code>mixed = mixed * shrink + exps @ v</code>. Guard the last
# division.</details>

# %% exercise="streaming_attention"
def streaming_attention(q, k, v, block_size, attn_mask=None):
    """Attention that never holds the whole score table. Shapes, mask and result as in sdpa.

    Raises ValueError if block_size < 1. Paper: Milakov and Gimelshein 2018; Dao et al. 2022, §3.1.
    """
    ### BEGIN SOLUTION
    if block_size < 1:
        raise ValueError("block_size must be at least 1")
    kv_len, lowest = k.shape[-2], torch.finfo(q.dtype).min
    mask = torch.ones(1, 1, dtype=torch.bool, device=q.device) if attn_mask is None else attn_mask
    hidden = ~mask.expand(*mask.shape[:-1], kv_len)
    top = q.new_full((*q.shape[:-1], 1), lowest)  # (…, Q, 1)
    total, mixed = torch.zeros_like(top), q.new_zeros(*q.shape[:-1], v.shape[-1])
    for start in range(0, kv_len, block_size):
        block = slice(start, start + block_size)
        scores = q @ k[..., block, :].transpose(-2, -1) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(hidden[..., block], lowest)  # (…, Q, block)
        # cancels out, so no gradient
        new_top = torch.maximum(top, scores.detach().amax(-1, keepdim=True))
        shrink, top = (top - new_top).exp(), new_top
        exps = (scores - top).exp().masked_fill(hidden[..., block], 0.0)
        total = total * shrink + exps.sum(-1, keepdim=True)
        mixed = mixed * shrink + exps @ v[..., block, :]
    return mixed / total.masked_fill(total == 0, 1.0)
    ### END SOLUTION

# %% check="streaming_attention"
check(streaming_attention, points=5)

# %% tags=["demo"]
with need("streaming_attention", "sdpa"):
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 4, 300, 64), torch.randn(1, 4, 2000, 64), torch.randn(1, 4, 2000, 64)
    for block_size in (50, 500, 2000):
        gap = (streaming_attention(q, k, v, block_size) - sdpa(q, k, v)).abs().max()
        print(f"block {block_size:4}: largest score tensor "
              f"{4 * 300 * block_size * 4 / 2**20:4.1f} MiB, gap {gap:.0e}")
    reveal("shrink", "exp(−2)", "Factors measured from 2 become factors measured from 4.")

# %% [markdown] reflect="streaming_attention"
# The number of operations did not fall. What did, and why does that make it faster on a GPU? Your sentence:

# %% [markdown]
# ---
# ## 2.14 Every number of the notes
# *more · about 6 min*
#
# The rest of the worked numbers in one pass, each through what you built. `you ✓`: yours is what comes out. `notes ✗`:
# theirs is not, and the code behind it names the erratum (`notes.erratum("A14")` tells its story). For each, say which
# cheap test would have caught it: a sum of 1, a shape, a reference, one more digit.

# %%
def tally(mine):
    """One line per number: does yours agree with the recomputation, and did the notes?"""
    for name, value in mine.items():
        ex = notes.example(name)
        verdict = ex.compare(value)
        you, they = ("✓" if agrees else "✗"
                     for agrees in (verdict.agrees, verdict.agrees_with_notes))
        print(f"{name:42}you {you}  notes {they}  {' '.join(slip.id for slip in ex.errata)}")


def numbers(name, key):
    return torch.tensor(notes.example(name).inputs[key], dtype=torch.float64)

# %% tags=["demo"]
with need("masked_softmax"):
    rows = ["000-softmax-row-the", "000-softmax-row-cat", "000-softmax-row-sat", "000-mask-row-el",
            "000-cross-attn-softmax-unscaled-diagnosis", "002-causal-softmax-diagnosis",
            "001-softmax-row1", "001-softmax-row2", "001-softmax-row3"]
    tally({name: masked_softmax(numbers(name, "z"), numbers(name, "z") > -math.inf)
           for name in rows})
    hidden = torch.tensor([False, False, True])
    tally({"000-exp-minus-inf": masked_softmax(torch.tensor([0.75, 2.6, 9.0]), ~hidden)[2],
           "002-softmax-minus-inf": masked_softmax(torch.full((3,), -math.inf), ~hidden)[2]})

# %% [markdown]
# The long worked example of the notes, stage by stage. Where the stages are printed wrongly and the result rightly, the
# result was not computed from the stages.

# %% tags=["demo"]
with need("attention_weights", "sdpa"):
    q, k, v = (numbers(name, "A") @ numbers(name, "B") for name in ("001-q", "001-k", "001-v"))
    scaled = q @ k.T / math.sqrt(2)
    tally({"001-q": q, "001-k": k, "001-v": v, "001-scores": q @ k.T, "001-scaled": scaled})
    shifted = scaled - scaled.amax(-1, keepdim=True)
    for row in range(3):
        printed = f"001-softmax-quotient-row{row + 1}"
        tally({f"001-shifted-row{row + 1}": shifted[row],
               f"001-exp-row{row + 1}": shifted[row].exp(),
               f"001-sum-row{row + 1}": shifted[row].exp().sum(),
               printed: numbers(printed, "exp") / numbers(printed, "sum")})
    tally({"001-a-row-sums": attention_weights(q, k).sum(-1), "001-output": sdpa(q, k, v)})

# %% tags=["demo"]
with need("attention_weights", "sdpa", "causal_mask"):
    tally({name: numbers(name, "A") @ numbers(name, "B")
           for name in ("000-q-the", "000-q-cat", "000-q-sat")})
    q, k, v = (torch.ones(1, 2).double(), numbers("002-sdpa-scores", "B"),
               numbers("002-sdpa-output", "V"))
    tally({"002-sdpa-scores": q @ k.T, "002-sdpa-scaled": q @ k.T / 2**0.5,
           "002-sdpa-output": sdpa(q, k, v)})
    scores = numbers("000-scaling", "S")
    q, k = F.pad(scores, (0, 1)), torch.eye(3, 4).double()
    tally({"000-scaling": scores / 2, "000-attention-row-sums": attention_weights(q, k).sum(-1)})
    tally({"000-cross-attn-scaled":
               numbers("000-cross-attn-dots", "K") @ numbers("000-cross-attn-dots", "q") / 2})
    for name in ("000-mask-3x3", "001-mask-definition", "003-mask-5x5"):
        n = notes.example(name).inputs["n"]
        tally({name: torch.zeros(n, n).masked_fill(~causal_mask(n), -math.inf)})
    tally({"000-qkv-shapes": sdpa(q, k, k).shape,
           "000-cross-attn-shapes": sdpa(torch.ones(5, 4).double(), k, k).shape})

# %% [markdown]
# Last, the sentences. Each is a claim about what *would* happen, so let it happen. (Three entries of the notes are left
# out: two give no inputs, and one is a list of 76 small sums, all of them right.)

# %% tags=["demo"]
with need("sdpa", "SelfAttention", "score_variance", "softmax_jacobian"):
    torch.manual_seed(0)
    q, k, v, w = torch.randn(4, 5, 6)
    layer, x, order = SelfAttention(6, 4), torch.randn(1, 5, 6), [3, 0, 4, 1, 2]
    thirds, tie, one_hot = (np.linalg.norm(softmax_jacobian(np.array(p))) for p in
                            ([1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]))
    spread = score_variance(64, 20_000, torch.Generator().manual_seed(0))[0] ** 0.5
    tally({"000-v-linear":
               torch.allclose(sdpa(q, k, v + w), sdpa(q, k, v) + sdpa(q, k, w), atol=1e-5),
           "003-permutation-invariant": torch.allclose(layer(x[:, order]), layer(x)),
           "000-softmax-jacobian-formula":
               np.allclose(softmax_jacobian(softmax_1d(cat_scores)), measured),
           "000-softmax-jacobian-largest": bool(thirds >= tie),
           "000-jacobian-vanishes-one-hot": one_hot,
           "000-variance-dk64": round(float(spread)),
           "000-std8-near-onehot":
               bool((8 * torch.randn(999, 10)).softmax(-1).amax(-1).mean() > 0.8)})

# %%
row, upper = torch.tensor([1.0, 3.0, 4.0]), torch.ones(5, 5).triu().bool()
shares = notes.example("002-2.1-attention-order").inputs["weights"]
padded = notes.example("002-padding-batch-length").inputs["rows"]
tally({"001-minus-1e9-fp16": math.isfinite(torch.tensor(-1e9).half()),
       "002-code-plus-vs-times": torch.allclose((row + 1 / 8).softmax(-1), (row / 8).softmax(-1)),
       "003-mask-upper-triangular-prose": not upper.all(-1).any().item(),
       "003-column-convention-shapes": (torch.ones(4, 4) @ torch.ones(6, 4).T).shape == (6, 4),
       "002-padding-batch-length": len(padded[0]) == len(padded[1]),
       "002-2.1-attention-order": sorted(shares, key=shares.get, reverse=True),
       "002-2.1-attention-weights": numbers("002-2.1-attention-weights", "w").sum(),
       "002-2.2-attention-weights": numbers("002-2.2-attention-weights", "w").sum()})

# %% [markdown]
# ---
# ## 2.15 Say it aloud
# *core · about 13 min*
#
# Three questions that interviewers ask. Write as you would speak: five to eight sentences. A person grades these.

# %% [markdown]
# **Question 1. How does scaled dot-product attention work, and why divide by √d_head?**
#
# | points | for |
# |---|---|
# | 1 | four steps in order: compare, scale, softmax over keys, mix values |
# | 1 | the shape of the scores and the axis of softmax |
# | 1 | the variance argument: `Var(q·k) = d_head`, so the root brings it back to 1 |
# | 1 | what happens without: saturated weights, almost no gradient (and that overflow is another matter) |

# %% [markdown] written="why-scale" points=4
# ### BEGIN SOLUTION
# Every query is compared with every key by a dot product, which gives a table of scores with one row per query and one
# column per key, (q_len, kv_len). The scores are divided by √d_head, hidden keys are removed, and softmax runs along
# each row, over the keys, so a query shares out exactly 1. The output of a query is the average of the values with those
# weights. The root is about spread: a dot product of d_head independent terms of variance 1 has variance d_head, so at
# width 64 scores are typically 8 away from zero. Softmax of such scores is nearly one-hot, and there its Jacobian is
# nearly zero, so almost no gradient reaches queries and keys. Dividing by the root, not by d_head, brings the variance
# back to 1 whatever the width of the head. Overflow is a separate matter, solved by subtracting the row's maximum.
# ### END SOLUTION

# %% [markdown]
# **Question 2. Why do Transformers need masks? What does each one hide, and where is it used?**
#
# | points | for |
# |---|---|
# | 1 | padding: filler keys, hidden in every kind of attention over padded sequences |
# | 1 | causal: later keys, only in a decoder's self-attention; a token sees itself |
# | 1 | how: before softmax, so that the visible keys still share 1; both combined with AND |
# | 1 | what it buys (all places train in parallel) or how it breaks (empty rows, an axis that broadcasts, a leak) |

# %% [markdown] written="why-masks" points=4
# ### BEGIN SOLUTION
# Attention reads whatever it is given, so a mask says what may be read. A padding mask hides the filler that makes the
# sentences of a batch equally long; it hides keys, never queries, and is needed in the encoder, in the decoder and in
# cross-attention, there for the encoder's padding. A causal mask hides later tokens in the decoder's self-attention; a
# token may see itself, and the last one has seen everything. It lets all places be trained at once while each predicts
# its successor without having read it. Both are applied before softmax, so the visible keys still share 1, and are
# combined with AND. Three things go wrong in practice: a row with nothing visible becomes NaN or an average, a
# (batch, q, k) mask without an axis for heads broadcasts against the wrong one, and a leak trains well and generates badly.
# ### END SOLUTION

# %% [markdown]
# **Question 3. Why queries, keys and values, and what tells self-attention from cross-attention?**
#
# | points | for |
# |---|---|
# | 1 | the three roles: what is looked for, what is offered, what is handed over |
# | 1 | why not one vector: symmetric scores, or matching tied to content |
# | 1 | self: all three from one sequence; cross: queries from the decoder, keys and values from the encoder's output |
# | 1 | shapes (q_len, kv_len), no causal mask in cross-attention, each layer projects the shared memory itself |

# %% [markdown] written="self-and-cross" points=4
# ### BEGIN SOLUTION
# A query says what a token looks for, a key what a token offers, a value what it hands over once it is read; the first
# two decide how much, the third decides what. With one vector for all roles the scores would be symmetric, so "it" could
# not read "cat" more than "cat" reads "it", and what makes a token findable would also have to be what it passes on.
# Three learned matrices separate the roles. In self-attention all three come from the same sequence. In cross-attention
# the queries come from the decoder and the keys and values from the encoder's output, so the scores are (q_len, kv_len)
# with two different lengths. The encoder's output may be seen whole, so there is no causal mask, only its padding mask.
# All decoder layers share that output, but each has its own matrices and therefore its own keys and values.
# ### END SOLUTION

# %% [markdown]
# ### The phase on one screen

# %%
show(plots.recap(),
     "A flow chart: x gives q, memory gives k and v; q and k make scaled scores, "
     "a mask hides some, softmax shares out the rest, and the weights mix v into the output, "
     "with shapes and your functions named.")

# %% [markdown]
# **What you can now say in an interview:**
#
# - Attention is a soft lookup: compare, scale, hide, share out, mix. Scores are `(q_len, kv_len)`.
# - `Var(q·k) = d_head`; the root, per head, keeps softmax where it has a slope. That slope is `p (g − Σ p g)`.
# - Hidden means weight 0 and gradient 0, exactly. An empty row is zeros, never NaN.
# - Causal: a token sees itself and its past, the last one everything. Test it by cutting, not by looking.
# - Without positions self-attention is equivariant, unless a causal mask breaks that.
# - Its cost is `4·B·H·Q·K·D` operations, more than the rest of a block beyond about `6·d_model` tokens.
#
# Phase 3: several heads at once.
