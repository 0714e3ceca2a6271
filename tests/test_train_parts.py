"""The learner's parts in the trainer: whose ran, are torch's kernels the same, can the weights be handed in?"""

import copy
import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from autograde.kill_matrix import namespace, solution_cells
from tests import train_toys as toys
from utils import handed_in, oracle
from utils.train import device as devices
from utils.train import nested, parts, weights
from utils.train.weights import WeightsError

VOCABULARY = {"a": (12, 13), "b": (11,)}
SIZES = dict(n_layers=2, init_std=0.2)


@pytest.fixture(scope="module")
def solved():
    """Models of a learner who solved everything: Transformer and GPT as their notebooks have them."""
    phases = {"Transformer": "phase4_blocks", "GPT": "phase6_families_and_systems"}
    return {name: namespace(solution_cells(phase))[name] for name, phase in phases.items()}


@pytest.fixture(params=["yours", "the course's"])
def whose(request, monkeypatch, solved):
    table = solved if request.param == "yours" else {}
    monkeypatch.setattr(parts, "mine", lambda name: table.get(name) or getattr(oracle, name))
    return request.param


def built(track, **changes):
    return parts.build(toys.config(track, **SIZES | changes), VOCABULARY[track])


def inputs(track, length=6):
    tokens = torch.randint(4, 11, (3, length), generator=torch.Generator().manual_seed(2))
    if track == "b":
        return (tokens,)
    mask = torch.arange(length) < torch.tensor([6, 4, 2])[:, None]
    return tokens, tokens.flip(1), mask, mask


@pytest.mark.parametrize("track", "ab")
def test_whose_part_ran_is_said(track, whose):
    """A model of the learner's and one of the course's: does the dict tell them apart?"""
    model, told = built(track)
    assert told[parts.MODEL[track]] == whose
    assert type(model).__name__ == parts.MODEL[track]


@pytest.mark.parametrize("track", "ab")
def test_fused_kernels_are_the_same_model(track, whose):
    """Swapped kernels: equal logits and gradients, the same names, and no parameter touched?"""
    (own, _), (fused, told) = built(track), built(track, kernels="fused")
    assert told["attention"].startswith("torch's scaled_dot_product_attention, equal to the model's own up to")
    assert toys.equal(own.state_dict(), fused.state_dict())
    grads = []
    for model in (own, fused):
        logits = model(*inputs(track))
        real = inputs(track)[-1] if track == "a" else slice(None)
        logits[real].square().mean().backward()
        grads.append({name: parameter.grad for name, parameter in model.named_parameters()} | {"logits": logits[real]})
    for name in grads[0]:
        assert torch.allclose(grads[0][name], grads[1][name], atol=1e-5), name


def test_a_copy_of_a_fused_model_computes_with_its_own_weights(whose):
    """A deep copy whose weights are changed: do the copy's logits change, and the original's stay?"""
    model, _ = built("b", kernels="fused")
    before = model(*inputs("b"))
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(0.5)
    assert torch.equal(model(*inputs("b")), before) and not torch.allclose(other(*inputs("b")), before)


@pytest.mark.slow
def test_a_fused_model_is_one_graph(whose):
    """With torch's kernels in, can a compiler read the whole GPT without a break?"""
    model, _ = built("b", kernels="fused")
    whole = torch.compile(model, backend="eager", fullgraph=True)
    with torch.device("cpu"):  # as on a GPU, where new tensors are sent to the model
        assert torch.allclose(whole(*inputs("b")), model(*inputs("b")), atol=1e-6)


def test_a_model_that_torch_does_not_match_keeps_its_own_kernels(monkeypatch):
    """Attention without the scale: is the difference found, said, and everything put back?"""

    class Odd(oracle.GPT):
        def __init__(self, config):
            super().__init__(config)
            for block in self.blocks:
                block.attention.__class__ = Unscaled

    class Unscaled(oracle.MultiHeadAttention):
        def _mixed(self, q, k, v, attn_mask):
            return oracle.sdpa(q * q.shape[-1] ** 0.5, k, v, attn_mask)

    monkeypatch.setattr(parts, "mine", lambda name: Odd if name == "GPT" else getattr(oracle, name))
    (own, _), (model, told) = built("b", init_std=0.5), built("b", kernels="fused", init_std=0.5)
    assert "were taken out again" in told["attention"]
    assert torch.equal(own(*inputs("b")), model(*inputs("b")))


