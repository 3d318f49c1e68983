"""A zoo of any number of records without weights: real architectures, and the same at other widths."""

import hashlib
import random
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.helpers.corpus import IMAGENET, cifar, graphs, repeats
from modelkeeper.errors import InvalidGraph, TooLargeToMatch
from modelkeeper.graph import Atom, Axis, Concat, Expression, Fixed, Graph, Layer, Product, Space, to_json
from modelkeeper.matching import prepare
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.catalog.changes import tick
from modelkeeper.zoo.catalog.totals import count_anew
from modelkeeper.zoo.database.rows import event_row, record_row
from modelkeeper.zoo.database.schema import CHANGES, clock, events, models, tags
from modelkeeper.zoo.database.schema import graphs as graphs_table
from modelkeeper.zoo.database.seals import seal_of_bytes
from modelkeeper.zoo.records import Event, Record, new_id

HELD_OUT = ("densenet", "xdensenet", "dla", "hrnet", "darts", "nasnet", "pnasnet", "inception", "fractalnet")
SETS = (
    ("classification", "CIFAR-10"),
    ("classification", "Flowers102"),
    ("classification", "SVHN"),
    ("retrieval", "CUB"),
)


@dataclass(frozen=True)
class Architectures:
    """Graphs to make a zoo from, and graphs to ask for."""

    known: dict[str, tuple[Graph, bytes]]  # by digest, with their JSON
    relative: Graph
    strangers: tuple[Graph, ...]


def make_zoo(home: Path, records: int, architectures: int, place: str = "") -> None:
    """A catalog of records, in a home or at another place, and two graphs to ask for."""
    (home / "zoo").mkdir(parents=True, exist_ok=True)
    made = make_architectures(architectures)
    (home / "relative.json").write_bytes(to_json(made.relative))
    (home / "stranger.json").write_bytes(to_json(made.strangers[0]))
    fill(place or f"sqlite:///{home / 'zoo' / 'catalog.db'}", made, records)


def make_architectures(number: int) -> Architectures:
    """So many different graphs: real ones, with other depths and widths."""
    rng = random.Random(0)
    real = graphs([*cifar(), *IMAGENET])
    made = varied([graph for name, graph in real.items() if not name.startswith(HELD_OUT)], rng)
    relative = resized(real["resnet56_cifar10"], 1.3, rng)
    chosen: dict[str, tuple[Graph, bytes]] = {}
    while len(chosen) < number:
        graph = next(made)
        text = to_json(graph)
        chosen.setdefault(hashlib.sha256(text).hexdigest(), (graph, text))
    strangers = (graph for name, graph in real.items() if name.startswith(HELD_OUT))
    return Architectures(chosen, relative, tuple(strangers))


def fill(place: str | Path, made: Architectures, records: int) -> None:
    """Write records into a catalog, in bulk, as if they had been registered one after another."""
    catalog, rng, now = Catalog(place), random.Random(0), time.time()
    digests = list(made.known)
    with catalog.database.writing() as connection:
        for batch in _lots(digests, 200):
            rows = []
            for digest in batch:
                graph, text = made.known[digest]
                prepared = prepare(graph).to_bytes()
                seal = seal_of_bytes(prepared)
                packed = {"graph": zlib.compress(text), "prepared": prepared, "seal": seal}
                rows.append({"digest": digest, **packed})
            connection.execute(graphs_table.insert(), rows)
        first = tick(connection)
        for ages in _lots(range(records), 5_000):
            some = [record(made.known, rng.choice(digests), rng, now - 60 * age) for age in ages]
            numbered = zip(ages, some, strict=True)
            connection.execute(
                models.insert(), [record_row(each) | {"changed": first + 1 + age} for age, each in numbered]
            )
            noted = [
                Event(at=each.created, action="registered", model=each.id, user="ann", detail=each.name)
                for each in some
            ]
            connection.execute(events.insert(), [event_row(each) for each in noted])
        counted = clock.update().where(clock.c.name == CHANGES)
        connection.execute(counted.values(value=first + records))  # one by one takes minutes
        named = models.select().with_only_columns(models.c.key, models.c.tags)
        tagged = [{"key": key, "tag": tag} for key, said in connection.execute(named) for tag in said]
        for lot in _lots(tagged, 20_000):
            connection.execute(tags.insert(), lot)
        count_anew(connection)
    catalog.close()


def _lots(values: Sequence[Any], size: int) -> Iterator[Any]:
    for at in range(0, len(values), size):
        yield values[at : at + size]


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
