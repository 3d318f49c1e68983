"""Real parts that tests share: a PostgreSQL, where its programs are installed, and a store that speaks S3."""

import logging
import os
import pwd
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The folder of a socket that a PostgreSQL listens on; it lives as long as the tests."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    programs = versions[-1] if versions else None
    if programs is None and (on_path := shutil.which("initdb")):
        programs = Path(on_path).parent
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    user: str | None = None
    if os.geteuid() == 0:  # it refuses to run as root
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
        user = "postgres"
    folder = Path(tempfile.mkdtemp(prefix="mk-pg-", dir="/tmp"))  # sockets have short paths
    if user:
        shutil.chown(folder, user)

    def run(program: str, *arguments: str) -> None:
        command = [str(programs / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=folder, user=user)

    data = str(folder / "data")
    run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
    options = f"-k {folder} -c listen_addresses='' -c fsync=off -c max_connections=40"
    run("pg_ctl", "-D", data, "-o", options, "-l", str(folder / "log"), "-w", "start")
    try:
        yield str(folder)
    finally:
        run("pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres: str) -> Iterator[str]:
    """An empty database of its own."""
    import psycopg

    name = f"zoo_{os.urandom(4).hex()}"
    with psycopg.connect(host=postgres, user="postgres", dbname="postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield f"postgresql+psycopg://postgres@/{name}?host={postgres}"
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def object_store() -> Iterator[str]:
    """The URL of a server that speaks S3; it lives as long as the tests."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(object_store: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a place in an empty bucket; what it takes to reach it is in the environment."""
    name = f"zoo-{os.urandom(4).hex()}"
    urllib.request.urlopen(urllib.request.Request(f"{object_store}/{name}", method="PUT")).close()
    for key, value in {
        "AWS_ENDPOINT_URL": object_store,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }.items():
        monkeypatch.setenv(key, value)
    return f"s3://{name}/some/zoo"
