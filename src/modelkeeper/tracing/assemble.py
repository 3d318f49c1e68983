"""From a trace with spaces to a Graph: which steps are layers, which are merges, what lies between.

Every value is where it comes from: out of one node through a path of folded operations, straight from
tensors of the model, or from nowhere (a constant). A step makes a node when it uses tensors of the
model or when it joins data of different nodes; otherwise it only lengthens a path.

A pointwise step that joins one node's output with functions of itself (x * sigmoid(x), a hand-written
RMS norm) is a function of that node, not a merge: it is folded into the path, written out.
"""

import math
from collections.abc import Sequence

from modelkeeper.graph import Axis, Edge, Fixed, Layer, Tensor
from modelkeeper.graph.structure import Attribute
from modelkeeper.graph.vocabulary import (
    APPLIED,
    ATTENTION,
    CONV,
    CONV_TRANSPOSE,
    COUNT,
    EMBEDDING,
    GATES,
    INPUT,
    INVERSE,
    LAYERS,
    LINEAR,
    MERGES,
    NORMS,
    OUTPUT,
    PARAMETER,
    PRELU,
    SCALE,
    UNUSED,
    USUAL_EPSILON,
)
from modelkeeper.tracing.constants import Constants
from modelkeeper.tracing.origins import Flow, Origin, Weights, numbered, through
from modelkeeper.tracing.paths import LONGEST_STEP, common, extend, shorten, with_scalars, written
from modelkeeper.tracing.rules.layers import operands, transposed
from modelkeeper.tracing.tensors import Degrees, Tensors, carry_roles, write_tensor
from modelkeeper.tracing.terms import Solver
from modelkeeper.tracing.trace import OwnedTensor, Step, Trace, Value
from modelkeeper.tracing.window_arguments import window_attributes

Part = tuple[str, Value | None, list[str]]  # of a layer: a tensor's role, the tensor, the roles of its axes
ROLES_OF_NORM = {"weight": "gain", "bias": "bias", "running_mean": "mean", "running_var": "variance"}


