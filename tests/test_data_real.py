"""Optional corpora: the real loading code, on small files that lie here. No network is asked for anything."""

import dataclasses
import hashlib
import json
import subprocess
import urllib.error

import pytest

from utils.data import python_source, real, real_fetch
from utils.data.grammar import Pair
from utils.data.real import CorpusUnavailable, Recipe, load_recipe

PLAY = "".join(f"SPEAKER {n}:\nA line of number {n}, and another one.\n\n" for n in range(60))


def halves(documents, val_share):
    return range(1, len(documents)), [0]


@pytest.fixture
def here(monkeypatch):
    """Fetch in this process: `datasets` is imported once, and what is fetched is a local file."""
    calls = []

    def run(command, input, timeout, **_):
        calls.append(timeout)
        request = json.loads(input)
        try:
            real_fetch.fetch(request["recipe"], real.Path(request["path"]))
        except Exception as error:
            return subprocess.CompletedProcess(command, 1, "", f"Warning: x\n{type(error).__name__}: {error}")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(real.subprocess, "run", run)
    return calls


@pytest.fixture
def play(tmp_path):
    (tmp_path / "play.txt").write_text(PLAY)
    known = hashlib.sha256(PLAY.encode()).hexdigest()
    return dataclasses.replace(
        real.RECIPES["tiny_shakespeare"], data_files=str(tmp_path / "play.txt"), piece=400, sha256=known
    )


def test_one_text_in_pieces(here, play, tmp_path):
    """Does the recipe of the plays give documents that together are the text, split by the learner's function?"""
    source = load_recipe("play", play, tmp_path / "kept", split=halves)
    assert sorted(source.train + source.val) == sorted(map(str.encode, real_fetch.pieces(PLAY, 400)))
    assert len(source.val) == 1 and source.split_by == "yours" and source.track == "b" and source.n_bytes == len(PLAY)
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["play.json", "play.jsonl"]


def test_the_second_time_nothing_is_fetched(here, play, tmp_path):
    """Is the folder enough the second time, without network or library?"""
    first = load_recipe("play", play, tmp_path / "kept", seconds=7, split=halves)
    again = load_recipe("play", dataclasses.replace(play, data_files="gone"), tmp_path / "kept", split=halves)
    assert here == [7] and again.fingerprint == first.fingerprint


def test_articles_under_headings(here, tmp_path):
    """Does the recipe of Wikipedia put lines together to articles, and keep the split that the corpus brings?"""
    articles = {"train": ["One", "Two", "Three"], "validation": ["Four", "Two"]}
    for split, titles in articles.items():
        lines = [f" = {title} = \n{{}} = = Part = = \nText of {title} .\n" for title in titles]
        rows = [json.dumps({"text": row + "\n"}) for line in lines for row in line.replace("{}", "").splitlines()]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(rows))
    recipe = dataclasses.replace(
        real.RECIPES["wikitext_103"],
        path="json",
        name=None,
        options=(("data_files", {split: str(tmp_path / f"{split}.jsonl") for split in articles}),),
    )
    source = load_recipe("articles", recipe, tmp_path / "kept")
    assert [text.splitlines()[0] for text in source.val] == [b" = Four = ", b" = Two = "]
    assert [text.splitlines()[0] for text in source.train] == [b" = One = ", b" = Three = "]  # Two is in val
    assert source.train[0].count(b"\n") == 3 and source.split_by == "the corpus"


def test_pairs_become_a_corpus(here, tmp_path):
    """Does a corpus of translations become pairs, and these a TranslationCorpus without leak and with a vocabulary?"""
    rows = [{"en": f"A dog runs {n % 70}.", "de": f"Ein Hund läuft {n % 70}."} for n in range(200)] + [
        {"en": "", "de": "x"}
    ]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    recipe = dataclasses.replace(real.RECIPES["multi30k"], path="json", data_files=str(tmp_path / "pairs.jsonl"))
    pairs = load_recipe("pairs", recipe, tmp_path / "kept")
    assert len(pairs) == 200 and pairs[3] == Pair("A dog runs 3.", "Ein Hund läuft 3.")
    corpus = real.translation_corpus(pairs)
    assert not {pair.source for pair in corpus.train} & {pair.source for pair in corpus.tests["iid"]}
    assert corpus.tests["iid"] and corpus.train[0].target.split()[:2] == ["Ein", "Hund"]
    assert corpus.target_words.decode(corpus.target_words.encode(corpus.train[0].target)) == corpus.train[0].target
    assert corpus.batch(0, 0, 4)["src"].shape[0] == 4


