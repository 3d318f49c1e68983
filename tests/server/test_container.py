"""deploy/Containerfile, step by step in a folder and a fresh environment; by a builder where one is at hand.

The steps install what a service runs on and compile the native module, so they run where ALL_PARTS is set, as
.ci/run does. A builder (buildah or podman) needs the base image, too: from its own store, or from a registry.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.helpers.parts import free_ports
from tests.helpers.service import probe

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "Containerfile"
STEPS: list[tuple[str, str]] = re.findall(r"^([A-Z]+) (.*)$", FILE.read_text(), re.M)
PULLING = 120.0  # seconds for a registry to deliver the base image


def only(instruction: str) -> str:
    [found] = [text for name, text in STEPS if name == instruction]
    return found


def copy(source: str, target: Path) -> None:
    """As COPY does it. Of the whole tree: what is in git, less what .dockerignore names."""
    if source != ".":
        shutil.copy(ROOT / source, target)
        return
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    ignored = tuple(f"{line}/" for line in lines if line and not line.startswith("#"))
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file() and not f"{name}/".startswith(ignored):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)


def shell(text: str, root: Path, variables: dict[str, str]) -> None:
    """As RUN does it, but for where / is and for who may do what."""
    if text.startswith("apt-get"):
        packages = text.partition("--no-install-recommends")[2].partition("&&")[0].split()
        assert [name for name in packages if shutil.which(name) is None] == []  # g++ is called as its package
    elif text.startswith("useradd"):
        assert text.endswith("install --directory --owner keeper --mode 700 /zoo")
        (root / "zoo").mkdir(mode=0o700)
    else:
        assert text.startswith("pip install "), "a step that this test does not know"
        line = re.sub(r"(?<= )/(?=requirements\.txt$|src$)", f"{shlex.quote(str(root))}/", text)
        done = subprocess.run(["sh", "-ec", line], env=variables, cwd=root, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@contextmanager
def started(command: list[str], port: int, variables: dict[str, str] | None = None) -> Iterator[str]:
    """A service that was told to listen at a port; it is ended as a container is, by SIGTERM."""
    with subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True) as service:
        assert service.stderr is not None
        try:
            before = []
            for line in service.stderr:
                before.append(line)
                if " listens at " in line:
                    break
            else:
                pytest.fail("".join(before))
            probe(f"http://127.0.0.1:{port}")
            yield f"http://127.0.0.1:{port}"
        finally:
            service.terminate()
            _, said = service.communicate(timeout=120)
            print(said)


def healthy(python: list[str], port: int) -> bool:
    check = only("HEALTHCHECK").removeprefix("CMD python ").replace(":7433/", f":{port}/")
    return (
        subprocess.run([*python, *shlex.split(check)], timeout=60, stderr=subprocess.DEVNULL).returncode == 0
    )


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("ALL_PARTS"), reason="two minutes of installing: ALL_PARTS=1 runs it")
def test_its_steps_give_a_service(tmp_path: Path) -> None:
    [version] = re.findall(r"^python:(\d+\.\d+)-slim$", only("FROM"))
    if version != f"{sys.version_info.major}.{sys.version_info.minor}":
        pytest.skip(f"the container has Python {version}")
    root = tmp_path / "container"
    venv.create(root / "environment", with_pip=True)
    programs = root / "environment" / "bin"
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    variables["PATH"] = f"{programs}{os.pathsep}{variables['PATH']}"
    for name, text in STEPS:
        if name == "COPY":
            source, target = shlex.split(text)
            copy(source, root / target.lstrip("/"))
        elif name == "RUN":
            shell(text, root, variables)
    shutil.rmtree(root / "src")  # so that nothing is taken from there
    [port] = free_ports(1)
    program, *options = json.loads(only("ENTRYPOINT"))
    options = [option.replace("/zoo", str(root / "zoo")) for option in options]
    with started([str(programs / program), *options, "--port", str(port)], port, variables) as url:
        assert httpx.get(f"{url}/ui/login").status_code == 200
        assert healthy([str(programs / "python")], port)
    assert not healthy([str(programs / "python")], port)
    assert (root / "zoo" / "catalog.db").exists()


def builder() -> str:
    """buildah or podman, with the base image in its store."""
    program = shutil.which("buildah") or shutil.which("podman")
    if program is None:
        pytest.skip("neither buildah nor podman is installed")
    command = [program, "pull", "-q", *(["--policy", "missing"] if program.endswith("buildah") else [])]
    try:
        pulled = subprocess.run([*command, only("FROM")], capture_output=True, text=True, timeout=PULLING)
    except subprocess.TimeoutExpired:
        pytest.skip(f"no registry delivers {only('FROM')} in time")
    if pulled.returncode:
        pytest.skip(f"{only('FROM')} cannot be had: {pulled.stderr.strip().splitlines()[-1]}")
    return program


def said(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout.strip()


@pytest.mark.skipif(not os.environ.get("ALL_PARTS"), reason="an image is built: ALL_PARTS=1 runs it")
def test_a_builder_makes_an_image_that_serves() -> None:
    """With chroot as its isolation, which needs no privileges beyond those of a build."""
    program, image = builder(), f"modelkeeper-test-{os.getpid()}"
    said(program, "build", "--isolation", "chroot", "-f", FILE, "-t", image, ROOT)
    [port] = free_ports(1)
    container = ""
    try:
        if program.endswith("podman"):
            command = [program, "run", "--rm", "--network", "host", image, "--port", str(port)]
        else:
            container = said(program, "from", "--pull-never", image)
            entry = [*json.loads(only("ENTRYPOINT")), "--port", str(port)]
            command = [program, "run", "--isolation", "chroot", container, "--", *entry]
        with started(command, port) as url:
            assert httpx.get(f"{url}/ui/login").status_code == 200
            assert healthy([sys.executable], port)
    finally:
        if container:
            said(program, "rm", container)
        said(program, "rmi", image)
