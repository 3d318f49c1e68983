"""How does a tensor of the graph lie in an initializer of the file? As it is, transposed, or as a part of it.

    Layout("fc.weight", (4, 3), order=(1, 0))      stored (in, out), in the graph (out, in)
    layout.take(stored)                            the tensor of the graph: a view where that is possible
    layout.put(stored, tensor)                     the other way, into memory that can be written to

A recurrent layer stores both directions, and both biases, in one initializer, its gates in ONNX' own order.
"""

from dataclasses import dataclass

import numpy as np

from modelkeeper.weights import Array

Part = tuple[int | slice, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a tensor of the graph is, and how it is turned."""

    initializer: str
    shape: tuple[int, ...]  # of the tensor of the graph
    order: tuple[int, ...] = ()  # the axes of what is stored, as the graph orders them; (): as they are
    part: Part = ()  # what of the initializer it is
    gates: tuple[int, ...] = ()  # the gates of what is stored on the first axis, as the graph orders them
    repeated: bool = False  # it is one row, of which many are stored

    def take(self, stored: Array) -> Array:
        """The tensor of the graph, from the numbers of its initializer."""
        array = stored[self.part] if self.part else stored
        if self.repeated:
            array = array.reshape(-1, array.shape[-1])[:1]
        if self.gates and len(self.gates) > 1:
            apart = array.reshape(len(self.gates), -1, *array.shape[1:])
            array = apart[list(self.gates)].reshape(array.shape)
        if self.order:
            array = array.transpose(self.order)
        return array.reshape(self.shape)

    def put(self, stored: Array, tensor: Array) -> None:
        """Write a tensor of the graph to where it belongs in the numbers of its initializer."""
        target = stored[self.part] if self.part else stored
        if self.repeated:
            target[...] = tensor
            return
        if self.order:
            target = target.transpose(self.order)
        turned = tensor.reshape(target.shape)
        if self.gates and len(self.gates) > 1:
            apart = turned.reshape(len(self.gates), -1, *target.shape[1:])
            turned = apart[np.argsort(self.gates)].reshape(target.shape)
        target[...] = turned
