"""Plays for decoders: what they are handed counts and remembers what it is asked."""

import torch

from utils.observe.scripts_training import number

# ---- greedy --------------------------------------------------------------------------------------


class _Scores:
    """Next-token scores of a batch. What wins depends on everything a row holds so far.

    noise (steps, batch, vocab): the scores; path (steps, batch): who is lifted above all in a row that has come here
    by this path; in any other row it is somebody else. ties: (step, row) pairs in which the last token is as high.
    """

    def __init__(self, prompt, noise, path, ties):
        self.whole = torch.cat([prompt, path.T], -1)
        self.start, self.noise, self.path, self.ties = prompt.shape[-1], noise, path, set(ties)
        self.lengths = []

    def __call__(self, tokens):
        self.lengths.append(list(tokens.shape))
        step = len(self.lengths) - 1
        if step >= len(self.path):
            raise RuntimeError("more steps than max_new_tokens")
        scores = self.noise[step].clone()
        vocab, length = scores.shape[-1], tokens.shape[-1]
        for row in range(min(len(scores), len(tokens))):
            known = self.whole[row, : self.start + step]
            on_path = length == len(known) and torch.equal(tokens[row], known)
            off = 0 if on_path else 1 + int((tokens[row] * torch.arange(1, length + 1)).sum()) % (vocab - 2)
            scores[row, (int(self.path[step, row]) + off) % vocab] += 9
            if (step, row) in self.ties:
                scores[row, -1] = scores[row].max()
        return scores[: len(tokens)]


def greedy(obj):
    def play(noise, path, prompt, max_new_tokens, eos_id, pad_id, ties=()):
        scores = _Scores(prompt, noise, path, ties)
        tokens = obj(scores, prompt, max_new_tokens, eos_id, pad_id)
        return {"tokens": tokens, "asked with": scores.lengths}

    return play


# ---- filtering -----------------------------------------------------------------------------------


def filtered(obj):
    """At temperature 0 what is kept may have any finite value: so only that is shown."""

    def play(logits, temperature=None, top_k=None, top_p=None):
        options = dict(temperature=temperature, top_k=top_k, top_p=top_p)
        out = obj(logits, **{name: value for name, value in options.items() if value is not None})
        if temperature == 0 and isinstance(out, torch.Tensor):
            out = {"kept": out.isfinite()}
        return out

    return play


# ---- beams ---------------------------------------------------------------------------------------


class _Tree:
    """Log-probabilities by the whole prefix: table (prefixes, vocab), the prefixes counted in order of length."""

    def __init__(self, table, bos_id):
        self.table, self.bos_id = table, bos_id

    def __call__(self, tokens):
        if not len(tokens):
            raise RuntimeError("asked what follows no hypothesis at all")
        return torch.stack([self.table[self._place(row)] for row in tokens.tolist()])

    def _place(self, prefix):
        if not prefix or prefix[0] != self.bos_id:
            raise RuntimeError("every hypothesis begins with bos_id")
        vocab, place = self.table.shape[-1], 0
        for token in prefix[1:]:
            place = place * vocab + token + 1
        if place >= len(self.table):
            raise RuntimeError("longer than max_len")
        return place


def beams(obj):
    """The answer as tokens and scores, whatever kind of pair it comes in."""

    def play(table, bos_id, eos_id, n_beams, max_len, length_penalty):
        found = obj(_Tree(table, bos_id), bos_id, eos_id, n_beams, max_len, length_penalty)
        if not isinstance(found, list) or not all(isinstance(one, (tuple, list)) and len(one) == 2 for one in found):
            return found
        return {"tokens": [one[0] for one in found], "scores": [number(one[1]) for one in found]}

    return play


SCRIPTS = {"greedy": greedy, "filtered": filtered, "beams": beams}
