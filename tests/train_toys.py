"""What the trainer's tests train on: tiny texts with the interface of utils.data, and runs of a few steps."""

from types import SimpleNamespace

import torch

from utils.train import Language, Translation, fit, settings

PAD, BOS, EOS = 0, 1, 2
SMALL = dict(d_model=16, n_layers=1, n_heads=2, d_ff=24, steps=6, batch_size=8, warmup=2, log_every=1, device="cpu")


class Corpus:
    """Track a: sentences of numbers, whose translation is the same numbers, one higher."""

    track, fingerprint = "a", "toy a"

    def __init__(self, n_pairs=24, words=12):
        draw = torch.Generator().manual_seed(0)
        rows = [
            torch.randint(4, words - 1, (int(n),), generator=draw)
            for n in torch.randint(2, 6, (n_pairs,), generator=draw)
        ]
        self.train = [SimpleNamespace(source=_text(row), target=_text(row + 1)) for row in rows]
        self.tests = {"iid": self.train[:6], "compositional": self.train[6:9]}
        self.source_words = self.target_words = range(words)

    def encoded(self, pairs):
        src, src_pad_mask = _padded([_numbers(pair.source) for pair in pairs])
        targets = [_numbers(pair.target) for pair in pairs]
        tgt_in, tgt_pad_mask = _padded([[BOS, *row] for row in targets])
        tgt_out, _ = _padded([[*row, EOS] for row in targets])
        return dict(src=src, src_pad_mask=src_pad_mask, tgt_in=tgt_in, tgt_out=tgt_out, tgt_pad_mask=tgt_pad_mask)

    def batch(self, seed, step, size):
        draw = torch.Generator().manual_seed(1_000 * seed + step)
        return self.encoded([self.train[n] for n in torch.randint(len(self.train), (size,), generator=draw).tolist()])


class Stream:
    """Track b: numbers that count upwards, each token one byte."""

    track, fingerprint, made_by, note = "b", "toy b", "a toy", ""

    def __init__(self, n_tokens=400, vocab_size=11):
        self.vocab_size = vocab_size
        self.train = torch.arange(n_tokens) % vocab_size
        self.val = torch.arange(3, 60 if n_tokens else 3) % vocab_size

    def bytes_of(self, tokens):
        return tokens.numel()

    def batch(self, seed, step, size, seq_len):
        draw = torch.Generator().manual_seed(1_000 * seed + step)
        starts = torch.randint(len(self.train) - seq_len, (size, 1), generator=draw)
        rows = self.train[starts + torch.arange(seq_len + 1)]
        return dict(tokens=rows[:, :-1], targets=rows[:, 1:])

    def windows(self, seq_len, split="val", size=1):
        text = getattr(self, split)
        for first in range(0, len(text) - 1, seq_len):
            part = text[first : first + seq_len + 1]
            yield dict(tokens=part[None, :-1], targets=part[None, 1:])


def _text(row):
    return " ".join(map(str, row.tolist()))


def _numbers(text):
    return [int(word) for word in text.split()]


def _padded(rows):
    width = max(map(len, rows))
    mask = torch.arange(width) < torch.tensor([len(row) for row in rows])[:, None]
    return torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows]), mask


def config(track="b", **changes):
    return settings(track, "smoke", **SMALL | ({"seq_len": 12} if track == "b" else {}) | changes)


def task(made, text=None):
    if made.track == "a":
        return Translation(text or Corpus(), made)
    return Language(text or Stream(), made)


def train(out, track="b", resume="auto", watch=False, text=None, **changes):
    """A short run of fit."""
    made = config(track, **changes)
    return fit(made, task(made, text), out, resume=resume, watch=watch)


def weights_of(run):
    return {name: tensor.clone() for name, tensor in run.model.state_dict().items()}


def equal(one, other):
    """Bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
