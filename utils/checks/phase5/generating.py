"""generate: text from a model, with a cache and without."""

from functools import partial

import torch

from utils import oracle
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase5 import PHASE, rules_cache
from utils.observe import fixtures
from utils.observe.codec import Fixture, Generator
from utils.oracle.phase5_cache import chances

PROMPT = torch.tensor([[3, 7, 1], [5, 2, 9], [8, 4, 6]])
MODEL = dict(seed=41, tied=False, n_layers=2)  # greedy it says 588144, 408144, 554244 after PROMPT: every row differs
SEVERAL = PROMPT[:1].expand(6, 3).clone()


def text(max_new_tokens, prompt=PROMPT, seed=5, model=MODEL, copy=0, **options):
    """Arguments of one call."""
    fixture = Fixture("small_model", model)
    given = dict(model=fixture, prompt=prompt, max_new_tokens=max_new_tokens, generator=Generator(seed, copy)) | options
    return {name: value for name, value in given.items() if value is not None}


def greedy(name, steps=6, make=case, then=(), **options):
    return make(name, text(steps, **dict(temperature=0.0) | options), then=then)


def both_ways(name, steps, **options):
    """With the cache and without it, from equal seeds."""
    pair = (text(steps, copy=number, use_cache=flag, **options) for number, flag in enumerate((True, False)))
    first, second = pair
    return case(name, first, then=(second,), grad=False, kind="chance", judge=rules_cache.same_text_twice)


def left_out(name, steps, option, default, **options):
    """Without an option and with its default, from equal seeds."""
    first, second = (text(steps, copy=number, **options) for number in (0, 1))
    judge = partial(rules_cache.same_text_twice, how=f"without {option} and with {option}={default}")
    return case(name, first, then=(second | {option: default},), grad=False, kind="chance", judge=judge)


def tokens_fed(name, steps, prompt, use_cache):
    """The last token drawn need not be fed; whoever feeds it once more loses nothing."""
    batch, length = prompt.shape
    lengths = [length + step for step in range(steps + 1)]
    least, most = (length + steps - 1, length + steps) if use_cache else (sum(lengths[:-1]), sum(lengths))
    asked = None if use_cache else False  # True is the default, and not handed over
    told = text(steps, prompt, temperature=0.0, generator=None, use_cache=asked, model=MODEL | dict(counts="followed"))
    judge = rules_cache.fed_in_all(batch * least, batch * most)
    return case(name, told, grad=False, mutates="model", judge=judge)


def chances_of_pairs(prompt, temperature, top_k):
    """{(first, second): probability} of the next two tokens after one prompt, by multiplying."""
    model = fixtures.build("small_model", MODEL)

    @torch.no_grad()
    def following(tokens):
        best, ids = (model(tokens)[0, -1] / temperature).topk(top_k)
        return zip(ids.tolist(), best.softmax(-1).tolist(), strict=True)

    found = {}
    for first, chance in following(prompt):
        grown = torch.cat((prompt, torch.tensor([[first]])), 1)
        found |= {(first, second): chance * other for second, other in following(grown)}
    return found


def frequencies(name, rows, **options):
    prompt = PROMPT[2:]
    judge = rules_cache.pairs_like(chances_of_pairs(prompt, **options))
    return case(name, text(2, prompt.expand(rows, 3).clone(), **options), grad=False, kind="chance", judge=judge)


# ---- wrong ways ----------------------------------------------------------------------------------


