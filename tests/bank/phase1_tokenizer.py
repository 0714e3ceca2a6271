"""Tokenizer: wrong solutions and unusual right ones."""

import functools
import re
import unicodedata

import numpy as np
import torch

from tests.bank import right, wrong
from tests.bank.phase1_encode import loop


class _Tokenizer:
    """Right as it stands; each wrong solution changes one method."""

    def __init__(self, merges, specials):
        self.look(specials)
        self.merges = list(merges)
        self.tokens = [bytes([n]) for n in range(256)] + [left + other for left, other in self.merges]
        self.special_ids = self.number(specials)
        self.names = {n: text for text, n in self.special_ids.items()}
        self.id_of = {token: n for n, token in enumerate(self.tokens)}
        self.vocab_size = len(self.tokens) + len(specials)

    def look(self, specials):
        if "" in specials or len(specials) != len(set(specials)):
            raise ValueError("specials repeat or are empty")

    def number(self, specials):
        return {text: len(self.tokens) + n for n, text in enumerate(specials)}

    def order(self, specials):
        return sorted(specials, key=len, reverse=True)

    def pieces(self, stretch):
        return loop(stretch.encode("utf-8"), self.merges)

    def encode(self, text):
        if not self.special_ids:
            return [self.id_of[piece] for piece in self.pieces(text)]
        pattern = "|".join(re.escape(special) for special in self.order(self.special_ids))
        ids = []
        for part in re.split(f"({pattern})", text):
            ids += [self.special_ids[part]] if part in self.special_ids else [self.id_of[p] for p in self.pieces(part)]
        return ids

    def bytes_of(self, n):
        if n < 0 or n >= self.vocab_size:
            raise ValueError(f"there is no id {n}")
        return self.names[n].encode() if n in self.names else self.tokens[n]

    def text_of(self, data):
        return data.decode("utf-8", errors="replace")

    def decode(self, ids):
        return self.text_of(b"".join(self.bytes_of(n) for n in ids))


# ---------------------------------------------------------------- wrong


@wrong("Tokenizer", says="a special token must become one id")
class SpelledOut(_Tokenizer):
    def encode(self, text):
        return [self.id_of[piece] for piece in self.pieces(text)]


@wrong("Tokenizer", says="decode the joined bytes, a character may span tokens")
class IdById(_Tokenizer):
    def decode(self, ids):
        return "".join(self.text_of(self.bytes_of(n)) for n in ids)


@wrong("Tokenizer", says="tokens are bytes, not code points")
class CodePoints(_Tokenizer):
    def encode(self, text):
        ids = []
        for part in re.split("(" + "|".join(map(re.escape, self.order(self.special_ids))) + ")", text):
            for piece in [part] if part in self.special_ids else self.parts(part):
                ids.append(self.special_ids.get(piece) or self.id_of.get(piece.encode()) or ord(piece))
        return ids

    def parts(self, text):
        plain = [text[n : n + 1] for n in range(len(text))]
        return plain if not text.isascii() else [p.decode() for p in loop(text.encode(), self.merges)]


@wrong("Tokenizer", says="special and merged tokens share ids")
class SpecialsAt256(_Tokenizer):
    def number(self, specials):
        return {text: 256 + n for n, text in enumerate(specials)}


@wrong("Tokenizer", says="the order of ids is bytes, merged tokens, specials")
class SpecialsBeforeMerged(_Tokenizer):
    def __init__(self, merges, specials):
        super().__init__(merges, specials)
        self.special_ids = {text: 256 + n for n, text in enumerate(specials)}
        self.tokens[256:256] = [text.encode() for text in specials]
        self.id_of = {token: n for n, token in enumerate(self.tokens) if not 256 <= n < 256 + len(specials)}
        self.names = {}


@wrong("Tokenizer", says="the text did not come back")
class LowerCase(_Tokenizer):
    def pieces(self, stretch):
        return super().pieces(stretch.lower())


@wrong("Tokenizer", says="the text did not come back")
class Stripped(_Tokenizer):
    def encode(self, text):
        return super().encode(text.strip())


@wrong("Tokenizer")
class EachStretchStripped(_Tokenizer):
    def pieces(self, stretch):
        return super().pieces(stretch.strip())


