"""Who may look, and who may change something by a page? Sessions, origins, and what a cookie opens not."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from modelkeeper.errors import NotAllowed
from modelkeeper.server.serve import serving
from modelkeeper.server.ui import visitors
from modelkeeper.settings import ServiceSettings
from modelkeeper.zoo.accounts import sessions
from tests.helpers.service import Team, network, team, tensors, told

HTML = {"accept": "text/html"}
HEX = "0123456789abcdef"


def own(url: str) -> dict[str, str]:
    """What a browser says of a form on a page of the service."""
    return {**HTML, "origin": url, "sec-fetch-site": "same-origin"}


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team(tmp_path_factory.mktemp("visitors")) as found:
        yield found


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests log in as often as they like."""
    monkeypatch.setattr(visitors, "LOGINS", 1e6)


@pytest.fixture
def line(keeper: Team) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=keeper.url, headers=HTML) as found:
        yield found


def log_in(line: httpx.Client, token: str, **headers: str) -> httpx.Response:
    asked = own(str(line.base_url).rstrip("/")) | headers
    return line.post("/ui/login", data={"token": token, "to": "/ui/log"}, headers=asked)


def test_a_session_opens_pages_and_nothing_else(keeper: Team, line: httpx.Client) -> None:
    reply = log_in(line, keeper.token("ada"))
    assert (reply.status_code, reply.headers["location"]) == (303, "/ui/log")
    words = reply.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/ui"} <= set(words)
    assert line.get("/ui/models").status_code == 200
    secret = line.cookies["modelkeeper"]
    for path in ("/v1/models", "/v1/me", "/metrics", "/openapi.json"):
        assert line.get(path, headers={"cookie": f"modelkeeper={secret}"}).status_code == 401
        bearer = {"authorization": f"Bearer {secret}"}
        assert line.get(path, headers=bearer).status_code == 401
    assert httpx.get(f"{keeper.url}/ui/models", headers=HTML).status_code == 303
    assert httpx.get(f"{keeper.url}/ui/models").status_code == 401  # a script is told so


def test_a_token_as_a_bearer_opens_no_page(keeper: Team, line: httpx.Client) -> None:
    reply = line.get("/ui/models", headers={"authorization": f"Bearer {keeper.token('bea')}"})
    assert reply.status_code == 303


def test_under_tls_the_cookie_is_bound_to_the_host(keeper: Team, line: httpx.Client) -> None:
    token = keeper.token("tess")
    host = httpx.URL(keeper.url).netloc.decode()
    reply = log_in(line, token, origin=f"https://{host}")
    name, _, rest = reply.headers["set-cookie"].partition("=")
    assert name == "__Host-modelkeeper"
    assert {"Secure", "Path=/", "HttpOnly", "SameSite=Strict"} <= set(rest.split("; "))
    assert "Domain" not in rest
    secret = rest.partition(";")[0]
    proxied = {"x-forwarded-proto": "https"}
    good = {"cookie": f"__Host-modelkeeper={secret}", **proxied}
    planted = {"cookie": f"modelkeeper={secret}", **proxied}
    assert httpx.get(f"{keeper.url}/ui/models", headers=HTML | good).status_code == 200
    assert httpx.get(f"{keeper.url}/ui/models", headers=HTML | planted).status_code == 303


def test_a_session_ends_with_its_token(keeper: Team, line: httpx.Client) -> None:
    token = keeper.token("rob")
    log_in(line, token)
    assert line.get("/ui/models").status_code == 200
    keeper.accounts.revoke(token.split("_")[1])
    assert line.get("/ui/models").headers["location"] == "/ui/login?to=/ui/models"


def test_a_session_ends_when_it_is_ended(keeper: Team, line: httpx.Client) -> None:
    log_in(line, keeper.token("lou"))
    secret = line.cookies["modelkeeper"]
    reply = line.post("/ui/logout", headers=own(keeper.url))
    assert "Max-Age=0" in reply.headers["set-cookie"]
    again = {**HTML, "cookie": f"modelkeeper={secret}"}
    assert httpx.get(f"{keeper.url}/ui/models", headers=again).status_code == 303


@pytest.mark.parametrize("seconds", [sessions.IDLE, sessions.LONGEST])
def test_a_session_does_not_last_for_ever(
    keeper: Team, line: httpx.Client, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(line, keeper.token("tim"))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + seconds - 3600)
    if seconds == sessions.LONGEST:  # it is used all the time
        for hour in range(0, int(seconds / 3600), 6):
            monkeypatch.setattr(time, "time", lambda hour=hour: now + 3600 * hour)
            assert line.get("/ui/health").status_code == 200
    monkeypatch.setattr(time, "time", lambda: now + seconds + 1)
    assert line.get("/ui/health").status_code == 303


def test_what_is_no_token_logs_nobody_in(keeper: Team, line: httpx.Client) -> None:
    for token in ("", "mk_0", f"mk_{HEX}_{'a' * 43}"):
        reply = log_in(line, token)
        assert reply.status_code == 401
        assert "set-cookie" not in reply.headers
        assert token not in reply.text or not token
    assert log_in(line, keeper.token("prom", "metrics")).status_code == 403


