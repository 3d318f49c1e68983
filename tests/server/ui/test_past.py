"""What came of a model, a page at a time: every child and loan is on one page, and on one alone."""

from collections.abc import Iterator
from contextlib import closing
from urllib.parse import parse_qs, urlsplit

import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.meta import Query
from modelkeeper.server.ui.past import CHILDREN, LOANS, SIZE, past_of
from modelkeeper.settings import Settings
from modelkeeper.zoo.records import Record, Viewer
from tests.helpers.zoos import DATA, TASK, net, register

ROOT = Viewer("", all=True)
MANY = 2 * SIZE + 3


@pytest.fixture(scope="module")
def zoo() -> Iterator[tuple[LocalCoordinator, Record]]:
    settings = Settings(home=":memory:", minimum_peers=10**6)
    with closing(LocalCoordinator(settings)) as coordinator:
        parent = register(coordinator, net(8, 16), "parent")
        for number in range(MANY):
            coordinator.query(net(8, 20), Query(data=DATA, task=TASK), viewer=Viewer("a", name=f"u{number}"))
        for number in range(MANY):
            register(coordinator, net(8, 24), f"child-{number}", parent=parent.id)
        yield coordinator, parent


def test_pages_lead_from_the_newest_to_the_oldest(zoo: tuple[LocalCoordinator, Record]) -> None:
    coordinator, parent = zoo
    for what in (CHILDREN, LOANS):
        seen: list[str] = []
        address = ""
        for page in range(3):
            asked = {name: value for name, [value] in parse_qs(urlsplit(address).query).items()}
            past = past_of(coordinator, parent, ROOT, asked)
            seen += [str(getattr(one, "name", "") or getattr(one, "user", "")) for one in getattr(past, what)]
            assert bool(past.newest[what]) is (page > 0)
            address = past.older[what]
            assert address.endswith(f"#{what}") is (page < 2)
        made = "child-" if what == CHILDREN else "u"
        assert seen == [f"{made}{number}" for number in reversed(range(MANY))]


def test_both_turn_their_pages_apart(zoo: tuple[LocalCoordinator, Record]) -> None:
    coordinator, parent = zoo
    first = past_of(coordinator, parent, ROOT, {})
    at = str(first.loans[4].number)
    second = past_of(coordinator, parent, ROOT, {LOANS: at, CHILDREN: "<b>"})
    assert second.loans[0] == first.loans[5]
    assert second.children == first.children  # an address that is none
    assert f"loans={at}" in second.older[CHILDREN]
    assert second.newest[LOANS] == f"/ui/models/{parent.id}?#loans"
    assert not past_of(coordinator, parent, ROOT, {CHILDREN: "0" * 16}).children
