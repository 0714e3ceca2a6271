"""What the checklist talks to: any attention or model, behind one call."""

import contextlib
import inspect
import math

import torch
from torch import nn

TOKENS = {"tokens", "token_ids", "ids", "input_ids", "idx", "src", "tgt"}  # arguments that are ids, no vectors
LENGTHS = (7, 5, 4, 3)  # of the sentences tried: the first one that is not refused


class Subject:
    """One object under examination: `subject(x, real, rows, memory, memory_real)` runs it.

    x            (batch, seq_len, width), or (batch, seq_len) ids if `vocab` is set
    real         (batch, seq_len) bool, True = may be seen; rows (batch, 1, seq_len, seq_len) the same, row by row
    memory       what a decoder reads besides; by default the same sentence for everybody
    takes_real, takes_rows, takes_memory    what of these it understands
    causal       whether it hides the future by itself
    """

    def __init__(self, run, module=None, width=None, vocab=None, takes=(), memory=None, causal=None):
        self.run, self.module, self.width, self.vocab = run, module, width, vocab
        self.takes_real, self.takes_rows = "real" in takes, "rows" in takes
        self.memory_kind, self.takes_memory, self.causal = memory, memory is not None, causal
        self.length, self.name = LENGTHS[0], type(module).__name__ if module is not None else "function"

    def __call__(self, x, real=None, rows=None, memory=None, memory_real=None):
        if self.takes_memory and memory is None:
            memory = torch.cat([self.memories(1, seed=99)] * len(x))
        return self.run(x, real, rows, memory, memory_real)

    def draw(self, batch, seed=0, length=None):
        """Sentences for it to read."""
        kind = {"vocab": self.vocab} if self.vocab else {"width": self.width}
        return self.drawn(kind, batch, length or self.length, seed)

    @staticmethod
    def drawn(kind, batch, length, seed):
        generator = torch.Generator().manual_seed(1000 + seed)
        if "vocab" in kind:
            return torch.randint(kind["vocab"], (batch, length), generator=generator)
        drawn = torch.randn(batch, length, kind["width"], generator=generator, dtype=torch.float64)
        return drawn.to(torch.get_default_dtype())

    def memories(self, batch, seed=0):
        return self.drawn(self.memory_kind, batch, 4, seed) if self.takes_memory else None

    @property
    def parameters(self):
        return {} if self.module is None else dict(self.module.named_parameters())

    @property
    def described(self):
        """One line: what it was taken for."""
        reads = f"token ids below {self.vocab}" if self.vocab else f"vectors of width {self.width}"
        masks = "masks by row" if self.takes_rows else "pad masks" if self.takes_real else "no masks"
        memory = ", memory" if self.takes_memory else ""
        return f"{self.name} · reads {reads}{memory} · {masks} · {'causal' if self.causal else 'not causal'}"


def differs(one, other):
    """Do two answers differ in shape or in any number (NaN equals NaN)?"""
    return one.shape != other.shape or not torch.allclose(one, other, rtol=1e-6, atol=1e-8, equal_nan=True)


def moved(one, other):
    """(batch, seq_len) bool: which rows of two answers differ."""
    return ~torch.isclose(one, other, rtol=1e-6, atol=1e-8, equal_nan=True).flatten(2).all(-1)


@contextlib.contextmanager
def borrowed(module, dtype=torch.float64, training=False):
    """The module in another precision and mode; afterwards numbers, gradients and flags are what they were."""
    parts = [] if module is None else [*module.parameters(), *module.buffers()]
    before = [(part, part.data, part.grad) for part in parts]
    flags = [] if module is None else [(part, part.training) for part in module.modules()]
    try:
        for part, data, _ in before:
            part.grad = None
            part.data = data.clone().to(dtype) if data.is_floating_point() else data.clone()
        for module, _ in flags:
            module.training = training
        yield
    finally:
        for part, data, grad in before:
            part.grad = None
            part.data, part.grad = data, grad
        for part, flag in flags:
            part.training = flag


# ---- how it wants to be called -------------------------------------------------------------------


def subject_of(obj, width=None, vocab_size=None, causal=None, call=None):
    """The Subject for a module or function. Raises ValueError where it cannot be guessed how to call it."""
    module = obj if isinstance(obj, nn.Module) else None
    names = inspect.signature(call or (obj.forward if module is not None else obj)).parameters
    if call is not None or module is None:
        subject = _by_hand(call or obj, module, names)
    elif isinstance(obj, nn.MultiheadAttention):
        subject = _torchs(obj)
    else:
        subject = _by_names(obj, names)
    subject.width, subject.vocab = (width or subject.width, vocab_size or subject.vocab)
    if not (subject.width or subject.vocab):
        subject.width, subject.vocab = _sizes(obj, list(names)[0]) if module is not None else (None, None)
    if not (subject.width or subject.vocab):
        raise ValueError("say width= (it reads vectors) or vocab_size= (it reads token ids)")
    if causal is not None:
        subject.causal = causal
    return subject


def settle(subject):
    """Find the longest sentence it takes and, where nobody said so, whether it is causal by itself."""
    for length in LENGTHS:
        subject.length = length
        try:
            with torch.no_grad():
                subject(subject.draw(1))
            break
        except Exception:
            if length == LENGTHS[-1]:
                subject.length = LENGTHS[0]
    if subject.causal is None:
        with contextlib.suppress(Exception), torch.no_grad():
            x, other = subject.draw(2, seed=5), subject.draw(2, seed=6)
            other[:, :-1] = x[:, :-1]
            subject.causal = not bool(moved(subject(x), subject(other))[:, :-1].any())