def test_attempts_to_log_in_are_few(
    keeper: Team, line: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visitors, "LOGINS", 1e-6)
    assert log_in(line, "mk_wrong").status_code in (401, 429)
    assert log_in(line, "mk_wrong").status_code == 429
    assert line.get("/ui/login").status_code == 200


def test_pages_have_a_rate_of_their_own(
    keeper: Team, line: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = keeper.token("max", rate=1e-6)
    log_in(line, token)
    assert {line.get("/ui/login").status_code for _ in range(10)} == {303}
    assert httpx.get(f"{keeper.url}/v1/me", headers={"authorization": f"Bearer {token}"}).status_code == 200
    assert httpx.get(f"{keeper.url}/v1/me", headers={"authorization": f"Bearer {token}"}).status_code == 429
    assert line.get("/ui/health").status_code == 200
    monkeypatch.setattr(visitors, "RATE", 1e-6)
    assert line.get("/ui/health").status_code in (200, 429)
    assert line.get("/ui/health").status_code == 429


@pytest.mark.parametrize(
    ("headers", "own_page"),
    [
        ({"host": "zoo:1", "origin": "http://zoo:1"}, True),
        ({"host": "zoo:1", "origin": "http://zoo:1", "sec-fetch-site": "same-origin"}, True),
        ({"host": "zoo", "origin": "https://zoo:8443", "sec-fetch-site": "same-origin"}, True),
        ({"host": "zoo:1"}, False),
        ({"host": "zoo:1", "origin": "null"}, False),
        ({"host": "zoo:1", "origin": "http://zoo:2"}, False),
        ({"host": "zoo:1", "origin": "http://evil"}, False),
        ({"host": "zoo:1", "origin": "http://zoo:1", "sec-fetch-site": "same-site"}, False),
        ({"host": "zoo:1", "origin": "http://evil", "sec-fetch-site": "same-origin"}, False),
        ({"host": "zoo:1", "sec-fetch-site": "cross-site"}, False),
        ({"host": "zoo:1", "sec-fetch-site": "none"}, False),
    ],
)
def test_what_changes_something_comes_from_a_page_of_ours(headers: dict[str, str], own_page: bool) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        if own_page:
            visitors.expect_own_page(method, headers)
        else:
            with pytest.raises(NotAllowed, match="was not sent by a page of this service"):
                visitors.expect_own_page(method, headers)
    visitors.expect_own_page("GET", headers)


def test_other_sites_change_nothing_where_nobody_logs_in(keeper: Team) -> None:
    record = keeper.join("ann").register(network(), told("mine"), tensors(network()).items()).record
    with serving(keeper.coordinator, ServiceSettings(port=0, auth=False)) as url:
        path = f"{url}/ui/models/{record.id}/pin"
        for headers in ({}, {"origin": "http://evil"}, {"origin": url, "sec-fetch-site": "cross-site"}):
            assert httpx.post(path, data={}, headers=HTML | headers).status_code == 403
        assert not keeper.coordinator.show(record.id).pinned
        assert httpx.post(path, data={"a": "b"}, headers=own(url)).status_code == 303
        assert keeper.coordinator.show(record.id).pinned
        assert httpx.get(f"{url}/", headers=HTML).headers["location"] == "/ui/models"
        assert httpx.get(f"{url}/").status_code == 404  # programs get what they got


def test_pages_change_what_their_visitor_may_change(keeper: Team, line: httpx.Client) -> None:
    mine = keeper.join("ola").register(network(), told("ola's"), tensors(network()).items()).record
    theirs = keeper.join("kim").register(network(), told("kim's"), tensors(network()).items()).record
    log_in(line, keeper.accounts.add_token("ola", "write"))

    def send(path: str) -> int:
        return line.post(path, data={"a": "b"}, headers=own(keeper.url)).status_code

    assert send(f"/ui/models/{mine.id}/pin") == 303
    assert send(f"/ui/models/{theirs.id}/pin") == 403
    assert send(f"/ui/models/{mine.id}/remove") == 403  # nobody said that they are sure
    assert send(f"/ui/models/{mine.id}/publish") >= 400
    log_in(line, keeper.accounts.add_token("ola", "read"))
    assert send(f"/ui/models/{mine.id}/unpin") == 403
    assert keeper.coordinator.show(mine.id).pinned


def test_secrets_are_nowhere_at_rest(keeper: Team, line: httpx.Client, tmp_path: Path) -> None:
    log_in(line, keeper.token("sam"))
    secret = line.cookies["modelkeeper"].encode()
    assert len(secret) == 43
    home = keeper.coordinator.settings.folder
    files = [path for path in home.rglob("*") if path.is_file()]
    assert any(path.name == "catalog.db" for path in files)
    assert not [path for path in files if secret in path.read_bytes()]


@pytest.mark.parametrize(
    "to", ["//evil", "http://evil", "/ui/../v1", "/ui\\evil", "/v1/models", "/ui/a b", ""]
)
def test_logging_in_leads_nowhere_else(keeper: Team, to: str) -> None:
    token = keeper.token("una")
    reply = httpx.post(f"{keeper.url}/ui/login", data={"token": token, "to": to}, headers=own(keeper.url))
    assert re.fullmatch(r"/ui(/[\w./?=-]*)?", reply.headers["location"])
