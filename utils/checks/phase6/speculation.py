"""speculative_accept: one round's verdict."""

import torch
import torch.nn.functional as F

from utils import oracle
from utils.checks.draw import given
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase6 import PHASE, rules_systems
from utils.checks.phase6 import rules_speculation as rules
from utils.observe.codec import Generator

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


def judged(name, n_draft, fails=None, vocab_size=5, share=0.9, seed=7, rounds=1, **changed):
    args = dict(
        target_probs=rows(n_draft, vocab_size),
        draft_probs=given(offers),
        draft_tokens=given(guesses),
        uniforms=luck(fails, share),
        generator=Generator(seed),
    )
    return case(name, args | changed, then=(args | changed,) * (rounds - 1))


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


WANTED, OFFERED = [0.4, 0.4, 0.1, 0.1], [0.1, 0.1, 0.7, 0.1]  # words 0 and 1 are missed, as much as each other
LAST = [0.1, 0.5, 0.3, 0.1]
MISSED = (0.5, 0.5, 0.0, 0.0)


def accepting(
    passes=lambda p, q, u: u * q < p,
    prefix=True,
    left=lambda p, q: (p - q).relu(),
    cdf=False,
    last=None,
    luck=lambda u, generator: u,
    draw=lambda left, generator: torch.multinomial(left, 1, generator=generator),
    count=lambda n: n,
    offered=lambda draft, n: draft[n],
):
    """A wrong twin in its parts."""

    def speculative_accept(target_probs, draft_probs, draft_tokens, uniforms, generator):
        guess = draft_tokens[:, None]
        p, q = target_probs[: len(guess)].gather(-1, guess)[:, 0], draft_probs.gather(-1, guess)[:, 0]
        passed = passes(p, q, luck(uniforms, generator)).long()
        n = int((passed.cumprod(0) if prefix else passed).sum())
        over = (
            left(target_probs[n], offered(draft_probs, n))
            if n < len(guess)
            else (last or (lambda t: t[-1]))(target_probs)
        )
        if cdf:
            u = torch.rand((), generator=generator, dtype=over.dtype)
            return count(n), min(int(torch.searchsorted(over.cumsum(-1), u)), len(over) - 1)
        return count(n), int(draw(over + (over.sum() == 0), generator))

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
        judged("the second guess fails, five rounds", 3, fails=1, rounds=5),
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
        "q over p is upside down: p over q": Spotted(rules.upside_down, accepting(passes=lambda p, q, u: u * p < q)),
        "after the first failure nothing passes": Spotted(rules.goes_on, accepting(prefix=False)),
        "a guess may fail": Spotted(rules.all_pass, accepting(passes=lambda p, q, u: u < 2)),
        "the guess passes if the target likes it more: chance plays its part": Spotted(
            rules.no_chance, accepting(passes=lambda p, q, u: p >= q)
        ),
        "draw from what the draft missed": Spotted(
            rules.not_missed,
            accepting(left=lambda p, q: p),
            also=(accepting(left=lambda p, q: p), accepting(left=lambda p, q: q)),
            certain=True,
        ),
        "divide what is left by its sum": Spotted(rules.impossible_word, accepting(cdf=True), certain=True),
        "when all pass, the last row speaks": Spotted(
            rules.other_last_row, accepting(last=lambda target: target[-2]), certain=True
        ),
        "n_accepted counts the guesses that stand, without the token after them": Spotted(
            rules.one_too_many, accepting(count=lambda n: n + 1)
        ),
        "compare uniforms · q with p: the draft counts, too": Spotted(
            rules.without_the_draft, accepting(passes=lambda p, q, u: u < p)
        ),
        "judge with the uniforms that were handed over": Replays(
            accepting(luck=lambda u, generator: torch.rand(len(u), generator=generator, dtype=u.dtype)),
            accepting(luck=lambda u, generator: torch.rand(len(u), generator=generator)),
        ),
        "draw what was missed, do not take the largest": Spotted(
            rules.always_the_best, accepting(draw=lambda left, generator: left.argmax()), certain=True
        ),
        "the row that failed: guess i, target and draft alike": Replays(
            accepting(offered=lambda draft, n: draft[0]), accepting(offered=lambda draft, n: draft[-1])
        ),
        "strictly below": accepting(passes=lambda p, q, u: u * q <= p),
    },
)
