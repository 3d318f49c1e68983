"""What is fuzzed: each target takes the n-th hostile thing, and says in a word what became of it.

    with TARGETS["programs"]() as one:
        one(17)                "ran", "refused", ...; whatever is raised here is a fault of ours

Targets: programs in their process apart; graphs; safetensors; bodies that a service gets, and its replies.
"""

import json
import os
import random
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np

from benchmarks.helpers.fuzzed_room import Shared
from benchmarks.helpers.hostile_bytes import spoilt, spoilt_json
from benchmarks.helpers.hostile_programs import EXAMPLES, WIDTH, hostile_program
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.coordinator.wire import QueryRequest, UploadRequest, WeightsRequest, to_problem
from modelkeeper.errors import (
    CannotCalibrate,
    InvalidGraph,
    InvalidProgram,
    InvalidWeights,
    ModelKeeperError,
    UnknownModel,
)
from modelkeeper.frontends.programs.program import Program
from modelkeeper.graph import from_json, to_json
from modelkeeper.meta import Query
from modelkeeper.server.serve import serving
from modelkeeper.settings import ServiceSettings, Settings
from modelkeeper.weights import Header, open_file, stream
from modelkeeper.zoo.zoo import stored_tensors
from tests.helpers.service import network, tensors, told

One = Callable[[int], str]
SECONDS = 20.0  # that the programs of a room may take
ID = "0123456789abcdef"


@contextmanager
def programs() -> Iterator[One]:
    """Programs in rooms, and all that is asked of a parent when its child is calibrated."""
    from modelkeeper.frontends.torch.run_program import ENGINE

    inputs = np.linspace(-2, 2, EXAMPLES * WIDTH, dtype=np.float32).reshape(EXAMPLES, WIDTH)

    def one(number: int) -> str:
        try:
            program = Program.from_bytes(hostile_program(number))
        except InvalidProgram:
            return "refused when read"
        last, ran = program.outputs[0], False
        try:
            parent = shared.parent(number, program)
            parent.try_out(EXAMPLES)
            ran = True
            parent.pivots(EXAMPLES, [("last", 0)])
            parent.begin([np.arange(3), np.arange(3, EXAMPLES)])
            parent.keep([last])
            parent.shape(last)
            parent.value(1, last)
            parent.release(last)
            parent.output(0)
        except (InvalidProgram, CannotCalibrate) as problem:
            ending = _ending(problem, ran)
            if ending.startswith("ended"):
                shared.close()
            return ending
        return "ran"

    with ExitStack() as stack:
        shared = Shared(ENGINE, inputs, hostile_program, SECONDS, stack)
        yield one


def _ending(problem: ModelKeeperError, ran: bool) -> str:
    text = str(problem)
    if died := re.search(r"it ended the process that ran it \(([A-Za-z0-9 ]+)", text):
        return f"ended its process: {died[1].strip()}"
    if "took longer than" in text:
        return "ended: took too long"
    if "process" in text:
        return "ended: other"
    return "refused: no value that can be used" if ran else "refused by shapes or by the framework"


@contextmanager
def graphs() -> Iterator[One]:
    """Graphs as JSON."""
    document = json.loads(to_json(network()))

    def one(number: int) -> str:
        try:
            from_json(spoilt_json(document, random.Random(f"graph/{number}")))
        except InvalidGraph:
            return "refused"
        return "taken"

    yield one


