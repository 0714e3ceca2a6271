"""What compressors need for the text a model is tested on: the oldest rivals of a language model."""

import bz2
import lzma
import zlib
from concurrent.futures import ThreadPoolExecutor

READ_FIRST = 12_000_000  # bytes of training text at most that xz reads before: 10 s of one core
XZ_AFTER = "xz, after the training text"


def compressors(source, read_first=READ_FIRST):
    """{name: bits per byte} on the held-out text of a SourceText.

    The last one has read the training text first, as a model has: what xz needs for both texts together, less what it
    needs for the first. Of a training text longer than `read_first` it reads only that much, and its name says so.
    """
    held_out, before = b"".join(source.val), b"".join(source.train)
    name = XZ_AFTER
    if len(before) > read_first:
        before = before[:read_first]
        name = f"xz, after {read_first / 1e6:.0f} MB of the training text"
    with ThreadPoolExecutor(2) as pool:  # both let go of Python's lock
        first, both = pool.map(_xz, (before, before + held_out))
    sizes = {
        "zlib": len(zlib.compress(held_out, 9)),
        "bz2": len(bz2.compress(held_out, 9)),
        "xz": _xz(held_out),
        name: both - first,
    }
    return {name: 8 * size / len(held_out) for name, size in sizes.items()}


def _xz(text):
    return len(lzma.compress(text, preset=9))
