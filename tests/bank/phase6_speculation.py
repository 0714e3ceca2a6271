"""speculative_accept, speculative_generate: wrong solutions and unusual right ones."""

import torch

from tests.bank import right, wrong

# ---------------------------------------------------------------- speculative_accept


def pick(chances, generator):
    """By the inverse distribution function."""
    u = torch.rand((), generator=generator, dtype=chances.dtype) * chances.sum()
    return min(int((chances.cumsum(0) <= u).sum()), len(chances) - 1)


def judge(
    name, passes=lambda u, p, q: u * q < p, left=lambda p, q: (p - q).clamp(min=0), go_on=False, last=-1, draw=pick
):
    def speculative_accept(target_probs, draft_probs, draft_tokens, uniforms, generator):
        n, failed = 0, None
        for i in range(len(draft_tokens)):
            x = int(draft_tokens[i])
            if passes(uniforms[i], target_probs[i, x], draft_probs[i, x]):
                n += 1
            else:
                failed = i if failed is None else failed
                if not go_on:
                    break
        if failed is None:
            return n, draw(target_probs[last], generator)
        return n, draw(left(target_probs[failed], draft_probs[failed]), generator)

    speculative_accept.__name__ = name
    return speculative_accept


def unnormalised(chances, generator):
    u = torch.rand((), generator=generator, dtype=chances.dtype)
    return min(int((chances.cumsum(0) <= u).sum()), len(chances) - 1)


for _name, _says, _parts in [
    ("upside_down", "q over p is upside down: p over q", dict(passes=lambda u, p, q: u * p < q)),
    ("from_p", "draw from what the draft missed", dict(left=lambda p, q: p)),
    ("from_q", "draw from what the draft missed", dict(left=lambda p, q: q)),
    ("goes_on", "after the first failure nothing passes", dict(go_on=True)),
    ("always", "a guess may fail", dict(passes=lambda u, p, q: True)),
    (
        "no_chance",
        "the guess passes if the target likes it more: chance plays its part",
        dict(passes=lambda u, p, q: p >= q),
    ),
    ("unnormalised", "divide what is left by its sum", dict(draw=unnormalised)),
    ("or_equal", "strictly below", dict(passes=lambda u, p, q: u * q <= p)),
    ("difference_turned", None, dict(left=lambda p, q: (q - p).clamp(min=0))),
    ("by_p_alone", None, dict(passes=lambda u, p, q: u < p)),
]:
    wrong("speculative_accept", says=_says)(judge(_name, **_parts))


@wrong("speculative_accept")  # its own draws cannot be foreseen
def own_luck(target_probs, draft_probs, draft_tokens, uniforms, generator):
    other = torch.rand(len(uniforms), generator=generator, dtype=uniforms.dtype)
    return judge("own")(target_probs, draft_probs, draft_tokens, other, generator)


@wrong("speculative_accept")
def most_likely(target_probs, draft_probs, draft_tokens, uniforms, generator):
    return judge("argmax", draw=lambda chances, generator: int(chances.argmax()))(
        target_probs, draft_probs, draft_tokens, uniforms, generator
    )


@wrong("speculative_accept")
def global_draws(target_probs, draft_probs, draft_tokens, uniforms, generator):
    return judge("global")(target_probs, draft_probs, draft_tokens, uniforms, None)


right("speculative_accept", why="inverse distribution function")(judge("inverse"))


@right("speculative_accept", why="a cumulative product")
def cumulative(target_probs, draft_probs, draft_tokens, uniforms, generator):
    k = len(draft_tokens)
    at = torch.arange(k)
    ok = uniforms * draft_probs[at, draft_tokens] < target_probs[at, draft_tokens]
    n = int(ok.long().cumprod(0).sum())
    rest = torch.relu(target_probs[n] - draft_probs[n]) if n < k else target_probs[n]
    return n, int(torch.multinomial(rest, 1, generator=generator))


