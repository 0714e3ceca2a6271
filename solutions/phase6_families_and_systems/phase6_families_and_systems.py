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
# | [6.2 Guess the hidden word](#6.2-Guess-the-hidden-word) | `mask_tokens` | 24 | core |
# | [6.3 One vector for a sentence](#6.3-One-vector-for-a-sentence) | `mean_pool` `EncoderClassifier` | 25 | core |
# | [6.4 What reading first is worth](#6.4-What-reading-first-is-worth) | – | 8 | core |
# | [6.5 The next word](#6.5-The-next-word) | `GPT` | 30 | core |
# | [6.6 Text in, text out](#6.6-Text-in,-text-out) | `span_corrupt` `prefix_lm_mask` | 27 | core |
# | [6.7 Which one, when](#6.7-Which-one,-when) | – | 6 | core |
# | [6.8 A picture is a sentence](#6.8-A-picture-is-a-sentence) | `patchify` | 16 | more |
# | [6.9 Many experts, few at work](#6.9-Many-experts,-few-at-work) | `moe_route` | 26 | more |
# | [6.10 Attention in tiles](#6.10-Attention-in-tiles) | `tiled_attention` | 30 | stretch |
# | [6.11 Say it aloud](#6.11-Say-it-aloud) | two answers, recap | 10 | core |
#
# The core path is about three hours; minutes are estimates until learners have been timed. You can stop after any
# section. To come back, run the setup cell and the cells you have solved.

# %% [markdown]
# What you built before is used here. A part that is not finished there is lent by the course, and the setup cell says
# so. As always: **rows are tokens**, and **a mask is `True` where looking is allowed**.

# %% tags=["setup"]
import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

from utils import check, notes, plots, widgets
from utils.config import ModelConfig
from utils.lesson import attempt, need, predict, reveal, show
from utils.mycode import mine

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
# *core · about 24 min*
#
# How does a reader learn without labels? Hide some words and ask for them: *masked language modelling*. Left **and**
# right context help, which a next-word model cannot use.
#
# The obvious way: replace 15 % of the words by `<mask>`. But in use no `<mask>` ever comes. Then the model is only good
# at tokens that it never meets.

# %%
predict("ten-percent", "Why leave some of the chosen words as they are, and ask for them nevertheless?",
        ["it saves time", "else real words need no good vector", "to keep the text readable"])

# %% [markdown]
# BERT's recipe: choose a place with probability `p`. Of the chosen, **80 %** become `<mask>`, **10 %** become a random
# word, **10 %** stay. All chosen places are predicted, nothing else. As the model cannot know which of the words it
# sees are right, it needs a good vector everywhere.
#
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
# **Look.** A small world to read: 44 words. Some describe nice things, some nasty ones, and a sentence never mixes them.
# Nobody tells the model so.

# %%
GOOD = "warm bright kind fresh gentle calm clean sweet clever brave lovely crisp honest smooth cosy neat".split()
BAD = "cold dull cruel stale rough noisy dirty bitter silly weak ugly soggy false bumpy messy poor".split()
THINGS = "soup film room song book chair walk".split()
WORDS = ["<pad>", "<mask>", "the", "was", "and", "with", *THINGS, *GOOD, *BAD]
ID = {word: place for place, word in enumerate(WORDS)}
PAD, MASK = 0, 1


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
    reveal("ten-percent", "else real words need no good vector", "A word that is shown may be wrong, too.")

# %% [markdown] reflect="mask_tokens"
# BERT chooses 15 %. What would get worse at 2 %, and what at 90 %? Your sentence:

# %% [markdown]
# ---
# ## 6.3 One vector for a sentence
# *core · about 25 min*
#
# The encoder gives a vector per token. A verdict needs one per sentence. The plain way is the mean. Over what?

# %%
x = torch.tensor([[[2.0], [4.0], [9.0], [9.0]]])  # two real tokens, then padding
print("mean over the axis:", x.mean(1).item(), "  mean of the real ones:", x[:, :2].mean(1).item())

# %% [markdown]
# ### Exercise 6.3a · `mean_pool` · core · about 6 min
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

# %% [markdown] reflect="mean_pool"
# Self-attention alone is *equivariant*: exchange two tokens and their outputs are exchanged. The notes call it invariant.
# What is invariant is the line you have just seen. So what tells "dog bites man" from "man bites dog"? Your sentence:

