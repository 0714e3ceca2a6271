"""train_step, exposure_gap: wrong solutions and unusual right ones."""

import contextlib
import copy

import torch
import torch.nn.functional as F

from tests.bank import right, wrong

# ---------------------------------------------------------------- train_step


def mean_loss(model, inputs, targets):
    return F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten(), ignore_index=-100)


def summed_loss(model, inputs, targets):
    return F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten(), ignore_index=-100, reduction="sum")


def kept(targets):
    return int((targets != -100).sum())


def clip(model, max_norm):
    if max_norm is not None:
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        norm = torch.stack([g.norm() for g in grads]).norm()
        for g in grads if norm > max_norm else []:
            g.mul_(max_norm / norm)


@wrong("train_step", says="weigh micro-batches by kept tokens")
def mean_of_means(model, optimizer, micro_batches, max_norm):
    some = [pair for pair in micro_batches if kept(pair[1])]
    if not some:
        return 0.0
    optimizer.zero_grad()
    total = 0.0
    for inputs, targets in some:
        loss = mean_loss(model, inputs, targets) / len(some)
        loss.backward()
        total += loss.item()
    clip(model, max_norm)
    optimizer.step()
    return total


def accumulated(model, micro_batches, over):
    total = 0.0
    for inputs, targets in micro_batches:
        loss = summed_loss(model, inputs, targets) / over
        loss.backward()
        total += loss.item()
    return total


@wrong("train_step", says="zero the gradients first")
def stale(model, optimizer, micro_batches, max_norm):
    count = sum(kept(targets) for _, targets in micro_batches)
    if not count:
        return 0.0
    total = accumulated(model, micro_batches, count)
    clip(model, max_norm)
    optimizer.step()
    return total


@wrong("train_step", says="clip after accumulating")
def clips_each_time(model, optimizer, micro_batches, max_norm):
    count = sum(kept(targets) for _, targets in micro_batches)
    if not count:
        return 0.0
    optimizer.zero_grad()
    total = 0.0
    for pair in micro_batches:
        total += accumulated(model, [pair], count)
        clip(model, max_norm)
    optimizer.step()
    return total


@wrong("train_step", says="one step in all, not one per micro-batch")
def a_step_each(model, optimizer, micro_batches, max_norm):
    count = sum(kept(targets) for _, targets in micro_batches)
    if not count:
        return 0.0
    total = 0.0
    for pair in micro_batches:
        optimizer.zero_grad()
        total += accumulated(model, [pair], count)
        clip(model, max_norm)
        optimizer.step()
    return total


@wrong("train_step", says="the mean over all kept tokens, not the sum")
def sums(model, optimizer, micro_batches, max_norm):
    if not sum(kept(targets) for _, targets in micro_batches):
        return 0.0
    optimizer.zero_grad()
    total = accumulated(model, micro_batches, 1)
    clip(model, max_norm)
    optimizer.step()
    return total


@wrong("train_step", says="nothing kept: return 0.0 and make no step")
def divides_by_zero(model, optimizer, micro_batches, max_norm):
    count = sum(kept(targets) for _, targets in micro_batches)
    optimizer.zero_grad()
    total = accumulated(model, micro_batches, count)
    clip(model, max_norm)
    optimizer.step()
    return total


@wrong("train_step", says="leave train and eval flags as they are")
def sets_training(model, optimizer, micro_batches, max_norm):
    model.train()
    return right_one(model, optimizer, micro_batches, max_norm)


@wrong("train_step", says="max_norm was ignored")
def never_clips(model, optimizer, micro_batches, max_norm):
    return right_one(model, optimizer, micro_batches, None)


@wrong("train_step")
def padded_width(model, optimizer, micro_batches, max_norm):
    """Divides by all places."""
    if not sum(kept(targets) for _, targets in micro_batches):
        return 0.0
    optimizer.zero_grad()
    total = accumulated(model, micro_batches, sum(targets.numel() for _, targets in micro_batches))
    clip(model, max_norm)
    optimizer.step()
    return total


@wrong("train_step")
def no_step_at_all(model, optimizer, micro_batches, max_norm):
    count = sum(kept(targets) for _, targets in micro_batches)
    optimizer.zero_grad()
    return accumulated(model, micro_batches, count) if count else 0.0


