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
# # Phase 3 · Multi-head attention
#
# One softmax points at one thing. A word needs several: its noun, its neighbour, its verb. So attention runs several
# times side by side. You will build that, find out whether heads *really* learn different things, and catch one at it.
#
# | section | you build | minutes | path |
# |---|---|---|---|
# | [3.1 One softmax, one mix](#3.1-One-softmax,-one-mix) | – | 8 | core |
# | [3.2 Cut the features into heads](#3.2-Cut-the-features-into-heads) | `split_heads` `merge_heads` | 24 | core |
# | [3.3 Follow the shapes](#3.3-Follow-the-shapes) | `shape_trace` | 11 | core |
# | [3.4 Multi-head attention](#3.4-Multi-head-attention) | `MultiHeadAttention` | 30 | core |
# | [3.5 The same as torch's](#3.5-The-same-as-torch's) | `unpack_in_proj` | 15 | more |
# | [3.6 A sum over heads](#3.6-A-sum-over-heads) | `sum_of_heads` | 18 | core |
# | [3.7 Fewer keys than queries](#3.7-Fewer-keys-than-queries) | `GroupedQueryAttention` | 23 | more |
# | [3.8 What it weighs](#3.8-What-it-weighs) | `mha_parameters` | 12 | more |
# | [3.9 Dropout on the weights](#3.9-Dropout-on-the-weights) | `attention_dropout` | 15 | more |
# | [3.10 What a head looks at](#3.10-What-a-head-looks-at) | `head_entropy` `head_patterns` | 30 | core |
# | [3.11 Which head matters](#3.11-Which-head-matters) | `head_importance` | 18 | core |
# | [3.12 The claim, tested](#3.12-The-claim,-tested) | – | 15 | core |
# | [3.13 Farther is fainter](#3.13-Farther-is-fainter) | `alibi_bias` | 18 | stretch |
# | [3.14 Every number of the notes](#3.14-Every-number-of-the-notes) | – | 5 | more |
# | [3.15 Say it aloud](#3.15-Say-it-aloud) | three answers, recap | 13 | core |
#
# The core path is under three hours; minutes are estimates until learners have been timed. You can stop after any
# section. To come back, run the setup cell and the cells you have solved.

# %% [markdown]
# What you built in phase 2 is used here. A part that is not finished there is lent by the course, and the setup cell
# says so. "The notes" are the texts that this course follows; where they slip, the page says so. Tensors that you
# make take the dtype of what you were given (`x.new_zeros(…)`). Names as before: `B` batch, `H` heads, `T` tokens (`Q` queries, `K` keys), `M` d_model, `D` d_head.

# %% tags=["setup"]
import functools
import math

import torch
import torch.nn.functional as F
from torch import nn

from utils import check, notes, plots, widgets
from utils.lesson import attempt, need, predict, reveal, show
from utils.mycode import mine

torch.set_printoptions(precision=3, sci_mode=False)
torch.set_num_threads(1)  # our matrices are small: more threads would wait for one another

attention_weights = mine("attention_weights")
sdpa = mine("sdpa")
causal_mask = mine("causal_mask")

# %% [markdown]
# ---
# ## 3.1 One softmax, one mix
# *core · about 8 min*
#
# *The cat sat as it was tired.* To understand "it", a model wants the noun it stands for **and** the word beside it. One
# head has one row of weights for "it". Give half to each:

# %%
predict("one-mix", "One head reads its noun and its neighbour with ½ each and returns one vector. "
        "Can a later layer tell which of the two was the noun?",
        ["yes", "no", "only with more training"])

# %%
cat, tired = torch.tensor([4.0, 1.0]), torch.tensor([1.0, 3.0])  # two values
print("noun cat, neighbour tired: one head ", 0.5 * cat + 0.5 * tired)
print("noun tired, neighbour cat: one head ", 0.5 * tired + 0.5 * cat)
print("noun cat, neighbour tired: two heads", torch.cat([cat, tired]))
print("noun tired, neighbour cat: two heads", torch.cat([tired, cat]))
reveal("one-mix", "no", "An average forgets who gave what. Two heads keep two places for two answers.")

# %% [markdown]
# So: several heads, each with queries, keys and values of its own, results side by side. Of its *own*: our notes write
# the same three matrices for head 1 and head 2. Taken literally:

# %%
torch.manual_seed(0)
x, w_q, w_k, w_v = torch.randn(4, 8), *torch.randn(3, 8, 4)
head_1 = sdpa(x @ w_q, x @ w_k, x @ w_v)
head_2 = sdpa(x @ w_q, x @ w_k, x @ w_v)  # the same letters, so the same numbers
print("two heads that share their matrices differ by", (head_1 - head_2).abs().max().item())

# %% [markdown]
# Equal heads say everything twice. With 8 heads of width 64 and their own matrices, one layer has 8 separate tables of
# weights, and the results fill 8 · 64 = 512 features again.

# %% [markdown]
# ---
# ## 3.2 Cut the features into heads
# *core · about 24 min*
#
# Eight small matrices `(M, D)` side by side are one large matrix `(M, M)`. So nobody multiplies eight times: one
# product, then **cut the result**: features 0 to 63 belong to head 0, the next 64 to head 1.
#
# `sdpa` works on the last two axes, `(tokens, features)`, and leaves all others alone. So the heads must stand before
# the tokens: `(B, T, M)` becomes `(B, H, T, D)`. Two tokens, six features, three heads; the tens digit is the token:

# %%
x = torch.tensor([[0, 1, 2, 3, 4, 5], [10, 11, 12, 13, 14, 15]])
predict("reshape", "The goal has shape (3, 2, 2). `x.view(3, 2, 2)` has that shape. Its head 0 holds…",
        ["features 0 and 1 of both tokens", "four features of token 0", "features 0 and 3 of both tokens"])

# %%
print("x.view(3, 2, 2), head 0\n", x.view(3, 2, 2)[0])
print("x.view(2, 3, 2).transpose(0, 1), head 0\n", x.view(2, 3, 2).transpose(0, 1)[0])
reveal("reshape", "four features of token 0",
       "view only regroups the numbers as they lie in memory. Moving an axis is transpose.")

# %% [markdown]
# The first "head" is one token cut in two; attention between its rows means nothing, and no error says so. The notes
# reshape to `(T, H, D)` and go on "per head", without the transpose.
#
# ### Exercise 3.2a · `split_heads` · core · about 10 min
# - **Build** `(…, T, M)` → `(…, H, T, D)`: head `h` holds features `h·D` to `(h+1)·D − 1`. Any leading axes.
# - **Allowed** `view`, `reshape`, `unflatten`, `transpose`, `chunk`, `stack`.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Only the last axis is cut. The tokens keep their axis and get a new neighbour.</details>
# <details><summary>Hint 2 · what</summary>First (…, T, M) → (…, T, H, D), which moves nothing. Then exchange two axes,
# counted from the right.</details>
# <details><summary>Hint 3 · how</summary><code>x.reshape(*x.shape[:-1], n_heads, d_head).transpose(-3, -2)</code>, after a
# ValueError for features that are left over.</details>

