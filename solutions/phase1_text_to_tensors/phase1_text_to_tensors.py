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
# # Phase 1 · Text to tensors
#
# *The cat sat.* A model sees none of it. It sees numbers: which pieces of text these are, a vector for each, and where
# each one stands. You will build all three, lose nothing on the way, and find out why nobody reads word by word any more.
#
# | section | you build | minutes | path |
# |---|---|---|---|
# | [1.1 What a Transformer is](#1.1-What-a-Transformer-is) | – | 8 | core |
# | [1.2 Why not one word after another](#1.2-Why-not-one-word-after-another) | `rnn_forward` | 20 | more |
# | [1.3 Pieces of text](#1.3-Pieces-of-text) | `bpe_train` | 30 | core |
# | [1.4 Cut a new word](#1.4-Cut-a-new-word) | `bpe_encode` | 22 | core |
# | [1.5 Text to ids and back](#1.5-Text-to-ids-and-back) | `Tokenizer` | 30 | core |
# | [1.6 One rectangle for all](#1.6-One-rectangle-for-all) | `pad_batch` | 16 | core |
# | [1.7 A vector for each id](#1.7-A-vector-for-each-id) | `embed` `embed_backward` | 24 | core |
# | [1.8 Numbers into shares](#1.8-Numbers-into-shares) | `softmax` | 17 | core |
# | [1.9 Say where a token stands](#1.9-Say-where-a-token-stands) | `sinusoidal_positions` | 20 | core |
# | [1.10 A shift is a rotation](#1.10-A-shift-is-a-rotation) | `shift_matrix` | 18 | more |
# | [1.11 Is it a ruler](#1.11-Is-it-a-ruler) | `position_distances` | 15 | more |
# | [1.12 Let the table learn](#1.12-Let-the-table-learn) | `LearnedPositions` | 15 | more |
# | [1.13 Turn instead of add](#1.13-Turn-instead-of-add) | `rope` | 28 | more |
# | [1.14 What is left of the notes](#1.14-What-is-left-of-the-notes) | – | 6 | more |
# | [1.15 Say it aloud](#1.15-Say-it-aloud) | three answers, recap | 13 | core |
#
# The core path is three hours; minutes are estimates until learners have been timed. You can stop after any section. To
# come back, run the setup cell and the cells you have solved.

# %% [markdown]
# Each exercise goes the same way: guess, build, check, look, say it in a sentence. Three hints wait under each task. Open
# one at a time. Two rules hold everywhere: **rows are tokens**, and a mask is **`True` where a token is real**. Where a
# cell ends in "Your sentence:", double-click it and write below; nobody grades it.

# %% tags=["setup"]
import math
import re
import time
from collections import Counter
from itertools import pairwise
from pydoc_data import topics

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
# ## 1.1 What a Transformer is
# *core · about 8 min*
#
# *The animal didn't cross the street because it was too tired.* What does "it" mean? You looked back at "animal". Change
# "tired" to "wide" and you look at "street".
#
# A Transformer is a stack of blocks in which **every token looks at the other tokens directly** and takes over what
# matters. It is *not* one attention layer (half of it is something else), not a faster LSTM and not only a language
# model. *Attention Is All You Need* means: no recurrence and no convolution.

# %% [markdown]
# The same blocks come in three families. They differ in one thing: who may look at whom. In the grids below a row is
# the token that looks (its *query*), a column one that is looked at (its *key*).

# %%
predict("whole-input", "A decoder such as GPT looks left only. Its last token has seen…",
        ["one token", "a window", "the whole input"])

# %%
both = torch.ones(5, 5).tril().bool()
both[:, :3], both[:3, 3:] = True, False
show(plots.mask_grids({"encoder: BERT": torch.ones(5, 5).bool(),
                       "decoder: GPT": torch.ones(5, 5).tril().bool(),
                       "encoder, then decoder: T5": both}),
     "Three grids of who may look at whom. Encoder: everyone at everyone. Decoder: each token at "
     "itself and to its left. Both: three source tokens see each other, two target tokens see the "
     "source and what was written before them.")
reveal("whole-input", "the whole input", "Look along the last row of the grid in the middle.")

# %% [markdown]
# | family | reads | writes | use |
# |---|---|---|---|
# | encoder | all at once | nothing | is this review friendly? |
# | decoder | left to right | the next token | go on with this story |
# | encoder and decoder | the source at once | the target, token by token | translate this |

# %% [markdown]
# **Notes and slips.** This course grew out of five sets of notes on Transformers. You need none of them. Each of their
# numbers is computed again here, and each of their mistakes is a lesson with a number: they say that a decoder does
# not read its whole input (slip D34), and you saw the row. `notes.erratum("D34")` prints one.
#
# From text to answer: **tokens → embeddings → positions → N blocks → a head for the task.** This phase is the first three.

# %% [markdown]
# ---
# ## 1.2 Why not one word after another
# *more · about 20 min · NumPy*
#
# Before 2017 a sentence was read in turn. A **recurrent network** keeps one state `h` and renews it at each word:
#
# > **h_t = tanh(x_t W_x + h_{t−1} W_h + b)**
#
# All of the past must fit into `h`, and step 500 waits for 499 others. Suppose the first word is changed a little.

# %%
predict("fade", "`W_h` keeps lengths (gain 1). How much of that change is left in `h` forty words later?",
        ["about all", "about a fortieth", "less than a millionth"])

# %% [markdown]
# ### Exercise 1.2 · `rnn_forward` · more · about 15 min
# - **Build** all states of a recurrent network, in NumPy. Before the first word `h` is 0.
# - **Allowed** one loop over time, `np.tanh`, `np.stack`.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Time is axis 1. All sentences of the batch take a step together.</details>
# <details><summary>Hint 2 · what</summary>Each step needs <code>x[:, t]</code> and the state before it. Keep every
# state.</details>
# <details><summary>Hint 3 · how</summary><code>h = np.tanh(x[:, t] @ w_x + h @ w_h + b)</code>, append to a list,
# <code>np.stack(states, axis=1)</code>. Let the first zeros have the dtype of <code>x</code>.</details>

# %% exercise="rnn_forward"
def rnn_forward(x, w_x, w_h, b):
    """Read sentences in turn.

    x (batch, seq_len, d_in); w_x (d_in, d_hidden); w_h (d_hidden, d_hidden); b (d_hidden,)
    Returns every state, (batch, seq_len, d_hidden), dtype of x.
    Paper: Elman 1990. Differs: the state before the first token is 0.
    """
    ### BEGIN SOLUTION
    h = np.zeros((x.shape[0], w_h.shape[0]), dtype=x.dtype)  # (B, Dh)
    states = []
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ w_x + h @ w_h + b)
        states.append(h)
    return np.stack(states, axis=1)  # (B, T, Dh)
    ### END SOLUTION

# %% check="rnn_forward"
check(rnn_forward, points=3)

# %% [markdown]
# **Look.** Nudge the first word and see how much of the nudge is left in each later state. `gain` is how strongly `W_h`
# stretches. Beside it: attention, which may read the first word directly from any place.

