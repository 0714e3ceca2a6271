"""Phase 7, counting and sharing out, by hurried hands: slips that only an odd size or a closer look shows."""

import math
import zlib

import torch

from tests.bank import right, wrong
from tests.bank.phase7_corpus import cut
from tests.bank.phase7_corpus import refuse as refuse_share
from tests.bank.phase7_costs import counted, keys_of, needed
from tests.bank.phase7_ranks import refuse as refuse_ranks
from tests.bank.phase7_shares import coded, ratio
from tests.bank.phase7_translations import grams, made

# ---------------------------------------------------------------- counting and measuring


@wrong("flops_per_token", says="half of an odd seq_len is no whole number: /, not //")
def floor_of_half(config, seq_len):
    found = counted("right")(config, seq_len)
    looks = 12 * config.n_layers * config.d_model
    return {"causal": found["palm"] - looks * seq_len + looks * (seq_len // 2), "palm": found["palm"]}


@wrong("flops_per_token", says="seq_len tokens are read, not max_len")
def always_the_longest(config, seq_len):
    return counted("right")(config, config.max_len)


wrong("flops_per_token", says="n_kv_heads counts heads: d_head columns each")(
    counted("heads_for_columns", block=lambda c: 2 * c.d_model * (c.d_model + (c.n_kv_heads or c.d_model) + c.d_ff))
)
wrong("flops_per_token", says="two matrices in the feed-forward layer")(
    counted("gated", block=lambda c: c.d_model * (2 * c.d_model + 2 * keys_of(c) + 3 * c.d_ff))
)


def altered(name, change):
    """A training_memory of which some parts differ; the total is made anew."""

    def training_memory(config, batch, seq_len, bytes_per_element, fused=True):
        right_one = needed("right")(config, batch, seq_len, bytes_per_element, fused)
        parts = right_one | change(right_one, config, bytes_per_element / 4, batch * seq_len * config.n_layers)
        return parts | {"total": sum(part for key, part in parts.items() if key != "total")}

    training_memory.__name__ = name
    return training_memory


for _name, _says, _change in [
    (
        "gradients_in_half",
        "weights, gradients and Adam stay in float32",
        lambda r, c, w, t: {"gradients": r["weights"] * w},
    ),
    (
        "weights_in_half",
        "weights, gradients and Adam stay in float32",
        lambda r, c, w, t: {"weights": r["weights"] * w},
    ),
    (
        "a_second_copy",
        "weights are held once here: the copy in half precision does not last",
        lambda r, c, w, t: {"weights": r["weights"] * (1 + w)},
    ),
    (
        "last_logits",
        None,
        lambda r, c, w, t: {"logits": 8 * c.vocab_size},
    ),
    (
        "and_their_gradients",
        "gradients of activations do not last: one tensor each",
        lambda r, c, w, t: {"activations": 2 * r["activations"]},
    ),
    (
        "five_tensors",
        "six tensors of d_model: what enters a norm is kept, too",
        lambda r, c, w, t: {"activations": r["activations"] - 4 * w * t * c.d_model},
    ),
]:
    wrong("training_memory", says=_says)(altered(_name, _change))


wrong("training_memory", says="grouping saves keys, not weights: a table for each head")(
    needed("grouped_tables", table=lambda c, t: (c.n_kv_heads or c.n_heads) * t)
)


@wrong("mfu", says="an unknown peak has no utilisation")
def lets_nan_through(tokens_per_second, flops, peak):
    if peak <= 0 or peak == math.inf or tokens_per_second * flops > peak:
        raise ValueError("peak")
    return tokens_per_second * flops / peak


@wrong("mfu", says="more than the ceiling: the ceiling is wrong, so refuse")
def a_millionth_is_fine(tokens_per_second, flops, peak):
    if not 0 < peak < math.inf or tokens_per_second * flops / peak > 1 + 1e-6:
        raise ValueError("peak")
    return min(1.0, tokens_per_second * flops / peak)


@wrong("mfu", says="exactly the peak is a share: refuse what lies above")
def never_the_peak(tokens_per_second, flops, peak):
    if not 0 < peak < math.inf or tokens_per_second * flops >= peak:
        raise ValueError("peak")
    return tokens_per_second * flops / peak


wrong("bits_per_byte", says="loss_sum may be a plain number: float(loss_sum)")(
    coded("asks_for_item", lambda loss, n: loss.item() / math.log(2) / n)
)
wrong("mfu")(ratio("whole_shares", answer=lambda speed, flops, peak: speed * flops // peak))


@wrong("bits_per_byte")
def in_the_loss_itself(loss_sum, n_bytes):
    if n_bytes < 1:
        raise ValueError("n_bytes")
    loss_sum /= math.log(2) * n_bytes
    return loss_sum


# ---------------------------------------------------------------- the split


def refused_and_cut(number):
    def split_corpus(documents, val_share):
        refuse_share(val_share)
        return cut([number(document) for document in documents], val_share)

    return split_corpus


for _name, _says, _number in [
    ("both_ends", "hash the whole document", lambda text: zlib.crc32(text[:500] + text[-500:]) / 2**32),
    ("tenths", "a share can be finer: the hash in small steps", lambda text: zlib.crc32(text) % 10 / 10),
    (
        "as_text",
        "documents are bytes of any kind, not always text",
        lambda text: zlib.crc32(text.decode("utf-8").encode()) / 2**32,
    ),
]:
    _split = refused_and_cut(_number)
    _split.__name__ = _name
    wrong("split_corpus", says=_says)(_split)


@wrong("split_corpus")
def strips_them(documents, val_share):
    """The caller's own list is written over."""
    refuse_share(val_share)
    for index, document in enumerate(documents):
        documents[index] = document.strip()
    return cut([zlib.crc32(document) / 2**32 for document in documents], val_share)


@wrong("split_corpus", says="0 and 1 are shares, too")
def something_for_each(documents, val_share):
    if not 0 < val_share < 1:
        raise ValueError("val_share")
    return cut([zlib.crc32(document) / 2**32 for document in documents], val_share)


@wrong("split_corpus")
def up_to_the_border(documents, val_share):
    """Below and at the threshold: with 0 a hundredth is for testing."""
    refuse_share(val_share)
    hundredths = [zlib.crc32(document) % 100 for document in documents]
    sides = [], []
    for index, one in enumerate(hundredths):
        sides[one <= val_share * 100].append(index)
    return sides


# ---------------------------------------------------------------- several ranks


def summed(gradients, counts, start=lambda part: 0.0, use=lambda column: True):
    found = []
    for column in zip(*gradients, strict=False):
        parts = [p * (n / sum(counts)) for p, n in zip(column, counts, strict=False) if p is not None and n]
        found.append(sum(parts, start(parts[0])) if parts and use(column) else None)
    return found


@wrong("average_gradients", says="no token, or lists that do not fit: raise ValueError")
def rows_not_looked_at(gradients, counts):
    if len(gradients) != len(counts) or not sum(counts):
        raise ValueError("gradients and counts do not fit")
    return summed(gradients, counts)


@wrong("average_gradients", says="no token, or lists that do not fit: raise ValueError")
def ranks_left_over(gradients, counts):
    if len(gradients) < len(counts) or not sum(counts) or len(set(map(len, gradients))) != 1:
        raise ValueError("gradients and counts do not fit")
    return summed(gradients, counts)


@wrong("average_gradients", says="keep the dtype of the gradients")
def from_zeros(gradients, counts):
    refuse_ranks(gradients, counts)
    return summed(gradients, counts, start=lambda part: torch.zeros(part.shape))


@wrong("average_gradients", says="it need not be the first rank that used a part")
def asks_the_first(gradients, counts):
    refuse_ranks(gradients, counts)
    return summed(gradients, counts, use=lambda column: column[0] is not None)


@wrong("average_gradients", says="a part that one rank did not use has a mean all the same")
def asks_all(gradients, counts):
    refuse_ranks(gradients, counts)
    return summed(gradients, counts, use=lambda column: all(part is not None for part in column))


@wrong("average_gradients", says="a nan of a rank with tokens is news: do not hide it")
def hides_nan(gradients, counts):
    refuse_ranks(gradients, counts)
    clean = [[None if part is None else torch.nan_to_num(part) for part in row] for row in gradients]
    return summed(clean, counts)


@right("average_gradients", why="a running sum with alpha=, rank by rank")
def running(gradients, counts):
    refuse_ranks(gradients, counts)
    means = [None] * len(gradients[0])
    for row, count in zip(gradients, counts, strict=True):
        for place, part in enumerate(row):
            if part is not None and count:
                zero = torch.zeros_like(part) if means[place] is None else means[place]
                means[place] = torch.add(zero, part, alpha=count / sum(counts))
    return means


# ---------------------------------------------------------------- translations

wrong("bleu", says="two blanks in a row hold no word: split()")(
    made("at_each_blank", cut=lambda text: text.split(" ") if text else [])
)


def glued(words):
    return ["".join(gram) for gram in words]


wrong("bleu", says="an n-gram knows its words' ends: tuples, not glued text")(
    made(
        "glued_words",
        match=lambda words, ref, n: sum(
            min(glued(grams(words, n)).count(gram), glued(grams(ref, n)).count(gram))
            for gram in {*glued(grams(words, n))}
        ),
    )
)


@wrong("alignment_from_attention", says="average the weights as they are: no head is scaled up")
def each_head_alike(weights, pad_mask):
    if not pad_mask.any():
        return []
    words = weights[..., pad_mask]
    best = (words / words.sum(-1, keepdim=True)).mean(0).argmax(-1)
    return [(word, row) for row, word in enumerate(best.tolist())]


@wrong("alignment_from_attention", says="words are where the mask says, not in the first columns")
def first_so_many(weights, pad_mask):
    count = int(pad_mask.sum())
    if not count:
        return []
    return [(word, row) for row, word in enumerate(weights[..., :count].mean(0).argmax(-1).tolist())]


@wrong("alignment_from_attention", says="words are where the mask says, not in the first columns")
def minus_the_first(weights, pad_mask):
    if not pad_mask.any():
        return []
    places = weights.mean(0).masked_fill(~pad_mask, -1).argmax(-1).tolist()
    return [(place - int(pad_mask.int().argmax()), row) for row, place in enumerate(places)]


@wrong("alignment_from_attention", says="a source without words has nothing to align")
def never_asks(weights, pad_mask):
    return [(word, row) for row, word in enumerate(weights.mean(0)[:, pad_mask].argmax(-1).tolist())]


@right("alignment_from_attention", why="einsum, index_select, a table of pairs")
def as_a_table(weights, pad_mask):
    words = pad_mask.nonzero().flatten()
    if not len(words):
        return []
    best = torch.einsum("hts->ts", weights).index_select(1, words).argmax(1)
    return torch.stack([best, torch.arange(len(best))], 1)
