"""overfit_one_batch, sees_targets: two tests before any training."""

import torch

from utils import oracle
from utils.checks.draw import given, normal
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase7 import PHASE
from utils.checks.phase7 import rules_training as rules
from utils.observe.codec import Fixture

# ---- overfit_one_batch ---------------------------------------------------------------------------

BATCH = dict(x=(5, 3), y=(5, 2), first=(3, 4), second=(4, 2))


def fitted(name, steps, **options):
    return case(name, BATCH | dict(steps=steps, **options), grad=False)


def awake(model, flags, how):
    for part, training in flags if how == "parts" else ():
        part.training = training
    if how == "train":
        model.train()


def fitter(
    clean=True, steps_made=1, mode="eval", put_back="parts", keep=float, last="after", guard="before", safe=True
):
    """A wrong twin of overfit_one_batch from its parts. safe: flags go back where it raises; "itself": by itself."""

    def overfit_one_batch(model, optimizer, loss, steps):
        flags = [(part, part.training) for part in model.modules()]

        def back():
            awake(model, flags, put_back)

        def priced():
            try:
                now = loss(model)
            except ValueError:
                back() if safe is True else None
                raise
            if guard and not now.isfinite():
                back() if safe else None
                raise ValueError("the loss is no number")
            return now

        losses = []
        if mode:
            model.train(mode == "train")
        for _ in range(steps):
            now = priced()
            if clean:
                optimizer.zero_grad()
            now.backward()
            for _ in range(steps_made):
                optimizer.step()
            losses.append(keep(now.detach()))
        final = keep(priced().detach()) if last != "no" else None
        losses = losses + [final] if last == "after" else losses[1:] + [final] if last == "shifted" else losses
        back()
        return losses

    return overfit_one_batch


def as_tensor(now):
    return now


