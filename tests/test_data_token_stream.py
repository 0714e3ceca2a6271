"""Track B's tokens: nothing is lost, whoever cuts them; batches and windows are what training and measuring need."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from utils import oracle
from utils.data import CorpusError, token_cache, token_stream, words
from utils.data.python_source import SourceText
from utils.data.token_stream import tokenise

TRAIN = [
    b"def area(width, height):\n    return width * height\n\n\n",
    b"class Shape:\n    def __init__(self, width):\n        self.width = width\n\n\n",
    "# größer als √2, 日本\nname = 'niño'\n\tx = [1234567, 0x1F]   # three spaces\r\n".encode(),
    b"for name in names:\n    print(name, name.width, self.width * 2)\n",
] * 5
VAL = [b"def width(self):\n    return self.width\n", b"print('new')\n"]
SOURCE = SourceText(TRAIN, VAL, "the test")
STREAM = tokenise(SOURCE, 300)


class Clock:
    """Time that passes only when a function says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Learner:
    """A right BPE that takes `training` seconds for a merge and word, `encoding` for a word, and counts its calls."""

    def __init__(self, training=0.0, encoding=0.0):
        self.clock, self.training, self.encoding = Clock(), training, encoding
        self.trained, self.encoded = [], []

    def bpe_train(self, word_counts, n_merges):
        self.trained.append((len(word_counts), n_merges))
        self.clock.now += self.training * len(word_counts) * n_merges
        return oracle.bpe_train(word_counts, n_merges)

    def bpe_encode(self, word, merges):
        self.encoded.append(word)
        self.clock.now += self.encoding
        return oracle.bpe_encode(word, merges)

    def tokenise(self, **options):
        return tokenise(SOURCE, 300, self.bpe_train, self.bpe_encode, clock=self.clock, **options)


@pytest.mark.parametrize("documents", [TRAIN, VAL, [b"", b" ", b"\n\n  ", bytes(range(256)), b"a  b   c_d__e EFGh"]])
def test_words_are_the_text(documents):
    """Do the words joined give the text again, every byte of it?"""
    for document in documents:
        assert b"".join(words.WORD.findall(document)) == document


def test_nothing_is_lost():
    """Do the tokens spell the documents, each after the id that begins one?"""
    end = STREAM.vocab_size - 1
    for tokens, documents in ((STREAM.train, TRAIN), (STREAM.val, VAL)):
        assert tokens[0] == end and int((tokens == end).sum()) == len(documents)
        assert b"".join(STREAM.token_bytes[n] for n in tokens) == b"".join(documents)
    assert STREAM.val_bytes == sum(map(len, VAL)) and len(STREAM.val) < STREAM.val_bytes
    assert STREAM.tokenizer.decode(STREAM.val) == b"".join(VAL).decode()


def test_ids_are_bytes_then_merges_then_the_document():
    """Are ids 0 to 255 the bytes, then what the merges make, then DOCUMENT, which spells nothing?"""
    assert STREAM.vocab_size == 300 == len(STREAM.token_bytes) == len(STREAM.merges) + 257
    assert STREAM.token_bytes[65] == b"A" and STREAM.token_bytes[-1] == b""
    assert STREAM.token_bytes[256] == b"".join(STREAM.merges[0])


def test_the_tokenizer_cuts_as_the_stream_does():
    """Does encode give the ids of the stream, and decode the text, broken characters and all?"""
    tokens = STREAM.val.tolist()
    document = tokens[1 : tokens.index(STREAM.vocab_size - 1, 1)]
    assert STREAM.tokenizer.encode(VAL[0].decode()) == document
    for text in ("", "日本 🙂\r\n", "  x"):
        assert STREAM.tokenizer.decode(STREAM.tokenizer.encode(text)) == text
    assert STREAM.tokenizer.decode([0xE6, 65]) == "\ufffdA"
    with pytest.raises(ValueError, match="id 300 is not in this vocabulary"):
        STREAM.tokenizer.decode([300])


