"""A run of the trainer: does it learn, can it be stopped, resumed and starved, and does it lose nothing?"""

import json
import os
import signal

import pytest
import torch
from tqdm import tqdm

from autograde.kill_matrix import namespace, solution_cells
from tests import train_toys as toys
from utils import oracle
from utils.train import TrainError, loop, parts, update

SOLVED = ("AdamW", "learning_rate", "clip_grad_norm_", "train_step")


@pytest.fixture(autouse=True)
def twins(monkeypatch):
    """No learner's notebook is looked for."""
    monkeypatch.setattr(parts, "mine", lambda name: getattr(oracle, name))


@pytest.fixture(scope="module")
def solved():
    return namespace(solution_cells("phase5_training_and_inference"))


@pytest.fixture
def learners(monkeypatch, solved):
    """A learner who has solved phase 5."""
    monkeypatch.setattr(parts, "mine", lambda name: solved[name] if name in SOLVED else getattr(oracle, name))


def fails(error):
    def failing(*args):
        raise error

    return failing


@pytest.mark.parametrize(("track", "measure"), [("a", "exact_match"), ("b", "bits_per_byte")])
def test_a_run_learns_and_leaves_its_papers(tmp_path, track, measure):
    """Does the loss fall, and do the four papers lie there with what was measured and with nothing else?"""
    state = torch.get_rng_state()
    run = toys.train(tmp_path, track, steps=60, lr=1e-2, eval_every=30)
    assert torch.equal(state, torch.get_rng_state())
    assert run.stopped is None and run.steps_done == 60
    losses = [row["loss"] for row in run.log if "loss" in row]
    assert losses[-1] < 0.7 * losses[0]
    assert [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()] == run.log
    papers = json.loads((tmp_path / "report.json").read_text())
    assert papers == run.report and papers["weights_stored"] and papers["tokens_per_second"] > 0
    assert papers["can_be_handed_in"] == (track == "a")
    assert [name for name in ("exact_match", "bits_per_byte") if papers[name] is not None] == [measure]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint", "log.jsonl", "report.json", "weights.safetensors",
    ]  # fmt: skip


def interrupted(monkeypatch, after, action):
    """Do something in the middle of a run: right after update number `after` is made."""
    made = update.Updater.update

    def updated(self, step):
        row = made(self, step)
        if step == after:
            action()
        return row

    monkeypatch.setattr(update.Updater, "update", updated)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("track", "kernels"), [("a", "own"), ("b", "own"), ("b", "fused")])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(tmp_path, monkeypatch, learners, track, kernels, number):
    """Ctrl-C at any step, the same command again: weights, log and memory of AdamW as if nothing had happened?"""
    options = dict(dropout=0.2, kernels=kernels, accumulation=2)
    whole = toys.train(tmp_path / "whole", track, **options)
    with monkeypatch.context() as patch:
        interrupted(patch, 2, lambda: os.kill(os.getpid(), number))
        part = toys.train(tmp_path / "part", track, **options)
    assert part.steps_done == 3 and part.stopped == f"stopped by {number.name}"
    assert (tmp_path / "part" / "weights.safetensors").is_file() and part.report["exact_match"] is None
    rest = toys.train(tmp_path / "part", track, **options)
    assert rest.steps_done == 6 and toys.equal(toys.weights_of(whole), toys.weights_of(rest))
    told = [[(row["step"], row.get("loss"), row.get("grad_norm")) for row in run.log] for run in (whole, rest)]
    assert told[0] == told[1]
    assert rest.report["parts"]["AdamW"] == (parts.YOURS if kernels == "own" else "torch's fused")


def test_parts_that_changed_since_are_named(tmp_path, monkeypatch, learners):
    """Saved with the learner's AdamW, which then was broken: is that said, and the checkpoint kept as it is?"""
    with monkeypatch.context() as patch:
        interrupted(patch, 2, lambda: os.kill(os.getpid(), signal.SIGINT))
        toys.train(tmp_path)
    before = (tmp_path / "checkpoint" / "checkpoint.json").read_bytes()
    monkeypatch.setattr(parts, "mine", lambda name: getattr(oracle, name))
    with pytest.raises(TrainError, match=r"was made with AdamW \(yours\), .*another form. Nothing was changed"):
        toys.train(tmp_path)
    assert (tmp_path / "checkpoint" / "checkpoint.json").read_bytes() == before


def test_two_runs_of_one_seed_are_one(tmp_path):
    """The same seed twice, another seed once?"""
    one, same, other = (
        toys.weights_of(toys.train(tmp_path / name, dropout=0.1, seed=seed))
        for name, seed in (("1", 5), ("2", 5), ("3", 6))
    )
    assert toys.equal(one, same) and not toys.equal(one, other)


def test_a_finished_run_is_not_run_again(tmp_path, monkeypatch):
    """The cell is run once more: is the model loaded, and no step made and nothing evaluated?"""
    first = toys.train(tmp_path)
    monkeypatch.setattr(update.Updater, "update", lambda *args: pytest.fail("a step was made"))
    monkeypatch.setattr(toys.Stream, "windows", lambda *args, **options: pytest.fail("it was evaluated again"))
    again = toys.train(tmp_path)
    assert toys.equal(toys.weights_of(first), toys.weights_of(again)) and again.report == first.report
    assert again.log == first.log