@wrong("Tokenizer", says="the text did not come back")
class Composed(_Tokenizer):
    def encode(self, text):
        return super().encode(unicodedata.normalize("NFC", text))


@wrong("Tokenizer", says="decode left out a special")
class SpecialsDropped(_Tokenizer):
    def decode(self, ids):
        return super().decode([n for n in ids if n not in self.names])


@wrong("Tokenizer")
class SpecialsSpaced(_Tokenizer):
    def bytes_of(self, n):
        data = super().bytes_of(n)
        return b" " + data + b" " if n in self.names else data


@wrong("Tokenizer", says="unknown id")
class KeyErrors(_Tokenizer):
    def bytes_of(self, n):
        table = {k: token for k, token in enumerate(self.tokens)} | {k: t.encode() for k, t in self.names.items()}
        return table[n]


@wrong("Tokenizer", says="a negative id counts from the end: refuse it")
class NegativeIds(_Tokenizer):
    def bytes_of(self, n):
        if n >= self.vocab_size:
            raise ValueError(f"unknown id {n}")
        return (self.tokens + [text.encode() for text in self.special_ids])[n]


@wrong("Tokenizer", says="unknown id")
class UnknownIdsSkipped(_Tokenizer):
    def bytes_of(self, n):
        return super().bytes_of(n) if 0 <= n < self.vocab_size else b""


@wrong("Tokenizer", says="broken bytes become U+FFFD")
class BrokenDropped(_Tokenizer):
    def text_of(self, data):
        return data.decode("utf-8", errors="ignore")


@wrong("Tokenizer", says="broken bytes become U+FFFD")
class BrokenRefused(_Tokenizer):
    def text_of(self, data):
        return data.decode("utf-8")


@wrong("Tokenizer")
class Latin1(_Tokenizer):
    def text_of(self, data):
        return data.decode("latin1")


@wrong("Tokenizer")
class BrokenKept(_Tokenizer):
    def text_of(self, data):
        return data.decode("utf-8", errors="surrogateescape")


@wrong("Tokenizer", says="of several specials that fit, the longest is taken")
class ListOrder(_Tokenizer):
    def order(self, specials):
        return list(specials)


@wrong("Tokenizer", says="of several specials that fit, the longest is taken")
class ShortestFirst(_Tokenizer):
    def order(self, specials):
        return sorted(specials, key=len)


@wrong("Tokenizer")
class NotEscaped(_Tokenizer):
    def encode(self, text):
        parts = re.split("(" + "|".join(self.order(self.special_ids)) + ")", text) if self.special_ids else [text]
        ids = []
        for part in parts:
            ids += [self.special_ids[part]] if part in self.special_ids else [self.id_of[p] for p in self.pieces(part)]
        return ids


@wrong("Tokenizer", says="the text was cut into words first")
class WordByWord(_Tokenizer):
    def pieces(self, stretch):
        return [piece for word in re.findall(r"\S+|\s+", stretch) for piece in loop(word.encode(), self.merges)]


@wrong("Tokenizer", says="nothing was joined")
class BytesOnly(_Tokenizer):
    def pieces(self, stretch):
        return loop(stretch.encode(), [])


@wrong("Tokenizer", says="ids are Python ints")
class NumpyIds(_Tokenizer):
    def encode(self, text):
        return list(np.array(super().encode(text), dtype=np.int64))


@wrong("Tokenizer", says="ids are Python ints")
class TensorIds(_Tokenizer):
    def encode(self, text):
        return torch.tensor(super().encode(text))


@wrong("Tokenizer", says="specials must differ and none may be empty")
class AnySpecials(_Tokenizer):
    def __init__(self, merges, specials):
        super().__init__(merges, list(dict.fromkeys(text for text in specials if text)))


@wrong("Tokenizer")
class VocabularyWithoutSpecials(_Tokenizer):
    def __init__(self, merges, specials):
        super().__init__(merges, specials)
        self.vocab_size = len(self.tokens)

    def bytes_of(self, n):
        if not 0 <= n < len(self.tokens) + len(self.names):
            raise ValueError("id")
        return self.names[n].encode() if n in self.names else self.tokens[n]


