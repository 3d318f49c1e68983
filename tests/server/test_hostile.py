"""What may strangers send? Names, paths, weights and graphs that try to break in, against a real service."""

import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.wire import UploadRequest
from modelkeeper.errors import InvalidMeta, InvalidWeights
from modelkeeper.graph import to_json
from modelkeeper.server.serve import serving
from modelkeeper.settings import ServiceSettings, Settings
from modelkeeper.weights import Header, stream
from modelkeeper.zoo.zoo import stored_tensors
from tests.helpers.service import Team, network, team, tensors, told

GRAPH = network()
ID, OTHER = "0123456789abcdef", "fedcba9876543210"
JSON = {"content-type": "application/json"}

CLIMBING = [
    "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "..\\..\\etc\\passwd",
    "..%252f..%252fetc%252fpasswd", "..%5c..%5cetc%5cpasswd", "%00", "0123456789abcdef%00", "/etc/passwd",
    "0123456789abcdef%0a", "%2fetc%2fpasswd", "....//....//etc", "0123456789abcdef/../../catalog.db",
    "０１２３４５６７８９ａｂｃｄｅｆ",
]  # fmt: skip


@pytest.fixture
def line(keeper: Team) -> Iterator[httpx.Client]:
    """A plain HTTP client with a token that may write."""
    sent = {"authorization": f"Bearer {keeper.token('mallory')}"}
    with httpx.Client(base_url=keeper.url, headers=sent, timeout=30) as client:
        yield client


def raw(url: str, head: str, body: bytes = b"") -> tuple[int, bytes]:
    """Send just these bytes; a client library would tidy them up."""
    where = httpx.URL(url)
    with socket.create_connection((where.host, where.port), timeout=20) as line:
        line.sendall(head.encode("utf-8") + b"connection: close\r\n\r\n" + body)
        reply = b""
        while chunk := line.recv(65536):
            reply += chunk
    return int(reply.split(b" ", 2)[1]), reply