# %% exercise="split_heads"
def split_heads(x, n_heads):
    """Give each head its own slice of features.

    x (…, seq_len, d_model)
    Returns (…, n_heads, seq_len, d_head), d_head = d_model / n_heads:
    head h holds features h·d_head to (h+1)·d_head − 1.
    Raises ValueError if n_heads does not divide d_model.
    """
    ### BEGIN SOLUTION
    d_model = x.shape[-1]
    if d_model % n_heads:
        raise ValueError(f"n_heads must divide d_model, got {n_heads} and {d_model}")
    x = x.reshape(*x.shape[:-1], n_heads, d_model // n_heads)  # (…, T, H, D)
    return x.transpose(-3, -2)  # (…, H, T, D)
    ### END SOLUTION

# %% check="split_heads"
check(split_heads, points=3)

# %% [markdown]
# **Play.** Colours are tokens; a box says token·feature. Switch between your function and `view` alone: which colours does
# head 0 hold? With which number of heads can you not tell the two apart?

# %% tags=["demo"]
with need("split_heads"):
    widgets.split_visualiser(split_heads)

# %% [markdown] reflect="split_heads"
# At some sizes the faulty version is right. What does that say about testing on small ones? Your sentence:

# %% [markdown]
# The way back. After attention the heads stand before the tokens, and each token wants its heads side by side again.

# %%
heads = x.view(2, 3, 2).transpose(0, 1).contiguous()  # (H, T, D), as attention returns it
print("reshaped at once\n", heads.reshape(2, 6))
attempt("transpose, then view", lambda: heads.transpose(0, 1).view(2, 6))

# %% [markdown]
# Row 0 should read 0 1 2 3 4 5. `reshape` read the numbers head by head and mixed the tokens; `view` refuses, because
# the numbers do not lie in memory in that order.
#
# ### Exercise 3.2b · `merge_heads` · core · about 8 min
# - **Build** the inverse of `split_heads`: `(…, H, T, D)` → `(…, T, H·D)`.
# - **Allowed** `transpose`, `reshape`, `flatten`, `cat`.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Undo the two steps of <code>split_heads</code>, last one first.</details>
# <details><summary>Hint 2 · what</summary>After the exchange the numbers lie scattered. <code>view</code> refuses that;
# <code>reshape</code> and <code>flatten</code> copy when they must.</details>
# <details><summary>Hint 3 · how</summary><code>x.transpose(-3, -2).flatten(-2)</code></details>

# %% exercise="merge_heads"
def merge_heads(x):
    """Put the heads of each token side by side again.

    x (…, n_heads, seq_len, d_head)
    Returns (…, seq_len, n_heads · d_head). Promises: merge_heads(split_heads(x, n)) is x.
    """
    ### BEGIN SOLUTION
    return x.transpose(-3, -2).flatten(-2)  # (…, T, H, D), then (…, T, H·D)
    ### END SOLUTION

# %% check="merge_heads"
check(merge_heads, points=2)

# %% tags=["demo"]
with need("split_heads", "merge_heads"):
    x = torch.arange(2 * 5 * 12.0).view(2, 5, 12)
    print("there and back:", torch.equal(merge_heads(split_heads(x, 3)), x))
    print("8 heads of 64: ", notes.example("002-concat-8x64").compare(
        merge_heads(torch.zeros(8, 4, 64)).shape[-1]))

# %% [markdown] reflect="merge_heads"
# Notes call the last step "concatenate", you wrote `transpose` and `flatten`. Why is that the same? Your sentence:

# %% [markdown]
# ---
# ## 3.3 Follow the shapes
# *core · about 11 min*
#
# Most bugs of attention are shape bugs. Write the shape under each symbol once, and you can read any implementation:
#
# `x → q, k, v → heads → scores → weights → mixed heads → merged → output`

# %%
predict("score-shape", "2 sentences, 5 tokens, d_model 12, 3 heads. The scores of a layer have shape…",
        ["(2, 5, 5)", "(2, 3, 5, 5)", "(2, 3, 5, 4)"])

# %% [markdown]
# ### Exercise 3.3 · `shape_trace` · core · about 8 min
# - **Build** the shapes of all steps, as a dict of tuples. Keys: `x q k v q_heads k_heads_transposed v_heads scores
#   attn_weights heads merged output`. `q`, `k`, `v` stand before the split; `heads` is weights times values.
# - **Done when** the check below passes. It names a key that is missing.
#
# <details><summary>Hint 1 · where</summary>There are only three different shapes, plus the one of the transposed
# keys.</details>
# <details><summary>Hint 2 · what</summary>Everything before the split and after the merge is (B, T, M). Between them
# stands an axis of heads, before the tokens.</details>
# <details><summary>Hint 3 · how</summary>(B, H, T, D) for the three kinds of heads, (B, H, D, T) for transposed keys,
# (B, H, T, T) for scores and weights. D is <code>d_model // n_heads</code>.</details>

# %% exercise="shape_trace"
def shape_trace(batch, seq_len, d_model, n_heads):
    """The shape of every step of multi-head self-attention.

    Returns {"x": (batch, seq_len, d_model), "q": …, "k": …, "v": …, "q_heads": …,
    "k_heads_transposed": …, "v_heads": …, "scores": …, "attn_weights": …, "heads": …,
    "merged": …, "output": …}, tuples of ints
    Raises ValueError if n_heads does not divide d_model.
    """
    ### BEGIN SOLUTION
    d_head, left_over = divmod(d_model, n_heads)
    if left_over:
        raise ValueError(f"n_heads must divide d_model, got {n_heads} and {d_model}")
    token = (batch, seq_len, d_model)
    head = (batch, n_heads, seq_len, d_head)
    table = (batch, n_heads, seq_len, seq_len)
    return {
        "x": token, "q": token, "k": token, "v": token,
        "q_heads": head, "k_heads_transposed": (batch, n_heads, d_head, seq_len), "v_heads": head,
        "scores": table, "attn_weights": table,
        "heads": head, "merged": token, "output": token,
    }
    ### END SOLUTION

# %% check="shape_trace"
check(shape_trace, points=2)

# %% tags=["demo"]
with need("shape_trace"):
    for name, shape in shape_trace(2, 5, 12, 3).items():
        print(f"{name:20}", shape)
    reveal("score-shape", "(2, 3, 5, 5)", "Each head compares every token with every token.")

# %% [markdown]
# **The notes' shapes.** They print a walk through 8 heads for 4 tokens. One sentence, so drop your axis for the batch:

# %% tags=["demo"]
with need("shape_trace"):
    ex, shapes = notes.example("002-heads-4x512"), shape_trace(1, 4, 512, 8)
    for key, mine_is in {"X": "x", "QKV": "q", "concat": "merged", "output": "output"}.items():
        print(f"{key:7}", ex.compare(shapes[mine_is][1:], key))
    print("scores_per_head", ex.compare(shapes["scores"][2:], "scores_per_head"))

# %% [markdown] reflect="shape_trace"
# The input and the output of the layer have the same shape. What does that allow you to do with it twelve times? Your
# sentence:

# %% [markdown]
# ---
# ## 3.4 Multi-head attention
# *core · about 30 min*
#
# > **heads = sdpa( split(x W_q), split(x W_k), split(x W_v) ), output = merge(heads) W_o**
#
# Your `sdpa` already takes any number of leading axes, so all heads run at once, without a loop. Each head reads the
# **whole** of every token: what is cut is the *projected* `q`, `k`, `v`. Notes that cut the token itself have another,
# smaller layer in mind.
#
# Two traps. First, the scale. Scores of one head are sums over `d_head` products, not over `d_model`.

# %%
predict("wrong-root", "d_model 512, 8 heads. You divide by √512 in place of √64. Typical scaled scores are then about…",
        ["1", "0.35", "2.8"])

# %%
torch.manual_seed(0)
q, k = torch.randn(2, 8, 200, 64)  # 8 heads of width 64
scores = q @ k.mT
for root in (64, 512):
    scaled = scores / math.sqrt(root)
    print(f"divided by √{root}: typical size {scaled.std():.2f}, "
          f"largest of 200 weights {scaled.softmax(-1).amax(-1).mean():.3f}")
reveal("wrong-root", "0.35", "1/√8 of what it should be: every head reads nearly everything alike.")

# %% [markdown]
# Second, masks now need an axis for heads. `(batch, q_len, kv_len)` without one lands its batch on the heads (section
# 2.5). The notes' listing adds such a mask and trusts that it fits:

# %%
def add_mask(batch, n_heads):
    return tuple((torch.zeros(batch, n_heads, 5, 5) + torch.zeros(batch, 5, 5)).shape)


for sizes in notes.example("001-mask-broadcast").inputs["cases"]:
    attempt("batch {}, heads {}".format(*sizes), lambda sizes=sizes: add_mask(*sizes))
print("with an axis for heads:", tuple((torch.zeros(2, 4, 5, 5) + torch.zeros(2, 1, 5, 5)).shape))

# %% [markdown]
# Line 2 is the dangerous one: batch = heads, no error, and head `h` of every sentence gets the mask of sentence `h`.
# Masks here are `(batch, n_heads, q_len, kv_len)`; any axis may be 1, and `(q_len, kv_len)` alone is fine.

# %% [markdown]
# ### Exercise 3.4 · `MultiHeadAttention` · core · about 25 min
# - **Build** `w_q`, `w_k`, `w_v`, `w_o`, each `nn.Linear(d_model, d_model, bias=bias)`, and the attribute `n_heads`.
# - Queries come from `x`, keys and values from `memory`, or from `x` if there is none.
# - `dropout` acts on the attention **weights**, in training only. `sdpa` keeps its weights to itself: where they are
#   to be dropped, `attention_weights` hands them to you.
# - **Not allowed** torch's own attention.
# - **Done when** the check below passes. (One layer for q, k and v at once? Then add
#   `load_weights(self, weights)`, which copies a dict of `w_q.weight` and so on into it, as in phase 2.)
#
# <details><summary>Hint 1 · where</summary>Three projections, three splits, attention, one merge, one projection. The
# mask goes to attention as it is.</details>
# <details><summary>Hint 2 · what</summary>Dropout needs the weights in hand: take <code>attention_weights</code>, apply
# <code>nn.Dropout</code>, multiply by the values. In eval mode, or with dropout 0, <code>nn.Dropout</code> does
# nothing.</details>
# <details><summary>Hint 3 · how</summary><code>weights = attention_weights(q, k, attn_mask)</code> with
# <code>q = split_heads(self.w_q(x), self.n_heads)</code> and so on, then
# <code>self.w_o(merge_heads(self.dropout(weights) @ v))</code>.</details>

# %% exercise="MultiHeadAttention"
class MultiHeadAttention(nn.Module):
    """Several heads, each with its own weights, side by side.

    x (batch, q_len, d_model); memory (batch, kv_len, d_model), or None: x itself
    attn_mask bool, True = may attend, broadcasts to (batch, n_heads, q_len, kv_len), or None
    Returns (batch, q_len, d_model). Raises ValueError if n_heads does not divide d_model.
    Has n_heads and w_q, w_k, w_v, w_o, each nn.Linear(d_model, d_model, bias). Paper: §3.2.2.
    """
    def __init__(self, d_model, n_heads, bias=True, dropout=0.0):
        super().__init__()
        ### BEGIN SOLUTION
        if d_model % n_heads:
            raise ValueError(f"n_heads must divide d_model, got {n_heads} and {d_model}")
        self.n_heads, self.dropout = n_heads, nn.Dropout(dropout)
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Linear(d_model, d_model, bias=bias))
        ### END SOLUTION

    def forward(self, x, memory=None, attn_mask=None):
        ### BEGIN SOLUTION
        memory = x if memory is None else memory
        q = split_heads(self.w_q(x), self.n_heads)  # (B, H, Q, D)
        k, v = (split_heads(w(memory), self.n_heads) for w in (self.w_k, self.w_v))
        return self.w_o(merge_heads(self.dropout(attention_weights(q, k, attn_mask)) @ v))
        ### END SOLUTION