# %% tags=["demo"]
with need("rnn_forward"):
    rng = np.random.default_rng(0)
    x, w_x = rng.normal(size=(1, 41, 8)), rng.normal(size=(8, 32)) / 3
    turn, nudge = np.linalg.qr(rng.normal(size=(32, 32)))[0], np.zeros_like(x)
    nudge[0, 0] = 1e-4 * rng.normal(size=8)
    left = {}
    for gain in (0.7, 1.0, 1.6):
        before, after = (rnn_forward(part, w_x, gain * turn, np.zeros(32))
                         for part in (x, x + nudge))
        change = np.linalg.norm(after - before, axis=-1)[0]
        left[f"recurrent, gain {gain}"] = change / change[0]
    show(plots.influence_by_distance(left),
         "How much of a nudge is left, by distance, on a logarithmic axis: at gains 0.7 and 1.0 it "
         "falls in a straight line, below a millionth at 40; at 1.6 it stays near 1 and then sinks; "
         "attention is a level line at 1.")
    reveal("fade", "less than a millionth", "tanh shrinks a little at each step. (Below 1e-12 the plot stops.)")

# %% [markdown]
# About the same factor at each step: below 1 it vanishes. Above 1 it would explode, but tanh holds it down. LSTMs add a
# path with gates on which the factor can stay near 1. Attention has a path of **length 1**: it *may* look far, and has to
# learn to (slip D54).
#
# | n tokens, width d | path between two tokens | steps that wait | work |
# |---|---|---|---|
# | recurrent | up to n | n | n · d² |
# | attention | 1 | 1 | n² · d |
#
# The second cost is waiting. Two thousand states in turn, or one matrix product with the same arithmetic?

# %%
predict("waiting", "2048 products of (1, 256) against one of (2048, 256), same matrix. In turn takes…",
        ["half the time", "as long", "longer"])

# %%
x, w = torch.randn(2048, 256), torch.randn(256, 256) / 16
h, began = torch.zeros(1, 256), time.perf_counter()
for now in x:
    h = torch.tanh(now + h @ w)
steps, began = time.perf_counter() - began, time.perf_counter()
torch.tanh(x + x @ w)
print(f"step by step takes {steps / (time.perf_counter() - began):.1f} times as long as at once")
reveal("waiting", "longer", "On a GPU, which wants thousands of rows at a time, by far more.")

# %% [markdown] reflect="rnn_forward"
# The ratio is of this machine. Name one thing a recurrent network does better than attention when the text is very long.
# Your sentence:

# %% [markdown]
# ---
# ## 1.3 Pieces of text
# *core · about 30 min*
#
# Which pieces? Two tempting ways:

# %%
words = {"the": 0, "cat": 1, "sat": 2}
attempt("whole words", lambda: [words[word] for word in "the cat sits".split()])
print("characters:", [ord(mark) for mark in "sat 日 🙂"], "of", f"{0x110000:,} possible")

# %% [markdown]
# Whole words fail at the first new one. Characters never fail but there are a million of them, and a token says little.
#
# **Bytes** never fail and there are 256. Then let frequent neighbours become one token, again and again: **byte-pair
# encoding**. Count all neighbouring pairs, join the most frequent one everywhere, count anew.

# %%
print(list("é日🙂".encode()))
merges = []  # until yours are there
counts = Counter()
for word, times in {b"hug": 10, b"pug": 5, b"pun": 12, b"bun": 4, b"hugs": 5}.items():
    for left, right in pairwise(word):
        counts[bytes([left]), bytes([right])] += times
print(counts.most_common(3))

# %%
predict("overlap", "How many times does the pair (a, a) stand in `aaa`? And what does joining make of `aaa`?",
        ["once: aa a", "twice: aa a", "twice: aa aa"])

# %% [markdown]
# ### Exercise 1.3 · `bpe_train` · core · about 28 min
# - **Build** the list of merges. A pair counts at every place where it stands, times its word's count. A tie goes to the
#   **greater pair**, compared as a tuple. Joining goes left to right, a byte is used once. Pairs never cross words.
# - **Allowed** everything. Stop early when no pair is left.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Keep each word as a list of pieces of bytes. Iterating over <code>bytes</code>
# gives ints: <code>bytes([n])</code> makes a piece of one.</details>
# <details><summary>Hint 2 · what</summary>One round: count, choose, join. The choice is
# <code>max(totals, key=lambda pair: (totals[pair], pair))</code>: a tuple settles ties.</details>
# <details><summary>Hint 3 · how</summary>Join with a while loop over the pieces: at a match append the joined piece and go
# on by 2, else by 1. Counting all words anew each round is slow and right; to be fast, remember which words hold
# a pair and renew only their counts.</details>

# %% exercise="bpe_train"
def bpe_train(word_counts, n_merges):
    """Learn which neighbours to join, the most frequent first.

    word_counts {bytes: int}: words, already cut apart, and how often each occurs
    Returns a list of at most n_merges pairs (bytes, bytes), in the order of learning.
    Promises: a tie goes to the greater pair; word_counts stays as it was.
    Raises ValueError if n_merges < 0.
    Paper: Sennrich et al. 2016, §3.2. Differs: bytes, no end-of-word mark.
    """
    ### BEGIN SOLUTION
    from collections import Counter, defaultdict
    from itertools import pairwise

    if n_merges < 0:
        raise ValueError("n_merges must not be negative")
    words = {word: [bytes([byte]) for byte in word] for word in word_counts}
    totals, holders = Counter(), defaultdict(set)  # holders: pair -> words it stands in
    likely, floor = set(), float("inf")  # all pairs with a total of at least floor: few, so looking is quick

    def tally(word, sign):
        for pair in pairwise(words[word]):
            totals[pair] += sign * word_counts[word]
            (holders[pair].add if sign > 0 else holders[pair].discard)(word)
            if totals[pair] >= floor:
                likely.add(pair)

    def joined(pieces, pair):
        place = 0
        while place < len(pieces) - 1:
            if (pieces[place], pieces[place + 1]) == pair:
                pieces[place : place + 2] = [pair[0] + pair[1]]
            place += 1
    for word in words:
        tally(word, 1)
    merges = []
    while len(merges) < n_merges:
        best = max(likely, key=lambda pair: (totals[pair], pair), default=None)
        if best is None or totals[best] < floor:
            floor = max(totals.values(), default=0) / 2
            if floor == 0:
                break
            likely = {pair for pair, total in totals.items() if total >= floor}
            continue
        for word in holders.pop(best):  # nobody else's counts can change
            tally(word, -1)
            joined(words[word], best)
            tally(word, 1)
        merges.append(best)
    return merges
    ### END SOLUTION

# %% check="bpe_train"
check(bpe_train, points=6)

# %% [markdown]
# **Look.** Train on the language reference that ships with your Python. A word brings the space before it along.

# %% tags=["demo"]
with need("bpe_train"):
    text = "".join(topics.topics.values())[:120_000]
    word_counts = Counter(re.findall(rb" ?[a-zA-Z]+|[^a-zA-Z]", text.encode()))
    merges = bpe_train(dict(word_counts), 300)
    for n in (0, 1, 2, 3, 40, 150, 299):
        print(f"merge {n:3}: {merges[n][0]!r} + {merges[n][1]!r}")
    reveal("overlap", "twice: aa a", "Both places count; the middle a is used only once.")

# %% [markdown] reflect="bpe_train"
# The first merges are letters with a space, the late ones whole words. What would the merges look like had you trained on
# Japanese? On program code? Your sentence:

# %% [markdown]
# ---
# ## 1.4 Cut a new word
# *core · about 22 min*
#
# The merges are rules in an order. To cut a new word, replay them: of all neighbours that have a rule, join those with
# the **earliest** rule, then look again. Why not take the longest token that fits, from the left?

# %%
predict("which-cut", "Rules in order: (b, c), (bc, d), (a, b), (a, bc). What becomes of `abcd`?",
        ["ab + c + d", "abc + d", "a + bcd"])

