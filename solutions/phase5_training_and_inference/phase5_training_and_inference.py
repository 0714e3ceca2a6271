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
# | [5.20 Every number of the notes](#5.20-Every-number-of-the-notes) | – | 6 | more |
# | [5.21 Say it aloud](#5.21-Say-it-aloud) | three answers, recap | 12 | core |
#
# The core path is at most three hours; minutes are estimates until learners have been timed. You can stop after any
# section. To come back, run the setup cell and the cells you have solved.

# %% [markdown]
# A model here is anything with `model(tokens) -> logits`: from (batch, seq_len) to (batch, seq_len, vocab_size). The
# course lends a small one; in phase 6 you build a real one from your own blocks. As always: **rows are tokens**, and **a
# mask is `True` where looking is allowed**.

# %% tags=["setup"]
import math

import torch
import torch.nn.functional as F
from torch import nn

from utils import check, notes, plots, widgets
from utils.config import ModelConfig
from utils.lesson import need, predict, reveal, show
from utils.observe.fixtures_model import SmallModel

torch.set_printoptions(precision=3, sci_mode=False)

# %% [markdown]
# ---
# ## 5.1 One network, two data flows
# *core · about 6 min*
#
# Take one sentence, `<START> J' aime l'apprentissage <END>`. To learn from it, a decoder makes four guesses. To say it, it
# makes four guesses, too. What differs is what it has read before each guess.
#
# - **Training**: the truth up to that place. All four guesses come from *one* pass, because nothing waits for anything.
# - **Use**: its own words up to that place. Guess two cannot begin before guess one is made: four passes.

# %%
predict("passes", "A target of 1,000 tokens. Training and generating it take how many passes through the decoder?",
        ["1 and 1", "1 and 1,000", "1,000 and 1,000"])

# %%
ex = notes.example("002-inference-steps")
for read, guess in zip(ex.correct["inputs"], ex.correct["targets"]):
    print(f"{' '.join(read):40} → {guess}")
reveal("passes", "1 and 1,000", "The rows above are four passes in use; in training the last row's pass holds them all.")

# %% [markdown]
# In training the causal mask makes the last row contain the others: place 2 cannot see what place 4 reads. In use the mask
# stays, although nothing lies ahead: dropping it would change what the prompt's places compute.
#
# "All but the data flow is identical", say the notes. One thing is not: dropout. Forget `model.eval()` and the same prompt
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
# And when does a model stop? Only if it has learned to say `eos`. And padding? It must cost nothing, so its targets are
# −100, a mark that the loss skips.
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
# **Look.** The sentence of the notes, and a shorter one beside it. Read down: what is read, what is to be said.

# %% tags=["demo"]
with need("shift_targets"):
    words = ["<PAD>", "<START>", "<END>", "J'", "aime", "l'apprentissage"]
    inputs, targets = shift_targets(torch.tensor([[3, 4, 5], [3, 4, 0]]), 1, 2, 0)
    names = [[words[i] for i in inputs[0]], [words[i] for i in targets[0]]]
    print(notes.example("002-train-shift").compare(names[0], "decoder_input"))
    print(notes.example("002-train-shift").compare(names[1], "labels"))
    show(plots.shift_table(inputs, targets, words),
         "Two sentences as rows of boxes: inputs above, targets below, one place to the left. The short sentence "
         "ends with END; the target under its padding is crossed out.")

# %% [markdown] reflect="shift_targets"
# The notes feed the truth "alongside the previous prediction". Where in your two tensors is the previous prediction? Your
# sentence:

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
# Two more things every real loss does. It **skips** places (padding) and divides by the places it kept. And it may **smooth**:
# the target gets 1 − ε, and ε is spread evenly over all V words, the target included. That keeps a model from being paid for
# ever larger logits.

