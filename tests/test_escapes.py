"""Does any text of others steer a terminal or a log? Every command and every error, with hostile text."""

import contextlib
import http.server
import io
import itertools
import json
import re
import threading
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import httpx
import msgspec
import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from modelkeeper import ModelKeeperClient, errors
from modelkeeper.cli import main
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.remote import RemoteCoordinator, Spool
from modelkeeper.coordinator.wire import to_problem
from modelkeeper.errors import ModelKeeperError
from modelkeeper.faults import Faults, KeeperWarning
from modelkeeper.graph import Graph
from modelkeeper.meta import Query
from modelkeeper.server.serve import _Lines
from modelkeeper.settings import Settings
from modelkeeper.warmstart.answer import Answer, Parent, Rival
from modelkeeper.zoo.database import rows, schema
from tests.helpers import zoos
from tests.helpers.service import Team, network, tensors, told
from tests.helpers.service import team as serving_team
from tests.test_errors import EXAMPLES

EVIL = "\x1b]0;owned\x07\x1b[31m\x9b2J\u202e\u200b\u2028\x08\r\nfake line"
ROOT = Path(__file__).parents[1]
ID = "0123456789abcdef"


def clean(text: str) -> bool:
    """Holds it nothing that steers a terminal?"""
    wrong = {letter for letter in text if letter != "\n" and not letter.isprintable()}
    assert not wrong, f"{wrong!r} in {text[:2000]!r}"
    return True


def steered(value: Any) -> Any:
    """The same value with hostile text wherever there is text."""
    if isinstance(value, str):
        return EVIL
    return tuple(map(steered, value)) if isinstance(value, tuple) else value


# -- errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda error: type(error).__name__)
def test_no_error_steers_a_terminal(example: ModelKeeperError) -> None:
    error = type(example)(*steered(example.args))
    assert clean(str(error))
    assert clean("".join(traceback.format_exception(error)))
    assert clean(f"{error!r}")
    with pytest.warns(KeeperWarning) as caught, Faults("cold").guard("It starts cold"):
        raise RuntimeError(str(EVIL)) from error
    assert "\n" not in str(caught[0].message)
    assert clean(str(caught[0].message))


def test_warnings_are_given_at_few_places_which_clean_them() -> None:
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = path.read_text()
        for call in re.findall(r"warnings\.warn\((.*)", text):
            assert call.startswith(("one_line(", "text,")), f"{path}: {call}"
        if path.name not in ("logs.py", "serve.py", "sparing_log.py"):
            assert "logging.getLogger" not in text, f"{path}: use modelkeeper.logs.logger"


# -- what is printed ----------------------------------------------------------------------------------


def hostile_answer() -> Answer:
    parent = Parent(id=ID, name=EVIL, similarity=0.9, metric=EVIL, value=0.9, data=EVIL, framework=EVIL)
    rival = Rival(id=ID, name=EVIL, similarity=0.5, metric=EVIL, value=0.5, framework=EVIL, why=EVIL)
    return Answer(
        parent=ID,
        parent_name=EVIL,
        reason=EVIL,
        metric=EVIL,
        data=EVIL,
        framework=EVIL,
        parents=(parent, parent),
        similarity=0.9,
        value=0.9,
        exact=False,
        doubts=(EVIL,),
        warnings=(EVIL,),
        runners_up=(rival,),
        actions={
            EVIL: {"tensors": 1, "layers": 1, "parameters": 1, "percent": 1.0, "percent_of_layers": 1.0}
        },
        seconds={EVIL: 0.1},
    )


def test_an_answer_that_is_printed() -> None:
    answer = hostile_answer()
    assert clean(str(answer))
    assert clean(repr(answer))
    page = answer._repr_html_()
    assert clean(re.sub(r"\s", " ", page))
    assert clean(json.dumps(answer.to_dict()))


# -- every command ------------------------------------------------------------------------------------


