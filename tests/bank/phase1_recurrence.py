"""rnn_forward (NumPy): wrong solutions and unusual right ones."""

import numpy as np

from tests.bank import right, wrong


def steps(x, width, step):
    h, states = np.zeros((x.shape[0], width), dtype=x.dtype), []
    for t in range(x.shape[1]):
        h = step(x[:, t], h)
        states.append(h)
    return np.stack(states, axis=1)


# ---------------------------------------------------------------- wrong


@wrong("rnn_forward", says="return every state")
def last_state(x, w_x, w_h, b):
    return every_state(x, w_x, w_h, b)[:, -1]


@wrong("rnn_forward", says="h multiplies from the left")
def state_transposed(x, w_x, w_h, b):
    return steps(x, len(b), lambda now, h: np.tanh(now @ w_x + h @ w_h.T + b))


@wrong("rnn_forward", says="the earlier state was not used")
def no_recurrence(x, w_x, w_h, b):
    return np.tanh(x @ w_x + b)


@wrong("rnn_forward", says="the bias is missing")
def no_bias(x, w_x, w_h, b):
    return steps(x, len(b), lambda now, h: np.tanh(now @ w_x + h @ w_h))


@wrong("rnn_forward", says="tanh is missing")
def linear(x, w_x, w_h, b):
    return steps(x, len(b), lambda now, h: now @ w_x + h @ w_h + b)


@wrong("rnn_forward", says="time runs backwards")
def backwards(x, w_x, w_h, b):
    return every_state(x[:, ::-1], w_x, w_h, b)[:, ::-1].copy()


@wrong("rnn_forward", says="record h after the update")
def one_step_late(x, w_x, w_h, b):
    h, states = np.zeros((len(x), len(b)), dtype=x.dtype), []
    for t in range(x.shape[1]):
        states.append(h)
        h = np.tanh(x[:, t] @ w_x + h @ w_h + b)
    return np.stack(states, 1)


@wrong("rnn_forward", says="the batch axis is not time")
def batch_as_time(x, w_x, w_h, b):
    h, states = np.zeros((x.shape[1], len(b)), dtype=x.dtype), []
    for sentence in x:
        h = np.tanh(sentence @ w_x + h @ w_h + b)
        states.append(h)
    return np.stack(states)


@wrong("rnn_forward", says="add first, then one tanh")
def tanh_of_the_input_only(x, w_x, w_h, b):
    return steps(x, len(b), lambda now, h: np.tanh(now @ w_x + b) + h @ w_h)


@wrong("rnn_forward")
def starts_at_one(x, w_x, w_h, b):
    h, states = np.ones((len(x), len(b)), dtype=x.dtype), []
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ w_x + h @ w_h + b)
        states.append(h)
    return np.stack(states, 1)


@wrong("rnn_forward")
def sigmoid(x, w_x, w_h, b):
    return steps(x, len(b), lambda now, h: 1 / (1 + np.exp(-(now @ w_x + h @ w_h + b))))


@wrong("rnn_forward")
def relu(x, w_x, w_h, b):
    return steps(x, len(b), lambda now, h: np.maximum(now @ w_x + h @ w_h + b, 0))


@wrong("rnn_forward")
def time_axis_first(x, w_x, w_h, b):
    return every_state(x, w_x, w_h, b).swapaxes(0, 1).copy()


@wrong("rnn_forward")
def always_float64(x, w_x, w_h, b):
    h, states = np.zeros((len(x), len(b))), []
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ w_x + h @ w_h + b)
        states.append(h)
    return np.stack(states, 1)


@wrong("rnn_forward")
def one_state_object(x, w_x, w_h, b):
    h, states = np.zeros((len(x), len(b)), dtype=x.dtype), []
    for t in range(x.shape[1]):
        h[:] = np.tanh(x[:, t] @ w_x + h @ w_h + b)
        states.append(h)
    return np.stack(states, 1)


@wrong("rnn_forward")
def state_runs_on_into_the_next_sentence(x, w_x, w_h, b):
    h, out = np.zeros(len(b), dtype=x.dtype), np.empty((*x.shape[:2], len(b)), dtype=x.dtype)
    for n, sentence in enumerate(x):
        for t, now in enumerate(sentence):
            h = np.tanh(now @ w_x + h @ w_h + b)
            out[n, t] = h
    return out


@wrong("rnn_forward")
def bias_grows(x, w_x, w_h, b):
    out = every_state(x, w_x, w_h, b)
    b += 1
    return out


@wrong("rnn_forward")
def all_earlier_states_summed(x, w_x, w_h, b):
    total, states = np.zeros((len(x), len(b)), dtype=x.dtype), []
    for t in range(x.shape[1]):
        states.append(np.tanh(x[:, t] @ w_x + total @ w_h + b))
        total = total + states[-1]
    return np.stack(states, 1)


# ---------------------------------------------------------------- right


@right("rnn_forward", why="the formula as it stands")
def every_state(x, w_x, w_h, b):
    return steps(x, len(b), lambda now, h: np.tanh(now @ w_x + h @ w_h + b))


@right("rnn_forward", why="x W_x for all places beforehand, written into it")
def inputs_beforehand(x, w_x, w_h, b):
    states = x @ w_x + b
    for t in range(x.shape[1]):
        if t:
            states[:, t] += states[:, t - 1] @ w_h
        np.tanh(states[:, t], out=states[:, t])
    return states


@right("rnn_forward", why="recursion over the sentence")
def recursive(x, w_x, w_h, b):
    before = recursive(x[:, :-1], w_x, w_h, b) if x.shape[1] > 1 else np.zeros((len(x), 0, len(b)), dtype=x.dtype)
    h = before[:, -1] if before.shape[1] else np.zeros((len(x), len(b)), dtype=x.dtype)
    return np.concatenate([before, np.tanh(x[:, -1] @ w_x + h @ w_h + b)[:, None]], axis=1)


@right("rnn_forward", why="the time axis first inside")
def time_first_inside(x, w_x, w_h, b):
    h, out = 0 * b, np.empty((x.shape[1], x.shape[0], len(b)), dtype=x.dtype)
    for t, now in enumerate(x.swapaxes(0, 1)):
        out[t] = h = np.tanh(now @ w_x + h @ w_h + b)
    return out.swapaxes(0, 1)


@right("rnn_forward", why="one matrix for input and state side by side")
def one_matrix(x, w_x, w_h, b):
    both = np.concatenate([w_x, w_h])
    return steps(x, len(b), lambda now, h: np.tanh(np.concatenate([now, h], axis=-1) @ both + b))


@right("rnn_forward", why="sentence by sentence")
def sentence_by_sentence(x, w_x, w_h, b):
    out = []
    for sentence in x:
        h = np.zeros_like(b)
        out.append([h := np.tanh(now @ w_x + h @ w_h + b) for now in sentence])
    return np.array(out, dtype=x.dtype)
