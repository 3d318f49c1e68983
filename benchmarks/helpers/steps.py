"""What does a model compute with other tensors and other widths? Run what it did again, step by step.

The sizes that a model's code had worked out (a reshape to 12 x 64, a split, a number of groups) are not in
its tensors, so they are read off the axes of each value: when the spaces on an axis have new sizes, so does
the axis. Everything runs in double precision on the CPU.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from modelkeeper.frontends.torch.describe import TorchAccount
from modelkeeper.frontends.torch.recorder import tensors_in
from modelkeeper.frontends.torch.trace import TorchTrace
from modelkeeper.graph.vocabulary import GATES, LAYERS, WINDOWED
from modelkeeper.tracing.rules.layers import transposed
from modelkeeper.tracing.rules.shape import bounds
from modelkeeper.tracing.terms import ATOM, CONCAT, FIXED, PRODUCT, Solver, Straddles, Term
from modelkeeper.tracing.trace import Step, Value


class Sizes:
    """How large is an axis, when its spaces have new sizes?"""

    def __init__(self, account: TorchAccount, sizes: Sequence[int]) -> None:
        self._solver: Solver = account.account.solver
        self._atoms = {atom: sizes[space] for atom, space in account.account.spaces.items()}

    def of(self, term: Term) -> int:
        term = self._solver.resolve(term)
        match term.kind:
            case 0:
                return self._atoms.get(term.number, term.size)  # on no tensor: a length, a count
            case 1:
                return term.size
            case 2:
                return math.prod(map(self.of, term.parts))
            case _:
                return sum(map(self.of, term.parts))

    def shape(self, value: Value) -> list[int]:
        return [self.of(axis) for axis in value.axes]

    def before(self, term: Term, at: int) -> int:
        """Where a cut before the old unit `at` goes."""
        term = self._solver.resolve(term)
        if at in (0, term.size):
            return self.of(term) if at else 0
        if term.kind == PRODUCT:
            lead, rest = term.parts[0], self._solver.product(term.parts[1:])
            whole, remainder = divmod(at, rest.size)
            return self.before(lead, whole) * self.of(rest) + self.before(rest, remainder)
        if term.kind == CONCAT:
            done = 0
            for part in term.parts:
                if at < part.size:
                    return done + self.before(part, at)
                at, done = at - part.size, done + self.of(part)
        if term.kind == ATOM and self.of(term) != term.size:
            raise Straddles(f"a cut at {at} of {term.size} units")
        return at

    def lead(self, term: Term, lead: int) -> int:
        """How large the leading factor `lead` of an axis is now."""
        term = self._solver.resolve(term)
        if lead in (1, term.size):
            return self.of(term) if lead > 1 else 1
        if term.kind == PRODUCT:
            done = 1
            for part in term.parts:
                if lead % part.size:
                    return done * self.lead(part, lead)
                lead, done = lead // part.size, done * self.of(part)
                if lead == 1:
                    return done
        if term.kind == CONCAT and not any(part.size * lead % term.size for part in term.parts):
            return sum(self.lead(part, part.size * lead // term.size) for part in term.parts)
        if term.kind != FIXED and self.of(term) != term.size:
            raise Straddles(f"{lead} of {term.size} units lead")
        return lead


Arguments = dict[str, Any]
Change = Callable[[Sizes, Step, Arguments], Any]
CHANGES: dict[str, Change] = {}


def change(*names: str) -> Callable[[Change], Change]:
    """Register how these operations are run with new sizes."""

    def register(function: Change) -> Change:
        CHANGES.update(dict.fromkeys(names, function))
        return function

    return register


def replay(
    account: TorchAccount, tensors: Mapping[str, Tensor], inputs: Sequence[Tensor], sizes: Sequence[int]
) -> list[Tensor]:
    """What the model returns with these tensors, its spaces having these sizes."""
    traced, run = account.torch, account.torch.trace
    new = Sizes(account, sizes)
    last = {value.number: step for step in run.steps for value in (*step.inputs, *step.outputs)}
    kept = {value.number for value in run.outputs}
    values = {value.number: tensor.clone() for value, tensor in zip(run.inputs, inputs, strict=True)}

    def number(tree: Any) -> Any:
        match tree:
            case Value():
                if tree.number not in values:
                    values[tree.number] = _enter(traced, new, tree, tensors)
                return values[tree.number]
            case list() | tuple():
                return [number(each) for each in tree]
            case torch.dtype():
                return torch.float64 if tree.is_floating_point else tree
            case torch.device():
                return torch.device("cpu")
        return tree

    with torch.no_grad():
        for step in run.steps:
            call = traced.calls.get(step.number)
            given = step.arguments if call is None else call.arguments
            arguments = {name: number(argument) for name, argument in given.items()}
            results = list(tensors_in(_run(traced.func(step), new, step, arguments)))
            for value, tensor in zip(step.outputs, results, strict=False):
                if value.step is step:
                    if last[value.number] is not step and list(tensor.shape) != new.shape(value):
                        raise ValueError(f"{step.name} made {list(tensor.shape)}, not {value.axes}")
                    values[value.number] = tensor
            for value in (*step.inputs, *step.outputs):
                if last[value.number] is step and value.number not in kept:
                    values.pop(value.number, None)
        return [number(value) for value in run.outputs]


def _enter(traced: TorchTrace, sizes: Sizes, value: Value, tensors: Mapping[str, Tensor]) -> Tensor:
    """A value that no step made."""
    if value.owner is not None:
        tensor = tensors[value.owner.names[0]]
        return tensor if value.owner.parameter else tensor.clone()  # a pass may write into buffers
    constant = traced.constants[value.number].tensor
    for n, repeats in enumerate(value.repeats):
        constant = constant.narrow(n, 0, 1) if repeats and constant.shape[n] else constant
    constant = constant.expand(sizes.shape(value))
    return constant.double() if constant.is_floating_point() else constant.clone()


def _run(func: OpOverload | None, sizes: Sizes, step: Step, arguments: Arguments) -> Any:
    if func is None:  # written through a view: the storage has the new numbers already
        return arguments["self"]
    changed = CHANGES.get(step.name)
    if changed is not None:
        result = changed(sizes, step, arguments)
        if result is not None:
            return result
    return func(**arguments)


@change("view")
def _view(sizes: Sizes, step: Step, arguments: Arguments) -> Any:
    if not isinstance(arguments.get("dtype"), torch.dtype):
        return arguments["self"].reshape(sizes.shape(step.outputs[0]))
    return None


@change("expand")
def _expand(sizes: Sizes, step: Step, arguments: Arguments) -> Any:
    arguments["size"] = sizes.shape(step.outputs[0])


@change("repeat")
def _repeat(sizes: Sizes, step: Step, arguments: Arguments) -> Any:
    shape, taken = sizes.shape(step.outputs[0]), arguments["self"].shape
    padded = [1] * (len(shape) - len(taken)) + list(taken)
    arguments["repeats"] = [after // max(before, 1) for before, after in zip(padded, shape, strict=True)]


@change(*"zeros ones empty full new_zeros new_ones new_full new_empty rand randn".split())
def _create(sizes: Sizes, step: Step, arguments: Arguments) -> Any:
    arguments["size"] = sizes.shape(step.outputs[0])


@change("empty_strided", "new_empty_strided")
def _strided(sizes: Sizes, step: Step, arguments: Arguments) -> Any:
    return torch.empty(sizes.shape(step.outputs[0]), dtype=arguments.get("dtype"))


@change("split", "split_with_sizes")
def _split(sizes: Sizes, step: Step, arguments: Arguments) -> Any:
    dim = arguments.get("dim", 0)
    return arguments["self"].split_with_sizes([sizes.of(value.axes[dim]) for value in step.outputs], dim)


@change("slice")
def _slice(sizes: Sizes, step: Step, arguments: Arguments) -> Any:
    dim, start, end, by = bounds(step)
    axis = step.inputs[0].axes[dim]
    if by == 1:
        arguments["start"], arguments["end"] = sizes.before(axis, start), sizes.before(axis, end)


@change("constant_pad_nd", "pad")
def _pad(sizes: Sizes, step: Step, arguments: Arguments) -> Any:
    source = step.inputs[0]
    pad = list(arguments["pad"])
    for n, amount in enumerate(pad):
        axis = source.axes[len(source.axes) - 1 - n // 2]
        if amount < 0:
            pad[n] = (
                sizes.before(axis, axis.size + amount) - sizes.of(axis)
                if n % 2
                else -sizes.before(axis, -amount)
            )
    arguments["pad"] = pad


@change(*(name for name, kind in LAYERS.items() if kind in WINDOWED))
def _convolution(sizes: Sizes, step: Step, arguments: Arguments) -> Any:
    x, w = arguments["input"], arguments["weight"]
    rank = w.ndim - 2
    channels = sizes.of(step.outputs[0].axes[-rank - 1]) if transposed(step) else x.shape[-rank - 1]
    arguments["groups"] = channels // w.shape[1]


@change("layer_norm", "rms_norm")
def _layer_norm(sizes: Sizes, step: Step, arguments: Arguments) -> Any:
    count = len(arguments["normalized_shape"])
    arguments["normalized_shape"] = list(arguments["input"].shape[-count:])


@change("group_norm")
def _group_norm(sizes: Sizes, step: Step, arguments: Arguments) -> Any:
    channels = step.inputs[0].axes[1]
    name = "num_groups" if "num_groups" in arguments else "group"
    arguments[name] = sizes.lead(channels, arguments[name])
    if name == "group":
        arguments["C"] = sizes.of(channels)


@change("channel_shuffle")
def _channel_shuffle(sizes: Sizes, step: Step, arguments: Arguments) -> Any:
    arguments["groups"] = sizes.lead(step.inputs[0].axes[1], arguments["groups"])


@change(*GATES)
def _recurrent(sizes: Sizes, step: Step, arguments: Arguments) -> Any:
    """The states of several cells lie in one tensor; if it is zeros, nothing says how wide."""
    into, again = arguments["params"][:2]
    widths = [again.shape[1], into.shape[0] // GATES[step.name]]
    given = arguments["hx"]
    states = [
        state if state.shape[-1] == width else state.new_zeros(*state.shape[:-1], width)
        for state, width in zip(given if isinstance(given, list) else [given], widths, strict=False)
    ]
    arguments["hx"] = states if isinstance(given, list) else states[0]
