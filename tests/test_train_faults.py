"""A run that cannot go well: is it said in plain words, before anything is lost?"""

import json
import os
from types import SimpleNamespace

import pytest
import torch

from tests import train_toys as toys
from utils import handed_in, oracle
from utils.data import translation
from utils.train import TrainError, __main__, checkpoint, folder, parts, settings, texts
from utils.train import device as devices
from utils.train.settings import MODELS, TIERS


@pytest.fixture(autouse=True)
def twins(monkeypatch):
    """No learner's notebook is looked for."""
    monkeypatch.setattr(parts, "mine", lambda name: getattr(oracle, name))


def everything(out):
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


@pytest.fixture
def earlier(tmp_path):
    """The folder of a finished run."""
    toys.train(tmp_path)
    return tmp_path


# ---- checkpoints ---------------------------------------------------------------------------------


def cut(path):
    path.write_bytes(path.read_bytes()[:-7])


def flip(path):
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data))


SPOILED = {
    "a tensor file that is too short": ("step-*.safetensors", cut),
    "one wrong bit": ("step-*.safetensors", flip),
    "no tensor file": ("step-*.safetensors", lambda path: path.unlink()),
    "half an index": (checkpoint.INDEX, cut),
    "an empty index": (checkpoint.INDEX, lambda path: path.write_bytes(b"")),
    "another program's": (checkpoint.INDEX, lambda path: path.write_text('{"format": "theirs"}')),
    "no object": (checkpoint.INDEX, lambda path: path.write_text("[]")),
    "parts missing": (checkpoint.INDEX, lambda path: path.write_text(json.dumps({"format": checkpoint.FORMAT}))),
    "a path": (checkpoint.INDEX, lambda path: path.write_text(path.read_text().replace("step-", "../step-"))),
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_damaged_checkpoint_is_named_and_nothing_is_overwritten(earlier, how):
    """A spoiled file: an error that names it, and every byte in the folder as it was?"""
    name, spoil = SPOILED[how]
    spoil(next((earlier / "checkpoint").glob(name)))
    before = everything(earlier)
    with pytest.raises(TrainError, match="is damaged or not ours.*Nothing was changed.*another folder"):
        toys.train(earlier)
    assert everything(earlier) == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (dict(lr=0.5), "another run: lr 0.004 there and 0.5 here"),
        (dict(d_model=32), "another run: d_model 16 there and 32 here"),
        (dict(track="a"), "another vocabulary: vocabulary [11] there and [12, 12] here"),
        (dict(text=toys.Stream(vocab_size=13)), "another vocabulary: vocabulary [11] there and [13] here"),
        (dict(text=SimpleNamespace(fingerprint="new")), "other text: text toy b there and new here"),
    ],
)
def test_a_foreign_checkpoint_is_refused(earlier, changes, said):
    """Other settings, another vocabulary, another text: is the difference named, and nothing overwritten?"""
    before = everything(earlier)
    if isinstance(changes.get("text"), SimpleNamespace):
        changes = dict(text=toys.Stream())
        changes["text"].fingerprint = "new"
    with pytest.raises(TrainError) as caught:
        toys.train(earlier, **changes)
    assert f"belongs to {said}" in str(caught.value) and "Nothing was changed" in str(caught.value)
    assert everything(earlier) == before


def test_what_does_not_shape_a_run_may_change(tmp_path):
    """Other lines in the log, other checkpoints, other parts of a batch: is it still the same run?"""
    toys.train(tmp_path)
    assert toys.train(tmp_path, log_every=3, checkpoint_every=2, accumulation=2, eval_every=5).steps_done == 6


@pytest.mark.parametrize("when", ["tensors", "index"])
def test_a_crash_while_saving_leaves_the_old_checkpoint(tmp_path, monkeypatch, when):
    """The disk is full, or the power fails, between any two steps of saving: is the earlier checkpoint whole?"""
    replaced = os.replace

    def full(source, target):
        if "step-00000004" in str(target) if when == "tensors" else (calls := calls_of(target)) and calls == 2:
            raise OSError(28, "No space left on device")
        replaced(source, target)

    seen = []

    def calls_of(target):
        if str(target).endswith(checkpoint.INDEX):
            seen.append(target)
            return len(seen)
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(TrainError, match="step 4 could not be written.*No space left.*unharmed"):
            toys.train(tmp_path, checkpoint_every=2)
    assert not [name for name in everything(tmp_path) if name.endswith(".tmp")]
    assert json.loads((tmp_path / "checkpoint" / checkpoint.INDEX).read_text())["step"] == 2
    rest = toys.train(tmp_path, checkpoint_every=2)
    assert toys.equal(toys.weights_of(rest), toys.weights_of(toys.train(tmp_path / "whole")))


