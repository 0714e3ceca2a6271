"""What a first reader tried in decoding and the cache: slips that went through or were called by a wrong name."""

import math

import torch

from tests.bank import right, wrong
from tests.bank.phase5_cache import Buffers
from tests.bank.phase5_generating import Writer, step, writer
from tests.bank.phase5_sampling import filters
from tests.bank.phase5_stepping import Steps, given, heads

# ---------------------------------------------------------------- decoding


def greedy(ends):
    """A greedy_decode; ends(ended, chosen, eos_id, pad_id) says who has ended."""

    def greedy_decode(next_logits, prompt, max_new_tokens, eos_id, pad_id):
        tokens, ended = prompt, torch.zeros(len(prompt), dtype=torch.bool)
        for _ in range(max_new_tokens):
            chosen = next_logits(tokens).argmax(-1).masked_fill(ended, pad_id)
            tokens = torch.cat([tokens, chosen[:, None]], 1)
            ended = ends(ended, chosen, eos_id, pad_id)
            if ended.all():
                break
        return tokens

    return greedy_decode


@wrong("greedy_decode", says="an ended row stays ended")
def forgets_who_ended(*args):
    return greedy(lambda ended, chosen, eos_id, pad_id: chosen == eos_id)(*args)


@wrong("greedy_decode", says="only eos ends a row, a generated pad_id does not")
def padding_ends(*args):
    return greedy(lambda ended, chosen, eos_id, pad_id: ended | (chosen == eos_id) | (chosen == pad_id))(*args)


@wrong("greedy_decode", says="only eos ends a row, a generated pad_id does not")
def asks_the_last_column(next_logits, prompt, max_new_tokens, eos_id, pad_id):
    tokens = prompt
    for step_made in range(max_new_tokens):
        last = tokens[:, -1] if step_made else torch.full((len(prompt),), -7)
        ended = (last == eos_id) | (last == pad_id)
        if ended.all():
            break
        tokens = torch.cat([tokens, next_logits(tokens).argmax(-1).masked_fill(ended, pad_id)[:, None]], 1)
    return tokens


@wrong("filter_logits", says="top_p 1 keeps everything")
def as_the_third_hint_once_said(logits, temperature=1.0, top_k=None, top_p=None):
    logits = filters("right")(logits, temperature, top_k)
    if top_p is not None:
        filters("right")(logits, 1.0, None, top_p)
        probs, order = logits.softmax(-1).sort(-1, descending=True)
        drop = probs.cumsum(-1) - probs >= top_p
        logits = logits.masked_fill(torch.zeros_like(drop).scatter(-1, order, drop), -math.inf)
    return logits


@wrong("filter_logits", says="return a new tensor, also where nothing is to do")
def the_same_tensor(logits, temperature=1.0, top_k=None, top_p=None):
    if (temperature, top_k, top_p) == (1.0, None, None):
        return logits
    return filters("right")(logits, temperature, top_k, top_p)


@wrong("filter_logits", says="temperature 0 keeps the best token and nothing else")
def nearly_zero(logits, temperature=1.0, top_k=None, top_p=None):
    return filters("right")(logits, temperature or 1e-6, top_k, top_p)


@right("filter_logits", why="the mask moved one place to the right, as in a well-known library")
def shifted_mask(logits, temperature=1.0, top_k=None, top_p=None):
    out = filters("right")(logits, temperature, top_k).clone()
    if top_p is None or temperature == 0:
        return out
    filters("right")(logits, 1.0, None, top_p)
    values, order = torch.sort(out, descending=True)
    remove = values.softmax(-1).cumsum(-1) > top_p
    remove[..., 1:] = remove[..., :-1].clone()
    remove[..., 0] = False
    return out if top_p == 1 else out.masked_fill(remove.scatter(-1, order, remove.clone()), -math.inf)


def beams(each=None, cut=True, halt=lambda done, n: False, eos_first=False, every=False, stop=True, eos=1, last=True):
    """A beam_search; as it stands it is right."""

    def beam_search(next_log_probs, bos_id, eos_id, n_beams, max_len, length_penalty):
        alive, done = [([bos_id], 0.0)], []
        for _ in range(max_len):
            rows, pool = next_log_probs(torch.tensor([tokens for tokens, _ in alive])), []
            for (tokens, total), row in zip(alive, rows, strict=True):
                own = [(tokens + [i], total + p) for i, p in enumerate(row.tolist()) if every or math.isfinite(p)]
                pool += sorted(own, key=lambda beam: -beam[1])[: n_beams if each else None]
            pool.sort(key=lambda beam: -beam[1])
            if eos_first:
                done += [beam for beam in pool if beam[0][-1] == eos_id]
                alive = [beam for beam in pool if beam[0][-1] != eos_id][:n_beams]
            else:
                kept = pool[:n_beams] if cut else pool
                done += [beam for beam in kept if beam[0][-1] == eos_id]
                alive = [beam for beam in kept if beam[0][-1] != eos_id]
            if (stop and not alive) or halt(done, n_beams):
                break

        def score(beam):
            length = len(beam[0]) - 1 - (0 if eos else beam[0][-1] == eos_id)
            return beam[1] / max(length, 1) ** length_penalty

        found = sorted(done + alive, key=score, reverse=True)
        return [(beam[0], score(beam)) for beam in (found[:n_beams] if last else found)]

    return beam_search


