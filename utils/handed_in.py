"""The one file that is handed in beside a notebook: a trained translator's weights, read without trusting a byte.

`read` takes a safetensors file apart by itself: a header of plain JSON, then float32 numbers that fill the rest of the
file exactly. Nothing is unpickled, and nothing is built before every name and shape is that of the course's model.
"""

import json
from dataclasses import dataclass

import numpy as np

FILE = "weights.safetensors"
MOST = 20 * 10**6  # bytes: five million numbers, five times what the translator of the smoke tier has
PHASES = {"phase7_capstone": FILE}  # what is taken in beside a notebook
LONGEST_HEADER = 200_000  # bytes: that of a model with 2 + 2 layers has 9,000
PAD, BOS, EOS = 0, 1, 2


class NotAccepted(ValueError):
    """The file cannot be used; its message says why, in words for the one who handed it in."""


@dataclass(frozen=True)
class Weights:
    """The numbers by the names of the course's model, and the two things that no shape tells."""

    numbers: dict  # name -> float32 array
    n_heads: int
    norm_first: bool

    @property
    def sizes(self):
        """What oracle.Transformer is made with. Raises NotAccepted where the shapes are no translator's."""
        layers = {name.split(".")[2] for name in self.numbers if name.startswith("encoder.blocks.")}
        try:
            (src_vocab, d_model), (tgt_vocab, _), (d_ff, _) = (
                self.numbers[name].shape
                for name in ("src_embedding.weight", "tgt_embedding.weight", "encoder.blocks.0.ffn.w_1.weight")
            )
        except (KeyError, ValueError):
            raise NotAccepted("it does not hold the weights of the course's translator (track A)") from None
        if self.n_heads < 1 or d_model < 1 or d_model % self.n_heads:
            raise NotAccepted(f"{self.n_heads} heads do not fit d_model {d_model}")
        sizes = dict(src_vocab=src_vocab, tgt_vocab=tgt_vocab, d_model=d_model, n_heads=self.n_heads, d_ff=d_ff)
        return sizes | dict(n_layers=len(layers), norm_first=self.norm_first)


def read(raw):
    """The Weights in a file's bytes. Raises NotAccepted."""
    if len(raw) > MOST:
        raise NotAccepted(f"it has {len(raw) / 1e6:.1f} MB, and at most {MOST / 1e6:.0f} MB are taken")
    header, start = _header(raw)
    notes = header.pop("__metadata__", {})
    numbers, end = {}, 0
    for name, place in sorted(header.items(), key=lambda item: _begin(item[1])):
        numbers[name], end = _array(raw, start, name, place, end)
    if start + end != len(raw):
        raise NotAccepted("there is more in it than its header names")
    for name, array in numbers.items():
        if not np.isfinite(array).all():
            raise NotAccepted(f"{_short(name)} holds numbers that are none (nan or inf)")
    return Weights(numbers, *_told(notes))


def _header(raw):
    size = int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or not 2 <= size <= len(raw) - 8 or raw[8:9] != b"{":
        raise NotAccepted("it is no safetensors file, or not a whole one")
    if size > LONGEST_HEADER:
        raise NotAccepted("its header is longer than that of any model of this course")
    try:
        header = json.loads(raw[8 : 8 + size].decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise NotAccepted("it is no safetensors file: its header cannot be read") from None
    if type(header) is not dict:
        raise NotAccepted("it is no safetensors file: its header is no list of names")
    return header, 8 + size


def _once(pairs):
    if len(dict(pairs)) < len(pairs):
        raise ValueError
    return dict(pairs)


def _begin(place):
    offsets = place.get("data_offsets") if type(place) is dict else None
    right = type(offsets) is list and len(offsets) == 2 and all(type(n) is int for n in offsets)
    return tuple(offsets) if right else (-1, -1)


def _array(raw, start, name, place, end):
    """(array, where it ends): each begins where the one before it ended."""
    first, last = _begin(place)
    shape = place.get("shape") if type(place) is dict else None
    if type(shape) is not list or not all(type(n) is int and 0 < n < 2**31 for n in shape) or len(shape) > 4:
        raise NotAccepted("its header holds something that is no array")
    if place.get("dtype") != "F32":
        raise NotAccepted("its numbers are not all float32: hand in the file that fit wrote")
    count = 1
    for n in shape:
        count *= n
    if first != end or last - first != 4 * count or start + last > len(raw):
        raise NotAccepted("its header does not fit its numbers: it is cut short, or was put together by hand")
    return np.frombuffer(raw, "<f4", count, start + first).reshape(shape), last


def _told(notes):
    """(n_heads, norm_first) from the notes in the header, as fit writes them."""
    try:
        sizes = json.loads(notes["sizes"])
        n_heads, norm_first = sizes["n_heads"], sizes["norm_first"]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise NotAccepted("its header does not say how many heads there are: hand in the file that fit wrote") from None
    if type(n_heads) is not int or type(norm_first) is not bool or not 0 < n_heads < 2**16:
        raise NotAccepted("its header does not say how many heads there are: hand in the file that fit wrote")
    return n_heads, norm_first


# ---- with the course's own model -----------------------------------------------------------------


def fit_into_model(weights, src_vocab, tgt_vocab):
    """Raise NotAccepted unless names and shapes are those of the course's model for these vocabularies."""
    sizes = weights.sizes
    if (sizes["src_vocab"], sizes["tgt_vocab"]) != (src_vocab, tgt_vocab):
        found = f"{sizes['src_vocab']} and {sizes['tgt_vocab']}"
        raise NotAccepted(
            f"it knows {found} words, the corpus has {src_vocab} and {tgt_vocab}: trained on another one?"
        )
    wanted = {name: tuple(part.shape) for name, part in _model(sizes, "meta").named_parameters()}
    found = {name: array.shape for name, array in weights.numbers.items()}
    for name in sorted(wanted.keys() ^ found.keys()):
        said = "is missing" if name in wanted else "belongs to no translator of this course"
        raise NotAccepted(f"{_short(name)} {said}")
    for name, shape in wanted.items():
        if found[name] != shape:
            raise NotAccepted(f"{name} has the shape {found[name]}, and {shape} is expected")


def _short(name):
    return name if name.isascii() and name.isprintable() and len(name) < 80 else "a name"


def translate(numbers, sizes, src, src_pad_mask, steps):
    """Greedy translation by the course's model: ids (n, steps), no bos, pad after eos. The source is read once.

    numbers: {name: float32 tensor}; src (n, src_len), src_pad_mask True where real
    """
    import torch

    from utils import oracle

    model = _model(sizes, "cpu").float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(numbers[name])
        seen = oracle.padding_mask(src_pad_mask)
        memory = model.encoder(model.embedded(src, model.src_embedding), attn_mask=seen)
        words = torch.full((len(src), 1), BOS)
        for _ in range(steps):
            told = model.decoder(model.embedded(words, model.tgt_embedding), memory, memory_mask=seen)[:, -1:]
            chosen = (told @ model.tgt_embedding.weight.T).argmax(-1)
            ended = (words == EOS).any(1, keepdim=True)
            words = torch.cat([words, chosen.masked_fill(ended, PAD)], 1)
            if bool((words == EOS).any(1).all()):
                break
    return torch.nn.functional.pad(words[:, 1:], (0, steps + 1 - words.shape[1]), value=PAD)


def _model(sizes, device):
    import torch

    from utils import oracle

    with torch.device(device):
        return oracle.Transformer(**sizes)
