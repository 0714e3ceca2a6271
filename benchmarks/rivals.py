"""Others' models, taken as they are from a local checkout or an installed package, at the sizes of ours."""

import contextlib
import importlib.util
import io
import sys
from pathlib import Path

import torch


class NotThere(Exception):
    """A rival cannot be used; the text says why."""


class NanoGPT:
    """karpathy/nanoGPT's GPT and its own choice of optimiser, trained step by step on the batches it is given."""

    name = "nanoGPT"

    def __init__(self, folder, config, vocab_size, compile):
        module = _module(Path(folder) / "model.py", "nanogpt_model")
        sizes = module.GPTConfig(
            block_size=config.seq_len, vocab_size=vocab_size, n_layer=config.n_layers, n_head=config.n_heads,
            n_embd=config.d_model, dropout=config.dropout, bias=True,
        )  # fmt: skip
        self.config, self.device = config, torch.device(config.device)
        with contextlib.redirect_stdout(io.StringIO()), torch.random.fork_rng():
            torch.manual_seed(config.seed)
            self.plain = module.GPT(sizes).to(self.device)
            betas = (config.beta1, config.beta2)
            self.optimiser = self.plain.configure_optimizers(config.weight_decay, config.lr, betas, self.device.type)
        self.model = torch.compile(self.plain) if compile else self.plain
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=config.precision == "fp16")
        self.parameters = sum(parameter.numel() for parameter in self.plain.parameters())
        self.version = _revision(folder)

    def computing(self):
        if self.config.precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16 if self.config.precision == "bf16" else torch.float16)

    def step(self, batch, lr):
        """One update; the loss, as a tensor: nobody waits for it."""
        for group in self.optimiser.param_groups:
            group["lr"] = lr
        with self.computing():
            _, loss = self.model(batch["tokens"], batch["targets"])
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimiser)
        torch.nn.utils.clip_grad_norm_(self.plain.parameters(), self.config.clip)
        self.scaler.step(self.optimiser)
        self.scaler.update()
        self.optimiser.zero_grad(set_to_none=True)
        return loss.detach()

    @torch.no_grad()
    def loss(self, batches):
        """Mean loss per token."""
        self.plain.eval()
        total, count = 0.0, 0
        for batch in batches:
            with self.computing():
                _, loss = self.plain(batch["tokens"].to(self.device), batch["targets"].to(self.device))
            total, count = total + loss.item() * batch["targets"].numel(), count + batch["targets"].numel()
        self.plain.train()
        return total / count


class Transformers:
    """A GPT-2 of the `transformers` package with random weights, and its own generate."""

    name = "transformers"

    def __init__(self, config, device, dtype):
        try:
            import transformers
        except ImportError as error:
            raise NotThere("the package transformers is not installed here") from error
        sizes = transformers.GPT2Config(
            vocab_size=config.vocab_size, n_positions=config.max_len, n_embd=config.d_model, n_layer=config.n_layers,
            n_head=config.n_heads, n_inner=config.d_ff, bos_token_id=None, eos_token_id=None,
        )  # fmt: skip
        transformers.logging.set_verbosity_error()
        self.model = transformers.GPT2LMHeadModel(sizes).to(device, dtype).eval()
        self.version = transformers.__version__

    @torch.no_grad()
    def generate(self, prompt, n_tokens):
        return self.model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=n_tokens, min_new_tokens=n_tokens,
            do_sample=False, use_cache=True, pad_token_id=0,
        )  # fmt: skip


def _module(path, name):
    if not path.is_file():
        raise NotThere(f"there is no {path}: give the folder of a nanoGPT checkout")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # its dataclass looks itself up there
    spec.loader.exec_module(module)
    return module


def _revision(folder):
    """The commit of a checkout, where git left one."""
    head = Path(folder) / ".git" / "HEAD"
    with contextlib.suppress(OSError):
        text = head.read_text().strip()
        return (head.parent / text[5:]).read_text().strip() if text.startswith("ref: ") else text
    return "unknown"
