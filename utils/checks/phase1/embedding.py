"""embed and embed_backward: a row per token, and the way back, in NumPy."""

import numpy as np
import torch

from utils import oracle
from utils.checks.draw import given
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase1 import PHASE, rules


def ids(*values):
    """These ids as an int64 array of their shape."""
    return given(lambda generator, others: torch.tensor(values[0] if len(values) == 1 else values))


def random_ids(shape, high):
    """Random ids below `high`; every third place repeats the first one, and `high - 1` does not occur."""

    def draw(generator, others):
        table = torch.randint(0, high - 1, shape, generator=generator)
        table.view(-1)[::3] = table.view(-1)[0].clone()
        return table

    return given(draw)


BY_HAND = dict(phase=PHASE, section="1.7", library="numpy", grad=False, bans=("attention", "autograd"), fresh=True)


def without_upper_limit(token_ids, table):
    if np.min(token_ids, initial=0) < 0:
        raise ValueError("a token id is below 0")
    return oracle.embed(np.minimum(token_ids, len(table) - 1), table)


register(
    expected=oracle.embed,
    hint="row token_ids[…] of the table, as a copy; look at the ids first.",
    cases=(
        case("five ids, seven features", dict(token_ids=ids([3, 0, 4, 3, 1]), table=(5, 7))),
        case("two sentences", dict(token_ids=random_ids((2, 5), 9), table=(9, 4))),
        case("three leading axes", dict(token_ids=random_ids((2, 3, 4), 11), table=(11, 6))),
        case("ids as many as rows", dict(token_ids=ids([4, 3, 2, 1, 0]), table=(5, 5))),
        case("one feature", dict(token_ids=ids([2, 0, 1]), table=(3, 1))),
        case("a vocabulary of one", dict(token_ids=ids([[0, 0], [0, 0]]), table=(1, 3))),
        case("the whole table in order", dict(token_ids=ids(0, 1, 2, 3), table=(4, 3))),
        case("one id alone", dict(token_ids=given(lambda g, o: torch.tensor(2)), table=(5, 3)), kind="edge"),
        refusal("id -1", dict(token_ids=ids([2, -1, 0]), table=(5, 3))),
        refusal("id -5, in two axes", dict(token_ids=ids([[2, 0], [1, -5]]), table=(5, 3))),
        refusal("an id equal to vocab_size", dict(token_ids=ids([2, 5]), table=(5, 3))),
        refusal("an id far beyond", dict(token_ids=ids([[2, 1], [0, 700]]), table=(5, 3))),
        refusal("one bad id alone", dict(token_ids=given(lambda g, o: torch.tensor(-2)), table=(5, 3))),
    ),
    mistakes={
        "embeddings are rows of the table": Replays(
            lambda token_ids, table: table[:, token_ids],
            lambda token_ids, table: np.moveaxis(table[:, token_ids], 0, -1).copy(),
            lambda token_ids, table: np.ascontiguousarray(table.T)[token_ids],
        ),
        "NumPy counts −1 from the end: refuse it": lambda token_ids, table: oracle.embed(
            np.where(np.asarray(token_ids) < 0, token_ids + len(table), token_ids), table
        ),
        "no scaling here": Replays(
            lambda token_ids, table: oracle.embed(token_ids, table) * np.sqrt(table.shape[1]).astype(table.dtype),
            lambda token_ids, table: oracle.embed(token_ids, table) / np.sqrt(table.shape[1]).astype(table.dtype),
        ),
        "the dtype follows the table": Spotted(
            rules.other_dtype("table"), lambda token_ids, table: oracle.embed(token_ids, table.astype(np.float64))
        ),
        "shape": Replays(
            lambda token_ids, table: oracle.embed(token_ids, table)[..., None],
            lambda token_ids, table: oracle.embed(token_ids, table)[None],
            lambda token_ids, table: oracle.embed(token_ids, table)[..., None, :],
            lambda token_ids, table: oracle.embed(token_ids, table).reshape(-1, table.shape[1]),
        ),
        "an id outside the table must be refused, not bent into it": Replays(
            lambda token_ids, table: oracle.embed(np.clip(token_ids, 0, len(table) - 1), table),
            lambda token_ids, table: oracle.embed(np.mod(token_ids, len(table)), table),
            without_upper_limit,
        ),
    },
    **BY_HAND,
)


