"""span_corrupt and prefix_lm_mask: wrong solutions and unusual right ones."""

import torch

from tests.bank import right, wrong

# ---------------------------------------------------------------- span_corrupt


def refuse(tokens, spans, sentinel_ids):
    place = 0
    for start, end in sorted(spans):
        if not place <= start < end <= len(tokens):
            raise ValueError("bad span")
        place = end
    if len(sentinel_ids) < len(spans) + 1:
        raise ValueError("too few sentinels")


def walk(tokens, spans, sentinel_ids, visit):
    """inputs, targets; visit(sentinel, words) gives what a span adds to each."""
    inputs, targets, place = [], [], 0
    for sentinel, (start, end) in zip(sentinel_ids, sorted(spans), strict=False):
        shown, asked = visit(sentinel, tokens[start:end])
        inputs += tokens[place:start] + shown
        targets += asked
        place = end
    return inputs + tokens[place:], targets


@wrong("span_corrupt", says="one sentinel more ends the targets")
def no_last_sentinel(tokens, spans, sentinel_ids):
    refuse(tokens, spans, sentinel_ids)
    return walk(tokens, spans, sentinel_ids, lambda s, words: ([s], [s, *words]))


@wrong("span_corrupt", says="the hidden words are still in the inputs")
def words_left(tokens, spans, sentinel_ids):
    refuse(tokens, spans, sentinel_ids)
    inputs, targets = walk(tokens, spans, sentinel_ids, lambda s, words: ([s, *words], [s, *words]))
    return inputs, targets + [sentinel_ids[len(spans)]]


@wrong("span_corrupt", says="a sentinel stands before its words")
def targets_without(tokens, spans, sentinel_ids):
    refuse(tokens, spans, sentinel_ids)
    inputs, targets = walk(tokens, spans, sentinel_ids, lambda s, words: ([s], words))
    return inputs, targets + [sentinel_ids[len(spans)]]


@wrong("span_corrupt", says="a span leaves one sentinel, whatever its length")
def a_sentinel_for_each_word(tokens, spans, sentinel_ids):
    refuse(tokens, spans, sentinel_ids)
    inputs, targets = walk(tokens, spans, sentinel_ids, lambda s, words: ([s for _ in words], [s, *words]))
    return inputs, targets + [sentinel_ids[len(spans)]]


@wrong("span_corrupt", says="spans are half-open")
def end_included(tokens, spans, sentinel_ids):
    refuse(tokens, spans, sentinel_ids)
    inputs, targets, place = [], [], 0
    for sentinel, (start, end) in zip(sentinel_ids, sorted(spans), strict=False):
        inputs += tokens[place:start] + [sentinel]
        targets += [sentinel, *tokens[start : end + 1]]
        place = end + 1
    return inputs + tokens[place:], targets + [sentinel_ids[len(spans)]]


@wrong("span_corrupt", says="sentinels are handed out left to right")
def in_the_given_order(tokens, spans, sentinel_ids):
    refuse(tokens, spans, sentinel_ids)
    named = dict(zip(spans, sentinel_ids, strict=False))
    inputs, targets, place = [], [], 0
    for start, end in sorted(spans):
        inputs += tokens[place:start] + [named[start, end]]
        targets += [named[start, end], *tokens[start:end]]
        place = end
    return inputs + tokens[place:], targets + [sentinel_ids[len(spans)]]


@wrong("span_corrupt", says="refuse spans that are empty, overlap or lie outside, and too few sentinels")
def takes_anything(tokens, spans, sentinel_ids):
    inputs, targets = walk(tokens, spans, sentinel_ids, lambda s, words: ([s], [s, *words]))
    return inputs, targets + sentinel_ids[len(spans) :][:1]


@wrong("span_corrupt", says="refuse spans that are empty, overlap or lie outside, and too few sentinels")
def enough_for_the_spans_alone(tokens, spans, sentinel_ids):
    refuse(tokens, spans, [*sentinel_ids, 0] if spans else sentinel_ids)
    inputs, targets = walk(tokens, spans, sentinel_ids, lambda s, words: ([s], [s, *words]))
    return inputs, targets + [(sentinel_ids + [0])[len(spans)]]


