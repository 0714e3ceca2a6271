"""overfit_one_batch, sees_targets: wrong solutions and unusual right ones."""

import math

import numpy as np
import torch

from tests.bank import right, wrong


class quietly:
    """Eval mode, and every flag as it was afterwards."""

    def __init__(self, model):
        self.model = model

    def __enter__(self):
        self.flags = [part.training for part in self.model.modules()]
        self.model.eval()

    def __exit__(self, *error):
        for part, flag in zip(self.model.modules(), self.flags, strict=True):
            part.training = flag


# ---------------------------------------------------------------- overfit_one_batch


def number_of(now):
    value = now.item()
    if math.isnan(value) or math.isinf(value):
        raise ValueError("the loss is no number any more")
    return value


def learn(model, optimizer, loss, steps):
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        now = loss(model)
        losses.append(number_of(now))
        now.backward()
        optimizer.step()
    return [*losses, number_of(loss(model))]


@wrong("overfit_one_batch", says="dropout is noise: learn by heart in eval mode")
def as_it_is(model, optimizer, loss, steps):
    return learn(model, optimizer, loss, steps)


@wrong("overfit_one_batch", says="dropout is noise: learn by heart in eval mode")
def in_train_mode(model, optimizer, loss, steps):
    with quietly(model):
        model.train()
        return learn(model, optimizer, loss, steps)


@wrong("overfit_one_batch", says="put every train and eval flag back, part by part")
def asleep_afterwards(model, optimizer, loss, steps):
    model.eval()
    return learn(model, optimizer, loss, steps)


@wrong("overfit_one_batch", says="put every train and eval flag back, part by part")
def all_awake_afterwards(model, optimizer, loss, steps):
    model.eval()
    try:
        return learn(model, optimizer, loss, steps)
    finally:
        model.train()


@wrong("overfit_one_batch", says="zero the gradients before each backward")
def gradients_pile_up(model, optimizer, loss, steps):
    losses = []
    with quietly(model):
        for _ in range(steps):
            now = loss(model)
            losses.append(number_of(now))
            now.backward()
            optimizer.step()
        return [*losses, number_of(loss(model))]


@wrong("overfit_one_batch", says="one loss more: the one after the last step")
def a_loss_for_each_step(model, optimizer, loss, steps):
    with quietly(model):
        return learn(model, optimizer, loss, steps)[:-1]


@wrong("overfit_one_batch", says="a loss is a float: .item()")
def keeps_tensors(model, optimizer, loss, steps):
    with quietly(model):
        return [torch.tensor(one) for one in learn(model, optimizer, loss, steps)]


@wrong("overfit_one_batch", says="a loss that is no number: raise ValueError")
def goes_on_for_ever(model, optimizer, loss, steps):
    losses = []
    with quietly(model):
        for _ in range(steps):
            optimizer.zero_grad()
            losses.append(loss(model))
            losses[-1].backward()
            optimizer.step()
        return [one.item() for one in losses] + [loss(model).item()]


@wrong("overfit_one_batch", says="flags go back even where it raises")
def no_finally(model, optimizer, loss, steps):
    flags = [part.training for part in model.modules()]
    model.eval()
    losses = learn(model, optimizer, loss, steps)
    for part, flag in zip(model.modules(), flags, strict=True):
        part.training = flag
    return losses


@wrong("overfit_one_batch", says="the weights never moved: optimizer.step()")
def never_moves(model, optimizer, loss, steps):
    losses = []
    with quietly(model):
        for _ in range(steps + 1):
            optimizer.zero_grad()
            now = loss(model)
            now.backward()
            losses.append(number_of(now))
    return losses


@wrong("overfit_one_batch")
def one_step_too_many(model, optimizer, loss, steps):
    with quietly(model):
        return learn(model, optimizer, loss, steps + 1)[:-1]


@wrong("overfit_one_batch", says="look at the loss before you step with it")
def steps_before_it_looks(model, optimizer, loss, steps):
    """The update is made with the loss that is no number; only then somebody looks at it."""
    losses = []
    with quietly(model):
        for _ in range(steps):
            optimizer.zero_grad()
            now = loss(model)
            now.backward()
            optimizer.step()
            losses.append(number_of(now))
        return [*losses, number_of(loss(model))]


