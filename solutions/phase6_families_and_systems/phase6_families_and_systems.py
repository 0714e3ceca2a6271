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
# # Phase 6 · Model families and systems
#
# You have every part. Now they become models that people use: one that reads, one that writes, one that turns text into
# text. The second half asks what it takes to serve them: fewer bits, shorter memory, quicker answers.
#
# | section | you build | minutes | path |
# |---|---|---|---|
# | [6.1 Three families](#6.1-Three-families) | – | 5 | core |
# | [6.2 Guess the hidden word](#6.2-Guess-the-hidden-word) | `mask_tokens` | 22 | core |
# | [6.3 One vector for a sentence](#6.3-One-vector-for-a-sentence) | `mean_pool` `EncoderClassifier` | 27 | core |
# | [6.4 What reading first is worth](#6.4-What-reading-first-is-worth) | – | 8 | core |
# | [6.5 The next word](#6.5-The-next-word) | `GPT` | 30 | core |
# | [6.6 Text in, text out](#6.6-Text-in,-text-out) | `span_corrupt` `prefix_lm_mask` | 27 | more |
# | [6.7 Which one, when](#6.7-Which-one,-when) | – | 6 | core |
# | [6.8 A picture is a sentence](#6.8-A-picture-is-a-sentence) | `patchify` | 18 | more |
# | [6.9 Many experts, few at work](#6.9-Many-experts,-few-at-work) | `moe_route` | 30 | more |
# | [6.10 Attention in tiles](#6.10-Attention-in-tiles) | `tiled_attention` | 45 | stretch |
# | [6.11 A model is not a system](#6.11-A-model-is-not-a-system) | – | 6 | core |
# | [6.12 Learn from a larger model](#6.12-Learn-from-a-larger-model) | `distillation_loss` | 22 | more |
# | [6.13 One block, many layers](#6.13-One-block,-many-layers) | `SharedStack` | 6 | more |
# | [6.14 Fewer bits](#6.14-Fewer-bits) | `quantize` `dequantize` | 25 | core |
# | [6.15 A layer that keeps less](#6.15-A-layer-that-keeps-less) | `QuantLinear` | 19 | more |
# | [6.16 Two numbers in a byte](#6.16-Two-numbers-in-a-byte) | `pack_int4` `unpack_int4` | 17 | stretch |
# | [6.17 A window on the past](#6.17-A-window-on-the-past) | `sliding_window_mask` | 12 | more |
# | [6.18 A cache that stops growing](#6.18-A-cache-that-stops-growing) | `RollingKVCache` | 24 | stretch |
# | [6.19 Leaving early](#6.19-Leaving-early) | `early_exit_forward` | 24 | stretch |
# | [6.20 Guess, then verify](#6.20-Guess,-then-verify) | `speculative_accept` | 25 | more |
# | [6.21 Several tokens a pass](#6.21-Several-tokens-a-pass) | `speculative_generate` | 50 | stretch |
# | [6.22 What a machine can do](#6.22-What-a-machine-can-do) | `serving_plan` | 29 | core |
# | [6.23 Here or there](#6.23-Here-or-there) | `route_request` | 15 | more |
# | [6.24 Numbers first](#6.24-Numbers-first) | `design_numbers` | 15 | more |
# | [6.25 Six systems](#6.25-Six-systems) | one answer of six | 20 | more |
# | [6.26 Say it aloud](#6.26-Say-it-aloud) | two answers, recap | 8 | core |
#
# The core path is about three hours; minutes are estimates until learners have been timed. You can stop after any
# section. To come back, run the setup cell and the cells you have solved.

# %% [markdown]
# What you built before is used here. A part that is not finished there is lent by the course, and the setup cell says
# so. As always: **rows are tokens**, and **a mask is `True` where looking is allowed**. Where an exercise says "refused" or
# "raises", it means a `ValueError` **with words**: `raise ValueError("k must be at least 1")`.
#
# | lent or yours | made by | called as |
# |---|---|---|
# | LearnedPositions | `(max_len, d_model)` | `positions(x, offset=0)`: adds its rows |
# | Encoder | `(n_layers, d_model, n_heads, d_ff, norm_first, dropout)` | `encoder(x, attn_mask=None)` |
# | EncoderBlock | `(d_model, n_heads, d_ff, norm_first, dropout)` | `block(x, attn_mask=None)` |
# | LayerNorm | `(d_model)` | `norm(x)` |
# | GroupedQueryAttention | `(d_model, n_heads, n_kv_heads)` | `attention(x, attn_mask=None)` |
# | masks | | `causal_mask(q_len, kv_len=None)`, `padding_mask(pad_mask)`, `combine_masks(*masks)`: None is left out |

# %% tags=["setup"]
import math
from copy import deepcopy
from fractions import Fraction
from functools import cache

import torch
import torch.nn.functional as F
from torch import nn

from utils import check, notes, plots, widgets
from utils.config import ModelConfig
from utils.lesson import need, predict, reveal, show
from utils.mycode import mine
from utils.observe.fixtures_model import SmallModel

torch.set_printoptions(precision=3, sci_mode=False)
torch.set_num_threads(1)  # for matrices as small as here a second thread only waits

LearnedPositions = mine("LearnedPositions")
causal_mask, combine_masks, padding_mask = map(mine, ("causal_mask", "combine_masks", "padding_mask"))
GroupedQueryAttention, sdpa = mine("GroupedQueryAttention"), mine("sdpa")
Encoder, EncoderBlock, LayerNorm = map(mine, ("Encoder", "EncoderBlock", "LayerNorm"))
init_weights, count_parameters = mine("init_weights"), mine("count_parameters")

# %% [markdown]
# ---
# ## 6.1 Three families
# *core · about 5 min*
#
# The same blocks make three families. What differs is **who may look at whom**, and **what is predicted**:
#
# - **encoder-only** (BERT): every token sees every token. Reads; out comes a vector per token.
# - **decoder-only** (GPT): a token sees itself and what came before. Writes, one token at a time.
# - **encoder-decoder** (T5): reads one text both ways, writes another. The prefix mask gets the same with one stack.

# %%
both = torch.ones(6, 6, dtype=torch.bool)
past = both.tril()
prefix = past | (torch.arange(6) < 3)
show(plots.mask_grids({"encoder-only": both, "decoder-only": past, "prefix of 3": prefix}),
     "Three masks of 6 by 6. Encoder-only: dots everywhere. Decoder-only: dots on and below the diagonal. Prefix: the "
     "first three columns are full, the rest is causal.")

# %%
predict("reads-all", "“A decoder-only model does not read the full input.” Its last token has read…",
        ["the whole prompt", "half of it", "only itself"])

# %%
print("tokens that the last one sees:", int(past[-1].sum()), "of 6; that the first one sees:", int(past[0].sum()))
reveal("reads-all", "the whole prompt", "Each place looks left only, but the last has all of it on its left.")
print(notes.erratum("D34").correction)

# %% [markdown]
# Two more slips to be warned of. The notes draw crosses over stacked encoder blocks and full self-attention, as if
# an encoder-only model had neither; what is gone is the decoder alone. And they say such models use "no masking":

# %%
print(notes.erratum("D32").correction)

# %% [markdown]
# ---
# ## 6.2 Guess the hidden word
# *core · about 22 min*
#
# How does a reader learn without labels? Hide some words and ask for them: *masked language modelling*. Left **and**
# right context help, which a next-word model cannot use.
#
# The obvious way: replace 15 % of the words by `<mask>`. But in use no `<mask>` ever comes. Then the model is only good
# at tokens that it never meets.

# %% [markdown]
# BERT's recipe: choose a place with probability `p`. Of the chosen, **80 %** become `<mask>`, **10 %** become a random
# word, **10 %** stay. All chosen places are predicted, nothing else.

# %%
predict("ten-percent", "Why leave some of the chosen words as they are, and ask for them nevertheless?",
        ["it saves time", "else real words need no good vector", "to keep the text readable"])

# %% [markdown]
# ### Exercise 6.2 · `mask_tokens` · core · about 20 min
# - **Build** `inputs` and `labels`. Eligible are real tokens that are neither in `special_ids` nor `mask_id`.
# - `labels`: the original where chosen, else −100, the target that costs nothing.
# - All chance comes from `generator`. Random words are drawn from the vocabulary without special ids and `mask_id`.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Two draws: which places are chosen, and what becomes of each. Write them as
# masks.</details>
# <details><summary>Hint 2 · what</summary><code>torch.isin</code> finds the ineligible;
# <code>torch.rand(tokens.shape, generator=generator)</code> is one number for each place. Make a tensor of the allowed
# words and pick from it by random index.</details>
# <details><summary>Hint 3 · how</summary>With <code>u</code> the second draw: mask where chosen and u &lt; 0.8, another
# word where chosen and 0.8 ≤ u &lt; 0.9. <code>torch.where(chosen, tokens, -100)</code>.</details>