@wrong("span_corrupt")
def all_sentinels_at_the_end(tokens, spans, sentinel_ids):
    refuse(tokens, spans, sentinel_ids)
    inputs, targets = walk(tokens, spans, sentinel_ids, lambda s, words: ([s], [s, *words]))
    return inputs, targets + sentinel_ids[len(spans) :]


@wrong("span_corrupt")
def last_of_all_sentinels(tokens, spans, sentinel_ids):
    refuse(tokens, spans, sentinel_ids)
    inputs, targets = walk(tokens, spans, sentinel_ids, lambda s, words: ([s], [s, *words]))
    return inputs, targets + sentinel_ids[-1:]


@wrong("span_corrupt")
def touching_spans_become_one(tokens, spans, sentinel_ids):
    refuse(tokens, spans, sentinel_ids)
    merged = []
    for start, end in sorted(spans):
        merged = [*merged[:-1], (merged[-1][0], end)] if merged and merged[-1][1] == start else [*merged, (start, end)]
    inputs, targets = walk(tokens, merged, sentinel_ids, lambda s, words: ([s], [s, *words]))
    return inputs, targets + [sentinel_ids[len(merged)]]


@wrong("span_corrupt")
def sorts_the_callers_list(tokens, spans, sentinel_ids):
    refuse(tokens, spans, sentinel_ids)
    spans.sort()
    inputs, targets = walk(tokens, spans, sentinel_ids, lambda s, words: ([s], [s, *words]))
    return inputs, targets + [sentinel_ids[len(spans)]]


@right("span_corrupt", why="from the right, by slices")
def from_the_right(tokens, spans, sentinel_ids):
    refuse(tokens, spans, sentinel_ids)
    inputs, targets = list(tokens), [sentinel_ids[len(spans)]]
    for number, (start, end) in reversed(list(enumerate(sorted(spans)))):
        targets[:0] = [sentinel_ids[number], *inputs[start:end]]
        inputs[start:end] = [sentinel_ids[number]]
    return inputs, targets


@right("span_corrupt", why="walks once over the tokens")
def walks_once(tokens, spans, sentinel_ids):
    refuse(tokens, spans, sentinel_ids)
    starts, ends = {start for start, _ in spans}, {end for _, end in spans}
    inputs, targets, unused, inside = [], [], iter(sentinel_ids), False
    for place, token in enumerate(tokens):
        if place in ends:
            inside = False
        if place in starts:
            inside, sentinel = True, next(unused)
            inputs.append(sentinel)
            targets.append(sentinel)
        (targets if inside else inputs).append(token)
    return inputs, [*targets, next(unused)]


@right("span_corrupt", why="the plain way")
def plain(tokens, spans, sentinel_ids):
    refuse(tokens, spans, sentinel_ids)
    inputs, targets = walk(tokens, spans, sentinel_ids, lambda s, words: ([s], [s, *words]))
    return inputs, targets + [sentinel_ids[len(spans)]]


@right("span_corrupt", why="recursion on the last span")
def recursive(tokens, spans, sentinel_ids):
    refuse(tokens, spans, sentinel_ids)

    def corrupt(rest, n):
        if not rest:
            return list(tokens), [sentinel_ids[n]]
        *before, (start, end) = rest
        inputs, targets = corrupt(before, n)
        shift = len(tokens) - len(inputs)
        cut = inputs[: start - shift] + [sentinel_ids[len(before)]] + inputs[end - shift :]
        return cut, targets[:-1] + [sentinel_ids[len(before)], *tokens[start:end], targets[-1]]

    return corrupt(sorted(spans), len(spans))


# ---------------------------------------------------------------- prefix_lm_mask


