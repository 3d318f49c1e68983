"""In which form can a parent be run elsewhere? Recorded programs against torch.export. `make programs`

For a sample of real architectures: does a program come about, does it compute what the model computes at a
batch size that it was not recorded at, how long does making it take, how large is it, how long does it run
compared with the model. The same for torch.export with a dynamic batch axis (its archive, minus the bytes of
the tensors). Times are the minimum of a few runs on one thread.

    python -m benchmarks.programs [--every 12] [--only TEXT] [--no-export]

Writes benchmarks/results/programs.json and programs.md.
"""

import argparse
import io
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.helpers.catalogue import TRANSFORMERS, build, cifar_classifiers, distinct_classifiers
from modelkeeper.errors import ModelKeeperError
from modelkeeper.frontends.programs.passes import Pass, check_run
from modelkeeper.frontends.programs.program import LENGTH, Program
from modelkeeper.frontends.torch.behaviour import run_on_random
from modelkeeper.frontends.torch.describe import pick_outputs
from modelkeeper.frontends.torch.inputs import Inputs
from modelkeeper.frontends.torch.record_program import record_program
from modelkeeper.frontends.torch.recorder import map_tensors, tensors_in
from modelkeeper.frontends.torch.run_program import ENGINE

RESULTS = Path(__file__).parent / "results"
BATCH = 4  # neither of the sizes that a program is recorded at
SHORTER = (0.9, 0.63, 0.32)  # of the length: to be run at as well
MOST_PARAMETERS = 60_000_000


