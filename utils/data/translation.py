"""Track A: English to Spanish, on sentences that a grammar draws. `corpus(seed=0)` is the one that grading speaks of.

corpus.train                    at most LONGEST_TRAINED words, no held-out pair of words
corpus.tests["iid"]             the same law, other sentences
corpus.tests["compositional"]   each has a noun×adjective or verb×object pair that training never shows
corpus.tests["length"]          each is longer than any of training
"""

import functools
import hashlib

import numpy as np
import torch

from utils.data import CorpusError, lexicon, spanish
from utils.data.grammar import Grammar, Pair
from utils.data.held_out import part_of
from utils.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary

TITLE = Pair("The cat sat", "El gato se sentó", ((1, 1), (2, 3)))  # first of the iid test, and in no training
LONGEST_TRAINED = 10  # words of a source; longer ones are the length test
LONGEST_SOURCE, LONGEST_TARGET = 16, 19  # words; a model's max_len is one more than the larger, for bos or eos

__all__ = [
    "LONGEST_SOURCE",
    "LONGEST_TARGET",
    "LONGEST_TRAINED",
    "TITLE",
    "Pair",
    "TranslationCorpus",
    "corpus",
    "fresh",
]


def corpus(n_pairs=20_000, seed=0, n_test=1_000):
    """Draw a TranslationCorpus. A larger one of the same seed begins with the smaller one."""
    if n_pairs < 1 or n_test < 0:
        raise CorpusError(f"a corpus needs at least one pair to train on, got n_pairs={n_pairs}, n_test={n_test}")
    drawn = _draw(f"{int(seed)}", {"train": n_pairs, "iid": n_test, "compositional": n_test, "length": n_test})
    return TranslationCorpus(drawn.pop("train"), drawn, *vocabularies())


def fresh(seed, n):
    """n pairs of the iid law that are in no corpus's training or test: sentences for the judge."""
    return _draw(f"fresh {int(seed)}", {"fresh": n})["fresh"]


def kind(draw):
    """Where a sentence belongs: "train", "iid", "fresh", "compositional", "length", or None: nowhere."""
    if draw.n_words > LONGEST_SOURCE or len(draw.pair.target.split()) > LONGEST_TARGET:
        return None
    if draw.n_words > LONGEST_TRAINED:
        return None if draw.held_out else "length"  # long and new pairs: nobody could say which of them was hard
    return "compositional" if draw.held_out else part_of(draw.pair.source)


def _draw(seed, wanted):
    """{kind: its first different sentences, as many as wanted}, sorted out of one row of draws."""
    grammar, found = Grammar(seed), {name: {} for name in wanted}
    if wanted.get("iid"):
        found["iid"][TITLE.source] = TITLE
    while any(len(found[name]) < n for name, n in wanted.items()):
        draw = grammar.draw()
        name = kind(draw)
        if len(found.get(name, ())) < wanted.get(name, 0):
            found[name].setdefault(draw.pair.source, draw.pair)
    return {name: list(pairs.values()) for name, pairs in found.items()}


@functools.cache
def vocabularies():
    """(English, Spanish): every form the grammar can write, so ids never depend on what was drawn."""
    english = {"not", "do", "does", "did", "of", "to", "an", *lexicon.MANNER, *lexicon.PLACE, *lexicon.TIME}
    target = {"no", "a", "al", "de", "del", *lexicon.MANNER.values(), *lexicon.PLACE.values(), *lexicon.TIME.values()}
    for noun in lexicon.nouns:
        english |= {noun.english, noun.plural}
        target |= {noun.spanish, noun.spanish_plural}
    for word in (*lexicon.adjectives, *lexicon.before_the_noun):
        english.add(word.english)
        target |= {spanish.agree(word.spanish, gender, many) for gender in "mf" for many in (False, True)}
        target |= {word.short} - {None}
    for verb in (*lexicon.intransitive, *lexicon.transitive):
        english |= set(verb.english)
        target |= {part for tense in verb.spanish for form in tense for part in form.split()}
    for word, _ in lexicon.PREPOSITIONS.values():
        target |= set(word.split())
    english |= set(lexicon.PREPOSITIONS)
    for determiner in lexicon.determiners:
        forms = {form for form in determiner.english if form}
        english |= forms | {form.capitalize() for form in forms} | ({"An"} if "a" in forms else set())
        forms = {form for number in determiner.spanish for form in number if form}
        target |= forms | {form.capitalize() for form in forms}
    return Vocabulary(sorted(english)), Vocabulary(sorted(target))


