"""A client that lends one number to every weight and writes down what it is asked: for moments and faults
that a real zoo does not offer on demand."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from modelkeeper import ModelKeeperClient
from modelkeeper.warmstart.answer import Answer
from modelkeeper.zoo.records import Record

LENT = 0.25


def heights(weights: list[Any]) -> list[float]:
    """The largest absolute value of each array: enough to tell weights apart."""
    return [float(np.abs(array).max()) for array in weights]


class RecordingClient(ModelKeeperClient):
    """Lends `LENT`, registers everything; `trouble` is called first, and may raise."""

    def __init__(self, trouble: Callable[[str], None] = lambda call: None, *, on_error: str = "cold") -> None:
        super().__init__(":memory:", on_error=on_error)
        self._trouble = trouble
        self.asked: list[dict[str, Any]] = []
        self.registered: list[dict[str, Any]] = []
        self.weights: list[list[Any]] = []  # of what was registered

    def query_for_model(
        self, model: Any, meta: Mapping[str, Any] | None = None, **options: Any
    ) -> tuple[Any, Answer]:
        """Fill every weight."""
        self.asked.append(
            dict(meta or {})
            | {key: value for key, value in options.items() if value is not None and key != "trained"}
        )
        self._trouble("query")
        model.set_weights([np.full_like(array, LENT) for array in model.get_weights()])
        return model, Answer(parent="0" * 16, parent_name="parent", similarity=1.0)

    def register_model(self, model: Any, meta: Mapping[str, Any], **attached: Any) -> Record:
        """Keep what it is told."""
        self._trouble("register")
        self.registered.append(dict(meta))
        self.weights.append(model.get_weights())
        return Record(
            id=f"{len(self.registered):016x}",
            name=meta.get("name", "model"),
            owner="",
            framework="keras",
            parameters=0,
            bytes=0,
            fingerprint="",
            graph="",
            checksum="",
            created=0.0,
            last_used=0.0,
        )
