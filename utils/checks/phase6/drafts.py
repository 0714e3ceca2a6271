"""speculative_generate: whole texts, whose law is counted."""

import torch
import torch.nn.functional as F

from utils import oracle
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase6 import PHASE, rules_systems
from utils.checks.phase6 import rules_speculation as rules
from utils.observe.codec import Fixture, Generator

PROMPT = torch.tensor([[3, 1, 4]])
GOOD, EQUAL, BAD = dict(wander=0.5, name="draft"), dict(name="draft"), dict(seed=2, name="draft")


def speak(name, draft, new=9, counts="", prompt=PROMPT, sharp=2.0, seed=4, **options):
    """A run; `counts` says whose calls are counted and reported in place of the answer."""
    args = dict(
        target=Fixture("speaker", dict(sharp=sharp, seed=seed, counts=counts == "target")),
        draft=Fixture("speaker", dict(sharp=sharp, seed=seed) | draft | dict(counts=counts == "draft")),
        prompt=prompt,
        max_new_tokens=new,
    )
    kept = {key: options.pop(key) for key in ("kind", "judge") if key in options}
    args |= dict(temperature=0.0, generator=Generator(5)) | options
    return case(name, args, mutates=counts, **kept)


# ---- the law of many tokens: the same chances at every place, whatever was said ---------------------------


class Law:
    """A long text whose target and draft say their words with these chances at this temperature.

    What a faulty round emits is known in closed form: with `n_draft` guesses that pass with chance a each, tokens at
    the places of guesses follow one law, and after a^n_draft of the rounds a bonus follows the target's.
    """

    def __init__(self, target, draft, temperature, n_draft, new):
        self.target, self.draft = (torch.tensor(one, dtype=torch.float64) for one in (target, draft))
        self.temperature, self.n_draft, self.new = temperature, n_draft, new

    def case(self, name, **options):
        chances = dict(warmth=self.temperature)
        args = dict(
            target=Fixture("dice", dict(chances=self.target.tolist()) | chances),
            draft=Fixture("dice", dict(chances=self.draft.tolist(), name="draft") | chances),
            prompt=PROMPT,
            max_new_tokens=self.new,
            n_draft=self.n_draft,
            temperature=self.temperature,
            generator=Generator(5),
        )
        judge = rules.text_follows(self.target.tolist(), PROMPT.shape[1])
        return case(name, args, kind="chance", judge=judge, **options)

    def at_one(self, chances):
        """These chances as they are at temperature 1."""
        return chances**self.temperature / (chances**self.temperature).sum()

    def emitted(self, guess=None, offered=None, all_pass=False):
        """The law of all tokens where guesses are drawn by `guess`, and judged as if drawn by `offered`."""
        p, guess = self.target, self.draft if guess is None else guess
        offered = self.draft if offered is None else offered
        kept = guess * (1.0 if all_pass else (p / offered).clamp(max=1))
        missed, a = (p - offered).relu(), float(kept.sum())
        places = sum(a**i for i in range(self.n_draft))
        found = places * (kept + (1 - a) * missed / missed.sum()) + a**self.n_draft * p
        return (found / found.sum()).tolist()

    def like(self, **spoilt):
        return rules.text_like([self.emitted(**spoilt)], PROMPT.shape[1])


WARM = Law([0.09, 0.29, 0.51, 0.11], [0.27, 0.55, 0.07, 0.11], 4.0, 3, 260)
BEST = F.one_hot(WARM.draft.argmax(), 4).double()


def soft(logits, temperature):
    """The probabilities at a temperature, 0 being all on the best one."""
    if temperature == 0:
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)
    return (logits / temperature).softmax(-1)


def drawn(law, generator):
    return torch.multinomial(law, 1, generator=generator)


def first_new(tokens, length, start, eos_id):
    """How many tokens stay: up to the first eos behind the prompt, or None."""
    new = tokens[length:]
    return length + new.index(eos_id) + 1 if eos_id in new else None


