"""speculative_accept and speculative_generate."""

import torch
import torch.nn.functional as F

from utils import oracle
from utils.checks.draw import given
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase6 import PHASE, rules_systems
from utils.observe import fixtures
from utils.observe.codec import Fixture, Generator

# ---- speculative_accept ------------------------------------------------------------------------------
# In every row the last word is impossible, and the draft misses one word only: the likeliest.


def rows(n_draft, vocab_size):
    """Target rows; the last one, after all guesses, allows a single word: 1."""

    def draw(generator, others):
        drawn = torch.randn(n_draft + 1, vocab_size - 1, generator=generator, dtype=torch.float64).softmax(-1)
        found = F.pad(drawn, (0, 1))
        found[-1] = F.one_hot(torch.tensor(1), vocab_size).double()
        return found

    return given(draw)


def missed(others):
    """Of each guess: the one word the draft does not offer enough of."""
    return others["target_probs"][:-1].argmax(-1)


def offers(generator, others):
    """What the draft offers: 60 % less of one word, more of all others."""
    found = others["target_probs"][:-1].clone()
    best = missed(others)[:, None]
    taken = 0.6 * found.gather(-1, best)
    share = torch.rand(found.shape, generator=generator, dtype=torch.float64) + 0.2
    share.scatter_(-1, best, 0.0)[:, -1] = 0.0
    found += taken * share / share.sum(-1, keepdim=True)
    return found.scatter_add(-1, best, -taken)


def guesses(generator, others):
    """Words other than the missed one and the impossible one."""
    vocab_size = others["target_probs"].shape[-1]
    return (missed(others) + 1 + torch.zeros_like(missed(others))) % (vocab_size - 1)


def luck(fails, share=0.9):
    """Uniform numbers with which the guess at place `fails` fails, and all others pass."""

    def draw(generator, others):
        guess = others["draft_tokens"][:, None]
        wanted, offered = (
            others[name][: len(guess)].gather(-1, guess)[:, 0] for name in ("target_probs", "draft_probs")
        )
        ratio = wanted / offered
        found = share * ratio.clamp(max=1.0)
        if fails is not None:
            found[fails] = (1 + ratio[fails]) / 2
        return found

    return given(draw)


def judged(name, n_draft, fails=None, vocab_size=5, share=0.9, seed=7, **changed):
    args = dict(
        target_probs=rows(n_draft, vocab_size),
        draft_probs=given(offers),
        draft_tokens=given(guesses),
        uniforms=luck(fails, share),
        generator=Generator(seed),
    )
    return case(name, args | changed)


def fixed(name, target, draft, guess, uniforms, times=1, **options):
    """A round of given numbers, asked `times` times with one generator."""
    args = dict(
        target_probs=torch.tensor(target, dtype=torch.float64),
        draft_probs=torch.tensor(draft, dtype=torch.float64),
        draft_tokens=torch.tensor(guess),
        uniforms=torch.tensor(uniforms, dtype=torch.float64),
        generator=Generator(11),
    )
    return case(name, args, then=(args,) * (times - 1), **options)


def sure_word(generator, others):
    """The draft's guess is the word of which it offers too little: it always passes."""
    return missed(others)


WANTED, OFFERED = [0.5, 0.2, 0.1, 0.2], [0.1, 0.1, 0.6, 0.2]  # what is missed: 0.8 of word 0, 0.2 of word 1
LAST = [0.1, 0.5, 0.3, 0.1]
MISSED = (0.8, 0.2, 0.0, 0.0)


def accepting(passes=lambda p, q, u: u * q < p, prefix=True, left=lambda p, q: (p - q).relu(), cdf=False, last=None):
    """A wrong twin in its parts."""

    def speculative_accept(target_probs, draft_probs, draft_tokens, uniforms, generator):
        guess = draft_tokens[:, None]
        p, q = target_probs[: len(guess)].gather(-1, guess)[:, 0], draft_probs.gather(-1, guess)[:, 0]
        passed = passes(p, q, uniforms).long()
        n = int((passed.cumprod(0) if prefix else passed).sum())
        over = left(target_probs[n], draft_probs[n]) if n < len(guess) else (last or (lambda t: t[-1]))(target_probs)
        if cdf:
            u = torch.rand((), generator=generator, dtype=over.dtype)
            return n, min(int(torch.searchsorted(over.cumsum(-1), u)), len(over) - 1)
        return n, int(torch.multinomial(over + (over.sum() == 0), 1, generator=generator))

    return speculative_accept