@right("speculative_accept", why="a draft padded with zeros: the bonus row is one more residual")
def padded(target_probs, draft_probs, draft_tokens, uniforms, generator):
    draft = torch.cat([draft_probs, torch.zeros_like(target_probs[:1])])
    n = 0
    while n < len(draft_tokens):
        x = draft_tokens[n].item()
        if not uniforms[n].item() * draft[n, x].item() < target_probs[n, x].item():
            break
        n += 1
    rest = torch.clamp_min(target_probs[n] - draft[n], 0.0)
    return n, torch.multinomial(rest / rest.sum(), num_samples=1, generator=generator)[0].item()


@right("speculative_accept", why="Gumbel noise")
def gumbel(target_probs, draft_probs, draft_tokens, uniforms, generator):
    def draw(chances, generator):
        noise = torch.rand(len(chances), generator=generator, dtype=chances.dtype).clamp(min=1e-12)
        return int((chances.log() - (-noise.log()).log()).argmax())

    return judge("gumbel", draw=draw)(target_probs, draft_probs, draft_tokens, uniforms, generator)


# ---------------------------------------------------------------- speculative_generate


def drawn_by(law, generator):
    return int(torch.multinomial(law, 1, generator=generator))


def spread(logits, temperature):
    if temperature == 0:
        best = torch.zeros_like(logits)
        best[logits.argmax()] = 1.0
        return best
    return torch.softmax(logits / temperature, -1)


class _Round:
    """One way to write it, in methods that can be spoilt one by one."""

    accept = staticmethod(judge("inside"))

    def guesses(self, n_draft, left):
        return min(n_draft, left - 1)

    def kept(self, guesses, n, last):
        return [*guesses[:n], last]

    def verdict_rows(self, logits, n):
        return logits[n - 1 :]

    def ended(self, new, eos_id):
        return new[: new.index(eos_id) + 1] if eos_id is not None and eos_id in new else None

    def warmth(self, temperature):
        return temperature

    def refuses(self, prompt):
        if len(prompt) != 1:
            raise ValueError("batch")

    def finish(self, tokens, prompt, end):
        return tokens[:end]

    def ask(self, target, tokens):
        return target(torch.tensor([tokens]))[0]

    @torch.no_grad()
    def run(self, target, draft, prompt, max_new_tokens, n_draft, temperature, eos_id, generator):
        self.refuses(prompt)
        tokens = prompt[0].tolist()
        end, warmth = len(tokens) + max_new_tokens, self.warmth(temperature)
        while len(tokens) < end:
            guesses, offers = [], []
            for _ in range(self.guesses(n_draft, end - len(tokens))):
                law = spread(draft(torch.tensor([tokens + guesses]))[0, -1], warmth)
                offers.append(law)
                guesses.append(int(torch.multinomial(law, 1, generator=generator)))
            rows = self.verdict_rows(self.ask(target, tokens + guesses), len(tokens))[: len(guesses) + 1]
            wanted = torch.stack([spread(row, warmth) for row in rows])
            luck = torch.rand(len(guesses), generator=generator, dtype=wanted.dtype)
            offered = torch.stack(offers) if offers else wanted[:0]
            n, last = self.accept(wanted, offered, torch.tensor(guesses, dtype=torch.long), luck, generator)
            new = self.kept(guesses, n, last)
            stop = self.ended(new, eos_id)
            tokens += stop or new
            if stop:
                break
        return torch.tensor([self.finish(tokens, prompt, end)], dtype=prompt.dtype)


def generator_of(name, base=_Round, **methods):
    made = type(name, (base,), methods)()

    def speculative_generate(
        target, draft, prompt, max_new_tokens, n_draft=4, temperature=1.0, eos_id=None, generator=None
    ):
        return made.run(target, draft, prompt, max_new_tokens, n_draft, temperature, eos_id, generator)

    speculative_generate.__name__ = name
    return speculative_generate


def token_by_token(self, target, tokens):
    return torch.stack([target(torch.tensor([tokens[: end + 1]]))[0, -1] for end in range(len(tokens))])


