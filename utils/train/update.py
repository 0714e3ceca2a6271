"""One update: gradients of all parts, one clip, one step of the optimiser; or none where a number is not finite."""

import math

import torch
from torch import nn

from utils.train import device as devices
from utils.train.errors import TrainError

PATIENCE = 10  # updates in a row that may be skipped before something is wrong for good
FIRST_SCALE = 2.0**14  # for fp16; halved where it overflows, doubled after a thousand updates without
MEMORY_ERRORS = ("out of memory", "can't allocate memory", "not enough memory")


class Updater:
    """Holds what an update needs; `state` and `restore` are its share of a checkpoint.

    With fp16 the loss is multiplied by a large number before the backward pass, or small gradients would become 0.
    """

    def __init__(self, config, task, model, optimiser, team, functions):
        self.config, self.task, self.optimiser, self.team = config, task, optimiser, team
        self.functions = functions
        self.accumulation = config.accumulation
        self.skipped, self.in_a_row = 0, 0
        self.lost = None  # why the learner's train_step had to be left, if it had
        self.device = torch.device(config.device)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        scaling = config.precision == "fp16"
        scale = dict(init_scale=FIRST_SCALE, growth_interval=1_000)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=scaling, **scale)
        self.use(model)
        # GradScaler asks an optimiser for its param_groups; a learner's AdamW has none
        self.param_groups = [{"params": self.parameters}]

    def use(self, model):
        """Train through this wrapper of the model: the same parameters."""
        self.model, self.adapter = model, _Adapter(self.task, model)

    def rate(self, step):
        """The learning rate of update `step`, counted from 0: the first one already moves."""
        peak, config = self.config.lr, self.config
        return self.functions["learning_rate"](
            step + 1, peak, config.warmup_steps, config.steps + 1, peak * config.lr_floor
        )

    def update(self, step):
        """{"loss", "lr", "grad_norm", "skipped"} of one update; memory errors come as torch raises them."""
        lr = self.rate(step)
        self.optimiser.set_lr(lr)
        self.norm = math.nan
        self.done = False
        by = self._by_the_learner if "train_step" in self.functions and self.plain else self._by_parts
        loss = by(step)
        return {"loss": loss, "lr": lr, "grad_norm": self.norm, "skipped": not self.done}

    @property
    def plain(self):
        """One process, no scaled loss: what a learner's train_step was made for."""
        return self.team.world == 1 and not self.scaler.is_enabled()

    def _by_parts(self, step):
        parts = self.team.world * self.accumulation
        count, total = self.task.count(step), 0.0
        self.optimiser.zero_grad()
        for number in range(self.accumulation):
            part = self.team.rank * self.accumulation + number
            torch.manual_seed(self.seed(step, part))
            batch = self.task.batch(step, part, parts)
            with self.team.part(self.model, last=number == self.accumulation - 1):
                loss, _ = self.task.loss(self.model, batch)
                # the processes' gradients are averaged, and the sum is wanted: hence times world
                self.scaler.scale(loss * (self.team.world / count)).backward()
            total = total + loss.detach()
        if self.scaler.is_enabled():
            self.scaler.unscale_(self)
        self._clip_and_step()
        return self.team.total(total).item() / count

    def _by_the_learner(self, step):
        """The learner's own train_step; this object is its optimiser, so that clipping and skipping stay here."""
        torch.manual_seed(self.seed(step, 0))
        batches = [self.task.batch(step, part, self.accumulation) for part in range(self.accumulation)]
        pairs = [self.task.pair(batch) for batch in batches]
        try:
            return float(self.functions["train_step"](self.adapter, self, pairs, None))
        except Exception as error:  # whatever it is: if it is not the learner's, it comes again in a moment
            if self.done or ran_out_of_memory(error) or isinstance(error, TrainError):
                raise
            reason = (str(error).splitlines() or [""])[0]
            self.lost = f"your train_step could not take this batch ({type(error).__name__}: {reason})"
        del self.functions["train_step"]
        return self._by_parts(step)

    # what a train_step asks of its optimiser
    def zero_grad(self):
        self.optimiser.zero_grad()

    def step(self):
        self._clip_and_step()

    def _clip_and_step(self):
        norm = self.functions["clip_grad_norm_"](self.parameters, self.config.clip)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        self.norm = float(norm)  # waits for the device: one small wait per update, and every skip is seen at once
        self.done = math.isfinite(self.norm)
        if self.done:
            self.optimiser.step()
        if self.scaler.is_enabled():
            self.scaler.update()
        self.skipped += not self.done
        self.in_a_row = 0 if self.done else self.in_a_row + 1
        if self.in_a_row >= PATIENCE:
            raise TrainError(
                f"{PATIENCE} updates in a row had gradients that are not finite, so the run was stopped. The weights "
                "were left as they were before. Try a smaller lr, or precision fp32; the last checkpoint is unharmed"
            )

    def seed(self, step, part):
        """Dropout of a part depends on nothing but the run's seed, the step and the part."""
        return (self.config.seed * 1_000_003 + step) * 4_096 + part

    def halve(self):
        """Twice as many parts of half the size. Raises TrainError where a part is a single sequence already."""
        if self.accumulation * 2 * self.team.world > self.config.batch_size:
            raise TrainError("not even one sequence fits into memory: choose a smaller seq_len or a smaller model")
        self.optimiser.zero_grad()
        self.accumulation *= 2

    def state(self):
        scaler = self.scaler.state_dict() if self.scaler.is_enabled() else {}
        counts = {"skipped": self.skipped, "in_a_row": self.in_a_row, "accumulation": self.accumulation}
        return counts | {"scaler": scaler}

    def restore(self, state):
        self.skipped, self.in_a_row, self.accumulation = (
            state[name] for name in ("skipped", "in_a_row", "accumulation")
        )
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(state["scaler"])


def ran_out_of_memory(error):
    """Is it the device's memory, or the machine's, that was not enough?"""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error).lower() for text in MEMORY_ERRORS)


class _Adapter(nn.Module):
    """A task's model as train_step expects it: model(inputs) -> logits in float32."""

    def __init__(self, task, model):
        super().__init__()
        self.inner, self._task = model, (task,)

    def forward(self, inputs):
        (task,) = self._task
        with devices.computing(task.device, task.config.precision):
            return task.logits(self.inner, inputs).float()
