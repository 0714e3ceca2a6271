"""train_step and exposure_gap."""

import torch
import torch.nn.functional as F

from utils import oracle
from utils.checks.draw import given, normal
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase5 import PHASE
from utils.checks.phase5 import rules_training as rules
from utils.observe import fixtures
from utils.observe.codec import Fixture

# ---- train_step ----------------------------------------------------------------------------------

VOCAB = 7


def batches(*sizes, vocab=VOCAB):
    """Micro-batches (rows, places, kept): that many targets are kept, the others are −100."""

    def draw(generator, others):
        found = []
        for rows, places, kept in sizes:
            inputs, targets = torch.randint(vocab, (2, rows, places), generator=generator)
            order = torch.rand(rows * places, generator=generator).argsort()
            targets.view(-1)[order[kept:]] = -100
            found.append((inputs, targets))
        return found

    return given(draw)


def kept_of(targets):
    return int((targets != -100).sum())


def loss_of(model, inputs, targets, reduction="sum"):
    return F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten(), reduction=reduction, ignore_index=-100)


def clip(model, max_norm):
    if max_norm is not None:
        oracle.clip_grad_norm_(model.parameters(), max_norm)


def stepper(
    clean=True, each=False, clip_each=False, clips=True, weigh=None, flags=False, after=False, all_places=False,
    answer=lambda total, kept: total,
):  # fmt: skip
    """A wrong twin of train_step by accumulation; weigh(counts) gives each loss its factor."""

    def train_step(model, optimizer, micro_batches, max_norm):
        counts = [kept_of(targets) for _, targets in micro_batches]
        if not sum(counts):
            return 0.0
        if clean:
            optimizer.zero_grad()
        if flags:
            model.train()
        if all_places:
            counts = [targets.numel() for _, targets in micro_batches]
        factors, total = (weigh or by_token)(counts), 0.0
        for (inputs, targets), factor in zip(micro_batches, factors, strict=True):
            loss = factor * loss_of(model, inputs, targets)
            loss.backward()
            total += loss.item()
            if clip_each:
                clip(model, max_norm)
            if each:
                optimizer.step()
                optimizer.zero_grad()
        if clips and not clip_each:
            clip(model, max_norm)
        if not each:
            optimizer.step()
        if after:
            total = sum(f * loss_of(model, *pair).item() for pair, f in zip(micro_batches, factors, strict=True))
        return answer(total, sum(counts))

    return train_step


def by_token(counts):
    return [1 / sum(counts)] * len(counts)


def by_batch(counts):
    return [1 / max(count, 1) / len(counts) for count in counts]


def by_batch_with_tokens(counts):
    return [1 / max(count, 1) / sum(count > 0 for count in counts) for count in counts]


def summed_means(counts):
    return [1 / max(count, 1) for count in counts]


def summed(counts):
    return [1.0] * len(counts)


def empty_is_nan(model, optimizer, micro_batches, max_norm):
    """The mean of nothing, times 0, is still nan."""
    counts = [kept_of(targets) for _, targets in micro_batches]
    if not sum(counts):
        return 0.0
    optimizer.zero_grad()
    total = 0.0
    for (inputs, targets), count in zip(micro_batches, counts, strict=True):
        loss = loss_of(model, inputs, targets, "mean") * count / sum(counts)
        loss.backward()
        total += loss.item()
    clip(model, max_norm)
    optimizer.step()
    return total


def one_backward(model, optimizer, micro_batches, max_norm):
    """The losses are added up, with all their graphs."""
    kept = sum(kept_of(targets) for _, targets in micro_batches)
    if not kept:
        return 0.0
    optimizer.zero_grad()
    total = sum(loss_of(model, *pair) for pair in micro_batches) / kept
    total.backward()
    clip(model, max_norm)
    optimizer.step()
    return total.item()


def all_in_one(model, optimizer, micro_batches, max_norm):
    """One large batch, padded."""
    width = max(inputs.shape[1] for inputs, _ in micro_batches)
    parts = [(F.pad(i, (0, width - i.shape[1])), F.pad(t, (0, width - t.shape[1]), value=-100))
             for i, t in micro_batches]  # fmt: skip
    whole = tuple(torch.cat(part) for part in zip(*parts, strict=True))
    if not kept_of(whole[1]):
        return 0.0
    optimizer.zero_grad()
    loss = loss_of(model, *whole, "mean")
    loss.backward()
    clip(model, max_norm)
    optimizer.step()
    return loss.item()


