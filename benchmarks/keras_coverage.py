"""Is every model of keras.applications described, and is it true of them? `make architectures`, `make widen`

    python -m benchmarks.keras_coverage [--only TEXT] [--most PARAMETERS] [--describe-only] [--hub]

Each model is built without downloaded weights and described as it is. Then, small enough ones once more for
an image of 96 pixels: the units of every free space are shuffled, in the same way on all axes that the
graph gives it, loaded into the model, and the model runs in Keras. If the outputs are the same, the spaces
are right, and so are the layouts by which weights were read and loaded. Beside it stands what rounding
alone does: the same with inputs that move in their last digit. Where PyTorch is installed, every free space
is widened as well, as `make widen` does for its models: the trace is run with wider tensors in double
precision, operation by operation, and below 1e-6 counts as exact.

The table is written to benchmarks/results/keras_coverage.json. keras_hub is described by --hub, in its own
environment.
"""

import argparse
import gc
import importlib.util
import json
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from benchmarks.helpers.orders import shuffled
from modelkeeper.frontends.keras import FRONTEND
from modelkeeper.frontends.keras.describe import Study, study
from modelkeeper.frontends.keras.numbers import to_numpy
from modelkeeper.tracing.describe import account_for
from modelkeeper.weights import Array

RESULTS = Path(__file__).parent / "results"
SIDE = 96  # pixels: what is true of channels does not depend on it
OWN_SIDES = {"NASNetLarge": 331, "NASNetMobile": 224}  # some take no other
EXACT = 1e-6
CLOSE = 1e-3  # a change that single precision explains, through a deep net with random weights
TORCH = importlib.util.find_spec("torch") is not None


def applications() -> list[str]:
    """The names of all models of keras.applications."""
    return sorted(
        name
        for name in dir(keras.applications)
        if name[0].isupper() and callable(getattr(keras.applications, name))
    )


def randomise(model: Any, seed: int = 0) -> None:
    """Numbers that make every unit matter: statistics, gains and biases that differ from unit to unit."""
    rng = np.random.default_rng(seed)
    for variable in model.weights:
        if len(variable.shape) == 1 and "float" in variable.dtype:
            kind, noise = variable.path.rpartition("/")[2], rng.random(tuple(variable.shape))
            positive = kind in ("gamma", "scale") or "variance" in kind
            variable.assign(0.5 + noise if positive else 0.2 * (noise - 0.5))


def described(model: Any) -> dict[str, Any]:
    """How long a model takes, and what is not understood of it."""
    began = time.perf_counter()
    studied = study(model)
    account = account_for(studied.trace)
    seconds = time.perf_counter() - began
    graph = account.graph
    return {
        "parameters": int(model.count_params()),
        "seconds": round(seconds, 3),
        "layers": len(graph.layers),
        "spaces": len(graph.spaces),
        "free": sum(space.free for space in graph.spaces),
        "opaque": [str(note) for note in graph.notes if note.topic == "opaque"],
        "conflicts": [note.where for note in graph.notes if note.topic == "conflict"],
    }


def feed(studied: Study, seed: int = 1, nudge: float = 0.0) -> tuple[Any, dict[str, Any]]:
    """Random inputs, in the structure that the model takes."""
    rng = np.random.default_rng(seed)

    def numbers(tensor: Any) -> Any:
        if "float" not in tensor.dtype:
            return rng.integers(0, 2, tensor.shape).astype(tensor.dtype)
        return (rng.normal(size=tensor.shape) * (1 + nudge)).astype(tensor.dtype)

    inputs = studied.trace.ran_on
    filled: tuple[Any, dict[str, Any]] = keras.tree.map_structure(numbers, (inputs.args, dict(inputs.kwargs)))
    return filled


def run(model: Any, inputs: tuple[Any, dict[str, Any]]) -> Array:
    """All outputs in a row."""
    outputs = model(*inputs[0], **inputs[1], training=False)
    flat = [to_numpy(tensor).astype(np.float64).reshape(-1) for tensor in keras.tree.flatten(outputs)]
    return np.concatenate(flat)


