"""Words and their numbers, of one language."""

import functools
import hashlib

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")


class Vocabulary:
    """Ids of words: pad 0, bos 1, eos 2, unk 3, then the words in the order given."""

    def __init__(self, words):
        self.words = [*SPECIALS, *words]
        self.ids = {word: n for n, word in enumerate(self.words)}
        if len(self.ids) < len(self.words):
            raise ValueError("a vocabulary holds each word once, and none of " + ", ".join(SPECIALS))

    def __len__(self):
        return len(self.words)

    @functools.cached_property
    def fingerprint(self):
        """sha256 of the words in their order: two models may share weights only if theirs are equal."""
        return hashlib.sha256("\n".join(self.words).encode()).hexdigest()

    def encode(self, text):
        """Ids of the words of `text`, cut at spaces; a word that is not known becomes 3. No bos, no eos."""
        return [self.ids.get(word, UNK) for word in text.split()]

    def decode(self, ids):
        """Text of ids up to the first eos; pad and bos leave no trace, unk shows as <unk>."""
        words = []
        for n in map(int, ids):
            if not 0 <= n < len(self.words):
                raise ValueError(f"id {n} is not in this vocabulary: ids go from 0 to {len(self.words) - 1}")
            if n == EOS:
                break
            if n not in (PAD, BOS):
                words.append(self.words[n])
        return " ".join(words)
