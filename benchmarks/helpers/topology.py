"""The topology of deploy/compose.yaml as processes on this machine: PostgreSQL, S3, coordinators, nginx.

    with Topology(folder) as topology:
        RemoteCoordinator(topology.url, ...)       behind nginx, by TLS
        topology.replicas[0].stop(signal.SIGKILL)

Commands, environment and configuration are those of the files, but for addresses, ports and paths.
"""

import contextlib
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from tests.helpers.parts import (
    LOOPBACK,
    ObjectStore,
    Postgres,
    Proxy,
    Server,
    answers,
    certificate,
    free_ports,
    replaced,
    wait_until,
)

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
PROXY = (DEPLOY / "nginx-replicas.conf").read_text()
STORE_PROXY = (DEPLOY / "nginx-store.conf").read_text()
HOST = "localhost"  # the name that the service has here


def environment_of_compose(service: dict[str, Any], **changes: str) -> dict[str, str]:
    """What a service of the compose file gets, with the values of compose.env or others."""
    said = (DEPLOY / "compose.env").read_text()
    lines = [line for line in said.splitlines() if line and not line.startswith("#")]
    values = dict(line.split("=", 1) for line in lines) | changes
    return {
        name: re.sub(r"\$\{(\w+):[-?][^}]*\}", lambda found: values[found[1]], value)
        for name, value in service["environment"].items()
    }


class Replica(Server):
    """A coordinator: what the container runs, with the environment that compose gives it."""

    def __init__(self, home: Path, port: int, environment: dict[str, str]) -> None:
        [entry] = re.findall(r"^ENTRYPOINT (.*)$", (DEPLOY / "Containerfile").read_text(), re.M)
        name, *arguments = json.loads(entry)
        here = {"/zoo": str(home), "0.0.0.0": LOOPBACK}
        self._command = [sys.executable, "-m", name, *(here.get(word, word) for word in arguments)]
        self._command += ["--port", str(port)]
        self._environment = {**os.environ, **environment}
        self.url, self.log = f"http://{LOOPBACK}:{port}", home.with_suffix(".log")
        self.process: subprocess.Popen[bytes] | None = None
        self._away = threading.Lock()  # held while it is meant to be down

    def launch(self) -> None:
        """Start, and do not wait."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, env=self._environment, stdout=log, stderr=log)

    def start(self) -> None:
        """Start, and wait until it is ready."""
        self.launch()
        self.wait()

    def wait(self, revived: bool = False) -> None:
        """Wait until it is ready; if it ends before that, somebody else may start it again."""
        process = None if revived else self.process
        wait_until(lambda: answers(f"{self.url}/readyz"), f"the coordinator of {self.log}", process)

    @contextlib.contextmanager
    def down(self, sign: int) -> Iterator[None]:
        """Stop it for a block; then it is started, and nobody waits until it is ready."""
        with self._away:
            self.stop(sign)
            yield
            self.launch()

    def revive(self) -> None:
        """Start it if it has ended by itself, as `restart: unless-stopped` does."""
        if self._away.acquire(blocking=False):
            try:
                if self.process is not None and self.process.poll() is not None:
                    self.launch()
            finally:
                self._away.release()

    def stop(self, sign: int = signal.SIGKILL) -> None:
        """End it."""
        if self.process is not None:
            self.process.send_signal(sign)
            self.process.wait(120)


def store_blocks(front: int, store: int, certificates: Path) -> str:
    """The configuration of nginx before the store, for clients that go to port `front` of this machine."""
    return replaced(
        STORE_PROXY,
        **{
            "s3:8333": f"{LOOPBACK}:{store}",
            "listen 443 ssl": f"listen {LOOPBACK}:{front} ssl",
            "store.example.org": HOST,
            "/etc/ssl/keeper": str(certificates),
        },
    )


class Topology(Server):
    """All of it. `url` is where clients go, and `trust` the file of the certificate that they trust."""

    def __init__(self, folder: Path, replicas: int = 3) -> None:
        self._folder, (front, store_front, database, store, *ports) = folder, free_ports(4 + replicas)
        services = COMPOSE["services"]
        self.url, self.trust = f"https://{HOST}:{front}", str(folder / "keeper.pem")
        given = environment_of_compose(services["postgres"])
        self.postgres = Postgres(
            given["POSTGRES_USER"], given["POSTGRES_PASSWORD"], database, given["POSTGRES_DB"]
        )
        keys = environment_of_compose(services["s3"])
        command = [word for word in services["s3"]["command"] if not word.startswith(("-dir=", "-ip="))]
        self.store = ObjectStore(folder / "s3", command, keys, store)
        self.environment = {
            name: value.replace("@postgres:5432", f"@{LOOPBACK}:{database}").replace(
                "//s3:8333", f"//{LOOPBACK}:{store}"
            )
            for name, value in environment_of_compose(
                services["keeper-1"], KEEPER_HOSTS=HOST, STORE_HOST=f"{HOST}:{store_front}"
            ).items()
        }
        self.replicas = [
            Replica(folder / f"keeper-{number}", port, self.environment)
            for number, port in enumerate(ports, start=1)
        ]
        certificate(folder)
        blocks = self._blocks(front, ports) + store_blocks(store_front, store, folder)
        self.proxy = Proxy(blocks, folder / "nginx")

    def _blocks(self, front: int, ports: list[int]) -> str:
        """The configuration of nginx as it is, with the addresses that there are here."""
        named = re.findall(r"^( *server) keeper-[0-9]+:7433 (.*;)\n", PROXY, re.M)
        first, options = named[0]
        assert set(named) == {(first, options)}, "coordinators that are not alike"
        here = "".join(f"{first} {LOOPBACK}:{port} {options}\n" for port in ports)
        text = re.sub(r"(?:^ *server keeper-[0-9]+:7433 .*;\n)+", here, PROXY, flags=re.M)
        return replaced(
            text,
            **{
                "listen 443 ssl": f"listen {LOOPBACK}:{front} ssl",
                "keeper.example.org": HOST,
                "/etc/ssl/keeper": str(self._folder),
            },
        )

    def start(self) -> None:
        """Start the parts in the order that compose says."""
        with ThreadPoolExecutor(2) as both:
            for done in [both.submit(self.postgres.start), both.submit(self._start_store)]:
                done.result()
        for replica in self.replicas:
            replica.launch()
        for replica in self.replicas:
            replica.wait()
        self.proxy.start()
        wait_until(self._answers, "nginx")

    def _start_store(self) -> None:
        self.store.start()
        self.store.make_bucket(self.environment["MODELKEEPER_BLOBS"].split("/")[2])

    def _answers(self) -> bool:
        context = ssl.create_default_context(cafile=self.trust)
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5, context=context):
                return True
        except urllib.error.URLError:
            return False

    def stop(self) -> None:
        """Kill all of it."""
        self.proxy.stop()
        for replica in self.replicas:
            replica.stop()
        self.store.stop()
        self.postgres.remove()
