"""Chains of linear layers as plain data: a graph, its weights, and what it computes. No framework needed."""

import numpy as np

from modelkeeper.graph import Atom, Axis, Edge, Fixed, Graph, Layer, Pin, Space, Tensor
from modelkeeper.weights import Array

INPUTS, CLASSES = 3, 2


def chain(*widths: int, dtype: str = "float64") -> Graph:
    """Linear layers with biases and rectifiers between them, from INPUTS to CLASSES."""
    spaces = (*(Space(width) for width in widths), Space(CLASSES, (Pin("output"),)))
    layers, taken = [Layer("image", "input")], Axis("in", Fixed(INPUTS, "input"))
    for number, space in enumerate(spaces):
        made, name = Atom(number, space.size), f"l{number}"
        weight = Tensor(f"{name}.weight", "weight", dtype, (Axis("out", made), taken))
        bias = Tensor(f"{name}.bias", "bias", dtype, (Axis("out", made),))
        edge = Edge(number, ("relu",) if number else ())
        layers.append(Layer(name, "linear", (edge,), (weight, bias)))
        taken = Axis("in", made, ((number, 1),))
    layers.append(Layer("answer", "output", (Edge(len(spaces)),)))
    return Graph("test", tuple(layers), spaces)


def weights_of(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Random numbers for every tensor."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(size=tensor.shape).astype(tensor.dtype) for name, tensor in graph.tensors.items()
    }


def computed(weights: dict[str, Array], x: Array) -> Array:
    """What a chain with these weights computes."""
    for number in range(len(weights) // 2):
        x = np.maximum(x, 0) if number else x
        x = x @ weights[f"l{number}.weight"].T + weights[f"l{number}.bias"]
    return x