# %% [markdown]
# ### Exercise 1.4 · `bpe_encode` · core · about 18 min
# - **Build** the pieces of one word. A rule may become usable late, when another one has made its part.
# - **Allowed** everything. Leave `merges` as it is.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Two things: the pieces so far, and the rank of each rule, a dict from pair to
# place in the list.</details>
# <details><summary>Hint 2 · what</summary>A loop: list the neighbours that have a rank; none left, stop; else take the
# smallest rank and join all its places.</details>
# <details><summary>Hint 3 · how</summary><code>ranks = {pair: n for n, pair in enumerate(merges)}</code>, then
# <code>min(pairs, key=lambda pair: ranks.get(pair, math.inf))</code>.</details>

# %% exercise="bpe_encode"
def bpe_encode(word, merges):
    """Cut a word by the rules that were learned.

    word: bytes; merges: list of pairs of bytes, earlier ones go first
    Returns a list of bytes that spell the word; b"" gives [].
    """
    ### BEGIN SOLUTION
    from itertools import pairwise

    ranks = {pair: n for n, pair in enumerate(merges)}
    pieces = [bytes([byte]) for byte in word]
    while True:
        known = [pair for pair in pairwise(pieces) if pair in ranks]
        if not known:
            return pieces
        best, place = min(known, key=ranks.get), 0
        while place < len(pieces) - 1:
            if (pieces[place], pieces[place + 1]) == best:
                pieces[place : place + 2] = [best[0] + best[1]]
            place += 1
    ### END SOLUTION

# %% check="bpe_encode"
check(bpe_encode, points=4)

# %% tags=["demo"]
with need("bpe_train", "bpe_encode"):
    rules = [(b"b", b"c"), (b"bc", b"d"), (b"a", b"b"), (b"a", b"bc")]
    print(bpe_encode(b"abcd", rules))
    for word in (b" statement", b" statements", b" Transformer", "日本".encode()):
        print(bpe_encode(word, merges))
    reveal("which-cut", "a + bcd", "The rule for bc came first, so b was taken when a asked for it.")

# %% [markdown] reflect="bpe_encode"
# A word that nobody has seen still gets pieces. What is the worst that can happen to it, and what does that cost?
# Your sentence:

# %% [markdown]
# ---
# ## 1.5 Text to ids and back
# *core · about 30 min*
#
# Ids are an agreement: **0 to 255 are the bytes, `256 + i` is what `merges[i]` makes, then come the specials**, such as
# `<pad>`. A special is one id that no text can make by joining.
#
# The way back hides a trap. "日" is three bytes, and they may lie in different tokens:

# %%
first, second = "日".encode()[:2], "日".encode()[2:]
print("id by id:  ", first.decode(errors="replace") + second.decode(errors="replace"))
print("all bytes: ", (first + second).decode())

# %%
predict("half", "A model stops in the middle of a character. `decode` should…",
        ["raise an error", "leave the bytes out", "show � in their place"])

# %% [markdown]
# ### Exercise 1.5 · `Tokenizer` · core · about 26 min
# - **Build** a class that loses nothing: `decode(encode(text)) == text` for any text. Specials are found first, the
#   leftmost, and of several that fit **the longest**. Each stretch between goes to `bpe_encode` whole.
# - **Allowed** `re`, your `bpe_encode`. **Not allowed** changing the text in any way.
# - **Done when** the check below passes. It reads `vocab_size` and `special_ids` too.
#
# <details><summary>Hint 1 · where</summary>In <code>__init__</code>: a list of tokens by id and a dict back. In
# <code>encode</code>: cut at specials. In <code>decode</code>: join bytes, decode once.</details>
# <details><summary>Hint 2 · what</summary><code>re.split</code> keeps what it cuts at if the pattern stands in
# brackets. Alternatives are tried in order, so sort by length, and <code>re.escape</code> each.</details>
# <details><summary>Hint 3 · how</summary><code>b"".join(tokens[n] for n in ids).decode("utf-8",
# errors="replace")</code>; before that refuse ids that are negative or too large. An empty pattern matches everywhere: no
# specials, no split.</details>

# %% exercise="Tokenizer"
class Tokenizer:
    """Text to ids and back, without loss.

    merges: list of pairs of bytes; specials: list of str, for example ["<pad>"]
    vocab_size: how many ids there are; special_ids: {special: id}
    Raises ValueError for specials that repeat or are empty.
    Differs: GPT-2 cuts text into words by a pattern first.
    """

    def __init__(self, merges, specials):
        ### BEGIN SOLUTION
        if "" in specials or len(set(specials)) != len(specials):
            raise ValueError("specials must differ and none may be empty")
        self.merges = list(merges)
        self.tokens = [bytes([n]) for n in range(256)]
        self.tokens += [left + right for left, right in merges]
        self.ids = {token: n for n, token in enumerate(self.tokens)}
        self.special_ids = {text: len(self.tokens) + n for n, text in enumerate(specials)}
        self.tokens += [text.encode() for text in specials]
        self.vocab_size = len(self.tokens)
        ### END SOLUTION

    def encode(self, text):
        """Return a list of ids."""
        ### BEGIN SOLUTION
        import re

        longest_first = sorted(self.special_ids, key=len, reverse=True)
        pattern = "|".join(map(re.escape, longest_first))
        ids = []
        for part in re.split(f"({pattern})", text) if pattern else [text]:
            if part in self.special_ids:
                ids.append(self.special_ids[part])
            else:
                ids += [self.ids[piece] for piece in bpe_encode(part.encode(), self.merges)]
        return ids
        ### END SOLUTION

    def decode(self, ids):
        """Return the text of any iterable of ids, with � for bytes that are no character.

        Raises ValueError for an unknown id.
        """
        ### BEGIN SOLUTION
        ids = list(ids)
        if not all(0 <= n < self.vocab_size for n in ids):
            raise ValueError(f"unknown id: there are {self.vocab_size}, counted from 0")
        return b"".join(self.tokens[n] for n in ids).decode(errors="replace")
        ### END SOLUTION

# %% check="Tokenizer"
check(Tokenizer, points=6)

# %% [markdown]
# **Look.** Text of every kind, there and back.

# %% tags=["demo"]
with need("bpe_train", "bpe_encode", "Tokenizer"):
    tokenizer = Tokenizer(merges, ["<pad>", "<bos>", "<eos>"])
    for sample in ("The cat sat.", "naïve e\u0301", "日本語 🙂", "tab\tnul\x00 \r\n", "", "<bos>The<pa"):
        ids = tokenizer.encode(sample)
        print(f"{len(sample.encode()):3} bytes, {len(ids):2} ids, "
              f"came back: {tokenizer.decode(ids) == sample}   {sample!r}")
    print(repr(tokenizer.decode(tokenizer.encode("日")[:2])))
    reveal("half", "show � in their place", "A missing character must be seen, not hidden.")

# %% [markdown]
# The notes trace "The cat sat" with ids 42, 108, 311, and then use **five** vectors. Two markers around the words were
# lost in printing (slip A26). Markers are tokens: they count towards the length, and "cat" stands at place 2.

# %% tags=["demo"]
with need("bpe_encode", "Tokenizer"):
    marked = Tokenizer([], ["<s>", "</s>"])
    print("markers and letters:", len(marked.encode("<s>cat</s>")), "ids")

# %% [markdown] reflect="Tokenizer"
# A user types the text `<eos>` into a chat. What should your program do with it before `encode`? Your sentence:

# %% [markdown]
# ---
# ## 1.6 One rectangle for all
# *core · about 16 min*
#
# A batch is a rectangle; sentences are not. Short ones are filled up with a pad id, and a mask says what is real.

