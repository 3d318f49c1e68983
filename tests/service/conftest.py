"""A coordinator in this process and over HTTP, and a team's service."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from parts import Team, team

from modelkeeper.coordinator import Coordinator
from modelkeeper.remote import RemoteCoordinator
from modelkeeper.server.running import serving
from modelkeeper.settings import ServiceSettings, Settings


@pytest.fixture(params=["in-process", "over-http"])
def coordinator(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Coordinator | RemoteCoordinator]:
    local = Coordinator(Settings(home=str(tmp_path / "zoo"), minimum_peers=3))
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
