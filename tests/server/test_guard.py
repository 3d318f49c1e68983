"""The guard: what an error says to strangers, by status, headers and body."""

import httpx
import pytest

from modelkeeper.errors import DiskFull, ModelKeeperError, NotAuthenticated, TooManyRequests, ZooUnusable
from modelkeeper.server.guard import headers_of, public
from modelkeeper.zoo.accounts import Accounts
from tests.helpers.service import Team


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