# %% exercise="mask_tokens"
def mask_tokens(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    """Hide words for an encoder to guess.

    tokens (batch, seq_len) int64; pad_mask the same shape, bool, True = real
    p: share of the real tokens, without special_ids (a list) and mask_id, that is chosen, each by itself
    Returns inputs, labels, both like tokens: of the chosen 80 % are mask_id, 10 % random words, 10 % as they were;
    labels are the original tokens where chosen, else -100.
    Paper: Devlin et al. 2018, §3.1.
    """
    ### BEGIN SOLUTION
    aside = torch.tensor([*special_ids, mask_id])
    words = torch.arange(vocab_size)
    words = words[~torch.isin(words, aside)]
    eligible = pad_mask & ~torch.isin(tokens, aside)
    chosen = eligible & (torch.rand(tokens.shape, generator=generator) < p)
    u = torch.rand(tokens.shape, generator=generator)
    random_words = words[torch.randint(len(words), tokens.shape, generator=generator)]
    inputs = tokens.masked_fill(chosen & (u < 0.8), mask_id)
    inputs = torch.where(chosen & (u >= 0.8) & (u < 0.9), random_words, inputs)
    return inputs, tokens.masked_fill(~chosen, -100)
    ### END SOLUTION

# %% check="mask_tokens"
check(mask_tokens, points=5)

# %% [markdown]
# **Look.** A small world to read: 43 words. Some describe nice things, some nasty ones, and a sentence never mixes them.
# Nobody tells the model so.

# %%
GOOD = "warm bright kind fresh gentle calm clean sweet clever brave lovely crisp honest smooth cosy neat".split()
BAD = "cold dull cruel stale rough noisy dirty bitter silly weak ugly soggy false bumpy messy poor".split()
THINGS = "soup film room song book chair walk".split()
WORDS = ["<pad>", "<mask>", "the", "was", "and", "with", *THINGS, *GOOD, *BAD]
ID = {word: place for place, word in enumerate(WORDS)}
PAD, MASK = 0, 1
SIZES = ModelConfig(vocab_size=len(WORDS), d_model=32, n_heads=2, n_layers=1, d_ff=64, max_len=10)


def sentences(n, generator):
    """(n, 10) tokens, half of them padded after six, and labels: 1 where the adjectives are from GOOD."""
    labels = torch.randint(2, (n,), generator=generator)
    pattern = torch.tensor([ID[word] for word in "the soup was warm and warm with the warm soup".split()])
    tokens = pattern.repeat(n, 1)
    things = torch.randint(len(THINGS), tokens.shape, generator=generator) + ID["soup"]
    adjectives = torch.randint(16, tokens.shape, generator=generator) + 16 * (1 - labels[:, None]) + ID["warm"]
    tokens = torch.where(pattern == ID["soup"], things, torch.where(pattern == ID["warm"], adjectives, tokens))
    short = torch.rand(n, 1, generator=generator) < 0.5
    return tokens.masked_fill(short & (torch.arange(10) >= 6), PAD), labels


def text(tokens):
    return " ".join(WORDS[token] if token >= 0 else "·" for token in tokens)

# %% tags=["demo"]
with need("mask_tokens"):
    generator = torch.Generator().manual_seed(4)
    tokens, labels = sentences(3, generator)
    inputs, targets = mask_tokens(tokens, tokens != PAD, MASK, len(WORDS), 0.3, [PAD], generator)
    for rows in torch.stack([tokens, inputs, targets], 1):
        for name, row in zip(("text", "inputs", "labels"), rows, strict=True):
            print(f"{name:8}{text(row.tolist())}")
        print()
    reveal("ten-percent", "else real words need no good vector", "A word that is shown may be wrong, so it needs a good vector everywhere.")

# %% [markdown] reflect="mask_tokens"
# BERT chooses 15 %. What would get worse at 2 %, and what at 90 %? Your sentence:

# %% [markdown]
# ---
# ## 6.3 One vector for a sentence
# *core · about 27 min*
#
# The encoder gives a vector per token. A verdict needs one per sentence. The plain way is the mean. Over what?

# %%
x = torch.tensor([[[2.0], [4.0], [9.0], [9.0]]])  # two real tokens, then padding
print("mean over the axis:", x.mean(1).item(), "  mean of the real ones:", x[:, :2].mean(1).item())

# %% [markdown]
# ### Exercise 6.3a · `mean_pool` · core · about 5 min
# - **Build** the mean over real tokens. A sentence without any gives zeros, and finite gradients.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>The token axis is axis 1; the mask needs a feature axis to
# multiply.</details>
# <details><summary>Hint 2 · what</summary>Sum of what is real, divided by how many are real. What if that is
# 0?</details>
# <details><summary>Hint 3 · how</summary><code>(x * real).sum(1) / real.sum(1).clamp(min=1)</code> with <code>real =
# pad_mask[..., None]</code></details>

# %% exercise="mean_pool"
def mean_pool(x, pad_mask):
    """Average the vectors of the real tokens.

    x (batch, seq_len, d_model); pad_mask (batch, seq_len) bool, True = real
    Returns (batch, d_model), dtype of x; zeros where nothing is real.
    """
    ### BEGIN SOLUTION
    real = pad_mask[..., None].to(x.dtype)  # (B, T, 1)
    return (x * real).sum(1) / real.sum(1).clamp(min=1)  # (B, M)
    ### END SOLUTION

# %% check="mean_pool"
check(mean_pool, points=2)

# %% tags=["demo"]
with need("mean_pool"):
    real = torch.tensor([[True, True, False, False]])
    print("yours:", mean_pool(x, real).item())
    print("tokens exchanged:", mean_pool(x[:, [1, 0, 2, 3]], real).item())

# %% [markdown]
# Why no decoder? To classify, nothing has to be written. One pass, one verdict:
#
# > **classifier( mean( encoder( table + positions ) ) )**
#
# ### Exercise 6.3b · `EncoderClassifier` · core · about 18 min
# - **Build** it from `token_embedding`, `positions` (your LearnedPositions), `encoder`, `classifier` (an `nn.Linear`).
# - Dropout acts on the embedded input. Here **no** √d_model: the positions are learned, so sizes settle by themselves.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary><code>config</code> has all sizes: <code>vocab_size, d_model, n_heads,
# n_layers, d_ff, max_len, norm_first, dropout</code>.</details>
# <details><summary>Hint 2 · what</summary>The padding is hidden twice: in attention, and in the mean.</details>
# <details><summary>Hint 3 · how</summary><code>y = encoder(drop(positions(token_embedding(tokens))),
# attn_mask=padding_mask(pad_mask))</code>, then <code>classifier(mean_pool(y, pad_mask))</code></details>

# %% exercise="EncoderClassifier"
class EncoderClassifier(nn.Module):
    """An encoder that gives each sentence one verdict.

    tokens (batch, seq_len) int64; pad_mask the same shape, bool, True = real
    Returns logits (batch, n_classes). Parts: token_embedding, positions, encoder, classifier.
    Paper: Devlin et al. 2018, §3.2. Differs: the mean of all real tokens, no first token for it.
    """

    def __init__(self, config, n_classes):
        super().__init__()
        ### BEGIN SOLUTION
        self.token_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = LearnedPositions(config.max_len, config.d_model)
        self.encoder = Encoder(config.n_layers, config.d_model, config.n_heads, config.d_ff,
                               config.norm_first, config.dropout)
        self.classifier = nn.Linear(config.d_model, n_classes)
        self.dropout = nn.Dropout(config.dropout)
        ### END SOLUTION

    def forward(self, tokens, pad_mask):
        ### BEGIN SOLUTION
        x = self.dropout(self.positions(self.token_embedding(tokens)))  # (B, T, M)
        y = self.encoder(x, attn_mask=padding_mask(pad_mask))
        return self.classifier(mean_pool(y, pad_mask))  # (B, n_classes)
        ### END SOLUTION

# %% check="EncoderClassifier"
check(EncoderClassifier, points=5)

# %% tags=["demo"]
with need("EncoderClassifier"):
    torch.manual_seed(0)
    model = EncoderClassifier(SIZES, n_classes=2).eval()
    tokens = torch.tensor([[ID[word] for word in "the soup was warm and kind".split()]])
    padded = F.pad(tokens, (0, 4), value=PAD)
    gap = model(tokens, tokens != PAD) - model(padded, padded != PAD)
    print(f"the same sentence, alone and padded, differs by {gap.abs().max():.1e}")

# %% [markdown]
# ---
# ## 6.4 What reading first is worth
# *core · about 8 min*
#
# Now the point of it all. Labels cost money, text is free. Two students get the same 4, 8 or 16 labelled sentences:
# nice or nasty? One starts from random weights. The other has read 12,800 unlabelled sentences before, and guessed hidden
# words.

# %%
predict("pretraining", "With 4 labelled sentences of 2 or 3 adjectives each, out of 32 adjectives, the reader is ahead by…",
        ["nothing", "a little", "more than 10 points"])

# %%
def hidden_word_loss(model, hide, tokens, generator):
    real = tokens != PAD
    inputs, labels = hide(tokens, real, MASK, len(WORDS), 0.3, [PAD], generator)
    x = model.encoder(model.positions(model.token_embedding(inputs)), attn_mask=padding_mask(real))
    logits = x @ model.token_embedding.weight.T  # the table once more, as in a tied output
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


@cache
def students(Classifier, hide):
    """(blank, reader): one start, before and after 200 steps of reading."""
    torch.manual_seed(0)
    generator, blank = torch.Generator().manual_seed(1), Classifier(SIZES, n_classes=2)
    nn.init.normal_(blank.token_embedding.weight, std=0.1)
    reader = deepcopy(blank)
    optimizer = torch.optim.Adam(reader.parameters(), lr=3e-3)
    for step in range(200):
        loss = hidden_word_loss(reader, hide, sentences(64, generator)[0], generator)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in (0, 50, 199):
            print(f"step {step:3}: loss {loss.item():.2f}")
    return blank, reader

# %% tags=["demo"]
with need("EncoderClassifier", "mask_tokens"):
    blank, reader = students(EncoderClassifier, mask_tokens)
    print(f"a guess among {len(WORDS) - 2} words costs {math.log(len(WORDS) - 2):.2f}")
    rows = reader.token_embedding.weight[ID["warm"]:].detach()
    show(plots.word_map(rows, GOOD + BAD, [True] * 16 + [False] * 16),
         "The 32 adjectives on a plane. Nice and nasty words form two separate groups, though no label was shown.")

# %% [markdown]
# Two groups, and nobody said that there are two kinds. Words that keep the same company get similar vectors. Now the
# labels, few of them:

# %%
def score(start, n_labels, seed, tests):
    """Fine-tune a copy on n_labels sentences; the share of test sentences it gets right."""
    model, (tokens, labels) = deepcopy(start), sentences(n_labels, torch.Generator().manual_seed(seed))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(20):
        optimizer.zero_grad()
        F.cross_entropy(model(tokens, tokens != PAD), labels).backward()
        optimizer.step()
    with torch.no_grad():
        return (model(tests[0], tests[0] != PAD).argmax(-1) == tests[1]).double().mean().item()

# %% tags=["demo"]
with need("EncoderClassifier", "mask_tokens"):
    tests, sizes = sentences(300, torch.Generator().manual_seed(99)), (4, 8, 16)
    starts = dict(zip(("from scratch", "after reading"), students(EncoderClassifier, mask_tokens), strict=True))
    curves = {name: [[score(start, n, seed, tests) for seed in range(3)] for n in sizes]
              for name, start in starts.items()}
    show(plots.label_curves(curves, sizes),
         "Share of right verdicts against the number of labelled sentences. Both curves rise; the one after reading lies "
         "above the one from scratch everywhere.")
    gain = (sum(curves["after reading"][0]) - sum(curves["from scratch"][0])) / 3
    print(f"with 4 labels reading first is worth {gain:+.0%}")
    reveal("pretraining", "more than 10 points", "It knows which words belong together; a label names the group.")

# %% [markdown]
# The notes say that fine-tuning only adapts a finished understanding. Here the whole network moved. And with more labels the
# gain shrinks in the end: sixteen are half of the adjectives.
# The notes add that guessing whether two sentences follow each other helps; RoBERTa left that out and lost nothing.
#
# ---
# ## 6.5 The next word
# *core · about 30 min*
#
# Drop the encoder, keep one stack, make it causal: a GPT. Every place predicts the next token, so one sentence of four
# words is three questions:

# %%
ex = notes.example("002-next-token-pairs")
words = ex.inputs["tokens"]
pairs = [[words[:n], words[n]] for n in range(1, len(words))]
print(ex.compare(pairs, "pairs"))

# %% [markdown]
# In training all are asked at once, under one causal mask. An answer of several tokens is as likely as the product of its
# steps, and each step is a pass of its own:

# %%
ex = notes.example("002-paris-chain")
print(ex.compare(math.prod(p for step in ex.inputs["steps"] for p in step.values()), "joint"))

# %%
predict("bert-blocks", "What has a GPT block that the block of an encoder has not?",
        ["cross-attention", "a second norm", "nothing: the mask differs"])

# %% [markdown]
# ### Exercise 6.5 · `GPT` · core · about 27 min
# - **Build** `token_embedding`, `positions`, `blocks` (your `EncoderBlock`s), `norm` (a `LayerNorm`, or `nn.Identity()` if
#   not norm_first), `output` (no bias). If `config.tied`, its weight **is** the table.
# - Two ends of their own, which a cache will need: `embed` = dropout(table + positions from `offset` on), `head` =
#   output(norm(x)). Keep `config`, too.
# - If `n_kv_heads` is set and differs from `n_heads`, each `block.attention` is your `GroupedQueryAttention`.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary><code>forward</code> is three lines: embed, blocks under one mask,
# head.</details>
# <details><summary>Hint 2 · what</summary>A block's attention can be replaced after the block is made. To tie:
# <code>self.output.weight = self.token_embedding.weight</code>.</details>
# <details><summary>Hint 3 · how</summary><code>combine_masks(causal_mask(seq_len), None if pad_mask is None else
# padding_mask(pad_mask))</code>; your LearnedPositions takes the offset and refuses what is too long.</details>

# %% exercise="GPT"
class GPT(nn.Module):
    """A decoder-only model: tokens to logits for the next token at every place.

    tokens (batch, seq_len) int64; pad_mask the same shape, bool, True = real, or None
    Returns logits (batch, seq_len, vocab_size). Raises ValueError beyond config.max_len.
    Parts: config, token_embedding, positions, blocks, norm, output; embed and head. Paper: Radford et al. 2019, §2.3.
    """

    def __init__(self, config):
        super().__init__()
        ### BEGIN SOLUTION
        self.config, self.dropout = config, nn.Dropout(config.dropout)
        self.token_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = LearnedPositions(config.max_len, config.d_model)
        sizes = (config.d_model, config.n_heads, config.d_ff, config.norm_first, config.dropout)
        self.blocks = nn.ModuleList(EncoderBlock(*sizes) for _ in range(config.n_layers))
        if config.n_kv_heads not in (None, config.n_heads):
            for block in self.blocks:
                block.attention = GroupedQueryAttention(config.d_model, config.n_heads, config.n_kv_heads)
        self.norm = LayerNorm(config.d_model) if config.norm_first else nn.Identity()
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        if config.tied:
            self.output.weight = self.token_embedding.weight
        ### END SOLUTION

    def embed(self, tokens, offset=0):
        """(batch, seq_len) tokens, the first at place `offset` -> (batch, seq_len, d_model)."""
        ### BEGIN SOLUTION
        return self.dropout(self.positions(self.token_embedding(tokens), offset))
        ### END SOLUTION

    def head(self, x):
        ### BEGIN SOLUTION
        return self.output(self.norm(x))
        ### END SOLUTION

    def forward(self, tokens, pad_mask=None):
        ### BEGIN SOLUTION
        hidden = None if pad_mask is None else padding_mask(pad_mask)
        x, mask = self.embed(tokens), combine_masks(causal_mask(tokens.shape[1]).to(tokens.device), hidden)
        for block in self.blocks:
            x = block(x, attn_mask=mask)
        return self.head(x)
        ### END SOLUTION

# %% check="GPT"
check(GPT, points=8)

# %% [markdown]
# **Look.** How large is it, and what does it cost before it has learned anything? A model that knows nothing should lose
# `ln(vocab_size)`.

# %% tags=["demo"]
with need("GPT"):
    torch.manual_seed(0)
    gpt = GPT(SIZES)
    counted = sum(parameter.numel() for parameter in gpt.parameters())
    print(f"{counted:,} parameters; count_parameters says {count_parameters(SIZES)['total']:,}")
    tokens = sentences(64, torch.Generator().manual_seed(2))[0]
    for name in ("as torch makes it", "after init_weights"):
        loss = F.cross_entropy(gpt(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        print(f"{name:20} loss {loss:.2f}   ln {len(WORDS)} = {math.log(len(WORDS)):.2f}")
        init_weights(gpt, std=0.02, n_layers=SIZES.n_layers)
    reveal("bert-blocks", "nothing: the mask differs", "You built it from EncoderBlocks.")

# %% [markdown]
# A tied table of large numbers makes loud logits, and a loss far above a guess: the first thing to look at when training
# starts badly. Now let it read the small world, and continue two openings:

# %% tags=["demo"]
with need("GPT"):
    torch.manual_seed(0)
    generator, gpt = torch.Generator().manual_seed(3), GPT(SIZES)
    nn.init.normal_(gpt.token_embedding.weight, std=0.1)
    optimizer = torch.optim.Adam(gpt.parameters(), lr=3e-3)
    for _ in range(150):
        tokens = sentences(64, generator)[0]
        targets = tokens[:, 1:].masked_fill(tokens[:, 1:] == PAD, -100)
        loss = F.cross_entropy(gpt(tokens[:, :-1]).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss:.2f} after 150 steps")
    for start in ("the soup was warm and", "the soup was stale and"):
        tokens = torch.tensor([[ID[word] for word in start.split()]])
        while tokens.shape[1] < 10:
            tokens = torch.cat([tokens, gpt(tokens)[:, -1:, 2:].argmax(-1) + 2], 1)  # greedy, no <pad>, no <mask>
        print(text(tokens[0].tolist()))

# %% [markdown]
# That loop reads the whole text again for every word. You have a better writer: your `generate` of phase 5, which asks of a
# model only that it can `embed`, has `blocks`, and has a `head`. Every part below is yours.

# %% tags=["demo"]
with need("GPT"):
    GPT(SIZES)  # a blank one waits here
    generate = mine("generate")
    prompt = torch.tensor([[ID[word] for word in "the soup was warm and".split()]])
    for temperature in (0.0, 0.7):
        cached, whole = (generate(gpt, prompt, 5, temperature, generator=torch.Generator().manual_seed(4),
                                  use_cache=use_cache) for use_cache in (True, False))
        print(f"temperature {temperature}: {text(cached[0].tolist())} · same without cache: {torch.equal(cached, whole)}")

# %% [markdown] reflect="GPT"
# It keeps to one kind of adjective. Where in the network does the word "stale" reach the word being written? And what would
# have to be true for the model to have *understood* that soup can be stale? Your sentence:

# %% [markdown]
# Published sizes, through your own count of phase 4:

# %%
bert = ModelConfig(vocab_size=30522, d_model=768, n_heads=12, n_layers=12, d_ff=3072, max_len=512)
gpt3 = ModelConfig(vocab_size=50257, d_model=12288, n_heads=96, n_layers=96, d_ff=49152, max_len=2048)
for name, sizes in (("bert_base", bert), ("gpt3_175b", gpt3)):
    print(f"{name}: {sizes.n_layers} blocks, {count_parameters(sizes)['total'] / 1e9:.2f} billion parameters")
    print(notes.example("002-depth-facts").compare(sizes.n_layers, name))
print(notes.example("002-gpt2-depth").compare(24 in (12, 24, 36, 48), "a_gpt2_size_has_24_layers"))

# %% [markdown]
# What vendors run today is mostly not published: whoever tells you the inside of a closed model is guessing.
#
# ---
# ## 6.6 Text in, text out
# *more · about 27 min*
#
# Translation, summary, question, verdict: T5 makes *every* task text to text, told apart by a word in front. You built
# its two stacks in phase 4. (Each decoder block has cross-attention **inside**; the notes draw it in front of them.)
#
# Its pretraining hides whole **spans**, each behind one *sentinel*. The answer is only what is missing:
#
# > text: `my old car broke down on monday`
# > inputs: `my old <0> down <1> monday`
# > targets: `<0> car broke <1> on <2>`

# %%
predict("span-length", "Of 512 tokens 78 are hidden, in 26 spans of 3. How long are the targets?",
        ["512", "78", "105"])

# %% [markdown]
# ### Exercise 6.6a · `span_corrupt` · more · about 15 min
# - **Build** `inputs` and `targets` from lists. Spans are half-open, in any order, and may touch.
# - The first sentinel goes to the span that stands first **in the text**. Targets end with the next unused one.
# - Raises for spans that overlap, are empty or lie outside, and for too few sentinels.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Sort a copy of the spans; remember where the last one ended.</details>
# <details><summary>Hint 2 · what</summary>Between two spans the text goes to inputs; inside, to targets. A span that
# starts before the last end overlaps it.</details>
# <details><summary>Hint 3 · how</summary><code>inputs += tokens[place:start] + [sentinel]</code>, <code>targets +=
# [sentinel] + tokens[start:end]</code>, <code>place = end</code></details>

# %% exercise="span_corrupt"
def span_corrupt(tokens, spans, sentinel_ids):
    """Hide spans of a text behind sentinels.

    tokens: list of int; spans: list of (start, end), half-open, in any order; sentinel_ids: list of int
    Returns inputs, targets: lists of int. Targets end with the first sentinel that no span has used.
    Raises ValueError for spans that overlap, are empty or lie outside, and for fewer than len(spans) + 1 sentinels.
    Paper: Raffel et al. 2020, §3.1.4.
    """
    ### BEGIN SOLUTION
    if len(sentinel_ids) < len(spans) + 1:
        raise ValueError("one sentinel more than spans is needed")
    inputs, targets, place = [], [], 0
    for sentinel, (start, end) in zip(sentinel_ids, sorted(spans), strict=False):
        if not place <= start < end <= len(tokens):
            raise ValueError(f"span ({start}, {end}) is empty, overlaps another or lies outside")
        inputs += tokens[place:start] + [sentinel]
        targets += [sentinel] + tokens[start:end]
        place = end
    return inputs + tokens[place:], targets + [sentinel_ids[len(spans)]]
    ### END SOLUTION

# %% check="span_corrupt"
check(span_corrupt, points=3)

# %% tags=["demo"]
with need("span_corrupt"):
    words = "my old car broke down on monday".split()
    inputs, targets = span_corrupt(list(range(7)), [(5, 6), (2, 4)], [100, 101, 102])
    for name, ids in (("inputs", inputs), ("targets", targets)):
        print(f"{name:8}", *(f"<{number - 100}>" if number >= 100 else words[number] for number in ids))
    spans = [(start, start + 3) for start in range(0, 26 * 19, 19)]  # 26 spans of 3: 78 of 512
    inputs, targets = span_corrupt(list(range(512)), spans, list(range(1000, 1027)))
    print(f"512 tokens: {len(inputs)} in, {len(targets)} out")
    reveal("span-length", "105", "78 words and 27 sentinels: a decoder with little to write.")

# %% [markdown]
# **One stack that does both.** A decoder-only model reads its prompt leftwards only, though it is all there. The *prefix
# mask* lets the prompt see all of itself and keeps the answer causal.
#
# ### Exercise 6.6b · `prefix_lm_mask` · more · about 8 min
# - **Build** the mask for one length or one per row. Raises outside 0 … seq_len.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>A key is visible for one of two reasons.</details>
# <details><summary>Hint 2 · what</summary>It is no later than the query, or it belongs to the prefix.</details>
# <details><summary>Hint 3 · how</summary><code>(j &lt;= i) | (j &lt; length)</code> with <code>length</code> of shape (B, 1,
# 1, 1) from <code>torch.as_tensor(prefix_len)</code></details>

# %% exercise="prefix_lm_mask"
def prefix_lm_mask(prefix_len, seq_len):
    """A mask whose prefix sees all of itself, while the rest is causal.

    prefix_len: int, or (batch,) int64 for one per row
    Returns bool (batch or 1, 1, seq_len, seq_len), True = may attend.
    Raises ValueError outside 0 … seq_len. Paper: Raffel et al. 2020, §3.2.1.
    """
    ### BEGIN SOLUTION
    length = torch.as_tensor(prefix_len).reshape(-1, 1, 1, 1)
    if ((length < 0) | (length > seq_len)).any():
        raise ValueError(f"prefix_len must lie between 0 and {seq_len}")
    place = torch.arange(seq_len)
    return (place <= place[:, None]) | (place < length)  # (B, 1, T, T)
    ### END SOLUTION

# %% check="prefix_lm_mask"
check(prefix_lm_mask, points=3)

# %% [markdown]
# **Look.** One model, two tasks: a word in front says whether five digits are to be copied or reversed. Your GPT's
# blocks run under the prefix mask; only the answer counts.

# %%
COPY, REVERSE, ANSWER = 10, 11, 12


def tasks(n, generator):
    """(n, 12) tokens: the task, five digits, ANSWER, and the answer."""
    digits = torch.randint(10, (n, 5), generator=generator)
    kind = torch.randint(COPY, ANSWER, (n, 1), generator=generator)
    answer = torch.where(kind == REVERSE, digits.flip(1), digits)
    return torch.cat([kind, digits, torch.full((n, 1), ANSWER), answer], 1)


def run(model, tokens, mask):
    """The model's logits under another mask than its own."""
    x = model.embed(tokens)
    for block in model.blocks:
        x = block(x, attn_mask=mask)
    return model.head(x)

# %% tags=["demo"]
with need("prefix_lm_mask", "GPT"):
    torch.manual_seed(0)
    generator, mask = torch.Generator().manual_seed(0), prefix_lm_mask(7, 11)
    both = GPT(ModelConfig(vocab_size=13, d_model=48, n_heads=4, n_layers=2, d_ff=96, max_len=12))
    for table in (both.token_embedding.weight, both.positions.table):
        nn.init.normal_(table, std=0.2)
    optimizer = torch.optim.Adam(both.parameters(), lr=3e-3)
    for _ in range(250):
        tokens = tasks(64, generator)
        loss = F.cross_entropy(run(both, tokens[:, :-1], mask)[:, 6:].flatten(0, 1), tokens[:, 7:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tests = tasks(200, generator)
    answers = tests[:, :7]
    for _ in range(5):
        more = run(both, answers, prefix_lm_mask(7, answers.shape[1]))[:, -1:].argmax(-1)
        answers = torch.cat([answers, more], 1)
    for kind, name in ((COPY, "copy"), (REVERSE, "reverse")):
        rows = tests[:, 0] == kind
        right = (answers == tests).all(1)[rows].double().mean().item()
        print(f"{name:8} {tests[rows][0, 1:6].tolist()} -> {answers[rows][0, 7:].tolist()}   {right:.0%} right")

# %% [markdown] reflect="prefix_lm_mask"
# Cached decoding relies on the past never changing. Does it still hold under a prefix mask: what happens to the cache if the
# user adds a word to the prompt? Your sentence:

# %% [markdown]
# ---
# ## 6.7 Which one, when
# *core · about 6 min*
#
# Slogans ("decoders do not understand") help little; counting does. `N` parameters in blocks cost about `2 · N`
# operations a token; attention adds `4 · n_layers · d_model` per pair of tokens looked at.
#
# - **encoder-only**, T tokens read: `2 N T + 4 L d T²`, once. No loop. (L layers of width d.)
# - **decoder-only**, n written: `2 N (T + n) + 2 L d (T + n)²`, in 1 + n passes, cached. Each looks back only: half the pairs.
# - **encoder-decoder**, N split in halves: each token meets **half**: `N (T + n)`, plus attention.

# %%
predict("half-price", "Same number of parameters, T = 1000 read, n = 100 written. The encoder-decoder costs, of decoder-only…",
        ["twice as much", "as much", "about half"])

# %%
def billions(N, L, d, T, n):
    """Operations in billions: one verdict by an encoder; then n words by a decoder, and by two stacks of half the depth."""
    encoder = 2 * N * T + 4 * L * d * T**2
    decoder = 2 * N * (T + n) + 2 * L * d * (T + n) ** 2
    pairs = T**2 + T * n + n**2 / 2  # source with source, answer with source, answer with its past
    stacks = N * (T + n) + 4 * (L / 2) * d * pairs
    return [count / 1e9 for count in (encoder, decoder, stacks)]


N = sum(count_parameters(bert)[part] for part in ("attention", "ffn"))
for T, n in ((128, 1), (1000, 100), (100, 1000)):
    encoder, decoder, stacks = billions(N, bert.n_layers, bert.d_model, T, n)
    print(f"read {T:4}, write {n:4}: encoder {encoder:6.1f} (verdict only)   decoder {decoder:6.1f}   both {stacks:6.1f}")
reveal("half-price", "about half", "Each token passes one of the two stacks, not both.")

# %% [markdown]
# Reading costs a decoder as much as an encoder; what the encoder is spared is the loop. So: a verdict, a search vector, a tag
# for each token: **encoder-only**. Text from a given text, long in and short out: **encoder-decoder** is cheap and reads
# both ways. Open-ended writing, many tasks, one cache for a growing conversation: **decoder-only**, and one objective over
# every token of the corpus. (What it does not know is fetched: retrieval, tools.) Cross-attention ties an answer to its source, but
# its weights are soft: it enforces nothing.

# %%
for slip in ("D46", "D47"):
    print(notes.erratum(slip).correction, "\n")

# %% [markdown]
# ---
# ## 6.8 A picture is a sentence
# *more · about 18 min*
#
# A Transformer reads vectors; nobody said they come from words. Cut a picture into squares, lay each out as a vector,
# multiply by a matrix: tokens. Sound is cut along time, in the same way. Which cut, though? The tempting one is
# `reshape`:

# %%
picture = torch.arange(64).view(1, 1, 8, 8)
print("first patch by reshape:", picture.reshape(1, 4, 16)[0, 0].tolist())
predict("reshape-patch", "Those sixteen pixels are…", ["a square of 4 × 4", "two whole rows", "a diagonal"])

# %% [markdown]
# ### Exercise 6.8 · `patchify` · more · about 12 min
# - **Build** the patches in reading order. Inside a patch: channel, then row, then column.
# - Raises if `patch_size` is below 1 or does not divide both sides.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Split both sides in two axes each: which patch, and where in
# it.</details>
# <details><summary>Hint 2 · what</summary>The six axes are batch, channel, row of patches, row, column of patches,
# column. Bring them into the order you need; then merge.</details>
# <details><summary>Hint 3 · how</summary><code>reshape(B, C, H // p, p, W // p, p)</code>, <code>permute(0, 2, 4, 1, 3,
# 5)</code>, then two <code>flatten</code>s</details>

# %% exercise="patchify"
def patchify(images, patch_size):
    """Cut pictures into square patches, one row of numbers each.

    images (batch, channels, height, width), any dtype
    Returns (batch, n_patches, channels · patch_size²): patches left to right, then down; inside channel, row, column.
    Raises ValueError if patch_size is below 1 or does not divide height and width.
    Paper: Dosovitskiy et al. 2020, §3.1.
    """
    ### BEGIN SOLUTION
    batch, channels, height, width = images.shape
    if patch_size < 1 or height % patch_size or width % patch_size:
        raise ValueError(f"patch_size must divide height and width, {height} × {width}")
    rows, columns = height // patch_size, width // patch_size
    parts = images.reshape(batch, channels, rows, patch_size, columns, patch_size)
    parts = parts.permute(0, 2, 4, 1, 3, 5)  # B, row, column, C, y, x
    return parts.flatten(3).flatten(1, 2)
    ### END SOLUTION

# %% check="patchify"
check(patchify, points=3)

# %% tags=["demo"]
with need("patchify"):
    y, x = torch.meshgrid(torch.linspace(-1, 1, 48), torch.linspace(-1, 1, 48), indexing="ij")
    sun = torch.exp(-8 * ((x - 0.3) ** 2 + (y + 0.4) ** 2)) + 0.5 * (y > 0.3 + 0.15 * torch.sin(5 * x)).float()
    patches = patchify(sun[None, None], 12)
    show(plots.patch_row(sun, patches[0].view(-1, 12, 12)),
         "Left: a picture of a sun above waves, with a grid of four by four. Right: the sixteen patches in reading order, in "
         "two rows.")
    print("first patch of yours:", patchify(picture, 4)[0, 0].tolist())
    reveal("reshape-patch", "two whole rows", "Memory runs along rows; a square has to be gathered.")

# %% [markdown]
# Patches times a matrix: torch knows this as a *convolution* that steps on by its own width, and gives the same numbers. And
# the bill, for photos of the usual 224 × 224 pixels: halve the patch, and there are four times as many tokens and sixteen
# times as many pairs.

# %% tags=["demo"]
with need("patchify"):
    photo, kernel = torch.randn(2, 3, 32, 48), nn.Conv2d(3, 20, kernel_size=8, stride=8, bias=False)
    tokens = patchify(photo, 8) @ kernel.weight.flatten(1).T
    print(f"matrix against convolution: {(tokens - kernel(photo).flatten(2).mT).abs().max():.1e}")
    for size in (32, 16, 8):
        n = patchify(torch.zeros(1, 3, 224, 224), size).shape[1]
        print(f"224 × 224 in patches of {size:2}: {n:4} tokens, {n * n:>9,} pairs")

# %% [markdown]
# ---
# ## 6.9 Many experts, few at work
# *more · about 30 min*
#
# Two thirds of a block's weights sit in its FFN, and every token pays for all of them. A *mixture of experts* keeps
# several FFNs and sends each token to `k` of them. A small linear layer, the **router**, gives logits; the `k` largest
# win, and a softmax **over those** weighs their outputs.
#
# > parameters × n_experts, work × k

# %%
predict("one-expert", "k = 1: the weight of the one chosen expert, after the softmax over the chosen, is…",
        ["its probability", "always 1", "0.5"])

# %% [markdown]
# Experts run as a batch with fixed room: each takes at most `capacity` tokens. Who comes too late is **dropped** there;
# the residual carries the token past. Left alone, routers crowd: a favoured expert learns faster and is favoured more.
# So a second loss asks for balance:
#
# > **n_experts · Σₑ shareₑ · probabilityₑ**  (even: 1; all to one: up to n_experts)
#
# `share` counts choices, so it has no slope; `probability`, the mean of the full softmax, has one.

# %% [markdown]
# ### Exercise 6.9 · `moe_route` · more · about 25 min
# - **Build** `weights` (0 where not chosen, or dropped) and `balance`.
# - Exactly k are chosen, also where logits are equal (any k of them). Tokens come in their order: the first `capacity` that
#   chose an expert are served. What is dropped is handed to nobody.
# - `share` is of all n_tokens · k choices, before any is dropped.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Begin with a bool table: which token chose which expert.</details>
# <details><summary>Hint 2 · what</summary><code>topk</code> and <code>scatter</code> make it; hide the rest with −∞
# before the softmax. A <code>cumsum</code> down the tokens counts who has come.</details>
# <details><summary>Hint 3 · how</summary><code>weights * (chosen.cumsum(0) &lt;= capacity)</code>;
# <code>n_experts * (chosen.sum(0) / (n_tokens * k) * logits.softmax(-1).mean(0)).sum()</code></details>

# %% exercise="moe_route"
def moe_route(logits, k, capacity=None):
    """Send each token to its k best experts.

    logits (n_tokens, n_experts); capacity: how many tokens an expert serves, first come first served; None: all
    Returns weights (n_tokens, n_experts): softmax over a token's k largest logits, 0 elsewhere and where dropped;
    and balance, 0-d: n_experts · Σ share of choices · mean probability, 1 if even.
    Raises ValueError for k outside 1 … n_experts and capacity below 1.
    Paper: Shazeer et al. 2017, §2.1; Fedus et al. 2021, §2.2. Differs: k of them, one router without noise.
    """
    ### BEGIN SOLUTION
    n_tokens, n_experts = logits.shape
    if not 1 <= k <= n_experts:
        raise ValueError(f"k must lie between 1 and {n_experts}")
    if capacity is not None and capacity < 1:
        raise ValueError("capacity must be at least 1")
    chosen = torch.zeros_like(logits, dtype=torch.bool).scatter(1, logits.topk(k).indices, True)
    weights = logits.masked_fill(~chosen, float("-inf")).softmax(-1)
    if capacity is not None:
        weights = weights * (chosen.cumsum(0) <= capacity)
    share = chosen.sum(0) / (n_tokens * k)
    balance = n_experts * (share * logits.softmax(-1).mean(0)).sum()
    return weights, balance
    ### END SOLUTION

# %% check="moe_route"
check(moe_route, points=5)

# %% [markdown]
# **Look.** 256 tokens, 8 experts, two each, room for 80. The router has a favourite. Then its balance alone is trained, for
# a second:

# %% tags=["demo"]
with need("moe_route"):
    torch.manual_seed(0)
    tokens, router = torch.randn(256, 16), nn.Linear(16, 8)
    with torch.no_grad():
        router.bias += torch.tensor([2.0, 1.0, 0, 0, 0, 0, 0, -1.0])
    served = {}
    for name, steps in (("as it was", 0), ("balanced", 100)):
        optimizer = torch.optim.Adam(router.parameters(), lr=0.03)
        for _ in range(steps):
            optimizer.zero_grad()
            moe_route(router(tokens), 2)[1].backward()
            optimizer.step()
        asked, balance = moe_route(router(tokens), 2)
        kept, _ = moe_route(router(tokens), 2, capacity=80)
        served[name] = ((asked > 0).sum(0), (kept > 0).sum(0))
        print(f"{name:10} balance {balance:.2f}, dropped {1 - (kept > 0).sum() / (asked > 0).sum():.0%} of the choices")
    show(plots.expert_load(served, capacity=80),
         "Two bar charts of choices for each of eight experts, with a line at 80. Before: the first expert is far above the "
         "line, and what is above it is hatched, dropped. After: all bars are nearly even.")

# %% tags=["demo"]
with need("moe_route"):
    ffn = 2 * 768 * 3072
    for n_experts, k in ((1, 1), (8, 2), (64, 2)):
        print(f"{n_experts:2} experts, {k} at work: {n_experts * ffn / 1e6:6.1f} M weights held, {k * ffn / 1e6:5.1f} M used by a token")
    router_logits = torch.randn(6, 4, requires_grad=True)
    (moe_route(router_logits, 1)[0] * torch.randn(6, 4)).sum().backward()
    print("k = 1: largest slope of the weights:", router_logits.grad.abs().max().item())
    reveal("one-expert", "always 1", "So with k = 1 the router learns nothing through it; models with k = 1 keep the full probability.")

# %% [markdown]
# ---
# ## 6.10 Attention in tiles
# *stretch · about 45 min*
#
# In phase 2 you attended block by block over keys. FlashAttention does so in **tiles** of queries by keys, small enough
# for the chip's own fast memory. It computes the same numbers, exactly, with the same number of operations. What it saves is
# *traffic*: the table of scores never goes to the large, slow memory.

# %%
predict("flash", "Twice as long a text. The work of FlashAttention grows by a factor of…", ["two", "four", "not at all"])

# %%
q_len, d_head = 4096, 128
print(f"table of scores: {q_len**2 * 2 / 1e6:.0f} MB a head;  q, k, v and out: {4 * q_len * d_head * 2 / 1e6:.0f} MB;  "
      f"one tile of 128 × 128: {128**2 * 2 / 1e3:.0f} kB")
for length in (4096, 8192):
    print(f"{length} tokens: {4 * length**2 * d_head / 1e9:.0f} billion operations a head, tiled or not")
reveal("flash", "four", "Operations stay quadratic. Memory becomes linear.")

# %% [markdown]
# Per query, keep a maximum `m`, a sum `l` and an output `o`. A tile with scores `s` brings a new maximum `m'`; then
# everything from before shrinks by `exp(m − m')`:
#
# > `l ← l · exp(m − m') + Σ exp(s − m')`   `o ← o · exp(m − m') + exp(s − m') V`
#
# At the end `out = o / l`. The one number a backward pass needs is `logsumexp = m + log l`: from it any tile's weights can
# be made anew. And under a causal mask almost half of all tiles lie wholly in the future: **skip** them.

# %% [markdown]
# ### Exercise 6.10 · `tiled_attention` · stretch · about 40 min
# - **Build** it for any leading axes; last tiles may be smaller. No table larger than a tile.
# - `causal` is aligned to the end. A query that sees nothing: out 0, logsumexp −∞.
# - **Done when** the check below passes. It puts NaN into the future: 0 · NaN is NaN.
#
# <details><summary>Hint 1 · where</summary>Two loops: tiles of queries outside, tiles of keys inside. Your
# <code>streaming_attention</code> is the inner one.</details>
# <details><summary>Hint 2 · what</summary>Query i sees keys up to <code>i + kv_len − q_len</code>. Stop the inner loop at
# the first tile that starts behind the last query's last key.</details>
# <details><summary>Hint 3 · how</summary>−∞ − (−∞) is NaN: subtract a maximum in which −∞ became 0
# (<code>masked_fill</code>). Divide by a sum in which 0 became 1.</details>

# %% exercise="tiled_attention"
def tiled_attention(q, k, v, q_block, kv_block, causal=False):
    """Attention that holds one tile of scores at a time.

    q (…, q_len, d_head); k (…, kv_len, d_head); v (…, kv_len, d_v); tiles of q_block queries by kv_block keys
    causal: query i sees keys up to i + kv_len - q_len; a tile wholly in the future is skipped
    Returns out (…, q_len, d_v) and logsumexp (…, q_len) of the visible scaled scores; 0 and -inf if none is.
    Raises ValueError for a block below 1. Paper: Dao et al. 2022, algorithm 1; Dao 2023, §3.1.
    """
    ### BEGIN SOLUTION
    if q_block < 1 or kv_block < 1:
        raise ValueError("q_block and kv_block must be at least 1")
    q_len, kv_len = q.shape[-2], k.shape[-2]
    outs, totals = [], []
    for top in range(0, q_len, q_block):
        rows = q[..., top : top + q_block, :] / q.shape[-1] ** 0.5
        last = torch.arange(top, top + rows.shape[-2])[:, None] + kv_len - q_len  # the last key each query sees
        best = rows.new_full((*rows.shape[:-1], 1), float("-inf"))
        total, out = torch.zeros_like(best), rows.new_zeros(*rows.shape[:-1], v.shape[-1])
        for left in range(0, kv_len, kv_block):
            if causal and left > last[-1]:
                break
            keys, values = k[..., left : left + kv_block, :], v[..., left : left + kv_block, :]
            scores = rows @ keys.transpose(-2, -1)  # one tile
            if causal:
                scores = scores.masked_fill(torch.arange(left, left + keys.shape[-2]) > last, float("-inf"))
            new = torch.maximum(best, scores.detach().amax(-1, keepdim=True))
            safe = new.masked_fill(new == float("-inf"), 0.0)
            shrink, p = (best - safe).exp(), (scores - safe).exp()
            total = total * shrink + p.sum(-1, keepdim=True)
            out, best = out * shrink + p @ values, new
        outs.append(out / total.masked_fill(total == 0, 1.0))
        totals.append((best + total.log())[..., 0])
    return torch.cat(outs, -2), torch.cat(totals, -1)
    ### END SOLUTION

# %% check="tiled_attention"
check(tiled_attention, points=6)

# %% tags=["demo"]
with need("tiled_attention"):
    q, k, v = torch.randn(3, 2, 64, 16).double()
    out, _ = tiled_attention(q, k, v, 16, 8, causal=True)
    print(f"tiles against the whole table: {(out - sdpa(q, k, v, causal_mask(64))).abs().max():.1e}")
    show(plots.tile_plan(64, 64, 16, 8),
         "A table of 64 by 64 cut into tiles of 16 by 8. Tiles below the diagonal are full, those on it partly hidden, those "
         "above it hatched: skipped.")

# %% [markdown] reflect="tiled_attention"
# FlashAttention computes scores a second time in its backward pass and is faster for it. How can more work take less time?
# Your sentence:

# %% [markdown]
# ---
# ## 6.11 A model is not a system
# *core · about 6 min*
#
# A user types, and waits. Between the two: cut the text into tokens, put a prompt around it, run the model over the
# prompt (**prefill**), then token by token (**decode**), turn tokens into text, look it over, send it. Training happens
# now and then, somewhere, on whole batches. This happens all the time, for one impatient person.
#
# Four things run short: computing, memory, time, energy. Start with memory. How many bytes are ten billion parameters?

# %%
ex = notes.example("002-quantization-bytes")
gigabytes = [ex.inputs["params_billion"] * bits / 8 for bits in ex.inputs["bits"]]
print(ex.compare(gigabytes, "GB"))
print(notes.erratum("D49").lesson)

# %% [markdown]
# The notes write a summary on a phone in 100 to 200 ms. To make one token the chip reads every weight once. So there is a
# bound that no programmer can beat: bandwidth divided by bytes.

# %%
predict("phone", "3 billion parameters at 4 bits, memory that delivers 60 GB/s, 0.2 s. At most how many tokens?",
        ["8", "50", "200"])

# %%
ex = notes.example("002-on-device-latency")
weights = ex.inputs["params_billion"] * ex.inputs["bits"] / 8
print(f"{weights} GB per token, {ex.inputs['bandwidth_GBps'] / weights:.0f} tokens per second at most")
print(ex.compare(ex.inputs["budget_s"] * ex.inputs["bandwidth_GBps"] / weights, "tokens_in_budget"))
reveal("phone", "8", "Enough for the first word, not for a summary.")
print("Patience of 100 to 300 ms?", notes.example("002-ux-latency-budget").lesson)

# %% [markdown]
# Every section from here on pulls at one of these: fewer bytes per weight, fewer weights, a smaller cache, fewer passes.
# Each makes a promise, and we measure what it costs. For that we need a model that can lose something. Its language has
# eight words, and what comes next depends on the last two. We made the language, so we know the best loss there is.

# %%
torch.manual_seed(0)
VOCAB = 8
rules = (1.3 * (torch.randn(VOCAB, 1, VOCAB) + torch.randn(1, VOCAB, VOCAB))).softmax(-1)  # [a, b]: what follows "a b"


def write(n_rows, length, generator=None):
    """Texts of the language, (n_rows, length)."""
    text = torch.randint(VOCAB, (n_rows, 2), generator=generator)
    for _ in range(length - 2):
        chances = rules[text[:, -2], text[:, -1]]  # (B, V)
        text = torch.cat([text, torch.multinomial(chances, 1, generator=generator)], 1)
    return text


held_out = write(200, 33, torch.Generator().manual_seed(1))
before, after = held_out[:, 1:-1], held_out[:, 2:]
best = -rules[held_out[:, :-2], before, after].log().mean()  # nobody can do better on this text
print(f"a blind guess costs {math.log(VOCAB):.3f}, the best possible {best:.3f}")

# %%
def make(d_model, n_layers):
    """A fresh model with the layout of your GPT."""
    return SmallModel(ModelConfig(VOCAB, d_model, 4, n_layers, 2 * d_model, 64))


def train(model, steps, loss=None, lr=5e-3):
    """Train on fresh texts; loss(model, tokens, targets) or cross-entropy."""
    loss = loss or (lambda model, x, y: F.cross_entropy(model(x).flatten(0, 1), y.flatten()))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(steps):
        text = write(32, 24)
        optimizer.zero_grad()
        loss(model, text[:, :-1], text[:, 1:]).backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def loss_of(model):
    """Cross-entropy on the text that was held out."""
    return F.cross_entropy(model(held_out[:, :-1])[:, 1:].flatten(0, 1), after.flatten()).item()


def size(model):
    return sum(p.numel() for p in model.parameters())

# %%
@cache
def trained(d_model, n_layers):
    """A model of this size after 200 steps; trained when it is first asked for, then kept."""
    torch.manual_seed(0)
    return train(make(d_model, n_layers), 200)

# %% [markdown]
# ---
# ## 6.12 Learn from a larger model
# *more · about 22 min*
#
# A text says "the next word is 5". The large model says "5 with 0.6, 2 with 0.3, hardly ever 7". That is more to learn
# from, and a small model, the **student**, can be trained to say the same as its **teacher**. At each place:
#
# > **α · T² · KL(teacher ‖ student, both at temperature T) + (1 − α) · cross-entropy**
#
# `KL(p ‖ q) = Σ p (log p − log q)` is what it costs to believe q where p is true. T > 1 flattens both, so that rare words
# are heard, too. Why the factor T²? Leave it out and look at the slopes:

# %%
predict("t-squared", "Without the factor, from T = 1 to T = 8 the gradient on the student's logits becomes…",
        ["the same size", "about 8 times smaller", "about 64 times smaller"])

# %%
torch.manual_seed(0)
student, teacher = torch.randn(200, 8), torch.randn(200, 8)
for T in (1, 2, 4, 8):
    logits = student.clone().requires_grad_()
    soft = F.kl_div((logits / T).log_softmax(-1), (teacher / T).softmax(-1), reduction="sum")
    slope, = torch.autograd.grad(soft, logits)
    print(f"T = {T}: size of the gradient {slope.norm():6.3f}, times T² {T**2 * slope.norm():6.3f}")
reveal("t-squared", "about 64 times smaller", "One T from the logits, one because the two laws come together.")

# %% [markdown]
# ### Exercise 6.12 · `distillation_loss` · more · about 15 min
# - **Build** the formula, as a mean over the places where `pad_mask` is True. The cross-entropy is at temperature **1**.
# - No gradient reaches the teacher. Targets at masked places may be anything, −100 too. Nothing kept gives 0.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Throw the masked places away first: then everything is (n, V).</details>
# <details><summary>Hint 2 · what</summary><code>log_softmax</code> of both at temperature T; the teacher's is detached.
# Sum over words, mean over places.</details>
# <details><summary>Hint 3 · how</summary><code>student = student_logits[pad_mask]</code>; <code>p = log_t.exp()</code>;
# <code>soft = (p * (log_t - log_s)).sum()</code>; divide by <code>max(n, 1)</code>.</details>

# %% exercise="distillation_loss"
def distillation_loss(student_logits, teacher_logits, targets, temperature, alpha, pad_mask):
    """Learn from a teacher's probabilities and from the text.

    student_logits, teacher_logits (batch, seq_len, vocab_size); targets (batch, seq_len) int64
    temperature: of the teacher's part; alpha: its share; pad_mask (batch, seq_len) bool, True = real token
    Returns a scalar, the mean over real tokens; 0 if there is none. Promises: no gradient to the teacher.
    Paper: Hinton, Vinyals and Dean 2015, §2.
    """
    ### BEGIN SOLUTION
    student, teacher = student_logits[pad_mask], teacher_logits[pad_mask].detach()  # (N, V)
    log_s, log_t = (student / temperature).log_softmax(-1), (teacher / temperature).log_softmax(-1)
    soft = (log_t.exp() * (log_t - log_s)).sum()
    hard = -student.log_softmax(-1).gather(-1, targets[pad_mask][:, None]).sum()
    return (alpha * temperature**2 * soft + (1 - alpha) * hard) / max(len(student), 1)
    ### END SOLUTION

# %% check="distillation_loss"
check(distillation_loss, points=4)

# %% [markdown]
# **Look.** A student with a twentieth of the weights, trained twice for the same few steps: on the text alone, and from
# the teacher.

# %% tags=["demo"]
with need("distillation_loss"):
    large = trained(48, 4)

    def from_teacher(model, x, y):
        with torch.no_grad():
            soft = large(x)
        return distillation_loss(model(x), soft, y, 2.0, 0.9, torch.ones_like(y).bool())

    for name, loss in (("text alone", None), ("teacher", from_teacher)):
        found = []
        for seed in range(3):
            torch.manual_seed(seed)
            small = train(make(16, 1), 100, loss)
            found.append(f"{loss_of(small):.3f}")
        print(f"{name:10} {size(small):,} parameters, loss of three students {', '.join(found)}")
    print(f"{'(teacher)':10} {size(large):,} parameters, loss {loss_of(large):.3f}")

# %% [markdown] reflect="distillation_loss"
# What does the student see in a teacher's answer that one more text would not show as fast? And when would copying a
# teacher be a mistake? Your sentence:

# %% [markdown]
# ---
# ## 6.13 One block, many layers
# *more · about 6 min*
#
# Another way to keep fewer weights: use one block's weights in every layer. Memory shrinks by `n_layers`. And the work?

# %%
predict("shared", "12 layers with one set of weights. The work for a token is…",
        ["a twelfth", "the same", "twelve times more"])

# %% [markdown]
# ### Exercise 6.13 · `SharedStack` · more · about 3 min
# - **Build** a module whose attribute `block` is applied `n_layers` times, each time with the mask.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Keep the block as it is; no copies.</details>
# <details><summary>Hint 2 · what</summary>A loop in <code>forward</code>; x goes in and comes out.</details>
# <details><summary>Hint 3 · how</summary><code>x = self.block(x, attn_mask=attn_mask)</code></details>

# %% exercise="SharedStack"
class SharedStack(nn.Module):
    """One block, applied n_layers times.

    block: a module called as block(x, attn_mask=…); x (batch, seq_len, d_model) -> the same shape
    Promises: the parameters are the block's own.
    From: Lan et al. 2019 (ALBERT), §3.1.
    """

    def __init__(self, block, n_layers):
        super().__init__()
        ### BEGIN SOLUTION
        self.block, self.n_layers = block, n_layers
        ### END SOLUTION

    def forward(self, x, attn_mask=None):
        ### BEGIN SOLUTION
        for _ in range(self.n_layers):
            x = self.block(x, attn_mask=attn_mask)
        return x
        ### END SOLUTION

# %% check="SharedStack"
check(SharedStack, points=2)

# %% tags=["demo"]
with need("SharedStack"):
    passes = []
    shared = SharedStack(make(48, 1).blocks[0], 12)
    shared.block.register_forward_hook(lambda *parts: passes.append(1))
    shared(torch.randn(1, 5, 48))
    print(f"12 blocks keep {12 * size(shared.block):,} weights, 12 passes of one keep {size(shared):,}")
    print(f"passes: {len(passes)}")
    reveal("shared", "the same", "Every pass still multiplies by every weight. Only memory is saved.")

# %% [markdown]
# ---
# ## 6.14 Fewer bits
# *core · about 25 min*
#
# A weight is a number of 32 bits. Must it be? Keep one `scale` for many weights and, for each, a small integer:
#
# > **scale = largest |w| / (2^(bits−1) − 1)**, **q = round(w / scale)**, back: **q · scale**
#
# With 8 bits q runs from −127 to 127, with 4 bits from −7 to 7. On a ruler with so few marks nothing is off by more than
# half a mark, if you round to the *nearest* one. Cutting off is the tempting wrong way:

# %%
w = torch.tensor([0.88, -0.33, 0.15, -1.27])
scale = w.abs().max() / 7
for name, whole in (("cut off", (w / scale).floor()), ("nearest", (w / scale).round())):
    print(f"{name}: q = {whole.int().tolist()}, error at most {(w - whole * scale).abs().max():.3f} (half a mark is {scale / 2:.3f})")

# %% [markdown]
# And one large weight spoils the ruler for all that share it. So give each row of a matrix a scale of its own.

# %%
predict("outlier", "One weight of a row becomes 20 times larger. With 4 bits, most of its neighbours become…",
        ["a little coarser", "0", "too large"])

# %% [markdown]
# ### Exercise 6.14a · `quantize` · core · about 20 min
# - **Build** the two formulas. `axis=None`: one scale for all, without axes. With an `axis`: one scale **for each index of that
#   axis**, and size 1 everywhere else, so that it broadcasts.
# - q is int8. A slice of zeros gets q 0 and scale 1. Bits outside 2…8 are refused.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>The largest size is taken over all axes <i>but</i> the one that is
# named.</details>
# <details><summary>Hint 2 · what</summary><code>amax(dim=…, keepdim=True)</code> takes a tuple of axes;
# <code>axis % w.dim()</code> makes −1 a number you can compare.</details>
# <details><summary>Hint 3 · how</summary><code>others = [d for d in range(w.dim()) if d != axis % w.dim()]</code>; then
# <code>torch.where(scale == 0, 1, scale)</code>, and <code>.round().to(torch.int8)</code>.</details>

# %% exercise="quantize"
def quantize(w, bits, axis=None):
    """Turn weights into small integers and a scale, symmetric around 0.

    w: any shape; bits 2 to 8; axis: the one whose indices get a scale each, or None for one scale
    Returns q (int8, shape of w) and scale (dtype of w): no axes, or the axes of w with size 1 but for `axis`.
    Raises ValueError for other bits. Promises: w is not changed, |q · scale − w| ≤ scale / 2.
    """
    ### BEGIN SOLUTION
    if not 2 <= bits <= 8:
        raise ValueError("bits must be 2 to 8")
    if axis is None:
        largest = w.abs().max()
    else:
        others = [dim for dim in range(w.dim()) if dim != axis % w.dim()]
        largest = w.abs().amax(dim=others, keepdim=True)
    scale = largest / (2 ** (bits - 1) - 1)
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return (w / scale).round().to(torch.int8), scale
    ### END SOLUTION

# %% check="quantize"
check(quantize, points=4)

# %% tags=["demo"]
with need("quantize"):
    for axis in (None, 0):
        q, scale = quantize(torch.tensor([[0.81, -0.33, 0.05, -1.27], [0.02, 0.01, -0.03, 0.04]]), 4, axis)
        print(f"axis {axis}: q = {q.tolist()}, scale {[round(one, 3) for one in scale.flatten().tolist()]}")

# %% [markdown]
# ### Exercise 6.14b · `dequantize` · core · about 1 min
# - **Build** the way back, in the dtype of `scale`.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>One line; the shapes already fit.</details>
# <details><summary>Hint 2 · what</summary>Small integers times a float: torch takes the float's dtype.</details>
# <details><summary>Hint 3 · how</summary><code>q.to(scale.dtype) * scale</code></details>

# %% exercise="dequantize"
def dequantize(q, scale):
    """The weights that q and scale stand for.

    q int8 and scale as quantize made them. Returns the shape of q in the dtype of scale.
    """
    ### BEGIN SOLUTION
    return q.to(scale.dtype) * scale
    ### END SOLUTION

# %% check="dequantize"
check(dequantize, points=1)

# %% [markdown]
# **Play.** Give one weight of the first row its way, and take bits away. Who suffers with one scale for all, and who with a
# scale for each row?

# %% tags=["demo"]
with need("quantize", "dequantize"):
    widgets.quantization_explorer(quantize, dequantize)
    reveal("outlier", "0", "The marks are 20 times farther apart, and small weights round to the one at 0.")

# %% [markdown] reflect="dequantize"
# Real systems give a scale to every 32 or 128 weights of a row. What does that buy, and what does it cost? Your sentence:

# %% [markdown]
# ---
# ## 6.15 A layer that keeps less
# *more · about 19 min*
#
# Now a whole layer: keep `q`, `scale` and the bias, and let the weights go. A copy of the weights kept "for later" would make the
# layer larger than before.
#
# ### Exercise 6.15 · `QuantLinear` · more · about 15 min
# - **Build** the module from an `nn.Linear`: buffers `q` (int8), `scale` (out, 1) and `bias` (or None). One scale for each output
#   row. **No parameters**: nothing is trained here, and no gradient reaches what is kept (`detach`, and a copy of the bias).
# - forward: x times the dequantised weight, transposed, plus bias. The gradient of x must still flow.
# - **Done when** the check below passes. It weighs what you keep.
#
# <details><summary>Hint 1 · where</summary>The weight of nn.Linear is (out, in): an output row is axis 0.</details>
# <details><summary>Hint 2 · what</summary><code>self.register_buffer("q", q)</code>; a buffer may be None, too.</details>
# <details><summary>Hint 3 · how</summary><code>quantize(linear.weight.detach(), bits, axis=0)</code>; in forward <code>x @
# dequantize(self.q, self.scale).T</code></details>

# %% exercise="QuantLinear"
class QuantLinear(nn.Module):
    """A linear layer that keeps its weights as small integers.

    linear: an nn.Linear, which stays as it is; bits as in quantize; x (…, in) -> (…, out)
    Buffers: q (out, in) int8, scale (out, 1), bias (out,) or None. No parameters.
    """

    def __init__(self, linear, bits=8):
        super().__init__()
        ### BEGIN SOLUTION
        q, scale = quantize(linear.weight.detach(), bits, axis=0)
        self.register_buffer("q", q)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().clone())
        ### END SOLUTION

    def forward(self, x):
        ### BEGIN SOLUTION
        out = x @ dequantize(self.q, self.scale).T
        return out if self.bias is None else out + self.bias
        ### END SOLUTION

# %% check="QuantLinear"
check(QuantLinear, points=4)

# %%
predict("how-few", "The model of 6.11, all its linear layers quantised. At how many bits does its loss visibly suffer?",
        ["8", "4", "2"])

# %% tags=["demo"]
with need("QuantLinear"):
    def pressed(bits):
        """The large model with every linear layer in its blocks replaced."""
        model = deepcopy(trained(48, 4))
        for part in list(model.blocks.modules()):
            for name, layer in list(part.named_children()):
                if isinstance(layer, nn.Linear):
                    setattr(part, name, QuantLinear(layer, bits))
        return model

    def kept(model, bits):
        """Bytes of the blocks, with two 4-bit numbers in a byte and so on."""
        buffers = list(model.blocks.buffers())
        return sum(b.numel() * (bits / 8 if b.dtype == torch.int8 else 4) for b in buffers)

    found, large = {}, trained(48, 4)
    for bits in (8, 6, 5, 4, 3, 2):
        model = pressed(bits)
        found[bits] = loss_of(model)
        print(f"{bits} bits: {kept(model, bits) / size(large.blocks) / 4:5.1%} of the bytes, loss {found[bits]:.3f} "
              f"({found[bits] - loss_of(large):+.3f})")
    show(plots.loss_by_bits(found, loss_of(large), best.item()),
         "Loss against bits per weight: flat from 8 bits down to 3, then rising; the numbers are printed above.")
    reveal("how-few", "2", "A change of 0.002 is rounding noise, up or down. Real models usually begin to suffer at 4 or 3.")

# %% [markdown] reflect="QuantLinear"
# Activations stayed in float here. Integer arithmetic needs them rounded as well. What makes them harder than weights? Your
# sentence:

# %% [markdown]
# ---
# ## 6.16 Two numbers in a byte
# *stretch · about 17 min*
#
# A 4-bit number kept in an int8 saves nothing: half of each byte is empty. Two fit. Four bits hold −8 to 7 in **two's
# complement**: 0 to 7 as they are, and a negative number as itself plus 16, so −1 is 15 and −8 is 8. The first goes into the low
# half, the second into the high half: `low + 16 · high`. Without care a negative number fills all eight bits:

# %%
a, b = 3, -2
print(f"3 | (−2 << 4) = {a | (b << 4)}, in bits …{(a | (b << 4)) & 0xFFFF:016b}: the sign spills over everything to its left")
print(f"(3 & 15) | ((−2 & 15) << 4) = {(a & 15) | ((b & 15) << 4)}, in bits {(a & 15) | ((b & 15) << 4):08b}")

# %% [markdown]
# ### Exercise 6.16a · `pack_int4` · stretch · about 8 min
# - **Build** it along the last axis. Element 2i goes low, 2i + 1 high; an odd end is padded with 0. Outside −8…7 is refused.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary><code>q[..., 0::2]</code> and <code>q[..., 1::2]</code> are the two
# halves.</details>
# <details><summary>Hint 2 · what</summary><code>&amp; 15</code> keeps four bits. Work in int64 and convert at the
# end.</details>
# <details><summary>Hint 3 · how</summary><code>F.pad(q, (0, q.shape[-1] % 2))</code>; then <code>low | (high &lt;&lt;
# 4)</code></details>

# %% exercise="pack_int4"
def pack_int4(q):
    """Two 4-bit numbers in each byte.

    q int8 (…, n), -8 to 7 -> uint8 (…, ceil(n / 2)); element 2i in the low half, two's complement, padded with 0
    Raises ValueError outside -8 to 7.
    """
    ### BEGIN SOLUTION
    if ((q < -8) | (q > 7)).any():
        raise ValueError("int4 holds -8 to 7")
    q = F.pad(q, (0, q.shape[-1] % 2)).to(torch.int64) & 15
    return (q[..., 0::2] | (q[..., 1::2] << 4)).to(torch.uint8)
    ### END SOLUTION

# %% check="pack_int4"
check(pack_int4, points=2)

# %% tags=["demo"]
with need("pack_int4", "quantize"):
    weight = trained(48, 4).blocks[0].ffn.w_1.weight.detach()
    q, scale = quantize(weight, 4, axis=0)
    packed = pack_int4(q)
    print(f"float32 {weight.nbytes:,} bytes, int8 {q.nbytes:,}, packed {packed.nbytes:,} and {scale.nbytes:,} of scales")

# %% [markdown]
# ### Exercise 6.16b · `unpack_int4` · stretch · about 7 min
# - **Build** the way back: the first `n` numbers, int8.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>The low half comes first, then the high half of the same byte.</details>
# <details><summary>Hint 2 · what</summary>8 to 15 stand for negative numbers: subtract 16.</details>
# <details><summary>Hint 3 · how</summary><code>torch.stack([low, high], -1).flatten(-2)[..., :n]</code> weaves the two
# together.</details>

# %% exercise="unpack_int4"
def unpack_int4(packed, n):
    """The n numbers that pack_int4 put into bytes.

    packed uint8 (…, ceil(n / 2)) -> int8 (…, n)
    """
    ### BEGIN SOLUTION
    wide = packed.to(torch.int64)
    q = torch.stack([wide & 15, wide >> 4], -1).flatten(-2)[..., :n]
    return torch.where(q > 7, q - 16, q).to(torch.int8)
    ### END SOLUTION

# %% check="unpack_int4"
check(unpack_int4, points=2)

# %% tags=["demo"]
with need("unpack_int4", "pack_int4"):
    some = torch.tensor([3, -2, 7, -8, -1], dtype=torch.int8)
    print(some.tolist(), "→", [f"{byte:08b}" for byte in pack_int4(some).tolist()], "→",
          unpack_int4(pack_int4(some), 5).tolist())

# %% [markdown]
# ---
# ## 6.17 A window on the past
# *more · about 12 min*
#
# Weights are one half of the memory, keys and values the other, and these grow with every token. What if a token only sees
# the last `window` tokens, itself included? Its cache stops growing. Does it lose everything before?

# %%
predict("reach", "4 layers, each with a window of 3 (itself and two before). The last layer can depend on how many tokens?",
        ["3", "9", "12"])

# %% [markdown]
# ### Exercise 6.17 · `sliding_window_mask` · more · about 8 min
# - **Build** the mask, (q_len, kv_len): visible where `0 ≤ position of q − position of k < window`. As in `causal_mask` the
#   queries are the **last** of the keys. A window below 1 is refused.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>The first query stands at position <code>kv_len - q_len</code>.</details>
# <details><summary>Hint 2 · what</summary>One column of query positions minus one row of key positions.</details>
# <details><summary>Hint 3 · how</summary><code>back = torch.arange(kv_len - q_len, kv_len)[:, None] -
# torch.arange(kv_len)</code></details>

# %% exercise="sliding_window_mask"
def sliding_window_mask(q_len, kv_len, window):
    """Which keys a query may see: itself and the window − 1 before it.

    Returns (q_len, kv_len) bool, True = may attend, aligned to the end.
    Raises ValueError for a window below 1.
    From: Beltagy, Peters and Cohan 2020 (Longformer), §3.1. Differs: causal.
    """
    ### BEGIN SOLUTION
    if window < 1:
        raise ValueError("window must be at least 1")
    back = torch.arange(kv_len - q_len, kv_len)[:, None] - torch.arange(kv_len)  # (Q, K)
    return (back >= 0) & (back < window)
    ### END SOLUTION

# %% check="sliding_window_mask"
check(sliding_window_mask, points=2)

# %% tags=["demo"]
with need("sliding_window_mask"):
    one = sliding_window_mask(12, 12, 3)
    reach = {"1 layer": one}
    for layers in (2, 4):
        reach[f"{layers} layers"] = torch.linalg.matrix_power(one.double(), layers) > 0
    show(plots.mask_grids(reach), "Three grids: a band of width 3, then 5, then 9 below the diagonal: through "
         "several layers a token is reached from farther away.")
    print(f"through 4 layers the last token can depend on {int(reach['4 layers'][-1].sum())} tokens")
    reveal("reach", "9", "Each layer adds window − 1 = 2: 4 · 2 + 1.")

# %% [markdown]
# ---
# ## 6.18 A cache that stops growing
# *stretch · about 24 min*
#
# With a window the cache may forget. But models trained without one often let tokens that have nothing to say look at the
# **first** tokens: the softmax must put its weight somewhere. Drop these and the answers break; keep a few, the **sinks**, and
# they hold. So keep the first `n_sinks` ever and the last `window`:

# %%
seen, window, n_sinks = 9, 4, 2
print("kept of", list(range(seen)), "→", [p for p in range(seen) if p < n_sinks or p >= seen - window])

# %% [markdown]
# ### Exercise 6.18 · `RollingKVCache` · stretch · about 20 min
# - **Build** the cache of one layer. `append(k, v)` takes (batch, heads, t, d) and returns the keys and values that are kept now,
#   oldest first, and their **absolute** positions (int64). `length`: tokens seen; `size`: tokens kept. What has left is **let go**.
# - A chunk of t tokens leaves the same as its tokens one by one. A token that is sink and in the window stands there once.
# - `window < 1` and `n_sinks < 0` are refused.
# - **Done when** the check below passes. It weighs your cache after 40 tokens.
#
# <details><summary>Hint 1 · where</summary>Put the new ones behind the kept ones, then choose. Positions travel along with
# them.</details>
# <details><summary>Hint 2 · what</summary>Kept is whoever has <code>position &lt; n_sinks</code> or <code>position &gt;=
# length - window</code>.</details>
# <details><summary>Hint 3 · how</summary>A bool vector over positions; <code>k[:, :, kept]</code> picks along the token
# axis. <code>length</code> and <code>size</code> are properties.</details>

# %% exercise="RollingKVCache"
class RollingKVCache:
    """Keys and values of one layer: the first n_sinks tokens ever and the last `window`.

    append(k, v): k, v (batch, n_kv_heads, t, d) -> k_all, v_all (batch, n_kv_heads, size, d), positions (size,) int64
    length: tokens seen; size: tokens kept, at most window + n_sinks
    Raises ValueError for window < 1 or n_sinks < 0.
    Paper: Xiao et al. 2023 (attention sinks), §3.2. Differs: positions stay absolute.
    """

    def __init__(self, window, n_sinks=0):
        ### BEGIN SOLUTION
        if window < 1 or n_sinks < 0:
            raise ValueError("window must be at least 1 and n_sinks at least 0")
        self.window, self.n_sinks, self.length = window, n_sinks, 0
        self.k = self.v = None
        self.positions = torch.zeros(0, dtype=torch.int64)
        ### END SOLUTION

    def append(self, k, v):
        ### BEGIN SOLUTION
        new = torch.arange(self.length, self.length + k.shape[2])
        positions = torch.cat([self.positions, new])
        k, v = (x if old is None else torch.cat([old, x], 2) for old, x in ((self.k, k), (self.v, v)))
        self.length += len(new)
        kept = (positions < self.n_sinks) | (positions >= self.length - self.window)
        self.k, self.v, self.positions = k[:, :, kept], v[:, :, kept], positions[kept]
        return self.k, self.v, self.positions
        ### END SOLUTION

    @property
    def size(self):
        ### BEGIN SOLUTION
        return len(self.positions)
        ### END SOLUTION

# %% check="RollingKVCache"
check(RollingKVCache, points=4)

# %% [markdown]
# **Look.** Bytes held, counted; and the answer of one step, compared with a full cache under the mask of 6.17.

# %% tags=["demo"]
with need("RollingKVCache", "sliding_window_mask"):
    torch.manual_seed(0)
    k, v, q = torch.randn(3, 1, 2, 40, 8).unbind(0)
    cache, held = RollingKVCache(8), []
    for t in range(40):
        k_kept, v_kept, positions = cache.append(k[:, :, t:t + 1], v[:, :, t:t + 1])
        held.append(k_kept.nbytes + v_kept.nbytes)
    print("bytes after 4, 8, 20, 40 tokens:", [held[n - 1] for n in (4, 8, 20, 40)], "· a full cache:", k.nbytes + v.nbytes)
    last = q[:, :, -1:]
    rolled = (last @ k_kept.mT / 8**0.5).softmax(-1) @ v_kept
    masked = (last @ k.mT / 8**0.5).masked_fill(~sliding_window_mask(1, 40, 8), -torch.inf).softmax(-1) @ v
    print(f"largest difference from the full cache under the mask: {(rolled - masked).abs().max():.1e}")

# %% [markdown]
# The other way to a smaller cache is fewer bits for each entry, with a scale per token. Keys pass through a softmax, so their
# errors are felt more than those of values:

# %% tags=["demo"]
with need("quantize", "dequantize"):
    def short(x, bits):
        """x as a cache of so many bits would give it back: a scale for each token of each head."""
        flat = x.flatten(0, -2)
        return dequantize(*quantize(flat, bits, axis=0)).view_as(x)

    exact = (q @ (3 * k).mT / 8**0.5).softmax(-1) @ v
    for bits in (8, 4, 3):
        keys = (q @ short(3 * k, bits).mT / 8**0.5).softmax(-1) @ v
        values = (q @ (3 * k).mT / 8**0.5).softmax(-1) @ short(v, bits)
        print(f"{bits} bits: error through keys {(keys - exact).norm() / exact.norm():.4f}, "
              f"through values {(values - exact).norm() / exact.norm():.4f}")

# %% [markdown] reflect="RollingKVCache"
# Cutting the cache, summarising what was said, fewer bits, fewer heads: which of the four loses *which* information? Your
# sentence:

# %% [markdown]
# ---
# ## 6.19 Leaving early
# *stretch · about 24 min*
#
# "The capital of France is" needs no deep thought. After each block, ask the model's head; whoever is sure enough leaves.
#
# > Notes and blogs put early exit and speculation (6.20) side by side. They differ in what they promise: **one changes the
# > answer, the other does not.** Keep an eye on which is which.

# %%
predict("exit-exact", "A row leaves at layer 2 because its best word has probability 0.6. The last layer would say…",
        ["the same word, always", "the same word, mostly"])

# %% [markdown]
# ### Exercise 6.19 · `early_exit_forward` · stretch · about 20 min
# - **Build** it: `x = model.embed(tokens)`; after each block `model.head` at the **last position**; rows whose largest
#   *probability* reaches `threshold` leave with these logits. Go on with the others only. The last block releases the rest.
# - Returns logits (batch, vocab_size) and `layers_used` (batch,) int64, counted from 1. Under `no_grad`.
# - **Done when** the check below passes. It counts the rows that go through each block.
#
# <details><summary>Hint 1 · where</summary>Remember which rows are still there: a vector of row numbers that shrinks
# together with x.</details>
# <details><summary>Hint 2 · what</summary><code>block(x, attn_mask=causal_mask(seq_len))</code>;
# <code>model.head(x[:, -1:])[:, 0]</code>.</details>
# <details><summary>Hint 3 · how</summary><code>sure = logits.softmax(-1).amax(-1) >= threshold</code> (all True at the last
# block); <code>out[rows[sure]] = logits[sure]</code>; <code>x, rows = x[~sure], rows[~sure]</code>.</details>

# %% exercise="early_exit_forward"
@torch.no_grad()
def early_exit_forward(model, tokens, threshold):
    """The next word's logits, each row computed no deeper than it needs.

    model: the layout of GPT (embed, blocks, head); tokens (batch, seq_len) int64
    Returns logits (batch, vocab_size) and layers_used (batch,) int64, at least 1.
    Promises: a row that left is not computed any further.
    """
    ### BEGIN SOLUTION
    x, rows = model.embed(tokens), torch.arange(len(tokens))
    seen = causal_mask(tokens.shape[1])
    out, layers_used = None, torch.zeros(len(tokens), dtype=torch.int64)
    for number, block in enumerate(model.blocks, start=1):
        x = block(x, attn_mask=seen)
        logits = model.head(x[:, -1:])[:, 0]  # (rows left, V)
        sure = (logits.softmax(-1).amax(-1) >= threshold) | (number == len(model.blocks))
        out = logits.new_zeros(len(tokens), logits.shape[-1]) if out is None else out
        out[rows[sure]], layers_used[rows[sure]] = logits[sure], number
        x, rows = x[~sure], rows[~sure]
        if not len(rows):
            break
    return out, layers_used
    ### END SOLUTION

# %% check="early_exit_forward"
check(early_exit_forward, points=4)

# %% tags=["demo"]
with need("early_exit_forward"):
    large, texts = trained(48, 4), held_out[:, :10]
    with torch.no_grad():
        full = large(texts)[:, -1].softmax(-1)
    for threshold in (0.3, 0.5, 0.7, 0.9, 2.0):
        logits, used = early_exit_forward(large, texts, threshold)
        p = logits.softmax(-1)
        same, change = (p.argmax(-1) == full.argmax(-1)).double().mean(), (p - full).abs().max()
        print(f"threshold {threshold}: {used.double().mean():.2f} of 4 layers, same word {same:.0%}, "
              f"largest change of a probability {change:.2f}")
    reveal("exit-exact", "the same word, mostly", "And its probabilities differ even where the word is the same.")

# %% [markdown]
# This model was trained to answer after its last block only; asked earlier it was never told what to say. Models that are
# meant to exit get a loss at every block. And a row that left has no keys in the deeper layers, which the tokens after it
# will miss: caches make early exit harder than it looks.

# %% [markdown] reflect="early_exit_forward"
# A batch is as slow as its slowest row. What does that mean for early exit on a server, and on a phone? Your sentence:

# %% [markdown]
# ---
# ## 6.20 Guess, then verify
# *more · about 25 min*
#
# Decoding reads all weights for one token; a prefill reads them once for hundreds. So let a small **draft** model guess K tokens,
# and let the large **target** judge all of them **in one pass**. What it likes stays.
#
# If we took a guess only when the target's best word agrees, greedy decoding would be exact. For sampling it is subtler. The
# draft drew `x` with probability q(x); the target wants p(x). Keep it with probability `min(1, p(x)/q(x))`. If it falls, draw
# anew. From what? The tempting answer is p. Count what comes out, exactly, with fractions:

# %%
p = [Fraction(9, 20), Fraction(7, 20), Fraction(4, 20)]
q = [Fraction(2, 20), Fraction(2, 20), Fraction(16, 20)]


def law_of(redraw):
    """The law of the token that comes out, all cases added up."""
    kept = list(map(min, p, q))  # drawn by q, then kept
    fallen = 1 - sum(kept)
    return [k + fallen * r for k, r in zip(kept, redraw, strict=True)]


print("wanted             ", [str(x) for x in p])
print("redrawn from p     ", [str(x) for x in law_of(p)])

# %% [markdown]
# Not p: words that the draft overrates come out too often. The remedy is to redraw from **what the draft missed**: `max(p − q,
# 0)`, divided by its sum.

# %%
missed = [max(p_x - q_x, 0) for p_x, q_x in zip(p, q, strict=True)]
print("redrawn from missed", [str(x) for x in law_of([m / sum(missed) for m in missed])])

# %% [markdown]
# Exactly p, whatever q is. Kept `min(p, q)`, plus `max(p − q, 0)`: that *is* p. For K guesses in a row: judge them left to
# right, stop at the first that falls, redraw there. If all pass, the target's pass has given one more row for free, and a
# **bonus** token is drawn from it.
#
# ### Exercise 6.20 · `speculative_accept` · more · about 20 min
# - **Build** one round's verdict. Guess i passes if and only if `uniforms[i] · q < p`, with p and q of that token. At the first
#   failure draw from `max(p − q, 0)` of that row, normalised; if all pass, from `target_probs[K]`. All draws use `generator`.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>A loop over the K guesses that returns at the first failure; after it, the
# bonus.</details>
# <details><summary>Hint 2 · what</summary>The row of the failing place has an entry for every word:
# <code>target_probs[i] - draft_probs[i]</code>, negative ones cut to 0.</details>
# <details><summary>Hint 3 · how</summary><code>torch.multinomial(left, 1, generator=generator).item()</code>; it divides by the
# sum itself.</details>

# %% exercise="speculative_accept"
def speculative_accept(target_probs, draft_probs, draft_tokens, uniforms, generator):
    """How many guesses of a draft stand, and the token that follows them.

    target_probs (K + 1, vocab_size), draft_probs (K, vocab_size); draft_tokens (K,) int64; uniforms (K,) in [0, 1)
    Returns two ints: n_accepted (0 to K) and next_token.
    Promises: what comes out has the target's law, whatever the draft is.
    Paper: Leviathan, Kalman and Matias 2023, §2.3 and appendix A.1.
    """
    ### BEGIN SOLUTION
    for i, token in enumerate(draft_tokens.tolist()):
        if uniforms[i] * draft_probs[i, token] < target_probs[i, token]:
            continue
        left = (target_probs[i] - draft_probs[i]).clamp(min=0)
        return i, torch.multinomial(left / left.sum(), 1, generator=generator).item()
    return len(draft_tokens), torch.multinomial(target_probs[-1], 1, generator=generator).item()
    ### END SOLUTION

# %% check="speculative_accept"
check(speculative_accept, points=5)

# %% [markdown]
# **Look.** The same by counting: 3000 rounds of your function, one guess each.

# %% tags=["demo"]
with need("speculative_accept"):
    generator, counts = torch.Generator().manual_seed(0), torch.zeros(3)
    target, draft = torch.tensor([p, p], dtype=torch.float64), torch.tensor([q], dtype=torch.float64)
    for _ in range(3000):
        guess = torch.multinomial(draft[0], 1, generator=generator)
        n, token = speculative_accept(target, draft, guess, torch.rand(1, generator=generator), generator)
        counts[guess.item() if n else token] += 1
    print("your function, 3000 rounds:", counts / 3000, "wanted:", target[0])

# %% [markdown] reflect="speculative_accept"
# What does a bad draft cost, and what does it never cost? Your sentence:

# %% [markdown]
# ---
# ## 6.21 Several tokens a pass
# *stretch · about 50 min*
#
# How much faster? Let each guess pass with probability α, independently. A round of γ guesses gives one token, plus one for each
# guess before the first failure:
#
# > **1 + α + α² + … + α^γ = (1 − α^(γ+1)) / (1 − α)** tokens for each pass of the target

# %%
predict("tokens-per-pass", "α = 0.8 and γ = 4: tokens per pass of the target…", ["1.8", "3.4", "4.2"])

# %%
print(f"{sum(0.8**i for i in range(5)):.2f}, by the formula {(1 - 0.8**5) / (1 - 0.8):.2f}; "
      f"if a draft pass costs a tenth, the speed-up is {(1 - 0.8**5) / (1 - 0.8) / (1 + 4 * 0.1):.2f}")
reveal("tokens-per-pass", "3.4", "The steps that are saved are the large model's. Every token is still computed once.")

# %% [markdown]
# ### Exercise 6.21 · `speculative_generate` · stretch · about 45 min
# - **Build** the loop. A round: the draft guesses `min(n_draft, still needed − 1)` tokens, one by one; **one** call of the target on
#   everything; `speculative_accept`; append what stands and the token after it.
# - Probabilities are `softmax(logits / temperature)`; at temperature 0 all weight is on the best word.
# - Exactly `max_new_tokens`, or up to and including the first new `eos_id`, wherever in a round it stands. More than one row is
#   refused.
# - **Done when** the check below passes. It counts how often each model is asked, and the words of a long text drawn at a
#   temperature, with a bad draft: they must follow the target's law.
#
# <details><summary>Hint 1 · where</summary>With n tokens so far, row n − 1 of the target's logits judges the first guess. The
# rows from there on are K + 1.</details>
# <details><summary>Hint 2 · what</summary>Collect the draft's probabilities as you go: one row for each guess.
# <code>torch.stack</code> them; without any guess use an empty table.</details>
# <details><summary>Hint 3 · how</summary><code>wanted = probs(target(guess)[0, n - 1:])</code>; <code>new = guess[0, n:n +
# accepted].tolist() + [last]</code>; cut at <code>new.index(eos_id)</code>.</details>

# %% exercise="speculative_generate"
@torch.no_grad()
def speculative_generate(target, draft, prompt, max_new_tokens, n_draft=4, temperature=1.0, eos_id=None, generator=None):
    """Generate with the target's law, in fewer passes of the target.

    target, draft: functions from tokens (1, n) to logits (1, n, vocab_size); prompt (1, n) int64
    Returns (1, n + new): the prompt, then max_new_tokens tokens or up to and including the first new eos_id.
    Raises ValueError for a batch other than 1.
    Promises: one call of the target for each round, at most n_draft of the draft.
    Paper: Leviathan, Kalman and Matias 2023, algorithm 1.
    """
    ### BEGIN SOLUTION
    if prompt.shape[0] != 1:
        raise ValueError("batch must be 1")

    def probs(logits):
        if temperature == 0:
            return F.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)
        return (logits / temperature).softmax(-1)

    tokens, end = prompt, prompt.shape[1] + max_new_tokens
    while tokens.shape[1] < end:
        n, guess, offered = tokens.shape[1], tokens, []
        for _ in range(min(n_draft, end - n - 1)):
            offered.append(probs(draft(guess)[0, -1]))
            drawn = torch.multinomial(offered[-1], 1, generator=generator)
            guess = torch.cat([guess, drawn[None]], 1)
        wanted = probs(target(guess)[0, n - 1:])  # (K + 1, V)
        offered = torch.stack(offered) if offered else wanted[:0]
        uniforms = torch.rand(len(offered), generator=generator, dtype=wanted.dtype)
        accepted, last = speculative_accept(wanted, offered, guess[0, n:], uniforms, generator)
        new = guess[0, n:n + accepted].tolist() + [last]
        if eos_id in new:
            new = new[:new.index(eos_id) + 1]
            end = n + len(new)
        tokens = torch.cat([tokens, torch.tensor([new])], 1)
    return tokens
    ### END SOLUTION

# %% check="speculative_generate"
check(speculative_generate, points=5)

# %% [markdown]
# **Look.** A trained draft of one layer guesses for the large model. α is how much of the two laws overlaps, `Σ min(p, q)`,
# averaged over the text; calls are counted. The formula takes all guesses for equally good, so expect "near", not "equal".

# %% tags=["demo"]
with need("speculative_generate", "speculative_accept"):
    large, small = trained(48, 4), trained(16, 1)
    with torch.no_grad():
        laws = [model(held_out[:, :-1]).softmax(-1) for model in (large, small)]
    alpha = torch.minimum(*laws).sum(-1).mean().item()
    print(f"α = {alpha:.2f}")
    measured, new, calls = {}, 40, []

    def watched(tokens):
        calls.append(1)
        return large(tokens)

    for n_draft in (1, 2, 4, 8):
        calls.clear()
        for seed in range(3):
            speculative_generate(watched, small, torch.tensor([[1, 2]]), new, n_draft,
                                 generator=torch.Generator().manual_seed(seed))
        measured[n_draft] = 3 * new / len(calls)
        print(f"γ = {n_draft}: {len(calls)} calls for {3 * new} tokens, {measured[n_draft]:.2f} a pass, "
              f"formula {(1 - alpha**(n_draft + 1)) / (1 - alpha):.2f}")
    show(plots.tokens_per_pass(measured, alpha, cost=size(small) / size(large)),
         "Tokens per pass of the target against the number of guesses: dots, as measured, beside the formula's "
         "curve; below it the speed-up after paying for the draft, which has a peak.")

# %% [markdown]
# **Play.** Step through the rounds: what was guessed, what each of the two models thought of it, the uniform number, the verdict.

# %% tags=["demo"]
with need("speculative_accept"):
    widgets.speculation_stepper(speculative_accept, trained(48, 4), trained(16, 1))

# %% [markdown] reflect="speculative_generate"
# On a server that already runs large batches, speculation helps little. Which of the two limits of 6.22 explains it? Come back
# to this sentence after the next section:

# %% [markdown]
# ---
# ## 6.22 What a machine can do
# *core · about 29 min*
#
# Two speeds describe a chip: how many bytes it reads and how many operations it makes in a second. A step needs both, and takes
# as long as the **slower**. A decode step reads the weights **once for the whole batch**, and every sequence's own cache; it makes
# two operations per parameter *and sequence*.

# %%
predict("batch", "Decoding for 1 user is bound by memory. Now for 32 users at once, 100 tokens each, one step takes…",
        ["32 times as long", "only a little longer", "less"])

# %% [markdown]
# `hardware` holds `memory_bytes`, `bandwidth_bytes_per_s`, `flops_per_s`, `weight_bits`, `kv_bits`,
# `prompt_len`, `seq_len`; a GB is 10⁹ bytes.
#
# | key | is |
# |---|---|
# | `parameters`, `weight_bytes` | the total of `count_parameters`; that, times bits / 8 |
# | `kv_bytes_per_token` | 2 · n_layers · n_kv_heads · d_head · kv_bits / 8 |
# | `kv_bytes_per_sequence` | that, times seq_len |
# | `max_batch` | how many whole sequences fit beside the weights, at least 0 |
# | `flops_per_token` | 2 · parameters |
# | `prefill_seconds`, `prefill_bound` | one prompt: the longer of computing prompt_len tokens and reading the weights |
# | `decode_step_seconds`, `decode_bound` | max_batch sequences: the longer of computing a token for each, and reading weights and all caches |
# | `tokens_per_second` | max_batch / decode_step_seconds |

# %% [markdown]
# ### Exercise 6.22 · `serving_plan` · core · about 25 min
# - **Build** the plan: a dict with these keys.
# - A bound is `"compute"` if that is strictly longer, else `"memory"`. If nothing fits, the last three are None, None, 0.0.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Two numbers of seconds each time, then <code>max</code>.</details>
# <details><summary>Hint 2 · what</summary><code>n_kv_heads</code> may be None, meaning n_heads; d_head is d_model /
# n_heads.</details>
# <details><summary>Hint 3 · how</summary><code>compute = max_batch * flops_per_token / flops_per_s</code>; <code>memory =
# (weight_bytes + max_batch * kv_bytes_per_sequence) / bandwidth</code></details>

# %% exercise="serving_plan"
def serving_plan(config, hardware):
    """What one machine can serve: a roofline by hand.

    config: a ModelConfig; hardware: a dict of numbers, decimal units
    Returns a dict of numbers and of "compute" or "memory", with the keys of the table above.
    From: Williams, Waterman and Patterson 2009 (the roofline model).
    """
    ### BEGIN SOLUTION
    power, bandwidth = hardware["flops_per_s"], hardware["bandwidth_bytes_per_s"]
    parameters = count_parameters(config)["total"]
    weights, flops = parameters * hardware["weight_bits"] / 8, 2 * parameters
    d_kv = (config.n_kv_heads or config.n_heads) * config.d_model / config.n_heads
    per_token = 2 * config.n_layers * d_kv * hardware["kv_bits"] / 8
    per_sequence = per_token * hardware["seq_len"]
    batch = max(0, math.floor((hardware["memory_bytes"] - weights) / per_sequence))

    def slower(compute, memory):
        return max(compute, memory), "compute" if compute > memory else "memory"

    prefill = slower(flops * hardware["prompt_len"] / power, weights / bandwidth)
    step = slower(batch * flops / power, (weights + batch * per_sequence) / bandwidth) if batch else (None, None)
    return {
        "parameters": parameters, "weight_bytes": weights, "flops_per_token": flops,
        "kv_bytes_per_token": per_token, "kv_bytes_per_sequence": per_sequence, "max_batch": batch,
        "prefill_seconds": prefill[0], "prefill_bound": prefill[1],
        "decode_step_seconds": step[0], "decode_bound": step[1],
        "tokens_per_second": batch / step[0] if batch else 0.0,
    }
    ### END SOLUTION

# %% check="serving_plan"
check(serving_plan, points=4)

# %% tags=["demo"]
with need("serving_plan"):
    big = ModelConfig(vocab_size=32_000, d_model=4096, n_heads=32, n_layers=32, d_ff=16_384, max_len=4096)
    card = dict(memory_bytes=80e9, bandwidth_bytes_per_s=2e12, flops_per_s=300e12, weight_bits=16, kv_bits=16,
                prompt_len=1000, seq_len=2000)
    for name, value in serving_plan(big, card).items():
        print(f"{name:24}{value if isinstance(value, str) else f'{value:,.4g}':>12}")

# %% tags=["demo"]
with need("serving_plan"):
    plan = serving_plan(big, card)
    batches = [2**i for i in range(11)]
    show(plots.roofline(batches, plan["weight_bytes"], plan["kv_bytes_per_token"], plan["flops_per_token"], card),
         "Tokens per second against batch size, for a short and a long context: rising in proportion while the weights "
         "dominate, then flattening: at the computing limit when contexts are short, far below it when they are long.")
    for tokens in (100, 2000):
        steps = [(plan["weight_bytes"] + users * tokens * plan["kv_bytes_per_token"]) / card["bandwidth_bytes_per_s"]
                 for users in (1, 32)]
        print(f"{tokens} tokens each: a step for 1 user {1e3 * steps[0]:.1f} ms, for 32 users {1e3 * steps[1]:.1f} ms")
    reveal("batch", "only a little longer", "The weights are read once for all; only caches add up. Long ones do!")

# %% [markdown] reflect="serving_plan"
# Grouped heads, a 4-bit model, a window: for each, which line of the plan changes, and does tokens per second? Your sentence:

# %% [markdown]
# ---
# ## 6.23 Here or there
# *more · about 15 min*
#
# Phones do what they can; a server does the rest. Somebody must decide, request by request, and be able to say why.
# `seconds(place)` = round trip (server only) + prompt_tokens / prefill rate + new_tokens / decode rate. A place is **good**
# if prompt + new tokens ≤ its `max_tokens` and its seconds ≤ `budget_s`.
#
# | if | target | reason |
# |---|---|---|
# | the device is good | `device` | `fits_device` |
# | else the server is good, online, and the request not private | `server` | `device_context` if the device could not hold it, else `device_latency` |
# | else neither holds it | `refuse` | `context` |
# | else the server is good, but the request is private | `refuse` | `privacy` |
# | else the server is good, but offline | `refuse` | `offline` |
# | else | `refuse` | `latency` |

# %% [markdown]
# ### Exercise 6.23 · `route_request` · more · about 12 min
# - **Build** the decision: the first row that holds. Return a dict: `target`, `seconds` (None for a refusal), `reason`.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Work out four facts first: does each place hold it, and is each in
# time?</details>
# <details><summary>Hint 2 · what</summary>"Good" leaves out online and private: they are asked afterwards.</details>
# <details><summary>Hint 3 · how</summary>Early returns, one for each row of the table, from top to bottom.</details>

# %% exercise="route_request"
def route_request(request, device, server):
    """Where a request runs, how long it takes, and why.

    request: dict of prompt_tokens, new_tokens, private, budget_s
    device, server: dicts of prefill_tokens_per_s, decode_tokens_per_s, max_tokens; server also round_trip_s, online
    Returns a dict: target ("device", "server", "refuse"), seconds (float or None), reason.
    """
    ### BEGIN SOLUTION
    prompt, new = request["prompt_tokens"], request["new_tokens"]

    def seconds(place):
        return prompt / place["prefill_tokens_per_s"] + new / place["decode_tokens_per_s"]

    near, far = seconds(device), server["round_trip_s"] + seconds(server)
    on_device, on_server = (prompt + new <= place["max_tokens"] for place in (device, server))
    server_good = on_server and far <= request["budget_s"]
    if on_device and near <= request["budget_s"]:
        return {"target": "device", "seconds": near, "reason": "fits_device"}
    if server_good and server["online"] and not request["private"]:
        return {"target": "server", "seconds": far, "reason": "device_latency" if on_device else "device_context"}
    if not on_device and not on_server:
        reason = "context"
    elif server_good:
        reason = "privacy" if request["private"] else "offline"
    else:
        reason = "latency"
    return {"target": "refuse", "seconds": None, "reason": reason}
    ### END SOLUTION

# %% check="route_request"
check(route_request, points=3)

# %% [markdown]
# **Look.** "Summarise my last email", on the phone of 6.11, with its 40 tokens a second. It is private, and the budget is what the
# notes promise.

# %% tags=["demo"]
with need("route_request"):
    phone = dict(prefill_tokens_per_s=600.0, decode_tokens_per_s=40.0, max_tokens=4000)
    farm = dict(prefill_tokens_per_s=8000.0, decode_tokens_per_s=80.0, max_tokens=100_000, round_trip_s=0.15, online=True)
    email = dict(prompt_tokens=400, new_tokens=50, private=True, budget_s=0.2)
    for change in ({}, dict(budget_s=2.0), dict(private=False, budget_s=1.0), dict(private=False, prompt_tokens=20_000, budget_s=5.0)):
        print(change or "as the notes have it", "→", route_request(email | change, phone, farm))
    print(notes.erratum("D48").correction)

# %% [markdown]
# ---
# ## 6.24 Numbers first
# *more · about 15 min*
#
# "Design a …" is the interviewer's last question. Begin with numbers: some designs are impossible. A `case` holds `config`,
# `sequences` (they run at the same time), `prompt_tokens`, `new_tokens`, `weight_bits`, `kv_bits`, `memory_bytes`,
# `bandwidth_bytes_per_s` and `flops_per_s`.

# %% [markdown]
# | key | is |
# |---|---|
# | `parameters`, `weight_bytes` | as in `serving_plan` |
# | `kv_bytes` | the caches of **all** sequences at full length, prompt and answer |
# | `prefill_flops` | of one prompt of n tokens: 2 · met · n + 2 · n_layers · d_model · n², the square that `serving_plan` leaves out |
# | `prefill_seconds` | of one prompt: the longer of computing that and reading the weights that are met |
# | `tokens_per_second` | of all sequences together: one step reads the weights that are met and all caches, or computes 2 · met for each sequence; the slower counts |
# | `machines` | as many as weights and caches fill, both **split** over all of them; a whole number |

# %% [markdown]
# `met`: how many parameters a token meets. All, in a decoder. With two stacks (`src_vocab_size` is set) **half**, as in 6.7, and
# an encoder looks both ways: twice the square.
#
# ### Exercise 6.24 · `design_numbers` · more · about 12 min
# - **Build** these numbers, in a dict.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Most of it stands in your serving_plan. New: the square, two stacks, and the
# number of sequences is given.</details>
# <details><summary>Hint 2 · what</summary>Keys and values of a token are read in every layer; an encoder-decoder keeps the
# source's for cross-attention, so the sum is the same.</details>
# <details><summary>Hint 3 · how</summary><code>tokens_per_second = sequences / max((weights / stacks + caches) / bandwidth,
# 2 * met * sequences / flops_per_s)</code>; <code>math.ceil</code> for the machines.</details>

# %% exercise="design_numbers"
def design_numbers(case):
    """What a load asks of machines: the numbers to begin a design with.

    case: a dict: config (a ModelConfig), sequences, prompt_tokens, new_tokens, weight_bits, kv_bits, memory_bytes,
    bandwidth_bytes_per_s, flops_per_s; decimal units
    Returns a dict of numbers with the keys of the table above.
    """
    ### BEGIN SOLUTION
    config, n, sequences = case["config"], case["prompt_tokens"], case["sequences"]
    bandwidth, power = case["bandwidth_bytes_per_s"], case["flops_per_s"]
    parameters = count_parameters(config)["total"]
    weights = parameters * case["weight_bits"] / 8
    d_kv = (config.n_kv_heads or config.n_heads) * config.d_model / config.n_heads
    caches = sequences * (n + case["new_tokens"]) * 2 * config.n_layers * d_kv * case["kv_bits"] / 8
    stacks = 1 if config.src_vocab_size is None else 2
    met, read = parameters / stacks, weights / stacks  # each token passes one of the two
    prefill = 2 * met * n + 2 * stacks * config.n_layers * config.d_model * n**2
    step = max((read + caches) / bandwidth, 2 * met * sequences / power)
    return {
        "parameters": parameters, "weight_bytes": weights, "kv_bytes": caches,
        "prefill_flops": prefill, "prefill_seconds": max(prefill / power, read / bandwidth),
        "tokens_per_second": sequences / step,
        "machines": math.ceil((weights + caches) / case["memory_bytes"]),
    }
    ### END SOLUTION

# %% check="design_numbers"
check(design_numbers, points=6)

# %% [markdown]
# Six cases, with made-up but plausible sizes. The machines: a phone (6 GB to spare, 60 GB/s, 2·10¹² operations a second) and
# a card (80 GB, 2 TB/s, 3·10¹⁴). The translator keeps four candidates for each of 64 texts (a beam of 4). The column
# "tokens/s each" multiplies by the machines, as the load is spread over them, and divides by the sequences.

# %%
def sized(d_model, n_heads, n_layers, d_ff, vocab=50_000, **more):
    return ModelConfig(vocab, d_model, n_heads, n_layers, d_ff, 4096, **more)


phone = dict(memory_bytes=6e9, bandwidth_bytes_per_s=60e9, flops_per_s=2e12)
card = dict(memory_bytes=80e9, bandwidth_bytes_per_s=2e12, flops_per_s=3e14)
three, seven = sized(3072, 24, 28, 12_288, n_kv_heads=8), sized(4096, 32, 32, 20_480, n_kv_heads=8)


def load(machine, model, sequences, prompt_tokens, new_tokens, weight_bits=16, kv_bits=16):
    return machine | dict(config=model, sequences=sequences, prompt_tokens=prompt_tokens, new_tokens=new_tokens,
                          weight_bits=weight_bits, kv_bits=kv_bits)


CASES = {
    "on-device assistant": load(phone, three, 1, 1000, 150, weight_bits=4, kv_bits=8),
    "translation service": load(card, sized(1024, 16, 12, 4096, src_vocab_size=50_000), 4 * 64, 40, 40),
    "chat at 10,000 users": load(card, seven, 10_000, 1500, 500),
    "long-document search": load(card, seven, 4, 100_000, 200),
    "code completion": load(card, three, 200, 2000, 30, weight_bits=8),
    "speech": load(phone, sized(768, 12, 24, 3072, src_vocab_size=50_000), 1, 1500, 100, weight_bits=8, kv_bits=16),
}

# %% tags=["demo"]
with need("design_numbers"):
    columns = ("weight GB", "cache GB", "prefill s", "tokens/s each", "machines")
    print(f"{'':22}" + "".join(f"{name:>15}" for name in columns))
    for name, case in CASES.items():
        found = design_numbers(case)
        values = (found["weight_bytes"] / 1e9, found["kv_bytes"] / 1e9, found["prefill_seconds"],
                  found["machines"] * found["tokens_per_second"] / case["sequences"], found["machines"])
        print(f"{name:22}" + "".join(f"{value:15,.{0 if value > 100 else 2}f}" for value in values))

# %% [markdown]
# ---
# ## 6.25 Six systems
# *more · about 20 min*
#
# Choose **one** case (the others stay for another day; each has a model answer). Write six to ten sentences: what the numbers
# rule out, then your design, then how you would know that it works. A person grades it.

# %% [markdown]
# **Words you may need**
#
# - **Continuous batching.** Requests join and leave the batch at every step; nobody waits for the longest.
# - **Paging.** Caches lie in small blocks, handed out as texts grow: no room is kept for a length that never comes.
# - **Prefix cache.** Keys and values of a beginning that many prompts share, computed once.
# - **Retrieval.** Texts in chunks, each with an encoder's vector; only the nearest to a question are read.
# - **Filling in the middle.** A decoder trained on text whose middle was moved to the end.
# - **Real-time factor.** Seconds of computing for one second of sound; below 1 it keeps up.

# %% [markdown]
# **Case 1. An assistant on the phone: summaries and answers about private mail, offline too.**
#
# | points | for |
# |---|---|
# | 1 | numbers: weights at 4 bits beside the rest of the memory, cache, tokens per second by bandwidth |
# | 1 | compression: distilled small model, quantised weights and cache, what each costs in quality |
# | 1 | privacy: which requests may leave the phone, what happens if they may not |
# | 1 | time to the first token against time per token, energy, and how both are measured |

# %% [markdown] written="design-assistant" points=4
# ### BEGIN SOLUTION
# About three billion weights at 4 bits are under 2 GB, which fits beside other apps; at 16 bits they would not. One token reads all
# of them, so 60 GB/s allow some 38 tokens a second and no programmer can beat that. A prompt of a thousand tokens takes three
# seconds of computing on 2 TFLOP/s, so the first token is the bottleneck, and I would keep prompts short and reuse the cache of a fixed
# prefix. I would distil a small model from a large one, quantise weights to 4 bits per group and the cache to 8, and measure the
# loss and a task score after each step. The cache is capped with a window and a few sinks. Private requests never leave the phone:
# what does not fit is cut, summarised in pieces, or refused with a reason. Others may go to a server if the user agrees. I would
# measure time to first token, tokens per second, millijoules per answer, and how often the phone gets hot and slows down. Early
# exit changes answers, so it needs its own evaluation; speculation does not.
# ### END SOLUTION

# %% [markdown]
# **Case 2. A translation service: short texts, many at once, quality first.**
#
# | points | for |
# |---|---|
# | 1 | family: encoder–decoder, why, and what is computed once per source |
# | 1 | beam search multiplies decoder work and caches; the numbers |
# | 1 | batching texts of similar length, padding, latency against throughput |
# | 1 | quality: measures, terminology, safety nets for empty or endless outputs |

# %% [markdown] written="design-translation" points=4
# ### BEGIN SOLUTION
# The source is known as a whole, so an encoder that looks both ways and a decoder with cross-attention fit well: the encoder runs
# once per text, and its keys and values for cross-attention are computed once, too. With beam 4 every sentence is four sequences
# in the decoder, so 64 sentences are 256 sequences, but short ones: weights and caches together need 2 GB, one card is plenty.
# Weights are read once for the whole batch, so I would fill batches, sort requests by length to waste little padding, and wait a few
# milliseconds at most for a batch to fill. Beam search needs a length penalty, since it otherwise prefers short outputs; it is
# exact only for enormous beams, and 4 is a compromise. I would measure with a learned metric and people, keep a term list, and
# stop runaway outputs by a limit relative to the source. If a user waits for the first word, greedy decoding that streams may be
# the better product.
# ### END SOLUTION

# %% [markdown]
# **Case 3. Chat for 10,000 users at the same time.**
#
# | points | for |
# |---|---|
# | 1 | numbers: caches outweigh weights by far; how many cards, tokens per second and user |
# | 1 | making caches smaller: grouped heads, bits, windows, paging, shared prefixes |
# | 1 | scheduling: continuous batching, prefill apart from decode, limits, fairness |
# | 1 | running it: peaks, failures, cost per token, what is logged and what is not |

# %% [markdown] written="design-chat" points=4
# ### BEGIN SOLUTION
# The model takes about 14 GB, the caches of ten thousand chats of two thousand tokens 2.6 TB even with eight groups of heads: caches
# decide. That is at least 33 cards if weights are split over them, and 40 if each holds a whole copy, which is simpler. Each card then
# reads some 80 GB for a step, at 2 TB/s about 25 steps a second: fast enough to read along. Eight-bit caches halve the
# number of cards. Not all users decode at the same moment, so I would page caches, move idle ones out, and share the cache of the
# common system prompt. Requests join and leave the batch at every step; prefill is bound by computing and decode by memory, so they
# run apart or in chunks, else a long prompt stalls everyone. Each user has limits, and the queue is fair. I would plan for twice
# the average, shed load with a clear message, and watch time to first token, time per token at the 99th percentile, and cost per
# million tokens. Speculation helps when batches are small, at night, not at the peak.
# ### END SOLUTION

# %% [markdown]
# **Case 4. Search and answers over very long documents.**
#
# | points | for |
# |---|---|
# | 1 | numbers: prefill's square term against its linear one at 100,000 tokens, the cache of one document |
# | 1 | retrieval first: chunks, an encoder's vectors, re-ranking; only some chunks reach the model |
# | 1 | long contexts where needed: windows and sinks, stored prefix caches, and what is lost |
# | 1 | evaluation: found and faithful, separately; citations; documents that change |

# %% [markdown] written="design-documents" points=4
# ### BEGIN SOLUTION
# A prompt of 100,000 tokens costs about 4 · 10¹⁵ operations, and the square of attention is by now more than half of it; that is some
# 13 seconds on one card before the first word, and 13 GB of cache for each reader. Reading everything for every question is
# wasteful. I would cut documents into chunks of a few hundred tokens with overlap, encode each once with an encoder that looks both
# ways, store the vectors, and fetch the best fifty for a question; a second, slower model that reads question and chunk together
# ranks them, and five to ten go into the prompt. Questions about the whole document need another road: summaries made ahead, or a
# long context whose cache is computed once and stored. A sliding window makes that cheap but cannot quote what it dropped. I
# would measure separately whether the right chunk is found and whether the answer follows from it, demand citations, and say
# "not found" when nothing is good enough. Changed documents are encoded anew, and rights are checked before retrieval.
# ### END SOLUTION

# %% [markdown]
# **Case 5. Code completion while someone types.**
#
# | points | for |
# |---|---|
# | 1 | numbers: prefill of the context dominates, answers are short; a budget of a few hundred ms, network included |
# | 1 | reuse: prefix caches between keystrokes, cancelling, when not to ask at all |
# | 1 | speed without changing answers: speculation; draft or copied text; quantisation is not exact |
# | 1 | fill-in-the-middle, evaluation by acceptance and by tests, secrets and licences |

# %% [markdown] written="design-code" points=4
# ### BEGIN SOLUTION
# Two thousand tokens of context cost about 10¹³ operations, some 40 ms on a card. Thirty new tokens are thirty steps, and with
# 200 people at once a step reads 50 GB, 25 ms: 0.75 s, too slow. With an 8-bit cache and 50 people per card a step takes 5 ms,
# and all of it 200 ms. Besides, people type, and requests come many times a minute with nearly the same prompt: I would keep
# the prefix's cache, compute only what changed, wait for a short pause, and cancel what is out of date. Code is predictable, so
# speculation pays: the guesses may come from a tiny model, or be copied from the open file, and the result has exactly the
# target's law. Quantisation and early exit do change answers, and are tested as such. The model is trained to fill in the
# middle, with the text after the cursor in the prompt. I would measure how many suggestions are accepted and still there an
# hour later, and run tests on completed functions. Secrets must not be stored, long verbatim copies are filtered, and firms may
# ask to run it on their own machines.
# ### END SOLUTION

# %% [markdown]
# **Case 6. Speech to text on a device, while the person speaks.**
#
# | points | for |
# |---|---|
# | 1 | numbers: frames per second of audio as tokens, real-time factor, memory |
# | 1 | streaming: a window of audio, how far to look ahead, revising what was shown |
# | 1 | family: encoder over frames, decoder over text; whose pass is the bottleneck |
# | 1 | noise, names, languages, privacy; word error rate by group, not one average |

# %% [markdown] written="design-speech" points=4
# ### BEGIN SOLUTION
# Thirty seconds of sound at 50 frames a second are 1500 tokens. The encoder sees them in one pass; by the table that costs under
# a second on the phone, so it runs well faster than real time. Half a billion weights at 8 bits fit well, and the text
# decoder makes far more tokens a second than anybody speaks. But a person will not wait thirty seconds, so I would work on
# overlapping windows of one or two seconds with a little look-ahead: each bit of look-ahead adds exactly that much delay and
# lowers the error. Words on the screen may still change until the window has passed; I would show them in grey. The encoder's
# keys and values for old frames are dropped like in a rolling cache. Audio stays on the device, and the server is asked only if
# the user agrees. I would test with noise, dialects and names, give word error rates for each group, bias the decoder towards the
# contact list, and measure energy, since the microphone is always on: a tiny detector decides when the model may wake.
# ### END SOLUTION

# %% [markdown]
# ---
# ## 6.26 Say it aloud
# *core · about 8 min*
#
# Questions that interviewers ask. Write as you would speak: five to eight sentences. A person grades these.

# %% [markdown]
# **Question 1. Encoder-only, decoder-only, encoder-decoder: what are they, and when would you take which?**
#
# | points | for |
# |---|---|
# | 1 | who sees whom: the masks of the three |
# | 1 | what each is trained to predict |
# | 1 | a use for each, with a reason |
# | 1 | cost: passes, cache, or half of the parameters per token; no slogans |

# %% [markdown] written="three-families" points=4
# ### BEGIN SOLUTION
# All three are made of the same blocks. In an encoder-only model every token sees every real token; it is trained to guess
# hidden words, and one pass gives vectors for a verdict, a search index or tags. In a decoder-only model a token sees itself
# and its past; every place predicts the next token, and text is written one token a pass, with a cache of keys and values.
# An encoder-decoder reads a source both ways and writes a target that looks at it through cross-attention; T5 is trained to
# fill in spans. I take the first where nothing is written, since it needs no loop. I take the last where a short text is made
# from a long one: each token passes only one of the two stacks, so it costs about half at equal size. For conversations and
# many tasks I take a decoder: one stack, one objective, one growing cache. That one family understands better in principle I
# would not claim; it depends on size and task.
# ### END SOLUTION

# %% [markdown]
# **Question 2. Mixture of experts and FlashAttention: what does each save, and what not?**
#
# | points | for |
# |---|---|
# | 1 | experts: k of n FFNs per token; work falls, memory does not |
# | 1 | routing: top k, balance loss, capacity and dropped tokens |
# | 1 | tiles: exact, same operations; traffic and memory fall, from quadratic to linear |
# | 1 | how: running maximum and sum; logsumexp for the backward pass; skipped tiles |

# %% [markdown] written="experts-and-tiles" points=4
# ### BEGIN SOLUTION
# A mixture of experts replaces the feed-forward layer by many and runs k of them for each token. So a model may hold eight
# times the weights for twice the work, but all of them must be in memory, and tokens travel between machines. A router takes
# the k largest logits and weighs their outputs by a softmax over those. Left alone it crowds, so a balance loss pulls towards
# even use, and each expert has a capacity: what comes too late is dropped, and the residual carries it on. FlashAttention
# changes no number and saves no operation. It computes scores tile by tile in fast memory and never writes the table, so
# memory is linear in length and traffic falls. It keeps a running maximum, sum and output per query, rescales them when the
# maximum grows, and stores one logsumexp per query, from which the backward pass makes the weights anew.
# ### END SOLUTION

# %% [markdown]
# ### The phase on one screen

# %%
show(plots.family_recap(),
     "Three columns. Encoder-only: full mask, guesses hidden words, one pass. Decoder-only: causal mask, predicts the next "
     "word, one pass per token. Encoder-decoder: reads its source both ways, then writes, and fills in spans.")

# %% [markdown]
# **What you can now say in an interview:**
#
# - Three families, one block: who sees whom, and what is predicted.
# - Hidden words: choose a share, then 80 / 10 / 10. Means over real tokens.
# - A GPT is embed, blocks under one causal mask, head. Untrained it loses ln of the vocabulary.
# - A prefix mask reads the prompt both ways. Two stacks of half the size cost half.
# - Experts: n held, k at work. Tiles: exact, same work, no table.

# %% [markdown]
# **And of systems:**
#
# - Bytes are parameters × bits / 8; bandwidth / bytes bounds decoding.
# - Quantise per output row: 8 bits lose little, 4 need measuring.
# - Early exit changes the answer; speculation, verified, does not.
# - A plan begins with numbers: what fits, for how many, bound by what.
#
# Phase 7: train one for real.
