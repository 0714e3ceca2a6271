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
# # Phase 5 · Training and inference
#
# One network, two lives. In training it is told the truth at every place and learns from all places at once. In use it
# must live on its own words, one after the other. You build both: the loss, the optimiser, a whole training step; then
# decoding, from greedy to beams.
#
# | section | you build | minutes | path |
# |---|---|---|---|
# | [5.1 One network, two data flows](#5.1-One-network,-two-data-flows) | – | 6 | core |
# | [5.2 Shift by one](#5.2-Shift-by-one) | `shift_targets` | 14 | core |
# | [5.3 The price of a guess](#5.3-The-price-of-a-guess) | `cross_entropy` `perplexity` | 28 | core |
# | [5.4 A step for each weight](#5.4-A-step-for-each-weight) | `AdamW` | 30 | more |
# | [5.5 How large a step](#5.5-How-large-a-step) | `learning_rate` | 12 | more |
# | [5.6 One training step](#5.6-One-training-step) | `clip_grad_norm_` `train_step` | 30 | more |
# | [5.7 On its own words](#5.7-On-its-own-words) | `exposure_gap` | 15 | more |
# | [5.8 One word at a time](#5.8-One-word-at-a-time) | `greedy_decode` | 22 | core |
# | [5.9 Chance with a dial](#5.9-Chance-with-a-dial) | `filter_logits` | 28 | core |
# | [5.10 Draw a word](#5.10-Draw-a-word) | `sample` | 13 | core |
# | [5.11 Several futures at once](#5.11-Several-futures-at-once) | `beam_search` | 30 | more |
# | [5.12 The same keys, again](#5.12-The-same-keys,-again) | `KVCache` | 23 | core |
# | [5.13 Only what is new](#5.13-Only-what-is-new) | `forward_cached` | 30 | core |
# | [5.14 Write with it](#5.14-Write-with-it) | `generate` | 24 | more |
# | [5.15 What a cache costs](#5.15-What-a-cache-costs) | `kv_cache_bytes` `decode_flops` | 30 | more |
# | [5.16 Is larger better?](#5.16-Is-larger-better?) | `fit_power_law` | 30 | more |
# | [5.17 Spend a budget](#5.17-Spend-a-budget) | `compute_optimal` | 20 | more |
# | [5.18 Say it aloud](#5.18-Say-it-aloud) | four answers, recap | 15 | core |
#
# The core path is at most three hours; minutes are estimates until learners have been timed. You can stop after any
# section. To come back, run the setup cell and the cells you have solved.

# %% [markdown]
# A model here is anything with `model(tokens) -> logits`: from (batch, seq_len) to (batch, seq_len, vocab_size). The
# course lends a small one; in phase 6 you build a real one from your own blocks. As always: **rows are tokens**, and **a
# mask is `True` where looking is allowed**. To **refuse** is to raise a `ValueError` that says what is wrong.
#
# *The notes* are the lecture notes behind this course. Every number in them was computed again; their slips are called
# errata and have names: `notes.erratum("D20")` tells one. Where a cell ends in "Your sentence:", double-click it and write
# below; nobody grades it.

# %% tags=["setup"]
import argparse
import inspect
import math
import textwrap
import time
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import nn

from utils import check, notes, plots, widgets
from utils.config import ModelConfig
from utils.lesson import need, predict, reveal, show
from utils.mycode import mine
from utils.observe.fixtures_model import SmallModel

torch.set_printoptions(precision=3, sci_mode=False)
torch.set_num_threads(1)  # models this small lose more time by sharing work than by doing it

causal_mask, sdpa = map(mine, ("causal_mask", "sdpa"))
split_heads, merge_heads = map(mine, ("split_heads", "merge_heads"))

# %% [markdown]
# ---
# ## 5.1 One network, two data flows
# *core · about 6 min*
#
# To learn from `<START> J' aime l'apprentissage <END>`, a decoder makes four guesses. To say it, too. What differs is what it
# has read before each guess.
#
# - **Training**: the truth up to that place. All four guesses come from *one* pass, because nothing waits for anything.
# - **Use**: its own words up to that place. Guess two cannot begin before guess one is made: four passes.

# %%
predict("passes", "A target of 1,000 tokens. Training and generating it take how many passes through the decoder?",
        ["1 and 1", "1 and 1,000", "1,000 and 1,000"])

# %%
ex = notes.example("002-inference-steps")
for read, guess in zip(ex.correct["inputs"], ex.correct["targets"], strict=True):
    print(f"{' '.join(read):40} → {guess}")
reveal("passes", "1 and 1,000", "The rows above are four passes in use; in training the last row's pass holds them all.")

# %% [markdown]
# In training the causal mask makes the last row contain the others: place 2 cannot see what place 4 reads. In use the mask
# stays: without it the prompt's places would compute something else. Training is paid once and wants throughput; use is paid per
# answer and wants a short wait.
#
# "All but the data flow is identical", say the notes (D52). One thing is not: dropout. Forget `model.eval()` and the same prompt
# gets two answers:

# %%
torch.manual_seed(0)
config = ModelConfig(vocab_size=9, d_model=16, n_heads=2, n_layers=2, d_ff=32, max_len=12, dropout=0.3)
lent = SmallModel(config)
prompt = torch.tensor([[1, 5, 2, 7]])
for mode in (True, False):
    first, second = (lent.train(mode)(prompt) for _ in range(2))
    print(f"{'training' if mode else 'eval':9}mode: two runs differ by {(first - second).abs().max():.3f}")

# %% [markdown]
# ---
# ## 5.2 Shift by one
# *core · about 14 min*
#
# A model that reads a word and is asked for the same word learns to copy. Perfect loss, no use. So inputs and targets are
# the same sentence, one place apart: the input begins with `bos` (the beginning), the target ends with `eos` (the end).

# %%
predict("copying", "A model is trained with targets = inputs, not shifted. Its loss falls to about…",
        ["0", "ln(vocab_size)", "the loss of a shifted one"])

# %%
torch.manual_seed(0)
copier, words = nn.Embedding(9, 9), torch.randint(9, (40, 12))
optimiser = torch.optim.SGD(copier.parameters(), lr=30.0)
for _ in range(40):
    optimiser.zero_grad()
    loss = F.cross_entropy(copier(words).flatten(0, 1), words.flatten())
    loss.backward()
    optimiser.step()
print(f"loss of random words, predicted by a copier without any attention: {loss:.4f}")
reveal("copying", "0", "The words were random: nothing could be learned about what comes next.")

# %% [markdown]
# A model stops only if it has learned to say `eos`. And padding must cost nothing: its targets are −100, a mark that the loss
# skips.
#
# ### Exercise 5.2 · `shift_targets` · core · about 12 min
# - **Build** inputs and targets from padded sentences: `inputs` = bos, then the row; `targets` = the row, then eos
#   right after its last word, then −100.
# - **Done when** the check below passes. It tries empty rows, full rows, and `pad_id == eos_id`.
#
# <details><summary>Hint 1 · where</summary>Both results are one column wider than <code>tokens</code>.</details>
# <details><summary>Hint 2 · what</summary>The number of real words of a row is also the place of its eos in the
# targets.</details>
# <details><summary>Hint 3 · how</summary><code>lengths = (tokens != pad_id).sum(1, keepdim=True)</code>; compare
# <code>torch.arange(n + 1)</code> with it: equal is eos, beyond is −100.</details>

# %% exercise="shift_targets"
def shift_targets(tokens, bos_id, eos_id, pad_id):
    """Make what a decoder reads and what it should say.

    tokens (batch, n) int64, right-padded with pad_id, without bos and eos
    Returns inputs and targets, both (batch, n + 1) int64; targets are -100 after eos.
    """
    ### BEGIN SOLUTION
    batch, n = tokens.shape
    edge = tokens.new_full((batch, 1), bos_id)
    lengths = (tokens != pad_id).sum(1, keepdim=True)  # (B, 1)
    places = torch.arange(n + 1)
    targets = torch.cat([tokens, edge], 1)  # (B, n + 1); the last column is overwritten
    targets = targets.masked_fill(places > lengths, -100).masked_fill(places == lengths, eos_id)
    return torch.cat([edge, tokens], 1), targets
    ### END SOLUTION

# %% check="shift_targets"
check(shift_targets, points=3)

# %% [markdown]
# **Look.** A sentence of the notes, and a shorter one. Read down: what is read, what is to be said.

# %% tags=["demo"]
with need("shift_targets"):
    words = ["<PAD>", "<START>", "<END>", "J'", "aime", "l'apprentissage"]
    inputs, targets = shift_targets(torch.tensor([[3, 4, 5], [3, 4, 0]]), 1, 2, 0)
    names = [[words[i] for i in inputs[0]], [words[i] for i in targets[0]]]
    print("inputs: ", notes.example("002-train-shift").compare(names[0], "decoder_input"))
    print("targets:", notes.example("002-train-shift").compare(names[1], "labels"))
    for name in ("000-decoder-iterations", "004-decode-step"):  # two more sentences of the notes: the last id is the end
        said = notes.example(name).inputs["target"]
        ends = len(said) - (">" in said[-1])
        _, steps = shift_targets(torch.arange(1, ends)[None], 0, len(said) - 1, -1)
        print(notes.example(name).compare([said[i] for i in steps[0, :len(said) - 1].tolist()], "targets"))
    show(plots.shift_table(inputs, targets, words),
         "Two sentences as rows of boxes: inputs above, targets below, one place to the left. The short sentence "
         "ends with END; the target under its padding is crossed out.")

# %% [markdown]
# The notes feed the truth "alongside the previous prediction". Look for a prediction in your two tensors: there is none. The
# truth stands *in its place*.

# %% [markdown]
# ---
# ## 5.3 The price of a guess
# *core · about 28 min*
#
# The model names a share for every word. The price of a place is **−log p** of the word that came: 0 for a sure right guess,
# large for a sure wrong one. The loss is the mean price. Before any training, all of V words look alike:

# %%
predict("first-loss", "A fresh model with 1,000 words, loss before the first step. About…",
        ["0.7", "6.9", "1,000"])

# %%
torch.manual_seed(0)
logits, targets = 0.02 * torch.randn(50, 1000), torch.randint(1000, (50,))
print(f"loss {F.cross_entropy(logits, targets):.3f}, ln(1000) = {math.log(1000):.3f}")
reveal("first-loss", "6.9", "−log(1/V) = ln V. A first loss far from it is a bug, and finding it costs one line.")

# %% [markdown]
# The formula says `log(softmax(logits))`. Typed like that it fails when a model is sure of itself:

# %%
sure = torch.tensor([200.0, 0.0])
print("log(softmax)", sure.softmax(-1).log())
print("log_softmax ", sure.log_softmax(-1))

# %% [markdown]
# `softmax` rounds the second share to 0 and the log makes −∞ of it. Log-softmax never leaves the logs: `x − logsumexp(x)`.
#
# A real loss also **skips** places (padding) and divides by the places it kept. And it may **smooth**: the target gets 1 − ε,
# and ε is spread over all V words, the target included, so that ever larger logits do not pay.

