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
# # Phase 7 · Capstone: a whole model, trained
#
# Everything you built, at work at once. A translator, small enough to be proved right; a language model, large enough to
# need a GPU; and the craft around them: what a run will cost, whether it learns at all, whether the test is honest, and
# what the numbers are worth.
#
# | section | you build | minutes | path |
# |---|---|---|---|
# | [7.1 Bring your parts](#7.1-Bring-your-parts) | – | 6 | core |
# | [7.2 A language known by heart](#7.2-A-language-known-by-heart) | – | 8 | core |
# | [7.3 The price of a token](#7.3-The-price-of-a-token) | `flops_per_token` | 18 | core |
# | [7.4 Will it fit?](#7.4-Will-it-fit?) | `training_memory` | 22 | more |
# | [7.5 One batch by heart](#7.5-One-batch-by-heart) | `overfit_one_batch` | 15 | core |
# | [7.6 Too good to be true](#7.6-Too-good-to-be-true) | `sees_targets` | 20 | more |
# | [7.7 Measure fairly](#7.7-Measure-fairly) | `evaluate` | 18 | core |
# | [7.8 Stop and go on](#7.8-Stop-and-go-on) | `training_state` `restore_state` | 25 | more |
# | [7.9 Train a translator](#7.9-Train-a-translator) | – | 8 | core |
# | [7.10 Count the n-grams](#7.10-Count-the-n-grams) | `bleu` | 28 | core |
# | [7.11 Who looked where](#7.11-Who-looked-where) | `alignment_from_attention` | 15 | more |
# | [7.12 Hand in what it learned](#7.12-Hand-in-what-it-learned) | your weights | 6 | core |
# | [7.13 Text that lies around](#7.13-Text-that-lies-around) | `split_corpus` | 18 | core |
# | [7.14 Bits per byte](#7.14-Bits-per-byte) | `bits_per_byte` | 10 | core |
# | [7.15 Train a language model](#7.15-Train-a-language-model) | – | 8 | core |
# | [7.16 How fast is fast?](#7.16-How-fast-is-fast?) | `mfu` | 14 | more |
# | [7.17 Let it write](#7.17-Let-it-write) | – | 8 | more |
# | [7.18 Two machines, one model](#7.18-Two-machines,-one-model) | `average_gradients` | 20 | more |
# | [7.19 Is it worth a larger one?](#7.19-Is-it-worth-a-larger-one?) | – | 8 | more |
# | [7.20 Your report card](#7.20-Your-report-card) | – | 4 | core |
# | [7.21 Say it aloud](#7.21-Say-it-aloud) | the oral exam, recap | 20 | core |
#
# The core path is at most three hours; minutes are estimates until learners have been timed. You can stop after any
# section. To come back, run the setup cell and the cells you have solved.

# %% [markdown]
# Nothing here waits for you: a part that you have not finished is lent by the course, and each run says whose it used.
# Training cells take a minute or two on two cores. On a machine with a GPU the same cells choose a larger model. As
# always: **rows are tokens**, and **a mask is `True` where looking is allowed**.

# %% tags=["setup"]
import math
from collections import Counter
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from utils import check, measure, plots, widgets
from utils.config import ModelConfig
from utils.data import python_source, token_stream, translation
from utils.lesson import finished, need, predict, reveal, show
from utils.mycode import mine
from utils.train import Language, Translation, build, fit, settings

torch.set_printoptions(precision=3, sci_mode=False)
RUNS = Path("runs")  # checkpoints, logs and reports; beside this notebook
count_parameters = mine("count_parameters")

# %% [markdown]
# ---
# ## 7.1 Bring your parts
# *core · about 6 min*
#
# Two tracks share one training loop:
#
# - **A** translates English into Spanish with an encoder and a decoder: your `Transformer` of phase 4. Small, and every
#   answer can be checked.
# - **B** continues Python programs: your `GPT` of phase 6, on text cut by your `bpe_train` of phase 1. It gets better as
#   long as you feed it.
#
# How large they are is decided by the machine you sit at, and by you: every setting can be given by name.

# %%
predict("after-90-s", "After a minute or two of training on two cores, what will translator A do?",
        ["translate a few words", "translate sentences it has seen", "translate sentences it has never seen"])

# %%
config = {track: settings(track) for track in "ab"}
for track, vocabulary in (("a", (300, 500)), ("b", (config["b"].vocab_size,))):
    model, whose = build(config[track], vocabulary, quiet=True)
    size = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    print(f"track {track}: tier {config[track].tier} on {config[track].device}, {size:.2f} million parameters; "
          + ", ".join(f"{name}: {owner}" for name, owner in whose.items()))

# %% [markdown]
# "yours" means: found in your saved notebook, and it passes its check. "the course's" means it is not finished, which
# costs nothing here. To choose another size, write for example `settings("a", tier="laptop")` or `settings("b", steps=200)`.

# %% [markdown]
# ---
# ## 7.2 A language known by heart
# *core · about 8 min*
#
# Real translations have many right answers, so nobody can say how many of a model's are wrong. We want to know. So a small
# grammar draws the sentences: nouns with gender, adjectives that agree, verbs in two tenses, and the traps of Spanish.

# %%
corpus = translation.corpus(n_pairs=config["a"].n_pairs)
for pair in corpus.tests["iid"][:6]:
    print(f"{pair.source:44} {pair.target}")
print(f"\n{len(corpus.source_words)} English and {len(corpus.target_words)} Spanish words, billions of sentences")

# %% [markdown]
# Look for `se` ("The cat sat" is *El gato se sentó*: the verb is reflexive), for *del* and *al* (two words melt into one),
# and for the *a* before a person who is acted on. A word-by-word table gets these wrong; what decides them stands elsewhere in
# the sentence. That is attention's job.
#
# Because a grammar wrote both sides, it also knows which word came from which:

# %%
pair = corpus.tests["iid"][0]
english, spanish = pair.source.split(), pair.target.split()
print(pair.source, "→", pair.target)
print({english[i]: spanish[j] for i, j in pair.alignment})

# %% [markdown]
# Three tests, each harder to fake than the one before:
#
# | test | its sentences |
# |---|---|
# | iid | drawn like the training sentences, but none of them |
# | compositional | hold a pair of words, like *sad lamps*, that training never shows together |
# | length | longer than every training sentence |

# %%
predict("hardest-split", "Which test will translator A do worst on?", ["iid", "compositional", "length"])

# %%
for name, pairs in {"train": corpus.train, **corpus.tests}.items():
    longest = max(len(pair.source.split()) for pair in pairs)
    print(f"{name:14}{len(pairs):7,} pairs, at most {longest:2} words: {pairs[1].source}")

# %% [markdown]
# ---
# ## 7.3 The price of a token
# *core · about 18 min*
#
# Before you rent a machine you want to know what a run costs. Almost all work is matrix products. One entry of a matrix costs,
# for one token, a multiplication and an addition. That is the forward pass.

# %%
predict("six", "Forward costs 2 operations per weight. Forward and backward together cost…", ["4", "6", "8"])

# %% [markdown]
# Backward needs two products of the same size: one for the gradient of the inputs, one for that of the weights. So **6 per
# weight and token**. A table that is looked up multiplies nothing; an output layer does, even if it is the same table.
#
# Attention has no weights of its own here, but two products with every key: scores and mixing. How many keys? A causal
# model needs half of them; published figures often count all. The two conventions differ, so you compute both and name them.

# %%
predict("context-price", "From 1,024 to 65,536 tokens of context, the causal price of one token of GPT-2 small grows…",
        ["not at all", "about 5 times", "64 times"])