def test_a_checkpoint_is_no_pickle(earlier):
    """What is read back could come from anybody: are there only safetensors and JSON?"""
    names = [name for name in everything(earlier) if name.startswith("checkpoint")]
    assert sorted(name.rpartition(".")[2] for name in names) == ["json", "safetensors"]
    json.loads((earlier / "checkpoint" / checkpoint.INDEX).read_text())


# ---- folders and texts ---------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_is_said_at_once(tmp_path, monkeypatch):
    """A file in the way, or a disk that refuses: an error before a model is made?"""
    monkeypatch.setattr(parts, "build", lambda *args: pytest.fail("a model was made first"))
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(TrainError, match="nothing can be written to .*taken"):
        toys.train(tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"

    def refuse(self, data):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(folder.Path, "write_bytes", refuse)
    with pytest.raises(TrainError, match="Permission denied"):
        toys.train(tmp_path / "new")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (dict(text=toys.Stream(n_tokens=0)), "the text is empty"),
        (dict(text=toys.Stream(n_tokens=10)), "seq_len 12 is too long: the text has 10 tokens"),
        (dict(track="a", text=toys.Corpus(n_pairs=0)), "the corpus is empty"),
    ],
)
def test_a_text_that_is_not_enough_is_said(tmp_path, changes, said):
    """Nothing to learn from, or less than one sequence: a plain error, and no folder made?"""
    with pytest.raises(TrainError, match=said):
        toys.train(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


def test_a_corpus_without_a_network_is_replaced_and_said(monkeypatch):
    """A real corpus that cannot be fetched: one line, and the course's own text?"""
    from utils.data import real

    def unavailable(name):
        raise real.CorpusUnavailable(f"{name} could not be fetched")

    monkeypatch.setattr(real, "load", unavailable)
    said = []
    task = texts.task_of(toys.config("a", n_pairs=50, corpus="multi30k"), say=said.append)
    assert said[0] == "… multi30k could not be fetched" and said[1].startswith("Text: 50 pairs")
    assert len(task.corpus.train) == 50
    monkeypatch.setattr(real, "load", lambda name: [])
    with pytest.raises(TrainError, match="it goes with track a"):
        texts.task_of(toys.config("b", corpus="multi30k"), say=said.append)


# ---- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (dict(n_heads=3), "n_heads must divide d_model"),
        (dict(accumulation=9), "a batch of 8 cannot come in 9 parts"),
        (dict(steps=0), "steps must be at least 1"),
        (dict(lr=-1.0), "lr and clip must be positive"),
        (dict(dropout=1.0), "dropout must be at least 0 and below 1"),
        (dict(kernels="fast"), "kernels must be one of own, fused"),
        (dict(learning_rate=1.0), "there is no setting learning_rate"),
        (dict(device="gpu"), "there is no device called 'gpu'"),
        (dict(fsdp=True), "start with torchrun"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path, changes, said):
    """A slip in the settings: is it named in the reader's words?"""
    with pytest.raises(TrainError, match=said):
        toys.train(tmp_path, **changes)


@pytest.mark.parametrize("track", "ab")
@pytest.mark.parametrize("tier", TIERS)
def test_every_tier_of_both_tracks_has_settings(track, tier):
    """Can each be made, and does it say which it is?"""
    made = settings(track, tier)
    assert (made.track, made.tier) == (track, tier) and made.precision == "fp32"
    assert made.kernels == ("own" if tier == "smoke" else "fused")


@pytest.mark.parametrize("tier", TIERS)
def test_a_translator_of_every_tier_can_be_handed_in(tier):
    """Is its file, with the words of the course's corpus, small enough for every tier?"""
    config, words = settings("a", tier), [len(one) for one in translation.vocabularies()]
    with torch.device("meta"):
        model = oracle.Transformer(*words, config.d_model, config.n_heads, config.d_ff, config.n_layers)
    assert 4 * sum(parameter.numel() for parameter in model.parameters()) < 0.95 * handed_in.MOST


def test_a_named_model_brings_its_sizes():
    """--model on track b: its width and vocabulary; on track a, an error?"""
    for name, sizes in MODELS.items():
        assert {field: getattr(settings("b", "h100", name), field) for field in sizes} == sizes
    assert settings("b", "h100").d_model == 640 and settings("b", "t4").d_model == 384
    with pytest.raises(TrainError, match="belongs to track b"):
        settings("a", "smoke", "10m")


def gpu(monkeypatch, capability, gigabytes):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *args: pytest.fail("it says yes where it is emulated"))
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=gigabytes * 2**30)
    )