@right("train_step", why="losses scaled up front")
def right_one(model, optimizer, micro_batches, max_norm):
    count = sum(kept(targets) for _, targets in micro_batches)
    if not count:
        return 0.0
    optimizer.zero_grad()
    total = accumulated(model, micro_batches, count)
    clip(model, max_norm)
    optimizer.step()
    return total


@right("train_step", why="gradients divided at the end, old ones cleared by hand and afterwards")
def divided_at_the_end(model, optimizer, micro_batches, max_norm):
    for p in model.parameters():
        p.grad = None
    count, total = 0, 0.0
    for inputs, targets in micro_batches:
        n = kept(targets)
        if n:
            loss = mean_loss(model, inputs, targets) * n
            loss.backward()
            count, total = count + n, total + loss.item()
    if not count:
        return 0.0
    for p in model.parameters():
        if p.grad is not None:
            p.grad /= count
    if max_norm is not None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    model.zero_grad()
    return total / count


@right("train_step", why="autograd.grad and sums of its own")
def own_sums(model, optimizer, micro_batches, max_norm):
    count = sum(kept(targets) for _, targets in micro_batches)
    if count == 0:
        return 0.0
    ps, total = list(model.parameters()), 0.0
    sums = [None] * len(ps)
    for inputs, targets in micro_batches:
        loss = summed_loss(model, inputs, targets)
        found = torch.autograd.grad(loss, ps, allow_unused=True)
        sums = [old if new is None else new if old is None else old + new for old, new in zip(sums, found, strict=True)]
        total += float(loss)
    for p, grad in zip(ps, sums, strict=True):
        p.grad = None if grad is None else grad / count
    clip(model, max_norm)
    optimizer.step()
    return total / count


@right("train_step", why="gradients zeroed in place, micro-batches without targets left out")
def zeros_in_place(model, optimizer, micro_batches, max_norm):
    some = [(inputs, targets) for inputs, targets in micro_batches if (targets != -100).any()]
    if not some:
        return 0.0
    optimizer.zero_grad(set_to_none=False)
    counts = torch.tensor([kept(targets) for _, targets in some])
    losses = []
    for (inputs, targets), share in zip(some, (counts / counts.sum()).double(), strict=True):
        losses.append(mean_loss(model, inputs, targets) * kept(targets) / counts.sum())
        losses[-1].backward()
        assert share > 0
    clip(model, max_norm)
    optimizer.step()
    return sum(loss.item() for loss in losses)


# ---------------------------------------------------------------- exposure_gap


