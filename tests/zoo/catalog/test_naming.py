"""Names belong to owners: a bare one is mine first, and a look-alike is shown as what it is."""

from collections.abc import Iterator
from typing import Any

import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import InvalidMeta, InvalidSetting, UnknownModel
from modelkeeper.meta import Query
from modelkeeper.settings import Settings
from modelkeeper.zoo.records import Record, Viewer
from tests.helpers import zoos

GRAPH = zoos.net(8, 16)


@pytest.fixture
def zoo() -> Iterator[LocalCoordinator]:
    opened = LocalCoordinator(Settings(home=":memory:", threads=1), user="ada")
    yield opened
    opened.close()


def add(zoo: LocalCoordinator, name: str, owner: str, accuracy: float = 0.9, **more: Any) -> Record:
    ids = {key: more.pop(key) for key in ("owner_id", "project_id") if key in more}
    said = zoos.told(accuracy=accuracy, name=name, **more)
    seed = zoo.count()
    return zoo.register(GRAPH, said, zoos.weights(GRAPH, seed).items(), owner=owner, **ids).record


def test_a_bare_name_is_mine_before_it_is_anothers(zoo: LocalCoordinator) -> None:
    mine = add(zoo, "resnet20", "ada")
    theirs = add(zoo, "resnet20", "mallory", 1.0)
    assert zoo.show("resnet20").id == mine.id
    assert zoo.show("mallory/resnet20").id == theirs.id
    assert zoo.show("ada/resnet20").id == mine.id
    (note,) = zoo.show("resnet20").notes
    assert (
        note
        == f"'resnet20' is ada/resnet20 ({mine.id}), yours; there are also mallory/resnet20 ({theirs.id})"
    )
    assert zoo.show("ada/resnet20").notes == ()
    other = add(zoo, "vgg", "mallory")
    assert zoo.show("vgg").notes == (f"'vgg' is mallory/vgg ({other.id}), of another user",)
    for act in (zoo.pin, zoo.remove):
        assert act("resnet20").id == mine.id
    assert zoo.show("resnet20").id == theirs.id
    assert (zoo.show("ada/resnet20").id, zoo.show("ada/resnet20").state) == (mine.id, "removed")
    with pytest.raises(UnknownModel):
        zoo.pin("ada/resnet20")


def test_my_project_comes_before_others_and_identities_are_ids(zoo: LocalCoordinator) -> None:
    accounts = zoo.accounts
    ada, bob, eve = (accounts.add_user(name) for name in ("ada", "bob", "eve"))
    accounts.add_project("vision", ["ada", "bob"])
    vision = accounts.projects()[0].id
    ours = add(zoo, "net", "bob", project="vision", owner_id=bob.id, project_id=vision)
    theirs = add(zoo, "net", "eve", 1.0, owner_id=eve.id)
    asker = Viewer(ada.id, (vision,), "ada")
    assert zoo.show("net", asker).id == ours.id
    assert "of your project" in zoo.show("net", asker).notes[0]
    assert zoo.show("vision/net", asker).id == zoo.show(f"{bob.id}/net", asker).id == ours.id
    assert zoo.show("net", Viewer(ada.id, (), "ada")).id == theirs.id  # the other cannot be seen
    accounts.remove_user("eve")
    accounts.add_user("eve")
    with pytest.raises(UnknownModel):  # the new one has none
        zoo.show("eve/net", asker)
    assert zoo.show(f"{eve.id}/net", asker).id == theirs.id


def test_nobody_names_a_model_as_if_it_were_anothers(zoo: LocalCoordinator) -> None:
    zoo.accounts.add_user("ada")
    zoo.accounts.add_project("vision")
    for name in ("ada/net", "Ada/net", "vision/x/y"):
        with pytest.raises(InvalidMeta, match="would pass for a model of"):
            add(zoo, name, "mallory")
    for name in ("\u0430da/net", "ada\u2215net", "f" * 16):
        with pytest.raises(InvalidMeta, match="name cannot be"):
            add(zoo, name, "mallory")
    free = add(zoo, "timm/resnet18", "mallory")
    assert zoo.show("timm/resnet18").id == free.id
    assert add(zoo, "ada/net", "ada").name == "ada/net"


