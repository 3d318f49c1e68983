"""Real parts that tests share: a PostgreSQL, where its programs are installed, and a store that speaks S3."""

import contextlib
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest

from tests.helpers.parts import Postgres, answers, free_ports, or_skip, wait_until


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The folder of a socket that a PostgreSQL listens on; it lives as long as the tests."""
    with or_skip():
        server = Postgres()
    with server:
        yield str(server.folder)


@contextlib.contextmanager
def empty_database(postgres: str) -> Iterator[str]:
    """The URL of an empty database, which is dropped at the end."""
    import psycopg

    name = f"zoo_{os.urandom(4).hex()}"
    with psycopg.connect(host=postgres, user="postgres", dbname="postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield f"postgresql+psycopg://postgres@/{name}?host={postgres}"
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def postgres_url(postgres: str) -> Iterator[str]:
    """An empty database of its own."""
    with empty_database(postgres) as url:
        yield url


@pytest.fixture(scope="session")
def object_store() -> Iterator[str]:
    """The URL of a server that speaks S3; it lives as long as the tests.

    In a process of its own: some tests ask what happens where no other thread runs.
    """
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers(url), "moto", server)
        yield url
    finally:
        server.kill()
        server.wait()


def empty_bucket(object_store: str) -> tuple[str, dict[str, str]]:
    """The URL of a place in an empty bucket, and what must be in the environment to reach it."""
    name = f"zoo-{os.urandom(4).hex()}"
    urllib.request.urlopen(urllib.request.Request(f"{object_store}/{name}", method="PUT")).close()
    return f"s3://{name}/some/zoo", {
        "AWS_ENDPOINT_URL": object_store,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }


@pytest.fixture
def bucket(object_store: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a place in an empty bucket; what it takes to reach it is in the environment."""
    url, environment = empty_bucket(object_store)
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    return url
