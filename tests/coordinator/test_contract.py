"""The contract of a coordinator: every test runs in process and over HTTP, with the same results."""

import inspect

import msgspec
import numpy as np
import pytest

from modelkeeper.coordinator import Coordinator
from modelkeeper.coordinator.base import ServedCoordinator, ServedLoan
from modelkeeper.coordinator.history import History
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.local_loan import LocalLoan
from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.coordinator.remote.loan import RemoteLoan
from modelkeeper.errors import InvalidMeta, InvalidWeights, ModelRefused, UnknownModel
from modelkeeper.meta import Query
from modelkeeper.policy.credit import Credit
from modelkeeper.warmstart.loan import Loan
from modelkeeper.zoo.records import Filter
from modelkeeper.zoo.restriction import Restriction
from tests.helpers.perceptrons import chain, computed, weights_of
from tests.helpers.service import network, tensors, told

ASKED = Query(data="digits", task="classification")


def test_a_registered_model_lends_its_weights(coordinator: Coordinator) -> None:
    graph = network()
    weights = tensors(graph)
    done = coordinator.register(graph, told("first"), weights.items(), owner="ada")
    assert (done.record.name, done.record.owner, done.admission.verdict) == ("first", "ada", "admitted")
    found = coordinator.query(graph, ASKED)
    assert (found.answer.parent, found.answer.similarity) == (done.record.id, 1.0)
    assert found.answer.framework == done.record.framework != ""
    lent = dict(found.weights())
    assert lent.keys() == weights.keys()
    for name, array in lent.items():
        np.testing.assert_array_equal(array, weights[name])
    assert coordinator.show("first").hits == 1


def test_a_wider_model_gets_gathered_weights(coordinator: Coordinator) -> None:
    graph = network(8)
    coordinator.register(graph, told(), tensors(graph).items())
    found = coordinator.query(network(12), ASKED)
    lent = dict(found.weights())
    assert found.answer.similarity is not None
    assert 0.3 < found.answer.similarity < 1
    assert {name: array.shape for name, array in lent.items()} == {
        name: tensor.shape for name, tensor in network(12).tensors.items() if name in lent
    }


def test_two_models_lend_side_by_side(coordinator: Coordinator) -> None:
    graphs = {"first": chain(8, 6), "second": chain(4, 8)}
    weights = {name: weights_of(graph, seed) for seed, (name, graph) in enumerate(graphs.items())}
    for name, graph in graphs.items():
        coordinator.register(graph, told(name, 0.9), weights[name].items())
    child = chain(13, 15)
    found = coordinator.query(child, msgspec.structs.replace(ASKED, most_parents=2))
    assert found.answer.exact
    assert {parent.name for parent in found.answer.parents} == graphs.keys()
    x = np.random.default_rng(0).normal(size=(5, 3))
    mean = (computed(weights["first"], x) + computed(weights["second"], x)) / 2
    for _ in range(2):
        lent = dict(found.weights())
        assert lent.keys() == child.tensors.keys()
        np.testing.assert_allclose(computed({name: lent[name] for name in child.tensors}, x), mean)
    with found.lender() as lender:
        assert lender is None  # several cannot be run as one
    assert [coordinator.show(name).hits for name in graphs] == [1, 1]
    alone = msgspec.structs.replace(ASKED, most_parents=1)
    assert len(coordinator.query(child, alone).answer.parents) == 1


def test_an_empty_zoo_is_a_cold_start(coordinator: Coordinator) -> None:
    found = coordinator.query(network(), ASKED)
    assert found.answer.cold
    assert dict(found.weights()) == {}


def test_a_dry_run_counts_nothing(coordinator: Coordinator) -> None:
    graph = network()
    coordinator.register(graph, told("net"), tensors(graph).items())
    found = coordinator.query(graph, ASKED, dry_run=True, runners_up=True)
    assert not found.answer.cold
    assert found.answer.dry_run
    assert dict(found.weights()) == {}
    assert coordinator.show("net").hits == 0