def everything(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.mark.parametrize("name", CLIMBING)
def test_no_name_climbs_out(keeper: Team, line: httpx.Client, name: str, tmp_path: Path) -> None:
    before = everything(tmp_path)
    token = line.headers["authorization"]
    for method, path in (
        ("GET", "/v1/models/{}"),
        ("GET", "/v1/models/{}/model.safetensors"),
        ("GET", "/v1/models/{}/graph"),
        ("DELETE", "/v1/models/{}"),
        ("PUT", "/v1/models/{}/pin"),
        ("GET", "/v1/uploads/{}"),
        ("PUT", "/v1/uploads/{}?offset=0"),
        ("POST", "/v1/uploads/{}/complete"),
        ("DELETE", "/v1/uploads/{}"),
        ("GET", "/v1/weights/{}/checksum"),
        ("GET", "/v1/find?name={}"),
        ("GET", "/{}"),
    ):
        head = f"{method} {path.format(name)} HTTP/1.1\r\nhost: x\r\nauthorization: {token}\r\n"
        status, reply = raw(keeper.url, head)
        assert 400 <= status < 500, f"{method} {path.format(name)} -> {status}"
        assert b"root:" not in reply
    plain = httpx.URL(f"http://x/{name}").path.lstrip("/")
    for identity in (name, plain):
        body = _announced(identity)
        assert line.post("/v1/uploads", content=body, headers=JSON).status_code == 422
    after = everything(tmp_path)
    assert {path for path in after - before if not path.endswith(("-wal", "-shm"))} == set()


def _announced(identity: str = ID, size: int | None = None, checksum: str = "0" * 64, **more: Any) -> bytes:
    header = Header.of(stored_tensors(GRAPH))
    whole = len(header.to_bytes()) + header.data_bytes if size is None else size
    request = UploadRequest(
        id=identity,
        graph=msgspec.Raw(more.pop("graph", to_json(GRAPH))),
        registration=more.pop("registration", told()),
        size=whole,
        checksum=checksum,
    )
    return msgspec.json.encode(request)


def test_a_link_in_the_staging_area_is_not_followed(keeper: Team, line: httpx.Client, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"")
    line.post("/v1/uploads", content=_announced(), headers=JSON)
    staged = tmp_path / "zoo" / "staging" / f"upload-{ID}" / "weights"
    staged.unlink()
    staged.symlink_to(victim)
    assert line.put(f"/v1/uploads/{ID}", content=b"evil").status_code == 503
    assert victim.read_bytes() == b""


def _upload(line: httpx.Client, content: bytes) -> httpx.Response:
    import hashlib

    body = _announced(size=len(content), checksum=hashlib.sha256(content).hexdigest())
    reply = line.post("/v1/uploads", content=body, headers=JSON)
    if reply.is_success:
        reply = line.put(f"/v1/uploads/{ID}", content=content)
    return line.post(f"/v1/uploads/{ID}/complete") if reply.is_success else reply


def _safetensors(change: Any) -> bytes:
    """A file that fits the graph, with its header changed."""
    header = Header.of(stored_tensors(GRAPH))
    data = b"".join(bytes(chunk) for chunk in stream(header, tensors(GRAPH).items()))
    length = int.from_bytes(data[:8], "little")
    table = msgspec.json.decode(data[8 : 8 + length])
    table = change(table) or table
    text = table if isinstance(table, bytes) else msgspec.json.encode(table)
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def _set(where: str, value: Any) -> Any:
    def change(table: dict[str, Any]) -> None:
        table[next(iter(table))][where] = value

    return change


HOSTILE = {
    "overlap": _set("data_offsets", [4, 8]),
    "beyond the end": _set("data_offsets", [0, 10**15]),
    "negative": _set("data_offsets", [-8, 0]),
    "huge shape": _set("shape", [10**9, 10**9, 10**9]),
    "negative shape": _set("shape", [-1, -4]),
    "unknown type": _set("dtype", "PICKLE"),
    "another width": _set("dtype", "F64"),
    "not JSON": lambda _: b"\x80\x04" * 50,
    "deep": lambda _: b"[" * 50_000,
    "a name too many": lambda table: table | {"b": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}},
    "a name too few": lambda table: {key: table[key] for key in list(table)[1:]},
    "long names": lambda table: table | {"x" * 90_000: {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}},
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_weights(line: httpx.Client, keeper: Team, kind: str) -> None:
    reply = _upload(line, _safetensors(HOSTILE[kind]))
    assert reply.status_code == 422, reply.text
    assert keeper.coordinator.models() == []
    assert keeper.coordinator.zoo.blobs.staging is not None
    assert list(keeper.coordinator.zoo.blobs.staging.iterdir()) == []  # nothing is left behind


def test_weights_that_lie_about_their_length(line: httpx.Client, keeper: Team) -> None:
    content = _safetensors(lambda _: None)
    for lying in (
        (2**63).to_bytes(8, "little") + content[8:],
        (10**8).to_bytes(8, "little") + content[8:],
        b"\xff" * 8 + content[8:],
        bytes(8) + content[8:],
    ):
        assert _upload(line, lying).status_code == 422
    for size in (0, 7, -5, 10**15, 2**62):  # what is announced
        assert line.post("/v1/uploads", content=_announced(size=size), headers=JSON).status_code == 422
    line.post("/v1/uploads", content=_announced(), headers=JSON)
    assert line.put(f"/v1/uploads/{ID}", content=bytes(10**6)).status_code == 413
    assert line.put(f"/v1/uploads/{ID}?offset=77", content=b"x").status_code == 409
    assert line.post(f"/v1/uploads/{ID}/complete").status_code == 410
    body = _announced(checksum="nonsense")
    assert line.post("/v1/uploads", content=body, headers=JSON).status_code == 422


def test_nan_is_refused_by_the_service_itself(line: httpx.Client) -> None:
    content = bytearray(_safetensors(lambda _: None))
    content[-4:] = np.float32("nan").tobytes()
    reply = _upload(line, bytes(content))
    assert reply.status_code == 422
    assert "NaN" in reply.text


def _graphs() -> dict[str, Any]:
    good = msgspec.json.decode(to_json(GRAPH))
    layer = good["layers"][1]
    return {
        "cycle": good | {"layers": [{"name": name, "kind": "conv", "inputs": [1]} for name in "ab"]},
        "itself": good | {"layers": [layer | {"inputs": [1]}] * 2},
        "huge": good | {"terms": [["=", 10**9, "test"]] * len(good["terms"])},
        "beyond 64 bits": good | {"terms": [["=", 10**30, "test"]] * len(good["terms"])},
        "product": good | {"terms": [["=", 10**9, "x"], ["*", 0, 0]] + [["*", n, n] for n in range(1, 60)]},
        "counts": good | {"layers": [{"name": "x", "kind": "conv"}] * 110_000},
        "types": good | {"layers": 7},
        "version": good | {"version": 99},
        "names": good | {"layers": [layer | {"name": "\u202e\u0000\ud83d" * 10}]},
        "long": good | {"framework": "x" * 10**6},
        "list": [[]] * 10,
        "null": None,
    }  # fmt: skip


@pytest.mark.parametrize("kind", _graphs())
def test_hostile_graphs(line: httpx.Client, kind: str) -> None:
    import json

    text = json.dumps(_graphs()[kind])
    begun = time.monotonic()
    for path, more in (("query", {}), ("weights", {"parent": ID})):
        reply = line.post(f"/v1/{path}", content=_body(text, more), headers=JSON)
        assert reply.status_code in (200, 404, 422), reply.text
    reply = line.post("/v1/uploads", content=_announced(graph=text.encode()), headers=JSON)
    assert reply.status_code == 422, reply.text
    assert time.monotonic() - begun < 60


def _body(graph: str, more: dict[str, str]) -> bytes:
    rest = "".join(f', "{key}": "{value}"' for key, value in more.items())
    return f'{{"graph": {graph}{rest}}}'.encode()


def test_bodies_beyond_all_measure(line: httpx.Client) -> None:
    deep = b'{"graph": ' + b"[" * 500_000 + b"]" * 500_000 + b"}"
    assert line.post("/v1/query", content=deep, headers=JSON).status_code == 422
    assert line.post("/v1/query", content=b"[" * 10**6, headers=JSON).status_code == 422
    assert line.post("/v1/query", content=b" " * (21 * 2**20), headers=JSON).status_code == 413
    assert line.post("/v1/query", content=b"{}", headers={"content-type": "text/plain"}).status_code == 415
    for packed in ("gzip", "zstd", "deflate, gzip"):  # nothing is unpacked, so nothing explodes
        sent = JSON | {"content-encoding": packed}
        assert line.post("/v1/query", content=b"x", headers=sent).status_code == 415


def test_names_are_text_and_nothing_else(keeper: Team) -> None:
    ada = keeper.join("ada")
    evil = "<script>alert(1)</script>'\";--"
    ada.register(GRAPH, told(evil, tags=["<b>", "{{7*7}}"]), tensors(GRAPH).items())
    reply = ada._calls.client.get("/find", params={"name": evil})
    assert reply.json()["name"] == evil
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    for bad in ("two\nlines", "bell\a", "\u202ename", "nul\0", "x" * 201, " "):
        request = _announced(registration=msgspec.structs.replace(told(), name=bad))
        status = ada._calls.client.post("/uploads", content=request, headers=JSON).status_code
        assert status == 422, repr(bad)
        with pytest.raises(InvalidMeta):
            told(bad)


def test_other_sites_get_nothing(tmp_path: Path) -> None:
    local = LocalCoordinator(Settings(home=str(tmp_path / "zoo")))
    with serving(local, ServiceSettings(port=0, auth=False)) as url:
        port = httpx.URL(url).port
        for host in ("evil.example.org", f"evil.example.org:{port}", "127.0.0.1.evil.org", ""):
            assert httpx.get(f"{url}/v1/stats", headers={"host": host}).status_code == 403
        for host in ("localhost", f"127.0.0.1:{port}", "[::1]:80"):
            reply = httpx.get(f"{url}/v1/stats", headers={"host": host, "origin": "http://evil.example.org"})
            assert reply.status_code == 200
            assert not [name for name in reply.headers if name.startswith("access-control")]
        asked = {"origin": "http://evil.example.org", "access-control-request-method": "POST"}
        reply = httpx.options(f"{url}/v1/query", headers=asked)
        assert reply.status_code == 405
        assert not [name for name in reply.headers if name.startswith("access-control")]
        simple = {"content-type": "text/plain"}  # what a page may send without asking first
        assert httpx.post(f"{url}/v1/query", content=b"{}", headers=simple).status_code == 415
    local.close()


def test_secrets_are_in_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), team(tmp_path) as keeper:
        token = keeper.token("ada")
        secret = token.split("_", 2)[2]
        sent = {"authorization": f"Bearer {token}"}
        for path in ("/v1/stats", f"/v1/find?name={token}", f"/{token}", f"/v1/models/{token}"):
            httpx.get(keeper.url + path, headers=sent)
        httpx.get(keeper.url + "/v1/stats", headers={"authorization": f"Bearer {token}x"})
    # A request is logged when its reply is on its way: all of them are there once the service has stopped.
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("modelkeeper")]
    assert len(ours) == 5
    assert not [line for line in ours if secret in line]
    line = msgspec.json.decode(ours[0])
    assert (line["user"], line["path"], line["status"]) == ("ada", "/v1/stats", 200)