@right("overfit_one_batch", why="a loop and a context manager")
def with_a_context(model, optimizer, loss, steps):
    with quietly(model):
        return learn(model, optimizer, loss, steps)


@right("overfit_one_batch", why="try and finally, gradients set to None by hand, NumPy's floats")
def by_hand(model, optimizer, loss, steps):
    flags, losses = {part: part.training for part in model.modules()}, []
    model.eval()
    try:
        while True:
            now = loss(model)
            if not torch.isfinite(now):
                raise ValueError(f"loss {now.item()} at step {len(losses)}")
            losses.append(np.float64(now.item()))
            if len(losses) > steps:
                return losses
            for weight in model.parameters():
                weight.grad = None
            now.backward()
            optimizer.step()
    finally:
        for part, flag in flags.items():
            part.training = flag


@right("overfit_one_batch", why="gradients to zero, not to None; the last loss without a gradient")
def zeros_not_none(model, optimizer, loss, steps):
    losses = []
    with quietly(model):
        for _ in range(steps):
            now = loss(model)
            losses.append(number_of(now))
            for weight in model.parameters():
                weight.grad = torch.zeros_like(weight)
            now.backward()
            optimizer.step()
        with torch.no_grad():
            losses.append(number_of(loss(model)))
    return losses


@right("overfit_one_batch", why="zeroed after each step, and once before all")
def zeroed_afterwards(model, optimizer, loss, steps):
    optimizer.zero_grad(set_to_none=True)
    losses = []
    with quietly(model):
        for left in range(steps, -1, -1):
            now = loss(model)
            losses.append(number_of(now))
            if left:
                now.backward()
                optimizer.step()
                optimizer.zero_grad()
    return tuple(losses)


# ---------------------------------------------------------------- sees_targets


def moved(model, tokens, other, limit=1e-6):
    """(seq_len,): at which places do the logits differ?"""
    with torch.no_grad():
        return ((model(tokens) - model(other)).abs() > limit).any(-1).any(0)


def vocab_of(model, tokens):
    with torch.no_grad():
        return model(tokens).shape[-1]


def changed(tokens, places, vocab, by=1):
    other = tokens.clone()
    other[:, places] = (tokens[:, places] + by) % vocab
    return other


@wrong("sees_targets", says="says False for a model that sees the whole row")
def shapes_only(model, tokens):
    with quietly(model), torch.no_grad():
        return model(tokens).shape[:2] != tokens.shape


