"""The twelve assertions: each takes a Subject and returns what is wrong, in one sentence, or None.

Raises NotAsked where the question makes no sense for the object. The docstring names the fault it is there to find.
"""

import math
import time

import torch
import torch.nn.functional as F

from utils.debugging.scores import spread_of_scores
from utils.debugging.subject import attention_inside, borrowed, differs, moved, settle

SECONDS = 20  # of computing that learning one batch may take


class NotAsked(Exception):
    """The question does not apply; the message says why."""


ASSERTIONS = {}  # what it asserts -> function, in the order in which they are asked


def asserts(text):
    def register(function):
        ASSERTIONS[text] = function
        return function

    return register


@asserts("answers in shape, twice the same")
def answers(s):
    """A wrong reshape; dropout that ignores eval(); running statistics; a table stuck in one precision."""
    x = s.draw(3)
    out = s(x)
    if not isinstance(out, torch.Tensor) or out.shape[:2] != x.shape[:2] or out.dim() != 3:
        return f"{tuple(x.shape)} went in, {_shape(out)} came out: one row for each token is expected"
    if s.vocab and out.shape[-1] != s.vocab:
        return f"{out.shape[-1]} logits for each token, and {s.vocab} words"
    if differs(out, s(x)):
        return "one question, two answers in eval mode: does dropout ask self.training?"
    with borrowed(s.module, training=True):
        s(s.draw(2, seed=1, length=2))
        with borrowed(s.module):
            again = s(x)
    if differs(out, again):
        return "an earlier call changed the answer: something is remembered"
    return _other_dtype(s, x, out)


def _other_dtype(s, x, out):
    """What went in as double or single precision, and came out as another."""
    torch.set_default_dtype(torch.float32)
    try:
        with borrowed(s.module, torch.float32):
            pairs = (torch.float64, out.dtype), (torch.float32, s(x if s.vocab else x.float()).dtype)
    finally:
        torch.set_default_dtype(torch.float64)
    texts = [f"{str(put)[6:]} went in, {str(got)[6:]} came out" for put, got in pairs if put != got]
    return texts[0] if texts else None


@asserts("each sentence by itself")
def sentences(s):
    """Batch and another axis mixed in a view; batch statistics; a mask that meets the wrong axis."""
    x, memory = s.draw(3), s.memories(3)
    other, other_memory = x.clone(), None if memory is None else memory.clone()
    other[0] = s.draw(1, seed=1)[0]
    if memory is not None:
        other_memory[0] = s.memories(1, seed=1)[0]
    for training in (False, True):
        outs = []
        for sentence, read in ((x, memory), (other, other_memory)):
            torch.manual_seed(0)  # the same dropout for both
            with borrowed(s.module, training=training):
                outs.append(s(sentence, memory=read))
        if differs(outs[0][1:], outs[1][1:]):
            return "a sentence changed when its neighbour in the batch did" + (", in training" if training else "")
    alone = s(x[1:2], memory=None if memory is None else memory[1:2])
    if differs(alone, s(x, memory=memory)[1:2]):
        return "a sentence alone and the same one in a batch get two answers"
    return None


@asserts("weights sum to one")
def weights(s):
    """Softmax over the wrong axis; a mask after the softmax; a sigmoid: copies of one token must read like one."""
    part = attention_inside(s) if s.vocab else s
    if part.vocab:
        raise NotAsked("no attention was found inside that could be asked alone")
    if part is not s:
        settle(part)
    n, wrong = part.length, "copies of one token do not read like one: weights in a row do not sum to 1"
    one = part.draw(1, length=1)
    memory = part.memories(1)
    options = {} if memory is None else {"memory": memory}
    copies, alone = one.expand(-1, n, -1).clone(), part(one, **options).expand(-1, n, -1)
    generator = torch.Generator().manual_seed(4)
    some = (torch.rand(1, 1, n, n, generator=generator) < 0.5) | torch.eye(n, dtype=torch.bool)
    for rows in (None, some) if part.takes_rows else (None,):
        if differs(part(copies, rows=rows, **options), alone):
            return wrong
    if memory is not None:
        first = memory[:, :1]
        if differs(part(copies, memory=first.expand(-1, 4, -1).clone()), part(copies, memory=first)):
            return wrong + " (over memory)"
    return None


@asserts("hidden tokens weigh nothing")
def hidden(s):
    """A finite fill, a mask after the softmax, for queries, inverted or forgotten: what it hides must have no say."""
    if not s.takes_real:
        raise NotAsked("it takes no mask")
    x = s.draw(3)
    wrong = _hidden(s, x, lambda tokens, real: s(tokens, real=real), s.vocab, own=True)
    if wrong or not s.takes_memory:
        return wrong
    memory = s.memories(3)
    vocab = s.memory_kind.get("vocab")
    wrong = _hidden(s, memory, lambda tokens, real: s(x, memory=tokens, memory_real=real), vocab, own=False)
    return wrong and f"{wrong} (of the memory)"