@pytest.mark.parametrize(
    "asked",
    [
        {"query": {"most_parents": 0}},
        {"query": {"most_parents": 9}},
        {"query": {"most_parents": "2"}},
        {"query": {"most_parents": True}},
        {"parents": [OTHER, ID]},
        {"parents": [ID, ID]},
        {"parents": [ID, "../etc"]},
        {"parents": [ID, *(f"{number:016x}" for number in range(8))]},
        {"parents": [ID] * 100_000},
        {"parents": "all"},
    ],
)
def test_parents_that_nobody_could_have_been_offered(line: httpx.Client, asked: dict[str, Any]) -> None:
    body = {"graph": msgspec.json.decode(to_json(GRAPH)), "parent": ID} | asked
    reply = line.post("/v1/weights", json=body)
    assert reply.status_code == 422, reply.text
    assert len(reply.content) < 2_000


def test_errors_carry_the_id_of_their_request(line: httpx.Client) -> None:
    for path in (
        "/v1/nothing",
        f"/v1/models/{ID}",
        "/v1/models?limit=0",
        "/v1/models?order=drop",
        "/v1/models?order=tags",
    ):
        reply = line.get(path)
        assert reply.json()["request"] == reply.headers["x-request-id"]
        assert reply.status_code in (404, 422)