# %% [markdown]
# ### Exercise 7.3 · `flops_per_token` · core · about 15 min
# - **Build** the operations of one training step per token of a decoder-only model, in both conventions. 6 for each entry of
#   a matrix that multiplies: six matrices in each layer, and the output layer, tied or not. Attention adds two products with
#   the keys, at full width d_model, also times 6: `"palm"` counts all `seq_len` keys, `"causal"` half of them.
# - `config` has `d_model`, `n_heads`, `n_kv_heads` (`None`: as many as heads), `n_layers`, `d_ff`, `vocab_size`. K and V are
#   d_kv = d_model / n_heads · n_kv_heads wide.
# - **Leave out** tables that are looked up, biases, norms, softmax. **Raise** `ValueError` if `config.src_vocab_size` is given:
#   an encoder–decoder reads two lengths.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Count the entries of all matrices first; <code>decode_flops</code> of phase 5 had the
# same six.</details>
# <details><summary>Hint 2 · what</summary>A token's scores with n keys cost n · d_model multiply-adds, and so does the mixing: together
# 2 · n · d_model per layer, times 6.</details>
# <details><summary>Hint 3 · how</summary><code>entries = L * (2*d*d + 2*d*d_kv + 2*d*d_ff) + vocab_size * d</code>; palm is
# <code>6 * entries + 12 * L * d * seq_len</code>, causal has half of the second term.</details>

# %% exercise="flops_per_token"
def flops_per_token(config, seq_len):
    """Operations of training a decoder-only model, per token: forward once, backward twice.

    config: a ModelConfig; n_kv_heads None means n_heads
    Returns a dict of two numbers: "causal" (a token looks at seq_len / 2 keys) and "palm" (at all seq_len).
    Raises ValueError if config.src_vocab_size is given.
    Chowdhery et al. 2022 (PaLM), appendix B, is "palm". Differs: an output layer counts even if it is tied.
    """
    ### BEGIN SOLUTION
    if config.src_vocab_size is not None:
        raise ValueError("src_vocab_size is given: an encoder-decoder reads two lengths")
    d_model = config.d_model
    d_kv = d_model // config.n_heads * (config.n_kv_heads or config.n_heads)
    block = 2 * d_model * d_model + 2 * d_model * d_kv + 2 * d_model * config.d_ff
    entries = config.n_layers * block + config.vocab_size * d_model
    products = 12 * config.n_layers * d_model * seq_len  # scores and mixing with all keys
    return {"causal": 6 * entries + products / 2, "palm": 6 * entries + products}
    ### END SOLUTION

# %% check="flops_per_token"
check(flops_per_token, points=4)

# %% tags=["demo"]
with need("flops_per_token"):
    small = ModelConfig(50_257, 768, 12, 12, 3072, 1024)
    for seq_len in (128, 1024, 8192, 65_536):
        cost = flops_per_token(small, seq_len)
        print(f"GPT-2 small, {seq_len:6,} tokens: {cost['causal'] / 1e6:8,.0f} million (causal), "
              f"{cost['palm'] / 1e6:8,.0f} (all keys): the conventions differ by {cost['palm'] / cost['causal'] - 1:.0%}")
    reveal("six", "6", "2 forward, 4 backward.")
    reveal("context-price", "about 5 times", "The matrices do not care about length; attention's two products do.")

# %% [markdown] reflect="flops_per_token"
# Someone reports 52 % utilisation, someone else 48 %, for the same run. How can both be right? Your sentence:

# %% [markdown]
# ---
# ## 7.4 Will it fit?
# *more · about 22 min*
#
# "CUDA out of memory" after twenty minutes of set-up is a bad way to find out. Memory goes to four things: weights, their
# gradients, AdamW's two moments, and **activations**: what forward keeps because backward needs it. The first three do not
# depend on the batch. The last grows with every token, and near the end come the logits: one number for each word of the
# vocabulary and each token.

# %%
predict("memory", "GPT-2 small (124 million weights), batch 16, 1,024 tokens. What takes most?",
        ["weights", "AdamW's moments", "activations and logits"])

# %% [markdown]
# ### Exercise 7.4 · `training_memory` · more · about 20 min
# - **Build** the bytes of one training step. Weights and gradients take 4 bytes a parameter, AdamW's two moments 8, whatever
#   `bytes_per_element` is. **Activations** take `bytes_per_element` each. A block keeps for each token: both norms' inputs and
#   outputs, q, k, v, the mixed heads, and two vectors of width d_ff, before and after the activation function. Without a fused
#   kernel also the attention weights: one number for each head and key. **Logits**: each, and its gradient, 4 bytes.
# - **Allowed** your `count_parameters(config)`, which returns a dict with a `"total"`. **Raise** `ValueError` if
#   `config.src_vocab_size` is given.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Three parts need only the number of parameters; two need the number of tokens,
# batch · seq_len.</details>
# <details><summary>Hint 2 · what</summary>Six of the kept vectors are d_model wide; k and v are d_kv wide, which grouped heads make
# narrower.</details>
# <details><summary>Hint 3 · how</summary><code>kept = 6*d + 2*d_kv + 2*d_ff</code>, plus <code>n_heads * seq_len</code> if not fused;
# activations are layers · tokens · kept · bytes_per_element.</details>

# %% exercise="training_memory"
def training_memory(config, batch, seq_len, bytes_per_element, fused=True):
    """Estimate the bytes that one training step of a decoder-only model holds at its fullest.

    config: a ModelConfig; batch: sequences of seq_len tokens; bytes_per_element: of an activation (2 in bf16, 4 in float32)
    fused: attention runs in a kernel that never stores its weights
    Returns a dict of numbers: "weights", "gradients", "optimizer", "activations", "logits" and their sum, "total".
    Raises ValueError if config.src_vocab_size is given.
    """
    ### BEGIN SOLUTION
    if config.src_vocab_size is not None:
        raise ValueError("src_vocab_size is given: an encoder-decoder reads two lengths")
    parameters = count_parameters(config)["total"]
    d_kv = config.d_model // config.n_heads * (config.n_kv_heads or config.n_heads)
    kept = 6 * config.d_model + 2 * d_kv + 2 * config.d_ff  # elements per token and layer
    if not fused:
        kept += config.n_heads * seq_len
    tokens = batch * seq_len
    parts = {
        "weights": 4 * parameters,
        "gradients": 4 * parameters,
        "optimizer": 8 * parameters,
        "activations": config.n_layers * tokens * kept * bytes_per_element,
        "logits": 2 * 4 * tokens * config.vocab_size,
    }
    parts["total"] = sum(parts.values())
    return parts
    ### END SOLUTION

# %% check="training_memory"
check(training_memory, points=4)

# %% tags=["demo"]
with need("training_memory"):
    small = ModelConfig(50_257, 768, 12, 12, 3072, 1024)
    parts = {batch: training_memory(small, batch, 1024, 2) for batch in (1, 4, 16)}
    show(plots.memory_bars(parts, "batch"),
         "Stacked bars of memory for batch 1, 4 and 16: weights, gradients and optimizer stay the same height, activations "
         "and logits grow with the batch and are most of the largest bar.")
    reveal("memory", "activations and logits", "That is why halving the batch is the first cure.")

# %% [markdown]
# Play with it: which sizes fit into 16 GB, and what does a day on one card buy?

# %% tags=["demo"]
with need("training_memory", "flops_per_token"):
    widgets.training_planner(training_memory, flops_per_token)

# %% [markdown]
# ---
# ## 7.5 One batch by heart
# *core · about 15 min*
#
# The cheapest test of a whole training loop: **one** batch, again and again. A model with more weights than the batch has
# words must learn it by heart, and the loss must fall to almost nothing. If it does not, a longer run would not either.
#
# The wrong way first: a loop with one line missing.