def difference(before: Array, after: Array) -> float:
    """The largest change, relative to how much the outputs vary."""
    scale = float(np.abs(before - before.mean()).max()) or 1.0
    return float(np.abs(before - after).max()) / scale


def proved(model: Any) -> dict[str, Any]:
    """By how much the outputs change when units are shuffled, and when they are copied."""
    randomise(model)
    studied = study(model)
    account = account_for(studied.trace)
    inputs = feed(studied)
    before = run(model, inputs)
    row: dict[str, Any] = {"rounding": difference(before, run(model, feed(studied, nudge=1e-7)))}
    weights = {name: array.copy() for name, array in FRONTEND.read(model)}
    FRONTEND.load(model, shuffled(account.graph, weights))
    row["shuffled"] = difference(before, run(model, inputs))
    FRONTEND.load(model, weights)
    if TORCH and not any("::" in step.name for step in studied.trace.steps):
        from benchmarks.helpers.keras_replay import widened

        row |= widened(studied, account, weights, keras.tree.flatten(inputs), before)
    return row


def build_small(name: str) -> Any:
    """A model for a small image, with plain outputs."""
    side = OWN_SIDES.get(name, SIDE)
    make = getattr(keras.applications, name)
    return make(weights=None, input_shape=(side, side, 3), classifier_activation=None)


def measure(names: list[str], hub: bool, most: int) -> Iterator[dict[str, Any]]:
    """One row for each model."""
    for name in names:
        row: dict[str, Any] = {"name": name}
        try:
            if hub:
                from benchmarks.helpers.hub_backbones import build

                model = build(name)
                row |= described(model) | proved(model)
            else:
                row |= described(getattr(keras.applications, name)(weights=None))
                if row["parameters"] <= most:
                    row |= proved(build_small(name))
        except Exception as error:  # noqa: BLE001 (a model that fails is reported, whatever it raised)
            row["failure"] = f"{type(error).__name__}: {error}"[:300]
        yield row
        keras.backend.clear_session()
        gc.collect()


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures that the project promises."""
    shuffles = [row for row in rows if "shuffled" in row]
    widened = [row for row in rows if "widened" in row]
    return {
        "models": len(rows),
        "described": sum("layers" in row for row in rows),
        "opaque": sum(bool(row.get("opaque")) for row in rows),
        "failures": [f"{row['name']}: {row['failure']}" for row in rows if "failure" in row],
        "shuffled": len(shuffles),
        "shuffled_same": sum(row["shuffled"] < max(CLOSE, 10 * row["rounding"]) for row in shuffles),
        "widened": len(widened),
        "widened_exact": sum(row["widened"] < EXACT for row in widened),
        "seconds": round(sum(row.get("seconds", 0) for row in rows), 1),
    }


def main() -> None:
    """Measure everything and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="only names that contain this")
    parser.add_argument("--most", type=int, default=30_000_000, help="run no models of more parameters")
    parser.add_argument("--describe-only", action="store_true", help="run none")
    parser.add_argument("--hub", action="store_true", help="backbones of keras_hub instead")
    parser.add_argument("--dry-run", action="store_true", help="print, and write no files")
    options = parser.parse_args()
    names = applications()
    if options.hub:
        from benchmarks.helpers.hub_backbones import names as backbones

        names = backbones()
    names = [name for name in names if options.only in name]
    rows = []
    for row in measure(names, options.hub, 0 if options.describe_only else options.most):
        rows.append(row)
        print(json.dumps(row), flush=True)
    result = {
        "machine": f"{platform.machine()}, Keras {keras.__version__} on {keras.backend.backend()}",
        "summary": summary(rows),
    }
    print(json.dumps(result, indent=1))
    if not options.dry_run:
        RESULTS.mkdir(exist_ok=True)
        name = "keras_hub" if options.hub else "keras_coverage"
        path = RESULTS / f"{name}-{keras.backend.backend()}.json"
        path.write_text(json.dumps(result | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
