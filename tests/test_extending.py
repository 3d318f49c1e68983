"""Adding things: each part that CONTRIBUTING says can be added, added as it says, and used."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import obstore.store
import pytest

from modelkeeper import ModelKeeperClient
from modelkeeper.graph.vocabulary import OPERATIONS, read_step, read_table
from modelkeeper.policy import selection
from modelkeeper.policy.selection.base import Candidate, Policy
from modelkeeper.testing import FrontendTests
from modelkeeper.tracing.describe import describe
from modelkeeper.tracing.trace import OwnedTensor, Step, Trace, Value
from modelkeeper.weights import Array
from modelkeeper.zoo.files import stores
from tests.helpers.plain import FRONTEND, TAKES, PlainModel

META = {"data": "digits", "task": "classification"}


@pytest.fixture
def plain() -> Iterator[None]:
    from modelkeeper.frontends import register, unregister

    register(FRONTEND)
    yield
    unregister(FRONTEND.name)


# -- an operation: one line in the table ----------------------------------------------------------------


def squared_plus(name: str) -> Trace:
    """x -> linear -> an operation -> the output."""
    weight = OwnedTensor(("fc.weight",), (4, 3), "float32")
    values = [Value(0, (2, 3)), Value(1, (4, 3), owner=weight), Value(2, (2, 4)), Value(3, (2, 4))]
    steps = [
        Step("linear", {"input": values[0], "weight": values[1]}, values[:2], [values[2]]),
        Step(name, {"self": values[2], "b": 4.0}, [values[2]], [values[3]]),
    ]
    for step in steps:
        step.outputs[0].step, step.outputs[0].active = step, True
    return Trace("plain", [values[0]], [values[3]], steps, [weight])


def test_an_operation_is_one_line_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [note.topic for note in describe(squared_plus("squareplus")).notes] == ["opaque"]
    line = "pointwise zero pointwise keeps_zero: squareplus(self b)"
    for name, operation in read_table(line).items():
        monkeypatch.setitem(OPERATIONS, name, operation)
    graph = describe(squared_plus("squareplus"))
    assert graph.notes == ()
    assert graph.layers[-1].inputs[0].via == ("squareplus[4.0]",)
    assert read_step("squareplus[4.0]").has("keeps_zero")


# -- a front end: an object, and the suite --------------------------------------------------------------


class TestPlainFrontend(FrontendTests):
    frontend = FRONTEND
    input_shape = (2, TAKES)

    def make(self, width: int, seed: int) -> PlainModel:
        return PlainModel(width, seed)

    def outputs(self, model: Any) -> Array:
        made: Array = model(np.linspace(-1, 1, 2 * TAKES, dtype=np.float32).reshape(2, TAKES))
        return made


# -- a policy: an object with a name --------------------------------------------------------------------


class Smallest(Policy):
    name = "last-name"
    description = "the candidate whose name comes last"

    def rank(self, pool: Any, data: str) -> list[Candidate]:
        return sorted(pool, key=lambda candidate: candidate.name, reverse=True)

    def why_won(self, winner: Candidate, pool: Any, data: str) -> str:
        return f"{winner.name} comes last of {len(pool)}"

    def why_lost(self, loser: Candidate, winner: Candidate, data: str) -> str:
        return f"{loser.name} comes before {winner.name}"


@pytest.mark.usefixtures("plain")
def test_a_policy_is_an_object_with_a_name() -> None:
    selection.register(Smallest())
    with ModelKeeperClient(":memory:", on_error="raise") as client:
        for name in ("b", "c", "a"):
            client.register_model(PlainModel(4), META | {"accuracy": 0.9, "name": name})
        _, answer = client.query_for_model(PlainModel(8), META | {"policy": "last-name"})
    assert (answer.parent_name, answer.reason) == ("c", "c comes last of 3")


# -- a storage: a scheme, and what opens it -------------------------------------------------------------


@pytest.mark.usefixtures("plain")
def test_a_storage_is_a_scheme_and_what_opens_it(tmp_path: Path) -> None:
    shelves: dict[str, obstore.store.MemoryStore] = {}
    stores.register("shelf", lambda url: shelves.setdefault(url, obstore.store.MemoryStore()))
    with ModelKeeperClient(tmp_path / "zoo", on_error="raise", blobs="shelf://one") as client:
        client.register_model(PlainModel(4), META | {"accuracy": 0.9, "name": "small"})
        _, answer = client.query_for_model(PlainModel(8), META)
    assert (answer.parent_name, answer.exact) == ("small", True)
    assert list(shelves) == ["shelf://one"]
    assert not (tmp_path / "zoo" / "models").exists()


# -- an integration: the client, called where a tool lets others in -------------------------------------


class Tool:
    """A training tool as there are many: it calls back at the beginning and at the end."""

    def __init__(self, *callbacks: "KeeperCallback") -> None:
        self._callbacks = callbacks

    def fit(self, model: PlainModel) -> float:
        for callback in self._callbacks:
            callback.on_fit_start(model)
        accuracy = 0.9
        for callback in self._callbacks:
            callback.on_fit_end(model, accuracy)
        return accuracy


class KeeperCallback:
    """What an integration is: the client, and the tool's words translated into meta."""

    def __init__(self, client: ModelKeeperClient, **meta: Any) -> None:
        self._client, self._meta = client, meta
        self.answers: list[Any] = []

    def on_fit_start(self, model: PlainModel) -> None:
        self.answers.append(self._client.query_for_model(model, self._meta)[1])

    def on_fit_end(self, model: PlainModel, accuracy: float) -> None:
        self._client.register_model(model, self._meta | {"accuracy": accuracy})


@pytest.mark.usefixtures("plain")
def test_an_integration_is_the_client_called_where_a_tool_lets_others_in() -> None:
    with ModelKeeperClient(":memory:", on_error="raise") as client:
        callback = KeeperCallback(client, **META)
        for width in (4, 8):
            Tool(callback).fit(PlainModel(width, seed=width))
        assert [answer.cold for answer in callback.answers] == [True, False]
        child, parent = client.coordinator.models()
        assert child.parent == parent.id
