"""Do large files go straight to and from the store, checked as ever, and by the coordinator if that fails?"""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from benchmarks.helpers.topology import store_blocks
from modelkeeper.coordinator import wire
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.remote import RemoteCoordinator, direct, downloads, loan
from modelkeeper.coordinator.remote.allowance import Allowance
from modelkeeper.coordinator.remote.direct import Direct
from modelkeeper.errors import CoordinatorUnreachable, InvalidSetting, UnknownModel
from modelkeeper.meta import Query
from modelkeeper.server import service
from modelkeeper.server.serve import serving
from modelkeeper.settings import ServiceSettings, Settings
from modelkeeper.zoo.files.blobs import WEIGHTS
from tests.helpers.parts import ObjectStore, Proxy, certificate, free_ports, or_skip
from tests.helpers.service import Team, network, tensors, told

GRAPH = network()
ASKED = Query(data="digits", task="classification")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is large enough to go past the coordinator."""
    for module in (wire, downloads, loan, service):
        monkeypatch.setattr(module, "DIRECT_BYTES", 1)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, httpx.URL, httpx.Headers]]:
    """Every request of the client: to the coordinator, and to the store."""
    requests = []
    send = httpx.Client.send

    def noted(self: httpx.Client, request: httpx.Request, **more: Any) -> httpx.Response:
        requests.append((request.method, request.url, request.headers))
        return send(self, request, **more)

    monkeypatch.setattr(httpx.Client, "send", noted)
    return requests


@pytest.fixture
def team(bucket: str, tmp_path: Path, small: None) -> Iterator[Team]:
    settings = Settings(home=str(tmp_path / "home"), catalog=f"sqlite:///{tmp_path / 'db'}", blobs=bucket)
    local = LocalCoordinator(settings)
    with serving(local, ServiceSettings(port=0)) as url:
        found = Team(local, url, tmp_path / "spool")
        yield found
        found.close()
    local.close()


def carried(sent: list[tuple[str, httpx.URL, httpx.Headers]], team: Team) -> set[str]:
    """Which files the coordinator carried."""
    own = httpx.URL(team.url).port
    paths = [(method, url.path) for method, url, _ in sent if url.port == own]
    up = {"up" for method, path in paths if method == "PUT" and "/uploads/" in path}
    return up | {"down" for _, path in paths if path.endswith((WEIGHTS, "/weights"))}


def test_up_and_down_past_the_coordinator(
    team: Team, tmp_path: Path, sent: list[tuple[str, httpx.URL, httpx.Headers]]
) -> None:
    ada = team.join("ada")
    record = ada.register(GRAPH, told(), tensors(GRAPH).items()).record
    ada.download(record, tmp_path / "file")
    assert (tmp_path / "file").stat().st_size == record.bytes
    lent = dict(ada.query(GRAPH, ASKED).weights())
    assert carried(sent, team) == set()
    for name, array in tensors(GRAPH).items():
        np.testing.assert_array_equal(lent[name], array)
    own = httpx.URL(team.url).port
    to_store = [(method, headers) for method, url, headers in sent if url.port != own]
    assert {method for method, _ in to_store} == {"PUT", "GET"}
    assert not any("authorization" in headers for _, headers in to_store), "no token goes to the store"
    objects = team.coordinator.zoo.blobs.objects
    assert objects is not None
    assert [item for batch in objects.list("staging/") for item in batch] == []
    wider = network(12)  # another architecture is gathered there, as ever
    assert dict(ada.query(wider, ASKED).weights()).keys() == tensors(wider).keys()
    assert carried(sent, team) == {"down"}


def test_the_same_weights_either_way(team: Team, tmp_path: Path) -> None:
    ada = team.join("ada")
    ada.register(GRAPH, told(), tensors(GRAPH, 3).items())
    token = ada._calls._headers["authorization"].removeprefix("Bearer ")
    plain = RemoteCoordinator(team.url, token=token, spool=tmp_path / "spool", timeout=20, direct=False)
    for asked in (ASKED, Query(data="letters", task="classification")):
        straight, through = (dict(line.query(GRAPH, asked).weights()) for line in (ada, plain))
        assert straight.keys() == through.keys()
        for name, array in through.items():
            assert array.tobytes() == straight[name].tobytes()
    plain.close()


def test_a_store_that_cannot_be_reached_costs_one_line(
    team: Team,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    sent: list[tuple[str, httpx.URL, httpx.Headers]],
) -> None:
    sign = type(team.coordinator.zoo.blobs).sign

    def elsewhere(*given: Any) -> str:
        return str(httpx.URL(sign(*given)).copy_with(port=9))  # nobody listens there

    monkeypatch.setattr(type(team.coordinator.zoo.blobs), "sign", elsewhere)
    ada = team.join("ada")
    with caplog.at_level(logging.WARNING):
        record = ada.register(GRAPH, told(), tensors(GRAPH).items()).record
        ada.download(record, tmp_path / "file")
        assert len(dict(ada.query(GRAPH, ASKED).weights())) == len(tensors(GRAPH))
    assert carried(sent, team) == {"up", "down"}
    lines = [line for line in caplog.messages if "is not used directly" in line]
    assert len(lines) == 1


def test_what_lies_in_the_store_is_checked(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was put there under a URL, or became of a file there."""
    ada = team.join("ada")
    put = Direct.send

    def other(self: Direct, url: str, file: Any, size: int, allowance: Allowance) -> bool:
        assert httpx.put(url, content=bytes(size)).is_success
        monkeypatch.setattr(Direct, "send", put)
        return True

    monkeypatch.setattr(Direct, "send", other)
    record = ada.register(GRAPH, told(), tensors(GRAPH).items()).record  # refused, and sent again
    assert team.coordinator.zoo.blobs.checksum(record.folder) == record.checksum
    monkeypatch.setattr(direct, "PIECE", 1000)
    objects = team.coordinator.zoo.blobs.objects
    assert objects is not None
    objects.put(f"{record.folder}/{WEIGHTS}", iter([bytes(record.bytes)]))
    with pytest.raises(CoordinatorUnreachable, match="damaged"):
        ada.download(record, tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_a_url_is_for_who_may_and_for_one_object(team: Team) -> None:
    ada, bob = team.join("ada"), team.join("bob")
    hidden = ada.register(GRAPH, told(visibility="private"), tensors(GRAPH).items()).record
    with pytest.raises(UnknownModel):
        bob._calls.ask("GET", f"/models/{hidden.id}/url", wire.Signed)
    url = ada._calls.ask("GET", f"/models/{hidden.id}/url", wire.Signed).url
    assert hidden.folder in url
    assert "X-Amz-Expires=900" in url


def test_a_store_that_clients_call_otherwise(
    tmp_path: Path,
    small: None,
    monkeypatch: pytest.MonkeyPatch,
    sent: list[tuple[str, httpx.URL, httpx.Headers]],
) -> None:
    """A coordinator reaches its S3 within a network; clients get URLs for the proxy before it, which work.

    The proxy is that of deploy/nginx-store.conf; the store SeaweedFS, which checks what was signed.
    """
    keys = {"AWS_ACCESS_KEY_ID": "keeper", "AWS_SECRET_ACCESS_KEY": "secret"}
    with ExitStack() as stack:
        with or_skip():
            store, (front,) = ObjectStore(tmp_path / "s3", keys=keys), free_ports(1)
            certificate(tmp_path)
            inside = httpx.URL(store.url).port
            assert inside is not None
            proxy = Proxy(store_blocks(front, inside, tmp_path), tmp_path / "nginx")
        stack.enter_context(store)
        store.make_bucket("zoo")
        stack.enter_context(proxy)
        given = {"AWS_ENDPOINT_URL": store.url, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1", **keys}
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "keeper.pem"))
        catalog, public = f"sqlite:///{tmp_path / 'db'}", f"https://localhost:{front}"
        settings = Settings(
            home=str(tmp_path / "home"), catalog=catalog, blobs="s3://zoo/models", blobs_public=public
        )
        local = stack.enter_context(closing(LocalCoordinator(settings)))
        at = stack.enter_context(serving(local, ServiceSettings(port=0)))
        team = Team(local, at, tmp_path / "spool")
        stack.callback(team.close)
        ada = team.join("ada")
        record = ada.register(GRAPH, told(), tensors(GRAPH).items()).record
        ada.download(record, tmp_path / "file")
        assert len(dict(ada.query(GRAPH, ASKED).weights())) == len(tensors(GRAPH))
        assert carried(sent, team) == set()
        own = httpx.URL(at).port
        assert {(url.scheme, url.host, url.port) for _, url, _ in sent if url.port != own} == {
            ("https", "localhost", front)
        }
        good = httpx.URL(local.weights_url(record))
        assert httpx.get(good).status_code == 200
        assert httpx.get(good.copy_with(query=None)).status_code == 403, "nothing that is not signed"
        assert httpx.delete(good).status_code == 403
        assert httpx.get(good, headers={"host": f"other:{front}"}).status_code == 403, "the host is signed"