# %% [markdown]
# Why no decoder? To classify, nothing has to be written. One pass, one verdict:
#
# > **classifier( mean( encoder( table + positions ) ) )**
#
# ### Exercise 6.3b · `EncoderClassifier` · core · about 15 min
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
    config = ModelConfig(vocab_size=len(WORDS), d_model=32, n_heads=2, n_layers=1, d_ff=64, max_len=10)
    model = EncoderClassifier(config, n_classes=2).eval()
    tokens = torch.tensor([[ID[word] for word in "the soup was warm and kind".split()]])
    padded = F.pad(tokens, (0, 4), value=PAD)
    gap = model(tokens, tokens != PAD) - model(padded, padded != PAD)
    print(f"the same sentence, alone and padded, differs by {gap.abs().max():.1e}")

# %% [markdown] reflect="EncoderClassifier"
# BERT takes the vector of a special first token instead of the mean. What would that token have to learn? Your sentence:

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

# %% tags=["demo"]
with need("EncoderClassifier", "mask_tokens"):
    def hidden_word_loss(model, tokens, generator):
        real = tokens != PAD
        inputs, labels = mask_tokens(tokens, real, MASK, len(WORDS), 0.3, [PAD], generator)
        x = model.encoder(model.positions(model.token_embedding(inputs)), attn_mask=padding_mask(real))
        logits = x @ model.token_embedding.weight.T  # the table once more, as in a tied output
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    blank = EncoderClassifier(config, n_classes=2)
    nn.init.normal_(blank.token_embedding.weight, std=0.1)
    reader = copy.deepcopy(blank)
    optimizer = torch.optim.Adam(reader.parameters(), lr=3e-3)
    for step in range(200):
        loss = hidden_word_loss(reader, sentences(64, generator)[0], generator)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in (0, 50, 100, 199):
            print(f"step {step:3}: loss {loss.item():.2f}")
    print(f"a guess among {len(WORDS) - 2} words costs {math.log(len(WORDS) - 2):.2f}")

# %% tags=["demo"]
with need("EncoderClassifier", "mask_tokens"):
    rows = reader.token_embedding.weight[ID["warm"]:].detach()
    show(plots.word_map(rows, GOOD + BAD, [True] * 16 + [False] * 16),
         "The 32 adjectives on a plane. Nice and nasty words form two separate groups, though no label was shown.")

# %% [markdown]
# Two groups, and nobody said that there are two kinds. Words that keep the same company get similar vectors. Now the
# labels, few of them:

# %% tags=["demo"]
with need("EncoderClassifier", "mask_tokens"):
    def score(start, n_labels, seed, tests):
        """Fine-tune a copy on n_labels sentences; the share of test sentences it gets right."""
        model, (tokens, labels) = copy.deepcopy(start), sentences(n_labels, torch.Generator().manual_seed(seed))
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        for _ in range(20):
            optimizer.zero_grad()
            F.cross_entropy(model(tokens, tokens != PAD), labels).backward()
            optimizer.step()
        with torch.no_grad():
            return (model(tests[0], tests[0] != PAD).argmax(-1) == tests[1]).double().mean().item()

    tests, sizes = sentences(300, torch.Generator().manual_seed(99)), (4, 8, 16)
    starts = {"from scratch": blank, "after reading": reader}
    curves = {name: [[score(start, n, seed, tests) for seed in range(3)] for n in sizes]
              for name, start in starts.items()}
    show(plots.label_curves(curves, sizes),
         "Share of right verdicts against the number of labelled sentences. After reading the curve starts near 1; from "
         "scratch it starts lower and catches up.")
    gain = (sum(curves["after reading"][0]) - sum(curves["from scratch"][0])) / 3
    print(f"with 4 labels reading first is worth {gain:+.0%}")
    reveal("pretraining", "more than 10 points", "It knows which words belong together; a label names the group.")