def test_the_same_model_sent_twice_is_registered_once(coordinator: Coordinator) -> None:
    graph, identity = network(), "0123456789abcdef"
    once = coordinator.register(graph, told(), tensors(graph).items(), model_id=identity)
    again = coordinator.register(graph, told(), tensors(graph).items(), model_id=identity)
    assert once.record.id == again.record.id == identity
    assert len(coordinator.models()) == 1


def test_weights_that_hold_nan_are_an_error(coordinator: Coordinator) -> None:
    graph = network()
    weights = tensors(graph)
    next(iter(weights.values())).flat[0] = np.nan
    with pytest.raises(InvalidWeights, match="NaN"):
        coordinator.register(graph, told(), weights.items())
    assert coordinator.models() == []


def test_missing_tensors_are_an_error(coordinator: Coordinator) -> None:
    graph = network()
    weights = tensors(graph)
    weights.popitem()
    with pytest.raises(InvalidWeights, match="missing"):
        coordinator.register(graph, told(), weights.items())


def test_an_outlier_is_refused(coordinator: Coordinator) -> None:
    graph = network()
    for number in range(5):
        coordinator.register(graph, told(f"net{number}", 0.9 + number / 1000), tensors(graph, number).items())
    with pytest.raises(ModelRefused, match="was not registered"):
        coordinator.register(graph, told("failed", 0.1), tensors(graph, 9).items())


def test_models_can_be_listed_shown_pinned_and_removed(coordinator: Coordinator) -> None:
    graph = network()
    first = coordinator.register(graph, told("a", tags=["x"]), tensors(graph).items(), owner="ada").record
    second = coordinator.register(
        graph, told("b/c d%", parent=first.id), tensors(graph, 1).items(), owner="bob"
    ).record
    bobs = Restriction(owners=("bob",))
    assert [record.id for record in coordinator.models()] == [second.id, first.id]
    assert [record.id for record in coordinator.models(order="created", limit=1)] == [first.id]
    assert [record.id for record in coordinator.models(Filter(tags=("x",)))] == [first.id]
    assert [record.id for record in coordinator.models(Filter(restrictions=(bobs,)))] == [second.id]
    assert (coordinator.count(), coordinator.count(Filter(restrictions=(bobs,)))) == (2, 1)
    assert first.id in coordinator.location(first)
    assert coordinator.show("b/c d%").id == second.id
    assert coordinator.show(second.id[:8]).id == second.id
    assert coordinator.graph(second) == graph
    tree = coordinator.tree("b/c d%")
    assert [record.id for record in tree.ancestors] == [first.id]
    assert [child.record.id for child in coordinator.tree(first.id).descendants] == [second.id]
    assert coordinator.pin("a").pinned
    assert coordinator.show("a").pinned
    assert not coordinator.pin("a", False).pinned
    assert coordinator.remove("a").id == first.id
    assert (coordinator.show("a").id, coordinator.show("a").state) == (first.id, "removed")
    stats = coordinator.stats()
    assert (stats["models"], stats["states"]) == (1, {"active": 1, "removed": 1})
    actions = [event.action for event in coordinator.log()]
    assert actions[0] == "removed"
    assert actions.count("registered") == 2
    assert [event.model for event in coordinator.log(action="removed")] == [first.id]
    assert coordinator.gc(grace=0).folders == ()


def test_a_model_may_have_several_parents(coordinator: Coordinator) -> None:
    graph = network()
    ids = [
        coordinator.register(graph, told(name), tensors(graph, seed).items()).record.id
        for seed, name in enumerate(("a", "b", "c"))
    ]
    both = told("child", parent=[ids[1], ids[0], ids[2], ids[1]])
    child = coordinator.register(graph, both, tensors(graph, 3).items()).record
    assert (child.parent, child.more_parents) == (ids[1], (ids[0], ids[2]))
    last = coordinator.register(graph, told("last", parent=(child.id, ids[0])), tensors(graph, 4).items())
    assert coordinator.show("child").parents == child.parents
    assert [each.parents for each in coordinator.models(limit=2)] == [last.record.parents, child.parents]
    for parent in (ids[1], ids[2]):
        [below] = coordinator.tree(parent).descendants
        assert (below.record.id, below.again) == (child.id, False)
        assert [each.record.id for each in below.descendants] == [last.record.id]
    assert [each.record.name for each in coordinator.tree("a").descendants] == ["child", "last"]
    assert [each.again for each in coordinator.tree("a").descendants[0].descendants] == [True]
    assert [each.name for each in coordinator.tree("last").ancestors] == ["child", "a", "b", "c"]
    coordinator.remove("c")
    assert coordinator.show("child").parents == child.parents, "lineage outlives the models"