@wrong("sees_targets", says="a low loss is a suspicion, not a proof")
def too_good_to_be_true(model, tokens):
    with quietly(model), torch.no_grad():
        logits = model(tokens)[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        return bool(loss < 0.3)


@wrong("sees_targets", says="dropout is no leak: eval mode")
def awake(model, tokens):
    vocab = vocab_of(model, tokens)
    return any(
        bool(moved(model, tokens, changed(tokens, place, vocab))[:place].any()) for place in range(1, tokens.shape[1])
    )


@wrong("sees_targets", says="put every train and eval flag back, part by part")
def put_to_sleep(model, tokens):
    model.eval()
    return awake(model, tokens)


@wrong("sees_targets", says="rounding is no leak: allow 1e-6")
def exactly_equal(model, tokens):
    with quietly(model):
        vocab = vocab_of(model, tokens)
        return any(
            bool(moved(model, tokens, changed(tokens, slice(place, None), vocab), limit=0)[:place].any())
            for place in range(1, tokens.shape[1])
        )


@wrong("sees_targets", says="a small leak is one, too")
def coarse(model, tokens):
    with quietly(model):
        vocab = vocab_of(model, tokens)
        return any(
            bool(moved(model, tokens, changed(tokens, place, vocab), limit=0.05)[:place].any())
            for place in range(1, tokens.shape[1])
        )


@wrong("sees_targets", says="only one later token was changed")
def the_last_token(model, tokens):
    with quietly(model):
        other = changed(tokens, slice(max(1, tokens.shape[1] - 1), None), vocab_of(model, tokens))
        return bool(moved(model, tokens, other)[:-1].any())


@wrong("sees_targets", says="only the first place was watched")
def the_first_place(model, tokens):
    with quietly(model):
        return bool(moved(model, tokens, changed(tokens, slice(1, None), vocab_of(model, tokens)))[0])


@wrong("sees_targets", says="only neighbours were compared")
def the_next_token(model, tokens):
    with quietly(model):
        vocab = vocab_of(model, tokens)
        return any(
            bool(moved(model, tokens, changed(tokens, place, vocab))[place - 1]) for place in range(1, tokens.shape[1])
        )


@wrong("sees_targets", says="a place may see its own token")
def own_token_too(model, tokens):
    with quietly(model):
        vocab = vocab_of(model, tokens)
        return any(
            bool(moved(model, tokens, changed(tokens, slice(place, None), vocab))[: place + 1].any())
            for place in range(1, tokens.shape[1])
        )


@wrong("sees_targets", says="a place may see what came before")
def the_past(model, tokens):
    with quietly(model):
        return bool(moved(model, tokens, changed(tokens, 0, vocab_of(model, tokens)))[1:].any())


@wrong("sees_targets")
def on_tokens_of_its_own(model, tokens):
    generator = torch.Generator().manual_seed(0)
    with quietly(model):
        vocab = vocab_of(model, tokens)
        own = torch.randint(5, 8, (2, 10), generator=generator)
        return any(bool(moved(model, own, changed(own, place, vocab))[:place].any()) for place in range(1, 10))


@wrong("sees_targets", says="work on a copy of the tokens")
def spoils_the_tokens(model, tokens):
    with quietly(model), torch.no_grad():
        logits = model(tokens)
        for place in range(tokens.shape[1] - 1, 0, -1):
            tokens[:, place] = (tokens[:, place] + 1) % logits.shape[-1]
            if ((model(tokens) - logits)[:, :place].abs() > 1e-6).any():
                return True
    return False


@wrong("sees_targets")
def a_tensor(model, tokens):
    """Neither True nor False."""
    with quietly(model):
        vocab = vocab_of(model, tokens)
        found = [moved(model, tokens, changed(tokens, p, vocab))[:p].any() for p in range(1, tokens.shape[1])]
        return torch.stack(found).any() if found else torch.tensor(False)


@right("sees_targets", why="all later tokens at once, drawn anew")
def all_later_ones(model, tokens):
    generator = torch.Generator().manual_seed(0)
    with quietly(model):
        vocab = vocab_of(model, tokens)
        for place in range(1, tokens.shape[1]):
            rest = (len(tokens), tokens.shape[1] - place)
            by = torch.randint(1, vocab, rest, generator=generator)
            if moved(model, tokens, changed(tokens, slice(place, None), vocab, by))[:place].any():
                return True
    return False


@wrong("sees_targets", says="a row keeps its length: change its tokens, do not cut them off")
def by_prefixes(model, tokens):
    with quietly(model), torch.no_grad():
        whole = model(tokens)
        return not all(
            torch.allclose(model(tokens[:, :n]), whole[:, :n], rtol=1e-5, atol=1e-6) for n in range(1, tokens.shape[1])
        )


@right("sees_targets", why="a table of who moves whom, and its upper triangle")
def a_table(model, tokens):
    with quietly(model):
        vocab, n = vocab_of(model, tokens), tokens.shape[1]
        table = torch.stack([moved(model, tokens, changed(tokens, place, vocab)) for place in range(n)], 1)
        return bool(table.triu(1).any())


@right("sees_targets", why="all variants in one batch")
def one_batch(model, tokens):
    with quietly(model), torch.no_grad():
        logits = model(tokens)
        n, vocab = tokens.shape[1], logits.shape[-1]
        many = torch.cat([changed(tokens, place, vocab) for place in range(n)])
        differ = (model(many).view(n, *logits.shape) - logits).abs().amax((1, 3)) > 1e-6  # (place, place)
        return bool(differ.tril(-1).any())
