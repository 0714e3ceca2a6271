"""Track B's text as one long row of tokens, cut by the learner's own BPE.

`bpe_train` sees how often each word occurs in a sample, `bpe_encode` each kind of word once. If that takes longer than
`seconds`, the course's own take over: the tokens are the same, since the rules leave nothing open.
"""

import functools
import hashlib
import time

import numpy as np
import torch

from utils.data import CorpusError, token_cache, words
from utils.data.own_or_twin import OwnOrTwin

BYTES, ENDS = 256, 1  # ids 0 to 255 are bytes, the last id stands before each document
SAMPLE_BYTES, SAMPLE_WORDS = 6_000_000, 12_000  # what bpe_train sees: a larger sample changes few of its rules
DOCUMENT = "<|document|>"


def tokenise(source, vocab_size, bpe_train=None, bpe_encode=None, seconds=20.0, cache=None, clock=time.perf_counter):
    """Make a TokenStream of a SourceText with vocab_size ids.

    bpe_train, bpe_encode  yours; None: the course's
    seconds                how long yours may take together
    cache                  a folder for the result; None: nothing is kept
    Raises CorpusError if vocab_size is below 257 or a text is empty.
    """
    if vocab_size < BYTES + ENDS:
        raise CorpusError(
            f"vocab_size must be at least {BYTES + ENDS}: one id for each byte and one for {DOCUMENT}, got {vocab_size}"
        )
    for name in ("train", "val"):
        if not any(getattr(source, name)):
            raise CorpusError(f"the {name} text is empty: there is nothing to tokenise")
    key = hashlib.sha256(f"{source.fingerprint} {vocab_size} {token_cache.VERSION}".encode()).hexdigest()[:24]
    kept = token_cache.load(cache, key)
    if kept:
        return TokenStream(source.fingerprint, *kept)
    bpe = OwnOrTwin(bpe_train, bpe_encode, seconds, clock)
    merges = bpe.train(words.count(source.train, SAMPLE_BYTES, SAMPLE_WORDS), vocab_size - BYTES - ENDS)
    tokens = _tokens(merges)
    train, val = _cut(source, merges, {token: n for n, token in enumerate(tokens[:-1])}, bpe)
    note = bpe.note
    if len(tokens) < vocab_size:
        note += f" The text has pairs for {len(tokens)} ids only, {vocab_size} were asked for."
    kept = (merges, train, val, bpe.made_by, note.strip())
    problem = token_cache.save(cache, key, *kept)
    return TokenStream(source.fingerprint, *kept[:4], f"{kept[4]} {problem}".strip())


def _tokens(merges):
    """The bytes of each id."""
    return [bytes([n]) for n in range(BYTES)] + [left + right for left, right in merges] + [b""]


def _cut(source, merges, ids, bpe):
    """(train, val): arrays of ids, each document after the id that says so."""
    kinds = words.Kinds()
    kinds.numbers[None] = 0  # the start of a document is a word of its own kind
    start = np.zeros(1, dtype=np.int64)
    places = [
        np.concatenate([part for document in documents for part in (start, kinds.read(document))])
        for documents in (source.train, source.val)
    ]
    end = BYTES + len(merges)
    pieces = bpe.encode_all([word for word in kinds.numbers if word is not None], merges)
    spellings = [[end], *([ids[piece] for piece in row] for row in pieces)]
    return tuple(words.spelled(part, spellings) for part in places)


