"""Users, projects and tokens, over every database: what must hold of them, and lists of them."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from modelkeeper.errors import AccountConflict, InvalidSetting, UnknownAccount
from modelkeeper.zoo.accounts.account_lists import Listed
from modelkeeper.zoo.accounts.accounts import Accounts
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.records import Event

HOSTILE = ("<script>alert(1)</script>".replace("/", "|"), "a%b_c", "'; DROP TABLE users; --", "Ömer ✓")


@pytest.fixture(params=["sqlite", "postgresql"])
def accounts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Accounts]:
    sqlite = request.param == "sqlite"
    place = f"sqlite:///{tmp_path / 'catalog.db'}" if sqlite else request.getfixturevalue("postgres_url")
    catalog = Catalog(place)
    yield Accounts(catalog, by="whoever has the machine")
    catalog.close()


def key(token: str) -> str:
    return token.split("_")[1]


def logged(accounts: Accounts) -> list[Event]:
    return accounts._catalog.log(limit=1000, action="administered")


def test_the_last_administrator_stays(accounts: Accounts) -> None:
    for name in ("root", "ada"):
        accounts.add_user(name)
    first, second = (accounts.add_token("root", "admin") for _ in range(2))
    accounts.add_token("ada", "write")
    late = accounts.add_token("ada", "admin", days=1e-9)  # is no administrator any more
    assert accounts.revoke(key(first))
    changes: list[Callable[[], object]] = [
        lambda: accounts.revoke(key(second)),
        lambda: accounts.remove_user("root"),
    ]
    for change in changes:
        with pytest.raises(
            AccountConflict, match=r"last valid token of an administrator\. Make another first"
        ):
            change()
    assert accounts.holder(second) is not None
    assert accounts.revoke(key(late))
    third = accounts.add_token("ada", "admin")
    assert accounts.remove_user("root")
    with pytest.raises(AccountConflict, match="user 'ada' holds the last"):
        accounts.remove_user("ada")
    assert accounts.holder(third) is not None


def test_of_two_administrators_who_remove_each_other_one_stays(accounts: Accounts) -> None:
    for name in ("one", "two"):
        accounts.add_user(name)
        accounts.add_token(name, "admin")
    refused: list[AccountConflict] = []
    together = threading.Barrier(2)

    def remove(name: str) -> None:
        together.wait()
        try:
            accounts.remove_user(name)
        except AccountConflict as problem:
            refused.append(problem)

    threads = [threading.Thread(target=remove, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 1
    assert [token.scope for token in accounts.tokens()] == ["admin"]


def test_a_token_ends_with_the_one_that_it_was_made_with(accounts: Accounts) -> None:
    accounts.add_user("ada")
    first = accounts.add_token("ada", "write", days=30)
    maker = accounts.holder(first)
    assert maker is not None
    short, long, endless = (
        accounts.add_token("ada", "read", days=days, maker=maker) for days in (1.0, 90.0, None)
    )
    known = {token.id: token for token in accounts.tokens()}
    assert known[key(short)].expires < known[key(first)].expires  # type: ignore[operator]
    for token in (long, endless):
        assert known[key(token)].expires == known[key(first)].expires
        assert known[key(token)].maker == key(first)
    session = accounts.sessions.begin(long) or ""
    assert accounts.sessions.holder(session) is not None
    assert accounts.revoke(key(short))
    assert accounts.holder(first) is not None
    assert accounts.revoke(key(first))
    assert [accounts.holder(token) for token in (first, long, endless)] == [None] * 3
    assert accounts.sessions.holder(session) is None
    assert logged(accounts)[0].data["with_it"] == 2
    with pytest.raises(AccountConflict, match="is gone"):
        accounts.add_token("ada", "read", maker=maker)
    assert accounts.tokens() == []


def test_who_is_new_is_nobody_who_is_there(accounts: Accounts) -> None:
    ada = accounts.add_user("ada", new=True, bytes=5)
    accounts.add_project("vision", new=True)
    with pytest.raises(AccountConflict, match="there is a user 'ada'"):
        accounts.add_user("ada", new=True, bytes=7)
    with pytest.raises(AccountConflict, match="there is a project 'vision'"):
        accounts.add_project("vision", new=True)
    assert accounts.set_quotas(ada.id).bytes == 5
    for what in (accounts.add_user, accounts.add_project):
        with pytest.raises(InvalidSetting, match="are an id"):
            what(ada.id)
    with pytest.raises(UnknownAccount, match="'bob'"):
        accounts.set_quotas("bob", bytes=1)
    for quotas in ({"bytes": -1}, {"rate": 0.0}, {"rate": float("nan")}, {"models": 2**62}):
        with pytest.raises(InvalidSetting, match="the quota of"):
            accounts.set_quotas("ada", **quotas)


def test_all_that_is_changed_is_logged_with_who_and_what(accounts: Accounts) -> None:
    """By whoever has the machine, at the first start, and by a user of a service, whose id is told, too."""
    token = accounts.add_first("root", "admin", note="made at the first start")
    holder = accounts.holder(token or "")
    assert holder is not None
    by_root = accounts.by(holder)
    by_root.add_user("ada", models=3)
    by_root.set_quotas("ada", models=3, bytes=None)  # changes nothing
    by_root.set_quotas("ada", models=None, rate=2.5)
    by_root.add_project("vision", ["ada"])
    by_root.leave("vision", "ada")
    made = by_root.add_token("ada", "read", note="laptop")
    by_root.revoke(key(made))
    by_root.remove_project("vision")
    by_root.remove_user("ada")
    events = list(reversed(logged(accounts)))
    changes = [event.data["change"] for event in events]
    assert changes == [
        *("added", "added", "changed", "added", "joined", "left", "added", "revoked", "removed", "removed")
    ]
    assert {event.user for event in events[1:]} == {"root"}
    assert {event.data["by"] for event in events[1:]} == {holder.user.id}
    assert (events[0].user, events[0].data.get("by")) == ("whoever has the machine", None)
    assert events[2].data["quotas"] == {"models": None, "rate": 2.5}
    assert (events[6].data["note"], events[6].data["scope"]) == ("laptop", "read")
    assert not [event for event in events if made.split("_", 2)[2] in str(event)]


def pages(ask: Callable[..., Listed[Any]], **asked: Any) -> list[Any]:
    """All items of a list, page by page."""
    found: list[Any] = []
    after = ""
    while True:
        page = ask(after=after, **asked)
        found += page.items
        after = page.next
        if not after:
            assert page.total == len(found)
            return found


def test_lists_go_on_where_one_ended(accounts: Accounts) -> None:
    names = [*HOSTILE, *(f"user {number}" for number in range(7))]
    for name in names:
        accounts.add_user(name)
        accounts.add_project(f"of {name}", [name])
    accounts.add_project("all", names)
    secrets = [accounts.add_token(name, "read") for name in names]
    lists, project = accounts.lists, accounts.project_id("all")
    for limit in (1, 3, len(names), 100):
        users = [usage.user.name for usage in pages(lists.users, limit=limit)]
        assert sorted(users) == sorted(names)
        assert len(pages(lists.projects, limit=limit)) == len(names) + 1
        assert [member.name for member in pages(partial(lists.members, project), limit=limit)] == users
        assert [token.id for token in pages(lists.tokens, limit=limit)] == [key(secret) for secret in secrets]
    assert [usage.user.name for usage in lists.users(limit=9, text="A%B_").items] == ["a%b_c"]
    assert [group.members for group in lists.projects(limit=9, text="of user 3").items] == [1]
    one = lists.users(limit=1, text="user 3").items[0]
    assert (one.scope, one.tokens, one.projects, one.sessions, one.models) == ("read", 1, 2, 0, 0)
    accounts.sessions.begin(secrets[names.index("user 3")])
    accounts.add_token("user 3", "metrics")
    accounts.add_token("user 3", "admin", days=1e-9)
    again = lists.user(one.user.id)
    assert (again.scope, again.tokens, again.sessions) == ("read", 2, 1)
    mine = lists.tokens(limit=9, user=one.user.id)
    assert (mine.total, len(mine.items), {token.user for token in mine.items}) == (3, 3, {"user 3"})
    with pytest.raises(InvalidSetting, match="after"):
        lists.tokens(limit=1, after="x")
    for ask in (lists.user, lists.project, lists.token):
        with pytest.raises(UnknownAccount):
            ask("0123456789abcdef")
