"""Which axes of a model's values are which spaces?

`Inference.walk` goes over a trace once and gives every value its axes: terms of one solver, unified as
the operations demand. The vocabulary names the rule of each operation; one that it does not know is opaque:
its inputs are pinned, its outputs are new spaces, and it is named in the notes. Nothing is guessed.

A rule takes the step and returns the axes of each output.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from modelkeeper.graph.vocabulary import Pin
from modelkeeper.tracing.named_rules import registering
from modelkeeper.tracing.terms import Solver, Straddles, Term
from modelkeeper.tracing.trace import Step, Trace, Value

Axes = list[Term]
Rule = Callable[["Inference", Step], list[Axes]]

RULES: dict[str, Rule] = {}  # by the names that the vocabulary gives them


rule = registering(RULES)


class Inference:
    """The state of one walk: the solver, where we are, and what was opaque."""

    def __init__(self) -> None:
        self.solver = Solver()
        self.opaque: dict[str, str] = {}  # operation -> where it was first met
        self.read: set[int] = set()  # values that something needs
        self._last = "the input"
        self._name = ""

    @property
    def where(self) -> str:
        return f"{self._name} after {self._last}"

    def walk(self, trace: Trace) -> None:
        """Give every value of the trace its axes."""
        self.read = {value.number for step in trace.steps for value in step.inputs}
        self.read.update(value.number for value in trace.outputs)
        for value in trace.inputs:
            value.axes = self.fixed(value.shape, "input")
        for step in trace.steps:
            self._name = step.name
            for value in step.inputs:
                if value.step is None and len(value.axes) != len(value.shape):
                    self._enter(value)
            for value, axes in zip(step.outputs, self._apply(step), strict=False):
                if value.step is step:
                    value.axes = axes
        for value in trace.outputs:
            for axis in value.axes:
                self.solver.pin(axis, Pin("output"))
        self._pin_unread(trace)

    def _pin_unread(self, trace: Trace) -> None:
        """Pin units of a tensor that nothing computes with: positions beyond the length of this input."""
        met = Counter(
            atom
            for value in (*trace.owned, *[value for step in trace.steps for value in step.outputs])
            for axis in value.axes
            for atom in self.solver.atoms(axis)
        )
        for atom, count in met.items():
            if count == 1:
                self.solver.pin(atom, Pin("never_read"))

    def fixed(self, shape: Sequence[int], origin: str) -> Axes:
        return [self.solver.fixed(size, origin) for size in shape]

    def unify(self, a: Term, b: Term) -> None:
        self.solver.unify(a, b, self.where)

    def pin(self, term: Term, reason: str, detail: str = "") -> None:
        """Pin the width of these spaces, for a reason of the vocabulary, at the current step."""
        self.solver.pin(term, Pin(reason, self.where, detail))

    def _enter(self, value: Value) -> None:
        """Give axes to a value that no step made: a tensor of the model, or a constant."""
        if value.owner is None:
            value.axes = [
                self.solver.atom(size) if repeats else self.solver.fixed(size, "constant")
                for size, repeats in zip(value.shape, value.repeats, strict=True)
            ]
            return
        self._last = value.owner.names[0].rpartition(".")[0] or value.owner.names[0]
        if value.floating:
            value.axes = [self.solver.atom(size) for size in value.shape]
        else:
            value.axes = self.fixed(value.shape, "integers")

    def _apply(self, step: Step) -> list[Axes]:
        function = RULES.get(step.operation.axes)
        problem = "no rule"
        if function is not None:
            try:
                return self._checked(step, function(self, step))
            except Straddles as error:
                problem = str(error)
        self.opaque.setdefault(step.name, f"{problem} for {self.where}")
        pin = Pin("opaque", self.where)
        for value in step.inputs:
            for axis in value.axes:
                self.solver.pin(axis, pin)
        return [self.solver.unknown(value.shape, pin) for value in step.outputs]

    def _checked(self, step: Step, axes: list[Axes]) -> list[Axes]:
        for value, result in zip(step.outputs, axes, strict=False):
            if tuple(axis.size for axis in result) != value.shape:
                raise Straddles(f"axes {result} for a result of shape {value.shape}")
        return axes


@rule("pointwise")
def pointwise(run: Inference, step: Step) -> list[Axes]:
    """Pointwise operations: operands are broadcast, axes that meet are unified."""
    result = []
    for shape in (value.shape for value in step.outputs):
        axes = []
        for position in range(-len(shape), 0):
            met = [
                v.axes[position]
                for v in step.inputs
                if len(v.axes) >= -position and v.axes[position].size != 1
            ]
            if shape[position] == 1 or not met:
                axes.append(run.solver.one if shape[position] == 1 else run.solver.atom(shape[position]))
                continue
            for other in met[1:]:
                if other is not met[0]:
                    run.unify(met[0], other)
            axes.append(met[0])
        result.append(axes)
    return result


def position(dim: int, value: Value) -> int:
    """The number of an axis that may be counted from the end."""
    return dim + len(value.shape) if dim < 0 else dim


def chosen(step: Step, source: Value, *names: str) -> list[int]:
    """The axes that a `dim` argument names; all of them when it names none."""
    dim = next((step.arguments[name] for name in names if step.arguments.get(name) is not None), None)
    if dim is None or dim == []:
        return [len(source.shape) - 1] if step.has("last_by_default") else list(range(len(source.shape)))
    return [position(n, source) for n in ([dim] if isinstance(dim, int) else dim) if source.shape]
