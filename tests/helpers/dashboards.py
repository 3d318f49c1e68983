"""Zoos to look at: families of models with names that people give, and with names that enemies give."""

import contextlib
import math
import random
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.graph import Graph
from modelkeeper.meta import Query
from modelkeeper.policy.curves import Curve, Point
from modelkeeper.server.serve import serving
from modelkeeper.settings import ServiceSettings, Settings
from modelkeeper.warmstart.race.rules import Race, Runner
from modelkeeper.zoo.database.rows import record_row
from modelkeeper.zoo.database.schema import events, models, starts
from modelkeeper.zoo.history.samples import add
from modelkeeper.zoo.records import Record, Viewer
from tests.helpers.generated import densenet, resnet, transformer, vgg
from tests.helpers.zoos import told, weights

# Markup, quotes, attributes, scripts, templates, wide and endless words: in one name as far as it is long.
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'-alert(1)-'",
    "{{ 7 * 7 }}{% raw %}",
    "</style><svg onload=alert(1)>",
    "javascript:alert(1)//",
    '=HYPERLINK("http://evil")',
    "W" * 200,
    "\u0627\u0644\u0646\u0645\u0648\u0630\u062c " * 8,
    "&lt;b&gt; &amp;quot; <!-- -->",
)


def hostile(number: int, longest: int = 200) -> str:
    """A name that nobody means well with."""
    return HOSTILE[number % len(HOSTILE)][:longest].strip()


def renamed(graph: Graph) -> Graph:
    """The same graph, whose layers have hostile names."""
    layers = tuple(
        msgspec.structs.replace(layer, name=f"{hostile(number, 120)} {number}")
        for number, layer in enumerate(graph.layers)
    )
    return msgspec.structs.replace(graph, layers=layers)


def curve(best: float, warm: bool, rng: random.Random, metric: str = "accuracy", steps: int = 40) -> Curve:
    """How a training may have gone: fast from a parent, slower from noise, to the same score."""
    first, pace = (0.55 * best, 7.0) if warm else (0.1, 12.0)
    points = []
    for step in range(steps + 1):
        score = best - (best - first) * math.exp(-step / pace) + rng.uniform(-0.006, 0.006)
        points.append(Point(25 * step, 1.7 * step, round(score, 4)))
    return Curve(metric=metric, points=tuple(points))


def train(
    coordinator: LocalCoordinator,
    graph: Graph,
    name: str,
    score: float,
    drawn: Curve,
    who: Viewer,
    **more: Any,
) -> tuple[Record, str]:
    """A model as a training makes it: it asks for a start, is trained, and is registered. And its start.

    `parent`: from which models it starts; without any, nobody is asked to lend.
    """
    parents = tuple(more.pop("parent", ()))
    asked = Query(
        task=more["task"],
        data=more["data"],
        parents=parents,
        owners=() if parents else ("nobody",),
        minimum_similarity=0.05,
    )
    answer = coordinator.query(graph, asked, viewer=who).answer
    if len(parents) < 2 and answer.parents:
        parents = tuple(parent.id for parent in answer.parents)
    more |= {"parent": list(parents)} if parents else {}
    said = msgspec.structs.replace(told(name, score, **more), curve=drawn, start=answer.start)
    said = msgspec.structs.replace(said, similarity=answer.similarity)
    tensors = weights(graph, sum(map(ord, name))).items()
    record = coordinator.register(graph, said, tensors, owner=who.name, owner_id=who.user).record
    return record, answer.start


def race(coordinator: LocalCoordinator, start: str, *, won: bool) -> None:
    """Say that a start was raced against a cold one."""
    warm = Runner("warm", "parent", 50, 0.7, 0.4, "won" if won else "lost")
    cold = Runner("cold", "", 50, 2.3, 1.1 if won else 0.3, "lost" if won else "won")
    coordinator.raced(start, Race("warm" if won else "cold", (warm, cold), 100, 12.5))


