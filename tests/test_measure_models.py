"""utils.measure asks models: translations, where they looked, how they write; and puts it on a page."""

import json
import re
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests import train_toys as toys
from utils import measure, oracle, plots
from utils.config import ModelConfig
from utils.data import translation
from utils.measure import scaling, writing
from utils.measure.translation import shares

PAIRS = translation.fresh(3, 7)
LETTERS = ModelConfig(vocab_size=23, d_model=16, n_heads=4, n_layers=2, d_ff=24, max_len=24)


@pytest.fixture(scope="module")
def corpus():
    return translation.corpus(n_pairs=20, n_test=8)


@pytest.fixture(scope="module")
def small(corpus):
    torch.manual_seed(0)
    return oracle.Transformer(len(corpus.source_words), len(corpus.target_words), 16, 4, 24, 2)


class KnowsByHeart(nn.Module):
    """Looks sentences up; wrong about those whose number is in `errs`."""

    def __init__(self, corpus, pairs, errs=()):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        batch = corpus.encoded(pairs)
        self.known = {tuple(row[row > 0].tolist()): batch["tgt_out"][n] for n, row in enumerate(batch["src"])}
        self.errs = [list(self.known)[n] for n in errs]
        self.vocabulary = len(corpus.target_words)

    def forward(self, src, tgt, src_pad_mask=None, tgt_pad_mask=None):
        logits = torch.zeros(*tgt.shape, self.vocabulary)
        for row, (ids, real) in enumerate(zip(src, src_pad_mask, strict=True)):
            key = tuple(ids[real].tolist())
            for place in range(tgt.shape[1]):
                word = int(self.known[key][place]) if place < len(self.known[key]) else 2
                logits[row, place, word if key not in self.errs or place else 5] = 1
        return logits


def test_translations_come_in_order_and_end_with_their_sentence(corpus):
    """Are sentences of several lengths translated in the order they were given, without specials?"""
    model = KnowsByHeart(corpus, PAIRS)
    assert measure.translate(model, corpus, PAIRS) == [pair.target for pair in PAIRS]
    assert measure.translate(model, corpus, [PAIRS[3].source]) == [PAIRS[3].target]


def test_a_model_that_never_ends_is_stopped(corpus, small):
    """Does a model that never says eos come to an end, and is it left in the mode it was in?"""
    with torch.no_grad():
        kept = small.tgt_embedding.weight[2].clone()
        small.tgt_embedding.weight[2] = -100 * small.tgt_embedding.weight.mean(0)
    found = measure.translate(small.train(), corpus, ["The cat sat", "The cat sat"])
    with torch.no_grad():
        small.tgt_embedding.weight[2] = kept
    assert found[0] == found[1] and len(found[0].split()) <= 24 and small.training


def test_exact_match_counts_whole_sentences(corpus):
    """Is a sentence with one wrong word wrong, in each test by itself?"""
    pairs = [pair for test in corpus.tests.values() for pair in test]
    found = measure.exact_match(KnowsByHeart(corpus, pairs, errs=(0, 1, 9)), corpus)
    assert {name: share.right for name, share in found.items()} == {"iid": 6, "compositional": 7, "length": 8}


def test_a_finished_run_is_not_asked_again(corpus):
    """Are the rates in a run's report used, with the bounds that the tests' sizes allow?"""
    found = measure.exact_match(type("Run", (), {"report": {"exact_match_iid": 0.75}, "model": None}), corpus)
    assert found["iid"] == measure.share_of(6, 8) and set(found) == {"iid"}


def test_bleu_is_sacrebleus():
    """Is it the course's own BLEU, too?"""
    said, wanted = ["el gato se sentó aquí", "la casa"], ["el gato se sentó allí", "la casa roja"]
    assert measure.bleu(said, wanted) == pytest.approx(oracle.bleu(said, wanted)["bleu"])


# ---- where it looked -----------------------------------------------------------------------------


def test_cross_attention_is_read_row_by_row(corpus, small):
    """Is there a row for each Spanish word and a column for each English one, and do rows sum to 1?"""
    pair = PAIRS[0]
    layers = measure.cross_attention(small, corpus, pair)
    assert len(layers) == 2
    for weights in layers:
        assert weights.shape == (4, len(pair.target.split()), len(pair.source.split()))
        assert torch.allclose(weights.sum(-1), torch.ones(1))


def test_alignment_is_judged_against_gold(corpus, small):
    """Does an align that knows the truth find all of it, and one that knows nothing nothing?"""
    answers = iter([pair.alignment for _ in range(2) for pair in PAIRS])
    assert measure.alignment_rate(small, corpus, PAIRS, lambda weights, mask: list(next(answers))) == [1.0, 1.0]
    assert measure.alignment_rate(small, corpus, PAIRS, lambda weights, mask: []) == [0.0, 0.0]


def test_attention_that_cannot_be_read_is_said_to_be(corpus):
    """Does a module with other names get a plain sentence instead of a picture of something else?"""
    with pytest.raises(measure.MeasureError, match="cannot be read"):
        measure.cross_attention(KnowsByHeart(corpus, PAIRS), corpus, PAIRS[0])


# ---- writing -------------------------------------------------------------------------------------