# %% check="MultiHeadAttention"
check(MultiHeadAttention, points=8)

# %% [markdown]
# **Look.** Four heads of one untrained layer, all reading the same six tokens. Dark means much weight.

# %% tags=["demo"]
with need("MultiHeadAttention", "split_heads"):
    torch.manual_seed(3)
    layer, x = MultiHeadAttention(16, 4), 1.5 * torch.randn(1, 6, 16)
    weights = attention_weights(split_heads(layer.w_q(x), 4), split_heads(layer.w_k(x), 4))
    show(plots.head_maps(weights[0], ["the", "cat", "sat", "as", "it", "was"]),
         "Four heat maps of six tokens. Each head reads the same sentence with other weights.")

# %% [markdown] reflect="MultiHeadAttention"
# Nothing was learned yet, and the heads already differ. Where does the difference come from? Your sentence:

# %% [markdown]
# ---
# ## 3.5 The same as torch's
# *more · about 15 min*
#
# `nn.MultiheadAttention` computes what you compute, if it has your weights. But it keeps them in another arrangement.

# %%
theirs = nn.MultiheadAttention(12, 3, batch_first=True)
for name, parameter in theirs.named_parameters():
    print(f"{name:16}", tuple(parameter.shape))

# %%
predict("packed", "`in_proj_weight` has 36 rows and 12 columns. Rows 12 to 23 make…",
        ["the keys", "head 1", "one third of each of q, k and v"])

# %% [markdown]
# Three matrices lie one below the other, **q, k, v**, each in torch's layout `(out, in)`. That way one product makes
# all three. If keys or values have another width (`kdim`, `vdim`), packing is impossible: `in_proj_weight` is `None`, and
# there are `q_proj_weight`, `k_proj_weight`, `v_proj_weight`.
#
# ### Exercise 3.5 · `unpack_in_proj` · more · about 12 min
# - **Build** a dict with `w_q.weight`, `w_k.weight`, `w_v.weight`, `w_o.weight` and, only if `mha` has biases, the same
#   with `.bias`. Nothing is transposed. Detached **copies**: whoever changes them must not change `mha`.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary><code>in_proj_weight</code>, <code>in_proj_bias</code>,
# <code>out_proj.weight</code>, <code>out_proj.bias</code>. A bias that is not there is <code>None</code>.</details>
# <details><summary>Hint 2 · what</summary><code>chunk(3)</code> cuts rows. The bias is cut the same way, for separate
# matrices, too.</details>
# <details><summary>Hint 3 · how</summary><code>zip("qkv", …)</code> over three weights; for each
# <code>.detach().clone()</code>. Then <code>w_o</code>.</details>

# %% exercise="unpack_in_proj"
def unpack_in_proj(mha):
    """Take torch's packed projections apart.

    mha: nn.MultiheadAttention, with or without biases, kdim, vdim
    Returns {"w_q.weight": …, "w_k.weight": …, "w_v.weight": …, "w_o.weight": …} and, if mha has
    biases, "w_q.bias" and so on: layout (out, in), detached copies
    """
    ### BEGIN SOLUTION
    if mha.in_proj_weight is None:
        weights = mha.q_proj_weight, mha.k_proj_weight, mha.v_proj_weight
    else:
        weights = mha.in_proj_weight.chunk(3)
    found = dict(zip(("w_q.weight", "w_k.weight", "w_v.weight"), weights, strict=True))
    found["w_o.weight"] = mha.out_proj.weight
    if mha.in_proj_bias is not None:
        biases = mha.in_proj_bias.chunk(3)
        found |= dict(zip(("w_q.bias", "w_k.bias", "w_v.bias"), biases, strict=True))
        found["w_o.bias"] = mha.out_proj.bias
    return {name: part.detach().clone() for name, part in found.items()}
    ### END SOLUTION

# %% check="unpack_in_proj"
check(unpack_in_proj, points=3)

# %% [markdown]
# **Look.** Your layer with torch's weights, with a causal mask. Which way round is torch's mask? (Turned round, it hides
# every key from the last token, and torch answers such a row with NaN.)

# %% tags=["demo"]
with need("unpack_in_proj", "MultiHeadAttention"):
    reveal("packed", "the keys", "Each matrix is 12 rows; heads are slices of those.")
    ours = MultiHeadAttention(12, 3)
    getattr(ours, "load_weights", ours.load_state_dict)(unpack_in_proj(theirs))
    x, visible = torch.randn(2, 5, 12), causal_mask(5)
    yours = ours(x, attn_mask=visible)
    for title, mask in {"torch with your mask": visible, "torch with ~mask": ~visible}.items():
        print(f"{title:20} differs by {(theirs(x, x, x, attn_mask=mask)[0] - yours).abs().max():.7f}")

# %% [markdown] reflect="unpack_in_proj"
# In `nn.MultiheadAttention` a bool mask is True where looking is *forbidden*; in `F.scaled_dot_product_attention` where
# it is allowed. Both are torch. Which test would have told you? Your sentence:

