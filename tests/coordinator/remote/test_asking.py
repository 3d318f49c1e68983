"""An error of a registration says where the model waits, and what will send it."""

from pathlib import Path

import pytest

from modelkeeper.coordinator.remote.asking import with_advice
from modelkeeper.errors import (
    CoordinatorUnreachable,
    DiskFull,
    ModelKeeperError,
    NotAllowed,
    NotAuthenticated,
)

URL, FOLDER = "http://keeper.example:7433", Path("spool/3fa9")


@pytest.mark.parametrize(
    "problem",
    [
        CoordinatorUnreachable(URL, "it did not answer", "Check it."),
        DiskFull("catalog.db", "it is full", "Free some room."),
    ],
)
def test_what_passes_is_sent_by_the_same_token(problem: ModelKeeperError) -> None:
    said = str(with_advice(problem, URL, FOLDER))
    assert said.endswith(f"The model waits in {FOLDER}; `modelkeeper sync` sends it.")


@pytest.mark.parametrize("kind", [NotAllowed, NotAuthenticated])
def test_what_a_token_may_not_do_is_sent_by_another(kind: type[NotAllowed]) -> None:
    problem = with_advice(kind("its scope is read, write is needed", "Ask for one."), URL, FOLDER)
    assert type(problem) is kind
    assert "Ask for one. " in str(problem)
    assert f"with a token that may register, `modelkeeper sync --to {URL}` sends it" in str(problem)
