"""Who may do what? Tokens, scopes, projects, quotas, and models that others may not see."""

import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import httpx
import msgspec
import pytest

from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.errors import InvalidMeta, InvalidSetting, NotAllowed, QuotaExceeded, UnknownModel
from modelkeeper.meta import Query
from modelkeeper.server.app import Application
from modelkeeper.server.guard import OPEN
from modelkeeper.server.serve import first_token
from modelkeeper.settings import ServiceSettings
from modelkeeper.weights import Array
from modelkeeper.zoo.accounts.accounts import Accounts
from modelkeeper.zoo.accounts.holders import SCOPES
from tests.helpers.service import Team, network, team, tensors, told

GRAPH = network()
ASKED = Query(data="digits", task="classification")
ID = "0123456789abcdef"


def every_route(keeper: Team) -> list[tuple[str, str]]:
    """Methods and paths, with something in place of each parameter."""
    described = Application(keeper.coordinator, ServiceSettings()).routes.openapi()["paths"]
    found = [(method.upper(), path) for path, methods in described.items() for method in methods]
    return [(method, re.sub(r"\{[a-z]+\}", ID, path)) for method, path in [*found, ("GET", "/openapi.json")]]


def test_every_route_wants_a_token(keeper: Team) -> None:
    routes = every_route(keeper)
    assert len(routes) >= 20
    expired = keeper.token("late")
    keeper.accounts.revoke(expired.split("_")[1])
    wrong = keeper.token("ada")[:-4] + "AAAA"
    with httpx.Client(base_url=keeper.url) as client:
        for method, path in [
            *routes,
            ("GET", "/nowhere"),
            ("PATCH", "/v1/models"),
            ("GET", "/v1/../metrics"),
        ]:
            for sent in ({}, *({"authorization": text} for text in _bad(wrong, expired))):
                status = client.request(method, path, headers=sent).status_code
                assert (status == 401) is (path not in OPEN), f"{method} {path} {sent} -> {status}"
        for path in OPEN:
            assert client.get(path).status_code == 200


def _bad(wrong: str, expired: str) -> list[str]:
    return [
        f"Bearer {wrong}",
        f"Bearer {expired}",
        "Bearer",
        "Basic YTpi",
        "Bearer mk_%00",
        f"bearer {wrong}",
    ]


def test_a_token_expires(keeper: Team) -> None:
    keeper.accounts.add_user("ada")
    token = keeper.accounts.add_token("ada", "read", days=0.2 / 86400)
    assert keeper.accounts.holder(token) is not None
    time.sleep(0.25)
    assert keeper.accounts.holder(token) is None


def test_tokens_are_hashed_at_rest_and_shown_once(keeper: Team) -> None:
    secret = first_token(keeper.coordinator)
    assert secret is not None
    assert first_token(keeper.coordinator) is None
    database = keeper.coordinator.settings.folder / "catalog.db"
    kept = database.read_bytes() + database.with_name("catalog.db-wal").read_bytes()
    assert secret.split("_", 2)[2].encode() not in kept
    assert secret not in repr(keeper.accounts.tokens())
    assert keeper.accounts.holder(secret).scope == "admin"  # type: ignore[union-attr]


def test_scopes_include_those_before_them(keeper: Team) -> None:
    reader, writer, admin = (keeper.join("ada", scope) for scope in ("read", "write", "admin"))
    assert reader.models() == []
    with pytest.raises(NotAllowed, match="needs the scope write"):
        reader.register(GRAPH, told(), tensors(GRAPH).items())
    writer.register(GRAPH, told(), tensors(GRAPH).items())
    for weak in (reader, writer):
        with pytest.raises(NotAllowed, match="needs the scope admin"):
            weak.gc()
    admin.gc()