# %%
attempt("a ragged batch", lambda: torch.tensor([[5, 3, 8, 3], [7, 4]]))
rows = notes.example("002-padding-batch-length").inputs["rows"]
print("two rows that the notes padded to one length (slip A19):", [len(row) for row in rows], "- not equal")
tokens = torch.tensor([[5, 3, 8, 3], [7, 4, 3, 3]])
print("mask from values:\n", tokens != 3)

# %%
predict("pad-value", "Here the pad id is 3. What is wrong with the mask above?",
        ["nothing", "it hides real tokens", "it shows padding"])

# %% [markdown]
# ### Exercise 1.6 · `pad_batch` · core · about 12 min
# - **Build** `tokens` and `pad_mask` from lists of ids. Padding stands on the right; too long sentences keep their **first**
#   `max_len` tokens; nothing is wider than the longest needs.
# - **Allowed** loops, `torch.full`, `arange`, comparisons.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Cut each sentence first. Then the width is the longest length that is
# left.</details>
# <details><summary>Hint 2 · what</summary>What is real follows from lengths, never from values.</details>
# <details><summary>Hint 3 · how</summary><code>torch.arange(width) &lt; lengths[:, None]</code> is the mask;
# <code>torch.full((n, width), pad_id)</code>, filled row by row, the tokens.</details>

# %% exercise="pad_batch"
def pad_batch(sequences, pad_id, max_len=None):
    """Put sentences of different length into one rectangle.

    sequences: lists of ints, or 1-D int64 tensors; an empty one becomes a row of padding
    Returns tokens (batch, seq_len) int64 and pad_mask, same shape, bool, True = real token.
    Raises ValueError if there are no sequences, or max_len < 1.
    """
    ### BEGIN SOLUTION
    if len(sequences) == 0:
        raise ValueError("sequences is empty")
    if max_len is not None and max_len < 1:
        raise ValueError("max_len must be at least 1")
    rows = [torch.as_tensor(row, dtype=torch.int64)[:max_len] for row in sequences]
    lengths = torch.tensor([len(row) for row in rows])
    tokens = torch.full((len(rows), int(lengths.max())), pad_id)  # (B, T)
    for number, row in enumerate(rows):
        tokens[number, : len(row)] = row
    return tokens, torch.arange(tokens.shape[1]) < lengths[:, None]
    ### END SOLUTION

# %% check="pad_batch"
check(pad_batch, points=3)

# %% tags=["demo"]
with need("pad_batch"):
    tokens, real = pad_batch([[5, 3, 8, 3], [7, 4], [9, 6, 1]], pad_id=3)
    show(plots.token_table(tokens, real),
         "A table of three sentences. Real tokens, among them 3, stand on blue; padding, also 3, is hatched.")
    reveal("pad-value", "it hides real tokens", "3 is a word, too. Only lengths tell.")

# %% [markdown] reflect="pad_batch"
# A batch holds one sentence of 500 tokens and 31 of ten. What share of the work is padding, and how would you choose
# batches to avoid it? Your sentence:

# %% [markdown]
# ---
# ## 1.7 A vector for each id
# *core · about 24 min · NumPy*
#
# An id is a name, not a quantity: 311 is not three times 104. So each id gets a row of a table, and the table is
# learned. Looking up a row is the same as multiplying with a one-hot row. The notes' three words, looked up by product:

# %%
ex = notes.example("000-embedding-lookup")
ids = ex.inputs["token_ids"]
table = np.zeros((400, 4))
for name, row in ex.inputs["table"].items():
    table[int(name)] = row
print(ex.compare(np.eye(400)[ids] @ table))

# %%
predict("minus-one", "What does NumPy's `table[-1]` give?",
        ["an error", "zeros", "the last row"])

# %% [markdown]
# ### Exercise 1.7a · `embed` · core · about 8 min
# - **Build** the lookup for ids of any shape. Refuse ids that are not in the table.
# - **Not allowed** a view of the table: who writes into the result must not change a word for everybody.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>The features come last, after all axes of the ids.</details>
# <details><summary>Hint 2 · what</summary>Indexing rows with an array of ids does it all. NumPy takes −1 to be the
# last row, so look at the ids first.</details>
# <details><summary>Hint 3 · how</summary><code>np.any(token_ids &lt; 0)</code> and the same for too large ones, then
# <code>table[token_ids]</code>.</details>

# %% exercise="embed"
def embed(token_ids, table):
    """Look up a row for each id.

    token_ids (…) ints, NumPy; table (vocab_size, d_model)
    Returns a new array (…, d_model), dtype of table.
    Raises ValueError for a token id below 0 or not below vocab_size.
    Paper: Vaswani et al. 2017, §3.4. Differs: they multiply by √d_model as well.
    """
    ### BEGIN SOLUTION
    if np.any(token_ids < 0) or np.any(token_ids >= len(table)):
        raise ValueError(f"a token id is outside 0 … {len(table) - 1}")
    return table[token_ids]  # (…, M); indexing with an array copies
    ### END SOLUTION

# %% check="embed"
check(embed, points=2)

# %% tags=["demo"]
with need("embed"):
    rows = embed(np.array([42, 108, 311]), table)
    print(notes.example("000-embedding-lookup").compare(rows))
    attempt("id -1", lambda: embed(np.array([-1]), table))
    reveal("minus-one", "the last row", "A wrong id would have become a real word.")

# %% [markdown] reflect="embed"
# The paper multiplies embeddings by √d_model (slip D12: the notes leave it out). Soon a vector of length √(d_model/2),
# which says where a word stands, is added to each. What would happen to embeddings that start out small? Your sentence:

# %% [markdown]
# **Backwards.** The loss says how each looked-up vector should move. Which rows of the table move? Those that were
# looked up, and a word that stood at three places hears three wishes. Here is the tempting line:

# %%
grad, ids = np.zeros((4, 2)), np.array([1, 3, 1, 1])
grad[ids] += np.ones((4, 2))
print(grad)

# %%
predict("repeats", "Id 1 stood three times and each place sent 1. Its row of the gradient should be…",
        ["1", "3", "⅓"])

# %% [markdown]
# ### Exercise 1.7b · `embed_backward` · core · about 12 min
# - **Build** the gradient of the table: row n is the **sum** over all places where id n stood.
# - **Allowed** `np.add.at`, a one-hot product, loops.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Start with zeros of shape <code>(vocab_size, d_model)</code> in the dtype of the
# gradient.</details>
# <details><summary>Hint 2 · what</summary><code>grad[ids] += g</code> reads all rows, adds, and writes back: of three
# repeats the last one wins.</details>
# <details><summary>Hint 3 · how</summary><code>np.add.at(grad, token_ids, grad_out)</code></details>

# %% exercise="embed_backward"
def embed_backward(token_ids, grad_out, vocab_size):
    """Carry a gradient from looked-up vectors back to the table.

    token_ids (…) ints that embed has accepted; grad_out (…, d_model), both NumPy
    Returns (vocab_size, d_model), dtype of grad_out; rows that were not used are 0.
    """
    ### BEGIN SOLUTION
    grad = np.zeros((vocab_size, grad_out.shape[-1]), dtype=grad_out.dtype)  # (V, M)
    np.add.at(grad, token_ids, grad_out)
    return grad
    ### END SOLUTION

# %% check="embed_backward"
check(embed_backward, points=4)

# %% tags=["demo"]
with need("embed_backward"):
    print(embed_backward(ids, np.ones((4, 2)), 4))
    table_torch = torch.zeros(4, 2, requires_grad=True)
    F.embedding(torch.from_numpy(ids), table_torch).sum().backward()
    print("torch agrees:", np.array_equal(table_torch.grad, embed_backward(ids, np.ones((4, 2)), 4)))
    reveal("repeats", "3", "Gradients of one parameter add up over all its uses.")