# %% [markdown]
# ---
# ## 3.6 A sum over heads
# *core · about 18 min*
#
# "Concatenate, then multiply by `W_o`." Row vectors times a matrix: features 0 to `D−1` of the merged row meet only the
# first `D` rows of `W_o`, the next `D` features the next `D` rows. So the product falls apart:
#
# > **merge(heads) W_o + b = head₀ W_o⁽⁰⁾ + head₁ W_o⁽¹⁾ + … + b**
#
# No concatenation left: each head adds a vector of its own to the token. (`nn.Linear` keeps `weight` as `(out, in)`:
# there the input side is the *columns*.)

# %%
predict("no-w-o", "Someone leaves `W_o` out and returns the merged heads. Feature 0 of the output then depends on…",
        ["head 0 alone", "all heads", "no head"])

# %% [markdown]
# ### Exercise 3.6 · `sum_of_heads` · core · about 15 min
# - **Build** `parts`: what each head adds, `(B, H, Q, d_out)`, **without** bias; and `output`: their sum plus the bias
#   once. `d_out` may differ from `H·D`, and the bias may be `None`.
# - **Allowed** loops, `einsum`, the layer itself.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Head <code>h</code> meets
# <code>w_o.weight[:, h * d_head : (h + 1) * d_head]</code>.</details>
# <details><summary>Hint 2 · what</summary>That slice is (d_out, D). The head is (B, Q, D), so the slice must be
# transposed.</details>
# <details><summary>Hint 3 · how</summary><code>blocks = w_o.weight.chunk(n_heads, dim=1)</code>, stack
# <code>heads[:, h] @ blocks[h].T</code> on axis 1; the output is <code>w_o(merge_heads(heads))</code>.</details>

# %% exercise="sum_of_heads"
def sum_of_heads(heads, w_o):
    """Take the output projection apart into what each head adds.

    heads (batch, n_heads, q_len, d_head); w_o nn.Linear(n_heads · d_head, d_out), bias or none
    Returns output (batch, q_len, d_out) = w_o(merge_heads(heads)),
    parts (batch, n_heads, q_len, d_out), without bias
    """
    ### BEGIN SOLUTION
    blocks = w_o.weight.chunk(heads.shape[1], dim=1)  # of each head (d_out, D)
    parts = torch.stack([heads[:, h] @ block.T for h, block in enumerate(blocks)], dim=1)
    output = parts.sum(1)  # (B, Q, d_out)
    return (output if w_o.bias is None else output + w_o.bias), parts
    ### END SOLUTION

# %% check="sum_of_heads"
check(sum_of_heads, points=4)

# %% tags=["demo"]
with need("sum_of_heads", "merge_heads"):
    torch.manual_seed(0)
    heads, w_o = torch.randn(1, 3, 4, 4), nn.Linear(12, 12)
    output, parts = sum_of_heads(heads, w_o)
    print(f"sum and layer differ by {(output - w_o(merge_heads(heads))).abs().max():.0e}")
    show(plots.parts_of_a_token(parts[0, :, 0].detach(), w_o.bias.detach(), output[0, 0].detach()),
         "Rows: what head 0, 1 and 2 and the bias add to one token; last row: their sum, the output.")
    reveal("no-w-o", "head 0 alone", "W_o is where heads meet: it lets every feature hear every head.")

# %% [markdown] reflect="sum_of_heads"
# In phase 4 the output is added to the token's own vector, the *residual stream*. So each head writes there on its own,
# as if the others did not exist. What does that make possible when you want to know what one head is good for? Your sentence:

# %% [markdown]
# ---
# ## 3.7 Fewer keys than queries
# *more · about 23 min*
#
# While a model writes, it keeps the keys and values of all earlier tokens (phase 5). With 64 heads and long texts,
# that is a lot of memory. **Grouped queries**: several query heads share one head of keys and values. One for all is called
# multi-query attention; one for each is what you have built.
#
# 6 query heads, 3 key-value heads: heads 0, 1 share the first, 2, 3 the second, 4, 5 the third.

# %%
predict("group", "Keys of heads [a, b, c] are to serve six queries. `k.repeat` along the heads gives…",
        ["a a b b c c", "a b c a b c", "a a a a a a"])

# %%
k = torch.tensor([10, 20, 30])
print("repeat           ", k.repeat(2).tolist())
print("repeat_interleave", k.repeat_interleave(2).tolist())
reveal("group", "a b c a b c", "Right shape, wrong neighbours: it trains, but loaded weights make no sense.")

# %% [markdown]
# ### Exercise 3.7 · `GroupedQueryAttention` · more · about 20 min
# - **Build** `w_q`, `w_o`: `d_model` → `d_model`; `w_k`, `w_v`: `d_model` → `n_kv_heads · d_head`; all **with** bias.
#   Query head `h` uses key-value head `h // (n_heads / n_kv_heads)`.
# - **Allowed** everything you built. **Not allowed** torch's own attention.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Split queries into <code>n_heads</code>, keys and values into
# <code>n_kv_heads</code>. Then the keys need as many heads as the queries.</details>
# <details><summary>Hint 2 · what</summary>Each key-value head is repeated next to itself, on axis 1. The scale is
# √d_head, as ever: <code>sdpa</code> sees to it.</details>
# <details><summary>Hint 3 · how</summary><code>k.repeat_interleave(n_heads // n_kv_heads, dim=1)</code>. Two refusals in
# <code>__init__</code>: d_model by n_heads, n_heads by n_kv_heads.</details>

# %% exercise="GroupedQueryAttention"
class GroupedQueryAttention(nn.Module):
    """Self-attention in which groups of query heads share keys and values.

    x (batch, seq_len, d_model); attn_mask bool, broadcasts to (batch, n_heads, seq_len, seq_len)
    Returns (batch, seq_len, d_model). Weights, all nn.Linear with bias: w_q, w_o as wide as x,
    w_k, w_v n_kv_heads · d_head wide. Raises ValueError if n_heads does not divide d_model, or
    n_kv_heads not n_heads. Paper: Ainslie et al. 2023, §2.2; one key-value head: Shazeer 2019.
    """
    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        ### BEGIN SOLUTION
        if d_model % n_heads or n_heads % n_kv_heads:
            raise ValueError("n_heads must divide d_model, and n_kv_heads must divide n_heads")
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads
        narrow = n_kv_heads * (d_model // n_heads)
        self.w_q, self.w_o = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.w_k, self.w_v = nn.Linear(d_model, narrow), nn.Linear(d_model, narrow)
        ### END SOLUTION

    def forward(self, x, attn_mask=None):
        ### BEGIN SOLUTION
        q, k, v = self.w_q(x), split_heads(self.w_k(x), self.n_kv_heads), split_heads(self.w_v(x), self.n_kv_heads)
        k, v = (part.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1) for part in (k, v))
        return self.w_o(merge_heads(sdpa(split_heads(q, self.n_heads), k, v, attn_mask)))
        ### END SOLUTION

# %% check="GroupedQueryAttention"
check(GroupedQueryAttention, points=5)

# %% tags=["demo"]
with need("GroupedQueryAttention"):
    for n_kv_heads in (8, 2, 1):
        layer = GroupedQueryAttention(512, 8, n_kv_heads)
        kept = layer.w_k.out_features + layer.w_v.out_features
        print(f"{n_kv_heads} key-value heads: {kept:5} numbers kept per token and layer, "
              f"{sum(p.numel() for p in layer.parameters()):,} parameters")

# %% [markdown] reflect="GroupedQueryAttention"
# The number of scores did not change, the cache shrank to an eighth. Which of the two limits how many users one GPU
# can serve? Your sentence:

# %% [markdown]
# ---
# ## 3.8 What it weighs
# *more · about 12 min*
#
# The notes say that cost "scales linearly with heads".

# %%
predict("heads-cost", "d_model stays 512. Going from 8 heads to 16 makes the number of parameters…",
        ["twice as large", "stay the same", "half as large"])

