"""split_corpus: wrong splits and unusual right ones."""

import hashlib
import random
import zlib

import numpy as np
import torch

from tests.bank import right, wrong


def refuse(val_share):
    if not 0 <= val_share <= 1:
        raise ValueError("val_share must lie between 0 and 1")


def cut(scores, val_share):
    """Sides by scores between 0 and 1."""
    train = [index for index, score in enumerate(scores) if score >= val_share]
    return train, [index for index, score in enumerate(scores) if score < val_share]


# ---------------------------------------------------------------- wrong


@wrong("split_corpus", says="a place says nothing about a document: hash its content")
def the_last_ones(documents, val_share):
    refuse(val_share)
    border = int(len(documents) * (1 - val_share))
    return list(range(border)), list(range(border, len(documents)))


@wrong("split_corpus", says="a place says nothing about a document: hash its content")
def every_tenth(documents, val_share):
    refuse(val_share)
    every = round(1 / val_share) if val_share else len(documents) + 1
    val = list(range(0, len(documents), every))
    return sorted(set(range(len(documents))) - set(val)), val


@wrong("split_corpus", says="a place says nothing about a document: hash its content")
def permuted(documents, val_share):
    refuse(val_share)
    order = torch.randperm(len(documents), generator=torch.Generator().manual_seed(1)).tolist()
    border = round(val_share * len(documents))
    return sorted(order[border:]), sorted(order[:border])


@wrong("split_corpus", says="hash() is another one in each process")
def pythons_hash(documents, val_share):
    refuse(val_share)
    return cut([hash(document) % 1000 / 1000 for document in documents], val_share)


@wrong("split_corpus", says="hash() is another one in each process")
def pythons_hash_of_text(documents, val_share):
    refuse(val_share)
    return cut([abs(hash(document.decode("latin-1"))) % 997 / 997 for document in documents], val_share)


@wrong("split_corpus")  # the name is given where the process draws hashes anew, as most do
def pythons_hash_by_its_method(documents, val_share):
    refuse(val_share)
    return cut([document.__hash__() % 1000 / 1000 for document in documents], val_share)


@wrong("split_corpus")
def order_of_a_set(documents, val_share):
    """As many as asked for, in the order in which a set gives them."""
    refuse(val_share)
    chosen = set(list(set(documents))[: round(val_share * len(documents))])
    return cut([0.0 if document in chosen and val_share else 1.0 for document in documents], val_share)


@wrong("split_corpus", says="a threshold for each, not a rank among all")
def lowest_digests(documents, val_share):
    refuse(val_share)
    digests = [hashlib.sha1(document).digest() for document in documents]
    border = sorted(digests)[: round(val_share * len(digests))]
    return cut([0.0 if digest in border else 1.0 for digest in digests], val_share)


@wrong("split_corpus", says="hash the whole document")
def hash_of_the_beginning(documents, val_share):
    refuse(val_share)
    return cut([zlib.adler32(document[:64]) % 1009 / 1009 for document in documents], val_share)


@wrong("split_corpus", says="a length is no hash")
def by_length(documents, val_share):
    refuse(val_share)
    return cut([len(document) % 10 / 10 for document in documents], val_share)


@wrong("split_corpus")
def by_length_spread(documents, val_share):
    refuse(val_share)
    return cut([len(document) * 0.618 % 1 for document in documents], val_share)


@wrong("split_corpus", says="every index belongs to a side, those of copies, too")
def copies_dropped(documents, val_share):
    refuse(val_share)
    seen, train, val = set(), [], []
    for index, document in enumerate(documents):
        number = zlib.crc32(document)
        if number not in seen:
            (val if number < val_share * 2**32 else train).append(index)
        seen.add(number)
    return train, val


@wrong("split_corpus", says="first the indices for training")
def val_first(documents, val_share):
    refuse(val_share)
    return cut([zlib.crc32(document) / 2**32 for document in documents], val_share)[::-1]


@wrong("split_corpus", says="val_share was ignored")
def always_ten_percent(documents, val_share):
    refuse(val_share)
    return cut([zlib.crc32(document) / 2**32 for document in documents], 0.1)


@wrong("split_corpus", says="val_share outside 0 to 1: raise ValueError")
def takes_any_share(documents, val_share):
    return cut([zlib.crc32(document) / 2**32 for document in documents], val_share)


@wrong("split_corpus", says="indices, not the documents themselves")
def documents_for_indices(documents, val_share):
    refuse(val_share)
    train, val = cut([zlib.crc32(document) / 2**32 for document in documents], val_share)
    return [documents[index] for index in train], [documents[index] for index in val]


@wrong("split_corpus")
def a_drawn_share(documents, val_share):
    """Each document on its own, by chance."""
    refuse(val_share)
    return cut(torch.rand(len(documents)).tolist(), val_share)


# ---------------------------------------------------------------- right


@right("split_corpus", why="a checksum of 32 bits is fine for a split")
def checksum(documents, val_share):
    refuse(val_share)
    sides = [], []
    for index, document in enumerate(documents):
        sides[zlib.crc32(document) < val_share * 2**32].append(index)
    return sides


@right("split_corpus", why="the digits of MD5, in steps of a ten-thousandth")
def hundredths(documents, val_share):
    refuse(val_share)
    return cut([int(hashlib.md5(document).hexdigest(), 16) % 10_000 / 10_000 for document in documents], val_share)


@right("split_corpus", why="Python's generator, seeded with the document itself, does not use hash()")
def seeded_by_content(documents, val_share):
    refuse(val_share)
    return cut([random.Random(bytes(document)).random() for document in documents], val_share)


@right("split_corpus", why="NumPy arrays of indices are sequences of indices")
def in_numpy(documents, val_share):
    refuse(val_share)
    numbers = np.array([int.from_bytes(hashlib.blake2b(d, digest_size=6).digest(), "little") for d in documents], float)
    return np.flatnonzero(numbers >= val_share * 2**48), np.flatnonzero(numbers < val_share * 2**48)