# %% [markdown]
# ### Exercise 5.3a · `cross_entropy` · core · about 20 min
# - **Build** the mean over kept targets of `−Σ q · log p`, with `q = (1 − ε) · one-hot + ε/V`.
# - Nothing kept: 0, with gradients of zero. Refuse shapes that do not fit, and kept targets outside 0…V−1.
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

    logits (…, V); targets (…) int64; places whose target is ignore_index are skipped
    Returns a scalar tensor; 0 with zero gradients if nothing is kept.
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
    target, gaps = torch.tensor([0]), torch.linspace(-4, 14, 91)
    curves = {f"ε = {eps}": [cross_entropy(torch.tensor([[gap, 0, 0, 0]]), target, -100, eps).item()
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
# <details><summary>Hint 3 · how</summary><code>sum(l * c for l, c in zip(losses, counts)) /
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
    total = sum(loss * count for loss, count in zip(losses, counts))
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

# %% [markdown] reflect="perplexity"
# The last line is the chain rule: probabilities multiply, prices add. Two models have different tokenizers. May their
# perplexities be compared? Your sentence:

# %% [markdown]
# ---
# ## 5.4 A step for each weight
# *more · about 30 min*
#
# Plain gradient descent takes one learning rate for all. But a rare word's embedding sees a gradient once in a while and a
# norm's γ sees one always. Adam divides each step by the usual size of *that* weight's gradient. (The notes name no
# optimiser at all; every Transformer you know was trained with this one.)

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
# > m ← β₁ m + (1 − β₁) g  v ← β₂ v + (1 − β₂) g²
# > **p ← p − lr · m̂ / (√v̂ + eps)**, with m̂ = m / (1 − β₁ᵗ), v̂ = v / (1 − β₂ᵗ)
#
# The divisions undo the start at 0: after one step m is only (1 − β₁) g. Here is what happens without them:

# %%
g, b1, b2 = 0.3, 0.9, 0.999
m, v = (1 - b1) * g, (1 - b2) * g**2
print(f"uncorrected step {m / v**0.5:.2f} · lr, corrected {(m / (1 - b1)) / (v / (1 - b2)) ** 0.5:.2f} · lr")

# %% [markdown]
# The **W** stands for weight decay: each step also pulls p towards 0, by `lr · wd · p`. Adding `wd · p` to the *gradient*
# looks the same and is not: Adam divides it by √v̂, so weights with large gradients would hardly decay. AdamW keeps it
# apart.
#
# ### Exercise 5.4 · `AdamW` · more · about 26 min
# - **Build** `step`, `zero_grad`, `state_dict`, `load_state_dict`. First `p ← p − lr·wd·p`, then the Adam step.
# - A parameter without gradient is skipped: no decay, no count. Each has its own `t`. `params` may be a generator.
# - **Not allowed** torch's ready-made optimisers. **Done when** 50 steps agree with them to seven digits.
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
# steep side.

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
         "creeps along; AdamW moves along at an even pace and comes near the middle within 40 steps.")

# %% [markdown] reflect="AdamW"
# For a model of 7 billion parameters in 16 bits: how many more bytes do m and v need in 32 bits? Your sentence:

# %% [markdown]
# ---
# ## 5.5 How large a step
# *more · about 12 min*
#
# At the first steps √v̂ rests on a few batches, so a full step can be a wild one: begin small and **warm up**. Towards the
# end the steps should shrink, so that the noise of single batches averages out: half a **cosine** down to a floor.
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

# %% [markdown] reflect="learning_rate"
# You stop a run at half of `total` because the budget is gone. Which of the two curves left you a better model, and why? Your
# sentence:

# %% [markdown]
# ---
# ## 5.6 One training step
# *more · about 30 min*
#
# Now and then a batch is unlucky and its gradient is a hundred times the usual one. **Clipping** limits the damage: one norm
# over *all* gradients together; if it is above the limit, all shrink by the same factor. The direction stays.

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

    parameters: any iterable; those without gradient are skipped
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
# A batch that does not fit into memory is cut into **micro-batches**: gradients add up in `.grad`, one step at the end. Then
# it should not matter how the batch was cut. The usual recipe is `loss / number_of_micro_batches`. With padding it is wrong:

# %%
prices = [torch.tensor([1.0, 1.0, 1.0]), torch.tensor([5.0])]  # three real words, and one
print("mean of the two means:", sum(p.mean() for p in prices) / 2, "  mean of all words:", torch.cat(prices).mean())

# %% [markdown]
# ### Exercise 5.6b · `train_step` · more · about 18 min
# - **Build** one update that equals the update on the whole batch: clear old gradients, accumulate the mean over *all kept
#   tokens of all micro-batches*, clip once (unless `max_norm` is None), one `step()`.
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
    for (inputs, targets), count in zip(micro_batches, counts):
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
# model has 150 steps to find that out.

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
    def trained(n_steps, peak=0.02):
        torch.manual_seed(1)
        model, losses = SmallModel(SIZES), []
        made = AdamW(model.parameters(), lr=0.0, weight_decay=0.01)
        for step in range(n_steps):
            made.lr = learning_rate(step, peak, n_steps // 10, n_steps, peak / 20)
            rows = TRAIN[torch.randint(300, (32,))]
            micro = [(part[:, :-1], part[:, 1:]) for part in rows.split(16)]
            losses.append(train_step(model, made, micro, 1.0))
        return model, losses

    model, losses = trained(150)
    show(plots.training_curve(losses, 7),
         f"Loss over 150 steps: it starts at {losses[0]:.2f}, near ln 7 = 1.95, which a dotted line marks, and ends at "
         f"{losses[-1]:.2f}.")

# %% [markdown] reflect="train_step"
# The curve cannot reach 0 here, even with a perfect model. Which of the eleven targets in a row is a matter of luck? Your
# sentence:

# %% [markdown]
# ---
# ## 5.7 On its own words
# *more · about 15 min*
#
# In training every word before the guess is true. In use one wrong word stands in the prefix for ever, and the model has
# never seen such prefixes: **exposure bias**. The notes name it and leave out its page. So measure it: how often is the
# next word right after the *true* prefix, and how often after the model's *own*?

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
    found = {n: exposure_gap(trained(n)[0], (TEST[:, :2], TEST[:, 2:])) for n in (20, 40, 60, 100, 150)}
    for n, gap in found.items():
        print(f"{n:4} steps: true prefix {gap['teacher_forced']:6.1%}, own words {gap['free_running']:6.1%}, "
              f"gap {gap['gap']:6.1%}")
    show(plots.exposure(found),
         "Share of right words against training steps, after the true prefix and on own words; the numbers are printed "
         "above. The gap is widest in the middle and closes for a model that makes no errors.")
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
# **Look.** The notes' own two steps, "I love…", as a table of probabilities that your function walks through. And what the
# loop does with rows that end:

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
    print(notes.example("002-greedy").compare([WORDS[i] for i in said[:2]], "choice"))
    ex = notes.example("000-output-argmax")
    scores = ex.inputs["steps"][0]
    best = greedy_decode(lambda tokens: torch.tensor([[*scores.values()]]), torch.tensor([[0]]), 1, -1, 0)[0, 1]
    print(ex.compare([[*scores][best]], "choice"))
    reveal("row-ends", "fill row 0 with padding and go on", "A batch is one tensor; a row cannot leave it.")

# %% [markdown] reflect="greedy_decode"
# "The decoder has generated `<s>`", say the notes of the first step. What is wrong with that? Your sentence:

# %% [markdown]
# ---
# ## 5.9 Chance with a dial
# *core · about 28 min*
#
# Greedy text is dull, and it loops. So let chance choose, but not freely: among 50,000 words the unlikely ones are many,
# and together they are drawn often. Three dials:
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
# Which k is right? Where the model is sure, three words may be two too many; where it is not, a hundred may be sensible. The
# number that top-p keeps adapts:

# %%
sure = torch.tensor([0.90, 0.06, 0.02, 0.01, 0.01])
unsure = torch.tensor([0.22, 0.21, 0.20, 0.19, 0.18])
for name, shares in (("sure", sure), ("unsure", unsure)):
    before = shares.cumsum(0) - shares
    print(f"{name:7} top-k 3 keeps 3, top-p 0.85 keeps {(before < 0.85).sum()}; before each word:", before)

# %% [markdown]
# Read the last print: a word is kept if what stands *before* it has not reached p yet. So the word that crosses p stays, and
# at least one word stays.
#
# ### Exercise 5.9 · `filter_logits` · core · about 25 min
# - **Build** it in this order: divide by the temperature; keep the `top_k` largest; of these, with shares taken anew, the
#   fewest that reach `top_p`. Kept entries hold logits / temperature, all others −∞.
# - Temperature 0 keeps the best word only. Refuse: temperature below 0, `top_k` below 1, `top_p` outside (0, 1].
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Everything happens on the last axis. Top-p needs it sorted, and the answer must
# not be.</details>
# <details><summary>Hint 2 · what</summary><code>sort</code> gives values and their old places; <code>scatter</code> brings
# a sorted mask back there.</details>
# <details><summary>Hint 3 · how</summary><code>probs, order = logits.softmax(-1).sort(-1, descending=True)</code>;
# <code>drop = probs.cumsum(-1) - probs >= top_p</code>; <code>zeros.scatter(-1, order, drop)</code>. Temperature 0 is
# <code>top_k</code> 1.</details>

# %% exercise="filter_logits"
def filter_logits(logits, temperature=1.0, top_k=None, top_p=None):
    """Leave only the words that may be drawn.

    logits (…, vocab) -> the same shape: logits / temperature where kept, −inf elsewhere
    Returns a new tensor. Raises ValueError for temperature < 0, top_k < 1, top_p outside (0, 1].
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
    words = [word for word, share in zip(FIRST, kept["002-topp09"]) if share > 0]
    print(notes.example("002-topk3").compare([p for p in kept["002-topk3"].tolist() if p], "renormalised"))
    print(notes.example("002-topp09").compare(words, "kept"))
    sharpest = [filter_logits(shares.log(), t).softmax(-1).max().item() for t in (0.5, 1, 2)]
    print(notes.example("002-temperature").compare(sharpest, "max_prob"))

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
    for label, options in (("as it is", {}), ("T = 0.3", dict(temperature=0.3)), ("top-k 2", dict(top_k=2))):
        drawn = sample(filter_logits(logits, **options).expand(10_000, -1), generator)
        print(f"{label:9}", {name: f"{(drawn == i).double().mean():.3f}" for i, name in enumerate(names)})
    first, second = (sample(logits.expand(8, -1), generator).tolist() for _ in range(2))
    print("two calls:", first, second)
    reveal("same-seed", "other words", "A generator moves forward. The same seed *anew* gives the same words.")

# %% [markdown] reflect="sample"
# A user reports a bad answer of a sampled chatbot. What must have been logged to reproduce it? Your sentence:

# %% [markdown]
# ---
# ## 5.11 Several futures at once
# *more · about 30 min*
#
# Greedy takes the best first word, even if everything after it is poor. A **beam search** keeps the `n_beams` best
# beginnings and lets them compete. The notes promise that it "recovers from early suboptimal choices". Then comes their
# example:

# %%
predict("beam-notes", "In the notes' example with 2 beams, the best sentence is…",
        ["deep learning (greedy's)", "machine learning"])

# %%
ex = notes.example("002-beam-beats-greedy")
for sentence, joint in ex.correct["joint"].items():
    print(f"{sentence:18}{joint:.4f}")
print("best equals greedy:", ex.correct["best_equals_greedy"], "·", notes.example("002-beam-vs-greedy-tables").errata[0].id)
reveal("beam-notes", "deep learning (greedy's)", "Their example does not show what it is there for.")

# %% [markdown]
# Here is one that does. After "deep" the shares are spread, after "machine" one word is nearly sure. Greedy walks into the
# trap: 0.4 · 0.4 = 0.16, while 0.35 · 0.9 = 0.315.

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
            for (tokens, total), row in zip(alive, rows)
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
    print(notes.example("002-beam").compare([" ".join(WORDS[i] for i in tokens[1:]) for tokens, _ in found], "top"))

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
# ## 5.20 Every number of the notes
# *more · about 6 min*
#
# The rest of the worked numbers, through what you built. `you ✓`: yours is what comes out; `notes ✗`: theirs is not, and
# the code behind it names the erratum (`notes.erratum("A22")` tells its story).

# %%
def tally(mine):
    """One line per number: does yours agree with the recomputation, and did the notes?"""
    for name, value in mine.items():
        value, key = value if isinstance(value, tuple) else (value, None)
        ex = notes.example(name)
        verdict = ex.compare(value, key)
        you, they = ("✓" if agrees else "✗"
                     for agrees in (verdict.agrees, verdict.agrees_with_notes))
        print(f"{name:36}you {you}  notes {they}  {' '.join(slip.id for slip in ex.errata)}")


def said_by(name):
    """The targets of a decoder's steps, one after the other."""
    return notes.example(name).inputs["target"]

# %% tags=["demo"]
with need("shift_targets"):
    for name in ("000-decoder-iterations", "004-decode-step"):
        words = said_by(name)
        ends = words[-1] in ("<EOS>", "<END>")
        inner = torch.arange(1, len(words) - ends)[None]
        inputs, targets = shift_targets(inner, 0, len(words) - 1, -1)
        steps = len(words) - 1
        tally({name: ([words[i] for i in targets[0, :steps].tolist()], "targets")})

# %% tags=["demo"]
with need("sample", "filter_logits", "beam_search"):
    weights = torch.tensor(notes.example("002-sampling-sum").inputs["w"]).double()
    drawn = sample(weights.log().expand(1000, -1), torch.Generator().manual_seed(0))
    (best, _), *_ = beam_search(love, 8, 0, 2, 2, 0.0)
    difference = notes.example("002-beam-vs-greedy-tables").inputs
    joint = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(0)).double()
    joint /= joint.sum()
    chain = joint.sum((1, 2))[:, None, None] * (joint.sum(2) / joint.sum((1, 2))[:, None])[..., None]
    chain = chain * joint / joint.sum(2, keepdim=True)
    tally({"002-sampling-sum": (weights.sum(), "sum"),
           "002-beam-beats-greedy": ([WORDS[i] for i in best[1:]] == ["deep", "learning"], "best_equals_greedy"),
           "002-beam-vs-greedy-tables": (difference["a"] - difference["b"], "difference"),
           "002-chain-rule": (torch.allclose(chain, joint), "holds")})

# %% [markdown]
# ---
# ## 5.21 Say it aloud
# *core · about 12 min*
#
# Three questions that interviewers ask. Write as you would speak: five to eight sentences. A person grades these.

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
