"""The routes of users, projects and tokens: what they say, and that a service keeps to it at once."""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.server.serve import serving
from modelkeeper.settings import ServiceSettings
from modelkeeper.zoo.records import Record
from tests.helpers.service import Team, network, team, tensors, told

NOWHERE = "0123456789abcdef"


class Line:
    """Somebody who calls a service with a token."""

    def __init__(self, keeper: Team, token: str) -> None:
        self.token, self.url = token, f"{keeper.url}/v1"

    def __call__(self, method: str, path: str, body: Any = None, status: int = 200, **asked: Any) -> Any:
        headers = {"authorization": f"Bearer {self.token}"}
        reply = httpx.request(method, f"{self.url}{path}", json=body, headers=headers, params=asked)
        assert reply.status_code == status, reply.text
        assert reply.headers["cache-control"] == "no-store"
        return reply.json()


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team(tmp_path_factory.mktemp("accounts"), quota_models=9, rate=10_000) as found:
        yield found


@pytest.fixture
def admin(keeper: Team) -> Line:
    return Line(keeper, keeper.token("root", "admin"))


def key(token: str) -> str:
    return token.split("_")[1]


def test_a_user_comes_gets_quotas_and_goes(keeper: Team, admin: Line) -> None:
    ada = admin("POST", "/users", {"name": "ada", "quotas": {"bytes": 10**9}})
    assert ada["quotas"] == {"bytes": 10**9, "models": None, "pins": None, "rate": None}
    assert (ada["most"]["bytes"], ada["most"]["models"], ada["most"]["pins"]) == (10**9, 9, 10)
    assert (ada["scope"], ada["tokens"], ada["models"]) == ("", 0, 0)
    again = admin("POST", "/users", {"name": "ada"}, 409)
    assert (again["code"], again["fields"]) == (
        "account_conflict",
        ["there is a user 'ada'", "Choose another name."],
    )
    admin("POST", "/users", {"name": "АDA"}, 422)  # looks like her
    made = admin("POST", "/tokens", {"user": ada["id"], "scope": "write"})
    record = registered(keeper, made["token"])
    known = admin("GET", f"/users/{ada['id']}")
    assert (known["scope"], known["tokens"], known["models"], known["bytes"]) == ("write", 1, 1, record.bytes)
    for _ in range(2):  # asking again changes nothing more
        changed = admin("PUT", f"/users/{ada['id']}/quotas", {"models": 1, "rate": 50})
        assert changed["quotas"] == {"bytes": None, "models": 1, "pins": None, "rate": 50.0}
    assert (
        len([event for event in admin("GET", "/log", action="administered") if "rate 50" in event["detail"]])
        == 1
    )
    admin("PUT", f"/users/{ada['id']}/quotas", {"models": -1}, 422)
    admin("PUT", f"/users/{ada['id']}/quotas", {"model": 1}, 422)
    assert admin("DELETE", f"/users/{ada['id']}")["name"] == "ada"
    for method, path in (("DELETE", ""), ("GET", ""), ("PUT", "/quotas")):
        gone = admin(method, f"/users/{ada['id']}{path}", {} if method == "PUT" else None, 404)
        assert gone["code"] == "unknown_account"
    admin("GET", "/users/ada", status=422)


def registered(keeper: Team, token: str) -> Record:
    remote = RemoteCoordinator(keeper.url, token=token, spool=keeper._spool, timeout=20)
    record = remote.register(network(), told("hers"), tensors(network()).items()).record
    remote.close()
    return record


def test_projects_and_who_belongs_to_them(keeper: Team, admin: Line) -> None:
    users = {name: keeper.accounts.add_user(name).id for name in ("pam", "pia")}
    project = admin("POST", "/projects", {"name": "vision", "members": ["pam"]})
    assert (project["name"], project["members"]) == ("vision", 1)
    assert admin("POST", "/projects", {"name": "vision"}, 409)["code"] == "account_conflict"
    assert (
        admin("POST", "/projects", {"name": "sound", "members": ["nobody"]}, 404)["code"] == "unknown_account"
    )
    path = f"/projects/{project['id']}"
    for _ in range(2):
        assert admin("PUT", f"{path}/members/{users['pia']}")["members"] == 2
    first = admin("GET", f"{path}/members", limit=1)
    assert ([member["name"] for member in first["items"]], first["total"]) == (["pam"], 2)
    rest = admin("GET", f"{path}/members", limit=1, after=first["next"])
    assert (rest["items"][0]["id"], rest["next"]) == (users["pia"], "")
    assert admin("DELETE", f"{path}/members/{users['pam']}")["members"] == 1
    admin("DELETE", f"{path}/members/{users['pam']}", status=404)
    admin("PUT", f"{path}/members/{NOWHERE}", status=404)
    assert [each["name"] for each in admin("GET", "/projects", text="VIS")["items"]] == ["vision"]
    assert admin("DELETE", path)["name"] == "vision"
    admin("DELETE", path, status=404)


