"""The service as it runs at scale: real processes over PostgreSQL and a store that speaks S3."""

import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import msgspec
import numpy as np

from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.coordinator.wire import UploadState
from modelkeeper.meta import Query
from tests.helpers.service import network, probe, tensors, told
from tests.server.test_serve import Process, process

GRAPH = network()
ASKED = Query(data="digits", task="classification")
WRITERS, EACH = 4, 3


def test_over_postgresql_and_s3(postgres_url: str, bucket: str, tmp_path: Path) -> None:
    """Register, query, download, write at once, be killed in an upload, go on, and lose nothing."""
    at_scale = ("--no-auth", "--catalog", postgres_url, "--blobs", bucket)
    with process(tmp_path / "one", *at_scale) as service, process(tmp_path / "two", *at_scale) as other:
        ada = RemoteCoordinator(service.url, spool=tmp_path / "spool", timeout=30)
        first = ada.register(GRAPH, told("first", 0.95), tensors(GRAPH).items()).record
        bob = RemoteCoordinator(other.url, spool=tmp_path / "spool", timeout=30)
        found = bob.query(GRAPH, ASKED)  # what one coordinator has registered, the other lends
        assert (found.answer.parent, found.answer.similarity) == (first.id, 1.0)
        lent = dict(found.weights())
        for name, array in tensors(GRAPH).items():
            np.testing.assert_array_equal(lent[name], array)
        assert not bob.query(network(12), ASKED).answer.cold
        bob.download(first, tmp_path / "file")
        assert (tmp_path / "file").stat().st_size == first.bytes

        def write(number: int) -> list[str]:
            line = RemoteCoordinator((service, other)[number % 2].url, spool=tmp_path / "spool", timeout=60)
            names = [f"{number}-{turn}" for turn in range(EACH)]
            done = [line.register(GRAPH, told(name), tensors(GRAPH, number).items()) for name in names]
            line.close()
            return [each.record.id for each in done]

        with ThreadPoolExecutor(WRITERS) as threads:
            acknowledged = {identity for ids in threads.map(write, range(WRITERS)) for identity in ids}
        assert len(acknowledged) == WRITERS * EACH
        entry = ada.spool.keep(service.url, GRAPH, told("late"), tensors(GRAPH, 9).items(), "", "")
        body = msgspec.json.encode(entry.waiting.request)
        client, json = ada._calls.client, {"content-type": "application/json"}
        client.post("/uploads", content=body, headers=json)
        client.put(f"/uploads/{entry.waiting.request.id}", content=entry.weights.read_bytes()[:1000])
        ada.close()
        service.stop(signal.SIGKILL)
        there = bob._calls.ask("GET", f"/uploads/{entry.waiting.request.id}", UploadState)
        assert there.offset == 1000, "what one has acknowledged, the other goes on from"
        late = bob.send(entry).record
        port = str(httpx.URL(service.url).port)
        with process(tmp_path / "one", *at_scale, "--port", port):
            assert {record.id for record in ada.models()} == {first.id, late.id} | acknowledged
            swept = ada.gc(grace=0, verify=True)
            assert (swept.damaged, swept.folders) == ((), ())
            bob.remove(first.id)
            assert first.id not in {record.id for record in ada.models()}
            ada.close()
        bob.close()


def test_three_that_start_at_once_act_as_one(postgres_url: str, bucket: str, tmp_path: Path) -> None:
    """On an empty catalog; one sweeps while two register; a fourth has a wrong store; the leader dies."""
    shared = ("--catalog", postgres_url)
    with ExitStack() as stack:
        with ThreadPoolExecutor(3) as threads:
            starting = [
                threads.submit(Process, tmp_path / name, *shared, "--blobs", bucket) for name in "abc"
            ]
            services = [each.result() for each in starting]
        for service in services:
            stack.callback(_stop, service)
        tokens = [found for service in services for found in re.findall(r"mk_\S+", service.said)]
        assert len(tokens) == 1, "of three at once one made the first account"
        lines = [
            RemoteCoordinator(each.url, token=tokens[0], spool=tmp_path / "spool", timeout=60)
            for each in services
        ]

        def register(line: RemoteCoordinator) -> list[str]:
            return [
                line.register(GRAPH, told(f"{line.url}-{turn}"), tensors(GRAPH, turn).items()).record.id
                for turn in range(4)
            ]

        with ThreadPoolExecutor(2) as threads:
            writing = [threads.submit(register, line) for line in lines[:2]]
            while not all(each.done() for each in writing):
                assert lines[2].gc(grace=0).damaged == ()
        acknowledged = {identity for each in writing for identity in each.result()}
        wrong = Process(tmp_path / "d", *shared, "--blobs", str(tmp_path / "elsewhere"))
        assert wrong.stop(0) != 0
        assert "is not the one that the catalog belongs to" in wrong.said
        swept = lines[2].gc(grace=0, verify=True)
        assert (swept.damaged, swept.folders) == ((), ())
        assert {record.id for record in lines[2].models()} == acknowledged
        probe(services[0].url)
        leader = str(lines[0].stats()["leader"])
        assert {str(line.stats()["leader"]) for line in lines} == {leader}
        (dies,) = [each for each in services if leader.endswith(f":{each.process.pid}")]
        dies.stop(signal.SIGKILL)
        left = next(line for line, each in zip(lines, services, strict=True) if each is not dies)
        end = time.monotonic() + 60
        while left.stats()["leader"] in ("", leader):
            assert time.monotonic() < end
            time.sleep(0.05)
        for line in lines:
            line.close()


def _stop(service: Process) -> None:
    if service.process.poll() is None:
        service.stop()
