"""Recompute the numbers of phases 5 and 6: decoding, caches, costs, model sizes and published facts."""

import itertools
import math

import numpy as np

from tests.notes_ops import exact, growth, largest, recomputes


@recomputes("000-decoder-iterations", "002-inference-steps", "004-decode-step")
def one_pass_per_word(target):
    prompt, *answers = target
    seen = list(itertools.accumulate(([word] for word in answers[:-1]), initial=[prompt]))
    return {"inputs": seen, "targets": answers, "n_steps": len(answers)}


@recomputes("002-train-shift")
def shifted_by_one(target):
    pairs = list(itertools.pairwise(target))
    return {"decoder_input": [now for now, _ in pairs], "labels": [following for _, following in pairs]}


@recomputes("002-next-token-pairs")
def every_prefix(tokens):
    pairs = [[tokens[:cut], tokens[cut]] for cut in range(1, len(tokens))]
    return {"pairs": pairs, "n": len(pairs)}


@recomputes("002-greedy", "002-paris-chain", "000-output-argmax")
def likeliest_each_time(steps):
    best = [max(step.items(), key=lambda word: word[1]) for step in steps]
    return {
        "choice": [word for word, _ in best],
        "sums": [math.fsum(step.values()) for step in steps],
        "joint": math.prod(share for _, share in best),
    }


@recomputes("002-beam", "002-beam-beats-greedy")
def likeliest_pairs(step1, step2, width, greedy):
    joint = {f"{first} {second}": step1[first] * share for first in step1 for second, share in step2[first].items()}
    ranked = sorted(joint, key=joint.get, reverse=True)
    return {"joint": joint, "top": ranked[:width], "best_equals_greedy": ranked[0] == greedy}


@recomputes("002-beam-vs-greedy-tables", "002-parameters-alone-data")
def two_statements_agree(a, b):
    return {"difference": a - b, "consistent": math.isclose(a, b)}


@recomputes("002-topk3")
def keep_k(p, k):
    kept = sorted(p, key=p.get, reverse=True)[:k]
    share = math.fsum(p[word] for word in kept)
    return {"kept": kept, "renormalised": {word: p[word] / share for word in kept}}


@recomputes("002-topp09")
def keep_mass(p, top_p):
    ranked = sorted(p, key=p.get, reverse=True)
    reached = np.cumsum([p[word] for word in ranked])
    n_kept = int(np.searchsorted(reached, top_p - 1e-12)) + 1
    return {"kept": ranked[:n_kept], "n_kept": n_kept, "cumulative": reached[n_kept - 1]}


@recomputes("002-temperature")
def peak_by_temperature(logits, tau):
    peaks = [exact(logits).div(temperature).softmax(-1).max().item() for temperature in tau]
    return {"max_prob": peaks, "low_tau_is_sharper": peaks == sorted(peaks, reverse=True)}


@recomputes("002-chain-rule")
def factors_of_a_joint_table(seed, recipe):
    joint = np.random.default_rng(seed).random((2, 3, 4))
    joint = joint / joint.sum()
    first = joint.sum(axis=(1, 2), keepdims=True)
    second_given_first = joint.sum(axis=2, keepdims=True) / first
    third_given_both = joint / joint.sum(axis=2, keepdims=True)
    gap = largest(first * second_given_first * third_given_both - joint)
    return {"max_diff": gap, "holds": gap < 1e-12}


@recomputes("002-kv-cache-sizes")
def cache_after_each_step(steps):
    cache, lengths, added = [], [], []
    for step in range(steps):
        before = len(cache)
        cache.append(step)
        lengths.append(len(cache))
        added.append(len(cache) - before)
    return {"cache_len": lengths, "new_kv_per_step": added}


def _scores_at(length):
    """Return how many query-key products a full pass over `length` tokens makes."""
    return length * length


def _total(per_step, length):
    return sum(per_step(step) for step in range(1, length + 1))


@recomputes("002-kv-complexity")
def scores_with_and_without_cache(T):
    naive, cached = _total(_scores_at, T), _total(int, T)
    return {
        "naive_step_degree": growth(_scores_at),
        "naive_total_degree": growth(lambda length: _total(_scores_at, length)),
        "cached_step_degree": growth(int),
        "cached_total_degree": growth(lambda length: _total(int, length)),
        "naive_total": naive,
        "cached_total": cached,
        "ratio": naive / cached,
    }