def test_the_learners_bpe_makes_the_same_tokens():
    """Is a stream cut by the learner the course's, token by token, with each kind of word encoded once?"""
    learner = Learner()
    stream = learner.tokenise()
    assert stream.made_by == {"bpe_train": "yours", "bpe_encode": "yours"} and stream.note == ""
    assert stream.fingerprint == STREAM.fingerprint
    kinds = {word for document in TRAIN + VAL for word in words.WORD.findall(document)}
    assert sorted(learner.encoded) == sorted(kinds)
    n_words = learner.trained[-1][0]
    assert learner.trained[-1] == (n_words, 43) and len(learner.trained) == 3  # two trials on a part, then all
    assert all(trial[0] <= n_words // 16 + 1 for trial in learner.trained[:2]) and learner.trained[0][1] == 43 // 16


def test_a_slow_bpe_train_is_found_out_early():
    """Does the course go on after a trial, and say so, where training would not be done in time?"""
    learner = Learner(training=0.02)
    stream = learner.tokenise(seconds=20)
    assert stream.made_by == {"bpe_train": "the course's", "bpe_encode": "yours"}
    assert "Your bpe_train would take about" in stream.note and "20 s are allowed" in stream.note
    assert learner.clock.now < 20 and len(learner.trained) == 2 and stream.fingerprint == STREAM.fingerprint
    hopeless = Learner(training=10)
    assert hopeless.tokenise(seconds=20).fingerprint == STREAM.fingerprint
    assert len(hopeless.trained) == 1  # even the second trial would have been too long


def test_a_slow_bpe_encode_is_relieved_in_the_middle():
    """Does the course cut the rest of the words when the time is up, to the same tokens?"""
    learner = Learner(encoding=1.0)
    stream = learner.tokenise(seconds=9.5)
    assert stream.made_by["bpe_encode"] == "yours in part" and len(learner.encoded) == 10
    assert "Your bpe_encode cut 10 of" in stream.note and stream.fingerprint == STREAM.fingerprint


def test_both_share_one_budget():
    """Does time that training took count for encoding?"""
    learner = Learner(training=0.01, encoding=0.1)
    stream = learner.tokenise(seconds=30)
    assert stream.made_by == {"bpe_train": "yours", "bpe_encode": "yours in part"}
    assert learner.clock.now == pytest.approx(30, abs=0.2)


def unfinished(*arguments):
    raise NotImplementedError


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (dict(bpe_train=unfinished), "Your bpe_train stopped with NotImplementedError"),
        (dict(bpe_train=lambda counts, n: [(b"xyz", b"q")]), "joins what was not made before"),
        (dict(bpe_train=lambda counts, n: oracle.bpe_train(counts, n + 1)), "instead of"),
        (dict(bpe_encode=unfinished), "Your bpe_encode stopped with NotImplementedError"),
        (dict(bpe_encode=lambda word, merges: [word]), "which cannot be"),
        (dict(bpe_encode=lambda word, merges: oracle.bpe_encode(word, merges)[:-1]), "which cannot be"),
    ],
    ids="no training, impossible merges, too many merges, no encoding, whole words, bytes lost".split(", "),
)
def test_a_broken_bpe_is_replaced_and_named(own, words):
    """Does the stream come out right, with a word on what the learner's function did?"""
    stream = tokenise(SOURCE, 300, **own)
    assert stream.fingerprint == STREAM.fingerprint and words in stream.note
    assert "yours" not in stream.made_by.values()


def test_the_course_is_not_called_yours():
    """Are the course's functions, which `mine` hands out for unfinished ones, called the course's?"""
    stream = tokenise(SOURCE, 300, oracle.bpe_train, oracle.bpe_encode)
    assert set(stream.made_by.values()) == {"the course's"}


def test_a_word_is_given_the_rules_it_can_use():
    """Do fewer rules cut a word as all of them do?"""
    seen = []

    def bpe_encode(word, merges):
        seen.append(len(merges))
        assert list(oracle.bpe_encode(word, merges)) == list(oracle.bpe_encode(word, STREAM.merges))
        return oracle.bpe_encode(word, merges)

    assert tokenise(SOURCE, 300, None, bpe_encode).note == ""
    assert 0 < max(seen) < len(STREAM.merges)


def test_a_text_with_too_few_pairs_says_so():
    """Is the vocabulary as large as the text allows, with a word about it?"""
    stream = tokenise(SourceText([b"abab"], [b"ab"], "the test"), 1_000)
    assert stream.vocab_size == 259 and "1000 were asked for" in stream.note
    assert stream.train.max() == 258


def test_a_batch_depends_on_its_arguments_alone():
    """Is a batch the same in any order of asking, shifted by one, and different for another seed or step?"""
    batch = STREAM.batch(3, 5, 4, 16)
    STREAM.batch(3, 6, 4, 16)
    again = tokenise(SOURCE, 300).batch(3, 5, 4, 16)
    assert all(torch.equal(batch[name], again[name]) for name in ("tokens", "targets"))
    assert batch["tokens"].shape == batch["targets"].shape == (4, 16) and batch["tokens"].dtype == torch.int64
    assert torch.equal(batch["tokens"][:, 1:], batch["targets"][:, :-1])
    text = STREAM.train.tolist()
    places = {tuple(text[n : n + 17]) for n in range(len(text) - 16)}
    assert all(tuple(row) in places for row in torch.cat([batch["tokens"], batch["targets"][:, -1:]], 1).tolist())
    for other in (STREAM.batch(4, 5, 4, 16), STREAM.batch(3, 6, 4, 16)):
        assert not torch.equal(batch["tokens"], other["tokens"])


