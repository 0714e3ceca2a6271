"""Track B: Python source that lies on this machine. It is read when it is needed and never copied into the course.

`find("stdlib")` is the standard library (about 10 MB); `find("installed")` adds the packages the course installs (about
75 MB). The text differs from one Python to the next, so a fingerprint says which text a number was measured on.
"""

import hashlib
import importlib.util
import platform
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

from utils.data import CorpusError

VAL_SHARE = 0.05  # about 0.5 MB of the standard library: enough for two digits of bits per byte
LARGEST = 400_000  # bytes of a file; above that are tables, not programs
SMALLEST = 64  # bytes; below that are empty __init__.py files
PACKAGES = ("torch", "sympy", "numpy", "matplotlib")  # large, and there wherever the course is installed
NOT_PROGRAMS = {"test", "tests", "idle_test", "testing", "lib2to3", "ensurepip", "encodings", "pydoc_data"}
NOT_OURS = {"site-packages", "dist-packages", "__pycache__"}


@dataclass(frozen=True)
class SourceText:
    """Documents to train on and to be measured on.

    train, val: lists of bytes, in an order that depends on their content alone; split_by: whose function split them
    fingerprint: sha256 of both lists; skipped: {reason: number of files left out}
    """

    train: list
    val: list
    split_by: str
    note: str = ""
    skipped: dict = field(default_factory=dict)
    track: str = "b"

    @property
    def n_bytes(self):
        return sum(map(len, self.train)) + sum(map(len, self.val))

    @property
    def fingerprint(self):
        digest = hashlib.sha256()
        for name, documents in (("train", self.train), ("val", self.val)):
            digest.update(f"{name} {len(documents)}\n".encode())
            for document in documents:
                digest.update(hashlib.sha256(document).digest())
        return digest.hexdigest()

    def __str__(self):
        files = len(self.train) + len(self.val)
        return f"{self.note}: {files} documents, {self.n_bytes / 1e6:.2f} MB, sha256 {self.fingerprint[:16]}"


def find(scope="stdlib", limit_bytes=None, split=None, val_share=VAL_SHARE):
    """Read the corpus of a scope and split it.

    scope        "stdlib", "installed", or a folder of .py files
    limit_bytes  about how much text to keep, on each side its share; which files stay is decided by their hashes
    split        (documents, val_share) -> (train indices, val indices), such as your split_corpus
    """
    folders = _folders(scope)
    documents, skipped = read(folders)
    if not documents:
        places = ", ".join(map(str, folders))
        raise CorpusError(f"no Python source was found for scope {scope!r}: looked in {places}; left out {skipped}")
    version = platform.python_version()
    return from_documents(documents, f"{scope} of Python {version}", limit_bytes, split, val_share, skipped)


def from_documents(documents, note, limit_bytes=None, split=None, val_share=VAL_SHARE, skipped=None):
    """A SourceText of these documents (bytes): equal ones once, in an order made from their content, cut, split."""
    documents = sorted(set(documents), key=_order)
    if len(documents) < 2:
        raise CorpusError(f"{note}: {len(documents)} document(s) are too few; one to train on, one to measure on")
    split, split_by = _splitter(split)
    train, val = (list(map(int, part)) for part in split(list(documents), val_share))
    if sorted(train + val) != list(range(len(documents))):
        raise CorpusError("the split does not hold each document exactly once: train and val are lists of indices")
    if not train or not val:
        side = "val" if train else "train"
        raise CorpusError(f"the split left nothing for {side}: {len(documents)} documents, val_share {val_share}")
    limits = (None, None) if limit_bytes is None else (limit_bytes * (1 - val_share), limit_bytes * val_share)
    sides = (_up_to([documents[n] for n in part], limit) for part, limit in zip((train, val), limits, strict=True))
    return SourceText(*sides, split_by, note, skipped or {})


def _order(document):
    """A hash that no split takes: were it the split's own, a limit would keep the documents that are alike to it."""
    return hashlib.blake2b(document, key=b"order of documents").digest()


def _up_to(documents, limit_bytes):
    """As many of the first documents as fit, and at least one."""
    kept, size = [], 0
    for document in documents:
        size += len(document)
        if kept and limit_bytes is not None and size > limit_bytes:
            break
        kept.append(document)
    return kept


def _splitter(split):
    """(function, whose)."""
    from utils import oracle

    twin = getattr(oracle, "split_corpus", None)
    if split is not None and split is not twin:
        return split, "yours"
    if twin is not None:
        return twin, "the course's"
    return _every_so_often, "place in the list"  # a class's copy of the course does not hold this phase's answers


def _every_so_often(documents, val_share):
    """Every twentieth document. Nothing leaks, since equal ones are gone; but one file more moves all after it."""
    step = max(2, round(1 / val_share))
    val = range(step - 1, len(documents), step) or [len(documents) - 1]
    return [n for n in range(len(documents)) if n not in val], val


def _folders(scope):
    standard = Path(sysconfig.get_paths()["stdlib"])
    if scope == "stdlib":
        return [standard]
    if scope == "installed":
        found = [importlib.util.find_spec(name) for name in PACKAGES]
        return [standard, *(Path(place) for spec in found if spec for place in spec.submodule_search_locations or [])]
    if Path(scope).is_dir():
        return [Path(scope)]
    raise CorpusError(f"scope is 'stdlib', 'installed' or a folder that exists, not {str(scope)!r}")


def read(folders):
    """(documents, {reason: count}): the .py files of these folders that are programs, readable and text."""
    documents, skipped = [], {}
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            parts = set(path.relative_to(folder).parts[:-1])
            if parts & NOT_OURS:
                continue
            document, reason = (None, "tests and tables") if parts & NOT_PROGRAMS else _document(path)
            if reason:
                skipped[reason] = skipped.get(reason, 0) + 1
            else:
                documents.append(document)
    return documents, skipped


def _document(path):
    """(bytes, None), or (None, why not)."""
    try:
        size = path.stat().st_size
        if size > LARGEST:
            return None, f"larger than {LARGEST // 1000} kB"
        if size < SMALLEST:
            return None, "next to empty"
        document = path.read_bytes().replace(b"\r\n", b"\n")  # the same text on Windows
        document.decode()
    except OSError:
        return None, "cannot be read"
    except UnicodeDecodeError:
        return None, "not UTF-8"
    return document, None