@recomputes("002-kv-complexity-whole-layer")
def layer_with_and_without_cache(T, d):
    projections, feed_forward = 4 * d * d, 2 * d * 4 * d

    def new_token(context):
        return projections + feed_forward + 2 * context * d

    naive = _total(lambda length: length * new_token(length), T)
    cached = _total(new_token, T)
    return {
        "naive": naive,
        "cached": cached,
        "ratio": naive / cached,
        "attention_share_cached": _total(lambda context: 2 * context * d, T) / cached,
    }


@recomputes("001-kv-cache-complexity")
def what_grows_with_the_text():
    return {
        "naive_projection_degree_in_N": growth(lambda n: n),  # every token projected again
        "cached_projection_degree_in_N": growth(lambda n: 1),  # the new token alone
        "naive_scores_degree_in_N": growth(lambda n: n * n),
        "cached_scores_degree_in_N": growth(lambda n: 1 * n),  # one query against n keys
        "memory_degree_in_N": growth(lambda n: 2 * n),  # a key and a value each
    }


@recomputes("004-table1-complexities")
def recurrence_against_attention(n, d):
    def recurrent(n, d):
        return n * d * d

    def attention(n, d):
        return n * n * d

    def rest_of_block(n, d):
        return 12 * n * d * d

    crossover = next(r for r in itertools.count(1) if 2 * attention(r * d, d) >= rest_of_block(r * d, d))
    return {
        "rnn_degree_n": growth(lambda n: recurrent(n, d)),
        "rnn_degree_d": growth(lambda d: recurrent(n, d)),
        "att_degree_n": growth(lambda n: attention(n, d)),
        "att_degree_d": growth(lambda d: attention(n, d)),
        "rnn_path": len(range(n)),
        "att_path": 1,
        "attention_term_cheaper_when_n_lt_d": all(
            (attention(length, d) < recurrent(length, d)) == (length < d) for length in (d // 2, d, 2 * d)
        ),
        "block_crossover_n_over_d": crossover,
    }


@recomputes("002-quantization-bytes")
def gigabytes_of_weights(params_billion, bits):
    return {"GB": [params_billion * 1e9 * width / 8 / 1e9 for width in bits]}


@recomputes("002-on-device-latency")
def tokens_the_memory_allows(params_billion, bits, bandwidth_GBps, budget_s, tokens):
    weights = params_billion * bits / 8
    per_token = weights / bandwidth_GBps  # every weight is read once for each token
    return {
        "weights_GB": weights,
        "tokens_per_second_bound": 1 / per_token,
        "tokens_in_budget": budget_s / per_token,
        "summary_fits": tokens * per_token <= budget_s,
    }


PUBLISHED = {  # from the papers and the released configurations
    "bert_base": 12,
    "gpt3_175b": 96,
    "gpt2_layers": [12, 24, 36, 48],
    "transformer_blocks": 6,
    "heads": {"base Transformer": 8, "BERT-base": 12, "BERT-large": 16},
}


@recomputes("002-depth-facts")
def published_depths():
    return {name: PUBLISHED[name] for name in ("bert_base", "gpt3_175b")}


@recomputes("002-gpt2-depth")
def depths_of_gpt2():
    depths = PUBLISHED["gpt2_layers"]
    return {"a_gpt2_size_has_24_layers": 24 in depths, "gpt2_layers": depths}


@recomputes("002-heads-common")
def published_head_counts():
    return {"heads": sorted(PUBLISHED["heads"].values())}


@recomputes("004-heads-typical")
def smaller_head_counts():
    return {"h": sorted(PUBLISHED["heads"].values())[:2]}


@recomputes("004-gpt2-vocab")
def gpt2_vocabulary():
    single_bytes, merges, end_of_text = 256, 50_000, 1
    return {"vocab": single_bytes + merges + end_of_text}


@recomputes("004-residual-stack")
def blocks_of_the_paper():
    return {"N": PUBLISHED["transformer_blocks"]}
