"""mask_tokens: wrong solutions and unusual right ones."""

import torch

from tests.bank import right, wrong


def real_words(tokens, pad_mask, mask_id, special_ids):
    real = pad_mask.clone()
    for aside in [*special_ids, mask_id]:
        real &= tokens != aside
    return real


def a_word(tokens, vocab_size, mask_id, special_ids, generator):
    words = torch.tensor(sorted(set(range(vocab_size)) - set(special_ids) - {mask_id}))
    return words[torch.randint(0, len(words), tokens.shape, generator=generator)]


def finish(tokens, chosen, u, word, mask_id):
    inputs = tokens.clone()
    inputs[chosen & (u < 0.8)] = mask_id
    swap = chosen & (u >= 0.8) & (u < 0.9)
    inputs[swap] = word[swap]
    return inputs, tokens.masked_fill(~chosen, -100)


@wrong("mask_tokens", says="labels are -100 where nothing was chosen")
def loss_on_everything(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    inputs, _ = two_draws(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator)
    return inputs, tokens.clone()


@wrong("mask_tokens", says="kept tokens are predicted, too")
def labels_where_changed(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    inputs, _ = two_draws(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator)
    return inputs, torch.where(inputs == tokens, -100, tokens)


@wrong("mask_tokens", says="padding is never chosen")
def pads_too(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    return two_draws(tokens, torch.ones_like(pad_mask), mask_id, vocab_size, p, special_ids, generator)


@wrong("mask_tokens", says="special tokens and mask_id are never chosen")
def specials_too(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    chosen = pad_mask & (torch.rand(tokens.shape, generator=generator) < p)
    word = a_word(tokens, vocab_size, mask_id, special_ids, generator)
    return finish(tokens, chosen, torch.rand(tokens.shape, generator=generator), word, mask_id)


@wrong("mask_tokens", says="each row draws for itself")
def one_row_for_all(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    row = torch.rand(1, tokens.shape[1], generator=generator) < p
    chosen = real_words(tokens, pad_mask, mask_id, special_ids) & row
    word = a_word(tokens, vocab_size, mask_id, special_ids, generator)
    return finish(tokens, chosen, torch.rand(tokens.shape, generator=generator), word, mask_id)


@wrong("mask_tokens", says="always the mask: one in ten becomes another word, one in ten stays")
def mask_only(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    chosen = real_words(tokens, pad_mask, mask_id, special_ids)
    chosen &= torch.rand(tokens.shape, generator=generator) < p
    return tokens.masked_fill(chosen, mask_id), tokens.masked_fill(~chosen, -100)


@wrong("mask_tokens", says="one in ten stays as it is")
def eighty_twenty(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    chosen = real_words(tokens, pad_mask, mask_id, special_ids)
    chosen &= torch.rand(tokens.shape, generator=generator) < p
    word = a_word(tokens, vocab_size, mask_id, special_ids, generator)
    u = torch.rand(tokens.shape, generator=generator)
    return finish(tokens, chosen, torch.where(u < 0.8, u, 0.85), word, mask_id)


@wrong("mask_tokens", says="a random word is no special token")
def any_id(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    chosen = real_words(tokens, pad_mask, mask_id, special_ids)
    chosen &= torch.rand(tokens.shape, generator=generator) < p
    word = torch.randint(vocab_size, tokens.shape, generator=generator)
    return finish(tokens, chosen, torch.rand(tokens.shape, generator=generator), word, mask_id)


@wrong("mask_tokens")
def words_of_the_text(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    """Replacements come from the sentence itself."""
    real = real_words(tokens, pad_mask, mask_id, special_ids)
    chosen = real & (torch.rand(tokens.shape, generator=generator) < p)
    pool = tokens[real] if real.any() else tokens.flatten()
    word = pool[torch.randint(len(pool), tokens.shape, generator=generator)]
    return finish(tokens, chosen, torch.rand(tokens.shape, generator=generator), word, mask_id)


@wrong("mask_tokens")
def one_word_for_all(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    chosen = real_words(tokens, pad_mask, mask_id, special_ids)
    chosen &= torch.rand(tokens.shape, generator=generator) < p
    word = a_word(tokens, vocab_size, mask_id, special_ids, generator)
    word = torch.full_like(tokens, int(word.flatten()[0]))
    return finish(tokens, chosen, torch.rand(tokens.shape, generator=generator), word, mask_id)


@wrong("mask_tokens", says="all chance comes from the generator")
def global_chance(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    return two_draws(tokens, pad_mask, mask_id, vocab_size, p, special_ids, None)


@wrong("mask_tokens")
def same_every_time(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    again = torch.Generator().manual_seed(generator.initial_seed())
    return two_draws(tokens, pad_mask, mask_id, vocab_size, p, special_ids, again)


@wrong("mask_tokens", says="choose by chance, not an exact share")
def top_scores(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    real = real_words(tokens, pad_mask, mask_id, special_ids)
    score = torch.rand(tokens.shape, generator=generator).masked_fill(~real, -1.0)
    chosen = torch.zeros_like(real)
    for row, (line, n) in enumerate(zip(score, real.sum(1).tolist(), strict=True)):
        chosen[row, line.topk(round(p * n)).indices] = True
    word = a_word(tokens, vocab_size, mask_id, special_ids, generator)
    return finish(tokens, chosen, torch.rand(tokens.shape, generator=generator), word, mask_id)


@wrong("mask_tokens")
def original_in_the_labels_of_the_mask_only(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    inputs, labels = two_draws(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator)
    return inputs, torch.where(inputs == mask_id, labels, -100)


@wrong("mask_tokens")
def in_place(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    inputs, labels = two_draws(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator)
    tokens.copy_(inputs)
    return tokens, labels


@wrong("mask_tokens")
def labels_are_the_inputs(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    inputs, labels = two_draws(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator)
    return inputs, torch.where(labels == -100, -100, inputs)


@wrong("mask_tokens")
def fifteen_percent_whatever_p(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    return two_draws(tokens, pad_mask, mask_id, vocab_size, 0.15, special_ids, generator)


@right("mask_tokens", why="two draws and a table of words")
def two_draws(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    chosen = real_words(tokens, pad_mask, mask_id, special_ids)
    chosen &= torch.rand(tokens.shape, generator=generator) < p
    word = a_word(tokens, vocab_size, mask_id, special_ids, generator)
    return finish(tokens, chosen, torch.rand(tokens.shape, generator=generator), word, mask_id)


@right("mask_tokens", why="one uniform number cut in four")
def one_number(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    u = torch.rand(tokens.shape, generator=generator).masked_fill(
        ~real_words(tokens, pad_mask, mask_id, special_ids), 2.0
    )
    word = a_word(tokens, vocab_size, mask_id, special_ids, generator)
    inputs = torch.where(u < 0.8 * p, mask_id, torch.where(u < 0.9 * p, word, tokens))
    return inputs, torch.where(u < p, tokens, -100)


@right("mask_tokens", why="bernoulli, three times")
def bernoulli(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    def toss(share):
        return torch.full(tokens.shape, share).bernoulli(generator=generator).bool()

    chosen = toss(p) & real_words(tokens, pad_mask, mask_id, special_ids)
    masked = toss(0.8) & chosen
    swapped = toss(0.5) & chosen & ~masked
    inputs = tokens.masked_fill(masked, mask_id)
    word = a_word(tokens, vocab_size, mask_id, special_ids, generator)
    return torch.where(swapped, word, inputs), tokens.masked_fill(~chosen, -100)


@right("mask_tokens", why="word by word, in plain Python")
def word_by_word(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    aside, inputs = {mask_id, *special_ids}, tokens.tolist()
    labels = torch.full_like(tokens, -100).tolist()
    words = [word for word in range(vocab_size) if word not in aside]
    u = torch.rand(*tokens.shape, 3, generator=generator).tolist()
    for row, real in enumerate(pad_mask.tolist()):
        for place, is_real in enumerate(real):
            token, (choose, way, which) = inputs[row][place], u[row][place]
            if is_real and token not in aside and choose < p:
                labels[row][place] = token
                if way < 0.8:
                    inputs[row][place] = mask_id
                elif way < 0.9:
                    inputs[row][place] = words[int(which * len(words))]
    return torch.tensor(inputs), torch.tensor(labels)


@right("mask_tokens", why="draws for the chosen places alone")
def draws_for_the_chosen(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    chosen = real_words(tokens, pad_mask, mask_id, special_ids)
    chosen &= torch.rand(tokens.shape, generator=generator) < p
    n, originals = int(chosen.sum()), tokens[chosen]
    way = torch.multinomial(torch.tensor([8.0, 1.0, 1.0]), max(n, 1), replacement=True, generator=generator)[:n]
    word = a_word(originals, vocab_size, mask_id, special_ids, generator)
    choices = torch.stack([torch.full_like(originals, mask_id), word, originals])
    inputs, labels = tokens.clone(), torch.full_like(tokens, -100)
    inputs[chosen], labels[chosen] = choices[way, torch.arange(n)], originals
    return inputs, labels
