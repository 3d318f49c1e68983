"""`describe` finds its inputs, leaves the model as it was, and says plainly what it cannot do."""

import copy
import random
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from modelkeeper.errors import CannotDescribe, UnknownFramework
from modelkeeper.frontends import frontend_for
from modelkeeper.frontends.torch import FRONTEND, describe, example
from modelkeeper.graph import Pin, from_json, to_json
from tests.helpers.networks import (
    IMAGE,
    SCENARIOS,
    VECTOR,
    Chain,
    Flatten,
    Projected,
    Residual,
    TiedLanguageModel,
)


class FromFunction(nn.Module):
    """Two linear layers with any function between them."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.a, self.b, self.function = nn.Linear(6, 8), nn.Linear(8, 3), function

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.function(self.a(x)))


def state(model: nn.Module) -> dict[str, object]:
    """All that a user could see of a model, apart from the numbers."""
    numpy_state = np.random.get_state(legacy=False)
    assert isinstance(numpy_state, dict)
    return {
        "training": [module.training for module in model.modules()],
        "identities": [id(tensor) for tensor in (*model.parameters(), *model.buffers())],
        "places": [tensor.data_ptr() for tensor in (*model.parameters(), *model.buffers())],
        "versions": [tensor._version for tensor in (*model.parameters(), *model.buffers())],
        "gradients": [parameter.grad is None for parameter in model.parameters()],
        "requires": [parameter.requires_grad for parameter in model.parameters()],
        "hooks": [list(module._forward_hooks) for module in model.modules()],
        "attributes": [sorted(module.__dict__) for module in model.modules()],
        "random": (torch.get_rng_state().tolist(), random.getstate(), numpy_state["state"]["key"].tolist()),
        "gradient mode": torch.is_grad_enabled(),
        "fast path": torch.backends.mha.get_fastpath_enabled(),
    }


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("kind", SCENARIOS, ids=lambda kind: kind.__name__)
def test_the_model_stays_as_it_was(kind: type[nn.Module]) -> None:
    model = kind().train()
    first = next(model.children())
    first.eval()
    first.register_forward_hook(lambda *_: pytest.fail("a hook of the user ran"))
    numbers = copy.deepcopy(model.state_dict())
    before = state(model)
    describe(model, SCENARIOS[kind])
    assert state(model) == before
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, numbers[name]), name


@given(st.integers(0, 2**31), st.booleans())
def test_random_state_and_gradient_mode_are_untouched(seed: int, gradients: bool) -> None:
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(6, 4), nn.Dropout(0.5), FromFunction(lambda x: x + torch.rand_like(x))
    ).train()
    model[2].a = nn.Linear(4, 8)
    before = torch.get_rng_state()
    with torch.set_grad_enabled(gradients):
        describe(model, VECTOR)
        assert torch.is_grad_enabled() == gradients
    assert torch.equal(torch.get_rng_state(), before)


def test_a_failing_forward_leaves_the_model_as_it_was() -> None:
    def fail(x: Tensor) -> Tensor:
        raise ValueError("no")

    model = FromFunction(fail).train()
    before = state(model)
    with pytest.raises(CannotDescribe, match="ValueError: no"):
        describe(model, VECTOR)
    assert state(model) == before


def test_what_a_module_keeps_on_itself_is_put_back() -> None:
    class Caching(Chain):
        cache: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            self.calls = getattr(self, "calls", 0) + 1
            self.cache = self.through(x)
            return self.cache

    model = Caching()
    describe(model, VECTOR)
    assert model.cache is None
    assert not hasattr(model, "calls")


def test_nothing_is_computed_and_no_weight_is_read() -> None:
    """A model of a terabyte has no numbers to read; describing it takes what it takes."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(500_000, 500_000), nn.ReLU(), nn.Linear(500_000, 10))
    graph = describe(model, torch.empty(1, 500_000, device="meta"))
    assert graph.parameters == 500_000**2 + 500_000 + 500_000 * 10 + 10


def test_a_buffer_that_the_forward_pass_changes_is_not_changed() -> None:
    class Counting(Chain):
        def __init__(self) -> None:
            super().__init__()
            self.seen: Tensor
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.seen += 1
            return self.through(x) * (2 if x.sum() > 1e9 else 1)  # looks at numbers: runs for real

    model = Counting()
    graph = describe(model, VECTOR)
    assert [note.topic for note in graph.notes] == ["fallback"]
    assert model.seen.item() == 0


