"""`fit`: one loop for both tracks, every device, one process or many. Settings in, a trained model and its papers out.

A step is a function of the seed, its number and the weights; so stopping anywhere and going on changes nothing.
"""

import contextlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

from utils.train import checkpoint, memory, report
from utils.train import device as devices
from utils.train import parts as made_of
from utils.train.compiling import compiled
from utils.train.errors import TrainError
from utils.train.folder import prepare, set_aside
from utils.train.many import team as team_of
from utils.train.settings import identity, settled
from utils.train.stopping import Stop
from utils.train.update import Updater, ran_out_of_memory
from utils.train.watching import Watcher


@dataclass
class Run:
    """What fit gives back."""

    model: torch.nn.Module = field(repr=False)
    log: list = field(repr=False)  # the rows of log.jsonl
    out: Path
    steps_done: int
    stopped: str | None  # None: all steps were made; else why not
    report: dict = field(repr=False, default_factory=dict)  # what report.json holds


def fit(config, task, out, resume="auto", watch=True):
    """Train a task's model and leave checkpoint/, weights.safetensors, log.jsonl and report.json in the folder `out`.

    resume="auto": goes on from the checkpoint in `out`, bit for bit as if it had never stopped (on a CPU)
    resume=False: starts anew, and what lies there moves to a folder earlier-N. watch=False: says nothing.
    Stop it with Ctrl-C or the notebook's stop button: the update under way is finished and saved, `stopped` says so.
    Raises TrainError, in plain words, before anything is overwritten. torch's random state is given back as it was.
    """
    with devices.as_found():
        return _Session(settled(config), task, Path(out), resume, watch).run()