# %%
def by_heart(forget):
    torch.manual_seed(0)
    layer, inputs, targets = nn.Linear(8, 3), torch.randn(6, 8), torch.randn(6, 3)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.05)
    for step in range(401):
        if not forget:
            optimizer.zero_grad()
        loss = (layer(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
        if step in (0, 20, 40, 50, 60, 100, 400):
            yield f"{loss:.3f}"


print("whole loop:           ", *by_heart(forget=False))
print("zero_grad forgotten:  ", *by_heart(forget=True))

# %% [markdown]
# Gradients pile up, the steps overshoot, and the loss goes up and down for ever. In a long run with a small learning rate
# that looks like "it learns slowly". On one batch it is plain to see.

# %% [markdown]
# ### Exercise 7.5 · `overfit_one_batch` · core · about 10 min
# - **Build** the loop. `loss(model)` is the loss of one batch, always the same. Learn it by heart in **eval mode**: dropout is
#   noise, and noise cannot be learned. Parameters may still hold gradients of somebody else's.
# - Return `steps + 1` floats: the loss before the first step, and after each. A loss that is no number (nan, inf): raise
#   `ValueError` before a step is made with it.
# - Put every part's train/eval flag back, also where it raises.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Four lines make a step: zero, loss, backward, step. What comes after the last one?</details>
# <details><summary>Hint 2 · what</summary><code>loss(model).item()</code> is a number; the tensor itself would keep the whole graph
# alive.</details>
# <details><summary>Hint 3 · how</summary><code>flags = [(part, part.training) for part in model.modules()]</code>;
# <code>try: … finally:</code> put them back; <code>math.isfinite</code>.</details>

# %% exercise="overfit_one_batch"
def overfit_one_batch(model, optimizer, loss, steps):
    """Learn one batch by heart.

    loss(model) -> the loss of that batch, a tensor without axes; optimizer: of the model's parameters
    Returns a list of steps + 1 floats: the loss before the first step, then after each.
    Promises: eval mode while it lasts, every part's flag as before afterwards.
    Raises ValueError for a loss that is nan or infinite; no step is made with it.
    """
    ### BEGIN SOLUTION
    flags = [(part, part.training) for part in model.modules()]
    model.eval()
    losses = []
    try:
        for step in range(steps + 1):
            now = loss(model)
            losses.append(now.item())
            if not math.isfinite(losses[-1]):
                raise ValueError(f"the loss is {losses[-1]} after {step} steps")
            if step < steps:
                optimizer.zero_grad()
                now.backward()
                optimizer.step()
    finally:
        for part, training in flags:
            part.training = training
    return losses
    ### END SOLUTION

# %% check="overfit_one_batch"
check(overfit_one_batch, points=4)

# %% tags=["demo"]
with need("overfit_one_batch"):
    task = Translation(corpus, config["a"])
    model, _ = task.model(quiet=True)
    batch = {name: tensor[:8] for name, tensor in task.batch(0).items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


    def loss_of(model):
        total, count = task.loss(model, batch)
        return total / count


    losses = overfit_one_batch(model, optimizer, loss_of, 60)
    print(f"first {losses[0]:.2f} (ln {len(corpus.target_words)} = {math.log(len(corpus.target_words)):.2f}), "
          f"after 60 steps {losses[-1]:.4f}")

# %% [markdown]
# It learns. And the first number is a test of its own: who spreads the guess evenly over the vocabulary loses ln of its size.
# Above it, guesses are too sure: here a little, since a small model's rows are drawn with a large spread; a loss of 50 would say
# that the weights are far too large. Clearly **below** it, before a single step, the model sees the answer.

# %% [markdown]
# ---
# ## 7.6 Too good to be true
# *more · about 20 min*
#
# One batch by heart finds a loop that learns too little. The opposite is worse, because it looks like success: a loss that
# falls faster than anybody's. Almost always the model sees what it should predict: a mask one place off, targets not
# shifted, a cache from the last batch.

# %%
predict("leaky", "A language model's loss goes to 0.1 after 200 steps on fresh text. Most likely…",
        ["a lucky seed", "a good learning rate", "it reads the answer"])

# %%
reveal("leaky", "it reads the answer", "Text is not that predictable. Celebrate after the test below.")

# %% [markdown]
# ### Exercise 7.6 · `sees_targets` · more · about 15 min
# - **Build** the test: does any logit at a place depend on a token that comes **later** in its row? Return True or False.
# - `model(tokens)` is (batch, seq_len, vocab_size). Keep the tokens you were given in front of whatever you change: some leaks
#   show only there. Keep the row's length, too: a model may look at it, innocently. Differences up to 1e-6 are rounding.
# - Eval mode, no gradients; flags, tokens and random state as before.
# - **Done when** the check below passes, all or nothing. It runs your test on two dozen models. Some are innocent, and one of those
#   is very good.
#
# <details><summary>Hint 1 · where</summary>A low loss is a suspicion. A proof: change a later token, and an earlier logit
# moves.</details>
# <details><summary>Hint 2 · what</summary>Do it for every place: some models look ahead only at the start, at the end, or very
# far.</details>
# <details><summary>Hint 3 · how</summary>For each <code>place</code> from 1: <code>other = tokens.clone()</code>; all tokens from there
# on <code>(t + 1) % vocab_size</code>; compare <code>[:, :place]</code>.</details>

# %% exercise="sees_targets"
@torch.no_grad()
def sees_targets(model, tokens):
    """Does a language model read what it should predict?

    model(tokens) -> logits (batch, seq_len, vocab_size); tokens (batch, seq_len), int64, all below vocab_size
    Returns True if a logit moves, by more than 1e-6, when a later token of its row changes; else False.
    Promises: eval mode while it lasts; model, flags, tokens and random state as before.
    """
    ### BEGIN SOLUTION
    flags = [(part, part.training) for part in model.modules()]
    model.eval()
    logits = model(tokens)
    found = False
    for place in range(1, tokens.shape[1]):
        other = tokens.clone()
        other[:, place:] = (other[:, place:] + 1) % logits.shape[-1]
        moved = (model(other)[:, :place] - logits[:, :place]).abs()  # (B, place, V)
        found = found or bool((moved > 1e-6).any())
    for part, training in flags:
        part.training = training
    return found
    ### END SOLUTION

# %% check="sees_targets"
check(sees_targets, points=4)

# %% tags=["demo"]
with need("sees_targets"):
    torch.manual_seed(0)
    honest = build(config["b"], (40,), quiet=True)[0]
    tokens = torch.randint(40, (2, 12))
    print("your GPT sees its targets:", sees_targets(honest, tokens))

    class Peeking(nn.Embedding):
        """Adds a hundredth of what the next token says."""

        def forward(self, tokens):
            return super().forward(tokens) + 0.01 * super().forward(tokens.roll(-1, 1))

    print("a model that peeks at the next token:", sees_targets(Peeking(40, 40), tokens))

# %% [markdown]
# ---
# ## 7.7 Measure fairly
# *core · about 18 min*
#
# Two people test one model on one text and get two numbers. Reasons, all seen in public trainers: dropout left on; random
# windows, so each test is another test; the last, short window thrown away; overlapping windows that count some words twice;
# a mean of means. Here is the first:

# %%
torch.manual_seed(0)
noisy = nn.Sequential(nn.Embedding(20, 16), nn.Dropout(0.5), nn.Linear(16, 20))
tokens, targets = torch.randint(20, (400,)), torch.randint(20, (400,))
for mode in (True, True, False, False):
    loss = F.cross_entropy(noisy.train(mode)(tokens), targets)
    print(f"{'training' if mode else 'eval':8} mode: {loss:.4f}")

# %% [markdown]
# A fair test is a function of model and text alone: eval mode, no gradients, fixed windows side by side, **every** token after
# the first a target exactly once. It returns a sum and a count, so that sums from many places add up.

# %% [markdown]
# ### Exercise 7.7 · `evaluate` · core · about 12 min
# - **Build** the test loss of a long text: windows of `seq_len` inputs, side by side, from the first token on. Every token
#   after the first is a target **exactly once**; the last window may be shorter.
# - Return the sum of all losses (in nats) and their number. Fewer than two tokens, or `seq_len` below 1: `ValueError`.
# - Eval mode, no gradients, nothing drawn; every part's flag back afterwards.
# - **Allowed** `F.cross_entropy`. **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>A window has seq_len inputs **and** as many targets: seq_len + 1 tokens. The next one
# begins seq_len further.</details>
# <details><summary>Hint 2 · what</summary>Neighbours share one token: it is the last target of one and the first input of the
# next.</details>
# <details><summary>Hint 3 · how</summary><code>piece = tokens[start : start + seq_len + 1]</code>; inputs <code>piece[:-1]</code>,
# targets <code>piece[1:]</code>; <code>reduction="sum"</code>.</details>

# %% exercise="evaluate"
@torch.no_grad()
def evaluate(model, tokens, seq_len):
    """The loss of a language model on one long text, as a function of model and text alone.

    model(tokens (batch, up to seq_len)) -> logits (batch, …, vocab_size); tokens (n,), int64
    Returns loss_sum (float, nats), n_tokens (int, n - 1).
    Promises: each target once; eval mode and no gradients while it lasts; flags and random state as before.
    Raises ValueError for fewer than two tokens or seq_len below 1.
    """
    ### BEGIN SOLUTION
    if len(tokens) < 2 or seq_len < 1:
        raise ValueError("nothing to predict: it takes two tokens, and windows of at least 1")
    flags = [(part, part.training) for part in model.modules()]
    model.eval()
    loss_sum = 0.0
    for start in range(0, len(tokens) - 1, seq_len):
        piece = tokens[start : start + seq_len + 1]
        logits = model(piece[None, :-1])[0]  # (T, V)
        loss_sum += F.cross_entropy(logits, piece[1:], reduction="sum").item()
    for part, training in flags:
        part.training = training
    return loss_sum, len(tokens) - 1
    ### END SOLUTION

# %% check="evaluate"
check(evaluate, points=4)

# %% tags=["demo"]
with need("evaluate"):
    class Remembers(nn.Module):
        """Expects what followed this token the last time that it stood in the window."""

        def forward(self, tokens):
            logits = torch.zeros(*tokens.shape, 40)
            for number, row in enumerate(tokens.tolist()):
                followed = {}
                for place, token in enumerate(row):
                    if place:
                        followed[row[place - 1]] = token
                    if token in followed:
                        logits[number, place, followed[token]] = 8.0
            return logits

    text = torch.randperm(40, generator=torch.Generator().manual_seed(0)).repeat(25)  # 40 words, always in one order
    for seq_len in (1, 7, 64, 128, 999):
        total, count = evaluate(Remembers(), text, seq_len)
        print(f"windows of {seq_len:3}: {count} targets, mean {total / count:.3f}")

# %% [markdown]
# One model, one text. A window of up to 40 words holds none of them twice, so nothing in it can be remembered; longer ones give
# more targets something to look back at. A reported loss names its window.

# %% [markdown]
# ---
# ## 7.8 Stop and go on
# *more · about 25 min*
#
# Machines are lent by the hour, and laptops close. A run that stops at step 500 and goes on should end **exactly** where an
# undisturbed one ends: the same bits. Then a restart can never be the reason for a strange curve.

# %%
predict("resume", "You save the weights at step 10 and go on with a fresh AdamW. The next weights are…",
        ["the same", "other ones"])

# %%
def ten_more(fresh_optimizer):
    torch.manual_seed(0)
    layer, inputs = nn.Linear(6, 6), torch.randn(20, 6)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1)
    for step in range(20):
        if step == 10 and fresh_optimizer:
            optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1)
        optimizer.zero_grad()
        layer(inputs).square().mean().backward()
        optimizer.step()
    return layer.weight


print(f"largest difference after ten more steps: {(ten_more(False) - ten_more(True)).abs().max():.4f}")
reveal("resume", "other ones", "Its two moments and its step count were lost.")

# %% [markdown]
# So a state is everything that the next step depends on: weights and buffers, the optimizer's moments and count, the random
# numbers still to come (of the generator that draws batches, and of torch, for dropout), and the step. It must be a
# **snapshot**: `state_dict()` hands out the living tensors, and the next step would change them inside your state.

# %% [markdown]
# ### Exercise 7.8a · `training_state` · more · about 10 min
# - **Build** the snapshot: a dict with the keys `"model"` and `"optimizer"` (their `state_dict()`), `"generator"` (its state),
#   `"random"` (torch's own random state, a tensor) and `"step"`. Nothing in it may change when training goes on, however deep
#   it lies.
# - Taking it changes nothing: no flag, no gradient, no random number.
# - **Done when** the check below passes. It goes on training before it looks at what you kept.
#
# <details><summary>Hint 1 · where</summary><code>state_dict()</code> of a model lends you the living weights. An optimizer's holds
# dicts of dicts of tensors.</details>
# <details><summary>Hint 2 · what</summary>One function of Python copies any nesting of dicts, lists and tensors.</details>
# <details><summary>Hint 3 · how</summary><code>copy.deepcopy(optimizer.state_dict())</code>; <code>generator.get_state()</code>;
# <code>torch.get_rng_state()</code>.</details>

# %% exercise="training_state"
import copy


def training_state(model, optimizer, generator, step):
    """A snapshot of everything that the next step depends on.

    generator: torch.Generator that draws the batches; step: int, steps made so far
    Returns a dict with the keys model, optimizer, generator, random and step.
    Promises: later steps do not change it, and taking it changes nothing.
    """
    ### BEGIN SOLUTION
    return {
        "model": copy.deepcopy(model.state_dict()),
        "optimizer": copy.deepcopy(optimizer.state_dict()),
        "generator": generator.get_state(),
        "random": torch.get_rng_state(),
        "step": step,
    }
    ### END SOLUTION

# %% check="training_state"
check(training_state, points=4)

# %% tags=["demo"]
with need("training_state"):
    layer = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(layer.parameters())
    state = training_state(layer, optimizer, torch.Generator(), 7)
    before = layer.weight.detach().clone()
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    print(f"the state holds {', '.join(state)}; after one more step it is as it was:",
          torch.equal(state["model"]["weight"], before))

# %% [markdown]
# ### Exercise 7.8b · `restore_state` · more · about 10 min
# - **Build** the way back: put all of it into the model, optimizer and generator that are handed over, and into torch's own
#   random state. Return the step.
# - The state stays as it is, also while training goes on: somebody may want to come back to it **twice**.
# - **Done when** the check below passes. It restores one state into two runs and trains on in both.
#
# <details><summary>Hint 1 · where</summary><code>load_state_dict</code> of a model copies numbers. That of an optimizer keeps the
# tensors it is given, and writes into them.</details>
# <details><summary>Hint 2 · what</summary>So hand the optimizer a copy.</details>
# <details><summary>Hint 3 · how</summary><code>generator.set_state(…)</code>; <code>torch.set_rng_state(…)</code>.</details>

# %% exercise="restore_state"
def restore_state(state, model, optimizer, generator):
    """Go back to a snapshot of training_state.

    model, optimizer, generator: of the same kind as those it was taken of; they are changed
    Returns the step of the snapshot, an int. Torch's own random state is put back, too.
    Promises: every step from here on is, bit for bit, what it would have been; the state can be used again.
    """
    ### BEGIN SOLUTION
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
    generator.set_state(state["generator"])
    torch.set_rng_state(state["random"])
    return state["step"]
    ### END SOLUTION

# %% check="restore_state"
check(restore_state, points=3)

# %% tags=["demo"]
with need("training_state", "restore_state"):
    def run(stop_at=None):
        torch.manual_seed(0)
        layer = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.2))
        optimizer, draws = torch.optim.AdamW(layer.parameters(), lr=0.1), torch.Generator().manual_seed(1)
        step = 0
        while step < 20:
            if step == stop_at:
                state = training_state(layer, optimizer, draws, step)
                torch.manual_seed(99)
                layer = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.2))
                optimizer, draws = torch.optim.AdamW(layer.parameters(), lr=0.5), torch.Generator()
                step, stop_at = restore_state(state, layer, optimizer, draws), None
            optimizer.zero_grad()
            layer(torch.randn(4, 6, generator=draws)).square().mean().backward()
            optimizer.step()
            step += 1
        return layer[0].weight


    print("stopped at 7 and gone on, bit for bit the same:", torch.equal(run(), run(stop_at=7)))

