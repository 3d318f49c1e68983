"""Whom does `modelkeeper sync` send a token to, and what does `modelkeeper ui` open?"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import msgspec
import pytest
from click.testing import CliRunner

from modelkeeper.cli import accounts, main
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.remote import Spool
from modelkeeper.server.upload_store import MOST_OPEN
from modelkeeper.settings import Settings
from modelkeeper.zoo.accounts import holders
from tests.helpers.service import Team, network, team, tensors, told

GRAPH = network()


class Listening(HTTPServer):
    """A coordinator of somebody else, who writes down what it is told."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Listens)
        self.heard: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Listens(BaseHTTPRequestHandler):
    server: Listening

    def do_POST(self) -> None:
        self.server.heard.append(self.headers.get("authorization", ""))
        self.send_error(500)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def stranger() -> Iterator[Listening]:
    with Listening() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Team]:
    with team(tmp_path) as found:
        yield found


def sync(*options: str) -> tuple[int, list[dict[str, str]]]:
    result = CliRunner().invoke(main, ["sync", "--json", *options])
    return result.exit_code, json.loads(result.stdout)


def test_a_token_goes_where_it_belongs(
    keeper: Team, stranger: Listening, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was sent to whatever address an entry of the spool named."""
    spool, token = tmp_path / "waiting", keeper.token("ada")
    monkeypatch.setenv("MODELKEEPER_SPOOL", str(spool))
    monkeypatch.setenv("MODELKEEPER_TOKEN", token)
    monkeypatch.delenv("MODELKEEPER_URI", raising=False)
    weights = tensors(GRAPH)
    Spool(spool).keep(keeper.url, GRAPH, told("mine"), weights.items(), "", "", token=token)
    Spool(spool).keep(stranger.url, GRAPH, told("planted"), weights.items(), "", "")
    Spool(spool).keep(keeper.url, GRAPH, told("unsealed"), weights.items(), "", "")
    code, rows = sync()
    results = {row["name"]: row for row in rows}
    assert code == 1
    assert results["mine"]["sent"]
    for name in ("planted", "unsealed"):
        assert not results[name]["sent"]
        assert "modelkeeper sync --to " in results[name]["result"]
    assert stranger.heard == []
    code, rows = sync("--to", keeper.url)
    assert [row["name"] for row in rows if row["sent"]] == ["unsealed"]
    assert stranger.heard == []
    monkeypatch.setenv("MODELKEEPER_URI", stranger.url)  # the user says that it is theirs
    sync()
    assert set(stranger.heard) == {f"Bearer {token}"}


def test_what_is_no_address_is_said(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["sync", "--spool", str(tmp_path), "--to", "some/folder"])
    assert result.exit_code != 0


def test_what_dead_clients_began_does_not_block_what_waits(
    keeper: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After crashes 32 unfinished uploads of one user blocked `sync`: "32 models are being sent already"."""
    monkeypatch.setattr("modelkeeper.server.upload_store.base.IDLE", 0.5)
    spool, token = tmp_path / "waiting", keeper.token("ada")
    monkeypatch.setenv("MODELKEEPER_SPOOL", str(spool))
    monkeypatch.setenv("MODELKEEPER_TOKEN", token)
    sent = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    weights = tensors(GRAPH)
    for number in range(MOST_OPEN):
        entry = Spool(tmp_path / "dead").keep(
            keeper.url, GRAPH, told(f"dead {number}"), weights.items(), "", ""
        )
        body = msgspec.json.encode(entry.waiting.request)
        reply = httpx.post(f"{keeper.url}/v1/uploads", content=body, headers=sent)
        assert reply.status_code == 200
    Spool(spool).keep(keeper.url, GRAPH, told("mine"), weights.items(), "", "", token=token)
    code, [row] = sync()
    assert (code, row["result"]) == (0, "registered")
    assert Spool(spool).entries() == []


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(arguments))
    return result.exit_code, result.output