def fill_hostile(coordinator: LocalCoordinator, **more: Any) -> list[Record]:
    """A family of models that are hostile in every field."""
    records: list[Record] = []
    rng = random.Random(0)
    for number in range(len(HOSTILE)):
        words: dict[str, Any] = {
            "task": hostile(number + 1),
            "data": hostile(number + 2),
            "tags": [hostile(number + each, 60) for each in range(5)],
            "metrics": {hostile(number + 3, 60): 0.5, "accuracy": 0.5 + number / 100},
        }
        words |= {"parent": [record.id for record in records[-2:]]} if records else {}
        graph = renamed(vgg((8, 8 + 4 * number)))
        name = hostile(number).replace("/", "|")
        who = Viewer(f"{number:016x}", name=hostile(number + 4).replace("/", "|"))
        drawn = curve(0.5 + number / 100, number > 0, rng, metric=hostile(number // 2 * 2 + 3, 60))
        record, start = train(coordinator, graph, name, 0.5 + number / 100, drawn, who, **words, **more)
        if number % 3 == 1:
            race(coordinator, start, won=number % 2 == 0)
        records.append(record)
        asked = Query(task=record.task, data=record.data, minimum_similarity=0.05)
        borrower = Viewer(f"{number + 1:016x}", name=hostile(number).replace("/", "|"))
        coordinator.query(graph, asked, viewer=borrower)  # a loan of which nothing comes
    return records


def fill_family(coordinator: LocalCoordinator, count: int = 30, seed: int = 1) -> list[Record]:
    """Small models of several kinds, most of which started from others."""
    rng = random.Random(seed)
    kinds: dict[str, tuple[Callable[[int], Graph], str, str]] = {
        "vgg": (lambda width: vgg((width, 2 * width, 2 * width)), "classification", "digits"),
        "resnet": (lambda width: resnet((2, 2), width), "classification", "fashion-mnist"),
        "densenet": (lambda width: densenet(4, width), "classification", "digits"),
        "transformer": (lambda width: transformer(2, width, 2 * width), "language", "speeches"),
    }
    records: list[Record] = []
    for number in range(count):
        kind = rng.choice(sorted(kinds))
        make, task, data = kinds[kind]
        elders = [record for record in records if record.name.startswith(kind)][-4:]
        first = next((record for record in records if record.name.startswith(kind)), None)
        width = rng.choice([8, 12, 16, 24, 32])
        if first is not None and number % 3 == 0:  # the cold one of its kind, trained again
            width = int(first.name[len(kind) :].partition("-")[0])
        parents = [record.id for record in rng.sample(elders, min(len(elders), rng.choice([1, 1, 1, 2])))]
        more: dict[str, Any] = {
            "tags": rng.sample(["baseline", "nas", "tuned", "prod"], rng.choice([0, 1, 2]))
        }
        if parents:
            more["parent"] = parents
        score = 0.7 + 0.25 * (1 - 0.9 ** (1 + len(elders))) + rng.uniform(-0.01, 0.02)
        name, owner = f"{kind}{width}-{number:02}", rng.choice(["ada", "grace", "alan"])
        more |= {"task": task, "data": data}
        score = round(score, 4)
        drawn = curve(score, bool(parents), rng)
        record, start = train(coordinator, make(width), name, score, drawn, Viewer(owner, name=owner), **more)
        if parents and number % 4 == 1:
            race(coordinator, start, won=number % 8 == 1)
        records.append(record)
    return records


@contextlib.contextmanager
def served(folder: Path, **settings: Any) -> Iterator[tuple[LocalCoordinator, str]]:
    """A service without users, whose zoo takes whatever it is told, and where it is."""
    local = LocalCoordinator(Settings(home=str(folder / "zoo"), minimum_peers=10**6, **settings))
    with serving(local, ServiceSettings(port=0, auth=False)) as url:
        yield local, url
    local.close()


def age(coordinator: LocalCoordinator, records: list[Record], days: float) -> None:
    """Let what happened in a zoo, and these models, be of so many days, at an even pace."""
    now, length = time.time() - 60, days * 86400
    with coordinator.zoo.catalog.database.writing() as connection:
        for table in (starts, events):
            last = connection.scalar(sa.select(sa.func.max(table.c.number))) or 1
            then = now - length * (1 - sa.cast(table.c.number, sa.Float) / last)
            connection.execute(table.update().values(at=then))
        for number, record in enumerate(records):
            at = now - length * (1 - number / len(records))
            known = coordinator.show(record.id)
            row = record_row(msgspec.structs.replace(known, created=at, last_used=at))
            connection.execute(models.update().where(models.c.id == record.id).values(row))


def keep_busy(coordinator: LocalCoordinator, hours: float, every: int = 1, seed: int = 2) -> None:
    """Let a service have been busy for so many hours, more at noon, counted `every` so many minutes."""
    rng, last = random.Random(seed), int(time.time() // 60)
    stages = {"prepare": 0.004, "filter": 0.002, "search": 0.018, "plan": 0.009, "read": 0.006}
    with coordinator.zoo.catalog.database.writing() as connection:
        for minute in range(last - int(60 * hours), last, every):
            tide = 0.6 - 0.4 * math.cos(2 * math.pi * (minute % 1440) / 1440)
            warm, cold = (round(every * rng.uniform(0.6, 1.3) * tide * most) for most in (9, 3))
            values: dict[str, float] = {"queries.warm": warm, "queries.cold": cold}
            for stage, usual in stages.items():
                times = warm + cold if stage != "read" else warm
                took = times * usual * rng.uniform(0.8, 1.4) * (0.8 + 0.6 * tide)
                values |= {f"count.{stage}": times, f"seconds.{stage}": took}
            values["registrations"] = round(every * tide * rng.uniform(0, 0.5))
            values["refusals"] = float(rng.random() < 0.08)
            values["evictions"] = float(rng.random() < 0.15) * 2
            values["errors"] = float(rng.random() < 0.03) * rng.choice([1, 2, 5])
            add(connection, minute, {name: value for name, value in values.items() if value})


def multiply(coordinator: LocalCoordinator, record: Record, count: int) -> None:
    """Put many records like one straight into the catalog; some of them without a score."""
    rng = random.Random(0)
    row = record_row(record)
    rows = []
    for number in range(count):
        value = None if number % 10 == 0 else rng.random()
        copy = msgspec.structs.replace(
            record, id=secrets.token_hex(8), name=f"many-{number:05}", value=value, bytes=1000 + number
        )
        rows.append(record_row(copy) | {"changed": 0})
    with coordinator.zoo.catalog.database.writing() as connection:
        assert row.keys() <= set(models.c.keys())
        connection.execute(sa.insert(models), rows)
