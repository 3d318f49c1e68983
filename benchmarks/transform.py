"""How fast are weights carried over to other widths, compared with copying as many bytes? `make bench`

A model of tensors as in real networks (3x3, 1x1 and depthwise convolutions, linear layers, embeddings,
biases) is copied; widened by 1.5 along outputs and inputs, copies sharing their weight unequally; and
narrowed to two thirds of its units. Each is compared with `np.copyto` of the same output: the same number
of bytes in the same tensors, on the same number of threads. Passes over the whole model take turns in one
run, so that every tensor comes from memory; for each tensor the fastest of several passes counts. Outputs
are allocated and touched before. Bandwidth counts bytes read and written, as for a copy: twice the output.
Peak memory is what the first pass adds above source and output (Linux only).

Models of other frameworks store tensors in another order. `moved` gathers straight into that order (kernels
as height, width, in, out; dense as in, out), on one thread, and is compared with a gather and then a copy by
NumPy: how many times as long do the two passes take? Writes benchmarks/results/transform.json.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from modelkeeper.transform.gather import AxisMap, gather
from modelkeeper.weights import Array

RESULTS = Path(__file__).parent / "results"
THREADS = 1, 2
TARGET = 0.5

SHAPES: list[tuple[str, tuple[int, ...]]] = [
    ("conv 3x3", (64, 64, 3, 3)),
    ("conv 3x3", (128, 128, 3, 3)),
    ("conv 3x3", (256, 256, 3, 3)),
    ("conv 3x3", (512, 512, 3, 3)),
    ("conv 1x1", (1024, 256, 1, 1)),
    ("conv 1x1", (512, 2048, 1, 1)),
    ("depthwise", (1024, 1, 3, 3)),
    ("bias", (2048,)),
    ("linear", (768, 768)),
    ("linear", (3072, 768)),
    ("linear", (768, 3072)),
    ("embedding", (8192, 768)),
]


def model(megabytes: int, dtype: Any) -> list[tuple[str, Array]]:
    """Tensors of about so many megabytes: rounds of all shapes, until there is enough."""
    rng = np.random.default_rng(0)
    tensors: list[tuple[str, Array]] = []
    while sum(tensor.nbytes for _, tensor in tensors) < megabytes * 1e6:
        for kind, shape in SHAPES:
            tensors.append((kind, rng.standard_normal(shape, np.float32).astype(dtype)))
    return tensors


def widen(size: int, rng: np.random.Generator) -> tuple[AxisMap, AxisMap]:
    """Maps of outputs and inputs to one and a half times the units; the shares of a source sum to 1."""
    index = np.concatenate([np.arange(size), rng.integers(size, size=size // 2)])
    weight = rng.uniform(0.5, 1.5, len(index))
    share = weight / np.bincount(index, weight)[index]
    return AxisMap(index), AxisMap(index, share)


def narrow(size: int, rng: np.random.Generator) -> tuple[AxisMap, AxisMap]:
    """Maps of outputs and inputs to two thirds of the units, in their old order."""
    index = np.sort(rng.permutation(size)[: max(1, size * 2 // 3)])
    return AxisMap(index), AxisMap(index)


def copy(size: int, rng: np.random.Generator) -> tuple[AxisMap, AxisMap]:
    """Maps that change nothing."""
    return AxisMap(), AxisMap()


def maps_of(
    kind: str, shape: Sequence[int], operator: Callable[..., tuple[AxisMap, AxisMap]]
) -> list[AxisMap]:
    """One map for each axis: outputs, then inputs; kernels and the rows of an embedding stay as they are."""
    rng = np.random.default_rng(len(shape) + sum(shape))
    if kind == "embedding":
        return [AxisMap(), operator(shape[1], rng)[0]]
    maps = [AxisMap() for _ in shape]
    maps[0] = operator(shape[0], rng)[0]
    if len(shape) > 1 and shape[1] > 1:
        maps[1] = operator(shape[1], rng)[1]
    return maps


def shape_of(shape: Sequence[int], maps: Sequence[AxisMap]) -> tuple[int, ...]:
    """The shape that the maps lead to."""
    return tuple(
        size if each.index is None else len(each.index) for size, each in zip(shape, maps, strict=True)
    )


def copy_bytes(source: Array, out: Array, helpers: ThreadPoolExecutor, threads: int) -> None:
    """`np.copyto`, a part of it by each thread; what is small is copied by one, as in a gather."""
    if threads == 1 or len(out) < 1 << 20:
        np.copyto(out, source)
        return
    cuts = [len(out) * n // threads for n in range(threads + 1)]
    parts = [slice(*pair) for pair in pairwise(cuts)]
    others = [helpers.submit(np.copyto, out[part], source[part]) for part in parts[1:]]
    np.copyto(out[parts[0]], source[parts[0]])
    for other in others:
        other.result()


def seconds(function: Callable[[], object]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def memory(field: str) -> int:
    """A field of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))