def wrong(**ways):
    """A wrong twin, `ways` replacing steps of the right one."""
    way = {
        "fits": lambda length, limit: length <= limit,
        "cached": lambda flag: flag,
        "mode": lambda model: model.eval(),
        "back": lambda flags: [setattr(part, "training", flag) for part, flag in flags.items()],
        "again": lambda prompt: [prompt],  # what is fed before the first draw
        "place": -1,
        "over": lambda ended, new, eos_id, pad_id: ended | (new == eos_id),
        "ended": lambda prompt, eos_id: torch.zeros(len(prompt), dtype=torch.bool),
        "pad": lambda new, ended, pad_id: new.masked_fill(ended, pad_id),
        "stop": torch.all,
        "steps": 0,
        "result": lambda rows, prompt: rows,
        "options": lambda temperature, top_k, top_p: (temperature, top_k, top_p),
        "generator": lambda generator: generator,
        "quiet": torch.no_grad,
        "safe": True,  # the flags go back after an error, too
    } | ways

    def generate(
        model, prompt, max_new_tokens, temperature=1.0, top_k=None, top_p=None, eos_id=None, pad_id=0, generator=None,
        use_cache=True,
    ):  # fmt: skip
        if not way["fits"](prompt.shape[1] + max_new_tokens, model.config.max_len):
            raise ValueError("max_len")
        flags = {part: part.training for part in model.modules()}
        way["mode"](model)
        over = way["safe"]
        try:
            with way["quiet"]():
                chosen = draw(*way["options"](temperature, top_k, top_p), way["generator"](generator))
                rows = _written(way, model, prompt, max_new_tokens, eos_id, pad_id, way["cached"](use_cache), chosen)
            over = True
        finally:
            way["back"](flags if over else {})
        return way["result"](rows, prompt)

    return generate


def draw(temperature, top_k, top_p, generator):
    """What chooses the next token of each row."""
    return lambda logits: torch.multinomial(chances(logits, temperature, top_k, top_p), 1, generator=generator)[:, 0]


