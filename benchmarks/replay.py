"""Do the spaces and degrees of a model hold? Widen it without its constructor, and compare. `make widen`

Every free space of a model gets more units (`widening`). A constructor could not build most of these models:
they have widths that no configuration offers. So what the model did is replayed, operation by operation, with
the new tensors and with sizes read off the axes of each value: a reshape to 12 x 64 becomes one to 24 x 128
if that is what its axes have become. If the outputs are the same, then every axis that has to change did,
and every share is where it belongs.

    python benchmarks/replay.py [--only TEXT] [--every N] [--factor 2]

For each model: whether the replay at the old sizes computes what the model does, by how much the outputs of
the wider ones differ (below 1e-6 counts as exact: everything runs in double precision), and how many of the
parameters' axes became wider. Kernels, and what the inputs and outputs decide, are not counted. The table is
written to benchmarks/results/replay.json, its summary to replay.md.
"""

import argparse
import json
import math
import platform
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from catalogue import TRANSFORMERS, build, distinct_classifiers
from permutation import difference, randomise, run_on_random
from torch import Tensor, nn
from widening import choose, widen

from modelkeeper.frontends.terms import ATOM, CONCAT, FIXED, PRODUCT, Solver, Straddles, Term
from modelkeeper.frontends.torch.describe import Account, study
from modelkeeper.frontends.torch.inputs import Inputs
from modelkeeper.frontends.torch.record import tensors_in
from modelkeeper.frontends.torch.rules.layers import CONVOLUTIONS, RECURRENT, TRANSPOSED, transposed
from modelkeeper.frontends.torch.rules.shape import bounds
from modelkeeper.frontends.torch.trace import Step, Value
from modelkeeper.graph import Atom, Axis, Fixed, Graph, leaves, walk

RESULTS = Path(__file__).parent / "results"


class Sizes:
    """How large is an axis, when its spaces have new sizes?"""

    def __init__(self, account: Account, sizes: Sequence[int]) -> None:
        self._solver: Solver = account.solver
        self._atoms = {atom: sizes[space] for atom, space in account.spaces.items()}

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
    account: Account, tensors: Mapping[str, Tensor], inputs: Sequence[Tensor], sizes: Sequence[int]
) -> list[Tensor]:
    """What the model returns with these tensors, its spaces having these sizes."""
    run = account.trace
    new = Sizes(account, sizes)
    last = {value.number: step for step in run.steps for value in (*step.inputs, *step.outputs)}
    kept = {value.number for value in run.outputs}
    values = {value.number: tensor.clone() for value, tensor in zip(run.inputs, inputs, strict=True)}

    def number(tree: Any) -> Any:
        match tree:
            case Value():
                if tree.number not in values:
                    values[tree.number] = _enter(new, tree, tensors)
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
            arguments = {name: number(each) for name, each in step.arguments.items()}
            results = list(tensors_in(_run(new, step, arguments)))
            for value, tensor in zip(step.outputs, results, strict=False):
                if value.step is step:
                    if last[value.number] is not step and list(tensor.shape) != new.shape(value):
                        raise ValueError(f"{step.name} made {list(tensor.shape)}, not {value.axes}")
                    values[value.number] = tensor
            for value in (*step.inputs, *step.outputs):
                if last[value.number] is step and value.number not in kept:
                    values.pop(value.number, None)
        return [number(value) for value in run.outputs]


def _enter(sizes: Sizes, value: Value, tensors: Mapping[str, Tensor]) -> Tensor:
    """A value that no step made."""
    if value.owner is not None:
        tensor = tensors[value.owner.names[0]]
        return tensor if value.owner.parameter else tensor.clone()  # a pass may write into buffers
    assert value.constant is not None
    constant = value.constant
    for n, repeats in enumerate(value.repeats):
        constant = constant.narrow(n, 0, 1) if repeats and constant.shape[n] else constant
    constant = constant.expand(sizes.shape(value))
    return constant.double() if constant.is_floating_point() else constant.clone()


