"""What the tests of the zoo share: a real PostgreSQL, where its programs are installed."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The folder of a socket that a PostgreSQL listens on; it lives as long as the tests."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    programs = found[-1] if found else None
    if programs is None and (on_path := shutil.which("initdb")):
        programs = Path(on_path).parent
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    as_other: dict[str, str] = {}
    if os.geteuid() == 0:  # it refuses to run as root
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
        as_other = {"user": "postgres"}
    folder = Path(tempfile.mkdtemp(prefix="mk-pg-", dir="/tmp"))  # sockets have short paths
    if as_other:
        shutil.chown(folder, "postgres")

    def run(program: str, *arguments: str) -> None:
        command = [str(programs / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=folder, **as_other)

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
