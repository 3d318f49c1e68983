"""How much may be said of a model? Listings and queries stay small, whoever registers."""

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import InvalidMeta, InvalidMetric
from modelkeeper.faults import KeeperWarning
from modelkeeper.graph import Graph
from modelkeeper.meta import Query, checked, read_registration
from modelkeeper.policy.quality import Metric
from modelkeeper.settings import Settings
from modelkeeper.zoo.bounds import (
    MAX_METRIC_BYTES,
    MAX_METRIC_NAME,
    MAX_METRICS,
    MAX_SAID,
    check,
    kept,
)
from modelkeeper.zoo.records import MAX_NAME, MAX_TAGS, Registration
from tests.helpers import zoos
from tests.helpers.service import network, team, tensors

WIDE = "\N{MATHEMATICAL BOLD CAPITAL A}"  # printable, four bytes long


@given(
    st.dictionaries(st.text(max_size=150), st.floats(allow_nan=False, allow_infinity=False), max_size=300),
    st.sampled_from(["", "accuracy", "x"]),
)
def test_what_is_kept_fits_and_is_a_part_of_what_was_said(metrics: dict[str, float], chosen: str) -> None:
    found = kept(metrics, chosen)
    assert found.items() <= metrics.items()
    assert len(found) <= MAX_METRICS
    assert len(msgspec.json.encode(found)) <= MAX_METRIC_BYTES
    assert all(name.isprintable() and 0 < len(name) <= MAX_METRIC_NAME for name in found)
    assert kept(found, chosen) == found, "what fits is kept whole"
    assert list(found) == [name for name in metrics if name in found], "in their order"


def test_what_models_are_compared_by_is_kept_first() -> None:
    metrics = {f"per class {number}": 0.5 for number in range(1000)}
    metrics |= {"val_accuracy": 0.9, "train_accuracy": 0.95}
    found = kept(metrics, "accuracy")
    assert len(found) == MAX_METRICS
    assert (found["val_accuracy"], found["train_accuracy"]) == (0.9, 0.95)


def test_a_training_that_measured_a_thousand_things_is_registered_with_a_warning() -> None:
    measured = {f"ap of class {number}": 0.5 for number in range(1203)} | {"accuracy": 0.9, "two\nlines": 1.0}
    with pytest.warns(KeeperWarning, match="Of 1,205 metrics 200 are kept"):
        said = read_registration({"metrics": measured}, "detector")
    assert said.metrics["accuracy"] == 0.9
    check(said)


def test_a_service_takes_as_much_of_an_older_client_as_fits(recwarn: pytest.WarningsRecorder) -> None:
    metrics = {f"ap {number}": 0.5 for number in range(1000)} | {"accuracy": 0.9}
    sent = msgspec.structs.replace(zoos.told(), metrics=metrics)
    assert len(checked(sent).metrics) == MAX_METRICS
    assert len(recwarn) == 0


TOO_MUCH: dict[str, dict[str, Any]] = {
    "name": {"name": "x" * (MAX_NAME + 1)},
    "lines": {"name": "a\nb"},
    "no name": {"name": " "},
    "steered": {"task": "\x1b[31mred"},
    "turned": {"data": "\u202egnp"},
    "tags": {"tags": tuple(str(number) for number in range(MAX_TAGS + 1))},
    "tag": {"tags": ("a\x00",)},
    "long tags": {"tags": tuple(f"{number:02}{WIDE * 190}" for number in range(MAX_TAGS))},
    "metrics": {"metrics": {str(number): 0.5 for number in range(MAX_METRICS + 1)}},
    "metric name": {"metrics": {"x" * (MAX_METRIC_NAME + 1): 0.5}},
    "heading": {"metrics": {"a\n# b": 0.5}},
    "wide metrics": {"metrics": {f"{number} {WIDE * 90}": 0.5 for number in range(100)}},
    "not finite": {"metrics": {"loss": math.inf}},
    "compared by": {"metric": Metric("two\nlines", 0.5)},
    "value": {"metric": Metric("loss", math.nan, True)},
    "visibility": {"visibility": "all"},
    "similarity": {"similarity": math.nan},
    "run": {"run": "../.."},
    "parents": {"parent": "0" * 16, "more_parents": tuple(f"{number:016x}" for number in range(1, 9))},
    "project": {"project": "a\rb"},
}


