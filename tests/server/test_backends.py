"""The service as it runs at scale: real processes over PostgreSQL and a store that speaks S3."""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import msgspec
import numpy as np

from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.meta import Query
from tests.helpers.service import network, tensors, told
from tests.server.test_serve import process

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
        port = str(httpx.URL(service.url).port)
        with process(tmp_path / "one", *at_scale, "--port", port):
            late = ada.send(entry).record
            assert {record.id for record in ada.models()} == {first.id, late.id} | acknowledged
            swept = ada.gc(grace=0, verify=True)
            assert (swept.damaged, swept.folders) == ((), ())
            bob.remove(first.id)
            assert first.id not in {record.id for record in ada.models()}
            ada.close()
        bob.close()