def _written(way, model, prompt, steps, eos_id, pad_id, use_cache, chosen):
    config = model.config
    heads = config.n_kv_heads or config.n_heads
    cache = oracle.KVCache(config.n_layers, len(prompt), heads, 99, config.d_model // config.n_heads)
    rows, ended, feed = prompt, way["ended"](prompt, eos_id), way["again"](prompt)
    for _ in range(steps + way["steps"]):
        for part in feed if use_cache else feed[:1]:
            logits = oracle.forward_cached(model, part, cache) if use_cache else model(rows)
        new = way["pad"](chosen(logits[:, way["place"]]), ended, pad_id)
        rows, feed = torch.cat((rows, new[:, None]), 1), [new[:, None]]
        ended = ended if eos_id is None else way["over"](ended, new, eos_id, pad_id)
        if eos_id is not None and way["stop"](ended):
            break
    return rows


def without_eos(model, prompt, max_new_tokens, eos_id=None, pad_id=0, **options):
    """The eos that ended a row is replaced, too."""
    rows = oracle.generate(model, prompt, max_new_tokens, eos_id=eos_id, pad_id=pad_id, **options)
    if eos_id is not None:
        new = rows[:, prompt.shape[1] :]
        new[new == eos_id] = pad_id
    return rows


register(
    expected=oracle.generate,
    phase=PHASE,
    section="5.14",
    hint="eval mode, no_grad; feed the prompt, then token by token; filter_logits, sample; an ended row gets pad_id.",
    grad=False,
    bans=(),
    cases=(
        greedy("six times the same prompt, greedy", 3, prompt=SEVERAL),
        greedy("greedy, without the cache", 3, use_cache=False),
        greedy("one sentence, one token", 3, prompt=PROMPT[:1, :1]),
        greedy("one row ends early", eos_id=0, pad_id=7),
        greedy("two rows end, one never", eos_id=8, pad_id=9),
        greedy("all rows end before the last step", eos_id=4, pad_id=9),
        greedy("padded with 0 where nothing is said", 3, eos_id=4),
        greedy(
            "post-norm, grouped heads", 5, model=dict(seed=12, tied=False, norm_first=False, n_kv_heads=1, n_layers=2)
        ),
        greedy("dropout, in training mode", model=MODEL | dict(dropout=0.5, training=True), steps=3),
        greedy("dropout, the first block in eval mode", 3, model=MODEL | dict(dropout=0.5, training="mixed")),
        greedy("a row that goes on says pad_id", 5, eos_id=4, pad_id=8),
        greedy("no new tokens", 0),
        greedy("exactly full", 6),
        greedy("hot, but one token to choose from", 3, prompt=SEVERAL, temperature=4.0, top_k=1),
        greedy("hot, but a tiny top_p", 3, prompt=SEVERAL, temperature=4.0, top_p=1e-9),
        both_ways("equal seeds, hot", 4, temperature=3.0),
        both_ways("equal seeds, cool, top_k and top_p", 4, prompt=SEVERAL, temperature=0.9, top_k=5, top_p=0.9, seed=8),
        left_out("temperature left out", 4, "temperature", 1.0, prompt=SEVERAL),
        frequencies("how often which two tokens follow", 1200, temperature=0.5, top_k=2),
        tokens_fed("tokens fed with the cache", 5, PROMPT, use_cache=True),
        tokens_fed("tokens fed without the cache", 5, PROMPT[:2], use_cache=False),
        greedy("one token more than max_len", 7, make=refusal),
        greedy("more than max_len, though it would end before", 9, make=refusal, eos_id=4),
        greedy("top_k 0", 2, make=refusal, top_k=0, model=MODEL | dict(training="mixed")),
    ),
    mistakes={
        "use_cache=True fed every token again": Spotted(
            rules_cache.every_token_again, wrong(cached=lambda flag: False), certain=True
        ),
        "use_cache=False is to read the whole text in each step": Spotted(
            rules_cache.never_again, wrong(cached=lambda flag: True), certain=True
        ),
        "dropout was on: switch the model to eval mode": Spotted(
            rules_cache.dropout_was_on, wrong(mode=lambda model: None), certain=True
        ),
        "put every train/eval flag back": Replays(
            wrong(back=lambda flags: None),
            wrong(back=lambda flags: [part.train(flag) for part, flag in [*flags.items()][:1]]),
            wrong(back=lambda flags: [part.train() for part in [*flags][:1]]),
        ),
        "put the flags back after an error, too: try … finally": Spotted(
            rules_cache.flags_left_after_an_error, wrong(safe=False), certain=True
        ),
        "nothing is learned here: torch.no_grad()": Spotted(
            rules_cache.gradients_on, wrong(quiet=torch.enable_grad), certain=True
        ),
        "the next token comes from the last place": wrong(place=0),
        "the prompt's last token was fed twice": wrong(again=lambda prompt: [prompt, prompt[:, -1:]]),
        "an ended row gets padding": wrong(pad=lambda new, ended, pad_id: new),
        "padding is pad_id": wrong(pad=lambda new, ended, pad_id: new.masked_fill(ended, 0)),
        "only eos ends a row, a generated pad_id does not": wrong(
            over=lambda ended, new, eos_id, pad_id: ended | (new == eos_id) | (new == pad_id)
        ),
        "an ended row stays ended": wrong(over=lambda ended, new, eos_id, pad_id: new == eos_id),
        "stop when every row has ended, not when one has": wrong(stop=torch.any),
        "all rows had ended": wrong(stop=lambda ended: False),
        "eos itself is kept": without_eos,
        "only a generated eos ends a row": wrong(
            ended=lambda prompt, eos_id: (prompt == (-1 if eos_id is None else eos_id)).any(1)
        ),
        "the prompt comes first in the answer": wrong(result=lambda rows, prompt: rows[:, prompt.shape[1] :]),
        "max_new_tokens new tokens": Replays(wrong(steps=-1), wrong(steps=1)),
        "temperature was ignored": Spotted(
            rules_cache.rows_differ_at("temperature"), wrong(options=lambda t, k, p: (1.0, k, p))
        ),
        "top_k was ignored": Spotted(rules_cache.rows_differ_at("top_k"), wrong(options=lambda t, k, p: (t, None, p))),
        "top_p was ignored": Spotted(rules_cache.rows_differ_at("top_p"), wrong(options=lambda t, k, p: (t, k, None))),
        "this never varies": Spotted(rules_cache.never_varies, wrong(options=lambda t, k, p: (0.0, k, p))),
        "use the generator you are given": Spotted(rules_cache.global_draws, wrong(generator=lambda generator: None)),
        "prompt and new tokens must fit into max_len": Spotted(
            rules_cache.went_past_max_len, wrong(fits=lambda length, limit: True), certain=True
        ),
    },
)