for _name, _says, _turn in [
    ("enough_have_ended", "finished beams do not end the search: one alive may pass them",
     dict(halt=lambda done, n: len(done) >= n)),
    ("ends_set_aside_first", "first cut to n_beams, then set aside what has ended", dict(eos_first=True)),
    ("no_common_cut", "rank all continuations together", dict(each=True, cut=False)),
    ("eos_is_no_word", "length counts eos, too", dict(eos=0)),
    ("goes_on_with_nobody", "nothing alive: stop", dict(stop=False)),
    ("returns_them_all", "return the best n_beams, not all", dict(last=False)),
    ("takes_what_cannot_come", "a word of log-probability −∞ cannot come", dict(every=True)),
]:  # fmt: skip
    _search = beams(**_turn)
    _search.__name__ = _name
    wrong("beam_search", says=_says)(_search)

# ---------------------------------------------------------------- cache


@wrong("KVCache", says="truncate: the length is not below 0")
class TruncatesBelowZero(Buffers):
    def truncate(self, length):
        if length > self.length:
            raise ValueError("length")
        self.filled = [length] * self.n_layers


@wrong("KVCache", says="reorder must not read rows that it has written over")
class ReordersInALoop(Buffers):
    def reorder(self, rows):
        for part in [*self.k, *self.v]:
            for place, row in enumerate(rows.tolist() if part is not None else ()):
                part[place] = part[row]


@wrong("KVCache", says="an empty cache, or layer, can be reordered, too")
class WantsSomethingToReorder(Buffers):
    def reorder(self, rows):
        self.k, self.v = [part[rows] for part in self.k], [part[rows] for part in self.v]


@wrong("KVCache", says="each layer has a count of its own")
class OneCountForAll(Buffers):
    def append(self, layer, k, v):
        self.look(layer, k, v)
        if self.k[layer] is None:
            self.k[layer], self.v[layer] = k.new_zeros(self.shape), v.new_zeros(self.shape)
        start, end = max(self.filled), max(self.filled) + k.shape[2]
        if end > self.shape[2]:
            raise ValueError("full")
        self.k[layer][:, :, start:end], self.v[layer][:, :, start:end] = k, v
        self.filled[layer] = end
        return self.answer(layer, end)


def stepping(says):
    return lambda cls: wrong("forward_cached", says=says)(given(cls)) and cls


@stepping("keys and values go into the cache before they are copied for their query heads")
class CopiesFirst(Steps):
    def kept(self, cache, layer, k, v):
        group = self.group if hasattr(self, "group") else 1
        return cache.append(layer, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))

    def attended(self, attention, x, layer, cache):
        self.group = attention.w_q.out_features // attention.w_k.out_features
        return super().attended(attention, x, layer, cache)


@stepping("read cache.length once, before the first append")
class ReadsTheLengthLate(Steps):
    def attended(self, attention, x, layer, cache):
        self.mask = lambda q_len, kv_len: Steps.mask(self, q_len, cache.length + q_len)
        return super().attended(attention, x, layer, cache)


@stepping("the mask has a column for each key, the old and the new ones")
class MaskForTheOldOnes(Steps):
    def mask(self, q_len, kv_len):
        return Steps.mask(self, q_len, kv_len - q_len)


@stepping("what attention and the feed-forward layer give is added to x")
class NoResiduals(Steps):
    def __call__(self, model, tokens, cache):
        x = self.embedded(model, tokens, cache)
        for layer, block in enumerate(model.blocks):
            first = model.config.norm_first
            x = self.attended(block.attention, block.norm1(x) if first else x, layer, cache)
            x = block.ffn(block.norm2(x)) if first else block.norm2(block.ffn(block.norm1(x)))
        return model.head(x)


@stepping("w_o comes after the heads")
class NoOutputMatrix(Steps):
    def attended(self, attention, x, layer, cache):
        width = x.shape[-1] // attention.n_heads
        q, k, v = (heads(w(x), width) for w in (attention.w_q, attention.w_k, attention.w_v))
        k, v = self.kept(cache, layer, k, v)
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        return self.mixed(q, k, v).transpose(1, 2).flatten(2)


@stepping("to split heads, cut the last axis, then move it forward")
class ReshapesHeads(Steps):
    def attended(self, attention, x, layer, cache):
        batch, t, wide = x.shape
        width = wide // attention.n_heads
        q, k, v = (w(x).reshape(batch, -1, t, width) for w in (attention.w_q, attention.w_k, attention.w_v))
        k, v = self.kept(cache, layer, k, v)
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        return attention.w_o(self.mixed(q, k, v).transpose(1, 2).flatten(2))


def writing(says):
    return lambda cls: wrong("generate", says=says)(writer(cls)) and cls


@writing("nothing is learned here: torch.no_grad()")
class WithGradients(Writer):
    def written(self, *args):
        with torch.enable_grad():
            return super().written(*args)


@writing("only eos ends a row, a generated pad_id does not")
class PaddingEnds(Writer):
    def ended(self, new, ended):
        new, ended = super().ended(new, ended)
        return new, ended if self.ends[0] is None else ended | (new == self.ends[1])


@writing("put the flags back after an error, too: try … finally")
class NoFinally(Writer):
    def after(self, model, flags):
        if self.done:
            super().after(model, flags)

    def written(self, *args):
        self.done = False
        tokens = super().written(*args)
        self.done = True
        return tokens


class OnePassMore(Writer):
    def over(self, ended):
        return False

    def written(self, model, prompt, steps, use_cache):
        cache, tokens, feed = self.cache(model, len(prompt)), prompt, prompt
        ended = torch.zeros(len(prompt), dtype=torch.bool)
        for _ in range(steps):
            logits = step(model, feed, cache)[:, -1] if use_cache else model(tokens)[:, -1]
            if ended.all():
                break
            new, ended = self.ended(self.chosen(logits), ended)
            feed = new[:, None]
            tokens = torch.cat([tokens, feed], 1)
        return tokens


right("generate", why="sees that all have ended after one pass that nobody needs: forgiven, says the page")(
    writer(OnePassMore)
)