@wrong("Tokenizer")
class AddsAMarker(_Tokenizer):
    def encode(self, text):
        return [*super().encode(text), 10]


@wrong("Tokenizer")
class NoAttributes(_Tokenizer):
    def __init__(self, merges, specials):
        super().__init__(merges, specials)
        del self.vocab_size
        self.n_vocab = len(self.tokens) + len(specials)

    def bytes_of(self, n):
        if n < 0 or n >= self.n_vocab:
            raise ValueError("id")
        return self.names[n].encode() if n in self.names else self.tokens[n]


@wrong("Tokenizer")
class SortsTheSpecials(_Tokenizer):
    def __init__(self, merges, specials):
        specials.sort()
        super().__init__(merges, specials)


@wrong("Tokenizer")
class KeepsTheLastText(_Tokenizer):
    seen = ""

    def encode(self, text):
        whole = self.seen + text
        self.seen = text
        return super().encode(whole)


# ---------------------------------------------------------------- right


@right("Tokenizer", why="a regular expression with the longest alternative first")
class ByPattern(_Tokenizer):
    pass


@right("Tokenizer", why="walks through the text, asks at each place for the longest special that begins there")
class ByWalking(_Tokenizer):
    def encode(self, text):
        ids, start, place = [], 0, 0
        while place < len(text):
            fits = [special for special in self.special_ids if text.startswith(special, place)]
            if fits:
                best = max(fits, key=len)
                ids += [self.id_of[p] for p in self.pieces(text[start:place])] + [self.special_ids[best]]
                start = place = place + len(best)
            else:
                place += 1
        return ids + [self.id_of[p] for p in self.pieces(text[start:])]


@right("Tokenizer", why="remembers what it has cut")
class Remembering(_Tokenizer):
    def __init__(self, merges, specials):
        super().__init__(merges, specials)
        self.pieces = functools.lru_cache(super().pieces)


@right("Tokenizer", why="works on bytes throughout, with a trie of the specials")
class WithATrie(_Tokenizer):
    def __init__(self, merges, specials):
        super().__init__(merges, specials)
        self.trie = {}
        for text, n in self.special_ids.items():
            node = self.trie
            for value in text.encode():
                node = node.setdefault(value, {})
            node[None] = n

    def encode(self, text):
        data, ids, start, place = text.encode(), [], 0, 0
        while place < len(data):
            node, end, found = self.trie, place, None
            while end < len(data) and data[end] in node:
                node, end = node[data[end]], end + 1
                found = (end, node[None]) if None in node else found
            if found is None:
                place += 1
                continue
            ids += [self.id_of[p] for p in loop(data[start:place], self.merges)] + [found[1]]
            start = place = found[0]
        return ids + [self.id_of[p] for p in loop(data[start:], self.merges)]


@right("Tokenizer", why="special_ids in another order, ids looked up in one dict, vocab_size as a property")
class OneDict:
    def __init__(self, merges, specials):
        self._ranks = {pair: n for n, pair in enumerate(merges)}
        if len({*specials} - {""}) < len(specials):
            raise ValueError("bad specials")
        everything = [*(bytes([n]) for n in range(256)), *map(b"".join, merges), *(text.encode() for text in specials)]
        self._bytes = dict(enumerate(everything))
        self.special_ids = {text: 256 + len(merges) + specials.index(text) for text in sorted(specials)}

    @property
    def vocab_size(self):
        return len(self._bytes)

    def encode(self, text):
        for special in sorted(self.special_ids, key=len, reverse=True):
            # cut at the leftmost place where any special begins; the longest of those goes first
            where = min((text.find(other) for other in self.special_ids if other in text), default=-1)
            if where >= 0 and text.startswith(special, where):
                after = self.encode(text[where + len(special) :])
                return [*self.encode(text[:where]), self.special_ids[special], *after]
        numbers = {self._bytes[n]: n for n in range(256 + len(self._ranks))}
        return [numbers[piece] for piece in loop(text.encode(), list(self._ranks))]

    def decode(self, ids):
        try:
            return b"".join(self._bytes[n] for n in ids).decode(errors="replace")
        except KeyError as error:
            raise ValueError(f"unknown id {error}") from None