class TokenStream:
    """train, val: 1-D int32 tensors, each beginning with the id of DOCUMENT; val_bytes: how many bytes val spells.

    token_bytes: bytes of each id, b"" for DOCUMENT's; tokenizer: Words, with encode and decode
    made_by: whose BPE cut it; note: what a reader of the numbers should know
    """

    track = "b"

    def __init__(self, source_fingerprint, merges, train, val, made_by, note):
        self.merges, self.made_by, self.note = merges, made_by, note
        self.train, self.val = torch.from_numpy(train), torch.from_numpy(val)
        self.token_bytes = _tokens(merges)
        self.vocab_size = len(self.token_bytes)
        self.tokenizer = Words(merges)
        self.source_fingerprint = source_fingerprint
        self.device = torch.device("cpu")

    @functools.cached_property
    def val_bytes(self):
        return self.bytes_of(self.val)

    def bytes_of(self, tokens):
        """How many bytes these ids spell."""
        lengths = torch.tensor([len(token) for token in self.token_bytes])
        return int(lengths[tokens.cpu().long()].sum())

    @functools.cached_property
    def fingerprint(self):
        """sha256 of the merges and of all tokens."""
        digest = hashlib.sha256(repr([tuple(pair) for pair in self.merges]).encode())
        for part in (self.train, self.val):
            digest.update(part.cpu().numpy().astype("<i4").tobytes())
        return digest.hexdigest()

    def to(self, device):
        """Keep the tokens on `device`, and make batches there. Returns the stream."""
        self.device = torch.device(device)
        self.train, self.val = self.train.to(self.device), self.val.to(self.device)
        return self

    def batch(self, seed, step, size, seq_len):
        """Batch number `step` of training: dict(tokens, targets), each (size, seq_len); a function of its arguments."""
        self._check(seq_len, "train")
        if size < 1 or step < 0:
            raise ValueError(f"a batch needs size >= 1 and step >= 0, got size={size}, step={step}")
        starts = np.random.default_rng([int(seed) % 2**63, step]).integers(len(self.train) - seq_len, size=size)
        places = torch.from_numpy(starts).to(self.device)[:, None] + torch.arange(seq_len + 1, device=self.device)
        rows = self.train[places].long()  # (B, T + 1)
        return dict(tokens=rows[:, :-1].contiguous(), targets=rows[:, 1:].contiguous())

    def windows(self, seq_len, split="val", size=1):
        """Fixed windows in order: dict(tokens, targets), each (size, seq_len); what is left comes last, shorter.

        Every token but the first is a target exactly once.
        """
        if split not in ("train", "val"):
            raise ValueError(f"split is 'train' or 'val', not {split!r}")
        self._check(seq_len, split)
        tokens = getattr(self, split)
        whole = (len(tokens) - 1) // seq_len
        for first in range(0, whole, size):
            n = min(size, whole - first)
            part = tokens[first * seq_len : (first + n) * seq_len + 1].long()
            yield dict(tokens=part[:-1].view(n, seq_len), targets=part[1:].view(n, seq_len))
        rest = tokens[whole * seq_len :].long()[None]
        if rest.shape[1] > 1:
            yield dict(tokens=rest[:, :-1], targets=rest[:, 1:])

    def _check(self, seq_len, split):
        n = len(getattr(self, split))
        if not 1 <= seq_len < n:
            raise CorpusError(
                f"seq_len {seq_len} does not fit: the {split} text has {n} tokens, so a window holds at most {n - 1}"
            )


class Words:
    """Text to ids and back with the merges of a stream: cut into words, then each word by BPE."""

    def __init__(self, merges):
        tokens = _tokens(merges)
        self.merges, self.tokens, self.vocab_size = merges, tokens, len(tokens)
        self.document_id = self.vocab_size - 1
        self._ids = {token: n for n, token in enumerate(self.tokens[:-1])}
        self._encode = OwnOrTwin(None, None, 0, time.perf_counter).encode_all

    def encode(self, text):
        """Ids of a str; no DOCUMENT in front."""
        pieces = self._encode(words.WORD.findall(text.encode()), self.merges)
        return [self._ids[piece] for row in pieces for piece in row]

    def decode(self, ids):
        """The text of ids; broken characters become U+FFFD, DOCUMENT leaves no trace."""
        ids = [int(n) for n in ids]
        wrong = [n for n in ids if not 0 <= n < self.vocab_size]
        if wrong:
            raise ValueError(f"id {wrong[0]} is not in this vocabulary: ids go from 0 to {self.vocab_size - 1}")
        whole = b"".join(map(self.tokens.__getitem__, ids))
        return whole.decode(errors="replace")