def test_starting_anew_loses_nothing(tmp_path):
    """resume=False over an earlier run: is the earlier one kept whole, aside?"""
    toys.train(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    toys.train(tmp_path, resume=False, seed=3)
    toys.train(tmp_path, resume=False, seed=4)
    assert {name: (tmp_path / "earlier-1" / name).read_bytes() for name in before} == before
    assert (tmp_path / "earlier-1" / "checkpoint" / "checkpoint.json").is_file()
    assert (tmp_path / "earlier-2" / "weights.safetensors").is_file()


@pytest.mark.parametrize("kernels", ["own", "fused"])
def test_parts_of_a_batch_make_the_same_step(tmp_path, kernels, learners):
    """A batch in one part or in four: the same loss and the same weights but for the last bits?"""
    whole, parted = (toys.train(tmp_path / str(n), "a", accumulation=n, kernels=kernels) for n in (1, 4))
    assert whole.log[-2]["loss"] == pytest.approx(parted.log[-2]["loss"], rel=1e-5)
    for name, tensor in toys.weights_of(whole).items():
        if not name.endswith("w_k.bias"):  # softmax does not feel it: its gradient is rounding, and Adam blows that up
            assert torch.allclose(tensor, toys.weights_of(parted)[name], atol=2e-4), name


@pytest.mark.parametrize("kernels", ["own", "fused"])
def test_a_gradient_that_is_not_finite_is_left_out(tmp_path, monkeypatch, kernels, learners, capsys):
    """NaN in one gradient: is that update skipped, said, counted, and does the run go on?"""
    clip = update.Updater._clip_and_step

    def poisoned(self):
        if len(seen := poisoned.__dict__.setdefault("seen", [])) == 2:
            self.parameters[0].grad[0] = torch.nan
        seen.append(1)
        clip(self)

    monkeypatch.setattr(update.Updater, "_clip_and_step", poisoned)
    run = toys.train(tmp_path, watch=True, kernels=kernels)
    assert [row["skipped"] for row in run.log if "loss" in row] == [False, False, True, False, False, False]
    assert run.report["skipped_steps"] == 1 and "step 3: a gradient was not finite" in capsys.readouterr().out
    assert all(bool(tensor.isfinite().all()) for tensor in toys.weights_of(run).values())


def test_ten_in_a_row_end_the_run(tmp_path, monkeypatch):
    """Everything is NaN: a plain message after ten, and the last checkpoint unharmed?"""
    loss = toys.Language.loss

    def broken(self, model, batch):
        total, count = loss(self, model, batch)
        return total * (torch.nan if self._whole[0] >= 5 else 1), count

    monkeypatch.setattr(toys.Language, "loss", broken)
    with pytest.raises(TrainError, match="10 updates in a row"):
        toys.train(tmp_path, steps=30, checkpoint_every=4)
    index = json.loads((tmp_path / "checkpoint" / "checkpoint.json").read_text())
    assert index["step"] in (4, 8, 12) and len((tmp_path / "log.jsonl").read_text().splitlines()) >= 13


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_when_memory_runs_out_the_batch_is_halved(tmp_path, monkeypatch, error, capsys):
    """Parts of more than two sequences do not fit: is the same step made in smaller parts, with the same result?"""
    plain = toys.train(tmp_path / "plain")
    loss = toys.Language.loss

    def cramped(self, model, batch):
        if len(batch["tokens"]) > 2 and model.training:
            raise error
        return loss(self, model, batch)

    monkeypatch.setattr(toys.Language, "loss", cramped)
    run = toys.train(tmp_path / "cramped", watch=True)
    assert run.steps_done == 6 and run.report["accumulation"] == 4
    assert "in parts of 4 sequences" in (said := capsys.readouterr().out) and "in parts of 2 sequences" in said
    assert run.log[-2]["loss"] == pytest.approx(plain.log[-2]["loss"], rel=1e-5)


def test_a_train_step_that_cannot_take_the_batch_is_left(tmp_path, monkeypatch, capsys):
    """A learner's train_step that asks its inputs for a shape: does the trainer's own go on, said once?"""

    def narrow(model, optimizer, micro_batches, max_norm):
        inputs, _ = micro_batches[0]
        return oracle.train_step(model, optimizer, micro_batches, max_norm) if inputs.shape else None

    known = {"train_step": narrow}
    monkeypatch.setattr(parts, "mine", lambda name: known.get(name) or getattr(oracle, name))
    run = toys.train(tmp_path, "a", watch=True)
    assert capsys.readouterr().out.count("your train_step could not take this batch (AttributeError") == 1
    assert run.steps_done == 6 and run.report["parts"]["train_step"] == "the trainer's"
    assert toys.train(tmp_path / "b", "b").report["parts"]["train_step"] == parts.YOURS


def test_memory_that_never_suffices_is_said(tmp_path, monkeypatch):
    """Not even one sequence fits: an error in plain words, not an endless loop? And other errors pass as they are?"""
    monkeypatch.setattr(toys.Language, "loss", fails(torch.OutOfMemoryError("no")))
    with pytest.raises(TrainError, match="not even one sequence"):
        toys.train(tmp_path / "1")
    monkeypatch.setattr(toys.Language, "loss", fails(RuntimeError("size mismatch")))
    with pytest.raises(RuntimeError, match="size mismatch"):
        toys.train(tmp_path / "2")


def test_fp16_scales_its_loss_and_keeps_the_scale(tmp_path, monkeypatch):
    """Half precision: is a loss that overflows scaled down, and does a resumed run know the scale?"""
    scales = []
    made = update.Updater.update
    monkeypatch.setattr(
        update.Updater, "update", lambda self, step: (made(self, step), scales.append(self.scaler.get_scale()))[0]
    )
    monkeypatch.setattr(update, "FIRST_SCALE", 2.0**24)
    whole = toys.train(tmp_path / "whole", precision="fp16", kernels="fused", steps=12)
    assert whole.report["skipped_steps"] > 0 and scales[-1] < 2.0**24 and not whole.log[-2]["skipped"]
    expected, scales[:] = scales[:], []
    with monkeypatch.context() as patch:
        interrupted(patch, 4, lambda: os.kill(os.getpid(), signal.SIGINT))
        toys.train(tmp_path / "part", precision="fp16", kernels="fused", steps=12)
    rest = toys.train(tmp_path / "part", precision="fp16", kernels="fused", steps=12)
    assert scales == expected and toys.equal(toys.weights_of(whole), toys.weights_of(rest))


def test_a_compiler_that_fails_costs_one_line(tmp_path, monkeypatch, capsys):
    """torch.compile raises: does the run go on as it was, with one plain line and the same numbers?"""
    eager = toys.train(tmp_path / "eager")
    monkeypatch.setattr(
        torch, "compile", lambda model: lambda *args: (_ for _ in ()).throw(OSError("no compiler\nhere"))
    )
    run = toys.train(tmp_path / "compiled", compile=True, watch=True)
    assert "running without torch.compile: no compiler\n" in capsys.readouterr().out
    assert toys.equal(toys.weights_of(eager), toys.weights_of(run))


def test_a_compiled_model_is_trained_and_saved_under_its_own_names(tmp_path, monkeypatch):
    """With a compiler that works: the same weights under the same names, and its seconds on their own?"""
    compiled = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model: compiled(model, backend="eager"))
    eager, run = toys.train(tmp_path / "1", kernels="fused"), toys.train(tmp_path / "2", kernels="fused", compile=True)
    assert toys.equal(toys.weights_of(eager), toys.weights_of(run)) and run.report["compile_seconds"] > 0