@pytest.mark.parametrize("track", "ab")
def test_parts_that_only_know_the_cpu_run_elsewhere(track, whose):
    """Masks and positions made without a word about devices: do they land where the model is?"""
    for kernels in ("own", "fused"):
        model = built(track, kernels=kernels)[0].to("meta")
        with devices.computing(torch.device("meta"), "fp32"):
            logits = model(*(tensor.to("meta") for tensor in inputs(track)))
        assert logits.device.type == "meta" and logits.shape == (3, 6, VOCABULARY[track][-1])


# ---- weights.safetensors -------------------------------------------------------------------------


@pytest.mark.parametrize("track", "ab")
def test_weights_go_into_the_twin(tmp_path, track, whose):
    """A learner's trained model, written and read: does the course's own model say exactly the same?"""
    model, _ = built(track, kernels="fused")
    assert weights.write(tmp_path / "w.safetensors", model, track) is None
    for twin in (weights.twin(tmp_path / "w.safetensors"), weights.load(tmp_path / "w.safetensors", _blank(track))):
        assert type(twin) is getattr(oracle, parts.MODEL[track])
        real = inputs(track)[-1] if track == "a" else slice(None)
        assert torch.allclose(twin(*inputs(track))[real], model(*inputs(track))[real], atol=1e-5)


def _blank(track):
    config = toys.config(track, **SIZES)
    if track == "b":
        return oracle.GPT(parts.gpt_config(config, *VOCABULARY["b"]))
    return oracle.Transformer(*VOCABULARY["a"], config.d_model, config.n_heads, config.d_ff, config.n_layers)


def test_torchs_layer_norm_is_known_by_the_courses_names(monkeypatch):
    """A learner who took nn.LayerNorm in the blocks: can the weights be handed in, and does its scale begin at 1?"""

    class WithTorchs(oracle.GPT):
        def __init__(self, config):
            super().__init__(config)
            self.norm = nn.LayerNorm(config.d_model)

    monkeypatch.setattr(parts, "mine", lambda name: WithTorchs if name == "GPT" else getattr(oracle, name))
    model, _ = built("b")
    assert bool((model.norm.weight == 1).all())
    assert weights.named(model, "b")[1] is None


def test_a_translator_that_is_too_large_is_stored_all_the_same(tmp_path, monkeypatch):
    """A file above the limit: is it there, and is it said why it cannot be handed in?"""
    monkeypatch.setattr(handed_in, "MOST", 1_000)
    run = toys.train(tmp_path, "a")
    assert run.report["weights_stored"] and not run.report["can_be_handed_in"]
    assert "at most 0 MB may be handed in" in run.report["why_not"]
    assert weights.twin(tmp_path / handed_in.FILE).encoder is not None


def test_another_layout_trains_but_cannot_be_read(tmp_path, monkeypatch):
    """Fused projections, right but under other names: does it train, and is it said why no file of weights is there?"""

    class Packed(oracle.MultiHeadAttention):
        def __init__(self, d_model, n_heads):
            super().__init__(d_model, n_heads)
            del self.w_q
            self.w_query = nn.Linear(d_model, d_model)

        @property
        def w_q(self):
            return self.w_query

    class Odd(oracle.GPT):
        def __init__(self, config):
            super().__init__(config)
            for block in self.blocks:
                block.attention = Packed(config.d_model, config.n_heads)

    monkeypatch.setattr(parts, "mine", lambda name: Odd if name == "GPT" else getattr(oracle, name))
    run = toys.train(tmp_path)
    assert run.steps_done == 6 and not run.report["weights_stored"]
    assert run.report["why_not"] == "it has no blocks.0.attention.w_q.weight"
    assert not (tmp_path / "weights.safetensors").exists()


