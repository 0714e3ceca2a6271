"""Twins of phase 1: text becomes tokens, tokens become vectors, vectors learn where they stand."""

import heapq
from collections import Counter, defaultdict

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from utils.observe.forbid import twin

__all__ = [
    "LearnedPositions",
    "Tokenizer",
    "bpe_encode",
    "bpe_train",
    "embed",
    "embed_backward",
    "pad_batch",
    "position_distances",
    "rnn_forward",
    "rope",
    "shift_matrix",
    "sinusoidal_positions",
    "softmax",
]

# ---- tokens --------------------------------------------------------------------------------------


class _Chain:
    """All words as places in linked chains; `places` says where a pair may stand, `totals` how often it does."""

    def __init__(self, word_counts):
        self.piece, self.weight, self.after, self.before = [], [], [], []
        for word, count in word_counts.items():
            start, end = len(self.piece), len(self.piece) + len(word) - 1
            for place in range(start, end + 1):
                self.piece.append(word[place - start : place - start + 1])
                self.weight.append(count)
                self.before.append(place - 1 if place > start else None)
                self.after.append(place + 1 if place < end else None)
        self.totals, self.places, self.touched, self.heap = Counter(), defaultdict(set), set(), []
        for place in range(len(self.piece)):
            self.count(place, +1)

    def pair(self, place):
        """The pair that begins at a place, or None."""
        if place is None or self.piece[place] is None or self.after[place] is None:
            return None
        return self.piece[place], self.piece[self.after[place]]

    def count(self, place, sign):
        pair = self.pair(place)
        if pair is not None:
            self.totals[pair] += sign * self.weight[place]
            self.places[pair].add(place)
            self.touched.add(pair)

    def best(self):
        """The most frequent pair, of several the greater one; None if no pair is left."""
        for pair in self.touched:
            heapq.heappush(self.heap, (-self.totals[pair], _GreaterFirst(pair)))
        self.touched.clear()
        while self.heap and -self.heap[0][0] != self.totals[self.heap[0][1]]:
            heapq.heappop(self.heap)  # what was true some merges ago
        return tuple(self.heap[0][1]) if self.heap and self.heap[0][0] else None

    def join(self, pair):
        for place in sorted(self.places.pop(pair)):
            if self.pair(place) != pair:
                continue
            right = self.after[place]
            for spoilt in (self.before[place], place, right):
                self.count(spoilt, -1)
            self.piece[place], self.piece[right] = pair[0] + pair[1], None
            self.after[place] = self.after[right]
            if self.after[place] is not None:
                self.before[self.after[place]] = place
            for renewed in (self.before[place], place):
                self.count(renewed, +1)


class _GreaterFirst(tuple):
    """A pair that a heap hands out the other way round."""

    __slots__ = ()

    def __lt__(self, other):
        return tuple(self) > tuple(other)


@twin
def bpe_train(word_counts, n_merges):
    """By a heap of totals and linked places: nothing is ever counted anew."""
    if n_merges < 0:
        raise ValueError("n_merges must not be negative")
    chain, merges = _Chain(word_counts), []
    while len(merges) < n_merges and (pair := chain.best()):
        merges.append(pair)
        chain.join(pair)
    return merges


def _joined(word, ranks):
    """The pieces of a word: a heap of (rank, place), one join at a time."""
    piece = [word[place : place + 1] for place in range(len(word))]
    after, before = list(range(1, len(word) + 1)), list(range(-1, len(word) - 1))
    heap = []

    def offer(place):
        if place >= 0 and after[place] < len(word):
            rank = ranks.get((piece[place], piece[after[place]]))
            if rank is not None:
                heapq.heappush(heap, (rank, place))

    for place in range(len(word)):
        offer(place)
    while heap:
        rank, place = heapq.heappop(heap)
        right = after[place]
        if piece[place] is None or right >= len(word) or ranks.get((piece[place], piece[right])) != rank:
            continue
        piece[place], piece[right] = piece[place] + piece[right], None
        after[place] = after[right]
        if after[place] < len(word):
            before[after[place]] = place
        offer(place)
        offer(before[place])
    return [part for part in piece if part is not None]


@twin
def bpe_encode(word, merges):
    return _joined(word, {pair: rank for rank, pair in enumerate(merges)})