register(
    expected=oracle.speculative_accept,
    phase=PHASE,
    section="6.20",
    hint="guess i passes if uniforms[i] · q < p; at the first failure draw from max(p − q, 0), else from the last row.",
    grad=False,
    cases=(
        judged("the second guess fails", 3, fails=1),
        judged("the first guess fails", 3, fails=0),
        judged("the last guess fails", 3, fails=2),
        judged("all pass", 3),
        judged("one guess, it fails", 1, fails=0, vocab_size=6),
        judged("the draft offers too little of its guess", 3, share=0.97, draft_tokens=given(sure_word)),
        judged(
            "the draft is the target",
            4,
            share=0.999,
            draft_probs=given(lambda g, others: others["target_probs"][:-1].clone()),
        ),
        judged("nothing was guessed", 0),
        fixed("a guess that the target never says", [[0.0, 1.0], [1.0, 0.0]], [[0.5, 0.5]], [0], [0.0]),
        fixed("exactly on the edge", [[0.25, 0.75], [1.0, 0.0]], [[0.5, 0.5]], [0], [0.5]),
        fixed(
            "the law after a failure",
            [WANTED, LAST],
            [OFFERED],
            [2],
            [0.9],
            times=60,
            kind="chance",
            judge=rules_systems.follows(MISSED, [1]),
        ),
        fixed(
            "the law when all pass",
            [WANTED, LAST],
            [OFFERED],
            [0],
            [0.3],
            times=60,
            kind="chance",
            judge=rules_systems.follows(LAST, [1]),
        ),
    ),
    mistakes={
        "q over p is upside down: p over q": Spotted(
            rules_systems.upside_down, accepting(passes=lambda p, q, u: u * p < q)
        ),
        "after the first failure nothing passes": Spotted(rules_systems.goes_on, accepting(prefix=False), certain=True),
        "a guess may fail": Spotted(rules_systems.all_pass, accepting(passes=lambda p, q, u: u < 2)),
        "the guess passes if the target likes it more: chance plays its part": Spotted(
            rules_systems.no_chance, accepting(passes=lambda p, q, u: p >= q)
        ),
        "draw from what the draft missed": Spotted(
            rules_systems.not_missed,
            accepting(left=lambda p, q: p),
            also=(accepting(left=lambda p, q: q),),
            certain=True,
        ),
        "divide what is left by its sum": Spotted(rules_systems.impossible_word, accepting(cdf=True), certain=True),
        "when all pass, the last row speaks": Spotted(
            rules_systems.other_last_row, accepting(last=lambda target: target[-2]), certain=True
        ),
        "strictly below": accepting(passes=lambda p, q, u: u * q <= p),
    },
)

# ---- speculative_generate ----------------------------------------------------------------------------

PROMPT = torch.tensor([[3, 1, 4]])
GOOD, EQUAL, BAD = dict(wander=0.5, name="draft"), dict(name="draft"), dict(seed=2, name="draft")


def speak(name, draft, new=9, counts="", prompt=PROMPT, sharp=2.0, seed=4, times=1, **options):
    """A run; `counts` says whose calls are counted and reported in place of the answer."""
    args = dict(
        target=Fixture("speaker", dict(sharp=sharp, seed=seed, counts=counts == "target")),
        draft=Fixture("speaker", dict(sharp=sharp, seed=seed) | draft | dict(counts=counts == "draft")),
        prompt=prompt,
        max_new_tokens=new,
    )
    kept = {key: options.pop(key) for key in ("kind", "judge") if key in options}
    args |= dict(temperature=0.0, generator=Generator(5)) | options
    return case(name, args, then=(args,) * (times - 1), mutates=counts, **kept)


SURE = dict(sharp=5.0, seed=2)  # at temperature 1 it says one word, at 4 many