# %% [markdown]
# ### Exercise 5.3a · `cross_entropy` · core · about 20 min
# - **Build** the mean over kept targets of `−Σ q · log p`, with `q = (1 − ε) · one-hot + ε/V`.
# - Nothing kept: a 0 that still hangs on the logits, so that `backward()` works and gives zeros. Refuse shapes that do not
#   fit, and kept targets outside 0…V−1.
# - **Not allowed** torch's losses. `log_softmax` and `logsumexp` are allowed.
# - **Done when** the check below passes. It looks at gradients, too.
#
# <details><summary>Hint 1 · where</summary>First throw away what is not kept: <code>logits[kept]</code> is (n, V) for any
# leading axes.</details>
# <details><summary>Hint 2 · what</summary><code>gather</code> picks one entry per row. The smoothed part is the mean of
# all log-probabilities of a row.</details>
# <details><summary>Hint 3 · how</summary><code>right = logs.gather(-1, targets[:, None])[:, 0]</code>; then
# <code>-(1 - ε) * right - ε * logs.mean(-1)</code>; then the mean.</details>

# %% exercise="cross_entropy"
def cross_entropy(logits, targets, ignore_index, label_smoothing=0.0):
    """Mean price of the kept targets, in nats.

    logits (…, V), finite; targets (…) int64; places whose target is ignore_index are skipped
    Returns a scalar tensor; if nothing is kept, 0 with gradients of zero.
    Raises ValueError if shapes do not fit or a kept target is outside the vocabulary.
    Paper: Szegedy et al. 2016, §7 (smoothing).
    """
    ### BEGIN SOLUTION
    if logits.shape[:-1] != targets.shape:
        raise ValueError(f"shape {tuple(targets.shape)} of targets does not fit {tuple(logits.shape)}")
    kept = targets != ignore_index
    logits, targets = logits[kept], targets[kept]  # (n, V), (n,)
    if len(targets) == 0:
        return logits.sum()  # of nothing: 0, and it still hangs on the logits
    if targets.min() < 0 or targets.max() >= logits.shape[-1]:
        raise ValueError("a target is outside the vocabulary")
    log_probs = logits - logits.logsumexp(-1, keepdim=True)  # (n, V)
    right = log_probs.gather(-1, targets[:, None])[:, 0]  # (n,)
    losses = -(1 - label_smoothing) * right - label_smoothing * log_probs.mean(-1)
    return losses.mean()
    ### END SOLUTION

# %% check="cross_entropy"
check(cross_entropy, points=5)

# %% tags=["demo"]
with need("cross_entropy"):
    target, gaps = torch.tensor([0]), torch.linspace(-4, 14, 91).double()
    curves = {f"ε = {eps}": [cross_entropy(torch.tensor([[gap, 0, 0, 0]]).double(), target, -100, eps).item()
                             for gap in gaps] for eps in (0.0, 0.1)}
    show(plots.loss_curves(gaps, curves),
         "Loss against the lead of the right logit over three others. Without smoothing it falls towards 0 for ever; "
         "with smoothing 0.1 it has a lowest point near a lead of 3.6 and rises after it.")

# %% [markdown] reflect="cross_entropy"
# At the lowest point of the smoothed curve, which share does the model give the target? (ε = 0.1, V = 4.) Your sentence:

# %% [markdown]
# A loss of 2.3 nats is hard to feel. **Perplexity** is its exponential: a model of perplexity 10 is as unsure as if it chose
# among 10 equal words. Evaluated batch by batch, losses come with different token counts.

# %%
predict("two-batches", "Batch A: loss 1 over 90 tokens. Batch B: loss 3 over 10 tokens. The loss of all 100 tokens is…",
        ["1.2", "2.0"])

# %% [markdown]
# ### Exercise 5.3b · `perplexity` · core · about 5 min
# - **Build** exp of the token-weighted mean loss. Refuse lists of different lengths and a sum of 0.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>loss × count is the sum of a batch's prices.</details>
# <details><summary>Hint 2 · what</summary>Add up all prices, divide by all tokens, then exp: once, at the
# end.</details>
# <details><summary>Hint 3 · how</summary><code>sum(l * c for l, c in zip(losses, counts, strict=True)) /
# sum(counts)</code></details>

# %% exercise="perplexity"
def perplexity(losses, counts):
    """How many equal choices the model is as unsure as.

    losses: mean loss of each batch, in nats; counts: kept tokens of each
    Returns a float. Raises ValueError for other lengths or no tokens at all.
    """
    ### BEGIN SOLUTION
    if len(losses) != len(counts) or sum(counts) == 0:
        raise ValueError("counts: one for each loss, and not all 0")
    total = sum(loss * count for loss, count in zip(losses, counts, strict=True))
    return math.exp(total / sum(counts))
    ### END SOLUTION

# %% check="perplexity"
check(perplexity, points=2)

# %% tags=["demo"]
with need("perplexity"):
    print(f"both batches: {perplexity([1.0, 3.0], [90, 10]):.2f}, loss {math.log(perplexity([1.0, 3.0], [90, 10])):.2f}")
    print(f"mean of means: {math.exp(2.0):.2f}")
    reveal("two-batches", "1.2", "Mean of means would let ten tokens outvote ninety.")
    steps = [0.40, 0.70]  # P(deep | I love), P(learning | I love deep)
    joint = math.prod(steps)
    losses = [-math.log(p) for p in steps]
    print(f"joint probability {joint:.2f}; perplexity {perplexity(losses, [1, 1]):.3f} = joint^(-1/2)")
    table = torch.rand(2, 3, 4).double()  # three words: any table of shares is a product of next-word tables
    table /= table.sum()
    first, two = table.sum((1, 2), keepdim=True), table.sum(2, keepdim=True)
    product = first * (two / first) * (table / two)
    print("chain rule:", notes.example("002-chain-rule").compare(torch.allclose(product, table), "holds"))

# %% [markdown] reflect="perplexity"
# By the chain rule probabilities multiply, and prices add. Two models have different tokenizers. May their
# perplexities be compared? Your sentence:

# %% [markdown]
# ---
# ## 5.4 A step for each weight
# *more · about 30 min*
#
# Plain gradient descent takes one learning rate for all. But a rare word's embedding sees a gradient once in a while, a norm's
# γ always. Adam divides each step by the usual size of *that* weight's gradient. (The notes name no optimiser.)

# %%
predict("adam-size", "Every gradient of a model is multiplied by 100. Adam's first step becomes…",
        ["100 times larger", "10 times larger", "the same"])

# %%
for scale in (1.0, 100.0):
    weight = nn.Parameter(torch.tensor([1.0, 1.0]))
    weight.grad = scale * torch.tensor([0.3, -0.001])
    torch.optim.AdamW([weight], lr=0.1, weight_decay=0.0).step()
    print(f"gradients times {scale:5g}: the first step is", weight.detach() - 1)
reveal("adam-size", "the same", "Both weights move by lr, against the sign of their gradient, however small it is.")

# %% [markdown]
# Two running means per weight, of the gradient and of its square, both starting at 0:
#
# > m ← β₁ m + (1 − β₁) g
# >
# > v ← β₂ v + (1 − β₂) g²
# >
# > **p ← p − lr · m̂ / (√v̂ + eps)**, with m̂ = m / (1 − β₁ᵗ), v̂ = v / (1 − β₂ᵗ)
#
# The divisions undo the start at 0: after one step m is only (1 − β₁) g. Here is what happens without them:

# %%
g, b1, b2 = 0.3, 0.9, 0.999
m, v = (1 - b1) * g, (1 - b2) * g**2
print(f"uncorrected step {m / v**0.5:.2f} · lr, corrected {(m / (1 - b1)) / (v / (1 - b2)) ** 0.5:.2f} · lr")

# %% [markdown]
# The **W** is weight decay: each step also pulls p towards 0, by `lr · wd · p`. Adding `wd · p` to the *gradient* is not the
# same: Adam divides it by √v̂, and weights with large gradients would hardly decay.
#
# ### Exercise 5.4 · `AdamW` · more · about 26 min
# - **Build** `step`, `zero_grad`, `state_dict`, `load_state_dict`. First `p ← p − lr·wd·p`, then the Adam step.
# - A parameter without gradient is skipped: no decay, no count. Each has its own `t`. `params` may be a generator.
# - `state_dict` may hand out your tensors themselves, as torch's does: who saves in the middle of a run, copies.
# - **Not allowed** torch's ready-made optimisers. **Done when** 14 and 50 steps agree with them to seven digits.
#
# <details><summary>Hint 1 · where</summary>A list of parameters, and beside it a list of states: t, m, v.</details>
# <details><summary>Hint 2 · what</summary><code>step</code> runs under <code>torch.no_grad()</code> and changes p in
# place: <code>p.mul_</code>, <code>p.sub_</code>. eps is added after the root.</details>
# <details><summary>Hint 3 · how</summary>Key the state by the parameter's place in the list, so that another object with
# other tensors can load it.</details>

# %% exercise="AdamW"
class AdamW:
    """Adam with decoupled weight decay.

    params: an iterable of parameters, a generator too. The attribute lr may be changed between steps.
    step(): one update; parameters without gradient are left alone. Gradients stay as they are.
    zero_grad(): forget all gradients. state_dict() gives what load_state_dict(state) of a new object needs.
    Paper: Kingma and Ba 2015, alg. 1; Loshchilov and Hutter 2019, alg. 2.
    """
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        ### BEGIN SOLUTION
        self.params = list(params)
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        self.states = [None for _ in self.params]
        ### END SOLUTION
    @torch.no_grad()
    def step(self):
        ### BEGIN SOLUTION
        beta1, beta2 = self.betas
        for place, p in enumerate(self.params):
            if p.grad is None:
                continue
            t, m, v = self.states[place] or (0, torch.zeros_like(p), torch.zeros_like(p))
            t, m, v = t + 1, beta1 * m + (1 - beta1) * p.grad, beta2 * v + (1 - beta2) * p.grad**2
            self.states[place] = (t, m, v)
            size = (v / (1 - beta2**t)).sqrt() + self.eps
            p.mul_(1 - self.lr * self.weight_decay)
            p.sub_(self.lr * m / (1 - beta1**t) / size)
        ### END SOLUTION
    def zero_grad(self):
        ### BEGIN SOLUTION
        for p in self.params:
            p.grad = None
        ### END SOLUTION
    def state_dict(self):
        ### BEGIN SOLUTION
        return {"states": self.states}
        ### END SOLUTION
    def load_state_dict(self, state):
        ### BEGIN SOLUTION
        self.states = state["states"]
        ### END SOLUTION

# %% check="AdamW"
check(AdamW, points=5)

# %% [markdown]
# **Look.** A long narrow valley: 50 times steeper across than along. Plain descent must take steps small enough for the
# steep side. AdamW strides along the flat one, overshoots (m is a memory) and comes back.

# %% tags=["demo"]
with need("AdamW"):
    def descend(optimiser):
        place = nn.Parameter(torch.tensor([-4.0, 1.5]))
        made, path = optimiser([place]), [place.detach().clone()]
        for _ in range(40):
            made.zero_grad()
            (0.02 * place[0] ** 2 + place[1] ** 2).backward()
            made.step()
            path.append(place.detach().clone())
        return torch.stack(path)

    show(plots.descent_paths({"gradient descent, lr 0.9": descend(lambda p: torch.optim.SGD(p, lr=0.9)),
                              "AdamW, lr 0.3": descend(lambda p: AdamW(p, lr=0.3, weight_decay=0.0))}),
         "Contours of a narrow valley with its lowest point at the origin. Plain descent jumps from wall to wall and "
         "creeps along; AdamW walks along at an even pace, past the middle, and turns back.")

# %% [markdown]
# ---
# ## 5.5 How large a step
# *more · about 12 min*
#
# At first √v̂ rests on a few batches, and a full step can be a wild one: begin small and **warm up**. Towards the end steps
# should shrink, so that the noise of single batches averages out: half a **cosine** down to a floor.
#
# The 2017 paper used another curve, with no end in sight: `d_model^(−½) · min(step^(−½), step · warmup^(−3/2))`.