def test_metrics_need_a_right_of_their_own(keeper: Team) -> None:
    """With a token of scope read they told that private models exist."""
    ada = keeper.join("ada")
    ada.register(GRAPH, told("hidden", visibility="private"), tensors(GRAPH).items())
    tokens = {scope: keeper.token("bob", scope) for scope in SCOPES}
    assert {"read", "write", "admin", "metrics"} <= tokens.keys()
    for scope, token in tokens.items():
        reply = httpx.get(f"{keeper.url}/metrics", headers={"authorization": f"Bearer {token}"})
        assert reply.status_code == (200 if scope in ("metrics", "admin") else 403), scope
        assert ("modelkeeper_zoo_models 1.0" in reply.text) is (scope in ("metrics", "admin"))


def test_a_token_for_metrics_may_do_nothing_else(keeper: Team) -> None:
    sent = {"authorization": f"Bearer {keeper.token('prometheus', 'metrics')}"}
    with httpx.Client(base_url=keeper.url, headers=sent) as client:
        for method, path in every_route(keeper):
            if path not in (*OPEN, "/metrics", "/openapi.json"):
                status = client.request(method, path, params={"name": "x"}).status_code
                assert status == 403, f"{method} {path} -> {status}"


def test_accounts_are_for_administrators_and_ones_own_tokens_for_everybody(keeper: Team) -> None:
    routes = [route for route in every_route(keeper) if re.match("/v1/(users|projects|tokens)", route[1])]
    assert len(routes) == 15
    for scope in ("read", "write", "partner"):
        sent = {"authorization": f"Bearer {keeper.token('ada', scope)}"}
        with httpx.Client(base_url=keeper.url, headers=sent) as client:
            for method, path in routes:
                own = path.startswith("/v1/tokens") and scope != "partner"
                status = client.request(method, path, json={"scope": "admin"}).status_code
                expected = {"GET": 200, "POST": 403, "DELETE": 404}[method] if own else 403
                assert status == expected, f"{scope}: {method} {path} -> {status}"
    assert keeper.accounts.projects() == []


def test_counts_are_of_what_may_be_seen(keeper: Team) -> None:
    ada, bob = keeper.join("ada"), keeper.join("bob", "read")
    ada.register(GRAPH, told("open"), tensors(GRAPH).items())
    ada.register(GRAPH, told("hidden", visibility="private", data="secret"), tensors(GRAPH, 1).items())
    mine, others = ada.stats(), bob.stats()
    assert (mine["models"], others["models"]) == (2, 1)
    assert others["bytes"] * 2 == mine["bytes"]
    assert others["states"] == {"active": 1}
    assert "secret" not in str(others)
    assert (ada.count(), bob.count()) == (2, 1)


