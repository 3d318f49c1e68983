"""A zoo of any number of records without weights: real architectures, and the same at other widths."""

import hashlib
import random
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.helpers.corpus import IMAGENET, cifar, graphs, repeats
from modelkeeper.errors import InvalidGraph, TooLargeToMatch
from modelkeeper.graph import Atom, Axis, Concat, Expression, Fixed, Graph, Layer, Product, Space, to_json
from modelkeeper.matching import prepare
from modelkeeper.zoo.catalog import Catalog, _tick
from modelkeeper.zoo.records import Event, Record, new_id
from modelkeeper.zoo.rows import event_row, record_row
from modelkeeper.zoo.schema import events, models, tags
from modelkeeper.zoo.schema import graphs as graphs_table

HELD_OUT = ("densenet", "xdensenet", "dla", "hrnet", "darts", "nasnet", "pnasnet", "inception", "fractalnet")
SETS = (
    ("classification", "CIFAR-10"),
    ("classification", "Flowers102"),
    ("classification", "SVHN"),
    ("retrieval", "CUB"),
)


def make_zoo(home: Path, records: int, architectures: int) -> None:
    """A catalog of records, and two graphs to ask for."""
    (home / "zoo").mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)
    real = graphs([*cifar(), *IMAGENET])
    strangers = [graph for name, graph in real.items() if name.startswith(HELD_OUT)]
    known = [graph for name, graph in real.items() if not name.startswith(HELD_OUT)]
    made = varied(known, rng)
    (home / "relative.json").write_bytes(to_json(resized(real["resnet56_cifar10"], 1.3, rng)))
    (home / "stranger.json").write_bytes(to_json(strangers[0]))
    catalog = Catalog(f"sqlite:///{home / 'zoo' / 'catalog.db'}")
    chosen: dict[str, tuple[Graph, bytes]] = {}
    rows = []
    while len(chosen) < architectures:
        graph = next(made)
        text = to_json(graph)
        digest = hashlib.sha256(text).hexdigest()
        if digest not in chosen:
            chosen[digest] = graph, text
            packed = {"graph": zlib.compress(text), "prepared": prepare(graph).to_bytes()}
            rows.append({"digest": digest, **packed})
    with catalog.database.writing() as connection:
        connection.execute(graphs_table.insert(), rows)
        digests, now = list(chosen), time.time()
        found = [record(chosen, rng.choice(digests), rng, now - 60 * age) for age in range(records)]
        connection.execute(
            models.insert(), [record_row(each) | {"changed": _tick(connection)} for each in found]
        )
        keys = dict(connection.execute(models.select().with_only_columns(models.c.id, models.c.key)).all())
        connection.execute(
            tags.insert(), [{"key": keys[each.id], "tag": tag} for each in found for tag in each.tags]
        )
        noted = [
            Event(at=each.created, action="registered", model=each.id, user="ann", detail=each.name)
            for each in found
        ]
        connection.execute(events.insert(), [event_row(each) for each in noted])
    catalog.close()


def record(chosen: dict[str, tuple[Graph, bytes]], digest: str, rng: random.Random, created: float) -> Record:
    """A model of this graph, as if someone had trained it."""
    graph = chosen[digest][0]
    task, data = rng.choice(SETS)
    accuracy = min(0.99, max(0.3, rng.gauss(0.85, 0.05)))
    return Record(
        id=new_id(),
        name=f"{graph.layers[-1].kind}-{digest[:6]}",
        owner=rng.choice(("ann", "bob", "eve")),
        data=data,
        task=task,
        tags=("nightly",) if rng.random() < 0.3 else (),
        metrics={"accuracy": accuracy, "train_accuracy": min(1.0, accuracy + 0.03)},
        metric="accuracy",
        value=accuracy,
        framework=graph.framework,
        parameters=graph.parameters,
        bytes=4 * graph.parameters,
        fingerprint=graph.fingerprint,
        graph=digest,
        checksum="0" * 64,
        created=created,
        last_used=created,
        hits=rng.randrange(20),
    )


def varied(known: list[Graph], rng: random.Random) -> Iterator[Graph]:
    """Real graphs with other depths and widths, without end."""
    while True:
        graph = rng.choice(known)
        try:
            deeper = repeats(graph, rng) if rng.random() < 0.7 else graph
            yield resized(deeper, rng.choice((0.5, 0.75, 1.0, 1.25, 1.5, 2.0)) * rng.uniform(0.9, 1.1), rng)
        except (InvalidGraph, TooLargeToMatch):
            continue  # not every network can be varied so


def resized(graph: Graph, factor: float, rng: random.Random) -> Graph:
    """The same network with other widths: every free space times a factor of about this."""
    sizes = [
        max(8, 8 * round(space.size * factor * rng.uniform(0.9, 1.1) / 8))
        if space.free and space.size > 10
        else space.size
        for space in graph.spaces
    ]

    def expression(of: Expression) -> Any:
        match of:
            case Atom(space):
                return Atom(space, sizes[space])
            case Product(factors):
                return Product(tuple(expression(each) for each in factors))
            case Concat(parts):
                return Concat(tuple(expression(each) for each in parts))
            case Fixed():
                return of

    def layer(each: Layer) -> Layer:
        tensors = tuple(
            type(tensor)(
                tensor.name,
                tensor.role,
                tensor.dtype,
                tuple(Axis(axis.role, expression(axis.of), axis.degrees) for axis in tensor.axes),
                tensor.trainable,
                tensor.buffer,
                tensor.live,
                tensor.stored,
            )
            for tensor in each.tensors
        )
        return Layer(each.name, each.kind, each.inputs, tensors, each.attributes)

    spaces = tuple(
        Space(size, space.pins, space.averaged) for size, space in zip(sizes, graph.spaces, strict=True)
    )
    return Graph(graph.framework, tuple(layer(each) for each in graph.layers), spaces)