# %% [markdown]
# ### Exercise 3.8 · `mha_parameters` · more · about 8 min
# - **Build** the exact count for `w_q`, `w_k`, `w_v`, `w_o`; with `bias`, each layer's own output width on top.
#   `n_kv_heads = n_heads` is plain multi-head attention. Refuse what grouped attention refuses.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>A layer from a to b features has a · b weights, and b biases.</details>
# <details><summary>Hint 2 · what</summary>Two layers are square. The other two end in
# <code>n_kv_heads * d_head</code>.</details>
# <details><summary>Hint 3 · how</summary>Sum <code>(d_model + bias) * width</code> over the four output
# widths.</details>

# %% exercise="mha_parameters"
def mha_parameters(d_model, n_heads, n_kv_heads, bias):
    """Count the parameters of (grouped) multi-head attention.

    Returns int: weights of w_q, w_k, w_v, w_o and, if bias, one number per output of each
    Raises ValueError if n_heads does not divide d_model, or n_kv_heads not n_heads.
    """
    ### BEGIN SOLUTION
    if d_model % n_heads:
        raise ValueError(f"n_heads must divide d_model, got {n_heads} and {d_model}")
    if n_heads % n_kv_heads:
        raise ValueError(f"n_kv_heads must divide n_heads, got {n_kv_heads} and {n_heads}")
    narrow = n_kv_heads * (d_model // n_heads)
    return sum((d_model + bool(bias)) * width for width in (d_model, narrow, narrow, d_model))
    ### END SOLUTION

# %% check="mha_parameters"
check(mha_parameters, points=2)

# %% tags=["demo"]
with need("mha_parameters"):
    for n_heads in (1, 8, 16):
        print(f"{n_heads:2} heads: {mha_parameters(512, n_heads, n_heads, True):,} parameters")
    reveal("heads-cost", "stay the same", "Twice the heads, each half as wide.")
    sliced = 8 * 3 * 64 * 64  # if every head read a slice of x only
    print(f"w_q, w_k, w_v together: {3 * 512**2:,}; if the token itself were cut: {sliced:,}")

# %% [markdown] reflect="mha_parameters"
# So more heads are free? Think of the smallest `d_head` you would still trust with a dot product. Your sentence:

# %% [markdown]
# ---
# ## 3.9 Dropout on the weights
# *more · about 15 min*
#
# In training, attention forgets at random: each *weight* is dropped with probability `p`, so that no head relies on a
# single key. What survives is divided by `1 − p`.

# %%
predict("dropped-rows", "p = 0.5. After dropout, each row of weights sums to…",
        ["1 exactly", "1 on average", "½"])

# %% [markdown]
# ### Exercise 3.9 · `attention_dropout` · more · about 12 min
# - **Build** it from a generator: same state, same pattern. Each weight on its own; rows are **not** renormalised.
# - **Not allowed** the global random state.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>One random number per weight: the shape of <code>weights</code>.</details>
# <details><summary>Hint 2 · what</summary>A uniform number is at least p with probability 1 − p.</details>
# <details><summary>Hint 3 · how</summary><code>keep = torch.rand(weights.shape, generator=generator) >= p</code>, then
# <code>weights * keep / (1 - p)</code>. Refuse p = 1 first.</details>

# %% exercise="attention_dropout"
def attention_dropout(weights, p, generator):
    """Drop attention weights at random, as in training.

    weights floating, any shape; p the share that is dropped, 0 ≤ p < 1
    Returns weights, each one 0 or divided by 1 − p. Promises: all chance comes from `generator`.
    Raises ValueError unless 0 ≤ p < 1.
    """
    ### BEGIN SOLUTION
    if not 0 <= p < 1:
        raise ValueError(f"p must be at least 0 and below 1, got {p}")
    keep = torch.rand(weights.shape, generator=generator) >= p
    return weights * keep / (1 - p)
    ### END SOLUTION

# %% check="attention_dropout"
check(attention_dropout, points=3)

# %% tags=["demo"]
with need("attention_dropout"):
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(10_000, 8, generator=generator).softmax(-1)
    sums = attention_dropout(weights, 0.5, generator).sum(-1)
    show(plots.row_sums(sums, 0.5),
         "A histogram of row sums after dropout: from 0 to 2, with a mean of 1.")
    reveal("dropped-rows", "1 on average", "A row may even lose all its weights.")

# %% [markdown] reflect="attention_dropout"
# The notes say training and inference differ in nothing but the flow of data. What else differs, and which call switches
# it off? Your sentence:

# %% [markdown]
# ---
# ## 3.10 What a head looks at
# *core · about 30 min*
#
# "Head 1 does coreference, head 2 does syntax": every text about Transformers says so. Let us *measure*. Two
# measures, on attention weights alone.
#
# **Entropy**, `−Σ w log w`: 0 if a query reads one key, `log n` if it reads `n` keys alike.

# %%
predict("entropy", "One head reads 4 keys with ¼ each, another reads 2 keys with ½ each. Their entropies differ by…",
        ["a factor of 2", "0.25", "log 4"])

# %% [markdown]
# ### Exercise 3.10a · `head_entropy` · core · about 8 min
# - **Build** the entropy of each row, in nats (natural logarithm): `(…, K)` → `(…)`. `0 · log 0` counts as 0; an empty row gives 0. No
#   small constants: `log(w + 1e-9)` is not the entropy.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>What is <code>0 * log(0)</code> in floating point?</details>
# <details><summary>Hint 2 · what</summary>Where the weight is 0 the logarithm may be anything finite.</details>
# <details><summary>Hint 3 · how</summary><code>torch.where(weights > 0, weights, 1.0).log()</code>, or
# <code>torch.xlogy</code>, which knows the rule.</details>

# %% exercise="head_entropy"
def head_entropy(weights):
    """How widely each query spreads its attention.

    weights (…, kv_len), rows sum to 1 or are all zeros
    Returns (…) entropy in nats: 0 for one key, log n for n keys alike, 0 for an empty row
    """
    ### BEGIN SOLUTION
    return -torch.xlogy(weights, weights).sum(-1)
    ### END SOLUTION

# %% check="head_entropy"
check(head_entropy, points=2)

# %% tags=["demo"]
with need("head_entropy"):
    rows = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0, 0], [1, 0, 0, 0]])
    entropy = head_entropy(rows) + 0.0  # −0 becomes 0
    print("entropy  ", entropy)
    print("exp of it", entropy.exp(), "keys in use")
    reveal("entropy", "a factor of 2", "log 4 is 2 · log 2.")

# %% [markdown] reflect="head_entropy"
# A causal head gives equal shares to all it may see. Is its entropy the same in every row? Your sentence:

# %% [markdown]
# **Patterns.** Where does a head look? Four targets that can be told from the tokens alone:
#
# | pattern | the query at place i reads | which queries count |
# |---|---|---|
# | `previous` | key i − 1 | i ≥ 1 |
# | `self` | key i | all |
# | `first` | key 0 | i ≥ 1 |
# | `induction` | key j + 1, for each earlier j with the **same token** | those that have such a j |
#
# The last one copies: in "… Harry Potter … Harry" it looks at what followed "Harry" last time.

# %%
letters = list("abcab")
predict("induction", f"Tokens: {' '.join(letters)}. The last b (place 4) looks for induction at place…",
        ["1, the earlier b", "2, after the earlier b", "3, the token before it"])

# %%
targets = torch.zeros(4, 5, 5)
for place in range(1, 5):
    targets[0, place, place - 1] = targets[2, place, 0] = 1
targets[1] = torch.eye(5)
targets[3, 3, 1] = targets[3, 4, 2] = 1  # what followed the first a, the first b
show(plots.head_maps(targets, letters, ["previous", "self", "first", "induction"]),
     "Four tables for the tokens a b c a b, the targets dark: one below the diagonal; the diagonal; the "
     "first column; and for the second a and b the places after the first a and b.")