def test_groups_that_are_counted_one_by_one_are_few(keeper: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelkeeper.zoo.catalog.totals.MOST_GROUPS", 2)
    ada = keeper.join("ada")
    for number in range(3):
        ada.register(GRAPH, told(data=f"data {number}"), tensors(GRAPH).items())
    assert (ada.stats()["models"], len(ada.stats()["groups"])) == (3, 2)


def test_the_owner_is_who_the_token_says(keeper: Team) -> None:
    ada = keeper.join("ada")
    assert ada.register(GRAPH, told(), tensors(GRAPH).items(), owner="bob").record.owner == "ada"


def test_what_is_private_is_not_there_for_others(keeper: Team) -> None:
    ada, bob, admin = keeper.join("ada"), keeper.join("bob"), keeper.join("root", "admin")
    public = ada.register(GRAPH, told("open", 0.5), tensors(GRAPH).items()).record
    secret = ada.register(
        GRAPH, told("hidden", 0.9, visibility="private", parent=public.id), tensors(GRAPH, 1).items()
    ).record
    assert ada.query(GRAPH, ASKED).answer.parent == secret.id
    answer = bob.query(GRAPH, ASKED, runners_up=True).answer
    assert answer.parent == public.id
    assert secret.id not in str(answer.to_dict())
    assert "hidden" not in str(answer.to_dict())
    assert answer.considered == 1
    assert [rival.id for rival in ada.query(GRAPH, ASKED, runners_up=True).answer.runners_up] == [public.id]
    asks: tuple[Callable[[], object], ...] = (
        lambda: bob.show(secret.id),
        lambda: bob.show("hidden"),
        lambda: bob.show(secret.id[:6]),
        lambda: bob.tree(secret.id),
        lambda: bob.graph(secret),
        lambda: bob.remove(secret.id),
        lambda: bob.pin(secret.id),
        lambda: dict(_stolen(bob, secret.id)),
    )
    for ask in asks:
        with pytest.raises(UnknownModel):
            ask()
    preferred = Query(data="digits", task="classification", parents=(secret.id, "hidden"))
    assert bob.query(GRAPH, preferred).answer.parent == public.id
    assert [record.id for record in bob.models()] == [public.id]
    assert bob.tree(public.id).descendants == ()
    assert secret.id not in str(bob.log())
    assert bob.stats()["models"] == 1
    assert {record.id for record in admin.models()} == {public.id, secret.id}
    assert ada.show("hidden").state == "active"


def test_private_models_show_nowhere_as_parent_or_twin(keeper: Team) -> None:
    ada, bob, admin = keeper.join("ada"), keeper.join("bob"), keeper.join("root", "admin")
    secret = ada.register(GRAPH, told("hidden", 0.95, visibility="private"), tensors(GRAPH).items()).record
    told_of_it = msgspec.structs.replace(told("open", 0.9, parent=secret.id), similarity=1.0)
    child = ada.register(GRAPH, told_of_it, tensors(GRAPH, 1).items()).record
    grandchild = bob.register(
        GRAPH, told("his", 0.91, parent=child.id), tensors(GRAPH, 2).items(), model_id=ID
    )
    for eyes in (ada, admin):
        assert (eyes.show("open").parent, eyes.show("open").twin) == (secret.id, secret.id)
        assert [record.id for record in eyes.tree(ID).ancestors] == [child.id, secret.id]
    shown = bob.show("open")
    assert (shown.parent, shown.similarity, shown.twin, shown.twin_similarity) == ("", None, "", 0.0)
    told_bob = [
        bob.show("open"),
        bob.models(),
        bob.tree(child.id),
        bob.tree(ID),
        bob.log(),
        bob.stats(),
        bob.query(GRAPH, ASKED, runners_up=True).answer,
        grandchild,
        bob.register(GRAPH, told("his", 0.91, parent=child.id), tensors(GRAPH, 2).items(), model_id=ID),
        bob.pin(ID),
        bob.pin(ID, False),
        bob.remove(ID),
    ]
    assert [record.id for record in bob.tree(child.id).ancestors] == []
    for reply in told_bob:
        assert secret.id not in str(reply), reply
        assert "hidden" not in str(reply)


def test_private_models_show_nowhere_among_several_parents(keeper: Team) -> None:
    ada, bob = keeper.join("ada"), keeper.join("bob")
    secret = ada.register(GRAPH, told("hidden", visibility="private"), tensors(GRAPH).items()).record
    seen = [
        ada.register(GRAPH, told(name), tensors(GRAPH, seed).items()).record.id
        for seed, name in enumerate(("one", "two"), 1)
    ]
    for name, parents in {"first": (secret.id, *seen), "last": (*seen, secret.id)}.items():
        family = msgspec.structs.replace(told(name, parent=parents), similarity=0.5)
        child = ada.register(GRAPH, family, tensors(GRAPH, 3).items()).record
        assert child.parents == ada.show(name).parents == parents
        for reply in (bob.show(name), bob.tree(name), bob.models(), bob.tree(seen[1])):
            assert secret.id not in str(reply), reply
        assert bob.show(name).parents == tuple(seen)
        assert [record.id for record in bob.tree(name).ancestors] == seen
        assert bob.show(name).similarity == (0.5 if name == "last" else None)
    assert [each.record.name for each in bob.tree("two").descendants] == ["first", "last"]
    assert [each.record.name for each in ada.tree(secret.id).descendants] == ["first", "last"]


def test_who_had_to_make_room_is_told_to_those_who_may_see_it(tmp_path: Path) -> None:
    with team(tmp_path) as keeper:
        ada, bob = keeper.join("ada"), keeper.join("bob")
        secret = ada.register(GRAPH, told("hidden", 0.5, visibility="private"), tensors(GRAPH).items()).record
        settings = keeper.coordinator.settings
        keeper.coordinator.zoo.settings = msgspec.structs.replace(settings, capacity=secret.bytes * 3 // 2)
        done = bob.register(GRAPH, told("his", 0.9), tensors(GRAPH, 1).items())
        assert keeper.coordinator.show(secret.id).state == "evicted"
        assert done.evicted == ()


def _stolen(thief: RemoteCoordinator, parent: str) -> Iterable[tuple[str, Array]]:
    found = thief.query(GRAPH, ASKED)
    found.answer = type(found.answer)(parent=parent)
    return found.weights()


def test_what_is_visible_can_still_only_be_changed_by_its_owner(keeper: Team) -> None:
    ada, bob, admin = keeper.join("ada"), keeper.join("bob"), keeper.join("root", "admin")
    mine = ada.register(GRAPH, told("open"), tensors(GRAPH).items()).record
    changes: list[Callable[[], object]] = [lambda: bob.remove(mine.id), lambda: bob.pin(mine.id)]
    for change in changes:
        with pytest.raises(NotAllowed, match="belongs to ada"):
            change()
    assert ada.show(mine.id).state == "active"
    admin.pin(mine.id)
    ada.remove(mine.id)


def test_a_projects_models_are_seen_by_its_members(keeper: Team) -> None:
    ada, bob, eve = (keeper.join(name) for name in ("ada", "bob", "eve"))
    keeper.accounts.add_project("vision")
    for name in ("ada", "bob"):
        keeper.accounts.join("vision", name)
    time.sleep(2.1)  # a service may remember who belongs where for two seconds
    ours = ada.register(GRAPH, told("ours", project="vision", visibility="project"), tensors(GRAPH).items())
    assert bob.query(GRAPH, ASKED).answer.parent == ours.record.id
    assert eve.query(GRAPH, ASKED).answer.cold
    with pytest.raises(NotAllowed, match="no member of project 'vision'"):
        eve.register(GRAPH, told(project="vision", visibility="project"), tensors(GRAPH).items())
    with pytest.raises(InvalidMeta, match="project"):
        eve.register(GRAPH, told(visibility="project"), tensors(GRAPH).items())
    mine = ada.register(GRAPH, told("mine"), tensors(GRAPH, 1).items()).record  # of the only one she is in
    assert (mine.project, mine.project_id, mine.visibility) == ("vision", ours.record.project_id, "project")
    for said in ("public", "private"):
        record = ada.register(GRAPH, told(said, visibility=said), tensors(GRAPH, len(said)).items()).record
        assert (record.project, record.visibility) == ("", said)
    assert eve.register(GRAPH, told("free"), tensors(GRAPH, 9).items()).record.visibility == "public"


def test_uploads_belong_to_who_began_them(keeper: Team) -> None:
    ada, bob = keeper.join("ada"), keeper.join("bob")
    entry = ada.spool.keep(keeper.url, GRAPH, told(), tensors(GRAPH).items(), "", ID)
    request = msgspec.json.encode(entry.waiting.request)
    body = {"content": request, "headers": {"content-type": "application/json"}}
    hers, his = ada._calls.client, bob._calls.client
    assert hers.post("/uploads", **body).json()["offset"] == 0  # type: ignore[arg-type]
    for reply in (
        his.post("/uploads", **body),  # type: ignore[arg-type]
        his.get(f"/uploads/{ID}"),
        his.put(f"/uploads/{ID}", content=b"evil"),
        his.post(f"/uploads/{ID}/complete"),
        his.delete(f"/uploads/{ID}"),
    ):
        assert reply.status_code == 404, reply.text
    assert hers.get(f"/uploads/{ID}").json()["offset"] == 0
    assert ada.send(entry).record.id == ID
    with pytest.raises(NotAllowed, match="is taken"):  # nor can he overwrite what is registered
        bob.register(GRAPH, told(), tensors(GRAPH).items(), model_id=ID)
    assert his.post(f"/uploads/{ID}/complete").status_code == 403


def test_quotas(keeper: Team) -> None:
    size = 10**6
    ada = keeper.join("ada", models=1)
    ada.register(GRAPH, told(), tensors(GRAPH).items())
    with pytest.raises(QuotaExceeded, match="1 models, 1 are allowed"):
        ada.register(GRAPH, told(), tensors(GRAPH).items())
    bob = keeper.join("bob", bytes=1000)
    with pytest.raises(QuotaExceeded, match="1,000 are allowed"):
        bob.register(GRAPH, told(), tensors(GRAPH).items())
    roomy = keeper.join("eve", bytes=size)
    roomy.register(GRAPH, told(), tensors(GRAPH).items())


def test_the_rate_of_one_user_does_not_slow_another(keeper: Team) -> None:
    ada, bob = keeper.join("ada", rate=0.5), keeper.join("bob")
    ada.stats()
    with pytest.raises(QuotaExceeded, match="requests per second"):
        ada._calls._reply("GET", "/stats", None, None, 0.1)
    for _ in range(10):
        bob.stats()


def test_without_auth_only_this_machine_is_served() -> None:
    for host in ("0.0.0.0", "10.0.0.7", "::", "example.org"):
        with pytest.raises(InvalidSetting, match="without auth"):
            ServiceSettings(auth=False, host=host)
    for host in ("127.0.0.1", "::1", "localhost", "127.3.4.5"):
        ServiceSettings(auth=False, host=host)


def test_users_and_projects_come_and_go(keeper: Team) -> None:
    accounts: Accounts = keeper.accounts
    token = keeper.token("ada")
    accounts.add_project("vision")
    accounts.join("vision", "ada")
    accounts.join("vision", "ada")
    assert [(known.name, known.members) for known in accounts.projects()] == [("vision", ("ada",))]
    assert list(accounts.holder(token).projects) == ["vision"]  # type: ignore[union-attr]
    assert accounts.leave("vision", "ada")
    assert accounts.remove_project("vision")
    assert not accounts.remove_project("vision")
    with pytest.raises(InvalidSetting, match="modelkeeper user add nobody"):
        accounts.add_token("nobody", "read")
    with pytest.raises(InvalidSetting, match="scope"):
        accounts.add_token("ada", "root")
    assert accounts.add_user("ada", bytes=5).bytes == 5
    assert accounts.remove_user("ada")
    assert accounts.holder(token) is None
    assert accounts.tokens() == []


def test_host_names(tmp_path: Path) -> None:
    with team(tmp_path, hosts="keeper.example.org, 127.0.0.1") as keeper:
        token = keeper.token("ada")
        sent = {"authorization": f"Bearer {token}"}
        for host, status in (("keeper.example.org", 200), ("127.0.0.1:80", 200), ("evil.example.org", 403)):
            reply = httpx.get(f"{keeper.url}/v1/stats", headers=sent | {"host": host})
            assert reply.status_code == status
        # The probes of a container or a balancer, which ask by whatever address it has.
        for path in ("healthz", "readyz", "version"):
            reply = httpx.get(f"{keeper.url}/{path}", headers={"host": "10.0.0.7:7433"})
            assert reply.status_code in ((200, 503) if path == "readyz" else (200,))  # 503: not ready yet


def test_a_search_that_takes_too_long_says_so(tmp_path: Path) -> None:
    with team(tmp_path, query_time=1e-9) as keeper:
        ada = keeper.join("ada")
        ada.register(GRAPH, told(), tensors(GRAPH).items())
        answer = ada.query(network(12), ASKED).answer
        assert answer.cold
        assert "cut short" in answer.warnings[0]