# %% [markdown]
# Fine-tuning did not "only adapt" a finished understanding: the whole network moved. And the gain shrinks as labels grow.
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
# ### Exercise 6.5 · `GPT` · core · about 25 min
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
# <details><summary>Hint 3 · how</summary><code>combine_masks(causal_mask(seq_len), padding_mask(pad_mask))</code>; your
# LearnedPositions takes the offset and refuses what is too long.</details>

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
    gpt = GPT(config)
    counted = sum(parameter.numel() for parameter in gpt.parameters())
    print(f"{counted:,} parameters; count_parameters says {count_parameters(config)['total']:,}")
    tokens = sentences(64, torch.Generator().manual_seed(2))[0]
    for name in ("as torch makes it", "after init_weights"):
        loss = F.cross_entropy(gpt(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        print(f"{name:20} loss {loss:.2f}   ln {len(WORDS)} = {math.log(len(WORDS)):.2f}")
        init_weights(gpt, std=0.02, n_layers=config.n_layers)
    reveal("bert-blocks", "nothing: the mask differs", "You built it from EncoderBlocks.")

# %% [markdown]
# A tied table of large numbers makes loud logits, and a loss far above a guess: the first thing to look at when training
# starts badly. Now let it read the small world, and continue two openings:

# %% tags=["demo"]
with need("GPT"):
    torch.manual_seed(0)
    generator, gpt = torch.Generator().manual_seed(3), GPT(config)
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
# "24 layers (GPT-2)" is one of four sizes, so say which. And what vendors run today is mostly not published: whoever tells
# you the inside of a closed model is guessing.
#
# ---
# ## 6.6 Text in, text out
# *core · about 27 min*
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
# ### Exercise 6.6a · `span_corrupt` · core · about 12 min
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

# %% [markdown] reflect="span_corrupt"
# BERT runs at all 512 places and counts 77 of them. What does T5's decoder save by writing only what is missing, and what
# does it have to learn besides? Your sentence:

# %% [markdown]
# **One stack that does both.** A decoder-only model reads its prompt leftwards only, though it is all there. The *prefix
# mask* lets the prompt see all of itself and keeps the answer causal.
#
# ### Exercise 6.6b · `prefix_lm_mask` · core · about 8 min
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

# %% tags=["demo"]
with need("prefix_lm_mask", "GPT"):
    COPY, REVERSE, ANSWER = 10, 11, 12

    def run(model, tokens):
        x, mask = model.embed(tokens), prefix_lm_mask(7, tokens.shape[1])
        for block in model.blocks:
            x = block(x, attn_mask=mask)
        return model.head(x)

    def tasks(n, generator):
        digits = torch.randint(10, (n, 5), generator=generator)
        kind = torch.randint(COPY, ANSWER, (n, 1), generator=generator)
        answer = torch.where(kind == REVERSE, digits.flip(1), digits)
        return torch.cat([kind, digits, torch.full((n, 1), ANSWER), answer], 1)  # (B, 12)

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    both = GPT(ModelConfig(vocab_size=13, d_model=48, n_heads=4, n_layers=2, d_ff=96, max_len=12))
    nn.init.normal_(both.token_embedding.weight, std=0.2)
    nn.init.normal_(both.positions.table, std=0.2)

# %% tags=["demo"]
with need("prefix_lm_mask", "GPT"):
    optimizer = torch.optim.Adam(both.parameters(), lr=3e-3)
    for _ in range(250):
        tokens = tasks(64, generator)
        loss = F.cross_entropy(run(both, tokens[:, :-1])[:, 6:].flatten(0, 1), tokens[:, 7:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tests = tasks(200, generator)
    answers = tests[:, :7]
    for _ in range(5):
        answers = torch.cat([answers, run(both, answers)[:, -1:].argmax(-1)], 1)
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
# - **encoder-only**, T tokens read: `2 N T + 4 L d T²`, once. No loop.
# - **decoder-only**, n written: `2 N (T + n) + 2 L d (T + n)²`, in 1 + n passes, cached.
# - **encoder-decoder**, N split in halves: each token meets **half**: `N (T + n)`, plus attention.

# %%
predict("half-price", "Same number of parameters, T = 1000 read, n = 100 written. The encoder-decoder costs, of decoder-only…",
        ["twice as much", "as much", "about half"])

# %%
def billions(N, L, d, T, n):
    """Operations in billions: one verdict by an encoder; then n words by a decoder, and by two stacks of half the depth."""
    encoder = 2 * N * T + 4 * L * d * T**2
    decoder = 2 * N * (T + n) + 2 * L * d * (T + n) ** 2
    stacks = N * (T + n) + 2 * L * d * (T**2 + T * n + n**2 / 2)
    return [count / 1e9 for count in (encoder, decoder, stacks)]


N = sum(count_parameters(bert)[part] for part in ("attention", "ffn"))
for T, n in ((128, 1), (1000, 100), (100, 1000)):
    encoder, decoder, stacks = billions(N, bert.n_layers, bert.d_model, T, n)
    print(f"read {T:4}, write {n:4}: encoder {encoder:6.1f} (verdict only)   decoder {decoder:6.1f}   both {stacks:6.1f}")
reveal("half-price", "about half", "Each token passes one of the two stacks, not both.")

# %% [markdown]
# Reading costs a decoder as much as an encoder; what the encoder is spared is the loop. So: a verdict, a search vector, a tag for each token: **encoder-only**. Text from a given text, long in and short out:
# **encoder-decoder** is cheap and reads both ways. Open-ended writing, many tasks, one cache for a growing conversation:
# **decoder-only**, and one objective over every token of the corpus. Cross-attention ties an answer to its source, but
# its weights are soft: it enforces nothing.

# %%
for slip in ("D46", "D47"):
    print(notes.erratum(slip).correction, "\n")

# %% [markdown]
# ---
# ## 6.8 A picture is a sentence
# *more · about 16 min*
#
# A Transformer reads vectors; nobody said they come from words. Cut a picture into squares, lay each out as a vector,
# multiply by a matrix: tokens. Sound is cut along time, in the same way. Which cut, though? The tempting one is
# `reshape`:

# %%
picture = torch.arange(64).view(1, 1, 8, 8)
print("first patch by reshape:", picture.reshape(1, 4, 16)[0, 0].tolist())
predict("reshape-patch", "Those sixteen pixels are…", ["a square of 4 × 4", "two whole rows", "a diagonal"])

# %% [markdown]
# ### Exercise 6.8 · `patchify` · more · about 10 min
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
         "Left: a picture of a sun above waves, with a grid of four by four. Right: the sixteen patches in a row, as the "
         "model reads them.")
    print("first patch of yours:", patchify(picture, 4)[0, 0].tolist())
    reveal("reshape-patch", "two whole rows", "Memory runs along rows; a square has to be gathered.")

# %% [markdown]
# Patches times a matrix: that is a convolution whose stride is its width. And the bill: halve the patch, and there are
# four times as many tokens and sixteen times as many pairs.

# %% tags=["demo"]
with need("patchify"):
    photo, kernel = torch.randn(2, 3, 32, 48), nn.Conv2d(3, 20, kernel_size=8, stride=8, bias=False)
    tokens = patchify(photo, 8) @ kernel.weight.flatten(1).T
    print(f"matrix against convolution: {(tokens - kernel(photo).flatten(2).mT).abs().max():.1e}")
    for size in (32, 16, 8):
        n = patchify(torch.zeros(1, 3, 224, 224), size).shape[1]
        print(f"224 × 224 in patches of {size:2}: {n:4} tokens, {n * n:>9,} pairs")

# %% [markdown] reflect="patchify"
# To let a language model see, its makers often put a picture's tokens in front of the text's. Which of the three masks of
# 6.1 would you give that sequence, and why? Your sentence:

# %% [markdown]
# ---
# ## 6.9 Many experts, few at work
# *more · about 26 min*
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
#
# ### Exercise 6.9 · `moe_route` · more · about 20 min
# - **Build** `weights` (0 where not chosen, or dropped) and `balance`.
# - Tokens come in their order: the first `capacity` that chose an expert are served. What is dropped is handed to nobody.
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
    reveal("one-expert", "always 1", "So with k = 1 the router learns nothing through it; Switch keeps the full probability.")

# %% [markdown] reflect="moe_route"
# The token's work shrank. What did not: memory, traffic between machines, or both? Your sentence:

# %% [markdown]
# ---
# ## 6.10 Attention in tiles
# *stretch · about 30 min*
#
# In phase 2 you attended block by block over keys. FlashAttention does so in **tiles** of queries by keys, small enough
# for the chip's own fast memory. It computes the same numbers, exactly, with the same number of operations. What it saves is
# *traffic*: the table of scores never goes to the large, slow memory.

# %%
predict("flash", "Twice as long a text. The work of FlashAttention grows by…", ["two", "four", "not at all"])

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
#
# ### Exercise 6.10 · `tiled_attention` · stretch · about 25 min
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
# ## 6.11 Say it aloud
# *core · about 10 min*
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
# - Three families, one block: they differ in who sees whom and what is predicted.
# - Masked words: choose a share, then 80 / 10 / 10; only the chosen cost anything. The mean is over real tokens.
# - A GPT is embed, blocks under one causal mask, head. Loss before training: ln of the vocabulary.
# - Spans behind sentinels; a prefix mask reads the prompt both ways. Two stacks of half the size cost half.
# - A patch is a token, cut by stride. Experts: n held, k at work, balance 1 if even.
# - Tiles: exact, same work, no table of scores.
#
# Phase 7: train one for real.
