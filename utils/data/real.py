"""Real text for those who have a network: fetched once through the `datasets` library, then read from a folder.

    tiny_shakespeare   1.1 MB of plays            wikitext_103   Wikipedia articles, the first 100 MB
    fineweb_edu        pages that teach, 200 MB   multi30k       captions, English to German

The course needs none of it. Fetching happens in a process of its own that is stopped when its time is up, so a network
that hangs costs `seconds` and nothing else. What was fetched is kept with its checksum and checked at every reading.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from platformdirs import user_cache_dir

from utils.data import CorpusError, python_source
from utils.data.grammar import Pair
from utils.data.held_out import part_of
from utils.data.translation import TranslationCorpus
from utils.data.vocabulary import Vocabulary

SHAKESPEARE = "https://raw.githubusercontent.com/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/"


class CorpusUnavailable(CorpusError):
    """A corpus that is not on this machine and could not be fetched. The message says what to do instead."""


@dataclass(frozen=True)
class Recipe:
    """What `datasets` is asked for, and what is made of it.

    path, name, data_files, options  arguments of load_dataset      splits  of the dataset, in this order
    columns  ("text",) or (source, target)                           sha256  of all the text, where it is known
    heading  a pattern: lines are put together to one document until the next line that it fits
    piece    documents longer than this many characters are cut at empty lines
    """

    path: str
    name: str | None = None
    data_files: str | None = None
    options: tuple = ()
    splits: tuple = ("train",)
    columns: tuple = ("text",)
    limit_bytes: int = 100_000_000
    heading: str | None = None
    piece: int | None = None
    sha256: str | None = None


RECIPES = {
    "tiny_shakespeare": Recipe(
        "text",
        data_files=SHAKESPEARE + "tinyshakespeare/input.txt",
        options=(("sample_by", "document"),),
        piece=4_000,  # about a scene's page: one document could not be split
        sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    ),
    "wikitext_103": Recipe(
        "Salesforce/wikitext", "wikitext-103-raw-v1", splits=("validation", "train"), heading=" = [^=]"
    ),
    "fineweb_edu": Recipe("HuggingFaceFW/fineweb-edu", "sample-10BT", limit_bytes=200_000_000),
    "multi30k": Recipe("bentrevett/multi30k", columns=("en", "de")),
}


def load(name, folder=None, seconds=60, split=None):
    """A SourceText of a corpus of text, or a list of Pair of one of translations.

    folder   where it is kept; None: the cache folder of this user        seconds  how long fetching may take
    split    as in python_source.find
    Raises CorpusUnavailable: no network, too slow, `datasets` not installed, another text than the one we know.
    """
    if name not in RECIPES:
        raise CorpusUnavailable(f"there is no corpus called {name!r}: the names are {', '.join(RECIPES)}")
    folder = Path(folder or Path(user_cache_dir("transformer-workbook")) / "corpora")
    return load_recipe(name, RECIPES[name], folder, seconds, split)


def load_or_else(name, instead, **options):
    """`load`, or `instead()` after a line that says why."""
    try:
        return load(name, **options)
    except CorpusUnavailable as error:
        print(f"… {error}")
        return instead()


def load_recipe(name, recipe, folder, seconds=60, split=None):
    """`load` for any Recipe; `name` is what its files in `folder` are called."""
    path = Path(folder) / f"{name}.jsonl"
    if not path.is_file():
        _fetch(name, recipe, path, seconds)
    rows = _rows(name, path)
    if len(recipe.columns) == 2:
        return [Pair(*texts) for _, texts in rows]
    documents = {part: [text.encode() for row_part, (text,) in rows if row_part == part] for part in recipe.splits}
    if len(recipe.splits) == 1:
        return python_source.from_documents(documents[recipe.splits[0]], name, split=split)
    val = dict.fromkeys(documents["validation"])  # the corpus brings its own split
    train = [text for text in dict.fromkeys(documents["train"]) if text not in val]
    return python_source.SourceText(train, list(val), "the corpus", name)


def _fetch(name, recipe, path, seconds):
    """Run utils.data.real_fetch; CorpusUnavailable if it did not leave the file."""
    root = Path(__file__).resolve().parents[2]
    quiet = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HOME": str(path.parent / "hub")}
    request = json.dumps({"recipe": asdict(recipe), "path": str(path)})
    command = [sys.executable, "-m", "utils.data.real_fetch"]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            command, input=request, capture_output=True, text=True, timeout=seconds, cwd=root, env=os.environ | quiet
        )
        problem = done.stderr.strip().rpartition("\n")[2][:300] if done.returncode else None
    except subprocess.TimeoutExpired:
        problem = f"it was not here after {seconds:g} s"
    except OSError as error:
        problem = f"{path.parent} cannot be used: {error.strerror}"
    if problem is not None or not path.is_file():
        raise _unavailable(name, len(recipe.columns) == 2, f"could not be fetched ({problem or 'nothing arrived'})")


def _unavailable(name, pairs, what):
    instead = "translation.corpus()" if pairs else "python_source.find()"
    return CorpusUnavailable(f"{name} {what}. {instead} needs no network and serves as well here.")


def _rows(name, path):
    """[(split, texts)] of a file that was fetched, if it is still the one that was."""
    try:
        kept, about = path.read_bytes(), json.loads(path.with_suffix(".json").read_text(encoding="utf8"))
        known = about["sha256"]
    except (OSError, ValueError, KeyError) as error:
        raise CorpusUnavailable(f"{path} cannot be read ({error}). Delete it and it is fetched again.") from None
    if hashlib.sha256(kept).hexdigest() != known:
        raise CorpusUnavailable(
            f"{path} is not the {name} that was fetched: its checksum is another. Delete it and it is fetched again."
        )
    return [json.loads(line) for line in kept.decode().splitlines()]


def translation_corpus(pairs, n_test=1_000, least=2):
    """A TranslationCorpus of real pairs, cut into words and marks and split by the hash of the source.

    A word that training shows fewer than `least` times is unknown (id 3).
    """
    pairs = [
        Pair(*(" ".join(re.findall(r"\w+|[^\w\s]", text)) for text in (pair.source, pair.target))) for pair in pairs
    ]
    test = [pair for pair in pairs if part_of(pair.source) == "iid"][:n_test]
    known = {pair.source for pair in test}
    train = [pair for pair in pairs if pair.source not in known and pair.source and pair.target]
    return TranslationCorpus(train, {"iid": test}, *(_frequent(train, side, least) for side in ("source", "target")))


def _frequent(pairs, side, least):
    counts = Counter(word for pair in pairs for word in getattr(pair, side).split())
    return Vocabulary(sorted(word for word, count in counts.items() if count >= least))