def steps_on_nothing(model, optimizer, micro_batches, max_norm):
    if any(kept_of(targets) for _, targets in micro_batches):
        return oracle.train_step(model, optimizer, micro_batches, max_norm)
    optimizer.zero_grad()
    optimizer.step()
    return 0.0


WEIGHTS = dict(table=(VOCAB, 4), out=(4, VOCAB), bias=normal(VOCAB))
THREE = batches((1, 4, 3), (2, 3, 2), (3, 1, 1))


def update(name, micro_batches, max_norm=None, **options):
    return case(name, WEIGHTS | dict(micro_batches=micro_batches, max_norm=max_norm), grad=False, **options)


register(
    expected=oracle.train_step,
    phase=PHASE,
    section="5.6",
    hint="count all kept targets first; each micro-batch adds its sum of losses / that count; clip once, step once.",
    grad=False,
    script="train step",
    cases=(
        update("3, 2 and 1 kept", THREE),
        update("limit 0.05", THREE, 0.05, atol=1e-5),  # the guard of 1e-6 beside the norm passes
        update("limit 50", THREE, 50.0),
        update("one micro-batch", batches((2, 5, 6))),
        update("as many kept in each", batches((2, 3, 4), (1, 5, 4))),
        update("one with nothing kept", batches((2, 3, 4), (1, 2, 0), (1, 4, 1)), 0.3, atol=1e-5),
        update("nothing kept at all", batches((2, 3, 0), (1, 2, 0)), 0.5, kind="edge"),
    ),
    mistakes={
        "weigh micro-batches by kept tokens": Replays(stepper(weigh=by_batch), stepper(weigh=by_batch_with_tokens)),
        "divide by the targets that are kept, not by all places": stepper(all_places=True),
        "zero the gradients first": stepper(clean=False),
        "one step in all, not one per micro-batch": Replays(
            stepper(each=True), stepper(each=True, clip_each=True), stepper(each=True, weigh=summed_means)
        ),
        "clip after accumulating": stepper(clip_each=True),
        "the mean over all kept tokens, not the sum": Replays(
            stepper(weigh=summed),
            stepper(weigh=summed_means),
            stepper(answer=lambda total, kept: total * kept),
        ),
        "call backward for each micro-batch, or all their graphs stay in memory": Spotted(
            rules.graphs_piled_up, one_backward, certain=True
        ),
        "max_norm was ignored": stepper(clips=False),
        "a micro-batch with nothing kept adds nothing, not nan": empty_is_nan,
        "nothing kept: return 0.0 and make no step": Spotted(
            rules.steps_without_targets, steps_on_nothing, certain=True
        ),
        "return the loss from before the update": stepper(after=True),
        "leave train and eval flags as they are": Spotted(rules.flags_moved, stepper(flags=True)),
        "one micro-batch at a time": Spotted(rules.one_large_batch, all_in_one),
    },
)

# ---- exposure_gap --------------------------------------------------------------------------------


def parrot(**options):
    return Fixture("parrot", options)


def own_words(model, start, n):
    """What the model says next, n times, from rows of tokens."""
    with torch.no_grad():
        for _ in range(n):
            start = torch.cat([start, model(start)[:, -1:].argmax(-1)], -1)
    return start


def sentences(rows, p, n):
    """(prompt, targets) of rows of four kinds.

    The model's own words; the same with one word replaced, after which it is on its own again; a word replaced and
    then what the model says after that word; words at random.
    """

    def draw(generator, others):
        fixture = others["model"]
        model = fixtures.build(fixture.name, fixture.options | dict(training=False, mixed=False))
        vocab = len(model.now)
        prompt = torch.randint(vocab, (rows, p), generator=generator)
        targets = own_words(model, prompt, n)[:, p:]
        for row in range(rows):
            place = 1 + row % 3
            if row % 4 in (1, 2):
                targets[row, place] = (targets[row, place] + 1 + row) % vocab
            if row % 4 == 2:
                told = torch.cat([prompt[row], targets[row, : place + 1]])[None]
                targets[row] = own_words(model, told, n - place - 1)[0, p:]
            if row % 4 == 3:
                targets[row] = torch.randint(vocab, (n,), generator=generator)
        return prompt, targets

    return given(draw)


def gap(name, rows=6, p=4, n=7, **options):
    return case(name, dict(model=parrot(**options), batch=sentences(rows, p, n)), grad=False)