def test_a_project_with_a_member_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    home = ["--home", str(tmp_path / "zoo")]
    assert run("user", "add", "ada", *home)[0] == 0
    code, said = run("project", "add", "newp", "ada", "nobody", *home)
    assert code == 2
    assert "user cannot be 'nobody': there is none" in said
    assert "meta:" not in said
    assert json.loads(run("project", "list", "--json", *home)[1]) == []
    assert run("project", "add", "newp", "ada", *home)[0] == 0
    (listed,) = json.loads(run("project", "list", "--json", *home)[1])
    (user,) = json.loads(run("user", "list", "--json", *home)[1])
    assert (listed["members"], len(listed["id"]), len(user["id"])) == (["ada"], 16, 16)
    assert user["id"] in run("user", "list", *home)[1]
    assert " ada " in run("project", "list", *home)[1]  # a name, not a tuple
    assert run("user", "add", "ada", "--bytes", "50GB", *home)[0] == 0
    assert "50 GB" in run("user", "list", *home)[1]
    code, said = run("user", "give", "nobody", "ada", *home)
    assert (code, "nobody of that name" in said) == (2, True)


@pytest.mark.parametrize(
    "command", [("user", "list"), ("project", "list"), ("token", "list"), ("user", "remove", "x")]
)
def test_looking_makes_no_zoo(tmp_path: Path, command: tuple[str, ...]) -> None:
    code, said = run(*command, "--home", str(tmp_path / "nozoo"))
    assert (code, "there is no zoo" in said) == (1, True)
    assert not (tmp_path / "nozoo").exists()


def test_a_token_can_have_every_scope(tmp_path: Path) -> None:
    assert set(accounts.SCOPES) == set(holders.SCOPES)
    home = ("--home", str(tmp_path / "zoo"))
    assert CliRunner().invoke(main, ["user", "add", "org", *home]).exit_code == 0
    for scope in holders.SCOPES:
        made = CliRunner().invoke(main, ["token", "add", "org", "--scope", scope, *home])
        assert made.exit_code == 0, made.output
        assert made.stdout.startswith("mk_")


@pytest.mark.parametrize("options", [(), ("--no-browser",)])
def test_a_zoo_is_opened_in_the_browser(tmp_path: Path, options: tuple[str, ...]) -> None:
    home, opened = tmp_path / "zoo", tmp_path / "opened"
    local = LocalCoordinator(Settings(home=str(home)))
    local.register(GRAPH, told("a net"), tensors(GRAPH).items())
    local.close()
    script = tmp_path / "browser"
    script.write_text(f"#!/bin/sh\necho $1 > {opened}\n")
    script.chmod(0o755)
    command = [sys.executable, "-m", "modelkeeper", "ui", "--home", str(home), *options]
    environment = {**os.environ, "BROWSER": f"{script} %s"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        where = re.search(r"http://127\.0\.0\.1:\d+/ui", line)
        assert where is not None
        assert f"The zoo in {home} is at" in line
        page = httpx.get(where[0], headers={"accept": "text/html"}, follow_redirects=True, timeout=60)
        process.send_signal(signal.SIGINT)
        process.stderr.read()
    assert process.returncode == 0
    assert "a net" in page.text
    assert opened.exists() is not bool(options)
    if not options:
        assert opened.read_text().strip() == where[0]


@pytest.mark.parametrize("command", ["ui", "serve"])
def test_without_its_extra_a_service_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setitem(sys.modules, "modelkeeper.server.serve", None)
    monkeypatch.delattr("modelkeeper.server.serve", raising=False)
    result = CliRunner().invoke(main, [command, "--home", str(tmp_path / "zoo")])
    assert result.exit_code == 1
    assert 'which is not installed: pip install "modelkeeper[server]".' in result.stderr
    assert "modelkeeper error not_installed" in result.stderr


def test_a_typo_is_no_empty_zoo(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["ui", "--home", str(tmp_path / "nothing"), "--no-browser"])
    assert result.exit_code == 1
    assert "there is no zoo" in result.stderr
    assert "that takes --home by that or MODELKEEPER_HOME" in result.stderr
    assert not (tmp_path / "nothing").exists()
