"""All settings of a run in one frozen object, with the reason beside each value; `settings("a")` fills it in.

A tier is chosen from the device and can be overridden, and so can every field. What is left to the device ("auto") is
settled here, so that the object says exactly what will run.
"""

from dataclasses import dataclass, fields, replace

from utils.config import ModelConfig
from utils.train import device as devices
from utils.train.errors import TrainError

TRACKS = ("a", "b")
TIERS = ("smoke", "laptop", "t4", "h100")
KERNELS = ("own", "fused")


@dataclass(frozen=True)
class TrainConfig:
    track: str = "a"  # a: English to Spanish, small and provable; b: a language model of Python source, for scale
    tier: str = "smoke"  # the name of the row below that these values came from
    # the model
    d_model: int = 128  # the smallest width that learns every sentence of the grammar
    n_layers: int = 2  # in each stack
    n_heads: int = 4  # d_head = 32
    d_ff: int = 256  # twice d_model: measured as good on this grammar as four times, and a third faster
    dropout: float = 0.0  # every batch is new or nearly so: there is nothing to memorise
    init_std: float = 0.09  # 1 / √d_model: scaled by √d_model, a row of the table is then as large as its position
    # the text
    n_pairs: int = 20_000  # track a: sentences drawn by the grammar; enough for each word in each role
    vocab_size: int = 1_024  # track b: learnt in 3 s by a learner's own BPE
    scope: str = "stdlib"  # track b: the same text on every machine of one Python; "installed" is larger
    corpus: str = ""  # a real corpus by its name in utils.data.real; none: the course's own text, without a network
    seq_len: int = 128  # track b: about ten lines of code
    # the run
    steps: int = 600  # measured: 99.7 % of unseen sentences right
    batch_size: int = 64  # sequences per update, on all devices together
    accumulation: int = 1  # parts per device that a batch comes in; doubled where memory runs out
    lr: float = 3e-3  # small models stand large steps
    lr_floor: float = 0.01  # the last learning rate, as a share of lr: the last wrong words go when steps are small
    warmup: int = 50  # Adam's variance knows nothing in the first steps
    weight_decay: float = 0.1  # of matrices only; norms and biases are free
    beta1: float = 0.9
    beta2: float = 0.98  # shorter than 0.999: a run of 1,000 steps must forget its beginning
    eps: float = 1e-9
    clip: float = 1.0  # the largest norm of all gradients together
    seed: int = 0  # with the step it decides every batch and every dropout
    # the machine
    kernels: str = "own"  # own: the learner's parts as they are; fused: torch's kernels in the same modules
    device: str = "auto"
    precision: str = "auto"  # bf16 from capability 8.0 on, fp16 with a scaled loss below, fp32 without a GPU
    compile: bool = False  # costs a minute at the start, so only where a run is long and the device fast
    fsdp: bool = False  # shard the weights over the processes of torchrun; False: a copy on each (DDP)
    # what is kept and seen
    eval_every: int = 0  # steps between small evaluations; 0: only at the end
    checkpoint_every: int = 200  # steps; a stop by hand saves as well
    log_every: int = 10  # steps between lines of log.jsonl
    tensorboard: bool = False  # also write for TensorBoard, where it is installed

    def __post_init__(self):
        _require_valid(self)

    @property
    def warmup_steps(self):
        """Never more than a tenth of a short run."""
        return min(self.warmup, self.steps // 10)


# What differs from the values above. Times are targets where no measurement is named.
_ROWS = {
    ("a", "smoke"): dict(),
    ("a", "laptop"): dict(  # 13 minutes on two cores, by what its first 500 steps took
        d_model=192, n_layers=3, n_heads=6, d_ff=768, init_std=0.07, n_pairs=50_000, steps=4_000, lr=2e-3, warmup=200,
        kernels="fused",
    ),
    ("a", "t4"): dict(  # a larger vocabulary of sentences, seen about ten times; 18 MB, so it may be handed in
        d_model=224, n_layers=3, n_heads=7, d_ff=896, init_std=0.065, n_pairs=200_000, steps=8_000, batch_size=256,
        lr=1e-3, warmup=400, kernels="fused", checkpoint_every=1_000,
    ),
    ("a", "h100"): dict(
        d_model=224, n_layers=3, n_heads=7, d_ff=896, init_std=0.065, n_pairs=200_000, steps=12_000, batch_size=512,
        lr=1e-3, warmup=400, kernels="fused", checkpoint_every=2_000,
    ),
    ("b", "smoke"): dict(  # 0.16 M parameters; std 0.1 and lr 4e-3, or it stays at how often each token occurs
        d_model=64, n_layers=2, n_heads=4, d_ff=256, init_std=0.1, steps=400, batch_size=8, lr=4e-3, warmup=20,
        lr_floor=0.1, beta2=0.99, eps=1e-8,
    ),
    ("b", "laptop"): dict(  # 2.2 M parameters, 2.5 M tokens; measured: 7 minutes on two cores, 1.90 bits per byte
        d_model=192, n_layers=4, n_heads=6, d_ff=768, init_std=0.06, vocab_size=2_048, seq_len=256, steps=600,
        batch_size=16, lr=2e-3, warmup=100, beta2=0.99, eps=1e-8, kernels="fused",
    ),
    ("b", "t4"): dict(  # 66 M tokens
        steps=4_000, batch_size=64, lr=1e-3, warmup=200, beta2=0.99, eps=1e-8, scope="installed", kernels="fused",
        checkpoint_every=500,
    ),
    ("b", "h100"): dict(  # 98 M tokens, about five readings of what is installed
        steps=1_500, batch_size=128, lr=1e-3, warmup=100, beta2=0.95, eps=1e-8, scope="installed", kernels="fused",
        compile=True, checkpoint_every=500,
    ),
}  # fmt: skip

# The sizes of track b that have a name, each with the vocabulary and the length it is meant for.
MODELS = {
    "10m": dict(d_model=384, n_layers=6, n_heads=6, d_ff=1_536, init_std=0.02, vocab_size=4_096, seq_len=256),
    "50m": dict(d_model=640, n_layers=10, n_heads=10, d_ff=2_560, init_std=0.02, vocab_size=8_192, seq_len=512),
    "124m": dict(  # as large as GPT-2; 0.5 M tokens per update in 8 parts
        d_model=768, n_layers=12, n_heads=12, d_ff=3_072, init_std=0.02, vocab_size=50_304, seq_len=1_024,
        batch_size=512, accumulation=8, steps=400, lr=6e-4, warmup=60,
    ),
}  # fmt: skip
_MODEL_OF_TIER = {"t4": "10m", "h100": "50m"}

# Two runs with the same values here are the same run: a checkpoint of one continues as the other.
_NOT_IDENTITY = {
    "tier", "accumulation", "device", "compile", "fsdp", "eval_every", "checkpoint_every", "log_every", "tensorboard",
}  # fmt: skip


def settings(track, tier=None, model=None, **overrides):
    """The TrainConfig of a track and tier. tier None: chosen from the device. model: "10m", "50m", "124m" (track b).

    Any field can be overridden by name. Raises TrainError in plain words for what is unknown or does not fit.
    """
    _choice("track", track, TRACKS)
    device = devices.choose(overrides.pop("device", None) or "auto")
    tier = devices.tier_of(device) if tier is None else tier
    _choice("tier", tier, TIERS)
    values = dict(_ROWS[track, tier])
    if track == "b" and (model or tier in _MODEL_OF_TIER):
        model = model or _MODEL_OF_TIER[tier]
        _choice("model", model, tuple(MODELS))
        values |= MODELS[model]
    elif model:
        raise TrainError("--model belongs to track b; track a has one size per tier")
    known = {field.name for field in fields(TrainConfig)}
    if unknown := sorted(set(overrides) - known):
        raise TrainError(f"there is no setting {unknown[0]}; the settings are {', '.join(sorted(known))}")
    values |= {name: value for name, value in overrides.items() if value is not None}
    values["precision"] = devices.precision_of(device, values.get("precision") or "auto")
    return TrainConfig(**values | dict(track=track, tier=tier, device=str(device)))


def settled(config):
    """The config with "auto" replaced, for one that was made by hand."""
    device = devices.choose(config.device)
    return replace(config, device=str(device), precision=devices.precision_of(device, config.precision))


def identity(config):
    """What must be equal for a checkpoint to continue as this run."""
    aside = _NOT_IDENTITY | ({"vocab_size", "scope", "seq_len"} if config.track == "a" else {"n_pairs"})
    return {field.name: getattr(config, field.name) for field in fields(config) if field.name not in aside}


def gpt_config(config, vocab_size):
    """The ModelConfig of track b."""
    return ModelConfig(
        vocab_size=vocab_size,
        d_model=config.d_model,
        n_heads=config.n_heads,
        n_layers=config.n_layers,
        d_ff=config.d_ff,
        max_len=config.seq_len,
        dropout=config.dropout,
    )


def _choice(name, value, choices):
    if value not in choices:
        raise TrainError(f"{name} must be one of {', '.join(choices)}, not {value!r}")


def _require_valid(config):
    _choice("track", config.track, TRACKS)
    _choice("tier", config.tier, TIERS)
    _choice("kernels", config.kernels, KERNELS)
    _choice("precision", config.precision, ("auto", "fp32", "bf16", "fp16"))
    for name in (
        "d_model",
        "n_layers",
        "n_heads",
        "d_ff",
        "seq_len",
        "steps",
        "batch_size",
        "accumulation",
        "log_every",
    ):
        if getattr(config, name) < 1:
            raise TrainError(f"{name} must be at least 1, not {getattr(config, name)}")
    if config.d_model % config.n_heads:
        raise TrainError(f"n_heads must divide d_model, and {config.n_heads} does not divide {config.d_model}")
    if config.accumulation > config.batch_size:
        raise TrainError(f"a batch of {config.batch_size} cannot come in {config.accumulation} parts")
    if not 0 <= config.dropout < 1:
        raise TrainError(f"dropout must be at least 0 and below 1, not {config.dropout}")
    if not (config.lr > 0 and 0 <= config.lr_floor <= 1 and config.clip > 0):
        raise TrainError("lr and clip must be positive, and lr_floor a share between 0 and 1")
