"""Lineage: a model knows all that it started from, also as a copy, and so does what is registered of it."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from modelkeeper import KeeperWarning, ModelKeeperClient
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.local_loan import LocalLoan
from modelkeeper.errors import UnknownModel
from modelkeeper.integrations.tracking import facts_of
from modelkeeper.integrations.warm_training import WarmTraining
from modelkeeper.lineage import Starts
from modelkeeper.warmstart.answer import Answer, Parent
from modelkeeper.zoo.records import Record

META = {"data": "digits", "task": "classification"}


def net(width: int = 8) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelKeeperClient]:
    """Of a zoo that answers as if its three oldest models had lent, side by side."""
    found = LocalCoordinator.query

    def query(self: LocalCoordinator, *arguments: Any, **more: Any) -> LocalLoan:
        loan = found(self, *arguments, **more)
        if not loan.answer.cold:
            lenders = self.models(order="created", limit=3)
            near = loan.answer.similarity
            parents = tuple(Parent(id=each.id, name=each.name, similarity=near) for each in lenders)
            first = {"parent": parents[0].id, "parent_name": parents[0].name}
            loan.answer = msgspec.structs.replace(loan.answer, parents=parents, **first)
        return loan

    monkeypatch.setattr(LocalCoordinator, "query", query)
    with ModelKeeperClient(tmp_path / "zoo", on_error="raise") as opened:
        yield opened


def give(client: ModelKeeperClient, *names: str) -> list[str]:
    records = [
        client.register_model(net(), META | {"accuracy": 0.9, "name": name, "tags": [name]}) for name in names
    ]
    return [record.id for record in records if record is not None]


def registered(record: Record | None) -> tuple[str, ...]:
    assert record is not None
    return record.parents


def test_what_is_registered_names_all_that_lent(client: ModelKeeperClient) -> None:
    ids = tuple(give(client, "a", "b", "c"))
    model, answer = client.query_for_model(net(12), META | {"most_parents": 3})
    assert tuple(parent.id for parent in answer.parents) == ids
    assert [parent["name"] for parent in answer.to_dict()["parents"]] == ["a", "b", "c"]
    record = client.register_model(model, META | {"accuracy": 0.9})
    assert registered(record) == ids
    assert client.coordinator.show("c").id == ids[2]
    copied = client.register_model(copy.deepcopy(model), META | {"accuracy": 0.9})
    assert registered(copied) == ids, "a copy carries the mark"
    assert copied is not None
    assert copied.similarity == answer.similarity
    said = client.register_model(model, META | {"accuracy": 0.9, "parent": [ids[2], "a"]})
    assert registered(said) == (ids[2], ids[0]), "who says it knows better; names become ids"
    with pytest.raises(UnknownModel, match="nobody"):
        client.register_model(model, META | {"accuracy": 0.9, "parent": [ids[0], "nobody"]})


def test_every_version_of_a_training_names_all_that_lent(client: ModelKeeperClient) -> None:
    ids = tuple(give(client, "a", "b"))
    with client.training(net(12), META | {"most_parents": 2}) as run:
        run.report(accuracy=0.8, model=run.model)
        run.flush()
        assert registered(run.record) == ids
    assert registered(run.record) == ids


def test_a_training_that_goes_on_keeps_all_its_parents(client: ModelKeeperClient) -> None:
    ids = give(client, "a", "b")
    warm, model = WarmTraining(client, META | {"most_parents": 2}), net(12)
    warm.begin(model)
    assert warm.parent == ids
    facts = warm.facts()
    assert facts["modelkeeper.parents"] == ", ".join(ids)
    assert (facts["modelkeeper.parent"], facts["modelkeeper.parent_names"]) == (ids[0], "a and b")
    warm.stop()
    for again in (WarmTraining(client, META), warm):
        parent = warm.parent if again is not warm else ""
        again.begin(model, key=warm.key, parent=parent, resumed=True)
        again.report({"accuracy": 0.8}, model)
        assert registered(again.finish()) == tuple(ids)


def test_facts_of_one_parent_are_what_they_were() -> None:
    assert not {"modelkeeper.parents", "modelkeeper.parent_names"} & facts_of(Answer(parent="a")).keys()


def test_a_mark_of_an_older_version_is_read() -> None:
    starts, model = Starts("zoo"), net()
    starts.remember(model, Answer(parent="a" * 16, similarity=0.5))
    mark = next(value for value in vars(model).values() if isinstance(value, tuple) and "a" * 16 in value)
    assert mark == ("zoo", "a" * 16, "0.5"), "of one parent it is what older versions write and read"
    copied = Starts("zoo").recall(copy.deepcopy(model))
    assert copied is not None
    assert (copied.parent, copied.similarity, len(copied.parents)) == ("a" * 16, 0.5, 1)
    assert Starts("elsewhere").recall(copy.deepcopy(model)) is None


def test_without_its_second_parent_a_model_starts_cold(
    client: ModelKeeperClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was removed after the answer: over HTTP, the service then knows no such model."""
    give(client, "a", "b")
    found = LocalCoordinator.query

    def query(self: LocalCoordinator, *arguments: Any, **more: Any) -> LocalLoan:
        loan = found(self, *arguments, **more)

        def gone() -> Any:
            raise UnknownModel(loan.answer.parents[1].id)

        monkeypatch.setattr(loan, "stored_weights", lambda layouts: gone())
        return loan

    monkeypatch.setattr(LocalCoordinator, "query", query)
    model = net(12)
    before = copy.deepcopy(model.state_dict())
    monkeypatch.setattr(client.faults, "_raise", False)
    with pytest.warns(KeeperWarning, match="starts cold"):
        _, answer = client.query_for_model(model, META | {"most_parents": 2})
    assert answer.cold
    assert answer.parents == ()
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