# %% [markdown]
# ### Exercise 3.10b · `head_patterns` · core · about 20 min
# - **Build** for each pattern the mean attention on the target, one number per head: sum over all counted queries of all
#   examples, divided by how many were counted. Several earlier places: add the weights of all their targets. No counted
#   query gives 0.
# - **Allowed** loops; sentences are short.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Three patterns are a diagonal or a column of the table:
# <code>weights.diagonal(-1, -2, -1)</code> is row i, column i − 1.</details>
# <details><summary>Hint 2 · what</summary>For induction make a bool table <code>same[b, i, j]</code>: equal tokens and j
# before i. Targets are that table moved one column to the right.</details>
# <details><summary>Hint 3 · how</summary><code>same = (tokens[:, :, None] == tokens[:, None, :]).tril(-1)</code>;
# <code>same.roll(1, -1)</code> as a factor; divide by <code>same.any(-1).sum()</code>, but at least by 1.</details>

# %% exercise="head_patterns"
def head_patterns(weights, tokens):
    """Score each head by where it looks.

    weights (batch, n_heads, seq_len, seq_len); tokens (batch, seq_len) ints; seq_len ≥ 2
    Returns {"previous", "self", "first", "induction"}, each (n_heads,): mean attention on the
    target, over all counted queries of all examples
    Induction: the sum over the places after all earlier occurrences of the query's token.
    """
    ### BEGIN SOLUTION
    same = (tokens[:, :, None] == tokens[:, None, :]).tril(-1)  # (B, i, j): seen before at j
    after = same.roll(1, dims=-1)  # (B, i, j + 1)
    found = (weights * after[:, None]).sum((0, 2, 3))  # (H,)
    return {
        "previous": weights.diagonal(-1, -2, -1).mean((0, 2)),
        "self": weights.diagonal(0, -2, -1).mean((0, 2)),
        "first": weights[:, :, 1:, 0].mean((0, 2)),
        "induction": found / same.any(-1).sum().clamp(min=1),
    }
    ### END SOLUTION

# %% check="head_patterns"
check(head_patterns, points=5)

# %% tags=["demo"]
with need("head_patterns"):
    ids = torch.tensor([[ord(letter) for letter in letters]])
    looks_back = torch.eye(5).roll(-1, 1)  # row i is 1 at i - 1
    looks_back[0], looks_back[4] = 0, torch.eye(5)[2]  # but the last b reads place 2
    print(head_patterns(looks_back[None, None], ids))
    reveal("induction", "2, after the earlier b", "There stands c: what followed b last time.")

# %% [markdown] reflect="head_patterns"
# A score says where a head looks, not what it does with it. Which two matrices of the layer did this function never
# touch? Your sentence:

# %% [markdown]
# ---
# ## 3.11 Which head matters
# *core · about 18 min*
#
# Looking is not mattering: a head may stare at a key and write nothing. The test is surgery. Switch one head **off** and
# see how much the loss rises. Off means: its part of the merged row is 0 when it enters `w_o`.

# %%
predict("zero-query", "To switch head 2 off, someone sets its queries to 0. That head now…",
        ["writes zeros", "reads all keys alike", "makes NaN"])

# %%
v = torch.tensor([[1.0, 0.0], [0.0, 1.0], [4.0, 2.0]])
print("queries at 0:", sdpa(torch.zeros(1, 2), torch.randn(3, 2), v), " mean of the values:", v.mean(0))
reveal("zero-query", "reads all keys alike", "Scores of 0 are equal scores: the head hands on an average.")

# %% [markdown]
# ### Exercise 3.11 · `head_importance` · core · about 15 min
# - **Build** for each head: `loss(output without it) − loss(output)`. Positive means that it helps. The bias of `w_o`
#   stays. `mha` comes back as it was, even if `loss` raises.
# - You may rely on `mha(x)`, `mha.n_heads` and `mha.w_o` only.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Head h meets columns <code>h·D</code> to <code>(h+1)·D − 1</code> of
# <code>w_o.weight</code>, and nothing else does.</details>
# <details><summary>Hint 2 · what</summary>Columns at 0 are as good as a head at 0. Keep a clone of the weight and put it
# back in a <code>finally</code>.</details>
# <details><summary>Hint 3 · how</summary>Inside <code>torch.no_grad()</code>: whole loss first; then per head
# <code>weight[:, part] = 0</code>, run, <code>weight.copy_(kept)</code>. Collect with
# <code>torch.stack</code>.</details>

# %% exercise="head_importance"
def head_importance(mha, x, loss):
    """How much the loss rises when one head is switched off.

    mha: a layer with n_heads and w_o, without dropout; loss: from an output to a scalar tensor
    Returns (n_heads,): loss without head h, minus loss with all. Positive: the head helps.
    Promises: mha comes back as it was, also when loss raises.
    """
    ### BEGIN SOLUTION
    weight, changes = mha.w_o.weight, []
    kept = weight.detach().clone()
    d_head = weight.shape[1] // mha.n_heads
    with torch.no_grad():
        whole = loss(mha(x))
        for h in range(mha.n_heads):
            try:
                weight[:, h * d_head : (h + 1) * d_head] = 0
                changes.append(loss(mha(x)) - whole)
            finally:
                weight.copy_(kept)
    return torch.stack(changes)
    ### END SOLUTION

# %% check="head_importance"
check(head_importance, points=5)

# %% tags=["demo"]
with need("MultiHeadAttention", "split_heads", "head_importance"):
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(12, 3).requires_grad_(False), torch.randn(4, 6, 12)
    wanted = layer(x)
    layer.w_o.weight[:, 4:8] *= -1  # head 1 now writes the opposite of what is wanted
    print("loss rises by", head_importance(layer, x, lambda out: (out - wanted).square().mean()))

# %% [markdown] reflect="head_importance"
# Which head is better off, and how do you see it? And if two heads did the same job, what would this test say of each?
# Your sentence:

# %% [markdown]
# ---
# ## 3.12 The claim, tested
# *core · about 15 min, of which half a minute is training*
#
# We train a small model and look at its heads. Its text: a block of 6 to 12 random letters, repeated until 24 places are
# full. In the first round nothing can be foretold. From then on copying what followed last time is right two times in
# three; otherwise the letter stands twice in the block, and several candidates are left. So no loss will reach 0.

# %%
def repeats(size, generator, vocab_size=16, seq_len=24):
    """tokens (size, seq_len), and which of the next tokens (size, seq_len - 1) can be foretold."""
    block = torch.randint(vocab_size, (size, seq_len), generator=generator)
    period = torch.randint(6, 13, (size, 1), generator=generator)
    places = torch.arange(seq_len)
    return block.gather(1, places % period), places[1:] > period


tokens, known = repeats(1, torch.Generator().manual_seed(1))
print("".join(chr(97 + token) for token in tokens[0]))
print(" " + "".join("^" if can else "." for can in known[0]), " ^ can be foretold")

# %% [markdown]
# The model is attention only: embeddings, a table of places, two of your layers, an output layer. (The cells below read
# `w_q`, `w_k` and `w_o` by name. If your layer is fused, give it these names to see its heads.)

# %% tags=["demo"]
with need("MultiHeadAttention"):
    class CausalHeads(MultiHeadAttention):
        def forward(self, x):
            return super().forward(x, attn_mask=causal_mask(x.shape[1]))

    class CopyModel(nn.Module):
        def __init__(self, n_layers, vocab_size=16, seq_len=24, d_model=48, n_heads=4):
            super().__init__()
            self.embed, self.place = nn.Embedding(vocab_size, d_model), nn.Embedding(seq_len, d_model)
            self.layers = nn.ModuleList(CausalHeads(d_model, n_heads) for _ in range(n_layers))
            self.logits = nn.Linear(d_model, vocab_size)

        def streams(self, tokens):
            """The residual stream before the first layer and after each."""
            found = [self.embed(tokens) + self.place.weight[: tokens.shape[1]]]
            for layer in self.layers:
                found.append(found[-1] + layer(found[-1]))
            return found

    print(f"{sum(p.numel() for p in CopyModel(2).parameters()):,} parameters")

# %%
def losses(model, stream, tokens):
    """How badly each next token is foretold from the last stream, (size, seq_len - 1)."""
    logits = model.logits(stream[:, :-1]).transpose(1, 2)
    return F.cross_entropy(logits, tokens[:, 1:], reduction="none")


predict("one-layer", "Would one layer do? At the second b of “a b c … a b” it must find c: the key whose "
        "*predecessor* was b. But what does a key in the first layer know?",
        ["its own token and place", "its predecessor, too", "the whole sentence"])

