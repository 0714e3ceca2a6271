"""Hidden cases of phase 1."""

from dataclasses import replace

from utils.checks.draw import normal
from utils.checks.exercise import case
from utils.checks.phase1.batches import tensors
from utils.checks.phase1.embedding import gradient, random_ids
from utils.checks.phase1.encoding import rules_in
from utils.checks.phase1.pairs import letters, of_text
from utils.checks.phase1.positions import learned, sinusoids, table
from utils.checks.phase1.recurrence import sizes
from utils.checks.phase1.rotary import places, turned
from utils.checks.phase1.shifts import shift
from utils.checks.phase1.softmax import around
from utils.checks.phase1.tokenizer import decode, encode, read

MORE = rules_in("o|u", "r|e", "ou|re", "e| ", "?|>", "l|l")

_HIDDEN = {
    "rnn_forward": (case("h1", sizes(2, 6, 5, 3)), case("h2", sizes(5, 2, 1, 4))),
    "bpe_train": (
        case("h1", dict(word_counts=letters(b"xyz"), n_merges=6), then=(dict(word_counts=letters(), n_merges=40),)),
        case("h2", dict(word_counts=of_text({"été": 3, "tête": 2, "tétée": 4, "鳥取": 1}), n_merges=9)),
    ),
    "bpe_encode": (
        case("h1", dict(word=b"ouvre?ourells", merges=MORE)),
        case("h2", dict(word=b"llllll", merges=MORE), then=(dict(word=b"re\xffou", merges=MORE[::-1]),)),
    ),
    "Tokenizer": (
        case("h1", **encode("Où?> l'ourse ll 👍🏽\r\n<?> <?", MORE, ["<?>", "<?>>", "?"])),
        case("h2", **decode([0xF0, 0x9F, 262, 255, 258, 264, 257], MORE, ["<?>", "<?>>", "?"])),
        case("h3", **read("special_ids", MORE, ["ü", "<?>"])),
    ),
    "pad_batch": (
        case("h1", dict(sequences=[[1, 13, 2], [13, 13, 13, 13, 5], [13]], pad_id=13, max_len=4)),
        case("h2", dict(sequences=tensors([7], [], [5, 2, 6]), pad_id=5)),
    ),
    "embed": (case("h1", dict(token_ids=random_ids((3, 2), 8), table=(8, 5))),),
    "embed_backward": (case("h1", gradient((3, 4), 8, 5)), case("h2", gradient((2, 1, 6), 13, 3))),
    "softmax": (
        case("h1", dict(x=(2, 5, 3, 4), dim=-3)),
        case("h2", dict(x=around(-3e4, 2e4, 0.0, width=4), dim=-1)),
        case("h3", dict(x=normal(6, 2, std=2.0), dim=0)),
    ),
    "sinusoidal_positions": (table("h1", 9, 12, base=61.0), table("h2", 3, 4, base=500.0, dtype="float32")),
    "shift_matrix": (shift("h1", -5, 8, base=61.0), shift("h2", 4, 12)),
    "position_distances": (
        case("h1", dict(positions=(7, 4)), atol=1e-5),
        case("h2", dict(positions=sinusoids(6, 10)), atol=1e-5),
    ),
    "LearnedPositions": (
        learned("h1", (2, 6, 5), 8, 2),
        learned("h2", (2, 6, 5), 8, 3, kind="edge", grad=False),
    ),
    "rope": (
        turned("h1", (3, 2, 4, 10), places([7, -3, 0, 5]), base=61.0),
        turned("h2", (4, 4, 4), places([2, 9, 4, 4])),
    ),
}

HIDDEN = {name: tuple(replace(one, hidden=True) for one in cases) for name, cases in _HIDDEN.items()}
