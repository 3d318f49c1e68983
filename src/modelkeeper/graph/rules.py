"""When is a graph valid?

When every reference points to an earlier layer or an existing space, every size agrees with its space,
every text can be written, and nothing exceeds the limits below. `check` is called whenever a graph is
built, be it from a model or from a stranger's bytes.

The cost is linear in the graph's own size. Axes and edges share expressions and paths, and a document of
a few kB can share a long one a million times: each object is checked once, and what it unfolds to is
counted at every use. A problem is raised bare and whoever knows the place adds it on the way out, so that
a sound graph formats no messages.
"""

from msgspec import Struct

from modelkeeper.errors import InvalidGraph
from modelkeeper.graph.expressions import Atom, Concat, Expression, Fixed, Product, Space, leaves
from modelkeeper.graph.structure import Attribute, Axis, Graph, Layer, Tensor

# What a graph may not exceed, whoever sends it. The largest real classifier (1,202 layers deep) has
# 3,600 layers; the limits leave room and keep every later pass bounded.
MAX_LAYERS = 100_000
MAX_EDGES = 1_000_000
MAX_TENSORS = 500_000
MAX_RANK = 16
MAX_SIZE = 2**48
MAX_TEXT = 1_000
MAX_DEPTH = 32
MAX_LEAVES = 2_000_000  # of the expressions of all axes, and steps on all edges: shared ones count each time
MAX_DEGREE = 1_000