# %% [markdown]
# Nobody tells the heads what to look for. Your `head_patterns` watches while two models learn.

# %% tags=["demo"]
with need("MultiHeadAttention", "split_heads", "head_patterns"):
    def weights_by_layer(model, tokens):
        """Attention weights of each layer, recomputed from its w_q and w_k."""
        mask, found = causal_mask(tokens.shape[1]), []
        for layer, x in zip(model.layers, model.streams(tokens), strict=False):
            q, k = (split_heads(w(x), layer.n_heads) for w in (layer.w_q, layer.w_k))
            found.append(attention_weights(q, k, mask).detach())
        return found

    def best_scores(model, tokens):
        scores = [head_patterns(weights, tokens) for weights in weights_by_layer(model, tokens)]
        return [max(layer[key].max().item() for layer in scores) for key in ("previous", "induction")]

    print("untrained, best head: previous {:.2f}, induction {:.2f}".format(
        *best_scores(CopyModel(2), repeats(64, torch.Generator().manual_seed(99))[0])))

# %% tags=["demo"]
with need("MultiHeadAttention", "split_heads", "head_patterns"):
    @functools.cache
    def trained(n_layers, steps=400):
        """The trained model, and rows of step, loss, best scores. Trains once, then remembers."""
        torch.manual_seed(0)
        model, generator = CopyModel(n_layers), torch.Generator().manual_seed(0)
        optimizer, rows = torch.optim.Adam(model.parameters(), lr=5e-3), []
        held_out, counted = repeats(64, torch.Generator().manual_seed(99))
        for step in range(steps + 1):
            if step % 50 == 0:
                loss = losses(model, model.streams(held_out)[-1], held_out)[counted].mean().item()
                rows.append((step, loss, *best_scores(model, held_out)))
            tokens, _ = repeats(64, generator)
            optimizer.zero_grad()
            losses(model, model.streams(tokens)[-1], tokens).mean().backward()
            optimizer.step()
        return model.requires_grad_(False), rows

    curves = {"one layer": trained(1)[1], "two layers": trained(2)[1]}
    show(plots.copy_curves(curves, math.log(16)),
         "Left: loss on what can be foretold; two layers learn to copy, one stalls halfway. Right: in the "
         "two-layer model the induction score rises steeply, the best look-back score more slowly.")
    reveal("one-layer", "its own token and place", "One layer cannot search for what came before. With two, a head of the first can write "
           "“my predecessor was b” into each token, and one of the second searches for it.")

# %% [markdown]
# One layer still beats guessing: letters that have occurred are likelier than others. And induction does not wait for one
# perfect head that looks back: the orange curve is the best *single* head, and heads can share that job.
#
# **Which heads?** Your scores name the candidates, your surgery says whether they matter. Each head is switched off once.

# %% tags=["demo"]
with need("MultiHeadAttention", "split_heads", "head_patterns", "head_importance"):
    model, rows = trained(2)[0], {}
    tokens, known = repeats(128, torch.Generator().manual_seed(7))
    streams, tables = model.streams(tokens), weights_by_layer(model, tokens)
    for n, layer in enumerate(model.layers):
        def copy_loss(out, n=n):
            x = streams[n] + out
            for later in model.layers[n + 1:]:
                x = x + later(x)
            return losses(model, x, tokens)[known].mean()

        scores, harm = head_patterns(tables[n], tokens), head_importance(layer, streams[n], copy_loss)
        for h in range(layer.n_heads):
            row = {key: values[h].item() for key, values in scores.items()}
            rows[f"layer {n}, head {h}"] = row | {"loss rises by": harm[h].item()}
    show(plots.head_scores(rows),
         "A table of eight heads by four patterns, and bars of how much the loss rises without each.")

# %% [markdown]
# Left: somewhere in layer 0 a head reads its predecessor, and in layer 1 heads score high on induction. **They
# specialised, and you watched.** Right: some heads can go and hardly anything happens. The notes say that gradients push
# redundant heads elsewhere; here they did not.
#
# In large models people found heads for positions, syntax, coreference, roles (who did what), and heads that gather the
# whole sentence; lower layers lean to position and syntax, upper ones to meaning. Tendencies, found afterwards, not a plan.
#
# Now switch off the head that looks back, and ask the induction heads again.

# %% tags=["demo"]
with need("MultiHeadAttention", "split_heads", "head_patterns"):
    model, tokens = trained(2)[0], repeats(128, torch.Generator().manual_seed(7))[0]
    first, second = (head_patterns(weights, tokens) for weights in weights_by_layer(model, tokens))
    back = int(first["previous"].argmax())
    columns = model.layers[0].w_o.weight[:, back * 12:(back + 1) * 12]
    kept = columns.clone()
    columns.zero_()
    without = head_patterns(weights_by_layer(model, tokens)[1], tokens)
    columns.copy_(kept)
    print("induction scores of layer 1          ", second["induction"])
    print(f"with head {back} of layer 0 switched off ", without["induction"])

# %% [markdown]
# The heads of layer 1 have not changed; what they read has. A head is not a part with a job of its own.
#
# **Browse.** Rings mark the induction targets. Find the head that looks back, one that copies, and one that you would
# prune.

# %% tags=["demo"]
with need("MultiHeadAttention", "split_heads", "head_entropy", "head_patterns"):
    model, sample = trained(2)[0], repeats(1, torch.Generator().manual_seed(12))[0][:, :20]
    widgets.head_browser(torch.cat(weights_by_layer(model, sample)), sample[0], head_entropy, head_patterns)

# %% [markdown]
# "Attention weights explain what a model does." From what you measured: which part of that would you sign? Your sentence:

# %% [markdown]
# ---
# ## 3.13 Farther is fainter
# *stretch · about 18 min*
#
# Heads can also be given a taste for nearness. ALiBi adds no position to the tokens; it subtracts from each score
# `slope · distance`, with another slope in each head. No table of positions, so no longest sentence.

# %%
predict("alibi", "Slope ½, two keys with equal scores, one of them 10 places farther away. Its weight is smaller by a factor of…",
        ["10", "20", "about 150"])

# %%
weights = torch.tensor([0.0, -0.5 * 10]).softmax(-1)
print("weights", weights, " ratio", (weights[0] / weights[1]).item())
reveal("alibi", "about 150", "Softmax turns differences into factors: e⁵ = 148.")

# %% [markdown]
# ### Exercise 3.13 · `alibi_bias` · stretch · about 15 min
# - **Build** the table `−slope · distance`, `(H, Q, K)`. Query `i` stands at place `i + K − Q` (align to the end). What you
#   write for later keys is your choice: a mask hides them.
# - Slopes for `n` heads, `n` a power of 2: `2^(−8h/n)`, `h = 1 … n`. Otherwise, with `m` the next lower power of 2: the
#   `m` slopes, **then** those of `2m` heads with `h = 1, 3, 5, …` until there are `n`, unsorted.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Slopes and distances are separate; broadcasting multiplies them.</details>
# <details><summary>Hint 2 · what</summary>Distance of query i and key j: <code>i + kv_len − q_len − j</code>.
# <code>1 << (n_heads.bit_length() - 1)</code> is the largest power of 2 up to n_heads.</details>
# <details><summary>Hint 3 · how</summary>A function <code>powers(n)</code> that lists 2^(−8h/n); then
# <code>powers(m) + powers(2 * m)[::2][: n_heads - m]</code>.</details>

# %% exercise="alibi_bias"
def alibi_bias(n_heads, q_len, kv_len):
    """A handicap for distance, steeper in some heads than in others.

    Returns (n_heads, q_len, kv_len), torch's default dtype: −slope · (own place − key place),
    own place i + kv_len − q_len. Entries of later keys are free.
    Paper: Press et al. 2022, §3; slopes as in its code.
    """
    ### BEGIN SOLUTION
    def powers(n):
        return [2 ** (-8 * h / n) for h in range(1, n + 1)]

    lower = 1 << (n_heads.bit_length() - 1)
    slopes = torch.tensor(powers(lower) + powers(2 * lower)[::2][: n_heads - lower])
    own = torch.arange(kv_len - q_len, kv_len)[:, None]  # (Q, 1)
    return -slopes[:, None, None] * (own - torch.arange(kv_len))  # (H, Q, K)
    ### END SOLUTION

