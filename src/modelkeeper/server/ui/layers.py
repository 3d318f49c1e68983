"""How are the layers of a model told to a page? As rows of short fields, which a script lays out."""

from typing import Any

from modelkeeper.graph import Graph, Layer


def layer_rows(graph: Graph) -> dict[str, Any]:
    """Every layer of a graph, in its order."""
    seen: set[str] = set()
    rows = []
    for layer in graph.layers:
        fresh = [tensor for tensor in layer.tensors if tensor.name not in seen and not tensor.buffer]
        seen.update(tensor.name for tensor in layer.tensors)
        rows.append(
            cell(layer)
            | {
                "parameters": sum(tensor.size for tensor in fresh),
                "inputs": [[edge.source, " > ".join(edge.via)] for edge in layer.inputs],
                "attributes": {key: written(value) for key, value in sorted(layer.attributes.items())},
                "tensors": [[tensor.role, written(tensor.shape), tensor.dtype] for tensor in layer.tensors],
            }
        )
    notes = [str(note) for note in graph.notes[:20]]
    return {"framework": graph.framework, "parameters": graph.parameters, "rows": rows, "notes": notes}


def cell(layer: Layer) -> dict[str, Any]:
    """What every table says of a layer: its name, its kind, the shapes of its weights."""
    shapes = dict.fromkeys(written(tensor.shape) for tensor in layer.tensors if not tensor.buffer)
    return {"name": layer.name, "kind": layer.kind, "shapes": ", ".join(shapes)}


def written(value: object) -> str:
    """A shape, or another attribute of a layer."""
    if isinstance(value, tuple):
        return "×".join(map(str, value)) or "scalar"
    return str(value)
