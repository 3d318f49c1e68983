"""Run programs in Keras: each operation by keras.ops, on the backend that is active.

    ENGINE                                     for `programs.passes`, which runs programs step by step

An operation that no function here carries out raises InvalidProgram, which names it.
"""

import importlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from keras.src import backend

from modelkeeper.errors import InvalidProgram
from modelkeeper.frontends.keras.inputs import symbolic
from modelkeeper.frontends.keras.numbers import to_numpy
from modelkeeper.frontends.keras.operations import FUNCTIONS
from modelkeeper.frontends.programs.operations import signature
from modelkeeper.frontends.programs.passes import Engine
from modelkeeper.frontends.programs.sandbox.elsewhere import Elsewhere
from modelkeeper.weights import Array, dtype_of

# JAX compiles each operation of its own before it runs it: one of ours may be ten of its own.
_COMPILED = keras.backend.backend() == "jax"
MOST_FUNCTIONS = 2_000


def _of_tensors(argument: Any) -> bool:
    """Is an argument a tensor, or a list with one?"""
    parts = argument if isinstance(argument, list) else [argument]
    return any(hasattr(part, "shape") for part in parts)


class KerasEngine:
    """Carries out operations by keras.ops: see `programs.passes.Engine`."""

    def __init__(self) -> None:
        self._functions: dict[str, Any] = {}  # compiled ones

    @property
    def elsewhere(self) -> Elsewhere:
        """Where it is in another process, on the same backend; with nothing but the processor."""
        backend = ("KERAS_BACKEND", keras.backend.backend())
        devices = (("CUDA_VISIBLE_DEVICES", "-1"), ("JAX_PLATFORMS", "cpu"), ("TF_CPP_MIN_LOG_LEVEL", "3"))
        return Elsewhere("modelkeeper.frontends.keras.run_program:ENGINE", (backend, *devices))

    @property
    def threads(self) -> int:
        """As many as there are processors: each backend decides for itself."""
        return os.cpu_count() or 1

    def load(self) -> None:
        """Importing was enough: a backend that has run something has threads, and cannot be forked."""

    def settle(self, threads: int) -> None:
        """Run something, so that the backend starts: it looks at the machine, and starts threads."""
        x, weight = np.ones((2, 8, 8, 4), "float32"), np.ones((3, 3, 4, 4), "float32")
        rows = keras.ops.reshape(keras.ops.conv(x, weight, data_format="channels_last"), (2, -1))
        self.array(keras.ops.matmul(rows, keras.ops.transpose(rows)))
        self.on_shapes([x], lambda dry, stand_ins: len(dry.apply("relu.default", {"self": stand_ins[0]})))

    def tensor(self, array: Any) -> Any:
        """A tensor of the backend with the numbers of an array."""
        return keras.ops.convert_to_tensor(array) if isinstance(array, np.ndarray) else array

    def array(self, tensor: Any) -> Array:
        """The numbers of a tensor of the backend."""
        return to_numpy(tensor)

    def nbytes(self, tensor: Any) -> int:
        """By its shape and dtype."""
        dtype = dtype_of(keras.backend.standardize_dtype(tensor.dtype))
        return int(np.prod([int(size) for size in tensor.shape], dtype=np.int64)) * dtype.itemsize

    def apply(self, operation: str, arguments: dict[str, Any]) -> list[Any]:
        """Call the function for an operation."""
        function, known = FUNCTIONS.get(operation), signature(operation)
        if function is None or known is None:
            raise InvalidProgram(f"operation {operation}", "Keras does not carry it out here")
        given = {parameter.name: parameter.default for parameter in known.parameters} | arguments
        made = self._compiled(operation, given) if _COMPILED else function(**given)
        return made if isinstance(made, list) else [made]

    def _compiled(self, operation: str, given: dict[str, Any]) -> Any:
        """An operation as one function of its tensors, compiled as a whole."""
        taken = {name: value for name, value in given.items() if _of_tensors(value)}
        plain = {name: value for name, value in given.items() if name not in taken}
        key = f"{operation}{plain}"
        if key not in self._functions:
            if len(self._functions) >= MOST_FUNCTIONS:
                self._functions.clear()
            jit = importlib.import_module("jax").jit
            self._functions[key] = jit(partial(FUNCTIONS[operation], **plain))
        return self._functions[key](**taken)

    def on_shapes(self, arrays: Sequence[Array], look: Callable[[Engine, Sequence[Any]], int]) -> int:
        """On symbolic tensors, as Keras itself finds the shapes of outputs."""
        found: list[int] = []
        problems: list[Exception] = []

        def call(*stand_ins: Any) -> Any:
            # What is raised in here would make some backends try again, on real tensors.
            try:
                found.append(look(self, stand_ins))
            except Exception as problem:  # noqa: BLE001 (it is raised again, outside)
                problems.append(problem)
            return stand_ins[0]

        shapes = [symbolic(array.shape, keras.backend.standardize_dtype(array.dtype)) for array in arrays]
        backend.compute_output_spec(call, *shapes)
        if problems:
            raise problems[0]
        return found[0]


ENGINE = KerasEngine()

if TYPE_CHECKING:
    _typed: Engine = ENGINE