# -- inputs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)),
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(4 * 26 * 26, 10)),
        nn.Sequential(nn.Conv1d(2, 8, 3), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 2)),
        nn.Sequential(nn.Conv3d(2, 4, 3), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, 2)),
        nn.Sequential(nn.Flatten(), nn.Linear(784, 10)),
        nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50)),
        nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 2)),
        nn.Sequential(nn.BatchNorm1d(7), nn.Linear(7, 2)),
        nn.LSTM(5, 6, batch_first=True),
        nn.Transformer(8, 2, 1, 1, 16, batch_first=True),
        nn.Linear(4, 4).to(torch.bfloat16),
        TiedLanguageModel(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_inputs_are_found_for_ordinary_models(model: nn.Module) -> None:
    graph = describe(model)
    assert sum(tensor.size for tensor in graph.tensors.values() if not tensor.buffer) == sum(
        parameter.numel() for parameter in model.parameters()
    )


def test_declared_input_sizes_are_used() -> None:
    model = Flatten()
    vars(model)["default_cfg"] = {"input_size": (3, 8, 8)}
    assert describe(model).layers[-2].name == "head"


def test_inputs_may_be_a_tensor_a_tuple_or_a_dict() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.chain = Chain()

        def forward(self, x: Tensor, *, scale: Tensor, twice: bool = False) -> Tensor:
            return self.chain(x) * scale * (2 if twice else 1)

    graph = describe(Two(), {"x": VECTOR, "scale": torch.ones(3), "twice": True})
    assert [layer.name for layer in graph.layers if layer.kind == "input"] == ["x", "scale"]
    assert describe(Chain(), VECTOR) == describe(Chain(), (VECTOR,)) == describe(Chain(), example((2, 6)))


def test_a_model_that_does_not_run_says_what_to_pass() -> None:
    with pytest.raises(
        CannotDescribe, match=r"on any of \d+ guessed inputs.*Pass example_inputs.*torch\.zeros"
    ):
        describe(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Linear(17, 2)))
    with pytest.raises(CannotDescribe, match=r"did not run on \(2x5\).*Pass example_inputs"):
        describe(Chain(), torch.zeros(2, 5))
    with pytest.raises(CannotDescribe, match="nothing in it says what its inputs look like"):
        describe(nn.Sequential(nn.ReLU()))


def test_lazy_modules_are_asked_to_take_shape() -> None:
    with pytest.raises(CannotDescribe, match=r"'weight' has no shape yet.*Run the model once"):
        describe(nn.LazyLinear(3), VECTOR)


def test_other_objects_have_no_front_end() -> None:
    assert frontend_for(Chain()) is FRONTEND
    with pytest.raises(UnknownFramework, match="dict is no model"):
        frontend_for({})


# -- outputs and dead code ------------------------------------------------------------------------


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 2), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = self.body(x)
        return {"features": x, "first": self.first(x), "second": self.second(x)}


def test_outputs_are_declared_not_guessed() -> None:
    model = TwoHeads()
    everything = describe(model, VECTOR)
    assert sum(layer.kind == "output" for layer in everything.layers) == 3
    assert everything.spaces[0].pins == (Pin("output"),)
    one = describe(model, VECTOR, outputs="first")
    assert one.spaces[0].free
    assert {name for name, tensor in one.tensors.items() if not tensor.live} == {
        "second.weight",
        "second.bias",
    }
    assert one == describe(model, VECTOR, outputs=lambda returned: returned["first"])
    with pytest.raises(CannotDescribe, match="it returned no 'third'"):
        describe(model, VECTOR, outputs="third")


def test_unused_parameters_are_marked_dead() -> None:
    model = Chain()
    model.register_parameter("spare", nn.Parameter(torch.zeros(3)))
    model[0].register_parameter("idle", nn.Parameter(torch.zeros(2)))
    graph = describe(model, VECTOR)
    assert {name for name, tensor in graph.tensors.items() if not tensor.live} == {"spare", "0.idle"}


def test_a_value_used_for_its_shape_alone_ties_nothing() -> None:
    model = FromFunction(lambda x: x + torch.zeros(model.b(x).shape[0], 8))
    graph = describe(model, VECTOR)
    assert [layer.kind for layer in graph.layers] == ["input", "linear", "linear", "output"]


# -- wrappers, devices, dtypes --------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.compile imports deprecated parts of torch
def test_wrappers_are_looked_through() -> None:
    model = Residual().eval()
    plain = describe(model, IMAGE)
    assert describe(nn.DataParallel(model), IMAGE) == plain
    inner = Residual().eval()
    compiled, part = torch.compile(model), torch.compile(inner.outer)
    assert isinstance(compiled, nn.Module)
    assert isinstance(part, nn.Module)
    assert describe(compiled, IMAGE) == plain
    inner.add_module("stem", nn.DataParallel(inner.stem))
    inner.add_module("outer", part)
    assert describe(inner, IMAGE) == plain
    assert isinstance(inner.get_submodule("stem"), nn.DataParallel)