# %%
predict("noam-peak", "The 2017 schedule with d_model 512 and warm-up 4,000 peaks at about…",
        ["7e-4", "1e-3", "4e-2"])

# %% [markdown]
# ### Exercise 5.5 · `learning_rate` · more · about 10 min
# - **Build** the first schedule: `peak·step/warmup` below `warmup`, then half a cosine from `peak` to `floor` at `total`,
#   then `floor`. `warmup=0` starts at the peak.
# - Refuse a negative step, and a total that is not beyond warmup.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>How far between warmup and total is this step, as a share of 1?</details>
# <details><summary>Hint 2 · what</summary><code>cos(π · share)</code> goes from 1 to −1; you want 1 to 0, times
# <code>peak − floor</code>.</details>
# <details><summary>Hint 3 · how</summary>Cap the share at 1, and "then floor" comes by itself.</details>

# %% exercise="learning_rate"
def learning_rate(step, peak, warmup, total, floor):
    """The learning rate of a step, counted from 0.

    Returns a float. Raises ValueError for a negative step or total ≤ warmup.
    Paper: Loshchilov and Hutter 2017, eq. 5. Differs: one cosine, no restarts, a warm-up before it.
    """
    ### BEGIN SOLUTION
    if step < 0 or total <= warmup:
        raise ValueError("step must not be negative, and total must lie beyond warmup")
    if step < warmup:
        return peak * step / warmup
    share = min((step - warmup) / (total - warmup), 1.0)
    return floor + (peak - floor) * (1 + math.cos(math.pi * share)) / 2
    ### END SOLUTION

# %% check="learning_rate"
check(learning_rate, points=2)

# %% tags=["demo"]
with need("learning_rate"):
    steps = range(0, 20_001, 50)
    old = [512**-0.5 * min(max(s, 1) ** -0.5, s * 4000**-1.5) for s in steps]
    new = [learning_rate(s, max(old), 1000, 16_000, max(old) / 10) for s in steps]
    show(plots.schedules(steps, {"warm-up and cosine": new, "2017: warm-up and root": old}),
         "Two learning rates over 20,000 steps. Both rise in a straight line. The cosine falls to a tenth of the peak at "
         "step 16,000 and stays; the 2017 curve falls slowly, like one over the root of the step.")
    reveal("noam-peak", "7e-4", f"At step 4,000: 1/√(512 · 4000) = {max(old):.1e}.")

# %% [markdown]
# ---
# ## 5.6 One training step
# *more · about 30 min*
#
# Now and then a batch has a gradient a hundred times the usual one. **Clipping** limits the damage: one norm over *all* gradients
# together; above the limit, all shrink by the same factor.

# %%
predict("clip-direction", "Clipping each tensor to the limit by itself, instead of all together…",
        ["keeps the direction of the step", "turns the step"])

# %%
a, b = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 0.4])
together = torch.stack([a, b]) / torch.stack([a, b]).norm()
apart = torch.stack([a / a.norm(), b])
print("together, limit 1:", together.flatten(), "  each by itself:", apart.flatten())
reveal("clip-direction", "turns the step", "b was a seventh of a; clipped apart, it is two fifths of it.")

# %% [markdown]
# ### Exercise 5.6a · `clip_grad_norm_` · more · about 10 min
# - **Build** it: scale all gradients by `max_norm / norm` if the norm is above `max_norm`. Return the norm from before.
# - `parameters` may be a generator; some have no gradient. **Not allowed** torch's own.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>You need the gradients twice: for the norm, and to scale them.</details>
# <details><summary>Hint 2 · what</summary>A generator is empty after one pass. The norm of the norms is the norm of
# all.</details>
# <details><summary>Hint 3 · how</summary><code>grads = [p.grad for p in parameters if p.grad is not None]</code>;
# <code>torch.stack([g.norm() for g in grads]).norm()</code>; <code>g.mul_(…)</code>.</details>

# %% exercise="clip_grad_norm_"
def clip_grad_norm_(parameters, max_norm):
    """Shrink all gradients together until their common norm is at most max_norm.

    parameters: any iterable, a gradient in one of them at least; those without are skipped
    Returns the norm before. Below the limit nothing changes.
    Paper: Pascanu et al. 2013, §3.2.
    """
    ### BEGIN SOLUTION
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = torch.stack([grad.norm() for grad in grads]).norm()
    if norm > max_norm:
        for grad in grads:
            grad.mul_(max_norm / norm)
    return norm
    ### END SOLUTION

# %% check="clip_grad_norm_"
check(clip_grad_norm_, points=2)

# %% tags=["demo"]
with need("clip_grad_norm_"):
    weights = [nn.Parameter(torch.zeros(2)) for _ in range(2)]
    weights[0].grad, weights[1].grad = a.clone(), b.clone()
    print(f"norm before {clip_grad_norm_(iter(weights), 1.0):.3f}; after:", torch.cat([w.grad for w in weights]))

# %% [markdown] reflect="clip_grad_norm_"
# Adam divides by the usual size of a gradient anyway. Why clip nevertheless? Think of what one huge gradient does to v. Your
# sentence:

# %% [markdown]
# A batch that does not fit into memory is cut into **micro-batches**: gradients add up in `.grad`, one step at the end. How it
# was cut should not matter. The usual recipe, `loss / number_of_micro_batches`, is wrong with padding:

# %%
prices = [torch.tensor([1.0, 1.0, 1.0]), torch.tensor([5.0])]  # three real words, and one
print("mean of the two means:", sum(p.mean() for p in prices) / 2, "  mean of all words:", torch.cat(prices).mean())

# %% [markdown]
# ### Exercise 5.6b · `train_step` · more · about 18 min
# - **Build** one update that equals the update on the whole batch: clear old gradients, accumulate the mean over *all kept
#   tokens of all micro-batches*, clip once (unless `max_norm` is None), one `step()`.
# - One `backward()` per micro-batch: the graph of one at a time is all that memory must hold.
# - Return that mean, as a float, from before the update. Nothing kept: 0.0 and no step. Leave train and eval flags alone.
# - **Done when** the check below passes. It counts steps.
#
# <details><summary>Hint 1 · where</summary>The total of kept targets must be known before the first backward.</details>
# <details><summary>Hint 2 · what</summary>A micro-batch's mean times its count is its sum. Divide that by the
# total.</details>
# <details><summary>Hint 3 · how</summary><code>loss = cross_entropy(model(inputs), targets, -100) * n / kept</code>;
# <code>loss.backward()</code>; <code>total += loss.item()</code>.</details>

# %% exercise="train_step"
def train_step(model, optimizer, micro_batches, max_norm):
    """One update on a batch that comes in pieces.

    model(inputs) -> logits; micro_batches: list of (inputs, targets), targets -100 where ignored
    Returns the mean loss of all kept tokens, a float. Promises: the same update as on the whole batch at once.
    """
    ### BEGIN SOLUTION
    counts = [(targets != -100).sum().item() for _, targets in micro_batches]
    if sum(counts) == 0:
        return 0.0
    optimizer.zero_grad()
    total = 0.0
    for (inputs, targets), count in zip(micro_batches, counts, strict=True):
        loss = cross_entropy(model(inputs), targets, -100) * count / sum(counts)
        loss.backward()
        total += loss.item()
    if max_norm is not None:
        clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return total
    ### END SOLUTION

# %% check="train_step"
check(train_step, points=4)

# %% [markdown]
# **Look.** All your parts at work. The task: rows in which each number is the sum of the two before it, modulo 7. A small
# model has 150 steps to find that out (ten seconds or so). One target of the eleven is pure luck: the second number.

# %%
torch.manual_seed(0)
START = torch.randint(7, (400, 2))
ROWS = START
for _ in range(10):
    ROWS = torch.cat([ROWS, (ROWS[:, -1:] + ROWS[:, -2:-1]) % 7], 1)
TRAIN, TEST = ROWS[:300], ROWS[300:]
SIZES = ModelConfig(vocab_size=7, d_model=24, n_heads=2, n_layers=2, d_ff=48, max_len=12)
print(TRAIN[:3])

