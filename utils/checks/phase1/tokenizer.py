"""Tokenizer: text to ids and back, and nothing is lost on the way."""

import re
import unicodedata

import numpy as np

from utils import oracle
from utils.checks.draw import given
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase1 import PHASE, rules
from utils.checks.phase1.encoding import rules_in
from utils.observe.codec import Fixture

MERGES = [*rules_in("t|h", "th|e", "e| ", "a|t", "c|at", "s|at", "p|a", "pa|d", "<|p", "s|>"), (b"\xc3", b"\xa9")]
SPECIALS = ["<pad>", "<s>", "<eos>"]
NESTED = ["<s>", "<s>x", "<s>xy", "é"]


def encode(text, merges=MERGES, specials=SPECIALS, **options):
    """Options of a case that encodes a text, and decodes the right ids of it."""
    ids = oracle.Tokenizer(merges, specials).encode(text)
    back = dict(method="decode", ids=ids)
    return dict(
        args=dict(method="encode", text=text), then=(back,), init=dict(merges=merges, specials=specials), **options
    )


def decode(ids, merges=MERGES, specials=SPECIALS, **options):
    return dict(args=dict(method="decode", ids=ids), init=dict(merges=merges, specials=specials), **options)


def read(attribute, merges=MERGES, specials=SPECIALS):
    return dict(args=dict(method=attribute), init=dict(merges=merges, specials=specials))


def made_from(merges, specials):
    return dict(
        args=dict(method="encode", text="a"), init=dict(merges=merges, specials=specials), kind="edge", grad=False
    )


def as_tuple(*ids):
    return given(lambda generator, others: ids)


# ---- wrong ways ----------------------------------------------------------------------------------


def wrong_encode(make):
    """A wrong twin: make(self, text) -> ids, where `self.right(text)` is the right way."""
    return type(
        "WrongTokenizer", (oracle.Tokenizer,), {"encode": make, "right": lambda self, text: super_encode(self, text)}
    )


def super_encode(self, text):
    return oracle.Tokenizer.encode(self, text)


def wrong_decode(make):
    return type("WrongTokenizer", (oracle.Tokenizer,), {"decode": make})


def joined(self, ids, errors="replace"):
    return b"".join(self._tokens[n] for n in ids).decode(errors=errors)


def cut_first(pattern):
    """Text is cut by a pattern before it is encoded."""
    return wrong_encode(
        lambda self, text: [n for part in re.findall(pattern, text, re.DOTALL) for n in self.right(part)]
    )


def by_list_order(self, text):
    """Of several specials that begin at one place, the first of the list is taken."""
    return _cut(self, text, list(self.special_ids))


def shortest_first(self, text):
    return _cut(self, text, sorted(self.special_ids, key=len))


def one_special_after_another(self, text, specials=None):
    """Cut at every place of the first special, then the rest at the second, and so on."""
    specials = list(self.special_ids) if specials is None else specials
    if not specials or not text:
        return oracle.Tokenizer(list(self._ranks), []).encode(text)
    parts = [one_special_after_another(self, part, specials[1:]) for part in text.split(specials[0])]
    return parts[0] + [n for part in parts[1:] for n in (self.special_ids[specials[0]], *part)]


def _cut(self, text, specials):
    if not specials:
        return self.right(text)
    parts = re.split("(" + "|".join(map(re.escape, specials)) + ")", text)
    plain = oracle.Tokenizer(list(self._ranks), [])
    return [n for part in parts for n in ([self.special_ids[part]] if part in specials else plain.encode(part))]


def renumbered(order):
    """A wrong twin: order(bytes, merged, specials) -> {token: id}; an id may be given twice."""

    class Renumbered(oracle.Tokenizer):
        def __init__(self, merges, specials):
            super().__init__(merges, specials)
            merged = 256 + len(merges)
            names = dict.fromkeys(specials)
            kinds = [(n, token) for n, token in enumerate(self._tokens[:merged])]
            numbers = order(kinds[:256], kinds[256:], list(names))
            self.special_ids = {name: numbers[name] for name in specials}
            self._ids = {token: numbers[token] for _, token in kinds}
            table = {numbers[token]: token for _, token in kinds}
            table |= {numbers[name]: name.encode() for name in specials}
            self._tokens = [table.get(n, b"") for n in range(self.vocab_size)]

    return Renumbered