@pytest.mark.parametrize("kind", TOO_MUCH)
def test_too_much_is_refused_wherever_it_comes_from(kind: str) -> None:
    said = msgspec.structs.replace(zoos.told(), **TOO_MUCH[kind])
    coordinator = LocalCoordinator(Settings(home=":memory:"))
    graph = zoos.net(4, 4)
    with pytest.raises(InvalidMeta) as refused:
        coordinator.register(graph, said, zoos.weights(graph).items())
    assert len(str(refused.value)) < 400
    assert coordinator.models() == []
    coordinator.close()


def test_owners_and_frameworks_are_lines_too() -> None:
    for owner, framework in (("a\x1b[2J", "torch"), ("ada", "\x1b]0;title\x07"), ("ada", "x" * 41)):
        with pytest.raises(InvalidMeta):
            check(zoos.told(), owner, framework)


def test_a_name_that_is_no_name_cannot_be_what_models_are_compared_by() -> None:
    bad: dict[str, Any] = {"name": "\N{HANGUL FILLER}\n", "value": 0.5, "lower_is_better": False}
    with pytest.raises((InvalidMeta, InvalidMetric)):
        read_registration({"metric": bad}, "net")


def largest(number: int) -> Registration:
    """As much as may be said of a model."""
    said = zoos.told(f"{number:03}" + "x" * (MAX_NAME - 3), data="d" * MAX_NAME, task="t" * MAX_NAME)
    room = MAX_METRIC_BYTES - 2
    metrics = {"accuracy": 0.9}
    while len(msgspec.json.encode(metrics)) + MAX_METRIC_NAME + 40 < room:
        metrics[f"{len(metrics):03}" + "m" * (MAX_METRIC_NAME - 3)] = 0.123456789012345
    said = msgspec.structs.replace(said, metrics=kept(metrics))
    tags: list[str] = []
    while len(msgspec.json.encode(said)) + MAX_NAME + 3 < MAX_SAID and len(tags) < MAX_TAGS:
        tags.append(f"{len(tags):03}" + "g" * (MAX_NAME - 3))
        said = msgspec.structs.replace(said, tags=tuple(tags))
    return said


def test_listings_and_queries_stay_small_whatever_is_registered(tmp_path: Path) -> None:
    graph: Graph = network()
    assert len(msgspec.json.encode(largest(0))) > 0.9 * MAX_SAID
    with team(tmp_path) as keeper:
        mallory, ada = keeper.join("mallory"), keeper.join("ada", "read")
        for number in range(30):
            mallory.register(graph, largest(number), tensors(graph).items())
        reply = ada._calls.client.get("/models", params={"limit": 1000})
        assert len(reply.json()) == 30
        assert len(reply.content) < 30 * (MAX_SAID + 2_000), "a thousand: 18 MB, of 64 that a client takes"
        assert len(ada.models()) == 30
        answer = ada.query(graph, Query(data="d" * MAX_NAME, task="t" * MAX_NAME)).answer
        assert answer.parent is not None
        assert len(msgspec.json.encode(answer)) < 100_000


def test_no_line_of_a_card_is_the_registrants(tmp_path: Path) -> None:
    """A metric's name with newlines wrote a heading into the model's README."""
    from modelkeeper.zoo.card import card

    coordinator = LocalCoordinator(Settings(home=str(tmp_path / "zoo")))
    record = zoos.register(coordinator, zoos.net(4, 4), "net")
    coordinator.close()
    evil = "x\n\n# Heading\n\x1b[31m<script>[link](http://x) **bold** ~~gone~~ | 1 |"
    stored = msgspec.structs.replace(
        record, name=evil, owner=evil, framework=evil, task=evil, data=evil, tags=(evil,), metrics={evil: 1.0}
    )
    lines = card(stored).decode().splitlines()
    plain = card(record).decode().splitlines()
    assert len(lines) == len(plain) + 1  # it has a tag more
    assert sum(line.startswith("#") for line in lines) == 1
    text = "\n".join(lines[lines.index("---", 1) + 1 :])
    for markup in ("\x1b", "<script>", "[link]", "**bold", "~~gone", "http://"):
        assert markup not in text