# %% [markdown]
# The course's trainer does the same with files: written beside the old ones and moved into place, so that a crash in mid-write
# loses nothing. It holds no pickle, since opening a pickled checkpoint from a stranger runs the stranger's code. And its batches
# are a pure function of (seed, step): there is no loader whose state could be lost.

# %% [markdown]
# ---
# ## 7.9 Train a translator
# *core · about 8 min*
#
# Now it runs: your model, your loss, your optimizer where they are finished. You may stop it (■) at any time: what it has is
# saved, and the same cell goes on from there.

# %% tags=["demo"]
run_a = fit(config["a"], Translation(corpus, config["a"]), out=RUNS / f"translator_{config['a'].tier}")

# %% [markdown]
# Say something to it. Try words of the table's kind (*girl, dog, house, red, sings, opened, not, near*…), and then a word it
# has never met.

# %% tags=["demo"]
for sentence in ("The cat sat", "My sister did not open the old windows", "The good boys slept near the river"):
    print(f"{sentence:42} → {measure.translate(run_a.model, corpus, [sentence])[0]}")
    if unknown := corpus.unknown_words(sentence):
        print(f"   not in its vocabulary: {', '.join(unknown)}")

# %% tags=["demo"]
scores = measure.exact_match(run_a, corpus)
show(plots.exact_match_bars(scores),
     "One bar for each test: the share of sentences that are right word for word, with the range that the number of "
     "sentences leaves open.")