def generating(
    most=lambda n_draft, needed: min(n_draft, needed - 1),
    rows=lambda logits, length: logits[length - 1 :],
    judge=oracle.speculative_accept,
    kept=lambda guess, n: guess[:n],
    end=first_new,
    cut=True,
    temper=lambda temperature: temperature,
    law=soft,
    again=lambda target, guess: None,
    guessed=lambda logits, temperature, generator: drawn(soft(logits, temperature), generator),
    offer=lambda offered, wanted: offered,
    luck=lambda n, generator: torch.rand(n, generator=generator, dtype=torch.float64),
):
    """A wrong twin in its parts."""

    @torch.no_grad()
    def speculative_generate(
        target, draft, prompt, max_new_tokens, n_draft=4, temperature=1.0, eos_id=None, generator=None
    ):
        tokens, finish, warm = prompt[:1], prompt.shape[1] + max_new_tokens, temper(temperature)
        while tokens.shape[1] < finish:
            length, guess, offered = tokens.shape[1], tokens, []
            for _ in range(most(n_draft, finish - length)):
                logits = draft(guess)[0, -1]
                offered.append(law(logits, warm))
                guess = torch.cat([guess, guessed(logits, warm, generator)[None]], 1)
            again(target, guess)
            wanted = law(rows(target(guess)[0], length), warm)[: len(offered) + 1]
            offered = offer(torch.stack(offered) if offered else wanted[:0], wanted)
            n, last = judge(wanted, offered, guess[0, length:], luck(len(offered), generator), generator)
            new = torch.tensor([[*kept(guess[0, length:].tolist(), n), last]])
            tokens = torch.cat([tokens, new], 1)
            ends = end(tokens[0].tolist(), length, prompt.shape[1], eos_id)
            if ends is not None:
                tokens = tokens[:, :ends]
                break
        return tokens[:, :finish] if cut else tokens

    return speculative_generate


def new_only(target, draft, prompt, max_new_tokens, **options):
    return oracle.speculative_generate(target, draft, prompt, max_new_tokens, **options)[:, prompt.shape[1] :]


def ends_at_once(target, draft, prompt, max_new_tokens, eos_id=None, **options):
    if eos_id in prompt[0].tolist():
        return prompt
    return oracle.speculative_generate(target, draft, prompt, max_new_tokens, eos_id=eos_id, **options)


def never_fails(wanted, offered, guess, uniforms, generator):
    return len(guess), int(torch.multinomial(wanted[-1], 1, generator=generator))


def one_by_one(target, guess):
    for end in range(1, 3):
        target(guess[:, :-end])


@torch.no_grad()
def without_guesses(target, draft, prompt, max_new_tokens, n_draft=4, temperature=1.0, eos_id=None, generator=None):
    for _ in range(max_new_tokens):
        prompt = torch.cat([prompt, drawn(soft(target(prompt)[0, -1], temperature), generator)[None]], 1)
        if prompt[0, -1] == eos_id:
            break
    return prompt


def before_eos(tokens, length, start, eos_id):
    """Without eos itself; of a new text that would be empty, with it."""
    ends = first_new(tokens, length, start, eos_id)
    return ends if ends is None or ends == length + 1 else ends - 1


CALLS = 14  # tokens of the counted runs