class _Session:
    def __init__(self, config, task, out, resume, watch):
        if (task.config.track, task.config.seed) != (config.track, config.seed):
            raise TrainError("the task was made with another config; make it with the one you give to fit")
        self.config, self.task, self.out = config, task, out
        self.team = team_of(config)
        self.first, self.device = self.team.rank == 0, torch.device(config.device)
        self.step, self.seconds, self.cpu_seconds, self.tokens = 0, 0.0, 0.0, 0
        self.identity = {"vocabulary": list(task.vocabulary), "text": task.fingerprint} | identity(config)
        self.team.same(self.identity, "settings or text")
        if self.first:
            prepare(out)
        state = checkpoint.read(out / "checkpoint", self.identity, self.device) if resume else None
        self.team.same(state and state["step"], "checkpoint")
        torch.set_float32_matmul_precision("high")
        self.held = memory.forget(self.device)
        self._make(quiet=not (watch and self.first))
        if state is not None:
            self._restore(state)
        elif self.first:
            set_aside(out)
        self.watcher = Watcher(config, out, self.step, watch, self.first)
        self.watcher.begin(self.step)
        self._introduce(state)

    def _make(self, quiet):
        self.plain, self.parts = self.task.model(quiet)
        self.n_parameters = sum(parameter.numel() for parameter in self.plain.parameters())
        self.needed = memory.estimate(self.plain, self.config, self.task.vocabulary, self.task.lengths)["total"]
        self.model = self.team.wrap(self.plain) if self.team.sharded else self.plain
        self.optimiser, whose = made_of.optimiser(self.config, self.model, self.team.sharded, quiet)
        functions, others = made_of.trainer_parts(self.config, quiet)
        if self.team.sharded:
            functions["clip_grad_norm_"], others["clip_grad_norm_"] = torch.nn.utils.clip_grad_norm_, "torch's"
        self.updater = Updater(self.config, self.task, self.model, self.optimiser, self.team, functions)
        if not self.updater.plain:
            others.pop("train_step", None)
        self.parts |= {"AdamW": whose} | others
        self.parts.setdefault("train_step", "the trainer's")

    def _restore(self, state):
        try:
            self.team.restore(self.model if self.team.sharded else self.plain, self.optimiser, state)
        except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
            changed = [name for name, whose in state["parts"].items() if self.parts.get(name) != whose]
            was = ", ".join(f"{name} ({state['parts'][name]})" for name in changed) or "parts as they were then"
            raise TrainError(
                f"the checkpoint in {self.out / 'checkpoint'} was made with {was}, and what runs now keeps "
                "its numbers in another form. Nothing was changed. Choose another folder (--out), or --anew"
            ) from error
        self.updater.restore(state["updater"])
        for name in ("step", "seconds", "cpu_seconds", "tokens"):
            setattr(self, name, state[name])

    def _introduce(self, state):
        say, config = self.watcher.say, self.config
        say(
            f"Track {config.track}, tier {config.tier}: {self.n_parameters:,} parameters, {config.steps:,} steps on "
            f"{devices.name_of(self.device)} in {config.precision}, {self.team.name} × {self.team.world}"
        )
        say("Parts: " + ", ".join(f"{name} {whose}" for name, whose in self.parts.items()))
        say(f"Memory: about {self.needed / memory.MIB:,.0f} MiB expected")
        if line := memory.warning(self.needed, memory.free(self.device)):
            say(f"! {line}")
        if state is None:
            return
        say(f"Going on from step {self.step} of {config.steps}")
        if changed := [name for name, whose in state["parts"].items() if self.parts.get(name) != whose]:
            say(f"! these parts were others when it was saved: {', '.join(changed)}; the run is no longer exact")

    # ---- the loop --------------------------------------------------------------------------------

    def run(self):
        stopped = None
        try:
            done = self.step >= self.config.steps
            self.compile_seconds = 0.0 if done else self._compile()
            self.plain.train()
            with Stop() as stop:
                while self.step < self.config.steps:
                    self._one_step()
                    if self.team.any(stop.asked is not None):
                        stopped = stop.asked or "another process was told to stop"
                        break
            if not done:
                self.save()
            return self._finish(stopped)
        finally:
            self.watcher.close()

    def _one_step(self):
        config = self.config
        devices.synchronise(self.device)
        began, cpu_began = time.perf_counter(), time.process_time()
        row = self._update()
        if self.updater.lost:
            self.watcher.say(f"! {self.updater.lost}; the trainer's own step goes on")
            self.parts["train_step"], self.updater.lost = "the trainer's", None
        devices.synchronise(self.device)
        self.seconds += time.perf_counter() - began
        self.cpu_seconds += time.process_time() - cpu_began
        self.tokens += self.task.count(self.step)
        self.step += 1
        if row["skipped"]:
            self.watcher.say(f"! step {self.step}: a gradient was not finite, so this update was left out")
        row = {"step": self.step} | row | {"seconds": round(self.seconds, 3)}
        row["tokens_per_second"] = round(self.tokens / self.seconds, 1)
        self.watcher.step(self.step, row["loss"])
        last = self.step == config.steps
        if config.eval_every and self.step % config.eval_every == 0 and not last:
            row |= self._evaluate(limit=200 if config.track == "a" else 20_000)
        if self.step % config.log_every == 0 or last or row["skipped"] or self.step == 1 or len(row) > 7:
            self.watcher.log(row)
        if self.step % config.checkpoint_every == 0 and not last:
            self.save()

    def _update(self):
        """One update; where memory runs out, the same one again in smaller parts."""
        while True:
            try:
                return self.updater.update(self.step)
            except (RuntimeError, MemoryError) as error:
                if not ran_out_of_memory(error):
                    raise
                self._require_retry(error)
            # only here, with the error forgotten, is what it held free again
            self.updater.halve()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            rows = -(-self.config.batch_size // self.updater.accumulation)
            self.watcher.say(f"! memory ran out: from here on each batch comes in parts of {rows} sequences")

    def _require_retry(self, error):
        if self.updater.done:
            raise TrainError("memory ran out inside the optimiser: choose a smaller model") from error
        if self.team.world > 1:
            more = self.updater.accumulation * 2
            raise TrainError(
                f"process {self.team.rank} ran out of memory; start again with --accumulation {more}"
            ) from error

    def _compile(self):
        """Compile if that is wanted, then let the processes meet in the model. Returns the seconds of the first."""
        if self.team.sharded:  # its processes met when the weights were cut
            if self.config.compile:
                self.watcher.say("… --compile is left out with --fsdp")
            return 0.0
        model, seconds = self.plain, 0.0
        if self.config.compile:
            parts = self.team.world * self.updater.accumulation
            model, seconds = compiled(self.plain, self.task, parts, self.watcher.say)
        self.updater.use(self.team.wrap(model))
        return seconds

    # ---- what is kept ----------------------------------------------------------------------------

    def save(self):
        """A checkpoint of now. With shards every process takes part, the first one writes."""
        state = {"step": self.step, "parts": self.parts, "updater": self.updater.state(), "tokens": self.tokens}
        state |= {"seconds": self.seconds, "cpu_seconds": self.cpu_seconds}
        state["model"] = self.team.weights(self.model if self.team.sharded else self.plain)
        state["optimiser"] = self.team.optimiser_state(self.model, self.optimiser)
        if self.first:
            checkpoint.write(self.out / "checkpoint", state, self.identity)

    def _whole(self):
        """The model with all its weights, in the first process; None in the others."""
        if not self.team.sharded:
            return self.plain if self.first else None
        weights = self.team.weights(self.model)
        if not self.first:
            return None
        model, _ = self.task.model(quiet=True)
        model.load_state_dict(weights)
        return model

    def _evaluate(self, limit=None):
        """The task's measures, found by the first process; the others wait for it at the next update."""
        model = self._whole()
        return {} if model is None else self.task.evaluate(model, limit)

    def _finish(self, stopped):
        model, found = self._whole(), {}
        papers = report.read(self.out, self.step) if self.compile_seconds == 0.0 and stopped is None else None
        if self.first and papers is None:
            began = time.perf_counter()
            if stopped is None:
                found = self.task.evaluate(model)
                self.watcher.log({"step": self.step} | found)
            file = report.write_weights(self.out, model, self.config.track)
            papers = report.made(self, found, stopped, file, time.perf_counter() - began)
            with contextlib.suppress(OSError):
                checkpoint.replace(self.out / "report.json", (json.dumps(papers, indent=1) + "\n").encode())
        if self.first:
            for line in report.lines(papers):
                self.watcher.say(line)
        model = self.plain if model is None else model
        return Run(model, self.watcher.rows, self.out, self.step, stopped, papers or {})
