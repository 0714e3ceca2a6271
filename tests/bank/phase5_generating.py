"""generate: wrong solutions and unusual right ones."""

import torch

from tests.bank import right, wrong
from tests.bank.phase5_cache import Buffers
from tests.bank.phase5_stepping import Steps, given

step = given(Steps)


class Writer:
    """Right as it stands, a function in the shape of an object; each wrong solution changes one part."""

    def __call__(
        self, model, prompt, max_new_tokens, temperature=1.0, top_k=None, top_p=None, eos_id=None, pad_id=0,
        generator=None, use_cache=True,
    ):  # fmt: skip
        self.look(prompt.shape[1] + max_new_tokens, model.config.max_len)
        self.choice, self.ends = (temperature, top_k, top_p, generator), (eos_id, pad_id)
        flags = [(part, part.training) for part in model.modules()]
        self.before(model)
        try:
            with torch.no_grad():
                return self.written(model, prompt, max_new_tokens, use_cache)
        finally:
            self.after(model, flags)

    def look(self, length, max_len):
        if length > max_len:
            raise ValueError("max_len")

    def before(self, model):
        model.eval()

    def after(self, model, flags):
        for part, flag in flags:
            part.training = flag

    def cache(self, model, batch):
        config = model.config
        d_head = config.d_model // config.n_heads
        return Buffers(config.n_layers, batch, config.n_kv_heads or config.n_heads, config.max_len, d_head)

    def written(self, model, prompt, steps, use_cache):
        cache, tokens, feed = self.cache(model, len(prompt)), prompt, prompt
        ended = torch.zeros(len(prompt), dtype=torch.bool)
        for _ in range(steps):
            logits = step(model, feed, cache)[:, -1] if use_cache else model(tokens)[:, -1]
            new = self.chosen(logits)
            new, ended = self.ended(new, ended)
            feed = new[:, None]
            tokens = torch.cat([tokens, feed], dim=1)
            if self.over(ended):
                break
        return tokens

    def chosen(self, logits):
        return torch.multinomial(self.probs(logits), 1, generator=self.choice[3]).squeeze(1)

    def probs(self, logits):
        temperature, top_k, top_p, _ = self.choice
        if top_k == 0:
            raise ValueError("top_k")
        if temperature == 0:
            temperature, top_k = 1.0, 1
        logits = logits / temperature
        if top_k is not None:
            logits = logits.masked_fill(logits < logits.topk(top_k).values[:, -1:], -torch.inf)
        if top_p is not None:
            order = logits.argsort(-1, descending=True)
            mass = logits.softmax(-1).gather(-1, order)
            gone = (mass.cumsum(-1) - mass >= top_p).gather(-1, order.argsort(-1))
            logits = logits.masked_fill(gone, -torch.inf)
        return logits.softmax(-1)

    def ended(self, new, ended):
        eos_id, pad_id = self.ends
        if eos_id is None:
            return new, ended
        new = torch.where(ended, pad_id, new)
        return new, ended | (new == eos_id)

    def over(self, ended):
        return bool(ended.all())


def writer(cls):
    """The function that an object of this class is."""

    def generate(
        model, prompt, max_new_tokens, temperature=1.0, top_k=None, top_p=None, eos_id=None, pad_id=0, generator=None,
        use_cache=True,
    ):  # fmt: skip
        return cls()(model, prompt, max_new_tokens, temperature, top_k, top_p, eos_id, pad_id, generator, use_cache)

    generate.__name__ = cls.__name__
    return generate


def bad(says=None):
    return lambda cls: wrong("generate", says=says)(writer(cls)) and cls


@bad("use_cache=True fed every token again")
class NeverCached(Writer):
    def written(self, model, prompt, steps, use_cache):
        return super().written(model, prompt, steps, False)


@bad("use_cache=False is to read the whole text in each step")
class AlwaysCached(Writer):
    def written(self, model, prompt, steps, use_cache):
        return super().written(model, prompt, steps, True)


@bad("dropout was on: switch the model to eval mode")
class StaysInTraining(Writer):
    def before(self, model):
        pass


@bad("put every train/eval flag back")
class StaysInEval(Writer):
    def after(self, model, flags):
        pass