def test_nothing_is_said_on_stderr(tmp_path, capsys, monkeypatch):
    """nbgrader gives nothing for a cell that writes to stderr: does all go to stdout, and nothing when not asked?"""
    toys.train(tmp_path / "1", watch=True)
    said = capsys.readouterr()
    assert said.err == "" and "parameters" in said.out and "step 6 of 6" in said.out
    toys.train(tmp_path / "2")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    toys.train(tmp_path / "3", watch=True)
    assert capsys.readouterr().err == ""


def test_the_loss_is_drawn_anew_in_a_notebook(tmp_path, monkeypatch):
    """In a notebook: is one picture shown, and then replaced?"""
    from IPython import display as ipython

    from utils.train import watching

    shown = []

    class Handle:
        def update(self, page):
            shown.append("again")

    monkeypatch.setattr(watching, "_in_notebook", lambda: True)
    monkeypatch.setattr(watching, "EVERY", 0.0)
    monkeypatch.setattr(watching, "tqdm", tqdm)
    monkeypatch.setattr(ipython, "display", lambda page, display_id: shown.append("first") or Handle())
    toys.train(tmp_path, watch=True, steps=3)
    assert shown[0] == "first" and set(shown[1:]) == {"again"}


def test_the_batch_is_a_function_of_seed_and_step():
    """Parts of a batch, drawn in any order, after other steps: always the same rows?"""
    for track in "ab":
        made = toys.config(track)
        one, other = toys.task(made), toys.task(made)
        whole = one.whole(4)
        halves = [other.batch(4, part, 2) for part in (0, 1)]
        other.batch(2)
        assert all(torch.equal(whole[name], torch.cat([half[name] for half in halves])) for name in whole)
        assert toys.equal(one.batch(4, 1, 3), other.batch(4, 1, 3))
        assert one.count(4) == sum(int((one.pair(half)[1] != -100).sum()) for half in halves)


def test_a_task_of_other_settings_is_refused(tmp_path):
    """A task made for another run: a plain error?"""
    with pytest.raises(TrainError, match="another config"):
        loop.fit(toys.config("b", seed=1), toys.task(toys.config("b")), tmp_path)