def in_a_row(*groups):
    return {token: n for n, token in enumerate(part for group in groups for part in group)}


def specials_from_256(single, merged, specials):
    tokens = [token for _, token in single + merged]
    return in_a_row(tokens) | {name: 256 + n for n, name in enumerate(specials)}


def merged_last(single, merged, specials):
    return in_a_row([token for _, token in single], specials, [token for _, token in merged])


def specials_first(single, merged, specials):
    return in_a_row(specials, [token for _, token in single + merged])


class _SpecialsFrom256(oracle.Tokenizer):
    """Specials come right after the bytes; decoding finds the merged tokens there."""

    def __init__(self, merges, specials):
        super().__init__(merges, specials)
        self.special_ids = {text: 256 + n for n, text in enumerate(specials)}


class _SpecialsFrom0(oracle.Tokenizer):
    first = 0

    def __init__(self, merges, specials):
        super().__init__(merges, specials)
        self.special_ids = {text: self.first + n for n, text in enumerate(specials)}


class _SpecialsFrom1(_SpecialsFrom0):
    first = 1


def not_escaped(self, text):
    specials = sorted(self.special_ids, key=len, reverse=True)
    if not specials:
        return self.right(text)
    parts = re.split("(" + "|".join(specials) + ")", text)
    plain = oracle.Tokenizer(list(self._ranks), [])
    return [n for part in parts for n in ([self.special_ids[part]] if part in specials else plain.encode(part))]


def read_twice(self, ids):
    if any(not 0 <= n < self.vocab_size for n in ids):
        raise ValueError("unknown id")
    return joined(self, ids)


def spelled_out(self, text):
    return oracle.Tokenizer(list(self._ranks), []).encode(text)


def single_bytes(self, text):
    return [n for n in self.right(text) for n in (self._tokens[n] if n < 256 + len(self._ranks) else [n])]


class _AnySpecials(oracle.Tokenizer):
    """Takes specials that are empty or repeat."""

    def __init__(self, merges, specials):
        super().__init__(merges, [one for one in dict.fromkeys(specials) if one])


