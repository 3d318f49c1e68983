"""What stored models are worth by the catalog's columns is what their records say, one by one."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from modelkeeper.policy.credit import KINDS, Outcome
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.catalog.outcomes import Outcomes
from modelkeeper.zoo.records import ACTIVE, BARRED, REMOVED, Filter
from modelkeeper.zoo.valuation import items
from tests.helpers.slow_retention import as_items, valued_slowly
from tests.zoo.catalog.test_catalog import add

NOW = 1.8e9


@pytest.fixture(params=["sqlite", "postgresql"])
def catalog(request: pytest.FixtureRequest) -> Iterator[Catalog]:
    opened = Catalog("sqlite://" if request.param == "sqlite" else request.getfixturevalue("postgres_url"))
    yield opened
    opened.close()


def test_columns_say_what_records_say(catalog: Catalog) -> None:
    draw = random.Random(4)
    ids = [f"{draw.getrandbits(64):016x}" for _ in range(60)]
    for place, identity in enumerate(ids):
        owner = draw.choice(["ann", "bob", "Eve"])
        given: dict[str, Any] = {
            "owner": owner, "owner_id": draw.choice(["", owner.lower()]), "hits": draw.choice([0, 0, 3]),
            "bytes": draw.randrange(10**12), "value": draw.choice([None, draw.random(), 0.5]),
            "metric": draw.choice(["accuracy", "loss"]), "lower_is_better": draw.random() < 0.3,
            "created": NOW - draw.random() * 1e7, "last_used": NOW + 5 - draw.random() * 1e6,
            "twin": draw.choice(["", *ids[: place + 1]]), "twin_similarity": draw.random(),
            "pinned": draw.random() < 0.1, "task": draw.choice("tu"),
        }  # fmt: skip
        add(catalog, id=identity, state=draw.choice([ACTIVE, ACTIVE, BARRED]), **given)
    catalog.retire(dict.fromkeys(ids[:5], "why"), REMOVED)
    outcomes = Outcomes(catalog)
    for _ in range(80):
        user, kind = draw.choice(["ann", "bob", "cat"]), draw.choice(KINDS)
        gain = draw.uniform(-1, 0.5)
        outcomes.add(Outcome(parent=draw.choice(ids[:20]), gain=gain, user=user, kind=kind))
    records = catalog.find(Filter())
    believed = outcomes.credits(records)
    assert any(credit.refuted for credit in believed.values())
    stock = catalog.stock()
    assert stock.ids == sorted(record.id for record in records)
    found, expected = items(stock, NOW, outcomes.found()), as_items(valued_slowly(records, NOW, believed))
    for name in found.__struct_fields__:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)


def test_a_zoo_without_models_has_no_stock(catalog: Catalog) -> None:
    assert len(items(catalog.stock(), NOW, [])) == 0
