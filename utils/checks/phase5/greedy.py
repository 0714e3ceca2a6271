"""greedy_decode: ends, calls and what the model is asked with."""

import torch

from utils import oracle
from utils.checks.draw import given, normal
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase5 import PHASE
from utils.checks.phase5 import rules_decoding as rules

VOCAB, EOS, PAD = 9, 2, 0


def words(*shape, avoid=(EOS, PAD), vocab=VOCAB):
    """Tokens that are neither eos nor padding nor the last one."""
    good = [token for token in range(vocab - 1) if token not in avoid]
    return lambda generator, others: torch.tensor(good)[torch.randint(len(good), shape, generator=generator)]


def path(steps, ends, eos=EOS, avoid=(EOS, PAD), vocab=VOCAB, pads=()):
    """(steps, batch): who is to win; ends: for each row the step of its eos, or None; pads: (place, pad_id) pairs."""

    def draw(generator, others):
        table = words(steps, len(ends), avoid=avoid, vocab=vocab)(generator, others)
        for row, end in enumerate(ends):
            if end is not None:
                table[end, row] = eos
        for place, pad in pads:
            table[place] = pad
        return table

    return given(draw)


def prompt(rows, length, eos_at=(), avoid=(EOS, PAD), eos=EOS, vocab=VOCAB):
    def draw(generator, others):
        table = words(rows, length, avoid=avoid, vocab=vocab)(generator, others)
        for place in eos_at:
            table[place] = eos
        return table

    return given(draw)


def decoding(name, ends, steps, length=4, eos=EOS, pad=PAD, eos_at=(), vocab=VOCAB, allowed=None, **options):
    """steps: how many are scripted; allowed: max_new_tokens, if that is another number."""
    avoid = (eos, pad)
    args = dict(
        noise=normal(steps, len(ends), vocab),
        path=path(steps, ends, eos, avoid, vocab, [(place, pad) for place in options.pop("pads", ())]),
        prompt=prompt(len(ends), length, eos_at, avoid, eos, vocab),
        max_new_tokens=steps if allowed is None else allowed,
        eos_id=eos,
        pad_id=pad,
    )
    ties = {"ties": options.pop("ties")} if "ties" in options else {}
    return case(name, args | ties, grad=False, **options)


# a decoder in its parts; as it stands it is right
def decoder(
    pick=lambda scores: scores.argmax(-1),
    fill=lambda token, pad: pad,
    stop=lambda ended: bool(ended.all()),
    ask=lambda tokens: tokens,
    begin=lambda prompt, eos: torch.zeros(len(prompt), dtype=torch.bool),
    keep=lambda token, eos, pad: token,
    answer=lambda tokens, prompt: tokens,
    late=False,
    over=lambda ended, token, eos, pad: ended | (token == eos),
    shown_first=False,
):
    """late: whether all have ended is looked at one step too late; shown_first: `over` sees the padding, too."""

    def greedy_decode(next_logits, prompt, max_new_tokens, eos_id, pad_id):
        tokens, ended = prompt, begin(prompt, eos_id)
        for _ in range(max_new_tokens):
            if late and stop(ended):
                break
            token = pick(next_logits(ask(tokens)))
            shown = torch.where(ended, fill(token, torch.full_like(token, pad_id)), keep(token, eos_id, pad_id))
            ended = over(ended, shown if shown_first else token, eos_id, pad_id)
            tokens = torch.cat([tokens, shown[:, None]], -1)
            if not late and stop(ended):
                break
        return answer(tokens, prompt)

    return greedy_decode


def ends_at_every_eos(next_logits, prompt, max_new_tokens, eos_id, pad_id):
    """All of it first, then cut and padded: it never stops early."""
    tokens = decoder(stop=lambda ended: False)(next_logits, prompt, max_new_tokens, eos_id, pad_id)
    return tokens


