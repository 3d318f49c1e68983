"""The guard: what an error says to strangers, by status, headers and body."""

from pathlib import Path

import httpx
import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import DiskFull, ModelKeeperError, NotAuthenticated, TooManyRequests, ZooUnusable
from modelkeeper.server.guard import headers_of, public
from modelkeeper.server.ui import visitors
from modelkeeper.server.ui.rendering import POLICY
from modelkeeper.zoo.accounts.accounts import Accounts
from modelkeeper.zoo.accounts.sessions import Sessions
from tests.helpers.service import Team, team


def test_who_sends_no_token_is_asked_for_one(keeper: Team) -> None:
    reply = httpx.get(f"{keeper.url}/v1/models")
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"] == "Bearer"
    assert (reply.json()["error"], reply.json()["code"]) == ("NotAllowed", "not_authenticated")
    assert reply.json()["request"] == reply.headers["x-request-id"]


def test_who_may_not_do_it_is_not_asked_for_another_token(keeper: Team) -> None:
    token = {"authorization": f"Bearer {keeper.token('reader', 'read')}"}
    reply = httpx.post(f"{keeper.url}/v1/gc", headers=token)
    assert (reply.status_code, reply.json()["code"]) == (403, "not_allowed")
    assert "www-authenticate" not in reply.headers


def test_who_asks_too_often_is_told_when_to_come_back(keeper: Team) -> None:
    token = {"authorization": f"Bearer {keeper.token('eager', rate=0.5)}"}
    replies = [httpx.get(f"{keeper.url}/v1/count", headers=token) for _ in range(3)]
    assert [reply.status_code for reply in replies][::2] == [200, 429]
    assert 1 <= int(replies[-1].headers["retry-after"]) <= 3
    assert replies[-1].json()["code"] == "too_many_requests"


@pytest.mark.parametrize(("kind", "status"), [(ZooUnusable, 503), (DiskFull, 507)])
def test_a_catalog_that_fails_at_the_door_does_not_say_where_it_is(
    keeper: Team, monkeypatch: pytest.MonkeyPatch, kind: type[ZooUnusable], status: int
) -> None:
    def fails(self: Accounts, token: str) -> None:
        raise kind("/secret/path", "it broke", "Look at /secret/path.")

    monkeypatch.setattr(Accounts, "holder", fails)
    reply = httpx.get(f"{keeper.url}/v1/models", headers={"authorization": "Bearer mk_a"})
    assert (reply.status_code, reply.json()["code"]) == (status, kind.code)
    assert "/secret/path" not in reply.text


@pytest.mark.parametrize("path", ["/v1/models", "/v1/stats"])
def test_an_outage_takes_a_line_a_request(
    keeper: Team, path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Be it noticed at the door or behind it."""

    def fails(*_: object, **__: object) -> None:
        raise ZooUnusable("zoo/", "it is away", "Wait.") from OSError("refused\nby the host")

    token = {"authorization": f"Bearer {keeper.token('reader', 'read')}"}
    if path == "/v1/models":
        monkeypatch.setattr(Accounts, "holder", fails)
    else:
        monkeypatch.setattr(LocalCoordinator, "stats", fails)
    assert httpx.get(f"{keeper.url}{path}", headers=token).status_code == 503
    (line,) = [record for record in caplog.records if record.name == "modelkeeper.server"]
    assert line.exc_info is None
    assert "it is away" in line.getMessage()
    assert "refused by the host" in line.getMessage()


def test_words_decide_nothing() -> None:
    misleading: list[ModelKeeperError] = [
        NotAuthenticated("nobody is known by this", "Ask."),
        ZooUnusable("zoo/", "No space left on device, it says", "Look."),
        TooManyRequests("the token asks too often", "Wait.", "3"),
    ]
    assert [error.status for error in misleading] == [401, 503, 429]
    assert type(public(misleading[1])) is ZooUnusable
    assert "disk is full" not in str(public(misleading[1]))
    assert headers_of(misleading[2]) == {"retry-after": "4"}


@pytest.mark.parametrize("accept", ["text/html", "application/json"])
def test_a_browser_that_asked_for_a_page_is_refused_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accept: str
) -> None:
    def fails(self: Sessions, secret: str) -> None:
        raise ZooUnusable("/secret/path", "it broke", "Look.")

    with team(tmp_path, hosts="127.0.0.1") as keeper:
        line = httpx.Client(base_url=keeper.url, headers={"accept": accept})
        refused = {
            "elsewhere": line.get("/ui/models", headers={"host": "evil.example.org"}),
            "packed": line.get("/ui/models", headers={"content-encoding": "gzip"}),
            "foreign": line.post("/ui/login", headers={"origin": "http://evil"}, data={"token": "x"}),
        }
        monkeypatch.setattr(visitors, "RATE", 1e-6)
        refused["often"] = [line.get("/ui/login") for _ in range(3)][-1]
        monkeypatch.setattr(Sessions, "holder", fails)
        refused["broken"] = line.get("/ui/models", headers={"cookie": f"modelkeeper={'a' * 43}"})
        line.close()
    statuses = {name: reply.status_code for name, reply in refused.items()}
    assert statuses == {"elsewhere": 403, "packed": 415, "foreign": 403, "often": 429, "broken": 503}
    assert int(refused["often"].headers["retry-after"]) >= 1
    for reply in refused.values():
        assert reply.headers["content-type"].startswith(accept)
        assert reply.headers.get_list("content-security-policy") == [POLICY]
        assert (reply.headers["x-content-type-options"], reply.headers["cache-control"]) == (
            "nosniff",
            "no-store",
        )
        assert reply.headers["x-request-id"] in reply.text
        assert "/secret/path" not in reply.text
    said = refused["foreign"].text
    assert "was not sent by a page of this service" in said
    assert ("That did not work" in said) is (accept == "text/html")