@pytest.mark.parametrize(
    ("capability", "gigabytes", "tier", "precision"),
    [((7, 5), 15, "t4", "fp16"), ((7, 0), 40, "t4", "fp16"), ((8, 6), 24, "t4", "bf16"), ((9, 0), 80, "h100", "bf16")],
)
def test_the_device_chooses_tier_and_precision(monkeypatch, capability, gigabytes, tier, precision):
    """A T4, a V100, an RTX 3090, an H100: the tier that fits, and bf16 only from capability 8.0 on?"""
    gpu(monkeypatch, capability, gigabytes)
    made = settings("b")
    assert (made.tier, made.precision, made.device) == (tier, precision, "cuda:0")
    assert made.compile is (tier == "h100")
    if precision == "fp16":
        with pytest.raises(TrainError, match="has no bf16"):
            settings("b", precision="bf16")


def test_without_a_gpu_it_is_the_smoke_tier():
    """A laptop: smoke, in float32, on the CPU?"""
    if not torch.cuda.is_available():
        assert (settings("a").tier, settings("a").precision, settings("a").device) == ("smoke", "fp32", "cpu")
        with pytest.raises(TrainError, match="torch sees no GPU"):
            devices.choose("cuda")


class Drifting(torch.nn.TransformerEncoderLayer):
    """The second device it is asked on computes a little too much."""

    def forward(self, *args, **options):
        self.asked = getattr(self, "asked", 0) + 1
        return super().forward(*args, **options) * (1 + 0.01 * (self.asked - 1))


def test_a_macs_gpu_is_taken_only_if_it_agrees_with_the_cpu(monkeypatch):
    """Where MPS computes other numbers, or is not there: a sentence instead of a run that learns nonsense?"""
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(TrainError, match="no GPU of a Mac"):
        devices.choose("mps")
    cpu = torch.device("cpu")
    assert devices.disagreement(cpu) is None
    monkeypatch.setattr(torch.nn, "TransformerEncoderLayer", Drifting)
    assert devices.disagreement(cpu) == "output"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(devices, "disagreement", lambda device: "output")
    with pytest.raises(TrainError, match="differ in the output of a small block: use --device cpu"):
        devices.choose("mps")


# ---- the command line ----------------------------------------------------------------------------


def test_the_command_line_is_derived_from_the_settings():
    """Is every field an option, with its type, under both spellings?"""
    options = vars(
        __main__.parser().parse_args("--track b --out x --batch-size 4 --seq_len 9 --lr 1e-4 --compile".split())
    )
    assert (options["batch_size"], options["seq_len"], options["lr"], options["compile"]) == (4, 9, 1e-4, True)
    assert options["steps"] is None and options["tier"] is None
    assert set(options) >= {field.name for field in settings("a", "smoke").__dataclass_fields__.values()}


def test_the_command_line_trains_and_says_what_is_wrong(tmp_path, monkeypatch, capsys):
    """Run it: 0 when all is done, 1 with one line for what the reader can put right?"""
    monkeypatch.setattr(__main__, "task_of", lambda config, **options: toys.task(config))
    small = " ".join(f"--{name} {value}" for name, value in toys.SMALL.items() if name != "device")
    line = f"--track b --tier smoke --seq-len 12 {small} --out {tmp_path}"
    assert __main__.main(line.split()) == 0
    assert "Held-out text" in capsys.readouterr().out
    assert __main__.main(f"{line} --seed 5".split()) == 1
    assert capsys.readouterr().err.startswith("✗ the checkpoint in ")
    assert __main__.main(f"{line} --seed 5 --anew --quiet".split()) == 0
    assert capsys.readouterr().out == ""


def test_an_error_of_the_readers_shows_no_traceback():
    """In a notebook: is the message all that is shown?"""
    assert TrainError("choose another folder")._render_traceback_() == ["✗ choose another folder"]