# %% tags=["demo"]
with need("AdamW", "learning_rate", "train_step"):
    def adder_after(n_steps, peak=0.02):
        torch.manual_seed(1)
        model, losses = SmallModel(SIZES), []
        made = AdamW(model.parameters(), lr=0.0, weight_decay=0.01)
        for step in range(n_steps):
            made.lr = learning_rate(step, peak, n_steps // 10, n_steps, peak / 20)
            rows = TRAIN[torch.randint(300, (32,))]
            micro = [(part[:, :-1], part[:, 1:]) for part in rows.split(16)]
            losses.append(train_step(model, made, micro, 1.0))
        return model, losses

    adder, losses = adder_after(150)
    show(plots.training_curve(losses, 7),
         f"Loss over 150 steps: it starts at {losses[0]:.2f}, near ln 7 = 1.95, which a dotted line marks, and ends at "
         f"{losses[-1]:.2f}.")

# %% [markdown]
# ---
# ## 5.7 On its own words
# *more · about 15 min*
#
# In training every word before the guess is true. In use a wrong word stays in the prefix, and the model has never seen such
# prefixes: **exposure bias**. The notes only name it. So measure it: how often is the next word right after the *true* prefix,
# how often after the model's *own*? (Three models are trained for it: about fifteen seconds.)

# %%
predict("exposure", "A model is right at 90 % of places after a true prefix. Ten places on its own words: the last is right in…",
        ["90 %", "fewer", "more"])

# %% [markdown]
# ### Exercise 5.7 · `exposure_gap` · more · about 12 min
# - **Build** three shares: `teacher_forced` (targets hit when the true prefix is fed), `free_running` (greedy on own
#   output, compared place by place), `gap` = first minus second. The prompt does not count.
# - Run in eval mode without gradients, and put every part's train/eval flag back.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>The logits at the prompt's last place are about the first target.</details>
# <details><summary>Hint 2 · what</summary>Teacher forcing is one pass over prompt and targets. Free running is a loop:
# append the argmax of the last place, go on.</details>
# <details><summary>Hint 3 · how</summary>Keep <code>[(part, part.training) for part in model.modules()]</code>;
# <code>model.train(…)</code> would set all parts alike.</details>

# %% exercise="exposure_gap"
def exposure_gap(model, batch):
    """How much a model loses when it has to read its own words.

    batch: (prompt (b, p), targets (b, n)), int64
    Returns a dict of floats: teacher_forced, free_running, gap.
    Promises: no gradients, eval mode while it lasts, flags as before afterwards.
    """
    ### BEGIN SOLUTION
    prompt, targets = batch
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    with torch.no_grad():
        start = prompt.shape[1] - 1
        told = model(torch.cat([prompt, targets], 1))[:, start:-1].argmax(-1)  # (b, n)
        own = prompt
        for _ in range(targets.shape[1]):
            own = torch.cat([own, model(own)[:, -1:].argmax(-1)], 1)
    for part, mode in modes:
        part.training = mode
    teacher_forced = (told == targets).double().mean().item()
    free_running = (own[:, prompt.shape[1]:] == targets).double().mean().item()
    return {"teacher_forced": teacher_forced, "free_running": free_running, "gap": teacher_forced - free_running}
    ### END SOLUTION

# %% check="exposure_gap"
check(exposure_gap, points=3)

# %% tags=["demo"]
with need("exposure_gap", "train_step", "AdamW", "learning_rate"):
    runs = {20: adder_after(20)[0], 60: adder_after(60)[0], 150: adder, 250: adder_after(250)[0]}
    found = {n: exposure_gap(run, (TEST[:, :2], TEST[:, 2:])) for n, run in runs.items()}
    for n, gap in found.items():
        print(f"{n:4} steps: true prefix {gap['teacher_forced']:6.1%}, own words {gap['free_running']:6.1%}, "
              f"gap {gap['gap']:6.1%}")
    show(plots.exposure(found),
         "Share of right words against training steps, after the true prefix and on own words; the numbers are printed "
         "above. The gap opens as the model learns and closes again when it makes hardly any error.")
    reveal("exposure", "fewer", "One wrong sum spoils all sums after it.")

# %% [markdown] reflect="exposure_gap"
# In this task no error can be repaired. Name a task in which a wrong word matters little later on. What does the gap look like
# there? Your sentence:

# %% [markdown]
# ---
# ## 5.8 One word at a time
# *core · about 22 min*
#
# Every decoder is the same loop: ask for the next word's scores, choose, append, ask again. Only the choice differs.
# **Greedy** takes the best. Run a batch and rows end at different times:

# %%
predict("row-ends", "Three rows decode together. Row 0 says eos after two words. The loop should…",
        ["stop", "drop row 0 and go on", "fill row 0 with padding and go on"])

# %% [markdown]
# ### Exercise 5.8 · `greedy_decode` · core · about 20 min
# - **Build** the loop: `next_logits(tokens)` takes everything so far, all rows, and gives (batch, vocab). Append the argmax.
# - A row ends with its own *generated* eos, which is kept; later it gets `pad_id`. Stop when all rows have ended, or after
#   `max_new_tokens`.
# - **Done when** the check below passes. It counts the calls.
#
# <details><summary>Hint 1 · where</summary>Beside the tokens keep one boolean per row: has it ended?</details>
# <details><summary>Hint 2 · what</summary>Overwrite what an ended row would say before you append it. And ask "have all
# ended?" before the next call, not after.</details>
# <details><summary>Hint 3 · how</summary><code>chosen = next_logits(tokens).argmax(-1).masked_fill(ended, pad_id)</code>;
# <code>torch.cat([tokens, chosen[:, None]], 1)</code>.</details>

# %% exercise="greedy_decode"
def greedy_decode(next_logits, prompt, max_new_tokens, eos_id, pad_id):
    """Say the best next word, again and again.

    next_logits: function, tokens (batch, length) -> (batch, vocab), called once per step
    prompt (batch, prompt_len) int64; an eos in the prompt ends nothing
    Returns (batch, prompt_len + steps made).
    """
    ### BEGIN SOLUTION
    tokens = prompt
    ended = torch.zeros(len(prompt), dtype=torch.bool)
    for _ in range(max_new_tokens):
        if ended.all():
            break
        chosen = next_logits(tokens).argmax(-1).masked_fill(ended, pad_id)  # (B,)
        tokens = torch.cat([tokens, chosen[:, None]], 1)
        ended = ended | (chosen == eos_id)
    return tokens
    ### END SOLUTION

# %% check="greedy_decode"
check(greedy_decode, points=4)

# %% [markdown]
# **Look.** The notes' own two steps, "I love…", as a table of probabilities that your function walks through. Then one step
# from a table of scores in another of the notes, where the best first word is *El*. (Of its first step one of them says "the
# decoder has generated `<s>`". It was handed over.)

# %%
WORDS = ["<END>", "deep", "machine", "learning", "pizza", "networks", "models", "vision"]
FIRST = {"deep": 0.4, "machine": 0.35, "learning": 0.2, "pizza": 0.05}
SECOND = {"deep": {"learning": 0.7, "networks": 0.2, "models": 0.1},
          "machine": {"learning": 0.6, "vision": 0.25, "models": 0.15}}


def row_of(shares):
    """Log-probabilities over WORDS."""
    return torch.tensor([shares.get(word, 0.0) for word in WORDS], dtype=torch.float64).log()


def love(tokens):
    """(n, length) -> (n, vocab): what follows "I love", after the tokens behind it; then <END>."""
    said = [[WORDS[i] for i in row if i < len(WORDS)] for row in tokens.tolist()]
    tables = (FIRST if not row else SECOND.get(row[0], {}) if len(row) == 1 else {} for row in said)
    return torch.stack([row_of(table or {"<END>": 1.0}) for table in tables])

# %% tags=["demo"]
with need("greedy_decode"):
    said = greedy_decode(love, torch.tensor([[8]]), 5, 0, 0)[0, 1:].tolist()
    print("I love", " ".join(WORDS[i] for i in said))
    print("I love…:", notes.example("002-greedy").compare([WORDS[i] for i in said[:2]], "choice"))
    ex = notes.example("000-output-argmax")
    scores = ex.inputs["steps"][0]
    best = greedy_decode(lambda tokens: torch.tensor([[*scores.values()]]), torch.tensor([[0]]), 1, -1, 0)[0, 1]
    print("first step:", ex.compare([[*scores][best]], "choice"))
    reveal("row-ends", "fill row 0 with padding and go on", "A batch is one tensor; a row cannot leave it.")

# %% [markdown]
# ---
# ## 5.9 Chance with a dial
# *core · about 28 min*
#
# Greedy text is dull, and it loops. So let chance choose, but not freely: unlikely words are many, and together they are drawn
# often. Three dials:
#
# - **temperature** T divides the logits. Below 1 the best word gets more; above 1 all grow alike.
# - **top-k** keeps the k largest.
# - **top-p** keeps the most probable words until their shares reach p.

# %%
predict("tail", "1 word has share 0.5; 1,000 others share the rest evenly. Drawing 10 words, all ten are the first with chance…",
        ["50 %", "10 %", "0.1 %"])

# %%
print(f"ten times the first word: {0.5**10:.2%}")
reveal("tail", "0.1 %", "Each of the thousand is rare (0.05 %), but one of them comes every second draw.")

# %% [markdown]
# Which k is right? Where the model is sure, three words may be two too many; where not, a hundred may be sensible. Top-p adapts:

# %%
sure = torch.tensor([0.90, 0.06, 0.02, 0.01, 0.01])
unsure = torch.tensor([0.22, 0.21, 0.20, 0.19, 0.18])
for name, shares in (("sure", sure), ("unsure", unsure)):
    before = shares.cumsum(0) - shares
    print(f"{name:7} top-k 3 keeps 3, top-p 0.85 keeps {(before < 0.85).sum()}; before each word:", before)

# %% [markdown]
# A word is kept if what stands *before* it has not reached p. So the word that crosses p stays, and at least one does.
#
# ### Exercise 5.9 · `filter_logits` · core · about 25 min
# - **Build** it in this order: divide by the temperature; keep the `top_k` largest; of these, with shares taken anew, the
#   fewest that reach `top_p`. Kept entries hold logits / temperature, all others −∞.
# - Temperature 0 keeps the best word only. `top_p` 1, like None, keeps everything: shares are rounded, and may reach 1 too
#   early. Words that tie may all stay.
# - Refuse: temperature below 0, `top_k` below 1, `top_p` outside (0, 1].
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Everything happens on the last axis. Top-p needs it sorted, and the answer must
# not be.</details>
# <details><summary>Hint 2 · what</summary><code>sort</code> gives values and their old places; <code>scatter</code> brings
# a sorted mask back there.</details>
# <details><summary>Hint 3 · how</summary>If <code>top_p</code> is a number below 1: <code>probs, order =
# logits.softmax(-1).sort(-1, descending=True)</code>; <code>drop = probs.cumsum(-1) - probs >= top_p</code>;
# <code>zeros.scatter(-1, order, drop)</code>. Temperature 0 is <code>top_k</code> 1.</details>

# %% exercise="filter_logits"
def filter_logits(logits, temperature=1.0, top_k=None, top_p=None):
    """Leave only the words that may be drawn.

    logits (…, vocab) -> the same shape: logits / temperature where kept, −inf elsewhere
    Returns a new tensor, always. Raises ValueError for temperature < 0, top_k < 1, top_p outside (0, 1].
    Paper: Holtzman et al. 2020, §3.1 (top-p).
    """
    ### BEGIN SOLUTION
    if temperature < 0:
        raise ValueError("temperature must not be negative")
    if top_k is not None and top_k < 1:
        raise ValueError("top_k must be at least 1")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError("top_p must be above 0 and at most 1")
    if temperature == 0:
        temperature, top_k = 1.0, 1
    logits = logits / temperature
    if top_k is not None:
        smallest = logits.topk(min(top_k, logits.shape[-1])).values[..., -1:]
        logits = logits.masked_fill(logits < smallest, -math.inf)
    if top_p is not None and top_p < 1:
        probs, order = logits.softmax(-1).sort(-1, descending=True)
        drop = probs.cumsum(-1) - probs >= top_p  # what stands before reaches p already
        drop = torch.zeros_like(drop).scatter(-1, order, drop)
        logits = logits.masked_fill(drop, -math.inf)
    return logits
    ### END SOLUTION

# %% check="filter_logits"
check(filter_logits, points=5)

# %% tags=["demo"]
with need("filter_logits"):
    shares = torch.tensor([*FIRST.values()]).double()
    kept = {name: filter_logits(shares.log(), **{key: value}).softmax(-1)
            for name, key, value in (("002-topk3", "top_k", 3), ("002-topp09", "top_p", 0.9))}
    for name, left in kept.items():
        words = [word for word, share in zip(FIRST, left, strict=True) if share > 0]
        print(f"{name[4:]}:", notes.example(name).compare(words, "kept"), left)
    sharpest = [filter_logits(shares.log(), t).softmax(-1).max().item() for t in (0.5, 1, 2)]
    print("largest share at T = 0.5, 1, 2:", notes.example("002-temperature").compare(sharpest, "max_prob"))

# %% [markdown]
# **Play.** Turn one dial at a time. At which temperature does top-p 0.9 let everything through? Which dial would you use for
# code, which for a poem?

# %% tags=["demo"]
with need("filter_logits"):
    widgets.decoding_sampler(filter_logits)

# %% [markdown] reflect="filter_logits"
# Temperature before or after top-p: does the order matter? And top-k? Your sentence:

# %% [markdown]
# ---
# ## 5.10 Draw a word
# *core · about 13 min*
#
# One draw per row, each by itself, from the generator you are handed: only then can a run be repeated.

# %%
predict("same-seed", "Two calls in a row with the same generator draw…", ["the same words", "other words"])

# %% [markdown]
# ### Exercise 5.10 · `sample` · core · about 12 min
# - **Build** one independent draw per row from softmax(logits), for any leading axes. A logit of −∞ is never drawn.
# - **Allowed** `torch.multinomial`. **Done when** the check below passes. It draws 20,000 rows.
#
# <details><summary>Hint 1 · where</summary><code>multinomial</code> takes shares, at most two axes of them.</details>
# <details><summary>Hint 2 · what</summary>Flatten all leading axes into one, draw, and give the axes back.</details>
# <details><summary>Hint 3 · how</summary><code>probs.reshape(-1, vocab)</code>; <code>generator=generator</code>;
# <code>.reshape(logits.shape[:-1])</code>.</details>

# %% exercise="sample"
def sample(logits, generator):
    """Draw one word per row.

    logits (…, vocab), −inf where forbidden; generator: a torch.Generator
    Returns int64 (…). Promises: torch's global random state is left alone.
    """
    ### BEGIN SOLUTION
    probs = logits.softmax(-1).reshape(-1, logits.shape[-1])  # (rows, V)
    return torch.multinomial(probs, 1, generator=generator).reshape(logits.shape[:-1])
    ### END SOLUTION

# %% check="sample"
check(sample, points=3)

# %% tags=["demo"]
with need("sample", "filter_logits"):
    generator, names = torch.Generator().manual_seed(0), [*FIRST]
    logits = torch.tensor([*FIRST.values()]).log()
    print("sum of the shares:", notes.example("002-sampling-sum").compare(logits.double().exp().sum(), "sum"))
    for label, options in (("as it is", {}), ("T = 0.3", dict(temperature=0.3)), ("top-k 2", dict(top_k=2))):
        drawn = sample(filter_logits(logits, **options).expand(10_000, -1), generator)
        print(f"{label:9}", {name: f"{(drawn == i).double().mean():.3f}" for i, name in enumerate(names)})
    first, second = (sample(logits.expand(8, -1), generator).tolist() for _ in range(2))
    print("two calls:", first, second)
    reveal("same-seed", "other words", "A generator moves forward. The same seed *anew* gives the same words.")

# %% [markdown]
# ---
# ## 5.11 Several futures at once
# *more · about 30 min*
#
# Greedy takes the best first word, even if all after it is poor. A **beam search** keeps the `n_beams` best beginnings and lets
# them compete. It "recovers from early suboptimal choices", say the notes. Their example:

# %%
predict("beam-notes", "In the notes' example with 2 beams, the best sentence is…",
        ["deep learning (greedy's)", "machine learning"])

# %%
ex = notes.example("002-beam-beats-greedy")
for sentence, joint in ex.correct["joint"].items():
    print(f"{sentence:18}{joint:.4f}")
print("best equals greedy:", ex.correct["best_equals_greedy"], "· erratum", ex.errata[0].id)
tables = notes.example("002-beam-vs-greedy-tables")  # and one word has two shares after the same words
difference = tables.compare(tables.inputs["a"] - tables.inputs["b"], "difference")
print("between their two tables:", difference, "· erratum", tables.errata[0].id)
reveal("beam-notes", "deep learning (greedy's)", "Their example does not show what it is there for.")

# %% [markdown]
# Here is one that does. After "deep" the shares are spread, after "machine" one word is nearly sure. Greedy gets 0.4 · 0.4 =
# 0.16 and misses 0.35 · 0.9 = 0.315.

# %%
TRAP = {"deep": {"learning": 0.4, "networks": 0.35, "models": 0.25}, "machine": {"learning": 0.9, "vision": 0.1}}


def trap(tokens):
    """Like `love`, with other second words; returns log-probabilities."""
    said = [[WORDS[i] for i in row if i < len(WORDS)] for row in tokens.tolist()]
    tables = (FIRST if not row else TRAP.get(row[0], {}) if len(row) == 1 else {} for row in said)
    return torch.stack([row_of(table or {"<END>": 1.0}) for table in tables])

# %% [markdown]
# Log-probabilities add up, so a longer sentence always scores lower. `score = sum / length ** length_penalty` makes up for
# that: at 0 short sentences win, at 1 it is the mean per word.
#
# ### Exercise 5.11 · `beam_search` · more · about 26 min
# - **Build** it. Each step: extend every hypothesis alive by every word of finite log-probability; of *all* these keep the
#   `n_beams` with the largest *sum*; those that end in eos are set aside and take no place later.
# - In the end, finished and alive compete by score. Return the best `n_beams`, best first: `(tokens, score)`, tokens a
#   list with bos. Length counts generated words: eos does, bos does not.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Two lists of pairs (tokens, sum): alive and finished. Begin with one pair, not
# with n_beams.</details>
# <details><summary>Hint 2 · what</summary>One list of all continuations, sorted by sum, cut to n_beams; then deal it out by
# its last token.</details>
# <details><summary>Hint 3 · how</summary><code>next_log_probs(torch.tensor([tokens for tokens, _ in alive]))</code>;
# the penalty enters after the loop only.</details>

# %% exercise="beam_search"
def beam_search(next_log_probs, bos_id, eos_id, n_beams, max_len, length_penalty):
    """The best sentences that a few beginnings at a time lead to.

    next_log_probs: function, tokens (n, length) -> (n, vocab), for any n
    max_len: at most so many generated tokens
    Returns a list of (tokens, score), best first; tokens: list of ints, from bos to eos if it was reached.
    Paper: Wu et al. 2016, §7 (length penalty). Differs: length ** penalty, no coverage term.
    """
    ### BEGIN SOLUTION
    alive, finished = [([bos_id], 0.0)], []
    for _ in range(max_len):
        rows = next_log_probs(torch.tensor([tokens for tokens, _ in alive])).tolist()
        grown = [
            (tokens + [token], total + log_prob)
            for (tokens, total), row in zip(alive, rows, strict=True)
            for token, log_prob in enumerate(row)
            if log_prob > -math.inf
        ]
        grown.sort(key=lambda beam: beam[1], reverse=True)
        finished += [beam for beam in grown[:n_beams] if beam[0][-1] == eos_id]
        alive = [beam for beam in grown[:n_beams] if beam[0][-1] != eos_id]
        if not alive:
            break
    scored = [(tokens, total / (len(tokens) - 1) ** length_penalty) for tokens, total in finished + alive]
    return sorted(scored, key=lambda beam: beam[1], reverse=True)[:n_beams]
    ### END SOLUTION

# %% check="beam_search"
check(beam_search, points=6)

# %% tags=["demo"]
with need("beam_search"):
    for name, table in (("the notes", love), ("the trap", trap)):
        for n_beams in (1, 2):
            (tokens, score), *_ = beam_search(table, 8, 0, n_beams, 4, 0.0)
            print(f"{name:10}{n_beams} beam(s): {' '.join(WORDS[i] for i in tokens[1:-1]):18}{math.exp(score):.3f}")
    found = beam_search(love, 8, 0, 2, 2, 0.0)
    print("both beams:", notes.example("002-beam").compare([" ".join(WORDS[i] for i in tokens[1:]) for tokens, _ in found], "top"))

# %% [markdown]
# **Play.** Widen the beam step by step. At which width does the trap lose its power? And how wide must a beam be to be
# sure?

# %% tags=["demo"]
with need("beam_search"):
    widgets.beam_tree(beam_search, trap, WORDS, bos_id=8)

# %% [markdown] reflect="beam_search"
# The most probable text is often bland or empty; people's own words are full of surprises. For which tasks would you search,
# for which draw? Your sentence:

# %% [markdown]
# ---
# ## 5.12 The same keys, again
# *core · about 23 min*
#
# So far a model that writes is fed everything, again and again. Let one count the tokens that enter, while it writes 20:

# %%
torch.manual_seed(0)
config = ModelConfig(vocab_size=50, d_model=32, n_heads=4, n_layers=3, d_ff=64, max_len=64, n_kv_heads=2)
model = SmallModel(config, counts=True).eval()
tokens = torch.tensor([[7]])
with torch.no_grad():
    while tokens.shape[1] < 21:
        best = model(tokens)[:, -1].argmax(-1)
        tokens = torch.cat([tokens, best[:, None]], 1)
print(f"20 tokens written, {model.token_embedding.fed} tokens fed")

# %% [markdown]
# 1 + 2 + … + 20 = 210. What did the second reading of a token bring? Catch the keys of the last layer in two passes, the
# second one token longer:

# %%
keys = []
hook = model.blocks[2].attention.w_k.register_forward_hook(lambda layer, x, out: keys.append(out))
with torch.no_grad():
    model(tokens[:, :20])
    model(tokens)
hook.remove()
print(f"largest change of the first 20 keys: {(keys[0] - keys[1][:, :20]).abs().max():.1e}")

# %% [markdown]
# Nothing. A causal place never sees what comes after it, so in *every* layer its key and value are final once computed. Keep
# both, and each step needs one new row. (In an encoder a new token changes all others: nothing to keep.)

# %%
predict("q-cache", "Keys and values are kept. Why not the queries?",
        ["they take too much memory", "a query is used once, at its own place", "they change from step to step"])

# %% [markdown]
# ### Exercise 5.12 · `KVCache` · core · about 20 min
# - **Build** the store. `append(layer, k, v)` puts t new tokens behind the old ones and gives all keys and values this layer
#   has by now. `length`: how many tokens *every* layer holds. `truncate(length)` forgets the newest, in all layers.
#   `reorder(rows)` picks rows of the batch, as beam search needs.
# - Refuse a layer that is not there, other shapes, more than `max_len` tokens, a `truncate` below 0 or beyond `length`. A
#   refused call changes nothing. The rows of `reorder` are always right, and the cache may be empty.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Tokens are axis 2. Reserve room for <code>max_len</code> of them per layer when
# the first ones come: then you know dtype and device.</details>
# <details><summary>Hint 2 · what</summary>Keep one count per layer. Look at everything first, write afterwards.</details>
# <details><summary>Hint 3 · how</summary><code>keys[layer][:, :, start:end] = k</code>, and give
# <code>keys[layer][:, :, :end]</code>. <code>length</code> is the smallest count, under
# <code>@property</code>.</details>

# %% exercise="KVCache"
class KVCache:
    """Keys and values of all tokens so far, for each layer. All refusals are ValueErrors that change nothing.

    append: k, v (batch, n_kv_heads, t, d_head), t >= 1 -> the layer's k_all, v_all, oldest first. A copy is kept, in
    the dtype and on the device of the first. length: int, what every layer holds. truncate(length) keeps the oldest.
    reorder(rows), int64: row n becomes what row rows[n] was. Both return None.
    """
    def __init__(self, n_layers, batch, n_kv_heads, max_len, d_head):
        ### BEGIN SOLUTION
        self.shape = (batch, n_kv_heads, max_len, d_head)
        self.keys, self.values = [None] * n_layers, [None] * n_layers
        self.filled = [0] * n_layers
        ### END SOLUTION
    @property
    def length(self):
        ### BEGIN SOLUTION
        return min(self.filled)
        ### END SOLUTION
    def append(self, layer, k, v):
        ### BEGIN SOLUTION
        if layer not in range(len(self.filled)):
            raise ValueError(f"there is no layer {layer}")
        _, _, t, _ = k.shape  # another number of axes is a ValueError by itself
        if t < 1 or k.shape != v.shape or k.shape != (*self.shape[:2], t, self.shape[3]):
            raise ValueError(f"k and v have the wrong shape: {tuple(k.shape)}, {tuple(v.shape)}")
        start, end = self.filled[layer], self.filled[layer] + t
        if end > self.shape[2]:
            raise ValueError(f"{end} tokens do not fit into max_len = {self.shape[2]}")
        if self.keys[layer] is None:
            self.keys[layer], self.values[layer] = k.new_empty(self.shape), v.new_empty(self.shape)
        self.keys[layer][:, :, start:end], self.values[layer][:, :, start:end] = k, v
        self.filled[layer] = end
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]
        ### END SOLUTION
    def truncate(self, length):
        ### BEGIN SOLUTION
        if not 0 <= length <= self.length:
            raise ValueError(f"the cache has a length of {self.length}, not {length}")
        self.filled = [length] * len(self.filled)
        ### END SOLUTION
    def reorder(self, rows):
        ### BEGIN SOLUTION
        self.keys = [part if part is None else part[rows] for part in self.keys]
        self.values = [part if part is None else part[rows] for part in self.values]
        ### END SOLUTION