register(
    expected=oracle.Tokenizer,
    phase=PHASE,
    section="1.5",
    hint="cut at specials, encode each stretch with bpe_encode; decode all bytes at once.",
    grad=False,
    bans=(),
    cases=(
        case("a text", **encode("the cat sat")),
        case("vocab_size", **read("vocab_size")),
        case("special_ids", **read("special_ids")),
        case("one special", **encode("<s>the cat")),
        case("specials within and at both ends", **encode("<s>the<pad>cat<eos><pad>")),
        case("no joining across a special", **encode("t<s>he c<pad>at")),
        case("merged tokens cross words", **encode("the sat the  the ")),
        case("emoji, CJK, accents as typed", **encode("naïve café e\u0301 日本語 🙂👩‍👩‍👧 مرحبا")),
        case("line ends, tabs, control characters", **encode("a\r\nb\n\n\tc \x00\x1b\x7f\u2028 d\x85")),
        case("upper case and spaces at the ends", **encode("  The CAT  Straße ΑΣ ")),
        case("what looks like the start of a special", **encode("<pa <pad <s<s> <eos <<pad>>")),
        case("a special that begins another one", **encode("<s>xy<s>x<s>y<s>", specials=NESTED)),
        case("the same, listed the other way round", **encode("<s>xy<s>x<s>y<s>", specials=NESTED[::-1])),
        case("specials that overlap", **encode("xaba ab", specials=["aba", "xa", "ab"])),
        case(
            "specials that look like patterns", **encode("a.b [s] a+ (x|y) aab", specials=["a.b", "[s]", "(x|y)", "a+"])
        ),
        case("a special beyond ASCII", **encode("café é", specials=NESTED)),
        case("no merges, no specials", **encode("the cät <s>", merges=[], specials=[])),
        case("no specials", **encode("the <pad> cat", specials=[])),
        case("decode a character from its three bytes", **decode([0xE6, 0x97, 0xA5])),
        case("decode a character across tokens", **decode([97, 0xF0, 0x9F, 0x99, 0x82, 257])),
        case("decode half a character", **decode([0xE6, 0x97])),
        case("decode broken bytes in the middle", **decode([104, 0xFF, 0xC3, 104, 0x80])),
        case("decode specials", **decode([267, 257, 268, 97, 269])),
        case("decode a tuple of ids", **decode(as_tuple(258, 261, 269))),
        case("decode ids that can be read only once", **decode(Fixture("once", {"values": [258, 261, 269]}))),
        case("every byte", **decode(list(range(256)))),
        case("empty text", **encode("", kind="edge")),
        case("decode nothing", **decode([], kind="edge")),
        case("two texts after another", **encode("the cat") | dict(then=(dict(method="encode", text="<s>"),))),
        case("a negative id", **decode([-1], kind="edge")),
        case("a negative id among others", **decode([257, -200], kind="edge")),
        case("an unknown id", **decode([97, 270], kind="edge")),
        case("an id far beyond", **decode([97, 5000, 98], kind="edge")),
        case("a special that repeats", **made_from(MERGES, ["<s>", "<pad>", "<s>"])),
        case("an empty special", **made_from(MERGES, ["<s>", ""])),
    ),
    mistakes={
        "a special token must become one id": wrong_encode(spelled_out),
        "decode the joined bytes, a character may span tokens": wrong_decode(
            lambda self, ids: "".join(self._tokens[n].decode(errors="replace") for n in ids)
        ),
        "tokens are bytes, not code points": Spotted(
            rules.code_points,
            wrong_encode(lambda self, text: self.right(text) if text.isascii() else [ord(mark) for mark in text]),
            certain=True,
        ),
        "special and merged tokens share ids": Replays(renumbered(specials_from_256), _SpecialsFrom256),
        "the order of ids is bytes, merged tokens, specials": Replays(
            renumbered(merged_last), renumbered(specials_first), _SpecialsFrom0, _SpecialsFrom1
        ),
        "the text did not come back": Replays(
            wrong_encode(lambda self, text: self.right(text.lower())),
            wrong_encode(lambda self, text: self.right(text.strip())),
            wrong_encode(lambda self, text: self.right(" ".join(text.split()))),
            wrong_encode(lambda self, text: self.right(unicodedata.normalize("NFC", text))),
            wrong_encode(lambda self, text: self.right(unicodedata.normalize("NFKC", text))),
            wrong_encode(lambda self, text: self.right(text.replace("\r\n", "\n"))),
            wrong_encode(lambda self, text: self.right(text.encode("ascii", "ignore").decode())),
        ),
        "decode left out a special": wrong_decode(
            lambda self, ids: joined(self, [n for n in ids if n < 256 + len(self._ranks)])
        ),
        "unknown id": Spotted(
            rules.lookup_failed,
            wrong_decode(lambda self, ids: joined(self, [n % 2**40 for n in ids])),
            also=(wrong_decode(lambda self, ids: joined(self, [n for n in ids if 0 <= n < self.vocab_size])),),
        ),
        "a negative id counts from the end: refuse it": wrong_decode(joined),
        "broken bytes become U+FFFD": Spotted(
            rules.bytes_refused,
            wrong_decode(lambda self, ids: joined(self, ids, "strict")),
            also=(wrong_decode(lambda self, ids: joined(self, ids, "ignore")),),
        ),
        "of several specials that fit, the longest is taken": Replays(
            wrong_encode(by_list_order), wrong_encode(shortest_first), wrong_encode(one_special_after_another)
        ),
        "the leftmost special goes first, whichever it is": wrong_encode(
            lambda self, text: one_special_after_another(
                self, text, sorted(self.special_ids, key=len, reverse=True) or None
            )
        ),
        "a special is no pattern: re.escape it": Spotted(
            rules.patterns_in_specials, wrong_encode(not_escaped), also=(wrong_encode(not_escaped),)
        ),
        "no specials, no cut: an empty pattern fits everywhere": wrong_encode(
            lambda self, text: self.right(text) if self.special_ids else [n for mark in text for n in self.right(mark)]
        ),
        "ids can be read only once: make a list first": wrong_decode(read_twice),
        "the text was cut into words first": Replays(
            cut_first(r"<pad>|<eos>|<s>xy?|<s>|\s+|[^\s<]+|<"),
            cut_first(r"<pad>|<eos>|<s>xy?|<s>| ?[^\s<]+|\s|<"),
        ),
        "nothing was joined": wrong_encode(single_bytes),
        "ids are Python ints": Spotted(
            rules.ids_of_other_kinds,
            wrong_encode(lambda self, text: [np.int64(n) for n in self.right(text)]),
            certain=True,
        ),
        "specials must differ and none may be empty": _AnySpecials,
    },
)
