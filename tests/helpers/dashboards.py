"""Zoos to look at: families of models with names that people give, and with names that enemies give."""

import random
import secrets
from collections.abc import Callable
from typing import Any

import msgspec
import sqlalchemy as sa

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.graph import Graph
from modelkeeper.zoo.records import Record
from modelkeeper.zoo.rows import record_row
from modelkeeper.zoo.schema import models
from tests.helpers.generated import densenet, resnet, transformer, vgg
from tests.helpers.zoos import register

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


def fill_hostile(coordinator: LocalCoordinator, **more: Any) -> list[Record]:
    """A family of models that are hostile in every field."""
    records: list[Record] = []
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
        whose: dict[str, Any] = {"owner": hostile(number + 4).replace("/", "|"), "owner_id": f"{number:016x}"}
        records.append(register(coordinator, graph, name, **whose, **words, **more))
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
        width = rng.choice([8, 12, 16, 24, 32])
        elders = [record for record in records if record.name.startswith(kind)][-4:]
        parents = [record.id for record in rng.sample(elders, min(len(elders), rng.choice([1, 1, 1, 2])))]
        more: dict[str, Any] = {
            "tags": rng.sample(["baseline", "nas", "tuned", "prod"], rng.choice([0, 1, 2]))
        }
        if parents:
            more["parent"] = parents
        score = 0.7 + 0.25 * (1 - 0.9 ** (1 + len(elders))) + rng.uniform(-0.01, 0.02)
        name = f"{kind}{width}-{number:02}"
        owner = rng.choice(["ada", "grace", "alan"])
        records.append(
            register(
                coordinator, make(width), name, round(score, 4), owner=owner, task=task, data=data, **more
            )
        )
    return records


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
