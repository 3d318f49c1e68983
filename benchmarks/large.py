"""What do models of a billion parameters cost, in memory and in time? `python -m benchmarks.large`

A Llama in bf16 with random weights. Each stage runs in a process of its own, one after the other:

    save, load        safetensors, as anybody would: the yardstick
    register          describe the model, and take it into a zoo in a folder
    query             start the same architecture from it, which compares the checksum of all of it first
    query again       the same once more: what was compared lately is not read for that a second time
    query wide        a child with a wider MLP, every layer of which is gathered anew
    query narrow      a child with a narrower MLP
    query meta        the same architecture, built on the meta device
    http ...          the same over a service on this machine

Peak: the most memory of its own (see `helpers.peak_memory`) that the process held while the stage ran, beyond
what it had before the model was built, over the size of the model; the model itself is 1. Throughput: bytes
of weights per second, over that of the plain save or load. What is saved is flushed to the disk, in both.
Writes benchmarks/results/large.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.helpers.peak_memory import Peak, own_memory

RESULTS = Path(__file__).parent / "results"
META = {"data": "text", "task": "language"}
WIDER, NARROWER = 1.125, 0.875  # times the width of an MLP


def config(billions: float, mlp: float = 1.0) -> Any:
    """The configuration of a Llama with about so many parameters; `mlp`: how much wider its MLPs are."""
    from transformers import LlamaConfig

    if billions < 0.1:  # to try the benchmark itself
        hidden, inner, heads, vocabulary = 64, 192, 4, 256
    else:
        hidden, inner, heads, vocabulary = 2048, 5632, 32, 32_000
    per_layer = 3 * hidden * inner + 2 * hidden * hidden + 2 * hidden * (hidden // 4)
    layers = max(1, round((billions * 1e9 - 2 * hidden * vocabulary) / per_layer))
    return LlamaConfig(
        hidden_size=hidden,
        intermediate_size=round(inner * mlp / 16) * 16,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 4,
        vocab_size=vocabulary,
        use_cache=False,
    )


def build(billions: float, mlp: float = 1.0, device: str = "cpu", seed: int = 0) -> nn.Module:
    """The model in bf16, with random weights, which are cheap to make: one row, again and again."""
    from transformers import LlamaForCausalLM

    chosen = config(billions, mlp)
    with torch.device("meta"):
        made: Any = LlamaForCausalLM(chosen)
        model: nn.Module = made.to(torch.bfloat16)
    if device == "meta":
        return model
    generator = torch.Generator().manual_seed(seed)
    model.to_empty(device=device)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            row = 0.02 * torch.randn(min(tensor.numel(), 99_991), generator=generator)
            flat = tensor.view(-1)
            for start in range(0, len(flat), len(row)):
                part = flat[start : start + len(row)]
                part.copy_(row[: len(part)])
        for module in model.modules():
            if hasattr(module, "inv_freq"):  # a table that the model computes for itself
                made._init_weights(module)
    return model


def size_of(model: nn.Module) -> int:
    """Bytes of a model's weights."""
    return sum(tensor.nbytes for tensor in model.state_dict().values())


def measured(make: Callable[[], nn.Module], stage: Callable[[nn.Module], object]) -> dict[str, float]:
    """Build a model, run a stage on it; seconds, and the most memory over the size of the model."""
    before = own_memory()
    model = make()
    with Peak() as peak:
        begun = time.perf_counter()
        stage(model)
        seconds = time.perf_counter() - begun
    size = size_of(model)
    return {"seconds": seconds, "bytes": size, "peak": (peak.bytes - before) / size}


def warm_up(uri: str, example: Any) -> None:
    """Import all that a query and a registration need, on a small model, in a zoo that ends."""
    from modelkeeper import ModelKeeperClient

    with ModelKeeperClient(":memory:", on_error="raise") as client:
        client.register_model(build(0.0001), META | {"accuracy": 0.5}, example_inputs=example)
        client.query_for_model(build(0.0001, WIDER), META, example_inputs=example, trained="replace")
    if uri.startswith("http"):
        with ModelKeeperClient(uri) as client:
            client.query_for_model(
                build(0.0001), META, example_inputs=example, trained="replace", dry_run=True
            )


