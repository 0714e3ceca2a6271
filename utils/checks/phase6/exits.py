"""early_exit_forward."""

import torch

from utils import oracle
from utils.checks.draw import given
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase6 import PHASE, rules_systems
from utils.observe.codec import Fixture


def words(*shape, vocab_size=11):
    return given(lambda generator, others: torch.randint(vocab_size, shape, generator=generator))


def run(name, threshold, rows=7, seq_len=5, counts=False, seed=0, sharp=3.0, sizes=None, **options):
    model = Fixture("exits", dict(counts=counts, seed=seed, sharp=sharp) | (sizes or {}))
    return case(name, dict(model=model, tokens=words(rows, seq_len), threshold=threshold), **options)


def counted(name, threshold, **options):
    judge = rules_systems.same_rows
    return run(name, threshold, counts=True, mutates="model", judge=judge, repeats=name.partition(",")[0], **options)


def wrong(
    sure=lambda logits, threshold: logits.softmax(-1).amax(-1) >= threshold,
    leaving=lambda sure: sure,
    head=lambda model, x: model.head(x[:, -1:])[:, 0],
    first=1,
    rest=lambda n_layers: n_layers,
    ordered=True,
    all_rows=False,
    mask=lambda n: torch.ones(n, n, dtype=torch.bool).tril(),
    grad=False,
):
    """A wrong twin in its parts, the batch at once."""

    @torch.set_grad_enabled(grad)
    def early_exit_forward(model, tokens, threshold):
        x, rows = model.embed(tokens), torch.arange(len(tokens))
        found, used, order = None, torch.zeros(len(tokens), dtype=torch.int64), []
        for number, block in enumerate(model.blocks):
            x = block(x, attn_mask=mask(tokens.shape[1]))
            logits, last = head(model, x), number + 1 == len(model.blocks)
            found = torch.zeros(len(tokens), logits.shape[-1], dtype=logits.dtype) if found is None else found
            going = leaving(sure(logits, threshold)) if not last else torch.ones(len(x), dtype=torch.bool)
            new = going & (used[rows] == 0)
            found[rows[new]], used[rows[new]] = logits[new].detach(), rest(number + 1) if last else number + first
            order += rows[new].tolist()
            if not all_rows:
                x, rows = x[~going], rows[~going]
            if not len(x):
                break
        return (found, used) if ordered else (found[order], used[order])

    return early_exit_forward


def stuck(empty):
    """Whoever is never sure gets zeros."""

    @torch.no_grad()
    def early_exit_forward(model, tokens, threshold):
        found, used = oracle.early_exit_forward(model, tokens, threshold)
        late = (used == len(model.blocks)) & (found.softmax(-1).amax(-1) < threshold)
        used = used.masked_fill(late, 0)
        return (found if empty else found.masked_fill(late[:, None], 0.0)), used

    return early_exit_forward


def of_answer(change):
    """The right answer, handed over otherwise."""
    return lambda model, tokens, threshold: change(*oracle.early_exit_forward(model, tokens, threshold))


never_released, never_released_empty = stuck(empty=False), stuck(empty=True)

register(
    expected=oracle.early_exit_forward,
    phase=PHASE,
    section="6.19",
    hint="after each block: head of the last position, softmax, who reaches the threshold leaves.",
    grad=False,
    cases=(
        run("threshold 0: all leave at once", 0.0),
        run("threshold 2: nobody leaves early", 2.0, seed=1),
        run("some leave", 0.6, seed=2, default_dtype="float32"),
        run("fewer leave", 0.8, seed=3),
        run("exactly sure", 1.0, sharp=4000.0, seed=4),
        run("one row of one token", 0.5, rows=1, seq_len=1, seed=5),
        run("post-norm, other sizes", 0.5, rows=3, seq_len=4, seed=6, sizes=dict(norm_first=False, n_layers=4)),
        counted("some leave, rows counted", 0.6, seed=2),
        counted("threshold 0: all leave at once, rows counted", 0.0),
    ),
    mistakes={
        "rows that left are computed no longer": Spotted(rules_systems.all_rows_everywhere, wrong(all_rows=True)),
        "no gradient is needed": Spotted(rules_systems.gradients_followed, wrong(grad=True)),
        "each row leaves by itself": Replays(
            wrong(leaving=lambda sure: sure.all().expand_as(sure)),
            wrong(leaving=lambda sure: sure.any().expand_as(sure)),
            wrong(sure=lambda logits, t: (logits.softmax(-1).amax(-1).mean() >= t).expand(len(logits))),
        ),
        "confidence is a probability, no logit": wrong(sure=lambda logits, t: logits.amax(-1) >= t),
        "the last position decides": Replays(
            wrong(head=lambda model, x: model.head(x[:, :1])[:, 0]),
            wrong(head=lambda model, x: model.head(x).mean(1)),
        ),
        "the head begins with the norm": wrong(head=lambda model, x: model.output(x[:, -1])),
        "layers are counted from 1": wrong(first=0, rest=lambda n: n - 1),
        "the last block releases the rest": Replays(wrong(rest=lambda n: 0), never_released, never_released_empty),
        "rows keep their order": wrong(ordered=False),
        "no token sees its future": wrong(mask=lambda n: None),
        "return logits, not probabilities": of_answer(lambda found, used: (found.softmax(-1), used)),
        "logits keep their dtype": Replays(
            of_answer(lambda found, used: (found.to(torch.get_default_dtype()), used)),
            of_answer(lambda found, used: (found.float(), used)),
        ),
        "layers_used is an int64 tensor": Replays(
            of_answer(lambda found, used: (found, used.tolist())),
            of_answer(lambda found, used: (found, used.int())),
            of_answer(lambda found, used: (found, used.float())),
        ),
        "reaching the threshold is enough": wrong(sure=lambda logits, t: logits.softmax(-1).amax(-1) > t),
    },
)
