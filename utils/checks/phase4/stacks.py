"""Encoder and Decoder: blocks on top of each other."""

from torch import nn

from utils import oracle
from utils.checks.draw import mask
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase4 import PHASE, rules
from utils.checks.phase4.decoder_block import first_visible

SIZES = dict(n_layers=3, d_model=12, n_heads=3, d_ff=20)
POST = SIZES | dict(norm_first=False)
TWO = SIZES | dict(n_layers=2)
X = dict(x=(2, 5, 12))


def wrong(base, **methods):
    return type("Wrong", (base,), methods)


def made(base, change):
    """A stack that is changed once it is made: change(self, norm_first)."""

    class Wrong(base):
        def __init__(self, n_layers, d_model, n_heads, d_ff, norm_first=True, dropout=0.0):
            super().__init__(n_layers, d_model, n_heads, d_ff, norm_first, dropout)
            self.d_model, self.norm_first = d_model, norm_first
            change(self, norm_first)

    return Wrong


def share(stack, norm_first):
    stack.blocks = nn.ModuleList([stack.blocks[0]] * len(stack.blocks))


def copy(stack, norm_first):
    for block in stack.blocks:
        block.load_state_dict(stack.blocks[0].state_dict())


def norm_always(stack, norm_first):
    if not norm_first:
        stack.norm = oracle.LayerNorm(stack.d_model)


def norm_never(stack, norm_first):
    stack.norm = nn.Identity()


def blocks_pre(stack, norm_first):
    for block in stack.blocks:
        block.norm_first = True


def no_dropout(stack, norm_first):
    for block in stack.blocks:
        block.dropout = 0.0
        for part in block.modules():
            if hasattr(part, "dropout"):
                part.dropout = 0.0


def plain_list(stack, norm_first):
    blocks = list(stack.blocks)
    del stack.blocks
    stack.blocks = blocks


def ends(block, norm):
    """Mistakes at the ends of a stack; `block` is its twin, `norm` says how a norm after every block is run."""
    return {
        "the layers share their weights": Spotted(rules.fewer_parameters, made(block, share)),
        "the layers start alike: draw each anew": Spotted(rules.blocks_start_alike, made(block, copy)),
        "post-norm ends normalised": Spotted(rules.more_parameters, made(block, norm_always)),
        "a pre-norm stream needs one last norm": Spotted(
            rules.missing("norm.gamma", "norm.beta"), made(block, norm_never)
        ),
        "norm_first was not handed on": made(block, blocks_pre),
        "dropout was not handed on": made(block, no_dropout),
        "blocks belong in an nn.ModuleList": Spotted(rules.missing("blocks.0.norm1.gamma"), made(block, plain_list)),
        "the norm belongs after the last block only": wrong(block, forward=norm),
    }


def encoder_norms(self, x, attn_mask=None):
    for block in self.blocks:
        x = self.norm(block(x, attn_mask=attn_mask))
    return x


def encoder_without_norm(self, x, attn_mask=None):
    for block in self.blocks:
        x = block(x, attn_mask=attn_mask)
    return x


def encoder_mask_once(self, x, attn_mask=None):
    for number, block in enumerate(self.blocks):
        x = block(x, attn_mask=attn_mask if number == 0 else None)
    return self.norm(x)


def encoder_first_only(self, x, attn_mask=None):
    for _ in self.blocks:
        x = self.blocks[0](x, attn_mask=attn_mask)
    return self.norm(x)


def encoder_backwards(self, x, attn_mask=None):
    for block in reversed(self.blocks):
        x = block(x, attn_mask=attn_mask)
    return self.norm(x)


def encoder_parallel(self, x, attn_mask=None):
    for block in self.blocks:
        out = block(x, attn_mask=attn_mask)
    return self.norm(out)


register(
    expected=oracle.Encoder,
    phase=PHASE,
    section="4.10",
    hint="n_layers blocks of their own in a ModuleList, the same mask for each, one last norm if norm_first.",
    bans=("attention", "blocks"),
    cases=(
        case("two layers, pre-norm", X, init=TWO),
        case("three layers, post-norm", X, init=POST),
        case("masked", X | dict(attn_mask=mask(2, 1, 1, 5)), init=TWO),
        case("masked, post-norm", X | dict(attn_mask=mask(2, 1, 5, 5)), init=POST),
        case("one layer, two calls", dict(x=(1, 3, 12)), then=(X,), init=SIZES | dict(n_layers=1), train=True),
        case("as it is made", X, init=TWO, kind="chance", judge=rules.blocks_differ, **rules.MADE),
        case("dropout 0.5 in eval", X, init=TWO | dict(dropout=0.5), grad=False),
        case("dropout 1 in training", X, init=TWO | dict(dropout=1.0), train=True, grad=False),
    ),
    mistakes=ends(oracle.Encoder, encoder_norms)
    | {
        "there is a last norm, and it was not used": wrong(oracle.Encoder, forward=encoder_without_norm),
        "every block needs the mask": wrong(oracle.Encoder, forward=encoder_mask_once),
        "the mask was ignored": wrong(
            oracle.Encoder, forward=lambda self, x, attn_mask=None: oracle.Encoder.forward(self, x)
        ),
        "one block was run n_layers times": wrong(oracle.Encoder, forward=encoder_first_only),
        "first block first": wrong(oracle.Encoder, forward=encoder_backwards),
        "each block reads what the one before it wrote": wrong(oracle.Encoder, forward=encoder_parallel),
    },
)


