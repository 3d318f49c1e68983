"""`read` shares memory where it can; `load` writes all or nothing."""

import copy

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from modelkeeper.errors import InvalidWeights
from modelkeeper.frontends.torch import describe, load, read
from modelkeeper.weights import Array
from tests.helpers.networks import Chain, Residual, TiedLanguageModel


def test_what_is_read_is_the_models_memory() -> None:
    model = Residual()
    weights = dict(read(model))
    assert weights.keys() == describe(model).tensors.keys() == model.state_dict().keys()
    with torch.no_grad():
        model.head.weight[0, 0] = 42
    assert weights["head.weight"][0, 0] == 42


def test_reading_and_loading_is_the_identity() -> None:
    source, target = Residual(), Residual()
    load(target, dict(read(source)))
    for name, tensor in target.state_dict().items():
        assert torch.equal(tensor, source.state_dict()[name])


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.float16, np.float16),
        (torch.bfloat16, ml_dtypes.bfloat16),
        (torch.float64, np.float64),
        (torch.float8_e4m3fn, ml_dtypes.float8_e4m3fn),
    ],
)
def test_every_float_type_comes_and_goes(dtype: torch.dtype, expected: type) -> None:
    source, target = Chain(), Chain().to(dtype)
    numbers: dict[str, Array] = {name: array.astype(expected) for name, array in read(source)}
    load(target, numbers)
    for name, array in read(target):
        assert array.dtype == np.dtype(expected)
        assert array.tobytes() == numbers[name].tobytes()
        assert np.shares_memory(
            array.view(np.uint8), dict(target.named_parameters())[name].view(torch.uint8).detach().numpy()
        )


def test_dtype_device_and_identity_of_parameters_are_kept() -> None:
    model = Chain().to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = list(model.parameters())
    load(model, {name: np.ones(array.shape, np.float64) for name, array in read(model)})
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))
    assert all(p.dtype == torch.bfloat16 and p.requires_grad and (p == 1).all() for p in model.parameters())
    model(torch.ones(1, 6, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    assert not (model.get_parameter("4.bias").detach() == 1).any()


def test_names_that_are_not_given_are_left_alone() -> None:
    model = Chain()
    before = copy.deepcopy(model.state_dict())
    load(model, {"0.bias": np.zeros(8)})
    assert not model.get_parameter("0.bias").any()
    assert all(
        torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items() if name != "0.bias"
    )


broken = st.sampled_from(
    [
        ("2.wieght", np.zeros((5, 8)), "no such tensor; did you mean '2.weight'"),
        ("2.weight", np.zeros((8, 5)), r"shape \(8, 5\), the model has \(5, 8\)"),
        ("2.weight", np.zeros((5, 8), complex), "complex128 cannot become"),
        ("2.weight", np.array([["a"] * 8] * 5), "can't convert"),
        ("2.weight", torch.empty(5, 8, device="meta"), "on the meta device"),
    ]
)


@given(broken, st.integers(0, 4))
def test_one_wrong_weight_changes_nothing(fault: tuple[str, object, str], position: int) -> None:
    model = Chain()
    before = copy.deepcopy(model.state_dict())
    good: list[tuple[str, object]] = [
        (name, np.zeros(array.shape)) for name, array in read(model) if name != "2.weight"
    ]
    good.insert(position, fault[:2])
    with pytest.raises(InvalidWeights, match=fault[2]):
        load(model, dict(good))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_tied_tensors_go_by_any_of_their_names_but_once() -> None:
    model = TiedLanguageModel()
    assert "head.weight" not in dict(read(model))
    load(model, {"head.weight": np.zeros((11, 8))})
    assert (model.tokens.weight == 0).all()
    with pytest.raises(InvalidWeights, match=r"tied to 'tokens\.weight', which is given too"):
        load(model, {"tokens.weight": np.ones((11, 8)), "head.weight": np.ones((11, 8))})


def test_wrapped_models_take_the_same_names() -> None:
    model = nn.DataParallel(Chain())
    assert next(read(model))[0] == "0.weight"
    load(model, {"0.bias": np.zeros(8)})
    assert not model.module.get_parameter("0.bias").any()


def test_read_only_and_foreign_arrays_are_taken() -> None:
    model = Chain()
    array = np.ones(8, ">f4")
    array.flags.writeable = False
    load(model, {"0.bias": array, "2.bias": list(range(5))})
    assert model.get_parameter("0.bias").tolist() == [1] * 8
    assert model.get_parameter("2.bias").tolist() == [0, 1, 2, 3, 4]


def test_tables_that_are_not_stored_are_not_read() -> None:
    model = Chain()
    model.register_buffer("table", torch.ones(4), persistent=False)
    assert "table" not in dict(read(model))
    with pytest.raises(InvalidWeights, match="no such tensor"):
        load(model, {"table": np.ones(4)})


def test_a_model_without_numbers_cannot_be_read_but_is_loaded() -> None:
    with torch.device("meta"):
        model = Chain()
    with pytest.raises(InvalidWeights, match="meta device"):
        dict(read(model))
    load(model, {"0.bias": np.zeros(8)})
    assert (dict(read(model))["0.bias"] == 0).all()


class Large(nn.Module):
    """Tensors that are large enough to be copied as bytes, and one that is laid out in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(300, 400), nn.Linear(300, 400).to(torch.bfloat16)
        self.conv = nn.Conv2d(64, 64, 5)
        self.conv.weight.data = self.conv.weight.data.contiguous(memory_format=torch.channels_last)
        self.register_buffer("counts", torch.arange(20_000))


def test_large_tensors_are_loaded_bit_by_bit_and_autograd_knows() -> None:
    source, target = Large(), Large()
    target.get_buffer("counts").zero_()
    arrays = dict(read(source))
    arrays["a.weight"].flags.writeable = False
    made = target.a(torch.ones(1, 300, requires_grad=True)).sum()  # its gradient needs the old weights
    load(target, arrays)
    for name, tensor in target.state_dict().items():
        assert torch.equal(tensor, source.state_dict()[name]), name
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        made.backward()


def test_large_tensors_that_are_elsewhere_or_their_own_source_are_loaded_too() -> None:
    model, other = Large(), Large()
    expected = model.a.weight.detach().flip(0).contiguous()
    load(model, {"a.weight": model.a.weight, "b.weight": other.b.weight.float()})
    assert torch.equal(model.b.weight, other.b.weight)
    load(model, {"a.weight": expected.numpy()[::-1][::-1]})
    assert torch.equal(model.a.weight, expected)
    flat = torch.arange(400 * 300 + 1).float()
    model.a.weight.data = flat[1:].view(400, 300)
    load(model, {"a.weight": flat[:-1].view(400, 300)})  # the same memory, moved by one
    assert torch.equal(model.a.weight, torch.arange(400 * 300).float().view(400, 300))


def test_one_wrong_weight_changes_no_large_tensor() -> None:
    model = Large()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(InvalidWeights, match=r"b\.weight"):
        load(model, {"a.weight": np.zeros((400, 300), np.float32), "b.weight": np.zeros((400, 301))})
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