def test_only_an_s3_has_another_name(tmp_path: Path) -> None:
    settings = Settings(home=str(tmp_path), blobs_public="https://store.example.org")
    with closing(LocalCoordinator(settings)) as local, pytest.raises(InvalidSetting, match="speaks S3"):
        assert local.zoo.blobs
    for wrong in ("store.example.org", "https://store.example.org/s3", "ftp://store"):
        with pytest.raises(InvalidSetting, match="blobs_public"):
            Settings(blobs_public=wrong)


def test_a_service_that_is_told_so_gives_no_urls(bucket: str, tmp_path: Path, small: None) -> None:
    settings = Settings(home=str(tmp_path / "home"), catalog=f"sqlite:///{tmp_path / 'db'}", blobs=bucket)
    local = LocalCoordinator(settings)
    with serving(local, ServiceSettings(port=0, auth=False, direct="off")) as url:
        line = RemoteCoordinator(url, spool=tmp_path / "spool", timeout=20)
        record = line.register(GRAPH, told(), tensors(GRAPH).items()).record
        assert line._calls.ask("GET", f"/models/{record.id}/url", wire.Signed).url == ""
        line.download(record, tmp_path / "file")
        line.close()
    local.close()
    with pytest.raises(InvalidSetting, match="auto, off"):
        ServiceSettings(direct="always")


def test_a_folder_gives_no_urls(keeper: Team, small: None, tmp_path: Path) -> None:
    ada = keeper.join("ada")
    record = ada.register(GRAPH, told(), tensors(GRAPH).items()).record
    assert ada._calls.ask("GET", f"/models/{record.id}/url", wire.Signed).url == ""
    ada.download(record, tmp_path / "file")


@pytest.mark.parametrize("url", ["http://store/x", "https://who:else@store/x", "ftp://store/x"])
def test_a_url_that_is_less_safe_than_the_coordinator_is_not_used(url: str) -> None:
    way = Direct("https://keeper", 5.0, wanted=True)
    assert list(way.fetch(url, 0, 10, Allowance())) == []
    assert not way.open