@contextmanager
def safetensors() -> Iterator[One]:
    """Files of weights: every tensor is read."""
    graph = network()
    header = Header.of(stored_tensors(graph), {"format": "pt"})
    whole = b"".join(bytes(piece) for piece in stream(header, tensors(graph).items()))
    length = int.from_bytes(whole[:8], "little")
    table, numbers = json.loads(whole[8 : 8 + length]), whole[8 + length :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"

        def one(number: int) -> str:
            chance = random.Random(f"safetensors/{number}")
            data = spoilt(whole[: 8 + length], chance) + numbers
            if chance.random() < 0.7:
                text = spoilt_json(table, chance)
                claimed = len(text) + chance.choice((0, 0, 0, 0, 0, 1, -1, 2**40))
                data = (
                    max(0, claimed).to_bytes(8, "little")
                    + text
                    + numbers[: chance.choice((None, None, -1, 0))]
                )
            path.unlink(missing_ok=True)
            path.write_bytes(data)
            try:
                weights = open_file(path)
                for name in weights:
                    weights[name].sum()
            except InvalidWeights:
                return "refused"
            return "taken"

        yield one


@contextmanager
def bodies() -> Iterator[One]:
    """Bodies of requests to a real service: it answers, and never with an error of its own."""
    graph = network()
    raw = msgspec.Raw(to_json(graph))
    upload = UploadRequest(id=ID, graph=raw, registration=told(), size=1000, checksum="0" * 64)
    asked = {
        "/v1/query": QueryRequest(graph=raw, query=Query(data="digits")),
        "/v1/weights": WeightsRequest(graph=raw, parent=ID),
        "/v1/uploads": upload,
    }
    documents = {path: json.loads(msgspec.json.encode(value)) for path, value in asked.items()}
    with tempfile.TemporaryDirectory() as folder:
        local = LocalCoordinator(Settings(home=folder))
        local.register(graph, told(), tensors(graph).items(), model_id=ID)
        with serving(local, ServiceSettings(port=0, auth=False, rate=1e6)) as url, httpx.Client() as line:

            def one(number: int) -> str:
                chance = random.Random(f"body/{number}")
                path = list(documents)[number % len(documents)]
                body = spoilt_json(documents[path], chance)
                headers = {"content-type": "application/json"}
                status = line.post(url + path, content=body, headers=headers, timeout=60).status_code
                if status >= 500:
                    raise AssertionError(f"{path} answered {status} to {body[:2000]!r}")
                return "taken" if status < 300 else "refused"

            yield one
        local.close()


@contextmanager
def replies() -> Iterator[One]:
    """Replies of a service that lies: a client gets a value, or one of our errors."""
    graph = network()
    with tempfile.TemporaryDirectory() as folder:
        local = LocalCoordinator(Settings(home=f"{folder}/zoo"))
        local.register(graph, told(), tensors(graph).items(), model_id=ID)
        answer = local.query(graph, Query(data="digits")).answer
        truth: dict[str, tuple[int, Any]] = {
            "query": (200, answer),
            "show": (200, local.show(ID)),
            "models": (200, list(local.models())),
            "tree": (200, local.tree(ID)),
            "stats": (200, local.stats()),
            "log": (200, list(local.log())),
            "graph": (200, msgspec.Raw(to_json(graph))),
            "remove": (404, to_problem(UnknownModel("x", ()))),
        }
        said = {
            name: (status, json.loads(msgspec.json.encode(value))) for name, (status, value) in truth.items()
        }
        reply = httpx.Response(500)
        remote = RemoteCoordinator("http://keeper", spool=f"{folder}/spool", timeout=1)
        calls = remote._calls
        calls._client = httpx.Client(
            base_url="http://keeper", transport=httpx.MockTransport(lambda request: reply)
        )
        calls._process = os.getpid()
        record = truth["show"][1]
        asks: dict[str, Callable[[], object]] = {
            "query": lambda: remote.query(graph, Query()).answer.to_dict(),
            "show": lambda: remote.show(ID),
            "models": lambda: list(remote.models()),
            "tree": lambda: remote.tree(ID),
            "stats": remote.stats,
            "log": remote.log,
            "graph": lambda: remote.graph(record),
            "remove": lambda: remote.remove(ID),
        }

        def one(number: int) -> str:
            nonlocal reply
            chance = random.Random(f"reply/{number}")
            name = list(said)[number % len(said)]
            status, document = said[name]
            reply = httpx.Response(
                chance.choice((status, status, status, 200, 422)), content=spoilt_json(document, chance)
            )
            try:
                asks[name]()
            except ModelKeeperError as problem:
                str(problem)
                return "refused"
            return "taken"

        yield one
        remote.close()
        local.close()


TARGETS: dict[str, Callable[[], AbstractContextManager[One]]] = {
    "programs": programs,
    "graphs": graphs,
    "safetensors": safetensors,
    "bodies": bodies,
    "replies": replies,
}