class Assembly:
    """Builds the layers of one graph."""

    def __init__(self, solver: Solver, degrees: Degrees) -> None:
        self.layers: list[Layer] = []
        self.tensors = Tensors(solver, degrees)
        self.constants = Constants()
        self.values: dict[int, Value] = {}  # a node -> the value that is its output
        self._origins: dict[int, Origin] = {}
        self._names: dict[str, int] = {}
        self._sources: dict[tuple[int, str], int] = {}  # a bare tensor, what was done to it -> its node

    def build(self, trace: Trace, names: Sequence[str]) -> None:
        """Walk the trace and make the nodes: inputs, layers and merges, outputs."""
        for value, name in zip(trace.inputs, names, strict=True):
            node = self._node(name, INPUT)
            self._origins[value.number], self.values[node] = Flow(node), value
        for step in trace.steps:
            origins = [self._origin(value) for value in step.inputs]
            before = len(self.layers)
            result = self._step(step, origins)
            if isinstance(result, Flow) and result.node >= before:
                self.values[result.node] = step.outputs[0]
            many = len(step.outputs) > 1
            for n, value in enumerate(step.outputs):
                if value.step is step:
                    piece = isinstance(result, Flow) and many
                    self._origins[value.number] = self._piece(result, step, n) if piece else result
        for value in trace.outputs:
            origin = self._origin(value)
            flow = self._flow(origin) if origin is not None else None
            self.values[self._node(OUTPUT, OUTPUT, [flow] if flow else [])] = value

    def leftover(self, owned: Sequence[OwnedTensor], touched: frozenset[str]) -> None:
        """Add tensors that no live step uses to a layer of the same module, or to one of kind `unused`."""
        described = {tensor.name for layer in self.layers for tensor in layer.tensors}
        homes = {layer.name: n for n, layer in reversed(list(enumerate(self.layers))) if layer.tensors}
        unused: dict[str, list[Tensor]] = {}
        for owned_tensor in owned:
            name = owned_tensor.names[0]
            if name in described:
                continue
            module, _, key = name.rpartition(".")
            module, count = owned_tensor.module or module, owned_tensor.counts
            live = (count and module in homes) or (name in touched and not owned_tensor.parameter)
            axes = tuple(Axis("other", Fixed(size, "unused")) for size in owned_tensor.shape)
            tensor = write_tensor(owned_tensor, COUNT if count else key, axes, live=live)
            if module in homes:
                layer = self.layers[homes[module]]
                tensors = (*layer.tensors, tensor)
                self.layers[homes[module]] = Layer(
                    layer.name, layer.kind, layer.inputs, tensors, layer.attributes
                )
            else:
                unused.setdefault(module, []).append(tensor)
        for module, spare in unused.items():
            self._node(module or UNUSED, UNUSED, tensors=spare)

    # -- where values come from -----------------------------------------------------------------

    def _origin(self, value: Value) -> Origin:
        if value.number in self._origins:
            return self._origins[value.number]
        if value.owner is not None and value.step is None:
            return Weights((value,), direct=True)
        return None

    def _piece(self, origin: Origin, step: Step, n: int) -> Origin:
        """A path to one of several results of a step."""
        assert isinstance(origin, Flow)
        if step.name in GATES or step.name in NORMS:
            return origin if n == 0 else Flow(origin.node, (*origin.via, f"state[{n}]"), False)
        if n == 0 and step.has("values_first"):
            return origin
        return Flow(origin.node, (*origin.via, f"{n + 1}/{len(step.outputs)}"), origin.simple)

    def _step(self, step: Step, origins: list[Origin]) -> Origin:
        made = self._layer(step)
        if made is not None:
            return Flow(made)
        present = [origin for origin in origins if origin is not None]
        if "whole" in step.arguments:  # written through another view of the same memory
            old, new = origins
            if step.arguments["whole"] or old is None:
                return new
            if new is None:
                return old
        flows = [origin for origin in present if isinstance(origin, Flow)]
        if not present:
            return None
        if not flows:
            values = tuple(
                {
                    v.number: v for origin in present if isinstance(origin, Weights) for v in origin.values
                }.values()
            )
            moved = step.has("silent") or step.has("permutes")
            direct = moved and all(isinstance(o, Weights) and o.direct for o in present)
            return Weights(values, direct, "" if direct else self._function(step, origins))
        weights = [origin for origin in present if isinstance(origin, Weights)]
        if len({flow.node for flow in flows}) == 1 and not weights:
            folded = self._fold(step, origins, flows)
            if folded is not None:
                return folded
        if weights and step.name in APPLIED and len(flows) == 1:
            return Flow(self._apply(step, flows[0], weights[0]))
        edges = [self._flow(origin) for origin in present]
        kind = MERGES.get(step.name, step.name)
        attributes = _attributes(step, ("dim", "is_causal", *(("scale",) if _own_scale(step) else ())))
        attributes |= _alpha(step)
        return Flow(self._node(kind, kind, edges, attributes=attributes))

    def _function(self, step: Step, origins: list[Origin]) -> str:
        """What is computed of tensors of the model and constants alone, written out."""
        inside = [
            origin.function or f"{{{origin.values[0].number}}}"
            if isinstance(origin, Weights)
            else self.constants.text(value)
            for value, origin in zip(step.inputs, origins, strict=True)
        ]
        if step.has("silent"):
            return inside[0]
        text = f"{written(step)}({','.join(inside)})"
        return text if len(text) <= LONGEST_STEP else shorten(numbered(text, ()))

    def _flow(self, origin: Origin) -> Flow:
        """The flow of a value from its node: a bare tensor gets a node of its own, once."""
        if isinstance(origin, Flow):
            return origin
        assert isinstance(origin, Weights)
        first = origin.values[0]
        source = (first.number, origin.function)
        node = self._sources.get(source)
        if node is None or len(origin.values) > 1:
            tensors = [
                self.tensors.tensor(value, _key(value), ["other"] * len(value.axes))
                for value in origin.values
            ]
            node = self._sources[source] = self._node(
                _module(first), PARAMETER, tensors=tensors, attributes=through({"": origin})
            )
        return Flow(node)

    def _fold(self, step: Step, origins: list[Origin], flows: list[Flow]) -> Flow | None:
        """Fold a step on one node's output into the path, unless it is a merge of separate branches."""
        if len(flows) == 1:
            flow = flows[0]
            if step.has("silent"):
                return flow
            text = written(step)
            simple = flow.simple and (step.has("pointwise") or step.has("statistic"))
            return Flow(flow.node, extend(flow.via, text), simple) if text else flow
        if not step.has("pointwise") or not all(flow.simple for flow in flows):
            return None
        shared = common([flow.via for flow in flows])
        inside = [
            "" if origin is None else ">".join(origin.via[len(shared) :]) or "_"
            for origin in origins
            if origin is None or isinstance(origin, Flow)
        ]
        function = f"{with_scalars(step)}({','.join(operand for operand in inside if operand)})"
        return Flow(flows[0].node, (*shared, shorten(function)))

    # -- layers ---------------------------------------------------------------------------------

    def _layer(self, step: Step) -> int | None:
        """The node of a step that is a layer by its kind, or None."""
        kind, given = LAYERS.get(step.name), step.arguments
        if kind in (CONV, CONV_TRANSPOSE):
            return self._convolution(step)
        if kind == LINEAR:
            return self._linear(step)
        if kind in NORMS:
            parts: list[Part] = [(role, given.get(key), ["out"] * 8) for key, role in ROLES_OF_NORM.items()]
            usual = given.get("eps") == USUAL_EPSILON.get(kind)
            attributes = _attributes(step, ("num_groups",) if usual else ("eps", "num_groups"))
            return self._parametric(step, kind, step.inputs[0], parts, attributes)
        if kind == EMBEDDING:
            return self._parametric(step, kind, "indices", [("weight", given["weight"], ["row", "out"])])
        if kind == PRELU:
            return self._parametric(step, kind, step.inputs[0], [("weight", step.inputs[1], ["out"] * 8)])
        if kind in GATES:
            parts = [
                ("weight" if len(value.shape) == 2 else "bias", value, ["out", "in"])
                for value in given["params"]
            ]
            return self._parametric(
                step, kind, "input", parts, _attributes(step, ("num_layers", "bidirectional"))
            )
        return None

    def _convolution(self, step: Step) -> int | None:
        back = transposed(step)
        rank = len(step.arguments["weight"].shape) - 2
        roles = ["in", "out"] if back else ["out", "in"]
        parts: list[Part] = [
            ("weight", step.arguments["weight"], roles + ["kernel"] * rank),
            ("bias", step.arguments.get("bias"), ["out"]),
        ]
        attributes = window_attributes(step, rank)
        return self._parametric(step, CONV_TRANSPOSE if back else CONV, "input", parts, attributes)

    def _linear(self, step: Step) -> int | None:
        """The node of a linear layer, be it an operation of its own or a matrix product with a weight."""
        if "weight" in step.arguments:
            weight, bias = step.arguments["weight"], step.arguments.get("bias")
            parts: list[Part] = [("weight", weight, ["out", "in"]), ("bias", bias, ["out"])]
            return self._parametric(step, LINEAR, "input", parts)
        left, right = operands(step)
        if not isinstance(self._origin(right), Weights) or isinstance(self._origin(left), Weights):
            return None
        roles = ["other"] * (len(right.shape) - 2) + ["in", "out"][: len(right.shape)]
        parts = [
            ("weight", right, roles),
            ("bias", step.inputs[0] if len(step.inputs) == 3 else None, ["out"]),
        ]
        return self._parametric(step, LINEAR, left, parts)

    def _parametric(
        self,
        step: Step,
        kind: str,
        taken: str | Value,
        parts: Sequence[Part],
        attributes: dict[str, Attribute] | None = None,
    ) -> int | None:
        """A node for a step whose tensors come from the model; None if they do not."""
        tensors: dict[str, Tensor] = {}
        others: list[Value] = []
        computed: dict[str, Weights] = {}
        owner = ""
        for role, value, roles in parts:
            origin = self._origin(value) if value is not None else None
            if isinstance(origin, Flow):
                assert value is not None
                others.append(value)  # computed from activations: an input like any other
            if not isinstance(origin, Weights):
                continue
            assert value is not None
            owner = owner or _module(origin.values[0])
            computed[f"{role}{len(computed)}" if role in computed else role] = origin
            for weight in origin.values:
                tensor = self.tensors.tensor(
                    weight, role, carry_roles(weight, value, roles), direct=origin.direct, used=value
                )
                tensors.setdefault(tensor.name, tensor)
        if not tensors:
            return None
        source = step.arguments[taken] if isinstance(taken, str) else taken
        flows = [
            self._flow(origin) for value in (source, *others) if (origin := self._origin(value)) is not None
        ]
        return self._node(owner, kind, flows, list(tensors.values()), (attributes or {}) | through(computed))

    def _apply(self, step: Step, flow: Flow, weights: Weights) -> int:
        """The node of a scale or shift: a tensor of the model times, or plus, the output of one node."""
        kind = APPLIED[step.name]
        role = "gain" if kind == SCALE else "bias"
        tensors = [
            self.tensors.tensor(v, role if n == 0 else "factor", ["out"] * len(v.axes))
            for n, v in enumerate(weights.values)
        ]
        attributes: dict[str, Attribute] = {"by": step.name} if step.name in INVERSE else {}
        attributes |= _alpha(step) | through({"": weights})
        return self._node(_module(weights.values[0]), kind, [flow], tensors, attributes)

    def _node(
        self,
        name: str,
        kind: str,
        flows: Sequence[Flow] = (),
        tensors: Sequence[Tensor] = (),
        attributes: dict[str, Attribute] | None = None,
    ) -> int:
        count = self._names[name] = self._names.get(name, 0) + 1
        unique = name if count == 1 else f"{name}@{count}"
        edges = tuple(Edge(flow.node, flow.via) for flow in flows)
        self.layers.append(Layer(unique, kind, edges, tuple(tensors), attributes or {}))
        return len(self.layers) - 1