reveal("after-90-s", "translate sentences it has never seen", "No sentence of a test was in training.")
reveal("hardest-split", "length", "Is it so in your run, too?")

# %% [markdown]
# The short lines are 95 % bounds: even 1,000 sentences, all of them right, allow a rate of 99.6 %. (Iid has 1,000, the others
# 300.) If the long sentences are poor, think of positions: places beyond the tenth word were never trained. And what do equal
# bars for iid and compositional say: does the model know words and rules, or pairs of words?

# %% [markdown]
# ---
# ## 7.10 Count the n-grams
# *core · about 28 min*
#
# Exact match works only where there is one right answer. For everything else there is BLEU: count the n-grams (1 to 4 words in
# a row) that the output shares with a reference, in per cent, and take the geometric mean.

# %%
predict("the-the", "Reference “the cat sat”. A model says “the the the”. What share of its words is right?",
        ["3 of 3", "1 of 3", "0 of 3"])

# %% [markdown]
# Without a rule against it, "the the the" would be perfect. So each n-gram counts **at most as often as the reference has it**:
# 1 of 3. And what stops a model from saying only "cat"? A penalty for outputs that are, all together, shorter than the
# references: exp(1 − r/h).
#
# Counts are summed over the whole corpus **before** dividing. A mean of sentences' scores is another number.

# %% [markdown]
# ### Exercise 7.10 · `bleu` · core · about 25 min
# - **Build** BLEU of a whole corpus. Words are what lies between spaces. For n = 1 to 4: how many n-grams of the
#   outputs does their **own** reference have, each at most as often as there? Add up over all sentences, then divide by the n-grams of the outputs (0 if none).
# - **Penalty** 1 if the h words of all outputs are at least the r of the references, else exp(1 − r/h); 0 if h is 0. **BLEU** is
#   the penalty times the fourth root of the product of the four.
# - **Not allowed** sacrebleu.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>You need eight sums (matches and n-grams, for each n) and two lengths. Nothing is divided
# before the last sentence.</details>
# <details><summary>Hint 2 · what</summary>A <code>Counter</code> of the output's n-grams and one of the reference's:
# <code>a & b</code> keeps the smaller count of each.</details>
# <details><summary>Hint 3 · how</summary><code>grams = Counter(tuple(words[i:i + n]) for i in range(len(words) - n + 1))</code>;
# matches are <code>(grams & wanted).total()</code>. If a precision is 0, so is BLEU: do not take its logarithm.</details>

# %% exercise="bleu"
from collections import Counter


def bleu(hypotheses, references):
    """Corpus BLEU with n-grams of 1 to 4 words, no smoothing, one reference for each hypothesis.

    hypotheses, references: lists of str, equally long
    Returns a dict: "precisions" (list of four, in per cent), "brevity_penalty" (0 to 1), "bleu" (in per cent).
    Raises ValueError if the lists have different lengths or are empty.
    Papineni et al. 2002. Equals sacrebleu with tokenize="none", smooth_method="none".
    """
    ### BEGIN SOLUTION
    if not hypotheses:
        raise ValueError("no sentences: give at least one hypothesis, and as many references")
    pairs = [(said.split(), wanted.split()) for said, wanted in zip(hypotheses, references, strict=True)]  # strict refuses
    shares = []
    for n in range(1, 5):
        matches = total = 0
        for pair in pairs:
            said, wanted = (Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1)) for words in pair)
            matches += (said & wanted).total()  # & keeps the smaller count
            total += said.total()
        shares.append(matches / total if total else 0.0)
    said_len, wanted_len = (sum(len(pair[side]) for pair in pairs) for side in (0, 1))
    penalty = min(1.0, math.exp(1 - wanted_len / said_len)) if said_len else 0.0
    score = penalty * math.prod(shares) ** 0.25
    return {"precisions": [100 * share for share in shares], "brevity_penalty": penalty, "bleu": 100 * score}
    ### END SOLUTION

# %% check="bleu"
check(bleu, points=5)

# %% tags=["demo"]
with need("bleu"):
    said = measure.translate(run_a.model, corpus, corpus.tests["iid"][:300])
    wanted = [pair.target for pair in corpus.tests["iid"][:300]]
    for name, outputs in {"your model": said, "its words sorted": [" ".join(sorted(s.split())) for s in said],
                          "its first five words": [" ".join(s.split()[:5]) for s in said]}.items():
        found = bleu(outputs, wanted)
        print(f"{name:22} BLEU {found['bleu']:6.2f}   precisions {[round(p) for p in found['precisions']]}   "
              f"penalty {found['brevity_penalty']:.2f}   sacrebleu {measure.bleu(outputs, wanted):6.2f}")
    reveal("the-the", "1 of 3", "The reference has one “the”.")

# %% [markdown] reflect="bleu"
# Sorted words keep their 1-grams. Which number of the row tells you? And what may BLEU miss? Your sentence:

# %% [markdown]
# ---
# ## 7.11 Who looked where
# *more · about 15 min*
#
# Cross-attention has a row for each word the decoder writes: how much it looked at each source word. People show such pictures
# as explanations. In general that is a claim without proof. Here the grammar knows the truth, so the claim can be tested.

# %%
predict("alignment", "Of the words that carry meaning, how many rows have their largest weight on the right source word?",
        ["about a third", "about two thirds", "more than nine in ten"])

# %% [markdown]
# ### Exercise 7.11 · `alignment_from_attention` · more · about 12 min
# - **Build** the pairs (source word, target word) that cross-attention suggests: for each row, average the heads, look at words
#   only, take the largest.
# - **Special tokens aside.** `pad_mask` is `True` at words, `False` at padding and at special tokens such as bos or eos, which often
#   attract the largest weights of all. They are no words, so they are neither chosen nor counted: the first word is number 0,
#   wherever it stands.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>The order matters: heads first, then hide, then the largest.</details>
# <details><summary>Hint 2 · what</summary>If you drop the columns that are no words, the places that are left are numbered as
# words.</details>
# <details><summary>Hint 3 · how</summary><code>weights.mean(0)[:, pad_mask].argmax(-1)</code>; without any word there is nothing to
# choose from: return <code>[]</code>.</details>