def test_a_user_makes_no_more_than_they_have(keeper: Team, admin: Line) -> None:
    token = keeper.token("bea")
    bea = Line(keeper, token)
    made = bea("POST", "/tokens", {"scope": "read", "days": 7, "note": "laptop"})
    assert (made["known"]["user"], made["known"]["maker"], made["known"]["note"]) == (
        "bea",
        key(token),
        "laptop",
    )
    laptop = Line(keeper, made["token"])
    assert laptop("GET", "/me")["scope"] == "read"
    for scope in ("admin", "metrics", "partner", "root"):
        bea("POST", "/tokens", {"scope": scope}, 403)
    bea("POST", "/tokens", {"scope": "read", "user": "root"}, 403)
    assert "makes none itself" in laptop("POST", "/tokens", {"scope": "read"}, 403)["message"]
    reader = Line(keeper, keeper.accounts.add_token("bea", "read"))
    reader("POST", "/tokens", {"scope": "write"}, 403)
    reader("DELETE", f"/tokens/{key(token)}", status=403)  # it may do more
    other = key(keeper.token("eve"))
    assert other not in str(bea("GET", "/tokens"))
    assert bea("GET", "/tokens", user=keeper.accounts.holder(admin.token).user.id)["total"] == 3  # type: ignore[union-attr]
    for stranger in (other, NOWHERE):  # nobody learns whether it is there
        assert bea("DELETE", f"/tokens/{stranger}", status=404)["code"] == "unknown_account"
    assert bea("DELETE", f"/tokens/{key(token)}")["id"] == key(token)
    ended(bea, laptop)
    assert reader("GET", "/tokens")["total"] == 1
    for name in ("prom", "partner"):
        guest = Line(keeper, keeper.token(name, {"prom": "metrics"}.get(name, name)))
        guest("GET", "/tokens", status=403)
        guest("POST", "/tokens", {"scope": "read"}, 403)


def ended(*lines: Line) -> None:
    """Within two seconds (one, and a busy machine) nobody is let in with these tokens."""
    end = time.monotonic() + 2
    for line in lines:
        while (
            httpx.get(f"{line.url}/me", headers={"authorization": f"Bearer {line.token}"}).status_code != 401
        ):
            assert time.monotonic() < end
            time.sleep(0.02)


def test_the_last_administrator_is_kept(keeper: Team) -> None:
    for token in keeper.accounts.tokens():
        if token.scope == "admin" and token.user != "root":
            keeper.accounts.revoke(token.id)
    last = Line(keeper, keeper.token("root", "admin"))
    for token in keeper.accounts.tokens():
        if token.scope == "admin" and token.id != key(last.token):
            keeper.accounts.revoke(token.id)
    root = last("GET", "/users", text="root")["items"][0]
    for path in (f"/tokens/{key(last.token)}", f"/users/{root['id']}"):
        refused = last("DELETE", path, status=409)
        assert "last valid token of an administrator" in refused["message"]
    assert last("GET", "/me")["user"] == "root"


def test_what_an_administrator_does_is_in_the_log(keeper: Team, admin: Line) -> None:
    carl = admin("POST", "/users", {"name": "carl"})
    token = admin("POST", "/tokens", {"user": "carl", "scope": "read", "note": "x"})
    events = admin("GET", "/log", action="administered", limit=2)
    assert [(event["user"], event["data"]["change"]) for event in events] == [("root", "added")] * 2
    assert {event["data"]["by"] for event in events} == {admin("GET", "/me")["id"]}
    assert events[1]["data"]["id"] == carl["id"]
    assert events[0]["data"]["token"] == token["known"]["id"]
    assert token["token"].split("_", 2)[2] not in str(admin("GET", "/log", limit=1000))
    assert Line(keeper, token["token"])("GET", "/log", action="administered") == []


def test_a_token_that_one_replica_revokes_is_refused_by_all(keeper: Team, admin: Line) -> None:
    with serving(keeper.coordinator, ServiceSettings(port=0)) as url:
        token = keeper.token("dan")
        here, there = Line(keeper, token), Line(keeper, token)
        there.url = f"{url}/v1"
        assert here("GET", "/me") == there("GET", "/me") | {"most_models": 9}
        admin("DELETE", f"/tokens/{key(token)}")
        ended(here, there)


def test_where_there_are_no_users_nothing_is_administered(keeper: Team) -> None:
    before = len(keeper.accounts.tokens())
    with serving(keeper.coordinator, ServiceSettings(port=0, auth=False)) as url:
        for path in ("users", "projects", "tokens", f"users/{NOWHERE}"):
            assert "has no users" in httpx.get(f"{url}/v1/{path}").json()["message"]
        for path, body in (("users", {"name": "x"}), ("tokens", {"scope": "admin", "user": "root"})):
            assert httpx.post(f"{url}/v1/{path}", json=body).status_code == 403
    assert len(keeper.accounts.tokens()) == before


def test_the_description_has_the_lists(keeper: Team) -> None:
    described = httpx.get(
        f"{keeper.url}/openapi.json", headers={"authorization": f"Bearer {keeper.token('zoe')}"}
    )
    paths = described.json()["paths"]
    for path, field in (("users", "most"), ("projects", "members"), ("tokens", "maker")):
        schema = paths[f"/v1/{path}"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        assert field in schema["properties"]["items"]["items"]["properties"]
        assert "schema" in paths[f"/v1/{path}"]["post"]["requestBody"]["content"]["application/json"]
