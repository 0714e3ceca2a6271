"""early_exit_forward: wrong solutions and unusual right ones."""

import torch

from tests.bank import right, wrong


def seen(tokens):
    n = tokens.shape[1]
    return torch.ones(n, n, dtype=torch.bool).tril()


def leaver(name, sure=lambda logits, t: logits.softmax(-1).max(-1).values >= t, together=None, grad=False, **change):
    """Row by row; `together` decides for the whole batch; change: first, last, place."""

    def early_exit_forward(model, tokens, threshold):
        with torch.set_grad_enabled(grad):
            x, left = model.embed(tokens), list(range(len(tokens)))
            out, used = [None] * len(tokens), [0] * len(tokens)
            for number, block in enumerate(model.blocks):
                x = block(x, attn_mask=None if "future" in change else seen(tokens))
                place = change.get("place", -1)
                logits = model.head(x)[:, place] if "norm" not in change else model.output(x)[:, place]
                goes = sure(logits, threshold)
                if together:
                    goes = together(goes).expand(len(x))
                last = number == len(model.blocks) - 1
                keep = []
                for i, row in enumerate(left):
                    if last or goes[i]:
                        out[row] = logits[i].detach()
                        used[row] = number + change.get("first", 1)
                    else:
                        keep.append(i)
                left = [left[i] for i in keep]
                x = x[keep]
                if not left:
                    break
        return torch.stack(out), torch.tensor(used)

    early_exit_forward.__name__ = name
    return early_exit_forward


for _name, _says, _parts in [
    ("all_together", "each row leaves by itself", dict(together=torch.all)),
    ("any_takes_all", "each row leaves by itself", dict(together=torch.any)),
    ("raw_logits", "confidence is a probability, no logit", dict(sure=lambda logits, t: logits.max(-1).values >= t)),
    ("counted_from_0", "layers are counted from 1", dict(first=0)),
    ("first_position", "the last position decides", dict(place=0)),
    ("no_norm", "the head begins with the norm", dict(norm=False)),
    ("sees_the_future", "no token sees its future", dict(future=True)),
    ("with_grad", "no gradient is needed", dict(grad=True)),
    (
        "strictly",
        "reaching the threshold is enough",
        dict(sure=lambda logits, t: logits.softmax(-1).max(-1).values > t),
    ),
    ("entropy", None, dict(sure=lambda logits, t: -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1) <= 1 - t)),
]:
    wrong("early_exit_forward", says=_says)(leaver(_name, **_parts))


@wrong("early_exit_forward", says="rows that left are computed no longer")
@torch.no_grad()
def computes_everything(model, tokens, threshold):
    x, found = model.embed(tokens), []
    for block in model.blocks:
        x = block(x, attn_mask=seen(tokens))
        found.append(model.head(x[:, -1:])[:, 0])
    found = torch.stack(found)
    sure = found.softmax(-1).amax(-1) >= threshold
    sure[-1] = True
    first = sure.int().argmax(0)
    return found[first, torch.arange(len(tokens))], first + 1


@wrong("early_exit_forward")
@torch.no_grad()
def never_leaves(model, tokens, threshold):
    return model(tokens)[:, -1], torch.full((len(tokens),), len(model.blocks))


@wrong("early_exit_forward")
@torch.no_grad()
def only_before_blocks(model, tokens, threshold):
    x = model.embed(tokens)
    logits = model.head(x)[:, -1]
    if (logits.softmax(-1).amax(-1) >= threshold).all():
        return logits, torch.zeros(len(tokens), dtype=torch.int64)
    return leaver("rest")(model, tokens, threshold)


right("early_exit_forward", why="a Python list of what is left")(leaver("lists"))
right("early_exit_forward", why="log-probabilities against the log of the threshold")(
    leaver("logs", sure=lambda logits, t: logits.log_softmax(-1).exp().max(-1)[0] >= t)
)


@right("early_exit_forward", why="row by row")
def row_by_row(model, tokens, threshold):
    found, used = [], []
    with torch.no_grad():
        for row in tokens:
            x = model.embed(row[None])
            for number, block in enumerate(model.blocks, 1):
                x = block(x, attn_mask=seen(tokens)[None, None])
                logits = model.head(x[:, -1])
                if logits.softmax(-1).max() >= threshold or number == len(model.blocks):
                    break
            found.append(logits)
            used.append(number)
    return torch.cat(found), torch.tensor(used)


@right("early_exit_forward", why="a mask over the whole batch; only what is left is computed")
@torch.inference_mode()
def masks(model, tokens, threshold):
    n, x = len(tokens), model.embed(tokens)
    here, used, out = torch.ones(n, dtype=torch.bool), torch.zeros(n, dtype=torch.long), None
    for block in model.blocks:
        x[here] = block(x[here], attn_mask=seen(tokens))
        logits = model.head(x[here][:, -1:]).squeeze(1)
        out = torch.empty(n, logits.shape[-1], dtype=logits.dtype) if out is None else out
        out[here] = logits
        used[here] += 1
        here[here.clone()] = logits.softmax(-1).amax(-1) < threshold
        if not here.any():
            break
    return out.clone(), used.clone()
