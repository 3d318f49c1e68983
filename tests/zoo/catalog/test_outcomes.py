"""Outcomes: what came of starts, who may say so, and what it does to peers and to what is kept."""

from collections.abc import Iterator

import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import InvalidMeta
from modelkeeper.policy.credit import RACED, TRAINED, Outcome
from modelkeeper.settings import Settings
from modelkeeper.zoo.catalog.outcomes import MOST
from tests.helpers.zoos import DATA, TASK, net, register


@pytest.fixture
def keeper() -> Iterator[LocalCoordinator]:
    coordinator = LocalCoordinator(Settings(home=":memory:", minimum_peers=3))
    yield coordinator
    coordinator.close()


def test_of_many_alike_the_newest_are_kept(keeper: LocalCoordinator) -> None:
    record = register(keeper, net(), owner="eve")
    for number in range(MOST + 5):
        keeper.zoo.outcomes.add(
            Outcome(parent=record.id, user="ann", kind=RACED, gain=1.0 if number < 5 else -1.0)
        )
    credit = keeper.credit(record)
    assert credit.factor == pytest.approx(1 / (1 + MOST / (MOST + 1)))
    assert (credit.gained, credit.lost) == (0, 1)


def test_what_was_refuted_is_no_peer(keeper: LocalCoordinator) -> None:
    for name, value in (("a", 0.8), ("b", 0.85)):
        register(keeper, net(), name, value, owner=name)
    loud = register(keeper, net(), "loud", 1.0, owner="eve")
    group = (TASK, DATA, "accuracy")
    assert sorted(keeper.zoo.follower.followed().columns.peers(group)[0]) == [0.8, 0.85, 1.0]
    for user in ("ann", "bob"):
        keeper.tell(loud.id, RACED, -0.5, user=user)
    assert keeper.credit(loud).refuted
    assert sorted(keeper.zoo.follower.followed().columns.peers(group)[0]) == [0.8, 0.85]


def test_children_speak_for_their_parents_but_not_for_their_own_owner(keeper: LocalCoordinator) -> None:
    for number, owner in enumerate("abcd"):
        register(keeper, net(), owner, 0.9 + 0.001 * number, owner=owner)
    lender = register(keeper, net(), "lender", 0.91, owner="eve")

    def child(owner: str, value: float) -> None:  # a zoo without users: whoever registers is believed
        graph, name = net(), f"child of {owner} {value}"
        from tests.helpers.zoos import told, weights

        tensors = weights(graph, len(name)).items()
        keeper.register(graph, told(name, value, parent=lender.id), tensors, owner=owner)

    child("eve", 0.99)
    assert keeper.credit(lender).factor == 1
    child("fred", 0.89)
    child("gus", 0.99)
    credit = keeper.credit(lender)
    assert (credit.gained, credit.lost, credit.held) == (1, 1, 0)
    assert credit.factor < 1


def test_with_users_only_who_was_lent_a_model_can_have_gained_by_it(keeper: LocalCoordinator) -> None:
    for number, owner in enumerate("abcd"):
        register(keeper, net(), owner, 0.9 + 0.001 * number, owner=owner)
    lender = register(keeper, net(), "lender", 0.91, owner="eve")
    ann = keeper.accounts.add_user("ann")
    assert not keeper.zoo.outcomes.was_lent(lender.id, ann.id)
    register(keeper, net(), "bad", 0.88, owner="ann", owner_id=ann.id, parent=lender.id)
    assert keeper.credit(lender).factor == 1
    from modelkeeper.meta import Query
    from modelkeeper.zoo.records import Viewer

    viewer = Viewer(ann.id, (), ann.name, ann.created)
    keeper.query(net(), Query(data=DATA, task=TASK, parents=(lender.id,)), viewer=viewer)
    assert keeper.zoo.outcomes.was_lent(lender.id, ann.id)
    assert not keeper.zoo.outcomes.was_lent(lender.id, "0" * 16)
    register(keeper, net(), "bad too", 0.88, owner="ann", owner_id=ann.id, parent=lender.id)
    assert keeper.credit(lender).lost == 1


def test_what_cannot_be_said(keeper: LocalCoordinator) -> None:
    record = register(keeper, net(), owner="eve")
    for kind, gain in ((TRAINED, 0.1), ("praised", 0.1), (RACED, 2.0), (RACED, float("nan"))):
        with pytest.raises(InvalidMeta):
            keeper.tell(record.id, kind, gain, user="ann")
    assert keeper.tell(record.id, RACED, -1.0, user="eve").factor == 1  # of her own model