def _by_hand(call, module, names):
    """call(x) or call(x, mask), mask (batch, 1, seq_len, seq_len) or None, as someone wrote it for the checklist."""
    required = [n for n, p in names.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(required) < 2:
        return Subject(lambda x, *rest: call(x), module)

    def run(x, real, rows, *memory):
        return call(x, _rows(real, rows, x))

    return Subject(run, module, takes=("real", "rows"))


def _rows(real, rows, x):
    if rows is None and real is not None:
        rows = real[:, None, None, :].expand(-1, 1, x.shape[1], -1)
    return rows


def _torchs(mha):
    """torch's own layer: True means hidden there, and the mask has one table for each head of each sentence."""

    def run(x, real, rows, *memory):
        mask = _rows(real, rows, x)
        hidden = None if mask is None else ~mask.expand(-1, mha.num_heads, -1, -1).flatten(0, 1)
        x = x if mha.batch_first else x.transpose(0, 1)
        out = mha(x, x, x, attn_mask=hidden, need_weights=False)[0]
        return out if mha.batch_first else out.transpose(0, 1)

    return Subject(run, mha, width=mha.embed_dim, takes=("real", "rows"))


def _by_names(module, names):
    """By the names that the course gives to arguments: attn_mask, pad_mask, memory, src and tgt."""
    if "src" in names and "tgt" in names and "tgt_pad_mask" in names:
        tables = [part.num_embeddings for part in module.modules() if isinstance(part, nn.Embedding)]

        def run(x, real, rows, memory, memory_real):
            return module(memory, x, src_pad_mask=memory_real, tgt_pad_mask=real)

        kind = {"vocab": tables[0]}
        return Subject(run, module, vocab=tables[-1], takes=("real",), memory=kind, causal=True)
    if "memory_mask" in names:
        width, _ = _sizes(module, "x")

        def run(x, real, rows, memory, memory_real):
            seen = None if memory_real is None else memory_real[:, None, None, :]
            return module(x, memory, attn_mask=_four(real, rows), memory_mask=seen)

        return Subject(run, module, width=width, takes=("real", "rows"), memory={"width": width}, causal=True)
    if "attn_mask" in names:
        return _attention(module, names)
    if "pad_mask" in names:
        return Subject(lambda x, real, *rest: module(x, pad_mask=real), module, takes=("real",))
    return Subject(lambda x, *rest: module(x), module)


def _four(real, rows):
    return rows if real is None else real[:, None, None, :]


def _attention(module, names):
    """module(x, attn_mask=…), or module(x, memory, attn_mask=…) that reads itself here; the mask has 4 or 3 axes."""
    width, _ = _sizes(module, "x")
    memory = names.get("memory")
    lift = None
    if memory is not None and memory.default is memory.empty:  # queries are made of the same tokens
        read = getattr(module, "w_k", None)
        inner = read.in_features if isinstance(read, nn.Linear) else width
        lift = torch.randn(inner, width, generator=torch.Generator().manual_seed(7), dtype=torch.float64) / inner**0.5
        width = inner
    axes = []

    def call(x, mask):
        first = (x,) if lift is None else (x @ lift.to(x.dtype), x)
        return module(*first, attn_mask=mask)

    def run(x, real, rows, *rest):
        mask = _four(real, rows)
        if mask is None:
            return call(x, None)
        if not axes:
            axes.append(4 if _has_head_axis(call, x) else 3)
        return call(x, mask if axes[0] == 4 else mask[:, 0])

    return Subject(run, module, width=width, takes=("real", "rows"))


def _has_head_axis(call, x):
    """Does it take a mask of four axes? One head has none for heads: it refuses, or its answer gets an axis more."""
    try:
        with torch.no_grad():
            return call(x[:1, :1].expand(2, 3, -1), torch.ones(2, 1, 3, 3, dtype=torch.bool)).dim() == 3
    except (RuntimeError, ValueError, IndexError):
        return False


def _sizes(module, first):
    """(width, None) or (None, vocabulary): from the layer that reads the input."""
    if first in TOKENS:
        table = next((part for part in module.modules() if isinstance(part, nn.Embedding)), None)
        return None, table.num_embeddings if table is not None else None
    layer = next((part for part in module.modules() if isinstance(part, nn.Linear)), None)
    return (layer.in_features, None) if layer is not None else (getattr(module, "d_model", None), None)


def attention_inside(subject):
    """The Subject for the first attention in a block or model; the subject itself if it has none inside."""
    if subject.module is None:
        return subject
    for path, part in subject.module.named_modules():
        own = path.rpartition(".")[2].lower()
        is_one = "attention" in type(part).__name__.lower() or "attention" in own or "attn" in own
        if path and is_one and list(part.children()):
            with contextlib.suppress(ValueError):
                found = subject_of(part)
                found.causal, found.length = None, subject.length
                return found
    return subject


def orthonormal(module):
    """Make every matrix turn vectors without stretching them, and every bias 0: unit tokens stay unit tokens."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, part in module.named_parameters():
            if part.dim() == 2:
                width = part.shape[1]
                turns = [
                    torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64))[0]
                    for _ in range(math.ceil(part.shape[0] / width))
                ]
                part.copy_(torch.cat(turns)[: part.shape[0]])
            elif "bias" in name:
                part.zero_()