# %% [markdown] reflect="embed_backward"
# In one batch most rows of a table of 50,000 get a gradient of 0. What does that mean for a rare word? Your sentence:

# %% [markdown]
# ---
# ## 1.8 Numbers into shares
# *core · about 17 min*
#
# Again and again a model must turn scores into shares of 1: which token comes next, which token to look at. **Softmax** is
# `exp(x)` divided by its sum. As it stands, it breaks:

# %%
scores = torch.tensor([1000.0, 999.0])
print(scores.exp() / scores.exp().sum())
predict("shift", "You subtract 7 from every score. The shares…",
        ["stay the same", "get smaller", "get flatter"])

# %% [markdown]
# ### Exercise 1.8 · `softmax` · core · about 13 min
# - **Build** softmax along `dim`, for any rank, safe for scores of ±10,000.
# - **Not allowed** torch's softmax. `exp`, `amax`, `sum`, `logsumexp` are.
# - **Done when** the check below passes. Entries of −∞ must come out as exactly 0.
#
# <details><summary>Hint 1 · where</summary>A <em>slice</em> is what lies along <code>dim</code>. Each has its own maximum and its
# own sum.</details>
# <details><summary>Hint 2 · what</summary>Subtract the maximum of each slice first; then the largest exponential is
# 1.</details>
# <details><summary>Hint 3 · how</summary><code>x.amax(dim, keepdim=True)</code>: <code>keepdim</code> leaves an axis of
# length 1, so that every slice meets its own.</details>

# %% exercise="softmax"
def softmax(x, dim):
    """Turn scores into shares that sum to 1 along `dim`.

    x (…) floating, any rank; dim may be negative
    Returns a new tensor, shape and dtype of x.
    """
    ### BEGIN SOLUTION
    exps = (x - x.amax(dim, keepdim=True)).exp()
    return exps / exps.sum(dim, keepdim=True)
    ### END SOLUTION

# %% check="softmax"
check(softmax, points=4)

# %% [markdown]
# **Look.** Scores of worked examples of the notes. Where the printed shares are right, are the exponentials on the way
# there right as well? (Slips A8, A14 and A15; phase 2 comes back to them.)

# %% tags=["demo"]
with need("softmax"):
    print("1000 and 999:", softmax(torch.tensor([1000.0, 999.0]), 0))
    z = torch.tensor(notes.example("000-output-softmax").inputs["z"], dtype=torch.float64)
    print(notes.example("000-output-softmax").compare(softmax(z, 0)))
    for row in (1, 2, 3):
        z = torch.tensor(notes.example(f"001-softmax-row{row}").inputs["z"], dtype=torch.float64)
        print(notes.example(f"001-softmax-row{row}").compare(softmax(z, -1)))
        print(notes.example(f"001-exp-row{row}").compare((z - z.max()).exp()))
    reveal("shift", "stay the same", "Only gaps between scores count. That is why the trick is free.")

# %% [markdown] reflect="softmax"
# Multiply all scores by 10 instead. What happens to the shares, and what is that called when you talk to a chatbot? Your
# sentence:

# %% [markdown]
# ---
# ## 1.9 Say where a token stands
# *core · about 20 min*
#
# Attention compares vectors. It does not know who came first. Here it is, bare, over the notes' two sentences: compare
# all pairs (`x @ x.T`, each a dot product), make shares of 1 of each row, mix the vectors by these shares.

# %%
dog, bites, man = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
for sentence in ([dog, bites, man], [man, bites, dog]):
    x = torch.stack(sentence)
    print(((x @ x.T / 2).softmax(-1) @ x)[1])  # what "bites" becomes
for name in ("002-dog-bites-man", "004-same-multiset"):
    a, b = (notes.example(name).inputs[key].lower().split() for key in "ab")
    print(notes.example(name).compare(sorted(a) == sorted(b)))

# %% [markdown]
# The same vector: without help, *dog bites man* is *man bites dog*. Shuffle the tokens and the outputs are shuffled
# likewise: that is **equivariant**. The notes say **invariant** (slip D8), which means that nothing changes at all. Only
# a pooled output, such as the mean of all rows, is. Compare with three matrices, as phase 2 will:

# %%
ex = notes.example("003-permutation-invariant")
rng = np.random.default_rng(ex.inputs["seed"])
w_q, w_k, w_v, x = *(torch.tensor(rng.normal(size=(4, 4))) for _ in range(3)), torch.tensor(rng.normal(size=(3, 4)))


def bare_attention(x):
    return (x @ w_q @ (x @ w_k).T / 2).softmax(-1) @ (x @ w_v)


plain, shuffled = bare_attention(x), bare_attention(x[ex.inputs["order"]])
print("equivariance gap", (shuffled - plain[ex.inputs["order"]]).abs().max().item())
for name in ("003-permutation-invariant", "004-permutation-invariant"):
    print(notes.example(name).compare((shuffled - plain).abs().max().item(), "invariance_gap"))

# %% [markdown]
# So order must be put into the vectors. Four tempting codes for place `p`:
#
# | code | breaks because |
# |---|---|
# | the same for all | says nothing |
# | the number `p` | place 900 drowns the word |
# | one-hot | one feature per place, all places equally far apart |
# | a learned row | knows no place it has not seen (section 1.12) |
#
# The paper uses waves. Each pair of columns is a clock hand, `(sin, cos)` of `p` times a speed. Fast hands tell
# neighbours apart, slow ones tell far regions apart.

# %%
predict("hand", "Speeds are `base^(−2i/d_model)`, pair i = 0, 1, 2… Which pair turns fastest?",
        ["the first", "the last", "all alike"])

# %% [markdown]
# ### Exercise 1.9 · `sinusoidal_positions` · core · about 15 min
# - **Build** the table: column `2i` is `sin(p · base^(−2i/d_model))`, column `2i + 1` the cosine **of the same angle**.
# - **Allowed** broadcasting, loops, NumPy inside. The result has torch's default dtype.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Rows are places from 0. Columns come in pairs, d_model/2 of them.</details>
# <details><summary>Hint 2 · what</summary>First the speeds, one per pair, then all angles at once: a column of places times
# a row of speeds.</details>
# <details><summary>Hint 3 · how</summary><code>table[:, 0::2] = angles.sin()</code>, <code>table[:, 1::2] =
# angles.cos()</code>. <code>torch.arange(0, d_model, 2) / d_model</code> is already 2i/d.</details>

# %% exercise="sinusoidal_positions"
def sinusoidal_positions(seq_len, d_model, base=10000.0):
    """A clock of d_model/2 hands for every place.

    Returns (seq_len, d_model), torch's default dtype; row p is place p, counted from 0.
    Raises ValueError if d_model is not even.
    Paper: Vaswani et al. 2017, §3.5.
    """
    ### BEGIN SOLUTION
    if d_model % 2 != 0:
        raise ValueError("d_model must be even")
    speeds = base ** -(torch.arange(0, d_model, 2) / d_model)  # (M/2,)
    angles = torch.arange(seq_len)[:, None] * speeds  # (T, M/2)
    table = torch.zeros(seq_len, d_model)
    table[:, 0::2] = angles.sin()
    table[:, 1::2] = angles.cos()
    return table
    ### END SOLUTION

# %% check="sinusoidal_positions"
check(sinusoidal_positions, points=4)