def _run(sizes: Sizes, step: Step, arguments: Arguments) -> Any:
    if step.func is None:  # written through a view: the storage has the new numbers already
        return arguments["self"]
    changed = CHANGES.get(step.name)
    if changed is not None:
        result = changed(sizes, step, arguments)
        if result is not None:
            return result
    return step.func(**arguments)


@change("view", "_unsafe_view", "_reshape_alias")
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


@change("split", "split_with_sizes", "unsafe_split", "unsafe_chunk")
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


@change(*CONVOLUTIONS, *TRANSPOSED)
def _convolution(sizes: Sizes, step: Step, arguments: Arguments) -> Any:
    x, w = arguments["input"], arguments["weight"]
    rank = w.ndim - 2
    channels = sizes.of(step.outputs[0].axes[-rank - 1]) if transposed(step) else x.shape[-rank - 1]
    arguments["groups"] = channels // w.shape[1]


@change("layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm")
def _layer_norm(sizes: Sizes, step: Step, arguments: Arguments) -> Any:
    count = len(arguments["normalized_shape"])
    arguments["normalized_shape"] = list(arguments["input"].shape[-count:])


@change("group_norm", "native_group_norm")
def _group_norm(sizes: Sizes, step: Step, arguments: Arguments) -> Any:
    channels = step.inputs[0].axes[1]
    name = "num_groups" if "num_groups" in arguments else "group"
    arguments[name] = sizes.lead(channels, arguments[name])
    if name == "group":
        arguments["C"] = sizes.of(channels)


@change("channel_shuffle", "native_channel_shuffle")
def _channel_shuffle(sizes: Sizes, step: Step, arguments: Arguments) -> Any:
    arguments["groups"] = sizes.lead(step.inputs[0].axes[1], arguments["groups"])


@change(*RECURRENT)
def _recurrent(sizes: Sizes, step: Step, arguments: Arguments) -> Any:
    """The states of several cells lie in one tensor; if it is zeros, nothing says how wide."""
    into, again = arguments["params"][:2]
    widths = [again.shape[1], into.shape[0] // RECURRENT[step.name]]
    given = arguments["hx"]
    states = [
        state if state.shape[-1] == width else state.new_zeros(*state.shape[:-1], width)
        for state, width in zip(given if isinstance(given, list) else [given], widths, strict=False)
    ]
    arguments["hx"] = states if isinstance(given, list) else states[0]


# -- the table --------------------------------------------------------------------------------------

EXACT = 1e-6
GIVEN = ("output", "rows")  # pins of what the task decides: classes, a vocabulary
SETTLED = ("kernel", "input", "spatial", "one")  # and of axes that have no units to copy


def widened(model: nn.Module, inputs: Inputs, factors: Sequence[float], seed: int = 0) -> "Widened":
    """Widen every free space of a model by each factor, and compare what it computes."""
    account = study(model, inputs)
    if any(v.constant is not None and v.constant.is_meta for s in account.trace.steps for v in s.inputs):
        account = study(model, inputs, real=True)  # numbers that were made on shapes have no values
    weights = {
        value.owner.names[0]: value.owner.tensor.detach() for value in account.trace.owned if value.owner
    }
    arrays = {name: tensor.numpy() for name, tensor in weights.items() if tensor.is_floating_point()}
    taken = list(tensors_in((inputs.args, dict(inputs.kwargs))))
    result = Widened(
        account.graph, _replayed(account, weights, taken, [s.size for s in account.graph.spaces])
    )
    for factor in factors:
        units = choose(account.graph, factor, seed)
        wide = {name: torch.from_numpy(array) for name, array in widen(account.graph, units, arrays).items()}
        sizes = [len(each.source) for each in units]
        try:
            after = _replayed(account, weights | wide, taken, sizes)
            result.changes[factor] = difference(result.before, after)
        except (RuntimeError, ValueError, Straddles) as error:
            result.failures[factor] = f"{type(error).__name__}: {error}"[:200]
        result.sizes[factor] = sizes
    return result


@dataclass
class Widened:
    """What became of a model whose free spaces were widened, by factor."""

    graph: Graph
    before: Tensor  # the outputs of a replay at the old sizes
    changes: dict[float, float] = field(default_factory=dict)
    failures: dict[float, str] = field(default_factory=dict)
    sizes: dict[float, list[int]] = field(default_factory=dict)

    def exact(self, factor: float) -> bool:
        return self.changes.get(factor, math.inf) < EXACT

    def axes(self, factor: float) -> tuple[int, int]:
        """How many axes of parameters became wider, of how many that have units of their own."""
        wider = counted = 0
        for _, tensor, axis in walk(self.graph):
            if tensor.live and not tensor.buffer and not self._given(axis):
                counted += 1
                wider += any(
                    self.sizes[factor][leaf.space] != leaf.size
                    for leaf in leaves(axis.of)
                    if isinstance(leaf, Atom)
                )
        return wider, counted

    def _given(self, axis: Axis) -> bool:
        """Are all parts of an axis decided by the task, or without units?"""
        return all(
            leaf.origin in SETTLED if isinstance(leaf, Fixed) else self._task(leaf)
            for leaf in leaves(axis.of)
        )

    def _task(self, atom: Atom) -> bool:
        return any(pin in GIVEN for pin in self.graph.spaces[atom.space].pins)


def _replayed(
    account: Account, tensors: Mapping[str, Tensor], inputs: Sequence[Tensor], sizes: Sequence[int]
) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in replay(account, tensors, inputs, sizes)])


