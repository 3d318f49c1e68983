"""Pages of the catalog: whatever the order and the filter, they are the whole list in pieces, both ways."""

import contextlib
import random
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from modelkeeper.errors import UnknownModel
from modelkeeper.zoo.catalog import totals
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.database.rows import record_row
from modelkeeper.zoo.database.schema import models
from modelkeeper.zoo.records import EVICTED, STATES, STORED, Filter, Record, Viewer
from modelkeeper.zoo.restriction import Restriction
from tests.helpers.backends import empty_database
from tests.zoo.catalog.test_catalog import record

MODELS, SIZE = 47, 10
ORDERS = ("created", "value", "name", "hits", "similarity", "lower_is_better")


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def catalog(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """Models of which many have the same of everything, and some no score."""
    draw = random.Random(0)

    def some() -> Record:
        return record(
            name=draw.choice(["net", "Net", "ä", "net%", "z" * 200]),
            task=draw.choice(["t", "u"]),
            data=draw.choice(["d", "e"]),
            value=draw.choice([None, 0.1, 0.25, 1 / 3]),
            lower_is_better=draw.random() < 0.3,
            similarity=draw.choice([None, 0.5]),
            created=draw.choice([1.7e9, 1.7e9 + 1 / 3]),
            hits=draw.randrange(3),
            bytes=draw.randrange(3),
            owner_id=draw.choice(["ann", "bob"]),
            visibility=draw.choice(["public", "private"]),
            state=draw.choice([*STORED, EVICTED]),
        )

    with contextlib.ExitStack() as stack:
        place = f"sqlite:///{tmp_path_factory.mktemp('paging') / 'catalog.db'}"
        if request.param == "postgresql":
            place = stack.enter_context(empty_database(request.getfixturevalue("postgres")))
        opened = Catalog(place)
        with opened.database.writing() as connection:
            rows = [record_row(some()) | {"changed": 0} for _ in range(MODELS)]
            connection.execute(sa.insert(models), rows)
            totals.count_anew(connection)
        yield opened
        opened.close()


FILTERS = (
    Filter(),
    Filter(viewer=Viewer("ann")),
    Filter(viewer=Viewer("", all=True), states=(EVICTED,)),
    Filter(states=STATES, task="t"),
    Filter(task="t", restrictions=(Restriction(),)),
    Filter(data="d", task="u"),
    Filter(text="et", least_value=0.2),
    Filter(task="no such task"),
)


@pytest.mark.parametrize("order", [sign + name for name in ORDERS for sign in ("", "-")])
def test_pages_are_the_list_in_pieces(catalog: Catalog, order: str) -> None:
    """Law: pages one after another, forwards and backwards, are what `find` lists."""
    for wanted in FILTERS[:4]:
        listed = [each.id for each in catalog.find(wanted, order=order)]
        forwards: list[str] = []
        page = catalog.page(wanted, order=order, limit=SIZE)
        while True:
            forwards += [each.id for each in page.records]
            if not page.more:
                break
            assert len(page.records) == SIZE
            page = catalog.page(wanted, order=order, limit=SIZE, after=forwards[-1])
        assert forwards == listed
        backwards: list[str] = []
        page = catalog.page(wanted, order=order, limit=SIZE, last=True)
        while True:
            backwards[:0] = [each.id for each in page.records]
            if not page.more:
                break
            page = catalog.page(wanted, order=order, limit=SIZE, before=backwards[0])
        assert backwards == listed


def test_the_best_come_first_and_what_has_no_score_last(catalog: Catalog) -> None:
    def merit(each: Record) -> float:
        assert each.value is not None
        return -each.value if each.lower_is_better else each.value

    for order, falling in (("-value", True), ("value", False)):
        listed = catalog.find(Filter(), order=order)
        scored = [merit(each) for each in listed if each.value is not None]
        assert scored == sorted(scored, reverse=falling)
        assert all(each.value is None for each in listed[len(scored) :])
        assert 0 < len(scored) < len(listed)


@pytest.mark.parametrize("wanted", FILTERS)
def test_as_many_are_counted_as_are_listed(catalog: Catalog, wanted: Filter) -> None:
    assert catalog.count(wanted) == len(catalog.find(wanted))


def test_whoever_sees_all_counts_no_rows(catalog: Catalog) -> None:
    with catalog.database.reading() as connection:
        told = [totals.counted(connection, wanted) is not None for wanted in FILTERS]
    assert told == [True, False, True, False, True, True, False, True]


def test_a_page_begins_at_models_that_may_be_seen_alone(catalog: Catalog) -> None:
    """What stands on either side of a hidden model would tell what it is like."""
    secret = next(each for each in catalog.find(Filter()) if each.visibility == "private")
    other = Viewer("bob" if secret.owner_id == "ann" else "ann")
    for after, before in ((secret.id, ""), ("", secret.id), ("0" * 16, "")):
        with pytest.raises(UnknownModel):
            catalog.page(Filter(viewer=other), order="-value", limit=SIZE, after=after, before=before)