def test_batches_reach_every_token():
    """Can every token but the first be a target, the last one too?"""
    stream = tokenise(SourceText([b"abcdefgh"], [b"xy"], "the test"), 257)
    seen = {int(n) for step in range(60) for n in stream.batch(0, step, 4, 3)["targets"].flatten()}
    assert seen == set(b"abcdefgh")


@pytest.mark.parametrize(("seq_len", "size"), list(itertools.product((1, 7, 16, 29), (1, 4))))
def test_windows_show_each_target_once(seq_len, size):
    """Are the windows fixed and in order, and is each token but the first a target exactly once?"""
    windows = list(STREAM.windows(seq_len, size=size))
    assert torch.cat([window["targets"].flatten() for window in windows]).equal(STREAM.val[1:].long())
    assert torch.cat([window["tokens"].flatten() for window in windows]).equal(STREAM.val[:-1].long())
    assert all(window["tokens"].shape == window["targets"].shape for window in windows)
    assert all(window["tokens"].shape == (size, seq_len) for window in windows[:-2])
    assert sum(STREAM.bytes_of(window["targets"]) for window in windows) == STREAM.val_bytes


def test_tokens_are_kept_and_found_again(tmp_path):
    """Is a second call served from the folder, with the same stream, for this text and vocabulary only?"""
    first = Learner().tokenise(cache=tmp_path)
    again = Learner()
    stream = again.tokenise(cache=tmp_path)
    assert stream.fingerprint == first.fingerprint and stream.made_by == first.made_by and again.encoded == []
    assert [path.suffix for path in tmp_path.iterdir()] == [".npz"]
    assert tokenise(SOURCE, 299, cache=tmp_path).vocab_size == 299
    other = dataclasses.replace(SOURCE, val=TRAIN)
    assert tokenise(other, 300, cache=tmp_path).val_bytes == sum(map(len, TRAIN))


@pytest.mark.parametrize("damage", ["cut off", "nonsense", "foreign ids", "pickle"])
def test_a_damaged_folder_costs_time_only(damage, tmp_path):
    """Is a kept file that is cut off, nonsense, or full of foreign ids made anew, and never unpickled?"""
    tokenise(SOURCE, 300, cache=tmp_path)
    (path,) = tmp_path.iterdir()
    if damage == "cut off":
        path.write_bytes(path.read_bytes()[:-200])
    elif damage == "nonsense":
        path.write_bytes(b"nonsense")
    else:
        kept = dict(np.load(path))
        kept["train"] = kept["train"] + 1_000 if damage == "foreign ids" else np.array([print], dtype=object)
        np.savez(path, **kept)
    assert tokenise(SOURCE, 300, cache=tmp_path).fingerprint == STREAM.fingerprint
    assert token_cache.load(tmp_path, path.stem.removeprefix("tokens-")) is not None


def test_a_folder_that_cannot_be_written(tmp_path):
    """Does the stream come out all the same, with a plain word that it was not kept?"""
    (tmp_path / "file").write_text("in the way")
    stream = tokenise(SOURCE, 300, cache=tmp_path / "file")
    assert stream.fingerprint == STREAM.fingerprint and "could not be kept in" in stream.note


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: tokenise(SOURCE, 256), "vocab_size must be at least 257"),
        (lambda: tokenise(SourceText([], VAL, "the test"), 300), "train text is empty"),
        (lambda: tokenise(SourceText(TRAIN, [b""], "the test"), 300), "val text is empty"),
        (lambda: STREAM.batch(0, 0, 4, len(STREAM.train)), "does not fit: the train text has"),
        (lambda: next(STREAM.windows(len(STREAM.val))), "does not fit: the val text has"),
        (lambda: STREAM.batch(0, 0, 4, 0), "seq_len 0 does not fit"),
        (lambda: STREAM.batch(0, 0, 0, 8), "size=0"),
        (lambda: next(STREAM.windows(8, split="test")), "'train' or 'val'"),
    ],
    ids="vocabulary, no train, no val, long batch, long window, no length, no size, split".split(", "),
)
def test_plain_refusals(ask, words):
    """Is what cannot be refused in words that say what was wrong?"""
    with pytest.raises(ValueError, match=words):
        ask()
    assert issubclass(CorpusError, ValueError) and token_stream.DOCUMENT == "<|document|>"