@pytest.fixture
def stored(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "mine", lambda name: getattr(oracle, name))
    path = tmp_path / "w.safetensors"
    weights.write(path, built("a")[0], "a")
    return path


def rewritten(path, change, header=None):
    """The file with its tensors changed by change(tensors)."""
    tensors = load_file(path)
    change(tensors)
    sizes = {"n_heads": 2, "norm_first": True}
    save_file(tensors, path, header if header is not None else {"track": "a", "sizes": json.dumps(sizes)})


TABLE = "tgt_embedding.weight"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tensors: tensors.pop("encoder.norm.gamma"), "the weights lack encoder.norm.gamma"),
        (lambda tensors: tensors.update(more=torch.ones(2)), "the weights hold more, which the model does not have"),
        (lambda tensors: tensors.update({TABLE: torch.ones(13, 8)}), "tgt_embedding.weight has the shape (13, 8)"),
        (lambda tensors: tensors.update({TABLE: torch.ones(13, 16).int()}), "not floating-point numbers"),
        (lambda tensors: tensors[TABLE].fill_(torch.nan), "numbers that are not finite"),
    ],
)
def test_weights_that_do_not_fit_are_refused(stored, change, said):
    """Missing, extra, misshapen, whole or broken numbers: a plain error, and the model as it was?"""
    rewritten(stored, change)
    model = _blank("a")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for read in (lambda: weights.load(stored, model), lambda: weights.twin(stored)):
        with pytest.raises(WeightsError) as caught:
            read()
        assert said in str(caught.value)
    assert toys.equal(before, dict(model.state_dict()))


@pytest.mark.parametrize(
    "header", [{}, {"track": "a"}, {"track": "a", "sizes": "{"}, {"track": "c", "sizes": "{}"}]
    + [{"track": "a", "sizes": json.dumps({"n_heads": n, "norm_first": True})} for n in (0, 5, "2", -4, 10**9)],
)  # fmt: skip
def test_a_header_is_not_trusted(stored, header):
    """Who made the header may be anybody: is a wrong one refused in plain words?"""
    rewritten(stored, lambda tensors: None, header)
    with pytest.raises(WeightsError):
        weights.twin(stored)


def test_other_files_are_refused(tmp_path, stored):
    """No file, half a file, a pickle: a plain error each?"""
    with pytest.raises(WeightsError, match="there is no file"):
        weights.twin(tmp_path / "none")
    whole = stored.read_bytes()
    torch.save({"a": torch.ones(2)}, tmp_path / "pickle")
    for broken in (b"", whole[:100], whole[:-10], (tmp_path / "pickle").read_bytes()):
        stored.write_bytes(broken)
        with pytest.raises(WeightsError, match="not a whole safetensors file"):
            weights.twin(stored)


def test_nested_values_come_back_as_they_were():
    """What any AdamW may keep: dicts with numbers as keys, tuples, None, tensors of all kinds?"""
    value = {0: (1, torch.arange(3), None), "x": [{"y": 0.1 + 0.2}, float("inf")], (1, 2): torch.tensor(2.0).double()}
    skeleton, tensors = nested.flatten(value)
    back = nested.unflatten(json.loads(json.dumps(skeleton)), tensors)
    assert str(back) == str(value) and back[(1, 2)].dtype == torch.float64
    with pytest.raises(nested.CannotStore):
        nested.flatten({"made by": object()})


def test_an_adamw_that_cannot_be_stored_is_replaced(tmp_path, monkeypatch, capsys):
    """A learner's AdamW keeps a generator: is the course's taken, with the reason, before a step is paid for?"""

    class Odd(oracle.AdamW):
        def state_dict(self):
            return {"torchs": iter([])}

    monkeypatch.setattr(parts, "mine", lambda name: Odd if name == "AdamW" else getattr(oracle, name))
    run = toys.train(tmp_path, watch=True)
    assert run.report["parts"]["AdamW"] == parts.OURS
    assert "using the course's AdamW, because the state of yours" in capsys.readouterr().out
