"""What does a transfer cost where a plain load would do? `make bench`

Two models of one architecture (a wide ResNet of some hundred MB). `load_state_dict` copies every tensor;
applying the plan and loading the result does the same with checks of names, shapes and NaN on the way. Both
timed in turns, the fastest of several. Aligning and planning, which come before, are listed apart.
Writes benchmarks/results/loading.json.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from benchmarks.helpers.real_pairs import of
from benchmarks.helpers.timing import fastest
from modelkeeper.frontends.torch import describe, load, read
from modelkeeper.matching import align
from modelkeeper.transform import apply, make_plan

RESULTS = Path(__file__).parent / "results"


def fastest_of_each(functions: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """The shortest time of each, in seconds, when they take turns."""
    turns = [[fastest(function, 1) for function in functions] for _ in range(repeats)]
    return [min(times) for times in zip(*turns, strict=True)]


def main() -> None:
    """Measure, print the ratio, write it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=15, help="take the fastest of so many")
    options = parser.parse_args()
    torch.set_num_threads(2)
    source, target = of("wrn", blocks=50, width_factor=2.0), of("wrn", blocks=50, width_factor=2.0)
    state = source.state_dict()
    parent, child = describe(source), describe(target)
    plan = make_plan(parent, child, align(parent, child).pairs)
    tensors = dict(read(source))
    plain, ours = fastest_of_each(
        [lambda: target.load_state_dict(state), lambda: load(target, dict(apply(plan, tensors)))],
        options.repeats,
    )
    result = {
        "megabytes": round(sum(t.numel() * t.element_size() for t in state.values()) / 1e6),
        "load_state_dict_ms": round(plain * 1e3, 1),
        "apply_and_load_ms": round(ours * 1e3, 1),
        "ratio": round(ours / plain, 2),
        "align_ms": round(1e3 * fastest(lambda: align(parent, child), options.repeats), 1),
        "plan_ms": round(
            1e3 * fastest(lambda: make_plan(parent, child, align(parent, child).pairs), options.repeats), 1
        ),
    }
    print(json.dumps(result, indent=1))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "loading.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
