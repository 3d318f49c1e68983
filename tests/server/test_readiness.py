"""When a service says that it is ready, it is; and when not, why."""

import threading
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import ModelKeeperError, NotReady, ShardsUnreachable, ZooUnusable
from modelkeeper.server import following, readiness
from modelkeeper.server.serve import serving
from modelkeeper.settings import ServiceSettings, Settings
from tests.helpers import zoos
from tests.helpers.parts import wait_until
from tests.helpers.service import probe


def test_it_is_no_longer_ready_when_its_index_is_lost_or_does_not_keep_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if nobody registers anything: it is looked at anyway."""
    monkeypatch.setattr(following, "AGAIN", 0.01)
    monkeypatch.setattr(following, "ANYWAY", 0.01)
    with closing(LocalCoordinator(Settings(home=str(tmp_path), threads=1))) as coordinator:
        expect, problems = coordinator.zoo.expect_index, list[ModelKeeperError]()

        def failing() -> None:
            if problems:
                raise problems[0]
            expect()

        monkeypatch.setattr(coordinator.zoo, "expect_index", failing)
        with serving(coordinator, ServiceSettings(auth=False, port=0)) as url:

            def says(status: int, text: str = "") -> bool:
                reply = httpx.get(f"{url}/readyz")
                return reply.status_code == status and text in reply.text

            probe(url)
            problems.append(ShardsUnreachable("ray://head", "it does not answer", "Start it."))
            wait_until(lambda: says(503, "shards_unreachable"), "the word of lost shards")
            problems[0] = NotReady("shards 1 of the 4 of its search index are being opened", "Wait.")
            wait_until(lambda: says(503, "shards 1 of the 4"), "the word of a shard that is opened anew")
            problems[0] = ZooUnusable("zoo/", "it is away for a moment", "Wait.")
            wait_until(lambda: says(200), "that one that keeps up only now and then is ready")
            monkeypatch.setattr(readiness, "STALE", 0.0)
            wait_until(lambda: says(503, "has not kept up for"), "the word of an index that lags behind")
            monkeypatch.undo()
            problems.clear()
            wait_until(lambda: says(200), "the index")


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
