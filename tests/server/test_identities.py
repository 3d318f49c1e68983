"""A name that is used again inherits nothing; names, restrictions and gifts go by identities, over HTTP."""

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.coordinator.wire import UploadRequest, UploadState
from modelkeeper.errors import InvalidMeta, InvalidSetting, NotAllowed, NotAuthenticated, UnknownModel
from modelkeeper.graph import to_json
from modelkeeper.meta import Query
from modelkeeper.server.guard import REMEMBERED
from modelkeeper.zoo.records import Filter
from modelkeeper.zoo.restriction import Restriction
from tests.helpers.service import Team, network, team, tensors, told

GRAPH = network()
ASKED = Query(data="digits", task="classification", minimum_similarity=0.3)  # whatever it is worth


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Team]:
    with team(tmp_path) as found:
        yield found


def announced(who: RemoteCoordinator, identity: str) -> UploadState:
    size = len(to_json(GRAPH))
    data = sum(array.nbytes for array in tensors(GRAPH).values())
    request = UploadRequest(
        id=identity,
        graph=msgspec.Raw(to_json(GRAPH)),
        registration=told(),
        size=data + size,
        checksum="0" * 64,
    )
    return who._calls.ask("POST", "/uploads", UploadState, body=msgspec.json.encode(request))


def test_a_name_that_is_used_again_inherits_nothing(keeper: Team) -> None:
    accounts = keeper.accounts
    ada, eve = keeper.join("ada"), keeper.join("eve")
    old = next(user for user in accounts.users() if user.name == "ada")
    accounts.add_project("vision", ["ada"])
    time.sleep(REMEMBERED + 0.2)  # for so long a service may remember who belongs where
    private = ada.register(GRAPH, told("hidden", visibility="private"), tensors(GRAPH).items()).record
    ours = ada.register(GRAPH, told("ours", project="vision"), tensors(GRAPH, 1).items()).record
    public = ada.register(GRAPH, told("net", visibility="public"), tensors(GRAPH, 2).items()).record
    assert (private.owner_id, ours.visibility) == (old.id, "project")
    announced(ada, "0" * 15 + "7")
    assert accounts.remove_user("ada")
    assert accounts.remove_project("vision")
    new = keeper.join("ada")
    accounts.add_project("vision", ["ada", "eve"])
    time.sleep(REMEMBERED + 0.2)
    with pytest.raises(NotAuthenticated):  # no tokens
        ada.stats()
    for record in (private, ours):  # no models, no membership
        for who in (new, eve):
            with pytest.raises(UnknownModel):
                who.show(record.id)
    assert [record.id for record in new.models()] == [public.id]
    with pytest.raises(NotAllowed, match="belongs to"):  # no rights
        new.remove(public.id)
    with pytest.raises(UnknownModel):  # no uploads
        new._calls.ask("GET", f"/uploads/{'0' * 15}7", UploadState)
    assert {event.model for event in new.log()} == {public.id}  # no events of what it may not see
    assert new.models(Filter(restrictions=(Restriction(owners=("ada",)),))) == []
    assert [each.id for each in new.models(Filter(restrictions=(Restriction(owners=(old.id,)),)))] == [
        public.id
    ]
    with pytest.raises(UnknownModel):
        new.show("ada/net")
    assert accounts.give(old.id, "ada") == 3
    assert {record.id for record in new.models()} == {private.id, ours.id, public.id}
    assert new.show("ada/net").owner_id != old.id
    assert new.remove(public.id).id == public.id


def test_names_restrictions_and_claims_over_http(keeper: Team) -> None:
    ada, mallory = keeper.join("ada"), keeper.join("mallory")
    mine = ada.register(GRAPH, told("net", 0.97), tensors(GRAPH).items()).record
    theirs = mallory.register(GRAPH, told("net", 0.99), tensors(GRAPH, 1).items()).record
    fake = mallory.register(GRAPH, told("NET", 0.98), tensors(GRAPH, 2).items()).record
    assert ada.show("net").id == mine.id
    assert mallory.show("net").id == theirs.id
    assert ada.show("mallory/net").id == theirs.id
    assert theirs.id in ada.show("net").notes[0]
    assert any("looks like ada's net, but is mallory's NET" in note for note in ada.show(fake.id).notes)
    assert ada.query(GRAPH, ASKED).answer.parent == theirs.id
    only = msgspec.structs.replace(ASKED, owners=("ada",))
    answer = ada.query(GRAPH, only).answer
    assert (answer.parent, answer.restricted) == (mine.id, "of ada")
    (claim,) = answer.claims
    assert claim["owner"] == "ada"
    assert claim["quality"] == "accuracy 0.97 on digits"
    assert "ada claims accuracy 0.97 on digits; not signed, no licence is given" in str(answer)
    named = msgspec.structs.replace(ASKED, parents=("net",))
    assert ada.query(GRAPH, named).answer.parent == mine.id
    assert any("is ada/net" in warning for warning in ada.query(GRAPH, named).answer.warnings)
    for nobody in (
        {"owners": ("nobody",)},
        {"projects": ("none",)},
        {"signed": True},
        {"licences": ("MIT",)},
    ):
        refused = ada.query(GRAPH, msgspec.structs.replace(ASKED, **nobody)).answer
        assert refused.cold
        assert refused.reason.startswith("only models ")
    child = told("child", parent="net")
    assert ada.register(GRAPH, child, tensors(GRAPH, 3).items()).record.parent == mine.id
    assert ada.remove("net").id == mine.id


def test_the_settings_of_a_client_hold_for_what_it_asks(keeper: Team, tmp_path: Path) -> None:
    keeper.join("mallory").register(GRAPH, told("net"), tensors(GRAPH).items())
    allowed = Restriction(owners=("ada", "bob"))
    ada = RemoteCoordinator(keeper.url, token=keeper.token("ada"), spool=tmp_path / "s", allowed=allowed)
    assert ada.query(GRAPH, ASKED).answer.cold
    with pytest.raises(InvalidMeta, match="allow only ada, bob"):
        ada.query(GRAPH, msgspec.structs.replace(ASKED, owners=("mallory",)))
    ada.close()


def test_what_administrators_do_is_logged_for_administrators(keeper: Team) -> None:
    admin, ada = keeper.join("root", "admin"), keeper.join("ada")
    said = [event.detail for event in admin.log(action="administered")]
    assert any(text.startswith("user ada (") for text in said)
    assert any("of scope write made for user ada" in text for text in said)
    assert ada.log(action="administered") == []
    with pytest.raises(InvalidSetting, match="user cannot be 'nobody': there is none"):
        keeper.accounts.add_project("newp", ["ada", "nobody"])
    assert keeper.accounts.projects() == []