def commands(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands, and where they are."""
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), name)
            assert found is not None
            yield from commands(found, (*path, name))
    else:
        yield path, command


COMMANDS = dict(commands(main))


def poisoned(folder: Path) -> LocalCoordinator:
    """A zoo in which all text is hostile, as if whoever can write there had let it in."""
    coordinator = LocalCoordinator(Settings(home=str(folder)))
    first = zoos.register(coordinator, zoos.net(4, 4), "net", 0.9)
    zoos.register(coordinator, zoos.net(4, 8), "child", 0.9, parent=first.id, tags=["a"])
    accounts = coordinator.accounts
    accounts.add_user("ada")
    accounts.add_token("ada", "write", note="note")
    accounts.join(accounts.add_project("vision"), "ada")
    kept = {
        "state",
        "visibility",
        "fingerprint",
        "graph",
        "checksum",
        "program",
        "parent",
        "run",
        "twin",
        "attempt",
        "id",
    }
    with coordinator.zoo.catalog.database.writing() as connection:
        for table in (schema.models, schema.events, schema.users, schema.projects, schema.tokens):
            keys = {*kept, *(column.name for column in table.primary_key), "seal", "digest", "user", "model"}
            keys |= {column.name for column in table.columns if column.name.endswith("_id")}
            texts = [
                column.name
                for column in table.columns
                if isinstance(column.type, sa.String) and column.name not in keys
            ]
            connection.execute(table.update().values(dict.fromkeys(texts, EVIL)))
        poison = {"tags": [EVIL], "metrics": {EVIL: 0.5}}
        connection.execute(schema.models.update().values(poison))
        rows.reseal(connection)
    return coordinator


MODULE = f"""
from torch import nn
def net():
    class Net(nn.Sequential): pass
    Net.__name__ = Net.__qualname__ = {EVIL!r}
    return Net(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
def broken():
    raise ValueError({EVIL!r})
"""


@pytest.fixture(scope="module")
def poisoned_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("escapes")
    coordinator = poisoned(home / "zoo")
    assert all(record.name == EVIL for record in coordinator.models())
    coordinator.close()
    (home / "evil_models.py").write_text(MODULE)
    (home / f"{EVIL.replace(chr(0), '')[:60]}.pt".replace("/", "")).write_bytes(b"no model")
    spool = Spool(home / "spool")
    spool.keep("http://127.0.0.1:9", network(), told(), tensors(network()).items(), "", "")
    return home


def calls_of(command: click.Command) -> Iterator[list[str]]:
    """Calls of a command: as it is meant, and with hostile text for each of its parameters in turn."""
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    options = [each for each in command.params if isinstance(each, click.Option)]
    for words in ([EVIL], [ID], ["evil_models:net"], ["evil_models:broken"], ["."]):
        yield [*itertools.chain.from_iterable(words * max(1, each.nargs) for each in arguments)]
    plain = ["evil_models:net" if each.name in ("model", "factory") else "x" for each in arguments]
    yield [*plain, EVIL]  # one too many
    for option in options:
        if option.is_flag:
            yield [*plain, option.opts[-1]]
        else:
            yield [*plain, option.opts[-1], EVIL]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_no_command_lets_text_steer_a_terminal(
    path: tuple[str, ...], poisoned_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(poisoned_home)
    monkeypatch.syspath_prepend(str(poisoned_home))
    monkeypatch.setenv("MODELKEEPER_URI", "zoo")
    monkeypatch.setenv("MODELKEEPER_HOME", "zoo")
    monkeypatch.setenv("MODELKEEPER_SPOOL", "spool")
    monkeypatch.setattr("modelkeeper.server.serve.run", lambda *arguments: None)
    monkeypatch.setattr("modelkeeper.coordinator.remote.calls.PAUSES", ())
    # Frameworks are imported by processes of their own, which takes long and has no text of the zoo.
    monkeypatch.setattr("modelkeeper.cli.doctor_installed._DEVICES", {})
    ids = [record.id for record in LocalCoordinator(Settings(home="zoo")).models()]
    calls = [[*path, *call] for call in calls_of(COMMANDS[path])]
    calls += [[word.replace(ID, ids[0]) for word in call] for call in calls if ID in call]
    for call in calls:
        ran(call)


def ran(call: list[str]) -> str:
    """What a command prints, on both ways, which must be clean however it ends."""
    seen = io.StringIO()
    with contextlib.redirect_stderr(seen), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = CliRunner().invoke(main, call, color=True)
    assert result.exception is None or isinstance(result.exception, SystemExit), (call, result.exc_info)
    bundle = call[0] == "export" and result.exit_code == 0  # a tar on standard output, for a file or a pipe
    assert clean((result.stderr if bundle else result.output) + seen.getvalue()), call
    return str(result.output)


def test_groups_and_what_is_no_command() -> None:
    for call in ([EVIL], [f"--{EVIL}"], ["user", EVIL], ["models", f"--{EVIL}"], ["models", f"--{EVIL}=x"]):
        ran(call)


# -- a hostile service --------------------------------------------------------------------------------


class Hostile(http.server.ThreadingHTTPServer):
    """Answers everything with the next of its replies."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.reply, self.reason = (500, b""), "so"
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Answers(http.server.BaseHTTPRequestHandler):
    server: Hostile

    def handle_any(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        status, body = self.server.reply
        self.send_response_only(status, self.server.reason)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815  # as http.server calls them

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def hostile() -> Iterator[Hostile]:
    with Hostile() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def hostile_replies() -> Iterator[tuple[int, bytes]]:
    for example in EXAMPLES:
        if example.status not in (429, 500, 503):  # what is tried again
            problem = to_problem(type(example)(*steered(example.args)))
            yield example.status, msgspec.json.encode(msgspec.structs.replace(problem, message=EVIL))
    yield (
        422,
        msgspec.json.encode({"error": EVIL, "code": EVIL, "message": EVIL, "request": EVIL, "fields": []}),
    )
    yield 200, msgspec.json.encode({EVIL: EVIL})
    yield 200, msgspec.json.encode([EVIL])
    yield 200, EVIL.encode()
    yield 404, EVIL.encode()


@pytest.mark.parametrize("number", range(len(list(hostile_replies()))))
def test_no_reply_of_a_service_steers_a_terminal(
    hostile: Hostile, tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modelkeeper.coordinator.remote.calls.PAUSES", ())
    _, body = hostile.reply = list(hostile_replies())[number]
    hostile.reason = "\x1b[31m" if body == EVIL.encode() else "so"
    coordinator = RemoteCoordinator(hostile.url, spool=tmp_path, timeout=10)
    graph: Graph = network()
    asks = (
        lambda: coordinator.query(graph, Query()),
        lambda: coordinator.models(),
        lambda: coordinator.show("net"),
        lambda: coordinator.stats(),
        lambda: coordinator.log(),
        lambda: coordinator.register(graph, told(), tensors(graph).items()),
    )
    for ask in asks:
        shown = ""
        try:
            ask()
        except ModelKeeperError as problem:
            shown = "".join(traceback.format_exception(problem))
        assert clean(shown)
    coordinator.close()
    for call in (["models"], ["show", "net"], ["stats"], ["log"], ["remove", "net"], ["gc"], ["tree", "net"]):
        ran([*call, "--zoo", hostile.url])


def test_a_client_warns_in_clean_lines(hostile: Hostile, tmp_path: Path) -> None:
    nn = pytest.importorskip("torch").nn
    problem = to_problem(errors.NotAllowed(EVIL, EVIL))
    hostile.reply, hostile.reason = (403, msgspec.json.encode(problem)), "so"
    client = ModelKeeperClient(hostile.url, spool=str(tmp_path))
    with pytest.warns(KeeperWarning) as caught:
        _, meta = client.query_for_model(nn.Sequential(nn.Linear(4, 3)), {"data": "x"})
    assert clean(str(meta))
    for warning in caught:
        assert clean(str(warning.message))
        assert "\n" not in str(warning.message)


# -- the log of a service -----------------------------------------------------------------------------


def test_the_log_of_a_service(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: Any, **options: Any) -> Any:
        raise ValueError(EVIL)

    caplog.handler.setFormatter(_Lines("%(message)s"))
    with caplog.at_level("INFO"), serving_team(tmp_path) as keeper:
        sent = {"authorization": f"Bearer {keeper.token('ada')}"}
        with httpx.Client(base_url=keeper.url, headers=sent) as client:
            client.get("/v1/find", params={"name": EVIL})
            client.get("/%1b%5b31m%0afake%20line/\u202e")
            monkeypatch.setattr(LocalCoordinator, "stats", fails)
            assert client.get("/v1/stats").status_code == 500
            monkeypatch.setattr(LocalCoordinator, "count", lambda *_: fails_known())
            assert client.get("/v1/count").status_code == 503
        _raw(keeper)
    assert clean(caplog.text)
    for line in caplog.text.splitlines():
        assert not line.startswith("fake") or "Traceback" in caplog.text


def fails_known() -> None:
    raise errors.ZooUnusable(EVIL, EVIL, EVIL)


def _raw(keeper: Team) -> None:
    import socket

    where = httpx.URL(keeper.url)
    for said in (
        b"G\x1bT / HTTP/1.1\r\n\r\n",
        b"GET /\x1b[31m HTTP/1.1\r\nhost: x\r\n\r\n",
        b"\x1b]0;x\x07\r\n\r\n",
    ):
        with socket.create_connection((where.host, where.port), timeout=10) as line:
            line.sendall(said)
            line.recv(1000)