def measure(name: str, factors: Sequence[float], most: int) -> dict[str, Any]:
    """One row of the table."""
    row: dict[str, Any] = {"name": name}
    try:
        size = sum(p.numel() for p in build(name, meta=name not in TRANSFORMERS).parameters())
        if size > most:
            return row | {"skipped": f"{size:,} parameters"}
        model = build(name).double()
    except Exception as error:  # noqa: BLE001 (a constructor that fails here is reported, whatever it raised)
        return row | {"skipped": f"not built: {type(error).__name__}: {error}"[:200]}
    began = time.perf_counter()
    randomise(model)
    inputs, outputs = run_on_small(model)
    found = widened(model, inputs, factors)
    row["replay"] = difference(outputs, found.before)  # some compute in single precision, whatever they get
    for factor in factors:
        wider, counted = found.axes(factor)
        row[f"x{factor:g}"] = {
            "exact": found.exact(factor),
            "change": found.changes.get(factor),
            "wider": wider,
            "axes": counted,
        }
        if factor in found.failures:
            row[f"x{factor:g}"]["failure"] = found.failures[factor]
    row["parameters"] = size
    row["conflicts"] = [note.where for note in found.graph.notes if note.topic == "conflict"]
    row["pins"] = dict(Counter(_reason(pin) for space in found.graph.spaces for pin in space.pins[:1]))
    row["seconds"] = round(time.perf_counter() - began, 1)
    return row


def run_on_small(model: nn.Module) -> tuple[Inputs, Tensor]:
    """Run on the smallest image that a model takes: the laws of its channels do not depend on it.

    For that, a last pooling of a fixed window becomes one over whatever there is.
    """
    features = getattr(model, "features", None)
    if isinstance(getattr(features, "final_pool", None), nn.AvgPool2d):
        assert isinstance(features, nn.Module)
        features.final_pool = nn.AdaptiveAvgPool2d(1)
    native = getattr(model, "in_size", None)
    for side in (64, 96, 128):
        image = torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(side)).double()
        if native is not None and side < native[0]:
            try:
                return run_on_random(model, Inputs((image,)))
            except (RuntimeError, ValueError, IndexError, AssertionError):  # not with this size
                continue
    return run_on_random(model)


def _reason(pin: str) -> str:
    return pin.partition(" after ")[0]