# %% check="KVCache"
check(KVCache, points=4)

# %% tags=["demo"]
with need("KVCache"):
    cache, one = KVCache(1, 1, 1, 8, 4), torch.randn(1, 1, 1, 4)
    lengths = [cache.append(0, one, one)[0].shape[2] for _ in range(3)]
    print("tokens held:", notes.example("002-kv-cache-sizes").compare(lengths, "cache_len"))
    cache.truncate(0)
    cache.append(0, torch.randn(1, 1, 5, 4), torch.randn(1, 1, 5, 4))  # a prompt of five, at once
    print("after the prompt:", cache.length)
    reveal("q-cache", "a query is used once, at its own place", "Keys and values are read by every later place.")

# %% [markdown]
# "The cache holds keys and values of generated tokens" (D20): and of the prompt, all five of it. "All decoder blocks share the
# encoder's K and V" (D21): they share what the encoder says; each block makes keys and values of its own from it.

# %% [markdown]
# ---
# ## 5.13 Only what is new
# *core · about 30 min*
#
# Now feed one token instead of all. The tempting way is to call the model with it:

# %%
with torch.no_grad():
    print("after all tokens:     ", model(tokens)[0, -1, :6])
    print("after the last one:   ", model(tokens[:, -1:])[0, -1, :6])

