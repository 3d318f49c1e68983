"""What does a convolution's window do at the edges, and does another one do the same?

A larger kernel with zeros around its middle computes what the smaller one did, if the padding grew by as much
on each side. A new convolution can hand on what it is given only if it makes a place of every place: by steps
of one, with just the padding that its kernel takes away again.
"""

from modelkeeper.graph import Layer, Tensor
from modelkeeper.graph.vocabulary import CONV, WINDOWED

Margins = tuple[tuple[int, int], ...]  # for each axis of a kernel: the padding before and behind


def grows_with_padding(parent_layer: Layer, child_layer: Layer) -> bool:
    """Is the child's window the parent's with a border of zeros, laid over as many more zeros?"""
    weights = [_weight(layer) for layer in (parent_layer, child_layer)]
    if child_layer.kind != CONV or parent_layer.kind != CONV or None in weights:
        return False
    parent_sizes, child_sizes = (_kernel(weight) for weight in weights if weight is not None)
    parent_margins, child_margins = margins(parent_layer), margins(child_layer)
    if len(parent_sizes) != len(child_sizes) or "dilation" in {
        *child_layer.attributes,
        *parent_layer.attributes,
    }:
        return False
    if parent_margins is None or child_margins is None:
        return False
    return all(
        child_size >= parent_size
        and tuple(child - parent for child, parent in zip(child_margin, parent_margin, strict=True))
        == border(parent_size, child_size)
        for parent_size, child_size, parent_margin, child_margin in zip(
            parent_sizes, child_sizes, parent_margins, child_margins, strict=True
        )
    )


def border(parent_size: int, child_size: int) -> tuple[int, int]:
    """How many zeros a kernel that grows gets before and behind its middle: as `units.centred` places it."""
    grown = child_size - parent_size
    return grown // 2, grown - grown // 2


def keeps_places(layer: Layer) -> bool:
    """Can a layer hand on each place as it is? Whatever has no window can."""
    weight = _weight(layer)
    if layer.kind not in WINDOWED or weight is None:
        return True
    around = margins(layer)
    dilation = layer.attributes.get("dilation", 1)
    if around is None or "stride" in layer.attributes or not isinstance(dilation, (int, tuple)):
        return False
    steps = (dilation,) * len(around) if isinstance(dilation, int) else dilation
    return len(steps) == len(around) and all(
        margin == tuple(side * step for side in border(1, size))
        for margin, size, step in zip(around, _kernel(weight), steps, strict=True)
    )


def margins(layer: Layer) -> Margins | None:
    """The padding of a convolution, before and behind each axis of its kernel; None if it is in words."""
    weight = _weight(layer)
    rank = 0 if weight is None else len(_kernel(weight))
    padding = layer.attributes.get("padding", (0,) * rank)
    if not isinstance(padding, tuple) or len(padding) not in (rank, 2 * rank):
        return None
    return tuple(zip(padding[:rank], padding[-rank:] if rank else (), strict=True))


def _weight(layer: Layer) -> Tensor | None:
    """The tensor that is the window of a layer, if it has one."""
    return next((tensor for tensor in layer.tensors if tensor.role == "weight"), None)


def _kernel(weight: Tensor) -> list[int]:
    """The sizes of a window."""
    return [axis.size for axis in weight.axes if axis.role == "kernel"]