def law(place, temperature, vocab_size=7):
    """What the target says at this place after the prompt."""
    target = fixtures.build("speaker", SURE | dict(vocab_size=vocab_size))
    chances = (target(PROMPT)[0, -1] / temperature).softmax(-1)
    if place == 0:
        return tuple(chances.tolist())
    nexts = [torch.cat([PROMPT, torch.tensor([[word]])], 1) for word in range(vocab_size)]
    return tuple(
        sum(c * (target(n)[0, -1] / temperature).softmax(-1) for c, n in zip(chances, nexts, strict=True)).tolist()
    )


def soft(logits, temperature):
    """The probabilities at a temperature, 0 being all on the best one."""
    if temperature == 0:
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)
    return (logits / temperature).softmax(-1)


def generating(
    most=lambda n_draft, needed: min(n_draft, needed - 1),
    rows=lambda logits, length: logits[length - 1 :],
    judge=oracle.speculative_accept,
    kept=lambda guess, n: guess[:n],
    end=lambda new, eos_id: new[: new.index(eos_id) + 1] if eos_id in new else None,
    cut=True,
    temper=lambda temperature: temperature,
    only_new=False,
    again=lambda target, guess: None,
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
                offered.append(soft(draft(guess)[0, -1], warm))
                guess = torch.cat([guess, torch.multinomial(offered[-1], 1, generator=generator)[None]], 1)
            again(target, guess)
            wanted = soft(rows(target(guess)[0], length), warm)[: len(offered) + 1]
            offered = torch.stack(offered) if offered else wanted[:0]
            uniforms = torch.rand(len(offered), generator=generator, dtype=wanted.dtype)
            n, last = judge(wanted, offered, guess[0, length:], uniforms, generator)
            new = [*kept(guess[0, length:].tolist(), n), last]
            ended = end(new, eos_id)
            new = ended or new
            tokens = torch.cat([tokens, torch.tensor([new])], 1)
            if ended:
                break
        tokens = tokens[:, :finish] if cut else tokens
        return tokens[:, prompt.shape[1] :] if only_new else tokens

    return speculative_generate


def never_fails(wanted, offered, guess, uniforms, generator):
    return len(guess), int(torch.multinomial(wanted[-1], 1, generator=generator))


def one_by_one(target, guess):
    for end in range(1, 3):
        target(guess[:, :-end])


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
        speak("target calls, the draft is the target", EQUAL, CALLS, "target", judge=rules_systems.asked(3, 3)),
        speak("target calls, one guess", EQUAL, CALLS, "target", n_draft=1, judge=rules_systems.asked(7, 7)),
        speak("target calls, a bad draft", BAD, CALLS, "target", judge=rules_systems.asked(CALLS)),
        speak(
            "the law of the first token at temperature 4",
            dict(wander=2.0, name="draft"),
            2,
            n_draft=2,
            temperature=4.0,
            times=50,
            kind="chance",
            **SURE,
            judge=rules_systems.follows(law(0, 4.0), [0, 3]),
        ),
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
        "rejected tokens are dropped": generating(kept=lambda guess, n: guess),
        "no more than max_new_tokens": Replays(
            generating(most=lambda n_draft, needed: n_draft, cut=False),
            generating(most=lambda n_draft, needed: min(n_draft, needed), cut=False),
        ),
        "at most n_draft guesses, and none that is not needed": Spotted(
            rules_systems.asked_more("draft", 11), generating(most=lambda n_draft, needed: n_draft + 1)
        ),
        "one call of the target for a whole round": Spotted(
            rules_systems.asked_more("target", 7), generating(again=one_by_one)
        ),
        "row i of the target judges guess i": generating(
            rows=lambda logits, length: torch.cat([logits[length:], logits[-1:]])
        ),
        "the target decides": generating(judge=never_fails),
        "eos may stand inside a draft": Replays(
            generating(end=lambda new, eos_id: new if new[-1] == eos_id else None),
            generating(end=lambda new, eos_id: None),
            generating(end=lambda new, eos_id: new if eos_id in new else None),
        ),
        "the prompt stands before the answer": generating(only_new=True),
        "eos itself stays": generating(
            end=lambda new, eos_id: new[: new.index(eos_id)] or None if eos_id in new else None
        ),
        "temperature was ignored": Spotted(rules_systems.always_one, generating(temper=lambda temperature: 0.0)),
    },
)