def test_the_parent_itself_can_be_had(coordinator: Coordinator) -> None:
    """What lends can be run beside the child: with its own tensors, the plan, and its program."""
    graph = network(8)
    weights = tensors(graph)
    coordinator.register(graph, told(), weights.items(), program=b"a program")
    with coordinator.query(network(12), ASKED).lender() as lender:
        assert lender is not None
        assert lender.program == b"a program"
        assert lender.plan.parent == graph
        assert lender.plan.child == network(12)
        for name, array in weights.items():
            np.testing.assert_array_equal(lender.tensors[name], array)


def test_a_cold_start_and_a_dry_run_have_no_lender(coordinator: Coordinator) -> None:
    graph = network()
    with coordinator.query(graph, ASKED).lender() as lender:
        assert lender is None
    coordinator.register(graph, told(), tensors(graph).items())
    with coordinator.query(graph, ASKED, dry_run=True).lender() as lender:
        assert lender is None


@pytest.mark.parametrize("ask", ["show", "tree", "remove", "pin"])
def test_a_model_that_is_not_there_is_the_same_error(coordinator: Coordinator, ask: str) -> None:
    with pytest.raises(UnknownModel, match="no model 'nobody' is in the zoo"):
        getattr(coordinator, ask)("nobody")


def test_both_coordinators_are_what_the_protocols_say() -> None:
    """Assignments that mypy checks; parameters have the same names and defaults, so that keywords work."""
    kinds: list[type[Coordinator]] = [LocalCoordinator, RemoteCoordinator]
    served: type[ServedCoordinator] = LocalCoordinator
    loans: list[type[Loan]] = [LocalLoan, RemoteLoan]
    for protocol, implementations in (
        (Coordinator, kinds),
        (History, kinds),
        (ServedCoordinator, [served]),
        (Loan, loans),
        (ServedLoan, [LocalLoan]),
    ):
        methods = {name: value for name, value in vars(protocol).items() if inspect.isfunction(value)}
        for name in methods.keys() - {"__init__", "__subclasshook__"}:
            said = inspect.signature(methods[name]).parameters
            for implementation in implementations:
                done = inspect.signature(getattr(implementation, name)).parameters
                assert list(said) == [argument for argument in done if argument in said], name
                for argument, parameter in said.items():
                    assert done[argument].kind == parameter.kind, f"{implementation}.{name}: {argument}"
                    assert done[argument].default == parameter.default, f"{implementation}.{name}: {argument}"


def test_what_came_of_a_model_is_told(coordinator: Coordinator) -> None:
    graph = network()
    record = coordinator.register(graph, told("first"), tensors(graph).items(), owner="ada").record
    assert coordinator.credit(record) == Credit()
    assert coordinator.tell(record.id, "raced", -0.5, user="bob").lost == 1
    assert coordinator.tell(record.id, "raced", -0.5, user="ada").lost == 1  # the owner does not count
    credit = coordinator.tell(record.id, "checked", 1.0, user="cat")
    assert (credit.held, credit.lost, credit.factor) == (1, 1, 0.75)
    assert coordinator.credit(record) == credit
    found = coordinator.query(graph, ASKED).answer
    assert found.parents[0].claim == str(credit)
    assert found.parents[0].owner == "ada"
    with pytest.raises(InvalidMeta, match="choose one of"):
        coordinator.tell(record.id, "praised", 0.5, user="bob")
    with pytest.raises(UnknownModel):
        coordinator.tell("0" * 16, "raced", 0.5)