def last_repeat(token_ids, grad_out, vocab_size):
    grad = np.zeros((vocab_size, grad_out.shape[-1]), dtype=grad_out.dtype)
    grad[token_ids] += grad_out
    return grad


def by_sentence(token_ids, grad_out, vocab_size):
    """A loop over the first axis: within a sentence only one of the repeats is kept."""
    grad = np.zeros((vocab_size, grad_out.shape[-1]), dtype=grad_out.dtype)
    for one, wish in zip(np.atleast_1d(token_ids), grad_out, strict=False):
        grad[one] += wish
    return grad


def averaged(token_ids, grad_out, vocab_size):
    counts = np.bincount(np.ravel(token_ids), minlength=vocab_size)[:, None]
    return oracle.embed_backward(token_ids, grad_out, vocab_size) / np.maximum(counts, 1).astype(grad_out.dtype)


def assigned(token_ids, grad_out, vocab_size):
    grad = np.zeros((vocab_size, grad_out.shape[-1]), dtype=grad_out.dtype)
    for one, wish in zip(np.ravel(token_ids), grad_out.reshape(-1, grad_out.shape[-1]), strict=True):
        grad[one] = wish
    return grad


def histogram(token_ids, grad_out, vocab_size):
    return np.bincount(np.ravel(token_ids), minlength=vocab_size).astype(grad_out.dtype)


def gradient(shape, high, d_model):
    return dict(token_ids=random_ids(shape, high), grad_out=(*shape, d_model), vocab_size=high)


register(
    expected=oracle.embed_backward,
    hint="one row per vocabulary entry; every place where an id stood adds its gradient there.",
    cases=(
        case("ids that repeat", dict(token_ids=ids([3, 0, 3, 1, 3]), grad_out=(5, 4), vocab_size=6)),
        case("no id repeats", dict(token_ids=ids([3, 0, 4]), grad_out=(3, 2), vocab_size=6)),
        case("two sentences", gradient((2, 5), 9, 4)),
        case("three leading axes", gradient((2, 3, 4), 11, 6)),
        case("as many features as entries", gradient((3, 4), 5, 5)),
        case("repeats across rows only", dict(token_ids=ids([0, 2], [2, 0]), grad_out=(2, 2, 3), vocab_size=4)),
        case("one id everywhere", dict(token_ids=ids([[2, 2], [2, 2]]), grad_out=(2, 2, 3), vocab_size=3)),
        case("one feature", gradient((4,), 6, 1)),
        case("a vocabulary of one", dict(token_ids=ids([0, 0]), grad_out=(2, 3), vocab_size=1)),
        case(
            "one id alone",
            dict(token_ids=given(lambda g, o: torch.tensor(2)), grad_out=(3,), vocab_size=5),
            kind="edge",
        ),
    ),
    mistakes={
        "fancy indexing keeps only one of the repeats": Replays(last_repeat, assigned),
        "the table has vocab_size rows": lambda token_ids, grad_out, vocab_size: oracle.embed_backward(
            token_ids, grad_out, int(np.max(token_ids)) + 1
        ),
        "transposed": lambda token_ids, grad_out, vocab_size: oracle.embed_backward(
            token_ids, grad_out, vocab_size
        ).T.copy(),
        "shape of a histogram": Replays(
            histogram,
            lambda token_ids, grad_out, vocab_size: np.repeat(
                histogram(token_ids, grad_out, vocab_size)[:, None], grad_out.shape[-1], 1
            ),
        ),
        "repeats add up, they are not averaged": averaged,
        "flatten all axes before the ids first: a sentence may repeat an id": by_sentence,
        "the dtype follows the gradient": Spotted(
            rules.other_dtype("grad_out"),
            lambda token_ids, grad_out, vocab_size: oracle.embed_backward(
                token_ids, grad_out.astype(np.float64), vocab_size
            ),
        ),
    },
    **BY_HAND,
)