class _ClearsBehind:
    """An optimizer that clears the gradients after each step."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad()


def cleared_behind(model, optimizer, loss, steps):
    return fitter(clean=False)(model, _ClearsBehind(optimizer), loss, steps)


def looked_at_late(model, optimizer, loss, steps):
    """The step is made, then the loss is looked at that it was made with."""
    found = fitter(guard=None)(model, optimizer, loss, steps)
    if not torch.tensor(found).isfinite().all():
        raise ValueError("the loss is no number")
    return found


def early_end(model, optimizer, loss, steps):
    """Stops where there is next to nothing left."""
    if len(found := oracle.overfit_one_batch(model, optimizer, loss, 0)) and found[0] < 1e-3:
        return found
    return oracle.overfit_one_batch(model, optimizer, loss, steps)


register(
    expected=oracle.overfit_one_batch,
    phase=PHASE,
    section="7.5",
    hint="eval mode; then loss, zero, backward, step, again and again; one more loss at the end; flags back.",
    grad=False,
    bans=(),
    script="one batch",
    cases=(
        fitted("four steps", 4),
        fitted("eight steps, far to go", 8, y=normal(5, 2, std=9.0), lr=0.4),
        fitted("one step, and hardly anything to learn", 1, y=normal(5, 2, std=1e-3), second=normal(4, 2, std=1e-3)),
        fitted("no step: one loss", 0),
        fitted("no number after two steps", 6, bad_at=2),
        fitted("infinite in the end", 3, bad_at=3, by="inf"),
        fitted("no number at once", 3, bad_at=0),
        fitted("the loss itself raises", 3, bad_at=1, by="a stumble"),
    ),
    mistakes={
        "zero the gradients before each backward": fitter(clean=False),
        "gradients may be left from before: clear them before the first step, too": cleared_behind,
        "dropout is noise: learn by heart in eval mode": Spotted(
            rules.noise_was_on, fitter(mode=""), also=(fitter(mode="train"),), certain=True
        ),
        "put every train and eval flag back, part by part": Replays(fitter(put_back="no"), fitter(put_back="train")),
        "one loss more: the one after the last step": Replays(
            fitter(last="no"), fitter(last="dropped"), fitter(last="shifted")
        ),
        "a loss is a float: .item()": fitter(keep=as_tensor),
        "the weights never moved: optimizer.step()": fitter(steps_made=0),
        "one step for each loss": fitter(steps_made=2),
        "a loss that is no number: raise ValueError": Spotted(rules.went_on, fitter(guard=None), certain=True),
        "look at the loss before you step with it": Spotted(rules.stepped_with_nothing, looked_at_late, certain=True),
        "flags go back even where it raises": Replays(fitter(safe=False), fitter(safe="itself")),
        "steps + 1 losses, however small they are": early_end,
    },
)

# ---- sees_targets --------------------------------------------------------------------------------

VOCAB = 9


def rows(n_rows, length, counting=False, first=-1, only=-1, among=slice(None)):
    """Rows of tokens; counting: each token is the one before it plus 1; first: what the rows `among` all begin with,
    and what is nowhere else; only: the one token that there is."""

    def draw(generator, others):
        tokens = torch.randint(VOCAB, (n_rows, length), generator=generator)
        if counting:
            tokens = (tokens[:, :1] + torch.arange(length)) % VOCAB
        if only >= 0:
            return torch.full_like(tokens, only)
        if first >= 0:
            tokens = torch.where(tokens == first, (tokens + 1) % VOCAB, tokens)
            tokens[among, 0] = first
        return tokens

    return given(draw)


def model(name, seen="causal", tokens=None, **options):
    fixture = Fixture("guesser", dict(vocab_size=VOCAB, seen=seen) | options)
    return case(name, dict(model=fixture, tokens=tokens or rows(2, 10)), grad=False)


def asks(change, look, evals=True, keep_flags=True, start=lambda tokens, vocab: tokens, limit=1e-6, copy=True):
    """A detector from its parts: for each change of the tokens, where the logits must not move.

    change(tokens, vocab): other tokens and the places that are looked at, again and again
    """

    def sees_targets(model, tokens):
        flags = [(part, part.training) for part in model.modules()]
        if evals:
            model.eval()
        with torch.no_grad():
            logits = model(tokens)
            tokens = start(tokens, logits.shape[-1])
            logits = model(tokens)
            found = any(
                bool(((model(other) - logits)[:, look(place)].abs() > limit).any())
                for place, other in change(tokens, logits.shape[-1])
            )
        for part, training in flags if keep_flags else ():
            part.training = training
        return found

    return sees_targets


def each_place(tokens, vocab):
    for place in range(1, tokens.shape[1]):
        other = tokens.clone()
        other[:, place] = (other[:, place] + 1) % vocab
        yield place, other


def constant(token):
    """All later tokens become this one; −1: the last of the vocabulary."""

    def change(tokens, vocab):
        for place in range(1, tokens.shape[1]):
            other = tokens.clone()
            other[:, place:] = token % vocab
            yield place, other

    return change


def one_border(tokens, vocab):
    """The second half is another one."""
    half = tokens.shape[1] // 2
    other = tokens.clone()
    other[:, half:] = (other[:, half:] + 1) % vocab
    yield half, other


def cut_off(model, tokens):
    """Is a prefix answered otherwise than the whole row?"""
    flags = [(part, part.training) for part in model.modules()]
    model.eval()
    with torch.no_grad():
        logits = model(tokens)
        found = any(
            bool(((model(tokens[:, :place]) - logits[:, :place]).abs() > 1e-6).any())
            for place in range(1, tokens.shape[1])
        )
    awake(model, flags, "parts")
    return found


def last_place(tokens, vocab):
    yield from list(each_place(tokens, vocab))[-1:]


def second_place(tokens, vocab):
    yield from list(each_place(tokens, vocab))[:1]


def all_after_the_first(tokens, vocab):
    other = (tokens + 1) % vocab
    other[:, 0] = tokens[:, 0]
    yield 1, other


def first_place(tokens, vocab):
    other = tokens.clone()
    other[:, 0] = (other[:, 0] + 1) % vocab
    yield 0, other


def in_place(tokens, vocab):
    for place in range(1, tokens.shape[1]):
        tokens[:, place] = (tokens[:, place] + 1) % vocab
        yield place, tokens


def before(place):
    return slice(0, place)


def zeros(tokens, vocab):
    return torch.zeros_like(tokens)


def one_more(tokens, vocab):
    """The last of the vocabulary has no next one."""
    for place in range(1, tokens.shape[1]):
        other = tokens.clone()
        other[:, place] += 1
        yield place, other


def of_row(number):
    def sees_targets(model, tokens):
        return oracle.sees_targets(model, tokens[number][None])

    return sees_targets


def one_flag_for_all(model, tokens):
    training, found = model.training, oracle.sees_targets(model, tokens)
    model.train(training)
    return found


def never(model, tokens):
    return False


def always(model, tokens):
    return True


def too_good(model, tokens, limit=0.4):
    flags = [(part, part.training) for part in model.modules()]
    model.eval()
    with torch.no_grad():
        logp = model(tokens)[:, :-1].log_softmax(-1)
    for part, training in flags:
        part.training = training
    return bool(-logp.gather(-1, tokens[:, 1:, None]).mean() < limit)


register(
    expected=oracle.sees_targets,
    phase=PHASE,
    section="7.6",
    hint="change a later token, compare the logits of all places before it; do that for every place, in eval mode.",
    grad=False,
    bans=(),
    whole=True,
    cases=(
        model("sees the whole row", "everything"),
        model("causal", seed=1),
        model("strictly the past", "past", seed=2),
        model("a window of three", "window", seed=3),
        model("each token by itself", "itself", seed=4),
        model("causal, and it looks at how long a row is", by_length=0.3, seed=25),
        model("learned by heart, and right", bonus=9.0, tokens=rows(3, 9, counting=True), seed=5),
        model("causal, handed over in train mode, but for a part", dropout=0.5, training=True, frozen=True, seed=6),
        model("causal, with rounding", rounding=1e-9, seed=7),
        model("one ahead", "one ahead", seed=8),
        model("is told its target", whisper=6.0, seed=9),
        model("is told its target, in train mode", whisper=6.0, dropout=0.5, training=True, seed=10),
        model("is told what it must not say", whisper=-6.0, seed=11),
        model("is told a little", whisper=1e-4, seed=12),
        model("the next but one", "next but one", seed=13),
        model("only early places", "early", seed=14),
        model("only late places", "late", seed=15),
        model("only in the middle", "middle", seed=16),
        model("only from one end to the other", "end to end", seed=17),
        model("only after token 4", whisper=5.0, after=4, tokens=rows(2, 10, first=4), seed=18),
        model("only in the second row of three", whisper=5.0, after=4, tokens=rows(3, 3, first=4, among=1), seed=24),
        model("token 0 again and again", volume=2.0, tokens=rows(1, 8, only=0), seed=21),
        model("token 1 again and again", volume=2.0, tokens=rows(1, 8, only=1), seed=22),
        model("token 8 again and again", volume=2.0, tokens=rows(1, 8, only=8), seed=23),
        model("rows of two", "one ahead", tokens=rows(1, 2), seed=19),
        model("causal, rows of one", tokens=rows(3, 1), seed=20),
    ),
    mistakes={
        "says False for a model that sees the whole row": Spotted(
            rules.false_for_the_whole_row, never, also=(never,), certain=True
        ),
        "says True for a causal model": Spotted(rules.true_for_a_causal_one, always, also=(always,), certain=True),
        "a low loss is a suspicion, not a proof": Replays(
            too_good, lambda model, tokens: too_good(model, tokens, 1.0), lambda m, tokens: too_good(m, tokens, 0.1)
        ),
        "dropout is no leak: eval mode": asks(each_place, before, evals=False),
        "put every train and eval flag back, part by part": Replays(
            asks(each_place, before, keep_flags=False), one_flag_for_all
        ),
        "rounding is no leak: allow 1e-6": asks(each_place, before, limit=0.0),
        "a small leak is one, too": Replays(*(asks(each_place, before, limit=limit) for limit in (1e-3, 1e-2, 0.1, 1))),
        "only one later token was changed": Replays(asks(last_place, before), asks(second_place, before)),
        "one border is not enough: try every place": asks(one_border, before),
        "a row keeps its length: change its tokens, do not cut them off": cut_off,
        "all rows count, not the first alone": Replays(*(of_row(number) for number in (0, -1))),
        "a token must be below vocab_size: go round with %": Spotted(rules.token_beyond, asks(one_more, before)),
        "only the first place was watched": asks(all_after_the_first, before),
        "only neighbours were compared": asks(each_place, lambda place: slice(place - 1, place)),
        "a place may see its own token": asks(each_place, lambda place: slice(0, place + 1)),
        "a place may see what came before": asks(first_place, lambda place: slice(1, None)),
        "try it on the tokens that were handed over": asks(each_place, before, start=zeros),
        "another token must be another one, whatever stands there": Replays(
            asks(constant(0), before), asks(constant(1), before), asks(constant(-1), before)
        ),
        "work on a copy of the tokens": Spotted(rules.tokens_were_changed, asks(in_place, before), certain=True),
    },
)
