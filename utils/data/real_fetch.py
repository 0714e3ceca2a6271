"""The process that fetches a corpus: `real` starts it, gives it a request in JSON, and stops it when its time is up.

It leaves two files, the second one last: NAME.json with the checksum, NAME.jsonl with a line [split, texts] for each
document or pair. Nothing is left if anything went wrong; the last line on stderr says what.
"""

import datetime
import hashlib
import json
import os
import re
import sys
import tempfile
import urllib.request
from pathlib import Path

HUB = "https://huggingface.co"
PATIENCE = 10  # seconds for an answer


def reach(address, place=None):
    """Open an address and, if a place is given, copy what is there; a ConnectionError in one sentence otherwise.

    Without this question first, the hub's library asks for half a minute before it says that there is no network.
    """
    try:
        with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
            if place:
                place.write_bytes(answer.read())
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise ConnectionError(f"{address} cannot be reached: {reason}") from None


def records(recipe, folder):
    """[split, texts] of every document or pair, through datasets.load_dataset."""
    import datasets

    datasets.disable_progress_bars()
    arguments = {name: recipe[name] for name in ("name", "data_files") if recipe[name]} | dict(recipe["options"])
    if recipe["path"] not in ("text", "json"):
        reach(os.environ.get("HF_ENDPOINT", HUB))
    elif str(recipe["data_files"]).startswith("https://"):
        arguments["data_files"] = str(folder / "fetched")
        reach(recipe["data_files"], folder / "fetched")
    for split in recipe["splits"]:
        # streaming: nothing is fetched beyond the limit, nothing is unpacked into a cache
        rows = datasets.load_dataset(recipe["path"], split=split, streaming=True, **arguments)
        size = 0
        for texts in _documents(([row[column] for column in recipe["columns"]] for row in rows), recipe):
            if not all(text.strip() for text in texts):
                continue
            size += sum(len(text.encode()) for text in texts)
            if size > recipe["limit_bytes"]:
                break
            yield [split, texts]


def _documents(rows, recipe):
    """Rows put together under headings, and cut into pieces, where the recipe says so."""
    if recipe["heading"]:
        rows = _under_headings(rows, re.compile(recipe["heading"]))
    for texts in rows:
        if recipe["piece"]:
            yield from ([piece] for piece in pieces(texts[0], recipe["piece"]))
        else:
            yield texts


def _under_headings(rows, heading):
    lines = []
    for (line,) in rows:
        if lines and heading.match(line):
            yield ["".join(lines)]
            lines = []
        lines.append(line)
    if lines:
        yield ["".join(lines)]


def pieces(text, size):
    """The text in pieces of at least `size` characters, cut after empty lines; joined they are the text."""
    start = 0
    for gap in re.finditer(r"\n\n+", text):
        if gap.end() - start >= size:
            yield text[start : gap.end()]
            start = gap.end()
    if start < len(text):
        yield text[start:]


def fetch(recipe, path):
    """Write the two files. Raises ValueError, and leaves nothing, if the text is not the one the recipe knows."""
    part, all_text, of_file, count = path.with_suffix(".part"), hashlib.sha256(), hashlib.sha256(), 0
    try:
        with tempfile.TemporaryDirectory() as scratch, part.open("wb") as file:
            for record in records(recipe, Path(scratch)):
                count += 1
                line = json.dumps(record, ensure_ascii=True).encode() + b"\n"
                all_text.update("".join(record[1]).encode())
                of_file.update(line)
                file.write(line)
            file.flush()
            os.fsync(file.fileno())
        if not count:
            raise ValueError("there was no text in it")
        if recipe["sha256"] and recipe["sha256"] != all_text.hexdigest():
            raise ValueError(f"another text arrived than expected: sha256 {all_text.hexdigest()}")
        about = {"sha256": of_file.hexdigest(), "records": count, "date": str(datetime.date.today())}
        path.with_suffix(".json").write_text(json.dumps(about), encoding="utf8")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def main():
    request = json.load(sys.stdin)
    try:
        fetch(request["recipe"], Path(request["path"]))
    except ModuleNotFoundError as error:
        install = 'pip install -c requirements.lock -e ".[corpora]"'
        sys.exit(f"the package {error.name} is not installed: {install}")
    except Exception as error:
        sys.exit(f"{type(error).__name__}: " + " ".join(str(error).split()))


if __name__ == "__main__":
    main()
