"""Fixtures: a coordinator in this process and over HTTP, and a team's service."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from modelkeeper.coordinator import Coordinator
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.server.serve import serving
from modelkeeper.settings import ServiceSettings, Settings
from tests.helpers.service import Team, team


@pytest.fixture(params=["in-process", "over-http"])
def coordinator(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Coordinator]:
    local = LocalCoordinator(Settings(home=str(tmp_path / "zoo"), minimum_peers=3))
    if request.param == "in-process":
        yield local
    else:
        with serving(local, ServiceSettings(port=0, auth=False)) as url:
            remote = RemoteCoordinator(url, spool=tmp_path / "spool", timeout=20)
            yield remote
            remote.close()
    local.close()


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Team]:
    with team(tmp_path) as found:
        yield found
