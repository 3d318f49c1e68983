"""Which network of a LightningModule is it, and what does it run on?"""

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
lightning: Any = pytest.importorskip("lightning.pytorch")

from modelkeeper.errors import InvalidSetting  # noqa: E402
from modelkeeper.integrations.lightning.network import inputs_of, is_built_later, network_of  # noqa: E402

nn = torch.nn


class Plain(lightning.LightningModule):  # type: ignore[misc]
    """A network beside what trains it; no forward."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.loss = nn.Linear(3, 2), nn.CrossEntropyLoss()


class Whole(Plain):
    """A forward over two parts."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        return self.head(self.model(x))


class Around(Plain):
    """A forward that prepares inputs of its one network."""

    def __init__(self) -> None:
        super().__init__()
        self.example_input_array = {"batch": {"x": torch.zeros(4, 1, 3)}}
        self.ran = 0

    def forward(self, batch: Any) -> Any:
        self.ran += 1
        return self.model(batch["x"][:, 0])


def test_it_is_the_one_child_that_has_parameters_or_the_module_or_what_was_named() -> None:
    plain, whole = Plain(), Whole()
    assert network_of(plain) is plain.model
    assert network_of(whole) is whole
    assert network_of(whole, "head") is whole.head
    plain.scale = nn.Parameter(torch.ones(1))
    assert network_of(plain) is plain
    with pytest.raises(InvalidSetting, match="there are model, loss"):
        network_of(plain, "net")


def test_a_list_of_modules_cannot_be_run() -> None:
    module = Plain()
    module.model = nn.ModuleList([nn.Linear(3, 2)])
    assert network_of(module) is module


def test_inputs_are_what_the_network_sees_of_the_example() -> None:
    module = Around()
    inputs = inputs_of(module, module.model)
    assert inputs.args[0].shape == (4, 3)
    assert not inputs.args[0].is_inference()
    assert module.ran == 0  # nothing is left of it
    assert not module.model._forward_pre_hooks
    assert inputs_of(module, module) is module.example_input_array


def test_an_example_without_a_way_to_the_network() -> None:
    plain = Plain()
    assert inputs_of(plain, plain.model) is None
    plain.example_input_array = torch.zeros(1, 3)
    assert inputs_of(plain, plain.model) is plain.example_input_array  # there is no forward to go through
    wrong = Around()
    wrong.example_input_array = torch.zeros(1, 3)
    assert inputs_of(wrong, wrong.model) is None


def test_hooks_that_may_build_a_network() -> None:
    class Late(Plain):
        def configure_model(self) -> None:
            """Build."""

    assert not is_built_later(Plain())
    assert is_built_later(Late())
