"""Track B's text: which files are read, and that none is on both sides."""

import pytest

from utils.data import CorpusError, python_source
from utils.data.python_source import LARGEST, find, from_documents, read

PROGRAM = b"def area(width, height):\n    return width * height  # number %d, long enough to be kept\n\n\n"


def halves(documents, val_share):
    return range(1, len(documents)), [0]


@pytest.fixture
def folder(tmp_path):
    """Ten programs, one of them twice, and one file of each kind that is left out."""
    files = {f"programs/p{n}.py": PROGRAM % n for n in range(10)}
    files |= {"programs/copy.py": PROGRAM % 3, "programs/windows.py": (PROGRAM % 4).replace(b"\n", b"\r\n")}
    files |= {"programs/tests/test_p.py": PROGRAM % 77, "site-packages/other.py": PROGRAM % 78}
    files |= {"latin.py": b"# caf\xe9 " * 30, "table.py": b"x = 1\n" * (LARGEST // 6 + 1), "__init__.py": b""}
    files |= {"notes.txt": PROGRAM % 79}
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    return tmp_path


def test_which_files_are_read(folder):
    """Are tests, tables, empty files, other encodings and other people's packages left out, and counted?"""
    documents, skipped = read([folder])
    assert sorted(set(documents)) == sorted(PROGRAM % n for n in range(10)) and len(documents) == 12
    assert skipped == {"tests and tables": 1, "not UTF-8": 1, "larger than 400 kB": 1, "next to empty": 1}


def test_equal_files_count_once_and_order_is_that_of_content(folder, tmp_path_factory):
    """Is the corpus the same when files are renamed, copied or written with the line ends of Windows?"""
    source = find(folder, split=halves)
    other = tmp_path_factory.mktemp("renamed")
    for n in range(10):
        (other / f"{9 - n}.py").write_bytes(PROGRAM % n)
    again = find(other, split=halves)
    assert len(source.train) + len(source.val) == 10 and source.n_bytes == again.n_bytes
    assert source.fingerprint == again.fingerprint and source.split_by == "yours"
    (other / "0.py").write_bytes(PROGRAM % 10)
    assert find(other, split=halves).fingerprint != source.fingerprint


def test_a_file_that_cannot_be_read_is_counted(folder, monkeypatch):
    """Does one unreadable file leave the others, and a line about it?"""
    bytes_of = python_source.Path.read_bytes

    def refuse(path):
        if path.name == "p5.py":
            raise PermissionError(13, "Permission denied")
        return bytes_of(path)

    monkeypatch.setattr(python_source.Path, "read_bytes", refuse)
    documents, skipped = read([folder])
    assert len(set(documents)) == 9 and skipped["cannot be read"] == 1


def test_the_limit_takes_whole_documents(folder):
    """Does a limit keep whole documents of each side, the same ones each time, and at least one?"""
    documents = [PROGRAM % n for n in range(100, 400)]
    whole = from_documents(documents, "numbers")
    source = from_documents(documents, "numbers", limit_bytes=4_000)
    assert 0.8 * 4_000 < source.n_bytes <= 4_000 + len(documents[0])
    assert set(source.train) <= set(whole.train) and set(source.val) <= set(whole.val)
    again = from_documents(documents[::-1], "numbers", limit_bytes=4_000)
    assert again.fingerprint == source.fingerprint
    smallest = from_documents(documents, "numbers", limit_bytes=1)
    assert len(smallest.train) == len(smallest.val) == 1


def test_the_course_splits_without_a_function():
    """Does the default split put every document on one side, with something on each?"""
    documents = [PROGRAM % n for n in range(300)]
    source = from_documents(documents, "numbers")
    assert sorted(source.train + source.val) == sorted(documents)
    assert 3 <= len(source.val) <= 60 and source.split_by in ("the course's", "place in the list")


def test_the_standard_library_is_there():
    """Is there real text on this machine: modules everyone knows, and no tests?"""
    source = find("stdlib", limit_bytes=300_000)
    assert 100_000 < source.n_bytes <= 700_000 and source.track == "b"
    assert "stdlib of Python" in str(source) and source.fingerprint[:16] in str(source)


def test_installed_packages_are_more(monkeypatch, tmp_path):
    """Does the scope "installed" add the packages that are there, and do without those that are not?"""
    monkeypatch.setattr(python_source, "PACKAGES", ("numpy", "no_such_package_anywhere"))
    standard, numpy = python_source._folders("installed")
    assert numpy.name == "numpy" and [standard] == python_source._folders("stdlib")


@pytest.mark.parametrize(
    ("split", "words"),
    [
        (lambda documents, val_share: ([0, 1], [1, 2]), "each document exactly once"),
        (lambda documents, val_share: ([0], [1]), "each document exactly once"),
        (lambda documents, val_share: ([0, 1, 2], []), "nothing for val"),
        (lambda documents, val_share: ([], [0, 1, 2]), "nothing for train"),
    ],
    ids="twice, missing, no val, no train".split(", "),
)
def test_a_split_that_cannot_be(split, words):
    """Is a split refused that loses a document, holds one twice, or leaves a side empty?"""
    with pytest.raises(CorpusError, match=words):
        from_documents([PROGRAM % n for n in range(3)], "three", split=split)


def test_nothing_to_read(tmp_path):
    """Are an empty folder, one document and an unknown scope refused in words that say where was looked?"""
    with pytest.raises(CorpusError, match=str(tmp_path)):
        find(tmp_path)
    (tmp_path / "one.py").write_bytes(PROGRAM % 1)
    with pytest.raises(CorpusError, match="too few"):
        find(tmp_path)
    with pytest.raises(CorpusError, match="'stdlib', 'installed' or a folder"):
        find("stdlibb")
