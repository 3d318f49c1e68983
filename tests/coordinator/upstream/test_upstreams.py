"""Zoos that ask other zoos: real services on this machine, honest, lying, slow, or not there."""

import contextlib
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import modelkeeper
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.coordinator.upstream import upstreams as asking
from modelkeeper.coordinator.upstream.upstreams import read_upstreams
from modelkeeper.coordinator.wire import VIA
from modelkeeper.errors import InvalidSetting
from modelkeeper.graph import from_json, to_json
from modelkeeper.meta import Query
from modelkeeper.server.app import Application
from modelkeeper.server.serve import address as address_of
from modelkeeper.server.serve import listen, server, serving
from modelkeeper.settings import ServiceSettings, Settings
from modelkeeper.signing import new_key
from modelkeeper.zoo.records import EVICTED, Filter, Viewer
from modelkeeper.zoo.signatures import signing_with
from tests.helpers import zoos
from tests.helpers.service import team

OPEN = ServiceSettings(port=0, auth=False)
GRAPH = zoos.net(8, 16)
ASKED = Query(data=zoos.DATA, task=zoos.TASK)
Spoil = Callable[[str, bytes], bytes]  # path and body -> body


class Watched:
    """An application whose requests are written down, and whose replies somebody may change."""

    def __init__(self, local: LocalCoordinator, spoil: Spoil | None = None) -> None:
        self._app, self._spoil = Application(local, OPEN), spoil
        self.service = self._app.service
        self.requests: list[tuple[str, dict[str, str], bytearray]] = []

    @property
    def paths(self) -> list[str]:
        return [path for path, _, _ in self.requests]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, sent = bytearray(), []

        async def heard() -> Any:
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        async def said(message: Any) -> None:
            if self._spoil is None:
                await send(message)
                return
            sent.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                whole = b"".join(part.get("body", b"") for part in sent[1:])
                spoiled = self._spoil(scope["path"], whole)
                headers = [(k, v) for k, v in sent[0]["headers"] if k != b"content-length"]
                headers.append((b"content-length", str(len(spoiled)).encode()))
                await send({**sent[0], "headers": headers})
                await send({"type": "http.response.body", "body": spoiled})

        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.requests.append((scope["path"], headers, body))
        await self._app(scope, heard, said)


@contextlib.contextmanager
def watched(local: LocalCoordinator, spoil: Spoil | None = None) -> Iterator[tuple[str, Watched]]:
    listening, application = listen(OPEN), Watched(local, spoil)
    serves = server(application)  # type: ignore[arg-type]
    thread = threading.Thread(target=serves.run, args=([listening],), daemon=True)
    thread.start()
    yield address_of(listening), application
    serves.should_exit = True
    thread.join()
    listening.close()


@contextlib.contextmanager
def opened(folder: Path, *upstreams: str, **settings: Any) -> Iterator[LocalCoordinator]:
    local = LocalCoordinator(Settings(home=str(folder), upstreams=upstreams, **settings))
    yield local
    local.close()


@pytest.fixture
def partner(tmp_path: Path) -> Iterator[LocalCoordinator]:
    with opened(tmp_path / "partner") as local:
        zoos.register(local, GRAPH, "theirs", tags=["shared"])
        yield local


def test_what_is_not_here_is_found_there_and_kept_here(partner: LocalCoordinator, tmp_path: Path) -> None:
    theirs = partner.show("theirs")
    with watched(partner) as (url, there), opened(tmp_path / "ours", url) as ours:
        loan = ours.query(GRAPH, ASKED)
        assert loan.answer.parent == theirs.id
        lent = dict(loan.weights())
        for name, array in partner.zoo.weights(theirs).items():
            np.testing.assert_array_equal(lent[name], array)
        copy = ours.show(theirs.id)
        assert (copy.origin, copy.checksum, copy.metrics) == (url, theirs.checksum, theirs.metrics)
        assert copy.owner == url.removeprefix("http://")
        assert not copy.published
        assert ours.program(copy) == partner.program(theirs)
        before = len(there.requests)
        assert ours.query(GRAPH, ASKED).answer.parent == theirs.id
        assert len(there.requests) == before, "it is here now"
        assert not list(ours.upload_folder().glob("upstream-*"))
    assert [event.model for event in partner.log(action="lent")] == [theirs.id]