# %% [markdown]
# Other logits: the token thinks it stands at place 0, and it has nobody to look at. So `embed` it at `offset=cache.length`, and
# let its query read the keys of the cache *and* its own, in each block.
#
# With several new tokens at once (a prompt, or a chunk of it) a mask comes in: new token i stands at place `cache.length + i`.

# %%
predict("chunk-mask", "5 tokens are cached, 3 are new. How many keys may the first of the three see?",
        ["1", "6", "8"])

# %%
to_the_start = torch.ones(3, 8, dtype=torch.bool).tril()
show(plots.mask_grids({"aligned to the start": to_the_start, "aligned to the end": causal_mask(3, 8)}),
     "Two masks for 3 queries and 8 keys. Left: the first query sees key 0 only. Right: it sees keys 0 to 5.")
reveal("chunk-mask", "6", "Five old ones and itself. The left mask hides most of the cache.")

# %% [markdown]
# ### Exercise 5.13 · `forward_cached` · core · about 25 min
# - **Build** the model's forward pass over the new tokens only. A model here has `config`, `embed(tokens, offset)`, `blocks` and
#   `head(x)`. A block has `norm1`, `attention`, `norm2`, `ffn`; its attention `w_q`, `w_k`, `w_v`, `w_o`, `n_heads`.
#   `config.norm_first` says where the norms stand, `config.n_kv_heads` (None: `n_heads`) how many heads of keys there are.
# - Yours already: `split_heads(x, n)`, `sdpa(q, k, v, mask)` (gives one tensor), `merge_heads(x)`, `causal_mask(q_len, k_len)`.
# - **Done when** the check below passes. It counts the tokens that enter.
#
# <details><summary>Hint 1 · where</summary>Only attention looks at other tokens; all the rest runs as ever, on fewer
# rows.</details>
# <details><summary>Hint 2 · what</summary>Keys and values go into the cache with their own number of heads; copy them for their
# query heads afterwards. The cache's length grows while you append: read it once, before.</details>
# <details><summary>Hint 3 · how</summary>In each block: q, k, v by heads; <code>k, v = cache.append(layer, k, v)</code>;
# <code>sdpa(q, k, v, causal_mask(new, all))</code>; <code>w_o</code>; add.</details>

