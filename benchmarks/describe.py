"""What does describing a model cost, compared with one plain forward pass on shapes? `make bench`

For each model, in one process and one run: the fastest of several plain forward passes on meta tensors,
and the fastest of several `describe`, which records, infers spaces and degrees, and builds the graph. The
ratio of the two is what counts; seconds on a shared machine vary. Models that do not run on meta tensors
are compared with a forward pass on the CPU, and listed apart. Writes benchmarks/results/describe.json.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.helpers.catalogue import TRANSFORMERS, build, cifar_classifiers, classifiers
from benchmarks.helpers.timing import fastest
from modelkeeper.frontends.torch import describe
from modelkeeper.frontends.torch.behaviour import run_on_random
from modelkeeper.frontends.torch.inputs import Inputs

RESULTS = Path(__file__).parent / "results"


def forward(model: nn.Module, inputs: Inputs) -> None:
    """One plain forward pass."""
    with torch.no_grad():
        model(*inputs.args, **dict(inputs.kwargs))


def measure(name: str, repeats: int) -> dict[str, Any]:
    """One row: seconds of both, and their ratio."""
    model = build(name)
    inputs, _ = run_on_random(model)
    graph = describe(model, inputs)  # warm: kernels are registered when first used
    shapes = Inputs(
        tuple(each.to("meta") for each in inputs.args),
        tuple(
            (key, each.to("meta") if isinstance(each, torch.Tensor) else each) for key, each in inputs.kwargs
        ),
    )
    on_meta = build(name, meta=name not in TRANSFORMERS).to("meta")
    real = False
    try:
        forward(on_meta, shapes)
    except (RuntimeError, NotImplementedError, TypeError):  # it looks at numbers
        real, on_meta, shapes = True, model, inputs
    plain = fastest(lambda: forward(on_meta, shapes), repeats)
    seconds = fastest(lambda: describe(model, inputs), repeats)
    return {
        "name": name,
        "on": "cpu" if real else "meta",
        "layers": len(graph.layers),
        "forward": plain,
        "describe": seconds,
        "ratio": seconds / plain,
    }


def main() -> None:
    """Measure, print the ratios, write the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--every", type=int, default=12, help="every n-th of the larger classifiers")
    parser.add_argument("--repeats", type=int, default=5, help="take the fastest of so many")
    options = parser.parse_args()
    torch.set_num_threads(1)
    large = [name for name in classifiers() if "cifar" not in name and "svhn" not in name]
    names = cifar_classifiers()[::3] + large[:: options.every] + list(TRANSFORMERS)
    rows = []
    for number, name in enumerate(names, 1):
        row = measure(name, options.repeats)
        rows.append(row)
        cost = f"{row['describe'] * 1e3:.0f} ms, {row['ratio']:.2f} x {row['on']}"
        print(f"[{number}/{len(names)}] {name}: {cost}", flush=True)
    ratios = sorted(row["ratio"] for row in rows if row["on"] == "meta")
    seconds = sorted(row["describe"] for row in rows)
    result = {
        "models": len(rows),
        "ratio_median": round(statistics.median(ratios), 2),
        "ratio_p95": round(ratios[int(0.95 * (len(ratios) - 1))], 2),
        "ratio_worst": round(ratios[-1], 2),
        "describe_ms_median": round(1e3 * statistics.median(seconds)),
        "describe_ms_p95": round(1e3 * seconds[int(0.95 * (len(seconds) - 1))]),
        "run_for_real": [row["name"] for row in rows if row["on"] == "cpu"],
    }
    print(json.dumps(result, indent=1))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "describe.json").write_text(json.dumps({**result, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