@bad("put every train/eval flag back")
class OneFlagForAll(Writer):
    def after(self, model, flags):
        model.train(flags[0][1])


@bad("the prompt's last token was fed twice")
class FedTwice(Writer):
    def written(self, model, prompt, steps, use_cache):
        if use_cache and steps:
            full = self.cache(model, len(prompt))
            step(model, prompt, full)
            self.cache = lambda model, batch: full
            tail = super().written(model, prompt[:, -1:], steps, True)
            return torch.cat([prompt, tail[:, 1:]], 1)
        return super().written(model, prompt, steps, use_cache)


@bad("an ended row gets padding")
class GoesOn(Writer):
    def ended(self, new, ended):
        return new, ended if self.ends[0] is None else ended | (new == self.ends[0])


@bad("padding is pad_id")
class PadsWithZero(Writer):
    def ended(self, new, ended):
        self.ends = (self.ends[0], 0)
        return super().ended(new, ended)


@bad("all rows had ended")
class NeverStops(Writer):
    def over(self, ended):
        return False


@bad("stop when every row has ended, not when one has")
class StopsAtTheFirst(Writer):
    def over(self, ended):
        return bool(ended.any())


@bad("top_k was ignored")
class NoTopK(Writer):
    def probs(self, logits):
        temperature, top_k, top_p, generator = self.choice
        self.choice = (temperature, None, top_p, generator)
        return super().probs(logits)


@bad("use the generator you are given")
class GlobalDraws(Writer):
    def chosen(self, logits):
        return torch.multinomial(self.probs(logits), 1).squeeze(1)


@bad("this never varies")
class AlwaysGreedy(Writer):
    def chosen(self, logits):
        return logits.argmax(-1)


@bad("prompt and new tokens must fit into max_len")
class NoLimit(Writer):
    def look(self, length, max_len):
        pass

    def cache(self, model, batch):
        config = model.config
        heads = config.n_kv_heads or config.n_heads
        return Buffers(config.n_layers, batch, heads, 10**3, config.d_model // config.n_heads)


@bad("the prompt comes first in the answer")
class NewTokensOnly(Writer):
    def written(self, model, prompt, steps, use_cache):
        return super().written(model, prompt, steps, use_cache)[:, prompt.shape[1] :]


@bad()
class DividesTwice(Writer):
    def probs(self, logits):
        return super().probs(logits / (self.choice[0] or 1.0))


right("generate", why="one loop for both ways")(writer(Writer))


class Prefill(Writer):
    def written(self, model, prompt, steps, use_cache):
        if not use_cache:
            return super().written(model, prompt, steps, False)
        cache, columns = self.cache(model, len(prompt)), [prompt]
        logits, ended = step(model, prompt, cache), torch.zeros(len(prompt), dtype=torch.bool)
        while sum(part.shape[1] for part in columns) < prompt.shape[1] + steps and not ended.all():
            new, ended = self.ended(self.chosen(logits[:, -1]), ended)
            columns.append(new[:, None])
            logits = step(model, new[:, None], cache)
        return torch.cat(columns, 1)


right("generate", why="the prompt is read before the loop; the last token is read, too")(writer(Prefill))


class Table(Writer):
    def written(self, model, prompt, steps, use_cache):
        batch, length = prompt.shape
        table = prompt.new_full((batch, length + steps), self.ends[1])
        table[:, :length] = prompt
        cache, alive, end, start = self.cache(model, batch), torch.ones(batch, dtype=torch.bool), length, 0
        while end < length + steps and alive.any():
            logits = step(model, table[:, start:end], cache) if use_cache else model(table[:, :end])
            new, start = self.chosen(logits[:, -1]), end
            table[alive, end] = new[alive]
            alive = alive & (True if self.ends[0] is None else new != self.ends[0])
            end += 1
        return table[:, :end]


right("generate", why="a table filled with padding from the start, cut where the last row ends")(writer(Table))


class Noisy(Writer):
    def chosen(self, logits):
        noise = torch.empty_like(logits).exponential_(generator=self.choice[3])
        return (self.probs(logits) / noise).argmax(-1)


right("generate", why="draws with Gumbel noise instead of multinomial, in inference mode")(writer(Noisy))