@contextlib.contextmanager
def evaluating(model):
    flags = {part: part.training for part in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, flag in flags.items():
            part.training = flag


def answer(first, second):
    return {"teacher_forced": first, "free_running": second, "gap": first - second}


def share(guesses, targets):
    return (guesses == targets).double().mean().item()


def told(model, prompt, targets):
    return model(torch.cat([prompt, targets], 1))[:, prompt.shape[1] - 1 : -1].argmax(-1)


def own(model, prompt, n):
    tokens = prompt
    for _ in range(n):
        tokens = torch.cat([tokens, model(tokens)[:, -1].argmax(-1, keepdim=True)], 1)
    return tokens[:, prompt.shape[1] :]


@wrong("exposure_gap", says="free running must eat its own words")
def truth_in_both(model, batch):
    with evaluating(model):
        first = share(told(model, *batch), batch[1])
    return answer(first, first)


@wrong("exposure_gap", says="the logits at one place are about the next")
def a_place_late(model, batch):
    prompt, targets = batch
    with evaluating(model):
        first = share(model(torch.cat([prompt, targets], 1))[:, prompt.shape[1] :].argmax(-1), targets)
        return answer(first, share(own(model, prompt, targets.shape[1]), targets))


@wrong("exposure_gap", says="the prompt is given, not guessed")
def prompt_counts(model, batch):
    prompt, targets = batch
    whole = torch.cat([prompt, targets], 1)
    with evaluating(model):
        first = share(model(whole)[:, :-1].argmax(-1), whole[:, 1:])
        return answer(first, share(own(model, prompt, targets.shape[1]), targets))


@wrong("exposure_gap", says="put every train and eval flag back, part by part")
def stays_in_eval(model, batch):
    model.eval()
    with torch.no_grad():
        return answer(share(told(model, *batch), batch[1]), share(own(model, batch[0], batch[1].shape[1]), batch[1]))


@wrong("exposure_gap", says="put every train and eval flag back, part by part")
def one_flag_for_all(model, batch):
    before = model.training
    model.eval()
    with torch.no_grad():
        found = answer(share(told(model, *batch), batch[1]), share(own(model, batch[0], batch[1].shape[1]), batch[1]))
    model.train(before)
    return found


@wrong("exposure_gap", says="nothing is learned here: torch.no_grad()")
def with_gradients(model, batch):
    with evaluating(model), torch.enable_grad():
        return answer(share(told(model, *batch), batch[1]), share(own(model, batch[0], batch[1].shape[1]), batch[1]))


@wrong("exposure_gap", says="dropout is off in eval mode")
def dropout_on(model, batch):
    with torch.no_grad():
        return answer(share(told(model, *batch), batch[1]), share(own(model, batch[0], batch[1].shape[1]), batch[1]))


@wrong("exposure_gap", says="gap is the first minus the second")
def upside_down(model, batch):
    with evaluating(model):
        found = answer(share(told(model, *batch), batch[1]), share(own(model, batch[0], batch[1].shape[1]), batch[1]))
    return found | {"gap": found["free_running"] - found["teacher_forced"]}


@wrong("exposure_gap", says="after an error the row goes on")
def until_the_first_error(model, batch):
    with evaluating(model):
        hits = (own(model, batch[0], batch[1].shape[1]) == batch[1]).long().cumprod(1)
        return answer(share(told(model, *batch), batch[1]), hits.double().mean().item())


@wrong("exposure_gap")
def tensors(model, batch):
    with evaluating(model):
        first, second = told(model, *batch), own(model, batch[0], batch[1].shape[1])
    return {name: (guess == batch[1]).double() for name, guess in (("teacher_forced", first), ("free_running", second))}


@wrong("exposure_gap")
def restarts_from_the_truth(model, batch):
    """Reads its last word only; all before it is the truth."""
    prompt, targets = batch
    with evaluating(model):
        said, tokens = [], prompt
        for place in range(targets.shape[1]):
            guess = model(tokens)[:, -1:].argmax(-1)
            said.append(guess)
            tokens = torch.cat([prompt, targets[:, :place], guess], 1)
        return answer(share(told(model, *batch), targets), share(torch.cat(said, 1), targets))


@right("exposure_gap", why="one pass and a loop")
def one_pass(model, batch):
    with evaluating(model):
        return answer(share(told(model, *batch), batch[1]), share(own(model, batch[0], batch[1].shape[1]), batch[1]))


@right("exposure_gap", why="prefix by prefix, float32 shares")
def by_prefix(model, batch):
    prompt, targets = batch
    n = targets.shape[1]
    with evaluating(model):
        prefixes = [torch.cat([prompt, targets[:, :i]], 1) for i in range(n)]
        first = torch.stack([model(prefix)[:, -1].argmax(-1) for prefix in prefixes], 1)
        second = own(model, prompt, n)
    shares = [(guess == targets).float().mean().item() for guess in (first, second)]
    return answer(*shares)


@right("exposure_gap", why="row by row, counting hits")
def by_row(model, batch):
    prompt, targets = batch
    hits, (rows, n) = [0, 0], targets.shape
    with evaluating(model), torch.inference_mode():
        for row in range(rows):
            one = prompt[row : row + 1], targets[row : row + 1]
            hits[0] += int((told(model, *one) == one[1]).sum())
            hits[1] += sum(a == b for a, b in zip(own(model, one[0], n)[0].tolist(), one[1][0].tolist(), strict=True))
    return answer(hits[0] / (rows * n), hits[1] / (rows * n))


@right("exposure_gap", why="on a copy of the model")
def on_a_copy(model, batch):
    copied = copy.deepcopy(model).eval()
    model.trained.append(copied.training)
    with torch.no_grad():
        first, second = told(copied, *batch), own(copied, batch[0], batch[1].shape[1])
    return answer(share(first, batch[1]), share(second, batch[1]))