# %% exercise="alignment_from_attention"
def alignment_from_attention(weights, pad_mask):
    """Which source word was each target word made from?

    weights (n_heads, tgt_len, src_len): cross-attention of one sentence; row j wrote target word j
    pad_mask (src_len,) bool, True = a word, False = padding or a special token
    Returns a list of pairs (source word, target word), ints, one for each row in order; [] if the source has no word.
    """
    ### BEGIN SOLUTION
    if not pad_mask.any():
        return []
    best = weights.mean(0)[:, pad_mask].argmax(-1)  # (tgt_len,), numbered among words
    return [(word, row) for row, word in enumerate(best.tolist())]
    ### END SOLUTION

# %% check="alignment_from_attention"
check(alignment_from_attention, points=3)

# %% tags=["demo"]
with need("alignment_from_attention"):
    pair = max(corpus.tests["iid"][:50], key=lambda pair: len(pair.alignment))
    weights = measure.cross_attention(run_a.model, corpus, pair)[-1]
    show(plots.alignment_map(weights.mean(0), pair),
         f"Cross-attention of the last layer, averaged over heads, for “{pair.source}”: one row per Spanish word, gold pairs "
         "framed.")
    rates = measure.alignment_rate(run_a.model, corpus, corpus.tests["iid"][:300], align=alignment_from_attention)
    print("gold pairs found, layer by layer:", [f"{rate:.0%}" for rate in rates])
    reveal("alignment", "more than nine in ten", "In the best layer of a translator that has learned its task.")

# %% [markdown] reflect="alignment_from_attention"
# A model can translate every sentence rightly and still look at "wrong" words in some layer. Why is that no contradiction? Your
# sentence:

# %% [markdown]
# ---
# ## 7.12 Hand in what it learned
# *core · about 6 min*
#
# The run wrote `weights.safetensors`: the numbers alone, in the course's names. Hand that file in beside this notebook. Whoever
# grades loads it into the course's model and asks for translations of **fresh** sentences, which no corpus has. What your notebook
# says about itself counts for nothing, and so does how the weights came about: only what they can do.

# %% [markdown]
# ### Exercise 7.12 · `trained_translator` · core · about 4 min
# - **Train** above until it is good, copy the file `weights.safetensors` that `fit` wrote in `run_a.out` into the folder of **this
#   notebook**, and return its path.
# - Hand in both: the notebook, and beside it `weights.safetensors` (at most 20 MB, the course's names; `fit` says so if your
#   module has others).
# - **Done when** the check below passes: 300 new sentences, of which 95 % must be right word for word. 90 % earn 9 of the 10
#   points, 80 % 7.5, 60 % 5, 30 % 2.5. Whoever grades draws other sentences.
#
# <details><summary>Hint 1 · where</summary>In <code>run_a.out</code>.</details>
# <details><summary>Hint 2 · what</summary>Too few are right? Train longer: run the cell of 7.9 with more steps, or with a larger
# tier.</details>
# <details><summary>Hint 3 · how</summary><code>shutil.copy(source, "weights.safetensors")</code> returns where the copy
# is.</details>

# %% exercise="trained_translator"
import shutil


def trained_translator():
    """Where the weights lie that you hand in, on track A.

    Returns a path: weights.safetensors, beside this notebook.
    """
    ### BEGIN SOLUTION
    return shutil.copy(run_a.out / "weights.safetensors", "weights.safetensors")
    ### END SOLUTION

# %% check="trained_translator"
check(trained_translator, points=10)

# %% [markdown]
# ---
# ## 7.13 Text that lies around
# *core · about 18 min*
#
# For track B you need megabytes of text, and downloads rot. But a machine that runs Python holds ten megabytes of good text:
# the standard library. It is read where it lies and never copied into the course.
#
# Some of it must be kept aside for the test. How to split? Cutting off the last files looks harmless:

# %%
files = [b"import os", b"import sys", b"def f(): ...", b"import os", b"class A: ..."]
train, val = files[:4], files[3:]
print("in both:", set(train) & set(val))

# %% [markdown]
# The same file may lie in two places: then the test holds training text. And add one file in front, and everything moves: yesterday's
# test text is in today's training. So let the **content** decide: hash it, and compare the number with the share you want. Equal
# documents go to one side, and a document's side never changes. (Python's own `hash()` of bytes changes with every start.)

# %% [markdown]
# ### Exercise 7.13 · `split_corpus` · core · about 12 min
# - **Build** the split by content. A fixed hash of the **whole** document gives a number that is as good as drawn, from 0 to 1.
#   Below `val_share` the document is for testing.
# - Return two lists of indices, both ascending; each index stands in exactly one. Equal documents share a side. Whatever else is
#   in the list, in any order, on any machine: a document's side stays.
# - `val_share` outside 0 to 1, nan included: `ValueError`. At 1 all are for testing.
# - **Done when** the check below passes. It adds documents, shuffles them, and starts Python anew.
#
# <details><summary>Hint 1 · where</summary>In <code>hashlib</code>. Python's own <code>hash()</code> gives other numbers in each
# process.</details>
# <details><summary>Hint 2 · what</summary>A threshold for each document alone. "The smallest tenth" would depend on the
# others.</details>
# <details><summary>Hint 3 · how</summary><code>int.from_bytes(hashlib.sha256(document).digest()[:8], "big") / 2**64</code>.</details>

# %% exercise="split_corpus"
import hashlib


def split_corpus(documents, val_share):
    """Which documents are for training, and which for testing.

    documents: list of bytes; val_share: about this share of them is for testing
    Returns train, val: lists of indices, ascending.
    Promises: a document's side depends on its bytes alone.
    Raises ValueError unless val_share lies between 0 and 1; nan does not.
    """
    ### BEGIN SOLUTION
    if not 0 <= val_share <= 1:
        raise ValueError("val_share must lie between 0 and 1")
    train, val = [], []
    for index, document in enumerate(documents):
        drawn = int(hashlib.sha256(document).hexdigest(), 16) / 2**256
        (val if drawn < val_share else train).append(index)
    return train, val
    ### END SOLUTION

# %% check="split_corpus"
check(split_corpus, points=3)

# %% tags=["demo"]
source = python_source.find(config["b"].scope, split=finished(split_corpus))
print(source)
print(f"train {len(source.train)} files, val {len(source.val)} files, split by {source.split_by}")

# %% [markdown]
# The fingerprint says which text it was. Another Python has other files, so a loss without it cannot be compared.
#
# Now cut it into tokens, with your own BPE. Words are cut first and each *kind* of word is encoded once; if your functions need
# longer than 20 s, the course's go on and that is said. The tokens are the same.

# %% tags=["demo"]
stream = token_stream.tokenise(source, config["b"].vocab_size, mine("bpe_train"), mine("bpe_encode"), cache=RUNS / "tokens")
print(f"{len(stream.train):,} tokens to train on, {len(stream.val):,} to test on; "
      f"{stream.val_bytes / len(stream.val):.2f} bytes a token; "
      f"cut by {stream.made_by['bpe_encode']} bpe_encode {stream.note}")
sample = stream.val[1000:1024].tolist()
print(" · ".join(repr(stream.tokenizer.decode([token]))[1:-1] for token in sample))

# %% [markdown]
# ---
# ## 7.14 Bits per byte
# *core · about 10 min*
#
# A loss of 4.2 nats **per token**: good? It depends on how long tokens are. With longer tokens there are fewer of them, and each
# is harder. A number that anybody can compare: how many **bits** does the model need **per byte** of text?

# %%
predict("bits", "Two models read the same file. A: 2.0 nats a token, 2 bytes a token. B: 3.0 nats, 4 bytes. Better per byte?",
        ["A", "B", "equal"])

# %% [markdown]
# ### Exercise 7.14 · `bits_per_byte` · core · about 8 min
# - **Build** the bits that a model needs for each byte of a text. `loss_sum` is the sum of the losses of all its tokens, in nats; a
#   nat is 1/ln 2 bits.
# - **Raise** `ValueError` for a text without bytes.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Two divisions, none of them by the number of tokens.</details>
# <details><summary>Hint 2 · what</summary>2^bits = e^nats, so bits = nats / ln 2: there are more bits than nats.</details>
# <details><summary>Hint 3 · how</summary><code>loss_sum / math.log(2) / n_bytes</code></details>