def test_who_has_something_good_asks_nobody_unless_told_to(partner: LocalCoordinator, tmp_path: Path) -> None:
    narrow = zoos.net(6, 12)
    with watched(partner) as (url, there), opened(tmp_path / "ours", url) as ours:
        zoos.register(ours, narrow, "ours")
        assert ours.query(GRAPH, ASKED).answer.parent_name == "ours"
        assert there.requests == []
    with watched(partner) as (url, there), opened(tmp_path / "ours", url, upstream_below=1.0) as ours:
        assert ours.query(GRAPH, ASKED).answer.parent_name == "theirs"
        assert there.requests
        assert sum(ours.show(name).hits for name in ("ours", "theirs")) == 2, "none was counted for nothing"


def test_only_the_architecture_travels(partner: LocalCoordinator, tmp_path: Path) -> None:
    text = msgspec.json.decode(to_json(GRAPH))
    for layer in text["layers"]:
        layer["name"] = "tumour_net." + layer["name"]
    graph = from_json(msgspec.json.encode(text))
    secret = Query(data="scans-of-ann", task="tumours", tags=("merger",), parents=("our-best",))
    said = {"coarse": (), "words": ("scans-of-ann", "tumours", "merger"), "full": ("tumour_net",)}
    for privacy, expected in said.items():
        settings = {"upstream_privacy": privacy}
        with watched(partner) as (url, there), opened(tmp_path / privacy, url, **settings) as ours:
            assert ours.query(graph, secret).answer.cold, "it is of another task"
            assert "/v1/query" in there.paths
            travelled = b"".join(
                body + json.dumps([path, *headers.items()]).encode() for path, headers, body in there.requests
            ).decode()
        for word in ("tumour_net", "scans-of-ann", "tumours", "merger", "our-best"):
            allowed = word in expected or (privacy == "full" and word in said["words"])
            assert (word in travelled) is allowed, (privacy, word)


def test_what_a_query_would_not_take_is_not_fetched(partner: LocalCoordinator, tmp_path: Path) -> None:
    queries = [
        Query(task="segmentation"),
        Query(tags=("no such",)),
        Query(exclude=("theirs",)),
        Query(data=zoos.DATA, fold="1"),
    ]
    with watched(partner) as (url, there), opened(tmp_path / "ours", url) as ours:
        for query in queries:
            assert ours.query(GRAPH, query).answer.cold
        assert not any("safetensors" in path for path in there.paths)
        dry = ours.query(GRAPH, ASKED, dry_run=True).answer
        assert dry.cold
        assert f"{url} has 'theirs'" in dry.warnings[0]
        assert ours.count() == 0
        assert ours.query(GRAPH, ASKED, dry_run=True).answer.warnings == dry.warnings
        assert ours.query(GRAPH, ASKED).answer.parent_name == "theirs"
    with watched(partner) as (url, there), opened(tmp_path / "small", url, upstream_capacity=1000) as ours:
        assert ours.query(GRAPH, ASKED).answer.cold
        assert not any("safetensors" in path for path in there.paths)


def test_one_that_is_not_there_costs_a_log_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with opened(tmp_path, url) as ours, caplog.at_level(logging.WARNING, "modelkeeper"):
            for _ in range(5):
                assert ours.query(GRAPH, ASKED).answer.cold
    assert [record.message for record in caplog.records if url in record.message] == [
        record.message for record in caplog.records
    ]
    assert len(caplog.records) == 1


def test_one_that_never_answers_is_not_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with opened(tmp_path, url, upstream_timeout=0.3) as ours:
            begun = time.monotonic()
            for _ in range(4):
                assert ours.query(GRAPH, ASKED, seconds=20).answer.cold
            assert time.monotonic() - begun < 15, "asked once"
            zoos.register(ours, GRAPH, "ours")  # nothing of the catalog is held
            assert not ours.query(GRAPH, ASKED).answer.cold
    assert len([record for record in caplog.records if url in record.getMessage()]) == 1