# %% tags=["demo"]
with need("sinusoidal_positions"):
    show(plots.position_map(sinusoidal_positions(48, 32)),
         "A heat map, one row per place, one column per feature: the left columns change from row to "
         "row, the right ones hardly at all.")
    ex = notes.example("004-small-i-low-frequency")
    table = sinusoidal_positions(2, 8)
    print(ex.compare(torch.atan2(table[1, 0::2], table[1, 1::2]), "omega"))
    reveal("hand", "the first", "Speeds 1, 0.1, 0.01, …: small i is the fast second hand (slip D7).")

# %% [markdown]
# **The notes, recomputed.** The table of width 4, and the three input rows: embedding plus position. Adding looks as if it
# mixed what cannot be unmixed; wide vectors have room for both, and the layers after it learn to tell them apart.

# %% tags=["demo"]
with need("sinusoidal_positions"):
    print(notes.example("000-pe-table").compare(sinusoidal_positions(3, 4)))
    rounded = sinusoidal_positions(3, 4).double().round(decimals=2).numpy()
    for place, word in enumerate(("the", "cat", "sat")):
        ex = notes.example(f"000-x-enc-{word}")
        print(ex.compare(np.array(ex.inputs["a"]) + rounded[place]))
    ex = notes.example("000-x-enc-matrix")
    print(ex.compare(np.array(ex.inputs["a"]) + rounded))

# %% [markdown]
# **A slip worth knowing.** One page prints the exponents `2i/d` and `(2i − 1)/d` with i the single *dimension* (slip C8).
# Nothing crashes, and row 0 is even right. What is lost?

# %% tags=["demo"]
with need("sinusoidal_positions"):
    p, i, d = torch.arange(3)[:, None], torch.arange(4), 4
    printed = torch.where(i % 2 == 0, torch.sin(p / 1e4 ** (2 * i / d)),
                          torch.cos(p / 1e4 ** ((2 * i - 1) / d)))
    print(notes.example("003-pe-formula").compare(printed, "printed_values"))
    print(notes.example("003-pe-p0").compare(sinusoidal_positions(1, 8)[0]))
    print("yours, place 1:", sinusoidal_positions(3, 4)[1], "\nprinted:       ", printed[1])

# %% [markdown] reflect="sinusoidal_positions"
# In the printed table sine and cosine of a pair no longer share a speed. Why does the next section need them to? Your
# sentence:

# %% [markdown]
# **Play.** Your table runs under these sliders; Tab and arrow keys work too. Which column tells place 3 from 4
# best? Set the base to 10: which places now look alike? Where does the distance from the marked place first *fall*?

# %% tags=["demo"]
with need("sinusoidal_positions"):
    widgets.position_explorer(sinusoidal_positions)

# %% [markdown]
# ---
# ## 1.10 A shift is a rotation
# *more · about 18 min*
#
# Ten minutes later, each hand of a clock has turned by a fixed angle, **wherever it stood**. So "k places further" is one
# matrix, the same for all p: `PE[p + k] = PE[p] @ M`. A layer can learn such a matrix, and with it "look three to the left".
#
# From the sum of angles: `sin(a + t) = sin a cos t + cos a sin t` and `cos(a + t) = cos a cos t − sin a sin t`.

# %%
predict("negative", "`M(3) @ M(−3)` is…", ["M(0), the identity", "M(9)", "not defined"])

# %% [markdown]
# ### Exercise 1.10 · `shift_matrix` · more · about 14 min
# - **Build** M for any offset, negative ones too. Rows are tokens, so M stands on the **right**.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Zero but for 2 × 2 blocks on the diagonal, one per pair of columns.</details>
# <details><summary>Hint 2 · what</summary>The first <em>column</em> of a block makes the new sine from (sin a, cos a), the second
# the new cosine.</details>
# <details><summary>Hint 3 · how</summary>the block is <code>[[cos t, −sin t], [sin t, cos t]]</code> with
# <code>t = offset · base^(−2i/d_model)</code>; <code>torch.block_diag</code> puts blocks on a diagonal.</details>

# %% exercise="shift_matrix"
def shift_matrix(offset, d_model, base=10000.0):
    """The matrix that carries every position `offset` places on.

    Returns M (d_model, d_model), torch's default dtype: PE[p + offset] = PE[p] @ M for every p
    Raises ValueError if d_model is not even.
    """
    ### BEGIN SOLUTION
    if d_model % 2 != 0:
        raise ValueError("d_model must be even")
    even = torch.arange(0, d_model, 2)
    angles = offset * base ** -(even / d_model)
    matrix = torch.zeros(d_model, d_model)
    matrix[even, even] = matrix[even + 1, even + 1] = angles.cos()
    matrix[even + 1, even] = angles.sin()
    matrix[even, even + 1] = -angles.sin()
    return matrix
    ### END SOLUTION

# %% check="shift_matrix"
check(shift_matrix, points=3)

# %% tags=["demo"]
with need("sinusoidal_positions", "shift_matrix"):
    ex = notes.example("000-pe-rotation")
    table = sinusoidal_positions(100, ex.inputs["d"])
    gaps = [(table[p] @ shift_matrix(k, 8) - table[p + k]).abs().max()
            for p in ex.inputs["positions"] for k in ex.inputs["offsets"]]
    print(ex.compare(max(gaps).item() < 1e-5, "identity_holds"))
    print("back and forth:", (shift_matrix(3, 8) @ shift_matrix(-3, 8) - torch.eye(8)).abs().max())
    reveal("negative", "M(0), the identity", "Turning back is turning by the negative angle.")

# %% [markdown] reflect="shift_matrix"
# The notes conclude that such models work on texts longer than any they saw. The matrix holds for every p; trained models
# still fail there (slip D9). What have their other layers never seen? Your sentence:

# %% [markdown]
# ---
# ## 1.11 Is it a ruler
# *more · about 15 min*
#
# "The encoding tells how far apart two words are." Measure it: how far apart are the *vectors*? The notes begin with a
# table of steps between five words. In one-hot codes every place is √2 from every other.

# %%
n = notes.example("003-distance-matrix").inputs["n"]
steps = (torch.arange(n)[:, None] - torch.arange(n)).abs()
print(notes.example("003-distance-matrix").compare(steps))
predict("ruler", "Sinusoids of width 32, seen from place 0. With distance, the vectors lie…",
        ["ever further apart", "further apart at first", "equally far apart"])

# %% [markdown]
# ### Exercise 1.11 · `position_distances` · more · about 9 min
# - **Build** the table of distances between all rows.
# - **Watch out** for `|a|² + |b|² − 2ab`: with large entries it loses its digits, and a square can come out negative.
#   `torch.cdist` passes, but takes that way above 25 rows unless you tell it not to.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>(n, 1, d) minus (1, n, d) is (n, n, d).</details>
# <details><summary>Hint 2 · what</summary>Square, sum over the features, take the root.</details>
# <details><summary>Hint 3 · how</summary><code>(positions[:, None] - positions[None]).square().sum(-1).sqrt()</code></details>

# %% exercise="position_distances"
def position_distances(positions):
    """How far apart the encodings of any two places are.

    positions (n, d) floating
    Returns (n, n) Euclidean distances, dtype of positions; the diagonal is 0.
    """
    ### BEGIN SOLUTION
    differences = positions[:, None] - positions[None]  # (n, n, d)
    return differences.square().sum(-1).sqrt()
    ### END SOLUTION

# %% check="position_distances"
check(position_distances, points=2)