# %% exercise="bits_per_byte"
def bits_per_byte(loss_sum, n_bytes):
    """How many bits a model needs per byte of a text, however that was cut into tokens.

    loss_sum: sum over all tokens of −ln p, a number or a tensor without axes; n_bytes: bytes of the text, an int
    Returns a number. Raises ValueError if n_bytes is below 1.
    """
    ### BEGIN SOLUTION
    if n_bytes < 1:
        raise ValueError(f"n_bytes must be at least 1, got {n_bytes}")
    return float(loss_sum) / math.log(2) / n_bytes
    ### END SOLUTION

# %% check="bits_per_byte"
check(bits_per_byte, points=2)

# %% tags=["demo"]
with need("bits_per_byte"):
    for name, nats, size in (("A", 2.0, 2), ("B", 3.0, 4)):
        print(f"{name}: {bits_per_byte(nats * 1000, size * 1000):.2f} bits per byte, perplexity {math.exp(nats):.1f}")
    reveal("bits", "B", "B has the larger perplexity and is better all the same.")
    print(f"a model that knows nothing: {bits_per_byte(1000 * math.log(256), 1000):.0f}")

# %% [markdown]
# Bits per byte have old rivals: compressors. A good predictor is a good compressor, and the other way round. What do they need on
# the held-out text? The last one has read the training text first, as your model will.

# %% tags=["demo"]
rivals = measure.compressors(source)
for name, bits in rivals.items():
    print(f"{name:30} {bits:.3f} bits per byte")

# %% [markdown]
# ---
# ## 7.15 Train a language model
# *core · about 8 min*

# %%
predict("beats-bz2", "Two layers of width 64, one pass over 0.4 million tokens. Does it beat bz2?", ["yes", "no"])

# %% tags=["demo"]
run_b = fit(config["b"], Language(stream, config["b"]), out=RUNS / f"python_{config['b'].tier}")

# %% tags=["demo"]
bits = run_b.report["bits_per_byte"]
show(plots.bits_ladder({**rivals, "your model": bits}),
     "Bits per byte as a ladder, least on top: the compressors, and your model, marked.")
reveal("beats-bz2", "no", "bz2 has been tuned for decades, and it adapts to the text while it reads. (A larger tier may.)")

# %% [markdown]
# A model for a minute on two cores loses to bz2, and it should be said. It falls with size and with text: that is what the larger
# tiers are for. On a machine with a GPU the same cells run with 10 or 50 million weights.

# %% [markdown] reflect="bits_per_byte"
# If you gave the model's file size to the compressors' side of the balance, too, who would win on half a megabyte of text? Your
# sentence:

# %% [markdown]
# ---
# ## 7.16 How fast is fast?
# *more · about 14 min*
#
# "12,000 tokens a second" says nothing without the machine. So measure the machine: the fastest large matrix product it can do
# (its **peak**), and how fast it copies memory (its **bandwidth**). Numbers are random, since products of zeros are faster and
# would flatter it.

# %% tags=["demo"]
device = measure.device_of(config["b"].device)
peak, bandwidth = measure.peak_matmul(torch.float32, device), measure.bandwidth(device)
print(f"peak {peak / 1e9:,.0f} GFLOP/s, bandwidth {bandwidth / 1e9:,.1f} GB/s")

# %% [markdown]
# Model FLOPs utilisation (MFU) is the share of that peak that went into your model: tokens per second · operations per token /
# peak. Public trainers have printed 104 %. Nothing is faster than its own ceiling: then the ceiling is wrong, and a number above 1
# must not be printed at all.

# %% [markdown]
# ### Exercise 7.16 · `mfu` · more · about 8 min
# - **Build** the share of the peak that went into the model, between 0 and 1.
# - **Raise** `ValueError` where there is no such share: for a peak that is not positive and finite (a device nobody has measured),
#   and for a result above 1. Do not cut it off at 1: that would hide the wrong ceiling.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>tokens/s · operations/token = operations/s.</details>
# <details><summary>Hint 2 · what</summary>Look at the peak before you divide, and at the share after.</details>
# <details><summary>Hint 3 · how</summary><code>if not 0 < peak < math.inf: raise ValueError(…)</code> also catches nan; exactly 1 is
# allowed.</details>

# %% exercise="mfu"
def mfu(tokens_per_second, flops, peak):
    """Model FLOPs utilisation: the share of a device's peak that was spent on the model.

    flops: operations per token, training included; peak: operations per second, measured on this device
    Returns a number from 0 to 1. Raises ValueError for an unusable peak, and for a share above 1.
    """
    ### BEGIN SOLUTION
    if not 0 < peak < math.inf:
        raise ValueError(f"peak must be positive and finite, got {peak}")
    share = tokens_per_second * flops / peak
    if share > 1:
        raise ValueError(f"{share:.0%} of the peak: the peak was measured wrong")
    return share
    ### END SOLUTION

# %% check="mfu"
check(mfu, points=2)

# %% tags=["demo"]
with need("mfu", "flops_per_token"):
    speed, cost = run_b.report["tokens_per_second"], flops_per_token(run_b.model.config, config["b"].seq_len)
    for convention, flops in cost.items():
        print(f"{convention:7} {flops / 1e6:6.2f} million operations a token: MFU {mfu(speed, flops, peak):.1%}")

# %% [markdown]
# Where does the rest go? Small matrices, norms, the optimizer, Python. And attention written by hand makes a table of scores
# that a fused kernel never writes. When does that begin to matter?

# %% tags=["demo"]
points = measure.crossover(device)
show(plots.crossover(points),
     "Time of attention written by hand over time of torch's fused kernel, against length, with a line at 1: above it the "
     "kernel is faster.")

# %% [markdown] reflect="mfu"
# Is there a length up to which you would keep your own attention? What speaks for it besides the time? Your sentence:

# %% [markdown]
# ---
# ## 7.17 Let it write
# *more · about 8 min*
#
# Your `generate` of phase 5 with your `KVCache`, on the model you trained:

# %% tags=["demo"]
start = "def read(self, path):\n"
prompt = torch.tensor([stream.tokenizer.encode(start)])
generate, room = mine("generate"), config["b"].seq_len - prompt.shape[1]
made = generate(run_b.model.cpu(), prompt, min(80, room), temperature=0.7, top_k=40,
                generator=torch.Generator().manual_seed(0))
print(stream.tokenizer.decode(made[0].tolist()))

# %% tags=["demo"]
for line in measure.generation(run_b.model, prompt):
    print(line)

# %% [markdown]
# A small model is bound by the overhead of each call, not by memory. So INT8 weights and speculation, which save memory traffic,
# gain little here, and may lose. What they promise is tested on a large model: `python -m benchmarks.decoding`.

# %% [markdown]
# ---
# ## 7.18 Two machines, one model
# *more · about 20 min*
#
# With two GPUs each gets half of the batch, a copy of the weights, and computes its own gradients. Then the gradients are
# **averaged** over both, and both take the same step: the copies stay equal for ever. That is data parallelism (DDP).
#
# | when | what is sent | how much |
# |---|---|---|
# | start | weights, once | 4 bytes a weight |
# | each backward pass | gradients, while the earlier layers still compute | 4 bytes a weight, there and back |
# | each step, FSDP | shards of the weights, before each layer needs them, forward and backward | three times as much, but no machine holds all |

# %%
predict("ranks", "Rank 0: 90 words, mean gradient 1. Rank 1: 10 words, mean gradient 3. The gradient of all 100 words is…",
        ["1.2", "2.0", "4.0"])