def parted(forced=None, free=None, mode=None, answer=None):
    """A wrong twin from its parts: shares of hits in both ways, and what surrounds them."""

    def exposure_gap(model, batch):
        prompt, targets = batch
        flags, whole = [(part, part.training) for part in model.modules()], model.training
        with (mode or quiet)(model):
            first = (forced or told_truth)(model, prompt, targets)
            second = (free or own_run)(model, prompt, targets)
        if mode is one_flag:
            model.train(whole)
        elif mode is leaves_training:
            model.train()
        elif mode is not forgets:
            for part, training in flags:
                part.training = training
        return (answer or both)(float(first), float(second))

    return exposure_gap


def both(first, second):
    return {"teacher_forced": first, "free_running": second, "gap": first - second}


class quiet:
    """Eval mode, no gradients."""

    def __init__(self, model):
        model.eval()
        self.off = torch.no_grad()

    def __enter__(self):
        return self.off.__enter__()

    def __exit__(self, *error):
        return self.off.__exit__(*error)


class forgets(quiet):
    """The flags stay."""


class one_flag(quiet):
    """All parts get the model's own flag."""


class leaves_training(quiet):
    """All parts are in train mode afterwards."""


class training(quiet):
    def __init__(self, model):
        model.train()
        self.off = torch.no_grad()


class tracked(quiet):
    def __init__(self, model):
        model.eval()
        self.off = torch.enable_grad()


def logits_of(model, prompt, targets):
    return model(torch.cat([prompt, targets], 1))


def told_truth(model, prompt, targets):
    start = prompt.shape[1] - 1
    return (logits_of(model, prompt, targets)[:, start:-1].argmax(-1) == targets).double().mean()


def own_run(model, prompt, targets):
    said = own_words(model, prompt, targets.shape[1])[:, prompt.shape[1] :]
    return (said == targets).double().mean()


def one_late(model, prompt, targets):
    start = prompt.shape[1]
    return (logits_of(model, prompt, targets)[:, start:].argmax(-1) == targets).double().mean()


def prompt_too(model, prompt, targets):
    whole = torch.cat([prompt, targets], 1)
    return (model(whole)[:, :-1].argmax(-1) == whole[:, 1:]).double().mean()


def with_prompt(model, prompt, targets):
    whole = torch.cat([prompt, targets], 1)
    return (own_words(model, prompt, targets.shape[1]) == whole).double().mean()


def until_wrong(model, prompt, targets):
    right = own_words(model, prompt, targets.shape[1])[:, prompt.shape[1] :] == targets
    return right.cumprod(-1).double().mean()


def guesses_of_the_forced_pass(model, prompt, targets):
    start = prompt.shape[1] - 1
    told = logits_of(model, prompt, targets)[:, start:-1].argmax(-1)
    said = logits_of(model, prompt, told)[:, start:-1].argmax(-1)
    return (said == targets).double().mean()


def whole_sentences(model, prompt, targets):
    right = own_words(model, prompt, targets.shape[1])[:, prompt.shape[1] :] == targets
    return right.all(-1).double().mean()


register(
    expected=oracle.exposure_gap,
    phase=PHASE,
    section="5.7",
    hint="logits at p − 1 … p + n − 2 of prompt and targets; then the same model on its own words, place by place.",
    grad=False,
    script="exposure",
    cases=(
        gap("six rows"),
        gap("dropout on entry", dropout=0.5, training=True, seed=1),
        gap("parts in different modes", dropout=0.5, training=True, mixed=True, seed=2),
        gap("one row, one place", rows=1, n=1, seed=3),
        gap("a short prompt", rows=4, p=1, n=5, seed=4),
    ),
    mistakes={
        "free running must eat its own words": parted(free=told_truth),
        "what it reads on its own is what it said on its own, place by place": parted(free=guesses_of_the_forced_pass),
        "with teacher forcing the model reads the truth": parted(forced=own_run),
        "the prompt is given, not guessed": Replays(
            parted(forced=prompt_too),
            parted(free=with_prompt),
            parted(forced=prompt_too, free=with_prompt),
        ),
        "the logits at one place are about the next": parted(forced=one_late),
        "after an error the row goes on": parted(free=until_wrong),
        "a share of places, not of sentences": parted(free=whole_sentences),
        "gap is the first minus the second": parted(answer=lambda a, b: both(a, b) | {"gap": b - a}),
        "put every train and eval flag back, part by part": Replays(
            parted(mode=forgets), parted(mode=one_flag), parted(mode=leaves_training)
        ),
        "dropout is off in eval mode": Spotted(rules.ran_in_training_mode, parted(mode=training), certain=True),
        "nothing is learned here: torch.no_grad()": Spotted(rules.kept_gradients, parted(mode=tracked), certain=True),
    },
)