DTYPES = (
    frozenset({"bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"})
    | frozenset({"float16", "bfloat16", "float32", "float64", "complex64", "complex128"})
    | frozenset({"float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "opaque"})
)
AXIS_ROLES = frozenset({"out", "in", "kernel", "row", "other"})


def check(graph: Graph) -> None:
    """Raise InvalidGraph unless every rule holds."""
    _Checker(graph).check()


def limit(name: str, count: int, most: int) -> None:
    """Refuse before anything is built: an edge of two bytes becomes an object of a hundred."""
    if count > most:
        raise InvalidGraph(name, f"{count:,} of them; at most {most:,}")


class _Extent(Struct, frozen=True):
    """What an expression comes to."""

    size: int
    leaves: int
    depth: int


class _Checker:
    """What has been seen of a graph so far."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.edges = self.steps = self.tensors = self.leaves = 0
        self.named: dict[str, Tensor] = {}
        self.paths: set[int] = set()
        self.axes: dict[int, _Extent] = {}
        self.extents: dict[int, _Extent] = {}

    def check(self) -> None:
        graph = self.graph
        try:
            _text(graph.framework)
        except InvalidGraph as error:
            raise InvalidGraph("framework", error.problem) from None
        if len(graph.layers) > MAX_LAYERS:
            raise InvalidGraph("layers", f"{len(graph.layers)} of them; at most {MAX_LAYERS:,}")
        for number, space in enumerate(graph.spaces):
            try:
                self.space(space)
            except InvalidGraph as error:
                raise InvalidGraph(f"space {number}", error.problem) from None
        for number, note in enumerate(graph.notes):
            try:
                for text in (note.topic, note.where, note.text):
                    _text(text, least=0)
            except InvalidGraph as error:
                raise InvalidGraph(f"note {number}", error.problem) from None
        for number, layer in enumerate(graph.layers):
            try:
                self.layer(number, layer)
            except InvalidGraph as error:
                place = f"layer {number} ({layer.name[:80]!r})"
                raise InvalidGraph(
                    f"{place}, {error.where}" if error.where else place, error.problem
                ) from None

    def space(self, space: Space) -> None:
        if not 0 <= space.size <= MAX_SIZE:
            raise InvalidGraph("", f"its size is {space.size}")
        for pin in space.pins:
            _text(pin.code)
            _text(pin.where, least=0)
            _text(pin.detail, least=0)

    def layer(self, number: int, layer: Layer) -> None:
        _text(layer.name, least=0)
        _text(layer.kind)
        self.edges += len(layer.inputs)
        self.tensors += len(layer.tensors)
        if self.edges > MAX_EDGES:
            raise InvalidGraph("", f"more than {MAX_EDGES:,} edges in all")
        if self.tensors > MAX_TENSORS:
            raise InvalidGraph("", f"more than {MAX_TENSORS:,} tensors in all")
        for edge in layer.inputs:
            if not 0 <= edge.source < number:
                raise InvalidGraph("", f"takes input from layer {edge.source}, not an earlier one")
            self.path(edge.via)
        for key, value in layer.attributes.items():
            _text(key)
            try:
                _attribute(value)
            except InvalidGraph as error:
                raise InvalidGraph(f"attribute {key!r}", error.problem) from None
        for tensor in layer.tensors:
            try:
                self.tensor(tensor)
            except InvalidGraph as error:
                raise InvalidGraph(f"tensor {tensor.name[:80]!r}", error.problem) from None

    def path(self, via: tuple[str, ...]) -> None:
        self.steps += len(via)
        if self.steps > MAX_LEAVES:
            raise InvalidGraph("", f"more than {MAX_LEAVES:,} steps on the edges in all")
        if id(via) not in self.paths:
            self.paths.add(id(via))
            for step in via:
                _text(step)

    def tensor(self, tensor: Tensor) -> None:
        _text(tensor.name)
        _text(tensor.role)
        if tensor.name[0] == ".":
            raise InvalidGraph("", "a dot may not come first in its name")
        if tensor.dtype not in DTYPES:
            raise InvalidGraph("", f"unknown dtype {tensor.dtype[:40]!r}")
        if len(tensor.axes) > MAX_RANK:
            raise InvalidGraph("", f"{len(tensor.axes)} axes; at most {MAX_RANK}")
        size = 1
        for axis in tensor.axes:
            extent = self.axes.get(id(axis))
            if extent is None:
                extent = self.axes[id(axis)] = self.axis(axis)
            size *= extent.size
            self.leaves += extent.leaves
        if size > MAX_SIZE:
            raise InvalidGraph("", "more elements than any machine holds")
        if self.leaves > MAX_LEAVES:
            raise InvalidGraph("", f"with it, the axes unfold to more than {MAX_LEAVES:,} leaves in all")
        first = self.named.setdefault(tensor.name, tensor)
        if first is not tensor and (first.dtype, [a.of for a in first.axes]) != (
            tensor.dtype,
            [a.of for a in tensor.axes],
        ):
            raise InvalidGraph("", "it was described differently before")

    def axis(self, axis: Axis) -> _Extent:
        if axis.role not in AXIS_ROLES:
            raise InvalidGraph("", f"unknown axis role {axis.role[:40]!r}")
        extent = self.expression(axis.of, 0)
        if axis.degrees:
            held = {leaf.space for leaf in leaves(axis.of) if isinstance(leaf, Atom)}
            for space, degree in axis.degrees:
                if space not in held:
                    raise InvalidGraph("", f"a degree for space {space}, which the axis does not hold")
                if abs(degree) > MAX_DEGREE:
                    raise InvalidGraph("", f"space {space} has degree {degree}")
        return extent

    def expression(self, expression: Expression, level: int) -> _Extent:
        extent = self.extents.get(id(expression))
        if extent is None:
            if level >= MAX_DEPTH:
                raise InvalidGraph("", f"an axis expression nested deeper than {MAX_DEPTH}")
            extent = self.extents[id(expression)] = self.extent(expression, level)
        return extent

    def extent(self, expression: Expression, level: int) -> _Extent:
        match expression:
            case Atom(space, size):
                if not 0 <= space < len(self.graph.spaces):
                    raise InvalidGraph("", f"refers to space {space} of {len(self.graph.spaces)}")
                if self.graph.spaces[space].size != size:
                    raise InvalidGraph("", f"gives space {space} another size ({size})")
                return _Extent(size, 1, 0)
            case Fixed(size, origin):
                if not 0 <= size <= MAX_SIZE:
                    raise InvalidGraph("", f"a fixed axis of size {size}")
                _text(origin, least=0)
                return _Extent(size, 1, 0)
            case Product(parts) | Concat(parts):
                pass
        if len(parts) < 2:
            raise InvalidGraph("", "a composite axis of fewer than two parts")
        product = isinstance(expression, Product)
        size, count, depth = int(product), 0, 0
        for part in parts:
            if type(part) is type(expression):
                raise InvalidGraph("", "a composite axis that is not flat")
            extent = self.expression(part, level + 1)
            size = size * extent.size if product else size + extent.size
            count += extent.leaves
            depth = max(depth, extent.depth + 1)
            if size > MAX_SIZE:
                raise InvalidGraph("", "an axis longer than any machine holds")
            if count > MAX_LEAVES:
                raise InvalidGraph("", f"an axis of more than {MAX_LEAVES:,} leaves")
            if depth >= MAX_DEPTH:
                raise InvalidGraph("", f"an axis expression nested deeper than {MAX_DEPTH}")
        return _Extent(size, count, depth)


def _attribute(value: Attribute) -> None:
    match value:
        case str():
            _text(value, least=0)
        case tuple():
            if len(value) > MAX_RANK:
                raise InvalidGraph("", "too long")
            for item in value:
                if type(item) is not int:
                    raise InvalidGraph("", f"{item!r} among its numbers is no integer")
                _attribute(item)
        case bool():
            pass
        case int() | float():
            if not -(2**63) <= value < 2**63:
                raise InvalidGraph("", f"its value is {value}")


def _text(text: str, least: int = 1) -> None:
    if not least <= len(text) <= MAX_TEXT:
        shown = f"{text[:40]!r}"
        raise InvalidGraph(
            "", f"a text of {len(text):,} characters ({shown}); {least} to {MAX_TEXT:,} are allowed"
        )
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidGraph("", f"{text[:40]!r} holds half a surrogate pair") from None