def summary(rows: list[dict[str, Any]], factors: Sequence[float]) -> dict[str, Any]:
    """The figures that the project promises."""
    tried = [row for row in rows if "skipped" not in row]
    result: dict[str, Any] = {
        "models": len(tried),
        "skipped": len(rows) - len(tried),
        "replayed": sum(row["replay"] < 1e-4 for row in tried),
        "with_conflicts": sum(bool(row["conflicts"]) for row in tried),
    }
    for factor in factors:
        each = [row[f"x{factor:g}"] for row in tried]
        shares = [one["wider"] / max(1, one["axes"]) for one in each]
        result[f"x{factor:g}"] = {
            "exact": sum(one["exact"] for one in each),
            "exact_percent": round(100 * sum(one["exact"] for one in each) / max(1, len(each)), 1),
            "exact_and_85_percent_of_axes_wider": sum(
                one["exact"] and share >= 0.85 for one, share in zip(each, shares, strict=True)
            ),
            "axes_wider_percent": round(
                100 * sum(one["wider"] for one in each) / max(1, sum(one["axes"] for one in each)), 1
            ),
        }
    return result


def page(groups: dict[str, list[dict[str, Any]]], factors: Sequence[float]) -> str:
    """The summary in Markdown, with every model that is not exact or stays narrow."""
    text = ["# Widening real models", "", "Made by `make widen`; every row is in replay.json.", ""]
    for name, rows in groups.items():
        text += [f"## {name}", "", "```json", json.dumps(summary(rows, factors), indent=1), "```", ""]
        key = f"x{factors[0]:g}"
        text += [f"Not exact, or less than 85 % of axes wider at {key}:", ""]
        text += [f"| model | {key} | axes | conflicts, pins |", "| --- | ---: | ---: | --- |"]
        for row in rows:
            if "skipped" in row:
                continue
            one = row[key]
            if not one["exact"] or one["wider"] < 0.85 * one["axes"]:
                change = "failed" if one["change"] is None else f"{one['change']:.0e}"
                why = [*row["conflicts"][:2], *(f"{n} {pin}" for pin, n in row["pins"].items())]
                text.append(
                    f"| {row['name']} | {change} | {one['wider']}/{one['axes']} | {'; '.join(why)[:200]} |"
                )
        text.append("")
    return "\n".join(text)


def main() -> None:
    """Measure everything and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="only names that contain this")
    parser.add_argument("--every", type=int, default=1, help="only every n-th classifier")
    parser.add_argument("--factor", type=float, nargs="+", default=[2.0, 1.5], help="how much wider")
    parser.add_argument("--most", type=int, default=30_000_000, help="skip models of more parameters")
    parser.add_argument("--dry-run", action="store_true", help="print, and write no files")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of the libraries that build the models
    names = [n for n in [*distinct_classifiers()[:: options.every], *TRANSFORMERS] if options.only in n]
    rows: list[dict[str, Any]] = []
    for number, name in enumerate(names, 1):
        row = measure(name, options.factor, options.most)
        rows.append(row)
        state = row.get("skipped") or ", ".join(
            f"{key} {one.get('failure') or format(one['change'], '.0e')} {one['wider']}/{one['axes']}"
            for key, one in row.items()
            if isinstance(one, dict) and "exact" in one
        )
        notes = f" conflicts: {row['conflicts'][:2]}" if row.get("conflicts") else ""
        print(f"[{number}/{len(names)}] {name}: {state} ({row.get('seconds', 0)} s){notes}", flush=True)
    groups = {
        "pytorchcv": [row for row in rows if row["name"] not in TRANSFORMERS],
        "transformers": [row for row in rows if row["name"] in TRANSFORMERS],
    }
    groups = {name: group for name, group in groups.items() if group}
    result: dict[str, Any] = {
        "machine": f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}",
        "summary": {name: summary(group, options.factor) for name, group in groups.items()},
    }
    print(json.dumps(result, indent=1))
    if not options.dry_run:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "replay.json").write_text(json.dumps(result | {"rows": rows}, indent=1) + "\n")
        (RESULTS / "replay.md").write_text(page(groups, options.factor))


if __name__ == "__main__":
    main()
