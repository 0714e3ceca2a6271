"""mask_tokens: words hidden at random, for an encoder to guess."""

import torch

from utils import oracle
from utils.checks.exercise import Spotted, case, register
from utils.checks.phase6 import PHASE
from utils.checks.phase6 import rules_masking as rules
from utils.observe.codec import Generator

IGNORED = rules.IGNORED


def text(seed, rows, columns, vocab_size, special_ids, mask_id, shortest):
    """(tokens, pad_mask): rows of different length; specials and a mask occur, half of the vocabulary does not."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.tensor([word for word in range(vocab_size) if word not in (*special_ids, mask_id)][::2])
    tokens = words[torch.randint(len(words), (rows, columns), generator=generator)]
    aside = torch.tensor([*special_ids, mask_id])
    strewn = torch.rand(rows, columns, generator=generator) < 0.12
    tokens[strewn] = aside[torch.randint(len(aside), (int(strewn.sum()),), generator=generator)]
    length = torch.randint(shortest, columns + 1, (rows,), generator=generator)
    return tokens, torch.arange(columns) < length[:, None]


def asked(name, seed, p, vocab_size=43, special_ids=(7, 0, 31), mask_id=12, shape=(80, 90)):
    """A case of five calls on one text: a generator, the same again, a copy of its first state, twice the first."""
    tokens, pad_mask = text(seed, *shape, vocab_size, special_ids, mask_id, shape[1] // 2)
    known = dict(tokens=tokens, pad_mask=pad_mask, mask_id=mask_id, vocab_size=vocab_size, p=p)
    known |= dict(special_ids=list(special_ids))
    first, copy = known | dict(generator=Generator(seed)), known | dict(generator=Generator(seed, copy=1))
    return case(name, first, then=(first, copy, first, first), kind="chance", judge=rules.hides(**known))


def nothing(name, rows, **options):
    """A plain case in which nothing can be chosen."""
    tokens = torch.tensor(rows)
    args = dict(tokens=tokens, pad_mask=tokens != 9, mask_id=4, vocab_size=11, p=0.0, special_ids=[1, 2])
    return case(name, args | dict(generator=Generator(3)) | options)


def words_of(vocab_size, *aside):
    return torch.tensor([word for word in range(vocab_size) if word not in aside])


def wrong(
    may=lambda tokens, pad_mask, mask_id, special_ids: (
        pad_mask & ~torch.isin(tokens, torch.tensor([*special_ids, mask_id]))
    ),
    pick=lambda shape, p, generator: torch.rand(shape, generator=generator) < p,
    way=lambda shape, generator: torch.rand(shape, generator=generator),
    cuts=(0.8, 0.9),
    aside=lambda mask_id, special_ids: [mask_id, *special_ids],
    label=lambda chosen, inputs, tokens, real: chosen,
    draw=lambda n, shape, generator: torch.randint(n, shape, generator=generator),
):
    """A wrong twin in its parts; as it stands it is right."""

    def faulty(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
        real = may(tokens, pad_mask, mask_id, special_ids)
        chosen = real & pick(tokens.shape, p, generator)
        u = way(tokens.shape, generator)
        words = words_of(vocab_size, *aside(mask_id, special_ids))
        other = words[draw(len(words), tokens.shape, generator)].expand(tokens.shape)
        inputs = torch.where(u < cuts[0], mask_id, torch.where(u < cuts[1], other, tokens))
        inputs = torch.where(chosen, inputs, tokens)
        return inputs, torch.where(label(chosen, inputs, tokens, real), tokens, IGNORED)

    return faulty


def exactly(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    """Of each row's words the same share."""
    real = pad_mask & ~torch.isin(tokens, torch.tensor([*special_ids, mask_id]))
    score = torch.rand(tokens.shape, generator=generator).masked_fill(~real, 2.0)
    chosen = real & (score.argsort(-1).argsort(-1) < (p * real.sum(-1, keepdim=True)).round())
    return wrong(pick=lambda shape, p, generator: chosen)(
        tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator
    )


register(
    expected=oracle.mask_tokens,
    phase=PHASE,
    section="6.2",
    hint="choose real words with probability p; then a second draw for each: mask_id, another word, as it is.",
    grad=False,
    bans=(),
    cases=(
        asked("80 × 90 tokens, p = 0.3", 5, 0.3),
        asked("p = 0.6, other specials", 6, 0.6, vocab_size=31, special_ids=(29, 3), mask_id=0, shape=(70, 60)),
        asked("p = 0.15, no specials", 7, 0.15, special_ids=(), mask_id=42, shape=(90, 80)),
        nothing("p = 0", [[3, 5, 1, 9], [7, 8, 6, 2]]),
        nothing("specials, masks and pads only, p = 1", [[1, 2, 4, 9], [4, 1, 1, 2]], p=1.0),
        nothing("one sentence, p = 0", [[3, 5, 8]]),
    ),
    mistakes={
        "labels are -100 where nothing was chosen": Spotted(
            rules.loss_everywhere, wrong(label=lambda chosen, inputs, tokens, real: real)
        ),
        "kept tokens are predicted, too": Spotted(
            rules.kept_not_predicted, wrong(label=lambda chosen, inputs, tokens, real: inputs != tokens)
        ),
        "one in ten stays as it is": Spotted(rules.nothing_kept, wrong(cuts=(0.8, 1.0))),
        "always the mask: one in ten becomes another word, one in ten stays": Spotted(
            rules.always_the_mask, wrong(cuts=(1.0, 1.0))
        ),
        "padding is never chosen": Spotted(
            rules.pads_chosen, wrong(may=lambda tokens, pad_mask, m, s: ~torch.isin(tokens, torch.tensor([*s, m])))
        ),
        "special tokens and mask_id are never chosen": Spotted(
            rules.specials_chosen,
            wrong(may=lambda tokens, pad_mask, mask_id, special_ids: pad_mask & (tokens > -1)),
        ),
        "each row draws for itself": Spotted(
            rules.one_pattern,
            wrong(pick=lambda shape, p, generator: torch.rand(shape[-1], generator=generator) < p),
        ),
        "each chosen token by itself: 80, 10, 10": Spotted(
            rules.one_way_per_row, wrong(way=lambda shape, generator: torch.rand(shape[0], 1, generator=generator))
        ),
        "each random word is drawn by itself": Spotted(
            rules.one_word_in_a_line,
            wrong(draw=lambda n, shape, generator: torch.randint(n, (shape[0], 1), generator=generator)),
        ),
        "every word can be drawn: the upper end is left out already": Spotted(
            rules.last_word_left_out,
            wrong(draw=lambda n, shape, generator: torch.randint(n - 1, shape, generator=generator)),
        ),
        "a random word is no special token": Spotted(
            rules.random_specials, wrong(aside=lambda mask_id, special_ids: [mask_id])
        ),
        "all chance comes from the generator": Spotted(
            rules.another_generator, wrong(pick=lambda shape, p, generator: torch.rand(shape) < p)
        ),
        "choose by chance, not an exact share": Spotted(rules.exact_share, exactly),
        "p is the share that is chosen": Spotted(
            rules.keeps_p, wrong(pick=lambda shape, p, generator: torch.rand(shape, generator=generator) >= p)
        ),
    },
)