class TranslationCorpus:
    """Pairs to train on, pairs to be tested on, and both vocabularies.

    train: list of Pair; tests: {name: list of Pair}; source_words, target_words: Vocabulary
    A source is its words; a target begins with bos where it is read and ends with eos where it is predicted.
    So target word j is predicted in row j, and Pair.alignment counts rows and columns as a model does.
    """

    track = "a"

    def __init__(self, train, tests, source_words, target_words):
        if not train:
            raise CorpusError("this corpus is empty: there is no pair to train on")
        self.train, self.tests = train, tests
        self.source_words, self.target_words = source_words, target_words
        self.device = torch.device("cpu")
        self._table, self._order = None, functools.lru_cache(maxsize=4)(_order)

    @functools.cached_property
    def fingerprint(self):
        """sha256 of all pairs, in order."""
        digest = hashlib.sha256()
        for name, pairs in {"train": self.train, **self.tests}.items():
            digest.update(f"{name} {len(pairs)}\n".encode())
            digest.update("".join(f"{p.source}\t{p.target}\t{p.alignment}\n" for p in pairs).encode())
        return digest.hexdigest()

    def to(self, device):
        """Make batches on `device` from now on. Returns the corpus."""
        self.device, self._table = torch.device(device), None
        return self

    def batch(self, seed, step, size):
        """Batch number `step`: the same for the same three numbers, whatever was asked before.

        Each epoch goes once through all pairs, in an order of its own. All batches have the same width.
        """
        if size < 1 or step < 0:
            raise ValueError(f"a batch needs size >= 1 and step >= 0, got size={size}, step={step}")
        n = len(self.train)
        epochs, places = np.divmod(np.arange(step * size, (step + 1) * size), n)
        rows = np.concatenate(
            [self._order(int(seed), epoch, n)[places[epochs == epoch]] for epoch in np.unique(epochs)]
        )
        if self._table is None:
            self._table = self.encoded(self.train)
        rows = torch.from_numpy(rows).to(self.device)
        return {name: table[rows] for name, table in self._table.items()}

    def encoded(self, pairs):
        """dict(src, src_pad_mask, tgt_in, tgt_out, tgt_pad_mask) of these pairs; masks are True at real tokens."""
        if not pairs:
            raise CorpusError("there are no pairs to encode")
        source = [self.source_words.encode(pair.source) for pair in pairs]
        target = [self.target_words.encode(pair.target) for pair in pairs]
        src, src_pad_mask = _padded(source)
        tgt_in, tgt_pad_mask = _padded([[BOS, *ids] for ids in target])
        tgt_out, _ = _padded([[*ids, EOS] for ids in target])
        batch = dict(src=src, src_pad_mask=src_pad_mask, tgt_in=tgt_in, tgt_out=tgt_out, tgt_pad_mask=tgt_pad_mask)
        return {name: tensor.to(self.device) for name, tensor in batch.items()}

    def unknown_words(self, text):
        """The words of `text` that this corpus never shows."""
        return [word for word in text.split() if self.source_words.encode(word) == [UNK]]


def _order(seed, epoch, n):
    """A permutation of n rows for one epoch."""
    return np.random.default_rng([seed % 2**63, epoch]).permutation(n)


def _padded(rows):
    """(ids, mask) of rows of different lengths, as wide as the longest."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(max(lengths)) < lengths[:, None]
    ids = np.full(mask.shape, PAD)
    ids[mask] = [n for row in rows for n in row]
    return torch.from_numpy(ids), torch.from_numpy(mask)