# %% exercise="forward_cached"
def forward_cached(model, tokens, cache):
    """The logits of new tokens, the earlier ones being in the cache.

    tokens (batch, t) int64, the new ones; cache: a KVCache, which receives their keys and values
    Returns (batch, t, vocab_size): the last t rows of model(all tokens).
    """
    ### BEGIN SOLUTION
    config, start = model.config, cache.length
    group = config.n_heads // (config.n_kv_heads or config.n_heads)

    def attend(attention, x, layer):
        q = split_heads(attention.w_q(x), config.n_heads)
        k, v = (split_heads(w(x), config.n_heads // group) for w in (attention.w_k, attention.w_v))
        k, v = cache.append(layer, k, v)
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        return attention.w_o(merge_heads(sdpa(q, k, v, causal_mask(q.shape[2], k.shape[2]))))

    x = model.embed(tokens, offset=start)
    for layer, block in enumerate(model.blocks):
        if config.norm_first:
            x = x + attend(block.attention, block.norm1(x), layer)
            x = x + block.ffn(block.norm2(x))
        else:
            x = block.norm1(x + attend(block.attention, x, layer))
            x = block.norm2(x + block.ffn(x))
    return model.head(x)
    ### END SOLUTION

# %% check="forward_cached"
check(forward_cached, points=6)

# %% [markdown]
# **Look.** Cached and uncached in float64, in every way you may cut the same 16 tokens. All numbers should be rounding:

# %% tags=["demo"]
with need("KVCache", "forward_cached"), torch.no_grad():
    exact = SmallModel(config).double().eval()
    batch = torch.randint(50, (3, 16))
    cuts = {"one by one": [1] * 16, "prompt of 10, then one by one": [10] + [1] * 6, "chunks of three": [3] * 5 + [1]}
    for name, cut in cuts.items():
        cache = KVCache(3, 3, 2, 16, 8)
        parts = [forward_cached(exact, part, cache) for part in batch.split(cut, 1)]
        print(f"{name:30} largest difference {(torch.cat(parts, 1) - exact(batch)).abs().max():.1e}")
    rows = torch.tensor([2, 0, 0])
    cache.truncate(15)
    cache.reorder(rows)
    last = forward_cached(exact, batch[:, 15:], cache)
    whole = exact(torch.cat([batch[rows, :15], batch[:, 15:]], 1))[:, -1:]
    print(f"{'one back, rows reordered':30} largest difference {(last - whole).abs().max():.1e}")

# %% [markdown] reflect="forward_cached"
# Which of your lines would have to change for an encoder-decoder, whose decoder also reads a memory? What would be cached
# there, and when? Your sentence:

# %% [markdown]
# ---
# ## 5.14 Write with it
# *more · about 24 min*
#
# All parts are there: a model, a cache, dials, a draw. The loop reads the prompt once, then feeds each new token.

# %%
predict("fed", "A prompt of 10 tokens, 20 new ones, with a cache. How many tokens enter the model?",
        ["20", "29", "390"])

# %% [markdown]
# ### Exercise 5.14 · `generate` · more · about 20 min
# - **Build** the loop: `filter_logits`, then `sample`, with `use_cache` or without. A row ends with its own generated eos;
#   later places get `pad_id`; stop when all rows have ended.
# - The model runs in eval mode, without gradients; afterwards every train/eval flag is as it was, also after an error (`try`
#   … `finally`).
# - Refuse what would not fit into `model.config.max_len`.
# - **Done when** the check below passes. It counts the tokens that enter; a last pass that nobody reads is forgiven.
#
# <details><summary>Hint 1 · where</summary>The two ways differ in one line: which tokens are fed.</details>
# <details><summary>Hint 2 · what</summary>Blocks inside the model may have flags of their own: keep one per
# module.</details>
# <details><summary>Hint 3 · how</summary><code>flags = {part: part.training for part in model.modules()}</code>; first feed the
# prompt, then <code>new[:, None]</code>.</details>

# %% exercise="generate"
def generate(model, prompt, max_new_tokens, temperature=1.0, top_k=None, top_p=None, eos_id=None, pad_id=0,
             generator=None, use_cache=True):
    """Let a model write.

    prompt (batch, n) int64; temperature, top_k, top_p: see filter_logits; eos_id None: no row ever ends
    generator: handed on to sample; None is torch's own random state
    Returns (batch, n + steps made) int64.
    Promises: eval mode and no gradients while it runs; every flag as before afterwards, whatever happens.
    Raises ValueError if n + max_new_tokens exceed model.config.max_len.
    """
    ### BEGIN SOLUTION
    config, (batch, length) = model.config, prompt.shape
    if length + max_new_tokens > config.max_len:
        raise ValueError(f"{length + max_new_tokens} tokens do not fit into max_len = {config.max_len}")
    cache = KVCache(config.n_layers, batch, config.n_kv_heads or config.n_heads, config.max_len,
                    config.d_model // config.n_heads)
    flags = {part: part.training for part in model.modules()}
    model.eval()
    tokens, feed, alive = prompt, prompt, torch.ones(batch, dtype=torch.bool)
    try:
        with torch.no_grad():
            while alive.any() and tokens.shape[1] < length + max_new_tokens:
                logits = forward_cached(model, feed, cache) if use_cache else model(tokens)
                new = sample(filter_logits(logits[:, -1], temperature, top_k, top_p), generator)
                new = new.where(alive, pad_id)  # (B,)
                feed = new[:, None]
                tokens = torch.cat([tokens, feed], 1)
                if eos_id is not None:
                    alive = alive & (new != eos_id)
    finally:
        for part, flag in flags.items():
            part.training = flag
    return tokens
    ### END SOLUTION

# %% check="generate"
check(generate, points=5)

# %% tags=["demo"]
with need("KVCache", "forward_cached", "generate", "filter_logits", "sample"):
    texts = {}
    for use_cache in (True, False):
        model.token_embedding.fed.zero_()
        texts[use_cache] = generate(model, tokens[:, :10], 20, 0.8, generator=torch.Generator().manual_seed(3),
                                    use_cache=use_cache)
        print(f"use_cache={use_cache!s:5} {model.token_embedding.fed:4} tokens fed", texts[use_cache][0, 10:].tolist())
    print("the same text:", torch.equal(texts[True], texts[False]))
    reveal("fed", "29", "10 for the prompt, and 19: the last token is written, but never read.")

# %% [markdown]
# ---
# ## 5.15 What a cache costs
# *more · about 30 min*
#
# The cache trades work for memory: two vectors per token, layer and head of keys, for each user.

# %%
predict("kv-size", "A model of 32 layers, width 4096, 32 heads, 2 bytes per number. The cache of ONE user with 4,096 tokens holds…",
        ["2 MB", "67 MB", "2 GB"])

# %% [markdown]
# ### Exercise 5.15a · `kv_cache_bytes` · more · about 5 min
# - **Build** the number of bytes, from a `ModelConfig` with `n_layers`, `d_model`, `n_heads`, `n_kv_heads` (None: `n_heads`).
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Write down the shape of one layer's keys.</details>
# <details><summary>Hint 2 · what</summary>A head is <code>d_model // n_heads</code> wide, however many heads of keys
# there are.</details>
# <details><summary>Hint 3 · how</summary>2 · layers · batch · heads of keys · d_head · tokens · bytes.</details>

# %% exercise="kv_cache_bytes"
def kv_cache_bytes(config, batch, seq_len, bytes_per_element):
    """How many bytes the keys and values of a batch take.

    config: a ModelConfig; batch: sentences; seq_len: tokens of each
    Returns an int.
    """
    ### BEGIN SOLUTION
    n_kv_heads = config.n_kv_heads or config.n_heads
    d_head = config.d_model // config.n_heads
    return 2 * config.n_layers * batch * n_kv_heads * d_head * seq_len * bytes_per_element
    ### END SOLUTION

# %% check="kv_cache_bytes"
check(kv_cache_bytes, points=2)

# %% tags=["demo"]
with need("kv_cache_bytes"):
    print("heads of keys   per token   one user, 4096   users beside 14 GB of weights on 80 GB")
    for n_kv_heads in (32, 8, 1):
        large = ModelConfig(32_000, 4096, 32, 32, 11_008, 4096, n_kv_heads=n_kv_heads)
        token, user = kv_cache_bytes(large, 1, 1, 2), kv_cache_bytes(large, 1, 4096, 2)
        print(f"{n_kv_heads:13}{token / 1e3:9.0f} kB{user / 1e9:14.2f} GB{(80e9 - 14e9) // user:12.0f}")
    reveal("kv-size", "2 GB", "Half a megabyte per token. Weights are shared by all users, the cache is not.")

# %% [markdown]
# **Play.** Step through a generation. At which number of users does the cache outgrow 14 GB of weights, and what do fewer heads
# of keys change?

# %% tags=["demo"]
with need("kv_cache_bytes"):
    widgets.cache_animator(large, kv_cache_bytes)

# %% [markdown]
# ### Exercise 5.15b · `decode_flops` · more · about 15 min
# - **Build** the operations of writing `n_tokens`, from nothing: steps t = 1 … n. Two per multiply-add. Per layer and step:
#   `rows` rows through the six matrices (grouped heads narrow two), and two products of attention, rows × t keys, at
#   full width. `rows` is 1 with a cache, else t. Leave out norms, biases, softmax, vocabulary.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Count one layer and one step first, then sum.</details>
# <details><summary>Hint 2 · what</summary>A matrix of a × b costs 2 · rows · a · b. The scores cost 2 · rows · t · d_model, and so
# does the mixing.</details>
# <details><summary>Hint 3 · how</summary><code>weights = 2*d*d + 2*d*d_kv + 2*d*d_ff</code>; add <code>rows * (weights +
# 2 * t * d)</code> over all t; times 2, times layers.</details>

# %% exercise="decode_flops"
def decode_flops(config, n_tokens, use_cache):
    """Operations of the blocks while n_tokens are written, the first from nothing.

    config: a ModelConfig; use_cache: one row per step, else all t
    Returns an int.
    """
    ### BEGIN SOLUTION
    d_model = config.d_model
    d_kv = d_model // config.n_heads * (config.n_kv_heads or config.n_heads)
    weights = 2 * d_model * d_model + 2 * d_model * d_kv + 2 * d_model * config.d_ff
    total = 0
    for t in range(1, n_tokens + 1):
        rows = 1 if use_cache else t
        total += rows * (weights + 2 * t * d_model)
    return 2 * config.n_layers * total
    ### END SOLUTION

# %% check="decode_flops"
check(decode_flops, points=3)

# %% [markdown]
# **Look.** "The cache takes decoding from T³ to T²", say the notes. Which operation do they count? Here are the scores alone,
# then a whole layer, both for 1,024 tokens:

# %% tags=["demo"]
with need("decode_flops"):
    layer = ModelConfig(50_000, 4096, 32, 1, 4 * 4096, 1024)
    naive, cached = (decode_flops(layer, 1024, use_cache) // 2 for use_cache in (False, True))
    steps = range(1, 1025)
    scores = sum(t * t for t in steps) / sum(steps)
    print(f"scores alone: {scores:.0f} times fewer; the whole layer: {naive / cached:.0f} times fewer")
    print("scores:", notes.example("002-kv-complexity").compare(scores, "ratio"))
    print("layer: ", notes.example("002-kv-complexity-whole-layer").compare(naive / cached, "ratio"))

    def power(cost):
        return round(math.log2(cost(1024) / cost(512)))

    def step(t, use_cache, layer=layer):
        return decode_flops(layer, t, use_cache) - decode_flops(layer, t - 1, use_cache)

    wider = replace(layer, d_ff=layer.d_ff + 1)  # what one more column of a matrix costs
    matrix = power(lambda t: step(t, True, wider) - step(t, True))
    attention = power(lambda t: step(t, False) - t * step(1, False))
    print("a matrix, per cached step: t to the power", notes.example("001-kv-cache-complexity").compare(
        matrix, "cached_projection_degree_in_N"))
    print("scores of t tokens at once: t to the power", notes.example("004-table1-complexities").compare(
        attention, "att_degree_n"))

# %% [markdown]
# Per *step*, scores fall from t² to t and the matrices from t to 1; per *text*, from T³ to T² and from T² to T. The matrices
# dominate until t ≈ 6 · d_model (with d_ff = 4 · d_model, no grouped heads). So measure what you do see:

# %%
def fastest(run, back):
    """Milliseconds of the fastest of five runs; back() undoes what one leaves behind."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        run()
        times.append(1000 * (time.perf_counter() - start))
        back()
    return min(times)


def line_in_logs(lengths, costs):
    """(factor, power): the straight line through the logarithms."""
    x, y = torch.tensor(lengths).double().log(), torch.tensor(costs).double().log()
    power = ((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum()
    return math.exp(y.mean() - power * x.mean()), power.item()

# %% tags=["demo"]
with need("KVCache", "forward_cached"), torch.no_grad():
    timed, long = SmallModel(ModelConfig(500, 128, 4, 2, 512, 640)).eval(), torch.randint(500, (1, 640))

    def both_ways(t):
        cache = KVCache(2, 1, 4, 640, 32)
        forward_cached(timed, long[:, :t], cache)
        return [fastest(way, lambda: cache.truncate(t)) for way in (
            lambda: timed(long[:, :t]), lambda: forward_cached(timed, long[:, :1], cache))]

    lengths = [64, 128, 256, 512]
    pairs = [both_ways(t) for t in lengths]
    costs = {name: [pair[n] for pair in pairs] for n, name in enumerate(("without a cache", "with a cache"))}
    fits = {name: line_in_logs(lengths, values) for name, values in costs.items()}
    powers = ", ".join(f"{name} {power:.2f}" for name, (_, power) in fits.items())
    show(plots.cost_by_length(lengths, costs, fits, "milliseconds for one more token"),
         f"Two lines on log axes. Cost grows with the length to the power: {powers}.")
    print(f"at 512 tokens a step is {costs['without a cache'][-1] / costs['with a cache'][-1]:.0f} times faster")
    print(*notes.example("002-kv-speedup-5-50x").errata)

# %% [markdown]
# "5 to 50 times faster" (D19) is an anecdote until the model, the length, the batch and the machine stand beside it. Reading a
# prompt (the *prefill*) is one large pass, limited by arithmetic. A cached step reads all weights and the whole cache for one
# token per user: it is limited by memory, and larger batches share the weights.

# %% [markdown]
# ---
# ## 5.16 Is larger better?
# *more · about 30 min*
#
# Some text to learn, character by character: a part of Python's library. Who knows only how frequent each character is, pays
# the *unigram* loss:

# %%
text = "".join(map(inspect.getsource, (argparse, textwrap, inspect)))
letters = sorted(set(text))
ids = torch.tensor([letters.index(letter) for letter in text])
train, held_out = ids[:-20_000], ids[-20_000:]
shares = torch.bincount(train, minlength=len(letters)).double() / len(train)
unigram = -(shares[held_out] + 1e-6).log().mean().item()
print(f"{len(train):,} characters of {len(letters)} kinds; unigram loss {unigram:.2f} nats")


def batch_of(source, places):
    """Inputs and targets of 64 characters from each place."""
    rows = torch.stack([source[place : place + 65] for place in places])
    return rows[:, :-1], rows[:, 1:]

# %% [markdown]
# Models do better, and larger ones more so: the loss falls along a curve, fast at first, then slower, towards a floor. With
# enough training, what is left there is the text's own surprise. A law of three numbers fits well:
#
# > **loss(N) = E + A · N^(−α)**
#
# Tempting: on two log axes a power is a straight line, so fit one. Below, a law that we plant, a line through its first
# points, and what the line says about the next sizes:

# %%
sizes = [10 ** (5 + step / 2) for step in range(11)]
planted = [1.69 + 406.4 * size**-0.34 for size in sizes]
x, y = torch.tensor(sizes).double().log(), torch.tensor(planted).double().log()
slope = ((x - x[:6].mean())[:6] * (y - y[:6].mean())[:6]).sum() / (x - x[:6].mean())[:6].square().sum()
line = (y[:6].mean() + slope * (x - x[:6].mean())).exp()
show(plots.loss_by_size(sizes, planted, {"a line through the first six": (sizes, line)}, ("the floor E", 1.69),
                        log_ticks=(1, 2, 3, 5, 10)),
     "On two log axes: points that bend towards a floor, and a straight line that goes on falling below it.")

# %%
predict("three-numbers", "A law with three free numbers is fitted to three trained models. The curve goes exactly through all three. So the law…",
        ["holds", "is not tested at all", "is wrong"])

# %% [markdown]
# ### Exercise 5.16 · `fit_power_law` · more · about 22 min
# - **Build** the fit of all three numbers. If the floor were known, `log(loss − E)` would be a straight line in `log(size)`: so
#   try floors below the lowest loss, fit a line to each, and keep the best.
# - **Done when** the check below passes: exact data within 2 %.
#
# <details><summary>Hint 1 · where</summary>One unknown is awkward (E); with it, the other two are a straight line.</details>
# <details><summary>Hint 2 · what</summary>Forty floors from 0 to the lowest loss are too coarse: search again, between the
# neighbours of the best one, and again.</details>
# <details><summary>Hint 3 · how</summary>For a line: slope = Σ(x − x̄)(y − ȳ) / Σ(x − x̄)². Then alpha = −slope, A =
# exp(ȳ − slope · x̄). Compare the squared errors of the lines.</details>

# %% exercise="fit_power_law"
def fit_power_law(sizes, losses):
    """Fit E + A · size^(−alpha).

    sizes, losses: lists of numbers, of equal length, in any order
    Returns a dict of floats: E, A, alpha (> 0).
    Paper: Kaplan et al. 2020; with a floor: Hoffmann et al. 2022, §3.3.
    """
    ### BEGIN SOLUTION
    x, losses = torch.tensor(sizes, dtype=torch.float64).log(), torch.tensor(losses, dtype=torch.float64)

    def line(floor):
        y = (losses - floor).log()
        slope = ((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum()
        height = y.mean() - slope * x.mean()
        guess = floor + (height + slope * x).exp()
        error = (guess / losses - 1).square().sum()
        return error.item(), floor, height.exp().item(), -slope.item()

    low, step = 0.0, losses.min().item() / 40
    for _ in range(6):
        _, floor, a, alpha = min(line(low + n * step) for n in range(41))  # the least error; nan is never less
        low, step = floor - step, step / 20  # from neighbour to neighbour, in finer steps
    return {"E": floor, "A": a, "alpha": alpha}
    ### END SOLUTION

# %% check="fit_power_law"
check(fit_power_law, points=4)

# %% [markdown]
# **Look.** First the planted law, from exact and from noisy losses. Which of the three numbers suffers most?

# %% tags=["demo"]
with need("fit_power_law"):
    print("planted        E 1.69   A 406.4   alpha 0.34")
    for noise in (0, 0.01, 0.05):
        torch.manual_seed(3)
        fit = fit_power_law(sizes, [loss + noise * torch.randn(()).item() for loss in planted])
        print(f"noise {noise:<6}   E {fit['E']:.2f}   A {fit['A']:.1f}   alpha {fit['alpha']:.2f}")

# %% [markdown]
# Now a real sweep: five models learn those characters for 120 steps each (about fifteen seconds). A trap: models that are all
# stuck at the *unigram* loss fit a fine "law" of nothing. So we print how far below it each one is.

# %%
def trained(d_model, steps=120):
    """(parameters of the blocks, loss on held-out text) after that many steps."""
    torch.manual_seed(0)
    small = SmallModel(ModelConfig(len(letters), d_model, 4, 1, 4 * d_model, 64))
    optimizer = torch.optim.AdamW(small.parameters(), lr=4e-3, betas=(0.9, 0.99))
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 4e-3 * min((step + 1) / 20, (steps - step) / 50, 1)
        inputs, targets = batch_of(train, torch.randint(len(train) - 65, (16,)))
        loss = F.cross_entropy(small(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    inputs, targets = batch_of(held_out, range(0, len(held_out) - 65, 65))
    with torch.no_grad():
        loss = F.cross_entropy(small(inputs).flatten(0, 1), targets.flatten())
    return sum(part.numel() for part in small.blocks.parameters()), loss.item()

# %% tags=["demo"]
with need("fit_power_law"):
    assert fit_power_law(sizes, planted)["E"] > 0, "first the exercise, then the sweep"
    start = time.perf_counter()
    swept, lost = zip(*(trained(d_model) for d_model in (8, 16, 32, 64, 128)), strict=True)
    for n_params, loss in zip(swept, lost, strict=True):
        print(f"{n_params:7,} parameters in the blocks: {loss:.3f} nats, {unigram - loss:.2f} below unigram")
    print(f"{time.perf_counter() - start:.0f} s")
    fit, fewer = fit_power_law(swept, lost), fit_power_law(swept[:-1], lost[:-1])
    for name, law in (("all five", fit), ("without the largest", fewer)):
        print(f"{name:20}", {key: round(value, 2) for key, value in law.items()})
    places = [swept[0] * 1.3**step for step in range(22)]
    law = [fit["E"] + fit["A"] * place ** -fit["alpha"] for place in places]
    show(plots.loss_by_size(swept, lost, {"fitted law": (places, law)}, ("unigram", unigram),
                            title="Five small models, equal steps", xlabel="parameters in the blocks"),
         f"Five points falling from {lost[0]:.2f} to {lost[-1]:.2f}, ever more slowly, and the fitted curve among them.")
    reveal("three-numbers", "is not tested at all", "Five points leave two to disagree, and E still moves. People use dozens.")

# %% [markdown] reflect="fit_power_law"
# All five saw the same few tokens, and one point less moves the floor far. Why is this E no statement about Python's text, and
# what would you change to make it one? Your sentence:

# %% [markdown]
# ---
# ## 5.17 Spend a budget
# *more · about 20 min*
#
# Training costs about 6 operations per parameter and token: two in the forward pass, four backwards. With a law in both, N
# parameters and D tokens,
#
# > **loss = E + A · N^(−α) + B · D^(−β)**, and 6 · N · D = budget
#
# more of one is less of the other. Too few parameters: the first term stays. Too few tokens: the second does.

# %%
predict("budget", "You get 100 times the budget, and both exponents are alike. The best model has…",
        ["100 times the parameters", "10 times the parameters, 10 times the tokens", "the same size, more tokens"])

# %% [markdown]
# ### Exercise 5.17 · `compute_optimal` · more · about 15 min
# - **Build** the best split of a budget: `n_params, n_tokens`. By a formula (put D = flops / 6N into the law, and set the slope
#   in N to 0) or by a search.
# - **Done when** the check below passes: within 1 %, and 6 · N · D is the whole budget.
#
# <details><summary>Hint 1 · where</summary>One free number is left: N.</details>
# <details><summary>Hint 2 · what</summary>At the bottom of the valley, αA·N^(−α) = βB·D^(−β).</details>
# <details><summary>Hint 3 · how</summary>N = (αA / βB)^(1/(α+β)) · (flops / 6)^(β/(α+β)).</details>

# %% exercise="compute_optimal"
def compute_optimal(flops, fit):
    """The cheapest loss that a budget can buy.

    fit: a dict with E, A, alpha, B, beta
    Returns n_params, n_tokens (floats), with 6 · n_params · n_tokens = flops.
    Paper: Hoffmann et al. 2022, §3.3, eq. 4.
    """
    ### BEGIN SOLUTION
    total = fit["alpha"] + fit["beta"]
    balance = fit["alpha"] * fit["A"] / (fit["beta"] * fit["B"])
    n_params = balance ** (1 / total) * (flops / 6) ** (fit["beta"] / total)
    return n_params, flops / 6 / n_params
    ### END SOLUTION

# %% check="compute_optimal"
check(compute_optimal, points=3)

# %% tags=["demo"]
with need("compute_optimal"):
    published = dict(E=1.69, A=406.4, alpha=0.34, B=410.7, beta=0.28)  # Hoffmann et al. 2022, approach 3
    for flops in (1e18, 1e20, 1e22, 1e24):
        n_params, n_tokens = compute_optimal(flops, published)
        print(f"{flops:.0e} operations: {n_params:.1e} parameters, {n_tokens:.1e} tokens, {n_tokens / n_params:.0f} per parameter")
    reveal("budget", "10 times the parameters, 10 times the tokens", "N grows with the power beta/(alpha + beta), here one half.")

# %% [markdown]
# **Play.** Take the best split of a budget, then a model ten times too large or too small. What does the mistake cost, and in
# which direction is it cheaper?

# %% tags=["demo"]
with need("compute_optimal"):
    widgets.scaling_explorer(published, compute_optimal)

# %%
print(*notes.example("002-parameters-alone-data").errata)  # a large model on too little data: what do the notes say?

# %% [markdown] reflect="compute_optimal"
# A model that many people will use for years is often trained on far more tokens than this. Which cost does the formula leave
# out? Your sentence:

# %% [markdown]
# ---
# ## 5.18 Say it aloud
# *core · about 15 min*
#
# Four questions that interviewers ask. Write as you would speak: five to eight sentences. A person grades these.

# %% [markdown]
# **Question 1. How does a Transformer behave in training and in use? What is teacher forcing, and what does it cost?**
#
# | points | for |
# |---|---|
# | 1 | training: shifted targets, all places in one pass, the causal mask keeps it honest |
# | 1 | use: one pass per token on its own words; same weights and mask, dropout off |
# | 1 | teacher forcing: the truth *instead of* the previous prediction |
# | 1 | exposure bias: prefixes with errors were never seen; how to measure it |

# %% [markdown] written="training-and-use" points=4
# ### BEGIN SOLUTION
# It is one network with one set of weights. In training the whole target is known, so the decoder reads it shifted by one,
# with a begin mark in front, and predicts every next token in one parallel pass; the causal mask makes sure that no place
# sees what it should guess. That is teacher forcing: each guess follows the true prefix, not the model's own. In use there is
# no truth, so it generates one token per pass and reads its own words; the mask stays, dropout is switched off. The price is
# exposure bias: an error leads to prefixes that training never showed, and errors can pile up. I would measure it as the share
# of right tokens after true prefixes minus the share on its own output. Better models make the gap smaller; sampling own
# prefixes in training is one of several remedies.
# ### END SOLUTION

# %% [markdown]
# **Question 2. Which decoding strategies do you know, and when do you use which?**
#
# | points | for |
# |---|---|
# | 1 | one loop, several ways to choose; greedy is fast, repeatable, locally best |
# | 1 | beams: sums of log-probabilities, finished ones compete, length penalty; translation, speech |
# | 1 | sampling with temperature, top-k, top-p: what each does, and in which order |
# | 1 | a sensible choice for three tasks, and that the most probable text is not always the best |

# %% [markdown] written="decoding" points=4
# ### BEGIN SOLUTION
# All share one loop: score, choose, append. Greedy takes the best token; it is cheap and repeatable, but best at each step is
# not best overall, and it tends to loop. Beam search keeps several beginnings by their summed log-probability and lets
# finished and unfinished ones compete, with a length penalty because sums favour short output. It suits translation and
# speech, where one right answer exists. For open text I sample: temperature reshapes all shares, top-k cuts after a fixed
# number, top-p after a fixed mass, so it keeps few tokens when the model is sure and many when it is not. The usual order is
# temperature, top-k, top-p. Code: low temperature or greedy; chat: temperature near 0.8 with top-p 0.9 or so; translation:
# four or five beams. The most probable text as a whole is often short and bland, so more search is not always better.
# ### END SOLUTION

# %% [markdown]
# **Question 3. What is a KV cache, what does it save, and what does it cost?**
#
# | points | for |
# |---|---|
# | 1 | what is kept: keys and values of all processed tokens, the prompt's too, per layer and head; why they never change |
# | 1 | per step: projections O(t) → O(1), scores O(t²) → O(t); which of the two dominates when |
# | 1 | memory: 2 · layers · kv heads · d_head · length · bytes, per user; what grouped heads do |
# | 1 | positions and masks with a cache; prefill against decoding, memory-bound steps |

# %% [markdown] written="kv-cache" points=4
# ### BEGIN SOLUTION
# With a causal mask a token's keys and values depend on nothing later, so they never change and need not be computed again. The
# cache keeps them for every layer and key head, for the prompt as well as for generated tokens. A step then feeds one token:
# projections and feed-forward layers cost the same at every step instead of growing with the length, and scores grow with t
# instead of t². For usual lengths the first saving is the larger one; the often quoted T³ to T² is about scores alone. The price
# is memory, 2 · layers · kv heads · d_head · length · bytes for each user, which limits batch and context; grouped heads or fewer
# bits shrink it. New tokens need their true position and a mask that is aligned to the end. Prefill is one large pass and
# limited by arithmetic; a decode step reads all weights and the cache for one token and is limited by memory bandwidth.
# ### END SOLUTION

# %% [markdown]
# **Question 4. Why do Transformers scale, what has to grow together, and where does the promise end?**
#
# | points | for |
# |---|---|
# | 1 | the machine: all places at once, large matrix products; steps in a row grow with depth, not with length |
# | 1 | the stack: residual streams and norms keep many equal blocks trainable |
# | 1 | the law: loss as floor + term in parameters + term in tokens; 6·N·D operations; both must grow; who overfits |
# | 1 | the limits: a fit inside its range, scores that grow with t², memory and bandwidth in use, data that runs out |

# %% [markdown] written="why-scale-up" points=4
# ### BEGIN SOLUTION
# In training all places of all sentences go through at once, so the work is large matrix products, which is what accelerators
# are good at; steps that must wait for each other grow with depth, not with length. Residual streams and norms keep a tall stack
# of equal blocks trainable, so growing means more of the same. What one gains is then regular: within the range that was tried,
# the loss follows E + A/N^a + B/D^b, a floor that nothing removes plus one term for parameters and one for tokens. The budget is
# about 6·N·D operations. Where only N grows, the term in D remains: a large model with little data overfits, it does not
# underfit; a small model with much data is the one that cannot use it. With nearly equal exponents both grow about as the root
# of the budget. The law is a fit, not a theorem, and says nothing about single skills. Scores grow with t², each user's cache
# takes memory, decoding waits for bandwidth, and good text runs out; a model that serves many is trained smaller and longer.
# ### END SOLUTION

# %% [markdown]
# ### The phase on one screen

# %%
show(plots.two_lives(),
     "Two rows of boxes. Training: shifted sentence, one pass, loss over kept targets, clip, AdamW step. Use: prompt, one "
     "pass per token, dials, draw, append, back to the pass.")

# %% [markdown]
# | you can now | with |
# |---|---|
# | say what a decoder reads and what it should say | `shift_targets` |
# | price guesses, skipping padding | `cross_entropy` `perplexity` |
# | update weights, on batches of any size | `AdamW` `learning_rate` `clip_grad_norm_` `train_step` |
# | measure what teacher forcing hides | `exposure_gap` |
# | choose words | `greedy_decode` `filter_logits` `sample` `beam_search` |
#
# Five slips to remember: targets not shifted; padding in the mean; decay in Adam's gradient; dropout left on; the word that
# crosses p thrown away.
#
# Next: **phase 6**, families of models, and systems built around them.