def _module(value: Value) -> str:
    """The name of the module that owns a tensor."""
    assert value.owner is not None
    name = value.owner.names[0]
    return value.owner.module or name.rpartition(".")[0] or name


def _key(value: Value) -> str:
    assert value.owner is not None
    return value.owner.names[0].rpartition(".")[2]


def _attributes(step: Step, keys: Sequence[str]) -> dict[str, Attribute]:
    """The named scalar arguments, as they were given."""
    attributes: dict[str, Attribute] = {}
    for key in keys:
        value = step.arguments.get(key)
        if isinstance(value, (bool, int, float)) and value is not False:
            attributes["groups" if key == "num_groups" else key] = value
    return attributes


def _alpha(step: Step) -> dict[str, Attribute]:
    """By what a sum or difference multiplies its second operand, if that is another number than one."""
    alpha = step.arguments.get("alpha", 1) if step.name in APPLIED else 1
    return {} if alpha == 1 else {"alpha": alpha}


def _own_scale(step: Step) -> bool:
    """Does an attention scale by something else than the root of how many units it compares by?"""
    scale = step.arguments.get("scale") if MERGES.get(step.name) == ATTENTION else None
    return scale is not None and not math.isclose(
        scale, step.arguments["query"].shape[-1] ** -0.5, rel_tol=1e-6
    )
