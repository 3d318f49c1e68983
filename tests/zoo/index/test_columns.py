"""Columns say of every filter just what the catalog's database says, whatever came, went and changed."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkeeper.errors import InvalidIndex
from modelkeeper.graph import to_json
from modelkeeper.matching import prepare
from modelkeeper.policy.credit import Outcome
from modelkeeper.policy.quality import Metric, gap
from modelkeeper.zoo.accounts.accounts import Accounts
from modelkeeper.zoo.catalog import changes
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.catalog.outcomes import Outcomes
from modelkeeper.zoo.database.schema import keys, projects
from modelkeeper.zoo.index import columns
from modelkeeper.zoo.index.columns import Columns
from modelkeeper.zoo.records import STATES, STORED, VISIBILITIES, Filter, Record, Viewer, new_id
from modelkeeper.zoo.restriction import Restriction
from tests.helpers import zoos

GRAPH = zoos.net(4)
JSON, PREPARED = to_json(GRAPH), prepare(GRAPH).to_bytes()
NAMES = ("", "ada", "bob", "eve")  # ada and bob are users, eve is the name of nobody
SIGNERS = ("", "5" * 64, "6" * 64, "7" * 64)  # of which one is trusted, one was revoked


def followed(catalog: Catalog, made: Columns | None = None, since: int = 0) -> tuple[Columns, int]:
    """Columns with all that a catalog has, read as a follower would."""
    made, more = made or Columns(), True
    while more:
        part = catalog.changes(since)
        made.apply(part)
        since, more = part.now, part.more
    return made, since


@pytest.fixture(params=["sqlite", "postgresql"])
def catalog(request: pytest.FixtureRequest) -> Iterator[Catalog]:
    opened = Catalog("sqlite://" if request.param == "sqlite" else request.getfixturevalue("postgres_url"))
    yield opened
    opened.close()


def identities(catalog: Catalog) -> dict[str, list[str]]:
    """Who there is: ids of users and of projects, and that of somebody who went."""
    accounts = Accounts(catalog)
    ada, bob, gone = (accounts.add_user(name).id for name in ("ada", "bob", "gone"))
    accounts.remove_user("gone")
    with catalog.database.writing() as connection:
        connection.execute(projects.insert(), {"id": "p" * 16, "name": "bob-project", "created": 0.0})
        trusted = {"public": "0" * 64, "name": "k", "created": 0.0}
        connection.execute(keys.insert(), [
            {"id": SIGNERS[1], "revoked": None, **trusted}, {"id": SIGNERS[2], "revoked": 1.0, **trusted},
        ])  # fmt: skip
    return {"users": ["", ada, bob, gone], "projects": ["", "p" * 16, "q" * 16]}


def some_record(rng: random.Random, who: dict[str, list[str]]) -> Record:
    measured = rng.random() < 0.8
    value = round(rng.random(), 2)
    return Record(
        id=new_id(), name="net", framework="torch", parameters=rng.choice((1, 2**40)), bytes=1,
        fingerprint=GRAPH.fingerprint, graph="d" * 64, checksum="c" * 64,
        created=time.time() - rng.random(), last_used=0.0,
        owner=rng.choice(NAMES), owner_id=rng.choice(who["users"]),
        project=rng.choice(("", "bob-project", "other")), project_id=rng.choice(who["projects"]),
        visibility=rng.choice(VISIBILITIES), published=rng.random() < 0.3, finished=rng.random() < 0.8,
        task=rng.choice(("", "t", "T", "u")), data=rng.choice(("", "d", "ada")),
        origin=rng.choice(("", "http://z")),
        tags=tuple(rng.sample(("a", "b", "ada"), rng.randrange(3))), signer=rng.choice(SIGNERS),
        licence=rng.choice(("", "MIT", "Apache-2.0", "apache-2.0")), state=rng.choice(STATES),
        metric=rng.choice(("accuracy", "loss")) if measured else "", value=value if measured else None,
        lower_is_better=rng.random() < 0.3,
        metrics={"accuracy": value, "train_accuracy": min(1.0, value + 0.1)} if measured else {},
    )  # fmt: skip


def some_filter(rng: random.Random, who: dict[str, list[str]]) -> Filter:
    def maybe(*choices: Any) -> Any:
        return rng.choice((None, None, *choices))

    def several(*choices: str) -> tuple[str, ...]:
        return tuple(rng.sample(choices, rng.choice((0, 0, 1, 2))))

    viewer = maybe(
        Viewer(rng.choice(who["users"]), projects=several(*who["projects"])),
        Viewer(rng.choice(who["users"]), all=True),
        Viewer("", partner=True),
    )
    restriction = Restriction(
        owners=several(*NAMES, *who["users"]),
        projects=several("bob-project", "other", *who["projects"]),
        signed=rng.random() < 0.2,
        licences=several("mit", "Apache-2.0", "GPL"),
    )
    return Filter(
        viewer=viewer, states=rng.choice((STORED, STATES, STATES[:1], STATES[3:])),
        task=maybe("", "t", "T", "none"), data=maybe("", "d", "none"), origin=maybe("", "http://z"),
        tags=several("a", "b", "ada", "none"), restrictions=rng.choice(((), (restriction,))),
    )  # fmt: skip


def check(
    catalog: Catalog, made: Columns, rng: random.Random, who: dict[str, list[str]], filters: int = 60
) -> None:
    for _ in range(filters):
        wanted = some_filter(rng, who)
        bearers = catalog.names.bearers(wanted.restrictions)
        passing = sorted(record.key for record in catalog.find(wanted))
        assert np.flatnonzero(made.mask(wanted, bearers)).tolist() == passing, wanted


def test_masks_are_what_the_database_says(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_FIRST", 4)
    monkeypatch.setattr(changes, "MOST", 7)
    rng = random.Random(0)
    who = identities(catalog)
    records = [catalog.add(some_record(rng, who), JSON, PREPARED) for _ in range(60)]
    made, since = followed(catalog)
    check(catalog, made, rng, who)
    for _ in range(5):
        catalog.update(rng.choice(records).id, published=rng.random() < 0.5)
        catalog.retire({rng.choice(records).id: "x"}, rng.choice(STATES[2:]))
        records.append(catalog.add(some_record(rng, who), JSON, PREPARED))
    Accounts(catalog).give("ada", "bob")
    made, since = followed(catalog, made, since)
    check(catalog, made, rng, who)
    check(catalog, followed(catalog)[0], rng, who)


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 12))
def test_masks_of_any_records(rng: random.Random, count: int) -> None:
    catalog = Catalog("sqlite://")
    who = identities(catalog)
    for _ in range(count):
        catalog.add(some_record(rng, who), JSON, PREPARED)
    check(catalog, followed(catalog)[0], rng, who, filters=15)
    catalog.close()


def test_what_is_known_of_a_model_follows(catalog: Catalog, tmp_path: Path) -> None:
    rng = random.Random(1)
    who = identities(catalog)
    records = [catalog.add(some_record(rng, who), JSON, PREPARED) for _ in range(20)]
    made, since = followed(catalog)
    outcomes = Outcomes(catalog)
    for number, gain in enumerate((-1.0, -1.0, 1.0, -0.5)):
        outcomes.add(
            Outcome(parent=records[number % 2].id, user=f"u{number}", kind="raced", gain=gain, at=1.0)
        )
    made, since = followed(catalog, made, since)
    believed = outcomes.credits(catalog.with_ids([record.id for record in records]).values())
    made.save(tmp_path)
    for each in (made, Columns.load(tmp_path)):
        for record in records:
            row = each.row(record.key)
            assert row["credit"] == believed[record.id].factor
            assert row["task"] == record.task
            assert row["licence"] == record.licence.lower()
            assert (row["parameters"], row["created"]) == (record.parameters, record.created)
            assert (row["value"], row["finished"]) == (record.value, record.finished)
            if record.value is not None:
                metric = Metric(record.metric, record.value, record.lower_is_better)
                assert row["gap"] == gap(record.metrics, metric)
        check(catalog, each, rng, who)


def test_columns_hold_no_names() -> None:
    with pytest.raises(ValueError, match="cannot be asked for 'net'"):
        Columns().mask(Filter(text="net"))


def test_columns_of_another_catalog_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidIndex, match="cannot be read"):
        Columns.load(tmp_path)
    Columns().save(tmp_path)
    assert len(Columns.load(tmp_path)) == 1
    monkeypatch.setattr(columns, "VERSION", "0000")
    with pytest.raises(InvalidIndex, match="version"):
        Columns.load(tmp_path)