def test_pauses_grow_and_end_with_an_answer() -> None:
    upstream = asking.Upstream("https://zoo.partner.org", "")
    assert upstream.open()
    assert [upstream.failed(60.0) for _ in range(9)][:4] == [60, 120, 240, 480]
    assert upstream.failed(60.0) == asking.LONGEST_PAUSE
    assert not upstream.open()
    upstream.worked()
    assert upstream.failed(60.0) == 60.0


def _lies() -> dict[str, Spoil]:
    def in_record(**changes: Any) -> Spoil:
        def spoil(path: str, body: bytes) -> bytes:
            if path.startswith("/v1/models/") and path.count("/") == 3:
                return json.dumps(json.loads(body) | changes).encode()
            return body

        return spoil

    def on(ending: str, change: Callable[[bytes], bytes]) -> Spoil:
        return lambda path, body: change(body) if path.endswith(ending) else body

    answer = {"reason": "", "considered": 1, "aligned": 1, "warnings": [], "seconds": {}, "runners_up": []}
    path_like = {"parent": "../../../etc", "parents": [{"id": "../../../etc", "name": "x"}]}
    other = to_json(zoos.net(3))
    return {
        "weights that are others": on("safetensors", lambda body: body[:-8] + b"\0" * 8),
        "weights that are more": on("safetensors", lambda body: body + b"\0" * 100),
        "weights that end": on("safetensors", lambda body: body[:100]),
        "another graph": on("/graph", lambda body: other),
        "no graph": on("/graph", lambda body: b'{"format": "modelkeeper.graph", "version": 99}'),
        "another program": on("/program", lambda body: b'"AAAA"'),
        "another model": in_record(id="0" * 16),
        "a huge size": in_record(bytes=10**15),
        "a larger size": in_record(bytes=9_000_000_000),
        "a negative size": in_record(bytes=-1),
        "a name that steers": in_record(name="\x1b[31mred\n"),
        "a checksum that is a path": in_record(checksum="../" * 20),
        "an id that is a path": on("/query", lambda body: json.dumps(answer | path_like).encode()),
        "nonsense": lambda path, body: b"<html>",
        "no JSON that ends": on("/query", lambda body: b"[" * 100_000),
    }


@pytest.mark.parametrize("lie", _lies())
def test_a_lie_is_a_cold_start(lie: str, tmp_path: Path) -> None:
    with opened(tmp_path / "partner") as partner:
        partner.register(GRAPH, zoos.told("theirs"), zoos.weights(GRAPH).items(), program=b"{}")
        with watched(partner, _lies()[lie]) as (url, there), opened(tmp_path / "ours", url) as ours:
            assert ours.query(GRAPH, ASKED).answer.cold
            assert there.requests
            assert ours.count(Filter(states=("active", "not_a_parent", "damaged"))) == 0
            asked = len(there.requests)
            assert ours.query(GRAPH, ASKED).answer.cold
            assert len(there.requests) == asked, "not again so soon"


def test_a_model_that_is_less_similar_than_was_said_is_not_fetched(tmp_path: Path) -> None:
    with opened(tmp_path / "partner") as partner:
        far = zoos.register(partner, zoos.net(2, 3, 4, 5, 6, 7, 8, 9), "far")

        def spoil(path: str, body: bytes) -> bytes:
            if path != "/v1/query":
                return body
            parent = {"id": far.id, "name": "far", "similarity": 1.0}
            return json.dumps(json.loads(body) | {"parent": far.id, "parents": [parent]}).encode()

        settings = {"minimum_similarity": 0.9}
        with watched(partner, spoil) as (url, there), opened(tmp_path / "ours", url, **settings) as ours:
            assert ours.query(GRAPH, ASKED).answer.cold
            assert any(path.endswith("/graph") for path in there.paths)
            assert not any("safetensors" in path for path in there.paths)


def test_a_query_goes_through_one_coordinator_unless_more_are_allowed(
    partner: LocalCoordinator, tmp_path: Path
) -> None:
    with watched(partner) as (far, _):
        for transitive in (False, True):
            folder, settings = tmp_path / str(transitive), {"upstream_transitive": transitive}
            with (
                opened(folder / "middle", far, **settings) as middle,
                watched(middle) as (near, there),
                opened(folder / "ours", near) as ours,
            ):
                assert ours.query(GRAPH, ASKED).answer.cold is not transitive
                assert all(headers[VIA] for _, headers, _ in there.requests)
                assert middle.count() == int(transitive)