def _hidden(s, tokens, ask, vocab, own):
    """Hide one token of each sentence and change it; then each of the others. own: row i is token i's."""
    batch, n = tokens.shape[:2]
    where = torch.arange(batch), torch.arange(batch) % (n - 1)
    real = torch.ones(batch, n, dtype=torch.bool)
    real[where] = False
    before, heard = ask(tokens, real), False
    for step in (40.0, -40.0):
        other = tokens.clone()
        other[where] = _strange(tokens[where], step, vocab)
        changed = moved(before, ask(other, real))
        if own:
            changed[where] = False
        heard = heard or bool(changed.any())
    deaf = not _all_heard(s, tokens, real, ask, vocab, own, before)
    if heard:
        return "True hides and False shows: the mask is inverted" if deaf else "a hidden token changed an answer"
    return "a token that may be seen is heard by nobody" if deaf else None


def _all_heard(s, tokens, real, ask, vocab, own, before):
    """Does each token that may be seen change some other row?"""
    n = tokens.shape[1]
    for place in range(n - 1 if own and s.causal else n):
        other = tokens.clone()
        other[:, place] = _strange(tokens[:, place], 3.0, vocab)
        changed = moved(before, ask(other, real))
        if own:
            changed[:, place] = False
        if not bool(changed.any(1)[real[:, place]].all()):
            return False
    return True


def _strange(tokens, step, vocab):
    """Other tokens; vectors far away, on one side or the other."""
    if vocab:
        return (tokens + (1 if step > 0 else 2)) % vocab
    generator = torch.Generator().manual_seed(8)
    return step * torch.randn(tokens.shape, generator=generator, dtype=tokens.dtype)


@asserts("the future stays unseen")
def future(s):
    """A triangle shifted or transposed, a block that got no mask, statistics over the whole sentence."""
    if not (s.takes_rows or s.causal):
        raise NotAsked("it takes no mask by row; if it should be causal by itself, say causal=True")
    n = s.length
    base = s.draw(1).expand(n, *[-1] * (1 if s.vocab else 2)).clone()
    cut = base.clone()
    for place in range(n):
        cut[place, place:] = _strange(base[place, place:], 5.0, s.vocab)
    triangle = torch.ones(n, n, dtype=torch.bool).tril()[None, None].expand(n, 1, n, n)
    for rows in ([triangle] if s.takes_rows else []) + ([None] if s.causal else []):
        changed = moved(s(base, rows=rows), s(cut, rows=rows))
        if bool((changed & torch.ones(n, n, dtype=torch.bool).tril(-1)).any()):
            return "an answer changed when only later tokens did"
    return None


@asserts("padding changes nothing")
def padding(s):
    """Numbers that depend on the length of the batch: a mean over all places, positions from the right, pads read."""
    if not (s.takes_real or s.causal):
        raise NotAsked("it takes no mask")
    n = s.length
    x, memory = s.draw(3), s.memories(3)
    lengths = torch.tensor([n, n - 1, 2])
    real = torch.arange(n) < lengths[:, None]
    together = s(x, real=real if s.takes_real else None, memory=memory)
    for row, length in enumerate(lengths.tolist()):
        alone = s(x[row : row + 1, :length], memory=None if memory is None else memory[row : row + 1])
        if differs(together[row : row + 1, :length], alone):
            return f"{length} tokens, and the same ones with {n - length} pads behind them, get two answers"
    if s.takes_memory:
        seen = torch.arange(4) < torch.tensor([[4], [3], [2]])
        together = s(x, memory=memory, memory_real=seen)
        for row, length in enumerate((4, 3, 2)):
            if differs(together[row : row + 1], s(x[row : row + 1], memory=memory[row : row + 1, :length])):
                return "pads behind the memory change the answer"
    return None


@asserts("a row that sees nothing is finite")
def nothing_to_see(s):
    """NaN from a softmax over −inf alone, which spoils the whole batch; or a finite fill: an average of all pads."""
    if not s.takes_real:
        raise NotAsked("it takes no mask")
    n, x = s.length, s.draw(2)
    real = torch.ones(2, n, dtype=torch.bool)
    real[0] = False
    floating = x.is_floating_point()
    leaf = x.clone().requires_grad_() if floating else x
    with torch.enable_grad():
        out = s(leaf, real=real)
        if not bool(out.isfinite().all()):
            return "a row that may see nothing gives NaN"
        wanted = [p for p in s.parameters.values() if p.requires_grad] + ([leaf] if floating else [])
        grads = torch.autograd.grad(out.square().sum(), wanted, allow_unused=True) if wanted else ()
    if not all(bool(grad.isfinite().all()) for grad in grads if grad is not None):
        return "a row that may see nothing has a finite answer, and a gradient of NaN"
    for place in range(n):
        other = x.clone()
        other[0, place] = _strange(x[0, place], 3.0, s.vocab)
        changed = moved(out.detach(), s(other, real=real))[0]
        changed[place] = False
        if bool(changed.any()):
            return "a row that may see nothing reads what is hidden: is the fill finite?"
    return None


