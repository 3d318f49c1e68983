"""Run programs in PyTorch: each operation is ATen's own, on tensors of the CPU.

outputs = run(program, tensors, inputs)          {layer's name: its output}
ENGINE                                           for `programs.passes`, which runs them step by step
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from modelkeeper.frontends.programs import passes
from modelkeeper.frontends.programs.operations import signature
from modelkeeper.frontends.programs.program import Program
from modelkeeper.frontends.torch.read_load import as_array, as_tensor
from modelkeeper.frontends.torch.recorder import CPU, META, tensors_in

if TYPE_CHECKING:
    from modelkeeper.weights import Array


class AtenEngine:
    """Carries out operations by ATen: see `programs.passes.Engine`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def tensor(self, array: Any) -> Tensor:
        """A tensor in the memory of an array."""
        return as_tensor("value", array).to(self._device)

    def array(self, tensor: Tensor) -> "Array":
        """An array in the memory of a tensor."""
        return as_array("value", tensor)

    def nbytes(self, tensor: Tensor) -> int:
        """Without what it may share with others."""
        return tensor.numel() * tensor.element_size()

    def apply(self, operation: str, arguments: dict[str, Any]) -> list[Tensor]:
        """Call the operator. What makes a tensor of nothing makes it where the others are."""
        known = signature(operation)
        assert known is not None, operation
        given = arguments | ({"device": self._device} if known.places else {})
        if isinstance(given.get("dtype"), str):
            given["dtype"] = getattr(torch, given["dtype"])
        with torch.no_grad():
            return list(tensors_in(_operator(operation)(**given)))

    def on_shapes(
        self, arrays: "Sequence[Array]", look: Callable[[passes.Engine, Sequence[Tensor]], int]
    ) -> int:
        """On the meta device."""
        dry = AtenEngine(META)
        return look(dry, [dry.tensor(array) for array in arrays])


ENGINE = AtenEngine(CPU)


@cache
def _operator(operation: str) -> OpOverload:
    packet, _, overload = operation.partition(".")
    operator: OpOverload = getattr(getattr(torch.ops.aten, packet), overload)
    return operator


def run(
    program: Program,
    tensors: Mapping[str, Tensor],
    inputs: Sequence[Tensor],
    layers: Collection[str] | None = None,
) -> dict[str, Tensor]:
    """The outputs of the named layers of the model's graph (default: all), on one batch of any size.

    Raises:
        InvalidProgram: The program does not fit the tensors or inputs, or would take too much memory or work.
    """
    return passes.run(ENGINE, program, tensors, inputs, layers)


if TYPE_CHECKING:
    _typed: passes.Engine = ENGINE