def test_zoos_that_are_each_others_upstreams_ask_in_no_circle(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(contextlib.closing(listen(OPEN))) for _ in range(3)]
        urls = [address_of(listening) for listening in sockets]
        made = []
        for number, listening in enumerate(sockets):
            others = [url for url in urls if url != urls[number]]
            local = stack.enter_context(
                opened(tmp_path / str(number), *others, upstream_transitive=True, upstream_timeout=20.0)
            )
            application = Watched(local)
            serves = server(application)  # type: ignore[arg-type]
            thread = threading.Thread(target=serves.run, args=([listening],), daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(setattr, serves, "should_exit", True)
            made.append((local, application))
        assert made[0][0].query(GRAPH, ASKED).answer.cold
        asked = [headers[VIA].split(",") for _, app in made for _, headers, _ in app.requests]
        assert asked
        assert all(len(set(via)) == len(via) <= asking.MOST_HOPS for via in asked)
        assert len(asked) <= 9


def test_a_token_goes_to_its_address_and_rights_stay_each_sides_own(tmp_path: Path) -> None:
    with team(tmp_path / "partner") as partner:
        ada = partner.join("ada")
        for name, seen in (("open", "public"), ("hidden", "private")):
            ada.register(GRAPH, zoos.told(name, visibility=seen), zoos.weights(GRAPH).items())
        partner.coordinator.remove("open")
        zoos.register(partner.coordinator, zoos.net(6, 12), "open")
        file = tmp_path / "tokens"
        file.write_text(
            f"# partners\nhttps://zoo.other.org mk_other\n{partner.url} {partner.token('bob', 'read')}\n"
        )
        file.chmod(0o600)
        with opened(tmp_path / "ours", partner.url, upstream_tokens=str(file)) as ours:
            ours.accounts.add_project("vision")
            assert ours.query(GRAPH, ASKED).answer.parent_name == "open", "what bob may see there"
            assert ours.count() == 1
        with opened(tmp_path / "theirs", partner.url) as ours:  # without a token
            assert ours.query(GRAPH, ASKED).answer.cold
        kept = {"upstream_tokens": str(file), "upstream_project": "vision"}
        with opened(tmp_path / "project", partner.url, **kept) as ours:
            ours.accounts.add_project("vision")
            vision = ours.accounts.project_id("vision")
            assert not ours.query(GRAPH, ASKED).answer.cold
            assert ours.models(Filter(viewer=Viewer("stranger"))) == []
            assert len(ours.models(Filter(viewer=Viewer("member", (vision,))))) == 1


def test_models_of_upstreams_take_up_a_bounded_part(tmp_path: Path) -> None:
    graphs = [zoos.net(width, width) for width in (4, 8, 16)]
    with opened(tmp_path / "partner", minimum_similarity=0.9) as partner:
        sizes = [zoos.register(partner, graph, f"theirs{n}").bytes for n, graph in enumerate(graphs)]
        settings = {
            "upstream_capacity": sizes[1] + sizes[2],
            "minimum_similarity": 0.95,
            "minimum_benefit": 0.0,
        }
        with serving(partner, OPEN) as url, opened(tmp_path / "ours", url, **settings) as ours:
            own = zoos.register(ours, zoos.net(5, 6, 7), "own")
            for graph in graphs:
                assert not ours.query(graph, ASKED).answer.cold
            assert {record.name for record in ours.models()} == {"own", "theirs1", "theirs2"}
            assert [record.name for record in ours.models(Filter(states=(EVICTED,)))] == ["theirs0"]
            assert ours.query(graphs[0], ASKED).answer.parent_name == "theirs0", "under a new id"
            assert ours.show(own.id).state == "active"


def test_trials_that_ask_at_once_ask_once(partner: LocalCoordinator, tmp_path: Path) -> None:
    with watched(partner) as (url, there), opened(tmp_path / "ours", url, upstream_timeout=20.0) as ours:
        found: list[bool] = []
        threads = [
            threading.Thread(target=lambda: found.append(ours.query(GRAPH, ASKED).answer.cold))
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [False] * 6
        assert there.paths.count("/v1/query") == 1


def test_a_training_in_this_process_and_a_client_of_a_service_find_it_too(
    partner: LocalCoordinator, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    parent = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    with serving(partner, OPEN) as url:
        with modelkeeper.ModelKeeperClient(url, on_error="raise") as client:
            client.register_model(parent, {**META, "accuracy": 0.9}, example_inputs=torch.zeros(2, 6))
        child = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        home = str(tmp_path / "home")
        with modelkeeper.ModelKeeperClient(home, on_error="raise", upstreams=(url,)) as client:
            client.query_for_model(child, META, example_inputs=torch.zeros(2, 6))
        assert torch.equal(child[0].weight, parent[0].weight)
        with opened(tmp_path / "ours", url) as ours, serving(ours, OPEN) as near:
            remote = RemoteCoordinator(near, spool=tmp_path / "spool", timeout=20)
            assert dict(remote.query(GRAPH, ASKED).weights())
            remote.close()


def test_who_pins_a_key_takes_what_it_signed_and_nothing_else(tmp_path: Path) -> None:
    key, other = new_key(), new_key()
    sign = signing_with(key, owner="ada")
    with opened(tmp_path / "partner") as partner, serving(partner, OPEN) as url:
        zoos.register(partner, GRAPH, "unsigned", 0.99)
        with opened(tmp_path / "ours", f"{url} {key.public.line()}") as ours:
            assert ours.query(GRAPH, ASKED).answer.cold
        signed = partner.register(GRAPH, zoos.told("signed", 0.8), zoos.weights(GRAPH).items(), sign=sign)
        for pinned, found in ((other, None), (key, signed.record.id)):
            line = f"{url} {pinned.public.line()}"
            with opened(tmp_path / pinned.public.id[:8], line) as ours:
                assert ours.query(GRAPH, ASKED).answer.parent == found
                if found:
                    assert ours.show(found).signer == key.public.id
                    assert ours.signature(ours.show(found)) == partner.signature(signed.record)


META = {"data": "flowers", "task": "classification"}


@pytest.mark.parametrize(
    ("upstream", "problem"),
    [("zoo.partner.org", "give a URL"), ("http://zoo.partner.org", "https"), ("https://a:b@zoo", "scheme")],
)
def test_addresses_are_checked_at_once(upstream: str, problem: str) -> None:
    with pytest.raises(InvalidSetting, match=problem):
        LocalCoordinator(Settings(home=":memory:", upstreams=(upstream,)))


def test_a_file_of_tokens_is_its_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("https://zoo.partner.org mk_secret\n")
    file.chmod(0o600)
    settings = Settings.read(
        {"MODELKEEPER_UPSTREAMS": "https://zoo.partner.org  ed25519:" + "ab" * 32 + " , https://other.org"},
        upstream_tokens=str(file),
    )
    first, second = read_upstreams(settings)
    assert (first.url, first.token, len(first.key)) == ("https://zoo.partner.org", "mk_secret", 64)
    assert (second.url, second.token, second.key) == ("https://other.org", "", "")
    for spoil, problem in (
        (lambda: file.chmod(0o644), "chmod 600"),
        (lambda: file.write_text("https://zoo.partner.org\n"), "line 1"),
        (lambda: os.unlink(file), "cannot be read"),
    ):
        file.chmod(0o600)
        spoil()
        with pytest.raises(InvalidSetting, match=problem):
            read_upstreams(settings)


def test_what_arrived_is_not_fetched_again(partner: LocalCoordinator, tmp_path: Path) -> None:
    """A large model comes over several queries, if one is not enough."""
    theirs = partner.show("theirs")
    half = b"".join(partner.weights_bytes(theirs))[: theirs.bytes // 2]
    with watched(partner) as (url, there), opened(tmp_path / "ours", url) as ours:
        folder = ours.upload_folder() / f"upstream-{theirs.checksum[:32]}"
        folder.mkdir()
        (folder / "model.safetensors.part").write_bytes(half)
        assert ours.query(GRAPH, ASKED).answer.parent == theirs.id
        (sent,) = [headers["range"] for path, headers, _ in there.requests if "safetensors" in path]
        assert sent == f"bytes={len(half)}-"