@twin
class Tokenizer:
    """Specials are found by looking for each of them; no pattern language."""

    def __init__(self, merges, specials):
        if len(set(specials)) < len(specials) or "" in specials:
            raise ValueError("specials must not repeat or be empty")
        self._ranks = {tuple(pair): rank for rank, pair in enumerate(merges)}
        tokens = [bytes([value]) for value in range(256)] + [left + right for left, right in merges]
        self._ids = {token: n for n, token in enumerate(tokens)}
        self.special_ids = {text: len(tokens) + n for n, text in enumerate(specials)}
        self._tokens = tokens + [text.encode() for text in specials]
        self.vocab_size = len(self._tokens)

    def encode(self, text):
        ids = []
        while text:
            found = [(text.find(special), -len(special)) for special in self.special_ids if special in text]
            start, length = min(found, default=(len(text), 0))
            ids += [self._ids[piece] for piece in _joined(text[:start].encode(), self._ranks)]
            if found:
                ids.append(self.special_ids[text[start : start - length]])
            text = text[start - length :]
        return ids

    def decode(self, ids):
        ids = list(ids)
        if any(not 0 <= n < self.vocab_size for n in ids):
            raise ValueError(f"unknown id: ids go from 0 to {self.vocab_size - 1}")
        return b"".join(self._tokens[n] for n in ids).decode(errors="replace")


@twin
def pad_batch(sequences, pad_id, max_len=None):
    """torch's pad_sequence, once for the tokens and once for what is real."""
    if not len(sequences):
        raise ValueError("sequences is empty: a batch needs at least one")
    if max_len is not None and max_len < 1:
        raise ValueError("max_len must be at least 1")
    rows = [torch.as_tensor(one, dtype=torch.int64)[:max_len] for one in sequences]
    real = [torch.ones_like(row, dtype=torch.bool) for row in rows]
    return pad_sequence(rows, True, pad_id), pad_sequence(real, True, False)


# ---- vectors -------------------------------------------------------------------------------------


@twin
def embed(token_ids, table):
    """torch's embedding."""
    ids = torch.as_tensor(token_ids)
    if ids.numel() and (ids.min() < 0 or ids.max() >= len(table)):
        raise ValueError(f"a token id is outside 0 … {len(table) - 1}")
    return F.embedding(ids, torch.from_numpy(table)).numpy()


@twin
def embed_backward(token_ids, grad_out, vocab_size):
    """torch's own backward kernel of embedding."""
    grad, ids = torch.from_numpy(grad_out), torch.as_tensor(token_ids)
    return torch.ops.aten.embedding_dense_backward(grad, ids, vocab_size, -1, False).numpy()


@twin
def softmax(x, dim):
    return x.softmax(dim)


@twin
def rnn_forward(x, w_x, w_h, b):
    """torch's own recurrent kernel, which wants its matrices the other way round and two biases."""
    x, w_x, w_h, b = map(torch.from_numpy, (x, w_x, w_h, b))
    start = x.new_zeros(1, len(x), len(b))
    weights = [w_x.T.contiguous(), w_h.T.contiguous(), b, torch.zeros_like(b)]
    with torch.no_grad():
        return torch.rnn_tanh(x, start, weights, True, 1, 0.0, False, False, True)[0].numpy()


# ---- positions -----------------------------------------------------------------------------------


def _frequencies(width, base):
    if width % 2:
        raise ValueError(f"the width must be even, got {width}")
    return float(base) ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)


@twin
def sinusoidal_positions(seq_len, d_model, base=10000.0):
    """Points on circles: the complex numbers exp(i · angle), imaginary part first."""
    angles = torch.outer(torch.arange(seq_len, dtype=torch.float64), _frequencies(d_model, base))
    points = torch.view_as_real(torch.polar(torch.ones_like(angles), angles))
    return points.flip(-1).flatten(-2).to(torch.get_default_dtype())


@twin
def shift_matrix(offset, d_model, base=10000.0):
    """The matrix exponential of a quarter turn in each pair, times its angle."""
    quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    turns = torch.block_diag(*(float(rate) * offset * quarter for rate in _frequencies(d_model, base)))
    return torch.matrix_exp(turns).to(torch.get_default_dtype())


@twin
class LearnedPositions(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.table = nn.Parameter(torch.randn(max_len, d_model) * 0.02)

    def forward(self, x, offset=0):
        seq_len, max_len = x.shape[-2], len(self.table)
        if offset < 0 or offset + seq_len > max_len:
            raise ValueError(f"places {offset} … {offset + seq_len - 1} do not fit into max_len = {max_len}")
        return x + F.embedding(torch.arange(offset, offset + seq_len), self.table)


@twin
def position_distances(positions):
    return torch.cdist(positions, positions, compute_mode="donot_use_mm_for_euclid_dist")


@twin
def rope(x, positions, base=10000.0):
    """Each pair as a complex number, times exp(i · angle)."""
    half = x.shape[-1] // 2
    angles = positions[..., None].double() * _frequencies(x.shape[-1], base)
    turn = torch.polar(torch.ones_like(angles), angles)
    wide = x.double()
    turned = torch.complex(wide[..., :half], wide[..., half:]) * turn
    return torch.cat([turned.real, turned.imag], -1).to(x.dtype)
