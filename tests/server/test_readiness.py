"""When a service says that it is ready, it is; and when not, why."""

import threading
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import ZooUnusable
from modelkeeper.server import following
from modelkeeper.server.serve import serving
from modelkeeper.settings import ServiceSettings, Settings
from tests.helpers import zoos
from tests.helpers.service import probe


def test_it_is_not_ready_before_its_index_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is opened before anybody asks for it; while it is, and if that fails, the reason is said."""
    monkeypatch.setattr(following, "AGAIN", 0.01)
    with closing(LocalCoordinator(Settings(home=str(tmp_path), threads=1))) as coordinator:
        zoos.register(coordinator, zoos.net(4))
    with closing(LocalCoordinator(Settings(home=str(tmp_path), threads=1))) as coordinator:
        index, opening, go_on = coordinator.zoo.index, threading.Event(), threading.Event()

        def slowly() -> object:
            if not opening.is_set():
                opening.set()
                raise ZooUnusable("zoo/", "it is away for a moment", "Wait.")
            assert go_on.wait(60)
            return index()

        monkeypatch.setattr(coordinator.zoo, "index", slowly)
        with serving(coordinator, ServiceSettings(auth=False, port=0)) as url:
            assert opening.wait(60)
            reply = httpx.get(f"{url}/readyz")
            assert (reply.status_code, reply.json()["error"]) == (503, "NotReady")
            assert "search index is being opened" in reply.json()["message"]
            assert httpx.get(f"{url}/healthz").status_code == 200, "the process is there all the same"
            go_on.set()
            probe(url)
            assert len(coordinator.zoo.follower.index()) == 1
