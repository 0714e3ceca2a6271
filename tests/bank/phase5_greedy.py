"""greedy_decode: wrong solutions and unusual right ones."""

import torch

from tests.bank import right, wrong


def loop(next_logits, prompt, max_new_tokens, eos_id, pad_id, **turn):
    """Right; each entry turns one thing. turn: begin, pad, ask, pick, stop."""
    tokens = prompt.clone()
    ended = turn.get("begin", lambda prompt: torch.zeros(len(prompt)).bool())(prompt)
    for _ in range(max_new_tokens):
        token = turn.get("pick", lambda scores: scores.max(-1).indices)(
            next_logits(turn.get("ask", lambda t: t)(tokens))
        )
        if turn.get("pad", True):
            token = torch.where(ended, pad_id, token)
        ended = ended | (token == eos_id)
        tokens = torch.cat([tokens, token[:, None]], 1)
        if turn.get("stop", torch.all)(ended):
            break
    return tokens


for _name, _says, _turn in [
    ("talks_on", "an ended row gets padding", dict(pad=False)),
    ("stops_with_the_first", "one row's eos does not end the others", dict(stop=torch.any)),
    ("never_stops", "all rows had ended", dict(stop=lambda ended: False)),
    ("last_token_only", "the function needs the whole sequence", dict(ask=lambda tokens: tokens[:, -1:])),
    ("takes_the_smallest", "the largest score is taken, not the smallest", dict(pick=lambda s: s.argmin(-1))),
    ("ends_in_the_prompt", "only a generated eos ends a row", dict(begin=None)),
    (
        "last_of_equals",
        "of equal scores the lowest id wins",
        dict(pick=lambda s: s.shape[-1] - 1 - s.flip(1).argmax(1)),
    ),
    ("drops_the_prompt", None, dict(ask=lambda tokens: tokens[:, 1:])),
    ("second_best", None, dict(pick=lambda scores: scores.topk(2).indices[:, 1])),
]:

    def _decode(next_logits, prompt, max_new_tokens, eos_id, pad_id, _turn=_turn):
        turn = dict(_turn)
        if turn.get("begin", "") is None:
            turn["begin"] = lambda prompt: (prompt == eos_id).any(1)
        return loop(next_logits, prompt, max_new_tokens, eos_id, pad_id, **turn)

    _decode.__name__ = _name
    wrong("greedy_decode", says=_says)(_decode)


@wrong("greedy_decode", says="the prompt stands in front of the answer")
def new_tokens_only(next_logits, prompt, max_new_tokens, eos_id, pad_id):
    return loop(next_logits, prompt, max_new_tokens, eos_id, pad_id)[:, prompt.shape[1] :]


@wrong("greedy_decode", says="the row's own eos is kept")
def hides_eos(next_logits, prompt, max_new_tokens, eos_id, pad_id):
    tokens, ended = prompt, torch.zeros(len(prompt)).bool()
    for _ in range(max_new_tokens):
        token = next_logits(tokens).argmax(-1)
        ended = ended | (token == eos_id)
        tokens = torch.cat([tokens, torch.where(ended, pad_id, token)[:, None]], 1)
        if ended.all():
            break
    return tokens


@wrong("greedy_decode", says="the function is asked with all rows, ended ones too")
def rows_alive_only(next_logits, prompt, max_new_tokens, eos_id, pad_id):
    tokens, alive = prompt, torch.arange(len(prompt))
    for _ in range(max_new_tokens):
        if not len(alive):
            break
        column = torch.full((len(prompt),), pad_id)
        column[alive] = next_logits(tokens[alive]).argmax(-1)
        alive = alive[column[alive] != eos_id]
        tokens = torch.cat([tokens, column[:, None]], 1)
    return tokens


@wrong("greedy_decode")
def always_one_call(next_logits, prompt, max_new_tokens, eos_id, pad_id):
    """Asks before it looks whether anything is to be said."""
    tokens, scores = prompt, next_logits(prompt)
    ended = torch.zeros(len(prompt)).bool()
    for step in range(max_new_tokens):
        token = scores.argmax(-1).masked_fill(ended, pad_id)
        ended = ended | (token == eos_id)
        tokens = torch.cat([tokens, token[:, None]], 1)
        if ended.all() or step + 1 == max_new_tokens:
            break
        scores = next_logits(tokens)
    return tokens


@wrong("greedy_decode")
def full_width(next_logits, prompt, max_new_tokens, eos_id, pad_id):
    found = loop(next_logits, prompt, max_new_tokens, eos_id, pad_id)
    width = prompt.shape[1] + max_new_tokens - found.shape[1]
    return torch.nn.functional.pad(found, (0, width), value=pad_id)


@right("greedy_decode", why="columns in a list")
def list_of_columns(next_logits, prompt, max_new_tokens, eos_id, pad_id):
    columns, ended = list(prompt.unbind(1)), [False] * len(prompt)
    while len(columns) - prompt.shape[1] < max_new_tokens and not all(ended):
        best = next_logits(torch.stack(columns, 1)).argmax(dim=1).tolist()
        best = [pad_id if done else token for token, done in zip(best, ended, strict=True)]
        ended = [done or token == eos_id for token, done in zip(best, ended, strict=True)]
        columns.append(torch.tensor(best))
    return torch.stack(columns, 1)


@right("greedy_decode", why="a filled buffer, cut at the end")
def buffer(next_logits, prompt, max_new_tokens, eos_id, pad_id):
    batch, start = prompt.shape
    tokens = torch.full((batch, start + max_new_tokens), pad_id)
    tokens[:, :start] = prompt
    going, end = torch.ones(batch, dtype=torch.bool), start
    while end < start + max_new_tokens and going.any():
        choice = next_logits(tokens[:, :end]).argmax(-1)
        tokens[going, end] = choice[going]
        going = going & (choice != eos_id)
        end += 1
    return tokens[:, :end]


@right("greedy_decode", why="recursion")
def recursive(next_logits, prompt, max_new_tokens, eos_id, pad_id):
    def more(tokens, ended, left):
        if not left or ended.all():
            return tokens
        token = torch.where(ended, torch.tensor(pad_id), next_logits(tokens).argmax(-1))
        return more(torch.hstack([tokens, token[:, None]]), ended | token.eq(eos_id), left - 1)

    return more(prompt, torch.zeros(len(prompt), dtype=torch.bool), max_new_tokens)


right("greedy_decode", why="stops after the step in which the last row ended")(
    lambda next_logits, prompt, max_new_tokens, eos_id, pad_id: loop(
        next_logits, prompt, max_new_tokens, eos_id, pad_id
    )
)