# %% tags=["demo"]
with need("sinusoidal_positions", "position_distances"):
    curves = {"the same for all": torch.ones(80, 4), "one-hot": torch.eye(80),
              "random rows": torch.randn(80, 512, generator=torch.Generator().manual_seed(0)) / 32,
              "sinusoids, width 4": sinusoidal_positions(80, 4),
              "sinusoids, width 32": sinusoidal_positions(80, 32)}
    curves = {name: position_distances(table)[0] for name, table in curves.items()}
    show(plots.distance_curves(curves),
         "Distance from place 0 by offset. Same for all: 0. One-hot and random rows: level. Sinusoids "
         "of width 4 swing up and down; of width 32 rise fast, then go on in waves, up on the whole.")
    falls = (curves["sinusoids, width 32"].diff() < 0).nonzero()[0].item()
    reveal("ruler", "further apart at first", f"It falls for the first time after offset {falls}.")

# %% tags=["demo"]
with need("sinusoidal_positions", "position_distances"):
    one_hot = position_distances(torch.eye(5, dtype=torch.float64))
    print(notes.example("003-one-hot-sqrt2").compare(one_hot[0, 1].item(), "distance"))
    for name, width in (("003-pe-distance", 512), ("003-pe-distance-d4", 4)):
        distances = position_distances(sinusoidal_positions(5, width).double())
        print(notes.example(name).compare(distances[0], "row0"))
    far = torch.randn(40, 8) + 1000
    print("from itself, by cdist:", torch.cdist(far, far).diagonal().max(),
          "by yours:", position_distances(far).diagonal().max())

# %% [markdown] reflect="position_distances"
# The distance depends on the offset alone, and yet it is no ruler (slip D10). Which offsets can a layer confuse? Your sentence:

# %% [markdown]
# ---
# ## 1.12 Let the table learn
# *more · about 15 min*
#
# GPT-2 and BERT learn a row for each place, as they learn one for each word. The paper tried that too, found it about as
# good and kept sinusoids (slip C9: the notes claim both). A learned table ends:

# %%
table = torch.randn(6, 4)
predict("beyond", "A slice that runs over the end: `table[4:9]` of a table with 6 rows…",
        ["raises", "has 2 rows", "wraps round"])

# %% [markdown]
# ### Exercise 1.12 · `LearnedPositions` · more · about 11 min
# - **Build** a module with one parameter `table` that adds rows `offset` to `offset + seq_len − 1`. The offset serves a
#   model that writes token by token and keeps what it computed before, its *cache* (phase 5).
# - **Not allowed** silence beyond the end: raise.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Axis −2 of <code>x</code> is the sentence. Leading axes broadcast.</details>
# <details><summary>Hint 2 · what</summary>One row left over would broadcast to all tokens: compare the end with
# <code>max_len</code> first. Negative offsets count from the end: refuse them.</details>
# <details><summary>Hint 3 · how</summary><code>self.table = nn.Parameter(torch.randn(max_len, d_model) * 0.02)</code>;
# <code>x + self.table[offset : offset + seq_len]</code>.</details>

# %% exercise="LearnedPositions"
class LearnedPositions(nn.Module):
    """Add a learned row for each place.

    Parameter: table (max_len, d_model); or write load_weights(weights), key "table"
    """

    def __init__(self, max_len, d_model):
        super().__init__()
        ### BEGIN SOLUTION
        self.table = nn.Parameter(torch.randn(max_len, d_model) * 0.02)
        ### END SOLUTION

    def forward(self, x, offset=0):
        """x (…, seq_len, d_model); offset: the place of the first token. Returns the shape of x.

        Raises ValueError if offset < 0 or offset + seq_len > max_len.
        """
        ### BEGIN SOLUTION
        end = offset + x.shape[-2]
        if offset < 0 or end > len(self.table):
            raise ValueError(f"places {offset} to {end - 1} do not fit into max_len {len(self.table)}")
        return x + self.table[offset:end]
        ### END SOLUTION

# %% check="LearnedPositions"
check(LearnedPositions, points=4)

# %% tags=["demo"]
with need("LearnedPositions"):
    layer = LearnedPositions(6, 4)
    layer(torch.zeros(2, 3, 4), offset=1).sum().backward()
    print("gradient of each row:", layer.table.grad[:, 0])
    attempt("four tokens from place 5", lambda: layer(torch.zeros(1, 4, 4), offset=5))
    print(table[4:9].shape, table[5:9].shape, (torch.zeros(4, 4) + table[5:9]).shape)
    reveal("beyond", "has 2 rows", "And a single row left over broadcasts: every token, one place.")

# %% [markdown] reflect="LearnedPositions"
# Rows 4 and 5 got no gradient: no sentence was that long. What does such a model do with its first long text? Your sentence:

# %% [markdown]
# ---
# ## 1.13 Turn instead of add
# *more · about 28 min*
#
# Newer models add nothing. They **turn** queries and keys (the vectors that attention compares, phase 2) by an angle that
# grows with the place. A dot product of two turned vectors depends on the *difference* of the angles only: relative
# position, and no table.

# %%
def turned(vector, angle):
    c, s = math.cos(angle), math.sin(angle)
    return torch.tensor([[c, -s], [s, c]]) @ vector


q, k = torch.tensor([1.0, 0.5]), torch.tensor([0.3, 0.9])
for place in (0, 5, 1000):
    print(place, (turned(q, 0.1 * (place + 3)) @ turned(k, 0.1 * place)).item())
predict("length", "Turning changes the length of a vector…", ["never", "a little", "with the place"])

# %% [markdown]
# Wide vectors are cut into pairs, each with its own speed, as in section 1.9. Which entries form a pair is an agreement. We
# use the one of most open models: entry `i` and entry `i + d_head/2` (**half-split**). The paper pairs
# neighbours. Weights trained with one layout give nonsense with the other.
#
# ### Exercise 1.13 · `rope` · more · about 22 min
# - **Build** `first' = a cos − b sin`, `second' = b cos + a sin`, where `a` and `b` are the halves of `x` and the angle is
#   `position · base^(−2i/d_head)`.
# - **Not allowed** writing into `x`; angles in half precision.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary><code>positions</code> lacks the last axis of <code>x</code>: add one, and the
# speeds fill it.</details>
# <details><summary>Hint 2 · what</summary>angles have shape <code>(…, seq_len, d_head/2)</code>. Compute them in float32
# at least, then give sine and cosine the dtype of <code>x</code>.</details>
# <details><summary>Hint 3 · how</summary><code>a, b = x.chunk(2, -1)</code>; <code>torch.cat([a * cos - b * sin, b * cos +
# a * sin], -1)</code>.</details>

# %% exercise="rope"
def rope(x, positions, base=10000.0):
    """Turn each pair of features by an angle that grows with the place.

    x (…, seq_len, d_head) floating; positions ints, broadcast to x.shape[:-1]
    Returns a new tensor, shape and dtype of x. Pairs are (i, i + d_head/2).
    Raises ValueError if d_head is not even.
    Paper: Su et al. 2021, §3.2.2. Differs: half-split pairs, as in GPT-NeoX and Llama.
    """
    ### BEGIN SOLUTION
    d_head = x.shape[-1]
    if d_head % 2 != 0:
        raise ValueError("d_head must be even")
    speeds = base ** -(torch.arange(0, d_head, 2, dtype=torch.float32) / d_head)
    angles = positions[..., None] * speeds  # (…, T, D/2), float32 even if x is narrower
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
    ### END SOLUTION

# %% check="rope"
check(rope, points=5)

# %% tags=["demo"]
with need("rope"):
    torch.manual_seed(0)
    q, k, places = torch.randn(5, 8), torch.randn(5, 8), torch.tensor([4, 0, 7, 2, 9])
    here = rope(q, places) @ rope(k, places).T
    there = rope(q, places + 100) @ rope(k, places + 100).T
    print("scores change by", f"{(here - there).abs().max():.0e}", "when all move on by 100")
    print("lengths change by", f"{(rope(q, places).norm(dim=-1) - q.norm(dim=-1)).abs().max():.0e}")
    reveal("length", "never", "A rotation keeps lengths, so positions cannot drown words.")