def decoder(step):
    """A wrong twin from what one block does: step(stack, number, block, x, memory, attn_mask, memory_mask)."""

    def forward(self, x, memory, attn_mask=None, memory_mask=None):
        for number, block in enumerate(self.blocks):
            x = step(self, number, block, x, memory, attn_mask, memory_mask)
        return self.norm(x)

    return wrong(oracle.Decoder, forward=forward)


def decoder_norms(self, x, memory, attn_mask=None, memory_mask=None):
    for block in self.blocks:
        x = self.norm(block(x, memory, attn_mask=attn_mask, memory_mask=memory_mask))
    return x


def decoder_without_norm(self, x, memory, attn_mask=None, memory_mask=None):
    for block in self.blocks:
        x = block(x, memory, attn_mask=attn_mask, memory_mask=memory_mask)
    return x


def decoder_backwards(self, x, memory, attn_mask=None, memory_mask=None):
    for block in reversed(self.blocks):
        x = block(x, memory, attn_mask=attn_mask, memory_mask=memory_mask)
    return self.norm(x)


def refined_memory(self, x, memory, attn_mask=None, memory_mask=None):
    """Each block hands on a memory of its own: the one before it, normed once more."""
    for block in self.blocks:
        x = block(x, memory, attn_mask=attn_mask, memory_mask=memory_mask)
        memory = self.norm(memory)
    return self.norm(x)


PAIR = X | dict(memory=(2, 7, 12))
BOTH = PAIR | dict(attn_mask=first_visible(2, 1, 1, 5), memory_mask=mask(2, 1, 1, 7))

register(
    expected=oracle.Decoder,
    phase=PHASE,
    section="4.10",
    hint="as Encoder: every block gets the same memory and both masks.",
    bans=("attention", "blocks"),
    cases=(
        case("two layers, pre-norm", PAIR, init=TWO),
        case("three layers, post-norm", PAIR, init=POST, grad=False),
        case("both masks", BOTH, init=TWO),
        case("both masks, three layers", BOTH, init=SIZES),
        case("both masks, post-norm", BOTH, init=TWO | dict(norm_first=False)),
        case("memory as long as x", X | dict(memory=(2, 5, 12)), init=TWO, grad=False),
        case(
            "one layer, two calls",
            dict(x=(1, 3, 12), memory=(1, 2, 12)),
            then=(PAIR,),
            init=SIZES | dict(n_layers=1),
            train=True,
        ),
        case("as it is made", PAIR, init=TWO, kind="chance", judge=rules.blocks_differ, **rules.MADE),
        case("dropout 1 in training", PAIR, init=TWO | dict(dropout=1.0), train=True, grad=False),
    ),
    mistakes=ends(oracle.Decoder, decoder_norms)
    | {
        "there is a last norm, and it was not used": wrong(oracle.Decoder, forward=decoder_without_norm),
        "memory stays the encoder's output": Replays(
            decoder(
                lambda s, n, block, x, memory, a, m: block(
                    x, x if n else memory, attn_mask=a, memory_mask=None if n else m
                )
            ),
            decoder(lambda s, n, block, x, memory, a, m: block(x, x, attn_mask=a)),
            wrong(oracle.Decoder, forward=refined_memory),
        ),
        "every block needs both masks": decoder(
            lambda s, n, block, x, memory, a, m: block(
                x, memory, attn_mask=None if n else a, memory_mask=None if n else m
            )
        ),
        "every block needs memory_mask": decoder(
            lambda s, n, block, x, memory, a, m: block(x, memory, attn_mask=a, memory_mask=None if n else m)
        ),
        "every block needs attn_mask": decoder(
            lambda s, n, block, x, memory, a, m: block(x, memory, attn_mask=None if n else a, memory_mask=m)
        ),
        "memory_mask was ignored": decoder(lambda s, n, block, x, memory, a, m: block(x, memory, attn_mask=a)),
        "attn_mask was ignored": decoder(lambda s, n, block, x, memory, a, m: block(x, memory, memory_mask=m)),
        "the two masks were exchanged": Spotted(
            rules.mask_misfits,
            decoder(lambda s, n, block, x, memory, a, m: block(x, memory, attn_mask=m, memory_mask=a)),
            also=(decoder(lambda s, n, block, x, memory, a, m: block(x, memory, attn_mask=m, memory_mask=a)),),
        ),
        "the encoder has normed the memory": decoder(
            lambda s, n, block, x, memory, a, m: block(x, s.norm(memory), attn_mask=a, memory_mask=m)
        ),
        "one block was run n_layers times": decoder(
            lambda s, n, block, x, memory, a, m: s.blocks[0](x, memory, attn_mask=a, memory_mask=m)
        ),
        "first block first": wrong(oracle.Decoder, forward=decoder_backwards),
    },
)