_accept_all = staticmethod(judge("all", passes=lambda u, p, q: True))
for _name, _says, _methods in [
    ("keeps_rejected", "rejected tokens are dropped", dict(kept=lambda self, guesses, n, last: [*guesses, last])),
    (
        "too_long",
        "no more than max_new_tokens",
        dict(guesses=lambda self, n_draft, left: n_draft, finish=lambda self, tokens, prompt, end: tokens),
    ),
    (
        "guesses_too_many",
        "at most n_draft guesses, and none that is not needed",
        dict(guesses=lambda self, n_draft, left: n_draft + 1),
    ),
    ("one_pass_per_token", "one call of the target for a whole round", dict(ask=token_by_token)),
    (
        "row_shifted",
        "row i of the target judges guess i",
        dict(verdict_rows=lambda self, logits, n: torch.cat([logits[n:], logits[-1:]])),
    ),
    ("draft_decides", "the target decides", dict(accept=_accept_all)),
    (
        "eos_at_the_end_only",
        "eos may stand inside a draft",
        dict(ended=lambda self, new, eos_id: new if new[-1] == eos_id else None),
    ),
    ("never_ends", "eos may stand inside a draft", dict(ended=lambda self, new, eos_id: None)),
    (
        "new_tokens_only",
        "the prompt stands before the answer",
        dict(finish=lambda self, tokens, prompt, end: tokens[prompt.shape[1] : end]),
    ),
    ("greedy", "temperature was ignored", dict(warmth=lambda self, temperature: 0)),
    ("two_prompts", None, dict(refuses=lambda self, prompt: None)),
    ("temperature_one", None, dict(warmth=lambda self, temperature: temperature and 1.0)),
]:
    wrong("speculative_generate", says=_says)(generator_of(_name, **_methods))


@wrong("speculative_generate")
@torch.no_grad()
def plain_decoding(target, draft, prompt, max_new_tokens, n_draft=4, temperature=1.0, eos_id=None, generator=None):
    if len(prompt) != 1:
        raise ValueError("batch")
    for _ in range(max_new_tokens):
        law = spread(target(prompt)[0, -1], temperature)
        prompt = torch.cat([prompt, torch.multinomial(law, 1, generator=generator)[None]], 1)
        if prompt[0, -1] == eos_id:
            break
    return prompt


right("speculative_generate", why="lists of ints")(generator_of("lists"))
right("speculative_generate", why="Gumbel noise for the verdict")(
    generator_of("with_gumbel", accept=staticmethod(gumbel))
)


def growing(self, target, tokens):
    return target(torch.tensor([tokens]))[0].clone()


class _Stops(_Round):
    """The draft stops guessing after eos."""

    def ended(self, new, eos_id):
        return next((new[: i + 1] for i, token in enumerate(new) if token == eos_id), None)


right("speculative_generate", why="eos found by a loop")(generator_of("stops", base=_Stops, ask=growing))


@right("speculative_generate", why="a buffer that is filled and cut")
@torch.no_grad()
def buffer(target, draft, prompt, max_new_tokens, n_draft=4, temperature=1.0, eos_id=None, generator=None):
    if prompt.shape[0] > 1:
        raise ValueError("one row only: batch 1")
    n, end = prompt.shape[1], prompt.shape[1] + max_new_tokens
    tokens = torch.zeros(1, end, dtype=torch.long)
    tokens[:, :n] = prompt
    while n < end:
        k, laws = max(0, min(n_draft, end - n - 1)), []
        for i in range(k):
            laws.append(spread(draft(tokens[:, : n + i])[0, -1], temperature))
            tokens[0, n + i] = torch.multinomial(laws[-1], 1, generator=generator)
        logits = target(tokens[:, : n + k])[0, n - 1 : n + k]
        wanted = torch.stack([spread(row, temperature) for row in logits])
        luck, taken = torch.rand(k, generator=generator, dtype=wanted.dtype), 0
        while taken < k and luck[taken] * laws[taken][tokens[0, n + taken]] < wanted[taken][tokens[0, n + taken]]:
            taken += 1
        rest = (wanted[taken] - laws[taken]).relu() if taken < k else wanted[taken]
        tokens[0, n + taken] = torch.multinomial(rest, 1, generator=generator)
        new = tokens[0, n : n + taken + 1]
        if eos_id is not None and (new == eos_id).any():
            return tokens[:, : n + int((new == eos_id).int().argmax()) + 1]
        n += taken + 1
    return tokens