def test_a_name_with_a_slash_never_hides_an_owners(zoo: LocalCoordinator) -> None:
    """Where there are no users nobody is refused; an owner's own model is still what the name means."""
    fake = add(zoo, "bob/net", "mallory")
    assert zoo.show("bob/net").id == fake.id
    real = add(zoo, "net", "bob")
    assert zoo.show("bob/net").id == real.id
    assert zoo.query(GRAPH, Query(parents=("bob/net",))).answer.parent == real.id


def test_a_name_that_looks_like_anothers_is_shown_as_what_it_is(zoo: LocalCoordinator) -> None:
    add(zoo, "resnet20", "ada")
    fake = add(zoo, "ResNet2O", "mallory", 1.0)
    mine = add(zoo, "RESNET20", "ada")
    said = "looks like ada's resnet20, but is mallory's ResNet2O"
    assert zoo.show(fake.id).notes == (said,)
    assert zoo.show(mine.id).notes == ()
    assert {record.id: record.notes for record in zoo.models() if record.notes} == {fake.id: (said,)}
    answer = zoo.query(GRAPH, Query(parents=(fake.id,))).answer
    assert said in answer.warnings
    assert said in str(answer)
    assert zoo.query(GRAPH, Query(parents=(fake.id,)), viewer=Viewer("x")).answer.parent == fake.id


def test_what_cannot_be_seen_is_not_told_of(zoo: LocalCoordinator) -> None:
    add(zoo, "secret", "ada", visibility="private", owner_id="a" * 16)
    like = add(zoo, "SECRET", "mallory", owner_id="b" * 16)
    eve = Viewer("c" * 16)
    assert zoo.show("SECRET", eve).notes == (f"'SECRET' is mallory/SECRET ({like.id}), of another user",)
    with pytest.raises(UnknownModel):
        zoo.show("secret", eve)


def test_parents_and_exclusions_of_a_query(zoo: LocalCoordinator) -> None:
    mine, theirs = add(zoo, "net", "ada", 0.8), add(zoo, "net", "mallory", 0.99)
    assert zoo.query(GRAPH, Query()).answer.parent == theirs.id

    def parent(**asked: Any) -> str | None:
        return zoo.query(GRAPH, Query(**asked)).answer.parent

    assert parent(parents=("net",)) == parent(parents=("ada/net",)) == mine.id
    assert parent(parents=("mallory/net",)) == parent(exclude=("ada/net",)) == theirs.id
    assert parent(exclude=("net",)) is None  # a bare name is everybody's
    warnings = zoo.query(GRAPH, Query(parents=("net",))).answer.warnings
    assert any("is ada/net" in text and theirs.id in text for text in warnings)
    child = zoo.register(
        GRAPH, zoos.told(name="child", parent="net"), zoos.weights(GRAPH, 9).items(), owner="ada"
    )
    assert child.record.parent == mine.id


def test_a_model_is_not_preferred_for_being_named_like_an_id(zoo: LocalCoordinator) -> None:
    import msgspec

    mine = add(zoo, "net", "ada", 0.8)
    fake = msgspec.structs.replace(zoos.told(name="x", accuracy=0.99), name=mine.id)  # as an older zoo has it
    zoo.register(GRAPH, fake, zoos.weights(GRAPH, 5).items(), owner="mallory")
    assert zoo.show(mine.id).id == mine.id
    assert zoo.query(GRAPH, Query(exclude=(mine.id,))).answer.parent != mine.id


@pytest.mark.parametrize("name", ["ADA", "ad\u0430", "\u0430d\u0430", "a\u0301da", "\uff41da", "ada\u3164"])
def test_users_and_projects_that_look_alike_are_refused(zoo: LocalCoordinator, name: str) -> None:
    zoo.accounts.add_user("ada")
    for adding in (zoo.accounts.add_user, zoo.accounts.add_project):
        with pytest.raises(InvalidSetting) as refused:
            adding(name)
        assert str(refused.value).isascii()
    assert [user.name for user in zoo.accounts.users()] == ["ada"]
    assert zoo.accounts.projects() == []


def test_a_slash_is_in_no_user_name(zoo: LocalCoordinator) -> None:
    with pytest.raises(InvalidSetting, match="slash"):
        zoo.accounts.add_user("a/b")