# %% [markdown] reflect="rope"
# Which of these does each code have: tells places apart, works beyond the training length, makes scores depend on the
# offset alone? Go through constant, one-hot, learned, sinusoids, rotary. Your sentence:

# %% [markdown]
# ---
# ## 1.14 What is left of the notes
# *more · about 6 min*
#
# Two numbers are still to come: how long the slowest wave is, and what shape five tokens of width 4 have after a matrix of
# shape (4, 6). In a product the inner lengths meet and go: (5, 4) @ (4, 6) is (5, 6).

# %%
for name in ("000-pe-wavelength-range", "004-pe-wavelengths"):
    d = notes.example(name).inputs["d"]
    print(notes.example(name).compare(10_000 ** ((d - 2) / d), "last_over_2pi"))
print(notes.example("004-walkthrough-shape").compare((np.ones((5, 4)) @ np.ones((4, 6))).shape))

# %% [markdown]
# The slowest wave is not 10,000 turns of 2π long, but 9,647: the last exponent is `(d − 2)/d`, not 1 (slip A13). Adding
# positions instead of joining them is a choice (D11): joining and then projecting works as well and costs a matrix. Signs
# differ between the notes (C7: N is a length here, the number of blocks there), so look at the shapes. And sections are
# missing (C19), and so is the list behind their citation numbers (A30): what you cannot open is no source.

# %% [markdown]
# ### The signs, and the four products behind them
#
# | sign | is |
# |---|---|
# | `a @ b` of two vectors | dot product: entries times entries, summed; large if they point the same way |
# | `X @ W`, (n, d) @ (d, k) | n · k dot products, rows of X with columns of W: (n, k) |
# | `X.T` | rows become columns; `(X @ W).T` is `W.T @ X.T` |
# | `softmax(S, -1)` | each row of S becomes shares of 1; its largest score is subtracted first |
#
# Lengths in this course: `seq_len` (N or T in papers), `d_model` (d or D), `n_heads` (H), `d_head`, `d_ff`, `vocab_size` (V).

# %%
X, W = torch.tensor([[1.0, 2.0], [0.0, 1.0], [3.0, 0.0]]), torch.tensor([[1.0, 0.0, 2.0, 1.0], [0.0, 1.0, 1.0, 0.0]])
print(X @ W, torch.equal((X @ W).T, W.T @ X.T), X[0] @ X[2])
print((X @ X.T).softmax(-1).sum(-1))

# %% [markdown]
# ---
# ## 1.15 Say it aloud
# *core · about 13 min*
#
# Three questions that interviewers ask. Write as you would speak: five to eight sentences. A person grades these.

# %% [markdown]
# **Question 1. What did Transformers replace, and what did that buy? What did it cost?**
#
# | points | for |
# |---|---|
# | 1 | recurrence: one state, renewed word by word; influence fades or explodes with distance |
# | 1 | attention: every token reads every other one directly, a path of length 1 |
# | 1 | all places are computed at once, as large matrix products that suit a GPU |
# | 1 | the price: cost grows with the square of the length, order must be put in, and looking far must be learned |

# %% [markdown] written="recurrence" points=4
# ### BEGIN SOLUTION
# Before, sentences were read by a recurrent network, which keeps one state and renews it at each word. What the first word
# said must pass through the same matrix at every step, so its influence is multiplied by about the same factor each time
# and fades or explodes; gates in LSTMs soften that. And step t waits for step t − 1, so a long sentence is slow however many
# processors there are. In a Transformer every token may read every other token directly, so the path between any two has
# length 1, and all places are computed at once as a few large matrix products. It is not free: the table of scores grows
# with the square of the length, attention does not know the order unless positions are put in, and a path of length 1 only
# allows it to look far, it still has to learn to. A recurrent network keeps a state of fixed size, so for
# endless streams it is cheaper.
# ### END SOLUTION

# %% [markdown]
# **Question 2. How does byte-level BPE work, and why not words or characters?**
#
# | points | for |
# |---|---|
# | 1 | words: unknown ones, huge vocabulary; characters or bytes alone: long sequences of little meaning |
# | 1 | training: start from bytes, count neighbouring pairs, join the most frequent, repeat |
# | 1 | encoding: replay the rules, the earliest first; not the longest match |
# | 1 | lossless on any text; decode the joined bytes once; specials have ids of their own |

# %% [markdown] written="bpe" points=4
# ### BEGIN SOLUTION
# Whole words need an endless vocabulary and fail at the first new one; single characters or bytes never fail but make
# sequences long and tokens empty of meaning. Byte-pair encoding lies between. Training starts from the 256 bytes, counts
# how often each pair of neighbours occurs in the text, joins the most frequent pair everywhere into a new token, counts
# anew, and repeats until the vocabulary is as large as wanted. The list of merges is the tokenizer. To encode new text, its
# bytes are joined by the same rules, always the earliest rule that fits, which is not the same as taking the longest token.
# Because it starts from bytes, every text can be encoded and comes back exactly, whatever its language. A character may be
# spread over several tokens, so decoding joins the bytes of all tokens first and decodes once. Special tokens get ids of
# their own and are found before anything is joined.
# ### END SOLUTION

# %% [markdown]
# **Question 3. Why does a Transformer need positions, and how do learned, sinusoidal and rotary ones differ?**
#
# | points | for |
# |---|---|
# | 1 | attention is equivariant: shuffled tokens give shuffled outputs (not invariant; not true where each token sees only its left) |
# | 1 | sinusoids: pairs of sine and cosine, speeds fall geometrically, added; a shift is one rotation for all places |
# | 1 | learned: a row for each place, as good within its length, nothing beyond max_len |
# | 1 | rotary: queries and keys are turned, scores depend on the offset only; none guarantees longer texts |

# %% [markdown] written="positions" points=4
# ### BEGIN SOLUTION
# Attention compares vectors and does not know where they stand: if you shuffle the tokens, the outputs are shuffled in the
# same way. That is equivariance; people often say invariance, which holds only for a pooled output, and with a causal mask
# not even equivariance is left. So order must be put into the vectors. Sinusoidal positions add pairs of sine and cosine
# whose speeds fall geometrically from 1 to about 1/10000; moving on by k is then one rotation matrix, the same at every
# place, though the distance between two encodings is no ruler. Learned positions add a trained row for each place, work
# about as well within the length they were trained on, and have nothing to offer beyond it. Rotary positions add
# nothing; they turn queries and keys by an angle that grows with the place, so that a score depends on the offset alone.
# That the formula is defined for longer texts is no guarantee: trained models still do worse beyond the lengths they saw.
# ### END SOLUTION

# %% [markdown]
# ### The phase on one screen

# %%
show(plots.text_to_tensors(),
     "A chain of boxes: text, bytes, merged pieces, ids, a padded batch with its mask, embeddings plus "
     "positions, and the tensor that enters the first block, each with the function that makes it and its shape.")

# %% [markdown]
# **What you can now say in an interview:**
#
# - Recurrence passes everything through one state; attention has paths of length 1 and computes all places at once.
# - BPE: bytes, most frequent pair, repeat. Encode by the earliest rule, decode the joined bytes. Nothing is lost.
# - A padding mask comes from lengths, never from values. Markers are tokens.
# - The gradient of a table sums over all places of a word.
# - Attention is equivariant, so positions are needed. Sinusoids: a shift is a rotation, a distance is no ruler.
# - Rotary positions turn queries and keys; scores see only the offset.
#
# Phase 2: how tokens look at each other.
