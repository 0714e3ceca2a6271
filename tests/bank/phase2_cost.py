"""attention_cost: wrong solutions and unusual right ones."""

import math
from fractions import Fraction
from functools import reduce
from operator import mul
from typing import NamedTuple

import torch

from tests.bank import right, wrong

# ---------------------------------------------------------------- wrong


@wrong("attention_cost", says="a multiply-add is two operations")
def multiply_adds(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    return 2 * batch * n_heads * q_len * kv_len * d_head, batch * n_heads * q_len * kv_len * bytes_per_element


@wrong("attention_cost")
def one_product(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    scores = batch * n_heads * q_len * kv_len
    return scores * 2 * d_head, scores * bytes_per_element


@wrong("attention_cost")
def one_product_of_multiply_adds(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    scores = batch * n_heads * q_len * kv_len
    return scores * d_head, scores * bytes_per_element


@wrong("attention_cost", says="keys have their own length")
def q_len_twice(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    return 4 * batch * n_heads * q_len**2 * d_head, batch * n_heads * q_len**2 * bytes_per_element


@wrong("attention_cost", says="keys have their own length")
def kv_len_twice(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    return 4 * batch * n_heads * kv_len**2 * d_head, batch * n_heads * kv_len**2 * bytes_per_element


@wrong("attention_cost")
def square_flops_only(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    return 4 * batch * n_heads * q_len**2 * d_head, batch * n_heads * q_len * kv_len * bytes_per_element


@wrong("attention_cost")
def no_heads(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    return 4 * batch * q_len * kv_len * d_head, batch * q_len * kv_len * bytes_per_element


@wrong("attention_cost")
def no_heads_in_scores(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    return 4 * batch * n_heads * q_len * kv_len * d_head, batch * q_len * kv_len * bytes_per_element


@wrong("attention_cost")
def model_width(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    d_model = n_heads * d_head
    scores = batch * n_heads * q_len * kv_len
    return 4 * scores * d_model, scores * bytes_per_element


@wrong("attention_cost", says="the batch is missing from score_bytes")
def scores_of_one_example(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    return 4 * batch * n_heads * q_len * kv_len * d_head, n_heads * q_len * kv_len * bytes_per_element


@wrong("attention_cost")
def flops_of_one_example(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    return 4 * n_heads * q_len * kv_len * d_head, batch * n_heads * q_len * kv_len * bytes_per_element


@wrong("attention_cost")
def softmax_counted(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    scores = batch * n_heads * q_len * kv_len
    return 4 * scores * d_head + 5 * scores, scores * bytes_per_element


@wrong("attention_cost")
def exact_number_of_additions(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    scores = batch * n_heads * q_len * kv_len
    products = scores * (2 * d_head - 1) + batch * n_heads * q_len * d_head * (2 * kv_len - 1)
    return products, scores * bytes_per_element


@wrong("attention_cost")
def projections_counted(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    d_model = n_heads * d_head
    scores = batch * n_heads * q_len * kv_len
    return 4 * scores * d_head + 8 * batch * q_len * d_model**2, scores * bytes_per_element


@wrong("attention_cost")
def scores_and_weights_stored(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    scores = batch * n_heads * q_len * kv_len
    return 4 * scores * d_head, 2 * scores * bytes_per_element


@wrong("attention_cost")
def elements_not_bytes(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    scores = batch * n_heads * q_len * kv_len
    return 4 * scores * d_head, scores


@wrong("attention_cost")
def bits_per_element(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    scores = batch * n_heads * q_len * kv_len
    return 4 * scores * d_head, scores * bytes_per_element * 8


@wrong("attention_cost")
def floats(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    scores = float(batch * n_heads * q_len * kv_len)
    return 4 * scores * d_head, scores * bytes_per_element


@wrong("attention_cost")
def rounded_floats(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    scores = math.prod(map(float, (batch, n_heads, q_len, kv_len)))
    return int(4 * scores * d_head), int(scores * bytes_per_element)


@wrong("attention_cost")
def tensors(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    scores = torch.tensor([batch, n_heads, q_len, kv_len]).prod()
    return 4 * scores * d_head, scores * bytes_per_element


@wrong("attention_cost")
def flops_only(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    return 4 * batch * n_heads * q_len * kv_len * d_head


@wrong("attention_cost")
def bytes_first(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    scores = batch * n_heads * q_len * kv_len
    return scores * bytes_per_element, 4 * scores * d_head


# ---------------------------------------------------------------- right


@right("attention_cost", why="the formula as it stands")
def formula(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    return 4 * batch * n_heads * q_len * kv_len * d_head, batch * n_heads * q_len * kv_len * bytes_per_element


@right("attention_cost", why="both products summed, one head of one example at a time")
def summed_products(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    q_times_k = 2 * q_len * d_head * kv_len
    weights_times_v = 2 * q_len * kv_len * d_head
    heads = batch * n_heads
    return heads * (q_times_k + weights_times_v), heads * (q_len * kv_len) * bytes_per_element


@right("attention_cost", why="math.prod and a shift")
def shifted(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    return math.prod((batch, n_heads, q_len, kv_len, d_head)) << 2, math.prod(
        (batch, n_heads, q_len, kv_len, bytes_per_element)
    )


@right("attention_cost", why="from the model width, divided exactly by the number of heads")
def from_model_width(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    d_model = n_heads * d_head
    flops = 4 * batch * q_len * kv_len * d_model
    return flops, flops * bytes_per_element // (4 * d_head)


@right("attention_cost", why="fractions, turned into ints at the end")
def exact_fractions(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    flops = reduce(mul, (Fraction(n) for n in (batch, n_heads, q_len, kv_len, d_head))) * 4
    return int(flops), int(flops / 4 / d_head * bytes_per_element)


class Cost(NamedTuple):
    """A named tuple is a tuple."""

    flops: int
    score_bytes: int


@right("attention_cost", why="a named tuple")
def named(batch, n_heads, q_len, kv_len, d_head, bytes_per_element):
    scores = batch * n_heads * q_len * kv_len
    return Cost(score_bytes=scores * bytes_per_element, flops=scores * d_head * 2 + scores * d_head * 2)