@asserts("order counts where it should")
def order(s):
    """Without positions, moved tokens move their answers and no more; with positions, order must make a difference."""
    if s.vocab:
        same = s.draw(1, length=1).expand(1, s.length).clone()
        out = s(same)
        if not differs(out[:, 0], out[:, -1]):
            return "one word at two places gets one answer: positions are missing"
        if s.takes_memory and "vocab" in s.memory_kind:
            memory = torch.arange(4)[None] % s.memory_kind["vocab"]
            if not differs(s(same, memory=memory), s(same, memory=memory.flip(1))):
                return "the source backwards gets the same answer: its positions are missing"
        return None
    if s.causal:
        raise NotAsked("a causal one knows the order by what each place sees")
    x, turn = s.draw(2), torch.randperm(s.length, generator=torch.Generator().manual_seed(2))
    if differs(s(x)[:, turn], s(x[:, turn])):
        return "the same tokens in another order get other answers, and there are no positions"
    return None


@asserts("scores have size 1")
def scale(s):
    """The root forgotten, added or of the wrong width: unit queries and keys must give scores that spread by 1."""
    part = attention_inside(s)
    if part.vocab:
        raise NotAsked("no attention was found inside")
    spread = spread_of_scores(part)
    if spread is None:
        raise NotAsked("no softmax over a table of scores was seen")
    if spread > 1.25:
        return f"scores spread by {spread:.2f} instead of 1: is the division by √d_head missing?"
    if spread < 0.8:
        return f"scores spread by {spread:.2f} instead of 1: divide by √d_head, of one head, and once"
    return None


@asserts("gradients reach everything")
def gradients(s):
    """A detach, a part made and never used, a NaN in the backward pass."""
    wanted = {name: part for name, part in s.parameters.items() if part.requires_grad}
    if not wanted:
        raise NotAsked("it has no parameters")
    x, memory = s.draw(3), s.memories(3)
    generator = torch.Generator().manual_seed(6)
    with torch.enable_grad():
        out = s(x, memory=memory)
        if not out.requires_grad:
            return "no gradient reaches any parameter: the graph is cut"
        loss = (out * torch.randn(out.shape, generator=generator, dtype=out.dtype)).sum()
        found = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True)
    for (name, part), grad in zip(wanted.items(), found, strict=True):
        if grad is None or (part.dim() > 1 and not bool(grad.any())):
            return f"no gradient reaches {name}"
        if not bool(grad.isfinite().all()):
            return f"the gradient of {name} is not finite"
    return None


@asserts("untrained, the loss is ln V")
def first_loss(s):
    """Weights that start too large; a softmax too many; logits that know the answer already."""
    if not s.vocab:
        raise NotAsked("it gives no logits")
    x, memory = s.draw(8), s.memories(8)
    targets = s.draw(8, seed=3)
    loss, guess = F.cross_entropy(s(x, memory=memory).flatten(0, 1), targets.flatten()).item(), math.log(s.vocab)
    if abs(loss - guess) > 0.5:
        return f"the loss is {loss:.2f}; a guess among {s.vocab} words costs {guess:.2f}: is a matrix too large?"
    return None


@asserts("one batch can be learned by heart")
def learns(s):
    """A cut graph, a softmax too many, tokens that cannot tell their place: what cannot memorise will not learn."""
    if not s.vocab:
        raise NotAsked("it gives no logits")
    x, memory, targets = s.draw(4, seed=2), s.memories(4, seed=2), s.draw(4, seed=3)
    x[:, 0] = torch.arange(4) % s.vocab  # every row has a beginning of its own
    parts = [part for part in s.parameters.values() if part.requires_grad]
    optimizer, began = torch.optim.Adam(parts, lr=1e-2), time.process_time()
    with torch.enable_grad(), borrowed(s.module, torch.get_default_dtype()):
        for step in range(200):
            loss = F.cross_entropy(s(x, memory=memory).flatten(0, 1), targets.flatten())
            if loss.item() < 0.1 * math.log(s.vocab):
                return None
            if time.process_time() - began > SECONDS:
                raise NotAsked(f"{step} steps took {SECONDS} s: try a smaller model")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return f"after 200 steps on one batch the loss is still {loss.item():.2f}"


def _shape(out):
    return f"a tensor of shape {tuple(out.shape)}" if isinstance(out, torch.Tensor) else f"a {type(out).__name__}"
