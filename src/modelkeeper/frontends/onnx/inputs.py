"""What could an ONNX model be run on? Its inputs as the file says them, with sizes for what it leaves open.

Example inputs settle it. Without them a batch is two examples, an image 224 wide, a text 16 words long; if
the graph does not fit that, one example and other sizes are tried.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onnx import ModelProto, ValueInfoProto

from modelkeeper.errors import CannotDescribe, InvalidModelFile
from modelkeeper.frontends.onnx.tensor_data import dtype_name
from modelkeeper.graph.rules import MAX_RANK

Shapes = dict[str, tuple[tuple[int, ...], str]]  # of inputs, by name: shape and type
_IMAGE, _TEXT = (224, 32, 64, 28, 256, 299, 512), (16, 128, 32, 8, 1)
_ADVICE = "Pass example_inputs: an array, a tuple in order, or a dict by name (on the command line --input)"


def given_shapes(name: str, proto: ModelProto, example_inputs: Any) -> Shapes:
    """The shapes of example inputs, by the names of the model's inputs.

    Raises:
        CannotDescribe: They are not those that the model takes.
    """
    inputs = inputs_of(proto)
    if isinstance(example_inputs, Mapping):
        named = dict(example_inputs)
    else:
        listed = example_inputs if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
        if len(listed) != len(inputs):
            problem = f"{len(listed)} inputs are given, it takes {len(inputs)}: {', '.join(_said(inputs))}"
            raise CannotDescribe(name, problem, _ADVICE)
        named = dict(zip((info.name for info in inputs), listed, strict=True))
    shapes: Shapes = {}
    for info in inputs:
        example = named.get(info.name)
        if not hasattr(example, "shape"):
            problem = f"its input {info.name!r} is not given: it takes {', '.join(_said(inputs))}"
            raise CannotDescribe(name, problem, _ADVICE)
        shape = tuple(int(size) for size in example.shape)  # type: ignore[union-attr]
        sizes = _sizes(info)
        if sizes is not None and (
            len(sizes) != len(shape)
            or any(isinstance(size, int) and size != got for size, got in zip(sizes, shape, strict=True))
        ):
            problem = f"its input {info.name!r} is {list(sizes)}, an example of {list(shape)} was given"
            raise CannotDescribe(name, problem, _ADVICE)
        shapes[info.name] = (shape, dtype_name(info.type.tensor_type.elem_type))
    return shapes


def guesses(name: str, proto: ModelProto) -> Iterator[Shapes]:
    """Shapes that the model may run on, the likeliest first.

    Raises:
        CannotDescribe: An input has no shape.
    """
    inputs = inputs_of(proto)
    sizes = {info.name: _sizes(info) for info in inputs}
    for unknown in (key for key, found in sizes.items() if found is None):
        raise CannotDescribe(name, f"its input {unknown!r} has no shape", _ADVICE)
    is_open = any(isinstance(size, str) for found in sizes.values() for size in found or ())
    for attempt in range(2 * len(_IMAGE) if is_open else 1):
        yield {
            info.name: (
                _filled(sizes[info.name] or (), attempt),
                dtype_name(info.type.tensor_type.elem_type),
            )
            for info in inputs
        }


def inputs_of(proto: ModelProto) -> list[ValueInfoProto]:
    """The inputs of a model that are no initializers."""
    stored = {tensor.name for tensor in proto.graph.initializer}
    inputs = [info for info in proto.graph.input if info.name not in stored]
    for info in inputs:
        if not info.type.HasField("tensor_type"):
            problem = f"its input {info.name[:200]!r} is no tensor"
            raise InvalidModelFile(
                f"the ONNX model {proto.graph.name[:200]!r}", problem, "Export it with tensors"
            )
    return inputs


def _sizes(info: ValueInfoProto) -> tuple[int | str, ...] | None:
    """The sizes of an input: numbers, or names of what is left open. None: not even how many there are."""
    kind = info.type.tensor_type
    if not kind.HasField("shape") or len(kind.shape.dim) > MAX_RANK:
        return None
    dims = list(kind.shape.dim)
    return tuple(
        dim.dim_value
        if dim.HasField("dim_value") and dim.dim_value > 0
        else dim.dim_param or f"{info.name}:{n}"
        for n, dim in enumerate(dims)
    )


def _filled(sizes: Sequence[int | str], attempt: int) -> tuple[int, ...]:
    """Sizes with numbers for what is left open: a batch first, then what a picture or a text has."""
    image = len(sizes) >= 4
    choices = _IMAGE if image else _TEXT
    batch, size = 2 - attempt % 2, choices[attempt // 2 % len(choices)]
    return tuple(
        known if isinstance(known, int) else batch if axis == 0 else 3 if image and axis == 1 else size
        for axis, known in enumerate(sizes)
    )


def _said(inputs: Sequence[ValueInfoProto]) -> list[str]:
    """Inputs for a message: their names and shapes."""
    return [f"{info.name} {list(_sizes(info) or ['?'])}" for info in inputs] or ["none"]
