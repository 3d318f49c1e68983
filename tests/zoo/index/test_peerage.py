"""Peers from columns are those that the catalog names, summed up the same, and never those of before."""

import random
from collections.abc import Iterator

import pytest

from modelkeeper.policy.credit import Outcome
from modelkeeper.policy.quality import Peers
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.catalog.outcomes import Outcomes
from modelkeeper.zoo.index.columns import Columns
from modelkeeper.zoo.index.peerage import Peerage
from modelkeeper.zoo.records import BARRED, REMOVED, STATES, STORED, Filter, Viewer
from tests.zoo.catalog.test_catalog import add
from tests.zoo.index.test_columns import JSON, PREPARED, followed, identities, some_record


@pytest.fixture(params=["sqlite", "postgresql"])
def catalog(request: pytest.FixtureRequest) -> Iterator[Catalog]:
    opened = Catalog("sqlite://" if request.param == "sqlite" else request.getfixturevalue("postgres_url"))
    yield opened
    opened.close()


def expected(catalog: Catalog, group: tuple[str, str, str], lower: bool, viewer: Viewer | None) -> Peers:
    """Made of the records one by one."""
    records = catalog.find(Filter(viewer=viewer, states=STORED, task=group[0], data=group[1]))
    believed = Outcomes(catalog).credits(catalog.with_ids([record.id for record in records]).values())
    voices = {
        record.id: record.voice for record in catalog.find(Filter(states=STATES))
    }  # as partners may not
    peers = [
        record
        for record in records
        if record.metric == group[2] and record.value is not None and record.finished
        and not believed[record.id].refuted
    ]  # fmt: skip
    values = [record.value for record in peers if record.value is not None]
    return Peers.of(values, lower, [voices[record.id] for record in peers])


def test_peers_are_those_of_the_catalog_whatever_changes(catalog: Catalog) -> None:
    rng = random.Random(3)
    who = identities(catalog)
    viewers = [None, Viewer(""), Viewer(who["users"][1], projects=("p" * 16,)), Viewer("", partner=True)]
    groups = [(task, data, metric) for task in "tu" for data in ("", "d") for metric in ("accuracy", "loss")]
    records = [catalog.add(some_record(rng, who), JSON, PREPARED) for _ in range(80)]
    columns, since = followed(catalog, Columns())
    peerage = Peerage(columns)
    for _ in range(4):
        for group in groups:
            for viewer in viewers:
                for lower in (False, True):
                    wanted = expected(catalog, group, lower, viewer)
                    assert peerage.of(group, lower, viewer) == wanted
        for _ in range(6):
            record = rng.choice(records)
            catalog.update(record.id, published=rng.random() < 0.5)
            catalog.retire({rng.choice(records).id: "x"}, rng.choice(STATES[2:]))
            records.append(catalog.add(some_record(rng, who), JSON, PREPARED))
            for user in ("x", "y"):
                said = Outcome(parent=record.id, user=user, kind="raced", gain=-1.0, at=1.0)
                Outcomes(catalog).add(said)
        columns, since = followed(catalog, columns, since)


def test_peers_are_of_the_same_task_data_and_metric(catalog: Catalog) -> None:
    add(catalog, value=0.5)
    add(catalog, value=0.7, state=BARRED)
    add(catalog, value=None)
    add(catalog, data="other")
    add(catalog, metric="f1")
    add(catalog, value=0.2, finished=False)
    gone = add(catalog, value=0.1)
    catalog.retire({gone.id: "x"}, REMOVED)
    hidden = add(catalog, value=0.9, visibility="private")
    columns, _ = followed(catalog)
    which = ("classification", "digits", "accuracy")
    for viewer in (None, Viewer(hidden.owner)):
        values, voices = columns.peers(which, viewer)
        assert sorted(values) == [0.5, 0.7, 0.9]
        assert {columns.text(voice) for voice in voices} == {hidden.voice}
    assert sorted(columns.peers(which, Viewer("nobody"))[0]) == [0.5, 0.7]
    assert sorted(columns.peers(which, but=hidden.key)[0]) == [0.5, 0.7]
