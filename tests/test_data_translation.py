"""Track A's corpus: splits that share nothing, batches that depend on seed and step alone."""

import subprocess
import sys

import pytest
import torch

from utils.data import CorpusError, translation
from utils.data.held_out import is_held_out
from utils.data.lexicon import adjectives, before_the_noun, nouns, transitive
from utils.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary

CORPUS = translation.corpus(3_000, seed=0, n_test=150)
FRESH = translation.fresh(7, 150)
PARTS = {"train": CORPUS.train, "fresh": FRESH, **CORPUS.tests}
FORMS = {form: noun.english for noun in nouns for form in (noun.english, noun.plural)}
VERBS = {form: verb.english[0] for verb in transitive for form in verb.english}
BEFORE = {word.english for word in (*adjectives, *before_the_noun)}


def held_out_pairs(pair):
    """The pairs of words of this sentence that training must not show, found by reading the English alone."""
    found, words, verb, waiting = set(), pair.source.split(), None, []
    for word in words:
        if word in VERBS:
            verb, waiting = VERBS[word], []
        elif word in BEFORE:
            waiting.append(word)
        elif word in FORMS:
            noun = FORMS[word]
            found |= {(noun, other) for other in waiting if is_held_out(noun, other)}
            if verb and is_held_out(verb, noun):
                found.add((verb, noun))
            verb, waiting = None, []
    return found


def test_the_splits_have_the_sizes_asked_for():
    """Does each split hold as many different sentences as were asked for, the title among them?"""
    assert {name: len(pairs) for name, pairs in PARTS.items()} == {
        "train": 3_000, "fresh": 150, "iid": 150, "compositional": 150, "length": 150
    }  # fmt: skip
    assert all(len({pair.source for pair in pairs}) == len(pairs) for pairs in PARTS.values())
    assert CORPUS.tests["iid"][0] == translation.TITLE


def test_no_sentence_is_in_two_parts():
    """Are training, the three tests and the judge's sentences apart, for other seeds and sizes too?"""
    other = translation.corpus(2_000, seed=5, n_test=100)
    train = {pair.source for pair in (*CORPUS.train, *other.train)}
    for name in ("iid", "compositional", "length"):
        test = {pair.source for pair in (*CORPUS.tests[name], *other.tests[name])}
        assert not test & train
        assert not test & {pair.source for pair in FRESH}
    assert not train & {pair.source for pair in FRESH}


def test_training_shows_no_held_out_pair_and_the_compositional_test_always_one():
    """Is each noun×adjective and verb×object pair either for training or for the compositional test?"""
    for name, pairs in PARTS.items():
        assert all(bool(held_out_pairs(pair)) == (name == "compositional") for pair in pairs), name
    both = [found for pair in CORPUS.tests["compositional"] for found in held_out_pairs(pair)]
    verbs = set(VERBS.values())
    assert {one in verbs for one, _ in both} == {True, False}


def test_training_shows_every_word_of_the_tests():
    """Is a held-out pair new only as a pair: are both of its words in training, in all their forms?"""
    train = {word for pair in translation.corpus(20_000, n_test=0).train for word in pair.target.lower().split()}
    tests = {word for name in CORPUS.tests for pair in CORPUS.tests[name] for word in pair.target.lower().split()}
    assert tests <= train


def test_only_the_length_test_is_longer_than_training():
    """Are long sentences in the length test, and there only, and within the stated bounds?"""
    for name, pairs in PARTS.items():
        lengths = [len(pair.source.split()) for pair in pairs]
        if name == "length":
            assert min(lengths) > translation.LONGEST_TRAINED and max(lengths) <= translation.LONGEST_SOURCE
        else:
            assert max(lengths) <= translation.LONGEST_TRAINED
        assert max(len(pair.target.split()) for pair in pairs) <= translation.LONGEST_TARGET


def test_a_larger_corpus_begins_with_the_smaller():
    """Do more pairs leave the first ones, and the vocabulary, where they were?"""
    larger = translation.corpus(3_500, seed=0, n_test=200)
    assert larger.train[:3_000] == CORPUS.train
    assert larger.tests["length"][:150] == CORPUS.tests["length"]
    assert larger.source_words.fingerprint == CORPUS.source_words.fingerprint
    assert translation.corpus(300, seed=1, n_test=0).target_words.fingerprint == CORPUS.target_words.fingerprint


