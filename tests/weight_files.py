"""Files of weights: as fit writes them, and as nobody should take them."""

import io
import json
import os
import pickle
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save

from utils import handed_in, oracle
from utils.data import translation

SIZES = dict(d_model=24, n_heads=3, d_ff=32, n_layers=1)


def model(seed=0, **sizes):
    words = dict(zip(("src_vocab", "tgt_vocab"), map(len, translation.vocabularies()), strict=True))
    torch.manual_seed(seed)
    made = oracle.Transformer(**(words | SIZES | sizes))
    for table in (made.src_embedding, made.tgt_embedding):
        torch.nn.init.normal_(table.weight, std=0.2)
    return made


def packed(made, notes=None, **changes):
    """The bytes of a file as fit writes it; changes: other tensors by name, None takes one out."""
    tensors = {name: weight.detach().clone() for name, weight in made.named_parameters()}
    tensors = {name: tensor for name, tensor in (tensors | changes).items() if tensor is not None}
    told = json.dumps({"n_heads": SIZES["n_heads"], "norm_first": True})
    return save(tensors, metadata={"track": "a", "sizes": told} if notes is None else notes)


def header_of(raw):
    size = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + size]), raw[8 + size :]


def with_header(raw, change):
    """The same numbers under another header; change(header) -> header, or its text."""
    header, numbers = header_of(raw)
    made = change(header)
    text = made if isinstance(made, bytes) else json.dumps(made).encode()
    return len(text).to_bytes(8, "little") + text + numbers


def first(header):
    return next(name for name in header if name != "__metadata__")


def put(header, **parts):
    return header | {first(header): header[first(header)] | parts}


def doubled(header):
    text = json.dumps(header).encode()
    return text[:-1] + b", " + json.dumps({first(header): header[first(header)]}).encode()[1:]


def pickled():
    stream = io.BytesIO()
    torch.save(model().state_dict(), stream)
    return stream.getvalue()


OPENED = Path(tempfile.gettempdir(), f"a-pickle-was-opened-{os.getpid()}")


class Bomb:
    def __reduce__(self):
        return os.system, (f"touch {OPENED}",)


GPT_SIZES = {"weight": torch.zeros(3, 3)}
UNREADABLE = {
    "nothing": (lambda good: b"", "no safetensors file"),
    "a pickle of torch": (lambda good: pickled(), "no safetensors file"),
    "a pickle that runs something": (lambda good: pickle.dumps(Bomb()), "no safetensors file"),
    "cut short": (lambda good: good[:-400], "does not fit its numbers"),
    "more at the end": (lambda good: good + b"more", "more in it than its header names"),
    "too large": (lambda good: good + bytes(handed_in.MOST), "20 MB are taken"),
    "a header of 20 MB": (lambda good: (10**9).to_bytes(8, "little") + good, "no safetensors file"),
    "a long header": (
        lambda good: with_header(good, lambda h: h | {"__metadata__": {"x": "x" * 300_000}}),
        "longer than that of any model",
    ),
    "no JSON": (lambda good: with_header(good, lambda h: b"{oops"), "cannot be read"),
    "endless brackets": (lambda good: with_header(good, lambda h: b'{"a":' + b"[" * 100_000), "cannot be read"),
    "a list": (lambda good: with_header(good, lambda h: b"[1]"), "no safetensors file"),
    "a name twice": (lambda good: with_header(good, doubled), "cannot be read"),
    "arrays over each other": (
        lambda good: with_header(good, lambda h: put(h, data_offsets=[0, 4])),
        "does not fit its numbers",
    ),
    "a shape of more": (lambda good: with_header(good, lambda h: put(h, shape=[10**6, 10**6])), "does not fit"),
    "a negative shape": (lambda good: with_header(good, lambda h: put(h, shape=[-1])), "no array"),
    "offsets that are words": (lambda good: with_header(good, lambda h: put(h, data_offsets="ab")), "does not fit"),
    "another dtype": (lambda good: with_header(good, lambda h: put(h, dtype="F64")), "not all float32"),
    "half precision": (lambda good: packed(model().half()), "not all float32"),
    "nan": (
        lambda good: packed(model(), **{"encoder.norm.gamma": torch.full((24,), torch.nan)}),
        "encoder.norm.gamma holds numbers that are none",
    ),
    "inf": (
        lambda good: packed(model(), **{"encoder.norm.beta": torch.full((24,), torch.inf)}),
        "numbers that are none",
    ),
    "no heads": (lambda good: packed(model(), notes={"track": "a"}), "how many heads"),
    "no notes": (lambda good: save(GPT_SIZES), "how many heads"),
    "heads by the million": (
        lambda good: packed(model(), notes={"sizes": '{"n_heads": 1000000, "norm_first": true}'}),
        "how many heads",
    ),
    "heads that do not divide": (
        lambda good: packed(model(), notes={"sizes": '{"n_heads": 7, "norm_first": true}'}),
        "7 heads do not fit d_model 24",
    ),
    "another kind of model": (
        lambda good: save(GPT_SIZES, metadata={"sizes": '{"n_heads": 1, "norm_first": true}'}),
        "does not hold the weights of the course's translator",
    ),
    "another vocabulary": (lambda good: packed(model(src_vocab=50)), "it knows 50 and"),
    "a name of one's own": (
        lambda good: packed(model(), **{"my\x1b[31m.weight": torch.zeros(2)}),
        "a name belongs to no translator of this course",
    ),
    "a part is missing": (lambda good: packed(model(), **{"decoder.norm.beta": None}), "decoder.norm.beta is missing"),
    "another shape": (
        lambda good: packed(model(), **{"decoder.norm.beta": torch.zeros(25)}),
        "decoder.norm.beta has the shape (25,), and (24,) is expected",
    ),
    "norms elsewhere": (
        lambda good: packed(model(), notes={"sizes": '{"n_heads": 3, "norm_first": false}'}),
        "belongs to no translator",
    ),
}  # fmt: skip
