"""bpe_encode: wrong solutions and unusual right ones."""

import functools
import heapq
from itertools import pairwise

from tests.bank import right, wrong
from tests.bank.phase1_pairs import merged, pieces_of

# ---------------------------------------------------------------- wrong


@wrong("bpe_encode", says="the longest token was taken, not the earliest rule")
def longest_match(word, merges):
    tokens, pieces, start = {left + other for left, other in merges}, [], 0
    while start < len(word):
        end = next(n for n in range(len(word), start, -1) if n == start + 1 or word[start:n] in tokens)
        pieces.append(word[start:end])
        start = end
    return pieces


@wrong("bpe_encode", says="the leftmost pair was taken, not the earliest rule")
def leftmost_pair(word, merges):
    pieces, rules = pieces_of(word), set(merges)
    place = 0
    while place < len(pieces) - 1:
        if (pieces[place], pieces[place + 1]) in rules:
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
            place = 0
        else:
            place += 1
    return pieces


@wrong("bpe_encode", says="a rule became usable later and was missed")
def one_pass_over_rules(word, merges):
    pieces = pieces_of(word)
    for pair in merges:
        pieces = merged(pieces, pair)
    return pieces


@wrong("bpe_encode", says="nothing was joined")
def bytes_only(word, merges):
    return pieces_of(word)


@wrong("bpe_encode", says="the order of the rules is reversed")
def latest_rule(word, merges):
    pieces, rank = pieces_of(word), {pair: n for n, pair in enumerate(merges)}
    while found := [pair for pair in pairwise(pieces) if pair in rank]:
        pieces = merged(pieces, max(found, key=rank.get))
    return pieces


@wrong("bpe_encode", says="pieces are bytes")
def as_text(word, merges):
    return [piece.decode("latin1") for piece in loop(word, merges)]


@wrong("bpe_encode", says="pieces are bytes")
def as_numbers(word, merges):
    return [piece[0] if len(piece) == 1 else piece for piece in loop(word, merges)]


@wrong("bpe_encode", says="a rule joins all its places")
def each_rule_once(word, merges):
    pieces, rules = pieces_of(word), list(merges)
    while usable := [pair for pair in rules if pair in pairwise(pieces)]:
        place = list(pairwise(pieces)).index(usable[0])
        pieces[place : place + 2] = [b"".join(usable[0])]
        rules.remove(usable[0])
    return pieces


@wrong("bpe_encode", says="places are joined from left to right")
def from_the_right(word, merges):
    pieces = pieces_of(word)
    while usable := [pair for pair in merges if pair in pairwise(pieces)]:
        place = max(n for n, pair in enumerate(pairwise(pieces)) if pair == usable[0])
        pieces[place : place + 2] = [b"".join(usable[0])]
    return pieces


@wrong("bpe_encode")
def characters(word, merges):
    pieces, rank = [mark.encode() for mark in word.decode(errors="replace")], {p: n for n, p in enumerate(merges)}
    while found := [pair for pair in pairwise(pieces) if pair in rank]:
        pieces = merged(pieces, min(found, key=rank.get))
    return pieces


@wrong("bpe_encode")
def unknown_left_out(word, merges):
    known = {part for pair in merges for part in pair}
    return [piece for piece in loop(word, merges) if len(piece) > 1 or piece in known]


@wrong("bpe_encode")
def one_join_only(word, merges):
    pieces = pieces_of(word)
    usable = [pair for pair in merges if pair in pairwise(pieces)]
    return merged(pieces, usable[0]) if usable else pieces


@wrong("bpe_encode")
def as_tuple(word, merges):
    return tuple(loop(word, merges))


@wrong("bpe_encode")
def one_piece_for_nothing(word, merges):
    return loop(word, merges) or [b""]


@wrong("bpe_encode")
def uses_up_the_rules(word, merges):
    pieces, done = pieces_of(word), []
    while merges and (usable := [pair for pair in merges if pair in pairwise(pieces)]):
        pieces = merged(pieces, usable[0])
        done.append(usable[0])
    for pair in done:
        if pair in merges:
            merges.remove(pair)
    return pieces


_remembered = {}


@wrong("bpe_encode")
def remembers_the_first_rules(word, merges):
    if not _remembered:
        _remembered.update({pair: n for n, pair in enumerate(merges)})
    pieces = pieces_of(word)
    while found := [pair for pair in pairwise(pieces) if pair in _remembered]:
        pieces = merged(pieces, min(found, key=_remembered.get))
    return pieces


# ---------------------------------------------------------------- right


@right("bpe_encode", why="a loop that restarts")
def loop(word, merges):
    pieces, rank = pieces_of(word), {pair: n for n, pair in enumerate(merges)}
    while found := [pair for pair in pairwise(pieces) if pair in rank]:
        pieces = merged(pieces, min(found, key=rank.get))
    return pieces


@right("bpe_encode", why="one place at a time, the leftmost of the earliest rule")
def one_place_at_a_time(word, merges):
    rank, pieces = {pair: n for n, pair in enumerate(merges)}, pieces_of(word)
    while len(pieces) > 1:
        best, place = min((rank.get(pair, len(merges)), n) for n, pair in enumerate(pairwise(pieces)))
        if best == len(merges):
            break
        pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
    return pieces


@right("bpe_encode", why="a cache per word")
def cached(word, merges):
    return list(_cached(word, tuple(merges)))


@functools.lru_cache
def _cached(word, merges):
    return tuple(loop(word, list(merges)))


@right("bpe_encode", why="a linked list and a heap")
def heap(word, merges):
    rank = {pair: n for n, pair in enumerate(merges)}
    nodes = [[bytes([value]), n + 1, n - 1] for n, value in enumerate(word)]
    queue = [(rank[a[0], b[0]], n) for n, (a, b) in enumerate(pairwise(nodes)) if (a[0], b[0]) in rank]
    heapq.heapify(queue)
    while queue:
        order, n = heapq.heappop(queue)
        node = nodes[n]
        if node is None or node[1] >= len(nodes) or rank.get((node[0], nodes[node[1]][0])) != order:
            continue
        gone = node[1]
        node[0], node[1], nodes[gone] = node[0] + nodes[gone][0], nodes[gone][1], None
        if node[1] < len(nodes):
            nodes[node[1]][2] = n
        for left in (n, node[2]):
            if left >= 0 and nodes[left][1] < len(nodes):
                pair = (nodes[left][0], nodes[nodes[left][1]][0])
                if pair in rank:
                    heapq.heappush(queue, (rank[pair], left))
    return [node[0] for node in nodes if node]


@right("bpe_encode", why="looks the rules up in the list, from the start, again and again")
def restart_over_rules(word, merges):
    pieces = pieces_of(word)
    number = 0
    while number < len(merges):
        joined = merged(pieces, merges[number])
        number = 0 if len(joined) < len(pieces) else number + 1
        pieces = joined
    return pieces


@right("bpe_encode", why="recursion")
def recursive(word, merges, pieces=None):
    pieces = pieces_of(word) if pieces is None else pieces
    for pair in merges:
        if pair in set(pairwise(pieces)):
            return recursive(word, merges, merged(pieces, pair))
    return pieces
