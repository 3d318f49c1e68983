"""Which models pass a restriction: by who bears a name now, by trusted keys, by licences?"""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import InvalidMeta, InvalidSetting, UnknownModel
from modelkeeper.meta import Query, narrowed, read_query
from modelkeeper.settings import Settings
from modelkeeper.zoo.database.schema import keys
from modelkeeper.zoo.records import Filter, Record
from modelkeeper.zoo.restriction import Restriction
from tests.helpers import zoos

GRAPH = zoos.net(8, 16)
KEY = "5" * 64


@pytest.fixture
def zoo() -> Iterator[LocalCoordinator]:
    opened = LocalCoordinator(Settings(home=":memory:", threads=1), user="ada")
    yield opened
    opened.close()


def add(zoo: LocalCoordinator, name: str, owner: str, owner_id: str = "", **fields: Any) -> Record:
    """A model; `fields` are set as whoever signs or licenses it would."""
    said = zoos.told(name=name, accuracy=0.9)
    weights = zoos.weights(GRAPH, zoo.count()).items()
    record = zoo.register(GRAPH, said, weights, owner=owner, owner_id=owner_id).record
    if fields:
        zoo.zoo.catalog.update(record.id, **fields)
    return record


def passing(zoo: LocalCoordinator, **said: Any) -> set[str]:
    wanted = Filter(restrictions=(Restriction(**said),))
    found = {record.name for record in zoo.models(wanted)}
    assert zoo.count(wanted) == len(found)
    return found


def test_a_name_is_who_bears_it_now(zoo: LocalCoordinator) -> None:
    add(zoo, "before", "ada")  # when there were no users
    assert passing(zoo, owners=("ada",)) == {"before"}
    first = zoo.accounts.add_user("ada")
    add(zoo, "first", "ada", first.id)
    assert passing(zoo, owners=("ada",)) == {"first"}
    zoo.accounts.remove_user("ada")
    second = zoo.accounts.add_user("ada")
    add(zoo, "second", "ada", second.id)
    assert passing(zoo, owners=("ada",)) == {"second"}
    assert passing(zoo, owners=(first.id,)) == {"first"}
    assert passing(zoo, owners=("ada", first.id)) == {"first", "second"}
    assert passing(zoo, owners=("",)) == passing(zoo, owners=("bob",)) == set()


def test_signatures_count_while_their_key_is_trusted(zoo: LocalCoordinator) -> None:
    add(zoo, "signed", "ada", signer=KEY)
    add(zoo, "plain", "ada")
    assert passing(zoo, signed=True) == set()
    with zoo.zoo.catalog.database.writing() as connection:
        row = {"id": KEY, "public": "0" * 64, "name": "ada's laptop", "created": time.time(), "revoked": None}
        connection.execute(keys.insert(), row)
    assert passing(zoo, signed=True) == {"signed"}
    answer = zoo.query(GRAPH, Query(signed=True)).answer
    assert answer.claims[0]["signed_by"] == "ada's laptop"
    assert "signed by ada's laptop" in str(answer)
    with zoo.zoo.catalog.database.writing() as connection:
        connection.execute(keys.update().values(revoked=time.time()))
    assert passing(zoo, signed=True) == set()
    assert "signed by a key that nobody trusts" in str(zoo.query(GRAPH, Query(parents=("signed",))).answer)


def test_licences_do_not_tell_case_apart_and_none_is_none(zoo: LocalCoordinator) -> None:
    add(zoo, "free", "ada", licence="Apache-2.0")
    add(zoo, "other", "ada", licence="MIT")
    add(zoo, "none", "ada")
    assert passing(zoo, licences=("apache-2.0",)) == {"free"}
    assert passing(zoo, licences=("MIT", "Apache-2.0")) == {"free", "other"}
    assert passing(zoo) == {"free", "other", "none"}
    assert "licence Apache-2.0" in str(zoo.query(GRAPH, Query(licences=("Apache-2.0",))).answer)


def test_a_query_can_ask_for_less_than_its_zoo_allows_never_for_more() -> None:
    settings = Settings.read({"MODELKEEPER_OWNERS": "ada, bob"}, home=":memory:", threads=1)
    assert settings.owners == ("ada", "bob")
    zoo = LocalCoordinator(settings, user="ada")
    ours, theirs = add(zoo, "ours", "bob"), add(zoo, "theirs", "mallory")
    assert zoo.query(GRAPH, Query(parents=(theirs.id,))).answer.parent == ours.id
    answer = zoo.query(GRAPH, Query(owners=("mallory",))).answer
    assert answer.cold
    assert answer.reason.startswith("only models of ada or bob; of mallory may lend")
    with pytest.raises(UnknownModel):
        zoo.lend(GRAPH, Query(), [theirs.id])
    assert zoo.lend(GRAPH, Query(), [ours.id]).answer.parent == ours.id
    zoo.close()


def test_what_a_client_allows_narrows_its_queries() -> None:
    allowed = Restriction(owners=("ada", "bob"), signed=True)
    assert narrowed(Query(), allowed) == Query(owners=("ada", "bob"), signed=True)
    assert narrowed(Query(owners=("bob", "eve")), allowed).owners == ("bob",)
    assert narrowed(Query(licences=("MIT",)), allowed).licences == ("MIT",)
    with pytest.raises(InvalidMeta, match=r"owners cannot be .*eve.*allow only ada, bob"):
        narrowed(Query(owners=("eve",)), allowed)


def test_what_cannot_be_so_is_told() -> None:
    asked = read_query({"owners": "ada", "projects": ["v"], "signed": True, "licences": ["MIT"]})
    assert Restriction.of(asked) == Restriction(
        owners=("ada",), projects=("v",), signed=True, licences=("MIT",)
    )
    assert not Restriction.of(Query())
    for wrong in ({"signed": "yes"}, {"owners": 3}, {"licences": [""]}):
        with pytest.raises(InvalidMeta):
            read_query(wrong)
    for setting in ({"owners": 3}, {"licences": [3]}):
        with pytest.raises(InvalidSetting):
            Settings(home=":memory:", **setting)


def test_models_that_are_given_are_sealed_and_logged(zoo: LocalCoordinator) -> None:
    accounts = zoo.accounts
    ada, bob = accounts.add_user("ada"), accounts.add_user("bob")
    record = add(zoo, "net", "ada", ada.id)
    accounts.remove_user("ada")
    with pytest.raises(InvalidSetting, match=ada.id):  # nobody is called so; it says who was
        accounts.give("ada", "bob")
    assert accounts.give(ada.id, "bob") == 1
    given = zoo.show("bob/net")
    assert (given.id, given.owner, given.owner_id) == (record.id, "bob", bob.id)
    assert zoo.zoo.catalog.damaged_records() == []
    events = {event.action: event for event in zoo.log(limit=9)}
    assert events["given"].model == record.id
    assert events["administered"].user == events["given"].user == "ada"
    assert f"from {ada.id} to bob ({bob.id})" in events["given"].detail
    with pytest.raises(InvalidSetting, match="there is none"):
        accounts.give("bob", "nobody")