def test_a_text_behind_an_address(here, play, monkeypatch, tmp_path):
    """Is a text that lies at an address copied and then read like a local one, and is no network one plain sentence?"""

    def urlopen(address, timeout):
        assert timeout < 30
        if "nowhere" in address:
            raise urllib.error.URLError("no route to host")
        return open(tmp_path / "play.txt", "rb")

    monkeypatch.setattr(real_fetch.urllib.request, "urlopen", urlopen)
    there = dataclasses.replace(play, data_files="https://somewhere/play.txt")
    assert load_recipe("play", there, tmp_path / "kept", split=halves).n_bytes == len(PLAY)
    message = (
        r"play2 could not be fetched \(ConnectionError: https://nowhere/play.txt cannot be reached: no route to host\)"
    )
    with pytest.raises(CorpusUnavailable, match=message):
        load_recipe("play2", dataclasses.replace(play, data_files="https://nowhere/play.txt"), tmp_path / "kept")
    monkeypatch.setenv("HF_ENDPOINT", "https://nowhere")
    with pytest.raises(CorpusUnavailable, match="https://nowhere cannot be reached"):
        real.load("multi30k", folder=tmp_path / "kept")
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["play.json", "play.jsonl"]


def test_the_limit_ends_fetching(here, play, tmp_path):
    """Is no more kept than the recipe allows?"""
    source = load_recipe(
        "play", dataclasses.replace(play, limit_bytes=1_000, sha256=None), tmp_path / "kept", split=halves
    )
    assert 400 <= source.n_bytes <= 1_000


def test_another_text_than_expected(here, play, tmp_path):
    """Is a text with another checksum refused, and nothing of it kept?"""
    with pytest.raises(CorpusUnavailable, match="another text arrived than expected.*python_source.find"):
        load_recipe("play", dataclasses.replace(play, sha256="0" * 64), tmp_path / "kept")
    assert list((tmp_path / "kept").iterdir()) == []


@pytest.mark.parametrize("damage", ["changed", "no checksum"])
def test_a_file_that_changed_since(damage, here, play, tmp_path):
    """Is a kept file that is no longer what was fetched refused with a word on what to do, and left as it is?"""
    load_recipe("play", play, tmp_path, split=halves)
    path = tmp_path / "play.jsonl"
    if damage == "changed":
        path.write_bytes(path.read_bytes().replace(b"number", b"numero"))
    else:
        (tmp_path / "play.json").unlink()
    with pytest.raises(CorpusUnavailable, match="Delete it and it is fetched again"):
        load_recipe("play", play, tmp_path, split=halves)
    assert path.is_file()


def test_no_network_is_a_plain_message_and_the_fallback(monkeypatch, capsys, tmp_path):
    """Is a failed fetch one line that says what to use instead, and does load_or_else use it?"""
    failed = subprocess.CompletedProcess([], 1, "", "Traceback\nConnectionError: no route to huggingface.co")
    monkeypatch.setattr(real.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(CorpusUnavailable) as caught:
        real.load("fineweb_edu", folder=tmp_path)
    assert str(caught.value) == (
        "fineweb_edu could not be fetched (ConnectionError: no route to huggingface.co). "
        "python_source.find() needs no network and serves as well here."
    )
    assert real.load_or_else("multi30k", lambda: "the grammar", folder=tmp_path) == "the grammar"
    assert capsys.readouterr().out.startswith("… multi30k could not be fetched (ConnectionError")


def test_a_hanging_network_costs_the_time_allowed(monkeypatch, tmp_path):
    """Is the process stopped when its time is up, with a message, and nothing left in the folder?"""

    def hang(command, timeout, **_):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(real.subprocess, "run", hang)
    with pytest.raises(CorpusUnavailable, match="it was not here after 3 s"):
        real.load("tiny_shakespeare", folder=tmp_path, seconds=3)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made(tmp_path):
    """Is a folder that cannot be used named?"""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CorpusUnavailable, match="file.* cannot be used"):
        real.load("tiny_shakespeare", folder=tmp_path / "file" / "kept")


def test_an_unknown_name():
    """Does a wrong name list the right ones?"""
    with pytest.raises(CorpusUnavailable, match="tiny_shakespeare, wikitext_103, fineweb_edu, multi30k"):
        real.load("shakespeare")


def test_every_recipe_can_be_sent():
    """Does each recipe survive the way through JSON to the process that fetches?"""
    for recipe in real.RECIPES.values():
        again = json.loads(json.dumps(dataclasses.asdict(recipe)))
        assert Recipe(**again | {name: tuple(again[name]) for name in ("splits", "columns")}).path == recipe.path
        assert set(recipe.splits) <= {"train", "validation"} and len(recipe.columns) in (1, 2)
    assert python_source.VAL_SHARE < 0.5


@pytest.mark.slow
def test_the_process_that_fetches(play, tmp_path):
    """Does the real process fetch a local file, say what went wrong with another, and stop when its time is up?"""
    assert load_recipe("play", play, tmp_path / "kept", split=halves).n_bytes == len(PLAY)
    gone = dataclasses.replace(play, data_files=str(tmp_path / "gone.txt"))
    with pytest.raises(CorpusUnavailable, match=r"could not be fetched \(FileNotFoundError: .*gone.txt"):
        load_recipe("gone", gone, tmp_path / "kept")
    with pytest.raises(CorpusUnavailable, match="not here after 0.01 s"):
        load_recipe("late", play, tmp_path / "kept", seconds=0.01)