def seconds(work: Callable[[], object], times: int = 3) -> float:
    """The least time that some work takes."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found)


def batch_of(inputs: Inputs, size: int) -> Inputs:
    """Other numbers in the form of some inputs, for so many examples."""
    generator = torch.Generator().manual_seed(1)

    def fill(tensor: Tensor) -> Tensor:
        shape = (size, *tensor.shape[1:])
        if tensor.is_floating_point():
            return torch.randn(shape, generator=generator).to(tensor.dtype)
        return torch.randint(0, 8, shape, generator=generator, dtype=tensor.dtype)

    return Inputs(map_tensors(inputs.args, fill), tuple(map_tensors(dict(inputs.kwargs), fill).items()))


def relative(found: list[Tensor], wanted: list[Tensor]) -> float:
    """The largest difference, relative to the largest number that is wanted."""
    pairs = [(a.double(), b.double()) for a, b in zip(found, wanted, strict=True)]
    return max(((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item() for a, b in pairs)


def shortened(program: Program, inputs: Inputs) -> Iterator[Inputs]:
    """The same inputs at other lengths, if the program says that it can run on them."""
    tensors = tensors_in((inputs.args, dict(inputs.kwargs)))
    long = {id(each) for each, taken in zip(tensors, program.inputs, strict=True) if LENGTH in taken.shape}
    for share in SHORTER if long else ():

        def cut(tensor: Tensor, share: float = share) -> Tensor:
            return tensor[:, : int(share * tensor.shape[1])] if id(tensor) in long else tensor

        yield Inputs(map_tensors(inputs.args, cut), tuple(map_tensors(dict(inputs.kwargs), cut).items()))


def program_of(model: nn.Module, inputs: Inputs, batch: Inputs, wanted: list[Tensor]) -> dict[str, Any]:
    """What a recorded program is like."""
    began = time.perf_counter()
    made = record_program(model, inputs)
    took = time.perf_counter() - began
    data = made.to_bytes()
    load = seconds(lambda: Program.from_bytes(data))
    tensors: dict[str, Tensor] = {
        **dict(model.named_buffers(remove_duplicate=False)),
        **{name: value.detach() for name, value in model.named_parameters(remove_duplicate=False)},
    }
    taken = list(tensors_in((batch.args, dict(batch.kwargs))))
    check = seconds(lambda: check_run(ENGINE, made, tensors, taken), 1)

    def again() -> list[Tensor]:
        one = Pass(ENGINE, made, tensors, taken, set(made.outputs))
        one.to(len(made.steps))
        return [one.tensor(number) for number in made.outputs]

    with torch.inference_mode():
        difference = relative(again(), wanted)
        run = seconds(again)
        shorter = list(shortened(made, batch))
        for other in shorter:
            taken = list(tensors_in((other.args, dict(other.kwargs))))
            wanted = list(tensors_in(pick_outputs(model(*other.args, **dict(other.kwargs)))))
            difference = max(difference, relative(again(), wanted))
    return {
        "difference": difference,
        "lengths": len(shorter),
        "make_s": took,
        "bytes": len(data),
        "load_s": load,
        "check_s": check,
        "run_s": run,
    }


def export_of(model: nn.Module, inputs: Inputs, batch: Inputs, wanted: list[Tensor]) -> dict[str, Any]:
    """What torch.export makes of it."""
    dynamic = torch.export.Dim("batch", min=2, max=64)
    two = batch_of(inputs, 2)

    def axes(tree: Any) -> Any:
        return {0: dynamic} if isinstance(tree, Tensor) else None

    shapes = (*[axes(each) for each in two.args], *[axes(each) for _, each in two.kwargs])
    began = time.perf_counter()
    exported = torch.export.export(model, two.args, dict(two.kwargs), dynamic_shapes=shapes)
    took = time.perf_counter() - began
    file = io.BytesIO()
    torch.export.save(exported, file)
    weights = sum(t.numel() * t.element_size() for t in exported.state_dict.values())
    weights += sum(t.numel() * t.element_size() for t in exported.constants.values() if isinstance(t, Tensor))
    data = file.getvalue()
    load = seconds(lambda: torch.export.load(io.BytesIO(data)), 1)
    module = exported.module()

    def again() -> list[Tensor]:
        return list(tensors_in(pick_outputs(module(*batch.args, **dict(batch.kwargs)))))

    with torch.inference_mode():
        difference = relative(again(), wanted)
        run = seconds(again)
    return {
        "difference": difference,
        "make_s": took,
        "bytes": max(0, len(data) - weights),
        "load_s": load,
        "run_s": run,
    }


def measure(name: str, export: bool) -> dict[str, Any]:
    """One row of the table."""
    row: dict[str, Any] = {"name": name}
    if sum(p.numel() for p in build(name, meta=name not in TRANSFORMERS).parameters()) > MOST_PARAMETERS:
        return row | {"skipped": "large"}
    torch.manual_seed(0)
    model = build(name)
    inputs, _ = run_on_random(model)
    batch = batch_of(inputs, BATCH)
    with torch.inference_mode():

        def forward() -> list[Tensor]:
            return list(tensors_in(pick_outputs(model(*batch.args, **dict(batch.kwargs)))))

        wanted = forward()
        if any(tensor.isnan().any() for tensor in wanted):
            return row | {"skipped": "puts out NaN as it is initialised"}
        row["model_s"] = seconds(forward)
    for form, make in (("program", program_of), ("export", export_of))[: 1 + export]:
        try:
            row[form] = make(model, inputs, batch, wanted)
        except ModelKeeperError as error:
            row[form] = {"failed": str(error)[:200]}
        except Exception as error:  # noqa: BLE001 (torch.export raises all kinds)
            row[form] = {"failed": f"{type(error).__name__}: {error}"[:200]}
    return row


def exported(name: str) -> dict[str, Any]:
    """What was measured of torch.export in the last run that did; with the time of the model then."""
    path = RESULTS / "programs.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    known = next((row for row in rows if row["name"] == name and "export" in row), None)
    return {"export": {"model_s": known["model_s"], **known["export"]}} if known else {}


def summary(rows: list[dict[str, Any]], form: str) -> dict[str, Any]:
    """Coverage and medians of one form."""
    tried = [row for row in rows if form in row]
    works = [row for row in tried if row[form].get("difference", 1) < 1e-3]
    result: dict[str, Any] = {"tried": len(tried), "works": len(works)}
    result["any length"] = sum(row[form].get("lengths", 0) > 0 for row in works) or None
    for key in ("make_s", "bytes", "load_s"):
        result[key] = round(median(row[form][key] for row in works), 4) if works else None
    result["run/model"] = (
        round(median(row[form]["run_s"] / row[form].get("model_s", row["model_s"]) for row in works), 2)
        if works
        else None
    )
    return result


def page(rows: list[dict[str, Any]], forms: tuple[str, ...]) -> tuple[dict[str, Any], str]:
    """The summary, and the results for people."""
    groups = {
        "pytorchcv": [row for row in rows if row["name"] not in TRANSFORMERS],
        "transformers": [row for row in rows if row["name"] in TRANSFORMERS],
    }
    lines = ["# Programs of real models", "", "Made by `make programs`; every row is in programs.json.", ""]
    lines += [
        f"Works: it computes what the model computes on {BATCH} examples, recorded with others in number; "
        f"where it takes sequences of any length, also at {', '.join(f'{n:.0%}' for n in SHORTER)} of the "
        "one that it was recorded with. "
        "Medians are of what works: seconds to make, bytes without weights, seconds to load, time to run "
        "over that of the model.",
        "",
        "| models | form | works | any length | make | bytes | load | run/model |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    table = {}
    for group, found in groups.items():
        for form in forms:
            one = table[f"{group}, {form}"] = summary(found, form)
            cells = [
                f"{one['works']} of {one['tried']}",
                *(str(one[k] or "") for k in ("any length", "make_s", "bytes", "load_s")),
            ]
            lines.append(f"| {group} | {form} | " + " | ".join([*cells, str(one["run/model"])]) + " |")
    failed = [
        f"- {row['name']}, {form}: {row[form].get('failed') or row[form]['difference']}"
        for row in rows
        for form in forms
        if form in row and row[form].get("difference", 1) >= 1e-3
    ]
    if any("model_s" in row.get("export", {}) for row in rows):
        lines += [
            "",
            "Export was measured in an earlier run, as was the model that its time is compared with.",
        ]
    lines += ["", "What does not work:", "", *failed]
    return table, "\n".join(lines) + "\n"


def main() -> None:
    """Measure and write the tables."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--every", type=int, default=24, help="only every n-th classifier")
    parser.add_argument("--only", default="", help="only names that contain this")
    parser.add_argument("--no-export", action="store_true", help="as it was when it was measured last")
    parser.add_argument("--dry-run", action="store_true", help="print, and write no files")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    sample = {*distinct_classifiers()[:: options.every], *cifar_classifiers()[:: options.every // 3 or 1]}
    names = [n for n in [*sorted(sample), *TRANSFORMERS] if options.only in n]
    rows = []
    for name in names:
        rows.append(measure(name, not options.no_export) | (exported(name) if options.no_export else {}))
        print(json.dumps(rows[-1]), flush=True)
    table, text = page(rows, ("program", "export"))
    print(text)
    if not options.dry_run:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "programs.json").write_text(json.dumps({"summary": table, "rows": rows}, indent=1) + "\n")
        (RESULTS / "programs.md").write_text(text)


if __name__ == "__main__":
    main()