def checked(prefix_len, seq_len):
    length = torch.as_tensor(prefix_len).view(-1, 1, 1, 1)
    if length.min() < 0 or length.max() > seq_len:
        raise ValueError("prefix_len is outside the sentence")
    return length


def causal(seq_len):
    return torch.ones(1, 1, seq_len, seq_len, dtype=torch.bool).tril()


@wrong("prefix_lm_mask", says="the answer sees itself and what came before, too")
def prefix_only(prefix_len, seq_len):
    keys = torch.arange(seq_len).expand(1, 1, seq_len, seq_len)
    return keys < checked(prefix_len, seq_len)


@wrong("prefix_lm_mask", says="the prefix sees all of itself")
def all_causal(prefix_len, seq_len):
    return causal(seq_len).repeat(len(checked(prefix_len, seq_len)), 1, 1, 1)


@wrong("prefix_lm_mask", says="each row has its own prefix")
def longest_prefix(prefix_len, seq_len):
    length = checked(prefix_len, seq_len)
    return (causal(seq_len) | (torch.arange(seq_len) < length.max())).repeat(len(length), 1, 1, 1)


@wrong("prefix_lm_mask", says="queries are rows, keys are columns")
def transposed(prefix_len, seq_len):
    return (causal(seq_len).mT | (torch.arange(seq_len)[:, None] < checked(prefix_len, seq_len))).clone()


@wrong("prefix_lm_mask", says="prefix_len counts tokens")
def one_more(prefix_len, seq_len):
    return causal(seq_len) | (torch.arange(seq_len) <= checked(prefix_len, seq_len))


@wrong("prefix_lm_mask", says="refuse prefix_len below 0 and above seq_len")
def takes_any_length(prefix_len, seq_len):
    return causal(seq_len) | (torch.arange(seq_len) < torch.as_tensor(prefix_len).view(-1, 1, 1, 1))


@wrong("prefix_lm_mask", says="add the head axis")
def three_axes(prefix_len, seq_len):
    return (causal(seq_len) | (torch.arange(seq_len) < checked(prefix_len, seq_len)))[:, 0]


@wrong("prefix_lm_mask", says="masks are bool")
def numbers(prefix_len, seq_len):
    return (causal(seq_len) | (torch.arange(seq_len) < checked(prefix_len, seq_len))).long()


@wrong("prefix_lm_mask")
def prefix_is_blind_to_nothing(prefix_len, seq_len):
    """Queries of the prefix see all, the answer's causal."""
    return causal(seq_len) | (torch.arange(seq_len)[:, None] < checked(prefix_len, seq_len))


@wrong("prefix_lm_mask")
def refuses_a_full_prefix(prefix_len, seq_len):
    if bool((torch.as_tensor(prefix_len) == seq_len).any()):
        raise ValueError("no answer")
    return causal(seq_len) | (torch.arange(seq_len) < checked(prefix_len, seq_len))


@right("prefix_lm_mask", why="or of two masks")
def two_masks(prefix_len, seq_len):
    return causal(seq_len) | (torch.arange(seq_len) < checked(prefix_len, seq_len))


@right("prefix_lm_mask", why="loops")
def loops(prefix_len, seq_len):
    lengths = checked(prefix_len, seq_len).flatten().tolist()
    table = [[[[j <= i or j < n for j in range(seq_len)] for i in range(seq_len)]] for n in lengths]
    return torch.tensor(table)


@right("prefix_lm_mask", why="the square of the prefix is painted into the causal mask")
def painted(prefix_len, seq_len):
    lengths = checked(prefix_len, seq_len).flatten().tolist()
    mask = causal(seq_len).repeat(len(lengths), 1, 1, 1)
    for row, length in enumerate(lengths):
        mask[row, :, :length, :length] = True
    return mask


@right("prefix_lm_mask", why="masked where later and outside the prefix")
def by_hiding(prefix_len, seq_len):
    later = ~causal(seq_len)
    outside = torch.arange(seq_len).ge(checked(prefix_len, seq_len))
    return (later & outside).logical_not()