def test_the_service_fetches_nothing_for_its_users() -> None:
    folder = Path(__file__).parents[2] / "src" / "modelkeeper"
    for path in [
        *(folder / "server").rglob("*.py"),
        *(folder / "zoo").glob("*.py"),
        *(folder / "coordinator").glob("*.py"),
    ]:
        for word in ("httpx", "urllib", "requests", "pickle", "subprocess", "eval(", "yaml"):
            assert f"import {word}" not in path.read_text(), path


def test_a_slow_sender_holds_up_nobody(keeper: Team) -> None:
    ada = keeper.join("ada")
    where = httpx.URL(keeper.url)
    token = keeper.token("mallory")
    lines = []
    for _ in range(40):
        line = socket.create_connection((where.host, where.port))
        head = f"POST /v1/query HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n"
        line.sendall(f"{head}content-type: application/json\r\ncontent-length: 1000\r\n\r\n{{".encode())
        lines.append(line)
    begun = time.monotonic()
    ada.stats()
    assert time.monotonic() - begun < 5
    for line in lines:
        line.close()


def test_a_tensor_that_nobody_asked_for_is_said(keeper: Team) -> None:
    ada = keeper.join("ada")
    with pytest.raises(InvalidWeights, match="nobody asked for it"):
        ada.register(GRAPH, told(), (tensors(GRAPH) | {"extra": np.zeros(3, np.float32)}).items())