def test_the_corpus_is_the_same_in_another_process():
    """Is the fingerprint that of the pairs, whatever Python's hashes are in a process?"""
    code = "from utils.data import translation; print(translation.corpus(200, 3, 20).fingerprint)"
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONHASHSEED": "5"})
    assert again.stdout.strip() == translation.corpus(200, 3, 20).fingerprint, again.stderr
    assert len({translation.corpus(200, seed, 20).fingerprint for seed in range(3)}) == 3


def test_the_vocabulary_knows_every_word():
    """Does text survive encoding and decoding, with no word unknown?"""
    for pairs in PARTS.values():
        for pair in pairs:
            for words, text in ((CORPUS.source_words, pair.source), (CORPUS.target_words, pair.target)):
                ids = words.encode(text)
                assert UNK not in ids and words.decode([BOS, *ids, EOS, PAD, PAD, ids[0]]) == text
    assert [CORPUS.source_words.words[n] for n in (PAD, BOS, EOS, UNK)] == ["<pad>", "<bos>", "<eos>", "<unk>"]


def test_a_word_nobody_taught():
    """Is an unknown word id 3, and can one be told which it was?"""
    assert CORPUS.source_words.encode("The zebra sat")[1] == UNK
    assert CORPUS.unknown_words("The zebra sat") == ["zebra"]
    assert CORPUS.target_words.decode([UNK]) == "<unk>"


def test_encoded_pairs():
    """Are bos, eos, padding and masks where a model expects them?"""
    pairs = [translation.TITLE, max(CORPUS.train, key=lambda pair: len(pair.source))]
    batch = CORPUS.encoded(pairs)
    ids = CORPUS.target_words.encode("El gato se sentó")
    assert batch["tgt_in"][0].tolist()[:5] == [BOS, *ids] and batch["tgt_out"][0].tolist()[:5] == [*ids, EOS]
    assert batch["src"][0].tolist()[:3] == CORPUS.source_words.encode("The cat sat")
    for tokens, mask in (("src", "src_pad_mask"), ("tgt_in", "tgt_pad_mask"), ("tgt_out", "tgt_pad_mask")):
        assert batch[tokens].dtype == torch.int64 and batch[mask].dtype == torch.bool
        assert torch.equal(batch[tokens] != PAD, batch[mask]) and batch[mask].all(0).sum() < batch[mask].any(0).sum()


def test_a_batch_depends_on_seed_and_step_alone():
    """Is a batch the same in any order of asking, from another object, and different for another step or seed?"""
    batch = CORPUS.batch(3, 11, 8)
    CORPUS.batch(3, 12, 8)
    again = translation.corpus(3_000, seed=0, n_test=0).batch(3, 11, 8)
    assert all(torch.equal(batch[name], again[name]) for name in batch)
    assert not torch.equal(batch["src"], CORPUS.batch(3, 12, 8)["src"])
    assert not torch.equal(batch["src"], CORPUS.batch(4, 11, 8)["src"])


def test_an_epoch_goes_once_through_all_pairs():
    """Does each epoch show every pair once, in an order of its own, also where a batch spans two epochs?"""
    corpus = translation.corpus(50, seed=1, n_test=0)
    rows = torch.cat([corpus.batch(0, step, 30)["tgt_out"] for step in range(5)])  # three epochs of 50
    seen = [tuple(row) for row in rows.tolist()]
    epochs = [seen[:50], seen[50:100], seen[100:]]
    assert all(len(set(epoch)) == 50 for epoch in epochs) and epochs[0] != epochs[1]


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: translation.corpus(0), "at least one pair"),
        (lambda: translation.TranslationCorpus([], {}, *translation.vocabularies()), "is empty"),
        (lambda: CORPUS.encoded([]), "no pairs to encode"),
        (lambda: CORPUS.batch(0, 0, 0), "size=0"),
        (lambda: CORPUS.batch(0, -1, 4), "step=-1"),
        (lambda: CORPUS.target_words.decode([len(CORPUS.target_words)]), "not in this vocabulary"),
        (lambda: Vocabulary(["a", "a"]), "each word once"),
    ],
    ids="no pairs, empty, nothing to encode, size, step, foreign id, twice".split(", "),
)
def test_plain_refusals(ask, words):
    """Is what cannot be refused in words that say what was wrong?"""
    with pytest.raises(ValueError, match=words):
        ask()
    assert issubclass(CorpusError, ValueError)