def test_generation_loses_nothing():
    """Do cache and speculation write the same tokens, is INT8 smaller, and is the model left alone?"""
    torch.manual_seed(0)
    model = oracle.GPT(LETTERS)
    before = {name: part.clone() for name, part in model.state_dict().items()}
    found = measure.generation(model, torch.tensor([[1, 2, 3]]), n_tokens=8, bandwidth=1e9)
    found = {one.name: one for one in found}
    assert list(found) == ["cached", "speculative", "int8"]
    assert found["cached"].numbers["same"] and found["speculative"].numbers["same"]
    assert 0 < found["cached"].numbers["R_decode"] < 1 and "R_decode" in str(found["cached"])
    assert found["int8"].numbers["bytes_int8"] < found["int8"].numbers["bytes"]
    assert all(torch.equal(part, before[name]) for name, part in model.state_dict().items())


def test_a_part_that_does_not_fit_costs_one_line_only(monkeypatch):
    """If a learner's generate fails on the model, does the line say so, and do the others come?"""

    def part(name, own=writing.part):
        return ((lambda *args, **options: 1 / 0), "yours") if name == "speculative_generate" else own(name)

    monkeypatch.setattr(writing, "part", part)
    found = measure.generation(oracle.GPT(LETTERS), torch.tensor([[1, 2]]), n_tokens=3)
    assert "not measured: division by zero" in str(found[1]) and found[0].numbers and found[2].numbers


# ---- the page ------------------------------------------------------------------------------------


def read(path):
    return path.read_text("utf8")


def test_the_card_is_whole_and_asks_nobody(tmp_path, corpus, small):
    """Does the page hold pictures, numbers and whose parts ran, without a single address outside?"""
    run = toys.train(tmp_path / "b", track="b")
    report = run.report | {"track": "a", "bits_per_byte": None, "exact_match": 0.995, "exact_match_iid": 0.75}
    pseudo = type("Run", (), {"report": report, "log": run.log, "model": small})
    ceilings = dict(peak=1e11, bandwidth=1e10)
    page = read(measure.report_card([pseudo, run], tmp_path / "card.html", corpus, {"bz2": 1.7}, **ceilings))
    assert not re.search(r"(?:src|href)=.(?!data:)|https?:", page) and page.count("data:image/png;base64,") >= 4
    for text in ("99.5%", "bz2 1.70", "R_compute", "Whose part ran where", "AdamW", "prefers-color-scheme: dark"):
        assert text in page
    assert 'alt="' in page and 'alt=""' not in page


def test_what_was_not_measured_says_so(tmp_path):
    """Does a report alone, without a model, corpus or ceilings, give an honest page?"""
    toys.train(tmp_path / "b", track="b")
    report = json.loads(read(tmp_path / "b" / "report.json"))
    report["parts"] = {"GPT": "<script>alert(1)</script>"}
    page = read(measure.report_card([report], tmp_path / "card.html"))
    assert "not measured" in page and "<script>" not in page and "&lt;script&gt;" in page


def test_nothing_but_a_card_is_overwritten(tmp_path):
    """Is a file that is no report card left as it is, and an earlier card replaced?"""
    toys.train(tmp_path / "b", track="b")
    (tmp_path / "notes.html").write_text("mine")
    with pytest.raises(measure.MeasureError, match="left as it is"):
        measure.report_card([tmp_path / "b"], tmp_path / "notes.html")
    assert read(tmp_path / "notes.html") == "mine"
    for _ in range(2):
        measure.report_card([tmp_path / "b"], tmp_path / "card.html")
    with pytest.raises(measure.MeasureError, match="no report of a finished run"):
        measure.report_card([tmp_path / "nothing"], tmp_path / "card.html")


def test_the_oral_exam_holds_the_runs_numbers():
    """Are there ten questions, with the learner's own numbers, and sentences where a number is missing?"""
    a = {"exact_match": 0.987, "exact_match_iid": 0.987, "steps_done": 960}
    b = {"parameters": 173_824, "tokens_per_second": 8222.0, "bits_per_byte": 2.433, "steps_done": 400}
    questions = measure.oral_exam(a, b, rivals={"bz2": 1.876})
    text = " ".join(questions)
    assert len(questions) == 10 and all("?" in question for question in questions)
    for number in ("98.7%", "173,824", "8,222", "2.43", "1.88", "(not measured)"):
        assert number in text


def test_pictures_of_a_run_are_drawn():
    """Does each picture come from numbers alone, with labelled axes?"""
    points = measure.crossover("cpu", lengths=(8, 16))
    found = scaling.judge([1e5, 2e5, 4e5], [2.5, 2.4, 2.3])
    for figure in (plots.crossover(points), plots.sweep(found), plots.bits_ladder({"bz2": 1.7, "your model": 2.4})):
        assert figure.axes[0].get_xlabel()


def test_a_run_is_as_sure_as_the_sentences_it_tried():
    """A run's end translates 300 long sentences of 1,000: does the range say 300?"""
    corpus = SimpleNamespace(tests={"iid": [None] * 1000, "length": [None] * 1000})
    found = shares({"exact_match_iid": 0.99, "exact_match_length": 0.6}, corpus)
    assert (found["iid"].right, found["iid"].n) == (990, 1000)
    assert (found["length"].right, found["length"].n) == (180, 300)