# %% check="alibi_bias"
check(alibi_bias, points=3)

# %% tags=["demo"]
with need("alibi_bias"):
    weights = alibi_bias(8, 1, 64).softmax(-1)[:, 0]  # one query at the end, equal scores
    show(plots.reach_of_heads(weights),
         "Weights of eight heads against distance: the first reads its neighbours only, the last "
         "spreads over all 64 places.")

# %% [markdown] reflect="alibi_bias"
# Section 3.12's model needed a table of places to look back by one. Could ALiBi alone make a previous-token head? Your
# sentence:

# %% [markdown]
# ---
# ## 3.14 Every number of the notes
# *more · about 5 min*
#
# The rest in one pass. `you ✓`: yours is what comes out; `notes ✗`: theirs is not. Codes at the end of a line are
# errata about that example (`notes.erratum("D36")` tells its story). The last block is our own arithmetic.

# %%
def tally(name, **values):
    """One line per result: does yours agree with the recomputation, and did the notes?"""
    ex = notes.example(name)
    for key, value in values.items():
        verdict = ex.compare(value, key)
        you, they = ("✓" if agrees else "✗"
                     for agrees in (verdict.agrees, verdict.agrees_with_notes))
        print(f"{name:26}{key:20} you {you}  notes {they}  {' '.join(s.id for s in ex.errata)}")

# %% tags=["demo"]
with need("shape_trace", "split_heads", "merge_heads"):
    walks = {"000-mha-shapes": (3, 512, 8), "002-heads-4x512": (4, 512, 8), "002-heads-3x12": (3, 12, 3)}
    for name, sizes in walks.items():
        shapes = shape_trace(1, *sizes)
        tally(name, attention_per_head=shapes["heads"][2:], concat=shapes["merged"][1:],
              output=shapes["output"][1:])
    width = split_heads(torch.zeros(4, 512), 8).shape[-1]
    tally("000-head-dim", result=width)
    tally("004-head-dim", result=width)
    tally("002-sqrt-64", sqrt_dk=math.sqrt(width))
    tally("002-concat-8x64", result=merge_heads(torch.zeros(8, 4, 64)).shape[-1])

# %%
def multiply_adds(n, d, n_heads):
    return 4 * n * d * d + 2 * n_heads * n * n * (d // n_heads)  # projections, then both products


for name in ("002-cost-linear-in-heads", "004-mha-cost"):
    n, d, counts = (notes.example(name).inputs[key] for key in ("n", "d", "heads"))
    tally(name, same_for_all_h=len({multiply_adds(n, d, n_heads) for n_heads in counts}) == 1)
sizes = notes.example("001-d-equals-h-dhead").inputs
tally("001-d-equals-h-dhead", equals_d=sizes["H"] * sizes["d_head"] == sizes["d"])
cases = notes.example("001-mask-broadcast").inputs["cases"]  # an error, or heads masked by batch
tally("001-mask-broadcast", always_works=all(batch == n_heads or batch == 1 for batch, n_heads in cases))
tally("002-heads-common", heads=[width // 64 for width in (512, 768, 1024)])  # heads 64 wide
tally("004-heads-typical", h=[width // 64 for width in (512, 768)])

# %% [markdown]
# ---
# ## 3.15 Say it aloud
# *core · about 13 min*
#
# Three questions that interviewers ask. Write as you would speak: five to eight sentences. A person grades these.

# %% [markdown]
# **Question 1. Why several heads, and what exactly happens in multi-head attention?**
#
# | points | for |
# |---|---|
# | 1 | why: one softmax gives one average; several heads keep several answers apart |
# | 1 | the steps in order: project, split, attend per head, merge, project, with shapes |
# | 1 | each head reads the whole token; q, k, v are cut, d_head = d_model / n_heads, scale √d_head |
# | 1 | cost: parameters and products as with one wide head; what more heads do cost (narrow heads) |

# %% [markdown] written="why-heads" points=4
# ### BEGIN SOLUTION
# One head has one row of weights per token, and its output is one average, so it cannot keep apart what it read from the
# noun and what from the neighbour. Several heads have several tables of weights, and their results stand side by side.
# Each token is projected to q, k and v by three d_model by d_model matrices; the results are cut into n_heads slices of
# d_head = d_model / n_heads and moved to (batch, n_heads, seq_len, d_head). Every head computes scaled dot-product
# attention by itself, with √d_head, so the scores are (batch, n_heads, q_len, kv_len). Then the heads of each token are
# joined to d_model features again and multiplied by W_o. Each head reads the whole token, through its own rows of the
# matrices; it is not the token that is cut. Parameters and multiply-adds are those of one wide head, whatever the number
# of heads; but heads that are too narrow have little room to tell keys apart.
# ### END SOLUTION

# %% [markdown]
# **Question 2. How are the heads' outputs combined, and what would break without the last projection?**
#
# | points | for |
# |---|---|
# | 1 | concatenation along features, back to d_model, then W_o |
# | 1 | the same thing as a sum: each head times its own block of W_o, bias once |
# | 1 | without W_o every feature hears one head only, and a head writes to its own features only |
# | 1 | a trap: reshape without transpose mixes tokens and heads, no error |

# %% [markdown] written="combine-heads" points=4
# ### BEGIN SOLUTION
# The outputs are put side by side along the features, which gives d_model numbers per token again, and this row is
# multiplied by W_o. Written in blocks, that is a sum: every head's output times its own d_head rows of W_o, plus the bias
# once. So each head adds a vector to the residual stream, independently of the others. Without W_o feature 5 of the
# output would come from head 0 alone, and a head could write to its own slice of the stream only; the heads would not
# mix before the next layer. In code the danger is the way back from (batch, heads, tokens, d_head): a reshape without the
# transpose has the right shape, raises nothing, and mixes different tokens into one row.
# ### END SOLUTION

# %% [markdown]
# **Question 3. Do heads really learn different things? How would you find out?**
#
# | points | for |
# |---|---|
# | 1 | yes, some: for example previous-token and induction heads, which work together over two layers |
# | 1 | no guarantee: redundant heads exist, many can be pruned |
# | 1 | how to look: entropy, scores on known targets, on texts where the answer is known |
# | 1 | looking is not mattering: switch a head off (its part, not its queries) and measure the loss |

# %% [markdown] written="do-heads-differ" points=4
# ### BEGIN SOLUTION
# Some do. In a two-layer model trained on repeated text I saw a head that reads the previous token and, one layer later,
# heads that look at what followed the same token last time; together they copy. That is an observation, not a law:
# nothing in the loss asks heads to differ, other heads did the same job twice or nothing, and many heads of trained
# models can be pruned with little harm. To find out I first measure where a head looks: the entropy of its rows and its
# mean weight on targets that I know, such as the previous token. Then I test whether it matters: I set its part of the
# concatenated output to zero and see how much the loss rises. Setting its queries to zero is not the same, since the head
# then averages all keys. And a high weight alone explains little, because the value behind it may carry nothing.
# ### END SOLUTION

# %% [markdown]
# ### The phase on one screen

# %%
show(plots.multi_head_recap(),
     "A flow chart: x is projected to q, k, v, split into heads, each head attends, heads are merged "
     "and projected by w_o; shapes and your functions are named.")

# %% [markdown]
# **What you can now say in an interview:**
#
# - One softmax gives one average; heads keep several apart. Each reads the whole token; the projections are cut.
# - `(B, T, M) → (B, H, T, D) → (B, T, M)`: reshape *and* transpose, both ways. Scores are `(B, H, Q, K)`, scaled by `√D`.
# - Concatenate and project is a sum: each head adds its own vector to the stream.
# - The number of heads changes neither parameters nor multiply-adds. Fewer key-value heads shrink the cache.
# - Heads can specialise: you watched an induction head form. Others are redundant. Ablate before you believe.
#
# Phase 4: the rest of the block.