# %% [markdown]
# ### Exercise 7.18 · `average_gradients` · more · about 12 min
# - **Build** what all ranks agree on: for each parameter the gradient of the mean loss over **all** tokens. `gradients[r]` is rank
#   r's list, each the gradient of the mean over its own `counts[r]` tokens.
# - A rank without tokens has no mean (its numbers may be nan): leave it out. `None` means that a rank did not use the
#   parameter, which adds nothing; where all have `None`, the answer is `None`.
# - Keep the dtype, weigh **before** you add (half precision ends at 65504), and leave the ranks' own tensors alone.
# - No token at all, or lists that do not fit: `ValueError`.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>A mean of means is right only if all counts are equal.</details>
# <details><summary>Hint 2 · what</summary>Rank r weighs <code>counts[r] / sum(counts)</code>, whether or not it used the
# parameter.</details>
# <details><summary>Hint 3 · how</summary><code>zip(*gradients)</code> gives, for each parameter, one gradient of each
# rank.</details>

# %% exercise="average_gradients"
def average_gradients(gradients, counts):
    """The gradient of the mean over all tokens, from each rank's gradient of its own mean.

    gradients: a list for each rank, of one tensor or None for each parameter; counts: tokens of each rank
    Returns a list: one tensor, of the same dtype, or None for each parameter.
    Raises ValueError if there is no token, or the lists do not fit.
    """
    ### BEGIN SOLUTION
    total = sum(counts)
    if total == 0 or len(counts) != len(gradients) or len({len(row) for row in gradients}) != 1:
        raise ValueError("one count and as many gradients for each rank, and at least one token")
    means = []
    for parts in zip(*gradients, strict=True):
        mean = None
        for part, count in zip(parts, counts, strict=True):
            if part is not None and count > 0:
                share = part * (count / total)
                mean = share if mean is None else mean + share
        means.append(mean)
    return means
    ### END SOLUTION

# %% check="average_gradients"
check(average_gradients, points=3)

# %% tags=["demo"]
with need("average_gradients"):
    both = average_gradients([[torch.tensor(1.0)], [torch.tensor(3.0)]], [90, 10])
    print(f"averaged: {both[0]:.1f}")
    reveal("ranks", "1.2", "Averaging ranks alike would let ten words outvote ninety.")

# %% [markdown]
# The same script, on as many GPUs as there are, from a terminal:
#
# ```
# torchrun --nproc-per-node 2 -m utils.train --track b --out runs/two
# torchrun --nproc-per-node 2 -m utils.train --track b --fsdp --out runs/shards
# ```
#
# Two processes on one CPU run it, too, and end with the same weights, bit for bit, as one process that takes the batch in two
# parts. Clip after averaging: each rank's own norm is another number.

# %% [markdown] reflect="average_gradients"
# A rank has nothing but padding in its half of the batch. What does it send, and what would a plain mean of ranks do? Your
# sentence:

# %% [markdown]
# ---
# ## 7.19 Is it worth a larger one?
# *more · about 8 min*
#
# Before you rent a large machine, train a few small models for the same number of tokens, and see whether size helps at all, and
# how surely you know.

# %% tags=["demo"]
sweep = measure.sweep(stream)
show(plots.sweep(sweep), "Bits per byte against parameters for four small models, with the fitted line and its interval.")
print(sweep.verdict)

# %% [markdown]
# Four points on a line are a demonstration, not a law. Leave one out and predict it: if that misses, the line is a guess. And
# each model here has seen far too few tokens for its size.

# %% [markdown]
# ---
# ## 7.20 Your report card
# *core · about 4 min*
#
# One page to keep: what was trained, on whose parts, on which machine, and how good it was. It needs nothing but a browser.

# %% tags=["demo"]
page = measure.report_card([run_a, run_b], RUNS / "report_card.html", corpus=corpus, rivals=rivals)
print(f"written to {page}")

# %% [markdown]
# ---
# ## 7.21 Say it aloud
# *core · about 20 min*
#
# The oral exam. Ten questions, filled with the numbers of **your** runs; answer each aloud, in two or three sentences, before you
# write the two that are graded.

# %% tags=["demo"]
for number, question in enumerate(measure.oral_exam(run_a, run_b, rivals=rivals, peak=peak), 1):
    print(f"{number:2}. {question}")

# %% [markdown]
# **Question 1. Your loss curve is strange. How do you find out what is wrong with a training run?**
#
# | points | for |
# |---|---|
# | 1 | the cheap tests before the run: first loss near ln V, one batch by heart |
# | 1 | a loss that is too good: leaks, and how to test for them |
# | 1 | what to look at in the run: gradient norm, learning rate, skipped steps, data |
# | 1 | exact restarts and fixed tests, so that one thing changes at a time |

# %% [markdown] written="strange-curve" points=4
# ### BEGIN SOLUTION
# I begin with what costs nothing. An untrained model should lose ln of the vocabulary; if it starts far above, the weights are
# too large. Then one batch by heart: if the loss does not go to almost zero in some dozens of steps, the loop is broken, a missing
# zero_grad, a wrong loss, a part without gradients. If on the other hand fresh text gets a loss that is too good, I change a
# token and see whether earlier logits move; they must not. During the run I watch the norm of the gradients before clipping, the
# learning rate, how many steps were skipped for NaN, and I read a few batches as text. Spikes that come back at the same step are
# the data's. To be sure of a cause I change one thing at a time, from a checkpoint that resumes bit for bit, and compare on a test
# with fixed windows in eval mode.
# ### END SOLUTION

# %% [markdown]
# **Question 2. You have 8 GPUs for a day. How large a model do you train on how much text, and how do you know that it ran well?**
#
# | points | for |
# |---|---|
# | 1 | the budget in operations: peak · a realistic utilisation · seconds; 6 per weight and token |
# | 1 | splitting it between size and text, and whether there is that much text |
# | 1 | memory and how the model is spread; what is sent when |
# | 1 | how it is judged: bits per byte against a baseline on the same text, utilisation by a measured peak, samples last |

# %% [markdown] written="eight-gpus" points=4
# ### BEGIN SOLUTION
# Eight cards at a measured peak of, say, 700 TFLOP/s each, used to 40 per cent, for 86,000 seconds, give about 2 · 10²⁰ operations.
# At 6 per weight and token, N · D is 3 · 10¹⁹; with some twenty tokens per weight that is about 1.3 billion weights and 26 billion
# tokens. First I would ask whether there are 26 billion good tokens; with fewer, a smaller model or a few epochs. Weights, gradients
# and AdamW need 16 bytes a weight, 21 GB: it fits on each card, so plain data parallelism will do, gradients averaged by the number
# of tokens while backward still runs. If it did not fit I would shard. A sweep of small models shows beforehand whether the
# settings scale. While it runs I watch utilisation against the peak I measured, with the convention named. At the end: bits per byte
# on held-out text that was split by content, beside a compressor and a known model of the same size on the same text, then tasks,
# and only then samples, which flatter.
# ### END SOLUTION

# %% [markdown]
# ### The course on one screen

# %%
show(plots.capstone_recap(),
     "A path through the phases: tokens, attention, heads, blocks, training, families and systems, and at its end a model "
     "trained, measured and handed in.")

# %% [markdown]
# **What you can now say in an interview:**
#
# - 6 operations per weight and token; attention's share depends on length, and on the convention.
# - Weights, gradients and AdamW cost 16 bytes a weight; activations grow with the batch.
# - One batch by heart finds dead loops; a changed future finds leaks.
# - A test loss is a sum over fixed windows in eval mode, divided once.
# - A checkpoint is all that the next step depends on.

# %% [markdown]
# **And of results:**
#
# - BLEU clips, sums before dividing, and punishes only the short.
# - Split by content. Name the text by its fingerprint.
# - Bits per byte compare models of any tokenizer, and with compressors.
# - Above 100 % of the peak, the peak is wrong.
# - Ranks are averaged by their tokens.
#
# You have built a Transformer from nothing and trained it. Nobody can take that away. Next: the drills, and somebody to
# explain it to.