def test_distributed_data_parallel_is_looked_through(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        model = Chain()
        assert describe(nn.parallel.DistributedDataParallel(model), VECTOR) == describe(model, VECTOR)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_dtypes_are_recorded_and_are_not_structure(dtype: torch.dtype) -> None:
    graph = describe(Residual().to(dtype))
    assert graph.tensors["stem.0.weight"].dtype == str(dtype).removeprefix("torch.")
    assert graph.fingerprint == describe(Residual()).fingerprint


def test_a_model_on_meta_has_the_same_graph() -> None:
    with torch.device("meta"):
        model = Residual()
    assert describe(model) == describe(Residual())


class Branches(nn.Module):
    """Two branches, named and called in any order, with or without a bias."""

    def __init__(self, names: dict[str, bool], width: int = 8) -> None:
        super().__init__()
        self.names = list(names)
        for name, bias in names.items():
            self.add_module(name, nn.Linear(6, width, bias=bias))

    def forward(self, x: Tensor) -> Tensor:
        first, second = (getattr(self, name)(x) for name in self.names)
        return torch.relu(first + second)


def test_names_and_the_order_of_branches_are_not_structure_but_widths_are() -> None:
    graph = describe(Branches({"a": True, "b": False}), VECTOR)
    assert graph.fingerprint == describe(Branches({"q": False, "p": True}), VECTOR).fingerprint
    assert graph.fingerprint != describe(Branches({"a": True, "b": False}, width=9), VECTOR).fingerprint
    assert graph.fingerprint != describe(Branches({"a": True, "b": True}), VECTOR).fingerprint


def test_frozen_parameters_and_tables_are_marked() -> None:
    model = Residual()
    model.head.requires_grad_(False)
    model.register_buffer("table", torch.ones(4), persistent=False)
    tensors = describe(model).tensors
    assert not tensors["head.weight"].trainable
    assert tensors["stem.0.weight"].trainable
    assert not tensors["table"].stored
    assert tensors["stem.1.running_mean"].buffer
    assert tensors["stem.1.num_batches_tracked"].role == "count"


# -- parts that cannot be seen into ---------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_scripted_parts_are_described_like_others() -> None:
    model = nn.Sequential(
        nn.Linear(6, 8), torch.jit.script(nn.Sequential(nn.ReLU(), nn.Linear(8, 5))), nn.Linear(5, 3)
    )
    graph = describe(model, VECTOR)
    assert [layer.kind for layer in graph.layers] == ["input", "linear", "linear", "linear", "output"]
    assert "1.1.weight" in graph.tensors


@pytest.mark.filterwarnings("ignore:.*quantize:UserWarning")
def test_quantised_parts_are_opaque_and_named() -> None:
    class Quantised(FromFunction):
        def __init__(self) -> None:
            super().__init__(lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize())

    graph = describe(Quantised(), VECTOR)
    assert any(note.topic == "opaque" and "quantize" in note.text for note in graph.notes)


def test_weights_read_through_data_are_still_the_models() -> None:
    model = FromFunction(lambda x: torch.nn.functional.linear(x, model.get_parameter("c").data))
    model.register_parameter("c", nn.Parameter(torch.randn(8, 8)))
    assert next(layer for layer in describe(model, VECTOR).layers if layer.name == "c").kind == "linear"


@pytest.mark.parametrize("kind", SCENARIOS, ids=lambda kind: kind.__name__)
def test_graphs_of_models_survive_their_bytes(kind: type[nn.Module]) -> None:
    graph = describe(kind(), SCENARIOS[kind])
    assert from_json(to_json(graph)) == graph
    assert describe(kind(), SCENARIOS[kind]).fingerprint == graph.fingerprint


def test_a_recurrent_layer_with_lists_of_weights_runs_on_shapes() -> None:
    graph = describe(Projected(), SCENARIOS[Projected])
    assert not [note for note in graph.notes if note.topic == "fallback"]


@pytest.mark.parametrize("always", [True, False], ids=["on shapes", "on numbers"])
@pytest.mark.filterwarnings("error")
def test_what_a_forward_pass_warns_of_is_no_error(always: bool) -> None:
    def warns(x: Tensor) -> Tensor:
        if always or not x.is_meta:
            warnings.warn("of the user's own", UserWarning, stacklevel=2)
        return x if always or x.sum().item() < 1e9 else -x

    with pytest.warns(UserWarning, match="of the user's own"):
        graph = describe(FromFunction(warns), VECTOR)
    assert [layer.kind for layer in graph.layers].count("linear") == 2
    with pytest.raises(UserWarning):
        warnings.warn("after it", stacklevel=1)
