"""Plays for the parts of a training step: optimiser, clipping, a whole step, and a number that is a float."""

import copy

import torch
from torch import nn


def number(value):
    """A float of any kind, or a tensor without axes, as a plain float; everything else as it is."""
    if isinstance(value, torch.Tensor) and value.dim() == 0 and value.is_floating_point():
        return value.item()
    return float(value) if isinstance(value, float) else value


def a_float(obj):
    """NumPy's float64 is a float, too."""

    def play(*args):
        value = obj(*args)
        return float(value) if isinstance(value, float) else value

    return play


def perplexity(obj):
    def play(losses, counts):
        return a_float(obj)(losses, counts)

    return play


def learning_rate(obj):
    def play(step, peak, warmup, total, floor):
        value = a_float(obj)(step, peak, warmup, total, floor)
        return 0.0 if isinstance(value, float) and abs(value) < 1e-15 else value  # cos²(π/2) is 4e-33

    return play


# ---- optimiser -----------------------------------------------------------------------------------


def optimiser(cls):
    """Many steps; gradients may be missing, the learning rate may change, a new object may take over."""

    def play(values, grads, options=(), rates=(), resume=-1):
        """values: first values; grads: per step, one tensor or None for each; rates: {step: lr}, as pairs

        Returns the values after each step, and what must hold besides.
        """
        options = dict(options)
        params = [nn.Parameter(value.clone()) for value in values]
        made = cls((param for param in params), **options)
        rates, path, kept = dict(rates), [], True
        for step, row in enumerate(grads):
            if step == resume:
                params, made = _taken_over(cls, params, made, options)
            if step in rates:
                options["lr"] = rates[step]
                _set_rate(made, rates[step])
            for param, grad in zip(params, row, strict=True):
                param.grad = None if grad is None else grad.clone()
            made.step()
            kept &= all(_is(param.grad, grad) for param, grad in zip(params, row, strict=True))
            path.append([param.detach().clone() for param in params])
        made.zero_grad()
        zeroed = all(param.grad is None or not param.grad.any() for param in params)
        values = {f"after step {step + 1}, parameter {place}": v for step, row in enumerate(path)
                  for place, v in enumerate(row)}  # fmt: skip
        return values | {"gradients as they were": kept, "zeroed": zeroed}

    return play


def _taken_over(cls, params, made, options):
    """New parameters with the old values, and a new object that knows only what was saved."""
    saved = copy.deepcopy(made.state_dict())
    fresh = [nn.Parameter(param.detach().clone()) for param in params]
    made = cls((param for param in fresh), **options)
    made.load_state_dict(saved)
    return fresh, made


def _set_rate(made, rate):
    for group in getattr(made, "param_groups", ()):
        group["lr"] = rate
    if not isinstance(made, torch.optim.Optimizer) or hasattr(made, "lr"):
        made.lr = rate


def _is(got, wanted):
    return got is wanted is None or (got is not None and wanted is not None and torch.equal(got, wanted))


# ---- clipping ------------------------------------------------------------------------------------


def clipping(obj):
    """Parameters, one of them without a gradient, handed over as a generator or a list."""

    def play(grads, max_norm, as_list=False):
        params = [nn.Parameter(torch.ones(3) if grad is None else torch.ones_like(grad)) for grad in grads]
        for param, grad in zip(params, grads, strict=True):
            param.grad = None if grad is None else grad.clone()
        norm = obj(params if as_list else (param for param in params), max_norm)
        seen = {f"grad {place}": param.grad for place, param in enumerate(params)}
        touched = not all(_is(param.grad, grad) for param, grad in zip(params, grads, strict=True))
        moved = not all(bool((param == 1).all()) for param in params)
        return {"norm": number(norm), **seen, "gradients changed": touched, "weights changed": moved}

    return play


# ---- a training step -----------------------------------------------------------------------------


class _Words(nn.Module):
    """Logits of the next token from the token alone. `side` is in eval mode while the rest trains; `idle` is unused.

    counts: {address of inputs: kept targets}; piled_up: was it asked while logits that count still wait for backward?
    """

    def __init__(self, table, out, bias, counts):
        super().__init__()
        self.counts, self.waiting, self.piled_up = counts, set(), False
        self.table, self.out, self.bias = (nn.Parameter(part.clone()) for part in (table, out, bias))
        self.idle = nn.Parameter(torch.ones(3))
        self.side, self.fed = nn.Dropout(0.5).eval(), []

    def forward(self, tokens):
        self.fed.append(tuple(tokens.shape))
        self.piled_up = self.piled_up or bool(self.waiting)
        logits, number = self.side(torch.tanh(self.table[tokens])) @ self.out + self.bias, len(self.fed)
        if logits.requires_grad and self.counts.get(tokens.data_ptr()):
            self.waiting.add(number)
            logits.register_hook(lambda grad: self.waiting.discard(number))
        return logits


class _Steps(torch.optim.SGD):
    """Counts its steps."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.made = 0

    def step(self, closure=None):
        self.made += 1
        return super().step(closure)


def train_step(obj):
    """One step of plain gradient descent on a model that has gradients left over from before."""

    def play(table, out, bias, micro_batches, max_norm, lr=0.5):
        counts = {inputs.data_ptr(): int((targets != -100).sum()) for inputs, targets in micro_batches}
        model = _Words(table, out, bias, counts)
        for param in model.parameters():
            param.grad = torch.ones_like(param)
        made = _Steps(model.parameters(), lr=lr)
        flags = [part.training for part in model.modules()]
        shapes = {tuple(inputs.shape) for inputs, _ in micro_batches}
        loss = a_float(obj)(model, made, micro_batches, max_norm)
        return {
            "loss": loss,
            "steps": made.made,
            "flags as before": flags == [part.training for part in model.modules()],
            "one micro-batch at a time": shapes.issuperset(model.fed),
            "backward before the next micro-batch": not model.piled_up,
            **{f"weights {name}": param.detach() for name, param in model.named_parameters()},
        }

    return play


# ---- exposure ------------------------------------------------------------------------------------


def exposure(obj):
    """The shares, rounded: float32 is fine for them; and in which mode the model was run."""

    def play(model, batch):
        found = obj(model, batch)
        if isinstance(found, dict):
            found = {key: round(number(part), 5) if isinstance(number(part), float) else part
                     for key, part in found.items()}  # fmt: skip
        return found, {"in eval mode": not any(model.trained), "without gradients": not any(model.tracked)}

    return play


SCRIPTS = {
    "perplexity": perplexity,
    "learning rate": learning_rate,
    "optimiser": optimiser,
    "clipping": clipping,
    "train step": train_step,
    "exposure": exposure,
}
