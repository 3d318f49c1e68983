"""Small zoos for tests: models without a framework, and what is said of them.

`net(8, 16)` is a graph of a small network, `weights(graph, seed)` numbers for it; `told(accuracy=0.9)` is
what a training script would say. Nothing here imports a framework: processes that only register start fast.
"""

import hashlib
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.graph import Graph
from modelkeeper.meta import read_registration
from modelkeeper.weights import Array, Header, dtype_of, stream
from modelkeeper.zoo.catalog.catalog_reader import CatalogReader
from modelkeeper.zoo.history.relatives import Relatives
from modelkeeper.zoo.records import Record, Registration, Viewer
from modelkeeper.zoo.zoo import stored_tensors
from tests.helpers.generated import vgg

DATA, TASK = "digits", "classification"


def net(*widths: int) -> Graph:
    """A chain of convolutions with these widths, and a head."""
    return vgg(widths or (8, 16))


def weights(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Numbers for every stored tensor of a graph."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.standard_normal(shape).astype(dtype_of(dtype))
        for name, dtype, shape in stored_tensors(graph)
    }


def checksum(graph: Graph, tensors: dict[str, Array]) -> str:
    """The SHA-256 of the file that a zoo stores."""
    form = {"format": "pt" if graph.framework == "torch" else "np"}
    header = Header.of(stored_tensors(graph), form)
    return hashlib.sha256(b"".join(stream(header, tensors.items()))).hexdigest()


def told(name: str = "net", accuracy: float = 0.9, **more: Any) -> Registration:
    """What a training script says of a model."""
    meta = {"data": DATA, "task": TASK, "metrics": {"accuracy": accuracy}, **more}
    return read_registration(meta, name)


def register(
    coordinator: LocalCoordinator,
    graph: Graph,
    name: str = "net",
    accuracy: float = 0.9,
    *,
    owner: str = "ann",
    owner_id: str = "",
    model_id: str = "",
    **more: Any,
) -> Record:
    """Register a model with weights that its name and accuracy decide."""
    seed = zlib.crc32(f"{name} {accuracy}".encode())
    registration = told(name, accuracy, **more)
    tensors = weights(graph, seed).items()
    return coordinator.register(
        graph, registration, tensors, owner=owner, model_id=model_id, owner_id=owner_id or owner
    ).record


def children(catalog: CatalogReader, of: Sequence[str], viewer: Viewer | None = None) -> list[Record]:
    """What started from any of these models, the oldest first."""
    with catalog.database.reading() as connection:
        kin = Relatives(connection, viewer, catalog.damaged)
        found = kin.records(list(kin.children(of, most=100)))
    return [found[key] for key in sorted(found)]
