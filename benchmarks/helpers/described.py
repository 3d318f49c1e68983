"""What does a description of a real model hold, and is it true of what the model computes?"""

import time
import zlib
from collections import Counter
from typing import Any

import torch

from benchmarks.helpers.catalogue import TRANSFORMERS, build
from benchmarks.helpers.permutation import difference, permute, randomise
from modelkeeper.errors import ModelKeeperError
from modelkeeper.frontends.torch import describe
from modelkeeper.frontends.torch.behaviour import run_on_random
from modelkeeper.graph import Atom, Axis, Fixed, Graph, leaves, to_json, walk
from modelkeeper.graph.vocabulary import OPAQUE


def kind_of(axis: Axis, graph: Graph) -> str:
    """opaque, pinned, fixed or free: the worst thing that holds for any part of an axis."""
    found = set()
    for leaf in leaves(axis.of):
        match leaf:
            case Fixed(_, origin):
                found.add("opaque" if "opaque" in origin else "fixed")
            case Atom(space):
                pins = graph.spaces[space].pins
                found.add(
                    "opaque" if any(pin.code in OPAQUE for pin in pins) else "pinned" if pins else "free"
                )
    return next(kind for kind in ("opaque", "pinned", "free", "fixed") if kind in found or kind == "fixed")


def shuffled(name: str, most: int) -> float | str:
    """By how much the outputs change when the units of all free spaces are shuffled."""
    model = build(name)
    if sum(p.numel() for p in model.parameters()) > most:
        return f"not tried: more than {most:,} parameters"
    model = model.double()
    randomise(model)
    inputs, before = run_on_random(model)
    permute(model, describe(model, inputs))
    _, after = run_on_random(model, inputs)
    return difference(before, after)


def measure(name: str, verify: int = 0) -> dict[str, Any]:
    """One row of the table. `verify`: the most parameters of a model that is also put to the test."""
    torch.set_num_threads(1)
    try:
        model = build(name, meta=name not in TRANSFORMERS)
    except Exception as error:  # noqa: BLE001 (a constructor that fails here is reported, whatever it raised)
        return {"name": name, "built": False, "error": f"{type(error).__name__}: {error}"[:200]}
    began = time.perf_counter()
    try:
        graph = describe(model)
    except ModelKeeperError as error:
        return {"name": name, "built": True, "described": False, "error": str(error)[:300]}
    seconds = time.perf_counter() - began
    data = to_json(graph)
    del model
    kinds = Counter(
        kind_of(axis, graph) for _, tensor, axis in walk(graph) if not tensor.buffer and tensor.live
    )
    return {
        "name": name,
        "built": True,
        "described": True,
        "seconds": round(seconds, 3),
        "layers": len(graph.layers),
        "parameters": graph.parameters,
        "spaces": len(graph.spaces),
        "bytes": len(data),
        "compressed": len(zlib.compress(data, 9)),
        "axes": dict(sorted(kinds.items())),
        "dead": sum(not tensor.live for tensor in graph.tensors.values()),
        "fingerprint": graph.fingerprint,
        "notes": [str(note) for note in graph.notes],
        **({"change": shuffled(name, verify)} if verify else {}),
    }