def run_stage(name: str, billions: float, folder: Path, uri: str) -> dict[str, float]:
    """One stage, in this process."""
    from safetensors.torch import load_file, save_file

    from modelkeeper import ModelKeeperClient

    file, example = folder / "plain.safetensors", torch.zeros(1, 8, dtype=torch.long)

    def save(model: nn.Module) -> None:
        save_file(dict(model.state_dict()), file)
        with file.open("rb") as written:
            os.fsync(written.fileno())

    def load(model: nn.Module) -> None:
        model.load_state_dict(load_file(file))

    if name in ("save", "load"):
        return measured(lambda: build(billions), save if name == "save" else load)
    warm_up(uri, example)
    with ModelKeeperClient(uri, on_error="raise", timeout=600) as client:
        client.coordinator.count()

        def register(model: nn.Module) -> None:
            client.register_model(model, META | {"accuracy": 0.5}, example_inputs=example)

        def query(model: nn.Module) -> None:
            _, answer = client.query_for_model(model, META, example_inputs=example, trained="replace")
            assert not answer.cold, answer
            print(name, answer.exact, {k: round(v, 2) for k, v in answer.seconds.items()}, file=sys.stderr)

        what = name.removeprefix("http ")
        if what == "register":
            return measured(lambda: build(billions), register)
        mlp = {"query wide": WIDER, "query narrow": NARROWER}.get(what, 1.0)
        device = "meta" if what == "query meta" else "cpu"
        return measured(lambda: build(billions, mlp, device, 1), query)


LOCAL = ("save", "load", "register", "query", "query again", "query wide", "query narrow", "query meta")
REMOTE = ("http register", "http query", "http query wide")


def in_a_process(stage: str, billions: float, folder: Path, uri: str) -> dict[str, float]:
    """One stage, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.large", "--stage", stage, "--billions", str(billions)]
    done = subprocess.run(
        [*command, "--folder", str(folder), "--uri", uri], stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compared(stages: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Each stage beside the plain save or load: GB per second, over that of the plain one, and the peak."""

    def speed(stage: str) -> float:
        return stages[stage]["bytes"] / stages[stage]["seconds"]

    return {
        name: {
            "gigabytes": round(stage["bytes"] / 1e9, 3),
            "seconds": round(stage["seconds"], 2),
            "peak": round(stage["peak"], 3),
            "throughput": round(
                speed(name) / speed("save" if "register" in name or name == "save" else "load"), 2
            ),
        }
        for name, stage in stages.items()
    }


def main() -> None:
    """Run all stages, print the ratios, write them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--billions", type=float, default=1.0, help="of parameters")
    parser.add_argument("--only", nargs="*", help="stages")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--uri", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        print(json.dumps(run_stage(options.stage, options.billions, options.folder, options.uri)))
        return
    wanted = options.only or [*LOCAL, *REMOTE]
    stages: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="large-") as text:
        folder = Path(text)
        for name in [name for name in LOCAL if name in wanted]:
            stages[name] = in_a_process(name, options.billions, folder, str(folder / "zoo"))
            print(f"{name:18} {stages[name]}", flush=True)
        if any(name in wanted for name in REMOTE):
            stages |= over_http([name for name in REMOTE if name in wanted], options.billions, folder)
    result = {"billions": options.billions, "stages": compared(stages)}
    print(json.dumps(result, indent=1))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "large.json").write_text(json.dumps(result, indent=1) + "\n")


def over_http(names: list[str], billions: float, folder: Path) -> dict[str, dict[str, float]]:
    """The stages that need a service, which this process offers meanwhile."""
    from modelkeeper.coordinator.local import LocalCoordinator
    from modelkeeper.server.serve import serving
    from modelkeeper.settings import ServiceSettings, Settings

    stages: dict[str, dict[str, float]] = {}
    with serving(
        LocalCoordinator(Settings(home=str(folder / "served"))), ServiceSettings(port=0, auth=False)
    ) as uri:
        for name in names:
            stages[name] = in_a_process(name, billions, folder, uri)
            print(f"{name:18} {stages[name]}", flush=True)
    return stages


if __name__ == "__main__":
    main()
