"""rnn_forward: one word after another, in NumPy."""

import numpy as np

from utils import oracle
from utils.checks.draw import normal
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase1 import PHASE, rules


def sizes(batch, seq_len, d_in, d_hidden):
    """Arguments of these sizes; no tanh is near its end, and no bias is 0."""
    return dict(
        x=(batch, seq_len, d_in),
        w_x=normal(d_in, d_hidden, std=0.5),
        w_h=normal(d_hidden, d_hidden, std=0.5),
        b=normal(d_hidden, std=0.3, shift=0.2),
    )


def steps(x, w_x, w_h, b, step):
    """A wrong twin: `step(now, state)` makes the next state from x_t W_x and the state before."""
    state, states = np.zeros((len(x), len(b)), dtype=x.dtype), []
    for t in range(x.shape[1]):
        state = step(x[:, t] @ w_x, state)
        states.append(state)
    return np.stack(states, 1)


def from_state(x, w_x, w_h, b, start):
    """Right but for the state before the first token."""
    first = np.tanh(x[:, 0] @ w_x + np.full((len(x), len(b)), start, dtype=x.dtype) @ w_h + b)
    states = [first]
    for t in range(1, x.shape[1]):
        states.append(np.tanh(x[:, t] @ w_x + states[-1] @ w_h + b))
    return np.stack(states, 1)


def reverse(x, w_x, w_h, b, put_back):
    states = oracle.rnn_forward(x[:, ::-1].copy(), w_x, w_h, b)
    return states[:, ::-1].copy() if put_back else states


def late(x, w_x, w_h, b):
    states = oracle.rnn_forward(x, w_x, w_h, b)
    return np.concatenate([np.zeros_like(states[:, :1]), states[:, :-1]], 1)


def summed_forward(x, w_x, w_h, b):
    """One state for the whole batch: what is left when the batch axis is taken for time."""
    return oracle.rnn_forward(x.swapaxes(0, 1).copy(), w_x, w_h, b).swapaxes(0, 1)


register(
    expected=oracle.rnn_forward,
    phase=PHASE,
    section="1.2",
    hint="h = tanh(x_t W_x + h W_h + b), from h = 0; keep every h.",
    library="numpy",
    grad=False,
    bans=("attention", "autograd"),
    fresh=True,
    properties=(rules.sentences_are_independent,),
    cases=(
        case("three sentences of five tokens", sizes(3, 5, 4, 6)),
        case("one sentence", sizes(1, 7, 3, 2)),
        case("one token", sizes(3, 1, 4, 6)),
        case("two tokens", sizes(2, 2, 5, 3)),
        case("batch as long as the sentence", sizes(4, 4, 3, 5)),
        case("input and state of one width", sizes(2, 5, 4, 4)),
        case("one number of state", sizes(2, 6, 3, 1)),
        case("long, then short", sizes(2, 9, 3, 4), then=(sizes(2, 3, 3, 4),)),
    ),
    mistakes={
        "return every state": Spotted(
            rules.last_state_only, lambda x, w_x, w_h, b: oracle.rnn_forward(x, w_x, w_h, b)[:, -1]
        ),
        "h multiplies from the left": lambda x, w_x, w_h, b: oracle.rnn_forward(x, w_x, w_h.T.copy(), b),
        "the earlier state was not used": lambda x, w_x, w_h, b: np.tanh(x @ w_x + b),
        "the bias is missing": lambda x, w_x, w_h, b: oracle.rnn_forward(x, w_x, w_h, np.zeros_like(b)),
        "tanh is missing": lambda x, w_x, w_h, b: steps(x, w_x, w_h, b, lambda now, h: now + h @ w_h + b),
        "time runs backwards": Replays(
            lambda x, w_x, w_h, b: reverse(x, w_x, w_h, b, False), lambda x, w_x, w_h, b: reverse(x, w_x, w_h, b, True)
        ),
        "record h after the update": late,
        "the batch axis is not time": summed_forward,
        "the dtype follows the input": Spotted(
            rules.other_dtype("x"),
            lambda x, w_x, w_h, b: oracle.rnn_forward(*(part.astype(np.float64) for part in (x, w_x, w_h, b))),
        ),
        "the nonlinearity is tanh": Replays(
            lambda x, w_x, w_h, b: steps(x, w_x, w_h, b, lambda now, h: np.maximum(now + h @ w_h + b, 0)),
            lambda x, w_x, w_h, b: steps(x, w_x, w_h, b, lambda now, h: 1 / (1 + np.exp(-(now + h @ w_h + b)))),
        ),
        "time is axis 1, the states go there too": lambda x, w_x, w_h, b: np.ascontiguousarray(
            oracle.rnn_forward(x, w_x, w_h, b).swapaxes(0, 1)
        ),
        "each step renews the state, it does not add to it": Replays(
            lambda x, w_x, w_h, b: steps(x, w_x, w_h, b, lambda now, h: h + np.tanh(now + h @ w_h + b)),
            lambda x, w_x, w_h, b: steps(x, w_x, w_h, b, lambda now, h: np.tanh(now + h + b)),
        ),
        "before the first token the state is 0": lambda x, w_x, w_h, b: from_state(x, w_x, w_h, b, 1),
        "keep a copy of each state: they are all the last one": lambda x, w_x, w_h, b: np.repeat(
            oracle.rnn_forward(x, w_x, w_h, b)[:, -1:], x.shape[1], 1
        ),
        "add first, then one tanh": Replays(
            lambda x, w_x, w_h, b: steps(x, w_x, w_h, b, lambda now, h: np.tanh(now + b) + h @ w_h),
            lambda x, w_x, w_h, b: steps(x, w_x, w_h, b, lambda now, h: np.tanh(now) + np.tanh(h @ w_h) + b),
        ),
    },
)
