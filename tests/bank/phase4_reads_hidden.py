"""reads_hidden: wrong tests for masks and unusual right ones."""

import torch

from tests.bank import right, wrong


def _drawn(batch, n=8, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, n, 8, dtype=dtype, generator=generator)
    mask = torch.rand(batch, 1, n, n, generator=generator) < 0.5
    mask[:, :, 5 % n] = False
    return x, mask


@torch.no_grad()
def _moved(attention, x, mask, place, step=3.0):
    """(batch, seq_len): which rows moved when the token at `place` did."""
    other = x.clone()
    other[:, place] += step
    return (attention(other, mask) - attention(x, mask)).abs().amax(-1) > 1e-9


def _reads(attention, x, mask, places=None):
    for place in range(x.shape[1]) if places is None else places:
        moved = _moved(attention, x, mask, place)
        moved[:, place] = False
        if bool((moved & ~mask[:, 0, :, place]).any()):
            return True
    return False


# ---------------------------------------------------------------- wrong


@wrong("reads_hidden", says="says False though the mask is ignored")
def shapes_only(attention):
    x, mask = _drawn(2)
    return attention(x, mask).shape[:2] != x.shape[:2]


@wrong("reads_hidden")
def always_true(attention):
    return True


@wrong("reads_hidden", says="says True for a right one: a row may always read its own token")
def own_token_counts(attention):
    for batch in (1, 2, 3):
        x, mask = _drawn(batch)
        if any(bool((_moved(attention, x, mask, place) & ~mask[:, 0, :, place]).any()) for place in range(8)):
            return True
    return False


@wrong("reads_hidden")
def mask_makes_no_difference(attention):
    """Asks whether the mask matters at all."""
    x, mask = _drawn(2)
    return torch.allclose(attention(x, mask), attention(x, torch.ones_like(mask)))


@wrong("reads_hidden")
def pads_only(attention):
    for batch in (1, 2, 3):
        x, mask = _drawn(batch)
        pads = mask[:, :, :1].expand(-1, 1, 8, 8).clone()
        pads[-1] = False
        if _reads(attention, x, pads):
            return True
    return False


@wrong("reads_hidden", says="misses a mask that differs from sentence to sentence")
def one_mask_for_all(attention):
    for batch in (1, 2, 3):
        x, mask = _drawn(batch)
        if _reads(attention, x, mask[:1].expand(batch, -1, -1, -1).clone()):
            return True
    return False


@wrong("reads_hidden", says="misses what a row with nothing to see reads")
def no_empty_row(attention):
    for batch in (1, 2, 3):
        x, mask = _drawn(batch)
        mask[..., 0] |= ~mask.any(-1)
        if _reads(attention, x, mask):
            return True
    return False


@wrong("reads_hidden", says="misses a mask that meets the heads: try several batch sizes")
def batches_of_two(attention):
    return _reads(attention, *_drawn(2))


@wrong("reads_hidden")
def one_sentence(attention):
    return _reads(attention, *_drawn(1))


@wrong("reads_hidden")
def short_sentences(attention):
    return any(_reads(attention, *_drawn(batch, n=5)) for batch in (1, 2, 3))


@wrong("reads_hidden")
def last_token_alone(attention):
    return any(_reads(attention, *_drawn(batch), places=[7]) for batch in (1, 2, 3))


@wrong("reads_hidden")
def first_row_alone(attention):
    for batch in (1, 2, 3):
        x, mask = _drawn(batch)
        for place in range(1, 8):
            if bool((_moved(attention, x, mask, place) & ~mask[:, 0, :, place])[:, 0].any()):
                return True
    return False


@wrong("reads_hidden")
def compares_with_the_future_hidden(attention):
    """Tests causality, with a causal mask."""
    x, _ = _drawn(3)
    return _reads(attention, x, torch.ones(3, 1, 8, 8, dtype=torch.bool).tril())


@wrong("reads_hidden")
def loose_tolerance(attention):
    for batch in (1, 2, 3):
        x, mask = _drawn(batch)
        with torch.no_grad():
            for place in range(8):
                other = x.clone()
                other[:, place] += 0.1
                moved = (attention(other, mask) - attention(x, mask)).abs().amax(-1) > 1e-2
                moved[:, place] = False
                if bool((moved & ~mask[:, 0, :, place]).any()):
                    return True
    return False


@wrong("reads_hidden")
def says_a_tensor(attention):
    found = torch.tensor(False)
    for batch in (1, 2, 3):
        found = found | torch.tensor(_reads(attention, *_drawn(batch)))
    return found


# ---------------------------------------------------------------- right


@right("reads_hidden", why="gradients, row by row")
def by_gradients(attention):
    for batch in (2, 3):
        x, mask = _drawn(batch, seed=4)
        x.requires_grad_()
        out = attention(x, mask)
        for row in range(8):
            (slope,) = torch.autograd.grad(out[:, row].sum(), x, retain_graph=True)
            reads = slope.abs().amax(-1) > 1e-13
            reads[:, row] = False
            if bool((reads & ~mask[:, 0, row]).any()):
                return True
    return False


@right("reads_hidden", why="everything a row may not see is replaced at once, row by row")
@torch.no_grad()
def rows_at_once(attention):
    for batch in (1, 2, 3, 4):
        x, mask = _drawn(batch, seed=5)
        before = attention(x, mask)
        for row in range(8):
            hidden = ~mask[:, 0, row]
            hidden[:, row] = False
            other = torch.where(hidden[..., None], x + 2.0, x)
            if not torch.allclose(attention(other, mask)[:, row], before[:, row], rtol=1e-7, atol=1e-10):
                return True
    return False


@right("reads_hidden", why="float32 inside, many draws, a tolerance to match")
@torch.no_grad()
def many_draws(attention):
    for seed in range(3):
        for batch in (2, 3):
            x, mask = _drawn(batch, seed=seed)
            for place in range(8):
                other = x.clone()
                other[:, place] = x[:, place].flip(0) * -2 + 1
                moved = ~torch.isclose(attention(other, mask), attention(x, mask), rtol=0, atol=1e-8).all(-1)
                moved &= ~mask[:, 0, :, place]
                moved[:, place] = False
                if moved.any():
                    return True
    return False


@right("reads_hidden", why="numpy's bool turned into Python's, all masks drawn beforehand")
@torch.no_grad()
def by_numpy(attention):
    found = []
    for batch in (3, 2):
        x, mask = _drawn(batch, seed=7)
        table = (~mask[:, 0]).numpy()
        for place in range(8):
            moved = _moved(attention, x, mask, place).numpy()
            moved[:, place] = False
            found.append((moved & table[:, :, place]).any())
    return bool(max(found))


@right("reads_hidden", why="every sentence has its own noise, and the whole is run twice to be sure")
def twice(attention):
    first = [_reads(attention, *_drawn(batch, seed=8)) for batch in (1, 2, 3)]
    second = [_reads(attention, *_drawn(batch, seed=9)) for batch in (1, 2, 3)]
    return any(first) or any(second)