def asks_once_more(next_logits, prompt, max_new_tokens, eos_id, pad_id):
    asked = []

    def noted(tokens):
        asked.append(tokens)
        return next_logits(tokens)

    tokens = oracle.greedy_decode(noted, prompt, max_new_tokens, eos_id, pad_id)
    if len(asked) < max_new_tokens:
        next_logits(tokens)
    return tokens


def only_rows_alive(next_logits, prompt, max_new_tokens, eos_id, pad_id):
    tokens, ended = prompt, torch.zeros(len(prompt), dtype=torch.bool)
    for _ in range(max_new_tokens):
        column = torch.full((len(prompt),), pad_id)
        column[~ended] = next_logits(tokens[~ended]).argmax(-1)
        ended = ended | (column == eos_id)
        tokens = torch.cat([tokens, column[:, None]], -1)
        if ended.all():
            break
    return tokens


def last_of_the_largest(scores):
    return scores.shape[-1] - 1 - scores.flip(-1).argmax(-1)


register(
    expected=oracle.greedy_decode,
    phase=PHASE,
    section="5.8",
    hint="one call per step with all tokens; argmax; rows that have ended get pad_id; stop when all have.",
    grad=False,
    script="greedy",
    cases=(
        decoding("one row never ends", (1, 3, None), 6),
        decoding("all end before the limit", (0, 4, 2), 7),
        decoding("all end at the first step", (0, 0), 3),
        decoding("all end at the last step", (4, 4, 1), 5),
        decoding("eos in the prompt", (2, None, 3), 5, eos_at=((0, 1), (1, 3))),
        decoding("eos 5, padding 6", (1, 4, None), 6, eos=5, pad=6),
        decoding("eos is padding", (1, 3), 5, eos=3, pad=3),
        decoding("two tokens score the same", (None, 2), 4, ties=[(0, 0), (1, 1), (3, 0)]),
        decoding("a row that goes on says pad_id", (4, 1, None), 6, pads=[(2, 0), (0, 1), (3, 2)]),
        decoding("one row, a prompt of one", (3,), 6, length=1),
        decoding("batch, prompt and steps of one size", (3, None, 1, 2), 4, length=4),
        decoding("no new tokens", (None, 0), 1, allowed=0, kind="edge"),
    ),
    mistakes={
        "an ended row gets padding": decoder(fill=lambda token, pad: token),
        "an ended row stays ended": Replays(
            decoder(over=lambda ended, token, eos, pad: token == eos),
            decoder(over=lambda ended, token, eos, pad: token == eos, shown_first=True),
        ),
        "only eos ends a row, a generated pad_id does not": Replays(
            decoder(over=lambda ended, token, eos, pad: ended | (token == eos) | (token == pad)),
        ),
        "one row's eos does not end the others": decoder(stop=lambda ended: bool(ended.any())),
        "all rows had ended": Replays(ends_at_every_eos, asks_once_more),
        "the function needs the whole sequence": Spotted(
            rules.last_token_alone, decoder(ask=lambda tokens: tokens[:, -1:])
        ),
        "the function is asked with all rows, ended ones too": Spotted(rules.rows_left_out, only_rows_alive),
        "the row's own eos is kept": Replays(
            decoder(keep=lambda token, eos, pad: torch.where(token == eos, torch.full_like(token, pad), token)),
        ),
        "only a generated eos ends a row": Replays(
            decoder(begin=lambda prompt, eos: (prompt == eos).any(-1)),
            decoder(begin=lambda prompt, eos: (prompt == eos).any(-1), late=True),
            decoder(begin=lambda prompt, eos: prompt[:, -1] == eos),
            decoder(begin=lambda prompt, eos: prompt[:, -1] == eos, late=True),
        ),
        "of equal scores the lowest id wins": decoder(pick=last_of_the_largest),
        "the largest score is taken, not the smallest": decoder(pick=lambda scores: scores.argmin(-1)),
        "the prompt stands in front of the answer": Spotted(
            rules.new_tokens_only, decoder(answer=lambda tokens, prompt: tokens[:, prompt.shape[1] :])
        ),
    },
)