def peak(function: Callable[[], object]) -> int | None:
    """By how many bytes the memory of the process grows at most while the function runs."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = memory("VmRSS")
        function()
        return max(0, memory("VmHWM") - before)
    except OSError:
        return None


def measure(
    name: str, tensors: list[tuple[str, Array]], operator: Callable[..., Any], repeats: int
) -> list[dict[str, Any]]:
    """The rows of one operator: one for each number of threads."""
    work = []
    for kind, source in tensors:
        maps = maps_of(kind, source.shape, operator)
        out = np.ones(shape_of(source.shape, maps), source.dtype)
        work.append((source, maps, out))
    outs = [out.reshape(-1).view(np.uint8) for *_, out in work]
    plain = [np.ones_like(out) for out in outs]

    def transform(number: int, threads: int) -> None:
        source, maps, out = work[number]
        gather(source, maps, out.shape, out=out, threads=threads)

    def transform_all() -> None:
        for number in range(len(work)):
            transform(number, max(THREADS))

    extra = peak(transform_all)
    fastest: dict[tuple[str, int], list[float]] = {}
    with ThreadPoolExecutor(max(THREADS)) as helpers:

        def memcpy(number: int, threads: int) -> None:
            copy_bytes(plain[number], outs[number], helpers, threads)

        for _, threads, (what, function) in product(
            range(repeats), THREADS, (("memcpy", memcpy), ("gather", transform))
        ):
            times = [seconds(lambda n=n, t=threads, f=function: f(n, t)) for n in range(len(work))]  # type: ignore[misc]
            fastest[what, threads] = list(map(min, times, fastest.get((what, threads), times)))
    total = {key: sum(times) for key, times in fastest.items()}
    written = sum(out.nbytes for out in outs)
    rows = []
    for threads in THREADS:
        theirs, ours = total["memcpy", threads], total["gather", threads]
        rows.append(
            {
                "operator": name,
                "dtype": str(tensors[0][1].dtype),
                "threads": threads,
                "source_mb": round(sum(source.nbytes for source, *_ in work) / 1e6),
                "output_mb": round(written / 1e6),
                "gather_gb_per_s": round(2 * written / ours / 1e9, 2),
                "memcpy_gb_per_s": round(2 * written / theirs / 1e9, 2),
                "ratio": round(theirs / ours, 3),
                "ratio_to_one_thread": round(total["memcpy", 1] / ours, 3),
                "largest_tensor_mb": round(max(out.nbytes for out in outs) / 1e6, 1),
                "peak_extra_mb": None if extra is None else round(extra / 1e6, 1),
            }
        )
    return rows


def measure_moved(
    name: str, tensors: list[tuple[str, Array]], operator: Callable[..., Any], repeats: int
) -> dict[str, Any]:
    """The row of one operator whose results are stored in another order: in one pass, and in two."""
    fastest = {"one": 0.0, "two": 0.0}
    for kind, source in tensors[: len(SHAPES)]:
        if source.ndim < 2 or kind == "embedding":  # stored as they are
            continue
        order = (*range(2, source.ndim), *((0, 1) if kind == "depthwise" else (1, 0)))
        maps = maps_of(kind, source.shape, operator)
        shape = shape_of(source.shape, maps)
        between, out, copied = (
            np.ones(sizes, source.dtype) for sizes in (shape, *[[shape[n] for n in order]] * 2)
        )

        def one(source: Array = source, maps: Any = maps, order: Any = order, out: Array = out) -> None:
            gather(source.transpose(order), [maps[n] for n in order], out.shape, out=out, threads=1)

        def two(
            source: Array = source,
            maps: Any = maps,
            order: Any = order,
            out: Array = copied,
            between: Array = between,
        ) -> None:
            gather(source, maps, between.shape, out=between, threads=1)
            np.copyto(out, between.transpose(order))

        fastest["one"] += min(seconds(one) for _ in range(repeats))
        fastest["two"] += min(seconds(two) for _ in range(repeats))
        assert np.array_equal(out.view(np.uint8), copied.view(np.uint8))
    return {
        "operator": f"{name}, moved",
        "dtype": str(tensors[0][1].dtype),
        "one_pass_ms": round(1000 * fastest["one"], 2),
        "two_passes_ms": round(1000 * fastest["two"], 2),
        "times_as_long": round(fastest["two"] / fastest["one"], 2),
    }


def main() -> None:
    """Measure, print the ratios, write the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=500, help="size of the model")
    parser.add_argument("--repeats", type=int, default=7, help="take the fastest of so many")
    options = parser.parse_args()
    rows, moved = [], []
    for dtype in (np.float32, ml_dtypes.bfloat16, np.float16):
        tensors = model(options.megabytes, dtype)
        for operator in (copy, widen, narrow):
            for row in measure(operator.__name__, tensors, operator, options.repeats):
                rows.append(row)
                print(
                    "{operator:6} {dtype:8} {threads} threads: {ratio:.2f} of memcpy's bandwidth "
                    "({gather_gb_per_s:.1f} of {memcpy_gb_per_s:.1f} GB/s read and written, {output_mb} MB "
                    "of output), {peak_extra_mb} MB above it".format(**row),
                    flush=True,
                )
            moved.append(measure_moved(operator.__name__, tensors, operator, options.repeats))
            print(
                "{operator} {dtype}: {one_pass_ms} ms, in two passes {two_passes_ms} ms, "
                "{times_as_long} times as long".format(**moved[-1]),
                flush=True,
            )
    both = [row for row in rows if row["threads"] == max(THREADS)]
    result: dict[str, Any] = {
        "megabytes": options.megabytes,
        "target": TARGET,
        "worst_ratio": min(row["ratio"] for row in both),
        "met": all(row["ratio"] >= TARGET for row in both),
    }
    print(json.dumps(result))
    RESULTS.mkdir(exist_ok=True)
    result |= {"rows": rows, "moved": moved}
    (RESULTS / "transform.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
