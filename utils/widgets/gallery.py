"""The page of all figures: `play("mask_painter")` shows one, with examples and with your own parts where they work."""

import inspect

import torch

from utils import widgets
from utils.config import ModelConfig
from utils.mycode import mine


def play(name):
    """Show a figure. What the lesson hands it is made here; the functions in it are yours if they pass their checks."""
    if not hasattr(widgets, name):
        print(f"… {name} comes with a later phase")
        return
    try:
        shown(name)
    except LookupError as error:  # a class's copy has no stand-in for what is being learnt
        print(f"… {name} waits for your own part: {error}")


def shown(name):
    """Show a figure and return it. Raises LookupError if a part is neither yours nor in this copy of the course."""
    figure = getattr(widgets, name)
    given = EXAMPLES.get(name, dict)()
    parts = {part: mine(part) for part in inspect.signature(figure).parameters if part not in given}
    return figure(**given, **parts)


# ---- examples ------------------------------------------------------------------------------------
# What is not an exercise among the arguments of a figure; a lesson has it from a trained model, or from what it built.


def _heads():
    """Two layers of three heads, written by hand, and what they read: ten letters, twice."""
    letters = torch.randperm(10, generator=torch.Generator().manual_seed(0))
    tokens = torch.cat([letters, letters])
    place = torch.arange(len(tokens))
    back = place[:, None] - place
    copies = 8.0 * (back == len(letters) - 1)  # what followed the same letter last time
    scores = torch.stack(
        [
            torch.stack([8.0 * (back == 1), 8.0 * (back == 0), 8.0 * (place == 0).expand_as(back)]),
            torch.stack([copies + 5.0 * (place == 0), copies / 2, -0.3 * back]),
        ]
    )
    return scores.masked_fill(back < 0, float("-inf")).softmax(-1), tokens


WORDS = ["<END>", "soon", "then", "it", "we", "rains", "snows"]
FOLLOWING = {
    (): {"soon": 0.55, "then": 0.45},
    ("soon",): {"it": 0.5, "we": 0.4, "<END>": 0.1},
    ("then",): {"it": 0.95, "<END>": 0.05},
    ("soon", "it"): {"rains": 0.5, "snows": 0.5},
    ("then", "it"): {"rains": 0.9, "snows": 0.1},
}


def _next_log_probs(tokens):
    """What may follow each row of tokens, as `beam_search` asks it."""
    shares = torch.zeros(len(tokens), len(WORDS))
    for row, said in enumerate(tokens.tolist()):
        for word, share in FOLLOWING.get(tuple(WORDS[token] for token in said[1:]), {"<END>": 1.0}).items():
            shares[row, WORDS.index(word)] = share
    return shares.log()


def _chain(wander):
    """A model that looks at the last token alone; `wander`: how far it strays from what the target thinks."""
    random = torch.Generator().manual_seed(4)
    table = 1.5 * torch.randn(8, 8, generator=random) + wander * torch.randn(8, 8, generator=random)
    return lambda tokens: table[tokens]


EXAMPLES = {
    "head_browser": lambda: dict(zip(("weights", "tokens"), _heads(), strict=True)),
    "depth_explorer": lambda: dict(block=mine("EncoderBlock")),
    "beam_tree": lambda: dict(next_log_probs=_next_log_probs, words=WORDS, bos_id=len(WORDS), eos_id=0),
    "cache_animator": lambda: dict(config=ModelConfig(32_000, 4096, 32, 32, 11_008, 4096)),
    "scaling_explorer": lambda: dict(fit=dict(E=1.69, A=406.4, alpha=0.34, B=410.7, beta=0.28)),  # Hoffmann et al. 2022
    "speculation_stepper": lambda: dict(target=_chain(0.0), draft=_chain(0.7)),
}
