"""How fast is the course's BPE? `python -m benchmarks.tokenizer [--out FILE]` trains on 9 MB of text made here.

The text is the language reference that ships with Python, its words shuffled and varied by a fixed seed until there are
9 MB; nothing is downloaded. If the `tokenizers` library is installed, it trains on the same words, for the ratio.
"""

import argparse
import datetime
import json
import platform
import random
import re
import time
from collections import Counter
from pydoc_data import topics

from autograde.kill_matrix import namespace, solution_cells
from benchmarks.kept import keep
from utils import oracle

SIZE, VOCABULARY = 9_000_000, 4096
ENDINGS = ("", "", "", "", "s", "ed", "ing", "er", "ly", "ness", "able", "ation")


def text_of(size, seed=0):
    """`size` bytes of words, spaces and line ends."""
    draw = random.Random(seed)
    words = re.findall(r"[A-Za-z]+|[^A-Za-z\s]", "".join(topics.topics.values()))
    parts, length = [], 0
    while length < size:
        line = [word + draw.choice(ENDINGS) if word.isalpha() else word for word in draw.choices(words, k=12)]
        parts.append(" ".join(line) + "\n")
        length += len(parts[-1])
    return "".join(parts)[:size]


def timed(function, *args):
    began = time.process_time()
    result = function(*args)
    return time.process_time() - began, result


def library_seconds(word_counts, n_merges):
    """Seconds of CPU of the `tokenizers` library on the same words, or None without it."""
    try:
        from tokenizers import Tokenizer, models, trainers
    except ImportError:
        return None
    tokenizer = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=256 + n_merges, show_progress=False)
    words = [word.decode("latin1") for word, count in word_counts.items() for _ in range(count)]
    return timed(tokenizer.train_from_iterator, words, trainer)[0]


def measure(size, vocabulary):
    """A dict of seconds of CPU time on one core: counting words, training twice, and the library's training."""
    text, n_merges = text_of(size), vocabulary - 256
    counting, word_counts = timed(lambda: dict(Counter(re.findall(rb" ?[a-zA-Z]+|[^a-zA-Z]", text.encode()))))
    solution = namespace(solution_cells("phase1_text_to_tensors"))["bpe_train"]
    ours, merges = timed(solution, word_counts, n_merges)
    twin, same = timed(oracle.bpe_train, word_counts, n_merges)
    assert merges == same and len(merges) == n_merges
    library = library_seconds(word_counts, n_merges)
    return {
        "bytes": len(text.encode()),
        "distinct_words": len(word_counts),
        "vocab_size": vocabulary,
        "count_words_s": round(counting, 2),
        "solution_s": round(ours, 2),
        "twin_s": round(twin, 2),
        "tokenizers_s": library and round(library, 2),
        "ratio_to_tokenizers": library and round((counting + ours) / library, 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", help="a file for the numbers")
    parser.add_argument("--bytes", type=int, default=SIZE)
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY)
    options = parser.parse_args()
    report = measure(options.bytes, options.vocabulary)
    report |= {"python": platform.python_version(), "machine": platform.machine(), "date": str(datetime.date.today())}
    print(json.dumps(report, indent=1))
    keep(report, options.out)


if __name__ == "__main__":
    main()
