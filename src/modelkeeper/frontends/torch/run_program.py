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
from modelkeeper.frontends.programs.sandbox.elsewhere import Elsewhere
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

    @property
    def elsewhere(self) -> Elsewhere:
        """Where it is in another process."""
        return Elsewhere("modelkeeper.frontends.torch.run_program:ENGINE")

    @property
    def threads(self) -> int:
        """As many as PyTorch takes here."""
        return torch.get_num_threads()

    def load(self) -> None:
        """Run each kind of kernel once: some look at the machine, or import something, the first time."""
        torch.set_num_threads(1)
        for engine in (self, AtenEngine(META)):
            engine._exercise()

    def settle(self, threads: int) -> None:
        """Threads start when they are needed: what a process takes to start them it always has."""
        torch.set_num_threads(max(1, threads))

    def _exercise(self) -> None:
        x, weight = (torch.ones(shape, device=self._device) for shape in ((2, 4, 8, 8), (4, 4, 3, 3)))
        image = self.apply("conv2d.default", {"input": x, "weight": weight})[0]
        rows = image.reshape(2, 4, -1)
        self.apply("linear.default", {"input": rows, "weight": rows[0]})
        attended = {"query": rows, "key": rows, "value": rows}
        self.apply("scaled_dot_product_attention.default", attended)
        self.apply("einsum.default", {"equation": "abc,adc->abd", "tensors": [rows, rows]})
        self.apply("_fft_r2c.default", {"self": rows, "dim": [2], "normalization": 0, "onesided": True})
        state, taken, hidden, bias = (
            torch.ones(shape, device=self._device) for shape in ((1, 2, 4), (16, 36), (16, 4), (16,))
        )
        given = {"input": rows.transpose(0, 1), "hx": [state, state], "params": [taken, hidden, bias, bias]}
        flags = dict.fromkeys(("train", "bidirectional", "batch_first"), False)
        given |= {"has_biases": True, "num_layers": 1, "dropout": 0.0, **flags}
        self.apply("lstm.input", given)

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