register(
    expected=oracle.speculative_generate,
    phase=PHASE,
    section="6.21",
    hint="a round: min(n_draft, needed − 1) guesses, one target call, speculative_accept, cut at eos.",
    grad=False,
    cases=(
        speak("a good draft", GOOD),
        speak("the draft is the target", EQUAL, n_draft=3),
        speak("a bad draft", BAD, n_draft=1),
        speak("a bad draft, four guesses", BAD, new=7),
        speak("one token", GOOD, new=1, seed=1),
        speak("no token", GOOD, new=0),
        speak(
            "another prompt, hot draft", dict(wander=2.0, name="draft"), prompt=torch.tensor([[6]]), n_draft=3, seed=2
        ),
        speak("eos inside a draft", EQUAL, new=12, eos_id=5),
        speak("eos in the prompt does not count", GOOD, eos_id=3, seed=3, prompt=torch.tensor([[3, 1, 3]]), new=4),
        speak("draft calls", EQUAL, CALLS, "draft", judge=rules_systems.asked(11)),
        speak("target calls, the draft is the target", EQUAL, 17, "target", judge=rules_systems.asked(4, 4)),
        speak("target calls, one guess", EQUAL, CALLS, "target", n_draft=1, judge=rules_systems.asked(7, 7)),
        speak("target calls, a bad draft", BAD, CALLS, "target", judge=rules_systems.asked(CALLS)),
        WARM.case("the law of 260 tokens at temperature 4"),
        refusal(
            "two prompts",
            dict(
                target=Fixture("speaker", {}),
                draft=Fixture("speaker", EQUAL),
                prompt=torch.tensor([[1, 2], [3, 4]]),
                max_new_tokens=3,
                temperature=0.0,
                generator=Generator(5),
            ),
        ),
    ),
    mistakes={
        "at temperature 0 all weight is on the best word: nothing is divided by 0": Spotted(
            rules.divided_by_zero, generating(law=lambda logits, t: (logits / t).softmax(-1)), certain=True
        ),
        "rejected tokens are dropped": generating(kept=lambda guess, n: guess),
        "no more than max_new_tokens": Replays(
            generating(most=lambda n_draft, needed: n_draft, cut=False),
            generating(most=lambda n_draft, needed: min(n_draft, needed), cut=False),
        ),
        "at most n_draft guesses, and none that is not needed": Spotted(
            rules_systems.asked_more("draft", 11), generating(most=lambda n_draft, needed: n_draft + 1)
        ),
        "no guess was used: the target was asked for every token": Spotted(
            rules.no_guess_used, without_guesses, certain=True
        ),
        "one call of the target for a whole round": Spotted(
            rules_systems.asked_more("target", 7), generating(again=one_by_one)
        ),
        "row i of the target judges guess i": generating(
            rows=lambda logits, length: torch.cat([logits[length:], logits[-1:]])
        ),
        "the target decides": generating(judge=never_fails),
        "eos may stand inside a draft": Replays(
            generating(end=lambda tokens, length, start, eos_id: len(tokens) if tokens[-1] == eos_id else None),
            generating(end=lambda tokens, length, start, eos_id: None),
            generating(end=lambda tokens, length, start, eos_id: len(tokens) if eos_id in tokens[length:] else None),
        ),
        "eos in the prompt ends nothing": Replays(
            ends_at_once,
            generating(end=lambda tokens, length, start, eos_id: first_new(tokens, 0, 0, eos_id)),
            generating(
                end=lambda tokens, length, start, eos_id: (
                    len(tokens) if eos_id in tokens[:start] else first_new(tokens, length, start, eos_id)
                )
            ),
        ),
        "the prompt stands before the answer": new_only,
        "eos itself stays": generating(end=before_eos),
        "temperature was ignored": Spotted(rules.always_one, generating(temper=lambda temperature: 0.0)),
        "divide the logits by the temperature": Spotted(
            rules.text_like([WARM.at_one(WARM.target).tolist()], PROMPT.shape[1]),
            generating(temper=lambda temperature: temperature and 1.0),
        ),
        "a guess is drawn by chance, from the draft's probabilities at this temperature": Spotted(
            rules.text_like([WARM.emitted(guess=BEST), WARM.emitted(guess=WARM.at_one(WARM.draft))], PROMPT.shape[1]),
            generating(guessed=lambda logits, t, generator: logits.argmax(-1, keepdim=True)),
        ),
        "when sampling a guess may fail, too: by chance and the draft's own probabilities": Spotted(
            WARM.like(all_pass=True),
            generating(luck=lambda n, generator: torch.zeros(n, dtype=torch.float64)),
        ),
        "draft_probs are the draft's own, at the same temperature": Spotted(
            WARM.like(offered=torch.full((4,), 0.25, dtype=torch.float64)),
            generating(offer=lambda offered, wanted: torch.full_like(offered, 1 / max(offered.shape[-1], 1))),
        ),
        "more than one row must be refused": Spotted(rules.batch_not_refused, generating(), certain=True),
    },
)
